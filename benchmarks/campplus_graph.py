"""Make the ONNX graph of CAM++ that the package ships; its weights stay in the checkpoint of 3D-Speaker.

    python -m benchmarks.campplus_graph campplus_cn_en_common.pt

A checkpoint of torch is a zip archive with uncompressed tensors. The graph refers to them as external data, by their
offsets in the file, so that users of the network need not unpickle or convert the checkpoint. This program unpickles it
once, to find the names of the tensors. CAM++ is the network of Wang et al., arXiv 2303.00332.
"""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper

OUTPUT = Path(__file__).parents[1] / "src/mvplda/voice/extractors/recipes/campplus.onnx"
LOCATION = "campplus.pt"
SEGMENT = 100
"""Frames over which a mask sees its nearer context."""
BLOCKS = ((12, 1), (24, 2), (16, 2))
"""Layers and dilation of the three dense blocks."""


class Graph:
    """Nodes of a graph, and where its weights are."""

    def __init__(self, path: Path) -> None:
        self.weights = torch.load(path, map_location="cpu", weights_only=True)
        self.places = {}
        with zipfile.ZipFile(path) as archive, path.open("rb") as file:
            stored = {}
            for member in archive.infolist():
                file.seek(member.header_offset + 26)
                lengths = np.frombuffer(file.read(4), "<u2")
                start = member.header_offset + 30 + int(lengths.sum())
                stored[archive.read(member)] = (start, member.file_size)
            for name, weight in self.weights.items():
                # equal bytes are equal weights, wherever they are stored
                self.places[name] = stored[weight.numpy().tobytes()]
        self.nodes = []
        self.tensors = {}

    def node(self, kind, *inputs, output=None, **attributes):
        """Add a node; what comes back is the name of its output."""
        output = output or f"{kind}{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [output], **attributes))
        return output

    def constant(self, name, values):
        """A tensor that is in the graph itself."""
        self.tensors[name] = numpy_helper.from_array(np.asarray(values), name)
        return name

    def weight(self, name):
        """A tensor of the checkpoint."""
        start, length = self.places[name]
        tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=self.weights[name].shape)
        tensor.data_location = TensorProto.EXTERNAL
        about = {"location": LOCATION, "offset": start, "length": length}
        for key, value in about.items():
            tensor.external_data.add(key=key, value=str(value))
        self.tensors[name] = tensor
        return name

    def conv(self, x, name, **attributes):
        """A convolution, with its bias where the checkpoint has one."""
        inputs = [x, self.weight(f"{name}.weight")]
        if f"{name}.bias" in self.weights:
            inputs.append(self.weight(f"{name}.bias"))
        return self.node("Conv", *inputs, **attributes)

    def norm(self, x, name):
        """Batch normalisation by the means and variances of training."""
        inputs = []
        width = len(self.weights[f"{name}.running_mean"])
        for part, default in (("weight", np.ones), ("bias", np.zeros)):
            known = f"{name}.{part}"
            constant = default(width, np.float32)
            inputs.append(
                self.weight(known) if known in self.weights else self.constant(known, constant)
            )
        inputs += [self.weight(f"{name}.running_mean"), self.weight(f"{name}.running_var")]
        return self.node("BatchNormalization", x, *inputs)

    def activated(self, x, name):
        """Normalised, negative numbers cut to 0."""
        return self.node("Relu", self.norm(x, name))

    def model(self):
        ports = [("frames", ["batch", "time", 80]), ("embedding", ["batch", 192])]
        frames, embedding = (
            helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in ports
        )
        graph = helper.make_graph(
            self.nodes, "campplus", [frames], [embedding], list(self.tensors.values())
        )
        opsets = [helper.make_opsetid("", 17)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def campplus(graph):
    """A convolutional head over time and frequency, then a densely connected time-delay network whose layers are
    masked by what they see around them: ``frames`` (batch, time, 80) in, ``embedding`` (batch, 192) out."""
    x = graph.node("Transpose", "frames", perm=[0, 2, 1])
    x = graph.node("Unsqueeze", x, graph.constant("one", [1]))
    x = head(graph, x)
    x = graph.conv(x, "xvector.tdnn.linear", strides=[2], pads=[2, 2])
    x = graph.activated(x, "xvector.tdnn.nonlinear.batchnorm")
    time = graph.node("Shape", x, start=2)
    segments = segment_numbers(graph, time)
    for number, (layers, dilation) in enumerate(BLOCKS, start=1):
        for layer in range(1, layers + 1):
            name = f"xvector.block{number}.tdnnd{layer}"
            seen = masked(graph, x, name, dilation, segments)
            x = graph.node("Concat", x, seen, axis=1)
        x = graph.activated(x, f"xvector.transit{number}.nonlinear.batchnorm")
        x = graph.conv(x, f"xvector.transit{number}.linear")
    x = graph.activated(x, "xvector.out_nonlinear.batchnorm")
    x = statistics(graph, x, time)
    x = graph.conv(x, "xvector.dense.linear")
    x = graph.norm(x, "xvector.dense.nonlinear.batchnorm")
    graph.node("Squeeze", x, graph.constant("last", [2]), output="embedding")


def head(graph, x):
    """Residual convolutions that leave an eighth of the bins and all of the time."""
    x = graph.activated(graph.conv(x, "head.conv1", pads=[1] * 4), "head.bn1")
    for layer in ("layer1", "layer2"):
        x = residual(graph, x, f"head.{layer}.0", 2)
        x = residual(graph, x, f"head.{layer}.1", 1)
    x = graph.conv(x, "head.conv2", strides=[2, 1], pads=[1] * 4)
    x = graph.activated(x, "head.bn2")
    channels = graph.weights["xvector.tdnn.linear.weight"].shape[1]
    return graph.node("Reshape", x, graph.constant("flat", [0, channels, -1]))


def residual(graph, x, name, stride):
    inner = graph.conv(x, f"{name}.conv1", strides=[stride, 1], pads=[1] * 4)
    inner = graph.activated(inner, f"{name}.bn1")
    inner = graph.norm(graph.conv(inner, f"{name}.conv2", pads=[1] * 4), f"{name}.bn2")
    if stride > 1:
        narrow = graph.conv(x, f"{name}.shortcut.0", strides=[stride, 1])
        x = graph.norm(narrow, f"{name}.shortcut.1")
    return graph.node("Relu", graph.node("Add", inner, x))


def segment_numbers(graph, time):
    """(time,) the number of each frame's segment."""
    zero = graph.constant("zero", np.int64(0))
    step = graph.constant("step", np.int64(1))
    end = graph.node("Squeeze", time, graph.constant("first", [0]))
    frames = graph.node("Range", zero, end, step)
    return graph.node("Div", frames, graph.constant("segment", np.int64(SEGMENT)))


def masked(graph, x, name, dilation, segments):
    """A dilated convolution, and a mask from the mean over all time and over the segment of each frame."""
    x = graph.activated(x, f"{name}.nonlinear1.batchnorm")
    x = graph.conv(x, f"{name}.linear1")
    x = graph.activated(x, f"{name}.nonlinear2.batchnorm")
    local = graph.conv(
        x, f"{name}.cam_layer.linear_local", dilations=[dilation], pads=[dilation, dilation]
    )
    everything = graph.node("ReduceMean", x, axes=[2], keepdims=1)
    # the last segment has what is left of the time, and its mean is over that
    means = graph.node("AveragePool", x, kernel_shape=[SEGMENT], strides=[SEGMENT], ceil_mode=1)
    context = graph.node("Add", means, everything)
    context = graph.node("Relu", graph.conv(context, f"{name}.cam_layer.linear1"))
    mask = graph.node("Sigmoid", graph.conv(context, f"{name}.cam_layer.linear2"))
    # a mask for each segment, which all of its frames have
    return graph.node("Mul", local, graph.node("Gather", mask, segments, axis=2))


def statistics(graph, x, time):
    """Mean and deviation over time."""
    mean = graph.node("ReduceMean", x, axes=[2], keepdims=1)
    centred = graph.node("Sub", x, mean)
    variance = graph.node("ReduceMean", graph.node("Mul", centred, centred), axes=[2], keepdims=1)
    count = graph.node("Cast", time, to=TensorProto.FLOAT)
    less = graph.node("Sub", count, graph.constant("unit", np.float32(1)))
    variance = graph.node("Mul", variance, graph.node("Div", count, less))
    return graph.node("Concat", mean, graph.node("Sqrt", variance), axis=1)


def main() -> None:
    graph = Graph(Path(sys.argv[1]))
    campplus(graph)
    onnx.save_model(graph.model(), OUTPUT)


if __name__ == "__main__":
    main()
