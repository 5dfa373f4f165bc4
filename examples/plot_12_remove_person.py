"""
Remove a person's data from a model
===================================

A model depends only on sums over its training data, and sums can be subtracted. The
data of a speaker can therefore be removed exactly, without the vectors of other people:
the result is the model that would have been trained without this speaker.
"""

import matplotlib.pyplot as plt
import numpy as np
from mvplda import MultiviewPLDA, SufficientStatistics, make_two_views

X, labels = make_two_views(40, 8, 5, 30, (6, 5), random_state=0)
views = {"speaker": 6, "phrase": 5}
everyone = SufficientStatistics.from_arrays(X, labels)
model = MultiviewPLDA(views, tol=1e-9, max_iter=500).fit_statistics(everyone)


def subset(rows):
    """Return the vectors of these rows, and their labels."""
    return X[rows], {view: classes[rows] for view, classes in labels.items()}


removed = SufficientStatistics.from_arrays(*subset(labels["speaker"] == 7))
without = MultiviewPLDA(views, tol=1e-9, max_iter=500)
without.fit_statistics(everyone - removed)
never = MultiviewPLDA(views, tol=1e-9, max_iter=500)
never.fit(*subset(labels["speaker"] != 7))


def covariances(fitted):
    """Return the numbers of all covariances of a model as one array."""
    return np.concatenate(
        [(a @ a.T).ravel() for a in fitted.loadings_.values()] + [fitted.noise_]
    )


print(
    "speakers before and after:",
    len(model.classes_["speaker"]),
    len(without.classes_["speaker"]),
)
for name, other in {"a model without them": never, "the model before": model}.items():
    difference = abs(covariances(without) - covariances(other)).max()
    print(f"largest difference from {name}: {difference:.1e}")

# %%
# More and more speakers are removed. The model differs more and more from the first one,
# and stays equal to a model that is trained again on the remaining speakers.

fig, axes = plt.subplots(figsize=(8, 5), layout="constrained")
order, remaining, rows = np.random.default_rng(1).permutation(40), everyone, []
for count in range(5, 31, 5):
    leaving = np.isin(labels["speaker"], order[count - 5 : count])
    remaining = remaining - SufficientStatistics.from_arrays(*subset(leaving))
    reduced = MultiviewPLDA(views, tol=1e-9, max_iter=500).fit_statistics(remaining)
    retrained = MultiviewPLDA(views, tol=1e-9, max_iter=500).fit(
        *subset(np.isin(labels["speaker"], order[count:]))
    )
    rows.append(
        [
            abs(covariances(reduced) - covariances(other)).max()
            for other in (model, retrained)
        ]
    )
names = ("the model of all 40", "a model trained without them")
for column, colour, name in zip(
    np.transpose(rows), ("#D55E00", "#0072B2"), names, strict=True
):
    axes.semilogy(range(5, 31, 5), column, "o-", color=colour, label=f"from {name}")
axes.set(xlabel="speakers removed, of 40", ylabel="largest difference of a covariance")
axes.legend(frameon=False, loc="center right")
plt.show()
