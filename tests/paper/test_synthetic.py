"""Synthetic speech: simulated noise, rooms and channels, and reproducible recordings."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.synthetic import synthetic
from mvplda.exceptions import DataError, ParameterError
from mvplda.paper import frames
from mvplda.paper.corpora import CORPORA

CORPORA.pop("synthetic")  # registered by a plugin, not by the package

RATE = 16000


def test_noise_has_the_requested_ratio():
    samples = np.sin(np.arange(RATE) * 0.2)
    for pink in (False, True):
        noisy = frames.with_noise(samples, 10.0, pink, np.random.default_rng(0))
        noise = noisy - samples
        assert 10 * np.log10(np.mean(samples**2) / np.mean(noise**2)) == pytest.approx(10, abs=1e-6)


def test_a_room_does_not_move_the_direct_sound():
    click = np.zeros(4000)
    click[100] = 1.0
    reverberant = frames.in_room(click, 0.3, 6.0, RATE, np.random.default_rng(0))
    assert len(reverberant) == 4000
    assert np.argmax(np.abs(reverberant)) == 100
    np.testing.assert_allclose(reverberant[:100], 0, atol=1e-9)
    tail = np.sum(reverberant[101:] ** 2)
    assert 10 * np.log10(1 / tail) == pytest.approx(6.0, abs=1.0)


def test_a_channel_fades_outside_its_band():
    time = np.arange(RATE) / RATE
    low = np.sin(2 * np.pi * 30 * time)
    middle = np.sin(2 * np.pi * 1000 * time)
    low, middle = (
        frames.over_channel(x, 300, 3400, RATE, np.random.default_rng(0)) for x in (low, middle)
    )
    assert np.std(low) < 0.2 * np.std(middle)


@pytest.mark.parametrize("options", [{"speakers": 1}, {"phrases": 99}, {"phrases": 0}])
def test_wrong_settings_are_refused(tmp_path, options):
    with pytest.raises(ParameterError, match="1 to 20 phrases"):
        synthetic(tmp_path / "x", **options)


@pytest.mark.slow
def test_the_same_settings_make_the_same_files(tmp_path):
    for module in ("espeakng_loader", "soundfile", "soxr"):
        pytest.importorskip(module)
    options = {"speakers": 3, "phrases": 2, "sessions": 4}
    first, second = (synthetic(tmp_path / name, **options) for name in "ab")
    assert len(first) == 24
    assert first.ids.tolist() == second.ids.tolist()
    names = sorted(file.relative_to(tmp_path / "a") for file in (tmp_path / "a").rglob("*.*"))
    assert str(names[0]) == "manifest.json"
    assert str(names[1]) == "s001/open-the-garden-door/0.flac"
    assert len(names) == 25
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    with pytest.raises(DataError, match="other settings"):
        synthetic(tmp_path / "a", **{**options, "speakers": 4})
