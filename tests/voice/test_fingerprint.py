"""Fingerprints: changed copies of a recording are recognised, other recordings of the same words are not."""

from __future__ import annotations

import numpy as np
import pytest
from spoken import say

from mvplda.exceptions import DataError
from mvplda.voice.attacks.attack import resample
from mvplda.voice.attacks.copies import COPIES
from mvplda.voice.fingerprint import (
    LEAST_OVERLAP,
    LOW_BANDS,
    OFFSETS,
    RATE,
    SPEEDS,
    CopyTest,
    Fingerprint,
    energy_codes,
    power_spectrogram,
)

pytest.importorskip("soxr")


@pytest.mark.parametrize("name", COPIES)
def test_changed_copies_are_recognised(name):
    if COPIES[name].missing():
        pytest.skip(f"needs {COPIES[name].missing()}")
    rng = np.random.default_rng(0)
    for seed in range(3):
        recording = say(seed)
        copy = COPIES[name](recording, rng)
        others = [CopyTest(say(10 + other)).fingerprint for other in range(3)]
        test = CopyTest(copy)
        assert test.is_copy([*others, CopyTest(recording).fingerprint]), name
        assert not test.is_copy(others), name


@pytest.mark.parametrize("speed", [0.98, 0.99, 1.01, 1.02])
def test_long_copies_at_another_speed_have_the_same_codes(speed):
    recording = say(0, 6.0)
    copy = resample(recording, RATE * speed, RATE)
    (similarity,) = CopyTest(copy).similarities([CopyTest(recording).fingerprint])
    assert similarity > 0.8


def test_recordings_of_the_same_words_are_no_copies():
    tests = [CopyTest(say(seed)) for seed in range(8)]
    for number, test in enumerate(tests):
        others = [other.fingerprint for other in tests if other is not test]
        assert not test.is_copy(others), number
        assert test.is_copy([test.fingerprint])


def test_part_of_a_recording_is_a_copy():
    recording = say(0)
    test = CopyTest(recording[: round(0.75 * len(recording))])
    assert test.is_copy([CopyTest(recording).fingerprint])
    longer = CopyTest(np.concatenate([say(5, 1.0), recording]))
    assert longer.is_copy([CopyTest(recording).fingerprint])


def test_similarities_are_correlations_over_all_alignments():
    test = CopyTest(say(0, 0.6))
    others = [CopyTest(say(seed, seconds)).fingerprint for seed, seconds in ((0, 0.6), (1, 0.9))]
    spectrogram = power_spectrogram(say(0, 0.6))
    for other, similarity in zip(others, test.similarities(others), strict=True):
        fixed = other.codes.astype(float)
        best = 0.0
        for speed in SPEEDS:
            for offset in OFFSETS:
                codes = energy_codes(spectrogram, speed, offset).astype(float)
                least = LEAST_OVERLAP * min((codes**2).sum(), (fixed**2).sum())
                for shift in range(1 - len(fixed), len(codes)):
                    a = codes[max(shift, 0) : shift + len(fixed)]
                    b = fixed[max(-shift, 0) :][: len(a)]
                    a = a[: len(b)]
                    energies = (a**2).sum(), (b**2).sum()
                    if min(energies) >= max(least, 1):
                        best = max(best, (a * b).sum() / np.sqrt(np.prod(energies)))
        assert similarity == pytest.approx(best, abs=1e-5)


def test_low_bands_are_compared_alone():
    test, other = CopyTest(say(0)), CopyTest(say(1)).fingerprint
    low = CopyTest(say(0))
    low._variants = low._variants[..., :LOW_BANDS]
    alone = Fingerprint(other.codes[:, :LOW_BANDS])
    assert test.similarities([other], LOW_BANDS) == pytest.approx(low.similarities([alone]))
    assert test.similarities([other]) != pytest.approx(low.similarities([alone]))


def test_a_copy_whose_high_bands_were_replaced_is_recognised():
    # as codecs of mobile telephones do
    original, other = CopyTest(say(0, 4.0)), CopyTest(say(5, 4.0))
    changed = original.fingerprint.codes.copy()
    length = min(len(changed), len(other.fingerprint.codes))
    changed[:length, LOW_BANDS:] = other.fingerprint.codes[:length, LOW_BANDS:]
    changed[:, :LOW_BANDS][::2, ::2] = 0
    fingerprint = Fingerprint(changed)
    assert original.are_copies([fingerprint, other.fingerprint]).tolist() == [True, False]
    assert not original.are_copies([]).size


def test_silence_and_very_short_sound_match_nothing():
    silence = CopyTest(np.zeros(RATE))
    click = CopyTest(say(0)[4000:5500])
    assert not silence.is_copy([silence.fingerprint])
    assert not click.is_copy([click.fingerprint])
    assert not CopyTest(say(0)).is_copy([])


def test_fingerprints_survive_storage():
    fingerprint = CopyTest(say(0)).fingerprint
    data = fingerprint.to_bytes()
    assert len(data) < 1200 * 2.5
    np.testing.assert_array_equal(Fingerprint.from_bytes(data).codes, fingerprint.codes)
    for damaged in (b"", data[:20], data[:2] + b"x" * 40, b"\x07\x00" + data[2:]):
        with pytest.raises(DataError, match="fingerprint"):
            Fingerprint.from_bytes(damaged)


def test_fingerprints_of_another_version_are_an_error():
    with pytest.raises(DataError, match="bands"):
        CopyTest(say(0)).similarities([Fingerprint(np.ones((50, 7), np.int8))])
