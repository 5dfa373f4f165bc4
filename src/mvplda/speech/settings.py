"""Settings of an experiment: corpus, features, network, training, back-ends, evaluation; recipes, files.

Frozen dataclasses. What comes from a file or the command line is checked against the types of the defaults, as recipes
of extractors are, and against `CHOICES` and ranges; errors name section and setting.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from pathlib import Path

from .._typing import Card, Json
from ..exceptions import FileFormatError, ParameterError
from ..extractors.recipe import Features, filled
from ..io.files import read_bytes
from ..persistence import toml_pairs

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
MAY_BE_0 = ("random_state", "momentum", "weight_decay", "context", "reduce", "resamples")
BELOW_1 = ("momentum", "weight_decay")
FEATURES = Features(kind="mfcc", bins=23, normalisation="mean+variance")
"""The paper's 39 cepstral features: 13, with deltas and delta-deltas."""


@dataclass(frozen=True)
class Training:
    """Stochastic gradient descent with momentum, at a rate that falls linearly to 0.

    Attributes
    ----------
    epochs : passes over all frames
    batch : frames of a step
    learning_rate, momentum : of each step
    random_state : the same one, the same data, same device kind and number of threads give the same network
    """

    epochs: int = 20
    batch: int = 256
    learning_rate: float = 0.01
    momentum: float = 0.9
    random_state: int = 0


@dataclass(frozen=True)
class Pretraining:
    """Restricted Boltzmann machines, layer by layer, by contrastive divergence.

    The frames are standardised, so the Gaussian units of the first machine have variance 1; its rate is small
    because they are not bounded. What makes deeper layers constant is a layer below that hardly varies: the next
    machine then learns its mean only. Hence a start whose units vary as the data do, and gradients about the means.

    Attributes
    ----------
    gaussian_epochs, gaussian_rate : of the first machine
    epochs, rate : of the others
    batch : frames of a step
    momentum, weight_decay : of every machine
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
    hidden, layers : 6 layers of 2048 units
    context : frames before and after that are stacked; edges are repeated
    start_scale : times Glorot's uniform start; 4 is what sigmoids ask for
    pretrained : whether the layers' machines are trained first
    pretraining : how
    """

    hidden: int = 2048
    layers: int = 6
    context: int = 5
    start_scale: float = 4.0
    pretrained: bool = False
    pretraining: Pretraining = Pretraining()


@dataclass(frozen=True)
class BackendSettings:
    """Sizes of the paper's systems, and the readings of the paper that are open.

    Attributes
    ----------
    reduce : principal components that the paper's systems see, 0 for the vectors as they are; rows that are
        called raw see those in any case
    paper_rank, paper_iterations : latents of each view in the paper's systems (cells have
        as many as all views together), and iterations of EM
    e_step, m_step : of the published formulas: the E step of the paper's appendix or of its body; loadings one after
        the other (turns) or from one solve (together)
    start : of the paper's systems, "random" or "moments"; "published" is random for the published formulas alone
    noise : of the paper's systems: diagonal or full
    priors : p1 (phrase shared), p2 (speaker shared), p3 (nothing shared), in proportion
    random_state : of random starts
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
    systems : by name or group; none named: the usual ones
    resamples : of speakers, for the comparison with the baseline; 0 leaves it and all intervals out
    seeds : how often systems with a random start are fitted, with random_state, random_state + 1, ...
    """

    systems: tuple[str, ...] = ()
    resamples: int = 200
    seeds: int = 1


RECIPES: dict[str, Json] = {
    # As in arXiv 1704.06061: 11 frames stacked, six layers of 2048 sigmoid units, each first trained as a restricted
    # Boltzmann machine, then all on speakers and phrases at once.
    "paper": {"network": {"pretrained": True}},
    "paper-without-pretraining": {},
    # For two cores and a minute. Few epochs: what more of them teach is the training speakers.
    "small": {
        "network": {"hidden": 256, "layers": 2},
        "training": {"epochs": 3, "learning_rate": 0.05},
    },
}


@dataclass(frozen=True)
class Configuration:
    """All settings of an experiment.

    corpus : ``name`` of the data set and the options of its function; ``root`` is not among
        them, for a configuration is good on any machine
    features, network, training : of the network
    backend, evaluation : of the systems and the table
    grid : settings of the back-end -> their values; the paper's systems have a row for every combination
    """

    corpus: Json = field(default_factory=dict)
    features: Features = FEATURES
    network: PaperNetwork = PaperNetwork()
    training: Training = Training()
    backend: BackendSettings = BackendSettings()
    grid: Json = field(default_factory=dict)
    evaluation: EvaluationSettings = EvaluationSettings()

    def variants(self) -> Iterator[tuple[str, BackendSettings]]:
        """What every combination of the grid is called, and the back-end's settings with it."""
        for values in product(*self.grid.values()):
            chosen = dict(zip(self.grid, values, strict=True))
            name = "".join(f"; {key} {value}" for key, value in chosen.items())
            yield name, filled(self.backend, chosen, "[grid]")

    def to_dict(self) -> Json:
        """Plain values, for TOML and JSON."""
        return json.loads(json.dumps(asdict(self)))  # type: ignore[no-any-return]

    @classmethod
    def from_dict(cls, values: Card) -> Configuration:
        """The configuration of `to_dict`; what is left out has its default."""
        return _checked(filled(cls(), values, "a configuration"))

    def with_changes(self, changes: Card) -> Configuration:
        """The same with some values changed, by ``section.name``.

        Examples
        --------
        >>> from mvplda.speech.settings import Configuration
        >>> Configuration().with_changes({"training.epochs": 3}).training.epochs
        3
        """
        # these two are taken whole: they have no defaults to fill them up
        tables: Json = {"corpus": dict(self.corpus), "grid": dict(self.grid)}
        for path, value in changes.items():
            *sections, name = path.split(".")
            if not sections:
                raise ParameterError(
                    f"a change is of section.name, such as training.epochs; got {path!r}"
                )
            table = tables
            for section in sections:
                table = table.setdefault(section, {})
            table[name] = value
        return _checked(filled(self, tables, "a configuration"))


def _checked(configuration: Configuration) -> Configuration:
    """The configuration, or an error that names the first value out of its range."""
    for name, values in configuration.grid.items():
        if not isinstance(values, list):
            raise ParameterError(f"[grid] {name} is a list of values; got {values!r}")
    network = configuration.network
    sections = [network, network.pretraining, configuration.training, configuration.evaluation]
    for section in [*sections, *(backend for _, backend in configuration.variants())]:
        for name, value in vars(section).items():
            wanted = ""
            if value not in CHOICES.get(name, (value,)):
                wanted = "one of " + ", ".join(CHOICES[name])
            elif isinstance(value, (int, float)) and value <= 0 and name not in MAY_BE_0:
                wanted = "above 0" if value is not False else ""
            elif name in BELOW_1 and not 0 <= value < 1:
                wanted = "from 0 to below 1"
            elif name == "priors" and len(value) not in (0, 3):
                wanted = "p1, p2 and p3"
            if wanted:
                raise ParameterError(f"{name} is {wanted}; got {value!r}")
    return configuration


def read_configuration(path: str | Path) -> Configuration:
    """A configuration from a TOML file."""
    try:
        return Configuration.from_dict(tomllib.loads(read_bytes(path).decode()))
    except ParameterError as error:
        raise ParameterError(f"{path}: {error}") from error
    except ValueError as error:
        raise FileFormatError(f"{path} is no TOML: {error}") from error


def read_recipe(name: str, corpus: Card) -> Configuration:
    """The configuration of a recipe by name, for a corpus."""
    if name not in RECIPES:
        raise ParameterError(f"there is no recipe {name!r}; there are {', '.join(RECIPES)}")
    return replace(Configuration.from_dict(RECIPES[name]), corpus=dict(corpus))


def to_toml(values: Card) -> str:
    """Sections of plain values as TOML."""
    parts = ["\n".join([f"[{name}]", *toml_pairs(table), ""]) for name, table in values.items()]
    return "\n".join(parts)
