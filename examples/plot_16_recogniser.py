"""
A recogniser's word
===================

Who spoke is easier to tell where it is known what was said. A recogniser tells, but it errs, and it knows how sure it
is: it gives posteriors of the phrases. Taken as they are, ``recognised={"phrase": posteriors}``, they never make the
answer worse than not asking. The likeliest phrase taken for a fact does, as soon as the recogniser errs now and then.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.special import softmax

from mvplda import MultiviewPLDA, make_two_views
from mvplda.metrics import cllr, eer

X, labels, unseen = make_two_views(100, 10, 5, 30, (10, 9), held_out=40, random_state=0)
model = MultiviewPLDA({"speaker": 10, "phrase": 9}).fit(X, labels)
profiles = model.enrol(unseen.enrol, unseen.ids, labels={"phrase": unseen.enrol_labels["phrase"]})
tests, what = unseen.test, unseen.test_labels["phrase"]
same = np.equal.outer(profiles.ids // 10, unseen.test_labels["speaker"])


def errors(scores):
    return 100 * eer(scores[same], scores[~same]), cllr(scores[same], scores[~same])


# %%
# The recogniser's evidence for a phrase is normal with variance d^2, about d^2 if it is that phrase and about 0 if not,
# so that its posteriors are calibrated, whatever d is.
rng = np.random.default_rng(2)
asked = {"same": "speaker", "known": ["phrase"]}
unknown = errors(model.llr(profiles, tests, **asked))
oracle = errors(model.llr(profiles, model.enrol(tests, labels={"phrase": what}), **asked))
right, soft, hard = [], [], []
for d in (0.0, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 6.0):
    evidence = rng.normal(0, d, (len(tests), 10)) + d**2 * np.eye(10)[what]
    posteriors = softmax(evidence, axis=1)
    guess = posteriors.argmax(axis=1)
    right.append(100 * np.mean(guess == what))
    soft.append(errors(model.llr(profiles, tests, recognised={"phrase": posteriors}, **asked)))
    hard.append(errors(model.llr(profiles, model.enrol(tests, labels={"phrase": guess}), **asked)))
    print(
        f"{right[-1]:5.1f} % right: EER {soft[-1][0]:.2f} % with posteriors, {hard[-1][0]:.2f} % with the likeliest"
    )

# %%
fig, panels = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
for i, (axes, word) in enumerate(zip(panels, ("EER, %", "Cllr, bits"), strict=True)):
    axes.axhline(unknown[i], color="#777777", linestyle=":", label="not asked")
    axes.axhline(oracle[i], color="#009E73", linestyle=":", label="phrase known")
    axes.plot(
        right, [row[i] for row in hard], "s--", color="#E69F00", label="the likeliest as a fact"
    )
    axes.plot(
        right, [row[i] for row in soft], "o-", color="#0072B2", label="posteriors as they are"
    )
    axes.set(xlabel="phrases that the recogniser has right, %", ylabel=word, ylim=(0, None))
panels[0].legend(frameon=False)
plt.show()
