"""Windows that overlap: what they share is computed once, and gives the same vectors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from extractor_problems import network, onnx, voice

from mvplda.voice.extractors.onnx_network import OnnxNetwork
from mvplda.voice.extractors.recipe import Features, Network, Recipe, Windows

FRAMES = 18
BINS = 20


def window_model():
    """Convolutions and pooling over time, without padding: 18 frames in, one vector out."""
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(0)
    shapes = {"A": (4, 1, 3, 1), "B": (5, 4, 3, 1), "C": (6, 5, 3, BINS)}
    tensors = [
        numpy_helper.from_array(rng.normal(size=shape).astype(np.float32), name)
        for name, shape in shapes.items()
    ]
    tensors.append(numpy_helper.from_array(np.array([-1, 1, FRAMES, BINS]), "in"))
    tensors.append(numpy_helper.from_array(np.array([-1, 1, 1, 6]), "out"))
    node = helper.make_node
    halved = {"kernel_shape": [2, 1], "strides": [2, 1]}
    nodes = [
        node("Reshape", ["frames", "in"], ["x"]),
        node("Conv", ["x", "A"], ["a"], kernel_shape=[3, 1]),
        node("MaxPool", ["a"], ["b"], **halved),
        node("Conv", ["b", "B"], ["c"], kernel_shape=[3, 1]),
        node("MaxPool", ["c"], ["d"], **halved),
        node("Conv", ["d", "C"], ["e"], kernel_shape=[3, BINS]),
        node("Reshape", ["e", "out"], ["vector"]),
    ]
    ports = [("frames", ["batch", FRAMES, BINS, 1]), ("vector", ["batch", 1, 1, 6])]
    frames, vector = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in ports
    )
    graph = helper.make_graph(nodes, "windows", [frames], [vector], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture
def networks(tmp_path, monkeypatch) -> tuple[OnnxNetwork, OnnxNetwork]:
    """A network of one window, and the same for all windows at once."""
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[3]))
    from benchmarks import words_graph

    recipe = Recipe(
        "windows",
        features=Features(bins=BINS),
        network=Network(output="vector", layout="time-bins-one"),
        windows=Windows(FRAMES, 4, "thirds"),
    )
    model = window_model()
    onnx.save_model(model, tmp_path / "one.onnx")
    words_graph.undecimated(model.graph)
    words_graph.transposed(model.graph)
    onnx.save_model(model, tmp_path / "all.onnx")
    one, every = (OnnxNetwork(tmp_path / f"{name}.onnx", recipe) for name in ("one", "all"))
    return one, every


@pytest.mark.parametrize("seconds", [0.3, 0.77, 2.0, 5.0])
def test_windows_that_are_computed_together_are_those_that_are_computed_apart(networks, seconds):
    one, every = networks
    assert (one.has_all_starts, every.has_all_starts) == (False, True)
    sound = voice(seconds)
    np.testing.assert_allclose(every.embed(sound), one.embed(sound), rtol=1e-5, atol=1e-5)


def test_a_network_without_windows_has_no_starts(tmp_path):
    assert not OnnxNetwork(network(tmp_path / "small.onnx")).has_all_starts
