"""The tables of docs/paper.md: the paper's figures beside those of results/paper, which `mvplda experiment` made.

python benchmarks/paper_tables.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parents[1] / "results" / "paper"
KINDS = ("IW", "IC", "TW", "Total")
PAPER = {
    "RSR2015, the paper's": (
        (0.95, 0.03, 0.02),
        (7.86, 6.50, 3.23),
        (3.14, 0.11, 0.09),
        (1.45, 0.73, 0.41),
    ),
    "Huiting202, the paper's": (
        (0.86, 0.17, 0.13),
        (4.57, 3.91, 2.37),
        (6.71, 0.83, 0.70),
        (1.37, 0.62, 0.38),
    ),
}
CORPORA = {
    "jvectors": "j-vectors from elsewhere",
    "audiomnist-paper": "the paper's network",
    "audiomnist-paper-rbm": "the paper's network, pre-trained",
    "voice-words": "voice + words",
    "campplus-words": "CAM++ + words",
    "synthetic": "synthetic speech, small network",
    "huiting-synthetic": "synthetic speech in Huiting202's shape",
    "drawn": "drawn from the model",
    "huiting-drawn": "drawn, in Huiting202's shape",
}
RAW = {"cosine-plain": "cosine, plain", "plda-cell-raw": "PLDA (speaker x phrase)",
       "jplda-printed-raw": "jPLDA as published", "jplda-exact-raw": "jPLDA exact"}  # fmt: skip
REDUCED = {"cosine": "cosine, centred", "plda-cell": "PLDA (speaker x phrase)", "jplda-printed": "jPLDA as published",
           "jplda-exact": "jPLDA exact", "jplda-interaction": "with interaction", "plda-tuned": "PLDA, tuned",
           "jplda-tuned": "jPLDA, tuned"}  # fmt: skip
PAIRS = (("jplda-printed-raw", "plda-cell-raw"), ("jplda-exact-raw", "plda-cell-raw"), ("jplda-printed", "plda-cell"),
         ("jplda-exact", "plda-cell"), ("jplda-interaction", "jplda-exact"), ("jplda-tuned", "plda-tuned"),
         ("jplda-tuned", "plda-cell"))  # fmt: skip


def stored() -> dict[str, dict[str, Any]]:
    files = {name: RESULTS / name / "results.json" for name in CORPORA}
    return {name: json.loads(file.read_text()) for name, file in files.items() if file.is_file()}


def cell(system: dict[str, Any] | None, kind: str) -> str:
    """EER with its interval, in per cent."""
    if system is None:
        return ""
    found = f"{100 * system['kinds'][kind]['eer']:.2f}"
    ends = system.get("intervals", {}).get("kinds", {}).get(kind, {}).get("eer")
    return found if not ends else f"{found} [{100 * ends['low']:.2f}, {100 * ends['high']:.2f}]"


def by_kind(columns: dict[str, str], paper: bool) -> list[str]:
    lines = ["| | | " + " | ".join(columns.values()) + " |", "|:---|:---|" + "---:|" * len(columns)]
    for name, rows in PAPER.items() if paper else ():
        for kind, (cosine, plda, joint) in zip(KINDS, rows, strict=True):
            lines.append(
                f"| {name if kind == 'IW' else ''} | {kind} | {cosine:.2f} | {plda:.2f} | {joint:.2f} | |"
            )
    for name, found in stored().items():
        systems = found["systems"]
        if not set(columns) <= set(systems):
            continue
        for kind in KINDS:
            cells = [cell(systems.get(column), kind) for column in columns]
            lines.append(
                f"| {CORPORA[name] if kind == 'IW' else ''} | {kind} | " + " | ".join(cells) + " |"
            )
    return lines


def ratios(kind: str) -> list[str]:
    lines = [
        "| | " + " | ".join(f"{a} / {b}" for a, b in PAIRS) + " |",
        "|:---|" + "---:|" * len(PAIRS),
    ]
    for name, found in stored().items():
        tests = {
            (pair["of"], pair["with"]): pair["kinds"][kind]["eer"] for pair in found["comparisons"]
        }
        cells = [_ratio(tests.get(pair)) for pair in PAIRS]
        lines.append(f"| {CORPORA[name]} | " + " | ".join(cells) + " |")
    return lines


def _ratio(test: dict[str, Any] | None) -> str:
    if test is None:
        return ""
    share = f"{test['a'] / test['b']:.2f}"
    if "ratio_low" not in test:
        return share
    return f"{share} [{test['ratio_low']:.2f}, {test['ratio_high']:.2f}]"


if __name__ == "__main__":
    for title, lines in (
        ("raw vectors", by_kind(RAW, True)),
        ("reduced vectors", by_kind(REDUCED, False)),
        ("shares, IC", ratios("IC")),
        ("shares, Total", ratios("Total")),
    ):
        print(f"\n{title}\n\n" + "\n".join(lines))
