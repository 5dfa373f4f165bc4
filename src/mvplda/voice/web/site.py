"""Writing of a static web site that enrols and verifies voices on the visitor's device."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..._typing import PathLike
from ...exceptions import ParameterError
from ..verification import VoiceModel
from .export import Arrays, export_model, graph_files
from .runtime import put_runtime

PAGE = Path(__file__).parent / "page"
MODEL, NUMBERS, WORKER = "model.json", "model.bin", "sw.js"
UNCACHED = (WORKER, "package.json", "mvplda.d.ts")
"""Files of the site that the service worker does not cache, because the page does not load them."""


@dataclass(frozen=True)
class Site:
    """Summary of a static web site that was written.

    folder : folder of the site
    files : {name of a file: size in bytes}
    """

    folder: Path
    files: dict[str, int]

    @property
    def size_mb(self) -> float:
        """Size of all files in MB."""
        return sum(self.files.values()) / 1e6


def write_site(
    output: PathLike,
    voices: VoiceModel,
    *,
    scripts: Sequence[Path] = (),
    runtime: PathLike | None = None,
) -> Site:
    """Write a static web site: page, scripts, model, networks and onnxruntime-web.

    Parameters
    ----------
    output : folder of the site; files of an earlier site in it are replaced
    voices : model that the page evaluates
    scripts : further scripts that the page imports
    runtime : folder of the unpacked package onnxruntime-web; None: download it with npm

    Raises
    ------
    ParameterError
        The folder contains other files, or the page cannot evaluate the model.
    FetchError
        onnxruntime-web cannot be downloaded.
    """
    folder = Path(output)
    if folder.is_dir() and any(folder.iterdir()) and not (folder / MODEL).is_file():
        raise ParameterError(
            f"the folder {folder} contains other files: choose a new folder, or the folder of an earlier site"
        )
    arrays = Arrays()
    model = export_model(voices, arrays)
    put_runtime(folder / "runtime", runtime)
    for file in [*sorted(PAGE.iterdir()), *scripts]:
        shutil.copyfile(file, folder / file.name)
    names = ["runtime/" + file.name for file in sorted((folder / "runtime").iterdir())]
    for network, recipe in zip(voices.extractor.networks, model["recipes"], strict=True):
        (folder / "networks" / network.recipe.name).mkdir(parents=True, exist_ok=True)
        files = {name: network.path.parent / name for name in graph_files(network)}
        if network.recipe.features.kind == "graph":
            files[network.recipe.features.file] = network.path.parent / network.recipe.features.file
        for name, file in files.items():
            shutil.copyfile(file, folder / "networks" / network.recipe.name / name)
        names += [f"networks/{name}" for name in (*recipe["files"], *recipe["graph_files"])]
    (folder / NUMBERS).write_bytes(arrays.to_bytes())
    (folder / MODEL).write_text(json.dumps(model) + "\n", encoding="utf-8")
    pages = [file.name for file in (*sorted(PAGE.iterdir()), *scripts)]
    names += [MODEL, NUMBERS, *(name for name in pages if name not in UNCACHED)]
    _write_worker(folder, names)
    names += UNCACHED
    return Site(folder, {name: (folder / name).stat().st_size for name in names})


def _write_worker(folder: Path, names: Sequence[str]) -> None:
    """Write the service worker, a script that caches the given files, with their names and a hash of their contents."""
    digest = hashlib.sha256()
    for name in names:
        digest.update(name.encode())
        digest.update(hashlib.sha256((folder / name).read_bytes()).digest())
    constants = {"VERSION": digest.hexdigest()[:16], "FILES": ["./", *names]}
    lines = [f"const {name} = {json.dumps(value)};" for name, value in constants.items()]
    script = (PAGE / WORKER).read_text(encoding="utf-8")
    (folder / WORKER).write_text("\n".join([*lines, script]), encoding="utf-8")
