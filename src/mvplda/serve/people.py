"""Synthetic people to play with: voices of espeak-ng who enrol, and recordings of theirs to try the service with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from .._optional import need
from ..extractors.sound import read_audio
from .keys import Caller
from .problems import Problem
from .service import Service
from .store import Call

NAMES = ("Ada", "Blaise", "Carl", "Dorothy", "Emmy", "Felix", "Grace", "Hedy", "Ida", "Johann")
PHRASES = ("my voice is my key", "open the garden door")
CONSENT = {"given": True, "text": "This voice is made by a machine, and has nothing to agree to."}
TAKES = 5
"""Three to enrol, and others to try; some are refused for their quality."""
CALL = Call(Caller("synthetic people", "admin"))


def enrol_people(
    service: Service,
    count: int,
    folder: Path,
    say: Callable[[str], Any],
    load_corpus: Callable[..., Any],
) -> None:
    """Make so many voices, at most ten, enrol them, and leave recordings of theirs in a folder.

    Nothing is done where the last of them is enrolled already. `load_corpus` is that of `mvplda.speech.corpora`.
    """
    if service.profiles.find(1, None, f"{NAMES[count - 1]} (synthetic)")["items"]:
        return
    voices = max(count, 2)
    options = {"speakers": voices, "phrases": PHRASES, "sessions": TAKES, "random_state": 7}
    corpus = load_corpus("synthetic", folder / f"voices-{voices}", **options)
    speakers = np.asarray(corpus.labels["speaker"])
    for name, speaker in zip(NAMES[:count], np.unique(speakers), strict=False):
        create = service.profiles.create
        user = f"{name} (synthetic)"
        profile = service.change(CALL, create, user, PHRASES[0], CONSENT)["profileId"]
        enrolled = 0
        for row in np.flatnonzero(speakers == speaker):
            text = str(corpus.labels["phrase"][row]).replace("-", " ")
            path = folder / name / f"{text}, take {int(corpus.sessions[row]) + 1}.wav"
            write(path, read_audio(corpus.clips[row], 16000))
            if text != PHRASES[0] or enrolled == service.settings.enrolments:
                continue
            try:
                service.enrol(profile, service.hear(path.read_bytes()), text, CALL)
                enrolled += 1
            except Problem as problem:
                say(f"{name}: {problem.detail}")
    say(f"{count} synthetic people are enrolled; recordings to try lie in {folder}")


def write(path: Path, samples: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    loudest = max(float(np.abs(samples).max()), 1e-9)
    need("soundfile").write(path, 0.5 * samples / loudest, 16000, subtype="PCM_16")
