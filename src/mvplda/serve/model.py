"""What the service decides by: an extractor, a joint model of voices and phrases, its calibration and its errors."""

from __future__ import annotations

import copy
import hashlib
import json
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from .._typing import Array
from ..bundle import Bundle
from ..exceptions import DataError, FetchError, FileFormatError, ParameterError, UnknownClassWarning
from ..models.multiview import MultiviewPLDA
from ..persistence import fingerprint, load
from ..scoring.profiles import Profiles
from .decisions import Errors
from .keys import rotation

UNIT = 2.0**-32
"""Of stored sums, which are whole numbers: so an enrolment that is taken out leaves nothing behind."""
SPEAKER, PHRASE = "speaker", "phrase"
BOTH = (SPEAKER, PHRASE)
DEFAULTS = Path(__file__).with_name("models")
Mode = Literal["enrolled", "prompted", "sequence"]
"""One recording of an enrolled phrase; one of a phrase that was asked for and is only known from training; several
recordings, each of a phrase that was asked for."""


def slug(text: str) -> str:
    """A phrase as a label: ``my-voice-is-my-key``; case, stress marks and stops do not count."""
    return "-".join(
        "".join(c if c.isalnum() else " " for c in text.casefold().replace("'", "")).split()
    )


@dataclass(frozen=True)
class Calibration:
    """What is believed of what the model says about voices, about words, and about both together beyond that.

    constants : added to the log-likelihoods of TC, TW, IC and IW
    """

    speaker: float = 1.0
    phrase: float = 1.0
    together: float = 1.0
    constants: Sequence[float] = (0.0, 0.0, 0.0, 0.0)

    def __call__(self, evidence: Array) -> Array:
        """(..., 4) log-likelihoods of TC, TW, IC and IW, that of IW being 0."""
        speaker, phrase = self.speaker * evidence[..., 1], self.phrase * evidence[..., 2]
        together = self.together * (evidence[..., 0] - evidence[..., 1] - evidence[..., 2])
        found = np.stack(
            [speaker + phrase + together, speaker, phrase, np.zeros_like(speaker)], axis=-1
        )
        return np.asarray(found + np.asarray(self.constants))


@dataclass(frozen=True)
class Cell:
    """What is kept of a profile's recordings of one phrase: their sum, in whole numbers, and how many they are."""

    phrase: str
    total: NDArray[np.int64]
    count: int

    def __add__(self, other: Cell) -> Cell:
        return Cell(self.phrase, self.total + other.total, self.count + other.count)


@dataclass
class ServiceModel:
    """A joint model as the service uses it: rotated by a key, so that what is stored says nothing without it.

    Parameters
    ----------
    bundle : preprocessing, and a `MultiviewPLDA` of the views speaker and phrase
    extractor : what makes vectors of sound; None: vectors only
    about : calibration by mode, doubt, errors and words about the data, as the file beside the model says
    secret : key of the rotation
    """

    bundle: Bundle
    extractor: Any = None
    about: Mapping[str, Any] = field(default_factory=dict)
    secret: bytes = b""

    def __post_init__(self) -> None:
        scorer = self.bundle.fitted_scorer
        if not isinstance(scorer, MultiviewPLDA) or not set(BOTH) <= set(scorer.views_):
            raise ParameterError(
                f"the service needs a MultiviewPLDA with views {SPEAKER!r} and {PHRASE!r}; got a "
                f"{type(scorer).__name__} with {list(getattr(scorer, 'views_', ()))}"
            )
        if self.extractor is not None:
            self.bundle.check_extractor(self.extractor.name, "the extractor of the service")
            if self.extractor.dimension != self.width:
                raise DataError(
                    f"the model takes vectors of {self.width} numbers, {self.extractor.name} makes "
                    f"{self.extractor.dimension}"
                )
        self.turn = rotation(self.secret, scorer.width_in)
        self.scorer = rotated(scorer, self.turn)
        try:
            self.calibrations = {
                m: Calibration(**found) for m, found in self.about.get("calibration", {}).items()
            }
            dict(self.about.get("far", {}))
            self.errors = {
                m: Errors.from_dict(found) for m, found in self.about.get("errors", {}).items()
            }
        except (TypeError, KeyError, ValueError, AttributeError) as error:
            raise FileFormatError(
                f"what stands beside the model is not as docs/service.md says: {error!r}"
            ) from error
        self.doubt = float(self.about.get("doubt", 0.01))
        self.phrases = {slug(str(name)): str(name) for name in scorer.classes_.get(PHRASE, ())}
        self.texts = {label: label.replace("-", " ") for label in self.phrases}
        self.known = PHRASE in scorer.class_covariances_ and set(self.phrases) == set(
            map(str, scorer.classes_[PHRASE])
        )
        source = self.extractor_name
        state = fingerprint(*self.bundle.get_state())
        mark = hashlib.sha256(
            f"{source} {state} {json.dumps(dict(self.about), sort_keys=True)}".encode()
        ).hexdigest()
        self.version = f"{self.about.get('name', 'model')}-{mark[:12]}"
        self.store_version = hashlib.sha256(self.turn.tobytes() + state.encode()).hexdigest()[:12]

    @property
    def width(self) -> int:
        return int(self.bundle.describe()["bundle"]["width"])

    @property
    def extractor_name(self) -> str | None:
        return self.bundle.extractor if self.extractor is None else str(self.extractor.name)

    @property
    def most(self) -> float:
        """The largest LLR that this model gives."""
        return math.log(3 * (4 - 3 * self.doubt) / (3 * self.doubt))

    def prepare(self, vectors: Any) -> NDArray[np.int64]:
        """(n, D) raw vectors -> what is summed and stored: preprocessed, rotated, in whole numbers."""
        prepared = np.asarray(self.bundle.prepare(self.checked(vectors)), dtype=np.float64)
        return np.rint(prepared @ self.turn.T / UNIT).astype(np.int64)

    def checked(self, vectors: Any) -> Array:
        """(n, D) raw vectors, if they can be such."""
        X = np.asarray(vectors, dtype=np.float64)
        if (
            X.ndim != 2
            or X.shape[1] != self.width
            or not np.isfinite(X).all()
            or not X.any(axis=1).all()
        ):
            raise DataError(
                f"a vector has {self.width} finite numbers, not all of them 0; got shape {X.shape}"
            )
        if np.abs(X).max() > 1e6:
            raise DataError(
                "a number of the vector is beyond a million: this is no vector of the extractor"
            )
        return X

    def profiles(
        self, cells: Sequence[Sequence[Cell]], labelled: bool, ids: Sequence[str] | None = None
    ) -> Profiles:
        """Profiles of stored sums; without labels, all cells of a profile are one."""
        if not labelled:
            cells = [
                [Cell("", np.sum([c.total for c in own], axis=0), sum(c.count for c in own))]
                for own in cells
            ]
        flat = [cell for own in cells for cell in own]
        owner = np.repeat(np.arange(len(cells)), [len(own) for own in cells])
        counts = np.array([cell.count for cell in flat], dtype=np.float64)
        means = np.stack([cell.total for cell in flat]) * UNIT / counts[:, None]
        labels = {PHRASE: [cell.phrase for cell in flat]} if labelled else None
        names = np.arange(len(cells)) if ids is None else np.asarray(ids)
        found = self.scorer.enrol(means, owner, labels)
        place = np.arange(len(flat))
        if labelled:  # cells are sorted by label within a profile
            place = np.lexsort((np.array([cell.phrase for cell in flat]), owner))
        weights = counts[place]
        own_counts = np.bincount(owner, weights=counts).astype(np.int64)
        return replace(
            found, ids=names, y=found.y * weights[:, None], weights=weights, counts=own_counts
        )

    def mode(self, enrolled: Sequence[Cell], wanted: Sequence[str] | None) -> Mode:
        """How a test is to be understood: by what was asked for, None being any of the enrolled phrases."""
        if wanted is None or (len(wanted) == 1 and wanted[0] in {cell.phrase for cell in enrolled}):
            return "enrolled"
        return "prompted" if len(wanted) == 1 else "sequence"

    def evidence(self, enrolled: Sequence[Cell], tests: Sequence[Cell], claimed: bool) -> Array:
        """(4,) calibrated log-likelihoods of TC, TW, IC, IW of a test against a profile, IW being the reference.

        claimed : the tests' phrases are what was asked for; else they say any of the enrolled ones, or another
        """
        mode = self.mode(enrolled, [cell.phrase for cell in tests] if claimed else None)
        return self.calibrations.get(mode, Calibration())(
            self.raw_evidence(enrolled, [tests], claimed)[0]
        )

    def raw_evidence(
        self, enrolled: Sequence[Cell], tests: Sequence[Sequence[Cell]], claimed: bool
    ) -> Array:
        """(n, 4) log-likelihoods as the model says them, of several tests that are understood alike."""
        said, asked = (
            {cell.phrase for cell in enrolled},
            {cell.phrase for test in tests for cell in test},
        )
        # a profile of one phrase that claims it needs no names; names cost time
        labelled = claimed and (len(said) > 1 or not asked <= said or max(map(len, tests)) > 1)
        # a test that claims nothing says any one of several phrases, which stay apart
        sides = self.profiles([enrolled], labelled or len(said) > 1), self.profiles(tests, labelled)
        known = labelled and self.known and bool((asked | said) & set(self.phrases))
        return log_likelihoods(self.scorer, *sides, known=known)[:, 0].T

    def voices(self, enrolled: Sequence[Sequence[Cell]], test: Cell) -> Array:
        """(P, 4) the evidence of one test against several profiles, whatever their words are called."""
        several = any(len(own) > 1 for own in enrolled)
        raw = log_likelihoods(
            self.scorer, self.profiles(enrolled, several), self.profiles([[test]], False)
        )
        return self.calibrations.get("enrolled", Calibration())(raw[:, :, 0].T)

    def describe(self) -> dict[str, Any]:
        """What GET /v1/model says, of the model itself."""
        scorer = self.bundle.fitted_scorer
        views = dict(getattr(scorer, "views_", {}))
        own = self.errors.get("enrolled")
        return {
            "modelVersion": self.version,
            "extractor": {
                "name": self.extractor_name,
                "fingerprint": None if self.extractor is None else self.extractor.fingerprint,
                "dimension": self.width,
            },
            "views": views,
            "calibration": {
                "method": "factors of voice, words and both, by logistic regression"
                if self.calibrations
                else "none",
                "basis": self.about.get("basis"),
                **{mode: vars(calibration) for mode, calibration in self.calibrations.items()},
            },
            "largestLlr": self.most,
            "operatingPoints": [] if own is None else list(own.points),
            "challenges": {
                mode: list(found.points)
                for mode, found in self.errors.items()
                if mode != "enrolled"
            },
            "data": {
                "name": "not said: the file beside the model has no word of it",
                **self.about.get("data", {}),
                "people": None if own is None else own.people,
                "trialsByKind": None if own is None else own.trials,
            },
            "knownPhrases": len(self.phrases) if self.known else 0,
            "notice": self.about.get("notice"),
        }


def rotated(scorer: MultiviewPLDA, turn: Array) -> MultiviewPLDA:
    """The same model of vectors that were turned: every LLR stays as it is."""
    other = copy.copy(scorer)
    other.mean_ = turn @ scorer.mean_
    other.loadings_ = {view: turn @ loading for view, loading in scorer.loadings_.items()}
    noise = scorer.noise_
    full = (turn * noise) @ turn.T if noise.ndim == 1 else turn @ noise @ turn.T
    other.noise_ = (full + full.T) / 2
    for array in (other.mean_, other.noise_, *other.loadings_.values()):
        array.flags.writeable = False  # nothing changes them: scoring need not look each time
    return other


def log_likelihoods(scorer: Any, enrol: Profiles, test: Profiles, *, known: bool = False) -> Array:
    """(4, profiles, tests) log-likelihoods of TC, TW, IC and IW, that of IW being 0."""
    asked: dict[str, Any] = {"known": [PHRASE]} if known else {}
    gaps = []
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", UnknownClassWarning
        )  # a phrase that training did not see is told of elsewhere
        for other in ((SPEAKER,), (PHRASE,), ()):
            priors = {BOTH: 1.0, other: 1.0}
            gaps.append(
                scorer.llr(enrol, test, same=BOTH, priors=priors, dtype=np.float64, **asked)
            )
    tw, ic, iw = map(np.asarray, gaps)
    return np.stack([iw, iw - tw, iw - ic, np.zeros_like(iw)])


def load_model(
    path: str | Path | None,
    extractors: Sequence[str] | None,
    secret: bytes = b"",
    *,
    threads: int = 1,
) -> ServiceModel:
    """The model of a file with its extractors, or the best default whose extractors are here."""
    from ..extractors import load_extractor

    if path is not None:
        place = Path(path)
        extractor = load_extractor(list(extractors), threads=threads) if extractors else None
        return ServiceModel(_bundle(place), extractor, _about(place), secret)
    place = DEFAULTS / "campplus-words.safetensors"
    try:
        extractor = load_extractor(["campplus", "words"], threads=threads)
    except (OSError, FetchError, ParameterError):  # they were not fetched
        place = DEFAULTS / "small.safetensors"
        extractor = load_extractor(DEFAULTS / "small.onnx", threads=threads)
    return ServiceModel(_bundle(place), extractor, _about(place), secret)


def _bundle(path: Path) -> Bundle:
    found = load(path)
    if isinstance(found, MultiviewPLDA):
        return Bundle(None, found)
    if not isinstance(found, Bundle):
        raise FileFormatError(
            f"{path} holds a {type(found).__name__}; the service needs a Bundle or a MultiviewPLDA"
        )
    return found


def _about(path: Path) -> dict[str, Any]:
    """What stands beside a model: calibration, errors, words about its data; without it LLRs are not calibrated."""
    beside = path.with_suffix(".json")
    if not beside.is_file():
        return {
            "name": path.stem,
            "notice": "This model has no calibration for the service: its LLRs are too sure of themselves.",
        }
    found: dict[str, Any] = json.loads(beside.read_text(encoding="utf-8"))
    return found
