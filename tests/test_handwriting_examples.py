"""examples/handwriting*.py on files in DigiLeTs' format."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
WRITERS, CHARACTERS, TAKES = 10, 8, 5


def track(rng: np.random.Generator, shape: np.ndarray, start: np.ndarray) -> np.ndarray:
    """Return points (n, 5) of one track: x, y, pressure, pen put down, seconds."""
    n = int(rng.integers(18, 40))
    angle = np.linspace(0, shape[0], n)
    x = start[0] + 0.2 * shape[1] * np.cos(angle) + 0.01 * rng.normal(size=n)
    y = start[1] + 0.3 * shape[2] * np.sin(angle) + 0.01 * rng.normal(size=n)
    pressure = 0.4 + 0.02 * rng.normal(size=n)
    pen_down = np.zeros(n)
    pen_down[[0, n // 2]] = 1
    return np.column_stack([x, y, pressure, pen_down, 0.02 * np.arange(n)])


def lines_of(points: np.ndarray, character: int) -> str:
    numbers = [
        f"{x:.6f} {y:.6f} {pressure:.6f} {pen_down:.0f} {seconds:.6f}"
        for x, y, pressure, pen_down, seconds in points
    ]
    one_hot = np.zeros(62)
    one_hot[character] = 1
    return " ".join(numbers) + "\n" + " ".join(str(value) for value in one_hot) + "\n"


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a miniature of the public repository."""
    rng = np.random.default_rng(0)
    folder = tmp_path_factory.mktemp("DigiLeTs") / "data" / "preprocessed" / "complete"
    folder.mkdir(parents=True)
    shapes = rng.uniform(0.5, 3, size=(CHARACTERS, 3))
    for writer in range(WRITERS):
        hand = rng.uniform(0.6, 1.4, size=3)
        text = "".join(
            lines_of(track(rng, hand * shapes[character], np.array([0.5, 0.5])), character)
            for character in range(CHARACTERS)
            for _ in range(TAKES)
        )
        name = f"{writer + 2:03}-f-22-right_2019-06-05-12-21-{writer:02}_preprocessed"
        (folder / name).write_text(text, encoding="ascii")
        (folder / f"{name}_info").write_text("0 0 0\n", encoding="ascii")
    return folder.parents[2]


def run(script: str, *arguments: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(EXAMPLES / script), *map(str, arguments)]
    environment = {**os.environ, "MPLBACKEND": "Agg"}
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


@pytest.fixture(scope="module")
def vectors(clone: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("vectors") / "digilets.npz"
    made = run("handwriting_features.py", clone, path)
    assert made.returncode == 0, made.stderr
    assert f"{WRITERS * CHARACTERS * TAKES} tracks of {WRITERS} writers" in made.stdout
    return path


def test_features_have_the_columns_and_labels_of_every_track(vectors: Path) -> None:
    data = np.load(vectors)
    assert data["X"].shape == (WRITERS * CHARACTERS * TAKES, 103)
    np.testing.assert_allclose(data["X"].mean(axis=0), 0, atol=1e-9)
    # every track has two strokes, so that their number does not vary
    varying = np.delete(data["X"], 98, axis=1)
    np.testing.assert_allclose(varying.std(axis=0), 1, atol=1e-9)
    cells = np.stack([data[name] for name in ("writer", "character", "take")], axis=1)
    expected = np.stack(np.indices((WRITERS, CHARACTERS, TAKES)), axis=-1).reshape(-1, 3)
    np.testing.assert_array_equal(cells, expected)


def test_features_of_a_line_are_as_described(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    example = import_module("handwriting_features")
    x = np.linspace(0.2, 0.6, 9)
    points = np.column_stack([x, 0.5 + 0 * x, 0.3 + 0 * x, np.arange(9) == 0, np.arange(9) / 8])
    parts = example.POINTS * np.arange(1, 5)
    across, up, pressure, speed, whole = np.split(example.features(points), parts)
    np.testing.assert_allclose(across, np.linspace(-0.5, 0.5, example.POINTS))
    np.testing.assert_allclose(up, 0, atol=1e-15)
    np.testing.assert_allclose(pressure, 0.3)
    np.testing.assert_allclose(speed, 1 / 8)
    np.testing.assert_allclose(whole, [np.log(1.1), np.log(0.4), 1, 0.4, 0.5, 0.3, 0], atol=1e-12)


def test_the_example_verifies_writers_and_characters(vectors: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    done = run("handwriting.py", vectors)
    assert done.returncode == 0, done.stderr
    rows = [line.split("%")[0].rsplit(maxsplit=1)[0] for line in done.stdout.splitlines()]
    assert rows == ["cosine", "PLDA (writer x character)", "two views"]
    assert "<svg" in vectors.with_suffix(".svg").read_text(encoding="utf-8")


def test_missing_files_are_named(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    missing = run("handwriting.py", tmp_path / "digilets.npz")
    assert missing.returncode == 1
    assert "handwriting_features.py" in missing.stderr
    empty = run("handwriting_features.py", tmp_path, tmp_path / "digilets.npz")
    assert empty.returncode == 1
    assert "data/preprocessed/complete" in empty.stderr


def test_a_damaged_file_is_named_with_its_line(tmp_path: Path, clone: Path) -> None:
    folder = tmp_path / "data" / "preprocessed" / "complete"
    folder.mkdir(parents=True)
    whole = next(clone.rglob("*_preprocessed")).read_text(encoding="ascii").splitlines()
    damaged = "\n".join([*whole[:2], whole[2].rsplit(maxsplit=1)[0], whole[3]])
    (folder / "002_preprocessed").write_text(damaged, encoding="ascii")
    found = run("handwriting_features.py", tmp_path, tmp_path / "digilets.npz")
    assert found.returncode == 1
    assert "002_preprocessed, line 3: expected at least two points" in found.stderr
