"""Measurement of the share of attacks that a log-in accepts, for each attack with a confidence interval."""

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
"""All attacks with a recording of the owner, by name."""

ENROLMENTS = 3
"""Number of recordings per person that are enrolled."""
TESTS = 2
"""Maximum number of other recordings per person. All are verified as the owner; the last is a source of attacks."""
UNCHANGED = "unchanged"
"""Name of the attack that replays a recording as it is."""

Origin = Literal["enrolment", "other recording"]
Recording = FileSegment | PathLike
Decide = Callable[[str, Sound], tuple[Verdict, str | None]]
"""Function that returns the verdict and its reason, given the name of the claimed person and a sound at 16 kHz."""


@dataclass(frozen=True)
class Owner:
    """Person whose log-in is attacked.

    name : name of the person
    phrase : text of the phrase; empty if it is unknown
    enrolments : recordings that are enrolled
    others : further recordings, which the log-in has not received before
    """

    name: str
    phrase: str
    enrolments: Sequence[Recording]
    others: Sequence[Recording]


class Outcome(NamedTuple):
    """Decision about one verification of an owner, or about one attack.

    person : name of the owner
    kind : "owner", or the kind of attack
    attack : name of the attack, or "owner"
    origin : recording from which the attack was made: "enrolment", "other recording" or "text"; empty for owners
    verdict : accept, reject or inconclusive
    reason : reason of the verdict, such as "suspected_replay"; None: only the score decided
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
    """Return an owner for each person with at least `ENROLMENTS` + 1 recordings of one phrase.

    The phrase with the most recordings of a person is used. Its first `ENROLMENTS` recordings are
    enrolments, and at most `TESTS` of the following ones are `others`.

    files : (n,) recordings
    people : (n,) person who speaks in each recording
    phrases : (n,) phrase of each recording; "" if it is unknown
    """
    recordings: dict[str, dict[str, list[Recording]]] = {}
    for file, person, phrase in zip(files, people, phrases, strict=True):
        recordings.setdefault(person, {}).setdefault(phrase, []).append(file)
    owners = []
    for person, by_phrase in recordings.items():
        # recordings without a phrase differ in their words
        phrase = max(by_phrase, key=lambda name: (bool(name), len(by_phrase[name])))
        chosen = by_phrase[phrase]
        if len(chosen) > ENROLMENTS:
            tests = chosen[ENROLMENTS : ENROLMENTS + TESTS]
            owners.append(Owner(person, phrase, chosen[:ENROLMENTS], tests))
    return owners


def list_owners(
    source: PathLike, pattern: str | None = None, most: int | None = None
) -> list[Owner]:
    """List recordings, labelled as for `mvplda setup`, and return the people with enough of them.

    `owners_of` states how many recordings a person needs.

    Parameters
    ----------
    source : folder, list or table of recordings, see `list_recordings`
    pattern : pattern of the labels in names of files, see `label_recordings`; None: labels of `source`
    most : maximum number of people; None: all

    Raises
    ------
    DataError
        Nobody has enough recordings.
    """
    listed = list_recordings([source])
    if pattern is not None or "speaker" not in listed.labels:
        listed, _ = label_recordings(listed, pattern)
    people = listed.labels["speaker"]
    owners = owners_of(listed.files, people, listed.labels.get("phrase", [""] * len(people)))
    if not owners:
        raise DataError(
            f"nobody in {source} has {ENROLMENTS + 1} recordings of one phrase; attacks need {ENROLMENTS} to enrol and "
            "another one: record more, or check the labels (--pattern)"
        )
    return owners[:most]


def attack_owner(
    owner: Owner,
    decide: Decide,
    attacks: Iterable[Attack],
    rng: np.random.Generator,
    language: str | None = None,
) -> list[Outcome]:
    """Verify the other recordings of an owner, then make each attack from two of the recordings.

    Each attack is made from the first enrolled recording and from the last other recording. The
    enrolled recording is also replayed unchanged.

    Parameters
    ----------
    owner : person with recordings
    decide : function that decides about each sound independently of earlier sounds
    attacks : attacks to make; an attack that needs a missing program or package is left out
    rng : generator of the attacks' random choices
    language : language of the phrase for an attack by text-to-speech; None: no such attack

    Returns
    -------
    one outcome per verification and per attack
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
    """Verify and attack all owners, and summarise the outcomes.

    Parameters
    ----------
    owners : people with recordings
    decide : function that decides about each sound independently of earlier sounds
    language : language of the phrases for an attack by text-to-speech; None: no such attack
    attacks : {name: attack}; an attack that needs a missing program or package is left out
    seed : seed of the attacks' random choices
    progress : write lines of progress to standard error

    Returns
    -------
    one row per attack and origin, see `summary`
    """
    bar = Progress("people attacked", len(owners))
    outcomes = []
    for number, owner in enumerate(owners):
        rng = np.random.default_rng([seed, number])
        outcomes += attack_owner(owner, decide, attacks.values(), rng, language)
        if progress:
            bar.step(number + 1)
    return summary(outcomes)


def decide_by(voices: VoiceModel, owners: Sequence[Owner]) -> Decide:
    """Return a function that decides about a sound as `mvplda verify` does with the claimed person's enrolments.

    Parameters
    ----------
    voices : model
    owners : people who can be claimed; the vectors of their enrolments are extracted at once
    """
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
    """Proportion of attempts with some outcome, and its 95 % confidence interval.

    estimate : number of attempts with the outcome, divided by the number of attempts
    low, high : limits of the interval, from 0 to 1
    """

    estimate: float
    low: float
    high: float

    def text(self) -> str:
        """Return the share and its interval in percent, such as "2.5 (0.1 to 13.2)"."""
        numbers = (f"{100 * value:.1f}" for value in self)
        return "{} ({} to {})".format(*numbers)


@dataclass(frozen=True)
class AttackRow:
    """Outcomes of one attack on all people, or of the verifications of all owners.

    IAPAR, APCER and BPCER are error rates of ISO/IEC 30107-3.

    kind, attack, origin : as in `Outcome`
    attempts : number of attempts
    people : number of people who are attacked or verified
    accepted : proportion of attempts that the log-in accepts; for an attack, the IAPAR
    suspected : proportion of attempts with the reason "suspected_replay"; for owners, the BPCER.
        For an attack, 1 minus this proportion is the APCER
    inconclusive : proportion of attempts with the verdict inconclusive
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
    """Summarise outcomes in one row per kind, attack and origin, in the order in which these first occur."""
    groups: dict[tuple[str, str, str], list[Outcome]] = {}
    for outcome in outcomes:
        key = (outcome.kind, outcome.attack, outcome.origin)
        groups.setdefault(key, []).append(outcome)
    return [
        AttackRow(
            *key,
            attempts=len(group),
            people=len({outcome.person for outcome in group}),
            accepted=share_of([outcome.verdict == "accept" for outcome in group]),
            suspected=share_of([outcome.reason == "suspected_replay" for outcome in group]),
            inconclusive=float(np.mean([outcome.verdict == "inconclusive" for outcome in group])),
        )
        for key, group in groups.items()
    ]


def share_of(flags: Sequence[bool]) -> Share:
    """Return the proportion of true values with its 95 % interval by Clopper and Pearson.

    flags : at least one truth value
    """
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
    """Return the cells of a table as texts: one row per row of `summary`, columns as in `TABLE_HEAD`.

    The last column has the APCER of an attack. In the row of the owners it has their BPCER, the
    percentage of owners who are suspected of replaying a copy.
    """
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
    """Return the rows of `summary` as a table of aligned text with a line of column names."""
    cells = [TABLE_HEAD, *table_rows(rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(TABLE_HEAD))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        for line in cells
    ]
    return "\n".join(line.rstrip() for line in lines)


def missing_programs(attacks: Iterable[Attack]) -> list[str]:
    """Return one sentence per attack that needs a program or package that is not installed.

    The sentence names the attack and what it needs.
    """
    return [
        f"Left out: {attack.name}, which needs {', '.join(attack.missing())}."
        for attack in attacks
        if attack.missing()
    ]
