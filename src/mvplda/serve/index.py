"""Identification of a speaker: a fast search chooses candidates among the profiles, and exact LLRs decide."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

import numpy as np
import sqlalchemy as sa
from sqlalchemy import bindparam

from ..decisions import name_among, naming_point
from .cells import Integers
from .keys import Caller
from .model import VOICE, Model
from .profiles import ProfileStore
from .recordings import ProcessedRecording
from .schemas import Candidate, IdentifyReply
from .tables import PROFILES
from .vector_table import VectorTable
from .voice_memory import VoiceMemory

# Number of profiles, those with the best scores of the fast search, whose LLRs are then computed exactly.
CANDIDATE_COUNT = 20
USERS = (
    sa.select(PROFILES.c.id, PROFILES.c.user_id)
    .where(PROFILES.c.state == "enrolled")
    .where(PROFILES.c.id.in_(bindparam("names", expanding=True)))
)


class SpeakerSearch:
    """Identifies the speaker of a recording among all enrolled profiles, or among some of them.

    Parameters
    ----------
    profiles : profiles of the service; the search runs in memory or in PostgreSQL, see the setting ``search``
    """

    def __init__(self, profiles: ProfileStore) -> None:
        self.profiles = profiles
        self.settings = profiles.settings
        self.search: VoiceMemory | VectorTable
        if self.settings.search == "pgvector":
            self.search = VectorTable(profiles)
        else:
            self.search = VoiceMemory(profiles)

    def warm(self) -> None:
        """Adapt the model to its domain and run one search, so that the first request need not load all voices."""
        with self.profiles.store.read() as work:
            model = self.profiles.domain.deployed(work)
        if self.settings.role != "verify":
            self.search.scores(np.ones(model.rank, dtype=np.int64), None, CANDIDATE_COUNT)

    def identify(
        self,
        recording: ProcessedRecording,
        candidates: Sequence[str] | None,
        top: int,
        prior_none: float,
        caller: Caller,
    ) -> IdentifyReply:
        """Identify the speaker of a recording, and write the result to the audit.

        Parameters
        ----------
        recording : processed recording; one that cannot be used is answered with its reason and no candidates
        candidates : ids of the profiles to choose from; None: all enrolled profiles
        top : largest number of profiles in the reply
        prior_none : prior probability that the speaker owns none of the profiles to choose from
        caller : owner of the API key; with the role verify, the reply names the identified person only

        Returns
        -------
        the most probable profiles, the identified one, and the probability that the speaker owns none of the profiles
        """
        model = self.profiles.model
        reply = IdentifyReply(
            resultId=secrets.token_hex(16),
            candidates=[],
            identified=None,
            noneOfThem=1.0,
            profilesCount=0,
            reason=recording.reason,
            quality=recording.quality,
            modelVersion=model.version,
            notice=model.notice,
        )
        if recording.reason is None and recording.vector is not None:
            test = model.contributions(recording.vector[None])[0]
            self._rank(reply, test, candidates, top, prior_none)
        if not caller.may("enrol"):
            # otherwise a key of the role verify could list all names by asking for many candidates
            for candidate in reply.candidates:
                if candidate.profileId != reply.identified:
                    candidate.userId = None
        detail = reply.model_dump(include={"identified", "noneOfThem", "profilesCount", "reason"})
        with self.profiles.store.write(caller) as work:
            work.note("identify", None, reply.resultId, **detail)
        return reply

    def _rank(
        self,
        reply: IdentifyReply,
        test: Integers,
        candidates: Sequence[str] | None,
        top: int,
        prior_none: float,
    ) -> None:
        """Search for the speaker, and set the result in `reply`: candidates, identified profile and ``noneOfThem``.

        test : (rank,) evidence of the recording in whole numbers, see `Model.contributions`
        """
        exact_count = max(top, CANDIDATE_COUNT)
        model, names, llrs = self.search.scores(test, candidates, exact_count)
        count = int(np.isfinite(llrs).sum())
        best = np.arange(len(names))
        if exact_count < len(names):
            best = np.argpartition(-llrs, exact_count)[:exact_count]
        best = best[np.isfinite(llrs[best])].tolist()
        row_of = {names[row]: row for row in best}
        users, exact = self._exact(model, list(row_of), test)
        rows = [row_of[name] for name in exact]
        exact_llrs = np.array([*exact.values()])
        if rows:
            # phrases and sessions shift all LLRs of the fast search by about the same amount
            llrs += np.median(exact_llrs - llrs[rows])
        # profiles that were deleted after the search have no exact LLR
        llrs[best] = -np.inf
        llrs[rows] = exact_llrs
        points = model.bundle.operating_points(VOICE)
        outlier_probability = model.bundle.outlier_probability(VOICE)
        point = naming_point(
            points, count, far=self.settings.far, outlier_probability=outlier_probability
        )
        naming = name_among(
            llrs,
            point,
            none=prior_none,
            count=count,
            outlier_probability=outlier_probability,
        )
        reply.identified = None if naming.best is None else names[naming.best]
        reply.noneOfThem = float(naming.none)
        reply.profilesCount = count
        reply.candidates = [
            Candidate(
                profileId=name,
                userId=users[name],
                llr=float(llrs[row_of[name]]),
                probability=float(naming.probabilities[row_of[name]]),
            )
            for name in sorted(exact, key=lambda name: -llrs[row_of[name]])[:top]
        ]

    def _exact(
        self, model: Model, names: list[str], test: Integers
    ) -> tuple[dict[str, str | None], dict[str, float]]:
        """Score a few profiles exactly, with separate sums per phrase and session.

        Parameters
        ----------
        model : model, adapted to its domain
        names : ids of the profiles
        test : (rank,) evidence of the recording in whole numbers

        Returns
        -------
        {profile id: userId} and {profile id: LLR of the same speaker}, without profiles that cannot be read
        """
        with self.profiles.store.read() as work:
            cells = self.profiles.templates.cells_by_profile(work, names)
            rows = work.run(USERS, names=list(cells))
            users = {row.id: row.user_id for row in rows}
        if not users:
            return {}, {}
        enrolled = [cells[name] for name in users]
        is_labelled = model.has_phrases and any(len(members) > 1 for members in enrolled)
        llrs = model.speaker_llrs(model.side(enrolled, is_labelled), test)
        return users, dict(zip(users, llrs.tolist(), strict=True))
