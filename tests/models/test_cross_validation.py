"""MultiviewPLDACV: settings chosen on classes that were held out."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.random import RandomState
from problems import crossed, draw, random_parameters, speakers_and_phrases

from mvplda import MultiviewPLDA, MultiviewPLDACV, SufficientStatistics, load
from mvplda.exceptions import LabelError, ParameterError
from mvplda.models.heldout import deal_folds


def plentiful() -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Many classes of two views, of ranks 3 and 2."""
    rng = np.random.default_rng(0)
    codes = list(crossed(80, 30, 2))
    return draw(rng, codes, random_parameters(rng, 10, (3, 2), "diagonal")), dict(
        zip("ab", codes, strict=True)
    )


def scarce() -> tuple[np.ndarray, np.ndarray]:
    """Few classes in many dimensions, with directions of the classes that a small rank cannot hold."""
    rng = np.random.default_rng(1)
    y = np.repeat(np.arange(25), 10)
    scales = 1.0 / np.sqrt(1 + np.arange(60))
    return (scales * rng.normal(size=(25, 60)))[y] + 0.3 * scales * rng.normal(size=(250, 60)), y


def test_plentiful_data_get_their_own_ranks_and_no_shrinkage() -> None:
    X, labels = plentiful()
    model = MultiviewPLDACV(
        {"a": (1, 2, 3, 4, 6), "b": (1, 2, 4)},
        noise_shrinkages=(0.0, 0.05, 0.2),
        cv=4,
        random_state=0,
    )
    model.fit(X, labels)
    assert model.best_settings_["noise_shrinkage"] == 0.0
    assert model.best_settings_["a"] in (3, 4)
    assert model.best_settings_["b"] == 2
    assert model.model_.views_ == {v: model.best_settings_[v] for v in "ab"}
    assert model.model_.converged_


def test_few_classes_in_many_dimensions_get_shrinkage() -> None:
    X, y = scarce()
    model = MultiviewPLDACV(
        {"a": (10,)}, noise_shrinkages=(0.0, 0.02, 0.05, 0.1), cv=4, random_state=0
    ).fit(X, {"a": y})
    assert model.best_settings_["noise_shrinkage"] > 0
    scores = {r["noise_shrinkage"]: r["score"] for r in model.cv_results_}
    plain = MultiviewPLDACV({"a": (10,)}, noise_shrinkages=(0.0,), cv=4, random_state=0).fit(
        X, {"a": y}
    )
    assert max(scores.values()) > plain.best_score_ + 1.0


def test_scores_are_held_out_likelihoods() -> None:
    """Every score again, fold by fold, with vectors instead of statistics."""
    X, labels = speakers_and_phrases()
    model = MultiviewPLDACV(
        {"speaker": (1, 3), "phrase": (2,)}, noise_shrinkages=(0.0, 0.1), cv=3, random_state=5
    )
    model.fit(X, labels)
    order = list(dict.fromkeys(labels["speaker"].tolist()))  # as they first appear
    dealt = np.random.RandomState(5).permutation(15) % 3
    fold = dealt[[order.index(name) for name in labels["speaker"].tolist()]]
    assert len(model.cv_results_) >= 3
    for result in model.cv_results_:
        values = []
        for f in range(3):
            train, test = fold != f, fold == f
            alone = MultiviewPLDA(
                {v: result[v] for v in labels},
                noise_shrinkage=result["noise_shrinkage"],
                random_state=0,
            ).fit(X[train], {v: c[train] for v, c in labels.items()})
            values.append(alone.log_likelihood(X[test], {v: c[test] for v, c in labels.items()}))
            assert result["fold_scores"][f] == pytest.approx(values[-1] / test.sum(), rel=1e-6)
        assert result["score"] == pytest.approx(sum(values) / len(X), rel=1e-6)
    assert model.best_score_ == max(result["score"] for result in model.cv_results_)
    whole = MultiviewPLDA(
        model.model_.views_, noise_shrinkage=model.best_settings_["noise_shrinkage"], random_state=0
    )
    assert model.model_.score(X, labels) == pytest.approx(
        whole.fit(X, labels).score(X, labels), abs=1e-2
    )


def test_names_have_no_part_in_the_choice() -> None:
    X, labels = speakers_and_phrases()
    renamed = {
        v: np.array([f"{zlib.crc32(str(name).encode())}" for name in c.tolist()])
        for v, c in labels.items()
    }
    settings: dict[str, Any] = {"noise_shrinkages": (0.0, 0.1), "cv": 3, "random_state": 5}
    one, other = (
        MultiviewPLDACV({"speaker": (1, 3), "phrase": (2,)}, **settings).fit(X, y)
        for y in (labels, renamed)
    )
    assert other.best_settings_ == one.best_settings_
    assert other.best_score_ == pytest.approx(one.best_score_, rel=1e-5)


def test_folds_of_statistics_are_as_good_as_vectors() -> None:
    X, labels = speakers_and_phrases()
    views = {"speaker": (1, 3), "phrase": (1, 2), "speaker:phrase": (1,)}
    settings: dict[str, Any] = {"noise_shrinkages": (0.0, 0.1), "cv": 3, "random_state": 5}
    settings["model"] = MultiviewPLDA(noise="full")
    model = MultiviewPLDACV(views, **settings).fit(X, labels)
    dealt = deal_folds(np.unique(labels["speaker"], return_inverse=True)[1], 3, RandomState(5))
    folds = [
        SufficientStatistics.from_arrays(
            X[fold.rows],
            {v: c[fold.rows] for v, c in labels.items()},
            views=tuple(views),
            origin=np.full(8, float(f)),
        )
        for f, fold in enumerate(dealt)
    ]
    other = MultiviewPLDACV(views, **settings)
    other.fit(pd.DataFrame(X, columns=list("abcdefgh")), labels).fit_folds(folds)
    assert not hasattr(other, "feature_names_in_")
    assert other.best_settings_ == model.best_settings_
    assert other.best_score_ == pytest.approx(model.best_score_, rel=1e-6)
    assert other.n_features_in_ == 8


@pytest.mark.parametrize("held_out", ["speaker", "phrase"])
def test_the_held_out_view_may_be_chosen(held_out: str) -> None:
    X, labels = speakers_and_phrases()
    settings: dict[str, Any] = {"noise_shrinkages": (0.0,), "cv": 3, "random_state": 0}
    chosen = MultiviewPLDACV({"speaker": 3, "phrase": 2}, held_out=held_out, **settings).fit(
        X, labels
    )
    default = MultiviewPLDACV({"speaker": 3, "phrase": 2}, **settings).fit(X, labels)
    assert (chosen.best_score_ == default.best_score_) == (held_out == "speaker")


def test_ranks_chosen_automatically() -> None:
    X, labels = plentiful()
    rows = labels["a"] < 40
    some = {v: c[rows] for v, c in labels.items()}
    model = MultiviewPLDACV(
        {"a": "auto", "b": None}, noise_shrinkages=(0.0,), cv=3, random_state=0
    ).fit(X[rows], some)
    assert {result["a"] for result in model.cv_results_} <= {5, 10}
    assert model.model_.views_["b"] == 10  # None: as large as possible
    every = MultiviewPLDACV(
        noise_shrinkages=(0.0,), cv=3, random_state=0, model=MultiviewPLDA(max_iter=5)
    ).fit(X[rows], pd.DataFrame(some))
    assert set(every.best_settings_) == {"noise_shrinkage", "a", "b"}


def test_labels_may_be_missing() -> None:
    X, labels = speakers_and_phrases()
    speakers = [float("nan") if i % 9 == 0 else s for i, s in enumerate(labels["speaker"])]
    model = MultiviewPLDACV(
        {"speaker": 3, "phrase": 2}, noise_shrinkages=(0.0,), cv=3, random_state=0
    )
    model.fit(X, {"speaker": speakers, "phrase": labels["phrase"].tolist()})
    assert model.model_.diagnostics_.views["speaker"].unlabelled == 30
    assert model.model_.classes_["speaker"].tolist() == sorted(set(labels["speaker"]))


def test_a_search_has_a_model_and_is_none(tmp_path: Any) -> None:
    X, labels = speakers_and_phrases()
    search = MultiviewPLDACV(
        {"speaker": (2, 3), "phrase": (2,)}, noise_shrinkages=(0.05,), cv=3, random_state=0
    )
    search.fit(pd.DataFrame(X, columns=list("abcdefgh")), labels)
    assert not isinstance(search, MultiviewPLDA)
    assert type(search.model_) is MultiviewPLDA
    assert search.model_.views == {view: search.best_settings_[view] for view in labels}
    assert search.model_.noise_shrinkage == 0.05
    assert search.model_.feature_names_in_.tolist() == list("abcdefgh")
    search.model_.save(tmp_path / "m")
    again = load(tmp_path / "m")
    assert type(again) is MultiviewPLDA
    assert (again.llr(X[:5], X) == search.model_.llr(X[:5], X)).all()


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({"cv": 16}, ParameterError, "between 2 and the 15 classes of 'speaker'; got 16"),
        ({"cv": 2.5}, ParameterError, "whole number .*got 2.5"),
        ({"cv": 1}, ParameterError, "got 1"),
        (
            {"held_out": "pose"},
            LabelError,
            r"held_out names no label column: 'pose'; there are \['speaker', 'phrase'\]",
        ),
        (
            {"views": {"speaker": "large", "phrase": 2}},
            ParameterError,
            "rank of view 'speaker'.*'auto'",
        ),
        ({"noise_shrinkages": ()}, ParameterError, "at least one candidate"),
        ({"noise_shrinkages": (1.5,)}, ParameterError, "noise_shrinkage lies in"),
        ({"model": MultiviewPLDA(noise="pink")}, ParameterError, "noise is one of"),
    ],
)
def test_wrong_settings_are_named(settings: Any, error: Any, words: str) -> None:
    X, labels = speakers_and_phrases()
    with pytest.raises(error, match=words):
        MultiviewPLDACV(**{"views": {"speaker": 2, "phrase": 2}, "cv": 3, **settings}).fit(
            X, labels
        )


def test_wrong_use_is_named() -> None:
    X, labels = speakers_and_phrases()
    model = MultiviewPLDACV({"speaker": 2, "phrase": 2})
    whole = SufficientStatistics.from_arrays(X, labels)
    with pytest.raises(ParameterError, match="at least 2 folds; got 1"):
        model.fit_folds([whole])
    with pytest.raises(LabelError, match="requires y"):
        model.fit(X)
    with pytest.raises(LabelError, match="270 vectors and 269 labels"):
        model.fit(X, {v: c[1:] for v, c in labels.items()})


def test_held_out_cost_by_brute_force_and_its_errors():
    """criterion="cllr" is minus the Cllr over pairs of held-out vectors, every kind alike."""
    rng = np.random.default_rng(8)
    labels = {
        "speaker": np.repeat(np.arange(12), 20),
        "phrase": np.tile(np.repeat(np.arange(5), 4), 12),
    }
    X = rng.normal(size=(12, 6))[labels["speaker"]] + rng.normal(size=(5, 6))[labels["phrase"]]
    X += 0.7 * rng.normal(size=X.shape)
    model = MultiviewPLDACV(
        {"speaker": 3, "phrase": 3},
        noise_shrinkages=(0.05,),
        cv=3,
        criterion="cllr",
        random_state=0,
    ).fit(X, labels)
    dealt = np.random.RandomState(0).permutation(12) % 3
    fold_of = dealt[labels["speaker"]]
    expected = []
    for f in range(3):
        train, held = fold_of != f, np.flatnonzero(fold_of == f)
        candidate = MultiviewPLDA({"speaker": 3, "phrase": 3}, noise_shrinkage=0.05, random_state=0)
        candidate.fit(X[train], {view: codes[train] for view, codes in labels.items()})
        costs: dict = {}
        scores = candidate.llr(X[held], X[held], dtype=np.float64)
        for a in range(len(held)):
            for b in range(a + 1, len(held)):
                same = tuple(bool(codes[held[a]] == codes[held[b]]) for codes in labels.values())
                sign = -1 if same == (True, True) else 1
                costs.setdefault(same, []).append(np.log2(1 + np.exp(sign * scores[a, b])))
        kinds = [np.mean(costs[k]) for k in costs if k != (True, True)]
        expected.append(-(np.mean(costs[True, True]) + np.mean(kinds)) / 2)
    assert model.best_score_ == pytest.approx(np.mean(expected), rel=1e-3)
    wrong: Any = "eer"
    with pytest.raises(ParameterError, match="'likelihood' or 'cllr'"):
        MultiviewPLDACV({"speaker": 3}, criterion=wrong).fit(X, labels)
    with pytest.raises(ParameterError, match="same and of different"):
        MultiviewPLDACV({"speaker": 3, "phrase": 3}, criterion="cllr", cv=12).fit(
            X, {"speaker": labels["speaker"], "phrase": np.arange(240)}
        )


@pytest.mark.slow
@pytest.mark.parametrize("criterion", ["likelihood", "cllr"])
def test_folds_tried_at_the_same_time_give_the_same_choice(criterion: Any) -> None:
    X, labels = speakers_and_phrases()
    one, two = (
        MultiviewPLDACV(
            {"speaker": (2, 4), "phrase": 2},
            cv=3,
            criterion=criterion,
            n_jobs=n_jobs,
            random_state=0,
            model=MultiviewPLDA(max_iter=4),
        ).fit(X, labels)
        for n_jobs in (None, 2)
    )
    assert one.cv_results_ == two.cv_results_
    assert (one.model_.loadings_["speaker"] == two.model_.loadings_["speaker"]).all()


def test_folds_are_dealt_by_a_generator_of_numpys() -> None:
    X, labels = speakers_and_phrases()
    scores = [
        MultiviewPLDACV(
            {"speaker": 2},
            noise_shrinkages=(0.1,),
            cv=3,
            random_state=rng,
            model=MultiviewPLDA(max_iter=4),
        )
        .fit(X, labels)
        .best_score_
        for rng in (np.random.default_rng(1), np.random.default_rng(1), np.random.default_rng(2))
    ]
    assert scores[0] == scores[1] != scores[2]
