"""Verify one view, ignore another: what it gains to model what is ignored.

A PLDA of speakers takes the phrase for noise. Where every training speaker says every
phrase, that is nearly right. Where speakers say few phrases each, phrase and speaker are
mixed up in the training data, and only a model with both views can tell them apart. The
study thins the training data out, class by class, and measures both on unseen classes.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from ..estimators.baselines import CosineScorer
from ..estimators.multiview import MultiviewPLDA
from ..estimators.plda import PLDA
from ..exceptions import DataError, LabelError, MvpldaWarning, ParameterError
from ..labels import encode_labels
from ..metrics import eer
from ..preprocessing import Reduction
from ..report.figures import PALETTE

MOST_TESTS = 1200
"""Vectors of unseen classes whose pairs are the trials of a fold."""


@dataclass(frozen=True)
class NuisanceResult:
    """EER of every system by number of ignored classes that a training class was seen with.

    errors : system -> {kept classes: EER of trials across ignored classes}, means over folds
    shares : view -> share of the variance, of the fullest multi-view model
    """

    verify: str
    ignore: str
    errors: dict[str, dict[int, float]]
    shares: dict[str, float]

    def table(self) -> str:
        """Systems by number of kept classes, EER in percent."""
        kept = list(next(iter(self.errors.values())))
        width = max(map(len, self.errors)) + 2
        head = f"{'EER, %':{width}}" + "".join(f"{k:>8}" for k in kept)
        rows = [
            f"{name:{width}}" + "".join(f"{100 * errors[k]:8.2f}" for k in kept) for name, errors in self.errors.items()
        ]
        note = (
            f"columns: in how many classes of {self.ignore} a training class of {self.verify} was seen; trials: "
            f"same {self.verify} or not, targets across classes of {self.ignore}, on unseen classes of {self.verify}"
        )
        return "\n".join([head, *rows, "", note])


def thinned(labels: Mapping[str, NDArray[Any]], verify: str, ignore: str, keep: int, seed: int) -> NDArray[np.bool_]:
    """Which vectors stay when every class of `verify` keeps so many classes of `ignore`, drawn at random."""
    rng = np.random.default_rng(seed)
    stays = np.ones(len(labels[verify]), dtype=bool)
    for name in np.unique(labels[verify]):
        own = labels[verify] == name
        chosen = rng.permutation(np.unique(labels[ignore][own]))[:keep]
        stays &= ~own | np.isin(labels[ignore], chosen)
    return stays


def study_nuisance(
    X: NDArray[Any],
    labels: Mapping[str, NDArray[Any]],
    *,
    verify: str,
    ignore: str,
    keep: Sequence[int] | None = None,
    components: int = 150,
    folds: int = 4,
    shrinkage: float = 0.05,
    rank: int = 40,
    seed: int = 0,
    say: Callable[[str], None] = lambda text: None,
) -> NuisanceResult:
    """Compare PLDA of one view with models of all views, on classes that were not trained on.

    Parameters
    ----------
    X, labels : vectors and {view: classes}; views beside the two named are modelled too
    verify, ignore : the view in question, and the one that must not matter
    keep : numbers of ignored classes that a training class is seen with; default: all, half, 2, 1
    components : principal components
    folds : of the classes of `verify`, at least 2; every fold is tested once
    """
    for view in (verify, ignore):
        if view not in labels:
            raise LabelError(f"there is no view {view!r}; there are {list(labels)}")
    if verify == ignore:
        raise LabelError(f"one view is verified and another ignored; got {verify!r} for both")
    for view, values in labels.items():
        unknown = sum(value is None for value in values)
        if unknown:
            raise LabelError(f"{unknown} vector(s) have no label in view {view!r}: leave them out")
    classes = np.unique(labels[verify])
    if folds < 2 or len(classes) < 2 * folds:
        raise DataError(
            f"{len(classes)} classes of {verify!r} and {folds} folds; expected 2 folds of 2 classes or more"
        )
    most = max(len(np.unique(labels[ignore][labels[verify] == c])) for c in classes)
    keep = sorted({min(k, most) for k in keep or (most, max(most // 2, 1), 2, 1)}, reverse=True)
    if keep[-1] < 1:
        raise ParameterError(f"a training class is seen with at least one class of {ignore!r}; got {keep[-1]}")
    parts = np.array_split(np.random.default_rng(seed).permutation(classes), folds)
    found: dict[str, dict[int, list[float]]] = {}
    shares: dict[str, float] = {}
    for kept in keep:
        for number, part in enumerate(parts):
            unseen = np.isin(labels[verify], part)
            train = ~unseen & thinned(labels, verify, ignore, kept, seed)
            models, scores = _systems(X, labels, train, unseen, verify, ignore, components, shrinkage, rank, seed)
            shares = shares or dict(models.explained_variance_ratio_)
            for system, error in scores.items():
                found.setdefault(system, {}).setdefault(kept, []).append(error)
            say(f"{ignore} kept {kept}, fold {number + 1} of {folds}: {len(np.flatnonzero(train))} training vectors")
    errors = {name: {k: float(np.mean(v)) for k, v in rows.items()} for name, rows in found.items()}
    return NuisanceResult(verify, ignore, errors, shares)


def _systems(
    X: NDArray[Any],
    labels: Mapping[str, NDArray[Any]],
    train: NDArray[np.bool_],
    unseen: NDArray[np.bool_],
    verify: str,
    ignore: str,
    components: int,
    shrinkage: float,
    rank: int,
    seed: int,
) -> tuple[MultiviewPLDA, dict[str, float]]:
    rows = np.flatnonzero(train)
    chain = Reduction(min(components, X.shape[1], len(rows) - 1)).fit(X[rows])
    Y = chain.transform(X[rows])
    tests = np.random.default_rng(seed).permutation(np.flatnonzero(unseen))[:MOST_TESTS]
    Z = chain.transform(X[tests])
    own = {view: values[rows] for view, values in labels.items()}
    size = {view: len(np.unique(values)) for view, values in own.items()}
    ranks = {view: min(rank, size[view] - 1, Y.shape[1]) for view in labels if size[view] > 1}
    cell = f"{verify}:{ignore}"
    cells = len(encode_labels(own, (cell,)).classes[cell])
    common: dict[str, Any] = {"noise": "full", "max_iter": 30, "noise_shrinkage": shrinkage}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MvpldaWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        plain = PLDA(ranks[verify], **common).fit(Y, own[verify])
        views = MultiviewPLDA(ranks, **common).fit(Y, own)
        full = MultiviewPLDA({**ranks, cell: min(2 * rank, cells - 1, Y.shape[1])}, **common).fit(Y, own)
    first, second = np.triu_indices(len(tests), 1)
    same = labels[verify][tests][first] == labels[verify][tests][second]
    across = labels[ignore][tests][first] != labels[ignore][tests][second]

    def error(scores: Any) -> float:
        values = np.asarray(scores)[first, second]
        return float(eer(values[same & across], values[~same]))

    return full, {
        "cosine": error(CosineScorer().fit(Y).llr(Z, Z)),
        f"PLDA of {verify}": error(plain.llr(Z, Z)),
        "multi-view": error(views.llr(Z, Z, same=verify)),
        "multi-view, interaction": error(full.llr(Z, Z, same=verify)),
    }


def draw_errors(axes: Any, result: NuisanceResult) -> None:
    """EER over the number of ignored classes that a training class was seen with."""
    for i, (name, errors) in enumerate(result.errors.items()):
        kept = sorted(errors)
        axes.plot(kept, [100 * errors[k] for k in kept], "o-", label=name, color=PALETTE[i % len(PALETTE)])
    axes.set_xscale("log")
    kept = sorted(next(iter(result.errors.values())))
    axes.set_xticks(kept, [str(k) for k in kept])
    axes.minorticks_off()
    axes.set(
        xlabel=f"classes of {result.ignore} that a training {result.verify} was seen with",
        ylabel=f"EER, %: same {result.verify}?",
        ylim=(0, None),
    )
    axes.set_title(f"verify the {result.verify}, ignore the {result.ignore}")
    axes.legend(fontsize="small")
    axes.grid(alpha=0.25)
