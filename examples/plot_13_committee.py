"""
Two extractors as experts
=========================

One network hears voices, another hears words. Side by side in one vector they are a hard problem for one model, whose
noise has to describe both; as a committee each has a model of its own, and what they say of every hypothesis is added
up. The network of words may be told to speak of the phrase alone. (Factors are 1 here, and the prior has a set
strength; by default both are learnt from speakers that were held out. How much a committee gains depends on the
networks, the prior and the speakers: with shorter vectors and a weaker prior the two come out alike on such data.)
"""

import matplotlib.pyplot as plt
import numpy as np

from mvplda import Committee, CosineScorer, MultiviewPLDA
from mvplda.metrics import eer_by_kind, trial_kinds

rng = np.random.default_rng(0)
who, what, take = (a.ravel() for a in np.indices((80, 6, 5)))


def network(size, speaker, phrase):
    """Vectors of one length, of a network that hears so much of the speaker and so much of the phrase."""
    X = speaker * rng.normal(size=(80, size))[who] + phrase * rng.normal(size=(6, size))[what]
    X += 0.3 * rng.normal(size=(80, 6, size))[who, what] + rng.normal(size=(len(who), size))
    return X / np.linalg.norm(X, axis=1, keepdims=True)


X = np.hstack([network(40, 0.9, 0.4), network(40, 0.15, 0.9)])
train, enrol, test = who < 40, (who >= 40) & (take < 1), (who >= 40) & (take >= 3)
y = {"speaker": who[train], "phrase": what[train]}
kinds = trial_kinds(
    {"speaker": who[enrol], "phrase": what[enrol]}, {"speaker": who[test], "phrase": what[test]}
)
expert = MultiviewPLDA({"speaker": None, "phrase": None}, prior="isotropic", prior_strength=0.8)
halves = {"voice": (0, 40), "words": (40, 80)}
systems = {
    "cosine of both": CosineScorer(),
    "one model of both": expert,
    "committee": Committee({"voice": expert, "words": expert}, columns=halves, factors=None),
    "committee, words\nspeak of phrases": Committee(
        {"voice": expert, "words": expert},
        columns=halves,
        speaks_of={"words": ["phrase"]},
        factors=None,
    ),
}
errors, scores = {}, {}
for name, system in systems.items():
    fitted = system.fit(X[train], y)
    scores[name] = fitted.llr(X[enrol], X[test], dtype=np.float64)
    errors[name] = {kind: 100 * e for kind, e in eer_by_kind(scores[name], kinds).items()}
    print(
        f"{name.replace(chr(10), ' '):36}"
        + "  ".join(f"{kind} {e:5.2f} %" for kind, e in errors[name].items())
    )
committee = systems["committee"]

# %%
fig, (left, right) = plt.subplots(
    1, 2, figsize=(12, 4.4), layout="constrained", width_ratios=(1.5, 1)
)
colours = ("#BBBBBB", "#E69F00", "#56B4E9", "#0072B2")
for i, ((name, row), colour) in enumerate(zip(errors.items(), colours, strict=True)):
    left.bar(np.arange(4) + 0.2 * (i - 1.5), list(row.values()), 0.19, color=colour, label=name)
left.set_xticks(np.arange(4), list(row))
left.set(ylabel="EER, %")
left.legend(frameon=False, fontsize=9)
parts = {
    name: committee.experts_[name].llr(X[enrol][:, slice(*c)], X[test][:, slice(*c)])
    for name, c in halves.items()
}
for kind, colour in {"IW": "#999999", "IC": "#D55E00", "TW": "#E69F00", "TC": "#0072B2"}.items():
    some = rng.permutation(np.flatnonzero(kinds[kind]))[:400]
    right.scatter(
        parts["voice"].ravel()[some],
        parts["words"].ravel()[some],
        s=7,
        color=colour,
        label=kind,
        alpha=0.7,
    )
right.set(xlabel="what the voice expert says, LLR", ylabel="what the words expert says, LLR")
right.legend(frameon=False, ncols=4, loc="lower center", bbox_to_anchor=(0.5, 1), markerscale=2)
plt.show()
