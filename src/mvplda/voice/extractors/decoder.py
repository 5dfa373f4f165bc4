"""Decoder of a speech recogniser, which computes the probability of given texts for a recording.

The encoder of the recogniser is the network of the extractor `sounds`. Given the encoder's frames and the tokens so
far, the decoder returns the probability of each next token. The probability of a text is the product over its tokens.
The probabilities of all possible texts sum to 1, so no other text needs to be searched for.
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
"""Numbers of the tokens at the start and at the end of a text."""
FIRST_TEXT_TOKEN = 259
"""Number of the first token for a piece of text, after three special tokens and 256 tokens of one byte each."""
SPACE = "\u2581"
"""Character that stands for a space in tokens."""
RECOGNISER = "sounds"
"""Name of the extractor whose network is the encoder."""


class Tokens:
    """Vocabulary of a speech recogniser: the tokens (pieces of text) and their numbers.

    Parameters
    ----------
    pieces : bytes of each token; the index is the token's number
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
        """Read a vocabulary file.

        Each token is stored as its number of bytes, followed by these bytes. The number takes one
        byte if it is below 128, else two.

        Raises
        ------
        FileFormatError
            The file is truncated or has too few tokens.
        """
        data = Path(path).read_bytes()
        pieces = []
        position = 0
        while position < len(data):
            length = data[position]
            position += 1
            if length >= 128:
                if position == len(data):
                    raise FileFormatError(
                        f"{path} is truncated: delete it, then run `mvplda extractor get {RECOGNISER} --decoder`"
                    )
                length += 128 * (data[position] - 1)
                position += 1
            pieces.append(data[position : position + length])
            position += length
        if len(pieces) <= FIRST_TEXT_TOKEN:
            raise FileFormatError(
                f"{path} has {len(pieces)} tokens, expected more than {FIRST_TEXT_TOKEN}: delete it, then run `mvplda "
                f"extractor get {RECOGNISER} --decoder`"
            )
        return cls(pieces)

    def encode(self, text: str) -> list[int]:
        """Split a text into tokens and return their numbers.

        From left to right, each token is the longest one with which the remaining text starts.

        Raises
        ------
        FileFormatError
            The vocabulary lacks a character of the text.
        """
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
                raise FileFormatError(
                    f"the vocabulary of the recogniser lacks a character of {text!r}, so it is damaged: delete its "
                    f"files, then run `mvplda extractor get {RECOGNISER} --decoder`"
                )
        return numbers


class Encoder(Protocol):
    """Interface of the recogniser's encoder, a network such as `OnnxNetwork` that returns one row per frame of sound.

    rate : samples per second of the input
    """

    rate: int

    def hidden_frames(self, segment: SoundSegment) -> NDArray[np.float32]:
        """Return the (T, columns) output of the network for a segment, one row per frame."""
        ...


class TextDecoder:
    """Speech recogniser that computes the probability of given texts.

    Parameters
    ----------
    encoder : network that turns sound into frames, the input of the decoder
    session : onnxruntime session of the decoder
    tokens : vocabulary of the decoder

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
        # inputs for states of earlier calls (batch, heads, time, width); unused, because all tokens come at once
        self._states = {
            name: (shape[1], shape[3]) for name, shape in ports.items() if name.startswith("past")
        }

    def log_probabilities(self, sound: Sound | SoundSegment, texts: Sequence[str]) -> FloatArray:
        """Return the (n,) log probability of each text given a sound.

        Parameters
        ----------
        sound : (samples,) samples of one channel at the encoder's rate with full scale 1, or a `SoundSegment`
        texts : n texts
        """
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
        """Run the decoder, and return the logits of the token that follows each token of each text.

        frames : (T, columns) output of the encoder
        tokens : (texts, length) numbers of the tokens of each text

        Returns
        -------
        (texts, length, vocabulary) logits
        """
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
    """Load the speech recogniser that ``mvplda extractor get sounds --decoder`` downloaded.

    Parameters
    ----------
    encoder : encoder of the recogniser if it is already loaded
    threads : number of threads of onnxruntime

    Raises
    ------
    FetchError
        The recogniser was not downloaded.
    FileFormatError
        A file was changed.
    """
    files = cached_decoder(RECOGNISER)
    for name, digest in families()[RECOGNISER].decoder.digests.items():
        if sha256(files[name].read_bytes()) != digest:
            raise FileFormatError(
                f"{files[name]} was changed: delete it, then run `mvplda extractor get {RECOGNISER} --decoder`"
            )
    decoder, tokens = files.values()
    if encoder is None:
        encoder = OnnxNetwork(cached_file(RECOGNISER), threads=threads)
    return TextDecoder(encoder, open_session(decoder, threads), Tokens.read(tokens))
