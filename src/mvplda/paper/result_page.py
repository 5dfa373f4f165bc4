"""Writing of the result page of an experiment: one self-contained HTML file with the model, error rates and plots."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtri

from .. import report as draw
from ..metrics.curves import Curve, SortedScores
from ..plotting import (
    INK,
    PALETTE,
    SMALL,
    Display,
    SystemsDisplay,
    legend_below,
    set_probit_axes,
)
from .experiment_settings import to_toml
from .results import KINDS, PUBLISHED, PUBLISHED_CORPUS, Results, SystemResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from .trial_sample import TrialSample

EXPLANATIONS = {
    "cosine": "the angle between the mean of the enrolment vectors and the test vector",
    "plda-cell": "PLDA whose classes are the combinations of both labels: the usual baseline",
    "plda-speaker": "PLDA of speakers, for any phrase",
    "plda-prior": "PLDA of the combinations with an isotropic prior, on vectors of unit length",
    "jplda-printed": "joint PLDA, trained and scored by the paper's formulas as published",
    "jplda-alone": "the paper's score of the speaker alone, for any phrase",
    "jplda-exact": "joint PLDA, trained by exact EM and scored exactly",
    "jplda-interaction": "joint PLDA with full noise and an interaction view for each speaker's way to say a phrase",
    "jplda-prior": "joint PLDA with an interaction view and an isotropic prior, on vectors of unit length",
    "best": "a committee of two models per extractor, weighted and calibrated on held-out speakers, as trained by "
    "mvplda train",
}
"""{name of a system without the suffix "-raw" or "-plain": one-line description}."""
PAPER = (
    'Z. Shi, L. Liu, M. Wang and R. Liu, <a href="https://arxiv.org/abs/1704.06061">Multi-view (Joint) Probability '
    "Linear Discrimination Analysis for Multi-view Feature Verification</a>"
)
STORY = (
    f"<p>A recording has two labels at once: who speaks, and which phrase. {PAPER}, model both in one step. Each "
    "vector is the sum of a mean, a part of its speaker, a part of its phrase, and noise. Joint PLDA (jPLDA) compares "
    "four explanations of a pair of recordings; plain PLDA treats every combination of a speaker and a phrase as a "
    "class. The paper reports about half of the errors of PLDA. This page repeats the comparison{}. No speaker who is "
    "enrolled or tested here was in the training.</p>"
)
HYPOTHESES = {
    "TC": ("same speaker, same phrase", "accept"),
    "TW": ("same speaker, other phrase", "reject"),
    "IC": ("other speaker, same phrase: the hardest kind for a model of combinations", "reject"),
    "IW": ("other speaker, other phrase", "reject"),
}
"""{kind of trial: (hypothesis about the pair of recordings, right decision)}."""
COUNTERPARTS = (
    ("cosine of j-vectors", ("cosine-plain", "cosine")),
    ("PLDA", ("plda-cell-raw", "plda-cell")),
    ("jPLDA", ("jplda-printed-raw", "jplda-printed")),
    ("jPLDA", ("jplda-exact-raw", "jplda-exact")),
)
"""(name of a system in the paper, names of the corresponding systems of mvplda, the closest first)."""
CLAIMS = (("jplda-exact-raw", "plda-cell-raw"), ("jplda-exact", "plda-cell"))
"""Pairs of systems that test the paper's claim, joint PLDA against PLDA; the first pair that was run is used."""
CURVES = ("TW", "IC", "Total")
"""Kinds of trials with a plot of DET curves. Impostors with the wrong phrase (IW) cause too few errors for a curve."""
OUTPUTS = {
    "extractor.onnx": "the trained network; usable like any other extractor",
    "model.safetensors": "the system called best with its calibration, for mvplda score",
    "vectors.npz": "one vector per recording",
    "results.json": "all figures, comparisons and settings; table.txt has the most important ones",
}
"""{file beside the page: its content}."""
NEXT_COMMANDS = {
    "mvplda experiment folder RECORDINGS/": "the same table for your recordings, speaker/phrase/*.wav",
    "mvplda extract RECORDINGS/ -x extractor.onnx -o vectors.npz": "vectors of other recordings",
    "mvplda reproduce rsr2015 RSR2015/": "the paper's network and settings on the paper's corpus",
}


class SystemsDetDisplay(Display):
    """Plot of the DET curves of several systems for one kind of trial, or for all kinds ("Total").

    Parameters
    ----------
    systems : results, with the scores of the sampled trials
    sample : sampled trials
    kind : kind of the non-target trials, or "Total"
    """

    def __init__(self, systems: Sequence[SystemResult], sample: TrialSample, kind: str) -> None:
        self.systems = systems
        self.sample = sample
        self.kind = kind
        words = "all kinds of trials" if kind == "Total" else HYPOTHESES.get(kind, (kind,))[0]
        self.CAPTION = (
            f"{kind} ({words}): misses against false alarms on probit axes. Lower left is better."
        )

    def _draw(self, axes: Axes) -> None:
        target, *non_targets = self.sample.kinds
        kinds = non_targets if self.kind == "Total" else [self.kind]
        for i, system in enumerate(self.systems):
            curve = self._curve(system, target, kinds)
            _, miss, false_alarm = curve.steps()
            is_finite = (miss > 0) & (miss < 1) & (false_alarm > 0) & (false_alarm < 1)
            axes.plot(
                ndtri(false_alarm[is_finite]),
                ndtri(miss[is_finite]),
                color=(*PALETTE, INK)[i % (len(PALETTE) + 1)],
                label=f"{system.title}: {100 * system.evaluation[self.kind]['eer']:.2f} %",
            )
        set_probit_axes(axes)
        axes.set_title(f"{self.kind}; EER in the legend", fontsize=SMALL)
        legend_below(axes, 2)

    def _curve(self, system: SystemResult, target: str, kinds: Iterable[str]) -> Curve:
        """Return the DET curve of a system; each sampled trial counts as many times as the trials it represents.

        target : name of the kind of target trials
        kinds : names of the kinds of non-target trials
        """
        scores = []
        weights = []
        for kind in kinds:
            scores.append(system.sample[self.sample.kinds[kind]])
            weights.append(np.full(len(scores[-1]), self.sample.weights[kind]))
        joined = np.concatenate(scores)
        order = np.argsort(joined)
        sorted_scores = SortedScores(joined[order], np.concatenate(weights)[order])
        return Curve(SortedScores(np.sort(system.sample[self.sample.kinds[target]])), sorted_scores)


def write_result_page(path: Path, results: Results, source: str) -> None:
    """Write the result page of an experiment as a self-contained HTML file.

    Parameters
    ----------
    path : file to write
    results : results of all systems
    source : citation of the corpus; empty: none
    """
    best = results.best()
    measured = (best.evaluation, best.intervals)
    by_title = {system.title: system for system in results.systems}
    errors = {title: (system.evaluation, system.intervals) for title, system in by_title.items()}
    finding = html.escape(f"Best system: {best.title}, with {draw.headline(*measured)}.")
    is_papers_task = results.views == ("speaker", "phrase")
    corpus = f" on {html.escape(source)}" if source else ""
    summary = "<br>".join(map(html.escape, results.summary.splitlines()))
    notes = [f"Data: {source}.", *(f"Not used: {note}" for note in results.notes[:20])]
    explanations = {title: explained(system.name) for title, system in by_title.items()}
    sections = [
        STORY.format(corpus) if is_papers_task else "",
        f'<p class="finding">{finding}{_claim(results)}</p><p>{summary}</p>',
        _model(results) if is_papers_task else "",
        f"<h2>Error rates</h2>{systems_table(results)}{_group_tables(results)}",
        draw.figures(SystemsDisplay(errors, results.kinds)),
        _beside_the_paper(results) if is_papers_task else "",
        _det_curves(results),
        f"<h2>The systems</h2>{draw.definition_list(explanations)}",
        _comparisons(results),
        _next_steps(path.parent),
        f"<h2>The best system in detail: {html.escape(best.title)}</h2>{draw.tables(*measured)}",
        draw.notes_list(notes),
        draw.collapsible("Configuration", to_toml(results.configuration)),
    ]
    draw.write_page(path, f"Joint PLDA: {results.title}", "".join(sections))


def _claim(results: Results) -> str:
    """Return a sentence with the measured ratio of the errors of joint PLDA and PLDA, beside the paper's ratio.

    Returns "" if these systems were not compared.
    """
    for system, reference in CLAIMS:
        compared = results.comparisons.get((system, reference))
        if compared is not None:
            test = compared.tests["Total"]["eer"]
            return (
                f" Ratio of the EER of joint PLDA to that of PLDA: {test.ratio:.2f} ({test.ratio_low:.2f} to "
                f"{test.ratio_high:.2f}); in the paper, on RSR2015: 0.56."
            )
    return ""


def _model(results: Results) -> str:
    """Return the HTML section about the model: pictures of model and hypotheses, and a table of the trials per kind."""
    rows = []
    for kind, (hypothesis, decision) in HYPOTHESES.items():
        row = results.systems[0].evaluation["Total" if kind == "TC" else kind]
        count = row.n_targets if kind == "TC" else row.n_nontargets
        rows.append([f"{kind}: {hypothesis}", decision, f"{count:,}"])
    captions = {
        "model": "The model. The paper's joint PLDA has a part of the speaker and a part of the phrase; the "
        "interaction, each speaker's way to say a phrase, is an extension.",
        "hypotheses": "The four hypotheses about an enrolled and a test vector. The score is the likelihood of TC "
        "divided by the average likelihood of the other three.",
    }
    pictures = ""
    for name, caption in captions.items():
        svg = (files(__package__) / "pictures" / f"{name}.svg").read_text(encoding="utf-8")
        picture = draw.inline_svg(svg, name)
        pictures += f"<figure>{picture}<figcaption>{caption}</figcaption></figure>"
    table = draw.html_table(["hypothesis", "right decision", "trials here"], rows)
    return f'<h2>The model and the question</h2><div class="figures">{pictures}</div><p></p>{table}'


def systems_table(results: Results) -> str:
    """Return an HTML table with the error rates of all systems and their intervals; the best system is highlighted."""
    rows = []
    for system in results.systems:
        cells = system.table_texts(draw.INTERVAL)
        rows.append([html.escape(system.title), *cells, f"{system.seconds:.1f}"])
    best = results.best()
    head = ["EER, %", *(heading for heading, _, _ in best.evaluation.summary()), "s"]
    return draw.html_table(head, rows, results.systems.index(best))


def _group_tables(results: Results) -> str:
    """Return an HTML table of error rates for each group of enrolments, such as a gender; "" without groups."""
    return "".join(
        f"<h3>Enrolments of {html.escape(name)} speakers</h3>{systems_table(group)}"
        for name, group in results.of_groups().items()
    )


def _beside_the_paper(results: Results) -> str:
    """Return an HTML section that compares error rates with those in the paper.

    Returns "" if none of the paper's systems was run.
    """
    published = PUBLISHED_CORPUS.get(results.corpus_name, "rsr2015")
    figures = dict(zip(("cosine of j-vectors", "PLDA", "jPLDA"), PUBLISHED[published], strict=True))
    by_name = {system.name: system for system in results.systems}
    rows = []
    for paper_name, counterparts in COUNTERPARTS:
        ours = next((by_name[name] for name in counterparts if name in by_name), None)
        if ours is None:
            continue
        cells = [
            f'{100 * ours.evaluation[kind]["eer"]:.2f}<small class="interval">paper {figure:.2f}</small>'
            for kind, figure in zip(KINDS, figures[paper_name], strict=True)
        ]
        rows.append([f"{html.escape(ours.title)}<br><small>paper: {paper_name}</small>", *cells])
    if not rows:
        return ""
    text = "The same corpus as the paper's."
    if results.corpus_name != published:
        name = "RSR2015" if published == "rsr2015" else "Huiting202"
        text = f"The paper's figures are of other data, {name}: compare the order of the systems, not the figures."
    table = draw.html_table(["EER, %", *KINDS], rows)
    return f"<h2>Beside the paper's figures</h2><p>{text}</p>{table}"


def _det_curves(results: Results) -> str:
    """Return the HTML section with a plot of all systems' DET curves per kind of trial; "" without sampled trials."""
    sample = results.sample
    if sample is None:
        return ""
    kinds = results.kinds
    if set(CURVES) <= set(kinds):
        kinds = list(CURVES)
    kinds = [kind for kind in kinds if kind == "Total" or sample.kinds[kind].any()]
    displays = [SystemsDetDisplay(results.systems, sample, kind) for kind in kinds]
    return f"<h2>Detection error trade-off</h2>{draw.figures(*displays)}"


def _comparisons(results: Results) -> str:
    """Return the HTML section with the ratios of error rates between systems; "" if none were compared."""
    head, *claims = results.claims()
    rows = [[html.escape(cell) for cell in row] for row in claims]
    return f"<h2>Comparisons</h2>{draw.html_table(head, rows)}" if rows else ""


def _next_steps(folder: Path) -> str:
    """Return the HTML section that lists the files in `folder` and commands that use them."""
    outputs = {name: text for name, text in OUTPUTS.items() if (folder / name).is_file()}
    return f"<h2>Next steps</h2>{draw.definition_list({**outputs, **NEXT_COMMANDS})}"


def explained(name: str) -> str:
    """Return the one-line description of a system, or "" if there is none.

    name : name of the system, such as "jplda-exact-raw"; settings after ";" are ignored
    """
    name = name.partition(";")[0].removesuffix("-raw").removesuffix("-plain")
    return EXPLANATIONS.get(name, "")
