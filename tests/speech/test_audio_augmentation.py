"""Augmentation: repeatable, and of the size that it says."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from mvplda.exceptions import DataError, ParameterError
from mvplda.speech.features import Channel, Gain, Noise, Recipe, Room, Speed, augment
from mvplda.speech.features.augmentation import coloured_noise, room_response

RATE = 16000


def tone(hz: float, n: int = RATE) -> Any:
    return np.sin(2 * np.pi * hz * np.arange(n) / RATE).astype(np.float32)


def draw(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def power(x: Any) -> float:
    return float(np.mean(np.asarray(x, dtype=np.float64) ** 2))


OTHERS = [draw(k).standard_normal(5000 + k).astype(np.float32) * 10.0**-k for k in range(4)]
STEPS = [Speed(), Noise(kinds=("white", "pink", "babble")), Room(), Channel(), Gain()]


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.kind)
def test_the_same_generator_gives_the_same_samples(step: Any) -> None:
    x, recipe = tone(300), Recipe((step,))
    first, again, other = (augment(x, recipe, draw(seed), others=OTHERS) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert first.dtype == np.float32
    assert np.isfinite(first).all()
    assert len(first) != len(other) or np.abs(first - other).max() > 1e-3
    np.testing.assert_array_equal(x, tone(300))  # the input stays as it is


def test_speed_moves_the_pitch_and_the_length() -> None:
    for factor in (0.8, 1.25):
        y = augment(tone(1000), Recipe((Speed(factor=(factor, factor)),)), draw())
        assert len(y) == pytest.approx(RATE / factor, abs=1)
        peak = np.argmax(np.abs(np.fft.rfft(y * np.hanning(len(y))))) * RATE / len(y)
        assert peak == pytest.approx(1000 * factor, abs=2)


@pytest.mark.parametrize("kind", ["white", "pink", "babble"])
@pytest.mark.parametrize("snr", [-5.0, 0.0, 17.0])
def test_noise_has_the_ratio_asked_for(kind: Any, snr: float) -> None:
    x = 0.01 * tone(300)
    y = augment(x, Recipe((Noise(snr_db=(snr, snr), kinds=(kind,)),)), draw(), others=OTHERS)
    assert len(y) == len(x)
    assert 10 * np.log10(power(x) / power(y - x.astype(np.float64))) == pytest.approx(snr, abs=0.01)


def test_pink_noise_falls_by_3_db_an_octave() -> None:
    for exponent, slope in ((0.0, 0.0), (1.0, -3.01)):
        spectrum = np.abs(np.fft.rfft(coloured_noise(2**17, exponent, draw()))) ** 2
        octaves = [10 * np.log10(spectrum[2**k : 2 ** (k + 1)].mean()) for k in range(6, 16)]
        assert np.polyfit(np.arange(10), octaves, 1)[0] == pytest.approx(slope, abs=0.15)


def test_babble_is_made_of_the_others() -> None:
    """Of one voice, it is that voice, round and round."""
    x = tone(300)
    y = augment(x, Recipe((Noise(snr_db=(0, 0), kinds=("babble",)),)), draw(), others=[OTHERS[0]])
    babble = y - x.astype(np.float64)
    np.testing.assert_allclose(babble[:5000], babble[5000:10000], atol=1e-6)
    assert np.corrcoef(np.sort(babble[:5000]), np.sort(OTHERS[0]))[0, 1] > 0.9999
    with pytest.raises(ParameterError, match="babble is made of other utterances"):
        augment(x, Recipe((Noise(kinds=("babble",)),)), draw(), others=[np.zeros(100)])


@pytest.mark.parametrize("t60", [0.2, 0.5])
def test_a_room_decays_in_t60(t60: float) -> None:
    response = room_response(t60, 3.0, RATE, draw())
    assert response[0] == 1
    tail = response[1:]
    assert 10 * np.log10(1 / np.sum(tail**2)) == pytest.approx(3.0)
    left = 10 * np.log10(np.cumsum(tail[::-1] ** 2)[::-1])
    time = np.arange(1, len(response)) / RATE
    inside = (left < left[0] - 5) & (left > left[0] - 35)
    assert -60 / np.polyfit(time[inside], left[inside], 1)[0] == pytest.approx(t60, rel=0.1)


def test_a_room_keeps_the_direct_sound_in_place() -> None:
    click = np.zeros(8000, dtype=np.float32)
    click[100] = 1
    y = augment(click, Recipe((Room(),)), draw())
    assert len(y) == 8000
    assert np.abs(y[:100]).max() < 1e-6
    assert y[100] == pytest.approx(1, abs=1e-6)
    assert np.abs(y[102 + 40 :]).max() > 1e-3


def test_a_channel_fades_outside_its_band() -> None:
    step = Channel(gain_db=(0, 0), low_hz=(300, 300), high_hz=(3400, 3400), slope=2)
    levels = {
        hz: 10 * np.log10(2 * power(augment(tone(hz), Recipe((step,)), draw())))
        for hz in (75, 300, 1000, 6800)
    }
    assert levels[1000] == pytest.approx(0, abs=0.2)
    assert levels[300] == pytest.approx(-3, abs=0.2)
    assert levels[75] == pytest.approx(-24, abs=1)
    assert levels[6800] == pytest.approx(-12.3, abs=0.5)


def test_gain_in_decibels() -> None:
    y = augment(tone(300), Recipe((Gain(gain_db=(-20, -20)),)), draw())
    np.testing.assert_allclose(y, 0.1 * tone(300), rtol=1e-5, atol=1e-7)


def test_a_probability_is_how_often() -> None:
    recipe, rng, x = Recipe((Gain(0.3, gain_db=(-20, -20)),)), draw(), tone(300, 100)
    changed = sum(np.abs(augment(x, recipe, rng)).max() < 0.5 for _ in range(2000))
    assert changed == pytest.approx(600, abs=80)
    np.testing.assert_array_equal(augment(x, Recipe((Gain(0.0),)), rng), x)


def test_recipes_there_and_back() -> None:
    for recipe in (Recipe(), Recipe.usual(), Recipe(tuple(STEPS))):
        assert Recipe.from_dict(json.loads(json.dumps(recipe.to_dict()))) == recipe
    assert hash(Recipe.from_dict({"steps": [{"step": "noise", "kinds": ["pink"]}]}))


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"step": "echo"}, "step is one of speed, noise, room, channel, gain; got 'echo'"),
        ({"step": "gain", "db": 3}, "Gain has no setting 'db'; it has probability, gain_db"),
        ({"step": "gain", "probability": 2}, "between 0 and 1"),
        ({"step": "speed", "factor": [1.2, 0.9]}, r"a range \(low, high\)"),
        ({"step": "speed", "factor": [0, 1]}, "above 0"),
        ({"step": "room", "t60_s": [0, 1]}, "above 0"),
        (
            {"step": "noise", "kinds": ["brown"]},
            "kinds.0 is one of white, pink, babble; got 'brown'",
        ),
        ({"step": "noise", "snr_db": [0, float("nan")]}, "snr_db.1 is a number; got nan"),
    ],
)
def test_recipes_that_do_not_fit(values: dict[str, Any], says: str) -> None:
    with pytest.raises(ParameterError, match=says):
        Recipe.from_dict({"steps": [values]})


def test_samples_have_one_axis() -> None:
    with pytest.raises(DataError, match="one axis"):
        augment(np.zeros((10, 2)), Recipe(), draw())


def test_a_step_comes_back_from_its_own_class() -> None:
    assert Noise.from_dict(Noise(snr_db=(1, 2)).to_dict()) == Noise(snr_db=(1, 2))
