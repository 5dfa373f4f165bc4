"""
Name the speaker of a command
=============================

A Wyoming service between a voice assistant and its speech recogniser::

    mvplda profiles add voices.npz ann ann1.wav ann2.wav ann3.wav
    python examples/household.py voices.npz --port 10310 --recogniser 127.0.0.1:10300

The assistant (Home Assistant, for example) uses this service as its speech recogniser.
The service passes every command on to the actual recogniser, and returns its text with
the name of the enrolled person who spoke, or "nobody". Without a recogniser, the text is
the name. See docs/household.md.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
from mvplda.exceptions import AudioError, MvpldaError
from mvplda.voice.extractors.extractor import ExtractedVectors
from mvplda.voice.profile_file import ProfileBook
from mvplda.voice.verification import VoiceModel

VERSION = "1.5.2"
"""Version of the Wyoming protocol that the messages follow."""
MAX_BYTES = 2**20
"""Largest size in bytes of the data, or of the payload, of a message."""
MAX_SECONDS = 60.0
"""Longest command in seconds."""
TIMEOUT_S = 30.0
"""Seconds that the recogniser, or the webhook, may take to answer."""


class Event(NamedTuple):
    """Message of the Wyoming protocol: its type, data (JSON) and payload (samples)."""

    type: str
    data: dict[str, Any]
    payload: bytes = b""


async def read_event(reader: asyncio.StreamReader) -> Event | None:
    """Read a message; None at the end of the connection."""
    line = await reader.readline()
    if not line:
        return None
    header = json.loads(line)
    if not isinstance(header, dict) or "type" not in header:
        raise ValueError('expected a message that starts with a line {"type": ...}')
    lengths = [int(header.get(key) or 0) for key in ("data_length", "payload_length")]
    if min(lengths) < 0 or max(lengths) > MAX_BYTES:
        raise ValueError(
            f"the data and payload of a message have {lengths} bytes; expected 0 to "
            f"{MAX_BYTES}"
        )
    data = dict(header.get("data") or {})
    if lengths[0]:
        data |= json.loads(await reader.readexactly(lengths[0]))
    return Event(str(header["type"]), data, await reader.readexactly(lengths[1]))


async def write_event(writer: asyncio.StreamWriter, event: Event) -> None:
    """Send a message."""
    data = json.dumps(event.data).encode()
    header = {"type": event.type, "version": VERSION, "data_length": len(data)}
    if event.payload:
        header["payload_length"] = len(event.payload)
    writer.write(json.dumps(header).encode() + b"\n" + data + event.payload)
    await writer.drain()


class Person(NamedTuple):
    """Person who spoke a command.

    name : name of the enrolled person; None: nobody enrolled, or it cannot be decided
    llr : LLR of the most likely person; None without usable speech
    """

    name: str | None
    llr: float | None


class Household:
    """Enrolled people and the model that names them.

    Parameters
    ----------
    profiles : file of `mvplda profiles add`
    model : model of `mvplda setup`; None: the default model
    """

    def __init__(self, profiles: str, model: str | None = None) -> None:
        self._profiles = ProfileBook(profiles)
        self._profiles.all_vectors()
        self._voices = VoiceModel.load(model)
        self._profiles.check(self._voices.extractor.name)

    def who_spoke(self, samples: np.ndarray, rate: int) -> Person:
        """Return the person who spoke a command, from its samples (n,) at a rate in Hz."""
        try:
            utterance = self._voices.extractor.utterance(samples, rate)
        except AudioError:
            return Person(None, None)
        side = ExtractedVectors(utterance.vector[None], [0], [utterance.quality], [])
        ranking = self._voices.identify(side, self._profiles)
        return Person(ranking.profile, ranking.candidates[0][1])


class Command:
    """Sound of one spoken command, collected from several messages."""

    def __init__(self) -> None:
        self._pieces: list[np.ndarray] = []
        self._length = 0
        self.rate = 16000

    def add(self, event: Event) -> None:
        """Add the samples of a message, 16-bit integers of one or more channels."""
        self.rate = int(event.data.get("rate", self.rate))
        channels = int(event.data.get("channels", 1))
        if (
            int(event.data.get("width", 2)) != 2
            or not 1 <= channels <= 8
            or self.rate < 8000
        ):
            raise ValueError(
                "expected samples of 16 bits, 1 to 8 channels, at 8 kHz or more; got "
                f"{event.data}"
            )
        whole = len(event.payload) - len(event.payload) % (2 * channels)
        samples = np.frombuffer(event.payload[:whole], "<i2").reshape(-1, channels)
        self._pieces.append(samples.mean(axis=1, dtype=np.float32) / 32768)
        self._length += len(samples)
        if self._length > MAX_SECONDS * self.rate:
            raise ValueError(
                f"a command is longer than {MAX_SECONDS:g} s and is ignored"
            )

    def samples(self) -> np.ndarray:
        """Return the samples (n,) of all messages in [-1, 1], averaged over channels."""
        return np.concatenate(self._pieces) if self._pieces else np.zeros(0, np.float32)


def information() -> Event:
    """Return the message that describes this service to the assistant as a recogniser."""
    attribution = {"name": "mvplda", "url": "https://arxiv.org/abs/1704.06061"}
    about = {"attribution": attribution, "installed": True, "version": "1"}
    model = {
        "name": "household",
        "description": "who spoke",
        "languages": ["en"],
        **about,
    }
    program = {
        "name": "mvplda",
        "description": "names the speaker",
        "models": [model],
        **about,
    }
    return Event("info", {"asr": [program]})


async def recognised_text(address: str | None, events: list[Event]) -> str:
    """Send the messages of a command to the recogniser, and return the recognised text.

    address : HOST:PORT of the recogniser; None: return empty text
    """
    if address is None:
        return ""
    host, port = address.rsplit(":", 1)
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        for event in events:
            await write_event(writer, event)
        while (answer := await read_event(reader)) is not None:
            if answer.type == "transcript":
                return str(answer.data.get("text", ""))
        raise ConnectionError(
            f"the recogniser at {address} closed the connection without a transcript"
        )
    finally:
        writer.close()


def post(url: str, body: dict[str, Any]) -> None:
    """Send JSON to the URL of a webhook."""
    if not url.startswith(("http://", "https://")):
        raise ValueError(
            f"--webhook must be a URL that starts with http:// or https://; got {url}"
        )
    request = urllib.request.Request(
        url, json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=TIMEOUT_S):
        pass


class Service:
    """Wyoming service that recognises the speaker of every command.

    Parameters
    ----------
    who_spoke : function that returns the person from samples (n,) and their rate in Hz
    recogniser : address HOST:PORT of the actual recogniser; None: the text is the name
    template : answer to the assistant, with {text} and {name}; None: the text
    webhook : URL that gets the JSON {"name", "llr", "text"} of every command; None: none
    """

    def __init__(
        self,
        who_spoke: Callable[[np.ndarray, int], Person],
        recogniser: str | None = None,
        template: str | None = None,
        webhook: str | None = None,
    ) -> None:
        self._who_spoke = who_spoke
        self._recogniser = recogniser
        self._template = template or ("{text}" if recogniser else "{name}")
        self._webhook = webhook

    async def serve_connection(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Answer the messages of one connection; a faulty message closes it."""
        try:
            await self._answer(reader, writer)
        except (
            ValueError,
            KeyError,
            OSError,
            TimeoutError,
            asyncio.IncompleteReadError,
        ) as error:
            print(f"connection closed: {error}", flush=True)
        finally:
            writer.close()

    async def _answer(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        command, events = Command(), []
        while (event := await read_event(reader)) is not None:
            if event.type == "describe":
                await write_event(writer, information())
            elif event.type in (
                "transcribe",
                "audio-start",
                "audio-chunk",
                "audio-stop",
            ):
                if event.type == "audio-start":
                    command, events = (
                        Command(),
                        [e for e in events if e.type == "transcribe"],
                    )
                events.append(event)
                if event.type == "audio-chunk":
                    command.add(event)
            if event.type == "audio-stop":
                await write_event(writer, await self._transcript(command, events))
                command, events = Command(), []

    async def _transcript(self, command: Command, events: list[Event]) -> Event:
        """Return the message with the text of a command and the person who spoke it.

        events : messages of the command, which are passed on to the recogniser
        """
        person, text = await asyncio.gather(
            asyncio.to_thread(self._who_spoke, command.samples(), command.rate),
            asyncio.wait_for(recognised_text(self._recogniser, events), TIMEOUT_S),
        )
        name = person.name or "nobody"
        llr = "no speech" if person.llr is None else f"LLR {person.llr:+.2f}"
        print(f"{name}\t{llr}\t{text}", flush=True)
        if self._webhook is not None:
            body = {"name": person.name, "llr": person.llr, "text": text}
            await asyncio.to_thread(post, self._webhook, body)
        spoken = self._template.format(text=text, name=name)
        return Event(
            "transcript", {"text": spoken, "context": {"speaker": person.name}}
        )


async def main() -> None:
    """Read the command line, and serve until Ctrl-C."""
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("profiles", help="file of mvplda profiles add")
    parser.add_argument(
        "--model", help="model of mvplda setup; default: the default model"
    )
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=10310)
    parser.add_argument(
        "--recogniser", metavar="HOST:PORT", help="the actual recogniser"
    )
    parser.add_argument(
        "--text", help="text for the assistant, such as '{name}: {text}'"
    )
    parser.add_argument("--webhook", help="URL that gets name, LLR and text as JSON")
    options = parser.parse_args()
    try:
        household = Household(options.profiles, options.model)
    except (MvpldaError, OSError) as error:
        parser.error(str(error))
    service = Service(
        household.who_spoke, options.recogniser, options.text, options.webhook
    )
    server = await asyncio.start_server(
        service.serve_connection, options.host, options.port
    )
    print(
        f"Wyoming service at tcp://{options.host}:{options.port}. Press Ctrl-C to stop.",
        flush=True,
    )
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(main())
