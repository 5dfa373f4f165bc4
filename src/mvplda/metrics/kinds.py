"""Kinds of trials: which of the views agree between enrolment and test.

Of two views (speaker, phrase) the kinds have names: TC target correct, TW target
wrong phrase, IC impostor correct phrase, IW impostor wrong phrase. Of any other
number of views a kind is called by the views that agree, ``speaker+channel``, or
``none``. The trials that agree in every view are the targets.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..exceptions import DataError, LabelError
from .curves import Scores, as_scores, eer, reject_nan

Mask = NDArray[np.bool_]
TWO_VIEWS: dict[tuple[bool, ...], str] = {
    (True, True): "TC",
    (True, False): "TW",
    (False, True): "IC",
    (False, False): "IW",
}
ROW_ORDER = ("IW", "IC", "TW")


def trial_kinds(enrol: Mapping[str, Any], test: Mapping[str, Any], *, listed: bool = False) -> dict[str, Mask]:
    """Masks of the kinds of trials, targets first.

    Parameters
    ----------
    enrol, test : mapping
        Labels by view, the same views on both sides, the first being the speaker.
    listed : bool
        False: every enrolment meets every test, masks are (enrol, test). True: trial i is
        enrolment i against test i, masks are (trials,).

    Examples
    --------
    >>> from mvplda.metrics import trial_kinds
    >>> kinds = trial_kinds({"speaker": ["a"], "phrase": [1]}, {"speaker": ["a", "b"], "phrase": [1, 1]})
    >>> {kind: mask.tolist() for kind, mask in kinds.items()}
    {'TC': [[True, False]], 'TW': [[False, False]], 'IC': [[False, True]], 'IW': [[False, False]]}
    """
    views = list(enrol)
    if not views or set(views) != set(test):
        raise LabelError(f"enrolment and test must have the same views; got {views} and {list(test)}")
    same = [_agreement(enrol[view], test[view], view, listed) for view in views]
    if len({mask.shape for mask in same}) > 1:
        raise LabelError(f"every view must label every trial; got shapes {[mask.shape for mask in same]} of {views}")
    kinds = {}
    for pattern in product((True, False), repeat=len(views)):
        mask = np.ones(same[0].shape, dtype=bool)
        for wanted, agrees in zip(pattern, same, strict=True):
            mask &= agrees if wanted else ~agrees
        shared = "+".join(view for view, wanted in zip(views, pattern, strict=True) if wanted) or "none"
        kinds[TWO_VIEWS[pattern] if len(views) == 2 else shared] = mask
    return kinds


def _agreement(enrol: Any, test: Any, view: str, listed: bool) -> Mask:
    enrol, test = np.asarray(enrol), np.asarray(test)
    if enrol.ndim != 1 or test.ndim != 1:
        raise LabelError(f"labels of view {view!r} must be flat lists; got shapes {enrol.shape} and {test.shape}")
    if listed and len(enrol) != len(test):
        raise LabelError(
            f"listed trials need as many enrolment as test labels; view {view!r} has {len(enrol)} and {len(test)}"
        )
    if enrol.dtype.kind == test.dtype.kind and enrol.dtype.kind != "O":  # comparing codes is faster than comparing text
        codes = np.unique(np.concatenate([enrol, test]), return_inverse=True)[1].astype(np.int32)
        enrol, test = codes[: len(enrol)], codes[len(enrol) :]
    return np.asarray(enrol == test if listed else enrol[:, None] == test[None, :], dtype=bool)


def as_masks(kinds: Any, shape: tuple[int, ...]) -> dict[str, Mask]:
    """Masks by kind from masks, from the name of every trial's kind, or from ``is_target`` flags."""
    if isinstance(kinds, Mapping):
        masks = {str(kind): np.asarray(mask) for kind, mask in kinds.items()}
    else:
        array = np.asarray(kinds)
        if array.dtype == bool:
            masks = {"target": array, "nontarget": ~array}
        else:
            masks = {str(kind): np.asarray(array == kind) for kind in dict.fromkeys(np.unique(array).tolist())}
    covered = np.zeros(shape, dtype=bool)
    for kind, mask in masks.items():
        if mask.dtype != bool or mask.shape != shape:
            raise DataError(
                f"kind {kind!r} must be a boolean mask of the shape of the scores, {shape}; "
                f"got {mask.dtype} of shape {mask.shape}"
            )
        if (covered & mask).any():
            raise DataError(f"a trial has one kind; {int((covered & mask).sum())} of {kind!r} have another kind too")
        covered |= mask
    return masks


def target_kind(kinds: Mapping[str, Any], target: str | None = None) -> str:
    """The kind that is to be accepted: the one named, else TC, target, or same in every view."""
    shared = [kind for kind in kinds if kind not in ("none", "nontarget", *ROW_ORDER)]
    fullest = sorted(shared, key=lambda kind: -kind.count("+"))[:1]
    names = [target] if target is not None else ["TC", "target", *(fullest if "none" in kinds else [])]
    found = [name for name in names if name in kinds]
    if not found:
        wanted = repr(target) if target is not None else "TC, target or the same in every view"
        raise DataError(f"no kind of trial is {wanted} among {list(kinds)}; name the targets by target=")
    return found[0]


def split_by_kind(scores: Any, kinds: Any, target: str | None = None) -> tuple[str, Scores, dict[str, Scores]]:
    """The name of the target kind, its scores, and the scores of the other kinds, IW, IC, TW first."""
    array = np.asarray(scores)
    masks = as_masks(kinds, array.shape)
    chosen = target_kind(masks, target)
    others = sorted((k for k in masks if k != chosen), key=lambda k: ROW_ORDER.index(k) if k in ROW_ORDER else 9)
    targets = as_scores(array[masks[chosen]], f"target ({chosen})")
    parts = {kind: as_scores(array[masks[kind]], kind) for kind in others if masks[kind].any()}
    if not parts:
        raise DataError(f"there are no non-target scores: no trial has a kind other than {chosen!r}")
    for kind, part in {chosen: targets, **parts}.items():
        reject_nan(part, kind)
    empty = np.empty(0, dtype=targets.dtype)
    return chosen, targets, {kind: parts.get(kind, empty) for kind in others}


def eer_by_kind(scores: Any, kinds: Mapping[str, Mask]) -> dict[str, float]:
    """EER of the targets (TC) against every other kind, and against all of them (Total)."""
    scores = np.asarray(scores)
    target = target_kind(kinds)
    targets = scores[kinds[target]]
    others = [kind for kind in ROW_ORDER if kind in kinds]
    others += [kind for kind in kinds if kind != target and kind not in others]
    result = {kind: eer(targets, scores[kinds[kind]]) for kind in others}
    result["Total"] = eer(targets, scores[~kinds[target]])
    return result
