"""Connections of the HTTP server: largest number, file handles, and time limits for unfinished requests."""

from __future__ import annotations

import asyncio
import socket
from typing import Any, ClassVar

from uvicorn.protocols.http.auto import AutoHTTPProtocol
from uvicorn.protocols.websockets.auto import AutoWebSocketsProtocol

from ..exceptions import ParameterError
from .addresses import UnfinishedBodies
from .settings import Settings

# File handles that a process needs besides its connections: program, model, logs, metrics and event loop.
OTHER_HANDLES = 100
IS_SHUT_DOWN = "mvplda.is_shut_down"
"""Key of the scope of a WebSocket that the service ended because it is shut down."""


class TimeoutProtocol(AutoHTTPProtocol):  # type: ignore[valid-type, misc]
    """HTTP protocol of one connection, which is closed if its client does not complete a request.

    A connection whose request headers are incomplete after ``header_s`` seconds is closed. If there are more than
    ``connections`` connections, the oldest one without complete headers is closed; if there is none, the oldest request
    with an unfinished body is refused. Clients that send slowly therefore never block others.

    Attributes
    ----------
    settings : limits ``connections`` and ``header_s``
    bodies : requests whose body has not arrived completely
    waiting : connections without a complete request, oldest first
    """

    settings: ClassVar[Settings]
    bodies: ClassVar[UnfinishedBodies]
    waiting: ClassVar[dict[int, TimeoutProtocol]] = {}
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if len(self.connections) > self.settings.connections:
            oldest = next(iter(self.waiting.values()), None)
            if oldest is not None:
                oldest.close_unfinished()
            elif not self.bodies.refuse_oldest():
                transport.close()
                return
        self._wait()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.transport.get_protocol() is not self or self._is_answering():
            # a WebSocket has a protocol and limits of its own
            self._stop_waiting()
        elif self._timer is None:
            self._wait()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        # an idle connection is closed by uvicorn's own time limit, or earlier if there are too many connections
        if not self._is_answering() and not self.transport.is_closing():
            self.waiting[id(self)] = self

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def _is_answering(self) -> bool:
        """Return whether a request with complete headers has not been answered completely."""
        return self.cycle is not None and not self.cycle.response_complete

    def _wait(self) -> None:
        """Start the time limit for the headers of the next request."""
        self.waiting[id(self)] = self
        self._timer = self.loop.call_later(self.settings.header_s, self.close_unfinished)

    def _stop_waiting(self) -> None:
        """Stop the time limit for the headers."""
        self.waiting.pop(id(self), None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def close_unfinished(self) -> None:
        """Close the connection, unless it is answering a request."""
        self._stop_waiting()
        if not self._is_answering():
            self.transport.close()


class StreamProtocol(AutoWebSocketsProtocol):  # type: ignore[valid-type, misc]
    """WebSocket of one connection; its scope has the key `IS_SHUT_DOWN` after a shut-down of the server.

    The close code does not suffice: a client may send the code of a shut-down itself.
    """

    def shutdown(self) -> None:
        # without a handshake there is no scope yet
        scope: dict[str, Any] = getattr(self, "scope", {})
        scope[IS_SHUT_DOWN] = True
        super().shutdown()


def check_port(settings: Settings) -> None:
    """Raise `ParameterError` if the service cannot listen at its host and port, such as a port that is in use."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        socket.create_server((settings.host, settings.port), family=family).close()
    except OSError as error:
        raise ParameterError(
            f"cannot listen at port {settings.port} of {settings.host}: {error.strerror}. "
            "If another program uses this port, stop it or pass another --port"
        ) from error


def reserve_file_handles(settings: Settings) -> None:
    """Increase this process's limit of open files to the number that its connections need.

    Raises
    ------
    ParameterError : if the system does not allow so many
    """
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    # each of two databases has at most this many connections, with up to three files in SQLite
    per_database = settings.at_once + 2 * settings.threads + 2
    needed = settings.connections + 6 * per_database + OTHER_HANDLES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise ParameterError(
            f"--connections {settings.connections} needs {needed} open files, and the system allows {hard}: "
            f"raise the limit (ulimit -n, LimitNOFILE= of systemd), or pass --connections "
            f"{max(1, hard - needed + settings.connections)}"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
