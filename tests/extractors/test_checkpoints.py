"""Weights out of torch's checkpoints without torch, and the networks that they are put into."""

from __future__ import annotations

import io
import pickle
import zipfile
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest

from mvplda.exceptions import FileFormatError
from mvplda.extractors.checkpoints import Pointer, read_tensors
from mvplda.extractors.graphs import BLOCKS, Graph, build_campplus

RECIPES = Path(__file__).parents[2] / "src" / "mvplda" / "extractors" / "recipes"


class _Global:
    """Pickled as a name in a module, with arguments to call it with."""

    def __init__(self, function, *arguments):
        self.function, self.arguments = function, arguments

    def __reduce__(self):
        return self.function, self.arguments


def _archive(contents) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(contents, 2))
    return file.getvalue()


def test_tensors_are_those_that_torch_saved():
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    matrix = torch.randn(4, 6)
    state = OrderedDict(
        a=matrix, turned=matrix.t(), row=matrix[2], n=torch.tensor(7), half=matrix.half()
    )
    file = io.BytesIO()
    torch.save({**state, "step": 3}, file)
    read = read_tensors(file.getvalue())
    assert set(read) == set(state)
    for name, tensor in state.items():
        np.testing.assert_array_equal(read[name], tensor.numpy())


@pytest.mark.parametrize("function", [print, eval, pickle.loads])
def test_nothing_else_in_a_checkpoint_is_run(function, capsys):
    with pytest.raises(FileFormatError, match="which is no tensor"):
        read_tensors(_archive(OrderedDict(a=_Global(function, b"x"))))
    assert capsys.readouterr().out == ""


def test_damaged_checkpoints_are_errors_with_a_name():
    torch = pytest.importorskip("torch")
    file = io.BytesIO()
    torch.save(OrderedDict(a=torch.zeros(3)), file)
    whole = file.getvalue()
    for data in (b"", b"no checkpoint", whole[:-4], whole[: len(whole) // 2]):
        with pytest.raises(FileFormatError):
            read_tensors(data)
    with pytest.raises(IndexError):  # a tensor that reaches beyond what is stored
        Pointer("0", "<f4", 1, (3,), (1,)).read(bytes(12))


def test_a_graph_computes_what_its_nodes_are_called():
    runtime = pytest.importorskip("onnxruntime")
    rng = np.random.default_rng(0)
    weights = {"c.weight": rng.normal(size=(5, 3, 1)), "c.bias": rng.normal(size=5)}
    weights |= {"n.running_mean": rng.normal(size=5), "n.running_var": rng.uniform(1, 2, 5)}
    graph = Graph(weights)
    x = graph.node("Transpose", "frames", perm=[0, 2, 1])
    x = graph.activated(graph.conv(x, "c"), "n")
    graph.node("ReduceMean", x, axes=[2], keepdims=0, output="embedding")
    session = runtime.InferenceSession(graph.to_bytes("small", 3, 5))
    frames = rng.normal(size=(2, 7, 3)).astype(np.float32)
    (vectors,) = session.run(None, {"frames": frames})
    inner = frames @ weights["c.weight"][:, :, 0].T + weights["c.bias"]
    inner = (inner - weights["n.running_mean"]) / np.sqrt(weights["n.running_var"] + 1e-5)
    np.testing.assert_allclose(vectors, np.maximum(inner, 0).mean(axis=1), atol=1e-5)


def test_segments_of_the_masks_have_their_own_means():
    """The mean over 100 frames, of the last segment over what is left of the time."""
    runtime = pytest.importorskip("onnxruntime")
    graph = Graph({})
    x = graph.node("Transpose", "frames", perm=[0, 2, 1])
    means = graph.node("AveragePool", x, kernel_shape=[100], strides=[100], ceil_mode=1)
    graph.node("ReduceMean", means, axes=[2], keepdims=0, output="embedding")
    session = runtime.InferenceSession(graph.to_bytes("small", 2, 2))
    for time in (1, 99, 100, 101, 250):
        frames = np.random.default_rng(time).normal(size=(1, time, 2)).astype(np.float32)
        parts = [frames[0, k : k + 100].mean(axis=0) for k in range(0, time, 100)]
        (vectors,) = session.run(None, {"frames": frames})
        np.testing.assert_allclose(vectors[0], np.mean(parts, axis=0), atol=1e-5)


def test_missing_weights_are_named():
    assert sum(layers for layers, _ in BLOCKS) == 52
    with pytest.raises(
        FileFormatError, match=r"the weights of campplus lack 'head\.conv1\.weight'"
    ):
        build_campplus({})


def test_tests_of_extractors_leave_the_recipes_as_they_are():
    """Golden numbers are compared with, never made anew by a test: their maker runs as a program only."""
    maker = Path(__file__).parents[1] / "golden" / "make_recipes.py"
    before = {file: file.read_bytes() for file in RECIPES.glob("*.toml")}
    names: dict = {"__name__": "imported"}
    exec(compile(maker.read_text(encoding="utf-8"), str(maker), "exec"), names)
    assert callable(names["main"])
    assert {file: file.read_bytes() for file in RECIPES.glob("*.toml")} == before
