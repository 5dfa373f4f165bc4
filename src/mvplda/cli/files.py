"""Commands that show and convert files of any kind: info, convert."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .options import COUNT, JSON, OutputFile

if TYPE_CHECKING:
    from .._typing import Json


@click.command("info")
@click.argument("file")
@JSON
def info_command(file: str, as_json: bool) -> None:
    """Show the contents of a file or folder.

    \b
    FILE is one of:
      .safetensors   model, bundle, calibrator or statistics
      vectors        .scp, .ark, .npz, .parquet, .csv, or a Kaldi data folder
      folder         output of mvplda setup (summary)

    \b
    Examples:
      mvplda info model.safetensors
      mvplda info stats.safetensors --json
      mvplda info xvector.scp
      mvplda info voices/
    """
    from ..io.streams import is_stream

    folder = Path(file)
    if _has_vector_suffix(file) or is_stream(file) or any(folder.glob("*.scp")):
        contents = _describe_vectors(file)
    elif folder.is_dir():
        contents = _describe_folder(folder)
    else:
        contents = _describe_safetensors(file)
    click.echo(json.dumps(contents, indent=2) if as_json else "\n".join(text_lines(contents)))


def _describe_folder(folder: Path) -> Json:
    """Return a summary of a folder of `mvplda setup`: model, numbers of people and phrases, thresholds, report."""
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
        "thresholds": f"{point.sentence()} Basis: {point.basis}.",
        "report": card.get("report", "").splitlines(),
        "more": f"mvplda info {file}; mvplda profiles list {folder}",
    }


def _has_vector_suffix(file: str) -> bool:
    """Return whether the name of a file has the suffix of a format for vectors."""
    from ..io.kaldi_names import is_kaldi
    from ..io.vectors import SUFFIXES

    return is_kaldi(file) or file.lower().removesuffix(".gz").endswith(SUFFIXES)


def text_lines(contents: Json, indent: str = "") -> Iterator[str]:
    """Yield an indented line "name: value" per entry of a nested dictionary.

    The value of "report" is a list of lines, which are yielded unchanged.
    """
    for name, value in contents.items():
        if isinstance(value, dict):
            yield f"{indent}{name}:"
            yield from text_lines(value, indent + "  ")
        elif isinstance(value, list) and name == "report":
            yield from value
        else:
            text = f"{value:.4g}" if isinstance(value, float) else value
            yield f"{indent}{name}: {text}"


def _describe_vectors(file: str) -> Json:
    """Return a description of a file or stream of vectors: number, dimension, type, first id, label columns."""
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


def _describe_safetensors(file: str) -> Json:
    """Return a description of a .safetensors file of mvplda: kind of object, summary of its contents, fingerprint.

    Raises `FileFormatError` for any other file.
    """
    from ..exceptions import FileFormatError
    from ..persistence import load
    from ..tensor_files import read_metadata

    try:
        metadata = read_metadata(file)
    except FileFormatError as error:
        if file.endswith(".safetensors"):
            raise
        raise FileFormatError(
            f"{file} is not a .safetensors file of mvplda, and its suffix is not that of a file of vectors: run "
            "`mvplda info --help` to list the accepted files"
        ) from error
    saved = load(file)
    return {"kind": saved.KIND, **saved.describe(), "fingerprint": metadata["fingerprint"]}


@click.command("convert")
@click.argument("source")
@click.argument("target", type=OutputFile())
@click.option(
    "--as",
    "content",
    type=click.Choice(["vectors", "trials", "scores", "plda", "pyannote", "scorer"]),
    help="Read SOURCE as content of this kind.  [default: scorer if TARGET is .onnx; vectors if both suffixes are of "
    "vectors; plda if SOURCE is a <Plda> file of Kaldi]",
)
@click.option(
    "--enrolled",
    type=COUNT,
    default=1,
    show_default=True,
    help="Number of vectors per profile that the ONNX graph takes.",
)
def convert_command(
    source: str,
    target: str,
    content: str | None,
    enrolled: int,
) -> None:
    """Convert vectors, trials, scores and models.

    Reads SOURCE and writes its content to TARGET. The content is one of:

    \b
    vectors   formats by suffix: .scp, .ark, .npz, .parquet, .csv
    trials    reads kaldi, voxceleb, rsr2015, table; writes kaldi, csv
    scores    reads kaldi, table; writes kaldi, csv
    plda      one-view models, between .safetensors and Kaldi's <Plda>
    pyannote  one-view models with preprocessing, between .safetensors and a folder of pyannote.audio's VBx
    scorer    model with preprocessing and calibration, to an ONNX graph with the
              inputs enrol (profiles, --enrolled, D) and test (tests, D) and the output llr (profiles, tests)

    \b
    Examples:
      mvplda convert xvector.scp xvector.parquet
      mvplda convert trials trials.csv --as trials
      mvplda convert kaldi.plda model.safetensors
      mvplda convert model.safetensors scorer.onnx --enrolled 3
    """
    content = content or _detect_content(source, target)
    if os.path.realpath(source) == os.path.realpath(target):
        raise click.UsageError(f"TARGET would overwrite {source}: choose another output file")
    if content == "vectors":
        from ..io.vectors import read_vectors, write_vectors

        write_vectors(target, read_vectors(source))
    elif content == "trials":
        from ..io.trials import read_trials, write_trials

        write_trials(target, read_trials(source))
    elif content == "scores":
        from ..io.trials import read_scores, write_scores

        write_scores(target, read_scores(source))
    elif content == "scorer":
        from ..io.onnx import write_onnx
        from ..persistence import load

        write_onnx(target, load(source), enrolled=enrolled)
    elif content == "pyannote":
        from ..io.plda_files import read_pyannote, write_pyannote
        from ..model_files import load_model

        if source.endswith(".safetensors"):
            write_pyannote(target, load_model(source))
        else:
            read_pyannote(source).save(target)
    else:
        _convert_plda(source, target)


def _detect_content(source: str, target: str) -> str:
    """Return the content to convert: scorer, vectors or plda, from the suffixes or the first bytes of the source.

    Raises a usage error if they do not determine the content.
    """
    if target.endswith(".onnx"):
        return "scorer"
    if _has_vector_suffix(source) and _has_vector_suffix(target):
        return "vectors"
    from ..io.plda_files import is_kaldi_plda

    if is_kaldi_plda(source):
        return "plda"
    raise click.UsageError(
        f"the suffixes of {source} and {target} do not determine what to convert: pass --as vectors, trials, scores, "
        "plda, pyannote or scorer"
    )


def _convert_plda(source: str, target: str) -> None:
    """Convert a .safetensors model to Kaldi's <Plda>; a source with any other suffix is read as Kaldi's <Plda>."""
    from ..io.plda_files import read_kaldi_plda, write_kaldi_plda
    from ..model_files import load_model

    if not source.endswith(".safetensors"):
        read_kaldi_plda(source).save(target)
        return
    write_kaldi_plda(target, load_model(source).fitted_scorer)
