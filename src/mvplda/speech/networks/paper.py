"""The paper's network: sigmoid layers on stacked frames, averaged over the utterance."""

from __future__ import annotations

import math
from itertools import pairwise

from .batches import Body, Tensor, nn, stacked_positions, torch, valid_frames
from .settings import PaperNetwork


class PaperBody(Body):
    """Frames (B, T, D) and lengths (B,) -> vectors (B, hidden)."""

    def __init__(self, settings: PaperNetwork, width: int) -> None:
        super().__init__(width, settings.hidden)
        self.settings = settings
        sizes = [width * (sum(settings.context) + 1)] + [settings.hidden] * settings.layers
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))
        for layer in self.layers:
            assert isinstance(layer, nn.Linear)
            bound = settings.start_scale * math.sqrt(6 / (layer.in_features + layer.out_features))
            nn.init.uniform_(layer.weight, -bound, bound)
            nn.init.zeros_(layer.bias)

    def embed(self, frames: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Last hidden layer of standardised stacked frames (N, (before + 1 + after) D)."""
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
