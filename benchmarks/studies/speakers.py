"""How many speakers does a back-end need? Errors on Speech Commands by the number of training speakers.

``python -m benchmarks.studies.speakers DATA [-o results/speakers]``. DATA holds speech_commands.npz: CAM++ vectors
(camp) and vectors of a network for words, of 1,100 people who say single words into their own phones and laptops. 300
people evaluate, one take enrols, all profiles against all other takes; the training people are dealt three times.
"""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.report import study_command
from mvplda import Bundle, MultiviewPLDA, make_committee
from mvplda.metrics import eer
from mvplda.preprocessing import standard_chain, unit_chain

SPEAKERS = (10, 20, 40, 100, 200, 400, 800)
DEALS = 3
EVALUATED = 300
COMPONENTS = 150
STRENGTHS = {"speaker": 0.6, "phrase": 0.2, "speaker:phrase": 0.6, "noise": 0.6}
WORKERS = 4

TITLES = {
    "cosine": "cosine, CAM++",
    "plda": "PLDA (speaker x phrase; of speakers, for the voice)",
    "joint": "two views, maximum likelihood",
    "interaction": "the same with the interaction",
    "prior": "two views with the interaction, isotropic prior",
    "committee": "committee, CAM++",
    "committee, words": "committee, CAM++ and words",
}
COLUMNS = {"IW": "IW", "IC": "IC", "TW": "TW", "Total": "Total", "voice": "voice, other words"}


def make_model(system: str, labels: dict[str, np.ndarray], rows: int) -> Bundle:
    """A model to be fitted; maximum likelihood sees no more components than takes can support."""
    cells = len(set(zip(labels["speaker"], labels["phrase"], strict=True)))
    components = max(2, min(COMPONENTS, (rows - cells) // 2))
    if system.startswith("committee"):
        blocks = {"campplus": 192, "words": 288} if "words" in system else {"campplus": 192}
        return Bundle(None, make_committee(blocks, ["speaker", "phrase"], labels=labels))
    if system == "prior":
        views = dict.fromkeys(["speaker", "phrase", "speaker:phrase"])
        model = MultiviewPLDA(views, prior="isotropic", prior_strength=STRENGTHS, max_iter=0)
        return Bundle(unit_chain(), model)
    phrases = len(np.unique(labels["phrase"])) - 1
    ranks = {"speaker": components, "phrase": min(phrases, components)}
    if system == "interaction":
        ranks["speaker:phrase"] = min(50, components)
    return Bundle(standard_chain(components), MultiviewPLDA(ranks))


def plda(X: np.ndarray, classes: np.ndarray, enrol: np.ndarray, test: np.ndarray) -> np.ndarray:
    """Scores of a PLDA of one label."""
    takes = len(X) - len(np.unique(classes))
    components = max(2, min(COMPONENTS, takes // 2))
    model = Bundle(standard_chain(components), MultiviewPLDA({"class": components}))
    model.fit(X, {"class": classes})
    return np.asarray(model.llr(model.enrol(enrol), model.enrol(test)))


def unit(X: np.ndarray) -> np.ndarray:
    return X / np.linalg.norm(X, axis=1, keepdims=True)


def measure(job: tuple[str, int, int, Path]) -> dict[str, Any]:
    """Equal error rates of one system that is trained on so many speakers."""
    system, speakers, deal, path = job
    data = np.load(path)
    people, words = data["speaker"], data["phrase"]
    X = data["camp"].astype(np.float64)
    if "words" in system:
        X = np.hstack([X, data["words"].astype(np.float64)])
    order = np.random.default_rng(deal).permutation(np.unique(people))
    train = np.flatnonzero(np.isin(people, order[EVALUATED : EVALUATED + speakers]))
    evaluated = np.flatnonzero(np.isin(people, order[:EVALUATED]))
    cells = np.char.add(np.char.add(people, " "), words)
    enrols = evaluated[np.unique(cells[evaluated], return_index=True)[1]]
    tests = np.setdiff1d(evaluated, enrols)
    labels = {"speaker": people[train], "phrase": words[train]}
    if system == "cosine":
        centre = X[train].mean(axis=0)
        both = voice = unit(X[enrols] - centre) @ unit(X[tests] - centre).T
    elif system == "plda":
        both = plda(X[train], cells[train], X[enrols], X[tests])
        voice = plda(X[train], people[train], X[enrols], X[tests])
    else:
        model = make_model(system, labels, len(train)).fit(X[train], labels)
        profiles, sides = model.enrol(X[enrols]), model.enrol(X[tests])
        both = np.asarray(model.llr(profiles, sides))
        voice = np.asarray(model.llr(profiles, sides, same="speaker"))
    person = np.equal.outer(people[enrols], people[tests])
    phrase = np.equal.outer(words[enrols], words[tests])
    targets = both[person & phrase]
    errors = {
        "IW": eer(targets, both[~person & ~phrase]),
        "IC": eer(targets, both[~person & phrase]),
        "TW": eer(targets, both[person & ~phrase]),
        "Total": eer(targets, both[~(person & phrase)]),
        "voice": eer(voice[person & ~phrase], voice[~person & ~phrase]),
    }
    found = {"system": system, "speakers": speakers, "deal": deal, "vectors": len(train)}
    return {**found, "eer": {name: float(rate) for name, rate in errors.items()}}


def study(folder: Path) -> dict[str, Any]:
    path = folder / "speech_commands.npz"
    jobs = [
        (system, speakers, deal, path)
        for speakers in reversed(SPEAKERS)
        for deal in range(DEALS)
        for system in TITLES
    ]
    with ProcessPoolExecutor(WORKERS) as pool:
        return {"runs": list(pool.map(measure, jobs))}


def mean(found: dict[str, Any], system: str, speakers: int, column: str) -> float:
    return float(
        np.mean(
            [
                run["eer"][column]
                for run in found["runs"]
                if run["system"] == system and run["speakers"] == speakers
            ]
        )
    )


def table(found: dict[str, Any]) -> str:
    """Total and the voice question by the number of speakers, means of the deals in %."""
    lines = []
    for column in ("Total", "voice"):
        heads = " | ".join(str(speakers) for speakers in SPEAKERS)
        lines += [f"| {COLUMNS[column]}, EER % by training speakers | {heads} |"]
        lines += ["| :--- |" + " ---: |" * len(SPEAKERS)]
        for system, title in TITLES.items():
            cells = (f"{100 * mean(found, system, speakers, column):.2f}" for speakers in SPEAKERS)
            lines += [f"| {title} | {' | '.join(cells)} |"]
        lines += [""]
    return "\n".join(lines)


if __name__ == "__main__":
    study_command("speakers", __doc__, study, table, reads=["speech_commands.npz"])
