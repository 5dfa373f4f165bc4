"""uvicorn's protocol with limits of time and number for connections that have not sent a whole request."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, ClassVar

from .settings import Settings

Base: Any
try:
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol as Base
except ImportError:
    from uvicorn.protocols.http.h11_impl import H11Protocol as Base


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
