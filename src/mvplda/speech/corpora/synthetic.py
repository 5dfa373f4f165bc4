"""Synthetic speech: as many speakers, phrases and sessions as you like, made by espeak-ng on this machine."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..._optional import need
from ..._progress import Progress
from ...distributed.engines import ordered_map
from ...exceptions import DataError, ParameterError
from ...io.text import write_table
from .corpus import Corpus, register_corpus
from .folder import read_table
from .protocol import build_corpus

SOURCE = "synthetic speech, espeak-ng"
VERSION = 1
"""Of the recipe: raised when the same settings would make other sound."""
INDEX, SPEAKERS, MANIFEST = "index.csv", "speakers.csv", "manifest.json"
BLOCK = 5
"""Speakers a process. Fixed, for what espeak-ng says depends on what the process said before."""
PHRASES = (
    "open the garden door",
    "open the kitchen door",
    "my voice is my key",
    "my word is my key",
    "call my brother now",
    "call my mother today",
    "turn the lights down",
    "turn the radio down",
    "seven green apples",
    "eleven green bottles",
    "play the next song",
    "show the last order",
    "what time is dinner",
    "what time is the train",
    "send the letter today",
    "read the letter now",
    "the river runs fast",
    "the winter comes fast",
    "find a quiet place",
    "book a table for two",
)
"""Pass-phrases of about a second, in pairs that share words."""

log = logging.getLogger(__name__)


@register_corpus("synthetic", root="where the speech is written; made by espeak-ng if it is not there")
def synthetic(
    root: str | os.PathLike[str],
    *,
    speakers: int = 50,
    phrases: int | Sequence[str] = 8,
    sessions: int = 8,
    random_state: int = 0,
    rate: int = 16000,
    training: float | int | Sequence[str] | None = None,
    per_model: int = 3,
    workers: int | None = None,
    verbose: bool = False,
) -> Corpus:
    """A corpus of synthetic speech, made in a folder, or read from it when it is there already.

    A speaker is a voice and accent of espeak-ng with vocal tract, formants, pitch, rate and
    expression drawn; a session changes pitch, rate, microphone, room, noise and level. The same
    settings make the same files, byte for byte, with the same version of espeak-ng.

    Parameters
    ----------
    root : the folder to write: one FLAC a speaker, ``index.csv``, ``speakers.csv`` and ``manifest.json``
    speakers, sessions : how many
    phrases : how many of `PHRASES`, or English phrases of your own
    random_state : of everything that is drawn
    rate : samples a second
    training, per_model : the protocol (see `mvplda.speech.corpora.protocol.make_protocol`)
    workers : processes at once; None takes a process a core
    verbose : show the progress on standard error
    """
    settings = _settings(speakers, phrases, sessions, random_state, rate)
    root = Path(root)
    if (root / MANIFEST).is_file():
        _check(root, settings)
    else:
        _make(root, settings, workers, verbose)
    listed = read_table(root / INDEX, views=("speaker", "phrase"))
    return build_corpus(
        "synthetic",
        listed.ids,
        listed.labels,
        listed.clips,
        listed.sessions,
        training=training,
        random_state=random_state,
        per_model=per_model,
        source=SOURCE,
    )


def _settings(
    speakers: int, phrases: int | Sequence[str], sessions: int, random_state: int, rate: int
) -> dict[str, Any]:
    if isinstance(phrases, str):
        raise ParameterError(f"phrases is a number or a sequence of phrases; got the text {phrases!r}")
    if isinstance(phrases, (int, np.integer)):
        if not 1 <= phrases <= len(PHRASES):
            raise ParameterError(f"there are {len(PHRASES)} phrases; got {phrases}: give phrases of your own")
        texts = list(PHRASES[:phrases])
    else:
        texts = [" ".join(str(text).split()) for text in phrases]
    if not texts or not all(texts) or len(set(map(slug, texts))) < len(texts):
        raise ParameterError(f"phrases are texts that differ, and none is blank; got {texts}")
    for name, value, least in (("speakers", speakers, 2), ("sessions", sessions, 1), ("rate", rate, 8000)):
        if value < least:
            raise ParameterError(f"{name} is at least {least}; got {value}")
    if random_state < 0:
        raise ParameterError(f"random_state is a whole number from 0; got {random_state}")
    return {
        "version": VERSION,
        "speakers": int(speakers),
        "phrases": texts,
        "sessions": int(sessions),
        "seed": int(random_state),
        "rate": int(rate),
    }


def slug(text: str) -> str:
    """A phrase as a label: ``my-voice-is-my-key``."""
    return "-".join("".join(c if c.isalnum() else " " for c in text.lower()).split())


def _make(root: Path, settings: dict[str, Any], workers: int | None, verbose: bool) -> None:
    """Write the corpus beside its place, then move it there: it is whole or not there."""
    for module in ("espeakng_loader", "soundfile", "soxr"):
        need(module)
    if root.exists() and (not root.is_dir() or any(root.iterdir())):
        raise DataError(f"{root} is not an empty folder, and holds no {MANIFEST}: choose another for synthetic speech")
    root.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=root.parent, prefix=root.name + ".", suffix=".part"))
    try:
        made = _run_all(scratch, settings, workers, verbose)
        rows = [row for part in made for row in part["rows"]]
        labels = list(map(slug, settings["phrases"]))
        file, start, length, speaker, phrase, session = zip(*rows, strict=True)
        names = [f"{s}_{labels[p]}_{k}" for s, p, k in zip(speaker, phrase, session, strict=True)]
        columns = {"id": names, "file": file, "start": start, "length": length, "speaker": speaker}
        columns |= {"phrase": [labels[p] for p in phrase], "session": session}
        write_table(scratch / INDEX, columns, "csv")
        about = [speaker for part in made for speaker in part["speakers"]]
        write_table(scratch / SPEAKERS, {key: [entry[key] for entry in about] for key in about[0]}, "csv")
        manifest = {"settings": settings, "espeak": made[0]["espeak"], "fingerprint": fingerprint(scratch)}
        (scratch / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
        scratch.chmod(0o755)
        if root.exists():
            root.rmdir()
        os.replace(scratch, root)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise


def _run_all(folder: Path, settings: dict[str, Any], workers: int | None, verbose: bool) -> list[dict[str, Any]]:
    numbers = range(settings["speakers"])
    jobs = [{**settings, "folder": str(folder), "numbers": list(numbers[k : k + BLOCK])} for k in numbers[::BLOCK]]
    shown = Progress("synthetic speech, speakers", len(numbers)) if verbose else None
    made = []
    for part in ordered_map(_run, jobs, engine="threads", workers=workers):
        made.append(part)
        if shown:
            done = sum(len(p["speakers"]) for p in made)
            shown.step(done, f"{sum(len(p['rows']) for p in made)} utterances")
    return made


def _run(job: dict[str, Any]) -> dict[str, Any]:
    """One job in a fresh process, which finds this package where it lies."""
    package = str(Path(__file__).resolve().parents[3])
    paths = [package, *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "mvplda.speech.corpora.espeak"]
    ended = subprocess.run(command, input=json.dumps(job), capture_output=True, text=True, env=environment, check=False)
    if ended.returncode:
        reason = (ended.stderr.strip().splitlines() or ["no message"])[-1]
        raise DataError(f"synthetic speech was not made: {reason}")
    result: dict[str, Any] = json.loads(ended.stdout)
    return result


def _check(root: Path, settings: dict[str, Any]) -> None:
    """The corpus in a folder is of these settings, and whole."""
    try:
        manifest = json.loads((root / MANIFEST).read_text(encoding="utf-8"))
        there, mark = manifest["settings"], manifest["fingerprint"]
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{root / MANIFEST} is damaged: delete the folder to make the corpus again") from error
    other = [f"{key} {there.get(key)!r}, not {settings[key]!r}" for key in settings if there.get(key) != settings[key]]
    if other:
        raise DataError(f"{root} holds synthetic speech of other settings ({'; '.join(other)}): choose another folder")
    if mark != fingerprint(root):
        raise DataError(f"{root} is damaged, its files do not match its fingerprint: delete it to make it again")
    log.info("synthetic speech in %s is used as it is", root)


def fingerprint(root: str | os.PathLike[str]) -> str:
    """SHA-256 of the names and contents of a corpus' files."""
    digest = hashlib.sha256()
    for file in sorted(Path(root).iterdir()):
        if file.suffix in (".flac", ".csv"):
            digest.update(f"{file.name} {file.stat().st_size}\n".encode())
            digest.update(file.read_bytes())
    return digest.hexdigest()
