"""The paper's network: sigmoid layers on stacked frames, averaged over the utterance; a softmax for every view."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise

from ..._optional import need
from .settings import PaperNetwork

need("torch")

# under their own names, so that the other modules take them from here
import torch as torch  # noqa: E402
from torch import Tensor as Tensor  # noqa: E402
from torch import nn as nn  # noqa: E402


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
        self.dimension = settings.hidden
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
        hidden = hidden.float()
        losses = []
        right = []
        for output, wanted in zip(self.outputs, codes.T, strict=True):
            logits = output(hidden)
            losses.append(nn.functional.cross_entropy(logits, wanted))
            right.append((logits.argmax(dim=1) == wanted).float().mean())
        return torch.stack(losses).sum(), torch.stack(right)
