"""mvplda verify, identify, profiles, people"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from . import COUNT, JSON, output_option
from .evaluate import RATE
from .extractors import extractor_option, recordings_in, warn

if TYPE_CHECKING:
    from .._typing import Json
    from ..bundle import Bundle
    from ..decisions import OperatingPoint
    from ..voice.audio.decode import FileSegment
    from ..voice.extractors.extractor import ExtractedVectors
    from ..voice.people import Turn
    from ..voice.verification import VoiceModel
    from . import Command, Texts

LEAST_SPEECH = 1.0
"""Seconds of speech that a profile needs."""

# Seconds by which a turn may end behind its recording; Kaldi lets as many pass.
ROUNDED_S = 0.5

EXIT = {"accept": 0, "reject": 1, "inconclusive": 2}


def decision_options(command: Command) -> Command:
    """What an answer rests on."""
    for option in (
        JSON,
        click.option("--threshold", type=float, help="Accept from this LLR on."),
        click.option(
            "--far",
            type=RATE,
            help="Accept so that at most this share of the worst kind of impostors passes.  [default: the model's "
            "first operating point, else 0.01]",
        ),
        click.option(
            "--same",
            multiple=True,
            help="Ask about this view, whatever the others are; may be repeated.  [default: all views; the speaker for "
            "identify]",
        ),
        click.option(
            "--model",
            help="A model of mvplda train, or a folder of mvplda setup.  [default: that of the package]",
        ),
    ):
        command = option(command)
    return command


NAMED = 3
"""Folders that a warning names."""


def _side(voices: VoiceModel, source: str) -> ExtractedVectors:
    """Vectors of a sound file, or of those in a folder, which are taken as one person's."""
    from ..voice.audio.folders import list_recordings

    if Path(source).is_dir():
        owners = list(dict.fromkeys(list_recordings([source]).labels.get("speaker", ())))
        if len(owners) > 1:
            more = ", ..." if len(owners) > NAMED else ""
            click.echo(
                f"mvplda: warning: {source} holds {len(owners)} folders ({', '.join(owners[:NAMED])}{more}), and all "
                "their recordings are taken as one person's: give the folder of one person",
                err=True,
            )
    return voices.side(list(recordings_in([source]).values()))


def _basis(bundle: Bundle, calibrated: bool, point: OperatingPoint) -> str:
    """What the decision rests on, in a sentence."""
    card = bundle.card or {}
    name = card.get("name", card.get("model", "given"))
    state = "calibrated for this question" if calibrated else "NOT calibrated for this question"
    return f"The {name} model, {state}. Threshold: {point.basis}."


@click.command()
@click.argument("one")
@click.argument("other", required=False)
@extractor_option(required=False)
@click.option(
    "--profiles", "book", help="Compare ONE with --profile of this file, instead of with OTHER."
)
@click.option("--profile", help="The profile that ONE claims to be.")
@decision_options
def verify(
    one: str,
    other: str | None,
    extractors: Texts,
    book: str | None,
    profile: str | None,
    model: str | None,
    same: Texts,
    as_json: bool,
    **wanted: Any,
) -> None:
    """Decide whether ONE and OTHER are the same: sound files, or folders of several.

    The exit code is the answer: 0 accepts, 1 rejects, 2 could not decide (the LLR lies between the limits, or a
    recording cannot be used); 3 means that there was no answer, for the input or the call was at fault.

    \b
    Examples:
      mvplda verify a.wav b.wav
      mvplda verify enrolled/ test.wav --far 0.005
      mvplda verify test.wav --profiles voices/ --profile ann --model voices/
    """
    from ..scoring.question import Question
    from ..voice.profile_file import ProfileBook
    from ..voice.verification import VoiceModel

    if (other is None) == (book is None) or (book is None) != (profile is None):
        raise click.UsageError(
            "give two recordings, or one with --profiles FILE and --profile NAME"
        )
    question = Question(same or None)
    voices = VoiceModel.load(model, extractors)
    test = _side(voices, one)
    if book is None:
        enrolled = _side(voices, str(other))
    else:
        profiles = ProfileBook(book)
        profiles.check(voices.extractor.name)
        enrolled = profiles.of(str(profile))
        voices = voices.deployed(profiles)
    bundle = voices.bundle
    point = voices.point(enrolled, question, **wanted)
    decision = voices.verify(enrolled, test, question, **wanted)
    about = {
        **decision.to_dict(),
        "verdict": decision.answer,
        "point": point.to_dict(),
        "extractor": voices.extractor.name,
        "quality": {"one": _plain(test), "other": _plain(enrolled)},
    }
    lines = [
        decision.sentence(),
        f"{point.sentence()} {_basis(bundle, decision.calibrated, point)}",
    ]
    nothing = "nothing is the same"
    if len(decision.views) == 1:
        nothing = f"different {next(iter(decision.views))}"
    for name, p in decision.probabilities.items():
        shared = nothing if name == "nothing" else f"same {name.replace('+', ' and ')}"
        lines.append(f"  {shared}: {100 * p:.2f} %")
    lines += _faults(decision.faults)
    if {q.digest for q in test.qualities} & {q.digest for q in enrolled.qualities}:
        lines.append("Mind: a recording stands on both sides: it is compared with itself.")
    _end(decision.answer, about, lines, as_json)


def _plain(side: ExtractedVectors) -> list[Json]:
    return [quality.to_dict() for quality in side.qualities]


def _faults(faults: Iterable[str]) -> list[str]:
    from ..decisions import FAULTS

    return [f"Mind: {FAULTS.get(fault, fault)}." for fault in dict.fromkeys(faults)]


def _end(answer: str, about: Json, lines: Sequence[str], as_json: bool) -> NoReturn:
    click.echo(json.dumps(about) if as_json else "\n".join(lines))
    sys.exit(EXIT[answer])


@click.command()
@click.argument("test")
@extractor_option(required=False)
@click.option(
    "--profiles", "book", required=True, help="Look among the profiles of this file or folder."
)
@click.option("--top", type=COUNT, default=5, help="Print so many of the nearest.")
@decision_options
def identify(
    test: str,
    extractors: Texts,
    book: str,
    top: int,
    model: str | None,
    same: Texts,
    as_json: bool,
    **wanted: Any,
) -> None:
    """Decide whose voice TEST is, among enrolled profiles.

    The exit code is 0 where somebody is named, 1 where it is none of them, 2 where it could not be decided, 3 where
    there was no answer. The more profiles there are, the larger is the LLR from which on somebody is named.

    \b
    Example:
      mvplda identify unknown.wav --profiles voices/ --model voices/
    """
    from ..scoring.question import Question
    from ..voice.profile_file import ProfileBook
    from ..voice.verification import VoiceModel

    voices = VoiceModel.load(model, extractors)
    profiles = ProfileBook(book)
    profiles.all_vectors()
    profiles.check(voices.extractor.name)
    side = _side(voices, test)
    question = Question(same) if same else None
    found = voices.identify(side, profiles, question, **wanted)
    ranking = found.candidates[:top]
    names = ("profile", "llr", "probability")
    about = {
        "verdict": found.answer,
        "named": found.named,
        "none": found.none,
        "ranking": [dict(zip(names, one, strict=True)) for one in ranking],
        "calibrated": found.calibrated,
        "point": found.point.to_dict(),
        "extractor": voices.extractor.name,
        "quality": _plain(side),
    }
    texts = {"accept": f"This is {found.named}.", "reject": "This is none of them."}
    lines = [texts.get(found.answer, "Nothing can be decided.")]
    lines.append("     LLR  probability  profile")
    lines += [f"{llr:+8.2f}  {100 * p:9.2f} %  {name}" for name, llr, p in ranking]
    lines.append(f"          {100 * found.none:9.2f} %  none of them")
    lines.append(
        f"Each LLR compares TEST with one profile. Probabilities weigh all {len(found.candidates)} profiles and nobody "
        f"against each other; beforehand it is none of them with 50 %."
    )
    lines.append(_basis(voices.bundle, found.calibrated, found.point))
    lines += _faults(fault for quality in side.qualities for fault in quality.warnings)
    _end(found.answer, about, lines, as_json)


@click.group()
def profiles() -> None:
    """Enrolled voices in an .npz file of vectors, which names the extractor that made them."""


@profiles.command()
@click.argument("file")
@click.argument("name")
@click.argument("recordings", nargs=-1, required=True, metavar="RECORDING...")
@extractor_option(required=False)
@click.option("--model", help="Take the extractors of this model.")
@click.option(
    "--session",
    help="Name of the session, which takes of one room, microphone and day share.  [default: one of its own]",
)
@click.option(
    "--phrase",
    default="",
    show_default=False,
    help="What is said, by any name: people who say the same phrase tell what it sounds like.",
)
def add(
    file: str,
    name: str,
    recordings: Texts,
    extractors: Texts,
    model: str | None,
    session: str | None,
    phrase: str,
) -> None:
    """Add recordings to the profile NAME in FILE; both are made where they are not there.

    Example: mvplda profiles add voices.npz ann ann1.wav ann2.wav
    """
    from ..exceptions import AudioError
    from ..model_files import load_model
    from ..persistence import check_writable
    from ..voice.default_model import default_bundle, extractor_names
    from ..voice.domain.posterior import SESSION_VIEW
    from ..voice.evidence import recording_weights, session_labels
    from ..voice.extractors import load_extractor
    from ..voice.profile_file import ProfileBook

    book = ProfileBook(file)
    check_writable(book.path)
    bundle = None if model is None else load_model(model)
    noted = book.extractor if bundle is None else bundle.extractor
    network = load_extractor(list(extractors) or extractor_names(noted))
    book.check(network.name)
    listed = recordings_in(recordings)
    extracted = network.extract(list(listed.values()))
    qualities = dict(zip(listed, extracted.qualities, strict=True))
    bad = [path for path, quality in qualities.items() if not quality.usable]
    if bad:
        raise AudioError(
            f"{bad[0]} holds no voice that could be enrolled: see mvplda quality {bad[0]}"
        )
    speech = sum(quality.speech_s for quality in extracted.qualities)
    if speech < LEAST_SPEECH:
        raise AudioError(
            f"the recordings hold {speech:.2f} s of speech, at least {LEAST_SPEECH:g} s are wanted: give more of them"
        )
    marks = [quality.digest for quality in extracted.qualities]
    book.add(name, network.name, extracted.X, marks, session, phrase)
    warn(qualities)
    bundle = bundle or default_bundle(book.extractor)
    if bundle is not None and session is not None and not session_labels(bundle, [session]):
        click.echo(
            f"mvplda: warning: the model has no view {SESSION_VIEW!r}: the name of the session is stored in "
            f"{book.path} and changes none of its answers",
            err=True,
        )
    fits = () if bundle is None else book.fits(bundle)[-len(listed) :]
    for path, llr in zip(listed, fits, strict=False):
        if recording_weights(llr) < 1:
            click.echo(
                f"mvplda: warning: {path} does not fit the other recordings of {name} (LLR {llr:.1f}) and counts less",
                err=True,
            )
    click.echo(f"{name}: {book.counts()[name]} recording(s) in {book.path}", err=True)


@profiles.command()
@click.argument("file")
@click.argument("name")
def remove(file: str, name: str) -> None:
    """Take the profile NAME out of FILE.

    Example: mvplda profiles remove voices.npz ann
    """
    from ..voice.profile_file import ProfileBook

    count = ProfileBook(file).remove(name)
    click.echo(f"{name}: {count} recording(s) taken out of {file}", err=True)


@profiles.command("list")
@click.argument("file")
def list_profiles(file: str) -> None:
    """Print the profiles in FILE with their numbers of recordings.

    Example: mvplda profiles list voices.npz
    """
    from ..voice.profile_file import ProfileBook

    book = ProfileBook(file)
    book.all_vectors()
    click.echo(f"extractor: {book.extractor or 'not known'}", err=True)
    for name, count in book.counts().items():
        click.echo(f"{name}\t{count}")


@click.command()
@click.argument("recordings", nargs=-1, required=True, metavar="RECORDING...")
@click.option(
    "--turns",
    "turns_file",
    help="Who speaks when: an RTTM file of a diariser, or segments of Kaldi, with recordings called as their files "
    "without suffix.  [default: every recording is one turn]",
)
@extractor_option(required=False)
@click.option("--model", help="A model of mvplda train or setup.  [default: that of the package]")
@click.option(
    "--far", type=RATE, help="Merge so that at most this share of strangers would be merged."
)
@click.option(
    "--names",
    "names_file",
    help="Names that the page saved: enrol these people in the profiles file OUTPUT (.npz) instead.",
)
@output_option("Write a page to listen, confirm and name people to this .html file.")
def people(
    recordings: tuple[str, ...],
    turns_file: str | None,
    extractors: tuple[str, ...],
    model: str | None,
    far: float | None,
    names_file: str | None,
    output: str,
) -> None:
    """Find the people of many recordings: which turns are of the same voice.

    Prints the person of every turn, its recording, start and end, and its LLR against the others of that person.
    Pairs of people are the same, different, or not decided; the page asks about the last. Turns that overlap in time
    are never one person. Nothing is enrolled: names come from you.

    \b
    Example:
      mvplda people meetings/ --turns diarised.rttm -o people.html
      mvplda people meetings/ --names names.json -o voices.npz
    """
    from ..persistence import write_atomically
    from ..voice.audio.folders import list_recordings
    from ..voice.people import Turn, find_people, read_named_turns, read_turns
    from ..voice.people_page import people_page
    from ..voice.setup_report import skipped_lines
    from ..voice.verification import VoiceModel

    listed = list_recordings(list(recordings))
    clips = dict(zip(listed.ids, listed.files, strict=True))
    sounds = _headers(clips)
    turns = []
    for name, sound in sounds.items():
        clip = clips[name]
        # a table may list a stretch of a file
        end = sound.frames if clip.length is None else clip.start + clip.length
        turns.append(Turn(name, clip.start / sound.samplerate, end / sound.samplerate))
    if turns_file is not None:
        turns = read_turns(turns_file)
    if names_file is not None:
        turns = read_named_turns(names_file)
    voices = VoiceModel.load(model, extractors)
    extracted = voices.extractor.extract(_stretches(turns, clips, sounds), on_error="skip")
    names = [f"{turn.recording} at {turn.start:.2f} s" for turn in turns]
    for line in skipped_lines(names, extracted)[:5]:
        click.echo(f"mvplda: warning: a turn is left out: {line}", err=True)
    used = [turns[row] for row in extracted.rows]
    if names_file is not None:
        _enrol_turns(output, voices.extractor.name, used, extracted)
        return
    found = find_people(voices.bundle, extracted.X, used, far=far)
    page = people_page(found, used, {name: clip.path for name, clip in clips.items()})
    write_atomically(output, page.encode())
    for who, fit, turn in zip(found.person, found.fits, used, strict=True):
        click.echo(f"{who + 1}\t{turn.recording}\t{turn.start:.2f}\t{turn.end:.2f}\t{fit:.1f}")
    count = int(found.person.max()) + 1
    click.echo(
        f"{count} people in {len(used)} turns, {len(found.undecided_pairs)} pairs to decide: {output}",
        err=True,
    )


def _headers(clips: Mapping[str, FileSegment]) -> dict[str, Any]:
    """Length and rate of every recording; one that is no sound is left out."""
    from .._optional import need

    soundfile = need("soundfile")
    headers = {}
    for name, clip in clips.items():
        try:
            headers[name] = soundfile.info(str(clip.path))
        except soundfile.LibsndfileError as error:
            click.echo(f"mvplda: warning: {clip.path} is left out: {error.error_string}", err=True)
    return headers


def _stretches(
    turns: Sequence[Turn], clips: Mapping[str, FileSegment], sounds: Mapping[str, Any]
) -> list[FileSegment]:
    """Where the turns lie in their recordings."""
    from ..exceptions import DataError

    stretches = []
    for turn in turns:
        if turn.recording not in sounds:
            raise DataError(
                f"no recording that can be read is called {turn.recording!r}; there are {', '.join([*sounds][:3])}"
            )
        sound = sounds[turn.recording]
        first = round(turn.start * sound.samplerate)
        last = round(turn.end * sound.samplerate)
        # times of a diariser are rounded, and the last may lie a little behind the sound
        if last - sound.frames <= ROUNDED_S * sound.samplerate:
            last = min(last, sound.frames)
        stretches.append(replace(clips[turn.recording], start=first, length=last - first))
    return stretches


def _enrol_turns(
    file: str, network: str, turns: Sequence[Turn], extracted: ExtractedVectors
) -> None:
    """Enrol people by their turns; those of one recording are of one session."""
    from ..voice.profile_file import ProfileBook

    book = ProfileBook(file)
    for turn, vector, quality in zip(turns, extracted.X, extracted.qualities, strict=True):
        book.add(turn.name or "", network, vector[None], [quality.digest], turn.recording)
    for name in dict.fromkeys(turn.name or "" for turn in turns):
        click.echo(f"{name}: {book.counts()[name]} recording(s) in {book.path}", err=True)
