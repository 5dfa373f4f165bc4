"""Likelihood ratios against dense multivariate normals."""

from __future__ import annotations

import numpy as np
import pytest
from dense_scoring import (
    all_patterns,
    cell_classes,
    hypothesis_log_density,
    joint_log_density,
    log_mean,
)

from mvplda import PLDA, MultiviewPLDA
from mvplda.exceptions import DataError, LabelError, ParameterError, UnknownClassWarning
from mvplda.scoring.log_sums import AssignmentSum, LogRatios, TermProduct, fill_matrix

D = 4
STRUCTURES = [
    {"a": 2},
    {"a": 2, "b": 1},
    {"a": 2, "b": 1, "a:b": 2},
    {"a": 1, "b": 2, "c": 1},
    {"a": 1, "b": 2, "c": 1, "a:b": 1, "b:c": 1},
    {"a:b": 2},
]
TOLERANCE = 1e-8


def base_of(views):
    return list(dict.fromkeys(part for view in views for part in view.split(":")))


@pytest.fixture(scope="module")
def rng():
    return np.random.default_rng(11)


def any_model(views, noise="diagonal", seed=0):
    """A fitted model whose loadings are large and not canonical."""
    rng = np.random.default_rng(seed)
    labels = {b: rng.integers(0, 4, 80) for b in base_of(views)}
    model = MultiviewPLDA(views, noise=noise, max_iter=1, tol=0).fit(
        rng.normal(size=(80, D)) + 3, labels
    )
    model.loadings_ = {v: rng.normal(size=(D, r)) for v, r in model.views_.items()}
    return model


def sides(rng, counts, offset=3.0):
    return [rng.normal(size=(n, D)) * 2 + offset for n in counts]


def enrolled(model, parts, **options):
    return model.enrol(
        np.concatenate(parts), np.repeat(np.arange(len(parts)), [len(p) for p in parts]), **options
    )


def dense_terms(model, enrol, test):
    views, base = list(model.views_), base_of(model.views_)
    return {
        h: np.array(
            [
                [hypothesis_log_density(model.parameters_, views, base, h, e, t) for t in test]
                for e in enrol
            ]
        )
        for h in all_patterns(base)
    }


def dense_ratio(terms, numerator, denominator, weights=None):
    weights = weights or dict.fromkeys(terms, 1.0)
    shape = next(iter(terms.values())).shape
    ratio = np.empty(shape)
    for index in np.ndindex(shape):
        top = log_mean(
            [terms[h][index] for h in numerator], [weights.get(h, 0.0) for h in numerator]
        )
        bottom = log_mean(
            [terms[h][index] for h in denominator], [weights.get(h, 0.0) for h in denominator]
        )
        ratio[index] = top - bottom
    return ratio


@pytest.mark.parametrize("noise", ["diagonal", "full"])
@pytest.mark.parametrize("views", STRUCTURES, ids=lambda v: "+".join(v))
def test_every_question_of_many_against_many(views, noise, rng):
    model = any_model(views, noise)
    base = base_of(views)
    enrol, test = sides(rng, [1, 3, 2]), sides(rng, [1, 2, 2, 1])
    profiles, tests = enrolled(model, enrol), enrolled(model, test)
    terms = dense_terms(model, enrol, test)
    everything = tuple(base)
    expected = dense_ratio(terms, [everything], [h for h in terms if h != everything])
    np.testing.assert_allclose(
        model.llr(profiles, tests, dtype=np.float64), expected, atol=TOLERANCE
    )
    for view in base:
        expected = dense_ratio(
            terms, [h for h in terms if view in h], [h for h in terms if view not in h]
        )
        got = model.llr(profiles, tests, same=view, dtype=np.float64)
        np.testing.assert_allclose(got, expected, atol=TOLERANCE)
    posterior = model.hypotheses(profiles, tests, dtype=np.float64)
    total = np.logaddexp.reduce(list(terms.values()))
    assert set(posterior) == set(terms)
    for h, value in terms.items():
        np.testing.assert_allclose(posterior[h], np.exp(value - total), atol=TOLERANCE)


@pytest.mark.parametrize("what", ["same", "different"])
def test_given_views_leave_fewer_hypotheses(what, rng):
    model = any_model({"a": 2, "b": 1, "a:b": 1})
    enrol, test = sides(rng, [2, 1]), sides(rng, [1, 1])
    terms = dense_terms(model, enrol, test)
    possible = [h for h in terms if ("b" in h) == (what == "same")]
    expected = dense_ratio(
        terms, [h for h in possible if "a" in h], [h for h in possible if "a" not in h]
    )
    got = model.llr(
        enrolled(model, enrol), enrolled(model, test), same="a", given={"b": what}, dtype=np.float64
    )
    np.testing.assert_allclose(got, expected, atol=TOLERANCE)


def test_priors_weigh_the_alternatives(rng):
    model = any_model({"a": 2, "b": 1})
    enrol, test = sides(rng, [1, 2]), sides(rng, [1, 1, 1])
    terms = dense_terms(model, enrol, test)
    weights = {("a",): 3.0, ("b",): 1.0, (): 0.5, ("a", "b"): 1.0}
    expected = dense_ratio(terms, [("a", "b")], [("a",), ("b",), ()], weights)
    priors = {"a": 6, ("b",): 2, (): 1}
    got = model.llr(enrolled(model, enrol), enrolled(model, test), priors=priors, dtype=np.float64)
    np.testing.assert_allclose(got, expected, atol=TOLERANCE)


def test_average_enrolment_is_one_vector(rng):
    model = any_model({"a": 2, "b": 1})
    enrol, test = sides(rng, [3, 2]), sides(rng, [1, 1])
    averaged = np.stack([e.mean(axis=0) for e in enrol])
    got = model.llr(
        enrolled(model, enrol, method="average"), enrolled(model, test), dtype=np.float64
    )
    expected = model.llr(averaged, np.concatenate(test), dtype=np.float64)
    np.testing.assert_allclose(got, expected, atol=1e-10)
    book = model.llr(enrolled(model, enrol), enrolled(model, test), dtype=np.float64)
    assert np.abs(book - got).max() > 1e-3


@pytest.mark.parametrize(
    "views", [{"a": 2, "b": 1}, {"a": 2, "b": 1, "a:b": 2}, {"a": 1, "b": 1, "c": 2}]
)
def test_enrolment_over_mixed_classes(views, rng):
    """A profile shares a but not b; "same b" means that the test says one of the profile's b."""
    model = any_model(views)
    names, base = list(model.views_), base_of(views)
    p = model.parameters_
    phrases = [np.array([0, 0, 1, 2]), np.array([5, 5]), np.array([1, 3])]
    enrol, test = sides(rng, [4, 2, 2]), sides(rng, [1, 2])
    profiles = enrolled(model, enrol, labels={"b": np.concatenate(phrases)})
    expected = {}
    for h in all_patterns(base):
        matrix = np.empty((3, 2))
        for i, (e, own) in enumerate(zip(enrol, phrases, strict=True)):
            for j, t in enumerate(test):
                values = []
                for said in np.unique(own):
                    labels = np.zeros((len(e) + len(t), len(base)), dtype=int)
                    labels[: len(e), base.index("b")] = own
                    labels[len(e) :] = [0 if v in h else 99 for v in base]
                    if "b" in h:
                        labels[len(e) :, base.index("b")] = said
                    values.append(
                        joint_log_density(
                            p, np.concatenate([e, t]), cell_classes(names, base, labels)
                        )
                    )
                matrix[i, j] = log_mean(values)
        expected[h] = matrix
    tests = enrolled(model, test)
    everything = tuple(base)
    for same, chosen in ((None, [everything]), ("a", [h for h in expected if "a" in h])):
        ratio = dense_ratio(expected, chosen, [h for h in expected if h not in chosen])
        np.testing.assert_allclose(
            model.llr(profiles, tests, same=same, dtype=np.float64), ratio, atol=TOLERANCE
        )
    pairs = np.array([[2, 1], [0, 0], [0, 1]])
    whole = model.llr(profiles, tests, same="a", dtype=np.float64)
    listed = model.llr_trials(profiles, tests, pairs, same="a", dtype=np.float64)
    np.testing.assert_allclose(listed, whole[pairs[:, 0], pairs[:, 1]], atol=TOLERANCE)


@pytest.mark.parametrize("views", [{"a": 2, "b": 1}, {"a": 2, "b": 1, "a:b": 2}])
@pytest.mark.parametrize("same", [None, "a"])
def test_known_classes_have_their_training_posterior(views, same, rng):
    labels = {"a": rng.integers(0, 5, 60), "b": np.array(list("xyz"))[rng.integers(0, 3, 60)]}
    model = MultiviewPLDA(views, max_iter=5, tol=0).fit(rng.normal(size=(60, D)) + 3, labels)
    names, base = list(model.views_), ["a", "b"]
    k = names.index("b")
    p, claims = model.parameters_, np.array(["y", "x", "unseen"])
    enrol, test = sides(rng, [2, 1, 2]), sides(rng, [1, 1])
    prior = {c: (model.class_means_["b"][c], model.class_covariances_["b"][c]) for c in range(3)}
    with pytest.warns(UnknownClassWarning, match="1 of 3 classes"):
        got = model.llr(
            enrolled(model, enrol),
            enrolled(model, test),
            same=same,
            known={"b": claims},
            dtype=np.float64,
        )
    for i, e in enumerate(enrol):
        if claims[i] == "unseen":
            continue
        claimed = "xyz".index(claims[i])
        for j, t in enumerate(test):
            terms = {}
            for h in all_patterns(base):
                values = []
                for said in [claimed] if "b" in h else [c for c in (0, 1, 2, None) if c != claimed]:
                    row = np.zeros((len(e) + len(t), 2), dtype=int)
                    row[: len(e), 1] = claimed
                    row[len(e) :, 0] = 0 if "a" in h else 1
                    row[len(e) :, 1] = 7 if said is None else said
                    cells = cell_classes(names, base, row)
                    cells[:, k] = row[:, 1]
                    latent = {(k, c): prior[c] for c in prior}
                    values.append(joint_log_density(p, np.concatenate([e, t]), cells, latent))
                terms[h] = np.array([[log_mean(values)]])
            chosen = [("a", "b")] if same is None else [("a", "b"), ("a",)]
            expected = dense_ratio(terms, chosen, [h for h in terms if h not in chosen])
            np.testing.assert_allclose(got[i, j], expected[0, 0], atol=TOLERANCE)
    open_set = model.llr(enrolled(model, enrol), enrolled(model, test), same=same, dtype=np.float64)
    np.testing.assert_allclose(got[2], open_set[2], atol=1e-10)


@pytest.mark.parametrize("dtype", [np.int32, np.bool_, np.complex128])
def test_scores_are_not_cut_off_by_what_they_are_written_to(dtype, rng):
    model, x = any_model({"a": 2, "b": 1}), rng.normal(size=(4, D)) + 3
    with pytest.raises(DataError, match="must be an array of float32"):
        model.llr(x, x, out=np.empty((4, 4), dtype=dtype))
    half = model.llr(x, x, out=np.empty((4, 4), dtype=np.float16))
    np.testing.assert_allclose(half, model.llr(x, x), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("same", [None, "a", "b"])
def test_the_ratio_as_printed(same, rng):
    """C = SS' + 2TT' and B = 2SS' + TT' in all four blocks of the half-shared hypotheses."""
    model = any_model({"a": 2, "b": 1})
    S, T = model.loadings_.values()
    noise = np.diag(model.noise_)
    enrol, test = rng.normal(size=(3, D)) + 3, rng.normal(size=(2, D)) + 3

    def log_density(x, diagonal, off):
        joint = np.block([[diagonal, off], [off, diagonal]])
        x = x - np.tile(model.mean_, 2)
        return -0.5 * (np.linalg.slogdet(2 * np.pi * joint)[1] + x @ np.linalg.solve(joint, x))

    A, B, C = S @ S.T + T @ T.T, 2 * S @ S.T + T @ T.T, S @ S.T + 2 * T @ T.T
    priors = {("a", "b"): 1, ("a",): 2, ("b",): 3, (): 4}
    shared = {("a", "b"): A, ("a",): B, ("b",): C, (): 0 * A}
    got = model.llr(enrol, test, same=same, priors=priors, scoring="paper", dtype=np.float64)
    quick = model.llr(enrol, test, same=same, priors=priors, scoring="paper")
    np.testing.assert_allclose(quick, got, atol=1e-4)
    for i, e in enumerate(enrol):
        for j, t in enumerate(test):
            sides: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
            for h, off in shared.items():
                own = off if h else A
                term = log_density(np.concatenate([e, t]), own + noise, off) + np.log(priors[h])
                sides[h == ("a", "b") if same is None else same in h].append((term, priors[h]))
            total = {key: np.logaddexp.reduce([v for v, _ in side]) for key, side in sides.items()}
            weight = {key: np.log(sum(p for _, p in side)) for key, side in sides.items()}
            expected = total[True] - weight[True] - (total[False] - weight[False])
            np.testing.assert_allclose(got[i, j], expected, atol=TOLERANCE)


def test_one_view_is_symmetric_and_lists_agree_with_the_matrix(rng):
    y = np.repeat(np.arange(20), 5)
    X = rng.normal(size=(20, D))[y] + rng.normal(size=(100, D))
    model = PLDA(2).fit(X, y)
    a, b = X[:10], X[10:30]
    matrix = model.llr(a, b, dtype=np.float64)
    np.testing.assert_allclose(matrix, model.llr(b, a, dtype=np.float64).T, atol=1e-10)
    pairs = np.stack([rng.integers(0, 10, 50), rng.integers(0, 20, 50)], axis=1)
    np.testing.assert_allclose(
        model.llr_trials(a, b, pairs, dtype=np.float64),
        matrix[pairs[:, 0], pairs[:, 1]],
        atol=1e-10,
    )
    best = model.identify(model.enrol(a), b, top=3, dtype=np.float64)
    np.testing.assert_allclose(best.scores, -np.sort(-matrix.T, axis=1)[:, :3], atol=1e-10)
    np.testing.assert_array_equal(best.ids[:, 0], matrix.argmax(axis=0))


def test_adding_a_vector_moves_the_odds_as_bayes_says(rng):
    """log odds after e1, e2 = log odds after e1 + log p(e2 | e1, t, same) - log p(e2 | e1, t, different)."""
    model = any_model({"a": 2})
    p = model.parameters_
    e, t = rng.normal(size=(2, D)) + 3, rng.normal(size=(1, D)) + 3

    def density(vectors, classes):
        return joint_log_density(p, vectors, np.array(classes)[:, None])

    both = np.concatenate([e, t])
    first = np.concatenate([e[:1], t])
    news_same = density(both, [0, 0, 0]) - density(first, [0, 0])
    news_different = density(both, [0, 0, 1]) - density(first, [0, 1])
    one = model.llr(e[:1], t, dtype=np.float64)[0, 0]
    two = model.llr(model.enrol(e, [0, 0]), t, dtype=np.float64)[0, 0]
    assert two == pytest.approx(one + news_same - news_different, abs=TOLERANCE)


def test_float32_is_close_to_float64(rng):
    labels = {"a": np.repeat(np.arange(40), 30), "b": np.tile(np.arange(10), 120)}
    truth = any_model({"a": 2, "b": 1})
    X = truth.sample(labels, random_state=0)
    model = MultiviewPLDA({"a": 3, "b": 2}).fit(X, labels)
    exact = model.llr(X[:300], X[300:900], dtype=np.float64)
    quick = model.llr(X[:300], X[300:900])
    assert quick.dtype == np.float32
    assert np.abs(quick - exact).max() < 1e-3


def test_blocks_threads_and_out_change_nothing(rng, monkeypatch):
    model = any_model({"a": 2, "b": 1})
    a, b = rng.normal(size=(50, D)) + 3, rng.normal(size=(70, D)) + 3
    ids = np.repeat(np.arange(25), [1, 3] * 12 + [2])
    profiles = model.enrol(a, ids)
    whole = model.llr(profiles, b, threads=1)
    monkeypatch.setattr("mvplda.scoring.log_sums.BLOCK", 7)
    monkeypatch.setattr("mvplda.backend.THREADED_FROM", 1)
    monkeypatch.setattr("mvplda.scoring.log_sums.BAND_NUMBERS", 200)
    monkeypatch.setattr("mvplda.scoring.engine.PAIR_CHUNK", 7)
    out = np.empty((25, 70), dtype=np.float32)
    assert model.llr(profiles, b, threads=3, out=out) is out
    np.testing.assert_allclose(out, whole, atol=1e-4)
    best = model.identify(profiles, b, top=4)
    np.testing.assert_allclose(best.scores, -np.sort(-whole.T, axis=1)[:, :4], atol=1e-4)


@pytest.mark.parametrize("shape", [(1, 1), (70, 45), (40, 600)], ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("away", "scale"),
    [(0.0, 1.0), (-40.0, 10.0), (-400.0, 1.0), (-30.0, 8.0), (100.0, 60.0), (-2000.0, 1500.0)],
    ids=[
        "all count",
        "some count",
        "none counts",
        "few count",
        "powers overflow in float32",
        "far apart",
    ],
)
def test_sums_over_hypotheses_however_far_the_terms_lie(
    shape, dtype, away, scale, rng, monkeypatch
):
    """log e^n - log(1 + e^a + e^b), against logaddexp of the whole products."""
    monkeypatch.setattr("mvplda.scoring.log_sums.BLOCK", 64)
    P, T = shape

    def factors(rank):
        cross = [rng.normal(size=(n, rank)) * np.sqrt(scale) / rank**0.25 for n in shape]
        left = np.column_stack([cross[0], np.full(P, away), np.ones(P)])
        right = np.column_stack([cross[1], np.ones(T), rng.normal(size=T)])
        return TermProduct(left.astype(dtype), right.astype(dtype))

    n, a, b = factors(5), factors(3), factors(2)
    out = np.full(shape, np.nan, dtype=dtype)
    fill_matrix(LogRatios(AssignmentSum((n,)), AssignmentSum((a, b), 0.0)), [out], threads=1)
    big = [f.left.astype(np.longdouble) @ f.right.T.astype(np.longdouble) for f in (n, a, b)]
    exact = big[0] - np.logaddexp(np.logaddexp(big[1], big[2]), 0.0)
    largest = max(1.0, *(np.abs(term).max() for term in big))
    np.testing.assert_allclose(
        out, exact.astype(np.float64), rtol=0, atol=8 * np.finfo(dtype).eps * largest
    )


@pytest.mark.parametrize("views", [{"a": 2}, {"a": 2, "b": 1}, {"a": 2, "b": 1, "a:b": 1}], ids=str)
@pytest.mark.parametrize("trials", [1, 30, 400])
def test_short_and_long_lists_are_entries_of_the_matrix(views, trials, rng, monkeypatch):
    monkeypatch.setattr("mvplda.scoring.engine.PAIR_CHUNK", 50)
    monkeypatch.setattr("mvplda.scoring.log_sums.GATHER_CHUNK", 7)
    model = any_model(views)
    enrol, test = rng.normal(size=(21, D)) + 3, rng.normal(size=(17, D)) + 3
    pairs = np.stack([rng.integers(0, 21, trials), rng.integers(0, 17, trials)], axis=1)
    for dtype, tolerance in ((np.float32, 1e-4), (np.float64, 1e-10)):
        whole = model.llr(enrol, test, dtype=np.float64)
        some = model.llr_trials(enrol, test, pairs, dtype=dtype)
        np.testing.assert_allclose(some, whole[pairs[:, 0], pairs[:, 1]], atol=tolerance)


def test_extreme_vectors_give_finite_scores():
    model = any_model({"a": 2, "b": 1, "a:b": 1})
    far = np.full((2, D), 1e6) * np.array([[1.0], [-1.0]])
    for dtype in (np.float32, np.float64):
        assert np.isfinite(model.llr(far, np.concatenate([far, far * 0 + 3]), dtype=dtype)).all()


def test_errors_say_what_is_wrong(rng):
    model = any_model({"a": 2, "b": 1})
    X = rng.normal(size=(4, D))
    profiles = model.enrol(X, ["w", "w", "v", "u"])
    assert profiles.ids.tolist() == ["w", "v", "u"]
    assert profiles.counts.tolist() == [2, 1, 1]
    np.testing.assert_allclose(
        model.llr(profiles.select(["u", "w"]), X), model.llr(profiles, X)[[2, 0]], atol=1e-5
    )
    with pytest.raises(LabelError, match="no profile 'q'"):
        profiles.select(["w", "q"])
    with pytest.raises(DataError, match="expecting 4 features"):
        model.llr(profiles, X[:, :3])
    with pytest.raises(DataError, match="NaN or infinity, first in row 2"):
        model.enrol(np.where(np.arange(4)[:, None] == 2, np.nan, X))
    with pytest.raises(LabelError, match="unknown view, 'speaker'"):
        model.llr(profiles, X, same="speaker")
    with pytest.raises(ParameterError, match="both in same and in given"):
        model.llr(profiles, X, same="a", given={"a": "same"})
    with pytest.raises(ParameterError, match="'same' or 'different'"):
        model.llr(profiles, X, same="a", given={"b": "other"})
    with pytest.raises(ParameterError, match="at least 0"):
        model.llr(profiles, X, priors={("a",): -1})
    with pytest.raises(ParameterError, match="positive weight to at least one"):
        model.llr(profiles, X, priors={("a",): 0, (): 0})
    with pytest.raises(LabelError, match="must be a tuple of the views that are shared"):
        model.llr(profiles, X, priors={("a", "c"): 1})
    with pytest.raises(DataError, match="another model"):
        any_model({"a": 2, "b": 1}, seed=5).llr(profiles, X)
    with pytest.raises(DataError, match="there must be at least one vector"):
        model.enrol(X[:0])
    with pytest.raises(LabelError, match="ids must have one id for each of"):
        model.enrol(X, ["w"])
    with pytest.raises(DataError, match=r"row 0 of pairs is \[0, 9\].*tests from 0 to 3"):
        model.llr_trials(profiles, X, [[0, 9]])
    with pytest.raises(LabelError, match="no class posteriors"):
        model.llr(profiles, X, known={"c": [1, 2, 3]})
    with pytest.raises(ParameterError, match="float32 or float64"):
        model.llr(profiles, X, dtype=np.int32)
    with pytest.raises(ParameterError, match="two views"):
        any_model({"a": 2}).llr(X, X, scoring="paper")


def _change_evidence(profiles):
    profiles.y[0] += 2.0


def _change_weights(profiles):
    profiles.weights[0] = 7.0


def _change_labels(profiles):
    profiles.labels["b"].codes[0] = profiles.labels["b"].codes[1]


def _move_labels(profiles):
    profiles.labels["a"] = profiles.labels.pop("b")


@pytest.mark.parametrize("tensors", [False, True], ids=["arrays", "tensors"])
@pytest.mark.parametrize(
    "change", [_change_evidence, _change_weights, _change_labels, _move_labels]
)
@pytest.mark.parametrize("side", [0, 1], ids=["enrolled", "tests"])
def test_scores_follow_profiles_that_change_in_place(change, side, tensors, rng):
    model = any_model({"a": 2, "b": 1})
    labels = {"b": ["x", "y", "x", "y"]} if change in (_change_labels, _move_labels) else None
    X = rng.normal(size=(4, D)) + 3
    if tensors:
        X = pytest.importorskip("torch").as_tensor(X)

    def enrol():
        by_side = [labels, None] if side == 0 else [None, labels]
        return [model.enrol(X, ["w", "w", "v", "v"], labels=table) for table in by_side]

    sides = enrol()
    before = model.llr(*sides, dtype=np.float64)
    change(sides[side])
    fresh = enrol()
    change(fresh[side])
    expected = model.llr(*fresh, dtype=np.float64)
    assert (abs(expected - before) > 1e-3).any()
    after = model.llr(*sides, dtype=np.float64)
    assert (after == expected).all()
