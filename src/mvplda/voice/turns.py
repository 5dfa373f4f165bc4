"""Turns of speakers in recordings: reading the files of diarisers and transcribers, and writing turns with names."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .._typing import PathLike
from ..exceptions import DataError, MvpldaWarning
from ..io.streams import OnDisk, fail, lines_of


class Turn(NamedTuple):
    """Part of a recording in which one person speaks.

    recording : name of the recording
    start, end : start and end in seconds
    name : name of the speaker. A diariser's names are valid within one recording. None or empty: unknown
    text : transcript, or ""
    """

    recording: str
    start: float
    end: float
    name: str | None = None
    text: str = ""

    def overlaps(self, other: Turn) -> bool:
        """Return whether two turns of one recording overlap in time.

        Turns with the same name never count as overlapping.
        """
        if self.recording != other.recording:
            return False
        if self.name and self.name == other.name:
            return False
        return self.start < other.end and other.start < self.end


UNREADABLE = (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError)
"""Errors of JSON that has another form: the last two by deep nesting, and by times that are too large."""

RTTM_OTHER_TYPES = (
    *("SEGMENT", "NOSCORE", "NO_RT_METADATA", "LEXEME", "NON-LEX", "NON-SPEECH"),
    *("FILLER", "EDIT", "IP", "SU", "CB", "A/P"),
)
"""Types of RTTM lines that are not turns of speakers; they are skipped with a warning."""

RTTM_MISSING = "<NA>"
"""Text of an RTTM field without a value, such as the speaker name in the file of a voice activity detector."""


def read_turns(path: PathLike) -> list[Turn]:
    """Read the turns in the files of a diariser or transcriber.

    Parameters
    ----------
    path : RTTM file, Kaldi file ``segments``, JSON file of pyannote.audio or whisperX (its recording has the name of
        the file), or folder of .rttm and .json files

    Raises
    ------
    DataError
        A folder has no such files.
    FileFormatError
        A file has another format, or a turn does not end after its start.
    """
    path = Path(path)
    if path.is_dir():
        files = [file for file in sorted(path.iterdir()) if file.suffix in (".rttm", ".json")]
        # pyannote.audio writes the same turns into a .rttm and a .json file
        with_rttm = {file.stem for file in files if file.suffix == ".rttm"}
        files = [file for file in files if file.suffix == ".rttm" or file.stem not in with_rttm]
        if not files:
            raise DataError(f"{path} has no turns: expected files .rttm or .json of a diariser")
        return [turn for file in files for turn in read_turns(file)]
    return _read_json_turns(path) if path.suffix == ".json" else _read_lines(path)


def _read_json_turns(path: Path) -> list[Turn]:
    """Read the turns of a JSON file of pyannote.audio (diarization) or whisperX (segments)."""
    try:
        values = json.loads(path.read_text(encoding="utf-8-sig"))
        if isinstance(values, dict):
            # the answer of a diarisation service holds the diarisation as its output
            values = values.get("output", values)
            values = values["diarization"] if "diarization" in values else values["segments"]
        untimed: list[str] = []
        stretches = [stretch for item in values for stretch in _by_speaker(item, untimed)]
        turns = [
            Turn(
                path.stem,
                float(item["start"]),
                float(item["end"]),
                _speaker(item),
                str(item.get("text") or "").strip(),
            )
            for item in stretches
        ]
    except UNREADABLE:
        fail(
            path,
            'expected the JSON of pyannote.audio ({"diarization": [...]}) or of whisperX ({"segments": [...]}), with '
            "start, end and speaker of each turn",
        )
    for number, turn in enumerate(turns, 1):
        _check_times(turn, path, f"turn {number}")
    if untimed:
        warnings.warn(
            MvpldaWarning(
                f"{path}: left out {len(untimed)} turn(s) of segments with several speakers, because none of their "
                f"words has a start and an end; the first is {untimed[0][:60]!r}. Run whisperX with alignment"
            ),
            stacklevel=3,
        )
    return turns


def _speaker(item: Mapping[str, Any]) -> str | None:
    """Return the name or number of the speaker of a turn or word as text; None if it is missing.

    item : values of the turn or word in a JSON file
    """
    speaker = item.get("speaker")
    if speaker is not None and not isinstance(speaker, (str, int)):
        raise TypeError(f"the speaker of a turn must be a name or a number; got {speaker!r}")
    return None if speaker is None else str(speaker) or None


def _by_speaker(segment: Mapping[str, Any], untimed: list[str]) -> list[Mapping[str, Any]]:
    """Divide a segment of whisperX at words where the speaker changes; a segment with one speaker stays whole.

    Words without times, such as numbers, do not extend a turn but stay in its text.

    Parameters
    ----------
    segment : values of the segment in the JSON file
    untimed : list to which the texts of turns without any times are added; such turns are left out

    Returns
    -------
    values of each turn: speaker, text, start and end
    """
    words = segment.get("words") or []
    speakers = {_speaker(word) for word in words} - {None}
    if len(speakers) < 2:
        return [segment]
    turns: list[dict[str, Any]] = []
    for word in words:
        speaker = _speaker(word) or (turns[-1]["speaker"] if turns else None)
        if not turns or speaker != turns[-1]["speaker"]:
            turns.append({"speaker": speaker, "text": ""})
        turns[-1]["text"] += f" {word['word'].strip()}"
        # some programs write null for the times of a word without any
        if word.get("start") is not None and word.get("end") is not None:
            turns[-1].setdefault("start", word["start"])
            turns[-1]["end"] = word["end"]
    untimed += [turn["text"].strip() for turn in turns if "start" not in turn]
    return [turn for turn in turns if "start" in turn]


def _check_times(turn: Turn, path: Path, position: int | str) -> None:
    """Raise `FileFormatError` unless a turn ends after its start.

    position : number of the line in the file, or a description such as "turn 3"
    """
    if not 0 <= turn.start < turn.end < np.inf:
        problem = f"expected a turn that ends after its start; got {turn.start:g} to {turn.end:g} s"
        if isinstance(position, str):
            fail(path, f"{position}: {problem}")
        fail(path, problem, position)


def _read_lines(path: Path) -> list[Turn]:
    """Read the turns of an RTTM file, or of a Kaldi file ``segments``.

    Lines of an RTTM file other than SPEAKER, such as words, are skipped with a warning.
    """
    turns = []
    n_skipped = 0
    for number, line in enumerate(lines_of(OnDisk(path)), 1):
        fields = line.decode().split()
        # comments and descriptions of speakers are not turns
        if not fields or fields[0].startswith((";;", "SPKR-INFO")):
            continue
        if fields[0] in RTTM_OTHER_TYPES:
            n_skipped += 1
            continue
        try:
            if fields[0] == "SPEAKER":
                start = float(fields[3])
                name = None if fields[7] == RTTM_MISSING else fields[7]
                turn = Turn(fields[1], start, start + float(fields[4]), name)
            else:
                turn = Turn(fields[1], float(fields[2]), float(fields[3]))
        except (IndexError, ValueError):
            fail(
                path,
                "expected a SPEAKER line of RTTM, or a line of a Kaldi file segments: utterance recording start end",
                number,
            )
        _check_times(turn, path, number)
        turns.append(turn)
    if n_skipped:
        warnings.warn(
            MvpldaWarning(
                f"{path}: skipped {n_skipped} line(s) of RTTM that are not SPEAKER, because only these are turns"
            ),
            stacklevel=2,
        )
    return turns


def read_named_turns(path: PathLike) -> tuple[list[Turn], set[str]]:
    """Read the file with the names that a user entered on the page of `mvplda people`.

    Returns
    -------
    turns of the named people, each with the person's name, and the names of the people who agreed to be recognised in
    other recordings

    Raises
    ------
    FileFormatError
        The file has another format, or no names.
    DataError
        Two turns with the same name overlap in time.
    """
    try:
        saved = json.loads(Path(path).read_text(encoding="utf-8"))
        # files of earlier versions lack the consent, because all their people had given it
        people: dict[str, Any] = {
            name: {"consent": True, "turns": entry} if isinstance(entry, list) else entry
            for name, entry in saved.items()
        }
        turns = [
            _named_turn(turn, name) for name, entry in people.items() for turn in entry["turns"]
        ]
        agreed = {name for name, entry in people.items() if entry["consent"] is True}
    except UNREADABLE:
        fail(
            path,
            "expected a JSON object with the turns of each name, as the page of mvplda people saves it",
        )
    for number, turn in enumerate(turns, 1):
        _check_times(turn, Path(path), f"turn {number}")
    if not turns:
        fail(
            path,
            "there are no names in the file: enter names on the page of mvplda people, and save them again",
        )
    _check_overlaps(turns, path)
    return turns, agreed


def _check_overlaps(turns: Sequence[Turn], path: PathLike) -> None:
    """Raise `DataError` if two turns with the same name and recording overlap in time."""
    ordered = sorted(turns, key=lambda turn: (turn.name or "", turn.recording, turn.start))
    for turn, following in pairwise(ordered):
        is_same_person = turn.name == following.name and turn.recording == following.recording
        if is_same_person and following.start < turn.end:
            raise DataError(
                f"{path}: {turn.name!r} has two turns at {following.start:g} s of {turn.recording}, but one person "
                "speaks once at a time: give the two voices different names"
            )


def _named_turn(values: Mapping[str, Any], name: str) -> Turn:
    """Return the turn with the given values (recording, start, end, text) and the person's name."""
    turn = Turn(**{**values, "name": name})
    return turn._replace(start=float(turn.start), end=float(turn.end))


def rttm(turns: Sequence[Turn]) -> str:
    """Return turns as the text of an RTTM file, one line per turn, sorted by recording and start.

    Spaces in names become underscores, because RTTM separates fields by spaces. Transcripts are left out.
    """
    lines = []
    for turn in sorted(turns):
        recording, name = ("_".join(text.split()) for text in (turn.recording, turn.name or ""))
        lines.append(
            f"SPEAKER {recording} 1 {turn.start:.3f} {turn.end - turn.start:.3f} {RTTM_MISSING} {RTTM_MISSING} "
            f"{name or RTTM_MISSING} {RTTM_MISSING} {RTTM_MISSING}\n"
        )
    return "".join(lines)
