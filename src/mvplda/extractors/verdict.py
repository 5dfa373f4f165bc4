"""Same voice or not: recordings in, a likelihood ratio and a verdict in words out."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..costs import threshold_from_costs
from ..exceptions import DataError, LabelError, ParameterError, UnknownExtractorWarning
from ..io.vectors import VectorSet, read_vectors, write_vectors
from ..persistence import compare_extractors
from ..scoring.question import Question
from .extractor import Extracted, Extractor
from .quality import Quality
from .recipe import Calibration

Verdict = Literal["accept", "reject", "inconclusive"]
TEN_TIMES = math.log(10)
MARK = "#"
"""Between the name of a profile and the digest of a recording of it."""


@dataclass(frozen=True)
class Limits:
    """Which LLR accepts and which rejects; what lies between decides nothing.

    Examples
    --------
    >>> Limits.of(far=0.001)
    Limits(accept=6.907755278982137, reject=0.0)
    """

    accept: float = TEN_TIMES
    reject: float = -TEN_TIMES

    @classmethod
    def of(
        cls,
        far: float | None = None,
        prior: float | None = None,
        miss_cost: float = 1.0,
        false_alarm_cost: float = 1.0,
    ) -> Limits:
        """By a share of impostors who may pass, or by costs and the prior of a target; by default ten to one.

        An LLR that is calibrated exceeds t for at most exp(-t) of the impostors.
        """
        if far is not None and prior is not None:
            raise ParameterError(
                "give the false acceptances that you can bear, or costs and a prior, not both"
            )
        if prior is None and (miss_cost, false_alarm_cost) != (1.0, 1.0):
            raise ParameterError(
                "costs decide together with a prior: give the probability of a target, too"
            )
        if far is not None:
            if not 0 < far < 1:
                raise ParameterError(
                    f"a share of false acceptances lies between 0 and 1; got {far}"
                )
            return cls(-math.log(far), 0.0)
        if prior is None:
            return cls()
        threshold = threshold_from_costs(prior, miss_cost, false_alarm_cost)
        return cls(threshold, threshold)

    def verdict(self, llr: float) -> Verdict:
        return (
            "accept" if llr >= self.accept else "reject" if llr <= self.reject else "inconclusive"
        )


@dataclass(frozen=True)
class Decision:
    """What two sides of recordings say.

    Attributes
    ----------
    verdict : accept, reject or inconclusive
    llr : natural-log likelihood ratio of "the same" against "different"
    score : what it was made of, where there is no model: the cosine
    probabilities : of the model's hypotheses at even odds, where there is a model of two views
    basis : what the LLR rests on
    reasons : why nothing was decided, or what to mind
    views : what was asked about: the same in all of these
    """

    verdict: Verdict
    llr: float
    limits: Limits
    basis: str
    score: float | None = None
    probabilities: Mapping[str, float] | None = None
    reasons: tuple[str, ...] = ()
    views: tuple[str, ...] = ("speaker",)

    def sentence(self) -> str:
        """The verdict in words."""
        thing = "voice" if self.views == ("speaker",) else " and ".join(self.views)
        times = math.exp(min(abs(self.llr), 50.0))
        amount = (
            f"{times:.1f}" if times < 100 else f"{times:,.0f}" if times < 1e6 else f"{times:.0e}"
        )
        which = "the same" if self.llr >= 0 else "different ones"
        said = {
            "accept": f"The same {thing}",
            "reject": f"Not the same {thing}"
            if self.llr <= 0
            else f"Not enough for the same {thing}",
            "inconclusive": "Nothing can be decided",
        }[self.verdict]
        return f"{said}: these recordings are {amount} times more likely with {which} (LLR {self.llr:+.2f})."


def verify(
    extractor: Extractor,
    one: Extracted,
    other: Extracted,
    *,
    model: Any = None,
    limits: Limits | None = None,
    options: Mapping[str, Any] | None = None,
) -> Decision:
    """Compare two sides of one or more recordings each."""
    speech = min(
        (sum(q.speech_s for q in side.qualities) for side in (one, other) if side.qualities),
        default=1.0,
    )
    scored = score(extractor, one.X, None, other.X, speech, model=model, options=options)
    llr = float(scored.llrs[0])
    limits = limits or Limits()
    reasons = [text for side in (one, other) for text in _bad(side.qualities)]
    verdict = limits.verdict(llr)
    if any(not quality.usable for side in (one, other) for quality in side.qualities):
        verdict = "inconclusive"
    repeated = {q.digest for q in one.qualities} & {q.digest for q in other.qualities}
    if repeated:
        reasons.append("a recording stands on both sides: it is compared with itself")
    most = math.inf if model is not None else _calibration(extractor).most
    if limits.accept > most:
        reasons.append(
            f"the default calibration never claims more than {most:+.2f}, so that nothing can be accepted from "
            f"{limits.accept:+.2f}: that takes a model of your own recordings"
        )
    return Decision(
        verdict,
        llr,
        limits,
        scored.basis,
        None if scored.cosines is None else float(scored.cosines[0]),
        None
        if scored.hypotheses is None
        else {name: float(p[0]) for name, p in scored.hypotheses.items()},
        tuple(dict.fromkeys(reasons)),
        scored.views,
    )


def score(
    extractor: Extractor,
    enrolled: NDArray[Any],
    ids: Sequence[str] | None,
    test: NDArray[Any],
    speech_s: float,
    *,
    model: Any = None,
    options: Mapping[str, Any] | None = None,
) -> Scored:
    """Every profile against all tests together.

    ids : profile of every enrolled vector; None: all are one
    speech_s : of the side that has less
    """
    names = ["one"] * len(enrolled) if ids is None else list(ids)
    asked = dict(options or {})
    spoofs = {name: asked[name] for name in ("countermeasure", "spoof_prior") if name in asked}
    if model is None:
        scored = _by_cosine(extractor, enrolled, names, test, speech_s)
        matrix = scored.llrs[:, None]
        return scored._replace(llrs=Question(**spoofs).with_spoofs(matrix, matrix.shape)[:, 0])
    from ..bundle import Bundle

    bundle = model if isinstance(model, Bundle) else Bundle(scorer=model)
    bundle.check_extractor(extractor.name, "the recordings")
    width = bundle.describe()["bundle"]["width"]
    if width != extractor.dimension:
        raise DataError(
            f"the model takes vectors of {width} numbers, {extractor.name} makes {extractor.dimension}"
        )
    profiles, tests = bundle.enrol(enrolled, names), bundle.enrol(test, ["test"] * len(test))
    basis = f"the likelihood ratio of {type(bundle.fitted_scorer).__name__}"
    if bundle.calibrator is None:
        llrs = bundle.llr(profiles, tests, **asked)
        basis += ", which is not calibrated"
    else:
        llrs = bundle.calibrated(profiles, tests, **asked)
        basis += ", calibrated"
    hypotheses = None
    views = [view for view in getattr(bundle.fitted_scorer, "views_", ()) if ":" not in view]
    if len(views) > 1 and hasattr(bundle.fitted_scorer, "hypotheses"):
        found = bundle.hypotheses(profiles, tests, **spoofs)
        hypotheses = {
            " and ".join(same) or "nothing": np.asarray(p)[:, 0] for same, p in found.items()
        }
    asked_of = tuple(np.atleast_1d(asked.get("same") or views or list(extractor.views)).tolist())
    return Scored(np.asarray(llrs, dtype=np.float64)[:, 0], basis, None, hypotheses, asked_of)


class Scored(NamedTuple):
    """LLRs of profiles, what they rest on, cosines where they do, the model's hypotheses, and the views asked about."""

    llrs: NDArray[np.float64]
    basis: str
    cosines: NDArray[np.float64] | None
    hypotheses: dict[str, NDArray[Any]] | None
    views: tuple[str, ...]


def _by_cosine(
    extractor: Extractor,
    enrolled: NDArray[Any],
    names: list[str],
    test: NDArray[Any],
    speech_s: float,
) -> Scored:
    """The cosine of mean directions, and the default calibration of the recipe."""
    calibration = _calibration(extractor)
    owner = np.unique(names, return_inverse=True)[1]
    first = list(dict.fromkeys(owner.tolist()))  # profiles in the order in which they appear
    unit = _unit(enrolled)
    means = _unit(np.array([unit[owner == i].mean(axis=0) for i in first]))
    cosines = means @ _unit(_unit(test).mean(axis=0, keepdims=True))[0]
    basis = (
        f"the cosine of {extractor.name} and its default calibration, which is not yours: {calibration.basis}; how "
        "it carries over to other recordings is not known. A model trained on recordings like yours is better"
    )
    return Scored(calibration.llr(cosines, speech_s), basis, cosines, None, extractor.views)


def _calibration(extractor: Extractor) -> Calibration:
    """The recipe's, of the cosine."""
    found = extractor.recipe.calibration if extractor.recipe is not None else None
    if found is None or found.slope == 0:
        raise ParameterError(
            f"{extractor.name} has no default calibration, so that its cosine says nothing by itself: give a trained "
            "model (mvplda train, mvplda calibrate), or [calibration] in its recipe"
        )
    return found


def _unit(vectors: NDArray[Any]) -> NDArray[np.float64]:
    wide = np.asarray(vectors, dtype=np.float64)
    return np.asarray(wide / np.maximum(np.linalg.norm(wide, axis=-1, keepdims=True), 1e-12))


def _bad(qualities: Sequence[Quality]) -> list[str]:
    return [EXPLAINED[name] for quality in qualities for name in quality.warnings]


EXPLAINED = {
    "tone": "a recording holds a tone, not a voice",
    "noise": "a recording holds steady noise, not a voice",
    "quiet": "a recording is nearly silent",
    "clipped": "a recording is clipped",
    "short": "a recording holds under a second of speech",
    "noisy": "a recording is noisy",
    "narrow": "a recording has the bandwidth of a telephone",
    "damaged": "a recording holds sound that no voice makes, as damaged files do",
    "speechless": "a recording holds no speech that was heard",
}


class ProfileBook:
    """Named voices in a file of vectors: every recording's own vector, so that a new model can use them again."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.vectors = read_vectors(self.path) if self.path.is_file() else None

    @property
    def extractor(self) -> str | None:
        return None if self.vectors is None else self.vectors.extractor

    @property
    def owners(self) -> list[str]:
        """The profile of every vector."""
        if self.vectors is None:
            return []
        return [str(name).rpartition(MARK)[0] or str(name) for name in self.vectors.ids]

    def counts(self) -> dict[str, int]:
        """Recordings of every profile."""
        owners = self.owners
        return {name: owners.count(name) for name in dict.fromkeys(owners)}

    def check(self, extractor: Extractor) -> None:
        """Refuse an extractor other than the one that made the profiles."""
        with warnings.catch_warnings():
            warnings.simplefilter("error", UnknownExtractorWarning)
            try:
                compare_extractors(
                    f"the profiles in {self.path}",
                    self.extractor,
                    "the extractor given",
                    extractor.name,
                )
            except UnknownExtractorWarning as error:
                raise DataError(f"{error}. Enrol them again with this extractor") from error

    def add(self, name: str, extractor: Extractor, found: Extracted) -> None:
        """Add recordings to a profile, which need not be there yet; one that is in it already is an error."""
        if not name or MARK in name or any(c.isspace() for c in name):
            raise LabelError(f"a profile's name has no blanks and no {MARK}; got {name!r}")
        ids = [f"{name}{MARK}{quality.digest[:12]}" for quality in found.qualities]
        old = self.vectors
        if old is not None:
            self.check(extractor)
        again = [i for i in ids if (old is not None and i in old) or ids.count(i) > 1]
        if again:
            raise LabelError(
                f"a recording of {name!r} is given twice, or is in {self.path} already: nothing was added"
            )
        X = found.X if old is None else np.concatenate([old.X, found.X])
        self._write(
            VectorSet(
                np.array([*([] if old is None else old.ids.tolist()), *ids]), X, extractor.name
            )
        )

    def remove(self, name: str) -> int:
        """Take a profile out; how many recordings it had."""
        owners = self.owners
        if self.vectors is None or name not in owners:
            raise LabelError(
                f"there is no profile {name!r} in {self.path}; there are {', '.join(self.counts()) or 'none'}"
            )
        kept = [row for row, owner in enumerate(owners) if owner != name]
        if kept:
            self._write(
                VectorSet(self.vectors.ids[kept], self.vectors.X[kept], self.vectors.extractor)
            )
        else:
            self.path.unlink()
            Path(f"{self.path}.extractor").unlink(missing_ok=True)
            self.vectors = None
        return len(owners) - len(kept)

    def _write(self, vectors: VectorSet) -> None:
        write_vectors(self.path, vectors)
        self.vectors = vectors
