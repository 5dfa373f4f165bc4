"""Networks whose weights come as a state dict, written here so that no code of theirs has to run.

The names of modules are those of the state dicts. CAM++ is that of Wang et al., arXiv 2303.00332; the other is the
encoder of Wan et al., arXiv 1710.10467.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from ..exceptions import FileFormatError

Tensor = torch.Tensor

SEGMENT = 100
"""Frames over which a mask of CAM++ sees its nearer context."""

BLOCKS = ((12, 1), (24, 2), (16, 2))
"""Layers and dilation of the three dense blocks of CAM++."""


class CAMPlusPlus(nn.Module):
    """Frames (batch, time, bins) to vectors (batch, 192): a convolutional head over time and frequency, then a
    densely connected time-delay network whose layers are masked by what they see around them."""

    def __init__(
        self, bins: int = 80, dimension: int = 192, growth: int = 32, width: int = 128
    ) -> None:
        super().__init__()
        self.head = _Head()
        channels = 128
        parts: OrderedDict[str, nn.Module] = OrderedDict()
        parts["tdnn"] = _named(
            linear=nn.Conv1d(32 * (bins // 8), channels, 5, stride=2, padding=2, bias=False),
            nonlinear=_activated(channels),
        )
        for number, (layers, dilation) in enumerate(BLOCKS, start=1):
            parts[f"block{number}"] = _Dense(channels, growth, width, layers, dilation)
            channels += layers * growth
            parts[f"transit{number}"] = _named(
                nonlinear=_activated(channels),
                linear=nn.Conv1d(channels, channels // 2, 1, bias=False),
            )
            channels //= 2
        parts["out_nonlinear"] = _activated(channels)
        parts["stats"] = _Statistics()
        parts["dense"] = _named(
            linear=nn.Conv1d(2 * channels, dimension, 1, bias=False),
            nonlinear=_named(batchnorm=nn.BatchNorm1d(dimension, affine=False)),
        )
        self.xvector = nn.Sequential(parts)

    def forward(self, frames: Tensor) -> Tensor:
        vectors: Tensor = self.xvector(self.head(frames.transpose(1, 2)))
        return vectors.squeeze(-1)


class _Head(nn.Module):
    """Residual convolutions that leave an eighth of the bins and all of the time."""

    def __init__(self, channels: int = 32) -> None:
        super().__init__()
        self.conv1 = _square(1, channels)
        self.bn1 = nn.BatchNorm2d(channels)
        self.layer1 = nn.Sequential(_Residual(channels, 2), _Residual(channels, 1))
        self.layer2 = nn.Sequential(_Residual(channels, 2), _Residual(channels, 1))
        self.conv2 = _square(channels, channels, 2)
        self.bn2 = nn.BatchNorm2d(channels)

    def forward(self, bins: Tensor) -> Tensor:
        x = F.relu(self.bn1(self.conv1(bins.unsqueeze(1))))
        x = F.relu(self.bn2(self.conv2(self.layer2(self.layer1(x)))))
        return x.flatten(1, 2)


class _Residual(nn.Module):
    def __init__(self, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = _square(channels, channels, stride), nn.BatchNorm2d(channels)
        self.conv2, self.bn2 = _square(channels, channels), nn.BatchNorm2d(channels)
        narrow = nn.Conv2d(channels, channels, 1, stride=(stride, 1), bias=False)
        self.shortcut = (
            nn.Sequential(narrow, nn.BatchNorm2d(channels)) if stride > 1 else nn.Sequential()
        )

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))) + self.shortcut(x))


class _Dense(nn.Module):
    """Layers of which each sees what all before it gave."""

    def __init__(self, channels: int, growth: int, width: int, layers: int, dilation: int) -> None:
        super().__init__()
        for i in range(layers):
            masked = _Masked(width, growth, dilation)
            layer = _named(
                nonlinear1=_activated(channels + i * growth),
                linear1=nn.Conv1d(channels + i * growth, width, 1, bias=False),
                nonlinear2=_activated(width),
                cam_layer=masked,
            )
            self.add_module(f"tdnnd{i + 1}", layer)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.children():
            x = torch.cat([x, layer(x)], dim=1)
        return x


class _Masked(nn.Module):
    """A dilated convolution, and a mask from the mean over all time and over the segment of each frame."""

    def __init__(self, width: int, growth: int, dilation: int) -> None:
        super().__init__()
        self.linear_local = nn.Conv1d(
            width, growth, 3, padding=dilation, dilation=dilation, bias=False
        )
        self.linear1 = nn.Conv1d(width, width // 2, 1)
        self.linear2 = nn.Conv1d(width // 2, growth, 1)

    def forward(self, x: Tensor) -> Tensor:
        context = x.mean(dim=-1, keepdim=True) + self._of_segments(x)
        mask = torch.sigmoid(self.linear2(F.relu(self.linear1(context))))
        return torch.mul(self.linear_local(x), mask)

    @staticmethod
    def _of_segments(x: Tensor) -> Tensor:
        """The mean of each frame's segment, the last of which has what is left of the time."""
        time = x.shape[-1]
        whole = (
            time // SEGMENT + 1
        )  # the last one may be empty: the exporter cannot follow a remainder
        here = torch.ones_like(x[:1, :1])
        sums, counts = (
            F.pad(a, (0, SEGMENT))[..., : whole * SEGMENT]
            .reshape(*a.shape[:2], whole, SEGMENT)
            .sum(dim=-1)
            for a in (x, here)
        )
        # each frame takes its segment's mean by number: a slice of repeated means has a length that exporters lose
        means: Tensor = (sums / counts.clamp(min=1)).index_select(
            -1, torch.arange(time, device=x.device) // SEGMENT
        )
        return means


class _Statistics(nn.Module):
    """Mean and deviation over time."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x.mean(dim=-1), x.std(dim=-1)], dim=1).unsqueeze(-1)


class ResemblyzerEncoder(nn.Module):
    """Windows of mel energies (batch, 160, 40) to vectors of length one (batch, 256)."""

    def __init__(self, bins: int = 40, width: int = 256, layers: int = 3) -> None:
        super().__init__()
        self.lstm = nn.LSTM(bins, width, layers, batch_first=True)
        self.linear = nn.Linear(width, width)

    def forward(self, frames: Tensor) -> Tensor:
        states, _ = self.lstm(frames)
        vectors: Tensor = F.relu(self.linear(states[:, -1]))
        return torch.div(vectors, torch.linalg.vector_norm(vectors, dim=1, keepdim=True))


def read_state(path: str | os.PathLike[str], part: str = "") -> dict[str, Tensor]:
    """The tensors of a checkpoint, or of one part of it; nothing in the file is run."""
    try:
        found: Any = torch.load(path, weights_only=True, map_location="cpu")
        state: dict[str, Tensor] = found[part] if part else found
    except Exception as error:  # torch raises many kinds for a damaged or hostile file
        raise FileFormatError(
            f"{path} is no state dict that torch reads with weights_only: {error}"
        ) from error
    return state


def build(kind: str, path: str | os.PathLike[str]) -> nn.Module:
    """A network with the weights of a checkpoint; a tensor that is missing, or of another shape, is an error."""
    network: nn.Module
    if kind == "campplus":
        network, state = CAMPlusPlus(), read_state(path)
    else:
        network, state = ResemblyzerEncoder(), read_state(path, "model_state")
        state = {name: value for name, value in state.items() if not name.startswith("similarity")}
    try:
        network.load_state_dict(state)
    except RuntimeError as error:
        raise FileFormatError(f"{path} does not hold the weights of {kind}: {error}") from error
    return network.eval()


class OnGpu:
    """A network on a GPU, run as onnxruntime runs its graph, where that has no GPU of its own."""

    def __init__(self, kind: str, path: str | os.PathLike[str]) -> None:
        self._network = build(kind, path).cuda()

    def run(self, names: Sequence[str], feeds: Mapping[str, Any]) -> list[Any]:
        (frames,) = feeds.values()
        # products of 10 bits, which convolutions take there by default, would change vectors by a thousandth
        with torch.inference_mode(), torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
            return [self._network(torch.from_numpy(frames).cuda()).cpu().numpy()]


def to_onnx(network: nn.Module, bins: int, output: str = "embedding") -> bytes:
    """The network as a graph, batch and time free: ``frames`` (batch, time, bins) in, vectors out."""
    example = torch.linspace(-1, 1, 3 * 160 * bins).reshape(3, 160, bins)
    # No fixed time for the recurrent network either: the graph loops by itself.
    shapes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("time", min=2)}
    return graph_of(network, {"frames": example}, output, (shapes,))


def _square(inward: int, outward: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inward, outward, 3, stride=(stride, 1), padding=1, bias=False)


def _activated(channels: int) -> nn.Sequential:
    return _named(batchnorm=nn.BatchNorm1d(channels), relu=nn.ReLU())


def _named(**parts: nn.Module) -> nn.Sequential:
    return nn.Sequential(OrderedDict(parts))


def graph_of(
    network: nn.Module, inputs: Mapping[str, Tensor], output: str, shapes: Any, opset: int = 18
) -> bytes:
    """A network as an ONNX graph, from inputs to try it on; nothing in it tells of the machine that made it."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "torch.export")]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the exporter warns of its own deprecations
            program = torch.onnx.export(
                network,
                tuple(inputs.values()),
                dynamo=True,
                opset_version=opset,
                input_names=list(inputs),
                output_names=[output],
                dynamic_shapes=shapes,
                verbose=False,
            )
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
    assert program is not None
    model = program.model_proto
    nodes = [*model.graph.node, *(node for part in model.functions for node in part.node)]
    for node in nodes:
        del node.metadata_props[:]  # lines of Python, with the paths of their files
    return bytes(model.SerializeToString())
