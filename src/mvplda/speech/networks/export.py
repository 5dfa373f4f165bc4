"""A trained network as an extractor like any other: an ONNX graph, and its recipe beside it."""

from __future__ import annotations

import logging
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np

from ...exceptions import NumericalError
from ...extractors.network import OnnxNetwork
from ...extractors.recipe import Features, Network, Recipe, Samples, to_toml
from ...persistence import write_atomically
from ..frames import FeatureSet, frames_of
from .paper import PaperBody, torch
from .training import TrainedNetwork

TOLERANCE = 1e-3
OPSET = 18


def training_recipe(features: Features) -> Recipe:
    """How frames for a network are made: of samples whose loudest one is full scale, at Kaldi's scale."""
    samples = Samples(scale=32768.0, level="peak", level_value=1.0)
    network = Network(lengths="lengths", output="vectors")
    return Recipe("network", samples=samples, features=features, network=network)


def write_extractor(trained: TrainedNetwork, recipe: Recipe, path: Path) -> OnnxNetwork:
    """Write the graph (``frames`` (batch, time, D) and ``lengths`` in, ``vectors`` out) and ``path.toml``.

    The written extractor is loaded again, and refused where its vector of a test signal differs from torch's.
    """
    sizes = ", ".join(f"{len(names)} of {view}" for view, names in trained.classes.items())
    recipe = replace(
        recipe,
        name=path.stem,
        views=tuple(trained.classes),
        description=f"paper network, trained by mvplda on {sizes}",
    )
    write_atomically(path, _graph(trained.body.eval()))
    write_atomically(path.with_suffix(".toml"), to_toml(recipe).encode())
    extractor = OnnxNetwork(path)
    rng = np.random.default_rng(0)
    signal = 0.1 * rng.standard_normal(extractor.rate).astype(np.float32)
    frames = FeatureSet.of(["test"], [frames_of(signal, extractor.recipe)])
    own = trained.extract(frames, "cpu")[0]
    worst = float(np.abs(own - extractor.embed(signal)).max() / max(np.abs(own).max(), 1e-6))
    if not worst < TOLERANCE:
        raise NumericalError(
            f"the exported graph differs from torch by {worst:.2g} of the largest value"
        )
    return extractor


def _graph(body: PaperBody) -> bytes:
    """The network as an ONNX graph; nothing in it tells of the machine that made it."""
    inputs = {"frames": torch.zeros(2, 13, body.width), "lengths": torch.tensor([13, 7])}
    batch = torch.export.Dim("batch")
    shapes = {"frames": {0: batch, 1: torch.export.Dim("time")}, "lengths": {0: batch}}
    disabled = logging.root.manager.disable
    try:
        logging.disable(logging.WARNING)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the exporter warns of its own deprecations
            program = torch.onnx.export(
                body,
                tuple(inputs.values()),
                dynamo=True,
                opset_version=OPSET,
                input_names=list(inputs),
                output_names=["vectors"],
                dynamic_shapes=shapes,
                verbose=False,
            )
    finally:
        logging.disable(disabled)
    assert program is not None
    model = program.model_proto
    for node in [*model.graph.node, *(node for part in model.functions for node in part.node)]:
        del node.metadata_props[:]  # lines of Python, with the paths of their files
    return bytes(model.SerializeToString())
