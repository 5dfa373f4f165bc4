"""Training and measurement of the network and of the detectors that it is compared with, fold by fold."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mvplda._typing import Json
from mvplda.model_files import load_model
from mvplda.voice.default_model import DEFAULT_MODEL
from mvplda.voice.spoof_detector import (
    CEPSTRA,
    SPOOF_PRIOR,
    SpoofCalibration,
    spoof_statistics,
)
from tools.spoof_detector.baselines import regression_scores
from tools.spoof_detector.material import PERSON, RECORDINGS, Items
from tools.spoof_detector.network import SpoofNetwork, raw_scores, train_network
from tools.spoof_detector.trials import (
    ATTACK_GROUPS,
    FOLDS,
    TRAINING_CORPORA,
    Columns,
    Fold,
    Scores,
    Trials,
    calibrate,
    columns_of,
    error_rates,
    fold_trials,
    item_weights,
    join,
)

Report = Callable[[str], None]
Vectors = NDArray[np.float32]

NETWORK, STATISTICS, CEPSTRAL = "network", "statistics", "cepstra"
STRENGTHS = {STATISTICS: 0.003, CEPSTRAL: 0.01}
"""Strengths of the regressions."""
CEPSTRAL_COLUMNS = 3 * CEPSTRA
"""First columns of the statistics."""
SPOOF_PRIORS = (0.25, 0.05, 0.01, SPOOF_PRIOR)


@dataclass(frozen=True)
class Material:
    """Items of all corpora: recordings of people, and attacks that were made of them.

    Parameters
    ----------
    columns : labels of each item: corpus, speaker, source recording, kind of attack
    statistics : (items, columns) result of `spoof_statistics` for each item
    """

    columns: Columns
    statistics: Vectors

    @property
    def regressions(self) -> Mapping[str, Vectors]:
        """Return {name of a baseline: its input}, one row per item, for the regressions of `baselines`."""
        cepstra = self.statistics[:, :CEPSTRAL_COLUMNS]
        return {STATISTICS: self.statistics, CEPSTRAL: cepstra}


def statistics_of(items: Items) -> Vectors:
    """Return the (items, columns) statistics of recordings and attacks that the detectors read."""
    return np.stack([spoof_statistics(items.sound(row)) for row in range(len(items))])


def read_material(work: Path) -> Material:
    """Return the items in the folder `work`; their statistics are read from it, or computed and written."""
    items = {name: Items.load(work / f"{name}.npz") for name in RECORDINGS}
    arrays = [
        stored(work / f"{name}-statistics.npy", partial(statistics_of, corpus))
        for name, corpus in items.items()
    ]
    return Material(columns_of(items), np.concatenate(arrays))


def stored(path: Path, compute: Callable[[], Vectors]) -> Vectors:
    """Return the array in a file; if the file does not exist, it is first written with the result of `compute`."""
    if not path.exists():
        np.save(path, compute())
    return np.asarray(np.load(path))


def score_fold(work: Path, material: Material, fold: Fold, report: Report) -> dict[str, Scores]:
    """Return {detector: raw scores of all items}, for detectors that are trained on one fold.

    The scores include the items of the training; `fold_trials` selects the others.
    """
    path = work / f"fold{fold.number}.npz"
    if path.exists():
        with np.load(path) as file:
            return {name: file[name] for name in file.files}
    columns = material.columns
    rows = fold.training(columns)
    weights = item_weights(columns, rows)
    report(
        f"fold {fold.number}: without {', '.join(fold.groups)}, {fold.corpus}: {len(rows)} items"
    )
    is_person = columns.is_person
    network = train_network(material.statistics[rows], is_person[rows], weights, seed=fold.number)
    scores = {NETWORK: raw_scores(network, material.statistics)}
    for name, vectors in material.regressions.items():
        scores[name] = regression_scores(vectors, rows, is_person, weights, STRENGTHS[name])
    np.savez(path, **scores)
    return scores


def train_on_all(material: Material) -> SpoofNetwork:
    """Return a network that is trained on all people of the training corpora and on all attacks."""
    columns = material.columns
    rows = np.flatnonzero(np.isin(columns.corpus, TRAINING_CORPORA))
    weights = item_weights(columns, rows)
    return train_network(material.statistics[rows], columns.is_person[rows], weights)


def all_trials(work: Path, material: Material, name: str) -> Trials:
    """Return the trials of all folds with items that were left out of the training, scored by the detector `name`."""
    parts = []
    for fold in FOLDS:
        scores = score_fold(work, material, fold, lambda line: None)[name]
        parts.append(fold_trials(fold, material.columns, scores))
    return join(parts)


def calibration_of_folds(work: Path, material: Material) -> SpoofCalibration:
    """Return the calibration that ships, fitted to the left-out trials of all folds."""
    return calibrate(all_trials(work, material, NETWORK))


SYSTEMS: Mapping[str, tuple[str, bool]] = {
    "network, centred on the enrolments": (NETWORK, True),
    "network, not centred": (NETWORK, False),
    "regression on the same statistics": (STATISTICS, True),
    "regression on cepstra": (CEPSTRAL, True),
}
"""Detectors, and whether the enrolments take part in the LLR."""

CONDITIONS: Mapping[str, tuple[bool, bool]] = {
    "people left out": (False, False),
    "people and attack left out": (False, True),
    "corpus left out": (True, False),
    "corpus and attack left out": (True, True),
}
"""Conditions by whether the corpus and the attack are new to the network."""


def figures(work: Path, material: Material) -> Json:
    """Return all results: error rates by detector, condition and group of attacks, and rejections by corpus."""
    found: dict[str, Json] = {}
    threshold = load_model(DEFAULT_MODEL).point(None).threshold
    for system, (name, is_centred) in SYSTEMS.items():
        trials = all_trials(work, material, name)
        llrs = trials.shifted(RECORDINGS, partial(calibrate, is_centred=is_centred))
        found[system] = {
            condition: condition_rows(llrs, trials, *flags)
            for condition, flags in CONDITIONS.items()
        }
        if system == next(iter(SYSTEMS)):
            in_use = {corpus: use_rows(llrs, trials, corpus, threshold) for corpus in RECORDINGS}
    return {"errors": found, "in use": in_use}


def condition_rows(llrs: Scores, trials: Trials, is_new_corpus: bool, is_new_group: bool) -> Json:
    """Return {group of attacks: error rates}; the key "all" is for all groups together.

    is_new_corpus, is_new_group : use trials whose corpus, or group of attacks, was left out of the training
    """
    condition = trials.is_new_corpus == is_new_corpus
    person = condition & (trials.group == PERSON)
    attack = condition & (trials.group != PERSON) & (trials.is_new_group == is_new_group)
    masks = {"all": attack}
    masks |= {group: attack & (trials.group == group) for group in ATTACK_GROUPS}
    rows = {group: error_rates(llrs, trials, person, mask) for group, mask in masks.items()}
    return {group: row for group, row in rows.items() if row is not None}


def use_rows(llrs: Scores, trials: Trials, corpus: str, threshold: float) -> Json:
    """Return the shares of people and attacks of a corpus that the countermeasure rejects, by assumed share of spoofs.

    A trial is rejected, whatever the voice, if its countermeasure LLR is below the threshold plus the log of the share.
    """
    chosen = (trials.corpus == corpus) & trials.is_new_corpus
    is_person = trials.group == PERSON
    rows: Json = {}
    for prior in SPOOF_PRIORS:
        limit = threshold + np.log(prior)
        rejected = llrs < limit
        masks = {
            "people, same device": chosen & is_person & trials.is_same_device,
            "people, other device": chosen & is_person & ~trials.is_same_device,
            "attacks": chosen & ~is_person,
        }
        rows[f"{prior:g}"] = {
            name: float(rejected[mask].mean()) for name, mask in masks.items()
        } | {"limit": float(limit), "recordings": int((chosen & is_person).sum())}
    return rows


def text_lines(figures: Json) -> list[str]:
    """Return the results of `figures` as lines of text."""
    lines = []
    for system, conditions in figures["errors"].items():
        lines.append(system)
        for condition, rows in conditions.items():
            for group, row in rows.items():
                cells = [
                    f"{100 * row[key]['estimate']:5.1f}"
                    for key in row
                    if "eer" in key or "apcer" in key
                ]
                lines.append(f"  {condition:30s} {group:20s} {' '.join(cells)} {row['attacks']}")
    for corpus, priors in figures["in use"].items():
        for prior, row in priors.items():
            cells = [f"{key} {value:.3f}" for key, value in row.items()]
            lines.append(f"{corpus} {prior}: {', '.join(cells)}")
    return lines
