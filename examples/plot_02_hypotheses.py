"""
Tell four explanations of a pair apart
======================================

There are four explanations (hypotheses) of a pair of vectors: same speaker and phrase
(TC), same speaker with another phrase (TW), another speaker with the same phrase (IC),
or nothing in common (IW). The model computes the probability of each. Here vectors have
two dimensions: speakers differ along the first, phrases along the second. One vector is
enrolled, at the cross; the colour of a point shows the probability if the test is there.
"""

import matplotlib.pyplot as plt
import numpy as np
from mvplda import MultiviewPLDA

model = MultiviewPLDA.from_parameters(
    [0.0, 0.0], {"speaker": [[3.0], [0.3]], "phrase": [[-0.3], [3.0]]}, [0.25, 0.25]
)
enrolled = np.array([[2.0, 1.0]])
x, y = np.meshgrid(np.linspace(-6, 6, 161), np.linspace(-6, 6, 161))
test = np.column_stack([x.ravel(), y.ravel()])
probabilities = model.hypotheses(enrolled, test)
names = {
    ("speaker", "phrase"): "TC: same speaker, same phrase",
    ("speaker",): "TW: same speaker, other phrase",
    ("phrase",): "IC: other speaker, same phrase",
    (): "IW: nothing in common",
}

fig, panels = plt.subplots(
    2, 2, figsize=(8, 7.5), layout="constrained", sharex=True, sharey=True
)
for axes, (hypothesis, title) in zip(panels.flat, names.items(), strict=True):
    shown = axes.pcolormesh(
        x,
        y,
        probabilities[hypothesis].reshape(x.shape),
        vmin=0,
        vmax=1,
        cmap="Blues",
        rasterized=True,
    )
    axes.plot(*enrolled[0], "x", color="#D55E00", markersize=9, markeredgewidth=2.5)
    axes.set_title(title, fontsize=10)
    axes.set(xlabel="speakers", ylabel="phrases", aspect="equal")
fig.colorbar(shown, ax=panels, label="posterior probability", shrink=0.85)
plt.show()

# %%
# The two bands cross where speaker and phrase agree. A likelihood ratio for one view adds
# the probabilities of two hypotheses: "same speaker, whatever the phrase" is the vertical
# band.

for vector in ([2.1, 0.9], [2.1, -4.0], [-3.0, 0.9], [-3.0, -4.0]):
    test = np.array([vector])
    shares = {
        names[h][:2]: round(float(p[0, 0]), 3)
        for h, p in model.hypotheses(enrolled, test).items()
    }
    llr = model.llr(enrolled, test, same="speaker").item()
    print(vector, shares, f"LLR same speaker {llr:+.1f}")
