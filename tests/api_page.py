"""The list of public names, which the site appends to docs/api.md: ``python tests/api_page.py`` prints it.

It is made from the ``__all__`` of the modules below and the first sentences of docstrings.
"""

from __future__ import annotations

import ast
import inspect
import re
from importlib import import_module
from pathlib import Path
from types import ModuleType

MODULES = (
    "mvplda",
    "mvplda.preprocessing",
    "mvplda.calibration",
    "mvplda.metrics",
    "mvplda.plotting",
    "mvplda.report",
    "mvplda.io",
    "mvplda.io.onnx",
    "mvplda.io.plda_files",
    "mvplda.statistics",
    "mvplda.distributed",
    "mvplda.voice.extractors",
    "mvplda.voice.audio",
    "mvplda.paper.frames",
    "mvplda.paper.experiment_settings",
    "mvplda.paper.network_training",
    "mvplda.paper.corpora",
    "mvplda.paper.experiment",
    "mvplda.client",
    "mvplda.labels",
    "mvplda.exceptions",
)


def public_names(module: ModuleType) -> list[str]:
    """Return the names of ``__all__``, or every public name of a module without it."""
    named: list[str] = getattr(module, "__all__", None) or [
        name for name in vars(module) if not name.startswith("_")
    ]
    return [name for name in named if name != "__version__"]


def first_sentence(module: ModuleType, name: str) -> str:
    """Return the first sentence of a docstring, or of the text below a constant."""
    value = getattr(module, name)
    text = (
        inspect.getdoc(value) if inspect.isclass(value) or callable(value) else _below(module, name)
    )
    line = " ".join((text or "").partition("\n\n")[0].split())
    return re.split(r"(?<=\.)\s", line, maxsplit=1)[0].rstrip(".")


def _below(module: ModuleType, name: str) -> str | None:
    folder = Path(str(module.__file__)).parent
    files = [*sorted(folder.glob("*.py")), *sorted(folder.parent.glob("*.py"))]
    for path in files if Path(str(module.__file__)).name == "__init__.py" else []:
        body = ast.parse(path.read_text(encoding="utf-8")).body
        for node, after in zip(body, [*body[1:], None], strict=True):
            targets = (
                node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            )
            if any(isinstance(target, ast.Name) and target.id == name for target in targets):
                if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                    return str(after.value.value)
    return None


def listing() -> str:
    """Return the list as Markdown: a table per module, each object once."""
    parts = []
    listed = set()
    for place in MODULES:
        module = import_module(place)
        parts.append(
            f"\n## {place}\n\n{first_sentence_of_module(module)}\n\n| name | description |\n|:---|:---|\n"
        )
        for name in sorted(public_names(module), key=lambda name: (name.islower(), name)):
            if id(getattr(module, name)) in listed:
                continue
            listed.add(id(getattr(module, name)))
            parts.append(
                f"| `{name}` | {first_sentence(module, name).replace('|', chr(92) + '|')} |\n"
            )
    return "".join(parts)


def first_sentence_of_module(module: ModuleType) -> str:
    return " ".join((module.__doc__ or "").strip().partition("\n\n")[0].split())


if __name__ == "__main__":
    print(listing())
