"""What the service does, without HTTP: profiles, enrolments, decisions, challenges, and the record of them."""

from __future__ import annotations

import json
import logging
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray
from scipy.special import logsumexp
from sqlalchemy.engine import Connection

from ..exceptions import DataError, ParameterError
from .audio import SENTENCES, Heard, Limits, hear
from .decisions import Odds, Point, choose_point, odds, reason_of
from .index import Index
from .keys import Caller, Master, Rates, Vault
from .model import Cell, ServiceModel, slug
from .store import Store, answers, audit, challenges, enrollments, marks, phrases, profiles, templates

log = logging.getLogger("mvplda.serve")
DAY = 86400.0
NEAR = 0.99995
"""Cosine of two vectors from which on the second recording is a copy of the first: two takes of one phrase stay below
0.99, and what another codec makes of one recording lies above."""
MARKS_DAYS = 90.0
"""So long sound that was heard is remembered, to know it again."""


class Problem(Exception):
    """An answer that is no success: RFC 9457 has its shape."""

    def __init__(self, status: int, kind: str, detail: str, *, wait: float | None = None, **more: Any) -> None:
        super().__init__(detail)
        self.status, self.kind, self.detail, self.wait, self.more = status, kind, detail, wait, more


@dataclass(frozen=True)
class Rules:
    """What the operator may choose.

    required : enrolments of a phrase before it is enrolled
    most : enrolments that a profile may hold
    expire_days : a profile that is unused for so long is expired
    challenge_s : seconds within which a challenge is answered
    lock_after, lock_s : rejections in a row after which a profile is locked, and for how long; twice as long each time
    key_rate, profile_rate : calls a minute of a key, and attempts a minute on a profile
    keep_vectors : whether vectors are kept, so that a new model can be enrolled with them
    least_llr : an enrolment whose voice or words are less likely than this is refused
    far : wanted share of false acceptances, where a call says nothing; None: what the model says, or 0.01
    """

    required: int = 3
    most: int = 50
    expire_days: float = 365.0
    challenge_s: float = 60.0
    lock_after: int = 5
    lock_s: float = 60.0
    key_rate: float = 1200.0
    profile_rate: float = 60.0
    keep_vectors: bool = True
    least_llr: float = -1.0
    far: float | None = None
    audio: Limits = field(default_factory=Limits)


@dataclass(frozen=True)
class Ask:
    """What a verification is asked to be decided by."""

    phrase: str | None = None
    challenge: str | None = None
    far: float | None = None
    prior: float | None = None
    miss_cost: float = 1.0
    false_alarm_cost: float = 1.0
    spoof_llr: float | None = None


class Service:
    """Everything between the endpoints and the database.

    Parameters
    ----------
    model : None: nothing can be decided, but people can still leave
    """

    def __init__(
        self,
        store: Store,
        master: Master,
        model: ServiceModel | None,
        rules: Rules | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.store, self.model, self.rules, self.clock = store, model, rules or Rules(), clock
        self.vault = Vault(master)
        self.key_rates, self.profile_rates = Rates(self.rules.key_rate), Rates(self.rules.profile_rate)
        self.index = None if model is None else Index(store, self.vault, model, clock)
        mark = store.remember("master", master.derived("check").hex())
        if mark != master.derived("check").hex():
            raise ParameterError("the master key is another one than that which this database was made with")

    # -- profiles --------------------------------------------------------------

    def create(
        self, user: str | None, phrase: str | None, consent: Mapping[str, Any], caller: Caller
    ) -> dict[str, Any]:
        if not consent.get("given"):
            raise Problem(
                422, "no-consent", "Nothing is kept of a person who has not agreed: consent.given must be true."
            )
        label = None if phrase is None else self._label(phrase)
        now, name = self.clock(), secrets.token_hex(16)
        self.store.put_key(name, self.vault.new_key(name)[1])
        row = {
            "id": name,
            "user_id": user,
            "state": "created",
            "phrases": json.dumps({} if label is None else {label: phrase}),
            "consent": json.dumps({**consent, "at": consent.get("at") or iso(now)}),
            "version": 1,
            "model": None,
            "model_version": None,
            "extractor": None,
            "enrollments": 0,
            "next_number": 1,
            "speech_s": 0.0,
            "failures": 0,
            "locked_until": None,
            "created": now,
            "updated": now,
            "last_used": None,
        }
        with self.store.write() as connection:
            connection.execute(profiles.insert().values(**row))
            self._note(connection, caller, "create", name)
        return self._said(row)

    def get(self, name: str) -> dict[str, Any]:
        with self.store.read() as connection:
            return self._said(self._row(connection, name))

    def list_profiles(self, top: int, after: str | None, user: str | None = None) -> dict[str, Any]:
        query = sa.select(profiles).where(profiles.c.state != "deleted").order_by(profiles.c.id).limit(top + 1)
        if after:
            query = query.where(profiles.c.id > after)
        if user is not None:
            query = query.where(profiles.c.user_id == user)
        with self.store.read() as connection:
            found = [dict(row) for row in connection.execute(query).mappings()]
        return page([self._said(row) for row in found], top, "profileId")

    def enrol(
        self, name: str, heard: Heard, phrase: str | None, caller: Caller, etag: str | None = None
    ) -> dict[str, Any]:
        """Add a recording to a profile, or say why it is left as it was."""
        model = self._model()
        if heard.reason is not None:
            raise self._refused(heard.reason, heard)
        vector = self._vector(heard)
        share = model.prepare(vector[None])[0]
        key = self._data_key(name)
        with self.store.write() as connection:
            row = self._row(connection, name, lock=True)
            self._check_etag(row, etag)
            state = self._state(row)
            if state in ("opted_out", "expired"):
                raise Problem(409, "state", f"the profile is {state}: nothing can be enrolled", state=state)
            if state == "stale":
                row = self._again(connection, row, key)
            if row["enrollments"] >= self.rules.most:
                raise Problem(
                    409, "full", f"the profile has {self.rules.most} enrolments already: take one out, or reset it"
                )
            texts: dict[str, str] = json.loads(row["phrases"])
            label = self._label(phrase) if phrase is not None else next(iter(texts), None)
            if label is None:
                raise Problem(422, "phrase", "say which phrase was said: the profile names none")
            cells = self._cells(connection, name, key)
            self._check_new(connection, name, key, heard, vector)
            llrs = self._consistency(cells, Cell(label, share, 1))
            for which, reason in (("phraseLlr", "wrong_phrase"), ("consistencyLlr", "wrong_speaker")):
                value = llrs[which]
                if value is not None and value < self.rules.least_llr:
                    raise self._refused(reason, heard, **llrs)
            number, now = row["next_number"], self.clock()
            where = f"{name} {number}"
            connection.execute(
                enrollments.insert().values(
                    profile=name,
                    number=number,
                    phrase=label,
                    share=self.vault.seal(key, share.astype("<i8").tobytes(), where),
                    vector=self.vault.seal(key, vector.astype("<f4").tobytes(), where)
                    if self.rules.keep_vectors
                    else None,
                    extractor=model.extractor_name,
                    speech_s=heard.speech_s,
                    created=now,
                )
            )
            old = next((cell for cell in cells if cell.phrase == label), Cell(label, np.zeros_like(share), 0))
            self._put_cell(connection, name, key, Cell(label, old.total + share, old.count + 1))
            texts.setdefault(label, phrase or label)
            others = [cell for cell in cells if cell.phrase != label]
            row |= self._after(row, [*others, Cell(label, share, old.count + 1)], heard.speech_s)
            row |= {"phrases": json.dumps(texts), "next_number": number + 1, "model": model.store_version}
            row |= {"model_version": model.version, "extractor": model.extractor_name, "last_used": now}
            self._update(connection, row)
            self._mark(connection, name, heard)
            self._note(connection, caller, "enrol", name, detail={"enrollmentId": number, "quality": heard.quality})
        said = self._said(row)
        return {"enrollmentId": number, **said, "quality": heard.quality, **llrs}

    def remove_enrolment(self, name: str, number: int, caller: Caller, etag: str | None = None) -> dict[str, Any]:
        """Take one recording out of the sum, exactly."""
        key = self._data_key(name)
        with self.store.write() as connection:
            row = self._row(connection, name, lock=True)
            self._check_etag(row, etag)
            found = (
                connection.execute(
                    sa.select(enrollments).where(enrollments.c.profile == name, enrollments.c.number == number)
                )
                .mappings()
                .first()
            )
            if found is None:
                raise Problem(404, "not-found", f"there is no enrolment {number} of this profile")
            share = np.frombuffer(self.vault.open(key, bytes(found["share"]), f"{name} {number}"), dtype="<i8")
            cells = []
            for cell in self._cells(connection, name, key):
                if cell.phrase == found["phrase"]:
                    cell = Cell(cell.phrase, cell.total - share, cell.count - 1)
                    self._put_cell(connection, name, key, cell)
                if cell.count:
                    cells.append(cell)
            connection.execute(
                enrollments.delete().where(enrollments.c.profile == name, enrollments.c.number == number)
            )
            row |= self._after(row, cells, -found["speech_s"])
            self._update(connection, row)
            self._note(connection, caller, "remove-enrolment", name, detail={"enrollmentId": number})
        return self._said(row)

    def reset(self, name: str, caller: Caller, etag: str | None = None) -> dict[str, Any]:
        """Take all recordings out; who they were of, their phrase and consent stay."""
        with self.store.write() as connection:
            row = self._row(connection, name, lock=True)
            self._check_etag(row, etag)
            if row["state"] == "opted_out":
                raise Problem(409, "state", "the profile has opted out", state="opted_out")
            self._wipe(connection, name)
            row |= {"state": "created", "enrollments": 0, "speech_s": 0.0, "model": None, "model_version": None}
            row |= {"version": row["version"] + 1, "updated": self.clock(), "last_used": None, "failures": 0}
            row |= {"locked_until": None, "extractor": None}
            self._update(connection, row)
            self._note(connection, caller, "reset", name)
        return self._said(row)

    def leave(self, name: str, caller: Caller, state: str) -> dict[str, Any]:
        """Opt out or be deleted: at once, from any state, whether or not there is a model."""
        with self.store.read() as connection:
            self._row(connection, name)
        self.store.destroy_key(name)
        with self.store.write() as connection:
            row = self._row(connection, name, lock=True)
            self._wipe(connection, name)
            connection.execute(challenges.delete().where(challenges.c.profile == name))
            connection.execute(answers.delete().where(answers.c.request.contains(name) | answers.c.body.contains(name)))
            row |= {"state": state, "enrollments": 0, "speech_s": 0.0, "version": row["version"] + 1, "phrases": "{}"}
            row |= {"updated": self.clock(), "model": None, "model_version": None, "extractor": None, "last_used": None}
            if state == "deleted":
                row |= {"user_id": None, "consent": None}
            self._update(connection, row)
            self._note(connection, caller, "delete" if state == "deleted" else "opt-out", name)
        self.store.settle_files()
        return self._said(row)

    def export(self, name: str, caller: Caller) -> dict[str, Any]:
        """What is kept of a person, in words; vectors are said to be there, and are not shown."""
        with self.store.write() as connection:
            row = self._row(connection, name)
            kept = connection.execute(
                sa.select(enrollments).where(enrollments.c.profile == name).order_by(enrollments.c.number)
            ).mappings()
            listed = [
                {
                    "enrollmentId": e["number"],
                    "phrase": e["phrase"],
                    "created": iso(e["created"]),
                    "speechLength": e["speech_s"],
                    "vectorKept": e["vector"] is not None,
                    "extractor": e["extractor"],
                }
                for e in kept
            ]
            self._note(connection, caller, "export", name)
            records = connection.execute(
                sa.select(audit).where(audit.c.profile == name).order_by(audit.c.id)
            ).mappings()
            record = [said_audit(entry) for entry in records]
        return {
            "profile": self._said(row),
            "consent": json.loads(row["consent"] or "null"),
            "enrollments": listed,
            "record": record,
            "kept": "Sums of numbers made of your recordings, encrypted and turned by a secret key; no sound. "
            + (
                "The numbers of each recording are kept too, encrypted." if any(e["vectorKept"] for e in listed) else ""
            ),
        }

    # -- decisions ---------------------------------------------------------------

    def verify(self, name: str, heard: Sequence[Heard], ask: Ask, caller: Caller) -> dict[str, Any]:
        """Decide whether it is the owner who says the phrase; whatever comes of it is on record."""
        wait = self.profile_rates.wait(name)
        if wait:
            raise Problem(429, "rate", "there are too many attempts on this profile", wait=wait)
        model = self.model
        point = self._point(ask)
        now, result = self.clock(), secrets.token_hex(16)
        with self.store.write() as connection:
            row = self._row(connection, name, lock=True)
            self._check_lock(row)
            wanted = self._wanted(connection, row, ask)
            reason = self._obstacle(connection, row, heard)
            cells: list[Cell] = []
            vectors: list[NDArray[Any]] = []
            if reason is None:
                key = self._data_key(name)
                if self._state(row) == "stale":
                    row = self._again(connection, row, key)
                cells = self._cells(connection, name, key)
                vectors = [self._vector(h) for h in heard]
                if any(self._is_copy(connection, name, key, h, v) for h, v in zip(heard, vectors, strict=True)):
                    reason = "suspected_replay"
        found: Odds | None = None
        decision = "reject" if reason == "suspected_replay" else "inconclusive"
        if reason is None and model is not None:
            found = self._odds(model, cells, vectors, wanted, point, ask.spoof_llr)
            decision = point.verdict(found.llr)
            reason = reason_of(found, decision)
        said = self._answer(result, decision, reason, found, point, heard)
        with self.store.write() as connection:
            row = self._row(connection, name, lock=True)
            self._check_lock(row)  # once more: others may have been turned away meanwhile
            if decision == "reject":
                failures = row["failures"] + 1
                over = failures - self.rules.lock_after
                locked = now + self.rules.lock_s * 2.0 ** min(over, 16) if over >= 0 else None
                row |= {"failures": failures, "locked_until": locked}
            elif decision == "accept":
                row |= {"failures": 0, "locked_until": None, "last_used": now}
                if ask.challenge is not None:
                    here = challenges.c.id == ask.challenge
                    connection.execute(challenges.update().where(here).values(used=now))
            columns = ("failures", "locked_until", "last_used")
            connection.execute(profiles.update().where(profiles.c.id == name).values(**{c: row[c] for c in columns}))
            for one in heard if row["state"] != "opted_out" else ():
                self._mark(connection, name, one)
            kept = {k: v for k, v in said.items() if k not in ("resultId", "quality")}
            self._note(connection, caller, "verify", name, result, kept)
        log.info("verify", extra={"resultId": result, "decision": decision, "reason": reason, "profile": name})
        return said

    def identify(
        self, heard: Heard, candidates: Sequence[str] | None, top: int, prior_none: float, caller: Caller
    ) -> dict[str, Any]:
        """Whose voice is it, whatever was said; and how likely is it nobody's?"""
        model, result = self._model(), secrets.token_hex(16)
        ranked: list[dict[str, Any]] = []
        none, count, reason = 1.0, 0, heard.reason
        if reason is None:
            share = model.prepare(self._vector(heard)[None])[0]
            name_at, llrs = self._index().scores(share, self.clock() - self.rules.expire_days * DAY, candidates)
            count = int(np.isfinite(llrs).sum())
            best = np.argpartition(-llrs, top)[:top] if top < len(llrs) else np.arange(len(llrs))
            best = best[np.isfinite(llrs[best])]
            places = {name_at(place): place for place in best.tolist()}
            cells = self._index().read(list(places)) if places else {}
            with self.store.read() as connection:
                query = sa.select(profiles).where(profiles.c.id.in_(list(cells)), profiles.c.state == "enrolled")
                people = list(connection.execute(query).mappings())
            llrs[best] = -np.inf  # who is leaving at this moment stays so
            # all of it, of these few: the words may be the same, which the quick score takes no notice of
            if people:
                evidence = model.voices([cells[row["id"]] for row in people], Cell("", share, 1))
                llrs[[places[row["id"]] for row in people]] = [odds(own, model.doubt).llr_speaker for own in evidence]
            logs = np.append(llrs - np.log(max(count, 1)) + np.log1p(-prior_none), np.log(prior_none))
            posterior = np.exp(logs - logsumexp(logs))
            none = float(posterior[-1])
            for row in sorted(people, key=lambda row: -llrs[places[row["id"]]]):
                place = places[row["id"]]
                ranked.append(
                    {
                        "profileId": row["id"],
                        "userId": row["user_id"],
                        "llr": float(llrs[place]),
                        "probability": float(posterior[place]),
                    }
                )
        said = {
            "resultId": result,
            "candidates": ranked,
            "noneOfThem": none,
            "profilesCount": count,
            "reason": reason,
            "quality": heard.quality,
            "modelVersion": model.version,
            "notice": model.about.get("notice"),
        }
        first = {"profileId": ranked[0]["profileId"], "llr": ranked[0]["llr"]} if ranked else {}
        detail = {"noneOfThem": none, "profilesCount": count, "best": first, "reason": reason}
        with self.store.write() as connection:
            self._note(connection, caller, "identify", None, result, detail)
        return said

    def challenge(self, name: str, count: int, caller: Caller) -> dict[str, Any]:
        """Phrases drawn at random of those that the profile enrolled and those that the model knows."""
        now = self.clock()
        with self.store.write() as connection:
            row = self._row(connection, name)
            state = self._state(row)
            if state != "enrolled":
                raise Problem(409, "state", f"the profile is {state}: only enrolled ones are challenged", state=state)
            summed = set(connection.execute(sa.select(templates.c.phrase).where(templates.c.profile == name)).scalars())
            texts = {label: text for label, text in json.loads(row["phrases"]).items() if label in summed}
            if self.model is not None and self.model.known:
                texts = {**self.model.texts, **texts}
            own = sa.select(challenges.c.id, challenges.c.phrases).where(challenges.c.profile == name)
            drawn = connection.execute(own.order_by(challenges.c.created.desc())).first()
            said = connection.execute(own.where(challenges.c.used > 0).order_by(challenges.c.used.desc())).first()
            # what was accepted last is not asked for, however often one asks; what was drawn last, if others remain
            fresh = [label for label in texts if said is None or label not in json.loads(said.phrases)]
            rest = [label for label in fresh if drawn is None or label not in json.loads(drawn.phrases)]
            fresh = rest if len(rest) >= count or said is None else fresh
            if len(texts) < 2 or len(fresh) < count:
                raise Problem(
                    409,
                    "too-few-phrases",
                    f"there are {len(texts)} phrases to choose from, which is too few for {count} that differ from the "
                    "last ones: enrol more phrases",
                )
            chosen = secrets.SystemRandom().sample(sorted(fresh), count)
            made, expires = secrets.token_hex(16), now + self.rules.challenge_s
            old = challenges.c.expires < now - DAY
            others = (challenges.c.profile == name) & (challenges.c.id != (said.id if said is not None else ""))
            never = challenges.c.used.is_(None) | (challenges.c.used < 0)
            connection.execute(challenges.delete().where(old & (never | others)))
            connection.execute(
                challenges.insert().values(
                    id=made, profile=name, phrases=json.dumps(chosen), created=now, expires=expires, used=None
                )
            )
            self._note(connection, caller, "challenge", name)
        return {
            "challengeId": made,
            "profileId": name,
            "phrases": [texts[label] for label in chosen],
            "expires": iso(expires),
        }

    # -- phrases -------------------------------------------------------------------

    def list_phrases(self, top: int, after: str | None) -> dict[str, Any]:
        with self.store.read() as connection:
            rows = list(connection.execute(sa.select(phrases)).mappings())
        found = {row["id"]: {"text": row["text"], "locale": row["locale"]} for row in rows}
        for label, text in ({} if self.model is None else self.model.texts).items():
            found.setdefault(label, {"text": text, "locale": "en"})
        known = set() if self.model is None else self._known()
        items = [{"id": i, **found[i], "known": i in known} for i in sorted(found) if not after or i > after]
        return page(items[: top + 1], top, "id")

    def put_phrase(self, name: str, text: str, locale: str | None, caller: Caller) -> tuple[dict[str, Any], bool]:
        label = self._label(text)
        if label != name:
            raise Problem(422, "phrase", f"the id of this phrase is {label!r}, made of its words; got {name!r}")
        with self.store.write() as connection:
            there = connection.execute(sa.select(phrases.c.id).where(phrases.c.id == name)).first() is not None
            if there:
                connection.execute(phrases.update().where(phrases.c.id == name).values(text=text, locale=locale))
            else:
                connection.execute(phrases.insert().values(id=name, text=text, locale=locale, created=self.clock()))
            self._note(connection, caller, "put-phrase", detail={"phrase": name})
        return {"id": name, "text": text, "locale": locale, "known": name in self._known()}, not there

    def delete_phrase(self, name: str, caller: Caller) -> None:
        with self.store.write() as connection:
            if not connection.execute(phrases.delete().where(phrases.c.id == name)).rowcount:
                raise Problem(404, "not-found", f"there is no phrase {name!r} that was put here")
            self._note(connection, caller, "delete-phrase", detail={"phrase": name})

    # -- record --------------------------------------------------------------------

    def list_audit(
        self, top: int, after: str | None, profile: str | None, result: str | None, action: str | None
    ) -> dict[str, Any]:
        """The record, newest first."""
        query = sa.select(audit).order_by(audit.c.id.desc()).limit(top + 1)
        for column, wanted in ((audit.c.profile, profile), (audit.c.result_id, result), (audit.c.action, action)):
            if wanted is not None:
                query = query.where(column == wanted)
        if after:
            if not (after.isascii() and after.isdigit()) or len(after) > 15:
                raise Problem(422, "after", "after is the `next` of the page before")
            query = query.where(audit.c.id < int(after))
        with self.store.read() as connection:
            items = [{**said_audit(row), "id": str(row["id"])} for row in connection.execute(query).mappings()]
        return page(items, top, "id")

    def line(self) -> dict[str, Any]:
        """Where the line is drawn, where a call says nothing about it."""
        point = self._point(Ask())
        return {
            "threshold": point.threshold,
            "rejectThreshold": point.reject,
            "far": self.far,
            "prior": point.prior,
        }

    def count(self, state: str | None = None) -> int:
        """How many profiles there are, or of those, how many in a state."""
        query = sa.select(sa.func.count()).select_from(profiles).where(profiles.c.state != "deleted")
        if state == "stale":
            query = query.where(profiles.c.model != self._model().store_version)
        elif state is not None:
            query = query.where(profiles.c.state == state)
        with self.store.read() as connection:
            return int(connection.execute(query).scalar_one())

    # -- inside ----------------------------------------------------------------------

    def hear(self, data: bytes) -> Heard:
        model = self._model()
        if model.extractor is None:
            raise Problem(422, "no-extractor", "this service has no extractor: send vectors")
        return hear(model.extractor, data, self.rules.audio)

    def heard_vector(self, vector: Any) -> Heard:
        model = self._model()
        try:
            array = model.checked(np.asarray(vector, dtype=np.float64)[None])[0].astype(np.float32)
            model.checked(array[None])  # as it is kept: numbers that are too small are 0 there
        except (DataError, ValueError, TypeError, OverflowError) as error:
            raise Problem(422, "vector", f"a vector is a list of {model.width} finite numbers: {error}") from error
        return Heard(array)

    def _model(self) -> ServiceModel:
        if self.model is None:
            raise Problem(503, "no-model", "no model is loaded", wait=30)
        return self.model

    def _index(self) -> Index:
        self._model()
        assert self.index is not None
        return self.index

    @property
    def far(self) -> float:
        """The share of false acceptances that is wanted where a call says nothing."""
        own = None if self.model is None else self.model.about.get("far")
        return float(self.rules.far or own or 0.01)

    def _known(self) -> set[str]:
        return set(self.model.phrases) if self.model is not None and self.model.known else set()

    def _label(self, phrase: str) -> str:
        label = slug(phrase)
        if not label or len(phrase) > 200:
            raise Problem(422, "phrase", "a phrase has words, and at most 200 characters")
        return label

    def _row(self, connection: Connection, name: str, lock: bool = False) -> dict[str, Any]:
        query = sa.select(profiles).where(profiles.c.id == name)
        row = connection.execute(query.with_for_update() if lock else query).mappings().first()
        if row is None:
            raise Problem(404, "not-found", "there is no such profile")
        if row["state"] == "deleted":
            raise Problem(410, "deleted", f"the profile was deleted at {iso(row['updated'])}")
        return dict(row)

    def _state(self, row: Mapping[str, Any]) -> str:
        """The state that is stored, or what time or a new model made of it."""
        state = str(row["state"])
        if state in ("opted_out", "deleted", "created"):
            return state
        if self.clock() > self._expires(row):
            return "expired"
        if self.model is not None and row["model"] not in (None, self.model.store_version):
            return "stale"
        return state

    def _expires(self, row: Mapping[str, Any]) -> float:
        return float(row["last_used"] or row["created"]) + self.rules.expire_days * DAY

    def _said(self, row: Mapping[str, Any]) -> dict[str, Any]:
        state = self._state(row)
        texts = json.loads(row["phrases"])
        return {
            "profileId": row["id"],
            "userId": row["user_id"],
            "state": state,
            "phrases": list(texts.values()),
            "enrollmentsCount": row["enrollments"],
            "remainingEnrollmentsCount": 0 if state == "enrolled" else self._remaining(row),
            "speechLength": round(row["speech_s"], 3),
            "modelVersion": row["model_version"],
            "created": iso(row["created"]),
            "updated": iso(row["updated"]),
            "lastUsed": iso(row["last_used"]),
            "expires": iso(self._expires(row)) if state in ("enrolling", "enrolled", "stale") else None,
            "etag": f'"{row["version"]}"',
        }

    def _remaining(self, row: Mapping[str, Any]) -> int:
        # of several phrases none may have enough yet, however many they are together
        return max(int(row["state"] == "enrolling"), self.rules.required - int(row["enrollments"]))

    def _after(self, row: Mapping[str, Any], cells: Sequence[Cell], speech_s: float) -> dict[str, Any]:
        """What a changed sum makes of the profile."""
        most = max((cell.count for cell in cells), default=0)
        state = "created" if not most else "enrolled" if most >= self.rules.required else "enrolling"
        count = sum(cell.count for cell in cells)
        speech = max(0.0, row["speech_s"] + speech_s)
        return {
            "state": state,
            "enrollments": count,
            "speech_s": speech,
            "version": row["version"] + 1,
            "updated": self.clock(),
        }

    def _update(self, connection: Connection, row: Mapping[str, Any]) -> None:
        connection.execute(profiles.update().where(profiles.c.id == row["id"]).values(**row))

    def _check_etag(self, row: Mapping[str, Any], etag: str | None) -> None:
        if etag is not None and etag.strip() not in ("*", f'"{row["version"]}"'):
            raise Problem(
                409,
                "changed",
                f'the profile has changed since: its ETag is "{row["version"]}" now',
                etag=row["version"],
            )

    def _check_lock(self, row: Mapping[str, Any]) -> None:
        until = row["locked_until"]
        if until is not None and until > self.clock():
            raise Problem(
                429,
                "locked",
                f"after {row['failures']} rejections the profile is locked for a while",
                wait=until - self.clock(),
            )

    def _data_key(self, name: str) -> bytes:
        wrapped = self.store.get_key(name)
        if wrapped is None:
            with self.store.read() as connection:
                state = self._row(connection, name)["state"]
            raise Problem(409, "state", f"the profile is {state}: nothing is kept of it", state=state)
        return self.vault.unwrap(wrapped, name)

    def _cells(self, connection: Connection, name: str, key: bytes) -> list[Cell]:
        rows = connection.execute(sa.select(templates).where(templates.c.profile == name)).mappings()
        return [
            Cell(
                r["phrase"],
                np.frombuffer(self.vault.open(key, bytes(r["total"]), f"{name} {r['phrase']}"), "<i8"),
                r["count"],
            )
            for r in rows
        ]

    def _put_cell(self, connection: Connection, name: str, key: bytes, cell: Cell) -> None:
        here = (templates.c.profile == name) & (templates.c.phrase == cell.phrase)
        connection.execute(templates.delete().where(here))
        if cell.count:
            total = self.vault.seal(key, cell.total.astype("<i8").tobytes(), f"{name} {cell.phrase}")
            connection.execute(
                templates.insert().values(profile=name, phrase=cell.phrase, count=cell.count, total=total)
            )

    def _wipe(self, connection: Connection, name: str) -> None:
        for table in (templates, enrollments, marks):
            connection.execute(table.delete().where(table.c.profile == name))

    def _again(self, connection: Connection, row: dict[str, Any], key: bytes) -> dict[str, Any]:
        """Enrol kept vectors once more, with the model of today."""
        model, name = self._model(), row["id"]
        kept = list(connection.execute(sa.select(enrollments).where(enrollments.c.profile == name)).mappings())
        if any(e["vector"] is None or e["extractor"] != model.extractor_name for e in kept):
            raise Problem(
                409,
                "model-changed",
                "the extractor or the model has changed since: reset the profile, and enrol again",
                state="stale",
            )
        sums: dict[str, Cell] = {}
        for e in kept:
            where = f"{name} {e['number']}"
            vector = np.frombuffer(self.vault.open(key, bytes(e["vector"]), where), dtype="<f4")
            share = model.prepare(vector[None])[0]
            old = sums.get(e["phrase"], Cell(e["phrase"], np.zeros_like(share), 0))
            sums[e["phrase"]] = Cell(e["phrase"], old.total + share, old.count + 1)
            sealed = self.vault.seal(key, share.astype("<i8").tobytes(), where)
            here = (enrollments.c.profile == name) & (enrollments.c.number == e["number"])
            connection.execute(enrollments.update().where(here).values(share=sealed))
        connection.execute(templates.delete().where(templates.c.profile == name))
        for cell in sums.values():
            self._put_cell(connection, name, key, cell)
        row |= self._after(row, list(sums.values()), 0.0)
        row |= {"model": model.store_version, "model_version": model.version, "extractor": model.extractor_name}
        self._update(connection, row)
        self._note(connection, Caller("service", "admin"), "enrol-again", name)
        return row

    def _consistency(self, cells: Sequence[Cell], new: Cell) -> dict[str, float | None]:
        """How well a new enrolment fits those before it: in its words, and in its voice."""
        model = self._model()
        same = [cell for cell in cells if cell.phrase == new.phrase]
        if not cells:
            return {"phraseLlr": None, "consistencyLlr": None}
        found = odds(model.evidence(same or cells, [new], bool(same)), model.doubt)
        return {"phraseLlr": found.llr_phrase if same else None, "consistencyLlr": found.llr_speaker}

    def _vector(self, heard: Heard) -> NDArray[Any]:
        assert heard.vector is not None
        return heard.vector

    def _is_copy(self, connection: Connection, name: str, key: bytes, heard: Heard, vector: NDArray[Any]) -> bool:
        if not heard.digest:
            return False
        mark = self.vault.mark(name, heard.digest)
        if connection.execute(sa.select(marks.c.at).where(marks.c.profile == name, marks.c.mark == mark)).first():
            return True
        rows = connection.execute(
            sa.select(enrollments.c.number, enrollments.c.vector).where(
                enrollments.c.profile == name, enrollments.c.vector.is_not(None)
            )
        )
        for number, sealed in rows:
            other = np.frombuffer(self.vault.open(key, bytes(sealed), f"{name} {number}"), dtype="<f4")
            if len(other) == len(vector) and cosine(other, vector) > NEAR:
                return True
        return False

    def _check_new(self, connection: Connection, name: str, key: bytes, heard: Heard, vector: NDArray[Any]) -> None:
        if self._is_copy(connection, name, key, heard, vector):
            raise self._refused("suspected_replay", heard)

    def _mark(self, connection: Connection, name: str, heard: Heard) -> None:
        if not heard.digest:
            return
        mark = self.vault.mark(name, heard.digest)
        here = (marks.c.profile == name) & (marks.c.mark == mark)
        if connection.execute(sa.select(marks.c.at).where(here)).first() is None:
            old = (marks.c.profile == name) & (marks.c.at < self.clock() - MARKS_DAYS * DAY)
            connection.execute(marks.delete().where(old))
            connection.execute(marks.insert().values(profile=name, mark=mark, at=self.clock()))

    def _refused(self, reason: str, heard: Heard, **more: Any) -> Problem:
        detail = heard.detail or SENTENCES.get(reason, reason)
        return Problem(422, "refused", detail, reason=reason, quality=heard.quality, **more)

    def _point(self, ask: Ask) -> Point:
        model = self.model
        far = self.far if ask.far is None and ask.prior is None else ask.far
        try:
            return choose_point(
                None if model is None else model.errors,
                float("inf") if model is None else model.most,
                far=far,
                prior=ask.prior,
                miss_cost=ask.miss_cost,
                false_alarm_cost=ask.false_alarm_cost,
            )
        except ParameterError as error:
            raise Problem(422, "operating-point", str(error)) from error

    def _wanted(self, connection: Connection, row: Mapping[str, Any], ask: Ask) -> list[str] | None:
        """Labels of the phrases that were asked for; None: any of the enrolled ones. A challenge is used up by this."""
        if ask.challenge is None:
            return None if ask.phrase is None else [self._label(ask.phrase)]
        found = connection.execute(sa.select(challenges).where(challenges.c.id == ask.challenge)).mappings().first()
        if found is None or found["profile"] != row["id"]:
            raise Problem(404, "not-found", "there is no such challenge of this profile")
        here = (challenges.c.id == ask.challenge) & challenges.c.used.is_(None)
        used = connection.execute(challenges.update().where(here).values(used=-self.clock())).rowcount
        if not used:
            raise Problem(409, "challenge-used", "the challenge was answered already: ask for another")
        if found["expires"] < self.clock():
            raise Problem(409, "challenge-expired", "the challenge is too old: ask for another")
        wanted: list[str] = json.loads(found["phrases"])
        return wanted

    def _obstacle(self, connection: Connection, row: Mapping[str, Any], heard: Sequence[Heard]) -> str | None:
        """Why nothing can be decided, whatever was said."""
        state = self._state(row)
        if self.model is None:
            self._model()
        if state in ("opted_out", "expired"):
            return state
        if state in ("created", "enrolling"):
            return "not_enrolled"
        if state == "stale":
            kept = connection.execute(
                sa.select(enrollments.c.vector.is_(None), enrollments.c.extractor).where(
                    enrollments.c.profile == row["id"]
                )
            )
            if any(gone or extractor != self._model().extractor_name for gone, extractor in kept):
                return "model_changed"
        return next((h.reason for h in heard if h.reason is not None), None)

    def _odds(
        self,
        model: ServiceModel,
        cells: Sequence[Cell],
        vectors: Sequence[NDArray[Any]],
        wanted: Sequence[str] | None,
        point: Point,
        spoof: float | None,
    ) -> Odds:
        shares = model.prepare(np.stack(vectors))
        if wanted is None:
            if len(shares) > 1:
                raise Problem(422, "recordings", "several recordings are answers to a challenge of as many phrases")
            return odds(model.evidence(cells, [Cell("", shares[0], 1)], False), model.doubt, point.prior, spoof)
        if len(shares) != len(wanted):
            raise Problem(
                422,
                "recordings",
                f"{len(wanted)} phrases were asked for: send as many recordings, in their order; got {len(shares)}",
            )
        enrolled = {cell.phrase for cell in cells}
        new = [label for label in wanted if label not in enrolled and label not in self._known()]
        if new:
            raise Problem(
                422,
                "phrase",
                f"the phrase {new[0]!r} is neither enrolled nor known to the model",
                reason="not_enrolled",
            )
        tests = [Cell(label, share, 1) for label, share in zip(wanted, shares, strict=True)]
        return odds(model.evidence(cells, tests, True), model.doubt, point.prior, spoof)

    def _answer(
        self, result: str, decision: str, reason: str | None, found: Odds | None, point: Point, heard: Sequence[Heard]
    ) -> dict[str, Any]:
        model = self.model
        errors = None if model is None else model.errors
        qualities = [h.quality for h in heard]
        return {
            "resultId": result,
            "decision": decision,
            "reason": reason,
            "llr": None if found is None else found.llr,
            "threshold": point.threshold,
            "rejectThreshold": point.reject,
            "posteriors": None if found is None else found.posteriors,
            "prior": point.prior,
            "llrSpeaker": None if found is None else found.llr_speaker,
            "llrPhrase": None if found is None else found.llr_phrase,
            "operatingPoint": None if errors is None else errors.at(point.threshold),
            "quality": qualities[0] if len(qualities) == 1 else qualities,
            "modelVersion": None if model is None else model.version,
            "notice": None if model is None else model.about.get("notice"),
        }

    def _note(
        self,
        connection: Connection,
        caller: Caller,
        action: str,
        profile: str | None = None,
        result: str | None = None,
        detail: Mapping[str, Any] | None = None,
    ) -> None:
        connection.execute(
            audit.insert().values(
                at=self.clock(),
                caller=caller.name,
                action=action,
                profile=profile,
                result_id=result,
                detail=json.dumps(detail or {}),
            )
        )


def said_audit(row: Any) -> dict[str, Any]:
    return {
        "at": iso(row["at"]),
        "caller": row["caller"],
        "action": row["action"],
        "profileId": row["profile"],
        "resultId": row["result_id"],
        **json.loads(row["detail"]),
    }


def page(items: list[dict[str, Any]], top: int, by: str) -> dict[str, Any]:
    """A page of a list; `next` is what `after` names for the next one."""
    return {"items": items[:top], "next": str(items[top - 1][by]) if len(items) > top else None}


def iso(at: float | None) -> str | None:
    return (
        None
        if at is None
        else datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    )


def cosine(a: NDArray[Any], b: NDArray[Any]) -> float:
    a, b = a.astype(np.float64), b.astype(np.float64)
    return float(a @ b / max(float(np.linalg.norm(a) * np.linalg.norm(b)), 1e-12))
