"""Statistics by ranges of classes: their sum is that of all shards, whoever computes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from shard_files import VIEWS, close, corpus, cut, write_shards

from mvplda import SufficientStatistics
from mvplda.cli import main
from mvplda.distributed import gather, gather_ranges, ranges
from mvplda.exceptions import ParameterError, UnlabelledWarning
from mvplda.statistics import merge

RANGES = 3


@pytest.fixture
def shards(tmp_path: Path) -> list[Path]:
    """Shards with speakers in random order, some without label."""
    X, labels = corpus(n=900)
    order = np.random.default_rng(1).permutation(len(X))
    parts = cut(X[order], {view: column[order] for view, column in labels.items()}, 5)
    return write_shards(tmp_path, parts)[0]


@pytest.fixture
def labelled(tmp_path: Path) -> list[Path]:
    """The same without vectors that lack a label: those are classes of their own, in another order in ranges."""
    X, labels = corpus(n=900)
    rows = [
        row for row in range(len(X)) if None not in (labels["speaker"][row], labels["phrase"][row])
    ]
    order = np.random.default_rng(1).permutation(rows)
    parts = cut(X[order], {view: column[order] for view, column in labels.items()}, 5)
    (tmp_path / "labelled").mkdir()
    return write_shards(tmp_path / "labelled", parts)[0]


def in_ranges(shards: list[Path], folder: Path, **options: Any) -> list[str]:
    return gather_ranges(
        shards,
        f"{folder}/stats-{{shard}}.safetensors",
        views=VIEWS,
        ranges=RANGES,
        work_dir=folder / "work",
        batch_bytes=2000,
        **options,
    )


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("stats-*.safetensors")}


def test_the_sum_of_the_ranges_is_that_of_all_shards(labelled: list[Path], tmp_path: Path) -> None:
    files = in_ranges(labelled, tmp_path / "out")
    parts = [SufficientStatistics.load(file) for file in files]
    assert len(parts) == RANGES
    names = [part.classes["speaker"].names.tolist() for part in parts]
    assert len({name for part in names for name in part}) == sum(map(len, names))
    assert min(map(len, names)) > 10
    close(gather(labelled, views=VIEWS), merge(parts))


@pytest.mark.filterwarnings("ignore::mvplda.exceptions.MvpldaWarning")
def test_vectors_without_label_are_counted(shards: list[Path], tmp_path: Path) -> None:
    parts = [SufficientStatistics.load(file) for file in in_ranges(shards, tmp_path / "out")]
    whole, total = gather(shards, views=VIEWS), merge(parts)
    assert total.n == whole.n == 900
    for view, classes in whole.classes.items():
        assert total.classes[view].anonymous == classes.anonymous
    # a range without label or two would hold nearly all of them
    assert (
        max(part.classes["speaker"].anonymous for part in parts)
        < 0.6 * whole.classes["speaker"].anonymous
    )


def test_vectors_without_label_are_warned_of_as_by_gather(
    shards: list[Path], tmp_path: Path
) -> None:
    labels = {"speaker": "speaker", "phrase": "phrase"}
    with pytest.warns(UnlabelledWarning) as expected:
        gather(shards, labels)
    for _ in range(2):  # the second run finds finished ranges
        with pytest.warns(UnlabelledWarning) as found:
            in_ranges(shards, tmp_path / "out", labels=labels)
        messages = [str(warning.message) for warning in found]
        assert messages == [str(warning.message) for warning in expected]
    assert len(messages) == len(labels)
    assert found[0].filename == __file__


@pytest.mark.filterwarnings("ignore::mvplda.exceptions.MvpldaWarning")
def test_processes_write_the_same_bytes(shards: list[Path], tmp_path: Path) -> None:
    in_ranges(shards, tmp_path / "serial")
    in_ranges(shards, tmp_path / "two", workers=2)
    assert contents(tmp_path / "serial") == contents(tmp_path / "two")


def test_a_run_continues_and_reads_only_what_changed(
    shards: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = []
    whole = ranges.read_shard

    def counted(job: Any, path: str, *arguments: Any) -> Any:
        read.append(Path(path).name)
        return whole(job, path, *arguments)

    monkeypatch.setattr(ranges, "read_shard", counted)
    out = tmp_path / "out"
    files = in_ranges(shards, out)
    before = contents(out)
    assert len(read) == len(shards)
    assert in_ranges(shards, out) == files
    assert len(read) == len(shards)
    next(iter(sorted((out / "work").glob("*-1.safetensors")))).unlink()
    Path(files[2]).unlink()
    in_ranges(shards, out)
    assert len(read) == len(shards) + 1
    assert contents(out) == before
    X, labels = corpus(n=50, seed=7)
    changed = shards[2]
    changed.unlink()
    write_shards(tmp_path, [(X, labels)])
    (tmp_path / "part0.parquet").rename(changed)
    write_shards(tmp_path, cut(*corpus(n=900), 5)[:1])
    in_ranges(shards, out)
    assert "part2.parquet" in read[len(shards) + 1 :]
    assert contents(out) != before


def test_files_that_are_gone_during_the_run_are_named(shards: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    in_ranges(shards, out)
    _, settings = ranges.shard_job(shards, None, VIEWS, "full", None, 2000)
    job = ranges.RangeJob(settings, "speaker", RANGES, str(tmp_path / "elsewhere"))
    with pytest.raises(ParameterError, match=r"part0\.parquet in .*elsewhere are missing"):
        ranges.add_range(job, tuple(map(str, shards)), None, (0, str(tmp_path / "x")))


def test_wrong_settings_are_refused(shards: list[Path], tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="ranges of classes must be at least 1"):
        gather_ranges(shards, "s-{shard}.safetensors", views=VIEWS, ranges=0, work_dir=tmp_path)
    with pytest.raises(ParameterError, match=r"the suffix \.safetensors"):
        gather_ranges(shards, "s-{shard}.npz", views=VIEWS, ranges=2, work_dir=tmp_path)


def run(*words: Any) -> Any:
    return CliRunner().invoke(main, [str(word) for word in words])


def test_the_command_writes_a_file_per_range(labelled: list[Path], tmp_path: Path) -> None:
    words = ("stats", *labelled, "-v", "speaker", "-v", "phrase", "--ranges", 2)
    output = tmp_path / "s-{shard}.safetensors"
    done = run(*words, "--work-dir", tmp_path / "work", "-o", output)
    assert done.exit_code == 0, done.output
    assert "ranges 2/2" in done.output
    files = sorted(map(str, tmp_path.glob("s-*.safetensors")))
    assert run("stats", *files, "-o", tmp_path / "all.safetensors", "-q").exit_code == 0
    whole = gather(labelled, views=VIEWS[:2])
    close(whole, SufficientStatistics.load(tmp_path / "all.safetensors"))
    assert run(*words, "-o", output).exit_code == 2
    assert run(*words, "--work-dir", tmp_path, "-o", tmp_path / "s.safetensors").exit_code == 2


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_cluster_writes_the_same_bytes(shards: list[Path], tmp_path: Path) -> None:
    dask = pytest.importorskip("distributed", reason="distributed is not installed")
    in_ranges(shards, tmp_path / "serial")
    with dask.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    ) as cluster:
        in_ranges(shards, tmp_path / "cluster", scheduler=cluster.scheduler_address)
    assert contents(tmp_path / "serial") == contents(tmp_path / "cluster")
