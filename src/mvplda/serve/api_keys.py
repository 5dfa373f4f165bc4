"""API keys of callers, stored in the database or given by the environment, and their limit of calls per minute."""

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
# Environment variable with entries NAME:ROLE:KEY, separated by blanks. Options may follow ROLE: ,detail=... ,far=...
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
# Marks a database that was once served with API keys, so that it is not served without keys by mistake.
PUT_MARK = sa.text(
    "INSERT INTO meta (name, value) VALUES ('api keys', 'required') ON CONFLICT (name) DO NOTHING"
)
DELETE_MARK = META.delete().where(META.c.name == "api keys")
# Moves the time of a key forward by the cost of its calls, unless that exceeds the next minute. A stored time beyond
# the next minute was written by a wrong clock and is replaced.
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
    """API keys of callers: those stored in a database, and those given by the environment.

    Keys of the environment are not stored. To revoke one of them, remove it from the environment and restart the
    service.

    Parameters
    ----------
    store : database with the hashes of the stored keys
    environment : callers of the environment by the hash of their key
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
        """Store the hash of an API key; an earlier key of the same name becomes invalid.

        Parameters
        ----------
        name : name of the caller in the audit
        role : "verify", "enrol" or "admin"
        key : the key; None: a new random key
        policy : limits of the caller; None: the defaults of the role
        tenant : name of the tenant whose people the key gives access to; None: those of the service itself

        Returns
        -------
        the key in plain text, which cannot be read again later

        Raises
        ------
        ParameterError : if another caller has the same key, or if the name belongs to a key of the environment
        """
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
                    f"the callers {name!r} and {owner.name!r} have the same API key: give every caller its own key"
                )
            columns = {**asdict(policy or KeyPolicy()), "tenant": tenant}
            work.run(PUT_API_KEY, hash=digest, name=name, role=role, created=work.now, **columns)
            work.run(PUT_MARK)
        return key

    def drop(self, name: str) -> bool:
        """Revoke the stored key with this name; return whether such a key existed.

        After the last key is revoked, calls from the same machine need no key again.
        """
        self._check_name(name)
        with self._store.write() as work:
            is_found = bool(work.run(API_KEYS.delete().where(API_KEYS.c.name == name)).rowcount)
            if not work.value(sa.select(sa.func.count()).select_from(API_KEYS)):
                work.run(DELETE_MARK)
        return is_found

    def _check_name(self, name: str) -> None:
        """Raise `ParameterError` if the name belongs to a key of the environment."""
        if name in [caller.name for caller in self.environment.values()]:
            raise ParameterError(
                f"the API key {name!r} comes from the environment variable {API_KEYS_VARIABLE}: change it there, and "
                "restart the service"
            )

    def names(self) -> list[str]:
        """Return the names of all keys, stored ones first."""
        with self._store.read() as work:
            stored = list(work.run(sa.select(API_KEYS.c.name)).scalars())
        return [*stored, *(caller.name for caller in self.environment.values())]

    def are_lost(self) -> bool:
        """Return whether no API key exists, although the service had some and they were not revoked.

        Probably the environment variable with the keys was forgotten.
        """
        return not self.names() and self._store.meta("api keys") is not None

    def require(self) -> None:
        """If the environment has API keys, note in the database that it needs keys, for `are_lost`."""
        if self.environment:
            with self._store.write() as work:
                work.run(PUT_MARK)

    def find(self, key: str) -> Caller | None:
        """Return the caller that owns an API key; None if the key is invalid."""
        digest = key_hash(key)
        if digest in self.environment:
            return self.environment[digest]
        with self._store.read() as work:
            return work.first(stored_caller, CALLER, hash=digest)

    def all(self) -> dict[str, Caller]:
        """Return {hash of the key: caller} of all keys."""
        with self._store.read() as work:
            stored = {row[0]: stored_caller(*tuple(row)) for row in work.run(CALLERS)}
        return stored | self.environment

    def spend(self, name: str, calls: int, per_minute: float) -> float:
        """Count calls towards the rate limit of a key, in the database, so that the limit holds for all processes.

        Parameters
        ----------
        name : name of the key
        calls : number of calls to count
        per_minute : largest number of calls per minute

        Returns
        -------
        0 if the calls are allowed; otherwise the seconds until they are allowed, and they are not counted
        """
        cost = 60 * calls / per_minute
        with self._store.write() as work:
            end = work.now + MINUTE
            if work.run(SPEND, name=name, now=work.now, cost=cost, end=end).rowcount:
                return 0.0
            return float(work.value(RATE_UNTIL, name=name)) + cost - end


def stored_caller(digest: str, name: str, role: str, tenant: str | None, *policy: object) -> Caller:
    """Return the caller in a row of the table ``api_keys``.

    digest : hash of the key
    name, role, tenant : see `Caller`
    policy : the columns detail, far and require, see `KeyPolicy`
    """
    return Caller(name, role, KeyPolicy(*policy), tenant)  # type: ignore[arg-type]


def environment_keys() -> dict[str, Caller]:
    """Return {hash of the key: caller} of the keys in the environment variable `API_KEYS_VARIABLE`.

    Raises
    ------
    ParameterError : if an entry of the variable is malformed, or if two callers have the same key
    """
    found: dict[str, Caller] = {}
    for number, entry in enumerate(os.environ.get(API_KEYS_VARIABLE, "").split(), 1):
        fields = ENTRY.fullmatch(entry)
        if fields is None:
            raise ParameterError(
                f"entry {number} of {API_KEYS_VARIABLE}: expected NAME:ROLE:KEY, with a role of verify, enrol or admin "
                "and a key of at least 16 characters; ROLE may be followed by ,detail=... ,far=... ,require=... and "
                ",tenant=..."
            )
        name, role, options, key = fields.groups()
        texts = dict(option.split("=", 1) for option in options.split(",")[1:])
        tenant = texts.pop("tenant", None)
        try:
            policy = TypeAdapter(KeyPolicy).validate_python(texts)
        except ValidationError as error:
            fault = error.errors()[0]
            raise ParameterError(
                f"the API key {name!r} in {API_KEYS_VARIABLE} has a wrong option: "
                f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}"
            ) from error
        owner = found.get(key_hash(key))
        if owner is not None:
            raise ParameterError(
                f"the callers {name!r} and {owner.name!r} have the same API key: give every caller its own key"
            )
        found[key_hash(key)] = Caller(name, role, policy, tenant)
    return found
