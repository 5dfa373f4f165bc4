"""Speakers that do not exist: voices drawn around those of espeak-ng."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .espeak import shipped_variants

ACCENTS = ("en", "en-us", "en-gb-scotland", "en-gb-x-rp", "en-029", "en-gb-x-gbclan", "en-gb-x-gbcwmd", "en-us-nyc")
UNLIKE_PEOPLE = ("robo", "whisper", "klatt", "demonic", "croak", "fast", "storm", "tweaky", "anxious", "announcer")
"""Robots, whispers and effects are told from people at once, and other speech engines too."""
FORMANTS = range(9)
KEPT = ("flutter", "roughness", "breath", "voicing", "consonants", "tone")
"""Lines of a shipped voice that stay. Echoes, stresses and changed phonemes would give a speaker away."""
LIKENESS = 0.4
"""How far a speaker is from the plain voice towards its shipped one."""
COMMON_SPREAD, FORMANT_SPREAD, SHAPE_SPREAD = 0.05, 0.035, 0.12
"""Standard deviations of the logarithm: length of the vocal tract, each formant besides, heights and widths."""


@dataclass(frozen=True)
class Speaker:
    """A voice: where it comes from, how it speaks, and the text of its espeak-ng variant."""

    name: str
    base: str
    accent: str
    gender: str
    pitch: int
    rate: float
    expression: float
    variant: str


def people() -> dict[str, str]:
    """The shipped variants that sound like people."""
    variants = shipped_variants()
    return {name: text for name, text in variants.items() if not any(word in name.lower() for word in UNLIKE_PEOPLE)}


def draw_speaker(number: int, seed: int, bases: dict[str, str]) -> Speaker:
    """The speaker of a number: the same whatever the number of speakers."""
    rng = np.random.default_rng([seed, 1, number])
    name = f"s{number + 1:03d}"
    base = sorted(bases)[rng.integers(len(bases))]
    accent = ACCENTS[rng.integers(len(ACCENTS))]
    known, kept = _read_variant(bases[base])
    gender = "female" if known.get("gender", "male").lower().startswith("f") else "male"
    pitch = int(rng.normal(*((195, 22) if gender == "female" else (112, 16))))
    tract = np.exp(rng.normal(0, COMMON_SPREAD))
    lines = [
        "language variant",
        f"name {name}",
        f"gender {gender}",
        f"pitch {pitch} {round(pitch * rng.uniform(1.25, 1.6))}",
    ]
    for k in FORMANTS:
        parts = [float(value) for value in known.get(f"formant {k}", "100 100 100").split()]
        parts += [100.0] * (3 - len(parts))
        spread = np.exp(rng.normal(0, (FORMANT_SPREAD, SHAPE_SPREAD, SHAPE_SPREAD)))
        frequency, height, width = np.round(
            (100 + LIKENESS * (np.array(parts[:3]) - 100)) * spread * (tract, 1, 1)
        ).astype(int)
        lines.append(f"formant {k} {frequency} {height} {width}")
    lines += kept
    rate, expression = rng.uniform(145, 195), rng.uniform(25, 75)
    return Speaker(name, base, accent, gender, pitch, rate, expression, "\n".join(lines) + "\n")


def _read_variant(text: str) -> tuple[dict[str, str], list[str]]:
    """What is drawn anew, by its name; and the lines that stay as they are."""
    known, kept = {}, []
    for line in text.splitlines():
        fields = line.split("//")[0].split()
        if not fields:
            continue
        if fields[0] == "formant" and len(fields) > 2:
            known[f"formant {fields[1]}"] = " ".join(fields[2:])
        elif fields[0] in ("name", "language", "gender", "pitch"):
            known[fields[0]] = " ".join(fields[1:])
        elif fields[0] in KEPT:
            kept.append(" ".join(fields))
    return known, kept
