"""
Calibration by kind of trial
============================

A likelihood ratio is to be taken at its word: at +2.3 the odds are ten times what they were. A model that was trained
on few speakers is too sure of itself; held-out speakers say by how much. Which impostors one expects matters: those who
say the right phrase are rare in a list of all pairs and common at the door. `by_kind` gives every kind
the same weight.
"""

import matplotlib.pyplot as plt
import numpy as np

from mvplda import MultiviewPLDA, make_two_views
from mvplda.calibration import LinearCalibrator
from mvplda.metrics import bayes_error_rates, cllr, trial_kinds

X, labels, unseen = make_two_views(16, 8, 5, 100, (15, 7), held_out=80, random_state=2)
model = MultiviewPLDA({"speaker": 15, "phrase": 7}, noise="full").fit(X, labels)
scores = model.llr(model.enrol(unseen.enrol, unseen.ids), unseen.test, dtype=np.float64)
claimed = {view: own[::3] for view, own in unseen.enrol_labels.items()}
kinds = trial_kinds(claimed, unseen.test_labels)
names = np.select(list(kinds.values()), list(kinds), "")

# one half of the held-out speakers calibrates, the other half judges
half = np.median(unseen.test_labels["speaker"])
learn = np.ix_(claimed["speaker"] < half, unseen.test_labels["speaker"] < half)
judge = np.ix_(claimed["speaker"] >= half, unseen.test_labels["speaker"] >= half)
plain = LinearCalibrator().fit(scores[learn].ravel(), names[learn].ravel() == "TC")
by_kind = LinearCalibrator(by_kind=True).fit(scores[learn].ravel(), names[learn].ravel())
systems = {
    "as the model says": scores[judge],
    "calibrated on all pairs": plain.transform(scores[judge].ravel()).reshape(scores[judge].shape),
    "calibrated by kind": by_kind.transform(scores[judge].ravel()).reshape(scores[judge].shape),
}

# %%
# At the door: impostors who know the phrase. Where a curve leaves the dashed one, decisions cost more than they need.
# The curves end where a single miss of the targets at hand would move them by a tenth: beyond, they are luck.

fig, panels = plt.subplots(1, 2, figsize=(11, 4.3), layout="constrained", sharey=True)
here = {kind: mask[judge] for kind, mask in kinds.items()}
door = {"all pairs": ~here["TC"], "impostors with the right phrase (IC)": here["IC"]}
for axes, (title, others) in zip(panels, door.items(), strict=True):
    for (name, values), colour in zip(
        systems.items(), ("#D55E00", "#E69F00", "#0072B2"), strict=True
    ):
        targets, rest = values[here["TC"]], values[others]
        rates = bayes_error_rates(targets, rest)
        actual, least = rates.normalised()
        axes.plot(
            rates.log_odds, actual, color=colour, label=f"{name}: Cllr {cllr(targets, rest):.3f}"
        )
    axes.plot(
        rates.log_odds,
        least,
        "--",
        color="#333333",
        linewidth=1,
        label="the best that these scores allow",
    )
    axes.set(title=title, xlabel="log prior odds of a target", ylim=(0, 1.3))
    axes.set_xlim(-8, np.log(0.1 * here["TC"].sum()))
    axes.axhline(1, color="#999999", linewidth=0.7)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), frameon=False)
panels[0].set_ylabel("cost / cost without scores")
plt.show()
