"""The command line, from the outside."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from mvplda.demo import KINDS, run


def mvplda(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "mvplda", *map(str, arguments)], capture_output=True, text=True, check=False
    )


def test_help_imports_nothing_heavy():
    code = "import sys, mvplda.cli; print([m for m in ('sklearn', 'torch', 'matplotlib', 'scipy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    assert "demo" in mvplda("--help").stdout


@pytest.mark.slow
def test_demo_prints_a_table_in_which_exact_wins(tmp_path):
    lines: list[str] = []
    table = run(tmp_path, seed=1, say=lines.append)
    assert set(table["cosine"]) == set(KINDS)
    exact = table["exact EM, exact score"]["Total"]
    assert exact < 0.75 * table["PLDA, class = cell, rank 40"]["Total"]
    assert exact < 0.3 * table["the paper as printed"]["Total"]
    assert exact < 1.3 * table["true parameters"]["Total"]
    assert any(line.startswith("exact EM") for line in lines)
    assert (tmp_path / "demo.png").stat().st_size > 10_000
    about = json.loads(mvplda("info", "--json", tmp_path / "model.safetensors").stdout)
    assert about["views"] == {"speaker": 20, "phrase": 19}
    assert "speaker: 20" in mvplda("info", tmp_path / "model.safetensors").stdout


def test_errors_are_one_line(tmp_path):
    done = mvplda("info", tmp_path / "nothing.safetensors")
    assert done.returncode == 1
    assert done.stderr.startswith("mvplda: there is no file")
    assert done.stderr.count("\n") == 1
    (tmp_path / "bad.safetensors").write_bytes(b"not a model")
    done = mvplda("info", tmp_path / "bad.safetensors")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "Traceback" in mvplda("--debug", "info", tmp_path / "bad.safetensors").stderr
