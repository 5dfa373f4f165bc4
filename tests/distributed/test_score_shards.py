"""Scoring and evaluation in shards: the files and metrics of one process, on processes and on a cluster."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from threadpoolctl import ThreadpoolController

from mvplda import MultiviewPLDA, make_two_views
from mvplda.cli import main
from mvplda.distributed import evaluate_shards, score_shards, scoring
from mvplda.distributed.outputs import NOTE_SUFFIX, shard_paths
from mvplda.distributed.sharded_evaluation import LabelMaps
from mvplda.exceptions import FileFormatError, LabelError, ParameterError
from mvplda.io.lists import write_map
from mvplda.io.trials import Trials, read_scores, read_trials, write_trials
from mvplda.io.vectors import VectorSet, read_vector_files, write_vectors
from mvplda.metrics import evaluate
from mvplda.model_files import load_model

pytest.importorskip("pyarrow", reason="pyarrow is not installed, which writes Parquet")

MODELS, TESTS = 12, 30


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, models and tests with speakers and phrases, and two lists of trials with kinds."""
    folder = tmp_path_factory.mktemp("scoring")
    X, labels = make_two_views(8, 3, 4, 8, (4, 2), random_state=0)
    MultiviewPLDA({"speaker": 4, "phrase": 2}, max_iter=3).fit(X, labels).save(
        folder / "model.safetensors"
    )
    rows = np.random.default_rng(0).permutation(len(X))[: MODELS + TESTS]
    sides = {"m": rows[:MODELS], "t": rows[MODELS:]}
    ids = {side: np.array([f"{side}{k:02}" for k in range(len(r))]) for side, r in sides.items()}
    write_vectors(folder / "enrol.npz", VectorSet(ids["m"], X[sides["m"]]))
    write_vectors(folder / "test-0.npz", VectorSet(ids["t"][:17], X[sides["t"][:17]]))
    write_vectors(folder / "test-1.npz", VectorSet(ids["t"][17:], X[sides["t"][17:]]))
    classes = {
        (side, view): [str(name) for name in np.asarray(labels[view])[r]]
        for side, r in sides.items()
        for view in ("speaker", "phrase")
    }
    for (side, view), names in classes.items():
        write_map(folder / f"{side}2{view}", dict(zip(ids[side].tolist(), names, strict=True)))
    pairs = np.argwhere(np.ones((MODELS, TESTS)))
    pairs = np.random.default_rng(1).permutation(pairs)
    kinds = [
        "IT"[classes["m", "speaker"][m] == classes["t", "speaker"][t]]
        + "WC"[classes["m", "phrase"][m] == classes["t", "phrase"][t]]
        for m, t in pairs
    ]
    for number, part in enumerate(np.array_split(np.arange(len(pairs)), 2)):
        trials = Trials(ids["m"][pairs[part, 0]], ids["t"][pairs[part, 1]], np.array(kinds)[part])
        write_trials(folder / f"list-{number}.{('txt', 'parquet')[number]}", trials)
    return folder


@pytest.fixture(autouse=True)
def place(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(folder)
    yield folder
    scoring._load_sides.cache_clear()


LISTS = ("list-0.txt", "list-1.parquet")


def score(output: str, **options: Any) -> int:
    pattern = f"{output}/part-{{shard}}.parquet"
    return score_shards("model.safetensors", "test-*.npz", pattern, enrol="enrol.npz", **options)


def contents(folder: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in Path(folder).glob("*.parquet")}


def direct(enrol: Any, test: Any) -> Any:
    """The scores of the model, trial by trial."""
    system = load_model("model.safetensors")
    models, tests = read_vector_files("enrol.npz"), read_vector_files("test-*.npz")
    pairs = np.stack([models.rows(enrol), tests.rows(test)], axis=1)
    return system.llr_trials(models.X, tests.X, pairs)


def test_lists_become_shards_with_their_order_and_kinds(tmp_path: Path) -> None:
    assert score(str(tmp_path), trials=LISTS) == 360
    for number, name in enumerate(LISTS):
        path = tmp_path / f"part-{number:05}.parquet"
        scores, listed, kinds = read_scores(path), read_trials(name), read_trials(path)
        assert scores.enrol.tolist() == listed.enrol.tolist()
        assert scores.test.tolist() == listed.test.tolist()
        assert kinds.kinds.tolist() == listed.kinds.tolist()
        np.testing.assert_allclose(
            scores.score, direct(listed.enrol, listed.test), rtol=1e-5, atol=1e-5
        )


def test_a_matrix_becomes_shards_of_models(tmp_path: Path) -> None:
    assert score(str(tmp_path), shard_size=5) == MODELS * TESTS
    parts = [read_scores(path) for path in sorted(tmp_path.glob("*.parquet"))]
    assert [len(part) for part in parts] == [5 * TESTS, 5 * TESTS, 2 * TESTS]
    pairs = {(m, t) for part in parts for m, t in zip(part.enrol, part.test, strict=True)}
    assert len(pairs) == MODELS * TESTS
    for part in parts:
        np.testing.assert_allclose(part.score, direct(part.enrol, part.test), rtol=1e-5, atol=1e-5)


def test_processes_write_the_same_bytes(tmp_path: Path) -> None:
    score(str(tmp_path / "serial"), trials=LISTS)
    score(str(tmp_path / "two"), trials=LISTS, workers=2)
    assert contents(str(tmp_path / "serial")) == contents(str(tmp_path / "two"))


def test_only_what_changed_is_scored_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scored = []
    whole = scoring.score_trials

    def counted(*arguments: Any) -> Any:
        scored.append(len(arguments[3]))
        return whole(*arguments)

    monkeypatch.setattr(scoring, "score_trials", counted)
    assert score(str(tmp_path), trials=LISTS) == score(str(tmp_path), trials=LISTS) == 360
    assert scored == [180, 180]
    (tmp_path / "part-00001.parquet").unlink()
    score(str(tmp_path), trials=LISTS)
    assert scored == [180, 180, 180]
    score(str(tmp_path), trials=LISTS, same=["speaker"])
    assert scored == [180] * 5


def test_profiles_are_enrolled_with_one_blas_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []
    enrol = scoring.enrolled_profiles

    def observed(*arguments: Any) -> Any:
        threads.extend(pool["num_threads"] for pool in blas.select(user_api="blas").info())
        return enrol(*arguments)

    monkeypatch.setattr(scoring, "enrolled_profiles", observed)
    blas = ThreadpoolController()
    with blas.limit(limits=2, user_api="blas"):
        score(str(tmp_path), shard_size=5)
    assert threads
    assert set(threads) == {1}


def test_metrics_of_shards_are_those_of_all_scores(tmp_path: Path) -> None:
    score(str(tmp_path), trials=LISTS)
    shards = sorted(map(str, tmp_path.glob("*.parquet")))
    scores = np.concatenate([read_scores(path).score for path in shards])
    kinds = np.concatenate([np.asarray(read_trials(name).kinds) for name in LISTS])
    expected = evaluate(scores, kinds, ("default", "1,1,0.5"), far=[0.1, 0.02]).to_dict()
    options: Any = {"costs": ("default", "1,1,0.5"), "far": [0.1, 0.02]}
    assert same_values(evaluate_shards(shards, **options).to_dict(), expected)
    assert same_values(evaluate_shards(shards, workers=2, **options).to_dict(), expected)


def same_values(found: Any, expected: Any) -> bool:
    """Compare nested values; sums may differ by rounding."""
    if isinstance(expected, dict):
        assert list(found) == list(expected)
        return all(same_values(found[key], expected[key]) for key in expected)
    if isinstance(expected, float):
        return bool(found == pytest.approx(expected, rel=1e-12))
    return bool(found == expected)


MAPS = [LabelMaps("speaker", "t2speaker", "m2speaker"), LabelMaps("phrase", "t2phrase", "m2phrase")]


def test_kinds_of_a_matrix_follow_from_its_labels(tmp_path: Path) -> None:
    score(str(tmp_path), shard_size=5)
    shards = sorted(map(str, tmp_path.glob("*.parquet")))
    result = evaluate_shards(shards, labels=MAPS)
    parts = [read_scores(path) for path in shards]
    tables = {
        name: dict(line.split() for line in Path(name).read_text().splitlines())
        for name in ("m2speaker", "t2speaker", "m2phrase", "t2phrase")
    }
    kinds = [
        "IT"[tables["m2speaker"][m] == tables["t2speaker"][t]]
        + "WC"[tables["m2phrase"][m] == tables["t2phrase"][t]]
        for part in parts
        for m, t in zip(part.enrol, part.test, strict=True)
    ]
    expected = evaluate(np.concatenate([part.score for part in parts]), kinds)
    assert same_values(result.to_dict(), expected.to_dict())


def test_what_cannot_be_evaluated_is_named(tmp_path: Path) -> None:
    score(str(tmp_path / "matrix"))
    score(str(tmp_path / "lists"), trials=LISTS)
    (matrix,) = map(str, (tmp_path / "matrix").glob("*.parquet"))
    lists = sorted(map(str, (tmp_path / "lists").glob("*.parquet")))
    with pytest.raises(
        LabelError, match=r"part-00000\.parquet: the shard has no column with the kinds"
    ):
        evaluate_shards([matrix])
    with pytest.raises(LabelError, match="has a column with the kinds of its trials"):
        evaluate_shards(lists, labels=MAPS)
    with pytest.raises(
        LabelError, match="t2speaker does not list 12 of 12 ids, the first is 'm00'"
    ):
        evaluate_shards([matrix], labels=[LabelMaps("speaker", "t2speaker", "t2speaker")])
    with pytest.raises(ParameterError, match="passed twice"):
        evaluate_shards([lists[0], lists[0]])
    with pytest.raises(ParameterError, match="at least one file"):
        evaluate_shards([])
    Path(lists[0]).write_bytes(Path(lists[0]).read_bytes()[:-30])
    with pytest.raises(FileFormatError, match=r"part-00000\.parquet is damaged"):
        evaluate_shards(lists)
    with pytest.raises(ParameterError, match=r"the suffix \.parquet; got the name out"):
        score_shards("model.safetensors", "test-*.npz", "out/{shard}.txt")
    with pytest.raises(ParameterError, match="every list is one shard"):
        score("out", trials=LISTS, shard_size=3)


def run(*words: str) -> Any:
    return CliRunner().invoke(main, [str(word) for word in words])


def test_the_commands_score_and_evaluate_shards(tmp_path: Path) -> None:
    sides = ("model.safetensors", "--enrol", "enrol.npz", "--test", "test-*.npz")
    output = f"{tmp_path}/new/part-{{shard}}.parquet"
    done = run("score", *sides, "--trials", "list-*", "-o", output)
    assert done.exit_code == 0, done.output
    assert "shards 2/2" in done.output
    assert "wrote 360 scores" in done.output
    shards = sorted(map(str, (tmp_path / "new").glob("*.parquet")))
    shown = run("evaluate", *shards)
    assert shown.exit_code == 0, shown.output
    assert shown.stdout.startswith("kind")
    as_json = json.loads(run("evaluate", *shards, "--json").stdout)
    assert same_values(as_json, json.loads(json.dumps(evaluate_shards(shards).to_dict())))
    # one file of scores in Parquet is read as any other
    assert (
        run("score", *sides, "--trials", LISTS[0], "-o", f"{tmp_path}/one.parquet").exit_code == 0
    )
    listed = run("evaluate", f"{tmp_path}/one.parquet", "--trials", LISTS[0], "--json")
    assert listed.exit_code == 0, listed.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("score", "m", "--test", "t", "-o", "x", "--workers", "2"), "{shard} in the name"),
        (("score", "m", "--test", "t", "-o", "x", "--trials", "a", "--trials", "b"), "{shard}"),
        (
            ("score", "m", "--test", "t", "-o", "{shard}.parquet", "--profiles", "p"),
            "not supported for shards",
        ),
        (("evaluate", "scores"), "list of trials with --trials"),
        (("evaluate", "a.parquet", "--report", "x.html"), "--report needs a list"),
        (("evaluate", "a.parquet", "--trials", "t", "--workers", "2"), "leave out --trials"),
        (("evaluate", "a.parquet", "--enrol-phrases", "a", "--test-phrases", "b"), "speakers"),
        (("evaluate", "a.parquet", "--enrol-speakers", "a"), "needs --test-speakers"),
    ],
)
def test_options_that_exclude_each_other(words: tuple[str, ...], message: str) -> None:
    done = run(*words)
    assert done.exit_code == 2, done.output
    assert message in done.output


def test_the_same_list_of_trials_is_not_scored_twice(tmp_path: Path) -> None:
    (tmp_path / "link.txt").symlink_to(Path("list-0.txt").absolute())
    for lists in (("list-0.txt", "list-0.txt"), ("list-0.txt", "list-*.txt")):
        named = [word for name in lists for word in ("--trials", name)]
        done = run(
            *("score", "model.safetensors", "--enrol", "enrol.npz", "--test", "test-*.npz"),
            *(*named, "-o", f"{tmp_path}/part-{{shard}}.parquet"),
        )
        assert done.exit_code == 1, done.output
        assert "the same list of trials is passed twice (list-0.txt)" in done.output
    with pytest.raises(ParameterError, match=r"twice \(list-0.txt and .*link.txt\)"):
        score(str(tmp_path), trials=["list-0.txt", str(tmp_path / "link.txt")])
    assert not list(tmp_path.glob("*.parquet"))


def dies_once(folder: Path, job: Any, shard: Any) -> Any:
    """Score a shard; the first attempt at the second one kills its process."""
    if not Path(shard.path + NOTE_SUFFIX).exists():
        with (folder / "attempts").open("a") as attempts:
            attempts.write(f"{Path(shard.path).name}\n")
        mark = folder / "mark"
        if shard.path.endswith("1.parquet") and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
    from mvplda.distributed.scoring import score_shard

    return score_shard(job, shard)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_cluster_gives_the_same_bytes_and_metrics_and_survives_the_loss_of_a_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dask = pytest.importorskip("distributed", reason="distributed is not installed")
    names = {name: str(tmp_path / name) for name in ("serial", "cluster", "killed")}
    score(names["serial"], shard_size=3)
    with dask.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    ) as cluster:
        address = cluster.scheduler_address
        score(names["cluster"], shard_size=3, scheduler=address)
        monkeypatch.setattr(scoring, "score_shard", partial(dies_once, tmp_path))
        score(names["killed"], shard_size=3, scheduler=address)
        shards = sorted(map(str, Path(names["killed"]).glob("*.parquet")))
        found = evaluate_shards(shards, labels=MAPS, scheduler=address)
    assert contents(names["serial"]) == contents(names["cluster"]) == contents(names["killed"])
    assert same_values(found.to_dict(), evaluate_shards(shards, labels=MAPS).to_dict())
    attempts = (tmp_path / "attempts").read_text().split()
    assert sorted(attempts) == [f"part-0000{k}.parquet" for k in (0, 1, 1, 2, 3)]


def test_empty_lists_and_unused_names_of_a_filtered_list_change_nothing(tmp_path):
    import pyarrow
    import pyarrow.parquet

    whole = pyarrow.parquet.read_table("list-1.parquet")
    others = pyarrow.DictionaryArray.from_arrays(
        pyarrow.array([0] * len(whole), pyarrow.int32()), ["m00", "another model"]
    )
    listed = whole.set_column(0, "enrol", others)
    kinds = pyarrow.DictionaryArray.from_arrays(
        pyarrow.array([0, 1] * (len(whole) // 2), pyarrow.int32()), ["TC", "IW", "another kind"]
    )
    listed = listed.set_column(2, "kind", kinds)
    pyarrow.parquet.write_table(listed, tmp_path / "a.parquet")
    pyarrow.parquet.write_table(listed.slice(0, 0), tmp_path / "b.parquet")
    trials = read_trials(tmp_path / "a.parquet")
    assert trials.enrol.used == trials.enrol.names.tolist() == ["m00"]
    total = score(str(tmp_path / "s"), trials=[f"{tmp_path}/a.parquet", f"{tmp_path}/b.parquet"])
    assert total == len(whole)
    shards = sorted(map(str, (tmp_path / "s").glob("*.parquet")))
    scores = read_scores(shards[0])
    assert len(read_scores(shards[1])) == 0
    merged = evaluate_shards(shards).rows["Total"].values
    expected = evaluate(scores.score, trials.kinds).rows["Total"].values
    assert merged == pytest.approx(expected, nan_ok=True)


def test_names_of_shards_with_special_characters(tmp_path):
    folder = tmp_path / "run[1]"
    pattern = str(folder / "part-{shard}.npz")
    paths = shard_paths(pattern, 2)
    for path in paths:
        Path(path).write_bytes(b"")
    assert shard_paths(pattern, 2) == paths
    with pytest.raises(ParameterError, match="is not a shard of this run, which has 1"):
        shard_paths(pattern, 1)
    with pytest.raises(ParameterError, match=r"one \{shard\}, which stands for"):
        shard_paths(str(tmp_path / "{shard}" / "part-{shard}.npz"), 2)
