"""Studies of the model itself: vectors of a known model, faces, and a view to be ignored."""

from __future__ import annotations

import time
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
from ..._typing import Array
from ...exceptions import DataError, FileFormatError, LabelError, LikelihoodFellWarning, MvpldaWarning, ParameterError
from ...labels import encode_labels
from ...metrics import cllr, eer, eer_by_kind, trial_kinds
from ...models.baselines import CascadeScorer, CosineScorer
from ...models.multiview import PLDA, MultiviewPLDA
from ...preprocessing import Reduction
from ...report import (
    PALETTE,
    bars_of_systems,
    figure,
    pictures_where_possible,
    save_figure,
    scatter_of_kinds,
    variance_bars,
)
from ...toy import HeldOut, make_two_views

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
        raise ParameterError(f"a training class is seen with at least one class of {ignore!r}; got {keep[-1]}")
    parts = np.array_split(np.random.default_rng(random_state).permutation(classes), folds)
    found: dict[str, dict[int, list[float]]] = {}
    shares: dict[str, float] = {}
    for kept in keep:
        for number, part in enumerate(parts):
            unseen = np.isin(labels[verify], part)
            train = ~unseen & thinned(labels, verify, ignore, kept, random_state)
            models, scores = _systems(
                X, labels, train, unseen, verify, ignore, components, shrinkage, rank, random_state
            )
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
    random_state: int,
) -> tuple[MultiviewPLDA, dict[str, float]]:
    rows = np.flatnonzero(train)
    chain = Reduction(min(components, X.shape[1], len(rows) - 1)).fit(X[rows])
    Y = chain.transform(X[rows])
    tests = np.random.default_rng(random_state).permutation(np.flatnonzero(unseen))[:MOST_TESTS]
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
    """How much each view explains, and the person verified ignoring the pose; a table and a picture."""
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
    views = {"person": 15, "pose": 3, "expression": 3, "eyes": 1, "person:pose": 30, "person:eyes": 10}
    model = MultiviewPLDA(views, noise="full", noise_shrinkage=0.05, tol=1e-2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MvpldaWarning)  # fewer classes than the original's cap the ranks
        model.fit(reduction.transform(X), labels)
    output.mkdir(parents=True, exist_ok=True)
    text = result.table() + "\n\nvariance explained: "
    text += ", ".join(f"{view} {share:.1%}" for view, share in model.explained_variance_ratio_.items())
    text += f"\nimages: {SOURCE}\n"
    (output / "faces.txt").write_text(text, encoding="utf-8")
    say("\n" + text)
    with pictures_where_possible():
        say(f"wrote {_draw(model, reduction, small.shape[1:], result, output / 'faces.png')}")
    return result


def _draw(
    model: MultiviewPLDA, reduction: Reduction, shape: tuple[int, ...], result: NuisanceResult, path: Path
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
        faces = [(centre + step * direction) @ reduction.matrix_.T + reduction.mean_ for step in (-2, -1, 0, 1, 2)]
        rows.append(np.hstack([face.reshape(shape) for face in faces]))
    middle.imshow(np.clip(np.vstack(rows), 0, 255), cmap="gray", vmin=0, vmax=255)
    height, width = shape
    middle.set_yticks([height * (i + 0.5) for i in range(3)], ["person", "pose", "eyes"])
    middle.set_xticks([width * (i + 0.5) for i in range(5)], ["-2", "-1", "mean", "+1", "+2"])
    middle.set_title("along the strongest direction of a view")
    draw_errors(right, result)
    return save_figure(fig, path)


# Vectors drawn from a known model, every system fitted to them, one table.
#
# 132 training speakers and 70 others say the same 20 phrases. A profile is three
# vectors of one speaker and one phrase; every profile meets every test.


KINDS = ("IW", "IC", "TW", "Total")


def systems(X: Array, labels: Mapping[str, Any], unseen: HeldOut) -> dict[str, Callable[[], Array]]:
    """Every system as a function that fits it and scores all trials."""
    views = {"speaker": 20, "phrase": 19}
    training = (X, labels)

    def scores(model: Any, method: str | None = None, **question: Any) -> Array:
        options = {} if method is None else {"method": method}
        profiles = model.enrol(unseen.enrol, unseen.ids, **options)
        return np.asarray(model.llr(profiles, unseen.test, **question))

    def printed() -> Array:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LikelihoodFellWarning)
            model = MultiviewPLDA(views, algorithm="paper", init="random", max_iter=10, tol=0, random_state=0)
            model.fit(*training)
        return scores(model, method="average", scoring="paper")

    exact = MultiviewPLDA(views, max_iter=10, tol=0)
    claims = unseen.enrol_labels["phrase"].reshape(-1, 3)[:, 0]
    return {
        "cosine": lambda: scores(CosineScorer().fit(*training)),
        "PLDA, class = cell, rank 40": lambda: scores(
            MultiviewPLDA({"speaker:phrase": 40}, max_iter=10, tol=0).fit(*training), method="average"
        ),
        "two PLDA in cascade": lambda: scores(CascadeScorer(views, {"max_iter": 10, "tol": 0}).fit(*training)),
        "the paper as printed": printed,
        "exact EM, exact score": lambda: scores(exact.fit(*training), method="average"),
        "  by-the-book enrolment": lambda: scores(exact),
        "  the phrase known": lambda: scores(exact, known={"phrase": claims}),
        "true parameters": lambda: scores(unseen.truth, method="average"),
    }


def run(output: Path, random_state: int = 0, say: Callable[[str], None] = print) -> dict[str, dict[str, float]]:
    """Draw, fit, score, print the table, and leave the pictures and the model in a folder."""
    say("drawing vectors from a known model: D = 100, ranks 20 + 20, 132 + 70 speakers, 20 phrases ...")
    X, labels, unseen = make_two_views(held_out=70, random_state=random_state)
    profiles = len(np.unique(unseen.ids))
    say(f"{len(X)} training vectors, {profiles} profiles x {len(unseen.test)} tests\n")
    first = {view: own.reshape(-1, 3)[:, 0] for view, own in unseen.enrol_labels.items()}
    kinds = trial_kinds(first, unseen.test_labels)
    say(f"{'EER, %':32}" + "".join(f"{kind:>8}" for kind in KINDS) + f"{'Cllr':>8}{'seconds':>9}")
    table: dict[str, dict[str, float]] = {}
    for name, fit_and_score in systems(X, labels, unseen).items():
        started = time.perf_counter()
        scores = fit_and_score()
        row = eer_by_kind(scores, kinds)
        cost = "-" if name == "cosine" else f"{cllr(scores[kinds['TC']], scores[~kinds['TC']]):.3f}"
        table[name.strip()] = row
        seconds = time.perf_counter() - started
        cells = "".join(f"{100 * row[kind]:8.2f}" for kind in KINDS)
        say(f"{name:32}{cells}{cost:>8}{seconds:9.1f}")
    say("\nIW impostor, wrong phrase; IC impostor, correct phrase; TW target, wrong phrase.")
    model = MultiviewPLDA({"speaker": 20, "phrase": 19}, max_iter=10, tol=0).fit(X, labels)
    shares = ", ".join(f"{view} {share:.0%}" for view, share in model.explained_variance_ratio_.items())
    say(f"variance explained: {shares}")
    output.mkdir(parents=True, exist_ok=True)
    model.save(output / "model.safetensors")
    say(f"\nwrote {output / 'model.safetensors'}")
    with pictures_where_possible():
        fig, (left, right) = figure(11, 5, 2)
        enrolled = model.enrol(unseen.enrol, unseen.ids)
        ratios = [model.llr(enrolled, unseen.test, same=view) for view in ("speaker", "phrase")]
        scatter_of_kinds(left, ratios[0], ratios[1], kinds, ("speaker", "phrase"))
        bars_of_systems(right, table, KINDS)
        say(f"wrote {save_figure(fig, output / 'drawn.png')}")
    say(f"look inside the model:  mvplda info {output / 'model.safetensors'}")
    return table
