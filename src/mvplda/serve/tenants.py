"""Tenants: organisations that share a service, each with a database of its own.

People, domain, thresholds, audit and limits of a tenant are in its own SQLite files or schema of PostgreSQL, to which
the calls of its API keys are connected: no query of one tenant can reach the rows of another. The service's own
database has the API keys and the list of tenants.
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
# Settings that a tenant may have of its own.
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
# Seconds for which the list of tenants is cached: an erased tenant is gone in other processes after them.
TENANTS_S = 5.0
# Profiles that are exported at a time.
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

    id : random: a tenant that is erased and created again is another one
    settings : JSON of the settings that differ from those of the service
    """

    name: str
    id: str
    settings: str
    created: float

    def of(self, settings: Settings) -> Settings:
        """Return the settings of the service, overridden by those of the tenant."""
        return apply_settings(settings, json.loads(self.settings))


def apply_settings(settings: Settings, changes: Mapping[str, object]) -> Settings:
    """Return the settings of the service, overridden by `changes`; raise if a name or value is wrong."""
    unknown = sorted(set(changes) - set(TENANT_SETTINGS))
    if unknown:
        raise ParameterError(
            f"{unknown[0]!r} is no setting of a tenant: these are {', '.join(TENANT_SETTINGS)}"
        )
    try:
        return Settings.model_validate(settings.model_dump() | dict(changes))
    except ValidationError as error:
        fault = error.errors()[0]
        raise ParameterError(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}") from error


# -- databases ---------------------------------------------------------------------------


def tenant_url(url: str, name: str) -> str:
    """Return the database of a tenant: with SQLite a file in the tenant's folder, with PostgreSQL the same `url`."""
    parsed = make_url(url)
    if not url.startswith("sqlite"):
        return url
    path = Path(str(parsed.database))
    return f"sqlite:///{path.parent / 'tenants' / name / path.name}"


def tenant_schema(name: str) -> str:
    return "tenant_" + name.replace("-", "_")


def open_tenant_store(settings: Settings, name: str, is_urgent: bool = False) -> Store:
    """Open the databases of a tenant; new ones are created."""
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
    """Yield (name, store) of the service itself, whose name is empty, and of each tenant."""
    yield "", store
    for tenant in list_tenants(store):
        with closing(open_tenant_store(settings, tenant.name, is_urgent)) as found:
            yield tenant.name, found


@contextmanager
def tenant_store(settings: Settings, store: Store, name: str | None) -> Iterator[Store]:
    """Open the store of a tenant; None: that of the service."""
    if name is None:
        yield store
        return
    if find_tenant(store, name) is None:
        raise no_tenant(name)
    with closing(open_tenant_store(settings, name)) as found:
        yield found


def no_tenant(name: str) -> ParameterError:
    return ParameterError(f"there is no tenant {name!r}: make it with mvplda serve tenant {name}")


# -- the list of tenants -------------------------------------------------------------------


def list_tenants(store: Store) -> list[Tenant]:
    with store.read() as work:
        return work.rows(Tenant, ALL)


def find_tenant(store: Store, name: str) -> Tenant | None:
    with store.read() as work:
        return work.first(Tenant, BY_NAME, tenant=name)


def put_tenant(store: Store, settings: Settings, name: str, changes: Mapping[str, object]) -> bool:
    """Create a tenant, or change its settings; return whether it is new.

    changes : settings; None resets a setting to the value of the service
    """
    if NAME.fullmatch(name) is None:
        raise ParameterError(
            f"expected a name of a tenant from small letters, digits and hyphens, at most 40; got {name!r}"
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
    """Erase a tenant: its API keys, data keys and databases. Copies of its voices cannot be read afterwards."""
    if find_tenant(store, name) is None:
        raise no_tenant(name)
    with store.write() as work:
        # its calls are refused from now on
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
    """Yield everything that is stored of the people of a service, one JSON object per person, and the audit."""
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
    """Services of tenants, opened at their first call."""

    def __init__(self, service: Service) -> None:
        self._service = service
        # one per tenant: a database that does not answer delays nobody else
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self._open: dict[str, tuple[Tenant, Service]] = {}
        self._checked: dict[str, float] = {}

    def find(self, name: str) -> Service:
        """Return the service of a tenant; raise if there is none."""
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
                    detail = "the tenant of this key does not exist"
                    raise Problem(403, "tenant", detail)
                service = self._new_service(now)
                self._open[name] = now, service
            self._checked[name] = time.monotonic()
            return service

    def _new_service(self, tenant: Tenant) -> Service:
        settings = tenant.of(self._service.settings)
        store = open_tenant_store(settings, tenant.name)
        store.clock = self._service.store.clock
        return Service(store, self._masters(), self._service.model, settings)

    def _masters(self) -> KeyRing:
        """Return the master keys, the present one first: new tenants are written with it."""
        masters = self._service.templates.vault.masters
        present = masters.find(str(self._service.store.master))
        return masters if present is None else masters.with_first(present)

    def _close(self, name: str) -> None:
        _, service = self._open.pop(name, (None, None))
        if service is not None:
            service.store.close()

    def close(self) -> None:
        for name in list(self._open):
            with self._locks[name]:
                self._close(name)


def open_tenant(service: Service, name: str | None) -> Service:
    """Return the service of a tenant; None: the service itself."""
    if name is None:
        return service
    try:
        return Tenants(service).find(name)
    except Problem as problem:
        raise no_tenant(name) from problem


def parse_changes(texts: Mapping[str, str]) -> dict[str, Any]:
    """Return settings of a tenant from NAME=VALUE; an empty value removes one."""
    return {name.replace("-", "_"): value or None for name, value in texts.items()}
