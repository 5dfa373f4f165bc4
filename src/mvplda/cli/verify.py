"""Commands that decide about recordings, and draw words for them: verify, identify, prompt."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, NoReturn

import click

from .extractors import list_sound_files
from .options import COUNT, JSON, RATE, extractor_option, first_passed

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
"""Largest number of folders that a warning lists by name."""


def decision_options(command: Command) -> Command:
    """Add the options --model, --same, --far, --threshold and --json to a command."""
    for option in (
        JSON,
        click.option("--threshold", type=float, help="Accept if the LLR is at least this value."),
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


def profile_options(tested: str, recordings: str) -> Callable[[Command], Command]:
    """Return a decorator that adds the options for a profile as the enrolled side.

    tested : name of the tested side in help texts, such as "ONE"
    recordings : name of the argument with the recordings that a profile replaces, such as "OTHER"
    """

    def add_options(command: Command) -> Command:
        for option in (
            click.option(
                "--phrase",
                help=f"Name of the phrase that must be said in {tested}; other phrases of the profile do not match.",
            ),
            click.option(
                "--profile",
                help=f"Name of the profile that {tested} is compared with; needs --profiles.",
            ),
            click.option(
                "--profiles",
                "profiles_file",
                help=f"Compare {tested} with a profile in this file or folder, the one that --profile names, instead "
                f"of with {recordings}.",
            ),
        ):
            command = option(command)
        return command

    return add_options


class EnrolledSide(NamedTuple):
    """Origin of the enrolled side of a comparison: recordings, or a profile.

    recordings : sound file, or folder of one person; None with a profile
    profiles_file : file or folder of profiles; None with recordings
    profile : name of the profile
    phrase : name of the phrase that must be said; None: any phrase of the profile
    """

    recordings: str | None
    profiles_file: str | None
    profile: str | None
    phrase: str | None

    def check(self, expected: str) -> None:
        """Raise a usage error unless the side is either recordings or a profile.

        expected : the two correct ways to call the command, for the error
        """
        has_profile = self.profiles_file is not None
        if has_profile and self.profile is None:
            raise click.UsageError(f"--profiles needs --profile, the name of a profile: {expected}")
        if self.profile is not None and not has_profile:
            raise click.UsageError(f"--profile needs --profiles, a file or folder: {expected}")
        if (self.recordings is None) != has_profile:
            raise click.UsageError(expected)
        if self.phrase is not None and not has_profile:
            raise click.UsageError(
                "--phrase selects a phrase of a profile: pass it with --profiles and --profile"
            )

    def load(self, voices: VoiceModel) -> tuple[VoiceModel, ExtractedVectors]:
        """Return the model, and the vectors of the enrolled side.

        If the side is a profile, the model is adapted to the domain of all profiles in the file.
        """
        from ..voice.profile_file import ProfileBook

        if self.profiles_file is None:
            return voices, extract_side(voices, str(self.recordings))
        profiles = ProfileBook(self.profiles_file)
        profiles.check(voices.extractor.name)
        enrolled = profiles.of(str(self.profile), self.phrase)
        return voices.deployed(profiles), enrolled


def _check_sources(*sources: str | None) -> None:
    """Raise `DataError` for a missing file or folder, before extractors are loaded; None is skipped."""
    from ..exceptions import DataError

    for source in sources:
        if source is not None and not Path(source).exists():
            raise DataError(f"there is no file or folder {source}")


def extract_side(voices: VoiceModel, source: str) -> ExtractedVectors:
    """Return the vectors of a sound file, or of all recordings in the folder of one person.

    Warns if the folder has the folders of several people.
    """
    from ..voice.audio.folders import list_recordings

    if Path(source).is_dir():
        people = list(dict.fromkeys(list_recordings([source]).labels.get("speaker", ())))
        if len(people) > 1:
            examples = ", ".join(people[:MAX_NAMED_FOLDERS])
            if len(people) > MAX_NAMED_FOLDERS:
                examples += ", ..."
            click.echo(
                f"mvplda: warning: {source} contains folders of {len(people)} people ({examples}), and all their "
                "recordings are used as if one person had made them: pass the folder of one person",
                err=True,
            )
    return voices.side(list(list_sound_files([source]).values()))


def basis_sentence(bundle: Bundle, calibrated: bool, point: OperatingPoint) -> str:
    """Return a sentence about the model and its calibration, and one about how the threshold was chosen."""
    card = bundle.card or {}
    name = card.get("name", card.get("model", "chosen"))
    state = "calibrated for this question" if calibrated else "NOT calibrated for this question"
    return f"Model: {name}, {state}. Threshold: {point.basis}."


@click.command("verify")
@click.argument("test", metavar="ONE")
@click.argument("enrolled_source", metavar="[OTHER]", required=False)
@extractor_option(required=False)
@profile_options("ONE", "OTHER")
@click.option(
    "--words",
    help="English words that `mvplda prompt` printed: ONE must consist of these words, and only the voice is compared.",
)
@click.option(
    "--detector",
    "has_detector",
    is_flag=True,
    help="Also detect replayed and synthetic speech with the detector of the package; it misses many attacks, see "
    "docs/attacks.md.",
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
    phrase are the same; --same restricts the comparison to one of them. More enrolled recordings (OTHER) give clearer
    verdicts.

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
    from ..voice.prompts import prompted_words, with_prompt
    from ..voice.spoof_detector import load_spoof_detector
    from ..voice.verification import VoiceModel, find_copies

    enrolled_side = EnrolledSide(enrolled_source, profiles_file, profile, phrase)
    enrolled_side.check(
        "pass two recordings, or one recording with --profiles FILE and --profile NAME"
    )
    if has_detector and profiles_file is not None:
        raise click.UsageError(
            "--detector needs recordings on both sides, and a profile contains none: pass recordings as OTHER"
        )
    option = first_passed({"--same": bool(same), "--phrase": phrase is not None})
    if words is not None and option is not None:
        raise click.UsageError(f"--words compares only the voice: leave out {option}")
    _check_sources(test, enrolled_source)
    question = Question(same or None if words is None else "speaker")
    log_probability = None if words is None else _log_probability(test, words)
    voices = VoiceModel.load(model, extractors)
    if has_detector:
        voices.detector = load_spoof_detector()
    tested = extract_side(voices, test)
    voices, enrolled = enrolled_side.load(voices)
    question = voices.with_countermeasure(question, enrolled, tested) or question
    point = voices.point(enrolled, question, **point_options)
    decision = voices.verify(enrolled, tested, question, **point_options)
    if words is not None:
        decision = with_prompt(decision, prompted_words(words), log_probability)
    report, lines = decision_report(voices, decision, point)
    report["quality"] = {"one": _quality_records(tested), "other": _quality_records(enrolled)}
    if log_probability is not None:
        report["prompt_log_probability"] = log_probability
        lines.append(f"Log probability of the prompted words: {log_probability:.1f}.")
    if has_detector:
        llr = voices.bona_fide_llr(enrolled, tested)
        report["countermeasure_llr"] = llr
        lines.append(
            f"Detector: LLR {llr:+.2f} for a live person against a replay or synthetic speech."
        )
    lines += closing_lines(decision)
    if decision.reason == "suspected_replay" and find_copies(tested, enrolled):
        lines.append(
            "The same recording, or a changed copy of it, is on both sides: copies are not accepted."
        )
    print_and_exit(decision.answer, report, lines, as_json)


def decision_report(
    voices: VoiceModel, decision: Decision, point: OperatingPoint
) -> tuple[dict[str, object], list[str]]:
    """Return the values of a decision for JSON, and the first lines of its text: the verdict and its basis."""
    report = {
        **decision.to_dict(),
        "verdict": decision.answer,
        "point": point.to_dict(),
        "extractor": voices.extractor.name,
    }
    basis = basis_sentence(voices.bundle, decision.calibrated, point)
    return report, [decision.sentence(), f"{point.sentence()} {basis}"]


def closing_lines(decision: Decision) -> list[str]:
    """Return the last lines of a decision's text: advice, probabilities of hypotheses, faults of recordings."""
    advice = [decision.advice] if decision.advice else []
    return [*advice, *probability_lines(decision), *fault_warnings(decision.faults)]


def probability_lines(decision: Decision) -> list[str]:
    """Return a line per hypothesis with its probability in percent, after a note if the likeliest did not decide."""
    from ..kinds import SPOOF

    no_match = "nothing is the same"
    if len(decision.views) == 1:
        no_match = f"different {next(iter(decision.views))}"
    labels = {"nothing": no_match, SPOOF: "replay or synthetic speech"}
    note = decision.probability_note()
    return [
        *([note] if note else []),
        *(
            f"  {labels.get(name) or 'same ' + name.replace('+', ' and ')}: {100 * probability:.2f} %"
            for name, probability in decision.probabilities.items()
        ),
    ]


def _log_probability(source: str, words: str) -> float:
    """Return the logarithm of the probability that these words are said in a sound file, by a speech recogniser.

    Raises a usage error if there are no words, or if the source is a folder.

    source : sound file
    words : words separated by blanks
    """
    from ..voice.audio.decode import read_audio
    from ..voice.extractors.decoder import load_decoder
    from ..voice.prompts import prompt_log_probability, prompted_words

    if not words.split():
        raise click.UsageError("--words needs at least one word; got none")
    if Path(source).is_dir():
        raise click.UsageError(
            f"--words needs a single sound file as ONE; {source} is a folder: pass a file in it"
        )
    decoder = load_decoder()
    return prompt_log_probability(decoder, read_audio(source, decoder.rate), prompted_words(words))


@click.command("prompt")
@click.option(
    "--kind",
    type=click.Choice(["words", "digits"]),
    default="words",
    help="Draw from a list of words, or from the digits.",
)
@click.option(
    "--count", type=click.IntRange(2, 10), default=4, help="Number of words that are drawn."
)
def prompt_command(kind: PromptKind, count: int) -> None:
    """Print random words, to be said for a verification.

    A recording of somebody from an earlier day does not hold these words. `mvplda verify --words` checks that a
    recording holds them, with the decoder of a recogniser of English (mvplda extractor get sounds --decoder).

    \b
    Example:
      mvplda prompt
    """
    from ..voice.prompts import draw_prompt

    click.echo(" ".join(draw_prompt(kind, count)))


def _quality_records(side: ExtractedVectors) -> list[Json]:
    """Return the sound quality of each recording of a side, as values for JSON."""
    return [quality.to_dict() for quality in side.qualities]


def fault_warnings(faults: Iterable[str]) -> list[str]:
    """Return one warning per distinct fault, such as clipping, from the codes of `mvplda.decisions.FAULTS`."""
    from ..decisions import FAULTS

    return [f"Warning: {FAULTS.get(fault, fault)}." for fault in dict.fromkeys(faults)]


def print_and_exit(
    verdict: str, report: Mapping[str, object], lines: Sequence[str], as_json: bool
) -> NoReturn:
    """Print the report as JSON, or the lines as text; exit with the code of the verdict, see `EXIT_CODES`."""
    click.echo(json.dumps(report) if as_json else "\n".join(lines))
    sys.exit(EXIT_CODES[verdict])


@click.command("identify")
@click.argument("test")
@extractor_option(required=False)
@click.option(
    "--profiles", "profiles_file", required=True, help="Search the profiles in this file or folder."
)
@click.option(
    "--top", type=COUNT, default=5, help="Number of candidates to print, the most likely first."
)
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

    The exit code is the verdict: 0 if a person is identified, 1 if nobody enrolled speaks, 2 if the result is
    inconclusive; 3 reports unusable input or wrong usage. The threshold rises with the number of profiles.

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
