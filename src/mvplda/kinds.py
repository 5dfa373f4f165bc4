"""Kinds of trials, such as target and nontarget: the views in which enrolment and test agree.

With one view a trial is ``target`` or ``nontarget``. With two views, speaker and phrase, the kinds are
TC (target speaker, correct phrase), TW (target, wrong phrase), IC (impostor, correct phrase) and IW.
With three or more views, a kind is named by the views that agree, ``speaker+channel``, or ``none``. The
trials that agree in every view are the targets. A ``spoof`` is a synthetic imitation of the target.

The detection cost function weighs misses and false alarms (`mvplda.costs`):

    DCF(threshold) = miss_cost prior miss + false_alarm_cost (1 - prior) false_alarm

divided by the cost of the better of the two decisions without a score,
min(miss_cost prior, false_alarm_cost (1 - prior)); 1 is the cost of useless scores. *minDCF* uses the best
threshold, chosen with the labels; *actDCF* uses the Bayes threshold of
log-likelihood ratios, log(false_alarm_cost (1 - prior) / (miss_cost prior)).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import compress, product

import numpy as np
from numpy.typing import ArrayLike

from ._typing import BoolArray
from .coded import Coded
from .exceptions import DataError, LabelError

Kinds = Mapping[str, ArrayLike] | ArrayLike
"""Kinds of trials: masks of the trials by kind, or the name of the kind of each trial, or a mask of the targets."""

SPOOF = "spoof"
"""Kind of trial and hypothesis: a synthetic imitation of the target."""
TARGET, NONTARGET = "target", "nontarget"
"""Kinds of trials of a single view."""
TARGETS = ("TC", TARGET)
"""Kinds of targets, for two views and for one."""
NONTARGETS = ("IW", "IC", "TW", NONTARGET, SPOOF)
"""Kinds of non-targets, in the order of the rows of a table."""
NOTHING_SAME = "none"
"""Kind of trial, of three or more views, in which no view agrees."""
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
"""Kind of trial by its lower-case spelling in lists of trials."""


def kinds_by_pattern(views: Sequence[str]) -> dict[tuple[bool, ...], str]:
    """Return the kind of trial for each combination of agreeing and different views.

    The keys are tuples with one bool per view, True if both sides agree; the first key has True for all views.
    """
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
    """Return the names that are kinds of trials; other names are left out.

    Kinds are: target, nontarget, TC, TW, IC, IW and spoof; combinations of views such as
    ``speaker+channel``; ``none``; and single views such as ``speaker``, if one of the given
    combinations contains them.
    """
    listed = set(names)
    shared = {name for name in listed if "+" in name or name == NOTHING_SAME}
    shared = {name for name in shared if all(view[:1].isalpha() for view in name.split("+"))}
    views = {view for name in shared for view in name.split("+")}
    return listed & {*TARGETS, *NONTARGETS, *shared, *views}


def trial_kinds(
    enrol: Mapping[str, ArrayLike], test: Mapping[str, ArrayLike]
) -> dict[str, BoolArray]:
    """Return a mask (enrolments, tests) of the pairs of each kind of trial, targets first.

    Parameters
    ----------
    enrol, test : mapping
        Labels of the enrolments, and of the tests, by view. Both have the same views; the first is the speaker.

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
            "views must have equal numbers of labels; (enrolments, tests) are "
            + ", ".join(f"{mask.shape} for {view}" for view, mask in zip(views, same, strict=True))
            + ". Pass one label per enrolment and one per test in every view"
        )
    kinds = {}
    for pattern, kind in kinds_by_pattern(views).items():
        matches = [mask == is_same for is_same, mask in zip(pattern, same, strict=True)]
        kinds[kind] = np.logical_and.reduce(matches)
    return kinds


def _agreement(enrol: ArrayLike, test: ArrayLike, view: str) -> BoolArray:
    """Return the mask (enrolments, tests) of the pairs with equal labels in one view."""
    enrol_labels = np.asarray(enrol)
    test_labels = np.asarray(test)
    if enrol_labels.ndim != 1 or test_labels.ndim != 1:
        raise LabelError(
            f"the labels of view {view!r} must be lists with one label per enrolment and per test; got the shapes "
            f"{enrol_labels.shape} and {test_labels.shape}"
        )
    if enrol_labels.dtype.kind == test_labels.dtype.kind != "O":
        # Comparing codes is faster than comparing text.
        labels = np.concatenate([enrol_labels, test_labels])
        codes = np.unique(labels, return_inverse=True)[1].astype(np.int32)
        enrol_labels, test_labels = np.split(codes, [len(enrol_labels)])
    return np.asarray(enrol_labels[:, None] == test_labels, dtype=bool)


def as_masks(kinds: Kinds, shape: tuple[int, ...]) -> dict[str, BoolArray]:
    """Return kinds of trials as {kind: mask of its trials}.

    kinds : {kind: mask}, the name of the kind of each trial, or booleans that are true for targets
    shape : shape of the scores. `DataError` if a mask has another shape, or if a trial has two
        kinds
    """
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
                f"each trial must have only one kind; {int((covered & mask).sum())} of the trials "
                f"of kind {kind!r} have another kind too"
            )
        covered |= mask
    return masks


def target_kind(kinds: Mapping[str, object]) -> str:
    """Return the kind of the targets among these kinds: TC, target, or the combination of all views."""
    names = [*TARGETS]
    if any(kind == NOTHING_SAME or "+" in kind for kind in kinds):
        shared = [kind for kind in kinds if kind not in (NOTHING_SAME, *NONTARGETS)]
        names.append(max(shared, key=lambda kind: kind.count("+"), default=""))
    for name in names:
        if name in kinds:
            return name
    raise DataError(
        f"none of the kinds of trials {list(kinds)} is that of targets: name it TC, target, or by all views, such as "
        "speaker+channel"
    )


def ordered_kinds(kinds: Mapping[str, object], target: str) -> list[str]:
    """Return the kinds of non-targets in the order of a table: IW, IC, TW, then others as they occur."""
    standard = [kind for kind in NONTARGETS if kind in kinds and kind != target]
    return [*standard, *(kind for kind in kinds if kind not in (*standard, target))]
