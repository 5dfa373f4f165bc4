"""API keys of callers: those in the database, those of the environment, and the calls per minute of each."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING

import sqlalchemy as sa
from pydantic import TypeAdapter, ValidationError
from sqlalchemy import bindparam

from ..exceptions import ParameterError
from .keys import Caller, KeyPolicy, key_hash, new_api_key
from .tables import API_KEYS, META

if TYPE_CHECKING:
    from .store import Store

MINUTE = 60.0
# Environment variable with entries NAME:ROLE:KEY, separated by blanks; ROLE may be followed by ,detail=... ,far=...
# ,require=... and ,tenant=...
API_KEYS_VARIABLE = "MVPLDA_API_KEYS"
ENTRY = re.compile("([^:]+):(verify|enrol|admin)((?:,[a-z]+=[^:,]+)*):(.{16,})")

# Statements with ON CONFLICT are text: SQLAlchemy has one construct per database, and the same SQL serves both.
PUT_API_KEY = sa.text(
    "INSERT INTO api_keys (hash, name, role, created, tenant, detail, far, require) "
    "VALUES (:hash, :name, :role, :created, :tenant, :detail, :far, :require) "
    "ON CONFLICT (hash) DO UPDATE SET role = excluded.role, tenant = excluded.tenant, detail = excluded.detail, "
    "far = excluded.far, require = excluded.require"
)
# Marks a database that was served with API keys.
PUT_MARK = sa.text(
    "INSERT INTO meta (name, value) VALUES ('api keys', 'required') ON CONFLICT (name) DO NOTHING"
)
DELETE_MARK = META.delete().where(META.c.name == "api keys")
# Takes calls out of a minute's share if enough are left. A time beyond the next minute was written by a wrong clock.
SPEND = sa.text(
    "INSERT INTO rates (name, until) VALUES (:name, :now + :cost) ON CONFLICT (name) DO UPDATE "
    "SET until = CASE WHEN rates.until BETWEEN :now AND :end THEN rates.until ELSE :now END + :cost "
    "WHERE rates.until <= :end - :cost OR rates.until > :end"
)
RATE_UNTIL = sa.text("SELECT until FROM rates WHERE name = :name")
CALLERS = sa.select(
    API_KEYS.c.hash,
    API_KEYS.c.name,
    API_KEYS.c.role,
    API_KEYS.c.tenant,
    API_KEYS.c.detail,
    API_KEYS.c.far,
    API_KEYS.c.require,
)
CALLER = CALLERS.where(API_KEYS.c.hash == bindparam("hash"))


class ApiKeys:
    """API keys of a database and of the environment.

    Keys of the environment are not stored. To revoke one, remove it from the environment and restart the service.
    """

    def __init__(self, store: Store, environment: Mapping[str, Caller] | None = None) -> None:
        self._store = store
        self.environment = dict(environment or {})

    def put(
        self,
        name: str,
        role: str,
        key: str | None = None,
        policy: KeyPolicy | None = None,
        tenant: str | None = None,
    ) -> str:
        """Store the hash of a key, in place of an earlier key of the same name, and return the key."""
        self._check_name(name)
        key = key or new_api_key()
        digest = key_hash(key)
        with self._store.write() as work:
            work.run(
                API_KEYS.delete().where(API_KEYS.c.name == name).where(API_KEYS.c.hash != digest)
            )
            owner = work.first(stored_caller, CALLER, hash=digest)
            if owner is not None and owner.name != name:
                raise ParameterError(
                    f"the API key of {name!r} is also that of {owner.name!r}: give every caller another key"
                )
            columns = {**asdict(policy or KeyPolicy()), "tenant": tenant}
            work.run(PUT_API_KEY, hash=digest, name=name, role=role, created=work.now, **columns)
            work.run(PUT_MARK)
        return key

    def drop(self, name: str) -> bool:
        """Delete the key of a name; return whether there was one.

        After the last key is revoked, calls from the same machine need no key again.
        """
        self._check_name(name)
        with self._store.write() as work:
            is_found = bool(work.run(API_KEYS.delete().where(API_KEYS.c.name == name)).rowcount)
            if not work.value(sa.select(sa.func.count()).select_from(API_KEYS)):
                work.run(DELETE_MARK)
        return is_found

    def _check_name(self, name: str) -> None:
        if name in [caller.name for caller in self.environment.values()]:
            raise ParameterError(
                f"the key {name!r} comes from {API_KEYS_VARIABLE}: change it there, and restart the service"
            )

    def names(self) -> list[str]:
        with self._store.read() as work:
            stored = list(work.run(sa.select(API_KEYS.c.name)).scalars())
        return [*stored, *(caller.name for caller in self.environment.values())]

    def are_lost(self) -> bool:
        """Return whether the service was used with API keys and has none now, without their being revoked."""
        return not self.names() and self._store.meta("api keys") is not None

    def require(self) -> None:
        """Mark the database as one that is served with API keys, if there are any."""
        if self.environment:
            with self._store.write() as work:
                work.run(PUT_MARK)

    def find(self, key: str) -> Caller | None:
        digest = key_hash(key)
        if digest in self.environment:
            return self.environment[digest]
        with self._store.read() as work:
            return work.first(stored_caller, CALLER, hash=digest)

    def all(self) -> dict[str, Caller]:
        """Return all callers by the hash of their key."""
        with self._store.read() as work:
            stored = {row[0]: stored_caller(*tuple(row)) for row in work.run(CALLERS)}
        return stored | self.environment

    def spend(self, name: str, calls: int, per_minute: float) -> float:
        """Count calls towards the rate limit of a key, over all processes.

        Returns 0, or the seconds to wait if too few are left.
        """
        cost = 60 * calls / per_minute
        with self._store.write() as work:
            end = work.now + MINUTE
            if work.run(SPEND, name=name, now=work.now, cost=cost, end=end).rowcount:
                return 0.0
            return float(work.value(RATE_UNTIL, name=name)) + cost - end


def stored_caller(digest: str, name: str, role: str, tenant: str | None, *policy: object) -> Caller:
    """Return the caller of a row."""
    return Caller(name, role, KeyPolicy(*policy), tenant)  # type: ignore[arg-type]


def environment_keys() -> dict[str, Caller]:
    """Return the callers of the environment by the hash of their key."""
    found: dict[str, Caller] = {}
    for entry in os.environ.get(API_KEYS_VARIABLE, "").split():
        fields = ENTRY.fullmatch(entry)
        if fields is None:
            raise ParameterError(
                f"expected NAME:ROLE:KEY in {API_KEYS_VARIABLE}, with a role of verify, enrol or admin and a key of "
                "at least 16 characters; ROLE may be followed by ,detail=... ,far=... ,require=... and ,tenant=..."
            )
        name, role, options, key = fields.groups()
        texts = dict(option.split("=", 1) for option in options.split(",")[1:])
        tenant = texts.pop("tenant", None)
        try:
            policy = TypeAdapter(KeyPolicy).validate_python(texts)
        except ValidationError as error:
            fault = error.errors()[0]
            raise ParameterError(
                f"the key {name!r} of {API_KEYS_VARIABLE} has a wrong policy: "
                f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}"
            ) from error
        owner = found.get(key_hash(key))
        if owner is not None:
            raise ParameterError(
                f"the API key of {name!r} is also that of {owner.name!r}: give every caller another key"
            )
        found[key_hash(key)] = Caller(name, role, policy, tenant)
    return found
