"""A trained network as an extractor like any other: an ONNX graph, and its recipe beside it."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ...exceptions import NumericalError
from ...extractors.network import OnnxNetwork
from ...extractors.recipe import Features, Network, Recipe, Samples, to_toml
from ...persistence import write_atomically
from ..frames import FeatureSet, frames_of
from .batches import Body, Tensor, torch
from .training import TrainedNetwork

TOLERANCE = 1e-3


def training_recipe(features: Features, rate: int = 16000) -> Recipe:
    """How frames for a network are made: of samples whose loudest one is full scale, at Kaldi's scale."""
    samples = Samples(scale=32768.0, level="peak", level_value=1.0)
    network = Network(lengths="lengths", output="vectors")
    return Recipe("network", rate=rate, samples=samples, features=features, network=network)


def write_extractor(trained: TrainedNetwork, recipe: Recipe, path: Path) -> OnnxNetwork:
    """Write the graph (``frames`` (batch, time, D) and ``lengths`` in, ``vectors`` out) and ``path.toml``.

    The written extractor is loaded again, and refused where its vector of a test signal differs from torch's.
    """
    recipe = replace(
        recipe,
        name=path.stem,
        views=tuple(trained.classes),
        description=f"{trained.network.kind} network, trained by mvplda on "
        + ", ".join(f"{len(names)} of {view}" for view, names in trained.classes.items()),
    )
    frames = torch.zeros(2, 13, trained.body.width)
    inputs = {"frames": frames, "lengths": torch.tensor([13, 7])}
    free = torch.export.Dim("batch"), torch.export.Dim("time")
    shapes = {"frames": {0: free[0], 1: free[1]}, "lengths": {0: free[0]}}
    graph = graph_of(trained.body.eval(), inputs, "vectors", shapes)
    write_atomically(path, graph)
    write_atomically(path.with_suffix(".toml"), to_toml(recipe).encode())
    extractor = OnnxNetwork(path)
    _check(trained, extractor)
    return extractor


def _check(trained: TrainedNetwork, extractor: OnnxNetwork) -> None:
    rng = np.random.default_rng(0)
    signal = 0.1 * rng.standard_normal(extractor.rate).astype(np.float32)
    own = trained.extract(FeatureSet.of(["test"], [frames_of(signal, extractor.recipe)]), "cpu")[0]
    other = extractor.embed(signal)
    worst = float(np.abs(own - other).max() / max(np.abs(own).max(), 1e-6))
    if not worst < TOLERANCE:
        raise NumericalError(
            f"the exported graph differs from torch by {worst:.2g} of the largest value"
        )


def graph_of(
    network: Body, inputs: Mapping[str, Tensor], output: str, shapes: Any, opset: int = 18
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
