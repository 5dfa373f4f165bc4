"""mvplda verify, identify, profiles"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from ..exceptions import MvpldaError
from . import SPOOF_PRIOR, Number, in_a_line
from .extractors import extractor_option, load_extractors, recordings_in, warn

if TYPE_CHECKING:
    from ..extractors import Extracted, Extractor

TROUBLE = 3
"""Exit code of commands whose 1 and 2 are answers."""


class Answering(click.Command):
    """A command whose exit code is its answer: what cannot be answered ends with 3."""

    def make_context(self, *args: Any, **options: Any) -> click.Context:
        try:
            return super().make_context(*args, **options)
        except click.UsageError as error:
            error.show()
            sys.exit(TROUBLE)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            error.show()
            sys.exit(TROUBLE)
        except (MvpldaError, OSError) as error:
            if ctx.find_root().params.get("debug"):
                raise
            click.echo(f"mvplda: {in_a_line(str(error))}", err=True)
            sys.exit(TROUBLE)


def decision_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """What an answer rests on."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print JSON in place of text."),
        click.option(
            "--false-alarm-cost",
            type=Number(min=0),
            default=1.0,
            help="What accepting another voice costs; with --prior.",
        ),
        click.option(
            "--miss-cost",
            type=Number(min=0),
            default=1.0,
            help="What rejecting the right voice costs; with --prior.",
        ),
        click.option(
            "--prior",
            type=Number(0, 1, min_open=True, max_open=True),
            help="Decide by costs, where the voices are the same with this probability before anything is heard.",
        ),
        click.option(
            "--far",
            type=Number(0, 1, min_open=True, max_open=True),
            help="Accept so that at most this share of impostors passes, as far as the LLR is calibrated.  "
            "[default: accept and reject at ten to one]",
        ),
        click.option(
            "--same",
            multiple=True,
            help="Ask a model about this view, whatever the others are; may be repeated.",
        ),
        click.option(
            "--model",
            help="Score with this model or bundle of mvplda train.  [default: the extractor's cosine with a default "
            "calibration]",
        ),
    ):
        command = option(command)
    return command


def _model(path: str | None) -> Any:
    from ..persistence import load

    return None if path is None else load(path)


def _side(network: Extractor, sources: Sequence[str]) -> Extracted:
    return network.extract(list(recordings_in(sources).values()))


@click.command(cls=Answering)
@click.argument("one")
@click.argument("other", required=False)
@extractor_option()
@click.option(
    "--profiles", "book", help="Compare ONE with --profile of this file, instead of with OTHER."
)
@click.option("--profile", help="The profile that ONE claims to be.")
@click.option(
    "--phrase",
    help="Take as known that this phrase is claimed, one that the model was trained on: what training learnt of it "
    "sharpens the score.",
)
@click.option(
    "--countermeasure",
    type=Number(),
    help="Take into account what a detector of replays and synthetic voices says of ONE: its natural-log likelihood "
    "ratio of a person's voice against a spoof, which is low where ONE is suspicious.",
)
@SPOOF_PRIOR
@decision_options
def verify(
    one: str,
    other: str | None,
    extractors: tuple[str, ...],
    book: str | None,
    profile: str | None,
    phrase: str | None,
    countermeasure: float | None,
    spoof_prior: float | None,
    model: str | None,
    same: tuple[str, ...],
    far: float | None,
    prior: float | None,
    miss_cost: float,
    false_alarm_cost: float,
    as_json: bool,
) -> None:
    """Say whether ONE and OTHER are the same voice: sound files, or folders of several.

    The exit code is the answer: 0 accepts, 1 rejects, 2 could not decide (the LLR lies between the limits, or a
    recording holds no voice); 3 means that there was no answer, for the input or the call was at fault.

    \b
    Examples:
      mvplda verify a.wav b.wav --extractor campplus
      mvplda verify enrolled/ test.wav -x campplus --far 0.001
      mvplda verify test.wav --profiles voices.npz --profile ann -x campplus
    """
    from ..exceptions import LabelError
    from ..extractors.extractor import Extracted
    from ..extractors.verdict import Limits, ProfileBook
    from ..extractors.verdict import verify as compare

    if (other is None) == (book is None) or (book is None) != (profile is None):
        raise click.UsageError(
            "give two recordings, or one with --profiles FILE and --profile NAME"
        )
    if phrase is not None and model is None:
        raise click.UsageError("--phrase is for a model that knows phrases: add --model")
    network = load_extractors(extractors)
    limits = Limits.of(far, prior, miss_cost, false_alarm_cost)
    test = _side(network, [one])
    if book is None:
        assert other is not None
        known = _side(network, [other])
    else:
        voices = ProfileBook(book)
        voices.check(network)
        rows = [row for row, owner in enumerate(voices.owners) if owner == profile]
        if not rows or voices.vectors is None:
            raise LabelError(
                f"there is no profile {profile!r} in {book}; there are {', '.join(voices.counts()) or 'none'}"
            )
        known = Extracted(voices.vectors.X[rows], rows, [], [])
    options: dict[str, Any] = {"same": list(same)} if same else {}
    if phrase is not None:
        options["known"] = {"phrase": [phrase]}
    if spoof_prior is not None and countermeasure is None:
        raise click.UsageError(
            "--spoof-prior is a share of spoofs, of which a --countermeasure tells: give it too"
        )
    if countermeasure is not None:
        options |= {"countermeasure": countermeasure, "spoof_prior": spoof_prior}
    decision = compare(network, known, test, model=_model(model), limits=limits, options=options)
    if as_json:
        click.echo(
            json.dumps(
                {
                    "verdict": decision.verdict,
                    "views": list(decision.views),
                    "llr": decision.llr,
                    "accept_at": limits.accept,
                    "reject_at": limits.reject,
                    "score": decision.score,
                    "probabilities": decision.probabilities,
                    "basis": decision.basis,
                    "reasons": list(decision.reasons),
                    "extractor": network.name,
                    "quality": {
                        "one": [q.to_dict() for q in test.qualities],
                        "other": [q.to_dict() for q in known.qualities],
                    },
                }
            )
        )
    else:
        click.echo(decision.sentence())
        click.echo(
            f"Accepted from {limits.accept:+.2f}, rejected up to {limits.reject:+.2f}. It rests on {decision.basis}."
        )
        for name, p in (decision.probabilities or {}).items():
            click.echo(
                f"  the same {name}{'' if ' and ' in name or name == 'nothing' else ' only'}: {100 * p:.2f} %"
            )
        for reason in decision.reasons:
            click.echo(f"Mind: {reason}.")
    sys.exit({"accept": 0, "reject": 1, "inconclusive": 2}[decision.verdict])


@click.command(cls=Answering)
@click.argument("test")
@extractor_option()
@click.option("--profiles", "book", required=True, help="Look among the profiles of this file.")
@click.option("--top", type=click.IntRange(min=1), default=5, help="Print so many of the nearest.")
@decision_options
def identify(
    test: str,
    extractors: tuple[str, ...],
    book: str,
    top: int,
    model: str | None,
    same: tuple[str, ...],
    far: float | None,
    prior: float | None,
    miss_cost: float,
    false_alarm_cost: float,
    as_json: bool,
) -> None:
    """Say whose voice TEST is, among enrolled profiles.

    The exit code is 0 where the nearest is accepted, 1 where nobody is, 2 where it could not be decided, 3 where
    there was no answer.

    \b
    Example:
      mvplda identify unknown.wav --profiles voices.npz -x campplus
    """
    from ..exceptions import DataError
    from ..extractors.verdict import Limits, ProfileBook, score

    network = load_extractors(extractors)
    limits = Limits.of(far, prior, miss_cost, false_alarm_cost)
    voices = ProfileBook(book)
    if voices.vectors is None:
        raise DataError(f"there is no file of profiles {book}: make one with mvplda profiles add")
    voices.check(network)
    heard = _side(network, [test])
    options = {"same": list(same)} if same else {}
    names = list(voices.counts())
    speech = sum(quality.speech_s for quality in heard.qualities)
    llrs, basis, *_ = score(
        network,
        voices.vectors.X,
        voices.owners,
        heard.X,
        speech,
        model=_model(model),
        options=options,
    )
    order = sorted(range(len(names)), key=lambda row: -llrs[row])
    verdict = limits.verdict(float(llrs[order[0]]))
    if any(not quality.usable for quality in heard.qualities):
        verdict = "inconclusive"
    ranked = [(names[row], float(llrs[row])) for row in order[:top]]
    if as_json:
        click.echo(
            json.dumps(
                {
                    "verdict": verdict,
                    "ranking": [{"profile": name, "llr": llr} for name, llr in ranked],
                    "basis": basis,
                    "extractor": network.name,
                    "quality": [quality.to_dict() for quality in heard.qualities],
                }
            )
        )
    else:
        said = {"accept": f"This is {ranked[0][0]}", "reject": "This is none of them"}
        click.echo(f"{said.get(verdict, 'Nothing can be decided')}.")
        for name, llr in ranked:
            click.echo(f"{llr:+8.2f}  {name}")
        click.echo(f"It rests on {basis}.")
        warn(dict(zip(recordings_in([test]), heard.qualities, strict=True)))
    sys.exit({"accept": 0, "reject": 1, "inconclusive": 2}[verdict])


@click.group()
def profiles() -> None:
    """Enrolled voices in a file of vectors, which names the extractor that made them."""


@profiles.command()
@click.argument("file")
@click.argument("name")
@click.argument("recordings", nargs=-1, required=True, metavar="RECORDING...")
@extractor_option()
@click.option(
    "--min-speech",
    type=Number(min=0),
    default=1.0,
    help="Refuse recordings that hold less speech than this together, in seconds: a profile of a word is nobody's.",
)
def add(
    file: str,
    name: str,
    recordings: tuple[str, ...],
    extractors: tuple[str, ...],
    min_speech: float,
) -> None:
    """Add recordings to the profile NAME in FILE; both are made where they are not there.

    Example: mvplda profiles add voices.npz ann ann1.wav ann2.wav -x campplus
    """
    from ..exceptions import AudioError
    from ..extractors.verdict import ProfileBook
    from ..io.vectors import check_vectors_writable

    check_vectors_writable(file)
    book = ProfileBook(file)
    network = load_extractors(extractors)
    if book.vectors is not None:
        book.check(network)
    listed = recordings_in(recordings)
    found = _side(network, recordings)
    qualities = dict(zip(listed, found.qualities, strict=True))
    bad = [path for path, quality in qualities.items() if not quality.usable]
    if bad:
        raise AudioError(
            f"{bad[0]} holds no voice that could be enrolled: see mvplda quality {bad[0]}"
        )
    speech = sum(quality.speech_s for quality in found.qualities)
    if speech < min_speech:
        raise AudioError(
            f"the recordings hold {speech:.2f} s of speech, at least {min_speech:g} s are wanted: give more of them, "
            "or lower --min-speech"
        )
    book.add(name, network, found)
    warn(qualities)
    click.echo(f"{name}: {book.counts()[name]} recording(s) in {file}", err=True)


@profiles.command()
@click.argument("file")
@click.argument("name")
def remove(file: str, name: str) -> None:
    """Take the profile NAME out of FILE.

    Example: mvplda profiles remove voices.npz ann
    """
    from ..extractors.verdict import ProfileBook

    click.echo(
        f"{name}: {ProfileBook(file).remove(name)} recording(s) taken out of {file}", err=True
    )


@profiles.command("list")
@click.argument("file")
def list_profiles(file: str) -> None:
    """Print the profiles in FILE with their numbers of recordings.

    Example: mvplda profiles list voices.npz
    """
    from ..exceptions import DataError
    from ..extractors.verdict import ProfileBook

    book = ProfileBook(file)
    if book.vectors is None:
        raise DataError(f"there is no file of profiles {file}")
    click.echo(f"extractor: {book.extractor or 'not known'}", err=True)
    for name, count in book.counts().items():
        click.echo(f"{name}\t{count}")
