"""Layers that padded frames cannot touch: masked batch normalisation and attentive statistics."""

from __future__ import annotations

from .tensors import Tensor, functional, nn, torch


class MaskedBatchNorm(nn.Module):
    """Batch normalisation of (B, C, T) over the valid frames only.

    Statistics are kept in float32. Without a mask all frames are valid, and torch's own kernel is used.
    """

    running_mean: Tensor
    running_variance: Tensor

    def __init__(self, channels: int, momentum: float = 0.1, floor: float = 1e-5) -> None:
        super().__init__()
        self.momentum, self.floor = momentum, floor
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_variance", torch.ones(channels))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        if mask is None or not self.training:
            return functional.batch_norm(
                x.float(),
                self.running_mean,
                self.running_variance,
                self.weight,
                self.bias,
                self.training,
                self.momentum,
                self.floor,
            )
        x = x.float()
        count = mask.sum()
        mean = (x * mask).sum(dim=(0, 2)) / count
        centred = (x - mean[:, None]) * mask
        variance = (centred * centred).sum(dim=(0, 2)) / count
        with torch.no_grad():
            unbiased = variance * (count / (count - 1).clamp(min=1))
            self.running_mean.lerp_(mean, self.momentum)
            self.running_variance.lerp_(unbiased, self.momentum)
        gain = self.weight * torch.rsqrt(variance + self.floor)
        return centred * gain[:, None] + self.bias[:, None]


class AttentiveStatistics(nn.Module):
    """(B, C, T) -> (B, 2 C): mean and deviation of every channel, weighted over the valid frames.

    weights = softmax over time of  W2 tanh(W1 x + b1) + b2, one weight a channel and frame.
    """

    def __init__(self, channels: int, hidden: int, floor: float = 1e-4) -> None:
        super().__init__()
        self.inner = nn.Conv1d(channels, hidden, 1)
        self.outer = nn.Conv1d(hidden, channels, 1)
        self.floor = floor

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        scores = self.outer(torch.tanh(self.inner(x))).float()
        if mask is not None:
            scores = torch.where(mask > 0, scores, torch.full_like(scores, -1e30))
        weights = torch.softmax(scores, dim=2)
        x = x.float()
        mean = (weights * x).sum(dim=2)
        # centred, not E[x^2] - E[x]^2: the difference of two large numbers would be noise
        variance = (weights * (x - mean[:, :, None]) ** 2).sum(dim=2)
        return torch.cat([mean, torch.sqrt(variance + self.floor)], dim=1)
