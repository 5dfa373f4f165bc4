"""Lists of recordings from files, folders and tables, with ids and with labels from names of folders."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from ...exceptions import DataError, ParameterError
from ...io.lists import read_map
from ...io.streams import OnDisk, fail
from ...io.tables import read_table
from .decode import HEADER_SIZE, SUFFIXES, FileSegment, container_format

SOUND_SUFFIXES = (
    ".wav",
    ".flac",
    ".ogg",
    ".oga",
    ".opus",
    ".mp3",
    ".sph",
    ".aif",
    ".aiff",
    *SUFFIXES,
)
TABLE_SUFFIXES = (".csv", ".tsv")
VIEWS = ("speaker", "phrase")
"""Views that folders name, from the outer to the inner folder."""


class ListedRecording(NamedTuple):
    """A recording of a source.

    id : its id
    file : its location
    parents : names of its folders, or its labels
    """

    id: str
    file: FileSegment
    parents: tuple[str, ...]


@dataclass(frozen=True)
class Recordings:
    """Recordings with ids and labels.

    Attributes
    ----------
    ids : path without suffix, relative to the listed folder
    files : location of each recording
    labels : {view: label of each recording}; empty if folders do not name the views
    """

    ids: list[str]
    files: list[FileSegment]
    labels: dict[str, list[str]] = field(default_factory=dict)


def list_recordings(sources: Sequence[str | os.PathLike[str]]) -> Recordings:
    """List the recordings in sound files, folders, lists (``wav.scp``: id and path per line) and tables (.csv, .tsv).

    Outer folders name speakers, inner folders phrases: ``anna/hello/1.wav``. With several folders as sources, their own
    names count as well, so that ``anna/ bob/`` has two speakers and unique ids. Links to folders are followed, except
    links to a folder that contains the link.
    """
    use_own_names = len(sources) > 1
    files: dict[str, FileSegment] = {}
    parents: list[tuple[str, ...]] = []
    for source in sources:
        for recording in _list_source(Path(source), use_own_names):
            if recording.id in files:
                raise DataError(
                    f"two recordings have the id {recording.id!r}, {files[recording.id].path} and "
                    f"{recording.file.path}: pass the folder that contains both"
                )
            files[recording.id] = recording.file
            parents.append(recording.parents)
    return Recordings(list(files), list(files.values()), _labels(parents))


def label_recordings(listed: Recordings, pattern: str | None = None) -> tuple[Recordings, str]:
    """Read labels from ids by a pattern such as ``{speaker}/{phrase}/*``; leave out recordings that do not match.

    Parameters
    ----------
    pattern : fields are views, ``*`` matches anything; None: labels are names of folders, see `default_pattern`

    Returns
    -------
    the matching recordings with labels, and the pattern
    """
    chosen = default_pattern(listed.ids) if pattern is None else pattern
    if "{speaker}" not in chosen:
        raise ParameterError(
            f"expected a pattern with {{speaker}}, such as {{speaker}}/*; got {chosen!r}"
        )
    views = list(dict.fromkeys(re.findall(r"\{(\w+)\}", chosen)))
    expression = re.escape(chosen).replace(r"\*", ".*")
    for view in views:
        # a repeated field has to match the same label again
        view_field = re.escape(f"{{{view}}}")
        expression = expression.replace(view_field, f"(?P<{view}>[^/]+?)", 1)
        expression = expression.replace(view_field, f"(?P={view})")
    matches = {row: re.fullmatch(expression, name) for row, name in enumerate(listed.ids)}
    fitting = {row: match for row, match in matches.items() if match}
    if not fitting:
        raise DataError(f"no recording fits the pattern {chosen!r}; the first is {listed.ids[0]!r}")
    labels = {view: [match[view] for match in fitting.values()] for view in views}
    ids = [listed.ids[row] for row in fitting]
    return Recordings(ids, [listed.files[row] for row in fitting], labels), chosen


def default_pattern(names: Sequence[str]) -> str:
    """Return the pattern of names in folders: outer folders are speakers, inner folders phrases, deeper ones neither.

    Examples
    --------
    >>> default_pattern(["ann/hello/1", "ann/hello/2", "bob/hello/1"])
    '{speaker}/{phrase}/*'
    >>> default_pattern(["ann/1", "ann/2", "bob/1"])
    '{speaker}/*'
    """
    depth = Counter(name.count("/") for name in names).most_common(1)[0][0]
    if depth == 0:
        raise ParameterError(
            f"no folders name the speakers of {names[0]!r} and others: pass a pattern for the names of the files, such "
            "as {speaker}_{phrase}_*"
        )
    return "{speaker}/*" if depth == 1 else "{speaker}/{phrase}/*"


def _list_source(path: Path, use_own_names: bool) -> list[ListedRecording]:
    """List the recordings of one source; `use_own_names`: ids of a folder begin with its name."""
    if (path / "index.csv").is_file():
        path = path / "index.csv"
    if path.suffix.lower() in TABLE_SUFFIXES and path.is_file():
        return _list_table(path)
    if path.is_dir():
        base = path.resolve().parent if use_own_names else path.resolve()
        files = sorted(file for file in _files_under(path.resolve()) if is_sound_file(file))
        if not files:
            raise DataError(f"there are no sound files under {path}")
        return [_list_file(file, base) for file in files]
    if not path.exists():
        raise DataError(f"there is no file or folder {path}")
    with path.open("rb") as file:
        is_sound = path.suffix.lower() in SOUND_SUFFIXES or container_format(file.read(HEADER_SIZE))
    if is_sound:
        return [ListedRecording(path.stem, FileSegment(path), ())]
    paths = read_map(path)
    return [ListedRecording(name, FileSegment(Path(file)), ()) for name, file in paths.items()]


def _files_under(folder: Path, parents: tuple[Path, ...] = ()) -> Iterator[Path]:
    """Yield the files in a folder and its subfolders, also behind links; hidden files and folders are left out.

    parents : resolved folders from the listed folder to this one
    """
    chain = (*parents, folder.resolve())
    for path in folder.iterdir():
        if path.name.startswith("."):
            continue
        if not path.is_dir():
            yield path
        elif not (path.is_symlink() and _contains_one_of(path.resolve(), chain)):
            yield from _files_under(path, chain)


def _contains_one_of(folder: Path, chain: Sequence[Path]) -> bool:
    """Return whether a linked folder contains a folder of the chain, so that its files would be listed twice."""
    return any(folder == parent or folder in parent.parents for parent in chain)


def _list_table(path: Path) -> list[ListedRecording]:
    """List the rows of a table: a file, and optionally an id, a start and a length in samples, and labels."""
    header, columns = read_table(OnDisk(path))
    if "file" not in header:
        fail(path, f"expected a column named file; the header has {', '.join(header)}", 1)
    if "phrase" in header and "speaker" not in header:
        fail(path, "there is a column phrase but no column speaker: add one")
    listed = []
    for line, values in enumerate(zip(*columns, strict=True), 2):
        row = dict(zip(header, map(str, values), strict=True))
        file = path.parent / row["file"]
        try:
            length = int(row["length"]) if row.get("length") else None
            segment = FileSegment(file, int(row.get("start") or 0), length)
        except ValueError as error:
            fail(path, f"expected whole numbers of samples as start and length: {error}", line)
        name = row.get("id") or f"{Path(row['file']).with_suffix('').as_posix()}-{segment.start}"
        labels = tuple(row[view] for view in VIEWS if view in row)
        listed.append(ListedRecording(name, segment, labels))
    return listed


def is_sound_file(file: Path) -> bool:
    """Return whether a path is a file with a suffix of audio files."""
    return file.suffix.lower() in SOUND_SUFFIXES and file.is_file()


def _list_file(file: Path, base: Path) -> ListedRecording:
    relative = file.relative_to(base)
    name = relative.with_suffix("").as_posix()
    return ListedRecording(name, FileSegment(file), relative.parts[:-1])


def _labels(folders: list[tuple[str, ...]]) -> dict[str, list[str]]:
    """Return the names of folders by view; folders below the second level have no meaning."""
    depths = [min(len(parents), len(VIEWS)) for parents in folders]
    levels = min(depths, default=0)
    if levels != max(depths, default=0):
        return {}
    return {view: [parents[k] for parents in folders] for k, view in enumerate(VIEWS[:levels])}
