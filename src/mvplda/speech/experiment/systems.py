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
from ...training import make_committee
from ..settings import Settings, number
from .task import Task


@dataclass(frozen=True)
class BackendSettings(Settings):
    """Sizes of the back-ends, and the readings of the paper that are open.

    reduce : principal components that the paper's systems see, None for the vectors as they are; rows that are
        called raw see those in any case
    paper_rank, paper_iterations : latents of each view in the paper's systems (cells have
        as many as all views together), and iterations of EM
    start : of the paper's systems, "random" or "moments"; "published" is random for the published formulas alone
    noise : of the paper's systems, "diagonal", "full" or "isotropic"
    priors : p1 (phrase shared), p2 (speaker shared), p3 (nothing shared), in proportion
    speaker_rank, cell_rank : largest ranks of the first view and of the cells elsewhere;
        other views have all that their classes allow, up to ``speaker_rank``
    components : principal components of the systems with full noise
    shrinkage : share of the total variance that is added to the noise of whitened systems
    random_state : of random starts
    """

    reduce: int | None = number(200, 1)
    paper_rank: int = number(20, 1)
    paper_iterations: int = number(10, 1)
    start: str = "published"
    noise: str = "diagonal"
    priors: tuple[float, ...] = ()
    speaker_rank: int = number(40, 1)
    cell_rank: int = number(120, 1)
    components: int = number(150, 1)
    shrinkage: float = number(0.05, 0, 1)
    random_state: int = number(0, 0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.start not in ("published", "random", "moments"):
            raise ParameterError(f"start is published, random or moments; got {self.start!r}")
        if self.priors and len(self.priors) != 3:
            raise ParameterError(f"priors are p1, p2 and p3; got {len(self.priors)}")


@dataclass(frozen=True)
class SystemScores:
    """Scores (models, tests) of one system, its fitted bundle, and a word on its settings."""

    scores: NDArray[Any]
    model: Bundle
    note: str = ""


Builder = Callable[[Task, BackendSettings], Bundle]
Question = Callable[[Task, BackendSettings], dict[str, Any]]


def _plain_question(task: Task, settings: BackendSettings) -> dict[str, Any]:
    return {}


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
    question: Question = _plain_question
    average: bool = False
    llr: bool = True
    two_views: bool = False
    raw: bool | None = None
    usual: bool = True

    def heading(
        self, settings: BackendSettings, views: Sequence[str] = ("speaker", "phrase")
    ) -> str:
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


def _reduction(task: Task, wanted: int | None) -> Pipeline | None:
    """Principal components as they are, not whitened: a diagonal noise depends on it."""
    if wanted is None:
        return None
    count = min(wanted, int(task.train.shape[1]), len(task.train) - 1)
    return Pipeline([("reduce", Reduction(count))])


def _ranks(task: Task, settings: BackendSettings) -> dict[str, int]:
    components = _components(task, settings)
    ranks = {}
    for view in (*task.views, task.cell):
        wanted = settings.cell_rank if view == task.cell else settings.speaker_rank
        ranks[view] = min(wanted, task.classes[view] - 1, components)
    return ranks


def _paper(
    task: Task, settings: BackendSettings, views: dict[str, int], published: bool = False
) -> Bundle:
    random = published if settings.start == "published" else settings.start == "random"
    model = MultiviewPLDA(
        views,
        algorithm="paper" if published else "exact",
        init="random" if random else "moments",
        noise=settings.noise,
        max_iter=settings.paper_iterations,
        tol=0,
        random_state=settings.random_state,
    )
    return Bundle(_reduction(task, settings.reduce), model)


def _paper_ranks(task: Task, settings: BackendSettings) -> dict[str, int]:
    """As many latents of a view as the paper has, or one fewer than there are classes."""
    return {view: min(settings.paper_rank, task.classes[view] - 1) for view in task.views}


def cosine(task: Task, settings: BackendSettings) -> Bundle:
    return Bundle(None, CosineScorer())


def plain_cosine(task: Task, settings: BackendSettings) -> Bundle:
    return Bundle(None, CosineScorer(centre=False))


def plda_of_cells(task: Task, settings: BackendSettings) -> Bundle:
    return _one_view(task, settings, task.cell)


def plda_of_speakers(task: Task, settings: BackendSettings) -> Bundle:
    return _one_view(task, settings, task.views[0])


def _one_view(task: Task, settings: BackendSettings, view: str) -> Bundle:
    rank = min(len(task.views) * settings.paper_rank, task.classes[view] - 1)
    return _paper(task, settings, {view: rank})


def cascade(task: Task, settings: BackendSettings) -> Bundle:
    ranks = _ranks(task, settings)
    ranks.pop(task.cell)
    scorer = CascadeScorer(ranks, {"noise": "full", "max_iter": 20})
    return Bundle(_reduction(task, _components(task, settings)), scorer)


def published(task: Task, settings: BackendSettings) -> Bundle:
    return _paper(task, settings, _paper_ranks(task, settings), published=True)


def exact(task: Task, settings: BackendSettings) -> Bundle:
    return _paper(task, settings, _paper_ranks(task, settings))


def with_interaction(task: Task, settings: BackendSettings) -> Bundle:
    model = MultiviewPLDA(_ranks(task, settings), noise="full", max_iter=20)
    return Bundle(_reduction(task, _components(task, settings)), model)


def whitened(task: Task, settings: BackendSettings) -> Bundle:
    """All views with the interaction, on whitened vectors brought to one length."""
    return _whitened(task, settings, _ranks(task, settings))


def whitened_cells(task: Task, settings: BackendSettings) -> Bundle:
    return _whitened(task, settings, {task.cell: _ranks(task, settings)[task.cell]})


def _whitened(task: Task, settings: BackendSettings, views: dict[str, int]) -> Bundle:
    model = MultiviewPLDA(
        views,
        noise="full",
        noise_shrinkage=settings.shrinkage,
        max_iter=20,
        random_state=settings.random_state,
    )
    return Bundle(standard_chain(_components(task, settings)), model)


def committee(task: Task, settings: BackendSettings) -> Bundle:
    """Two experts per extractor, weighted and calibrated by held-out speakers, for the question that will be asked."""
    blocks = task.blocks or {"vectors": int(task.train.shape[1])}
    scorer = make_committee(
        blocks,
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


def published_score(task: Task, settings: BackendSettings) -> dict[str, Any]:
    return {"scoring": "paper", **exact_score(task, settings)}


def exact_score(task: Task, settings: BackendSettings) -> dict[str, Any]:
    if not settings.priors:
        return {}
    speaker, phrase = task.views
    shared = [(phrase,), (speaker,), ()]
    return {"priors": dict(zip(shared, settings.priors, strict=True))}


def speaker_alone(task: Task, settings: BackendSettings) -> dict[str, Any]:
    """The appendix: the first view on its own, whatever the second."""
    return {"scoring": "paper", "same": task.views[0]}


def on_raw_vectors(system: System) -> System:
    """The same system, fed as the paper feeds it."""
    return replace(system, name=f"{system.name}-raw", raw=True, usual=False)


PLDA_CELL = System("plda-cell", "PLDA ({0} x {1})", plda_of_cells, average=True, raw=False)
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
EXACT = System("jplda-exact", "jPLDA exact", exact, exact_score, average=True, raw=False)
SYSTEMS = {
    system.name: system
    for system in (
        System("cosine-plain", "cosine, plain", plain_cosine, llr=False, usual=False),
        System("cosine", "cosine, centred", cosine, llr=False),
        on_raw_vectors(PLDA_CELL),
        PLDA_CELL,
        System("plda-speaker", "PLDA of {0}", plda_of_speakers, raw=False),
        System("cascade", "cascade of two PLDA", cascade),
        on_raw_vectors(PUBLISHED),
        PUBLISHED,
        on_raw_vectors(ALONE),
        ALONE,
        on_raw_vectors(EXACT),
        EXACT,
        System("jplda-interaction", "jPLDA exact, interaction", with_interaction),
        System("jplda-known", "  the same, {1} known", with_interaction, phrase_known),
        System("plda-whitened", "PLDA ({0} x {1}), whitened", whitened_cells),
        System("jplda-whitened", "jPLDA, interaction, {1} known, whitened", whitened, phrase_known),
        System("best", "best", committee, phrase_known),
    )
}
BASELINE = "plda-cell"
BEST = "best"
PAPER = ("cosine-plain", "plda-cell-raw", "jplda-printed-raw", "jplda-exact-raw")
GROUPS = {
    "paper": (*PAPER, "jplda-interaction", BEST),
    "all": tuple(SYSTEMS),
}
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


def systems_named(names: tuple[str, ...]) -> list[System]:
    """Systems by name or group, in the order of the table; none named: the usual ones."""
    unknown = [name for name in names if name not in SYSTEMS and name not in GROUPS]
    if unknown:
        raise ParameterError(
            f"there is no system {unknown[0]!r}; there are {', '.join(SYSTEMS)}, and the groups {', '.join(GROUPS)}"
        )
    if not names:
        return [system for system in SYSTEMS.values() if system.usual]
    chosen = {own for name in names for own in GROUPS.get(name, (name,))}
    return [system for system in SYSTEMS.values() if system.name in chosen]


def run_system(system: System, task: Task, settings: BackendSettings) -> SystemScores:
    """Fit and score, on one BLAS thread: products are small, and sums do not depend on the number of cores.

    Warnings that a rank is capped or that ten iterations are few are not shown; that few speakers calibrate is.
    """
    if system.raw:
        settings = replace(settings, reduce=None)
    with warnings.catch_warnings(), one_blas_thread():
        warnings.simplefilter("ignore", MvpldaWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("default", FewSpeakersWarning)
        bundle = system.build(task, settings)
        calibrator = None
        if system.name == BEST:
            bundle.scorer.fit(task.train, task.train_labels, trials=task.held_out_trials)
            calibrator = bundle.scorer.calibrator_
        else:
            bundle.fit(task.train, task.train_labels)
        options = {"method": "average"} if system.average else {}
        profiles = bundle.enrol(task.enrol, task.enrol_ids, **options)
        scores = np.asarray(bundle.llr(profiles, task.test, **system.question(task, settings)))
        if calibrator is not None:
            flat = calibrator.transform(scores.ravel().astype(np.float64))
            scores = flat.reshape(scores.shape)
    return SystemScores(scores, bundle, _note(bundle))


def _note(bundle: Bundle) -> str:
    ranks = getattr(bundle.scorer, "views_", None)
    if not isinstance(ranks, dict) or not all(ranks.values()):
        return ""
    return f"ranks {' + '.join(map(str, ranks.values()))}"
