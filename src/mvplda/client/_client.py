"""Two clients of the service with the same methods: one that blocks until an answer arrives, and one for asyncio."""

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
from ._streams import Blocks, OnLook, StreamCall, send_stream, send_stream_async

if TYPE_CHECKING:
    import httpx

Reply = TypeVar("Reply")
Vector = Sequence[float]
DEFAULT_RETRIES = RetryPolicy()


class _Base:
    """Base of both clients: holds the connection options, and decides whether and when a call is repeated."""

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
        """Return the seconds to wait before the next attempt of a call.

        Parameters
        ----------
        attempt : number of attempts so far
        error : exception of the latest attempt

        Raises
        ------
        ServiceError : the given `error`, if it is a refusal that must not be repeated
        NoAnswerError : if no attempt got an answer and no further attempt is allowed
        """
        refusal = error if isinstance(error, ServiceError) else None
        wait = self._retries.wait(attempt, refusal)
        if wait is not None:
            return wait
        if refusal is not None:
            raise refusal
        raise NoAnswerError(
            f"the service at {self._options['base_url']} did not answer {call.method} {call.path} in {attempt} "
            f"attempts: {error}"
        ) from error


def _request(call: Call[Any]) -> dict[str, Any]:
    """Return a call as keyword arguments of the method `request` of an httpx client."""
    return {
        "method": call.method,
        "url": call.path,
        "params": call.query,
        "content": call.content,
        "headers": call.headers,
    }


def _read(call: Call[Reply], answer: httpx.Response) -> Reply:
    """Return the answer to a call as a record; raise `ServiceError` if the service has refused the call."""
    if not answer.is_success:
        raise calls.error_of(answer.status_code, answer.headers, answer.content)
    return call.read(answer.json())


class Client(_Base):
    """Client of an mvplda service whose methods block until the answer arrives.

    A call is sent again if it gets no answer, or if the service asks for a later attempt. All attempts have the same
    ``Idempotency-Key``, by which the service executes the call only once. Use the client in a ``with`` block, or close
    it.

    Parameters
    ----------
    url : address of the service, such as ``https://voice.example.org``
    key : API key; None: the service runs on the same machine and has no keys
    timeout_s : seconds to wait for an answer, per attempt
    retries : rules for repeating a call
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
        """Close the connections of the client."""
        self._http.close()

    def _send(self, call: Call[Reply]) -> Reply:
        """Send a call, repeat it as `retries` allows, and return its answer as a record."""
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
        """Create a profile of a person who has given consent.

        Parameters
        ----------
        user_id : name of the person; None: no name is stored
        phrase : phrase to be enrolled; None: the phrase of the first recording
        consent : text that the person agreed to

        Returns
        -------
        the new profile

        Raises
        ------
        ServiceError : if the service refuses the call
        NoAnswerError : if the service does not answer any attempt
        """
        return self._send(calls.create_profile(user_id, phrase, consent))

    def profile(self, profile_id: str) -> Profile:
        """Return a profile.

        Parameters
        ----------
        profile_id : id of the profile

        Returns
        -------
        the profile with its state, phrases and number of recordings

        Raises
        ------
        ServiceError : if the service refuses the call
        NoAnswerError : if the service does not answer any attempt
        """
        return self._send(calls.profile(profile_id))

    def profiles(self, user_id: str | None = None, search: str | None = None) -> Iterator[Profile]:
        """Yield the profiles that are not deleted; they are requested from the service page by page.

        Parameters
        ----------
        user_id : yield only profiles of the person with this name; None: of all people
        search : yield only profiles of people whose name begins with this text, ignoring case; None: of all people

        Yields
        ------
        profiles, see `Profile`

        Raises
        ------
        ServiceError : if the service refuses the call
        NoAnswerError : if the service does not answer any attempt
        """
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
        """Add a recording to a profile.

        Parameters
        ----------
        profile_id : id of the profile
        sound : recording: bytes of a WAV, FLAC, Ogg or WebM file, or its path; None: pass `vector`
        vector : vector of the service's extractor, in place of sound
        phrase : phrase that was said; None: the first phrase of the profile
        session : name of the session (day, room and microphone); None: that of the profile's previous recording, or a
            new session if that is more than an hour old

        Returns
        -------
        number and quality of the recording, and the profile after the enrolment

        Raises
        ------
        RefusedRecordingError : if the recording cannot be used, or does not match earlier ones; nothing is changed
        ServiceError : if the service refuses the call
        NoAnswerError : if the service does not answer any attempt
        """
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
        """Decide whether the owner of a profile says the phrase.

        Parameters
        ----------
        profile_id : id of the claimed profile
        sound : recording: bytes of a WAV, FLAC, Ogg or WebM file, or its path; None: pass `vector`
        vector : vector of the service's extractor, in place of sound
        phrase : phrase that must be said; None: any phrase that the profile has enrolled
        challenge_id : id of the challenge that the recording answers, see `challenge`; None: no challenge
        far : largest share of impostors that may be accepted; None: the default of the service
        countermeasure_llr : natural log-likelihood ratio of bona fide against spoofed speech, from a countermeasure of
            yours; None: no countermeasure

        Returns
        -------
        verdict with its reason and evidence; a recording that cannot be used is inconclusive

        Raises
        ------
        ServiceError : if the service refuses the call, for example because the profile is locked
        NoAnswerError : if the service does not answer any attempt
        """
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
        """Stream sound to the service, which decides whether the owner of a profile says the phrase.

        Parameters
        ----------
        profile_id : id of the claimed profile
        blocks : sound in the order of time: PCM of 16 bits, little-endian, one channel
        rate : samples per second
        phrase : phrase that must be said; None: any phrase that the profile has enrolled
        challenge_id : id of the challenge that the stream answers, see `challenge`; None: no challenge
        far : largest share of impostors that may be accepted; None: the default of the service
        early : whether the service may decide before the end of `blocks`
        on_look : called with the evidence so far, a `StreamLook`, after every half second of speech; None: not called

        Returns
        -------
        verdict with its reason and evidence, the same as `verify` returns for a recording of this sound

        Raises
        ------
        ServiceError : if the service refuses the stream, for example because the profile is locked
        NoAnswerError : if the connection breaks off, and the service has no decision about the stream
        """
        call = StreamCall.of(
            self._options,
            self._retries,
            profile_id,
            on_look,
            rate=rate,
            phrase=phrase,
            challenge_id=challenge_id,
            far=far,
            early=early,
        )
        return send_stream(call, blocks)

    def identify(
        self,
        sound: Sound | None = None,
        *,
        vector: Vector | None = None,
        candidates: Sequence[str] | None = None,
        top: int | None = None,
        prior_none: float | None = None,
    ) -> SpeakerIdentification:
        """Identify the speaker of a recording.

        Parameters
        ----------
        sound : recording: bytes of a WAV, FLAC, Ogg or WebM file, or its path; None: pass `vector`
        vector : vector of the service's extractor, in place of sound
        candidates : ids of the profiles to choose from; None: all enrolled profiles
        top : largest number of profiles in the result; None: 5
        prior_none : prior probability that the speaker owns none of the profiles to choose from; None: 0.5

        Returns
        -------
        the identified profile, if one is probable enough, and the most probable profiles

        Raises
        ------
        ServiceError : if the service refuses the call
        NoAnswerError : if the service does not answer any attempt
        """
        fields = {"top": top, "priorNone": prior_none}
        return self._send(calls.identify(sound, vector, candidates, **fields))

    def challenge(self, profile_id: str, kind: str | None = None) -> ProfileChallenge:
        """Return a challenge, the phrase or words to be said in the next verification of a profile.

        If the profile has a challenge that is neither answered nor expired, it is returned again.

        Parameters
        ----------
        profile_id : id of the profile
        kind : "phrase" for an enrolled phrase, "words" or "digits" for random words or digits; None: "phrase"

        Returns
        -------
        id, text and time of expiry of the challenge

        Raises
        ------
        ServiceError : if the service refuses the call
        NoAnswerError : if the service does not answer any attempt
        """
        return self._send(calls.challenge(profile_id, kind))

    def reset(self, profile_id: str) -> Profile:
        """Remove all recordings of a profile, but not its name, phrases and consent.

        Parameters
        ----------
        profile_id : id of the profile

        Returns
        -------
        the empty profile

        Raises
        ------
        ServiceError : if the service refuses the call
        NoAnswerError : if the service does not answer any attempt
        """
        return self._send(calls.change(profile_id, "reset"))

    def unlock(self, profile_id: str) -> Profile:
        """Unlock a profile that was locked after too many rejections; no data are erased.

        Parameters
        ----------
        profile_id : id of the profile

        Returns
        -------
        the unlocked profile

        Raises
        ------
        ServiceError : if the service refuses the call
        NoAnswerError : if the service does not answer any attempt
        """
        return self._send(calls.change(profile_id, "unlock"))

    def opt_out(self, profile_id: str) -> Profile:
        """Erase the recordings of a profile at once; its name and consent stay, and its state becomes "opted_out".

        Parameters
        ----------
        profile_id : id of the profile

        Returns
        -------
        the profile without recordings

        Raises
        ------
        ServiceError : if the service refuses the call
        NoAnswerError : if the service does not answer any attempt
        """
        return self._send(calls.change(profile_id, "opt-out"))

    def delete(self, profile_id: str) -> None:
        """Erase all data of a profile at once; do nothing if the profile was deleted before.

        Parameters
        ----------
        profile_id : id of the profile

        Raises
        ------
        ServiceError : if the service refuses the call
        NoAnswerError : if the service does not answer any attempt
        """
        try:
            self._send(calls.delete(profile_id))
        except ServiceError as error:
            if error.kind != "deleted":
                raise


class AsyncClient(_Base):
    """Client of an mvplda service for asyncio; its methods are those of `Client`, to be awaited.

    Use the client in an ``async with`` block, or close it.

    Parameters
    ----------
    url : address of the service, such as ``https://voice.example.org``
    key : API key; None: the service runs on the same machine and has no keys
    timeout_s : seconds to wait for an answer, per attempt
    retries : rules for repeating a call
    options : options of `httpx.AsyncClient`, such as ``verify`` or ``proxy``
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
        """Close the connections of the client."""
        await self._http.aclose()

    async def _send(self, call: Call[Reply]) -> Reply:
        """Send a call, repeat it as `retries` allows, and return its answer as a record."""
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
        """Create a profile of a person who has given consent.

        Parameters
        ----------
        user_id : name of the person; None: no name is stored
        phrase : phrase to be enrolled; None: the phrase of the first recording
        consent : text that the person agreed to

        Returns
        -------
        the new profile

        Raises
        ------
        ServiceError : if the service refuses the call
        NoAnswerError : if the service does not answer any attempt
        """
        return await self._send(calls.create_profile(user_id, phrase, consent))

    async def profile(self, profile_id: str) -> Profile:
        """Return a profile.

        Parameters
        ----------
        profile_id : id of the profile

        Returns
        -------
        the profile with its state, phrases and number of recordings

        Raises
        ------
        ServiceError : if the service refuses the call
        NoAnswerError : if the service does not answer any attempt
        """
        return await self._send(calls.profile(profile_id))

    async def profiles(
        self, user_id: str | None = None, search: str | None = None
    ) -> AsyncIterator[Profile]:
        """Yield the profiles that are not deleted; they are requested from the service page by page.

        Parameters
        ----------
        user_id : yield only profiles of the person with this name; None: of all people
        search : yield only profiles of people whose name begins with this text, ignoring case; None: of all people

        Yields
        ------
        profiles, see `Profile`

        Raises
        ------
        ServiceError : if the service refuses the call
        NoAnswerError : if the service does not answer any attempt
        """
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
        """Add a recording to a profile.

        Parameters
        ----------
        profile_id : id of the profile
        sound : recording: bytes of a WAV, FLAC, Ogg or WebM file, or its path; None: pass `vector`
        vector : vector of the service's extractor, in place of sound
        phrase : phrase that was said; None: the first phrase of the profile
        session : name of the session (day, room and microphone); None: that of the profile's previous recording, or a
            new session if that is more than an hour old

        Returns
        -------
        number and quality of the recording, and the profile after the enrolment

        Raises
        ------
        RefusedRecordingError : if the recording cannot be used, or does not match earlier ones; nothing is changed
        ServiceError : if the service refuses the call
        NoAnswerError : if the service does not answer any attempt
        """
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
        """Decide whether the owner of a profile says the phrase.

        Parameters
        ----------
        profile_id : id of the claimed profile
        sound : recording: bytes of a WAV, FLAC, Ogg or WebM file, or its path; None: pass `vector`
        vector : vector of the service's extractor, in place of sound
        phrase : phrase that must be said; None: any phrase that the profile has enrolled
        challenge_id : id of the challenge that the recording answers, see `challenge`; None: no challenge
        far : largest share of impostors that may be accepted; None: the default of the service
        countermeasure_llr : natural log-likelihood ratio of bona fide against spoofed speech, from a countermeasure of
            yours; None: no countermeasure

        Returns
        -------
        verdict with its reason and evidence; a recording that cannot be used is inconclusive

        Raises
        ------
        ServiceError : if the service refuses the call, for example because the profile is locked
        NoAnswerError : if the service does not answer any attempt
        """
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
        """Stream sound to the service, which decides whether the owner of a profile says the phrase.

        Parameters
        ----------
        profile_id : id of the claimed profile
        blocks : sound in the order of time: PCM of 16 bits, little-endian, one channel
        rate : samples per second
        phrase : phrase that must be said; None: any phrase that the profile has enrolled
        challenge_id : id of the challenge that the stream answers, see `challenge`; None: no challenge
        far : largest share of impostors that may be accepted; None: the default of the service
        early : whether the service may decide before the end of `blocks`
        on_look : called with the evidence so far, a `StreamLook`, after every half second of speech; None: not called

        Returns
        -------
        verdict with its reason and evidence, the same as `verify` returns for a recording of this sound

        Raises
        ------
        ServiceError : if the service refuses the stream, for example because the profile is locked
        NoAnswerError : if the connection breaks off, and the service has no decision about the stream
        """
        call = StreamCall.of(
            self._options,
            self._retries,
            profile_id,
            on_look,
            rate=rate,
            phrase=phrase,
            challenge_id=challenge_id,
            far=far,
            early=early,
        )
        return await send_stream_async(call, blocks)

    async def identify(
        self,
        sound: Sound | None = None,
        *,
        vector: Vector | None = None,
        candidates: Sequence[str] | None = None,
        top: int | None = None,
        prior_none: float | None = None,
    ) -> SpeakerIdentification:
        """Identify the speaker of a recording.

        Parameters
        ----------
        sound : recording: bytes of a WAV, FLAC, Ogg or WebM file, or its path; None: pass `vector`
        vector : vector of the service's extractor, in place of sound
        candidates : ids of the profiles to choose from; None: all enrolled profiles
        top : largest number of profiles in the result; None: 5
        prior_none : prior probability that the speaker owns none of the profiles to choose from; None: 0.5

        Returns
        -------
        the identified profile, if one is probable enough, and the most probable profiles

        Raises
        ------
        ServiceError : if the service refuses the call
        NoAnswerError : if the service does not answer any attempt
        """
        fields = {"top": top, "priorNone": prior_none}
        return await self._send(calls.identify(sound, vector, candidates, **fields))

    async def challenge(self, profile_id: str, kind: str | None = None) -> ProfileChallenge:
        """Return a challenge, the phrase or words to be said in the next verification of a profile.

        If the profile has a challenge that is neither answered nor expired, it is returned again.

        Parameters
        ----------
        profile_id : id of the profile
        kind : "phrase" for an enrolled phrase, "words" or "digits" for random words or digits; None: "phrase"

        Returns
        -------
        id, text and time of expiry of the challenge

        Raises
        ------
        ServiceError : if the service refuses the call
        NoAnswerError : if the service does not answer any attempt
        """
        return await self._send(calls.challenge(profile_id, kind))

    async def reset(self, profile_id: str) -> Profile:
        """Remove all recordings of a profile, but not its name, phrases and consent.

        Parameters
        ----------
        profile_id : id of the profile

        Returns
        -------
        the empty profile

        Raises
        ------
        ServiceError : if the service refuses the call
        NoAnswerError : if the service does not answer any attempt
        """
        return await self._send(calls.change(profile_id, "reset"))

    async def unlock(self, profile_id: str) -> Profile:
        """Unlock a profile that was locked after too many rejections; no data are erased.

        Parameters
        ----------
        profile_id : id of the profile

        Returns
        -------
        the unlocked profile

        Raises
        ------
        ServiceError : if the service refuses the call
        NoAnswerError : if the service does not answer any attempt
        """
        return await self._send(calls.change(profile_id, "unlock"))

    async def opt_out(self, profile_id: str) -> Profile:
        """Erase the recordings of a profile at once; its name and consent stay, and its state becomes "opted_out".

        Parameters
        ----------
        profile_id : id of the profile

        Returns
        -------
        the profile without recordings

        Raises
        ------
        ServiceError : if the service refuses the call
        NoAnswerError : if the service does not answer any attempt
        """
        return await self._send(calls.change(profile_id, "opt-out"))

    async def delete(self, profile_id: str) -> None:
        """Erase all data of a profile at once; do nothing if the profile was deleted before.

        Parameters
        ----------
        profile_id : id of the profile

        Raises
        ------
        ServiceError : if the service refuses the call
        NoAnswerError : if the service does not answer any attempt
        """
        try:
            await self._send(calls.delete(profile_id))
        except ServiceError as error:
            if error.kind != "deleted":
                raise
