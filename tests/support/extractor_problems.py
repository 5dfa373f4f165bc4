"""Small networks in ONNX files and recordings, for the tests of extractors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mvplda.voice.audio.decode import golden_signal

onnx = pytest.importorskip(
    "onnx", reason="onnx is not installed, which makes the networks of these tests"
)
soundfile = pytest.importorskip(
    "soundfile", reason="soundfile is not installed, which reads and writes sound"
)
for _module in ("onnxruntime", "soxr", "kaldi_native_fbank"):
    pytest.importorskip(_module, reason=f"{_module} is not installed, which extractors need")

RATE = 16000


def network(
    path: Path,
    inputs=("feats",),
    output="embs",
    bins=80,
    dimension=6,
    seed=0,
    bins_first=False,
    samples=False,
    family="wespeaker",
) -> Path:
    """A network that averages over time and mixes what is left: x (B, T, bins) -> mean of tanh(x) W."""
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(seed)
    weights = rng.normal(size=(1 if samples else bins, dimension)).astype(np.float32)
    first, nodes = inputs[0], []
    if samples:
        shape = ["B", "N"]
        nodes.append(helper.make_node("Unsqueeze", [first, "last"], ["inner"]))
    elif bins_first:
        shape = ["B", bins, "T"]
        nodes.append(helper.make_node("Transpose", [first], ["inner"], perm=[0, 2, 1]))
    else:
        shape = ["B", "T", bins]
        nodes.append(helper.make_node("Identity", [first], ["inner"]))
    nodes += [
        helper.make_node("MatMul", ["inner", "W"], ["y"]),
        helper.make_node("Tanh", ["y"], ["z"]),
        helper.make_node("ReduceMean", ["z", "time"], [output], keepdims=0),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [
            helper.make_tensor_value_info(first, TensorProto.FLOAT, shape),
            *(helper.make_tensor_value_info(name, TensorProto.INT64, ["B"]) for name in inputs[1:]),
        ],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, ["B", dimension])],
        [
            numpy_helper.from_array(weights, "W"),
            numpy_helper.from_array(np.array([1], dtype=np.int64), "time"),
            numpy_helper.from_array(np.array([2], dtype=np.int64), "last"),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    path.write_bytes(model.SerializeToString())
    if family:
        path.with_suffix(".toml").write_text(f'family = "{family}"\n')
    return path


def voice(seconds: float = 2.0, pitch: float = 1.0, seed: int = 0) -> np.ndarray:
    """The test signal at another speed, so that it is another voice, in other noise."""
    base = np.tile(golden_signal(RATE), 1 + int(seconds * pitch / 2.4))
    places = np.arange(int(seconds * RATE)) * pitch
    rng = np.random.default_rng(seed)
    sound = np.interp(places, np.arange(len(base)), base) + 1e-3 * rng.normal(size=len(places))
    return sound.astype(np.float32)


def write(path: Path, samples: np.ndarray, rate: int = RATE, **options) -> Path:
    soundfile.write(path, samples, rate, **options)
    return path
