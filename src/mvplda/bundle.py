"""Bundle: a model for raw vectors, with preprocessing, scorer, calibrations, thresholds and description in one file."""

# mypy: disallow-subclassing-any=False

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from ._typing import AnyArray, Array, IntArray, Json, Labels, Names
from .backend import is_torch, like, to_host
from .calibration import Calibrator, Measures
from .decisions import OperatingPoint, point_for
from .exceptions import DataError, ParameterError
from .labels import as_array, base_columns
from .models.base import BaseScorer
from .models.caching import comparing_once
from .models.deployment import (
    deployed_classes,
    deployed_scorer,
    find_evidence_measures,
    find_near_matches,
    rows_by_known_views,
)
from .models.profile_comparison import profiles_of_both_sides
from .models.trial_set import TrialSet, check_trial_pairs, select_near_matches
from .persistence import (
    check_finite,
    check_same_extractor,
    check_width,
    get_component,
    ordinary_vectors,
    put_component,
)
from .scoring.answer import Answer, question_key
from .scoring.pair_terms import PairTerms
from .scoring.profiles import Profiles, ProfilesLike
from .scoring.question import (
    Hypothesis,
    LogLikelihoods,
    NearMatches,
    Question,
    QuestionArguments,
    make_question,
    with_near_matches,
)
from .sklearn_interface import Estimator, check_is_fitted
from .tensor_files import State, Tensors

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline

    from .preprocessing import Step

V = TypeVar("V")

UNDEPLOYED = "undeployed"
"""End of the keys of calibrations and operating points for `Bundle.paired`: ``speaker+phrase|undeployed``."""


class Bundle(BaseScorer, Estimator):
    """Model that scores raw vectors: preprocessing, scorer, calibrations and thresholds.

    A bundle is itself a scorer. Its method `llr` returns the uncalibrated LLRs of its scorer, `answer` calibrated LLRs.

    Parameters
    ----------
    preprocessing : Pipeline or None
        Transformers of `mvplda.preprocessing`, see `standard_chain`; None: vectors are not changed.
    scorer : MultiviewPLDA, PLDA, CosineScorer, or another `BaseScorer`
    extractor : str or None
        Name of the extractor of the vectors; `check_extractor` refuses vectors of other extractors. None: unknown.
    calibrations : dict of {question key: Calibrator} or None
        Calibrations of the log-likelihoods of hypotheses, by the result of `question_key`. Calibrations for `paired`
        have keys that end in ``|undeployed``.
    points : dict of {question key: list of OperatingPoint} or None
        Thresholds that were measured on held-out speakers, the default first, by the same keys.
    card : dict or None
        Description of the model: data, settings and results, as plain values.

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

    KIND = "bundle"

    def __init__(
        self,
        preprocessing: Pipeline | None = None,
        scorer: Any = None,
        extractor: str | None = None,
        calibrations: Mapping[str, Calibrator] | None = None,
        points: Mapping[str, Sequence[OperatingPoint]] | None = None,
        card: Mapping[str, Any] | None = None,
    ) -> None:
        self.preprocessing = preprocessing
        self.scorer = scorer
        self.extractor = extractor
        self.calibrations = calibrations
        self.points = points
        self.card = card

    def fit(self, X: ArrayLike, y: Labels | None = None) -> Self:
        """Fit the preprocessing, then the scorer to the preprocessed vectors.

        Parameters
        ----------
        X : (n, D) raw vectors
        y : labels of the vectors by view; None for a scorer that needs none
        """
        if self.preprocessing is not None:
            from sklearn.pipeline import Pipeline

            if not isinstance(self.preprocessing, Pipeline):
                raise ParameterError(
                    f"preprocessing must be a Pipeline of scikit-learn, or None; got {self.preprocessing!r}"
                )
            X = like(self.preprocessing.fit_transform(_on_host(X), y), X)
        self._scorer().fit(X, y)
        return self

    # -- interface of the scorer, for raw vectors --------------------------------------

    def prepare(self, X: ArrayLike) -> Any:
        """Return raw vectors (n, D) after preprocessing, as input for the scorer."""
        if self.preprocessing is None:
            return X
        check_is_fitted(self.preprocessing)
        return like(self.preprocessing.transform(_on_host(X)), X)

    def evidence(self, X: ArrayLike) -> AnyArray:
        """Return the evidence (n, r) of raw vectors: preprocessed vectors, projected onto the scorer's latent space.

        A profile is the sum of the evidence of its vectors.
        """
        return self._scorer().evidence(self.prepare(X))

    def pair_terms(self) -> PairTerms:
        return self.fitted_scorer.pair_terms()

    def pair_terms_with_known(self, views: Sequence[str]) -> PairTerms:
        return self.fitted_scorer.pair_terms_with_known(views)

    def known_names(self, view: str) -> Names:
        return self.fitted_scorer.known_names(view)

    def deployed(self, profiles: Profiles | None) -> Self:
        """Return a copy of the bundle that is adapted to the domain of all enrolled profiles, which remain valid.

        Its calibrations and operating points are those for several enrolled people, not those of `paired`.

        Parameters
        ----------
        profiles : all enrolled profiles; None: there are none
        """
        bundle = copy(self)
        bundle.scorer = deployed_scorer(self.fitted_scorer, profiles)
        if profiles is not None:
            bundle.calibrations = _without_undeployed(self.calibrations)
            bundle.points = _without_undeployed(self.points)
        return bundle

    def paired(self, enrolled: Profiles) -> Self:
        """Return a copy of the bundle for comparisons with a single enrolled profile, if nobody else is enrolled.

        The copy is adapted to the domain of the recordings of this profile. Its calibrations and operating points are
        those whose keys end in ``|undeployed`` (`UNDEPLOYED`); they were measured on comparisons with single profiles.
        If there are no such keys, as after `deployed`, the bundle itself is returned.

        Parameters
        ----------
        enrolled : the profile
        """
        calibrations = _only_undeployed(self.calibrations)
        points = _only_undeployed(self.points)
        if not calibrations and not points:
            return self
        bundle = self.deployed(enrolled)
        bundle.calibrations = calibrations or bundle.calibrations
        bundle.points = points
        return bundle

    @property
    def views_(self) -> dict[str, int]:  # type: ignore[override]
        return self.fitted_scorer.views_

    @property
    def width_out(self) -> int:
        return self.fitted_scorer.width_out

    def _key(self) -> str:
        return self.fitted_scorer._key()

    # -- calibrated answers ------------------------------------------------------------

    @comparing_once()
    def answer(
        self,
        enrol: ProfilesLike,
        test: ProfilesLike,
        question: Question | QuestionArguments | None = None,
        pairs: ArrayLike | None = None,
    ) -> Answer:
        """Answer a question, such as "same speaker?", about all pairs of profiles and tests, or about a list of trials.

        The answer contains log-likelihoods of hypotheses, LLRs and posteriors. They are calibrated
        if the bundle has a calibration for the question; otherwise `Answer.calibrated` is False.
        The answer to a trial does not depend on the other trials. Classes that a profile names,
        such as its phrase, are used as known classes if the bundle is adapted (`deployed`) to
        profiles with classes of these names; see `informed`.

        Parameters
        ----------
        enrol, test : Profiles, or arrays of single raw vectors
        question : a `Question`, or a dict of its keyword arguments; None: "same in every view?"
        pairs : (n, 2) row of the profile and row of the test of each trial; None: all pairs
        """
        profiles, tests = profiles_of_both_sides(self, enrol, test)
        asked = make_question(question, {})
        listed = None if pairs is None else check_trial_pairs(pairs, len(profiles), len(tests))
        # labels on both sides are facts, not hypotheses
        ratio = asked.ratio(self.views, asked.labelled(profiles.labels, tests.labels))
        trials = TrialSet(profiles, tests, listed)
        # near matches have no effect on questions about other views
        near_matches = self.near_matches(profiles, tests, listed, tuple(asked.same or self.views))
        measures = find_evidence_measures(self.fitted_scorer, profiles, tests, listed) or {}
        logs = {h: np.empty(trials.shape) for h in ratio.hypotheses}
        inliers = None
        if self.calibrations:
            inliers = {h: np.empty(trials.shape) for h in ratio.hypotheses}
        keys = np.empty(len(profiles), dtype=object)
        is_calibrated = np.zeros(len(profiles), dtype=bool)
        for informed, rows in self._informed_rows(asked, profiles):
            profile_trials, indices = trials.of(rows)
            keys[rows] = question_key(informed, self.views)
            is_calibrated[rows] = self.calibration(informed) is not None
            informed_logs, informed_inliers = self._logs(
                informed,
                profile_trials,
                select_near_matches(near_matches, indices),
                {name: values[indices] for name, values in measures.items()},
            )
            for h, values in logs.items():
                values[indices] = informed_logs[h]
                if inliers is not None:
                    inliers[h][indices] = informed_inliers[h]
        countermeasure = None
        if asked.countermeasure is not None:
            countermeasure = trials.by_test(asked.countermeasure_llrs(len(tests)))
        claims = {
            view: trials.by_profile(as_array(asked.claims(view)))
            for view in asked.known_views
            if asked.claims(view) is not None
        }
        return Answer(
            logs,
            ratio,
            asked,
            trials.by_profile(keys),
            trials.by_profile(is_calibrated),
            countermeasure,
            claims,
            near_matches,
            inliers,
        )

    def _logs(
        self,
        question: Question,
        trials: TrialSet,
        near_matches: NearMatches | None,
        measures: Measures,
    ) -> tuple[LogLikelihoods, LogLikelihoods]:
        """Return the calibrated log-likelihoods of hypotheses, with and without outliers.

        Without a calibration for the question, both results are the uncalibrated log-likelihoods.

        near_matches : near-match evidence of these trials; None: not modelled
        measures : {name: amount of evidence per trial}, inputs of the calibration

        Returns
        -------
        log-likelihoods that allow for outliers; an outlier is a trial without information, and the calibration has
            the probability of one
        log-likelihoods under the assumption that no trial is an outlier
        """
        calibrator = self.calibration(question)
        # a calibrator needs each view alone, including hypotheses that are given to be false
        given = question.given if calibrator is None else None
        unweighted = replace(
            question, given=given, priors=None, countermeasure=None, spoof_prior=None
        )
        raw = self.fitted_scorer.log_likelihoods(
            trials.profiles, trials.tests, unweighted, pairs=trials.pairs
        )
        logs: dict[Hypothesis, Array] = {h: to_host(values) for h, values in raw.items()}
        if calibrator is not None:
            inliers = calibrator.without_outliers(logs, near_matches, measures)
            return calibrator.add_outliers(inliers), inliers
        uncalibrated = with_near_matches(logs, near_matches)
        return uncalibrated, uncalibrated

    def near_matches(
        self, enrol: Profiles, test: Profiles, pairs: IntArray | None, views: Sequence[str]
    ) -> NearMatches | None:
        return find_near_matches(self.fitted_scorer, enrol, test, pairs, views)

    def informed(
        self, question: Question | None = None, profiles: Profiles | None = None
    ) -> Question:
        """Return the question with `known` set to the views with classes enrolled by name.

        The view "phrase", for example, is known if the profiles name phrases, and all of these are
        among the phrases of the profiles that were passed to `deployed`. The question is returned
        unchanged if no view is known, or if the bundle has calibrations but none for these known
        views.

        Parameters
        ----------
        question : question without known views; None: "same in every view?"
        profiles : profiles of the trials. `ParameterError` if they differ in their known views.
            None: the known views are all those in which classes are enrolled
        """
        asked = question or Question()
        if profiles is None:
            known = list(deployed_classes(self.fitted_scorer, asked, self.views))
            return self._with_known(asked, known)
        questions = [informed for informed, _ in self._informed_rows(asked, profiles)]
        if len(questions) != 1:
            raise ParameterError(
                f"only some of the {len(profiles)} profiles name a phrase, or another class, that is enrolled: pass "
                "those that do and those that do not in separate calls"
            )
        return questions[0]

    def _informed_rows(
        self, question: Question, profiles: Profiles
    ) -> list[tuple[Question, IntArray]]:
        """Group profiles by their known views; return (question with these views, rows of the profiles) per group."""
        classes = deployed_classes(self.fitted_scorer, question, self.views)
        rows: dict[tuple[str, ...], list[IntArray]] = {}
        questions: dict[tuple[str, ...], Question] = {}
        for views, numbers in rows_by_known_views(profiles, classes):
            informed = self._with_known(question, views)
            key = informed.known_views if informed is not question else ()
            questions[key] = informed
            rows.setdefault(key, []).append(numbers)
        return [(questions[key], np.sort(np.concatenate(groups))) for key, groups in rows.items()]

    def _with_known(self, question: Question, views: Sequence[str]) -> Question:
        """Return the question with `views` as its known views.

        If the bundle has calibrations, but none for these known views, the question is returned unchanged.
        """
        if not views:
            return question
        informed = replace(question, known=list(views))
        is_calibrated = not self.calibrations or self.calibration(informed) is not None
        return informed if is_calibrated else question

    def calibration(self, question: Question | None = None) -> Calibrator | None:
        """Return the calibration for a question (None: "same in every view?"), or None if there is none."""
        return (self.calibrations or {}).get(question_key(question or Question(), self.views))

    def outlier_probability(self, question: Question | None = None) -> float:
        """Return the probability of an outlier in the calibration for a question; 0 without a calibration."""
        calibration = self.calibration(question)
        if calibration is None:
            return 0.0
        return calibration.outlier_probability_

    def operating_points(self, question: Question | None = None) -> list[OperatingPoint]:
        """Return the operating points that were measured for a question, the default first.

        For a question with a countermeasure, only points with a threshold per view are returned, because the others
        were measured without spoofs.
        """
        asked = question or Question()
        points = (self.points or {}).get(question_key(asked, self.views), ())
        if asked.countermeasure is not None:
            return [point for point in points if point.halves]
        return list(points)

    def point(
        self,
        question: Question | None = None,
        profiles: Profiles | None = None,
        /,
        **options: Any,
    ) -> OperatingPoint:
        """Return the operating point for a question: the default point of the model, or the point that options choose.

        Parameters
        ----------
        question : None: "same in every view?"
        profiles : profiles of the trials, see `informed`
        options : options of `mvplda.decisions.point_for`, such as ``far=0.01``
        """
        question = self.informed(question, profiles)
        points = self.operating_points(question)
        calibration = self.calibration(question)
        if calibration is not None:
            options["largest_llr"] = calibration.largest_llr
        return point_for(points, **options)

    @property
    def views(self) -> tuple[str, ...]:
        """Base views that hypotheses are about, such as speaker and phrase; no nuisance views."""
        scorer = self.fitted_scorer
        base = base_columns(tuple(scorer.views_))
        return tuple(view for view in base if view not in scorer.nuisance_views)

    # -- files -------------------------------------------------------------------------

    def get_state(self) -> State:
        arrays: Tensors = {}
        steps = None
        if self.preprocessing is not None:
            from .preprocessing import put_pipeline

            steps = put_pipeline(arrays, "preprocessing", self.preprocessing)
        values: Json = {
            "preprocessing": steps,
            "extractor": self.extractor,
            "scorer": put_component(arrays, "scorer", self._scorer(), BaseScorer),
            "calibrations": {
                key: put_component(arrays, f"calibrations/{key}", calibration, Calibrator)
                for key, calibration in (self.calibrations or {}).items()
            },
            "points": self._plain_points(),
            "card": dict(self.card or {}),
        }
        return arrays, values

    def check_state(self) -> None:
        if not isinstance(self.card or {}, Mapping):
            raise ParameterError(
                f"the card of a bundle, which describes the model, must be a dict; got {self.card!r:.100}"
            )
        if not isinstance(self.extractor or "", str):
            raise ParameterError(
                f"the extractor of a bundle must be a name (text); got {self.extractor!r:.100}"
            )
        scorer = self.fitted_scorer
        check_width(self, self.width_in)
        prepared = self.prepare(ordinary_vectors(self.width_in))
        check_finite(self, prepared)
        if prepared.shape[1] != scorer.width_in:
            raise DataError(
                f"preprocessing and scorer of the bundle do not fit: the preprocessing returns vectors of "
                f"{prepared.shape[1]} columns, and the scorer takes {scorer.width_in}"
            )
        super().check_state()

    def typical_evidence(self) -> AnyArray:
        # at the scorer's mean and scale, which the preprocessing may have changed
        return self.fitted_scorer.typical_evidence()

    @classmethod
    def from_state(cls, arrays: Tensors, values: dict[str, Any]) -> Self:
        preprocessing = None
        if values["preprocessing"]:
            from .preprocessing import get_pipeline

            preprocessing = get_pipeline(arrays, "preprocessing", values["preprocessing"])
        return cls(
            preprocessing,
            get_component(arrays, "scorer", values["scorer"], BaseScorer),
            values["extractor"],
            {
                key: get_component(arrays, f"calibrations/{key}", about, Calibrator)
                for key, about in values["calibrations"].items()
            },
            {
                key: [OperatingPoint(**point) for point in points]
                for key, points in values["points"].items()
            },
            values["card"],
        )

    def check_extractor(self, extractor: str | None, where: str) -> None:
        """Raise `DataError` if vectors and model have different extractors.

        Warn if the extractor of the vectors is unknown. A bundle without an extractor accepts all
        vectors.

        Parameters
        ----------
        extractor : name of the extractor of the vectors; None: unknown
        where : description of the vectors in messages, such as their file
        """
        if self.extractor is not None:
            check_same_extractor("the model", self.extractor, where, extractor)

    def describe(self) -> Json:
        """Return a description of the bundle and its scorer (settings, calibrations, points, card) as plain values."""
        description = {
            "preprocessing": [type(step).__name__ for _, step in self._steps()],
            "width": self.width_in,
            "extractor": self.extractor,
            "calibrations": {
                key: calibration.describe()
                for key, calibration in (self.calibrations or {}).items()
            },
            "points": self._plain_points(),
            "card": dict(self.card or {}),
        }
        return {"bundle": description, **self.fitted_scorer.describe()}

    @property
    def width_in(self) -> int:
        """Number of columns of raw vectors."""
        for _, step in self._steps():
            return int(step.n_features_in_)
        return self.fitted_scorer.width_in

    @property
    def fitted_scorer(self) -> BaseScorer:
        """Fitted scorer; raises `ParameterError` if missing, `NotFittedError` if not fitted."""
        scorer = self._scorer()
        # faster than scikit-learn's check, which goes through all attributes
        if not hasattr(scorer, "views_"):
            check_is_fitted(scorer)
        return scorer

    def _scorer(self) -> BaseScorer:
        """Return the scorer, fitted or not; raise `ParameterError` if the bundle has none."""
        scorer: BaseScorer = self.scorer
        if not isinstance(scorer, BaseScorer):
            raise ParameterError(
                f"a bundle needs a scorer, such as MultiviewPLDA(); got {type(scorer).__name__}"
            )
        return scorer

    def _steps(self) -> list[tuple[str, Step]]:
        """Return (name, transformer) of each preprocessing step."""
        return [] if self.preprocessing is None else self.preprocessing.steps

    def _plain_points(self) -> Json:
        """Return the operating points by question key, as plain values."""
        return {
            key: [point.to_dict() for point in points]
            for key, points in (self.points or {}).items()
        }


def _only_undeployed(entries: Mapping[str, V] | None) -> dict[str, V]:
    """Return the entries whose keys end in ``|undeployed``, for `Bundle.paired`, without this ending.

    entries : calibrations or operating points by question key
    """
    suffix = f"|{UNDEPLOYED}"
    return {
        key.removesuffix(suffix): entry
        for key, entry in (entries or {}).items()
        if key.endswith(suffix)
    }


def _without_undeployed(entries: Mapping[str, V] | None) -> dict[str, V] | None:
    """Return the entries whose keys do not end in ``|undeployed``, the ending for `Bundle.paired`.

    entries : calibrations or operating points by question key
    """
    if entries is None:
        return None
    return {key: entry for key, entry in entries.items() if not key.endswith(f"|{UNDEPLOYED}")}


def _on_host(X: ArrayLike) -> ArrayLike:
    """Return a tensor as a NumPy array, which scikit-learn requires; arrays and tables are unchanged."""
    return to_host(X) if is_torch(X) else X
