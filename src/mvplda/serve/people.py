"""Synthetic people to play with: voices of espeak-ng who enrol, and recordings of theirs to try the service with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from .._optional import need
from .keys import Caller
from .problems import Problem
from .service import Service

NAMES = ("Ada", "Blaise", "Carl", "Dorothy", "Emmy", "Felix", "Grace", "Hedy", "Ida", "Johann")
PHRASES = ("my voice is my key", "open the garden door")
CONSENT = "This voice is made by a machine, and has nothing to agree to."
TAKES = 5
"""Three to enrol, and others to try; some are lost at the gate."""


def enrol_people(
    service: Service,
    count: int,
    folder: Path,
    say: Callable[[str], Any],
    load_corpus: Callable[..., Any],
) -> list[str]:
    """Make so many voices, enrol them, and leave recordings of theirs in a folder.

    Those who are there already stay. `load_corpus` is that of `mvplda.speech.corpora`.
    """
    from ..extractors.sound import read_audio

    caller = Caller("synthetic people", "admin")
    names = [
        NAMES[k % len(NAMES)] + (f" {k // len(NAMES) + 1}" if k >= len(NAMES) else "")
        for k in range(count)
    ]
    users = [f"{name} (synthetic)" for name in names]
    missing = [
        k for k, user in enumerate(users) if not service.profiles.find(1, None, user)["items"]
    ]
    if not missing:
        return []
    options: dict[str, Any] = {
        "speakers": max(count, 2),
        "phrases": list(PHRASES),
        "sessions": TAKES,
        "random_state": 7,
    }
    corpus = load_corpus("synthetic", folder / f"voices-{max(count, 2)}", **options)
    speakers, phrases = (np.asarray(corpus.labels[view]) for view in ("speaker", "phrase"))
    write = need("soundfile").write
    assert corpus.clips is not None
    assert corpus.sessions is not None
    made = []
    for k in missing:
        own = np.flatnonzero(speakers == np.unique(speakers)[k])
        consent = {"given": True, "text": CONSENT}
        create = service.profiles.create
        made_one = service.change(None, create, users[k], PHRASES[0], consent, caller)
        profile = made_one["profileId"]
        enrolled = 0
        for row in own.tolist():
            samples, text = (
                read_audio(corpus.clips[row], 16000),
                str(phrases[row]).replace("-", " "),
            )
            place = folder / names[k] / f"{text}, take {int(corpus.sessions[row]) + 1}.wav"
            place.parent.mkdir(parents=True, exist_ok=True)
            write(
                place,
                0.5 * samples / max(float(np.abs(samples).max()), 1e-9),
                16000,
                subtype="PCM_16",
            )
            if text == PHRASES[0] and enrolled < service.settings.enrolments:
                try:
                    service.enrol(profile, service.hear(place.read_bytes()), PHRASES[0], caller)
                    enrolled += 1
                except Problem as problem:
                    say(f"{names[k]}: {problem.detail}")
        made.append(profile)
    say(f"{len(made)} synthetic people are enrolled; recordings to try lie in {folder}")
    return made
