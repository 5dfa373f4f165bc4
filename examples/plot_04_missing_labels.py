"""
Train with missing labels
=========================

For many recordings it is not known which phrase was said. Their vectors still help to
model the speakers: a vector without a label of the phrase is treated as a phrase of its
own. Leaving these vectors out loses data.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from mvplda import PLDA, MultiviewPLDA, make_two_views
from mvplda.metrics import eer, trial_kinds

X, labels, unseen = make_two_views(60, 10, 6, 60, (12, 9), held_out=60, random_state=3)
claimed = {view: column[::3] for view, column in unseen.enrol_labels.items()}
kinds = trial_kinds(claimed, unseen.test_labels)
same, other = kinds["TC"] | kinds["TW"], kinds["IC"] | kinds["IW"]
rng = np.random.default_rng(0)
shares = [0, 0.25, 0.5, 0.75, 0.9, 0.95]
order = rng.permutation(len(X))


def error(model):
    """Return the EER, in %, of the question "same speaker, whatever the phrase?"."""
    scores = model.llr(
        model.enrol(unseen.enrol, unseen.ids), unseen.test, same="speaker"
    )
    return 100 * eer(scores[same], scores[other])


rows = []
for share in shares:
    unlabelled = order[: int(share * len(X))]
    phrase = labels["phrase"].astype(object)
    phrase[unlabelled] = None
    labelled = np.setdiff1d(order, unlabelled)
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # few vectors vary along fewer directions than the requested ranks
        with_all = MultiviewPLDA({"speaker": 12, "phrase": 9}).fit(
            X, {"speaker": labels["speaker"], "phrase": phrase}
        )
        left_out = MultiviewPLDA({"speaker": 12, "phrase": 9}).fit(
            X[labelled], {v: y[labelled] for v, y in labels.items()}
        )
    rows.append((error(with_all), error(left_out)))
    both = "EER {:.1f} % with them, {:.1f} % without them".format(*rows[-1])
    print(f"{share:4.0%} without a phrase: {both}")
alone = error(PLDA(12).fit(X, {"speaker": labels["speaker"]}))

# %%
# Even if nine in ten labels are missing, the vectors without label reduce the errors.

fig, axes = plt.subplots(figsize=(8, 5), layout="constrained")
table = np.array(rows)
axes.plot(
    [100 * s for s in shares],
    table[:, 1],
    "s--",
    color="#E69F00",
    label="those vectors left out",
)
axes.plot(
    [100 * s for s in shares],
    table[:, 0],
    "o-",
    color="#0072B2",
    label="label None: a phrase of its own",
)
axes.axhline(
    alone, color="#999999", linestyle=":", label="PLDA of speakers, no phrases at all"
)
axes.set(
    xlabel="vectors without a phrase, %", ylabel="EER of the speaker, %", ylim=(0, None)
)
axes.legend(frameon=False)
plt.show()
