"""
Model how a speaker says a phrase
=================================

How *this* speaker says *this* phrase is more than the sum of speaker and phrase. The
interaction ``"speaker:phrase"`` models it as a view with a class for every combination;
it needs no labels of its own. Here vectors are simulated with a stronger and stronger
interaction, and models with and without this view are compared.
"""

import matplotlib.pyplot as plt
import numpy as np
from mvplda import PLDA, MultiviewPLDA
from mvplda.metrics import evaluate, trial_kinds

D, speakers, phrases = 60, 110, 8
strengths = [0.0, 0.25, 0.5, 0.75, 1.0]
systems = {
    "two views": {"speaker": 10, "phrase": 7},
    "with the interaction": {"speaker": 10, "phrase": 7, "speaker:phrase": 10},
}
who, what, take = (a.ravel() for a in np.indices((speakers, phrases, 6)))
train, enrol, test = who < 60, (who >= 60) & (take < 3), (who >= 60) & (take >= 3)
y = {"speaker": who[train], "phrase": what[train]}
errors = {name: [] for name in [*systems, "PLDA of combinations"]}
for strength in strengths:
    rng = np.random.default_rng(0)
    loadings = {
        "speaker": rng.normal(size=(D, 10)),
        "phrase": 1.5 * rng.normal(size=(D, 7)),
    }
    loadings["speaker:phrase"] = strength * rng.normal(size=(D, 10))
    truth = MultiviewPLDA.from_parameters(np.zeros(D), loadings, np.full(D, 30.0))
    X = truth.sample({"speaker": who, "phrase": what}, random_state=1)
    claimed = {"speaker": who[enrol][::3], "phrase": what[enrol][::3]}
    kinds = trial_kinds(claimed, {"speaker": who[test], "phrase": what[test]})
    for name in errors:
        if name in systems:
            model = MultiviewPLDA(systems[name], noise="full").fit(X[train], y)
        else:
            model = PLDA(25, noise="full").fit(
                X[train], {"cell": who[train] * phrases + what[train]}
            )
        scores = model.llr(
            model.enrol(X[enrol], (who * phrases + what)[enrol]), X[test]
        )
        errors[name].append(100 * evaluate(scores, kinds)["Total"]["eer"])
    print(
        f"strength {strength}: "
        + ", ".join(f"{name} {e[-1]:.2f} %" for name, e in errors.items())
    )

# %%
# The stronger the interaction in the data, the more the model with the interaction gains.

fig, axes = plt.subplots(figsize=(8, 5), layout="constrained")
colours = ("#E69F00", "#0072B2", "#999999")
for (name, values), colour in zip(errors.items(), colours, strict=True):
    axes.plot(strengths, values, "o-", color=colour, label=name)
axes.set(
    xlabel="strength of the interaction in the data",
    ylabel="Total EER, %",
    ylim=(0, None),
)
axes.legend(frameon=False)
plt.show()
