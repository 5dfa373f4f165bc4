"""Whatever `train` makes can be answered with, decided by, identified with, kept, described, evaluated and exported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import mvplda
from mvplda import Question, load
from mvplda.cli import main
from mvplda.decisions import decide
from mvplda.models import SCORERS
from mvplda.training import model_names


@pytest.fixture(scope="module")
def data() -> tuple[np.ndarray, dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    who = np.repeat(np.arange(12), 9)
    what = np.tile(np.repeat(np.arange(3), 3), 12)
    X = 2 * rng.normal(size=(12, 6))[who] + 2 * rng.normal(size=(3, 6))[what]
    X += 0.7 * rng.normal(size=X.shape)
    return X, {
        "speaker": np.array([f"s{i}" for i in who]),
        "phrase": np.array([f"p{i}" for i in what]),
    }


OURS = [
    name
    for name in model_names()
    if name not in SCORERS or SCORERS[name].__module__.startswith("mvplda.")
]
"""Models of the package; other tests may have entered theirs."""


@pytest.mark.parametrize("name", OURS)
def test_every_model_on_every_surface(name: str, data: Any, tmp_path: Path) -> None:
    X, labels = data
    views = {"speaker": labels["speaker"]} if name == "plda" else labels
    bundle = mvplda.train(X, views, model=name, folds=3)
    path = tmp_path / "model.safetensors"
    bundle.save(path)
    again = load(path)

    answer = again.answer(X[:3], X[50:56])
    assert answer.calibrated
    np.testing.assert_array_equal(answer.llr, bundle.answer(X[:3], X[50:56]).llr)
    if len(views) > 1:
        assert again.answer(X[:3], X[50:56], Question("speaker")).calibrated
    decision = decide(answer.take(0, 1), again.operating_points()[0])
    assert decision.answer in ("accept", "reject", "inconclusive")
    p = decision.probabilities["+".join(again.views)]
    assert np.log(p / (1 - p)) == pytest.approx(decision.llr, abs=1e-6)

    profiles = again.enrol(X, labels["speaker"])
    best = again.identify(profiles, X[:4], top=2)
    assert best.ids.shape == (4, 2)
    json.dumps(again.describe())

    np.savez(tmp_path / "x.npz", X=X, ids=[f"u{i}" for i in range(len(X))])
    trials = [
        f"u{i} u{j} {'target' if labels['speaker'][i] == labels['speaker'][j] else 'nontarget'}\n"
        for i in range(0, 60, 7)
        for j in range(1, 108, 5)
    ]
    (tmp_path / "trials").write_text("".join(trials))
    scoring = ["score", path, "--test", tmp_path / "x.npz", "--trials", tmp_path / "trials"]
    runner = CliRunner()
    done = runner.invoke(main, [str(w) for w in [*scoring, "-o", tmp_path / "scores"]])
    assert done.exit_code == 0, done.output
    judged = ["evaluate", tmp_path / "scores", "--trials", tmp_path / "trials"]
    done = runner.invoke(main, [str(w) for w in judged])
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize("name", OURS)
def test_every_model_becomes_a_graph(name: str, data: Any, tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    from mvplda.io.onnx import write_onnx

    X, labels = data
    views = {"speaker": labels["speaker"]} if name == "plda" else labels
    write_onnx(tmp_path / "m.onnx", mvplda.train(X, views, model=name, folds=0), enrolled=1)
    assert (tmp_path / "m.onnx").stat().st_size > 100
