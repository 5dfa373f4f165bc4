"""The systems of the table, from cosine to the best, and the task that a corpus gives them.

Those that the paper has are as the paper has them: 20 + 20 latents against a PLDA of 40, ten iterations, diagonal
noise, the mean of three enrolment vectors scored as one vector. The paper feeds them raw vectors; in the usual table
they see principal components. The group "paper" has the raw ones. The others have full noise, exact enrolment, and
ranks as far as the classes allow.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Literal

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import Pipeline

from .._typing import BoolArray, Columns, IntArray, Json, Names, Views
from ..backend import one_blas_thread
from ..bundle import Bundle
from ..exceptions import (
    DataError,
    FewSpeakersWarning,
    LabelError,
    MvpldaWarning,
    ParameterError,
)
from ..inference.em import PublishedEM
from ..kinds import trial_kinds
from ..labels import encode_labels
from ..models.committee import CosineScorer
from ..models.multiview import MultiviewPLDA
from ..models.scorer import let_go
from ..preprocessing import Reduction, unit_chain
from ..training import calibrate, make_committee
from .corpora.corpus import Corpus
from .settings import BackendSettings

BLOCK = 512
"""Tests whose calibrated scores are made at once: hypotheses are four matrices of float64."""
COMPONENTS = 150
"""Principal components of the systems with full noise."""
SPEAKER_RANK, CELL_RANK = 40, 120
"""Largest ranks of a view and of the cells in the interaction model."""
STRENGTH, KNOWN_STRENGTH = 0.6, 0.2
"""Of the isotropic prior: of the speaker, the cells and the noise; and of views whose classes training has seen."""


@dataclass(frozen=True)
class Task:
    """Vectors of a corpus, sorted by what the protocol does with them.

    Attributes
    ----------
    X : (n, D) the vector of every utterance
    blocks : {extractor: columns}, where the vectors of several stand side by side
    """

    corpus: Corpus
    X: Names
    blocks: dict[str, int] = field(default_factory=dict)

    @cached_property
    def views(self) -> Views:
        """The views in question, the first being the speaker."""
        return compared_views(self.corpus)

    @cached_property
    def train(self) -> Names:
        return self.X[self.corpus.protocol.train]

    @property
    def train_labels(self) -> Columns:
        return self.corpus.labels_at(self.corpus.protocol.train, self.views)

    @property
    def enrol_ids(self) -> IntArray:
        """The number of the enrolment that each of its vectors belongs to."""
        sizes = self.corpus.protocol.sizes
        return np.repeat(np.arange(len(sizes)), sizes)

    @cached_property
    def model_labels(self) -> Columns:
        return self.corpus.model_labels()

    @cached_property
    def test(self) -> Names:
        return self.X[self.corpus.protocol.test]

    @property
    def test_labels(self) -> Columns:
        return self.corpus.labels_at(self.corpus.protocol.test, self.views)

    @property
    def cell(self) -> str:
        """The view whose classes are cells: ``speaker:phrase``."""
        return ":".join(self.views)

    @cached_property
    def classes(self) -> dict[str, int]:
        """How many classes of every view there are to train on, cells included."""
        table = encode_labels(self.train_labels, (*self.views, self.cell))
        return {view: len(table.classes[view]) for view in table.views}

    @property
    def per_model(self) -> int:
        """Vectors of an enrolment, as most have them."""
        return int(np.median(self.corpus.protocol.sizes))

    @property
    def components(self) -> int:
        """Components for a full noise: no more than half of what varies within cells can tell."""
        # a full noise has as many free numbers as components squared
        rows, width = self.train.shape
        within = rows - self.classes[self.cell]
        return int(max(min(COMPONENTS, width, rows - 1, within // 2), min(2, width)))

    @cached_property
    def joined(self) -> Task:
        """Where there are blocks, all of them centred and of unit length (roots first, if rectified): one vector."""
        if not self.blocks:
            return self
        ends = np.cumsum(list(self.blocks.values()))[:-1]
        parts = []
        for block in np.split(self.X, ends, axis=1):
            chain = unit_chain().fit(block[self.corpus.protocol.train])
            parts.append(chain.transform(block))
        return Task(self.corpus, np.concatenate(parts, axis=1))

    @cached_property
    def kinds(self) -> dict[str, BoolArray]:
        """Masks of the kinds of trials, (models, tests); the first are the targets."""
        kinds = trial_kinds(self.model_labels, self.test_labels)
        listed = self.corpus.trial_mask()
        if listed is not None:
            kinds = {kind: mask & listed for kind, mask in kinds.items()}
        if not any(mask.any() for mask in list(kinds.values())[1:]):
            raise DataError("the protocol has no non-target trials")
        return kinds


def compared_views(corpus: Corpus) -> Views:
    """The views in which an enrolment is of one class: two or more."""
    views = tuple(corpus.model_labels())
    if len(views) < 2:
        raise LabelError(
            f"{corpus.name}: an experiment needs two views in which an enrolment is of one class, "
            f"such as speaker and phrase; there is only {list(views)}. To compare voices alone: mvplda verify"
        )
    return views


@dataclass(frozen=True)
class System:
    """A name for the command line, a title for the table, and what is fitted and asked.

    title : {0} and {1} in it stand for the first and the second view
    build : a bundle to be fitted to a task
    question : what is asked about a task's trials
    enrolment : "average" scores the mean of a profile's vectors as one vector, as the paper does
    llr : whether scores are log-likelihood ratios, whose Cllr means something
    published : whether it has the published formulas, which are for two views
    raw : see the vectors as they are; None for systems that are not the paper's
    by_block : see the blocks of several extractors as they are, not joined to one vector
    usual : whether it is in the table where no systems are named
    """

    name: str
    title: str
    build: Callable[[Task, BackendSettings], Bundle]
    question: Callable[[Task, BackendSettings], Json] = lambda task, settings: {}
    enrolment: Literal["exact", "average"] = "exact"
    llr: bool = True
    published: bool = False
    raw: bool | None = None
    by_block: bool = False
    usual: bool = True

    def heading(self, settings: BackendSettings, views: Sequence[str]) -> str:
        """The title with the names of the views, and which vectors the paper's systems see."""
        title = self.title.format(*views)
        if self.raw is None:
            return title
        seen = "reduced" if settings.reduce and not self.raw else "raw"
        return f"{title}, {seen}"

    def is_random(self, settings: BackendSettings) -> bool:
        """Whether its start is drawn."""
        return self.raw is not None and _start(settings, self.published) == "random"


def _start(settings: BackendSettings, published: bool) -> Literal["random", "moments"]:
    """How EM begins; as published, at random for the published formulas alone."""
    if settings.start == "random" or (settings.start == "published" and published):
        return "random"
    return "moments"


def _paper(
    task: Task, settings: BackendSettings, views: Sequence[str], published: bool = False
) -> Bundle:
    """A model as the paper has it; no rank is above the number of classes less one."""
    rank = settings.paper_rank * len(task.views) // len(views)
    model = MultiviewPLDA(
        {view: min(rank, task.classes[view] - 1) for view in views},
        algorithm="paper" if published else "exact",
        init=_start(settings, published),
        noise=settings.noise,
        max_iter=settings.paper_iterations,
        tol=0,
        random_state=settings.random_state,
    )
    # readings of the published formulas are no options of the model: nobody else needs them
    body = settings.e_step == "body"
    model.published_em = partial(PublishedEM, body=body, together=settings.m_step == "together")
    chain = None
    if settings.reduce:
        # as they are, not whitened: a diagonal noise depends on it
        chain = Pipeline([("reduce", Reduction(min(settings.reduce, *task.train.shape)))])
    return Bundle(chain, model)


def published(task: Task, settings: BackendSettings) -> Bundle:
    return _paper(task, settings, task.views, published=True)


def with_interaction(task: Task, settings: BackendSettings) -> Bundle:
    ranks = {}
    for view in (*task.views, task.cell):
        largest = CELL_RANK if view == task.cell else SPEAKER_RANK
        ranks[view] = min(largest, task.classes[view] - 1, task.components)
    model = MultiviewPLDA(ranks, noise="full", max_iter=20)
    return Bundle(Pipeline([("reduce", Reduction(task.components))]), model)


def _with_prior(task: Task, *views: str) -> Bundle:
    """Full-rank loadings under an isotropic prior, on vectors of unit length."""
    strengths = dict.fromkeys([*views, "noise"], STRENGTH)
    # of phrases that training has, tests have no others: their loadings need little help
    strengths |= {view: KNOWN_STRENGTH for view in task.views[1:] if view in views}
    model = MultiviewPLDA(
        dict.fromkeys(views), prior="isotropic", prior_strength=strengths, max_iter=20
    )
    return Bundle(unit_chain(task.components), model)


def committee(task: Task, settings: BackendSettings) -> Bundle:
    """Two experts per extractor, weighted and calibrated by held-out speakers, for the question that will be asked."""
    scorer = make_committee(
        task.blocks or {"vectors": int(task.train.shape[1])},
        task.views,
        labels=task.train_labels,
        dim=task.components,
        known=list(phrase_known(task, settings).get("known", {})),
        enrolment=task.per_model,
    )
    return Bundle(None, scorer)


def phrase_known(task: Task, settings: BackendSettings) -> Json:
    """The phrase that an enrolment claims, the second view's class; nothing where training had no such phrase."""
    view = task.views[1]
    claimed = task.model_labels[view]
    if not np.isin(claimed, task.train_labels[view]).any():
        return {}
    return {"known": {view: claimed}}


def exact_score(task: Task, settings: BackendSettings) -> Json:
    if not settings.priors:
        return {}
    speaker, phrase = task.views
    shared = [(phrase,), (speaker,), ()]
    return {"priors": dict(zip(shared, settings.priors, strict=True))}


def published_score(task: Task, settings: BackendSettings) -> Json:
    return {"scoring": "paper", **exact_score(task, settings)}


def speaker_alone(task: Task, settings: BackendSettings) -> Json:
    """The appendix: the first view on its own, whatever the second."""
    return {"scoring": "paper", "same": task.views[0]}


BASELINE = "plda-cell"
BEST = "best"
OF_PAPER = (
    System(
        BASELINE,
        "PLDA ({0} x {1})",
        lambda task, settings: _paper(task, settings, [task.cell]),
        enrolment="average",
        raw=False,
    ),
    System(
        "plda-speaker",
        "PLDA of {0}",
        lambda task, settings: _paper(task, settings, task.views[:1]),
        raw=False,
        usual=False,
    ),
    System(
        "jplda-printed",
        "jPLDA as published",
        published,
        published_score,
        enrolment="average",
        published=True,
        raw=False,
    ),
    System(
        "jplda-alone",
        "{0} alone, published",
        published,
        speaker_alone,
        enrolment="average",
        published=True,
        raw=False,
        usual=False,
    ),
    System(
        "jplda-exact",
        "jPLDA exact",
        lambda task, settings: _paper(task, settings, task.views),
        exact_score,
        enrolment="average",
        raw=False,
    ),
)
"""On principal components; the paper feeds them raw vectors."""
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
        *(replace(one, name=f"{one.name}-raw", raw=True, usual=False) for one in OF_PAPER),
        *OF_PAPER,
        System("jplda-interaction", "jPLDA exact, interaction", with_interaction),
        System(
            "plda-prior",
            "PLDA ({0} x {1}), prior",
            lambda task, settings: _with_prior(task, task.cell),
        ),
        System(
            "jplda-prior",
            "jPLDA, interaction, prior",
            lambda task, settings: _with_prior(task, *task.views, task.cell),
        ),
        System(BEST, "best", committee, phrase_known, by_block=True),
    )
}
PAPER = ("cosine-plain", "plda-cell-raw", "jplda-printed-raw", "jplda-exact-raw")
GROUPS = {"paper": (*PAPER, "jplda-interaction", BEST), "all": tuple(SYSTEMS)}
"""Rows of a table by one name: the paper's systems as the paper feeds them, then what does better; all."""
COMPARED = (
    (BEST, BASELINE),
    ("jplda-prior", "plda-prior"),
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
    chosen = {own for name in names for own in GROUPS.get(name, (name,))}
    systems = []
    for system in SYSTEMS.values():
        wanted = system.name in chosen if chosen else system.usual
        if wanted and (views == 2 or not system.published):
            systems.append(system)
    if not systems:
        raise ParameterError(f"{', '.join(chosen)} are for two views; there are {views}")
    return systems


def run_system(system: System, task: Task, settings: BackendSettings) -> tuple[Names, Bundle]:
    """Scores (models, tests) and the fitted bundle.

    One BLAS thread: products are small, and sums do not depend on the number of cores.

    Warnings that a rank is capped or that ten iterations are few are not shown; that few speakers calibrate is.
    """
    if system.raw:
        settings = replace(settings, reduce=0)
    if not system.by_block:
        task = task.joined
    with warnings.catch_warnings(), one_blas_thread():
        warnings.simplefilter("ignore", MvpldaWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("default", FewSpeakersWarning)
        bundle = system.build(task, settings)
        bundle.fit(task.train, task.train_labels)
        if system.name == BEST:
            calibrate(bundle, task.train, task.train_labels, enrolment=task.per_model)
        enrolled = task.X[task.corpus.protocol.enrolled]
        profiles = bundle.enrol(enrolled, task.enrol_ids, method=system.enrolment)
        question = system.question(task, settings)
        if bundle.calibrations:
            scores = _calibrated(bundle, profiles, task.test, question.get("known", {}))
        else:
            scores = np.asarray(bundle.llr(profiles, task.test, **question))
    let_go(bundle)
    return scores, bundle


def _calibrated(bundle: Bundle, profiles: Any, test: Names, known: Columns) -> Names:
    """Calibrated scores, some tests at a time: what costs most, their likelihood in every known class, is made once."""
    scores = np.empty((len(profiles), len(test)), dtype=np.float32)
    for start in range(0, len(test), BLOCK):
        columns = slice(start, start + BLOCK)
        tests = bundle.enrol(test[columns])
        scores[:, columns] = bundle.answer(profiles, tests, {"known": known}).llr
    return scores
