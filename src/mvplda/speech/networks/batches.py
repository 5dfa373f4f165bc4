"""Frames and labels as a network takes them: checked, numbered, and in batches on the device.

torch comes from here, or an error that names the extra which brings it. All frames lie on the
device once, standardised, where they fit; a batch is gathered by index. Orders and crops are
drawn on the CPU, so that they do not depend on the device.
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
from ..corpora.corpus import held_out_classes
from ..features.store import FeatureSet
from .settings import FrameAugmentation

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


class Body(nn.Module):
    """A network without heads: ``body(frames, lengths)`` makes vectors (B, dimension) of frames (B, T, width).

    Training copies the frames' mean and deviation into ``shift`` and ``deviation``.
    """

    shift: Tensor
    deviation: Tensor

    def __init__(self, width: int, dimension: int, embedding: int | None = None) -> None:
        """``embedding``: how many numbers the heads see, as many as the vectors have if None."""
        super().__init__()
        self.width, self.dimension, self.embedding = width, dimension, embedding or dimension
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


def check_features(features: FeatureSet, width: int | None = None) -> None:
    """Refuse what no network can take, and name the first utterance at fault."""
    if len(features) == 0:
        raise DataError("there are no utterances: a feature set with at least one is needed")
    if width is not None and features.dimension != width:
        raise DataError(
            f"the frames have {features.dimension} features, the extractor takes {width}: use its feature settings"
        )
    empty = np.flatnonzero(features.lengths < 1)
    if len(empty):
        raise DataError(
            f"{len(empty)} utterance(s) have no frames, the first is {str(features.ids[empty[0]])!r}"
        )
    finite = np.isfinite(features.frames).all(axis=1)
    if not finite.all():
        bad = int(np.searchsorted(features.offsets, np.flatnonzero(~finite)[0], side="right")) - 1
        raise DataError(f"the frames of {str(features.ids[bad])!r} contain NaN or infinity")


def number_classes(labels: Labels, n: int) -> tuple[IntArray, dict[str, list[str]]]:
    """(n, K) class numbers, -1 where a label is missing, and the classes' names by view."""
    if not labels:
        raise LabelError("a network needs the labels of at least one view")
    for view, column in labels.items():
        if len(column) != n:
            raise LabelError(f"there are {n} utterances but {len(column)} labels in view {view!r}")
    table = encode_labels(labels, tuple(labels))
    codes, classes = [], {}
    for view in table.views:
        names = (
            table.classes[view].names
            if table.classes[view].cells is None
            else table.classes[view].cells
        )
        assert names is not None
        if len(names) < 2:
            raise LabelError(
                f"view {view!r} has {len(names)} class(es): a network learns from at least 2"
            )
        codes.append(np.where(table.codes[view] < len(names), table.codes[view], -1))
        classes[view] = [str(name) for name in names]
    return np.stack(codes, axis=1).astype(np.int64), classes


def hold_out_rows(
    labels: Labels, view: str, share: float, random_state: int
) -> tuple[IntArray, IntArray]:
    """Rows of the classes that stay, and rows of a share of the classes, at least 2, that are held out."""
    if view not in labels:
        raise LabelError(
            f"there is no view {view!r} to hold classes out of; there are {list(labels)}"
        )
    column = np.array([str(value) for value in labels[view]])
    number = len(np.unique(column))
    count = max(2, round(share * number))
    if number - count < 2:
        raise ParameterError(
            f"view {view!r} has {number} classes: holding {count} out leaves fewer than 2"
        )
    out = np.isin(column, held_out_classes(column, share, random_state))
    return np.flatnonzero(~out), np.flatnonzero(out)


def take_labels(labels: Labels, rows: IntArray) -> dict[str, NDArray[Any]]:
    """The labels of some utterances."""
    return {view: np.asarray(column)[rows] for view, column in labels.items()}


def frame_statistics(features: FeatureSet) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Mean and deviation of every feature over all frames; a constant one has deviation 1."""
    mean = features.frames.mean(axis=0, dtype=np.float64)
    square = np.zeros_like(mean)
    for start in range(0, len(features.frames), 65536):
        square += ((features.frames[start : start + 65536] - mean) ** 2).sum(axis=0)
    deviation = np.sqrt(square / len(features.frames))
    deviation[deviation < 1e-6] = 1.0
    return mean.astype(np.float32), deviation.astype(np.float32)


def stacked_positions(
    first: Tensor, last: Tensor, centre: Tensor, context: tuple[int, int]
) -> Tensor:
    """(..., before + 1 + after) positions of the frames about each centre, edges repeated.

    ``first`` and ``last`` are the positions of the utterance's own ends.
    """
    before, after = context
    around = torch.arange(-before, after + 1, device=centre.device)
    wanted = centre[..., None] + around
    return torch.minimum(torch.maximum(wanted, first[..., None]), last[..., None])


def standardised(
    features: FeatureSet, shift: Tensor, deviation: Tensor, device: torch.device
) -> Tensor:
    """(total, D) float32 frames of the set, on the device where half of its free memory holds them."""
    frames = torch.from_numpy(np.ascontiguousarray(features.frames, dtype=np.float32))
    frames = (frames - shift.cpu()) / deviation.cpu()
    if device.type == "cuda" and frames.nbytes > torch.cuda.mem_get_info(device)[0] // 2:
        return frames.pin_memory()
    return frames.to(device)


class FrameBatches:
    """Frames of all utterances in random order, each with those around it."""

    def __init__(
        self,
        features: FeatureSet,
        frames: Tensor,
        codes: IntArray,
        context: tuple[int, int],
        batch: int,
        device: torch.device,
        augmentation: FrameAugmentation,
    ) -> None:
        if augmentation != FrameAugmentation(noise=augmentation.noise):
            raise ParameterError(
                "the paper's network sees single frames: of the augmentations it can have noise only"
            )
        self.frames, self.batch, self.context, self.device = frames, batch, context, device
        self.noise = augmentation.noise
        where = frames.device
        lengths = features.lengths
        self.owner = torch.from_numpy(np.repeat(np.arange(len(features)), lengths)).to(where)
        self.first = torch.from_numpy(np.asarray(features.offsets[:-1], dtype=np.int64)).to(where)
        self.last = torch.from_numpy(np.asarray(features.offsets[1:] - 1, dtype=np.int64)).to(where)
        self.codes = torch.from_numpy(codes).to(where)

    def __len__(self) -> int:
        return max(1, len(self.frames) // self.batch)

    def stacked(self, centre: Tensor) -> Tensor:
        """(N, (before + 1 + after) D) of the frames at these positions."""
        owner = self.owner[centre]
        positions = stacked_positions(self.first[owner], self.last[owner], centre, self.context)
        return self.frames[positions].reshape(len(centre), -1)

    def chunks(self, rng: np.random.Generator) -> Iterator[tuple[Tensor, Tensor]]:
        """Stacked frames and their class numbers, CHUNK batches at a time, in random order."""
        order = torch.from_numpy(rng.permutation(len(self.frames))).to(self.frames.device)
        for centre in pieces(order, self.batch * CHUNK):
            codes = self.codes[self.owner[centre]]
            yield self.stacked(centre).to(self.device), codes.to(self.device)

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
        return self.stacked(torch.from_numpy(chosen).to(self.frames.device)).to(self.device)


class UtteranceBatches:
    """Utterances of similar length together, cropped, stretched, masked and with noise as asked."""

    def __init__(
        self,
        features: FeatureSet,
        frames: Tensor,
        codes: IntArray,
        batch: int,
        device: torch.device,
        augmentation: FrameAugmentation,
    ) -> None:
        if min(batch, len(features)) < 2:
            raise ParameterError(
                f"the modern network normalises over at least 2 utterances a step; there are {len(features)}, "
                f"batch is {batch}"
            )
        self.frames, self.batch, self.device, self.augmentation = (
            frames,
            batch,
            device,
            augmentation,
        )
        self.first, self.lengths = np.asarray(features.offsets[:-1]), features.lengths
        self.codes = torch.from_numpy(codes).to(device)

    def __len__(self) -> int:
        return min(
            -(-len(self.lengths) // self.batch), len(self.lengths) // 2
        )  # none of a single utterance

    def epoch(self, rng: np.random.Generator) -> Iterator[tuple[Inputs, Tensor]]:
        for rows in self.orders(rng):
            codes = self.codes[torch.from_numpy(rows).to(self.device)]
            yield self.utterances(rows, rng), codes

    def orders(self, rng: np.random.Generator) -> list[IntArray]:
        """Rows of every batch: equal sizes within one, because statistics of a tiny batch are noise."""
        order = rng.permutation(len(self.lengths))
        together = self.batch * SORTED_BATCHES
        for start in range(0, len(order), together):
            part = order[start : start + together]
            order[start : start + together] = part[np.argsort(self.lengths[part], kind="stable")]
        batches = np.array_split(order, len(self))
        return [batches[i] for i in rng.permutation(len(batches))]

    def utterances(self, rows: IntArray, rng: np.random.Generator) -> tuple[Tensor, Tensor | None]:
        """(B, T, D) frames and (B,) lengths; lengths are None where no utterance is padded."""
        change = self.augmentation
        draw = rng.random((3, len(rows)))
        rate = 1 + change.stretch * (2 * draw[0] - 1)
        lengths = np.maximum(1, np.floor((self.lengths[rows] - 1) / rate).astype(np.int64) + 1)
        longest = int(lengths.max())
        if change.crop:
            longest = max(int(lengths.min()), int(np.ceil((1 - change.crop) * longest)))
        cropped = np.minimum(lengths, longest)
        origin = np.floor(draw[1] * (lengths - cropped + 1))
        position = (origin[:, None] + np.arange(longest)[None, :]) * rate[:, None]
        position = np.minimum(position, (self.lengths[rows] - 1)[:, None])
        left = np.floor(position).astype(np.int64)
        index = torch.from_numpy(self.first[rows][:, None] + left).to(self.frames.device)
        x = self.frames[index]
        if change.stretch:
            right = np.minimum(left + 1, (self.lengths[rows] - 1)[:, None])
            between = torch.from_numpy((position - left).astype(np.float32)).to(x.device)[
                :, :, None
            ]
            further = self.frames[torch.from_numpy(self.first[rows][:, None] + right).to(x.device)]
            x = x + between * (further - x)
        x = self.masked(x.to(self.device), cropped, rng)
        padded = int(cropped.min()) < longest
        if not padded:
            return x, None
        held = torch.from_numpy(cropped).to(self.device)
        # what lies beyond an utterance's end belongs to another one: it is blanked, not trusted to the network
        return x * valid_frames(held, longest)[:, :, None], held

    def masked(self, x: Tensor, lengths: IntArray, rng: np.random.Generator) -> Tensor:
        change, (count, longest, width) = self.augmentation, x.shape
        if change.noise:
            x = x + change.noise * torch.randn_like(x)
        keep = np.ones((count, longest, 1), dtype=np.float32)
        for _ in range(change.time_masks):
            span = np.floor(rng.random(count) * (change.time_mask * lengths + 1)).astype(np.int64)
            keep *= ~_spans(longest, span, lengths, rng)[:, :, None]
        bands = np.ones((count, 1, width), dtype=np.float32)
        for _ in range(change.frequency_masks):
            span = rng.integers(0, min(change.frequency_mask, width - 1) + 1, count)
            bands *= ~_spans(width, span, np.full(count, width), rng)[:, None, :]
        if change.time_masks:
            x = x * torch.from_numpy(keep).to(x.device)
        if change.frequency_masks:
            x = x * torch.from_numpy(bands).to(x.device)
        return x


def _spans(
    size: int, span: IntArray, room: IntArray, rng: np.random.Generator
) -> NDArray[np.bool_]:
    """(B, size) True in one stretch of the given span for each row, somewhere within its room."""
    start = np.floor(rng.random(len(span)) * (room - span + 1))[:, None]
    along = np.arange(size)[None, :]
    return np.asarray((along >= start) & (along < start + span[:, None]))
