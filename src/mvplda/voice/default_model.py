"""The default model of the package and its extractors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..bundle import Bundle
from ..exceptions import FetchError, ParameterError
from ..model_files import load_model
from .extractors.blocks import recipe_name
from .extractors.extractor import Extractor, load_extractor
from .extractors.recipe import default_recipes

DEFAULT_MODEL = Path(__file__).with_name("defaults") / "default.safetensors"
"""File of the default model, a `DomainPLDA` trained on several corpora."""


def default_extractor(names: Sequence[str] = ()) -> Extractor:
    """Load the extractors of the default model, or those with the given names."""
    names = names or list(default_recipes())
    try:
        return load_extractor(names)
    except (OSError, FetchError, ParameterError) as error:
        raise ParameterError(
            f"the extractors of the default model are missing ({error}). Fetch them: mvplda extractor get "
            f"{' '.join(names)}"
        ) from error


def default_bundle(extractor: str | None) -> Bundle | None:
    """Return the default model if it was trained on vectors of this extractor, else None."""
    if extractor is None or not DEFAULT_MODEL.is_file():
        return None
    bundle = load_model(DEFAULT_MODEL)
    return bundle if bundle.extractor == extractor else None


def extractor_names(combined: str | None) -> list[str]:
    """Split the name of a model's extractor, such as ``campplus-07+words-db``, into names of recipes.

    combined : None: the default model's
    """
    if combined is None:
        return list(default_recipes())
    return [recipe_name(extractor) for extractor in combined.split("+")]
