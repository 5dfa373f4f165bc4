"""Engines: the same numbers on all of them, also when workers are lost."""

from __future__ import annotations

import os
import signal
import threading
import time
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from shard_files import VIEWS, corpus, cut, identical, write_shards

from mvplda.distributed.ordered import ordered_map
from mvplda.distributed.shards import FAN_IN, Tree, gather
from mvplda.exceptions import DataError, MissingExtraError, ParameterError


def joined(parts: list[str]) -> str:
    return "(" + " ".join(parts) + ")"


def named(i: int) -> str:
    return str(i)


def level_by_level(items: list[str]) -> str:
    while len(items) > 1:
        groups = [items[i : i + FAN_IN] for i in range(0, len(items), FAN_IN)]
        items = [g[0] if len(g) == 1 else joined(g) for g in groups]
    return items[0]


@pytest.mark.parametrize("n", [1, 2, 7, 8, 9, 15, 16, 57, 63, 64, 65, 72, 513])
def test_the_tree_depends_on_the_number_of_items_alone(n: int) -> None:
    tree: Tree[str] = Tree(joined)
    for i in range(n):
        tree.add(str(i))
        assert all(len(level) < FAN_IN for level in tree.levels)
    expected = level_by_level([str(i) for i in range(n)])
    assert tree.finish() == expected


def test_work_that_fails_is_raised_and_ends_the_rest() -> None:
    started = []

    def work(i: int) -> str:
        started.append(i)
        if i == 3:
            raise DataError("item 3 is bad")
        return str(i)

    with pytest.raises(DataError, match="item 3"):
        list(ordered_map(work, range(100), workers=1))
    assert len(started) == 4
    with pytest.raises(ParameterError, match="number of workers must be at least 1"):
        list(ordered_map(work, range(100), workers=0))


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Path], Any]:
    paths, _ = write_shards(
        tmp_path_factory.mktemp("shards"), cut(*corpus(n=2000, dimension=40), 20)
    )
    return paths, gather(paths, views=VIEWS)


def test_processes_give_the_same_bits(shards: Any) -> None:
    paths, serial = shards
    identical(serial, gather(paths, views=VIEWS, workers=2))


def test_errors_come_back_from_processes(shards: Any, tmp_path: Path) -> None:
    paths, _ = shards
    (tmp_path / "bad.parquet").write_bytes(b"bad")
    with pytest.raises(ValueError, match=r"bad\.parquet"):
        gather([*paths[:2], tmp_path / "bad.parquet"], views=VIEWS, workers=2)


def read_text(path: str) -> str:
    return Path(path).read_text(encoding="utf-8")


def test_relative_paths_are_those_of_the_caller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Processes live on between calls: a second call from another folder must not read the first one's files."""
    texts = []
    for name in ("first", "second"):
        folder = tmp_path / name
        folder.mkdir()
        for number in range(3):
            (folder / f"{number}.txt").write_text(f"{name} {number}")
        monkeypatch.chdir(folder)
        texts.append(list(ordered_map(read_text, ["0.txt", "1.txt", "2.txt"], workers=2)))
    assert texts == [[f"{name} {number}" for number in range(3)] for name in ("first", "second")]


def dies_always(i: int) -> str:
    if i == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return str(i)


@pytest.mark.slow
def test_an_item_that_ends_every_process_is_an_error() -> None:
    found = []
    with pytest.raises(BrokenProcessPool):
        found += ordered_map(dies_always, range(9), workers=2)
    assert found in ([], ["0"], ["0", "1"], ["0", "1", "2"])


def test_without_dask_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "distributed", None)
    with pytest.raises(MissingExtraError, match=r"mvplda\[scale\]"):
        list(ordered_map(named, [1], scheduler="tcp://nowhere:1"))


def slow(begun: Path, plan: Any, path: Any) -> Any:
    """A shard that takes its time, and leaves a mark when it is begun."""
    from mvplda.distributed.shards import shard_result

    with begun.open("a") as marks:
        marks.write(".")
    time.sleep(0.15)
    return shard_result(plan, path)


def kill_when(begun: Path, victim: int) -> None:
    """Kill a process when some shards, and not all, are begun."""
    while not begun.exists() or begun.stat().st_size < 4:
        time.sleep(0.01)
    os.kill(victim, signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_cluster_gives_the_same_bits_and_survives_the_loss_of_a_worker(
    shards: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from distributed import Client, LocalCluster

    from mvplda.distributed import shards as distributed

    paths, serial = shards
    with LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    ) as cluster:
        address = cluster.scheduler_address
        plain = gather(paths, views=VIEWS, scheduler=address)
        identical(serial, plain)

        (tmp_path / "bad.parquet").write_bytes(b"bad")
        with pytest.raises(ValueError, match=r"bad\.parquet"):
            gather([*paths, tmp_path / "bad.parquet"], views=VIEWS, scheduler=address)

        # Now a run in the middle of which a worker is killed: results that it held are made again.
        with Client(address) as client:
            victim = next(iter(client.run(os.getpid).values()))
        begun = tmp_path / "begun"
        monkeypatch.setattr(distributed, "shard_result", partial(slow, begun))
        killer = threading.Thread(target=kill_when, args=(begun, victim))
        killer.start()
        found = gather(paths, views=VIEWS, scheduler=address)
        killer.join()
        with pytest.raises(ProcessLookupError):
            os.kill(victim, 0)
        identical(serial, found)
