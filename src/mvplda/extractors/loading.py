"""Extractors by file or by name."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

from ..exceptions import FileFormatError
from .extractor import JOINED, JointExtractor, SoundExtractor
from .frontends import cached_file
from .network import OnnxExtractor
from .weights import NAMES, gpu_in_torch


def load_extractor(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    check: bool = True,
    threads: int = 1,
) -> SoundExtractor:
    """Load an extractor, or several side by side.

    Parameters
    ----------
    path : an ONNX file of a family that is known or with a recipe beside it, such as ``mvplda network`` and
        ``mvplda experiment`` write; or a name that ``mvplda extractor get`` fetched: campplus, resemblyzer, words.
        A list puts several side by side.
    check : compare what it makes of the code's own signal with the recipe's golden numbers
    threads : of onnxruntime

    Raises
    ------
    FileFormatError
        It is not known what the network wants: the error prints what was found and a recipe to fill in. Or the
        file is not what its recipe was written for.
    """
    if isinstance(path, str) and JOINED in path:
        path = path.split(JOINED)
    if not isinstance(path, (str, os.PathLike)):
        parts = [load_extractor(one, check=check, threads=threads) for one in path]
        return parts[0] if len(parts) == 1 else JointExtractor(parts)
    place = Path(path)
    if not place.exists() and str(path) in NAMES:
        place = cached_file(str(path))
    if place.is_dir():
        found = sorted(place.glob("*.onnx"))
        recipes = [file for file in found if file.with_suffix(".toml").is_file()]
        if len(recipes or found) != 1:
            raise FileFormatError(
                f"{place} is a folder with {len(found)} ONNX files: name the one that is meant"
            )
        place = (recipes or found)[0]
    if not place.is_file():
        raise FileNotFoundError(
            f"there is no extractor {str(path)!r}: expected an .onnx file or "
            f"one of {', '.join(NAMES)}"
        )
    extractor = OnnxExtractor(place, threads=threads)
    if not extractor.waits_s:
        _to_torch(extractor)
    if check:
        extractor.check()
    return extractor


def _to_torch(extractor: OnnxExtractor) -> None:
    """Run a network by torch where that has a GPU, and ``mvplda extractor get`` left the weights beside the graph."""
    recipe, about = extractor.recipe, NAMES.get(extractor.recipe.name)
    if about is None or not about.network:
        return
    ((member, (_, digest)),) = about.members.items()
    file = extractor.path.parent / member
    if recipe.weights.source != digest or not file.is_file() or not gpu_in_torch():
        return
    if hashlib.sha256(file.read_bytes()).hexdigest() != digest:
        raise FileFormatError(
            f"{file} is not what mvplda extractor get {recipe.name} wrote: fetch it again"
        )
    from .networks import OnGpu

    extractor.run_by(OnGpu(about.network, file))
