"""The modern network: convolutions, attentive statistics, and what training adds to it."""

from __future__ import annotations

import math
from collections.abc import Mapping

from .batches import Body, Tensor, functional, nn, torch, valid_frames
from .settings import ModernNetwork


class Convolution(nn.Module):
    """Convolution, batch normalisation; what it leaves in padded frames is blanked by the caller."""

    def __init__(self, inputs: int, outputs: int, kernel: int, dilation: int) -> None:
        super().__init__()
        around = dilation * (kernel // 2)
        self.convolution = nn.Conv1d(
            inputs, outputs, kernel, padding=around, dilation=dilation, bias=False
        )
        self.norm = MaskedBatchNorm(outputs)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        normed: Tensor = self.norm(self.convolution(x), mask)
        return normed


def blank(x: Tensor, mask: Tensor | None) -> Tensor:
    """Zeros in padded frames: what a convolution sees beyond the end of an utterance that is not padded."""
    return x if mask is None else x * mask


class Block(nn.Module):
    """Two convolutions and a short cut."""

    def __init__(self, channels: int, dilation: int) -> None:
        super().__init__()
        self.first = Convolution(channels, channels, 3, dilation)
        self.second = Convolution(channels, channels, 3, dilation)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        inner = blank(torch.relu(self.first(x, mask)), mask)
        return blank(torch.relu(self.second(inner, mask) + x), mask)


class ModernBody(Body):
    """Frames (B, T, D) and lengths (B,) -> vectors (B, embedding + 2 pooled)."""

    def __init__(self, settings: ModernNetwork, width: int) -> None:
        pooled = 2 * settings.pooled
        super().__init__(width, settings.embedding + pooled, settings.embedding)
        self.settings = settings
        self.entry = Convolution(width, settings.channels, 5, 1)
        self.blocks = nn.ModuleList(
            Block(settings.channels, dilation) for dilation in settings.dilations
        )
        self.exit = Convolution(settings.channels, settings.pooled, 1, 1)
        self.pool = AttentiveStatistics(settings.pooled, settings.attention)
        self.pooled_norm = MaskedBatchNorm(pooled)
        self.dropout = nn.Dropout(settings.dropout)
        self.project = nn.Linear(pooled, settings.embedding, bias=False)
        self.embedding_norm = MaskedBatchNorm(settings.embedding)

    def pooled(self, frames: Tensor, lengths: Tensor | None) -> Tensor:
        """(B, 2 pooled) statistics of standardised frames; without lengths every frame is valid."""
        x = frames.transpose(1, 2)
        mask = None
        if lengths is not None:
            mask = valid_frames(lengths, frames.shape[1])[:, None, :].to(x.dtype)
        x = blank(torch.relu(self.entry(blank(x, mask), mask)), mask)
        for block in self.blocks:
            x = block(x, mask)
        x = torch.relu(self.exit(x, mask))
        pooled: Tensor = self.pooled_norm(self.pool(x, mask)[:, :, None])[:, :, 0]
        return pooled

    def project_pooled(self, pooled: Tensor) -> Tensor:
        projected = self.project(self.dropout(pooled))
        embedding: Tensor = self.embedding_norm(projected[:, :, None])[:, :, 0]
        return embedding

    def embed(self, frames: Tensor, lengths: Tensor | None = None) -> Tensor:
        """(B, embedding) what the heads see, of standardised frames."""
        return self.project_pooled(self.pooled(frames, lengths))

    def forward(self, frames: Tensor, lengths: Tensor) -> Tensor:
        pooled = self.pooled((frames - self.shift) / self.deviation, lengths)
        return torch.cat([self.project_pooled(pooled), pooled], dim=1)


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


def angular_margin_logits(cosines: Tensor, codes: Tensor, margin: float, scale: float) -> Tensor:
    """scale cos(theta + margin) for the true class, scale cos(theta) for the others.

    Beyond theta + margin = pi, where the cosine would rise again, the true class gets
    cos(theta) - margin sin(margin): the two pieces nearly meet and both fall.
    """
    index = codes.clamp(min=0)[:, None]
    own = cosines.gather(1, index)
    sine = torch.sqrt((1 - own * own).clamp(min=1e-7))
    rotated = own * math.cos(margin) - sine * math.sin(margin)
    rotated = torch.where(
        own > math.cos(math.pi - margin), rotated, own - margin * math.sin(margin)
    )
    return scale * cosines.scatter(1, index, rotated)


class Heads(nn.Module):
    """Sum over views of cross-entropies.

    ``forward`` gives the loss, and by view how many were right and how many had a label;
    a label of -1 is missing and costs nothing.
    """

    def __init__(
        self,
        width: int,
        classes: Mapping[str, int],
        margins: Mapping[str, float] | None = None,
        scale: float = 1.0,
    ) -> None:
        """``margins`` of the views that have one, in cosines times ``scale``."""
        super().__init__()
        self.scale = scale
        self.views = tuple(classes)
        self.margins = [(margins or {}).get(view) for view in classes]
        self.outputs = nn.ModuleList()
        for count, margin in zip(classes.values(), self.margins, strict=True):
            output = nn.Linear(width, count, bias=margin is None)
            nn.init.xavier_uniform_(output.weight)
            if output.bias is not None:
                nn.init.zeros_(output.bias)
            self.outputs.append(output)

    def logits(
        self, embedding: Tensor, codes: Tensor, k: int, margin_share: float
    ) -> tuple[Tensor, Tensor]:
        """What view k's loss sees, and what decides whether it is right."""
        output = self.outputs[k]
        margin = self.margins[k]
        assert isinstance(output, nn.Linear)
        if margin is None:
            plain = output(embedding)
            return plain, plain
        cosines = functional.linear(
            functional.normalize(embedding), functional.normalize(output.weight.float())
        )
        moved = angular_margin_logits(cosines, codes[:, k], margin * margin_share, self.scale)
        return moved, cosines

    def forward(
        self, embedding: Tensor, codes: Tensor, margin_share: float = 1.0
    ) -> tuple[Tensor, Tensor, Tensor]:
        total = embedding.new_zeros((), dtype=torch.float32)
        right, counted = [], []
        for k in range(len(self.views)):
            with torch.autocast(embedding.device.type, enabled=False):
                logits, decided = self.logits(embedding.float(), codes, k, margin_share)
            known = codes[:, k] >= 0
            lost = functional.cross_entropy(logits, codes[:, k], ignore_index=-1, reduction="sum")
            total = total + lost / known.sum().clamp(min=1)
            right.append((decided.detach().argmax(dim=1) == codes[:, k]).sum())
            counted.append(known.sum())
        return total, torch.stack(right), torch.stack(counted)
