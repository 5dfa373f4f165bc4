"""
Forget a speaker
================

A model knows its training data through sums, and sums can be subtracted. Without the vectors of anybody else, a speaker
who withdraws is taken out exactly: the model is the one that would have been, had they never been there.
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


theirs = SufficientStatistics.from_arrays(*part(labels["speaker"] == 7), origin=everyone.origin)
forgotten = MultiviewPLDA(views, tol=1e-9, max_iter=500).fit_statistics(everyone - theirs)
never = MultiviewPLDA(views, tol=1e-9, max_iter=500).fit(*part(labels["speaker"] != 7))


def covariances(fitted):
    return np.concatenate([(a @ a.T).ravel() for a in fitted.loadings_.values()] + [fitted.noise_])


print(
    "speakers before and after:", len(model.classes_["speaker"]), len(forgotten.classes_["speaker"])
)
print(
    f"largest difference to a model that never met them: {abs(covariances(forgotten) - covariances(never)).max():.1e}"
)
print(
    f"largest difference to the model before: {abs(covariances(forgotten) - covariances(model)).max():.2f}"
)

# %%
# Left, every entry of the model's covariances: with the speaker in, they differ from those of a model that never met
# them in the second digit; after the subtraction, in the last. Right, more and more speakers leave: the model moves
# away from the first one, and stays with the one that is trained anew on those who are left.

fig, (left, right) = plt.subplots(1, 2, figsize=(10.5, 4.4), layout="constrained", sharey=True)
size = abs(covariances(never))
for fitted, colour, name in (
    (model, "#D55E00", "speaker 7 is in"),
    (forgotten, "#0072B2", "speaker 7 is forgotten"),
):
    off = abs(covariances(fitted) - covariances(never))
    left.loglog(size, np.maximum(off, 1e-16), ".", color=colour, markersize=4, label=name)
left.set(
    xlabel="entry of a model that never met speaker 7",
    ylabel="difference",
    ylim=(1e-17, 10),
    xlim=(1e-3, 1e2),
)
left.legend(frameon=False, loc="center right")
order, rest, rows = np.random.default_rng(1).permutation(40), everyone, []
for gone in range(5, 31, 5):
    theirs = SufficientStatistics.from_arrays(
        *part(np.isin(labels["speaker"], order[gone - 5 : gone])), origin=everyone.origin
    )
    rest = rest - theirs
    less = MultiviewPLDA(views, tol=1e-9, max_iter=500).fit_statistics(rest)
    anew = MultiviewPLDA(views, tol=1e-9, max_iter=500).fit(
        *part(np.isin(labels["speaker"], order[gone:]))
    )
    rows.append(
        (gone, *(abs(covariances(less) - covariances(other)).max() for other in (model, anew)))
    )
for column, colour, name in (
    (1, "#D55E00", "to the model of all 40"),
    (2, "#0072B2", "to a model trained anew"),
):
    right.plot(
        [row[0] for row in rows],
        [row[column] for row in rows],
        "o-",
        color=colour,
        label=f"largest, {name}",
    )
right.set(xlabel="speakers forgotten, of 40")
right.legend(frameon=False, loc="center right")
plt.show()
