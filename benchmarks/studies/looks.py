"""Do several looks at a stream raise the chance of impostors? Pass-phrases of five corpora, the default model.

    python -m benchmarks.studies.looks ../shared/data

Every test is a recording that arrives as a stream. It is compared with profiles after every half second of speech, as
`mvplda listen` and the service do it, and as a whole at its end. The rules of deciding before the end are compared on
the same trials. The people are among those that the model was fitted or calibrated to: the differences between rules
count, not the levels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.report import study_command
from mvplda._typing import Array, BoolArray
from mvplda.bundle import Bundle
from mvplda.decisions import Decision, decide_each
from mvplda.paper.provenance import DATA
from mvplda.scoring.profiles import Profiles
from mvplda.scoring.question import Question
from mvplda.voice.audio.decode import Sound
from mvplda.voice.domain.posterior import SESSION_VIEW
from mvplda.voice.stream import CONFIRMATIONS, LookSchedule
from mvplda.voice.verification import VoiceModel
from tools.default_model.recordings import (
    DOMAINS,
    RATE,
    Recording,
    corpus_listing,
    recordings_of_person,
)

CORPORA = {"cvau": 1, "arabic": 1, "dspspeech": 1, "wuw": 2, "audiomnist": 4}
"""Every n-th person of each corpus."""
ENROLLED, TESTED = 3, 2
"""Recordings of a phrase that are enrolled, and that are tests; of a caller one call each."""
BLOCK = RATE // 10
FARS = (0.01, 0.005, 0.001)
"""Offered shares of impostors; the last is the strictest."""
KINDS = ("TC", "TW", "IC", "IW")


class Stream(NamedTuple):
    """Vectors of one test at its looks, the last of them at its end.

    seconds : duration of the stream at each look
    """

    speaker: str
    phrase: str
    vectors: Array
    seconds: list[float]


@dataclass(frozen=True)
class Rule:
    """When a stream is decided before its end.

    accepts_at : share of impostors of the point that looks accept at; None: that of the end; 0: they do not accept
    rejects : whether looks reject the voice
    confirmations : looks in a row that must agree
    """

    name: str
    accepts_at: float | None = None
    rejects: bool = True
    confirmations: int = CONFIRMATIONS


RULES = (
    Rule("at the end only", 0.0, rejects=False),
    Rule("one look, same threshold", confirmations=1),
    Rule("two looks, same threshold"),
    Rule("two looks, accept at 0.1 %", 0.001),
    Rule("two looks, reject only", 0.0),
)


class Looks(NamedTuple):
    """Decisions of one trial: per look and offered share, whether it is accepted; whether the voice is rejected."""

    kind: str
    accepts: BoolArray
    rejects: BoolArray
    seconds: list[float]


def streams_of(
    voices: VoiceModel, recordings: Sequence[Recording], speaker: str
) -> Iterator[Stream]:
    """Yield the tests of one person."""
    for recording in recordings:
        vectors, seconds = [], []
        schedule = LookSchedule(RATE, voices.extractor.rate)
        for start in range(0, len(recording.samples), BLOCK):
            if schedule.append(recording.samples[start : start + BLOCK]) and schedule.is_due():
                vectors.append(vector_of(voices, schedule.samples()))
                seconds.append(schedule.seconds)
        vectors.append(vector_of(voices, recording.samples))
        seconds.append(schedule.seconds)
        yield Stream(speaker, recording.phrase, np.stack(vectors), seconds)


def vector_of(voices: VoiceModel, samples: Sound) -> Array:
    return np.asarray(voices.extractor.utterance(samples, RATE).vector, dtype=np.float64)


def corpus_material(
    voices: VoiceModel, name: str, root: Path
) -> tuple[Array, list[tuple[str, str]], list[Stream]]:
    """Return enrolled vectors, their (speaker, phrase), and the tests of a corpus."""
    listing = corpus_listing(name, root)
    people = np.unique(listing.fields["speaker"])[:: CORPORA[name]]
    domain = DOMAINS[name][-1]
    enrolled, labels, tests = [], [], []
    for person in people:
        rows = np.flatnonzero(listing.fields["speaker"] == person)
        by_phrase: dict[str, list[Recording]] = {}
        for recording in recordings_of_person(name, listing.take(rows)):
            if recording.domain == domain:
                by_phrase.setdefault(recording.phrase, []).append(recording)
        for phrase, recordings in by_phrase.items():
            count = min(ENROLLED, max(1, len(recordings) - 1))
            for recording in recordings[:count]:
                enrolled.append(vector_of(voices, recording.samples))
                labels.append((str(person), phrase))
            # of a single recording, the person is an impostor only
            others = recordings[count:] or recordings[:1]
            tests += streams_of(voices, others[:TESTED], str(person))
            if len(recordings) == 1:
                tests[-1] = tests[-1]._replace(speaker=f"{person} once")
    return np.stack(enrolled), labels, tests


def looks_of(
    bundle: Bundle, profile: Profiles, tested: Profiles, question: Question | None
) -> list[list[Decision]]:
    """Return the decisions of all looks about one profile, by offered share."""
    answer = bundle.answer(profile, tested, question)
    found = []
    for far in FARS:
        point = bundle.point(question, profile, far=far)
        found.append(decide_each(answer, [point] * answer.llr.size))
    return found


def trials(voices: VoiceModel, name: str, root: Path) -> Iterator[tuple[str, str, list[Looks]]]:
    """Yield (deployment, question, trials) of a corpus."""
    X, labels, tests = corpus_material(voices, name, root)
    model = voices.bundle
    has_sessions = SESSION_VIEW in model.pair_terms().base
    vectors = np.concatenate([test.vectors for test in tests])
    ids = [str(i) for i in range(len(vectors))]
    tested = model.enrol(vectors, ids, {SESSION_VIEW: ids} if has_sessions else None)
    ends = np.cumsum([len(test.vectors) for test in tests])
    starts = ends - [len(test.vectors) for test in tests]
    speakers = np.array([speaker for speaker, _ in labels])
    phrases = np.array([phrase for _, phrase in labels])

    def sorted_looks(
        decisions: list[list[Decision]], speaker: str, owned: set[str], no_phrase: bool
    ) -> Iterator[Looks]:
        for start, end, test in zip(starts, ends, tests, strict=True):
            if test.speaker == f"{speaker} once":
                continue
            same_words = no_phrase or test.phrase in owned
            kind = ("T" if test.speaker == speaker else "I") + ("C" if same_words else "W")
            accepts = np.array(
                [[d.answer == "accept" for d in row[start:end]] for row in decisions]
            )
            rejects = np.array(
                [d.views.get("speaker") == "reject" for d in decisions[0][start:end]]
            )
            yield Looks(kind, accepts, rejects, test.seconds)

    for question in (None, Question("speaker")):
        text = "speaker and phrase" if question is None else "speaker"
        no_phrase = question is not None
        alone: list[Looks] = []
        for speaker, phrase in sorted(set(labels)):
            rows = (speakers == speaker) & (phrases == phrase)
            names = [phrase] * int(rows.sum())
            sessions = {SESSION_VIEW: names} if has_sessions else None
            profile = model.enrol(X[rows], names, sessions)
            decisions = looks_of(model.paired(profile), profile, tested, question)
            alone += sorted_looks(decisions, speaker, {phrase}, no_phrase)
        yield "alone", text, alone
        everybody = model.enrol(X, speakers, {"phrase": phrases})
        deployed = model.deployed(everybody)
        together: list[Looks] = []
        for speaker in np.unique(speakers):
            rows = speakers == speaker
            profile = model.enrol(X[rows], speakers[rows], {"phrase": phrases[rows]})
            decisions = looks_of(deployed, profile, tested, question)
            together += sorted_looks(decisions, speaker, set(phrases[rows]), no_phrase)
        yield "deployed", text, together


def outcome(rule: Rule, looks: Looks, far: float) -> tuple[bool, float]:
    """Return whether a trial is accepted, and the seconds after which it is decided."""
    at_end = looks.accepts[FARS.index(far)]
    accepts = np.zeros(len(at_end), dtype=bool)
    if rule.accepts_at != 0:
        accepts = at_end if rule.accepts_at is None else looks.accepts[FARS.index(rule.accepts_at)]
    for last in range(rule.confirmations - 1, len(at_end) - 1):
        looked = slice(last + 1 - rule.confirmations, last + 1)
        if accepts[looked].all():
            return bool(at_end[last]), looks.seconds[last]
        if rule.rejects and looks.rejects[looked].all():
            return False, looks.seconds[last]
    return bool(at_end[-1]), looks.seconds[-1]


def study(data: Path) -> dict[str, Any]:
    """Shares of trials that are accepted, by corpus, deployment, question, offered share and rule."""
    voices = VoiceModel.load()
    runs = []
    for name in CORPORA:
        for deployment, question, found in trials(voices, name, data / name):
            for far in FARS[:: len(FARS) - 1]:
                for rule in RULES:
                    if rule.accepts_at == far:
                        continue
                    runs.append(
                        row(rule, found, far)
                        | {
                            "corpus": name,
                            "deployment": deployment,
                            "question": question,
                            "far": far,
                            "rule": rule.name,
                        }
                    )
            print(name, deployment, question, len(found), flush=True)
    return {"runs": runs}


def row(rule: Rule, found: list[Looks], far: float) -> dict[str, Any]:
    outcomes: dict[str, list[tuple[bool, float]]] = {}
    for looks in found:
        outcomes.setdefault(looks.kind, []).append(outcome(rule, looks, far))
    return {
        "looks": float(np.mean([len(looks.seconds) for looks in found])),
        "trials": {kind: len(outcomes[kind]) for kind in KINDS if kind in outcomes},
        "accepted": {
            kind: int(sum(accepted for accepted, _ in outcomes[kind]))
            for kind in KINDS
            if kind in outcomes
        },
        "owners' seconds": float(np.mean([seconds for _, seconds in outcomes["TC"]])),
        "impostors' seconds": float(np.mean([seconds for _, seconds in outcomes["IC"]])),
    }


def table(found: dict[str, Any]) -> str:
    """All corpora together: shares that are accepted in %, and the mean seconds until a stream is decided."""
    lines = [
        "| compared | far | rule | owners | owners, other words | impostors, right words | impostors, other words "
        "| owners decided after | impostors |",
        "|:---|---:|:---|---:|---:|---:|---:|---:|---:|",
    ]
    keys = ("deployment", "question", "far", "rule")
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for run in found["runs"]:
        groups.setdefault(tuple(run[key] for key in keys), []).append(run)
    for (deployment, question, far, rule), runs in groups.items():
        cells = []
        for kind in KINDS:
            count = sum(run["trials"].get(kind, 0) for run in runs)
            accepted = sum(run["accepted"].get(kind, 0) for run in runs)
            cells.append(f"{100 * accepted / count:.2f}" if count else "")
        for name, kind in (("owners' seconds", "TC"), ("impostors' seconds", "IC")):
            weights = [run["trials"][kind] for run in runs]
            cells.append(f"{np.average([run[name] for run in runs], weights=weights):.2f} s")
        head = f"| {question}, {deployment} | {100 * far:g} % | {rule} |"
        lines.append(f"{head} {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    study_command("looks", __doc__, study, table, inputs={"data": DATA})
