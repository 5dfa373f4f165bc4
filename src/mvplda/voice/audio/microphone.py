"""Live sound, in blocks of 0.1 s: from a microphone or from a pipe of PCM samples."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

import numpy as np

from ..._optional import need
from ...exceptions import AudioError
from .decode import Sound

BLOCK_S = 0.1
"""Duration of a block in seconds."""
SAMPLE_BYTES = 2
"""Bytes per sample, a 16-bit integer (little-endian)."""
FULL_SCALE = 32768.0


def samples_of_pcm(data: bytes) -> Sound:
    """Convert the bytes of PCM sound (16 bits, little-endian, one channel) to (n,) samples with full scale 1."""
    return np.frombuffer(data, "<i2").astype(np.float32) / np.float32(FULL_SCALE)


def pcm_blocks(stream: BinaryIO, rate: int) -> Iterator[bytes]:
    """Yield blocks of PCM bytes from a stream as they arrive, until it ends.

    Parameters
    ----------
    stream : PCM of 16 bits and one channel; an incomplete sample at its end is left out
    rate : samples per second

    Returns
    -------
    blocks of whole samples, about 0.1 s each
    """
    size = SAMPLE_BYTES * round(BLOCK_S * rate)
    incomplete = b""
    # a pipe returns what has arrived, which may end within a sample
    while data := stream.read(size):
        data = incomplete + data
        complete = len(data) - len(data) % SAMPLE_BYTES
        incomplete = data[complete:]
        if complete:
            yield data[:complete]


def microphone_blocks(
    rate: int, device: str | None = None, on_open: Callable[[], None] | None = None
) -> Iterator[bytes]:
    """Yield blocks of PCM bytes (16 bits, one channel) from a microphone until the caller stops.

    The microphone is opened when the caller asks for the first block.

    Parameters
    ----------
    rate : samples per second
    device : name or number of an input, as ``python -m sounddevice`` lists them; None: the default of the system
    on_open : called once the microphone is open, before the first block

    Raises
    ------
    AudioError
        The microphone cannot be opened, or the PortAudio library is missing.
    """
    library = _open_library()
    blocks: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def receive(data: Any, frames: int, time: object, status: object) -> None:
        blocks.put(bytes(data))

    try:
        stream = library.RawInputStream(
            samplerate=rate,
            blocksize=round(BLOCK_S * rate),
            device=int(device) if device and device.isdigit() else device,
            channels=1,
            dtype="int16",
            callback=receive,
        )
    except (library.PortAudioError, ValueError) as error:
        raise AudioError(
            f"the microphone cannot be opened: {error}. Connect one, choose another with --device (python -m "
            "sounddevice lists them), or pass sound through a pipe (--pipe)"
        ) from error
    with stream:
        if on_open is not None:
            on_open()
        while True:
            yield blocks.get()


def _open_library() -> Any:
    """Import sounddevice; raise `AudioError` if the system lacks the PortAudio library."""
    try:
        return need("sounddevice")
    except OSError as error:
        raise AudioError(
            f"sounddevice found no PortAudio ({error}): install it (Debian: apt-get install libportaudio2), or pass "
            "sound through a pipe (--pipe)"
        ) from error
