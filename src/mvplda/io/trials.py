"""Trials: which model meets which test, and what kind of trial it is.

Of two views, speaker and phrase, a trial is of kind TC (target speaker, correct
phrase), TW (target, wrong phrase), IC (impostor, correct phrase) or IW. Of one view
it is ``target`` or ``nontarget``. Of three and more the kind is the pattern: the
names of the views in which both sides are the same, joined by ``+``, or ``none``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..exceptions import DataError, LabelError, ParameterError
from ..labels import encode_labels
from .text import Names

TARGETS = ("target", "TC")
KINDS = ("target", "nontarget", "TC", "TW", "IC", "IW")
NOTHING_SAME = "none"


@dataclass(frozen=True)
class Trials:
    """A list of trials.

    enrol, test : (n,) ids of the model and of the test
    kind : (n,) target, nontarget, TC, TW, IC, IW, a pattern of `views`, or empty where it is
        not known; None where no kind is known
    views : names of the views of which the kinds are patterns
    """

    enrol: Names
    test: Names
    kind: Names | None = None
    views: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("enrol", "test") if self.kind is None else ("enrol", "test", "kind"):
            object.__setattr__(self, name, np.asarray(getattr(self, name), dtype=np.str_))
        shapes = [self.enrol.shape, self.test.shape] + ([] if self.kind is None else [self.kind.shape])
        if any(shape != (len(self.enrol),) for shape in shapes):
            raise DataError(f"a trial list has as many models as tests and kinds; got {shapes}")
        if self.kind is not None:
            allowed = kinds_of(self.views)
            odd = [kind for kind in np.unique(self.kind).tolist() if kind and kind not in allowed]
            if odd:
                raise LabelError(f"the kind of a trial is one of {', '.join(allowed)}; got {odd[0]!r}")

    def __len__(self) -> int:
        return len(self.enrol)

    def __getitem__(self, rows: Any) -> Trials:
        """The trials in some rows."""
        return Trials(self.enrol[rows], self.test[rows], None if self.kind is None else self.kind[rows], self.views)

    @property
    def target(self) -> NDArray[np.bool_]:
        """Which trials are targets: the same in every view."""
        if self.kind is None:
            raise LabelError("the kinds of these trials are not known: read a list with a key")
        unknown = int((self.kind == "").sum())
        if unknown:
            raise LabelError(f"the kind of {unknown} trial(s) is not known: leave them out, or add the key")
        targets = [*TARGETS, "+".join(self.views)] if self.views else list(TARGETS)
        return np.isin(self.kind, targets)

    @property
    def counts(self) -> dict[str, int]:
        """Trials of every kind."""
        if self.kind is None:
            return {"": len(self)}
        return dict(Counter(self.kind.tolist()))

    @property
    def duplicates(self) -> int:
        """Trials that repeat an earlier one."""
        return len(self) - len(set(zip(self.enrol.tolist(), self.test.tolist(), strict=True)))


def kinds_of(views: Sequence[str] = ()) -> tuple[str, ...]:
    """Kinds that trials may have, and the patterns of the views."""
    if not views:
        return KINDS
    return (*KINDS, *patterns(views).values())


def patterns(views: Sequence[str]) -> dict[tuple[bool, ...], str]:
    """The name of every pattern of same and different, all the same first."""
    names = {}
    for same in product((True, False), repeat=len(views)):
        pattern = "+".join(view for view, s in zip(views, same, strict=True) if s) or NOTHING_SAME
        if len(views) == 1:
            pattern = "target" if same[0] else "nontarget"
        elif len(views) == 2:
            pattern = ("T" if same[0] else "I") + ("C" if same[1] else "W")
        names[same] = pattern
    return names


def trials_from_labels(
    enrol_labels: Mapping[str, Any],
    test_labels: Mapping[str, Any],
    *,
    enrol_ids: Sequence[Any] | None = None,
    test_ids: Sequence[Any] | None = None,
    sample: int | None = None,
    seed: int = 0,
) -> Trials:
    """Trials of every model against every test, or at most `sample` of every kind.

    Parameters
    ----------
    enrol_labels, test_labels : {view: labels} of the models and of the tests; two views in
        the order speaker, phrase give TC, TW, IC and IW
    enrol_ids, test_ids : names of the models and tests; None numbers them
    sample : how many trials of every kind, drawn without replacement; None takes all
    seed : of the draw
    """
    views = tuple(enrol_labels)
    if set(views) != set(test_labels) or not views:
        raise LabelError(f"both sides need labels of the same views; got {list(views)} and {list(test_labels)}")
    if sample is not None and sample < 1:
        raise ParameterError(f"sample is a positive number of trials of every kind, or None; got {sample}")
    n, m = (len(side[views[0]]) for side in (enrol_labels, test_labels))
    if n == 0 or m == 0:
        raise LabelError(f"trials need models and tests; got {n} and {m}")
    together = {view: [*list(enrol_labels[view]), *list(test_labels[view])] for view in views}
    table = encode_labels(together, views)
    if len(table) != n + m:
        raise LabelError(f"the labels of the views differ in number; the first view has {n} and {m}")
    codes = [(table.codes[view][:n], table.codes[view][n:]) for view in views]
    rng = np.random.default_rng(seed)
    names = patterns(views)
    chosen = np.full((n, m), -1, dtype=np.int8 if len(names) < 128 else np.int32)
    chosen[:] = sum((e[:, None] != t).astype(np.int32) << (len(views) - 1 - k) for k, (e, t) in enumerate(codes))
    flat = chosen.reshape(-1)
    if sample is None:
        rows = np.arange(n * m)
    else:
        drawn = []
        for number in range(len(names)):
            found = np.flatnonzero(flat == number)
            drawn.append(rng.choice(found, size=min(sample, len(found)), replace=False) if len(found) else found)
        rows = np.sort(np.concatenate(drawn))
    first = np.asarray(np.arange(n) if enrol_ids is None else list(enrol_ids)).astype(np.str_)
    second = np.asarray(np.arange(m) if test_ids is None else list(test_ids)).astype(np.str_)
    if len(first) != n or len(second) != m:
        raise LabelError(f"{len(first)} and {len(second)} ids for {n} models and {m} tests; expected as many")
    kind = np.array(list(names.values()))[flat[rows]]
    return Trials(first[rows // m], second[rows % m], kind, views if len(views) > 2 else ())
