"""Only what other packages promise to keep is imported from them."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import mvplda

SOURCES = sorted(Path(mvplda.__file__).parent.rglob("*.py"))


def _imported(source: Path) -> list[str]:
    names: list[str] = []
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return names


@pytest.mark.parametrize("package", ["numpy", "scipy", "sklearn"])
def test_nothing_private_is_imported(package: str) -> None:
    found = {
        f"{source.name}: {name}"
        for source in SOURCES
        for name in _imported(source)
        if name.split(".")[0] == package
        if "externals" in name or any(part.startswith("_") for part in name.split("."))
    }
    assert found == set()
