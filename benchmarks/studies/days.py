"""Should people enrol on two days? Takes of one recording campaign of C-VAU against takes of two.

``python -m benchmarks.studies.days DATA [-o results/days]``. DATA holds cvau.npz: CAM++ vectors (camp) of pass-phrases
in campaigns months apart. Two or four takes of a phrase enrol, of one campaign or half of them of another; tests are of
a third one, which everything is tried for. Cosines about the mean of what is enrolled.
"""

from __future__ import annotations

from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.report import study_command
from mvplda.metrics import eer

CAMPAIGNS = ("2014-11", "angles", "low-gain")
TAKES = (2, 4)
FAR = 0.001


def unit(X: np.ndarray) -> np.ndarray:
    return X / np.linalg.norm(X, axis=1, keepdims=True)


def study(folder: Path) -> dict[str, Any]:
    data = np.load(folder / "cvau.npz")
    said = data["phrase"] != ""
    X = unit(data["camp"][said].astype(np.float64))
    speaker, phrase, campaign = (data[name][said] for name in ("speaker", "phrase", "session"))
    cells: dict[tuple[str, str], dict[str, list[int]]] = {}
    for row, (person, text, when) in enumerate(zip(speaker, phrase, campaign, strict=True)):
        cells.setdefault((person, text), {name: [] for name in CAMPAIGNS}).setdefault(
            when, []
        ).append(row)
    runs = []
    for takes in TAKES:
        for test, first, second in permutations(CAMPAIGNS):
            enough = [
                (cell, when)
                for cell, when in cells.items()
                if len(when[first]) >= takes and len(when[second]) >= takes // 2 and when[test]
            ]
            tests = [row for _, when in enough for row in when[test]]
            half = takes // 2
            ways = {
                "one day": [when[first][:takes] for _, when in enough],
                "two days": [when[first][:half] + when[second][:half] for _, when in enough],
            }
            owner, text = np.array([cell for cell, _ in enough]).T
            person = np.equal.outer(owner, speaker[tests])
            same = np.equal.outer(text, phrase[tests])
            for way, rows in ways.items():
                Y = unit(X - X[np.concatenate(rows)].mean(axis=0))
                scores = unit(np.array([Y[some].mean(axis=0) for some in rows])) @ Y[tests].T
                owners, others = scores[person & same], scores[~person & same]
                runs.append(
                    {
                        "takes": takes,
                        "way": way,
                        "test": test,
                        "people": len(np.unique(owner)),
                        "owners": len(owners),
                        "impostors": len(others),
                        "eer": float(eer(owners, others)),
                        "frr": float((owners < np.quantile(others, 1 - FAR)).mean()),
                    }
                )
    return {"runs": runs}


def table(found: dict[str, Any]) -> str:
    """Means over the campaigns, in %."""
    lines = [
        "| enrolled | EER | owners rejected at 0.1 % of impostors with the right words |",
        "| :--- | ---: | ---: |",
    ]
    for takes in TAKES:
        for way in ("one day", "two days"):
            own = [run for run in found["runs"] if (run["takes"], run["way"]) == (takes, way)]
            rates = [100 * float(np.mean([run[name] for run in own])) for name in ("eer", "frr")]
            lines += [f"| {takes} takes, {way} | {rates[0]:.2f} | {rates[1]:.2f} |"]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    study_command("days", __doc__, study, table, reads=["cvau.npz"])
