"""Verification and identification of recordings: a model together with its extractor."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from .._typing import PathLike
from ..bundle import Bundle
from ..decisions import Decision, OperatingPoint, Verdict, decide, name_among, naming_point
from ..exceptions import DataError, ParameterError
from ..model_files import load_model
from ..models.deployment import Deployable
from ..scoring.question import Question
from .audio.decode import Source
from .default_model import DEFAULT_MODEL, default_extractor, extractor_names
from .evidence import single_profile, speaker_question
from .extractors.extractor import ExtractedVectors, Extractor, load_extractor
from .fingerprint import CopyTest
from .profile_file import ProfileBook
from .speech_advice import SpeechAmount, speech_advice
from .spoof_detector import SPOOF_PRIOR, SpoofDetector

RecordingsLike = ExtractedVectors | PathLike | Iterable[Source]
"""One side of a comparison: a sound file, several, or vectors extracted from them."""


def find_copies(one: ExtractedVectors, other: ExtractedVectors) -> list[int]:
    """Return the recordings of one side that are copies of a recording of the other, changed or not."""
    digests = {quality.digest for quality in other.qualities if quality.digest}
    copies = [number for number, quality in enumerate(one.qualities) if quality.digest in digests]
    fingerprints = [test.fingerprint for test in other.copy_tests]
    copies += [number for number, test in enumerate(one.copy_tests) if test.is_copy(fingerprints)]
    return sorted(set(copies))


@dataclass(frozen=True)
class Ranking:
    """Result of an identification.

    answer : accept if a profile is named, reject if none of them is more likely, else inconclusive
    profile : name of the identified profile, or None
    candidates : (profile, LLR without outlier probability, probability) of all profiles, the most likely first
    none : probability that the speaker has no profile
    calibrated : whether the LLRs are calibrated
    point : operating point for this number of profiles, see `mvplda.decisions.naming_point`
    """

    answer: Verdict
    profile: str | None
    candidates: list[tuple[str, float, float]]
    none: float
    calibrated: bool
    point: OperatingPoint


@dataclass
class VoiceModel:
    """A model and the extractor of its vectors.

    bundle : the model
    extractor : the extractor that the model was trained on
    detector : detector of spoofs, whose LLR is the countermeasure of `verify`; None: no countermeasure
    """

    bundle: Bundle
    extractor: Extractor
    detector: SpoofDetector | None = None

    def __post_init__(self) -> None:
        self.bundle.check_extractor(self.extractor.name, "the recordings")
        width = self.bundle.width_in
        if self.extractor.dimension != width:
            raise DataError(
                f"the model expects vectors of {width} dimensions; the extractor {self.extractor.name} gives "
                f"{self.extractor.dimension}. Choose the extractor that the model was trained on (-x), or train a "
                "model on vectors of this one (mvplda extract, then mvplda train)"
            )

    @classmethod
    def load(cls, path: PathLike | None = None, extractors: Sequence[str] = ()) -> VoiceModel:
        """Load a model file or folder with its extractors.

        path : model file or folder; None: the default model
        extractors : names or files of extractors; empty: the extractors of the model
        """
        if path is None:
            extractor = load_extractor(extractors) if extractors else default_extractor()
            return cls(load_model(DEFAULT_MODEL), extractor)
        bundle = load_model(path)
        return cls(bundle, load_extractor(list(extractors) or extractor_names(bundle.extractor)))

    def deployed(self, profiles: ProfileBook) -> VoiceModel:
        """Return the model adapted to the domain of the profiles in a file, see `Bundle.deployed`."""
        if not isinstance(self.bundle.fitted_scorer, Deployable):
            return self
        return replace(self, bundle=self.bundle.deployed(profiles.enrolled(self.bundle)))

    def side(self, recordings: RecordingsLike) -> ExtractedVectors:
        """Extract vectors and measure quality; raise an error for a recording that cannot be read."""
        if isinstance(recordings, ExtractedVectors):
            return recordings
        if isinstance(recordings, (str, os.PathLike)):
            recordings = [recordings]
        sources = list(recordings)
        extracted = self.extractor.extract(sources)
        tests = [CopyTest.read(sources[row]) for row in extracted.rows]
        scores = []
        if self.detector is not None:
            scores = [self.detector.raw_score_of(sources[row]) for row in extracted.rows]
        return replace(extracted, copy_tests=tests, spoof_scores=scores)

    def with_countermeasure(
        self, question: Question | None, enrolled: ExtractedVectors, tested: ExtractedVectors
    ) -> Question | None:
        """Return a question with the detector's LLR, unless there is no detector or the question has an LLR."""
        if self.detector is None or (question is not None and question.countermeasure is not None):
            return question
        llr = self.bona_fide_llr(enrolled, tested)
        return replace(question or Question(), countermeasure=llr, spoof_prior=SPOOF_PRIOR)

    def bona_fide_llr(self, enrolled: ExtractedVectors, tested: ExtractedVectors) -> float:
        """Return the detector's LLR of a person against a spoof, for a tested side; see `SpoofDetector.llr`."""
        if self.detector is None:
            raise ParameterError("the model has no detector of spoofs: set detector=")
        if not (enrolled.spoof_scores and tested.spoof_scores):
            raise DataError(
                "the detector of spoofs compares recordings, and a side has vectors only: pass recordings on both sides"
            )
        # one spoof among several recordings suffices
        return self.detector.llr(min(tested.spoof_scores), enrolled.spoof_scores)

    def verify(
        self,
        one: RecordingsLike,
        other: RecordingsLike,
        question: Question | None = None,
        **point_options: float | None,
    ) -> Decision:
        """Decide whether two sides, each of one or more recordings, match.

        If the model is not deployed, the recordings of the first side are the deployment (`Bundle.paired`): they show
        the domain, and calibration and thresholds are those of such comparisons.

        If a recording is a changed copy of one of the other side, the verdict is reject with the reason
        suspected_replay. With a detector, its LLR is the countermeasure, unless the question has one.

        Parameters
        ----------
        one, other : enrolled and tested side: a sound file, several, or the result of `side`
        question : None: the same class in every view
        point_options : options of `mvplda.decisions.point_for`, such as far=0.001; default: the threshold of the model
        """
        sides = [self.side(one), self.side(other)]
        enrolled, tested = (
            single_profile(self.bundle, side, str(i)) for i, side in enumerate(sides)
        )
        bundle = self.bundle.paired(enrolled)
        question = self.with_countermeasure(question, *sides)
        answer = bundle.answer(enrolled, tested, question).take(0, 0)
        qualities = [quality for side in sides for quality in side.qualities]
        point = bundle.point(question, enrolled, **point_options)
        decision = decide(answer, point, quality=qualities)
        if find_copies(*sides):
            return replace(decision, answer="reject", reason="suspected_replay")
        if decision.reason == "not_enough_evidence":
            return replace(decision, advice=speech_advice(*map(_amount_of_speech, sides)))
        return decision

    def point(
        self,
        enrolled: RecordingsLike,
        question: Question | None = None,
        **point_options: float | None,
    ) -> OperatingPoint:
        """Return the operating point that `verify` uses for a profile."""
        profile = single_profile(self.bundle, self.side(enrolled), "0")
        return self.bundle.paired(profile).point(question, profile, **point_options)

    def identify(
        self,
        test: RecordingsLike,
        profiles: ProfileBook,
        question: Question | None = None,
        *,
        far: float | None = None,
        threshold: float | None = None,
    ) -> Ranking:
        """Identify the profile of a recording, with the model adapted to the domain of the profiles.

        question : None: the same speaker?
        far : share of strangers that may be named, see `mvplda.decisions.naming_point`
        threshold : LLR for a single profile, instead of `far`
        """
        side = self.side(test)
        bundle = self.deployed(profiles).bundle
        question = question or speaker_question(bundle)
        enrolled = profiles.enrolled(bundle, with_phrases=False)
        answer = bundle.answer(enrolled, single_profile(bundle, side, "test"), question)
        llrs = answer.inlier_llr[:, 0]
        informed = bundle.informed(question, enrolled)
        outlier_probability = bundle.outlier_probability(informed)
        point = naming_point(
            bundle.operating_points(informed),
            len(enrolled),
            far=far,
            threshold=threshold,
            outlier_probability=outlier_probability,
        )
        naming = name_among(
            llrs,
            point,
            outlier_probability=outlier_probability,
            halves={view: answer.half_llr(view)[:, 0] for view in point.halves},
        )
        names = [str(name) for name in enrolled.ids]
        verdict: Verdict = "reject" if naming.none > 0.5 else "inconclusive"
        profile = None
        if not all(quality.usable for quality in side.qualities):
            verdict = "inconclusive"
        elif naming.best is not None:
            verdict = "accept"
            profile = names[naming.best]
        candidates = [
            (names[i], float(llrs[i]), float(naming.probabilities[i]))
            for i in np.argsort(-llrs, kind="stable")
        ]
        return Ranking(verdict, profile, candidates, naming.none, answer.calibrated, point)


def _amount_of_speech(side: ExtractedVectors) -> SpeechAmount:
    """Return the recordings of a side and the speech in them."""
    return SpeechAmount(len(side.X), sum(quality.speech_s for quality in side.qualities))
