"""The running service: opens the database, keys and model that the settings name, and serves over HTTP."""

from __future__ import annotations

import asyncio
import gc
import inspect
import logging
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from copy import copy
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import uvicorn
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse
from fastapi.staticfiles import StaticFiles
from sqlalchemy.exc import DBAPIError
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp
from threadpoolctl import threadpool_limits

from .. import __version__
from ..exceptions import ParameterError
from .access import MULTIPROCESS, AccessMiddleware, Metrics, refuse
from .addresses import UnfinishedBodies
from .api_keys import environment_keys
from .batches import HELD_S, Batches
from .callers import Callers
from .connections import StreamProtocol, TimeoutProtocol
from .database import RowHeld
from .deadlines import database_wait, no_answer
from .idempotency import IdempotentCall
from .keys import Caller, KeyRing, MasterKey, find_masters
from .log_lines import is_no_handshake, log_formatter
from .model_loading import open_model
from .routes import router
from .schemas import Problem, ProfileReply, State
from .service import Service
from .settings import Settings
from .store import Store
from .stream_route import refuse_stream, verify_stream
from .streams import LARGEST_FRAME
from .tenants import Tenants
from .workers import START_FAILURE, WorkerStarts

PAGE_FOLDER = Path(__file__).with_name("page")
# Files of the pages whose address has no ending: the log-in, and the page with everything else.
PAGES = {"/login": "login.html", "/lab": "index.html"}
# If the database does not answer within these seconds, the service reports that it is not ready.
READY_S = 3.0
# Environment variable that passes the settings to worker processes.
SETTINGS = "MVPLDA_WORKER_SETTINGS"
Result = TypeVar("Result")


class Runtime:
    """State shared by all endpoints: the service, its limits, threads and metrics.

    Parameters
    ----------
    service : operations on the people who belong to no tenant; services of tenants are opened at their first call
    is_open : whether calls without an API key are allowed until the first key is made
    """

    def __init__(self, service: Service, is_open: bool) -> None:
        settings = service.settings
        self.service = service
        self.settings = settings
        self.metrics = Metrics()
        self.bodies = UnfinishedBodies(settings)
        self.callers = Callers(self, is_open)
        self.batches = Batches(service)
        self._light = ThreadPoolExecutor(settings.threads)
        self._heavy = ThreadPoolExecutor(settings.at_once)
        self._apart = ThreadPoolExecutor(2)
        self._warm: Future[None] | None = None
        # recordings in progress or waiting, of all tenants
        self._load = Counter({"recordings": 0})
        # {profile id: the stream that is looked at}
        self.looked_at: dict[str, object] = {}
        self._tenants = Tenants(service)
        self._views: dict[str, Runtime] = {}

    async def of(self, caller: Caller) -> Runtime:
        """Return the state for the calls of `caller`: that of the caller's tenant, or this one without a tenant.

        The state of a tenant has its own service and settings, and the same threads, limits and metrics.
        """
        name = caller.tenant
        if name is None:
            return self
        service = await self.run(self._tenants.find, name)
        view = self._views.get(name)
        if view is None or view.service is not service:
            view = copy(self)
            view.service = service
            view.settings = service.settings
            view.batches = Batches(service)
            view._warm = None
            self._views[name] = view
        return view

    def close(self) -> None:
        """Close the databases of the service and its tenants; SQLite then removes the log that contains erased rows."""
        self._tenants.close()
        self.service.store.close()

    def check_role(self, decision: str) -> None:
        """Raise a `Problem` (404) if ``--role`` of this instance excludes a `decision`, "verify" or "identify"."""
        role = self.settings.role
        if role not in ("all", decision):
            detail = f"this instance answers no calls to {decision}: it runs with --role {role}; call another instance"
            raise Problem(404, "not-found", detail)

    async def run(self, work: Callable[..., Result], *arguments: object) -> Result:
        """Run work(*arguments), which waits for the database, in a thread, and return its result.

        Raises
        ------
        Problem : 503 if the database does not answer within the time of the call
        """
        future = self._light.submit(work, *arguments)
        try:
            async with database_wait(self.settings.answer_s):
                return await asyncio.wrap_future(future)
        except Problem as problem:
            if future.cancelled() and problem.kind == "database":
                # the function had not begun, and therefore changed nothing
                raise no_answer(is_unchanged=True) from None
            raise

    async def change(
        self,
        caller: Caller,
        work: Callable[..., Result],
        *arguments: object,
        call: IdempotentCall | None = None,
    ) -> Result:
        """Run work(transaction, *arguments) in one transaction in a thread, and return its result.

        Parameters
        ----------
        caller : caller in the audit entries of the transaction
        work : function whose first argument is the transaction
        arguments : further arguments of `work`
        call : the call with its Idempotency-Key: if it was executed before, its stored answer is returned, and `work`
            is not run; None: the request has no such key

        Raises
        ------
        Problem : 503 if the database does not answer in time
        """
        return await self._patiently(self.service.change_once, call, caller, work, *arguments)

    async def erase(
        self, name: str, state: State, caller: Caller, call: IdempotentCall | None = None
    ) -> ProfileReply:
        """Erase the profile with the id `name`, and return it with its new state.

        state : "opted_out" keeps name and consent; "deleted" erases them too
        caller, call : see `change`
        """
        return await self._patiently(self.service.erase, name, state, caller, call)

    async def _patiently(self, work: Callable[..., Result], *arguments: object) -> Result:
        """Run work(*arguments) in a thread, and return its result; repeat it while it raises `RowHeld`.

        It is repeated after pauses, so that no thread waits for the locked row. After ``lock_timeout_s`` seconds,
        `RowHeld` is raised.
        """
        until = time.monotonic() + self.settings.lock_timeout_s
        pause, longest = HELD_S
        while True:
            try:
                return await self.run(work, *arguments)
            except RowHeld:
                if time.monotonic() > until:
                    raise
            await asyncio.sleep(pause)
            pause = min(2 * pause, longest)

    @property
    def is_idle(self) -> bool:
        """Whether one of the threads that process recordings is free."""
        return self._load["recordings"] < self.settings.at_once

    async def run_heavy(
        self, work: Callable[..., Result], *arguments: object, is_begun: bool = False
    ) -> Result:
        """Run work(*arguments), a long computation such as processing a recording, in a thread; return its result.

        is_begun : whether the attempt has already had evidence, so that it must not be refused

        Raises
        ------
        Problem : 503 if too many recordings are already waiting
        """
        is_full = self._load["recordings"] >= self.settings.at_once + self.settings.waiting
        if is_full and not is_begun:
            detail = "too many recordings are waiting to be processed: send this call again later"
            raise Problem(503, "busy", detail, wait=1)
        self._load["recordings"] += 1
        try:
            loop = asyncio.get_running_loop()
            with self.metrics.recordings.track_inprogress():
                return await loop.run_in_executor(self._heavy, work, *arguments)
        finally:
            self._load["recordings"] -= 1

    def warm(self) -> Future[None]:
        """Start to load all voices for identification, unless this was done; return the running or finished task."""
        if self._warm is None or (self._warm.done() and self._warm.exception()):
            self._warm = self._apart.submit(self.service.warm)
        return self._warm

    async def ready(self) -> None:
        """Raise a `Problem` (503) unless the database answers and all voices for identification are loaded.

        The check has threads of its own, so that it does not wait behind other calls.
        """
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(READY_S):
                count = await loop.run_in_executor(self._apart, self.service.store.count_damaged)
                self.metrics.damaged.set(count)
                await asyncio.shield(asyncio.wrap_future(self.warm()))
        except TimeoutError:
            detail = "the service is not ready: its database does not answer, or voices are still being loaded"
            raise Problem(503, "not-ready", detail, wait=2) from None


def create_app(service: Service, *, is_open: bool = False) -> FastAPI:
    """Return the ASGI application of a service, with its endpoints, its web page and its checks of requests.

    Parameters
    ----------
    service : operations that the endpoints call
    is_open : whether to serve without API keys until the first key is made; clients on this machine then have all
        permissions
    """
    runtime = Runtime(service, is_open)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        runtime.warm()
        yield
        runtime.close()

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
    describe = app.openapi
    app.openapi = lambda: with_bearer(describe())  # type: ignore[method-assign]
    # include_router would search for the path of every call twice
    app.router.routes += router.routes
    app.add_api_websocket_route("/v1/profiles/{profile_id}/stream", verify_stream)
    app.add_api_websocket_route("/{path:path}", refuse_stream)
    for path, file in PAGES.items():
        app.add_api_route(path, partial(page_file, file), include_in_schema=False)
    app.mount("/", StaticFiles(directory=PAGE_FOLDER, html=True), name="page")
    app.add_middleware(AccessMiddleware, runtime=runtime)
    return app


async def page_file(name: str) -> FileResponse:
    """Return the file `name` of the web page as an answer."""
    return FileResponse(PAGE_FOLDER / name)


def with_bearer(description: dict[str, Any]) -> dict[str, Any]:
    """Add the header "Authorization: Bearer KEY", the alternative to X-API-Key, to an OpenAPI description."""
    schemes = description["components"]["securitySchemes"]
    if "Bearer" not in schemes:
        schemes["Bearer"] = {"type": "http", "scheme": "bearer"}
        for operations in description["paths"].values():
            for operation in operations.values():
                if "security" in operation:
                    operation["security"].append({"Bearer": []})
    return description


# -- opening -----------------------------------------------------------------------------


def open_store(settings: Settings, is_urgent: bool = False) -> Store:
    """Open the database that the settings name, and read the API keys of the environment.

    Parameters
    ----------
    settings : addresses of the databases, and timeouts
    is_urgent : whether this process may write to SQLite before a running service

    Raises
    ------
    ParameterError : if the database cannot be used, or if an API key in the environment is malformed
    """
    store = new_store(settings, settings.key_url, is_urgent)
    store.api_keys.environment = environment_keys()
    return store


def new_store(settings: Settings, key_url: str | None, is_urgent: bool = False) -> Store:
    """Open the database that the settings name, without the API keys of the environment.

    Parameters
    ----------
    settings : address of the database, and timeouts
    key_url : address of the database of data keys; None: they are in the database of the profiles
    is_urgent : whether this process may write to SQLite before a running service

    Raises
    ------
    ParameterError : if the database cannot be used
    """
    settings.data.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        return Store(settings.database_url, key_url, settings, is_urgent)
    except DBAPIError as error:
        raise ParameterError(
            f"the database cannot be used: {error.orig}. Check that it runs, and that --database has the right "
            "address, user and password"
        ) from error


def master_folder(settings: Settings) -> Path | None:
    """Return the folder of the master key's file; None if the database is not SQLite.

    The master key must then come from the environment.
    """
    local = settings.database is None or settings.database.startswith("sqlite")
    return settings.data if local else None


def open_master(settings: Settings, create: bool) -> MasterKey:
    """Return the present master key; if there is none and `create` is true, make a file with a random key."""
    return MasterKey.find(master_folder(settings), create)


def open_masters(settings: Settings, create: bool) -> KeyRing:
    """Return the present master key and, while a change of the master key is in progress, the new one.

    A key that is made later is found when data encrypted with it are read.

    create : whether to make a file with a random key if there is no master key
    """
    folder = master_folder(settings)
    first = MasterKey.find(folder, create)
    return KeyRing([first, *find_masters(folder)], partial(find_masters, folder))


def open_service(settings: Settings) -> Service:
    """Open the model, the database and the master key that the settings name, and return the service.

    A master key is made only for a database that has none yet.

    Raises
    ------
    ParameterError : if the model, the database or the keys cannot be used
    """
    model = open_model(settings)
    store = open_store(settings)
    if store.api_keys.are_lost():
        raise ParameterError(
            "this database was served with API keys before, and has none now: set MVPLDA_API_KEYS as before, or make a "
            "key with `mvplda serve key NAME --role admin`"
        )
    store.api_keys.require()
    masters = open_masters(settings, store.meta("master") is None)
    return Service(store, masters, model, settings)


# -- the server --------------------------------------------------------------------------


def server_options(settings: Settings) -> dict[str, Any]:
    """Return {option: value} of the function `uvicorn.run`."""
    return {
        "host": settings.host,
        "port": settings.port,
        "http": TimeoutProtocol,
        "ws": StreamProtocol,
        "log_config": None,
        "access_log": False,
        "server_header": False,
        "timeout_graceful_shutdown": 20,
        "timeout_keep_alive": 15,
        "ws_max_size": LARGEST_FRAME,
        "ws_per_message_deflate": False,
    }


def run(service: Service, settings: Settings) -> None:
    """Serve over HTTP until the process is stopped; requests in progress are finished first.

    With several workers, each is a process that opens the service again from the settings.
    """
    options = server_options(settings)
    # matrix products are small: threads inside of them cost more than they gain
    threadpool_limits(1)
    if settings.workers == 1:
        uvicorn.run(application(service), **options)
        return
    service.store.close()
    log_to_standard_error(settings)
    os.environ[SETTINGS] = settings.model_dump_json()
    if "timeout_worker_healthcheck" in inspect.signature(uvicorn.run).parameters:
        options["timeout_worker_healthcheck"] = 60  # a worker that loads its model is not dead
    with tempfile.TemporaryDirectory(prefix="mvplda-metrics-") as folder:
        os.environ[MULTIPROCESS] = folder
        uvicorn.run(
            "mvplda.serve.app:from_environment", factory=True, workers=settings.workers, **options
        )
        if WorkerStarts(Path(folder), settings.workers).has_failed:
            raise SystemExit(START_FAILURE)


def from_environment() -> ASGIApp:
    """Return the application of a worker process, whose settings are in the environment variable `SETTINGS`."""
    threadpool_limits(1)
    settings = Settings.model_validate_json(os.environ[SETTINGS])
    log_to_standard_error(settings)
    starts = WorkerStarts(Path(os.environ[MULTIPROCESS]), settings.workers)
    return application(starts.run(partial(open_service, settings)))


def application(service: Service) -> ASGIApp:
    """Return the ASGI application of a service, and set up its log on standard error.

    If no API key exists, clients on this machine need none.
    """
    app = create_app(service, is_open=not service.store.api_keys.names())
    TimeoutProtocol.settings = service.settings
    TimeoutProtocol.bodies = app.state.runtime.bodies
    # loaded objects stay: garbage collection over them would stop all calls for a tenth of a second
    gc.collect()
    gc.freeze()
    log_to_standard_error(service.settings)
    return app


def log_to_standard_error(settings: Settings) -> None:
    """Write the log of this process to standard error, in the format of the settings."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(log_formatter(settings.log_format, sys.stderr))
    handler.addFilter(is_no_handshake)
    for name in ("mvplda.serve", "uvicorn", "uvicorn.error"):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.propagate = False
        logger.setLevel(logging.INFO)
