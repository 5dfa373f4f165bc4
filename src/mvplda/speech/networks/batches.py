"""Batches on the device: stacked frames for the paper's network, whole utterances for the modern one.

All frames lie on the device once, standardised, where they fit; a batch is gathered by
index. Orders and crops are drawn on the CPU, so that they do not depend on the device.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ...exceptions import ParameterError
from ..features.store import FeatureSet
from .data import IntArray
from .paper import stacked_positions
from .settings import FrameAugmentation
from .tensors import Tensor, pieces, torch, valid_frames

CHUNK = 64
"""Steps whose stacked frames are gathered at once."""
SORTED_BATCHES = 16
"""Utterances of so many batches are sorted by length, so that a batch holds similar ones."""
Batch = tuple[tuple[Tensor, Tensor | None] | tuple[Tensor], Tensor]


def place(frames: Tensor, device: torch.device) -> Tensor:
    """Frames on the device where half of its free memory holds them, else where they are."""
    if device.type == "cuda" and frames.nbytes > torch.cuda.mem_get_info(device)[0] // 2:
        return frames.pin_memory()
    return frames.to(device)


def standardised(features: FeatureSet, shift: Tensor, deviation: Tensor, device: torch.device) -> Tensor:
    """(total, D) float32 frames of the set, on the device."""
    frames = torch.from_numpy(np.ascontiguousarray(features.frames, dtype=np.float32))
    return place((frames - shift.cpu()) / deviation.cpu(), device)


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
            raise ParameterError("the paper's network sees single frames: of the augmentations it can have noise only")
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

    def epoch(self, rng: np.random.Generator) -> Iterator[Batch]:
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
        self.frames, self.batch, self.device, self.augmentation = frames, batch, device, augmentation
        self.first, self.lengths = np.asarray(features.offsets[:-1]), features.lengths
        self.codes = torch.from_numpy(codes).to(device)

    def __len__(self) -> int:
        return min(-(-len(self.lengths) // self.batch), len(self.lengths) // 2)  # none of a single utterance

    def epoch(self, rng: np.random.Generator) -> Iterator[Batch]:
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
            ahead = torch.from_numpy((position - left).astype(np.float32)).to(x.device)[:, :, None]
            further = self.frames[torch.from_numpy(self.first[rows][:, None] + right).to(x.device)]
            x = x + ahead * (further - x)
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


def _spans(size: int, span: IntArray, room: IntArray, rng: np.random.Generator) -> np.ndarray[tuple[int, ...], Any]:
    """(B, size) True in one stretch of the given span for each row, somewhere within its room."""
    start = np.floor(rng.random(len(span)) * (room - span + 1))[:, None]
    along = np.arange(size)[None, :]
    return np.asarray((along >= start) & (along < start + span[:, None]))
