"""The tools that rebuild the default model: recording conditions, thresholds, and a model of small vectors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from mvplda import load
from mvplda.decisions import decide_each
from mvplda.exceptions import DataError
from mvplda.scoring.answer import Answer
from mvplda.scoring.question import Question
from mvplda.voice.audio.speech_detection import SoundSegment, bandwidth_hz
from mvplda.voice.default_model import DEFAULT_MODEL
from mvplda.voice.extractors.recipe import default_recipes
from tools.default_model import build, recordings, trials
from tools.default_model.__main__ import main
from tools.default_model.comparison import TOLERANCE, differences, drawn_vectors


def noise(seconds: float = 1.0) -> np.ndarray:
    return np.random.default_rng(0).normal(size=int(seconds * recordings.RATE)).astype(np.float32)


def test_a_telephone_has_a_narrow_band_and_keeps_the_length() -> None:
    heard = recordings.simulate_condition(noise(), "telephone", np.random.default_rng(0))
    assert heard.shape == noise().shape
    assert bandwidth_hz(SoundSegment(heard, recordings.RATE).spectrum, recordings.RATE) < 4100
    assert bandwidth_hz(SoundSegment(noise(), recordings.RATE).spectrum, recordings.RATE) > 7000


@pytest.mark.parametrize("name", ["noise", "room", "mixed"])
def test_conditions_change_a_recording_and_its_length_not(name: str) -> None:
    clean = recordings.simulate_condition(noise(), "clean", np.random.default_rng(0))
    heard = recordings.simulate_condition(noise(), name, np.random.default_rng(0))
    assert heard.shape == clean.shape
    assert not np.allclose(heard, clean)


def drawn_trials(domain: str, seed: int, per_kind: int = 500) -> trials.DeploymentTrials:
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
    speakers = rng.integers(0, 25, len(truth))
    return trials.DeploymentTrials(domain, "clean", 20, None, logs, truth, speakers, {})


def test_no_kind_of_impostor_passes_the_threshold_more_often_than_promised() -> None:
    deployments = [drawn_trials("one", 0), drawn_trials("two", 1)]
    views = ("speaker", "phrase")
    calibrated = trials.CalibratedTrials(deployments)
    threshold = calibrated.threshold(0.01)
    rates = []
    for kind in (1, 2, 3):
        accepted = []
        for drawn in deployments:
            scores = trials.ratios(calibrated.calibrator.transform(drawn.logs), views)
            accepted.append((scores[drawn.truth == kind] >= threshold).mean())
        rates.append(float(np.mean(accepted)))
    assert max(rates) == pytest.approx(0.01, abs=0.003)
    point = calibrated.point(0.01)
    low, high = point.measured["far"]["TW"][1:]
    assert low <= point.measured["far"]["TW"][0] <= high


@pytest.mark.parametrize("far", build.FARS)
def test_stored_rates_keep_the_promise_where_domains_differ_in_size(far: float) -> None:
    deployments = [drawn_trials("large and easy", 0, 900), drawn_trials("small and hard", 1, 300)]
    calibrated = trials.CalibratedTrials(deployments)
    measured = calibrated.point(far).measured
    worst = max(rate.estimate for rate in measured["far"].values())
    assert far - 1 / 300 <= worst <= far
    # the same rate as a mean over domains, each decided as in use
    missed = []
    for drawn in deployments:
        logs = drawn.calibrated(calibrated.calibrator)
        size = len(drawn.truth)
        question = Question()
        keys = np.full(size, "speaker+phrase")
        answer = Answer(logs, question.ratio(trials.VIEWS), question, keys, np.ones(size, bool))
        points = [calibrated.point(far)] * size
        verdicts = np.array([decision.answer for decision in decide_each(answer, points)])
        missed.append(np.mean(verdicts[drawn.truth == 0] != "accept"))
    assert measured["frr"].estimate == pytest.approx(np.mean(missed))


def test_what_never_happened_may_happen_to_one_of_few() -> None:
    never = np.zeros(100, dtype=bool)
    share, low, high = trials.share_over_people(never, np.arange(100) % 10, np.full(100, 0.01))
    assert (share, low) == (0.0, 0.0)
    assert high == pytest.approx(1 - 0.05**0.1)


def test_a_copy_of_what_is_enrolled_is_no_test_of_it(tmp_path) -> None:
    for name, domains in recordings.DOMAINS.items():
        rows = [
            (domain, speaker, phrase, condition, take)
            for domain in domains
            for speaker in ("ann", "bob")
            for phrase in ("yes", "no")
            for take in "abc"
            for condition in ("clean", "room")
        ]
        columns = dict(zip(recordings.COLUMNS[1:], np.array(rows).T, strict=True))
        vectors = np.arange(len(rows) * 4.0).reshape(-1, 4)
        np.savez(tmp_path / f"{name}.npz", vectors=vectors, **columns)
    material = recordings.read_labelled_vectors(tmp_path)
    # the numbers are those of takes a, b and c, in whatever condition
    assert material.repetition[:6].tolist() == [0, 0, 1, 1, 2, 2]
    takes = material.labels()["source_recording"]
    assert len(set(takes)) == len(takes) // 2
    assert takes[0] == takes[1] != takes[2]


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
        "pass-phrases",
        "commands",
    }


def test_blocks_are_those_of_the_recipes() -> None:
    shipped = load(DEFAULT_MODEL).scorer.blocks
    blocks = {name: tuple(block) for name, block in shipped.items()}
    assert blocks == trials.BLOCKS
    assert [*build.DOMAIN_VARIANCES, *trials.POINT_BLOCKS] == list(default_recipes())


def write_miniature(folder: Path, people: int = 5, phrases: int = 4) -> None:
    """Write drawn vectors of three corpora, each with clean recordings and one in another condition."""
    rng = np.random.default_rng(0)
    for corpus, domains in recordings.DOMAINS.items():
        table: list[tuple[str, ...]] = []
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
                conditions = ("clean", recordings.CONDITIONS[(person + phrase + take) % 4])
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
                    table.append((domain, *labels))
        columns_of_file = dict(zip(recordings.COLUMNS[1:], np.array(table).T, strict=True))
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
    monkeypatch.setattr(build, "CALIBRATION_DEPLOYMENTS", ((3, None), (5, trials.OWN)))
    monkeypatch.setattr(build, "EVALUATION_DEPLOYMENTS", ((5, None),))
    monkeypatch.setattr(build, "SEEDS", (1,))
    vectors = recordings.read_labelled_vectors(miniature)
    rows = build.evaluate_left_out(vectors, "cvau")
    assert {row["corpus left out"] for row in rows} == {"pass-phrases"}
    for row in rows:
        assert row["EER speaker"] < 0.2
        assert row["Cllr"] < 1.0

    bundle = build.make_bundle(vectors, "drawn")
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
