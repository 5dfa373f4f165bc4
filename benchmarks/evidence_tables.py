"""Tables of the study `benchmarks.evidence` for the documents, from results/evidence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import mean
from typing import Any

from benchmarks.evidence_data import DATA_SETS
from benchmarks.evidence_errors import KINDS

Row = Mapping[str, Any]
Cells = list[list[str]]
FOUR = ("cosine", "PLDA", "two views", "three views")
NAMES = {
    "cvau": "C-VAU, pass-phrases",
    "speech-commands": "Speech Commands, words",
    "digilets": "DigiLeTs, handwriting",
    "faces": "CMU faces by pose",
    "wuw": "WUW, words by telephone",
    "audiomnist": "AudioMNIST, digits",
    "jvectors": "AudioMNIST, j-vectors",
    "arabic": "Arabic words",
    "dspspeech": "DSPSpeech words",
}
QUESTION_NAMES = {
    "one label alone": "the same person, whatever the second label?",
    "new second labels": "both, with second labels that are new to the models",
    "known second labels": "both, with the profile's second label known from training",
    "missing second labels": "both, with half of the second labels missing in training",
}
"""Questions whose answer is an EER."""
ANSWERS = (", known", ", all vectors")
"""Ends of the names of joint models that use what a question gives, beside the same models that do not."""


def stored(rows: Mapping[str, Row], names: Iterable[str]) -> dict[str, Row]:
    """Return the rows that are stored, in the order of the names."""
    return {name: rows[name] for name in names if name in rows}


def error(row: Row, system: str, kind: str = "Total") -> str:
    """Mean EER of a system over the divisions."""
    values = row["systems"].get(system, {}).get("EER, %")
    return f"{mean(values[kind]):.2f}" if values else "-"


def ratio(row: Row, pair: str, kind: str = "Total") -> str:
    """Ratio of two systems with its interval."""
    found = row["ratios"].get(pair, {}).get(kind)
    return interval(found) if found else "-"


def interval(found: Mapping[str, float | None]) -> str:
    """Write a ratio as "0.92 [0.85, 1.00]"."""
    if found["ratio"] is None:
        return "-"
    text = f"{found['ratio']:.2f}"
    return f"{text} [{found['low']:.2f}, {found['high']:.2f}]" if "low" in found else text


def totals(rows: Mapping[str, Row]) -> Cells:
    """Total of four systems, and the joint models over PLDA, with noise and ranks chosen for each."""
    head = ["Total, EER in %", "people", *FOUR, "two / PLDA", "three / PLDA"]
    lines = [head]
    for name, row in stored(rows, DATA_SETS).items():
        ratios = [ratio(row, f"{system} / PLDA") for system in FOUR[2:]]
        errors = [error(row, system) for system in FOUR]
        lines.append([NAMES[name], str(row["people tested"]), *errors, *ratios])
    return lines


def ratios_of_totals(rows: Mapping[str, Row]) -> Cells:
    """Total of PLDA, and of the joint models over it, with noise and ranks chosen for each."""
    lines = [["Total", "people", "PLDA, EER in %", "two views / PLDA", "three views / PLDA"]]
    for name, row in stored(rows, DATA_SETS).items():
        ratios = [ratio(row, f"{system} / PLDA") for system in FOUR[2:]]
        lines.append([NAMES[name], str(row["people tested"]), error(row, "PLDA"), *ratios])
    return lines


def in_short(rows: Mapping[str, Row]) -> Cells:
    """Table for the front page: total EER of four systems and of `train`, and ratios of `train` to PLDA."""
    head = ["Total, EER in %", "people tested", *FOUR, "`train`", "`train` / PLDA", "in TW alone"]
    lines = [head]
    for name, row in stored(rows, DATA_SETS).items():
        errors = [error(row, system) for system in (*FOUR, "train")]
        ratios = [ratio(row, "train / PLDA", kind) for kind in ("Total", "TW")]
        lines.append([NAMES[name], str(row["people tested"]), *errors, *ratios])
    return lines


def kinds(rows: Mapping[str, Row]) -> Cells:
    """Ratios to PLDA against other people with the right label, and the right people with another label."""
    head = ["errors / PLDA's", "two views: IC", "TW", "three views: IC", "TW"]
    lines = [head]
    for name, row in stored(rows, DATA_SETS).items():
        cells = [
            ratio(row, f"{system} / PLDA", kind) for system in FOUR[2:] for kind in ("IC", "TW")
        ]
        lines.append([NAMES[name], *cells])
    return lines


def noises(rows: Mapping[str, Row]) -> Cells:
    """Total by structure and noise, with ranks chosen for each."""
    columns = [
        f"{structure}, {noise}"
        for structure in ("PLDA", "two views", "three views")
        for noise in ("diagonal", "full", "prior")
    ]
    lines = [["Total, EER in %", *columns, "PLDA: full / diagonal"]]
    for name, row in stored(rows, DATA_SETS).items():
        errors = [error(row, column) for column in columns]
        lines.append([NAMES[name], *errors, ratio(row, "PLDA, full / PLDA, diagonal")])
    return lines


def choices(rows: Mapping[str, Row]) -> Cells:
    """The model that held-out training people choose, and `train`, against the best of four systems on the tests."""
    head = [
        "",
        "best of four on the tests",
        "its Total",
        "`train`",
        "`train` / best",
        "`train` / PLDA",
        "one chosen model / PLDA",
    ]
    lines = [head]
    for name, row in stored(rows, DATA_SETS).items():
        best = row["best of four"]
        pairs = ("train / best of four", "train / PLDA", "chosen / PLDA")
        errors = [error(row, system) for system in (best, "train")]
        lines.append([NAMES[name], best, *errors, *(ratio(row, pair) for pair in pairs)])
    return lines


def committees(rows: Mapping[str, Row]) -> Cells:
    """PLDA, and `train` on both labels against `train` on the combined label, on the same divisions."""
    pair = "train / train, combined label"
    head = ["Total, EER in %", "PLDA", "`train`, combined label", "`train`, both labels"]
    lines = [[*head, "both / combined: IC", "TW", "Total"]]
    for name in DATA_SETS:
        row = rows.get(f"{name}: committees")
        if row:
            errors = [error(row, system) for system in ("train, combined label", "train")]
            ratios = [ratio(row, pair, kind) for kind in KINDS[1:]]
            lines.append([NAMES[name], _plda_beside(rows, name, row), *errors, *ratios])
    return lines


def _plda_beside(rows: Mapping[str, Row], name: str, row: Row) -> str:
    """Return the error of PLDA in the factorial of a data set, if both rows have the same divisions."""
    whole = rows[name]
    return error(whole, "PLDA") if whole["divisions"] == row["divisions"] else "-"


def train_kinds(rows: Mapping[str, Row]) -> Cells:
    """`train` against PLDA and against the best of four systems by kind of trial."""
    pairs = ("train / PLDA", "train / best of four")
    lines = [["", "`train` / PLDA: IC", "TW", "`train` / best of four: IC", "TW"]]
    for name, row in stored(rows, DATA_SETS).items():
        cells = [ratio(row, pair, kind) for pair in pairs for kind in ("IC", "TW")]
        lines.append([NAMES[name], *cells])
    return lines


def again(rows: Mapping[str, Row]) -> Cells:
    """Ratios on the first five and on five other divisions of the people."""
    pairs = ("two views / PLDA", "three views / PLDA", "train / PLDA", "train / best of four")
    lines = [["Total", "divisions", *pairs]]
    for name in DATA_SETS:
        if f"{name}: other divisions" in rows:
            for key, title in ((name, "first five"), (f"{name}: other divisions", "five others")):
                lines.append([NAMES[name], title, *(ratio(rows[key], pair) for pair in pairs)])
    return lines


def questions(rows: Mapping[str, Row]) -> Cells:
    """Total of the joint models and of the best work-around with one label; a question stands in its first row."""
    head = ["question", "data", "cosine", "work-around", "EER, %", "joint model", "EER, %", "ratio"]
    lines = [head]
    for question, title in QUESTION_NAMES.items():
        for name, row in stored(rows, [f"{data}: {question}" for data in DATA_SETS]).items():
            references = {pair.partition(" / ")[2] for pair in row["ratios"]} - {"cosine"}
            reference = min(sorted(references), key=lambda system: _mean(row, system))
            joint = [system for system in row["systems"] if "views" in system]
            joint = [system for system in joint if system.endswith(ANSWERS)] or joint
            best = min(joint, key=lambda system: _mean(row, system))
            cells = [reference, error(row, reference), best, error(row, best)]
            dataset = NAMES[name.partition(":")[0]].partition(",")[0]
            cells.insert(0, error(row, "cosine"))
            lines.append([title, dataset, *cells, ratio(row, f"{best} / {reference}")])
            title = ""
    return lines


def _mean(row: Row, system: str) -> float:
    return mean(row["systems"][system]["EER, %"]["Total"])


def hypotheses(rows: Mapping[str, Row]) -> Cells:
    """Posteriors of the four hypotheses against those of two PLDAs of one label."""
    lines = [["four hypotheses", "model", "wrong, %", "cross-entropy, bits", "its ratio"]]
    for name, row in stored(rows, [f"{data}: four hypotheses" for data in DATA_SETS]).items():
        for system, found in row["systems"].items():
            share = row["ratios"].get(f"{system} / two PLDAs of one label", {})
            bits = share.get("cross-entropy, bits")
            lines.append(
                [
                    NAMES[name.partition(":")[0]],
                    system,
                    f"{found['wrong, %']:.1f}",
                    f"{found['cross-entropy, bits']:.3f}",
                    interval(bits) if bits else "",
                ]
            )
    return lines


CURVES = {
    "people: ": "training people, Speech Commands",
    "characters: ": "characters, DigiLeTs",
    "takes: digilets ": "takes per cell, DigiLeTs",
    "takes: audiomnist ": "takes per cell, AudioMNIST",
}


def curves(rows: Mapping[str, Row]) -> Cells:
    """Total with full noise by the number of people, labels and takes in training."""
    head = ["", "number", *FOUR, "two / PLDA", "three / PLDA"]
    lines = [head]
    for prefix, title in CURVES.items():
        for name, row in rows.items():
            if name.startswith(prefix):
                errors = [error(row, system) for system in FOUR]
                ratios = [ratio(row, f"{system} / PLDA") for system in FOUR[2:]]
                lines.append([title, name.removeprefix(prefix), *errors, *ratios])
    return lines


def systems(rows: Mapping[str, Row]) -> Cells:
    """Table of all systems per data set: mean errors over the divisions, and settings in the first division."""
    lines = [["data", "system", *KINDS, "settings in the first division"]]
    for name, row in stored(rows, DATA_SETS).items():
        for system in row["systems"]:
            settings: Sequence[str] = row["systems"][system].get("settings") or [""]
            errors = [error(row, system, kind) for kind in KINDS]
            lines.append([NAMES[name], system, *errors, settings[0]])
    return lines
