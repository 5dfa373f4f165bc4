"""Coverage of confidence intervals, and error rates of paired tests, in simulated evaluations.

``python -m benchmarks intervals``. A *world* is a distribution of scores with a known error rate. Speakers are drawn
from it, all of them are enrolled and tested, and the interval from their scores is compared with the known rate.
Trials are crossed: the same speakers are on both sides. A score has random effects of the target, of the enrolled
speaker, of the tested speaker, and of their pair. Some worlds also have impostors who are only tested. In skewed
worlds, some speakers have far more errors or trials than others. In worlds with phrases, the error "Total" pools
impostors with right and wrong phrases and targets with wrong phrases.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import ndtr

from mvplda.costs import detection_costs
from mvplda.metrics import compare_systems, evaluate, speaker_intervals, trial_kinds
from mvplda.metrics.catalogue import Interval
from mvplda.metrics.curves import Hull, hull_corners

COSTS = detection_costs(("default", "sre21", "1,1,0.001", "1,1,0.1"))
FARS = (0.01, 0.001)
UNSTATED = ("act_dcf",)
"""Metrics without an interval, or whose truth is another one in every round."""
Trials = tuple[Any, Any, Any]
"""Scores of the trials, who is enrolled in each, and who is tested."""


Mixture = tuple[tuple[float, float, float], ...]
"""Normal distributions: share, mean and deviation of each."""


@dataclass(frozen=True)
class Gaussian:
    """A target's score is mean + own + noise, an impostor's enrolled + tested + pair + noise; deviations of each.

    impostors : speakers who are tested, and not enrolled
    crossed : whether those who are enrolled are impostors to each other
    goats : share of speakers whose targets score lower, and by how much
    wolves : share of speakers whose impostor trials score higher, and by how much
    unequal : deviation of the logarithm of the number of tests of a speaker
    """

    mean: float
    own: float
    side: float
    pair: float
    noise: float = 1.0
    impostors: int = 0
    crossed: bool = True
    goats: tuple[float, float] = (0.0, 0.0)
    wolves: tuple[float, float] = (0.0, 0.0)
    unequal: float = 0.0

    @property
    def deviations(self) -> tuple[float, float]:
        return np.hypot(self.own, self.noise), np.sqrt(
            2 * self.side**2 + self.pair**2 + self.noise**2
        )

    @property
    def scale(self) -> tuple[float, float]:
        """Factor and threshold that make the scores of ordinary speakers fair likelihood ratios."""
        of_targets, of_others = self.deviations
        factor = self.mean / (of_targets * of_others)
        return factor, self.mean * of_others / (of_targets + of_others)

    def draw(self, rng: np.random.Generator, speakers: int, profiles: int, tests: int) -> Trials:
        everyone = speakers + self.impostors
        sizes = np.full(everyone, tests)
        if self.unequal:
            spread = np.exp(self.unequal * rng.normal(size=everyone))
            sizes = np.maximum(1, np.round(tests * spread)).astype(int)
        who = np.repeat(np.arange(speakers), profiles)
        test = np.repeat(np.arange(everyone), sizes)
        own = rng.normal(0, self.own, speakers)
        enrolled = rng.normal(0, self.side, speakers)
        tested = rng.normal(0, self.side, everyone)
        pairs = rng.normal(0, self.pair, (speakers, everyone))
        if self.goats[0]:
            own -= self.goats[1] * (rng.random(speakers) < self.goats[0])
        if self.wolves[0]:
            tested += self.wolves[1] * (rng.random(everyone) < self.wolves[0])
        others = enrolled[who][:, None] + tested[test][None, :] + pairs[who][:, test]
        same = who[:, None] == test[None, :]
        scores = np.where(same, self.mean + own[who][:, None], others)
        factor, threshold = self.scale
        scores = factor * (scores + rng.normal(0, self.noise, scores.shape) - threshold)
        first, second = np.broadcast_arrays(who[:, None], test[None, :])
        kept = same | self.crossed | (second >= speakers)
        return scores[kept], first[kept], second[kept]

    def truth(self) -> dict[str, float]:
        """Measures of all speakers that there might be, from both distributions."""
        of_targets, of_others = self.deviations
        goats, drop = self.goats
        wolves, rise = self.wolves
        targets = ((1 - goats, self.mean, of_targets), (goats, self.mean - drop, of_targets))
        others = ((1 - wolves, 0.0, of_others), (wolves, rise, of_others))
        return truth_of(targets, others, self.scale)


def truth_of(targets: Mixture, others: Mixture, scale: tuple[float, float]) -> dict[str, float]:
    """Measures of scores from two mixtures, after (score - threshold) * factor."""
    factor, threshold = scale
    x = np.linspace(-12.0, 24.0, 80_001)
    of_targets, of_others = (
        sum(share * ndtr((x - mean) / deviation) for share, mean, deviation in mixture)
        for mixture in (targets, others)
    )
    hull = Hull(*hull_corners(np.array([[0.0, *y, 1.0] for y in (of_targets, of_others)])))
    z = np.linspace(-8, 8, 20_001)
    density = np.exp(-(z**2) / 2) / np.exp(-(z**2) / 2).sum()
    cllr = 0.0
    for sign, mixture in ((-1.0, targets), (1.0, others)):
        for share, mean, deviation in mixture:
            llr = factor * (mean + deviation * z - threshold)
            cllr += share * float(density @ np.logaddexp(0, sign * llr)) / (2 * np.log(2))
    values = {"eer": hull.eer(), "cllr": cllr, "min_cllr": hull.min_cllr()}
    for cost in COSTS:
        least = hull.least(cost.miss_weight, cost.false_alarm_weight)[0]
        values[f"min_dcf/{cost.name}"] = float(least)
    for far in FARS:
        at = float(np.interp(1 - far, of_others, x))
        values[f"frr_at_far/{far:g}"] = float(np.interp(at, x, of_targets))
        values[f"threshold_at_far/{far:g}"] = factor * (at - threshold)
    return values


@dataclass(frozen=True)
class Phrases:
    """Speakers who each say every phrase: impostors with the right and the wrong phrase, and wrong phrases.

    A model of voices alone has `wrong` = 0: a right speaker with a wrong phrase scores like a target. The truth of
    Total is that of the shares of the kinds in a list of so many speakers.
    """

    phrases: int
    wrong: float
    voice: Gaussian

    def draw(self, rng: np.random.Generator, speakers: int) -> tuple[Any, Any, Any, Any]:
        """Scores, masks of the kinds, and the speakers of both sides."""
        who = np.repeat(np.arange(speakers), self.phrases)
        phrase = np.tile(np.arange(self.phrases), speakers)
        labels = {"speaker": who, "phrase": phrase}
        kinds = trial_kinds(labels, labels)
        own, enrolled, tested = (
            rng.normal(0, s, speakers) for s in (self.voice.own, self.voice.side, self.voice.side)
        )
        same = kinds["TC"] | kinds["TW"]
        others = enrolled[who][:, None] + tested[who][None, :]
        scores = np.where(same, self.voice.mean + own[who][:, None], others)
        scores = scores + rng.normal(0, self.voice.noise, scores.shape)
        different = kinds["TW"] | kinds["IW"]
        factor, threshold = self.voice.scale
        return factor * (scores - self.wrong * different - threshold), kinds, who, who

    def truth(self, speakers: int) -> dict[str, float]:
        """Measures of Total where so many speakers say all phrases."""
        of_targets, of_others = self.voice.deviations
        sizes = np.array([self.phrases - 1, speakers - 1, (speakers - 1) * (self.phrases - 1)])
        tw, ic, iw = sizes / sizes.sum()
        targets = ((1.0, self.voice.mean, of_targets),)
        others = (
            (tw, self.voice.mean - self.wrong, of_targets),
            (ic, 0.0, of_others),
            (iw, -self.wrong, of_others),
        )
        return truth_of(targets, others, self.voice.scale)


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
        scores = self._llr((e**2).sum(1)[:, None] + (t**2).sum(1)[None, :], e @ t.T)
        first, second = np.broadcast_arrays(who[:, None], test[None, :])
        return scores.reshape(-1), first.reshape(-1), second.reshape(-1)

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
ORDINARY = Gaussian(mean=5.0, own=0.5, side=0.5, pair=0.3)
SKEWED: dict[str, tuple[Gaussian, tuple[int, ...]]] = {
    "one in ten is a goat": (replace(ORDINARY, goats=(0.1, 4.0)), (12, 20)),
    "one in ten is a wolf": (replace(ORDINARY, wolves=(0.1, 3.5)), (12, 20)),
    "ten impostors who are not enrolled, 15 % wolves": (
        replace(ORDINARY, wolves=(0.15, 3.5), impostors=10, crossed=False),
        (40,),
    ),
    "very unequal numbers of tests": (
        replace(WORLDS["strong effects of speakers"], unequal=1.6),
        (50,),
    ),
}
"""Worlds in which some speakers err, or are met, far more than the others, and numbers of speakers."""
VOICE = Gaussian(mean=5.0, own=0.7, side=0.5, pair=0.0)
PHRASES: dict[str, Phrases] = {
    f"{model}, {phrases} phrases": Phrases(phrases, wrong, VOICE)
    for model, wrong in (("voices alone", 0.0), ("voices and phrases", 3.0))
    for phrases in (3, 12)
}
"""Worlds of which Total is judged."""
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
    """How often the intervals of a world's measures hold the truth."""
    rng = np.random.default_rng([speakers, *size])

    def row() -> dict[str, Interval]:
        scores, who, test = world.draw(rng, speakers, *size)
        found = speaker_intervals(scores, who == test, who, test, COSTS, far=FARS)
        return found.intervals["Total"]

    return held_rounds(row, truth, rounds)


def total_coverage(world: Phrases, speakers: int, rounds: int) -> dict[str, Any]:
    """How often the intervals of Total hold the truth, where Total pools three kinds."""
    rng = np.random.default_rng([9, speakers, world.phrases])

    def row() -> dict[str, Interval]:
        return speaker_intervals(*world.draw(rng, speakers), COSTS, far=FARS).intervals["Total"]

    return held_rounds(row, world.truth(speakers), rounds)


def held_rounds(
    draw_row: Callable[[], dict[str, Interval]], truth: dict[str, float], rounds: int
) -> dict[str, Any]:
    """Of the rounds in which a measure had an interval: how many held the truth, which way others missed, how wide."""
    found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in truth}
    for _ in range(rounds):
        row = draw_row()
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
        same = who == test
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
        same = who == test
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


def skewed_intervals(rounds: int) -> list[dict[str, Any]]:
    """Coverage in skewed worlds."""
    return [
        _covered(model, world, n, SIZES[0], rounds)
        for world, (model, speakers) in SKEWED.items()
        for n in speakers
    ]


def phrase_intervals(rounds: int) -> list[dict[str, Any]]:
    """Coverage of Total with few and with many phrases."""
    rows = []
    for world, model in PHRASES.items():
        case = {"world": world, "speakers": 20, "phrases": model.phrases, "rounds": rounds}
        rows.append({**case, "measures": total_coverage(model, 20, rounds)})
    return rows


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
    skewed = skewed_intervals(many)
    total = phrase_intervals(max(10, many // 2))
    comparisons = paired(
        {name: WORLDS[name] for name in list(WORLDS)[:2]}, SPEAKERS[:2], many, resamples
    )
    comparisons += paired(UNEVEN, ENROLLED, max(10, many // 4), resamples)
    return {
        "machine": {"clock": f"wall seconds, {time.perf_counter() - begin:.0f} in all"},
        "level": 0.95,
        "least coverage in any world": least_coverage(rows),
        "intervals": rows,
        "intervals in skewed worlds": skewed,
        "intervals of Total": total,
        "paired tests at 5 %": comparisons,
    }
