"""An extractor as one ONNX graph, checked against torch before it is written."""

from __future__ import annotations

import logging
import os
import warnings
from typing import Any

import numpy as np

from ..exceptions import NumericalError
from ..extras import need
from ..files import write_atomically
from .extractor import Extractor
from .tensors import torch

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
    with warnings.catch_warnings(), _quiet():
        warnings.simplefilter("ignore")  # the exporter warns of its own deprecations
        program = torch.onnx.export(
            body,
            (frames, lengths),
            dynamo=True,
            opset_version=opset,
            input_names=["frames", "lengths"],
            output_names=["vectors"],
            dynamic_shapes=shapes,
            verbose=False,
        )
        assert program is not None
    data = bytes(program.model_proto.SerializeToString())
    session = runtime.InferenceSession(data, providers=["CPUExecutionProvider"])
    worst = max(_difference(extractor, session, *_example(extractor, *shape)) for shape in ((1, 1), (3, 40), (5, 7)))
    if not worst < TOLERANCE:
        raise NumericalError(f"the exported graph differs from torch by {worst:.2g} of the largest value: not written")
    write_atomically(path, data)
    return worst


def _example(extractor: Extractor, batch: int, longest: int) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(batch)
    frames = torch.from_numpy(rng.normal(size=(batch, longest, extractor.width)).astype(np.float32))
    lengths = torch.from_numpy(np.linspace(longest, max(1, longest // 2), batch).astype(np.int64))
    return frames, lengths


def _difference(extractor: Extractor, session: Any, frames: torch.Tensor, lengths: torch.Tensor) -> float:
    got = session.run(None, {"frames": frames.numpy(), "lengths": lengths.numpy()})[0]
    with torch.no_grad():
        expected = extractor.body(frames, lengths).numpy()
    return float(np.abs(got - expected).max() / max(np.abs(expected).max(), 1e-6))


class _quiet:
    """The exporter's own log, kept off standard error."""

    def __enter__(self) -> None:
        self.loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "torch.export")]
        self.levels = [logger.level for logger in self.loggers]
        for logger in self.loggers:
            logger.setLevel(logging.ERROR)

    def __exit__(self, *_: object) -> None:
        for logger, level in zip(self.loggers, self.levels, strict=True):
            logger.setLevel(level)
