"""The paper's network: sigmoid layers on stacked frames, averaged over the utterance, and one softmax per view.

Pre-training fits one restricted Boltzmann machine per layer to the outputs of the layers below. Let v be the visible
units (inputs of the layer) with biases b, h the hidden units (its outputs) with biases c, and W the weights between
them. Hidden units are binary; visible units are binary (Bernoulli) or have unit variance (Gaussian). The energy E, the
free energy F and the gradient of the log-likelihood by a parameter theta are::

    E(v, h) = -b'v - c'h - v'W h                 Bernoulli
    E(v, h) = |v - b|^2 / 2 - c'h - v'W h        Gaussian

    F(v) = -log sum_h exp(-E(v, h)) = {-b'v or |v - b|^2 / 2} - sum_j softplus(c_j + (v'W)_j)
    d log p(v) / d theta = -dF(v) / d theta + E_model[dF / d theta]

Contrastive divergence (CD-1) approximates the expectation under the model, E_model, by one Gibbs step from the data.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from .._optional import need
from .._progress import Progress
from ..exceptions import ConstantLayerWarning, NumericalError
from .experiment_settings import PaperNetwork, Pretraining

need("torch")

# explicit re-exports: `training` imports torch from this module
import torch as torch  # noqa: E402
from torch import Tensor as Tensor  # noqa: E402
from torch import nn as nn  # noqa: E402

if TYPE_CHECKING:
    from .network_training import FrameBatches

PROBE_FRAMES = 4096
"""Number of frames by which each machine is initialised and each pre-trained layer is checked."""
CONSTANT_DEVIATION = 0.01
"""Mean standard deviation of a layer's units over frames, below which the layer carries no information."""
TIMED_STEPS, TIMED_SECONDS = 20, 2.0
"""Maximum number of steps that are timed for an estimate of a duration, and seconds after which timing ends."""
MEAN_RATE = 0.01
"""Weight of a new batch in the running means of a machine's visible and hidden units."""


class PaperBody(nn.Module):
    """Network without its softmax layers, which maps frames to one vector per utterance.

    It maps frames (B, T, D) of B utterances and their lengths (B,) to vectors (B, hidden).

    Parameters
    ----------
    settings : architecture
    width : number D of features per frame

    Attributes
    ----------
    shift, deviation : (D,) mean and standard deviation of the training frames; training sets them
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
        """Apply the first layers to stacked frames.

        Parameters
        ----------
        stacked : (..., (2 context + 1) D) standardised frames, each with the frames around it
        number : number of layers to apply; None: all layers

        Returns
        -------
        (..., hidden) outputs; `stacked` itself for no layers
        """
        for layer in self.layers[:number]:
            stacked = torch.sigmoid(layer(stacked))
        return stacked

    def forward(self, frames: Tensor, lengths: Tensor) -> Tensor:
        """Return the (B, hidden) mean of the last layer over the frames of each utterance.

        frames : (B, T, D) frames, padded at the end
        lengths : (B,) number of frames of each utterance
        """
        batch, longest, width = frames.shape
        # standardisation is a part of the graph, so that the exported network accepts frames as they are
        frames = (frames - self.shift) / self.deviation
        centre = torch.arange(longest, device=frames.device).expand(batch, longest)
        last = (lengths - 1)[:, None].expand(batch, longest)
        positions = stacked_positions(torch.zeros_like(last), last, centre, self.settings.context)
        index = positions.reshape(batch, -1)[:, :, None].expand(-1, -1, width)
        stacked = torch.gather(frames, 1, index).reshape(batch, longest, -1)
        hidden = self.hidden(stacked)

        # frames after the end of an utterance are padding and do not enter its mean
        valid = (centre <= last)[:, :, None]
        total = torch.where(valid, hidden, torch.zeros_like(hidden)).sum(dim=1)
        return total / lengths[:, None].to(total.dtype)


def stacked_positions(first: Tensor, last: Tensor, centre: Tensor, context: int) -> Tensor:
    """Return the (..., 2 context + 1) positions of the frames around each centre.

    Parameters
    ----------
    first, last : (...) position of the first and of the last frame of the utterance, to which positions are limited
    centre : (...) position of the frame in the middle
    context : number of frames before and after the centre
    """
    offsets = torch.arange(-context, context + 1, device=centre.device)
    positions = centre[..., None] + offsets
    return torch.minimum(torch.maximum(positions, first[..., None]), last[..., None])


class Heads(nn.Module):
    """Softmax layers of the network, one per view; the loss is the sum of their cross-entropies.

    Parameters
    ----------
    width : number of units of the last layer
    classes : {view: number of classes}
    """

    def __init__(self, width: int, classes: Mapping[str, int]) -> None:
        super().__init__()
        self.outputs = nn.ModuleList()
        for count in classes.values():
            output = nn.Linear(width, count)
            nn.init.xavier_uniform_(output.weight)
            nn.init.zeros_(output.bias)
            self.outputs.append(output)

    def forward(self, hidden: Tensor, codes: Tensor) -> tuple[Tensor, Tensor]:
        """Return the loss, and the accuracy per view, (views,).

        hidden : (B, width) outputs of the last layer
        codes : (B, views) number of each frame's class
        """
        # the loss needs full precision, even if the layers use bfloat16
        hidden = hidden.float()
        losses = []
        accuracies = []
        for output, targets in zip(self.outputs, codes.T, strict=True):
            logits = output(hidden)
            losses.append(nn.functional.cross_entropy(logits, targets))
            accuracies.append((logits.argmax(dim=1) == targets).float().mean())
        return torch.stack(losses).sum(), torch.stack(accuracies)


@torch.no_grad()
def pretrain(
    body: PaperBody,
    source: FrameBatches,
    settings: Pretraining,
    random_state: int,
    verbose: bool = False,
) -> None:
    """Pre-train a network: fit one restricted Boltzmann machine per layer, and copy its weights into the layer.

    Parameters
    ----------
    body : network, which is changed
    source : batches of frames
    settings : epochs and learning rates of the machines
    random_state : seed of the order of frames
    verbose : show progress on standard error

    Raises
    ------
    NumericalError
        The reconstruction error of a machine is not finite.
    """
    n_epochs = settings.gaussian_epochs + settings.epochs * (len(body.layers) - 1)
    progress = Progress("RBM epoch", n_epochs) if verbose else None
    epochs_done = 0
    probe = source.sample(PROBE_FRAMES, np.random.default_rng([random_state, 1]))

    for number, layer in enumerate(body.layers):
        assert isinstance(layer, nn.Linear)
        gaussian = number == 0
        machine = BoltzmannMachine.start(body.hidden(probe, number), layer.out_features, gaussian)
        epochs = settings.gaussian_epochs if gaussian else settings.epochs
        rate = settings.gaussian_rate if gaussian else settings.rate

        for epoch in range(epochs):
            rng = np.random.default_rng([random_state, 2 + number, epoch])
            errors = torch.zeros(source.steps(settings.batch), device=probe.device)
            for step, (stacked, _) in enumerate(source.batches(settings.batch, rng)):
                errors[step] = machine.step(body.hidden(stacked, number), rate, settings)
            error = float(errors.mean())
            if not math.isfinite(error):
                raise NumericalError(
                    f"pre-training of layer {number + 1} diverged in epoch {epoch + 1}: lower its rate (now {rate:g})"
                )
            epochs_done += 1
            if progress is not None:
                progress.step(epochs_done, f"layer {number + 1}  reconstruction error {error:.4f}")

        layer.weight.copy_(machine.weight.T)
        layer.bias.copy_(machine.hidden_bias)
        _warn_if_constant(body.hidden(probe, number + 1), number)


@torch.no_grad()
def pretraining_seconds(body: PaperBody, source: FrameBatches, settings: Pretraining) -> float:
    """Estimate the duration of `pretrain` in seconds from a few steps of the first and of the last machine."""
    rng = np.random.default_rng(0)
    probe = source.sample(PROBE_FRAMES, rng)
    last = len(body.layers) - 1
    ends = []
    for number, rate in ((0, settings.gaussian_rate), (last, settings.rate)):
        visible = body.hidden(probe, number)
        machine = BoltzmannMachine.start(visible, body.settings.hidden, gaussian=number == 0)
        inputs = ((body.hidden(x, number), y) for x, y in source.batches(settings.batch, rng))
        step = partial(_machine_step, machine, rate, settings)
        ends.append(seconds_per_step(step, inputs))
    # every layer below a machine adds the same duration
    machines = np.interp(np.arange(1, last + 1), [0, last], ends)
    per_step = settings.gaussian_epochs * ends[0] + settings.epochs * float(machines.sum())
    return per_step * source.steps(settings.batch)


def _machine_step(
    machine: BoltzmannMachine, rate: float, settings: Pretraining, batch: tuple[Tensor, Tensor]
) -> Tensor:
    """Update a machine by one batch, (inputs of its layer, class numbers); return the reconstruction error."""
    return machine.step(batch[0], rate, settings)


def seconds_per_step(
    step: Callable[[tuple[Tensor, Tensor]], Tensor], batches: Iterable[tuple[Tensor, Tensor]]
) -> float:
    """Measure the mean duration of a training step in seconds, without the first step, which starts the device.

    step : function that makes one step with a batch and returns a value
    batches : batches, of which at most `TIMED_STEPS` + 1 are used
    """
    started = time.perf_counter()
    elapsed = 0.0
    count = 0
    for count, batch in enumerate(batches):
        # reading the value waits for the device
        float(step(batch))
        elapsed = time.perf_counter() - started
        if count == 0:
            started = time.perf_counter()
        elif count >= TIMED_STEPS or elapsed > TIMED_SECONDS:
            break
    return elapsed / max(count, 1)


def _warn_if_constant(outputs: Tensor, number: int) -> None:
    """Warn if the outputs of a pre-trained layer hardly vary over frames.

    outputs : (n, hidden) outputs for n frames
    number : index of the layer, from 0
    """
    deviation = float(outputs.std(dim=0).mean())
    if deviation < CONSTANT_DEVIATION:
        warnings.warn(
            f"layer {number + 1} is constant after pre-training (mean deviation {deviation:.3f}), so the layers above "
            "it cannot learn; lower the rates, train the Gaussian layer longer, or disable pre-training",
            ConstantLayerWarning,
            stacklevel=3,
        )


class BoltzmannMachine:
    """Restricted Boltzmann machine, trained by contrastive divergence (CD-1) with momentum and weight decay.

    Parameters
    ----------
    weight : (V, H) weights between V visible and H hidden units
    visible_bias : (V,) biases of the visible units
    hidden_bias : (H,) biases of the hidden units
    gaussian : whether visible units are Gaussian instead of binary
    """

    def __init__(
        self, weight: Tensor, visible_bias: Tensor, hidden_bias: Tensor, gaussian: bool
    ) -> None:
        self.weight = weight
        self.visible_bias = visible_bias
        self.hidden_bias = hidden_bias
        self.gaussian = gaussian
        self.parameters = [weight, visible_bias, hidden_bias]
        self.velocities = [torch.zeros_like(parameter) for parameter in self.parameters]
        self.means: list[Tensor] = []

    @classmethod
    def start(cls, visible: Tensor, hidden: int, gaussian: bool) -> BoltzmannMachine:
        """Return a machine with random weights, scaled to given data.

        The visible bias reproduces the mean of the data, at which hidden units are active with probability 1/2. Weights
        are scaled so that the input of a hidden unit has a standard deviation of about 1 over the rows.

        Parameters
        ----------
        visible : (n, V) examples of the data
        hidden : number of hidden units
        gaussian : whether visible units are Gaussian instead of binary
        """
        mean = visible.mean(dim=0)
        spread = visible.var(dim=0).sum().sqrt().clamp(min=1e-6)
        weight = torch.randn(visible.shape[1], hidden, device=visible.device) / float(spread)
        bias = mean if gaussian else torch.logit(mean.clamp(0.01, 0.99))
        return cls(weight, bias.clone(), -mean @ weight, gaussian)

    def hidden_probability(self, visible: Tensor) -> Tensor:
        """Return the (n, H) probability of each hidden unit being active, given visible units (n, V)."""
        return torch.sigmoid(torch.addmm(self.hidden_bias, visible, self.weight))

    def gradients(self, visible: Tensor) -> list[Tensor]:
        """Return the gradients of the mean free energy of visible units (n, V).

        Returns
        -------
        gradients by weights (V, H), visible biases (V,) and hidden biases (H,)
        """
        hidden = self.hidden_probability(visible)
        residual = visible - self.visible_bias if self.gaussian else visible
        by_weight = -visible.T @ hidden / len(visible)
        return [by_weight, -residual.mean(dim=0), -hidden.mean(dim=0)]

    def gibbs(self, visible: Tensor) -> Tensor:
        """Return (n, V) visible units after one Gibbs step from visible units (n, V).

        Hidden units are sampled; the visible units of the result are their means given the hidden ones.
        """
        probability = self.hidden_probability(visible)
        hidden = (torch.rand_like(probability) < probability).to(probability.dtype)
        field = torch.addmm(self.visible_bias, hidden, self.weight.T)
        return field if self.gaussian else torch.sigmoid(field)

    def step(self, visible: Tensor, rate: float, settings: Pretraining) -> Tensor:
        """Update the machine by one batch; return the mean squared reconstruction error as a tensor on the device.

        visible : (n, V) visible units
        rate : learning rate
        """
        rebuilt = self.gibbs(visible)
        data = self.gradients(visible)
        model = self.gradients(rebuilt)
        by_weight, by_visible, by_hidden = (a - b for a, b in zip(data, model, strict=True))

        batch_means = [visible.mean(dim=0), -data[2]]
        previous_means = self.means or batch_means
        self.means = [
            previous.lerp(mean, MEAN_RATE)
            for previous, mean in zip(previous_means, batch_means, strict=True)
        ]

        # centring: this is the gradient of a machine of v - visible_mean and h - hidden_mean, expressed in the original
        # parameters. Weights then learn the variation, and biases the mean; it remains a descent direction
        visible_mean, hidden_mean = self.means
        by_weight = (
            by_weight - torch.outer(visible_mean, by_hidden) - torch.outer(by_visible, hidden_mean)
        )
        by_visible = by_visible - by_weight @ hidden_mean
        by_hidden = by_hidden - visible_mean @ by_weight
        by_weight = by_weight + settings.weight_decay * self.weight

        steps = zip(
            self.parameters, (by_weight, by_visible, by_hidden), self.velocities, strict=True
        )
        for parameter, gradient, velocity in steps:
            velocity.mul_(settings.momentum).sub_(gradient, alpha=rate)
            parameter.add_(velocity)
        return ((visible - rebuilt) ** 2).mean()
