"""
Train with few speakers
=======================

With few training speakers, a maximum-likelihood fit is overconfident. There are two
remedies: shrink the noise towards the total variance, or use a prior that shrinks all
covariances towards isotropic ones. With a very strong prior, scores rank trials like
the cosine.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from mvplda import PLDA, CosineScorer, MultiviewPLDA
from mvplda.metrics import eer

# the cosine is hard to beat on vectors of equal length if all directions are about
# equally informative
D, rng = 40, np.random.default_rng(0)
scale = np.linspace(1.3, 0.7, D)


def draw(speakers, each):
    """Return vectors of length 1, `each` per speaker, and the speaker of each vector."""
    centres = rng.normal(size=(speakers, 1, D)) * scale
    vectors = (
        centres + 1.3 * rng.normal(size=(speakers, each, D)) * scale[::-1]
    ).reshape(-1, D)
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
errors_of = {name: [] for name in systems}
for n in sizes:
    X, y = draw(n, 5)
    for name, system in systems.items():
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore"
            )  # three speakers vary along two directions only, which causes a warning
            scores = np.asarray(
                system.fit(X, {"speaker": y}).llr(T, T, dtype=np.float64)
            )
        targets, others = scores[same & above], scores[~same & above]
        errors_of[name].append(100 * eer(targets, others))
for name, errors in errors_of.items():
    print(f"{name:22}" + " ".join(f"{error:6.2f}" for error in errors))

# %%
# With three speakers the isotropic prior is close to the cosine, and from a dozen speakers
# on it has fewer errors; maximum likelihood needs a hundred speakers.

fig, axes = plt.subplots(figsize=(8, 5), layout="constrained")
colours = ("#D55E00", "#E69F00", "#0072B2", "#999999")
for (name, errors), colour in zip(errors_of.items(), colours, strict=True):
    axes.plot(sizes, errors, "o-", color=colour, label=name)
axes.set(xscale="log", xlabel="training speakers", ylabel="EER, %", ylim=(0, None))
axes.set_xticks(sizes, sizes)
axes.minorticks_off()
axes.legend(frameon=False)
plt.show()
