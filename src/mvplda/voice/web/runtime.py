"""Installation of onnxruntime-web, which runs the networks in a browser: from the npm registry, or from a folder."""

from __future__ import annotations

import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

from ..._typing import PathLike
from ...exceptions import FetchError

PACKAGE = "onnxruntime-web"
VERSION = "1.30.0"
FILES = ("ort.wasm.min.mjs", "ort-wasm-simd-threaded.mjs", "ort-wasm-simd-threaded.wasm")
"""Files of the package that a page needs: its script, and the loader and code of its WebAssembly."""
TIMEOUT_S = 600


def put_runtime(target: Path, folder: PathLike | None = None) -> None:
    """Write the files of onnxruntime-web into a folder.

    Parameters
    ----------
    target : folder to write to
    folder : folder of the unpacked package onnxruntime-web, or its folder ``dist``; None: download it with npm

    Raises
    ------
    FetchError
        npm is not installed, or cannot download the package.
    FileNotFoundError
        `folder` does not have the files.
    """
    target.mkdir(parents=True, exist_ok=True)
    if folder is not None:
        _copy(_dist_of(Path(folder)), target)
        return
    npm = shutil.which("npm")
    if npm is None:
        raise FetchError(
            f"npm is needed to download {PACKAGE}, and is not installed (Debian: apt-get install npm). Or unpack the "
            f"package {PACKAGE} {VERSION} elsewhere and pass its folder: --runtime FOLDER"
        )
    with tempfile.TemporaryDirectory(prefix="mvplda-") as temporary:
        _copy(_load(npm, Path(temporary)), target)


def _load(npm: str, folder: Path) -> Path:
    """Download the package into `folder` with npm, which checks its hash; return the folder of its files."""
    try:
        done = subprocess.run(
            [npm, "pack", f"{PACKAGE}@{VERSION}", "--silent"],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise FetchError(
            f"npm did not download {PACKAGE} {VERSION} within {TIMEOUT_S} s. Try again, or unpack the package "
            "elsewhere and pass its folder: --runtime FOLDER"
        ) from error
    archives = sorted(folder.glob("*.tgz"))
    if done.returncode or len(archives) != 1:
        problem = " ".join((done.stderr or done.stdout).split())[-300:]
        raise FetchError(
            f"npm cannot download {PACKAGE} {VERSION}: {problem}. Check that the registry is reachable, or unpack the "
            "package elsewhere and pass its folder: --runtime FOLDER"
        )
    with tarfile.open(archives[0]) as archive:
        dist = folder / "package" / "dist"
        dist.mkdir(parents=True)
        for name in FILES:
            # extractall is only safe with a filter, which Python before 3.11.4 does not have
            content = archive.extractfile(f"package/dist/{name}")
            if content is None:
                raise FetchError(
                    f"the archive of {PACKAGE} {VERSION} has no regular file package/dist/{name}. Unpack the package "
                    "elsewhere and pass its folder: --runtime FOLDER"
                )
            (dist / name).write_bytes(content.read())
    return dist


def _dist_of(folder: Path) -> Path:
    """Return the folder with the files of onnxruntime-web: `folder` or its subfolder ``dist``.

    Raises
    ------
    FileNotFoundError
        Neither has all files.
    """
    for candidate in (folder, folder / "dist"):
        if all((candidate / name).is_file() for name in FILES):
            return candidate
    raise FileNotFoundError(
        f"{folder} is no unpacked {PACKAGE}: expected the files {', '.join(FILES)}, in it or in its folder dist"
    )


def _copy(source: Path, target: Path) -> None:
    for name in FILES:
        shutil.copyfile(source / name, target / name)
