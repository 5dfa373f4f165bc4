"""The example of a household: messages of the Wyoming protocol in, text and the name of the speaker out."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib import util
from pathlib import Path

import numpy as np
import pytest

FILE = Path(__file__).parents[1] / "examples" / "household.py"
RATE = 16000
SAMPLES = np.round(8000 * np.sin(np.arange(RATE) / 9)).astype("<i2")


@pytest.fixture(scope="module")
def example():
    spec = util.spec_from_file_location("household_example", FILE)
    module = util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def message(kind: str, data: dict, payload: bytes = b"", *, inline: bool = False) -> bytes:
    """A message as the programs of the protocol write it; older ones have the data in the line."""
    body = b"" if inline else json.dumps(data).encode()
    header: dict[str, object] = {"type": kind, "version": "1.5.0"}
    header |= {"data": data} if inline else {"data_length": len(body)}
    if payload:
        header["payload_length"] = len(payload)
    return json.dumps(header).encode() + b"\n" + body + payload


def command(inline: bool = False) -> bytes:
    """The messages of a command of one second, in stereo."""
    sound = {"rate": RATE, "width": 2, "channels": 2}
    stereo = np.repeat(SAMPLES[:, None], 2, axis=1).tobytes()
    half = len(stereo) // 2
    return b"".join(
        [
            message("transcribe", {"language": "en"}, inline=inline),
            message("audio-start", {**sound, "timestamp": 0}, inline=inline),
            message("audio-chunk", sound, stereo[:half], inline=inline),
            message("audio-chunk", sound, stereo[half:], inline=inline),
            message("audio-stop", {}, inline=inline),
        ]
    )


async def exchange(example, service, sent: bytes) -> list:
    """Send bytes to a service and return its messages until it is done with them."""
    server = await asyncio.start_server(service.serve_connection, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        writer.write_eof()
        answers = []
        while (answer := await example.read_event(reader)) is not None:
            answers.append(answer)
        writer.close()
        await writer.wait_closed()
    return answers


@pytest.fixture
def heard():
    return []


@pytest.fixture
def who(example, heard):
    def who_spoke(samples, rate):
        heard.append((samples, rate))
        return example.Person("ann" if len(heard) == 1 else None, 4.5)

    return who_spoke


@pytest.mark.parametrize("inline", [False, True])
def test_the_name_is_the_text_without_a_recogniser(example, who, heard, inline):
    sent = message("describe", {}, inline=inline) + command(inline) + command(inline)
    answers = asyncio.run(exchange(example, example.Service(who), sent))
    assert [answer.type for answer in answers] == ["info", "transcript", "transcript"]
    assert answers[0].data["asr"][0]["models"][0]["languages"] == ["en"]
    assert answers[1].data == {"text": "ann", "context": {"speaker": "ann"}}
    assert answers[2].data == {"text": "nobody", "context": {"speaker": None}}
    for samples, rate in heard:
        assert rate == RATE
        np.testing.assert_allclose(samples, SAMPLES / 32768, atol=1e-6)


def test_the_text_of_the_recogniser_and_the_webhook_get_the_name(example, who):
    received: list[dict] = []

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *arguments: object) -> None:
            """Print nothing."""

    forwarded: list[str] = []

    async def recogniser(reader, writer):
        while (event := await example.read_event(reader)) is not None:
            forwarded.append(event.type)
            if event.type == "audio-stop":
                await example.write_event(
                    writer, example.Event("transcript", {"text": "lights on"})
                )
        writer.close()

    async def both(url):
        server = await asyncio.start_server(recogniser, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            template = "{name} says {text}"
            service = example.Service(who, f"127.0.0.1:{port}", template, url)
            return await exchange(example, service, command())

    hook = HTTPServer(("127.0.0.1", 0), Hook)
    thread = threading.Thread(target=hook.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        (answer,) = asyncio.run(both(f"http://127.0.0.1:{hook.server_port}/api/webhook/spoke"))
    finally:
        hook.shutdown()
        hook.server_close()
        thread.join()
    assert answer.data["text"] == "ann says lights on"
    assert forwarded == ["transcribe", "audio-start", "audio-chunk", "audio-chunk", "audio-stop"]
    assert received == [{"name": "ann", "llr": 4.5, "text": "lights on"}]


@pytest.mark.parametrize(
    "sent",
    [
        b"no JSON\n",
        b"[1]\n",
        message("audio-chunk", {"width": 4, "rate": RATE}, b"1234"),
        b'{"type": "audio-chunk", "payload_length": 99999999}\n',
        b'{"type": "audio-chunk", "payload_length": 100}\nshort',
        b'{"data_length": 0}\n',
    ],
)
def test_a_broken_message_ends_its_connection_alone(example, who, heard, sent, capsys):
    service = example.Service(who)
    assert asyncio.run(exchange(example, service, sent)) == []
    assert "connection closed" in capsys.readouterr().out
    (answer,) = asyncio.run(exchange(example, service, command()))
    assert answer.type == "transcript"
    assert len(heard) == 1


@pytest.mark.slow
def test_synthetic_voices_are_told_apart(example, tmp_path):
    soundfile = pytest.importorskip("soundfile", reason="soundfile is not installed")
    from click.testing import CliRunner

    from mvplda.cli import main
    from mvplda.exceptions import FetchError
    from mvplda.voice.default_model import default_extractor
    from mvplda.voice.demo import write_demo

    try:
        default_extractor()
    except FetchError as error:
        pytest.skip(str(error))
    write_demo(tmp_path / "demo")
    profiles = str(tmp_path / "voices.npz")
    folder = tmp_path / "demo" / "hugo" / "my-voice-is-my-key"
    done = CliRunner().invoke(main, ["profiles", "add", profiles, "hugo", str(folder)])
    assert done.exit_code == 0, done.output
    household = example.Household(profiles)
    for voice, expected in {"hugo": "hugo", "alba": None}.items():
        file = tmp_path / "demo" / voice / "open-the-garden-door" / "1.ogg"
        assert household.who_spoke(*soundfile.read(file, dtype="float32")).name == expected
    assert household.who_spoke(np.zeros(0, np.float32), RATE) == (None, None)
