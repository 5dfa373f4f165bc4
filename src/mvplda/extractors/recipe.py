"""Recipes: what has to happen to samples before a network sees them, and to what it gives, as data.

A recipe is a TOML file. Those in ``recipes/`` are of families of networks; one beside a network's file
(``model.toml`` beside ``model.onnx``) is that network's own, and may begin with ``family = "wespeaker"`` and say only
what differs.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

from ..exceptions import FileFormatError, ParameterError
from ..persistence import toml_value

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Kind = Literal["kaldi", "mfcc", "nemo", "speechbrain", "mel", "graph", "samples"]
Level = Literal["none", "peak", "rms"]
Normalisation = Literal["none", "mean", "mean+variance"]
Layout = Literal["time-bins", "bins-time", "time-bins-one", "samples"]
Pool = Literal["none", "mean", "thirds"]

_Record = TypeVar("_Record", bound="DataclassInstance")

VERSION = 2
"""Raised when the same recipe gives other vectors than before: it is part of every fingerprint."""


@dataclass(frozen=True)
class Samples:
    """What happens to samples.

    scale : full scale is this number where features are made; Kaldi's programs use 32768
    level : "peak" makes the loudest sample `level_value` of full scale; "rms" raises a quieter sound to
        `level_value` dBFS; "none" leaves the level
    pad_s : a shorter sound gets zeros on both sides up to this many seconds
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

    kind : "kaldi" (filter banks as Kaldi's), "mfcc" (Kaldi's cepstra, the first being the log energy), "nemo",
        "speechbrain", "mel" (energies, not their logarithm), "graph" (another ONNX file beside the network's) or
        "samples" (none: the network takes samples)
    bins, window, low_hz, high_hz, preemphasis : of filter banks; a high_hz of 0 is half the rate
    cepstra, deltas : of "mfcc": coefficients of a frame, and how often their regression over time is appended
    normalisation : over the time of an utterance
    pad_frames : the number of frames becomes a multiple of this, by zeros
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
    pad_frames: int = 1
    file: str = ""
    multiply: float = 1.0
    add: float = 0.0


@dataclass(frozen=True)
class Network:
    """The names of a graph's inputs and output, and how it wants its frames."""

    input: str = ""
    lengths: str = ""
    output: str = ""
    layout: Layout = "time-bins"


@dataclass(frozen=True)
class Windows:
    """Windows of frames, each of which gives a vector; a length of 0 takes the whole utterance.

    frames, step : of a window
    pool : "mean", or "thirds": windows are spread evenly, those of each third averaged, and the thirds put side by side
    coverage : a last window that the sound fills less than this is left out
    """

    frames: int = 0
    step: int = 0
    pool: Pool = "none"
    coverage: float = 0.0


@dataclass(frozen=True)
class Output:
    """What happens to the vector: negative numbers become 0, and its length becomes 1.

    narrow : what a telephone's band adds to vectors of length 1, on average; it is taken off where a recording
        ends below `narrow_hz`
    """

    rectify: bool = False
    unit: bool = False
    narrow: tuple[float, ...] = ()
    narrow_hz: float = 4100.0


@dataclass(frozen=True)
class Weights:
    """Where the weights come from: hashes of what they were made of and of the files beside the recipe."""

    source: str = ""
    files: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Match:
    """By what a file of this family is recognised: its framework in metadata, or names of inputs and outputs."""

    framework: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    rank: int = 0
    width: int = 0


@dataclass(frozen=True)
class Golden:
    """What the code's own signal gives: some numbers of its frames, and the vector."""

    frames: tuple[float, ...] = ()
    vector: tuple[float, ...] = ()


@dataclass(frozen=True)
class Calibration:
    """LLR = slope * cosine + intercept, where nothing better is known.

    slope, intercept : at one second of speech
    slope_by_log, intercept_by_log : what is added to them times the logarithm of the seconds: scores of short
        recordings spread wider and lie lower
    shortest_s, longest_s : it was measured between them; what is shorter or longer is taken as one of them
    most : the largest LLR either way: no surer than the speakers that it was measured on allow
    basis : what it was measured on
    """

    slope: float = 0.0
    intercept: float = 0.0
    slope_by_log: float = 0.0
    intercept_by_log: float = 0.0
    shortest_s: float = 1.0
    longest_s: float = 1.0
    most: float = 0.0
    basis: str = ""

    def llr(self, cosines: NDArray[np.float64], speech_s: float) -> NDArray[np.float64]:
        """Natural-log likelihood ratios, `speech_s` being the speech on the shorter side."""
        log = float(np.log(np.clip(speech_s, self.shortest_s, self.longest_s)))
        slope, intercept = (
            self.slope + self.slope_by_log * log,
            self.intercept + self.intercept_by_log * log,
        )
        return np.clip(slope * cosines + intercept, -self.most, self.most)


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
    output: Output = Output()
    weights: Weights = Weights()
    match: Match = Match()
    golden: Golden = Golden()
    calibration: Calibration = Calibration()

    def __post_init__(self) -> None:
        for table, name, kinds in (
            (self.features, "kind", Kind),
            (self.features, "normalisation", Normalisation),
            (self.samples, "level", Level),
            (self.network, "layout", Layout),
            (self.windows, "pool", Pool),
        ):
            found = getattr(table, name)
            if found not in get_args(kinds):
                raise ParameterError(
                    f"{name} is one of {', '.join(get_args(kinds))}; the recipe says {found!r}"
                )
        if not 1000 <= self.rate <= 768_000:
            raise ParameterError(
                f"rate lies between 1000 and 768000 samples a second; the recipe says {self.rate}"
            )
        if not 0 <= self.samples.shortest_s < self.samples.segment_s:
            raise ParameterError(
                f"shortest_s lies between 0 and segment_s; the recipe says {self.samples.shortest_s:g} and "
                f"{self.samples.segment_s:g}"
            )
        if (self.windows.frames > 0) != (self.windows.step > 0) or (self.windows.frames > 0) != (
            self.windows.pool != "none"
        ):
            raise ParameterError("windows have frames, a step and a pool, or none of them")

    def canonical(self) -> str:
        """What changes vectors, as one text: equal for recipes that do the same."""
        changing = ("samples", "features", "network", "windows", "output")
        tables = {name: asdict(getattr(self, name)) for name in changing}
        tables["network"] = {
            "layout": self.network.layout,
            "output": self.network.output,
        }  # inputs are found by name
        tables["features"].pop("file")
        if not self.samples.cut:
            tables["samples"].pop("margin_s")
        if not self.output.narrow:
            tables["output"].pop("narrow")
            tables["output"].pop("narrow_hz")
        if self.features.kind != "mfcc":
            for name in ("cepstra", "deltas"):
                tables["features"].pop(name)
        return json.dumps({"version": VERSION, "rate": self.rate, **tables}, sort_keys=True)

    def fingerprint(self, weights: str) -> str:
        """SHA-256 of the weights' hash and the canonical recipe."""
        return hashlib.sha256(f"{weights}\n{self.canonical()}".encode()).hexdigest()


TABLES: dict[str, type[Any]] = {
    "samples": Samples, "features": Features, "network": Network, "windows": Windows, "output": Output,
    "weights": Weights, "match": Match, "golden": Golden, "calibration": Calibration,
}  # fmt: skip


def read_recipe(path: str | os.PathLike[str]) -> Recipe:
    """Read a recipe; what it does not say is its family's, where it names one."""
    try:
        values = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        return recipe_from(values, Path(path).stem)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise FileFormatError(f"{path} is no TOML: {error}") from error
    except ParameterError as error:
        raise FileFormatError(f"{path}: {error}") from error


def recipe_from(values: Mapping[str, Any], name: str = "") -> Recipe:
    """A recipe of plain values; a key that there is not is an error that names the nearest one."""
    values = dict(values)
    family = values.pop("family", None)
    if family is None:
        return _filled(Recipe(name or "unnamed"), values, "recipe")
    known = families()
    if family not in known:
        raise ParameterError(f"there is no family {family!r}; there are {', '.join(known)}")
    base = replace(known[family], match=Match(), golden=Golden())
    recipe = _filled(base, values, "recipe")
    same = (recipe.rate, recipe.samples, recipe.features) == (
        base.rate,
        base.samples,
        base.features,
    )
    if same and not recipe.golden.frames:
        recipe = replace(recipe, golden=replace(recipe.golden, frames=known[family].golden.frames))
    return recipe


def _filled(record: _Record, values: Mapping[str, Any], where: str) -> _Record:
    known = {f.name for f in fields(record)}
    changes: dict[str, Any] = {}
    for key, value in values.items():
        if key not in known:
            near = difflib.get_close_matches(key, known, 1)
            raise ParameterError(
                f"{where} has no {key!r}"
                + (f"; did you mean {near[0]!r}?" if near else f"; it has {sorted(known)}")
            )
        present = getattr(record, key)
        if key in TABLES and isinstance(record, Recipe):
            if not isinstance(value, Mapping):
                raise ParameterError(f"{key} is a table; got {value!r}")
            changes[key] = _filled(present, value, f"[{key}]")
        else:
            changes[key] = _typed(value, present, f"{where} {key}")
    return replace(record, **changes)


def _typed(value: Any, like: Any, where: str) -> Any:
    """A value of the type that the default has."""
    if isinstance(like, tuple):
        if isinstance(value, list):
            return tuple(value)
    elif isinstance(like, bool) or isinstance(value, bool):
        if isinstance(like, bool) and isinstance(value, bool):
            return value
    elif isinstance(like, float) and isinstance(value, (int, float)):
        return float(value)
    elif isinstance(like, Mapping) and isinstance(value, Mapping):
        return {str(k): str(v) for k, v in value.items()}
    elif isinstance(value, type(like)):
        return value
    raise ParameterError(f"{where} is of type {type(like).__name__}; got {value!r}")


@cache
def families() -> dict[str, Recipe]:
    """The recipes that come with mvplda, by name."""
    folder = resources.files(__package__) / "recipes"
    found = {}
    for file in sorted(folder.iterdir(), key=lambda file: file.name):
        if file.name.endswith(".toml"):
            name = file.name.removesuffix(".toml")
            values = tomllib.loads(file.read_text(encoding="utf-8"))
            found[name] = _filled(Recipe(name), values, file.name)
    return found


def to_toml(recipe: Recipe) -> str:
    """The text of a recipe: what differs from the defaults."""
    lines = [f"name = {toml_value(recipe.name)}"]
    plain = Recipe(recipe.name)
    for name in ("rate", "views", "description", "licence", "source"):
        if getattr(recipe, name) != getattr(plain, name):
            lines.append(f"{name} = {toml_value(getattr(recipe, name))}")
    for name, kind in TABLES.items():
        table, default = getattr(recipe, name), kind()
        said = [
            f"{f.name} = {toml_value(getattr(table, f.name))}"
            for f in fields(table)
            if getattr(table, f.name) != getattr(default, f.name)
        ]
        if said:
            lines += ["", f"[{name}]", *said]
    return "\n".join(lines) + "\n"


FILL_IN = """\
# What this network wants, as far as the file tells. Save this as {name}.toml beside {name}.onnx.
# Where its family is known, say family = "wespeaker" (or another of {families})
# and only what differs; else fill in every line that ends in a question mark.
name = "{name}"
rate = 16000                 # ? samples a second
views = ["speaker"]          # what its vectors tell apart

[samples]
scale = 1.0                  # ? 32768.0 where training read 16-bit numbers

[features]
kind = "kaldi"               # ? kaldi, nemo, speechbrain, mel, samples
bins = {bins}
window = "hamming"           # ? hamming, povey, hanning
normalisation = "mean"       # ? none, mean, mean+variance

[network]
input = "{input}"
output = "{output}"
layout = "{layout}"
"""
