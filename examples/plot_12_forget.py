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


print("speakers before and after:", len(model.classes_["speaker"]), len(forgotten.classes_["speaker"]))
print(
    f"largest difference to a model that never met them: {abs(covariances(forgotten) - covariances(never)).max():.1e}"
)
print(f"largest difference to the model before: {abs(covariances(forgotten) - covariances(model)).max():.2f}")

# %%
# Each dot is an entry of the model's covariances. With the speaker they lie beside the line; after the subtraction they
# lie on it, to the last digits.

fig, (left, right) = plt.subplots(1, 2, figsize=(10.5, 4.4), layout="constrained")
left.scatter(covariances(never), covariances(model) - covariances(never), s=8, color="#D55E00", label="speaker 7 is in")
left.scatter(covariances(never), covariances(forgotten) - covariances(never), s=8, color="#0072B2", label="forgotten")
left.set(xlabel="entry of a model that never met speaker 7", ylabel="difference to it")
left.legend(frameon=False)
gone, distance, order = [], [], np.random.default_rng(1).permutation(40)
rest = everyone
for k in range(31):
    if k:
        chosen = labels["speaker"] == order[k]
        rest = rest - SufficientStatistics.from_arrays(*part(chosen), origin=everyone.origin)
    if k % 5 == 0:
        some = MultiviewPLDA(views, tol=1e-9, max_iter=500).fit_statistics(rest)
        gone.append(k)
        distance.append(np.linalg.norm(covariances(some) - covariances(model)) / np.linalg.norm(covariances(model)))
right.plot(gone, distance, "o-", color="#0072B2")
right.set(xlabel="speakers forgotten, of 40", ylabel="how far the model has moved (relative norm)", ylim=(0, None))
plt.show()
