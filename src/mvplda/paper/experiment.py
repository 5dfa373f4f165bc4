"""Experiments: fitting and comparing systems on the vectors of a corpus, and writing tables and a report."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from .._typing import Names
from ..atomic_files import write_atomically
from ..bundle import Bundle
from ..metrics import evaluate
from .corpora import Corpus
from .corpus_vectors import (
    CorpusVectors,
    Echo,
    extract_corpus,
    network_vectors,
    read_corpus_vectors,
)
from .experiment_settings import BackendSettings, Configuration, EvaluationSettings, to_toml
from .provenance import provenance
from .result_page import write_result_page
from .results import Measured, Results, SystemResult, over_seeds, table_line
from .systems import BEST, COMPARED, System, Task, compared_views, run_system, systems_named
from .trial_sample import TrialSample

__all__ = ["run_experiment"]

MAX_LISTED_UTTERANCES = 20
"""Maximum number of unusable utterances that are shown; results.json lists all."""


def run_experiment(
    corpus: Corpus,
    configuration: Configuration,
    output: Path,
    echo: Echo,
    *,
    verbose: bool = False,
    vectors: Sequence[str | Path] = (),
    extractors: Sequence[str | Path] = (),
    inputs: Sequence[str | Path] = (),
    command: str = "",
) -> Results:
    """Run an experiment and write its models, tables and report to a folder.

    A second run with the same folder, recordings and settings of the network resumes an interrupted one: training from
    its last epoch, and everything after training from the vectors.

    Parameters
    ----------
    corpus : utterances, labels and protocol
    configuration : settings of the network, the systems and the evaluation
    output : folder of configuration.toml, extractor.onnx with its recipe, vectors.npz, model.safetensors (of the best
        system), table.txt, results.json and report.html
    echo : called with each line of output
    verbose : show progress on standard error too
    vectors : files of existing vectors, which are concatenated per utterance; no network is trained
    extractors : extractors as for `mvplda.load_extractor`, whose vectors are concatenated; empty: a network is trained
        on the corpus
    inputs : files and folders whose hashes are stored in results.json
    command : command line to store in results.json; empty: that of this process

    Returns
    -------
    results of all systems, as in results.json
    """
    started = time.perf_counter()
    maker = provenance(inputs, command=command)
    processor = time.process_time()
    # raises for unsuitable systems before a network is trained
    systems_named(configuration.evaluation.systems, len(compared_views(corpus)))
    output.mkdir(parents=True, exist_ok=True)
    echo(corpus.summary() + "\n")

    write_atomically(output / "configuration.toml", to_toml(configuration.to_dict()).encode())

    if vectors:
        embedded = read_corpus_vectors(corpus, vectors)
    elif extractors:
        embedded = extract_corpus(corpus, extractors, output, echo, verbose)
    else:
        embedded = network_vectors(corpus, configuration, output, echo, verbose)

    notes = tuple(f"{name}: {reason}" for name, reason in embedded.skipped)
    if notes:
        _echo_unusable(notes, echo)
        corpus = corpus.without([name for name, _ in embedded.skipped])
    task = _task(corpus, embedded)
    title = f"{corpus.name}, {embedded.origin}"
    n_train, dimension = task.train.shape
    echo(f"\n{title}: {n_train} training vectors of dimension {dimension}\n")

    results, best = run_systems(task, configuration, echo)
    maker["seconds"] = round(time.process_time() - processor)
    results = replace(
        results,
        title=title,
        summary=corpus.summary(),
        configuration=configuration.to_dict(),
        provenance=maker,
        notes=notes,
    )
    results.save(output)
    echo("\n" + results.table())
    if best is not None:
        best.extractor = embedded.vectors.extractor
        best.save(output / "model.safetensors")
    write_result_page(output / "report.html", results, corpus.source)
    echo(f"\n{time.perf_counter() - started:.0f} s; results are in {output}")
    return results


def _echo_unusable(notes: Sequence[str], echo: Echo) -> None:
    """Show the number of unusable utterances, and the first of them with the reasons.

    notes : "id: reason" for each unusable utterance
    """
    echo(f"{len(notes)} utterance(s) are unusable (results.json lists all of them):")
    echo("\n".join(f"  {note}" for note in notes[:MAX_LISTED_UTTERANCES]))


def _task(corpus: Corpus, embedded: CorpusVectors) -> Task:
    """Return the verification task of a corpus; an utterance without a vector has a row of zeros, which is not used."""
    vectors = embedded.vectors
    # utterances without a vector keep a row of zeros, which the protocol never uses
    X = vectors.X.astype(np.float32, copy=False)
    if not np.array_equal(corpus.ids, vectors.ids):
        X = np.zeros((len(corpus), vectors.X.shape[1]), dtype=np.float32)
        has_vector = np.isin(corpus.ids, vectors.ids)
        X[has_vector] = vectors.X[vectors.rows(corpus.ids[has_vector])]
    blocks = embedded.blocks if len(embedded.blocks) > 1 else {}
    return Task(corpus, X, blocks)


def run_systems(
    task: Task, configuration: Configuration, echo: Echo
) -> tuple[Results, Bundle | None]:
    """Fit, score and evaluate the chosen systems, and show one line per system.

    The score matrix of a system is freed after its evaluation. Intervals and comparisons use a sample of the trials.

    Parameters
    ----------
    task : vectors with labels and protocol
    configuration : settings of the systems and of the evaluation
    echo : called with each line of output

    Returns
    -------
    the results, and the fitted model of the system named "best" if it was run, else None
    """
    settings = configuration.evaluation
    sample = TrialSample.of(task)
    results: dict[str, SystemResult] = {}
    best = None
    for system in systems_named(settings.systems, len(task.views)):
        variants = [("", configuration.backend)]
        # a grid varies the settings of the paper's systems, which the other systems ignore
        if system.raw is not None:
            variants = list(configuration.variants())
        for suffix, backend in variants:
            result, model = _run_seeds(system, task, backend, settings, sample)
            result = replace(result, name=result.name + suffix, title=result.title + suffix)
            if not results:
                headings = [heading for heading, _, _ in result.evaluation.summary()]
                echo(table_line("EER, %", [*headings, "s"]))
            echo(table_line(result.title, [*result.table_texts(), f"{result.seconds:.1f}"]))
            results[result.name] = result
        if system.name == BEST:
            best = model
    if settings.resamples and result.intervals is None:
        echo("there are no confidence intervals, because there are too few speakers")
    comparisons = {}
    for name, reference in COMPARED:
        if result.intervals is not None and name in results and reference in results:
            scores = results[name].sample, results[reference].sample
            comparisons[name, reference] = sample.compare(*scores, settings)
    return Results(tuple(results.values()), comparisons, task.views, sample), best


def _run_seeds(
    system: System,
    task: Task,
    backend: BackendSettings,
    settings: EvaluationSettings,
    sample: TrialSample,
) -> tuple[SystemResult, Bundle]:
    """Fit, score and evaluate a system, once per seed if its initialisation is random.

    Parameters
    ----------
    system : system to run
    task : vectors with labels and protocol
    backend : settings of the system
    settings : settings of the evaluation
    sample : trials for intervals and comparisons

    Returns
    -------
    result and fitted model of the first seed; the result also has the error rates of all seeds
    """
    runs: list[Measured] = []
    started = time.perf_counter()
    for seed in range(settings.seeds if system.is_random(backend) else 1):
        seeded = replace(backend, random_state=backend.random_state + seed)
        scores, model = run_system(system, task, seeded)
        sample_scores = sample.scores(scores)
        evaluation = evaluate(scores, task.kinds)
        runs.append((evaluation, sample.intervals(sample_scores, settings)))
        # the table, the model and the comparisons use the first seed
        if not seed:
            first_model = model
            result = SystemResult(
                system.name,
                system.heading(backend, task.views),
                *runs[0],
                time.perf_counter() - started,
                system.llr,
                sample_scores,
                groups=_by_group(scores, task, settings, sample),
            )
    if len(runs) > 1:
        result = replace(result, seeds=over_seeds(runs))
    return result, first_model


def _by_group(
    scores: Names, task: Task, settings: EvaluationSettings, sample: TrialSample
) -> dict[str, Measured]:
    """Evaluate a system separately on the enrolments of each group, such as a gender.

    Groups without target trials or without non-target trials are left out.

    scores : scores of the system, (enrolments, tests)
    sample : trials for the intervals

    Returns
    -------
    {group: error rates and their intervals}
    """
    measured = {}
    for name, mask in task.groups.items():
        kinds = {kind: trials[mask] for kind, trials in task.kinds.items()}
        target, *non_targets = (trials.any() for trials in kinds.values())
        if target and any(non_targets):
            trials = sample.of_enrolments(mask, len(task.test))
            intervals = trials.intervals(trials.scores(scores), settings)
            measured[name] = evaluate(scores[mask], kinds), intervals
    return measured
