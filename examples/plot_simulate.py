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
angles, likelihoods = [], {}
for n in sizes:
    X, labels, unseen = make_two_views(n, 10, 5, 40, (4, 3), held_out=5, random_state=1)
    model = MultiviewPLDA({"speaker": 4, "phrase": 3}).fit(X, labels)
    truth = unseen.truth
    angles.append([np.degrees(subspace_angles(model.loadings_[v], truth.loadings_[v]).max()) for v in truth.loadings_])
    likelihoods[n] = model.log_likelihoods_
    print(f"{n:4} speakers: {len(X)} vectors, {len(likelihoods[n])} iterations")

# %%
# The spaces of both views come back; that of the phrases is limited by the ten phrases, whatever the speakers.

fig, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
for view, column, colour in zip(("speaker", "phrase"), np.transpose(angles), ("#0072B2", "#E69F00"), strict=True):
    left.plot(sizes, column, "o-", color=colour, label=view)
left.set(xscale="log", xlabel="training speakers", ylabel="largest angle to the true space, degrees", ylim=(0, 90))
left.legend(frameon=False)
for n in (20, 200):
    gain = likelihoods[n][-1] - np.asarray(likelihoods[n])[:-1]
    right.semilogy(np.arange(len(gain)), gain, label=f"{n} speakers")
right.set(xlabel="iteration", ylabel="log-likelihood still to gain, nat", title="EM never falls")
right.legend(frameon=False)
plt.show()
