"""Frames on disk: found by content and settings, noticed when damaged; and files of frames."""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from mvplda.exceptions import DataError, FileFormatError, ParameterError
from mvplda.speech.features import (
    ActivitySettings,
    Augmentation,
    FeatureCache,
    FeatureSet,
    FeatureSettings,
    Gain,
    Noise,
    Recipe,
    extract,
    extract_features,
)
from mvplda.speech.features.reading import Clip


def sound(n: int, seed: int) -> Any:
    return (0.1 * np.random.default_rng(seed).standard_normal(n)).astype(np.float32)


def age(path: Path) -> None:
    """As if it were written an hour ago."""
    about = path.stat()
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns - 3600 * 10**9))


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], list[Clip]]:
    monkeypatch.setattr(extract, "JOB", 4)
    clips = []
    for k in range(6):
        path = tmp_path / f"{k}.wav"
        soundfile.write(path, sound(6000 + 100 * k, k), 16000)
        age(path)
        clips += [Clip(path, 0, 3000), Clip(path, 3000)]
    return [f"u{k}" for k in range(12)], clips


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Ids of the utterances whose frames were made, not found."""
    names: list[str] = []
    usual = extract.do

    def counted(job: Any, **work: Any) -> Any:
        names.extend(job.ids)
        return usual(job, **work)

    monkeypatch.setattr(extract, "do", counted)
    return names


def same(a: Any, b: Any) -> None:
    assert a.features.ids.tolist() == b.features.ids.tolist()
    np.testing.assert_array_equal(a.features.frames, b.features.frames)
    np.testing.assert_array_equal(a.features.offsets, b.features.offsets)


def test_the_second_time_nothing_is_made(corpus: Any, made: list[str], tmp_path: Path) -> None:
    ids, clips = corpus
    plain = extract_features(ids, clips)
    made.clear()
    for expected in (12, 0):
        same(extract_features(ids, clips, cache=tmp_path / "cache"), plain)
        assert len(made) == expected
        made.clear()
    assert (
        len(list((tmp_path / "cache").rglob("*.safetensors"))) == 3
    )  # one a job, not one an utterance


def test_order_names_and_folders_do_not_matter(
    corpus: Any, made: list[str], tmp_path: Path
) -> None:
    ids, clips = corpus
    store = FeatureCache(tmp_path / "cache")
    first = extract_features(ids, clips, cache=store)
    made.clear()
    (tmp_path / "moved").mkdir()
    moved = [
        Clip(Path(shutil.copy(c.path, tmp_path / "moved" / f"x{c.path.name}")), c.start, c.length)
        for c in clips
    ]
    rows = np.arange(12)[::-1][:7]
    again = extract_features([f"new{k}" for k in rows], [moved[k] for k in rows], cache=store)
    assert made == []
    np.testing.assert_array_equal(again.features.frames, first.features.take(rows).frames)


def test_only_what_is_new_is_made(corpus: Any, made: list[str], tmp_path: Path) -> None:
    ids, clips = corpus
    extract_features(ids[:5], clips[:5], cache=tmp_path / "cache")
    made.clear()
    same(extract_features(ids, clips, cache=tmp_path / "cache"), extract_features(ids, clips))
    assert made[:7] == ids[5:]


@pytest.mark.parametrize(
    "other",
    [
        {"settings": FeatureSettings(cepstra=12)},
        {"settings": FeatureSettings(activity=ActivitySettings())},
        {"augment": Augmentation(Recipe((Noise(),)))},
        {"augment": Augmentation(Recipe((Noise(),)), random_state=1)},
    ],
    ids=["settings", "activity", "augmentation", "seed"],
)
def test_other_settings_miss(
    corpus: Any, made: list[str], tmp_path: Path, other: dict[str, Any]
) -> None:
    ids, clips = corpus
    calls: tuple[dict[str, Any], ...] = (
        {},
        {"augment": Augmentation(Recipe((Noise(),)), random_state=2)},
        {"augment": Augmentation(Recipe((Gain(),)))},
    )
    for call in calls:
        extract_features(ids, clips, cache=tmp_path / "cache", **call)
    made.clear()
    plain = extract_features(ids, clips, **other)
    for expected in (24, 0):
        same(extract_features(ids, clips, cache=tmp_path / "cache", **other), plain)
        assert len(made) == expected
        made.clear()


def test_other_stretches_and_channels_miss(corpus: Any, tmp_path: Path) -> None:
    soundfile.write(tmp_path / "two.wav", np.column_stack([sound(4000, 1), sound(4000, 2)]), 16000)
    path = tmp_path / "two.wav"
    clips = [
        Clip(path),
        Clip(path, channel=0),
        Clip(path, channel=1),
        Clip(path, 1),
        Clip(path, 0, 3999),
    ]
    for _ in range(2):
        result = extract_features(range(5), clips, cache=tmp_path / "cache").features
        assert len({frames.tobytes() for frames in result}) == 5


@pytest.mark.parametrize("settled", [True, False])
def test_changed_sound_is_noticed(
    corpus: Any, made: list[str], tmp_path: Path, settled: bool
) -> None:
    """By its size and time; or, where it changed a moment ago, by its contents even so."""
    ids, clips = corpus
    path = clips[4].path
    if not settled:
        soundfile.write(path, sound(6200, 2), 16000)
    before = path.stat()
    first = extract_features(ids, clips, cache=tmp_path / "cache")
    made.clear()
    soundfile.write(path, sound(6200, 99), 16000)
    assert path.stat().st_size == before.st_size
    if not settled:
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    second = extract_features(ids, clips, cache=tmp_path / "cache")
    assert sorted(made) == ["u4", "u5"]
    assert np.abs(second.features[4] - first.features[4]).max() > 0.1
    same(second, extract_features(ids, clips))


def test_unchanged_files_are_not_read_again(
    corpus: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids, clips = corpus
    plain = extract_features(ids, clips, cache=tmp_path / "cache")
    monkeypatch.setattr(hashlib, "file_digest", lambda *_: pytest.fail("a file was read"))
    same(extract_features(ids, clips, cache=tmp_path / "cache"), plain)


@pytest.mark.parametrize("damage", ["truncated", "byte", "nothing", "foreign", "text"])
def test_a_damaged_shard_is_made_anew(
    corpus: Any, made: list[str], tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    ids, clips = corpus
    plain = extract_features(ids, clips, cache=tmp_path / "cache")
    made.clear()
    shard = sorted((tmp_path / "cache").rglob("*.safetensors"))[1]
    data = bytearray(shard.read_bytes())
    if damage == "byte":
        data[-1000] ^= 1
    elif damage == "foreign":
        FeatureSet.from_utterances(["a"], [np.zeros((3, 2), dtype=np.float32)]).save(shard)
        data = bytearray(shard.read_bytes())
    kept = {"truncated": bytes(data[: len(data) // 2]), "nothing": b"", "text": b"hello"}
    shard.write_bytes(kept.get(damage, bytes(data)))
    with caplog.at_level(logging.WARNING):
        same(extract_features(ids, clips, cache=tmp_path / "cache"), plain)
    assert len(made) == 4
    assert shard.name in caplog.text
    made.clear()
    same(extract_features(ids, clips, cache=tmp_path / "cache"), plain)
    assert made == []


@pytest.mark.parametrize("text", ["", "[1, 2]", '{"x": 1}', '{"x": ["a", "b", "c"]}', "{"])
def test_a_damaged_list_of_hashes_only_costs_time(
    corpus: Any, made: list[str], tmp_path: Path, text: str
) -> None:
    ids, clips = corpus
    plain = extract_features(ids, clips, cache=tmp_path / "cache")
    made.clear()
    (tmp_path / "cache" / "hashes.json").write_text(text)
    same(extract_features(ids, clips, cache=tmp_path / "cache"), plain)
    assert made == []


def test_faults_are_not_kept(corpus: Any, made: list[str], tmp_path: Path) -> None:
    """A file that is put right is used the next time."""
    ids, clips = corpus
    (tmp_path / "late.wav").write_bytes(b"")
    ids, clips = (
        [*ids, "late", "none"],
        [*clips, Clip(tmp_path / "late.wav"), Clip(tmp_path / "none.wav")],
    )
    first = extract_features(ids, clips, cache=tmp_path / "cache", on_error="skip")
    assert [name for name, _ in first.skipped] == ["late", "none"]
    soundfile.write(tmp_path / "late.wav", sound(5000, 7), 16000)
    made.clear()
    second = extract_features(ids, clips, cache=tmp_path / "cache", on_error="skip")
    assert [name for name, _ in second.skipped] == ["none"]
    assert sorted(made) == ["late", "none"]


# -- files of frames


@pytest.fixture
def features(corpus: Any) -> FeatureSet:
    ids, clips = corpus
    return extract_features(ids, clips, FeatureSettings(deltas=1)).features


def test_there_and_back(features: FeatureSet, tmp_path: Path) -> None:
    features.save(tmp_path / "f.safetensors")
    back = FeatureSet.load(tmp_path / "f.safetensors")
    assert back.ids.tolist() == features.ids.tolist()
    assert back.settings == features.settings == FeatureSettings(deltas=1)
    assert back.frames.dtype == np.float32
    np.testing.assert_array_equal(back.frames, features.frames)
    np.testing.assert_array_equal(back.offsets, features.offsets)
    features.save(tmp_path / "h.safetensors", dtype="float16")
    half = FeatureSet.load(tmp_path / "h.safetensors")
    np.testing.assert_array_equal(half.frames, features.frames.astype(np.float16))
    assert (tmp_path / "h.safetensors").stat().st_size < 0.6 * (
        tmp_path / "f.safetensors"
    ).stat().st_size


def test_files_without_use(features: FeatureSet, tmp_path: Path) -> None:
    path = tmp_path / "f.safetensors"
    features.save(path)
    data = path.read_bytes()
    for spoiled in (data[:-1], data[:200], b"", data[:-1] + bytes([data[-1] ^ 1])):
        path.write_bytes(spoiled)
        with pytest.raises(FileFormatError):
            FeatureSet.load(path)
    with pytest.raises(FileNotFoundError):
        FeatureSet.load(tmp_path / "none")
    with pytest.raises(ParameterError, match="float16, float32 or float64; got int8"):
        features.save(path, dtype="int8")
    large = FeatureSet.from_utterances(["a"], [np.full((3, 2), 1e6)])
    with pytest.raises(DataError, match="not finite as float16"):
        large.save(tmp_path / "large", dtype="float16")
    assert not (tmp_path / "large").exists()


def test_sets_are_checked_joined_and_cut(features: FeatureSet) -> None:
    with pytest.raises(DataError, match="2 utterances need 3 offsets from 0 to 5"):
        FeatureSet(np.array(["a", "b"]), np.zeros((5, 2)), np.array([0, 4]))
    with pytest.raises(DataError, match="never fall"):
        FeatureSet(np.array(["a", "b"]), np.zeros((5, 2)), np.array([0, 6, 5]))
    with pytest.raises(DataError, match="differ in width: 2 and 3"):
        FeatureSet.from_utterances(["a", "b"], [np.zeros((5, 2)), np.zeros((5, 3))])
    rows = np.array([3, 0, 3])
    part = features.take(rows)
    assert part.settings == features.settings
    joined = FeatureSet.concatenate([part, features])
    np.testing.assert_array_equal(joined.frames, np.concatenate([part.frames, features.frames]))
    assert joined.ids[:3].tolist() == ["u3", "u0", "u3"]
    assert joined.settings == features.settings
    np.testing.assert_array_equal(joined[-1], features[11])
    with pytest.raises(IndexError):
        features[12]
