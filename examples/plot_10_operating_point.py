"""
Choose a threshold, with intervals
==================================

Which threshold accepts at most one impostor in a hundred, and how many owners does it
reject? Trials that share a speaker are not independent, so that the precision depends on
the number of speakers. Intervals are computed by leaving out each speaker in turn.
"""

import matplotlib.pyplot as plt
import numpy as np
from mvplda import MultiviewPLDA, make_two_views
from mvplda.metrics import evaluate, speaker_intervals, trial_kinds

X, labels, unseen = make_two_views(60, 6, 5, 120, (20, 5), held_out=60, random_state=5)
model = MultiviewPLDA({"speaker": 20, "phrase": 5}).fit(X, labels)
claimed = {view: column[::3] for view, column in unseen.enrol_labels.items()}
everyone = model.llr(model.enrol(unseen.enrol, unseen.ids), unseen.test)
sizes, found = [8, 15, 30, 60], {}
for n in sizes:
    rows, columns = claimed["speaker"] < 60 + n, unseen.test_labels["speaker"] < 60 + n
    scores = everyone[np.ix_(rows, columns)]
    enrolled, tested = (
        {v: y[some] for v, y in side.items()}
        for side, some in ((claimed, rows), (unseen.test_labels, columns))
    )
    kinds = trial_kinds(enrolled, tested)
    point = evaluate(scores, kinds, far=(0.01,))["Total"]
    around = speaker_intervals(
        scores, kinds, enrolled["speaker"], tested["speaker"], far=(0.01,)
    )
    found[n] = (point["frr_at_far/0.01"], around.of("Total", "frr_at_far/0.01"))
    miss, ends = found[n]
    interval = f"[{100 * ends.low:.1f}, {100 * ends.high:.1f}]"
    threshold = point["threshold_at_far/0.01"]
    print(
        f"{n:3} speakers: threshold {threshold:.2f}, FRR {100 * miss:.1f} % {interval}"
    )

# %%
# The interval narrows with the number of speakers.

fig, axes = plt.subplots(figsize=(8, 5), layout="constrained")
values = np.array([100 * found[n][0] for n in sizes])
ends = 100 * np.array([[found[n][1].low, found[n][1].high] for n in sizes])
axes.errorbar(
    np.arange(len(sizes)),
    values,
    abs(ends.T - values),
    fmt="o",
    color="#0072B2",
    capsize=5,
    linewidth=2,
)
axes.set_xticks(np.arange(len(sizes)), sizes)
axes.set(
    xlabel="evaluation speakers",
    ylabel="owners rejected at 1 % false alarms, %",
    ylim=(0, None),
)
plt.show()
