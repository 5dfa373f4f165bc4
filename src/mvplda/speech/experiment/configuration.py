"""One file says what a run was: corpus, features, network, training, back-ends, evaluation."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from ...costs import detection_costs
from ...exceptions import FileFormatError, ParameterError
from ...extractors.recipe import Features, recipe_from
from ...io.files import read_bytes
from ...persistence import toml_pairs
from ..networks.settings import PaperNetwork, Training
from ..settings import Settings, number

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
class BackendSettings(Settings):
    """Sizes of the back-ends, and the readings of the paper that are open.

    reduce : principal components that the paper's systems see, None for the vectors as they are; rows that are
        called raw see those in any case
    paper_rank, paper_iterations : latents of each view in the paper's systems (cells have
        as many as all views together), and iterations of EM
    start : of the paper's systems, "random" or "moments"; "published" is random for the published formulas alone
    noise : of the paper's systems, "diagonal", "full" or "isotropic"
    priors : p1 (phrase shared), p2 (speaker shared), p3 (nothing shared), in proportion
    speaker_rank, cell_rank : largest ranks of the first view and of the cells elsewhere;
        other views have all that their classes allow, up to ``speaker_rank``
    components : principal components of the systems with full noise
    shrinkage : share of the total variance that is added to the noise of whitened systems
    random_state : of random starts
    """

    reduce: int | None = number(200, 1)
    paper_rank: int = number(20, 1)
    paper_iterations: int = number(10, 1)
    start: str = "published"
    noise: str = "diagonal"
    priors: tuple[float, ...] = ()
    speaker_rank: int = number(40, 1)
    cell_rank: int = number(120, 1)
    components: int = number(150, 1)
    shrinkage: float = number(0.05, 0, 1)
    random_state: int = number(0, 0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.start not in ("published", "random", "moments"):
            raise ParameterError(f"start is published, random or moments; got {self.start!r}")
        if len(self.priors) not in (0, 3):
            raise ParameterError(f"priors are p1, p2 and p3; got {len(self.priors)}")


@dataclass(frozen=True)
class EvaluationSettings(Settings):
    """Which systems are evaluated, and how.

    systems : by name or group; none named: the usual ones
    costs : operating points of minDCF
    resamples : of speakers, for the comparison with the baseline; 0 leaves it and all intervals out
    """

    systems: tuple[str, ...] = ()
    costs: tuple[str, ...] = ("default",)
    resamples: int = number(200, 0)

    def __post_init__(self) -> None:
        super().__post_init__()
        detection_costs(self.costs)  # here, not after hours of training


@dataclass(frozen=True)
class Configuration:
    """All settings of an experiment.

    corpus : ``name`` of the data set and the options of its function; ``root`` is not among
        them, for a configuration is good on any machine
    features, network, training : of the network
    backend, evaluation : of the systems and the table
    """

    corpus: Mapping[str, Any] = field(default_factory=dict)
    features: Features = FEATURES
    network: PaperNetwork = field(default_factory=PaperNetwork)
    training: Training = field(default_factory=Training)
    backend: BackendSettings = field(default_factory=BackendSettings)
    evaluation: EvaluationSettings = field(default_factory=EvaluationSettings)

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        values = dict(vars(self))
        plain = {name: values[name].to_dict() for name in list(values)[2:]}
        corpus = json.loads(json.dumps(dict(self.corpus), default=str))
        return {"corpus": corpus, "features": asdict(self.features), **plain}

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
                if name == "corpus":
                    sections[name] = dict(table)
                elif name == "features":
                    features = {**asdict(FEATURES), **table}
                    sections[name] = recipe_from({"features": features}).features
                else:
                    sections[name] = type(usual[name]).from_dict(table)
            except ParameterError as error:
                raise ParameterError(f"[{name}] {error}") from error
        return cls(**sections)

    def with_changes(self, changes: Mapping[str, Any]) -> Configuration:
        """The same with some values changed, by ``section.name``.

        Examples
        --------
        >>> from mvplda.speech.experiment.configuration import Configuration
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
