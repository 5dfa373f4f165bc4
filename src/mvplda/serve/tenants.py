"""Tenants: organisations that share a service, each with a database of its own.

A tenant has its own SQLite files or schema of PostgreSQL, with its people, domain, audit and limits. Calls with an API
key of a tenant use only this database, so that no query of one tenant can reach rows of another. The database of the
service itself has all API keys and the list of tenants.
"""

from __future__ import annotations

import json
import re
import secrets
import shutil
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from pydantic import ValidationError
from sqlalchemy import bindparam
from sqlalchemy.engine import make_url

from ..exceptions import ParameterError
from .audit import all_entries
from .keys import Caller, KeyRing
from .schemas import Problem
from .service import Service
from .settings import Settings
from .store import Store
from .tables import API_KEYS, DATA_KEYS, PROFILES, TENANTS

NAME = re.compile("[a-z][a-z0-9-]{0,39}")
# Settings that may differ between tenants.
TENANT_SETTINGS = (
    "far",
    "spoof_prior",
    "require",
    "lock_after",
    "lock_s",
    "challenge_s",
    "early_decisions",
    "enrolments",
    "most_enrolments",
    "least_llr",
    "expire_days",
    "keep_vectors",
    "vectors",
    "marks_days",
    "audit_days",
    "longest_s",
    "speech_s",
    "snr_db",
    "clipped",
    "key_rate",
    "profile_rate",
)
# Seconds for which a tenant is cached: other processes still serve an erased tenant for so long.
TENANTS_S = 5.0
# Number of profiles that are exported at a time.
PAGE = 200

ALL = sa.select(TENANTS).order_by(TENANTS.c.name)
BY_NAME = sa.select(TENANTS).where(TENANTS.c.name == bindparam("tenant"))
SET_SETTINGS = (
    TENANTS.update()
    .where(TENANTS.c.name == bindparam("tenant"))
    .values(settings=bindparam("new_settings"))
)
DELETE_TENANT = TENANTS.delete().where(TENANTS.c.name == bindparam("tenant"))
DELETE_KEYS = API_KEYS.delete().where(API_KEYS.c.tenant == bindparam("tenant"))
EXPORTED = (
    sa.select(PROFILES.c.id)
    .where(PROFILES.c.state != "deleted")
    .where(PROFILES.c.id > bindparam("after"))
    .order_by(PROFILES.c.id)
    .limit(PAGE)
)


@dataclass(frozen=True)
class Tenant:
    """Row of the table ``tenants``.

    Parameters
    ----------
    name : name of the tenant
    id : random id, by which a tenant that was erased and created again is recognised as another tenant
    settings : {name: value} of the settings that differ from those of the service, as JSON
    created : time of creation in seconds since 1970
    """

    name: str
    id: str
    settings: str
    created: float

    def of(self, settings: Settings) -> Settings:
        """Return the `settings` of the service, with the tenant's own values in place of those that differ."""
        return apply_settings(settings, json.loads(self.settings))


def apply_settings(settings: Settings, changes: Mapping[str, object]) -> Settings:
    """Return a copy of the `settings` of the service with other values.

    changes : {name: value} of the settings to replace

    Raises
    ------
    ParameterError : if a setting in `changes` is not one that a tenant can have, or if a value is wrong
    """
    unknown = sorted(set(changes) - set(TENANT_SETTINGS))
    if unknown:
        raise ParameterError(
            f"expected a setting that a tenant can have, one of {', '.join(TENANT_SETTINGS)}; got {unknown[0]!r}"
        )
    try:
        return Settings.model_validate(settings.model_dump() | dict(changes))
    except ValidationError as error:
        fault = error.errors()[0]
        name = ".".join(map(str, fault["loc"]))
        raise ParameterError(f"the setting {name} has a wrong value: {fault['msg']}") from error


# -- databases ---------------------------------------------------------------------------


def tenant_url(url: str, name: str) -> str:
    """Return the address of a tenant's database.

    For SQLite, it is a file in the folder ``tenants`` beside the service's database. For PostgreSQL, it is the database
    of the service itself, in which the tenant has a schema.

    url : address of the service's database
    """
    parsed = make_url(url)
    if not url.startswith("sqlite"):
        return url
    path = Path(str(parsed.database))
    return f"sqlite:///{path.parent / 'tenants' / name / path.name}"


def tenant_schema(name: str) -> str:
    """Return the name of the PostgreSQL schema of the tenant `name`."""
    return "tenant_" + name.replace("-", "_")


def open_tenant_store(settings: Settings, name: str, is_urgent: bool = False) -> Store:
    """Open the databases of the tenant `name`; they are created if they do not exist.

    is_urgent : whether this process may write to SQLite before a running service
    """
    urls = [tenant_url(settings.database_url, name)]
    if settings.key_url is not None:
        urls.append(tenant_url(settings.key_url, name))
    for url in urls:
        if url.startswith("sqlite"):
            folder = Path(str(make_url(url).database)).parent
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    key_url = urls[1] if len(urls) == 2 else None
    return Store(urls[0], key_url, settings, is_urgent, tenant_schema(name))


def all_stores(
    settings: Settings, store: Store, is_urgent: bool = False
) -> Iterator[tuple[str, Store]]:
    """Yield (name, store) of the service itself, with an empty name, and of each tenant.

    store : database of the service
    is_urgent : whether this process may write to SQLite before a running service
    """
    yield "", store
    for tenant in list_tenants(store):
        with closing(open_tenant_store(settings, tenant.name, is_urgent)) as found:
            yield tenant.name, found


@contextmanager
def tenant_store(settings: Settings, store: Store, name: str | None) -> Iterator[Store]:
    """Open the database of the tenant `name` for the block; None: the database of the service, `store`.

    Raises
    ------
    ParameterError : if there is no such tenant
    """
    if name is None:
        yield store
        return
    if find_tenant(store, name) is None:
        raise no_tenant(name)
    with closing(open_tenant_store(settings, name)) as found:
        yield found


def no_tenant(name: str) -> ParameterError:
    """Return the error for the name of a tenant that does not exist."""
    return ParameterError(
        f"no tenant has the name {name!r}: create it with `mvplda serve tenant {name}`"
    )


# -- the list of tenants -------------------------------------------------------------------


def list_tenants(store: Store) -> list[Tenant]:
    """Return all tenants of a service in the order of their names."""
    with store.read() as work:
        return work.rows(Tenant, ALL)


def find_tenant(store: Store, name: str) -> Tenant | None:
    """Return the tenant `name`; None if it does not exist."""
    with store.read() as work:
        return work.first(Tenant, BY_NAME, tenant=name)


def put_tenant(store: Store, settings: Settings, name: str, changes: Mapping[str, object]) -> bool:
    """Create the tenant `name`, or change its settings.

    Parameters
    ----------
    store : database of the service
    settings : settings of the service
    changes : {setting: value} to set for the tenant; a value of None removes the setting, so that that of the service
        applies

    Returns
    -------
    whether the tenant is new

    Raises
    ------
    ParameterError : if the name or a setting is wrong
    """
    if NAME.fullmatch(name) is None:
        raise ParameterError(
            "expected a name for the tenant of at most 40 lower-case letters, digits and hyphens, the first a letter; "
            f"got {name!r}"
        )
    with store.write() as work:
        found = work.first(Tenant, BY_NAME, tenant=name)
        merged = (json.loads(found.settings) if found else {}) | dict(changes)
        merged = {key: value for key, value in merged.items() if value is not None}
        apply_settings(settings, merged)
        if found is not None:
            work.run(SET_SETTINGS, tenant=name, new_settings=json.dumps(merged))
            return False
        row = {"name": name, "id": secrets.token_hex(8), "settings": json.dumps(merged)}
        work.run(TENANTS.insert(), **row, created=work.now)
    return True


def erase_tenant(store: Store, settings: Settings, name: str) -> None:
    """Erase the tenant `name`: its API keys, data keys and databases.

    The voices in copies of the databases, such as back-ups, cannot be decrypted afterwards.

    Raises
    ------
    ParameterError : if there is no such tenant
    """
    if find_tenant(store, name) is None:
        raise no_tenant(name)
    with store.write() as work:
        # calls of the tenant are refused from now on
        work.run(DELETE_KEYS, tenant=name)
    with closing(open_tenant_store(settings, name)) as found:
        with found.key_database.begin() as connection:
            connection.execute(DATA_KEYS.delete())
        found.truncate_logs()
        databases = {found.database, found.key_database}
        for database in databases:
            if database.is_postgres:
                with database.begin() as connection:
                    connection.exec_driver_sql(f"DROP SCHEMA {tenant_schema(name)} CASCADE")
    for database in databases:
        if not database.is_postgres:
            shutil.rmtree(Path(str(database.engine.url.database)).parent, ignore_errors=True)
    with store.write() as work:
        work.run(DELETE_TENANT, tenant=name)


def export_lines(service: Service) -> Iterator[str]:
    """Yield all stored data of a service, without vectors, as JSON: a line per existing profile and per audit entry."""
    after = ""
    operator = Caller("export", "admin")
    while True:
        with service.store.read() as work:
            names = list(work.run(EXPORTED, after=after).scalars())
        if not names:
            break
        for name in names:
            yield service.change(operator, service.profiles.export, name).model_dump_json()
        after = names[-1]
    for entry in all_entries(service.store):
        yield json.dumps({"audit": entry.model_dump(mode="json")})


# -- services of tenants -------------------------------------------------------------------


class Tenants:
    """Services of tenants, each opened at its first call and kept open.

    Parameters
    ----------
    service : service whose database has the list of tenants; they use its model, and its settings by default
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        # one lock per tenant: a database that does not answer delays no other tenant
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self._open: dict[str, tuple[Tenant, Service]] = {}
        self._checked: dict[str, float] = {}

    def find(self, name: str) -> Service:
        """Return the service of the tenant `name`; raise a `Problem` (403) if the tenant does not exist."""
        with self._locks[name]:
            tenant, service = self._open.get(name, (None, None))
            if (
                service is not None
                and time.monotonic() < self._checked.get(name, -TENANTS_S) + TENANTS_S
            ):
                return service
            now = find_tenant(self._service.store, name)
            if service is None or now != tenant:
                self._close(name)
                if now is None:
                    detail = f"the tenant {name!r} of this API key does not exist: it was erased or not created yet"
                    raise Problem(403, "tenant", detail)
                service = self._new_service(now)
                self._open[name] = now, service
            self._checked[name] = time.monotonic()
            return service

    def _new_service(self, tenant: Tenant) -> Service:
        """Open the database of a tenant, and return its service with the tenant's settings."""
        settings = tenant.of(self._service.settings)
        store = open_tenant_store(settings, tenant.name)
        store.clock = self._service.store.clock
        return Service(store, self._masters(), self._service.model, settings)

    def _masters(self) -> KeyRing:
        """Return the master keys, the present key first, because a new tenant uses the first key."""
        masters = self._service.templates.vault.masters
        present = masters.find(str(self._service.store.master))
        return masters if present is None else masters.with_first(present)

    def _close(self, name: str) -> None:
        """Close the database of a tenant, if it is open."""
        _, service = self._open.pop(name, (None, None))
        if service is not None:
            service.store.close()

    def close(self) -> None:
        """Close the databases of all tenants."""
        for name in list(self._open):
            with self._locks[name]:
                self._close(name)


def open_tenant(service: Service, name: str | None) -> Service:
    """Return the service of the tenant `name`; None: the service itself.

    Raises
    ------
    ParameterError : if there is no such tenant
    """
    if name is None:
        return service
    try:
        return Tenants(service).find(name)
    except Problem as problem:
        raise no_tenant(name) from problem


def parse_changes(texts: Mapping[str, str]) -> dict[str, Any]:
    """Return {setting: value} for `put_tenant` from {NAME: VALUE} as typed on the command line; "" becomes None."""
    return {name.replace("-", "_"): value or None for name, value in texts.items()}
