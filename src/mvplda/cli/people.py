"""Command that groups the turns of recordings by person: people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

import click

from .options import RATE, extractor_option, output_option

if TYPE_CHECKING:
    from ..voice.audio.decode import FileSegment
    from ..voice.extractors.extractor import ExtractedVectors
    from ..voice.people import FoundPeople, Suggestion
    from ..voice.turns import Turn
    from ..voice.verification import VoiceModel
    from .options import Texts

MAX_OVERRUN_S = 0.5
"""Largest time in seconds by which a turn may end after its recording, as in Kaldi; the turn is then shortened."""


@click.command("people")
@click.argument("recordings", nargs=-1, required=True, metavar="RECORDING...")
@click.option(
    "--turns",
    "turns_files",
    multiple=True,
    metavar="FILE|FOLDER",
    help="Turns of the recordings (who speaks when): an RTTM file, JSON of pyannote.audio or whisperX, a Kaldi file "
    "segments, or a folder of .rttm and .json files. They name a recording by its file without suffix. May be "
    "repeated.  [default: every recording is one turn]",
)
@extractor_option(required=False)
@click.option(
    "--model", help="Model of `mvplda train` or `mvplda setup`.  [default: the default model]"
)
@click.option(
    "--far",
    type=RATE,
    help="Choose the threshold that merges at most this share of the pairs of different people.  [default: that of the "
    "model]",
)
@click.option(
    "--known",
    "known_file",
    help="File of profiles of known people (`mvplda profiles add`): the page suggests their names, and you confirm "
    "them.",
)
@click.option(
    "--names",
    "names_file",
    help="File of names that the page saved. Instead of writing a page, enrol the people who agreed, in the file of "
    "profiles OUTPUT (.npz), or write the turns of all named people to OUTPUT (.rttm).",
)
@output_option(
    "Write an .html page, on which you listen to, confirm and name people, to this file."
)
def people_command(
    recordings: tuple[str, ...],
    turns_files: Texts,
    extractors: tuple[str, ...],
    model: str | None,
    far: float | None,
    known_file: str | None,
    names_file: str | None,
    output: str,
) -> None:
    """Group the turns of many recordings by person.

    A turn is a stretch of a recording in which one person speaks. Prints a line per turn: the number of its person, its
    recording, its start and end in seconds, and its LLR against the other turns of that person. If it is undecided
    whether two groups of turns are one person, the page lists the pair for you to decide. Turns that overlap in time
    are never assigned to one person. Nobody is enrolled, and no known name is used, before you confirm it on the page;
    people who did not agree are never enrolled.

    \b
    Examples:
      mvplda people meetings/ --turns diarised.rttm -o people.html
      mvplda people meetings/ --names names.json -o voices.npz
      mvplda people new/ --turns transcripts/ --known voices.npz -o people.html
      mvplda people new/ --names names.json -o named.rttm
    """
    from ..atomic_files import write_atomically
    from ..voice.audio.folders import list_recordings
    from ..voice.people import find_people
    from ..voice.people_page import people_page
    from ..voice.turns import read_named_turns, read_turns, rttm
    from ..voice.verification import VoiceModel

    if names_file is not None and output.endswith(".rttm"):
        write_atomically(output, rttm(read_named_turns(names_file)[0]).encode())
        return
    listed = list_recordings(list(recordings))
    whole_files = dict(zip(listed.ids, listed.files, strict=True))
    sounds = _read_headers(whole_files)
    if names_file is not None:
        turns = _turns_with_consent(names_file)
    elif turns_files:
        turns = [turn for file in turns_files for turn in read_turns(file)]
    else:
        turns = _whole_turns(whole_files, sounds)
    voices = VoiceModel.load(model, extractors)
    used_turns, extracted = _extract_turns(voices, turns, whole_files, sounds)
    if names_file is not None:
        _enrol_turns(output, voices.extractor.name, used_turns, extracted)
        return
    grouping = find_people(voices.bundle, extracted.X, used_turns, far=far)
    suggestions = []
    if known_file is not None:
        suggestions = _suggest_known(known_file, voices, extracted, used_turns, grouping, far)
    sound_files = {name: whole_file.path for name, whole_file in whole_files.items()}
    page = people_page(grouping, used_turns, sound_files, suggestions)
    write_atomically(output, page.encode())
    _show_grouping(grouping, used_turns, suggestions, output)


def _whole_turns(
    whole_files: Mapping[str, FileSegment], sounds: Mapping[str, SoundHeader]
) -> list[Turn]:
    """Return one turn per readable recording, from its beginning to its end.

    whole_files : {name of a recording: its file, or a listed segment of a file}
    sounds : {name of a readable recording: its header}
    """
    from ..voice.turns import Turn

    turns = []
    for name, sound in sounds.items():
        whole_file = whole_files[name]
        # a table may list a segment of a file
        end = sound.frames if whole_file.length is None else whole_file.start + whole_file.length
        turns.append(Turn(name, whole_file.start / sound.samplerate, end / sound.samplerate))
    return turns


def _extract_turns(
    voices: VoiceModel,
    turns: Sequence[Turn],
    whole_files: Mapping[str, FileSegment],
    sounds: Mapping[str, SoundHeader],
) -> tuple[list[Turn], ExtractedVectors]:
    """Return the turns with usable speech, and their vectors; turns without are skipped, with at most five warnings.

    whole_files : {name of a recording: its file, or a listed segment of a file}
    sounds : {name of a readable recording: its header}
    """
    from ..voice.setup_report import skipped_lines

    segments = _turn_segments(turns, whole_files, sounds)
    extracted = voices.extractor.extract(segments, on_error="skip")
    names = [f"{turn.recording} at {turn.start:.2f} s" for turn in turns]
    for line in skipped_lines(names, extracted)[:5]:
        click.echo(f"mvplda: warning: a turn is skipped: {line}", err=True)
    return [turns[row] for row in extracted.rows], extracted


def _suggest_known(
    known_file: str,
    voices: VoiceModel,
    extracted: ExtractedVectors,
    turns: Sequence[Turn],
    grouping: FoundPeople,
    far: float | None,
) -> list[Suggestion]:
    """Return suggestions of names for the people that were found, by comparing them with profiles of known people.

    known_file : file of profiles of known people, from --known
    extracted : vectors of the turns
    grouping : person of each turn
    far : false-acceptance rate of the threshold, from --far; None: that of the model
    """
    from ..voice.people import suggest_names
    from ..voice.profile_file import ProfileBook

    known = ProfileBook(known_file)
    known.all_vectors()
    known.check(voices.extractor.name)
    return suggest_names(voices, extracted, turns, grouping, known, far)


def _show_grouping(
    grouping: FoundPeople, turns: Sequence[Turn], suggestions: Sequence[Suggestion], output: str
) -> None:
    """Print a line per turn; on standard error, the suggested names and a summary with the path of the page."""
    for person, fit, turn in zip(grouping.person, grouping.fits, turns, strict=True):
        click.echo(f"{person + 1}\t{turn.recording}\t{turn.start:.2f}\t{turn.end:.2f}\t{fit:.1f}")
    for suggestion in suggestions:
        likelihood = "probably" if suggestion.is_probable else "perhaps"
        click.echo(
            f"person {suggestion.person + 1} is {likelihood} {suggestion.name} (LLR {suggestion.llr:+.1f}): confirm "
            "the name on the page",
            err=True,
        )
    count = int(grouping.person.max()) + 1
    click.echo(
        f"{count} people in {len(turns)} turns; {len(grouping.undecided_pairs)} pairs of people may be the same "
        f"person: open {output} to decide, and to name people",
        err=True,
    )


def _turns_with_consent(names_file: str) -> list[Turn]:
    """Return the turns of the named people who agreed to be enrolled; list those who did not on standard error.

    names_file : file that the page of `mvplda people` saved

    Raises `DataError` if nobody agreed.
    """
    from ..exceptions import DataError
    from ..voice.turns import read_named_turns

    turns, agreed = read_named_turns(names_file)
    for name in dict.fromkeys(turn.name or "" for turn in turns):
        if name not in agreed:
            click.echo(
                f"{name}: not enrolled, because 'agreed to be recognised' was not ticked on the page",
                err=True,
            )
    if not agreed:
        raise DataError(
            f"{names_file}: nobody agreed to be recognised in other recordings, so nobody is enrolled. Tick the "
            "consent of people on the page and save the names again, or write only the turns with names by passing "
            "-o named.rttm"
        )
    return [turn for turn in turns if turn.name in agreed]


class SoundHeader(Protocol):
    """Length of a sound file in samples per channel (`frames`), and samples per second (`samplerate`)."""

    frames: int
    samplerate: int


def _read_headers(whole_files: Mapping[str, FileSegment]) -> dict[str, SoundHeader]:
    """Return {name of a recording: header with length and rate}; warn of unreadable files and leave them out.

    whole_files : {name of a recording: its file, or a listed segment of a file}
    """
    from .._optional import need

    soundfile = need("soundfile")
    headers = {}
    for name, whole_file in whole_files.items():
        try:
            headers[name] = soundfile.info(str(whole_file.path))
        except soundfile.LibsndfileError as error:
            click.echo(
                f"mvplda: warning: {whole_file.path} is skipped: {error.error_string}", err=True
            )
    return headers


def _turn_segments(
    turns: Sequence[Turn], whole_files: Mapping[str, FileSegment], sounds: Mapping[str, SoundHeader]
) -> list[FileSegment]:
    """Return for each turn the segment of the sound file in which it lies.

    whole_files : {name of a recording: its file, or a listed segment of a file}
    sounds : {name of a readable recording: its header}

    Raises `DataError` for a turn of a recording that is missing or unreadable.
    """
    from ..exceptions import DataError

    segments = []
    for turn in turns:
        if turn.recording not in sounds:
            raise DataError(
                f"the turns name the recording {turn.recording!r}, which is missing or unreadable; the readable "
                f"recordings begin with {', '.join([*sounds][:3]) or '(none)'}. Pass the folder that contains it"
            )
        sound = sounds[turn.recording]
        first = round(turn.start * sound.samplerate)
        last = round(turn.end * sound.samplerate)
        # diarisers round times, so the last turn may end a little after the sound
        if last - sound.frames <= MAX_OVERRUN_S * sound.samplerate:
            last = min(last, sound.frames)
        segments.append(replace(whole_files[turn.recording], start=first, length=last - first))
    return segments


def _enrol_turns(
    file: str, network: str, turns: Sequence[Turn], extracted: ExtractedVectors
) -> None:
    """Add the vectors of turns to the profiles of their people; turns of one recording are one session.

    file : file of profiles, which is created if it does not exist
    network : name of the extractor
    turns : named turns, one per vector of `extracted`
    """
    from ..voice.profile_file import ProfileBook

    book = ProfileBook(file)
    for turn, vector, quality in zip(turns, extracted.X, extracted.qualities, strict=True):
        book.add(turn.name or "", network, vector[None], [quality.digest], turn.recording)
    for name in dict.fromkeys(turn.name or "" for turn in turns):
        click.echo(f"{name}: {book.counts()[name]} recording(s) in {book.path}", err=True)
