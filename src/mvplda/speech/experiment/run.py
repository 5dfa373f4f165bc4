"""A whole experiment: corpus, extractor, vectors, systems, table, page; all of it in one folder."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..audio.settings import FeatureSettings
from ..datasets.corpus import Corpus
from ..exceptions import DataError
from ..io.vectors import VectorSet, read_vectors, write_vectors
from ..jvector.settings import kind_of
from .compare import run_systems
from .configuration import Configuration, write_configuration
from .extraction import Variants, Vectors, extract_everything, gather, train_extractor
from .page import write_experiment_page
from .results import Results
from .systems import BEST, systems_named
from .task import Task

Say = Callable[[str], None]
NAMED = 20
"""Utterances that cannot be used are named up to this number."""


def run_experiment(
    corpus: Corpus,
    configuration: Configuration,
    output: Path,
    *,
    vectors: str | Path | None = None,
    extractor: str | Path | None = None,
    cache: str | Path | None = None,
    workers: int | None = None,
    on_error: Any = "skip",
    report: bool = True,
    progress: bool = True,
    say: Say = lambda text: None,
) -> Results:
    """Run everything, and leave in a folder what was done and what came of it.

    Parameters
    ----------
    corpus, configuration : what is tried, on what
    output : folder: configuration.toml, extractor.safetensors, vectors.npz, model.safetensors
        (of the best system), table.txt, .md, .csv, results.json and report.html
    vectors : a file of vectors; nothing is trained but the back-ends
    extractor : a trained extractor; only vectors are made
    cache : folder for features
    on_error : "skip" goes on without utterances that cannot be read, and names them; "raise" stops
    report : write the page (needs matplotlib)
    """
    started = time.perf_counter()
    output.mkdir(parents=True, exist_ok=True)
    write_configuration(output / "configuration.toml", configuration)
    say(corpus.summary() + "\n")
    found = _vectors(corpus, configuration, output, vectors, extractor, cache, workers, on_error, progress, say)
    notes = [f"{name}: {reason}" for name, reason in found.skipped]
    if notes:
        say(f"{len(notes)} utterance(s) could not be used:")
        for note in notes[:NAMED]:
            say(f"  {note}")
        if len(notes) > NAMED:
            say(f"  and {len(notes) - NAMED} more, all in results.json")
        missing = {name for name, _ in found.skipped}
        corpus = corpus.select([row for row, name in enumerate(corpus.ids.tolist()) if name not in missing])
    known = None if found.extractor is None else found.extractor.classes.get(corpus.views[0])
    task = Task.of(corpus, found.everything, found.extra, met=known)
    title = f"{corpus.name}, {_described(found)}"
    say(f"\n{title}: {len(task.train)} training vectors of dimension {task.train.shape[1]}\n")
    settings = configuration.evaluation
    results, scored = run_systems(
        task,
        systems_named(settings.systems),
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
        write_experiment_page(results, scored, task, output / "report.html", source=corpus.source)
    say(f"\n{time.perf_counter() - started:.0f} s; everything is in {output}")
    return results


def _described(found: Vectors) -> str:
    if found.extractor is None:
        return found.everything.extractor or "vectors from elsewhere"
    return f"{kind_of(found.extractor.network)} network of {found.extractor.n_parameters:,} parameters"


def _vectors(
    corpus: Corpus,
    configuration: Configuration,
    output: Path,
    vectors: str | Path | None,
    extractor: str | Path | None,
    cache: str | Path | None,
    workers: int | None,
    on_error: Any,
    progress: bool,
    say: Say,
) -> Vectors:
    if vectors is not None:
        return Vectors(_covering(read_vectors(vectors), corpus), None, None)
    options: dict[str, Any] = {"cache": cache, "workers": workers, "on_error": on_error, "progress": progress}
    from ..jvector.extractor import Extractor

    if extractor is not None:
        trained = Extractor.load(extractor)
        wanted = configuration.variants if configuration.variants.backend != "speakers" else Variants()
        material = gather(corpus, FeatureSettings.from_dict(trained.feature_settings), wanted, say=say, **options)
    else:
        material = gather(corpus, configuration.features, configuration.variants, say=say, **options)
        trained = train_extractor(
            corpus,
            material,
            configuration.network,
            configuration.training,
            configuration.features,
            progress=progress,
            say=say,
        )
        trained.save(output / "extractor.safetensors")
    found = extract_everything(corpus, material, trained, configuration.variants, device=configuration.training.device)
    write_vectors(output / "vectors.npz", found.everything)
    return found


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
