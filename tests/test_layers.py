"""Import order of the packages: the contract in pyproject.toml, no cycles, and modules that stay unloaded.

``lint-imports`` (in ``make lint``) checks the contract itself.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import mvplda
from mvplda.io.vectors import VectorSet, write_vectors

ROOT = Path(mvplda.__file__).parent
REPOSITORY = Path(__file__).resolve().parents[1]


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


@pytest.mark.parametrize("late", [False, True], ids=["at the top", "in functions too"])
def test_no_module_is_needed_to_import_itself(late):
    graph: dict[str, set[str]] = {name: set() for name in modules()}
    for found in imports():
        packages = {
            ".".join(found.target.split(".")[:k]) for k in range(1, found.target.count(".") + 1)
        }
        within = {package for package in packages if f"{found.source}.".startswith(f"{package}.")}
        excepted = found.late and found.target in behind_an_extra()
        if (late or not found.late) and not excepted:
            graph[found.source] |= (
                {found.target, *(packages & set(graph))} - within - {found.source, ""}
            )
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"a circle of imports: {' -> '.join(error.args[1])}")


def contract() -> list[list[str]]:
    """Return the packages of every layer, from the bottom to the top."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    layers = project["tool"]["importlinter"]["contracts"][0]["layers"]
    return [re.findall(r"\w+", layer) for layer in reversed(layers)]


def test_contributors_read_the_order_of_the_packages():
    page = (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8")
    order = re.search(r"^    exceptions,.*?\n\n", page, flags=re.DOTALL | re.MULTILINE)
    assert order is not None
    documented = [
        sorted(re.findall(r"\w+", layer)) for layer in re.split(r"<|\n", order[0]) if layer.strip()
    ]
    packages = [sorted(name for name in layer if name != "__main__") for layer in contract()]
    assert documented == packages


def loaded_by(*arguments: str, folder: Path) -> set[str]:
    """Return the modules of mvplda that a command loads."""
    code = (
        "import sys\n"
        "from mvplda.cli import main\n"
        "try:\n"
        "    main(sys.argv[1:], standalone_mode=False)\n"
        "except BaseException as error:\n"
        "    print(repr(error), file=sys.stderr)\n"
        "print('LOADED', *(name for name in sys.modules if name.startswith('mvplda')))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("LOADED"))
    return set(line.split()[1:])


def test_scores_of_vectors_load_no_voice_product(tmp_path):
    labels = {"speaker": np.arange(60) % 12, "phrase": np.arange(60) // 12}
    X = np.random.default_rng(0).normal(size=(60, 6))
    mvplda.MultiviewPLDA({"speaker": 2, "phrase": 2}).fit(X, labels).save(
        tmp_path / "model.safetensors"
    )
    write_vectors(
        tmp_path / "x.npz", VectorSet(np.array([f"u{i}" for i in range(60)]), X.astype(np.float32))
    )
    (tmp_path / "trials").write_text("u1 u2\nu3 u4\n")
    options = ("--enrol", "x.npz", "--test", "x.npz", "--trials", "trials", "-o", "scores")
    loaded = loaded_by("score", "model.safetensors", *options, folder=tmp_path)
    assert (tmp_path / "scores").is_file()
    assert {
        name for name in loaded if ".voice" in name or ".paper" in name or ".serve" in name
    } == set()


def test_verification_loads_no_reader_of_kaldi(tmp_path):
    loaded = loaded_by("verify", "a.wav", "b.wav", folder=tmp_path)
    assert "mvplda.voice.verification" in loaded
    assert {"mvplda.io.kaldi", "mvplda.io.plda_files"} & loaded == set()
