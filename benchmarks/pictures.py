"""Plots of the long tables in results/ for the documents; ``python -m benchmarks tables`` draws them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results"
CONDITIONS = ("clean", "telephone", "noise", "room", "mixed")
PANELS = {
    "owners accepted, %": ("TC", None),
    "owners with other words\naccepted, %": ("TW", None),
    "impostors of the same sex with\nthe right words accepted, %": ("IC, same sex", None),
    "voices: EER, %\n(hollow: cosine)": ("EER speaker", "EER speaker, cosine"),
    "words: EER, %\n(hollow: cosine)": ("EER phrase", "EER phrase, cosine"),
}
"""Title of a panel: the measure of the default model, and that of the cosine."""


def _read(name: str) -> Any:
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))


def _case(row: dict[str, Any]) -> str:
    """Return the corpus and how people enrolled."""
    recordings = f"{row['recordings']} recording{'s' if row['recordings'] > 1 else ''}"
    if not row["deployed"]:
        return f"{row['corpus left out']}: {recordings}, nobody else enrolled"
    if row["phrases"] == "all":
        return f"{row['corpus left out']}: {recordings}, all phrases"
    phrases = {"own": "a phrase each", 1: "one phrase for all"}
    text = phrases.get(row["phrases"], f"{row['phrases']} phrases for all")
    return f"{row['corpus left out']}: {recordings}, {row['people']} people, {text}"


def default_model(target: Path) -> None:
    """Draw every row of the default model: one line per corpus and enrolment, one dot per condition."""
    from matplotlib.figure import Figure

    rows = _read("default-model/results.json")["rows"]
    cases = list(dict.fromkeys(_case(row) for row in rows))
    figure = Figure(figsize=(14, 0.2 * len(cases) + 2), layout="constrained")
    axes = figure.subplots(1, len(PANELS), sharey=True)
    for axis, (title, (measure, cosine)) in zip(axes, PANELS.items(), strict=True):
        for number, condition in enumerate(CONDITIONS):
            points = [row for row in rows if row["condition"] == condition]
            heights = [cases.index(_case(row)) + 0.12 * (number - 2) for row in points]
            values = [row.get(measure, row["accepted at 1 %"].get(measure)) for row in points]
            percent = [float("nan") if value is None else 100 * value for value in values]
            axis.scatter(percent, heights, s=16, color=f"C{number}", label=condition)
            if cosine is not None:
                percent = [100 * row.get(cosine, float("nan")) for row in points]
                axis.scatter(percent, heights, s=16, facecolors="none", edgecolors=f"C{number}")
        axis.set_title(title, fontsize=9)
        axis.grid(alpha=0.3)
        axis.tick_params(labelsize=8)
    axes[0].set_yticks(range(len(cases)), cases)
    axes[0].invert_yaxis()
    handles, names = axes[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=len(CONDITIONS), fontsize=9)
    _save(figure, target)


def training_speakers(target: Path) -> None:
    """Draw the errors of each system over the number of training speakers."""
    from matplotlib.figure import Figure

    text = (RESULTS / "speakers/table.md").read_text(encoding="utf-8")
    titles = ("same speaker and word", "same speaker, other word")
    figure = Figure(figsize=(11, 4.5), layout="constrained")
    axes = figure.subplots(1, 2)
    for axis, title, table in zip(axes, titles, text.strip().split("\n\n"), strict=True):
        lines = [
            [cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()
        ]
        head, _, *systems = lines
        for name, *errors in systems:
            style = "k--" if name.startswith("cosine") else "o-"
            axis.plot(head[1:], [float(error) for error in errors], style, label=name, markersize=4)
        axis.set_yscale("log")
        ticks = (2, 3, 5, 10, 20)
        axis.set_yticks(ticks, [str(tick) for tick in ticks])
        axis.minorticks_off()
        axis.set_title(f"{title}: EER, %", fontsize=10)
        axis.set_xlabel("training speakers")
        axis.grid(alpha=0.3)
    handles, names = axes[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=2, fontsize=8)
    _save(figure, target)


WRITING = {
    "cosine": "cosine",
    "PLDA (writer x character), rank 15": "PLDA (writer x character)",
    "two views, ranks 20 + 20": "two views",
}
"""Systems of the study of handwriting, with their names in the picture."""


def handwriting(target: Path) -> None:
    """Draw the errors of three systems on handwriting, by what differs."""
    from matplotlib.figure import Figure

    found = _read("beyond-speech/results.json")["rows"]["handwriting"]
    rows = {row["system"]: row for row in found}
    kinds = {"IW": "writer and character", "IC": "writer", "TW": "character", "Total": "all"}
    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.subplots()
    for number, (system, name) in enumerate(WRITING.items()):
        places = [place + 0.27 * (number - 1) for place in range(len(kinds))]
        axes.bar(places, [rows[system][kind] for kind in kinds], 0.25, label=name)
    axes.set_xticks(range(len(kinds)), list(kinds.values()))
    axes.set_xlabel("what differs from the profile")
    axes.set_ylabel("equal error rate, %")
    axes.legend(frameon=False)
    _save(figure, target)


def _save(figure: Any, target: Path) -> None:
    """Write SVG that is the same for the same data."""
    from matplotlib import rc_context

    with rc_context({"svg.hashsalt": target.stem, "svg.fonttype": "none"}):
        figure.savefig(target, metadata={"Date": None})


PICTURES = {
    "docs/default-model.svg": default_model,
    "docs/handwriting.svg": handwriting,
    "docs/training-speakers.svg": training_speakers,
}


def draw() -> list[Path]:
    """Draw all pictures; return their files."""
    for name, picture in PICTURES.items():
        picture(ROOT / name)
    return [ROOT / name for name in PICTURES]
