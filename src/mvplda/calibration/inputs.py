"""What calibrators are given: scores and, for training, what every trial is."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..exceptions import DataError, FewSpeakersWarning, LabelError
from ..kernel.records import Array
from ..labels import encode_labels

TARGET_NAMES = ("TC", "target", "tgt")
ENOUGH_SPEAKERS = 30
NONTARGET_NAMES = ("TW", "IC", "IW", "nontarget", "imp", "impostor")


def as_scores(scores: Any, width: int | None = None) -> Array:
    """Scores as (n, m) float64: m scores of every trial; one dimension is one score a trial."""
    array = np.asarray(scores, dtype=np.float64)
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim != 2 or array.shape[1] == 0:
        raise DataError(
            f"scores have shape (n,), or (n, m) for m scores a trial; got {array.shape}. Flatten a matrix of trials"
        )
    if width is not None and array.shape[1] != width:
        raise DataError(f"there are {array.shape[1]} score(s) a trial; this calibrator was fitted to {width}")
    if not np.isfinite(array).all():
        bad = int((~np.isfinite(array)).any(axis=1).sum())
        raise DataError(f"{bad} trial(s) have a score that is NaN or infinite: leave them out or mend the scorer")
    return array


def as_kinds(kinds_or_targets: Any, n: int) -> NDArray[Any]:
    """(n,) what every trial is: text (kinds) or bool (targets)."""
    array = np.asarray(kinds_or_targets)
    if array.shape != (n,):
        raise LabelError(f"there are {n} trials and labels of shape {array.shape}: give one kind or target a trial")
    if array.dtype.kind == "O":
        array = np.asarray([str(v) if isinstance(v, str) else v for v in array])
    if array.dtype.kind in "US":
        return array.astype(str)
    values = np.unique(array)
    if set(values.tolist()) <= {0, 1, -1} and not {0, -1} <= set(values.tolist()):
        return np.asarray(array == 1)
    raise LabelError(
        f"trials are named by kind (TC, TW, IC, IW; target, nontarget), or by True and False, 1 and 0, 1 and -1; "
        f"got {values[:5].tolist()}"
    )


def as_targets(kinds_or_targets: Any, n: int) -> NDArray[np.bool_]:
    """(n,) whether every trial is a target."""
    kinds = as_kinds(kinds_or_targets, n)
    if kinds.dtype.kind == "U":
        names = np.unique(kinds)
        unknown = [str(k) for k in names if k not in TARGET_NAMES + NONTARGET_NAMES]
        if unknown:
            raise LabelError(
                f"there is no kind of trial {unknown[0]!r}; there are {[*TARGET_NAMES, *NONTARGET_NAMES]}, "
                "or give True for targets and False for the others"
            )
        kinds = np.isin(kinds, TARGET_NAMES)
    return check_both(kinds)


def check_both(targets: NDArray[Any]) -> NDArray[np.bool_]:
    """Calibration needs trials of both sorts."""
    some = int(targets.sum())
    if some == 0 or some == len(targets):
        raise DataError(
            f"calibration needs target and non-target trials; got {some} target(s) and {len(targets) - some} other(s)"
        )
    return np.asarray(targets, dtype=bool)


def count_speakers(
    speakers: Any, targets: NDArray[np.bool_], *, stacklevel: int
) -> tuple[int, float] | tuple[None, None]:
    """Speakers of the target trials, and how many with as many trials each they are worth; few are warned of."""
    if speakers is None:
        return None, None
    found = encode_labels({"speaker": speakers}).codes["speaker"]
    if len(found) != len(targets):
        raise LabelError(f"there are {len(targets)} trials and {len(found)} speakers: give one speaker a trial")
    trials = np.unique(found[targets], return_counts=True)[1].astype(np.float64)
    worth = float(trials.sum() ** 2 / np.square(trials).sum())
    if worth < ENOUGH_SPEAKERS:
        uneven = "" if round(worth) == len(trials) else f", worth {worth:.0f} with as many target trials each"
        warnings.warn(
            f"the calibration rests on {len(trials)} speaker(s){uneven}: it can be far off for others. Calibrate on "
            f"{ENOUGH_SPEAKERS} or more",
            FewSpeakersWarning,
            stacklevel=stacklevel,
        )
    return len(trials), worth


def name_kinds(masks: Mapping[str, Any]) -> NDArray[Any]:
    """The kind of every trial by name, from masks such as `mvplda.metrics.trial_kinds` makes.

    Examples
    --------
    >>> from mvplda.calibration import name_kinds
    >>> name_kinds({"TC": [True, False], "IW": [False, True]}).tolist()
    ['TC', 'IW']
    """
    arrays = {str(kind): np.asarray(mask, dtype=bool) for kind, mask in masks.items()}
    if not arrays:
        raise LabelError("there are no kinds: give masks such as trial_kinds makes")
    total = np.sum([mask.astype(np.int64) for mask in arrays.values()], axis=0)
    if (total != 1).any():
        raise LabelError(f"{int((total != 1).sum())} trial(s) are of no kind or of several: every trial has one kind")
    names = np.empty(total.shape, dtype=f"U{max(map(len, arrays))}")
    for kind, mask in arrays.items():
        names[mask] = kind
    return names


def as_side(side: Any, n: int, names: list[str] | None = None) -> tuple[Array, list[str]]:
    """Side information as (n, q) with the names of its columns, in the order of `names` where given."""
    if side is None:
        raise DataError("this calibrator needs side=: one row of side information a trial")
    if isinstance(side, Mapping) or hasattr(side, "columns"):
        found = [str(name) for name in side]
        wanted = found if names is None else names
        missing = [name for name in wanted if name not in found]
        if missing:
            raise DataError(f"the side information has no column {missing[0]!r}; it has {found}")
        columns = {str(name): side[name] for name in side}
        array = np.stack([np.asarray(columns[name], dtype=np.float64).reshape(-1) for name in wanted], axis=1)
    else:
        array = np.asarray(side, dtype=np.float64)
        array = array[:, None] if array.ndim == 1 else array
        wanted = [f"side{i}" for i in range(array.shape[-1])] if names is None else names
    if array.ndim != 2 or array.shape[0] != n or array.shape[1] != len(wanted):
        raise DataError(f"side information has shape ({n}, {len(wanted)}), one row a trial; got {array.shape}")
    if not np.isfinite(array).all():
        raise DataError("the side information holds NaN or infinity")
    return array, list(wanted)
