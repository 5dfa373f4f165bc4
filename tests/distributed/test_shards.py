"""Statistics of shards on disk: every format, every fault."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from shard_files import (
    VECTOR_COLUMNS,
    VIEWS,
    close,
    corpus,
    cut,
    identical,
    table_of,
    write_shard,
    write_shards,
)
from text_archives import write_text_archive

from mvplda import SufficientStatistics
from mvplda.distributed import shards as distributed
from mvplda.distributed.shards import gather
from mvplda.exceptions import (
    DataError,
    FileFormatError,
    LabelError,
    ParameterError,
    UnlabelledWarning,
)
from mvplda.io.lists import write_map
from mvplda.io.vectors import VectorSet, write_vectors

BATCH = 2000
"""Bytes: some forty vectors, so that every shard has several batches."""


def whole(parts: list[Any], **options: Any) -> SufficientStatistics:
    X = np.concatenate([x for x, _ in parts])
    labels = {name: np.concatenate([y[name] for _, y in parts]) for name in parts[0][1]}
    return SufficientStatistics.from_arrays(X, labels, views=VIEWS, **options)


@pytest.mark.filterwarnings(
    "ignore::mvplda.exceptions.UnlabelledWarning"
)  # one in twenty has no label
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("suffix", "options"),
    [(".parquet", {"vectors": v}) for v in VECTOR_COLUMNS]
    + [(s, {}) for s in (".npz", ".scp", ".ark")],
)
def test_every_format_gives_the_same_numbers(
    tmp_path: Path, suffix: str, options: Any, dtype: Any
) -> None:
    X, labels = corpus(dtype=dtype)
    if suffix in (".scp", ".ark"):
        labels["phrase"] = np.array(
            [None if p is None else f"p{p}" for p in labels["phrase"]], dtype=object
        )
    parts = cut(X, labels, 3)
    paths, sources = write_shards(tmp_path, parts, suffix, **options)
    size = (
        20 * BATCH if options == {"vectors": "list"} else BATCH
    )  # the width of lists is not known, but guessed
    found = gather(paths, sources, VIEWS, batch_bytes=size)
    close(whole(parts), found, tolerance=1e-11 if dtype == np.float64 else 1e-6)


def test_formats_may_be_mixed_and_views_in_any_order(tmp_path: Path) -> None:
    parts = cut(*corpus(), 3)
    paths = [tmp_path / f"part{i}{s}" for i, s in enumerate((".parquet", ".npz", ".parquet"))]
    for path, part in zip(paths, parts, strict=True):
        write_shard(path, *part)
    found = gather(paths, views=VIEWS, batch_bytes=BATCH)
    close(whole(parts), found)


def test_half_floats_dictionaries_and_nullable_numbers(tmp_path: Path) -> None:
    X, labels = corpus(dtype=np.float16)
    table = table_of(X, labels)
    table = table.set_column(1, "speaker", table["speaker"].dictionary_encode())
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=100)
    found = gather(tmp_path / "x.parquet", views=VIEWS, batch_bytes=BATCH)
    close(whole([(X, labels)]), found, tolerance=1e-5)
    assert found.classes["phrase"].names.dtype.kind == "i", "whole numbers stay so beside nulls"


@pytest.mark.filterwarnings(
    "ignore::mvplda.exceptions.UnlabelledWarning"
)  # one in twenty has no label
def test_text_vectors_and_several_archives_in_one_script(tmp_path: Path) -> None:
    X, labels = corpus(n=120)
    ids = np.array([f"u{i:03d}" for i in range(120)])
    write_text_archive(tmp_path / "a.ark", VectorSet(ids[:40], X[:40]))
    write_vectors(tmp_path / "b.scp", VectorSet(ids[40:], X[40:]))
    text = (tmp_path / "a.ark").read_bytes()
    lines = [
        f"{name} {tmp_path}/a.ark:{text.index(name.encode()) + len(name)}" for name in ids[:40]
    ]
    (tmp_path / "all.scp").write_text("\n".join(lines) + "\n" + (tmp_path / "b.scp").read_text())
    speakers = {i: s for i, s in zip(ids.tolist(), labels["speaker"], strict=True) if s is not None}
    write_map(tmp_path / "utt2spk", speakers)
    found = gather(tmp_path / "all.scp", {"speaker": tmp_path / "utt2spk"}, batch_bytes=BATCH)
    close(SufficientStatistics.from_arrays(X, {"speaker": labels["speaker"]}), found)


def test_labels_that_no_view_needs_are_not_read(tmp_path: Path) -> None:
    _, paths = shards_of(tmp_path)
    expected = gather(paths, views=["speaker"])
    with pytest.warns(UnlabelledWarning):
        found = gather(paths, {"speaker": "speaker", "phrase": "no column"}, ["speaker"])
    close(expected, found)


# -- faults -----------------------------------------------------------------------


def shards_of(
    folder: Path, parts: int = 4, suffix: str = ".parquet", **options: Any
) -> tuple[list[Any], list[Path]]:
    made = cut(*corpus(), parts)
    return made, write_shards(folder, made, suffix, **options)[0]


@pytest.mark.parametrize("where", [0, 1, 3])
@pytest.mark.parametrize("damage", ["truncated", "noise", "empty", "absent", "bits"])
def test_a_corrupt_shard_is_named(tmp_path: Path, where: int, damage: str) -> None:
    _, paths = shards_of(tmp_path)
    data = bytearray(paths[where].read_bytes())
    if damage == "absent":
        paths[where].unlink()
    else:
        data[len(data) // 3] ^= 0xFF  # inside the vectors: the checksum of their page tells
        changed: dict[str, bytes] = {
            "truncated": bytes(data[: len(data) // 2]),
            "noise": b"noise " * 100,
            "empty": b"",
            "bits": bytes(data),
        }
        paths[where].write_bytes(changed[damage])
    with pytest.raises((FileFormatError, FileNotFoundError), match=f"part{where}.parquet"):
        gather(paths, views=VIEWS)


@pytest.mark.parametrize("suffix", [".npz", ".scp", ".ark"])
def test_truncated_files_of_other_formats(tmp_path: Path, suffix: str) -> None:
    parts, paths = shards_of(tmp_path, 2, suffix)
    sources = (
        {name: "{folder}/{stem}." + name for name in parts[0][1]}
        if suffix in (".scp", ".ark")
        else {}
    )
    victim = paths[1].with_suffix(".ark") if suffix == ".scp" else paths[1]
    data = victim.read_bytes()
    for size in (len(data) - 3, len(data) // 2, 30):
        victim.write_bytes(data[:size])
        with pytest.raises(FileFormatError, match="part1"):
            gather(paths, sources, VIEWS)


def test_a_shard_of_another_width_is_named(tmp_path: Path) -> None:
    parts, paths = shards_of(tmp_path)
    write_shard(paths[2], parts[2][0][:, :4], parts[2][1])
    with pytest.raises(DataError, match=r"got 6 and 4 .*part0.parquet and .*part2.parquet"):
        gather(paths, views=VIEWS)


@pytest.mark.parametrize("suffix", [".parquet", ".npz"])
def test_rows_that_are_not_finite_are_named(tmp_path: Path, suffix: str) -> None:
    parts = cut(*corpus(), 3)
    parts[0][0][0, 1] = np.nan
    parts[1][0][[5, 100, 101], [0, 1, 2]] = np.nan, np.inf, -np.inf
    paths, _ = write_shards(tmp_path, parts, suffix)
    for first, words in enumerate((r"part0.* in row 0:", r"part1.* in row 5:")):
        with pytest.raises(DataError, match=words):
            gather(paths[first:], views=VIEWS, batch_bytes=BATCH)
    parts[1][0][[5]] = 0.0
    write_shard(paths[1], *parts[1])
    with pytest.raises(DataError, match=r"part1.* in row 100:"):
        gather(paths[1:], views=VIEWS, batch_bytes=BATCH)


def test_a_list_that_knows_none_of_the_ids(tmp_path: Path) -> None:
    X, labels = corpus(n=50)
    sources = write_shard(tmp_path / "x.scp", X, labels)
    write_map(tmp_path / "x.speaker", {"somebody": "a"})
    with pytest.raises(LabelError, match=r"has none of the 50 ids .*'somebody'"):
        gather(tmp_path / "x.scp", sources)


def test_labels_of_another_type_in_another_shard(tmp_path: Path) -> None:
    parts, paths = shards_of(tmp_path)
    parts[2][1]["speaker"] = np.arange(len(parts[2][0]))
    write_shard(paths[2], *parts[2])
    with pytest.raises(
        LabelError, match=r"'speaker' are text .* numbers .*part0.parquet, .*part2.parquet"
    ):
        gather(paths, views=VIEWS)


def test_calls_that_cannot_be_meant(tmp_path: Path) -> None:
    _, paths = shards_of(tmp_path, 2)
    calls: tuple[tuple[dict[str, Any], str], ...] = (
        ({"views": None}, "the views are missing"),
        ({"views": "speaker"}, "list of names"),
        ({"views": []}, "list of names"),
        ({"second_moment": "none"}, "second_moment"),
        ({"workers": 0}, "at least 1"),
    )
    for options, words in calls:
        with pytest.raises(ParameterError, match=words):
            gather(paths, **{"views": VIEWS, **options})
    with pytest.raises(ParameterError, match="counted twice"):
        gather([*paths, paths[0]], views=VIEWS)
    with pytest.raises(ParameterError, match="at least one file"):
        gather([], views=VIEWS)
    with pytest.raises(FileFormatError, match=r"'\.txt'"):
        gather(tmp_path / "x.txt", views=VIEWS)


# -- runs that are killed ------------------------------------------------------------


def test_finished_shards_are_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, paths = shards_of(tmp_path, 20)
    plain = gather(paths, views=VIEWS)
    read = distributed.read_shard
    calls: list[str] = []

    def counted(plan: Any, path: Any) -> Any:
        calls.append(path)
        if len(calls) == 8:
            raise KeyboardInterrupt
        return read(plan, path)

    monkeypatch.setattr(distributed, "read_shard", counted)
    with pytest.raises(KeyboardInterrupt):
        gather(paths, views=VIEWS, work_dir=tmp_path / "work")
    assert len(list((tmp_path / "work").iterdir())) == 7
    found = gather(paths, views=VIEWS, work_dir=tmp_path / "work")
    assert len(calls) == 8 + 13
    identical(plain, found)
    again = gather(paths, views=VIEWS, work_dir=tmp_path / "work")
    assert len(calls) == 21
    identical(plain, again)


@pytest.fixture
def read_again(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the shards that were read, not taken from a work folder."""
    calls: list[str] = []
    read = distributed.read_shard

    def noted(job: Any, path: Any) -> Any:
        calls.append(Path(path).stem)
        return read(job, path)

    monkeypatch.setattr(distributed, "read_shard", noted)
    return calls


def test_what_changed_is_read_again(tmp_path: Path, read_again: list[str]) -> None:
    parts, paths = shards_of(tmp_path, 4)
    work = tmp_path / "work"

    def read(**options: Any) -> list[str]:
        read_again.clear()
        gather(paths, **{"views": VIEWS, "work_dir": work, **options})
        return list(read_again)

    every = [path.stem for path in paths]
    assert read() == every
    assert read() == []
    write_shard(paths[2], parts[2][0] + 1, parts[2][1])
    assert read() == ["part2"]
    assert read(second_moment="diagonal") == every
    assert read(views=["speaker"]) == every
    for file in work.iterdir():
        file.write_bytes(file.read_bytes()[:-5])
    assert read() == every, "damaged files are not believed"


@pytest.mark.filterwarnings(
    "ignore::mvplda.exceptions.UnlabelledWarning"
)  # one in twenty has no label
def test_an_archive_that_changed_under_its_script(tmp_path: Path, read_again: list[str]) -> None:
    parts, paths = shards_of(tmp_path, 2, ".scp")
    sources = {name: "{folder}/{stem}." + name for name in parts[0][1]}
    gather(paths, sources, VIEWS, work_dir=tmp_path / "work")
    os.utime(paths[1].with_suffix(".ark"), ns=(1, 1))
    read_again.clear()
    gather(paths, sources, VIEWS, work_dir=tmp_path / "work")
    assert read_again == ["part1"]


def test_a_full_disk_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, paths = shards_of(tmp_path)

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        gather(paths, views=VIEWS, work_dir=tmp_path / "work")
    assert list((tmp_path / "work").iterdir()) == []


KILLED = """
import os, signal, sys
from mvplda import SufficientStatistics
from mvplda.distributed.shards import gather

more, views, work, out, *paths = sys.argv[1:]
save, saved = SufficientStatistics.save, []

def save_and_die(*arguments):
    save(*arguments)
    saved.append(arguments)
    if len(saved) == int(more):
        os.kill(os.getpid(), signal.SIGKILL)

SufficientStatistics.save = save_and_die
gather(paths, views=views.split(","), work_dir=work).save(out)
"""


@pytest.mark.slow
def test_a_run_killed_at_any_point_ends_in_the_same_numbers(tmp_path: Path) -> None:
    _, paths = shards_of(tmp_path, 30)
    work, out = tmp_path / "work", tmp_path / "out.safetensors"
    plain = gather(paths, views=VIEWS)
    command = [
        sys.executable,
        "-m",
        "mvplda",
        "stats",
        *map(str, paths),
        "-o",
        str(out),
        "--work-dir",
        str(work),
    ]
    command += [word for view in VIEWS for word in ("-v", view)]
    views = ",".join(VIEWS)
    for more in (1, 4, 7, 8):  # shards that a run finishes before it is killed
        arguments = [str(more), views, str(work), str(out), *map(str, paths)]
        process = subprocess.run([sys.executable, "-c", KILLED, *arguments], check=False)
        assert process.returncode == -signal.SIGKILL
        assert not out.exists()
    assert len(list(work.glob("*.safetensors"))) == 20
    for file in work.glob("*.safetensors"):
        SufficientStatistics.load(file)
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "30/30" in done.stderr
    identical(plain, SufficientStatistics.load(out))
    assert [p.name for p in tmp_path.glob("out*")] == ["out.safetensors"]


MEASURE = """
import sys
from pathlib import Path
from mvplda.distributed.shards import gather

def kib(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith(name)))

gather(sys.argv[1], views=["speaker"], batch_bytes=2**20)  # what the libraries take once
Path("/proc/self/clear_refs").write_text("5")
before = kib("VmRSS:")
print(gather(sys.argv[2], views=["speaker"], batch_bytes=2**20).n, (kib("VmHWM:") - before) / 1024)
"""


@pytest.mark.slow
@pytest.mark.skipif(
    not os.access("/proc/self/clear_refs", os.W_OK), reason="peak memory is measured on Linux"
)
def test_memory_does_not_grow_with_the_number_of_vectors(tmp_path: Path) -> None:
    used = []
    for n in (20_000, 200_000):  # 10 and 100 MB
        X = np.random.default_rng(0).standard_normal((n, 128), dtype=np.float32)
        speaker = (np.arange(n) % 100).astype("U3")
        path = tmp_path / f"{n}.parquet"
        table = table_of(X, {"speaker": speaker})
        pq.write_table(table, path, compression="none", use_dictionary=False)
        used.append(path)
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, *map(str, used)], capture_output=True, text=True, check=True
    )
    vectors, mebibytes = done.stdout.split()
    assert int(vectors) == 200_000
    assert float(mebibytes) < 30, "the vectors have 98 MiB"
