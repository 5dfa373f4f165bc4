"""A whole experiment: corpus, extractor, vectors, systems, table, page; all of it in one folder."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...exceptions import DataError, ParameterError
from ...io.vectors import write_vectors
from ...metrics import Evaluation, compare_systems, evaluate, speaker_intervals
from ...metrics.comparison import Comparison
from ...metrics.intervals import Intervals
from ...persistence import write_atomically
from ..corpora.corpus import Corpus
from .configuration import Configuration, EvaluationSettings, to_toml
from .provenance import provenance
from .results import Results, SystemResult, write_experiment_page
from .systems import (
    BEST,
    COMPARED,
    BackendSettings,
    System,
    SystemScores,
    run_system,
    systems_named,
)
from .task import Task, compared_views
from .vectors import (
    EXTRACTOR_FILE,
    TRAIN,
    Say,
    Vectors,
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
    *,
    vectors: Sequence[str | Path] = (),
    extractors: Sequence[str | Path] = (),
    inputs: Sequence[str | Path] = (),
    workers: int | None = None,
    on_error: Any = "skip",
    report: bool = True,
    verbose: bool = True,
    say: Say = lambda text: None,
) -> Results:
    """Run everything, and leave in a folder what was done and what came of it.

    Parameters
    ----------
    output : folder: configuration.toml, extractor.onnx with its recipe, vectors.npz, model.safetensors
        (of the best system), table.txt, table.md, results.json and report.html
    vectors : files of vectors, which stand side by side; nothing is trained but the back-ends
    extractors : side by side, as `mvplda.load_extractor` takes them. "train" stands for the network that is
        trained on the corpus, and so does no extractor
    inputs : files and folders whose hashes stand in results.json
    on_error : "skip" goes on without utterances that cannot be read, and names them; "raise" stops
    report : write the page (needs matplotlib)
    """
    started = time.perf_counter()
    output.mkdir(parents=True, exist_ok=True)
    write_atomically(output / "configuration.toml", to_toml(configuration.to_dict()).encode())
    say(corpus.summary() + "\n")
    compared_views(corpus)  # before a network is trained
    options: dict[str, Any] = {
        "on_error": on_error,
        "workers": workers,
        "verbose": verbose,
        "say": say,
    }
    if vectors:
        made = read_corpus_vectors(corpus, vectors)
    else:
        made = make_vectors(corpus, configuration, output, extractors or [TRAIN], options)
    notes = tuple(f"{name}: {reason}" for name, reason in made.skipped)
    if notes:
        say(f"{len(notes)} utterance(s) could not be used, all named in results.json:")
        for note in notes[:NAMED]:
            say(f"  {note}")
        corpus = corpus.without([name for name, _ in made.skipped])
    task = Task.of(corpus, made.vectors, trained_on=made.trained_on, blocks=made.blocks)
    title = f"{corpus.name}, {made.vectors.extractor or 'vectors from elsewhere'}"
    say(f"\n{title}: {len(task.train)} training vectors of dimension {task.train.shape[1]}\n")
    sample = TrialSample.of(task)
    settings = configuration.evaluation
    systems = systems_named(settings.systems)
    results, best = run_systems(task, systems, configuration.backend, settings, sample, say)
    results = replace(
        results,
        title=title,
        summary=corpus.summary(),
        configuration=configuration.to_dict(),
        provenance=provenance(inputs),
        notes=notes,
    )
    results.save(output)
    if best is not None:
        best.model.extractor = made.vectors.extractor
        best.model.save(output / "model.safetensors")
    if report:
        page = output / "report.html"
        write_experiment_page(
            results, sample.kinds, page, source=corpus.source, history=made.history
        )
    say(f"\n{time.perf_counter() - started:.0f} s; everything is in {output}")
    return results


def make_vectors(
    corpus: Corpus,
    configuration: Configuration,
    output: Path,
    extractors: Sequence[str | Path],
    options: dict[str, Any],
) -> Vectors:
    """Vectors of extractors side by side, of which one may be trained on the corpus."""
    names = [str(name) for name in extractors]
    trained = None
    if TRAIN in names:
        trained = train_on_corpus(corpus, configuration, output / EXTRACTOR_FILE, **options)
    if names == [TRAIN]:
        assert trained is not None
        made = trained
    else:
        files = [str(output / EXTRACTOR_FILE) if name == TRAIN else name for name in names]
        made = extract_corpus(corpus, files, **options)
        if trained is not None:
            made = replace(made, trained_on=trained.trained_on, history=trained.history)
    write_vectors(output / "vectors.npz", made.vectors)
    return made


def run_systems(
    task: Task,
    systems: Sequence[System],
    settings: BackendSettings,
    evaluation: EvaluationSettings,
    sample: TrialSample,
    say: Say = lambda text: None,
) -> tuple[Results, SystemScores | None]:
    """Fit, score and evaluate, one line per system as it is done; the results, and the best system.

    A system's matrix of scores is dropped when its error rates are known; what intervals, comparison and plots
    need is the sample of its trials.
    """
    unfit = [system.name for system in systems if system.two_views and len(task.views) != 2]
    if unfit:
        say(f"left out, for two views only: {', '.join(unfit)}")
    systems = [system for system in systems if system.name not in unfit]
    if not systems:
        raise ParameterError(f"no system is left to evaluate on the views {', '.join(task.views)}")
    done: list[SystemResult] = []
    best = None
    intervals_wanted = evaluation.resamples > 0
    for system in systems:
        started = time.perf_counter()
        scored = run_system(system, task, settings)
        seconds = time.perf_counter() - started
        own = sample.scores(scored.scores)
        intervals = None
        if intervals_wanted:
            try:
                intervals = sample.intervals(own, evaluation.costs)
            except DataError as error:
                intervals_wanted = False
                say(f"no intervals: {error}")
        result = SystemResult(
            system.name,
            system.heading(settings, task.views),
            evaluate(scored.scores, task.kinds, evaluation.costs),
            intervals,
            seconds,
            scored.note,
            system.llr,
            _by_group(scored.scores, task, evaluation.costs),
            own,
        )
        done.append(result)
        if system.name == BEST:
            best = scored
        so_far = Results("", "", tuple(done), {})
        if len(done) == 1:
            say(so_far.head())
        say(so_far.line(result))
    comparisons = {}
    samples = {result.name: result.sample for result in done}
    for ours, theirs in COMPARED:
        if intervals_wanted and ours in samples and theirs in samples:
            comparisons[ours, theirs] = sample.compare(samples[ours], samples[theirs], evaluation)
    return Results("", "", tuple(done), comparisons), best


@dataclass(frozen=True)
class TrialSample:
    """Trials for intervals, comparison and plots, the same for every system.

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
        sides = [task.model_labels[speaker], task.test_labels[speaker]]
        codes = np.unique(np.concatenate(sides), return_inverse=True)[1].astype(np.int32)
        models = codes[: len(sides[0])]
        tests = codes[len(sides[0]) :]
        row, column = np.divmod(where, len(tests))
        return cls(where, kinds, weights, (models[row], tests[column]))

    def scores(self, matrix: NDArray[Any]) -> NDArray[Any]:
        """(n,) of a matrix of scores."""
        return matrix.reshape(-1)[self.where]

    def intervals(self, scores: NDArray[Any], costs: tuple[str, ...]) -> Intervals:
        return speaker_intervals(scores, self.kinds, *self.people, costs, weights=self.weights)

    def compare(
        self, ours: NDArray[Any], theirs: NDArray[Any], evaluation: EvaluationSettings
    ) -> Comparison:
        return compare_systems(
            ours,
            theirs,
            self.kinds,
            *self.people,
            evaluation.costs,
            weights=self.weights,
            n_resamples=evaluation.resamples,
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
