"""The paper's network: sigmoid layers on stacked frames, averaged over the utterance; a softmax for every view.

Before it is trained, a restricted Boltzmann machine is trained for every layer on what the layers below make of the
frames. Hidden units are binary; visible ones are binary (Bernoulli) or have unit variance (Gaussian)::

    E(v, h) = -b'v - c'h - v'W h                 Bernoulli
    E(v, h) = |v - b|^2 / 2 - c'h - v'W h        Gaussian

    F(v) = -log sum_h exp(-E(v, h)) = {-b'v or |v - b|^2 / 2} - sum_j softplus(c_j + (v'W)_j)
    d log p(v) / d theta = -dF(v) / d theta + E_model[dF / d theta]

Contrastive divergence puts one Gibbs step from the data in place of the model's expectation.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from .._optional import need
from .._progress import Progress
from ..exceptions import ConstantLayerWarning, NumericalError
from .settings import PaperNetwork, Pretraining

need("torch")

# under their own names, so that training takes them from here
import torch as torch  # noqa: E402
from torch import Tensor as Tensor  # noqa: E402
from torch import nn as nn  # noqa: E402

if TYPE_CHECKING:
    from .training import FrameBatches

PROBED = 4096
CONSTANT = 0.01
"""A layer whose units' deviation over frames is below this has no information about the frame."""
FOLLOWING = 0.01
"""How fast the running means of the two layers follow a batch."""


class PaperBody(nn.Module):
    """Frames (B, T, D) and lengths (B,) -> vectors (B, hidden).

    Training copies the frames' mean and deviation into ``shift`` and ``deviation``.
    """

    shift: Tensor
    deviation: Tensor

    def __init__(self, settings: PaperNetwork, width: int) -> None:
        super().__init__()
        self.settings = settings
        self.width = width
        self.register_buffer("shift", torch.zeros(width))
        self.register_buffer("deviation", torch.ones(width))
        sizes = [width * (2 * settings.context + 1)] + [settings.hidden] * settings.layers
        layers = []
        for inputs, outputs in pairwise(sizes):
            layer = nn.Linear(inputs, outputs)
            bound = settings.start_scale * math.sqrt(6 / (inputs + outputs))
            nn.init.uniform_(layer.weight, -bound, bound)
            nn.init.zeros_(layer.bias)
            layers.append(layer)
        self.layers = nn.ModuleList(layers)

    def hidden(self, stacked: Tensor, number: int | None = None) -> Tensor:
        """Standardised stacked frames (..., (2 context + 1) D) after the first layers; after all of them if None."""
        for layer in self.layers[:number]:
            stacked = torch.sigmoid(layer(stacked))
        return stacked

    def forward(self, frames: Tensor, lengths: Tensor) -> Tensor:
        batch, longest, width = frames.shape
        # inside the graph, so that the exported network takes frames as they come
        frames = (frames - self.shift) / self.deviation
        centre = torch.arange(longest, device=frames.device).expand(batch, longest)
        last = (lengths - 1)[:, None].expand(batch, longest)
        positions = stacked_positions(torch.zeros_like(last), last, centre, self.settings.context)
        index = positions.reshape(batch, -1)[:, :, None].expand(-1, -1, width)
        hidden = self.hidden(torch.gather(frames, 1, index).reshape(batch, longest, -1))
        # what lies beyond an utterance's end is padding
        valid = (centre <= last)[:, :, None]
        total = torch.where(valid, hidden, torch.zeros_like(hidden)).sum(dim=1)
        return total / lengths[:, None].to(total.dtype)


def stacked_positions(first: Tensor, last: Tensor, centre: Tensor, context: int) -> Tensor:
    """(..., 2 context + 1) positions of the frames about each centre, edges repeated.

    ``first`` and ``last`` are the positions of the utterance's own ends.
    """
    around = torch.arange(-context, context + 1, device=centre.device)
    wanted = centre[..., None] + around
    return torch.minimum(torch.maximum(wanted, first[..., None]), last[..., None])


class Heads(nn.Module):
    """A softmax for every view; the loss is the sum of their cross-entropies."""

    def __init__(self, width: int, classes: Mapping[str, int]) -> None:
        super().__init__()
        self.outputs = nn.ModuleList()
        for count in classes.values():
            output = nn.Linear(width, count)
            nn.init.xavier_uniform_(output.weight)
            nn.init.zeros_(output.bias)
            self.outputs.append(output)

    def forward(self, hidden: Tensor, codes: Tensor) -> tuple[Tensor, Tensor]:
        """The loss, and (views,) the shares of what was right."""
        # the loss in full precision, whatever the layers have
        hidden = hidden.float()
        losses = []
        right = []
        for output, wanted in zip(self.outputs, codes.T, strict=True):
            logits = output(hidden)
            losses.append(nn.functional.cross_entropy(logits, wanted))
            right.append((logits.argmax(dim=1) == wanted).float().mean())
        return torch.stack(losses).sum(), torch.stack(right)


@torch.no_grad()
def pretrain(
    body: PaperBody,
    source: FrameBatches,
    settings: Pretraining,
    random_state: int,
    verbose: bool = False,
) -> None:
    """Train one machine per layer and put its weights into the layer."""
    total = settings.gaussian_epochs + settings.epochs * (len(body.layers) - 1)
    line = Progress("RBM epoch", total) if verbose else None
    done = 0
    probe = source.sample(PROBED, np.random.default_rng([random_state, 1]))
    for number, layer in enumerate(body.layers):
        assert isinstance(layer, nn.Linear)
        gaussian = number == 0
        machine = Machine.start(body.hidden(probe, number), layer.out_features, gaussian)
        epochs = settings.gaussian_epochs if gaussian else settings.epochs
        rate = settings.gaussian_rate if gaussian else settings.rate
        for epoch in range(epochs):
            rng = np.random.default_rng([random_state, 2 + number, epoch])
            errors = [
                machine.step(body.hidden(stacked, number), rate, settings)
                for stacked, _ in source.batches(settings.batch, rng)
            ]
            error = float(torch.stack(errors).mean())
            if not math.isfinite(error):
                raise NumericalError(
                    f"the machine of layer {number + 1} diverged in epoch {epoch + 1}: lower its rate (now {rate:g})"
                )
            done += 1
            if line is not None:
                line.step(done, f"layer {number + 1}  reconstruction error {error:.4f}")
        layer.weight.copy_(machine.weight.T)
        layer.bias.copy_(machine.hidden_bias)
        deviation = float(body.hidden(probe, number + 1).std(dim=0).mean())
        if deviation < CONSTANT:
            warnings.warn(
                f"layer {number + 1} is constant after pre-training (deviation {deviation:.3f}): what lies above it "
                "learns nothing; lower the rates, train the Gaussian layer longer, or leave pre-training out",
                ConstantLayerWarning,
                stacklevel=2,
            )


class Machine:
    """A restricted Boltzmann machine, trained by CD-1 with momentum and weight decay.

    weight : W (V, H)
    visible_bias : b (V,)
    hidden_bias : c (H,)
    gaussian : whether visible units are Gaussian
    """

    def __init__(
        self, weight: Tensor, visible_bias: Tensor, hidden_bias: Tensor, gaussian: bool
    ) -> None:
        self.weight = weight
        self.visible_bias = visible_bias
        self.hidden_bias = hidden_bias
        self.gaussian = gaussian
        self.parameters = [weight, visible_bias, hidden_bias]
        self.speed = [torch.zeros_like(parameter) for parameter in self.parameters]
        self.means: list[Tensor] = []

    @classmethod
    def start(cls, visible: Tensor, hidden: int, gaussian: bool) -> Machine:
        """A start for data like these rows: visible bias at the data's mean, hidden units half on.

        The weights are such that a hidden unit's input has a deviation of 1 over the rows.
        """
        mean = visible.mean(dim=0)
        spread = visible.var(dim=0).sum().sqrt().clamp(min=1e-6)
        weight = torch.randn(visible.shape[1], hidden, device=visible.device) / float(spread)
        bias = mean if gaussian else torch.logit(mean.clamp(0.01, 0.99))
        return cls(weight, bias.clone(), -mean @ weight, gaussian)

    def hidden_probability(self, visible: Tensor) -> Tensor:
        """P(h = 1 | v), (n, H)."""
        return torch.sigmoid(torch.addmm(self.hidden_bias, visible, self.weight))

    def gradients(self, visible: Tensor) -> list[Tensor]:
        """Of the rows' mean free energy by weight, visible bias and hidden bias, in closed form."""
        hidden = self.hidden_probability(visible)
        own = visible - self.visible_bias if self.gaussian else visible
        weight = -visible.T @ hidden / len(visible)
        return [weight, -own.mean(dim=0), -hidden.mean(dim=0)]

    def gibbs(self, visible: Tensor) -> Tensor:
        """Visible units after one step from the data: hidden units are drawn, visible ones are their means."""
        probability = self.hidden_probability(visible)
        drawn = (torch.rand_like(probability) < probability).to(probability.dtype)
        field = torch.addmm(self.visible_bias, drawn, self.weight.T)
        return field if self.gaussian else torch.sigmoid(field)

    def step(self, visible: Tensor, rate: float, settings: Pretraining) -> Tensor:
        """One step on a batch; returns the mean squared error of the reconstruction, on the device."""
        rebuilt = self.gibbs(visible)
        data = self.gradients(visible)
        model = self.gradients(rebuilt)
        weight, by_visible, by_hidden = (a - b for a, b in zip(data, model, strict=True))
        now = [visible.mean(dim=0), -data[2]]
        self.means = [
            mean.lerp(new, FOLLOWING) for mean, new in zip(self.means or now, now, strict=True)
        ]
        # The plain gradient of the machine written in v - visible_mean, h - hidden_mean, mapped back: the weights then
        # learn what varies, the biases the mean. A direction that descends stays one.
        visible_mean, hidden_mean = self.means
        weight = (
            weight - torch.outer(visible_mean, by_hidden) - torch.outer(by_visible, hidden_mean)
        )
        by_visible = by_visible - weight @ hidden_mean
        by_hidden = by_hidden - visible_mean @ weight
        weight = weight + settings.weight_decay * self.weight
        gradients = (weight, by_visible, by_hidden)
        for parameter, gradient, speed in zip(self.parameters, gradients, self.speed, strict=True):
            speed.mul_(settings.momentum).sub_(gradient, alpha=rate)
            parameter.add_(speed)
        return ((visible - rebuilt) ** 2).mean()
