"""Networks in ONNX files, understood by a recipe, by their metadata, or by the names of their inputs and outputs."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..exceptions import AudioError, FileFormatError, NumericalError, ParameterError
from ..persistence import write_atomically
from .frontends import SHIFT_S, make_frames, normalised, open_session
from .recipe import FILL_IN, Golden, Match, Normalisation, Recipe, families, read_recipe, to_toml
from .sound import Sound, golden_signal
from .speech import bandwidth_hz, cut_to_speech

Vector = NDArray[np.float32]

AT_ONCE = 32
"""Windows that the network sees at once."""
AGREE = 0.9995
"""Least cosine of a vector with its golden one: other processors and libraries round otherwise, recipes differ more."""
FRAMES_AGREE = 2e-3
NORMALISED: dict[str, Normalisation] = {
    "global-mean": "mean",
    "per_feature": "mean+variance",
    "none": "none",
}
"""sherpa-onnx's words for normalisation over time."""


class Port(NamedTuple):
    """An input or output of a graph."""

    name: str
    shape: tuple[Any, ...]

    def __str__(self) -> str:
        return f"{self.name} ({', '.join(str(n) for n in self.shape)})"


class OnnxNetwork:
    """A network in an ONNX file with its recipe.

    Parameters
    ----------
    path : the file; a recipe ``model.toml`` beside ``model.onnx`` holds what it wants
    recipe : in place of the one that is found
    threads : of onnxruntime
    """

    def __init__(
        self, path: str | os.PathLike[str], recipe: Recipe | None = None, threads: int = 1
    ) -> None:
        self.path = Path(path)
        self._session = open_session(self.path, threads)
        self._inputs = [Port(i.name, tuple(i.shape)) for i in self._session.get_inputs()]
        self._outputs = [Port(o.name, tuple(o.shape)) for o in self._session.get_outputs()]
        self.recipe: Recipe = self._with_ports(recipe or self._understood())
        self.rate = self.recipe.rate
        self.segment_s = self.recipe.samples.segment_s
        self._graph = None
        if self.recipe.features.kind == "graph":
            self._graph = open_session(self.path.parent / self.recipe.features.file, threads)
        self._hash = self._weights_hash()
        self._dimension = len(self.embed(golden_signal(self.rate)))

    @property
    def name(self) -> str:
        """The recipe's name and the start of the fingerprint."""
        return f"{self.recipe.name}-{self.fingerprint[:12]}"

    @property
    def dimension(self) -> int:
        return self._dimension

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the weights and of what is done before and after them."""
        return self.recipe.fingerprint(self._hash)

    @property
    def views(self) -> tuple[str, ...]:
        """What its vectors tell apart."""
        return self.recipe.views

    def embed(self, samples: Sound) -> Vector:
        """The vector of samples of one channel at the network's rate."""
        inputs = self._inputs_of(self._prepared(samples))
        blocks = [self._run(inputs[k : k + AT_ONCE]) for k in range(0, len(inputs), AT_ONCE)]
        vectors = np.concatenate(blocks)
        if self.recipe.windows.pool == "thirds":
            vectors = vectors.reshape(3, -1, vectors.shape[1]).mean(axis=1).reshape(1, -1)
        vector = vectors.mean(axis=0, dtype=np.float64)
        narrow = self.recipe.output.narrow
        if narrow and bandwidth_hz(samples, self.rate) < self.recipe.output.narrow_hz:
            vector = vector - np.linalg.norm(vector) * np.asarray(narrow)
        if self.recipe.output.rectify:
            vector = np.maximum(vector, 0)
        if self.recipe.output.unit:
            vector = vector / max(float(np.linalg.norm(vector)), 1e-12)
        return np.asarray(vector, dtype=np.float32)

    def _inputs_of(self, samples: Sound) -> NDArray[np.float32]:
        """(windows, time, bins) frames as the network gets them, or (1, n) samples."""
        windows = self.recipe.windows
        if self.recipe.features.kind == "samples":
            return samples[None] * np.float32(self.recipe.samples.scale)
        if windows.pool == "none":
            return self.frames(samples)[None]
        if windows.pool == "mean":
            shift = round(SHIFT_S * self.rate)
            starts = _partials(len(samples), shift, windows.frames, windows.step, windows.coverage)
            whole = max(len(samples), (starts[-1] + windows.frames) * shift)
            frames = self.frames(np.pad(samples, (0, whole - len(samples))))
        else:
            frames = self.frames(samples)
            starts = _thirds(len(frames), windows.frames, windows.step)
        return np.stack([frames[start : start + windows.frames] for start in starts])

    def frames(self, samples: Sound) -> NDArray[np.float32]:
        """(T, bins) frames of prepared samples, as the network gets them."""
        if self._graph is None:
            return make_frames(samples, self.recipe)
        settings = self.recipe.features
        scaled = samples * np.float32(self.recipe.samples.scale)
        (made,) = self._graph.run(None, {self._graph.get_inputs()[0].name: scaled[None]})
        frames = made.reshape(-1, settings.bins) * np.float32(settings.multiply) + np.float32(
            settings.add
        )
        return normalised(np.asarray(frames, dtype=np.float32), settings)

    def check(self) -> float | None:
        """Compare what the code's own signal gives with the recipe's golden numbers.

        Returns
        -------
        float or None
            The cosine with the golden vector; None where the recipe has none.

        Raises
        ------
        NumericalError
            Frames or vector are others: the file, the recipe or a library is not what the recipe was written for.
        """
        golden = self.recipe.golden
        found = self.golden()
        if golden.frames:
            fits = len(found.frames) == len(golden.frames)
            off = (
                float(np.abs(np.subtract(found.frames, golden.frames)).max())
                if fits
                else float("inf")
            )
            if not off <= FRAMES_AGREE * max(1.0, float(np.abs(golden.frames).max())):
                raise NumericalError(
                    f"{self.path}: the frames of the test signal differ from those of the recipe {self.recipe.name!r} "
                    f"by {off:.3g}. A library makes other features than it did; vectors would not fit older ones"
                )
        if not golden.vector:
            return None
        one, other = np.asarray(found.vector), np.asarray(golden.vector)
        cosine = -1.0 if one.shape != other.shape else _cosine(one, other)
        if not cosine >= AGREE:
            raise NumericalError(
                f"{self.path}: the vector of the test signal has a cosine of {cosine:.4f} with the one that the recipe "
                f"{self.recipe.name!r} gives. These are other weights, or they want another recipe: fetch them again, "
                "or correct the recipe"
            )
        return cosine

    def golden(self) -> Golden:
        """Some numbers of the test signal's frames, and its vector."""
        signal = golden_signal(self.rate)
        numbers: tuple[float, ...] = ()
        if self.recipe.features.kind != "samples":
            numbers = frame_numbers(self.frames(self._prepared(signal)))
        return Golden(numbers, tuple(round(float(v), 5) for v in self.embed(signal)))

    def write_recipe(self) -> Path:
        """Write the recipe with its golden numbers beside the file; one that is there is an error."""
        beside = self.path.with_suffix(".toml")
        if beside.is_file():
            raise ParameterError(f"{beside} is there already: delete it first")
        recipe = replace(self.recipe, match=Match(), golden=self.golden())
        write_atomically(beside, to_toml(recipe).encode())
        return beside

    def _prepared(self, samples: Sound) -> Sound:
        settings = self.recipe.samples
        if settings.cut:
            samples = cut_to_speech(samples, self.rate, settings.margin_s)
        if len(samples) < settings.shortest_s * self.rate:
            raise AudioError(
                f"the sound is too short: {len(samples) / self.rate:.2f} s, {self.recipe.name} needs at least "
                f"{settings.shortest_s:g} s"
            )
        return _padded(
            _levelled(samples, settings.level, settings.level_value),
            round(settings.pad_s * self.rate),
        )

    def _run(self, frames: NDArray[np.float32]) -> NDArray[np.float32]:
        """(batch, dimension) of frames (batch, time, bins), or of samples (batch, n)."""
        layout, fed = self.recipe.network.layout, frames
        missing = -frames.shape[1] % self.recipe.features.pad_frames
        if missing:
            fed = np.pad(fed, ((0, 0), (0, missing), (0, 0)))
        if layout == "bins-time":
            fed = fed.transpose(0, 2, 1)
        elif layout == "time-bins-one":
            fed = fed[..., None]
        feeds: dict[str, Any] = {
            self.recipe.network.input: np.ascontiguousarray(fed, dtype=np.float32)
        }
        if self.recipe.network.lengths:
            feeds[self.recipe.network.lengths] = np.full(
                len(frames), frames.shape[1], dtype=np.int64
            )
        try:
            (vectors,) = self._session.run([self.recipe.network.output], feeds)
        except Exception as error:  # onnxruntime has no base class of its own for them
            raise FileFormatError(
                f"{self.path} does not take what the recipe {self.recipe.name!r} makes, {fed.shape}: {error}\n"
                f"{self._found()}"
            ) from error
        return np.asarray(vectors, dtype=np.float32).reshape(len(frames), -1)

    def _understood(self) -> Recipe:
        """The recipe beside the file; else by its metadata; else by its inputs and outputs."""
        beside = self.path.with_suffix(".toml")
        if beside.is_file():
            found = read_recipe(beside)
            shipped = families().get(found.name)
            if (
                shipped is None
                or not found.weights.source
                or found.canonical() != shipped.canonical()
            ):
                return found
            return replace(
                found, calibration=shipped.calibration
            )  # what was fetched may be older than what is known
        metadata = dict(self._session.get_modelmeta().custom_metadata_map)
        framework = metadata.get("framework", "").lower()
        for recipe in families().values():
            if framework and framework in recipe.match.framework:
                return _from_metadata(recipe, metadata, self.path)
        fitting = [recipe for recipe in families().values() if self._fits(recipe)]
        if len(fitting) != 1:
            raise FileFormatError(
                self._not_understood(metadata, [recipe.name for recipe in fitting])
            )
        return fitting[0]

    def _fits(self, recipe: Recipe) -> bool:
        match = recipe.match
        names = [port.name for port in self._inputs]
        if not match.inputs or names[0] not in match.inputs or not set(names) <= set(match.inputs):
            return False
        if match.outputs and not {port.name for port in self._outputs} & set(match.outputs):
            return False
        shape = self._inputs[0].shape
        if match.rank:
            return len(shape) == match.rank
        width = (
            shape[1 if recipe.network.layout == "bins-time" else -1] if len(shape) == 3 else None
        )
        return len(shape) == 3 and (not isinstance(width, int) or width == recipe.features.bins)

    def _with_ports(self, recipe: Recipe) -> Recipe:
        """The recipe with the names that the file has, where it leaves them open."""
        network = recipe.network
        names, outputs = [port.name for port in self._inputs], [port.name for port in self._outputs]
        given = network.input or next((name for name in names if name != network.lengths), names[0])
        wanted = network.output or next(
            (name for name in outputs if name in recipe.match.outputs), outputs[0]
        )
        lengths = network.lengths if network.lengths in names else ""
        missing = [name for name, there in ((given, names), (wanted, outputs)) if name not in there]
        if missing:
            raise FileFormatError(
                f"{self.path}: the recipe {recipe.name!r} names {missing[0]!r}, which the file has not. {self._found()}"
            )
        return replace(
            recipe, network=replace(network, input=given, output=wanted, lengths=lengths)
        )

    def _weights_hash(self) -> str:
        """Of the file; or of what it was made of, where the recipe says so and vouches for the file itself.

        Two conversions of the same weights need not have the same bytes, and are the same extractor.
        """
        files = [self.path]
        if self.recipe.features.kind == "graph":
            files.append(self.path.parent / self.recipe.features.file)
        found = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
        weights = self.recipe.weights
        for name, digest in weights.files.items():
            if found.get(name, digest) != digest:
                raise FileFormatError(
                    f"{self.path.parent / name} is not the file that the recipe beside it was written for (SHA-256 "
                    f"{found[name][:12]}..., the recipe says {digest[:12]}...): fetch it again, or delete [weights] "
                    "from the recipe if it is another network"
                )
        if weights.source and set(found) <= set(weights.files):
            return weights.source
        return "+".join(found[file.name] for file in files)

    def _found(self) -> str:
        return (
            f"The file has the inputs {', '.join(map(str, self._inputs))} and the outputs "
            f"{', '.join(map(str, self._outputs))}."
        )

    def _not_understood(self, metadata: Mapping[str, str], fitting: list[str]) -> str:
        shape = self._inputs[0].shape
        told = ", ".join(f"{key}={value}" for key, value in metadata.items()) or "none"
        widths = [n for n in shape[1:] if isinstance(n, int) and n > 1]
        layout = (
            "samples"
            if len(shape) == 2
            else "time-bins"
            if not isinstance(shape[1], int)
            else "bins-time"
        )
        draft = FILL_IN.format(
            name=self.path.stem,
            families=", ".join(families()),
            bins=widths[-1] if widths else 80,
            input=self._inputs[0].name,
            output=self._outputs[-1].name,
            layout=layout,
        )
        which = (
            f"It could be any of {', '.join(fitting)}"
            if fitting
            else "No family that is known has these names"
        )
        return (
            f"{self.path}: it is not known what this network wants, and a guess would give wrong vectors without a "
            f"word. {self._found()} Its metadata: {told}. {which}. Write a recipe beside it:\n\n{draft}"
        )


def _from_metadata(recipe: Recipe, metadata: Mapping[str, str], path: Path) -> Recipe:
    """The family's recipe with what sherpa-onnx wrote into the file."""
    samples, features, rate = recipe.samples, recipe.features, recipe.rate
    try:
        if "sample_rate" in metadata:
            rate = int(metadata["sample_rate"])
        if "normalize_samples" in metadata:
            samples = replace(samples, scale=1.0 if int(metadata["normalize_samples"]) else 32768.0)
    except ValueError as error:
        raise FileFormatError(
            f"{path}: its metadata hold a number that is none: {error}"
        ) from error
    told = metadata.get("feature_normalize_type")
    if told:
        if told not in NORMALISED:
            raise FileFormatError(
                f"{path}: its metadata say feature_normalize_type={told!r}; known are global-mean, per_feature and none"
            )
        features = replace(features, normalisation=NORMALISED[told])
    # golden frames are of the family's own settings
    same = (samples, features, rate) == (recipe.samples, recipe.features, recipe.rate)
    return replace(
        recipe,
        samples=samples,
        features=features,
        rate=rate,
        golden=recipe.golden if same else Golden(),
    )


def _levelled(samples: Sound, level: str, value: float) -> Sound:
    if level == "none":
        return samples
    if level == "peak":
        factor = value / float(np.abs(samples).max())
    else:
        rms = float(np.sqrt(np.mean(np.square(samples, dtype=np.float64))))
        factor = max(1.0, 10 ** (value / 20) / rms)
    return samples * np.float32(factor)


def _padded(samples: Sound, least: int) -> Sound:
    missing = max(0, least - len(samples))
    return np.pad(samples, (missing // 2, missing - missing // 2)) if missing else samples


def _partials(n: int, shift: int, frames: int, step: int, coverage: float) -> list[int]:
    """Starts of windows that cover the sound; the last one is left out where too little of it is sound."""
    total = -(-(n + 1) // shift)
    starts = list(range(0, max(1, total - frames + step + 1), step))
    if len(starts) > 1 and (n - starts[-1] * shift) / (frames * shift) < coverage:
        starts.pop()
    return starts


def _thirds(n: int, frames: int, step: int) -> list[int]:
    """Starts of windows spread evenly from the first to the last frame, as many in each third of them."""
    if n < frames:
        raise AudioError(f"the sound is too short: {n} frames, a window has {frames}")
    count = -(-((n - frames) // step + 1) // 3) * 3
    return [int(start) for start in np.linspace(0, n - frames, count)]


def frame_numbers(frames: NDArray[np.float32]) -> tuple[float, ...]:
    """Some numbers by which frames are known again: how many, how large, and those of a few places."""
    rows, columns = (np.linspace(0, n - 1, 5).astype(int) for n in frames.shape)
    places = frames[rows, columns].astype(np.float64)
    size = float(np.sqrt(np.mean(np.square(frames, dtype=np.float64))))
    return (float(len(frames)), round(size, 5), *(round(float(v), 4) for v in places))


def _cosine(one: NDArray[Any], other: NDArray[Any]) -> float:
    return float(one @ other / max(float(np.linalg.norm(one) * np.linalg.norm(other)), 1e-300))
