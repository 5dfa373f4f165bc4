"""From recordings to a model that is ready for use, `setup`; and to the people who speak in them, `find_people`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from .. import training
from .._progress import Progress
from .._typing import IntArray, Json, Names, PathLike, Setting
from ..bundle import Bundle
from ..decisions import Decision
from ..exceptions import DataError, LabelError, ParameterError
from ..io.streams import OnDisk
from ..io.tables import is_table
from ..io.vectors import VectorSet
from ..labels import as_array, is_missing
from ..model_files import MODEL_FILE, REPORT_FILE, file_in_folder
from .audio.folders import (
    TABLE_SUFFIXES,
    Recordings,
    default_pattern,
    label_recordings,
    list_recordings,
)
from .default_model import default_bundle, default_extractor
from .extractors.extractor import ExtractedVectors, load_extractor
from .profile_file import DIGEST_SEPARATOR, ProfileBook
from .setup_report import (
    ENROLMENT_ADVICE,
    MAX_LISTED,
    MIN_TRAINING_PEOPLE,
    report_lines,
    skipped_lines,
)
from .verification import RecordingsLike, VoiceModel


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

    def verify(self, one: RecordingsLike, other: RecordingsLike, **options: Setting) -> Decision:
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
    extracted = extractor.extract(named.files, on_error="skip", progress=progress)
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
    file = file_in_folder(path, "index.csv")
    if file.suffix.lower() not in TABLE_SUFFIXES or not file.is_file():
        return False
    return is_table(OnDisk(file), *([name] for name in columns))


def _read_labels(source: PathLike, pattern: str | None) -> tuple[Recordings, list[str]]:
    """Recordings whose speakers are known, and how these were read: by a pattern, a table, or folders."""
    listed = list_recordings([source])
    if pattern is None and has_table(source, "file", "speaker"):
        columns = " and ".join(listed.labels)
        return listed, [f"The table has columns of {columns}: {len(listed.ids)} recordings."]
    pattern = pattern or default_pattern(listed.ids)
    try:
        named, _ = label_recordings(listed, pattern)
    except re.error:
        raise ParameterError(
            f"a field of the pattern {pattern!r} is no name: expected letters, as in {{speaker}}/{{phrase}}_*"
        ) from None
    notes = [f"Names were read as {pattern}: {len(named.ids)} recordings."]
    unread = sorted(set(listed.ids) - set(named.ids))
    if unread:
        notes.append(f"{len(unread)} files do not fit and were left out, such as {unread[0]}.")
    return named, notes


def _left_out(names: Sequence[str], extracted: ExtractedVectors) -> list[str]:
    """Which recordings cannot be used and why, and how many have each fault."""
    lines = [f"Left out: {line}" for line in skipped_lines(names, extracted)]
    faults: Counter[str] = Counter()
    for row, quality in zip(extracted.rows, extracted.qualities, strict=True):
        faults.update(quality.warnings)
        if not quality.usable:
            lines.append(f"Left out: {names[row]}: no voice that could be used.")
    counts = ", ".join(f"{n} {fault}" for fault, n in faults.items())
    quality_lines = [f"Quality: {counts}."] if counts else []
    if len(lines) > MAX_LISTED:
        lines[MAX_LISTED:] = [
            f"Left out: {len(lines) - MAX_LISTED} more; mvplda quality shows them."
        ]
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
            f"there is one person, {str(names[0])!r}, but a threshold needs at least two. Pass recordings of 20 "
            f"people or more (8 to measure errors, {MIN_TRAINING_PEOPLE} to train a model), one folder per person; to "
            "compare two recordings, use mvplda verify, which needs no setup"
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
    elif len(names) >= MIN_TRAINING_PEOPLE:
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
        default = training.deploy_on_speakers(shipped, vectors, columns, **options)
    options["extractor"] = name
    if len(names) >= MIN_TRAINING_PEOPLE:
        expert = None if shipped is None else shipped.scorer
        bundle = training.train(vectors, columns, blocks=blocks, default=expert, **options)
        if default is not None:
            cosine = training.train(vectors, columns, model="cosine", blocks=blocks, **options)
            bundle = _best(default, bundle, cosine, told)
    else:
        few = f"A model of {len(names)} people is not trained ({MIN_TRAINING_PEOPLE} are the least)"
        if default is not None:
            bundle = default
            told.append(f"{few}: the default model is used, adapted to their recordings.")
        else:
            told.append(f"{few}: the extractor's cosine is used, which is about voices only.")
            voices = {"speaker": columns["speaker"]}
            bundle = training.train(vectors, voices, model="cosine", folds=2, **options)
    people = columns["speaker"].astype(str)
    told += _prefer(bundle, far)
    report = "\n".join([*told, *report_lines(bundle, far), ENROLMENT_ADVICE])
    bundle.card = {**dict(bundle.card or {}), "report": report}
    own_marks = [marks[row] for row in used] if len(marks) else used.tolist()
    ids = [f"{who}{DIGEST_SEPARATOR}{mark}" for who, mark in zip(people, own_marks, strict=True)]
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
    if len(lines) > MAX_LISTED:
        lines[MAX_LISTED:] = [
            f"Left out: {len(lines) - MAX_LISTED} more recordings of several people."
        ]
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
