"""Frames and labels, as a network takes them. Nothing here needs torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...exceptions import DataError, LabelError, ParameterError
from ...labels import encode_labels
from ..corpora.corpus import split_classes
from ..features.store import FeatureSet

IntArray = NDArray[np.int64]
Labels = Mapping[str, Any]


def concatenate(sets: Sequence[FeatureSet]) -> FeatureSet:
    """Several sets as one, in their order: `FeatureSet.concatenate`."""
    return FeatureSet.concatenate(sets)


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
        raise DataError(f"{len(empty)} utterance(s) have no frames, the first is {str(features.ids[empty[0]])!r}")
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
        names = table.classes[view].names if table.classes[view].cells is None else table.classes[view].cells
        assert names is not None
        if len(names) < 2:
            raise LabelError(f"view {view!r} has {len(names)} class(es): a network learns from at least 2")
        codes.append(np.where(table.codes[view] < len(names), table.codes[view], -1))
        classes[view] = [str(name) for name in names]
    return np.stack(codes, axis=1).astype(np.int64), classes


def hold_out_rows(labels: Labels, view: str, share: float, random_state: int) -> tuple[IntArray, IntArray]:
    """Rows of the classes that stay, and rows of a share of the classes, at least 2, that are held out."""
    if view not in labels:
        raise LabelError(f"there is no view {view!r} to hold classes out of; there are {list(labels)}")
    column = np.array([str(value) for value in labels[view]])
    number = len(np.unique(column))
    count = max(2, round(share * number))
    if number - count < 2:
        raise ParameterError(f"view {view!r} has {number} classes: holding {count} out leaves fewer than 2")
    out = np.isin(column, split_classes(column, number - count, random_state)[1])
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
