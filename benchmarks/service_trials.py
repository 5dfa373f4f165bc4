"""Trials of a model of the service, and its errors among people and phrases that have chosen nothing.

`measure` is what benchmarks/service_model.py calls for the default models.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import logsumexp
from sklearn.pipeline import Pipeline

from mvplda import Bundle, MultiviewPLDA
from mvplda.metrics.jackknife import jackknife_interval, unmet
from mvplda.models.committee import weigh_experts
from mvplda.preprocessing import LengthNormalisation, Reduction
from mvplda.serve.decisions import KINDS, odds
from mvplda.serve.model import Calibration, Cell, Mode, ServiceModel, log_likelihoods

SESSIONS = 4
"""Of everybody who is measured on: three enrol, the last one tests."""


@dataclass(frozen=True)
class Table:
    """Vectors with their labels."""

    X: np.ndarray
    speaker: np.ndarray
    phrase: np.ndarray
    session: np.ndarray


# -- models --------------------------------------------------------------------------------

DIMENSION, RANKS = 120, {"speaker": 40, "phrase": 30, "speaker:phrase": 30}


@dataclass(frozen=True)
class Material:
    """Vectors of people whom errors are measured on (`own`), and of voices that are trained on alone.

    fold : number of a person's part of them, -1 of the other voices
    part : of a phrase: 0 trains, 1 chooses, 2 reports
    known : phrases that a model may know from its training
    """

    X: np.ndarray
    speaker: np.ndarray
    phrase: np.ndarray
    session: np.ndarray
    own: np.ndarray
    fold: np.ndarray
    part: np.ndarray
    known: np.ndarray
    extractor: str

    @classmethod
    def of(
        cls, table: Table, other: Table, extractor: str, *, every_phrase: bool = False
    ) -> Material:
        """Folds of people; of the phrases, ten choose and ten report.

        every_phrase : phrases of the other voices may be known too
        """
        rng, mean = np.random.default_rng(0), table.X.mean(axis=0, dtype=np.float64)
        X = np.concatenate([table.X, other.X - other.X.mean(axis=0, dtype=np.float64) + mean])
        speaker = np.concatenate(
            [np.char.add("own ", table.speaker), np.char.add("other ", other.speaker)]
        )
        phrase, own = np.append(table.phrase, other.phrase), np.arange(len(X)) < len(table.X)
        people, codes = np.unique(speaker[own], return_inverse=True)
        fold = np.append(rng.permutation(len(people))[codes] % FOLDS, np.full(len(other.X), -1))
        texts = rng.permutation(np.unique(table.phrase))
        part = np.isin(phrase, texts[:10]) + 2 * np.isin(phrase, texts[10:20])
        known = np.unique(phrase if every_phrase else table.phrase)
        return cls(
            X,
            speaker,
            phrase,
            np.append(table.session, other.session),
            own,
            fold,
            part,
            known,
            extractor,
        )

    def fit(self, rows: np.ndarray) -> ServiceModel:
        """A model of some rows, which keeps what it knows of phrases, and nothing of any speaker."""
        scorer = MultiviewPLDA(RANKS, noise="full", noise_shrinkage=0.1, max_iter=15, tol=1e-4)
        steps = [("reduce", Reduction(DIMENSION)), ("length", LengthNormalisation())]
        bundle = Bundle(Pipeline(steps), scorer, extractor=self.extractor)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of iterations, and of sets that share no class
            bundle.fit(self.X[rows], {"speaker": self.speaker[rows], "phrase": self.phrase[rows]})
        fitted = bundle.fitted_scorer
        for view in [view for view in fitted.class_covariances_ if view != "phrase"]:
            del fitted.class_covariances_[view], fitted.class_means_[view]
            fitted.classes_[view] = fitted.classes_[view][:0]
        names = fitted.classes_["phrase"]
        said = np.isin(names, self.known)
        fitted.class_means_["phrase"] = fitted.class_means_["phrase"][: len(names)][said]
        fitted.class_covariances_["phrase"] = fitted.class_covariances_["phrase"][: len(names)][
            said
        ]
        fitted.classes_["phrase"] = names[said]
        return ServiceModel(bundle)


# -- trials --------------------------------------------------------------------------------

ENROL = SESSIONS - 1
EACH = 4
"""Answers of a kind to a challenge."""
WHO = ("the owner", "the owner, another phrase", "another voice", "another voice, another phrase")
CASES = {
    "the owner": 0,
    "the owner, wrong order": 1,
    "the owner, last time's answer": 1,
    "another voice": 2,
}
CASES |= {"another voice, last time's answer": 3}
"""Who answers a challenge, and which of the four accounts is true of it."""
CHALLENGES = (("enrolled", 1), ("known", 1), ("known", 1), ("enrolled", 2), ("known", 2))
"""Where the phrases come from: three that the person enrolled, or those of training; and how many are asked for."""


@dataclass
class Trials:
    """Evidence (n, 4), number of the true account, (n, 2) who enrolled and who spoke, and a name of each trial."""

    evidence: np.ndarray
    truth: np.ndarray
    people: np.ndarray
    case: np.ndarray


def together(parts: Iterable[Trials]) -> Trials:
    return Trials(
        *(
            np.concatenate(column)
            for column in zip(*(vars(part).values() for part in parts), strict=True)
        )
    )


def phrase_trials(material: Material, model: ServiceModel, rows: np.ndarray) -> Trials:
    """Everybody's profile of every phrase, three recordings each, against everybody's last recording of every one."""
    enrol = rows & (material.session < ENROL)
    names = np.char.add(np.char.add(material.speaker, "|"), material.phrase)
    test = np.flatnonzero(rows & (material.session == ENROL))
    profiles = model.bundle.enrol(material.X[enrol], names[enrol])
    said = log_likelihoods(
        model.bundle.fitted_scorer, profiles, model.bundle.enrol(material.X[test])
    )
    owner, phrase = (
        np.array(part) for part in zip(*(name.split("|") for name in profiles.ids), strict=True)
    )
    same = owner[:, None] == material.speaker[test], phrase[:, None] == material.phrase[test]
    truth = np.where(same[0], np.where(same[1], 0, 1), np.where(same[1], 2, 3)).ravel()
    people = np.stack(np.broadcast_arrays(owner[:, None], material.speaker[test]), axis=-1).reshape(
        -1, 2
    )
    return Trials(said.reshape(4, -1).T, truth, people, np.array(list(WHO))[truth])


def challenge_trials(
    material: Material, model: ServiceModel, new: np.ndarray, known: np.ndarray, seed: int
) -> dict[str, Trials]:
    """Challenges as the service makes them, answered rightly and wrongly, by mode.

    new, known : recordings of phrases that the model has not met, which people enrol, and of those of its training
    """
    rng, every = np.random.default_rng(seed), np.flatnonzero(new | known)
    place = {(material.speaker[i], material.phrase[i], int(material.session[i])): i for i in every}
    shares = dict(zip(every.tolist(), model.prepare(material.X[every]), strict=True))
    speakers, texts = np.unique(material.speaker[every]), np.unique(material.phrase[known]).tolist()
    found: dict[str, list[Any]] = {}

    def say(speaker: str, phrase: str, sessions: range) -> np.ndarray:
        return shares[place[speaker, phrase, int(rng.choice(sessions))]]

    for who in speakers:
        enrolled = [
            Cell(p, np.sum([shares[place[who, p, k]] for k in range(ENROL)], axis=0), ENROL)
            for p in rng.permutation(np.unique(material.phrase[new]))[:3].tolist()
        ]
        for source, count in CHALLENGES:
            cells, pool, sessions = enrolled[:1], texts, range(SESSIONS)
            if source == "enrolled":
                cells, pool, sessions = (
                    enrolled,
                    [cell.phrase for cell in enrolled],
                    range(ENROL, SESSIONS),
                )
            drawn = rng.permutation(pool).tolist()
            asked, tests, about = drawn[:count], [], []
            for case, kind in CASES.items():
                for _ in range(EACH if count > 1 or "order" not in case else 0):
                    answer = asked[1:] + asked[:1] if "order" in case else asked
                    if "last time" in case:
                        answer = [*rng.permutation(drawn[count:]).tolist(), *drawn][:count]
                    speaker = who if kind < 2 else rng.choice(speakers[speakers != who])
                    tests.append(
                        [
                            Cell(p, say(speaker, a, sessions), 1)
                            for p, a in zip(asked, answer, strict=True)
                        ]
                    )
                    about.append((kind, (who, speaker), f"{count} {source}: {case}"))
            mode = model.mode(cells, asked)
            rows = zip(
                model.raw_evidence(cells, tests, True), *zip(*about, strict=True), strict=True
            )
            found.setdefault("challenge" if mode == "enrolled" else mode, []).extend(rows)
    return {mode: Trials(*map(np.array, zip(*rows, strict=True))) for mode, rows in found.items()}


# -- calibration, thresholds, errors -------------------------------------------------------

FOLDS, INNER = 2, 3
MODES: tuple[Mode, ...] = ("enrolled", "prompted", "sequence")
GRID = np.arange(-4.0, 7.01, 0.25)
WANTED = (0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001)
LEVEL = 0.95


def calibration_of(trials: Trials) -> Calibration:
    """Factors of voice, words and both that cost these trials least; all accounts weigh the same."""
    tc, tw, ic, _ = trials.evidence.T
    none = np.zeros_like(tc)
    parts = [
        np.stack(row)
        for row in ((tw, ic, tc - tw - ic), (tw, none, none), (none, ic, none), (none, none, none))
    ]
    factors, _ = weigh_experts(np.moveaxis(np.stack(parts), -1, 0), trials.truth)
    return Calibration(*(round(float(factor), 4) for factor in factors))


def llrs_of(evidence: np.ndarray, doubt: float) -> np.ndarray:
    """What `odds` says of many trials."""
    logs = np.logaddexp(
        np.log1p(-doubt) + evidence - logsumexp(evidence, axis=1)[:, None], np.log(doubt / 4)
    )
    llrs = logs[:, 0] - logsumexp(logs[:, 1:], axis=1) + np.log(3)
    assert np.isclose(llrs[0], odds(evidence[0], doubt).llr)
    return np.asarray(llrs)


@dataclass(frozen=True)
class Rates:
    """Shares of trials accepted from thresholds on, by account, and the same without each person in turn."""

    whole: np.ndarray
    without: np.ndarray

    @classmethod
    def of(cls, llrs: np.ndarray, trials: Trials, thresholds: np.ndarray) -> Rates:
        names, codes = np.unique(trials.people, return_inverse=True)
        owner, speaker = codes.reshape(trials.people.shape).T
        bins = np.searchsorted(thresholds, llrs, side="right")  # thresholds at or below the LLR
        counts = np.zeros((4, len(names), len(names), len(thresholds) + 1))
        np.add.at(counts, (trials.truth, owner, speaker, bins), 1)

        def shares(counts: np.ndarray) -> np.ndarray:
            accepted = counts[..., ::-1].cumsum(axis=-1)[..., ::-1][..., 1:]
            return np.asarray(accepted / np.maximum(counts.sum(axis=-1), 1)[..., None])

        every = counts.sum(axis=(1, 2))
        own = counts.sum(axis=2) + counts.sum(axis=1) - np.einsum("kiit->kit", counts)
        return cls(shares(every), shares(every[:, None] - own))

    def interval(self, of: Callable[[np.ndarray], np.ndarray]) -> list[list[float]]:
        """Estimate, lower and upper end at every threshold of something made of shares (accounts, ...)."""
        people = self.without.shape[1]
        found = []
        for estimate, without in zip(of(self.whole), of(self.without).T, strict=True):
            ends = jackknife_interval(
                float(estimate), without, LEVEL, most=1.0, unseen=unmet(LEVEL, people)
            )
            found.append([round(value, 5) for value in (ends.estimate, ends.low, ends.high)])
        return found

    def described(self) -> dict[str, Any]:
        """False acceptances, every sort of impostors weighing the same, and false rejections."""
        kinds = {kind: np.round(self.whole[k], 5).tolist() for k, kind in enumerate(KINDS) if k}
        far, frr = self.interval(lambda s: s[1:].mean(axis=0)), self.interval(lambda s: 1 - s[0])
        return {"far": far, "frr": frr, "byKind": kinds}


def chosen(llrs: np.ndarray, trials: Trials, most: float) -> dict[float, float]:
    """The lowest threshold at which no sort of impostors passes more often than is wanted, all with their interval.

    Where people are too few to show it: none below that of a calibrated LLR, and no interval.
    """
    said = Rates.of(llrs, trials, GRID).described()
    far, worst = np.array(said["far"]), np.max(list(said["byKind"].values()), axis=0)
    found = {}
    for wanted in WANTED:
        shown = GRID[(far[:, 2] <= wanted) & (worst <= wanted)]
        promised = GRID[
            (np.maximum(far[:, 0], worst) <= wanted) & (-np.log(wanted) <= GRID) & (most >= GRID)
        ]
        if len(shown) or len(promised):
            found[wanted] = float(shown[0] if len(shown) else promised[0])
    return found


def held_out(
    material: Material, used: np.ndarray, trained: np.ndarray, folds: int, seed: int
) -> dict[str, Trials]:
    """Trials of people who are left out of the model in turn, and of phrases that it has not met.

    used, trained : rows to take, and those of them that train where their person is not left out
    """
    people = np.unique(material.speaker, return_inverse=True)[1]
    fold = np.where(
        material.own, np.random.default_rng(seed).permutation(people.max() + 1)[people] % folds, -1
    )
    parts = [
        trials_of(material, material.fit(used & trained & (fold != f)), used & (fold == f), seed)
        for f in range(folds)
    ]
    return {mode: together([part[mode] for part in parts]) for mode in parts[0]}


def trials_of(
    material: Material, model: ServiceModel, rows: np.ndarray, seed: int
) -> dict[str, Trials]:
    new = ~np.isin(material.phrase, list(model.phrases))
    own = phrase_trials(material, model, rows & new)
    return {"enrolled": own, **challenge_trials(material, model, rows & new, rows & ~new, seed)}


def measure(material: Material) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What is to be written about a model of all people, and the errors by who speaks.

    Nested: for every fold of people, calibrations and thresholds are chosen on the others, who are held out of models
    in turn; the fold's own trials choose nothing. No model has met the phrases that choose, nor those that report.
    """
    part, people = (
        material.part,
        [np.unique(material.speaker[material.fold == f]) for f in range(FOLDS)],
    )
    pairs = sum(len(own) * (len(own) - 1) for own in people)
    doubt, most = (
        4 / (pairs / 3 + 3),
        float(np.log(pairs / 3)),
    )  # of so many pairs 3 might pass although none was seen
    told: dict[str, list[Told]] = {}
    for f in range(FOLDS):
        others = material.fold != f
        choose = held_out(material, others & (part < 2), part == 0, INNER, f)
        lines = {mode: line_of(choose[mode], doubt, most) for mode in MODES}
        for mode, trials in trials_of(
            material, material.fit(others & (part < 2)), material.fold == f, f
        ).items():
            calibration, thresholds = lines["enrolled" if mode == "challenge" else mode]
            told.setdefault(mode, []).append(
                Told(trials, llrs_of(calibration(trials.evidence), doubt), thresholds)
            )
        print(
            "fold",
            f,
            {mode: vars(calibration) for mode, (calibration, _) in lines.items()},
            flush=True,
        )
    whole = held_out(material, np.ones(len(part), dtype=bool), part != 1, INNER, FOLDS)
    lines = {mode: line_of(whole[mode], doubt, most) for mode in MODES}
    said = {
        "doubt": doubt,
        "calibration": {mode: vars(calibration) for mode, (calibration, _) in lines.items()},
        "errors": {
            mode: described(told[mode], thresholds) for mode, (_, thresholds) in lines.items()
        },
    }
    return said, [row for mode in told for row in by_case(told[mode], mode)]


@dataclass
class Told:
    """Trials of a fold of people, their LLRs, and thresholds by what is wanted: other people chose both."""

    trials: Trials
    llrs: np.ndarray
    thresholds: dict[float, float]


def line_of(trials: Trials, doubt: float, most: float) -> tuple[Calibration, dict[float, float]]:
    calibration = calibration_of(trials)
    return calibration, chosen(llrs_of(calibration(trials.evidence), doubt), trials, most)


def described(told: list[Told], thresholds: dict[float, float]) -> dict[str, Any]:
    """Errors by threshold, and by what was wanted."""
    trials, llrs = together(one.trials for one in told), np.concatenate([one.llrs for one in told])
    points = []
    for wanted, threshold in thresholds.items():
        if all(wanted in one.thresholds for one in told):
            over = np.concatenate([one.llrs - one.thresholds[wanted] for one in told])
            found = Rates.of(over, trials, np.zeros(1)).described()
            rates = {"far": found["far"][0], "frr": found["frr"][0]}
            point = {"wantedFar": wanted, "threshold": threshold}
            for name, (estimate, *ends) in rates.items():
                point |= {name: estimate, f"{name}Interval": ends}
            points.append(
                point | {"farByKind": {kind: far[0] for kind, far in found["byKind"].items()}}
            )
    counts = {kind: int((trials.truth == k).sum()) for k, kind in enumerate(KINDS)}
    own = Rates.of(llrs, trials, GRID).described() | {
        "people": len(np.unique(trials.people)),
        "trials": counts,
    }
    return {"thresholds": GRID.tolist(), **own, "points": points}


def by_case(told: list[Told], mode: str) -> list[dict[str, Any]]:
    """How often each sort of speaker is wrongly treated, where false acceptances of 1 % are wanted, or the next."""
    trials = together(one.trials for one in told)
    wanted = min(w for w in WANTED if w >= 0.01 and all(w in one.thresholds for one in told))
    over = np.concatenate([one.llrs - one.thresholds[wanted] for one in told])
    found = []
    for case in np.unique(trials.case):
        own = trials.case == case
        alike = Trials(
            trials.evidence[own], np.zeros(own.sum(), int), trials.people[own], trials.case[own]
        )
        right = case.endswith("the owner")
        rates = Rates.of(over[own], alike, np.zeros(1))
        ((share, *ends),) = rates.interval(lambda s, right=right: 1 - s[0] if right else s[0])  # type: ignore[misc]
        wrong = "falsely rejected" if right else "falsely accepted"
        counted = {"share": share, "interval": ends, "trials": int(own.sum())}
        found.append(
            {"mode": mode, "wantedFar": wanted, "case": str(case), "wrong": wrong, **counted}
        )
    return found
