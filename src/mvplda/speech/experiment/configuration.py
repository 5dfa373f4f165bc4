"""One file says what a run was: corpus, features, network, training, back-ends, evaluation."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

from ...exceptions import FileFormatError, ParameterError
from ...io.files import read_bytes
from ...metrics import detection_costs
from ...persistence import toml_pairs, write_atomically
from ..features.frames import FeatureSettings
from ..networks.settings import ModernNetwork, NetworkSettings, Training
from ..settings import NONE, Rule, Settings, section
from .extraction import Variants
from .systems import BackendSettings, systems_named

SECTIONS = ("corpus", "features", "variants", "network", "training", "backend", "evaluation")


@dataclass(frozen=True)
class EvaluationSettings(Settings):
    """Which systems are judged, and how.

    systems : by name; none named: all
    costs : operating points of minDCF
    resamples : of speakers, for the comparison with the baseline; 0 leaves it and all intervals out
    """

    systems: tuple[str, ...] = ()
    costs: tuple[str, ...] = ("default",)
    resamples: Annotated[
        int, Rule(lambda n: n == 0 or n >= 2, "are 0, for no intervals, or at least 2")
    ] = 200

    def check(self) -> None:
        systems_named(self.systems)  # here, not after hours of training
        detection_costs(self.costs)


@dataclass(frozen=True)
class Configuration:
    """All settings of an experiment.

    corpus : ``name`` of the data set and the options of its function; ``root`` is not among
        them, for a configuration is good on any machine
    features, variants, network, training : of the extractor
    backend, evaluation : of the systems and the table
    """

    corpus: Mapping[str, Any] = field(default_factory=lambda: {"name": "synthetic"})
    features: FeatureSettings = field(default_factory=lambda: ModernNetwork().usual_features())
    variants: Variants = field(default_factory=Variants)
    network: NetworkSettings = field(default_factory=ModernNetwork)
    training: Training = field(default_factory=lambda: ModernNetwork().usual_training())
    backend: BackendSettings = field(default_factory=BackendSettings)
    evaluation: EvaluationSettings = field(default_factory=EvaluationSettings)

    @classmethod
    def around(cls, network: NetworkSettings) -> Configuration:
        """A network with the features and the training that suit it."""
        return cls(
            network=network, features=network.usual_features(), training=network.usual_training()
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values; what is None is left out, or "none" where that is not usual for the network."""
        usual = self.around(type(self.network)())
        plain = {name: getattr(self, name).to_dict() for name in SECTIONS[1:]}
        # numbers of NumPy, which only the options of a corpus can be, as plain ones
        corpus = json.loads(json.dumps(dict(self.corpus), default=lambda value: value.item()))
        return {
            "corpus": corpus,
            **{
                name: _written(values, getattr(usual, name).to_dict())
                for name, values in plain.items()
            },
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Configuration:
        """The configuration of `to_dict`; what is left out has its default, the training's that of its network."""
        unknown = sorted(set(values) - set(SECTIONS))
        if unknown:
            raise ParameterError(
                f"a configuration has no section {unknown[0]!r}; it has {', '.join(SECTIONS)}"
            )
        flat = sorted(
            name for name, values_of in values.items() if not isinstance(values_of, Mapping)
        )
        if flat:
            raise ParameterError(f"{flat[0]} is a section of settings; got {values[flat[0]]!r}")
        with section("network"):
            network = NetworkSettings.from_dict({"kind": "modern", **values.get("network", {})})
        start = cls.around(network)
        found: dict[str, Any] = {}
        for name in (
            name for name in SECTIONS if name in values and name not in ("corpus", "network")
        ):
            with section(name):
                usual = getattr(start, name)
                found[name] = type(usual).from_dict(
                    values[name], None if name == "features" else usual
                )
        if "corpus" in values:
            found["corpus"] = {"name": "folder", **values["corpus"]}
        return replace(start, **found)

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
        start, kind = self, changes.get("network.kind", self.network.kind)
        if kind != self.network.kind:  # what suited the one does not suit the other
            with section("network"):
                start = self.around(NetworkSettings.from_dict({"kind": kind}))
            start = replace(
                self, network=start.network, training=start.training, features=start.features
            )
        plain = start.to_dict()
        for path, value in changes.items():
            *outer, name = path.split(".")
            if not outer:
                raise ParameterError(
                    f"a change is of section.name, such as training.epochs; got {path!r}"
                )
            place = plain
            for part in outer:
                place = place.setdefault(part, {})
                if not isinstance(place, dict):
                    raise ParameterError(f"{path}: {part} is a value, not a section")
            place[name] = value
        return type(self).from_dict(plain)


def _written(values: Mapping[str, Any], usual: Mapping[str, Any]) -> dict[str, Any]:
    """As a file holds it: None is left out where it is usual."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            own = usual.get(name)
            found[name] = _written(value, own if isinstance(own, Mapping) else {})
        elif value is not None:
            found[name] = value
        elif usual.get(name) is not None:
            found[name] = NONE
    return found


def read_configuration(
    path: str | Path | None,
    over: Mapping[str, Mapping[str, Any]] | None = None,
    *,
    corpus: str | None = None,
) -> Configuration:
    """A configuration from a TOML file, or from a JSON file by its suffix.

    Parameters
    ----------
    path : the file; None for the defaults alone
    over : {section: values} that win over those of the file
    corpus : name of the data set, where the file names none
    """
    values = {} if path is None else _read(Path(path))
    usual = {} if corpus is None else {"corpus": {"name": corpus}}
    winning = over or {}
    for name in {**usual, **winning}:
        own = values.get(name, {})
        if isinstance(own, Mapping):  # else from_dict says what is wrong
            values[name] = {**usual.get(name, {}), **own, **winning.get(name, {})}
    try:
        return Configuration.from_dict(values)
    except ParameterError as error:
        raise ParameterError(str(error) if path is None else f"{path}: {error}") from error


def _read(path: Path) -> dict[str, Any]:
    text = read_bytes(path)
    try:
        values = json.loads(text) if path.suffix == ".json" else tomllib.loads(text.decode())
    except ValueError as error:
        raise FileFormatError(
            f"{path} is no {'JSON' if path.suffix == '.json' else 'TOML'}: {error}"
        ) from error
    if not isinstance(values, dict):
        raise FileFormatError(f"{path} holds no sections: expected {', '.join(SECTIONS)}")
    return values


def recipes() -> list[str]:
    """Names of the recipes that come with the package."""
    folder = resources.files(__package__) / "recipes"
    return sorted(
        item.name.removesuffix(".toml") for item in folder.iterdir() if item.name.endswith(".toml")
    )


def read_recipe(name: str, corpus: Mapping[str, Any]) -> Configuration:
    """The configuration of a recipe by name, for a corpus."""
    if name not in recipes():
        raise ParameterError(f"there is no recipe {name!r}; there are {', '.join(recipes())}")
    text = (resources.files(__package__) / "recipes" / f"{name}.toml").read_text(encoding="utf-8")
    return Configuration.from_dict({**tomllib.loads(text), "corpus": dict(corpus)})


def write_configuration(path: str | Path, configuration: Configuration) -> None:
    """Write a TOML file that `read_configuration` reads."""
    write_atomically(path, to_toml(configuration.to_dict()).encode())


def to_toml(values: Mapping[str, Any]) -> str:
    """Sections of plain values as TOML."""
    return "\n".join(
        "\n".join([f"[{name}]", *toml_pairs(section), ""]) for name, section in values.items()
    )
