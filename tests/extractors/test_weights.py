"""Vectors of unequal noise: weights as fractional counts, against dense Gaussians with the noise of every vector."""

from __future__ import annotations

import numpy as np
import pytest
from cli_files import fails, said_by, write_map
from dense import log_normal, noise_matrix
from dense_scoring import all_patterns, cell_classes, log_mean
from problems import NOISES, problem

from mvplda import (
    Bundle,
    Committee,
    CosineScorer,
    DurationNoise,
    MultiviewPLDA,
    Profiles,
    SufficientStatistics,
    load,
)
from mvplda.exceptions import DataError, LabelError, ParameterError

UNCONNECTED = pytest.mark.filterwarnings("ignore::mvplda.exceptions.DisconnectedDesignWarning")


def dense_log_density(p, vectors, classes, weights, prior=None):
    """log N of vectors whose noise is Sigma / weight, latents shared where classes (n, K) agree."""
    covariance = np.kron(np.diag(1 / np.asarray(weights)), noise_matrix(p))
    mean = np.tile(p.mean, len(vectors))
    for k, B in enumerate(p.loadings):
        for c in np.unique(classes[:, k]):
            m, C = (prior or {}).get((k, c), (np.zeros(B.shape[1]), np.eye(B.shape[1])))
            has = (classes[:, k] == c).astype(float)
            covariance += np.kron(np.outer(has, has), B @ C @ B.T)
            mean += np.kron(has, B @ m)
    return log_normal(vectors.reshape(-1) - mean, covariance)


@UNCONNECTED
@pytest.mark.parametrize(
    "design", ["one view", "unbalanced", "interaction", "three views", "missing"]
)
@pytest.mark.parametrize("noise", NOISES)
def test_a_fit_is_the_optimum_of_the_dense_likelihood(design, noise):
    p = problem(design, noise)
    rng = np.random.default_rng(0)
    weights = rng.uniform(0.3, 3.0, len(p.X))
    model = MultiviewPLDA(p.views, noise=noise, tol=1e-7, max_iter=300).fit(
        p.X, p.labels, weights=weights
    )
    dense = dense_log_density(model.parameters_, p.X, np.stack(p.codes, axis=1), weights)
    assert model.log_likelihoods_[-1] == pytest.approx(dense, rel=1e-9)
    assert model.log_likelihood(p.X, p.labels, weights=weights) == pytest.approx(dense, rel=1e-9)
    assert np.diff(model.log_likelihoods_).min() >= -1e-8
    # at the optimum: no small change of any parameter is likelier
    for name in ("mean", "noise", "loading"):
        for sign in (-1, 1):
            moved = _moved(model.parameters_, name, 1e-2 * sign)
            assert dense_log_density(moved, p.X, np.stack(p.codes, axis=1), weights) < dense + 1e-3
    # the unit of weights is the unit of the noise
    twice = MultiviewPLDA(p.views, noise=noise, tol=1e-7, max_iter=300).fit(
        p.X, p.labels, weights=2 * weights
    )
    np.testing.assert_allclose(twice.noise_, 2 * model.noise_, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(twice.log_likelihoods_[-1], model.log_likelihoods_[-1], rtol=1e-9)


def _moved(p, name, amount):
    from dataclasses import replace

    if name == "mean":
        return replace(p, mean=p.mean + amount * np.sqrt(np.diag(noise_matrix(p))))
    if name == "noise":
        return replace(p, noise=p.noise * (1 + amount))
    return replace(p, loadings=(p.loadings[0] * (1 + amount), *p.loadings[1:]))


def test_equal_weights_are_none():
    p = problem("interaction", "full")
    plain = MultiviewPLDA(p.views, noise="full").fit(p.X, p.labels)
    same = MultiviewPLDA(p.views, noise="full").fit(p.X, p.labels, weights=np.ones(len(p.X)))
    np.testing.assert_array_equal(plain.noise_, same.noise_)
    np.testing.assert_array_equal(
        plain.llr(p.X[:3], p.X[3:9]), same.llr(same.enrol(p.X[:3], weights=np.ones(3)), p.X[3:9])
    )


@pytest.mark.parametrize(
    "views", [{"a": 2}, {"a": 2, "b": 2}, {"a": 2, "b": 2, "a:b": 1}, {"a": 9, "b": 9}]
)
def test_scores_of_weighted_vectors_are_those_of_dense_densities(views):
    p = problem("interaction", "full")
    labels = {name: p.labels[name] for name in ("a", "b")}
    settings = (
        {"prior": "isotropic", "prior_strength": 0.3}
        if max(views.values()) == 9
        else {"noise": "full"}
    )
    ranks = dict.fromkeys(views) if "prior" in settings else views
    rng = np.random.default_rng(3)
    weights = rng.uniform(0.3, 3.0, len(p.X))
    model = MultiviewPLDA(ranks, **settings).fit(p.X, labels, weights=weights)
    base = [v for v in model.views_ if ":" not in v]
    rows, tests, ids = np.array([0, 3, 5, 9]), np.array([7, 8, 20, 21]), [0, 0, 0, 1]
    profiles = model.enrol(p.X[rows], ids, weights=weights[rows])
    tested = model.enrol(p.X[tests], ["x", "y", "z", "z"], weights=weights[tests])

    def log_density(e, t, h):
        both = np.concatenate([e, t])
        table = np.zeros((len(both), len(base)), dtype=int)
        table[len(e) :] = [0 if view in h else 1 for view in base]
        classes = cell_classes(list(model.views_), base, table)
        return dense_log_density(model.parameters_, p.X[both], classes, weights[both])

    for same in [None, *base] if len(base) > 1 else [None]:
        found = model.llr(profiles, tested, same=same, dtype=np.float64)
        for i, e in enumerate((rows[:3], rows[3:])):
            for j, t in enumerate((tests[:1], tests[1:2], tests[2:])):
                logs = {h: log_density(e, t, h) for h in all_patterns(base)}
                yes = [h for h in logs if set([same] if same else base) <= set(h)]
                want = log_mean([logs[h] for h in yes]) - log_mean(
                    [v for h, v in logs.items() if h not in yes]
                )
                assert found[i, j] == pytest.approx(want, abs=1e-7)
    if len(base) > 1:
        labelled = {"b": np.array(["u", "v", "u", "u"])}
        mixed = model.enrol(p.X[rows], ids, labelled, weights=weights[rows])
        np.testing.assert_allclose(
            mixed.weights, [weights[rows][[0, 2]].sum(), weights[rows][1], weights[rows][3]]
        )


@UNCONNECTED
def test_statistics_with_weights_add_up_and_come_back(tmp_path):
    p = problem("missing, interaction", "diagonal")
    rng = np.random.default_rng(1)
    weights = rng.uniform(0.3, 3.0, len(p.X))
    weights /= weights.mean()
    views = tuple(p.views)

    def of(rows):
        labels = {name: [column[i] for i in rows] for name, column in p.labels.items()}
        return SufficientStatistics.from_arrays(
            p.X[rows], labels, views=views, weights=weights[rows]
        )

    whole, parts = of(np.arange(36)), of(np.arange(15)) + of(np.arange(15, 36))
    parts.save(tmp_path / "s.safetensors")
    parts = SufficientStatistics.load(tmp_path / "s.safetensors")
    assert whole.weight == pytest.approx(whole.n)
    fits = [MultiviewPLDA(p.views, max_iter=50, tol=0).fit_statistics(s) for s in (whole, parts)]
    np.testing.assert_allclose(fits[0].noise_, fits[1].noise_, rtol=1e-6)
    np.testing.assert_allclose(
        fits[0].log_likelihoods_[-1], fits[1].log_likelihoods_[-1], rtol=1e-9
    )


def test_a_committee_and_a_bundle_take_weights():
    p = problem("unbalanced", "diagonal")
    labels = {name: p.labels[name] for name in ("a", "b")}
    model = MultiviewPLDA({"a": 2, "b": 2})
    weights = np.linspace(0.5, 2, 5)
    committee = Committee({"one": model, "two": Bundle(None, model)}, factors=None).fit(p.X, labels)
    profiles = committee.enrol(p.X[:5], ["x", "x", "y", "y", "y"], weights=weights)
    np.testing.assert_allclose(profiles.weights, [weights[:2].sum(), weights[2:].sum()])
    alone = committee.experts_["one"]
    sure = committee.llr(profiles, p.X[5:8], same="a", dtype=np.float64)
    half = alone.llr(
        alone.enrol(p.X[:5], ["x", "x", "y", "y", "y"], weights=weights), p.X[5:8], dtype=np.float64
    )
    assert isinstance(profiles, Profiles)
    assert sure.shape == half.shape


@pytest.mark.parametrize("wrong", [np.ones(3), -np.ones(36), np.full(36, np.nan), np.zeros(36)])
def test_what_is_no_weight_is_refused(wrong):
    p = problem("unbalanced", "diagonal")
    with pytest.raises(DataError, match="weight"):
        MultiviewPLDA(p.views).fit(p.X, p.labels, weights=wrong)
    model = MultiviewPLDA(p.views).fit(p.X, p.labels)
    with pytest.raises(DataError, match="weight"):
        model.enrol(p.X, weights=wrong)


def test_tensors_have_no_weights():
    torch = pytest.importorskip("torch")
    p = problem("unbalanced", "diagonal")
    with pytest.raises(ParameterError, match="torch"):
        MultiviewPLDA(p.views).fit(torch.as_tensor(p.X), p.labels, weights=np.ones(len(p.X)))


def drawn_utterances(rng, a, b, speakers, seconds):
    """Vectors of speakers, several each, with noise of variance a + b / t; a unit is the speakers' variance."""
    who = np.repeat(np.arange(speakers), len(seconds) // speakers)
    X = (
        rng.normal(size=(speakers, 12))[who]
        + rng.normal(size=(len(who), 12)) * np.sqrt(a + b / seconds)[:, None]
    )
    return X, who


def test_a_and_b_are_found_on_held_out_speakers():
    rng = np.random.default_rng(0)
    seconds = np.exp(rng.uniform(np.log(0.3), np.log(6), 1200))
    model = MultiviewPLDA({"speaker": 8}, noise="isotropic")
    X, who = drawn_utterances(rng, 0.4, 1.2, 120, seconds)
    found = DurationNoise.choose(model, X, {"speaker": who}, seconds)
    for labels in (
        {"channel": np.arange(1200) % 2, "speaker": who},
        who,
    ):  # the first view is the model's
        assert DurationNoise.choose(model, X, labels, seconds) == found
    share = 1.2 * np.mean(1 / seconds) / (0.4 + 1.2 * np.mean(1 / seconds))
    assert abs(found.b * np.mean(1 / seconds) - share) <= 0.2  # one step of what is tried
    assert found.a + found.b * np.mean(1 / seconds) == pytest.approx(1)
    X, who = drawn_utterances(rng, 1.5, 0.0, 120, seconds)
    assert DurationNoise.choose(model, X, {"speaker": who}, seconds) == DurationNoise(1.0, 0.0)
    with pytest.raises(LabelError, match="too few"):
        DurationNoise.choose(model, X[:20], {"speaker": who[:20]}, seconds[:20])


def test_scores_do_not_grow_with_seconds_alone():
    """Impostors who talk for long stay calibrated: at most 1 in k of them reaches log k, at any length."""
    rng = np.random.default_rng(1)
    truth = DurationNoise(0.5, 1.0)
    seconds = np.repeat([0.3, 1.0, 3.0, 30.0, 300.0], 400)
    rng.shuffle(seconds)
    X, who = drawn_utterances(rng, truth.a, truth.b, 200, seconds)
    model = MultiviewPLDA({"speaker": 12}, noise="isotropic").fit(
        X, {"speaker": who}, weights=truth.weights(seconds)
    )
    for t in (0.3, 3.0, 300.0):
        tests, names = drawn_utterances(rng, truth.a, truth.b, 400, np.full(800, t))
        side = model.enrol(tests, weights=truth.weights(np.full(800, t)))
        llr = model.llr(side[::2], side[1::2], dtype=np.float64)
        others = llr[~np.eye(400, dtype=bool)]
        for k in (2, 10, 100):
            assert (others > np.log(k)).mean() < 1.1 / k
        assert np.mean(np.exp(others)) == pytest.approx(1, abs=0.25)  # as of any likelihood ratio
        assert names[0] == names[1]
    assert (truth.weights([1e6]) <= 1 / truth.a).all()
    length = np.geomspace(0.1, 100, 30)
    exact = [1 / (truth.a + truth.b / s) for s in (length, 2 * length)]
    assert (exact[1] < 2 * exact[0]).all()  # a recording that is repeated within itself is not two
    np.testing.assert_allclose(truth.weights(length), exact[0], atol=1 / 32)


def test_a_bundle_keeps_what_it_learnt_of_seconds(tmp_path):
    rng = np.random.default_rng(2)
    seconds = np.exp(rng.uniform(np.log(0.3), np.log(6), 600))
    X, who = drawn_utterances(rng, 0.4, 1.2, 60, seconds)
    bundle = Bundle(None, MultiviewPLDA({"speaker": 8}, noise="isotropic")).fit(
        X, {"speaker": who}, seconds=seconds
    )
    assert bundle.durations is not None
    assert bundle.durations.b > 0
    bundle.save(tmp_path / "b.safetensors")
    again = load(tmp_path / "b.safetensors")
    assert again.durations == bundle.durations
    side = again.enrol(X[:4], seconds=seconds[:4])
    np.testing.assert_array_equal(side.weights, bundle.durations.weights(seconds[:4]))
    np.testing.assert_array_equal(
        again.llr(side, X[4:6]), bundle.llr(bundle.enrol(X[:4], seconds=seconds[:4]), X[4:6])
    )
    assert bundle.adapt(X + 1).durations == bundle.durations
    plain = Bundle(None, MultiviewPLDA({"speaker": 8})).fit(X, {"speaker": who})
    with pytest.raises(ParameterError, match="not fitted with seconds"):
        plain.enrol(X[:4], seconds=seconds[:4])
    with pytest.raises(ParameterError, match="MultiviewPLDA"):
        Bundle(None, CosineScorer()).fit(X, {"speaker": who}, seconds=seconds)
    for wrong in (np.zeros(600), np.full(600, np.nan), np.ones((600, 2))):
        with pytest.raises(DataError, match="seconds"):
            bundle.fit(X, {"speaker": who}, seconds=wrong)
    with pytest.raises(ParameterError, match="a is positive"):
        DurationNoise(0.0, 1.0)


def test_the_command_line_takes_durations(tmp_path):
    rng = np.random.default_rng(4)
    seconds = np.exp(rng.uniform(np.log(0.3), np.log(6), 600))
    X, who = drawn_utterances(rng, 0.4, 1.2, 60, seconds)
    ids = [f"u{i}" for i in range(600)]
    np.savez(tmp_path / "x.npz", X=X, ids=ids)
    write_map(tmp_path / "utt2spk", ids, who)
    write_map(tmp_path / "utt2dur", ids, seconds)
    write_map(tmp_path / "trials", ["u0", "u0", "u3"], ["u1", "u20", "u599"])
    model = tmp_path / "m.safetensors"
    train = [
        "train",
        tmp_path / "x.npz",
        "-l",
        f"speaker={tmp_path / 'utt2spk'}",
        "-v",
        "speaker=8",
        "-o",
        model,
    ]
    said = said_by(*train, "--noise", "isotropic", "--durations", tmp_path / "utt2dur", code=0)
    assert "the noise of a vector of t seconds is" in said.err
    score = ["score", model, "--test", tmp_path / "x.npz", "--trials", tmp_path / "trials"]
    bundle = load(model)
    told = said_by(*score, "--durations", tmp_path / "utt2dur", code=0).out.split()[2::3]
    sides = bundle.enrol(X, seconds=seconds), bundle.enrol(X, seconds=seconds)
    want = bundle.llr_trials(*sides, np.array([[0, 1], [0, 20], [3, 599]]))
    np.testing.assert_allclose(np.array(told, dtype=float), want, atol=1e-3)
    assert not np.allclose(
        np.array(said_by(*score, code=0).out.split()[2::3], dtype=float), want, atol=1e-2
    )
    (tmp_path / "utt2dur").write_text("u0 1\n")
    assert "says nothing of 599 of 600" in fails(*score, "--durations", tmp_path / "utt2dur")
    write_map(tmp_path / "utt2dur", ids, ["long"] * 600)
    assert "its seconds" in fails(*score, "--durations", tmp_path / "utt2dur")
    assert "multiview" in fails(
        *train[:2], "--model", "cosine", "-o", model, "--durations", "x", code=2
    )
