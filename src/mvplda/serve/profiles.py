"""Profiles of people: creation with consent, enrolment and removal of recordings, and erasure."""

from __future__ import annotations

import json
import secrets
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import bindparam

from .._typing import Json
from .audit import audit_detail, audit_entry
from .cells import Cell
from .challenges import close_challenge
from .database import RowHeld
from .domain import CHANGE_NUMBER, DomainCache
from .idempotency import DELETE_ANSWERS
from .marks import Marks
from .model import Consistency, Model, label_of
from .recordings import ProcessedRecording
from .schemas import (
    Consent,
    DamagedProfile,
    EnrolReply,
    Export,
    Problem,
    ProfilePage,
    ProfileReply,
    State,
    StoredEnrolment,
)
from .store import DATABASE_TIME, DAY, Transaction
from .tables import (
    AUDIT,
    DATA_KEYS,
    ENROLMENTS,
    PROFILES,
    AuditRow,
    ProfileRow,
    user_name,
)
from .templates import Templates
from .times import iso, optional_iso, stored_iso

# Columns of a profile without recordings.
EMPTY_COLUMNS: Mapping[str, object] = {
    "state": "created",
    "enrollments": 0,
    "speech_s": 0.0,
    "model": None,
    "model_version": None,
    "last_used": None,
}
STORED = (
    "Numbers computed from your recordings, encrypted and rotated by a secret key; where vectorKept is true, also the "
    "encrypted vector of the extractor. For some days an encrypted fingerprint of each recording, which detects "
    "copies. With the detector, its score of each recording. No sound."
)
STORED_FOR_SEARCH = (
    " Numbers by which the database searches for a voice: rotated, and not encrypted."
)
# The last character of Unicode, which follows all characters of names in the order of an index.
LAST_CHARACTER = "\U0010ffff"
# Seconds after the previous recording from which a recording without a session name begins a new session.
SESSION_S = 3600.0
REFUSED = "refuse-enrolment"
# Sentences for the reason codes of a refused recording. The sentence about an unreadable file comes from its decoder.
SENTENCES = {
    "not_enough_speech": "The recording has too little speech: say the whole phrase, or choose a longer one.",
    "too_quiet": "The recording is nearly silent: come nearer to the microphone.",
    "no_speech": "The recording contains no speech: say the phrase after the recording has begun.",
    "clipped": "The recording is too loud and therefore distorted: step back, or turn the microphone down.",
    "too_noisy": "The recording has too much noise around the speech: come nearer to the microphone, or find a quieter "
    "place.",
    "wrong_phrase": "The phrase differs from the one in the earlier recordings: say it again. If it was right, the "
    "first recording may be the bad one.",
    "wrong_speaker": "The voice differs from the one in the earlier recordings: the same person must say all of them.",
    "suspected_replay": "This recording, or a changed copy of it, was sent before: make a new recording.",
}

# -- statements --------------------------------------------------------------------------

BY_ID = sa.select(PROFILES).where(PROFILES.c.id == bindparam("name"))
EXISTING = sa.select(PROFILES.c.id).where(PROFILES.c.id.in_(bindparam("names", expanding=True)))
LAST_CHANGE = CHANGE_NUMBER.scalar_subquery().label("last_change")
# rows that another connection has locked are left out, so that no call waits; SQLite locks the whole database
LOCKED = (
    sa.select(PROFILES, LAST_CHANGE)
    .where(PROFILES.c.id.in_(bindparam("names", expanding=True)))
    .order_by(PROFILES.c.id)
    .with_for_update(skip_locked=True)
)
LOCKED_WITH_TIME = LOCKED.add_columns(DATABASE_TIME.label("now"))
SET_KEY = (
    DATA_KEYS.update()
    .where(DATA_KEYS.c.profile == bindparam("name"))
    .values(wrapped=bindparam("key"))
)
UPDATE_PROFILE = PROFILES.update().where(PROFILES.c.id == bindparam("profile_id"))
PHRASES_OF = sa.select(ENROLMENTS.c.profile, ENROLMENTS.c.phrase).where(
    ENROLMENTS.c.profile.in_(bindparam("names", expanding=True))
)
LAST_SESSION = (
    sa.select(ENROLMENTS.c.session, ENROLMENTS.c.created)
    .where(ENROLMENTS.c.profile == bindparam("name"))
    .order_by(ENROLMENTS.c.number.desc())
    .limit(1)
)
DELETE_ENROLMENT = (
    ENROLMENTS.delete()
    .where(ENROLMENTS.c.profile == bindparam("name"))
    .where(ENROLMENTS.c.number == bindparam("number"))
)
AUDIT_OF = sa.select(AUDIT).where(AUDIT.c.profile == bindparam("name")).order_by(AUDIT.c.id)
LAST_AUDIT = (
    sa.select(AUDIT)
    .where(AUDIT.c.profile == bindparam("name"))
    .order_by(AUDIT.c.id.desc())
    .limit(1)
)


class ProfileStore:
    """Operations on the stored profiles and their recordings; methods with an argument `work` run in that transaction.

    Parameters
    ----------
    templates : encrypted voice templates of the profiles
    model : model that computes and compares templates
    """

    def __init__(self, templates: Templates, model: Model) -> None:
        self.store = templates.store
        self.templates = templates
        self.settings = templates.settings
        self.model = model
        self.domain = DomainCache(model, templates)
        self.marks = Marks(templates)

    # -- rows ----------------------------------------------------------------

    def row(self, work: Transaction, name: str) -> ProfileRow:
        """Return the profile with the id `name`; raise a `Problem` if it does not exist (404) or was deleted (410)."""
        return self.checked(work.first(ProfileRow, BY_ID, name=name))

    def locked(self, work: Transaction, names: Sequence[str]) -> dict[str, ProfileRow]:
        """Lock the profiles with the ids `names` until the end of the transaction.

        Returns
        -------
        {id: row of the profile}, without profiles that do not exist or that another connection has locked. The field
        ``last_change`` of the rows is set
        """
        query = LOCKED
        if self.store.clock is None:
            # the time of the database comes in the same answer, which saves a query
            query = LOCKED_WITH_TIME
        rows = work.run(query, names=list(names)).all()
        if rows and self.store.clock is None:
            work.now = float(rows[0].now)
        width = len(LOCKED.selected_columns)
        profiles = [ProfileRow(*tuple(row)[:width]) for row in rows]
        return {profile.id: profile for profile in profiles}

    def check_damage(self, row: ProfileRow) -> None:
        """Raise `DamagedProfile` if a profile is marked as damaged, or has values that the service never writes."""
        if row.damaged is not None:
            raise DamagedProfile("found earlier")
        columns = row.damaged_columns()
        if columns:
            raise self.templates.damage(row.id, columns[0])

    def locked_one(self, work: Transaction, name: str) -> ProfileRow:
        """Lock the profile with the id `name` and return it.

        Raises
        ------
        RowHeld : if another connection has locked it
        Problem : 404 if it does not exist, 410 if it was deleted
        """
        row = self.locked(work, [name]).get(name)
        if row is None and self.existing(work, [name]):
            raise RowHeld
        return self.checked(row)

    def existing(self, work: Transaction, names: Sequence[str]) -> set[str]:
        """Return those ids of `names` for which a profile exists, deleted or not."""
        return set(work.run(EXISTING, names=list(names)).scalars())

    def checked(self, row: ProfileRow | None) -> ProfileRow:
        """Return `row`; raise a `Problem` if it is None (404), or if the profile was deleted (410)."""
        if row is None:
            raise Problem(404, "not-found", "no profile has this id: check the profileId")
        if row.state == "deleted":
            self.templates.forget(row.id)
            raise Problem(410, "deleted", f"the profile was deleted at {stored_iso(row.updated)}")
        return row

    def state(self, work: Transaction, row: ProfileRow) -> State:
        """Return the present state of a profile, which may differ from the stored one.

        It is "damaged" if the profile's data cannot be read, "expired" if the profile was not used for ``expire_days``
        days, "stale" if another model computed its templates, and otherwise the stored state.
        """
        if row.state in ("opted_out", "deleted"):
            return row.state
        if row.damaged is not None or row.damaged_columns():
            return "damaged"
        if row.state not in ("enrolling", "enrolled"):
            return row.state
        if work.now > self._expires(row):
            return "expired"
        if row.model != self.model.fingerprint:
            return "stale"
        return row.state

    def _expires(self, row: ProfileRow) -> float:
        """Return the time at which a profile expires if it is not used, in seconds since 1970."""
        return (row.last_used or row.created) + self.settings.expire_days * DAY

    def texts(self, row: ProfileRow) -> dict[str, str]:
        """Return {label: text} of the phrases of a profile; raise `DamagedProfile` if they cannot be read."""
        try:
            return row.texts()
        except ValueError as error:
            raise self.templates.damage(row.id, "phrases") from error

    def update(self, work: Transaction, row: ProfileRow, **values: object) -> None:
        """Set columns of a profile, in `row` and in the database.

        The version of the profile increases, so that its cached sums are read again. The profile also gets a new change
        number, by which the search for voices notices the change.
        """
        values |= {"version": row.version + 1, "updated": work.now}
        for column, value in values.items():
            setattr(row, column, value)
        work.changed.add(row.id)
        work.run(UPDATE_PROFILE, profile_id=row.id, **values)

    def describe(self, work: Transaction, *rows: ProfileRow) -> list[ProfileReply]:
        """Return the description of each profile with the field names of the API, without vectors."""
        recordings = work.run(PHRASES_OF, names=[row.id for row in rows])
        counts = Counter((recording.profile, recording.phrase) for recording in recordings)
        return [self._reply(work, row, counts) for row in rows]

    def _reply(
        self, work: Transaction, row: ProfileRow, counts: Counter[tuple[str, str]]
    ) -> ProfileReply:
        """Return the description of a profile.

        counts : number of recordings per (profile id, label of the phrase)
        """
        state = self.state(work, row)
        required = self.settings.enrolments
        remaining = {}
        texts: dict[str, str] = {}
        try:
            texts = self.texts(row)
        except DamagedProfile:
            state = "damaged"
        row = row.repaired()
        for label, text in texts.items():
            remaining[text] = max(0, required - counts[row.id, label])
        locked = row.locked_until
        if locked is not None and locked < work.now:
            locked = None
        expires = self._expires(row) if state in ("enrolling", "enrolled", "stale") else None
        return ProfileReply(
            profileId=row.id,
            userId=row.user_id,
            state=state,
            phrases=list(remaining),
            enrollmentsCount=row.enrollments,
            remainingEnrollmentsCount=min(remaining.values(), default=required),
            remainingByPhrase=remaining,
            speechLength=round(row.speech_s, 3),
            modelVersion=row.model_version,
            created=iso(row.created),
            updated=iso(row.updated),
            lastUsed=optional_iso(row.last_used),
            expires=optional_iso(expires),
            lockedUntil=optional_iso(locked),
        )

    def _settle(
        self,
        work: Transaction,
        row: ProfileRow,
        action: str,
        detail: Mapping[str, object],
        **values: object,
    ) -> ProfileReply:
        """Update the row of a profile after its recordings have changed, add an audit entry, and return the profile.

        State, number of recordings and seconds of speech are computed from the stored recordings.

        action, detail : action and further fields of the audit entry
        values : further columns to set; they override the computed ones
        """
        recordings = self.templates.enrolments(work, row.id)
        per_phrase = Counter(recording.phrase for recording in recordings)
        largest = max(per_phrase.values(), default=0)
        state = "created"
        if largest:
            state = "enrolled" if largest >= self.settings.enrolments else "enrolling"
        columns: dict[str, object] = {
            "state": state,
            "enrollments": len(recordings),
            "speech_s": sum(recording.speech_s for recording in recordings),
        }
        self.update(work, row, **columns | values)
        work.note(action, row.id, None, **detail)
        return self.describe(work, row)[0]

    def _model_columns(self) -> dict[str, object]:
        """Return {column: value} of the two columns that name the model by which templates are computed."""
        return {"model": self.model.fingerprint, "model_version": self.model.version}

    # -- creation and erasure ------------------------------------------------

    def create(
        self, work: Transaction, user: str | None, phrase: str | None, consent: Consent
    ) -> ProfileReply:
        """Create an empty profile with its own data key.

        Parameters
        ----------
        user : name of the person, the userId; None: no name is stored
        phrase : phrase to be enrolled; None: the phrase of the first recording
        consent : text that the person agreed to

        Raises
        ------
        Problem : 422 if consent is not given
        """
        if not consent.given:
            detail = "no data of a person are stored without consent: expected consent.given to be true; got false"
            raise Problem(422, "no-consent", detail)
        name = secrets.token_hex(16)
        wrapped = self.templates.wrap(work, secrets.token_bytes(32), name)
        with self.store.keys(work) as keys:
            keys.run(DATA_KEYS.insert(), profile=name, wrapped=wrapped)
        columns: dict[str, object] = {
            "id": name,
            "user_id": user,
            "phrases": json.dumps({label_of(phrase): phrase} if phrase else {}),
            "consent": json.dumps({**consent.model_dump(), "at": iso(work.now)}),
            "version": 1,
            "next_number": 1,
            "failures": 0,
            "created": work.now,
            "updated": work.now,
            **EMPTY_COLUMNS,
        }
        work.run(PROFILES.insert(), **columns)
        work.changed.add(name)
        work.note("create", name)
        return self.describe(work, self.row(work, name))[0]

    def erase(self, work: Transaction, name: str, state: str) -> ProfileReply:
        """Destroy the data key and the recordings of a profile, whatever its state, and return the profile.

        state : new state: "opted_out" keeps name and consent; "deleted" erases them too
        """
        damaged_row = self.locked_one(work, name)
        row = damaged_row.repaired()
        # the data key first: then nothing can be decrypted, even if the rest fails
        self.store.destroy_key(name, work)
        self.templates.wipe(work, name)
        close_challenge(work, name)
        work.run(DELETE_ANSWERS, name=name)
        values: dict[str, object] = {
            column: getattr(row, column) for column in damaged_row.damaged_columns()
        }
        values |= {**EMPTY_COLUMNS, "state": state, "phrases": "{}"}
        if state == "deleted":
            values |= {"user_id": None, "consent": None}
        action = "delete" if state == "deleted" else "opt-out"
        return self._settle(work, row, action, {}, **values)

    def export(self, work: Transaction, name: str) -> Export:
        """Return all stored data of a profile in readable form, without vectors, and write an audit entry about it."""
        row = self.row(work, name)
        enrolments = [
            StoredEnrolment(
                enrollmentId=recording.number,
                phrase=recording.phrase,
                session=recording.session,
                created=stored_iso(recording.created),
                speechLength=recording.speech_s,
                vectorKept=recording.vector is not None,
                extractor=recording.extractor,
                spoofScore=recording.spoof_score,
            )
            for recording in self.templates.enrolments(work, name)
        ]
        work.note("export", name)
        return Export(
            profile=self.describe(work, row)[0],
            consent=self._consent(row),
            enrollments=enrolments,
            record=[audit_entry(entry) for entry in work.rows(AuditRow, AUDIT_OF, name=name)],
            kept=STORED + (STORED_FOR_SEARCH if self.settings.search == "pgvector" else ""),
        )

    def _consent(self, row: ProfileRow) -> Json | None:
        """Return the stored consent; raise `DamagedProfile` if it cannot be read."""
        try:
            return row.consent_record()
        except ValueError as error:
            raise self.templates.damage(row.id, "consent") from error

    # -- reading -------------------------------------------------------------

    def get(self, name: str) -> ProfileReply:
        """Return the description of the profile `name`; raise a `Problem` (404, 410) if it does not exist."""
        with self.store.read() as work:
            return self.describe(work, self.row(work, name))[0]

    def find(
        self, top: int, after: str | None, user: str | None, search: str | None
    ) -> ProfilePage:
        """Return one page of profiles that are not deleted.

        Parameters
        ----------
        top : largest number of profiles on the page
        after : id of the last profile of the page before; None: the first page
        user : return only profiles with this userId; None: with any
        search : return only profiles whose userId begins with this text, ignoring case; None: all
        """
        query = sa.select(PROFILES).where(PROFILES.c.state != "deleted")
        if search is not None:
            query = self._named(query, search, after)
        else:
            query = query.where(PROFILES.c.id > (after or "")).order_by(PROFILES.c.id)
        if user is not None:
            query = query.where(PROFILES.c.user_id == user)
        # one row more than `top` shows whether there is a next page
        query = query.limit(top + 1)
        with self.store.read() as work:
            rows = work.rows(ProfileRow, query)
            items = self.describe(work, *rows[:top])
        return ProfilePage(items=items, next=items[-1].profileId if len(rows) > top else None)

    def _named(self, query: sa.Select[Any], search: str, after: str | None) -> sa.Select[Any]:
        """Restrict a query to profiles whose userId begins with `search`, ignoring case, and sort its rows by userId.

        after : id of the last profile of the page before; None: the first page
        """
        first: sa.ColumnElement[str] = sa.func.lower(sa.literal(search, sa.Text))
        name: sa.ColumnElement[str] = user_name
        if self.store.is_postgres:
            name = user_name.collate("C")
        query = query.where(name >= first, name < first.concat(LAST_CHARACTER))
        if after is not None:
            last = sa.select(name).where(PROFILES.c.id == after).scalar_subquery()
            query = query.where(sa.tuple_(name, PROFILES.c.id) > sa.tuple_(last, after))
        return query.order_by(name, PROFILES.c.id)

    # -- recordings ----------------------------------------------------------

    def enrol(
        self,
        work: Transaction,
        name: str,
        recording: ProcessedRecording,
        phrase: str | None,
        session: str | None = None,
        confirm_voice: Callable[[], bool] | None = None,
    ) -> EnrolReply | Problem:
        """Add a recording to a profile; a refused recording leaves the profile as it was.

        Parameters
        ----------
        name : id of the profile
        recording : processed recording
        phrase : text of the phrase that was said; None: the first phrase of the profile
        session : name of the session; None: that of the profile's previous recording, or a new session if that is more
            than an hour old
        confirm_voice : called for the first recording of a new phrase if its voice differs from the voice of the other
            phrases; returns whether the recording is enrolled nevertheless. None: such a recording is refused

        Returns
        -------
        the changed profile; or, if the recording does not match earlier ones, the refusal. It is returned, not raised,
        so that its audit entry is committed

        Raises
        ------
        RowHeld : if another connection has locked the profile
        Problem : 404 or 410 if the profile does not exist, 409 if its state forbids it, 422 if the recording or the
            phrase cannot be used
        """
        if recording.reason is not None or recording.vector is None:
            raise refused(recording.reason or "unreadable", recording)
        row = self._open_row(work, name)
        texts = self.texts(row)
        label = label_of(phrase) if phrase else next(iter(texts), None)
        if label is None:
            detail = (
                "this profile has no phrase yet: send the phrase that was said in the field phrase"
            )
            raise Problem(422, "phrase", detail)
        contribution = self.model.contributions(recording.vector[None])[0]
        cells = self.templates.cells(work, row)
        llrs = self._consistency(work, row, recording, cells, Cell(label, contribution, 1))
        count = sum(cell.count for cell in cells if cell.phrase == label)
        reason = self._mismatch(work, name, count, llrs)
        if reason == "wrong_speaker" and count == 0 and confirm_voice is not None:
            # across phrases the comparison of voices is least reliable
            reason = None if confirm_voice() else reason
        if reason is not None:
            work.note(REFUSED, name, reason=reason)
            return refused(reason, recording, llrs)
        cell = Cell(label, contribution, 1, session or self._session(work, name))
        self.templates.put(work, row, cell, recording, self.model.extractor_name)
        self.marks.put(work, name, recording)
        texts.setdefault(label, phrase or label)
        number = row.next_number
        enrolment: dict[str, object] = {"enrollmentId": number, "quality": recording.quality}
        values: dict[str, object] = {
            "phrases": json.dumps(texts),
            "next_number": number + 1,
            "last_used": work.now,
        }
        profile = self._settle(work, row, "enrol", enrolment, **values, **self._model_columns())
        return EnrolReply.model_validate({**dict(profile), **enrolment, **llrs.fields()})

    def _session(self, work: Transaction, name: str) -> str:
        """Return the session of a new recording for which the caller gave no session name.

        It is the session of the profile's previous recording, unless that is more than an hour old.
        """
        last = work.run(LAST_SESSION, name=name).first()
        if last is not None and work.now < last.created + SESSION_S:
            return str(last.session)
        return iso(work.now)

    def _open_row(self, work: Transaction, name: str) -> ProfileRow:
        """Lock the profile `name` and return it; raise a `Problem` (409) if no recording can be added in its state."""
        row = self.locked_one(work, name)
        state = self.current(work, row)
        self.check_damage(row)
        if state in ("opted_out", "expired", "stale"):
            detail = f"the profile is {state}: it must be reset before recordings can be enrolled"
            if state == "opted_out":
                detail = (
                    "the person has opted out: recordings can be enrolled in a new profile only"
                )
            raise Problem(409, "state", detail, state=state)
        limit = self.settings.most_enrolments
        if row.enrollments >= limit:
            detail = f"the profile has {limit} enrolments already, the most allowed: remove one, or reset the profile"
            raise Problem(409, "full", detail)
        return row

    def _consistency(
        self,
        work: Transaction,
        row: ProfileRow,
        recording: ProcessedRecording,
        cells: Sequence[Cell],
        new: Cell,
    ) -> Consistency:
        """Compare a new recording with the earlier recordings of its profile.

        Parameters
        ----------
        cells : sums of the earlier recordings
        new : contribution of the new recording, with its phrase

        Raises
        ------
        Problem : 422 if the recording is a copy of an earlier one
        """
        if self.marks.is_copy(work, row.id, recording):
            raise refused("suspected_replay", recording)
        model = self.domain.deployed(work, row.last_change)
        return model.consistency(cells, new)

    def _mismatch(self, work: Transaction, name: str, count: int, llrs: Consistency) -> str | None:
        """Return the reason code if a new recording does not match the earlier ones; None if it matches.

        count : number of earlier recordings of the same phrase
        llrs : comparison with the earlier recordings
        """
        least = self.settings.least_llr
        if llrs.speaker is not None and llrs.speaker < least:
            return "wrong_speaker"
        if llrs.phrase is None or llrs.phrase >= least:
            return None
        if count < self.settings.enrolments:
            # the second mismatch in a row is accepted: if the earlier recordings are the bad ones, the phrase could
            # otherwise never be enrolled
            last = work.first(AuditRow, LAST_AUDIT, name=name)
            if last is not None and last.action == REFUSED:
                if audit_detail(last).get("reason") == "wrong_phrase":
                    return None
        return "wrong_phrase"

    def remove(self, work: Transaction, name: str, number: int) -> ProfileReply:
        """Remove the recording `number` of the profile `name`; raise a `Problem` (404) if it does not exist."""
        row = self.locked_one(work, name)
        if not work.run(DELETE_ENROLMENT, name=name, number=number).rowcount:
            raise Problem(404, "not-found", f"this profile has no enrolment with the id {number}")
        # the removed recording may have been the damaged data; if not, the next use of the profile finds the damage
        return self._settle(work, row, "remove-enrolment", {"enrollmentId": number}, damaged=None)

    def reset(self, work: Transaction, name: str) -> ProfileReply:
        """Remove all recordings of the profile `name`, but not the person's name, the phrases and the consent."""
        row = self.locked_one(work, name)
        if row.state == "opted_out":
            detail = "the person has opted out: this profile cannot be reset, create a new one"
            raise Problem(409, "state", detail, state="opted_out")
        self.templates.wipe(work, name)
        values = self._repair(work, row)
        values |= {**EMPTY_COLUMNS, "failures": 0, "locked_until": None}
        return self._settle(work, row.repaired(), "reset", {}, **values)

    def _repair(self, work: Transaction, row: ProfileRow) -> dict[str, object]:
        """Return {column: value} that repairs the damaged columns of a profile whose recordings were removed.

        If its data key is damaged, a new data key is stored.
        """
        repaired = row.repaired()
        values = {column: getattr(repaired, column) for column in row.damaged_columns()}
        values["damaged"] = None
        try:
            self.templates.data_key(work, row.id)
        except DamagedProfile:
            wrapped = self.templates.wrap(work, secrets.token_bytes(32), row.id)
            with self.store.keys(work) as keys:
                keys.run(SET_KEY, name=row.id, key=wrapped)
        try:
            row.texts()
        except ValueError:
            row.phrases = values["phrases"] = "{}"
        # the damage that these checks recorded is repaired now
        self.templates.forget(row.id)
        return values

    def unlock(self, work: Transaction, name: str) -> ProfileReply:
        """Unlock the profile `name` after too many rejections or attempts; no data are erased."""
        row = self.locked_one(work, name)
        cleared = {"failures": 0, "locked_until": None, "rate_until": None}
        work.run(UPDATE_PROFILE, profile_id=name, **cleared)
        work.note("unlock", name)
        return self.describe(work, row)[0]

    # -- a changed model -----------------------------------------------------

    def current(self, work: Transaction, row: ProfileRow) -> State:
        """Return the present state of a profile; if it is stale, first try to compute its templates again.

        That is possible if the vectors of all its recordings are stored, and come from the extractor of the model.
        """
        state = self.state(work, row)
        if state != "stale":
            return state
        extractor = self.model.extractor_name
        recordings = self.templates.enrolments(work, row.id)
        if any(entry.vector is None or entry.extractor != extractor for entry in recordings):
            return state
        key = self.templates.data_key(work, row.id)
        for recording in recordings:
            vector = self.templates.vector(recording, key)
            if vector is not None:
                contribution = self.model.contributions(vector[None])[0]
                self.templates.replace_contribution(work, recording, contribution, key)
        self._settle(work, row, "enrol-again", {}, **self._model_columns())
        return self.state(work, row)


def refused(reason: str, recording: ProcessedRecording, llrs: Consistency | None = None) -> Problem:
    """Return the refusal (422) of a recording, with its reason code, its quality and a sentence for the person.

    llrs : comparison with earlier recordings; None: not compared
    """
    detail = recording.detail or SENTENCES.get(reason, reason)
    quality = None if recording.quality is None else recording.quality.model_dump()
    fields = {} if llrs is None else llrs.fields()
    return Problem(422, "refused", detail, reason=reason, quality=quality, **fields)
