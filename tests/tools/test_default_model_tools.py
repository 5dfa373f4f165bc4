"""The tools that rebuild the default model: recording conditions, thresholds, and a model of small vectors."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from mvplda import load
from mvplda.exceptions import DataError
from mvplda.paper.corpora.folder import Listing
from mvplda.voice.audio.decode import golden_signal
from mvplda.voice.audio.speech_detection import SoundSegment, bandwidth_hz
from mvplda.voice.default_model import DEFAULT_MODEL
from mvplda.voice.domain.bandwidth import DIFFERENT_BANDS
from mvplda.voice.extractors.recipe import default_recipes
from tools.default_model import build, recordings, trials
from tools.default_model.__main__ import main
from tools.default_model.comparison import TOLERANCE, differences, drawn_vectors
from tools.default_model.trials import DeploymentTrials


def noise(seconds: float = 1.0) -> np.ndarray:
    return np.random.default_rng(0).normal(size=int(seconds * recordings.RATE)).astype(np.float32)


def test_a_telephone_has_a_narrow_band_and_keeps_the_length() -> None:
    heard = recordings.simulate_condition(noise(), "telephone", np.random.default_rng(0))
    assert heard.shape == noise().shape
    assert bandwidth_hz(SoundSegment(heard, recordings.RATE).spectrum, recordings.RATE) < 4100
    assert bandwidth_hz(SoundSegment(noise(), recordings.RATE).spectrum, recordings.RATE) > 7000


def test_a_call_is_narrow_and_joined_calls_stay_narrow() -> None:
    heard = recordings.simulate_condition(noise(), recordings.CALL, np.random.default_rng(0))
    joined = recordings.join_recordings([heard, heard], np.random.default_rng(0), 2)
    wide = recordings.join_recordings([heard, heard], np.random.default_rng(0))
    for samples, is_narrow in ((heard, True), (joined, True), (wide, False)):
        spectrum = SoundSegment(samples, recordings.RATE).spectrum
        assert (bandwidth_hz(spectrum, recordings.RATE) < 4100) == is_narrow


@pytest.mark.parametrize("name", ["noise", "room", "mixed"])
def test_conditions_change_a_recording_and_its_length_not(name: str) -> None:
    clean = recordings.simulate_condition(noise(), "clean", np.random.default_rng(0))
    heard = recordings.simulate_condition(noise(), name, np.random.default_rng(0))
    assert heard.shape == clean.shape
    assert not np.allclose(heard, clean)


def drawn_trials(corpus: str, domain: str, seed: int, per_kind: int = 500) -> DeploymentTrials:
    """Draw trials of each kind; the later the seed, the harder they are."""
    rng = np.random.default_rng(seed)
    truth = np.repeat([0, 1, 2, 3], per_kind)
    noise_scale = 1.0 + seed
    voice = np.where(truth < 2, 3.0, -3.0) + noise_scale * rng.normal(size=len(truth))
    phrase = np.where(truth % 2 == 0, 2.0, -2.0) + noise_scale * rng.normal(size=len(truth))
    logs = {
        ("speaker", "phrase"): voice + phrase,
        ("speaker",): voice,
        ("phrase",): phrase,
        (): np.zeros(len(truth)),
    }
    size = len(truth)
    owners, testers = rng.integers(0, 25, (2, size)).astype(str)
    measures = {"log recordings": rng.integers(0, 3, size) * 0.5}
    return DeploymentTrials(
        corpus,
        domain,
        "clean",
        trials.Deployment(20, None),
        logs,
        truth,
        owners,
        testers,
        rng.random(size) < 0.5,
        measures,
        {},
    )


DRAWN = (("cvau", "pass-phrases"), ("arabic", "Arabic joined"), ("wuw", "calls"))


@pytest.fixture(scope="module")
def calibrated() -> trials.CalibratedTrials:
    """Trials of two domains of phrases and of a harder one of single words."""
    return trials.CalibratedTrials([drawn_trials(*names, seed) for seed, names in enumerate(DRAWN)])


@pytest.mark.parametrize("far", build.FARS)
def test_no_impostors_pass_the_voice_more_often_than_promised(
    calibrated: trials.CalibratedTrials, far: float
) -> None:
    threshold = calibrated.threshold("speaker", far)
    gaps = []
    for kind, is_impostor in calibrated.impostors("speaker").items():
        allowed = 2.0 * far if kind == trials.SAME_SEX else far
        for _, name in DRAWN:
            llrs = calibrated.halves["speaker"][is_impostor & (calibrated.domain == name)]
            gaps.append((allowed - np.mean(llrs >= threshold)) * len(llrs))
    # the nearest limit is met exactly: one more impostor would exceed it
    assert 0.0 <= min(gaps) + 1e-9 < 1.0 + 2e-9


def test_a_telephone_on_one_side_shifts_the_voice_to_the_threshold_of_others() -> None:
    drawn = [drawn_trials(*names, seed) for seed, names in enumerate(DRAWN)]
    telephone = []
    for plain in drawn:
        # a narrow band lowers the LLRs of all
        logs = {h: values - 2.0 * ("speaker" in h) for h, values in plain.logs.items()}
        bands = {DIFFERENT_BANDS: np.ones(len(plain.truth))}
        other = replace(plain, condition="telephone", logs=logs, measures=plain.measures | bands)
        telephone.append(other)
        plain.measures[DIFFERENT_BANDS] = np.zeros(len(plain.truth))
    made = trials.CalibratedTrials([*drawn, *telephone])
    shift = made.calibrator.constants_["speaker"][DIFFERENT_BANDS]
    assert 1.0 < shift < 4.0
    threshold = made.threshold("speaker", trials.BAND_FAR)
    is_impostor = made.impostors("speaker")["IC"]
    for bands in (trials.SAME_BAND, trials.DIFFERENT):
        shares = [
            np.mean(made.halves["speaker"][is_impostor & (made.bands == bands) & here] >= threshold)
            for here in (made.domain == name for _, name in DRAWN)
        ]
        assert 0.005 < max(shares) <= trials.BAND_FAR + 1e-9
    # words do not depend on the bands
    assert made.calibrator.constants_["phrase"][DIFFERENT_BANDS] == 0.0


def test_no_threshold_is_chosen_on_simulated_calls_on_both_sides() -> None:
    plain = drawn_trials("cvau", "pass-phrases", 0)
    logs = {h: values + 5.0 * ("speaker" in h) for h, values in plain.logs.items()}
    deployment = trials.Deployment(20, None, 1, recordings.CALL)
    calls = replace(plain, condition=recordings.CALL, deployment=deployment, logs=logs)
    assert calls.bands == trials.SIMULATED_CALLS
    alone, beside = trials.CalibratedTrials([plain]), trials.CalibratedTrials([plain, calls])
    assert beside.threshold("speaker", 0.01) == alone.threshold("speaker", 0.01)
    assert beside.point(0.01).measured == alone.point(0.01).measured


def test_a_voice_that_decides_alone_keeps_the_rate_on_average() -> None:
    drawn = [drawn_trials(*names, seed) for seed, names in enumerate(DRAWN)]
    alone = trials.CalibratedTrials(drawn, ("speaker",))
    threshold = alone.threshold("speaker", 0.02)
    rates = [
        np.mean(
            alone.halves["speaker"][(alone.trials.truth == 2) & (alone.domain == name)] >= threshold
        )
        for _, name in DRAWN
    ]
    assert np.mean(rates) == pytest.approx(0.02, abs=0.001)
    assert max(rates) > 0.03


def test_the_half_of_words_allows_more_to_single_words(
    calibrated: trials.CalibratedTrials,
) -> None:
    threshold = calibrated.threshold("phrase", 0.01)
    shares = {
        kind: max(
            np.mean(calibrated.halves["phrase"][rows & (calibrated.domain == name)] >= threshold)
            for name in np.unique(calibrated.domain[rows])
        )
        for kind, rows in calibrated.impostors("phrase").items()
        if rows.any()
    }
    assert set(shares) == {"TW", trials.SINGLE_WORD}
    for kind, share in shares.items():
        assert share <= trials.WORDS_ALLOWED[kind]
    assert threshold <= calibrated.threshold("phrase", 0.001)
    assert threshold == calibrated.threshold("phrase", 0.05)


def test_stored_rates_are_those_of_decisions(calibrated: trials.CalibratedTrials) -> None:
    point = calibrated.point(0.01)
    halves = trials.half_llrs(
        calibrated.trials.calibrated(calibrated.calibrator, trials.VIEWS), trials.VIEWS
    )
    verdicts = np.all([halves[view] >= half.accept for view, half in point.halves.items()], axis=0)
    owners = calibrated.trials.truth == 0
    missed = [
        np.mean(~verdicts[owners & (calibrated.domain == name)])
        for name in np.unique(calibrated.domain)
    ]
    assert point.measured is not None
    assert point.measured["frr"].estimate == pytest.approx(np.mean(missed))
    low, high = point.measured["far"]["TW"][1:]
    assert low <= point.measured["far"]["TW"][0] <= high
    assert set(point.halves["speaker"].measured["far"]) == {"IC", trials.SAME_SEX}


def test_more_recordings_of_an_impostor_raise_no_llr(calibrated: trials.CalibratedTrials) -> None:
    drawn = calibrated.trials
    few, many = (
        drawn.calibrated(calibrated.calibrator, trials.VIEWS)
        if amount is None
        else calibrated.calibrator.transform(drawn.logs, None, {"log recordings": amount})
        for amount in (np.zeros(len(drawn.truth)), np.ones(len(drawn.truth)))
    )
    is_impostor = drawn.truth >= 2
    few_llrs, many_llrs = (
        trials.half_llrs(logs, ["speaker"])["speaker"][is_impostor] for logs in (few, many)
    )
    assert np.mean(many_llrs <= few_llrs + 1e-9) >= 0.95


def test_a_question_about_the_voice_ignores_the_words() -> None:
    drawn = [drawn_trials(*names, seed) for seed, names in enumerate(DRAWN)]
    calibrator = trials.fit_calibrator(drawn, ("speaker",))
    assert set(calibrator.slopes_["phrase"].values()) == {0.0}
    changed = {h: logs + 5.0 * ("phrase" in h) for h, logs in drawn[0].logs.items()}
    llrs = [
        trials.half_llrs(calibrator.transform(logs, None, drawn[0].measures), ["speaker"])
        for logs in (drawn[0].logs, changed)
    ]
    np.testing.assert_allclose(llrs[0]["speaker"], llrs[1]["speaker"], atol=1e-9)


def test_what_never_happened_may_happen_to_one_of_few() -> None:
    never = np.zeros(100, dtype=bool)
    share, low, high = trials.share_over_people(never, np.arange(100) % 10, np.full(100, 0.01))
    assert (share, low) == (0.0, 0.0)
    assert high == pytest.approx(1 - 0.05**0.1)


def test_a_copy_of_what_is_enrolled_is_no_test_of_it(tmp_path) -> None:
    for name, domains in recordings.DOMAINS.items():
        rows = [
            (domain, speaker, phrase, condition, take, 120.0, "", 8000.0, 30.0, True)
            for domain in domains
            for speaker in ("ann", "bob")
            for phrase in ("yes", "no")
            for take in "abc"
            for condition in ("clean", "room")
        ]
        columns = dict(
            zip(recordings.COLUMNS[1:], map(np.array, zip(*rows, strict=True)), strict=True)
        )
        vectors = np.arange(len(rows) * 4.0).reshape(-1, 4)
        np.savez(tmp_path / f"{name}.npz", vectors=vectors, **columns)
    material = recordings.read_labelled_vectors(tmp_path)
    # the numbers are those of takes a, b and c, in whatever condition
    assert material.repetition[:6].tolist() == [0, 0, 1, 1, 2, 2]
    takes = material.labels()["source_recording"]
    assert len(set(takes)) == len(takes) // 2
    assert takes[0] == takes[1] != takes[2]


def test_recordings_that_the_commands_refuse_are_counted_and_left_out(
    tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recordings, "DOMAINS", {"cvau": ("pass-phrases",)})
    rows = [
        ("pass-phrases", "ann", "yes", condition, take, 120.0, "", 8000.0, 30.0, take != "a")
        for take in "abc"
        for condition in ("clean", "room")
    ]
    columns = dict(zip(recordings.COLUMNS[1:], map(np.array, zip(*rows, strict=True)), strict=True))
    np.savez(tmp_path / "cvau.npz", vectors=np.arange(6.0)[:, None], **columns)
    material = recordings.read_labelled_vectors(tmp_path)
    assert material.vectors[:, 0].tolist() == [2.0, 3.0, 4.0, 5.0]
    assert material.repetition.tolist() == [0, 0, 1, 1]
    counts = recordings.refused_recordings(tmp_path)
    assert counts == [{"domain": "pass-phrases", "recordings": 3, "refused": 1}]


def test_joined_phrases_of_a_silent_word_are_not_usable(
    tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    word = golden_signal(recordings.RATE)
    files = {"a": word, "b": word, "c": word, "d": np.full(recordings.RATE, 1e-5, np.float32)}
    monkeypatch.setattr(recordings, "read_audio", lambda file, rate: files[file[0]])
    names = [f"{letter}{take}" for letter in "abcd" for take in "12"]
    fields = {
        "speaker": np.full(8, "ann"),
        "phrase": np.array([name[0] for name in names]),
        "session": np.array([name[1] for name in names]),
    }
    listing = Listing(np.array(names), tuple(names), fields)
    usable = {
        (recording.domain, recording.phrase): recording.is_usable
        for recording in recordings.recordings_of_person("speech-commands", listing)
    }
    assert len(usable) > 8
    for (_, phrase), is_usable in usable.items():
        assert is_usable == ("d" not in phrase.split("-"))


def test_everybody_has_a_phrase_of_their_own_where_there_are_enough() -> None:
    people = np.repeat(["ann", "bob", "cid"], 4)
    phrases = np.tile(["a", "a", "b", "b"], 3)
    rows = trials.own_phrases(people, phrases, np.random.default_rng(0))
    own = {person: set(phrases[rows & (people == person)]) for person in np.unique(people)}
    assert all(len(some) == 1 for some in own.values())
    assert own["ann"] != own["bob"]
    assert np.bincount(np.unique(people, return_inverse=True)[1][rows]).tolist() == [2, 2, 2]


def test_vectors_that_are_missing_are_named(tmp_path) -> None:
    with pytest.raises(DataError, match="audiomnist"):
        recordings.read_labelled_vectors(tmp_path)


def test_the_default_model_of_the_package_answers_calibrated() -> None:
    bundle = load(DEFAULT_MODEL)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(6, 1505))
    answer = bundle.answer(X[:3], X[3:])
    assert answer.calibrated
    assert bundle.points["speaker+phrase"][0].far == 0.01
    assert {row["corpus left out"] for row in bundle.card["left_out"]} >= {
        domain for domains in recordings.DOMAINS.values() for domain in domains
    }


def test_blocks_are_those_of_the_recipes() -> None:
    shipped = load(DEFAULT_MODEL).scorer.blocks
    blocks = {name: tuple(block) for name, block in shipped.items()}
    assert blocks == trials.BLOCKS
    assert [*build.DOMAIN_VARIANCES, *trials.POINT_BLOCKS] == list(default_recipes())


def write_miniature(folder: Path, people: int = 5, phrases: int = 4) -> None:
    """Write drawn vectors of all corpora, each with clean recordings and one in another condition."""
    rng = np.random.default_rng(0)
    for corpus, domains in recordings.DOMAINS.items():
        table: list[tuple[str | float, ...]] = []
        vectors = []
        near = recordings.NEAR_MATCH_DOMAINS.get(corpus)
        for domain in (*domains, *([near] if near else [])):
            means = {
                (name, index): rng.normal(size=width)
                for name, (width, view) in trials.BLOCKS.items()
                for index in range(people if view == "speaker" else phrases)
            }
            cells = [
                (person, phrase, take)
                for person in range(people)
                for phrase in range(phrases)
                # variants with a replaced word occur once
                for take in range(1 if domain == near and phrase else 3)
            ]
            for person, phrase, take in cells:
                conditions = ["clean", recordings.CONDITIONS[(person + phrase + take) % 4]]
                if corpus in recordings.CALL_STEP and person % 2:
                    conditions.append(recordings.CALL)
                for condition in conditions:
                    columns = []
                    for name, (width, view) in trials.BLOCKS.items():
                        mean = means[name, person if view == "speaker" else phrase]
                        block = mean + 0.7 * rng.normal(size=width)
                        if name in trials.POINT_BLOCKS:
                            points = block[:-1].reshape(default_recipes()[name].windows.points, -1)
                            points /= np.linalg.norm(points, axis=1, keepdims=True)
                            block = np.append(points, 1.5)
                        columns.append(block)
                    vectors.append(np.concatenate(columns))
                    labels = (f"{corpus} {person}", f"phrase {phrase}", condition, str(take))
                    pitch = 110.0 if person % 2 else 220.0
                    is_narrow = condition in trials.NARROW_CONDITIONS
                    bandwidth = 3800.0 if is_narrow else 8000.0
                    table.append((domain, *labels, pitch, "", bandwidth, 30.0, True))
        columns_of_file = dict(
            zip(recordings.COLUMNS[1:], map(np.array, zip(*table, strict=True)), strict=True)
        )
        stacked = np.array(vectors, dtype=np.float32)
        np.savez(folder / f"{corpus}.npz", vectors=stacked, **columns_of_file)


@pytest.fixture(scope="module")
def miniature(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("work")
    write_miniature(folder)
    return folder


def test_a_miniature_is_fitted_evaluated_and_compared(
    miniature: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployments = (trials.Deployment(3, None, 1), trials.Deployment(5, trials.OWN, 2))
    alone = (trials.Deployment(None, None, 1),)
    designs = {
        name: build.Design(name, alone if name == "alone" else deployments)
        for name in build.CALIBRATION
    }
    monkeypatch.setattr(build, "CALIBRATION", designs)
    evaluation = {"named": build.Design("named", (trials.Deployment(5, None, 1),))}
    monkeypatch.setattr(build, "EVALUATION", {**evaluation, "alone": designs["alone"]})
    monkeypatch.setattr(build, "SEEDS", (1,))
    vectors = recordings.read_labelled_vectors(miniature)
    material = build.LeftOutTrials(vectors)
    rows = build.evaluate_left_out(material, "cvau")
    assert {row["corpus left out"] for row in rows} == {"pass-phrases"}
    assert {row["deployed"] for row in rows} == {True, False}
    for row in rows:
        assert row["EER speaker"] < 0.2
        assert row["accepted at 0.1 %"]["TC"] <= row["accepted at 5 %"]["TC"]
        assert row["trials"][trials.SAME_SEX] < row["trials"]["IC"]

    parts = [build.calibrate(material, design) for design in designs.values()]
    bundle = build.make_bundle(material.model(), "drawn", parts)
    assert {"speaker", "speaker|undeployed", "speaker+phrase|phrase known"} <= set(bundle.points)
    bundle.card = build.card(vectors, rows)
    file = miniature / "default.safetensors"
    bundle.save(file)
    again = CliRunner().invoke(main, ["check", str(file), str(file)])
    assert again.exit_code == 0, again.output
    assert "LLR speaker+phrase, phrases known: 0.0e+00" in again.output
    shipped = CliRunner().invoke(main, ["check", str(file)])
    assert shipped.exit_code == 1


def test_a_model_with_a_slightly_other_covariance_differs_from_the_shipped_one() -> None:
    shipped, changed = load(DEFAULT_MODEL), load(DEFAULT_MODEL)
    assert max(differences(changed, shipped).values()) == 0.0
    changed.scorer.mean_ = changed.scorer.mean_ + 1e-4
    largest = differences(changed, shipped)
    assert largest["LLR speaker"] > TOLERANCE
    assert largest["thresholds speaker"] == 0.0


def test_drawn_vectors_fit_the_shipped_model() -> None:
    bundle = load(DEFAULT_MODEL)
    X, people, phrases = drawn_vectors(bundle)
    assert X.shape[1] == bundle.width_in
    assert len(set(zip(people, phrases, strict=True))) == len(X) // 2


def test_vectors_are_required_before_the_model(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["model", str(tmp_path)])
    assert result.exit_code == 1
    help_text = CliRunner().invoke(main, ["--help"]).output
    for command in ("vectors", "model", "check"):
        assert command in help_text
