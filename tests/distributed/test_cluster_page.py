"""The script of docs/cluster.md, from recordings to error rates, on small files."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from extractor_problems import network, voice, write
from pages import blocks

from mvplda.io.trials import read_scores

pytest.importorskip("pyarrow", reason="pyarrow is not installed, which writes Parquet")

SPEAKERS = {"train": range(6), "enrol": range(6, 9), "test": range(6, 9)}


def script(**settings: str) -> str:
    """The block of the page that begins with settings, with others."""
    (block,) = [
        block.text for block in blocks("docs/cluster.md") if block.text.startswith("recordings=")
    ]
    for name, value in settings.items():
        block, count = re.subn(f"^{name}=.*$", f"{name}='{value}'", block, flags=re.MULTILINE)
        assert count == 1
    return f'mvplda() {{ "{sys.executable}" -m mvplda "$@"; }}\nset -e\n{block}'


def shards(results: Path) -> list[Path]:
    return [*results.glob("vectors/*.npz"), *results.glob("scores/*.parquet")]


@pytest.mark.slow
def test_the_script_goes_from_recordings_to_error_rates_and_resumes(tmp_path: Path) -> None:
    for part, speakers in SPEAKERS.items():
        for speaker in speakers:
            for number in range(4):
                folder = tmp_path / "recordings" / part / f"s{speaker}" / f"p{number % 2}"
                folder.mkdir(parents=True, exist_ok=True)
                seed = 100 * speaker + 10 * number + len(part)
                write(folder / f"{number}.wav", voice(1.0, 1 + 0.1 * speaker, seed))
    (tmp_path / "recordings/train/s0/p0/bad.wav").write_bytes(b"RIFFnothing")
    commands = script(
        recordings=str(tmp_path / "recordings"),
        results=str(tmp_path / "results"),
        extractor=str(network(tmp_path / "net.onnx")),
        engine="--workers 1",
    )
    results = tmp_path / "results"

    def run() -> subprocess.CompletedProcess[str]:
        done = subprocess.run(["sh", "-c", commands], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done

    first = run()
    assert "skipped s0/p0/bad" in first.stderr
    rows = [line.split()[:3] for line in first.stdout.splitlines()[:5]]
    assert rows == [
        ["kind", "targets", "non-targets"],
        ["IW", "24", "48"],
        ["IC", "24", "48"],
        ["TW", "24", "24"],
        ["Total", "24", "120"],
    ]
    scores = read_scores(results / "scores/part-00000.parquet")
    assert len(scores) == 12 * 12
    before = {path: path.stat().st_mtime_ns for path in shards(results)}
    assert len(before) == 4
    assert run().stdout == first.stdout
    assert {path: path.stat().st_mtime_ns for path in shards(results)} == before
