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
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from ... import __version__
from ... import report as draw
from ...backend import cores
from ...metrics.comparison import Comparison, PairedTest
from ...metrics.evaluation import Evaluation, aligned, markdown_rows
from ...metrics.intervals import Intervals
from ...persistence import write_atomically
from ...plotting import system_colours
from .configuration import to_toml

SCHEMA = 1
PUBLISHED = {
    "cosine-plain": {"IW": 0.95, "IC": 7.86, "TW": 3.14, "Total": 1.45},
    "plda-cell-raw": {"IW": 0.03, "IC": 6.50, "TW": 0.11, "Total": 0.73},
    "jplda-printed-raw": {"IW": 0.02, "IC": 3.23, "TW": 0.09, "Total": 0.41},
}
"""The paper's Table 1: EER in % on the evaluation set of RSR2015 part I."""
EXPLAINED = {
    "cosine": "the angle between the mean of the enrolment vectors and the test vector",
    "plda-cell": "PLDA whose classes are the combinations of both labels: the usual baseline",
    "plda-speaker": "PLDA of speakers, whatever the phrase",
    "cascade": "one PLDA of speakers and one of phrases, their scores added",
    "jplda-printed": "joint PLDA, trained and scored by the paper's formulas as published",
    "jplda-alone": "the paper's score of the speaker, whatever the phrase",
    "jplda-exact": "joint PLDA, trained by exact EM and scored exactly",
    "jplda-interaction": "joint PLDA with full noise and a view for how a speaker says a phrase",
    "jplda-known": "the same, where the phrase of the enrolment is given",
    "plda-whitened": "PLDA of the combinations on whitened vectors of length 1",
    "jplda-whitened": "joint PLDA with the interaction, on whitened vectors of length 1, phrase given",
    "best": "a committee of two models per extractor, weighted and calibrated by held-out speakers, as mvplda train "
    "makes it",
}
"""Systems in a line, by name. Reduced are principal components, raw are the vectors as they come."""
PACKAGES = (
    "numpy",
    "scipy",
    "scikit-learn",
    "torch",
    "onnxruntime",
    "kaldi-native-fbank",
    "soundfile",
)


@dataclass(frozen=True)
class SystemResult:
    """What one system reached.

    intervals : over speakers, where they were asked for
    seconds : of fitting and scoring
    groups : the same by group, where the protocol keeps groups apart
    sample : (n,) scores of the trials of intervals and comparison
    """

    name: str
    title: str
    evaluation: Evaluation
    intervals: Intervals | None
    seconds: float
    llr: bool
    groups: Mapping[str, Evaluation]
    sample: NDArray[Any]

    def cells(self, form: str = "", only: str | None = None) -> list[str]:
        """The columns of `Evaluation.summary`; with intervals in that form, in all or in one."""
        texts = []
        for heading, metric, kind in self.evaluation.summary():
            around = self.intervals if form and only in (None, heading) else None
            if metric.needs_llr and not self.llr:
                texts.append(metric.unknown)
            else:
                texts.append(self.evaluation.cell(metric, kind, around, form))
        return texts

    def line(self) -> str:
        """One line of the table for a terminal."""
        return table_line(self.title, [*self.cells(), f"{self.seconds:.1f}"])


def table_line(name: str, cells: Sequence[str]) -> str:
    """Widths are fixed: lines are shown one by one, before the last system is known."""
    return f"{name:40}" + "".join(f"  {cell:>7}" for cell in cells)


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
    configuration: Mapping[str, Any] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def kinds(self) -> list[str]:
        """IW, IC, TW, Total; or the kinds that other views make."""
        return list(self.systems[0].evaluation.rows)

    def __getitem__(self, name: str) -> SystemResult:
        return next(system for system in self.systems if system.name == name)

    @property
    def columns(self) -> list[str]:
        return [heading for heading, _, _ in self.systems[0].evaluation.summary()]

    def head(self) -> str:
        """The first line of the table for a terminal."""
        return table_line("EER, %", [*self.columns, "s"])

    def intervals_table(self, group: str | None = None) -> str:
        """EER with intervals, one row per system; of one group, without."""
        rows = [[f"EER, %, {group}" if group else "EER, %", *self.kinds]]
        for system in self.systems:
            if group is not None:
                system = replace(system, evaluation=system.groups[group], intervals=None)
            rows.append([system.title, *system.cells(" [{}, {}]")[: len(self.kinds)]])
        return "\n".join(aligned(rows))

    def beside_paper(self) -> str:
        """The paper's Table 1 in front of our figures; empty where none of its systems was run."""
        if not any(system.name in PUBLISHED for system in self.systems):
            return ""
        head = [f"{kind}, {whose}" for kind in self.kinds for whose in ("paper", "ours")]
        rows = [["EER, %; the paper: RSR2015", *head]]
        for system in self.systems:
            paper = PUBLISHED.get(system.name, {})
            row = [system.title.strip()]
            for kind, ours in zip(self.kinds, system.cells(" [{}, {}]"), strict=False):
                row += [f"{paper[kind]:.2f}" if kind in paper else "", ours]
            rows.append(row)
        lines = aligned(rows)
        # below a line stands what the paper does not have
        own = sum(system.name in PUBLISHED for system in self.systems)
        lines.insert(1 + own, "-" * len(lines[0]))
        return "\n".join(lines)

    def best(self) -> SystemResult:
        """The system with the fewest errors in total."""
        return min(self.systems, key=lambda own: own.evaluation["Total"]["eer"])

    def finding(self) -> str:
        """The best system, its errors, and how many fewer these are than of PLDA, or of the first system."""
        best = self.best()
        text = (
            f"Best system: {best.title.strip()}, {draw.headline(best.evaluation, best.intervals)}"
        )
        usual = [own for own in self.systems if own.name in ("plda-cell", "plda-cell-raw")]
        other = (usual or self.systems)[0]
        errors = [own.evaluation["Total"]["eer"] for own in (best, other)]
        if errors[0] < errors[1]:
            fewer = 100 * (1 - errors[0] / errors[1])
            text += f", {fewer:.0f} % fewer than {other.title.strip()} ({100 * errors[1]:.2f} %)"
        return (
            f"{text}. Errors are equal error rates (EER) of {', '.join(self.kinds[:-1])} together."
        )

    def claims(self) -> list[list[str]]:
        """Rows of cells, the head first: one system's errors as shares of another's."""
        rows = [["EER as a share of another system's; + fewer, - more", *self.kinds]]
        for (ours, theirs), compared in self.comparisons.items():
            name = f"{self[ours].title.strip()} / {self[theirs].title.strip()}"
            rows.append([name, *(_ratio(tests["eer"]) for tests in compared.tests.values())])
        return rows

    def markdown(self) -> str:
        """The table for a README."""
        rows = [["system", *self.columns]]
        for system in self.systems:
            rows.append([system.title.strip(), *system.cells(" [{}, {}]", only="Total")])
        return "\n".join(markdown_rows(rows)) + "\n"

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        systems = {}
        for system in self.systems:
            values: dict[str, Any] = {"title": system.title.strip()}
            values |= {"seconds": round(system.seconds, 2), **system.evaluation.to_dict()}
            if system.intervals is not None:
                values["intervals"] = system.intervals.to_dict()
            if system.groups:
                values["groups"] = {name: own.to_dict() for name, own in system.groups.items()}
            systems[system.name] = values
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
            "systems": systems,
            "comparisons": compared,
        }

    def save(self, folder: Path) -> None:
        """table.txt, table.md and results.json."""
        parts = [self.summary, self.intervals_table()]
        parts += [self.intervals_table(group) for group in self.systems[0].groups]
        parts += ["\n".join(aligned(self.claims())), self.beside_paper()]
        files = {
            "table.txt": "\n\n".join(filter(None, parts)) + "\n",
            "table.md": self.markdown(),
            "results.json": json.dumps(self.to_dict(), indent=1) + "\n",
        }
        for name, content in files.items():
            write_atomically(folder / name, content.encode())


def explained(name: str) -> str:
    """What a system is."""
    return EXPLAINED.get(name.removesuffix("-raw").removesuffix("-plain"), "")


def _ratio(test: PairedTest) -> str:
    if math.isnan(test.ratio):
        return "-"
    sign = {"A": " +", "B": " -"}.get(test.verdict, "  ")
    return f"{test.ratio:.2f} [{test.ratio_low:.2f}, {test.ratio_high:.2f}]{sign}"


def write_experiment_page(
    results: Results, path: Path, source: str, history: Sequence[Mapping[str, Any]]
) -> None:
    """Write the page and, beside it, its plots.

    history : of the network that made the vectors
    """
    folder = draw.folder_beside(path)
    folder.mkdir(parents=True, exist_ok=True)
    named = {own.title.strip(): own for own in results.systems}
    measured = {title: (own.evaluation, own.intervals) for title, own in named.items()}
    plots: dict[str, Any] = {
        "systems": (
            "EER of every system by kind of trial; lines are the intervals over speakers.",
            lambda axes: draw.bars_of_systems(axes, measured, results.kinds),
        ),
    }
    if history:
        plots["training"] = (
            "The network by epoch: its loss, and its errors.",
            lambda axes: draw.training_plot(axes, history),
        )
    shown, _ = draw.write_pictures(plots, folder)
    best = results.best()
    about = (best.evaluation, best.intervals)
    rows = []
    for (title, system), colour in zip(named.items(), system_colours(named).values(), strict=True):
        name = f'<i class="dot" style="background:{colour}"></i>{html.escape(title)}'
        rows.append([name, *system.cells(draw.INTERVAL), f"{system.seconds:.1f}"])
    place = results.systems.index(best)
    table = draw.html_table(["EER, %", *results.columns, "s"], rows, place)
    head, *others = results.claims()
    compared = draw.html_table(head, [[html.escape(cell) for cell in row] for row in others])
    names = {title: explained(own.name) for title, own in named.items()}
    names |= {k: w for k, w in draw.KIND_WORDS.items() if k in results.kinds}
    notes = results.systems[0].evaluation.definitions(results.systems[0].intervals)
    notes.append(f"Data: {source}.")
    notes += [f"Not used: {note}" for note in results.notes[:20]]
    body = (
        f'<p class="finding">{html.escape(results.finding())}</p>'
        f"<p>{'<br>'.join(map(html.escape, results.summary.splitlines()))}</p>"
        f"<h2>What to do next</h2>{draw.notes_list(draw.advice(*about), 'advice')}"
        f"{draw.thresholds_table(*about)}"
        f"<h2>Systems</h2>{table}{shown}<h2>Compared</h2>{compared}"
        f"<h2>What the names mean</h2>{draw.words_list(names)}{draw.notes_list(notes)}"
        f"{draw.fold_away('The table as markdown', results.markdown())}"
        f"{draw.fold_away('The configuration', to_toml(results.configuration))}"
    )
    draw.write_page(path, results.title, body)


def provenance(inputs: Iterable[str | Path] = ()) -> dict[str, Any]:
    """Version, commit, date, platform, packages, threads, command and SHA-256 of the inputs."""
    installed = {one.name: one.version for one in distributions()}
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
        "command": " ".join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        "inputs": {Path(path).name: digest_of(Path(path)) for path in inputs},
    }


def digest_of(path: Path) -> str:
    """SHA-256 of a file, or of the names and sizes of the files under a folder."""
    if path.is_file():
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    digest = hashlib.sha256()
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
