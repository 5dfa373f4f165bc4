"""Bundle: preprocessing, scorer, normalisation and calibration that belong together, in one file."""

# mypy: disallow-subclassing-any=False

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from ._typing import Array
from .adaptation import Weight, adapted, recentred
from .backend import is_torch, like, to_host
from .calibration import (
    Answer,
    Calibrator,
    HypothesisCalibrator,
    QualityCalibrator,
    question_key,
)
from .decisions import OperatingPoint
from .exceptions import DataError, OtherQuestionWarning, ParameterError
from .kinds import name_kinds
from .labels import as_array, base_columns
from .models.scorer import BaseScorer, Identification, Scorer
from .normalisation import ScoreNormaliser
from .persistence import (
    Persistent,
    State,
    Tensors,
    check_answers,
    compare_extractors,
    get_part,
    put_part,
)
from .preprocessing import Step
from .scoring.profiles import Profiles, SideLike
from .scoring.question import (
    Hypothesis,
    Question,
    Recognised,
    make_question,
)


class Bundle(Persistent, BaseEstimator):
    """Preprocessing, scorer, normaliser and calibrator as one system: raw vectors in, calibrated LLRs out.

    A bundle is a scorer itself. Its scores are the scorer's, normalised where there is a normaliser;
    `calibrated` gives what the calibrator makes of them.

    Parameters
    ----------
    preprocessing : Pipeline or None
        Of the transformers in `mvplda.preprocessing`; see `standard_chain`.
    scorer : MultiviewPLDA, PLDA, CosineScorer, CascadeScorer, or another `BaseScorer`
    normaliser : ScoreNormaliser or None
        `fit_normaliser` gives it its cohort.
    calibrator : a calibrator of `mvplda.calibration`, or None
    questions : sequence of Question or of dict, or None
        What the scorer is asked for each score that the calibrator fuses, for example
        ``[{}, {"same": "speaker"}, {"same": "phrase"}]``. None: ``[{}]``, the joint LLR alone.
    extractor : str or None
        Name of what made the vectors; others are refused by `check_extractor`.
    calibrations : dict of {question key: HypothesisCalibrator} or None
        By `question_key`: what `answer` calibrates log-likelihoods of hypotheses with.
    points : dict of {question key: list of OperatingPoint} or None
        Thresholds that were measured on held-out people, the default first.
    card : dict or None
        What is to be known of the model, in plain values.

    Examples
    --------
    >>> import numpy as np
    >>> from mvplda import Bundle, MultiviewPLDA
    >>> from mvplda.preprocessing import standard_chain
    >>> rng = np.random.default_rng(0)
    >>> labels = {"speaker": np.arange(400) % 20, "phrase": np.arange(400) // 40}
    >>> X = rng.normal(size=(20, 8))[labels["speaker"]] + rng.normal(size=(10, 8))[labels["phrase"]]
    >>> X += 0.5 * rng.normal(size=X.shape)
    >>> bundle = Bundle(standard_chain(), MultiviewPLDA({"speaker": 4, "phrase": 4})).fit(X, labels)
    >>> bundle.llr(X[:3], X[3:5]).shape
    (3, 2)
    """

    KIND: ClassVar[str] = "bundle"

    def __init__(
        self,
        preprocessing: Pipeline | None = None,
        scorer: Any = None,
        normaliser: ScoreNormaliser | None = None,
        calibrator: Any = None,
        questions: Sequence[Question | Mapping[str, Any]] | None = None,
        extractor: str | None = None,
        calibrations: Mapping[str, HypothesisCalibrator] | None = None,
        points: Mapping[str, Sequence[OperatingPoint]] | None = None,
        card: Mapping[str, Any] | None = None,
    ) -> None:
        self.preprocessing = preprocessing
        self.scorer = scorer
        self.normaliser = normaliser
        self.calibrator = calibrator
        self.questions = questions
        self.extractor = extractor
        self.calibrations = calibrations
        self.points = points
        self.card = card

    def fit(self, X: ArrayLike, y: Any = None) -> Self:
        """Fit the preprocessing, then the scorer to what comes out of it."""
        if self.preprocessing is not None and not isinstance(self.preprocessing, Pipeline):
            raise ParameterError(
                f"preprocessing is a Pipeline of steps, or None; got {self.preprocessing!r}"
            )
        vectors = (
            X
            if self.preprocessing is None
            else like(self.preprocessing.fit_transform(_on_host(X), y), X)
        )
        self._scorer().fit(vectors, y)
        return self

    def fit_normaliser(self, cohort: Any, ids: ArrayLike | None = None) -> Self:
        """Keep the profiles of a cohort, vectors (C, D) of impostors to everyone, and normalise scores by it.

        A calibrator is fitted after this, to normalised scores.
        """
        if self.normaliser is None:
            raise ParameterError(
                "this bundle has no normaliser: set one, ScoreNormaliser('as') for example"
            )
        self.normaliser.fit(self.fitted_scorer, self.enrol(cohort, ids))
        return self

    def fit_calibrator(
        self,
        enrol: SideLike,
        test: SideLike,
        kinds: Any,
        *,
        speakers: Any = None,
        side: Any = None,
        **options: Any,
    ) -> Self:
        """Fit the calibrator to all pairs of two sides, of classes that the scorer was not trained on.

        Parameters
        ----------
        enrol, test : Profiles of `enrol`, or arrays of single vectors
        kinds : (profiles, tests) kinds by name or targets as bool, or the masks of `trial_kinds`
        speakers : (profiles,) the speaker of every profile, so that the calibrator knows how many there are
        side : side information, for a `QualityCalibrator`; see `calibrated`
        options : for `llr`, in every question
        """
        if self.calibrator is None:
            raise ParameterError(
                "this bundle has no calibrator: set one, KindCalibrator() for example"
            )
        options = _in_parts(options)
        if "countermeasure" in options:
            raise ParameterError(
                "a calibrator is fitted to scores without countermeasure=: give it to calibrated"
            )
        scores = self._scores(enrol, test, None, options)
        names = name_kinds(kinds) if isinstance(kinds, Mapping) else np.asarray(kinds)
        if names.shape != scores.shape[:-1]:
            raise DataError(
                f"kinds have shape {names.shape}; the trials ask for {scores.shape[:-1]}"
            )
        extra = self._side(side, scores.shape[:-1])
        if speakers is not None:
            named = as_array(speakers)
            if named.shape != names.shape[:1]:
                raise DataError(
                    f"there are {names.shape[0]} profiles and speakers of shape {named.shape}"
                )
            extra["speakers"] = np.repeat(named, names.shape[1])
        self.calibrator.fit(scores.reshape(-1, scores.shape[-1]), names.reshape(-1), **extra)
        return self

    def adapt(self, X: ArrayLike, y: Any = None, weight: Weight | None = None) -> Bundle:
        """A bundle for the domain of new raw vectors, with labels or without: see `mvplda.adaptation.adapted`.

        The mean that the preprocessing takes off moves as far as is not chance, see `mvplda.adaptation.recentred`;
        normaliser and calibrator go, for they were made of the old scores.
        """
        chain = None if self.preprocessing is None else recentred(self.preprocessing, _on_host(X))
        result = Bundle(chain, questions=self.questions, extractor=self.extractor)
        result.scorer = adapted(self.fitted_scorer, result.prepare(X), y, weight)
        return result

    def prepare(self, X: ArrayLike) -> Any:
        """Vectors as the scorer sees them."""
        if self.preprocessing is None:
            return X
        check_is_fitted(self.preprocessing)
        return like(self.preprocessing.transform(_on_host(X)), X)

    def enrol(
        self,
        X: ArrayLike,
        ids: ArrayLike | None = None,
        labels: Any = None,
        **options: Any,
    ) -> Profiles:
        """Profiles of raw vectors, as the scorer's `enrol`."""
        profiles: Profiles = self._scorer().enrol(self.prepare(X), ids, labels, **options)
        return profiles

    def evidence(self, X: ArrayLike) -> Any:
        """(n, r) what every raw vector adds to the sum that a profile is."""
        return self._scorer().evidence(self.prepare(X))

    def profiles(
        self, y: Any, weights: Any, owner: Any, ids: Any = None, labels: Any = None
    ) -> Profiles:
        """Profiles of sums of `evidence`, as the scorer's."""
        made: Profiles = self._scorer().profiles(y, weights, owner, ids, labels)
        return made

    def deployed(self, profiles: Profiles | None) -> Bundle:
        """The bundle for the domain of what is enrolled: the profiles stay valid, and tell its scorer where it is.

        None: nothing is enrolled.
        """
        scorer = self.fitted_scorer
        there = scorer.deployed(profiles)
        if there is scorer:
            return self
        bundle = copy(self)
        bundle.scorer = there
        return bundle

    def log_likelihoods(
        self, enrol: SideLike, test: SideLike, question: Question | None = None, **options: Any
    ) -> dict[Hypothesis, Any]:
        """Log-likelihood of every hypothesis as the scorer has it, not calibrated: see `answer`."""
        sides = self._prepared(enrol), self._prepared(test)
        logs: dict[Hypothesis, Any] = self._scorer().log_likelihoods(*sides, question, **options)
        return logs

    def llr(
        self, enrol: SideLike, test: SideLike, question: Question | None = None, **options: Any
    ) -> Any:
        """Scores (profiles, tests), not calibrated; `options` as in the scorer's `llr`."""
        return self._answering().llr(
            self._prepared(enrol), self._prepared(test), question=question, **options
        )

    def llr_trials(
        self,
        enrol: SideLike,
        test: SideLike,
        pairs: ArrayLike,
        question: Question | None = None,
        **options: Any,
    ) -> Any:
        """Scores of a list of trials, not calibrated."""
        sides = self._prepared(enrol), self._prepared(test)
        return self._answering().llr_trials(*sides, pairs, question=question, **options)

    def identify(
        self,
        profiles: SideLike,
        test: SideLike,
        question: Question | None = None,
        *,
        top: int = 10,
        **options: Any,
    ) -> Identification:
        """The `top` profiles of every test, best first."""
        sides = self._prepared(profiles), self._prepared(test)
        found: Identification = self._answering().identify(
            *sides, question=question, top=top, **options
        )
        return found

    def recognise(self, test: SideLike, view: str, *, new: bool = True) -> Recognised:
        """What raw vectors say of the class of every test in a view, as the scorer's `recognise`."""
        found: Recognised = self._scorer().recognise(self._prepared(test), view, new=new)
        return found

    def hypotheses(
        self, enrol: SideLike, test: SideLike, question: Question | None = None, **options: Any
    ) -> dict[Hypothesis, Any]:
        """Posterior probability of every hypothesis, of a scorer that has them; no normaliser plays a part."""
        scorer = self._scorer()
        if not hasattr(scorer, "hypotheses"):
            raise ParameterError(
                f"a {type(scorer).__name__} knows no hypotheses: a MultiviewPLDA does"
            )
        found: dict[Hypothesis, Any] = scorer.hypotheses(
            self._prepared(enrol), self._prepared(test), question, **options
        )
        return found

    def calibrated(
        self,
        enrol: SideLike,
        test: SideLike,
        *,
        pairs: Any = None,
        side: Any = None,
        **options: Any,
    ) -> Array:
        """Calibrated natural-log LLRs of all pairs (profiles, tests), or of a list of trials (n,).

        Parameters
        ----------
        enrol, test : Profiles, or arrays of single raw vectors
        pairs : (n, 2) row of a profile and row of a test; None: all
        side : {name: numbers that broadcast to the trials}, for a `QualityCalibrator`: for
            example ``{"count": profiles.counts[:, None], "seconds": durations}``
        options : for `llr`, in every question; `countermeasure` and `spoof_prior` have their say behind the calibrator
        """
        if self.calibrator is None:
            raise ParameterError(
                "this bundle has no calibrator: use llr, or fit one with fit_calibrator"
            )
        options = _in_parts(options)
        self._check_meant(options)
        spoofs = Question(
            **{
                name: options.pop(name)
                for name in ("countermeasure", "spoof_prior")
                if name in options
            }
        )
        sides: list[Any] = [
            one if isinstance(one, Profiles) else self.enrol(one) for one in (enrol, test)
        ]
        scores = self._scores(sides[0], sides[1], pairs, options)
        extra = self._side(side, scores.shape[:-1])
        result = self.calibrator.transform(scores.reshape(-1, scores.shape[-1]), **extra)
        listed = None if pairs is None else np.asarray(pairs, dtype=np.int64).reshape(-1, 2)
        shape = len(sides[0]), len(sides[1])
        return np.asarray(
            spoofs.with_spoofs(np.asarray(result).reshape(scores.shape[:-1]), shape, listed)
        )

    def answer(
        self,
        enrol: SideLike,
        test: SideLike,
        question: Question | Mapping[str, Any] | None = None,
        pairs: ArrayLike | None = None,
    ) -> Answer:
        """The answer to a question about all pairs (profiles, tests), or about a list of trials.

        Log-likelihoods of hypotheses, the ratio and posteriors, all calibrated where the bundle has a calibration for
        this question; `Answer.calibrated` is False where it has none.

        Parameters
        ----------
        enrol, test : Profiles, or arrays of single raw vectors
        question : a `Question`, or the keyword arguments that make one; None: the same in every view?
        pairs : (n, 2) row of a profile and row of a test; None: all
        """
        question = make_question(question, {})
        profiles = enrol if isinstance(enrol, Profiles) else self.enrol(enrol)
        tests = test if isinstance(test, Profiles) else self.enrol(test)
        listed = None if pairs is None else np.asarray(pairs, dtype=np.int64).reshape(-1, 2)
        labelled = [*(question.shared or {}), *tests.labels]
        named = [v for v in labelled if v in profiles.labels or v not in tests.labels]
        named += [v for v in tests.labels if v in question.known_views]
        ratio = question.ratio(self.views, list(dict.fromkeys(named)))
        # All hypotheses, also those that are given to be false: the calibrator needs each view alone.
        every = replace(question, given=None, priors=None, countermeasure=None, spoof_prior=None)
        logs = self.fitted_scorer.log_likelihoods(profiles, tests, every, pairs=listed)
        logs = {h: np.asarray(to_host(values)) for h, values in logs.items()}
        key = question_key(question, self.views)
        calibrator = (self.calibrations or {}).get(key)
        if calibrator is not None:
            logs = calibrator.transform(logs)
        logs = {h: logs[h] for h in ratio.hypotheses}
        llr = question.with_spoofs(ratio.of(logs), (len(profiles), len(tests)), listed)
        # Posteriors at even odds, so that they are those of the LLR.
        weights = {
            h: float(np.exp(w)) / 2 for h, w in (ratio.numerator | ratio.denominator).items()
        }
        return Answer(logs, np.asarray(llr), question, key, calibrator is not None, weights)

    @property
    def views(self) -> tuple[str, ...]:
        """The base views that hypotheses are made of; a scorer that has none compares ``speaker``."""
        return _views_of(self.fitted_scorer)

    def doubt(self, question: Question | None = None) -> float:
        """Of the calibration for a question: the probability that the model tells nothing about a trial."""
        key = question_key(question or Question(), self.views)
        calibrator = (self.calibrations or {}).get(key)
        return 0.0 if calibrator is None else float(calibrator.doubt_)

    def operating_points(self, question: Question | None = None) -> list[OperatingPoint]:
        """The points that were measured for a question; none where nothing was."""
        key = question_key(question or Question(), self.views)
        return list((self.points or {}).get(key, ()))

    def _check_meant(self, options: Mapping[str, Any]) -> None:
        """Warn where a committee's own calibration, which it learns for views that are known, is asked otherwise."""
        own = getattr(self.fitted_scorer, "calibrator_", None)
        if own is None or not isinstance(self.calibrator, type(own)):
            return
        mine, theirs = (np.append(one.slopes_, one.intercept_) for one in (self.calibrator, own))
        meant = Question(known=getattr(self.fitted_scorer, "known", ())).known_views
        asked = Question(known=options.get("known"))
        if np.array_equal(mine, theirs) and set(asked.known_views) != set(meant):
            warnings.warn(
                f"the calibration is for trials with {', '.join(meant) or 'nothing'} known, and these have "
                f"{', '.join(asked.known_views) or 'nothing'} known: LLRs can be far off. Ask so, or use llr",
                OtherQuestionWarning,
                stacklevel=3,
            )

    def get_state(self) -> State:
        arrays: Tensors = {}
        steps = None
        if self.preprocessing is not None:
            steps = [
                [name, put_part(arrays, f"preprocessing/{i}", step, Step)]
                for i, (name, step) in enumerate(self.preprocessing.steps)
            ]
        parts = {name: (getattr(self, name), kind) for name, kind in PARTS.items()}
        about = {
            name: None if part is None else put_part(arrays, name, part, kind)
            for name, (part, kind) in parts.items()
        }
        self.check()
        questions = (
            None
            if self.questions is None
            else [question.to_dict() for question in self._questions()]
        )
        values = {
            "preprocessing": steps,
            **about,
            "questions": questions,
            "extractor": self.extractor,
        }
        values["calibrations"] = {
            key: put_part(arrays, f"calibrations/{key}", one, HypothesisCalibrator)
            for key, one in (self.calibrations or {}).items()
        }
        values["points"] = {
            key: [point.to_dict() for point in some] for key, some in (self.points or {}).items()
        }
        values["card"] = dict(self.card or {})
        return arrays, values

    @classmethod
    def from_state(cls, arrays: Tensors, values: dict[str, Any]) -> Self:
        pipeline = None
        if values["preprocessing"] is not None:
            pipeline = Pipeline(
                [
                    (name, get_part(arrays, f"preprocessing/{i}", about, Step))
                    for i, (name, about) in enumerate(values["preprocessing"])
                ]
            )
        parts = {
            name: None if values[name] is None else get_part(arrays, name, values[name], kind)
            for name, kind in PARTS.items()
        }
        bundle = cls(
            pipeline, questions=values["questions"], extractor=values["extractor"], **parts
        )
        bundle.calibrations = {
            key: get_part(arrays, f"calibrations/{key}", about, HypothesisCalibrator)
            for key, about in values.get("calibrations", {}).items()
        }
        bundle.points = {
            key: [OperatingPoint(**point) for point in some]
            for key, some in values.get("points", {}).items()
        }
        bundle.card = values.get("card", {})
        if bundle.normaliser is not None:
            bundle.normaliser.scorer_ = bundle.scorer
        bundle.check()
        return bundle

    def bare(self) -> Persistent:
        around = self.detail() or self.calibrations or self.points
        return self if around else self._scorer()

    def detail(self) -> str:
        before = f"takes vectors after {', '.join(self._steps())}" if self._steps() else ""
        behind = [part for part in (self.normaliser, self.calibrator) if part is not None]
        after = (
            f"has a {' and a '.join(type(part).__name__ for part in behind)} behind it"
            if behind
            else ""
        )
        return (
            f", whose scorer {' and '.join(filter(None, (before, after)))}"
            if before or after
            else ""
        )

    def check_extractor(self, extractor: str | None, where: str) -> None:
        """Refuse vectors that another extractor than the scorer's made; warn where it is not known what made them."""
        if self.extractor is not None:
            compare_extractors("the model", self.extractor, where, extractor)

    def check(self) -> None:
        """Whether the parts fit each other: widths from step to step, and scores for the calibrator."""
        scorer = self.fitted_scorer
        width, before = None, ""
        for name, step in [] if self.preprocessing is None else self.preprocessing.steps:
            given = int(step.n_features_in_)
            if width is not None and width != given:
                raise DataError(
                    f"{before} gives vectors of width {width}, but step {name!r} takes {given}"
                )
            for attribute in ("mean_", "matrix_"):
                found = len(getattr(step, attribute, range(given)))
                if found != given:
                    raise DataError(
                        f"step {name!r} takes vectors of width {given}, its {attribute} {found}"
                    )
            width, before = int(step.width_out), f"step {name!r}"
        if width is not None and width != scorer.width_in:
            raise DataError(
                f"{before} gives vectors of width {width}, but the model takes {scorer.width_in}"
            )
        scorer.check_state()
        scores = getattr(self.calibrator, "n_scores_", None)
        if scores is not None and scores != len(self._questions()):
            raise DataError(
                f"the calibrator takes {scores} score(s) a trial, the questions give {len(self._questions())}"
            )

    def check_state(self) -> None:
        width = self.fitted_scorer.width_in
        if self.preprocessing is not None:
            width = int(self.preprocessing[0].n_features_in_)
        check_answers(self, self._probe, width)

    def _probe(self, X: Array) -> Any:
        profiles = self.enrol(X)
        return self.llr(profiles, profiles)

    def describe(self) -> dict[str, Any]:
        """What is in the bundle, in plain values: what stands around the scorer, and the scorer."""
        scorer, normaliser = self.fitted_scorer, self.normaliser
        around = {
            "preprocessing": self._steps(),
            "width": scorer.width_in
            if self.preprocessing is None
            else int(self.preprocessing[0].n_features_in_),
            "normaliser": None
            if normaliser is None
            else f"{normaliser.kind}, cohort of {len(normaliser.cohort_)}",
            "calibrator": None if self.calibrator is None else type(self.calibrator).__name__,
            "questions": [question.to_dict() for question in self._questions()],
            "extractor": self.extractor,
            "calibrations": {key: one.describe() for key, one in (self.calibrations or {}).items()},
            "points": {
                key: [point.to_dict() for point in some]
                for key, some in (self.points or {}).items()
            },
            "card": dict(self.card or {}),
        }
        return {"bundle": around, **scorer.describe()}

    @property
    def fitted_scorer(self) -> BaseScorer:
        """The scorer, which must be there and fitted."""
        scorer: BaseScorer = self._scorer()
        check_is_fitted(scorer)
        return scorer

    def _scorer(self) -> Any:
        if not isinstance(self.scorer, Scorer):
            raise ParameterError(
                f"a bundle needs a scorer, MultiviewPLDA for example; got {type(self.scorer).__name__}"
            )
        return self.scorer

    def _answering(self) -> Any:
        """What gives the scores: the normaliser, or the scorer."""
        return self._scorer() if self.normaliser is None else self.normaliser

    def _steps(self) -> list[str]:
        return (
            []
            if self.preprocessing is None
            else [type(step).__name__ for _, step in self.preprocessing.steps]
        )

    def _questions(self) -> list[Question]:
        if self.questions is not None and not len(self.questions):
            raise ParameterError(
                "questions is empty: name at least one, or leave it None for the joint LLR"
            )
        return [
            make_question(question, {})
            for question in ([{}] if self.questions is None else self.questions)
        ]

    def _prepared(self, side: Any) -> Any:
        return side if isinstance(side, Profiles) else self.prepare(side)

    def _scores(
        self, enrol: SideLike, test: SideLike, pairs: ArrayLike | None, options: dict[str, Any]
    ) -> Array:
        """Answers to all questions, last axis."""
        sides = [s if isinstance(s, Profiles) else self.enrol(s) for s in (enrol, test)]
        answers = []
        for question in self._questions():
            asked = {"dtype": np.float64, **options, **question.parts()}
            one = self._answering()
            answers.append(
                one.llr(*sides, **asked)
                if pairs is None
                else one.llr_trials(*sides, pairs, **asked)
            )
        return np.stack([np.asarray(answer, dtype=np.float64) for answer in answers], axis=-1)

    def _side(self, side: Any, shape: tuple[int, ...]) -> dict[str, Any]:
        if not isinstance(self.calibrator, QualityCalibrator):
            if side is not None:
                raise ParameterError(
                    f"side= is for a QualityCalibrator; this is {type(self.calibrator).__name__}"
                )
            return {}
        if not isinstance(side, Mapping):
            raise DataError(
                "a QualityCalibrator needs side={name: numbers that broadcast to the trials}"
            )
        flat: dict[str, NDArray[Any]] = {}
        for name, values in side.items():
            try:
                flat[name] = np.broadcast_to(np.asarray(values, dtype=np.float64), shape).reshape(
                    -1
                )
            except ValueError as error:
                raise DataError(
                    f"side[{name!r}] does not broadcast to the trials {shape}: {error}"
                ) from error
        return {"side": flat}


def _views_of(scorer: Any) -> tuple[str, ...]:
    return base_columns(tuple(scorer.views_))


def _in_parts(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a scoring call with its question, where one was given as such, as keyword arguments."""
    rest = {name: value for name, value in options.items() if name != "question"}
    if options.get("question") is None:
        return rest
    besides = {name: value for name, value in rest.items() if name in Question.__dataclass_fields__}
    return rest | make_question(options["question"], besides).parts()


def _on_host(X: ArrayLike) -> Any:
    """Vectors where scikit-learn works: tensors as arrays, all else, tables with names say, as it is."""
    return to_host(X) if is_torch(X) else X


PARTS: dict[str, type[Any]] = {
    "scorer": BaseScorer,
    "normaliser": ScoreNormaliser,
    "calibrator": Calibrator,
}
"""The parts of a bundle besides the steps of its preprocessing, with what each must be."""
