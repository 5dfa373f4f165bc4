"""The table of an experiment: every system by kind of trial, systems compared, where it comes from; the page."""

from __future__ import annotations

import hashlib
import html
import json
import math
import os
import platform
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import distributions
from itertools import chain
from pathlib import Path

import numpy as np
from scipy.stats import t as student

from .. import __version__
from .. import report as draw
from .._typing import Card, Json, Names
from ..backend import cores
from ..metrics.comparison import Comparison
from ..metrics.evaluation import BRACKETS, Evaluation, aligned
from ..metrics.intervals import Intervals
from ..persistence import write_atomically
from ..plotting import SystemsDisplay
from .settings import to_toml

SCHEMA = 2
"""Of results.json: all have title and provenance; figures stand in systems (of experiments) or in rows."""
KINDS = ("IW", "IC", "TW", "Total")
PAPER_SYSTEMS = ("cosine-plain", "plda-cell-raw", "jplda-printed-raw")
PUBLISHED = {
    "rsr2015": ((0.95, 7.86, 3.14, 1.45), (0.03, 6.50, 0.11, 0.73), (0.02, 3.23, 0.09, 0.41)),
    "huiting": ((0.86, 4.57, 6.71, 1.37), (0.17, 3.91, 0.83, 0.62), (0.13, 2.37, 0.70, 0.38)),
}
"""The paper's two tables, EER in % of its three systems by `KINDS`."""
BESIDE = {"rsr2015": "rsr2015", "huiting": "huiting", "cvau": "rsr2015", "audiomnist": "rsr2015"}
"""Which of them stands beside a corpus; none beside simulated vectors, and vectors of an unknown origin."""
PACKAGES = (
    "numpy",
    "scipy",
    "scikit-learn",
    "torch",
    "onnxruntime",
    "kaldi-native-fbank",
    "soundfile",
)


EXPLAINED = {
    "cosine": "the angle between the mean of the enrolment vectors and the test vector",
    "plda-cell": "PLDA whose classes are the combinations of both labels: the usual baseline",
    "plda-speaker": "PLDA of speakers, whatever the phrase",
    "plda-prior": "PLDA of the combinations with an isotropic prior, on vectors of length 1",
    "jplda-printed": "joint PLDA, trained and scored by the paper's formulas as published",
    "jplda-alone": "the paper's score of the speaker, whatever the phrase",
    "jplda-exact": "joint PLDA, trained by exact EM and scored exactly",
    "jplda-interaction": "joint PLDA with full noise and a view for how a speaker says a phrase",
    "jplda-prior": "the same with an isotropic prior, on vectors of length 1",
    "best": "a committee of two models per extractor, weighted and calibrated by held-out speakers, as mvplda train "
    "makes it",
}
"""Systems in a line, by name. Reduced are principal components, raw are the vectors as they come."""


@dataclass(frozen=True)
class SystemResult:
    """What one system reached.

    intervals : over speakers, where they were asked for
    seconds : of fitting and scoring
    sample : (n,) scores of the trials of intervals and comparison
    seeds : see `over_seeds`; empty where there was one
    """

    name: str
    title: str
    evaluation: Evaluation
    intervals: Intervals | None
    seconds: float
    llr: bool
    sample: Names
    seeds: Card = field(default_factory=dict)

    def cells(self, form: str = "") -> list[str]:
        """The columns of `Evaluation.summary`; with intervals in that form, where there is one."""
        around = self.intervals if form else None
        texts = []
        for _, metric, kind in self.evaluation.summary():
            if metric.needs_llr and not self.llr:
                texts.append(metric.unknown)
            else:
                texts.append(self.evaluation.cell(metric, kind, around, form))
        return texts

    def errors(self) -> list[str]:
        """EER by kind with intervals: over speakers, or, where there were several seeds, over both."""
        if self.seeds:
            return [seeds_cell(row) for row in self.seeds.values()]
        return self.cells(BRACKETS)[: len(self.evaluation.rows)]

    def to_dict(self) -> Json:
        values: Json = {"title": self.title, "seconds": round(self.seconds, 2)}
        values |= self.evaluation.to_dict()
        if self.intervals is not None:
            values["intervals"] = self.intervals.to_dict()
        if self.seeds:
            values["seeds"] = dict(self.seeds)
        return values


def table_line(name: str, cells: Sequence[str]) -> str:
    """Widths are fixed: lines are shown one by one, before the last system is known."""
    return f"{name:40}" + "".join(f"  {cell:>7}" for cell in cells)


def over_seeds(runs: Sequence[tuple[Evaluation, Intervals | None]]) -> Json:
    """EER by kind over runs with different seeds: mean, values, and a 95 % interval over speakers and seeds.

    On a logarithmic scale the two parts add up as variances do. The speakers are the same in all runs, so that their
    part is that of one run; that of the seeds falls with their number.
    """
    rows: Json = {}
    for kind in runs[0][0].rows:
        values = np.array([evaluation[kind]["eer"] for evaluation, _ in runs])
        mean = float(values.mean())
        rows[kind] = {"eer": mean, "values": values.tolist()}
        around = [intervals.of(kind, "eer") for _, intervals in runs if intervals is not None]
        ends = [(end.low, end.estimate, end.high) for end in around if end is not None]
        if len(ends) < len(runs) or len(runs) < 2 or not (values > 0).all():
            continue
        # averaged before logarithms are taken: in some runs the lower end may be zero
        low, estimate, high = np.log(np.maximum(np.mean(ends, axis=0), 1e-9))
        # few seeds: their deviation is uncertain, too
        width = student.ppf(0.975, len(runs) - 1) / math.sqrt(len(runs))
        seeds = width * np.log(values).std(ddof=1)
        rows[kind]["low"] = mean * math.exp(-math.hypot(estimate - low, seeds))
        rows[kind]["high"] = min(0.5, mean * math.exp(math.hypot(high - estimate, seeds)))
    return rows


@dataclass(frozen=True)
class Results:
    """All systems on one corpus.

    summary : the corpus and its protocol in words
    comparisons : of pairs of systems, by name, on the same resamples of speakers
    configuration : what made it, as plain values
    provenance : program, machine, command and inputs
    """

    systems: tuple[SystemResult, ...]
    comparisons: Mapping[tuple[str, str], Comparison]
    title: str = ""
    summary: str = ""
    configuration: Card = field(default_factory=dict)
    provenance: Card = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def kinds(self) -> list[str]:
        """IW, IC, TW, Total; or the kinds that other views make."""
        return list(self.systems[0].evaluation.rows)

    def __getitem__(self, name: str) -> SystemResult:
        return next(system for system in self.systems if system.name == name)

    def table(self) -> str:
        """EER with intervals, one row per system.

        Where the paper's systems were run on recordings of phrases, its figures stand in front of ours, and below a
        line what it does not have.
        """
        corpus = BESIDE.get(self.configuration.get("corpus", {}).get("name", ""))
        published = {}
        if corpus is not None:
            published = dict(zip(PAPER_SYSTEMS, PUBLISHED[corpus], strict=True))
        rows = [["EER, %", *self.kinds]]
        beside = [[f"{kind}, paper" for kind in self.kinds]]
        under = 0
        for system in self.systems:
            rows.append([system.title, *system.errors()])
            theirs = [""] * len(self.kinds)
            if system.name in published:
                theirs = [f"{figure:.2f}" for figure in published[system.name]]
                under = len(rows)
            beside.append(theirs)
        if not under:
            return "\n".join(aligned(rows))
        for row, theirs in zip(rows, beside, strict=True):
            row[1:] = chain.from_iterable(zip(theirs, row[1:], strict=True))
        lines = aligned(rows)
        lines.insert(under, "-" * len(lines[0]))
        lines.append(f"paper: arXiv 1704.06061, on {corpus}")
        return "\n".join(lines)

    def best(self) -> SystemResult:
        """The system with the fewest errors in total."""
        return min(self.systems, key=lambda own: own.evaluation["Total"]["eer"])

    def claims(self) -> list[list[str]]:
        """Rows of cells, the head first: one system's errors as shares of another's."""
        rows = [["EER as a share of another system's; + fewer, - more", *self.kinds]]
        for (ours, theirs), compared in self.comparisons.items():
            name = f"{self[ours].title} / {self[theirs].title}"
            rows.append([name, *(_ratio(compared, kind) for kind in self.kinds)])
        return rows

    def to_dict(self) -> Json:
        """Plain values for JSON."""
        compared = [
            {"of": ours, "with": theirs, **comparison.to_dict()}
            for (ours, theirs), comparison in self.comparisons.items()
        ]
        return {
            "title": self.title,
            "corpus": self.summary,
            "provenance": dict(self.provenance),
            "configuration": dict(self.configuration),
            "notes": list(self.notes),
            "systems": {system.name: system.to_dict() for system in self.systems},
            "comparisons": compared,
        }

    def save(self, folder: Path) -> None:
        """table.txt and results.json."""
        parts = [self.summary, self.table(), "\n".join(aligned(self.claims()))]
        files = {
            "table.txt": "\n\n".join(parts) + "\n",
            "results.json": json.dumps(self.to_dict(), indent=1) + "\n",
        }
        for name, content in files.items():
            write_atomically(folder / name, content.encode())

    def write_page(self, path: Path, source: str) -> None:
        """Write the page: all systems, then the best of them as `mvplda evaluate` shows one."""
        named = {own.title: own for own in self.systems}
        measured = {title: (own.evaluation, own.intervals) for title, own in named.items()}
        plot = draw.figures(SystemsDisplay(measured, self.kinds))
        rows = []
        for title, own in named.items():
            rows.append([html.escape(title), *own.cells(draw.INTERVAL), f"{own.seconds:.1f}"])
        best = self.best()
        about = (best.evaluation, best.intervals)
        finding = html.escape(f"Best system: {best.title}, {draw.headline(*about)}.")
        head = ["EER, %", *(heading for heading, _, _ in best.evaluation.summary()), "s"]
        words = {own.title: explained(own.name) for own in self.systems}
        claimed, *claims = self.claims()
        compared = [[html.escape(cell) for cell in row] for row in claims]
        notes = [f"Data: {source}.", *(f"Not used: {note}" for note in self.notes[:20])]
        body = (
            f'<p class="finding">{finding}</p>'
            f"<p>{'<br>'.join(map(html.escape, self.summary.splitlines()))}</p>"
            f"<h2>Systems</h2>{draw.html_table(head, rows, self.systems.index(best))}{plot}"
            f"<h2>Compared</h2>{draw.html_table(claimed, compared)}"
            f"<h2>What the names mean</h2>{draw.words_list(words)}"
            f"<h2>{html.escape(best.title)}</h2>{draw.tables(*about)}{draw.notes_list(notes)}"
            f"{draw.fold_away('The configuration', to_toml(self.configuration))}"
        )
        draw.write_page(path, self.title, body)


def explained(name: str) -> str:
    """What a system is."""
    name = name.partition(";")[0].removesuffix("-raw").removesuffix("-plain")
    return EXPLAINED.get(name, "")


def seeds_cell(row: Card) -> str:
    """Mean and interval of a row of `over_seeds`, in %."""
    text = f"{100 * row['eer']:.2f}"
    if "low" in row:
        text += f" [{100 * row['low']:.2f}, {100 * row['high']:.2f}]"
    return text


def _ratio(compared: Comparison, kind: str) -> str:
    """EER of one system over that of another; a dash where it is not known, as of a kind without trials."""
    test = compared.tests.get(kind, {}).get("eer")
    if test is None or math.isnan(test.ratio):
        return "-"
    sign = {"A": " +", "B": " -"}.get(test.verdict, "  ")
    return f"{test.ratio:.2f} [{test.ratio_low:.2f}, {test.ratio_high:.2f}]{sign}"


def provenance(inputs: Iterable[str | Path] = ()) -> Json:
    """Version, commit, date, platform, packages, threads, command and SHA-256 of the inputs."""
    installed = {one.name: one.version for one in distributions()}
    # with "-m module", which sys.argv does not have
    words = [Path(word).name if os.path.isabs(word) else word for word in sys.orig_argv[1:]]
    return {
        "schema": SCHEMA,
        "mvplda": __version__,
        "commit": _commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "packages": {name: installed[name] for name in PACKAGES if name in installed},
        "cores": cores(),
        "threads": os.environ.get("OMP_NUM_THREADS", ""),
        "command": " ".join(["python", *words]).replace("python mvplda ", "mvplda ", 1),
        "inputs": {Path(path).name: digest_of(Path(path)) for path in inputs},
    }


def digest_of(path: Path) -> str:
    """SHA-256 of a file, or of the names and sizes of the files under a folder."""
    if path.is_file():
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    digest = hashlib.sha256()
    # names and sizes: to read a whole corpus would take longer than many an experiment
    for file in sorted(path.rglob("*")):
        if file.is_file():
            digest.update(f"{file.relative_to(path)} {file.stat().st_size}\n".encode())
    return digest.hexdigest()


def _commit() -> str:
    """Of the source tree that is run, with a "+" where it has changes; empty for an installed package."""
    command = ["git", "describe", "--always", "--dirty=+", "--abbrev=12"]
    try:
        ended = subprocess.run(
            command, cwd=Path(__file__).parent, capture_output=True, text=True, timeout=5
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return ended.stdout.strip()
