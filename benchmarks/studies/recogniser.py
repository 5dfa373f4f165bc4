"""Does it help the speaker question that a recogniser hears the phrase of the test?

``python -m benchmarks.studies.recogniser DATA [-o results/recogniser]``. DATA holds audiomnist_campplus.npz,
audiomnist_embeddings.npz and audiomnist_jvectors.npz: spoken digits of 60 speakers, of which 40 train and 20 evaluate.
The voice is CAM++, modelled with speaker, phrase and their interaction under the isotropic prior; the recogniser is a
model of the phrase on vectors of a network for words, `recognise`, and again with all but a few of their principal
components taken away, so that it errs. Profiles are of three utterances of one phrase, tests of one; all against all.
Scores are natural-log likelihood ratios as they come, not calibrated.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.report import study_command
from benchmarks.studies.audiomnist import read
from mvplda import Bundle, MultiviewPLDA
from mvplda.metrics import evaluate
from mvplda.metrics.evaluation import markdown_rows
from mvplda.preprocessing import unit_chain
from mvplda.scoring.worlds import Table

ENROLMENT, LAST = 3, 10
STRENGTHS = {"speaker": 0.6, "phrase": 0.2, "speaker:phrase": 0.6, "noise": 0.6}
COMPONENTS = (288, 5, 3, 2)
"""Of the vectors of words that the recogniser hears by."""


def measured(
    scores: np.ndarray, speaker: np.ndarray, phrase: np.ndarray
) -> dict[str, dict[str, float]]:
    """EER, Cllr and minCllr of "the same speaker?" over all trials, and of those with the same and other phrases."""
    found = {}
    for name, of in (
        ("all", np.ones_like(phrase)),
        ("same phrase", phrase),
        ("other phrase", ~phrase),
    ):
        row = evaluate(scores[of], speaker[of], far=())["Total"]
        found[name] = {metric: float(row[metric]) for metric in ("eer", "cllr", "min_cllr")}
    return found


def recognise(model: MultiviewPLDA, X: np.ndarray, view: str) -> dict[str, np.ndarray]:
    """Posteriors of the training classes of a one-view model, all alike beforehand."""
    names = model.known_names(view)
    forms = model.forms()
    side = forms.side(Table.plain(forms.base, 1.0), model.evidence(X)[:, None])
    squares: dict[Any, Any] = {}
    columns = []
    for c in range(len(names)):
        columns.append(sum(one.evaluate(squares) for one in forms.alone(side, ((c,),))))
    logs = np.stack(columns, axis=1)
    shares = np.exp(logs - logs.max(axis=1, keepdims=True))
    posteriors = shares / shares.sum(axis=1, keepdims=True)
    return dict(zip(names.tolist(), posteriors.T, strict=True))


def study(folder: Path) -> dict[str, Any]:
    data = read(folder)
    own = np.isin(data.labels["speaker"], data.training)
    labels = {view: data.labels[view].astype(str) for view in ("speaker", "phrase")}
    training = {view: column[own] for view, column in labels.items()}
    session = data.labels["session"]
    enrols = np.flatnonzero(~own & (session < ENROLMENT))
    tests = np.flatnonzero(~own & (session >= ENROLMENT) & (session < LAST))
    views = dict.fromkeys(["speaker", "phrase", "speaker:phrase"])
    voices = Bundle(
        unit_chain(), MultiviewPLDA(views, prior="isotropic", prior_strength=STRENGTHS, max_iter=0)
    )
    X = data.X["campplus"]
    voices.fit(X[own], training)
    cells = np.char.add(np.char.add(labels["speaker"][enrols], " "), labels["phrase"][enrols])
    profiles = voices.enrol(X[enrols], cells, {"phrase": labels["phrase"][enrols]})
    plain = voices.enrol(X[enrols], cells)
    claimed = {
        view: np.array([cell.split()[i] for cell in profiles.ids]) for i, view in enumerate(labels)
    }
    speaker, phrase = (np.equal.outer(claimed[view], labels[view][tests]) for view in labels)

    def row(enrolled: Any, side: Any, **asked: Any) -> dict[str, Any]:
        return measured(
            voices.llr(enrolled, side, same="speaker", dtype=np.float64, **asked), speaker, phrase
        )

    def told(names: np.ndarray) -> Any:
        return voices.enrol(X[tests], labels={"phrase": names})

    found: dict[str, Any] = {"n_trials": int(speaker.size), "systems": {}}
    rows = found["systems"]
    rows["phrases not known"] = row(plain, X[tests])
    rows["phrase of the profile known"] = row(profiles, X[tests], known=["phrase"])
    words = data.X["words"]
    centred = words - words[own].mean(axis=0)
    axes = np.linalg.svd(centred[own], full_matrices=False)[2]
    for count in COMPONENTS:
        few = words if count == words.shape[1] else centred @ axes[:count].T
        chain = unit_chain() if count == words.shape[1] else None
        hearing = Bundle(
            chain,
            MultiviewPLDA({"phrase": None}, prior="isotropic", prior_strength=0.2, max_iter=0),
        )
        hearing.fit(few[own], {"phrase": training["phrase"]})
        heard = recognise(hearing.scorer, hearing.prepare(few[tests]), "phrase")
        guess = np.asarray(list(heard))[np.argmax(list(heard.values()), axis=0)]
        right = float((guess == labels["phrase"][tests]).mean())
        name = f"{count} components, {100 * right:.1f} % right"
        rows[f"heard, as posteriors: {name}"] = row(
            profiles, X[tests], known="phrase", recognised={"phrase": heard}
        )
        rows[f"heard, the likeliest as a fact: {name}"] = row(
            profiles, told(guess), known=["phrase"]
        )
    rows["phrase of both sides known"] = row(
        profiles, told(labels["phrase"][tests]), known=["phrase"]
    )
    return found


def table(found: dict[str, Any]) -> str:
    parts = [
        (part, metric)
        for part in ("all", "same phrase", "other phrase")
        for metric in ("eer", "cllr")
    ]
    head = ["", *(f"{part}, {'EER %' if metric == 'eer' else 'Cllr'}" for part, metric in parts)]
    body = [
        [name, *(f"{100 * row[p][m]:.2f}" if m == "eer" else f"{row[p][m]:.3f}" for p, m in parts)]
        for name, row in found["systems"].items()
    ]
    return "\n".join(markdown_rows([head, *body])) + "\n"


if __name__ == "__main__":
    study_command("recogniser", __doc__, study, table)
