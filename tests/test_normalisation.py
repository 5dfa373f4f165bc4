"""Score normalisation against plain loops, and what it refuses to look at."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from problems import speakers_and_phrases

from mvplda import MultiviewPLDA, normalisation
from mvplda.exceptions import DataError, LabelError, ParameterError
from mvplda.models.baselines import CosineScorer
from mvplda.normalisation import ScoreNormaliser


def dot(a: Any, b: Any) -> np.ndarray:
    """A scorer that is not symmetric, so that mixed-up sides show."""
    return np.tanh(0.3 * np.asarray(a)) @ np.asarray(b).T


@pytest.fixture
def sides() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.normal(1.0, 1.0, (40, 6)), rng.normal(size=(5, 6)), rng.normal(size=(7, 6))


def plain_loop(
    kind: str,
    top: int,
    cohort: Any,
    enrol: Any,
    test: Any,
    labels: Any = None,
    claimed: Any = None,
    own: Any = None,
) -> np.ndarray:
    """One trial at a time, one cohort vector at a time."""
    result = np.empty((len(enrol), len(test)))
    for i, e in enumerate(enrol):
        for j, t in enumerate(test):
            score = dot([e], [t])[0, 0]
            normalised = []
            for side, wanted in (
                ("z", None if claimed is None else claimed[i]),
                ("t", _label(claimed, own, i, j)),
            ):
                if kind in ("z", "t") and side != kind:
                    continue
                values = [
                    dot([e], [c])[0, 0] if side == "z" else dot([c], [t])[0, 0]
                    for k, c in enumerate(cohort)
                    if labels is None or labels[k] == wanted
                ]
                if kind == "as":
                    values = sorted(values)[-top:]
                normalised.append((score - np.mean(values)) / np.std(values))
            result[i, j] = np.mean(normalised)
    return result


def _label(claimed: Any, own: Any, i: int, j: int) -> Any:
    if own is not None:
        return own[j]
    return None if claimed is None else claimed[i]


@pytest.mark.parametrize("block", [10, 10_000])
@pytest.mark.parametrize("kind", ["z", "t", "s", "as"])
def test_against_a_plain_loop(
    kind: Any, block: int, sides: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(normalisation, "BLOCK_SCORES", block)
    cohort, enrol, test = sides
    got = ScoreNormaliser(kind, top=9).fit(dot, cohort).llr(enrol, test)
    assert got == pytest.approx(plain_loop(kind, 9, *sides), rel=1e-12)


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("kind", ["z", "t", "s", "as"])
def test_cohorts_matched_by_phrase(kind: Any, own: bool, sides: Any) -> None:
    cohort, enrol, test = sides
    rng = np.random.default_rng(1)
    labels = np.array(["one", "two", "three"])[np.arange(40) % 3]
    claimed, spoken = (rng.choice(labels, len(s)) for s in (enrol, test))
    test_labels = spoken if own else None
    normaliser = ScoreNormaliser(kind, top=6).fit(dot, cohort, labels)
    got = normaliser.llr(enrol, test, enrol_labels=claimed, test_labels=test_labels)
    assert got == pytest.approx(
        plain_loop(kind, 6, cohort, enrol, test, labels, claimed, test_labels), rel=1e-12
    )


def test_top_beyond_the_cohort_is_s_norm(sides: Any) -> None:
    cohort, enrol, test = sides
    adaptive, plain = (
        ScoreNormaliser(kind, top=500).fit(dot, cohort).llr(enrol, test) for kind in ("as", "s")
    )
    assert adaptive == pytest.approx(plain)


def test_shifts_and_scales_of_the_score_drop_out(sides: Any) -> None:
    cohort, enrol, test = sides
    plain = ScoreNormaliser().fit(dot, cohort).llr(enrol, test)
    moved = ScoreNormaliser().fit(lambda a, b: 7 * dot(a, b) - 3, cohort).llr(enrol, test)
    assert moved == pytest.approx(plain)


@pytest.mark.parametrize("kind", ["t", "s", "as"])
def test_a_trial_does_not_depend_on_other_trials(kind: Any, sides: Any) -> None:
    cohort, enrol, test = sides
    normaliser = ScoreNormaliser(kind, top=10).fit(dot, cohort)
    assert normaliser.llr(enrol[2:3], test[4:5]) == pytest.approx(
        normaliser.llr(enrol, test)[2:3, 4:5]
    )


@pytest.mark.parametrize("as_profiles", [False, True])
def test_models_and_profiles(as_profiles: bool) -> None:
    X, labels = speakers_and_phrases()
    model = MultiviewPLDA({"speaker": 3, "phrase": 2}, max_iter=5, tol=0).fit(X, labels)
    profiles = model.enrol(X[:30], np.repeat(np.arange(10), 3))
    cohort = model.enrol(X[100:200]) if as_profiles else X[100:200]
    normaliser = ScoreNormaliser("as", top=20).fit(model, cohort)
    got = normaliser.llr(profiles, X[30:60], same="speaker", dtype=np.float64)
    raw = model.llr(profiles, X[30:60], same="speaker", dtype=np.float64)
    z = np.sort(model.llr(profiles, X[100:200], same="speaker", dtype=np.float64), axis=1)[:, -20:]
    t = np.sort(model.llr(X[100:200], X[30:60], same="speaker", dtype=np.float64), axis=0)[-20:]
    expected = (raw - z.mean(1)[:, None]) / z.std(1)[:, None] / 2 + (raw - t.mean(0)) / t.std(0) / 2
    assert got == pytest.approx(expected, rel=1e-9)
    with pytest.raises(DataError, match=r"10 row\(s\) of the cohort stand among the tests"):
        normaliser.llr(profiles, X[190:220])
    with pytest.raises(ParameterError, match="known="):
        normaliser.llr(profiles, X[30:60], known={"phrase": np.zeros(10)})


def test_the_cosine_baseline() -> None:
    X, labels = speakers_and_phrases()
    scorer = CosineScorer().fit(X, labels)
    normaliser = ScoreNormaliser("s").fit(scorer, X[100:200])
    assert normaliser.llr(scorer.enrol(X[:10]), X[10:30]).shape == (10, 20)
    with pytest.raises(DataError, match="among the profiles"):
        normaliser.llr(scorer.enrol(X[99:110]), X[10:30])


def test_strict_mode_refuses_the_trials_as_cohort(sides: Any) -> None:
    cohort, enrol, test = sides
    with pytest.raises(DataError, match="never taken from the trials themselves"):
        ScoreNormaliser().fit(dot, None)
    with pytest.raises(DataError, match=r"7 row\(s\) of the cohort stand among the tests"):
        ScoreNormaliser().fit(dot, test).llr(enrol, test)
    with pytest.raises(DataError, match=r"1 row\(s\) of the cohort stand among the profiles"):
        ScoreNormaliser("z").fit(dot, np.vstack([cohort, enrol[3]])).llr(enrol, test)
    loose = ScoreNormaliser("t", strict=False).fit(dot, test).llr(enrol, test)
    assert np.isfinite(loose).all()


def test_errors(sides: Any) -> None:
    cohort, enrol, test = sides
    with pytest.raises(ParameterError, match="kind is one of"):
        ScoreNormaliser("q").fit(dot, cohort)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="top is at least 2"):
        ScoreNormaliser("as", top=1).fit(dot, cohort)
    with pytest.raises(ParameterError, match="a function or has llr"):
        ScoreNormaliser().fit(3, cohort)
    with pytest.raises(DataError, match=r"label 'b' has 1 row\(s\)"):
        ScoreNormaliser().fit(dot, cohort, ["a"] * 39 + ["b"])
    with pytest.raises(LabelError, match="40 rows and labels of shape"):
        ScoreNormaliser().fit(dot, cohort, ["a"])
    matched = ScoreNormaliser().fit(dot, cohort, ["a", "b"] * 20)
    with pytest.raises(LabelError, match="give enrol_labels"):
        matched.llr(enrol, test)
    with pytest.raises(LabelError, match="no label 'c' of enrol_labels"):
        matched.llr(enrol, test, enrol_labels=["a", "b", "c", "a", "a"])
    with pytest.raises(LabelError, match="the cohort has no labels"):
        ScoreNormaliser().fit(dot, cohort).llr(enrol, test, enrol_labels=["a"] * 5)
    with pytest.raises(DataError, match="do not vary"):
        ScoreNormaliser().fit(lambda a, b: np.ones((len(a), len(b))), cohort).llr(enrol, test)
    with pytest.raises(DataError, match=r"shape \(profiles, tests\)"):
        ScoreNormaliser().fit(dot, cohort).normalise(np.zeros(5), enrol, test)
