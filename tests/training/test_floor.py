"""The plain mean of cosines: its value by brute force, and its use as a model."""

from __future__ import annotations

import numpy as np
import pytest

from mvplda import Question
from mvplda.training import FLOOR, train_cosine_floor
from mvplda.training.floor import make_cosine_floor

BLOCKS = {"first": 4, "second": 5, "words": 3, "sounds": 7}
VIEWS = {"first": ["speaker"], "second": ["speaker"], "words": ["phrase"], "sounds": ["phrase"]}
COLUMNS = {
    "speaker": [slice(0, 4), slice(4, 9)],
    # the last column of points is the duration
    "phrase": [slice(9, 12), slice(12, 18)],
}


def drawn(people: int = 12) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    speaker, phrase, _ = (grid.ravel() for grid in np.indices((people, 3, 3)))
    X = np.empty((len(speaker), sum(BLOCKS.values())))
    X[:, :9] = 2.0 + 1.5 * rng.normal(size=(people, 9))[speaker]
    X[:, 9:] = -1.0 + rng.normal(size=(3, 10))[phrase]
    X += 0.5 * rng.normal(size=X.shape)
    X[:, -1] = 100 * rng.random(len(X))
    return X, {"speaker": speaker.astype(str), "phrase": phrase.astype(str)}


def cosine(x: np.ndarray, y: np.ndarray) -> float:
    return float(x @ y / np.linalg.norm(x) / np.linalg.norm(y))


def test_a_score_is_the_mean_of_centred_cosines() -> None:
    X, labels = drawn()
    floor = make_cosine_floor(BLOCKS, ["speaker", "phrase"], VIEWS, ["sounds"]).fit(X, labels)
    centred = X - X.mean(axis=0)
    for view, blocks in COLUMNS.items():
        given = {other: "different" for other in COLUMNS if other != view}
        scores = floor.llr(X[:4], X[50:55], same=view, given=given)
        for i, j in np.ndindex(scores.shape):
            pairs = [(centred[i, block], centred[50 + j, block]) for block in blocks]
            assert scores[i, j] == pytest.approx(
                np.mean([cosine(*pair) for pair in pairs]), abs=1e-6
            )


def test_a_profile_has_the_direction_of_its_mean() -> None:
    X, labels = drawn()
    floor = make_cosine_floor({"first": 4}, ["speaker"]).fit(X[:, :4], labels)
    profile = floor.enrol(X[:3, :4], ["a", "a", "a"])
    centred = X[:, :4] - X[:, :4].mean(axis=0)
    expected = cosine(centred[:3].mean(axis=0), centred[60])
    assert float(floor.llr(profile, X[60:61, :4])[0, 0]) == pytest.approx(expected)


def test_a_network_without_a_recipe_counts_for_every_view() -> None:
    floor = make_cosine_floor({"unknown": 6}, ["speaker", "phrase"])
    assert floor.columns == {"unknown, speaker": (0, 6), "unknown, phrase": (0, 6)}
    assert list(make_cosine_floor(BLOCKS, ["speaker"], VIEWS).experts) == [
        "first, speaker",
        "second, speaker",
    ]


def test_the_floor_is_calibrated_and_measured_like_any_model() -> None:
    X, labels = drawn()
    bundle = train_cosine_floor(
        X, labels, blocks=BLOCKS, block_views=VIEWS, point_blocks=["sounds"], extractor="drawn"
    )
    card = bundle.card or {}
    assert card["model"] == FLOOR
    errors = card["held_out"]["errors"]["speaker+phrase"]
    assert set(errors["eer"]) == {"IC", "TW", "IW"}
    assert max(errors["eer"].values()) < 0.1
    point = bundle.point(far=0.05)
    assert list(point.halves) == ["speaker", "phrase"]
    answer = bundle.answer(X[:1], X[1:2], Question())
    assert answer.calibrated
    # the duration does not matter
    X[1, -1] = 0.0
    assert bundle.answer(X[:1], X[1:2], Question()).llr == pytest.approx(answer.llr)
