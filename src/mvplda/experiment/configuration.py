"""One file says what a run was: corpus, features, network, training, back-ends, evaluation."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from ..audio.settings import FeatureSettings
from ..exceptions import FileFormatError, ParameterError
from ..files import write_atomically
from ..jvector.settings import (
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
from .systems import BackendSettings

SECTIONS = ("corpus", "features", "variants", "network", "training", "backend", "evaluation")


@dataclass(frozen=True)
class EvaluationSettings:
    """Which systems are judged, and how.

    systems : by name; none named: all
    costs : operating points of minDCF
    resamples : of speakers, for intervals; 0 leaves them out
    """

    systems: tuple[str, ...] = ()
    costs: tuple[str, ...] = ("default",)
    resamples: int = 200


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
                "training": training_to_dict(self.training),
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
        start = cls()
        corpus = {"name": "folder", **values["corpus"]} if "corpus" in values else dict(start.corpus)
        network = network_from_dict({"kind": "modern", **values.get("network", {})})
        training = training_with(default_training(network), values.get("training", {}))
        features = FeatureSettings.from_dict(values["features"]) if "features" in values else _features_for(network)
        return cls(
            corpus,
            features,
            Variants.from_dict(values.get("variants", {})),
            network,
            training,
            _record(BackendSettings, values.get("backend", {})),
            _record(EvaluationSettings, values.get("evaluation", {})),
        )

    def with_changes(self, changes: Mapping[str, Any]) -> Configuration:
        """The same with some values changed, by ``section.name``.

        Examples
        --------
        >>> from mvplda.experiment.configuration import Configuration
        >>> Configuration().with_changes({"training.epochs": 3}).training.epochs
        3
        """
        plain = self.to_dict()
        for path, value in changes.items():
            *outer, name = path.split(".")
            place = plain
            for part in outer:
                place = place.setdefault(part, {})
                if not isinstance(place, dict):
                    raise ParameterError(f"{path}: {part} is a value, not a section")
            if not outer:
                raise ParameterError(f"a change is of section.name, such as training.epochs; got {path!r}")
            place[name] = value
        if changes.get("network.kind", kind_of(self.network)) != kind_of(self.network):
            keep = {p.partition(".")[2]: v for p, v in changes.items() if p.startswith("network.")}
            plain["network"] = keep
            plain["training"] = {p.partition(".")[2]: v for p, v in changes.items() if p.startswith("training.")}
        return type(self).from_dict(plain)


def _features_for(network: NetworkSettings) -> FeatureSettings:
    if isinstance(network, ModernNetwork):
        return FeatureSettings.fbank(64, normalisation="mean")
    return FeatureSettings()


def training_with(start: Training, values: Mapping[str, Any]) -> Training:
    """A training with some values changed, those of its augmentation one by one."""
    plain = dict(values)
    inner = plain.pop("augmentation", None)
    if inner is not None:
        plain["augmentation"] = _record_over(start.augmentation, inner)
    training: Training = _record_over(start, plain)
    return training


def _record_over(start: Any, values: Any) -> Any:
    if not isinstance(values, Mapping):
        return values
    _check_names(type(start), values)
    return replace(start, **{name: _plain(value) for name, value in values.items()})


def _record(kind: type[Any], values: Mapping[str, Any]) -> Any:
    _check_names(kind, values)
    return kind(**{name: _plain(value) for name, value in values.items()})


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _check_names(kind: type[Any], values: Mapping[str, Any]) -> None:
    known = [f.name for f in fields(kind)]
    unknown = [name for name in values if name not in known]
    if unknown:
        raise ParameterError(f"{kind.__name__} has no setting {unknown[0]!r}; it has {', '.join(known)}")


def _without_none(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {k: _without_none(v) for k, v in value.items() if v is not None}
    if isinstance(value, (list, tuple)):
        return [_without_none(v) for v in value]
    return value


def read_configuration(path: str | Path) -> Configuration:
    """A configuration from a TOML file."""
    try:
        with open(path, "rb") as file:
            values = tomllib.load(file)
    except tomllib.TOMLDecodeError as error:
        raise FileFormatError(f"{path} is no TOML: {error}") from error
    try:
        return Configuration.from_dict(values)
    except (ParameterError, TypeError) as error:
        raise ParameterError(f"{path}: {error}") from error


def write_configuration(path: str | Path, configuration: Configuration) -> None:
    """Write a TOML file that `read_configuration` reads."""
    write_atomically(path, to_toml(configuration.to_dict()).encode())


def to_toml(values: Mapping[str, Any], prefix: str = "") -> str:
    """Tables of scalars, lists, and tables in lists, as TOML."""
    lines = [f"{name} = {_value(value)}" for name, value in values.items() if not isinstance(value, Mapping)]
    for name, value in values.items():
        if isinstance(value, Mapping):
            path = f"{prefix}{name}"
            lines += ["", f"[{path}]", to_toml(value, f"{path}.").rstrip("\n")]
    return "\n".join(lines).strip("\n") + "\n"


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{name} = {_value(item)}" for name, item in value.items()) + " }"
    text = str(value).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{text}"'
