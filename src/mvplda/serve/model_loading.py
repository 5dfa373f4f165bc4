"""Loading of the service's model and extractor: the chosen model, the default model, or the demonstration."""

from __future__ import annotations

from pathlib import Path

from ..exceptions import FetchError, ParameterError
from ..model_files import load_model
from ..voice.default_model import (
    DEFAULT_MODEL,
    default_extractor,
    extractor_names,
)
from ..voice.extractors import Extractor, load_extractor
from ..voice.extractors.decoder import RECOGNISER, TextDecoder, load_decoder
from .model import Model
from .settings import Settings

MODEL_FOLDER = Path(__file__).with_name("models")
DEMO_NOTICE = (
    "DEMONSTRATION ONLY: the extractor is a toy network that was trained on synthetic voices. It must not decide about "
    "people: it accepts most impostors."
)


def open_model(settings: Settings) -> Model:
    """Load the model and the extractors that the settings name; the default is the model of the package.

    Raises
    ------
    ParameterError : if the model has no view ``speaker``, or if extractors are missing or do not fit the model
    """
    if settings.demo:
        extractor = load_extractor(MODEL_FOLDER / "small.onnx", threads=1)
        bundle = load_model(MODEL_FOLDER / "small.safetensors")
        return Model(bundle, extractor, notice=DEMO_NOTICE)
    if settings.model is not None:
        bundle = load_model(settings.model)
        # a model of `mvplda setup` names its extractors; without names the service accepts vectors only
        names = list(settings.extractors)
        if not names and bundle.extractor is not None:
            names = extractor_names(bundle.extractor)
        if not names:
            return Model(bundle)
        extractor = load_extractor(names, threads=1)
        return Model(bundle, extractor, text_model=find_decoder(extractor))
    try:
        extractor = default_extractor(settings.extractors or ())
    except ParameterError as error:
        raise ParameterError(
            f"{error}. Or try the service with a toy network, which MUST NOT DECIDE ABOUT PEOPLE: "
            "run `mvplda serve --demo`"
        ) from error
    return Model(load_model(DEFAULT_MODEL), extractor, text_model=find_decoder(extractor))


def find_decoder(extractor: Extractor) -> TextDecoder | None:
    """Return the recogniser for prompted words; None if it was not downloaded, or needs another sampling rate."""
    encoders = (network for network in extractor.networks if network.recipe.name == RECOGNISER)
    try:
        decoder = load_decoder(next(encoders, None))
    except FetchError:
        return None
    return decoder if decoder.rate == extractor.rate else None
