"""Make the ONNX graph of the extractor `words` that the package ships; weights stay in the file of Google's network.

    python -m benchmarks.words_graph embedding_model.onnx

The original network reads overlapping windows of 76 frames, without padding in time. This graph reads a whole recording
and computes shared parts of the windows once: pooling over time keeps every frame, and later layers are dilated by the
factor of the pooling. The output has one row for each frame at which a window can start, equal in all bits to the
original network's output for this window. Weights are external data, given by offsets in the downloaded file.
"""

from __future__ import annotations

import sys
from pathlib import Path

import onnx
from onnx import TensorProto, helper

OUTPUT = Path(__file__).parents[1] / "src/mvplda/voice/extractors/recipes/words.onnx"


def set_attribute(node, name, value):
    for attribute in [one for one in node.attribute if one.name == name]:
        node.attribute.remove(attribute)
    node.attribute.append(helper.make_attribute(name, value))


def undecimated(graph):
    """Pooling over time without dropping frames, and dilation behind it."""
    dilation = 1
    for node in graph.node:
        if node.op_type not in ("Conv", "MaxPool"):
            continue
        values = {one.name: list(one.ints) for one in node.attribute}
        over_time = values["kernel_shape"][0] > 1
        set_attribute(node, "dilations", [dilation if over_time else 1, 1])
        if node.op_type == "MaxPool":
            in_time, in_bins = values["strides"]
            set_attribute(node, "strides", [1, in_bins])
            dilation *= in_time


def transposed(graph):
    """Transpositions for the two nodes that fix the time to 76 frames: (batch, time, bins, 1) in, a row a start out."""
    orders = {graph.input[0].name: [0, 3, 1, 2], graph.output[0].name: [0, 2, 3, 1]}
    for place, node in enumerate(graph.node):
        for port, order in orders.items():
            if node.op_type == "Reshape" and port in (node.input[0], node.output[0]):
                new = helper.make_node("Transpose", node.input[:1], node.output, perm=order)
                graph.node[place].CopyFrom(new)
    for port, name in ((graph.input[0], "time"), (graph.output[0], "starts")):
        port.type.tensor_type.shape.dim[0].dim_param = "batch"
        port.type.tensor_type.shape.dim[1].dim_param = name


def point_to(graph, path):
    """Weights by their place in the file."""
    data = path.read_bytes()
    used = {name for node in graph.node for name in node.input}
    kept = [tensor for tensor in graph.initializer if tensor.name in used]
    del graph.initializer[:]
    for tensor in kept:
        raw = tensor.raw_data
        start = data.find(raw)
        if len(raw) > 64 and data.count(raw) == 1:
            tensor.ClearField("raw_data")
            tensor.data_location = TensorProto.EXTERNAL
            about = {"location": path.name, "offset": start, "length": len(raw)}
            for key, value in about.items():
                tensor.external_data.add(key=key, value=str(value))
        graph.initializer.append(tensor)


def main() -> None:
    path = Path(sys.argv[1])
    model = onnx.load(path)
    undecimated(model.graph)
    transposed(model.graph)
    del model.graph.value_info[:]
    point_to(model.graph, path)
    OUTPUT.write_bytes(model.SerializeToString())


if __name__ == "__main__":
    main()
