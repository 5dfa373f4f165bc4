"""What a countermeasure is worth: vocoded copies of the targets' own speech as attacks, and a simple detector.

``python -m benchmarks.studies.spoofing DATA [-o results/spoofing]``. Vectors of attacks are kept in work/. DATA holds
audiomnist/, audiomnist_campplus.npz, audiomnist_embeddings.npz and audiomnist_jvectors.npz: spoken digits of 60
speakers, of which 40 train and 20 evaluate. The attacks keep the voice and the word, for they are made of recordings of
the target: the phase of the spectrogram is thrown away and guessed again (Griffin and Lim), or a filter of linear
prediction is excited by pulses and noise in place of the voice. The detector is a logistic regression on the mean and
the spread of a log spectrum. It is taught by 20 of the 40 speakers and the *other* attack, and for comparison by the
same one. It is only that: no replay, no synthesis by a network, one microphone. The speaker model is the joint one
under the isotropic prior on CAM++ vectors, fitted to 30 training speakers and calibrated on the 10 others.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.linalg import solve_toeplitz
from scipy.signal import istft, lfilter, stft
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.clips import Clips, Key, split, vectors_of
from benchmarks.report import markdown_rows, study_command
from benchmarks.studies.audiomnist import read
from mvplda import Bundle, MultiviewPLDA
from mvplda.calibration.scores import LinearCalibrator
from mvplda.metrics import eer
from mvplda.preprocessing import unit_chain
from mvplda.scoring.question import with_countermeasure

ENROLMENT, LAST, ATTACKED = 3, 6, range(3, 4)
"""Sessions: profiles are of those below the first, bona fide tests of those from there to below the second."""
STRENGTHS = {"speaker": 0.6, "phrase": 0.2, "speaker:phrase": 0.6, "noise": 0.6}
WINDOW, HOP = 512, 128


def griffin_lim(sound: np.ndarray, rounds: int = 32) -> np.ndarray:
    """The spectrogram of a sound with phases that fit it, found from none."""
    spectrum = partial(stft, nperseg=WINDOW, noverlap=WINDOW - HOP)
    size = np.abs(spectrum(sound)[2])
    phase = np.exp(2j * np.pi * np.random.default_rng(0).random(size.shape))
    for _ in range(rounds):
        made = istft(size * phase, nperseg=WINDOW, noverlap=WINDOW - HOP)[1]
        again = spectrum(made)[2][:, : size.shape[1]]
        again = np.pad(again, ((0, 0), (0, size.shape[1] - again.shape[1])))
        phase = again / np.maximum(np.abs(again), 1e-9)
    return made[: len(sound)].astype(np.float32)


def linear_prediction(
    sound: np.ndarray, order: int = 20, frame: int = 400, step: int = 160
) -> np.ndarray:
    """Frame by frame the filter of a sound, excited by pulses at its pitch where it has one, and else by noise."""
    rng = np.random.default_rng(0)
    window = np.hanning(frame)
    made, next_pulse = np.zeros(len(sound) + frame), 0.0
    for start in range(0, len(sound) - frame, step):
        part = sound[start : start + frame].astype(np.float64)
        own = np.correlate(part * window, part * window, "full")[frame - 1 :]
        own[0] = own[0] * 1.0001 + 1e-9
        predictor = solve_toeplitz(own[:order], own[1 : order + 1])
        lags = np.arange(40, 266)  # 60 to 400 Hz
        best = int(lags[np.argmax(own[lags])])
        voiced = own[best] > 0.3 * own[0]
        excitation = rng.normal(size=frame)
        if voiced:
            excitation = 0.1 * excitation
            next_pulse = max(next_pulse, float(start))
            for place in np.arange(next_pulse, start + frame, best):
                excitation[int(place) - start] += np.sqrt(best)
            next_pulse += best * np.ceil(max(0.0, start + step - next_pulse) / best)
        out = lfilter([1.0], np.append(1.0, -predictor), excitation)
        out *= np.sqrt(np.mean(part**2) / max(np.mean(out**2), 1e-12))
        made[start : start + frame] += out * window
    made = made[: len(sound)]
    return (made / max(np.abs(made).max(), 1e-6)).astype(np.float32)


ATTACKS = {"phase guessed": griffin_lim, "linear prediction": linear_prediction}


def traces(sound: np.ndarray) -> np.ndarray:
    """What the detector sees: mean, spread and spread of changes of a log spectrum in 64 bands."""
    power = np.abs(stft(sound, nperseg=WINDOW, noverlap=WINDOW - HOP)[2]) ** 2
    bands = np.log(power[:256].reshape(64, 4, -1).mean(axis=1) + 1e-8)
    bands -= bands.mean()
    return np.concatenate(
        [bands.mean(axis=1), bands.std(axis=1), np.diff(bands, axis=1).std(axis=1)]
    )


def study(data: Path, work: Path = Path("work")) -> dict[str, Any]:
    clips, vectors = Clips(data / "audiomnist"), read(data)
    own, others = split(vectors.training, [key[0] for key in clips.rows])
    keys = list(
        zip(
            *(vectors.labels[name].astype(int) for name in ("speaker", "phrase", "session")),
            strict=True,
        )
    )
    X = dict(zip(keys, vectors.X["campplus"], strict=True))
    bundle, calibrator = speaker_model(X, own)
    cells = [(s, p) for s in others for p in range(10)]
    enrols = [(s, p, n) for s, p in cells for n in range(ENROLMENT)]
    profiles = bundle.enrol(np.stack([X[k] for k in enrols]), [f"{s} {p}" for s, p, _ in enrols])
    bona_fide = [(s, p, n) for s, p in cells for n in range(ENROLMENT, LAST)]
    raw = bundle.llr(profiles, np.stack([X[k] for k in bona_fide]))
    llr = calibrator.transform(np.ravel(raw)).reshape(raw.shape)
    kinds = np.array([[kind_of(cell, key) for key in bona_fide] for cell in cells])
    attacked = [(s, p, n) for s, p in cells for n in ATTACKED]
    claimed = np.array([[cells.index((s, p)), i] for i, (s, p, _) in enumerate(attacked)])
    training = [(s, p, 0) for s in own[::2] for p in range(10)]
    heard = {"bona fide": np.stack([traces(clips[k]) for k in [*training, *bona_fide]])}
    scores: dict[str, np.ndarray] = {}
    for name, attack in ATTACKS.items():
        made = {k: attack(clips[k]) for k in [*training, *attacked]}
        heard[name] = np.stack([traces(made[k]) for k in [*training, *attacked]])
        Y = vectors_of(
            lambda i, made=made: made[attacked[i]], len(attacked), "campplus", work / f"{name}.npy"
        )  # type: ignore[misc]
        # the vectors of DATA are of CAM++ with its last rectification, those of today's extractor without
        Y = np.maximum(Y, 0)
        scores[name] = calibrator.transform(bundle.llr_trials(profiles, Y, claimed))
    found: dict[str, Any] = {
        "trials": {str(k): int((kinds == k).sum()) for k in np.unique(kinds)},
        "attacks": {},
    }
    found["trials"]["spoof"] = len(attacked)
    n, cost = len(training), SpoofingCost()
    for name in ATTACKS:
        rows = {"no detector": (np.zeros(len(bona_fide)), np.zeros(len(attacked)), 0.0)}
        for taught in [a for a in ATTACKS if a != name] + [name]:
            detector = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=2000))
            detector.fit(
                np.concatenate([heard["bona fide"][:n], heard[taught][:n]]), np.repeat([1, 0], n)
            )
            said = [detector.decision_function(heard[which][n:]) for which in ("bona fide", name)]
            rows[f"detector taught by {taught}"] = (said[0], said[1], cost.share)
        found["attacks"][name] = {
            row: measured(llr, kinds, scores[name], *said, cost) for row, said in rows.items()
        }
    return found


def speaker_model(X: dict[Key, np.ndarray], own: list[int]) -> tuple[Bundle, LinearCalibrator]:
    """Fitted to all training speakers but ten, and calibrated on those."""
    fitted, apart = own[:-10], own[-10:]

    def rows(speakers: list[int], sessions: range) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        chosen = [(s, p, n) for s in speakers for p in range(10) for n in sessions]
        labels = {
            view: np.array([k[i] for k in chosen]) for i, view in enumerate(("speaker", "phrase"))
        }
        return np.stack([X[k] for k in chosen]), labels

    views = dict.fromkeys(["speaker", "phrase", "speaker:phrase"])
    scorer = MultiviewPLDA(views, prior="isotropic", prior_strength=STRENGTHS, max_iter=0)
    bundle = Bundle(unit_chain(), scorer)
    bundle.fit(*rows(fitted, range(10)))
    (E, enrol), (T, test) = rows(apart, range(ENROLMENT)), rows(apart, range(ENROLMENT, 10))
    names = [f"{s} {p}" for s, p in zip(*enrol.values(), strict=True)]
    profiles = bundle.enrol(E, names)
    cells = [tuple(map(int, name.split())) for name in profiles.ids]
    same = np.array(
        [[cell == (s, p) for s, p in zip(*test.values(), strict=True)] for cell in cells]
    )
    return bundle, LinearCalibrator().fit(np.ravel(bundle.llr(profiles, T)), same.ravel())


@dataclass(frozen=True)
class SpoofingCost:
    """What errors cost where spoofs are among the trials, and how often each sort of trial comes: a-DCF.

    a-DCF(t) = C_miss P_target miss(t) + C_fa P_nontarget fa(t) + C_spoof P_spoof fa_spoof(t),

    divided by the better of the two decisions that need no score (Shim et al., 2024). The
    defaults are those of the ASVspoof 5 challenge.

    """

    nontarget_prior: float = 0.0095
    spoof_prior: float = 0.05
    miss_cost: float = 1.0
    false_alarm_cost: float = 10.0
    spoof_cost: float = 10.0

    def __post_init__(self) -> None:
        values = (*vars(self).values(), self.target_prior)
        if not all(0 < value < np.inf for value in values):
            raise ValueError(
                f"costs and priors of target, non-target and spoof are positive, and priors add up to 1; got {self}"
            )

    @property
    def target_prior(self) -> float:
        return 1 - self.nontarget_prior - self.spoof_prior

    @property
    def weights(self) -> tuple[float, float, float]:
        """Normalised costs of missing every target, and of accepting every non-target and every spoof."""
        miss = self.miss_cost * self.target_prior
        nontarget = self.false_alarm_cost * self.nontarget_prior
        spoof = self.spoof_cost * self.spoof_prior
        best = min(miss, nontarget + spoof)
        return miss / best, nontarget / best, spoof / best

    @property
    def share(self) -> float:
        """Share of spoofs in what false alarms cost: the ``spoof_prior`` of scores that are best for these costs."""
        _, nontarget, spoof = self.weights
        return spoof / (nontarget + spoof)

    @property
    def threshold(self) -> float:
        """Bayes' threshold for LLRs of `with_countermeasure` with this `share`: accept at or above it."""
        miss, nontarget, spoof = self.weights
        return float(np.log((nontarget + spoof) / miss))

    def at(
        self, threshold: float, targets: np.ndarray, nontargets: np.ndarray, spoofs: np.ndarray
    ) -> float:
        """The cost at a threshold."""
        if np.isnan(threshold):
            raise ValueError("the threshold is NaN")
        return float(self._costs(np.asarray([threshold]), targets, nontargets, spoofs)[0])

    def least(self, targets: np.ndarray, nontargets: np.ndarray, spoofs: np.ndarray) -> float:
        """The cost at the best threshold, known afterwards."""
        # raising a threshold to the next target's score misses no more
        thresholds = np.append(np.unique(targets), np.inf)
        return float(self._costs(thresholds, targets, nontargets, spoofs).min())

    def _costs(
        self,
        thresholds: np.ndarray,
        targets: np.ndarray,
        nontargets: np.ndarray,
        spoofs: np.ndarray,
    ) -> np.ndarray:
        total = np.zeros(len(thresholds))
        sorts = {"target": targets, "non-target": nontargets, "spoof": spoofs}
        for weight, (name, values) in zip(self.weights, sorts.items(), strict=True):
            scores = np.sort(np.ravel(np.asarray(values, dtype=np.float64)))
            if not scores.size or np.isnan(scores).any():
                raise ValueError(f"there are no {name} scores, or NaN among them")
            below = np.searchsorted(scores, thresholds) / len(scores)
            total += weight * (below if name == "target" else 1 - below)
        return total


def kind_of(cell: tuple[int, int], key: Key) -> str:
    return ("T" if cell[0] == key[0] else "I") + ("C" if cell[1] == key[1] else "W")


def measured(
    llr: np.ndarray,
    kinds: np.ndarray,
    spoofs: np.ndarray,
    of_people: np.ndarray,
    of_spoofs: np.ndarray,
    share: float,
    cost: SpoofingCost,
) -> dict[str, float]:
    """Errors of the target against the others, of the target against spoofs, of both, and of the detector alone."""
    people, made = (
        with_countermeasure(llr, of_people, share),
        with_countermeasure(spoofs, of_spoofs, share),
    )
    groups = (people[kinds == "TC"], people[kinds != "TC"], made)
    return {
        "eer, people": float(eer(people[kinds == "TC"], people[kinds != "TC"])),
        "eer, spoofs": float(eer(people[kinds == "TC"], made)),
        "eer, detector alone": float(eer(of_people, of_spoofs)) if share else float("nan"),
        "a-DCF, best threshold": cost.least(*groups),
        "a-DCF, Bayes' threshold": cost.at(cost.threshold, *groups),
    }


def table(found: dict[str, Any]) -> str:
    rows = [
        [
            "attack",
            "",
            "EER %, people",
            "EER %, spoofs",
            "EER %, detector alone",
            "a-DCF min",
            "a-DCF act",
        ]
    ]
    for attack, systems in found["attacks"].items():
        for system, row in systems.items():
            values = list(row.values())
            shown = ["-" if np.isnan(v) else f"{100 * v:.2f}" for v in values[:3]] + [
                f"{v:.3f}" for v in values[3:]
            ]
            rows.append([attack, system, *shown])
    return "\n".join(markdown_rows(rows)) + "\n"


if __name__ == "__main__":
    files = [
        f"audiomnist{part}" for part in ("", "_campplus.npz", "_embeddings.npz", "_jvectors.npz")
    ]
    study_command("spoofing", __doc__, study, table, reads=files)
