"""Settings of an experiment (corpus, features, network, training, back-ends, evaluation), recipes and TOML files.

Settings are frozen dataclasses. Values from a file or the command line are checked against the types of the defaults,
as in recipes of extractors, and against `CHOICES` and ranges. Error messages name the setting.
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
"""The paper's 39 cepstral features: 13, with deltas and delta-deltas."""


@dataclass(frozen=True)
class Training:
    """Stochastic gradient descent with momentum and a learning rate that decays linearly to 0.

    Attributes
    ----------
    epochs : passes over all frames
    batch : frames per step
    learning_rate : initial learning rate
    momentum : share of the previous step that is added to each step
    random_state : seed; the network is reproducible with the same data, kind of device and number of threads
    """

    epochs: int = 20
    batch: int = 256
    learning_rate: float = 0.01
    momentum: float = 0.9
    random_state: int = 0


@dataclass(frozen=True)
class Pretraining:
    """Layer-wise pre-training with restricted Boltzmann machines, by contrastive divergence.

    The frames are standardised, so the Gaussian visible units of the first machine have variance 1. Its learning rate
    is small because these units are not bounded. If a layer hardly varies, the next machine learns only its mean, and
    all deeper layers become constant. To prevent this, initial weights are scaled to the variance of the data, and
    gradients are centred about the means.

    Attributes
    ----------
    gaussian_epochs, gaussian_rate : epochs and learning rate of the first machine
    epochs, rate : epochs and learning rate of each further machine
    batch : frames per step
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
    """Sigmoid layers on stacked frames; the vector is the last layer's mean over an utterance.

    Attributes
    ----------
    hidden, layers : units per layer, and number of layers
    context : frames stacked before and after each frame; the first and last frame are repeated at the edges
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
    """Sizes of the paper's systems, and readings of the paper where its text is ambiguous.

    Attributes
    ----------
    reduce : principal components that the paper's systems are fitted to; 0 uses the vectors without reduction.
        Systems named "-raw" ignore this setting and use no reduction
    paper_rank : rank of each view in the paper's systems; the cells have the sum of the ranks of all views
    paper_iterations : iterations of EM in the paper's systems
    e_step : E step of the published formulas, from the paper's "appendix" or its "body"
    m_step : M step of the published formulas; updates the loadings one after the other ("turns") or by one solve
        ("together")
    start : initialisation of EM in the paper's systems, "random" or "moments"; "published" is random for the
        published formulas and moments for all other systems
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
    """Which systems are evaluated, and how.

    Attributes
    ----------
    systems : names of systems or groups; empty: the default systems
    resamples : resamples of speakers for the comparison of systems; 0 disables comparisons and intervals
    seeds : number of fits per system with a random initialisation, with seeds random_state, random_state + 1, ...
    """

    systems: tuple[str, ...] = ()
    resamples: int = 200
    seeds: int = 1


RECIPES: dict[str, Json] = {
    # As in arXiv 1704.06061: 11 stacked frames and six layers of 2048 sigmoid units. Each layer is pre-trained as a
    # restricted Boltzmann machine; then all layers are trained on speakers and phrases together.
    "paper": {"network": {"pretrained": True}},
    "paper-without-pretraining": {},
    # Trains on two cores within a minute. More epochs over-fit to the training speakers.
    "small": {
        "network": {"hidden": 256, "layers": 2},
        "training": {"epochs": 3, "learning_rate": 0.05},
    },
}


@dataclass(frozen=True)
class Configuration:
    """All settings of an experiment.

    corpus : ``name`` of the corpus and the options of its function; without ``root``, so that a configuration is
        valid on any machine
    features, network, training : features, architecture and training of the network
    backend : settings of the systems
    evaluation : choice of the systems, and how they are evaluated
    grid : {setting of the back-end: list of values}; the paper's systems get one row per combination
    """

    corpus: dict[str, object] = field(default_factory=dict)
    features: Features = FEATURES
    network: PaperNetwork = PaperNetwork()
    training: Training = Training()
    backend: BackendSettings = BackendSettings()
    grid: dict[str, list[object]] = field(default_factory=dict)
    evaluation: EvaluationSettings = EvaluationSettings()

    def variants(self) -> Iterator[tuple[str, BackendSettings]]:
        """Yield a name suffix and the back-end's settings per combination of the grid."""
        for values in product(*self.grid.values()):
            chosen = dict(zip(self.grid, values, strict=True))
            name = "".join(f"; {key} {value}" for key, value in chosen.items())
            yield name, with_values(self.backend, chosen, "[grid]")

    def to_dict(self) -> Json:
        """Return plain values for TOML and JSON."""
        return json.loads(json.dumps(asdict(self)))  # type: ignore[no-any-return]

    @classmethod
    def from_dict(cls, values: Card) -> Configuration:
        """Create a configuration from the values of `to_dict`; omitted settings get their defaults."""
        return _checked(with_values(cls(), values, "a configuration"))

    def with_changes(self, changes: Card) -> Configuration:
        """Return a copy with changed values.

        Parameters
        ----------
        changes : {``section.name``: value}

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
                    f"expected section.name, such as training.epochs; got {path!r}"
                )
            table = tables
            for section in sections:
                subsection = table.setdefault(section, {})
                if not isinstance(subsection, dict):
                    raise ParameterError(f"{path}: {section} is a value and has no settings")
                table = subsection
            table[name] = value
        return _checked(with_values(self, tables, "a configuration"))


def _checked(configuration: Configuration) -> Configuration:
    """Return the configuration, or raise an error for the first value outside of its range."""
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
    """Return the allowed values of a setting if `value` is not among them, else an empty text."""
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
    """Read a configuration from a TOML file."""
    try:
        return Configuration.from_dict(tomllib.loads(read_bytes(path).decode()))
    except ParameterError as error:
        raise ParameterError(f"{path}: {error}") from error
    except ValueError as error:
        raise FileFormatError(f"{path} is not valid TOML: {error}") from error


def read_recipe(name: str, corpus: Card) -> Configuration:
    """Return the configuration of the recipe `name` for a corpus."""
    if name not in RECIPES:
        raise ParameterError(f"unknown recipe {name!r}; available recipes: {', '.join(RECIPES)}")
    return replace(Configuration.from_dict(RECIPES[name]), corpus=dict(corpus))


def to_toml(values: Mapping[str, Any]) -> str:
    """Return sections of plain values as TOML."""
    sections = ["\n".join([f"[{name}]", *toml_pairs(table), ""]) for name, table in values.items()]
    return "\n".join(sections)
