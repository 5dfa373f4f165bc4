"""
Take pictures with four labels apart
====================================

A picture of a face has four labels: the person, the direction of the light, the mood,
and glasses. The script draws the faces; the model gets only pixels and labels. It
represents a face as the mean plus a contribution of each view.
"""

import matplotlib.pyplot as plt
import numpy as np
from mvplda import MultiviewPLDA

side = 40
across, down = np.meshgrid(np.linspace(-1, 1, side), np.linspace(-1, 1, side))


def soft(distance, width=0.06):
    """Return 1 inside a shape (negative distance), 0 outside, with a soft edge."""
    return 1 / (1 + np.exp(distance / width))


def face(person, light, mood, glasses, rng):
    """Return the grey values of a head with eyes, brows, a nose, a mouth and hair."""
    wide, tall, apart, high, hair, tone = person
    u, v = across - 0.015 * rng.normal(), down - 0.015 * rng.normal()
    head = soft(np.hypot(u / wide, v / tall) - 1)
    picture = 0.15 + (tone + 0.25 * light * u) * head
    picture -= 0.45 * head * soft(v + tall * hair)
    for eye in (-apart, apart):
        x, y = u - eye, v + high
        picture -= 0.5 * soft(np.hypot(x / 0.1, y / 0.07) - 1, 0.2)
        picture -= (
            0.3
            * soft(np.abs(y + 0.16 + 0.05 * mood * np.sign(eye) * x / 0.1) - 0.02, 0.02)
            * soft(abs(x) - 0.13)
        )
        if glasses:
            picture -= 0.5 * soft(np.abs(np.hypot(x, y) - 0.18) - 0.04, 0.02)
    picture -= 0.18 * soft(np.hypot(u / 0.06, (v - 0.08) / 0.16) - 1, 0.2)
    bend = v - 0.45 + 2.2 * mood * (u**2 - 0.03)
    return (
        picture
        - 0.6 * soft(abs(bend) - 0.05, 0.02) * soft(abs(u) - 0.3)
        + 0.02 * rng.normal(size=u.shape)
    )


rng = np.random.default_rng(4)
people = np.column_stack(
    [
        rng.uniform(lo, hi, 24)
        for lo, hi in (
            (0.6, 0.85),
            (0.8, 0.97),
            (0.24, 0.3),
            (0.08, 0.14),
            (0.35, 0.8),
            (0.55, 0.75),
        )
    ]
)
grid = [
    (p, light, mood, g)
    for p in range(24)
    for light in (-1, 0, 1)
    for mood in (-1, 0, 1)
    for g in (0, 1)
]
X = np.array(
    [face(people[p], light, mood, g, rng).ravel() for p, light, mood, g in grid]
)
words = {
    "light": {-1: "left", 0: "front", 1: "right"},
    "mood": {-1: "sad", 0: "calm", 1: "glad"},
    "eyes": {0: "open", 1: "glasses"},
}
labels = {"person": np.array([f"p{row[0]:02}" for row in grid])}
labels |= {
    view: np.array([words[view][row[k]] for row in grid])
    for k, view in enumerate(words, 1)
}
model = MultiviewPLDA(
    {"person": 20, "light": 2, "mood": 2, "eyes": 1, "person:light": 10}
).fit(X, labels)
print({view: f"{share:.0%}" for view, share in model.explained_variance_ratio_.items()})

# %%
# A face is the mean plus the contributions of its classes; the last column is the sum of
# all of them. The contribution of the eyes shows the glasses.

chosen = [grid.index(row) for row in ((3, -1, 1, 1), (8, 1, -1, 0), (15, 0, 1, 1))]
columns = ["a picture", "mean", "+ person", "+ light", "+ mood", "+ eyes", "together"]
fig, panels = plt.subplots(3, 7, figsize=(11, 5.2), layout="constrained")
for row, number in enumerate(chosen):
    parts = []
    for view in ("person", "light", "mood", "eyes"):
        code = list(model.classes_[view]).index(labels[view][number])
        parts.append(model.loadings_[view] @ model.class_means_[view][code])
    shown = [X[number], model.mean_, *parts, model.mean_ + sum(parts)]
    for axes, title, values in zip(panels[row], columns, shown, strict=True):
        added = title.startswith("+")
        limits = (
            {"vmin": -0.3, "vmax": 0.3, "cmap": "RdBu_r"}
            if added
            else {"vmin": 0, "vmax": 0.9, "cmap": "gray"}
        )
        axes.imshow(values.reshape(side, side), **limits)
        axes.set(xticks=[], yticks=[])
        if row == 0:
            axes.set_title(title, fontsize=11)
plt.show()
