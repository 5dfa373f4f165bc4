"""Tables of results/spoof-detector: errors by attack and detector, and people who are rejected in use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Rows = list[list[str]]

MAIN = "network, centred on the enrolments"
CORPORA = {
    "audiomnist": "AudioMNIST, digits",
    "speech-commands": "Speech Commands, words",
    "cvau": "C-VAU, phrases",
    "arabic": "Arabic, words",
    "dspspeech": "DSPSpeech, words",
    "wuw": "WUW, words by telephone",
}
RATES = {"apcer at bpcer 1 %": "APCER at BPCER 1 %", "apcer at bpcer 5 %": "APCER at BPCER 5 %"}


def interval(row: Mapping[str, Any] | None, key: str) -> str:
    """Return a rate with its interval, in per cent; empty without a row."""
    if row is None:
        return ""
    low, value, high = (100 * row[key][name] for name in ("low", "estimate", "high"))
    return f"{value:.0f} ({low:.0f} to {high:.0f})"


def by_attack(rows: Mapping[str, Any], key: str = "apcer at bpcer 5 %") -> Rows:
    """Return the rates of the network by kind of attack, one column per condition."""
    conditions = rows["errors"][MAIN]
    groups = list(dict.fromkeys(group for found in conditions.values() for group in found))
    lines = [
        [group, *(interval(found.get(group), key) for found in conditions.values())]
        for group in groups
    ]
    return [["attack", *conditions], *lines]


def by_attack_at_one(rows: Mapping[str, Any]) -> Rows:
    """Return the same at the stricter threshold for people."""
    return by_attack(rows, "apcer at bpcer 1 %")


def by_condition(rows: Mapping[str, Any]) -> Rows:
    """Return the rates of the network for all attacks together, by what it was not trained on."""
    lines = []
    for condition, found in rows["errors"][MAIN].items():
        row = found["all"]
        cells = [f"{100 * row['eer']['estimate']:.1f}", *(interval(row, key) for key in RATES)]
        lines.append([condition, *cells])
    return [["new to the detector", "EER", *RATES.values()], *lines]


def complete(rows: Mapping[str, Any]) -> Rows:
    """Return the rates of all detectors, conditions and attacks."""
    lines = []
    for system, conditions in rows["errors"].items():
        for condition, found in conditions.items():
            for group, row in found.items():
                cells = [interval(row, key) for key in ("eer", *RATES)]
                counts = [str(row[name]) for name in ("attacks", "recordings", "people")]
                lines.append([system, condition, group, *cells, *counts])
    head = ["detector", "new to it", "attack", "EER", *RATES.values()]
    return [[*head, "attacks", "recordings", "people"], *lines]


def in_use(rows: Mapping[str, Any]) -> Rows:
    """Return the shares of people and of attacks that the detector alone rejects, by corpus and share of spoofs."""
    lines = []
    for corpus, title in CORPORA.items():
        for prior, row in rows["in use"][corpus].items():
            names = ("people, same device", "people, other device", "attacks")
            cells = [f"{100 * row[name]:.1f}" for name in names]
            lines.append([title, prior, *cells])
    head = ["corpus, left out", "share of spoofs", "people, device of the enrolments"]
    return [[*head, "people, another device", "attacks"], *lines]
