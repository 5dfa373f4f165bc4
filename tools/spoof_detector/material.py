"""Recordings of people, attacks that are made of them, and the random channels that are applied to both."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from zlib import crc32

import numpy as np
import soundfile
from numpy.typing import NDArray

from mvplda._progress import Progress
from mvplda._typing import Names
from mvplda.paper.corpora.folder import Listing
from mvplda.voice.attacks import copies
from mvplda.voice.attacks.attack import RATE, Attack, Sound
from mvplda.voice.attacks.measure import ALL_ATTACKS, missing_programs
from mvplda.voice.attacks.resynthesis import espeak
from mvplda.voice.audio.decode import read_audio
from tools.default_model.recordings import corpus_listing

Generator = np.random.Generator

RECORDINGS = {
    "audiomnist": 4,
    "speech-commands": 4,
    "cvau": 12,
    "arabic": 8,
    "dspspeech": 8,
    "wuw": 4,
}
"""Recordings per person by corpus: at least one more than the enrolments of a trial."""
MOST_PEOPLE = {"speech-commands": 40}
"""People of a corpus that are used; default: all."""
TEST_ONLY = ("wuw",)
"""Corpora that no network is trained on, because their licence is share-alike."""
TEXTS = {
    "audiomnist": ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"],
    "speech-commands": [],
    "wuw": [],
}
"""Corpora with English words, which eSpeak NG can say; empty: the names of phrases are the words."""
ATTACKS_PER_RECORDING = 3
PERSON, GENUINE, SYNTHETIC = "person", "", "speech synthesis"
SAME_DEVICE, OTHER_DEVICE = "same", "other"

GROUPS = {
    "WORLD": "WORLD",
    "Griffin-Lim": "Griffin-Lim",
    "Griffin-Lim from 80 mel bands": "Griffin-Lim",
    "linear prediction": "linear prediction",
    "Codec 2, 3200 bit/s": "Codec 2",
    "Codec 2, 1300 bit/s": "Codec 2",
    "MelGAN": "MelGAN",
    "simulated loudspeaker and room": "room",
    "simulated loudspeaker at the microphone": "near loudspeaker",
    "eSpeak NG": "eSpeak NG",
}
"""Kinds of attacks, and the groups that are left out together."""


def noisy(sound: Sound, rng: Generator) -> Sound:
    """Return a recording with added noise of a random spectral slope, 15 to 35 dB below the recording."""
    spectrum = np.fft.rfft(rng.standard_normal(len(sound)))
    shape = np.maximum(np.arange(len(spectrum)), 1.0) ** -rng.uniform(0.0, 0.7)
    noise = np.asarray(np.fft.irfft(spectrum * shape, len(sound)), np.float64)
    level = 10 ** (-rng.uniform(15, 35) / 20)
    scale = level * np.sqrt(np.mean(sound**2) / max(np.mean(noise**2), 1e-20))
    changed: Sound = sound + scale * noise
    return changed


def through_codec(sound: Sound, rng: Generator, container: str, codec: str) -> Sound:
    """Return a recording after encoding and decoding with libsndfile at a random quality."""
    file = io.BytesIO()
    quality = rng.uniform(0.3, 0.9)
    soundfile.write(
        file, sound, RATE, format=container, subtype=codec, compression_level=float(quality)
    )
    file.seek(0)
    return np.asarray(soundfile.read(file)[0])


CHANNELS: dict[str, tuple[float, Callable[[Sound, Generator], Sound]]] = {
    "unchanged": (0.3, lambda sound, rng: sound),
    "telephone": (0.2, copies.telephone),
    "Opus": (0.1, partial(through_codec, container="OGG", codec="OPUS")),
    "MP3": (0.1, partial(through_codec, container="MP3", codec="MPEG_LAYER_III")),
    "AMR": (0.1, copies.amr),
    "band-pass": (0.1, copies.band_pass),
    "noise": (0.1, noisy),
}
"""Channels of recordings of people and of attacks alike, with their shares."""


@dataclass(frozen=True)
class Items:
    """Recordings of people and attacks of one corpus ("items"), each after a random channel.

    Parameters
    ----------
    samples : samples of all items one after the other, 16 bits
    starts : (items + 1,) position of the first sample of each item in `samples`, and the end of the last item
    speaker, source, kind, channel, device : (items,) speaker; source recording; kind of attack, empty for a recording
        of a person; channel; and whether the channel is that of the person's enrolments
    """

    samples: NDArray[np.int16]
    starts: NDArray[np.int64]
    speaker: Names
    source: NDArray[np.int64]
    kind: Names
    channel: Names
    device: Names

    def __len__(self) -> int:
        return len(self.speaker)

    def sound(self, row: int) -> NDArray[np.float32]:
        """Return the samples of an item."""
        samples = self.samples[self.starts[row] : self.starts[row + 1]]
        return np.asarray(samples / 32768, np.float32)

    def save(self, path: Path) -> None:
        """Write the items to a file."""
        np.savez(path, **vars(self))

    @classmethod
    def load(cls, path: Path) -> Items:
        """Read the items of a file."""
        with np.load(path) as stored:
            return cls(**{name: stored[name] for name in cls.__dataclass_fields__})


def makers() -> dict[str, Attack]:
    """Return {name: attack}; raise if a program or package that an attack needs is missing."""
    wanted = {name: ALL_ATTACKS[name] for name in GROUPS if name in ALL_ATTACKS}
    missing = missing_programs([*wanted.values(), ALL_ATTACKS["AMR"]])
    if missing:
        raise SystemExit("\n".join(missing))
    return wanted


def over_channel(sound: Sound, name: str, rng: Generator) -> NDArray[np.int16]:
    """Return the samples of a recording after the channel `name`, at a random level, with noise and a random start."""
    changed = np.asarray(CHANNELS[name][1](sound, rng), np.float64)
    changed = np.pad(changed, rng.integers(0, RATE // 10, 2))
    changed = changed * rng.uniform(0.2, 0.9) / max(np.abs(changed).max(), 1e-9)
    noise = np.abs(changed).max() * 10 ** (-rng.uniform(55, 80) / 20)
    changed = changed + noise * rng.standard_normal(len(changed))
    return np.asarray(np.clip(changed, -1, 1) * 32767, np.int16)


def draw_channel(rng: Generator) -> str:
    """Return the name of a random channel."""
    shares = [share for share, _ in CHANNELS.values()]
    return str(rng.choice(list(CHANNELS), p=shares))


def chosen_rows(name: str, listing: Listing) -> NDArray[np.int64]:
    """Return random rows of the recordings of one person `name`, of different phrases as far as possible."""
    phrases = listing.fields["phrase"]
    rng = np.random.default_rng(crc32(str(listing.fields["speaker"][0]).encode()))
    order = rng.permutation(len(phrases))
    repetition = np.zeros(len(phrases), np.int64)
    seen: dict[str, int] = {}
    for row in order:
        repetition[row] = seen.get(str(phrases[row]), 0)
        seen[str(phrases[row])] = int(repetition[row]) + 1
    return order[np.argsort(repetition[order], kind="stable")][: RECORDINGS[name]]


def text_of(name: str, phrase: str) -> str | None:
    """Return the words of a phrase; None if they are not English or unknown."""
    if name not in TEXTS:
        return None
    return TEXTS[name][int(phrase)] if TEXTS[name] else phrase


def items_of_person(
    name: str, listing: Listing, attacks: dict[str, Attack]
) -> list[tuple[NDArray[np.int16], int, str, str, str]]:
    """Make all items of one person `name`, and return (samples, source, kind, channel, device) of each."""
    assert listing.files is not None
    rng = np.random.default_rng([1, crc32(str(listing.fields["speaker"][0]).encode())])
    device = draw_channel(rng)
    made = []
    for source, row in enumerate(chosen_rows(name, listing)):
        sound = np.asarray(read_audio(listing.files[row], RATE), np.float64)
        sound = sound * 0.7 / max(np.abs(sound).max(), 1e-9)
        versions = [(GENUINE, sound, SAME_DEVICE), (GENUINE, sound, OTHER_DEVICE)]
        makers_here: dict[str, Callable[[], Sound]] = {
            kind: partial(attack, sound, rng) for kind, attack in attacks.items()
        }
        text = text_of(name, str(listing.fields["phrase"][row]))
        if text is not None:
            makers_here["eSpeak NG"] = partial(espeak, text, rng)
        kinds = rng.choice(list(makers_here), ATTACKS_PER_RECORDING, replace=False)
        for kind in kinds:
            version = SAME_DEVICE if rng.random() < 0.5 else OTHER_DEVICE
            versions.append((str(kind), makers_here[str(kind)](), version))
        for kind, samples, version in versions:
            channel = device if version == SAME_DEVICE else draw_channel(rng)
            made.append((over_channel(samples, channel, rng), source, kind, channel, version))
    return made


def make_items(work: Path, name: str, root: Path) -> None:
    """Write the items of the corpus `name` to the folder `work`, unless their file exists."""
    path = work / f"{name}.npz"
    if path.exists():
        return
    work.mkdir(parents=True, exist_ok=True)
    attacks = makers()
    listing = corpus_listing(name, root)
    people = np.unique(listing.fields["speaker"])[: MOST_PEOPLE.get(name)]
    bar = Progress(f"{name}: people", len(people))
    rows, owners = [], []
    for number, person in enumerate(people):
        own = listing.take(np.flatnonzero(listing.fields["speaker"] == person))
        found = items_of_person(name, own, attacks)
        rows += found
        owners += [f"{name}/{person}"] * len(found)
        bar.step(number + 1)
    samples, source, kind, channel, device = zip(*rows, strict=True)
    Items(
        samples=np.concatenate(samples),
        starts=np.concatenate([[0], np.cumsum([len(sound) for sound in samples])]),
        speaker=np.array(owners),
        source=np.array(source),
        kind=np.array(kind),
        channel=np.array(channel),
        device=np.array(device),
    ).save(path)
