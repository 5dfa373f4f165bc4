"""Commands that decide about recordings: verify, identify."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from .extractors import list_sound_files
from .options import COUNT, JSON, RATE, extractor_option

if TYPE_CHECKING:
    from .._typing import Json
    from ..bundle import Bundle
    from ..decisions import Decision, OperatingPoint
    from ..voice.extractors.extractor import ExtractedVectors
    from ..voice.prompts import PromptKind
    from ..voice.verification import VoiceModel
    from .options import Command, Texts

EXIT_CODES = {"accept": 0, "reject": 1, "inconclusive": 2}
"""Exit code of each verdict."""

MAX_NAMED_FOLDERS = 3
"""Number of folders that a warning names."""


def decision_options(command: Command) -> Command:
    """Add the options that choose the model, the question and the threshold."""
    for option in (
        JSON,
        click.option(
            "--threshold", type=float, help="Threshold: accept if the LLR is at least this value."
        ),
        click.option(
            "--far",
            type=RATE,
            help="Choose the threshold that accepts at most this share of the worst kind of impostors.  [default: the "
            "model's first operating point, else 0.01]",
        ),
        click.option(
            "--same",
            multiple=True,
            help="Compare only this view, such as speaker; may be repeated.  [default: all views; speaker for "
            "identify]",
        ),
        click.option(
            "--model",
            help="Model file of `mvplda train`, or folder of `mvplda setup`.  [default: the default model]",
        ),
    ):
        command = option(command)
    return command


def _check_sources(*sources: str | None) -> None:
    """Raise an error for a missing file or folder, before networks are loaded or asked for."""
    from ..exceptions import DataError

    for source in sources:
        if source is not None and not Path(source).exists():
            raise DataError(f"there is no file or folder {source}")


def extract_side(voices: VoiceModel, source: str) -> ExtractedVectors:
    """Return the vectors of a sound file, or of all recordings in the folder of one person."""
    from ..voice.audio.folders import list_recordings

    if Path(source).is_dir():
        people = list(dict.fromkeys(list_recordings([source]).labels.get("speaker", ())))
        if len(people) > 1:
            examples = ", ".join(people[:MAX_NAMED_FOLDERS])
            if len(people) > MAX_NAMED_FOLDERS:
                examples += ", ..."
            click.echo(
                f"mvplda: warning: {source} holds {len(people)} folders ({examples}); all their recordings are used "
                "as recordings of one person: pass the folder of one person",
                err=True,
            )
    return voices.side(list(list_sound_files([source]).values()))


def basis_sentence(bundle: Bundle, calibrated: bool, point: OperatingPoint) -> str:
    """Return a sentence about the model, its calibration and the origin of the threshold."""
    card = bundle.card or {}
    name = card.get("name", card.get("model", "chosen"))
    state = "calibrated for this question" if calibrated else "NOT calibrated for this question"
    return f"Model: {name}, {state}. Threshold: {point.basis}."


@click.command("verify")
@click.argument("test", metavar="ONE")
@click.argument("enrolled_source", metavar="[OTHER]", required=False)
@extractor_option(required=False)
@click.option(
    "--profiles",
    "profiles_file",
    help="Compare ONE with the profile --profile of this file, instead of with OTHER.",
)
@click.option("--profile", help="Name of the profile that ONE is compared with.")
@click.option(
    "--phrase",
    help="Name of the phrase that ONE should be; the profile's other phrases do not match.",
)
@click.option(
    "--words",
    help="Prompted English words, see `mvplda prompt`: ONE must be these words, and the voice alone is compared.",
)
@click.option(
    "--detector",
    "has_detector",
    is_flag=True,
    help="Also detect replays and resynthesis by the detector of the package; it misses many, see docs/attacks.md.",
)
@decision_options
def verify_command(
    test: str,
    enrolled_source: str | None,
    extractors: Texts,
    profiles_file: str | None,
    profile: str | None,
    phrase: str | None,
    words: str | None,
    has_detector: bool,
    model: str | None,
    same: Texts,
    as_json: bool,
    **point_options: float | None,
) -> None:
    """Decide whether two recordings match.

    ONE and OTHER are sound files, or folders with several recordings of one person. They match if the speaker and the
    phrase are the same; --same restricts the comparison to one of them. More recordings on the side of OTHER, the
    enrolled one, give clearer verdicts.

    The exit code is the verdict: 0 accept, 1 reject, 2 inconclusive (the LLR lies between the two limits, or a
    recording cannot be used); 3 reports unusable input or wrong usage.

    \b
    Examples:
      mvplda verify a.wav b.wav
      mvplda verify enrolled/ test.wav --far 0.005
      mvplda verify test.wav --profiles voices/ --profile ann --model voices/
      mvplda verify test.wav --profiles voices/ --profile ann --phrase hello --model voices/
      mvplda verify test.wav enrolled/ --words "seven stop two yes"
    """
    from ..scoring.question import Question
    from ..voice.profile_file import ProfileBook
    from ..voice.prompts import prompted_words, with_prompt
    from ..voice.spoof_detector import load_spoof_detector
    from ..voice.verification import VoiceModel, find_copies

    _check_sides(enrolled_source, profiles_file, profile, phrase)
    if has_detector and profiles_file is not None:
        raise click.UsageError(
            "--detector compares ONE with recordings, and profiles hold none: pass recordings as OTHER"
        )
    if words is not None and (same or phrase is not None):
        raise click.UsageError(
            "--words compares the voice alone: pass it without --same and --phrase"
        )
    _check_sources(test, enrolled_source)
    question = Question(same or None if words is None else "speaker")
    log_probability = None if words is None else _log_probability(test, words)
    voices = VoiceModel.load(model, extractors)
    if has_detector:
        voices.detector = load_spoof_detector()
    tested = extract_side(voices, test)
    if profiles_file is None:
        enrolled = extract_side(voices, str(enrolled_source))
    else:
        profiles = ProfileBook(profiles_file)
        profiles.check(voices.extractor.name)
        enrolled = profiles.of(str(profile), phrase)
        voices = voices.deployed(profiles)
    bundle = voices.bundle
    question = voices.with_countermeasure(question, enrolled, tested) or question
    point = voices.point(enrolled, question, **point_options)
    decision = voices.verify(enrolled, tested, question, **point_options)
    if words is not None:
        decision = with_prompt(decision, prompted_words(words), log_probability)
    report = {
        **decision.to_dict(),
        "verdict": decision.answer,
        "point": point.to_dict(),
        "extractor": voices.extractor.name,
        "quality": {"one": _quality_records(tested), "other": _quality_records(enrolled)},
    }
    lines = [
        decision.sentence(),
        f"{point.sentence()} {basis_sentence(bundle, decision.calibrated, point)}",
    ]
    if log_probability is not None:
        report["prompt_log_probability"] = log_probability
        lines.append(f"Log probability of the prompted words: {log_probability:.1f}.")
    if has_detector:
        llr = voices.bona_fide_llr(enrolled, tested)
        report["countermeasure_llr"] = llr
        lines.append(f"Detector: LLR {llr:+.2f} of a person against a replay or a machine.")
    if decision.advice:
        lines.append(decision.advice)
    lines += [*probability_lines(decision), *fault_warnings(decision.faults)]
    if decision.reason == "suspected_replay" and find_copies(tested, enrolled):
        lines.append("A recording is on both sides, unchanged or changed: a copy is not accepted.")
    print_and_exit(decision.answer, report, lines, as_json)


def _check_sides(
    enrolled_source: str | None, profiles_file: str | None, profile: str | None, phrase: str | None
) -> None:
    """Raise an error unless the enrolled side is either recordings or a profile of a file."""
    if (enrolled_source is None) == (profiles_file is None) or (profiles_file is None) != (
        profile is None
    ):
        raise click.UsageError(
            "pass two recordings, or one recording with --profiles FILE and --profile NAME"
        )
    if phrase is not None and profiles_file is None:
        raise click.UsageError("--phrase is the phrase of a profile: pass --profiles and --profile")


def probability_lines(decision: Decision) -> list[str]:
    """Return a line per hypothesis with its probability."""
    from ..kinds import SPOOF

    no_match = "nothing is the same"
    if len(decision.views) == 1:
        no_match = f"different {next(iter(decision.views))}"
    labels = {"nothing": no_match, SPOOF: "replay or synthetic speech"}
    return [
        f"  {labels.get(name) or 'same ' + name.replace('+', ' and ')}: {100 * probability:.2f} %"
        for name, probability in decision.probabilities.items()
    ]


def _log_probability(source: str, words: str) -> float:
    """Return the log probability of prompted words in a sound file."""
    from ..voice.audio.decode import read_audio
    from ..voice.extractors.decoder import load_decoder
    from ..voice.prompts import prompt_log_probability, prompted_words

    if Path(source).is_dir() or not words.split():
        raise click.UsageError("--words needs words, and one sound file that holds them")
    decoder = load_decoder()
    return prompt_log_probability(decoder, read_audio(source, decoder.rate), prompted_words(words))


@click.command("prompt")
@click.option(
    "--kind",
    type=click.Choice(["words", "digits"]),
    default="words",
    help="Kind of words that are drawn at random.",
)
@click.option(
    "--count", type=click.IntRange(2, 10), default=4, help="Number of words that are drawn."
)
def prompt_command(kind: PromptKind, count: int) -> None:
    """Print random words, to be said for a verification.

    Earlier recordings hold other words. `mvplda verify --words` checks them with the decoder of a recogniser of
    English (mvplda extractor get sounds --decoder).

    \b
    Example:
      mvplda prompt
    """
    from ..voice.prompts import draw_prompt

    click.echo(" ".join(draw_prompt(kind, count)))


def _quality_records(side: ExtractedVectors) -> list[Json]:
    return [quality.to_dict() for quality in side.qualities]


def fault_warnings(faults: Iterable[str]) -> list[str]:
    """Return a warning for each distinct fault of the recordings."""
    from ..decisions import FAULTS

    return [f"Warning: {FAULTS.get(fault, fault)}." for fault in dict.fromkeys(faults)]


def print_and_exit(
    verdict: str, report: Mapping[str, object], lines: Sequence[str], as_json: bool
) -> NoReturn:
    """Print the report as JSON or as lines; exit with the code of the verdict."""
    click.echo(json.dumps(report) if as_json else "\n".join(lines))
    sys.exit(EXIT_CODES[verdict])


@click.command("identify")
@click.argument("test")
@extractor_option(required=False)
@click.option(
    "--profiles", "profiles_file", required=True, help="Search the profiles of this file or folder."
)
@click.option("--top", type=COUNT, default=5, help="Number of candidates to print.")
@decision_options
def identify_command(
    test: str,
    extractors: Texts,
    profiles_file: str,
    top: int,
    model: str | None,
    same: Texts,
    as_json: bool,
    **point_options: float | None,
) -> None:
    """Decide which enrolled person speaks in a recording.

    TEST is a sound file, or a folder with several recordings of one person.

    The exit code is the verdict: 0 if a person is identified, 1 if it is none of them, 2 if it is inconclusive; 3
    reports unusable input or wrong usage. The threshold rises with the number of profiles.

    \b
    Example:
      mvplda identify unknown.wav --profiles voices/ --model voices/
    """
    from ..scoring.question import Question
    from ..voice.profile_file import ProfileBook
    from ..voice.verification import VoiceModel

    _check_sources(test)
    voices = VoiceModel.load(model, extractors)
    profiles = ProfileBook(profiles_file)
    profiles.all_vectors()
    profiles.check(voices.extractor.name)
    side = extract_side(voices, test)
    question = Question(same) if same else None
    result = voices.identify(side, profiles, question, **point_options)
    ranking = result.candidates[:top]
    keys = ("profile", "llr", "probability")
    report = {
        "verdict": result.answer,
        "named": result.profile,
        "none": result.none,
        "ranking": [dict(zip(keys, candidate, strict=True)) for candidate in ranking],
        "calibrated": result.calibrated,
        "point": result.point.to_dict(),
        "extractor": voices.extractor.name,
        "quality": _quality_records(side),
    }
    verdicts = {
        "accept": f"Identified: {result.profile}.",
        "reject": "None of the enrolled people.",
    }
    lines = [verdicts.get(result.answer, "Inconclusive.")]
    lines.append("     LLR  probability  profile")
    for name, llr, probability in ranking:
        lines.append(f"{llr:+8.2f}  {100 * probability:9.2f} %  {name}")
    lines.append(f"          {100 * result.none:9.2f} %  none of them")
    lines.append(
        f"Each LLR compares TEST with one profile. The probabilities of all {len(result.candidates)} profiles and of "
        f"none of them sum to 100 %; the prior probability of none of them is 50 %."
    )
    basis = basis_sentence(voices.bundle, result.calibrated, result.point)
    lines.append(f"{result.point.sentence()} {basis}")
    lines += fault_warnings(fault for quality in side.qualities for fault in quality.warnings)
    print_and_exit(result.answer, report, lines, as_json)
