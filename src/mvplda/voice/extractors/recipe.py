"""Recipes: what has to happen to samples before a network sees them, and to what it gives, as data.

A recipe is a TOML file. Those in ``recipes/`` are of families of networks; one beside a network's file
(``model.toml`` beside ``model.onnx``) is that network's own, and may begin with ``family = "wespeaker"`` and say only
what differs.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from functools import cache
from importlib import resources
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar, get_args

from ..._typing import PathLike
from ...exceptions import FileFormatError, ParameterError
from ...persistence import toml_value

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Kind = Literal["kaldi", "mfcc", "graph", "samples"]
Level = Literal["none", "peak"]
Normalisation = Literal["none", "mean", "mean+variance"]
Layout = Literal["time-bins", "bins-time", "time-bins-one", "samples"]
Pool = Literal["none", "thirds", "points"]

CHOICES = {
    "kind": Kind,
    "normalisation": Normalisation,
    "level": Level,
    "layout": Layout,
    "pool": Pool,
}

_Record = TypeVar("_Record", bound="DataclassInstance")

VERSION = 2
"""Raised when the same recipe gives other vectors than before: it is part of every fingerprint."""


@dataclass(frozen=True)
class Samples:
    """What happens to samples.

    scale : full scale is this number where features are made; Kaldi's programs use 32768
    level : "peak" makes the loudest sample `level_value` of full scale; "none" leaves the level
    pad_s : of zeros that are put before and after the sound: without them a network that looks through windows sees
        the first and the last word only beside others
    shortest_s : a shorter sound is an error
    segment_s : a longer sound is cut into equal parts of at most this; their vectors are averaged by net speech
    cut : what lies before the first and after the last speech is left out first
    margin_s : of it, this much is kept on each side
    """

    scale: float = 1.0
    level: Level = "none"
    level_value: float = 0.5
    pad_s: float = 0.0
    shortest_s: float = 0.1
    segment_s: float = 30.0
    cut: bool = False
    margin_s: float = 0.05


@dataclass(frozen=True)
class Features:
    """How frames are made.

    kind : "kaldi" (filter banks as Kaldi's), "mfcc" (Kaldi's cepstra, the first being the log energy),
        "graph" (another ONNX file beside the network's) or "samples" (none: the network takes samples)
    bins, window, low_hz, high_hz, preemphasis : of filter banks; a high_hz of 0 is half the rate
    cepstra, deltas : of "mfcc": coefficients of a frame, and how often their regression over time is appended
    normalisation : over the time of an utterance
    file, multiply, add : of a graph, and what is done to its frames
    """

    kind: Kind = "kaldi"
    bins: int = 80
    window: str = "povey"
    low_hz: float = 20.0
    high_hz: float = 0.0
    preemphasis: float = 0.97
    cepstra: int = 13
    deltas: int = 2
    normalisation: Normalisation = "mean"
    file: str = ""
    multiply: float = 1.0
    add: float = 0.0


@dataclass(frozen=True)
class Network:
    """The names of a graph's output and of the inputs that take lengths and a mask, and how it wants its frames.

    mask : an input (batch, time) that gets ones
    """

    lengths: str = ""
    mask: str = ""
    output: str = ""
    layout: Layout = "time-bins"


@dataclass(frozen=True)
class Windows:
    """Windows of frames, each of which gives a vector; a length of 0 takes the whole utterance.

    frames, step : of a window; of "points" the step is that of the network's own frames, in samples
    pool : "thirds": windows are spread evenly, those of each third averaged, and the thirds put side by side;
        "points": the network gives frames, which become `points` over equal stretches of the sound
    points : how many
    basis : of "points": a file (.npy) beside the network that frames of length 1 are multiplied by
    """

    frames: int = 0
    step: int = 0
    pool: Pool = "none"
    points: int = 0
    basis: str = ""


@dataclass(frozen=True)
class Weights:
    """Where the weights come from: hashes of what they were made of and of the files beside the recipe."""

    source: str = ""
    files: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Golden:
    """What the code's own signal gives."""

    vector: tuple[float, ...] = ()


@dataclass(frozen=True)
class Recipe:
    """Everything between samples and a vector, and what a reader should know about it."""

    name: str
    rate: int = 16000
    views: tuple[str, ...] = ("speaker",)
    description: str = ""
    licence: str = ""
    source: str = ""
    samples: Samples = Samples()
    features: Features = Features()
    network: Network = Network()
    windows: Windows = Windows()
    weights: Weights = Weights()
    golden: Golden = Golden()

    def canonical(self) -> str:
        """What changes vectors, as one text: equal for recipes that do the same."""
        changing = ("samples", "features", "network", "windows")
        tables = {name: asdict(getattr(self, name)) for name in changing}
        # names of inputs and of files change nothing, nor does what is not used
        unused = [("network", "lengths"), ("network", "mask")]
        unused += [("features", "file"), ("windows", "basis")]
        if self.windows.pool != "points":
            unused += [("windows", "points")]
        if not self.samples.cut:
            unused += [("samples", "margin_s")]
        if self.features.kind != "mfcc":
            unused += [("features", "cepstra"), ("features", "deltas")]
        for name, key in unused:
            del tables[name][key]
        if self.windows.pool == "points":
            tables["windows"]["length"] = 1
        return json.dumps({"version": VERSION, "rate": self.rate, **tables}, sort_keys=True)

    def fingerprint(self, weights: str) -> str:
        """SHA-256 of the weights' hash and the canonical recipe."""
        return hashlib.sha256(f"{weights}\n{self.canonical()}".encode()).hexdigest()


def read_extractor_recipe(path: PathLike) -> Recipe:
    """Read a recipe; what it does not say is its family's, where it names one."""
    try:
        values = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        return recipe_from(values, Path(path).stem)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise FileFormatError(f"{path} is no TOML: {error}") from error
    except ParameterError as error:
        raise FileFormatError(f"{path}: {error}") from error


def recipe_from(values: Mapping[str, object], name: str = "unnamed") -> Recipe:
    """A recipe of plain values; a key that there is not is an error that names the nearest one."""
    values = dict(values)
    family = values.pop("family", None)
    base = Recipe(name)
    if family is not None:
        if family not in families():
            raise ParameterError(
                f"there is no family {family!r}; there are {', '.join(families())}"
            )
        base = replace(families()[str(family)], golden=Golden())
    recipe = with_values(base, values, "recipe")
    if not 1000 <= recipe.rate <= 768_000:
        raise ParameterError(
            f"rate lies between 1000 and 768000 samples a second; the recipe says {recipe.rate}"
        )
    windows = recipe.windows
    if windows.pool == "thirds" and min(windows.frames, windows.step) < 1:
        raise ParameterError("windows that are pooled have frames and a step")
    if windows.pool == "points":
        complete = windows.basis and min(windows.points, windows.step) >= 1
        if recipe.features.kind != "samples" or not complete:
            raise ParameterError(
                'pool = "points" is for networks that take samples (kind = "samples"), and wants points, a step '
                f"(samples from frame to frame) and a basis (a file); the recipe has kind = {recipe.features.kind!r}, "
                f"points = {windows.points}, step = {windows.step} and basis = {windows.basis!r}"
            )
    return recipe


def with_values(record: _Record, values: Mapping[str, object], where: str) -> _Record:
    """A record with other values, each of the type that the default has."""
    known = [one.name for one in fields(record)]
    changes: dict[str, object] = {}
    for key, value in values.items():
        if key not in known:
            raise ParameterError(f"{where} has no {key!r}; it has {', '.join(known)}")
        default = getattr(record, key)
        if is_dataclass(default) and isinstance(value, dict):
            changes[key] = with_values(default, value, f"[{key}]")  # type: ignore[type-var]
            continue
        if isinstance(default, tuple) and isinstance(value, list):
            value = tuple(value)
        elif isinstance(default, float) and type(value) is int:
            value = float(value)
        if type(value) is not type(default):
            raise ParameterError(
                f"{where} {key} is of type {type(default).__name__}; got {value!r}"
            )
        if key in CHOICES and value not in get_args(CHOICES[key]):
            raise ParameterError(
                f"{key} is one of {', '.join(get_args(CHOICES[key]))}; the recipe says {value!r}"
            )
        changes[key] = value
    return replace(record, **changes)


@cache
def families() -> dict[str, Recipe]:
    """The recipes that come with mvplda, and with packages that an entry point names, by name."""
    recipes = {}
    places = [resources.files(__package__) / "recipes"]
    places += [resources.files(entry.value) for entry in entry_points(group="mvplda.recipes")]
    for file in sorted((file for place in places for file in place.iterdir()), key=str):
        name, _, suffix = file.name.rpartition(".")
        if suffix == "toml":
            recipes[name] = with_values(Recipe(name), tomllib.loads(file.read_text("utf-8")), name)
    return recipes


def recipe_to_toml(recipe: Recipe) -> str:
    """The text of a recipe: what differs from the defaults."""
    usual = asdict(Recipe(""))
    lines = []
    tables = []
    for name, value in asdict(recipe).items():
        if isinstance(value, dict):
            changed = {key: one for key, one in value.items() if one != usual[name][key]}
            pairs = [f"{key} = {toml_value(one)}" for key, one in changed.items()]
            tables += ["", f"[{name}]", *pairs] if pairs else []
        elif value != usual[name]:
            lines.append(f"{name} = {toml_value(value)}")
    return "\n".join(lines + tables) + "\n"
