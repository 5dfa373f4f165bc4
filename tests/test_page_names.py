"""What the documents name is there: options, settings, functions and classes, files, endpoints, variables."""

from __future__ import annotations

import ast
import builtins
import importlib
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from typing import Any

import click
import pytest
from pages import PAGES, PYTHON, ROOT, SHELL, blocks, spans, text_of

from mvplda.cli import main

SOURCE = ROOT / "src" / "mvplda"
FOREIGN_PROGRAMS = {
    "compute-eer",
    "copy-vector",
    "eval",
    "ivector-adapt-plda",
    "ivector-compute-plda",
    "ivector-plda-scoring",
    "openapi-python-client",
    "pg_dump",
    "pip",
    "systemd-analyze",
    "wespeaker",
}
FOREIGN_OPTIONS = {
    "--build-arg": "builders of images",
    "--exclude-table-data": "pg_dump",
    "--min-speech": "named as not there",
    "--nthreads": "Dask's worker",
    "--nworkers": "Dask's worker",
    "--recogniser": "examples/household.py",
    "--text": "examples/household.py",
    "--webhook": "examples/household.py",
}
"""Options on the pages that this project's programs do not have, and whose they are."""
FOREIGN_NAMES = {
    "by_distance": "examples/search/distances.py",
    "DetCurveDisplay": "scikit-learn",
    "FORWARDED_ALLOW_IPS": "uvicorn",
    "GridSearchCV": "scikit-learn",
    "SPEAKER_00": "pyannote.audio",
    "SpeakerRecognition": "SpeechBrain",
    "StatObject_SB": "SpeechBrain",
    "TwoCovPLDA": "WeSpeaker",
    "X_test": "the reader's vectors",
    "compute_min_dcf": "Kaldi",
    "fast_PLDA_scoring": "SpeechBrain",
    "fish_source": "click",
    "identifySingleSpeaker": "Azure",
    "ignore_startup_parameters": "PgBouncer",
    "mvplda_decisions_total": "mvplda_decisions, to which Prometheus adds _total",
    "mvplda_looks_total": "mvplda_looks, to which Prometheus adds _total",
    "mvplda_requests_total": "mvplda_requests, to which Prometheus adds _total",
    "nb_iter": "SpeechBrain",
    "num_utts": "Kaldi",
    "pg_checkpoint": "PostgreSQL",
    "pool_mode": "PgBouncer",
    "rank_f": "SpeechBrain",
    "recognitionResult": "Azure",
    "speaker_diarization": "pyannote.audio",
    "vbx_setup": "pyannote.audio",
    "vector_l2_ops": "pgvector",
    "verify_files": "SpeechBrain",
    "zsh_source": "click",
    **dict.fromkeys(
        (
            *("AcceptanceThreshold", "CreateDomain", "CustomerSpeakerId", "DeleteSpeaker"),
            *("DescribeSpeaker", "EvaluateSession", "KNOWN_FRAUDSTER", "ListSpeakers"),
            *("NOT_ENOUGH_SPEECH", "OptOutSpeaker", "SPEAKER_EXPIRED", "SPEAKER_ID_NOT_PROVIDED"),
            *("SPEAKER_NOT_ENROLLED", "SPEAKER_OPTED_OUT", "StartSpeakerEnrollmentJob"),
            "VOICE_SPOOFING",
        ),
        "Amazon Connect Voice ID",
    ),
}
"""Names on the pages that the package's code does not have, and whose they are."""
FILE = re.compile(r"[\w*/{}-]+\.(?:csv|json|npy|npz|onnx|parquet|safetensors|toml|txt|wav)")


# What is there.


@cache
def commands() -> dict[str, click.Command]:
    """Every command by its whole name."""

    def within(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
        yield name, command
        if isinstance(command, click.Group):
            context = click.Context(command, **main.context_settings)
            for inner in command.list_commands(context):
                found = command.get_command(context, inner)
                assert found is not None
                yield from within(found, f"{name} {inner}")

    return dict(within(main, "mvplda"))


@cache
def options() -> set[str]:
    """Options of every command, and of the programs beside the package."""
    found = {"--help"}
    for command in commands().values():
        for parameter in command.params:
            found.update([*parameter.opts, *parameter.secondary_opts])
    for folder in ("benchmarks", "tests"):
        for path in (ROOT / folder).rglob("*.py"):
            if path.name != "test_page_names.py":
                text = path.read_text(encoding="utf-8")
                found.update(re.findall(r"[\"'](--[a-z][a-z-]*)[\"']", text))
    return found


def docstrings(tree: ast.Module) -> set[int]:
    """Ids of the nodes that are docstrings, or text below a constant."""
    return {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }


@cache
def identifiers() -> set[str]:
    """Names in the code of the package: of definitions, arguments and attributes, and words of its constants."""
    found = set(dir(builtins))
    for path in SOURCE.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        prose = docstrings(tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.Name):
                found.add(node.id)
            elif isinstance(node, ast.Attribute):
                found.add(node.attr)
            elif isinstance(node, ast.arg | ast.keyword) and node.arg:
                found.add(node.arg)
            elif isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
                found.add(node.name)
            elif isinstance(node, ast.alias):
                found.update(re.findall(r"\w+", f"{node.name} {node.asname or ''}"))
            elif (
                isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and id(node) not in prose
            ):
                found.update(re.findall(r"\w+", node.value))
    camel = {re.sub(r"_(\w)", lambda m: m[1].upper(), name) for name in found}
    for path in [*(SOURCE / "serve" / "page").rglob("*.js"), *SOURCE.rglob("*.sql")]:
        found.update(re.findall(r"\w+", path.read_text(encoding="utf-8")))
    return found | camel


@cache
def settings() -> set[str]:
    """Names that ``-s`` takes, by section."""
    from dataclasses import fields
    from inspect import signature

    from mvplda.paper.corpora import CORPORA
    from mvplda.paper.experiment_settings import Configuration

    record = Configuration()
    found = set()
    for section in fields(record):
        value = getattr(record, section.name)
        names = [] if isinstance(value, dict) else [f.name for f in fields(value)]
        found.update(f"{section.name}.{name}" for name in names)
    found.update(f"grid.{f.name}" for f in fields(record.backend))
    for corpus in CORPORA.values():
        function = getattr(corpus, "load", corpus)
        found.update(f"corpus.{name}" for name in signature(function).parameters)
    return found


@cache
def endpoints() -> set[tuple[str, str]]:
    """(method, path) of the service, every parameter in the path as {}."""
    from mvplda.serve.routes import router

    found = {("GET", path) for path in ("/openapi.json", "/docs", "/")}
    # the WebSocket
    found.add(("GET", "/v1/profiles/{}/stream"))
    for route in router.routes:
        path = re.sub(r"\{[^}]*\}", "{}", getattr(route, "path", ""))
        found.update((method, path) for method in getattr(route, "methods", ()))
    return found


@cache
def variables() -> set[str]:
    """Variables of the environment that the package reads."""
    from mvplda.serve.settings import Settings

    found = {f"MVPLDA_{name.upper()}" for name in Settings.model_fields}
    for path in SOURCE.rglob("*.py"):
        found.update(re.findall(r"\bMVPLDA_[A-Z_]+\b", path.read_text(encoding="utf-8")))
    # click's own: completion of the command line
    return found | {"MVPLDA_COMPLETE"}


# What the pages name.


def resolves(dotted: str) -> bool:
    """Whether a dotted name of the package can be imported or read."""
    first, *rest = dotted.split(".")
    value: Any = importlib.import_module(first)
    path = first
    for name in rest:
        path = f"{path}.{name}"
        try:
            value = getattr(value, name, None) or importlib.import_module(path)
        except ModuleNotFoundError:
            return False
    return True


def own_spans(page: str) -> list[str]:
    """Inline code that is not of another program."""
    return [span for span in spans(page) if span.split()[0] not in FOREIGN_PROGRAMS]


def options_named(page: str) -> set[str]:
    """Options in inline code; those of commands in blocks are looked up by command."""
    words = [word for span in own_spans(page) for word in span.split()]
    named = (re.match(r"--[a-z][a-z-]*", word) for word in words)
    return {match[0] for match in named if match}


def looks_like_code(span: str) -> set[str]:
    """The words of a span that can only be names: with _, in CamelCase, called, or before an =."""
    words = set(re.findall(r"(?<![\w<{$/.-])[A-Za-z]\w*_\w*(?![\w/-])", span))
    words |= set(re.findall(r"(?<![\w<{/-])[A-Z][a-z0-9]+[A-Z]\w*(?![\w/>-])", span))
    words |= set(re.findall(r"(?<![\w<{/-])[a-z]+[A-Z]\w*(?![\w/>-])", span))
    words |= set(re.findall(r"([A-Za-z]\w+)\(", span))
    if not span.startswith("-"):
        words |= set(re.findall(r"([A-Za-z]\w+)=", span))
        words |= set(re.findall(r"\w=\"(\w+)\"", span))
    words |= set(re.findall(r"[a-z]\.([a-z]\w+)\b(?=[(\[ ]|$)", span) if "(" in span else ())
    return words


def is_path(span: str) -> bool:
    return bool(re.fullmatch(r"[\w./*-]+", span)) and "..." not in span


TOP = {path.name for path in [*ROOT.iterdir(), *SOURCE.iterdir()] if path.is_dir()}


def files_named(page: str) -> set[str]:
    """Paths in the repository or the package; those of a reader's own files have other folders."""
    named = set()
    for span in own_spans(page):
        first = span.split()
        if first[0] == "python" and first[1].endswith(".py"):
            named.add(first[1])
        if is_path(span) and "/" in span.rstrip("/") and span.split("/")[0] in TOP:
            named.add(span)
        if re.fullmatch(r"\w+\.py", span):
            named.add(f"**/{span}")
    return named


def is_there(path: str) -> bool:
    return any(any(base.glob(path.rstrip("/"))) for base in (ROOT, SOURCE))


@pytest.mark.parametrize("page", PAGES)
def test_options_are_there(page: str) -> None:
    assert options_named(page) - options() - set(FOREIGN_OPTIONS) == set()


@pytest.mark.parametrize("page", PAGES)
def test_settings_are_there(page: str) -> None:
    text = " ".join(text_of(page).split())
    named = set(re.findall(r"-s '?([a-z]+\.[a-z_]+)", text))
    assert named - settings() == set()


@pytest.mark.parametrize("page", PAGES)
def test_dotted_names_resolve(page: str) -> None:
    text = text_of(page)
    named = set(re.findall(r"(?<![\w/\"-])mvplda(?:\.[A-Za-z]\w*)+(?!\w|/|-)", text))
    files = {name for name in named if re.search(r"\.(service|sqlite|git|npz|js|ts)$", name)}
    assert [name for name in sorted(named - files) if not resolves(name)] == []


@pytest.mark.parametrize("page", PAGES)
def test_names_in_inline_code_are_there(page: str) -> None:
    named = {
        (name, span)
        for span in own_spans(page)
        if not span.startswith(("mvplda ", "make ", "python ", "-")) and not FILE.fullmatch(span)
        for name in looks_like_code(span)
    }
    missing = [
        (name, span)
        for name, span in sorted(named)
        if name not in identifiers() | set(FOREIGN_NAMES) | variables()
    ]
    assert missing == []


@pytest.mark.parametrize("page", PAGES)
def test_imports_in_blocks_are_there(page: str) -> None:
    missing = []
    for block in blocks(page):
        if block.language not in PYTHON:
            continue
        code = block.text
        if block.language == "pycon":
            lines = (line for line in code.splitlines() if line.startswith((">>> ", "... ")))
            code = "\n".join(line[4:] for line in lines)
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("mvplda"):
                names = [f"{node.module}.{alias.name}" for alias in node.names]
                missing += [name for name in names if not resolves(name)]
    assert missing == []


@pytest.mark.parametrize("page", PAGES)
def test_files_are_there(page: str) -> None:
    assert [path for path in sorted(files_named(page)) if not is_there(path)] == []


@pytest.mark.parametrize("page", PAGES)
def test_endpoints_are_there(page: str) -> None:
    text = text_of(page)
    found = re.findall(r"(?:\b(GET|POST|DELETE|PUT|PATCH)\s+)?(/v1/[\w/{}-]+)", text)
    missing = []
    for method, path in found:
        plain = re.sub(r"\{[^}]*\}", "{}", path.rstrip("/"))
        if not any(known == plain and method in ("", verb) for verb, known in endpoints()):
            missing.append(f"{method} {path}")
    assert missing == []


@pytest.mark.parametrize("page", PAGES)
def test_variables_are_there(page: str) -> None:
    named = set(re.findall(r"MVPLDA_[A-Z_]+", text_of(page)))
    assert named - variables() == set()


@pytest.mark.parametrize("page", PAGES)
def test_programs_beside_the_package_are_there(page: str) -> None:
    """Goals of make, and modules and benchmarks that Python runs."""
    from benchmarks.__main__ import BENCHMARKS

    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    goals = set(re.findall(r"^([a-z-]+):", makefile, flags=re.MULTILINE))
    calls = [*spans(page), *(c for b in blocks(page) if b.language in SHELL for c in b.commands)]
    missing = []
    for call in calls:
        words = call.split()
        if words[0] == "make" and len(words) > 1 and words[1] not in goals:
            missing.append(call)
        if words[:2] == ["python", "-m"] and words[2].startswith("benchmarks"):
            module = ROOT / words[2].replace(".", "/")
            if not module.is_dir() and not module.with_suffix(".py").is_file():
                missing.append(call)
            names = words[3:4] if words[2] == "benchmarks" else []
            missing += [
                call
                for name in names
                if name not in {*BENCHMARKS, "attacks", "check", "evidence", "tables"}
            ]
    assert missing == []


def test_extras_are_there() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = {
        extra
        for page in PAGES
        for extras in re.findall(r"(?:\"\.|mvplda)\[([a-z,]+)\]", text_of(page))
        for extra in extras.split(",")
    }
    assert named - set(project["optional-dependencies"]) == set()


def test_the_comparison_names_every_dependency() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needed = {re.split(r"[<>=~;\[ ]", line)[0] for line in project["dependencies"]}
    row = re.search(r"^\| needs \|([^|]*)\|", text_of("docs/peers.md"), flags=re.MULTILINE)
    assert row is not None
    assert {name.strip().lower() for name in row[1].split(",")} == needed


def test_no_exception_is_stale() -> None:
    """Every name in the tables of exceptions is on a page, and not in the package."""
    everything = " ".join(span for page in PAGES for span in spans(page))
    listed = [*FOREIGN_OPTIONS, *FOREIGN_NAMES, *FOREIGN_PROGRAMS]
    assert [name for name in listed if name not in everything] == []
    assert set(FOREIGN_OPTIONS) & options() == set()
    assert set(FOREIGN_NAMES) & identifiers() == set()


@pytest.mark.parametrize(
    ("check", "text"),
    [
        (test_options_are_there, "`--no-such-option`"),
        (test_settings_are_there, "`-s backend.no_such_setting=1`"),
        (test_dotted_names_resolve, "`mvplda.metrics.no_such_name`"),
        (test_names_in_inline_code_are_there, "`no_such_function(x)`"),
        (test_names_in_inline_code_are_there, "`NoSuchClass`"),
        (test_names_in_inline_code_are_there, '`no_such_argument="x"`'),
        (
            test_imports_in_blocks_are_there,
            "```python\nfrom mvplda import no_such_name\n```",
        ),
        (test_files_are_there, "`scoring/no_such_file.py`"),
        (test_endpoints_are_there, "`GET /v1/profiles/{id}/verify`"),
        (test_variables_are_there, "`MVPLDA_NO_SUCH_VARIABLE`"),
        (test_programs_beside_the_package_are_there, "`python -m benchmarks.no_such_module`"),
    ],
)
def test_wrong_names_are_found(check, text, tmp_path, monkeypatch):
    page = f"wrong {text}"
    monkeypatch.setitem(PAGES, page, tmp_path / "page.md")
    (tmp_path / "page.md").write_text(f"{text}\n")
    with pytest.raises(AssertionError):
        check(page)
