"""Verification of streamed sound: *looks* while it arrives, and one decision about all of it.

A look compares the sound so far with the profile; it changes nothing in the database. The stream is one attempt: POST
verify decides the same about a recording of its sound. After the first look with evidence, a stream is decided even if
its client breaks it off, so that nobody can see the evidence of a voice without using up an attempt.
"""

from __future__ import annotations

import asyncio
import io
import json
import wave
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from pydantic import Field
from starlette.websockets import WebSocket, WebSocketDisconnect

from ..voice.stream import LookSchedule, do_agree
from .connections import IS_SHUT_DOWN
from .schemas import Body, Phrase, Problem, Reply, VerifyReply, VerifyRequest
from .verifier import Attempt, Look

if TYPE_CHECKING:
    from .app import Runtime

SAMPLE_BYTES = 2
LARGEST_FRAME = 2**20
"""Largest message that a client may send, in bytes: more than 15 s of sound at 16 kHz."""


class StreamRequest(Body):
    """Request to verify a stream: fields in the query of the WebSocket's address.

    Parameters
    ----------
    phrase : claimed phrase; None: any phrase that the profile has enrolled
    challengeId : id of the challenge that the stream answers; None: no challenge
    far : share of impostors that may be accepted; None: the default of the service
    rate : samples per second
    early : whether the service may decide before the client ends the stream
    """

    phrase: Phrase | None = None
    challengeId: str | None = Field(default=None, max_length=64)
    far: float | None = Field(default=None, gt=0, lt=1)
    rate: int = Field(default=16000, ge=8000, le=48000)
    early: bool = True

    def verification(self) -> VerifyRequest:
        """Return the request to verify a whole recording with the same phrase, challenge and share of impostors."""
        return VerifyRequest(phrase=self.phrase, challengeId=self.challengeId, far=self.far)


class LookReply(Reply):
    """Message with the result of a look; LLRs are null if nothing was compared, or if the API key must not see them.

    Parameters
    ----------
    seconds, speechS : seconds of sound, and of speech in it, so far
    llr : LLR of the claim (owner and phrase)
    llrSpeaker, llrPhrase : LLRs of the same speaker, and of the same phrase
    """

    type: str = "look"
    seconds: float
    speechS: float
    llr: float | None = None
    llrSpeaker: float | None = None
    llrPhrase: float | None = None


class StreamedAttempt:
    """Attempt to be verified whose sound arrives piece by piece.

    Parameters
    ----------
    app : state of the service of the caller's tenant
    attempt : caller, profile, request and prompted words of the attempt, without a recording
    fields : fields of the stream

    Attributes
    ----------
    looks : number of comparisons with the profile so far

    Raises
    ------
    Problem : 422 if the service has no extractor
    """

    def __init__(self, app: Runtime, attempt: Attempt, fields: StreamRequest) -> None:
        extractor = app.service.model.extractor
        if extractor is None:
            raise Problem(
                422,
                "no-extractor",
                "this service has no extractor and cannot read sound: send a vector by POST verify",
            )
        self.app = app
        self.looks = 0
        self._attempt = attempt
        self._may_end_early = fields.early and app.settings.early_decisions
        # a stream that is too long is decided like such a recording
        self._schedule = LookSchedule(fields.rate, extractor.rate, longest_s=np.inf)
        self._pcm = bytearray()
        self._outcomes: list[str] = []

    @property
    def seconds(self) -> float:
        """Duration of the sound so far, in seconds."""
        return self._schedule.seconds

    def append(self, data: bytes) -> bool:
        """Append PCM `data`, and return whether `examine` should be called now.

        Raises
        ------
        Problem : 422 if `data` ends within a sample
        """
        if len(data) % SAMPLE_BYTES:
            detail = (
                "expected whole samples of 16 bits in each message; got an odd number of bytes, "
                f"{len(data)}"
            )
            raise Problem(422, "stream", detail)
        self._pcm += data
        return self._schedule.append(
            np.frombuffer(data, "<i2").astype(np.float32) / np.float32(2**15)
        )

    def wave_file(self) -> bytes:
        """Return the sound so far as the bytes of a WAV file."""
        file = io.BytesIO()
        with wave.open(file, "wb") as sound:
            sound.setnchannels(1)
            sound.setsampwidth(SAMPLE_BYTES)
            sound.setframerate(self._schedule.rate)
            sound.writeframes(bytes(self._pcm))
        return file.getvalue()

    async def examine(self) -> LookReply | None:
        """Detect speech, and return the message about a look if it is due, after each half second of new speech.

        Returns
        -------
        message for the client; None: there is not enough new speech since the previous message. The message has no
        evidence if words are prompted, if other recordings occupy all threads, or if another stream on the same
        profile is looked at
        """
        if not await asyncio.to_thread(self._schedule.is_due):
            return None
        reply = LookReply(seconds=round(self.seconds, 2), speechS=round(self._schedule.speech_s, 2))
        # looks use idle processors only: recordings to be decided go first
        if self._attempt.prompt or not self.app.is_idle:
            return reply
        # looks at many streams at the same time would end only after the rejections that lock the profile
        if self.app.looked_at.setdefault(self._attempt.name, self) is not self:
            return reply
        look = await self.app.run_heavy(self._look)
        self._outcomes.append(_outcome(look))
        if look is None:
            return reply
        self.looks += 1
        self.app.metrics.looks.inc()
        if self._attempt.caller.detail == "evidence":
            reply.llr = look.reply.llr
            reply.llrSpeaker = look.reply.llrSpeaker
            reply.llrPhrase = look.reply.llrPhrase
        return reply

    def _look(self) -> Look | None:
        """Compare the sound so far with the profile; return None if sound or profile cannot be used."""
        service = self.app.service
        recording = service.process(self.wave_file(), detects_spoofs=False)
        if recording.reason is not None:
            return None
        with service.store.read(self._attempt.caller) as work:
            return service.verifier.look(work, replace(self._attempt, recording=recording))

    @property
    def is_decided(self) -> bool:
        """Whether the service ends the stream now, because more sound should not change the decision.

        It does so after a second of silence, and if the last two looks agree: both accept at the strictest operating
        point, or both reject the voice. It never does if request or settings forbid early decisions.
        """
        if not self._may_end_early:
            return False
        if self._schedule.has_ended:
            return True
        # the end of an answer to a challenge does not depend on evidence: decoys have none
        return self._attempt.request.challengeId is None and do_agree(self._outcomes)

    def close(self) -> None:
        """Let another stream on the same profile be looked at."""
        if self.app.looked_at.get(self._attempt.name) is self:
            del self.app.looked_at[self._attempt.name]

    async def decide(self) -> VerifyReply:
        """Decide about all sound so far, as POST verify does about a recording; this counts as one attempt."""
        app = self.app
        prompt = self._attempt.prompt
        recording = await app.run_heavy(
            app.service.process, self.wave_file(), prompt, is_begun=self.looks > 0
        )
        attempt = replace(self._attempt, recording=recording, prompt=(), looks=self.looks)
        reply = await app.batches.verify(attempt)
        app.metrics.decisions.labels(reply.decision, reply.reason or "").inc()
        return reply


def _outcome(look: Look | None) -> str:
    """Return "accept" or "reject" if more sound should not change this result of a look; otherwise an empty string."""
    if look is None:
        return ""
    if look.is_accepted:
        return "accept"
    return "reject" if look.reply.voice == "reject" else ""


async def receive(websocket: WebSocket, attempt: StreamedAttempt) -> None:
    """Read a stream to its end, and send the client a message about each look.

    The stream ends with the message of the client, with `StreamedAttempt.is_decided`, or at the largest duration.

    Raises
    ------
    WebSocketDisconnect : if the client breaks off the stream
    Problem : 422 if a message is neither sound nor the end of the stream
    """
    while True:
        message = await websocket.receive()
        if message["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(message.get("code", 1006))
        text = message.get("text")
        if text is not None:
            check_end(text)
            return
        is_time = attempt.append(message["bytes"])
        if attempt.seconds > attempt.app.settings.longest_s:
            return
        look = await attempt.examine() if is_time else None
        if look is not None:
            await websocket.send_json(look.model_dump())
        if attempt.is_decided:
            return


def check_end(text: str) -> None:
    """Raise a `Problem` (422) unless a text message is `{"type": "end"}`, with which a client ends its stream."""
    try:
        message = json.loads(text)
    except (ValueError, RecursionError):
        message = None
    if message != {"type": "end"}:
        detail = (
            f'expected sound as binary messages, or {{"type": "end"}}; got the text {text[:40]!r}'
        )
        raise Problem(422, "stream", detail)


async def received_decision(websocket: WebSocket, attempt: StreamedAttempt) -> VerifyReply:
    """Read a stream to its end, and return the decision about it.

    If the stream breaks off, the error is raised. Before that, the sound so far is decided if there was a look with
    evidence, unless the stream broke off because the service is shut down.
    """
    try:
        try:
            await receive(websocket, attempt)
        except Exception:
            if attempt.looks and IS_SHUT_DOWN not in websocket.scope:
                websocket.state.decision = (await attempt.decide()).decision
            raise
        return await attempt.decide()
    finally:
        attempt.close()
