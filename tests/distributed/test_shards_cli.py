"""mvplda stats, and mvplda train from what it wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from shard_files import close, corpus, cut, identical, write_shard, write_shards

from mvplda import MultiviewPLDA, SufficientStatistics, load
from mvplda.cli import main
from mvplda.distributed.shards import gather

VIEWS = ("speaker", "phrase")
ASKED = ("-v", "speaker", "-v", "phrase")


def run(*arguments: Any, code: int = 0) -> Any:
    done = CliRunner().invoke(main, [str(a) for a in arguments])
    assert done.exit_code == code, done.output
    return done


@pytest.fixture
def shards(tmp_path: Path) -> tuple[list[Any], list[Path]]:
    parts = cut(*corpus(), 4)
    return parts, write_shards(tmp_path, parts)[0]


@pytest.mark.filterwarnings(
    "ignore::mvplda.exceptions.MvpldaWarning"
)  # some vectors have no label at all
def test_from_shards_to_a_model(tmp_path: Path, shards: Any) -> None:
    _, paths = shards
    done = run("stats", *paths, *ASKED, "-o", tmp_path / "s.safetensors")
    assert "shards 4/4" in done.stderr
    assert "vectors: 900\ndimension: 6\n" in done.stderr
    assert "vectors without label" in done.stderr
    statistics = SufficientStatistics.load(tmp_path / "s.safetensors")
    sources = statistics.sources
    assert (sources["shards"], sources["vectors"]) == (4, 900)
    identical(statistics, gather(paths, views=VIEWS))
    threads = tmp_path / "t.safetensors"
    run("stats", *paths, *ASKED, "-o", threads, "--workers", 2, "-q")
    identical(statistics, SufficientStatistics.load(threads))
    run(
        "train",
        tmp_path / "s.safetensors",
        "-v",
        "speaker=3",
        "-v",
        "phrase=2",
        "-o",
        tmp_path / "m.safetensors",
        "-q",
    )
    model = load(tmp_path / "m.safetensors").scorer
    expected = MultiviewPLDA({"speaker": 3, "phrase": 2}, random_state=0).fit_statistics(statistics)
    np.testing.assert_array_equal(model.loadings_["speaker"], expected.loadings_["speaker"])


def test_statistics_are_added(tmp_path: Path, shards: Any) -> None:
    _, paths = shards
    files = [tmp_path / f"{i}.safetensors" for i in range(4)]
    for path, file in zip(paths, files, strict=True):
        run("stats", path, *ASKED, "-o", file, "-q")
    out = tmp_path / "out.safetensors"
    whole = gather(paths, views=VIEWS)
    run("stats", files[0], files[1], files[2], files[3], "-o", out)
    close(whole, SufficientStatistics.load(out))
    run("stats", paths[3], *ASKED, files[0], files[1], files[2], "-o", out, "-q")
    close(whole, SufficientStatistics.load(out))


def test_faults_are_one_line(tmp_path: Path, shards: Any) -> None:
    parts, paths = shards
    paths[1].write_bytes(b"nothing of use")
    parts[2][0][4] = np.nan
    write_shard(paths[2], *parts[2])
    out = tmp_path / "s.safetensors"
    done = run("stats", *paths, *ASKED, "-o", out, "-q", code=1)
    assert done.stderr.startswith(f"mvplda: {paths[1]}")
    assert done.stderr.count("\n") == 1
    assert "row 4" in run("stats", paths[0], paths[2], *ASKED, "-o", out, "-q", code=1).stderr
    assert not out.exists()


def test_wrong_calls(tmp_path: Path, shards: Any) -> None:
    _, paths = shards
    out = tmp_path / "s.safetensors"
    assert "the views are missing" in run("stats", *paths, "-o", out, code=2).stderr
    run("stats", *paths, *ASKED, "-o", out, "-q")
    rank = ("-v", "speaker=2", "-o", tmp_path / "m.safetensors")
    assert (
        "contains statistics: leave out --"
        in run("train", out, *rank, "-l", "speaker=utt2spk", code=2).stderr
    )
    assert (
        "contains statistics: leave out --"
        in run("train", out, *rank, "--reduce", "2", code=2).stderr
    )
    assert (
        "the labels of channel are missing"
        in run("train", paths[0], *rank, "-v", "channel=2", code=2).stderr
    )
    assert (
        "no view 'channel'"
        in run("train", out, "-v", "channel=2", "-o", tmp_path / "m.safetensors", code=1).stderr
    )


def test_a_prior_from_statistics(tmp_path: Path, shards: Any) -> None:
    _, paths = shards
    statistics, model = tmp_path / "s.safetensors", tmp_path / "m.safetensors"
    run("stats", *paths, *ASKED, "-o", statistics, "-q")
    strength = {"phrase": 0.5, "speaker": 0.25, "noise": 0.75}
    prior = ["--set", "prior=isotropic", "--set", f"prior_strength={json.dumps(strength)}"]
    run("train", statistics, *prior, "-o", model)
    fitted = load(model).scorer
    again = MultiviewPLDA(fitted.views, prior="isotropic", prior_strength=strength)
    again.fit_statistics(SufficientStatistics.load(statistics))
    np.testing.assert_allclose(fitted.noise_, again.noise_, atol=1e-12)
