"""The paper's network: sigmoid layers on stacked frames, averaged over the utterance, pre-trained layer by layer."""

from __future__ import annotations

import logging
import math
import warnings
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ..._progress import Progress
from ...exceptions import ConstantLayerWarning, NumericalError
from .batches import (
    Body,
    FrameBatches,
    Tensor,
    functional,
    nn,
    pieces,
    stacked_positions,
    torch,
    valid_frames,
)
from .settings import PaperNetwork, Pretraining


class PaperBody(Body):
    """Frames (B, T, D) and lengths (B,) -> vectors (B, hidden)."""

    def __init__(self, settings: PaperNetwork, width: int) -> None:
        super().__init__(width, settings.hidden)
        self.settings = settings
        sizes = [width * (2 * settings.context + 1)] + [settings.hidden] * settings.layers
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))
        for layer in self.layers:
            assert isinstance(layer, nn.Linear)
            bound = settings.start_scale * math.sqrt(6 / (layer.in_features + layer.out_features))
            nn.init.uniform_(layer.weight, -bound, bound)
            nn.init.zeros_(layer.bias)

    def embed(self, frames: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Last hidden layer of standardised stacked frames (N, (2 context + 1) D)."""
        hidden = frames
        for layer in self.layers:
            hidden = torch.sigmoid(layer(hidden))
        return hidden

    def forward(self, frames: Tensor, lengths: Tensor) -> Tensor:
        batch, longest, width = frames.shape
        frames = (frames - self.shift) / self.deviation
        centre = torch.arange(longest, device=frames.device).expand(batch, longest)
        last = (lengths - 1)[:, None].expand(batch, longest)
        positions = stacked_positions(torch.zeros_like(last), last, centre, self.settings.context)
        index = positions.reshape(batch, -1)[:, :, None].expand(-1, -1, width)
        hidden = self.embed(torch.gather(frames, 1, index).reshape(batch, longest, -1))
        valid = valid_frames(lengths, longest)[:, :, None]
        total = torch.where(valid, hidden, torch.zeros_like(hidden)).sum(dim=1)
        return total / lengths[:, None].to(total.dtype)


# Layer by layer: machines are trained on what the layers below make of the frames, and their health is told.


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
    body: PaperBody,
    source: FrameBatches,
    settings: Pretraining,
    random_state: int,
    *,
    verbose: bool = False,
) -> list[LayerHealth]:
    """Train one machine a layer and put it in the layer's place."""
    health = []
    line = None
    if verbose:
        total = settings.gaussian_epochs + settings.epochs * (len(body.layers) - 1)
        line = Progress("RBM epoch", total)
    done = 0
    probe = source.sample(PROBED, np.random.default_rng([random_state, 1]))
    for number in range(len(body.layers)):
        layer = body.layers[number]
        assert isinstance(layer, nn.Linear)
        gaussian = number == 0
        machine = new_machine(below(body, probe, number), layer.out_features, gaussian)
        trainer = MachineTrainer(machine, settings)
        mean_error = math.nan
        for epoch in range(settings.gaussian_epochs if gaussian else settings.epochs):
            errors, count = torch.zeros((), device=source.device), 0
            for stacked, _ in source.chunks(
                np.random.default_rng([random_state, 2 + number, epoch])
            ):
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
def layer_health(
    body: PaperBody, probe: Tensor, layer: int, reconstruction: float = math.nan
) -> LayerHealth:
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


# Hidden units are binary; visible ones are binary (Bernoulli) or have unit variance (Gaussian):
#
#     E(v, h) = -b'v - c'h - v'W h                 Bernoulli
#     E(v, h) = |v - b|^2 / 2 - c'h - v'W h        Gaussian
#
#     F(v) = -log sum_h exp(-E(v, h)) = {-b'v or |v - b|^2 / 2} - sum_j softplus(c_j + (v'W)_j)
#     d log p(v) / d theta = -dF(v) / d theta + E_model[dF / d theta]
#
# Contrastive divergence puts one Gibbs step from the data in place of the model's expectation.


@dataclass(frozen=True)
class Machine:
    """Weights W (V, H), visible bias b (V,), hidden bias c (H,), and which kind the visible units are."""

    weight: Tensor
    visible_bias: Tensor
    hidden_bias: Tensor
    gaussian: bool

    @property
    def parameters(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.weight, self.visible_bias, self.hidden_bias


@dataclass(frozen=True)
class Gradients:
    """Of a mean free energy, by parameter."""

    weight: Tensor
    visible_bias: Tensor
    hidden_bias: Tensor

    def __sub__(self, other: Gradients) -> Gradients:
        return Gradients(
            self.weight - other.weight,
            self.visible_bias - other.visible_bias,
            self.hidden_bias - other.hidden_bias,
        )

    @property
    def parts(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.weight, self.visible_bias, self.hidden_bias


def hidden_probability(machine: Machine, visible: Tensor) -> Tensor:
    """P(h = 1 | v), (n, H)."""
    return torch.sigmoid(torch.addmm(machine.hidden_bias, visible, machine.weight))


def visible_mean(machine: Machine, hidden: Tensor) -> Tensor:
    """E[v | h], (n, V)."""
    field = torch.addmm(machine.visible_bias, hidden, machine.weight.T)
    return field if machine.gaussian else torch.sigmoid(field)


def free_energy(machine: Machine, visible: Tensor) -> Tensor:
    """F(v) of every row, (n,); -log p(v) up to the log of the partition function."""
    taken = functional.softplus(torch.addmm(machine.hidden_bias, visible, machine.weight)).sum(
        dim=1
    )
    if machine.gaussian:
        return 0.5 * ((visible - machine.visible_bias) ** 2).sum(dim=1) - taken
    return -visible @ machine.visible_bias - taken


def free_energy_gradients(machine: Machine, visible: Tensor) -> Gradients:
    """Gradients of the rows' mean free energy, in closed form."""
    hidden = hidden_probability(machine, visible)
    n = len(visible)
    own = visible - machine.visible_bias if machine.gaussian else visible
    return Gradients(-visible.T @ hidden / n, -own.mean(dim=0), -hidden.mean(dim=0))


def drawn(probability: Tensor) -> Tensor:
    """Zeros and ones; what is not a number stays out of it, and shows in the reconstruction error instead."""
    return (torch.rand_like(probability) < probability).to(probability.dtype)


def gibbs(machine: Machine, visible: Tensor) -> Tensor:
    """Visible units after one step from the data: hidden units are drawn, visible ones are their means."""
    return visible_mean(machine, drawn(hidden_probability(machine, visible)))


def contrastive_divergence(machine: Machine, visible: Tensor) -> tuple[Gradients, Tensor]:
    """Descent direction's gradients (CD-1), and the mean squared error of the reconstruction."""
    rebuilt = gibbs(machine, visible)
    gradients = free_energy_gradients(machine, visible) - free_energy_gradients(machine, rebuilt)
    return gradients, ((visible - rebuilt) ** 2).mean()


def centred(gradients: Gradients, visible: Tensor, hidden: Tensor) -> Gradients:
    """The same gradients about means of the two layers: the weights then learn what varies, the biases the mean.

    It is the plain gradient of the machine written in v - visible, h - hidden, mapped back; a direction
    that descends stays one.
    """
    weight = (
        gradients.weight
        - torch.outer(visible, gradients.hidden_bias)
        - torch.outer(gradients.visible_bias, hidden)
    )
    return Gradients(
        weight,
        gradients.visible_bias - weight @ hidden,
        gradients.hidden_bias - visible @ weight,
    )


def new_machine(visible: Tensor, hidden: int, gaussian: bool) -> Machine:
    """A start for data like these rows: visible bias at the data's mean, hidden units half on.

    The weights are such that a hidden unit's input has a deviation of 1 over the rows.
    """
    mean = visible.mean(dim=0)
    spread = visible.var(dim=0).sum().sqrt().clamp(min=1e-6)
    weight = torch.randn(visible.shape[1], hidden, device=visible.device) / float(spread)
    bias = mean if gaussian else torch.logit(mean.clamp(0.01, 0.99))
    return Machine(weight, bias.clone(), -mean @ weight, gaussian)


class MachineTrainer:
    """Momentum and weight decay about `contrastive_divergence`; the machine is changed in place."""

    def __init__(self, machine: Machine, settings: Pretraining) -> None:
        self.machine = machine
        self.settings = settings
        self.rate = settings.gaussian_rate if machine.gaussian else settings.rate
        self.speed = [torch.zeros_like(p) for p in machine.parameters]
        self.means: tuple[Tensor, Tensor] | None = None

    def step(self, visible: Tensor) -> Tensor:
        """One step on a batch; returns the reconstruction error, on the device."""
        gradients, error = contrastive_divergence(self.machine, visible)
        now = visible.mean(dim=0), hidden_probability(self.machine, visible).mean(dim=0)
        if self.means is None:
            self.means = now
        self.means = (self.means[0].lerp(now[0], 0.01), self.means[1].lerp(now[1], 0.01))
        gradients = centred(gradients, *self.means)
        parts = zip(self.machine.parameters, gradients.parts, self.speed, strict=True)
        for parameter, gradient, speed in parts:
            decay = self.settings.weight_decay if parameter.ndim == 2 else 0.0
            speed.mul_(self.settings.momentum).sub_(gradient + decay * parameter, alpha=self.rate)
            parameter.add_(speed)
        return error
