"""Profiles: consent first, recordings in and out of exact sums, erasure at once."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Mapping
from typing import Any

import sqlalchemy as sa

from .domain import Domain
from .gate import SENTENCES, Heard
from .keys import Caller, Vault
from .model import Model
from .problems import Problem, conflict, no_model
from .records import Audit, iso, label_of, page
from .settings import Settings
from .store import Store, Work
from .tables import answers, challenges, profiles, templates
from .templates import DAY, Cell, Templates, added

NOTHING = {
    "speech_s": 0.0,
    "model": None,
    "model_version": None,
    "extractor": None,
    "last_used": None,
}
"""Columns of a profile that has no recording."""
SERVICE = Caller("service", "admin")
KEPT = "Sums of numbers made of your recordings, encrypted and rotated by a secret key; no sound. "
KEPT_VECTORS = "The numbers of each recording are stored too, encrypted."


class Profiles:
    """Rows of profiles and their recordings. Methods that take a `Work` are parts of its transaction."""

    def __init__(
        self,
        store: Store,
        vault: Vault,
        templates: Templates,
        audit: Audit,
        model: Model | None,
        settings: Settings,
    ) -> None:
        self.store = store
        self.vault = vault
        self.templates = templates
        self.audit = audit
        self.model = model
        self.domain = None if model is None else Domain(model, templates)
        self.settings = settings

    # -- rows ----------------------------------------------------------------

    def row(
        self, work: Work, name: str, etag: str | None = None, lock: bool = False
    ) -> dict[str, Any]:
        """A profile, if it is there, and as it was when a caller read it."""
        query = sa.select(profiles).where(profiles.c.id == name)
        row = work.row(query.with_for_update() if lock else query)
        if row is None:
            raise Problem(404, "not-found", "there is no such profile")
        if row["state"] == "deleted":
            self.templates.forget(name)
            raise Problem(410, "deleted", f"the profile was deleted at {iso(row['updated'])}")
        current = f'"{row["version"]}"'
        if etag is not None and etag.strip() not in ("*", current):
            detail = f"the profile has changed since: its ETag is {current} now"
            raise Problem(409, "changed", detail, etag=current)
        return row

    def state(self, work: Work, row: Mapping[str, Any]) -> str:
        """The stored state, or what time or a new model made of it."""
        state = str(row["state"])
        if state in ("opted_out", "deleted", "created"):
            return state
        if work.now > self.expires(row):
            return "expired"
        if self.model is not None and row["model"] not in (None, self.model.fingerprint):
            return "stale"
        return state

    def expires(self, row: Mapping[str, Any]) -> float:
        return float(row["last_used"] or row["created"]) + self.settings.expire_days * DAY

    def update(self, work: Work, row: dict[str, Any], **values: Any) -> None:
        """Change a profile: its version is its ETag, its number is what 1:N follows."""
        row |= {"version": row["version"] + 1, "updated": work.now, **values}
        work.changed.add(row["id"])
        work.execute(profiles.update().where(profiles.c.id == row["id"]).values(**row))

    def described(self, work: Work, *rows: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Profiles as callers see them: never a vector."""
        counts: dict[str, dict[str, int]] = {row["id"]: {} for row in rows}
        columns = (templates.c.profile, templates.c.phrase, templates.c["count"])
        query = sa.select(*columns).where(templates.c.profile.in_(counts))
        for name, label, count in work.execute(query):
            counts[name][label] = count
        return [self._described(work, row, counts[row["id"]]) for row in rows]

    def _described(
        self, work: Work, row: Mapping[str, Any], counts: Mapping[str, int]
    ) -> dict[str, Any]:
        state = self.state(work, row)
        required = self.settings.enrolments
        remaining = {}
        for label, text in json.loads(row["phrases"]).items():
            remaining[text] = max(0, required - counts.get(label, 0))
        expires = None
        if state in ("enrolling", "enrolled", "stale"):
            expires = iso(self.expires(row))
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
            "expires": expires,
            "etag": f'"{row["version"]}"',
        }

    def _after(self, cells: Iterable[Cell]) -> dict[str, Any]:
        """What changed sums make of a profile."""
        counts = [cell.count for cell in cells]
        most = max(counts, default=0)
        state = "created"
        if most:
            state = "enrolled" if most >= self.settings.enrolments else "enrolling"
        return {"state": state, "enrollments": sum(counts)}

    def needed_model(self) -> Model:
        if self.model is None:
            raise no_model()
        return self.model

    def deployed_model(self, work: Work) -> Model:
        """The model in the domain of what is enrolled here, by which trials are decided."""
        if self.domain is None:
            raise no_model()
        return self.domain.deployed(work)

    def _made_with(self) -> dict[str, Any]:
        model = self.needed_model()
        return {
            "model": model.fingerprint,
            "model_version": model.version,
            "extractor": model.extractor_name,
        }

    # -- coming and going ----------------------------------------------------

    def create(
        self,
        work: Work,
        user: str | None,
        phrase: str | None,
        consent: Mapping[str, Any],
        caller: Caller,
    ) -> dict[str, Any]:
        if not consent.get("given"):
            detail = "Nothing is stored of a person without consent: consent.given must be true."
            raise Problem(422, "no-consent", detail)
        texts = {} if phrase is None else {label_of(phrase): phrase}
        name = secrets.token_hex(16)
        self.store.put_key(name, self.vault.new_key(name)[1], work)
        row = {
            "id": name,
            "user_id": user,
            "phrases": json.dumps(texts),
            "consent": json.dumps({**consent, "at": consent.get("at") or iso(work.now)}),
            "version": 1,
            "next_number": 1,
            "failures": 0,
            "locked_until": None,
            "created": work.now,
            "updated": work.now,
            **self._after(()),
            **NOTHING,
        }
        work.execute(profiles.insert().values(**row))
        work.changed.add(name)
        self.audit.note(work, caller, "create", name)
        return self.described(work, row)[0]

    def leave(
        self, work: Work, name: str, state: str, caller: Caller, etag: str | None = None
    ) -> dict[str, Any]:
        """Opt out or be deleted: at once, from any state, whether or not there is a model."""
        row = self.row(work, name, etag, lock=True)
        # first the key: whatever happens then, nothing can be decrypted any more
        self.store.destroy_key(name, work)
        self.templates.wipe(work, name)
        work.execute(challenges.delete().where(challenges.c.profile == name))
        named = answers.c.request.contains(name) | answers.c.body.contains(name)
        work.execute(answers.delete().where(named))
        values = {**self._after(()), **NOTHING, "state": state, "phrases": "{}"}
        if state == "deleted":
            values |= {"user_id": None, "consent": None}
        self.update(work, row, **values)
        action = "delete" if state == "deleted" else "opt-out"
        self.audit.note(work, caller, action, name)
        return self.described(work, row)[0]

    def export(self, work: Work, name: str, caller: Caller) -> dict[str, Any]:
        """What is stored of a person, in words; that there are vectors, and not the vectors."""
        row = self.row(work, name)
        entries = []
        for entry in self.templates.enrolled(work, name):
            entries.append(
                {
                    "enrollmentId": entry["number"],
                    "phrase": entry["phrase"],
                    "created": iso(entry["created"]),
                    "speechLength": entry["speech_s"],
                    "vectorKept": entry["vector"] is not None,
                    "extractor": entry["extractor"],
                }
            )
        self.audit.note(work, caller, "export", name)
        has_vectors = any(entry["vectorKept"] for entry in entries)
        return {
            "profile": self.described(work, row)[0],
            "consent": json.loads(row["consent"] or "null"),
            "enrollments": entries,
            "record": self.audit.of_profile(work, name),
            "kept": KEPT + (KEPT_VECTORS if has_vectors else ""),
        }

    # -- reading -------------------------------------------------------------

    def get(self, name: str) -> dict[str, Any]:
        with self.store.read() as work:
            return self.described(work, self.row(work, name))[0]

    def find(self, top: int, after: str | None, user: str | None = None) -> dict[str, Any]:
        query = sa.select(profiles).where(profiles.c.state != "deleted")
        query = query.order_by(profiles.c.id).limit(top + 1)
        if after:
            query = query.where(profiles.c.id > after)
        if user is not None:
            query = query.where(profiles.c.user_id == user)
        with self.store.read() as work:
            rows = [dict(row) for row in work.execute(query).mappings()]
            return page(self.described(work, *rows), top, "profileId")

    def count(self, stale: bool = False) -> int:
        """How many profiles there are, or of those, how many are of another model."""
        query = sa.select(sa.func.count()).select_from(profiles)
        query = query.where(profiles.c.state != "deleted")
        if stale:
            query = query.where(profiles.c.model != self.needed_model().fingerprint)
        with self.store.read() as work:
            return int(work.execute(query).scalar_one())

    # -- recordings ----------------------------------------------------------

    def enrol(
        self,
        work: Work,
        name: str,
        heard: Heard,
        phrase: str | None,
        caller: Caller,
        etag: str | None = None,
    ) -> dict[str, Any]:
        """Add a recording; what is refused leaves the profile as it was."""
        model = self.needed_model()
        if heard.reason is not None or heard.vector is None:
            raise refused(heard.reason or "unreadable", heard)
        row = self._open_row(work, name, etag)
        texts: dict[str, str] = json.loads(row["phrases"])
        label = next(iter(texts), None) if phrase is None else label_of(phrase)
        if label is None:
            raise Problem(422, "phrase", "give the phrase that was said: the profile has none")
        cells = self.templates.cells(work, row)
        new = Cell(label, model.share(heard.vector[None])[0], 1)
        llrs = self._checked(work, name, heard, cells, new)
        key = self.templates.data_key(work, name)
        number = row["next_number"]
        self.templates.put_share(work, name, number, key, new, heard, model.extractor_name)
        after = added(cells, new)
        self.templates.put_cell(work, name, key, cell_of(after, label))
        texts.setdefault(label, phrase or label)
        values = {
            "phrases": json.dumps(texts),
            "next_number": number + 1,
            "last_used": work.now,
            "speech_s": row["speech_s"] + heard.speech_s,
        }
        self.update(work, row, **values, **self._after(after), **self._made_with())
        self.templates.put_mark(work, name, heard)
        detail = {"enrollmentId": number, "quality": heard.quality}
        self.audit.note(work, caller, "enrol", name, detail=detail)
        described = self.described(work, row)[0]
        return {"enrollmentId": number, **described, "quality": heard.quality, **llrs}

    def _open_row(self, work: Work, name: str, etag: str | None) -> dict[str, Any]:
        """A profile that takes one more recording."""
        row = self.row(work, name, etag, lock=True)
        state = self.state(work, row)
        if state in ("opted_out", "expired"):
            raise conflict(state, f"the profile is {state}: nothing can be enrolled")
        if state == "stale":
            self.enrol_again(work, row)
        most = self.settings.most_enrolments
        if row["enrollments"] >= most:
            detail = f"the profile has {most} enrolments already: take one out, or reset it"
            raise Problem(409, "full", detail)
        return row

    def _checked(
        self, work: Work, name: str, heard: Heard, cells: list[Cell], new: Cell
    ) -> dict[str, float | None]:
        """LLRs of a new recording against those before it; too low ones, and copies, are refused."""
        least = self.settings.least_llr
        spoken = heard.countermeasure is None or heard.countermeasure >= least
        if not spoken or self.templates.is_copy(work, name, heard):
            raise refused("suspected_replay", heard)
        llrs = self.deployed_model(work).consistency(cells, new)
        reasons = {"phraseLlr": "wrong_phrase", "consistencyLlr": "wrong_speaker"}
        for which, reason in reasons.items():
            llr = llrs[which]
            if llr is not None and llr < least:
                raise refused(reason, heard, **llrs)
        return llrs

    def remove(
        self, work: Work, name: str, number: int, caller: Caller, etag: str | None = None
    ) -> dict[str, Any]:
        """Take one recording out of the sum, exactly."""
        row = self.row(work, name, etag, lock=True)
        key = self.templates.data_key(work, name)
        cells = self.templates.cells(work, row)
        taken = self.templates.take_share(work, name, number, key)
        if taken is None:
            raise Problem(404, "not-found", f"there is no enrolment {number} of this profile")
        out, seconds = taken
        after = added(cells, out)
        self.templates.put_cell(work, name, key, cell_of(after, out.phrase))
        speech = max(0.0, row["speech_s"] - seconds)
        self.update(work, row, **self._after(after), speech_s=speech)
        detail = {"enrollmentId": number}
        self.audit.note(work, caller, "remove-enrolment", name, detail=detail)
        return self.described(work, row)[0]

    def reset(
        self, work: Work, name: str, caller: Caller, etag: str | None = None
    ) -> dict[str, Any]:
        """Take all recordings out; the person's name, phrase and consent stay."""
        row = self.row(work, name, etag, lock=True)
        if row["state"] == "opted_out":
            raise conflict("opted_out", "the profile has opted out")
        self.templates.wipe(work, name)
        self.update(work, row, **self._after(()), **NOTHING, failures=0, locked_until=None)
        self.audit.note(work, caller, "reset", name)
        return self.described(work, row)[0]

    # -- a changed model -----------------------------------------------------

    def can_enrol_again(self, work: Work, name: str) -> bool:
        """Whether the kept vectors of a profile make it anew with the model of today."""
        source = self.needed_model().extractor_name
        rows = self.templates.enrolled(work, name)
        return all(row["vector"] is not None and row["extractor"] == source for row in rows)

    def enrol_again(self, work: Work, row: dict[str, Any]) -> None:
        """Enrol kept vectors once more, with the model of today."""
        name = row["id"]
        if not self.can_enrol_again(work, name):
            detail = "the extractor or the model has changed: reset the profile, and enrol again"
            raise Problem(409, "model-changed", detail, state="stale")
        key = self.templates.data_key(work, name)
        cells: list[Cell] = []
        for entry in self.templates.enrolled(work, name):
            vector = self.templates.vector(entry, key)
            new = Cell(entry["phrase"], self.needed_model().share(vector[None])[0], 1)
            self.templates.replace_share(work, entry, key, new)
            cells = added(cells, new)
        work.execute(templates.delete().where(templates.c.profile == name))
        for cell in cells:
            self.templates.put_cell(work, name, key, cell)
        self.update(work, row, **self._after(cells), **self._made_with())
        self.audit.note(work, SERVICE, "enrol-again", name)


def cell_of(cells: Iterable[Cell], phrase: str) -> Cell:
    return next(cell for cell in cells if cell.phrase == phrase)


def refused(reason: str, heard: Heard, **more: Any) -> Problem:
    detail = heard.detail or SENTENCES.get(reason, reason)
    return Problem(422, "refused", detail, reason=reason, quality=heard.quality, **more)
