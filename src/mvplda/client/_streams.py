"""Verification of streamed sound over a WebSocket: messages, and exchange of them with and without asyncio."""

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
    """Evidence of the service about the sound that it has received of a stream so far.

    The LLRs are None if there is too little speech, if the policy of the API key hides them, if words are prompted, or
    if the service is busy with other recordings.

    Parameters
    ----------
    seconds, speech_s : seconds of sound, and of speech in it
    llr : natural log-likelihood ratio of the claim (owner and phrase)
    llr_speaker, llr_phrase : natural log-likelihood ratios of the same speaker, and of the same phrase
    """

    seconds: float
    speech_s: float
    llr: float | None
    llr_speaker: float | None
    llr_phrase: float | None

    @classmethod
    def from_json(cls, reply: Json) -> StreamLook:
        """Convert a message of the type ``look`` from JSON to a record."""
        llrs = (reply["llr"], reply["llrSpeaker"], reply["llrPhrase"])
        return cls(reply["seconds"], reply["speechS"], *llrs)


OnLook = Callable[[StreamLook], object]
Blocks = Iterable[bytes] | AsyncIterable[bytes]
"""PCM as it arrives: 16 bits, little-endian, one channel. Only the client for asyncio takes an asynchronous one."""


@dataclass(frozen=True)
class StreamCall:
    """Request to open the WebSocket of one verification, with the function that reads its messages.

    Parameters
    ----------
    url : address of the WebSocket, with the fields of the request in its query
    headers : headers of the request, with an Idempotency-Key
    timeout_s : seconds to wait for the connection, and for the decision
    retries : rules for requesting the stored decision of a stream that broke off
    on_look : called with each `StreamLook`; None: looks are ignored
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
        *,
        rate: int,
        phrase: str | None,
        challenge_id: str | None,
        far: float | None,
        early: bool,
    ) -> StreamCall:
        """Return the request for a stream about a profile, built from the settings of a client.

        Parameters
        ----------
        options : options of the client's httpx client: ``base_url``, ``headers`` and ``timeout`` are used
        retries, on_look : see the class
        profile_id : id of the claimed profile
        rate, phrase, challenge_id, far, early : fields of the query, see `Client.verify_stream`; those that are
            None are left out
        """
        base = "ws" + options["base_url"].removeprefix("http")
        fields = given(
            rate=rate, phrase=phrase, challengeId=challenge_id, far=far, early=str(early).lower()
        )
        query = urlencode(fields)
        url = f"{base}profiles/{profile_id}/stream?{query}"
        return cls(url, once(options["headers"]), options["timeout"], retries, on_look)

    @property
    def connection(self) -> dict[str, Any]:
        """Keyword arguments of the function `connect` of the package websockets."""
        return {
            "uri": self.url,
            "additional_headers": self.headers,
            "open_timeout": self.timeout_s,
            "compression": None,
        }

    def read(self, message: str | bytes) -> VerificationDecision | None:
        """Return the decision in a message, or pass a look to `on_look` and return None.

        Raises `ServiceError` if the message is a refusal.
        """
        reply = json.loads(message)
        if reply["type"] == "decision":
            return VerificationDecision.from_json(reply)
        if reply["type"] == "problem":
            fields = {**reply, "type": reply["problem"]}
            raise ServiceError(reply["status"], fields, reply.get("retryAfter"))
        if self.on_look is not None:
            self.on_look(StreamLook.from_json(reply))
        return None

    def wait_for_stored_decision(self, attempt: int, error: Exception) -> float:
        """Return the seconds to wait before the next request for the stored decision of a stream that broke off.

        Parameters
        ----------
        attempt : number of the request, from 1
        error : why the stream, or the previous request, failed

        Raises
        ------
        NoAnswerError : if no further attempt is allowed, or if the service has no decision
        """
        wait = self.retries.wait(attempt, None)
        is_in_progress = isinstance(error, ServiceError) and error.kind == "in-progress"
        if wait is None or (isinstance(error, (TimeoutError, ServiceError)) and not is_in_progress):
            raise NoAnswerError(
                f"the stream broke off before the service decided ({error}): send the recording again"
            ) from error
        return wait


def refusal(error: Any) -> ServiceError:
    """Return the exception for a handshake that the service refused; `error` is websockets' `InvalidStatus`."""
    response = error.response
    return error_of(response.status_code, response.headers, response.body or b"")


def send_stream(call: StreamCall, blocks: Blocks) -> VerificationDecision:
    """Send blocks of sound until the service decides or they end, and return the decision of the service.

    Raises
    ------
    ServiceError : if the service refuses the stream
    NoAnswerError : if the stream breaks off, and the service has no decision about it
    TypeError : if `blocks` is an asynchronous iterable
    """
    if isinstance(blocks, AsyncIterable):
        raise TypeError(
            "expected blocks as an iterable of bytes; got an asynchronous iterable: pass it to AsyncClient"
        )
    errors = need("websockets.exceptions")
    connect = need("websockets.sync.client").connect
    try:
        with connect(**call.connection) as socket:
            try:
                for block in blocks:
                    socket.send(block)
                    decision = _decision_received(call, socket)
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
        return _stored_decision(call, error)


def _decision_received(call: StreamCall, socket: Any) -> VerificationDecision | None:
    """Read the messages that have arrived so far; return the decision, or None if it is not among them."""
    while True:
        try:
            message = socket.recv(timeout=SOON_S)
        except TimeoutError:
            return None
        decision = call.read(message)
        if decision is not None:
            return decision


def _stored_decision(call: StreamCall, error: Exception) -> VerificationDecision:
    """Return the decision that the service stored, under the call's Idempotency-Key, about a stream that broke off.

    error : why the stream broke off

    Raises
    ------
    ServiceError : if the service refuses to open the stream again
    NoAnswerError : if the service has no decision
    """
    errors = need("websockets.exceptions")
    connect = need("websockets.sync.client").connect
    attempt = 0
    while True:
        attempt += 1
        time.sleep(call.wait_for_stored_decision(attempt, error))
        try:
            with connect(**call.connection) as socket:
                decision = call.read(socket.recv(timeout=STORED_S))
                if decision is not None:
                    return decision
        except errors.InvalidStatus as refused:
            raise refusal(refused) from refused
        except (ServiceError, errors.ConnectionClosed, OSError) as again:
            error = again


async def send_stream_async(call: StreamCall, blocks: Blocks) -> VerificationDecision:
    """Send blocks of sound, like `send_stream`, but let other tasks of the event loop run meanwhile.

    `blocks` may be an iterable or an asynchronous iterable.
    """
    errors = need("websockets.exceptions")
    connect = need("websockets.asyncio.client").connect
    try:
        async with connect(**call.connection) as socket:
            sending = asyncio.ensure_future(_send_blocks(socket, blocks))
            try:
                async for message in socket:
                    decision = call.read(message)
                    if decision is not None:
                        return decision
                raise ConnectionError("the service closed the stream without a decision")
            finally:
                sending.cancel()
    except errors.InvalidStatus as error:
        raise refusal(error) from error
    except (errors.ConnectionClosed, OSError) as error:
        # the service stores the decision under the call's Idempotency-Key
        return await asyncio.to_thread(_stored_decision, call, error)


async def _send_blocks(socket: Any, blocks: Blocks) -> None:
    """Send all blocks, then the message that ends the stream."""
    if isinstance(blocks, AsyncIterable):
        async for block in blocks:
            await socket.send(block)
    else:
        for block in blocks:
            await socket.send(block)
    await socket.send(END)
