"""Folds that leave attacks, corpora and people out of the training, and error rates with intervals over people."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from zlib import crc32

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from mvplda._typing import BoolArray, Json, Names
from mvplda.metrics import eer
from mvplda.voice.spoof_detector import SpoofCalibration
from tools.spoof_detector.material import (
    GENUINE,
    GROUPS,
    PERSON,
    RECORDINGS,
    SAME_DEVICE,
    TEST_ONLY,
    Items,
)

Scores = NDArray[np.float64]

ENROLMENTS = 3
TRAINING_CORPORA = tuple(name for name in RECORDINGS if name not in TEST_ONLY)
ATTACK_GROUPS = tuple(dict.fromkeys(GROUPS.values()))
SPEAKER_PARTS = 4
BPCERS = (0.01, 0.05)
DRAWS = 100
"""Draws of people for an interval."""
LEAST_ATTACKS = 20
"""Fewer attacks have no row."""
REGULARISATION = 100.0


@dataclass(frozen=True)
class Columns:
    """Labels of the items (recordings of people, and attacks) of several corpora, one array per kind of label."""

    corpus: Names
    speaker: Names
    source: NDArray[np.int64]
    group: Names
    is_same_device: BoolArray

    @property
    def is_person(self) -> BoolArray:
        """Return an array that is True for recordings of people and False for attacks."""
        return np.asarray(self.group == PERSON)


def columns_of(items: dict[str, Items]) -> Columns:
    """Return the columns of the items of all corpora, one after the other."""
    speaker = np.concatenate([corpus.speaker for corpus in items.values()])
    kind = np.concatenate([corpus.kind for corpus in items.values()])
    groups = np.array([PERSON if name == GENUINE else GROUPS[name] for name in kind])
    device = np.concatenate([corpus.device for corpus in items.values()])
    return Columns(
        corpus=np.array([name.split("/")[0] for name in speaker]),
        speaker=speaker,
        source=np.concatenate([corpus.source for corpus in items.values()]),
        group=groups,
        is_same_device=np.asarray(device == SAME_DEVICE),
    )


LEFT_OUT = (
    ("WORLD", "room"),
    ("MelGAN", "near loudspeaker"),
    ("Griffin-Lim",),
    ("linear prediction", "eSpeak NG"),
    ("Codec 2",),
)
"""Groups of attacks that a fold leaves out: a vocoder, and a replay or speech synthesis, which are unlike it."""


@dataclass(frozen=True)
class Fold:
    """Items that a network is not trained on: groups of attacks, one corpus, and some people of the other corpora."""

    number: int

    @property
    def groups(self) -> tuple[str, ...]:
        """Return the groups of attacks that are left out."""
        return LEFT_OUT[self.number]

    @property
    def corpus(self) -> str:
        """Return the corpus that is left out."""
        return TRAINING_CORPORA[self.number % len(TRAINING_CORPORA)]

    def is_left_out(self, columns: Columns) -> BoolArray:
        """Return an array that is True for items of people who are left out of the training."""
        parts = np.array([crc32(name.encode()) % SPEAKER_PARTS for name in columns.speaker])
        trained = np.isin(columns.corpus, TRAINING_CORPORA) & (columns.corpus != self.corpus)
        return np.asarray(~trained | (parts == self.number % SPEAKER_PARTS))

    def training(self, columns: Columns) -> NDArray[np.int64]:
        """Return the rows of the items to train on."""
        return np.flatnonzero(~self.is_left_out(columns) & ~np.isin(columns.group, self.groups))


FOLDS = tuple(Fold(number) for number in range(len(LEFT_OUT)))


def item_weights(columns: Columns, rows: NDArray[np.int64]) -> Scores:
    """Return the weights of the items in `rows`.

    People and attacks have the same total weight. Within these, each corpus of people, and each group of attacks of a
    corpus, has a total weight proportional to the square root of its number of items. The mean weight is 1/2 per row.
    """
    weights = np.zeros(len(rows))
    corpora, groups = columns.corpus[rows], columns.group[rows]
    for corpus in np.unique(corpora):
        for group in np.unique(groups):
            chosen = (corpora == corpus) & (groups == group)
            if chosen.any():
                # the square root keeps small cells from dominating
                weights[chosen] = 1.0 / np.sqrt(chosen.sum())
    for mask in (groups == PERSON, groups != PERSON):
        weights[mask] /= weights[mask].sum()
    return np.asarray(weights * len(rows) / 2)


@dataclass(frozen=True)
class Trials:
    """Raw scores of test items, and of enrolments of the same speakers.

    Parameters
    ----------
    test : raw score of each test
    enrolment : mean raw score of its speaker's enrolments
    is_new_corpus, is_new_group : whether the network was trained without the corpus of the test, and without its group
        of attacks
    """

    test: Scores
    enrolment: Scores
    corpus: Names
    speaker: Names
    group: Names
    is_same_device: BoolArray
    is_new_corpus: BoolArray
    is_new_group: BoolArray

    def take(self, mask: BoolArray) -> Trials:
        """Return the trials for which `mask` is True."""
        return replace(self, **{name: values[mask] for name, values in vars(self).items()})

    def shifted(
        self, corpora: Sequence[str], calibrate: Callable[[Trials], SpoofCalibration]
    ) -> Scores:
        """Return the LLR of each trial, calibrated on the trials of all other corpora.

        corpora : corpora to be left out in turn
        calibrate : fits a calibration to trials
        """
        llrs = np.zeros(len(self.test))
        for corpus in corpora:
            chosen = self.corpus == corpus
            map_of_others = calibrate(self.take(~chosen))
            llrs[chosen] = map_of_others.llr(self.test[chosen], self.enrolment[chosen])
        return llrs


def join(parts: Sequence[Trials]) -> Trials:
    """Return the trials of several sets as one set, in their order."""
    names = Trials.__dataclass_fields__
    return Trials(
        **{name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
    )


def fold_trials(fold: Fold, columns: Columns, scores: Scores) -> Trials:
    """Return the trials of the people whom a fold leaves out of the training.

    Enrolments of a test are recordings of the same person on the same device, but from other source recordings.

    scores : raw score of each item; NaN: not scored
    """
    left_out = fold.is_left_out(columns) & np.isfinite(scores)
    is_enrolment = left_out & columns.is_person & columns.is_same_device
    rows, means = [], []
    for speaker in np.unique(columns.speaker[left_out]):
        own = np.flatnonzero(left_out & (columns.speaker == speaker))
        enrolments = own[is_enrolment[own]]
        for row in own:
            others = enrolments[columns.source[enrolments] != columns.source[row]]
            if len(others) >= ENROLMENTS:
                rng = np.random.default_rng([2, row])
                chosen = rng.choice(others, ENROLMENTS, replace=False)
                rows.append(row)
                means.append(float(scores[chosen].mean()))
    index = np.array(rows, np.int64)
    new_corpora = (fold.corpus, *TEST_ONLY)
    return Trials(
        test=scores[index],
        enrolment=np.array(means),
        corpus=columns.corpus[index],
        speaker=columns.speaker[index],
        group=columns.group[index],
        is_same_device=columns.is_same_device[index],
        is_new_corpus=np.isin(columns.corpus[index], new_corpora),
        is_new_group=np.isin(columns.group[index], fold.groups),
    )


def calibrate(trials: Trials, is_centred: bool = True) -> SpoofCalibration:
    """Return a calibration of raw scores to LLRs, fitted to trials with the weights of `item_weights`.

    is_centred : whether the mean score of the speaker's enrolments is used besides the score of the test
    """
    scale = max(float(trials.test.std()), 1e-9)
    columns = [trials.test / scale, trials.enrolment / scale * is_centred]
    is_person = trials.group == PERSON
    cells = Columns(trials.corpus, trials.speaker, trials.corpus, trials.group, is_person)
    weights = item_weights(cells, np.arange(len(is_person)))
    model = LogisticRegression(C=REGULARISATION)
    model.fit(np.stack(columns, axis=1), is_person, sample_weight=weights)
    test, enrolment = model.coef_[0] / scale
    return SpoofCalibration(float(test), float(enrolment), float(model.intercept_[0]))


def error_rates(
    llrs: Scores, trials: Trials, person: BoolArray, attack: BoolArray, seed: int = 0
) -> Json | None:
    """Return the EER, and the APCER at the thresholds of `BPCERS`, with 95 % intervals over people.

    person, attack : masks of the trials of people and of attacks to compare
    seed : seed of the bootstrap

    None is returned for too few attacks.
    """
    if attack.sum() < LEAST_ATTACKS or person.sum() < LEAST_ATTACKS:
        return None
    names, owner = np.unique(trials.speaker, return_inverse=True)
    groups = [(llrs[mask], owner[mask]) for mask in (person, attack)]

    def rates(counts: NDArray[np.int64] | None) -> list[float]:
        people, attacks = (
            scores if counts is None else np.repeat(scores, counts[owners])
            for scores, owners in groups
        )
        if not len(people) or not len(attacks):
            return [np.nan] * (1 + len(BPCERS))
        limits = np.quantile(people, BPCERS)
        return [float(eer(people, attacks)), *(float(np.mean(attacks >= t)) for t in limits)]

    rng = np.random.default_rng(seed)
    drawn = []
    for _ in range(DRAWS):
        counts = np.bincount(rng.integers(0, len(names), len(names)), minlength=len(names))
        drawn.append(rates(counts))
    low, high = np.nanquantile(np.array(drawn), [0.025, 0.975], axis=0)
    keys = ("eer", *(f"apcer at bpcer {100 * value:g} %" for value in BPCERS))
    row: Json = {
        key: {"estimate": value, "low": float(a), "high": float(b)}
        for key, value, a, b in zip(keys, rates(None), low, high, strict=True)
    }
    return {
        **row,
        "attacks": int(attack.sum()),
        "recordings": int(person.sum()),
        "people": len(np.unique(trials.speaker[person | attack])),
    }
