"""mvplda jvector train, extract, export"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from . import SEED, Number, Registered, Written, labels_option, once, output_option

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..speech.features import Extracted, FeatureSet, FeatureSettings
    from ..speech.features.reading import Clip


SOURCE = """\b
SOURCE is one of:
  wav.scp      lines of an id and a sound file
  a folder     of sound files; the id is the path without its suffix
  sound        a file such as a.wav or a.flac; the id is its name without the suffix
  a table      .csv, .tsv or .parquet with a column path, and one a view; index.csv in a folder
  frames       .safetensors that FeatureSet.save wrote

Blanks in ids become underscores, for lists could not hold them; labels keep theirs.
"""
EXPECTED = "a list of ids and sound files (wav.scp), a folder, a sound file, a table (.csv, .tsv, .parquet) or frames"


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
        click.option(
            "-q", "--quiet", is_flag=True, help="Print no progress; warnings are still shown."
        ),
        click.option(
            "--device",
            help="Compute on auto, cpu or cuda.  [default: auto, the GPU where there is one]",
        ),
        click.option(
            "--workers",
            type=click.IntRange(min=1),
            help="Read sound in so many processes.  [default: one a core]",
        ),
        click.option(
            "--cache", help="Keep frames in this folder, so that the next run need not make them."
        ),
        click.option(
            "--on-error",
            type=click.Choice(["raise", "skip"]),
            default="raise",
            help="Stop at a sound file that cannot be used, or name it and go on without it.",
        ),
    ):
        command = option(command)
    return command


@jvector.command(epilog=SOURCE)
@click.argument("source")
@labels_option(
    "VIEW=FILE: read the classes of a view from FILE, such as utt2spk (utterance id, class). Give one for every view."
)
@click.option(
    "--pattern",
    help="Take the labels from the names under a folder, such as {speaker}/{phrase}_{session}.wav.",
)
@output_option("Write the extractor to this file.")
@click.option(
    "--network",
    type=Registered("network", "speech.networks.NETWORKS"),
    help="Train convolutions with attention (modern), or sigmoid layers on stacked frames (paper).  [default: modern]",
)
@click.option(
    "--rbm", is_flag=True, help="Pre-train the paper's layers with restricted Boltzmann machines."
)
@click.option(
    "--config",
    help="Take the tables network, training and features from this file (TOML, or JSON by its suffix); the "
    "configuration that `mvplda experiment` leaves is one. Options that are given win.",
)
@click.option(
    "--epochs", type=click.IntRange(min=1), help="Stop after this many epochs.  [default: 30]"
)
@click.option(
    "--batch",
    type=click.IntRange(min=1),
    help="Take so many utterances a step, or frames for the paper's network.  [default: 64; paper: 256]",
)
@click.option(
    "--learning-rate",
    type=Number(min=0, min_open=True),
    help="Make steps of this size at most.  [default: 0.002; paper: 0.01]",
)
@click.option(
    "--hold-out",
    type=Number(0, 1, max_open=True),
    help="Keep this share of a view's classes out of the training, and keep the epoch that tells them apart best.  "
    "[default: 0]",
)
@click.option("--monitor", help="Hold out classes of this view.  [default: the first]")
@click.option(
    "--patience",
    type=click.IntRange(min=1),
    help="Stop after so many epochs without a lower held-out error.",
)
@click.option(
    "--checkpoint",
    type=Written(),
    help="Write the state to this file every epoch; where it is there, the training goes on from it.",
)
@click.option(
    "--seed",
    "random_state",
    type=SEED,
    help="Draw everything with this seed; it gives the same network.  [default: 0]",
)
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

    from ..io.files import read_labels
    from ..speech.experiment.configuration import read_configuration
    from ..speech.experiment.extraction import Variants
    from ..speech.networks import PaperNetwork, Pretraining, train

    wanted = {
        name: value for name, value in {**changes, "device": device}.items() if value is not None
    }
    settings = read_configuration(
        config, {"network": {} if network is None else {"kind": network}, "training": wanted}
    )
    body, training = settings.network, settings.training
    if rbm:
        if not isinstance(body, PaperNetwork):
            raise click.UsageError("--rbm is of the paper's network: add --network paper")
        body = replace(body, pretraining=body.pretraining or Pretraining())
    if not training.hold_out and (training.patience is not None or training.monitor is not None):
        raise click.UsageError(
            "--patience and --monitor go by classes that are held out: add --hold-out 0.2"
        )
    if settings.variants != Variants():
        click.echo(
            f"mvplda: the voices and copies of {config} are made by `mvplda experiment` only",
            err=True,
        )
    listed = _listed([source], pattern)
    classes = listed.labels | read_labels(once("--labels", labels), listed.ids)
    if not classes:
        raise click.UsageError("say what the labels are: -l VIEW=FILE, or --pattern for a folder")
    found = listed.frames(
        settings.features, cache=cache, on_error=on_error, workers=workers, verbose=not quiet
    )
    place = {name: row for row, name in enumerate(listed.ids)}
    rows = [place[str(name)] for name in found.features.ids]  # those that were not skipped
    classes = {view: column[rows] for view, column in classes.items()}
    extractor = train(found.features, classes, body, training, verbose=not quiet)
    extractor.save(output)
    _tell_skipped(found)
    if not quiet:
        errors = [
            record["held_out_eer"] for record in extractor.history if "held_out_eer" in record
        ]
        best = (
            f", held-out EER {100 * min(errors):.2f} % in epoch {errors.index(min(errors)) + 1}"
            if errors
            else ""
        )
        click.echo(
            f"wrote {output}: {extractor.name}, {extractor.n_parameters} parameters{best}", err=True
        )


@jvector.command(epilog=SOURCE)
@click.argument("extractor")
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@click.option(
    "-o",
    "--output",
    required=True,
    help="Write the vectors to this file, in the format of its suffix: .scp, .ark, .npz, .npy, .parquet, .arrow, .h5.",
)
@sound_options
def extract(
    extractor: str,
    sources: tuple[str, ...],
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
      mvplda jvector extract extractor.safetensors ann.wav bob.wav -o vectors.npz
    """
    from ..io.vectors import VectorSet, check_vectors_writable, write_vectors
    from ..speech.features import FeatureSettings
    from ..speech.networks import Extractor

    check_vectors_writable(output)
    network = Extractor.load(extractor)
    settings = FeatureSettings.from_dict(network.feature_settings)
    found = _listed(sources).frames(
        settings, cache=cache, on_error=on_error, workers=workers, verbose=not quiet
    )
    X = network.extract(found.features, device=device or "auto", verbose=not quiet)
    write_vectors(output, VectorSet(found.features.ids, X, network.name))
    _tell_skipped(found)
    if not quiet:
        click.echo(f"wrote {len(X)} vectors of {network.dimension} numbers to {output}", err=True)


@jvector.command()
@click.argument("extractor")
@output_option("Write the graph to this file, such as extractor.onnx.")
def export(extractor: str, output: str) -> None:
    """Write an extractor as an ONNX graph: frames and lengths in, vectors out.

    Example: mvplda jvector export extractor.safetensors -o extractor.onnx
    """
    from ..speech.networks import Extractor, export_onnx

    difference = export_onnx(Extractor.load(extractor), output)
    click.echo(
        f"wrote {output}; onnxruntime and torch differ by {difference:.1e} of the largest value",
        err=True,
    )


class _Listed(NamedTuple):
    """Ids, labels, and where the sound or the frames of utterances lie."""

    ids: list[str]
    labels: dict[str, NDArray[Any]]
    clips: list[Clip]
    features: FeatureSet | None = None

    def frames(self, settings: FeatureSettings, **options: Any) -> Extracted:
        from ..speech.features import Extracted, extract_features

        if self.features is not None:
            return Extracted(self.features)
        return extract_features(self.ids, self.clips, settings, **options)


def _listed(sources: Sequence[str], pattern: str | None = None) -> _Listed:
    """What some sources list, labels only where there is one."""
    from ..exceptions import DataError
    from ..io.files import repeated
    from ..speech.corpora.corpus import safe_ids
    from ..speech.features import FeatureSet

    if len(sources) == 1 and sources[0].endswith(".safetensors"):
        features = FeatureSet.load(sources[0])
        return _Listed([str(name) for name in features.ids], {}, [], features)
    parts = [_read_source(source, pattern) for source in sources]
    ids = safe_ids(name for part in parts for name in part.ids)
    count, first = repeated(ids)
    if count:
        raise DataError(
            f"{count} utterance(s) have the id of another, the first is {first!r}: give the folder that holds them, "
            "or a list of ids and sound files"
        )
    return _Listed(
        ids,
        parts[0].labels if len(parts) == 1 else {},
        [clip for part in parts for clip in part.clips],
    )


def _read_source(source: str, pattern: str | None) -> _Listed:
    """What a list, a table, a sound file or a folder says."""
    import numpy as np

    from ..exceptions import DataError, FileFormatError
    from ..io.files import read_map
    from ..speech.corpora.folder import SOUND, match_files, read_table, sound_files, without_suffix
    from ..speech.features.reading import Clip

    place = Path(source)
    if pattern is not None and not place.is_dir():
        raise click.UsageError(
            f"--pattern takes labels from the names under a folder; {source} is none"
        )
    index = place / "index.csv" if place.is_dir() and pattern is None else place
    if index.is_file() and index.suffix in (".csv", ".tsv", ".parquet"):
        table = read_table(index)
        return _Listed(table.ids.tolist(), dict(table.labels), list(table.clips))
    if place.suffix.lower() in SOUND and not place.is_dir():
        return _Listed([place.stem], {}, [Clip(place)])
    if not place.is_dir():
        try:
            entries = read_map(source)
        except FileFormatError as error:
            raise FileFormatError(f"{error}. Expected {EXPECTED}") from error
        return _Listed(list(entries), {}, [Clip(Path(path)) for path in entries.values()])
    if pattern is not None:
        matched = match_files(place, pattern, what=source)
        views = {field: column for field, column in matched.fields.items() if field != "session"}
        return _Listed(without_suffix(matched.paths).tolist(), views, list(matched.clips))
    files = np.array(sound_files(place), dtype=np.str_)
    if not len(files):
        raise DataError(f"there are no sound files under {source}")
    return _Listed(
        without_suffix(files).tolist(), {}, [Clip(place / name) for name in files.tolist()]
    )


def _tell_skipped(found: Extracted) -> None:
    for name, reason in found.skipped:
        click.echo(f"mvplda: skipped {name}: {reason}", err=True)
