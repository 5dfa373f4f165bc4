"""The clients: one that waits for answers, and one for asyncio, with the same methods."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from .._optional import need
from . import _calls as calls
from ._calls import Call, RetryPolicy, Sound
from ._errors import NoAnswerError, ServiceError
from ._replies import (
    Enrolment,
    Profile,
    ProfileChallenge,
    SpeakerIdentification,
    VerificationDecision,
)
from ._streams import Blocks, OnLook, StreamCall, run, run_async

if TYPE_CHECKING:
    import httpx

Reply = TypeVar("Reply")
Vector = Sequence[float]
DEFAULT_RETRIES = RetryPolicy()


class _Base:
    """Shared part of both clients: options of the connection, and waits before a call is repeated."""

    def __init__(
        self,
        url: str,
        key: str | None = None,
        *,
        timeout_s: float = 30.0,
        retries: RetryPolicy = DEFAULT_RETRIES,
        **options: Any,
    ) -> None:
        headers = {} if key is None else {"X-API-Key": key}
        self._retries = retries
        self._options: dict[str, Any] = {
            "base_url": f"{url.rstrip('/')}/v1/",
            "headers": headers,
            "timeout": timeout_s,
            **options,
        }
        self._errors: type[Exception] = need("httpx").TransportError

    def _wait(self, call: Call[Any], attempt: int, error: Exception) -> float:
        """Return the seconds to wait before the next attempt; raise the error if there is none."""
        refusal = error if isinstance(error, ServiceError) else None
        wait = self._retries.wait(attempt, refusal)
        if wait is not None:
            return wait
        if refusal is not None:
            raise refusal
        raise NoAnswerError(f"{call.method} {call.path}: {error}") from error


def _request(call: Call[Any]) -> dict[str, Any]:
    """Return the arguments of a request of httpx."""
    return {
        "method": call.method,
        "url": call.path,
        "params": call.query,
        "content": call.content,
        "headers": call.headers,
    }


def _read(call: Call[Reply], answer: httpx.Response) -> Reply:
    """Return the record of an answer; raise for a refusal."""
    if not answer.is_success:
        raise calls.error_of(answer.status_code, answer.headers, answer.content)
    return call.read(answer.json())


class Client(_Base):
    """Client of a service.

    A call without an answer, or that is refused for a while, is sent again with the same ``Idempotency-Key``: the
    service does it once.

    Parameters
    ----------
    url : such as ``https://voice.example.org``
    key : API key; None: a service without keys on the same machine
    timeout_s : seconds to wait for an answer, per attempt
    retries : attempts and waits
    options : options of `httpx.Client`, such as ``verify`` or ``proxy``
    """

    def __init__(
        self,
        url: str,
        key: str | None = None,
        *,
        timeout_s: float = 30.0,
        retries: RetryPolicy = DEFAULT_RETRIES,
        **options: Any,
    ) -> None:
        super().__init__(url, key, timeout_s=timeout_s, retries=retries, **options)
        self._http: httpx.Client = need("httpx").Client(**self._options)

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def _send(self, call: Call[Reply]) -> Reply:
        attempt = 0
        while True:
            attempt += 1
            try:
                return _read(call, self._http.request(**_request(call)))
            except (ServiceError, self._errors) as error:
                time.sleep(self._wait(call, attempt, error))

    def create_profile(
        self, user_id: str | None = None, *, phrase: str | None = None, consent: str
    ) -> Profile:
        """Create a profile; `consent` is what the person agreed to."""
        return self._send(calls.create_profile(user_id, phrase, consent))

    def profile(self, profile_id: str) -> Profile:
        """Return a profile."""
        return self._send(calls.profile(profile_id))

    def profiles(self, user_id: str | None = None, search: str | None = None) -> Iterator[Profile]:
        """Yield profiles: all, those of a user, or those whose user id begins with `search`."""
        after = None
        while True:
            query = calls.profiles(userId=user_id, search=search, after=after)
            items, after = self._send(query)
            yield from items
            if after is None:
                return

    def enrol(
        self,
        profile_id: str,
        sound: Sound | None = None,
        *,
        vector: Vector | None = None,
        phrase: str | None = None,
        session: str | None = None,
    ) -> Enrolment:
        """Add a recording to a profile; raises `RefusedRecordingError` if it cannot be used."""
        return self._send(calls.enrol(profile_id, sound, vector, phrase, session))

    def verify(
        self,
        profile_id: str,
        sound: Sound | None = None,
        *,
        vector: Vector | None = None,
        phrase: str | None = None,
        challenge_id: str | None = None,
        far: float | None = None,
        countermeasure_llr: float | None = None,
    ) -> VerificationDecision:
        """Decide whether the owner of a profile says the phrase."""
        fields = {
            "phrase": phrase,
            "challengeId": challenge_id,
            "far": far,
            "countermeasureLlr": countermeasure_llr,
        }
        return self._send(calls.verify(profile_id, sound, vector, **fields))

    def verify_stream(
        self,
        profile_id: str,
        blocks: Blocks,
        *,
        rate: int = 16000,
        phrase: str | None = None,
        challenge_id: str | None = None,
        far: float | None = None,
        early: bool = True,
        on_look: OnLook | None = None,
    ) -> VerificationDecision:
        """Decide whether the owner of a profile speaks, while they speak.

        blocks : PCM as it arrives: 16 bits, little-endian, one channel
        rate : samples per second
        early : whether the service may decide before the end of `blocks`
        on_look : called with a `StreamLook` after every half second of speech
        """
        fields = {
            "rate": rate,
            "phrase": phrase,
            "challengeId": challenge_id,
            "far": far,
            "early": str(early).lower(),
        }
        call = StreamCall.of(self._options, self._retries, profile_id, on_look, **fields)
        return run(call, blocks)

    def identify(
        self,
        sound: Sound | None = None,
        *,
        vector: Vector | None = None,
        candidates: Sequence[str] | None = None,
        top: int | None = None,
        prior_none: float | None = None,
    ) -> SpeakerIdentification:
        """Identify a speaker among all profiles, or among `candidates`."""
        fields = {"top": top, "priorNone": prior_none}
        return self._send(calls.identify(sound, vector, candidates, **fields))

    def challenge(self, profile_id: str, kind: str | None = None) -> ProfileChallenge:
        """Return a random phrase for one verification."""
        return self._send(calls.challenge(profile_id, kind))

    def reset(self, profile_id: str) -> Profile:
        """Remove all recordings of a profile."""
        return self._send(calls.change(profile_id, "reset"))

    def unlock(self, profile_id: str) -> Profile:
        """Unlock a profile after rejections."""
        return self._send(calls.change(profile_id, "unlock"))

    def opt_out(self, profile_id: str) -> Profile:
        """Erase a person's voice, and keep the name, marked as opted out."""
        return self._send(calls.change(profile_id, "opt-out"))

    def delete(self, profile_id: str) -> None:
        """Erase a person; a person who is deleted already is no error."""
        try:
            self._send(calls.delete(profile_id))
        except ServiceError as error:
            if error.kind != "deleted":
                raise


class AsyncClient(_Base):
    """Client of a service for asyncio; see `Client`."""

    def __init__(
        self,
        url: str,
        key: str | None = None,
        *,
        timeout_s: float = 30.0,
        retries: RetryPolicy = DEFAULT_RETRIES,
        **options: Any,
    ) -> None:
        super().__init__(url, key, timeout_s=timeout_s, retries=retries, **options)
        self._http: httpx.AsyncClient = need("httpx").AsyncClient(**self._options)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.aclose()

    async def _send(self, call: Call[Reply]) -> Reply:
        attempt = 0
        while True:
            attempt += 1
            try:
                return _read(call, await self._http.request(**_request(call)))
            except (ServiceError, self._errors) as error:
                await asyncio.sleep(self._wait(call, attempt, error))

    async def create_profile(
        self, user_id: str | None = None, *, phrase: str | None = None, consent: str
    ) -> Profile:
        """Create a profile; `consent` is what the person agreed to."""
        return await self._send(calls.create_profile(user_id, phrase, consent))

    async def profile(self, profile_id: str) -> Profile:
        """Return a profile."""
        return await self._send(calls.profile(profile_id))

    async def profiles(
        self, user_id: str | None = None, search: str | None = None
    ) -> AsyncIterator[Profile]:
        """Yield profiles: all, those of a user, or those whose user id begins with `search`."""
        after = None
        while True:
            query = calls.profiles(userId=user_id, search=search, after=after)
            items, after = await self._send(query)
            for item in items:
                yield item
            if after is None:
                return

    async def enrol(
        self,
        profile_id: str,
        sound: Sound | None = None,
        *,
        vector: Vector | None = None,
        phrase: str | None = None,
        session: str | None = None,
    ) -> Enrolment:
        """Add a recording to a profile; raises `RefusedRecordingError` if it cannot be used."""
        return await self._send(calls.enrol(profile_id, sound, vector, phrase, session))

    async def verify(
        self,
        profile_id: str,
        sound: Sound | None = None,
        *,
        vector: Vector | None = None,
        phrase: str | None = None,
        challenge_id: str | None = None,
        far: float | None = None,
        countermeasure_llr: float | None = None,
    ) -> VerificationDecision:
        """Decide whether the owner of a profile says the phrase."""
        fields = {
            "phrase": phrase,
            "challengeId": challenge_id,
            "far": far,
            "countermeasureLlr": countermeasure_llr,
        }
        return await self._send(calls.verify(profile_id, sound, vector, **fields))

    async def verify_stream(
        self,
        profile_id: str,
        blocks: Blocks,
        *,
        rate: int = 16000,
        phrase: str | None = None,
        challenge_id: str | None = None,
        far: float | None = None,
        early: bool = True,
        on_look: OnLook | None = None,
    ) -> VerificationDecision:
        """Decide whether the owner of a profile speaks, while they speak.

        blocks : PCM as it arrives: 16 bits, little-endian, one channel
        rate : samples per second
        early : whether the service may decide before the end of `blocks`
        on_look : called with a `StreamLook` after every half second of speech
        """
        fields = {
            "rate": rate,
            "phrase": phrase,
            "challengeId": challenge_id,
            "far": far,
            "early": str(early).lower(),
        }
        call = StreamCall.of(self._options, self._retries, profile_id, on_look, **fields)
        return await run_async(call, blocks)

    async def identify(
        self,
        sound: Sound | None = None,
        *,
        vector: Vector | None = None,
        candidates: Sequence[str] | None = None,
        top: int | None = None,
        prior_none: float | None = None,
    ) -> SpeakerIdentification:
        """Identify a speaker among all profiles, or among `candidates`."""
        fields = {"top": top, "priorNone": prior_none}
        return await self._send(calls.identify(sound, vector, candidates, **fields))

    async def challenge(self, profile_id: str, kind: str | None = None) -> ProfileChallenge:
        """Return a random phrase for one verification."""
        return await self._send(calls.challenge(profile_id, kind))

    async def reset(self, profile_id: str) -> Profile:
        """Remove all recordings of a profile."""
        return await self._send(calls.change(profile_id, "reset"))

    async def unlock(self, profile_id: str) -> Profile:
        """Unlock a profile after rejections."""
        return await self._send(calls.change(profile_id, "unlock"))

    async def opt_out(self, profile_id: str) -> Profile:
        """Erase a person's voice, and keep the name, marked as opted out."""
        return await self._send(calls.change(profile_id, "opt-out"))

    async def delete(self, profile_id: str) -> None:
        """Erase a person; a person who is deleted already is no error."""
        try:
            await self._send(calls.delete(profile_id))
        except ServiceError as error:
            if error.kind != "deleted":
                raise
