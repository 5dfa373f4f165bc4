"""The running service: database, keys and model from the settings, the ASGI application and its server."""

from __future__ import annotations

import asyncio
import gc
import inspect
import logging
import os
import re
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import uvicorn
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.staticfiles import StaticFiles
from sqlalchemy.exc import DBAPIError
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp
from threadpoolctl import threadpool_limits
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from .. import __version__
from ..exceptions import ParameterError
from .access import MULTIPROCESS, AccessMiddleware, JsonLines, Metrics, refuse
from .keys import Caller, MasterKey
from .model_loading import open_model
from .routes import router
from .schemas import Problem, VerifyReply
from .service import Service
from .settings import Settings
from .store import Store
from .verifier import Attempt

PAGE_FOLDER = Path(__file__).with_name("page")
# Seconds after which a database without an answer is reported as not ready.
READY_S = 3.0
# Seconds for which API keys are cached: a revoked key works for so long in other processes.
KEYS_S = 5.0
# Verifications that are decided in one transaction.
BATCH_LIMIT = 64
# Longest pause after a batch, in which its callers may send their next request: larger batches cost less.
PAUSE_S = 0.006
# Seconds between two checks of the queue during the pause.
POLL_S = 0.0005
# Environment variable with entries NAME:ROLE:KEY, separated by blanks.
API_KEYS = "MVPLDA_API_KEYS"
# Environment variable by which worker processes get their settings.
SETTINGS = "MVPLDA_WORKER_SETTINGS"
Result = TypeVar("Result")
Queue = list[tuple[Attempt, "asyncio.Future[VerifyReply]"]]


class Batches:
    """Decides waiting verifications together: one transaction, one call of the scorer, one commit."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._waiting: Queue = []
        self._task: asyncio.Task[None] | None = None

    async def verify(self, attempt: Attempt) -> VerifyReply:
        """Queue an attempt, and wait for its reply."""
        decided: asyncio.Future[VerifyReply] = asyncio.get_running_loop().create_future()
        self._waiting.append((attempt, decided))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._decide())
        return await decided

    async def _decide(self) -> None:
        while self._waiting:
            batch = self._next()
            attempts = [attempt for attempt, _ in batch]
            outcomes = await self._runtime.run(self._runtime.service.verify, attempts)
            for (_, decided), outcome in zip(batch, outcomes, strict=True):
                if decided.done():  # the caller has disconnected
                    continue
                if isinstance(outcome, Exception):
                    decided.set_exception(outcome)
                else:
                    decided.set_result(outcome)
            if len(batch) > 1:
                await self._gather(min(len(batch) + len(self._waiting), BATCH_LIMIT))

    async def _gather(self, expected: int) -> None:
        """Wait a moment for the next requests of the callers that were just answered, to decide them in one batch."""
        until = time.monotonic() + PAUSE_S
        while len(self._waiting) < expected and time.monotonic() < until:
            await asyncio.sleep(POLL_S)

    def _next(self) -> Queue:
        """Return the next attempts, at most one per profile; later attempts on a profile wait for the next batch."""
        batch: dict[str, tuple[Attempt, asyncio.Future[VerifyReply]]] = {}
        later: Queue = []
        for entry in self._waiting:
            name = entry[0].name
            if name in batch or len(batch) == BATCH_LIMIT:
                later.append(entry)
            else:
                batch[name] = entry
        self._waiting = later
        return list(batch.values())


class Runtime:
    """State shared by all endpoints: the service, its limits, threads and metrics."""

    def __init__(self, service: Service, is_open: bool) -> None:
        settings = service.settings
        self.service = service
        self.settings = settings
        self.is_open = is_open
        self._is_open_until = 0.0
        self.metrics = Metrics()
        self.batches = Batches(self)
        self._light = ThreadPoolExecutor(settings.threads)
        self._heavy = ThreadPoolExecutor(settings.at_once)
        self._apart = ThreadPoolExecutor(2)
        self._warm: Future[None] | None = None
        self._callers: dict[str, tuple[Caller, float]] = {}
        self._calls: dict[str, int] = {}
        self._refused: dict[str, float] = {}
        self._spending: dict[str, asyncio.Lock] = {}
        self.recordings = 0

    def check_role(self, decision: str) -> None:
        """Raise if this instance does not make a kind of decision."""
        role = self.settings.role
        if role not in ("all", decision):
            raise Problem(404, "not-found", f"this instance does not {decision}: it is for {role}")

    async def run(self, work: Callable[..., Result], *arguments: object) -> Result:
        """Run a function that waits for the database, in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._light, work, *arguments)

    async def change(
        self, caller: Caller, work: Callable[..., Result], *arguments: object
    ) -> Result:
        """Run an operation in one transaction, in a thread."""
        return await self.run(self.service.change, caller, work, *arguments)

    async def run_heavy(self, work: Callable[..., Result], *arguments: object) -> Result:
        """Run a long computation in a thread; raise if too many are waiting."""
        if self.recordings >= self.settings.at_once + self.settings.waiting:
            raise Problem(503, "busy", "too many recordings are waiting: try again", wait=1)
        self.recordings += 1
        try:
            loop = asyncio.get_running_loop()
            with self.metrics.recordings.track_inprogress():
                return await loop.run_in_executor(self._heavy, work, *arguments)
        finally:
            self.recordings -= 1

    def warm(self) -> Future[None]:
        """Start to read all voices for 1:N, once; return the running or finished task."""
        if self._warm is None or (self._warm.done() and self._warm.exception()):
            self._warm = self._apart.submit(self.service.warm)
        return self._warm

    async def ready(self) -> None:
        """Raise unless the database answers and all voices are in memory; independent of waiting calls."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(READY_S):
                count = await loop.run_in_executor(self._apart, self.service.store.count_damaged)
                self.metrics.damaged.set(count)
                await asyncio.shield(asyncio.wrap_future(self.warm()))
        except TimeoutError:
            detail = "the database does not answer, or voices are still being read"
            raise Problem(503, "not-ready", detail, wait=2) from None

    async def caller(self, request: Request, key: str | None) -> Caller:
        """Return the caller; raise for a missing or invalid key, or one that calls too often."""
        caller = None
        if not key and await self._needs_no_key():
            caller = Caller("local", "admin")
        if key:
            caller, until = self._callers.pop(key, (None, 0.0))
            if until < time.monotonic():
                caller = await self.run(self.service.store.find_caller, key)
                until = time.monotonic() + KEYS_S
        if caller is None:
            raise Problem(401, "key", "send an API key, in the header X-API-Key")
        if key:
            self._callers[key] = (caller, until)
        request.state.caller = caller.name
        if self.settings.key_rate:
            await self._spend(caller)
        return caller

    async def _needs_no_key(self) -> bool:
        """Return whether there are no API keys yet; the first key also ends keyless access to a running service."""
        if self.is_open and self._is_open_until < time.monotonic():
            self.is_open = not await self.run(self.service.store.key_names)
            self._is_open_until = time.monotonic() + KEYS_S
        return self.is_open

    async def _spend(self, caller: Caller) -> None:
        """Count a call of a key.

        Rates are stored in the database; the calls of one second are taken out of them at a time.
        """
        # one call takes the share for all that arrive at the same time
        async with self._spending.setdefault(caller.name, asyncio.Lock()):
            left = self._calls.get(caller.name, 0)
            if not left:
                wait = self._refused.get(caller.name, 0.0) - time.monotonic()
                rate = self.settings.key_rate
                left = max(1, int(rate / 60))
                if wait <= 0:
                    wait = await self.run(self.service.store.spend, caller.name, left, rate)
                if wait > 0:
                    await self._refuse(caller, wait)
            self._calls[caller.name] = left - 1

    async def _refuse(self, caller: Caller, wait: float) -> None:
        problem = Problem(429, "rate", "too many calls with this key", wait=wait)
        if caller.name not in self._refused or self._refused[caller.name] < time.monotonic():
            # one entry for all calls during the wait: a flood of calls does not fill the audit
            self._refused[caller.name] = time.monotonic() + min(wait, 1.0)
            await self.run(self.service.refuse, caller, problem)
        raise problem


def create_app(service: Service, *, is_open: bool = False) -> FastAPI:
    """Return the application.

    is_open : serve without API keys: every client on this machine has all permissions
    """
    settings = service.settings
    runtime = Runtime(service, is_open)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        runtime.warm()
        yield
        service.store.close()  # SQLite then empties its log, which may hold erased rows

    app = FastAPI(
        title="mvplda",
        lifespan=lifespan,
        version=__version__,
        summary="Speaker and phrase, verified by one calibrated likelihood ratio.",
        docs_url=None,
        redoc_url=None,
        separate_input_output_schemas=False,
        exception_handlers={HTTPException: refuse, RequestValidationError: refuse},
    )
    app.state.runtime = runtime
    # include_router would search for the path of every call twice
    app.router.routes += router.routes
    app.mount("/", StaticFiles(directory=PAGE_FOLDER, html=True), name="page")
    app.add_middleware(
        AccessMiddleware, settings=settings, is_open=is_open, metrics=runtime.metrics
    )
    return app


# -- opening -----------------------------------------------------------------------------


def open_store(settings: Settings) -> Store:
    """Open the database of the settings, and store the API keys of the environment."""
    settings.data.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        store = Store(settings.database_url, settings.key_url, settings)
    except DBAPIError as error:
        raise ParameterError(
            f"the database cannot be used: {error.orig}. Is it running, and are --database, user and password right?"
        ) from error
    for entry in os.environ.get(API_KEYS, "").split():
        fields = re.fullmatch("([^:]*):(verify|enrol|admin):(.{16,})", entry)
        if fields is None:
            raise ParameterError(
                f"expected NAME:ROLE:KEY in {API_KEYS}, with a role of verify, enrol or admin and a key of at least "
                "16 characters"
            )
        store.put_api_key(*fields.groups())
    return store


def open_master(settings: Settings, create: bool) -> MasterKey:
    local = settings.database is None or settings.database.startswith("sqlite")
    return MasterKey.find(settings.data if local else None, create)


def open_service(settings: Settings) -> Service:
    """Open the service; a master key is created last, and only for a database that has none yet."""
    model = open_model(settings)
    store = open_store(settings)
    master = open_master(settings, store.meta("master") is None)
    return Service(store, master, model, settings)


# -- the server --------------------------------------------------------------------------


class TimeoutProtocol(AutoHTTPProtocol):  # type: ignore[valid-type, misc]
    """Closes connections whose request is incomplete: after a while, or at once if there are too many.

    Half-sent requests therefore never block others.
    """

    settings: ClassVar[Settings]
    waiting: ClassVar[dict[int, TimeoutProtocol]] = {}
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
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


def check_port(settings: Settings) -> None:
    """Raise if another program already listens at the port."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        socket.create_server((settings.host, settings.port), family=family).close()
    except OSError as error:
        raise ParameterError(
            f"cannot listen at port {settings.port} of {settings.host}: {error.strerror}. "
            "Another service may run there already: stop it, or pass another --port"
        ) from error


def run(service: Service, settings: Settings) -> None:
    """Serve until stopped; running requests are finished first."""
    options: dict[str, Any] = {
        "host": settings.host,
        "port": settings.port,
        "http": TimeoutProtocol,
        "log_config": None,
        "access_log": False,
        "server_header": False,
        "timeout_graceful_shutdown": 20,
        "timeout_keep_alive": 15,
    }
    # matrix products are small: threads inside of them cost more than they gain
    threadpool_limits(1)
    if settings.workers == 1:
        uvicorn.run(application(service), **options)
        return
    service.store.close()
    os.environ[SETTINGS] = settings.model_dump_json()
    if "timeout_worker_healthcheck" in inspect.signature(uvicorn.run).parameters:
        options["timeout_worker_healthcheck"] = 60  # a worker that loads its model is not dead
    with tempfile.TemporaryDirectory(prefix="mvplda-metrics-") as folder:
        os.environ[MULTIPROCESS] = folder
        uvicorn.run(
            "mvplda.serve.app:from_environment", factory=True, workers=settings.workers, **options
        )


def from_environment() -> ASGIApp:
    """Return the application of a worker process."""
    threadpool_limits(1)
    return application(open_service(Settings.model_validate_json(os.environ[SETTINGS])))


def application(service: Service) -> ASGIApp:
    """Return the application, which needs no API key if there are none; logs are lines of JSON."""
    TimeoutProtocol.settings = service.settings
    # loaded objects stay: garbage collection over them would stop all calls for a tenth of a second
    gc.collect()
    gc.freeze()
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    for name in ("mvplda.serve", "uvicorn", "uvicorn.error"):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.propagate = False
        logger.setLevel(logging.INFO)
    return create_app(service, is_open=not service.store.key_names())
