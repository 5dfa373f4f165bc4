"""Bundle.answer: one calibration a question, ratio and posteriors from the same calibrated numbers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from answer_checks import check_trials
from domain_problems import Place, domain_bundle, make_place
from problems import crossed, random_parameters
from problems import draw as draw_vectors

from mvplda import Bundle, Committee, CosineScorer, MultiviewPLDA, Question, load
from mvplda.calibration.hypotheses import HypothesisCalibrator
from mvplda.decisions import OperatingPoint, decide
from mvplda.exceptions import DataError, LabelError, ParameterError
from mvplda.scoring.answer import question_key
from mvplda.scoring.profiles import Profiles
from mvplda.scoring.question import NearMatches

VIEWS = ("speaker", "phrase")
BOTH = VIEWS


@pytest.fixture(scope="module")
def data() -> tuple[np.ndarray, dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    codes = list(crossed(20, 5, 4))
    X = draw_vectors(rng, codes, random_parameters(rng, 8, (3, 2), "full"))
    return X, dict(zip(VIEWS, codes, strict=True))


def calibrator(factor: float, constant: float = 0.0) -> HypothesisCalibrator:
    fitted = HypothesisCalibrator()
    fitted.weights_ = {"speaker": factor, "phrase": factor, "together": factor}
    fitted.constants_ = {"speaker+phrase": constant, "speaker": 0.0, "phrase": 0.0, "nothing": 0.0}
    fitted.outlier_probability_ = 1e-12
    fitted.n_speakers_ = 20
    return fitted


@pytest.fixture(scope="module")
def bundle(data: Any) -> Bundle:
    scorer = MultiviewPLDA({"speaker": 3, "phrase": 2}, noise="full", max_iter=5, tol=0)
    return Bundle(None, scorer).fit(*data)


def test_without_a_calibration_the_answer_is_the_models(bundle: Bundle, data: Any) -> None:
    X = data[0]
    for asked in ({}, {"same": "speaker"}, {"same": "phrase"}, {"given": {"phrase": "same"}}):
        answer = bundle.answer(X[:3], X[5:12], Question(**asked))
        assert not answer.calibrated
        np.testing.assert_allclose(answer.llr, bundle.llr(X[:3], X[5:12], **asked), atol=1e-4)
    shared = bundle.answer(X[:3], X[5:12]).posteriors()
    np.testing.assert_allclose(sum(shared.values()), 1.0)


def test_a_list_of_trials_is_the_matrix(bundle: Bundle, data: Any) -> None:
    X = data[0]
    whole = bundle.answer(X[:3], X[5:12])
    pairs = np.array([[0, 1], [2, 6]])
    listed = bundle.answer(X[:3], X[5:12], pairs=pairs)
    np.testing.assert_allclose(listed.llr, whole.llr[pairs[:, 0], pairs[:, 1]], atol=1e-9)
    one = whole.take(2, 6)
    assert one.llr == pytest.approx(listed.llr[1])
    assert float(one.posteriors()[BOTH]) == pytest.approx(float(whole.posteriors()[BOTH][2, 6]))


def test_a_calibration_is_for_its_question_only(bundle: Bundle, data: Any) -> None:
    """The calibration of "same speaker and phrase" once answered "same speaker" as well."""
    X = data[0]
    own = Bundle(None, bundle.scorer, calibrations={"speaker+phrase": calibrator(0.3)})
    both = own.answer(X[:3], X[5:12])
    assert both.calibrated
    assert both.key == "speaker+phrase"
    assert np.abs(both.llr - bundle.llr(X[:3], X[5:12])).max() > 0.1
    voice = own.answer(X[:3], X[5:12], Question("speaker"))
    assert not voice.calibrated
    np.testing.assert_allclose(voice.llr, bundle.llr(X[:3], X[5:12], same="speaker"), atol=1e-4)
    known = own.answer(bundle.enrol(X[:3]), X[5:12], Question(known={"phrase": [0, 1, 2]}))
    assert not known.calibrated
    assert known.key == "speaker+phrase|phrase known"


def test_posteriors_are_those_of_the_calibrated_llr(bundle: Bundle, data: Any) -> None:
    """A calibrated LLR once stood beside probabilities that were not calibrated."""
    X = data[0]
    own = Bundle(None, bundle.scorer, calibrations={"speaker+phrase": calibrator(0.3, -1.0)})
    answer = own.answer(X[:3], X[5:12])
    p = answer.posteriors()[BOTH]
    np.testing.assert_allclose(np.log(p) - np.log1p(-p), answer.llr, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("asked", "key"),
    [
        ({}, "speaker+phrase"),
        ({"same": ("phrase", "speaker")}, "speaker+phrase"),
        ({"same": "speaker"}, "speaker"),
        ({"given": {"phrase": "same"}}, "speaker|phrase same"),
        ({"known": ["phrase"]}, "speaker+phrase|phrase known"),
        ({"same": "speaker", "known": {"phrase": ["a"]}}, "speaker|phrase known"),
        ({"countermeasure": 1.0}, "speaker+phrase"),
    ],
)
def test_the_key_of_a_question(asked: dict[str, Any], key: str) -> None:
    assert question_key(Question(**asked), VIEWS) == key


def test_a_file_keeps_calibrations_points_and_card(
    bundle: Bundle, data: Any, tmp_path: Path
) -> None:
    X = data[0]
    points = {"speaker": [OperatingPoint(3.0, far=0.01, people=20, basis="held-out people")]}
    own = Bundle(
        None,
        bundle.scorer,
        calibrations={"speaker": calibrator(0.4), "speaker+phrase|phrase known": calibrator(0.5)},
        points=points,
        card={"people": 20},
    )
    own.save(tmp_path / "b")
    again = load(tmp_path / "b")
    assert isinstance(again, Bundle)
    question = Question("speaker")
    assert (
        again.answer(X[:2], X[3:6], question).llr == own.answer(X[:2], X[3:6], question).llr
    ).all()
    assert again.operating_points(question) == points["speaker"]
    assert again.operating_points() == []
    assert again.card == {"people": 20}
    assert set(again.describe()["bundle"]["calibrations"]) == set(own.calibrations or {})


def test_other_scorers_answer_too(data: Any) -> None:
    X, labels = data
    one_view = {view: MultiviewPLDA({view: 2}) for view in labels}
    cascade = Bundle(None, Committee(one_view, weights=None)).fit(X, labels)
    np.testing.assert_allclose(
        cascade.answer(X[:3], X[4:9]).llr, cascade.llr(X[:3], X[4:9]), atol=1e-4
    )
    cosine = Bundle(None, CosineScorer()).fit(X)
    np.testing.assert_allclose(
        cosine.answer(X[:3], X[4:9]).llr, cosine.llr(X[:3], X[4:9]), atol=1e-5
    )


# -- the calibrator itself ---------------------------------------------------------------


def trials(rng: np.random.Generator, n: int, factor: float) -> tuple[dict[Any, Any], np.ndarray]:
    """Calibrated evidence of independent views, made `factor` times too large."""
    truth = rng.integers(0, 4, n)
    voice = rng.normal(np.where(np.isin(truth, [0, 1]), 2.0, -2.0), 2.0)
    words = rng.normal(np.where(np.isin(truth, [0, 2]), 3.0, -3.0), np.sqrt(6.0))
    logs = {BOTH: voice + words, ("speaker",): voice, ("phrase",): words, (): 0 * voice}
    return {h: factor * values for h, values in logs.items()}, truth


def cost(logs: dict[Any, Any], truth: np.ndarray) -> float:
    """Mean of -log posterior(truth), hypotheses alike."""
    every = np.stack(list(logs.values()), axis=1)
    every -= np.logaddexp.reduce(every, axis=1, keepdims=True)
    own = -every[np.arange(len(truth)), truth]
    return float(np.mean([own[truth == k].mean() for k in np.unique(truth)]))


@pytest.mark.parametrize("factor", [0.05, 0.5, 4.0])
def test_what_is_too_large_or_too_small_is_put_right(factor: float) -> None:
    rng = np.random.default_rng(1)
    logs, truth = trials(rng, 20_000, factor)
    fitted = HypothesisCalibrator().fit(logs, truth, speakers=np.arange(20_000) // 20)
    assert fitted.weights_["speaker"] == pytest.approx(1 / factor, rel=0.1)
    assert fitted.weights_["phrase"] == pytest.approx(1 / factor, rel=0.1)
    fresh, known = trials(rng, 20_000, factor)
    best = cost({h: values / factor for h, values in fresh.items()}, known)
    assert cost(fitted.transform(fresh), known) < 1.03 * best


def test_few_speakers_stay_near_the_model_and_claim_little() -> None:
    logs, truth = trials(np.random.default_rng(2), 400, 1.0)
    few = HypothesisCalibrator().fit(logs, truth, speakers=np.arange(400) % 3)
    many = HypothesisCalibrator().fit(logs, truth, speakers=np.arange(400))
    assert few.outlier_probability_ > 10 * many.outlier_probability_
    assert few.largest_llr < 5 < many.largest_llr
    largest = few.transform({h: 1000 * values for h, values in logs.items()})
    ratio = largest[BOTH] - np.logaddexp.reduce(list(largest.values())[1:], axis=0) + np.log(3)
    assert ratio.max() <= few.largest_llr + 1e-9


@pytest.mark.parametrize("errors", [0.5, 0.05])
def test_without_wrong_trials_the_doubt_is_that_of_its_prior(errors: float) -> None:
    truth = np.arange(4000) % 2
    logs = {("speaker",): np.where(truth == 0, 50.0, -50.0), (): np.zeros(4000)}
    fitted = HypothesisCalibrator(errors=errors).fit(logs, truth, speakers=np.arange(4000) % 20)
    # least of -log(1 - doubt / 2) - errors / 20 log(doubt): doubt = 2 e / (1 + e) with e = errors / 20
    assert fitted.outlier_probability_ == pytest.approx(2 * errors / (20 + errors), rel=1e-3)
    assert HypothesisCalibrator.from_state(*fitted.get_state()).errors == errors


def test_corpora_weigh_the_same_however_many_trials_they_have() -> None:
    rng = np.random.default_rng(3)
    (small, few), (large, many) = trials(rng, 2000, 4.0), trials(rng, 40_000, 1.0)
    logs = {h: np.concatenate([small[h], large[h]]) for h in small}
    truth = np.concatenate([few, many])
    corpora = np.repeat(["a", "b"], [2000, 40_000])
    speakers = np.arange(42_000) // 20
    pooled = HypothesisCalibrator().fit(logs, truth, speakers=speakers)
    alike = HypothesisCalibrator().fit(logs, truth, speakers=speakers, corpora=corpora)
    assert pooled.weights_["speaker"] > 1.3 * alike.weights_["speaker"]


def test_a_hypothesis_without_trials_is_no_alternative() -> None:
    logs, truth = trials(np.random.default_rng(4), 4000, 2.0)
    some = truth != 1
    there = {h: values[some] for h, values in logs.items()}
    fitted = HypothesisCalibrator().fit(there, truth[some], speakers=np.arange(some.sum()) // 9)
    assert fitted.constants_["speaker"] == 0.0
    assert 0.3 < fitted.weights_["speaker"] < 0.8


def test_wrong_trials_are_refused() -> None:
    logs, truth = trials(np.random.default_rng(5), 50, 1.0)
    with pytest.raises(DataError, match="at least two hypotheses"):
        HypothesisCalibrator().fit(logs, 0 * truth, speakers=truth)
    with pytest.raises(DataError, match="truth must be an integer array"):
        HypothesisCalibrator().fit(logs, truth[:-1], speakers=truth)
    with pytest.raises(DataError, match="share 'phrase' and nothing else"):
        HypothesisCalibrator().fit(
            {BOTH: logs[BOTH], ("speaker",): logs[()]}, truth, speakers=truth
        )


# -- the answer to a trial, whatever else is asked ------------------------------------------


KNOWN = "speaker+phrase|phrase known"


@pytest.fixture(scope="module")
def deployed() -> tuple[Bundle, Place]:
    """A model of domains, deployed on people with two phrases by name, with calibrations of its own for these."""
    plain = domain_bundle()
    own = calibrator(0.5, -0.3)
    calibrations = {**(plain.calibrations or {}), KNOWN: own, "phrase|phrase known": own}
    points = {**(plain.points or {}), KNOWN: [OperatingPoint(3.0, far=0.01)]}
    bundle = Bundle(None, plain.scorer, plain.extractor, calibrations, points)
    place = make_place(21, size=0.2)
    people = np.repeat(np.arange(8), 3)
    X = np.concatenate([place.say(person, person % 3, 3) for person in range(8)])
    return bundle.deployed(bundle.enrol(X, people, {"phrase": people % 3})), place


def mixed_profiles(bundle: Bundle, place: Place) -> Profiles:
    """Of people with known phrases, with one that was enrolled later, with both, and with phrases without a name."""
    rows: list[tuple[int, int, int | None]] = [
        (0, 0, 0),
        (1, 1, 1),
        (2, 4, 4),
        (3, 0, 0),
        (3, 4, 4),
        (4, 2, None),
        (5, 2, 2),
        (6, 1, 1),
        (6, 2, None),
    ]
    X = np.concatenate([place.say(person, phrase, 2) for person, phrase, _ in rows])
    labels = np.array([label for *_, label in rows], dtype=object).repeat(2)
    return bundle.enrol(X, np.repeat([row[0] for row in rows], 2), {"phrase": labels})


def test_a_deployed_answer_is_a_function_of_the_trial(deployed: Any) -> None:
    """One more person with a phrase of their own once changed the answers to all others."""
    bundle, place = deployed
    profiles = mixed_profiles(bundle, place)
    tests = bundle.enrol(np.concatenate([place.say(k % 7, k % 5) for k in range(10)]))
    for question in ({}, {"same": "speaker"}, {"same": "phrase"}, {"given": {"speaker": "same"}}):
        traces = np.linspace(-3.0, 3.0, 10)
        check_trials(bundle, profiles, tests, Question(**question), trials=30)
        check_trials(bundle, profiles, tests, Question(**question, countermeasure=traces))
    answer = bundle.answer(profiles, tests)
    is_known = [True, True, False, False, False, True, True]
    assert (answer.keys == np.where(is_known, KNOWN, "speaker+phrase")[:, None]).all()
    # those who are known are answered as they are without the others
    rows = np.flatnonzero(is_known)
    known = bundle.answer(profiles.take(rows), tests, Question(known=["phrase"]))
    np.testing.assert_allclose(answer.llr[rows], known.llr, atol=1e-9)
    with pytest.raises(LabelError, match="requires trials with a single question"):
        _ = answer.key
    assert bundle.answer(profiles.take(rows), tests).key == KNOWN


def test_labels_of_the_tests_are_those_of_their_trials(deployed: Any) -> None:
    bundle, place = deployed
    profiles = mixed_profiles(bundle, place)
    X = np.concatenate([place.say(k % 7, k % 5) for k in range(10)])
    claimed = [0, 1, 2, 3, 4, None, 7, 0, 1, 2]
    tests = bundle.enrol(X, np.arange(10), {"phrase": np.array(claimed, dtype=object)})
    check_trials(bundle, profiles, tests, trials=30)
    check_trials(bundle, profiles, tests, Question(["speaker", "phrase"]), trials=30)


def test_points_are_those_of_profiles_that_are_known_alike(deployed: Any) -> None:
    bundle, place = deployed
    profiles = mixed_profiles(bundle, place)
    thresholds = [bundle.point(None, profiles.take([i])).threshold for i in range(7)]
    assert thresholds == [3.0, 3.0, 4.6, 4.6, 4.6, 3.0, 3.0]
    assert bundle.informed(None, profiles.take([2, 3])).known is None
    with pytest.raises(ParameterError, match=r"only some of the 7 profiles name"):
        bundle.point(None, profiles)


def test_what_a_bundle_is_not_calibrated_for_with_known_classes_is_answered_without(
    deployed: Any,
) -> None:
    bundle, place = deployed
    some = dict(bundle.calibrations or {})
    del some[KNOWN]
    other = Bundle(None, bundle.scorer, calibrations=some)
    profiles = mixed_profiles(bundle, place)
    assert bundle.informed().known == ("phrase",)
    assert other.informed().known is None
    assert other.answer(profiles, place.say(0, 0)).key == "speaker+phrase"
    assert Bundle(None, bundle.scorer).informed(None, profiles.take([0])).known == ("phrase",)


def test_values_that_are_not_those_of_the_trials_are_refused(bundle: Bundle, data: Any) -> None:
    X = data[0]
    answer = bundle.answer(X[:3], X[5:12], Question(countermeasure=np.zeros(7)))
    with pytest.raises(
        DataError, match=r"countermeasure must have one value per trial, .* got shape \(7,\)"
    ):
        replace(answer, countermeasure=np.zeros(7))
    with pytest.raises(DataError, match="keys must have one value per trial"):
        replace(answer, keys=np.array(["speaker"]))
    with pytest.raises(DataError, match=r"near_matches\.llr must have one value per trial"):
        replace(answer, near_matches=NearMatches("phrase", answer.llr, np.zeros(3), answer.llr))
    with pytest.raises(DataError, match="expects 2 number"):
        answer.take(1)
    with pytest.raises(DataError, match="one number per test"):
        bundle.answer(X[:3], X[5:12], Question(countermeasure=np.zeros(3)), [[0, 0]])


def test_a_countermeasure_goes_with_its_test_into_a_list(bundle: Bundle, data: Any) -> None:
    """Posteriors of a list once had the countermeasure of the test in the trial's place."""
    X = data[0]
    question = Question(countermeasure=[8.0, -8.0])
    whole = bundle.answer(X[:1], X[5:7], question)
    listed = bundle.answer(X[:1], X[5:7], question, pairs=[[0, 1], [0, 0], [0, 1]])
    np.testing.assert_allclose(
        listed.posteriors()["spoof",], whole.posteriors()["spoof",][0, [1, 0, 1]]
    )
    assert listed.take(0).question.countermeasure == -8.0
    assert [decide(listed.take(k)).reason == "suspected_replay" for k in range(3)] == [
        decide(whole.take(0, j)).reason == "suspected_replay" for j in (1, 0, 1)
    ]
