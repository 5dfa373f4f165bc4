"""Who is named by their voice, of people that are enrolled and of strangers, on corpora that were left out?

``python -m benchmarks.studies.strangers DATA [-o results/strangers]``. DATA holds the vectors that ``python -m
tools.default_model vectors`` makes. Of every corpus some people enrol all their phrases, by a model that was
fitted, calibrated and given its threshold by the other corpora; they and others are then to be named, in every
condition, as `mvplda identify` and the service do it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.report import study_command
from mvplda.bundle import Bundle
from mvplda.decisions import name_among, naming_point
from mvplda.paper.provenance import WORK
from mvplda.scoring.question import Question
from tools.default_model.build import CALIBRATION, FARS, LeftOutTrials
from tools.default_model.recordings import (
    CONDITIONS,
    DOMAINS,
    LabelledVectors,
    read_labelled_vectors,
)

VOICE = Question(same="speaker")
PEOPLE = (4, 20)
DEALS = 5
TESTS = 200


def bundle_without(material: LeftOutTrials, group: str) -> Bundle:
    """The default model of the other corpora, with its points for the voice alone."""
    trials = material.calibration(CALIBRATION["unnamed"], ("speaker",), left_out=group)
    bundle = Bundle(None, material.model([group]))
    bundle.calibrations = {"speaker": trials.calibrator}
    bundle.points = {"speaker": [trials.point(far) for far in FARS]}
    return bundle


def study(folder: Path) -> dict[str, Any]:
    vectors = read_labelled_vectors(folder)
    material = LeftOutTrials(vectors)
    runs = []
    for group, domains in DOMAINS.items():
        bundle = bundle_without(material, group)
        for domain in domains:
            here = vectors.select(vectors.domain == domain)
            # half of them at most, so that there are strangers
            most = len(np.unique(here.speaker)) // 2
            for people in sorted({min(number, most) for number in PEOPLE}):
                runs += rows(bundle, here, domain, people)
    return {"runs": runs}


def rows(bundle: Bundle, here: LabelledVectors, domain: str, people: int) -> list[dict[str, Any]]:
    everybody = np.unique(here.speaker)
    named: dict[str, list[tuple[bool, bool, bool]]] = {c: [] for c in ("clean", *CONDITIONS)}
    for deal in range(DEALS):
        rng = np.random.default_rng([deal, people])
        owners = rng.permutation(everybody)[:people]
        clean = here.condition == "clean"
        enrols = clean & (here.repetition < 1) & np.isin(here.speaker, owners)
        labels = {"phrase": here.phrase[enrols]}
        profiles = bundle.enrol(here.vectors[enrols], here.speaker[enrols], labels)
        deployed = bundle.deployed(profiles)
        plain = bundle.enrol(here.vectors[enrols], here.speaker[enrols])
        for condition, found in named.items():
            free = (here.condition == condition) & (here.repetition >= 1)
            tests = rng.permutation(np.flatnonzero(free))[:TESTS]
            if not len(tests):
                continue
            llrs = deployed.answer(plain, here.vectors[tests], VOICE).inlier_llr
            d = deployed.outlier_probability(VOICE)
            points = deployed.operating_points(VOICE)
            limit = naming_point(points, len(plain), outlier_probability=d)
            for row, one in zip(tests, llrs.T, strict=True):
                best = name_among(one, limit, outlier_probability=d).best
                is_owner = bool(np.isin(here.speaker[row], owners))
                is_right = best is not None and plain.ids[best] == here.speaker[row]
                found.append((is_owner, best is not None, bool(is_right)))
    made = []
    for condition, found in named.items():
        if not found:
            continue
        owner, anybody, right = np.array(found).T
        made.append(
            {
                "corpus left out": domain,
                "condition": condition,
                "people": people,
                "owners named rightly": float(right[owner].mean()),
                "owners named wrongly": float((anybody & ~right)[owner].mean()),
                "strangers named": float(anybody[~owner].mean()),
                "strangers": int((~owner).sum()),
            }
        )
    return made


def table(found: dict[str, Any]) -> str:
    """Shares of tests in %."""
    names = ("owners named rightly", "owners named wrongly", "strangers named")
    lines = [
        "| corpus left out | condition | people | owners, by name | owners, wrongly | strangers |",
        "| :--- | :--- | ---: | ---: | ---: | ---: |",
    ]
    for run in found["runs"]:
        shares = " | ".join(f"{100 * run[name]:.1f}" for name in names)
        head = " | ".join(str(run[name]) for name in ("corpus left out", "condition", "people"))
        lines.append(f"| {head} | {shares} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    study_command("strangers", __doc__, study, table, inputs={"vectors": f"{WORK}/vectors"})
