"""One file says what a run was: corpus, features, network, training, back-ends, evaluation."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Any

from ...costs import detection_costs
from ...exceptions import FileFormatError, ParameterError
from ...extractors.recipe import Features, recipe_from
from ...io.files import read_bytes
from ...persistence import toml_pairs
from ..networks.settings import ModernNetwork, NetworkSettings, Training
from ..settings import Settings, in_section, number
from .systems import BackendSettings, systems_named

SECTIONS = ("corpus", "features", "network", "training", "backend", "evaluation")


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
        systems_named(self.systems)  # here, not after hours of training
        detection_costs(self.costs)


@dataclass(frozen=True)
class Configuration:
    """All settings of an experiment.

    corpus : ``name`` of the data set and the options of its function; ``root`` is not among
        them, for a configuration is good on any machine
    features, network, training : of the network
    backend, evaluation : of the systems and the table
    """

    corpus: Mapping[str, Any] = field(default_factory=lambda: {"name": "synthetic"})
    features: Features = field(default_factory=lambda: ModernNetwork().usual_features())
    network: NetworkSettings = field(default_factory=ModernNetwork)
    training: Training = field(default_factory=lambda: ModernNetwork().usual_training())
    backend: BackendSettings = field(default_factory=BackendSettings)
    evaluation: EvaluationSettings = field(default_factory=EvaluationSettings)

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        plain = {name: getattr(self, name).to_dict() for name in SECTIONS[2:]}
        corpus = json.loads(json.dumps(dict(self.corpus), default=str))
        return {"corpus": corpus, "features": asdict(self.features), **plain}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Configuration:
        """The configuration of `to_dict`; what is left out has its default, that of its network."""
        unknown = sorted(set(values) - set(SECTIONS))
        if unknown:
            raise ParameterError(
                f"a configuration has no section {unknown[0]!r}; it has {', '.join(SECTIONS)}"
            )
        for name, section in values.items():
            if not isinstance(section, Mapping):
                raise ParameterError(f"{name} is a section of settings; got {section!r}")
        given = {name: dict(values.get(name, {})) for name in SECTIONS}
        section = "network"
        try:
            network = NetworkSettings.from_dict(given["network"])
            section = "features"
            usual = asdict(network.usual_features())
            features = recipe_from({"features": {**usual, **given["features"]}}).features
            section = "training"
            training = Training.from_dict(
                {**network.usual_training().to_dict(), **given["training"]}
            )
            section = "backend"
            backend = BackendSettings.from_dict(given["backend"])
            section = "evaluation"
            evaluation = EvaluationSettings.from_dict(given["evaluation"])
        except ParameterError as error:
            raise in_section(section, error) from error
        corpus = {"name": "folder", **given["corpus"]}
        return cls(corpus, features, network, training, backend, evaluation)

    def with_changes(self, changes: Mapping[str, Any]) -> Configuration:
        """The same with some values changed, by ``section.name``.

        Another kind of network comes with the features and the training that suit it, but for
        what is changed too.

        Examples
        --------
        >>> from mvplda.speech.experiment.configuration import Configuration
        >>> Configuration().with_changes({"training.epochs": 3}).training.epochs
        3
        """
        plain = self.to_dict()
        kind = changes.get("network.kind", self.network.kind)
        if kind != self.network.kind:  # what suited the one does not suit the other
            plain |= {"network": {"kind": kind}, "features": {}, "training": {}}
        for path, value in changes.items():
            *sections, name = path.split(".")
            if not sections:
                raise ParameterError(
                    f"a change is of section.name, such as training.epochs; got {path!r}"
                )
            place = plain
            for section in sections:
                inner = place.get(section)
                place[section] = dict(inner) if isinstance(inner, Mapping) else {}
                place = place[section]
            place[name] = value
        return type(self).from_dict(plain)


def read_configuration(path: str | Path) -> Configuration:
    """A configuration from a TOML file, or from a JSON file by its suffix."""
    path = Path(path)
    text = read_bytes(path)
    try:
        values = json.loads(text) if path.suffix == ".json" else tomllib.loads(text.decode())
    except ValueError as error:
        raise FileFormatError(f"{path} is no TOML and no .json: {error}") from error
    if not isinstance(values, dict):
        raise FileFormatError(f"{path} holds no sections: expected {', '.join(SECTIONS)}")
    try:
        return Configuration.from_dict(values)
    except ParameterError as error:
        raise ParameterError(f"{path}: {error}") from error


def recipes() -> list[str]:
    """Names of the recipes that come with the package."""
    folder = resources.files(__package__) / "recipes"
    names = [item.name for item in folder.iterdir()]
    return sorted(name.removesuffix(".toml") for name in names if name.endswith(".toml"))


def read_recipe(name: str, corpus: Mapping[str, Any]) -> Configuration:
    """The configuration of a recipe by name, for a corpus."""
    if name not in recipes():
        raise ParameterError(f"there is no recipe {name!r}; there are {', '.join(recipes())}")
    text = (resources.files(__package__) / "recipes" / f"{name}.toml").read_text(encoding="utf-8")
    return replace(Configuration.from_dict(tomllib.loads(text)), corpus=dict(corpus))


def to_toml(values: Mapping[str, Any]) -> str:
    """Sections of plain values as TOML."""
    parts = ["\n".join([f"[{name}]", *toml_pairs(table), ""]) for name, table in values.items()]
    return "\n".join(parts)
