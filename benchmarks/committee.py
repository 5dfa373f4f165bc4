"""Fit of a committee with learnt weights: vectors of two extractors, of voices and of words, from many speakers."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from mvplda import make_committee
from mvplda.exceptions import MvpldaWarning

from .data import draw
from .timing import best_of, extra_memory

FULL = {"speakers": 1000, "phrases": 10, "each": 2}
QUICK = {"speakers": 30, "phrases": 4, "each": 2}
WIDTHS = {"voice": 192, "words": 288}
RANKS = {"voice": (40, 5, 10), "words": (5, 15, 10)}
VIEWS = ("speaker", "phrase")


def make(case: dict[str, int]) -> tuple[Any, dict[str, Any]]:
    """Return vectors of both extractors side by side, and their labels."""
    cells = np.repeat(np.arange(case["speakers"] * case["phrases"]), case["each"])
    speakers, phrases = np.divmod(cells, case["phrases"])
    blocks = [
        draw([speakers, phrases, cells], RANKS[name], width, seed=seed)
        for seed, (name, width) in enumerate(WIDTHS.items())
    ]
    return np.hstack(blocks), dict(zip(VIEWS, (speakers, phrases), strict=True))


def run(*, quick: bool, rounds: int, peer_python: str) -> dict[str, Any]:
    """Return CPU seconds and memory of a fit."""
    case = QUICK if quick else FULL
    X, labels = make(case)
    committee = make_committee(WIDTHS, VIEWS, labels=labels, weights="learnt")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MvpldaWarning)
        memory = extra_memory(lambda: committee.fit(X, labels))
        seconds = best_of({"fit": lambda: committee.fit(X, labels)}, min(rounds, 2))["fit"]
    return {
        "case": {**case, "vectors": len(X), "widths": WIDTHS, "experts": len(committee.experts_)},
        "seconds": seconds,
        "extra memory, MiB": memory,
    }
