"""
Simulate and recover
====================

Draw vectors from a model of speakers and phrases, fit a fresh model to them, and see how much of the truth comes back
as speakers are added.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.linalg import subspace_angles

from mvplda import MultiviewPLDA, make_two_views

sizes = [5, 10, 20, 50, 100, 200]
angles, fitted = [], {}
for n in sizes:
    X, labels, unseen = make_two_views(n, 10, 5, 40, (4, 3), held_out=5, random_state=1)
    model = fitted[n] = MultiviewPLDA({"speaker": 4, "phrase": 3}).fit(X, labels)
    truth = unseen.truth
    angles.append(
        [
            np.degrees(subspace_angles(model.loadings_[v], truth.loadings_[v]).max())
            for v in truth.loadings_
        ]
    )
    shares = ", ".join(
        f"{view} {share:.0%}" for view, share in model.explained_variance_ratio_.items()
    )
    print(f"{n:4} speakers, {len(X):5} vectors: {shares}")
print(
    "the truth:",
    ", ".join(f"{view} {share:.0%}" for view, share in truth.explained_variance_ratio_.items()),
)

# %%
# The spaces of both views come back, that of the phrases sooner: every speaker is another sample of the same phrases.
# The covariance of the speakers, entry by entry, is all over the place with ten of them and settles with 200.

fig, (left, right) = plt.subplots(1, 2, figsize=(10, 4.3), layout="constrained")
for view, column, colour in zip(
    ("speaker", "phrase"), np.transpose(angles), ("#0072B2", "#E69F00"), strict=True
):
    left.plot(sizes, column, "o-", color=colour, label=view)
left.set(
    xscale="log",
    xlabel="training speakers",
    ylabel="largest angle to the true space, degrees",
    ylim=(0, 90),
)
left.set_xticks(sizes, sizes)
left.minorticks_off()
left.legend(frameon=False)
true = truth.loadings_["speaker"] @ truth.loadings_["speaker"].T
for n, colour in ((10, "#E69F00"), (50, "#56B4E9"), (200, "#0072B2")):
    found = fitted[n].loadings_["speaker"] @ fitted[n].loadings_["speaker"].T
    right.scatter(
        true, found, s=5, alpha=0.5, color=colour, edgecolors="none", label=f"{n} speakers"
    )
right.axline((0, 0), slope=1, color="#333333", linewidth=0.8)
right.set(xlabel="true covariance of the speakers", ylabel="found")
right.legend(frameon=False, markerscale=4)
plt.show()
