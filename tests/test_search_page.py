"""The recipes of docs/search.md give the exact answer; those whose engine is not here are skipped."""

from __future__ import annotations

import json
import os
import re
import sqlite3
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "search.md"
RECIPES = ROOT / "examples" / "search"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
ENGINES = {
    "faiss_eight_bits": "faiss",
    "faiss_graph": "faiss",
    "faiss_cells": "faiss",
    "sqlite_vec_engine": "sqlite_vec",
    "pgvector_engine": "psycopg",
    "qdrant_engine": "qdrant_client",
    "milvus_engine": "pymilvus",
}
"""File of each recipe, and the package of its engine."""
CERTIFIED = {"sqlite_vec_engine", "pgvector_engine", "qdrant_engine"}
APPROXIMATE = {"faiss_eight_bits", "faiss_graph", "faiss_cells"}


@lru_cache
def prepared() -> dict[str, Any]:
    """Names of the page's blocks that need no engine."""
    names: dict[str, Any] = {}
    for block in BLOCKS:
        if "faiss" not in block:
            exec(compile(block, PAGE.name, "exec"), names)
    return names


def test_the_page_names_every_recipe():
    text = PAGE.read_text(encoding="utf-8")
    files = {path.stem for path in RECIPES.glob("*.py")}
    assert files == {*ENGINES, "distances", "json_lines"}
    assert all(f"examples/search/{name}.py" in text for name in files)


def test_the_block_with_faiss_gives_the_exact_answer():
    pytest.importorskip("faiss", reason="faiss is not installed")
    (block,) = [block for block in BLOCKS if "faiss" in block]
    exec(compile(block, PAGE.name, "exec"), dict(prepared()))


@pytest.mark.parametrize("recipe", ENGINES)
def test_recipes_give_the_exact_answer(
    recipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(ENGINES[recipe], reason=f"{ENGINES[recipe]} is not installed")
    if recipe == "sqlite_vec_engine" and not hasattr(sqlite3.Connection, "enable_load_extension"):
        pytest.skip("this Python's sqlite3 was built without extensions")
    if recipe == "pgvector_engine" and "DATABASE_URL" not in os.environ:
        pytest.skip("DATABASE_URL names no database with pgvector")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(RECIPES))
    names = prepared()
    tests, queries, exact = (names["tests"][:20], names["queries"][:20], names["exact"].scores[:20])
    if recipe in APPROXIMATE:
        tests, queries, exact = names["tests"], names["queries"], names["exact"].scores
    best = import_module(recipe).search(names["index"], queries, names["profiles"], tests)
    right = np.isclose(best.scores, exact, atol=1e-3)
    if recipe in CERTIFIED:
        assert best.certified.all()
    if recipe not in APPROXIMATE:
        assert right.all()
    assert right.mean() > 0.97
    assert right[best.certified].all()


def test_json_lines_hold_every_row(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(RECIPES))
    names = prepared()
    path = tmp_path / "voices.jsonl"
    import_module("json_lines").write(names["index"], names["profiles"], str(path))
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(lines) == len(names["index"].vectors)
    np.testing.assert_allclose(lines[3]["vector"], names["index"].vectors[3], rtol=1e-6)


def test_distances_have_the_order_of_inner_products(monkeypatch):
    monkeypatch.syspath_prepend(str(RECIPES))
    names = prepared()
    index, queries = names["index"], names["queries"][:5]
    v, q = import_module("distances").by_distance(index, queries)
    nearest = np.linalg.norm(q[:, None] - v[None], axis=2).argsort(axis=1)[:, :10]
    largest = (-(queries @ index.vectors.T)).argsort(axis=1)[:, :10]
    np.testing.assert_array_equal(nearest, largest)
