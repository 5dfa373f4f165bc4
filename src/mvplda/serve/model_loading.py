"""Load the model of the service and its extractor: the chosen one, the default, or the demonstration."""

from __future__ import annotations

from pathlib import Path

from ..exceptions import ParameterError
from ..model_files import load_model
from ..voice.default_model import (
    DEFAULT_MODEL,
    default_extractor,
    extractor_names,
)
from ..voice.extractors import load_extractor
from .model import Model
from .settings import Settings

MODEL_FOLDER = Path(__file__).with_name("models")
DEMO_NOTICE = (
    "DEMONSTRATION ONLY: the extractor is a toy network that was trained on synthetic voices. It must not decide about "
    "people: it accepts most impostors."
)


def open_model(settings: Settings) -> Model:
    """Load the model and the extractors of the settings."""
    if settings.demo:
        extractor = load_extractor(MODEL_FOLDER / "small.onnx", threads=1)
        bundle = load_model(MODEL_FOLDER / "small.safetensors")
        return Model(bundle, extractor, notice=DEMO_NOTICE)
    if settings.model is not None:
        bundle = load_model(settings.model)
        # a model of `setup` names its extractors; without names the service accepts vectors only
        names = list(settings.extractors)
        if not names and bundle.extractor is not None:
            names = extractor_names(bundle.extractor)
        return Model(bundle, load_extractor(names, threads=1) if names else None)
    try:
        extractor = default_extractor(settings.extractors or ())
    except ParameterError as error:
        raise ParameterError(
            f"{error}. Or try a toy network: mvplda serve --demo, which MUST NOT DECIDE ABOUT PEOPLE"
        ) from error
    return Model(load_model(DEFAULT_MODEL), extractor)
