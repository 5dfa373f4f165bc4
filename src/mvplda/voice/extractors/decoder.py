"""Decoder of a speech recogniser: the probability of given texts, for recordings of known words.

Its encoder is the network of an extractor (`sounds`). The decoder returns the probability of each next token of a text,
given the frames of the encoder and the tokens before. So the probability of a text is the product over its tokens, and
the probabilities of all texts sum to 1: a text that fits is compared with all others without searching for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from ..._typing import FloatArray, PathLike
from ...exceptions import FileFormatError
from ..audio.decode import Sound
from ..audio.speech_detection import SoundSegment
from .download import cached_decoder, cached_file
from .onnx_network import OnnxNetwork, open_session
from .recipe import families
from .wheels import sha256

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

START, END = 1, 2
"""Tokens at the begin and at the end of a text."""
FIRST_TEXT_TOKEN = 259
"""First token with more than one byte, after three special tokens and one token per byte."""
SPACE = "\u2581"
"""Character that stands for a blank in tokens."""
RECOGNISER = "sounds"
"""Extractor whose network is the encoder."""


class Tokens:
    """Tokens of a recogniser: pieces of text with their numbers.

    Parameters
    ----------
    pieces : bytes of each token, by number
    """

    def __init__(self, pieces: Sequence[bytes]) -> None:
        # single bytes are a fallback for characters without a token
        self._numbers = {piece: 3 + byte for byte, piece in enumerate(pieces[3:FIRST_TEXT_TOKEN])}
        self._numbers |= {
            piece: FIRST_TEXT_TOKEN + offset
            for offset, piece in enumerate(pieces[FIRST_TEXT_TOKEN:])
            if piece
        }
        self._longest = max(map(len, self._numbers), default=0)

    @classmethod
    def read(cls, path: PathLike) -> Tokens:
        """Read a file of tokens, each after its length: one byte, or two from 128 on."""
        data = Path(path).read_bytes()
        pieces = []
        position = 0
        while position < len(data):
            length = data[position]
            position += 1
            if length >= 128:
                if position == len(data):
                    raise FileFormatError(f"{path} ends within a token: fetch it again")
                length += 128 * (data[position] - 1)
                position += 1
            pieces.append(data[position : position + length])
            position += length
        if len(pieces) <= FIRST_TEXT_TOKEN:
            raise FileFormatError(f"{path} has {len(pieces)} tokens: fetch it again")
        return cls(pieces)

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text: the longest one that fits, from left to right."""
        data = (SPACE + text.replace(" ", SPACE)).encode()
        numbers = []
        while data:
            for length in range(min(self._longest, len(data)), 0, -1):
                number = self._numbers.get(data[:length])
                if number is not None:
                    numbers.append(number)
                    data = data[length:]
                    break
            else:
                raise FileFormatError(f"there is no token for {text!r}: fetch the tokens again")
        return numbers


class Encoder(Protocol):
    """Network that returns one row per frame of a recording, such as `OnnxNetwork`."""

    rate: int

    def hidden_frames(self, segment: SoundSegment) -> NDArray[np.float32]:
        """Return the (T, columns) rows of prepared samples."""
        ...


class TextDecoder:
    """Encoder and decoder of a recogniser.

    Parameters
    ----------
    encoder : network whose frames the decoder reads
    session : the decoder in onnxruntime
    tokens : tokens of its texts

    Attributes
    ----------
    rate : samples per second of the input
    """

    def __init__(self, encoder: Encoder, session: InferenceSession, tokens: Tokens) -> None:
        self._encoder = encoder
        self.rate = encoder.rate
        self.tokens = tokens
        self._session = session
        ports = {port.name: port.shape for port in session.get_inputs()}
        # states of earlier calls, of the decoder (empty) and of its view of the encoder: (batch, heads, time, width)
        self._states = {
            name: (shape[1], shape[3]) for name, shape in ports.items() if name.startswith("past")
        }

    def log_probabilities(self, sound: Sound | SoundSegment, texts: Sequence[str]) -> FloatArray:
        """Return the log probability of each text, (n,), for samples of one channel at the encoder's rate."""
        segment = sound if isinstance(sound, SoundSegment) else SoundSegment(sound, self.rate)
        return self._log_probabilities(self._encoder.hidden_frames(segment), texts)

    def _log_probabilities(self, frames: NDArray[np.float32], texts: Sequence[str]) -> FloatArray:
        sequences = [[START, *self.tokens.encode(text), END] for text in texts]
        longest = max(map(len, sequences))
        tokens = np.full((len(sequences), longest), END, dtype=np.int64)
        for row, sequence in enumerate(sequences):
            tokens[row, : len(sequence)] = sequence
        logits = self._run(frames, tokens[:, :-1]).astype(np.float64)
        logits -= logits.max(axis=2, keepdims=True)
        next_logits = np.take_along_axis(logits, tokens[:, 1:, None], axis=2)[..., 0]
        logs = next_logits - np.log(np.exp(logits).sum(axis=2))
        lengths = np.array([len(sequence) - 1 for sequence in sequences])
        is_text = np.arange(longest - 1) < lengths[:, None]
        return np.asarray((logs * is_text).sum(axis=1))

    def _run(self, frames: NDArray[np.float32], tokens: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the logits of each next token, (texts, length, tokens)."""
        count = len(tokens)
        feeds = {
            "input_ids": tokens,
            "encoder_hidden_states": np.repeat(frames[None], count, axis=0),
            "encoder_attention_mask": np.ones((count, len(frames)), dtype=np.int64),
            "use_cache_branch": np.array([False]),
        }
        for name, (heads, width) in self._states.items():
            steps = len(frames) if ".encoder." in name else 0
            feeds[name] = np.zeros((count, heads, steps, width), dtype=np.float32)
        (logits,) = self._session.run(["logits"], feeds)
        return np.asarray(logits, dtype=np.float32)


def load_decoder(encoder: OnnxNetwork | None = None, threads: int = 1) -> TextDecoder:
    """Load the recogniser that ``mvplda extractor get sounds --decoder`` downloaded.

    encoder : its encoder if it is already loaded

    Raises
    ------
    FetchError
        It was not downloaded.
    FileFormatError
        A file was changed.
    """
    files = cached_decoder(RECOGNISER)
    for name, digest in families()[RECOGNISER].decoder.digests.items():
        if sha256(files[name].read_bytes()) != digest:
            raise FileFormatError(
                f"{files[name]} was changed: delete it, then run  mvplda extractor get {RECOGNISER} --decoder"
            )
    decoder, tokens = files.values()
    if encoder is None:
        encoder = OnnxNetwork(cached_file(RECOGNISER), threads=threads)
    return TextDecoder(encoder, open_session(decoder, threads), Tokens.read(tokens))
