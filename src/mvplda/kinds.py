"""Kinds of trials, and what errors on them cost: in which of the views enrolment and test agree.

Of one view a trial is ``target`` or ``nontarget``. Of two views, speaker and phrase, the kinds are
TC (target speaker, correct phrase), TW (target, wrong phrase), IC (impostor, correct phrase) and IW.
Of three and more a kind is called by the views that agree, ``speaker+channel``, or ``none``. The
trials that agree in every view are the targets. A ``spoof`` is a machine's imitation of the target.

Costs: what misses and false alarms cost, how often targets come, and the threshold that follows.

    DCF(threshold) = miss_cost prior miss + false_alarm_cost (1 - prior) false_alarm

divided by the cost of the better of the two decisions that need no score,
min(miss_cost prior, false_alarm_cost (1 - prior)); 1 is worth nothing. *minDCF* takes the best
threshold, known afterwards; *actDCF* the one that Bayes gives in advance to
log-likelihood ratios, log(false_alarm_cost (1 - prior) / (miss_cost prior)).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import compress, product

import numpy as np
from numpy.typing import ArrayLike

from ._typing import BoolArray, Labels
from .coded import Coded
from .exceptions import DataError, LabelError

Kinds = Mapping[str, ArrayLike] | ArrayLike
"""Masks by kind, the name of every trial's kind, or which trials are targets."""

SPOOF = "spoof"
"""The kind of trial, and the fifth hypothesis: a machine that imitates the target."""
TARGET, NONTARGET = "target", "nontarget"
"""The two kinds of trials of one view."""
TARGETS = ("TC", TARGET)
NONTARGETS = ("IW", "IC", "TW", NONTARGET, SPOOF)
"""In the order of the rows of a table."""
NOTHING_SAME = "none"
KIND_WORDS = {
    "TC": "right speaker, right phrase",
    "TW": "right speaker, wrong phrase",
    "IC": "impostor, right phrase",
    "IW": "impostor, wrong phrase",
}
"""Plain names of the kinds of trials of a speaker and a phrase."""

SPELLINGS = {
    **{kind.lower(): kind for kind in (*TARGETS, *NONTARGETS)},
    **dict.fromkeys(("tgt", "true", "1"), "target"),
    **dict.fromkeys(
        ("imp", "non", "non-target", "imposter", "impostor", "false", "0", "-1"), "nontarget"
    ),
}
"""What lists of trials write, in small letters, and the kind that they mean."""


def kinds_by_pattern(views: Sequence[str]) -> dict[tuple[bool, ...], str]:
    """The kind of every pattern of same and different, all the same first."""
    names = {}
    for same in product((True, False), repeat=len(views)):
        name = "+".join(compress(views, same)) or NOTHING_SAME
        if len(views) == 1:
            name = (NONTARGET, TARGET)[same[0]]
        elif len(views) == 2:
            name = "IT"[same[0]] + "WC"[same[1]]
        names[same] = name
    return names


def recognised_kinds(names: Iterable[str]) -> set[str]:
    """Which of some names are kinds: target, TC, spoof ..., patterns such as ``speaker+channel``, and their views."""
    listed = set(names)
    shared = {name for name in listed if "+" in name or name == NOTHING_SAME}
    shared = {name for name in shared if all(view[:1].isalpha() for view in name.split("+"))}
    views = {view for name in shared for view in name.split("+")}
    return listed & {*TARGETS, *NONTARGETS, *shared, *views}


def trial_kinds(enrol: Labels, test: Labels) -> dict[str, BoolArray]:
    """Masks (enrol, test) of the kinds of trials, targets first: every enrolment meets every test.

    Parameters
    ----------
    enrol, test : mapping
        Labels by view, the same views on both sides, the first being the speaker.

    Examples
    --------
    >>> from mvplda.metrics import trial_kinds
    >>> kinds = trial_kinds({"speaker": ["a"], "phrase": [1]}, {"speaker": ["a", "b"], "phrase": [1, 1]})
    >>> {kind: mask.tolist() for kind, mask in kinds.items()}
    {'TC': [[True, False]], 'TW': [[False, False]], 'IC': [[False, True]], 'IW': [[False, False]]}
    """
    views = list(enrol)
    if not views or set(views) != set(test):
        raise LabelError(
            f"enrolment and test must have the same views; got {views} and {list(test)}"
        )
    same = [_agreement(enrol[view], test[view], view) for view in views]
    if len({mask.shape for mask in same}) > 1:
        raise LabelError(
            f"every view must label every trial; got shapes {[mask.shape for mask in same]} of {views}"
        )
    kinds = {}
    for pattern, kind in kinds_by_pattern(views).items():
        agreed = [wanted == mask for wanted, mask in zip(pattern, same, strict=True)]
        kinds[kind] = np.logical_and.reduce(agreed)
    return kinds


def _agreement(enrol: ArrayLike, test: ArrayLike, view: str) -> BoolArray:
    one = np.asarray(enrol)
    other = np.asarray(test)
    if one.ndim != 1 or other.ndim != 1:
        raise LabelError(
            f"labels of view {view!r} are flat lists; got shapes {one.shape} and {other.shape}"
        )
    if one.dtype.kind == other.dtype.kind != "O":
        # comparing codes is faster than comparing text
        codes = np.unique(np.concatenate([one, other]), return_inverse=True)[1].astype(np.int32)
        one, other = np.split(codes, [len(one)])
    return np.asarray(one[:, None] == other, dtype=bool)


def as_masks(kinds: Kinds, shape: tuple[int, ...]) -> dict[str, BoolArray]:
    """Masks by kind from masks, from the name of every trial's kind, or from ``is_target`` flags."""
    if isinstance(kinds, Mapping):
        masks = {str(kind): np.asarray(mask) for kind, mask in kinds.items()}
    elif not isinstance(kinds, Coded) and np.asarray(kinds).dtype == bool:
        masks = {"target": np.asarray(kinds), "nontarget": ~np.asarray(kinds)}
    else:
        coded = Coded.of(kinds)
        masks = {kind: coded.isin([kind]) for kind in sorted(coded.used)}
    covered = np.zeros(shape, dtype=bool)
    for kind, mask in masks.items():
        if mask.dtype != bool or mask.shape != shape:
            raise DataError(
                f"kind {kind!r} must be a boolean mask of the shape of the scores, {shape}; "
                f"got {mask.dtype} of shape {mask.shape}"
            )
        if (covered & mask).any():
            raise DataError(
                f"a trial has one kind; {int((covered & mask).sum())} of {kind!r} have another kind too"
            )
        covered |= mask
    return masks


def target_kind(kinds: Mapping[str, object]) -> str:
    """The kind that is to be accepted: TC, target, or same in every view."""
    names = [*TARGETS]
    if any(kind == NOTHING_SAME or "+" in kind for kind in kinds):
        shared = [kind for kind in kinds if kind not in (NOTHING_SAME, *NONTARGETS)]
        names.append(max(shared, key=lambda kind: kind.count("+"), default=""))
    for name in names:
        if name in kinds:
            return name
    raise DataError(
        f"no kind of trial is TC, target or the same in every view among {list(kinds)}: call the targets so"
    )


def ordered_kinds(kinds: Mapping[str, object], target: str) -> list[str]:
    """The kinds of non-targets in the order of a table: IW, IC, TW, then others as they come."""
    usual = [kind for kind in NONTARGETS if kind in kinds and kind != target]
    return [*usual, *(kind for kind in kinds if kind not in (*usual, target))]
