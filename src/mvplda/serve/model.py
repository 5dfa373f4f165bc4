"""The model of the service: a scorer with its extractor, applied to sums of evidence in whole numbers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic.alias_generators import to_camel

from .._typing import Array
from ..bundle import Bundle
from ..decisions import Decision, HalfThreshold, OperatingPoint, decide_each
from ..exceptions import DataError, LabelError, ParameterError
from ..kinds import NONTARGET
from ..models.deployment import Deployable
from ..scoring.profiles import Profiles
from ..scoring.question import Question, possible_hypotheses
from ..tensor_files import fingerprint
from ..voice.domain.posterior import SESSION_VIEW
from ..voice.extractors.extractor import Extractor
from ..voice.prompts import VOCABULARY, TextModel
from ..voice.spoof_detector import SPOOF_PRIOR
from .cells import Cell, Integers, merge_cells
from .schemas import ExtractorInfo, HalfPoint, ModelCard, OperatingPointReply, Problem

# Unit of stored sums, which are whole numbers, so that removing an enrolment leaves no rounding error behind.
UNIT = 2.0**-32
# Largest component of the evidence of a recording, so that sums of thousands of recordings fit into 64 bits.
LARGEST = 2.0**28
# Largest component of a vector: no extractor computes larger numbers.
LARGEST_COMPONENT = 1e6
SPEAKER = "speaker"
PHRASE = "phrase"
# Question whether the speaker is the same, whatever the phrase.
VOICE = Question(same=SPEAKER)
NOT_CALIBRATED = "This model has no calibration for the service's question: its LLRs and probabilities are too large."
NO_POINT = OperatingPoint(0.0)


class VerificationTrial(NamedTuple):
    """Comparison of one test recording with one profile.

    Parameters
    ----------
    cells : sums of the profile
    test : evidence of the recording as a cell with the claimed phrase; an empty phrase accepts any enrolled phrase
    countermeasure : LLR of bona fide against spoofed speech; None: no countermeasure
    point : operating point (thresholds) of the decision
    is_prompted : whether the words were prompted; then only the voice is compared
    is_detected : whether `countermeasure` comes from this package's spoof detector; the decision then assumes the
        detector's share of spoofs, `SPOOF_PRIOR`
    """

    cells: Sequence[Cell]
    test: Cell
    countermeasure: float | None = None
    point: OperatingPoint = NO_POINT
    is_prompted: bool = False
    is_detected: bool = False


class TrialKind(NamedTuple):
    """Properties of a trial that must be equal for all trials that are scored in one call.

    Parameters
    ----------
    is_test_labelled, are_profiles_labelled : whether test and profiles are scored with phrase labels
    is_phrase_known : whether the claimed phrase is known from training
    has_countermeasure : whether the trial has the LLR of a countermeasure
    is_prompted : whether only the voice is compared
    is_detected : whether the LLR of the countermeasure comes from this package's spoof detector
    """

    is_test_labelled: bool
    are_profiles_labelled: bool
    is_phrase_known: bool
    has_countermeasure: bool
    is_prompted: bool
    is_detected: bool


class Consistency(NamedTuple):
    """Comparison of a new recording with the earlier recordings of its profile.

    Parameters
    ----------
    phrase : LLR of the same phrase; None if the profile has no earlier recording of this phrase
    speaker : LLR of the same speaker; None if the profile has no earlier recording
    """

    phrase: float | None = None
    speaker: float | None = None

    def fields(self) -> dict[str, float | None]:
        """Return the LLRs as {field name of the API: LLR}."""
        return {"phraseLlr": self.phrase, "consistencyLlr": self.speaker}


def label_of(phrase: str) -> str:
    """Return the label of a phrase: its words in lower case, joined by hyphens, such as ``my-voice-is-my-key``.

    Punctuation is left out. Raises a `Problem` (422) for a phrase without letters and digits, or of more than 200
    characters.
    """
    letters = (c if c.isalnum() else " " for c in phrase.casefold().replace("'", ""))
    label = "-".join("".join(letters).split())
    if not label or len(phrase) > 200:
        detail = (
            "expected a phrase with at least one letter or digit and at most 200 characters; "
            f"got {phrase[:40]!r} with {len(phrase)} characters"
        )
        raise Problem(422, "phrase", detail)
    return label


class Model:
    """Model of the service: a scorer with its calibration (bundle), and the extractor of its vectors.

    The service stores the evidence of each recording, the scorer's projection of its vector, rounded to whole numbers.
    Scores are computed from sums of evidence.

    Parameters
    ----------
    bundle : bundle of any scorer with the view ``speaker``, with or without the view ``phrase``
    extractor : computes vectors from sound; None: the service accepts vectors only
    notice : warning that is sent with every answer; None: the notice in the bundle's card
    text_model : recogniser that checks prompted words; None: challenges are enrolled phrases only

    Attributes
    ----------
    rank : number of components of the evidence
    fingerprint : hash of the bundle; a profile with another one is stale
    version : name and hash of the model, as sent in answers
    known_phrases : {label: text} of phrases that need no enrolment

    Raises
    ------
    ParameterError : if the bundle has no view ``speaker``, or belongs to another extractor
    """

    def __init__(
        self,
        bundle: Bundle,
        extractor: Extractor | None = None,
        notice: str | None = None,
        text_model: TextModel | None = None,
    ) -> None:
        self.extractor = extractor
        self.text_model = text_model
        self._use(bundle)
        if SPEAKER not in bundle.views:
            raise ParameterError(
                f"the service needs a model with a view {SPEAKER!r}; got a model with the views {list(bundle.views)}"
            )
        self.has_phrases = PHRASE in bundle.views
        self.has_sessions = SESSION_VIEW in bundle.pair_terms().base
        self.width = bundle.width_in
        self.extractor_name = bundle.extractor
        if extractor is not None:
            self.extractor_name = str(extractor.name)
            bundle.check_extractor(extractor.name, "the extractor of the service")
        self.card: Mapping[str, Any] = dict(bundle.card or {})
        self.fingerprint = fingerprint(*bundle.get_state())[:16]
        self.version = f"{self.card.get('name', 'model')}-{self.fingerprint[:12]}"
        self.calibrator = self.bundle.calibration(self.usual_question())
        self.notice = notice or self.card.get("notice")
        if self.calibrator is None and not self.notice:
            self.notice = NOT_CALIBRATED
        self.known_phrases = self._known_phrases()
        self.rank = int(np.shape(self.scorer.evidence(np.ones((1, self.scorer.width_in))))[1])

    def _use(self, bundle: Bundle) -> None:
        """Set the bundle, and the attributes that depend on it: its scorer and its training phrases."""
        self.bundle = bundle
        self.scorer = bundle.fitted_scorer
        self._phrase_names = set(self._trained_phrases())

    @property
    def has_domain(self) -> bool:
        """Whether the scorer can be adapted to the domain of the stored profiles."""
        return isinstance(self.scorer, Deployable)

    def deployed(self, profiles: Sequence[Sequence[Cell]]) -> Model:
        """Return a copy of the model that is adapted to the domain of some profiles.

        profiles : sums of each profile; empty: the model itself is returned
        """
        if not profiles:
            return self
        other = copy(self)
        other._use(self.bundle.deployed(self.side(profiles, self.has_phrases)))
        return other

    def _known_phrases(self) -> dict[str, str]:
        """Return {label: text} of training phrases that need no enrolment, because error rates were measured on them.

        Empty for a model with a domain, where only enrolled phrases are known classes.
        """
        if not self.has_phrases or not self.bundle.operating_points(self.question(known=True)):
            return {}
        # a model that is adapted to stored profiles knows their phrases only
        if self.has_domain:
            return {}
        return {
            name: name.replace("-", " ")
            for name in self._trained_phrases()
            if label_of(name) == name
        }

    def _trained_phrases(self) -> list[str]:
        """Return the labels of the phrases that the scorer was trained on; empty if it does not store them."""
        try:
            return [str(name) for name in self.scorer.known_names(PHRASE)]
        except LabelError:
            return []

    def are_phrases_known(self, cells: Sequence[Cell]) -> bool:
        """Return whether all phrases of a profile are known classes of the scorer; False without a domain."""
        if not self.has_domain:
            return False
        return self._phrase_names.issuperset(cell.phrase for cell in cells)

    # -- vectors and sums ----------------------------------------------------

    def check_vector(self, vector: ArrayLike) -> NDArray[np.float32]:
        """Check a vector of the extractor, and return it as a (width,) array.

        Raises
        ------
        Problem : 422 if the vector does not have `width` numbers, if all are 0, or if one exceeds `LARGEST_COMPONENT`
        """
        array = np.asarray(vector, dtype=np.float64)
        if array.shape != (self.width,):
            detail = (
                f"expected a vector of {self.width} numbers; got an array of shape {array.shape}"
            )
            raise Problem(422, "vector", detail)
        # checked in the precision in which it is stored, where values that are too small become 0
        stored = np.clip(array, -2 * LARGEST_COMPONENT, 2 * LARGEST_COMPONENT).astype(np.float32)
        if not 0 < np.abs(stored).max() <= LARGEST_COMPONENT:
            detail = (
                "expected a vector of an extractor, with numbers from -1,000,000 to 1,000,000 that are not all 0; "
                f"got numbers up to {np.abs(array).max():g}"
            )
            raise Problem(422, "vector", detail)
        return stored

    def contributions(self, vectors: NDArray[Any]) -> Integers:
        """Return what each recording contributes to the stored sums: its evidence in whole numbers.

        Parameters
        ----------
        vectors : (n, width) vectors of the extractor

        Returns
        -------
        (n, rank) evidence divided by `UNIT` and rounded

        Raises
        ------
        DataError : if the evidence is too large for vectors of the extractor
        """
        prepared = self.bundle.prepare(vectors.astype(np.float64))
        y = np.asarray(self.scorer.evidence(prepared), dtype=np.float64)
        if not np.isfinite(y).all() or np.abs(y).max() > LARGEST:
            raise DataError(
                "the vector is far from all vectors that the model was trained on: send a vector of the extractor that "
                "GET /v1/model names"
            )
        return np.rint(y / UNIT).astype(np.int64)

    def sums(self, cells: Sequence[Cell]) -> tuple[Array, Array]:
        """Return the (n, rank) sums of n cells in the units of the scorer, and their (n,) numbers of recordings."""
        totals = np.stack([cell.total for cell in cells]).astype(np.float64)
        return totals * UNIT, np.array([cell.count for cell in cells], dtype=np.float64)

    def unlabelled(self, cells: Sequence[Cell]) -> Profiles:
        """Return each cell as one profile of the scorer, without labels of phrases and sessions."""
        return self.scorer.profiles(*self.sums(cells), np.arange(len(cells)))

    def side(self, profiles: Sequence[Sequence[Cell]], is_labelled: bool) -> Profiles:
        """Return sums as one side of a comparison: n profiles of the scorer.

        Sums of different sessions are added up, unless the scorer has sessions and some profile has several, or
        sessions are a view of the model.

        Parameters
        ----------
        profiles : per profile (or per test) its sums
        is_labelled : whether sums of different phrases stay separate and get labels; otherwise they are added up
        """
        # labels cost time: they are left out if every profile has one session and no question is about sessions
        per_session = self.has_sessions and (
            SESSION_VIEW in self.bundle.views
            or any(len({cell.session for cell in cells}) > 1 for cells in profiles)
        )
        merged = [merge_cells(cells, is_labelled, per_session) for cells in profiles]
        flat = [cell for cells in merged for cell in cells]
        owner = np.repeat(np.arange(len(merged)), [len(cells) for cells in merged])
        labels: dict[str, list[str]] = {}
        if is_labelled:
            labels[PHRASE] = [cell.phrase for cell in flat]
        if per_session:
            labels[SESSION_VIEW] = [cell.session for cell in flat]
        return self.scorer.profiles(*self.sums(flat), owner, None, labels or None)

    # -- answers -------------------------------------------------------------

    def question(
        self,
        known: bool = False,
        spoof: ArrayLike | None = None,
        spoof_prior: float = 0.5,
        is_prompted: bool = False,
    ) -> Question:
        """Return the question that the service asks: are speaker and phrase the same?

        Parameters
        ----------
        known : whether phrases are known classes, see `Question.known`
        spoof : LLRs of a countermeasure; None: no countermeasure
        spoof_prior : assumed share of spoofs among the trials to be rejected
        is_prompted : whether the words were prompted; the question is then about the speaker alone
        """
        return Question(
            (SPEAKER, PHRASE) if self.has_phrases and not is_prompted else SPEAKER,
            known=[PHRASE] if known and not is_prompted else None,
            countermeasure=spoof,
            spoof_prior=None if spoof is None else spoof_prior,
        )

    def usual_question(self, spoof: ArrayLike | None = None) -> Question:
        """Return the question that the service asks by default; phrases are known classes if the model has a domain.

        spoof : LLRs of a countermeasure; None: no countermeasure
        """
        return self.question(self.has_domain and self.has_phrases, spoof)

    def _kind(self, trial: VerificationTrial) -> TrialKind:
        """Return the properties of a trial that must be equal for all trials that are scored in one call."""
        phrases = {cell.phrase for cell in trial.cells}
        claimed = trial.test.phrase
        # labels cost time: they are not needed if the claimed phrase is the only enrolled one
        is_test_labelled = self.has_phrases and claimed != "" and phrases != {claimed}
        # with a domain, phrases are known classes and need labels
        has_classes = self.has_phrases and (len(phrases) > 1 or self.has_domain)
        return TrialKind(
            is_test_labelled,
            is_test_labelled or has_classes,
            is_test_labelled and claimed in self.known_phrases,
            trial.countermeasure is not None,
            trial.is_prompted,
            trial.is_detected,
        )

    def decisions(
        self, trials: Sequence[VerificationTrial], spoof_prior: float = 0.5
    ) -> list[Decision]:
        """Return the decision of each trial, in the given order; trials of the same `TrialKind` are scored in one call.

        spoof_prior : assumed share of spoofs among the trials to be rejected, if the LLR of the countermeasure does not
            come from this package's spoof detector
        """
        indices_by_kind: dict[TrialKind, list[int]] = {}
        for index, trial in enumerate(trials):
            indices_by_kind.setdefault(self._kind(trial), []).append(index)
        decisions: dict[int, Decision] = {}
        for kind, indices in indices_by_kind.items():
            cells, tests, spoofs, points, *_ = zip(
                *(trials[index] for index in indices), strict=True
            )
            spoof = spoofs if kind.has_countermeasure else None
            prior = SPOOF_PRIOR if kind.is_detected else spoof_prior
            question = self.question(
                kind.is_phrase_known, spoof, prior, is_prompted=kind.is_prompted
            )
            enrolled = self.side(cells, kind.are_profiles_labelled)
            tested = self.side([[test] for test in tests], kind.is_test_labelled)
            pairs = np.repeat(np.arange(len(indices)), 2).reshape(-1, 2)
            answer = self.bundle.answer(enrolled, tested, question, pairs)
            decisions |= zip(indices, decide_each(answer, points), strict=True)
        return [decisions[index] for index in range(len(trials))]

    def speaker_llrs(self, side: Profiles, test: Integers) -> Array:
        """Return the LLRs of the same speaker, whatever the phrase, of one test with every profile of a side.

        Parameters
        ----------
        side : n profiles, from `side`
        test : (rank,) evidence of the test in whole numbers, from `contributions`

        Returns
        -------
        (n,) calibrated LLRs; they are not limited by the outlier probability of the calibration
        """
        answer = self.bundle.answer(side, self.side([[Cell("", test, 1)]], False), VOICE)
        return np.asarray(answer.inlier_llr[:, 0], dtype=np.float64)

    def calibrated(self, llrs: Array) -> Array:
        """Return calibrated speaker LLRs for raw ones, as if the recordings had no evidence about the phrase.

        The result is not limited by the outlier probability of the calibration. Without a calibration, the raw LLRs are
        returned.
        """
        calibrator = self.bundle.calibration(VOICE)
        if calibrator is None:
            return llrs
        hypotheses = possible_hypotheses(self.bundle.views, {})
        logs = {h: llrs if SPEAKER in h else np.zeros_like(llrs) for h in hypotheses}
        return VOICE.ratio(self.bundle.views).of(calibrator.without_outliers(logs))

    def consistency(self, cells: Sequence[Cell], new: Cell) -> Consistency:
        """Compare a new recording with the earlier recordings of its profile, and return the LLRs.

        cells : sums of the profile's earlier recordings; if some have the phrase of `new`, only these are compared
        new : contribution of the new recording, with its phrase
        """
        if not cells:
            return Consistency()
        same_phrase = [cell for cell in cells if cell.phrase == new.phrase]
        if not same_phrase:
            trial = VerificationTrial(cells, Cell("", new.total, 1))
            return Consistency(speaker=self.decisions([trial])[0].llrs[SPEAKER])
        llrs = self.decisions([VerificationTrial(same_phrase, new)])[0].llrs
        return Consistency(llrs.get(PHRASE), llrs[SPEAKER])

    # -- description ---------------------------------------------------------

    def describe(self) -> ModelCard:
        """Return the part of the answer to GET /v1/model that does not depend on the settings of the service."""
        calibrators = self.bundle.calibrations or {}
        points = self.bundle.operating_points(self.usual_question())
        return ModelCard(
            modelVersion=self.version,
            extractor=ExtractorInfo(
                name=self.extractor_name,
                fingerprint=getattr(self.extractor, "fingerprint", None),
                dimension=self.width,
            ),
            views=list(self.bundle.views),
            calibration={name: item.describe() for name, item in calibrators.items()},
            calibrated=self.calibrator is not None,
            largestLlr=getattr(self.calibrator, "largest_llr", None),
            operatingPoints=[point_reply(point) for point in points],
            data=camel_fields(json.loads(json.dumps(self.card, default=str))),
            knownPhrases=sorted(self.known_phrases.values()),
            challengeKinds=["phrase"] if self.text_model is None else ["phrase", *VOCABULARY],
            notice=self.notice,
        )


CARD_FIELDS = {name: to_camel(name) for name in ("held_out", "min_cllr", "deployed_on", "left_out")}
"""API names of the fields of a model's card. Its other keys are names of views, kinds of trials and questions."""

KINDS = {NONTARGET: "IC"}
"""API names of the kinds of trials of a model of voices only, for which every phrase is right."""


def camel_fields(card: object) -> Any:
    """Replace the field names in the card of a model, or in a value of it, by those of the API."""
    if isinstance(card, list):
        return [camel_fields(value) for value in card]
    if isinstance(card, dict):
        return {CARD_FIELDS.get(name, name): camel_fields(value) for name, value in card.items()}
    return card


def point_reply(point: OperatingPoint) -> OperatingPointReply:
    """Return an operating point with the field names of the API.

    Its ``far`` is the measured error rate of the kind of trial with the most false acceptances.
    """
    measured: Mapping[str, Any] = point.measured or {}
    kinds: dict[str, Sequence[float]] = dict(measured.get("far") or {})
    worst: Sequence[Any] = max(kinds.values(), key=lambda rates: rates[0], default=[None])
    far, *far_interval = worst
    frr, *frr_interval = measured.get("frr") or [None]
    return OperatingPointReply(
        wantedFar=point.far,
        threshold=point.threshold,
        far=far,
        farInterval=far_interval or None,
        frr=frr,
        frrInterval=frr_interval or None,
        farByKind={KINDS.get(kind, kind): rates[0] for kind, rates in kinds.items()},
        people=point.people,
        basis=point.basis,
        halves={view: half_point(half) for view, half in point.halves.items()},
    )


def half_point(half: HalfThreshold) -> HalfPoint:
    """Return the thresholds and error rates of one half (speaker or phrase) with the field names of the API."""
    measured: Mapping[str, Any] = half.measured or {}
    kinds: dict[str, Sequence[float]] = dict(measured.get("far") or {})
    return HalfPoint(
        accept=half.accept,
        reject=half.reject,
        farByKind={kind: rates[0] for kind, rates in kinds.items()},
        frr=(measured.get("frr") or [None])[0],
        people=half.people,
    )
