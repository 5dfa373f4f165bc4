"""Lists and vectors from pipes, standard input and gzip files, and lists with odd line ends."""

from __future__ import annotations

import gc
import gzip
import io
import os
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from text_archives import write_text_archive

from mvplda import SufficientStatistics
from mvplda.cli import main
from mvplda.distributed.shards import gather
from mvplda.exceptions import FileFormatError, UnlabelledWarning
from mvplda.io import (
    Scores,
    Trials,
    read_groups,
    read_labels,
    read_map,
    read_scores,
    read_trials,
    write_scores,
    write_trials,
)
from mvplda.io.vectors import VectorSet, read_vectors, write_vectors

NAMES = ["x.scp", "x.ark", "x.npz", "x.parquet"]


@pytest.fixture
def vectors() -> VectorSet:
    X = np.random.default_rng(0).normal(size=(90, 4)).astype(np.float32)
    return VectorSet(np.array([f"u{i}" for i in range(90)]), X)


def through_pipe(tmp_path: Path, data: bytes) -> Path:
    """A pipe under a name without suffix, that a thread fills once."""
    pipe = tmp_path / f"pipe{len(list(tmp_path.glob('pipe*')))}"
    os.mkfifo(pipe)
    threading.Thread(target=pipe.write_bytes, args=(data,), daemon=True).start()
    return pipe


def through_stdin(tmp_path: Path, data: bytes, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    return "-"


def as_gzip(tmp_path: Path, data: bytes) -> Path:
    (tmp_path / "packed").write_bytes(gzip.compress(data))
    return tmp_path / "packed"


@pytest.fixture(params=["pipe", "stdin", "gzip", "gzip in a pipe"])
def stream(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[bytes], Any]:
    return {
        "pipe": lambda data: through_pipe(tmp_path, data),
        "stdin": lambda data: through_stdin(tmp_path, data, monkeypatch),
        "gzip": lambda data: as_gzip(tmp_path, data),
        "gzip in a pipe": lambda data: through_pipe(tmp_path, gzip.compress(data)),
    }[request.param]


@pytest.mark.parametrize("name", NAMES)
def test_vectors_from_streams(vectors: VectorSet, tmp_path: Path, name: str, stream: Any) -> None:
    write_vectors(tmp_path / name, vectors)
    found = read_vectors(stream((tmp_path / name).read_bytes()))
    np.testing.assert_array_equal(found.X, vectors.X)
    assert found.ids.tolist() == (vectors.ids.tolist())


def test_copies_of_streams_do_not_stay(
    vectors: VectorSet, tmp_path: Path, stream: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    write_vectors(tmp_path / "x.ark", vectors)
    read_vectors(stream((tmp_path / "x.ark").read_bytes()))
    gc.collect()
    assert not list((tmp_path / "temporary").iterdir())


@pytest.mark.parametrize("prefix", ["ark:", "ark,t:"])
def test_archives_from_streams_by_prefix(
    vectors: VectorSet, tmp_path: Path, prefix: str, stream: Any
) -> None:
    write = write_text_archive if prefix == "ark,t:" else write_vectors
    write(tmp_path / "x.ark", vectors)
    found = read_vectors(f"{prefix}{stream((tmp_path / 'x.ark').read_bytes())}")
    np.testing.assert_array_equal(found.X.astype(np.float32), vectors.X)


@pytest.mark.parametrize("name", NAMES)
def test_gzip_beside_the_suffix_and_without(vectors: VectorSet, tmp_path: Path, name: str) -> None:
    write_vectors(tmp_path / name, vectors)
    packed = gzip.compress((tmp_path / name).read_bytes())
    (tmp_path / name).unlink()
    for file in (tmp_path / f"{name}.gz", tmp_path / name):
        file.write_bytes(packed)
        np.testing.assert_array_equal(read_vectors(file).X, vectors.X)
        assert read_vectors(file).ids.tolist() == vectors.ids.tolist()
    for kept in (len(packed) // 2, len(packed) - 4):
        (tmp_path / name).write_bytes(packed[:kept])
        with pytest.raises(FileFormatError, match="the gzip file is truncated or damaged"):
            read_vectors(tmp_path / name)


@pytest.mark.parametrize("format", ["kaldi", "csv"])
def test_trials_from_streams(tmp_path: Path, format: str, stream: Any) -> None:
    kinds = np.array(["target", "nontarget", "target"])
    trials = Trials(np.array(["m1", "m2", "m1"]), np.array(["a", "b", "c"]), kinds)
    write_trials(tmp_path / f"trials.{format}", trials)
    found = read_trials(stream((tmp_path / f"trials.{format}").read_bytes()))
    assert (found.enrol.tolist(), found.test.tolist()) == (
        trials.enrol.tolist(),
        trials.test.tolist(),
    )
    assert found.target.tolist() == [True, False, True]


@pytest.mark.parametrize("format", ["kaldi", "csv"])
def test_scores_from_streams(tmp_path: Path, format: str, stream: Any) -> None:
    scores = Scores(np.array(["m1", "m2"]), np.array(["a", "b"]), np.array([1.5, -2.0]))
    path = tmp_path / f"scores.{format}"
    write_scores(path, scores)
    assert read_scores(stream(path.read_bytes())).score.tolist() == [1.5, -2.0]


def test_errors_of_streams_have_lines(stream: Any) -> None:
    with pytest.raises(FileFormatError, match=r"line 2: 'maybe' is not a kind of trial"):
        read_trials(stream(b"m a target\nm b maybe\n"))
    with pytest.raises(FileFormatError, match=r"line 3: expected the score as a number .* got 'x'"):
        read_scores(stream(b"m a 1\n\nm b x\n"))


def test_lists_from_streams(stream: Any) -> None:
    assert read_map(stream(b"u1 ann\nu2 bob\n")) == {"u1": "ann", "u2": "bob"}
    assert read_groups(stream(b"ann u1 u2\n")) == {"ann": ("u1", "u2")}


@pytest.mark.parametrize("name", NAMES)
def test_statistics_from_streams(
    vectors: VectorSet, tmp_path: Path, name: str, stream: Any
) -> None:
    write_vectors(tmp_path / name, vectors)
    listed = [f"u{i} s{i % 5}\n" for i in range(90)]
    labels = tmp_path / "utt2spk"
    labels.write_text("".join(listed))
    found = gather(stream((tmp_path / name).read_bytes()), {"speaker": labels})
    expected = SufficientStatistics.from_arrays(
        vectors.X, {"speaker": [f"s{i % 5}" for i in range(90)]}
    )
    assert (found.n, found.counts["speaker"].tolist()) == (90, expected.counts["speaker"].tolist())


def test_the_command_line_takes_streams(vectors: VectorSet, tmp_path: Path) -> None:
    write_vectors(tmp_path / "x.ark", vectors)
    ark = (tmp_path / "x.ark").read_bytes()
    lists = b"".join(f"u{i} s{i % 9}\n".encode() for i in range(90))
    trials = b"".join(
        f"u{i} u{i + 9} target\nu{i} u{i + 1} nontarget\n".encode() for i in range(50)
    )

    def run(*words: Any, data: bytes = b"") -> str:
        done = CliRunner().invoke(main, [str(word) for word in words], input=data)
        assert done.exit_code == 0, done.output
        return str(done.stdout)

    model = tmp_path / "model.safetensors"
    run(
        "train",
        "-",
        "-l",
        f"speaker={through_pipe(tmp_path, lists)}",
        "-v",
        "speaker=2",
        "-o",
        model,
        "-q",
        data=ark,
    )
    scores = run(
        "score", model, "--test", through_pipe(tmp_path, ark), "--trials", "-", data=trials
    )
    assert scores.count("\n") == 100
    table = run("evaluate", "-", "--trials", through_pipe(tmp_path, trials), data=scores.encode())
    assert "EER" in table
    assert "vectors: 90" in run("info", "-", data=ark)
    calibrated = run(
        "calibrate",
        "-",
        "--trials",
        through_pipe(tmp_path, trials),
        "-o",
        "-",
        data=scores.encode(),
    )
    assert calibrated.count("\n") == 100
    speakers = "".join(f"u{i} s{i % 9}\n" for i in range(90)).encode()
    sides = (
        "--test-speakers",
        through_pipe(tmp_path, speakers),
        "--enrol-speakers",
        through_pipe(tmp_path, speakers),
    )
    systems = (
        f"a={through_pipe(tmp_path, scores.encode())}",
        f"b={through_pipe(tmp_path, calibrated.encode())}",
    )
    run("evaluate", *systems, "--trials", through_pipe(tmp_path, trials), *sides)
    out = tmp_path / "s.safetensors"
    (tmp_path / "utt2spk").write_bytes(lists)
    run("stats", "-", "-l", f"speaker={tmp_path / 'utt2spk'}", "-o", out, "-q", data=ark)
    assert SufficientStatistics.load(out).n == 90


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_line_ends(tmp_path: Path, end: str, vectors: VectorSet) -> None:
    (tmp_path / "utt2spk").write_bytes(f"u0 ann{end}u1 bob{end}".encode())
    assert read_map(tmp_path / "utt2spk") == {"u0": "ann", "u1": "bob"}
    (tmp_path / "trials").write_bytes(f"m a target{end}{end}m b nontarget".encode())
    assert len(read_trials(tmp_path / "trials")) == 2
    write_vectors(tmp_path / "x.scp", vectors)
    script = (tmp_path / "x.scp").read_bytes()
    (tmp_path / "x.scp").write_bytes(b"\xef\xbb\xbf" + script.replace(b"\n", end.encode()))
    assert read_vectors(tmp_path / "x.scp").ids.tolist() == vectors.ids.tolist()


def test_a_list_that_leaves_out_vectors_is_told_also_when_quiet(
    vectors: VectorSet, tmp_path: Path
) -> None:
    write_vectors(tmp_path / "x.npz", vectors)
    speakers, model = tmp_path / "utt2spk", tmp_path / "m.safetensors"
    speakers.write_text("".join(f"u{i} s{i % 5}\n" for i in range(40)))
    said = (
        "50 of 90 vectors have no label of view 'speaker' in .*utt2spk(, the first is 'u40')?; each"
    )
    with pytest.warns(UnlabelledWarning, match=said):
        read_labels({"speaker": speakers}, vectors.ids)
    with pytest.warns(UnlabelledWarning, match=said):
        gather(tmp_path / "x.npz", {"speaker": speakers})
    common = [str(tmp_path / "x.npz"), "-l", f"speaker={speakers}", "-q", "-o", str(model)]
    for command in (["train", *common, "-v", "speaker=2"], ["stats", *common]):
        done = CliRunner().invoke(main, command)
        assert done.exit_code == 0, done.output
        assert "warning: 50 of 90 vectors" in done.stderr


def test_what_a_finished_shard_left_unlabelled_is_told_again(
    vectors: VectorSet, tmp_path: Path
) -> None:
    write_vectors(tmp_path / "x.ark", vectors)
    (tmp_path / "utt2spk").write_text("u3 ann\nu4 bob\n")
    for _ in range(2):
        with pytest.warns(UnlabelledWarning, match="88 of 90 vectors .*utt2spk; each"):
            gather(
                tmp_path / "x.ark", {"speaker": tmp_path / "utt2spk"}, work_dir=tmp_path / "work"
            )
