"""Every stage from samples to frames, against the same thing in plain loops."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mvplda.exceptions import AudioError, DataError, ParameterError
from mvplda.speech.features import (
    ActivitySettings,
    FeatureSet,
    FeatureSettings,
    features,
    frame_bounds,
    speech_frames,
    stack,
    stacked_index,
)
from mvplda.speech.features.frames import (
    levelled,
    log_energy,
    normalised,
    static_features,
    with_deltas,
)

EPS = float(np.finfo(np.float32).eps)


def speech_like(seconds: float = 0.7, rate: int = 16000, seed: int = 0) -> Any:
    """Gliding harmonics in noise, with a quiet start and end."""
    rng = np.random.default_rng(seed)
    t = np.arange(int(seconds * rate)) / rate
    pitch = 2 * np.pi * np.cumsum(120 + 40 * np.sin(9 * t)) / rate
    voice = sum(np.sin(k * pitch + k) / k for k in range(1, 30) if k * 160 < rate / 2)
    return (
        0.02 * voice * np.sin(np.pi * t / t[-1]) ** 2 + 1e-4 * rng.standard_normal(len(t))
    ).astype(np.float32)


# -- the reference: one frame at a time, float64, no library but numpy


def framed(x: Any, s: FeatureSettings) -> list[Any]:
    size, shift = round(s.rate * s.frame_length_ms / 1000), round(s.rate * s.frame_shift_ms / 1000)
    starts = range(0, len(x) - size + 1, shift)
    return [np.array(x[start : start + size], dtype=np.float64) for start in starts]


def preemphasised(frame: Any, amount: float) -> Any:
    return np.array([frame[i] - amount * frame[max(i - 1, 0)] for i in range(len(frame))])


def povey_window(size: int) -> Any:
    return np.array(
        [(0.5 - 0.5 * math.cos(2 * math.pi * i / (size - 1))) ** 0.85 for i in range(size)]
    )


def power_spectrum(frame: Any) -> Any:
    padded = 2 ** math.ceil(math.log2(len(frame)))
    return np.abs(np.fft.fft(frame, padded)[: padded // 2]) ** 2


def mel_filters(s: FeatureSettings, lines: int) -> Any:
    def mel(hz: float) -> float:
        return 1127 * math.log(1 + hz / 700)

    low, high = mel(s.low_hz), mel(s.rate / 2 if s.high_hz is None else s.high_hz)
    step = (high - low) / (s.bins + 1)
    weights = np.zeros((s.bins, lines))
    for b in range(s.bins):
        left, centre, right = low + b * step, low + (b + 1) * step, low + (b + 2) * step
        for line in range(lines):
            here = mel(line * s.rate / (2 * lines))
            if left < here <= centre:
                weights[b, line] = (here - left) / (centre - left)
            elif centre < here < right:
                weights[b, line] = (right - here) / (right - centre)
    return weights


def log_mel(frame: Any, s: FeatureSettings, filters: Any) -> Any:
    emphasised = preemphasised(frame - frame.mean(), s.preemphasis)
    return np.log(np.maximum(filters @ power_spectrum(emphasised * povey_window(len(frame))), EPS))


def cosine_transform(n: int, k: int) -> Any:
    rows = [
        [math.cos(math.pi / n * (j + 0.5) * i) * math.sqrt((2 if i else 1) / n) for j in range(n)]
        for i in range(k)
    ]
    return np.array(rows)


def cepstra(logs: Any, frame: Any, s: FeatureSettings) -> Any:
    result = cosine_transform(s.bins, s.cepstra) @ logs
    if s.lifter:
        result *= [1 + 0.5 * s.lifter * math.sin(math.pi * i / s.lifter) for i in range(s.cepstra)]
    if s.energy:
        centred = frame - frame.mean()
        result[0] = math.log(max(float(centred @ centred), EPS))
    return result


def reference_static(x: Any, s: FeatureSettings) -> Any:
    frames = framed(x, s)
    filters = mel_filters(s, len(power_spectrum(frames[0])))
    logs = [log_mel(frame, s, filters) for frame in frames]
    return np.array(
        logs if s.kind == "fbank" else [cepstra(l, f, s) for l, f in zip(logs, frames, strict=True)]
    )


def reference_deltas(x: Any, window: int) -> Any:
    """One regression over time, edges repeated."""
    result = np.zeros_like(x)
    for t in range(len(x)):
        for k in range(-window, window + 1):
            result[t] += k * x[min(max(t + k, 0), len(x) - 1)]
    return result / sum(k * k for k in range(-window, window + 1))


def reference_normalised(x: Any) -> Any:
    result = np.zeros_like(x)
    for d in range(x.shape[1]):
        mean = sum(x[:, d]) / len(x)
        deviation = math.sqrt(sum((x[:, d] - mean) ** 2) / len(x))
        result[:, d] = (x[:, d] - mean) / deviation
    return result


# -- the stages


@pytest.mark.parametrize(
    "settings",
    [
        FeatureSettings(),
        FeatureSettings(energy=False, lifter=0, preemphasis=0.9),
        FeatureSettings(rate=8000, cepstra=20, mel_bins=24, high_hz=3700.0, low_hz=100.0),
        FeatureSettings(frame_length_ms=32, frame_shift_ms=7.5),
        FeatureSettings.fbank(80),
        FeatureSettings.fbank(40, rate=22050),
        FeatureSettings.fbank(),
    ],
    ids=["paper", "cepstrum 0", "8 kHz", "long frames", "fbank", "22 kHz", "fbank default"],
)
def test_static_features_by_the_book(settings: FeatureSettings) -> None:
    samples = levelled(speech_like(0.4, settings.rate), settings)
    ours, book = static_features(samples, settings), reference_static(samples, settings)
    assert (
        ours.shape
        == book.shape
        == (settings.frames_of(len(samples)), settings.dimension // (settings.deltas + 1))
    )
    np.testing.assert_allclose(ours, book, rtol=2e-4, atol=5e-3)


def test_the_reference_can_tell_settings_apart() -> None:
    """The tolerance above is far below what any one stage does."""
    samples = levelled(speech_like(0.4), FeatureSettings())
    usual = static_features(samples, FeatureSettings())
    for change in (
        {"preemphasis": 0.96},
        {"lifter": 21.0},
        {"low_hz": 25.0},
        {"mel_bins": 24},
        {"energy": False},
    ):
        other = reference_static(samples, FeatureSettings(**change))
        assert np.abs(other - usual).max() > 0.1, change


def test_levels_make_samples_alike() -> None:
    quiet = speech_like().astype(np.float64) + 0.25
    for level, measure in (
        ("peak", lambda x: np.abs(x).max()),
        ("rms", lambda x: 10 * np.sqrt(np.mean(x**2))),
    ):
        result = levelled(quiet, FeatureSettings(level=level)).astype(np.float64)  # type: ignore[arg-type]
        assert measure(result) == pytest.approx(32768, rel=1e-6)
        assert result.mean() == pytest.approx(0, abs=0.01)
    none = levelled(quiet, FeatureSettings(level="none"))
    np.testing.assert_allclose(none, (quiet - quiet.mean()) * 32768, rtol=1e-6)


@pytest.mark.parametrize(
    "settings", [FeatureSettings(), FeatureSettings.fbank(normalisation="none")]
)
def test_frames_do_not_depend_on_the_level(settings: FeatureSettings) -> None:
    samples = speech_like().astype(np.float64)
    loud = features(samples, settings)
    np.testing.assert_array_equal(features(samples / 4096, settings), loud)
    np.testing.assert_allclose(features(samples * 0.0123 + 0.01, settings), loud, atol=2e-3)


def test_deltas_by_the_book() -> None:
    x = np.random.default_rng(0).standard_normal((30, 4))
    result = with_deltas(x, 2, 2)
    assert result.shape == (30, 12)
    np.testing.assert_allclose(result[:, :4], x, rtol=1e-6)
    first = reference_deltas(x, 2)
    np.testing.assert_allclose(result[:, 4:8], first, atol=1e-6)
    inside = slice(
        2, -2
    )  # nearer to the ends the edge is repeated before, not after, the first regression
    np.testing.assert_allclose(result[inside, 8:], reference_deltas(first, 2)[inside], atol=1e-6)
    far = reference_deltas(reference_deltas(np.pad(x, ((9, 9), (0, 0)), mode="edge"), 2), 2)[9:-9]
    np.testing.assert_allclose(result[:, 8:], far, atol=1e-6)


def test_deltas_of_a_slope() -> None:
    slope = np.arange(20.0)[:, None] * 3
    result = with_deltas(slope, 2, 3)[6:-6]
    np.testing.assert_allclose(result[:, 1:], np.tile([3.0, 0.0], (8, 1)), atol=1e-5)
    np.testing.assert_array_equal(with_deltas(slope, 0), slope)
    assert with_deltas(slope[:1], 2).tolist() == [[0, 0, 0]]


def test_normalisation_by_the_book() -> None:
    x = np.random.default_rng(0).normal(5, [1, 10, 0.1], (40, 3))
    np.testing.assert_allclose(normalised(x, FeatureSettings()), reference_normalised(x), atol=1e-5)
    np.testing.assert_allclose(
        normalised(x, FeatureSettings(normalisation="mean")), x - x.mean(axis=0), atol=1e-5
    )
    np.testing.assert_array_equal(
        normalised(x, FeatureSettings(normalisation="none")), x.astype(np.float32)
    )


def test_constant_columns_become_zero() -> None:
    x = np.column_stack([np.full(20, 7.3), np.arange(20.0)])
    result = normalised(x.astype(np.float32), FeatureSettings())
    assert not result[:, 0].any()
    assert result[:, 1].std() == pytest.approx(1)


def test_the_whole_by_the_book() -> None:
    samples = speech_like(0.5)
    static = reference_static(levelled(samples, FeatureSettings()), FeatureSettings())
    wide = np.pad(static, ((9, 9), (0, 0)), mode="edge")
    first = reference_deltas(wide, 2)
    book = np.concatenate([static, first[9:-9], reference_deltas(first, 2)[9:-9]], axis=1)
    ours = features(samples)
    assert ours.shape == (48, 39)
    assert ours.dtype == np.float32
    np.testing.assert_allclose(ours, reference_normalised(book), atol=5e-3)


# -- neighbours


@given(st.lists(st.integers(1, 9), min_size=1, max_size=5), st.integers(0, 6), st.integers(0, 6))
def test_stacking_by_the_book(lengths: list[int], left: int, right: int) -> None:
    rng = np.random.default_rng(0)
    utterances = [rng.standard_normal((n, 3)) for n in lengths]
    book = [
        np.array(
            [
                [x[min(max(t + k, 0), len(x) - 1)] for k in range(-left, right + 1)]
                for t in range(len(x))
            ]
        )
        for x in utterances
    ]
    for x, wide in zip(utterances, book, strict=True):
        np.testing.assert_array_equal(stack(x, left, right), wide.reshape(len(x), -1))
    together = FeatureSet.from_utterances(range(len(lengths)), utterances)
    index = stacked_index(together.offsets, left, right)
    np.testing.assert_array_equal(together.frames[index], np.concatenate(book))
    rows = rng.integers(0, len(index), 7)
    np.testing.assert_array_equal(stacked_index(together.offsets, left, right, rows), index[rows])
    first, last = frame_bounds(together.offsets)
    np.testing.assert_array_equal(
        first, index.min(axis=1) if left >= 9 else np.repeat(together.offsets[:-1], lengths)
    )
    np.testing.assert_array_equal(last - first + 1, np.repeat(lengths, lengths))


def test_eleven_frames_of_39() -> None:
    frames = features(speech_like())
    assert stack(frames).shape == (len(frames), 429)
    np.testing.assert_array_equal(stack(frames)[:, 5 * 39 : 6 * 39], frames)


def test_empty_utterances_have_no_rows() -> None:
    offsets = np.array([0, 2, 2, 5])
    assert stacked_index(offsets, 1, 1, np.array([1, 2])).tolist() == [[0, 1, 1], [2, 2, 3]]
    assert stacked_index(offsets, 1, 1).shape == (5, 3)
    with pytest.raises(ParameterError, match="neighbours"):
        stacked_index(offsets, -1, 2)


# -- speech activity


def reference_activity(energies: Any, s: ActivitySettings) -> list[bool]:
    limit = s.threshold + s.mean_scale * sum(energies) / len(energies)
    result = []
    for t in range(len(energies)):
        near = [
            energies[u] > limit
            for u in range(t - s.context, t + s.context + 1)
            if 0 <= u < len(energies)
        ]
        result.append(sum(near) >= s.proportion * len(near))
    return result


@given(st.integers(1, 60), st.integers(0, 5), st.floats(0.05, 1), st.integers(0, 2**32 - 1))
def test_activity_by_the_book(count: int, context: int, proportion: float, seed: int) -> None:
    energies = np.random.default_rng(seed).uniform(0, 25, count)
    settings = ActivitySettings(context=context, proportion=proportion)
    assert speech_frames(energies, settings).tolist() == reference_activity(
        energies.tolist(), settings
    )


def test_log_energy_by_the_book() -> None:
    samples = levelled(speech_like(), FeatureSettings())
    book = static_features(samples, FeatureSettings())[:, 0]
    np.testing.assert_allclose(log_energy(samples, FeatureSettings()), book, rtol=1e-5)
    assert not len(log_energy(samples[:10], FeatureSettings()))


def test_silence_around_speech_is_left_out() -> None:
    rng = np.random.default_rng(0)
    speech = speech_like(0.5)
    samples = np.concatenate([np.zeros(8000), speech, np.zeros(8000)]) + 1e-6 * rng.standard_normal(
        24000
    )
    settings = FeatureSettings(activity=ActivitySettings(), normalisation="none")
    kept, everything = (
        features(samples, settings),
        features(samples, FeatureSettings(normalisation="none")),
    )
    assert 20 < len(kept) < 56 < len(everything)
    # What is kept are frames of the whole, with their deltas.
    assert {row.tobytes() for row in kept} < {row.tobytes() for row in everything}
    normal = features(samples, FeatureSettings(activity=ActivitySettings()))
    np.testing.assert_allclose(normal.mean(axis=0), 0, atol=1e-5)


def test_activity_never_leaves_nothing() -> None:
    settings = FeatureSettings(activity=ActivitySettings(threshold=1000.0))
    samples = speech_like()
    np.testing.assert_array_equal(features(samples, settings), features(samples))


# -- faults


@pytest.mark.parametrize(
    ("samples", "says"),
    [
        (np.ones(1599, dtype=np.float32) * np.arange(1599), "too short: 100 ms, at least 100 ms"),
        (np.zeros(0), "too short: 0 ms"),
        (np.zeros(9000), "silent"),
        (np.full(9000, 0.3, dtype=np.float32), "silent"),
        (np.where(np.arange(9000) == 77, np.nan, 0.1), "1 of 9000 samples are not finite"),
        (np.where(np.arange(9000) > 8997, np.inf, 0.1), "2 of 9000 samples are not finite"),
    ],
)
def test_samples_without_use(samples: Any, says: str) -> None:
    with pytest.raises(AudioError, match=says):
        features(samples)


def test_two_channels_are_refused() -> None:
    with pytest.raises(DataError, match=r"one axis; got shape \(9000, 2\)"):
        features(np.ones((9000, 2)))


def test_the_shortest_utterance() -> None:
    settings = FeatureSettings(shortest_ms=0)
    samples = speech_like()[5000:5400]
    assert features(samples, settings).shape == (1, 39)
    with pytest.raises(AudioError, match="too short: 25 ms, at least 25 ms"):
        features(samples[:-1], settings)
