"""Reproduce stored results and compare them: ``python -m benchmarks check [FILE ...]``.

A random sample of the rows of results/ and benchmarks/results/ is computed again in a scratch folder, by the command
that each row records, and compared with the stored row. A row is right if the present code gives it; the recorded
commit does not matter.
"""

from __future__ import annotations

import json
import math
import os
import random
import shlex
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from benchmarks.report import results_files
from benchmarks.timing import ROOT
from mvplda.paper.provenance import DATA, OUTPUT, WORK, digest_of, result_rows

TOLERANCE = 0.01
"""Relative difference of a number that passes, unless the row has a tolerance of its own."""
ROUNDING = 1e-6
"""Absolute difference that always passes: an error rate of zero has no relative difference."""
IGNORED = ("seconds", "provenance", "definitions")
"""Entries of a row that are not compared: CPU times, records of the maker, and explanations of the metrics."""


@dataclass(frozen=True)
class Row:
    """A stored row.

    file : the results file
    place : names and numbers that lead to the row
    values : the row, with its provenance
    """

    file: Path
    place: tuple[str | int, ...]
    values: Mapping[str, Any]

    @property
    def provenance(self) -> Mapping[str, Any]:
        provenance: Mapping[str, Any] = self.values["provenance"]
        return provenance

    @property
    def title(self) -> str:
        return ": ".join([self.file.parent.name, *map(str, self.place[1:])])


@dataclass
class Checker:
    """Makes rows again; every command runs once.

    data, work : what stands for the placeholders of recorded commands
    most_seconds : commands that took more CPU time are skipped
    """

    data: Path
    work: Path
    most_seconds: float = 300.0
    remade: dict[tuple[str, str], dict[tuple[str | int, ...], Any] | str] = field(
        default_factory=dict
    )

    def reason_to_skip(self, row: Row) -> str:
        """Return why a row cannot be made again here, or an empty string."""
        record = row.provenance
        if record.get("unchecked"):
            return str(record["unchecked"])
        if not record.get("command"):
            return f"its maker is not known: {record.get('note', '')}"
        seconds = record.get("seconds", 0)
        if seconds > self.most_seconds:
            return f"its command takes {seconds} s (--seconds {self.most_seconds:g})"
        for name, digest in record.get("inputs", {}).items():
            found = [folder / name for folder in (self.data, self.work) if (folder / name).exists()]
            if not found:
                return f"{name} is neither in {self.data} nor in {self.work}"
            if all(digest_of(path) != digest for path in found):
                return f"{found[0]} is not the file that the row was made from"
        return ""

    def differences(self, row: Row) -> list[str]:
        """Make a row again and return how it differs from what is stored."""
        if row.provenance.get("dirty"):
            return ["made from a tree with uncommitted changes: commit, and make it again"]
        rows = self._rows_by(row.provenance["command"], row.file.name)
        if isinstance(rows, str):
            return [rows]
        if row.place not in rows:
            return ["its command does not make it"]
        tolerance = row.provenance.get("tolerance", TOLERANCE)
        return list(compared(row.values, rows[row.place], tolerance))

    def _rows_by(self, command: str, name: str) -> dict[tuple[str | int, ...], Any] | str:
        """Return the rows that a command makes, or why it fails."""
        if (command, name) not in self.remade:
            with tempfile.TemporaryDirectory() as folder:
                self.remade[command, name] = self._run(command, Path(folder), name)
        return self.remade[command, name]

    def _run(self, command: str, output: Path, name: str) -> dict[tuple[str | int, ...], Any] | str:
        places = {DATA: str(self.data), WORK: str(self.work), OUTPUT: str(output)}
        words = shlex.split(command)
        for placeholder, folder in places.items():
            words = [word.replace(placeholder, folder) for word in words]
        program = {"python": [sys.executable], "mvplda": [sys.executable, "-m", "mvplda"]}
        if words[0] not in program:
            return f"expected a command of python or mvplda, got {command!r}"
        # the code of this tree, whatever is installed
        paths = [str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")]
        threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        ended = subprocess.run(
            [*program[words[0]], *words[1:]],
            cwd=ROOT,
            env={**os.environ, **threads, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
            capture_output=True,
            text=True,
        )
        file = output / name
        if ended.returncode or not file.is_file():
            lines = (ended.stderr or ended.stdout).strip().splitlines() or ["no message"]
            return f"its command fails: {lines[-1]}"
        return dict(result_rows(json.loads(file.read_text(encoding="utf-8"))))


def stored_rows(files: Sequence[Path]) -> list[Row]:
    """Return the rows of results files."""
    rows = []
    for file in files:
        results = json.loads(file.read_text(encoding="utf-8"))
        rows += [Row(file, place, values) for place, values in result_rows(results)]
    return rows


def compared(stored: Any, remade: Any, tolerance: float, name: str = "") -> Iterator[str]:
    """Yield a line per difference of two rows; numbers may differ by a relative tolerance."""
    if isinstance(stored, Mapping) and isinstance(remade, Mapping):
        for key in dict.fromkeys([*stored, *remade]):
            if key in IGNORED:
                continue
            inner = f"{name}, {key}" if name else str(key)
            if key not in stored or key not in remade:
                yield f"{inner}: only {'stored' if key in stored else 'made again'}"
            else:
                yield from compared(stored[key], remade[key], tolerance, inner)
    elif isinstance(stored, list) and isinstance(remade, list):
        if len(stored) != len(remade):
            yield f"{name}: {len(stored)} values are stored, {len(remade)} made again"
            return
        for number, (old, new) in enumerate(zip(stored, remade, strict=True)):
            yield from compared(old, new, tolerance, f"{name} [{number}]")
    elif _is_number(stored) and _is_number(remade):
        same = math.isnan(stored) and math.isnan(remade)
        if not same and not math.isclose(stored, remade, rel_tol=tolerance, abs_tol=ROUNDING):
            yield f"{name}: {stored:g} is stored, {remade:g} made again"
    elif stored != remade:
        yield f"{name}: {stored!r} is stored, {remade!r} made again"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


@click.command(context_settings={"show_default": True})
@click.argument("files", nargs=-1, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    default=Path("../shared/data"),
    help="The folder of the data.",
)
@click.option(
    "--work",
    type=click.Path(path_type=Path),
    default=Path("build/check"),
    help="Intermediate files, such as rooms.npz of benchmarks.studies.rooms.",
)
@click.option("--rows", type=click.IntRange(min=1), default=8, help="So many rows are made again.")
@click.option("--seed", type=int, help="Of the sample.  [default: drawn and printed]")
@click.option(
    "--seconds", "most_seconds", type=float, default=300.0, help="Skip commands that take longer."
)
@click.option(
    "--row", "named", multiple=True, help="Rows whose title has this text; may be repeated."
)
def main(
    files: tuple[Path, ...],
    data: Path,
    work: Path,
    rows: int,
    seed: int | None,
    most_seconds: float,
    named: tuple[str, ...],
) -> None:
    """Make stored rows again and compare. Without FILES: those of results/ and benchmarks/results/.

    Rows that cannot be made here are skipped, and the reason is printed. Exit code 1 if a row differs.
    """
    seed = random.SystemRandom().randrange(10**6) if seed is None else seed
    chosen = stored_rows(files or results_files())
    chosen = [row for row in chosen if not named or any(text in row.title for text in named)]
    click.echo(f"seed {seed}, {len(chosen)} rows are stored")
    random.Random(seed).shuffle(chosen)
    work.mkdir(parents=True, exist_ok=True)
    checker = Checker(data.resolve(), work.resolve(), most_seconds)
    skipped: Counter[str] = Counter()
    checked = wrong = 0
    for row in chosen:
        if checked == rows:
            break
        if reason := checker.reason_to_skip(row):
            skipped[f"{row.file.parent.name}: {reason}"] += 1
            continue
        checked += 1
        found = checker.differences(row)
        wrong += bool(found)
        click.echo(f"{'DIFFERS' if found else 'same'}  {row.title}")
        for line in found[:10]:
            click.echo(f"    {line}")
    for reason, count in sorted(skipped.items()):
        click.echo(f"skipped {count} row(s) of {reason}")
    click.echo(f"{checked} row(s) made again, {wrong} different")
    sys.exit(1 if wrong else 0)
