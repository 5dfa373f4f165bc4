"""A committee of experts: several extractors' evidence, added up hypothesis by hypothesis."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted

from .._typing import Array, IntArray
from ..backend import as_vectors
from ..exceptions import DataError, LabelError, ParameterError
from ..labels import base_columns, encode_labels, label_columns
from ..persistence import Persistent, State, Tensors, get_part, put_part
from ..scoring.evidence import log_sum
from ..scoring.profiles import Profiles
from ..scoring.question import Hypothesis, Question, make_question, possible_hypotheses
from .scorer import MatrixScorer

TRIALS = 20_000
"""Of every kind in every fold, so many held-out trials are enough to weigh experts by."""

TESTS = 2000
"""Of every fold, so many held-out vectors are tests."""

Factors = Mapping[str, float] | Literal["learnt"] | None


class Committee(MatrixScorer, BaseEstimator):
    """Scorers that each see a part of the columns, and may each speak of some views only.

    Every expert says how likely a hypothesis is, against "nothing is shared"; what the experts say is multiplied
    by their factors and added up, and a question is answered by the sum. A network of voices and one of words are
    two experts: the second may speak of the phrase alone, and then says nothing about who spoke.

    Experts that hear the same thing say it twice, and each is too sure of itself where it was trained on few classes.
    Their factors, and a constant a hypothesis, are therefore learnt from classes that were held out, by logistic
    regression over hypotheses: the likelihood ratios are calibrated by it. A scorer that knows no views, such as the
    cosine, may be among the experts: its score counts for hypotheses that share all the views it speaks of.

    Parameters
    ----------
    experts : dict of {name: scorer}
        `MultiviewPLDA`, `PLDA` or a scorer without views, bare or in a `Bundle` with its preprocessing.
    columns : dict of {name: (start, stop)} or None
        Columns of a vector that an expert sees; those that are not named see all of them.
    speaks_of : dict of {name: views} or None
        Views that an expert may speak of; those that are not named speak of all.
    factors : "learnt", dict of {name: factor} or None
        None, and too few classes to hold any out: 1 for experts with views, 0 for others.
    known : sequence of str
        Views whose class is known when questions are asked (``known=``): factors are learnt for such trials.
    enrolment : int
        Vectors a profile in the trials that factors are learnt from.
    folds : int
        The classes of the first view are dealt into so many folds.

    Attributes
    ----------
    experts_ : dict of {name: fitted scorer}
    views_ : dict of {view: 0}, the base views that hypotheses are made of
    factors_ : dict of {name: factor}
    offsets_ : dict of {hypothesis: constant}

    Examples
    --------
    >>> import numpy as np
    >>> from mvplda import MultiviewPLDA
    >>> from mvplda.models.experts import Committee
    >>> rng = np.random.default_rng(0)
    >>> y = {"speaker": np.arange(600) % 20, "phrase": np.arange(600) // 60}
    >>> voice = rng.normal(size=(20, 4))[y["speaker"]] + rng.normal(size=(600, 4))
    >>> words = rng.normal(size=(10, 3))[y["phrase"]] + rng.normal(size=(600, 3))
    >>> expert = MultiviewPLDA({"speaker": None, "phrase": None}, prior="isotropic", prior_strength=0.5)
    >>> committee = Committee(
    ...     {"voice": expert, "words": expert},
    ...     columns={"voice": (0, 4), "words": (4, 7)},
    ...     speaks_of={"words": ["phrase"]},
    ... ).fit(np.hstack([voice, words]), y)
    >>> committee.llr(np.hstack([voice, words])[:3], np.hstack([voice, words])[:5], same="speaker").shape
    (3, 5)
    """

    def __init__(
        self,
        experts: Mapping[str, Any],
        *,
        columns: Mapping[str, tuple[int, int]] | None = None,
        speaks_of: Mapping[str, Sequence[str]] | None = None,
        factors: Factors = "learnt",
        known: Sequence[str] = (),
        enrolment: int = 1,
        folds: int = 4,
    ) -> None:
        self.experts = experts
        self.columns = columns
        self.speaks_of = speaks_of
        self.factors = factors
        self.known = known
        self.enrolment = enrolment
        self.folds = folds

    # -- training ------------------------------------------------------------

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit every expert to its columns, and learn their factors from classes that were held out."""
        if not self.experts:
            raise ParameterError("a committee needs at least one expert")
        if y is None:
            raise LabelError("a committee requires y to be passed, but the target y is None: give labels of every view")
        vectors = as_vectors(X)
        labels = {name: np.asarray(column) for name, column in label_columns(y, None).items()}
        self._adopt({name: clone(expert) for name, expert in self.experts.items()}, vectors.shape[1])
        for name, expert in self.experts_.items():
            expert.fit(self._see(name, vectors), labels)
        self._find_views(tuple(labels))
        self.factors_ = {name: 1.0 if views_of(e) is not None else 0.0 for name, e in self.experts_.items()}
        self.offsets_ = dict.fromkeys(possible_hypotheses(tuple(self.views_), {}), 0.0)
        if self.factors == "learnt":
            self._learn(vectors, labels)
        elif self.factors is not None:
            self.factors_ |= {name: float(self.factors[name]) for name in self._named(self.factors, "factors")}
        return self

    def _learn(self, X: Array, labels: dict[str, NDArray[Any]]) -> None:
        said, truth = [], []
        for training, trials in _held_out(X, labels, tuple(self.views_), self.folds, self.enrolment):
            fold = clone(self).set_params(factors=None)
            fold.fit(X[training], {view: column[training] for view, column in labels.items()})
            profiles = fold.enrol(X[trials.enrol], trials.ids)
            claims = {view: labels[view][trials.enrol[trials.first]] for view in self.known}
            question = Question(known=claims or None)
            evidence = fold._evidence(profiles, fold.enrol(X[trials.test]), question, list(self.offsets_))
            for number, rows in enumerate(trials.chosen):
                said.append(
                    np.stack([np.stack([e[h].ravel()[rows] for h in self.offsets_], 1) for e in evidence.values()], 2)
                )
                truth.append(np.full(len(rows), number))
        kinds = np.concatenate(truth) if truth else np.empty(0, dtype=np.int64)
        if len(np.unique(kinds)) < 2:
            return
        factors, offsets = weigh_experts(np.concatenate(said), kinds)
        self.factors_ = dict(zip(self.experts_, factors.tolist(), strict=True))
        self.offsets_ = dict(zip(self.offsets_, offsets.tolist(), strict=True))

    def _adopt(self, experts: dict[str, Any], width: int) -> None:
        self.experts_, self.width_ = experts, width
        for name in self._named(self.columns, "columns"):
            start, stop = (self.columns or {})[name]
            if not 0 <= start < stop <= width:
                raise ParameterError(f"expert {name!r} sees columns {start} to {stop}, the vectors have {width}")

    def _named(self, settings: Mapping[str, Any] | None, what: str) -> list[str]:
        unknown = [name for name in settings or {} if name not in self.experts_]
        if unknown:
            raise ParameterError(f"{what} names {unknown[0]!r}; the experts are {list(self.experts_)}")
        return list(settings or {})

    def _find_views(self, columns: tuple[str, ...]) -> None:
        found = [base_columns(tuple(views)) for e in self.experts_.values() if (views := views_of(e)) is not None]
        every = {view for views in found for view in views}
        self.views_ = dict.fromkeys([view for view in columns if view in every] or columns, 0)
        for name in self._named(self.speaks_of, "speaks_of"):
            unknown = [view for view in (self.speaks_of or {})[name] if view not in self.views_]
            if unknown:
                raise ParameterError(f"expert {name!r} speaks of {unknown[0]!r}; there are {list(self.views_)}")

    # -- profiles ------------------------------------------------------------

    def enrol(self, X: Any, ids: Any = None, labels: Any = None) -> Profiles:
        """Profiles of every expert, their evidence side by side."""
        check_is_fitted(self, "experts_")
        vectors = as_vectors(X)
        if vectors.shape[1] != self.width_:
            raise DataError(f"X has {vectors.shape[1]} features, but this committee is expecting {self.width_}")
        parts: list[Profiles] = [
            expert.enrol(self._see(name, vectors), ids, labels) for name, expert in self.experts_.items()
        ]
        if any(len(part.y) != len(parts[0].y) for part in parts):
            raise ParameterError("experts that know no views cannot enrol profiles with labels: leave labels out")
        richest = max(parts, key=lambda part: len(part.labels))
        y = np.concatenate([part.y for part in parts], axis=1)
        return replace(richest, y=y, model=self._key(), kept={})

    def _see(self, name: str, vectors: Array) -> Array:
        return vectors[:, slice(*(self.columns or {}).get(name, (0, vectors.shape[1])))]

    def _key(self) -> str:
        return "+".join(scorer_of(expert)._key() for expert in self.experts_.values())

    def _parts(self, profiles: Profiles) -> Iterator[tuple[str, Profiles]]:
        """The profiles as every expert made them."""
        start = 0
        for name, expert in self.experts_.items():
            scorer, views = scorer_of(expert), views_of(expert)
            width = scorer.width_in if views is None else sum(views.values())
            own = replace(profiles, y=profiles.y[:, start : start + width], model=scorer._key(), kept={})
            yield name, own if views is not None else replace(own, labels={})
            start += width

    @property
    def width_in(self) -> int:
        return self.width_

    # -- scoring ---------------------------------------------------------------

    def hypotheses(
        self, enrol: Any, test: Any, question: Question | None = None, *, dtype: Any = np.float32, **asked: Any
    ) -> dict[Hypothesis, NDArray[Any]]:
        """Posterior probability of every hypothesis, as `MultiviewPLDA.hypotheses`."""
        question = make_question(question, asked)
        profiles, tests = self._sides(enrol, test)
        weights = question.alternatives(self.views_, _labelled(profiles, tests, question))
        terms = self._terms(profiles, tests, question, list(weights))
        logs = {h: terms[h] + (np.log(w) if w > 0 else -np.inf) for h, w in weights.items()}
        total = log_sum([term + 0.0 for term in logs.values()])
        return {h: np.exp(term - total).astype(dtype) for h, term in logs.items()}

    def _views(self, question: Question) -> Any:
        return question

    def _matrix(self, enrol: Profiles, test: Profiles, views: Any, dtype: Any) -> NDArray[Any]:
        return self._answer(enrol, test, views, None).astype(dtype)

    def _pairs(self, enrol: Profiles, test: Profiles, views: Any, dtype: Any) -> NDArray[Any]:
        both = np.repeat(np.arange(len(enrol))[:, None], 2, axis=1)
        return self._answer(enrol, test, views, both).astype(dtype)

    def _answer(self, enrol: Profiles, test: Profiles, question: Question, pairs: IntArray | None) -> Array:
        ratio = question.ratio(self.views_, _labelled(enrol, test, question))
        terms = self._terms(enrol, test, question, list(dict.fromkeys(ratio.hypotheses)), pairs)
        sides = ([terms[h] + w for h, w in side.items()] for side in (ratio.numerator, ratio.denominator))
        above, below = (np.asarray(log_sum(side)) for side in sides)
        return np.asarray(above - below)

    def _terms(
        self,
        enrol: Profiles,
        test: Profiles,
        question: Question,
        hypotheses: list[Hypothesis],
        pairs: IntArray | None = None,
    ) -> dict[Hypothesis, Array]:
        evidence = self._evidence(enrol, test, question, hypotheses, pairs)
        terms = {}
        for h in hypotheses:
            added = sum(self.factors_[name] * said[h] for name, said in evidence.items())
            terms[h] = np.asarray(added + self.offsets_.get(h, 0.0))  # (V10)
        return terms

    def _evidence(
        self,
        enrol: Profiles,
        test: Profiles,
        question: Question,
        hypotheses: list[Hypothesis],
        pairs: IntArray | None = None,
    ) -> dict[str, dict[Hypothesis, Array]]:
        """What every expert says of every hypothesis, relative to the last, in which nothing is shared."""
        labelled = _labelled(enrol, test, question)
        tests = dict(self._parts(test))
        found: dict[str, dict[Hypothesis, Array]] = {}
        shape = (len(enrol), len(test)) if pairs is None else (len(pairs),)
        for name, profiles in self._parts(enrol):
            scorer = scorer_of(self.experts_[name])
            views = views_of(self.experts_[name])
            own = tuple(self.views_) if views is None else base_columns(tuple(views))
            may = [v for v in (self.speaks_of or {}).get(name, own) if v in own]
            said: dict[Hypothesis, Array] = {}
            for h in hypotheses:
                shared = tuple(v for v in own if v in h and v in may)
                complete = bool(may) and len(shared) == len([v for v in may if v not in labelled])
                if not shared or (views is None and not complete):
                    said[h] = np.zeros(shape)
                elif views is None:
                    said[h] = _ask(scorer, profiles, tests[name], pairs, Question())
                else:
                    apart = {v: "different" for v in own if v not in shared and v not in labelled}
                    one = Question(shared, apart, {shared: 1.0, (): 1.0}, _known_to(question, own))
                    said[h] = _ask(scorer, profiles, tests[name], pairs, one)
            found[name] = said
        return found

    # -- files -----------------------------------------------------------------

    def get_state(self) -> State:
        check_is_fitted(self, "experts_")
        arrays: Tensors = {}
        experts = {
            name: put_part(arrays, f"expert/{i}", expert, Persistent)
            for i, (name, expert) in enumerate(self.experts_.items())
        }
        values = {
            "experts": experts,
            "columns": None if self.columns is None else {name: list(c) for name, c in self.columns.items()},
            "speaks_of": None if self.speaks_of is None else {name: list(v) for name, v in self.speaks_of.items()},
            "settings": {"known": list(self.known), "enrolment": self.enrolment, "folds": self.folds},
            "views": list(self.views_),
            "width": self.width_,
            "factors": self.factors_,
            "offsets": [[list(h), offset] for h, offset in self.offsets_.items()],
        }
        return arrays, values

    @classmethod
    def from_state(cls, arrays: Tensors, values: dict[str, Any]) -> Self:
        experts = {
            name: get_part(arrays, f"expert/{i}", about, Persistent)
            for i, (name, about) in enumerate(values["experts"].items())
        }
        columns = values["columns"] and {name: tuple(c) for name, c in values["columns"].items()}
        committee = cls(experts, columns=columns, speaks_of=values["speaks_of"], **values["settings"])
        committee._adopt(experts, int(values["width"]))
        committee.views_ = dict.fromkeys(values["views"], 0)
        committee.factors_ = {name: float(values["factors"][name]) for name in experts}
        committee.offsets_ = {tuple(h): float(offset) for h, offset in values["offsets"]}
        return committee

    def describe(self) -> dict[str, Any]:
        return {
            "class": type(self).__name__,
            "dimension": self.width_,
            "views": list(self.views_),
            "experts": {name: expert.describe() for name, expert in self.experts_.items()},
            "factors": self.factors_,
        }


def scorer_of(expert: Any) -> Any:
    """The scorer itself, where an expert is a bundle of it and its preprocessing."""
    return getattr(expert, "fitted_scorer", expert)


def views_of(expert: Any) -> dict[str, int] | None:
    """Views with their ranks of a fitted expert; None where it knows none."""
    return getattr(scorer_of(expert), "views_", None)


def _labelled(enrol: Profiles, test: Profiles, question: Question) -> list[str]:
    """Views in which both sides have labels, which are facts."""
    return [view for view in test.labels if view in enrol.labels or view in question.known_views]


def _known_to(question: Question, own: Sequence[str]) -> Any:
    if isinstance(question.known, Mapping):
        return {view: claims for view, claims in question.known.items() if view in own} or None
    return [view for view in question.known_views if view in own] or None


def _ask(scorer: Any, enrol: Profiles, test: Profiles, pairs: IntArray | None, question: Question) -> Array:
    if pairs is None:
        return np.asarray(scorer.llr(enrol, test, question, dtype=np.float64))
    return np.asarray(scorer.llr_trials(enrol, test, pairs, question, dtype=np.float64))


def weigh_experts(said: Array, truth: IntArray) -> tuple[Array, Array]:
    """Factors of experts and offsets of hypotheses that cost held-out trials least; the last offset is 0.

    said : (n, hypotheses, experts) evidence; truth : (n,) number of the true hypothesis. All hypotheses that occur
    weigh the same. The cost, the mean of -log posterior(truth), is convex in both.
    """
    n, n_hypotheses, n_experts = said.shape
    mass = (1.0 / np.maximum(np.bincount(truth, minlength=n_hypotheses), 1))[truth]
    mass /= mass.sum()
    scale = np.maximum(np.sqrt(np.einsum("nhe,nhe->e", said, said) / n), 1e-12)
    rows = np.arange(n)

    def cost(theta: Array) -> tuple[float, Array]:
        factors, offsets = theta[:n_experts] / scale, np.append(theta[n_experts:], 0.0)
        logs = said @ factors + offsets
        logs -= logs.max(axis=1, keepdims=True)
        posterior = np.exp(logs)
        total = posterior.sum(axis=1)
        value = float(mass @ (np.log(total) - logs[rows, truth]))
        posterior /= total[:, None]
        posterior[rows, truth] -= 1.0
        posterior *= mass[:, None]
        slope = np.einsum("nhe,nh->e", said, posterior) / scale
        small = 1e-6 * theta[:n_experts]  # keeps factors finite where all trials are told apart
        return value + 0.5 * float(small @ theta[:n_experts]), np.append(slope + small, posterior[:, :-1].sum(axis=0))

    bounds = [(0.0, None)] * n_experts + [(-50.0, 50.0)] * (n_hypotheses - 1)
    start = np.append(0.3 * scale, np.zeros(n_hypotheses - 1))
    found = minimize(cost, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 500})  # (V11)
    return found.x[:n_experts] / scale, np.append(found.x[n_experts:], 0.0)


@dataclass(frozen=True)
class _Trials:
    """Trials among held-out vectors: rows to enrol with their profiles, rows to test, and some trials of each kind.

    first : place of every profile's first vector among those enrolled
    chosen : per hypothesis, places in the (profiles, tests) matrix
    """

    enrol: IntArray
    ids: IntArray
    first: IntArray
    test: IntArray
    chosen: list[IntArray]


def _held_out(
    X: Array, labels: dict[str, NDArray[Any]], views: tuple[str, ...], folds: int, enrolment: int
) -> Iterator[tuple[NDArray[np.bool_], _Trials]]:
    """Training rows and trials of every fold of the first view's classes; none where they are too few."""
    table = encode_labels({view: labels[view] for view in views}, views)
    codes = np.stack([table.codes[view] for view in views], axis=1)
    n_classes = len(table.classes[views[0]])
    if n_classes < 2 * folds:
        return
    rng = np.random.default_rng(0)
    dealt = rng.permutation(n_classes) % folds
    for f in range(folds):
        out = np.flatnonzero(dealt[codes[:, 0]] == f)
        cell = np.unique(codes[out], axis=0, return_inverse=True)[1].reshape(-1)
        order = np.argsort(cell, kind="stable")
        place = np.empty(len(out), dtype=np.int64)
        starts = np.flatnonzero(np.append(True, np.diff(cell[order]) > 0))
        place[order] = np.arange(len(out)) - np.repeat(starts, np.diff(np.append(starts, len(out))))
        size = np.bincount(cell)[cell]
        enrols = (place < np.minimum(enrolment, size // 2)) & (size > 1)
        rows = out[enrols][np.argsort(cell[enrols], kind="stable")]
        names = np.sort(cell[enrols])
        tests = np.sort(rng.permutation(out[~enrols])[:TESTS])
        first = np.flatnonzero(np.append(True, np.diff(names) > 0)) if len(names) else names
        ids = np.cumsum(np.append(0, np.diff(names) > 0)) if len(names) else names
        equal = [np.equal.outer(codes[rows[first], k], codes[tests, k]) for k in range(len(views))]
        chosen = []
        for h in possible_hypotheses(views, {}):
            mask = np.logical_and.reduce([e if v in h else ~e for v, e in zip(views, equal, strict=True)])
            chosen.append(np.sort(rng.permutation(np.flatnonzero(mask))[:TRIALS]))
        training = np.ones(len(X), dtype=bool)
        training[out] = False
        if len(rows) and len(tests):
            yield training, _Trials(rows, ids, first, tests, chosen)
