"""Attacks: each changes a recording as its name promises, and the table of outcomes counts them."""

from __future__ import annotations

import numpy as np
import pytest
from spoken import say

from mvplda.exceptions import DataError, ParameterError
from mvplda.voice.attacks.attack import RATE, Attack, from_pcm, run_program, to_pcm
from mvplda.voice.attacks.copies import COPIES
from mvplda.voice.attacks.measure import (
    ALL_ATTACKS,
    UNCHANGED,
    attack_everybody,
    list_owners,
    missing_programs,
    share_of,
    text_table,
)
from mvplda.voice.attacks.resynthesis import griffin_lim, linear_prediction, mel_weights
from mvplda.voice.attacks.rooms import room_response

soundfile = pytest.importorskip("soundfile")
pytest.importorskip("soxr")


def magnitudes(sound: np.ndarray, frames: int = 60) -> np.ndarray:
    """Return log energies in 20 bands and some frames, whatever the phases."""
    windows = np.array_split(sound, frames)
    spectra = [
        np.abs(np.fft.rfft(window * np.hanning(len(window)), 512)[:200]) ** 2 for window in windows
    ]
    bands = np.array([spectrum.reshape(20, 10).mean(axis=1) for spectrum in spectra])
    return np.log(bands + 1e-4 * bands.max())


@pytest.mark.parametrize("name", ALL_ATTACKS)
def test_an_attack_sounds_like_the_recording_and_differs_from_it(name):
    attack = ALL_ATTACKS[name]
    if attack.missing():
        pytest.skip(f"needs {attack.missing()}")
    sound = say(0)
    made = attack(sound, np.random.default_rng(0))
    again = attack(sound, np.random.default_rng(0))
    np.testing.assert_array_equal(made, again)
    assert np.abs(made).max() <= 1
    assert 0.9 < len(made) / len(sound) < 2
    assert len(made) != len(sound) or np.abs(made - sound).max() > 1e-4
    if attack.kind != "replay":
        similarity = np.corrcoef(magnitudes(sound).ravel(), magnitudes(made).ravel())[0, 1]
        other = np.corrcoef(magnitudes(sound).ravel(), magnitudes(say(0)[::-1]).ravel())[0, 1]
        assert similarity > other + 0.2


def test_griffin_lim_keeps_magnitudes_and_discards_phases():
    sound = say(1)
    made = griffin_lim(sound, np.random.default_rng(0))
    assert abs(np.corrcoef(sound, made)[0, 1]) < 0.5
    assert np.corrcoef(magnitudes(sound).ravel(), magnitudes(made).ravel())[0, 1] > 0.9


def test_linear_prediction_replaces_the_excitation():
    rng = np.random.default_rng(0)
    sound = say(2)
    made = linear_prediction(sound, rng)
    assert abs(np.corrcoef(sound, made)[0, 1]) < 0.5
    silence = linear_prediction(np.zeros(RATE), rng)
    assert not silence.any()


def test_mel_bands_cover_the_spectrum():
    weights = mel_weights(80)
    assert weights.shape == (80, 257)
    # at low frequencies the bands are narrower than the resolution
    assert (weights.sum(axis=0)[10:-1] > 0).all()


def test_a_room_decays_after_the_direct_sound():
    response = room_response(0.4, 6.0, RATE, np.random.default_rng(0))
    tail = np.sum(response[1:] ** 2)
    assert response[0] == 1.0
    assert tail == pytest.approx(10 ** (-0.6))
    energy = [np.sum(response[start : start + 800] ** 2) for start in (100, 3300)]
    # 60 dB in 0.4 s are 30 dB in 0.2 s
    assert 10 * np.log10(energy[0] / energy[1]) == pytest.approx(30, abs=4)


def test_a_missing_program_is_named():
    attack = Attack(
        "echo", "replay", lambda sound, rng: sound, ("no-such-program",), ("no_such_package",)
    )
    assert attack.missing() == ["no-such-program", "no_such_package"]
    assert missing_programs([attack, COPIES["band-pass"]]) == [
        "Left out: echo, which needs no-such-program, no_such_package."
    ]
    with pytest.raises(ParameterError, match="'echo' needs no-such-program"):
        attack(say(0), np.random.default_rng(0))
    with pytest.raises(ParameterError, match="false failed"):
        run_program(["false"], b"")


def test_a_codec_that_sox_lacks_is_missing_like_a_program(tmp_path, monkeypatch):
    program = tmp_path / "sox"
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    for formats, missing in (
        ("aif wav", ["the format amr-nb of sox"]),
        ("aif amr-nb amr-wb wav", []),
    ):
        program.write_text(f"#!/bin/sh\necho 'AUDIO FILE FORMATS: {formats}'\n")
        program.chmod(0o755)
        assert COPIES["AMR"].missing() == missing


def test_programs_get_and_return_samples_of_16_bits():
    sound = np.array([0.0, 0.5, -1.0, 2.0])
    np.testing.assert_allclose(from_pcm(to_pcm(sound)), [0, 0.5, -1, 1], atol=1e-4)
    assert len(from_pcm(to_pcm(sound) + b"x")) == 4


@pytest.fixture
def folder(tmp_path):
    for person, count in (("ann", 5), ("bob", 4), ("eve", 3)):
        for number in range(count):
            path = tmp_path / "people" / person / "hello" / f"{number}.wav"
            path.parent.mkdir(parents=True, exist_ok=True)
            soundfile.write(path, say(number, 0.5), RATE)
    return tmp_path / "people"


def test_people_need_recordings_that_enrol_and_others(folder, tmp_path):
    owners = list_owners(folder)
    assert [(owner.name, owner.phrase) for owner in owners] == [("ann", "hello"), ("bob", "hello")]
    assert [len(owner.others) for owner in owners] == [2, 1]
    assert len(list_owners(folder, most=1)) == 1
    for file in folder.glob("*/hello/3.wav"):
        file.unlink()
    (folder / "ann" / "hello" / "4.wav").unlink()
    with pytest.raises(DataError, match="4 recordings"):
        list_owners(folder)


def test_the_table_counts_decisions_by_attack_and_origin(folder):
    owners = list_owners(folder)
    enrolled = {owner.name: soundfile.read(owner.enrolments[0].path)[0] for owner in owners}

    def decide(name: str, sound: np.ndarray) -> tuple[str, str | None]:
        # recognises enrolments by their length, and lets all others in but quiet ones
        if len(sound) == len(enrolled[name]) and np.abs(sound - enrolled[name]).max() < 0.3:
            return "reject", "suspected_replay"
        return ("accept", None) if np.abs(sound).max() > 0.3 else ("inconclusive", None)

    attacks = {name: COPIES[name] for name in ("half the gain", "band-pass")}
    rows = attack_everybody(owners, decide, attacks=attacks)
    found = {(row.attack, row.origin): row for row in rows}
    assert found["owner", ""].attempts == 3
    assert found["owner", ""].accepted.estimate == 1.0
    copies = found[UNCHANGED, "enrolment"]
    assert (copies.attempts, copies.people) == (2, 2)
    assert copies.accepted.estimate == 0
    assert copies.suspected.estimate == 1.0
    half = found["half the gain", "other recording"]
    assert half.inconclusive == 1.0
    assert half.accepted == share_of([False, False])
    text = text_table(rows)
    assert text.splitlines()[1].startswith("owner, no attack")
    assert "BPCER 0.0" in text


def test_intervals_are_those_of_clopper_and_pearson():
    assert share_of([False] * 60).high == pytest.approx(1 - 0.025 ** (1 / 60))
    assert share_of([True] * 3).low == pytest.approx(0.025 ** (1 / 3))
    assert share_of([True, False]).text() == "50.0 (1.3 to 98.7)"
