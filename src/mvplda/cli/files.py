"""mvplda info, mvplda convert"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from . import COUNT, JSON, Written

if TYPE_CHECKING:
    from .._typing import Json


@click.command()
@click.argument("file")
@JSON
def info(file: str, as_json: bool) -> None:
    """Say what is in FILE, one that mvplda wrote or one of vectors, or in a folder of mvplda setup.

    \b
    FILE is one of:
      .safetensors   a model, bundle, calibrator or statistics
      vectors        .scp, .ark, .npz, .parquet, .csv, a folder of Kaldi's
      a folder       of mvplda setup, in short

    \b
    Examples:
      mvplda info model.safetensors
      mvplda info stats.safetensors --json
      mvplda info xvector.scp
      mvplda info voices/
    """
    from ..io.streams import is_stream

    folder = Path(file)
    if _names_vectors(file) or is_stream(file) or any(folder.glob("*.scp")):
        about = _about_vectors(file)
    elif folder.is_dir():
        about = _about_folder(folder)
    else:
        about = _about_safetensors(file)
    click.echo(json.dumps(about, indent=2) if as_json else "\n".join(text_lines(about)))


def _about_folder(folder: Path) -> Json:
    """What setup wrote into a folder, in short."""
    from ..model_files import MODEL_FILE, load_model
    from ..voice.profile_file import ProfileBook

    file = str(folder / MODEL_FILE)
    profiles = ProfileBook(folder)
    bundle = load_model(file)
    card = dict(bundle.card or {})
    point = bundle.point()
    return {
        "kind": "folder of mvplda setup",
        "model": card.get("name", card.get("model")),
        "extractor": bundle.extractor,
        "people": len(profiles.counts()),
        "phrases": len({*profiles.columns["phrase"]} - {""}),
        "threshold": f"{point.threshold:.2f}, {point.basis}",
        "report": card.get("report", "").splitlines(),
        "more": f"mvplda info {file}; mvplda profiles list {folder}",
    }


def _names_vectors(file: str) -> bool:
    from ..io.kaldi_names import is_kaldi
    from ..io.vectors import SUFFIXES

    return is_kaldi(file) or file.lower().removesuffix(".gz").endswith(SUFFIXES)


def text_lines(about: Json, indent: str = "") -> Iterator[str]:
    for name, value in about.items():
        if isinstance(value, dict):
            yield f"{indent}{name}:"
            yield from text_lines(value, indent + "  ")
        elif isinstance(value, list) and name == "report":
            yield from value
        else:
            shown = f"{value:.4g}" if isinstance(value, float) else value
            yield f"{indent}{name}: {shown}"


def _about_vectors(file: str) -> Json:
    from ..io.streams import is_stream
    from ..io.vectors import open_vectors, read_vectors

    vectors = read_vectors(file)
    columns = [] if is_stream(file) else open_vectors(file).columns
    return {
        "kind": "vectors",
        "vectors": len(vectors),
        "dimension": vectors.X.shape[1],
        "type": str(vectors.X.dtype),
        "first id": str(vectors.ids[0]),
        "columns": [name for name in columns if name != "ids"],
    }


def _about_safetensors(file: str) -> Json:
    """What a file of ours holds, whatever it is."""
    from ..exceptions import FileFormatError
    from ..persistence import load, read_metadata

    try:
        metadata = read_metadata(file)
    except FileFormatError as error:
        if file.endswith(".safetensors"):
            raise
        raise FileFormatError(
            f"{file} is neither a .safetensors file of mvplda nor, by its name, one of vectors: see mvplda info --help"
        ) from error
    held = load(file)
    return {"kind": held.KIND, **held.describe(), "fingerprint": metadata["fingerprint"]}


@click.command()
@click.argument("source")
@click.argument("target", type=Written())
@click.option(
    "--as",
    "what",
    type=click.Choice(["vectors", "trials", "scores", "plda", "pyannote", "scorer"]),
    help="Take SOURCE to hold this.  [default: vectors, where both names say so; a scorer, where TARGET is .onnx]",
)
@click.option(
    "--enrolled",
    type=COUNT,
    default=1,
    show_default=True,
    help="Vectors a profile in an ONNX graph.",
)
def convert(
    source: str,
    target: str,
    what: str | None,
    enrolled: int,
) -> None:
    """Write SOURCE in another format to TARGET.

    \b
    vectors   by their names: .scp, .ark, .npz, .parquet, .csv
    trials    read: kaldi, voxceleb, rsr2015, table; written: kaldi, csv
    scores    read: kaldi, table; written: kaldi, csv
    plda      one-view models between .safetensors and Kaldi's <Plda>
    pyannote  the same with their preprocessing, and a folder of pyannote.audio's VBx
    scorer    a model with its preprocessing and calibration, as an ONNX graph:
              enrol (profiles, --enrolled, D) and test (tests, D) in, llr (profiles, tests) out

    \b
    Examples:
      mvplda convert xvector.scp xvector.parquet
      mvplda convert trials trials.csv --as trials
      mvplda convert kaldi.plda model.safetensors --as plda
      mvplda convert model.safetensors scorer.onnx --enrolled 3
    """
    what = what or _what_is_meant(source, target)
    if os.path.realpath(source) == os.path.realpath(target):
        raise click.UsageError(f"{source}, which is read, would be overwritten: name another file")
    if what == "vectors":
        from ..io.vectors import read_vectors, write_vectors

        write_vectors(target, read_vectors(source))
    elif what == "trials":
        from ..io.trials import read_trials, write_trials

        write_trials(target, read_trials(source))
    elif what == "scores":
        from ..io.trials import read_scores, write_scores

        write_scores(target, read_scores(source))
    elif what == "scorer":
        from ..io.onnx import write_onnx
        from ..persistence import load

        write_onnx(target, load(source), enrolled=enrolled)
    elif what == "pyannote":
        from ..io.plda_files import read_pyannote, write_pyannote
        from ..model_files import load_model

        if source.endswith(".safetensors"):
            write_pyannote(target, load_model(source))
        else:
            read_pyannote(source).save(target)
    else:
        _convert_plda(source, target)


def _what_is_meant(source: str, target: str) -> str:
    """What a file holds, where the names leave no doubt."""
    if target.endswith(".onnx"):
        return "scorer"
    if _names_vectors(source) and _names_vectors(target):
        return "vectors"
    raise click.UsageError(
        "say what the file holds: --as vectors, trials, scores, plda, pyannote or scorer"
    )


def _convert_plda(source: str, target: str) -> None:
    """Between our files and Kaldi's <Plda>."""
    from ..io.plda_files import read_kaldi_plda, write_kaldi_plda
    from ..model_files import load_model

    if not source.endswith(".safetensors"):
        read_kaldi_plda(source).save(target)
        return
    write_kaldi_plda(target, load_model(source).fitted_scorer)
