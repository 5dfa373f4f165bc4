"""Fine-tuning: scores and gradients against brute force, and what held-out people make of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from problems import crossed, there
from test_scoring import (
    STRUCTURES,
    D,
    any_model,
    base_of,
    dense_ratio,
    dense_terms,
    enrolled,
    sides,
)

from mvplda import PLDA, Bundle, Committee, MultiviewPLDA, ParameterError, Question, fine_tune, load
from mvplda.calibration import LinearCalibrator, QualityCalibrator
from mvplda.exceptions import (
    DataError,
    DisconnectedDesignWarning,
    FewSpeakersWarning,
    LabelError,
    MissingExtraError,
)
from mvplda.labels import encode_labels
from mvplda.metrics import trial_kinds
from mvplda.preprocessing import standard_chain

torch = pytest.importorskip("torch", reason="torch is not installed")

from mvplda.models import finetuning  # noqa: E402
from mvplda.models.experts import trials_among  # noqa: E402
from mvplda.models.finetuning import LEVELS, Movement, Start, _Tuning, score_trials  # noqa: E402
from mvplda.scoring.evidence import LatentSpace  # noqa: E402
from mvplda.scoring.matrix import fill  # noqa: E402
from mvplda.scoring.terms import ScoringState  # noqa: E402

WIDE = {"a": 3, "b": 3}


def drawn(rng, people=16, phrases=3, times=6, *, width=6, noise=1.0, speaker=1.0, tails=None):
    """Vectors of people who say phrases, from a model with an interaction; `tails`: degrees of freedom."""
    who, what = crossed(people, phrases, times)
    X = speaker * rng.normal(size=(people, width))[who] + rng.normal(size=(phrases, width))[what]
    X += 0.3 * rng.normal(size=(people * phrases, width))[who * phrases + what]
    heavy = 1.0 if tails is None else np.sqrt((tails - 2) / rng.chisquare(tails, (len(X), 1)))
    return X + noise * heavy * rng.normal(size=X.shape), {"who": who, "what": what}


def tuning(model, X, y, **options):
    names = ("preprocessing", "question", "calibrator", "side", "groups", "device")
    settings = {
        **dict.fromkeys(names),
        "enrolment": 2,
        "refit": True,
        "folds": 2,
        "random_state": 0,
    }
    return _Tuning(model, X, y, **{**settings, **options})


@pytest.mark.parametrize("noise", ["diagonal", "full"])
@pytest.mark.parametrize("views", [*STRUCTURES, WIDE], ids=lambda v: "+".join(v))
def test_scores_of_tensors_are_those_of_the_model(views, noise):
    rng = np.random.default_rng(0)
    model, base = any_model(views, noise), base_of(views)
    parts, (tests,) = sides(rng, [1, 3, 2, 3]), sides(rng, [5])
    questions = [Question(), Question(base[0])]
    if len(base) > 1:
        questions += [
            Question(base[0], {base[1]: "different"}),
            Question(priors={tuple(base[:1]): 3.0, (): 1.0}),
        ]
    p = Start.of(model.parameters_, None).parameters
    sums, counts = (
        np.stack([part.sum(axis=0) for part in parts]),
        np.array([float(len(part)) for part in parts]),
    )
    for question in questions:
        ratio = question.ratio(model.views_)
        got = score_trials(
            p, ratio, torch.from_numpy(sums), counts, torch.from_numpy(tests)
        ).numpy()
        expected = model.llr(enrolled(model, parts), tests, question, dtype=np.float64)
        np.testing.assert_allclose(got, expected, atol=1e-10 * max(1, np.abs(expected).max()))
    terms = dense_terms(model, parts, [t[None] for t in tests])
    dense = dense_ratio(terms, [tuple(base)], [h for h in terms if h != tuple(base)])
    got = score_trials(p, Question().ratio(model.views_), torch.from_numpy(sums), counts,
                       torch.from_numpy(tests))  # fmt: skip
    np.testing.assert_allclose(got.numpy(), dense, atol=1e-8)


def test_tensors_score_profiles_of_several_cells_and_missing_labels():
    rng = np.random.default_rng(1)
    model = any_model({"a": 2, "b": 2, "a:b": 1})
    X, T = (torch.from_numpy(rng.normal(size=(n, D)) + 3) for n in (8, 5))
    profiles = model.enrol(
        X, [0, 0, 0, 1, 1, 2, 2, 2], {"b": ["x", "x", "y", "y", None, None, "x", None]}
    )
    tests = model.enrol(T, None, {"b": ["x", None, "y", "z", "x"]})
    for question in (Question("a"), Question(("a", "b"))):
        plain = model._compare(profiles, tests, question, "exact", np.float64)
        p = Start.of(model.parameters_, None).parameters
        tensors = replace(plain, state=ScoringState("", (), LatentSpace.of(p)))
        got = fill(tensors, torch.empty(plain.shape, dtype=torch.float64))
        np.testing.assert_allclose(
            got, fill(plain, torch.empty(plain.shape, dtype=torch.float64)), atol=1e-10
        )


@pytest.mark.parametrize("noise", ["diagonal", "full"])
@pytest.mark.parametrize(
    "views", [{"who": 2}, {"who": 2, "what": 2, "who:what": 1}, {"who": 6, "what": 2}], ids=str
)
def test_gradients_are_finite_differences(views, noise):
    rng = np.random.default_rng(2)
    X, y = drawn(rng, people=10)
    found = tuning(
        MultiviewPLDA(views, noise=noise, max_iter=3, tol=0).fit(X, y),
        X,
        y,
        enrolment=(1, 3),
        refit=False,
    )
    movement = Movement("full", len(views), X.shape[1], None)
    for number in movement.numbers.values():
        number += torch.from_numpy(0.2 * rng.normal(size=number.shape))
    calibration = found.calibrate([found.scores(movement, 0)], [0])

    def loss():
        return (
            found.loss(movement, found.whole, found.trials[0], calibration)
            + 0.1 * movement.square()
        )

    for number in movement.numbers.values():
        number.requires_grad_(True)
    loss().backward()
    gradients = {
        name: there(number.grad).numpy().copy() for name, number in movement.numbers.items()
    }
    for number in movement.numbers.values():
        number.requires_grad_(False)
    for name, number in movement.numbers.items():
        flat = number.view(-1)
        for i in rng.permutation(len(flat))[:6]:
            ends = []
            for step in (1e-5, -2e-5):
                flat[i] += step
                ends.append(float(loss()))
            flat[i] += 1e-5
            expected = (ends[0] - ends[1]) / 2e-5
            assert gradients[name].reshape(-1)[i] == pytest.approx(expected, rel=2e-5, abs=1e-8), (
                name
            )


@pytest.mark.parametrize("noise", ["diagonal", "full", "isotropic"])
@pytest.mark.parametrize("level", LEVELS)
def test_a_movement_of_nothing_leaves_the_model_and_any_other_is_valid(level, noise):
    rng = np.random.default_rng(3)
    start = Start.of(any_model({"a": 2, "b": 3}, noise).parameters_, None)
    movement = Movement(level, 2, D, None)
    for was, now in zip(_arrays(start.parameters), _arrays(movement.apply(start)), strict=True):
        np.testing.assert_allclose(now, was, atol=1e-12)
    for number in movement.numbers.values():
        number += torch.from_numpy(3 * rng.normal(size=number.shape))
    moved = movement.apply(start)
    assert moved.noise.shape == start.parameters.noise.shape
    assert (
        (moved.noise > 0).all()
        if moved.noise.ndim == 1
        else (torch.linalg.eigvalsh(moved.noise) > 0).all()
    )
    assert all(torch.isfinite(a).all() for a in _arrays(moved))


def _arrays(p):
    return [p.mean, *p.loadings, p.noise]


def test_the_loss_is_the_cost_of_all_kinds_of_trial():
    """Against plain loops over trials, kinds told by the labels."""
    rng = np.random.default_rng(4)
    X, y = drawn(rng, people=8)
    model = MultiviewPLDA({"who": 2, "what": 2}, max_iter=5, tol=0).fit(X, y)
    found = tuning(model, X, y, calibrator=LinearCalibrator(prior=0.2), refit=False)
    movement = Movement("scales", 2, X.shape[1], None)
    calibration = found.calibrate([found.scores(movement, f) for f in (0, 1)], [0, 1])
    rows = found.rows[1]
    order = np.random.default_rng(5)
    trials = found._trials(rows, order)
    drawn_again = there(
        trials_among(
            np.random.default_rng(5).permutation(rows), found.codes, found.base, 2, _after(5, rows)
        )
    )
    assert (np.bincount(drawn_again.ids) == 2).all()
    profiles = model.enrol(X[drawn_again.enrol], drawn_again.ids)
    llrs = calibration.transform(model.llr(profiles, X[drawn_again.test], dtype=np.float64).ravel())
    llrs = llrs.reshape(len(profiles), -1)
    owner = drawn_again.enrol[drawn_again.first]
    kinds = trial_kinds({v: y[v][owner] for v in y}, {v: y[v][drawn_again.test] for v in y})
    odds = np.log(0.2 / 0.8)
    expected = 0.2 * np.logaddexp(0, -llrs[kinds["TC"]] - odds).mean()
    expected += 0.8 * np.mean(
        [np.logaddexp(0, llrs[kinds[k]] + odds).mean() for k in ("TW", "IC", "IW")]
    )
    assert float(found.loss(movement, found.whole, trials, calibration)) == pytest.approx(
        expected, rel=1e-9
    )


def _after(seed, rows):
    rng = np.random.default_rng(seed)
    rng.permutation(rows)
    rng.permutation((2,))
    return rng


def test_people_are_scored_by_a_fit_without_them_and_the_unlabelled_in_no_trial():
    rng = np.random.default_rng(6)
    X, y = drawn(rng, people=9)
    labels = {"who": y["who"].astype(object), "what": y["what"].astype(object)}
    labels["who"][::7], labels["what"][3::11] = None, None
    with pytest.warns(DisconnectedDesignWarning):
        model = MultiviewPLDA({"who": 2, "what": 2}, max_iter=4, tol=0).fit(X, labels)
    found = tuning(model, X, labels)
    bare = np.array(
        [a is None or b is None for a, b in zip(labels["who"], labels["what"], strict=True)]
    )
    for rows, start, trials in zip(found.rows, found.starts, found.trials, strict=True):
        assert not bare[rows].any()
        assert not bare[trials.test].any()
        mine = np.isin(y["who"], y["who"][rows]) & np.array(
            [who is not None for who in labels["who"]]
        )
        again = MultiviewPLDA({"who": 2, "what": 2}, max_iter=4, tol=0)
        with pytest.warns(DisconnectedDesignWarning):
            again.fit(X[~mine], {v: column[~mine] for v, column in labels.items()})
        np.testing.assert_allclose(start.parameters.noise, again.noise_)
    assert len(np.concatenate(found.rows)) == (~bare).sum()


def test_the_preprocessing_has_not_met_the_people_of_a_fold_either():
    rng = np.random.default_rng(13)
    X, y = drawn(rng, people=12)
    X = X @ rng.normal(size=(6, 6)) + 5
    chain = standard_chain(5)
    model = MultiviewPLDA({"who": 3, "what": 2}, max_iter=3, tol=0).fit(chain.fit_transform(X), y)
    found = tuning(model, X, y, preprocessing=chain)
    for rows, start in zip(found.rows, found.starts, strict=True):
        out = np.isin(y["who"], y["who"][rows])
        own = standard_chain(5)
        again = MultiviewPLDA({"who": 3, "what": 2}, max_iter=3, tol=0)
        again.fit(own.fit_transform(X[~out]), {v: column[~out] for v, column in y.items()})
        np.testing.assert_allclose(start.parameters.mean, again.mean_)
        np.testing.assert_allclose(found.X[rows], own.transform(X[rows]))
    with pytest.warns(FewSpeakersWarning):
        tuned = fine_tune(model, X, y, preprocessing=chain, enrolment=2, steps=10, penalties=[0.0])
    bundle = Bundle(chain, tuned.model, calibrator=tuned.calibrator)
    assert bundle.calibrated(X[:2], X[2:5]).shape == (2, 3)
    # the posteriors of known classes are of the vectors as the whole preprocessing gives them
    means, _ = _posterior_by_hand(tuned.model, chain.transform(X), y)
    np.testing.assert_allclose(tuned.model.class_means_["what"], means, atol=1e-6)


def test_ranks_that_fewer_people_cannot_hold_are_lower_in_a_fold():
    rng = np.random.default_rng(14)
    X, y = drawn(rng, people=8, width=9)
    model = MultiviewPLDA(
        {"who": 7, "what": 2}, noise="full", noise_shrinkage=0.1, max_iter=3, tol=0
    ).fit(X, y)
    found = tuning(model, X, y)
    assert {start.parameters.ranks for start in found.starts} == {(3, 2)}
    assert found.whole.parameters.ranks == (7, 2)
    with pytest.warns(FewSpeakersWarning):
        assert fine_tune(model, X, y, enrolment=(1, 2, 3), steps=10).model.views_ == {
            "who": 7,
            "what": 2,
        }


def test_a_noise_that_is_believed_too_little_or_too_much_is_put_right():
    rng = np.random.default_rng(7)
    X, y = drawn(rng, people=30)
    true = MultiviewPLDA({"who": None, "what": None, "who:what": None}, noise="full").fit(X, y)
    wrong = MultiviewPLDA.from_parameters(true.mean_, true.loadings_, true.noise_ / 9)
    found = fine_tune(wrong, X, y, refit=False, enrolment=3, penalties=[1e-3], steps=20)
    assert found.level == "scales"
    assert found.cost < 0.97 * found.start_cost
    shares = [model.explained_variance_ratio_["noise"] for model in (wrong, found.model, true)]
    assert shares[0] < 0.5 * shares[1]
    assert shares[1] == pytest.approx(shares[2], abs=0.15)
    best = fine_tune(true, X, y, refit=False, enrolment=3, penalties=[1e-3], steps=10)
    assert best.cost <= best.start_cost
    assert found.cost < 1.05 * best.start_cost


def test_the_result_is_an_ordinary_model_the_same_for_the_same_seed(tmp_path):
    rng = np.random.default_rng(8)
    X, y = drawn(rng, people=12, noise=0.6)
    model = MultiviewPLDA({"who": 5, "what": 2, "who:what": 4}, noise="full", max_iter=10).fit(X, y)
    options: dict[str, Any] = {
        "enrolment": 2,
        "levels": ["scales"],
        "penalties": [1e-3],
        "steps": 15,
    }
    with pytest.warns(FewSpeakersWarning):
        found = fine_tune(model, X, y, **options)
    with pytest.warns(FewSpeakersWarning):
        again = fine_tune(model, X, y, **options)
    assert found.level == "scales"
    assert type(found.model) is MultiviewPLDA
    np.testing.assert_array_equal(found.model.noise_, again.model.noise_)
    assert found.cost == again.cost
    assert found.calibrator.intercept_ == again.calibrator.intercept_
    bundle = Bundle(None, found.model, calibrator=found.calibrator)
    bundle.save(tmp_path / "model.safetensors")
    other = load(tmp_path / "model.safetensors")
    profiles = bundle.enrol(X[:4], [0, 0, 1, 1])
    np.testing.assert_array_equal(
        other.calibrated(profiles, X[4:9]), bundle.calibrated(profiles, X[4:9])
    )
    known = found.model.llr(profiles, X[4:9], known={"what": [0, 1]}, dtype=np.float64)
    means, covariances = _posterior_by_hand(found.model, X, y)
    np.testing.assert_allclose(found.model.class_means_["what"], means, atol=1e-6)
    np.testing.assert_allclose(found.model.class_covariances_["what"], covariances, atol=1e-6)
    assert np.isfinite(known).all()
    whole = Committee({"a": bundle}, factors=None).fit(X, y)
    assert np.isfinite(whole.llr(X[:2], X[2:4])).all()


def _posterior_by_hand(model, X, y):
    """Of the classes of the second view, from one dense system over the latents of all classes."""
    table = encode_labels(y, tuple(model.views_))
    blocks = []
    for view, loading in model.loadings_.items():
        one_hot = np.eye(len(table.classes[view]))[table.codes[view]]
        blocks.append(np.einsum("nc,dr->ndcr", one_hot, loading).reshape(X.size, -1))
    A = np.concatenate(blocks, axis=1)
    noise = np.diag(model.noise_) if model.noise_.ndim == 1 else model.noise_
    weighted = np.concatenate([np.linalg.solve(noise, part) for part in np.split(A, len(X))])
    covariance = np.linalg.inv(np.eye(A.shape[1]) + A.T @ weighted)
    mean = covariance @ (weighted.T @ (X - model.mean_).reshape(-1))
    start = blocks[0].shape[1]
    r, C = model.views_["what"], len(table.classes["what"])
    at = [slice(start + c * r, start + (c + 1) * r) for c in range(C)]
    return np.stack([mean[s] for s in at]), np.stack([covariance[s, s] for s in at])


def test_steps_that_do_not_pay_are_not_taken(monkeypatch):
    rng = np.random.default_rng(9)
    X, y = drawn(rng, people=8)
    model = PLDA(3).fit(X, y["who"])
    monkeypatch.setattr(finetuning, "RATE", 3.0)  # steps that lead nowhere
    with pytest.warns(FewSpeakersWarning):
        found = fine_tune(
            model, X, {"class": y["who"]}, levels=["columns"], penalties=[0.0], steps=10
        )
    assert found.model is model
    assert found.steps == 0
    assert found.level is None
    assert found.cost == found.start_cost == found.costs["columns", 0.0][:, 0].mean()
    with pytest.warns(FewSpeakersWarning):
        plain = fine_tune(model, X, y["who"], levels=["scales"], steps=0)
    assert plain.model is model
    assert plain.costs["scales", 0.01].shape == (2, 1)


def test_calibration_by_what_is_known_of_the_sides():
    """Short vectors are noisier: a slope that knows how long the sides were costs held-out people less."""
    rng = np.random.default_rng(10)
    X, y = drawn(rng, people=40, noise=0.0)
    seconds = rng.choice([0.25, 4.0], len(X))
    X = X + rng.normal(size=X.shape) / np.sqrt(seconds)[:, None]
    model = MultiviewPLDA({"who": None, "what": None}).fit(X, y)
    plain = fine_tune(model, X, y, levels=["scales"], steps=0)
    aware = fine_tune(model, X, y, levels=["scales"], steps=0, side={"seconds": seconds})
    assert aware.cost < 0.98 * plain.cost
    assert isinstance(aware.calibrator, QualityCalibrator)
    assert aware.calibrator.side_names_ == ["seconds, enrolled", "seconds, test"]
    bundle = Bundle(None, aware.model, calibrator=aware.calibrator)
    side = {"seconds, enrolled": seconds[:2, None], "seconds, test": seconds[2:5]}
    assert bundle.calibrated(X[:2], X[2:5], side=side).shape == (2, 3)


def test_a_known_function_of_the_sides_is_found():
    """LLRs drawn as Gaussians whose slope and offset depend on log seconds; every kind weighs as it should."""
    rng = np.random.default_rng(11)
    n = 60_000
    same, q = rng.random(n) < 0.3, rng.uniform(-1, 1, n)
    deviation = np.exp(0.5 + 0.4 * q)  # of true LLRs: +-d^2/2, d; scores are LLRs / (1.5 + q) - 2 q
    llr = np.where(same, 0.5, -0.5) * deviation**2 + deviation * rng.normal(size=n)
    scores = (llr - 0.7 * q) / (1.5 + 0.5 * q)
    calibrator = QualityCalibrator()
    mass = np.where(same, 0.5 / same.sum(), 0.5 / (~same).sum())
    calibrator._fit(scores[:, None], same, mass, None, {"seconds": np.exp(q)})
    found = calibrator.transform(scores, {"seconds": np.exp(q)})
    assert np.abs(found - llr).mean() < 0.05
    slope, offset, interaction = calibrator.slopes_
    centre = q.mean()
    assert slope == pytest.approx(1.5 + 0.5 * centre, abs=0.05)
    assert offset == pytest.approx(0.7, abs=0.05)
    assert interaction == pytest.approx(0.5, abs=0.05)


def test_what_cannot_be_done_is_refused_in_words(monkeypatch):
    X, y = drawn(np.random.default_rng(12), people=8)
    model = MultiviewPLDA({"who": 2, "what": 2}).fit(X, y)
    given = MultiviewPLDA.from_parameters(model.mean_, model.loadings_, model.noise_)
    with pytest.raises(ParameterError, match="refit=False"):
        fine_tune(given, X, y)
    with pytest.raises(ParameterError, match="leave known out"):
        fine_tune(model, X, y, question={"known": ["what"]})
    with pytest.raises(ParameterError, match="some of"):
        fine_tune(model, X, y, levels=["all"])
    wrongs: list[tuple[dict[str, Any], str]] = [
        ({"penalties": [-1.0]}, "penalties"),
        ({"steps": -1}, "steps"),
        ({"folds": 1}, "folds"),
        ({"enrolment": 0}, "enrolment"),
        ({"calibrator": QualityCalibrator()}, "needs side"),
    ]
    for wrong, words in wrongs:
        with pytest.raises(ParameterError, match=words):
            fine_tune(model, X, y, **wrong)
    with pytest.raises(DataError, match="people"):
        fine_tune(model, X[:54], {view: column[:54] for view, column in y.items()})
    with pytest.raises(DataError, match="two vectors"):
        fine_tune(model, X[::6], {view: column[::6] for view, column in y.items()})
    with pytest.raises(DataError, match="side"):
        fine_tune(model, X, y, side={"seconds": np.full(len(X), np.nan)})
    with pytest.raises(LabelError, match="labels"):
        fine_tune(model, X, {view: column[:-1] for view, column in y.items()})
    with pytest.raises(ValueError, match="NaN"):
        fine_tune(model, np.where(X > 2, np.nan, X), y)

    def absent(module):
        raise MissingExtraError(
            f"{module} is not installed, which this needs: pip install 'mvplda[torch]'"
        )

    monkeypatch.setattr(finetuning, "need", absent)
    with pytest.raises(MissingExtraError, match=r"mvplda\[torch\]"):
        fine_tune(model, X, y)
