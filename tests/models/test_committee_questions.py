"""A committee of one expert answers every question as that expert does; what cannot be an expert is refused."""

from typing import Any

import numpy as np
import pytest

from mvplda import PLDA, Committee, CosineScorer, MultiviewPLDA, load
from mvplda.exceptions import LabelError, ParameterError

VIEWS = {"speaker": 2, "phrase": 2}


def _data(seed=0):
    rng = np.random.default_rng(seed)
    speaker, phrase = np.divmod(np.arange(72), 8)
    y = {
        "speaker": np.char.add("s", speaker.astype(str)),
        "phrase": np.char.add("p", (phrase // 2).astype(str)),
    }
    X = (
        rng.normal(size=(9, 5))[speaker]
        + rng.normal(size=(4, 5))[phrase // 2]
        + 0.6 * rng.normal(size=(72, 5))
    )
    return X, y, rng.normal(size=(6, 5)), rng.normal(size=(4, 5))


IDS = [0, 0, 1, 2, 2, 2]


@pytest.mark.parametrize("views", [VIEWS, {**VIEWS, "speaker:phrase": 1}])
@pytest.mark.parametrize("known", [None, "phrase"])
@pytest.mark.parametrize("same", ["phrase", ["speaker", "phrase"], "speaker"])
def test_labels_of_both_sides_are_claims_where_they_are_asked_about(views, known, same):
    X, y, E, T = _data()
    model, committee = (
        MultiviewPLDA(views).fit(X, y),
        Committee({"one": MultiviewPLDA(views)}, weights=None).fit(X, y),
    )
    asked = {"same": same, "known": known, "dtype": np.float64}
    answers = []
    for scorer in (model, committee):
        profiles = scorer.enrol(E, IDS, {"phrase": ["p0", "p1", "p1", "p0", "p2", "p1"]})
        tests = scorer.enrol(T, [0, 0, 1, 1], {"phrase": ["p0", "p1", "p2", "p0"]})
        if known and same == "phrase":
            asked = {**asked, "given": {"speaker": "same"}}
        answers.append(scorer.llr(profiles, tests, **asked))
    np.testing.assert_allclose(answers[1], answers[0], atol=1e-9)


def test_known_classes_follow_their_profiles_into_lists_and_bands(monkeypatch):
    X, y, E, T = _data()
    committee = Committee({"one": MultiviewPLDA(VIEWS)}, weights=None).fit(X, y)
    profiles = committee.enrol(E, IDS)
    asked: dict[str, Any] = {
        "same": "speaker",
        "known": {"phrase": ["p0", "p2", "p1"]},
        "dtype": np.float64,
    }
    matrix = committee.llr(profiles, T, **asked)
    for pairs in ([(2, 0), (0, 3), (1, 1)], [(2, 0), (2, 3), (0, 1), (1, 2), (0, 0)]):
        rows, columns = np.transpose(pairs)
        found = committee.llr_trials(profiles, T, pairs, **asked)
        np.testing.assert_allclose(found, matrix[rows, columns], atol=1e-9)
    monkeypatch.setattr("mvplda.scoring.log_sums.BAND_NUMBERS", 4)  # one profile a band
    best = committee.identify(profiles, T, top=1, **asked)
    np.testing.assert_allclose(best.scores[:, 0], matrix.max(axis=0), atol=1e-9)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"known": ["room"]}, "known has an unknown view, 'room'"),
        ({"experts": {"one": CosineScorer(views=["pose"])}}, "models no view of the committee"),
        ({"weights": {"one": -1.0}}, "a weight must be"),
        ({"weights": {"one": {"phrase": np.nan}}}, "a weight must be"),
        ({"weights": {"one": {"room": 1.0}}}, "weights of the expert 'one' contain 'room'"),
        ({"weights": "learned"}, "weights must be"),
        ({"folds": 1}, "folds must be"),
        ({"folds": 2.5}, "folds must be"),
        ({"enrolment": 0}, "enrolment must be"),
    ],
)
def test_wrong_settings_are_named(settings, said):
    X, y, _, _ = _data()
    with pytest.raises(ParameterError, match=said):
        Committee(**{"experts": {"one": MultiviewPLDA(VIEWS)}, **settings}).fit(X, y)


def test_one_view_may_be_named_by_itself():
    X, y, E, T = _data()
    one, two = (
        Committee({"one": MultiviewPLDA(VIEWS)}, known=views, folds=3).fit(X, y)
        for views in ("phrase", ["phrase"])
    )
    np.testing.assert_array_equal(one.llr(E, T), two.llr(E, T))


def test_factors_are_kept(tmp_path):
    X, y, _, _ = _data()
    for weights in ("learnt", None):
        committee = Committee({"one": MultiviewPLDA(VIEWS)}, weights=weights).fit(X, y)
        committee.save(tmp_path / "committee")
        assert load(tmp_path / "committee").weights_ == committee.weights_


def test_an_expert_of_one_view_is_a_model_of_that_view():
    X, y, _, _ = _data()
    committee = Committee(
        {"who": MultiviewPLDA({"speaker": 2}), "both": MultiviewPLDA(VIEWS)}, weights=None
    ).fit(X, y)
    alone = MultiviewPLDA({"speaker": 2}).fit(X, y["speaker"])
    said = (
        Committee({"who": MultiviewPLDA({"speaker": 2})}, weights=None)
        .fit(X, y)
        .llr(X[:3], X[3:6], same="speaker")
    )
    np.testing.assert_allclose(said, alone.llr(X[:3], X[3:6]), atol=1e-4)
    assert np.isfinite(committee.llr(X[:3], X[3:6])).all()
    with pytest.raises(LabelError, match="one view"):
        Committee({"who": PLDA(2)}).fit(X, y)


def test_experts_of_other_recordings_know_other_classes():
    """Classes of all experts are joined, each once, and every expert finds its own among them."""
    X, y, E, T = _data()
    committee = Committee({"one": MultiviewPLDA(VIEWS), "two": MultiviewPLDA(VIEWS)}, weights=None)
    committee.fit(X, y)
    assert committee.classes_["phrase"].tolist() == ["p0", "p1", "p2", "p3"]
    experts = committee.experts_
    for name, phrases in {"one": ["p1", "p2", "p3"], "two": ["p0", "p2", "p3"]}.items():
        rows = np.isin(y["phrase"], phrases)
        labels = {view: column[rows] for view, column in y.items()}
        experts[name] = MultiviewPLDA(VIEWS).fit(X[rows] + (name == "two"), labels)
    assert committee.classes_["phrase"].tolist() == ["p1", "p2", "p3", "p0"]
    asked = {"same": "speaker", "given": {"phrase": "same"}, "dtype": np.float64}
    for phrase in ("p0", "p1", "p2", "p3"):
        expected = np.zeros((6, 4))
        for expert in experts.values():
            has_seen = phrase in expert.classes_["phrase"]
            known = {"phrase": [phrase] * 6} if has_seen else None
            expected += expert.llr(E, T, known=known, **asked)
        llrs = committee.llr(E, T, known={"phrase": [phrase] * 6}, **asked)
        np.testing.assert_allclose(llrs, expected, atol=1e-9)
