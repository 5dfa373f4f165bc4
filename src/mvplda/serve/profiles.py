"""Profiles: consent first, recordings in and out of exact sums, erasure at once."""

from __future__ import annotations

import json
import re
import secrets
from collections import Counter
from collections.abc import Sequence
from typing import Any

from .model import Cell, Model, ProcessedRecording, label_of
from .schemas import Json, Problem
from .store import DAY, Transaction, iso, page
from .templates import DomainCache, Templates

# Columns of a profile that has no recording.
NOTHING = {
    "state": "created",
    "enrollments": 0,
    "speech_s": 0.0,
    "model": None,
    "model_version": None,
    "last_used": None,
}
KEPT = (
    "Numbers made of your recordings, encrypted and rotated by a secret key; where it says vectorKept, those that "
    "the extractor made, encrypted; no sound."
)
KEPT_TO_SEARCH = (
    " Numbers by which the database finds whose voice it is: rotated, and not encrypted."
)
# Seconds after which a recording is of another sitting than the one before.
SESSION_S = 3600.0
REFUSED = "refuse-enrolment"
# Why a recording is refused; what cannot be read has a sentence of its own.
SENTENCES = {
    "not_enough_speech": "There is too little speech in it: say the whole phrase, or choose a longer one.",
    "too_quiet": "It is nearly silent: come nearer to the microphone.",
    "no_speech": "It holds no speech.",
    "clipped": "It is clipped: step back, or turn the microphone down.",
    "too_noisy": "There is too much noise around the speech.",
    "wrong_phrase": "The words are not those of the takes before it: say the phrase again. If they were right, the "
    "first take may be the bad one.",
    "wrong_speaker": "The voice is not that of the enrolments before.",
    "suspected_replay": "This recording was sent before.",
}


class ProfileStore:
    """Rows of profiles and their recordings. Methods that take a `Transaction` are parts of its transaction."""

    def __init__(self, templates: Templates, model: Model) -> None:
        self.store = templates.store
        self.templates = templates
        self.settings = templates.settings
        self.model = model
        self.domain = DomainCache(model, templates)

    # -- rows ----------------------------------------------------------------

    def row(self, work: Transaction, name: str) -> Json:
        """A profile, if it is there."""
        return self.checked(work.first("SELECT * FROM profiles WHERE id = :name", name=name))

    def locked(self, work: Transaction, names: Sequence[str]) -> dict[str, Json]:
        """Profiles that no other transaction changes, with the number of the last change of any.

        Locks are taken in one order, so that no two transactions wait for each other.
        """
        columns = "*, (SELECT number FROM changes) AS last_change"
        if self.store.clock is None:
            # the time of the database comes along: one query less
            columns += ", extract(epoch FROM clock_timestamp()) AS now"
        query = f"SELECT {columns} FROM profiles WHERE id IN :names ORDER BY id"
        if self.store.is_postgres:
            query += " FOR UPDATE"
        rows = work.all(query, names=list(names))
        if rows and self.store.clock is None:
            work.now = float(rows[0]["now"])
        return {row["id"]: row for row in rows}

    def locked_one(self, work: Transaction, name: str) -> Json:
        return self.checked(self.locked(work, [name]).get(name))

    def checked(self, row: Json | None) -> Json:
        """A row that is there, and of somebody who is."""
        if row is None:
            raise Problem(404, "not-found", "there is no such profile")
        if row["state"] == "deleted":
            self.templates.forget(row["id"])
            raise Problem(410, "deleted", f"the profile was deleted at {iso(row['updated'])}")
        return row

    def state(self, work: Transaction, row: Json) -> str:
        """The stored state, or what time or a new model made of it."""
        state = str(row["state"])
        if state not in ("enrolling", "enrolled"):
            return state
        if work.now > self._expires(row):
            return "expired"
        if row["model"] != self.model.fingerprint:
            return "stale"
        return state

    def _expires(self, row: Json) -> float:
        return float(row["last_used"] or row["created"]) + self.settings.expire_days * DAY

    def update(self, work: Transaction, row: Json, **values: Any) -> None:
        """Change a profile: sums are cached by its version, 1:N follows its number."""
        values |= {"version": row["version"] + 1, "updated": work.now}
        row |= values
        work.changed.add(row["id"])
        work.update("profiles", row["id"], **values)

    def described(self, work: Transaction, *rows: Json) -> list[Json]:
        """Profiles as callers see them: never a vector."""
        query = "SELECT profile, phrase FROM enrollments WHERE profile IN :names"
        takes = work.run(query, names=[row["id"] for row in rows])
        counts = Counter((row.profile, row.phrase) for row in takes)
        return [self._described(work, row, counts) for row in rows]

    def _described(self, work: Transaction, row: Json, counts: Counter[tuple[str, str]]) -> Json:
        state = self.state(work, row)
        required = self.settings.enrolments
        remaining = {}
        for label, text in json.loads(row["phrases"]).items():
            remaining[text] = max(0, required - counts[row["id"], label])
        locked = row.get("locked_until")
        if locked is not None and locked < work.now:
            locked = None
        expires = self._expires(row) if state in ("enrolling", "enrolled", "stale") else None
        return {
            "profileId": row["id"],
            "userId": row["user_id"],
            "state": state,
            "phrases": list(remaining),
            "enrollmentsCount": row["enrollments"],
            "remainingEnrollmentsCount": min(remaining.values(), default=required),
            "remainingByPhrase": remaining,
            "speechLength": round(row["speech_s"], 3),
            "modelVersion": row["model_version"],
            "created": iso(row["created"]),
            "updated": iso(row["updated"]),
            "lastUsed": iso(row["last_used"]),
            "expires": iso(expires),
            "lockedUntil": iso(locked),
        }

    def _settle(
        self, work: Transaction, row: Json, action: str, detail: Json, **values: Any
    ) -> Json:
        """Store what became of a profile, with its recordings counted; as callers see it."""
        rows = self.templates.enrolled(work, row["id"])
        most = max(Counter(entry["phrase"] for entry in rows).values(), default=0)
        state = "created"
        if most:
            state = "enrolled" if most >= self.settings.enrolments else "enrolling"
        speech = sum(entry["speech_s"] for entry in rows)
        known = {"state": state, "enrollments": len(rows), "speech_s": speech}
        self.update(work, row, **known | values)
        work.note(action, row["id"], **detail)
        return self.described(work, row)[0]

    def _made_with(self) -> Json:
        return {
            "model": self.model.fingerprint,
            "model_version": self.model.version,
        }

    # -- coming and going ----------------------------------------------------

    def create(
        self, work: Transaction, user: str | None, phrase: str | None, consent: Json
    ) -> Json:
        if not consent.get("given"):
            detail = "Nothing is stored of a person without consent: consent.given must be true."
            raise Problem(422, "no-consent", detail)
        name = secrets.token_hex(16)
        wrapped = self.templates.vault.wrap(secrets.token_bytes(32), name)
        with self.store.keys(work) as keys:
            keys.insert("data_keys", profile=name, wrapped=wrapped)
        row = {
            "id": name,
            "user_id": user,
            "phrases": json.dumps({label_of(phrase): phrase} if phrase else {}),
            "consent": json.dumps({**consent, "at": iso(work.now)}),
            "version": 1,
            "next_number": 1,
            "failures": 0,
            "created": work.now,
            "updated": work.now,
            **NOTHING,
        }
        work.insert("profiles", **row)
        work.changed.add(name)
        work.note("create", name)
        return self.described(work, row)[0]

    def leave(self, work: Transaction, name: str, state: str) -> Json:
        """Opt out or be deleted: at once, from any state."""
        row = self.locked_one(work, name)
        # first the key: whatever happens then, nothing can be decrypted any more
        self.store.destroy_key(name, work)
        self.templates.wipe(work, name)
        work.run("DELETE FROM challenges WHERE profile = :name", name=name)
        values = {**NOTHING, "state": state, "phrases": "{}"}
        if state == "deleted":
            values |= {"user_id": None, "consent": None}
        action = "delete" if state == "deleted" else "opt-out"
        return self._settle(work, row, action, {}, **values)

    def export(self, work: Transaction, name: str) -> Json:
        """What is stored of a person, in words; that there are vectors, and not the vectors."""
        row = self.row(work, name)
        entries = [
            {
                "enrollmentId": entry["number"],
                "phrase": entry["phrase"],
                "sitting": entry["sitting"],
                "created": iso(entry["created"]),
                "speechLength": entry["speech_s"],
                "vectorKept": entry["vector"] is not None,
                "extractor": entry["extractor"],
            }
            for entry in self.templates.enrolled(work, name)
        ]
        work.note("export", name)
        own = work.all("SELECT * FROM audit WHERE profile = :name ORDER BY id", name=name)
        return {
            "profile": self.described(work, row)[0],
            "consent": json.loads(row["consent"] or "null"),
            "enrollments": entries,
            "record": [audit_entry(entry) for entry in own],
            "kept": KEPT + (KEPT_TO_SEARCH if self.settings.search == "pgvector" else ""),
        }

    # -- reading -------------------------------------------------------------

    def get(self, name: str) -> Json:
        with self.store.read() as work:
            return self.described(work, self.row(work, name))[0]

    def find(self, top: int, after: str | None, user: str | None, search: str | None) -> Json:
        """Page by page, of all people, of those called `user`, or of those whose names hold `search`."""
        query = "SELECT * FROM profiles WHERE state != 'deleted' AND id > :after"
        values: Json = {"after": after or "", "most": top + 1}
        if user is not None:
            query += " AND user_id = :user"
            values["user"] = user
        if search is not None:
            query += " AND lower(user_id) LIKE :search ESCAPE '!'"
            plain = re.sub("([!%_])", r"!\1", search.lower())
            values["search"] = f"%{plain}%"
        query += " ORDER BY id LIMIT :most"
        with self.store.read() as work:
            rows = work.all(query, **values)
            return page(self.described(work, *rows), top, "profileId")

    # -- recordings ----------------------------------------------------------

    def enrol(
        self,
        work: Transaction,
        name: str,
        heard: ProcessedRecording,
        phrase: str | None,
        sitting: str | None = None,
    ) -> Json | Problem:
        """Add a recording; what is refused leaves the profile as it was, and is in the audit if it does not fit.

        sitting : that it is of; None: that of the recording before, or another after an hour
        """
        if heard.reason is not None or heard.vector is None:
            raise refused(heard.reason or "unreadable", heard)
        row = self._open_row(work, name)
        texts: dict[str, str] = json.loads(row["phrases"])
        label = label_of(phrase) if phrase else next(iter(texts), None)
        if label is None:
            raise Problem(422, "phrase", "give the phrase that was said: the profile has none")
        share = self.model.share(heard.vector[None])[0]
        cells = self.templates.cells(work, row)
        llrs = self._fitting(work, row, heard, cells, Cell(label, share, 1))
        takes = sum(cell.count for cell in cells if cell.phrase == label)
        reason = self._misfit(work, name, takes, llrs)
        if reason is not None:
            work.note(REFUSED, name, reason=reason)
            return refused(reason, heard, **llrs)
        cell = Cell(label, share, 1, sitting or self._sitting(work, name))
        self.templates.put(work, row, cell, heard, self.model.extractor_name)
        self.templates.put_mark(work, name, heard)
        texts.setdefault(label, phrase or label)
        number = row["next_number"]
        detail = {"enrollmentId": number, "quality": heard.quality}
        values = {"phrases": json.dumps(texts), "next_number": number + 1, "last_used": work.now}
        described = self._settle(work, row, "enrol", detail, **values, **self._made_with())
        return {**described, **detail, **llrs}

    def _sitting(self, work: Transaction, name: str) -> str:
        """Where none is named: recordings that come within an hour of each other are of one."""
        query = "SELECT sitting, created FROM enrollments WHERE profile = :name ORDER BY number DESC LIMIT 1"
        last = work.first(query, name=name)
        if last is not None and work.now < last["created"] + SESSION_S:
            return str(last["sitting"])
        return str(iso(work.now))

    def _open_row(self, work: Transaction, name: str) -> Json:
        """A profile that takes one more recording."""
        row = self.locked_one(work, name)
        state = self.current(work, row)
        if state in ("opted_out", "expired", "stale"):
            detail = f"the profile is {state}: nothing can be enrolled before it is reset"
            raise Problem(409, "state", detail, state=state)
        most = self.settings.most_enrolments
        if row["enrollments"] >= most:
            detail = f"the profile has {most} enrolments already: take one out, or reset it"
            raise Problem(409, "full", detail)
        return row

    def _fitting(
        self,
        work: Transaction,
        row: Json,
        heard: ProcessedRecording,
        cells: Sequence[Cell],
        new: Cell,
    ) -> dict[str, float | None]:
        """LLRs of a new recording against those before it; copies are refused."""
        if self.templates.is_copy(work, row["id"], heard):
            raise refused("suspected_replay", heard)
        model = self.domain.deployed(work, row["last_change"])
        return model.consistency(cells, new)

    def _misfit(
        self, work: Transaction, name: str, takes: int, llrs: dict[str, float | None]
    ) -> str | None:
        """Why a recording is refused that does not fit those before it, if it is.

        takes : of the same phrase, before it
        """
        least = self.settings.least_llr
        words, voice = (llrs[which] for which in ("phraseLlr", "consistencyLlr"))
        if voice is not None and voice < least:
            return "wrong_speaker"
        if words is None or words >= least:
            return None
        if takes < self.settings.enrolments:
            # twice in a row: it may be the takes before that are bad, and such a phrase could never be enrolled
            last = "SELECT * FROM audit WHERE profile = :name ORDER BY id DESC LIMIT 1"
            before = work.first(last, name=name)
            if before and before["action"] == REFUSED:
                if audit_entry(before)["reason"] == "wrong_phrase":
                    return None
        return "wrong_phrase"

    def remove(self, work: Transaction, name: str, number: int) -> Json:
        """Take one recording out, exactly."""
        row = self.locked_one(work, name)
        out = "DELETE FROM enrollments WHERE profile = :name AND number = :number"
        if not work.run(out, name=name, number=number).rowcount:
            raise Problem(404, "not-found", f"there is no enrolment {number} of this profile")
        return self._settle(work, row, "remove-enrolment", {"enrollmentId": number})

    def reset(self, work: Transaction, name: str) -> Json:
        """Take all recordings out; the person's name, phrase and consent stay."""
        row = self.locked_one(work, name)
        if row["state"] == "opted_out":
            raise Problem(409, "state", "the profile has opted out", state="opted_out")
        self.templates.wipe(work, name)
        values = {**NOTHING, "failures": 0, "locked_until": None}
        return self._settle(work, row, "reset", {}, **values)

    def unlock(self, work: Transaction, name: str) -> Json:
        """Let attempts in again after rejections; nothing is erased."""
        row = self.locked_one(work, name)
        work.update("profiles", name, failures=0, locked_until=None, rate_until=None)
        work.note("unlock", name)
        return self.described(work, row)[0]

    # -- a changed model -----------------------------------------------------

    def current(self, work: Transaction, row: Json) -> str:
        """The state of a profile, of which a stale one is enrolled again where its vectors were kept."""
        state = self.state(work, row)
        if state != "stale":
            return state
        source = self.model.extractor_name
        rows = self.templates.enrolled(work, row["id"])
        if any(entry["vector"] is None or entry["extractor"] != source for entry in rows):
            return state
        key = self.templates.data_key(work, row["id"])
        for entry in rows:
            share = self.model.share(self.templates.vector(entry, key)[None])[0]
            self.templates.replace(work, entry, share, key)
        self._settle(work, row, "enrol-again", {}, **self._made_with())
        return self.state(work, row)


def audit_entry(row: Json) -> Json:
    return {
        "id": str(row["id"]),
        "at": iso(row["at"]),
        "caller": row["caller"],
        "action": row["action"],
        "profileId": row["profile"],
        "resultId": row["result_id"],
        **json.loads(row["detail"]),
    }


def refused(reason: str, heard: ProcessedRecording, **more: Any) -> Problem:
    detail = heard.detail or SENTENCES.get(reason, reason)
    return Problem(422, "refused", detail, reason=reason, quality=heard.quality, **more)
