"""The network of the detector: training with torch, and export to ONNX."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mvplda._typing import BoolArray
from mvplda.voice.spoof_detector import CALIBRATION, SpoofCalibration

Vectors = NDArray[np.float32]
Scores = NDArray[np.float64]

HIDDEN = (96, 32)
DROPOUT = (0.5, 0.3)
MEMBERS = 3
"""Networks whose raw scores are averaged."""
BATCH = 64
EPOCHS = 10
LEARNING_RATE = 2e-3
WEIGHT_DECAY = 0.05
NOISE = 0.2
"""Deviation of the noise on standardised statistics in training."""
MAX_DEVIATION = 5.0


class SpoofNetwork(nn.Module):
    """Mean of several networks with two hidden layers, which read the standardised statistics of a recording.

    The result is one raw score per recording, which is higher for people than for attacks.
    """

    mean: Tensor
    scale: Tensor

    def __init__(self, mean: Vectors, deviation: Vectors, members: int = MEMBERS) -> None:
        super().__init__()
        self.register_buffer("mean", torch.from_numpy(mean))
        self.register_buffer("scale", torch.from_numpy(1 / np.maximum(deviation, 1e-6)))
        self.members = nn.ModuleList([_member(len(mean)) for _ in range(members)])

    def standardised(self, statistics: Tensor) -> Tensor:
        """Return (batch, columns) statistics with mean 0 and standard deviation 1 per column, clipped to a limit."""
        return ((statistics - self.mean) * self.scale).clamp(-MAX_DEVIATION, MAX_DEVIATION)

    def forward(self, statistics: Tensor) -> Tensor:
        """Return (batch, 1) raw scores of (batch, columns) statistics."""
        inputs = self.standardised(statistics)
        return torch.stack([member(inputs) for member in self.members]).mean(dim=0)


def _member(width: int) -> nn.Module:
    layers: list[nn.Module] = []
    for size, dropout in zip(HIDDEN, DROPOUT, strict=True):
        layers += [nn.Linear(width, size), nn.ReLU(), nn.Dropout(dropout)]
        width = size
    return nn.Sequential(*layers, nn.Linear(width, 1))


def train_network(
    vectors: Vectors,
    is_person: BoolArray,
    weights: Scores,
    seed: int = 0,
    epochs: int = EPOCHS,
    members: int = MEMBERS,
) -> SpoofNetwork:
    """Return a network that is trained to separate recordings of people from attacks.

    Parameters
    ----------
    vectors : (n, columns) statistics of recordings
    is_person : (n,) True for people, False for attacks
    weights : (n,) weight of each recording
    seed : seed of initial weights and batches
    epochs : number of passes over the recordings
    members : number of networks whose scores are averaged
    """
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    rng = np.random.default_rng(seed)
    network = SpoofNetwork(vectors.mean(axis=0), vectors.std(axis=0), members)
    network.train()
    inputs = network.standardised(torch.from_numpy(vectors))
    targets = torch.from_numpy(is_person.astype(np.float32))
    sample_weights = torch.from_numpy(weights.astype(np.float32))
    loss_of = nn.BCEWithLogitsLoss(reduction="none")
    for member in network.members:
        optimiser = torch.optim.AdamW(
            member.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY
        )
        for _ in range(epochs):
            for batch in np.array_split(rng.permutation(len(vectors)), -(-len(vectors) // BATCH)):
                rows = torch.from_numpy(batch)
                noisy = inputs[rows] + NOISE * torch.randn(len(batch), vectors.shape[1])
                losses = loss_of(member(noisy)[:, 0], targets[rows])
                loss = (losses * sample_weights[rows]).mean()
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
    return network.eval()


def raw_scores(network: SpoofNetwork, vectors: Vectors) -> Scores:
    """Return the (n,) raw scores of recordings from their (n, columns) statistics."""
    with torch.inference_mode():
        scores = network(torch.from_numpy(vectors))[:, 0]
    return np.asarray(scores.numpy(), np.float64)


def export(network: SpoofNetwork, calibration: SpoofCalibration, path: Path) -> None:
    """Write the network and its calibration to an ONNX file."""
    from onnx import TensorProto, helper, numpy_helper, save

    values = {
        "mean": network.mean,
        "scale": network.scale,
        "least": torch.tensor(-MAX_DEVIATION),
        "most": torch.tensor(MAX_DEVIATION),
    }
    nodes = [
        helper.make_node("Sub", ["statistics", "mean"], ["centred"]),
        helper.make_node("Mul", ["centred", "scale"], ["scaled"]),
        helper.make_node("Clip", ["scaled", "least", "most"], ["inputs"]),
    ]
    outputs = []
    for number, member in enumerate(network.members):
        name = "inputs"
        for layer, module in enumerate(member.children()):
            result = f"{number}.{layer}"
            if isinstance(module, nn.Linear):
                weights = [f"{result}.weight", f"{result}.bias"]
                values |= dict(zip(weights, (module.weight, module.bias), strict=True))
                nodes.append(helper.make_node("Gemm", [name, *weights], [result], transB=1))
            elif isinstance(module, nn.ReLU):
                nodes.append(helper.make_node("Relu", [name], [result]))
            else:
                # dropout is used in training only
                continue
            name = result
        outputs.append(name)
    nodes.append(helper.make_node("Mean", outputs, ["score"]))
    ports = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [None, width])
        for name, width in (("statistics", len(network.mean)), ("score", 1))
    ]
    initialisers = [
        numpy_helper.from_array(value.detach().numpy(), name) for name, value in values.items()
    ]
    graph = helper.make_graph(nodes, "spoof detector", ports[:1], ports[1:], initialisers)
    # versions that onnxruntime reads since 1.11
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 15)], ir_version=8)
    helper.set_model_props(model, {CALIBRATION: json.dumps(asdict(calibration))})
    save(model, path)
