"""Points in time, other words and nearly the right ones: against loops, and against a mixture of densities."""

import warnings
from dataclasses import asdict
from functools import partial

import numpy as np
import pytest
from answer_checks import check_trials

from mvplda import Bundle
from mvplda.calibration.hypotheses import NEAR_MATCH_EVIDENCE, HypothesisCalibrator
from mvplda.exceptions import DataError, NumericalError, ParameterError
from mvplda.io.onnx import write_onnx
from mvplda.scoring.question import NearMatches, Question, with_near_matches
from mvplda.training import train
from mvplda.training.held_out import OUTLIER_PRIOR, HeldOutModels, _fold_model
from mvplda.voice.domain.estimator import (
    RECORDINGS,
    TEST_SECONDS,
    DomainPLDA,
)
from mvplda.voice.phrases import MAX_PHRASE_LLR, NEAR_MATCH_PRIOR, ONE_WORD_S, WINDOW, PhraseMatcher

POINTS, WIDTH = 7, 3
MATCHER = PhraseMatcher("phrase", POINTS, whole=(-1.0, -2.0), part=(-2.0, 0.5, -1.5, -0.7, -1.2))
BLOCKS = {"voice": (5, "speaker"), "words": (4, "phrase"), "row": (POINTS * WIDTH + 1, "phrase")}


@pytest.fixture
def rng():
    return np.random.default_rng(5)


def recordings(rng, n, seconds=2.0):
    """(n, D) vectors of voice, words and points, and their labels."""
    speaker = np.arange(n) % 4
    phrase = np.arange(n) // 4 % 3
    people = rng.normal(size=(4, 5))[speaker]
    words = rng.normal(size=(3, 4))[phrase]
    rows = rng.normal(size=(3, POINTS * WIDTH))[phrase]
    parts = [people, words, rows]
    parts = [part + 0.3 * rng.normal(size=part.shape) for part in parts]
    row = np.hstack(
        [unit(parts[2].reshape(n, POINTS, WIDTH)).reshape(n, -1), np.full((n, 1), 1.0) * seconds]
    )
    # of any length, as blocks of extractors are
    X = np.hstack([*parts[:2], row * rng.uniform(0.1, 3.0, (n, 1))])
    return X, {"speaker": speaker.astype(str), "phrase": phrase.astype(str)}


def model(rng):
    X, labels = recordings(rng, 48)
    return DomainPLDA(BLOCKS, points={"row": asdict(MATCHER)}).fit(X, labels)


def distances_by_loops(one, other, seconds, other_seconds):
    """The same as `PhraseMatcher.distances` of one pair, point by point."""
    places = []
    for place in range(POINTS):
        forth = min(1 - one[place] @ point for point in other)
        back = min(1 - other[place] @ point for point in one)
        places.append((forth + back) / 2)
    windows = [np.mean(places[k : k + WINDOW]) for k in range(POINTS - WINDOW + 1)]
    aligned = np.mean([1 - a @ b for a, b in zip(one, other, strict=True)])
    longer, shorter = max(seconds, other_seconds), min(seconds, other_seconds)
    return np.mean(places), np.quantile(places, 0.25), max(windows), aligned, longer / shorter


def unit(points):
    return points / np.linalg.norm(points, axis=-1, keepdims=True)


def test_distances_are_those_of_loops(rng):
    one = unit(rng.normal(size=(20, POINTS, WIDTH)))
    other = unit(rng.normal(size=(20, POINTS, WIDTH)))
    seconds = rng.uniform(0.5, 3.0, (2, 20))
    expected = [distances_by_loops(*pair) for pair in zip(one, other, *seconds, strict=True)]
    np.testing.assert_allclose(MATCHER.distances(one, other, *seconds), expected, rtol=1e-10)


def test_a_file_without_durations_compares_points_only(rng):
    scorer = model(rng)
    X, labels = recordings(rng, 24)
    profiles, tests = scorer.enrol(X[:12], labels["speaker"][:12]), scorer.enrol(X[12:])
    scorer.points["row"]["part"] = MATCHER.part[:3]
    short = scorer.near_matches(profiles, tests, None, ("phrase",))
    scorer.points["row"]["part"] = (*MATCHER.part[:3], 0.0, 0.0)
    padded = scorer.near_matches(profiles, tests, None, ("phrase",))
    np.testing.assert_allclose(short.llr, padded.llr)


def test_another_duration_is_evidence_of_a_near_match(rng):
    scorer = model(rng)
    X, labels = recordings(rng, 24)
    profiles = scorer.enrol(X[:12], labels["speaker"][:12])
    llrs = []
    for scale in (1.0, 1.5, 0.5):
        tests = X[12:].copy()
        tests[:, -1] *= scale
        near_matches = scorer.near_matches(profiles, scorer.enrol(tests), None, ("phrase",))
        llrs.append(near_matches.llr)
    np.testing.assert_allclose(llrs[1], llrs[0] - 1.2 * np.log(1.5))
    np.testing.assert_allclose(llrs[2], llrs[0] - 1.2 * np.log(2.0))


def test_a_replaced_part_is_far_where_the_rest_is_near(rng):
    one = unit(rng.normal(size=(1, POINTS, 40)))
    replaced = one.copy()
    replaced[0, :WINDOW] = unit(rng.normal(size=(WINDOW, 40)))
    _, best, worst, *_ = MATCHER.distances(one, replaced, np.ones(1), np.ones(1))[0]
    assert worst > 10 * best


def test_a_class_with_more_domains_does_not_weigh_more(rng):
    same, near, other = (
        np.exp(rng.normal(centre, 1.0, size=(200, 5))) for centre in (-2.0, -1.5, -1.0)
    )
    fitted = MATCHER.fit([same], [near], [other])
    doubled = MATCHER.fit([same, same], [near], [other])
    assert doubled.whole == pytest.approx(fitted.whole, rel=1e-3)
    assert doubled.part == pytest.approx(fitted.part, rel=1e-3)


def test_near_of_lists_and_matrices_and_sums(rng):
    scorer = model(rng)
    X, labels = recordings(rng, 24, seconds=1.0)
    profiles = scorer.enrol(X[:12], labels["speaker"][:12], {"phrase": labels["phrase"][:12]})
    tests = scorer.enrol(X[12:])
    every = scorer.near_matches(profiles, tests, None, ("speaker", "phrase"))
    assert every.llr.shape == (4, 12)
    pairs = np.array([[3, 0], [0, 7], [2, 11]])
    some = scorer.near_matches(profiles, tests, pairs, ("phrase",))
    np.testing.assert_allclose(some.llr, every.llr[pairs[:, 0], pairs[:, 1]])
    # by hand: the best of the profile's phrases
    points = unit(X[:, 9:-1].reshape(24, POINTS, WIDTH))
    for profile, test in pairs:
        own = labels["speaker"][:12] == profiles.ids[profile]
        parts, wholes = [], []
        for phrase in np.unique(labels["phrase"][:12][own]):
            takes = points[:12][own & (labels["phrase"][:12] == phrase)]
            mean, *distances = distances_by_loops(
                unit(takes.sum(axis=0)), points[12 + test], 1.0, 1.0
            )
            parts.append(MATCHER.part[0] + np.log(distances) @ MATCHER.part[1:])
            wholes.append(-1.0 - 2.0 * np.log(mean))
        assert every.llr[profile, test] == pytest.approx(max(parts))
        high = 1 / (np.exp(-max(wholes)) + np.exp(-MAX_PHRASE_LLR))
        assert every.same[profile, test] == pytest.approx(np.log(high + np.exp(-MAX_PHRASE_LLR)))
    np.testing.assert_array_equal(some.same, every.same[pairs[:, 0], pairs[:, 1]])
    # half way between one word and a phrase
    np.testing.assert_allclose(every.prior, NEAR_MATCH_PRIOR * (1.0 - ONE_WORD_S) / 0.4)
    near_matches = scorer.deployed(profiles).near_matches(profiles, tests, None, ("phrase",))
    np.testing.assert_array_equal(near_matches.llr, every.llr)
    assert scorer.near_matches(profiles, tests, None, ("speaker",)) is None


@pytest.mark.parametrize(
    ("seconds", "prior"), [(0.5, 0.0), (0.8, 0.0), (1.0, 0.15), (1.2, 0.3), (2.0, 0.3)]
)
def test_the_prior_of_near_matches_is_that_of_the_mathematics(rng, seconds, prior):
    """0.3 in recordings of 1.2 s and more, 0 up to 0.8 s (docs/math.md, section 9.12)."""
    scorer = model(rng)
    X, labels = recordings(rng, 24, seconds=seconds)
    profiles = scorer.enrol(X[:12], labels["speaker"][:12])
    near_matches = scorer.near_matches(profiles, scorer.enrol(X[12:]), None, ("phrase",))
    np.testing.assert_allclose(near_matches.prior, prior, atol=1e-9)


def test_sessions_do_not_change_what_parts_tell(rng):
    scorer = model(rng)
    X, labels = recordings(rng, 24)
    phrase = {"phrase": labels["phrase"][:12]}
    tests = scorer.enrol(X[12:])
    plain = scorer.near_matches(
        scorer.enrol(X[:12], labels["speaker"][:12], phrase), tests, None, ("phrase",)
    )
    apart = {**phrase, "recording": np.arange(12).astype(str)}
    profiles = scorer.enrol(X[:12], labels["speaker"][:12], apart)
    assert len(profiles.owner) == 12
    near_matches = scorer.near_matches(profiles, tests, None, ("phrase",))
    np.testing.assert_allclose(near_matches.llr, plain.llr)
    np.testing.assert_allclose(near_matches.same, plain.same)


def test_a_calibration_of_numbers_that_are_none_is_refused(rng):
    logs = {("speaker",): rng.normal(size=40), (): np.zeros(40)}
    logs["speaker",][3] = np.nan
    with pytest.raises(NumericalError, match="NaN or infinite"):
        HypothesisCalibrator().fit(logs, np.arange(40) % 2, speakers=np.arange(40))


def test_a_claimed_phrase_is_compared_with_its_own(rng):
    scorer = model(rng)
    X, labels = recordings(rng, 24)
    names = labels["phrase"]
    profiles = scorer.enrol(X[:12], labels["speaker"][:12], {"phrase": names[:12]})
    single = scorer.enrol(
        X[:12], np.char.add(labels["speaker"][:12], names[:12]), {"phrase": names[:12]}
    )
    tests = scorer.enrol(X[12:], labels={"phrase": names[12:]})
    claimed = scorer.near_matches(profiles, tests, None, ("phrase",)).llr
    alone = scorer.near_matches(single, scorer.enrol(X[12:]), None, ("phrase",)).llr
    for k, who in enumerate(profiles.ids):
        for t in range(12):
            place = list(single.ids).index(who + names[12 + t])
            assert claimed[k, t] == pytest.approx(alone[place, t])


def test_the_mixture_is_that_of_densities(rng):
    every = [("speaker", "phrase"), ("speaker",), ("phrase",), ()]
    logs = {h: rng.normal(size=6) for h in every}
    near_matches = NearMatches("phrase", rng.uniform(0, 0.5, 6), *rng.normal(size=(2, 6)))
    mixed = with_near_matches(logs, near_matches)
    for h, same in ((("speaker",), ("speaker", "phrase")), ((), ("phrase",))):
        density = (1 - near_matches.prior) * np.exp(logs[h]) + near_matches.prior * np.exp(
            logs[same] - near_matches.llr
        )
        np.testing.assert_allclose(mixed[h], np.log(density))
    for h in (("speaker", "phrase"), ("phrase",)):
        np.testing.assert_array_equal(mixed[h], logs[h])
    assert with_near_matches(logs, None) == logs


def test_an_answer_has_the_mixture_and_a_question_about_the_voice_has_not(rng):
    scorer = model(rng)
    bundle = Bundle(None, scorer)
    X, labels = recordings(rng, 24)
    profiles = bundle.enrol(X[:12], labels["speaker"][:12])
    tests = bundle.enrol(X[12:])
    answer = bundle.answer(profiles, tests)
    logs = scorer.log_likelihoods(profiles, tests)
    mixed = with_near_matches(logs, scorer.near_matches(profiles, tests, None, ("phrase",)))
    expected = Question().ratio(("speaker", "phrase")).of(mixed)
    np.testing.assert_allclose(answer.llr, expected)
    assert (np.abs(expected - Question().ratio(("speaker", "phrase")).of(logs)) > 1e-6).any()
    voice = bundle.answer(profiles, tests, {"same": "speaker"})
    np.testing.assert_allclose(voice.llr, scorer.llr(profiles, tests, same="speaker"), atol=1e-4)
    assert voice.near_matches is None
    assert check_trials(bundle, profiles, tests).near_matches is not None
    said = np.where(np.arange(12) % 3, labels["phrase"][:12], "another")
    named = bundle.enrol(X[:12], labels["speaker"][:12], {"phrase": said})
    claims = bundle.enrol(X[12:], np.arange(12), {"phrase": labels["phrase"][12:]})
    check_trials(bundle, named, tests)
    check_trials(bundle, named, claims, Question(["speaker", "phrase"]))


def test_fitting_tells_same_from_nearly(rng):
    same = np.exp(rng.normal([-4.0, -3.5, -3.0, -3.0, 0.3], 0.3, (200, 5)))
    near_matches = np.exp(rng.normal([-3.8, -3.2, -2.0, -2.5, 0.6], 0.3, (300, 5)))
    other = np.exp(rng.normal([-2.0, -3.2, -2.0, -2.0, 0.6], 0.3, (100, 5)))
    fitted = MATCHER.fit([same], [near_matches], [other])
    for kind, columns, line in (
        (near_matches, slice(1, 5), fitted.part),
        (other, slice(0, 1), fitted.whole),
    ):
        scores = [line[0] + np.log(part[:, columns]) @ line[1:] for part in (same, kind)]
        assert (scores[0] > 0).mean() > 0.9
        assert (scores[1] < 0).mean() > 0.9


def test_points_of_zeros_and_settings_that_do_not_fit_are_refused(rng):
    scorer = model(rng)
    X, labels = recordings(rng, 12)
    X[3, 9:] = 0.0
    with pytest.raises(DataError, match="points of zeros"):
        scorer.enrol(X)
    for wrong in ({"points": 5}, {"points": 2}, {"view": "device"}):
        points = {"row": {**asdict(MATCHER), **wrong}}
        with pytest.raises(ParameterError, match="block 'row'"):
            DomainPLDA(BLOCKS, points=points).fit(*recordings(rng, 12))
    with pytest.raises(ParameterError, match="block 'other'"):
        DomainPLDA(BLOCKS, points={"other": asdict(MATCHER)}).fit(X, labels)


def test_the_scale_of_a_vector_does_not_matter(rng):
    scorer = model(rng)
    X, _ = recordings(rng, 8)
    plain = scorer.near_matches(scorer.enrol(X), scorer.enrol(X), None, ("phrase",))
    small = scorer.enrol(1e-6 * X)
    tiny = scorer.near_matches(small, small, None, ("phrase",))
    np.testing.assert_allclose(tiny.prior, plain.prior)
    np.testing.assert_allclose(tiny.llr, plain.llr, atol=1e-6)
    np.testing.assert_allclose(tiny.same, plain.same, atol=1e-6)


def test_calibration_of_held_out_people_is_that_of_the_answers(rng):
    """What is fitted to is what is put in: nearly the same words come after the calibration, once."""
    n = 96
    speaker, phrase = np.arange(n) % 8, np.arange(n) // 8 % 3
    X = np.hstack([rng.normal(size=(8, 5))[speaker], rng.normal(size=(3, 4))[phrase]])
    rows = unit(
        rng.normal(size=(3, POINTS, WIDTH))[phrase] + 0.2 * rng.normal(size=(n, POINTS, WIDTH))
    )
    X = np.hstack([X + 0.3 * rng.normal(size=X.shape), rows.reshape(n, -1), np.full((n, 1), 2.0)])
    labels = {"speaker": speaker.astype(str), "phrase": phrase.astype(str)}
    default = DomainPLDA(BLOCKS, points={"row": asdict(MATCHER)}).fit(X, labels)
    blocks = {"voice": 5, "words": 4, "sounds": POINTS * WIDTH + 1}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        bundle = train(X, labels, blocks=blocks, point_blocks=["sounds"], default=default, folds=2)
        held = HeldOutModels(partial(_fold_model, bundle), X, labels, 1, 2)
        logs, near_matches, _ = held.evidence()
    assert near_matches is not None
    calibrator = bundle.calibrations["speaker+phrase"]
    again = HypothesisCalibrator(errors=OUTLIER_PRIOR)
    again.fit(logs, held.truth, speakers=held.people[0], near_matches=near_matches)
    assert NEAR_MATCH_EVIDENCE in again.weights_
    assert again.weights_ == pytest.approx(calibrator.weights_, rel=1e-3)


def test_it_is_kept_in_files_and_not_written_as_a_graph(rng, tmp_path):
    bundle = Bundle(None, model(rng))
    bundle.save(tmp_path / "model.safetensors")
    again = Bundle.load(tmp_path / "model.safetensors")
    X, _ = recordings(rng, 6)
    np.testing.assert_array_equal(again.answer(X, X).llr, bundle.answer(X, X).llr)
    pytest.importorskip("onnx")
    with pytest.raises(ParameterError, match="ONNX graph cannot do"):
        write_onnx(tmp_path / "model.onnx", bundle)


def test_a_calibration_is_in_the_graph(rng, tmp_path):
    pytest.importorskip("onnx")
    onnxruntime = pytest.importorskip("onnxruntime")
    X, labels = recordings(rng, 48)
    X = X[:, :9]
    scorer = DomainPLDA({name: BLOCKS[name] for name in ("voice", "words")}).fit(X, labels)
    logs = {h: np.ravel(values) for h, values in scorer.log_likelihoods(X, X).items()}
    other = [np.not_equal.outer(labels[view], labels[view]).ravel() for view in scorer.views_]
    truth = 2 * other[0] + other[1]
    calibrator = HypothesisCalibrator()
    calibrator.fit(logs, truth, speakers=np.repeat(labels["speaker"], 48))
    bundle = Bundle(None, scorer, calibrations={"speaker+phrase": calibrator})
    write_onnx(tmp_path / "model.onnx", bundle)
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    vectors = X.astype(np.float32)
    (llr,) = session.run(None, {"enrol": vectors[:, None], "test": vectors})
    np.testing.assert_allclose(llr, bundle.answer(vectors, vectors).llr, atol=1e-4)


def test_a_calibration_weighs_parts_before_its_doubt(rng):
    every = [("speaker", "phrase"), ("speaker",), ("phrase",), ()]
    voice, words = rng.normal(0, 4, (2, 200))
    logs = dict(zip(every, (voice + words, voice, words, 0 * voice), strict=True))
    calibrator = HypothesisCalibrator()
    calibrator.weights_ = {"speaker": 0.5, "phrase": 0.7, "together": 1.0, NEAR_MATCH_EVIDENCE: 0.4}
    calibrator.constants_ = {}
    calibrator.outlier_probability_ = 0.02
    near_matches = NearMatches("phrase", np.full(200, 0.3), *rng.normal(0, 4, (2, 200)))
    said = 0.7 * words + 0.4 * near_matches.same
    told = {h: 0.5 * voice * ("speaker" in h) + said * ("phrase" in h) for h in every}
    mixed = with_near_matches(told, near_matches)
    total = np.logaddexp.reduce(list(mixed.values()), axis=0)
    for h, values in calibrator.transform(logs, near_matches).items():
        np.testing.assert_allclose(values, np.log(0.98 * np.exp(mixed[h] - total) + 0.005))


def test_a_calibration_learns_what_parts_are_worth(rng):
    every = [("speaker", "phrase"), ("speaker",), ("phrase",), ()]
    truth = np.arange(4000) % 4
    has_phrase = truth % 2 == 0
    # what parts say is an LLR, the vectors of words say nothing
    same = rng.normal(np.where(has_phrase, 2.0, -2.0), 2.0)
    voice = rng.normal(np.where(truth < 2, 2.0, -2.0), 2.0)
    silent = np.zeros(4000)
    logs = dict(zip(every, (voice, voice, silent, silent), strict=True))
    near_matches = NearMatches("phrase", silent, silent, same)
    fitted = HypothesisCalibrator().fit(
        logs, truth, speakers=np.arange(4000), near_matches=near_matches
    )
    assert fitted.weights_[NEAR_MATCH_EVIDENCE] == pytest.approx(1.0, abs=0.1)
    assert fitted.weights_["speaker"] == pytest.approx(1.0, abs=0.1)


def test_an_answer_that_is_calibrated_has_what_parts_tell(rng):
    scorer = model(rng)
    X, labels = recordings(rng, 24)
    profiles = scorer.enrol(X[:12], labels["speaker"][:12])
    tests = scorer.enrol(X[12:])
    calibrator = HypothesisCalibrator()
    calibrator.weights_ = {"speaker": 0.5, "phrase": 0.7, "together": 1.0, NEAR_MATCH_EVIDENCE: 0.4}
    calibrator.constants_ = {}
    calibrator.outlier_probability_ = 0.02
    calibrator.n_speakers_ = 4
    bundle = Bundle(None, scorer, calibrations={"speaker+phrase": calibrator})
    near_matches = scorer.near_matches(profiles, tests, None, ("phrase",))
    logs = calibrator.transform(scorer.log_likelihoods(profiles, tests), near_matches)
    expected = Question().ratio(("speaker", "phrase")).of(logs)
    np.testing.assert_allclose(bundle.answer(profiles, tests).llr, expected)


def test_amounts_of_evidence_are_seconds_of_the_test_and_recordings(rng):
    scorer = model(rng)
    X, _ = recordings(rng, 4, np.array([[0.5], [1.0], [2.0], [4.0]]))
    profiles = scorer.enrol(X, ["ann", "ann", "ann", "bob"])
    tests = scorer.enrol(X, ["one", "two", "two", "two"])
    measures = scorer.evidence_measures(profiles, tests, None)
    np.testing.assert_allclose(np.exp(measures[TEST_SECONDS]), [[0.5, 7.0], [0.5, 7.0]])
    np.testing.assert_allclose(np.exp(measures[RECORDINGS]), [[3, 3], [1, 1]])
    listed = scorer.evidence_measures(profiles, tests, np.array([[1, 0], [0, 1]]))
    for name, values in measures.items():
        np.testing.assert_allclose(listed[name], [values[1, 0], values[0, 1]])


def test_a_model_without_points_measures_no_seconds(rng):
    X, labels = recordings(rng, 48)
    plain = DomainPLDA({"voice": (5, "speaker")}).fit(X[:, :5], labels)
    profiles = plain.enrol(X[:, :5])
    assert plain.evidence_measures(profiles, profiles, None) is None
