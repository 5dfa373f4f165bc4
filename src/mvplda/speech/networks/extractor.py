"""A trained network without its heads: frames in, one vector an utterance out; and its file."""

from __future__ import annotations

import json
import logging
import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..._optional import need
from ..._progress import Progress
from ...exceptions import FileFormatError, NumericalError, ParameterError
from ...persistence import fingerprint, pack, unpack, write_atomically
from ..features.store import FeatureSet
from .batches import Body, Tensor, check_features, choose_device, torch
from .settings import NetworkSettings

FORMAT = "mvplda-extractor"
BATCH_FRAMES = 16384


@torch.no_grad()
def extract_vectors(
    body: Body,
    features: FeatureSet,
    device: torch.device,
    batch_frames: int = BATCH_FRAMES,
    *,
    verbose: bool = False,
) -> NDArray[np.float32]:
    """(n, dimension) vectors, utterances of similar length together; products in full float32."""
    body.eval()
    vectors = np.empty((len(features), body.dimension), dtype=np.float32)
    order = np.argsort(features.lengths, kind="stable")[::-1]
    line = Progress("vectors", len(order)) if verbose else None
    start = 0
    with torch.backends.cudnn.flags(
        enabled=True, benchmark=False, deterministic=True, allow_tf32=False
    ):
        while start < len(order):
            longest = int(features.lengths[order[start]])
            rows = order[start : start + max(1, batch_frames // longest)]
            frames = np.zeros((len(rows), longest, features.dimension), dtype=np.float32)
            for i, row in enumerate(rows):
                frames[i, : features.lengths[row]] = features[int(row)]
            lengths = torch.from_numpy(features.lengths[rows].astype(np.int64))
            vectors[rows] = (
                body(torch.from_numpy(frames).to(device), lengths.to(device)).float().cpu().numpy()
            )
            start += len(rows)
            if line is not None:
                line.step(start)
    return vectors


@dataclass(frozen=True)
class Extractor:
    """Frames to vectors, with all that is needed to make the same frames again.

    Attributes
    ----------
    network : the network's settings
    body : the network itself, on the CPU
    feature_settings : how frames were made, in plain values
    classes : view -> names of the classes that it was trained on
    training : how it was trained, in plain values
    history : one record an epoch: loss, accuracies, held-out error
    health : what every layer kept of its frames after pre-training, where there was one
    """

    network: NetworkSettings
    body: Body
    feature_settings: Mapping[str, Any] = field(default_factory=dict)
    classes: Mapping[str, list[str]] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)
    history: tuple[Mapping[str, Any], ...] = ()
    health: tuple[Mapping[str, Any], ...] = ()

    @property
    def dimension(self) -> int:
        """Numbers in a vector."""
        return self.body.dimension

    @property
    def width(self) -> int:
        """Features in a frame."""
        return self.body.width

    @property
    def views(self) -> tuple[str, ...]:
        return tuple(self.classes)

    @property
    def n_parameters(self) -> int:
        return sum(p.numel() for p in self.body.parameters())

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of all that makes the vectors: weights and settings, not how long the training took."""
        tensors, about = self._parts()
        return fingerprint(
            tensors,
            {name: about[name] for name in ("network", "width", "feature_settings", "classes")},
        )

    @property
    def name(self) -> str:
        """What stands beside vectors as their extractor: kind and start of the fingerprint."""
        return f"{self.network.kind}-{self.fingerprint[:12]}"

    def extract(
        self,
        features: FeatureSet,
        *,
        batch_frames: int = BATCH_FRAMES,
        device: str = "auto",
        verbose: bool = False,
    ) -> NDArray[np.float32]:
        """(n, dimension) vectors in the set's order; they do not depend on batches or on order.

        Parameters
        ----------
        features : frames like those of the training
        batch_frames : about so many frames at once; what is longer goes alone
        device : "auto" takes the GPU where there is one
        """
        check_features(features, self.width)
        if batch_frames < 1:
            raise ParameterError(f"batch_frames is at least 1; got {batch_frames}")
        where = choose_device(device)
        body = self.body.to(where)
        try:
            return extract_vectors(body, features, where, batch_frames, verbose=verbose)
        finally:
            self.body.to("cpu")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a safetensors file, atomically."""
        tensors, about = self._parts()
        write_atomically(path, pack(FORMAT, "extractor", tensors, about))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Extractor:
        """Read what `save` wrote; damaged, foreign and newer files give a `FileFormatError`."""
        tensors, about = unpack(path, FORMAT, "extractor")
        try:
            network = NetworkSettings.from_dict(about["network"])
            body = network.build(int(about["width"]))
            state = {name: torch.from_numpy(value) for name, value in tensors.items()}
            body.load_state_dict(state)
            body.eval()
            return cls(
                network,
                body,
                about["feature_settings"],
                about["classes"],
                about["training"],
                tuple(about["history"]),
                tuple(about["health"]),
            )
        except (KeyError, TypeError, RuntimeError, ParameterError) as error:
            raise FileFormatError(f"{path} lacks parts of an extractor: {error}") from error

    def describe(self) -> dict[str, Any]:
        """What is in it, in plain values."""
        return {
            "kind": self.network.kind,
            "name": self.name,
            "width": self.width,
            "dimension": self.dimension,
            "parameters": self.n_parameters,
            "classes": {view: len(names) for view, names in self.classes.items()},
            "epochs": len(self.history),
        }

    def _parts(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        state: dict[str, Tensor] = self.body.state_dict()
        tensors = {
            name: np.ascontiguousarray(value.detach().cpu().numpy())
            for name, value in state.items()
        }
        about = {
            "network": self.network.to_dict(),
            "width": self.width,
            "dimension": self.dimension,
            "feature_settings": dict(self.feature_settings),
            "classes": dict(self.classes),
            "training": dict(self.training),
            "history": [dict(record) for record in self.history],
            "health": [dict(record) for record in self.health],
        }
        # through text and back, so that the fingerprint is the same before saving and after loading
        plain: dict[str, Any] = json.loads(json.dumps(about))
        return tensors, plain


TOLERANCE = 1e-4


def export_onnx(extractor: Extractor, path: str | os.PathLike[str], *, opset: int = 18) -> float:
    """Write the graph: ``frames`` (batch, time, D) and ``lengths`` (batch,) in, ``vectors`` (batch, dimension) out.

    Standardising, stacking or convolution, and pooling are inside; batch and time are free.
    The graph is run by onnxruntime on utterances of several lengths, and refused if it
    differs from torch.

    Returns
    -------
    float
        Largest difference from torch, relative to the largest value.
    """
    need("onnx")
    need("onnxscript")
    runtime = need("onnxruntime")
    body = extractor.body.eval()
    frames, lengths = _example(extractor, 2, 13)
    free = torch.export.Dim("batch"), torch.export.Dim("time")
    shapes = {"frames": {0: free[0], 1: free[1]}, "lengths": {0: free[0]}}
    data = graph_of(body, {"frames": frames, "lengths": lengths}, "vectors", shapes, opset)
    session = runtime.InferenceSession(data, providers=["CPUExecutionProvider"])
    worst = max(
        _difference(extractor, session, *_example(extractor, *shape))
        for shape in ((1, 1), (3, 40), (5, 7))
    )
    if not worst < TOLERANCE:
        raise NumericalError(
            f"the exported graph differs from torch by {worst:.2g} of the largest value: not written"
        )
    write_atomically(path, data)
    return worst


def graph_of(
    network: Any, inputs: Mapping[str, Tensor], output: str, shapes: Any, opset: int = 18
) -> bytes:
    """A network as an ONNX graph, from inputs to try it on; nothing in it tells of the machine that made it."""
    with warnings.catch_warnings(), _quiet():
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
    assert program is not None
    model = program.model_proto
    for part in (
        *model.graph.node,
        *(node for function in model.functions for node in function.node),
    ):
        del part.metadata_props[:]  # lines of Python, with the paths of their files
    return bytes(model.SerializeToString())


def _example(extractor: Extractor, batch: int, longest: int) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(batch)
    frames = torch.from_numpy(rng.normal(size=(batch, longest, extractor.width)).astype(np.float32))
    lengths = torch.from_numpy(np.linspace(longest, max(1, longest // 2), batch).astype(np.int64))
    return frames, lengths


def _difference(
    extractor: Extractor, session: Any, frames: torch.Tensor, lengths: torch.Tensor
) -> float:
    got = session.run(None, {"frames": frames.numpy(), "lengths": lengths.numpy()})[0]
    with torch.no_grad():
        expected = extractor.body(frames, lengths).numpy()
    return float(np.abs(got - expected).max() / max(np.abs(expected).max(), 1e-6))


class _quiet:
    """The exporter's own log, kept off standard error."""

    def __enter__(self) -> None:
        self.loggers = [
            logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "torch.export")
        ]
        self.levels = [logger.level for logger in self.loggers]
        for logger in self.loggers:
            logger.setLevel(logging.ERROR)

    def __exit__(self, *_: object) -> None:
        for logger, level in zip(self.loggers, self.levels, strict=True):
            logger.setLevel(level)
