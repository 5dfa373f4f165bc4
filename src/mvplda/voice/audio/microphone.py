"""Sound in blocks, as it arrives: from a microphone or from a pipe of PCM samples."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

import numpy as np

from ..._optional import need
from ...exceptions import AudioError
from .decode import Sound

BLOCK_S = 0.1
"""Duration of a block."""
SAMPLE_BYTES = 2
"""Bytes of a sample: 16-bit integers, little-endian."""
FULL_SCALE = 32768.0


def samples_of_pcm(data: bytes) -> Sound:
    """Convert PCM (16 bits, little-endian, one channel) to samples with full scale 1."""
    return np.frombuffer(data, "<i2").astype(np.float32) / np.float32(FULL_SCALE)


def pcm_blocks(stream: BinaryIO, rate: int) -> Iterator[bytes]:
    """Yield the blocks of a stream of PCM until it ends; an incomplete sample at the end is left out."""
    size = SAMPLE_BYTES * round(BLOCK_S * rate)
    rest = b""
    # a pipe returns what has arrived, which may end within a sample
    while data := stream.read(size):
        data = rest + data
        complete = len(data) - len(data) % SAMPLE_BYTES
        rest = data[complete:]
        if complete:
            yield data[:complete]


def microphone_blocks(
    rate: int, device: str | None = None, on_open: Callable[[], None] | None = None
) -> Iterator[bytes]:
    """Yield blocks of PCM from a microphone until the caller stops; nothing is recorded before the first block.

    device : name or number of an input, as sounddevice lists them; None: the default of the system
    on_open : called once the microphone is open, before the first block
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
    """Import sounddevice, which needs the PortAudio library of the system."""
    try:
        return need("sounddevice")
    except OSError as error:
        raise AudioError(
            f"sounddevice found no PortAudio ({error}): install it (Debian: apt-get install libportaudio2), or pass "
            "sound through a pipe (--pipe)"
        ) from error
