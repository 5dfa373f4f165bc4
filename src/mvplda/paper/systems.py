"""Systems that an experiment compares, and the verification task of a corpus.

The paper's systems have the settings of the paper: joint PLDA of ranks 20 + 20 against a PLDA of rank 40, ten
iterations of EM, diagonal noise, and the mean of the enrolment vectors scored as one vector. The paper uses raw vectors
(systems whose name ends in "-raw", group "paper"); the default systems use principal components. All other systems
have full noise and exact enrolment, and their ranks are limited only by the numbers of classes.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Literal

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import Pipeline

from .._typing import BoolArray, Columns, IntArray, Names, Views
from ..backend import one_blas_thread
from ..bundle import Bundle
from ..exceptions import DataError, FewSpeakersWarning, LabelError, MvpldaWarning, ParameterError
from ..inference.em import PublishedEM
from ..kinds import trial_kinds
from ..labels import encode_labels
from ..models.base import release_caches
from ..models.cosine import CosineScorer
from ..models.multiview import MultiviewPLDA
from ..preprocessing import Reduction, unit_chain
from ..scoring.profiles import Profiles
from ..scoring.question import QuestionArguments
from ..training import calibrate_on_held_out, make_committee
from .corpora.corpus import Corpus
from .experiment_settings import BackendSettings

TESTS_PER_BLOCK = 512
"""Number of tests that are scored and calibrated together, which limits the memory."""
MAX_COMPONENTS = 150
"""Maximum number of principal components of systems with full noise."""
MAX_VIEW_RANK, MAX_CELL_RANK = 40, 120
"""Maximum rank of the loadings of a view, and of the cells (speaker with phrase), in the interaction model."""
STRENGTH, KNOWN_STRENGTH = 0.6, 0.2
"""Strength of the isotropic prior of speakers, noise and combinations of speaker and phrase, and that of views whose
test classes occur in training."""


@dataclass(frozen=True)
class Task:
    """Verification task: the vectors of a corpus, divided by its protocol into training, enrolments and tests.

    Attributes
    ----------
    corpus : labels and protocol of the utterances
    X : (n, D) vectors of the utterances
    blocks : {extractor: number of columns} if the vectors of several extractors are concatenated, else empty
    """

    corpus: Corpus
    X: Names
    blocks: dict[str, int] = field(default_factory=dict)

    @cached_property
    def views(self) -> Views:
        """Names of the views that trials are about, such as ("speaker", "phrase"); the first is that of the speaker."""
        return compared_views(self.corpus)

    @cached_property
    def train(self) -> Names:
        """Training vectors, (n_train, D)."""
        return self.X[self.corpus.protocol.train]

    @property
    def train_labels(self) -> Columns:
        """Labels of the training vectors, {view: (n_train,) classes}."""
        return self.corpus.labels_at(self.corpus.protocol.train, self.views)

    @property
    def enrol_ids(self) -> IntArray:
        """Index of the enrolment that each enrolment vector belongs to, ascending."""
        sizes = self.corpus.protocol.sizes
        return np.repeat(np.arange(len(sizes)), sizes)

    @cached_property
    def model_labels(self) -> Columns:
        """Class of each enrolment, {view: (enrolments,) classes}."""
        return self.corpus.model_labels()

    @cached_property
    def test(self) -> Names:
        """Test vectors, (n_test, D)."""
        return self.X[self.corpus.protocol.test]

    @property
    def test_labels(self) -> Columns:
        """Labels of the test vectors, {view: (n_test,) classes}."""
        return self.corpus.labels_at(self.corpus.protocol.test, self.views)

    @property
    def groups(self) -> dict[str, BoolArray]:
        """Masks of the enrolments of each group, such as a gender, {group: (enrolments,)}; {} without two groups."""
        if self.corpus.groups is None:
            return {}
        groups = self.corpus.groups[self.corpus.protocol.first]
        names = np.unique(groups).tolist()
        return {name: groups == name for name in names} if len(names) > 1 else {}

    @property
    def cell(self) -> str:
        """Name of the view whose classes are combinations of the classes of all views, such as "speaker:phrase"."""
        return ":".join(self.views)

    @cached_property
    def classes(self) -> dict[str, int]:
        """Number of training classes, {view: number}; also of combinations of classes, under the name `cell`."""
        table = encode_labels(self.train_labels, (*self.views, self.cell))
        return {view: len(table.classes[view]) for view in table.views}

    @property
    def per_model(self) -> int:
        """Median number of vectors per enrolment."""
        return int(np.median(self.corpus.protocol.sizes))

    @property
    def components(self) -> int:
        """Number of principal components for models with full noise: as many as the training vectors support.

        At most `MAX_COMPONENTS`, the dimension, and half the degrees of freedom of the variation within cells
        (combinations of classes).
        """
        # a full noise covariance is estimated from the variation within cells, whose degrees of freedom (`within`)
        # must be at least twice the number of components
        rows, width = self.train.shape
        within = rows - self.classes[self.cell]
        largest = min(MAX_COMPONENTS, width, rows - 1, within // 2)
        return int(max(largest, min(2, width)))

    @cached_property
    def joined(self) -> Task:
        """The same task with the vectors of each extractor centred and scaled to length 1 before concatenation."""
        if not self.blocks:
            return self
        ends = np.cumsum(list(self.blocks.values()))[:-1]
        normalised = []
        for block in np.split(self.X, ends, axis=1):
            chain = unit_chain().fit(block[self.corpus.protocol.train])
            normalised.append(chain.transform(block))
        return Task(self.corpus, np.concatenate(normalised, axis=1))

    @cached_property
    def kinds(self) -> dict[str, BoolArray]:
        """Trials of each kind, {kind: (enrolments, tests) mask}; the first kind is that of target trials."""
        kinds = trial_kinds(self.model_labels, self.test_labels)
        listed = self.corpus.trial_mask()
        if listed is not None:
            kinds = {kind: mask & listed for kind, mask in kinds.items()}
        if not any(mask.any() for mask in list(kinds.values())[1:]):
            raise DataError(
                "the protocol has no non-target trial, in which the speaker or the phrase of the test differs from "
                "that of the enrolment: add such tests"
            )
        return kinds


def compared_views(corpus: Corpus) -> Views:
    """Return the views in which every enrolment has a single class; raise `LabelError` if there are fewer than two."""
    views = tuple(corpus.model_labels())
    if len(views) < 2:
        raise LabelError(
            f"{corpus.name}: an experiment needs two views in which each enrolment has a single class, such as speaker "
            f"and phrase; got only {list(views)}. To compare voices alone, use `mvplda verify`"
        )
    return views


class ScoringOptions(QuestionArguments, total=False):
    """Keyword arguments of the method ``llr`` of a scorer: those of a question, and `scoring`.

    scoring : "exact": likelihoods of the model; "paper": the formulas published in the paper
    """

    scoring: Literal["exact", "paper"]


@dataclass(frozen=True)
class System:
    """System that an experiment can fit and evaluate, a row of its table.

    Attributes
    ----------
    name : name on the command line
    title : title in the table; ``{0}`` and ``{1}`` are replaced by the first and the second view
    build : function that returns the model to fit, given a task and the settings
    question : function that returns the keyword arguments of ``llr``, given a task and the settings
    enrolment : "average" scores the mean of a profile's vectors as one vector, as the paper does; "exact" scores all
    llr : whether scores are log-likelihood ratios; Cllr is reported only for these
    published : whether the system uses the published formulas, which require two views
    raw : whether one of the paper's systems gets raw vectors (True) or principal components (False); None for systems
        that are not the paper's
    by_block : whether the model gets the vectors of several extractors without scaling, with the width of each in
        `Task.blocks`; otherwise it gets those of `Task.joined`
    usual : whether the system is run by default
    """

    name: str
    title: str
    build: Callable[[Task, BackendSettings], Bundle]
    question: Callable[[Task, BackendSettings], ScoringOptions] = lambda task, settings: {}
    enrolment: Literal["exact", "average"] = "exact"
    llr: bool = True
    published: bool = False
    raw: bool | None = None
    by_block: bool = False
    usual: bool = True

    def heading(self, settings: BackendSettings, views: Sequence[str]) -> str:
        """Return the title with the names of the views and, for the paper's systems, "reduced" or "raw" vectors."""
        title = self.title.format(*views)
        if self.raw is None:
            return title
        vectors = "reduced" if settings.reduce and not self.raw else "raw"
        return f"{title}, {vectors}"

    def is_random(self, settings: BackendSettings) -> bool:
        """Return whether EM starts from random parameters, so that several seeds give several results."""
        return self.raw is not None and _start(settings, self.published) == "random"


def _start(settings: BackendSettings, published: bool) -> Literal["random", "moments"]:
    """Return the initialisation of EM for one of the paper's systems, according to `BackendSettings.start`.

    published : whether the system uses the published formulas
    """
    if settings.start == "random" or (settings.start == "published" and published):
        return "random"
    return "moments"


def _paper(
    task: Task, settings: BackendSettings, views: Sequence[str], published: bool = False
) -> Bundle:
    """Return one of the paper's models, not fitted: PLDA of one view, PLDA of combinations of classes, or joint PLDA.

    The rank of a view is at most its number of training classes minus 1.

    Parameters
    ----------
    task : vectors with labels
    settings : sizes and choices
    views : views of the model; the cell (such as "speaker:phrase") for PLDA of combinations
    published : whether EM uses the published formulas instead of exact ones
    """
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
    # an attribute, because these readings of the published formulas are of no use as public options of the model
    body = settings.e_step == "body"
    model.published_em = partial(PublishedEM, body=body, together=settings.m_step == "together")
    chain = None
    if settings.reduce:
        # not whitened: a diagonal noise covariance depends on the scale of the components
        chain = Pipeline([("reduce", Reduction(min(settings.reduce, *task.train.shape)))])
    return Bundle(chain, model)


def published(task: Task, settings: BackendSettings) -> Bundle:
    """Return the model of a joint PLDA that is trained with the published formulas, not fitted."""
    return _paper(task, settings, task.views, published=True)


def with_interaction(task: Task, settings: BackendSettings) -> Bundle:
    """Return the model of a joint PLDA with full noise and an interaction view ("speaker:phrase"), not fitted."""
    ranks = {}
    for view in (*task.views, task.cell):
        largest = MAX_CELL_RANK if view == task.cell else MAX_VIEW_RANK
        ranks[view] = min(largest, task.classes[view] - 1, task.components)
    model = MultiviewPLDA(ranks, noise="full", max_iter=20)
    return Bundle(Pipeline([("reduce", Reduction(task.components))]), model)


def _with_prior(task: Task, *views: str) -> Bundle:
    """Return a multi-view PLDA, not fitted, with full-rank loadings under an isotropic prior.

    Its preprocessing reduces the vectors to principal components and scales them to length 1.

    views : views of the model, which may include the combination of views (`Task.cell`)
    """
    strengths = dict.fromkeys([*views, "noise"], STRENGTH)
    # tests contain only phrases of the training data, so the prior of these views can be weak
    strengths |= {view: KNOWN_STRENGTH for view in task.views[1:] if view in views}
    model = MultiviewPLDA(
        dict.fromkeys(views), prior="isotropic", prior_strength=strengths, max_iter=20
    )
    return Bundle(unit_chain(task.components), model)


def committee(task: Task, settings: BackendSettings) -> Bundle:
    """Return a committee of two models per extractor, not fitted; `fit` finds its weights on held-out speakers."""
    scorer = make_committee(
        task.blocks or {"vectors": int(task.train.shape[1])},
        task.views,
        labels=task.train_labels,
        dim=task.components,
        known=task.views[1:2] if phrase_known(task, settings) else (),
        enrolment=task.per_model,
    )
    return Bundle(None, scorer)


def phrase_known(task: Task, settings: BackendSettings) -> ScoringOptions:
    """Return the scoring options that pass the phrase of each enrolment as a known class of training.

    The options are empty if the training data contain none of the enrolled phrases.
    """
    view = task.views[1]
    claimed = task.model_labels[view]
    if not np.isin(claimed, task.train_labels[view]).any():
        return {}
    return {"known": {view: claimed}}


def exact_score(task: Task, settings: BackendSettings) -> ScoringOptions:
    """Return the scoring options of exact joint PLDA: the priors of the hypotheses, if the settings have any."""
    if not settings.priors:
        return {}
    speaker, phrase = task.views
    shared = [(phrase,), (speaker,), ()]
    return {"priors": dict(zip(shared, settings.priors, strict=True))}


def published_score(task: Task, settings: BackendSettings) -> ScoringOptions:
    """Return the options for scoring by the paper's formula for the same speaker and phrase."""
    return {"scoring": "paper", **exact_score(task, settings)}


def speaker_alone(task: Task, settings: BackendSettings) -> ScoringOptions:
    """Return the options for scoring by the formula in the paper's appendix: the same speaker, with any phrase."""
    return {"scoring": "paper", "same": task.views[0]}


BASELINE = "plda-cell"
BEST = "best"
PAPER_SYSTEMS = (
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
"""Systems of the paper, here on principal components of the vectors; the paper uses raw vectors."""
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
        *(
            replace(system, name=f"{system.name}-raw", raw=True, usual=False)
            for system in PAPER_SYSTEMS
        ),
        *PAPER_SYSTEMS,
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
PAPER_TABLE = ("cosine-plain", "plda-cell-raw", "jplda-printed-raw", "jplda-exact-raw")
GROUPS = {"paper": (*PAPER_TABLE, "jplda-interaction", BEST), "all": tuple(SYSTEMS)}
"""{name of a group on the command line: names of its systems}. The group "paper" has the paper's systems on raw
vectors, the interaction model and the committee."""
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
"""Pairs (system, reference) whose error rates are compared on the same resamples of speakers, if both are run."""


def systems_named(names: Sequence[str], views: int = 2) -> list[System]:
    """Return the chosen systems in the order of the table.

    Parameters
    ----------
    names : names of systems or groups; empty: the default systems
    views : number of views of the corpus; systems with the published formulas are left out unless it is 2

    Raises
    ------
    ParameterError
        A name is unknown, or no system is left.
    """
    unknown = [name for name in names if name not in SYSTEMS and name not in GROUPS]
    if unknown:
        raise ParameterError(
            f"unknown system {unknown[0]!r}; available systems: {', '.join(SYSTEMS)}; groups: {', '.join(GROUPS)}"
        )
    chosen = {member for name in names for member in GROUPS.get(name, (name,))}
    systems = []
    for system in SYSTEMS.values():
        is_chosen = system.name in chosen if chosen else system.usual
        if is_chosen and (views == 2 or not system.published):
            systems.append(system)
    if not systems:
        raise ParameterError(
            f"the published formulas of {', '.join(sorted(chosen))} need a corpus with two views; got {views}: choose "
            "other systems"
        )
    return systems


def run_system(system: System, task: Task, settings: BackendSettings) -> tuple[Names, Bundle]:
    """Fit a system to the training vectors of a task, and score all pairs of enrolments and tests.

    One BLAS thread is used, because the products are small, and because sums must not depend on the number of cores.
    Warnings about reduced ranks and about EM without convergence are suppressed; a warning about calibration with few
    speakers is not.

    Returns
    -------
    (enrolments, tests) scores, and the fitted model
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
        # the committee is also calibrated on held-out training speakers
        if system.name == BEST:
            calibrate_on_held_out(bundle, task.train, task.train_labels, enrolment=task.per_model)
        enrolled = task.X[task.corpus.protocol.enrolled]
        profiles = bundle.enrol(enrolled, task.enrol_ids, method=system.enrolment)
        question = system.question(task, settings)
        if bundle.calibrations:
            scores = _calibrated(bundle, profiles, task.test, question)
        else:
            scores = np.asarray(bundle.llr(profiles, task.test, **question))
    release_caches(bundle)
    return scores, bundle


def _calibrated(
    bundle: Bundle, profiles: Profiles, test: Names, question: QuestionArguments
) -> Names:
    """Return the (enrolments, tests) calibrated LLRs, computed for `TESTS_PER_BLOCK` tests at a time to limit memory.

    test : (tests, D) test vectors
    """
    scores = np.empty((len(profiles), len(test)), dtype=np.float32)
    for start in range(0, len(test), TESTS_PER_BLOCK):
        columns = slice(start, start + TESTS_PER_BLOCK)
        tests = bundle.enrol(test[columns])
        scores[:, columns] = bundle.answer(profiles, tests, question).llr
    return scores
