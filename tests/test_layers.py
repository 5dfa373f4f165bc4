"""Imports point inwards only: every room knows those before it in the list, and none behind it; no circles."""

from __future__ import annotations

import ast
import re
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

import mvplda

LAYERS = (
    ("exceptions", "_typing", "_optional", "_progress"),
    ("persistence", "backend", "labels", "kinds"),
    ("statistics",),
    ("inference",),
    ("scoring",),
    ("metrics",),
    ("calibration",),
    ("decisions",),
    ("models",),
    ("preprocessing", "toy"),
    ("bundle",),
    ("training",),
    ("io",),
    ("distributed",),
    ("extractors",),
    ("voices",),
    ("recordings",),
    ("plotting",),
    ("report",),
    ("speech", "serve"),
    ("cli", "__main__"),
)
LEVEL = {room: level for level, rooms in enumerate(LAYERS) for room in rooms}
EXPECTED: set[tuple[str, str]] = set()
"""Imports that point outwards and are meant."""
ROOT = Path(mvplda.__file__).parent


class Import(NamedTuple):
    """One module of the package names another; `late` where it does so inside a function."""

    source: str
    target: str
    late: bool


@cache
def modules() -> dict[str, Path]:
    found = {}
    for path in ROOT.rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports_of(name: str, path: Path) -> list[Import]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    package = name.split(".") if path.name == "__init__.py" and name else name.split(".")[:-1]
    blocks = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    ]
    for_types = {id(inner) for block in blocks for inner in ast.walk(block)}
    late = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        for inner in ast.walk(node)
    }
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom) or not node.level or id(node) in for_types:
            continue
        module = [
            *package[: len(package) - node.level + 1],
            *([node.module] if node.module else []),
        ]
        for alias in node.names:
            inner = ".".join([*module, alias.name])
            found.append(
                Import(name, inner if inner in modules() else ".".join(module), id(node) in late)
            )
    return found


@cache
def imports() -> list[Import]:
    return [found for name, path in modules().items() if name for found in imports_of(name, path)]


@cache
def behind_an_extra() -> set[str]:
    """Modules that cannot be imported without an extra: those that need one at the top, and whoever imports those."""
    found = {
        name
        for name, path in modules().items()
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.Expr) and ast.unparse(node).startswith("need(")
    }
    while more := {i.source for i in imports() if not i.late and i.target in found} - found:
        found |= more
    return found


def level(module: str) -> int:
    room, _, inner = module.partition(".")
    return LEVEL.get(f"{room}.{inner.partition('.')[0]}", LEVEL[room])


def test_every_room_has_its_place():
    assert {name.partition(".")[0] for name in modules() if name} <= set(LEVEL)


def test_imports_point_inwards():
    outwards = {
        (i.source, i.target) for i in imports() if i.target and level(i.target) > level(i.source)
    }
    assert outwards - EXPECTED == set()


def test_contributors_read_the_order_of_the_layers():
    page = (ROOT.parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    order = re.search(r"^    exceptions,.*?\n\n", page, flags=re.DOTALL | re.MULTILINE)
    assert order is not None
    named = tuple(
        tuple(re.findall(r"\w+", layer)) for layer in re.split(r"<|\n", order[0]) if layer.strip()
    )
    rooms = (tuple(room for room in layer if room != "__main__") for layer in LAYERS)
    assert named == tuple(rooms)


def test_only_commands_import_speech():
    """The paper's system and its experiments stand beside the product, which works without them."""
    callers = {i.source for i in imports() if i.target.partition(".")[0] == "speech"}
    assert {name for name in callers if name.partition(".")[0] not in ("speech", "cli")} == set()


def test_what_is_excepted_is_still_there():
    assert {(i.source, i.target) for i in imports()} >= EXPECTED


@pytest.mark.parametrize("late", [False, True], ids=["at the top", "in functions too"])
def test_no_module_is_needed_to_import_itself(late):
    graph: dict[str, set[str]] = {name: set() for name in modules()}
    for found in imports():
        packages = {
            ".".join(found.target.split(".")[:k]) for k in range(1, found.target.count(".") + 1)
        }
        within = {package for package in packages if f"{found.source}.".startswith(f"{package}.")}
        excepted = (found.source, found.target) in EXPECTED or (
            found.late and found.target in behind_an_extra()
        )
        if (late or not found.late) and not excepted:
            graph[found.source] |= (
                {found.target, *(packages & set(graph))} - within - {found.source, ""}
            )
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"a circle of imports: {' -> '.join(error.args[1])}")
