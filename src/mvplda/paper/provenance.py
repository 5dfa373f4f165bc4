"""Provenance of results: the command, commit and inputs by which each row of a results file can be reproduced.

A results file is JSON with ``schema``, ``title`` and either ``systems`` (of an experiment) or ``rows`` (of a study).
Every number of a file belongs to a row, an object with an entry ``provenance``. Rows of one file may come from
different commands, so the file as a whole has no provenance.
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
"""Version of the format of results files; since version 3, every row has an entry ``provenance``."""
DATA, WORK, OUTPUT = "{data}", "{work}", "{output}"
"""Placeholders in a recorded command for the folders of the data, of intermediate files and of the results file."""
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
"""Git paths of the code that can change a result. Results are left out, because they are written while a study runs."""


def provenance(
    inputs: Iterable[str | Path] = (),
    *,
    command: str = "",
    seeds: Sequence[int] = (),
    tolerance: float | None = None,
) -> Json:
    """Describe the running program for the rows of a results file: command, commit, inputs and environment.

    Call this function before the work begins, because it reads the commit, and the code may change during a long run.

    Parameters
    ----------
    inputs : files and folders whose SHA-256 is recorded
    command : command line, relative to the project's root, with `DATA`, `WORK` and `OUTPUT` in place of folders;
        empty: the command line of this process
    seeds : seeds of all random generators; empty if the code fixes them
    tolerance : largest relative difference that a reproduced row may have; None: the default of ``benchmarks check``

    Returns
    -------
    record for the entry ``provenance`` of rows
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
    """Return the command line of this process, with placeholders for the folders of inputs and output.

    inputs : paths that are replaced by `DATA` and their name
    """
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
    """Quote a word of a command line for a shell if necessary; the braces of placeholders need no quotes."""
    plain = word
    for placeholder in (DATA, WORK, OUTPUT):
        plain = plain.replace(placeholder, "folder")
    return word if shlex.quote(plain) == plain else shlex.quote(word)


def source_state() -> Json:
    """Return the git commit of the running code, as {"commit": hash}.

    The entry "dirty" is added if the code has uncommitted changes. The commit is None for an installed package, even if
    it is inside another project's repository.
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
    """Run git in a folder and return its output; None if git fails or is not installed.

    words : arguments of git
    """
    try:
        ended = subprocess.run(
            ["git", *words], cwd=folder, capture_output=True, text=True, timeout=20, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return ended.stdout.strip()


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file's contents, or of the names and sizes of all files under a folder."""
    if path.is_file():
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    digest = hashlib.sha256()
    # only names and sizes, because reading a whole corpus would take longer than many experiments
    for file in sorted(path.rglob("*")):
        if file.is_file():
            digest.update(f"{file.relative_to(path)} {file.stat().st_size}\n".encode())
    return digest.hexdigest()


def with_provenance(results: Any, record: Card) -> Any:
    """Return a copy of a study's results in which every row has the entry ``provenance``.

    A row is an object with at least one value that is neither an object nor a list of objects, such as a number. Other
    objects, and lists, only group rows. A row that already has a provenance keeps it.

    Parameters
    ----------
    results : objects and lists of plain values
    record : value of the entry, from `provenance`
    """
    if isinstance(results, Mapping):
        if "provenance" in results:
            return dict(results)
        if results and all(_holds_rows(value) for value in results.values()):
            return {name: with_provenance(value, record) for name, value in results.items()}
        return {**results, "provenance": dict(record)}
    return [with_provenance(value, record) for value in results]


def _holds_rows(value: object) -> bool:
    """Return whether a value in a study's results contains rows: it is an object, or a non-empty list of objects."""
    if isinstance(value, Mapping):
        return True
    return isinstance(value, list) and bool(value) and all(isinstance(v, Mapping) for v in value)


def result_rows(
    results: object, path: tuple[str | int, ...] = ()
) -> Iterator[tuple[tuple[str | int, ...], Json]]:
    """Yield (path, row) for every row of a results file; a row is an object with the entry ``provenance``.

    Parameters
    ----------
    results : content of the file, or of a part of it
    path : path of this part: keys of objects and indices in lists
    """
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
    """Return the text of a results file: indented JSON, with each provenance record on a single line."""
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
    """Write a results file.

    Parameters
    ----------
    path : file to write; its folder is created
    title : title of the results
    sections : "systems" or "rows", with rows that have their provenance
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    results = {"schema": SCHEMA, "title": title, **sections}
    write_atomically(path, results_text(results).encode())


def update_rows(
    path: Path, title: str, part: str, rows: Card, order: Sequence[str] = ()
) -> dict[str, Any]:
    """Add rows to a results file, or replace those of the same names, and return all its rows.

    Parameters
    ----------
    path : results file; it is created if it does not exist
    title : title of the results
    part : section of the file, "systems" or "rows"
    rows : {name: row}; each row has its provenance
    order : names of the rows that come first, in this order
    """
    stored = json.loads(path.read_text(encoding="utf-8"))[part] if path.is_file() else {}
    merged = {**stored, **rows}
    first = [name for name in order if name in merged]
    merged = {name: merged[name] for name in dict.fromkeys([*first, *merged])}
    write_results(path, title, **{part: merged})
    return merged
