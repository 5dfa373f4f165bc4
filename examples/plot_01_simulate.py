"""
Recover a simulated model
=========================

Simulate vectors of speakers and phrases, fit a model to them, and compare the model with
the true one for more and more training speakers.
"""

import matplotlib.pyplot as plt
import numpy as np
from mvplda import MultiviewPLDA, make_two_views
from scipy.linalg import subspace_angles

sizes = [5, 10, 20, 50, 100, 200]
angles = []
for n in sizes:
    X, labels, unseen = make_two_views(n, 10, 5, 40, (4, 3), held_out=5, random_state=1)
    model = MultiviewPLDA({"speaker": 4, "phrase": 3}).fit(X, labels)
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
    ", ".join(
        f"{view} {share:.0%}" for view, share in truth.explained_variance_ratio_.items()
    ),
)

# %%
# The subspaces of both views are recovered. That of the phrases needs fewer speakers,
# because every speaker is another sample of the same phrases.

fig, axes = plt.subplots(figsize=(8, 5), layout="constrained")
for view, column, colour in zip(
    ("speaker", "phrase"), np.transpose(angles), ("#0072B2", "#E69F00"), strict=True
):
    axes.plot(sizes, column, "o-", color=colour, label=view)
axes.set(
    xscale="log",
    xlabel="training speakers",
    ylabel="largest angle to the true space, degrees",
    ylim=(0, 90),
)
axes.set_xticks(sizes, sizes)
axes.minorticks_off()
axes.legend(frameon=False)
plt.show()
