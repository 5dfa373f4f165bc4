"""Settings of an experiment: corpus, features, network, training, back-ends and evaluation; reading them from TOML.

Settings are frozen dataclasses. Values from a file or the command line must have the types of the defaults, be one of
`CHOICES` if the setting is listed there, and be within the setting's range.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

from .._typing import Card, Json
from ..exceptions import FileFormatError, ParameterError
from ..io.streams import read_bytes
from ..persistence import toml_pairs
from ..voice.extractors.recipe import Features, with_values

__all__ = [
    "Configuration",
    "PaperNetwork",
    "Pretraining",
    "Training",
    "read_configuration",
    "read_recipe",
]

CHOICES = {
    "e_step": ("appendix", "body"),
    "m_step": ("turns", "together"),
    "start": ("published", "random", "moments"),
    "noise": ("diagonal", "full"),
}
ZERO_ALLOWED = ("random_state", "momentum", "weight_decay", "context", "reduce", "resamples")
BELOW_1 = ("momentum", "weight_decay")
FEATURES = Features(kind="mfcc", bins=23, normalisation="mean+variance")
"""Features of the paper: 13 cepstra with their first and second regressions over time, 39 in all."""


@dataclass(frozen=True)
class Training:
    """Settings of the network's training: stochastic gradient descent, with a learning rate that falls linearly to 0.

    Attributes
    ----------
    epochs : number of passes over all frames
    batch : number of frames per step
    learning_rate : initial learning rate
    momentum : factor by which the previous step is multiplied before it is added to the next one
    random_state : seed; the network is reproducible with the same data, kind of device and number of threads
    """

    epochs: int = 20
    batch: int = 256
    learning_rate: float = 0.01
    momentum: float = 0.9
    random_state: int = 0


@dataclass(frozen=True)
class Pretraining:
    """Settings of the pre-training of each layer as a restricted Boltzmann machine, by contrastive divergence.

    The frames are standardised, so the Gaussian visible units of the first machine have variance 1. Its learning rate
    is small because these units are not bounded. If a layer hardly varies, the next machine learns only its mean, and
    all deeper layers become constant. To prevent this, initial weights are scaled to the variance of the data, and
    gradients are centred about the means.

    Attributes
    ----------
    gaussian_epochs, gaussian_rate : number of epochs and learning rate of the first machine
    epochs, rate : number of epochs and learning rate of each further machine
    batch : number of frames per step
    momentum, weight_decay : momentum and weight decay of every machine
    """

    gaussian_epochs: int = 10
    gaussian_rate: float = 0.001
    epochs: int = 5
    rate: float = 0.02
    batch: int = 256
    momentum: float = 0.9
    weight_decay: float = 2e-4


@dataclass(frozen=True)
class PaperNetwork:
    """Architecture of the paper's network: sigmoid layers on stacked frames.

    The vector of an utterance is the mean of the last layer over its frames.

    Attributes
    ----------
    hidden, layers : number of units per layer, and number of layers
    context : number of frames that are stacked before and after each frame; at the edges, the first or last frame is
        repeated
    start_scale : factor on Glorot's uniform initialisation; 4 is the usual factor for sigmoids
    pretrained : whether the layers are pre-trained as restricted Boltzmann machines
    pretraining : settings of the pre-training
    """

    hidden: int = 2048
    layers: int = 6
    context: int = 5
    start_scale: float = 4.0
    pretrained: bool = False
    pretraining: Pretraining = Pretraining()


@dataclass(frozen=True)
class BackendSettings:
    """Settings of the paper's systems: sizes, and choices where the paper is ambiguous.

    Attributes
    ----------
    reduce : number of principal components to which vectors are reduced; 0: no reduction. Systems whose name ends in
        "-raw" never use a reduction
    paper_rank : rank of the loadings of each view; the loadings of cells (combinations of classes) have the sum of
        these ranks
    paper_iterations : number of iterations of EM
    e_step : formulas of the E step, those of the paper's "appendix" or of its "body"
    m_step : M step of the published formulas, which updates the loadings of the views one after the other ("turns") or
        by one solve ("together")
    start : initialisation of EM, "random" or "moments"; "published" is random for the published formulas and moments
        for all other systems
    noise : noise covariance of the paper's systems, "diagonal" or "full"
    priors : relative priors p1 (phrase shared), p2 (speaker shared) and p3 (nothing shared); empty: equal priors
    random_state : seed of random initialisations
    """

    reduce: int = 200
    paper_rank: int = 20
    paper_iterations: int = 10
    e_step: str = "appendix"
    m_step: str = "turns"
    start: str = "published"
    noise: str = "diagonal"
    priors: tuple[float, ...] = ()
    random_state: int = 0


@dataclass(frozen=True)
class EvaluationSettings:
    """Settings of the evaluation: which systems are run, and how they are compared.

    Attributes
    ----------
    systems : names of systems or groups of systems; empty: the default systems
    resamples : number of resamples of speakers for comparisons of systems; 0 disables comparisons and intervals
    seeds : number of fits per system with a random initialisation, with seeds random_state, random_state + 1, ...
    """

    systems: tuple[str, ...] = ()
    resamples: int = 200
    seeds: int = 1


RECIPES: dict[str, Json] = {
    # as in arXiv 1704.06061: 11 stacked frames and six layers of 2048 sigmoid units. Each layer is pre-trained as a
    # restricted Boltzmann machine; then all layers are trained on speakers and phrases together
    "paper": {"network": {"pretrained": True}},
    "paper-without-pretraining": {},
    # trains on two cores within a minute; more epochs over-fit to the training speakers
    "small": {
        "network": {"hidden": 256, "layers": 2},
        "training": {"epochs": 3, "learning_rate": 0.05},
    },
}


@dataclass(frozen=True)
class Configuration:
    """All settings of an experiment.

    corpus : ``name`` of the corpus, and the options of the function that loads it. The folder of the data is left out,
        so that a configuration is valid on any machine
    features, network, training : features, architecture and training of the network
    backend : settings of the paper's systems
    grid : {setting of `backend`: list of values}; the paper's systems are run with every combination
    evaluation : choice of the systems, and how they are compared
    """

    corpus: dict[str, object] = field(default_factory=dict)
    features: Features = FEATURES
    network: PaperNetwork = PaperNetwork()
    training: Training = Training()
    backend: BackendSettings = BackendSettings()
    grid: dict[str, list[object]] = field(default_factory=dict)
    evaluation: EvaluationSettings = EvaluationSettings()

    def variants(self) -> Iterator[tuple[str, BackendSettings]]:
        """Yield (suffix, settings of the systems) for each combination of values in the grid.

        The suffix, such as "; noise full", distinguishes the names of the systems; it is empty without a grid.
        """
        for values in product(*self.grid.values()):
            chosen = dict(zip(self.grid, values, strict=True))
            name = "".join(f"; {key} {value}" for key, value in chosen.items())
            yield name, with_values(self.backend, chosen, "[grid]")

    def to_dict(self) -> Json:
        """Return all settings as plain values for TOML and JSON, {section: {setting: value}}."""
        return json.loads(json.dumps(asdict(self)))  # type: ignore[no-any-return]

    @classmethod
    def from_dict(cls, values: Card) -> Configuration:
        """Create a configuration from values as `to_dict` returns them; missing settings get their defaults.

        Raises
        ------
        ParameterError
            A setting is unknown, or its value is impossible.
        """
        return _checked(with_values(cls(), values, "a configuration"))

    def with_changes(self, changes: Card) -> Configuration:
        """Return a copy with other values of some settings.

        Parameters
        ----------
        changes : {``section.setting``: value}

        Examples
        --------
        >>> from mvplda.paper.experiment_settings import Configuration
        >>> Configuration().with_changes({"training.epochs": 3}).training.epochs
        3
        """
        # these sections are replaced as a whole, because they have no defaults that could complete them
        tables: dict[str, object] = {"corpus": dict(self.corpus), "grid": dict(self.grid)}
        for path, value in changes.items():
            *sections, name = path.split(".")
            if not sections:
                raise ParameterError(
                    f"expected the name of a setting as section.name, such as training.epochs; got {path!r}"
                )
            table = tables
            for section in sections:
                subsection = table.setdefault(section, {})
                if not isinstance(subsection, dict):
                    raise ParameterError(
                        f"{path}: {section} is a single setting, not a section with settings: pass section.name"
                    )
                table = subsection
            table[name] = value
        return _checked(with_values(self, tables, "a configuration"))


def _checked(configuration: Configuration) -> Configuration:
    """Return a configuration unchanged; raise `ParameterError` if the value of a setting is not allowed."""
    for name, values in configuration.grid.items():
        if not isinstance(values, list):
            raise ParameterError(f"[grid] {name} must be a list of values; got {values!r}")
    network = configuration.network
    sections = [network, network.pretraining, configuration.training, configuration.evaluation]
    for section in [*sections, *(backend for _, backend in configuration.variants())]:
        for name, value in vars(section).items():
            constraint = _violated_constraint(name, value)
            if constraint:
                raise ParameterError(f"{name} must be {constraint}; got {value!r}")
    return configuration


def _violated_constraint(name: str, value: object) -> str:
    """Return "" if a value is allowed for a setting, else a description of the allowed values for a message."""
    if value not in CHOICES.get(name, (value,)):
        return "one of " + ", ".join(CHOICES[name])
    # False is a valid value of a switch, although it equals 0
    if isinstance(value, (int, float)) and value is not False:
        if value <= 0 and name not in ZERO_ALLOWED:
            return "above 0"
        if name in BELOW_1 and not 0 <= value < 1:
            return "from 0 to below 1"
    if isinstance(value, tuple) and name == "priors" and len(value) not in (0, 3):
        return "empty, or p1, p2 and p3"
    return ""


def read_configuration(path: str | Path) -> Configuration:
    """Read a configuration from a TOML file; settings that it lacks have their defaults.

    Raises
    ------
    ParameterError
        A setting is unknown, or its value is impossible.
    FileFormatError
        The file is not valid TOML.
    """
    try:
        return Configuration.from_dict(tomllib.loads(read_bytes(path).decode()))
    except ParameterError as error:
        raise ParameterError(f"{path}: {error}") from error
    except ValueError as error:
        raise FileFormatError(f"{path} is not valid TOML: {error}") from error


def read_recipe(name: str, corpus: Card) -> Configuration:
    """Return a predefined configuration for a corpus.

    Parameters
    ----------
    name : "paper", "paper-without-pretraining" or "small", see `RECIPES`
    corpus : name of the corpus and options of the function that loads it
    """
    if name not in RECIPES:
        raise ParameterError(f"unknown recipe {name!r}; available recipes: {', '.join(RECIPES)}")
    return replace(Configuration.from_dict(RECIPES[name]), corpus=dict(corpus))


def to_toml(values: Mapping[str, Any]) -> str:
    """Return a configuration as the text of a TOML file.

    values : {section: {setting: value}}, as from `Configuration.to_dict`
    """
    sections = ["\n".join([f"[{name}]", *toml_pairs(table), ""]) for name, table in values.items()]
    return "\n".join(sections)
