"""
Verify writers and characters
=============================

Is it the same writer, and the same character? This example uses two labels that are not
about speech, on DigiLeTs (77 writers, 62 characters, five repetitions). First compute
the features with `handwriting_features.py <handwriting_features.html>`_, then run
``python examples/handwriting.py digilets.npz``. docs/beyond-speech.md explains the
picture, and when a model of two views is better than PLDA.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from mvplda import PLDA, CosineScorer, MultiviewPLDA
from mvplda.metrics import evaluate, trial_kinds
from mvplda.preprocessing import Reduction

path = Path(sys.argv[1] if len(sys.argv) > 1 else "digilets.npz")
if not path.is_file():
    sys.exit(f"{path} does not exist: write it with examples/handwriting_features.py")
data = np.load(path)
writer, character, take = (data[name] for name in ("writer", "character", "take"))
unseen = writer >= 0.6 * (writer.max() + 1)  # 47 of 77 writers train
train, enrol, test = ~unseen, unseen & (take < 3), unseen & (take >= 3)
X = Reduction(80).fit(data["X"][train]).transform(data["X"])

cell = 62 * writer + character
labels = {"writer": writer[train], "character": character[train]}
ranks = {"writer": 20, "character": 20}
systems = {
    "cosine": CosineScorer().fit(X[train], labels),
    "PLDA (writer x character)": PLDA(20, noise="full").fit(X[train], cell[train]),
    "two views": MultiviewPLDA(ranks, noise="full").fit(X[train], labels),
}
cells = np.unique(cell[enrol])
claimed = {"writer": cells // 62, "character": cells % 62}
kinds = trial_kinds(claimed, {"writer": writer[test], "character": character[test]})
errors = {}
for name, model in systems.items():
    profiles = model.enrol(X[enrol], cell[enrol])
    scores = model.llr(profiles, X[test])
    errors[name] = [100 * row["eer"] for row in evaluate(scores, kinds).rows.values()]
    print(f"{name:26}", *(f"{error:6.2f} %" for error in errors[name]))

# %%
# Error rates of trials in which writer and character, the writer, or the character
# differs, and of all trials.

figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
for index, (name, values) in enumerate(errors.items()):
    axes.bar(np.arange(4) + 0.27 * (index - 1), values, 0.25, label=name)
differs = ["writer and character", "writer", "character", "all"]
axes.set(xticks=range(4), xticklabels=differs, ylabel="equal error rate, %")
axes.legend(frameon=False)
figure.savefig(path.with_suffix(".svg"))
