"""Other implementations of PLDA for comparison: measured here if they can be installed, otherwise quoted.

If an implementation needs an old Python, ``--peer-python`` names an interpreter that has it. The implementation, its
data and the bare product X'X of the vectors X then run there (``python -m benchmarks.peers``).
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np

from .data import draw, equal_classes
from .timing import best_of, in_another_process

NAMES = ("hyperion", "DCA-PLDA", "Kaldi", "SpeechBrain", "wespeaker")
QUOTED = {
    "small": dict(zip(NAMES, (0.24, 0.38, 0.63, 2.9, 15.0))),  # noqa: B905 - old interpreters
    "large": dict(zip(NAMES, (4.1, 10.0, 19.0, 50.0, 1100.0))),  # noqa: B905
}
QUOTED_BARE = {"large": 0.83}
"""Seconds for the two cases of ``train`` and for bare X'X: one thread, measured earlier on another machine."""


def hyperion(X: Any, y: Any, rank: int, iterations: int) -> None:
    """hyperion-ml: simplified PLDA with full noise. Version 0.3 needs NumPy < 1.24."""
    from hyperion.pdfs.plda import SPLDA  # type: ignore[import-not-found,unused-ignore]

    SPLDA(y_dim=rank).fit(X, y, epochs=iterations)


def speechbrain(X: Any, y: Any, rank: int, iterations: int) -> None:
    """SpeechBrain's PLDA, full noise, on NumPy; measured with version 1.1.2."""
    from speechbrain.processing.PLDA_LDA import (  # type: ignore[import-not-found,unused-ignore]
        PLDA,
        StatObject_SB,
    )

    names = np.array([f"class{i}" for i in y], dtype="|O")
    utterances = np.array([f"vector{i}" for i in range(len(y))], dtype="|O")
    nothing = np.array([None] * len(y))
    vectors = StatObject_SB(
        names, utterances, nothing, nothing, np.ones((len(y), 1)), X.astype(np.float64)
    )
    PLDA(rank_f=rank, nb_iter=iterations).plda(vectors)


PEERS = {"hyperion": hyperion, "speechbrain": speechbrain}


def run_peer(
    name: str, case: dict[str, int], rounds: int, python: str = sys.executable
) -> dict[str, Any]:
    """Seconds of a peer and of bare X'X beside it, or why there are none."""
    try:
        found: dict[str, Any] = in_another_process(
            "benchmarks.peers", name, case, rounds, python=python
        )
    except (OSError, RuntimeError) as error:
        return {"missing": f"not installed ({error})"}
    return found


def quoted_ratios(case: str) -> dict[str, float]:
    """Quoted seconds over the quoted seconds of bare X'X, where that was quoted too."""
    bare = QUOTED_BARE.get(case)
    return {name: seconds / bare for name, seconds in QUOTED[case].items()} if bare else {}


def main() -> None:
    name, case, rounds = (json.loads(a) for a in sys.argv[1:])
    y = equal_classes(case["classes"], case["each"])
    X = draw([y], [case["rank"]], case["dimension"])
    rows = {
        "bare": lambda: np.dot(X.T, X),
        "peer": lambda: PEERS[name](X, y, case["rank"], case["iterations"]),
    }
    best = best_of(rows, rounds)
    print(
        json.dumps(
            {"seconds": best["peer"], "bare": best["bare"], "ratio": best["peer"] / best["bare"]}
        )
    )


if __name__ == "__main__":
    main()
