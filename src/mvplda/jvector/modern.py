"""A small modern network: convolutions over time, attentive statistics, one embedding an utterance."""

from __future__ import annotations

from .layers import AttentiveStatistics, MaskedBatchNorm
from .settings import ModernNetwork
from .tensors import Tensor, nn, torch, valid_frames


class Step(nn.Module):
    """Convolution, batch normalisation; what it leaves in padded frames is blanked by the caller."""

    def __init__(self, inputs: int, outputs: int, kernel: int, dilation: int) -> None:
        super().__init__()
        around = dilation * (kernel // 2)
        self.convolution = nn.Conv1d(inputs, outputs, kernel, padding=around, dilation=dilation, bias=False)
        self.norm = MaskedBatchNorm(outputs)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        normed: Tensor = self.norm(self.convolution(x), mask)
        return normed


def blank(x: Tensor, mask: Tensor | None) -> Tensor:
    """Zeros in padded frames: what a convolution sees beyond the end of an utterance that is not padded."""
    return x if mask is None else x * mask


class Block(nn.Module):
    """One convolution (tdnn), or two and a short cut (residual)."""

    def __init__(self, channels: int, kernel: int, dilation: int, residual: bool) -> None:
        super().__init__()
        self.first = Step(channels, channels, kernel, dilation)
        self.second = Step(channels, channels, kernel, dilation) if residual else None

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        inner = blank(torch.relu(self.first(x, mask)), mask)
        if self.second is None:
            return inner
        return blank(torch.relu(self.second(inner, mask) + x), mask)


class ModernBody(nn.Module):
    """Frames (B, T, D) and lengths (B,) -> vectors (B, dimension)."""

    shift: Tensor
    deviation: Tensor

    def __init__(self, settings: ModernNetwork, width: int) -> None:
        super().__init__()
        self.settings, self.width, self.embedding = settings, width, settings.embedding
        both = settings.output == "embedding+pooled"
        self.dimension = settings.embedding + (2 * settings.pooled if both else 0)
        self.register_buffer("shift", torch.zeros(width))
        self.register_buffer("deviation", torch.ones(width))
        self.entry = Step(width, settings.channels, 5, 1)
        residual = settings.block == "residual"
        self.blocks = nn.ModuleList(
            Block(settings.channels, settings.kernel, dilation, residual) for dilation in settings.dilations
        )
        self.exit = Step(settings.channels, settings.pooled, 1, 1)
        self.pool = AttentiveStatistics(settings.pooled, settings.attention)
        self.pooled_norm = MaskedBatchNorm(2 * settings.pooled)
        self.dropout = nn.Dropout(settings.dropout)
        self.project = nn.Linear(2 * settings.pooled, settings.embedding, bias=False)
        self.embedding_norm = MaskedBatchNorm(settings.embedding)

    def pooled(self, frames: Tensor, lengths: Tensor | None) -> Tensor:
        """(B, 2 pooled) statistics of standardised frames; without lengths every frame is valid."""
        x = frames.transpose(1, 2)
        mask = None if lengths is None else valid_frames(lengths, frames.shape[1])[:, None, :].to(x.dtype)
        x = blank(torch.relu(self.entry(blank(x, mask), mask)), mask)
        for block in self.blocks:
            x = block(x, mask)
        x = torch.relu(self.exit(x, mask))
        pooled: Tensor = self.pooled_norm(self.pool(x, mask)[:, :, None])[:, :, 0]
        return pooled

    def project_pooled(self, pooled: Tensor) -> Tensor:
        embedding: Tensor = self.embedding_norm(self.project(self.dropout(pooled))[:, :, None])[:, :, 0]
        return embedding

    def embed(self, frames: Tensor, lengths: Tensor | None = None) -> Tensor:
        """(B, embedding) what the heads see, of standardised frames."""
        return self.project_pooled(self.pooled(frames, lengths))

    def forward(self, frames: Tensor, lengths: Tensor) -> Tensor:
        pooled = self.pooled((frames - self.shift) / self.deviation, lengths)
        embedding = self.project_pooled(pooled)
        both = self.settings.output == "embedding+pooled"
        return torch.cat([embedding, pooled], dim=1) if both else embedding
