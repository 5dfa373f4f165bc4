"""Layer by layer: machines are trained on what the layers below make of the frames, and their health is told."""

from __future__ import annotations

import logging
import math
import warnings
from dataclasses import dataclass

import numpy as np

from ..exceptions import ConstantLayerWarning, NumericalError
from ..progress import Progress
from .batches import FrameBatches
from .paper import PaperBody
from .rbm import MachineTrainer, new_machine
from .settings import Pretraining
from .tensors import Tensor, nn, pieces, torch

log = logging.getLogger(__name__)

PROBED = 4096
CONSTANT = 0.01
"""A layer whose units' deviation over frames is below this says nothing of the frame."""


@dataclass(frozen=True)
class LayerHealth:
    """What a layer still knows of its frames.

    Attributes
    ----------
    layer : number, from 1
    deviation : of a unit over frames, mean over units; 0.5 is a coin, 0 says nothing
    constant : share of units whose deviation is below `CONSTANT`
    kept : share of the input's variance that a linear map recovers from the layer, on frames of its own
    reconstruction : mean squared error of the machine's last epoch, NaN where none was trained
    """

    layer: int
    deviation: float
    constant: float
    kept: float
    reconstruction: float = math.nan

    def __str__(self) -> str:
        return (
            f"layer {self.layer}: deviation {self.deviation:.3f}, constant units {self.constant:.0%}, "
            f"input variance kept {self.kept:.2f}, reconstruction error {self.reconstruction:.4f}"
        )


def pretrain(
    body: PaperBody, source: FrameBatches, settings: Pretraining, seed: int, *, progress: bool = False
) -> list[LayerHealth]:
    """Train one machine a layer and put it in the layer's place."""
    health = []
    line = None
    if progress:
        total = settings.gaussian_epochs + settings.epochs * (len(body.layers) - 1)
        line = Progress("RBM epoch", total)
    done = 0
    probe = source.sample(PROBED, np.random.default_rng([seed, 1]))
    for number in range(len(body.layers)):
        layer = body.layers[number]
        assert isinstance(layer, nn.Linear)
        gaussian = number == 0
        machine = new_machine(below(body, probe, number), layer.out_features, gaussian, settings)
        trainer = MachineTrainer(machine, settings)
        mean_error = math.nan
        for epoch in range(settings.gaussian_epochs if gaussian else settings.epochs):
            errors, count = torch.zeros((), device=source.device), 0
            for stacked, _ in source.chunks(np.random.default_rng([seed, 2 + number, epoch])):
                for visible in pieces(below(body, stacked, number), settings.batch):
                    errors += trainer.step(visible)
                    count += 1
            mean_error, done = float(errors) / count, done + 1
            if not math.isfinite(mean_error):
                raise NumericalError(
                    f"the machine of layer {number + 1} diverged in epoch {epoch + 1}: lower "
                    f"{'gaussian_rate' if gaussian else 'rate'} (now {trainer.rate:g})"
                )
            if line is not None:
                line.step(done, f"layer {number + 1}  reconstruction error {mean_error:.4f}")
        with torch.no_grad():
            layer.weight.copy_(machine.weight.T)
            layer.bias.copy_(machine.hidden_bias)
        health.append(layer_health(body, probe, number + 1, mean_error))
        log.info("%s", health[-1])
        if health[-1].deviation < CONSTANT:
            warnings.warn(
                f"layer {number + 1} is constant after pre-training ({health[-1]}): what lies above it learns "
                "nothing; lower the rates, train the Gaussian layer longer, or leave pre-training out",
                ConstantLayerWarning,
                stacklevel=2,
            )
    return health


@torch.no_grad()
def below(body: PaperBody, stacked: Tensor, number: int) -> Tensor:
    """What layer ``number`` (from 0) sees of these stacked frames."""
    for k in range(number):
        stacked = torch.sigmoid(body.layers[k](stacked))
    return stacked


@torch.no_grad()
def layer_health(body: PaperBody, probe: Tensor, layer: int, reconstruction: float = math.nan) -> LayerHealth:
    """Measure a layer (from 1) on stacked frames."""
    hidden = below(body, probe, layer)
    deviation = hidden.std(dim=0)
    return LayerHealth(
        layer,
        float(deviation.mean()),
        float((deviation < CONSTANT).float().mean()),
        kept_variance(hidden, probe),
        reconstruction,
    )


@torch.no_grad()
def kept_variance(hidden: Tensor, visible: Tensor, ridge: float = 1e-3) -> float:
    """R^2 of the best linear map back to the input: fitted on one half of the rows, measured on the other."""
    half = len(hidden) // 2
    h, v = hidden.double(), visible.double()
    h = h - h[:half].mean(dim=0)
    v = v - v[:half].mean(dim=0)
    gram = h[:half].T @ h[:half] / half
    # the ridge is absolute: a layer that varies by less than sampling noise cannot be read by what comes after it
    gram.diagonal().add_(ridge)
    back = torch.linalg.solve(gram, h[:half].T @ v[:half] / half)
    left = ((v[half:] - h[half:] @ back) ** 2).sum()
    return float(1 - left / (v[half:] ** 2).sum().clamp(min=1e-12))
