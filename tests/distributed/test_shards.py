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
from mvplda.distributed import gather, gathering
from mvplda.exceptions import DataError, FileFormatError, LabelError, MvpldaWarning, ParameterError
from mvplda.io.files import write_map
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
    close(whole(parts), found.statistics, tolerance=1e-11 if dtype == np.float64 else 1e-6)
    assert [report.vectors for report in found.shards] == [len(x) for x, _ in parts]
    assert (found.bad_rows, found.bad_shards) == (0, ())


def test_formats_may_be_mixed_and_views_in_any_order(tmp_path: Path) -> None:
    parts = cut(*corpus(), 3)
    paths = [tmp_path / f"part{i}{s}" for i, s in enumerate((".parquet", ".npz", ".parquet"))]
    for path, part in zip(paths, parts, strict=True):
        write_shard(path, *part)
    found = gather(paths, views=VIEWS, batch_bytes=BATCH).statistics
    close(whole(parts), found)


def test_half_floats_dictionaries_and_nullable_numbers(tmp_path: Path) -> None:
    X, labels = corpus(dtype=np.float16)
    table = table_of(X, labels)
    table = table.set_column(1, "speaker", table["speaker"].dictionary_encode())
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=100)
    found = gather(tmp_path / "x.parquet", views=VIEWS, batch_bytes=BATCH).statistics
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
    found = gather(
        tmp_path / "all.scp", {"speaker": tmp_path / "utt2spk"}, batch_bytes=BATCH
    ).statistics
    close(SufficientStatistics.from_arrays(X, {"speaker": labels["speaker"]}), found)


# -- faults -----------------------------------------------------------------------


def shards_of(
    folder: Path, parts: int = 4, suffix: str = ".parquet", **options: Any
) -> tuple[list[Any], list[Path]]:
    made = cut(*corpus(), parts)
    return made, write_shards(folder, made, suffix, **options)[0]


@pytest.mark.parametrize("where", [0, 1, 3])
@pytest.mark.parametrize("damage", ["truncated", "noise", "empty", "absent", "bits"])
def test_a_corrupt_shard_is_named_and_skipped_only_on_request(
    tmp_path: Path, where: int, damage: str
) -> None:
    parts, paths = shards_of(tmp_path)
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
    with pytest.warns(MvpldaWarning, match=rf"1 of 4 shards were left out.*part{where}"):
        found = gather(paths, views=VIEWS, on_error="skip")
    assert [bad.path for bad in found.bad_shards] == [str(paths[where])]
    assert str(paths[where]) in found.describe()["bad shards"]
    close(whole([part for i, part in enumerate(parts) if i != where]), found.statistics)


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


def test_when_no_shard_can_be_used(tmp_path: Path) -> None:
    for i in range(2):
        (tmp_path / f"{i}.parquet").write_bytes(b"nothing")
    with pytest.raises(DataError, match=r"none of the 2 shard\(s\) could be used: .*0\.parquet"):
        gather([tmp_path / "0.parquet", tmp_path / "1.parquet"], views=VIEWS, on_error="skip")
    _, paths = shards_of(tmp_path, 2)
    with pytest.raises(DataError, match=r"none of the 2 shard\(s\).*'nowhere'"):
        gather(paths, {"speaker": "nowhere"}, on_error="skip")


def test_a_shard_of_another_width_is_named(tmp_path: Path) -> None:
    parts, paths = shards_of(tmp_path)
    write_shard(paths[2], parts[2][0][:, :4], parts[2][1])
    with pytest.raises(DataError, match=r"width 6 and 4 .*part0.parquet and .*part2.parquet"):
        gather(paths, views=VIEWS)


@pytest.mark.parametrize("suffix", [".parquet", ".npz"])
def test_rows_that_are_not_finite_are_counted_and_named(tmp_path: Path, suffix: str) -> None:
    parts = cut(*corpus(), 3)
    parts[0][0][0, 1] = np.nan
    parts[1][0][[5, 100, 101], [0, 1, 2]] = np.nan, np.inf, -np.inf
    paths, _ = write_shards(tmp_path, parts, suffix)
    with pytest.raises(
        DataError, match=r"part0.*: 1 of \d+ vectors hold NaN or infinity: row 0, counted from 0"
    ):
        gather(paths, views=VIEWS, batch_bytes=BATCH)
    with pytest.raises(
        DataError, match=r"part1.*: 3 of \d+ vectors hold NaN or infinity: row 5, 100, 101,"
    ):
        gather(paths[1:], views=VIEWS, batch_bytes=BATCH)
    with pytest.warns(MvpldaWarning, match=r"4 vectors .* left out; the first is row 0 of .*part0"):
        found = gather(paths, views=VIEWS, batch_bytes=BATCH, on_error="skip")
    assert [(r.bad_rows, r.named_rows) for r in found.shards] == [
        (1, (0,)),
        (3, (5, 100, 101)),
        (0, ()),
    ]
    good = [np.isfinite(x).all(axis=1) for x, _ in parts]
    kept = [(x[g], {k: v[g] for k, v in y.items()}) for g, (x, y) in zip(good, parts, strict=True)]
    close(whole(kept), found.statistics)


def test_a_list_that_knows_none_of_the_ids(tmp_path: Path) -> None:
    X, labels = corpus(n=50)
    sources = write_shard(tmp_path / "x.scp", X, labels)
    write_map(tmp_path / "x.speaker", {"somebody": "a"})
    with pytest.raises(LabelError, match=r"lists none of the 50 ids .*'x-0000'.*'somebody'"):
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
        ({"views": None}, "name the views"),
        ({"views": "speaker"}, "list of names"),
        ({"views": []}, "list of names"),
        ({"second_moment": "none"}, "second_moment"),
        ({"on_error": "ignore"}, "on_error is 'raise' or 'skip'; got"),
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
    plain = gather(paths, views=VIEWS).statistics
    read = gathering.read_shard
    calls: list[str] = []

    def counted(plan: Any, path: Any) -> Any:
        calls.append(path)
        if len(calls) == 8:
            raise KeyboardInterrupt
        return read(plan, path)

    monkeypatch.setattr(gathering, "read_shard", counted)
    with pytest.raises(KeyboardInterrupt):
        gather(paths, views=VIEWS, work_dir=tmp_path / "work")
    assert len(list((tmp_path / "work").iterdir())) == 7
    found = gather(paths, views=VIEWS, work_dir=tmp_path / "work")
    assert len(calls) == 8 + 13
    assert [report.resumed for report in found.shards] == [True] * 7 + [False] * 13
    identical(plain, found.statistics)
    again = gather(paths, views=VIEWS, work_dir=tmp_path / "work")
    assert len(calls) == 21
    identical(plain, again.statistics)


def test_what_changed_is_read_again(tmp_path: Path) -> None:
    parts, paths = shards_of(tmp_path, 4)
    work = tmp_path / "work"
    gather(paths, views=VIEWS, work_dir=work)

    def resumed(**options: Any) -> list[bool]:
        return [
            r.resumed for r in gather(paths, **{"views": VIEWS, "work_dir": work, **options}).shards
        ]

    assert resumed() == [True] * 4
    write_shard(paths[2], parts[2][0] + 1, parts[2][1])
    assert resumed() == [True, True, False, True]
    assert resumed(second_moment="diagonal") == [False] * 4
    assert resumed(views=["speaker"]) == [False] * 4
    for file in work.iterdir():
        file.write_bytes(file.read_bytes()[:-5])
    assert resumed() == [False] * 4, "damaged files are not believed"
    assert resumed(on_error="skip") == [True] * 4


@pytest.mark.filterwarnings(
    "ignore::mvplda.exceptions.UnlabelledWarning"
)  # one in twenty has no label
def test_an_archive_that_changed_under_its_script(tmp_path: Path) -> None:
    parts, paths = shards_of(tmp_path, 2, ".scp")
    sources = {name: "{folder}/{stem}." + name for name in parts[0][1]}
    gather(paths, sources, VIEWS, work_dir=tmp_path / "work")
    archive = paths[1].with_suffix(".ark")
    os.utime(archive, ns=(1, 1))
    found = gather(paths, sources, VIEWS, work_dir=tmp_path / "work")
    assert [report.resumed for report in found.shards] == [True, False]


def test_bad_rows_of_a_finished_shard_are_still_refused(tmp_path: Path) -> None:
    parts = cut(*corpus(), 2)
    parts[1][0][7] = np.nan
    paths, _ = write_shards(tmp_path, parts)
    work = tmp_path / "work"
    with pytest.warns(MvpldaWarning, match="row 7"):
        first = gather(paths, views=VIEWS, work_dir=work, on_error="skip")
    with pytest.warns(MvpldaWarning, match="row 7"):
        second = gather(paths, views=VIEWS, work_dir=work, on_error="skip")
    assert all(report.resumed for report in second.shards)
    identical(first.statistics, second.statistics)
    with pytest.raises(DataError, match="row 7"):
        gather(paths, views=VIEWS, work_dir=work)


def test_a_full_disk_is_not_a_bad_shard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, paths = shards_of(tmp_path)

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        gather(paths, views=VIEWS, work_dir=tmp_path / "work", on_error="skip")
    assert list((tmp_path / "work").iterdir()) == []


KILLED = """
import os, signal, sys
from mvplda.distributed import gather, gathering

more, views, work, out, *paths = sys.argv[1:]
save, saved = gathering.save_statistics, []

def save_and_die(*arguments):
    save(*arguments)
    saved.append(arguments)
    if len(saved) == int(more):
        os.kill(os.getpid(), signal.SIGKILL)

gathering.save_statistics = save_and_die
gather(paths, views=views.split(","), work_dir=work).statistics.save(out)
"""


@pytest.mark.slow
def test_a_run_killed_at_any_point_ends_in_the_same_numbers(tmp_path: Path) -> None:
    _, paths = shards_of(tmp_path, 30)
    work, out = tmp_path / "work", tmp_path / "out.safetensors"
    plain = gather(paths, views=VIEWS).statistics
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
from mvplda.distributed import gather

def kib(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith(name)))

gather(sys.argv[1], views=["speaker"], batch_bytes=2**20)  # what the libraries take once
Path("/proc/self/clear_refs").write_text("5")
before = kib("VmRSS:")
print(gather(sys.argv[2], views=["speaker"], batch_bytes=2**20).statistics.n, (kib("VmHWM:") - before) / 1024)
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
