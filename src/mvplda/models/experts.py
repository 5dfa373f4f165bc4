"""A committee of experts: several extractors' evidence, added up hypothesis by hypothesis."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from numbers import Integral
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted

from .._typing import Array, IntArray
from ..backend import as_vectors
from ..calibration import LinearCalibrator
from ..exceptions import DataError, FewSpeakersWarning, LabelError, MvpldaWarning, ParameterError
from ..labels import (
    base_columns,
    exact_names,
    label_columns,
)
from ..persistence import Persistent, State, Tensors, get_part, put_part
from ..scoring.evidence import log_sum
from ..scoring.matrix import SCATTER_ELEMENTS
from ..scoring.profiles import CellLabels, Profiles, enrolled_names, heard_labels
from ..scoring.question import (
    RULED_OUT,
    Hypothesis,
    Question,
    Ratio,
    make_question,
    possible_hypotheses,
)
from ..scoring.wide import can_be_wide, wide_evidence
from .baselines import CascadeScorer
from .heldout import held_out_trials
from .scorer import Identification, MatrixScorer, check_pairs

TOGETHER = "together"
"""Names the factor of what an expert says of several views at once, beyond what it says of each."""

Factors = Mapping[str, float | Mapping[str, float]] | Literal["learnt"] | None


class Committee(MatrixScorer, BaseEstimator):
    """Scorers that each see a part of the columns, and may each speak of some views only.

    Every expert says how likely a hypothesis is, against "nothing is shared"; what the experts say is multiplied
    by their factors and added up, and a question is answered by the sum. A network of voices and one of words are
    two experts. An expert has a factor for every view that it speaks of, and one for what it says of several views
    together beyond that: a network of words may be believed about the phrase and hardly about the speaker.

    Experts that hear the same thing say it twice, and each is too sure of itself where it was trained on few classes.
    Factors are therefore learnt from classes that were held out, by logistic regression over hypotheses: the
    likelihood ratios are calibrated by it. A scorer that knows no views, such as the cosine, may be among the experts:
    its score, made a likelihood ratio on the same trials, counts for hypotheses that share all the views it speaks of.

    Parameters
    ----------
    experts : dict of {name: scorer}
        `MultiviewPLDA`, of all views or of some, or a scorer without views, bare or in a `Bundle` with its
        preprocessing. A `PLDA`, which takes labels of one view only, is a ``MultiviewPLDA({"speaker": rank})`` here.
    columns : dict of {name: (start, stop)} or None
        Columns of a vector that an expert sees; those that are not named see all of them.
    speaks_of : dict of {name: views} or None
        Views that an expert may speak of; those that are not named speak of all.
    factors : "learnt", dict of {name: factor, or {view or "together": factor}}, or None
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
    factors_ : dict of {name: {view or "together": factor}}
    lines_ : dict of {name: (slope, intercept)} that make likelihood ratios of scores of experts without views
    cost_ : mean of -log posterior(truth) over the held-out trials, all hypotheses alike; infinite without any
    calibrator_ : `LinearCalibrator` of the question "same in every view?", from the held-out trials; None without any

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

    calibrator_: LinearCalibrator | None

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

    def fit(self, X: Any, y: Any = None, *, groups: Any = None, trials: Any = None) -> Self:
        """Fit every expert to its columns, and learn their factors from classes that were held out.

        Parameters
        ----------
        X, y : vectors, and labels of every view
        groups : (n,) people who are held out together; None: the classes of the first view
        trials : (n,) bool, vectors of which held-out trials may be made: those of people that no extractor was
            trained on, where there are such, and of recordings. None: all
        """
        self._check_settings()
        if y is None:
            raise LabelError(
                "a committee requires y to be passed, but the target y is None: give labels of every view"
            )
        vectors = as_vectors(X)
        labels = {name: np.asarray(column) for name, column in label_columns(y, None).items()}
        self._adopt(
            {name: clone(expert) for name, expert in self.experts.items()}, vectors.shape[1]
        )
        for name, expert in self.experts_.items():
            expert.fit(self._see(name, vectors), labels)
        self._find_views(tuple(labels))
        self.lines_ = {
            name: (1.0, 0.0) for name in self.experts_ if views_of(self.experts_[name]) is None
        }
        given: dict[str, Any] = {}
        if isinstance(self.factors, Mapping):
            given = {name: self.factors[name] for name in self._named(self.factors, "factors")}
        self.factors_ = {}
        for name in self.experts_:
            one = given.get(name, 0.0 if name in self.lines_ else 1.0)
            told = one if isinstance(one, Mapping) else dict.fromkeys(self._parts_of(name), one)
            unknown = [part for part in told if part not in self._parts_of(name)]
            if unknown:
                raise ParameterError(
                    f"factors of {name!r} name {unknown[0]!r}; it has factors for {list(self._parts_of(name))}"
                )
            self.factors_[name] = {
                part: float(told.get(part, 1.0)) for part in self._parts_of(name)
            }
        self.calibrator_, self.cost_ = None, float("inf")
        if self.factors == "learnt":
            with warnings.catch_warnings():
                warnings.simplefilter(
                    "ignore", MvpldaWarning
                )  # few people, or scores apart: the factors allow for it
                self._learn(vectors, labels, groups, trials)
            if self.calibrator_ is None:
                warnings.warn(
                    "too few classes to hold any out, or no two vectors of one cell: experts are added up as they are, "
                    "not weighed, and their likelihood ratios are not calibrated",
                    FewSpeakersWarning,
                    stacklevel=2,
                )
        return self

    def _check_settings(self) -> None:
        if not self.experts:
            raise ParameterError("a committee needs at least one expert")
        for name, expert in self.experts.items():
            scorer = getattr(expert, "scorer", expert)
            if isinstance(scorer, (Committee, CascadeScorer)):
                raise ParameterError(
                    f"expert {name!r} is a {type(scorer).__name__}: make its parts the experts"
                )
            if getattr(expert, "normaliser", None) is not None:
                raise ParameterError(
                    f"expert {name!r} has a normaliser, which would play no part: leave it out"
                )
        for what, least in (("folds", 2), ("enrolment", 1)):
            value = getattr(self, what)
            if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
                raise ParameterError(f"{what} is a whole number, at least {least}; got {value!r}")
        if isinstance(self.factors, str) and self.factors != "learnt":
            raise ParameterError(
                f"factors is 'learnt', a dict of them or None; got {self.factors!r}"
            )
        for name, told in self.factors.items() if isinstance(self.factors, Mapping) else ():
            for factor in told.values() if isinstance(told, Mapping) else (told,):
                if not (np.isfinite(factor) and factor >= 0):
                    raise ParameterError(
                        f"a factor is a number of at least 0; got {factor!r} for {name!r}"
                    )

    def _parts_of(self, name: str) -> tuple[str, ...]:
        """What an expert has factors for."""
        may = self._may(name)
        return (*may, TOGETHER) if len(may) > 1 else may

    def _may(self, name: str) -> tuple[str, ...]:
        """Views that an expert speaks of."""
        views = views_of(self.experts_[name])
        own = tuple(self.views_) if views is None else base_columns(tuple(views))
        allowed = _names((self.speaks_of or {}).get(name, own))
        return tuple(v for v in self.views_ if v in own and v in allowed)

    def _learn(self, X: Array, labels: dict[str, NDArray[Any]], groups: Any, eligible: Any) -> None:
        every = possible_hypotheses(tuple(self.views_), {})
        said: dict[str, list[Array]] = {name: [] for name in self.experts_}
        truth, stands_for, people = [], [], []
        stated = {
            getattr(scorer_of(expert), "missing", None) for expert in self.experts_.values()
        } - {None}
        dealt = held_out_trials(
            labels,
            tuple(self.views_),
            folds=self.folds,
            enrolment=self.enrolment,
            groups=groups,
            eligible=eligible,
            missing=next(iter(stated), None),
        )
        for held, trials in dealt:
            fold = clone(self).set_params(factors=None)
            fold.fit(X[held.train], {view: column[held.train] for view, column in labels.items()})
            profiles = fold.enrol(X[trials.enrol], trials.ids)
            claims = {view: labels[view][trials.profiles] for view in _names(self.known)}
            evidence = fold._evidence(
                profiles, fold.enrol(X[trials.test]), Question(known=claims or None), every
            )
            for name, own in evidence.items():
                said[name].append(np.stack([own[h].ravel()[trials.places] for h in every]))
            truth.append(trials.kinds)
            stands_for.append(trials.weights)
            people.append(labels[next(iter(self.views_))][trials.profiles][trials.pairs[:, 0]])
        kinds = np.concatenate(truth) if truth else np.empty(0, dtype=np.int64)
        if len(np.unique(kinds)) < 2:
            return
        found = {
            name: dict(zip(every, np.concatenate(parts, axis=1), strict=True))
            for name, parts in said.items()
        }
        for name in self.lines_:
            full = next(h for h in every if set(self._may(name)) <= set(h))
            same = np.isin(
                kinds, [i for i, h in enumerate(every) if set(self._may(name)) <= set(h)]
            )
            line = LinearCalibrator().fit(found[name][full], same)
            self.lines_[name] = (float(line.slopes_[0]), line.intercept_)
            for h in every:
                if set(self._may(name)) <= set(h):
                    found[name][h] = line.transform(found[name][full])
        places = [(name, part) for name in self.experts_ for part in self._parts_of(name)]
        parts = np.stack(
            [np.stack([_part(found[n], h, p) for h in every], axis=1) for n, p in places], axis=2
        )
        factors, self.cost_ = weigh_experts(parts, kinds)
        for (name, part), factor in zip(places, factors.tolist(), strict=True):
            self.factors_[name][part] = factor
        terms = parts @ factors
        llrs = terms[:, 0] - np.logaddexp.reduce(terms[:, 1:], axis=1) + np.log(len(every) - 1)
        same, weights = kinds == 0, np.concatenate(stands_for)
        mass = np.where(same, weights / weights[same].sum(), weights / weights[~same].sum()) / 2
        self.calibrator_ = LinearCalibrator()._fit(
            llrs[:, None], same, mass, np.concatenate(people)
        )

    def _adopt(self, experts: dict[str, Any], width: int) -> None:
        self.experts_, self.width_ = experts, width
        for name in self._named(self.columns, "columns"):
            start, stop = (self.columns or {})[name]
            if not 0 <= start < stop <= width:
                raise ParameterError(
                    f"expert {name!r} sees columns {start} to {stop}, the vectors have {width}"
                )

    def _named(self, settings: Mapping[str, Any] | None, what: str) -> list[str]:
        unknown = [name for name in settings or {} if name not in self.experts_]
        if unknown:
            raise ParameterError(
                f"{what} names {unknown[0]!r}; the experts are {list(self.experts_)}"
            )
        return list(settings or {})

    def _find_views(self, columns: tuple[str, ...]) -> None:
        found = [
            base_columns(tuple(views))
            for e in self.experts_.values()
            if (views := views_of(e)) is not None
        ]
        every = {view for views in found for view in views}
        self.views_ = dict.fromkeys([view for view in columns if view in every] or columns, 0)
        for name in self._named(self.speaks_of, "speaks_of"):
            unknown = [
                view for view in _names((self.speaks_of or {})[name]) if view not in self.views_
            ]
            if unknown:
                raise ParameterError(
                    f"expert {name!r} speaks of {unknown[0]!r}; there are {list(self.views_)}"
                )
            if not self._may(name):
                raise ParameterError(
                    f"expert {name!r} speaks of no view that it knows: leave it out"
                )
        unknown = [view for view in _names(self.known) if view not in self.views_]
        if unknown:
            raise ParameterError(f"known names {unknown[0]!r}; there are {list(self.views_)}")

    # -- profiles ------------------------------------------------------------

    def enrol(
        self, X: Any, ids: Any = None, labels: Any = None, *, weights: Any = None
    ) -> Profiles:
        """Profiles of every expert, their evidence side by side; weights are for experts that know views."""
        check_is_fitted(self, "experts_")
        vectors = as_vectors(X)
        if vectors.shape[1] != self.width_:
            raise DataError(
                f"X has {vectors.shape[1]} features, but this committee is expecting {self.width_}"
            )
        parts: list[Profiles] = []
        for name, expert in self.experts_.items():
            options = {} if weights is None or views_of(expert) is None else {"weights": weights}
            parts.append(expert.enrol(self._see(name, vectors), ids, labels, **options))
        if any(len(part.y) != len(parts[0].y) for part in parts):
            raise ParameterError(
                "experts that know no views cannot enrol profiles with labels: leave labels out"
            )
        richest = max(parts, key=lambda part: (len(part.labels), abs(part.weights - 1).max()))
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
            own = replace(
                profiles, y=profiles.y[:, start : start + width], model=scorer._key(), kept={}
            )
            yield name, own if views is not None else replace(own, labels={})
            start += width

    @property
    def width_in(self) -> int:
        return self.width_

    @property
    def classes_(self) -> dict[str, NDArray[Any]]:
        """Classes of every view that its experts know from training."""
        check_is_fitted(self, "experts_")
        found: dict[str, NDArray[Any]] = {}
        for expert in self.experts_.values():
            own = {} if views_of(expert) is None else scorer_of(expert).classes_
            found |= {
                view: classes
                for view, classes in own.items()
                if view in self.views_ and view not in found
            }
        return found

    def _class_evidence(self, tests: Profiles, view: str) -> Array:
        if view not in self.classes_:
            raise LabelError(
                f"the experts keep no classes of a view {view!r}; they do of {list(self.classes_)}"
            )
        total = np.zeros((len(tests), len(self.classes_[view]) + 1))
        for name, part in self._parts(tests):
            if self.factors_[name].get(view) and views_of(self.experts_[name]) is not None:
                total += self.factors_[name][view] * scorer_of(self.experts_[name])._class_evidence(
                    part, view
                )
        return total

    # -- scoring ---------------------------------------------------------------

    def llr(
        self, enrol: Any, test: Any, question: Question | None = None, **options: Any
    ) -> NDArray[Any]:
        """Scores (profiles, tests), as `MultiviewPLDA.llr`."""
        return super().llr(*self._claimed(enrol, test, question, options), **options)

    def llr_trials(
        self, enrol: Any, test: Any, pairs: Any, question: Question | None = None, **options: Any
    ) -> Any:
        """Scores of a list of trials (row of a profile, row of a test), without the matrix."""
        enrol, test, question = self._claimed(enrol, test, question, options)
        if question.recognised is None:
            return super().llr_trials(enrol, test, pairs, question, **options)
        tests = (
            test if isinstance(test, Profiles) else self.enrol(test)
        )  # what is heard of tests goes with them
        pairs, found = check_pairs(pairs, len(enrol), len(tests)), []
        spoofs, question = question, replace(question, countermeasure=None, spoof_prior=None)
        step = max(1, SCATTER_ELEMENTS // tests.y.shape[1])
        for some in (pairs[start : start + step] for start in range(0, len(pairs), step)):
            rows = np.repeat(np.arange(len(some))[:, None], 2, axis=1)
            sides = enrol.take(some[:, 0]), tests.take(some[:, 1])
            found.append(
                super().llr_trials(*sides, rows, question.for_tests(some[:, 1]), **options)
            )
        scores = (
            np.concatenate(found) if found else np.empty(0, dtype=options.get("dtype", np.float32))
        )
        return spoofs.with_spoofs(scores, (len(enrol), len(tests)), pairs)

    def identify(
        self, profiles: Any, test: Any, question: Question | None = None, **options: Any
    ) -> Identification:
        """The `top` profiles of every test, best first, without ever holding the whole matrix."""
        return super().identify(*self._claimed(profiles, test, question, options), **options)

    def _claimed(
        self, enrol: Any, test: Any, question: Question | None, options: dict[str, Any]
    ) -> tuple[Profiles, Any, Question]:
        """The sides and the question, which is taken out of `options`; claims are labels of the profiles from here."""
        names = [field.name for field in fields(Question) if field.name in options]
        question = make_question(question, {name: options.pop(name) for name in names})
        profiles = enrol if isinstance(enrol, Profiles) else self.enrol(enrol)
        for view in question.recognised or {}:
            if view not in question.known_views:
                enrolled_names(profiles, view, None)  # which says that labels are needed
        if not isinstance(question.known, Mapping):
            return profiles, test, question
        labels = {
            view: enrolled_names(profiles, view, claims) for view, claims in question.known.items()
        }
        claimed = replace(profiles, labels=profiles.labels | labels, kept={})
        return claimed, test, replace(question, known=tuple(labels))

    def hypotheses(
        self,
        enrol: Any,
        test: Any,
        question: Question | None = None,
        *,
        dtype: Any = np.float32,
        **asked: Any,
    ) -> dict[Hypothesis, NDArray[Any]]:
        """Posterior probability of every hypothesis, as `MultiviewPLDA.hypotheses`."""
        enrol, test, question = self._claimed(enrol, test, question, asked)
        profiles, tests = self._sides(enrol, test)
        weights = question.alternatives(self.views_, _labelled(profiles, tests, question))
        terms = self._terms(profiles, tests, question, list(weights))
        return {
            h: np.asarray(share, dtype=dtype)
            for h, share in question.posteriors(terms, weights).items()
        }

    def _views(self, question: Question) -> Any:
        return question

    def _matrix(self, enrol: Profiles, test: Profiles, views: Any, dtype: Any) -> NDArray[Any]:
        return self._answer(enrol, test, views, None).astype(dtype)

    def _pairs(self, enrol: Profiles, test: Profiles, views: Any, dtype: Any) -> NDArray[Any]:
        both = np.repeat(np.arange(len(enrol))[:, None], 2, axis=1)
        return self._answer(enrol, test, views, both).astype(dtype)

    def _answer(
        self, enrol: Profiles, test: Profiles, question: Question, pairs: IntArray | None
    ) -> Array:
        ratio = question.ratio(self.views_, _labelled(enrol, test, question))
        terms = self._terms(enrol, test, question, list(dict.fromkeys(ratio.hypotheses)), pairs)
        sides = (
            [terms[h] + w for h, w in side.items()] for side in (ratio.numerator, ratio.denominator)
        )
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
        if question.recognised is not None:
            return self._heard_terms(enrol, test, question, hypotheses, pairs)
        wanted = list(dict.fromkeys([*hypotheses, *((view,) for h in hypotheses for view in h)]))
        evidence = self._evidence(enrol, test, question, wanted, pairs)
        shape = (len(enrol), len(test)) if pairs is None else (len(pairs),)
        terms = {h: np.zeros(shape) for h in hypotheses}
        for name, factors in self.factors_.items():
            for h in hypotheses:
                for part, factor in factors.items():
                    if factor and (part in h or (part == TOGETHER and len(h) > 1)):
                        terms[h] += factor * _part(evidence[name], h, part)  # (V10)
        return terms

    def _heard_terms(
        self,
        enrol: Profiles,
        test: Profiles,
        question: Question,
        hypotheses: list[Hypothesis],
        pairs: IntArray | None,
    ) -> dict[Hypothesis, Array]:
        """The same where a recogniser tells of the tests: a mixture over what the tests may be labelled as (9.10)."""
        ((view, said), *more) = (question.recognised or {}).items()
        if more or view not in self.views_:
            raise LabelError(
                f"posteriors are of one view, of {list(self.views_)}; got {list(question.recognised or {})}"
            )
        names = said.named(view, self.classes_.get(view))
        logs = heard_labels(view, said, self.classes_.get(view), test)[1]
        own = enrol.labels[view]
        if len(enrol.owner) > len(enrol) or (own.codes < 0).any():
            raise ParameterError(
                f"a committee hears of profiles with one class each in view {view!r}, and its name"
            )
        claimed = own.names[own.codes].astype(object)
        known = view in question.known_views
        facts = Question(known=question.known_views or None)
        alone = (
            {name: np.zeros((len(test), len(self.classes_[view]) + 1)) for name in self.experts_}
            if known
            else {}
        )
        for name, part in self._parts(test) if known else ():
            if view in self._may(name) and views_of(self.experts_[name]) is not None:
                alone[name] = scorer_of(self.experts_[name])._class_evidence(part, view)
        places = {name: i for i, name in enumerate(self.classes_[view].tolist())} if known else {}
        # As the claimed class, an expert has what it says of the view, which is relative to the mean over the others.
        met = np.zeros((len(enrol), len(test)) if pairs is None else len(pairs))
        for name, evidence in self._evidence(enrol, test, facts, [(view,)], pairs).items():
            factor, others = self.factors_[name].get(view, 0.0), np.zeros((len(enrol), len(test)))
            for label in set(claimed.tolist()) & set(places) if known else ():
                rest = np.delete(alone[name], places[label], axis=1)
                others[claimed == label] = np.logaddexp.reduce(rest, axis=1) - np.log(rest.shape[1])
            met += factor * (evidence[(view,)] + (others if pairs is None else others.diagonal()))
        inner = {h: tuple(v for v in h if v != view) for h in hypotheses}
        terms = {h: np.full(met.shape, -np.inf) for h in hypotheses}
        left = len(names) - np.isin(
            claimed, np.asarray([n for n in names if n is not None], dtype=object)
        )
        for k, name in enumerate(names):
            label = (
                name if name is not None else _fresh_name(own.names, self.classes_.get(view), names)
            )
            cells = CellLabels(exact_names([label]), np.zeros(len(test.owner), dtype=np.int64))
            labelled = replace(test, labels={**test.labels, view: cells}, kept={})
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", MvpldaWarning)  # a class that is new is meant to be
                told = self._terms(
                    enrol, labelled, facts, list(dict.fromkeys(inner.values())), pairs
                )
            place = places.get(name, -1)
            apart = sum(
                self.factors_[n].get(view, 0.0) * evidence[:, place]
                for n, evidence in alone.items()
            )
            same = claimed == label
            for h in hypotheses:
                mine = same if view in h else ~same
                weight = np.where(mine, 0.0 if view in h else -np.log(np.maximum(left, 1)), -np.inf)
                weight = weight[:, None] if pairs is None else weight
                terms[h] = np.logaddexp(
                    terms[h], told[inner[h]] + (met if view in h else apart) + logs[:, k] + weight
                )
        return {h: np.maximum(term, 2 * RULED_OUT) for h, term in terms.items()}

    def _evidence(
        self,
        enrol: Profiles,
        test: Profiles,
        question: Question,
        hypotheses: list[Hypothesis],
        pairs: IntArray | None = None,
    ) -> dict[str, dict[Hypothesis, Array]]:
        """What every expert says of every hypothesis, relative to that in which nothing is shared."""
        labelled = _labelled(enrol, test, question)
        claimed = [v for v in labelled if question.same is not None and v in question.same]
        tests = dict(self._parts(test))
        found: dict[str, dict[Hypothesis, Array]] = {}
        shape = (len(enrol), len(test)) if pairs is None else (len(pairs),)
        for name, profiles in self._parts(enrol):
            scorer = scorer_of(self.experts_[name])
            views = views_of(self.experts_[name])
            may = tuple(v for v in self._may(name) if v not in labelled or v in claimed)
            own = () if views is None else base_columns(tuple(views))
            known = _known_to(question, own)
            said: dict[Hypothesis, Array] = {(): np.zeros(shape)}

            def ask(
                same: Hypothesis,
                other: Hypothesis,
                own: Any = own,
                known: Any = known,
                **sides: Any,
            ) -> Array:
                """log N(same) - log N(other), where views that neither names are different."""
                apart = {v: "different" for v in own if v not in same and v not in labelled}
                return _ask(
                    question=Question(same, apart, {same: 1.0, other: 1.0}, known),
                    pairs=pairs,
                    **sides,
                )

            sides = {"scorer": scorer, "enrol": profiles, "test": tests[name]}
            if views is not None and known and not labelled:
                said |= _quickly(
                    scorer, profiles, tests[name], may, Question(known=known), hypotheses, pairs
                )
            for h in hypotheses:
                shared = tuple(v for v in may if v in h)
                if shared in said:
                    continue
                if views is None:
                    slope, intercept = self.lines_[name]
                    all_shared = shared == may
                    score = (
                        _ask(question=Question(), pairs=pairs, **sides)
                        if all_shared
                        else np.zeros(shape)
                    )
                    said[shared] = slope * score + intercept if all_shared else score
                elif set(claimed) & set(may) <= set(shared):
                    said[shared] = ask(shared, (), **sides)
                else:  # a claim that is false can only be one side of a ratio
                    if may not in said:
                        said[may] = ask(may, (), **sides)
                    said[shared] = said[may] - ask(may, shared, **sides)
            found[name] = {h: said[tuple(v for v in may if v in h)] for h in hypotheses}
        return found

    # -- files -----------------------------------------------------------------

    def get_state(self) -> State:
        check_is_fitted(self, "experts_")
        arrays: Tensors = {}
        experts = {
            name: put_part(arrays, f"expert/{i}", expert, Persistent)
            for i, (name, expert) in enumerate(self.experts_.items())
        }
        spoken = (
            None
            if self.speaks_of is None
            else {name: list(_names(v)) for name, v in self.speaks_of.items()}
        )
        values = {
            "experts": experts,
            "columns": None
            if self.columns is None
            else {name: list(c) for name, c in self.columns.items()},
            "speaks_of": spoken,
            "settings": {
                "known": list(_names(self.known)),
                "enrolment": self.enrolment,
                "folds": self.folds,
            },
            "views": list(self.views_),
            "width": self.width_,
            "factors": self.factors_,
            "lines": {name: list(line) for name, line in self.lines_.items()},
            "cost": self.cost_ if np.isfinite(self.cost_) else None,
            "calibrator": None
            if self.calibrator_ is None
            else put_part(arrays, "calibrator", self.calibrator_, Persistent),
        }
        return arrays, values

    @classmethod
    def from_state(cls, arrays: Tensors, values: dict[str, Any]) -> Self:
        experts = {
            name: get_part(arrays, f"expert/{i}", about, Persistent)
            for i, (name, about) in enumerate(values["experts"].items())
        }
        columns = values["columns"] and {name: tuple(c) for name, c in values["columns"].items()}
        committee = cls(
            experts, columns=columns, speaks_of=values["speaks_of"], **values["settings"]
        )
        committee._adopt(experts, int(values["width"]))
        committee.views_ = dict.fromkeys(values["views"], 0)
        committee.factors_ = {
            n: {part: float(f) for part, f in values["factors"][n].items()} for n in experts
        }
        committee.lines_ = {name: (float(a), float(b)) for name, (a, b) in values["lines"].items()}
        about, cost = values["calibrator"], values.get("cost")
        committee.cost_ = float("inf") if cost is None else float(cost)
        committee.calibrator_ = (
            None if about is None else get_part(arrays, "calibrator", about, Persistent)
        )
        return committee

    def describe(self) -> dict[str, Any]:
        return {
            "class": type(self).__name__,
            "dimension": self.width_,
            "views": list(self.views_),
            "experts": {name: expert.describe() for name, expert in self.experts_.items()},
            "factors": self.factors_,
        }


def _names(views: str | Sequence[str]) -> tuple[str, ...]:
    """Names of views, of which one may stand alone."""
    return (views,) if isinstance(views, str) else tuple(views)


def scorer_of(expert: Any) -> Any:
    """The scorer itself, where an expert is a bundle of it and its preprocessing."""
    return getattr(expert, "fitted_scorer", expert)


def views_of(expert: Any) -> dict[str, int] | None:
    """Views with their ranks of a fitted expert; None where it knows none."""
    return getattr(scorer_of(expert), "views_", None)


def _fresh_name(*taken: Any) -> Any:
    """A name that no class has, of their type."""
    used = [
        name
        for names in taken
        if names is not None
        for name in np.asarray(names, dtype=object)
        if name is not None
    ]
    return "".join(sorted(map(str, used))) + "+" if isinstance(used[0], str) else max(used) + 1


def _labelled(enrol: Profiles, test: Profiles, question: Question) -> list[str]:
    """Views in which both sides have labels, which are facts."""
    return [view for view in test.labels if view in enrol.labels or view in question.known_views]


def _known_to(question: Question, own: Sequence[str]) -> Any:
    if isinstance(question.known, Mapping):
        return {view: claims for view, claims in question.known.items() if view in own} or None
    return [view for view in question.known_views if view in own] or None


def _ask(
    scorer: Any, enrol: Profiles, test: Profiles, pairs: IntArray | None, question: Question
) -> Array:
    if pairs is None:
        return np.asarray(scorer.llr(enrol, test, question, dtype=np.float64))
    return np.asarray(scorer.llr_trials(enrol, test, pairs, question, dtype=np.float64))


def _quickly(
    scorer: Any,
    enrol: Profiles,
    test: Profiles,
    may: tuple[str, ...],
    question: Question,
    hypotheses: list[Hypothesis],
    pairs: IntArray | None,
) -> dict[Hypothesis, Array]:
    """Evidence of a model of full rank with one known view; nothing where it takes the long way."""
    wanted = [h for h in dict.fromkeys(tuple(v for v in may if v in h) for h in hypotheses) if h]
    ratio = Ratio(dict(scorer.views_), dict.fromkeys(wanted, 0.0), {(): 0.0})
    comparison = scorer._put(ratio, enrol, test, question, "exact", np.float64)
    if not can_be_wide(comparison):
        return {}
    return wide_evidence(comparison, wanted, paired=pairs is not None)


def _part(said: Mapping[Hypothesis, Array], h: Hypothesis, part: str) -> Array:
    """What an expert says of one view under a hypothesis, or of its views together beyond that."""
    if part != TOGETHER:
        return said[(part,)] if part in h else np.zeros_like(said[h])
    return said[h] - sum((said[(view,)] for view in h), np.zeros_like(said[h]))


def weigh_experts(said: Array, truth: IntArray) -> tuple[Array, float]:
    """Factors that cost held-out trials least, and what they cost.

    said : (n, hypotheses, parts) evidence, 0 for the last hypothesis; truth : (n,) number of the true hypothesis. All
    hypotheses that occur weigh the same; one that does not, such as "same speaker, other phrase" where every speaker
    says one phrase, is no alternative either, or whatever speaks for it would be taken to err. The cost, the mean of
    -log posterior(truth), is convex. There is no constant: it would serve the people who were held out, whom an
    extractor may have met, and no others.
    """
    occurring, truth = np.unique(truth, return_inverse=True)
    said = said[:, occurring]
    n = len(said)
    mass = (1.0 / np.bincount(truth))[truth]
    mass /= mass.sum()
    size = np.sqrt(np.einsum("nhe,nhe->e", said, said) / n)
    scale = np.maximum(size, 1e-12)
    rows = np.arange(n)

    def cost(theta: Array) -> tuple[float, Array]:
        logs = said @ (theta / scale)
        logs -= logs.max(axis=1, keepdims=True)
        posterior = np.exp(logs)
        total = posterior.sum(axis=1)
        value = float(mass @ (np.log(total) - logs[rows, truth]))
        posterior /= total[:, None]
        posterior[rows, truth] -= 1.0
        posterior *= mass[:, None]
        small = 1e-6 * theta  # keeps factors finite where all trials are told apart
        return value + 0.5 * float(small @ theta), np.einsum(
            "nhe,nh->e", said, posterior
        ) / scale + small

    bounds = [
        (0.0, None if told else 0.0) for told in size > 0
    ]  # what says nothing of anything has no factor
    found = minimize(
        cost, 0.3 * size, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 500}
    )  # (V11)
    return np.asarray(found.x / scale), float(found.fun)
