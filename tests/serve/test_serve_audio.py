"""What the gate hands on to the extractor."""

from __future__ import annotations

import io
import wave
from typing import Any

import numpy as np
import pytest

pytest.importorskip("soundfile")

from mvplda.serve.model_loading import MODEL_FOLDER
from mvplda.serve.recordings import process_recording
from mvplda.serve.settings import Settings
from mvplda.voice.audio.decode import golden_signal
from mvplda.voice.audio.speech_detection import SoundSegment
from mvplda.voice.extractors import load_extractor

RATE = 16000


def _recording(before_s: float, after_s: float) -> bytes:
    rng = np.random.default_rng(0)
    syllables = golden_signal(RATE)[: round(1.5 * RATE)]
    sound = np.concatenate(
        [np.zeros(round(before_s * RATE)), syllables, np.zeros(round(after_s * RATE))]
    )
    sound += rng.normal(0, 0.0005, len(sound))
    held = io.BytesIO()
    with wave.open(held, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes(np.round(32767 * np.clip(sound, -1, 1)).astype("<i2").tobytes())
    return held.getvalue()


@pytest.mark.parametrize(("before_s", "after_s"), [(0.5, 0.5), (2.0, 0.3), (0.3, 3.0)])
def test_the_extractor_gets_the_whole_recording(
    before_s: float, after_s: float, monkeypatch: Any
) -> None:
    lengths: list[float] = []

    def embed(part: SoundSegment) -> Any:
        lengths.append(len(part.samples) / part.rate)
        return np.ones(extractor.dimension)

    extractor = load_extractor(MODEL_FOLDER / "small.onnx")
    monkeypatch.setattr(extractor, "embed", embed)
    heard = process_recording(extractor, _recording(before_s, after_s), Settings())
    assert heard.reason is None
    assert lengths == [pytest.approx(1.5 + before_s + after_s, abs=0.01)]
    assert heard.quality is not None
    assert heard.quality.durationS == pytest.approx(
        1.5 + before_s + after_s, abs=0.01
    )  # of what was sent
