"""From settings to a service that runs: database, keys, model, server."""

from __future__ import annotations

import importlib
import inspect
import logging
import os
import sys
import threading
import webbrowser
from collections.abc import Callable
from typing import Any, cast

from ..exceptions import ParameterError
from .app import create_app
from .gate import Countermeasure
from .keys import MASTER, ROLES, Master
from .metrics import JsonLines
from .model import load_model
from .service import Service
from .settings import Settings
from .store import Store
from .tables import SCHEMA

API_KEYS = "MVPLDA_API_KEYS"
"""Name in the environment: NAME:ROLE:KEY, several divided by blanks."""
SETTINGS = "MVPLDA_WORKER_SETTINGS"
"""Name in the environment by which processes of one service get their settings."""


def open_store(settings: Settings) -> Store:
    settings.data.mkdir(parents=True, exist_ok=True, mode=0o700)
    store = Store(settings.database_url, settings.key_url, settings)
    for entry in os.environ.get(API_KEYS, "").split():
        name, role, key = [*entry.split(":", 2), "", ""][:3]
        if role not in ROLES or len(key) < 16:
            raise ParameterError(
                f"{API_KEYS} holds NAME:ROLE:KEY, with a role of {', '.join(ROLES)} and a key of 16 "
                "characters or more"
            )
        store.put_api_key(name, role, key)
    return store


def open_master(settings: Settings, make: bool) -> Master:
    local = settings.database is None or settings.database.startswith("sqlite")
    return Master.find(settings.data if local else None, make)


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


def open_service(settings: Settings, make: bool = True) -> Service:
    """All of it; a master key is made last, and only for a database that has none yet, if it may be."""
    model = load_model(settings)
    countermeasure = open_countermeasure(settings.countermeasure)
    store = open_store(settings)
    master = open_master(settings, make and store.value("master") is None)
    return Service(store, master, model, settings, countermeasure)


# -- the server --------------------------------------------------------------------------


def run(service: Service, settings: Settings, *, is_open: bool, browse: str | None = None) -> None:
    """Serve until stopped; requests that have begun are finished first."""
    import uvicorn

    from .protocol import Patient

    if browse is not None:
        threading.Timer(1.5, webbrowser.open, [browse]).start()
    options: dict[str, Any] = {
        "host": settings.host,
        "port": settings.port,
        "http": Patient,
        "log_config": None,
        "access_log": False,
        "server_header": False,
        "timeout_graceful_shutdown": 20,
        "timeout_keep_alive": 15,
    }
    Patient.settings = settings
    if settings.workers == 1:
        log_to_standard_error()
        uvicorn.run(create_app(service, settings, is_open=is_open), **options)
        return
    service.store.close()
    os.environ[SETTINGS] = settings.model_dump_json()
    if "timeout_worker_healthcheck" in inspect.signature(uvicorn.run).parameters:
        options["timeout_worker_healthcheck"] = 60  # one that loads its model is not dead
    uvicorn.run(
        "mvplda.serve.run:from_environment", factory=True, workers=settings.workers, **options
    )


def from_environment() -> Any:
    """The application of one of several processes."""
    from .protocol import Patient

    settings = Settings.model_validate_json(os.environ[SETTINGS])
    Patient.settings = settings
    log_to_standard_error()
    service = open_service(settings)
    is_open = not service.store.key_names()
    return create_app(service, settings, is_open=is_open)


def log_to_standard_error(level: int = logging.INFO) -> None:
    """Lines of JSON, of the service and of its server."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    for name in ("mvplda.serve", "uvicorn", "uvicorn.error"):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.propagate = False
        logger.setLevel(level)


# -- checking ----------------------------------------------------------------------------


class Check:
    """Looks at everything that a service needs, one line each."""

    def __init__(self, settings: Settings, say: Callable[[str], Any]) -> None:
        self.settings = settings
        self.say = say

    def __call__(self) -> int:
        """The exit code: 1 where something is wrong."""
        wrong = False
        for name in ("master_key", "database", "model", "service"):
            title = name.replace("_", " ")
            try:
                self.say(f"ok       {title}: {getattr(self, name)()}")
            except Exception as error:
                wrong = True
                self.say(f"WRONG    {title}: {' '.join(str(error).split())}")
        return int(wrong)

    def _is_new(self) -> bool:
        no_file = not (self.settings.data / "master.key").exists()
        return open_store(self.settings).value("master") is None and no_file

    def master_key(self) -> str:
        outside = f"better from outside: {MASTER}"
        try:
            where = open_master(self.settings, make=False).where
        except ParameterError:
            if not self._is_new():
                raise
            return f"none yet; the first start makes one in {self.settings.data} ({outside})"
        return where if where == "environment" else f"{where} ({outside})"

    def database(self) -> str:
        store = open_store(self.settings)
        store.ping()
        where = "in the same database, and so in its back-ups"
        if store.key_engine is not store.engine:
            where = "apart"
        kind = store.engine.dialect.name
        keys = len(store.key_names())
        return f"{kind}, tables of version {SCHEMA}, {keys} API keys; data keys are {where}"

    def model(self) -> str:
        model = load_model(self.settings)
        text = f"{model.version} with {model.extractor_name or 'no extractor'}"
        return f"{text}. {model.notice}" if model.notice else text

    def service(self) -> str:
        if MASTER not in os.environ and self._is_new():
            return "nobody is enrolled yet"
        profiles = open_service(self.settings, make=False).profiles
        return f"{profiles.count()} profiles, {profiles.count(stale=True)} of them stale"
