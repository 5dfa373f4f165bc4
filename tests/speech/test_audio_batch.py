"""Frames of many utterances: the same whatever the workers, past any fault, and interrupted in peace."""

from __future__ import annotations

import csv
import io
import os
import signal
import subprocess
import sys
import time
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import soundfile

from mvplda._progress import Progress
from mvplda.distributed import engines
from mvplda.exceptions import AudioError, DataError, ParameterError
from mvplda.speech.features import (
    ActivitySettings,
    Augmentation,
    FeatureSettings,
    Gain,
    Noise,
    Recipe,
    Room,
    Speed,
    augment,
    extract,
    extract_features,
    features,
    read_audio,
)
from mvplda.speech.features.augmentation import Step
from mvplda.speech.features.reading import Clip

AUDIOMNIST = Path(__file__).parents[3] / "shared/data/audiomnist"


def sound(n: int, seed: int) -> Any:
    rng = np.random.default_rng(seed)
    return (
        0.1 * np.sin(np.arange(n) * rng.uniform(0.02, 0.4)) + 0.01 * rng.standard_normal(n)
    ).astype(np.float32)


@pytest.fixture
def corpus(tmp_path: Path) -> tuple[list[str], list[Clip]]:
    """24 utterances: 12 packed in two files, 12 in files of their own, in no order."""
    ids, clips = [], []
    for name in ("packed.flac", "other.wav"):
        parts = [sound(3000 + 400 * k, k) for k in range(6)]
        soundfile.write(tmp_path / name, np.concatenate(parts), 16000)
        start = 0
        for k, part in enumerate(parts):
            ids.append(f"{name}-{k}")
            clips.append(Clip(tmp_path / name, start, len(part)))
            start += len(part)
    for k in range(12):
        path = tmp_path / f"alone{k}.wav"
        soundfile.write(path, sound(2500 + 300 * k, 50 + k), 8000 if k % 3 else 16000)
        ids.append(f"alone-{k}")
        clips.append(Clip(path))
    order = np.random.default_rng(0).permutation(len(ids))
    return [ids[i] for i in order], [clips[i] for i in order]


def same(a: Any, b: Any) -> None:
    np.testing.assert_array_equal(a.ids, b.ids)
    np.testing.assert_array_equal(a.offsets, b.offsets)
    np.testing.assert_array_equal(a.frames, b.frames)


def test_each_utterance_as_if_alone(corpus: Any) -> None:
    ids, clips = corpus
    result = extract_features(ids, clips)
    assert result.features.ids.tolist() == ids
    assert result.features.settings == FeatureSettings()
    assert (result.skipped, result.notes) == ((), ())
    for clip, frames in zip(clips, result.features, strict=True):
        np.testing.assert_array_equal(frames, features(read_audio(clip)))


def test_paths_do_for_clips(corpus: Any) -> None:
    clips = corpus[1]
    whole = [clip.path for clip in clips if "alone" in clip.path.name]
    same(
        extract_features(range(12), whole).features,
        extract_features(range(12), [Clip(path) for path in whole]).features,
    )


@pytest.mark.parametrize("workers", [2, 3])
def test_workers_change_nothing(corpus: Any, monkeypatch: pytest.MonkeyPatch, workers: int) -> None:
    ids, clips = corpus
    monkeypatch.setattr(extract, "JOB", 3)
    change = Augmentation(
        Recipe((Speed(), Room(0.5), Noise(kinds=("pink", "babble")))), 3, tuple(clips[:3])
    )
    for settings, augmentation in ((FeatureSettings(), None), (FeatureSettings.fbank(40), change)):
        one = extract_features(ids, clips, settings, workers=1, augment=augmentation)
        many = extract_features(ids, clips, settings, workers=workers, augment=augmentation)
        same(one.features, many.features)


def test_order_and_company_change_nothing(corpus: Any) -> None:
    ids, clips = corpus
    change = Augmentation(Recipe.usual(), random_state=5)
    for augmentation in (None, change):
        whole = extract_features(ids, clips, augment=augmentation).features
        rows = np.random.default_rng(1).permutation(len(ids))[:10]
        part = extract_features(
            [ids[i] for i in rows], [clips[i] for i in rows], augment=augmentation
        ).features
        same(part, whole.take(rows))


def test_augmentation_by_hand(corpus: Any) -> None:
    import zlib

    ids, clips = corpus
    recipe = Recipe((Noise(snr_db=(5, 5)),))
    result = extract_features(ids, clips, augment=Augmentation(recipe, 7)).features
    other = extract_features(ids, clips, augment=Augmentation(recipe, 8)).features
    rng = np.random.default_rng([7, zlib.crc32(ids[4].encode())])
    np.testing.assert_array_equal(result[4], features(augment(read_audio(clips[4]), recipe, rng)))
    assert np.abs(result.frames - other.frames).max() > 0.1


def test_half_precision(corpus: Any) -> None:
    ids, clips = corpus
    full, half = (
        extract_features(ids, clips, dtype=kind).features.frames
        for kind in (np.float32, np.float16)
    )
    assert half.dtype == np.float16
    np.testing.assert_array_equal(half, full.astype(np.float16))


# -- faults


def spoil(
    tmp_path: Path, ids: list[str], clips: list[Clip]
) -> tuple[list[str], list[Clip], dict[str, str]]:
    """Utterances of every fault among the good ones, and what is said of each."""
    (tmp_path / "text.wav").write_text("no sound")
    (tmp_path / "nothing.wav").write_bytes(b"")
    (tmp_path / "folder.wav").mkdir()
    soundfile.write(tmp_path / "short.wav", sound(400, 0), 16000)
    soundfile.write(tmp_path / "silent.wav", np.zeros(9000), 16000)
    soundfile.write(tmp_path / "nan.wav", np.full(9000, np.nan), 16000, subtype="FLOAT")
    cut = tmp_path / "cut.flac"
    soundfile.write(cut, sound(90_000, 1), 16000)
    cut.write_bytes(cut.read_bytes()[: cut.stat().st_size // 2])
    packed = next(clip.path for clip in clips if clip.path.name == "packed.flac")
    faults = {
        "text": (Clip(tmp_path / "text.wav"), "not a sound file"),
        "nothing": (Clip(tmp_path / "nothing.wav"), "is empty"),
        "folder": (Clip(tmp_path / "folder.wav"), "is a folder"),
        "short": (Clip(tmp_path / "short.wav"), "short.wav: the sound is too short: 25 ms"),
        "silent": (Clip(tmp_path / "silent.wav"), "is silent"),
        "nan": (Clip(tmp_path / "nan.wav"), "not finite"),
        "missing": (Clip(tmp_path / "missing.wav"), "there is no sound file"),
        "cut": (Clip(cut, 60_000, 20_000), "is damaged"),
        "past": (Clip(packed, 10**6, 10), "is not in it"),
    }
    ids, clips = list(ids), list(clips)
    for k, (name, (clip, _)) in enumerate(faults.items()):
        ids.insert(2 * k, name)
        clips.insert(2 * k, clip)
    return ids, clips, {name: says for name, (_, says) in faults.items()}


@pytest.mark.parametrize("workers", [1, 2])
def test_faults_are_skipped_and_named(
    tmp_path: Path, corpus: Any, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    monkeypatch.setattr(extract, "JOB", 5)
    good = extract_features(*corpus).features
    ids, clips, faults = spoil(tmp_path, *corpus)
    ids, clips = (
        [*ids, "head"],
        [*clips, Clip(tmp_path / "cut.flac", 0, 9000)],
    )  # before the cut it is whole
    result = extract_features(ids, clips, on_error="skip", workers=workers)
    assert [name for name, _ in result.skipped] == [name for name in ids if name in faults]
    for name, reason in result.skipped:
        assert faults[name] in reason
        assert str(clips[ids.index(name)].path) in reason
    assert result.features.ids[-1] == "head"
    same(result.features.take(np.arange(len(good))), good)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_fault_is_refused_with_the_id_and_the_file(
    tmp_path: Path, corpus: Any, workers: int
) -> None:
    ids, clips, faults = spoil(tmp_path, *corpus)
    good = [k for k, name in enumerate(ids) if name not in faults]
    for fault, says in faults.items():
        rows = [*good[:10], ids.index(fault), *good[10:]] if workers == 1 else range(len(ids))
        with pytest.raises(
            AudioError, match=f"utterance '{fault if workers == 1 else 'cut'}'"
        ) as caught:
            extract_features([ids[k] for k in rows], [clips[k] for k in rows], workers=workers)
        if workers == 1:
            assert says in str(caught.value)
        else:
            break


def test_nothing_that_can_be_used(tmp_path: Path) -> None:
    paths = [tmp_path / f"{k}.wav" for k in range(3)]
    with pytest.raises(
        AudioError, match=r"none of 3 utterance\(s\) can be used; the first, 'a': there is no sound"
    ):
        extract_features(["a", "b", "c"], paths, on_error="skip")


def test_a_note_where_no_frame_passes_for_speech(corpus: Any, tmp_path: Path) -> None:
    ids, clips = corpus
    settings = FeatureSettings(activity=ActivitySettings(threshold=1000.0))
    for _ in range(2):  # and again, from the cache
        result = extract_features(ids, clips, settings, cache=tmp_path / "cache")
        assert [name for name, _ in result.notes] == ids
        assert "all were kept" in result.notes[0][1]
        same(result.features, extract_features(ids, clips).features)


@dataclass(frozen=True)
class Deadly(Step):
    """Ends the process at an utterance of this many samples."""

    length: int = 0
    kind: ClassVar[str] = "deadly"

    def apply(self, samples: Any, rng: Any, around: Any) -> Any:
        if len(samples) == self.length:
            os._exit(3)
        return samples


def test_a_file_that_ends_the_process_is_named(
    corpus: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids, clips = corpus
    monkeypatch.setattr(extract, "JOB", 6)
    worst = ids.index("other.wav-3")
    change = Augmentation(Recipe((Deadly(length=4200),)))
    clips = [
        clip if clip.path.name != "packed.flac" else Clip(clip.path, clip.start, 2222)
        for clip in clips
    ]
    result = extract_features(ids, clips, on_error="skip", workers=2, augment=change)
    assert [name for name, _ in result.skipped] == [ids[worst]]
    assert "other.wav ended the process that read it" in result.skipped[0][1]
    rest = np.array([k for k in range(len(ids)) if k != worst])
    same(result.features, extract_features(ids, clips).features.take(rest))


def test_where_no_process_can_live(corpus: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        def submit(self, *_: Any) -> Any:
            raise BrokenProcessPool

        def shutdown(self, **_: Any) -> None:
            pass

    ids, clips = corpus
    monkeypatch.setattr(extract, "JOB", 6)
    monkeypatch.setattr(engines, "_processes", lambda workers: Broken())
    same(
        extract_features(ids, clips, workers=2).features,
        extract_features(ids, clips, workers=1).features,
    )


@pytest.mark.parametrize(
    ("ids", "count", "settings", "says"),
    [
        ([], 0, {}, "there are no utterances"),
        (["a", "b"], 1, {}, "2 ids but 1 clips"),
        (["a", "b", "a"], 3, {}, "'a' is there twice"),
        (["a"], 1, {"on_error": "ignore"}, "on_error is 'raise' or 'skip'"),
        (["a"], 1, {"workers": 0}, "at least one worker"),
    ],
)
def test_calls_that_do_not_fit(ids: list[str], count: int, settings: Any, says: str) -> None:
    with pytest.raises((DataError, ParameterError), match=says):
        extract_features(ids, [Clip(Path("x.wav"))] * count, **settings)


def test_babble_that_cannot_be_read_is_no_fault_of_an_utterance(
    corpus: Any, tmp_path: Path
) -> None:
    ids, clips = corpus
    change = Augmentation(Recipe((Noise(kinds=("babble",)),)), 0, (Clip(tmp_path / "none.wav"),))
    with pytest.raises(AudioError, match=r"^there is no sound file .*none\.wav"):
        extract_features(ids, clips, on_error="skip", augment=change)


# -- progress and interrupts


def test_progress_is_one_line_a_second_at_most(
    corpus: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids, clips = corpus
    monkeypatch.setattr(extract, "JOB", 1)
    stream, started = io.StringIO(), time.monotonic()
    extract_features(ids, clips, verbose=Progress("features", len(ids), stream=stream))
    lines = stream.getvalue().splitlines()
    assert 1 <= len(lines) <= 2 + (time.monotonic() - started)
    assert lines[-1].startswith("features 24/24")


def test_few_utterances_start_no_process(corpus: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "_processes", lambda workers: pytest.fail("a pool was started"))
    extract_features(*corpus)


SLOW = """
import signal, sys, time
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar
from mvplda.speech.features import Augmentation, Recipe, extract, extract_features
from mvplda.speech.features.augmentation import Step

@dataclass(frozen=True)
class Slow(Step):
    kind: ClassVar[str] = "slow"
    def apply(self, samples, rng, around):
        time.sleep(0.2)
        return samples

signal.signal(signal.SIGINT, signal.default_int_handler)  # whatever was inherited, as from nohup
extract.JOB = 2
path = Path(sys.argv[1])
extract_features(range(200), [path] * 200, workers=2, verbose=True, cache=path.parent / "cache",
                 augment=Augmentation(Recipe((Slow(),))))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there is no group to signal")
def test_an_interrupt_ends_all_processes_and_keeps_what_is_done(tmp_path: Path) -> None:
    """As from a terminal: every process of the group gets the signal. The script needs no guard for its main part."""
    soundfile.write(tmp_path / "x.wav", sound(4000, 0), 16000)
    (tmp_path / "slow.py").write_text(SLOW)
    process = subprocess.Popen(
        [sys.executable, str(tmp_path / "slow.py"), str(tmp_path / "x.wav")],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stderr is not None
    first = process.stderr.readline()
    assert first.startswith("features ")
    os.killpg(process.pid, signal.SIGINT)
    rest = process.stderr.read()
    assert process.wait(timeout=20) != 0
    assert "KeyboardInterrupt" in rest.splitlines(), (
        rest
    )  # a thread of the pool may have the last word
    for _ in range(50):  # no process of the group is left, once the last has been waited for
        try:
            os.killpg(process.pid, 0)
        except ProcessLookupError:
            break
        time.sleep(0.1)
    else:
        pytest.fail("processes are left")
    assert 1 <= len(list((tmp_path / "cache").glob("*/*.safetensors"))) < 100


# -- real speech


@pytest.mark.skipif(not (AUDIOMNIST / "index.csv").is_file(), reason="needs shared/data/audiomnist")
def test_audiomnist() -> None:
    with (AUDIOMNIST / "index.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["file"] in ("01.flac", "60.flac")]
    ids = [f"{row['speaker']}-{row['phrase']}-{row['session']}" for row in rows]
    clips = [Clip(AUDIOMNIST / row["file"], int(row["start"]), int(row["length"])) for row in rows]
    result = extract_features(ids, clips, workers=2)
    assert len(result.features) == len(rows) == 400
    lengths = np.array([FeatureSettings().frames_of(int(row["length"])) for row in rows])
    np.testing.assert_array_equal(result.features.lengths, lengths)
    assert np.isfinite(result.features.frames).all()
    # Quiet as it is, no column is stuck at a floor.
    assert min(frames.std(axis=0).min() for frames in result.features) == pytest.approx(1, abs=1e-3)
    recipe = Recipe((Gain(gain_db=(-20, 20)),))
    louder = extract_features(ids[:20], clips[:20], augment=Augmentation(recipe)).features
    np.testing.assert_allclose(louder.frames, result.features.take(np.arange(20)).frames, atol=2e-2)
