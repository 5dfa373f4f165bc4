"""The runtime of the networks in a browser, onnxruntime-web: from the npm registry, or from a folder."""

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
"""Files of the package that a page needs: loader and WebAssembly for one thread."""
TIMEOUT_S = 600


def put_runtime(target: Path, folder: PathLike | None = None) -> None:
    """Write the files of the runtime into a folder.

    folder : unpacked package, or its folder ``dist``; None: load it with npm
    """
    target.mkdir(parents=True, exist_ok=True)
    if folder is not None:
        _copy(_dist_of(Path(folder)), target)
        return
    npm = shutil.which("npm")
    if npm is None:
        raise FetchError(
            f"npm is needed to load {PACKAGE}, and is not installed (Debian: apt-get install npm). Or unpack the "
            f"package {PACKAGE} {VERSION} elsewhere and pass its folder: --runtime FOLDER"
        )
    with tempfile.TemporaryDirectory(prefix="mvplda-") as temporary:
        _copy(_load(npm, Path(temporary)), target)


def _load(npm: str, folder: Path) -> Path:
    """Load the package with npm, which checks its hash; return the folder of its files."""
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
            f"npm did not load {PACKAGE} {VERSION} within {TIMEOUT_S} s. Pass the unpacked package: --runtime FOLDER"
        ) from error
    archives = sorted(folder.glob("*.tgz"))
    if done.returncode or len(archives) != 1:
        problem = " ".join((done.stderr or done.stdout).split())[-300:]
        raise FetchError(
            f"npm cannot load {PACKAGE} {VERSION}: {problem}. Is the registry reachable? Or pass the unpacked package: "
            "--runtime FOLDER"
        )
    with tarfile.open(archives[0]) as archive:
        members = [archive.getmember(f"package/dist/{name}") for name in FILES]
        archive.extractall(folder, members, filter="data")
    return folder / "package" / "dist"


def _dist_of(folder: Path) -> Path:
    """Return the folder with the runtime's files: the given one, or ``dist`` in it."""
    for candidate in (folder, folder / "dist"):
        if all((candidate / name).is_file() for name in FILES):
            return candidate
    raise FileNotFoundError(
        f"{folder} is no unpacked {PACKAGE}: expected the files {', '.join(FILES)}, in it or in its folder dist"
    )


def _copy(source: Path, target: Path) -> None:
    for name in FILES:
        shutil.copyfile(source / name, target / name)
