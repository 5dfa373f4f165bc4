"""Extraction in shards: the same files from one process, several and a cluster; interrupted runs continue."""

from __future__ import annotations

import os
import signal
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from extractor_problems import network, voice, write

from mvplda.cli import main
from mvplda.distributed import gather
from mvplda.distributed.outputs import NOTE_SUFFIX
from mvplda.exceptions import DataError, FileFormatError, ParameterError
from mvplda.io.vectors import read_labelled, read_vectors
from mvplda.voice.audio.folders import Recordings, list_recordings
from mvplda.voice.extractors import extract_shards, load_extractor, sharded_extraction


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A network, and seven recordings of two people and two phrases."""
    monkeypatch.chdir(tmp_path)
    network(tmp_path / "net.onnx")
    for number in range(7):
        folder = tmp_path / "recordings" / "ab"[number % 2] / "xy"[number // 4]
        folder.mkdir(parents=True, exist_ok=True)
        write(folder / f"{number}.wav", voice(1.0, 1 + 0.3 * (number % 2), number))
    return tmp_path


def recordings() -> Recordings:
    return list_recordings(["recordings"])


def contents(folder: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in Path(folder).glob("*.npz")}


def extract(folder: str, **options: Any) -> Any:
    pattern = f"{folder}/part-{{shard}}.npz"
    return extract_shards(recordings(), ["net.onnx"], pattern, shard_size=3, **options)


def test_shards_hold_the_vectors_ids_and_labels_of_one_file(place: Path) -> None:
    summaries = extract("out")
    assert [(done.recordings, done.vectors) for done in summaries] == [(3, 3), (3, 3), (1, 1)]
    listed = recordings()
    whole = load_extractor("net.onnx").extract(listed.files)
    parts = [read_labelled(done.path, {}, ("speaker", "phrase")) for done in summaries]
    assert np.array_equal(np.concatenate([vectors.X for vectors, _ in parts]), whole.X)
    assert np.concatenate([vectors.ids for vectors, _ in parts]).tolist() == listed.ids
    for view, column in listed.labels.items():
        assert np.concatenate([labels[view] for _, labels in parts]).tolist() == column
    assert parts[0][0].extractor == load_extractor("net.onnx").name
    # the shards go on to `mvplda stats` as they are
    assert gather([done.path for done in summaries], views=["speaker", "phrase"]).n == 7


def test_processes_write_the_same_bytes(place: Path) -> None:
    extract("serial")
    extract("processes", workers=2)
    assert contents("serial") == contents("processes")
    assert len(contents("serial")) == 3


def test_parquet_shards_have_columns_of_labels(place: Path) -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is not installed, which writes Parquet")
    extract_shards(recordings(), ["net.onnx"], "out/{shard}.parquet")
    vectors, labels = read_labelled("out/00000.parquet", {}, ("speaker", "phrase"))
    assert vectors.ids.tolist() == recordings().ids
    assert labels["phrase"].tolist() == recordings().labels["phrase"]


def count_extractions(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    extracted = []
    whole = sharded_extraction._extract

    def counted(extractor: Any, on_error: Any, path: str, listed: Recordings) -> Any:
        extracted.append(Path(path).name)
        return whole(extractor, on_error, path, listed)

    monkeypatch.setattr(sharded_extraction, "_extract", counted)
    return extracted


def test_only_missing_and_changed_shards_are_extracted_again(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    extracted = count_extractions(monkeypatch)
    first = extract("out")
    assert len(extracted) == 3
    before = contents("out")
    assert extract("out") == first
    assert len(extracted) == 3
    (place / "out/part-00001.npz").unlink()
    extract("out")
    assert extracted[3:] == ["part-00001.npz"]
    assert contents("out") == before
    (place / "out" / f"part-00002.npz{NOTE_SUFFIX}").write_text("{}")
    extract("out")
    assert extracted[4:] == ["part-00002.npz"]
    changed = recordings().files[0].path
    write(changed, voice(1.2, 1.0, 9))
    extract("out")
    assert extracted[5:] == ["part-00000.npz"]
    network(place / "net.onnx", seed=1)
    sharded_extraction._load_once.cache_clear()
    extract("out")
    assert len(extracted) == 9
    assert contents("out") != before


def test_a_shard_without_a_usable_recording_is_finished_without_a_file(place: Path) -> None:
    for file in recordings().files[:3]:
        file.path.write_bytes(b"RIFFnothing")
    with pytest.raises(ValueError, match="damaged"):
        extract("out")
    summaries = extract("out", on_error="skip")
    assert [done.vectors for done in summaries] == [0, 3, 1]
    assert [name for name, _ in summaries[0].skipped] == recordings().ids[:3]
    assert sorted(contents("out")) == ["part-00001.npz", "part-00002.npz"]
    assert extract("out", on_error="skip") == summaries
    with pytest.raises(DataError, match="none of 3 recordings is usable"):
        sharded_extraction.merged(summaries[:1], "out")


def test_wrong_outputs_are_refused_before_the_work(place: Path) -> None:
    listed = recordings()
    with pytest.raises(ParameterError, match="expected shards in a format with labels"):
        extract_shards(listed, ["net.onnx"], "out/{shard}.scp")
    with pytest.raises(ParameterError, match=r"one \{shard\}, which stands for"):
        extract_shards(listed, ["net.onnx"], "out/part.npz")
    with pytest.raises(ParameterError, match="at least one recording"):
        extract_shards(listed, ["net.onnx"], "out/{shard}.npz", shard_size=0)
    extract("out")
    with pytest.raises(ParameterError, match=r"part-00001\.npz is not a shard of this run"):
        extract_shards(listed, ["net.onnx"], "out/part-{shard}.npz", shard_size=7)


def test_a_worker_with_other_weights_is_refused(place: Path) -> None:
    job = sharded_extraction.ExtractionJob((str(place / "net.onnx"),), "another", "raise")
    with pytest.raises(FileFormatError, match="differs from that of the process that started"):
        sharded_extraction.extract_shard(job, (str(place / "x.npz"), recordings()))


def run(*words: str) -> Any:
    return CliRunner().invoke(main, [str(word) for word in words])


def test_the_command_writes_shards_and_sums_up(place: Path) -> None:
    write(place / "recordings/a/x/noise.wav", 0.1 * np.random.default_rng(0).normal(size=48000))
    (place / "recordings/b/x/bad.wav").write_bytes(b"RIFFnothing")
    words = ("extract", "recordings", "-x", "net.onnx", "-o", "out/{shard}.npz")
    done = run(*words, "--shard-size", "4", "--on-error", "skip")
    assert done.exit_code == 0, done.output
    assert "mvplda: skipped b/x/bad: " in done.output
    assert "warning: a/x/noise contains no speech (1 of 8 recordings)" in done.output
    assert "shards 3/3" in done.output
    assert "wrote 8 vectors in 3 shard(s)" in done.output
    assert "failure to acquire (unusable): 2 of 9 recordings" in done.output
    assert len(read_vectors("out/00000.npz")) == 4
    wrong = run("extract", "recordings", "-x", "net.onnx", "-o", "x.npz", "--shard-size", "4")
    assert wrong.exit_code == 2
    assert "{shard} in the name" in wrong.output


def dies_once(folder: Path, job: Any, shard: Any) -> Any:
    """Extract a shard; the first attempt at the second one kills its process."""
    path = shard[0]
    if not Path(path + NOTE_SUFFIX).exists():
        with (folder / "attempts").open("a") as attempts:
            attempts.write(f"{Path(path).name}\n")
        mark = folder / "mark"
        if path.endswith("1.npz") and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
    from mvplda.voice.extractors.sharded_extraction import extract_shard

    return extract_shard(job, shard)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_cluster_writes_the_same_bytes_and_a_lost_worker_costs_one_shard(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    distributed = pytest.importorskip("distributed", reason="distributed is not installed")
    extract("serial")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    ) as cluster:
        address = cluster.scheduler_address
        extract("cluster", scheduler=address)
        monkeypatch.setattr(sharded_extraction, "extract_shard", partial(dies_once, place))
        extract("killed", scheduler=address)
    assert contents("serial") == contents("cluster") == contents("killed")
    assert (place / "mark").exists()
    attempts = (place / "attempts").read_text().split()
    assert sorted(attempts) == [
        "part-00000.npz",
        "part-00001.npz",
        "part-00001.npz",
        "part-00002.npz",
    ]
