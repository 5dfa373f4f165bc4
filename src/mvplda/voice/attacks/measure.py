"""Measurement of attacks: which of them a log-in accepts, by kind, with intervals over people."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from scipy.stats import beta

from ..._progress import Progress
from ..._typing import PathLike
from ...decisions import Verdict
from ...exceptions import DataError
from ..audio.decode import FileSegment, read_audio
from ..audio.folders import label_recordings, list_recordings
from ..extractors.extractor import ExtractedVectors
from ..fingerprint import CopyTest
from ..verification import VoiceModel
from .attack import RATE, Attack, Sound
from .copies import COPIES
from .neural import MELGAN
from .resynthesis import RESYNTHESIS, espeak
from .rooms import REPLAYS

ALL_ATTACKS: Mapping[str, Attack] = {
    **COPIES,
    **REPLAYS,
    **RESYNTHESIS,
    MELGAN.name: MELGAN,
}
"""All attacks with a recording of the owner."""

ENROLMENTS = 3
"""Recordings per person that enrol."""
TESTS = 2
"""Recordings per person that are tested: verifications of the owner, and sources of attacks."""
UNCHANGED = "unchanged"

Origin = Literal["enrolment", "other recording"]
Recording = FileSegment | PathLike
Decide = Callable[[str, Sound], tuple[Verdict, str | None]]
"""Function that returns verdict and reason for a claimed person and a sound."""


@dataclass(frozen=True)
class Owner:
    """Person whose log-in is attacked.

    phrase : text of the phrase
    enrolments : recordings that enrol
    others : recordings that the log-in never received before the test
    """

    name: str
    phrase: str
    enrolments: Sequence[Recording]
    others: Sequence[Recording]


class Outcome(NamedTuple):
    """Decision about one verification or attack.

    kind : "owner", or the kind of attack
    attack : name of the attack
    origin : recording that the attack was made from
    """

    person: str
    kind: str
    attack: str
    origin: str
    verdict: Verdict
    reason: str | None


def owners_of(
    files: Sequence[Recording], people: Sequence[str], phrases: Sequence[str]
) -> list[Owner]:
    """Return one owner per person with enough recordings of a phrase; the phrase with the most recordings is used."""
    recordings: dict[str, dict[str, list[Recording]]] = {}
    for file, person, phrase in zip(files, people, phrases, strict=True):
        recordings.setdefault(person, {}).setdefault(phrase, []).append(file)
    owners = []
    for person, by_phrase in recordings.items():
        # recordings without a phrase differ in their words
        phrase = max(by_phrase, key=lambda name: (bool(name), len(by_phrase[name])))
        found = by_phrase[phrase]
        if len(found) > ENROLMENTS:
            others = found[ENROLMENTS : ENROLMENTS + TESTS]
            owners.append(Owner(person, phrase, found[:ENROLMENTS], others))
    return owners


def list_owners(
    source: PathLike, pattern: str | None = None, most: int | None = None
) -> list[Owner]:
    """Return the people of a folder or table of recordings, labelled as for `mvplda setup`.

    most : number of people; None: all with enough recordings of a phrase
    """
    listed = list_recordings([source])
    if pattern is not None or "speaker" not in listed.labels:
        listed, _ = label_recordings(listed, pattern)
    people = listed.labels["speaker"]
    owners = owners_of(listed.files, people, listed.labels.get("phrase", [""] * len(people)))
    if not owners:
        raise DataError(
            f"nobody in {source} has {ENROLMENTS + 1} recordings of a phrase: an attack needs {ENROLMENTS} that enrol "
            "and another one"
        )
    return owners[:most]


def attack_owner(
    owner: Owner,
    decide: Decide,
    attacks: Iterable[Attack],
    rng: np.random.Generator,
    language: str | None = None,
) -> list[Outcome]:
    """Verify an owner, and attack with an enrolment and with a recording that the log-in did not receive.

    decide : decides each sound independently of earlier ones
    language : language of the phrase, for text-to-speech; None: no text-to-speech
    """
    outcomes = []

    def record(kind: str, attack: str, origin: str, sound: Sound) -> None:
        verdict, reason = decide(owner.name, sound)
        outcomes.append(Outcome(owner.name, kind, attack, origin, verdict, reason))

    for other in owner.others:
        record("owner", "owner", "", read_audio(other, RATE))
    origins = {"enrolment": owner.enrolments[0], "other recording": owner.others[-1]}
    usable = [attack for attack in attacks if not attack.missing()]
    for origin, file in origins.items():
        sound = read_audio(file, RATE)
        if origin == "enrolment":
            record("copy", UNCHANGED, origin, sound)
        for attack in usable:
            record(attack.kind, attack.name, origin, attack(sound, rng))
    text = owner.phrase.replace("-", " ").replace("_", " ").strip()
    if language is not None and text and shutil.which("espeak-ng"):
        record("speech synthesis", "eSpeak NG, generic voice", "text", espeak(text, rng, language))
    return outcomes


def attack_everybody(
    owners: Sequence[Owner],
    decide: Decide,
    language: str | None = None,
    attacks: Mapping[str, Attack] = ALL_ATTACKS,
    seed: int = 0,
    progress: bool = False,
) -> list[AttackRow]:
    """Attack all people, and return one row per attack."""
    bar = Progress("people attacked", len(owners))
    outcomes = []
    for number, owner in enumerate(owners):
        rng = np.random.default_rng([seed, number])
        outcomes += attack_owner(owner, decide, attacks.values(), rng, language)
        if progress:
            bar.step(number + 1)
    return summary(outcomes)


def decide_by(voices: VoiceModel, owners: Sequence[Owner]) -> Decide:
    """Return a function that decides as `mvplda verify` does, with the enrolments of each person on one side."""
    enrolled = {owner.name: voices.side(owner.enrolments) for owner in owners}

    def decide(name: str, sound: Sound) -> tuple[Verdict, str | None]:
        utterance = voices.extractor.utterance(np.asarray(sound, np.float32), RATE)
        tested = ExtractedVectors(
            utterance.vector[None], [0], [utterance.quality], [], copy_tests=[CopyTest(sound)]
        )
        decision = voices.verify(enrolled[name], tested)
        return decision.answer, decision.reason

    return decide


class Share(NamedTuple):
    """Share of attempts, with its 95 % interval."""

    estimate: float
    low: float
    high: float

    def text(self) -> str:
        """Return the share and its interval in percent."""
        numbers = (f"{100 * value:.1f}" for value in self)
        return "{} ({} to {})".format(*numbers)


@dataclass(frozen=True)
class AttackRow:
    """Outcomes of one attack.

    accepted : for attacks the IAPAR of ISO/IEC 30107-3, the share of attacks that the whole log-in accepts
    suspected : share of suspected replays; 1 minus it is the APCER of the recognition of copies, for owners it is the
        BPCER
    """

    kind: str
    attack: str
    origin: str
    attempts: int
    people: int
    accepted: Share
    suspected: Share
    inconclusive: float


def summary(outcomes: Sequence[Outcome]) -> list[AttackRow]:
    """Return one row per attack and origin, those of owners first."""
    groups: dict[tuple[str, str, str], list[Outcome]] = {}
    for outcome in outcomes:
        key = (outcome.kind, outcome.attack, outcome.origin)
        groups.setdefault(key, []).append(outcome)
    return [
        AttackRow(
            *key,
            attempts=len(found),
            people=len({outcome.person for outcome in found}),
            accepted=share_of([outcome.verdict == "accept" for outcome in found]),
            suspected=share_of([outcome.reason == "suspected_replay" for outcome in found]),
            inconclusive=float(np.mean([outcome.verdict == "inconclusive" for outcome in found])),
        )
        for key, found in groups.items()
    ]


def share_of(flags: Sequence[bool]) -> Share:
    """Return the share of true values, with its 95 % interval (Clopper and Pearson)."""
    count, total = sum(flags), len(flags)
    low = float(beta.ppf(0.025, count, total - count + 1)) if count else 0.0
    high = float(beta.ppf(0.975, count + 1, total - count)) if count < total else 1.0
    return Share(count / total, low, high)


TABLE_HEAD = [
    "attack",
    "made of",
    "attempts",
    "accepted, % (95 % interval): IAPAR",
    "not recognised as a copy, %: APCER",
]


def table_rows(rows: Sequence[AttackRow]) -> list[list[str]]:
    """Return the cells of a table; owners have their shares of acceptances and of suspected replays."""
    cells = []
    for row in rows:
        name = row.attack if row.kind == "copy" else f"{row.kind}: {row.attack}"
        unrecognised = f"{100 * (1 - row.suspected.estimate):.1f}"
        if row.kind == "owner":
            name = "owner, no attack"
            unrecognised = f"BPCER {100 * row.suspected.estimate:.1f}"
        cells.append([name, row.origin, str(row.attempts), row.accepted.text(), unrecognised])
    return cells


def text_table(rows: Sequence[AttackRow]) -> str:
    """Return the table of `summary` as aligned text."""
    cells = [TABLE_HEAD, *table_rows(rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(TABLE_HEAD))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        for line in cells
    ]
    return "\n".join(line.rstrip() for line in lines)


def missing_programs(attacks: Iterable[Attack]) -> list[str]:
    """Return a line per attack that cannot be made here."""
    return [
        f"Left out: {attack.name}, which needs {', '.join(attack.missing())}."
        for attack in attacks
        if attack.missing()
    ]
