"""mvplda verify, identify, profiles and setup: from recordings to a decision on the command line."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html import unescape
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from extractor_problems import RATE, network, voice, write

import mvplda
from mvplda import Bundle, CosineScorer, MultiviewPLDA, load
from mvplda.calibration.hypotheses import HypothesisCalibrator
from mvplda.cli import main
from mvplda.decisions import NAMING_FAR, OperatingPoint
from mvplda.exceptions import FileFormatError, LabelError
from mvplda.io.vectors import read_vectors
from mvplda.voice.attacks.copies import COPIES
from mvplda.voice.audio.folders import default_pattern, label_recordings, list_recordings
from mvplda.voice.default_model import DEFAULT_MODEL
from mvplda.voice.profile_file import ProfileBook
from mvplda.voice.setup import setup_vectors
from mvplda.voice.setup_report import _of_100
from mvplda.voice.verification import VoiceModel

load_extractor: Any = mvplda.load_extractor  # recipes are those of ONNX files only


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A network, a calibrated cosine of its vectors, and recordings of two voices.

    The second recording is a little faster than the first: with the same speed it would be a copy.
    """
    monkeypatch.chdir(tmp_path)
    extractor = load_extractor(network(tmp_path / "net.onnx", dimension=24))
    sounds = [voice(3.0, pitch, seed) for pitch, seed in ((1.0, 0), (1.06, 1), (1.35, 2))]
    for name, samples in zip(("one", "again", "other"), sounds, strict=True):
        write(tmp_path / f"{name}.wav", samples)
    unit = [v / np.linalg.norm(v) for v in (extractor(x, RATE) for x in sounds)]
    same, different = float(unit[0] @ unit[1]), float(unit[0] @ unit[2])
    assert same > different
    slope = 12 / (same - different)
    calibrator = HypothesisCalibrator()
    calibrator.weights_ = {"speaker": slope}
    calibrator.constants_ = {"speaker": -slope * (same + different) / 2, "nothing": 0.0}
    calibrator.outlier_probability_ = 2 / (1 + np.exp(20.0))
    calibrator.n_speakers_ = 2
    scorer = CosineScorer(centre=False, views=["speaker"]).fit(np.zeros((1, 24)))
    card = {"model": "cosine"}
    Bundle(None, scorer, extractor.name, {"speaker": calibrator}, card=card).save("cosine")
    return tmp_path


def run(*words):
    return CliRunner().invoke(main, [str(word) for word in words])


NET = ("-x", "net.onnx")
MODEL = ("--model", "cosine")
COSINE = (*NET, *MODEL)


def test_the_exit_code_is_the_decision(place):
    accepted = run("verify", "one.wav", "again.wav", *COSINE)
    assert accepted.exit_code == 0, accepted.output
    assert accepted.output.startswith("Accepted: same speaker")
    assert "Model: cosine, calibrated for this question" in accepted.output
    rejected = run("verify", "one.wav", "other.wav", *COSINE)
    assert rejected.exit_code == 1
    assert rejected.output.startswith("Rejected: wrong speaker")
    strict = run("verify", "one.wav", "again.wav", *COSINE, "--far", "1e-6")
    assert strict.exit_code == 2
    assert strict.output.startswith("Inconclusive: not enough evidence")
    assert run("verify", "one.wav", "again.wav", *COSINE, "--threshold", "50").exit_code == 2


def test_prompted_words_are_checked_and_the_voice_alone_is_compared(place, monkeypatch):
    class Listener:
        rate = RATE

        def log_probabilities(self, sound, texts):
            return np.array([-0.1 if text == "Seven, two." else -40.0 for text in texts])

    monkeypatch.setattr("mvplda.voice.extractors.decoder.load_decoder", Listener)
    said = run("verify", "one.wav", "again.wav", *COSINE, "--words", "Seven two")
    assert said.exit_code == 0, said.output
    assert "Log probability of the prompted words: -0.1." in said.output
    other = run("verify", "one.wav", "again.wav", *COSINE, "--words", "seven one", "--json")
    assert other.exit_code == 1
    report = json.loads(other.output)
    assert report["reason"] == "wrong_phrase"
    assert report["views"] == {"speaker": "accept", "phrase": "reject"}
    both = run("verify", "one.wav", "again.wav", *COSINE, "--words", "one", "--same", "speaker")
    assert both.exit_code == 3
    assert "leave out --same" in both.output


def test_the_detector_is_off_unless_it_is_asked_for(place):
    sides = ("one.wav", "again.wav", "-x", "net.onnx", "--model", "cosine", "--json")
    plain = json.loads(run("verify", *sides).stdout)
    assert "countermeasure_llr" not in plain
    detected = json.loads(run("verify", *sides, "--detector").stdout)
    assert np.isfinite(detected["countermeasure_llr"])
    assert "spoof" in detected["probabilities"]
    assert detected["llr"] <= plain["llr"] + 0.01
    text = run("verify", *sides[:-1], "--detector").stdout
    assert "Detector: LLR" in text
    assert "  replay or synthetic speech: " in text
    profiles = run("verify", "one.wav", "--profiles", "p", "--profile", "ann", "--detector")
    assert profiles.exit_code == 3
    assert "pass recordings as OTHER" in profiles.stderr


def test_prompts_are_random_words():
    prompts = {run("prompt", "--kind", "digits", "--count", 5).output for _ in range(5)}
    assert len(prompts) > 1
    assert all(len(set(prompt.split())) == 5 for prompt in prompts)


def test_what_the_calibration_cannot_show_is_not_promised(place):
    refused = run("verify", "one.wav", "again.wav", *COSINE, "--far", "1e-12")
    assert refused.exit_code == 3
    assert "cannot promise at most" in refused.output


def test_what_has_no_answer_ends_with_three(place):
    assert run("verify", "one.wav", "nobody.wav", *COSINE).exit_code == 3
    assert run("verify", "one.wav", *COSINE).exit_code == 3
    assert run("verify", "one.wav", "again.wav", *COSINE, "--far", "2").exit_code == 3
    both = run("verify", "one.wav", "again.wav", *COSINE, "--far", "0.1", "--threshold", "1")
    assert both.exit_code == 3
    write(place / "silent.wav", np.zeros(RATE, np.float32))
    assert run("verify", "one.wav", "silent.wav", *COSINE).exit_code == 3


def test_noise_decides_nothing_whatever_its_score(place):
    write(place / "noise.wav", 0.1 * np.random.default_rng(0).normal(size=3 * RATE))
    found = run("verify", "one.wav", "noise.wav", *COSINE, "--json")
    assert found.exit_code == 2
    about = json.loads(found.output)
    assert (about["verdict"], about["reason"]) == ("inconclusive", "unusable_recording")
    assert "speechless" in about["faults"]
    assert "speechless" in about["quality"]["other"][0]["warnings"]


def test_a_folder_is_one_side_of_several_recordings(place):
    (place / "enrolled").mkdir()
    write(place / "enrolled" / "a.wav", voice(3.0, 1.0, 5))
    write(place / "enrolled" / "b.wav", voice(2.0, 1.0, 6))
    assert run("verify", "enrolled", "again.wav", *COSINE).exit_code == 0
    assert run("verify", "other.wav", "enrolled/", *COSINE).exit_code == 1


def test_profiles_are_added_listed_found_and_removed(place):
    assert run("profiles", "add", "voices.npz", "ann", "one.wav", *NET).exit_code == 0
    assert run("profiles", "add", "voices.npz", "bob", "other.wav", *NET).exit_code == 0
    assert run("profiles", "list", "voices.npz").stdout == "ann\t1\nbob\t1\n"
    found = run("identify", "again.wav", "--profiles", "voices.npz", *COSINE)
    assert found.exit_code == 0, found.output
    assert found.output.startswith("Identified: ann.")
    claimed = ("--profiles", "voices.npz", *COSINE, "--profile")
    assert run("verify", "again.wav", *claimed, "ann").exit_code == 0
    assert run("verify", "again.wav", *claimed, "bob").exit_code == 1
    nobody = run("verify", "again.wav", *claimed, "eve")
    assert nobody.exit_code == 3
    assert "expected one of: ann, bob" in nobody.output
    other_phrase = ("--phrase", "hello")
    assert (
        run("profiles", "add", "voices.npz", "ann", "other.wav", *NET, *other_phrase).exit_code == 0
    )
    # the profile of ann now holds two voices; its phrase hello holds the second one only
    assert run("verify", "again.wav", *claimed, "ann", *other_phrase).exit_code == 1
    assert run("verify", "other.wav", *claimed, "ann", *other_phrase).exit_code == 0
    unknown = run("verify", "other.wav", *claimed, "ann", "--phrase", "bye")
    assert unknown.exit_code == 3
    assert "has no phrase 'bye'; expected one of: hello" in unknown.output
    assert "--profiles" in run("verify", "one.wav", "again.wav", *COSINE, *other_phrase).output
    twice = run("profiles", "add", "voices.npz", "ann", "one.wav", *NET)
    assert twice.exit_code == 1
    assert "was passed twice, or is in voices.npz already" in twice.output
    assert run("profiles", "remove", "voices.npz", "ann", "eve").exit_code == 1
    assert run("profiles", "list", "voices.npz").stdout == "ann\t2\nbob\t1\n"
    assert run("profiles", "remove", "voices.npz", "ann").exit_code == 0
    assert run("profiles", "list", "voices.npz").stdout == "bob\t1\n"
    assert run("profiles", "add", "voices.npz", "cem", "again.wav", *NET).exit_code == 0
    assert run("profiles", "remove", "voices.npz", "bob", "cem").exit_code == 0
    assert not (place / "voices.npz").exists()
    with pytest.raises(LabelError, match="expected a name"):
        ProfileBook("voices.npz").add(" ", None, np.ones((1, 24)), ["x"])


def test_names_of_profiles_may_hold_blanks_and_the_file_names_its_extractor(place):
    book = ProfileBook("people.npz")
    book.add("Ann #1 of Ulm", "net-1", np.ones((2, 24)), ["x", "y"])
    again = ProfileBook("people.npz")
    assert again.counts() == {"Ann #1 of Ulm": 2}
    assert again.extractor == "net-1"
    assert [path.name for path in place.glob("people*")] == ["people.npz"]
    np.savez("vectors.npz", X=np.ones((1, 24)), ids=["a"])
    with pytest.raises(FileFormatError, match="is not a file of profiles"):
        ProfileBook("vectors.npz")


def test_profiles_want_speech_and_a_voice(place):
    write(place / "word.wav", voice(0.5))
    short = run("profiles", "add", "voices.npz", "ann", "word.wav", *NET)
    assert short.exit_code == 1
    assert "at least 1 s are needed" in short.output
    write(place / "tone.wav", 0.3 * np.sin(np.arange(3 * RATE) * 0.2))
    tone = run("profiles", "add", "voices.npz", "ann", "tone.wav", *NET)
    assert tone.exit_code == 1
    assert "tone.wav has no usable speech" in tone.output
    assert not (place / "voices.npz").exists()


def test_another_extractor_is_refused_by_name_wherever_vectors_meet(place):
    network(place / "else.onnx", seed=9, dimension=24)
    mine, theirs = load_extractor("net.onnx"), load_extractor("else.onnx")
    run("profiles", "add", "voices.npz", "ann", "one.wav", *NET)
    for words in (
        ("identify", "again.wav", "--profiles", "voices.npz", "-x", "else.onnx", *MODEL),
        ("verify", "again.wav", "other.wav", "-x", "else.onnx", *MODEL),
        ("profiles", "add", "voices.npz", "bob", "other.wav", "-x", "else.onnx"),
    ):
        found = run(*words)
        assert found.exit_code in (1, 3)
        assert mine.name in found.output
        assert theirs.name in found.output


def two_views(extractor):
    """A model of two views of vectors that the extractor might have made."""
    rng = np.random.default_rng(0)
    labels = {
        "speaker": np.array([f"s{i % 8}" for i in range(160)]),
        "phrase": np.array([f"p{i // 40}" for i in range(160)]),
    }
    codes = {view: np.unique(names, return_inverse=True)[1] for view, names in labels.items()}
    X = sum(rng.normal(size=(8, 24))[codes[view]] for view in labels)
    X = X + 0.3 * rng.normal(size=(160, 24))
    model = MultiviewPLDA({"speaker": 4, "phrase": 3})
    return Bundle(None, model, extractor=extractor.name).fit(X, labels)


def test_one_calibrated_llr_and_probabilities_of_the_same_evidence(place):
    bundle = two_views(load_extractor("net.onnx"))
    calibrator = HypothesisCalibrator()
    calibrator.weights_ = {"speaker": 0.1, "phrase": 0.1, "together": 0.1}
    calibrator.constants_ = {}
    calibrator.outlier_probability_, calibrator.n_speakers_ = 0.01, 40
    calibrator.constants_ = dict.fromkeys(["speaker+phrase", "speaker", "phrase", "nothing"], 0.0)
    bundle.calibrations = {"speaker+phrase": calibrator}
    bundle.save("model.safetensors")
    words = ("verify", "one.wav", "again.wav", *NET, "--model", "model.safetensors", "--json")
    both = json.loads(run(*words).stdout)
    assert both["calibrated"] is True
    p = both["probabilities"]["speaker+phrase"]
    assert np.log(p / (1 - p)) == pytest.approx(both["llr"], abs=1e-6)
    assert set(both["views"]) == {"speaker", "phrase"}
    voice_alone = json.loads(run(*words, "--same", "speaker").stdout)
    assert voice_alone["calibrated"] is False
    assert set(voice_alone["views"]) == {"speaker"}
    printed = run(*words[:-1], "--same", "speaker").stdout
    assert "NOT calibrated" in printed
    # the two rows that were asked for, from the numbers of the LLR
    rows = [line.strip() for line in printed.splitlines() if line.endswith(" %")]
    assert [row.partition(":")[0] for row in rows] == ["same speaker", "different speaker"]
    assert list(voice_alone["probabilities"]) == ["speaker", "nothing"]
    p = voice_alone["probabilities"]["speaker"]
    assert np.log(p / (1 - p)) == pytest.approx(voice_alone["llr"], abs=1e-6)
    assert both["llr"] != voice_alone["llr"]


# -- setup ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("paths", "pattern"),
    [
        (["a/x/1.wav", "a/y/1.wav", "b/x/1.wav"], "{speaker}/{phrase}/*"),
        (["a/x/monday/1.wav", "b/x/monday/1.wav"], "{speaker}/{phrase}/*"),
        (["a/1.wav", "a/2.wav", "b/1.wav", "b/2.wav"], "{speaker}/*"),
    ],
)
def test_folders_are_speakers_and_phrases(paths, pattern):
    assert default_pattern([path.removesuffix(".wav") for path in paths]) == pattern


def test_names_without_folders_need_a_pattern():
    with pytest.raises(mvplda.exceptions.ParameterError, match="pass a pattern for the names"):
        default_pattern(["a_yes_1", "b_no_1"])


def record(place, people, phrases, takes, seconds=1.2):
    for who in range(people):
        for phrase in range(phrases):
            for take in range(takes):
                seed = 1000 * who + 10 * phrase + take
                sound = voice(seconds + 0.2 * phrase, 1 + 0.05 * who, seed)
                folder = place / "recordings" / f"s{who}" / f"p{phrase}"
                folder.mkdir(parents=True, exist_ok=True)
                write(folder / f"{take}.wav", sound)


def test_setup_of_too_few_people_tells_what_it_cannot_do(place):
    record(place, 3, 1, 2)
    (place / "recordings" / "s0" / "p0" / "bad.wav").write_bytes(b"RIFFnothing")
    done = run("setup", "recordings", "-o", "voices", "-q", *NET)
    assert done.exit_code == 0, done.output
    assert "Labels come from file names, read as {speaker}/{phrase}/*: 7 recordings." in done.output
    assert "bad.wav" in done.output
    assert "3 people are too few to train a model" in done.output
    assert "the model compares voices only" in done.output
    assert "Error rates could not be measured" in done.output
    words = ("identify", "recordings/s1/p0/1.wav", "--profiles", "voices", "--model", "voices")
    found = run(*words, *NET)
    assert found.exit_code in (0, 1, 2), found.output
    assert run("profiles", "list", "voices").stdout.splitlines() == ["s0\t2", "s1\t2", "s2\t2"]


def test_setup_attacks_the_people(place, monkeypatch):
    attacks = {name: COPIES[name] for name in ("half the gain", "band-pass")}
    monkeypatch.setattr("mvplda.voice.attacks.measure.ALL_ATTACKS", attacks)
    record(place, 3, 1, 5)
    done = run("setup", "recordings", "-o", "voices", "-q", "--attacks", *NET)
    assert done.exit_code == 0, done.output
    table = (place / "voices" / "attacks.txt").read_text()
    assert table.strip() in done.output
    rows = {line[:40].rstrip(): line for line in table.splitlines()}
    assert any(name.startswith("owner, no attack") for name in rows)
    unchanged = next(line for line in rows.values() if line.startswith("unchanged"))
    assert unchanged.split()[-1] == "0.0"
    np.savez(place / "x.npz", X=np.eye(4), speaker=list("aabb"))
    refused = run("setup", "x.npz", "-o", "other", "-q", "--attacks")
    assert refused.exit_code == 2
    assert "--attacks needs recordings" in refused.output


@pytest.mark.slow
def test_setup_makes_a_folder_that_other_commands_take(place):
    record(place, 12, 2, 3)
    done = run("setup", "recordings", "-o", "voices", "-q", "--far", "0.05", *NET)
    assert done.exit_code == 0, done.output
    assert "12 people, 6 recordings each." in done.output
    assert "Measured on 12 of your people: people who were held out" in done.output
    assert "12 people can show shares of impostors down to 25 %" in done.output
    bundle = load("voices/model.safetensors")
    assert bundle.extractor == load_extractor("net.onnx").name
    assert (bundle.point().far, bundle.point().people) == (0.05, 12)
    assert "report" in bundle.card
    one, other = "recordings/s1/p0/0.wav", "recordings/s1/p0/1.wav"
    refused = run("verify", one, other, "--model", "voices", "--far", "1e-5", *NET)
    assert (refused.exit_code, "cannot promise" in refused.output) == (3, True)
    found = run("verify", one, other, "--model", "voices", *NET)
    assert found.exit_code in (0, 1, 2), found.output


def test_setup_from_vectors(tmp_path):
    rng = np.random.default_rng(0)
    who, what = np.repeat(np.arange(12), 12), np.tile(np.repeat(np.arange(3), 4), 12)
    X = 2 * rng.normal(size=(12, 6))[who] + rng.normal(size=(3, 6))[what]
    X += 0.5 * rng.normal(size=X.shape)
    np.savez(tmp_path / "x.npz", X=X, speaker=who, phrase=what)
    done = run("setup", tmp_path / "x.npz", "-o", tmp_path / "voices", "-q")
    assert done.exit_code == 0, done.output
    assert "12 people, 12 recordings each." in done.output
    assert "for 1 % false acceptances: " in done.output
    assert "12 people can show shares of impostors down to 25 %" in done.output
    bundle = load(tmp_path / "voices" / "model.safetensors")
    assert "speaker+phrase" in bundle.calibrations
    assert len(read_vectors(tmp_path / "voices" / "profiles.npz")) == 144


def test_what_setup_and_info_say(tmp_path):
    X = np.random.default_rng(0).normal(size=(12, 4))
    np.savez(tmp_path / "one.npz", X=X, speaker=["ann"] * 12)
    alone = run("setup", tmp_path / "one.npz", "-o", tmp_path / "voices")
    assert (alone.exit_code, "one person, 'ann'" in alone.output) == (1, True)
    assert "at least two" in alone.output
    np.savez(tmp_path / "two.npz", X=X, speaker=["ann", "bob"] * 6)
    assert run("setup", tmp_path / "two.npz", "-o", tmp_path / "voices").exit_code == 0
    told = run("info", tmp_path / "voices").output
    assert "2 people, 6 recordings each." in told
    assert (
        "people: 2\nphrases: 0\nthresholds: Accepts from LLR 4.61, rejects below 0; in between: inconclusive. "
        "Basis: theoretical bound for calibrated LLRs, not measured.\n" in told
    )
    assert len(told.splitlines()) < 20
    assert (
        json.loads(run("info", tmp_path / "voices", "--json").output)["model"]
        == "plain mean of cosines"
    )
    assert "CosineScorer" in run("info", tmp_path / "voices" / "model.safetensors").output
    empty = run("info", tmp_path)
    assert (empty.exit_code, "model.safetensors" in empty.output) == (1, True)
    unknown = run("verify", __file__, __file__, "-x", "nonsense")
    assert "there is no extractor 'nonsense': expected an ONNX file or one of" in unknown.output
    assert "default model" not in unknown.output


def test_the_words_for_few_people():
    few = _of_100([0.2, 0.0, 0.86], "owners", "rejected")
    assert few == "20 of 100 owners are rejected (95 % interval: 0 to 86)"
    single = _of_100([0.011, 0.0, 0.03], "impostors", "accepted")
    assert single == "1 of 100 impostors is accepted (95 % interval: 0 to 3)"
    assert _of_100([0.0, 0.0, 0.001], "owners", "rejected") == "0 of 100 owners are rejected"


def test_a_pattern_can_be_given(place):
    record(place, 2, 2, 1)
    listed = list_recordings(["recordings"])
    found, pattern = label_recordings(listed, "{speaker}/*")
    assert found.labels == {"speaker": ["s0", "s0", "s1", "s1"]}
    assert pattern == "{speaker}/*"
    some, _ = label_recordings(listed, "{speaker}/p1/*")
    assert some.ids == ["s0/p1/0", "s1/p1/0"]
    repeated, _ = label_recordings(
        replace(listed, ids=["a_a", "a_b", "b_b", "c"]), "{speaker}_{speaker}"
    )
    assert repeated.ids == ["a_a", "b_b"]
    with pytest.raises(mvplda.exceptions.ParameterError, match="expected a pattern with"):
        label_recordings(listed, "{phrase}/*")
    with pytest.raises(mvplda.exceptions.DataError, match="no recording fits"):
        label_recordings(listed, "{speaker}_*")


def test_setup_reads_three_levels_of_folders_as_extract_does(place):
    record(place, 2, 2, 1)
    (place / "deep").mkdir()
    for folder in (place / "recordings").glob("*/*"):
        inner = place / "deep" / folder.relative_to(place / "recordings")
        inner.mkdir(parents=True)
        folder.rename(inner / "monday")
    done = run("setup", "deep", "-o", "voices", "-q", *NET)
    assert (
        "Labels come from file names, read as {speaker}/{phrase}/*: 4 recordings.\n" in done.output
    )
    assert run("extract", "deep", "-o", "x.npz", "-q", *NET).exit_code == 0
    assert set(ProfileBook("voices").owners) == set(np.load("x.npz")["speaker"]) == {"s0", "s1"}
    assert set(ProfileBook("voices").columns["phrase"]) == set(np.load("x.npz")["phrase"])


def test_setup_takes_the_labels_of_a_table(place):
    rows = ["one.wav,ann,yes", "again.wav,ann,no", "other.wav,bob,"]
    (place / "list.csv").write_text("\n".join(["file,speaker,phrase", *rows]))
    done = run("setup", "list.csv", "-o", "voices", "-q", *NET)
    assert done.exit_code == 0, done.output
    assert "Labels of speaker and phrase come from the table: 3 recordings." in done.output
    assert ProfileBook("voices").counts() == {"ann": 2, "bob": 1}
    assert ProfileBook("voices").columns["phrase"] == ["yes", "no", ""]
    refused = run("setup", "list.csv", "-o", "voices", "-l", "speaker=utt2spk", *NET)
    assert (refused.exit_code, "leave out --labels" in refused.output) == (2, True)
    (place / "list.csv").write_text("file,phrase\none.wav,yes\nother.wav,no\n")
    nobody = run("setup", "list.csv", "-o", "voices", *NET)
    assert (nobody.exit_code, "no column speaker" in nobody.output) == (1, True)


def test_setup_names_the_option_that_is_wrong(place):
    record(place, 2, 1, 1)
    field = run("setup", "recordings", "-o", "voices", "--pattern", "{speaker}/{1}/*", *NET)
    assert (field.exit_code, "'{speaker}/{1}/*' is not a name" in field.output) == (1, True)
    (place / "flat").mkdir()
    write(place / "flat" / "one.wav", voice(1.0))
    unnamed = run("setup", "flat", "-o", "voices", "-x", "nonsense")
    assert "no folders name the speakers of 'one'" in unnamed.output
    flat = run("setup", "flat", "-o", "voices", "-x", "nonsense", "--pattern", "{speaker}")
    assert "there is no extractor 'nonsense'" in flat.output
    np.savez("x.npz", X=np.eye(4), speaker=list("aabb"))
    vectors = run("setup", "x.npz", "-o", "voices", "-x", "nonsense")
    assert vectors.exit_code == 2
    assert "applies only to recordings, and" in vectors.output
    nan = run("setup", "x.npz", "-o", "voices", "--far", "nan")
    assert (nan.exit_code, "between 0 and 1; got nan" in nan.output) == (1, True)
    assert "no file nowhere" in run("setup", "nowhere", "-o", "voices", *NET).output


def test_people_leave_out_what_is_no_sound(place):
    (place / "bad.wav").write_bytes(b"RIFFnothing")
    write(place / "short.wav", voice(0.05))
    done = run("people", "bad.wav", "short.wav", "one.wav", *COSINE, "-o", "people.html")
    assert done.exit_code == 0, done.output
    assert "warning: bad.wav is skipped" in done.output
    assert "a turn is skipped: short at 0.00 s: " in done.output
    assert done.stdout.startswith("1\tone\t")
    none = run("people", "short.wav", *COSINE, "-o", "people.html")
    assert (none.exit_code, "got 0 usable turns" in none.output) == (1, True)
    (place / "names.json").write_text("{}")
    nobody = run("people", "one.wav", *COSINE, "--names", "names.json", "-o", "p.npz")
    assert (nobody.exit_code, "there are no names" in nobody.output) == (1, True)


def test_people_of_a_table_of_stretches(place):
    both = np.concatenate([voice(2.0, 1.0, 0), voice(2.0, 1.35, 2)])
    write(place / "both.wav", both)
    rows = [f"a,both.wav,0,{2 * RATE}", f"b,both.wav,{2 * RATE},"]
    (place / "list.csv").write_text("\n".join(["id,file,start,length", *rows]))
    done = run("people", "list.csv", *COSINE, "-o", "people.html")
    turns = [line.split("\t")[:4] for line in done.stdout.splitlines()]
    assert turns == [["1", "a", "0.00", "2.00"], ["2", "b", "2.00", "4.00"]]


def test_names_with_blanks_and_umlauts(place):
    for who, sound in {"José María": "one", "Übel Ö": "other"}.items():
        (place / "all" / who).mkdir(parents=True)
        (place / f"{sound}.wav").rename(place / "all" / who / "ä 1.wav")
    done = run("setup", "all", "-o", "aus gang", "-q", *NET)
    assert done.exit_code == 0, done.output
    assert "--model 'aus gang'" in done.output
    assert ProfileBook("aus gang").counts() == {"José María": 1, "Übel Ö": 1}
    refused = run("extract", "all", "-o", "x.npz", *NET)
    assert (refused.exit_code, "cannot be written" in refused.output) == (1, True)
    assert not (place / "x.npz.unfinished").exists()


def test_a_phrase_that_is_missing_is_none_whatever_stands_there(tmp_path):
    phrases = np.array(["yes", np.nan, None, "", "no", "yes"], dtype=object)
    done = setup_vectors(
        np.random.default_rng(0).normal(size=(6, 3)), {"speaker": list("ababab"), "phrase": phrases}
    )
    assert done.phrases == ["yes", "", "", "", "no", "yes"]


def test_the_examples_of_verify_ask_for_what_the_default_model_has():
    bundle = load(DEFAULT_MODEL)
    for far in re.findall(r"--far ([\d.]+)", run("verify", "--help").output):
        assert bundle.point(far=float(far)).measured


def test_identify_names_somebody_at_the_rate_that_is_asked_for(place):
    bundle = load("cosine")
    thresholds = {0.01: 1.0, NAMING_FAR: 0.5, 0.001: 4.0}
    points = [OperatingPoint(threshold, far=far) for far, threshold in thresholds.items()]
    bundle.points = {"speaker": points}
    bundle.save("points")
    assert run("profiles", "add", "voices.npz", "ann", "one.wav", *NET).exit_code == 0
    words = ("identify", "again.wav", "--profiles", "voices.npz", *NET, "--model", "points")
    for options, threshold in {
        (): 0.5,  # for naming among many, where nothing else is asked for
        ("--far", "0.01"): 1.0,
        ("--far", "0.001"): 4.0,
        ("--threshold", "2.5"): 2.5,
    }.items():
        done = run(*words, "--json", *options)
        assert json.loads(done.stdout)["point"]["threshold"] == pytest.approx(threshold)
    # with a second profile, each accepts half of the strangers
    assert run("profiles", "add", "voices.npz", "bob", "other.wav", *NET).exit_code == 0
    voices = VoiceModel.load("points", ["net.onnx"])
    book = ProfileBook("voices.npz")
    limits = {0.02: 1.0, 0.01: 4.0, 0.001: 4.0 + np.log(2)}
    for far, threshold in limits.items():
        found = voices.identify("again.wav", book, far=far)
        assert found.point.threshold == pytest.approx(threshold)


def test_a_folder_of_several_people_is_one_side_with_a_warning(place):
    for who, sound in {"ann": "one", "bob": "other"}.items():
        (place / "all" / who).mkdir(parents=True)
        (place / "all" / who / "1.wav").write_bytes((place / f"{sound}.wav").read_bytes())
    done = run("verify", "all", "again.wav", *COSINE)
    assert "all contains folders of 2 people (ann, bob)" in done.stderr
    assert "warning" not in run("verify", "all/ann", "again.wav", *COSINE).stderr


def test_people_of_several_recordings_and_a_page_to_confirm_them(place):
    done = run("people", "one.wav", "again.wav", "other.wav", *COSINE, "-o", "people.html")
    assert done.exit_code == 0, done.output
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    numbers = {recording: person for person, recording, *_ in rows}
    assert numbers["one"] == numbers["again"] != numbers["other"]
    page = (place / "people.html").read_text()
    assert page.count("<audio") == 3
    # what its button saves where the first is called Ann, and the second Bob
    spoken = [json.loads(unescape(turns)) for turns in re.findall('data-turns="(.*?)"', page)]
    (place / "names.json").write_text(json.dumps({"Ann": spoken[0], "Bob": spoken[1]}))
    sounds = ["one.wav", "again.wav", "other.wav"]
    done = run("people", *sounds, *COSINE, "--names", "names.json", "-o", "voices.npz")
    assert done.stderr.endswith(
        "Ann: 2 recording(s) in voices.npz\nBob: 1 recording(s) in voices.npz\n"
    )
    assert ProfileBook("voices.npz").of("Ann").sessions == ["one", "again"]
    (place / "names.json").write_text(json.dumps({"Ann": spoken[0] + spoken[0]}))
    done = run("people", *sounds, *COSINE, "--names", "names.json", "-o", "more.npz")
    assert "different names" in done.output
    (place / "names.json").write_text('{"Ann": 3}')
    done = run("people", *sounds, *COSINE, "--names", "names.json", "-o", "more.npz")
    assert "as the page of mvplda people saves it" in done.output
    # a diariser's turns; two of them at the same time
    lines = [
        f"SPEAKER one 1 {start} 1.5 <NA> <NA> s{k} <NA> <NA>" for k, start in enumerate((0, 1))
    ]
    (place / "turns.rttm").write_text("\n".join(lines))
    done = run("people", "one.wav", *COSINE, "--turns", "turns.rttm", "-o", "people.html")
    assert done.stderr.startswith("2 people in 2 turns"), done.output
    # the last one ends where its rounded times say, a little behind the recording
    length = pytest.importorskip("soundfile").info("one.wav").duration
    (place / "turns.rttm").write_text(f"SPEAKER one 1 0.5 {length - 0.49} <NA> <NA> s <NA> <NA>")
    done = run("people", "one.wav", *COSINE, "--turns", "turns.rttm", "-o", "people.html")
    assert done.stderr.startswith("1 people in 1 turns"), done.output
    (place / "turns.rttm").write_text("SPEAKER else 1 0 1 <NA> <NA> s <NA> <NA>")
    done = run("people", "one.wav", *COSINE, "--turns", "turns.rttm", "-o", "people.html")
    assert (
        "the turns name the recording 'else', which is missing or unreadable; the readable recordings begin with one"
        in done.output
    )


def test_a_session_is_named_and_a_take_that_does_not_fit_too(place):
    extractor = load_extractor("net.onnx")
    rng = np.random.default_rng(0)
    ann, bob = (extractor(voice(3.0, pitch, 0), RATE) for pitch in (1.0, 1.35))
    speakers = np.repeat(np.arange(60), 4)
    means = ann + np.linalg.norm(ann - bob) * rng.normal(size=(60, 24)) / 4
    X = means[speakers] + 0.1 * np.linalg.norm(ann - bob) * rng.normal(size=(240, 24)) / 4
    Bundle(None, MultiviewPLDA({"speaker": 20}), extractor.name).fit(X, {"speaker": speakers}).save(
        "model.safetensors"
    )
    takes = ("one.wav", "again.wav", "other.wav")
    options = ("--model", "model.safetensors", *NET, "--session", "may")
    added = run("profiles", "add", "v.npz", "ann", *takes, *options)
    assert added.exit_code == 0, added.output
    assert "other.wav does not match the other recordings of ann" in added.output
    assert ProfileBook("v.npz").of("ann").sessions == ["may"] * 3


@pytest.mark.parametrize("command", ["verify nobody.wav b.wav", "identify nobody.wav --profiles v"])
def test_a_missing_recording_is_reported_before_missing_networks(tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MVPLDA_CACHE", str(tmp_path / "empty"))
    done = CliRunner().invoke(main, command.split())
    assert done.exit_code == 3
    assert "there is no file or folder nobody.wav" in done.output
