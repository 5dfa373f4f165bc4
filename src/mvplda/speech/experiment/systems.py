"""The systems of the table, from cosine to the best.

Those that the paper has are as the paper has them: 20 + 20 latents against a PLDA of 40, ten iterations, diagonal
noise, the mean of three enrolment vectors scored as one vector. The paper feeds them raw vectors; in the usual table
they see principal components. The group "paper" has both. The others have full noise, exact enrolment, and ranks as
far as the classes allow.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import Pipeline

from ...backend import one_blas_thread
from ...bundle import Bundle
from ...exceptions import FewSpeakersWarning, MvpldaWarning, ParameterError
from ...models.baselines import CascadeScorer, CosineScorer
from ...models.multiview import MultiviewPLDA
from ...preprocessing import Reduction, standard_chain
from ...training import calibrate, make_committee
from .configuration import BackendSettings
from .vectors import Task

BLOCK = 256
"""Enrolments whose calibrated scores are made at once: hypotheses are four matrices of float64."""
Builder = Callable[[Task, BackendSettings], Bundle]
Question = Callable[[Task, BackendSettings], dict[str, Any]]


@dataclass(frozen=True)
class System:
    """A name for the command line, a title for the table, and what is fitted and asked.

    title : {0} and {1} in it stand for the first and the second view
    build : a bundle to be fitted to a task
    question : what is asked about a task's trials
    average : score the mean of a profile's vectors as one vector, as the paper does
    llr : whether scores are log-likelihood ratios, whose Cllr means something
    two_views : whether it is for two views only
    raw : see the vectors as they are; None for systems that have a preprocessing of their own
    usual : whether it is in the table where no systems are named
    """

    name: str
    title: str
    build: Builder
    question: Question = lambda task, settings: {}
    average: bool = False
    llr: bool = True
    two_views: bool = False
    raw: bool | None = None
    usual: bool = True

    def heading(self, settings: BackendSettings, views: Sequence[str]) -> str:
        """The title with the names of the views, and which vectors the paper's systems see."""
        title = self.title.format(*views)
        if self.raw is None:
            return title
        return f"{title}, raw" if self.raw or settings.reduce is None else f"{title}, reduced"


def _components(task: Task, settings: BackendSettings) -> int:
    """Components for a full noise: no more than half of what varies within cells can tell."""
    within = len(task.train) - task.classes[task.cell]
    width = int(task.train.shape[1])
    return max(min(settings.components, width, len(task.train) - 1, within // 2), min(2, width))


def _reduction(task: Task, wanted: int) -> Pipeline:
    """Principal components as they are, not whitened: a diagonal noise depends on it."""
    return Pipeline([("reduce", Reduction(min(wanted, *task.train.shape)))])


def _ranks(task: Task, settings: BackendSettings) -> dict[str, int]:
    components = _components(task, settings)
    largest = dict.fromkeys(task.views, settings.speaker_rank)
    largest[task.cell] = settings.cell_rank
    return {view: min(rank, task.classes[view] - 1, components) for view, rank in largest.items()}


def _paper(
    task: Task, settings: BackendSettings, ranks: dict[str, int], published: bool = False
) -> Bundle:
    """A model as the paper has it; no rank is above the number of classes less one."""
    random = published if settings.start == "published" else settings.start == "random"
    model = MultiviewPLDA(
        {view: min(rank, task.classes[view] - 1) for view, rank in ranks.items()},
        algorithm="paper" if published else "exact",
        init="random" if random else "moments",
        noise=settings.noise,
        max_iter=settings.paper_iterations,
        tol=0,
        random_state=settings.random_state,
    )
    chain = None if settings.reduce is None else _reduction(task, settings.reduce)
    return Bundle(chain, model)


def plda_of_cells(task: Task, settings: BackendSettings) -> Bundle:
    return _paper(task, settings, {task.cell: len(task.views) * settings.paper_rank})


def plda_of_speakers(task: Task, settings: BackendSettings) -> Bundle:
    return _paper(task, settings, {task.views[0]: len(task.views) * settings.paper_rank})


def published(task: Task, settings: BackendSettings) -> Bundle:
    ranks = dict.fromkeys(task.views, settings.paper_rank)
    return _paper(task, settings, ranks, published=True)


def exact(task: Task, settings: BackendSettings) -> Bundle:
    return _paper(task, settings, dict.fromkeys(task.views, settings.paper_rank))


def cascade(task: Task, settings: BackendSettings) -> Bundle:
    ranks = _ranks(task, settings)
    ranks.pop(task.cell)
    scorer = CascadeScorer(ranks, {"noise": "full", "max_iter": 20})
    return Bundle(_reduction(task, _components(task, settings)), scorer)


def with_interaction(task: Task, settings: BackendSettings) -> Bundle:
    model = MultiviewPLDA(_ranks(task, settings), noise="full", max_iter=20)
    return Bundle(_reduction(task, _components(task, settings)), model)


def whitened(task: Task, settings: BackendSettings) -> Bundle:
    """All views with the interaction, on whitened vectors brought to one length."""
    model = MultiviewPLDA(
        _ranks(task, settings),
        noise="full",
        noise_shrinkage=settings.shrinkage,
        max_iter=20,
        random_state=settings.random_state,
    )
    return Bundle(standard_chain(_components(task, settings)), model)


def whitened_cells(task: Task, settings: BackendSettings) -> Bundle:
    bundle = whitened(task, settings)
    bundle.scorer.set_params(views={task.cell: _ranks(task, settings)[task.cell]})
    return bundle


def committee(task: Task, settings: BackendSettings) -> Bundle:
    """Two experts per extractor, weighted and calibrated by held-out speakers, for the question that will be asked."""
    scorer = make_committee(
        task.blocks or {"vectors": int(task.train.shape[1])},
        task.views,
        labels=task.train_labels,
        dim=_components(task, settings),
        known=list(phrase_known(task, settings).get("known", {})),
        enrolment=task.per_model,
    )
    return Bundle(None, scorer)


def phrase_known(task: Task, settings: BackendSettings) -> dict[str, Any]:
    """The phrase that an enrolment claims, the second view's class; nothing where training had no such phrase."""
    view = task.views[1]
    claimed = task.model_labels[view]
    if not np.isin(claimed, task.train_labels[view]).any():
        return {}
    return {"known": {view: claimed}}


def exact_score(task: Task, settings: BackendSettings) -> dict[str, Any]:
    if not settings.priors:
        return {}
    speaker, phrase = task.views
    shared = [(phrase,), (speaker,), ()]
    return {"priors": dict(zip(shared, settings.priors, strict=True))}


def published_score(task: Task, settings: BackendSettings) -> dict[str, Any]:
    return {"scoring": "paper", **exact_score(task, settings)}


def speaker_alone(task: Task, settings: BackendSettings) -> dict[str, Any]:
    """The appendix: the first view on its own, whatever the second."""
    return {"scoring": "paper", "same": task.views[0]}


def _both(system: System) -> tuple[System, System]:
    """A system as the paper feeds it, with raw vectors, and the same on principal components."""
    raw = replace(system, name=f"{system.name}-raw", raw=True, usual=False)
    return raw, system


PUBLISHED = System(
    "jplda-printed",
    "jPLDA as published",
    published,
    published_score,
    average=True,
    two_views=True,
    raw=False,
)
ALONE = replace(
    PUBLISHED,
    name="jplda-alone",
    title="{0} alone, published",
    question=speaker_alone,
    usual=False,
)
BASELINE = "plda-cell"
BEST = "best"
SYSTEMS = {
    system.name: system
    for system in (
        System(
            "cosine-plain",
            "cosine, plain",
            lambda task, settings: Bundle(None, CosineScorer(centre=False)),
            llr=False,
            usual=False,
        ),
        System(
            "cosine",
            "cosine, centred",
            lambda task, settings: Bundle(None, CosineScorer()),
            llr=False,
        ),
        *_both(System(BASELINE, "PLDA ({0} x {1})", plda_of_cells, average=True, raw=False)),
        System("plda-speaker", "PLDA of {0}", plda_of_speakers, raw=False),
        System("cascade", "cascade of two PLDA", cascade),
        *_both(PUBLISHED),
        *_both(ALONE),
        *_both(System("jplda-exact", "jPLDA exact", exact, exact_score, average=True, raw=False)),
        System("jplda-interaction", "jPLDA exact, interaction", with_interaction),
        System("jplda-known", "  the same, {1} known", with_interaction, phrase_known),
        System("plda-whitened", "PLDA ({0} x {1}), whitened", whitened_cells),
        System("jplda-whitened", "jPLDA, interaction, {1} known, whitened", whitened, phrase_known),
        System(BEST, "best", committee, phrase_known),
    )
}
PAPER = ("cosine-plain", "plda-cell-raw", "jplda-printed-raw", "jplda-exact-raw")
GROUPS = {"paper": (*PAPER, "jplda-interaction", BEST), "all": tuple(SYSTEMS)}
"""Rows of a table by one name: the paper's systems as the paper feeds them, then what does better; all."""
COMPARED = (
    (BEST, BASELINE),
    ("jplda-whitened", "plda-whitened"),
    ("jplda-interaction", "jplda-exact"),
    ("jplda-interaction", "jplda-exact-raw"),
    ("jplda-printed", BASELINE),
    ("jplda-exact", BASELINE),
    ("jplda-printed-raw", f"{BASELINE}-raw"),
    ("jplda-exact-raw", f"{BASELINE}-raw"),
    (BASELINE, "cosine"),
    (f"{BASELINE}-raw", "cosine-plain"),
)
"""Pairs of systems whose errors are compared on the same draws of speakers."""


def systems_named(names: Sequence[str], views: int = 2) -> list[System]:
    """Systems by name or group that suit a number of views, in the order of the table; none named: the usual ones."""
    unknown = [name for name in names if name not in SYSTEMS and name not in GROUPS]
    if unknown:
        raise ParameterError(
            f"there is no system {unknown[0]!r}; there are {', '.join(SYSTEMS)}, and the groups {', '.join(GROUPS)}"
        )
    usual = [system.name for system in SYSTEMS.values() if system.usual]
    chosen = {own for name in names for own in GROUPS.get(name, (name,))} or usual
    systems = [system for system in SYSTEMS.values() if system.name in chosen]
    fit = [system for system in systems if views == 2 or not system.two_views]
    if not fit:
        raise ParameterError(f"{', '.join(chosen)} are for two views; there are {views}")
    return fit


def run_system(
    system: System, task: Task, settings: BackendSettings
) -> tuple[NDArray[Any], Bundle]:
    """Scores (models, tests) and the fitted bundle.

    One BLAS thread: products are small, and sums do not depend on the number of cores.

    Warnings that a rank is capped or that ten iterations are few are not shown; that few speakers calibrate is.
    """
    if system.raw:
        settings = replace(settings, reduce=None)
    with warnings.catch_warnings(), one_blas_thread():
        warnings.simplefilter("ignore", MvpldaWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("default", FewSpeakersWarning)
        bundle = system.build(task, settings)
        bundle.fit(task.train, task.train_labels)
        if system.name == BEST:
            calibrate(bundle, task.train, task.train_labels, enrolment=task.per_model)
        options = {"method": "average"} if system.average else {}
        profiles = bundle.enrol(task.enrol, task.enrol_ids, **options)
        question = system.question(task, settings)
        if bundle.calibrations:
            scores = _calibrated(bundle, profiles, task.test, question.get("known", {}))
        else:
            scores = np.asarray(bundle.llr(profiles, task.test, **question))
    return scores, bundle


def _calibrated(
    bundle: Bundle, profiles: Any, test: NDArray[Any], known: dict[str, NDArray[Any]]
) -> NDArray[np.float32]:
    """Calibrated scores, block by block of enrolments."""
    tests = bundle.enrol(test)
    scores = np.empty((len(profiles), len(tests)), dtype=np.float32)
    for start in range(0, len(profiles), BLOCK):
        rows = slice(start, start + BLOCK)
        claimed = {view: classes[rows] for view, classes in known.items()}
        question = {"known": claimed} if claimed else None
        scores[rows] = bundle.answer(profiles[rows], tests, question).llr
    return scores
