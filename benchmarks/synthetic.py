"""Synthetic speech: voices of espeak-ng say pass-phrases, in sessions with their own microphone, room and noise.

The corpus is a plugin: ``mvplda --plugin benchmarks.synthetic experiment synthetic FOLDER`` writes the speech to
FOLDER, and runs an experiment on it; ``make demo`` runs this command.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from benchmarks.voices import RATE, Espeak, Speaker, draw_speaker
from mvplda._optional import need
from mvplda._progress import Progress
from mvplda._typing import FloatArray, PathLike
from mvplda.atomic_files import write_atomically
from mvplda.backend import cores
from mvplda.exceptions import DataError, ParameterError
from mvplda.paper.corpora import Corpus, register_corpus
from mvplda.paper.corpora.folder import match_files
from mvplda.paper.frames import in_room, over_channel, with_noise

SOURCE = "synthetic speech, espeak-ng"
VERSION = 4
"""Of the recipe: raised when the same settings would make other files."""
MANIFEST = "manifest.json"
BLOCK = 5
"""Speakers of a process. Fixed, for what espeak-ng says depends on what the process said before."""
PHRASES = """\
open the garden door
open the kitchen door
my voice is my key
my word is my key
call my brother now
call my mother today
turn the lights down
turn the radio down
seven green apples
eleven green bottles
play the next song
show the last order
what time is dinner
what time is the train
send the letter today
read the letter now
the river runs fast
the winter comes fast
find a quiet place
book a table for two
""".splitlines()
"""Pass-phrases of about a second, in pairs that share words."""


@register_corpus(
    "synthetic", root="where the speech is written; made by espeak-ng if it is not there"
)
def synthetic(
    root: PathLike,
    *,
    speakers: int = 50,
    phrases: int = 8,
    sessions: int = 8,
    random_state: int = 0,
    training: float | None = None,
    verbose: bool = True,
) -> Corpus:
    """A corpus of synthetic speech, made in a folder, or read from it when it is there already.

    A speaker is a voice and accent of espeak-ng with a pitch and a rate of its own; a session changes both, and has
    its microphone, room, noise and level. The same settings make the same files, byte for byte, with the same
    version of espeak-ng.

    Parameters
    ----------
    root : the folder to write: ``<speaker>/<phrase>/<session>.flac`` and ``manifest.json``
    speakers, sessions : how many
    phrases : how many of `PHRASES`
    random_state : of everything that is drawn
    training : see `ProtocolOptions`
    verbose : show the progress on standard error
    """
    if speakers < 2 or not 1 <= phrases <= len(PHRASES):
        raise ParameterError(
            f"expected 2 speakers or more and 1 to {len(PHRASES)} phrases; got {speakers} and {phrases}"
        )
    root = Path(root)
    settings = {"version": VERSION, "speakers": speakers, "phrases": phrases}
    settings |= {"sessions": sessions, "seed": random_state}
    manifest = root / MANIFEST
    if not manifest.is_file():
        _make(root, settings, verbose)
    elif json.loads(manifest.read_text(encoding="utf-8")) != settings:
        raise DataError(
            f"{root} holds synthetic speech of other settings than {settings}: choose another folder"
        )
    listing = match_files(root, "{speaker}/{phrase}/{session}")
    return listing.corpus("synthetic", SOURCE, training=training, random_state=random_state)


def _make(root: Path, settings: dict[str, int], verbose: bool) -> None:
    """Write the corpus; the manifest comes last, so that a folder without it is not whole."""
    # before anything is written, not in a process of its own
    import_module("espeakng_loader")
    for module in ("soundfile", "soxr"):
        need(module)
    root.mkdir(parents=True, exist_ok=True)
    if any(root.iterdir()):
        raise DataError(
            f"{root} is not empty, and holds no {MANIFEST}: delete it, or choose another folder"
        )
    numbers = range(settings["speakers"])
    blocks = [numbers[k : k + BLOCK] for k in numbers[::BLOCK]]
    line = Progress("synthetic speech, speakers", len(numbers))
    # every block in a fresh process
    with ProcessPoolExecutor(cores(), get_context("spawn"), max_tasks_per_child=1) as pool:
        for done in pool.map(partial(_speak, root, settings), blocks):
            if verbose:
                line.step(done)
    write_atomically(root / MANIFEST, json.dumps(settings).encode())


def _speak(root: Path, settings: Mapping[str, int], numbers: range) -> int:
    """Write the files of some speakers, and return how many speakers there are up to the last of them."""
    seed = settings["seed"]
    espeak = Espeak(seed + 1)
    texts = PHRASES[: settings["phrases"]]
    for number in numbers:
        speaker = draw_speaker(number, seed)
        for session in range(settings["sessions"]):
            rng = np.random.default_rng([seed, 2, number, session])
            for text, clip in zip(texts, _session(espeak, speaker, texts, rng), strict=True):
                path = root / speaker.name / text.replace(" ", "-") / f"{session}.flac"
                path.parent.mkdir(parents=True, exist_ok=True)
                need("soundfile").write(path, clip, RATE, subtype="PCM_16")
    return numbers[-1] + 1


def _session(
    espeak: Espeak, speaker: Speaker, phrases: Sequence[str], rng: np.random.Generator
) -> list[FloatArray]:
    """Every phrase, said in one sitting: the same mood, microphone, room and noise."""
    mood = speaker._replace(
        rate=speaker.rate * rng.uniform(0.88, 1.14), pitch=speaker.pitch + rng.normal(0, 5)
    )
    low, high = rng.uniform(40, 250), rng.uniform(3800, 7600)
    reverberation, direct = rng.uniform(0.1, 0.5), rng.uniform(0, 12)
    snr, peak, pink = rng.uniform(6, 25), rng.uniform(0.05, 0.8), rng.random() < 0.5
    place = rng.integers(2**32)
    clips = []
    for text in phrases:
        said = espeak.say(text, mood, rng)
        # one microphone and one room, whatever is said there
        same = np.random.default_rng(place)
        wave = over_channel(said, low, high, RATE, same)
        wave = in_room(wave, reverberation, direct, RATE, same)
        wave = with_noise(wave, snr, pink, rng)
        clips.append((wave * (peak / np.abs(wave).max())).astype(np.float32))
    return clips
