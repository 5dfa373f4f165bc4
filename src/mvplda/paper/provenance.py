"""Provenance of results: the command, commit and inputs that made each row, and that reproduce it.

A results file is JSON with ``schema``, ``title`` and either ``systems`` (an experiment) or ``rows`` (a study). A row
is an object with an entry ``provenance``; every number of a file lies in a row. Rows of one file may have different
makers, so a file has no provenance of its own.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from .. import __version__
from .._typing import Card, Json
from ..atomic_files import write_atomically
from ..backend import cores

SCHEMA = 3
"""Version of the format of results files; since version 3, every row has its provenance."""
DATA, WORK, OUTPUT = "{data}", "{work}", "{output}"
"""Placeholders of a recorded command: the folders of the data, of intermediate files and of the results file."""
PACKAGES = (
    "numpy",
    "scipy",
    "scikit-learn",
    "torch",
    "onnxruntime",
    "kaldi-native-fbank",
    "soundfile",
)
CODE = ("src", "benchmarks", ":(exclude)benchmarks/results")
"""Git paths whose changes can change a result. Results are written while a study runs, so they do not count."""


def provenance(
    inputs: Iterable[str | Path] = (),
    *,
    command: str = "",
    seeds: Sequence[int] = (),
    tolerance: float | None = None,
) -> Json:
    """Describe the running program: command, commit, inputs and environment.

    Call it before the work begins: the commit is read now, and the code may change during a long run.

    Parameters
    ----------
    inputs : files and folders whose SHA-256 is recorded
    command : command line, relative to the project's root, with `DATA`, `WORK` and `OUTPUT` in place of folders;
        by default the command line of this process
    seeds : seeds of all random generators; empty if the code fixes them
    tolerance : largest relative difference of a reproduced row; None: the default of ``benchmarks check``
    """
    paths = [Path(path) for path in inputs]
    installed = {package.name: package.version for package in distributions()}
    record: Json = {"command": command or command_line(paths), **source_state()}
    if seeds:
        record["seeds"] = list(seeds)
    if tolerance is not None:
        record["tolerance"] = tolerance
    return {
        **record,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "inputs": {path.name: digest_of(path) for path in paths},
        "mvplda": __version__,
        "platform": platform.platform(),
        "python": platform.python_version(),
        "packages": {name: installed[name] for name in PACKAGES if name in installed},
        "cores": cores(),
        "threads": os.environ.get("OMP_NUM_THREADS", ""),
    }


def command_line(inputs: Sequence[Path] = ()) -> str:
    """Return the command of this process, with placeholders for its inputs and its output folder."""
    placeholders = {str(path): f"{DATA}/{path.name}" for path in inputs}
    words: list[str] = []
    # orig_argv has "-m module", which sys.argv lacks
    for word in sys.orig_argv[1:]:
        if words and words[-1] in ("-o", "--output"):
            words.append(OUTPUT)
        elif word in placeholders:
            words.append(placeholders[word])
        else:
            words.append(Path(word).name if os.path.isabs(word) else word)
    line = " ".join(["python", *map(_quoted, words)])
    for program in ("python mvplda ", "python -m mvplda "):
        if line.startswith(program):
            return "mvplda " + line.removeprefix(program)
    return line


def _quoted(word: str) -> str:
    """Quote a word for a shell; braces of a placeholder alone need no quotes."""
    plain = word
    for placeholder in (DATA, WORK, OUTPUT):
        plain = plain.replace(placeholder, "folder")
    return word if shlex.quote(plain) == plain else shlex.quote(word)


def source_state() -> Json:
    """Return the commit of the source tree that runs, and ``dirty`` if its code has uncommitted changes.

    The commit is None for an installed package, even inside a repository of somebody else.
    """
    this_file = Path(__file__)
    root = this_file.parents[3]
    if _git(root, "ls-files", "--error-unmatch", str(this_file)) is None:
        return {"commit": None, "note": f"installed package, version {__version__}"}
    state: Json = {"commit": _git(root, "rev-parse", "HEAD")}
    if _git(root, "status", "--porcelain", "--", *CODE) != "":
        state["dirty"] = True
    return state


def _git(folder: Path, *words: str) -> str | None:
    """Return what git prints, or None if it fails or does not exist."""
    try:
        ended = subprocess.run(
            ["git", *words], cwd=folder, capture_output=True, text=True, timeout=20, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return ended.stdout.strip()


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file, or of the names and sizes of the files under a folder."""
    if path.is_file():
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    digest = hashlib.sha256()
    # names and sizes: to read a whole corpus would take longer than many an experiment
    for file in sorted(path.rglob("*")):
        if file.is_file():
            digest.update(f"{file.relative_to(path)} {file.stat().st_size}\n".encode())
    return digest.hexdigest()


def with_provenance(results: Any, record: Card) -> Any:
    """Return a copy of a study's results in which every row carries the record.

    Rows are the innermost objects that are reached through containers of objects only: the values of a table by name,
    the elements of a list, or the whole result if it holds plain values. A row that has a provenance keeps it.
    """
    if isinstance(results, Mapping):
        if "provenance" in results:
            return dict(results)
        if results and all(_holds_rows(value) for value in results.values()):
            return {name: with_provenance(value, record) for name, value in results.items()}
        return {**results, "provenance": dict(record)}
    return [with_provenance(value, record) for value in results]


def _holds_rows(value: object) -> bool:
    """Whether a value is a row or contains rows."""
    if isinstance(value, Mapping):
        return True
    return isinstance(value, list) and bool(value) and all(isinstance(v, Mapping) for v in value)


def result_rows(
    results: object, path: tuple[str | int, ...] = ()
) -> Iterator[tuple[tuple[str | int, ...], Json]]:
    """Yield the path (keys of objects and indices in lists) and the content of every row of a results file."""
    if isinstance(results, Mapping):
        if "provenance" in results:
            yield path, dict(results)
            return
        children: Iterable[tuple[str | int, object]] = results.items()
    elif isinstance(results, list):
        children = enumerate(results)
    else:
        return
    for name, value in children:
        yield from result_rows(value, (*path, name))


def results_text(results: Card) -> str:
    """Return results as indented JSON, with every provenance record on a single line to keep files short."""
    records: list[str] = []

    def shortened(value: object) -> object:
        if isinstance(value, list):
            return [shortened(element) for element in value]
        if not isinstance(value, Mapping):
            return value
        entries = {}
        for name, entry in value.items():
            if name == "provenance":
                records.append(json.dumps(entry))
                entry = f"<record {len(records) - 1}>"
            entries[name] = shortened(entry)
        return entries

    text = json.dumps(shortened(results), indent=1) + "\n"
    for number, record in enumerate(records):
        text = text.replace(f'"<record {number}>"', record)
    return text


def write_results(path: Path, title: str, **sections: object) -> None:
    """Write a results file whose rows carry their provenance."""
    path.parent.mkdir(parents=True, exist_ok=True)
    results = {"schema": SCHEMA, "title": title, **sections}
    write_atomically(path, results_text(results).encode())


def update_rows(
    path: Path, title: str, part: str, rows: Card, order: Sequence[str] = ()
) -> dict[str, Any]:
    """Merge rows into a results file and return all its rows.

    A row replaces the stored row of the same name; other stored rows keep their provenance.

    Parameters
    ----------
    part : "systems" or "rows"
    rows : {name: row}, each with its provenance
    order : names that come first, in this order
    """
    stored = json.loads(path.read_text(encoding="utf-8"))[part] if path.is_file() else {}
    merged = {**stored, **rows}
    first = [name for name in order if name in merged]
    merged = {name: merged[name] for name in dict.fromkeys([*first, *merged])}
    write_results(path, title, **{part: merged})
    return merged
