"""Every scorer, adaptation and score normalisation through the command line, against the library."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from cli_files import fails, said_by, scoring, vector_files
from problems import there

from mvplda import (
    PLDA,
    Bundle,
    CascadeScorer,
    CosineScorer,
    MultiviewPLDA,
    load,
    make_committee,
)
from mvplda.io.files import read_labels
from mvplda.io.trials import read_scores
from mvplda.io.vectors import read_vectors
from mvplda.normalisation import ScoreNormaliser
from mvplda.preprocessing import standard_chain, unit_chain

FIT: dict[str, Any] = {"max_iter": 6, "tol": 0.0, "random_state": 0}
SPEED = ["--iterations", "6", "--tolerance", "0", "-q"]


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
        "--noise",
        "full",
        *SPEED,
    )
    expected = Bundle(None, PLDA(3, noise="full", **FIT)).fit(X, {"speaker": labels["speaker"]})
    assert type(load(root / "plda").scorer) is PLDA
    assert scores_of(root, "plda") == pytest.approx(listed(expected, X), rel=1e-5, abs=1e-5)


def test_cascade(root, data):
    X, labels = data
    views = ["-v", "speaker=3", "-v", "phrase=2"]
    train(
        root,
        "cascade",
        "--model",
        "cascade",
        *label(root, "speaker", "phrase"),
        *views,
        "--whiten",
        *SPEED,
    )
    chain = standard_chain(None, length=None)
    expected = Bundle(chain, CascadeScorer({"speaker": 3, "phrase": 2}, FIT)).fit(X, labels)
    assert scores_of(root, "cascade") == pytest.approx(listed(expected, X), rel=1e-5, abs=1e-5)
    said_by(*scoring(root, "cascade"), "--per-view", "-o", root / "each", code=0)
    assert read_scores(root / "each.phrase").score == pytest.approx(
        listed(expected, X, same="phrase"), rel=1e-5, abs=1e-5
    )
    assert "cannot be told of given" in fails(*scoring(root, "cascade"), "--given", "phrase=same")
    about = json.loads(said_by("info", root / "cascade", "--json", code=0).out)
    assert about["kind"] == "bundle"
    assert about["phrase"]["views"] == {"phrase": 2}


@pytest.mark.parametrize("centre", [True, False])
def test_cosine_needs_neither_views_nor_labels(root, data, centre):
    X, _ = data
    train(root, "cosine", "--model", "cosine", *([] if centre else ["--no-centre"]), "-q")
    expected = Bundle(None, CosineScorer(centre)).fit(X)
    assert scores_of(root, "cosine") == pytest.approx(listed(expected, X), abs=1e-6)
    assert "a CosineScorer knows no views" in fails(
        *scoring(root, "cosine"), "--per-view", "-o", root / "out", code=2
    )
    assert "leave same out" in fails(*scoring(root, "cosine"), "--same", "speaker")
    page = ["evaluate", root / "out", "--trials", root / "trials", "--model", root / "cosine"]
    said_by(*page, "--report", root / "page.html", code=0)
    assert "knows no classes of a view" in fails(
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
    assert "needs vectors" in fails(
        "train",
        root / "s.safetensors",
        "--model",
        "cascade",
        "-v",
        "speaker=3",
        "-o",
        root / "p",
        code=2,
    )


@pytest.mark.parametrize("kind", ["z", "t", "s", "as"])
def test_normalised_scores(root, data, kind):
    X, _ = data
    cohort = read_vectors(root / "cohort.npz").X
    model = load(root / "model.safetensors").scorer
    said_by("normalise", root / "model.safetensors", root / "cohort.npz", "--kind", kind, "--top", "15",
            "-o", root / "n", code=0)  # fmt: skip
    normaliser = ScoreNormaliser(kind, top=15).fit(model, cohort)
    whole = normaliser.llr(X[:40], X[100:140], dtype=np.float64)
    assert scores_of(root, "n") == pytest.approx(whole.reshape(-1), rel=1e-3, abs=1e-3)
    one = normaliser.llr(X[:40], X[100:140], same="speaker", dtype=np.float64)
    assert scores_of(root, "n", "--same", "speaker") == pytest.approx(
        one.reshape(-1), rel=1e-3, abs=1e-3
    )
    assert "cohort of 40" in said_by("info", root / "n", code=0).out
    said_by("calibrate", root / "out", "--trials", root / "trials", "--into", root / "n", code=0)
    assert load(root / "n").calibrator is not None
    assert scores_of(root, "n").shape == (1600,)


def test_a_cohort_of_several_vectors_each(root, data):
    X, _ = data
    command = ["normalise", root / "model.safetensors", root / "cohort.npz", "--kind", "s"]
    said_by(*command, "--models", root / "cohort2utt", "-o", root / "n2", code=0)
    model, cohort = load(root / "model.safetensors").scorer, read_vectors(root / "cohort.npz").X
    normaliser = ScoreNormaliser("s").fit(model, model.enrol(cohort, np.repeat(np.arange(20), 2)))
    whole = normaliser.llr(X[:40], X[100:140], dtype=np.float64)
    assert scores_of(root, "n2") == pytest.approx(whole.reshape(-1), rel=1e-3, abs=1e-3)
    said_by("normalise", root / "model.safetensors", root / "x.npz", "-o", root / "n3", code=0)
    assert "cohort stand among the" in fails(*scoring(root, "n3"))


@pytest.mark.parametrize("labelled", [False, True])
def test_adapted_scores(root, labelled):
    new = read_vectors(root / "new.npz")
    labels = (
        read_labels({"speaker": root / "utt2spk", "phrase": root / "utt2phrase"}, new.ids)
        if labelled
        else None
    )
    named = label(root, "speaker", "phrase") if labelled else []
    said_by(
        "adapt",
        root / "model.safetensors",
        root / "new.npz",
        *named,
        "--weight",
        "0.3",
        "-o",
        root / "a",
        code=0,
    )
    expected = load(root / "model.safetensors").adapt(new.X, labels, 0.3)
    X = read_vectors(root / "x.npz").X
    assert scores_of(root, "a") == pytest.approx(listed(expected, X), rel=1e-4, abs=1e-4)
    assert not np.allclose(expected.scorer.mean_, load(root / "model.safetensors").scorer.mean_)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--model", "rocket"], "'rocket' is not one of "),
        (["--model", "cosine", "-v", "speaker=3"], "takes vectors alone: leave out --view"),
        (["--model", "cosine", "--noise", "full"], "takes vectors alone: leave out --noise"),
        (["--model", "plda", "-v", "speaker=auto"], "auto is for multiview"),
        (["--model", "plda"], "name the views"),
        (["-v", "colour=3"], "name the labels"),
        (["-v", "speaker=3", "--no-centre"], "--no-centre is for --model cosine"),
    ],
)
def test_wrong_calls(root, options, words):
    said = fails("train", root / "x.npz", *options, "-o", root / "none", code=2)
    assert words in said
    assert not (root / "none").exists()


def test_wrong_files(root):
    said_by("enrol", root / "model.safetensors", root / "x.npz", "-o", root / "profiles", code=0)
    for command in (
        scoring(root, "profiles"),
        ["adapt", root / "profiles", root / "x.npz", "-o", root / "none"],
    ):
        assert "holds a Profiles; expected a model" in fails(*command)
    assert "PLDA has one view; got 2" in fails(
        "train", root / "x.npz", "--model", "plda", *label(root, "speaker", "phrase"), "-v", "speaker=3", "-v",
        "phrase=2", "-o", root / "none"
    )  # fmt: skip
    train(root, "cosine.safetensors", "--model", "cosine", "-q")
    assert "no PLDA model" in fails(
        "convert", root / "cosine.safetensors", root / "none", "--as", "plda"
    )
    assert isinstance(MultiviewPLDA.load(root / "model.safetensors"), MultiviewPLDA)


def test_auto_ranks_save_the_model_that_was_found(root):
    views = ["-v", "speaker=auto", "-v", "phrase=2"]
    train(root, "auto", *label(root, "speaker", "phrase"), *views, "--folds", "2", *SPEED)
    assert type(load(root / "auto").scorer) is MultiviewPLDA


def test_a_prior(root, data):
    X, labels = data
    train(root, "prior", *label(root, "speaker", "phrase"), "--prior", "0.6", *SPEED)
    model = MultiviewPLDA(
        {"speaker": None, "phrase": None, "speaker:phrase": None},
        prior="isotropic",
        prior_strength=0.6,
        **FIT,
    )
    expected = Bundle(unit_chain(), model).fit(X, labels)
    assert scores_of(root, "prior") == pytest.approx(listed(expected, X), rel=1e-4, abs=1e-4)
    ranked = [
        "train",
        root / "x.npz",
        *label(root, "speaker"),
        "-v",
        "speaker=3",
        "-o",
        root / "no",
    ]
    assert "leave ranks" in fails(*ranked, "--prior", "auto", code=2)
    assert "from 0 to 1" in fails(
        "train", root / "x.npz", *label(root, "speaker"), "--prior", "2", "-o", root / "no", code=2
    )


def test_a_committee_with_the_cosine_in_it(root, data):
    X, labels = data
    options = ["--fuse", "--block", "voice=4", "--block", "words=2", "--enrolment", "2"]
    said = said_by(
        "train",
        root / "x.npz",
        *label(root, "speaker", "phrase"),
        *options,
        "-o",
        root / "fused",
        code=0,
    )
    assert "words, cosine: " in said.err
    expected = make_committee(
        {"voice": 4, "words": 2}, ["speaker", "phrase"], cosine=True, enrolment=2
    )
    bundle = Bundle(None, expected.fit(X, labels), calibrator=expected.calibrator_)
    assert load(root / "fused").calibrator.intercept_ == pytest.approx(
        there(expected.calibrator_).intercept_
    )
    pairs = np.asarray([(i, j) for i in range(40) for j in range(40)])
    calibrated = bundle.calibrated(bundle.enrol(X[:40]), bundle.enrol(X[100:140]), pairs=pairs)
    assert scores_of(root, "fused") == pytest.approx(calibrated, rel=1e-4, abs=1e-4)
    many = ["train", root / "x.npz", *label(root, "speaker", "phrase"), "-o", root / "no"]
    assert "chooses by itself: leave out --view" in fails(
        *many, "--fuse", "-v", "speaker=3", code=2
    )
    assert "columns together" in fails(*many, "--fuse", "--block", "voice=4", code=2)
    assert "--block and --enrolment are for --fuse" in fails(*many, "--block", "voice=4", code=2)


def test_the_printed_score_is_of_models_of_views_only(root):
    train(root, "angle.safetensors", "--model", "cosine")
    line = fails(*scoring(root, "angle.safetensors"), "--scoring", "paper", code=2)
    assert line == "Error: --scoring paper: a CosineScorer has one score only"


def test_a_committee_of_single_vectors_says_why_it_is_not_calibrated(tmp_path):
    s, p = (grid.ravel() for grid in np.meshgrid(np.arange(12), np.arange(4), indexing="ij"))
    X = np.random.default_rng(0).normal(size=(48, 6))
    np.savez(tmp_path / "one.npz", X=X, speaker=s, phrase=p)
    call = ["train", tmp_path / "one.npz", "-l", "speaker=speaker", "-l", "phrase=phrase", "--fuse"]
    err = said_by(*call, "-o", tmp_path / "one.safetensors", code=0).err
    assert "or no two vectors of one cell: experts are added up as they are, not weighed" in err
