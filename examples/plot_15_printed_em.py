"""
Why the printed EM fails where it does
======================================

The paper's EM infers the latents of every combination of speaker and phrase by itself. Then nothing says which
directions are the speaker's and which the phrase's: rotated into one another they fit as well. From a start that has
them right it stays right; from a random start it divides them at random. Exact EM, which lets a speaker be the same
person in all phrases, finds them from anywhere.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np

from mvplda import MultiviewPLDA, make_two_views
from mvplda.metrics import eer_by_kind, trial_kinds

X, labels, unseen = make_two_views(100, 12, 5, 90, (12, 11), held_out=40, random_state=0)
claimed = {view: own[::3] for view, own in unseen.enrol_labels.items()}
kinds = trial_kinds(claimed, unseen.test_labels)
truth = unseen.truth
ways = {
    "exact, random start": {"init": "random"},
    "printed, random start": {"init": "random", "algorithm": "paper"},
    "printed, moments start": {"init": "moments", "algorithm": "paper"},
}
# how much of a true direction lies in the space that was found for a view
spaces = {view: np.linalg.qr(loading)[0] for view, loading in truth.loadings_.items()}
inside, errors, paths = {}, {}, {}
for name, settings in ways.items():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the printed EM lowers the likelihood, and is told so
        model = MultiviewPLDA(
            {"speaker": 12, "phrase": 11}, max_iter=60, tol=0, random_state=1, **settings
        ).fit(X, labels)
    found = {view: np.linalg.qr(loading)[0] for view, loading in model.loadings_.items()}
    inside[name] = np.array(
        [[np.mean((found[a].T @ spaces[b]) ** 2) * len(found[a].T) for b in spaces] for a in found]
    )
    scores = model.llr(model.enrol(unseen.enrol, unseen.ids), unseen.test)
    errors[name] = {kind: 100 * e for kind, e in eer_by_kind(scores, kinds).items()}
    paths[name] = np.asarray(model.log_likelihoods_) / len(X)
    print(f"{name:24}" + "  ".join(f"{kind} {e:5.2f} %" for kind, e in errors[name].items()))

# %%
# Left: of the true speaker and phrase directions, the share that was found in each view. A clean diagonal is right.

fig, panels = plt.subplots(
    1, 4, figsize=(13, 3.8), layout="constrained", width_ratios=(1, 1, 1, 1.4)
)
for axes, (name, table) in zip(panels, inside.items(), strict=False):
    axes.imshow(table, vmin=0, vmax=1, cmap="Blues")
    for (i, j), share in np.ndenumerate(table):
        axes.text(
            j,
            i,
            f"{share:.0%}",
            ha="center",
            va="center",
            color="white" if share > 0.5 else "black",
            fontsize=13,
        )
    axes.set_title(
        f"{name}\nIC {errors[name]['IC']:.1f} %, Total {errors[name]['Total']:.1f} %", fontsize=10
    )
    axes.set_xticks([0, 1], ["true\nspeaker", "true\nphrase"])
    axes.set_yticks([0, 1], ["found as\nspeaker", "found as\nphrase"])
for (name, path), colour in zip(paths.items(), ("#0072B2", "#D55E00", "#E69F00"), strict=True):
    panels[3].plot(path, color=colour, label=name)
last = [path[-1] for path in paths.values()]
panels[3].set(
    xlabel="iteration", ylabel="log-likelihood a vector, nat", ylim=(min(last) - 1, max(last) + 0.3)
)
panels[3].legend(frameon=False, fontsize=9)
plt.show()
