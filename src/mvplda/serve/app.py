"""The service as an ASGI application."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartParser

from .. import __version__
from .access import Access, Rates, refuse
from .keys import Caller
from .metrics import Metrics
from .problems import Problem
from .routes import router
from .service import Service

PAGE_FOLDER = Path(__file__).with_name("page")
READY_S = 3.0
"""Seconds after which a database that does not answer is not ready."""
Result = TypeVar("Result")


class Runtime:
    """What endpoints share: the service, its limits, threads and metrics."""

    def __init__(self, service: Service, is_open: bool) -> None:
        settings = service.settings
        self.service = service
        self.settings = settings
        self.is_open = is_open
        self.metrics = Metrics()
        self.key_rates = Rates(settings.key_rate)
        self.profile_rates = Rates(settings.profile_rate)
        self._light = ThreadPoolExecutor(settings.threads)
        self._heavy = ThreadPoolExecutor(settings.at_once)
        self._ping = ThreadPoolExecutor(1)
        self.recordings = 0

    def has(self, decision: str) -> None:
        """Refuse a decision that this instance does not make."""
        role = self.settings.role
        if role not in ("all", decision):
            raise Problem(404, "not-found", f"this instance does not {decision}: it is for {role}")

    async def run(self, work: Callable[..., Result], *arguments: Any) -> Result:
        """Something that waits for the database, in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._light, work, *arguments)

    async def run_heavy(self, work: Callable[..., Result], *arguments: Any) -> Result:
        """Something that computes for long; where too much of it waits, it is refused."""
        if self.recordings >= self.settings.at_once + self.settings.waiting:
            raise Problem(503, "busy", "too many recordings are waiting: try again", wait=1)
        self.recordings += 1
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._heavy, work, *arguments)
        finally:
            self.recordings -= 1

    async def ping(self) -> None:
        """Whether the database answers, whatever other calls wait for."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(READY_S):
                await loop.run_in_executor(self._ping, self.service.store.ping)
        except TimeoutError:
            raise Problem(503, "database", "the database does not answer", wait=2) from None

    async def caller(self, request: Request, key: str | None) -> Caller:
        """Who calls; a call without a valid key is refused, and counted by its address."""
        found: Caller | None = None
        if key:
            found = await self.run(self.service.store.find_caller, key)
        elif self.is_open:
            found = Caller("local", "admin")
        if found is None:
            detail = "send an API key: the header X-API-Key, or Authorization: Bearer"
            raise Problem(401, "key", detail)
        self.key_rates.check(found.name, "too many calls with this key")
        request.state.caller = found.name
        return found


def create_app(service: Service, *, is_open: bool = False) -> FastAPI:
    """The application.

    is_open : no keys: whoever reaches the machine's own address may do everything
    """
    settings = service.settings
    runtime = Runtime(service, is_open)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        service.store.close()  # SQLite then empties its log, where erased rows may still be

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
    # the parser of forms would write what is larger than this to a file
    MultiPartParser.spool_max_size = max(MultiPartParser.spool_max_size, settings.most_bytes)
    app.include_router(router)
    app.mount("/", StaticFiles(directory=PAGE_FOLDER, html=True), name="page")
    app.add_middleware(Access, settings=settings, is_open=is_open, metrics=runtime.metrics)
    return app
