"""A whole experiment: corpus, extractor, vectors, systems, table, page; all of it in one folder."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from .._typing import BoolArray, IntArray, Names
from ..backend import cores
from ..bundle import Bundle
from ..exceptions import DataError
from ..extractors import load_extractor
from ..extractors.sound import Clip
from ..io.vectors import VectorSet, read_vectors, write_vectors
from ..metrics import compare_systems, evaluate, speaker_intervals
from ..metrics.comparison import Comparison
from ..metrics.evaluation import Evaluation
from ..metrics.intervals import Intervals
from ..persistence import write_atomically
from .corpora import Corpus
from .frames import extract_features
from .results import Results, SystemResult, over_seeds, provenance, table_line
from .settings import BackendSettings, Configuration, EvaluationSettings, to_toml
from .systems import BEST, COMPARED, System, Task, compared_views, run_system, systems_named

__all__ = ["run_experiment"]

Say = Callable[[str], object]

NAMED = 20
"""Utterances that cannot be used are named up to this number."""
MOST_TRIALS = 2_000_000
"""Of a kind with more trials, so many stand for all in intervals and comparison; error rates are of all."""
CHECKPOINT, UNFINISHED = "network.checkpoint", "vectors.unfinished"
"""What a run that was interrupted goes on from."""


@dataclass(frozen=True)
class Vectors:
    """Vectors of a corpus, and what is known of how they were made.

    blocks : {extractor: columns}; empty for a network that was trained here
    skipped : (id, reason) of utterances without a vector
    """

    vectors: VectorSet
    blocks: dict[str, int] = field(default_factory=dict)
    skipped: tuple[tuple[str, str], ...] = ()


def run_experiment(
    corpus: Corpus,
    configuration: Configuration,
    output: Path,
    say: Say,
    *,
    verbose: bool = False,
    vectors: Sequence[str | Path] = (),
    extractors: Sequence[str | Path] = (),
    inputs: Sequence[str | Path] = (),
) -> Results:
    """Run everything, and leave in a folder what was done and what came of it.

    A run that was interrupted goes on in the same folder with the same configuration: training from its last epoch,
    everything after it from the vectors.

    Parameters
    ----------
    output : folder: configuration.toml, extractor.onnx with its recipe, vectors.npz, model.safetensors
        (of the best system), table.txt, results.json and report.html
    say : is given lines as things are done
    verbose : show progress on standard error, too
    vectors : files of vectors, which stand side by side; nothing is trained but the back-ends
    extractors : side by side, as `mvplda.load_extractor` takes them; none: a network is trained on the corpus
    inputs : files and folders whose hashes stand in results.json
    """
    started = time.perf_counter()
    # what cannot be evaluated is refused before a network is trained
    systems_named(configuration.evaluation.systems, len(compared_views(corpus)))
    output.mkdir(parents=True, exist_ok=True)
    say(corpus.summary() + "\n")
    if vectors:
        made = read_corpus_vectors(corpus, vectors)
    elif extractors:
        made = extract_corpus(corpus, extractors, output / UNFINISHED, say, verbose)
    else:
        made = _network_vectors(corpus, configuration, output, say, verbose)
    # after the vectors: a later run takes both for whole
    write_atomically(output / "configuration.toml", to_toml(configuration.to_dict()).encode())
    if not vectors:
        write_vectors(output / "vectors.npz", made.vectors)
    notes = tuple(f"{name}: {reason}" for name, reason in made.skipped)
    if notes:
        say(f"{len(notes)} utterance(s) could not be used, all named in results.json:")
        say("\n".join(f"  {note}" for note in notes[:NAMED]))
        corpus = corpus.without([name for name, _ in made.skipped])
    # rows of utterances without a vector stay zero: the protocol leaves them out
    X = np.zeros((len(corpus), made.vectors.X.shape[1]), dtype=np.float32)
    there = np.isin(corpus.ids, made.vectors.ids)
    X[there] = made.vectors.X[made.vectors.rows(corpus.ids[there])]
    blocks = made.blocks if len(made.blocks) > 1 else {}
    task = Task(corpus, X, blocks)
    title = f"{corpus.name}, {made.vectors.extractor or 'vectors from elsewhere'}"
    say(f"\n{title}: {len(task.train)} training vectors of dimension {task.train.shape[1]}\n")
    results, best = run_systems(task, configuration, say)
    results = replace(
        results,
        title=title,
        summary=corpus.summary(),
        configuration=configuration.to_dict(),
        provenance=provenance(inputs),
        notes=notes,
    )
    results.save(output)
    say("\n" + results.table())
    if best is not None:
        best.extractor = made.vectors.extractor
        best.save(output / "model.safetensors")
    results.write_page(output / "report.html", corpus.source)
    say(f"\n{time.perf_counter() - started:.0f} s; everything is in {output}")
    return results


def _network_vectors(
    corpus: Corpus, configuration: Configuration, output: Path, say: Say, verbose: bool
) -> Vectors:
    """Vectors of a network that is trained here on the training speakers, and left as an extractor.

    Those of an earlier run with the same configuration are taken as they are.
    """
    from .training import train, training_recipe, write_extractor

    vectors = output / "vectors.npz"
    written = output / "configuration.toml"
    wanted = to_toml(configuration.to_dict())
    if vectors.is_file() and written.is_file() and written.read_text(encoding="utf-8") == wanted:
        say(f"vectors of an earlier run with the same configuration: {vectors}")
        made = read_vectors(vectors)
        lacking = np.setdiff1d(corpus.ids, made.ids).tolist()
        return Vectors(made, skipped=tuple((name, "no vector") for name in lacking))
    recipe = training_recipe(configuration.features)
    settings = (configuration.network, configuration.training)
    say(f"features of {len(corpus)} utterances")
    whole = extract_features(corpus.ids, _clips(corpus), recipe, verbose=verbose)
    used = np.flatnonzero(np.isin(whole.rows, corpus.protocol.train))
    labels = corpus.labels_at(whole.rows[used], corpus.views)
    speakers = len(np.unique(labels[corpus.views[0]]))
    say(f"training on {len(used)} utterances of {speakers} speakers")
    say("the same command goes on after an interruption")
    features = whole.features.take(used)
    checkpoint = output / CHECKPOINT
    trained = train(features, labels, *settings, checkpoint=checkpoint, verbose=verbose)
    extractor = write_extractor(trained, recipe, output / "extractor.onnx")
    X = trained.extract(whole.features)
    checkpoint.unlink()
    return Vectors(VectorSet(corpus.ids[whole.rows], X, extractor.name), skipped=whole.skipped)


def extract_corpus(
    corpus: Corpus, extractors: Sequence[str | Path], unfinished: Path, say: Say, verbose: bool
) -> Vectors:
    """Vectors of extractors side by side."""
    extractor = load_extractor(list(extractors))
    say(f"vectors of {len(corpus)} utterances: {extractor.name}")
    made = extractor.extract(
        list(_clips(corpus)),
        on_error="skip",
        progress=verbose,
        workers=cores(),
        unfinished=unfinished,
    )
    unfinished.unlink()
    # what was skipped is in the order of the corpus
    left = np.delete(corpus.ids, made.rows).tolist()
    skipped = [(name, reason) for name, (_, reason) in zip(left, made.skipped, strict=True)]
    blocks = {name: stop - start for name, (start, stop) in extractor.blocks.items()}
    vectors = VectorSet(corpus.ids[made.rows], made.X, extractor.name)
    return Vectors(vectors, blocks, tuple(skipped))


def _clips(corpus: Corpus) -> tuple[Clip, ...]:
    if corpus.clips is None:
        raise DataError(f"{corpus.name} has no sound: give its vectors instead")
    return corpus.clips


def read_corpus_vectors(corpus: Corpus, files: Sequence[str | Path]) -> Vectors:
    """Vectors of files, side by side; an .npz with several arrays of vectors has several blocks."""
    blocks: dict[str, Names] = {}
    for file in files:
        for name, X in _blocks_of(Path(file), corpus).items():
            # two files may have vectors of one extractor
            blocks[name if name not in blocks else f"{name} ({len(blocks) + 1})"] = X
    X = np.concatenate(list(blocks.values()), axis=1)
    widths = {name: int(block.shape[1]) for name, block in blocks.items()}
    return Vectors(VectorSet(corpus.ids, X, "+".join(blocks)), widths)


def _blocks_of(file: Path, corpus: Corpus) -> dict[str, Names]:
    if file.suffix == ".npz":
        with np.load(file) as arrays:
            tables = [name for name in arrays if arrays[name].ndim == 2]
            # without ids, utterances are called by their rows
            if len(tables) > 1 and "ids" not in arrays:
                rows = corpus.ids.astype(np.int64)
                return {name: arrays[name][rows].astype(np.float32) for name in tables}
    vectors = read_vectors(file).select(corpus.ids)
    return {vectors.extractor or file.stem: vectors.X.astype(np.float32)}


def run_systems(
    task: Task, configuration: Configuration, say: Say
) -> tuple[Results, Bundle | None]:
    """Fit, score and evaluate, one line per system as it is done; the results, and the best system's model.

    A system's matrix of scores is dropped when its error rates are known; what intervals and comparison
    need is the sample of its trials.
    """
    settings = configuration.evaluation
    sample = TrialSample.of(task)
    done: dict[str, SystemResult] = {}
    best = None
    for system in systems_named(settings.systems, len(task.views)):
        variants = [("", configuration.backend)]
        # a grid is of readings of the paper: other systems have one row
        if system.raw is not None:
            variants = list(configuration.variants())
        for suffix, backend in variants:
            result, model = _run_seeds(system, task, backend, settings, sample)
            result = replace(result, name=result.name + suffix, title=result.title + suffix)
            if not done:
                headings = [heading for heading, _, _ in result.evaluation.summary()]
                say(table_line("EER, %", [*headings, "s"]))
            say(table_line(result.title, [*result.cells(), f"{result.seconds:.1f}"]))
            done[result.name] = result
        if system.name == BEST:
            best = model
    if settings.resamples and result.intervals is None:
        say("no intervals: there are too few speakers")
    comparisons = {}
    for ours, theirs in COMPARED:
        if result.intervals is not None and ours in done and theirs in done:
            scores = done[ours].sample, done[theirs].sample
            comparisons[ours, theirs] = sample.compare(*scores, settings)
    return Results(tuple(done.values()), comparisons), best


def _run_seeds(
    system: System,
    task: Task,
    backend: BackendSettings,
    settings: EvaluationSettings,
    sample: TrialSample,
) -> tuple[SystemResult, Bundle]:
    """The first seed's result and model; where the start is drawn, what the other seeds give beside it."""
    runs: list[tuple[Evaluation, Intervals | None]] = []
    started = time.perf_counter()
    for seed in range(settings.seeds if system.is_random(backend) else 1):
        own = replace(backend, random_state=backend.random_state + seed)
        scores, model = run_system(system, task, own)
        drawn = sample.scores(scores)
        evaluation = evaluate(scores, task.kinds)
        runs.append((evaluation, sample.intervals(drawn, settings)))
        # the table, the model and the comparisons are of the first seed
        if not seed:
            first = model
            result = SystemResult(
                system.name,
                system.heading(backend, task.views),
                *runs[0],
                time.perf_counter() - started,
                system.llr,
                drawn,
            )
    if len(runs) > 1:
        result = replace(result, seeds=over_seeds(runs))
    return result, first


@dataclass(frozen=True)
class TrialSample:
    """Trials for intervals and comparison, the same for every system.

    where : (n,) places in the matrix of scores
    kinds : (n,) masks
    weights : how many trials one of a kind stands for
    people : (n,) numbers of the enrolled and of the tested speaker
    """

    where: IntArray
    kinds: dict[str, BoolArray]
    weights: dict[str, float]
    people: tuple[Names, Names]

    @classmethod
    def of(cls, task: Task, most: int = MOST_TRIALS) -> TrialSample:
        """Up to so many trials of every kind."""
        # one seed for all systems: they are compared on the same trials
        rng = np.random.default_rng(0)
        places = []
        weights = {}
        for kind, mask in task.kinds.items():
            place = np.flatnonzero(mask)
            count = len(place)
            if count > most:
                place = place[np.unique(rng.integers(count, size=most))]
            # of a kind without trials there is nothing to weigh
            weights[kind] = max(1, count) / max(1, len(place))
            places.append(place)
        where = np.concatenate(places)
        kinds = {kind: mask.reshape(-1)[where] for kind, mask in task.kinds.items()}
        speaker = task.views[0]
        enrolled = task.model_labels[speaker]
        both = np.concatenate([enrolled, task.test_labels[speaker]])
        codes = np.unique(both, return_inverse=True)[1].astype(np.int32)
        # numbers, not names: there are millions of trials
        row, column = np.divmod(where, len(task.test))
        return cls(where, kinds, weights, (codes[row], codes[len(enrolled) + column]))

    def scores(self, matrix: Names) -> Names:
        """(n,) of a matrix of scores."""
        return matrix.reshape(-1)[self.where]

    def intervals(self, scores: Names, settings: EvaluationSettings) -> Intervals | None:
        """None where none are wanted, or there are too few speakers."""
        if not settings.resamples:
            return None
        try:
            return speaker_intervals(scores, self.kinds, *self.people, weights=self.weights)
        except DataError:
            return None

    def compare(self, ours: Names, theirs: Names, settings: EvaluationSettings) -> Comparison:
        return compare_systems(
            ours,
            theirs,
            self.kinds,
            *self.people,
            weights=self.weights,
            n_resamples=settings.resamples,
            random_state=0,
        )
