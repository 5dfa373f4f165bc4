"""Which recordings are meant: files, folders of them, lists; their ids, and labels from the names of folders."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ...exceptions import DataError, ParameterError
from ...io.lists import read_map
from ...io.streams import OnDisk, fail
from ...io.tables import read_table
from .decode import HEAD, SUFFIXES, FileSegment, container_format

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
"""What folders name, from the outer to the inner one."""


Entry = tuple[str, FileSegment, tuple[str, ...]]
"""Id of a recording, where it is, and the names of its folders, or its labels."""


@dataclass(frozen=True)
class Recordings:
    """Recordings by id.

    ids : the path without its suffix, as far as it tells recordings apart
    files : location of each recording
    labels : by view, in the order of the ids; none where folders do not name them
    """

    ids: list[str]
    files: list[FileSegment]
    labels: dict[str, list[str]] = field(default_factory=dict)


def list_recordings(sources: Sequence[str | os.PathLike[str]]) -> Recordings:
    """The recordings in sound files, folders, lists (``wav.scp``: an id and a path per line) and tables (.csv, .tsv).

    Folders name speakers, and phrases where there are two levels: ``anna/hello/1.wav``. Of several folders, their own
    names count too, so that ``anna/ bob/`` holds two speakers and no two recordings with one id. Links to folders are
    followed, except those to a folder that holds the link.
    """
    several = len(sources) > 1
    found: dict[str, FileSegment] = {}
    folders: list[tuple[str, ...]] = []
    for source in sources:
        for name, clip, parents in _listed(Path(source), several):
            if name in found:
                raise DataError(
                    f"two recordings have the id {name!r}, {found[name].path} and {clip.path}: give the folder that "
                    "holds both"
                )
            found[name] = clip
            folders.append(parents)
    return Recordings(list(found), list(found.values()), _labels(folders))


def label_recordings(listed: Recordings, pattern: str | None = None) -> tuple[Recordings, str]:
    """Recordings with the labels that their ids hold, by a pattern such as ``{speaker}/{phrase}/*``; and the pattern.

    Recordings whose ids do not fit are left out.

    pattern : fields are views, ``*`` is anything. None: by folders, see `default_pattern`
    """
    chosen = default_pattern(listed.ids) if pattern is None else pattern
    if "{speaker}" not in chosen:
        raise ParameterError(f"the pattern names no speaker: {{speaker}}/*; got {chosen!r}")
    views = list(dict.fromkeys(re.findall(r"\{(\w+)\}", chosen)))
    expression = re.escape(chosen).replace(r"\*", ".*")
    for view in views:
        # a field that comes again repeats its label
        mark = re.escape(f"{{{view}}}")
        expression = expression.replace(mark, f"(?P<{view}>[^/]+?)", 1)
        expression = expression.replace(mark, f"(?P={view})")
    matches = {row: re.fullmatch(expression, name) for row, name in enumerate(listed.ids)}
    fitting = {row: match for row, match in matches.items() if match}
    if not fitting:
        raise DataError(f"no recording fits {chosen!r}, such as {listed.ids[0]!r}")
    labels = {view: [match[view] for match in fitting.values()] for view in views}
    ids = [listed.ids[row] for row in fitting]
    return Recordings(ids, [listed.files[row] for row in fitting], labels), chosen


def default_pattern(names: Sequence[str]) -> str:
    """How labels stand in names: folders are speakers, folders in these phrases, what lies deeper is neither.

    Examples
    --------
    >>> usual_pattern(["ann/hello/1", "ann/hello/2", "bob/hello/1"])
    '{speaker}/{phrase}/*'
    >>> usual_pattern(["ann/1", "ann/2", "bob/1"])
    '{speaker}/*'
    """
    depth = Counter(name.count("/") for name in names).most_common(1)[0][0]
    if depth == 0:
        raise ParameterError(
            f"no folders name the speakers of {names[0]!r} and others: say how their names are to be read, with a "
            "pattern such as {speaker}_{phrase}_*"
        )
    return "{speaker}/*" if depth == 1 else "{speaker}/{phrase}/*"


def _listed(path: Path, several: bool) -> list[Entry]:
    """(id, clip, names of folders) of one source."""
    if (path / "index.csv").is_file():
        path = path / "index.csv"
    if path.suffix.lower() in TABLE_SUFFIXES and path.is_file():
        return _tabled(path)
    if path.is_dir():
        base = path.resolve().parent if several else path.resolve()
        files = sorted(file for file in _files_under(path.resolve()) if is_sound_file(file))
        if not files:
            raise DataError(f"there are no sound files under {path}")
        return [_named(file, base) for file in files]
    if not path.exists():
        raise DataError(f"there is no file or folder {path}")
    with path.open("rb") as file:
        known = path.suffix.lower() in SOUND_SUFFIXES or container_format(file.read(HEAD))
    if known:
        return [(path.stem, FileSegment(path), ())]
    entries = read_map(path)
    return [(name, FileSegment(Path(file)), ()) for name, file in entries.items()]


def _files_under(folder: Path, parents: tuple[Path, ...] = ()) -> Iterator[Path]:
    """Files in a folder and the folders in it, links to folders included; hidden ones are left out.

    parents : resolved folders on the way here
    """
    chain = (*parents, folder.resolve())
    for path in folder.iterdir():
        if path.name.startswith("."):
            continue
        if not path.is_dir():
            yield path
        elif not (path.is_symlink() and _holds_one_of(path.resolve(), chain)):
            yield from _files_under(path, chain)


def _holds_one_of(folder: Path, chain: Sequence[Path]) -> bool:
    """Whether a link to this folder nests: the same files again, under names that are not theirs."""
    return any(folder == parent or folder in parent.parents for parent in chain)


def _tabled(path: Path) -> list[Entry]:
    """Rows of a table: a file, and where they are given an id, a start and a length in samples, and labels."""
    header, columns = read_table(OnDisk(path))
    if "file" not in header:
        fail(path, f"expected a column called file; the header has {', '.join(header)}", 1)
    if "phrase" in header and "speaker" not in header:
        fail(path, "there is a column phrase and none called speaker: add one")
    listed = []
    for line, values in enumerate(zip(*columns, strict=True), 2):
        row = dict(zip(header, map(str, values), strict=True))
        file = path.parent / row["file"]
        try:
            length = int(row["length"]) if row.get("length") else None
            clip = FileSegment(file, int(row.get("start") or 0), length)
        except ValueError as error:
            fail(path, f"start and length are whole numbers of samples: {error}", line)
        name = row.get("id") or f"{Path(row['file']).with_suffix('').as_posix()}-{clip.start}"
        listed.append((name, clip, tuple(row[view] for view in VIEWS if view in row)))
    return listed


def is_sound_file(file: Path) -> bool:
    """Whether there is a file whose suffix is one of sound."""
    return file.suffix.lower() in SOUND_SUFFIXES and file.is_file()


def _named(file: Path, base: Path) -> Entry:
    inner = file.relative_to(base)
    return inner.with_suffix("").as_posix(), FileSegment(file), inner.parts[:-1]


def _labels(folders: list[tuple[str, ...]]) -> dict[str, list[str]]:
    """Names of folders by view; folders beyond the second have no meaning."""
    depths = [min(len(parents), len(VIEWS)) for parents in folders]
    levels = min(depths, default=0)
    if levels != max(depths, default=0):
        return {}
    return {view: [parents[k] for parents in folders] for k, view in enumerate(VIEWS[:levels])}
