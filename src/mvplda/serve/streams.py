"""Verification of a stream: looks while sound arrives, and one decision about all of it.

A look compares the sound up to then with the profile. It writes nothing and counts nothing: the stream is one attempt,
decided as a recording of the same sound by POST verify. A stream whose evidence was looked at is decided however it
ends, so that looks at one's own evidence are never free.
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
from .schemas import Body, Phrase, Problem, Reply, VerifyReply, VerifyRequest
from .verifier import Attempt, Look

if TYPE_CHECKING:
    from .app import Runtime

SAMPLE_BYTES = 2
LARGEST_FRAME = 2**20
"""Largest message of a client, in bytes: over 15 s of sound at 16 kHz."""
RESTART = 1012
"""Close code of a server that is shut down."""


class StreamRequest(Body):
    """Fields of a stream, in the query of its address.

    rate : samples per second
    early : whether the stream may be decided before its client ends it
    """

    phrase: Phrase | None = None
    challengeId: str | None = Field(default=None, max_length=64)
    far: float | None = Field(default=None, gt=0, lt=1)
    rate: int = Field(default=16000, ge=8000, le=48000)
    early: bool = True

    def verification(self) -> VerifyRequest:
        """Return the request of a recording with the same fields."""
        return VerifyRequest(phrase=self.phrase, challengeId=self.challengeId, far=self.far)


class LookReply(Reply):
    """Result of a look: seconds and speech so far, and the evidence that the caller may see, else null."""

    type: str = "look"
    seconds: float
    speechS: float
    llr: float | None = None
    llrSpeaker: float | None = None
    llrPhrase: float | None = None


class StreamedAttempt:
    """An attempt whose sound arrives piece by piece.

    attempt : caller, profile, request and prompted words of the attempt, without a recording
    """

    def __init__(self, app: Runtime, attempt: Attempt, fields: StreamRequest) -> None:
        extractor = app.service.model.extractor
        if extractor is None:
            raise Problem(422, "no-extractor", "this service has no extractor: send vectors")
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
        """Duration of the stream."""
        return self._schedule.seconds

    def append(self, data: bytes) -> bool:
        """Append PCM; return whether it is time to call `examine`."""
        if len(data) % SAMPLE_BYTES:
            detail = "a message holds whole samples: 16 bits each, little-endian, one channel"
            raise Problem(422, "stream", detail)
        self._pcm += data
        return self._schedule.append(
            np.frombuffer(data, "<i2").astype(np.float32) / np.float32(2**15)
        )

    def wave_file(self) -> bytes:
        """Return the stream as a WAV file."""
        file = io.BytesIO()
        with wave.open(file, "wb") as sound:
            sound.setnchannels(1)
            sound.setsampwidth(SAMPLE_BYTES)
            sound.setframerate(self._schedule.rate)
            sound.writeframes(bytes(self._pcm))
        return file.getvalue()

    async def examine(self) -> LookReply | None:
        """Detect speech; if there is enough new speech, look at the stream and return the result."""
        if not await asyncio.to_thread(self._schedule.is_due):
            return None
        reply = LookReply(seconds=round(self.seconds, 2), speechS=round(self._schedule.speech_s, 2))
        # looks use idle processors only: recordings to be decided go first
        if self._attempt.prompt or not self.app.is_idle:
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
        """Compare the stream up to now with the profile; None if it cannot be compared yet."""
        service = self.app.service
        recording = service.process(self.wave_file(), detects_spoofs=False)
        if recording.reason is not None:
            return None
        with service.store.read(self._attempt.caller) as work:
            return service.verifier.look(work, replace(self._attempt, recording=recording))

    @property
    def is_decided(self) -> bool:
        """Whether more sound is not needed.

        That is so after a pause, and if the last looks agree: all accept, or all reject the voice.
        """
        if not self._may_end_early:
            return False
        if self._schedule.has_ended:
            return True
        # the end of an answer to a challenge does not depend on evidence: decoys have none
        return self._attempt.request.challengeId is None and do_agree(self._outcomes)

    async def decide(self) -> VerifyReply:
        """Decide about all sound that has arrived, as about a recording of it."""
        app = self.app
        prompt = self._attempt.prompt
        recording = await app.run_heavy(app.service.process, self.wave_file(), prompt)
        attempt = replace(self._attempt, recording=recording, prompt=(), looks=self.looks)
        reply = await app.batches.verify(attempt)
        app.metrics.decisions.labels(reply.decision, reply.reason or "").inc()
        return reply


def _outcome(look: Look | None) -> str:
    """Return accept or reject for a look that more sound should not change; else an empty text."""
    if look is None:
        return ""
    if look.is_accepted:
        return "accept"
    return "reject" if look.reply.voice == "reject" else ""


async def receive(websocket: WebSocket, attempt: StreamedAttempt) -> None:
    """Read a stream until its client ends it, it is decided or too long; send a message about each look."""
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
    """Raise unless a message of text is the end of a stream."""
    try:
        message = json.loads(text)
    except (ValueError, RecursionError):
        message = None
    if message != {"type": "end"}:
        detail = 'expected sound as binary messages, or the message {"type": "end"}'
        raise Problem(422, "stream", detail)


async def received_decision(websocket: WebSocket, attempt: StreamedAttempt) -> VerifyReply:
    """Return the decision about a stream, after its end.

    A stream that breaks off is decided too once its evidence was looked at, unless the service is shut down; the
    error is raised afterwards.
    """
    try:
        await receive(websocket, attempt)
    except (Problem, WebSocketDisconnect) as error:
        is_restart = isinstance(error, WebSocketDisconnect) and error.code == RESTART
        if attempt.looks and not is_restart:
            websocket.state.decision = (await attempt.decide()).decision
        raise
    return await attempt.decide()
