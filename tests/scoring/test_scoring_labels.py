"""Labels and known classes on the two sides of a trial, against dense multivariate normals."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from dense_scoring import cell_classes, joint_log_density, log_mean
from test_scoring import TOLERANCE, D, any_model, enrolled, sides

from mvplda import MultiviewPLDA
from mvplda.exceptions import DataError, LabelError, ParameterError, UnknownClassWarning

VIEWS = [{"a": 2, "b": 1}, {"a": 2, "b": 1, "a:b": 2}]
BASE = ["a", "b"]


@pytest.fixture
def rng():
    return np.random.default_rng(5)


@pytest.fixture(scope="module")
def trained():
    rng = np.random.default_rng(1)
    labels = {"a": rng.integers(0, 5, 60), "b": np.array(list("wxyz"))[rng.integers(0, 4, 60)]}
    return MultiviewPLDA({"a": 2, "b": 1, "a:b": 1}, max_iter=5, tol=0).fit(
        rng.normal(size=(60, D)) + 3, labels
    )


def density(model, vectors, a, b, known=()):
    """log density where `a` and `b` name the classes of every vector; those of b in `known` have posteriors."""
    views = list(model.views_)
    names = sorted(set(b))
    labels = np.stack([a, [names.index(name) for name in b]], axis=1)
    classes = cell_classes(views, BASE, labels)
    classes[:, views.index("b")] = labels[:, 1]
    prior = {}
    for name in set(known) & set(names) & set(model.classes_["b"].tolist()):
        c = model.classes_["b"].tolist().index(name)
        at = (views.index("b"), names.index(name))
        prior[at] = model.class_means_["b"][c], model.class_covariances_["b"][c]
    return joint_log_density(model.parameters_, vectors, classes, prior)


@pytest.mark.parametrize("which", ["llr", "llr_trials", "identify", "hypotheses"])
@pytest.mark.parametrize("side", ["enrol", "test"])
def test_scores_go_to_the_profile_that_they_belong_to(which, side, rng):
    """One labelled cell a profile, and counts that differ: every profile scores as it does alone."""
    model = any_model({"a": 2, "b": 1})
    counts = rng.permutation(np.repeat([1, 2, 3, 4], 5))
    parts, others = sides(rng, counts), sides(rng, [1, 1, 1])
    ids = np.repeat(np.arange(20), counts)
    many = model.enrol(np.concatenate(parts), ids, {"b": ids % 3})
    few = enrolled(model, others)

    def score(profiles):
        pair = (profiles, few) if side == "enrol" else (few, profiles)
        if which == "llr":
            matrix = model.llr(*pair, same="a", dtype=np.float64)
        elif which == "hypotheses":
            matrix = model.hypotheses(*pair, dtype=np.float64)[("a",)]
        elif which == "llr_trials":
            pairs = np.array([(i, j) for i in range(len(pair[0])) for j in range(len(pair[1]))])
            matrix = model.llr_trials(*pair, pairs, same="a", dtype=np.float64).reshape(
                len(pair[0]), -1
            )
        else:
            best = model.identify(*pair, top=len(pair[0]), same="a", dtype=np.float64)
            matrix = np.empty((len(pair[0]), len(pair[1])))
            for column, (names, values) in enumerate(zip(best.ids, best.scores, strict=True)):
                matrix[pair[0].number(names), column] = values
                assert (np.diff(values) <= 0).all()
        return matrix if side == "enrol" else matrix.T

    alone = np.concatenate(
        [score(model.enrol(part, [i] * len(part))) for i, part in enumerate(parts)]
    )
    np.testing.assert_allclose(score(many), alone, atol=TOLERANCE)


@pytest.mark.parametrize("views", VIEWS, ids=lambda v: "+".join(v))
def test_labels_of_both_sides_are_facts(views, rng):
    model = any_model(views)
    e, t = sides(rng, [3, 3])
    said, heard = np.array(["hi", "no", "no"]), np.array(["no", "yes", "no"])
    enrol = model.enrol(e, [0] * 3, {"b": said})
    got = model.llr(enrol, model.enrol(t, [0] * 3, {"b": heard}), dtype=np.float64)
    both = np.concatenate([e, t])
    same, other = ([0, 0, 0] + [a] * 3 for a in (0, 1))
    words = [*said, *heard]
    np.testing.assert_allclose(
        got[0, 0],
        density(model, both, same, words) - density(model, both, other, words),
        atol=TOLERANCE,
    )
    posterior = model.hypotheses(enrol, model.enrol(t, [0] * 3, {"b": heard}), dtype=np.float64)
    assert set(posterior) == {("a",), ()}
    np.testing.assert_allclose(posterior[("a",)], 1 / (1 + np.exp(-got)), atol=TOLERANCE)
    one = t[:1]
    scores = [
        model.llr(enrol, model.enrol(one, [0], {"b": [word]}), same="a")[0, 0]
        for word in ("hi", "no", "yes")
    ]
    assert len({round(float(s), 4) for s in [*scores, model.llr(enrol, one, same="a")[0, 0]]}) == 4


def test_labels_that_are_asked_about_are_claims(rng):
    """The test says "no"; in truth it may say another enrolled word, or a new one."""
    model = any_model({"a": 2, "b": 1, "a:b": 1})
    e, t = sides(rng, [3, 2])
    enrol, test = (
        model.enrol(e, [0] * 3, {"b": ["hi", "no", "bye"]}),
        model.enrol(t, [0] * 2, {"b": ["no", "no"]}),
    )
    got = model.llr(enrol, test, same=("a", "b"), dtype=np.float64)[0, 0]
    both = np.concatenate([e, t])

    def log_density(a, word):
        return density(model, both, [0] * 3 + [a] * 2, ["hi", "no", "bye", word, word])

    wrong = ("hi", "bye", "new")
    against = [
        log_mean([log_density(0, w) for w in wrong]),
        log_density(1, "no"),
        log_mean([log_density(1, w) for w in wrong]),
    ]
    assert got == pytest.approx(log_density(0, "no") - log_mean(against), abs=TOLERANCE)


@pytest.mark.parametrize("same", [None, "a"])
def test_known_classes_of_mixed_enrolments(same, trained, rng):
    """Enrolled with x and y, both seen in training; the test says one of them, another known one, or a new one."""
    e, t = sides(rng, [3, 2])
    enrol = trained.enrol(e, [0] * 3, {"b": ["x", "y", "x"]})
    got = trained.llr(enrol, trained.enrol(t, [0, 0]), same=same, known="b", dtype=np.float64)[0, 0]
    both = np.concatenate([e, t])

    def log_density(a, words):
        return log_mean(
            [
                density(trained, both, [0] * 3 + [a] * 2, ["x", "y", "x", w, w], known="wxyz")
                for w in words
            ]
        )

    tc, tw, ic, iw = (
        log_density(0, "xy"),
        log_density(0, ["w", "z", "new"]),
        log_density(1, "xy"),
        log_density(1, ["w", "z", "new"]),
    )
    expected = (
        tc - log_mean([tw, ic, iw]) if same is None else log_mean([tc, tw]) - log_mean([ic, iw])
    )
    assert got == pytest.approx(expected, abs=TOLERANCE)


def test_a_prompted_sequence(trained, rng):
    """Enrolled with w and x, asked for y and x: facts for one question, claims for the other."""
    e, t = sides(rng, [2, 3])
    enrol, test = (
        trained.enrol(e, [0] * 2, {"b": ["w", "x"]}),
        trained.enrol(t, [0] * 3, {"b": ["y", "x", "y"]}),
    )
    both = np.concatenate([e, t])

    def log_density(a, first, second):
        words = ["w", "x", first, second, first]
        return density(trained, both, [0] * 2 + [a] * 3, words, known="wxyz")

    facts = trained.llr(enrol, test, same="a", known=["b"], dtype=np.float64)[0, 0]
    assert facts == pytest.approx(
        log_density(0, "y", "x") - log_density(1, "y", "x"), abs=TOLERANCE
    )
    others = [(first, "x") for first in ("w", "z", "new")] + [
        ("y", second) for second in ("w", "z", "new")
    ]
    others.append(("new", "newer"))
    wrong = [log_mean([log_density(a, *pair) for pair in others]) for a in (0, 1)]
    claims = trained.llr(enrol, test, same=["a", "b"], known=["b"], dtype=np.float64)[0, 0]
    assert claims == pytest.approx(
        log_density(0, "y", "x") - log_mean([*wrong, log_density(1, "y", "x")]), abs=TOLERANCE
    )


def test_known_claims_and_tests_of_several_cells(trained, rng):
    """One claim a profile; the cells of the test differ in a, and all say the same."""
    e, t = sides(rng, [2, 2])
    test = trained.enrol(t, [0, 0], {"a": ["p", "q"]})
    got = trained.llr(trained.enrol(e, [0, 0]), test, known={"b": ["x"]}, dtype=np.float64)[0, 0]
    both = np.concatenate([e, t])

    def log_density(meets, words):
        classes = (
            [[0, 0, 0 if meets == 0 else 1, 0 if meets == 1 else 2]]
            if meets is not None
            else [[0, 0, 1, 2]]
        )
        return [
            density(trained, both, a, ["x", "x", w, w], known="wxyz")
            for a in classes
            for w in words
        ]

    others = ["w", "y", "z", "new"]
    tc = log_mean(log_density(0, "x") + log_density(1, "x"))
    tw = log_mean(log_density(0, others) + log_density(1, others))
    assert got == pytest.approx(
        tc - log_mean([tw, *log_density(None, "x"), log_mean(log_density(None, others))]),
        abs=TOLERANCE,
    )


def test_claims_must_be_of_the_right_type_and_known(trained, rng):
    e = sides(rng, [2])[0]
    profiles = trained.enrol(e, [0, 1])
    with pytest.raises(LabelError, match=r"text, such as 'w'.* and some are numbers, such as 3, 4"):
        trained.llr(profiles, e, known={"b": [3, 4]})
    with pytest.warns(UnknownClassWarning, match=r"2 of 2 classes .*'Wx', 'y '.*'w', 'x', 'y'"):
        unseen = trained.llr(profiles, e, known={"b": ["Wx", "y "]})
    with pytest.warns(UnknownClassWarning, match="1 of 2 classes named in view 'b'.*'y '"):
        beside_seen = trained.llr(profiles, e, known={"b": ["x", "y "]})
    np.testing.assert_array_equal(unseen[1], beside_seen[1])
    with pytest.raises(ParameterError, match="no labels"):
        trained.llr(profiles, e, known="b")
    labelled = trained.enrol(e, [0, 1], {"b": ["x", "y"]})
    with pytest.raises(ParameterError, match="already"):
        trained.llr(labelled, e, known={"b": ["x", "y"]})
    with pytest.raises(LabelError, match="one type"):
        trained.llr(labelled, trained.enrol(e, labels={"b": [1, 2]}))
    with pytest.raises(ParameterError, match="leave it out of given="):
        trained.llr(labelled, labelled, given={"b": "same"})
    with pytest.raises(ParameterError, match="no view is in question"):
        trained.llr(
            labelled.take([0]),
            trained.enrol(e, labels={"a": [1, 2], "b": ["x", "x"]}),
            given={"a": "same"},
        )


def test_one_wrong_word_of_a_sequence_is_a_wrong_sequence(rng):
    """The test claims w x y z and says w x y v: of the assignments against it, those with one wrong word are likely."""
    words = np.array(list("vwxyz"))
    labels = {"a": np.repeat(np.arange(8), 10), "b": np.tile(np.repeat(words, 2), 8)}
    loadings = {"a": rng.normal(size=(D, 1)), "b": 3 * rng.normal(size=(D, 2))}
    truth = MultiviewPLDA.from_parameters(np.zeros(D), loadings, np.full(D, 0.3))
    X = truth.sample(labels, random_state=3)
    model = MultiviewPLDA({"a": 1, "b": 2}).fit(X, labels)
    said = {word: X[labels["b"] == word].mean(axis=0) for word in words}

    def sequence(text):
        return model.enrol(np.stack([said[word] for word in text]), [0] * 4, {"b": list("wxyz")})

    enrol = sequence("wxyz")
    assert model.llr(enrol, sequence("wxyz"), same=["a", "b"], known="b")[0, 0] > 0
    assert model.llr(enrol, sequence("wxyv"), same=["a", "b"], known="b")[0, 0] < -3
    assert model.llr(enrol, sequence("vvvv"), same=["a", "b"], known="b")[0, 0] < -10


def test_large_names_stay_whole(rng, tmp_path):
    """Numbers beyond 2**63, hashes say, are told apart, in training, in profiles, and after a file."""
    big = np.array([2**63 + 10, 2**63 + 11, 7, 2**63 + 12], dtype=np.uint64)
    who = np.arange(40) % 4
    X = rng.normal(size=(4, D))[who] + rng.normal(size=(40, D))
    small, large = (
        MultiviewPLDA({"a": 2}).fit(X, {"a": names}) for names in (who, big[who].tolist())
    )
    expected = small.llr(X[:4], X[4:8], known={"a": who[:4]}, dtype=np.float64)
    large.save(tmp_path / "m")
    for model in (large, MultiviewPLDA.load(tmp_path / "m")):
        got = model.llr(X[:4], X[4:8], known={"a": big[who[:4]].tolist()}, dtype=np.float64)
        np.testing.assert_allclose(got, expected, atol=1e-9)
    profiles = large.enrol(X[:4], big.tolist())
    assert len(profiles) == 4
    np.testing.assert_array_equal(profiles.number([2**63 + 11, 7]), [1, 2])
    with pytest.raises(LabelError, match="all strings or all numbers"):
        large.enrol(X[:3], [1, "1", 2])
    with pytest.raises(LabelError, match="strings or numbers"):
        large.enrol(X[:2], np.array(["2020-01-01", "2020-01-02"], dtype="datetime64[D]"))


def test_sides_without_a_single_label(rng):
    model = any_model({"a": 2, "b": 1})
    X = rng.normal(size=(2, D)) + 3
    side = model.enrol(X, None, {"b": [None, None]})
    apart = model.llr(X, X, same="a", given={"b": "different"}, dtype=np.float64)
    np.testing.assert_allclose(model.llr(side, side, dtype=np.float64), apart, atol=TOLERANCE)


def test_changed_posteriors_are_noticed(trained, rng):
    model = copy.deepcopy(trained)
    e = sides(rng, [2])[0]

    def score():
        return model.llr(e, e, known={"b": ["x", "y"]}, dtype=np.float64)

    first = score()
    model.class_means_ = {**model.class_means_, "b": model.class_means_["b"] + 1.0}
    second = score()
    assert np.abs(second - first).max() > 1e-3
    model.class_covariances_ = {
        **model.class_covariances_,
        "b": model.class_covariances_["b"] * 0.5,
    }
    third = score()
    assert np.abs(third - second).max() > 1e-3
    again = copy.deepcopy(model)
    np.testing.assert_allclose(
        again.llr(e, e, known={"b": ["x", "y"]}, dtype=np.float64), third, atol=1e-12
    )


def test_features_are_known_by_name(rng):
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    X = pandas.DataFrame(rng.normal(size=(30, D)), columns=list("pqrs"))
    model = MultiviewPLDA({"a": 1}).fit(X, {"a": np.arange(30) % 5})
    reversed_columns = X[list("srqp")]
    for call in (model.enrol, lambda x: model.llr(X, x), lambda x: model.llr(x, X)):
        with pytest.raises(DataError, match="feature names"):
            call(reversed_columns)
    np.testing.assert_array_equal(
        model.llr(X[:3], X[3:5]), model.llr(X[:3].to_numpy(), X[3:5].to_numpy())
    )


def test_far_vectors_are_scored_right_or_refused_by_row(rng):
    model = any_model({"a": 2, "b": 1})
    X = rng.normal(size=(6, D)) + 3
    profiles = model.enrol(X[:3], ["p", "q", "r"])
    for factor in (1e2, 1e3, 1e5):
        exact = model.llr(profiles, X * factor, dtype=np.float64)
        np.testing.assert_allclose(model.llr(profiles, X * factor), exact, rtol=1e-6, atol=2e-3)
    far = X.copy()
    far[[1, 4]] *= 1e25
    for call in (model.llr, model.identify, lambda p, t: model.llr_trials(p, t, [(0, 1)])):
        with pytest.raises(
            DataError,
            match=r"2 test profile\(s\).*rows 1 \(1\), 4|1 test profile\(s\).*rows 1 \(1\)",
        ):
            call(profiles, far)
    with pytest.raises(DataError, match=r"1 enrolled profile\(s\).*rows 1 \(q\)"):
        model.llr(model.enrol(np.concatenate([X[:1], X[1:2] * 1e38]), ["p", "q"]), X)


def test_profiles_by_position_and_by_name(rng, tmp_path):
    model = any_model({"a": 2, "b": 1})
    X = rng.normal(size=(9, D)) + 3
    ids = np.array([1, 1, 1, 2, 2, 3, 3, 3, 3])
    mixed = model.enrol(X, ids, {"b": [0, 1, None, 0, 0, 1, 1, 2, 2]})
    whole = model.llr(mixed, X, same="a", dtype=np.float64)
    again = mixed.select([1, 1, 3])
    np.testing.assert_allclose(
        model.llr(again, X, same="a", dtype=np.float64), whole[[0, 0, 2]], rtol=1e-12
    )
    np.testing.assert_allclose(
        model.llr(mixed[0], X, same="a", dtype=np.float64), whole[:1], rtol=1e-12
    )
    np.testing.assert_allclose(
        model.llr(mixed[-2:], X, same="a", dtype=np.float64), whole[1:], rtol=1e-12
    )
    assert len(list(mixed)) == 3
    for unknown in (0, 4):
        with pytest.raises(LabelError, match=f"no profile {unknown}; the 3 profiles"):
            mixed.select([2, unknown])
    with pytest.raises(LabelError, match="no profile '1'; the 3 profiles have ids such as 1"):
        mixed.select(["1"])


def test_priors_of_hypotheses(rng):
    model = any_model({"a": 2, "b": 1})
    X = rng.normal(size=(3, D)) + 3
    plain = model.hypotheses(X, X)
    for h, value in model.hypotheses(X, X, priors={}).items():
        np.testing.assert_array_equal(value, plain[h])
    named = model.hypotheses(X, X, priors={("a",): 1, (): 3}, dtype=np.float64)
    assert not named[("a", "b")].any()
    odds = plain[("a",)].astype(float) / plain[()] / 3
    np.testing.assert_allclose(named[("a",)] / named[()], odds, rtol=1e-5)
    for bad in ({("a",): -1.0}, {("a",): 0.0}, {("a",): np.nan}):
        with pytest.raises(ParameterError):
            model.hypotheses(X, X, priors=bad)


def test_an_empty_list_of_trials(rng):
    model = any_model({"a": 2})
    X = rng.normal(size=(3, D))
    none: list[Any] = []
    for empty in (none, np.zeros((0, 2), dtype=int)):
        assert model.llr_trials(X, X, empty).shape == (0,)


def test_changed_parameters_are_noticed(rng):
    """What scoring keeps of a model follows its parameters."""
    model = any_model({"a": 2, "b": 1})
    X = rng.normal(size=(3, D)) + 3
    before = model.llr(X, X)
    model.loadings_["a"][:] *= 2
    in_place = model.llr(X, X)
    assert np.abs(in_place - before).max() > 1e-3
    model.loadings_ = {**model.loadings_, "a": 2 * model.loadings_["a"]}
    changed = model.llr(X, X)
    assert np.abs(changed - in_place).max() > 1e-3
    model.mean_ = model.mean_ + 1.0
    assert np.abs(model.llr(X, X) - changed).max() > 1e-3


@pytest.mark.parametrize("ids", [[np.nan, 1.0], [float("nan")] * 2, np.array([2.0, np.nan])])
def test_an_id_is_not_nan(ids: Any) -> None:
    model = any_model({"a": 2})
    X = np.random.default_rng(0).normal(size=(2, D))
    with pytest.raises(LabelError, match="ids contain NaN"):
        model.enrol(X, ids)


def test_more_possibilities_than_can_be_summed_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model = any_model({"a": 2, "b": 2})
    X = np.random.default_rng(0).normal(size=(4, D))
    profile = model.enrol(X, [0] * 4, labels={"b": ["x", "y", "z", "x"]})
    monkeypatch.setattr("mvplda.scoring.assignments.MAX_ASSIGNMENTS", 1)
    with pytest.raises(ParameterError, match="possible assignments of the test"):
        model.llr(profile, X)
    monkeypatch.undo()
    assert np.isfinite(model.llr(profile, X)).all()
