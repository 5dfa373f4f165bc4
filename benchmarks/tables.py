"""The tables of the documents, generated from results/: ``python -m benchmarks tables``.

A document holds ``<!-- table NAME -->``, a table, and ``<!-- end of table -->``; the text between the marks is
replaced. NAME is one of `TABLES`, or a file of results/ that is a table itself. Pages show the rows that matter;
complete tables are in the Markdown files of `RECORDS`, beside the results.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import evidence_tables, pictures, spoof_tables
from benchmarks.studies import drawn_corpora
from benchmarks.studies.beyond_speech import error_rows, variance_rows
from benchmarks.studies.errata import share_rows, simulated_rows, speech_rows
from benchmarks.studies.kaldi_adaptation import cell as kaldi_adaptation_cell
from mvplda.paper.results import KINDS, PUBLISHED, seeds_cell
from tools.default_model.recordings import ENROLLED_BY_CALL, NEAR_MATCH_DOMAINS

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results"
PAPER_RESULTS = RESULTS / "paper"
MARKED = re.compile(r"<!-- table (.+?) -->\n(.*?)<!-- end of table -->", re.DOTALL)

# docs/paper.md: the paper's figures beside those of results/paper, which `mvplda experiment` made


PAPER = {
    "RSR2015, the paper's": tuple(zip(*PUBLISHED["rsr2015"], strict=True)),
    "Huiting202, the paper's": tuple(zip(*PUBLISHED["huiting"], strict=True)),
}
CORPORA = {
    "jvectors": "j-vectors from elsewhere",
    "audiomnist-paper": "the paper's network",
    "audiomnist-paper-rbm": "the paper's network, pre-trained",
    "drawn": "simulated from the model",
    "huiting-drawn": "simulated, in Huiting202's shape",
}
RAW = {
    "cosine-plain": "cosine, plain",
    "plda-cell-raw": "PLDA (speaker x phrase)",
    "jplda-printed-raw": "jPLDA as published",
    "jplda-exact-raw": "jPLDA exact",
}
REDUCED = {
    "cosine": "cosine, centred",
    "plda-cell": "PLDA (speaker x phrase)",
    "jplda-printed": "jPLDA as published",
    "jplda-exact": "jPLDA exact",
    "jplda-interaction": "with interaction",
}
PAIRS = (
    ("jplda-printed-raw", "plda-cell-raw"),
    ("jplda-exact-raw", "plda-cell-raw"),
    ("jplda-printed", "plda-cell"),
    ("jplda-exact", "plda-cell"),
    ("jplda-interaction", "jplda-exact"),
)


def stored() -> dict[str, dict[str, Any]]:
    files = {name: PAPER_RESULTS / name / "results.json" for name in CORPORA}
    return {name: json.loads(file.read_text()) for name, file in files.items() if file.is_file()}


def cell(system: dict[str, Any] | None, kind: str) -> str:
    """EER with its interval, in per cent."""
    if system is None:
        return ""
    if "seeds" in system:
        return seeds_cell(system["seeds"][kind])
    found = f"{100 * system['kinds'][kind]['eer']:.2f}"
    ends = system.get("intervals", {}).get("kinds", {}).get(kind, {}).get("eer")
    return found if not ends else f"{found} [{100 * ends['low']:.2f}, {100 * ends['high']:.2f}]"


CHALLENGES = (
    ("RSR2015, part I", "j-vectors and PLDA (Chen et al., 2015)", "0.54", ""),
    ("RSR2015, part I", "j-vectors and joint PLDA (the paper, 2017)", "0.41", ""),
    ("SdSV 2020, task 1", "fusion of seven (UIAI)", "2.14", "0.072"),
    ("SdSV 2020, task 1", "fusion (Mun et al.)", "2.23", "0.0785"),
    ("SdSV 2021, task 1", "fusion, third place (Han et al.)", "", "0.0473"),
    ("TdSV 2024", 'fusion of three (team "Naive")', "1.3", "0.0461"),
    ("TdSV 2024, Iranian division", "first place (Farokh and Zeinali)", "", "0.0358"),
)
"""Published figures of text-dependent verification: data, system, EER in %, minimum cost. Sources: docs/related.md."""


def challenges() -> list[str]:
    """Figures of challenges, and those of `best` here, on other data."""
    ours = [
        (
            f"{title}, other data (ours)",
            "`best`",
            cell(_read(f"{name}/results.json")["systems"]["best"], "Total"),
            "",
        )
        for name, title in (("cvau", "C-VAU"), ("speech-commands", "Speech Commands"))
    ]
    head = ["data", "system", "EER, %", "minimum cost"]
    return _lines(head, [list(row) for row in (*CHALLENGES, *ours)], left=2)


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


def all_systems(name: str) -> list[str]:
    """All systems of a corpus with intervals over speakers, and over deals where speakers are dealt several times."""
    systems = _read(f"{name}/results.json")["systems"]
    return _system_lines(systems.values())


def _system_lines(
    systems: Iterable[dict[str, Any]], kinds: Sequence[str] = tuple(KINDS)
) -> list[str]:
    """Return a table with a row per system: its title, and its EER by kind with the interval."""
    rows = [[system["title"], *(cell(system, kind) for kind in kinds)] for system in systems]
    return _lines(["EER, %", *kinds], rows)


MAIN = (
    "cosine-voice",
    "cosine",
    "plda-cell",
    "jplda-printed-raw",
    "jplda-exact",
    "jplda-interaction",
    "best",
)
"""Systems of a corpus that a page shows; the complete table is beside the results."""


def main_systems(name: str) -> list[str]:
    """Return the rows of `MAIN` with intervals, in the hardest kind of trial and in all together."""
    kinds = ("IC", "Total")
    systems = _read(f"{name}/results.json")["systems"]
    return _system_lines((systems[key] for key in MAIN), kinds)


def readings(name: str) -> list[str]:
    """Every combination of a grid, in IC and Total: mean over seeds, least and most."""
    systems = _read(f"paper/{name}/results.json")["systems"]
    rows = []
    for system in systems.values():
        cells = []
        for kind in ("IC", "Total"):
            values = [system["kinds"][kind]["eer"]]
            if "seeds" in system:
                values = system["seeds"][kind]["values"]
            text = f"{100 * sum(values) / len(values):.2f}"
            if len(values) > 1:
                text += f" ({100 * min(values):.2f} to {100 * max(values):.2f})"
            cells.append(text)
        rows.append([system["title"], *cells])
    return _lines(["EER, %: mean (least to most) of seeds", "IC", "Total"], rows)


def errata() -> list[str]:
    """EM, score and enrolment, as published or exact, on simulated vectors."""
    return _headed_lines(simulated_rows(_read("errata/results.json")["rows"]["simulated"]), left=3)


def errata_of_body() -> list[str]:
    """The E step of the paper's body, on the same vectors."""
    return _headed_lines(simulated_rows(_read("errata/results.json")["rows"]["body"]), left=3)


def errata_shares() -> list[str]:
    """Variance that the models of the errata explain."""
    return _headed_lines(share_rows(_read("errata/results.json")["rows"]["shares"]))


def drawn(cells: Callable[..., Rows], left: int, *options: str) -> list[str]:
    """A table of the corpora that are drawn from fitted covariances."""
    return _headed_lines(cells(_read("drawn-corpora/results.json")["rows"], *options), left)


DRAWN = ("Speech Commands", "C-VAU", "AudioMNIST, j-vectors")
"""Sources of the covariances that docs/paper.md shows, at the paper's level."""


def drawn_in_short() -> list[str]:
    """Ratios of two views to PLDA on drawn corpora without and with the fitted interaction."""
    head, *rows = drawn_corpora.ratio_rows(_read("drawn-corpora/results.json")["rows"])
    columns = [head.index(name) for name in DRAWN_COLUMNS]
    chosen = [row for row in rows if row[0] in DRAWN and row[1] in ("0", "1")]
    return _lines(
        list(DRAWN_COLUMNS.values()), [[row[c] for c in columns] for row in chosen], left=2
    )


DRAWN_COLUMNS = {
    "vectors": "covariances of",
    "interaction x": "interaction x",
    "IC": "the paper's settings: IC",
    "Total": "Total",
    "chosen: IC": "full noise, chosen: IC",
    "chosen: Total": "Total",
}
"""Columns of that table, and their heads."""


def evidence(cells: Callable[[Mapping[str, Any]], Rows], left: int = 1) -> list[str]:
    """A table of the study of views, noise and ranks."""
    return _headed_lines(cells(_read("evidence/results.json")["rows"]), left)


def network_vectors() -> list[str]:
    """Exact inference over PLDA on raw vectors of networks, as in the paper's settings."""
    rows = []
    for name, found in stored().items():
        for pair in found["comparisons"]:
            if (pair["of"], pair["with"]) == ("jplda-exact-raw", "plda-cell-raw"):
                shares = [_ratio(pair["kinds"][kind]["eer"]) for kind in ("IC", "Total")]
                rows.append([CORPORA[name], *shares])
    return _lines(["vectors", "IC", "Total"], rows)


def errata_on_speech() -> list[str]:
    """The same on j-vectors, below PLDA."""
    head, *rows = speech_rows(_read("errata/results.json")["rows"]["j-vectors"])
    systems = _read("paper/jvectors/results.json")["systems"]
    cells = []
    for name in ("plda-cell-raw", "plda-cell"):
        cells += [_eer(systems[name], kind) for kind in ("IC", "Total")]
    return _lines(head, [["PLDA (speaker x phrase), rank 40", "", *cells], *rows], left=2)


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


# docs/experiments.md, docs/choose.md and README.md: parts of a file under results/


Rows = list[list[str]]

CHOICES = {
    "no labelled vectors": ("`CosineScorer()`", "cosine", 40),
    "tens of speakers": ('`MultiviewPLDA(views, prior="isotropic")`', "prior", 40),
    "the same, and some seconds more": ("`make_committee(...)`", "committee", 40),
    "a network of voices and one of words": (
        "`make_committee(...)` of both",
        "committee, words",
        40,
    ),
    "hundreds of speakers": ("the same", "committee, words", 800),
    "more than 800 speakers, and little time": (
        "`MultiviewPLDA(views)`, with the interaction",
        "interaction",
        800,
    ),
    "only speakers, one phrase or free text": ("`PLDA(...)`", "plda", 800),
}
"""What one has: what to use, and the system and number of training speakers of results/speakers."""
SETTINGS = {
    "recordings per profile": (
        {"1": "drawn-one", "2": "drawn-two", "3": "drawn"},
        "the cheapest gain: enrol three",
    ),
    "rank of a view": ("drawn-ranks", "too large costs nothing; leave it None"),
    "principal components (0: all)": (
        "drawn-components",
        "reduce only where training vectors are few",
    ),
    "iterations of EM": ("drawn-iterations", "leave it: it starts from moments"),
    "priors of the hypotheses": ("drawn-priors", "leave them"),
}
"""Settings of the exact joint model: where each value was measured, and what to do."""


def _lines(head: list[str], rows: Rows, left: int = 1) -> list[str]:
    """A Markdown table whose first columns are text."""
    marks = [":---" if column < left else "---:" for column in range(len(head))]
    lines = ["| " + " | ".join(cells) + " |" for cells in (head, *rows)]
    return [lines[0], "|" + "|".join(marks) + "|", *lines[1:]]


def _headed_lines(rows: Rows, left: int = 1) -> list[str]:
    """Return a Markdown table of rows of which the first is the head."""
    head, *cells = rows
    return _lines(head, cells, left)


def _merged(rows: Rows, name: int) -> Rows:
    """Join the names of rows, at column `name`, whose other cells are equal."""
    names: dict[tuple[str, ...], list[str]] = {}
    for row in rows:
        names.setdefault((*row[:name], *row[name + 1 :]), []).append(row[name])
    return [[*cells[:name], ", ".join(joined), *cells[name:]] for cells, joined in names.items()]


def _read(name: str) -> Any:
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))


def _eer(system: dict[str, Any], kind: str) -> str:
    return f"{100 * system['kinds'][kind]['eer']:.2f}"


def choices() -> list[str]:
    """What a back-end gives for what one has."""
    runs = _read("speakers/results.json")["rows"]["runs"]
    rows = []
    for have, (use, system, number) in CHOICES.items():
        own = [run["eer"] for run in runs if (run["system"], run["speakers"]) == (system, number)]
        cells = []
        for kind in ("Total", "voice"):
            cells.append(f"{100 * sum(run[kind] for run in own) / len(own):.2f}")
        if use == "`PLDA(...)`":
            # that of the study's first question has speaker and word as its class
            cells[0] = "-"
        rows.append([have, use, str(number), *cells])
    both = ["same speaker *and* word", "same speaker, other word"]
    return _lines(["you have", "use", "measured with", *both], rows, left=2)


def settings() -> list[str]:
    """Total of the exact joint model by one setting at a time."""
    rows = []
    for name, (measured, advice) in SETTINGS.items():
        errors = {}
        if isinstance(measured, dict):
            for value, folder in measured.items():
                systems = _read(f"paper/{folder}/results.json")["systems"]
                errors[value] = _eer(systems["jplda-exact-raw"], "Total")
        else:
            systems = _read(f"paper/{measured}/results.json")["systems"]
            for system, figures in systems.items():
                if system.startswith("jplda-exact"):
                    # "jplda-exact-raw; paper_rank 20"
                    value = system.partition("; ")[2].partition(" ")[2]
                    errors[value] = _eer(figures, "Total")
        cells = ", ".join(f"{value}: {error}" for value, error in errors.items())
        rows.append([name, cells, advice])
    return _lines(["setting", "Total, EER %", "advice"], rows, left=3)


COVERAGE = ("eer", "min_dcf/default", "min_dcf/sre21", "min_dcf/1,1,0.1", "cllr", "min_cllr")
COVERAGE_TITLES = ("EER", "minDCF, prior 0.01", "prior 0.05", "prior 0.1", "Cllr", "minCllr")


def coverage(section: str) -> list[str]:
    """Shares of 95 % intervals that held the truth, by world."""
    file = RESULTS.parent / "benchmarks/results/interval_coverage.json"
    rows = []
    for case in json.loads(file.read_text(encoding="utf-8"))[section]:
        shares = [case["measures"][name].get("coverage") for name in COVERAGE]
        cells = ["too few" if share is None else f"{100 * share:.0f} %" for share in shares]
        rows.append([case["world"], str(case["speakers"]), *cells])
    return _lines(["world", "speakers", *COVERAGE_TITLES], rows)


POINTS = ("frr_at_far/0.01", "frr_at_far/0.001", "threshold_at_far/0.01", "threshold_at_far/0.001")
POINT_TITLES = (
    "FRR at FAR 1 %",
    "FRR at FAR 0.1 %",
    "threshold for FAR 1 %",
    "threshold for FAR 0.1 %",
)


def least_coverage(names: tuple[str, ...], titles: tuple[str, ...], widths: bool) -> list[str]:
    """Least share in any world by speakers; in brackets the median width as a multiple of the truth."""
    file = RESULTS.parent / "benchmarks/results/interval_coverage.json"
    cases = json.loads(file.read_text(encoding="utf-8"))["intervals"]
    rows = []
    for speakers in (12, 20, 50):
        worlds = [
            case["measures"]
            for case in cases
            if case["speakers"] == speakers and "not enrolled" not in case["world"]
        ]
        cells = []
        for name in names:
            found = [world[name] for world in worlds if "coverage" in world.get(name, {})]
            if not found:
                cells.append("too few")
                continue
            cell = f"{100 * min(one['coverage'] for one in found):.0f} %"
            if widths:
                cell += f" ({median(one['median width / truth'] for one in found):.1f})"
            cells.append(cell)
        rows.append([str(speakers), *cells])
    return _lines(["speakers", *titles], rows)


HEAD = (
    "corpus left out",
    "enrolled",
    "condition",
    "owners accepted",
    "owners, other words",
    "impostors, right words",
    "of them same sex",
    "at 0.1 %: owners",
    "same sex",
    "voices: EER (cosines)",
    "words: EER (cosines)",
    "voices: Cllr (least)",
    "words: Cllr (least)",
)


MAIN_COLUMNS = 9
"""Columns of the table of main rows: the shares of trials that are accepted."""


def _default_rows(rows: Sequence[Mapping[str, Any]], columns: int) -> list[str]:
    """Lines of a table: shares of trials that are accepted and EERs in %."""
    lines = ["| " + " | ".join(HEAD[:columns]) + " |", "|" + "---|" * columns]
    for row in rows:
        accepted, strict = (row[f"accepted at {far} %"] for far in ("1", "0.1"))
        cells = [row["corpus left out"], _enrolment(row), row["condition"]]
        cells += [_percent(accepted.get(kind)) for kind in ("TC", "TW", "IC", "IC, same sex")]
        cells += [_percent(strict.get(kind)) for kind in ("TC", "IC, same sex")]
        for view in ("speaker", "phrase"):
            error = _percent(row.get(f"EER {view}"))
            cells.append(f"{error} ({_percent(row.get(f'EER {view}, cosine'))})" if error else "")
        for view in ("speaker", "phrase"):
            cost, least = (row.get(f"Cllr {view}{which}") for which in ("", ", least"))
            cells.append("" if cost is None else f"{cost:.3f} ({least:.3f})")
        lines.append("| " + " | ".join(cells[:columns]) + " |")
    return lines


def _enrolment(row: Mapping[str, Any]) -> str:
    """Return how people of a row enrolled."""
    times = f"{row['recordings']} x "
    if not row["deployed"]:
        return f"{times}one phrase, nobody else"
    phrases = {"all": "all phrases", "own": "a phrase each", 1: "one phrase for all"}
    text = phrases.get(row["phrases"], f"{row['phrases']} phrases for all")
    return f"{times}{text}, {row['people']} people"


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f}"


def default_model(kind: str) -> list[str]:
    """What the default model does on corpora that were left out: with all phrases enrolled, with few, and nearly."""
    rows = _read("default-model/results.json")["rows"]
    calls = [row for row in rows if row["condition"] in ENROLLED_BY_CALL.values()]
    rows = [row for row in rows if row not in calls]
    near = [row for row in rows if row["corpus left out"] in NEAR_MATCH_DOMAINS.values()]
    alone = [row for row in rows if not row["deployed"] and row not in near]
    every = [row for row in rows if row["phrases"] == "all" and row not in alone + near]
    chosen = {"all": every, "nearly": near, "alone": alone, "calls": calls}
    chosen["few"] = [row for row in rows if row not in every + near + alone]
    chosen["main"] = [row for row in rows if _case(row) in DEFAULT_MAIN]
    return _default_rows(chosen[kind], MAIN_COLUMNS if kind == "main" else len(HEAD))


def _case(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return (
        row["corpus left out"],
        row["deployed"],
        row["phrases"],
        row["recordings"],
        row["condition"],
    )


POINT_FARS = ("5", "2", "1", "0.5", "0.1")


def default_points() -> list[str]:
    """What every operating point of the default model costs owners: shares over all deployments of a corpus."""
    rows = _read("default-model/results.json")["rows"]
    cases: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        is_near = row["corpus left out"] in NEAR_MATCH_DOMAINS.values()
        if not is_near and row["condition"] not in ENROLLED_BY_CALL.values():
            key = (row["corpus left out"], row["deployed"], row["recordings"])
            cases.setdefault(key, []).append(row)
    table = []
    for (domain, deployed, recordings), members in cases.items():
        cells = [domain, f"{recordings}{'' if deployed else ', alone'}"]
        for far in POINT_FARS:
            clean, other = (
                _pooled(members, far, "TC", is_clean=is_clean) for is_clean in (True, False)
            )
            impostors = _pooled(members, far, "IC, same sex")
            cells.append(f"{clean} / {other or '-'} / {impostors}")
        table.append(cells)
    head = ["corpus left out", "recordings", *(f"asked {far} %" for far in POINT_FARS)]
    return _lines(head, table, left=2)


def default_refused() -> list[str]:
    """Recordings of each domain, and those that the commands refuse."""
    rows = _read("default-model/results.json")["refused"]
    table = [[row["domain"], str(row["recordings"]), str(row["refused"])] for row in rows]
    return _lines(["domain", "recordings", "refused"], table, left=1)


def _pooled(
    rows: Sequence[Mapping[str, Any]], far: str, kind: str, is_clean: bool | None = None
) -> str:
    """Return the share of trials of a kind that are accepted, in %, over some rows."""
    counts = [
        (row["trials"][kind], row[f"accepted at {far} %"][kind])
        for row in rows
        if kind in row["trials"] and is_clean in (None, row["condition"] == "clean")
    ]
    trials = sum(count for count, _ in counts)
    if not trials:
        return ""
    decimals = 1 if kind == "TC" else 2
    return f"{100 * sum(count * share for count, share in counts) / trials:.{decimals}f}"


DEFAULT_MAIN = (
    *(
        (domain, True, "all", 3, condition)
        for domain in ("pass-phrases", "Arabic joined", "Chinese and English joined")
        for condition in ("clean", "telephone")
    ),
    *((domain, True, "all", 3, "clean") for domain in ("commands joined", "digits joined")),
    ("calls joined", True, "all", 3, "clean"),
    *((domain, False, "all", 1, "clean") for domain in ("pass-phrases", "Arabic joined")),
    ("Arabic, nearly", True, "own", 3, "clean"),
)
"""Corpus, whether others are enrolled, phrases, recordings and condition of the cases that docs/service.md shows."""


# docs/people.md: the default model and models of sessions


SESSION_MODELS = ("takes independent", "sittings", "the default model")
TAKES = (1, 3, 10)


def sessions() -> list[str]:
    """Cllr after one calibration over its minimum, by corpus, model and number of takes."""
    found = _read("sittings/results.json")["rows"]
    rows = []
    for corpus in ("C-VAU, campaigns", "AudioMNIST in rooms"):
        for takes in TAKES:
            cells = []
            for model in SESSION_MODELS:
                row = found[f"{corpus}, {model}, {takes} takes"]
                calibrated, least = row["Cllr, one calibration"], row["minimum"]
                cells.append(f"{calibrated:.3f} / {least:.3f} = {row['ratio']:.2f}")
            cells.append(f"{row['Cllr as it is']:.3f} ({row['ratio as it is']:.2f})")
            rows.append([corpus, str(takes), *cells])
    heads = [
        "PLDA, independent recordings",
        "PLDA with sessions",
        "the default model",
        "as it comes",
    ]
    return _lines(["", "recordings", *heads], rows)


PEOPLE = {
    "C-VAU": "C-VAU, without `resnet`",
    "AudioMNIST in rooms": "AudioMNIST in rooms",
    "AudioMNIST in rooms, diarised": "AudioMNIST in rooms, diarised",
    "AudioMNIST": "AudioMNIST, single digits",
    "AudioMNIST, diarised": "AudioMNIST, single digits, diarised",
}


def people() -> list[str]:
    """How well people are found across recordings."""
    found = _read("people/results.json")["rows"]
    rows = []
    for name, title in PEOPLE.items():
        row = found[name]
        shares = [f"{row[measure]:.1f}" for measure in ("precision, %", "recall, %")]
        asked = f"{row['asked']}, {row['asked of one person']}"
        rows.append(
            [title, *(str(row[key]) for key in ("turns", "people", "found")), *shares, asked]
        )
    head = [
        "",
        "turns",
        "people",
        "found",
        "precision, %",
        "recall, %",
        "asked, of these one person",
    ]
    return _lines(head, rows)


WAKE_WORDS = {
    "named rightly": "named rightly, %",
    "as somebody else": "named as somebody else, %",
    "not named": "not named, %",
    "strangers named": "strangers named, %",
    "cosine, named rightly": "cosine: named rightly, %",
}


def _measures(row: Mapping[str, float], measures: Mapping[str, str]) -> list[str]:
    """Return the values of a row, with one decimal, whose names are the values of `measures`."""
    return [f"{row[name]:.1f}" for name in measures.values()]


def wake_words() -> list[str]:
    """Whose voice said the wake word, by the size of a household."""
    found = _read("wake-word/results.json")["rows"]["sizes"]
    rows = [[size, *_measures(row, WAKE_WORDS)] for size, row in found.items()]
    return _lines(["people", *WAKE_WORDS], rows, left=0)


HOUSEHOLD = {
    "rightly": "named rightly, %",
    "as somebody else": "named as somebody else, %",
    "strangers named": "strangers named, %",
    "cosine, rightly": "cosine: named rightly, %",
}


def household(*enrolments: str) -> list[str]:
    """Which member of a household spoke, by enrolment, size and words in a test.

    enrolments : what was enrolled; empty: all
    """
    found = _read("household/results.json")["rows"]
    rows = []
    for title, row in found.items():
        if title != "provenance":
            enrolled, spoken, people = title.split("; ")
            if enrolments and enrolled not in enrolments:
                continue
            figures = _measures(row, HOUSEHOLD)
            rows.append([enrolled, spoken, people.removesuffix(" people"), *figures])
    return _lines(["enrolled", "test", "people", *HOUSEHOLD], rows, left=2)


WRONG_TAKES = {
    "the wrong recording is found, %": "wrong take named, %",
    "right recordings suspected, beside a wrong one, %": "right takes named beside a wrong one, %",
    "right recordings suspected, without one, %": "right takes named without one, %",
    "right recordings suspected, of two campaigns, %": "right takes of two campaigns named, %",
    "EER, five right recordings, %": "EER, five right takes, %",
    "EER, a wrong one among them, %": "EER, one wrong take, %",
    "EER, the same with weights, %": "EER, one wrong take, weighted, %",
    "EER, the wrong one left out, %": "EER, the wrong take left out, %",
}


def wrong_takes() -> list[str]:
    """What a recording of somebody else in a profile does, and how often it is found."""
    found = _read("wrong-take/results.json")["rows"]
    rows = [[title, f"{found[name]:.2f}"] for title, name in WRONG_TAKES.items()]
    title = f"{found['profiles']} profiles of {found['people']} people"
    return _lines([title, ""], rows)


ADAPTATIONS = (
    "cosine, centred",
    "PLDA",
    "PLDA, centred",
    "PLDA, Kaldi's adaptation",
    "PLDA, centred, s-norm",
    "PLDA with its prior, centred",
)
"""Systems that the page shows; the complete table is beside the results."""


def kaldi_adaptation() -> list[str]:
    """Return EERs of adaptation without labels and of s-norm, with paired ratios to centring."""
    found = _read("kaldi-adaptation/results.json")["rows"]
    rows = [
        [title, *(kaldi_adaptation_cell("eer", row[title]) for row in found.values()),
         *(kaldi_adaptation_cell("ratio", row[title]) for row in found.values())]
        for title in ADAPTATIONS
    ]  # fmt: skip
    head = [f"EER, %, {corpus}" for corpus in found]
    return _lines(["", *head, *(f"ratio, {corpus}" for corpus in found)], rows)


def beyond_speech(
    part: str, rows: Callable[[list[dict[str, Any]]], Rows] = error_rows
) -> list[str]:
    """Return a table of the study of handwriting and faces."""
    head, *cells = rows(_read("beyond-speech/results.json")["rows"][part])
    return _lines(head, cells)


CORPORA_OF_COPIES = {
    "C-VAU, pass-phrases": "C-VAU, phrases",
    "WUW, telephone": "WUW, telephone",
    "Speech Commands": "Speech Commands, words",
    "AudioMNIST, one sitting": "AudioMNIST, digits",
}
"""Corpora of results/copies, and their columns."""
CHANGES_LEFT_OUT = ("Opus", "MP3", "simulated loudspeaker at the microphone")
"""Changes that the page does not show, because nearly all of their copies are recognised."""


def changed_copies() -> list[str]:
    """Return how many changed copies are recognised, and how many honest pairs are taken for copies, by corpus."""
    found = _read("copies/results.json")["rows"]

    def cells(rows: list[dict[str, Any]]) -> list[str]:
        return [f"{row['recognised as copies']:,} of {row['pairs']:,}" for row in rows]

    honest = [found["honest pairs"][name] for name in CORPORA_OF_COPIES]
    lines = [["taken for copies: two recordings of a phrase by one person", *cells(honest)]]
    changes = []
    for change in next(iter(found["copies"].values())):
        if change in CHANGES_LEFT_OUT:
            continue
        rows = [found["copies"][name][change] for name in CORPORA_OF_COPIES]
        changes.append([change, *cells(rows)])
    lines += [[f"recognised: {name}", *counts] for name, *counts in _merged(changes, 0)]
    return _lines(["", *CORPORA_OF_COPIES.values()], lines, left=1)


PROMPT_ROWS = (
    "owners, first try",
    "owners, within two tries",
    "impostors who say the words",
)
TEXT_ROWS = ("another prompt", "one word replaced")
"""Rows that the page shows; the complete table is beside the results."""


def prompted_words() -> list[str]:
    """Return acceptance of owners, of impostors and of other words."""
    found = dict(_read("prompted-text/results.json")["rows"])
    del found["recordings of other phrases"]

    def cell_of(row: dict[str, Any]) -> str:
        low, high = 100 * row["low"], 100 * row["high"]
        return f"{100 * row['share']:.1f} ({low:.1f} to {high:.1f})"

    lines = []
    for name in PROMPT_ROWS:
        cells = [cell_of(results["text and voice"][name]) for results in found.values()]
        lines.append([f"text and voice: {name}", *cells])
    for name in TEXT_ROWS:
        rows = [
            [condition, *(cell_of(results["text"][condition][name]) for results in found.values())]
            for condition in next(iter(found.values()))["text"]
        ]
        lines += [
            [f"text, {name}: {conditions}", *cells] for conditions, *cells in _merged(rows, 0)
        ]
    return _lines(["accepted, % (95 % interval)", *found], lines, left=1)


ATTACKED = {
    "cvau": "C-VAU, phrases",
    "speech_commands": "Speech Commands, words",
    "wuw": "WUW, words by telephone",
}
"""Folders of results/attacks, and their columns."""


ATTACKS_SHOWN = {
    "": ("owner, no attack",),
    "enrolment": (
        "unchanged",
        "telephone",
        "AMR",
        "replay: simulated loudspeaker and room",
        "resynthesis: WORLD",
        "resynthesis: MelGAN",
    ),
    "other recording": (
        "telephone",
        "replay: simulated loudspeaker and room",
        "resynthesis: Codec 2, 3200 bit/s",
        "resynthesis: WORLD",
        "resynthesis: MelGAN",
    ),
    "text": ("speech synthesis: eSpeak NG, generic voice",),
}
"""Attacks that a page shows, by what they are made of; the complete table is beside the results."""


def accepted_attacks() -> list[str]:
    """Return the share of attacks that the default service accepts."""
    found = _read("attacks/results.json")["rows"]
    by_attack: dict[tuple[str, str], dict[str, str]] = {}
    people = {}
    for folder in ATTACKED:
        for row in found.get(folder, ()):
            attack = row["attack"] if row["kind"] == "copy" else f"{row['kind']}: {row['attack']}"
            if row["kind"] == "owner":
                attack = "owner, no attack"
            people[folder] = max(people.get(folder, 0), row["people"])
            if attack not in ATTACKS_SHOWN[row["origin"]]:
                continue
            share, low, high = (100 * value for value in row["accepted"])
            text = f"{share:.0f} ({low:.0f} to {high:.0f})"
            by_attack.setdefault((attack, row["origin"]), {})[folder] = text
    head = ["attack", "made of"]
    head += [
        f"{title}, {people[folder]} people"
        for folder, title in ATTACKED.items()
        if folder in people
    ]
    lines = [
        [*key, *(cells.get(folder, "") for folder in people)] for key, cells in by_attack.items()
    ]
    return _lines(head, _merged(lines, 0), left=2)


def spoof_detector(cells: Callable[[Mapping[str, Any]], Rows], left: int = 1) -> list[str]:
    """Return a table of the detector of replays and resynthesis."""
    return _headed_lines(cells(_read("spoof-detector/results.json")["rows"]), left)


TABLES: dict[str, Callable[[], list[str]]] = {
    "C-VAU": lambda: all_systems("cvau"),
    "C-VAU, main rows": lambda: main_systems("cvau"),
    "Speech Commands, main rows": lambda: main_systems("speech-commands"),
    "Speech Commands": lambda: all_systems("speech-commands"),
    "synthetic speech": lambda: all_systems("synthetic-demo"),
    "readings, j-vectors": lambda: readings("jvectors-readings"),
    "readings, simulated": lambda: readings("drawn-readings"),
    "priors, simulated": lambda: readings("drawn-priors"),
    "errata, simulated": errata,
    "errata, j-vectors": errata_on_speech,
    "errata, body": errata_of_body,
    "errata, shares": errata_shares,
    "drawn corpora": lambda: drawn(drawn_corpora.ratio_rows, 3),
    "drawn corpora, in short": drawn_in_short,
    "drawn corpora, errors": lambda: drawn(drawn_corpora.error_rows, 4),
    "drawn corpora, settings, IC": lambda: drawn(drawn_corpora.setting_rows, 3, "IC"),
    "drawn corpora, settings, Total": lambda: drawn(drawn_corpora.setting_rows, 3, "Total"),
    "drawn corpora, readings, IC": lambda: drawn(drawn_corpora.reading_rows, 3, "IC"),
    "drawn corpora, readings, Total": lambda: drawn(drawn_corpora.reading_rows, 3, "Total"),
    "evidence": lambda: evidence(evidence_tables.totals),
    "evidence, ratios": lambda: evidence(evidence_tables.ratios_of_totals),
    "evidence in short": lambda: evidence(evidence_tables.in_short),
    "evidence, kinds": lambda: evidence(evidence_tables.kinds),
    "evidence, noise": lambda: evidence(evidence_tables.noises),
    "evidence, choice": lambda: evidence(evidence_tables.choices, 2),
    "evidence, train by kind": lambda: evidence(evidence_tables.train_kinds),
    "evidence, committees": lambda: evidence(evidence_tables.committees),
    "evidence, other divisions": lambda: evidence(evidence_tables.again, 2),
    "evidence, questions": lambda: evidence(evidence_tables.questions, 2),
    "evidence, hypotheses": lambda: evidence(evidence_tables.hypotheses, 2),
    "evidence, curves": lambda: evidence(evidence_tables.curves),
    "evidence, systems": lambda: evidence(evidence_tables.systems, 2),
    "simulator, settings": lambda: drawn(drawn_corpora.simulator_rows, 1),
    "network vectors, exact over PLDA": network_vectors,
    "paper, raw": lambda: by_kind(RAW, True),
    "paper, reduced": lambda: by_kind(REDUCED, False),
    "paper, shares in IC": lambda: ratios("IC"),
    "paper, shares in Total": lambda: ratios("Total"),
    "default model, main rows": lambda: default_model("main"),
    "default model": lambda: default_model("all"),
    "default model, points": default_points,
    "default model, refused": default_refused,
    "default model, few phrases": lambda: default_model("few"),
    "default model, calls": lambda: default_model("calls"),
    "default model, nearly": lambda: default_model("nearly"),
    "default model, alone": lambda: default_model("alone"),
    "challenges": challenges,
    "changed copies": changed_copies,
    "prompted words": prompted_words,
    "attacks": accepted_attacks,
    "spoof detector": lambda: spoof_detector(spoof_tables.by_attack),
    "spoof detector, BPCER 1 %": lambda: spoof_detector(spoof_tables.by_attack_at_one),
    "spoof detector, by what is new": lambda: spoof_detector(spoof_tables.by_condition),
    "spoof detectors, all": lambda: spoof_detector(spoof_tables.complete, 3),
    "spoof detector, in use": lambda: spoof_detector(spoof_tables.in_use),
    "handwriting": lambda: beyond_speech("handwriting"),
    "faces": lambda: beyond_speech("faces"),
    "shares of the variance": lambda: beyond_speech("variances", variance_rows),
    "choices": choices,
    "settings": settings,
    "sessions": sessions,
    "people across recordings": people,
    "wake words": wake_words,
    "households": household,
    "households, words": lambda: household("3 words"),
    "a wrong recording": wrong_takes,
    "Kaldi's adaptation": kaldi_adaptation,
    "intervals": lambda: least_coverage(COVERAGE, COVERAGE_TITLES, True),
    "intervals of operating points": lambda: least_coverage(POINTS, POINT_TITLES, False),
    "intervals, skewed": lambda: coverage("intervals in skewed worlds"),
    "intervals, Total": lambda: coverage("intervals of Total"),
}


RECORDS = [
    *(
        RESULTS / f"{folder}/table.md"
        for folder in (
            "challenges",
            "cvau",
            "default-model",
            "drawn-corpora",
            "errata",
            "evidence",
            "household",
            "paper",
            "people",
            "sittings",
            "speech-commands",
            "spoof-detector",
            "synthetic-demo",
            "wake-word",
            "wrong-take",
        )
    ),
    RESULTS / "beyond-speech/README.md",
    ROOT / "benchmarks/results/interval_coverage.md",
]
"""Complete tables, beside the results that they show."""


def documents() -> list[Path]:
    """Return the pages and records that may hold tables."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *RECORDS]


def table(name: str) -> str:
    """The lines of a table, as they should stand in a document."""
    if name in TABLES:
        return "\n".join(TABLES[name]()) + "\n"
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    return "\n".join(line for line in lines if line.startswith("|")) + "\n"


def remade(text: str) -> str:
    """Return a document with its tables generated again."""
    return MARKED.sub(
        lambda match: f"<!-- table {match[1]} -->\n\n{table(match[1])}\n<!-- end of table -->", text
    )


def main() -> list[Path]:
    """Rewrite the documents whose tables differ and draw the pictures; return the files."""
    changed = []
    for page in documents():
        text = page.read_text(encoding="utf-8")
        new = remade(text)
        if new != text:
            page.write_text(new, encoding="utf-8")
            changed.append(page)
    if find_spec("matplotlib") is not None:
        changed += pictures.draw()
    return changed


if __name__ == "__main__":
    for page in main():
        print(f"wrote {page}")
