"""Faces with four labels: person, pose, expression, eyes. How much of an image each explains."""

from __future__ import annotations

import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..estimators.multiview import MultiviewPLDA
from ..exceptions import DataError, FileFormatError, MvpldaWarning
from ..extras import need
from ..preprocessing import Reduction
from ..report.figures import figure, save_figure, variance_bars
from ..report.page import pictures_where_possible
from .nuisance import NuisanceResult, draw_errors, study_nuisance

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
    path: Path, output: Path, *, components: int = 60, seed: int = 0, say: Callable[[str], None] = lambda text: None
) -> NuisanceResult:
    """How much each view explains, and the person verified ignoring the pose; a table and a picture."""
    images, labels = read_faces(path)
    small = images[:, ::2, ::2].astype(np.float64)
    X = small.reshape(len(small), -1)
    say(f"{len(X)} images, {', '.join(f'{len(np.unique(v))} of {k}' for k, v in labels.items())}")
    result = study_nuisance(
        X, labels, verify="person", ignore="pose", components=components, folds=4, rank=20, seed=seed, say=say
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
