"""Blocks of columns in vectors that concatenate several extractors, from the recipes of these."""

from __future__ import annotations

from collections.abc import Iterable

from .recipe import families


def extractor_widths() -> dict[str, int]:
    """Return the number of columns of each extractor whose recipe specifies it."""
    return {name: recipe.width for name, recipe in families().items() if recipe.width}


def blocks_of(extractor: str | None, width: int) -> dict[str, int] | None:
    """Return the number of columns per extractor in vectors that concatenate several extractors.

    Parameters
    ----------
    extractor : name that is stored beside the vectors, such as ``campplus-0703590a6d1b+words-db2c46ec595f``
    width : number of columns of the vectors

    Returns
    -------
    {name of the extractor: number of columns}; None for a single extractor, if a width is unknown, or if the widths do
    not sum to `width`
    """
    widths = extractor_widths()
    names = (extractor or "").split("+")
    blocks = {name: widths.get(recipe_name(name), 0) for name in names}
    if len(blocks) < 2 or sum(blocks.values()) != width or not all(blocks.values()):
        return None
    return blocks


def point_blocks(blocks: Iterable[str] | None) -> list[str]:
    """Return the blocks that hold points in time instead of an embedding; only the default model uses them."""
    recipes = families()
    names = [(block, recipe_name(block)) for block in blocks or ()]
    return [block for block, name in names if name in recipes and recipes[name].has_points]


def block_views(blocks: Iterable[str] | None) -> dict[str, tuple[str, ...]]:
    """Return the views that the vectors of each block distinguish, for blocks with a known recipe."""
    recipes = families()
    names = [(block, recipe_name(block)) for block in blocks or ()]
    return {block: recipes[name].views for block, name in names if name in recipes}


def recipe_name(extractor: str) -> str:
    """Return the name of an extractor without the fingerprint that may follow it."""
    return extractor.rpartition("-")[0] or extractor
