"""The decoder returns the log probability of given texts, whatever other texts are in the same call."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest

from mvplda.exceptions import FetchError, FileFormatError
from mvplda.voice.audio.speech_detection import SoundSegment
from mvplda.voice.extractors.decoder import END, FIRST_TEXT_TOKEN, START, TextDecoder, Tokens
from mvplda.voice.extractors.download import cached_decoder

RATE = 16000
BLANK = "\u2581".encode()
PIECES = [BLANK + b"one", BLANK + b"two", BLANK + b"on", b"e", b",", b".", BLANK]


def pieces() -> list[bytes]:
    return [b"<unk>", b"<s>", b"</s>", *(bytes([byte]) for byte in range(256)), *PIECES]


def stored(items: list[bytes]) -> bytes:
    """Return tokens as the recogniser's file holds them."""
    data = b""
    for item in items:
        length = len(item)
        head = bytes([length]) if length < 128 else bytes([128 + length % 128, length // 128])
        data += head + item
    return data


class FakeSession:
    """Decoder whose next token depends on the last one and on the first frame."""

    def __init__(self) -> None:
        count = FIRST_TEXT_TOKEN + len(PIECES)
        self.table = np.random.default_rng(0).normal(size=(count, count)).astype(np.float32)

    def get_inputs(self):
        names = ("past_key_values.0.decoder.key", "past_key_values.0.encoder.key")
        return [SimpleNamespace(name=name, shape=["batch", 2, "time", 3]) for name in names]

    def run(self, outputs, feeds):
        assert outputs == ["logits"]
        frames = feeds["encoder_hidden_states"]
        texts = len(feeds["input_ids"])
        assert feeds["past_key_values.0.decoder.key"].shape == (texts, 2, 0, 3)
        assert feeds["past_key_values.0.encoder.key"].shape == (texts, 2, frames.shape[1], 3)
        return (self.table[feeds["input_ids"]] * frames[:, :1, :1],)


class FakeEncoder:
    rate = RATE

    def hidden_frames(self, segment: SoundSegment) -> np.ndarray:
        return np.full((5, 4), segment.samples.max(), np.float32)


@pytest.fixture
def decoder() -> TextDecoder:
    return TextDecoder(FakeEncoder(), FakeSession(), Tokens(pieces()))


def test_texts_are_encoded_by_the_longest_token_that_fits():
    tokens = Tokens(pieces())
    first = FIRST_TEXT_TOKEN
    assert tokens.encode("one, two.") == [first, first + 4, first + 1, first + 5]
    # no token has the letters of "six": single bytes do
    assert tokens.encode("six") == [first + 6, *(3 + byte for byte in b"six")]


def test_tokens_are_read_with_their_lengths(tmp_path):
    long = b"x" * 300
    path = tmp_path / "tokens.bin"
    path.write_bytes(stored([*pieces(), long]))
    tokens = Tokens.read(path)
    first = FIRST_TEXT_TOKEN
    assert tokens.encode("two" + "x" * 300) == [first + 1, first + len(PIECES)]
    path.write_bytes(stored(pieces()[:20]))
    with pytest.raises(FileFormatError, match="20 tokens"):
        Tokens.read(path)


def test_log_probabilities_are_sums_over_tokens(decoder):
    sound = np.zeros(RATE, np.float32)
    sound[100] = 0.7
    texts = ["one", "two, one.", "on six"]
    found = decoder.log_probabilities(sound, texts)
    logits = decoder._session.table * np.float32(0.7)
    logs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    for text, value in zip(texts, found, strict=True):
        sequence = [START, *decoder.tokens.encode(text), END]
        expected = sum(logs[a, b] for a, b in pairwise(sequence))
        assert value == pytest.approx(expected, abs=1e-4)
        # a text has the same probability alone as among others
        assert decoder.log_probabilities(sound, [text])[0] == pytest.approx(value, abs=1e-5)


def test_a_missing_decoder_names_the_command(tmp_path, monkeypatch):
    monkeypatch.setenv("MVPLDA_CACHE", str(tmp_path))
    with pytest.raises(FetchError, match="mvplda extractor get sounds --decoder"):
        cached_decoder("sounds")
    with pytest.raises(FetchError, match="decoder"):
        cached_decoder("campplus")
