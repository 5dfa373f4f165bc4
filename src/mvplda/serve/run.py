"""From settings to a service that runs: database, keys, model, server."""

from __future__ import annotations

import inspect
import logging
import os
import sys
from collections import OrderedDict
from typing import Any, ClassVar

import uvicorn

from ..exceptions import ParameterError
from .app import create_app
from .keys import ROLES, Master
from .metrics import JsonLines
from .model import open_model
from .problems import Json
from .service import Service
from .settings import Settings
from .store import Store

Base: Any
try:
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol as Base
except ImportError:
    from uvicorn.protocols.http.h11_impl import H11Protocol as Base

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


def open_service(settings: Settings) -> Service:
    """All of it; a master key is made last, and only for a database that has none yet."""
    model = open_model(settings)
    store = open_store(settings)
    master = open_master(settings, store.meta("master") is None)
    return Service(store, master, model, settings)


# -- the server --------------------------------------------------------------------------


class Patient(Base):  # type: ignore[misc]
    """Closes connections whose request does not arrive: after a while, or at once when there are too many.

    So half-sent requests never keep others out.
    """

    settings: ClassVar[Settings]
    waiting: ClassVar[OrderedDict[int, Patient]] = OrderedDict()
    _timer: Any = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._wait()
        if len(self.connections) > self.settings.connections and self.waiting:
            oldest = next(iter(self.waiting.values()))
            oldest.close_unfinished()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._is_answering():
            self._stop_waiting()
        elif self._timer is None:
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _wait(self) -> None:
        self.waiting[id(self)] = self
        self._timer = self.loop.call_later(self.settings.header_s, self.close_unfinished)

    def _stop_waiting(self) -> None:
        self.waiting.pop(id(self), None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def close_unfinished(self) -> None:
        self._stop_waiting()
        if not self._is_answering():
            self.transport.close()


def run(service: Service, settings: Settings) -> None:
    """Serve until stopped; requests that have begun are finished first."""
    options: Json = {
        "host": settings.host,
        "port": settings.port,
        "http": Patient,
        "log_config": None,
        "access_log": False,
        "server_header": False,
        "timeout_graceful_shutdown": 20,
        "timeout_keep_alive": 15,
    }
    if settings.workers == 1:
        uvicorn.run(application(service), **options)
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
    return application(open_service(Settings.model_validate_json(os.environ[SETTINGS])))


def application(service: Service) -> Any:
    """The application; where there are no keys of callers, none is needed. Logs are lines of JSON."""
    Patient.settings = service.settings
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    for name in ("mvplda.serve", "uvicorn", "uvicorn.error"):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.propagate = False
        logger.setLevel(logging.INFO)
    return create_app(service, is_open=not service.store.key_names())
