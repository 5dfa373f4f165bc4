"""Columns of each extractor in vectors that concatenate the outputs of several extractors (one block per extractor)."""

from __future__ import annotations

from collections.abc import Iterable

from .recipe import families


def extractor_widths() -> dict[str, int]:
    """Return {name of an extractor: length of its vectors}, for recipes that specify the length."""
    return {name: recipe.width for name, recipe in families().items() if recipe.width}


def blocks_of(extractor: str | None, width: int) -> dict[str, int] | None:
    """Return the number of columns per extractor in vectors that concatenate several extractors.

    Parameters
    ----------
    extractor : name that is stored beside the vectors, such as ``campplus-0703590a6d1b+words-db2c46ec595f``: extractors
        with their fingerprints, joined by ``+``
    width : number of columns of the vectors

    Returns
    -------
    {name of the extractor: number of columns}. None if there is a single extractor, if a number of columns is unknown,
    or if they do not sum to `width`
    """
    widths = extractor_widths()
    names = (extractor or "").split("+")
    blocks = {name: widths.get(recipe_name(name), 0) for name in names}
    if len(blocks) < 2 or sum(blocks.values()) != width or not all(blocks.values()):
        return None
    return blocks


def point_blocks(blocks: Iterable[str] | None) -> list[str]:
    """Return the names of those extractors whose vectors are points in time, not embeddings.

    blocks : names of extractors, with or without a fingerprint; None: no extractor
    """
    recipes = families()
    names = [(block, recipe_name(block)) for block in blocks or ()]
    return [block for block, name in names if name in recipes and recipes[name].has_points]


def block_views(blocks: Iterable[str] | None) -> dict[str, tuple[str, ...]]:
    """Return {name of an extractor: views, such as "speaker", that its vectors distinguish}.

    blocks : names of extractors, with or without a fingerprint; None: no extractor. Extractors
        without a recipe are left out
    """
    recipes = families()
    names = [(block, recipe_name(block)) for block in blocks or ()]
    return {block: recipes[name].views for block, name in names if name in recipes}


def recipe_name(extractor: str) -> str:
    """Remove the fingerprint from the name of an extractor: ``words-db2c46ec595f`` becomes ``words``."""
    return extractor.rpartition("-")[0] or extractor
