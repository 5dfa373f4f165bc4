"""The service as an ASGI application."""

# ruff: noqa: E402

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from .. import __version__
from .._optional import need

need("fastapi")
need("python_multipart")

from anyio import CapacityLimiter, fail_after, to_thread
from fastapi import FastAPI, Request
from fastapi.responses import FileResponse, Response
from fastapi.staticfiles import StaticFiles
from starlette.formparsers import MultiPartParser

from .access import Access, Rates, handle_errors
from .keys import Caller
from .metrics import Metrics
from .problems import Problem
from .routes import decisions, operation, phrases, profiles
from .schemas import ProblemDetails
from .service import Service
from .settings import Settings

__all__ = ["create_app"]

PAGE_FOLDER = Path(__file__).with_name("page")
READY_S = 3.0
"""Seconds after which a database that does not answer is not ready."""
Result = TypeVar("Result")


class Runtime:
    """What endpoints share: the service, its limits, threads and metrics."""

    def __init__(self, service: Service, settings: Settings, is_open: bool) -> None:
        self.service = service
        self.settings = settings
        self.is_open = is_open
        self.metrics = Metrics()
        self.key_rates = Rates(settings.key_rate)
        self.profile_rates = Rates(settings.profile_rate)
        self.anonymous_rates = Rates(settings.anonymous_rate)
        self._heavy = CapacityLimiter(settings.at_once)
        self._light = CapacityLimiter(settings.threads)
        self._ping = CapacityLimiter(1)

    async def run(self, work: Callable[..., Result], *arguments: Any) -> Result:
        """Something that waits for the database, in a thread."""
        return await to_thread.run_sync(lambda: work(*arguments), limiter=self._light)

    async def run_heavy(self, work: Callable[..., Result], *arguments: Any) -> Result:
        """Something that computes for long; where too much of it waits, it is refused."""
        if self._heavy.statistics().tasks_waiting >= self.settings.waiting:
            raise Problem(503, "busy", "too many recordings are waiting: try again", wait=1)
        return await to_thread.run_sync(lambda: work(*arguments), limiter=self._heavy)

    async def ping(self) -> None:
        """Whether the database answers, whatever other calls wait for."""
        try:
            with fail_after(READY_S):
                await to_thread.run_sync(
                    self.service.store.ping, limiter=self._ping, abandon_on_cancel=True
                )
        except TimeoutError:
            raise Problem(503, "database", "the database does not answer", wait=2) from None

    def gauges(self) -> dict[str, float]:
        waiting = self._heavy.statistics()
        return {
            "mvplda_recordings_in_work": waiting.borrowed_tokens,
            "mvplda_recordings_waiting": waiting.tasks_waiting,
        }

    async def caller(self, request: Request, key: str | None) -> Caller:
        """Who calls; a call without a valid key is refused, and counted by its address."""
        found: Caller | None = None
        if key:
            found = await self.run(self.service.store.find_caller, key)
        elif self.is_open:
            found = Caller("local", "admin")
        if found is None:
            address = request.client.host if request.client else ""
            wait = self.anonymous_rates.wait(address)
            if wait:
                raise Problem(429, "rate", "too many calls without a key", wait=wait)
            detail = "send an API key: the header X-API-Key, or Authorization: Bearer"
            raise Problem(401, "key", detail)
        wait = self.key_rates.wait(found.name)
        if wait:
            raise Problem(429, "rate", "too many calls with this key", wait=wait)
        request.state.caller = found.name
        return found


def create_app(
    service: Service, settings: Settings | None = None, *, is_open: bool = False
) -> FastAPI:
    """The application.

    is_open : no keys: whoever reaches the machine's own address may do everything
    """
    settings = settings or service.settings
    runtime = Runtime(service, settings, is_open)

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
    )
    app.state.runtime = runtime
    # the parser of forms would write what is larger than this to a file
    MultiPartParser.spool_max_size = max(MultiPartParser.spool_max_size, settings.most_bytes)
    for router in (operation, phrases, profiles, decisions):
        app.include_router(router)
    app.add_api_route("/docs", docs_page, include_in_schema=False)
    describe_problems(app)
    handle_errors(app)
    if PAGE_FOLDER.is_dir():
        app.mount("/", StaticFiles(directory=PAGE_FOLDER, html=True), name="page")
    app.add_middleware(Access, settings=settings, is_open=is_open, metrics=runtime.metrics)
    return app


async def docs_page() -> Response:
    """The reference of all endpoints, made by a script of the package of /openapi.json."""
    return FileResponse(PAGE_FOLDER / "docs.html")


def describe_problems(app: FastAPI) -> None:
    """Put the schema of refusals into OpenAPI: no endpoint has it as its own answer."""
    made = app.openapi

    def openapi() -> dict[str, Any]:
        schema = made()
        template = "#/components/schemas/{model}"
        details = ProblemDetails.model_json_schema(ref_template=template)
        schema.setdefault("components", {}).setdefault("schemas", {})["ProblemDetails"] = details
        return schema

    app.openapi = openapi  # type: ignore[method-assign]
