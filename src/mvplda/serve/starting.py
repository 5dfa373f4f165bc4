"""From settings to a service that runs: folder, database, keys, model."""

from __future__ import annotations

import logging
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..exceptions import ParameterError
from .app import Door, create_app
from .keys import ROLES, Master, key_hash, new_api_key
from .model import ServiceModel, load_model
from .service import Rules, Service
from .store import Store, api_keys
from .watch import JsonLines

API_KEYS = "MVPLDA_API_KEYS"
"""Name in the environment: NAME:ROLE:KEY, several divided by blanks."""


@dataclass(frozen=True)
class Setup:
    """Where everything is.

    folder : for the database and the master key, where nothing else is said
    database, key_database : of SQLAlchemy; None: SQLite in the folder
    model, extractors : a model file and what makes its vectors; None: the default
    """

    folder: Path
    database: str | None = None
    key_database: str | None = None
    model: Path | None = None
    extractors: tuple[str, ...] = ()
    rules: Rules = field(default_factory=Rules)
    threads: int = 1


def open_store(setup: Setup) -> Store:
    if setup.database is not None:
        return Store(setup.database, setup.key_database)
    setup.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    keys = setup.key_database or f"sqlite:///{setup.folder / 'keys.sqlite'}"
    return Store(f"sqlite:///{setup.folder / 'mvplda.sqlite'}", keys)


def open_master(setup: Setup) -> Master:
    local = setup.database is None or setup.database.startswith("sqlite")
    return Master.find(setup.folder if local else None)


def open_model(setup: Setup, master: Master) -> ServiceModel:
    return load_model(setup.model, setup.extractors or None, master.derived("rotation"), threads=setup.threads)


def open_service(setup: Setup, model: ServiceModel | None = None) -> Service:
    master = open_master(setup)
    store = open_store(setup)
    keys_from_environment(store)
    return Service(store, master, model or open_model(setup, master), setup.rules)


def keys_from_environment(store: Store) -> None:
    for entry in os.environ.get(API_KEYS, "").split():
        name, role, key = [*entry.split(":", 2), "", ""][:3]
        if role not in ROLES or len(key) < 16:
            raise ParameterError(
                f"{API_KEYS} holds NAME:ROLE:KEY with roles {', '.join(ROLES)} and keys of 16 and more"
            )
        put_api_key(store, name, role, key)


def put_api_key(store: Store, name: str, role: str, key: str | None = None) -> str:
    """Keep the hash of a key, in place of one of the same name; the key itself is shown once."""
    import time

    key = key or new_api_key()
    with store.write() as connection:
        connection.execute(api_keys.delete().where(api_keys.c.name == name))
        connection.execute(api_keys.insert().values(hash=key_hash(key), name=name, role=role, created=time.time()))
    return key


def api_key_names(store: Store) -> list[tuple[str, str]]:
    with store.read() as connection:
        return [(row.name, row.role) for row in connection.execute(api_keys.select().order_by(api_keys.c.name))]


def log_to_standard_error(level: int = logging.INFO) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    for name in ("mvplda.serve", "uvicorn", "uvicorn.error"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level)


def run(service: Service, door: Door, host: str, port: int, **options: Any) -> None:
    """Serve until told to stop; requests that have begun are finished first."""
    import uvicorn

    app = create_app(service, door)
    uvicorn.run(
        app,
        host=host,
        port=port,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=20,
        timeout_keep_alive=15,
        limit_concurrency=512,
        h11_max_incomplete_event_size=32768,
        **options,
    )
