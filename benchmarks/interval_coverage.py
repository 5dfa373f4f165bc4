"""How often the intervals hold the truth, and how often a paired test is wrong, in simulated evaluations.

``python -m benchmarks intervals``. A world tells how scores come about; speakers are drawn from it, everyone is
enrolled and tested, the scores are judged, and the interval is held against the value of the whole world. Trials are
crossed: the same speakers stand on both sides, every speaker has an effect of his own as a target, as the one enrolled
and as the one tested, and every pair has one too. Some worlds have a hundred impostors besides, who are tested only.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from mvplda.costs import detection_costs
from mvplda.metrics import compare_systems, evaluate, speaker_intervals
from mvplda.metrics.curves import Hull, pool

COSTS = detection_costs(("default", "sre21", ".001"))
FARS = (0.01, 0.001)
UNSTATED = ("act_dcf", "min_dcf_threshold", "far_there")
"""Metrics without an interval, or whose truth is another one in every round."""
Trials = tuple[Any, Any, Any]
"""Scores (profiles, tests), the speakers of the profiles, those of the tests."""


@dataclass(frozen=True)
class Gaussian:
    """A target's score is mean + own + noise, an impostor's enrolled + tested + pair + noise; deviations of each.

    impostors : speakers who are tested, and not enrolled
    """

    mean: float
    own: float
    side: float
    pair: float
    noise: float = 1.0
    impostors: int = 0

    @property
    def deviations(self) -> tuple[float, float]:
        return np.hypot(self.own, self.noise), np.sqrt(
            2 * self.side**2 + self.pair**2 + self.noise**2
        )

    @property
    def scale(self) -> tuple[float, float]:
        """Factor and threshold that make the scores fair likelihood ratios."""
        of_targets, of_others = self.deviations
        return self.mean / (of_targets * of_others), self.mean * of_others / (
            of_targets + of_others
        )

    def draw(self, rng: np.random.Generator, speakers: int, profiles: int, tests: int) -> Trials:
        everyone = speakers + self.impostors
        who, test = np.repeat(np.arange(speakers), profiles), np.repeat(np.arange(everyone), tests)
        own, enrolled = (rng.normal(0, s, speakers) for s in (self.own, self.side))
        tested = rng.normal(0, self.side, everyone)
        pairs = rng.normal(0, self.pair, (speakers, everyone))
        others = enrolled[who][:, None] + tested[test][None, :] + pairs[who][:, test]
        scores = np.where(who[:, None] == test[None, :], self.mean + own[who][:, None], others)
        factor, threshold = self.scale
        return factor * (scores + rng.normal(0, self.noise, scores.shape) - threshold), who, test

    def truth(self) -> dict[str, float]:
        """Measures of all speakers that there might be, from both distributions."""
        of_targets, of_others = self.deviations
        factor, threshold = self.scale
        x = np.linspace(-8 * of_others, self.mean + 8 * of_targets, 40_001)
        below = (
            np.concatenate([[0.0], ndtr(z), [1.0]])
            for z in ((x - self.mean) / of_targets, x / of_others)
        )
        hull = Hull(*pool(*below))
        z = np.linspace(-8, 8, 20_001)
        density = np.exp(-(z**2) / 2) / np.exp(-(z**2) / 2).sum()
        targets, others = (
            factor * (m + s * z - threshold) for m, s in ((self.mean, of_targets), (0.0, of_others))
        )
        cllr = density @ (np.logaddexp(0, -targets) + np.logaddexp(0, others)) / (2 * np.log(2))
        least = {
            f"min_dcf/{c.name}": float(hull.least(c.miss_weight, c.false_alarm_weight)[0])
            for c in COSTS
        }
        points = {}
        for far in FARS:
            at = of_others * ndtri(1 - far)
            points |= {
                f"frr_at_far/{far:g}": float(ndtr((at - self.mean) / of_targets)),
                f"threshold_at_far/{far:g}": float(factor * (at - threshold)),
            }
        return {
            "eer": hull.eer(),
            **least,
            "cllr": float(cllr),
            "min_cllr": hull.min_cllr(),
            **points,
        }


@dataclass(frozen=True)
class Vectors:
    """Vectors of speakers, some more steady than others, and the likelihood ratio of a model that thinks them alike."""

    dimension: int = 6
    noise: float = 0.5
    unsteady: float = 0.35

    def draw(self, rng: np.random.Generator, speakers: int, profiles: int, tests: int) -> Trials:
        centre = rng.normal(size=(speakers, self.dimension))
        noise = self.noise * np.exp(self.unsteady * rng.normal(size=speakers))
        who, test = (np.repeat(np.arange(speakers), times) for times in (profiles, tests))
        e, t = (
            centre[w] + noise[w][:, None] * rng.normal(size=(len(w), self.dimension))
            for w in (who, test)
        )
        return self._llr((e**2).sum(1)[:, None] + (t**2).sum(1)[None, :], e @ t.T), who, test

    def _llr(self, lengths: Any, products: Any) -> Any:
        total = 1 + self.noise**2 * np.exp(2 * self.unsteady**2)
        left = total**2 - 1
        ratio = lengths / (2 * total) - (total * lengths - 2 * products) / (2 * left)
        return ratio - self.dimension / 2 * np.log(left / total**2)

    def truth(self) -> dict[str, float]:
        """Measures of a million trials of either kind, each with speakers of its own."""
        rng, trials = np.random.default_rng(99), 1_000_000
        scores = []
        for same in (True, False):
            centre = rng.normal(size=(trials, self.dimension))
            noise = self.noise * np.exp(self.unsteady * rng.normal(size=(trials, 1)))
            e = centre + noise * rng.normal(size=centre.shape)
            if not same:
                centre = rng.normal(size=centre.shape)
                noise = self.noise * np.exp(self.unsteady * rng.normal(size=noise.shape))
            t = centre + noise * rng.normal(size=centre.shape)
            scores.append(self._llr((e**2).sum(1) + (t**2).sum(1), (e * t).sum(1)))
        found = evaluate(np.concatenate(scores), np.repeat([True, False], trials), COSTS, far=FARS)[
            "Total"
        ].values
        return {name: value for name, value in found.items() if not name.startswith(UNSTATED)}


WORLDS: dict[str, Any] = {
    "weak effects of speakers": Gaussian(mean=4.0, own=0.3, side=0.3, pair=0.3),
    "strong effects of speakers": Gaussian(mean=5.0, own=1.0, side=0.7, pair=0.5),
    "strong effects of pairs": Gaussian(mean=5.0, own=0.8, side=0.5, pair=1.0, noise=0.4),
    "few errors": Gaussian(mean=6.0, own=0.5, side=0.5, pair=0.5),
    "many errors": Gaussian(mean=3.0, own=0.7, side=0.7, pair=0.0),
    "vectors of unsteady speakers": Vectors(),
}
UNEVEN: dict[str, Gaussian] = {
    "strong effects, impostors not enrolled": replace(
        WORLDS["strong effects of speakers"], impostors=100
    ),
    "many errors, impostors not enrolled": replace(WORLDS["many errors"], impostors=100),
}
ENROLLED = (5, 12)
SPEAKERS = (12, 20, 50)
SIZES = ((1, 4), (2, 10))
"""Profiles and tests of a speaker."""


def coverage(
    world: Gaussian | Vectors,
    truth: dict[str, float],
    speakers: int,
    size: tuple[int, int],
    rounds: int,
) -> dict[str, Any]:
    """Of the rounds in which a measure had an interval: how many held the truth, which way others missed, how wide."""
    found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in truth}
    rng = np.random.default_rng([speakers, *size])
    for _ in range(rounds):
        scores, who, test = world.draw(rng, speakers, *size)
        row = speaker_intervals(
            scores, who[:, None] == test[None, :], who, test, COSTS, far=FARS
        ).intervals["Total"]
        for name in found:
            if name in row:
                found[name].append((row[name].estimate, row[name].low, row[name].high))
    measures = {}
    for name, items in found.items():
        if not items:
            measures[name] = {"truth": round(truth[name], 5), "shown": 0.0}
            continue
        estimate, low, high = np.array(items).T
        held = (low <= truth[name]) & (truth[name] <= high)
        measures[name] = {
            "truth": round(truth[name], 5),
            "shown": len(items) / rounds,
            "coverage": round(float(held.mean()), 4),
            "truth above": round(float((high < truth[name]).mean()), 4),
            "mean estimate / truth": _finite(estimate.mean() / truth[name]),
            "mean width / truth": _finite((high - low).mean() / abs(truth[name])),
            "median width / truth": _finite(np.median(high - low) / abs(truth[name])),
        }
    return measures


def _finite(value: float) -> float | None:
    """For JSON, which knows no infinity: a threshold may have no upper end."""
    return round(float(value), 2) if np.isfinite(value) else None


def wrong_verdicts(
    world: Gaussian, speakers: int, size: tuple[int, int], rounds: int, resamples: int
) -> dict[str, float]:
    """Two systems that are equally good: the scores, each with noise of its own. How often is one said to be better?"""
    rng = np.random.default_rng([7, speakers])
    wrong: dict[str, int] = {}
    for _ in range(rounds):
        scores, who, test = world.draw(rng, speakers, *size)
        a, b = (scores + rng.normal(0, 0.7 * world.scale[0], scores.shape) for _ in range(2))
        same = who[:, None] == test[None, :]
        tests = compare_systems(
            a, b, same, who, test, n_resamples=resamples, random_state=rng
        ).tests["Total"]
        for name, found in tests.items():
            wrong[name] = wrong.get(name, 0) + (found.verdict != "undecided")
    return {name: round(count / rounds, 4) for name, count in wrong.items()}


def ratio_coverage(
    world: Gaussian, speakers: int, size: tuple[int, int], rounds: int, resamples: int
) -> float:
    """How often the interval of the share of B's EER that A has holds the worlds' share, A having less noise."""
    rng, extra = np.random.default_rng([8, speakers]), (0.3, 1.0)
    ours, theirs = (
        replace(world, noise=float(np.hypot(world.noise, s))).truth()["eer"] for s in extra
    )
    held = 0
    for _ in range(rounds):
        scores, who, test = world.draw(rng, speakers, *size)
        a, b = (scores + rng.normal(0, s * world.scale[0], scores.shape) for s in extra)
        same = who[:, None] == test[None, :]
        found = compare_systems(
            a, b, same, who, test, n_resamples=resamples, random_state=rng
        ).tests["Total"]["eer"]
        held += found.ratio_low <= ours / theirs <= found.ratio_high
    return round(held / rounds, 4)


def intervals(rounds: int) -> list[dict[str, Any]]:
    """Coverage in every world and size."""
    cases = [(world, speakers, size) for world in WORLDS for speakers in SPEAKERS for size in SIZES]
    rows = []
    for world, speakers, size in cases:
        each = max(10, rounds // 2) if speakers * size[1] >= 500 else rounds
        rows.append(_covered(WORLDS[world], world, speakers, size, each))
    return rows


def uneven_intervals(rounds: int) -> list[dict[str, Any]]:
    """Coverage where impostors are not enrolled."""
    half = max(10, rounds // 2)
    return [
        _covered(model, world, n, SIZES[0], half)
        for world, model in UNEVEN.items()
        for n in ENROLLED
    ]


def _covered(
    model: Any, world: str, speakers: int, size: tuple[int, int], rounds: int
) -> dict[str, Any]:
    case = {
        "world": world,
        "speakers": speakers,
        "profiles": size[0],
        "tests": size[1],
        "rounds": rounds,
    }
    return {**case, "measures": coverage(model, model.truth(), speakers, size, rounds)}


def paired(
    worlds: dict[str, Gaussian], speakers: tuple[int, ...], rounds: int, resamples: int
) -> list[dict[str, Any]]:
    """What paired tests say of systems that are equally good, and how often the interval of a ratio holds."""
    return [
        {
            "world": world,
            "speakers": n,
            "rounds": rounds,
            "resamples": resamples,
            "wrong verdicts": wrong_verdicts(model, n, SIZES[0], rounds, resamples),
            "coverage of the ratio of EER": ratio_coverage(model, n, SIZES[0], rounds, resamples),
        }
        for world, model in worlds.items()
        for n in speakers
    ]


def least_coverage(rows: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """By measure and number of speakers, in the world where it is least."""
    least: dict[str, dict[str, float]] = {}
    for row in rows:
        key = f"{row['speakers']} speakers" + ", 100 impostors besides" * (row["world"] in UNEVEN)
        for name, measure in row["measures"].items():
            if "coverage" in measure:
                by_speakers = least.setdefault(name, {})
                by_speakers[key] = min(by_speakers.get(key, 1.0), measure["coverage"])
    return least


def run(*, quick: bool, rounds: int, peer_python: str) -> dict[str, Any]:
    many, resamples = (10, 50) if quick else (400, 200)
    begin = time.perf_counter()
    rows = intervals(many) + uneven_intervals(many)
    comparisons = paired(
        {name: WORLDS[name] for name in list(WORLDS)[:2]}, SPEAKERS[:2], many, resamples
    )
    comparisons += paired(UNEVEN, ENROLLED, max(10, many // 4), resamples)
    return {
        "machine": {"clock": f"wall seconds, {time.perf_counter() - begin:.0f} in all"},
        "level": 0.95,
        "least coverage in any world": least_coverage(rows),
        "intervals": rows,
        "paired tests at 5 %": comparisons,
    }
