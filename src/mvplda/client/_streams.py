"""Verification of a stream over a WebSocket: its messages, and the two ways to exchange them."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterable, Callable, Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from .._optional import need
from ._calls import RetryPolicy, error_of, given, once
from ._errors import NoAnswerError, ServiceError
from ._replies import Json, VerificationDecision

END = json.dumps({"type": "end"})
SOON_S = 1e-3
"""Seconds to wait for a message that may have arrived."""
STORED_S = 2.0
"""Seconds to wait for the stored decision of a stream that broke off."""


@dataclass(frozen=True)
class StreamLook:
    """Evidence of a stream before its end; LLRs are None if the policy of the key does not include them.

    seconds, speech_s : duration of the stream, and of the speech in it
    """

    seconds: float
    speech_s: float
    llr: float | None
    llr_speaker: float | None
    llr_phrase: float | None

    @classmethod
    def from_json(cls, reply: Json) -> StreamLook:
        llrs = (reply["llr"], reply["llrSpeaker"], reply["llrPhrase"])
        return cls(reply["seconds"], reply["speechS"], *llrs)


OnLook = Callable[[StreamLook], object]
Blocks = Iterable[bytes] | AsyncIterable[bytes]
"""PCM as it arrives: 16 bits, little-endian, one channel. Only the client for asyncio takes an asynchronous one."""


@dataclass(frozen=True)
class StreamCall:
    """WebSocket of one attempt.

    on_look : called with each look
    """

    url: str
    headers: dict[str, str]
    timeout_s: float
    retries: RetryPolicy
    on_look: OnLook | None = None

    @classmethod
    def of(
        cls,
        options: dict[str, Any],
        retries: RetryPolicy,
        profile_id: str,
        on_look: OnLook | None,
        **fields: Any,
    ) -> StreamCall:
        """Return the call of a client.

        options : options of its HTTP client
        fields : fields of the query; those that are None are left out
        """
        base = "ws" + options["base_url"].removeprefix("http")
        query = urlencode(given(**fields))
        url = f"{base}profiles/{profile_id}/stream?{query}"
        return cls(url, once(options["headers"]), options["timeout"], retries, on_look)

    @property
    def connection(self) -> dict[str, Any]:
        """Return the arguments of `websockets` for a connection."""
        return {
            "uri": self.url,
            "additional_headers": self.headers,
            "open_timeout": self.timeout_s,
            "compression": None,
        }

    def read(self, message: str | bytes) -> VerificationDecision | None:
        """Return the decision in a message, or None for a look; raise for a refusal."""
        reply = json.loads(message)
        if reply["type"] == "decision":
            return VerificationDecision.from_json(reply)
        if reply["type"] == "problem":
            fields = {**reply, "type": reply["problem"]}
            raise ServiceError(reply["status"], fields, reply.get("retryAfter"))
        if self.on_look is not None:
            self.on_look(StreamLook.from_json(reply))
        return None

    def wait_for_stored(self, attempt: int, error: Exception) -> float:
        """Return the seconds before the stored decision is asked for; raise if it is not to be had."""
        wait = self.retries.wait(attempt, None)
        is_in_progress = isinstance(error, ServiceError) and error.kind == "in-progress"
        if wait is None or (isinstance(error, (TimeoutError, ServiceError)) and not is_in_progress):
            raise NoAnswerError(f"the stream broke off before it was decided: {error}") from error
        return wait


def refusal(error: Any) -> ServiceError:
    """Return the exception for a handshake that the service refused."""
    response = error.response
    return error_of(response.status_code, response.headers, response.body or b"")


def run(call: StreamCall, blocks: Blocks) -> VerificationDecision:
    """Send blocks until the service decides; return its decision."""
    if isinstance(blocks, AsyncIterable):
        raise TypeError("expected an iterable of bytes; got an asynchronous one: use AsyncClient")
    errors = need("websockets.exceptions")
    connect = need("websockets.sync.client").connect
    try:
        with connect(**call.connection) as socket:
            try:
                for block in blocks:
                    socket.send(block)
                    decision = _received(call, socket)
                    if decision is not None:
                        return decision
                socket.send(END)
            except errors.ConnectionClosed:
                # the decision may have arrived before
                pass
            while True:
                decision = call.read(socket.recv(timeout=call.timeout_s))
                if decision is not None:
                    return decision
    except errors.InvalidStatus as error:
        raise refusal(error) from error
    except (errors.ConnectionClosed, OSError) as error:
        return _stored(call, error)


def _received(call: StreamCall, socket: Any) -> VerificationDecision | None:
    """Read the messages that have arrived."""
    while True:
        try:
            message = socket.recv(timeout=SOON_S)
        except TimeoutError:
            return None
        decision = call.read(message)
        if decision is not None:
            return decision


def _stored(call: StreamCall, error: Exception) -> VerificationDecision:
    """Return the decision about a stream that broke off: the service stores it under the call's Idempotency-Key."""
    errors = need("websockets.exceptions")
    connect = need("websockets.sync.client").connect
    attempt = 0
    while True:
        attempt += 1
        time.sleep(call.wait_for_stored(attempt, error))
        try:
            with connect(**call.connection) as socket:
                decision = call.read(socket.recv(timeout=STORED_S))
                if decision is not None:
                    return decision
        except errors.InvalidStatus as refused:
            raise refusal(refused) from refused
        except (ServiceError, errors.ConnectionClosed, OSError) as again:
            error = again


async def run_async(call: StreamCall, blocks: Blocks) -> VerificationDecision:
    """Send blocks until the service decides; return its decision."""
    errors = need("websockets.exceptions")
    connect = need("websockets.asyncio.client").connect
    try:
        async with connect(**call.connection) as socket:
            sending = asyncio.ensure_future(_send(socket, blocks))
            try:
                async for message in socket:
                    decision = call.read(message)
                    if decision is not None:
                        return decision
                raise ConnectionError("the service closed the stream")
            finally:
                sending.cancel()
    except errors.InvalidStatus as error:
        raise refusal(error) from error
    except (errors.ConnectionClosed, OSError) as error:
        # the service stores the decision under the call's Idempotency-Key
        return await asyncio.to_thread(_stored, call, error)


async def _send(socket: Any, blocks: Blocks) -> None:
    """Send all blocks, then the end."""
    if isinstance(blocks, AsyncIterable):
        async for block in blocks:
            await socket.send(block)
    else:
        for block in blocks:
            await socket.send(block)
    await socket.send(END)
