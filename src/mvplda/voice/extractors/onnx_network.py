"""Networks in ONNX files, run in onnxruntime with the front-end and the pooling that their recipe describes."""

from __future__ import annotations

import hashlib
import tempfile
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..._optional import need
from ..._typing import PathLike
from ...exceptions import AudioError, FileFormatError, NumericalError
from ..audio.decode import Sound, golden_signal
from ..audio.speech_detection import SoundSegment
from .front_end import (
    MIN_POINT_FRAMES,
    Frames,
    interval_means,
    make_frames,
    prepare_samples,
    unit_rows,
)
from .recipe import Recipe, families, read_extractor_recipe

if TYPE_CHECKING:
    from onnxruntime import InferenceSession


Vector = NDArray[np.float32]

BATCH_SIZE = 32
"""Number of windows in one run of the network."""
MIN_GOLDEN_COSINE = 0.9995
"""Minimum cosine of the test signal's vector with the golden vector. Rounding differs between processors and libraries,
but changes the cosine less than a wrong recipe does."""

DRAFT_RECIPE = """\
# Draft of a recipe. Save it as {name}.toml beside {name}.onnx.
# If the network belongs to a family, write family = "wespeaker" (or another of {families})
# and only the differences; otherwise check each line with a question mark.
name = "{name}"
rate = 16000                 # ? samples per second
views = ["speaker"]          # views that the vectors distinguish

[samples]
scale = 1.0                  # ? 32768.0 if the network was trained on 16-bit numbers

[features]
kind = "kaldi"               # ? kaldi, samples
bins = 80                    # ? filter banks per frame
window = "hamming"           # ? hamming, povey, hanning
normalisation = "mean"       # ? none, mean, mean+variance

[network]
output = "{output}"
layout = "time-bins"         # ? time-bins, bins-time, samples
"""


class OnnxNetwork:
    """Network in an ONNX file with the recipe of its processing.

    Parameters
    ----------
    path : ONNX file, such as ``model.onnx``
    recipe : recipe to use instead of the file beside the network, such as ``model.toml``
    threads : number of threads of onnxruntime

    Attributes
    ----------
    fingerprint : SHA-256 of the weights and of the processing before and after the network
    name : name of the recipe and start of the fingerprint
    dimension : length of a vector
    views : views that the vectors distinguish
    rate : samples per second of the input
    segment_s : longest duration in seconds that the network processes at once
    input : name of the network's input for samples or frames
    mask_is_float : whether the network's input for a mask takes floats
    has_all_starts : whether one run of the network returns a vector for every possible first frame
        of a window

    Raises
    ------
    FileFormatError
        The file is damaged, has no recipe, or differs from the file that its recipe describes.
    """

    def __init__(self, path: PathLike, recipe: Recipe | None = None, threads: int = 1) -> None:
        self.path = Path(path)
        self._session = open_session(self.path, threads)
        self._inputs = {port.name: port.shape for port in self._session.get_inputs()}
        self._outputs = {port.name: port.shape for port in self._session.get_outputs()}
        self.recipe = self._with_ports(recipe or self._recipe_beside())
        # such a network returns one vector per possible first frame of a window, see benchmarks/words_graph.py
        self.has_all_starts = "starts" in self._outputs[self.recipe.network.output]
        self.rate = self.recipe.rate
        self.views = self.recipe.views
        self.segment_s = self.recipe.samples.segment_s
        self._graph = None
        if self.recipe.features.kind == "graph":
            self._graph = open_session(self.path.parent / self.recipe.features.file, threads)
        self._basis = self._read_basis() if self.recipe.windows.pool == "points" else None
        self.fingerprint = self.recipe.fingerprint(self._weights_hash())
        self.name = f"{self.recipe.name}-{self.fingerprint[:12]}"
        self.dimension = self.recipe.width or len(self._test_vector)

    def embed(self, sound: Sound | SoundSegment) -> Vector:
        """Return the (dimension,) vector of a sound.

        sound : (n,) samples of one channel at the network's rate with full scale 1, or a `SoundSegment`
        """
        segment = sound if isinstance(sound, SoundSegment) else SoundSegment(sound, self.rate)
        samples = prepare_samples(segment, self.recipe)
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

    @cached_property
    def _test_vector(self) -> Vector:
        """Vector of the test signal by which the network is verified, (dimension,)."""
        return self.embed(golden_signal(self.rate))

    def hidden_frames(self, segment: SoundSegment) -> Frames:
        """Return the (T, columns) output of a network that takes samples and returns one row per frame of sound."""
        samples = prepare_samples(segment, self.recipe)
        output = self._run(samples[None] * np.float32(self.recipe.samples.scale))
        columns = self._outputs[self.recipe.network.output][-1]
        return output.reshape(-1, columns)

    def _thirds(self, frames: Frames) -> Frames:
        """Return the mean vector of the windows in each third of a recording, concatenated: (1, 3 x output columns).

        frames : (T, bins) frames of the recording, at least one window
        """
        windows = self.recipe.windows
        last = len(frames) - windows.frames
        if last < 0:
            raise AudioError(
                f"the sound is too short: it has {len(frames)} frames, but the extractor {self.recipe.name} needs at "
                f"least {windows.frames}"
            )
        # evenly spread from the first to the last frame, with equally many windows per third
        per_third = -(-(last // windows.step + 1) // 3)
        starts = np.linspace(0, last, 3 * per_third).astype(int)
        if self.has_all_starts:
            # overlapping windows share computations
            vectors = self._run(frames[None]).reshape(last + 1, -1)[starts]
        else:
            stacked = np.stack([frames[start : start + windows.frames] for start in starts])
            batches = [
                self._run(stacked[k : k + BATCH_SIZE]) for k in range(0, len(stacked), BATCH_SIZE)
            ]
            vectors = np.concatenate(batches)
        thirds: Frames = vectors.reshape(3, per_third, -1).mean(axis=1)
        return thirds.reshape(1, -1)

    def _points(self, samples: Sound, basis: Frames) -> Frames:
        """Return the points in time of a recording, and its duration in seconds: (1, points x columns + 1).

        A point is the mean direction of the network's output over one of `points` equal intervals of time.

        samples : (n,) prepared samples
        basis : (output columns, columns) matrix by which rows of the output are multiplied
        """
        windows = self.recipe.windows
        output = self._run(samples[None] * np.float32(self.recipe.samples.scale))
        pad = round(self.recipe.samples.pad_s * self.rate)
        # frames of the padding are left out
        first = round(pad / windows.step)
        end = max(round((len(samples) - pad) / windows.step), first + MIN_POINT_FRAMES)
        frames = output.reshape(-1, len(basis))[first:end]
        if not len(frames):
            raise AudioError(
                f"the extractor {self.recipe.name} returned no frame: the sound is too short, or the recipe's step is "
                "wrong"
            )
        # points have length 1: if the whole vector is scaled later, their lengths show by how much
        points = unit_rows(interval_means(unit_rows(frames) @ basis, windows.points))
        seconds = len(frames) * windows.step / self.rate
        return np.append(points, seconds).astype(np.float32)[None]

    def _read_basis(self) -> Frames:
        """Read the matrix (output columns, columns) for the pool "points" from the file beside the network."""
        file = self.path.parent / self.recipe.windows.basis
        rows = self._outputs[self.recipe.network.output][-1]
        try:
            basis: Frames = np.load(file, allow_pickle=False).astype(np.float32)
            if basis.ndim != 2 or len(basis) != rows:
                raise ValueError(f"the matrix in the file has the shape {basis.shape}")
        except (OSError, ValueError, EOFError) as error:
            raise FileFormatError(
                f"{file}: expected a NumPy file (.npy) of a matrix with {rows} rows, the basis of {self.path.name}; "
                f"{error}. Fetch the extractor again, or write the file"
            ) from error
        return basis

    def frames(self, samples: Sound) -> NDArray[np.float32]:
        """Compute the input of the network from prepared samples: (T, bins) frames."""
        if self._graph is None:
            return make_frames(samples, self.recipe)
        settings = self.recipe.features
        scaled = samples * np.float32(self.recipe.samples.scale)
        (output,) = self._graph.run(None, {self._graph.get_inputs()[0].name: scaled[None]})
        frames = output.reshape(-1, settings.bins) * np.float32(settings.multiply)
        return np.asarray(frames + np.float32(settings.add), dtype=np.float32)

    def check(self) -> float | None:
        """Compare the vector of the test signal with the recipe's golden vector.

        Returns
        -------
        float or None
            Cosine with the golden vector; None if the recipe has none.

        Raises
        ------
        NumericalError
            The vectors differ: the file, the recipe or a library is not the one that the recipe was written for.
        """
        golden = np.asarray(self.recipe.golden.vector)
        if not len(golden):
            return None
        vector = self._test_vector
        cosine = -1.0
        if len(vector) == len(golden):
            cosine = float(vector @ golden / (np.linalg.norm(vector) * np.linalg.norm(golden)))
        # "not >=" also refuses NaN
        if not cosine >= MIN_GOLDEN_COSINE:
            raise NumericalError(
                f"{self.path}: the vector of the test signal has a cosine of {cosine:.4f} with the golden vector "
                f"of the recipe {self.recipe.name!r}, expected at least {MIN_GOLDEN_COSINE}. The file has other "
                "weights, or needs another recipe, or an installed library computes other features: fetch the "
                "extractor again, or correct the recipe"
            )
        return cosine

    def _run(self, frames: NDArray[np.float32]) -> NDArray[np.float32]:
        """Run the network and return its output, flattened to (batch, columns).

        frames : (batch, time, bins) frames, or (batch, n) samples
        """
        ports = self.recipe.network
        inputs = frames
        if ports.layout == "bins-time":
            inputs = inputs.transpose(0, 2, 1)
        elif ports.layout == "time-bins-one":
            inputs = inputs[..., None]
        feeds = {self.input: np.ascontiguousarray(inputs, dtype=np.float32)}
        if ports.lengths:
            feeds[ports.lengths] = np.full(len(frames), frames.shape[1], dtype=np.int64)
        if ports.mask:
            kind = np.float32 if self.mask_is_float else np.int64
            feeds[ports.mask] = np.ones(frames.shape[:2], dtype=kind)
        try:
            (vectors,) = self._session.run([ports.output], feeds)
        except Exception as error:  # onnxruntime has no base class of its own for them
            raise FileFormatError(
                f"{self.path} does not accept the input that the recipe {self.recipe.name!r} describes, of the shape "
                f"{inputs.shape}: {error}\n{self._ports()} Correct layout, features or [network] in the recipe"
            ) from error
        return np.asarray(vectors, dtype=np.float32).reshape(len(frames), -1)

    def _recipe_beside(self) -> Recipe:
        """Read the recipe beside the ONNX file; if there is none, raise `FileFormatError` with a draft of a recipe."""
        beside = self.path.with_suffix(".toml")
        if beside.is_file():
            return read_extractor_recipe(beside)
        draft = DRAFT_RECIPE.format(
            name=self.path.stem,
            families=", ".join(families()),
            output=list(self._outputs)[-1],
        )
        raise FileFormatError(
            f"{self.path} has no recipe beside it, and a guess could give wrong vectors without any error. "
            f"{self._ports()} Write {beside.name} into the same folder:\n\n{draft}"
        )

    def _with_ports(self, recipe: Recipe) -> Recipe:
        """Return a copy of the recipe with the network's output and input for lengths.

        An output that the recipe leaves open is the first of the file; an input for lengths that
        the file lacks is removed. The attributes `input` and `mask_is_float` are set.

        Raises
        ------
        FileFormatError
            The file lacks the output that the recipe names.
        """
        lengths = recipe.network.lengths if recipe.network.lengths in self._inputs else ""
        extra_inputs = (lengths, recipe.network.mask)
        types = {port.name: port.type for port in self._session.get_inputs()}
        self.mask_is_float = types.get(recipe.network.mask) == "tensor(float)"
        self.input = next(name for name in self._inputs if name not in extra_inputs)
        output = recipe.network.output or next(iter(self._outputs))
        if output not in self._outputs:
            raise FileFormatError(
                f"{self.path}: the recipe {recipe.name!r} names the output {output!r}, which the file lacks. "
                f"{self._ports()} Correct output in the table [network] of the recipe"
            )
        return replace(recipe, network=replace(recipe.network, output=output, lengths=lengths))

    def _weights_hash(self) -> str:
        """Check the files against the recipe and return a hash of the weights.

        It is the hash of the original weights if the recipe contains one, because two conversions of the same weights
        to ONNX may differ in bytes. Otherwise it is the SHA-256 of the files, joined by ``+``.

        Raises
        ------
        FileFormatError
            A file has another hash than the recipe.
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
                    f"{self.path.parent / name} does not match its recipe (SHA-256 {hashes[name][:12]}..., "
                    f"expected {digest[:12]}...): fetch it again, or delete [weights] from the recipe if the network "
                    "was replaced"
                )
        if weights.source and set(hashes) <= set(weights.files):
            return weights.source
        return "+".join(hashes.values())

    def _ports(self) -> str:
        """Return a sentence for error messages with the names and shapes of the network's inputs and outputs."""
        return f"The file has the inputs {self._inputs} and the outputs {self._outputs}."


def open_session(path: Path, threads: int) -> InferenceSession:
    """Open an ONNX file in onnxruntime, on a GPU if there is one.

    path : ONNX file
    threads : number of threads on the CPU
    """
    runtime = need("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    # planning of shared memory takes half of the load time, and the arena reuses memory as fast without
    options.enable_mem_reuse = False
    # a pattern would be stored for every length of a recording
    options.enable_mem_pattern = False
    available = runtime.get_available_providers()
    preferred = ("CUDAExecutionProvider", "CPUExecutionProvider")
    providers = [provider for provider in preferred if provider in available]
    try:
        return runtime.InferenceSession(str(path), options, providers=providers)
    except Exception as error:  # onnxruntime has no base class of its own for them
        raise FileFormatError(
            f"{path} is damaged or no ONNX file (copy or export it again): {' '.join(str(error).split())[:300]}"
        ) from error


def as_onnx(data: bytes) -> bytes:
    """Convert the content of a file from onnxruntime's own format (ORT) to ONNX; return any other content unchanged.

    onnxruntime optimises networks in ONNX for the processor, but not networks in its own format.
    """
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
