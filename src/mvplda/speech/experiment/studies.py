"""Studies of what views are good for: faces, and a view to be ignored."""

from __future__ import annotations

import warnings
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from ..._optional import need
from ...exceptions import DataError, FileFormatError, LabelError, MvpldaWarning, ParameterError
from ...kinds import NONTARGETS, trial_kinds
from ...labels import encode_labels
from ...metrics import eer, eer_by_kind
from ...metrics.evaluation import aligned
from ...models.baselines import CosineScorer
from ...models.multiview import PLDA, MultiviewPLDA
from ...preprocessing import Reduction
from ...report import (
    PALETTE,
    figure,
    pictures_where_possible,
    save_figure,
    variance_bars,
)

# Verify one view, ignore another: what it gains to model what is ignored.
#
# A PLDA of speakers takes the phrase for noise. Where every training speaker says every
# phrase, that is nearly right. Where speakers say few phrases each, phrase and speaker are
# mixed up in the training data, and only a model with both views can tell them apart. The
# study thins the training data out, class by class, and measures both on unseen classes.


MOST_TESTS = 1200
"""Vectors of unseen classes whose pairs are the trials of a fold."""


@dataclass(frozen=True)
class NuisanceResult:
    """EER of every system by number of ignored classes that a training class was seen with.

    errors : system -> {kept classes: EER of trials across ignored classes}, means over folds
    shares : view -> share of the variance, of the fullest multi-view model
    both : system -> {kind: EER} of the other question, "same in both views?", all classes kept
    """

    verify: str
    ignore: str
    errors: dict[str, dict[int, float]]
    shares: dict[str, float]
    both: dict[str, dict[str, float]]

    def table_of_both(self) -> str:
        """Systems by what is different in the non-targets, EER in percent: words that follow the views."""
        names = dict(
            zip(
                NONTARGETS,
                ("both other", f"other {self.verify}", f"other {self.ignore}"),
                strict=False,
            )
        )
        rows = [
            [system, *(f"{100 * errors[kind]:.2f}" for kind in (*names, "Total"))]
            for system, errors in self.both.items()
        ]
        lines = aligned([["EER, %", *names.values(), "Total"], *rows])
        note = f"trials: same {self.verify} in the same {self.ignore}, or not, on unseen classes of {self.verify}"
        return "\n".join([*lines, "", note])

    def table(self) -> str:
        """Systems by number of kept classes, EER in percent."""
        kept = list(next(iter(self.errors.values())))
        rows = [
            [name, *(f"{100 * errors[k]:.2f}" for k in kept)]
            for name, errors in self.errors.items()
        ]
        note = (
            f"columns: in how many classes of {self.ignore} a training class of {self.verify} was seen; trials: "
            f"same {self.verify} or not, targets across classes of {self.ignore}, on unseen classes of {self.verify}"
        )
        return "\n".join([*aligned([["EER, %", *map(str, kept)], *rows]), "", note])


def thinned(
    labels: Mapping[str, NDArray[Any]], verify: str, ignore: str, keep: int, random_state: int
) -> NDArray[np.bool_]:
    """Which vectors stay when every class of `verify` keeps so many classes of `ignore`, drawn at random."""
    rng = np.random.default_rng(random_state)
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
    random_state: int = 0,
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
        raise ParameterError(
            f"a training class is seen with at least one class of {ignore!r}; got {keep[-1]}"
        )
    parts = np.array_split(np.random.default_rng(random_state).permutation(classes), folds)
    found: dict[str, dict[int, list[float]]] = {}
    shares: dict[str, float] = {}
    together: dict[str, dict[str, list[float]]] = {}
    for kept in keep:
        for number, part in enumerate(parts):
            unseen = np.isin(labels[verify], part)
            train = ~unseen & thinned(labels, verify, ignore, kept, random_state)
            models, scores, both = _systems(
                X,
                labels,
                train,
                unseen,
                verify,
                ignore,
                components,
                shrinkage,
                rank,
                random_state,
                kept == keep[0],
            )
            shares = shares or dict(models.explained_variance_ratio_)
            for system, kinds in both.items():
                for kind, error in kinds.items():
                    together.setdefault(system, {}).setdefault(kind, []).append(error)
            for system, error in scores.items():
                found.setdefault(system, {}).setdefault(kept, []).append(error)
            say(
                f"{ignore} kept {kept}, fold {number + 1} of {folds}: {len(np.flatnonzero(train))} training vectors"
            )
    errors = {name: {k: float(np.mean(v)) for k, v in rows.items()} for name, rows in found.items()}
    means = {
        name: {k: float(np.mean(v)) for k, v in rows.items()} for name, rows in together.items()
    }
    return NuisanceResult(verify, ignore, errors, shares, means)


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
    random_state: int,
    ask_both: bool,
) -> tuple[MultiviewPLDA, dict[str, float], dict[str, dict[str, float]]]:
    """The fullest model; every system's error where the one view is ignored; and by kind where both are asked for."""
    rows = np.flatnonzero(train)
    chain = Reduction(min(components, X.shape[1], len(rows) - 1)).fit(X[rows])
    Y = chain.transform(X[rows])
    tests = np.random.default_rng(random_state).permutation(np.flatnonzero(unseen))[:MOST_TESTS]
    Z = chain.transform(X[tests])
    own = {view: values[rows] for view, values in labels.items()}
    size = {view: len(np.unique(values)) for view, values in own.items()}
    ranks = {view: min(rank, size[view] - 1, Y.shape[1]) for view in labels if size[view] > 1}
    asked = (verify, ignore)
    cell = ":".join(asked)
    cells = len(encode_labels(own, (cell,)).classes[cell])
    common: dict[str, Any] = {"noise": "full", "max_iter": 30, "noise_shrinkage": shrinkage}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MvpldaWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        plain = PLDA(ranks[verify], **common).fit(Y, own[verify])
        views = MultiviewPLDA(ranks, **common).fit(Y, own)
        full = MultiviewPLDA({**ranks, cell: min(2 * rank, cells - 1, Y.shape[1])}, **common).fit(
            Y, own
        )
        pairs = MultiviewPLDA({cell: min(2 * rank, cells - 1, Y.shape[1])}, **common).fit(Y, own)
    first, second = np.triu_indices(len(tests), 1)
    sides = [{view: labels[view][tests][side] for view in asked} for side in (first, second)]
    kinds = trial_kinds(*sides, listed=True)
    same = kinds["TC"] | kinds["TW"]
    cosine = CosineScorer().fit(Y).llr(Z, Z)

    def of_pairs(scores: Any) -> NDArray[Any]:
        return np.asarray(scores)[first, second]

    def error(scores: Any) -> float:
        values = of_pairs(scores)
        return float(eer(values[kinds["TW"]], values[~same]))

    alone = {
        "cosine": error(cosine),
        f"PLDA of {verify}": error(plain.llr(Z, Z)),
        "multi-view": error(views.llr(Z, Z, same=verify)),
        "multi-view, interaction": error(full.llr(Z, Z, same=verify)),
    }
    if not ask_both:
        return full, alone, {}
    ask: dict[str, Any] = {"same": list(asked)}
    claimed: dict[str, Any] = {"known": {ignore: labels[ignore][tests]}}
    together = {
        "cosine": cosine,
        f"PLDA of {verify} and {ignore}": pairs.llr(Z, Z),
        "multi-view": views.llr(Z, Z, **ask),
        "multi-view, interaction": full.llr(Z, Z, **ask),
        f"  the same, {ignore} known": full.llr(Z, Z, **ask, **claimed),
    }
    return (
        full,
        alone,
        {name: eer_by_kind(of_pairs(scores), kinds) for name, scores in together.items()},
    )


def draw_errors(axes: Any, result: NuisanceResult) -> None:
    """EER over the number of ignored classes that a training class was seen with."""
    for i, (name, errors) in enumerate(result.errors.items()):
        kept = sorted(errors)
        axes.plot(
            kept, [100 * errors[k] for k in kept], "o-", label=name, color=PALETTE[i % len(PALETTE)]
        )
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


# Faces with four labels: person, pose, expression, eyes. How much of an image each explains.


VIEWS = ("person", "pose", "expression", "eyes")
SOURCE = "CMU Face Images (Mitchell, 1997), UCI Machine Learning Repository, CC BY 4.0"


def read_faces(path: Path) -> tuple[NDArray[Any], dict[str, NDArray[Any]]]:
    """Images (n, height, width) and labels.

    Parameters
    ----------
    path : an .npz with one array of images and one of labels a view, or the folder of the
        original, ``<person>/<person>_<pose>_<expression>_<eyes>.pgm`` (``_2`` and ``_4``, the
        smaller copies, are passed over)
    """
    if path.is_dir():
        return _read_folder(path)
    try:
        with np.load(path) as data:
            arrays = {name: data[name] for name in data.files}
    except (OSError, ValueError, TypeError, AttributeError, EOFError, zipfile.BadZipFile) as error:
        raise FileFormatError(
            f"{path}: expected an .npz of images and labels, or the folder of CMU Face Images: {error}"
        ) from error
    images = [a for a in arrays.values() if a.ndim == 3]
    missing = [view for view in VIEWS if view not in arrays]
    if len(images) != 1 or missing:
        raise FileFormatError(
            f"{path}: expected one array (n, height, width) and {', '.join(VIEWS)}; got {list(arrays)}"
        )
    labels = {view: arrays[view].astype(str) for view in VIEWS}
    if any(len(values) != len(images[0]) for values in labels.values()):
        raise DataError(f"{path}: {len(images[0])} images, but labels of other lengths")
    return images[0], labels


def _read_folder(path: Path) -> tuple[NDArray[Any], dict[str, NDArray[Any]]]:
    open_image = need("PIL.Image").open
    found, labels = [], []
    for file in sorted(path.rglob("*.pgm")):
        parts = file.stem.split("_")
        if len(parts) == len(VIEWS):
            with open_image(file) as image:
                found.append(np.asarray(image.convert("L")))
            labels.append(parts)
    if not found or len({image.shape for image in found}) > 1:
        raise DataError(
            f"{path}: expected images of one size named <person>_<pose>_<expression>_<eyes>.pgm; found {len(found)}"
        )
    table = np.array(labels)
    return np.stack(found), {view: table[:, i] for i, view in enumerate(VIEWS)}


def study_faces(
    path: Path,
    output: Path,
    *,
    components: int = 60,
    random_state: int = 0,
    say: Callable[[str], None] = lambda text: None,
) -> NuisanceResult:
    """How much each view explains; the person verified ignoring the pose, and in the same pose; tables, a picture."""
    images, labels = read_faces(path)
    small = images[:, ::2, ::2].astype(np.float64)
    X = small.reshape(len(small), -1)
    say(f"{len(X)} images, {', '.join(f'{len(np.unique(v))} of {k}' for k, v in labels.items())}")
    result = study_nuisance(
        X,
        labels,
        verify="person",
        ignore="pose",
        components=components,
        folds=4,
        rank=20,
        random_state=random_state,
        say=say,
    )
    reduction = Reduction(min(components, X.shape[1], len(X) - 1)).fit(X)
    views = {
        "person": 15,
        "pose": 3,
        "expression": 3,
        "eyes": 1,
        "person:pose": 30,
        "person:eyes": 10,
    }
    model = MultiviewPLDA(views, noise="full", noise_shrinkage=0.05, tol=1e-2)
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", MvpldaWarning
        )  # fewer classes than the original's cap the ranks
        model.fit(reduction.transform(X), labels)
    output.mkdir(parents=True, exist_ok=True)
    text = "\n\n".join([result.table(), result.table_of_both(), "variance explained: "])
    text += ", ".join(
        f"{view} {share:.1%}" for view, share in model.explained_variance_ratio_.items()
    )
    text += f"\nimages: {SOURCE}\n"
    (output / "faces.txt").write_text(text, encoding="utf-8")
    say("\n" + text)
    with pictures_where_possible():
        say(f"wrote {_draw(model, reduction, small.shape[1:], result, output / 'faces.png')}")
    return result


def _draw(
    model: MultiviewPLDA,
    reduction: Reduction,
    shape: tuple[int, ...],
    result: NuisanceResult,
    path: Path,
) -> Path:
    fig, (left, middle, right) = figure(15, 4.6, 3)
    variance_bars(left, model.explained_variance_ratio_)
    left.set_title("how much of the image each view explains")
    rows = []
    for view in ("person", "pose", "eyes"):
        loading = model.loadings_[view]
        strongest = np.linalg.svd(loading, full_matrices=False)
        direction = strongest[0][:, 0] * strongest[1][0]
        centre = model.mean_
        faces = [
            (centre + step * direction) @ reduction.matrix_.T + reduction.mean_
            for step in (-2, -1, 0, 1, 2)
        ]
        rows.append(np.hstack([face.reshape(shape) for face in faces]))
    middle.imshow(np.clip(np.vstack(rows), 0, 255), cmap="gray", vmin=0, vmax=255)
    height, width = shape
    middle.set_yticks([height * (i + 0.5) for i in range(3)], ["person", "pose", "eyes"])
    middle.set_xticks([width * (i + 0.5) for i in range(5)], ["-2", "-1", "mean", "+1", "+2"])
    middle.set_title("along the strongest direction of a view")
    draw_errors(right, result)
    return save_figure(fig, path)
