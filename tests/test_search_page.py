"""The recipes of docs/search.md run, and give the exact answer; those whose engine is not here are skipped."""

from __future__ import annotations

import os
import re
import sqlite3
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).resolve().parents[1] / "docs" / "search.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
OPTIONAL = ("faiss", "sqlite_vec", "psycopg", "qdrant_client", "pymilvus")
PREPARING = [
    block for block in BLOCKS if not any(name in block for name in (*OPTIONAL, "import json"))
]


@lru_cache
def prepared() -> dict[str, Any]:
    names: dict[str, Any] = {}
    for block in PREPARING:
        exec(compile(block, PAGE.name, "exec"), names)
    return names


@pytest.mark.parametrize("number", [n for n, block in enumerate(BLOCKS) if block not in PREPARING])
def test_recipes_give_the_exact_answer(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    block = BLOCKS[number]
    for name in OPTIONAL:
        if name in block and find_spec(name) is None:
            pytest.skip(f"{name} is not installed")
    if "sqlite_vec" in block and not hasattr(sqlite3.Connection, "enable_load_extension"):
        pytest.skip("this Python's sqlite3 was built without extensions")
    if "DATABASE_URL" in block and "DATABASE_URL" not in os.environ:
        pytest.skip("DATABASE_URL names no database with pgvector")
    monkeypatch.chdir(tmp_path)
    exec(compile(block, PAGE.name, "exec"), dict(prepared()))
