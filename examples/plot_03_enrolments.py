"""
One to ten enrolments
=====================

A profile keeps how many vectors it was made of, so that a speaker who was enrolled ten times is recognised with more
certainty than one who was enrolled once: not only are errors fewer, the likelihood ratios also say so. Averaging the
vectors and scoring the mean as if it were one vector loses the count.
"""

import matplotlib.pyplot as plt
import numpy as np

from mvplda import MultiviewPLDA, make_two_views
from mvplda.metrics import cllr, eer, trial_kinds
from mvplda.toy import known_model

X, labels = make_two_views(100, 10, 5, 60, (10, 9), random_state=0)
model = MultiviewPLDA({"speaker": 10, "phrase": 9}).fit(X, labels)
truth = known_model(0, 60, (10, 9))
who, what, take = (a.ravel() for a in np.indices((60, 10, 12)))
Y = truth.sample({"speaker": who, "phrase": what}, random_state=1)
test = take >= 10
claimed = {"speaker": np.repeat(np.arange(60), 10), "phrase": np.tile(np.arange(10), 60)}
kinds = trial_kinds(claimed, {"speaker": who[test], "phrase": what[test]})
others = kinds["IC"] | kinds["TW"]

rows, curves = [], {}
for n in range(1, 11):
    enrol = take < n
    row = []
    for method in ("exact", "average"):
        profiles = model.enrol(Y[enrol], (who * 10 + what)[enrol], method=method)
        scores = model.llr(profiles, Y[test])
        row += [
            100 * eer(scores[kinds["TC"]], scores[others]),
            cllr(scores[kinds["TC"]], scores[others]),
        ]
        if method == "exact":
            curves[n] = scores[kinds["TC"]], scores[others]
    rows.append(row)
    if n in (1, 3, 10):
        print(
            f"{n:2} vectors: EER {row[0]:.2f} %, Cllr {row[1]:.3f} bits; averaged {row[2]:.2f} %, {row[3]:.3f}"
        )

# %%
table, counts = np.array(rows), np.arange(1, 11)
fig, (left, middle, right) = plt.subplots(1, 3, figsize=(13, 4), layout="constrained")
for column, axes, word in ((0, left, "EER, %"), (1, middle, "Cllr, bits")):
    axes.plot(counts, table[:, column], "o-", color="#0072B2", label="counts kept (the default)")
    axes.plot(
        counts, table[:, column + 2], "s--", color="#E69F00", label="mean scored as one vector"
    )
    axes.set(xlabel="vectors a profile", ylabel=word, ylim=(0, None), xticks=counts)
left.legend(frameon=False)
for n, shade in ((1, 0.35), (3, 0.6), (10, 1.0)):
    for scores, colour in zip(curves[n], ("#0072B2", "#D55E00"), strict=True):
        right.hist(
            scores,
            np.linspace(-25, 12, 80),
            density=True,
            histtype="step",
            color=colour,
            alpha=shade,
            linewidth=1.6,
        )
right.annotate(
    "targets: 1, 3, 10 vectors", (0.98, 0.94), xycoords="axes fraction", ha="right", color="#0072B2"
)
right.annotate("half-right impostors", (0.02, 0.94), xycoords="axes fraction", color="#D55E00")
right.set(xlabel="LLR", ylabel="density", xlim=(-25, 12), ylim=(0, right.get_ylim()[1] * 1.15))
plt.show()
