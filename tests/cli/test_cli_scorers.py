"""Every scorer through the command line, against the library."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cli_files import fails, said_by, scoring, vector_files

import mvplda
from mvplda import PLDA, Bundle, CosineScorer, MultiviewPLDA, Question, load
from mvplda.calibration.scores import LinearCalibrator
from mvplda.io.lists import read_labels
from mvplda.io.trials import read_scores
from mvplda.io.vectors import read_vectors

FIT: dict[str, Any] = {"max_iter": 6, "tol": 0.0, "random_state": 0}
SPEED = ["--set", "max_iter=6", "--set", "tol=0", "-q"]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    place = vector_files(tmp_path_factory.mktemp("scorers"))
    rng = np.random.default_rng(5)
    data = read_vectors(place / "x.npz")
    np.savez(place / "new.npz", X=1.3 * data.X + 0.5, ids=data.ids)
    np.savez(place / "cohort.npz", X=rng.normal(size=(40, 6)), ids=[f"c{i}" for i in range(40)])
    (place / "cohort2utt").write_text("".join(f"k{i} c{2 * i} c{2 * i + 1}\n" for i in range(20)))
    return place


@pytest.fixture(scope="module")
def data(root) -> Any:
    vectors = read_vectors(root / "x.npz")
    labels = read_labels({"speaker": root / "utt2spk", "phrase": root / "utt2phrase"}, vectors.ids)
    return vectors.X, labels


def label(root, *views):
    files = {"speaker": "utt2spk", "phrase": "utt2phrase"}
    return [text for view in views for text in ("-l", f"{view}={root / files[view]}")]


def scores_of(root, model, *options):
    said_by(*scoring(root, model), *options, "-o", root / "out", code=0)
    return read_scores(root / "out").score


def listed(bundle, X, **options):
    """The trials of `vector_files`: u0 to u39 against u100 to u139."""
    pairs = [(i, j) for i in range(40) for j in range(40)]
    return np.asarray(
        bundle.llr_trials(bundle.enrol(X[:40]), bundle.enrol(X[100:140]), pairs, **options)
    )


def train(root, name, *options):
    said_by("train", root / "x.npz", *options, "-o", root / name, code=0)


def test_plda(root, data):
    X, labels = data
    train(
        root,
        "plda",
        "--model",
        "plda",
        *label(root, "speaker"),
        "-v",
        "speaker=3",
        "--set",
        "noise=full",
        *SPEED,
    )
    expected = Bundle(None, PLDA(3, noise="full", **FIT)).fit(X, {"speaker": labels["speaker"]})
    assert type(load(root / "plda").scorer) is PLDA
    assert scores_of(root, "plda") == pytest.approx(listed(expected, X), rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("centre", [True, False])
def test_cosine_needs_neither_views_nor_labels(root, data, centre):
    X, _ = data
    settings = [] if centre else ["--set", "centre=false"]
    train(root, "cosine", "--model", "cosine", *settings, "--folds", "0", "-q")
    expected = Bundle(None, CosineScorer(centre)).fit(X)
    assert scores_of(root, "cosine") == pytest.approx(listed(expected, X), abs=1e-6)
    train(root, "ready", "--model", "cosine", *settings, "-q")
    assert load(root / "ready").calibration(Question("speaker")) is not None
    assert "has no known classes of view" in fails(
        *scoring(root, "cosine"), "--known", f"phrase={root / 'utt2phrase'}"
    )


def test_statistics_train_a_plda(root, data):
    X, labels = data
    said_by(
        "stats", root / "x.npz", *label(root, "speaker"), "-q", "-o", root / "s.safetensors", code=0
    )
    said_by(
        "train",
        root / "s.safetensors",
        "--model",
        "plda",
        "-v",
        "speaker=3",
        *SPEED,
        "-o",
        root / "p",
        code=0,
    )
    expected = Bundle(None, PLDA(3, **FIT)).fit(X, {"speaker": labels["speaker"]})
    assert scores_of(root, "p") == pytest.approx(listed(expected, X), rel=1e-4, abs=1e-4)
    assert "pass --model multiview or plda" in fails(
        "train",
        root / "s.safetensors",
        "--model",
        "cosine",
        "-v",
        "speaker=3",
        "-o",
        root / "p",
        code=2,
    )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--model", "rocket"], "unknown model 'rocket'"),
        (["-v", "colour=3"], "the labels of colour are missing"),
        (["-v", "pose=0"], "--view pose=0: expected a positive integer or full after pose="),
        (["--block", "voice=none"], "--block voice=none: expected a positive integer after voice="),
    ],
)
def test_a_wrong_call_is_refused(root, options, words):
    assert words in fails("train", root / "x.npz", *options, "-o", root / "none", code=2)
    assert not (root / "none").exists()


def test_wrong_files(root):
    LinearCalibrator().fit([1.0, 0.0], [True, False]).save(root / "calibrator")
    assert "an object of the type LinearCalibrator; expected a model" in fails(
        *scoring(root, "calibrator")
    )
    assert "PLDA has one view; got 2" in fails(
        "train", root / "x.npz", "--model", "plda", *label(root, "speaker", "phrase"), "-v", "speaker=3", "-v",
        "phrase=2", "-o", root / "none"
    )  # fmt: skip
    train(root, "cosine.safetensors", "--model", "cosine", "-q")
    assert "expected a PLDA model" in fails(
        "convert", root / "cosine.safetensors", root / "none", "--as", "plda"
    )
    assert isinstance(load(root / "model.safetensors").scorer, MultiviewPLDA)


def test_a_prior(root, data):
    X, labels = data
    prior = ["--set", "prior=isotropic", "--set", "prior_strength=0.6"]
    train(root, "prior", "--model", "multiview", *label(root, "speaker", "phrase"), *prior, *SPEED)
    model = MultiviewPLDA(
        {"speaker": None, "phrase": None}, prior="isotropic", prior_strength=0.6, **FIT
    )
    expected = Bundle(None, model).fit(X, labels)
    assert scores_of(root, "prior") == pytest.approx(listed(expected, X), rel=1e-4, abs=1e-4)


def test_nothing_but_vectors_and_labels_gives_a_calibrated_committee(root, data, tmp_path):
    X, labels = data
    labels = {view: column.astype(str) for view, column in labels.items()}
    np.savez(tmp_path / "x.npz", X=X, **labels)
    options = ["--block", "voice=4", "--block", "words=2", "--enrolment", "2"]
    said = said_by("train", tmp_path / "x.npz", *options, "-o", tmp_path / "m", code=0)
    assert "committee: " in said.err
    assert "same speaker and phrase? EER" in said.err
    bundle = load(tmp_path / "m")
    keys = {"speaker+phrase", "speaker", "phrase", "speaker+phrase|phrase known"}
    assert set(bundle.calibrations) == keys
    assert set(bundle.points) == keys
    columns = {name: tuple(pair) for name, pair in bundle.fitted_scorer.columns.items()}
    for name, pair in (("voice", (0, 4)), ("words", (4, 6))):
        assert columns[name] == columns[f"{name}, whitened"] == pair
        assert columns.get(f"{name}, chosen", pair) == pair
        assert f"Chosen for {name} on" in said.err
    assert bundle.card["classes"] == {view: len(set(own)) for view, own in labels.items()}
    again = mvplda.train(X, labels, blocks={"voice": 4, "words": 2}, enrolment=2)
    np.testing.assert_array_equal(again.answer(X[:5], X[5:9]).llr, bundle.answer(X[:5], X[5:9]).llr)
    assert "blocks must add up to" in fails(
        "train", tmp_path / "x.npz", "--block", "voice=4", "-o", tmp_path / "no"
    )


def test_a_committee_of_single_vectors_tells_why_it_is_not_calibrated(tmp_path):
    s, p = (grid.ravel() for grid in np.meshgrid(np.arange(12), np.arange(4), indexing="ij"))
    X = np.random.default_rng(0).normal(size=(48, 6))
    np.savez(tmp_path / "one.npz", X=X, speaker=s, phrase=p)
    err = said_by("train", tmp_path / "one.npz", "-o", tmp_path / "one.safetensors", code=0).err
    assert (
        "not calibrated: none: it needs at least 8 people with two recordings of the same labels"
        in err
    )


def test_a_single_plda_says_how_it_is_calibrated(tmp_path):
    X = np.random.default_rng(0).normal(size=(48, 6))
    np.savez(tmp_path / "x.npz", X=X, speaker=np.repeat(np.arange(12), 4))
    command = ("train", tmp_path / "x.npz", "--model", "plda", "-o", tmp_path / "plda.safetensors")
    err = said_by(*command, code=0).err
    assert "not calibrated: to calibrate it, train again with --folds 4" in err
    # there is nothing to say about a dense system without latents
    assert "dense system" not in err
    assert "not calibrated" not in said_by(*command, "--folds", "4", code=0).err
