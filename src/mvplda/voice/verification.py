"""Verification and identification of recordings with a model and its extractor."""

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
"""One side of a comparison: the path of a sound file, several recordings, or vectors extracted from recordings."""


def find_copies(one: ExtractedVectors, other: ExtractedVectors) -> list[int]:
    """Return the indices of the recordings of the first side that are copies, changed or not, of one on the other side.

    Parameters
    ----------
    one, other : extracted sides; vectors without digests and fingerprints of their recordings have no copies
    """
    digests = {quality.digest for quality in other.qualities if quality.digest}
    copies = [number for number, quality in enumerate(one.qualities) if quality.digest in digests]
    fingerprints = [test.fingerprint for test in other.copy_tests]
    copies += [number for number, test in enumerate(one.copy_tests) if test.is_copy(fingerprints)]
    return sorted(set(copies))


@dataclass(frozen=True)
class Ranking:
    """Result of an identification of a speaker among profiles.

    answer : accept if a profile is identified, reject if the speaker probably has no profile, else inconclusive
    profile : name of the identified profile, or None
    candidates : (name, LLR, probability) of every profile, the most likely first; the outlier
        probability of the calibration does not limit these LLRs
    none : probability that the speaker has no profile
    calibrated : whether the LLRs are calibrated
    point : operating point (thresholds) for this number of profiles, from
        `mvplda.decisions.naming_point`
    """

    answer: Verdict
    profile: str | None
    candidates: list[tuple[str, float, float]]
    none: float
    calibrated: bool
    point: OperatingPoint


@dataclass
class VoiceModel:
    """Model that verifies and identifies recordings: a model of vectors together with their extractor.

    Parameters
    ----------
    bundle : model of vectors with calibration and thresholds
    extractor : extractor of the vectors that the model was trained on
    detector : detector of replays and synthetic voices (spoofs), which `verify` then uses; None: no detection

    Raises
    ------
    DataError
        The model was trained on vectors of another extractor.
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
        """Load a model with its extractors.

        Parameters
        ----------
        path : model file, or folder of `mvplda setup`; None: the default model
        extractors : names or files of extractors; empty: those that the model was trained on
        """
        if path is None:
            extractor = load_extractor(extractors) if extractors else default_extractor()
            return cls(load_model(DEFAULT_MODEL), extractor)
        bundle = load_model(path)
        return cls(bundle, load_extractor(list(extractors) or extractor_names(bundle.extractor)))

    def deployed(self, profiles: ProfileBook) -> VoiceModel:
        """Return a copy adapted to the domain (language, microphones, rooms) of profiles, see `Bundle.deployed`.

        A model that does not adapt is returned unchanged.

        profiles : file of profiles
        """
        if not isinstance(self.bundle.fitted_scorer, Deployable):
            return self
        return replace(self, bundle=self.bundle.deployed(profiles.enrolled(self.bundle)))

    def side(self, recordings: RecordingsLike) -> ExtractedVectors:
        """Extract the vectors of one side of a comparison, with all that `verify` needs of the recordings.

        Parameters
        ----------
        recordings : path of a sound file, several recordings, or an extracted side, which is returned unchanged

        Returns
        -------
        vectors with the quality, fingerprint and, if there is a detector, spoof score of each recording

        Raises
        ------
        AudioError
            A recording cannot be read, or is silent or too short.
        """
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
        """Add the LLR of the detector of spoofs to a question.

        Parameters
        ----------
        question : question about the two sides; None: is every view the same?
        enrolled, tested : the two sides, from `side`

        Returns
        -------
        the question with the LLR; unchanged if there is no detector, or if the question has such an LLR already
        """
        if self.detector is None or (question is not None and question.countermeasure is not None):
            return question
        llr = self.bona_fide_llr(enrolled, tested)
        return replace(question or Question(), countermeasure=llr, spoof_prior=SPOOF_PRIOR)

    def bona_fide_llr(self, enrolled: ExtractedVectors, tested: ExtractedVectors) -> float:
        """Return the LLR that the tested recordings are of a person, against a spoof (a replay or synthetic voice).

        The recording of the test that is most like a spoof decides.

        Parameters
        ----------
        enrolled, tested : the two sides, from `side`; recordings are needed on both

        Raises
        ------
        ParameterError
            The model has no detector.
        DataError
            A side consists of vectors without recordings.
        """
        if self.detector is None:
            raise ParameterError(
                "the model has no detector of spoofs: pass detector=load_spoof_detector() to VoiceModel"
            )
        if not (enrolled.spoof_scores and tested.spoof_scores):
            raise DataError(
                "the detector of spoofs compares recordings, but one side consists of vectors: pass recordings on both "
                "sides"
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

        A model that was not adapted with `deployed` adapts to the recordings of the first side
        (`Bundle.paired`). It then uses the calibration and thresholds for profiles that are alone.

        If recordings of the two sides are copies of each other, changed or not, the verdict is reject with the reason
        suspected_replay. If the model has a detector of spoofs, its LLR is part of the decision, unless the question
        has one.

        Parameters
        ----------
        one, other : enrolled and tested side: path of a sound file, several recordings, or the result of `side`
        question : question to decide; None: is every view the same?
        point_options : options of `mvplda.decisions.point_for`, such as far=0.001; default: the threshold of the model

        Returns
        -------
        verdict with its reason, LLRs, and the qualities of all recordings
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
        """Return the operating point (thresholds and error rates) that `verify` uses for an enrolled side.

        Parameters
        ----------
        enrolled : enrolled side, as `one` in `verify`
        question, point_options : as in `verify`
        """
        profile = single_profile(self.bundle, self.side(enrolled), "0")
        return self.bundle.paired(profile).point(question, profile, **point_options)

    def stricter_far(
        self,
        enrolled: RecordingsLike,
        question: Question | None = None,
        **point_options: float | None,
    ) -> float | None:
        """Return the lowest rate of false acceptances for which the model has an operating point.

        Parameters
        ----------
        enrolled : enrolled side, as `one` in `verify`
        question, point_options : as in `verify`

        Returns
        -------
        rate from 0 to 1; None if no operating point is stricter than that of `verify`
        """
        profile = single_profile(self.bundle, self.side(enrolled), "0")
        bundle = self.bundle.paired(profile)
        points = bundle.operating_points(bundle.informed(question, profile))
        requested = bundle.point(question, profile, **point_options).far
        if requested is None:
            return None
        shares = [point.far for point in points if point.far is not None]
        return min((far for far in shares if far < requested), default=None)

    def identify(
        self,
        test: RecordingsLike,
        profiles: ProfileBook,
        question: Question | None = None,
        *,
        far: float | None = None,
        threshold: float | None = None,
    ) -> Ranking:
        """Find the profile of a recording's speaker, with the model adapted to the domain of the profiles.

        Parameters
        ----------
        test : path of a sound file, several recordings of one person, or the result of `side`
        profiles : file of profiles
        question : question to decide for each profile; None: is the speaker the same?
        far : rate at which people without a profile may be identified as somebody, see
            `mvplda.decisions.naming_point`; None: the default there
        threshold : LLR from which a single profile would be accepted, instead of `far`; it rises with the number of
            profiles

        Returns
        -------
        verdict, and the probability of every profile
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
    """Return the number of recordings of a side, and the seconds of speech in them."""
    return SpeechAmount(len(side.X), sum(quality.speech_s for quality in side.qualities))
