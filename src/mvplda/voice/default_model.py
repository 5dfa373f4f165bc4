"""Loading of the package's default model and of the extractors that it was trained on."""

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
    """Load the extractors of the default model as one extractor.

    names : names of downloaded extractors to load instead; empty: those of the default model

    Raises
    ------
    ParameterError
        An extractor was not downloaded, or its files are damaged.
    """
    names = names or list(default_recipes())
    try:
        return load_extractor(names)
    except (OSError, FetchError, ParameterError) as error:
        raise ParameterError(
            f"the extractors of the default model are missing ({error}). Fetch them: mvplda extractor get "
            f"{' '.join(names)}"
        ) from error


def default_bundle(extractor: str | None) -> Bundle | None:
    """Return the default model if it was trained on vectors of the given extractor, else None.

    extractor : name with fingerprints, as `Extractor.name`; None: unknown; the result is None
    """
    if extractor is None or not DEFAULT_MODEL.is_file():
        return None
    bundle = load_model(DEFAULT_MODEL)
    return bundle if bundle.extractor == extractor else None


def extractor_names(combined: str | None) -> list[str]:
    """Split the name of a model's extractor into names of recipes.

    combined : names with fingerprints, joined by ``+``, such as ``campplus-07+words-db``; None: the extractors of the
        default model

    Returns
    -------
    names without fingerprints, such as ``["campplus", "words"]``
    """
    if combined is None:
        return list(default_recipes())
    return [recipe_name(extractor) for extractor in combined.split("+")]
