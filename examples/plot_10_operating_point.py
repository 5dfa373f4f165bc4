"""
Misses at a false-alarm rate, with intervals
============================================

"At most one impostor in a hundred gets in": which threshold is that, how many true speakers does it turn away, and how
sure are we? Trials that share a speaker rise and fall together, so that what counts is the number of speakers:
intervals come from leaving out each of them in turn.
"""

import matplotlib.pyplot as plt
import numpy as np

from mvplda import MultiviewPLDA, make_two_views
from mvplda.metrics import ScoreCurve, evaluate, speaker_intervals, trial_kinds

X, labels, unseen = make_two_views(60, 6, 5, 120, (20, 5), held_out=60, random_state=5)
model = MultiviewPLDA({"speaker": 20, "phrase": 5}).fit(X, labels)
claimed = {view: own[::3] for view, own in unseen.enrol_labels.items()}
everyone = model.llr(model.enrol(unseen.enrol, unseen.ids), unseen.test)
sizes, found, curves = [8, 15, 30, 60], {}, {}
for n in sizes:
    rows, columns = claimed["speaker"] < 60 + n, unseen.test_labels["speaker"] < 60 + n
    scores = everyone[np.ix_(rows, columns)]
    enrolled, tested = (
        {v: y[some] for v, y in side.items()}
        for side, some in ((claimed, rows), (unseen.test_labels, columns))
    )
    kinds = trial_kinds(enrolled, tested)
    point = evaluate(scores, kinds, far=(0.01,))["Total"]
    around = speaker_intervals(scores, kinds, enrolled["speaker"], tested["speaker"], far=(0.01,))
    found[n] = {
        name: (point[name], around.of("Total", name))
        for name in ("frr_at_far/0.01", "threshold_at_far/0.01")
    }
    curves[n] = ScoreCurve(scores[kinds["TC"]], scores[~kinds["TC"]])
    miss, ends = found[n]["frr_at_far/0.01"]
    print(
        f"{n:3} speakers: FRR {100 * miss:.1f} % [{100 * ends.low:.1f}, {100 * ends.high:.1f}] at a FAR of 1 %"
    )

# %%
fig, (left, middle, right) = plt.subplots(1, 3, figsize=(13, 4), layout="constrained")
for n, colour in zip(sizes, ("#CCCCCC", "#56B4E9", "#E69F00", "#0072B2"), strict=True):
    _, miss, false_alarm = curves[n].steps()
    left.plot(100 * false_alarm, 100 * miss, color=colour, label=f"{n} speakers")
left.axvline(1, color="#333333", linewidth=0.8, linestyle=":")
left.set(xscale="log", xlim=(0.05, 50), ylim=(0, 50), xlabel="false alarms, %", ylabel="misses, %")
left.legend(frameon=False)
for axes, name, factor, word in (
    (middle, "frr_at_far/0.01", 100, "misses at 1 % false alarms, %"),
    (right, "threshold_at_far/0.01", 1, "threshold (LLR) for 1 % false alarms"),
):
    values = np.array([factor * found[n][name][0] for n in sizes])
    ends = factor * np.array([[found[n][name][1].low, found[n][name][1].high] for n in sizes])
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
    axes.set(xlabel="evaluation speakers", ylabel=word)
middle.set_ylim(0, None)
plt.show()
