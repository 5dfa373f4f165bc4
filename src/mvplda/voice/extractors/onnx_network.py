"""Networks in ONNX files, understood by a recipe; frames as each family was trained on."""

from __future__ import annotations

import hashlib
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..._optional import need
from ..._typing import PathLike
from ...exceptions import AudioError, FileFormatError, NumericalError
from ..audio.decode import Sound, golden_signal
from ..audio.speech_detection import SoundSegment
from .front_end import LEAST_FRAMES, Frames, _unit, interval_means, make_frames, prepare_samples
from .recipe import Recipe, families, read_extractor_recipe

if TYPE_CHECKING:
    from onnxruntime import InferenceSession


Vector = NDArray[np.float32]

AT_ONCE = 32
"""Windows that the network sees at once."""
AGREE = 0.9995
"""Least cosine of a vector with its golden one: other processors and libraries round otherwise, recipes differ more."""

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
kind = "kaldi"               # ? kaldi, samples
bins = 80                    # ? energies of a frame
window = "hamming"           # ? hamming, povey, hanning
normalisation = "mean"       # ? none, mean, mean+variance

[network]
output = "{output}"
layout = "time-bins"         # ? time-bins, bins-time, samples
"""


class OnnxNetwork:
    """A network in an ONNX file with its recipe.

    Parameters
    ----------
    path : the file; a recipe ``model.toml`` beside ``model.onnx`` holds what it wants
    recipe : in place of the one that is found
    threads : of onnxruntime

    Attributes
    ----------
    fingerprint : SHA-256 of the weights and of all that is done before and after them
    name : the recipe's name and the start of the fingerprint
    dimension : of its vectors
    views : what its vectors tell apart
    rate : samples per second that it takes
    segment_s : longer sound is cut into parts
    """

    def __init__(self, path: PathLike, recipe: Recipe | None = None, threads: int = 1) -> None:
        self.path = Path(path)
        self._session = open_session(self.path, threads)
        self._inputs = {port.name: port.shape for port in self._session.get_inputs()}
        self._outputs = {port.name: port.shape for port in self._session.get_outputs()}
        self.recipe = self._with_ports(recipe or self._understood())
        # one vector for each frame that a window may start at: see benchmarks/words_graph.py
        self._has_all_starts = "starts" in self._outputs[self.recipe.network.output]
        self.rate = self.recipe.rate
        self.views = self.recipe.views
        self.segment_s = self.recipe.samples.segment_s
        self._graph = None
        if self.recipe.features.kind == "graph":
            self._graph = open_session(self.path.parent / self.recipe.features.file, threads)
        self._basis = self._read_basis() if self.recipe.windows.pool == "points" else None
        self.fingerprint = self.recipe.fingerprint(self._weights_hash())
        self.name = f"{self.recipe.name}-{self.fingerprint[:12]}"
        self.dimension = len(self.embed(golden_signal(self.rate)))

    def embed(self, sound: Sound | SoundSegment) -> Vector:
        """The vector of samples of one channel at the network's rate."""
        part = sound if isinstance(sound, SoundSegment) else SoundSegment(sound, self.rate)
        samples = prepare_samples(part, self.recipe)
        if self._basis is not None:
            vectors = self._points(samples, self._basis)
        elif self.recipe.features.kind == "samples":
            vectors = self._run(samples[None] * np.float32(self.recipe.samples.scale))
        elif self.recipe.windows.pool == "none":
            vectors = self._run(self.frames(samples)[None])
        else:
            vectors = self._thirds(self.frames(samples))
        vector = vectors.mean(axis=0, dtype=np.float64)
        return np.asarray(vector, dtype=np.float32)

    def _thirds(self, frames: Frames) -> Frames:
        """(1, 3 x dimension) means of the vectors of windows, in each third of them."""
        windows = self.recipe.windows
        last = len(frames) - windows.frames
        if last < 0:
            raise AudioError(
                f"the sound is too short: {len(frames)} frames, a window has {windows.frames}"
            )
        # spread evenly from the first to the last frame, as many in each third of them
        in_a_third = -(-(last // windows.step + 1) // 3)
        starts = np.linspace(0, last, 3 * in_a_third).astype(int)
        if self._has_all_starts:
            # what windows share is computed once
            vectors = self._run(frames[None]).reshape(last + 1, -1)[starts]
        else:
            cut = np.stack([frames[start : start + windows.frames] for start in starts])
            blocks = [self._run(cut[k : k + AT_ONCE]) for k in range(0, len(cut), AT_ONCE)]
            vectors = np.concatenate(blocks)
        thirds: Frames = vectors.reshape(3, in_a_third, -1).mean(axis=1)
        return thirds.reshape(1, -1)

    def _points(self, samples: Sound, basis: Frames) -> Frames:
        """(1, points x columns + 1) directions of frames over equal stretches of the sound, and its seconds."""
        windows = self.recipe.windows
        given = self._run(samples[None] * np.float32(self.recipe.samples.scale))
        pad = round(self.recipe.samples.pad_s * self.rate)
        # frames of the zeros that were put around are left out
        first = round(pad / windows.step)
        end = max(round((len(samples) - pad) / windows.step), first + LEAST_FRAMES)
        frames = given.reshape(-1, len(basis))[first:end]
        if not len(frames):
            raise AudioError(
                f"{self.recipe.name} gives no frame of the sound: it is too short, or the recipe's step is wrong"
            )
        # points of length 1 tell by their sum how a vector was scaled, and so its seconds
        points = _unit(interval_means(_unit(frames) @ basis, windows.points))
        seconds = len(frames) * windows.step / self.rate
        return np.append(points, seconds).astype(np.float32)[None]

    def _read_basis(self) -> Frames:
        """The matrix beside the network, one row for each column of its frames."""
        file = self.path.parent / self.recipe.windows.basis
        rows = self._outputs[self.recipe.network.output][-1]
        try:
            basis: Frames = np.load(file, allow_pickle=False).astype(np.float32)
            if basis.ndim != 2 or len(basis) != rows:
                raise ValueError(f"it has the shape {basis.shape}")
        except (OSError, ValueError, EOFError) as error:
            raise FileFormatError(
                f"{file}: expected a NumPy file (.npy) of a matrix with {rows} rows, the basis of {self.path.name}; "
                f"{error}. Fetch the extractor again, or write the file"
            ) from error
        return basis

    def frames(self, samples: Sound) -> NDArray[np.float32]:
        """(T, bins) frames of prepared samples, as the network gets them."""
        if self._graph is None:
            return make_frames(samples, self.recipe)
        settings = self.recipe.features
        scaled = samples * np.float32(self.recipe.samples.scale)
        (made,) = self._graph.run(None, {self._graph.get_inputs()[0].name: scaled[None]})
        frames = made.reshape(-1, settings.bins) * np.float32(settings.multiply)
        return np.asarray(frames + np.float32(settings.add), dtype=np.float32)

    def check(self) -> float | None:
        """Compare the vector of the code's own signal with the recipe's.

        Returns
        -------
        float or None
            The cosine with the golden vector; None where the recipe has none.

        Raises
        ------
        NumericalError
            It is another: the file, the recipe or a library is not what the recipe was written for.
        """
        golden = np.asarray(self.recipe.golden.vector)
        if not len(golden):
            return None
        made = self.embed(golden_signal(self.rate))
        cosine = -1.0
        if len(made) == len(golden):
            cosine = float(made @ golden / (np.linalg.norm(made) * np.linalg.norm(golden)))
        if not cosine >= AGREE:
            raise NumericalError(
                f"{self.path}: the vector of the test signal has a cosine of {cosine:.4f} with the one that the recipe "
                f"{self.recipe.name!r} gives. These are other weights, or they want another recipe, or a library makes "
                "other features than it did: fetch them again, or correct the recipe"
            )
        return cosine

    def _run(self, frames: NDArray[np.float32]) -> NDArray[np.float32]:
        """(batch, dimension) of frames (batch, time, bins), or of samples (batch, n)."""
        ports = self.recipe.network
        fed = frames
        if ports.layout == "bins-time":
            fed = fed.transpose(0, 2, 1)
        elif ports.layout == "time-bins-one":
            fed = fed[..., None]
        feeds = {self._input: np.ascontiguousarray(fed, dtype=np.float32)}
        if ports.lengths:
            feeds[ports.lengths] = np.full(len(frames), frames.shape[1], dtype=np.int64)
        if ports.mask:
            kind = np.float32 if self._mask_is_float else np.int64
            feeds[ports.mask] = np.ones(frames.shape[:2], dtype=kind)
        try:
            (vectors,) = self._session.run([ports.output], feeds)
        except Exception as error:  # onnxruntime has no base class of its own for them
            raise FileFormatError(
                f"{self.path} does not take what the recipe {self.recipe.name!r} makes, {fed.shape}: {error}\n"
                f"{self._ports()}"
            ) from error
        return np.asarray(vectors, dtype=np.float32).reshape(len(frames), -1)

    def _understood(self) -> Recipe:
        """The recipe beside the file."""
        beside = self.path.with_suffix(".toml")
        if beside.is_file():
            return read_extractor_recipe(beside)
        draft = FILL_IN.format(
            name=self.path.stem,
            families=", ".join(families()),
            output=list(self._outputs)[-1],
        )
        raise FileFormatError(
            f"{self.path}: it is not known what this network wants, and a guess would give wrong vectors without a "
            f"word. {self._ports()} Write a recipe beside it:\n\n{draft}"
        )

    def _with_ports(self, recipe: Recipe) -> Recipe:
        """The recipe with the names that the file has, where it leaves them open."""
        lengths = recipe.network.lengths if recipe.network.lengths in self._inputs else ""
        others = (lengths, recipe.network.mask)
        types = {port.name: port.type for port in self._session.get_inputs()}
        self._mask_is_float = types.get(recipe.network.mask) == "tensor(float)"
        self._input = next(name for name in self._inputs if name not in others)
        wanted = recipe.network.output or next(iter(self._outputs))
        if wanted not in self._outputs:
            raise FileFormatError(
                f"{self.path}: the recipe {recipe.name!r} names {wanted!r}, which the file has not. {self._ports()}"
            )
        return replace(recipe, network=replace(recipe.network, output=wanted, lengths=lengths))

    def _weights_hash(self) -> str:
        """Of the file; or of what it was made of, where the recipe says so and vouches for the file itself.

        Two conversions of the same weights need not have the same bytes, and are the same extractor.
        """
        weights = self.recipe.weights
        names = dict.fromkeys([self.path.name, *weights.files])
        if self._graph is not None:
            names[self.recipe.features.file] = None
        if self._basis is not None:
            names[self.recipe.windows.basis] = None
        files = [self.path.parent / name for name in names]
        hashes = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
        for name, digest in weights.files.items():
            if hashes[name] != digest:
                raise FileFormatError(
                    f"{self.path.parent / name} is not the file that the recipe beside it was written for (SHA-256 "
                    f"{hashes[name][:12]}..., the recipe says {digest[:12]}...): fetch it again, or delete [weights] "
                    "from the recipe if it is another network"
                )
        if weights.source and set(hashes) <= set(weights.files):
            return weights.source
        return "+".join(hashes.values())

    def _ports(self) -> str:
        """What the file has, for errors."""
        return f"The file has the inputs {self._inputs} and the outputs {self._outputs}."


def open_session(path: Path, threads: int) -> InferenceSession:
    """An ONNX file in onnxruntime, on a GPU where it has one."""
    runtime = need("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    available = runtime.get_available_providers()
    wanted = [one for one in ("CUDAExecutionProvider", "CPUExecutionProvider") if one in available]
    try:
        return runtime.InferenceSession(str(path), options, providers=wanted)
    except Exception as error:  # onnxruntime has no base class of its own for them
        raise FileFormatError(
            f"{path} is damaged or no ONNX file: {' '.join(str(error).split())[:300]}"
        ) from error


def as_onnx(data: bytes) -> bytes:
    """An ONNX file of one in onnxruntime's own format, which onnxruntime does not optimise for the machine it is on."""
    if data[4:8] != b"ORTM":
        return data
    runtime = need("onnxruntime")
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_session_config_entry("session.load_model_format", "ORT")
    options.add_session_config_entry("session.save_model_format", "ONNX")
    with tempfile.TemporaryDirectory(prefix="mvplda-") as folder:
        file = Path(folder) / "network.onnx"
        options.optimized_model_filepath = str(file)
        runtime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        return file.read_bytes()
