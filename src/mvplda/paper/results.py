"""Results of an experiment: error rates per system and kind of trial, comparisons of systems, and their files."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any, Required, TypedDict

import numpy as np
from scipy.stats import t as student

from .._typing import Card, Json, Names, Views
from ..atomic_files import write_atomically
from ..metrics.comparison import SystemComparison
from ..metrics.evaluation import BRACKETS, Evaluation, align_columns
from ..metrics.intervals import Intervals
from .provenance import SCHEMA, results_text
from .trial_sample import TrialSample

KINDS = ("IW", "IC", "TW", "Total")
PUBLISHED_SYSTEMS = ("cosine-plain", "plda-cell-raw", "jplda-printed-raw")
PUBLISHED = {
    "rsr2015": ((0.95, 7.86, 3.14, 1.45), (0.03, 6.50, 0.11, 0.73), (0.02, 3.23, 0.09, 0.41)),
    "huiting": ((0.86, 4.57, 6.71, 1.37), (0.17, 3.91, 0.83, 0.62), (0.13, 2.37, 0.70, 0.38)),
}
"""The paper's two tables, by corpus: EER in %, with a row per system of `PUBLISHED_SYSTEMS` and a column per kind of
`KINDS`."""
PUBLISHED_CORPUS = {
    "rsr2015": "rsr2015",
    "huiting": "huiting",
    "cvau": "rsr2015",
    "audiomnist": "rsr2015",
}
"""{corpus: published table shown next to its results}; none for simulated vectors or vectors of unknown origin."""


class SeedsRow(TypedDict, total=False):
    """EER of one kind of trial in several runs with different seeds.

    eer : mean EER over the seeds
    values : EER of each seed
    low, high : 95 % interval over speakers and seeds; missing if it cannot be computed
    """

    eer: Required[float]
    values: Required[list[float]]
    low: float
    high: float


Measured = tuple[Evaluation, Intervals | None]
"""Error rates and costs per kind of trial, and their intervals over speakers (None if there are too few speakers)."""


@dataclass(frozen=True)
class SystemResult:
    """Result of one system of an experiment.

    name, title : name on the command line, and title in tables
    evaluation : error rates and costs per kind of trial
    intervals : intervals over speakers, or None
    seconds : duration of fitting and scoring
    llr : whether the scores are log-likelihood ratios
    sample : (n,) scores of the trials for intervals and comparisons
    seeds : result of `over_seeds`; empty for a single seed
    groups : {group of enrolments, such as a gender: results}; empty without groups
    """

    name: str
    title: str
    evaluation: Evaluation
    intervals: Intervals | None
    seconds: float
    llr: bool
    sample: Names
    seeds: Mapping[str, SeedsRow] = field(default_factory=dict)
    groups: Mapping[str, Measured] = field(default_factory=dict)

    def table_texts(self, form: str = "") -> list[str]:
        """Return the system's error rates and costs as the texts of one row of a table.

        The columns are those of `mvplda.metrics.evaluation.Evaluation.summary`.

        form : format of the intervals, such as `mvplda.metrics.evaluation.BRACKETS`; empty: no intervals
        """
        intervals = self.intervals if form else None
        texts = []
        for _, metric, kind in self.evaluation.summary():
            if metric.needs_llr and not self.llr:
                texts.append(metric.unknown)
            else:
                texts.append(self.evaluation.cell(metric, kind, intervals, form))
        return texts

    def errors(self) -> list[str]:
        """Return the EER of each kind of trial as text, with its interval over speakers.

        If the system was run with several seeds, the EER is their mean and the interval includes the seeds.
        """
        if self.seeds:
            return [seeds_cell(row) for row in self.seeds.values()]
        return self.table_texts(BRACKETS)[: len(self.evaluation.rows)]

    def of_group(self, name: str) -> SystemResult:
        """Return the result of this system for the enrolments of the group `name` only."""
        evaluation, intervals = self.groups[name]
        return replace(self, evaluation=evaluation, intervals=intervals, seeds={}, groups={})

    def to_dict(self) -> Json:
        """Return the result as plain values for JSON, without the scores of single trials."""
        values: Json = {"title": self.title, "seconds": round(self.seconds, 2)}
        values |= _measured_values(self.evaluation, self.intervals)
        if self.groups:
            values["groups"] = {
                name: _measured_values(*measured) for name, measured in self.groups.items()
            }
        if self.seeds:
            values["seeds"] = dict(self.seeds)
        return values


def _measured_values(evaluation: Evaluation, intervals: Intervals | None) -> Json:
    """Return error rates, and intervals if there are any, as plain values for JSON."""
    values: Json = dict(evaluation.to_dict())
    if intervals is not None:
        values["intervals"] = intervals.to_dict()
    return values


def table_line(name: str, cells: Sequence[str]) -> str:
    """Return a line of the table on the terminal: a name and cells in columns of fixed width."""
    return f"{name:40}" + "".join(f"  {cell:>7}" for cell in cells)


def over_seeds(runs: Sequence[Measured]) -> dict[str, SeedsRow]:
    """Summarise the EER of each kind of trial over runs with different seeds.

    The 95 % interval combines two independent sources of variation, whose variances add up on a logarithmic scale: the
    speakers, which are the same in all runs, and the seeds, whose contribution decreases with their number.

    Parameters
    ----------
    runs : for each seed, the evaluation and its intervals over speakers

    Returns
    -------
    {kind: mean, EER of each seed, and interval if every run has one and no EER is 0}
    """
    rows: dict[str, SeedsRow] = {}
    for kind in runs[0][0].rows:
        values = np.array([evaluation[kind]["eer"] for evaluation, _ in runs])
        mean = float(values.mean())
        rows[kind] = {"eer": mean, "values": values.tolist()}
        by_speakers = [intervals.of(kind, "eer") for _, intervals in runs if intervals is not None]
        ends = [(item.low, item.estimate, item.high) for item in by_speakers if item is not None]
        if len(ends) < len(runs) or len(runs) < 2 or not (values > 0).all():
            continue

        # averaged before taking logarithms: the lower end may be zero in some runs
        low, estimate, high = np.log(np.maximum(np.mean(ends, axis=0), 1e-9))
        # Student's t, because the deviation is estimated from few seeds
        width = student.ppf(0.975, len(runs) - 1) / math.sqrt(len(runs))
        seeds = width * np.log(values).std(ddof=1)
        rows[kind]["low"] = mean * math.exp(-math.hypot(estimate - low, seeds))
        rows[kind]["high"] = min(0.5, mean * math.exp(math.hypot(high - estimate, seeds)))
    return rows


@dataclass(frozen=True)
class Results:
    """Results of all systems of an experiment on one corpus.

    systems : results in the order of the table
    comparisons : {(system, reference): comparison on the same resamples of speakers}
    views : views of the trials; the first is the speaker
    sample : trials that the scores in `SystemResult.sample` belong to; None: no DET curves are drawn
    title : corpus and extractor
    summary : description of the corpus and its protocol
    configuration : settings of the experiment, as plain values
    provenance : origin of every system and comparison: command, commit and inputs, see `mvplda.paper.provenance`
    notes : id and reason of each unusable utterance
    """

    systems: tuple[SystemResult, ...]
    comparisons: Mapping[tuple[str, str], SystemComparison]
    views: Views = ("speaker", "phrase")
    sample: TrialSample | None = None
    title: str = ""
    summary: str = ""
    configuration: Mapping[str, Any] = field(default_factory=dict)
    provenance: Card = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def kinds(self) -> list[str]:
        """Kinds of trial with error rates, such as IW, IC, TW and Total for two views."""
        return list(self.systems[0].evaluation.rows)

    @property
    def corpus_name(self) -> str:
        """Name of the corpus in the configuration; empty if it is unknown."""
        corpus = self.configuration.get("corpus")
        return str(corpus.get("name", "")) if isinstance(corpus, Mapping) else ""

    def __getitem__(self, name: str) -> SystemResult:
        """Return the result of the system `name`."""
        return next(system for system in self.systems if system.name == name)

    def table(self) -> str:
        """Return a table of EERs with intervals as text, one row per system.

        If the paper has figures for comparison, they precede those of the same systems, and a line separates the
        paper's systems from the others.
        """
        published_corpus = PUBLISHED_CORPUS.get(self.corpus_name)
        published = {}
        if published_corpus is not None:
            published = dict(zip(PUBLISHED_SYSTEMS, PUBLISHED[published_corpus], strict=True))
        rows = [["EER, %", *self.kinds]]
        published_rows = [[f"{kind}, paper" for kind in self.kinds]]
        separator = 0
        for system in self.systems:
            rows.append([system.title, *system.errors()])
            cells = [""] * len(self.kinds)
            if system.name in published:
                cells = [f"{figure:.2f}" for figure in published[system.name]]
                separator = len(rows)
            published_rows.append(cells)
        if not separator:
            return "\n".join(align_columns(rows))

        # per kind, the published figure in front of the measured one
        for row, cells in zip(rows, published_rows, strict=True):
            row[1:] = chain.from_iterable(zip(cells, row[1:], strict=True))
        lines = align_columns(rows)
        lines.insert(separator, "-" * len(lines[0]))
        lines.append(f"paper: arXiv 1704.06061, on {published_corpus}")
        return "\n".join(lines)

    def of_groups(self) -> dict[str, Results]:
        """Return the results for each group of enrolments, such as a gender: {group: results of all systems}.

        Comparisons of systems and the paper's figures are left out.
        """
        names = self.systems[0].groups
        by_group = {name: tuple(system.of_group(name) for system in self.systems) for name in names}
        return {name: Results(systems, {}) for name, systems in by_group.items()}

    def best(self) -> SystemResult:
        """Return the result of the system with the lowest EER over all kinds of trials."""
        return min(self.systems, key=lambda system: system.evaluation["Total"]["eer"])

    def claims(self) -> list[list[str]]:
        """Return the table of comparisons as rows of texts: the ratio of EERs of two systems, per kind of trial.

        The first row is the header; each further row is for one pair of systems.
        """
        rows = [["ratio of EERs (+: first system better, -: worse)", *self.kinds]]
        for (system, reference), compared in self.comparisons.items():
            name = f"{self[system].title} / {self[reference].title}"
            rows.append([name, *(_ratio(compared, kind) for kind in self.kinds)])
        return rows

    def to_dict(self) -> Json:
        """Return the contents of results.json as plain values."""
        maker = {"provenance": dict(self.provenance)}
        compared = [
            {"of": ours, "with": theirs, **comparison.to_dict(), **maker}
            for (ours, theirs), comparison in self.comparisons.items()
        ]
        return {
            "schema": SCHEMA,
            "title": self.title,
            "corpus": self.summary,
            "configuration": dict(self.configuration),
            "notes": list(self.notes),
            "systems": {system.name: system.to_dict() | maker for system in self.systems},
            "comparisons": compared,
        }

    def save(self, folder: Path) -> None:
        """Write the tables (table.txt) and all figures (results.json) to a folder."""
        sections = [self.summary, self.table()]
        for name, results in self.of_groups().items():
            sections.append(f"Enrolments of {name} speakers only:\n{results.table()}")
        sections.append("\n".join(align_columns(self.claims())))
        files = {
            "table.txt": "\n\n".join(sections) + "\n",
            "results.json": results_text(self.to_dict()),
        }
        for name, content in files.items():
            write_atomically(folder / name, content.encode())


def seeds_cell(row: SeedsRow) -> str:
    """Return the mean EER over seeds in % as text, with its interval if there is one: "1.23 [0.98, 1.51]"."""
    text = f"{100 * row['eer']:.2f}"
    if "low" in row:
        text += f" [{100 * row['low']:.2f}, {100 * row['high']:.2f}]"
    return text


def _ratio(compared: SystemComparison, kind: str) -> str:
    """Return the ratio of two systems' EERs for a kind of trial as text with its interval; "-" if it is undefined.

    The text ends in "+" if the first system has significantly fewer errors, and in "-" if it has significantly more.
    """
    test = compared.tests.get(kind, {}).get("eer")
    if test is None or math.isnan(test.ratio):
        return "-"
    sign = {"A": " +", "B": " -"}.get(test.verdict, "  ")
    return f"{test.ratio:.2f} [{test.ratio_low:.2f}, {test.ratio_high:.2f}]{sign}"
