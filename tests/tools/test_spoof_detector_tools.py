"""The tools of the detector: channels and attacks, folds, calibration and error rates, on a miniature."""

from __future__ import annotations

import numpy as np
import pytest
from spoken import say

pytest.importorskip("torch")
pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("soundfile")
from mvplda.voice.spoof_detector import SpoofCalibration, SpoofDetector, spoof_statistics
from tools.spoof_detector import experiment, material, network, trials
from tools.spoof_detector.material import GROUPS, PERSON, RECORDINGS, TEST_ONLY
from tools.spoof_detector.trials import ATTACK_GROUPS, FOLDS, TRAINING_CORPORA

SPEAKERS, SOURCES = 12, 5


def columns() -> trials.Columns:
    """Return people and attacks of all corpora."""
    rows = []
    for corpus in RECORDINGS:
        for speaker in range(SPEAKERS):
            for source in range(SOURCES):
                owner = (corpus, f"{corpus}/{speaker}", source)
                rows += [(*owner, PERSON, True), (*owner, PERSON, False)]
                rows += [(*owner, group, False) for group in ATTACK_GROUPS]
    corpus, speaker, source, group, same = map(np.array, zip(*rows, strict=True))
    return trials.Columns(corpus, speaker, source, group, same)


def drawn_scores(table: trials.Columns, seed: int = 0) -> np.ndarray:
    """Return scores that separate people from attacks, shifted by the corpus."""
    rng = np.random.default_rng(seed)
    shift = np.array([list(RECORDINGS).index(name) for name in table.corpus])
    return 3.0 * table.is_person + 2.0 * shift + rng.standard_normal(len(shift))


def test_nobody_who_is_tested_is_trained_on():
    table = columns()
    left_out = set()
    for fold in FOLDS:
        training = fold.training(table)
        tested = np.flatnonzero(fold.is_left_out(table))
        assert not {*table.speaker[training]} & {*table.speaker[tested]}
        assert not {*table.corpus[training]} & {fold.corpus, *TEST_ONLY}
        assert not {*table.group[training]} & {*fold.groups}
        left_out |= {fold.corpus, *fold.groups}
    assert left_out == {*TRAINING_CORPORA, *GROUPS.values()}


def test_enrolments_are_other_recordings_of_the_person_on_the_same_device():
    table = columns()
    scores = np.where(table.is_person & table.is_same_device, table.source, np.nan)
    fold = FOLDS[0]
    found = trials.fold_trials(fold, table, np.asarray(scores, np.float64))
    # sources 0 to 4, and the test's own source is never among its enrolments
    for test, enrolment in zip(found.test, found.enrolment, strict=True):
        others = [source for source in range(SOURCES) if source != test]
        assert np.mean(sorted(others)[:3]) <= enrolment <= np.mean(sorted(others)[-3:])


def test_centring_removes_the_shift_of_a_corpus():
    table = columns()
    found = trials.join([trials.fold_trials(fold, table, drawn_scores(table)) for fold in FOLDS])
    calibration = trials.calibrate(found)
    assert calibration.test > 0 > calibration.enrolment
    assert calibration.test == pytest.approx(-calibration.enrolment, rel=0.3)
    llrs = found.shifted(tuple(RECORDINGS), trials.calibrate)
    plain = found.shifted(tuple(RECORDINGS), lambda part: trials.calibrate(part, False))
    person, attack = found.group == PERSON, found.group != PERSON
    rates = [trials.error_rates(scores, found, person, attack) for scores in (llrs, plain)]
    assert rates[0] is not None
    assert rates[1] is not None
    assert rates[0]["eer"]["estimate"] < 0.2 < rates[1]["eer"]["estimate"]
    for key in ("eer", "apcer at bpcer 5 %"):
        row = rates[0][key]
        assert row["low"] <= row["estimate"] <= row["high"]


def test_few_attacks_have_no_rates():
    table = columns()
    found = trials.fold_trials(FOLDS[0], table, drawn_scores(table))
    none = np.zeros(len(found.test), bool)
    assert trials.error_rates(found.test, found, found.group == PERSON, none) is None


def test_people_and_attacks_weigh_the_same():
    table = columns()
    rows = FOLDS[0].training(table)
    weights = trials.item_weights(table, rows)
    person = table.is_person[rows]
    assert weights[person].sum() == pytest.approx(weights[~person].sum())
    assert weights.sum() == pytest.approx(len(rows))


def test_a_trained_network_is_exported_with_its_calibration(tmp_path):
    rng = np.random.default_rng(0)
    people = np.stack([spoof_statistics(say(seed)) for seed in range(3)])
    vectors = np.repeat(people, 40, axis=0)
    is_person = np.arange(len(vectors)) % 2 == 0
    vectors = vectors + np.where(is_person, 0.5, -0.5)[:, None].astype(np.float32)
    vectors += 0.2 * rng.standard_normal(vectors.shape).astype(np.float32)
    trained = network.train_network(vectors, is_person, np.ones(len(vectors)), members=2)
    scores = network.raw_scores(trained, vectors)
    assert scores[is_person].min() > scores[~is_person].max()
    calibration = SpoofCalibration(1.0, -1.0, 0.5)
    network.export(trained, calibration, tmp_path / "detector.onnx")
    detector = SpoofDetector(tmp_path / "detector.onnx")
    assert detector.calibration == calibration
    raw = network.raw_scores(trained, people[:1])[0]
    assert detector.raw_score(say(0)) == pytest.approx(raw, abs=1e-4)


@pytest.mark.parametrize("name", ["unchanged", "telephone", "band-pass", "noise"])
def test_channels_return_speech_within_full_scale(name):
    pytest.importorskip("soxr")
    sound = say(5).astype(np.float64)
    heard = material.over_channel(sound, name, np.random.default_rng(0))
    assert heard.dtype == np.int16
    assert abs(len(heard) - len(sound)) <= material.RATE // 5
    assert 3000 < np.abs(heard).max() <= 32767


def test_figures_have_rows_for_all_conditions():
    table = columns()
    found = trials.join([trials.fold_trials(fold, table, drawn_scores(table)) for fold in FOLDS])
    llrs = found.shifted(tuple(RECORDINGS), trials.calibrate)
    for flags in experiment.CONDITIONS.values():
        rows = experiment.condition_rows(llrs, found, *flags)
        assert {"all", "WORLD"} <= set(rows)
    use = experiment.use_rows(llrs, found, "wuw", 2.0)
    shares = [row["people, same device"] for row in use.values()]
    # the smaller the share of spoofs, the fewer people are rejected
    assert shares == sorted(shares, reverse=True)
