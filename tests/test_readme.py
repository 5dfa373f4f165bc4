"""The README's session runs as printed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

README = Path(__file__).resolve().parents[1] / "README.md"


@pytest.mark.slow
def test_python_blocks_run_as_printed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert len(blocks) >= 3
    names: dict = {}
    for block in blocks:
        exec(compile(block, str(README), "exec"), names)
    shares = names["model"].explained_variance_ratio_
    printed = re.search(r"\{\"speaker\": ([\d.]+), \"phrase\": ([\d.]+), \"noise\": ([\d.]+)\}", README.read_text())
    assert [f"{share:.2f}" for share in shares.values()] == list(printed.groups())
