"""
A tour: every part of the library in a line or two
==================================================

Fit a model of two labels, ask it every question, and see where to read on.
"""

import numpy as np
from mvplda import MultiviewPLDA, SufficientStatistics, make_two_views

# 132 speakers and 20 phrases; 70 other speakers
X, labels, unseen = make_two_views(held_out=70, random_state=0)

# %%
# Fit
# ---
#
# Labels are a dict, a DataFrame, an Arrow table or an array (n, views); None, NaN and
# empty text are no label. ``views={"speaker": 20, "phrase": 20, "speaker:phrase": 20}``
# adds how this speaker says this phrase. ``noise`` is ``"diagonal"`` or ``"full"``;
# with few classes, ``noise_shrinkage=0.05``, or ``prior="isotropic"`` for vectors of
# one length that are not whitened.

model = MultiviewPLDA(views={"speaker": 20, "phrase": 19}).fit(X, labels)
print(model.diagnostics_)  # classes, counts, cells filled, how it was solved
for view, share in model.explained_variance_ratio_.items():
    print(f"{view}: {share:.2f} of the variance")

# %%
# ``mean_``, ``loadings_`` and ``noise_`` are the parameters, ``log_likelihoods_`` has
# one exact value per iteration, and ``objectives_``, with the prior, never falls.
# ``model.save("model.safetensors")`` and ``MultiviewPLDA.load`` keep it in a file.

print(model.loadings_["speaker"].shape, model.noise_.shape)
print(model.log_likelihood(X, labels))  # exact, of any labelled set
latents = model.transform(X)  # posterior means, views side by side
people = {"speaker": ["ann", "bob"], "phrase": ["hi", "hi"]}
drawn = model.sample(people, random_state=0)

# %%
# Verify
# ------
#
# LLRs are natural logarithms, in an array (profiles, tests).

tests = unseen.test
profiles = model.enrol(unseen.enrol, unseen.ids)  # any number of vectors per profile
some = profiles[:50]

model.llr(some, tests)  # same in every view?
model.llr(some, tests, same="speaker")  # whatever the phrase
model.llr(some, tests, same="speaker", given={"phrase": "different"})
priors = {("phrase",): 1, ("speaker",): 2, (): 5}  # p1, p2, p3 of the paper
model.llr(some, tests, priors=priors)
model.llr(some, tests, known={"phrase": some.ids % 20})  # the phrase, seen in training
model.llr_trials(profiles, tests, [(0, 3), (7, 1)])  # a list of (row, column)
model.identify(profiles, tests, top=10, same="speaker")  # 1:N, streamed

for shared, probability in model.hypotheses(some, tests).items():
    print(" and ".join(shared) or "nothing", probability[0, 0].round(2))

# %%
# These arguments and ``countermeasure=`` (a detector's natural-log likelihood ratio per
# test, with ``spoof_prior=``) make a :class:`mvplda.Question`, which every scoring call
# accepts, too.
#
# ``model.enrol(X, ids, labels={"phrase": ...})`` enrols a speaker over several phrases.
# With labels on both sides, equal labels are one class, or the test's labels are claims
# if the view is named in ``same``.
#
# More
# ----
#
# Statistics of parts are added and subtracted, and a model is fitted to them:

half = np.arange(len(X)) % 2 == 0
parts = [
    SufficientStatistics.from_arrays(X[rows], {k: v[rows] for k, v in labels.items()})
    for rows in (half, ~half)
]
model = MultiviewPLDA({"speaker": 20, "phrase": 19})
model.fit_statistics(parts[0] + parts[1])

# %%
# - Several extractors: ``make_committee({"campplus": 192, "words": 288}, ["speaker",
#   "phrase"]).fit(X, labels)``; ``Committee`` takes models of your own;
#   ``mvplda.train(X, labels, blocks=...)`` makes one calibrated file with thresholds.
# - Other models: ``PLDA(n_components=40)``, ``CosineScorer()``; ``algorithm="paper"``
#   and ``scoring="paper"`` are the paper's formulas as published.
# - Around the model: ``mvplda.preprocessing``, ``mvplda.calibration``,
#   ``mvplda.metrics``, ``mvplda.Bundle`` (all of it in one file), ``mvplda.io``.
# - Commands: ``mvplda experiment`` goes from a corpus to a page with tables and plots;
#   ``mvplda train``, ``score`` and ``evaluate`` from files of vectors to a report.
