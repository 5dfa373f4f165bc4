"""Make the JavaScript client from the service's description in OpenAPI.

``python -m tools.javascript_client`` writes ``client.js`` and its types, ``client.d.ts``, beside the page, from which
every service delivers them. Methods and types come from OpenAPI; sending, retries and errors are in the template.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mvplda.serve.app import create_app, open_service
from mvplda.serve.settings import Settings

Json = Mapping[str, Any]
ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "src" / "mvplda" / "serve" / "page"
TEMPLATES = Path(__file__).parent
SOUND = "application/octet-stream"
PLAIN_TYPES = {
    "string": "string",
    "integer": "number",
    "number": "number",
    "boolean": "boolean",
    "null": "null",
}
# Type of a recording, which the template defines.
RECORDING = "Recording"
LONGEST_LINE = 120


def description() -> Json:
    """Return the OpenAPI description of the service, which does not depend on the model."""
    with tempfile.TemporaryDirectory() as folder:
        service = open_service(Settings(data=Path(folder), demo=True))
        try:
            return create_app(service).openapi()
        finally:
            service.store.close()


@dataclass(frozen=True)
class Method:
    """One operation of the service as a method of the JavaScript client.

    Parameters
    ----------
    path_parameters, query : {name: type in TypeScript} of the parameters in the path and in the query
    body : type of the body in TypeScript; None: the operation has no body
    is_once : whether the call is sent with an ``Idempotency-Key``
    reply : type of the answer in TypeScript
    """

    name: str
    http_method: str
    path: str
    summary: str
    path_parameters: Mapping[str, str]
    query: Mapping[str, str]
    body: str | None
    is_once: bool
    reply: str

    def arguments(self) -> list[tuple[str, str]]:
        """Return (name, type in TypeScript) of the method's arguments; names of optional ones end with "?"."""
        arguments = list(self.path_parameters.items())
        if self.body is not None:
            arguments.append(("recording" if self.body == RECORDING else "body", self.body))
        if self.query:
            fields = "; ".join(f"{name}?: {kind}" for name, kind in self.query.items())
            arguments.append(("fields?", f"{{ {fields} }}"))
        return arguments

    def code(self) -> str:
        """Return the method in JavaScript."""
        names = [name.rstrip("?") for name, _ in self.arguments()]
        path = re.sub(r"\{(\w+)\}", lambda found: f"${{part({camel_case(found[1])})}}", self.path)
        quote = "`" if "${" in path else '"'
        options = [name for name in names if name not in self.path_parameters]
        if self.is_once:
            options.append("once: true")
        if self.reply == "string":
            options.append("text: true")
        given = f", {{ {', '.join(options)} }}" if options else ""
        return (
            f"  /** {self.summary} */\n"
            f"  {self.name}({', '.join(names)}) {{\n"
            f'    return this.#send("{self.http_method}", {quote}{path}{quote}{given});\n'
            f"  }}\n"
        )

    def declaration(self) -> str:
        """Return the declaration of the method in TypeScript."""
        arguments = [f"{name}: {kind}" for name, kind in self.arguments()]
        head, tail = f"  {self.name}(", f"): Promise<{self.reply}>;\n"
        line = head + ", ".join(arguments) + tail
        if len(line) > LONGEST_LINE:
            line = head + "".join(f"\n    {argument}," for argument in arguments) + "\n  " + tail
        return f"  /** {self.summary} */\n{line}"


def camel_case(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)


def methods(api: Json) -> Iterator[Method]:
    for path, operations in api["paths"].items():
        for http_method, operation in operations.items():
            yield method(path, http_method.upper(), operation)


def method(path: str, http_method: str, operation: Json) -> Method:
    parameters: Sequence[Json] = operation.get("parameters", [])

    def types(place: str) -> dict[str, str]:
        return {
            camel_case(parameter["name"]): type_of(parameter["schema"])
            for parameter in parameters
            if parameter["in"] == place
        }

    bodies = operation.get("requestBody", {}).get("content", {})
    body = None
    if SOUND in bodies:
        body = RECORDING
    elif bodies:
        body = type_of(bodies["application/json"]["schema"])
    (content,) = (
        answer["content"] for status, answer in operation["responses"].items() if status[0] == "2"
    )
    (media,) = content.values()
    return Method(
        camel_case(operation["operationId"]),
        http_method,
        path,
        operation["description"],
        types("path"),
        types("query"),
        body,
        any(parameter["name"] == "Idempotency-Key" for parameter in parameters),
        type_of(media["schema"]),
    )


# -- types ---------------------------------------------------------------------------------


def type_of(schema: Json) -> str:
    """Return the TypeScript type of a JSON schema."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "anyOf" in schema:
        return " | ".join(dict.fromkeys(type_of(option) for option in schema["anyOf"]))
    if "enum" in schema:
        return " | ".join(f'"{value}"' for value in schema["enum"])
    if "const" in schema:
        return f'"{schema["const"]}"'
    kind = schema.get("type")
    if kind == "array":
        item = type_of(schema["items"])
        return f"({item})[]" if "|" in item else f"{item}[]"
    if kind == "object":
        values = schema.get("additionalProperties")
        return f"Record<string, {type_of(values) if isinstance(values, dict) else 'unknown'}>"
    return PLAIN_TYPES[kind] if kind else "unknown"


def interface(name: str, schema: Json) -> str:
    """Return the TypeScript interface `name` of a JSON schema of an object."""
    required = schema.get("required", [])
    lines = [f"/** {schema['description']} */"] if "description" in schema else []
    lines.append(f"export interface {name} {{")
    for field, kind in schema["properties"].items():
        if "description" in kind:
            lines.append(f"  /** {kind['description']} */")
        lines.append(f"  {field}{'' if field in required else '?'}: {type_of(kind)};")
    if schema.get("additionalProperties") is True:
        lines.append("  [other: string]: unknown;")
    return "\n".join([*lines, "}\n"])


def files(api: Json) -> dict[str, str]:
    """Return {file name: text} of the client for an OpenAPI description."""
    found = list(methods(api))
    code = "\n".join(operation.code() for operation in found)
    declarations = "".join(operation.declaration() for operation in found)
    interfaces = "\n".join(
        interface(name, schema) for name, schema in api["components"]["schemas"].items()
    )
    return {
        "client.js": template("client.js").replace("  // METHODS\n", code),
        "client.d.ts": template("client.d.ts")
        .replace("  // METHODS\n", declarations)
        .replace("// INTERFACES\n", interfaces),
    }


def template(name: str) -> str:
    return (TEMPLATES / name).read_text(encoding="utf-8")
