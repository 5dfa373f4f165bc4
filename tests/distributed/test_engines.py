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

from mvplda.backend import _blas
from mvplda.distributed import gather
from mvplda.distributed.engines import FAN_IN, Tree, map_reduce, one_thread_each, ordered_map
from mvplda.exceptions import DataError, MissingExtraError


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
    assert map_reduce(named, range(n), joined, engine="threads", workers=3) == expected


def test_work_that_fails_is_raised_and_ends_the_rest() -> None:
    started = []

    def work(i: int) -> str:
        started.append(i)
        if i == 3:
            raise DataError("item 3 is bad")
        return str(i)

    for engine in ("serial", "threads"):
        started.clear()
        with pytest.raises(DataError, match="item 3"):
            map_reduce(work, range(100), joined, engine=engine, workers=2)
        assert len(started) < 10


def test_few_results_wait_at_any_time() -> None:
    """A slow first item does not let the results of all others pile up."""
    started = []

    def work(i: int) -> str:
        started.append(i)
        time.sleep(0.2 if i == 0 else 0)
        if i == 0:
            assert len(started) <= 4
        return str(i)

    assert map_reduce(work, range(50), joined, engine="threads", workers=2).count(" ") == 49


def test_blas_threads_are_limited_once_and_restored() -> None:
    def threads() -> list[int]:
        return [
            library["num_threads"] for library in _blas().info() if library["user_api"] == "blas"
        ]

    before = threads()
    first, second = one_thread_each(), one_thread_each()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert set(threads()) == {1}, "the second worker is still at it"
    second.__exit__(None, None, None)
    assert threads() == before


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Path], Any]:
    paths, _ = write_shards(
        tmp_path_factory.mktemp("shards"), cut(*corpus(n=2000, dimension=40), 20)
    )
    return paths, gather(paths, views=VIEWS).statistics


@pytest.mark.parametrize("engine", ["threads", "processes"])
def test_local_engines_give_the_same_bits(shards: Any, engine: Any) -> None:
    paths, serial = shards
    identical(serial, gather(paths, views=VIEWS, engine=engine, workers=2).statistics)


def test_errors_come_back_from_processes(shards: Any, tmp_path: Path) -> None:
    paths, _ = shards
    (tmp_path / "bad.parquet").write_bytes(b"bad")
    with pytest.raises(ValueError, match=r"bad\.parquet"):
        gather([*paths[:2], tmp_path / "bad.parquet"], views=VIEWS, engine="processes", workers=2)


def dies_once(marks: str, i: int) -> str:
    """Kills its own process the first time that item 5 is tried."""
    mark = Path(marks) / str(i)
    if i == 5 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return str(i)


@pytest.mark.slow
def test_a_lost_process_is_replaced(tmp_path: Path) -> None:
    work = partial(dies_once, str(tmp_path))
    expected = level_by_level([str(i) for i in range(12)])
    assert map_reduce(work, range(12), joined, engine="processes", workers=2) == expected
    assert (tmp_path / "5").exists()


def dies_always(i: int) -> str:
    if i in (3, 7):
        os.kill(os.getpid(), signal.SIGKILL)
    return str(i)


@pytest.mark.slow
def test_an_item_that_ends_its_process_is_lost_and_no_other() -> None:
    found = list(
        ordered_map(
            dies_always,
            range(9),
            engine="processes",
            workers=2,
            retries=1,
            on_lost="lost {}".format,
        )
    )
    assert found == ["0", "1", "2", "lost 3", "4", "5", "6", "lost 7", "8"]
    with pytest.raises(BrokenProcessPool, match="ended every process"):
        list(ordered_map(dies_always, range(9), engine="processes", workers=2, retries=1))


def test_without_dask_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "distributed", None)
    with pytest.raises(MissingExtraError, match=r"mvplda\[scale\]"):
        map_reduce(named, [1], joined, engine="dask")


def slow(seconds: float, plan: Any, path: Any) -> Any:
    from mvplda.distributed.gathering import shard_result

    time.sleep(seconds)
    return shard_result(plan, path)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_cluster_gives_the_same_bits_and_survives_the_loss_of_a_worker(
    shards: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from distributed import Client, LocalCluster

    from mvplda.distributed import gathering

    paths, serial = shards
    with LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    ) as cluster:
        address = cluster.scheduler_address
        plain = gather(paths, views=VIEWS, engine="dask", scheduler=address)
        identical(serial, plain.statistics)
        assert [report.path for report in plain.shards] == [str(path) for path in paths]

        (tmp_path / "bad.parquet").write_bytes(b"bad")
        with pytest.raises(ValueError, match=r"bad\.parquet"):
            gather(
                [*paths, tmp_path / "bad.parquet"], views=VIEWS, engine="dask", scheduler=address
            )

        # Now a run in the middle of which a worker is killed: results that it held are made again.
        monkeypatch.setattr(gathering, "shard_result", partial(slow, 0.15))
        with Client(address) as client:
            victim = next(iter(client.run(os.getpid).values()))
        killer = threading.Timer(0.8, os.kill, (victim, signal.SIGKILL))
        killer.start()
        found = gather(paths, views=VIEWS, engine="dask", scheduler=address)
        killer.join()
        with pytest.raises(ProcessLookupError):
            os.kill(victim, 0)
        identical(serial, found.statistics)
        assert len(found.shards) == len(paths)
