"""Frames in a memory-mapped file: sets of utterances, and stores that survive interruptions."""

from __future__ import annotations

import mmap

import numpy as np
import pytest

from mvplda.paper import frame_store
from mvplda.paper.frame_store import FeatureSet, FrameStore

STAMPS = [f"recording {i}" for i in range(5)]


def utterances():
    """Return frames of utterances with 2 to 6 frames; the third is unusable."""
    rng = np.random.default_rng(0)
    frames = [rng.normal(size=(2 + i, 3)).astype(np.float32) for i in range(len(STAMPS))]
    return [*frames[:2], "too short", *frames[3:]]


def filled(folder, count):
    store = FrameStore(folder, STAMPS)
    assert list(store.add(STAMPS[:count], utterances()[:count])) == list(range(1, count + 1))
    return store


def test_a_feature_set_returns_its_utterances():
    arrays = [np.ones((3, 2)), np.zeros((1, 2)), np.full((2, 2), 5.0)]
    features = FeatureSet.of(arrays)
    assert features.lengths.tolist() == [3, 1, 2]
    taken = features.take(np.array([2, 0]))
    np.testing.assert_array_equal(taken[0], arrays[2])
    assert np.shares_memory(taken.frames, features.frames)
    assert taken.n_frames == 5


def test_blocks_are_the_frames_in_order(monkeypatch):
    rng = np.random.default_rng(0)
    features = FeatureSet.of([rng.normal(size=(1 + i % 4, 2)) for i in range(20)])
    rows = rng.permutation(20)[:11]
    taken = features.take(rows)
    monkeypatch.setattr(frame_store, "BLOCK_FRAMES", 7)
    blocks = list(taken.blocks())
    assert 2 < len(blocks) < 11
    assert max(map(len, blocks)) <= 7 + 3
    np.testing.assert_array_equal(
        np.concatenate(blocks), np.concatenate([features[i] for i in rows])
    )


def test_stored_frames_are_mapped_from_their_file(tmp_path):
    features = filled(tmp_path, 5).features()
    expected = [frames for frames in utterances() if not isinstance(frames, str)]
    assert len(features) == 4
    for i, frames in enumerate(expected):
        np.testing.assert_array_equal(features[i], frames)
    assert isinstance(features.mapping, mmap.mmap)
    features.release()
    np.testing.assert_array_equal(features[3], expected[3])


@pytest.mark.parametrize(
    "damage",
    [
        "none",
        "half a line",
        "a line without its end",
        "zeros",
        "frames without a line",
        "lost frames",
    ],
)
def test_a_store_continues_after_its_last_complete_utterance(tmp_path, damage):
    filled(tmp_path, 4)
    frames, index = tmp_path / "frames.f32", tmp_path / "frames.index"
    if damage == "half a line":
        index.write_bytes(index.read_bytes() + b'["recording 4", 6')
    if damage == "zeros":
        index.write_bytes(index.read_bytes() + b"\0\0\0\n")
    if damage == "a line without its end":
        index.write_bytes(index.read_bytes() + b'["recording 4", 6, 3, ""]')
        frames.write_bytes(frames.read_bytes() + b"\0" * 72)
    if damage in ("half a line", "frames without a line"):
        frames.write_bytes(frames.read_bytes() + b"\0" * 40)
    if damage == "lost frames":
        frames.write_bytes(frames.read_bytes()[:-8])
    store = FrameStore(tmp_path, STAMPS)
    n_stored = len(store.entries)
    assert n_stored == (3 if damage == "lost frames" else 4)
    assert store.entries[2].reason == "too short"
    list(store.add(STAMPS[n_stored:], utterances()[n_stored:]))
    features = store.features()
    for i, expected in enumerate(u for u in utterances() if not isinstance(u, str)):
        np.testing.assert_array_equal(features[i], expected)


def test_a_changed_recording_and_those_after_it_are_stored_again(tmp_path):
    filled(tmp_path, 5)
    changed = [*STAMPS[:3], "another time", STAMPS[4]]
    store = FrameStore(tmp_path, changed)
    assert len(store.entries) == 3
    assert (tmp_path / "frames.f32").stat().st_size == (2 + 3) * 3 * 4
