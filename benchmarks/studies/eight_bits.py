"""The network `resnet` with 8-bit convolutions: time of a recording, and change of vectors and of cosines.

    python -m benchmarks.studies.eight_bits ../shared/data [-o results/eight-bits]

Static quantisation by onnxruntime, calibrated on recordings of C-VAU, measured on others. CPU seconds of one thread.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process

from benchmarks.report import study_command
from benchmarks.timing import best_of
from mvplda.voice.audio.decode import read_segments
from mvplda.voice.audio.speech_detection import SoundSegment
from mvplda.voice.extractors import load_extractor
from mvplda.voice.extractors.front_end import prepare_samples
from mvplda.voice.extractors.onnx_network import OnnxNetwork

CALIBRATION, MEASURED = 20, 40
FRAMES = 300
"""Frames of a recording that calibration uses."""

Feed = dict[str, Any]


class Recordings(CalibrationDataReader):  # type: ignore[misc]
    """Inputs that calibrate the quantisation."""

    def __init__(self, feeds: list[Feed]) -> None:
        self.feeds = iter(feeds)

    def get_next(self) -> Feed | None:
        return next(self.feeds, None)


def feed_of(network: OnnxNetwork, file: Path, most: int | None = None) -> Feed:
    """Return the inputs of the network for a recording."""
    samples = next(iter(read_segments(file, network.rate, network.segment_s)))
    frames = network.frames(prepare_samples(SoundSegment(samples, network.rate), network.recipe))
    batch = np.ascontiguousarray(frames[None, :most], dtype=np.float32)
    return {"fbank": batch, network.recipe.network.mask: np.ones(batch.shape[:2], np.float32)}


def unit_vector(session: Any, feed: Feed) -> Any:
    vector = session.run(None, feed)[0].ravel()
    return vector / np.linalg.norm(vector)


def session_of(path: str) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def study(data: Path) -> list[dict[str, Any]]:
    """Return one row: CPU seconds, cosines between both precisions, and changes of cosines between recordings."""
    (network,) = load_extractor("resnet").networks
    files = sorted((data / "cvau").rglob("*.flac"))
    order = np.random.default_rng(0).permutation(len(files))[: CALIBRATION + MEASURED]
    calibration = [feed_of(network, files[k], FRAMES) for k in order[:CALIBRATION]]
    feeds = [feed_of(network, files[k]) for k in order[CALIBRATION:]]
    with tempfile.TemporaryDirectory() as folder:
        prepared, quantised = f"{folder}/prepared.onnx", f"{folder}/quantised.onnx"
        quant_pre_process(str(network.path), prepared)
        quantize_static(
            prepared,
            quantised,
            Recordings(calibration),
            quant_format=QuantFormat.QDQ,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            per_channel=True,
        )
        sessions = {"float": session_of(str(network.path)), "8 bits": session_of(quantised)}
    seconds: dict[str, list[float]] = {name: [] for name in sessions}
    for feed in feeds:
        work = {
            name: lambda session=session, feed=feed: unit_vector(session, feed)
            for name, session in sessions.items()
        }
        for name, best in best_of(work, 3).items():
            seconds[name].append(best)
    vectors = {
        name: np.array([unit_vector(session, feed) for feed in feeds])
        for name, session in sessions.items()
    }
    same = np.sum(vectors["float"] * vectors["8 bits"], axis=1)
    pairs = np.triu_indices(len(feeds), 1)
    cosines = {name: (X @ X.T)[pairs] for name, X in vectors.items()}
    return [
        {
            "network": network.name,
            "recordings": len(feeds),
            "milliseconds": {
                name: round(1e3 * float(np.median(times)), 1) for name, times in seconds.items()
            },
            "times as fast": round(
                float(np.median(np.divide(seconds["float"], seconds["8 bits"]))), 2
            ),
            "cosine of both vectors": {
                "median": round(float(np.median(same)), 4),
                "least": round(float(same.min()), 4),
            },
            "change of a cosine between recordings": {
                "mean": round(float(np.mean(cosines["8 bits"] - cosines["float"])), 4),
                "standard deviation": round(float(np.std(cosines["8 bits"] - cosines["float"])), 4),
            },
        }
    ]


if __name__ == "__main__":
    study_command("eight-bits", __doc__, study, reads=["cvau"], title="resnet in 8 bits")
