"""
Measure what an embedding contains
==================================

How much of the variance of an embedding does each label explain? Here each of sixty
simulated voices, with its own pitch and vocal tract, says eight vowels, and the log
spectrum of each vowel is a vector. Usual transformations of spectra are compared: which
preserve the speaker, and which the vowel?
"""

import matplotlib.pyplot as plt
import numpy as np
from mvplda import MultiviewPLDA
from scipy.fft import dct

VOWELS = {
    "i": (270, 2290, 3010),
    "e": (530, 1840, 2480),
    "a": (730, 1090, 2440),
    "o": (570, 840, 2410),
    "u": (300, 870, 2240),
    "æ": (660, 1720, 2410),
    "ʌ": (640, 1190, 2390),
    "ɜ": (490, 1350, 1690),
}
rng = np.random.default_rng(0)
mel = 700 * (np.exp(np.linspace(0.15, 2.25, 40)) - 1)


def spectrum(formants, tract, pitch, tilt):
    """Return log energies in 40 bands, from resonances, harmonics and spectral tilt."""
    gain = np.zeros(len(mel))
    for formant in formants:
        centre = formant * tract * rng.normal(1, 0.02)
        gain += 12 / (1 + ((mel - centre) / (60 + 0.05 * centre)) ** 2)
    comb = 2 * np.cos(2 * np.pi * mel / (pitch * rng.normal(1, 0.03)))
    return (
        gain
        + comb
        - tilt * np.log2(1 + mel / 500)
        + rng.normal(0, 3)
        + rng.normal(0, 0.6, len(mel))
    )


voices = list(
    zip(
        rng.uniform(0.85, 1.2, 60),
        rng.uniform(90, 260, 60),
        rng.uniform(2, 7, 60),
        strict=True,
    )
)
rows = [
    (i, v, spectrum(VOWELS[v], *voices[i]))
    for i in range(60)
    for v in VOWELS
    for _ in range(6)
]
labels = {
    "speaker": np.array([r[0] for r in rows]),
    "vowel": np.array([r[1] for r in rows]),
}
bands = np.array([r[2] for r in rows])
cepstra = dct(bands, norm="ortho")
treatments = {
    "log spectrum": bands,
    "mean level subtracted": bands - bands.mean(axis=1, keepdims=True),
    "cepstra 1 to 12": cepstra[:, 1:13],
    "cepstra 13 to 39": cepstra[:, 13:],
    "speaker's mean subtracted": np.concatenate(
        [
            bands[labels["speaker"] == i] - bands[labels["speaker"] == i].mean(0)
            for i in range(60)
        ]
    ),
}
views = {"speaker": 6, "vowel": 7, "speaker:vowel": 4}
shares = {
    name: MultiviewPLDA(views).fit(X, labels).explained_variance_ratio_
    for name, X in treatments.items()
}
for name, share in shares.items():
    print(
        f"{name:26}" + "  ".join(f"{view} {part:4.0%}" for view, part in share.items())
    )

# %%
# The first twelve cepstra preserve the vowel best. Without the speaker's mean, no
# variance of the speaker is left.

fig, axes = plt.subplots(figsize=(9, 4.5), layout="constrained")
start = np.zeros(len(shares))
colours = ("#0072B2", "#E69F00", "#CC79A7", "#DDDDDD")
for view, colour in zip((*views, "noise"), colours, strict=True):
    part = np.array([100 * share[view] for share in shares.values()])
    axes.barh(list(shares), part, left=start, color=colour, label=view)
    start += part
axes.invert_yaxis()
axes.set(xlabel="share of the variance, %", xlim=(0, 100))
axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=4, frameon=False)
plt.show()
