"""
Calibrate scores by kind of trial
=================================

A calibrated log-likelihood ratio can be taken at face value: +2.3 multiplies the odds by
ten. A model that was trained on few speakers is overconfident; a calibration on held-out
speakers corrects this. The mix of impostors matters: impostors who say the right phrase
are rare in a list of all pairs but common in practice. With `by_kind`, every kind of
trial has the same weight.
"""

import matplotlib.pyplot as plt
import numpy as np
from mvplda import MultiviewPLDA, make_two_views
from mvplda.calibration.scores import LinearCalibrator
from mvplda.metrics import ScoreCurve, cllr, trial_kinds

X, labels, unseen = make_two_views(16, 8, 5, 100, (15, 7), held_out=80, random_state=2)
model = MultiviewPLDA({"speaker": 15, "phrase": 7}, noise="full").fit(X, labels)
scores = model.llr(model.enrol(unseen.enrol, unseen.ids), unseen.test, dtype=np.float64)
claimed = {view: column[::3] for view, column in unseen.enrol_labels.items()}
kinds = trial_kinds(claimed, unseen.test_labels)
names = np.select(list(kinds.values()), list(kinds), "")

# one half of the held-out speakers calibrates, the other half evaluates
half = np.median(unseen.test_labels["speaker"])
learn = np.ix_(claimed["speaker"] < half, unseen.test_labels["speaker"] < half)
judge = np.ix_(claimed["speaker"] >= half, unseen.test_labels["speaker"] >= half)
plain = LinearCalibrator().fit(scores[learn], names[learn])
by_kind = LinearCalibrator(by_kind=True).fit(scores[learn], names[learn])
systems = {
    "not calibrated": scores[judge],
    "calibrated on all pairs": plain.transform(scores[judge]),
    "calibrated by kind": by_kind.transform(scores[judge]),
}

# %%
# Costs against impostors who say the right phrase (IC). Where a curve is above the dashed
# one, decisions cost more than necessary. The curves end where a single miss would change
# them by a tenth.

fig, axes = plt.subplots(figsize=(8, 6), layout="constrained")
here = {kind: mask[judge] for kind, mask in kinds.items()}
log_odds = np.linspace(-10, 10, 201)
prior = 1 / (1 + np.exp(-log_odds))
without = np.minimum(prior, 1 - prior)  # the cost of deciding without scores
colours = ("#D55E00", "#E69F00", "#0072B2")
for (name, values), colour in zip(systems.items(), colours, strict=True):
    targets, impostors = values[here["TC"]], values[here["IC"]]
    curve = ScoreCurve(targets, impostors)
    miss, false_alarm = curve.rates(-log_odds)
    actual = (prior * miss + (1 - prior) * false_alarm) / without
    least = curve.hull.least(prior, 1 - prior)[0] / without
    label = f"{name}: Cllr {cllr(targets, impostors):.3f}"
    axes.plot(log_odds, actual, color=colour, label=label)
axes.plot(log_odds, least, "--", color="#333333", label="best possible")
axes.set(
    xlabel="log prior odds of a target",
    ylabel="cost / cost without scores",
    xlim=(-8, np.log(0.1 * here["TC"].sum())),
    ylim=(0, 1.3),
)
axes.axhline(1, color="#999999", linewidth=0.7)
axes.legend(frameon=False)
plt.show()
