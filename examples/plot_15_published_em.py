"""
Compare the published EM with exact EM
======================================

The paper's EM infers separate latent variables for every combination of speaker and
phrase. The likelihood then does not determine which directions belong to the speaker and
which to the phrase. From a start with the right directions, the result is right; from a
random start, the directions are divided at random. In exact EM a speaker has the same
latent variable in all phrases, and the right directions are found from any start.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from mvplda import MultiviewPLDA, make_two_views
from mvplda.metrics import evaluate, trial_kinds

X, labels, unseen = make_two_views(
    100, 12, 5, 90, (12, 11), held_out=40, random_state=0
)
claimed = {view: column[::3] for view, column in unseen.enrol_labels.items()}
kinds = trial_kinds(claimed, unseen.test_labels)
truth = unseen.truth
ways = {
    "exact, random start": {"init": "random"},
    "published, random start": {"init": "random", "algorithm": "paper"},
    "printed, moments start": {"init": "moments", "algorithm": "paper"},
}
# orthonormal bases of the true subspaces
spaces = {view: np.linalg.qr(loading)[0] for view, loading in truth.loadings_.items()}
inside, errors = {}, {}
for name, settings in ways.items():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the published EM lowers the likelihood
        model = MultiviewPLDA(
            {"speaker": 12, "phrase": 11},
            max_iter=60,
            tol=0,
            random_state=1,
            **settings,
        ).fit(X, labels)
    found = {
        view: np.linalg.qr(loading)[0] for view, loading in model.loadings_.items()
    }
    inside[name] = np.array(
        [
            [np.mean((found[a].T @ spaces[b]) ** 2) * len(found[a].T) for b in spaces]
            for a in found
        ]
    )
    scores = model.llr(model.enrol(unseen.enrol, unseen.ids), unseen.test)
    errors[name] = {
        k: 100 * row["eer"] for k, row in evaluate(scores, kinds).rows.items()
    }
    print(
        f"{name:24}"
        + "  ".join(f"{kind} {e:5.2f} %" for kind, e in errors[name].items())
    )

# %%
# Share of the true speaker and phrase directions in the subspace of each fitted view. The
# right result is 100 % on the diagonal.

fig, panels = plt.subplots(1, 3, figsize=(12, 4.5), layout="constrained")
for axes, (name, table) in zip(panels, inside.items(), strict=True):
    axes.imshow(table, vmin=0, vmax=1, cmap="Blues")
    for (i, j), share in np.ndenumerate(table):
        ink = "white" if share > 0.5 else "black"
        centred = {"ha": "center", "va": "center", "fontsize": 15}
        axes.text(j, i, f"{share:.0%}", color=ink, **centred)
    ic, total = (f"{errors[name][kind]:.1f} %" for kind in ("IC", "Total"))
    axes.set_title(f"{name}\nIC {ic}, Total {total}", fontsize=12)
    axes.set_xticks([0, 1], ["true\nspeaker", "true\nphrase"])
    axes.set_yticks([0, 1], ["found as\nspeaker", "found as\nphrase"])
plt.show()
