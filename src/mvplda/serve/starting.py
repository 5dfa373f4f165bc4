"""From settings to a service that runs: folder, database, keys, model."""

from __future__ import annotations

import importlib
import inspect
import json
import logging
import os
import sys
import threading
import webbrowser
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from ..exceptions import ParameterError
from .app import Door, create_app
from .audio import Countermeasure, Limits
from .keys import MASTER, ROLES, Master
from .model import load_model
from .service import Rules, Service
from .store import SCHEMA, Store
from .watch import JsonLines

API_KEYS = "MVPLDA_API_KEYS"
"""Name in the environment: NAME:ROLE:KEY, several divided by blanks."""
SETUP = "MVPLDA_SETUP"
"""Name in the environment by which processes of one service learn what they are."""


@dataclass(frozen=True)
class Setup:
    """Where everything is.

    folder : for the database and the master key, where nothing else is said
    database, key_database : of SQLAlchemy; None: SQLite in the folder
    model, extractors : a model file and what makes its vectors; None: the default
    countermeasure : what listens for replays and imitations, ``package.module:function``
    """

    folder: Path
    database: str | None = None
    key_database: str | None = None
    model: Path | None = None
    extractors: tuple[str, ...] = ()
    countermeasure: str | None = None
    rules: Rules = field(default_factory=Rules)


def open_store(setup: Setup) -> Store:
    setup.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if setup.database is not None:
        store = Store(setup.database, setup.key_database)
    else:
        keys = setup.key_database or f"sqlite:///{setup.folder / 'keys.sqlite'}"
        store = Store(f"sqlite:///{setup.folder / 'mvplda.sqlite'}", keys)
    for entry in os.environ.get(API_KEYS, "").split():
        name, role, key = [*entry.split(":", 2), "", ""][:3]
        if role not in ROLES or len(key) < 16:
            raise ParameterError(
                f"{API_KEYS} holds NAME:ROLE:KEY, with a role of {', '.join(ROLES)} and a key of 16 characters or more"
            )
        store.put_api_key(name, role, key)
    return store


def open_master(setup: Setup, make: bool) -> Master:
    local = setup.database is None or setup.database.startswith("sqlite")
    return Master.find(setup.folder if local else None, make)


def open_countermeasure(place: str | None) -> Countermeasure | None:
    """The function that ``package.module:function`` names."""
    if place is None:
        return None
    module, _, name = place.partition(":")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ParameterError(
            f"a countermeasure is package.module:function; {place!r} is none: {error}"
        ) from error
    if not callable(found):
        raise ParameterError(
            f"a countermeasure is a function of samples and rate; {place} is a {type(found).__name__}"
        )
    return cast("Countermeasure", found)


def open_service(setup: Setup, make: bool = True) -> Service:
    """All of it; a master key is made last of all, and only for a database that has none yet, if it may be."""
    model, listens = (
        load_model(setup.model, setup.extractors or None),
        open_countermeasure(setup.countermeasure),
    )
    store = open_store(setup)
    master = open_master(setup, make and store.remember("master") is None)
    model = replace(model, secret=master.derived("rotation"))
    return Service(store, master, model, setup.rules, countermeasure=listens)


def run(
    service: Service,
    setup: Setup,
    door: Door,
    host: str,
    port: int,
    workers: int = 1,
    browse: str | None = None,
) -> None:
    """Serve until told to stop; requests that have begun are finished first."""
    import uvicorn

    if browse is not None:
        threading.Timer(1.5, webbrowser.open, [browse]).start()
    options: dict[str, Any] = {
        "host": host,
        "port": port,
        "log_config": None,
        "access_log": False,
        "server_header": False,
        "timeout_graceful_shutdown": 20,
        "timeout_keep_alive": 15,
        "limit_concurrency": 1024,
    }
    if workers == 1:
        log_to_standard_error()
        uvicorn.run(create_app(service, door), **options)
        return
    service.store.close()
    plain = {
        **asdict(setup),
        "folder": str(setup.folder),
        "model": setup.model and str(setup.model),
    }
    os.environ[SETUP] = json.dumps({"setup": plain, "door": asdict(door)})
    if "timeout_worker_healthcheck" in inspect.signature(uvicorn.run).parameters:
        options["timeout_worker_healthcheck"] = 60  # one that is busy with its model is not dead
    uvicorn.run("mvplda.serve.starting:from_environment", factory=True, workers=workers, **options)


def from_environment() -> Any:
    """The application of one of several processes."""
    found = json.loads(os.environ[SETUP])
    values, door = found["setup"], found["door"]
    rules = Rules(**{**values["rules"], "audio": Limits(**values["rules"]["audio"])})
    places = {"folder": Path(values["folder"]), "model": values["model"] and Path(values["model"])}
    setup = Setup(**{**values, **places, "extractors": tuple(values["extractors"]), "rules": rules})
    log_to_standard_error()
    return create_app(open_service(setup), Door(**{**door, "hosts": tuple(door["hosts"])}))


def log_to_standard_error(level: int = logging.INFO) -> None:
    """Lines of JSON, of the service and of what runs it."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    for name in ("mvplda.serve", "uvicorn", "uvicorn.error"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level)


def say_what_is_in_order(setup: Setup, say: Callable[[str], Any]) -> int:
    """Look at everything that a service needs, a line each; the exit code, 1 where something is wrong."""
    wrong = False

    def look(what: str, at: Callable[[], str]) -> None:
        nonlocal wrong
        try:
            say(f"ok       {what}: {at()}")
        except Exception as error:
            wrong = True
            say(f"WRONG    {what}: {' '.join(str(error).split())}")

    def new() -> bool:
        return (
            open_store(setup).remember("master") is None
            and not (setup.folder / "master.key").exists()
        )

    def master() -> str:
        outside = "better from outside: MVPLDA_MASTER_KEY"
        try:
            where = open_master(setup, make=False).where
        except ParameterError:
            if not new():
                raise
            return f"none yet; the first start makes one in {setup.folder} ({outside})"
        return where if where == "environment" else f"{where} ({outside})"

    def database() -> str:
        store = open_store(setup)
        store.ping()
        names = store.key_names()
        apart = (
            "apart"
            if store.key_engine is not store.engine
            else "in the same database, and so in its back-ups"
        )
        return f"{store.engine.dialect.name}, tables of version {SCHEMA}, {len(names)} API keys; data keys are {apart}"

    def model() -> str:
        found = load_model(setup.model, setup.extractors or None)
        notice = found.about.get("notice")
        return f"{found.version} with {found.extractor_name or 'no extractor'}" + (
            f". {notice}" if notice else ""
        )

    def together() -> str:
        if MASTER not in os.environ and new():
            return "nobody is enrolled yet"
        service = open_service(setup, make=False)
        return f"{service.count()} profiles, {service.count('stale')} of them stale"

    for what, at in (
        ("master key", master),
        ("database", database),
        ("model", model),
        ("service", together),
    ):
        look(what, at)
    return int(wrong)
