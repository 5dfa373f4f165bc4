"""mvplda jvector train, extract, export"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .options import KeyValue, warnings_as_lines

if TYPE_CHECKING:
    from ..audio.batch import Extracted
    from ..datasets.corpus import Clip


SOURCE = """\b
SOURCE is one of:
  wav.scp      lines of an id and a sound file
  a folder     of sound files; the id is the path without its suffix
  a table      .csv, .tsv or .parquet with a column path, and one a view; index.csv in a folder
  frames       .safetensors that FeatureSet.save wrote
"""


@click.group()
def jvector() -> None:
    """Networks that make one vector of an utterance.

    Train one on labelled sound, then extract vectors for mvplda train and mvplda score.

    \b
    Example:
      mvplda jvector train recordings --pattern "{speaker}/{phrase}_{session}.wav" --hold-out 0.2 -o net.safetensors
      mvplda jvector extract net.safetensors recordings -o vectors.npz
      mvplda train vectors.npz -l speaker=utt2spk -l phrase=utt2phrase -v speaker=20 -v phrase=9 -o model.safetensors
    """


def sound_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """How sound is read."""
    for option in (
        click.option("-q", "--quiet", is_flag=True, help="No progress."),
        click.option("--device", help="auto, cpu or cuda.  [default: auto: the GPU where there is one]"),
        click.option("--workers", type=int, help="Processes that read sound; default: one a core."),
        click.option("--cache", help="Folder to keep frames in, so that the next run need not make them."),
        click.option(
            "--on-error",
            type=click.Choice(["raise", "skip"]),
            default="raise",
            help="Stop at a damaged file, or name and skip it.",
        ),
    ):
        command = option(command)
    return command


@jvector.command(epilog=SOURCE)
@click.argument("source")
@click.option("-l", "--labels", multiple=True, type=KeyValue(), help="VIEW=FILE such as utt2spk, once a view.")
@click.option("--pattern", help="Labels from the names under a folder, such as {speaker}/{phrase}_{session}.wav.")
@click.option("-o", "--output", required=True, help="Extractor file to write.")
@click.option(
    "--network",
    type=click.Choice(["modern", "paper"]),
    help="modern: convolutions and attention. paper: sigmoid layers on stacked frames.  [default: modern]",
)
@click.option("--rbm", is_flag=True, help="Pre-train the paper's layers with restricted Boltzmann machines.")
@click.option("--config", help="TOML or JSON with tables network, training and features; options that are given win.")
@click.option("--epochs", type=int, help="At most so many.  [default: 30]")
@click.option("--batch", type=int, help="Utterances a step, frames for the paper's network.  [default: 64; paper: 256]")
@click.option("--learning-rate", type=float, help="The highest.  [default: 0.002; paper: 0.01]")
@click.option(
    "--hold-out", type=float, help="Share of a view's classes kept out, to choose the epoch by.  [default: 0]"
)
@click.option("--monitor", help="The view whose classes are held out; default: the first.")
@click.option("--patience", type=int, help="Stop after so many epochs without a lower held-out error.")
@click.option("--checkpoint", help="File that is written every epoch; where it is there, the training goes on from it.")
@click.option("--seed", type=int, help="Of everything that is drawn.  [default: 0]")
@sound_options
def train(
    source: str,
    labels: tuple[tuple[str, str], ...],
    pattern: str | None,
    output: str,
    network: str | None,
    rbm: bool,
    config: str | None,
    on_error: str,
    cache: str | None,
    workers: int | None,
    device: str | None,
    quiet: bool,
    **changes: Any,
) -> None:
    """Train an extractor on SOURCE and the labels of any number of views.

    \b
    Examples:
      mvplda jvector train wav.scp -l speaker=utt2spk -l phrase=utt2phrase --hold-out 0.2 -o extractor.safetensors
      mvplda jvector train recordings --pattern "{speaker}/{phrase}_{session}.wav" -o extractor.safetensors
      mvplda jvector train recordings --network paper --rbm --checkpoint run.checkpoint -o extractor.safetensors
    """
    from dataclasses import replace

    from ..jvector import PaperNetwork, Pretraining, default_training, network_from_dict, train, training_from_dict
    from ..jvector.settings import training_to_dict

    given = _configuration(config)
    with warnings_as_lines():
        chosen = {} if network is None else {"kind": network}
        settings = network_from_dict({"kind": "modern", **given["network"], **chosen})
        if rbm:
            if not isinstance(settings, PaperNetwork):
                raise click.UsageError("--rbm is of the paper's network: add --network paper")
            settings = replace(settings, pretraining=settings.pretraining or Pretraining())
        wanted = {name: value for name, value in {**changes, "device": device}.items() if value is not None}
        plain = training_to_dict(default_training(settings)) | given["training"] | wanted
        training = training_from_dict(plain)
        if not training.hold_out and (training.patience is not None or training.monitor is not None):
            raise click.UsageError("--patience and --monitor go by classes that are held out: add --hold-out 0.2")
        found, classes = _sound(
            source, given["features"], pattern, cache=cache, on_error=on_error, workers=workers, quiet=quiet
        )
        classes = _labels(dict(labels), classes, found)
        extractor = train(found.features, classes, settings, training, progress=not quiet)
        extractor.save(output)
    _tell_skipped(found)
    if not quiet:
        errors = [record["held_out_eer"] for record in extractor.history if "held_out_eer" in record]
        best = f", held-out EER {100 * min(errors):.2f} % in epoch {errors.index(min(errors)) + 1}" if errors else ""
        click.echo(f"wrote {output}: {extractor.name}, {extractor.n_parameters} parameters{best}", err=True)


@jvector.command(epilog=SOURCE)
@click.argument("extractor")
@click.argument("source")
@click.option("-o", "--output", required=True, help="Vectors to write: .scp, .ark, .npz, .npy, .parquet, .h5.")
@sound_options
def extract(
    extractor: str,
    source: str,
    output: str,
    on_error: str,
    cache: str | None,
    workers: int | None,
    device: str | None,
    quiet: bool,
) -> None:
    """Make one vector of every utterance of SOURCE; EXTRACTOR knows how its frames are made.

    \b
    Examples:
      mvplda jvector extract extractor.safetensors wav.scp -o vectors.scp
      mvplda jvector extract extractor.safetensors recordings -o vectors.parquet --on-error skip
    """
    from ..io.vectors import VectorSet, write_vectors
    from ..jvector import Extractor

    with warnings_as_lines():
        network = Extractor.load(extractor)
        found, _ = _sound(
            source, network.feature_settings, None, cache=cache, on_error=on_error, workers=workers, quiet=quiet
        )
        X = network.extract(found.features, device=device or "auto", progress=not quiet)
        write_vectors(output, VectorSet(found.features.ids, X, network.name))
    _tell_skipped(found)
    if not quiet:
        click.echo(f"wrote {len(X)} vectors of {network.dimension} numbers to {output}", err=True)


@jvector.command()
@click.argument("extractor")
@click.option("-o", "--output", required=True, help="ONNX file to write.")
def export(extractor: str, output: str) -> None:
    """Write an extractor as an ONNX graph: frames and lengths in, vectors out.

    Example: mvplda jvector export extractor.safetensors -o extractor.onnx
    """
    from ..jvector import Extractor, export_onnx

    with warnings_as_lines():
        difference = export_onnx(Extractor.load(extractor), output)
    click.echo(f"wrote {output}; onnxruntime and torch differ by {difference:.1e} of the largest value", err=True)


def _configuration(path: str | None) -> dict[str, Any]:
    """The tables network, training and features of a file; those that it lacks are empty."""
    import json
    import tomllib

    from ..exceptions import FileFormatError, ParameterError

    tables: dict[str, Any] = {"network": {}, "training": {}, "features": {}}
    if path is None:
        return tables
    text = Path(path).read_text(encoding="utf-8")
    try:
        read = json.loads(text) if path.endswith(".json") else tomllib.loads(text)
    except ValueError as error:
        raise FileFormatError(f"{path} is neither TOML nor, ending in .json, JSON: {error}") from error
    for name, table in read.items() if isinstance(read, dict) else [("", None)]:
        if name not in tables or not isinstance(table, dict):
            raise ParameterError(f"{path} has tables network, training and features; got {name!r}")
        tables[name] = table
    return tables


def _sound(
    source: str, settings: Any, pattern: str | None, *, quiet: bool, **options: Any
) -> tuple[Extracted, dict[str, Any]]:
    """Frames of a source, and its own labels by view and id, where it has some."""
    from ..audio import Extracted, FeatureSet, FeatureSettings, extract_features

    if source.endswith(".safetensors"):
        return Extracted(FeatureSet.load(source)), {}
    ids, clips, labels = _listed(source, pattern)
    found = extract_features(ids, clips, FeatureSettings.from_dict(settings), progress=not quiet, **options)
    return found, {view: dict(zip(ids, column, strict=True)) for view, column in labels.items()}


def _listed(source: str, pattern: str | None) -> tuple[list[str], Sequence[Clip], dict[str, Any]]:
    """Ids, places of sound and labels of a list, a table or a folder."""
    import numpy as np

    from ..datasets.corpus import Clip
    from ..datasets.layout import match_files, sound_files, without_suffix
    from ..datasets.tables import read_table
    from ..exceptions import DataError
    from ..io.lists import read_map

    place = Path(source)
    index = place / "index.csv" if place.is_dir() and pattern is None else place
    if index.is_file() and index.suffix in (".csv", ".tsv", ".parquet"):
        table = read_table(index)
        return table.ids.tolist(), table.clips, dict(table.labels)
    if not place.is_dir():
        entries = read_map(source)
        return list(entries), [Clip(Path(path)) for path in entries.values()], {}
    if pattern is not None:
        matched = match_files(place, pattern, what=source)
        views = {field: column for field, column in matched.fields.items() if field != "session"}
        return without_suffix(matched.paths).tolist(), matched.clips, views
    files = np.array(sound_files(place), dtype=np.str_)
    if not len(files):
        raise DataError(f"there are no sound files under {source}")
    return without_suffix(files).tolist(), [Clip(place / name) for name in files.tolist()], {}


def _labels(paths: dict[str, str], own: dict[str, Any], found: Extracted) -> dict[str, Any]:
    """Labels of the utterances that have frames: from files, and else the source's own."""
    import numpy as np

    from ..io.lists import read_labels

    if not paths and not own:
        raise click.UsageError("say what the labels are: -l VIEW=FILE, or --pattern for a folder")
    names = [str(name) for name in found.features.ids]
    labels = {view: np.array([of[name] for name in names], dtype=object) for view, of in own.items()}
    return labels | read_labels(paths, names)


def _tell_skipped(found: Extracted) -> None:
    for name, reason in found.skipped:
        click.echo(f"mvplda: skipped {name}: {reason}", err=True)
