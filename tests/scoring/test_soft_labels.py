"""What a recogniser says of the tests' classes: mixtures against dense Gaussians, and limits that are labels."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from dense_scoring import cell_classes, joint_log_density, log_mean
from problems import crossed, draw, random_parameters

from mvplda import Committee, MultiviewPLDA, Question
from mvplda.exceptions import DataError, LabelError, ParameterError, UnknownClassWarning

VIEWS = {
    "two views": {"speaker": 2, "phrase": 2},
    "interaction": {"speaker": 2, "phrase": 2, "speaker:phrase": 1},
    "three views": {"speaker": 2, "phrase": 2, "channel": 1},
}


def fitted(name: str) -> tuple[MultiviewPLDA, np.ndarray, dict[str, np.ndarray]]:
    """A model of 12 speakers and 5 phrases (and 3 channels), and vectors of 4 other speakers."""
    rng = np.random.default_rng(1)
    views = VIEWS[name]
    codes = [*crossed(16, 5, 3)]
    labels = {"speaker": codes[0], "phrase": np.array(list("abcde"))[codes[1]]}
    if "channel" in views:
        labels["channel"] = rng.integers(3, size=len(codes[0]))
    base = [v for v in views if ":" not in v]
    table = np.stack([np.unique(labels[v], return_inverse=True)[1] for v in base], axis=1)
    X = draw(
        rng,
        list(cell_classes(list(views), base, table).T),
        random_parameters(rng, 6, tuple(views.values()), "diagonal"),
    )
    old = codes[0] < 12
    model = MultiviewPLDA(views).fit(X[old], {view: column[old] for view, column in labels.items()})
    return model, X[~old], {view: column[~old] for view, column in labels.items()}


def brute(model, enrol, phrases, test, weights, h, *, known=True):
    """log p(enrol, test, what is heard | h) of one trial, every account of the test's phrase written out.

    phrases : of the enrolled vectors; weights : {phrase, None for none of them: likelihood of what is heard}
    """
    views = list(model.views_)
    base = [v for v in views if ":" not in v]
    names = sorted({*phrases, *(k for k in weights if k)})
    numbers = {name: i for i, name in enumerate(names)} | {None: len(names)}
    cells = list(dict.fromkeys(phrases))
    if "phrase" in h:
        accounts = [(name, weights.get(name, 0.0)) for name in cells]
    else:
        accounts = [(name, w) for name, w in weights.items() if name not in cells]
    found = []
    for name, weight in accounts:
        labels = np.zeros((len(enrol) + len(test), len(base)), dtype=int)
        labels[len(enrol) :] = [0 if view in h else 1 for view in base]
        labels[:, base.index("phrase")] = [
            *(numbers[p] for p in phrases),
            *[numbers[name]] * len(test),
        ]
        classes = cell_classes(views, base, labels)
        prior: dict[Any, Any] = {}
        place = views.index("phrase")
        for label, code in zip(labels[:, base.index("phrase")], classes[:, place], strict=True):
            of = next(n for n, i in numbers.items() if i == label)
            if known and of in model.classes_["phrase"].tolist():
                c = model.classes_["phrase"].tolist().index(of)
                prior[place, code] = (
                    model.class_means_["phrase"][c],
                    model.class_covariances_["phrase"][c],
                )
        log = joint_log_density(model.parameters_, np.concatenate([enrol, test]), classes, prior)
        found.append(log + (np.log(weight) if weight > 0 else -1e5))
    return log_mean(found)


def every(base):
    return [
        tuple(v for v, s in zip(base, bits, strict=True) if s)
        for bits in product((True, False), repeat=len(base))
    ]


def answer(model, trial, same, **options):
    base = [v for v in model.views_ if ":" not in v]
    enrol, phrases, test, weights = trial
    logs = {h: brute(model, enrol, phrases, test, weights, h, **options) for h in every(base)}
    yes = [h for h in logs if set(same) <= set(h)]
    return log_mean([logs[h] for h in yes]) - log_mean(
        [log for h, log in logs.items() if h not in yes]
    )


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("same", [("speaker",), ("phrase",), ("speaker", "phrase")])
def test_posteriors_are_a_mixture_of_dense_densities(name, same):
    model, X, labels = fitted(name)
    rng = np.random.default_rng(2)
    who, what = labels["speaker"], labels["phrase"]
    rows = np.flatnonzero((who == who[0]) & np.isin(what, ["a", "c"]))
    ids = np.where(what[rows] == "a", "one", np.where(np.arange(len(rows)) % 2, "both", "one"))
    ids[-1] = "both"
    profiles = model.enrol(
        X[rows], ids, {"phrase": what[rows]}
    )  # several sessions, one and two phrases
    tests = np.array([5, 20, 33])
    posteriors = rng.dirichlet(np.ones(5), 3)
    for prior in (np.ones(5), np.arange(1.0, 6)):
        said = by_class(posteriors / prior)
        asked: dict[str, Any] = {"same": same, "dtype": np.float64}
        found = model.llr(profiles, X[tests], known="phrase", recognised={"phrase": said}, **asked)
        for i, profile in enumerate(profiles.ids):
            mine = rows[ids == profile]
            for j, t in enumerate(tests):
                weights = dict(zip("abcde", posteriors[j] / prior, strict=True))
                want = answer(model, (X[mine], what[mine].tolist(), X[[t]], weights), same)
                assert found[i, j] == pytest.approx(want, abs=1e-7)
        pairs = np.array([[1, 2], [0, 1], [1, 0]])
        listed = model.llr_trials(
            profiles, X[tests], pairs, known="phrase", recognised={"phrase": said}, **asked
        )
        np.testing.assert_allclose(listed, found[tuple(pairs.T)], atol=1e-9)
        best = model.identify(
            profiles, X[tests], top=1, known="phrase", recognised={"phrase": said}, **asked
        )
        np.testing.assert_allclose(best.scores[:, 0], found.max(axis=0), atol=1e-9)


def test_classes_that_training_has_not_met_and_none_of_them():
    model, X, labels = fitted("interaction")
    mine = np.flatnonzero((labels["speaker"] == labels["speaker"][0]) & (labels["phrase"] == "b"))[
        :2
    ]
    for claimed in ("b", "new", "not listed"):
        profiles = model.enrol(X[mine])[:1]
        said = {"b": [0.5, 0.1], "d": [0.2, 0.3], "new": [0.2, 0.1], None: [0.1, 0.5]}
        asked: dict[str, Any] = {
            "known": {"phrase": [claimed]},
            "recognised": {"phrase": said},
            "dtype": np.float64,
        }
        with pytest.warns(UnknownClassWarning, match="not seen in training"):
            found = model.llr(profiles, X[20:22], same="speaker", **asked)
        for j in range(2):
            weights = {name: column[j] for name, column in said.items()}
            want = answer(model, (X[mine[:1]], [claimed], X[[20 + j]], weights), ["speaker"])
            assert found[0, j] == pytest.approx(want, abs=1e-7)


def test_posteriors_without_what_training_knows():
    model, X, labels = fitted("two views")
    mine = np.flatnonzero(labels["phrase"] == "b")[:2]
    profiles = model.enrol(X[mine], [0, 0], {"phrase": ["b", "b"]})
    said = {"b": [0.5, 0.1], "other": [0.5, 0.9]}
    found = model.llr(profiles, X[20:22], recognised={"phrase": said}, dtype=np.float64)
    for j in range(2):
        weights = {name: column[j] for name, column in said.items()}
        trial = (X[mine], ["b", "b"], X[[20 + j]], weights)
        assert found[0, j] == pytest.approx(
            answer(model, trial, ["speaker", "phrase"], known=False), abs=1e-7
        )


@pytest.mark.parametrize("name", VIEWS)
def test_sure_posteriors_are_labels_and_equal_ones_say_nothing(name):
    model, X, labels = fitted(name)
    what = labels["phrase"]
    rows, tests = np.array([0, 1, 8, 16, 31]), np.arange(3, 40, 5)
    profiles = model.enrol(X[rows], ["x", "x", "x", "y", "z"], {"phrase": what[rows]})
    sure = by_class((what[tests][:, None] == np.array(list("abcde"))).astype(float))
    asked: dict[str, Any] = {"same": "speaker", "dtype": np.float64}
    labelled = model.llr(
        profiles, model.enrol(X[tests], labels={"phrase": what[tests]}), known=["phrase"], **asked
    )
    np.testing.assert_allclose(
        model.llr(profiles, X[tests], known="phrase", recognised={"phrase": sure}, **asked),
        labelled,
        atol=1e-9,
    )
    single = profiles[1:]
    alike: dict[Any, Any] = {
        **dict.fromkeys("abcde", np.full(len(tests), 0.1)),
        None: np.full(len(tests), 0.1),
    }
    for same in ("speaker", None, "phrase"):
        plain = model.llr(single, X[tests], same=same, known=["phrase"], dtype=np.float64)
        found = model.llr(
            single,
            X[tests],
            same=same,
            known="phrase",
            recognised={"phrase": alike},
            dtype=np.float64,
        )
        np.testing.assert_allclose(found, plain, atol=1e-9)
        for h, p in model.hypotheses(
            single, X[tests], known="phrase", recognised={"phrase": alike}
        ).items():
            np.testing.assert_allclose(
                p, model.hypotheses(single, X[tests], known=["phrase"])[h], atol=1e-6
            )


def test_what_is_no_posterior_is_refused():
    model, X, labels = fitted("two views")
    profiles = model.enrol(X[:2], labels={"phrase": labels["phrase"][:2]})
    good = np.full((3, 5), 0.2)
    for wrong, match in (
        (by_class(np.ones((4, 5))), "3 for each class"),
        (by_class(-good), "probabilities"),
        (by_class(good * [[1], [1], [0]]), "not all 0"),
        (by_class(np.where(good > 0, np.nan, 0)), "probabilities"),
        ({"a": [1.0, 0, 0], "b": [1.0]}, "one number a test"),
    ):
        with pytest.raises(DataError, match=match):
            model.llr(profiles, X[2:5], known="phrase", recognised={"phrase": wrong})
    with pytest.raises(ParameterError, match=r"\{class: \(tests,\) posteriors\}; got ndarray"):
        model.llr(profiles, X[2:5], known="phrase", recognised={"phrase": good})
    with pytest.raises(LabelError, match="no view of the model"):
        model.llr(profiles, X[2:5], recognised={"words": good})
    with pytest.raises(ParameterError, match="profiles have no labels"):
        model.llr(X[:2], X[2:5], known="phrase", recognised={"phrase": by_class(good)})
    with pytest.raises(ParameterError, match="give one of the two"):
        model.llr(
            profiles,
            model.enrol(X[2:5], labels={"phrase": list("abc")}),
            known="phrase",
            recognised={"phrase": by_class(good)},
        )
    with pytest.raises(ParameterError, match="cannot be kept"):
        Question(recognised={"phrase": by_class(good)}).to_dict()


def test_a_committee_mixes_what_its_experts_say_together():
    model, X, labels = fitted("interaction")
    what = labels["phrase"]
    rows, tests = np.array([0, 1, 8, 16, 31]), np.arange(3, 40, 5)
    rng = np.random.default_rng(4)
    said = np.column_stack([rng.dirichlet(np.ones(5), len(tests)), np.full(len(tests), 0.05)])
    posteriors = by_class(said, (*"abcde", None))
    ids = ["x", "x", "y", "z", "w"]
    phrases = np.array(["a", "a", *what[rows[2:]]])
    one, two = (clone_of(model, n) for n in (1, 2))
    for known in ("phrase", None):
        asked: dict[str, Any] = {"known": known, "recognised": {"phrase": posteriors}}
        asked["dtype"] = np.float64
        alone = model.llr(
            model.enrol(X[rows], ids, {"phrase": phrases}), X[tests], same="speaker", **asked
        )
        profiles = one.enrol(X[rows], ids, {"phrase": phrases})
        np.testing.assert_allclose(
            one.llr(profiles, X[tests], same="speaker", **asked), alone, atol=1e-7
        )
        for same in (None, "phrase"):
            mine = model.llr(
                model.enrol(X[rows], ids, {"phrase": phrases}), X[tests], same=same, **asked
            )
            np.testing.assert_allclose(
                one.llr(profiles, X[tests], same=same, **asked), mine, atol=1e-7
            )
        pairs = np.array([[3, 0], [1, 7], [1, 2]])
        profiles = two.enrol(X[rows], ids, {"phrase": phrases})
        matrix = two.llr(profiles, X[tests], same="speaker", **asked)
        listed = two.llr_trials(profiles, X[tests], pairs, same="speaker", **asked)
        np.testing.assert_allclose(listed, matrix[tuple(pairs.T)], atol=1e-9)
    sure = {name: (what[tests] == name).astype(float) for name in "abcde"}
    labelled = two.enrol(X[tests], labels={"phrase": what[tests]})
    facts = two.llr(profiles, labelled, same="speaker", known=["phrase"], dtype=np.float64)
    soft = two.llr(
        profiles,
        X[tests],
        same="speaker",
        known="phrase",
        recognised={"phrase": sure},
        dtype=np.float64,
    )
    np.testing.assert_allclose(soft, facts, atol=1e-7)
    mixed = two.llr(
        profiles,
        X[tests],
        known="phrase",
        recognised={"phrase": sure},
        countermeasure=np.zeros(len(tests)),
        dtype=np.float64,
    )
    assert mixed.shape == (4, len(tests))
    with pytest.raises(ParameterError, match="no labels"):
        two.llr(X[:2], X[tests], known="phrase", recognised={"phrase": sure})


def by_class(posteriors, classes="abcde"):
    return dict(zip(classes, posteriors.T, strict=True))


def clone_of(model, n):
    """A committee of n times the same fitted expert, whose factors are not all the same."""
    committee = Committee({str(i): model for i in range(n)}, factors=None)
    committee._adopt(dict(committee.experts), model.width_in)
    committee.views_ = dict.fromkeys(["speaker", "phrase"], 0)
    parts = {"speaker": 1.0, "phrase": 1.0, "together": 1.0}
    committee.factors_ = {
        str(i): {part: f if n == 1 else 0.4 + 0.1 * i for part, f in parts.items()}
        for i in range(n)
    }
    return committee


def test_a_long_list_of_trials_may_have_impossible_ones():
    """A class that a recogniser rules out is minus infinity, in a list as in the matrix."""
    model, X, _ = fitted("two views")
    claims = np.array(list("ab") * (len(X) // 4))
    profiles = model.enrol(X[: 2 * len(claims)], np.repeat(np.arange(len(claims)), 2))
    said = np.tile([0.5, 0.0, 0.5], (len(X), 1))
    asked = {
        "known": {"phrase": claims},
        "recognised": {"phrase": by_class(said, ("a", "b", None))},
    }
    matrix = model.llr(profiles, X, **asked)
    assert np.isneginf(matrix[1::2]).all()
    assert np.isfinite(matrix[::2]).all()
    pairs = np.stack(np.indices(matrix.shape), axis=-1).reshape(-1, 2)
    listed = model.llr_trials(profiles, X, pairs, **asked)
    np.testing.assert_allclose(listed, matrix.ravel(), rtol=1e-4, atol=1e-5)
