"""CAM++, whose weights come as tensors, written as an ONNX graph: neither torch nor onnx is needed for it.

The names of weights are those of the checkpoint. CAM++ is that of Wang et al., arXiv 2303.00332.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ..exceptions import FileFormatError
from .checkpoints import Tensor

Attribute = int | Sequence[int]

IR_VERSION = 8
OPSET = 17
FLOAT, INT64 = 1, 7
VARINT, BYTES = 0, 2

SEGMENT = 100
"""Frames over which a mask of CAM++ sees its nearer context."""
BLOCKS = ((12, 1), (24, 2), (16, 2))
"""Layers and dilation of the three dense blocks of CAM++."""


def build_campplus(weights: Mapping[str, Tensor]) -> bytes:
    """CAM++ with its weights as an ONNX file: ``frames`` (batch, time, 80) in, ``embedding`` (batch, 192) out.

    A convolutional head over time and frequency, then a densely connected time-delay network whose layers are masked
    by what they see around them.
    """
    graph = Graph(weights)
    try:
        _campplus(graph)
    except KeyError as error:
        raise FileFormatError(f"the weights of campplus lack {error}") from error
    return graph.to_bytes("campplus", 80, 192)


class Graph:
    """Nodes of an ONNX graph, and the weights that they use."""

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        self.weights = weights
        self._nodes: list[bytes] = []
        self._tensors: dict[str, bytes] = {}

    def node(
        self, kind: str, *inputs: str, output: str | None = None, **attributes: Attribute
    ) -> str:
        """Add a node; what comes back is the name of its output."""
        output = output or f"{kind}{len(self._nodes)}"
        fields = [_text(1, name) for name in inputs]
        fields += [_text(2, output), _text(4, kind)]
        fields += [_bytes(5, _attribute(name, value)) for name, value in attributes.items()]
        self._nodes.append(b"".join(fields))
        return output

    def constant(self, name: str, values: object) -> str:
        """A tensor of the graph."""
        array = np.asarray(values)
        kind, dtype = (INT64, "<i8") if array.dtype.kind == "i" else (FLOAT, "<f4")
        fields = [_number(1, length) for length in array.shape]
        fields += [_number(2, kind), _text(8, name)]
        fields += [_bytes(9, np.ascontiguousarray(array, dtype=dtype).tobytes())]
        self._tensors[name] = b"".join(fields)
        return name

    def weight(self, name: str) -> str:
        """A tensor of the checkpoint."""
        return self.constant(name, self.weights[name])

    def conv(self, x: str, name: str, **attributes: Attribute) -> str:
        """A convolution, with its bias where the checkpoint has one."""
        inputs = [x, self.weight(f"{name}.weight")]
        if f"{name}.bias" in self.weights:
            inputs.append(self.weight(f"{name}.bias"))
        return self.node("Conv", *inputs, output=None, **attributes)

    def norm(self, x: str, name: str) -> str:
        """Batch normalisation by the means and variances of training."""
        mean = self.weights[f"{name}.running_mean"]
        scale = self.weights.get(f"{name}.weight", np.ones_like(mean))
        bias = self.weights.get(f"{name}.bias", np.zeros_like(mean))
        return self.node(
            "BatchNormalization",
            x,
            self.constant(f"{name}.weight", scale),
            self.constant(f"{name}.bias", bias),
            self.constant(f"{name}.running_mean", mean),
            self.weight(f"{name}.running_var"),
        )

    def activated(self, x: str, name: str) -> str:
        """Normalised, negative numbers cut to 0."""
        return self.node("Relu", self.norm(x, name))

    def to_bytes(self, name: str, bins: int, width: int) -> bytes:
        """The file: a ModelProto in the wire format of protocol buffers."""
        graph = b"".join(
            [
                *(_bytes(1, node) for node in self._nodes),
                _text(2, name),
                *(_bytes(5, tensor) for tensor in self._tensors.values()),
                _bytes(11, _port("frames", ["batch", "time", bins])),
                _bytes(12, _port("embedding", ["batch", width])),
            ]
        )
        opset = _text(1, "") + _number(2, OPSET)
        return _number(1, IR_VERSION) + _bytes(7, graph) + _bytes(8, opset)


def _campplus(graph: Graph) -> None:
    x = graph.node("Transpose", "frames", perm=[0, 2, 1])
    x = graph.node("Unsqueeze", x, graph.constant("one", [1]))
    x = _head(graph, x)
    x = graph.conv(x, "xvector.tdnn.linear", strides=[2], pads=[2, 2])
    x = graph.activated(x, "xvector.tdnn.nonlinear.batchnorm")
    time = graph.node("Shape", x, start=2)
    segments = _segments(graph, time)
    for number, (layers, dilation) in enumerate(BLOCKS, start=1):
        for layer in range(1, layers + 1):
            name = f"xvector.block{number}.tdnnd{layer}"
            seen = _masked(graph, x, name, dilation, segments)
            x = graph.node("Concat", x, seen, axis=1)
        x = graph.activated(x, f"xvector.transit{number}.nonlinear.batchnorm")
        x = graph.conv(x, f"xvector.transit{number}.linear")
    x = graph.activated(x, "xvector.out_nonlinear.batchnorm")
    x = _statistics(graph, x, time)
    x = graph.conv(x, "xvector.dense.linear")
    x = graph.norm(x, "xvector.dense.nonlinear.batchnorm")
    graph.node("Squeeze", x, graph.constant("last", [2]), output="embedding")


def _head(graph: Graph, x: str) -> str:
    """Residual convolutions that leave an eighth of the bins and all of the time."""
    x = graph.activated(graph.conv(x, "head.conv1", pads=[1] * 4), "head.bn1")
    for layer in ("layer1", "layer2"):
        x = _residual(graph, x, f"head.{layer}.0", 2)
        x = _residual(graph, x, f"head.{layer}.1", 1)
    x = graph.conv(x, "head.conv2", strides=[2, 1], pads=[1] * 4)
    x = graph.activated(x, "head.bn2")
    channels = graph.weights["xvector.tdnn.linear.weight"].shape[1]
    return graph.node("Reshape", x, graph.constant("flat", [0, channels, -1]))


def _residual(graph: Graph, x: str, name: str, stride: int) -> str:
    inner = graph.conv(x, f"{name}.conv1", strides=[stride, 1], pads=[1] * 4)
    inner = graph.activated(inner, f"{name}.bn1")
    inner = graph.norm(graph.conv(inner, f"{name}.conv2", pads=[1] * 4), f"{name}.bn2")
    if stride > 1:
        narrow = graph.conv(x, f"{name}.shortcut.0", strides=[stride, 1])
        x = graph.norm(narrow, f"{name}.shortcut.1")
    return graph.node("Relu", graph.node("Add", inner, x))


def _segments(graph: Graph, time: str) -> str:
    """(time,) the number of each frame's segment."""
    zero = graph.constant("zero", np.int64(0))
    step = graph.constant("step", np.int64(1))
    end = graph.node("Squeeze", time, graph.constant("first", [0]))
    frames = graph.node("Range", zero, end, step)
    return graph.node("Div", frames, graph.constant("segment", np.int64(SEGMENT)))


def _masked(graph: Graph, x: str, name: str, dilation: int, segments: str) -> str:
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
    nearer = graph.node("Gather", means, segments, axis=2)
    context = graph.node("Add", nearer, everything)
    context = graph.node("Relu", graph.conv(context, f"{name}.cam_layer.linear1"))
    mask = graph.node("Sigmoid", graph.conv(context, f"{name}.cam_layer.linear2"))
    return graph.node("Mul", local, mask)


def _statistics(graph: Graph, x: str, time: str) -> str:
    """Mean and deviation over time."""
    mean = graph.node("ReduceMean", x, axes=[2], keepdims=1)
    centred = graph.node("Sub", x, mean)
    variance = graph.node("ReduceMean", graph.node("Mul", centred, centred), axes=[2], keepdims=1)
    count = graph.node("Cast", time, to=FLOAT)
    less = graph.node("Sub", count, graph.constant("unit", np.float32(1)))
    variance = graph.node("Mul", variance, graph.node("Div", count, less))
    return graph.node("Concat", mean, graph.node("Sqrt", variance), axis=1)


# The wire format: a field is its number and type, then a number or a length and so many bytes.


def _varint(value: int) -> bytes:
    value &= 2**64 - 1  # a negative number is its two's complement in 64 bits
    groups = bytearray()
    while value > 127:
        groups.append(value & 127 | 128)
        value >>= 7
    groups.append(value)
    return bytes(groups)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3 | VARINT) + _varint(int(value))


def _bytes(field: int, data: bytes) -> bytes:
    return _varint(field << 3 | BYTES) + _varint(len(data)) + data


def _text(field: int, text: str) -> bytes:
    return _bytes(field, text.encode())


def _attribute(name: str, value: Attribute) -> bytes:
    if isinstance(value, int):
        return _text(1, name) + _number(3, value) + _number(20, 2)
    return _text(1, name) + b"".join(_number(8, item) for item in value) + _number(20, 7)


def _port(name: str, shape: Sequence[str | int]) -> bytes:
    """A name with its type: a tensor of floats, whose lengths are numbers or names."""
    dimensions = b""
    for length in shape:
        known = isinstance(length, int)
        dimensions += _bytes(1, _number(1, int(length)) if known else _text(2, str(length)))
    tensor = _number(1, FLOAT) + _bytes(2, dimensions)
    return _text(1, name) + _bytes(2, _bytes(1, tensor))
