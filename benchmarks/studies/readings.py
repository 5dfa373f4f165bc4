"""The paper's systems and the readings that it leaves open, on j-vectors of AudioMNIST and on simulated vectors.

``python -m benchmarks.studies.readings DATA [NAME ...]``. DATA holds audiomnist_jvectors.npz. A run is an experiment
like those of ``mvplda experiment``; its files go to results/paper/NAME.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import click
import numpy as np

from mvplda import make_two_views
from mvplda.paper.corpora import Corpus, build_corpus, load_corpus
from mvplda.paper.experiment import run_experiment
from mvplda.paper.experiment_settings import Configuration
from mvplda.paper.provenance import DATA, OUTPUT

RESULTS = Path(__file__).parents[2] / "results" / "paper"
RAW = ["cosine-plain", "plda-cell-raw", "jplda-printed-raw", "jplda-exact-raw"]
REDUCED = ["cosine", "plda-cell", "jplda-printed", "jplda-exact", "jplda-interaction"]
ALONE = ["plda-speaker", "jplda-alone", "jplda-alone-raw"]
READINGS = {
    "grid.start": ["random", "moments"],
    "grid.e_step": ["appendix", "body"],
    "grid.m_step": ["turns", "together"],
}
LEFT = (
    "model.safetensors",
    "report.html",
    "vectors.npz",
    "vectors.npz.extractor",
    "extractor.onnx",
    "extractor.toml",
)
"""Files of an experiment that do not belong to its results."""
TRAINED, HELD_OUT = 132, 70
TESTED = (3, 4)
"""Vectors of a speaker and phrase that test, after three that enrol: the data of docs/errata.md."""
QUICK = {"evaluation.resamples": 0, "evaluation.seeds": 1}
SETTINGS = {**QUICK, "evaluation.systems": RAW[1:]}
RUNS: dict[str, dict[str, Any]] = {
    "drawn": {"evaluation.systems": RAW},
    "huiting-drawn": {"evaluation.systems": RAW},
    "jvectors": {"evaluation.systems": [*RAW, *REDUCED, *ALONE]},
    "jvectors-readings": {
        "evaluation.systems": ["jplda-printed"],
        "evaluation.resamples": 0,
        "grid.start": ["random", "moments"],
    },
    "drawn-readings": {
        "evaluation.systems": ["jplda-printed-raw"],
        "evaluation.resamples": 0,
        **READINGS,
    },
    "drawn-priors": {
        **QUICK,
        "evaluation.systems": RAW[2:],
        "grid.priors": [[1, 1, 1], [10, 1, 1], [1, 10, 1], [1, 1, 10], [1, 1, 100]],
    },
    # one setting at a time
    "drawn-ranks": {**SETTINGS, "grid.paper_rank": [2, 5, 10, 20, 40]},
    "drawn-iterations": {**SETTINGS, "grid.paper_iterations": [1, 2, 5, 10, 20, 50]},
    "drawn-components": {
        **QUICK,
        "evaluation.systems": ["plda-cell", "jplda-printed", "jplda-exact"],
        "grid.reduce": [25, 50, 0],
    },
    "drawn-one": {**SETTINGS, "corpus.per_model": 1},
    "drawn-two": {**SETTINGS, "corpus.per_model": 2},
}


def simulated(name: str, folder: Path, per_model: int) -> tuple[Corpus, Path]:
    """Speakers of whom 132 train and 70 are tested, simulated from the two-view model."""
    each = 20 if name == "huiting-drawn" else 9
    X, numbers = make_two_views(TRAINED + HELD_OUT, n_each=each, random_state=0)
    labels = {view: np.char.mod("%03d", classes) for view, classes in numbers.items()}
    session = np.arange(len(X)) % each
    ids = np.array([f"u{row:06d}" for row in range(len(X))])
    np.savez(folder / "vectors.npz", X=X.astype(np.float32), ids=ids)
    training = [f"{number:03d}" for number in range(TRAINED)]
    corpus = build_corpus(name, ids, labels, None, session, training=training, per_model=per_model)
    tested = corpus.protocol.test
    others = tested[~np.isin(session[tested], TESTED)]
    return corpus.without(ids[others].tolist()), folder / "vectors.npz"


def jvectors(data: Path) -> tuple[Corpus, Path]:
    file = data / "audiomnist_jvectors.npz"
    with np.load(file) as arrays:
        training = [str(name) for name in arrays["training_speakers"]]
    views = {view: view for view in ("speaker", "phrase")}
    corpus = load_corpus("vectors", file, labels={**views, "session": "session"}, training=training)
    return corpus, file


@click.command()
@click.argument("data", type=click.Path(exists=True, path_type=Path))
@click.argument("names", nargs=-1, type=click.Choice(list(RUNS)))
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="The folder of the files of one run.  [default: results/paper/NAME]",
)
def main(data: Path, names: tuple[str, ...], output: Path | None) -> None:
    if output is not None and len(names) != 1:
        raise click.UsageError("--output is a folder for one run: name it")
    for name in names or RUNS:
        changes = {"evaluation.seeds": 5, "corpus.name": name, **RUNS[name]}
        configuration = Configuration().with_changes(changes)
        folder = output or RESULTS / name
        with tempfile.TemporaryDirectory() as scratch:
            if name.startswith("jvectors"):
                corpus, file = jvectors(data)
            else:
                per_model = configuration.corpus.get("per_model", 3)
                corpus, file = simulated(name, Path(scratch), per_model)
            run_experiment(
                corpus,
                configuration,
                folder,
                click.echo,
                vectors=[file],
                # simulated vectors are made by the same command
                inputs=[file] if name.startswith("jvectors") else [],
                command=f"python -m benchmarks.studies.readings {DATA} {name} --output {OUTPUT}",
            )
        keep_tables(folder)


def keep_tables(folder: Path) -> None:
    """Delete what an experiment leaves beside its tables and its configuration."""
    for name in LEFT:
        (folder / name).unlink(missing_ok=True)


if __name__ == "__main__":
    main()
