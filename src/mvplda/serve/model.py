"""What the service decides by: a bundle of any scorer, its extractors, and the rotation of what is stored."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic.alias_generators import to_camel

from .._typing import Array
from ..bundle import Bundle
from ..decisions import Decision, OperatingPoint, decide_each
from ..exceptions import AudioError, DataError, LabelError, NumericalError, ParameterError
from ..kinds import NONTARGET
from ..model_files import load_model
from ..models.deployment import Deployable
from ..persistence import fingerprint
from ..scoring.profiles import Profiles
from ..scoring.question import Question, possible_hypotheses
from ..voice.audio.decode import read_sound
from ..voice.audio.quality import Quality, QualityMeter, QualitySettings
from ..voice.default_model import (
    DEFAULT_MODEL,
    default_extractor,
    extractor_names,
)
from ..voice.domain.posterior import SESSION_VIEW
from ..voice.extractors import load_extractor
from ..voice.extractors.extractor import Extractor
from .keys import TemplateRotation, rotation_matrix
from .schemas import Json, Problem
from .settings import Settings

log = logging.getLogger("mvplda.serve")

# Of stored sums, which are whole numbers: an enrolment that is taken out leaves nothing behind.
UNIT = 2.0**-32
# Evidence beyond this is refused: sums of thousands stay within 64 bits.
LARGEST = 2.0**28
# No extractor makes larger numbers.
MOST = 1e6
SPEAKER = "speaker"
PHRASE = "phrase"
BOTH = (SPEAKER, PHRASE)
# Whose voice is it, whatever was said?
VOICE = Question(same=SPEAKER)
MODEL_FOLDER = Path(__file__).with_name("models")
DEMO_NOTICE = (
    "DEMONSTRATION ONLY: a toy network listens here, which was trained on synthetic voices. It must not decide about "
    "people: it accepts most strangers."
)
NOT_CALIBRATED = "This model has no calibration for what the service asks: its LLRs and probabilities are too large."
# Warnings about quality, and why nothing is decided. Other warnings, such as a narrow band, pass.
REASONS = {
    "short": "not_enough_speech",
    "quiet": "too_quiet",
    "speechless": "no_speech",
    "clipped": "clipped",
    "noisy": "too_noisy",
}
Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Cell:
    """The recordings of one phrase and sitting in a profile: their sum, in whole numbers, and how many they are.

    sitting : empty for a test, which is a sitting of its own
    """

    phrase: str
    total: Integers
    count: int
    sitting: str = ""


@dataclass(frozen=True, eq=False)
class ProcessedRecording:
    """What came of one recording.

    vector : None where no extractor made one
    reason : why it decides nothing; None: it may
    digest : of its samples; empty for vectors
    """

    vector: NDArray[Any] | None
    quality: Json | None = None
    reason: str | None = None
    digest: str = ""
    speech_s: float = 0.0
    detail: str = ""


NO_POINT = OperatingPoint(0.0)
# Sums of a profile; a test, whose phrase is the one that was asked for, empty: any of the enrolled ones; the LLR of a
# countermeasure; and where to decide.
Trial = tuple[Sequence[Cell], Cell, float | None, OperatingPoint]


def process_recording(extractor: Extractor, data: bytes, settings: Settings) -> ProcessedRecording:
    """Decode, measure, and make a vector of what is good enough."""
    try:
        samples, rate = read_sound(data, extractor.rate, longest_s=settings.longest_s)
    except AudioError as error:
        causes = {"too long": "too_long", "silent": "no_speech"}
        told = (reason for text, reason in causes.items() if text in str(error))
        reason = next(told, "unreadable")
        return ProcessedRecording(None, reason=reason, detail=str(error))
    limits = QualitySettings(
        speech_s=settings.speech_s, snr_db=settings.snr_db, clipped=settings.clipped
    )
    meter = QualityMeter(rate, limits)
    parts = [meter.add(part) for part in extractor.segments(samples, rate)]
    quality = meter.quality()
    common: Json = {
        "quality": quality_fields(quality),
        "digest": quality.digest,
        "speech_s": quality.speech_s,
    }
    for warning in quality.warnings:
        if warning in REASONS:
            return ProcessedRecording(None, reason=REASONS[warning], **common)
    try:
        vector = extractor.average(parts)
    except (AudioError, NumericalError) as error:
        return ProcessedRecording(None, reason="unreadable", detail=str(error), **common)
    return ProcessedRecording(vector, **common)


def quality_fields(quality: Quality) -> Json:
    """As JSON has it; the digest stays inside."""
    fields: Json = {"warnings": list(quality.warnings)}
    for name in (
        "duration_s",
        "speech_s",
        "peak_db",
        "level_db",
        "clipped",
        "snr_db",
        "bandwidth_hz",
    ):
        value = getattr(quality, name)
        fields[to_camel(name)] = None if value is None else round(value, 4)
    return fields


def label_of(phrase: str) -> str:
    """A phrase as a label: ``my-voice-is-my-key``; case, stress marks and stops do not count."""
    letters = (c if c.isalnum() else " " for c in phrase.casefold().replace("'", ""))
    label = "-".join("".join(letters).split())
    if not label or len(phrase) > 200:
        raise Problem(422, "phrase", "a phrase has words, and at most 200 characters")
    return label


class Model:
    """A bundle as the service uses it.

    What is stored is `evidence`, rotated by a secret and rounded to whole numbers. Scores are made of sums of these,
    rotated back: no scorer has to support the rotation.

    Parameters
    ----------
    bundle : any scorer with the view ``speaker``, with ``phrase`` or without
    extractor : makes vectors of sound; None: vectors only
    notice : a warning that is shown with every answer
    """

    def __init__(
        self,
        bundle: Bundle,
        extractor: Extractor | None = None,
        notice: str | None = None,
    ) -> None:
        self.extractor = extractor
        self._use(bundle)
        if SPEAKER not in bundle.views:
            raise ParameterError(
                f"the service needs a model with a view {SPEAKER!r}; got one with {list(bundle.views)}"
            )
        self.has_phrases = PHRASE in bundle.views
        self.has_sittings = SESSION_VIEW in bundle.pair_terms().base
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
        self.set_secret(b"")

    def _use(self, bundle: Bundle) -> None:
        self.bundle = bundle
        self.scorer = bundle.fitted_scorer
        self._names = set(self._trained_phrases())

    def set_secret(self, secret: bytes) -> None:
        """Rotate what is stored; an empty one does not."""
        self._secret = secret
        self._turn = TemplateRotation(secret, self.rank)

    def index_rotation(self, width: int) -> Array:
        """Of vectors for a search in the database, and of the tests: products stay as they are."""
        return rotation_matrix(self._secret and self._secret + b" index", width)

    def deployed(self, people: Sequence[Sequence[Cell]]) -> Model:
        """The model in the domain of some people's stored sums; of nobody's: as it knows domains from training."""
        if not people:
            return self
        other = copy(self)
        other._use(self.bundle.deployed(self.side(people, self.has_phrases)))
        return other

    def _known_phrases(self) -> dict[str, str]:
        """{label: text} of phrases of training for which errors were measured: they need no enrolment."""
        if not self.has_phrases or not self.bundle.operating_points(self.question(known=True)):
            return {}
        # a deployment knows what is enrolled in it, and nothing of another one
        if isinstance(self.scorer, Deployable):
            return {}
        return {
            name: name.replace("-", " ")
            for name in self._trained_phrases()
            if label_of(name) == name
        }

    def _trained_phrases(self) -> list[str]:
        try:
            return [str(name) for name in self.scorer.known_names(PHRASE)]
        except LabelError:  # the scorer keeps none
            return []

    def knows(self, cells: Sequence[Cell]) -> bool:
        """Whether the deployment knows all phrases of a profile by their names."""
        if not isinstance(self.scorer, Deployable):
            return False
        return self._names.issuperset(cell.phrase for cell in cells)

    # -- vectors and sums ----------------------------------------------------

    def take(self, vector: Any) -> NDArray[Any]:
        """A raw vector, if it can be one."""
        array = np.asarray(vector, dtype=np.float64)
        if array.shape != (self.width,):
            detail = f"a vector is a list of {self.width} numbers; got {array.shape}"
            raise Problem(422, "vector", detail)
        # as it is stored: what is too small is 0 there
        kept = np.clip(array, -2 * MOST, 2 * MOST).astype(np.float32)
        if not 0 < np.abs(kept).max() <= MOST:
            raise Problem(
                422, "vector", "no extractor makes a vector of zeros, or beyond a million"
            )
        return kept

    def share(self, vectors: NDArray[Any]) -> Integers:
        """(n, r) what raw vectors add to stored sums: evidence, rotated, in whole numbers."""
        prepared = self.bundle.prepare(vectors.astype(np.float64))
        y = np.asarray(self.scorer.evidence(prepared), dtype=np.float64)
        if not np.isfinite(y).all() or np.abs(y).max() > LARGEST:
            raise DataError("the vector is unlike all that the model was trained on")
        return np.rint(self._turn.there(y) / UNIT).astype(np.int64)

    def sums(self, cells: Sequence[Cell]) -> tuple[Array, Array]:
        """(n, r) stored sums as the scorer has them, and (n,) counts."""
        totals = np.stack([cell.total for cell in cells]).astype(np.float64)
        y = self._turn.back(totals * UNIT)
        return y, np.array([cell.count for cell in cells], dtype=np.float64)

    def unlabelled(self, cells: Sequence[Cell]) -> Profiles:
        """Profiles of one cell each, whatever their phrases and sittings."""
        return self.scorer.profiles(*self.sums(cells), np.arange(len(cells)))

    def side(self, cells: Sequence[Sequence[Cell]], labelled: bool) -> Profiles:
        """Profiles of stored sums; without labels, all phrases of a profile are one. Sittings stay apart."""
        # labels cost time: where everybody has one sitting, and no question is about it, there is nothing to tell
        apart = self.has_sittings and (
            SESSION_VIEW in self.bundle.views
            or any(len({cell.sitting for cell in own}) > 1 for own in cells)
        )
        cells = [merge_cells(own, labelled, apart) for own in cells]
        flat = [cell for own in cells for cell in own]
        owner = np.repeat(np.arange(len(cells)), [len(own) for own in cells])
        labels: dict[str, list[str]] = {}
        if labelled:
            labels[PHRASE] = [cell.phrase for cell in flat]
        if apart:
            labels[SESSION_VIEW] = [cell.sitting for cell in flat]
        return self.scorer.profiles(*self.sums(flat), owner, None, labels or None)

    # -- answers -------------------------------------------------------------

    def question(
        self, known: bool = False, spoof: ArrayLike | None = None, spoof_prior: float = 0.5
    ) -> Question:
        """Is it the same in every view?

        spoof, spoof_prior : LLRs of a countermeasure, and the share of spoofs among what is to be rejected
        """
        return Question(
            BOTH if self.has_phrases else SPEAKER,
            known=[PHRASE] if known else None,
            countermeasure=spoof,
            spoof_prior=None if spoof is None else spoof_prior,
        )

    def usual_question(self, spoof: ArrayLike | None = None) -> Question:
        """What most calls come to: phrases are enrolled by name, and known where a deployment knows them."""
        return self.question(isinstance(self.scorer, Deployable) and self.has_phrases, spoof)

    def decisions(self, trials: Sequence[Trial], spoof_prior: float = 0.5) -> list[Decision]:
        """Of tests against one profile each; trials of one kind are scored in one call."""
        kinds: dict[tuple[bool, ...], list[int]] = {}
        for number, (cells, test, spoof, _) in enumerate(trials):
            phrases = {cell.phrase for cell in cells}
            # one enrolled phrase that is claimed needs no labels; labels cost time
            labelled = self.has_phrases and test.phrase != "" and phrases != {test.phrase}
            # unless a deployment knows phrases by their names
            is_named = len(phrases) > 1 or isinstance(self.scorer, Deployable)
            apart = labelled or (self.has_phrases and is_named)
            known = labelled and test.phrase in self.known_phrases
            kind = (labelled, apart, known, spoof is not None)
            kinds.setdefault(kind, []).append(number)
        decisions: dict[int, Decision] = {}
        for (labelled, apart, known, is_spoofed), numbers in kinds.items():
            cells, tests, spoofs, points = zip(*(trials[number] for number in numbers), strict=True)
            question = self.question(known, spoofs if is_spoofed else None, spoof_prior)
            enrolled = self.side(cells, apart)
            heard = self.side([[test] for test in tests], labelled)
            pairs = np.repeat(np.arange(len(numbers)), 2).reshape(-1, 2)
            answer = self.bundle.answer(enrolled, heard, question, pairs)
            decisions |= zip(numbers, decide_each(answer, points), strict=True)
        return [decisions[number] for number in range(len(trials))]

    def speaker_llrs(self, side: Profiles, test: Integers) -> Array:
        """(P,) LLRs that it is the speaker of each profile, whatever was said."""
        answer = self.bundle.answer(side, self.side([[Cell("", test, 1)]], False), VOICE)
        return np.asarray(answer.llr[:, 0], dtype=np.float64)

    def calibrated(self, llrs: Array) -> Array:
        """LLRs of voices by themselves, calibrated as where nothing is known of the words."""
        calibrator = self.bundle.calibration(VOICE)
        if calibrator is None:
            return llrs
        every = possible_hypotheses(self.bundle.views, {})
        logs = {h: llrs if SPEAKER in h else np.zeros_like(llrs) for h in every}
        return VOICE.ratio(self.bundle.views).of(calibrator.transform(logs))

    def consistency(self, cells: Sequence[Cell], new: Cell) -> dict[str, float | None]:
        """How well a new enrolment fits those before it: in its words, and in its voice."""
        if not cells:
            return {"phraseLlr": None, "consistencyLlr": None}
        same = [cell for cell in cells if cell.phrase == new.phrase]
        test = new if same else Cell("", new.total, 1)
        llrs = self.decisions([(same or cells, test, None, NO_POINT)])[0].llrs
        phrase = llrs.get(PHRASE) if same else None
        return {"phraseLlr": phrase, "consistencyLlr": llrs[SPEAKER]}

    # -- operating points ----------------------------------------------------

    def describe(self) -> Json:
        """What GET /v1/model returns of the model itself."""
        calibrators = self.bundle.calibrations or {}
        points = self.bundle.operating_points(self.usual_question())
        return {
            "modelVersion": self.version,
            "extractor": {
                "name": self.extractor_name,
                "fingerprint": getattr(self.extractor, "fingerprint", None),
                "dimension": self.width,
            },
            "views": list(self.bundle.views),
            "calibration": {name: one.describe() for name, one in calibrators.items()},
            "calibrated": self.calibrator is not None,
            "largestLlr": getattr(self.calibrator, "largest_llr", None),
            "operatingPoints": [point_fields(point) for point in points],
            "data": camel_fields(json.loads(json.dumps(self.card, default=str))),
            "knownPhrases": sorted(self.known_phrases.values()),
            "notice": self.notice,
        }


def merge_cells(cells: Sequence[Cell], phrases: bool = False, apart: bool = False) -> list[Cell]:
    """Recordings of a profile as one cell, or as one for each of its phrases, or of its sittings, or of both."""
    if len(cells) == 1:
        return list(cells)
    groups: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        key = (cell.phrase if phrases else "", cell.sitting if apart else "")
        groups.setdefault(key, []).append(cell)
    return [
        Cell(
            phrase, np.sum([one.total for one in own], axis=0), sum(one.count for one in own), where
        )
        for (phrase, where), own in groups.items()
    ]


CARD_FIELDS = {name: to_camel(name) for name in ("held_out", "min_cllr", "deployed_on", "left_out")}
"""Fields of a card; its other keys are names of views, kinds of trials and questions, which stay as they are."""

KINDS = {NONTARGET: "IC"}
"""Kinds of trials of a model of voices alone, where any phrase is a correct one."""


def camel_fields(card: Any) -> Any:
    """Card of a model with the case style of the service."""
    if isinstance(card, list):
        return [camel_fields(value) for value in card]
    if isinstance(card, dict):
        return {CARD_FIELDS.get(name, name): camel_fields(value) for name, value in card.items()}
    return card


def point_fields(point: OperatingPoint) -> Json:
    """An operating point as JSON has it: the false acceptances are those of the worst kind."""
    measured = dict(point.measured or {})
    kinds: dict[str, Sequence[float]] = dict(measured.get("far") or {})
    far, *far_interval = max(kinds.values(), key=lambda rates: rates[0], default=[None])
    frr, *frr_interval = measured.get("frr") or [None]
    return {
        "wantedFar": point.far,
        "threshold": point.threshold,
        "far": far,
        "farInterval": far_interval or None,
        "frr": frr,
        "frrInterval": frr_interval or None,
        "farByKind": {KINDS.get(kind, kind): rates[0] for kind, rates in kinds.items()},
        "people": point.people,
        "basis": point.basis,
    }


def open_model(settings: Settings) -> Model:
    """The model of the settings with its extractors, the default one, or that of the demonstration."""
    if settings.demo:
        extractor = load_extractor(MODEL_FOLDER / "small.onnx", threads=1)
        return Model(load_model(MODEL_FOLDER / "small.safetensors"), extractor, notice=DEMO_NOTICE)
    if settings.model is not None:
        bundle = load_model(settings.model)
        # a model of setup names its extractors; one that names none takes vectors only
        names = list(settings.extractors)
        if not names and bundle.extractor is not None:
            names = extractor_names(bundle.extractor)
        return Model(bundle, load_extractor(names, threads=1) if names else None)
    try:
        extractor = default_extractor(settings.extractors or ())
    except ParameterError as error:
        raise ParameterError(
            f"{error}. Or look at it with a toy: mvplda serve --demo, which MUST NOT DECIDE ABOUT PEOPLE"
        ) from error
    return Model(load_model(DEFAULT_MODEL), extractor)
