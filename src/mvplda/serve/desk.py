"""What every room of the service stands on: its rules, a profile's row and state, and the record of what was done."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray
from sqlalchemy.engine import Connection

from ..exceptions import DataError, ParameterError
from .audio import SENTENCES, Countermeasure, Heard, Limits, hear
from .decisions import EVEN
from .keys import Caller, Master, Rates, Vault
from .model import ServiceModel, slug
from .store import Store, audit, profiles, templates

log = logging.getLogger("mvplda.serve")
DAY = 86400.0


class Problem(Exception):
    """An answer that is no success: RFC 9457 has its shape."""

    def __init__(
        self, status: int, kind: str, detail: str, *, wait: float | None = None, **more: Any
    ) -> None:
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
    least_llr : an enrolment whose voice, words or living speaker are less likely than this is refused
    far : wanted share of false acceptances, where a call says nothing; None: what the model says, or 0.01
    weights : how often TW, IC, IW and spoof come among what is to be turned away, relative to each other
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
    weights: Mapping[str, float] = field(default_factory=lambda: dict(EVEN))
    audio: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        if set(self.weights) != set(EVEN) or not all(
            0 < weight < np.inf for weight in self.weights.values()
        ):
            raise ParameterError(
                f"weights are positive numbers of {', '.join(EVEN)}; got {dict(self.weights)}"
            )


class Desk:
    """The database, the secrets, the model and the clock, and what is read and noted alike by all.

    Parameters
    ----------
    model : None: nothing can be decided, but people can still leave
    countermeasure : what listens for replays: samples and rate in, an LLR of a person against a machine out
    """

    def __init__(
        self,
        store: Store,
        master: Master,
        model: ServiceModel | None,
        rules: Rules | None = None,
        clock: Callable[[], float] = time.time,
        countermeasure: Countermeasure | None = None,
    ) -> None:
        self.store, self.model, self.rules, self.clock = store, model, rules or Rules(), clock
        self.countermeasure, self.vault = countermeasure, Vault(master)
        self.key_rates, self.profile_rates = (
            Rates(self.rules.key_rate),
            Rates(self.rules.profile_rate),
        )
        mark = master.derived("check").hex()
        if store.remember("master", mark) != mark:
            raise ParameterError(
                "the master key is another one than that which this database was made with"
            )

    # -- what comes in ---------------------------------------------------------------

    def hear(self, data: bytes) -> Heard:
        model = self._model()
        if model.extractor is None:
            raise Problem(422, "no-extractor", "this service has no extractor: send vectors")
        return hear(model.extractor, data, self.rules.audio, self.countermeasure)

    def heard_vector(self, vector: Any) -> Heard:
        model = self._model()
        try:
            array = model.checked(np.asarray(vector, dtype=np.float64)[None])[0].astype(np.float32)
            model.checked(array[None])  # as it is kept: numbers that are too small are 0 there
        except (DataError, ValueError, TypeError, OverflowError) as error:
            raise Problem(
                422, "vector", f"a vector is a list of {model.width} finite numbers: {error}"
            ) from error
        # where sound is listened to for replays, what has none decides nothing
        return Heard(array, reason=None if self.countermeasure is None else "countermeasure_failed")

    def _vector(self, heard: Heard) -> NDArray[Any]:
        assert heard.vector is not None
        return heard.vector

    def _model(self) -> ServiceModel:
        if self.model is None:
            raise Problem(503, "no-model", "no model is loaded", wait=30)
        return self.model

    def _known(self) -> set[str]:
        return set(self.model.phrases) if self.model is not None and self.model.known else set()

    def _label(self, phrase: str) -> str:
        label = slug(phrase)
        if not label or len(phrase) > 200:
            raise Problem(422, "phrase", "a phrase has words, and at most 200 characters")
        return label

    # -- a profile -------------------------------------------------------------------

    def _row(
        self, connection: Connection, name: str, etag: str | None = None, lock: bool = False
    ) -> dict[str, Any]:
        """A profile, if it is there, and as it was when a caller saw it."""
        query = sa.select(profiles).where(profiles.c.id == name)
        row = connection.execute(query.with_for_update() if lock else query).mappings().first()
        if row is None:
            raise Problem(404, "not-found", "there is no such profile")
        if row["state"] == "deleted":
            raise Problem(410, "deleted", f"the profile was deleted at {iso(row['updated'])}")
        now = f'"{row["version"]}"'
        if etag is not None and etag.strip() not in ("*", now):
            raise Problem(
                409, "changed", f"the profile has changed since: its ETag is {now} now", etag=now
            )
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

    def _said(self, connection: Connection, *rows: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Profiles as the service tells of them."""
        counts: dict[str, dict[str, int]] = {row["id"]: {} for row in rows}
        columns = (templates.c.profile, templates.c.phrase, templates.c["count"])
        for name, label, count in connection.execute(
            sa.select(*columns).where(templates.c.profile.in_(counts))
        ):
            counts[name][label] = count
        return [self._one_said(row, counts[row["id"]]) for row in rows]

    def _one_said(self, row: Mapping[str, Any], counts: Mapping[str, int]) -> dict[str, Any]:
        state, required = self._state(row), self.rules.required
        left = {
            text: max(0, required - counts.get(label, 0))
            for label, text in json.loads(row["phrases"]).items()
        }
        return {
            "profileId": row["id"],
            "userId": row["user_id"],
            "state": state,
            "phrases": list(left),
            "enrollmentsCount": row["enrollments"],
            "remainingEnrollmentsCount": min(left.values(), default=required),
            "remainingByPhrase": left,
            "speechLength": round(row["speech_s"], 3),
            "modelVersion": row["model_version"],
            "created": iso(row["created"]),
            "updated": iso(row["updated"]),
            "lastUsed": iso(row["last_used"]),
            "expires": iso(self._expires(row))
            if state in ("enrolling", "enrolled", "stale")
            else None,
            "etag": f'"{row["version"]}"',
        }

    def _update(self, connection: Connection, row: dict[str, Any], **changes: Any) -> None:
        """Change a profile: whoever saw it before knows it by its ETag, and identification by its time."""
        row |= {"version": row["version"] + 1, "updated": self.clock(), **changes}
        connection.execute(profiles.update().where(profiles.c.id == row["id"]).values(**row))

    def _refused(self, reason: str, heard: Heard, **more: Any) -> Problem:
        detail = heard.detail or SENTENCES.get(reason, reason)
        return Problem(422, "refused", detail, reason=reason, quality=heard.quality, **more)

    # -- the record ------------------------------------------------------------------

    def _note(
        self,
        connection: Connection,
        caller: Caller,
        action: str,
        profile: str | None = None,
        result: str | None = None,
        detail: Mapping[str, Any] | None = None,
    ) -> None:
        row = {
            "at": self.clock(),
            "caller": caller.name,
            "action": action,
            "profile": profile,
            "result_id": result,
        }
        connection.execute(audit.insert().values(**row, detail=json.dumps(detail or {})))


def said_audit(row: Any) -> dict[str, Any]:
    return {
        "at": iso(row["at"]),
        "caller": row["caller"],
        "action": row["action"],
        "profileId": row["profile"],
        "resultId": row["result_id"],
        **json.loads(row["detail"]),
    }


def page(items: Sequence[dict[str, Any]], top: int, by: str) -> dict[str, Any]:
    """A page of a list; `next` is what `after` names for the next one."""
    return {
        "items": list(items[:top]),
        "next": str(items[top - 1][by]) if len(items) > top else None,
    }


def iso(at: float | None) -> str | None:
    if at is None:
        return None
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
