"""From recordings to a model that is ready for use, `setup`; and to the people who speak in them, `find_people`."""

from __future__ import annotations

import json
import re
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from . import training
from ._progress import Progress
from ._typing import Array, FloatArray, IntArray, Json, Names, PathLike, Setting
from .bundle import Bundle
from .calibration import question_key
from .decisions import LOWEST_THRESHOLD, Decision, OperatingPoint, without_doubt
from .exceptions import DataError, LabelError, MvpldaWarning, ParameterError
from .extractors.extractor import Extracted, load_extractor
from .extractors.recordings import (
    TABLES,
    Recordings,
    list_recordings,
    read_names,
    usual_pattern,
)
from .io.files import OnDisk, fail, is_table, lines_of
from .io.vectors import VectorSet
from .kinds import KIND_WORDS, NONTARGET
from .labels import as_array, is_missing
from .scoring.question import Question
from .voices import (
    MARK,
    MODEL_FILE,
    REPORT_FILE,
    ProfileBook,
    Recorded,
    VoiceModel,
    default_bundle,
    default_extractor,
    file_in,
    leave_one_out,
    sitting_labels,
    speaker_question,
)

ENOUGH_PEOPLE = 10
"""With fewer people than this no model of them is better than the extractor's cosine."""

ADVICE = "Enrol people on two days if you can: it saves half of the errors or more, and more takes of one day do not."
"""Measured on C-VAU: results/days."""

UNKNOWN = 30
"""An interval of more people of 100 than this is said to be one."""


@dataclass
class Setup:
    """What `setup` made: a model for recordings, and what it tells of it.

    bundle : the model
    report : one page of plain English
    vectors, people, phrases : of everybody, whose each is and what is said in it, for profiles
    voices : the model with its extractor; None where only vectors were given
    """

    bundle: Bundle
    report: str
    vectors: VectorSet
    people: Sequence[str]
    phrases: Sequence[str]
    voices: VoiceModel | None = None

    def verify(self, one: Recorded, other: Recorded, **options: Setting) -> Decision:
        """As `VoiceModel.verify`."""
        if self.voices is None:
            raise ParameterError("this model was made of vectors: recordings need their extractor")
        return self.voices.verify(one, other, **options)

    def save(self, path: PathLike) -> None:
        """Write a folder: the model, everybody's profile, and the report."""
        folder = Path(path)
        folder.mkdir(parents=True, exist_ok=True)
        self.bundle.save(folder / MODEL_FILE)
        columns = {"profile": self.people, "phrase": self.phrases}
        ProfileBook(folder).write(self.vectors, columns)
        (folder / REPORT_FILE).write_text(self.report + "\n", encoding="utf-8")


def setup(
    source: PathLike,
    *,
    pattern: str | None = None,
    extractors: Sequence[str] = (),
    far: float = 0.01,
    enrolment: int = 1,
    progress: bool = False,
) -> Setup:
    """A model of your own people, with its thresholds: from a folder of recordings to a file ready for use.

    Parameters
    ----------
    source : folder of recordings, one folder or name a person; or a table of them (.csv, .tsv) with columns file and
        speaker
    pattern : how names are to be read, such as ``{speaker}/{phrase}_*``. None: by the table, else the outermost
        folders are speakers, those in them phrases, and deeper ones are of no account
    extractors : names or files; none: those of the default model
    far : share of impostors of the worst kind that may pass
    enrolment : recordings per profile, as there will be in use
    progress : write a line for every step to standard error
    """
    extractor = load_extractor(list(extractors)) if extractors else default_extractor()
    named, notes = _read_labels(source, pattern)
    if progress:
        Progress("extracting vectors of recordings", len(named.ids)).step(0)
    extracted = extractor.extract(named.clips, on_error="skip", progress=progress)
    usable = [place for place, quality in enumerate(extracted.qualities) if quality.usable]
    if not usable:
        raise DataError(f"no recording under {source} can be used: see mvplda quality")
    rows = [extracted.rows[place] for place in usable]
    result = setup_vectors(
        extracted.X[usable],
        {view: np.array(column)[rows] for view, column in named.labels.items()},
        marks=[extracted.qualities[place].digest[:12] for place in usable],
        files=[named.ids[row] for row in rows],
        name=extractor.name,
        blocks={part: stop - start for part, (start, stop) in extractor.blocks.items()},
        notes=[*notes, *_left_out(named.ids, extracted)],
        far=far,
        enrolment=enrolment,
        progress=progress,
    )
    result.voices = VoiceModel(result.bundle, extractor)
    return result


def has_table(path: PathLike, *columns: str) -> bool:
    """Whether this is a table, or a folder with an index.csv, that has these columns."""
    file = file_in(path, "index.csv")
    if file.suffix.lower() not in TABLES or not file.is_file():
        return False
    return is_table(OnDisk(file), *([name] for name in columns))


def _read_labels(source: PathLike, pattern: str | None) -> tuple[Recordings, list[str]]:
    """Recordings whose speakers are known, and how these were read: by a pattern, a table, or folders."""
    listed = list_recordings([source])
    if pattern is None and has_table(source, "file", "speaker"):
        columns = " and ".join(listed.labels)
        return listed, [f"The table has columns of {columns}: {len(listed.ids)} recordings."]
    pattern = pattern or usual_pattern(listed.ids)
    try:
        named, _ = read_names(listed, pattern)
    except re.error:
        raise ParameterError(
            f"a field of the pattern {pattern!r} is no name: expected letters, as in {{speaker}}/{{phrase}}_*"
        ) from None
    notes = [f"Names were read as {pattern}: {len(named.ids)} recordings."]
    unread = sorted(set(listed.ids) - set(named.ids))
    if unread:
        notes.append(f"{len(unread)} files do not fit and were left out, such as {unread[0]}.")
    return named, notes


SHOWN = 10
"""Lines about recordings that cannot be used."""


def skipped_lines(names: Sequence[str], extracted: Extracted) -> list[str]:
    """The name of every recording that has no vector, and why."""
    without = sorted(set(range(len(names))) - set(extracted.rows))
    reasons = [" ".join(reason.split()) for _, reason in extracted.skipped]
    return [f"{names[row]}: {reason}" for row, reason in zip(without, reasons, strict=True)]


def _left_out(names: Sequence[str], extracted: Extracted) -> list[str]:
    """Which recordings cannot be used and why, and how many have each fault."""
    lines = [f"Left out: {line}" for line in skipped_lines(names, extracted)]
    faults: Counter[str] = Counter()
    for row, quality in zip(extracted.rows, extracted.qualities, strict=True):
        faults.update(quality.warnings)
        if not quality.usable:
            lines.append(f"Left out: {names[row]}: no voice that could be used.")
    counts = ", ".join(f"{n} {fault}" for fault, n in faults.items())
    quality_lines = [f"Quality: {counts}."] if counts else []
    if len(lines) > SHOWN:
        lines[SHOWN:] = [f"Left out: {len(lines) - SHOWN} more; mvplda quality shows them."]
    return [f"{extracted.acquisition().capitalize()}.", *lines, *quality_lines]


def setup_vectors(
    X: ArrayLike,
    labels: Mapping[str, ArrayLike],
    *,
    marks: Sequence[str] = (),
    files: Sequence[str] = (),
    name: str | None = None,
    blocks: Mapping[str, int] | None = None,
    far: float = 0.01,
    enrolment: int = 1,
    notes: Sequence[str] = (),
    progress: bool = False,
) -> Setup:
    """Set up a model from vectors and labels, as `setup` does from recordings.

    Copies are left out before anything is trained or measured: of vectors of one person with equal marks the first is
    used; of vectors of several people with equal marks none is.

    marks : one text per vector that equals that of its copies; none: there are no copies
    files : name of the recording of every vector, for the report; none: the marks
    name, blocks : of what made the vectors, and the columns of each of several extractors
    """
    if not 0 < far < 1:
        raise ParameterError(f"a share of false acceptances lies between 0 and 1; got {far}")
    vectors = np.asarray(X)
    columns = {view: np.asarray(column) for view, column in labels.items()}
    if "speaker" not in columns or is_missing(columns["speaker"]).any():
        raise LabelError("name the speaker of every vector: profiles are made of them")
    used, copies = _without_copies(columns["speaker"], marks, files)
    vectors = vectors[used]
    columns = {view: column[used] for view, column in columns.items()}
    names, counts = np.unique(columns["speaker"], return_counts=True)
    if len(names) < 2:
        raise DataError(
            f"there is one person, {str(names[0])!r}: a threshold needs others to tell from. Give recordings of at "
            f"least 2 people, better 20 (8 to measure errors, {ENOUGH_PEOPLE} to train a model), a folder per person; "
            "to compare two recordings, mvplda verify needs no setup"
        )
    told = [
        *notes,
        *copies,
        f"{len(names)} people, {counts.min()} to {counts.max()} recordings each.",
    ]
    phrases = training.count_named(columns["phrase"]) if "phrase" in columns else 0
    if phrases < 2:
        columns.pop("phrase", None)
        told.append("No two phrases are named: the model is about voices only.")
        told.append("Where people say what they like, ask about the voice: --same speaker.")
    elif len(names) >= ENOUGH_PEOPLE:
        told.append(f"{phrases} phrases: the model is about voices and words.")
    blocks = blocks or training.blocks_of(name, vectors.shape[1])
    options: Json = {
        "enrolment": enrolment,
        "fars": (far, *(one for one in training.FARS if one != far)),
        "progress": progress,
    }
    shipped = default_bundle(name)
    default = None
    if shipped is not None:
        default = training.deploy(shipped, vectors, columns, **options)
    options["extractor"] = name
    if len(names) >= ENOUGH_PEOPLE:
        expert = None if shipped is None else shipped.scorer
        bundle = training.train(vectors, columns, blocks=blocks, default=expert, **options)
        if default is not None:
            cosine = training.train(vectors, columns, model="cosine", blocks=blocks, **options)
            bundle = _best(default, bundle, cosine, told)
    else:
        few = f"A model of {len(names)} people is not trained ({ENOUGH_PEOPLE} are the least)"
        if default is not None:
            bundle = default
            told.append(f"{few}: the default model is used, adapted to their recordings.")
        else:
            told.append(f"{few}: the extractor's cosine is used, which is about voices only.")
            voices = {"speaker": columns["speaker"]}
            bundle = training.train(vectors, voices, model="cosine", folds=2, **options)
    people = columns["speaker"].astype(str)
    told += _prefer(bundle, far)
    report = "\n".join([*told, *report_lines(bundle, far), ADVICE])
    bundle.card = {**dict(bundle.card or {}), "report": report}
    own_marks = [marks[row] for row in used] if len(marks) else used.tolist()
    ids = [f"{who}{MARK}{mark}" for who, mark in zip(people, own_marks, strict=True)]
    book = VectorSet(np.array(ids), vectors, name)
    # one phrase that all say makes no view to train, and is known by its name where profiles are verified
    said = [""] * len(people)
    if "phrase" in labels:
        spoken = as_array(labels["phrase"])[used]
        said = np.where(is_missing(spoken), "", spoken.astype(str)).tolist()
    return Setup(bundle, report, book, people.tolist(), said)


def _without_copies(
    speakers: Names, marks: Sequence[str], files: Sequence[str]
) -> tuple[IntArray, list[str]]:
    """Rows without copies of others, and lines of the report about what is left out."""
    if not len(marks):
        return np.arange(len(speakers)), []
    names = files or marks
    rows_of: dict[str, list[int]] = {}
    for row, mark in enumerate(marks):
        rows_of.setdefault(mark, []).append(row)
    used = []
    lines = []
    copies = 0
    for rows in rows_of.values():
        # one label is wrong, and nothing says which
        if len({str(speakers[row]) for row in rows}) > 1:
            places = " and ".join(f"{names[row]} ({speakers[row]})" for row in rows)
            lines.append(f"Left out: one recording of several people: {places}.")
            continue
        used.append(rows[0])
        copies += len(rows) - 1
    if len(lines) > SHOWN:
        lines[SHOWN:] = [f"Left out: {len(lines) - SHOWN} more recordings of several people."]
    if copies:
        lines.append(f"{copies} recordings are copies of others and were left out.")
    if not used:
        raise DataError(
            f"every recording stands under several people. {lines[0]} Give each person recordings of their own"
        )
    return np.sort(np.asarray(used, dtype=np.int64)), lines


def _prefer(bundle: Bundle, far: float) -> list[str]:
    """Let the point that is wanted be the default, else the strictest that can be promised, which is said."""
    chosen = {}
    loosest = 0.0
    for key, points in (bundle.points or {}).items():
        strict = sorted(points, key=lambda point: point.far or 0.0)
        enough = [point for point in strict if (point.far or 0.0) <= far]
        first = [*strict[:1], *enough][-1:]
        chosen[key] = first + [point for point in points if point not in first]
        loosest = max(loosest, *(point.far or 0.0 for point in first), 0.0)
    bundle.points = chosen
    if loosest <= far:
        return []
    return [
        f"{100 * far:g} % of false acceptances cannot be promised: thresholds are of {100 * loosest:g} %."
    ]


def _best(default: Bundle, committee: Bundle, cosine: Bundle, told: list[str]) -> Bundle:
    """Of models that were measured in the same trials, the one with fewer errors; cosine is the floor."""
    titles = {
        "the default model": default,
        "a committee trained on your people": committee,
        "cosine": cosine,
    }
    used = ""
    least = np.full(2, np.inf)
    lines = []
    for title, bundle in titles.items():
        held = (bundle.card or {}).get("held_out")
        if held is None:
            told.append("Errors cannot be compared: the default model is used.")
            return default
        first = next(iter(held["errors"].values()))
        errors = np.array([max(first["eer"].values()), first["cllr"]])
        lines.append("  {}: EER of the worst kind {:.2%}, Cllr {:.3f}".format(title, *errors))
        # what is calibrated by the very trials has a smaller Cllr anyway: that alone is not enough
        if errors[0] < least[0] and errors[1] < least[1]:
            used = title
            least = errors
    told += [f"Compared on people who were held out in turn; used is {used}:", *lines]
    return titles[used]


def report_lines(bundle: Bundle, far: float) -> list[str]:
    """What held-out people showed, in plain English."""
    lines = []
    warnings = []
    # of a model that knows phrases by their names, what holds where they are enrolled so
    used = [
        question_key(bundle.informed(Question(same)), bundle.views)
        for same in training.questions_about(bundle.views)
    ]
    for key, points in (bundle.points or {}).items():
        if bundle.fitted_scorer.has_domain and key not in used:
            continue
        point = next((one for one in points if one.measured), None)
        if point is None or point.measured is None or point.far is None:
            continue
        lines.append(point_sentence(key, point, far))
        warnings.append(point.measured.get("warning"))
    if lines:
        return [*lines, *(f"Mind: {one}." for one in dict.fromkeys(warnings) if one)]
    if "held_out" in (bundle.card or {}):
        return [
            f"No threshold keeps false acceptances under {100 * far:g} %: among these people some recordings that "
            "should be rejected score as high as any. Use longer phrases or other extractors, or record more."
        ]
    return [
        "Errors could not be measured: that takes 8 people or more, with two recordings of the same each."
    ]


def point_sentence(key: str, point: OperatingPoint, far: float) -> str:
    """What was measured at a threshold, in plain English.

    key : of the question, see `mvplda.calibration.question_key`
    far : share of false acceptances that was asked for
    """
    measured = dict(point.measured or {})
    rates = measured["far"]
    worst = max(rates, key=lambda kind: rates[kind][0])
    impostors = "impostors"
    if worst != NONTARGET:
        impostors += f" of the worst kind ({KIND_WORDS.get(worst, worst)})"
    promise = point.far or 0.0
    purpose = f"for {100 * promise:g} % false acceptances"
    if promise <= far and point.threshold <= LOWEST_THRESHOLD:
        # no lower threshold is in use, so that fewer may be accepted than were asked for
        purpose = (
            f"the lowest threshold in use, where false acceptances are already {100 * rates[worst][0]:.2g} % "
            f"({100 * far:g} % was asked for)"
        )
    source = f"{point.people} other people, NOT on yours: {point.basis}"
    if point.basis == training.HELD_OUT:
        source = f"{point.people} of your people: {point.basis}"
    return (
        f"Same {key.replace('+', ' and ').replace('|', ', ')}? Accept from the LLR {point.threshold:.2f} on, "
        f"{purpose}: of 100 owners {_of_100(measured['frr'])} not accepted; "
        f"of 100 {impostors} {_of_100(rates[worst])} accepted "
        f"(measured on {source})."
    )


def _of_100(interval: Sequence[float]) -> str:
    """A rate and its 95 % interval, [estimate, lower end, upper end], in whole people of 100."""
    rate, low, high = (round(100 * end) for end in interval)
    if high - low > UNKNOWN:
        return f"{rate} were (with so few people it may be any number from {low} to {high})"
    if low == high:
        return f"about {rate} are"
    return f"about {rate} ({low} to {high}) are"


# People across recordings: which turns are of the same person, by the exact LLRs of groups of turns.
#
# Groups are merged, the likeliest pairs first, by the LLR of all turns of one against all of the other, with their
# numbers and, where the model has the view ``recording``, with their recordings. What overlaps in time is never one
# person.


class Turn(NamedTuple):
    """A stretch of a recording in which one person speaks, in seconds.

    name : speaker within the recording, as a diariser has it; turns of one name are one person's. None or empty:
        unnamed
    """

    recording: str
    start: float
    end: float
    name: str | None = None

    def overlaps(self, other: Turn) -> bool:
        """Whether two people speak at the same time."""
        if self.recording != other.recording:
            return False
        if self.name and self.name == other.name:
            return False
        return self.start < other.end and other.start < self.end


@dataclass(frozen=True)
class People:
    """Whose every turn is.

    person : (n,) number of every turn's person; the one with the most turns has 0
    fits : (n,) LLR of a turn against the others of its person; NaN where there are none
    ask : (LLR, person, person) of those who may be one person and may be two, the likeliest first
    """

    person: IntArray
    fits: Array
    ask: list[tuple[float, int, int]]


NO_TURNS = (
    *("SEGMENT", "NOSCORE", "NO_RT_METADATA", "LEXEME", "NON-LEX", "NON-SPEECH"),
    *("FILLER", "EDIT", "IP", "SU", "CB", "A/P"),
)
"""Types of lines of RTTM, besides SPEAKER, that have times."""

NO_NAME = "<NA>"
"""Field of RTTM without a value: a voice activity detector names no speakers."""


def read_turns(path: PathLike) -> list[Turn]:
    """Turns of an RTTM file (of a diariser), or of a ``segments`` file of Kaldi.

    What an RTTM file holds besides turns, such as words, is passed over, and a warning counts it.
    """
    turns = []
    others = 0
    for number, line in enumerate(lines_of(OnDisk(path)), 1):
        fields = line.decode().split()
        # what RTTM tells of speakers, and comments, are no turns
        if not fields or fields[0].startswith((";;", "SPKR-INFO")):
            continue
        if fields[0] in NO_TURNS:
            others += 1
            continue
        try:
            if fields[0] == "SPEAKER":
                start = float(fields[3])
                name = None if fields[7] == NO_NAME else fields[7]
                turn = Turn(fields[1], start, start + float(fields[4]), name)
            else:
                turn = Turn(fields[1], float(fields[2]), float(fields[3]))
        except (IndexError, ValueError):
            fail(path, "expected SPEAKER lines of RTTM, or: utterance recording start end", number)
        if not 0 <= turn.start < turn.end < np.inf:
            fail(path, f"a turn from {turn.start:g} to {turn.end:g} s is none", number)
        turns.append(turn)
    if others:
        warnings.warn(
            MvpldaWarning(f"{path}: {others} line(s) of RTTM that are not SPEAKER are passed over"),
            stacklevel=2,
        )
    return turns


def read_named(path: PathLike) -> list[Turn]:
    """Turns of the people who were named on the page of `people_page`, which saves them; each has that name."""
    try:
        saved = json.loads(Path(path).read_text(encoding="utf-8"))
        turns = [Turn(**{**turn, "name": who}) for who, spoken in saved.items() for turn in spoken]
    except (ValueError, TypeError, AttributeError):
        fail(path, "expected {name: turns}, as the page of mvplda people saves it")
    if not turns:
        fail(
            path,
            "nobody is named in it: name people on the page of mvplda people, and save the names",
        )
    for one, other in combinations(turns, 2):
        if one.name == other.name and one._replace(name=None).overlaps(other):
            raise DataError(
                f"{path}: {one.name!r} speaks twice at {other.start:g} s of {one.recording}: two people have one name"
            )
    return turns


def _first_owners(turns: Sequence[Turn]) -> IntArray:
    """(n,) number of every turn's speaker within its recording; a turn without a name is a speaker of its own."""
    # a number is never equal to a name, whatever the name is
    keys = [(turn.recording, turn.name or i) for i, turn in enumerate(turns)]
    numbers: dict[tuple[str, int | str], int] = {}
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys])


def find_people(
    bundle: Bundle, X: FloatArray, turns: Sequence[Turn], **wanted: float | None
) -> People:
    """The people of some turns, of which X are the vectors.

    wanted : of the operating point, as in `Bundle.point`: how sure a merge has to be
    """
    if len(X) != len(turns) or not turns:
        raise DataError(
            f"there are {len(turns)} turns that can be used, and {len(X)} vectors: give one of each at least"
        )
    question = speaker_question(bundle)
    sittings = [turn.recording for turn in turns]
    labels = sitting_labels(bundle, sittings) or None
    overlap = np.array([[one.overlaps(other) for other in turns] for one in turns])
    owner = _first_owners(turns)
    bundle = bundle.deployed(bundle.enrol(X, owner, labels))
    doubt = bundle.doubt(question)
    point = bundle.point(question, **wanted)
    # with more groups there are more chances to be wrong
    limits = without_doubt(np.array([point.threshold, point.reject]), doubt)
    accept, reject = limits + np.log(max(int(owner.max()), 1))

    def compare(owner: IntArray, rows: IntArray) -> Array:
        """LLRs of some groups with all; minus infinity where turns overlap, and of a group with itself."""
        profiles = bundle.enrol(X, owner, labels)
        groups = np.arange(owner.max() + 1)
        every = profiles.take(profiles.number(groups))
        answer = bundle.answer(every.take(rows), every, question)
        llrs = without_doubt(np.asarray(answer.llr), doubt)
        members = np.equal.outer(groups, owner)
        llrs[members[rows] @ overlap @ members.T] = -np.inf
        llrs[np.equal.outer(rows, groups)] = -np.inf
        return llrs

    llrs = compare(owner, np.arange(owner.max() + 1))
    while True:
        groups = np.arange(len(llrs))
        best = llrs.argmax(axis=1)
        is_mutual = (groups < best) & (best[best] == groups)
        merged = np.flatnonzero(is_mutual & (llrs.max(axis=1) >= accept))
        if not len(merged):
            break
        for i in merged:
            owner[owner == best[i]] = i
        left, owner = np.unique(owner, return_inverse=True)
        llrs = llrs[np.ix_(left, left)]
        changed = np.flatnonzero(np.isin(left, merged))
        llrs[changed] = compare(owner, changed)
        llrs[:, changed] = llrs[changed].T
    order = np.argsort(-np.bincount(owner), kind="stable")
    person = np.argsort(order)[owner]
    left = np.triu(llrs[np.ix_(order, order)], 1)
    ask = [(float(left[i, j]), int(i), int(j)) for i, j in np.argwhere(left > reject)]
    fits = leave_one_out(bundle, X, person.tolist(), sittings)
    return People(person, fits, sorted(ask, reverse=True))


PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>People</title>
<style>body{{font-family:sans-serif;margin:2em}}td{{padding:.2em 1em .2em 0}}.odd{{color:#a00}}</style>
<h1>{count} people in {turns} turns</h1>
<p>Nothing is kept until you confirm it: listen, name those whom you know, and save the names. Turns in red do not fit
the others of their person.</p>{ask}<form onsubmit="return keep(this)">{people}<button>Save names</button></form>
<script>function keep(form){{const link=document.createElement("a");
const names={{}};for(const input of form.querySelectorAll("input")){{const name=input.value.trim();
if(name)names[name]=(names[name]||[]).concat(JSON.parse(input.dataset.turns))}}
link.href="data:application/json,"+encodeURIComponent(JSON.stringify(names));
link.download="names.json";link.click();return false}}</script></html>
"""


def people_page(people: People, turns: Sequence[Turn], sounds: Mapping[str, PathLike]) -> str:
    """A page on which somebody listens to the people, and confirms or names them.

    sounds : file of every recording
    """
    rows: dict[int, str] = {}
    spoken: dict[int, list[Json]] = {}
    for turn, person, fit in zip(turns, people.person.tolist(), people.fits.tolist(), strict=True):
        source = f"{escape(str(sounds[turn.recording]))}#t={turn.start:.2f},{turn.end:.2f}"
        odd = ' class="odd"' if fit < 0 else ""
        spoken.setdefault(person, []).append(turn._asdict())
        rows[person] = rows.get(person, "") + (
            f"<tr{odd}><td>{escape(turn.recording)}<td>{turn.start:.2f} to {turn.end:.2f} s<td>{fit:+.1f}"
            f'<td><audio controls preload="none" src="{source}"></audio></tr>'
        )
    listed = "".join(
        f'<h2>Person {person + 1} <input placeholder="name" data-turns="{escape(json.dumps(spoken[person]))}"></h2>'
        f"<table>{rows[person]}</table>"
        for person in sorted(rows)
    )
    asked = "".join(
        f"<li>Are person {i + 1} and person {j + 1} the same? (LLR {llr:+.1f})"
        for llr, i, j in people.ask
    )
    ask = f"<h2>Not decided</h2><ul>{asked}</ul>" if asked else ""
    return PAGE.format(count=len(rows), turns=len(turns), ask=ask, people=listed)
