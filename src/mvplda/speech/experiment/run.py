"""A whole experiment: corpus, extractor, vectors, systems, table, page; all of it in one folder."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...bundle import Bundle
from ...exceptions import DataError
from ...io.vectors import write_vectors
from ...metrics import compare_systems, evaluate, speaker_intervals
from ...metrics.comparison import Comparison
from ...metrics.evaluation import Evaluation
from ...metrics.intervals import Intervals
from ...persistence import write_atomically
from ..corpora.corpus import Corpus
from .configuration import Configuration, EvaluationSettings, to_toml
from .results import Results, SystemResult, provenance, write_experiment_page
from .systems import BEST, COMPARED, run_system, systems_named
from .vectors import (
    Reading,
    Say,
    Task,
    compared_views,
    extract_corpus,
    read_corpus_vectors,
    train_on_corpus,
)

NAMED = 20
"""Utterances that cannot be used are named up to this number."""
MOST_TRIALS = 2_000_000
"""Of a kind with more trials, so many stand for all in intervals and comparison; error rates are of all."""


def run_experiment(
    corpus: Corpus,
    configuration: Configuration,
    output: Path,
    reading: Reading | None = None,
    *,
    vectors: Sequence[str | Path] = (),
    extractors: Sequence[str | Path] = (),
    inputs: Sequence[str | Path] = (),
    report: bool = True,
) -> Results:
    """Run everything, and leave in a folder what was done and what came of it.

    Parameters
    ----------
    output : folder: configuration.toml, extractor.onnx with its recipe, vectors.npz, model.safetensors
        (of the best system), table.txt, table.md, results.json and report.html
    vectors : files of vectors, which stand side by side; nothing is trained but the back-ends
    extractors : side by side, as `mvplda.load_extractor` takes them; none: a network is trained on the corpus
    inputs : files and folders whose hashes stand in results.json
    report : write the page (needs matplotlib)
    """
    reading = reading or Reading()
    say = reading.say
    started = time.perf_counter()
    # what cannot be evaluated is refused before a network is trained
    systems_named(configuration.evaluation.systems, len(compared_views(corpus)))
    output.mkdir(parents=True, exist_ok=True)
    write_atomically(output / "configuration.toml", to_toml(configuration.to_dict()).encode())
    say(corpus.summary() + "\n")
    if vectors:
        made = read_corpus_vectors(corpus, vectors)
    else:
        if extractors:
            made = extract_corpus(corpus, extractors, reading)
        else:
            made = train_on_corpus(corpus, configuration, output / "extractor.onnx", reading)
        write_vectors(output / "vectors.npz", made.vectors)
    notes = tuple(f"{name}: {reason}" for name, reason in made.skipped)
    if notes:
        say(f"{len(notes)} utterance(s) could not be used, all named in results.json:")
        say("\n".join(f"  {note}" for note in notes[:NAMED]))
        corpus = corpus.without([name for name, _ in made.skipped])
    task = Task.of(corpus, made.vectors, made.blocks)
    title = f"{corpus.name}, {made.vectors.extractor or 'vectors from elsewhere'}"
    say(f"\n{title}: {len(task.train)} training vectors of dimension {task.train.shape[1]}\n")
    sample = TrialSample.of(task)
    results, best = run_systems(task, configuration, sample, say)
    results = replace(
        results,
        title=title,
        summary=corpus.summary(),
        configuration=configuration.to_dict(),
        provenance=provenance(inputs),
        notes=notes,
    )
    results.save(output)
    say("\n" + results.beside_paper())
    if best is not None:
        best.extractor = made.vectors.extractor
        best.save(output / "model.safetensors")
    if report:
        page = output / "report.html"
        write_experiment_page(results, page, corpus.source, made.history)
    say(f"\n{time.perf_counter() - started:.0f} s; everything is in {output}")
    return results


def run_systems(
    task: Task, configuration: Configuration, sample: TrialSample, say: Say
) -> tuple[Results, Bundle | None]:
    """Fit, score and evaluate, one line per system as it is done; the results, and the best system's model.

    A system's matrix of scores is dropped when its error rates are known; what intervals and comparison
    need is the sample of its trials.
    """
    settings = configuration.evaluation
    done: list[SystemResult] = []
    best = None
    for system in systems_named(settings.systems, len(task.views)):
        started = time.perf_counter()
        scores, model = run_system(system, task, configuration.backend)
        seconds = time.perf_counter() - started
        own = sample.scores(scores)
        result = SystemResult(
            system.name,
            system.heading(configuration.backend, task.views),
            evaluate(scores, task.kinds, settings.costs),
            sample.intervals(own, settings),
            seconds,
            system.llr,
            _by_group(scores, task, settings.costs),
            own,
        )
        if system.name == BEST:
            best = model
        if not done:
            say(Results((result,), {}).head())
        say(result.line())
        done.append(result)
    if settings.resamples and result.intervals is None:
        say("no intervals: there are too few speakers")
    samples = {result.name: result.sample for result in done}
    comparisons = {}
    for ours, theirs in COMPARED:
        if result.intervals is not None and ours in samples and theirs in samples:
            comparisons[ours, theirs] = sample.compare(samples[ours], samples[theirs], settings)
    return Results(tuple(done), comparisons), best


@dataclass(frozen=True)
class TrialSample:
    """Trials for intervals and comparison, the same for every system.

    where : (n,) places in the matrix of scores
    kinds : (n,) masks
    weights : how many trials one of a kind stands for
    people : (n,) numbers of the enrolled and of the tested speaker
    """

    where: NDArray[np.int64]
    kinds: dict[str, NDArray[np.bool_]]
    weights: dict[str, float]
    people: tuple[NDArray[np.int32], NDArray[np.int32]]

    @classmethod
    def of(cls, task: Task) -> TrialSample:
        rng = np.random.default_rng(0)
        places = []
        weights = {}
        for kind, mask in task.kinds.items():
            place = np.flatnonzero(mask)
            weights[kind] = max(1.0, len(place) / MOST_TRIALS)
            if len(place) > MOST_TRIALS:
                place = rng.choice(place, MOST_TRIALS, replace=False)
            places.append(place)
        where = np.concatenate(places)
        number = np.repeat(np.arange(len(places)), [len(place) for place in places])
        kinds = {kind: number == i for i, kind in enumerate(task.kinds)}
        speaker = task.views[0]
        enrolled = task.model_labels[speaker]
        both = np.concatenate([enrolled, task.test_labels[speaker]])
        codes = np.unique(both, return_inverse=True)[1].astype(np.int32)
        row, column = np.divmod(where, len(task.test))
        return cls(where, kinds, weights, (codes[row], codes[len(enrolled) + column]))

    def scores(self, matrix: NDArray[Any]) -> NDArray[Any]:
        """(n,) of a matrix of scores."""
        return matrix.reshape(-1)[self.where]

    def intervals(self, scores: NDArray[Any], settings: EvaluationSettings) -> Intervals | None:
        """None where none are wanted, or there are too few speakers."""
        if not settings.resamples:
            return None
        try:
            return speaker_intervals(
                scores, self.kinds, *self.people, settings.costs, weights=self.weights
            )
        except DataError:
            return None

    def compare(
        self, ours: NDArray[Any], theirs: NDArray[Any], settings: EvaluationSettings
    ) -> Comparison:
        return compare_systems(
            ours,
            theirs,
            self.kinds,
            *self.people,
            settings.costs,
            weights=self.weights,
            n_resamples=settings.resamples,
            random_state=0,
        )


def _by_group(scores: NDArray[Any], task: Task, costs: tuple[str, ...]) -> Mapping[str, Evaluation]:
    """Every group's own evaluation; groups without targets or without others have none."""
    evaluations = {}
    groups = task.groups
    for name in np.unique(groups) if groups is not None else ():
        rows = groups == name
        own = {kind: mask[rows] for kind, mask in task.kinds.items()}
        target, *others = (mask.any() for mask in own.values())
        if target and any(others):
            evaluations[str(name)] = evaluate(scores[rows], own, costs)
    return evaluations
