"""Frames and labels as a network takes them: checked, numbered, and in batches on the device.

torch comes from here, or an error that names the extra which brings it. All frames lie on the
device once, standardised; a batch is gathered by index. Orders and crops are drawn on the CPU, so
that they do not depend on the device.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..._optional import need
from ..._typing import IntArray
from ...exceptions import DataError, LabelError, ParameterError
from ...labels import encode_labels
from ..frames import FeatureSet
from .settings import Training

need("torch")

# under their own names, so that the other modules take them from here
import torch as torch  # noqa: E402
from torch import Tensor as Tensor  # noqa: E402
from torch import nn as nn  # noqa: E402
from torch.nn import functional as functional  # noqa: E402

Labels = Mapping[str, Any]
Inputs = tuple[Tensor, Tensor | None] | tuple[Tensor]
CHUNK = 64
"""Steps whose stacked frames are gathered at once."""
SORTED_BATCHES = 16
"""Utterances of so many batches are sorted by length, so that a batch holds similar ones."""
TIME_MASK = 0.1
"""The longest stretch that is blanked, as a share of the utterance."""


class Body(nn.Module):
    """A network without heads: ``body(frames, lengths)`` makes vectors (B, dimension) of frames (B, T, width).

    Training copies the frames' mean and deviation into ``shift`` and ``deviation``.
    """

    shift: Tensor
    deviation: Tensor

    def __init__(self, width: int, dimension: int, embedding: int | None = None) -> None:
        """``embedding``: how many dimensions the heads see, as many as the vectors have if None."""
        super().__init__()
        self.width = width
        self.dimension = dimension
        self.embedding = embedding or dimension
        self.register_buffer("shift", torch.zeros(width))
        self.register_buffer("deviation", torch.ones(width))

    def embed(self, frames: Tensor, lengths: Tensor | None = None) -> Tensor:
        """(B, embedding) of what the network's batches hold, which is standardised."""
        raise NotImplementedError


class Batches(Protocol):
    """What a network is trained on."""

    def __len__(self) -> int:
        """Steps of an epoch."""

    def epoch(self, rng: np.random.Generator) -> Iterator[tuple[Inputs, Tensor]]:
        """What the body's ``embed`` takes, and class numbers (B, K), batch by batch."""


def choose_device(name: str) -> torch.device:
    """The device of a setting; "auto" is the GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ParameterError(f"device is auto, cpu or cuda; got {name!r}") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ParameterError(
            f"device is {name!r}, but torch {torch.__version__} sees no GPU: use auto or cpu"
        )
    return device


def valid_frames(lengths: Tensor, longest: int) -> Tensor:
    """(B, T) True where an utterance has a frame, False where it is padded."""
    return torch.arange(longest, device=lengths.device)[None, :] < lengths[:, None]


def pieces(x: Tensor, size: int) -> Iterator[Tensor]:
    """Rows of x, so many at a time."""
    return (x[start : start + size] for start in range(0, len(x), size))


def check_features(features: FeatureSet) -> None:
    """Refuse what no network can take, and name the first utterance at fault."""
    if len(features) == 0:
        raise DataError("there are no utterances: a feature set with at least one is needed")
    empty = np.flatnonzero(features.lengths < 1)
    if len(empty):
        name = str(features.ids[empty[0]])
        raise DataError(f"{len(empty)} utterance(s) have no frames, the first is {name!r}")
    finite = np.isfinite(features.frames).all(axis=1)
    if not finite.all():
        first = np.flatnonzero(~finite)[0]
        bad = int(np.searchsorted(features.offsets, first, side="right")) - 1
        raise DataError(f"the frames of {str(features.ids[bad])!r} contain NaN or infinity")


def number_classes(labels: Labels, n: int) -> tuple[IntArray, dict[str, list[str]]]:
    """(n, K) class numbers, -1 where a label is missing, and the classes' names by view."""
    if not labels:
        raise LabelError("a network needs the labels of at least one view")
    for view, column in labels.items():
        if len(column) != n:
            raise LabelError(f"there are {n} utterances but {len(column)} labels in view {view!r}")
    table = encode_labels(labels, tuple(labels))
    codes = []
    classes = {}
    for view in table.views:
        names = table.classes[view].names
        assert names is not None
        if len(names) < 2:
            raise LabelError(
                f"view {view!r} has {len(names)} class(es): a network learns from at least 2"
            )
        codes.append(np.where(table.codes[view] < len(names), table.codes[view], -1))
        classes[view] = [str(name) for name in names]
    return np.stack(codes, axis=1).astype(np.int64), classes


def frame_statistics(features: FeatureSet) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Mean and deviation of every feature over all frames; a constant one has deviation 1."""
    mean = features.frames.mean(axis=0, dtype=np.float64)
    square = np.zeros_like(mean)
    for start in range(0, len(features.frames), 65536):
        square += ((features.frames[start : start + 65536] - mean) ** 2).sum(axis=0)
    deviation = np.sqrt(square / len(features.frames))
    deviation[deviation < 1e-6] = 1.0
    return mean.astype(np.float32), deviation.astype(np.float32)


def stacked_positions(first: Tensor, last: Tensor, centre: Tensor, context: int) -> Tensor:
    """(..., 2 context + 1) positions of the frames about each centre, edges repeated.

    ``first`` and ``last`` are the positions of the utterance's own ends.
    """
    around = torch.arange(-context, context + 1, device=centre.device)
    wanted = centre[..., None] + around
    return torch.minimum(torch.maximum(wanted, first[..., None]), last[..., None])


class FrameBatches:
    """Frames of all utterances in random order, each with those around it."""

    def __init__(
        self,
        features: FeatureSet,
        frames: Tensor,
        codes: IntArray,
        context: int,
        training: Training,
        device: torch.device,
    ) -> None:
        if training.crop or training.time_masks:
            raise ParameterError(
                "the paper's network sees single frames: it can have noise, but neither crop nor time_masks"
            )
        self.frames = frames
        self.batch = training.batch
        self.noise = training.noise
        self.context = context
        self.device = device
        owner = np.repeat(np.arange(len(features)), features.lengths)
        self.owner = torch.from_numpy(owner).to(device)
        self.first = torch.from_numpy(features.offsets[:-1].copy()).to(device)
        self.last = torch.from_numpy(features.offsets[1:] - 1).to(device)
        self.codes = torch.from_numpy(codes).to(device)

    def __len__(self) -> int:
        return max(1, len(self.frames) // self.batch)

    def stacked(self, centre: Tensor) -> Tensor:
        """(N, (2 context + 1) D) of the frames at these positions."""
        owner = self.owner[centre]
        positions = stacked_positions(self.first[owner], self.last[owner], centre, self.context)
        return self.frames[positions].reshape(len(centre), -1)

    def chunks(self, rng: np.random.Generator) -> Iterator[tuple[Tensor, Tensor]]:
        """Stacked frames and their class numbers, CHUNK batches at a time, in random order."""
        order = torch.from_numpy(rng.permutation(len(self.frames))).to(self.device)
        for centre in pieces(order, self.batch * CHUNK):
            yield self.stacked(centre), self.codes[self.owner[centre]]

    def epoch(self, rng: np.random.Generator) -> Iterator[tuple[Inputs, Tensor]]:
        for stacked, codes in self.chunks(rng):
            if self.noise:
                stacked = stacked + self.noise * torch.randn_like(stacked)
            for x, y in zip(pieces(stacked, self.batch), pieces(codes, self.batch), strict=True):
                # the last frames of an order that is drawn anew each time: all batches have one size
                if len(x) == self.batch or len(self.frames) < self.batch:
                    yield (x,), y

    def sample(self, count: int, rng: np.random.Generator) -> Tensor:
        """Stacked frames at random."""
        chosen = rng.permutation(len(self.frames))[:count]
        return self.stacked(torch.from_numpy(chosen).to(self.device))


class UtteranceBatches:
    """Utterances of similar length together, cropped, masked and with noise as the training has it."""

    def __init__(
        self,
        features: FeatureSet,
        frames: Tensor,
        codes: IntArray,
        training: Training,
        device: torch.device,
    ) -> None:
        if min(training.batch, len(features)) < 2:
            raise ParameterError(
                f"the network normalises over at least 2 utterances of a step; there are {len(features)}, "
                f"batch is {training.batch}"
            )
        self.frames = frames
        self.training = training
        self.device = device
        self.first = np.asarray(features.offsets[:-1])
        self.lengths = features.lengths
        self.codes = torch.from_numpy(codes).to(device)

    def __len__(self) -> int:
        count = -(-len(self.lengths) // self.training.batch)
        return min(count, len(self.lengths) // 2)  # none of a single utterance

    def epoch(self, rng: np.random.Generator) -> Iterator[tuple[Inputs, Tensor]]:
        for rows in self.orders(rng):
            codes = self.codes[torch.from_numpy(rows).to(self.device)]
            yield self.utterances(rows, rng), codes

    def orders(self, rng: np.random.Generator) -> list[IntArray]:
        """Rows of every batch: equal sizes within one, because statistics of a tiny batch are noise."""
        order = rng.permutation(len(self.lengths))
        together = self.training.batch * SORTED_BATCHES
        for start in range(0, len(order), together):
            part = order[start : start + together]
            order[start : start + together] = part[np.argsort(self.lengths[part], kind="stable")]
        batches = np.array_split(order, len(self))
        return [batches[i] for i in rng.permutation(len(batches))]

    def utterances(self, rows: IntArray, rng: np.random.Generator) -> tuple[Tensor, Tensor | None]:
        """(B, T, D) frames and (B,) lengths; lengths are None where no utterance is padded."""
        lengths = self.lengths[rows]
        longest = int(lengths.max())
        if self.training.crop:
            shortened = int(np.ceil((1 - self.training.crop) * longest))
            longest = max(int(lengths.min()), shortened)
        cropped = np.minimum(lengths, longest)
        origin = np.floor(rng.random(len(rows)) * (lengths - cropped + 1)).astype(np.int64)
        position = np.minimum(origin[:, None] + np.arange(longest)[None, :], (lengths - 1)[:, None])
        index = torch.from_numpy(self.first[rows][:, None] + position).to(self.device)
        x = self.masked(self.frames[index], cropped, rng)
        if int(cropped.min()) == longest:
            return x, None
        held = torch.from_numpy(cropped).to(self.device)
        # what lies beyond an utterance's end is blanked, not trusted to the network
        return x * valid_frames(held, longest)[:, :, None], held

    def masked(self, x: Tensor, lengths: IntArray, rng: np.random.Generator) -> Tensor:
        count, longest, _ = x.shape
        if self.training.noise:
            x = x + self.training.noise * torch.randn_like(x)
        along = np.arange(longest)[None, :]
        for _ in range(self.training.time_masks):
            span = np.floor(rng.random(count) * (TIME_MASK * lengths + 1))
            start = np.floor(rng.random(count) * (lengths - span + 1))
            inside = (along >= start[:, None]) & (along < (start + span)[:, None])
            x = x * torch.from_numpy(~inside[:, :, None]).to(x.device)
        return x
