"""mvplda info, mvplda convert, mvplda completion"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click


@click.command()
@click.argument("file")
@click.option("--json", "as_json", is_flag=True, help="For machines.")
def info(file: str, as_json: bool) -> None:
    """Say what is in a model, profile or vector file.

    Example: mvplda info model.safetensors
    """
    from ..io.vectors import SUFFIXES

    about = _about_vectors(file) if file.endswith(SUFFIXES) or ":" in file[:6] else _about_safetensors(file)
    if as_json:
        click.echo(json.dumps(about, indent=2))
        return
    for name, value in about.items():
        if isinstance(value, dict):
            click.echo(f"{name}:")
            for key, item in value.items():
                click.echo(f"  {key}: {_shown(item)}")
        else:
            click.echo(f"{name}: {_shown(value)}")


def _shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _about_vectors(file: str) -> dict[str, Any]:
    import numpy as np

    from ..io.vectors import read_vectors

    vectors = read_vectors(file)
    lengths = np.linalg.norm(vectors.X, axis=1)
    return {
        "kind": "vectors",
        "vectors": len(vectors),
        "dimension": vectors.dimension,
        "type": str(vectors.X.dtype),
        "first id": str(vectors.ids[0]),
        "length": {"least": float(lengths.min()), "median": float(np.median(lengths)), "most": float(lengths.max())},
    }


def _about_safetensors(file: str) -> dict[str, Any]:
    from ..files import describe_model, read_metadata
    from ..verification.storage import FORMAT, load_profiles

    if read_metadata(file).get("format") == FORMAT:
        profiles = load_profiles(file)
        return {
            "kind": "profiles",
            "profiles": len(profiles),
            "vectors": int(profiles.counts.sum()),
            "first id": str(profiles.ids[0]),
            "model": profiles.model,
        }
    return {"kind": "model", **describe_model(file)}


@click.command()
@click.argument("source")
@click.argument("target")
@click.option(
    "--as", "what", type=click.Choice(["vectors", "trials", "scores", "plda"]), help="Default: from the names."
)
@click.option("--from-format", help="Of trials and scores; default: seen from the contents.")
@click.option("--to-format", help="Of trials, scores and PLDA models.")
def convert(source: str, target: str, what: str | None, from_format: str | None, to_format: str | None) -> None:
    """Write SOURCE in another format to TARGET.

    \b
    Examples:
      mvplda convert xvector.scp xvector.parquet
      mvplda convert trials trials.csv --as trials
      mvplda convert kaldi.plda model.safetensors --as plda
    """
    from ..io.vectors import SUFFIXES

    if what is None:
        what = "vectors" if source.endswith(SUFFIXES) and target.endswith(SUFFIXES) else None
        if what is None:
            raise click.UsageError("say what the file holds: --as vectors, trials, scores or plda")
    if what == "vectors":
        from ..io.vectors import read_vectors, write_vectors

        write_vectors(target, read_vectors(source))
    elif what == "trials":
        from ..io.trial_files import read_trials, write_trials

        write_trials(target, read_trials(source, from_format), to_format)
    elif what == "scores":
        from ..io.scores import read_scores, write_scores

        write_scores(target, read_scores(source, from_format), to_format)
    else:
        _convert_plda(source, target, to_format)


def _convert_plda(source: str, target: str, to_format: str | None) -> None:
    """Between our files, Kaldi's <Plda> (to-format kaldi or kaldi-text), and .npz or .h5 of other toolkits."""
    from ..bundle import load
    from ..io.interchange import read_kaldi_plda, read_numpy_plda, write_kaldi_plda, write_numpy_plda

    if source.endswith(".safetensors"):
        loaded = load(source)
        model = getattr(loaded, "model", loaded)
    else:
        model = read_numpy_plda(source) if source.endswith((".npz", ".h5", ".hdf5")) else read_kaldi_plda(source)
    if target.endswith(".safetensors"):
        model.save(target)
    elif target.endswith(".npz"):
        write_numpy_plda(target, model)
    else:
        write_kaldi_plda(target, model, binary=to_format != "kaldi-text")


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print what a shell needs to complete commands and options.

    Example: mvplda completion bash >> ~/.bashrc
    """
    from click.shell_completion import get_completion_class

    from . import main

    found = get_completion_class(shell)
    assert found is not None
    click.echo(found(main, {}, Path("mvplda").name, "_MVPLDA_COMPLETE").source())
