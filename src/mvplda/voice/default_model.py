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
"""The model of the package: of several corpora, in a domain that enrolments tell."""


def default_extractor(names: Sequence[str] = ()) -> Extractor:
    """Load the extractors of the default model, or others in their place."""
    names = names or list(default_recipes())
    try:
        return load_extractor(names)
    except (OSError, FetchError, ParameterError) as error:
        raise ParameterError(
            f"the extractors of the default model are not here ({error}). Fetch them: mvplda extractor get "
            f"{' '.join(names)}"
        ) from error


def default_bundle(extractor: str | None) -> Bundle | None:
    """The model of the package, where these vectors are what it takes; None where they are not."""
    if extractor is None or not DEFAULT_MODEL.is_file():
        return None
    bundle = load_model(DEFAULT_MODEL)
    return bundle if bundle.extractor == extractor else None


def extractor_names(noted: str | None) -> list[str]:
    """Names by which the extractors of a model are loaded; without a note, those of the default model."""
    if noted is None:
        return list(default_recipes())
    return [recipe_name(extractor) for extractor in noted.split("+")]
