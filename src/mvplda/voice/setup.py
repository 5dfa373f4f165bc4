"""Setup of a model from a folder of recordings, with thresholds that are measured on the recorded people."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypedDict

import numpy as np
from numpy.typing import ArrayLike

from .. import training
from .._progress import Progress
from .._typing import Array, IntArray, Names, PathLike
from ..bundle import Bundle
from ..decisions import FAULTS, Decision, promised_point
from ..exceptions import DataError, LabelError, ParameterError
from ..io.streams import OnDisk
from ..io.tables import is_table
from ..io.vectors import VectorSet
from ..labels import as_array, is_missing
from ..model_files import MODEL_FILE, REPORT_FILE, file_in_folder
from ..scoring.question import Question
from .audio.folders import (
    TABLE_SUFFIXES,
    Recordings,
    default_pattern,
    label_recordings,
    list_recordings,
)
from .default_model import default_bundle, default_extractor
from .extractors.blocks import block_views, blocks_of, point_blocks
from .extractors.extractor import ExtractedVectors, load_extractor
from .profile_file import DIGEST_SEPARATOR, ProfileBook
from .setup_report import (
    ENROLMENT_ADVICE,
    MAX_LISTED,
    MIN_TRAINING_PEOPLE,
    evidence_sentence,
    kind_words,
    report_lines,
    skipped_lines,
)
from .sexes import SEX_COLUMNS, Sexes, sexes_in_labels, sexes_in_table
from .verification import RecordingsLike, VoiceModel


class HeldOutOptions(TypedDict):
    """Options of `mvplda.training.train` for the measurement of errors on held-out people.

    enrolment : number of recordings per profile
    fars : shares of false acceptances for which thresholds are computed
    progress : whether to write lines of progress to standard error
    groups : {speaker: sex}, for error rates of impostors of the same sex; None: unknown
    """

    enrolment: int
    fars: tuple[float, ...]
    progress: bool
    groups: training.Groups | None


@dataclass
class Setup:
    """Result of `setup`: a model, the vectors of the people it was set up for, and a report.

    bundle : model of vectors with calibration and thresholds
    report : report in plain English, one page
    vectors : ids and vectors of the recordings that were used
    people, phrases : (n,) person and phrase of each vector; "" for an unknown phrase
    voices : model with its extractor, for recordings; None after `setup_vectors`
    """

    bundle: Bundle
    report: str
    vectors: VectorSet
    people: Sequence[str]
    phrases: Sequence[str]
    voices: VoiceModel | None = None

    def verify(
        self,
        one: RecordingsLike,
        other: RecordingsLike,
        question: Question | None = None,
        **point_options: float | None,
    ) -> Decision:
        """Decide whether two sides match; parameters and result as in `VoiceModel.verify`."""
        if self.voices is None:
            raise ParameterError(
                "this model was set up from vectors and cannot read recordings: use VoiceModel(bundle, extractor) with "
                "the extractor of the vectors"
            )
        return self.voices.verify(one, other, question, **point_options)

    def save(self, path: PathLike) -> None:
        """Write the model, a profile per person and the report into a folder, which is created if necessary."""
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
    """Set up a model of your own people, with thresholds, from a folder of their recordings.

    Parameters
    ----------
    source : folder of recordings, with one folder or file name prefix per person; or a table (.csv, .tsv) with the
        columns ``file`` and ``speaker``
    pattern : pattern of the labels in file names, such as ``{speaker}/{phrase}_*``. None: the columns of the table are
        the labels, or else the names of outer folders (speakers) and of the folders in them (phrases)
    extractors : names or files of extractors; empty: those of the default model
    far : share of impostors that may be accepted, for the worst kind of impostor
    enrolment : number of recordings per profile in later use
    progress : write a line per step to standard error

    Returns
    -------
    model, vectors and report

    Raises
    ------
    DataError
        No recording is usable, or there is only one person.
    """
    labelled, notes = _read_labels(source, pattern)
    extractor = load_extractor(list(extractors)) if extractors else default_extractor()
    if progress:
        Progress("extracting vectors of recordings", len(labelled.ids)).step(0)
    extracted = extractor.extract(labelled.files, on_error="skip", progress=progress)
    usable = [index for index, quality in enumerate(extracted.qualities) if quality.usable]
    if not usable:
        raise DataError(
            f"no recording under {source} has usable speech: run `mvplda quality {source}` to see why"
        )
    rows = [extracted.rows[index] for index in usable]
    labels = {view: np.array(column)[rows] for view, column in labelled.labels.items()}
    sexes = _find_sexes(source, labels, labelled, rows)
    result = setup_vectors(
        extracted.X[usable],
        labels,
        sexes=sexes,
        marks=[extracted.qualities[index].digest[:12] for index in usable],
        files=[labelled.ids[row] for row in rows],
        name=extractor.name,
        blocks={network: stop - start for network, (start, stop) in extractor.blocks.items()},
        notes=[*notes, *_excluded_lines(labelled.ids, extracted)],
        far=far,
        enrolment=enrolment,
        progress=progress,
    )
    result.voices = VoiceModel(result.bundle, extractor)
    return result


def _find_sexes(
    source: PathLike, labels: Mapping[str, Names], labelled: Recordings, rows: Sequence[int]
) -> Sexes:
    """Return the sex of each speaker from the table of recordings, or else a group by the pitch of the voice.

    Parameters
    ----------
    source : folder or table of the recordings
    labels : {view: label of each usable recording}
    labelled : all recordings
    rows : indices of the usable recordings in `labelled`
    """
    if has_table(source, "file", "speaker"):
        sexes = sexes_in_table(file_in_folder(source, "index.csv"))
        if sexes is not None:
            return sexes
    sounds = [labelled.files[row] for row in rows]
    return Sexes.from_voices(labels["speaker"].tolist(), sounds)


def has_table(path: PathLike, *columns: str) -> bool:
    """Return whether a path is a table (.csv, .tsv) with these columns, or a folder with such a table, index.csv."""
    file = file_in_folder(path, "index.csv")
    if file.suffix.lower() not in TABLE_SUFFIXES or not file.is_file():
        return False
    return is_table(OnDisk(file), *([name] for name in columns))


def _read_labels(source: PathLike, pattern: str | None) -> tuple[Recordings, list[str]]:
    """List the recordings of a folder or table with their labels.

    pattern : pattern of the labels in file names; None: those of the table, or else names of folders

    Returns
    -------
    labelled recordings, and lines of the report on the origin of the labels
    """
    listed = list_recordings([source])
    if pattern is None and has_table(source, "file", "speaker"):
        columns = " and ".join(listed.labels)
        return listed, [f"Labels of {columns} come from the table: {len(listed.ids)} recordings."]
    pattern = pattern or default_pattern(listed.ids)
    try:
        labelled, _ = label_recordings(listed, pattern)
    except re.error:
        raise ParameterError(
            f"a field of the pattern {pattern!r} is not a name: use letters within the braces, as in "
            "{speaker}/{phrase}_*"
        ) from None
    notes = [f"Labels come from file names, read as {pattern}: {len(labelled.ids)} recordings."]
    unread = sorted(set(listed.ids) - set(labelled.ids))
    if unread:
        notes.append(
            f"Left out: {len(unread)} files that do not match the pattern, such as {unread[0]}."
        )
    return labelled, notes


def _excluded_lines(names: Sequence[str], extracted: ExtractedVectors) -> list[str]:
    """Return lines of the report on recordings that were left out, and on faults with an example.

    names : name of each recording that was passed to the extractor
    """
    lines = [f"Left out: {line}" for line in skipped_lines(names, extracted)]
    affected: dict[str, list[str]] = {}
    for row, quality in zip(extracted.rows, extracted.qualities, strict=True):
        for fault in quality.warnings:
            affected.setdefault(fault, []).append(names[row])
        if not quality.usable:
            lines.append(f"Left out: {names[row]}: no usable speech.")
    quality_lines = [
        f"Quality: {len(examples)} {fault}, such as {examples[0]} ({FAULTS[fault]})."
        for fault, examples in affected.items()
    ]
    if len(lines) > MAX_LISTED:
        lines[MAX_LISTED:] = [
            f"Left out: {len(lines) - MAX_LISTED} more; mvplda quality lists them."
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
    sexes: Sexes | None = None,
    progress: bool = False,
) -> Setup:
    """Set up a model from vectors and labels, as `setup` does from recordings.

    Copies of recordings are left out first. If copies have the same labels, one is used; if they have different labels,
    such as two people, none is used.

    Parameters
    ----------
    X : (n, D) vectors
    labels : {view: (n,) labels}, with "speaker" and optionally "phrase" and other views
    marks : (n,) texts that are equal for copies of a recording, such as hashes; empty: there are no copies
    files : (n,) name of each recording for the report; empty: use `marks`
    name : name of the extractor; None: unknown
    blocks : {network of the extractor: number of its columns}; None: found from `name`
    far : share of impostors that may be accepted, for the worst kind of impostor
    enrolment : number of recordings per profile in later use
    notes : first lines of the report
    sexes : sex of each person; None: from a label "sex" or "gender", if there is one
    progress : write a line per step to standard error

    Returns
    -------
    model, vectors and report; this result verifies vectors only, not recordings
    """
    if not 0 < far < 1:
        raise ParameterError(
            f"far, the share of false acceptances, must lie between 0 and 1; got {far}"
        )
    vectors = np.asarray(X)
    columns = {view: np.asarray(column) for view, column in labels.items()}
    if "speaker" not in columns or is_missing(columns["speaker"]).any():
        raise LabelError("expected a speaker for every vector: profiles are made per speaker")
    sexes = sexes_in_labels(columns) if sexes is None else sexes
    columns = {view: column for view, column in columns.items() if view not in SEX_COLUMNS}
    rows, copy_lines = _distinct_rows(columns, marks, files)
    vectors = vectors[rows]
    columns = {view: column[rows] for view, column in columns.items()}
    people_line = _count_people(columns["speaker"])
    phrase_lines = _drop_single_phrase(columns)
    options: HeldOutOptions = {
        "enrolment": enrolment,
        "fars": (far, *(share for share in training.FARS if share != far)),
        "progress": progress,
        "groups": None if sexes is None else sexes.of,
    }
    blocks = blocks or blocks_of(name, vectors.shape[1])
    bundle, choice_lines = _choose_model(vectors, columns, name, blocks, options)
    sex_lines = [] if sexes is None else [sexes.note]
    report = [*notes, *copy_lines, people_line, *sex_lines, *phrase_lines, *choice_lines]
    report += [*_put_default_points(bundle, far), *report_lines(bundle, far)]
    report += [evidence_sentence(len(np.unique(columns["speaker"]))), ENROLMENT_ADVICE]
    text = "\n".join(report)
    bundle.card = {**dict(bundle.card or {}), "report": text}

    people = columns["speaker"].astype(str).tolist()
    vector_marks = [marks[row] for row in rows] if len(marks) else rows.tolist()
    ids = [
        f"{person}{DIGEST_SEPARATOR}{mark}"
        for person, mark in zip(people, vector_marks, strict=True)
    ]
    phrases = _phrase_names(labels, rows)
    return Setup(bundle, text, VectorSet(np.array(ids), vectors, name), people, phrases)


def _count_people(speakers: Names) -> str:
    """Return the line of the report on the numbers of people and recordings.

    A single person raises `DataError`, because a threshold needs impostors.

    speakers : (n,) speaker of each recording
    """
    names, counts = np.unique(speakers, return_counts=True)
    if len(names) < 2:
        raise DataError(
            f"there is one person, {str(names[0])!r}, but a threshold needs at least two. Pass recordings of 20 "
            f"people or more (8 to measure errors, {MIN_TRAINING_PEOPLE} to train a model), one folder per person; to "
            "compare two recordings, use mvplda verify, which needs no setup"
        )
    fewest, most = counts.min(), counts.max()
    numbers = f"{most}" if fewest == most else f"{fewest} to {most}"
    return f"{len(names)} people, {numbers} recordings each."


def _drop_single_phrase(columns: dict[str, Names]) -> list[str]:
    """Remove the labels of phrases if there are fewer than two phrases; return lines of the report on phrases.

    columns : {view: (n,) labels}, which is changed
    """
    phrases = training.count_named(columns["phrase"]) if "phrase" in columns else 0
    if phrases < 2:
        columns.pop("phrase", None)
        return [
            "Fewer than two phrases are labelled: the model compares voices only.",
            "If people say whatever they like, ask about the voice: --same speaker.",
        ]
    if len(np.unique(columns["speaker"])) < MIN_TRAINING_PEOPLE:
        return []
    return [f"{phrases} phrases: the model compares voices and phrases."]


def _phrase_names(labels: Mapping[str, ArrayLike], rows: IntArray) -> list[str]:
    """Return the name of the phrase of each vector in `rows`; "" if it has no label."""
    if "phrase" not in labels:
        return [""] * len(rows)
    # a single phrase is no view to train, but its name serves when profiles are verified
    names = as_array(labels["phrase"])[rows]
    phrases: list[str] = np.where(is_missing(names), "", names.astype(str)).tolist()
    return phrases


def _distinct_rows(
    labels: Mapping[str, Names], marks: Sequence[str], files: Sequence[str]
) -> tuple[IntArray, list[str]]:
    """Select recordings: one of several copies, and none of copies with contradictory labels.

    Parameters
    ----------
    labels : {view: (n,) labels}
    marks : (n,) texts that are equal for copies; empty: there are no copies
    files : (n,) names for the report; empty: use `marks`

    Returns
    -------
    indices of the recordings to use, ascending, and lines of the report on those that were left out
    """
    if not len(marks):
        return np.arange(len(labels["speaker"])), []
    names = files or marks
    rows_of_mark: dict[str, list[int]] = {}
    for row, mark in enumerate(marks):
        rows_of_mark.setdefault(mark, []).append(row)
    distinct = []
    lines = []
    n_copies = 0
    for rows in rows_of_mark.values():
        differing = [view for view in labels if len({str(labels[view][row]) for row in rows}) > 1]
        # at most one of the labels is right, and nothing shows which
        if differing:
            view = "speaker" if "speaker" in differing else differing[0]
            recordings = " and ".join(f"{names[row]} ({labels[view][row]})" for row in rows)
            classes = "people" if view == "speaker" else f"{view}s"
            lines.append(f"Left out: one recording with labels of several {classes}: {recordings}.")
            continue
        distinct.append(rows[0])
        n_copies += len(rows) - 1
    if len(lines) > MAX_LISTED:
        lines[MAX_LISTED:] = [
            f"Left out: {len(lines) - MAX_LISTED} more recordings with contradictory labels."
        ]
    if n_copies:
        lines.append(f"{n_copies} recordings are copies of others and were left out.")
    if not distinct:
        raise DataError(
            f"every recording has contradictory labels. {lines[0]} Pass each recording once, in the right folder"
        )
    return np.sort(np.asarray(distinct, dtype=np.int64)), lines


def _choose_model(
    vectors: Array,
    columns: Mapping[str, Names],
    extractor: str | None,
    blocks: Mapping[str, int] | None,
    options: HeldOutOptions,
) -> tuple[Bundle, list[str]]:
    """Train or adapt all models for which there are enough people; choose that with fewest errors.

    Parameters
    ----------
    vectors : (n, D) vectors
    columns : {view: (n,) labels}
    extractor : name of the extractor; None: unknown
    blocks : {network of the extractor: number of its columns}; None: unknown
    options : options for the measurement of errors

    Returns
    -------
    chosen model, and lines of the report on the choice
    """
    shipped = default_bundle(extractor)
    default = None
    if shipped is not None:
        default = training.deploy_on_speakers(shipped, vectors, columns, **options)
    points = point_blocks(blocks)
    train_floor = partial(
        training.train_cosine_floor,
        blocks=blocks,
        block_views=block_views(blocks),
        point_blocks=points,
        extractor=extractor,
        **options,
    )
    n_people = len(np.unique(columns["speaker"]))
    if n_people < MIN_TRAINING_PEOPLE:
        reason = f"{n_people} people are too few to train a model ({MIN_TRAINING_PEOPLE} at least)."
        if default is not None:
            return default, [f"{reason} Chosen: the default model, adapted to their recordings."]
        floor = train_floor(vectors, {"speaker": columns["speaker"]}, folds=2)
        return floor, [f"{reason} Chosen: the {training.FLOOR}, which compares voices only."]

    expert = None if shipped is None else shipped.scorer
    committee = training.train(
        vectors,
        columns,
        default=expert,
        extractor=extractor,
        blocks=blocks,
        point_blocks=points,
        **options,
    )
    choice_lines = training.selection_lines(committee.card or {})
    candidates = {
        "the default model": default,
        "a committee trained on your people": committee,
        f"the {training.FLOOR}": train_floor(vectors, columns),
    }
    bundle, comparison_lines = _best(
        {title: candidate for title, candidate in candidates.items() if candidate is not None}
    )
    return bundle, [*comparison_lines, *(choice_lines if bundle is committee else [])]


def _best(candidates: Mapping[str, Bundle]) -> tuple[Bundle, list[str]]:
    """Return the model with the fewest errors in the same trials, and lines of the report on the comparison.

    A later candidate replaces an earlier one if both its EER and its Cllr are smaller. A smaller Cllr alone is not
    enough, because a model that was calibrated on these trials has a small Cllr in any case.

    candidates : {name for the report: model with measured errors}
    """
    chosen = ""
    least_errors = np.full(2, np.inf)
    lines = []
    for title, bundle in candidates.items():
        held_out = (bundle.card or {}).get("held_out")
        if held_out is None:
            first = next(iter(candidates))
            return candidates[first], [
                f"Chosen: {first}; the errors of {title} cannot be measured."
            ]
        measured = next(iter(held_out["errors"].values()))
        errors = np.array([max(measured["eer"].values()), measured["cllr"]])
        kinds = [f"{kind_words(kind)} {eer:.2%}" for kind, eer in measured["eer"].items()]
        rates = f" ({'; '.join(kinds)})" if len(kinds) > 1 else ""
        lines.append(
            f"  {title}: EER of the worst kind {errors[0]:.2%}{rates}, Cllr {errors[1]:.3f}"
        )
        if (errors < least_errors).all():
            chosen = title
            least_errors = errors
    return candidates[chosen], [
        f"Chosen: {chosen}. Compared on people held out in turn:",
        *lines,
    ]


def _put_default_points(bundle: Bundle, far: float) -> list[str]:
    """Make the operating point for `far` the first of each question, which is the default.

    bundle : model, whose operating points are reordered
    far : requested rate of false acceptances

    Returns
    -------
    a line of the report with a warning if a question has only points for a larger rate, else an
    empty list
    """
    reordered = {}
    loosest = far
    for key, points in (bundle.points or {}).items():
        default = promised_point(points, far)
        reordered[key] = [point for point in points if point is not default]
        if default is not None:
            reordered[key].insert(0, default)
            loosest = max(loosest, default.far or 0.0)
    bundle.points = reordered
    if loosest <= far:
        return []
    return [
        f"Warning: these data cannot guarantee {100 * far:g} % false acceptances; the thresholds are for "
        f"{100 * loosest:g} %."
    ]
