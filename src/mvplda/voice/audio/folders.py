"""Lists of recordings from files, folders and tables; names of folders or columns label their speakers and phrases."""

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
"""Views whose labels are names of folders, from the outer to the inner folder."""


class ListedRecording(NamedTuple):
    """Recording found in a folder, a list or a table.

    id : id of the recording
    file : location of the recording
    parents : names of the folders that contain it, outer first; in a table, its speaker and phrase
    """

    id: str
    file: FileSegment
    parents: tuple[str, ...]


@dataclass(frozen=True)
class Recordings:
    """List of recordings with ids and labels.

    Attributes
    ----------
    ids : id of each recording: its path without suffix, relative to the listed folder, or an id from a list or table
    files : location of each recording
    labels : {view, such as "speaker": label of each recording}; empty if neither folders nor columns name the views
    """

    ids: list[str]
    files: list[FileSegment]
    labels: dict[str, list[str]] = field(default_factory=dict)


def list_recordings(sources: Sequence[str | os.PathLike[str]]) -> Recordings:
    """List the recordings in sound files, folders, lists and tables.

    Names of outer folders are labels of speakers, names of inner folders labels of phrases: ``anna/hello/1.wav``. If
    several sources are given, ids and labels include the names of the given folders, so that ``anna/ bob/`` has two
    speakers and unique ids. Links to folders are followed, except links to a folder that contains the link.

    Parameters
    ----------
    sources : sound files, folders, lists (such as ``wav.scp``, with an id and a path per line) or tables (.csv, .tsv,
        with a column ``file``)

    Raises
    ------
    DataError
        A source is missing or has no recordings, or two recordings have the same id.
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
    listed : recordings, of which only ids and files are used
    pattern : ``{view}`` matches a label without ``/``, and ``*`` matches anything. None: labels are
        names of folders, see `default_pattern`

    Returns
    -------
    the matching recordings with labels, and the pattern

    Raises
    ------
    ParameterError
        The pattern has no ``{speaker}``, or `pattern` is None and the recordings are in no folders.
    DataError
        No recording matches the pattern.
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
        raise DataError(
            f"no recording fits the pattern {chosen!r}, for example {listed.ids[0]!r} does not: write it for ids such "
            "as this one"
        )
    labels = {view: [match[view] for match in fitting.values()] for view in views}
    ids = [listed.ids[row] for row in fitting]
    return Recordings(ids, [listed.files[row] for row in fitting], labels), chosen


def default_pattern(names: Sequence[str]) -> str:
    """Return the pattern by which folders in ids label speakers (outer folder) and phrases (inner folder).

    The most frequent number of folders in an id decides whether phrases are labelled. Folders
    within the folder of a phrase are not labels.

    Parameters
    ----------
    names : ids of recordings, at least one

    Raises
    ------
    ParameterError
        Most ids contain no folder.

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
            f"no folders name the speakers of {names[0]!r} and others: put the files of each speaker into a folder, or "
            "pass a pattern for the names of the files, such as {speaker}_{phrase}_*"
        )
    return "{speaker}/*" if depth == 1 else "{speaker}/{phrase}/*"


def _list_source(path: Path, use_own_names: bool) -> list[ListedRecording]:
    """List the recordings of one file, folder, list or table.

    path : the sound file, folder, list or table
    use_own_names : if `path` is a folder, whether the ids of its recordings start with its name
    """
    if (path / "index.csv").is_file():
        path = path / "index.csv"
    if path.suffix.lower() in TABLE_SUFFIXES and path.is_file():
        return _list_table(path)
    if path.is_dir():
        base = path.resolve().parent if use_own_names else path.resolve()
        files = sorted(file for file in _files_under(path.resolve()) if is_sound_file(file))
        if not files:
            raise DataError(
                f"there are no sound files under {path}: expected files ending in {', '.join(SOUND_SUFFIXES)}"
            )
        return [_list_file(file, base) for file in files]
    if not path.exists():
        raise DataError(f"there is no file or folder {path}: check the path")
    with path.open("rb") as file:
        is_sound = path.suffix.lower() in SOUND_SUFFIXES or container_format(file.read(HEADER_SIZE))
    if is_sound:
        return [ListedRecording(path.stem, FileSegment(path), ())]
    paths = read_map(path)
    return [ListedRecording(name, FileSegment(Path(file)), ()) for name, file in paths.items()]


def _files_under(folder: Path, parents: tuple[Path, ...] = ()) -> Iterator[Path]:
    """Yield the files in a folder and its subfolders; links are followed.

    Hidden files and folders are left out, and so are links to a folder that contains the link.

    parents : folders above `folder`, without links, from the first that is listed; in the first
        call there are none
    """
    chain = (*parents, folder.resolve())
    for path in folder.iterdir():
        if path.name.startswith("."):
            continue
        if not path.is_dir():
            yield path
        elif not (path.is_symlink() and _contains_any(path.resolve(), chain)):
            yield from _files_under(path, chain)


def _contains_any(folder: Path, others: Sequence[Path]) -> bool:
    """Return whether a folder is one of the other folders, or contains one of them at any depth."""
    return any(folder == other or folder in other.parents for other in others)


def _list_table(path: Path) -> list[ListedRecording]:
    """List the recordings of a table (.csv, .tsv), one per row.

    The column ``file`` is required; ``id``, ``start`` and ``length`` (in samples), ``speaker`` and ``phrase`` are
    optional.
    """
    header, columns = read_table(OnDisk(path))
    if "file" not in header:
        fail(path, f"expected a column named file; the header has {', '.join(header)}", 1)
    if "phrase" in header and "speaker" not in header:
        fail(path, "there is a column phrase but no column speaker: add the column speaker")
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
    """Return whether a file exists and has a suffix of `SOUND_SUFFIXES`, such as .wav."""
    return file.suffix.lower() in SOUND_SUFFIXES and file.is_file()


def _list_file(file: Path, base: Path) -> ListedRecording:
    relative = file.relative_to(base)
    name = relative.with_suffix("").as_posix()
    return ListedRecording(name, FileSegment(file), relative.parts[:-1])


def _labels(folders: list[tuple[str, ...]]) -> dict[str, list[str]]:
    """Return {view: label of each recording} from names of folders; {} if some recordings lack a level of folders.

    folders : names of the folders that contain each recording, outer first; only the first two levels are labels
    """
    depths = [min(len(parents), len(VIEWS)) for parents in folders]
    levels = min(depths, default=0)
    if levels != max(depths, default=0):
        return {}
    return {view: [parents[k] for parents in folders] for k, view in enumerate(VIEWS[:levels])}
