"""Each stage of the page's scripts, in Node, gives what Python gives."""

from __future__ import annotations

import base64
import dataclasses
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mvplda import Bundle
from mvplda.calibration.hypotheses import HypothesisCalibrator
from mvplda.decisions import decide
from mvplda.model_files import load_model
from mvplda.scoring.question import Question
from mvplda.voice.audio.decode import golden_signal
from mvplda.voice.audio.quality import measure
from mvplda.voice.audio.speech_detection import SoundSegment
from mvplda.voice.default_model import DEFAULT_MODEL
from mvplda.voice.domain.bandwidth import DIFFERENT_BANDS
from mvplda.voice.evidence import single_profile
from mvplda.voice.extractors.extractor import ExtractedVectors
from mvplda.voice.extractors.front_end import interval_means, make_frames, prepare_samples
from mvplda.voice.extractors.recipe import Recipe, families
from mvplda.voice.fingerprint import LOW_BANDS, OFFSETS, SPEEDS, CopyTest
from mvplda.voice.web import export
from mvplda.voice.web.site import PAGE

NODE = shutil.which("node")
pytestmark = pytest.mark.skipif(NODE is None, reason="there is no node, which runs the scripts")
SCRIPT = Path(__file__).with_name("stages.mjs")
RATE = 16000
RNG_SEED = 0


def run(stage: str, **given: Any) -> Any:
    done = subprocess.run(
        [str(NODE), str(SCRIPT), str(PAGE), stage],
        input=json.dumps(given, default=lambda array: array.tolist()),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def sounds() -> dict[str, np.ndarray]:
    """Sounds with and without speech, faults among them."""
    rng = np.random.default_rng(RNG_SEED)
    golden = golden_signal(RATE)
    noise = rng.normal(size=len(golden))
    t = np.arange(len(golden)) / RATE
    pause = 1e-3 * rng.normal(size=RATE // 2)
    spectrum = np.fft.rfft(golden)
    spectrum[np.fft.rfftfreq(len(golden), 1 / RATE) > 3400] = 0
    made = {
        "voice": golden,
        "between pauses": np.concatenate([pause, golden, pause]),
        "noisy": golden + 0.03 * noise,
        "noise": 0.5 * noise,
        "tone": 0.3 * np.sin(2 * np.pi * 700 * t) + 1e-4 * noise,
        "telephone keys": 0.2 * (np.sin(2 * np.pi * 852 * t) + np.sin(2 * np.pi * 1336 * t)),
        "clipped": np.clip(20 * golden, -0.9, 0.9),
        "telephone": np.fft.irfft(spectrum, len(golden)) + 1e-5 * noise,
        "odd length": golden[:12347],
        "a moment": golden[:300],
        "nearly silent": 1e-4 * golden,
        "clicks": np.where(np.arange(len(golden)) % 4000 == 7, 0.9, 1e-4 * noise),
    }
    return {name: samples.astype(np.float32) for name, samples in made.items()}


def test_transforms_of_any_length() -> None:
    rng = np.random.default_rng(RNG_SEED)
    values = [rng.normal(size=n) for n in (1, 2, 3, 8, 97, 400, 512, 1001)]
    for row, got in zip(values, run("transforms", values=values), strict=True):
        expected = np.fft.rfft(row)
        assert np.array(got["re"]) == pytest.approx(expected.real, abs=1e-10)
        assert np.array(got["im"]) == pytest.approx(expected.imag, abs=1e-10)
        assert np.array(got["back"]) == pytest.approx(row, abs=1e-12)


@pytest.mark.parametrize("rate", [8000, 22050, 44100, 48000])
def test_resampling_is_that_of_python(rate: int) -> None:
    soxr = pytest.importorskip("soxr", reason="soxr is not installed, which resamples in Python")
    rng = np.random.default_rng(RNG_SEED)
    golden = soxr.resample(golden_signal(RATE), RATE, rate)
    samples = (golden[: rate + 123] + 1e-3 * rng.normal(size=rate + 123)).astype(np.float32)
    responses = {
        "first": export.FIRST_FREQUENCY,
        "step": export.FREQUENCY_STEP,
        "tables": {str(r): export.resampler_response(r, RATE) for r in (8000, 44100, 48000)},
    }
    got = np.array(
        run("resampling", samples=samples, **{"from": rate}, to=RATE, responses=responses)
    )
    expected = soxr.resample(samples, rate, RATE, quality="HQ")
    assert len(got) == len(expected)
    scale = np.sqrt(np.mean(expected**2))
    # 22050 Hz takes the table of a neighbouring rate
    limit = 1e-2 if str(rate) not in responses["tables"] else 1e-4
    assert np.sqrt(np.mean((got - expected) ** 2)) < limit * scale
    lone = np.array(
        run("resampling", samples=samples, **{"from": RATE}, to=RATE, responses=responses)
    )
    assert np.array_equal(lone, samples)


def test_speech_and_quality_are_those_of_python() -> None:
    made = sounds()
    results = run("speech", sounds=list(made.values()), rate=RATE)
    for (name, samples), got in zip(made.items(), results, strict=True):
        segment = SoundSegment(samples, RATE)
        quality = measure(samples, RATE)
        assert np.array_equal(got["speech"], segment.speech), name
        assert got["cut"] == len(segment.cut(0.1)), name
        shown = got["quality"]
        assert shown["warnings"] == list(quality.warnings), name
        assert shown["usable"] == quality.usable
        assert shown["digest"] == quality.digest
        for key in ("durationS", "speechS", "peakDb", "levelDb", "clipped", "bandwidthHz", "snrDb"):
            field = "".join(f"_{c.lower()}" if c.isupper() else c for c in key)
            assert shown[key] == pytest.approx(getattr(quality, field), abs=1e-3), (name, key)
    assert {fault for got in results for fault in got["quality"]["warnings"]} >= {
        "speechless",
        "clipped",
        "narrow",
        "damaged",
        "quiet",
    }
    assert any(got["quality"]["usable"] for got in results)


def described(recipe: Recipe) -> dict[str, Any]:
    tables = {key: dataclasses.asdict(getattr(recipe, key)) for key in ("samples", "features")}
    return {"name": recipe.name, "rate": recipe.rate, **tables}


@pytest.mark.parametrize("name", ["campplus", "resnet", "words"])
def test_features_are_those_of_python(name: str) -> None:
    pytest.importorskip("kaldi_native_fbank", reason="kaldi-native-fbank is not installed")
    recipe = families()[name]
    if recipe.features.kind != "kaldi":  # samples are prepared for graphs, too
        features = dataclasses.replace(families()["campplus"].features, normalisation="none")
        recipe = dataclasses.replace(recipe, features=features)
    samples = sounds()["between pauses"]
    prepared = prepare_samples(SoundSegment(samples, RATE), recipe)
    got = run("features", samples=samples, recipe=described(recipe))
    assert np.array(got["prepared"]) == pytest.approx(prepared, abs=1e-7)
    frames = make_frames(prepared, recipe)
    difference = np.abs(np.array(got["frames"]).reshape(frames.shape) - frames)
    assert difference.max() < 2e-2
    assert difference.mean() < 1e-4


def test_pooling_over_time_is_that_of_python() -> None:
    frames = np.random.default_rng(RNG_SEED).normal(size=(31, 3)).astype(np.float32)
    counts, lasts, step = [1, 7, 24, 31, 40], [0, 1, 7, 8, 23, 100, 343], 8
    got = run("pooling", frames=frames, counts=counts, lasts=lasts, step=step)
    for count, means in zip(counts, got["means"], strict=True):
        assert np.array(means) == pytest.approx(interval_means(frames, count), abs=1e-12)
    for last, starts in zip(lasts, got["starts"], strict=True):
        number = 3 * -(-(last // step + 1) // 3)
        assert starts == np.linspace(0, last, number).astype(int).tolist()


def test_long_recordings_are_cut_into_equal_segments() -> None:
    got = run("segments", length=100_003, rate=1000, longest=30)
    assert got == [len(part) for part in np.array_split(np.zeros(100_003), 4)]


def test_changed_copies_are_recognised_as_in_python() -> None:
    rng = np.random.default_rng(RNG_SEED)
    golden = golden_signal(RATE)
    faster = np.interp(np.arange(0, len(golden) - 1, 1.0099), np.arange(len(golden)), golden)
    others = {
        "quieter, noisy": 0.3 * golden[700:] + 2e-3 * rng.normal(size=len(golden) - 700),
        "faster": faster,
        "backwards": golden[::-1],
        "noise": 0.1 * rng.normal(size=RATE),
        "too short": golden[:2000],
    }
    recordings = [samples.astype(np.float32) for samples in others.values()]
    originals = [golden, golden[:12000]]
    results = run("copies", recordings=recordings, originals=originals, rate=RATE)
    fingerprints = [CopyTest(samples).fingerprint for samples in originals]
    for name, samples, got in zip(others, recordings, results, strict=True):
        test = CopyTest(samples)
        codes = np.array(got["codes"]).reshape(test.fingerprint.codes.shape)
        # rounding to single precision changes few codes
        assert np.mean(codes != test.fingerprint.codes) < 1e-3, name
        assert len(got["variants"]) == len(SPEEDS) * len(OFFSETS)
        assert got["copies"] == test.are_copies(fingerprints).tolist(), name
        for column, bands in enumerate([None, LOW_BANDS]):
            similarities = [row[column] for row in got["similarities"]]
            assert similarities == pytest.approx(test.similarities(fingerprints, bands), abs=0.01)
    assert [got["copies"][0] for got in results] == [True, True, False, False, False]
    assert run("copies", recordings=[], originals=[], rate=8000) == []


def test_wav_files_are_read_exactly(tmp_path: Path) -> None:
    soundfile = pytest.importorskip("soundfile", reason="soundfile is not installed")
    samples = np.random.default_rng(RNG_SEED).uniform(-1, 1, size=(50, 2)).astype(np.float32)
    file = tmp_path / "two.wav"
    soundfile.write(file, samples, 8000, subtype="PCM_16")
    got = run("wav", data=list(file.read_bytes()))
    expected, rate = soundfile.read(file, dtype="float32")
    assert got["rate"] == rate
    assert np.array_equal(np.array(got["channels"], np.float32), expected.T)
    soundfile.write(file, samples, 8000, subtype="FLOAT")
    assert run("wav", data=list(file.read_bytes())) is None


# -- the back-end ----------------------------------------------------------------------------


def vectors() -> list[np.ndarray]:
    """Vectors of the default model's width: pairs that are near and pairs that are not."""
    rng = np.random.default_rng(RNG_SEED)
    widths, parts = (192, 256, 288), []
    bundle = load_model(DEFAULT_MODEL)
    mean = bundle.fitted_scorer.mean_
    bases = [rng.normal(size=736) for _ in range(3)]
    points = [np.cumsum(rng.normal(size=(24, 32)), axis=0) for _ in range(3)]
    made = []
    for number in range(9):
        base, path = bases[number % 3], points[number // 3]
        row = base + 0.6 * rng.normal(size=736)
        start = 0
        parts = []
        for width in widths:
            block = 0.05 * row[start : start + width] + mean[start : start + width]
            parts.append(block / np.linalg.norm(block))
            start += width
        curve = path + 0.3 * rng.normal(size=path.shape)
        curve /= np.linalg.norm(curve, axis=1, keepdims=True)
        block = np.append(curve, 0.3 + 0.4 * number)
        parts.append(block / np.linalg.norm(block))
        made.append(np.concatenate(parts).astype(np.float32))
    return made


def expected(bundle: Bundle, enrolled: np.ndarray, tested: np.ndarray, same: Any, far: Any) -> Any:
    """The decision as `VoiceModel.verify` makes it, for vectors."""
    sides = [ExtractedVectors(X, list(range(len(X))), [], []) for X in (enrolled, tested)]
    one, other = (single_profile(bundle, side, str(i)) for i, side in enumerate(sides))
    paired, question = bundle.paired(one), Question(same)
    answer = paired.answer(one, other, question).take(0, 0)
    return decide(answer, paired.point(question, one, far=far))


def default_model() -> Bundle:
    return load_model(DEFAULT_MODEL)


def deployed_model() -> Bundle:
    """The default model in the domain of some people, as a setup may store it."""
    bundle = default_model()
    return bundle.deployed(bundle.enrol(np.stack(vectors()), [str(n % 3) for n in range(9)]))


def banded_model() -> Bundle:
    """The default model with an estimate of the bandwidth, on which the calibration depends."""
    bundle = default_model()
    scorer: Any = bundle.scorer
    scorer.band_weights_ = 3 * np.random.default_rng(RNG_SEED).normal(size=bundle.width_in + 1)
    scorer.band_weights_[736:-1] = 0.0
    for calibrator in (bundle.calibrations or {}).values():
        if DIFFERENT_BANDS not in calibrator.measures_:
            calibrator.shift(DIFFERENT_BANDS, {"speaker": -2.0})
    return bundle


def recalibrated_model() -> Bundle:
    """Another class of calibrations, without thresholds of halves and without those of a single comparison."""
    calibrator = HypothesisCalibrator()
    calibrator.weights_ = {"speaker": 0.1, "phrase": 0.2, "parts of recordings": 1.5}
    calibrator.constants_ = {"speaker+phrase": 0.5, "speaker": -1.0, "phrase": 0.3, "nothing": 0.0}
    calibrator.outlier_probability_ = 1e-3
    calibrator.n_speakers_ = 9
    scorer = default_model().scorer
    return Bundle(None, scorer, None, {"speaker+phrase": calibrator})


def exported(bundle: Bundle) -> dict[str, Any]:
    arrays = export.Arrays()
    probe = bundle.enrol(np.ones((1, bundle.width_in)))
    adapts = bundle.paired(probe) is not bundle
    backend = export.export_backend(bundle, bundle.fitted_scorer, adapts, arrays)
    model = {"recipes": [], "backend": backend}
    model["questions"] = export.export_questions(bundle.paired(probe))
    return {"model": model, "numbers": base64.b64encode(arrays.to_bytes()).decode()}


def as_side(rows: list[int]) -> list[dict[str, Any]]:
    made = vectors()
    return [{"values": made[row], "digest": str(row), "usable": True} for row in rows]


@pytest.mark.parametrize("make", [default_model, deployed_model, banded_model, recalibrated_model])
def test_llrs_and_verdicts_are_those_of_python(make: Any) -> None:
    bundle, made = make(), vectors()
    pairs = [([0], [3]), ([0, 3], [6]), ([0, 3, 6], [1]), ([4], [5]), ([7, 8], [6]), ([2], [2, 8])]
    sames = [None, ["speaker"], ["phrase"]]
    fars = [None, 0.001] if make is default_model else [None]
    trials: list[dict[str, Any]] = []
    decisions = []
    for enrolled, tested in pairs:
        for same in sames:
            for far in fars:
                options: dict[str, Any] = {"same": same} if same else {}
                options |= {} if far is None else {"far": far}
                trials.append(
                    {"enrolled": as_side(enrolled), "tested": as_side(tested), "options": options}
                )
                trials[-1]["tested"] = [
                    {**row, "digest": f"test {row['digest']}"} for row in trials[-1]["tested"]
                ]
                X, T = np.stack([made[i] for i in enrolled]), np.stack([made[i] for i in tested])
                decisions.append(expected(bundle, X, T, same, far))
    results = run("verification", **exported(bundle), trials=trials)
    for trial, got, decision in zip(trials, results, decisions, strict=True):
        where = trial["options"]
        assert got["llr"] == pytest.approx(decision.llr, abs=1e-6), where
        assert got["llrs"] == pytest.approx(dict(decision.llrs), abs=1e-6)
        assert (got["verdict"], got["reason"]) == (decision.answer, decision.reason)
        assert got["views"] == dict(decision.views)
        # durations restored from single precision differ by 1e-7
        assert got["probabilities"] == pytest.approx(dict(decision.probabilities), abs=2e-7)
        assert got["point"]["threshold"] == pytest.approx(decision.threshold)
    assert len({decision.answer for decision in decisions}) > 1


def test_copies_and_unusable_recordings_decide_as_in_python() -> None:
    unusable = [{**row, "usable": False, "digest": "x"} for row in as_side([3])]
    trials = [
        {"enrolled": as_side([0, 3]), "tested": as_side([3]), "options": {}},
        {"enrolled": as_side([0]), "tested": unusable, "options": {}},
        {"enrolled": as_side([0]), "tested": as_side([3]), "options": {"same": ["room"]}},
        {"enrolled": as_side([0]), "tested": as_side([3]), "options": {"far": 1e-6}},
        {"enrolled": [], "tested": as_side([3]), "options": {}},
        {"enrolled": as_side([0]), "tested": as_side([3]), "options": {"threshold": 1e3}},
    ]
    copy, short, view, far, empty, strict = run(
        "verification", **exported(default_model()), trials=trials
    )
    assert (copy["verdict"], copy["reason"]) == ("reject", "suspected_replay")
    assert (short["verdict"], short["reason"]) == ("inconclusive", "unusable_recording")
    assert "got room" in view["error"]
    assert "no thresholds" in far["error"]
    assert "at least one recording" in empty["error"]
    assert strict["verdict"] != "accept"
