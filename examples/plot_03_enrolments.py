"""
Enrol with several recordings
=============================

A profile stores the number of its vectors. With ten recordings per profile there are
fewer errors than with one, and likelihood ratios are larger. Averaging the vectors and
scoring the mean like one vector loses this number.
"""

import matplotlib.pyplot as plt
import numpy as np
from mvplda import MultiviewPLDA, make_two_views
from mvplda.datasets import known_model
from mvplda.metrics import cllr, eer, trial_kinds

X, labels = make_two_views(100, 10, 5, 60, (10, 9), random_state=0)
model = MultiviewPLDA({"speaker": 10, "phrase": 9}).fit(X, labels)
truth = known_model(0, 60, (10, 9))
who, what, take = (a.ravel() for a in np.indices((60, 10, 12)))
Y = truth.sample({"speaker": who, "phrase": what}, random_state=1)
test = take >= 10
claimed = {
    "speaker": np.repeat(np.arange(60), 10),
    "phrase": np.tile(np.arange(10), 60),
}
kinds = trial_kinds(claimed, {"speaker": who[test], "phrase": what[test]})
others = kinds["IC"] | kinds["TW"]

rows = []
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
    rows.append(row)
    if n in (1, 3, 10):
        print(
            f"{n:2} vectors: EER {row[0]:.2f} %, Cllr {row[1]:.3f} bits; "
            f"averaged {row[2]:.2f} %, {row[3]:.3f}"
        )

# %%
# The same vectors, scored with and without the number of vectors per profile.

table, counts = np.array(rows), np.arange(1, 11)
fig, axes = plt.subplots(figsize=(8, 5), layout="constrained")
axes.plot(counts, table[:, 0], "o-", color="#0072B2", label="counts kept (the default)")
axes.plot(
    counts, table[:, 2], "s--", color="#E69F00", label="mean scored as one vector"
)
axes.set(xlabel="vectors per profile", ylabel="EER, %", ylim=(0, None), xticks=counts)
axes.legend(frameon=False)
plt.show()
