"""The floor of all models: the plain mean of the networks' cosines, with nothing trained but its calibration."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ..models import Committee, CosineScorer

FLOOR = "plain mean of cosines"
"""Name of the model on its card and in reports."""


def make_cosine_floor(
    blocks: Mapping[str, int],
    views: Sequence[str],
    block_views: Mapping[str, Sequence[str]] | None = None,
    point_blocks: Collection[str] = (),
) -> Committee:
    """Return an unfitted committee of cosines: per view, the plain mean over the networks of that view.

    The cosines are those of vectors less the mean of all training vectors, which are the enrolled people of a setup.

    Parameters
    ----------
    blocks : {name of the extractor: number of columns}, in the order of the columns
    views : names of the views
    block_views : {name of the extractor: views that its vectors distinguish}; extractors without an entry count for all
        views
    point_blocks : blocks whose vectors are points in time; their last column, the seconds, is left out

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
