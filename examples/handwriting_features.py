"""
Turn pen tracks into vectors
============================

Computes the features for `handwriting.py <handwriting.html>`_ from the public files of
DigiLeTs (S. Fabi et al.): 77 writers wrote 62 characters five times each on a tablet.
The repository https://github.com/CognitiveModeling/DigiLeTs states no licence,
so neither its files nor vectors made of them are shipped here::

    git clone https://github.com/CognitiveModeling/DigiLeTs
    python examples/handwriting_features.py DigiLeTs digilets.npz

A file in ``data/preprocessed/complete`` contains the tracks of one writer, two lines per
track. The first line has five numbers per point: x, y, pressure, whether the pen was
just put down, and the time in seconds. The second line has 62 numbers, of which one is
1: that of the character.
"""

import sys
from pathlib import Path

import numpy as np

POINTS = 24
"""Number of points that every track is resampled to."""


def read_tracks(path):
    """Yield the number of the character and the points (n, 5) of each track in a file."""
    lines = path.read_text(encoding="ascii").splitlines()
    if len(lines) % 2:
        raise SystemExit(
            f"{path}: expected two lines per track; got an odd number, {len(lines)}"
        )
    for number in range(0, len(lines), 2):
        values = np.array(lines[number].split(), dtype=float)
        one_hot = np.array(lines[number + 1].split(), dtype=float)
        if values.size < 10 or values.size % 5 or one_hot.sum() != 1:
            raise SystemExit(
                f"{path}, line {number + 1}: expected at least two points of five numbers, "
                "and in the next line 62 numbers of which one is 1"
            )
        yield int(one_hot.argmax()), values.reshape(-1, 5)


def resampled(values):
    """Interpolate the n values of a track at `POINTS` evenly spaced indices."""
    positions = np.linspace(0, len(values) - 1, POINTS)
    return np.interp(positions, np.arange(len(values)), values)


def features(points):
    """Return the features (103,) of a track from its points (n, 5).

    They are shape, pressure and speed at 24 points, and seven numbers of the whole track.
    """
    x, y, pressure, pen_down, seconds = points.T
    # The shape does not depend on position and size, which are separate features. A dot
    # has no size; 0.001 is less than the resolution of the tablet.
    size = max(np.ptp(x), np.ptp(y), 1e-3)
    across, up = (x - x.mean()) / size, (y - y.mean()) / size
    speed = np.hypot(np.gradient(across), np.gradient(up))
    whole = [
        np.log(np.ptp(seconds) + 0.1),
        np.log(size),
        pen_down.sum(),  # strokes
        x.mean(),
        y.mean(),
        pressure.mean(),
        pressure.std(),
    ]
    courses = [resampled(course) for course in (across, up, pressure, speed)]
    return np.concatenate([*courses, whole])


def read_folder(folder):
    """Return standardised features with writer, character and repetition of each track."""
    files = sorted(Path(folder).glob("data/preprocessed/complete/*_preprocessed"))
    if not files:
        raise SystemExit(
            f"{folder} has no files data/preprocessed/complete/*_preprocessed: pass the "
            "folder of a clone of https://github.com/CognitiveModeling/DigiLeTs"
        )
    vectors, labels = [], []
    for writer, path in enumerate(files):
        count = {}
        for character, points in read_tracks(path):
            take = count[character] = count.get(character, -1) + 1
            vectors.append(features(points))
            labels.append((writer, character, take))
    X = np.array(vectors)
    spread = X.std(axis=0)
    X = (X - X.mean(axis=0)) / np.where(spread > 0, spread, 1)
    writer, character, take = np.array(labels).T
    return {"X": X, "writer": writer, "character": character, "take": take}


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit("usage: python handwriting_features.py DigiLeTs digilets.npz")
    arrays = read_folder(sys.argv[1])
    np.savez_compressed(sys.argv[2], **arrays)
    print(
        f"{sys.argv[2]}: {len(arrays['X'])} tracks of {arrays['writer'].max() + 1} writers"
    )
