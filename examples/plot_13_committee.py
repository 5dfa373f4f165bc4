"""
Combine two extractors in a committee
=====================================

One network represents voices well, another one words. If their vectors are concatenated,
one model has to describe the noise of both. In a committee, each network has its own
model (expert), and the log-likelihoods of every hypothesis are added. The expert for
words may model the phrase alone. (Here the weights of the experts are 1, and the strength
of the prior is fixed; by default both are chosen on held-out speakers.)
"""

import matplotlib.pyplot as plt
import numpy as np
from mvplda import Committee, CosineScorer, MultiviewPLDA
from mvplda.metrics import evaluate, trial_kinds

rng = np.random.default_rng(0)
who, what, take = (a.ravel() for a in np.indices((80, 6, 5)))


def network(size, speaker, phrase):
    """Return vectors of length 1; `speaker` and `phrase` are the sizes of both views."""
    X = (
        speaker * rng.normal(size=(80, size))[who]
        + phrase * rng.normal(size=(6, size))[what]
    )
    X += 0.3 * rng.normal(size=(80, 6, size))[who, what] + rng.normal(
        size=(len(who), size)
    )
    return X / np.linalg.norm(X, axis=1, keepdims=True)


X = np.hstack([network(40, 0.9, 0.4), network(40, 0.15, 0.9)])
train, enrol, test = who < 40, (who >= 40) & (take < 1), (who >= 40) & (take >= 3)
y = {"speaker": who[train], "phrase": what[train]}
kinds = trial_kinds(
    {"speaker": who[enrol], "phrase": what[enrol]},
    {"speaker": who[test], "phrase": what[test]},
)
expert = MultiviewPLDA(
    {"speaker": None, "phrase": None}, prior="isotropic", prior_strength=0.8
)
words = MultiviewPLDA({"phrase": None}, prior="isotropic", prior_strength=0.8)
halves = {"voice": (0, 40), "words": (40, 80)}
systems = {
    "cosine of both": CosineScorer(),
    "one model of both": expert,
    "committee": Committee(
        {"voice": expert, "words": expert}, columns=halves, weights=None
    ),
    "committee, words for phrases only": Committee(
        {"voice": expert, "words": words},
        columns=halves,
        weights=None,
    ),
}
errors = {}
for name, system in systems.items():
    fitted = system.fit(X[train], y)
    scores = fitted.llr(X[enrol], X[test], dtype=np.float64)
    errors[name] = {
        k: 100 * row["eer"] for k, row in evaluate(scores, kinds).rows.items()
    }
    shown = "  ".join(f"{kind} {e:5.2f} %" for kind, e in errors[name].items())
    print(f"{name:36}{shown}")

# %%
# Both committees have fewer errors in total than one model of the concatenated vectors.

fig, axes = plt.subplots(figsize=(9, 5), layout="constrained")
colours = ("#BBBBBB", "#E69F00", "#56B4E9", "#0072B2")
for i, ((name, row), colour) in enumerate(zip(errors.items(), colours, strict=True)):
    positions = np.arange(4) + 0.2 * (i - 1.5)
    axes.bar(positions, list(row.values()), 0.19, color=colour, label=name)
axes.set_xticks(np.arange(4), list(row))
axes.set(ylabel="EER, %")
axes.legend(frameon=False)
plt.show()
