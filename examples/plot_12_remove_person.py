"""
Remove a person's data from a model
===================================

A model is a function of sums over its training data, and sums can be subtracted. A
speaker who withdraws is removed exactly, without the vectors of anybody else: the model
is the one that would have been trained without them.
"""

import matplotlib.pyplot as plt
import numpy as np
from mvplda import MultiviewPLDA, SufficientStatistics, make_two_views

X, labels = make_two_views(40, 8, 5, 30, (6, 5), random_state=0)
views = {"speaker": 6, "phrase": 5}
everyone = SufficientStatistics.from_arrays(X, labels)
model = MultiviewPLDA(views, tol=1e-9, max_iter=500).fit_statistics(everyone)


def part(chosen):
    return X[chosen], {view: own[chosen] for view, own in labels.items()}


theirs = SufficientStatistics.from_arrays(*part(labels["speaker"] == 7))
without = MultiviewPLDA(views, tol=1e-9, max_iter=500).fit_statistics(everyone - theirs)
never = MultiviewPLDA(views, tol=1e-9, max_iter=500).fit(*part(labels["speaker"] != 7))


def covariances(fitted):
    return np.concatenate(
        [(a @ a.T).ravel() for a in fitted.loadings_.values()] + [fitted.noise_]
    )


print(
    "speakers before and after:",
    len(model.classes_["speaker"]),
    len(without.classes_["speaker"]),
)
for name, other in {"a model without them": never, "the model before": model}.items():
    off = abs(covariances(without) - covariances(other)).max()
    print(f"largest difference from {name}: {off:.1e}")

# %%
# More and more speakers leave: the model moves away from the first one, and stays with
# the one that is trained again on those who are left.

fig, axes = plt.subplots(figsize=(8, 5), layout="constrained")
order, rest, rows = np.random.default_rng(1).permutation(40), everyone, []
for gone in range(5, 31, 5):
    leaving = np.isin(labels["speaker"], order[gone - 5 : gone])
    rest = rest - SufficientStatistics.from_arrays(*part(leaving))
    less = MultiviewPLDA(views, tol=1e-9, max_iter=500).fit_statistics(rest)
    anew = MultiviewPLDA(views, tol=1e-9, max_iter=500).fit(
        *part(np.isin(labels["speaker"], order[gone:]))
    )
    rows.append([abs(covariances(less) - covariances(m)).max() for m in (model, anew)])
names = ("the model of all 40", "a model trained again without them")
for column, colour, name in zip(
    np.transpose(rows), ("#D55E00", "#0072B2"), names, strict=True
):
    axes.semilogy(range(5, 31, 5), column, "o-", color=colour, label=f"from {name}")
axes.set(xlabel="speakers removed, of 40", ylabel="largest difference of a covariance")
axes.legend(frameon=False, loc="center right")
plt.show()
