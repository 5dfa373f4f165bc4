"""Back-ends on C-VAU and Speech Commands, whose speakers are dealt five times.

``python -m benchmarks.studies.deals DATA``. DATA holds cvau.npz and speech_commands.npz: CAM++ vectors (camp) and
vectors of a network for words. C-VAU: the 29 speakers of two campaigns are dealt into halves, each half is tested
by models of everybody else, both are pooled; enrolment with three takes of campaign 2014-11, tests from the campaign
"angles". Speech Commands: 200 speakers train, 150 others are tested, one take enrols. Intervals are over speakers and
deals.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import click
import numpy as np
from joblib import Parallel, delayed

from mvplda.metrics import evaluate, speaker_intervals
from mvplda.metrics.evaluation import Evaluation
from mvplda.metrics.intervals import Intervals
from mvplda.paper.corpora import Corpus, load_corpus
from mvplda.paper.corpus_vectors import read_corpus_vectors
from mvplda.paper.experiment_settings import BackendSettings
from mvplda.paper.provenance import DATA, OUTPUT, provenance, update_rows
from mvplda.paper.results import KINDS, over_seeds, seeds_cell
from mvplda.paper.systems import SYSTEMS, Task, run_system
from mvplda.paper.trial_sample import TrialSample

DEALS = 5
TRAINED, TESTED = 200, 150
COSTS = ("default",)
MOST = 100_000
"""Trials of a kind that intervals are made of; errors are of all."""
RESULTS = Path(__file__).parents[2] / "results"
PAPER = ("cosine-plain", "plda-cell-raw", "jplda-printed-raw", "jplda-exact-raw")
OURS = (
    "cosine",
    "plda-cell",
    "jplda-exact",
    "jplda-interaction",
    "plda-prior",
    "jplda-prior",
    "best",
)
CORPORA = {
    "cvau": ("C-VAU: enrolment from one campaign, tests from another", (*PAPER, *OURS)),
    "speech-commands": ("Speech Commands: 200 training speakers, one take enrols", (*PAPER, *OURS)),
}


ALONE = {"cosine-voice": "cosine", "jplda-voice": "jplda-prior"}
"""Systems that see CAM++ alone."""
VOICE = 192


def corpora(name: str, data: Path, deal: int) -> Iterator[tuple[Corpus, Path]]:
    """The parts of a deal, whose trials are pooled, and the file of their vectors."""
    if name == "speech-commands":
        file = data / "speech_commands.npz"
        corpus = load_corpus(name, file, training=TRAINED, random_state=deal)
        speakers = corpus.labels["speaker"]
        others = np.unique(speakers[corpus.protocol.test])
        left = np.random.default_rng([deal, 1]).permutation(others)[TESTED:]
        yield corpus.without(corpus.ids[np.isin(speakers, left)].tolist()), file
        return
    file = data / "cvau.npz"
    half = load_corpus("cvau", file, random_state=deal)
    speakers = half.labels["speaker"]
    tested = np.unique(speakers[half.protocol.test]).tolist()
    both = np.intersect1d(*(speakers[half.sessions == one] for one in ("2014-11", "angles")))
    others = np.setdiff1d(both, tested).tolist()
    for chosen in (others, tested):
        yield load_corpus("cvau", file, training=chosen), file


def run_deal(name: str, data: Path, deal: int, system_name: str) -> tuple[Evaluation, Intervals]:
    """Evaluation and intervals of a system on one deal."""
    tasks = []
    for corpus, file in corpora(name, data, deal):
        made = read_corpus_vectors(corpus, [file])
        X, blocks = made.vectors.X, made.blocks
        if system_name in ALONE:
            X, blocks = X[:, :VOICE], {"voice": VOICE}
        tasks.append(Task(corpus, X, blocks))
    samples = [TrialSample.of(task, MOST) for task in tasks]
    # the parts have other speakers: their numbers do not meet
    people = [
        np.concatenate([sample.people[side] + 10_000 * part for part, sample in enumerate(samples)])
        for side in (0, 1)
    ]
    kinds = {
        kind: np.concatenate([sample.kinds[kind] for sample in samples]) for kind in tasks[0].kinds
    }
    weights = {kind: np.mean([sample.weights[kind] for sample in samples]) for kind in kinds}
    whole = {kind: np.concatenate([task.kinds[kind].ravel() for task in tasks]) for kind in kinds}
    system = SYSTEMS[ALONE.get(system_name, system_name)]
    # a calibration that is one for all trials changes no EER, and takes as long as the fit
    system = replace(system, name=system_name + " as it is")
    settings = BackendSettings(random_state=deal)
    parts = [run_system(system, task, settings)[0] for task in tasks]
    evaluation = evaluate(np.concatenate([part.ravel() for part in parts]), whole, COSTS)
    scores = np.concatenate(
        [sample.scores(part) for sample, part in zip(samples, parts, strict=True)]
    )
    line = "  ".join(f"{100 * evaluation[kind]['eer']:.2f}" for kind in KINDS)
    print(f"{name} {deal}  {system_name:20} {line}", flush=True)
    return evaluation, speaker_intervals(
        scores, kinds, people[0], people[1], COSTS, weights=weights
    )


@click.command()
@click.argument("data", type=click.Path(exists=True, path_type=Path))
@click.option("--only", type=click.Choice(list(CORPORA)), multiple=True, help="This corpus.")
@click.option(
    "--system", multiple=True, help="This system; figures of the others stay as they are."
)
@click.option("--jobs", default=1, show_default=True, help="So many processes.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="The folder of results.json, of one corpus.  [default: results/NAME]",
)
def main(
    data: Path, only: tuple[str, ...], system: tuple[str, ...], jobs: int, output: Path | None
) -> None:
    """Write results/NAME/results.json of every corpus."""
    if output is not None and len(only) != 1:
        raise click.UsageError("--output is a folder for one corpus: name it with --only")
    for name in only or CORPORA:
        deal_corpus(name, data, system, jobs, (output or RESULTS / name) / "results.json")


def deal_corpus(name: str, data: Path, chosen: tuple[str, ...], jobs: int, path: Path) -> None:
    """Run the chosen systems, or all of them, on every deal of a corpus, and update its results file."""
    title, systems = CORPORA[name]
    order = (*ALONE, *systems)
    # the slowest begin
    wanted = [one for one in reversed(order) if not chosen or one in chosen]
    file = data / ("cvau.npz" if name == "cvau" else "speech_commands.npz")
    records = {
        one: provenance([file], command=command_of(name, one), seeds=range(DEALS)) for one in wanted
    }
    work = (delayed(timed_deal)(name, data, deal, one) for one in wanted for deal in range(DEALS))
    done = Parallel(n_jobs=jobs, return_as="generator")(work)
    rows: dict[str, Any] = {}
    # a file is there from the first system on
    for one in wanted:
        runs = list(islice(done, DEALS))
        heading = SYSTEMS[ALONE.get(one, one)].heading(BackendSettings(), ("speaker", "phrase"))
        if one in ALONE:
            heading += ", CAM++ alone"
        records[one]["seconds"] = round(sum(seconds for _, seconds in runs))
        found = over_seeds([measured for measured, _ in runs])
        row = {"title": heading, "seeds": found, "provenance": records[one]}
        rows = update_rows(path, title, "systems", {one: row}, order)
    for row in rows.values():
        print(row["title"], [seeds_cell(cell) for cell in row["seeds"].values()])


def command_of(name: str, system: str) -> str:
    """The command that makes one row again."""
    module = f"python -m benchmarks.studies.deals {DATA}"
    return f"{module} --only {name} --system {system} --output {OUTPUT}"


def timed_deal(
    name: str, data: Path, deal: int, system: str
) -> tuple[tuple[Evaluation, Intervals], float]:
    """`run_deal` and the CPU seconds that it takes."""
    begin = time.process_time()
    return run_deal(name, data, deal, system), time.process_time() - begin


if __name__ == "__main__":
    main()
