"""What the service decides by: a bundle of any scorer, its extractors, and the rotation of what is stored."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._typing import Array
from ..bundle import Bundle
from ..calibration import Answer, question_key
from ..decisions import OperatingPoint, point_for
from ..exceptions import DataError, ParameterError
from ..persistence import fingerprint
from ..scoring.profiles import Profiles
from ..scoring.question import Question
from ..voices import (
    DEFAULT_EXTRACTORS,
    DEFAULT_MODEL,
    default_extractor,
    extractor_names,
)
from ..voices import load_model as load_file
from .keys import rotation
from .records import slug
from .settings import Settings
from .templates import Cell

UNIT = 2.0**-32
"""Of stored sums, which are whole numbers: an enrolment that is taken out leaves nothing behind."""
LARGEST = 2.0**28
"""Evidence beyond this is refused: sums of thousands stay within 64 bits."""
DEFAULT_FAR = 0.01
"""False acceptances where neither the settings nor the model name a share."""
SPEAKER = "speaker"
PHRASE = "phrase"
BOTH = (SPEAKER, PHRASE)
KIND_OF = {BOTH: "TC", (SPEAKER,): "TW", (PHRASE,): "IC", (): "IW"}
"""Hypotheses by what is shared, and what they are called: the owner (T) or another (I), correct or wrong words."""
DEFAULTS = Path(__file__).with_name("models")
DEMO_MODEL = DEFAULTS / "small.safetensors"
DEMO_NETWORK = DEFAULTS / "small.onnx"
DEMO_NOTICE = (
    "DEMONSTRATION ONLY: a toy network listens here, which was trained on synthetic voices. It must not decide about "
    "people: it accepts most strangers."
)
NOT_CALIBRATED = "This model has no calibration for what the service asks: its LLRs and probabilities are too large."


class Model:
    """A bundle as the service uses it.

    What is stored are sums of `evidence`, rotated by a secret and rounded to whole numbers. Scores are made of the same
    sums, rotated back: no scorer has to support the rotation.

    Parameters
    ----------
    bundle : any scorer with the view ``speaker``, with ``phrase`` or without
    extractor : makes vectors of sound; None: vectors only
    secret : of the rotation; empty: none
    notice : a warning that is shown with every answer
    """

    def __init__(
        self,
        bundle: Bundle,
        extractor: Any = None,
        secret: bytes = b"",
        notice: str | None = None,
    ) -> None:
        self.bundle = bundle
        self.extractor = extractor
        self.scorer = bundle.fitted_scorer
        if SPEAKER not in bundle.views:
            raise ParameterError(
                f"the service needs a model with a view {SPEAKER!r}; got one with {list(bundle.views)}"
            )
        self.has_phrases = PHRASE in bundle.views
        self.width = bundle.width_in
        if extractor is not None:
            bundle.check_extractor(extractor.name, "the extractor of the service")
            if extractor.dimension != self.width:
                raise DataError(
                    f"the model takes vectors of {self.width} numbers, {extractor.name} makes "
                    f"{extractor.dimension}"
                )
        self.card: Mapping[str, Any] = dict(bundle.card or {})
        self.fingerprint = fingerprint(*bundle.get_state())[:16]
        mark = hashlib.sha256(f"{self.extractor_name} {self.fingerprint}".encode()).hexdigest()
        self.version = f"{self.card.get('name', 'model')}-{mark[:12]}"
        self.notice = notice or self.card.get("notice") or self._uncalibrated()
        self.rank = int(np.shape(self.scorer.evidence(np.ones((1, self.scorer.width_in))))[1])
        self.set_secret(secret)

    def set_secret(self, secret: bytes) -> None:
        self._turn = rotation(secret, self.rank)

    @property
    def has_domain(self) -> bool:
        """Whether what is enrolled changes how the model scores."""
        return self.scorer.has_domain

    def deployed(self, people: Sequence[Sequence[Cell]]) -> Model:
        """The model in the domain of some people's stored sums; of nobody's: as it knows domains from training."""
        if not self.has_domain or not people:
            return self
        side = self.side(people, self.has_phrases)
        other = copy(self)
        other.bundle = self.bundle.deployed(side)
        other.scorer = other.bundle.fitted_scorer
        return other

    def _uncalibrated(self) -> str | None:
        key = question_key(self.question(), self.bundle.views)
        return None if key in (self.bundle.calibrations or {}) else NOT_CALIBRATED

    @property
    def extractor_name(self) -> str | None:
        return self.bundle.extractor if self.extractor is None else str(self.extractor.name)

    # -- vectors and sums ----------------------------------------------------

    def checked(self, vectors: Any) -> Array:
        """(n, D) raw vectors, if they can be such."""
        X = np.asarray(vectors, dtype=np.float64)
        if X.ndim != 2 or X.shape[1] != self.width:
            raise DataError(f"a vector has {self.width} numbers; got shape {X.shape}")
        if not np.isfinite(X).all() or not X.any(axis=1).all():
            raise DataError("a vector has finite numbers, not all of them 0")
        if np.abs(X).max() > 1e6:
            raise DataError("a number of the vector is beyond a million: no extractor makes such")
        return X

    def share(self, vectors: Any) -> NDArray[np.int64]:
        """(n, r) what raw vectors add to stored sums: evidence, rotated, in whole numbers."""
        prepared = np.asarray(self.bundle.prepare(self.checked(vectors)), dtype=np.float64)
        y = np.asarray(self.scorer.evidence(prepared), dtype=np.float64)
        if not np.isfinite(y).all() or np.abs(y).max() > LARGEST:
            raise DataError("the vector is unlike all that the model was trained on")
        return np.rint(y @ self._turn.T / UNIT).astype(np.int64)

    def sums(self, totals: Sequence[NDArray[np.int64]]) -> Array:
        """(n, r) stored sums as the scorer has them."""
        return np.asarray(np.stack(totals) * UNIT @ self._turn)

    def side(
        self, cells: Sequence[Sequence[Cell]], labelled: bool, ids: Sequence[str] | None = None
    ) -> Profiles:
        """Profiles of stored sums; without labels, all cells of a profile are one."""
        if not labelled:
            cells = [[whole(own)] for own in cells]
        flat = [cell for own in cells for cell in own]
        owner = np.repeat(np.arange(len(cells)), [len(own) for own in cells])
        weights = np.array([cell.count for cell in flat], dtype=np.float64)
        labels = {PHRASE: [cell.phrase for cell in flat]} if labelled else None
        y = self.sums([cell.total for cell in flat])
        return self.scorer.profiles(y, weights, owner, ids, labels)

    def side_of_sums(self, y: Array, weights: Array, ids: Sequence[str]) -> Profiles:
        """Profiles of one cell each, of sums as the scorer has them."""
        return self.scorer.profiles(y, weights, np.arange(len(y)), ids)

    # -- answers -------------------------------------------------------------

    def question(
        self,
        known: bool = False,
        weights: Mapping[str, float] | None = None,
        countermeasure: float | None = None,
    ) -> Question:
        """Is it the same in every view?

        weights : of the kinds to be rejected, see `Settings`
        """
        options: dict[str, Any] = {"same": BOTH if self.has_phrases else SPEAKER}
        if known:
            options["known"] = [PHRASE]
        if weights is not None and self.has_phrases and not even(weights):
            options["priors"] = {BOTH: 1.0, (SPEAKER,): weights["TW"]}
            options["priors"] |= {(PHRASE,): weights["IC"], (): weights["IW"]}
        if countermeasure is not None:
            options["countermeasure"] = countermeasure
            share = 0.5 if weights is None else weights["spoof"] / sum(weights.values())
            options["spoof_prior"] = share
        return Question(**options)

    def answer(self, cells: Sequence[Cell], test: Cell, **options: Any) -> Answer:
        """Of one test against one profile.

        test : its phrase is the one that was asked for; empty: any of the enrolled ones
        options : for `question`
        """
        phrases = {cell.phrase for cell in cells}
        claimed = test.phrase != ""
        # one enrolled phrase that is claimed needs no labels; labels cost time
        labelled = self.has_phrases and claimed and phrases != {test.phrase}
        several = self.has_phrases and len(phrases) > 1
        enrolled = self.side([cells], labelled or several)
        known = labelled and self.offers_known and test.phrase in self.training_phrases
        question = self.question(known, **options)
        return self.bundle.answer(enrolled, self.side([[test]], labelled), question).take(0, 0)

    def voices(self, side: Profiles, test: NDArray[np.int64]) -> Array:
        """(P,) LLRs that it is the speaker of each profile, whatever was said."""
        question = Question(same=SPEAKER)
        answer = self.bundle.answer(side, self.side([[Cell("", test, 1)]], False), question)
        return np.asarray(answer.llr[:, 0], dtype=np.float64)

    def consistency(self, cells: Sequence[Cell], new: Cell) -> dict[str, float | None]:
        """How well a new enrolment fits those before it: in its words, and in its voice."""
        if not cells:
            return {"phraseLlr": None, "consistencyLlr": None}
        same = [cell for cell in cells if cell.phrase == new.phrase]
        test = new if same else Cell("", new.total, new.count)
        answer = self.answer(same or cells, test)
        phrase = None
        if same and self.has_phrases:
            phrase = float(answer.llr_of(PHRASE))
        return {"phraseLlr": phrase, "consistencyLlr": float(answer.llr_of(SPEAKER))}

    # -- operating points ----------------------------------------------------

    def point(
        self, question: Question, even_kinds: bool, far: float | None, **costs: Any
    ) -> OperatingPoint:
        """The operating point of a question.

        Points were measured without spoofs, with as many trials of each kind: for other mixtures they do not hold.
        """
        points: Sequence[OperatingPoint] = ()
        if even_kinds and question.countermeasure is None:
            points = self.bundle.operating_points(question)
        calibrator = (self.bundle.calibrations or {}).get(question_key(question, self.bundle.views))
        limit = {} if calibrator is None else {"largest_llr": calibrator.largest_llr}
        return point_for(points, far=far, **costs, **limit)

    @property
    def training_phrases(self) -> dict[str, str]:
        """{label: text} of phrases whose class the scorer has from training."""
        classes = getattr(self.scorer, "classes_", None) or {}
        names = [str(name) for name in classes.get(PHRASE, ())]
        return {name: name.replace("-", " ") for name in names if slug(name) == name}

    @property
    def offers_known(self) -> bool:
        """Whether errors were measured for phrases that are known from training alone."""
        return self.has_phrases and bool(self.bundle.operating_points(self.question(known=True)))

    @property
    def known_phrases(self) -> dict[str, str]:
        """Phrases that may be asked for without an enrolment."""
        return self.training_phrases if self.offers_known else {}

    def describe(self) -> dict[str, Any]:
        """What GET /v1/model returns of the model itself."""
        question = self.question()
        key = question_key(question, self.bundle.views)
        calibrators = self.bundle.calibrations or {}
        points = [point_fields(point) for point in self.bundle.operating_points(question)]
        largest = calibrators[key].largest_llr if key in calibrators else None
        mark = None if self.extractor is None else self.extractor.fingerprint
        return {
            "modelVersion": self.version,
            "extractor": {
                "name": self.extractor_name,
                "fingerprint": mark,
                "dimension": self.width,
            },
            "views": list(self.bundle.views),
            "calibration": {name: one.describe() for name, one in calibrators.items()},
            "calibrated": key in calibrators,
            "largestLlr": largest,
            "operatingPoints": points,
            "data": json.loads(json.dumps(dict(self.card), default=str)),
            "knownPhrases": len(self.known_phrases),
            "notice": self.notice,
        }


def even(weights: Mapping[str, float]) -> bool:
    """Whether the kinds that are no spoofs weigh the same."""
    return len({weights[kind] for kind in ("TW", "IC", "IW")}) == 1


def whole(cells: Sequence[Cell]) -> Cell:
    """All recordings of a profile as one cell."""
    if len(cells) == 1:
        return cells[0]
    total = np.sum([cell.total for cell in cells], axis=0)
    return Cell("", total, sum(cell.count for cell in cells))


def point_fields(point: OperatingPoint) -> dict[str, Any]:
    """An operating point as JSON has it: the false acceptances are those of the worst kind."""
    measured = dict(point.measured or {})
    kinds: dict[str, Sequence[float]] = dict(measured.get("far") or {})
    worst = max(kinds.values(), key=lambda rates: rates[0], default=None)
    frr = measured.get("frr")
    return {
        "wantedFar": point.far,
        "threshold": point.threshold,
        "far": None if worst is None else worst[0],
        "farInterval": None if worst is None else list(worst[1:]),
        "frr": None if frr is None else frr[0],
        "frrInterval": None if frr is None else list(frr[1:]),
        "farByKind": {kind: rates[0] for kind, rates in kinds.items()},
        "people": point.people,
        "basis": point.basis,
    }


# -- files -------------------------------------------------------------------------------


def load_model(settings: Settings, secret: bytes = b"", *, threads: int = 1) -> Model:
    """The model of the settings with its extractors, the default one, or that of the demonstration."""
    from ..extractors import load_extractor

    if settings.demo:
        extractor = load_extractor(DEMO_NETWORK, threads=threads)
        return Model(load_file(DEMO_MODEL), extractor, secret, DEMO_NOTICE)
    if settings.model is not None:
        bundle = load_file(settings.model)
        # a model of setup names its extractors; one that names none takes vectors only
        names = list(settings.extractors)
        if not names and bundle.extractor is not None:
            names = extractor_names(bundle.extractor)
        chosen = load_extractor(names, threads=threads) if names else None
        return Model(bundle, chosen, secret)
    wanted = settings.extractors or DEFAULT_EXTRACTORS
    try:
        extractor = default_extractor(wanted, threads=threads)
    except ParameterError as error:
        raise ParameterError(
            f"{error}. Or look at it with a toy: mvplda serve --demo, which MUST NOT DECIDE ABOUT PEOPLE"
        ) from error
    return Model(load_file(DEFAULT_MODEL), extractor, secret)
