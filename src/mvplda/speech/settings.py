"""Settings of an experiment: corpus, features, network, training, back-ends, evaluation; recipes, files.

Frozen dataclasses that check themselves when they are made. A field's declared type says what it can be; `number` gives
it a range, `choice` its values. Errors name the field: ``epochs is at least 1; got 0``.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import product
from pathlib import Path
from typing import Any, Self

from ..exceptions import FileFormatError, ParameterError
from ..extractors.recipe import Features, recipe_from
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

NONE = "none"
"""What stands in a file for None: TOML has no word for it."""
WORDS = {"str": "a text", "int": "a whole number", "float": "a number"}


def number(default: float | None, least: float, below: float = float("inf")) -> Any:
    """A field with a default that lies from `least` to below `below`."""
    return field(default=default, metadata={"range": (least, below)})


def choice(*values: str) -> Any:
    """A field that has one of these values, the first unless given."""
    return field(default=values[0], metadata={"choices": values})


class Settings:
    """Base of the frozen dataclasses of settings."""

    def __post_init__(self) -> None:
        for item in fields(self):  # type: ignore[arg-type]
            value = _checked(item.name, getattr(self, item.name), str(item.type))
            least, below = item.metadata.get("range", (None, None))
            if least is not None and value is not None and not least <= value < below:
                bound = f"at least {least:g}" if value < least else f"below {below:g}"
                raise ParameterError(f"{item.name} is {bound}; got {value!r}")
            choices = item.metadata.get("choices", (value,))
            if value not in choices:
                raise ParameterError(f"{item.name} is one of {', '.join(choices)}; got {value!r}")
            object.__setattr__(self, item.name, value)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for TOML and JSON; what is None is "none"."""
        return _plain(asdict(self))  # type: ignore[call-overload,no-any-return]

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The settings of `to_dict`; what is left out has its default."""
        names = [item.name for item in fields(cls)]  # type: ignore[arg-type]
        unknown = sorted(set(values) - set(names))
        if unknown:
            raise ParameterError(
                f"{cls.__name__} has no setting {unknown[0]!r}; it has {', '.join(names)}"
            )
        return cls(**values)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, tuple):
        return list(value)
    return NONE if value is None else value


def _checked(name: str, value: Any, kind: str) -> Any:
    """The value as its declaration has it (25 and 25.0 are one setting), or an error."""
    kind, _, optional = kind.partition(" | ")
    if optional and value in (None, NONE):
        return None
    numeric = isinstance(value, (int, float)) and not isinstance(value, bool)
    if kind == "int" and numeric and value % 1 == 0:
        return int(value)
    if kind == "float" and numeric:
        return float(value)
    if kind.startswith("tuple") and isinstance(value, (list, tuple)):
        return tuple(value)
    if (kind == "str" and isinstance(value, str)) or isinstance(value, Settings):
        return value
    raise ParameterError(f"{name} is {WORDS.get(kind, 'a table')}; got {value!r}")


@dataclass(frozen=True)
class Training(Settings):
    """Stochastic gradient descent with momentum, at a rate that falls linearly to 0.

    Attributes
    ----------
    epochs : passes over all frames
    batch : frames of a step
    learning_rate, momentum : of each step
    random_state : the same one, the same data, same device kind and number of threads give the same network
    device : "auto" takes the GPU, and bfloat16 products there, where there is one
    checkpoint : file to continue from, written after every epoch
    """

    epochs: int = number(20, 1)
    batch: int = number(256, 1)
    learning_rate: float = number(0.01, 1e-12)
    momentum: float = number(0.9, 0, 1)
    random_state: int = number(0, 0)
    device: str = "auto"
    checkpoint: str | None = None


@dataclass(frozen=True)
class Pretraining(Settings):
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

    gaussian_epochs: int = number(10, 1)
    gaussian_rate: float = number(0.001, 1e-12)
    epochs: int = number(5, 1)
    rate: float = number(0.02, 1e-12)
    batch: int = number(256, 1)
    momentum: float = number(0.9, 0, 1)
    weight_decay: float = number(2e-4, 0, 1)


@dataclass(frozen=True)
class PaperNetwork(Settings):
    """Sigmoid layers on stacked frames; the vector is the last layer's mean over an utterance.

    Attributes
    ----------
    hidden, layers : 6 layers of 2048 units
    context : frames before and after that are stacked; edges are repeated
    start_scale : times Glorot's uniform start; 4 is what sigmoids ask for
    pretraining : None, or how the layers' machines are trained first
    """

    hidden: int = number(2048, 1)
    layers: int = number(6, 1)
    context: int = number(5, 0)
    start_scale: float = number(4.0, 1e-12)
    pretraining: Pretraining | None = None

    def __post_init__(self) -> None:
        if isinstance(self.pretraining, Mapping):
            object.__setattr__(self, "pretraining", Pretraining.from_dict(self.pretraining))
        super().__post_init__()


@dataclass(frozen=True)
class BackendSettings(Settings):
    """Sizes of the paper's systems, and the readings of the paper that are open.

    Attributes
    ----------
    reduce : principal components that the paper's systems see, None for the vectors as they are; rows that are
        called raw see those in any case
    paper_rank, paper_iterations : latents of each view in the paper's systems (cells have
        as many as all views together), and iterations of EM
    e_step, m_step : of the published formulas: the E step of the paper's appendix or of its body; loadings one after
        the other (turns) or from one solve (together)
    start : of the paper's systems, "random" or "moments"; "published" is random for the published formulas alone
    noise : of the paper's systems
    priors : p1 (phrase shared), p2 (speaker shared), p3 (nothing shared), in proportion
    random_state : of random starts
    """

    reduce: int | None = number(200, 1)
    paper_rank: int = number(20, 1)
    paper_iterations: int = number(10, 1)
    e_step: str = choice("appendix", "body")
    m_step: str = choice("turns", "together")
    start: str = choice("published", "random", "moments")
    noise: str = choice("diagonal", "full", "isotropic")
    priors: tuple[float, ...] = ()
    random_state: int = number(0, 0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.priors) not in (0, 3):
            raise ParameterError(f"priors are p1, p2 and p3; got {len(self.priors)}")


@dataclass(frozen=True)
class EvaluationSettings(Settings):
    """Which systems are evaluated, and how.

    Attributes
    ----------
    systems : by name or group; none named: the usual ones
    resamples : of speakers, for the comparison with the baseline; 0 leaves it and all intervals out
    seeds : how often systems with a random start are fitted, with random_state, random_state + 1, ...
    """

    systems: tuple[str, ...] = ()
    resamples: int = number(200, 0)
    seeds: int = number(1, 1)


FEATURES = Features(kind="mfcc", bins=23, normalisation="mean+variance")
"""The paper's 39 cepstral features: 13, with deltas and delta-deltas."""

RECIPES: dict[str, dict[str, Any]] = {
    # As in arXiv 1704.06061: 11 frames stacked, six layers of 2048 sigmoid units, each first trained as a restricted
    # Boltzmann machine, then all on speakers and phrases at once.
    "paper": {"network": {"pretraining": {}}},
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

    corpus: Mapping[str, Any] = field(default_factory=dict)
    features: Features = FEATURES
    network: PaperNetwork = field(default_factory=PaperNetwork)
    training: Training = field(default_factory=Training)
    backend: BackendSettings = field(default_factory=BackendSettings)
    grid: Mapping[str, Any] = field(default_factory=dict)
    evaluation: EvaluationSettings = field(default_factory=EvaluationSettings)

    def __post_init__(self) -> None:
        for name, values in self.grid.items():
            if not isinstance(values, (list, tuple)):
                raise ParameterError(f"[grid] {name} is a list of values; got {values!r}")
        list(self.variants())  # wrong ones are refused here

    def variants(self) -> Iterator[tuple[str, BackendSettings]]:
        """What every combination of the grid is called, and the back-end's settings with it."""
        for values in product(*self.grid.values()):
            chosen = dict(zip(self.grid, values, strict=True))
            name = "".join(f"; {key} {value}" for key, value in chosen.items())
            yield name, BackendSettings.from_dict({**self.backend.to_dict(), **chosen})

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        sections = dict(vars(self))
        for name, section in sections.items():
            if isinstance(section, Settings):
                sections[name] = section.to_dict()
        sections["features"] = asdict(self.features)
        return json.loads(json.dumps(sections, default=str))  # type: ignore[no-any-return]

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Configuration:
        """The configuration of `to_dict`; what is left out has its default."""
        usual = vars(cls())
        sections: dict[str, Any] = {}
        for name, table in values.items():
            if name not in usual:
                raise ParameterError(
                    f"a configuration has no section {name!r}; it has {', '.join(usual)}"
                )
            if not isinstance(table, Mapping):
                raise ParameterError(f"{name} is a section of settings; got {table!r}")
            try:
                if isinstance(usual[name], Settings):
                    sections[name] = type(usual[name]).from_dict(table)
                elif name == "features":
                    features = {**asdict(FEATURES), **table}
                    sections[name] = recipe_from({"features": features}).features
                else:
                    sections[name] = dict(table)
            except ParameterError as error:
                raise ParameterError(f"[{name}] {error}") from error
        return cls(**sections)

    def with_changes(self, changes: Mapping[str, Any]) -> Configuration:
        """The same with some values changed, by ``section.name``.

        Examples
        --------
        >>> from mvplda.speech.settings import Configuration
        >>> Configuration().with_changes({"training.epochs": 3}).training.epochs
        3
        """
        plain = self.to_dict()
        for path, value in changes.items():
            *sections, name = path.split(".")
            if not sections:
                raise ParameterError(
                    f"a change is of section.name, such as training.epochs; got {path!r}"
                )
            table = plain
            for section in sections:
                if not isinstance(table.get(section), dict):
                    table[section] = {}
                table = table[section]
            table[name] = value
        return type(self).from_dict(plain)


def read_configuration(path: str | Path) -> Configuration:
    """A configuration from a TOML file."""
    try:
        return Configuration.from_dict(tomllib.loads(read_bytes(path).decode()))
    except ParameterError as error:
        raise ParameterError(f"{path}: {error}") from error
    except ValueError as error:
        raise FileFormatError(f"{path} is no TOML: {error}") from error


def read_recipe(name: str, corpus: Mapping[str, Any]) -> Configuration:
    """The configuration of a recipe by name, for a corpus."""
    if name not in RECIPES:
        raise ParameterError(f"there is no recipe {name!r}; there are {', '.join(RECIPES)}")
    return replace(Configuration.from_dict(RECIPES[name]), corpus=dict(corpus))


def to_toml(values: Mapping[str, Any]) -> str:
    """Sections of plain values as TOML."""
    parts = ["\n".join([f"[{name}]", *toml_pairs(table), ""]) for name, table in values.items()]
    return "\n".join(parts)
