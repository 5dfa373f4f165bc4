"""The paper's systems and the readings that it leaves open, on j-vectors of AudioMNIST and on simulated vectors.

``python -m benchmarks.studies.readings DATA [NAME ...]``. DATA holds audiomnist_jvectors.npz. A run is an experiment
like those of ``mvplda experiment``; its files go to results/paper/NAME.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import click
import numpy as np

from mvplda import make_two_views
from mvplda.speech.corpora import Corpus, build_corpus, load_corpus
from mvplda.speech.experiment import Reading, run_experiment
from mvplda.speech.settings import Configuration

OUTPUT = Path(__file__).parents[2] / "results" / "paper"
RAW = ["cosine-plain", "plda-cell-raw", "jplda-printed-raw", "jplda-exact-raw"]
REDUCED = ["cosine", "plda-cell", "jplda-printed", "jplda-exact", "jplda-interaction", "plda-prior"]
OTHERS = ["jplda-prior", "best", "plda-speaker-raw", "jplda-alone-raw"]
READINGS = {
    "grid.start": ["random", "moments"],
    "grid.e_step": ["appendix", "body"],
    "grid.m_step": ["turns", "together"],
}
SHAPES = {"drawn": (9, 1), "huiting-drawn": (20, 1)}
"""Vectors of a speaker and phrase, and of these how many test; three enrol."""
TRAINED, TESTED = 132, 70
RUNS = {
    "drawn": {"evaluation.systems": RAW},
    "huiting-drawn": {"evaluation.systems": RAW},
    "jvectors": {"evaluation.systems": [*RAW, *REDUCED, *OTHERS]},
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
        "evaluation.systems": ["jplda-printed-raw", "jplda-exact-raw"],
        "evaluation.resamples": 0,
        "evaluation.seeds": 1,
        "grid.priors": [[1, 1, 1], [10, 1, 1], [1, 10, 1], [1, 1, 100]],
    },
}


def simulated(name: str, folder: Path) -> tuple[Corpus, Path]:
    """Speakers of whom 132 train and 70 are tested, simulated from the two-view model."""
    each, tests = SHAPES["huiting-drawn" if name == "huiting-drawn" else "drawn"]
    X, numbers = make_two_views(TRAINED + TESTED, n_each=each, random_state=0)
    labels = {view: np.char.mod("%03d", classes) for view, classes in numbers.items()}
    session = np.arange(len(X)) % each
    ids = np.array([f"u{row:06d}" for row in range(len(X))])
    np.savez(folder / "vectors.npz", X=X.astype(np.float32), ids=ids)
    corpus = build_corpus(name, ids, labels, None, session, training=TRAINED)
    tested = corpus.protocol.test
    late = tested[session[tested] >= 3 + tests]
    return corpus.without(ids[late].tolist()), folder / "vectors.npz"


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
def main(data: Path, names: tuple[str, ...]) -> None:
    for name in names or RUNS:
        changes = {"evaluation.seeds": 5, "corpus.name": name, **RUNS[name]}
        configuration = Configuration().with_changes(changes)
        with tempfile.TemporaryDirectory() as folder:
            if name.startswith("jvectors"):
                corpus, file = jvectors(data)
            else:
                corpus, file = simulated(name, Path(folder))
            run_experiment(
                corpus,
                configuration,
                OUTPUT / name,
                Reading(say=click.echo),
                vectors=[file],
                inputs=[file],
                report=False,
            )
        (OUTPUT / name / "model.safetensors").unlink(missing_ok=True)


if __name__ == "__main__":
    main()
