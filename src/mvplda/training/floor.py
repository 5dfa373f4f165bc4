"""Baseline of all models, their "floor": the plain mean of the extractors' cosines; only its calibration is trained."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ..models import Committee, CosineScorer

FLOOR = "plain mean of cosines"
"""Name of the baseline model, the plain mean of cosines, in model descriptions and reports."""


def make_cosine_floor(
    blocks: Mapping[str, int],
    views: Sequence[str],
    block_views: Mapping[str, Sequence[str]] | None = None,
    point_blocks: Collection[str] = (),
) -> Committee:
    """Return an unfitted committee of cosines: per view, the plain mean over the extractors of that view.

    The mean of all training vectors, which are the enrolled people of a setup, is subtracted first.

    Parameters
    ----------
    blocks : {name of the extractor: number of columns}, in the order of the columns
    views : names of the views
    block_views : {name of the extractor: views that its vectors distinguish}; extractors without an
        entry count for all views
    point_blocks : extractors whose vectors are points in time; their last column, the time in
        seconds, is left out

    Returns
    -------
    Committee

    Examples
    --------
    >>> from mvplda.training.floor import make_cosine_floor
    >>> floor = make_cosine_floor(
    ...     {"campplus": 192, "resnet": 256, "words": 288},
    ...     ["speaker", "phrase"],
    ...     {"campplus": ["speaker"], "resnet": ["speaker"], "words": ["phrase"]},
    ... )
    >>> floor.weights
    {'campplus, speaker': 0.5, 'resnet, speaker': 0.5, 'words, phrase': 1.0}
    """
    columns: dict[str, tuple[int, int]] = {}
    names: dict[str, list[str]] = {view: [] for view in views}
    start = 0
    for block, width in blocks.items():
        stop = start + width
        for view in (block_views or {}).get(block, views):
            if view in names:
                title = f"{block}, {view}"
                columns[title] = (start, stop - 1 if block in point_blocks else stop)
                names[view].append(title)
        start = stop
    experts = {
        title: CosineScorer(views=[view]) for view, titles in names.items() for title in titles
    }
    weights = {title: 1 / len(titles) for titles in names.values() for title in titles}
    return Committee(experts, columns=columns, weights=weights)
