"""
Use ASR posteriors of the phrase
================================

Speakers are easier to verify where the phrase is known. A recogniser errs, but it gives
posteriors of the phrases. Used as they are, ``recognised={"phrase": posteriors}``, they
do not make the answer worse. The most likely phrase taken for certain does, as soon as
the recogniser errs now and then.
"""

import matplotlib.pyplot as plt
import numpy as np
from mvplda import MultiviewPLDA, make_two_views
from mvplda.metrics import eer
from scipy.special import softmax

X, labels, unseen = make_two_views(100, 10, 5, 30, (10, 9), held_out=40, random_state=0)
model = MultiviewPLDA({"speaker": 10, "phrase": 9}).fit(X, labels)
profiles = model.enrol(
    unseen.enrol, unseen.ids, labels={"phrase": unseen.enrol_labels["phrase"]}
)
tests, what = unseen.test, unseen.test_labels["phrase"]
same = np.equal.outer(profiles.ids // 10, unseen.test_labels["speaker"])


def error(scores):
    return 100 * eer(scores[same], scores[~same])


# %%
# Simulate a recogniser. Its evidence for a phrase is normal with variance d^2, about
# d^2 if it is that phrase and about 0 if not, so that its posteriors are calibrated,
# whatever d is.
rng = np.random.default_rng(2)
asked = {"same": "speaker", "known": ["phrase"]}
unknown = error(model.llr(profiles, tests, **asked))
oracle = error(
    model.llr(profiles, model.enrol(tests, labels={"phrase": what}), **asked)
)
right, soft, hard = [], [], []
for d in (0.0, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 6.0):
    evidence = rng.normal(0, d, (len(tests), 10)) + d**2 * np.eye(10)[what]
    posteriors = softmax(evidence, axis=1)
    guess = posteriors.argmax(axis=1)
    right.append(100 * np.mean(guess == what))
    heard = {"phrase": dict(enumerate(posteriors.T))}  # by class
    soft.append(error(model.llr(profiles, tests, recognised=heard, **asked)))
    hard.append(
        error(
            model.llr(profiles, model.enrol(tests, labels={"phrase": guess}), **asked)
        )
    )
    both = f"{soft[-1]:.2f} % with posteriors, {hard[-1]:.2f} % with the most likely"
    print(f"{right[-1]:5.1f} % right: EER {both}")

# %%
# Posteriors never cost; the most likely phrase costs until nearly all are right.

fig, axes = plt.subplots(figsize=(8, 5), layout="constrained")
axes.axhline(unknown, color="#777777", linestyle=":", label="no recogniser")
axes.axhline(oracle, color="#009E73", linestyle=":", label="phrase known")
axes.plot(right, hard, "s--", color="#E69F00", label="most likely phrase")
axes.plot(right, soft, "o-", color="#0072B2", label="posteriors")
axes.set(
    xlabel="phrases that the recogniser has right, %", ylabel="EER, %", ylim=(0, None)
)
axes.legend(frameon=False)
plt.show()
