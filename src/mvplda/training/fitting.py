"""Training of models, by default committees, on vectors and labels, with calibration on held-out people."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.pipeline import Pipeline

from .._progress import show_line
from .._typing import Array, Columns, Ranks
from ..bundle import Bundle
from ..calibration import Calibrator
from ..exceptions import MvpldaError, MvpldaWarning, ParameterError
from ..models import Committee, find_scorers
from ..models.base import BaseScorer
from ..models.checks import check_setting_names
from ..models.deployment import AdaptedExpert
from ..models.selection import Selection
from ..preprocessing import pyannote_chain, standard_chain
from .data import check_training_data, count_named
from .experts import choose_experts, keep_few_posteriors, make_committee, selection_card
from .floor import FLOOR, make_cosine_floor
from .held_out import FARS, FOLDS, Groups, calibrate_on_held_out

COMMITTEE = "committee"
"""Name of the committee among the models of `train`."""


CHAINS: dict[str, Callable[[int | None], Pipeline]] = {
    "standard": standard_chain,
    "pyannote": pyannote_chain,
}
"""Preprocessing by name, as functions of the number of principal components to keep (None: all)."""


def model_names() -> list[str]:
    """Return the names that `train` accepts as `model`: "committee" and all scorers, including those of plug-ins."""
    return [COMMITTEE, *find_scorers()]


def needs_labels(model: str) -> bool:
    """Return whether a model requires labels to fit; True for unknown names, for which `train` raises an error."""
    scorer = find_scorers().get(model)
    return scorer is None or scorer.NEEDS_LABELS


def train(
    X: ArrayLike,
    labels: Mapping[str, ArrayLike],
    *,
    model: str = COMMITTEE,
    ranks: Ranks | None = None,
    settings: Mapping[str, Any] | None = None,
    reduce: int | None = None,
    chain: str | None = None,
    blocks: Mapping[str, int] | None = None,
    point_blocks: Collection[str] = (),
    enrolment: int = 1,
    folds: int | None = None,
    choose: bool = True,
    fars: Sequence[float] = FARS,
    extractor: str | None = None,
    default: BaseScorer | None = None,
    calibrator: Calibrator | None = None,
    progress: bool = False,
    groups: Groups | None = None,
) -> Bundle:
    """Fit a model to vectors and labels; calibrate it and choose its thresholds by cross-validation over people.

    Parameters
    ----------
    X : (n, D) vectors
    labels : {view: (n,) labels}; classes of the first view, such as speakers, are new when the
        model is used
    model : one of `model_names`
    ranks : {view: rank, or None for the largest} of a maximum-likelihood model. None: all views,
        largest ranks
    settings : keyword arguments of the model's class
    reduce : number of whitened principal components that a model other than committee and cosine is
        fitted to
    chain : preprocessing of such a model, a key of `CHAINS`. None: "standard" with `reduce`, else
        none
    blocks : {extractor: number of columns} in the order of the columns, if the vectors concatenate
        those of several extractors
    point_blocks : extractors whose vectors are points in time; in a committee, only the expert
        `default` compares these
    enrolment : vectors per profile in the held-out trials; pass the number that will be used
    folds : number of folds of held-out people; 0: neither calibration nor thresholds. None: 4 for a
        committee, and for a cosine with labels, because its scores are not likelihood ratios; 0 for
        other models
    choose : add a third expert per extractor of a committee, whose interaction, noise and ranks are
        chosen on held-out people (`select_model`). Requires at least 8 people; the card lists all
        candidates
    fars : false-acceptance rates to compute thresholds for, the default threshold first
    extractor : name of the extractor of the vectors
    default : fitted model of the same vectors, which becomes another expert of a committee
    calibrator : unfitted calibrator; a copy is fitted for each question. None: a
        `HypothesisCalibrator`
    progress : whether to write a line to standard error per step
    groups : {speaker: sex}: impostors of the same sex and of the other sex are separate kinds of
        impostors, and thresholds limit the false acceptances of each kind. None: the sex does not
        matter

    Returns
    -------
    Bundle
    """
    vectors = np.asarray(X)
    # a table has column names, which the fitted model checks in later calls
    table = X if hasattr(X, "columns") else vectors
    columns = {view: np.asarray(column) for view, column in labels.items()}
    check_training_data(vectors, columns, needed=needs_labels(model) or bool(folds))
    if chain is not None and chain not in CHAINS:
        raise ParameterError(f"chain must be one of {list(CHAINS)}; got {chain!r}")
    if chain is not None and (model == COMMITTEE or not needs_labels(model)):
        raise ParameterError(
            f"chain does not apply to model {model!r}: leave out chain={chain!r}, or use "
            "another model, such as plda"
        )
    if model == COMMITTEE:
        options = {"enrolment": enrolment, **(settings or {})}
        sizes = blocks or {"vectors": vectors.shape[1]}
        bundle = _committee_bundle(
            vectors, columns, sizes, point_blocks, options, default, choose, progress
        )
    else:
        bundle = _scorer_bundle(model, columns, ranks, settings, reduce, chain)
    bundle.extractor = extractor
    _fit(bundle, table, columns, model, progress)
    if folds is None and columns and (model == COMMITTEE or not needs_labels(model)):
        folds = FOLDS
    if folds:
        calibrate_on_held_out(
            bundle,
            vectors,
            columns,
            enrolment=enrolment,
            folds=folds,
            fars=fars,
            calibrator=calibrator,
            progress=progress,
            groups=groups,
        )
    return bundle


def train_cosine_floor(
    X: Array,
    labels: Columns,
    *,
    blocks: Mapping[str, int] | None = None,
    block_views: Mapping[str, Sequence[str]] | None = None,
    point_blocks: Collection[str] = (),
    enrolment: int = 1,
    folds: int = FOLDS,
    fars: Sequence[float] = FARS,
    extractor: str | None = None,
    progress: bool = False,
    groups: Groups | None = None,
) -> Bundle:
    """Calibrate the plain mean of cosines, and choose its thresholds as `train` does.

    It is the baseline (floor) of all models: do not use a trained model that makes more errors.

    Parameters
    ----------
    X, labels, enrolment, folds, fars, extractor, progress, groups : as for `train`
    blocks, block_views, point_blocks : as for `make_cosine_floor`

    Returns
    -------
    Bundle
    """
    check_training_data(X, labels)
    sizes = blocks or {"vectors": X.shape[1]}
    floor = make_cosine_floor(sizes, list(labels), block_views, point_blocks)
    bundle = Bundle(None, floor, extractor=extractor)
    _fit(bundle, X, labels, FLOOR, progress)
    calibrate_on_held_out(
        bundle,
        X,
        labels,
        enrolment=enrolment,
        folds=folds,
        fars=fars,
        progress=progress,
        groups=groups,
    )
    return bundle


def _fit(bundle: Bundle, X: Any, labels: Columns, model: str, progress: bool) -> None:
    """Fit a bundle, and describe its model and training data in its `card`.

    X : (n, D) vectors, or a table with named columns
    model : name of the model
    progress : whether to write progress to standard error
    """
    if progress:
        show_fit(f"fitting {model} to {len(X)} vectors", bundle.scorer)
    with warnings.catch_warnings():
        if model == COMMITTEE:
            # the card has one warning about few people for all experts
            warnings.simplefilter("ignore", MvpldaWarning)
        bundle.fit(X, labels or None)
    if hasattr(bundle.scorer, "verbose"):
        # models of folds are clones of this scorer; do not show their iterations
        bundle.scorer.set_params(callback=None, verbose=0)
    if isinstance(bundle.fitted_scorer, Committee):
        keep_few_posteriors(bundle.fitted_scorer, next(iter(labels)))
    classes = {view: count_named(column) for view, column in labels.items()}
    facts = {"model": model, "vectors": len(X), "classes": classes}
    bundle.card = {**(bundle.card or {}), **facts}


def _scorer_bundle(
    model: str,
    labels: Columns,
    ranks: Ranks | None,
    settings: Mapping[str, Any] | None,
    reduce: int | None,
    chain: str | None,
) -> Bundle:
    """Return an unfitted bundle of a scorer other than a committee; the parameters are those of `train`."""
    if model not in find_scorers():
        raise ParameterError(
            f"unknown model {model!r}; available models: {', '.join(model_names())}"
        )
    preprocessing = None
    view_ranks: Ranks = dict.fromkeys(labels)
    if needs_labels(model):
        if chain is not None or reduce is not None:
            preprocessing = CHAINS[chain or "standard"](reduce)
        view_ranks = ranks or view_ranks
    return Bundle(preprocessing, find_scorers()[model].with_ranks(view_ranks, dict(settings or {})))


def _committee_bundle(
    X: Array,
    labels: Columns,
    blocks: Mapping[str, int],
    point_blocks: Collection[str],
    settings: dict[str, Any],
    default: BaseScorer | None,
    choose: bool,
    progress: bool,
) -> Bundle:
    """Return an unfitted bundle of a committee; its `card` (description) contains the choice of experts.

    settings : keyword arguments of the `Committee`; the other parameters are those of `train`
    """
    check_setting_names(Committee, settings, ("experts", "columns"))
    if sum(blocks.values()) != X.shape[1]:
        raise ParameterError(
            f"blocks must add up to the {X.shape[1]} columns of the vectors; got {sum(blocks.values())} columns in "
            f"{dict(blocks)}"
        )
    selections: dict[str, Selection] = {}
    card: dict[str, object] = {}
    if choose:
        try:
            selections = choose_experts(
                X, labels, blocks, point_blocks, enrolment=settings["enrolment"], progress=progress
            )
            card["choice"] = selection_card(selections)
        except MvpldaError as error:
            # the committee is trained without chosen experts: its standard experts are defined for any data
            card["choice"] = f"none: {error}"
    committee = make_committee(
        blocks,
        list(labels),
        labels=labels,
        point_blocks=point_blocks,
        selections=selections,
        **settings,
    )
    # the default model can be an expert only if the data have labels of all its views
    if default is not None and set(default.views_) <= set(labels):
        committee.experts = {**committee.experts, "default model": AdaptedExpert(default)}
    return Bundle(None, committee, card=card)


def show_fit(title: str, scorer: Any) -> None:
    """Write a title to standard error, and make the scorer's fit write progress below it."""
    show_line(title)
    if hasattr(scorer, "verbose"):
        scorer.verbose = 1
