"""Committees with two experts per extractor, and optionally a third with settings chosen on held-out people."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sklearn.pipeline import Pipeline

from .._progress import Ticker, show_line
from .._typing import Array, Card, Columns, Labels
from ..bundle import Bundle
from ..labels import encode_labels
from ..models import Committee, MultiviewPLDA
from ..models.committee import scorer_of
from ..models.selection import (
    ITERATIONS,
    ModelCandidate,
    Selection,
    are_crossed,
    gains,
    select_model,
)
from ..preprocessing import RectifiedRoot, Reduction, standard_chain, unit_chain

MAX_UNREDUCED_WIDTH = 300
"""Largest number of columns of an extractor that are modelled without reduction; wider covariances
cost much time for little gain.
"""

DEFAULT_DIM = 150
"""Largest number of principal components of the experts that reduce their vectors."""

JOINT = ("views", "interaction")
"""Structures of a chosen expert: views with or without interaction.

A model of the combined label alone is no option, because it has no evidence about a single view.
"""

STRENGTH, WHITENED_STRENGTH = 0.6, 0.4
KNOWN_STRENGTH = 0.2
"""Strengths of the experts' priors.

STRENGTH: vectors of unit length. WHITENED_STRENGTH: whitened vectors. KNOWN_STRENGTH: views whose
classes occur again when the model is used, such as phrases.
"""

CHOSEN = "chosen"
"""Suffix in the name of a chosen expert, after the name of its extractor."""


def make_committee(
    blocks: Mapping[str, int],
    views: Sequence[str],
    *,
    labels: Labels | None = None,
    dim: int = DEFAULT_DIM,
    point_blocks: Collection[str] = (),
    selections: Mapping[str, Selection] | None = None,
    **settings: Any,
) -> Committee:
    """Return an unfitted committee with two experts per extractor.

    Each vector is the concatenation of the extractors' vectors; the columns of one extractor are a
    block. Both experts of a block are `MultiviewPLDA` models with the isotropic prior. They model
    all views and, if there are several, their interaction. They differ in preprocessing:

    - the first centres the block and scales vectors to unit length, which suits public networks;
    - the second whitens the principal components, which suits networks trained on the same people.

    Parameters
    ----------
    blocks : {name of the extractor: number of columns}, in the order of the columns
    views : names of the views; classes of the first, such as speakers, are new when the model is
        used
    labels : labels of the training vectors, if available. If they have too few combinations of
        classes to separate the interaction from the views, the interaction is left out; for example
        if each speaker has one phrase
    dim : largest number of principal components of the second expert
    point_blocks : extractors whose vectors are points in time rather than of a whole recording;
        they get no experts, unless there is no other extractor
    selections : {extractor: result of `choose_experts`}; adds a third expert with the chosen
        settings, unless these are those of a standard expert
    settings : keyword arguments of the `Committee`

    Returns
    -------
    Committee

    Examples
    --------
    >>> from mvplda import make_committee
    >>> list(make_committee({"voice": 192, "words": 288}, ["speaker", "phrase"]).experts)
    ['voice', 'voice, whitened', 'words', 'words, whitened']
    """
    base = list(views)
    all_views = list(base)
    if len(base) > 1 and (labels is None or are_crossed(labels, base)):
        all_views.append(":".join(base))
    # other views have few classes, most of which recur in use: less prior
    strengths = {
        **dict.fromkeys([*all_views, "noise"], STRENGTH),
        **dict.fromkeys(base[1:], KNOWN_STRENGTH),
    }
    experts: dict[str, Bundle] = {}
    columns: dict[str, tuple[int, int]] = {}
    start = 0
    for name, width in blocks.items():
        stop = start + width
        if has_experts(name, blocks, point_blocks):
            (unit, _), (whitened, strength) = _prior_chains(width, dim)
            for title, chain, prior_strength in (
                (name, unit, strengths),
                (f"{name}, whitened", whitened, strength),
            ):
                model = MultiviewPLDA(
                    dict.fromkeys(all_views),
                    prior="isotropic",
                    prior_strength=prior_strength,
                    max_iter=0,
                )
                experts[title] = Bundle(chain, model)
                columns[title] = (start, stop)
            chosen = selections[name].chosen if selections and name in selections else None
            if chosen is not None and chosen.noise != "prior":
                title = f"{name}, {CHOSEN}"
                chain = _reduction(width if labels is None else _n_components(width, labels, base))
                experts[title] = Bundle(chain, chosen.make_model(max_iter=ITERATIONS, tol=0))
                columns[title] = (start, stop)
        start = stop
    return Committee(experts, columns=columns, **settings)


def has_experts(name: str, blocks: Collection[str], point_blocks: Collection[str]) -> bool:
    """Return whether an extractor gets experts in a committee.

    An extractor with vectors of points in time gets experts only if it is the only extractor.

    name : name of the extractor
    blocks : names of all extractors
    point_blocks : names of those whose vectors are points in time
    """
    return len(blocks) == 1 or name not in point_blocks


def choose_experts(
    X: Array,
    labels: Columns,
    blocks: Mapping[str, int],
    point_blocks: Collection[str] = (),
    *,
    dim: int = DEFAULT_DIM,
    enrolment: int = 1,
    progress: bool = False,
) -> dict[str, Selection]:
    """Choose the interaction, the noise and the ranks of a third expert per extractor, on held-out people.

    The candidates are models fitted by maximum likelihood, and the extractor's two standard experts
    with the isotropic prior. A standard expert is chosen unless the best candidate's loss is lower
    by two standard errors.

    Parameters
    ----------
    X : (n, D) vectors
    labels : {view: (n,) labels}; classes of the first view are held out
    blocks, point_blocks, dim : as for `make_committee`
    enrolment : vectors per profile in the held-out trials
    progress : whether to write progress to standard error

    Returns
    -------
    dict of {extractor: Selection}

    Raises
    ------
    MvpldaError
        The data do not allow a choice; for example `DataError` if there are too few people.
    """
    structures = [JOINT[0]]
    if len(labels) > 1 and are_crossed(labels, list(labels)):
        structures.append(JOINT[1])
    selections = {}
    start = 0
    for name, width in blocks.items():
        block = X[:, start : start + width]
        start += width
        if not has_experts(name, blocks, point_blocks):
            continue
        step = None
        if progress:
            title = f"choosing a model of {name} on held-out people"
            show_line(title)
            step = Ticker(f"{title}: candidates").step
        selection = select_model(
            block,
            labels,
            structures=structures,
            noises=("full", "diagonal"),
            enrolment=enrolment,
            preprocessing=_reduction(_n_components(width, labels, list(labels))),
            progress=step,
        )
        priors: list[ModelCandidate] = []
        for chain, strength in _prior_chains(width, dim):
            prior_selection = select_model(
                block,
                labels,
                structures=structures[-1:],
                noises=["prior"],
                strengths=[strength],
                enrolment=enrolment,
                preprocessing=chain,
                progress=step,
            )
            priors += prior_selection.table
        priors.sort(key=lambda candidate: candidate.loss)
        chosen = selection.chosen if gains(selection.chosen, priors[0]) else priors[0]
        table = sorted([*selection.table, *priors], key=lambda candidate: candidate.loss)
        selections[name] = Selection(chosen, tuple(table), selection.speakers)
    return selections


def _prior_chains(width: int, dim: int) -> list[tuple[Pipeline, float]]:
    """Return (preprocessing, strength of the prior) of the two standard experts of an extractor.

    width : number of columns of the extractor
    dim : largest number of principal components
    """
    whitened = standard_chain(min(dim, width), length="unit")
    whitened.steps.insert(0, ("root", RectifiedRoot()))
    unit = unit_chain(MAX_UNREDUCED_WIDTH if width > MAX_UNREDUCED_WIDTH else None)
    return [(unit, STRENGTH), (whitened, WHITENED_STRENGTH)]


def _n_components(width: int, labels: Labels, views: Sequence[str]) -> int:
    """Return the number of principal components of the vectors of a third expert.

    It is at most `DEFAULT_DIM`, and at most half of the degrees of freedom of the variation within
    cells (combinations of classes), from which the noise covariance is estimated.

    width : number of columns of the extractor
    labels : labels of the training vectors
    views : views that define the cells
    """
    cell = ":".join(views)
    table = encode_labels(labels, list(dict.fromkeys([*views, cell])))
    within = len(table) - len(table.classes[cell])
    return max(min(DEFAULT_DIM, width, within // 2), min(2, width))


def _reduction(dim: int) -> Pipeline:
    """Return preprocessing that reduces vectors to `dim` principal components."""
    return Pipeline([("reduce", Reduction(dim))])


def selection_card(selections: Mapping[str, Selection]) -> Card:
    """Return the results of `choose_experts` as an entry of a model's description (`Bundle.card`).

    Per extractor, it has the number of held-out people, the title of the chosen candidate, and a
    table {title: [loss, standard error]} of all candidates.
    """
    return {
        name: {
            "people": selection.speakers,
            "chosen": selection.chosen.title,
            "table": {
                candidate.title: [round(candidate.loss, 5), round(candidate.standard_error, 5)]
                for candidate in selection.table
            },
        }
        for name, selection in selections.items()
    }


def selection_lines(card: Mapping[str, Any]) -> list[str]:
    """Return one line of text per extractor about its chosen expert.

    card : description of a trained model (`Bundle.card`)
    """
    choices = card.get("choice", {})
    if isinstance(choices, str):
        return [f"Choice of interaction, noise and ranks: {choices}"]
    lines = []
    for name, choice in choices.items():
        loss, error = choice["table"][choice["chosen"]]
        lines.append(
            f"Chosen for {name} on {choice['people']} people held out in turn: {choice['chosen']} "
            f"(minimum Cllr {loss:.3f}, standard error {error:.3f}; {len(choice['table'])} compared)."
        )
    return lines


def keep_few_posteriors(committee: Committee, view: str) -> None:
    """Delete the class covariances of a view in all experts of a committee, to save memory.

    They are only needed for known classes. Pass a view whose classes are never known in use, such
    as the speaker.
    """
    for expert in committee.experts_.values():
        scorer: Any = scorer_of(expert)
        covariances = dict(getattr(scorer, "class_covariances_", {}))
        covariances.pop(view, None)
        scorer.class_covariances_ = covariances
