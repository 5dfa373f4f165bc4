"""
Few classes, and the prior
==========================

With a handful of training speakers the best fit to them is far too sure of the next one. Two remedies: shrink the
noise towards the total variance, or draw all covariances towards isotropic ones, whose limit ranks like the cosine.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np

from mvplda import PLDA, CosineScorer, MultiviewPLDA
from mvplda.metrics import cllr, eer

# the cosine is hard to beat on vectors of one length whose directions are all worth about the same
D, rng = 40, np.random.default_rng(0)
scale = np.linspace(1.3, 0.7, D)


def draw(speakers, each):
    centres = rng.normal(size=(speakers, 1, D)) * scale
    vectors = (centres + 1.3 * rng.normal(size=(speakers, each, D)) * scale[::-1]).reshape(-1, D)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True), np.repeat(
        np.arange(speakers), each
    )


T, who = draw(60, 5)
same = who[:, None] == who[None, :]
above = np.triu(np.ones_like(same), 1)
sizes = [3, 6, 12, 25, 50, 100, 200]
systems = {
    "maximum likelihood": PLDA(30, noise="full", max_iter=10),
    "noise shrunk by 0.3": PLDA(30, noise="full", max_iter=10, noise_shrinkage=0.3),
    "isotropic prior": MultiviewPLDA({"speaker": None}, prior="isotropic"),
    "cosine": CosineScorer(),
}
found = {name: [] for name in systems}
for n in sizes:
    X, y = draw(n, 5)
    for name, system in systems.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # three speakers hold two directions, and it says so
            scores = np.asarray(system.fit(X, {"speaker": y}).llr(T, T, dtype=np.float64))
        targets, others = scores[same & above], scores[~same & above]
        found[name].append((100 * eer(targets, others), cllr(targets, others)))
for name, rows in found.items():
    print(f"{name:22}" + " ".join(f"{row[0]:6.2f}" for row in rows))

# %%
fig, (left, right) = plt.subplots(1, 2, figsize=(11, 4.3), layout="constrained")
for (name, rows), colour in zip(
    found.items(), ("#D55E00", "#E69F00", "#0072B2", "#999999"), strict=True
):
    left.plot(sizes, [row[0] for row in rows], "o-", color=colour, label=name)
    if name != "cosine":  # which is no likelihood ratio
        right.plot(sizes, [row[1] for row in rows], "o-", color=colour, label=name)
left.set(xscale="log", xlabel="training speakers", ylabel="EER, %", ylim=(0, None))
right.set(xscale="log", yscale="log", xlabel="training speakers", ylabel="Cllr, bits (1: no use)")
right.axhline(1, color="#999999", linewidth=0.8, linestyle=":")
for axes in (left, right):
    axes.set_xticks(sizes, sizes)
    axes.minorticks_off()
left.legend(frameon=False)
plt.show()
