"""Filter banks, compared with the library that computes Kaldi's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mvplda.exceptions import FileFormatError
from mvplda.voice.audio.decode import golden_signal
from mvplda.voice.extractors import filter_banks as module
from mvplda.voice.extractors.filter_banks import filter_banks
from mvplda.voice.extractors.recipe import Features

SCALE = np.float32(32768.0)


def by_library(samples: np.ndarray, rate: int, settings: Features) -> np.ndarray:
    """Filter banks of kaldi-native-fbank."""
    library = pytest.importorskip("kaldi_native_fbank")
    options = library.FbankOptions()
    options.frame_opts.samp_freq = rate
    options.frame_opts.dither = 0.0
    options.frame_opts.window_type = settings.window
    options.frame_opts.preemph_coeff = settings.preemphasis
    options.mel_opts.num_bins = settings.bins
    options.mel_opts.low_freq = settings.low_hz
    options.mel_opts.high_freq = settings.high_hz
    options.use_energy = False
    computer = library.OnlineFbank(options)
    computer.accept_waveform(rate, samples.tolist())
    computer.input_finished()
    return np.stack([computer.get_frame(t) for t in range(computer.num_frames_ready)])


@pytest.mark.parametrize("rate", [8000, 11025, 16000, 22050])
@pytest.mark.parametrize(
    "settings",
    [
        Features(window="hamming"),
        Features(window="povey"),
        Features(window="hanning", bins=40, low_hz=60.0, high_hz=-300.0, preemphasis=0.9),
        Features(window="povey", bins=23, low_hz=100.0, high_hz=3500.0),
    ],
)
def test_filter_banks_are_those_of_the_library(rate: int, settings: Features) -> None:
    samples = golden_signal(rate) * SCALE
    theirs = by_library(samples, rate, settings)
    ours = filter_banks(samples, rate, settings)
    assert ours.shape == theirs.shape
    np.testing.assert_allclose(ours, theirs, atol=5e-3)
    assert np.abs(ours - theirs).mean() < 1e-5


def test_silence_has_the_least_energy() -> None:
    frames = filter_banks(np.zeros(1000, dtype=np.float32), 16000, Features())
    np.testing.assert_allclose(frames, np.log(2.0**-23), rtol=1e-6)


@pytest.mark.parametrize(("samples", "frames"), [(400, 1), (559, 1), (560, 2), (16000, 98)])
def test_frames_lie_within_the_sound(samples: int, frames: int) -> None:
    assert len(filter_banks(np.ones(samples, dtype=np.float32), 16000, Features())) == frames


def test_blocks_of_frames_do_not_change_them(monkeypatch: pytest.MonkeyPatch) -> None:
    samples = golden_signal(16000) * SCALE
    whole = filter_banks(samples, 16000, Features())
    monkeypatch.setattr(module, "BLOCK_FRAMES", 7)
    np.testing.assert_allclose(filter_banks(samples, 16000, Features()), whole, atol=2e-4)


def test_an_unknown_window_is_an_error() -> None:
    settings = replace(Features(), window="triangle")
    with pytest.raises(
        FileFormatError, match="'triangle' of filter banks: expected one of hamming"
    ):
        filter_banks(np.ones(400, dtype=np.float32), 16000, settings)
