"""The systems of the table, from cosine to the best that we know.

Those that the paper has are as the paper has them: 20 + 20 latents against a PLDA of 40,
ten iterations, diagonal noise, the mean of three enrolment vectors scored as one vector. The
paper feeds them raw vectors; in the usual table they see principal components, on which they
and the others do better. The group "paper" has both.
The others have full noise, exact enrolment, and ranks as far as the classes allow.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import Pipeline

from ...backend import one_blas_thread
from ...bundle import Bundle
from ...calibration import LinearCalibrator
from ...exceptions import FewSpeakersWarning, MvpldaWarning, ParameterError
from ...metrics import cllr
from ...models.baselines import CascadeScorer, CosineScorer
from ...models.experts import Committee
from ...models.multiview import MultiviewPLDA
from ...preprocessing import Reduction, standard_chain
from ...training import make_committee
from ..corpora.corpus import cells_of, held_out_classes
from ..settings import Count, Rule, Settings, Whole, between
from .task import Task, score


@dataclass(frozen=True)
class BackendSettings(Settings):
    """Sizes of the back-ends.

    reduce : principal components that the paper's systems see, None for the vectors as they are; rows that are
        called raw see those in any case
    paper_rank, paper_iterations : latents of each view in the paper's systems (cells have
        as many as all views together), and iterations of EM
    speaker_rank, cell_rank : largest ranks of the first view and of the cells elsewhere;
        other views have all that their classes allow, up to ``speaker_rank``
    components : principal components of the systems with full noise
    shrinkages : shares of the total variance that may be added to the noise of tuned systems; the
        first is taken unless held-out speakers are clearly for another
    random_state : of random starts and folds
    """

    reduce: Count | None = 200
    paper_rank: Count = 20
    paper_iterations: Count = 10
    speaker_rank: Count = 40
    cell_rank: Count = 120
    components: Count = 150
    shrinkages: Annotated[
        tuple[Annotated[float, between(0, 1)], ...], Rule(bool, "has at least one share")
    ] = (
        0.05,
        0.0,
        0.02,
        0.1,
        0.2,
    )
    random_state: Whole = 0


@dataclass(frozen=True)
class SystemScores:
    """Scores (models, tests) of one system, its fitted bundle, and a word on its settings."""

    scores: NDArray[Any]
    model: Bundle
    note: str = ""


def _plainly(task: Task) -> dict[str, Any]:
    return {}


@dataclass(frozen=True)
class System:
    """A name for the command line, a title for the table, and what is fitted and asked.

    title : {0} and {1} in it stand for the first and the second view
    build : a bundle to be fitted to a task; the last argument is the shrinkage of a tuned system's noise
    question : what is asked about a task's trials
    method : how profiles are made of several vectors, where it is not as the scorer does it
    llr : whether scores are log-likelihood ratios, whose Cllr means something
    two_views : whether it is for two views only
    tuned : whether speakers that are held out choose the shrinkage, and calibrate
    vectors : of the paper's systems: the principal components that the settings name, or the vectors as they are
    usual : whether it is in the table where no systems are named
    """

    name: str
    title: str
    build: Callable[[Task, BackendSettings, float], Bundle]
    question: Callable[[Task], dict[str, Any]] = _plainly
    method: str | None = None
    llr: bool = True
    two_views: bool = False
    tuned: bool = False
    vectors: Literal["", "reduced", "raw"] = ""
    usual: bool = True

    def heading(
        self, settings: BackendSettings, views: Sequence[str] = ("speaker", "phrase")
    ) -> str:
        """The title with the names of the views, and which vectors the paper's systems see."""
        title = self.title.format(*views)
        vectors = "raw" if self.vectors and settings.reduce is None else self.vectors
        return f"{title}, {vectors}" if vectors else title

    def fit(self, task: Task, settings: BackendSettings, shrinkage: float = 0.0) -> Bundle:
        if self.vectors == "raw":
            settings = replace(settings, reduce=None)
        bundle = self.build(task, settings, shrinkage)
        if not isinstance(bundle.scorer, Committee):
            return bundle.fit(task.train, task.train_labels)
        found: list[Committee] = []
        for some in (task,) if task.as_recorded.all() else (task.without_variants, task):
            scorer = clone(bundle.scorer)
            found.append(
                scorer.fit(some.train, some.train_labels, groups=some.people, trials=some.fair)
            )
        bundle.scorer = min(found, key=lambda scorer: scorer.cost_)  # of those who were held out
        bundle.calibrator = bundle.scorer.calibrator_
        return bundle


def _components(task: Task, wanted: int) -> int:
    return min(wanted, int(task.train.shape[1]), len(task.train) - 1)


def _full_components(task: Task, settings: BackendSettings) -> int:
    """Components for a full noise: no more than half of what varies within cells can tell."""
    within = len(task.train) - task.classes[task.cell]
    return max(
        min(_components(task, settings.components), within // 2), min(2, int(task.train.shape[1]))
    )


def _plain_chain(task: Task, wanted: int | None) -> Any:
    """Principal components as they are, not whitened: a diagonal noise depends on it."""
    if wanted is None:
        return None
    return Pipeline([("reduce", Reduction(_components(task, wanted)))])


def _ranks(task: Task, settings: BackendSettings, components: int) -> dict[str, int]:
    most = {view: min(task.classes[view] - 1, components) for view in (*task.views, task.cell)}
    ranks = {view: min(settings.speaker_rank, most[view]) for view in task.views}
    return {**ranks, task.cell: min(settings.cell_rank, most[task.cell])}


def _paper_ranks(task: Task, settings: BackendSettings) -> dict[str, int]:
    return {view: min(settings.paper_rank, task.classes[view] - 1) for view in task.views}


def _paper(task: Task, settings: BackendSettings, views: dict[str, int], **options: Any) -> Bundle:
    common: dict[str, Any] = {
        "max_iter": settings.paper_iterations,
        "tol": 0,
        "random_state": settings.random_state,
    }
    return Bundle(_plain_chain(task, settings.reduce), MultiviewPLDA(views, **common, **options))


def cosine(task: Task, settings: BackendSettings, shrinkage: float) -> Bundle:
    return Bundle(None, CosineScorer())


def plain_cosine(task: Task, settings: BackendSettings, shrinkage: float) -> Bundle:
    return Bundle(None, CosineScorer(centre=False))


def plda_by_cell(task: Task, settings: BackendSettings, shrinkage: float) -> Bundle:
    return _one_view(task, settings, task.cell)


def plda_by_speaker(task: Task, settings: BackendSettings, shrinkage: float) -> Bundle:
    return _one_view(task, settings, task.views[0])


def _one_view(task: Task, settings: BackendSettings, view: str) -> Bundle:
    return _paper(
        task, settings, {view: min(len(task.views) * settings.paper_rank, task.classes[view] - 1)}
    )


def cascade(task: Task, settings: BackendSettings, shrinkage: float) -> Bundle:
    components = _full_components(task, settings)
    ranks = _ranks(task, settings, components)
    ranks.pop(task.cell)
    return Bundle(
        _plain_chain(task, components), CascadeScorer(ranks, {"noise": "full", "max_iter": 20})
    )


def as_printed(task: Task, settings: BackendSettings, shrinkage: float) -> Bundle:
    return _paper(task, settings, _paper_ranks(task, settings), algorithm="paper", init="random")


def exact(task: Task, settings: BackendSettings, shrinkage: float) -> Bundle:
    return _paper(task, settings, _paper_ranks(task, settings))


def with_interaction(task: Task, settings: BackendSettings, shrinkage: float) -> Bundle:
    components = _full_components(task, settings)
    model = MultiviewPLDA(_ranks(task, settings, components), noise="full", max_iter=20)
    return Bundle(_plain_chain(task, components), model)


def whitened(task: Task, settings: BackendSettings, shrinkage: float) -> Bundle:
    """All views with the interaction, on whitened vectors brought to one length."""
    components = _full_components(task, settings)
    return _whitened(settings, components, _ranks(task, settings, components), shrinkage)


def whitened_by_cell(task: Task, settings: BackendSettings, shrinkage: float) -> Bundle:
    components = _full_components(task, settings)
    ranks = _ranks(task, settings, components)
    return _whitened(settings, components, {task.cell: ranks[task.cell]}, shrinkage)


def without_interaction(task: Task, settings: BackendSettings, shrinkage: float) -> Bundle:
    components = _full_components(task, settings)
    ranks = _ranks(task, settings, components)
    return _whitened(settings, components, {view: ranks[view] for view in task.views}, shrinkage)


def _whitened(
    settings: BackendSettings, components: int, views: dict[str, int], shrinkage: float
) -> Bundle:
    options: dict[str, Any] = {
        "noise": "full",
        "noise_shrinkage": shrinkage,
        "max_iter": 20,
        "random_state": settings.random_state,
    }
    return Bundle(standard_chain(components), MultiviewPLDA(views, **options))


def committee(task: Task, settings: BackendSettings, shrinkage: float) -> Bundle:
    """Two experts an extractor, weighed and calibrated by held-out speakers, for the question that will be asked."""
    blocks = task.blocks or {"vectors": int(task.train.shape[1])}
    options: dict[str, Any] = {
        "known": list(claims(task).get("known", {})),
        "enrolment": task.per_model,
    }
    options |= {"labels": task.train_labels, "dim": _full_components(task, settings)}
    return Bundle(None, make_committee(blocks, task.views, **options))


def claims(task: Task) -> dict[str, Any]:
    """The phrase that an enrolment claims, the second view's class; nothing where training has met no such phrase."""
    view = task.views[1]
    claimed = task.model_labels[view]
    return {"known": {view: claimed}} if np.isin(claimed, task.train_labels[view]).any() else {}


def _as_the_paper_asks(task: Task) -> dict[str, Any]:
    return {"scoring": "paper"}


def _as_its_appendix_asks(task: Task) -> dict[str, Any]:
    """The first view on its own, whatever the second; a target with another phrase is no impostor to it."""
    return {"scoring": "paper", "same": task.views[0]}


PLDA_CELL = System("plda-cell", "PLDA by cell", plda_by_cell, method="average", vectors="reduced")
PRINTED = System(
    "jplda-printed",
    "jPLDA as printed",
    as_printed,
    _as_the_paper_asks,
    "average",
    two_views=True,
    vectors="reduced",
)
ALONE = System(
    "jplda-alone",
    "{0} alone, printed",
    as_printed,
    _as_its_appendix_asks,
    "average",
    two_views=True,
    vectors="reduced",
    usual=False,
)
EXACT = System("jplda-exact", "jPLDA exact", exact, method="average", vectors="reduced")


def on_raw_vectors(system: System) -> System:
    """The same system, fed as the paper feeds it."""
    return replace(system, name=f"{system.name}-raw", vectors="raw", usual=False)


SYSTEMS = {
    system.name: system
    for system in (
        System("cosine-plain", "cosine, plain", plain_cosine, llr=False, usual=False),
        System("cosine", "cosine, centred", cosine, llr=False),
        on_raw_vectors(PLDA_CELL),
        PLDA_CELL,
        System("plda-speaker", "PLDA by {0}", plda_by_speaker, vectors="reduced"),
        System("cascade", "cascade of two PLDA", cascade),
        on_raw_vectors(PRINTED),
        PRINTED,
        on_raw_vectors(ALONE),
        ALONE,
        on_raw_vectors(EXACT),
        EXACT,
        System("jplda-interaction", "jPLDA exact, interaction", with_interaction),
        System("jplda-known", "  the same, {1} known", with_interaction, claims),
        System("plda-tuned", "PLDA by cell, tuned", whitened_by_cell, tuned=True),
        System(
            "jplda-tuned",
            "jPLDA, interaction, {1} known, tuned",
            whitened,
            claims,
            tuned=True,
            usual=False,
        ),
        System("best", "best", committee, claims),
    )
}
BASELINE, BEST = "plda-cell", "best"
PAPERS = (PLDA_CELL, PRINTED, EXACT)
"""The paper's systems that answer its main question."""
GROUPS = {
    "paper": (
        "cosine-plain",
        "cosine",
        *(name for system in (*PAPERS, ALONE) for name in (f"{system.name}-raw", system.name)),
        "jplda-interaction",
        "plda-tuned",
        "jplda-tuned",
        "best",
    )
}
"""Rows of a table by one name: the paper's systems raw and reduced, and what it takes to do better."""

COMPARED = (
    (BEST, BASELINE),
    ("jplda-tuned", BASELINE),
    ("jplda-tuned", "plda-tuned"),
    ("jplda-interaction", "jplda-exact"),
    *(
        (f"{system.name}{vectors}", f"{BASELINE}{vectors}")
        for vectors in ("", "-raw")
        for system in (PRINTED, EXACT)
    ),
    (BASELINE, "cosine"),
    (f"{BASELINE}-raw", "cosine-plain"),
)
"""Pairs of systems whose errors are compared on the same draws of speakers; the first pair is the claim."""


def systems_named(names: tuple[str, ...], settings: BackendSettings | None = None) -> list[System]:
    """Systems by name or group, in the order of the table; none named: the usual ones.

    Where the settings reduce nothing, a system that is told to see raw vectors is the same as the plain one of its
    name, and stands there once.
    """
    unknown = [name for name in names if name not in SYSTEMS and name not in GROUPS]
    if unknown:
        raise ParameterError(
            f"there is no system {unknown[0]!r}; there are {', '.join(SYSTEMS)}, and the group {', '.join(GROUPS)}"
        )
    chosen = {own for name in names for own in GROUPS.get(name, (name,))}
    if settings is not None and settings.reduce is None:
        chosen -= {
            name
            for name in chosen
            if SYSTEMS[name].vectors == "raw" and name.removesuffix("-raw") in chosen
        }
    return [
        system for name, system in SYSTEMS.items() if (name in chosen if names else system.usual)
    ]


def run_system(system: System, task: Task, settings: BackendSettings) -> SystemScores:
    """Fit and score, on one BLAS thread: products are small, and sums do not depend on the cores that there are.

    That a rank is capped or ten iterations are few is no news here; that few speakers calibrate is.
    """
    with warnings.catch_warnings(), one_blas_thread():
        warnings.simplefilter("ignore", MvpldaWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("default", FewSpeakersWarning)
        question = system.question(task)
        if not system.tuned:
            bundle = system.fit(task, settings)
            scores, note = score(bundle, task, method=system.method, **question), _ranks_of(bundle)
            if isinstance(bundle.scorer, Committee):
                note = f"{len(bundle.scorer.experts_)} experts"
            if bundle.calibrator is not None:
                scores = bundle.calibrator.transform(scores.ravel().astype(np.float64)).reshape(
                    scores.shape
                )
                note += f", calibrated on {bundle.calibrator.n_speakers_} speakers"
            return SystemScores(scores, bundle, note)
        tuned = tune(
            task,
            settings.shrinkages,
            partial(_refit, system, settings),
            system.question,
            settings.random_state,
        )
        scores = score(tuned.bundle, task, **question)
        note = f"{_ranks_of(tuned.bundle)}, shrinkage {tuned.shrinkage:g}"
        if tuned.calibrator is not None:
            scores = tuned.calibrator.transform(scores.ravel().astype(np.float64)).reshape(
                scores.shape
            )
            note += f", calibrated on {tuned.calibrator.n_speakers_} speakers"
        return SystemScores(scores, tuned.bundle, note)


def _refit(system: System, settings: BackendSettings, task: Task, shrinkage: float) -> Bundle:
    return system.fit(task, settings, shrinkage)


def _ranks_of(bundle: Bundle) -> str:
    ranks = getattr(bundle.scorer, "views_", None) or getattr(bundle.scorer, "views", {})
    return (
        f"rank{'s' if len(ranks) > 1 else ''} {' + '.join(map(str, ranks.values()))}"
        if ranks
        else ""
    )


# Settings and calibration from speakers that the extractor has not met.
#
# An extractor knows its own training speakers too well: their vectors hardly vary, and a
# back-end that is judged on them believes that nobody's do. Speakers that were held out of
# the extractor tell the truth. The back-end is trained without them for every candidate,
# their trials choose the candidate and fit its calibration, and then all speakers train the
# final one. Where none are known to be unseen, a share of the training speakers stands in:
# unseen by the back-end at least.


SHARE = 0.2
"""Of the training speakers, held out where the extractor's unseen ones are not known."""

CLEARLY = 0.95
"""A candidate costs no more than this share of what the first one costs, or the first is taken: few speakers cannot
tell smaller differences from chance."""

Fit = Callable[[Task, float], Bundle]
"""Trains a back-end on a task's training vectors, with a shrinkage of the noise."""


@dataclass(frozen=True)
class Tuned:
    """A back-end trained on all speakers, with the calibration found on others.

    bundle : its own calibrator is for the plain question, "same in every view?"
    calibrator : for the question that was asked; None where there were too few speakers
    development : Cllr of the held-out speakers' trials, calibrated, by shrinkage
    """

    bundle: Bundle
    shrinkage: float
    calibrator: LinearCalibrator | None
    development: dict[float, float]


def tune(
    task: Task,
    shrinkages: Sequence[float],
    fit: Fit,
    question: Callable[[Task], dict[str, Any]] = _plainly,
    random_state: int = 0,
) -> Tuned:
    """Choose the shrinkage, the first unless another is clearly better, and calibrate; then train on all."""
    inner = development_task(task, random_state)
    if inner is None:
        return Tuned(fit(task, shrinkages[0]), shrinkages[0], None, {})
    found: dict[float, tuple[float, LinearCalibrator, Bundle]] = {}
    for share in shrinkages:
        candidate = fit(inner, share)
        found[share] = (*_calibrate(candidate, inner, question(inner)), candidate)
    chosen = min(found, key=lambda share: found[share][0])
    if found[chosen][0] > CLEARLY * found[shrinkages[0]][0]:
        chosen = shrinkages[0]
    _, calibrator, candidate = found[chosen]
    bundle = fit(task, chosen)
    bundle.calibrator = _calibrate(candidate, inner, {})[1]
    return Tuned(bundle, chosen, calibrator, {share: cost for share, (cost, *_) in found.items()})


def _calibrate(
    bundle: Bundle, task: Task, question: dict[str, Any]
) -> tuple[float, LinearCalibrator]:
    """What a bundle's scores of a task cost once they are calibrated on it, and the calibrator."""
    targets, profiles = task.targets, bundle.enrol(task.enrol, task.enrol_ids)
    bundle.calibrator = LinearCalibrator()
    bundle.fit_calibrator(
        profiles, task.test, targets, speakers=task.model_labels[task.views[0]], **question
    )
    llrs = bundle.calibrated(profiles, task.test, **question)
    return float(cllr(llrs[targets], llrs[~targets])), bundle.calibrator


def development_task(task: Task, random_state: int = 0) -> Task | None:
    """Trials among held-out training speakers, and training vectors of the others; None where they are too few."""
    speaker = task.views[0]
    people = task.train_labels[speaker].astype(np.str_) if task.people is None else task.people
    names = np.unique(people)
    unseen = names[:0] if task.unseen is None else np.unique(people[task.unseen])
    if (
        2 <= len(unseen) <= len(names) - 3
    ):  # an extractor from elsewhere has met nobody: then a share is held out
        held = unseen
    elif len(names) >= 6:
        held = held_out_classes(names, SHARE, random_state)
    else:
        return None
    out = np.isin(people, held)
    own = np.flatnonzero(out & task.as_recorded)
    if len(np.unique(people[~out])) < 3:
        return None
    per_model = task.per_model
    cells = [
        rows
        for rows in cells_of(task.train_labels, own, task.views).values()
        if len(rows) > per_model
    ]
    test = np.sort(np.concatenate([own[:0], *(rows[per_model:] for rows in cells)]))
    if len(np.unique(people[test])) < 2:
        return None
    enrol = np.concatenate([rows[:per_model] for rows in cells])
    first = enrol[::per_model]
    return replace(
        task,
        train=task.train[~out],
        train_labels={view: values[~out] for view, values in task.train_labels.items()},
        enrol=task.train[enrol],
        enrol_ids=np.repeat(np.arange(len(cells)), per_model),
        model_labels={view: values[first] for view, values in task.train_labels.items()},
        test=task.train[test],
        test_labels={view: values[test] for view, values in task.train_labels.items()},
        mask=None,
        groups=None,
        people=people[~out],
        unseen=None,
        recorded=None,
    )
