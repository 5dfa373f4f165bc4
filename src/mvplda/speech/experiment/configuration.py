"""One file says what a run was: corpus, features, network, training, back-ends, evaluation."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from ..._validation import known_names
from ...exceptions import FileFormatError, ParameterError
from ...io.sources import read_bytes
from ...metrics import detection_costs
from ...persistence import write_atomically
from ..features.settings import FeatureSettings
from ..networks.settings import (
    KINDS,
    ModernNetwork,
    NetworkSettings,
    Training,
    default_training,
    kind_of,
    network_from_dict,
    network_to_dict,
    training_to_dict,
)
from .extraction import Variants
from .systems import BackendSettings, systems_named

SECTIONS = ("corpus", "features", "variants", "network", "training", "backend", "evaluation")
NONE = "none"
"""What stands in a file for None, where that is not the default: TOML has no word for it."""


@dataclass(frozen=True)
class EvaluationSettings:
    """Which systems are judged, and how.

    systems : by name; none named: all
    costs : operating points of minDCF
    resamples : of speakers, for the comparison with the baseline; 0 leaves it and all intervals out
    """

    systems: tuple[str, ...] = ()
    costs: tuple[str, ...] = ("default",)
    resamples: int = 200

    def __post_init__(self) -> None:
        systems_named(self.systems)  # here, not after hours of training
        detection_costs(self.costs)
        if self.resamples < 0 or self.resamples == 1:
            raise ParameterError(f"resamples are 0, for no intervals, or at least 2; got {self.resamples}")


@dataclass(frozen=True)
class Configuration:
    """All settings of an experiment.

    corpus : ``name`` of the data set and the options of its function; ``root`` is not among
        them, for a configuration is good on any machine
    features, variants, network, training : of the extractor
    backend, evaluation : of the systems and the table
    """

    corpus: Mapping[str, Any] = field(default_factory=lambda: {"name": "synthetic"})
    features: FeatureSettings = field(default_factory=lambda: FeatureSettings.fbank(64, normalisation="mean"))
    variants: Variants = field(default_factory=Variants)
    network: NetworkSettings = field(default_factory=ModernNetwork)
    training: Training = field(default_factory=lambda: default_training(ModernNetwork()))
    backend: BackendSettings = field(default_factory=BackendSettings)
    evaluation: EvaluationSettings = field(default_factory=EvaluationSettings)

    def to_dict(self) -> dict[str, Any]:
        """Plain values; what is None is left out."""
        plain: dict[str, Any] = _without_none(
            {
                "corpus": dict(self.corpus),
                "features": self.features.to_dict(),
                "variants": self.variants.to_dict(),
                "network": network_to_dict(self.network),
                "training": _training_to_dict(self.training, default_training(self.network)),
                "backend": asdict(self.backend),
                "evaluation": asdict(self.evaluation),
            }
        )
        return plain

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Configuration:
        """The configuration of `to_dict`; what is left out has its default, the training's that of its network."""
        unknown = sorted(set(values) - set(SECTIONS))
        if unknown:
            raise ParameterError(f"a configuration has no section {unknown[0]!r}; it has {', '.join(SECTIONS)}")
        flat = sorted(name for name, section in values.items() if not isinstance(section, Mapping))
        if flat:
            raise ParameterError(f"{flat[0]} is a section of settings; got {values[flat[0]]!r}")
        start = cls()
        corpus = {"name": "folder", **values["corpus"]} if "corpus" in values else dict(start.corpus)
        network = _network({"kind": "modern", **values.get("network", {})})
        training = training_with(default_training(network), values.get("training", {}))
        features = FeatureSettings.from_dict(values["features"]) if "features" in values else _features_for(network)
        return cls(
            corpus,
            features,
            Variants.from_dict(values.get("variants", {})),
            network,
            training,
            _record_over(BackendSettings(), values.get("backend", {})),
            _record_over(EvaluationSettings(), values.get("evaluation", {})),
        )

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
        start, kind = self, changes.get("network.kind", kind_of(self.network))
        if kind != kind_of(self.network):  # what suited the one does not suit the other
            network = _network({"kind": kind})
            start = replace(self, network=network, training=default_training(network), features=_features_for(network))
        plain = start.to_dict()
        for path, value in changes.items():
            *outer, name = path.split(".")
            if not outer:
                raise ParameterError(f"a change is of section.name, such as training.epochs; got {path!r}")
            place = plain
            for part in outer:
                place = place.setdefault(part, {})
                if not isinstance(place, dict):
                    raise ParameterError(f"{path}: {part} is a value, not a section")
            place[name] = value
        return type(self).from_dict(plain)


def _features_for(network: NetworkSettings) -> FeatureSettings:
    if isinstance(network, ModernNetwork):
        return FeatureSettings.fbank(64, normalisation="mean")
    return FeatureSettings()


def _network(values: Mapping[str, Any]) -> NetworkSettings:
    if values["kind"] in KINDS:
        _check_values(KINDS[values["kind"]](), {name: value for name, value in values.items() if name != "kind"})
    return network_from_dict(values)


def training_with(start: Training, values: Mapping[str, Any]) -> Training:
    """A training with some values changed, those of its augmentation one by one."""
    plain = {name: None if value == NONE else value for name, value in values.items()}
    inner = plain.pop("augmentation", None)
    if inner is not None:
        plain["augmentation"] = _record_over(start.augmentation, inner)
    training: Training = _record_over(start, plain)
    return training


def _training_to_dict(training: Training, usual: Training) -> dict[str, Any]:
    plain = training_to_dict(training)
    return {
        name: NONE if value is None and getattr(usual, name) is not None else value for name, value in plain.items()
    }


def _record_over(start: Any, values: Any) -> Any:
    if not isinstance(values, Mapping):
        raise ParameterError(f"{type(start).__name__} is a section of settings; got {values!r}")
    _check_values(start, values)
    return replace(start, **{name: tuple(v) if isinstance(v, list) else v for name, v in values.items()})


WORDS: tuple[tuple[Any, str], ...] = (
    (bool, "true or false"),
    (int, "a whole number"),
    ((int, float), "a number"),
    (str, "a text"),
    ((list, tuple), "a list"),
    (Mapping, "a table"),
)

UNSET: dict[str, Any] = {"int | None": 0, "float | None": 0.0, "str | None": ""}
"""By the type of a setting that is None: a value that it could have."""


def _check_values(start: Any, values: Mapping[str, Any]) -> None:
    """Names that there are, and values of the type that the start has."""
    known_names(type(start), values)
    types = {f.name: f.type for f in fields(start)}
    for name, value in values.items():
        usual = UNSET.get(str(types[name])) if getattr(start, name) is None else getattr(start, name)
        kinds, word = next(((k, w) for k, w in WORDS if isinstance(usual, k)), (object, ""))
        if value is not None and (not isinstance(value, kinds) or isinstance(value, bool) > (kinds in (bool, object))):
            raise ParameterError(f"{name} is {word}; got {value!r}")


def _without_none(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {k: _without_none(v) for k, v in value.items() if v is not None}
    if isinstance(value, (list, tuple)):
        return [_without_none(v) for v in value]
    return value


def read_configuration(
    path: str | Path | None, over: Mapping[str, Mapping[str, Any]] | None = None, *, corpus: str | None = None
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
    for section in {**usual, **winning}:
        own = values.get(section, {})
        if isinstance(own, Mapping):  # else from_dict says what is wrong
            values[section] = {**usual.get(section, {}), **own, **winning.get(section, {})}
    try:
        return Configuration.from_dict(values)
    except (ParameterError, TypeError) as error:
        raise ParameterError(str(error) if path is None else f"{path}: {error}") from error


def _read(path: Path) -> dict[str, Any]:
    text = read_bytes(path)
    try:
        values = json.loads(text) if path.suffix == ".json" else tomllib.loads(text.decode())
    except ValueError as error:
        raise FileFormatError(f"{path} is no {'JSON' if path.suffix == '.json' else 'TOML'}: {error}") from error
    if not isinstance(values, dict):
        raise FileFormatError(f"{path} holds no sections: expected {', '.join(SECTIONS)}")
    return values


def recipes() -> list[str]:
    """Names of the recipes that come with the package."""
    folder = resources.files(__package__) / "recipes"
    return sorted(item.name.removesuffix(".toml") for item in folder.iterdir() if item.name.endswith(".toml"))


def read_recipe(name: str, corpus: Mapping[str, Any]) -> Configuration:
    """The configuration of a recipe by name, for a corpus."""
    if name not in recipes():
        raise ParameterError(f"there is no recipe {name!r}; there are {', '.join(recipes())}")
    text = (resources.files(__package__) / "recipes" / f"{name}.toml").read_text(encoding="utf-8")
    return Configuration.from_dict({**tomllib.loads(text), "corpus": dict(corpus)})


def write_configuration(path: str | Path, configuration: Configuration) -> None:
    """Write a TOML file that `read_configuration` reads."""
    write_atomically(path, to_toml(configuration.to_dict()).encode())


def to_toml(values: Mapping[str, Any], prefix: str = "") -> str:
    """Tables of scalars, lists, and tables in lists, as TOML."""
    lines = [f"{_key(name)} = {_value(value)}" for name, value in values.items() if not isinstance(value, Mapping)]
    for name, value in values.items():
        if isinstance(value, Mapping):
            path = f"{prefix}{_key(name)}"
            lines += ["", f"[{path}]", to_toml(value, f"{path}.").rstrip("\n")]
    return "\n".join(lines).strip("\n") + "\n"


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _value(name)


def _value(value: Any) -> str:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(name)} = {_value(item)}" for name, item in value.items()) + " }"
    # JSON's escapes are TOML's, but for the one sign that JSON leaves as it is
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
