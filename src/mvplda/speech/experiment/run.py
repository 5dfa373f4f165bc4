"""A whole experiment: corpus, extractor, vectors, systems, table, page; all of it in one folder."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...exceptions import DataError, ParameterError
from ...io.vectors import VectorSet, read_vectors, write_vectors
from ...metrics import (
    Comparison,
    Evaluation,
    Intervals,
    compare_systems,
    evaluate,
    speaker_intervals,
)
from ..corpora.corpus import Corpus
from ..features.frames import FeatureSettings
from .configuration import Configuration, write_configuration
from .extraction import (
    Variants,
    Vectors,
    extract_corpus_features,
    extract_everything,
    other_voices,
    train_extractor,
)
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

Say = Callable[[str], None]
NAMED = 20
"""Utterances that cannot be used are named up to this number."""

TRAIN = "train"
"""Among extractors: the network that is trained on the corpus."""
EXTRACTOR_FILE = "extractor.safetensors"


def run_experiment(
    corpus: Corpus,
    configuration: Configuration,
    output: Path,
    *,
    vectors: str | Path | Sequence[str | Path] | None = None,
    extractor: str | Path | Sequence[str | Path] | None = None,
    cache: str | Path | None = None,
    workers: int | None = None,
    on_error: Any = "skip",
    report: bool = True,
    verbose: bool = True,
    say: Say = lambda text: None,
) -> Results:
    """Run everything, and leave in a folder what was done and what came of it.

    Parameters
    ----------
    corpus, configuration : what is tried, on what
    output : folder: configuration.toml, extractor.safetensors, vectors.npz, model.safetensors
        (of the best system), table.txt, .md, .csv, results.json and report.html
    vectors : a file of vectors, or several whose vectors stand side by side; nothing is trained but the back-ends
    extractor : a trained extractor, or several side by side, as `mvplda.load_extractor` takes them; only vectors are
        made. "train" stands for the network that is trained on the corpus
    cache : folder for features
    on_error : "skip" goes on without utterances that cannot be read, and names them; "raise" stops
    report : write the page (needs matplotlib)
    """
    started = time.perf_counter()
    output.mkdir(parents=True, exist_ok=True)
    write_configuration(output / "configuration.toml", configuration)
    say(corpus.summary() + "\n")
    compared_views(corpus)  # before a network is trained
    found = _vectors(
        corpus, configuration, output, vectors, extractor, cache, workers, on_error, verbose, say
    )
    notes = [f"{name}: {reason}" for name, reason in found.skipped]
    if notes:
        say(f"{len(notes)} utterance(s) could not be used:")
        for note in notes[:NAMED]:
            say(f"  {note}")
        if len(notes) > NAMED:
            say(f"  and {len(notes) - NAMED} more, all in results.json")
        missing = {name for name, _ in found.skipped}
        corpus = corpus.select(
            [row for row, name in enumerate(corpus.ids.tolist()) if name not in missing]
        )
    known = None if found.extractor is None else found.extractor.classes.get(corpus.views[0])
    task = Task.of(corpus, found.everything, found.extra, met=known, blocks=found.blocks)
    title = f"{corpus.name}, {_described(found)}"
    say(f"\n{title}: {len(task.train)} training vectors of dimension {task.train.shape[1]}\n")
    settings = configuration.evaluation
    results, scored = run_systems(
        task,
        systems_named(settings.systems, configuration.backend),
        configuration.backend,
        title=title,
        summary=corpus.summary(),
        costs=settings.costs,
        resamples=settings.resamples,
        configuration=configuration.to_dict(),
        say=say,
    )
    results = replace(results, notes=tuple(notes))
    results.save(output)
    if BEST in scored:
        bundle = scored[BEST].model
        bundle.extractor = found.everything.extractor
        bundle.save(output / "model.safetensors")
    if claim := results.claim():
        say("\n" + claim)
    if report:
        history = () if found.extractor is None else found.extractor.history
        write_experiment_page(
            results, scored, task, output / "report.html", source=corpus.source, history=history
        )
    say(f"\n{time.perf_counter() - started:.0f} s; everything is in {output}")
    return results


def _described(found: Vectors) -> str:
    if found.extractor is None or found.everything.extractor != found.extractor.name:
        return found.everything.extractor or "vectors from elsewhere"
    return f"{found.extractor.network.kind} network of {found.extractor.n_parameters:,} parameters"


def _vectors(
    corpus: Corpus,
    configuration: Configuration,
    output: Path,
    vectors: str | Path | Sequence[str | Path] | None,
    extractor: str | Path | Sequence[str | Path] | None,
    cache: str | Path | None,
    workers: int | None,
    on_error: Any,
    verbose: bool,
    say: Say,
) -> Vectors:
    if vectors is not None:
        files = [vectors] if isinstance(vectors, (str, Path)) else list(vectors)
        read = [_covering(read_vectors(file), corpus) for file in files]
        if len(read) == 1:
            return Vectors(read[0], None, None)
        # as extractors side by side have them: of unit length each, so that none outweighs another
        each = [np.asarray(part.X[part.rows(corpus.ids)], dtype=np.float32) for part in read]
        X = np.concatenate(
            [x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12) for x in each], axis=1
        )
        told = [part.extractor or Path(file).stem for part, file in zip(read, files, strict=True)]
        names = [
            name if told.count(name) == 1 else f"{name} ({i})" for i, name in enumerate(told, 1)
        ]
        widths = {name: int(part.X.shape[1]) for name, part in zip(names, read, strict=True)}
        return Vectors(VectorSet(corpus.ids, X, "+".join(names)), None, None, (), widths)
    options: dict[str, Any] = {
        "cache": cache,
        "workers": workers,
        "on_error": on_error,
        "verbose": verbose,
    }
    wanted = (
        []
        if extractor is None
        else [extractor]
        if isinstance(extractor, (str, Path))
        else list(extractor)
    )
    own = [name for name in wanted if str(name) == TRAIN or str(name).endswith(".safetensors")]
    found = None
    if TRAIN in map(str, wanted) or not wanted:
        found = _of_our_own(corpus, configuration, output, None, options, say)
    elif len(wanted) == len(own) == 1:
        found = _of_our_own(corpus, configuration, output, own[0], options, say)
    if len(wanted) > 1 or (not own and wanted):
        trained = None if found is None else found.extractor
        places = [output / EXTRACTOR_FILE if str(name) == TRAIN else name for name in wanted]
        found = _from_elsewhere(
            corpus, places, trained, configuration.variants, workers, on_error, verbose, say
        )
    assert found is not None
    write_vectors(output / "vectors.npz", found.everything)
    return found


def _of_our_own(
    corpus: Corpus,
    configuration: Configuration,
    output: Path,
    extractor: str | Path | None,
    options: dict[str, Any],
    say: Say,
) -> Vectors:
    """Vectors of a network of this package, which is trained on the corpus if there is none."""
    from ..networks.extractor import Extractor

    if extractor is not None:
        trained = Extractor.load(extractor)
        variants = (
            configuration.variants if configuration.variants.backend != "speakers" else Variants()
        )
        material = extract_corpus_features(
            corpus,
            FeatureSettings.from_dict(trained.feature_settings),
            variants,
            say=say,
            **options,
        )
    else:
        material = extract_corpus_features(
            corpus, configuration.features, configuration.variants, say=say, **options
        )
        trained = train_extractor(
            corpus,
            material,
            configuration.network,
            configuration.training,
            configuration.features,
            verbose=options["verbose"],
            say=say,
        )
        trained.save(output / EXTRACTOR_FILE)
    return extract_everything(
        corpus, material, trained, configuration.variants, device=configuration.training.device
    )


def _from_elsewhere(
    corpus: Corpus,
    places: Sequence[str | Path],
    trained: Any,
    variants: Variants,
    workers: int | None,
    on_error: Any,
    verbose: bool,
    say: Say,
) -> Vectors:
    """Vectors of extractors side by side; `trained` is the one among them that has met speakers of the corpus."""
    from ...extractors import load_extractor

    if corpus.clips is None:
        raise DataError(f"{corpus.name} has no sound: give its vectors instead")
    extractor = load_extractor(list(places))
    say(f"vectors of {len(corpus)} utterances: {extractor.name}")
    made = extractor.extract(
        list(corpus.clips),
        on_error=on_error,
        progress=verbose,
        workers=workers or os.cpu_count() or 1,
    )
    left = set(range(len(corpus))) - set(made.rows)
    names = corpus.ids[sorted(left)].tolist()
    skipped = tuple((name, reason) for name, (_, reason) in zip(names, made.skipped, strict=True))
    parts = extractor.networks if len(extractor.networks) > 1 else []
    blocks = {f"{part.name} ({i})": part.dimension for i, part in enumerate(parts, 1)} or None
    extra = None
    if variants.backend != "speakers" and variants.voices:
        train = np.intersect1d(corpus.protocol.train, made.rows)
        say(
            f"vectors of {len(train)} training utterances at the speeds {', '.join(map(str, variants.voices))}"
        )
        extra = other_voices(
            corpus, train, extractor, variants.voices, workers or os.cpu_count() or 1
        )
    return Vectors(
        VectorSet(corpus.ids[made.rows], made.X, extractor.name), extra, trained, skipped, blocks
    )


def _covering(vectors: VectorSet, corpus: Corpus) -> VectorSet:
    """The vectors, if they are those of the corpus."""
    missing = [name for name in corpus.ids.tolist() if name not in vectors]
    if len(missing) == len(corpus):
        raise DataError(
            f"none of the corpus's {len(corpus)} utterances, such as {missing[0]!r}, is among the "
            f"{len(vectors)} vectors, such as {str(vectors.ids[0])!r}"
        )
    vectors.rows(corpus.ids)  # names the first that is missing
    return vectors


MOST_TRIALS = 2_000_000
"""Of a kind with more trials, so many stand for all in intervals and comparison; error rates are of all."""


def run_systems(
    task: Task,
    systems: list[System],
    settings: BackendSettings,
    *,
    title: str,
    summary: str,
    costs: tuple[str, ...] = ("default",),
    resamples: int = 200,
    configuration: Mapping[str, Any] | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> tuple[Results, dict[str, SystemScores]]:
    """Fit, score and judge; one line is said for every system as it is done.

    Parameters
    ----------
    task : vectors, labels, protocol
    systems, settings : which, and their sizes
    resamples : of speakers, for the comparison; 0 leaves it and the intervals out
    say : takes lines of text
    """
    kinds = task.kinds
    unfit = [system for system in systems if system.two_views and len(task.views) != 2]
    systems = [system for system in systems if system not in unfit]
    if unfit:
        say(f"left out, for two views only: {', '.join(system.name for system in unfit)}")
    if not systems:
        raise ParameterError(f"no system is left to try on the views {', '.join(task.views)}")
    resampled = _BootstrapTrials.of(task) if resamples else None
    done: list[SystemResult] = []
    scored: dict[str, SystemScores] = {}
    for system in systems:
        started = time.perf_counter()
        found = run_system(system, task, settings)
        seconds = time.perf_counter() - started
        result = evaluate(found.scores, kinds, costs)
        groups = _by_group(found.scores, kinds, task.groups, costs)
        intervals = None
        if resampled is not None:
            try:
                intervals = resampled.intervals(found.scores, costs)
            except DataError as error:
                resampled = None
                say(f"no intervals: {error}")
        heading = system.heading(settings, task.views)
        done.append(
            SystemResult(
                system.name, heading, result, intervals, seconds, found.note, system.llr, groups
            )
        )
        scored[system.name] = found
        partial = Results(title, summary, tuple(done), {}, {})
        if len(done) == 1:
            say(partial.table().splitlines()[0])
        say(partial.line(done[-1]))
    comparisons = {
        (ours, theirs): resampled.compare(
            scored[ours].scores, scored[theirs].scores, costs, resamples
        )
        for ours, theirs in COMPARED
        if resampled is not None and {ours, theirs} <= set(scored)
    }
    return Results(title, summary, tuple(done), comparisons, configuration or {}), scored


@dataclass(frozen=True)
class _BootstrapTrials:
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
    def of(cls, task: Task) -> _BootstrapTrials:
        rng = np.random.default_rng(0)
        every = [np.flatnonzero(mask) for mask in task.kinds.values()]
        places = [
            p if len(p) <= MOST_TRIALS else rng.choice(p, MOST_TRIALS, replace=False) for p in every
        ]
        shares = [
            len(p) / len(some) if len(some) else 1.0 for p, some in zip(every, places, strict=True)
        ]
        where = np.concatenate(places)
        number = np.repeat(np.arange(len(places)), [len(p) for p in places])
        sides = [labels[task.views[0]] for labels in (task.model_labels, task.test_labels)]
        codes = np.unique(np.concatenate(sides), return_inverse=True)[1].astype(np.int32)
        models, tests = codes[: len(sides[0])], codes[len(sides[0]) :]
        row, column = np.divmod(where, len(tests))
        kinds = {kind: number == i for i, kind in enumerate(task.kinds)}
        return cls(
            where, kinds, dict(zip(task.kinds, shares, strict=True)), (models[row], tests[column])
        )

    def intervals(self, scores: NDArray[Any], costs: tuple[str, ...]) -> Intervals:
        own = scores.reshape(-1)[self.where]
        return speaker_intervals(own, self.kinds, *self.people, costs, weights=self.weights)

    def compare(
        self, ours: NDArray[Any], theirs: NDArray[Any], costs: tuple[str, ...], resamples: int
    ) -> Comparison:
        a, b = (scores.reshape(-1)[self.where] for scores in (ours, theirs))
        return compare_systems(
            a,
            b,
            self.kinds,
            *self.people,
            costs,
            weights=self.weights,
            n_resamples=resamples,
            random_state=0,
        )


def _by_group(
    scores: NDArray[Any],
    kinds: Mapping[str, NDArray[np.bool_]],
    groups: NDArray[Any] | None,
    costs: tuple[str, ...],
) -> dict[str, Evaluation]:
    """Every group's own evaluation; groups without targets or without others have none."""
    found = {}
    for name in np.unique(groups) if groups is not None else ():
        rows = groups == name
        own = {kind: mask[rows] for kind, mask in kinds.items()}
        target, *others = (mask.any() for mask in own.values())
        if target and any(others):
            found[str(name)] = evaluate(scores[rows], own, costs)
    return found
