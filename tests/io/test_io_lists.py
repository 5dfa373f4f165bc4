"""Lists, trials, protocols and scores: round trips, detection, and lines at fault."""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mvplda.exceptions import FileFormatError, LabelError, MvpldaError, UnlabelledWarning
from mvplda.io import (
    Scores,
    Trials,
    match,
    read_groups,
    read_labels,
    read_map,
    read_scores,
    read_trials,
    tables,
    write_map,
    write_scores,
    write_trials,
)
from mvplda.io.trials import read_rsr2015_enrolment
from mvplda.kinds import recognised_kinds

MODELS, TESTS = ["m1", "Ü2", "m\u00a03"], ["t/1", "语2", "t3"]


def put(tmp_path: Path, text: str | bytes, name: str = "list.txt") -> Path:
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def same_trials(a: Trials, b: Trials) -> None:
    assert a.enrol.tolist() == b.enrol.tolist()
    assert a.test.tolist() == b.test.tolist()
    assert (a.kind is None) == (b.kind is None)
    if a.kind is not None and b.kind is not None:
        assert a.kind.tolist() == b.kind.tolist()


# -- lists ---------------------------------------------------------------


def test_lists_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "x"
    values = {"u1": "spk", "ü\u00a02": "open the door", "语": "1"}
    write_map(path, values)
    assert read_map(path) == values
    groups = {"s": ("a", "b"), "ü": ("c",)}
    write_map(path, {name: " ".join(ids) for name, ids in groups.items()})
    assert read_groups(path) == groups


def test_line_ends_marks_and_blank_lines(tmp_path: Path) -> None:
    assert read_map(put(tmp_path, b"\xef\xbb\xbfa  x y \r\n\r\n\tb\tz\r\n")) == {
        "a": "x y",
        "b": "z",
    }


@pytest.mark.parametrize(
    ("read", "text", "error"),
    [
        (read_map, "a x\nb\n", r"list\.txt, line 2: 'b' has no value; expected 'id value'"),
        (
            read_map,
            "a x\nb y\na z\nb x\n",
            "line 3: 'a' is listed twice",
        ),
        (read_map, "", "the file is empty"),
        (read_map, b"a x\nb \xff\n", "line 2: expected UTF-8"),
        (read_map, b"a x\nb \0\n", "line 2: expected a text file"),
        (read_map, "a" * 2000 + " x\n", "an id has 2000 characters"),
        (read_groups, "s\n", "line 1: 's' has no value"),
        (read_rsr2015_enrolment, "m051_003\n", "line 1: 'm051_003' has no value"),
        (read_rsr2015_enrolment, "m a\nm b\n", "line 2: 'm' is listed twice"),
        (
            read_trials,
            "a b target\nc d targer\n",
            "line 2: 'targer' is not a kind of trial; expected one of target",
        ),
        (
            read_trials,
            "a b target\n\nc d\n",
            r"line 3: .* got 2 field",
        ),
        (read_trials, "a " + "b" * 2000 + "\n", "an id has 2000 characters"),
        (
            read_trials,
            "1 a b\n2 c d\n",
            "line 2: '2' is not a kind of trial; expected one of target",
        ),
        (read_trials, "1 a target\n0 b nontarget\n", "add the header line"),
        (read_trials, "a b c d\n", "line 1: 'a b c d' has no known format of a trial list"),
        (
            read_trials,
            "m,t.sph,Y,N,N,N\nm,t.sph,Y,Y,N,N\n",
            "line 2: expected .*; got the marks 'Y,Y,N,N'",
        ),
        (
            read_trials,
            "model-id segment-id trial-type\nm s TC\nm s XX\n",
            "line 3: 'XX' is not a kind of trial",
        ),
        (
            read_trials,
            "enrol,test,kind\na,b,target\na,b\n",
            r"line 3: expected 3 field.*; got 2 field\(s\)",
        ),
        (read_trials, "enrol,test,kind\n", "the file has no lines; expected lines of 3 field"),
        (read_trials, 'enrol,test\n"a,b\n', "expected a table with ',' between fields"),
        (read_scores, "a b 1.5\nc d x\n", "line 2: expected the score as a number .* got 'x'"),
        (read_scores, "a b nan\n", "line 1: expected the score as a number .* got 'nan'"),
        (read_scores, "a b\n", "line 1: expected 'enrol test score'.* got 2 field"),
        (
            read_scores,
            "modelid\tsegmentid\tside\tLLR\nm\ts\ta\t?\n",
            "line 2: expected the score as a number .* got '\\?'",
        ),
        (
            read_scores,
            "enrol,test,score\na,b,1\nc,d,\n",
            "line 3: expected the score as a number .* got ''",
        ),
    ],
)
def test_the_line_at_fault_is_named(
    tmp_path: Path, read: Callable[[Path], Any], text: str | bytes, error: str
) -> None:
    with pytest.raises(FileFormatError, match=error) as caught:
        read(put(tmp_path, text))
    assert str(tmp_path / "list.txt") in str(caught.value)


def test_what_lines_cannot_hold_is_not_written(tmp_path: Path) -> None:
    path = put(tmp_path, "as it was")
    for write in (
        lambda: write_map(path, {"a b": "x"}),
        lambda: write_map(path, {"a": "x\ny"}),
        lambda: write_map(path, {"a": ""}),
        lambda: write_trials(path, Trials(np.array(["a b"]), np.array(["t"]))),
        lambda: write_trials(path, Trials(np.array(["a"]), np.array(["t"]), np.array([""]))),
        lambda: write_scores(path, Scores(np.array([""]), np.array(["t"]), np.array([1.0]))),
    ):
        with pytest.raises(LabelError):
            write()
    assert path.read_text() == "as it was"
    assert list(tmp_path.iterdir()) == [path]


def test_labels_of_views(tmp_path: Path) -> None:
    speakers = put(tmp_path, "u1 s1\nu2 s2\n", "utt2spk")
    phrases = put(tmp_path, "u2 open the door\n", "utt2phrase")
    with pytest.warns(
        UnlabelledWarning, match="1 of 2 vectors have no label of view .phrase.*the first is .u1"
    ):
        labels = read_labels({"speaker": speakers, "phrase": phrases}, ["u2", "u1"])
    assert labels["speaker"].tolist() == ["s2", "s1"]
    assert labels["phrase"].tolist() == ["open the door", None]
    with pytest.raises(
        LabelError,
        match=r"utt2phrase, .* of view 'phrase', has none of the 1 ids .* the first id is 'u1'",
    ):
        read_labels({"phrase": phrases}, ["u1"])


# -- trials --------------------------------------------------------------


@pytest.mark.parametrize("format", ["kaldi", "csv"])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize("key", [True, False])
def test_trials_round_trip(tmp_path: Path, format: str, end: bytes, key: bool) -> None:
    trials = Trials(np.array(MODELS), np.array(TESTS), ["TC", "IW", "TW"] if key else None)
    path = tmp_path / f"x.{format}"
    write_trials(path, trials)
    path.write_bytes(path.read_bytes().replace(b"\n", end))
    same_trials(read_trials(path), trials)
    if not key:
        with pytest.raises(LabelError, match="trials have no kind"):
            _ = read_trials(path).target


def test_lists_as_the_corpora_have_them(tmp_path: Path) -> None:
    rsr = put(
        tmp_path, "m051_003,m051/m051_03_003.sph,Y,N,N,N\nm051_003,m052/m052_03_004.sph,N,N,N,Y\n"
    )
    found = read_trials(rsr)
    assert found.test.tolist() == ["m051/m051_03_003", "m052/m052_03_004"]
    assert found.target.tolist() == [True, False]
    sdsv = put(tmp_path, "model-id evaluation-file-id\nmodel_1 evl_1\n")
    assert read_trials(sdsv).enrol.tolist() == ["model_1"]
    nist = put(
        tmp_path, "modelid\tsegmentid\tside\ttargettype\tgender\n1\ts.sph\ta\tnontarget\tf\n"
    )
    assert read_trials(nist).counts == {"nontarget": 1}
    hyperion = put(tmp_path, "modelid,segmentid,targettype\nm,s,target\n")
    assert read_trials(hyperion).target.tolist() == [True]
    quoted = put(tmp_path, 'Enroll, Test, Label\n"m,1", s, 1\n\n"m""2", s, 0\n', "x.csv")
    assert read_trials(quoted).enrol.tolist() == ["m,1", 'm"2']
    assert read_trials(put(tmp_path, "a b 1\nc d 0\n")).kind.tolist() == ["target", "nontarget"]


def test_an_ambiguous_list_wants_a_header(tmp_path: Path) -> None:
    lines = "1 0 1\n0 1 0\n"
    with pytest.raises(FileFormatError, match="add the header line 'enrol test kind'"):
        read_trials(put(tmp_path, lines))
    for header, enrolled in (("enrol test key\n", ["1", "0"]), ("key enrol test\n", ["0", "1"])):
        assert read_trials(put(tmp_path, header + lines)).enrol.tolist() == enrolled


def test_kinds_and_counts() -> None:
    trials = Trials(
        np.array(["a", "a", "b"]), np.array(["t", "t", "t"]), np.array(["TC", "TC", ""])
    )
    assert trials.counts == {"TC": 2, "": 1}
    assert trials[:2].target.all()
    with pytest.raises(LabelError, match=r"1 of 3 trials have no kind"):
        _ = trials.target
    with pytest.raises(LabelError, match="got 'XX'"):
        Trials(np.array(["a"]), np.array(["t"]), np.array(["XX"]))


def test_trials_of_three_views(tmp_path: Path) -> None:
    kinds = ["a+b+c", "a+c", "none"]
    trials = Trials(["m"] * 3, ["t", "u", "v"], kinds)
    assert trials.target.tolist() == [True, False, False]
    for name in ("x.csv", "x"):
        write_trials(tmp_path / name, trials)
        found = read_trials(tmp_path / name)
        same_trials(found, trials)
        assert found.target.tolist() == [True, False, False]


def test_kinds_are_patterns_or_named(tmp_path: Path) -> None:
    names = ["none", "b", "b+c", "TW"]
    assert recognised_kinds(["", *names, "d", "targt"]) == set(names)
    assert recognised_kinds(["1e+05", "a"]) == set()
    for content in ("m t none\nm u a+b\nm v targt\n", "m t foo\n"):
        (tmp_path / "x").write_text(content)
        with pytest.raises(FileFormatError):
            read_trials(tmp_path / "x")


@pytest.mark.slow
@pytest.mark.parametrize("format", ["kaldi", "voxceleb", "rsr2015", "csv"])
def test_a_million_lines(tmp_path: Path, format: str) -> None:
    n = 1_000_000
    line = {
        "kaldi": "m{0} t{1} TC\n",
        "voxceleb": "1 m{0} t{1}\n",
        "rsr2015": "m{0},t{1}.sph,Y,N,N,N\n",
        "csv": "m{0},t{1},target\n",
    }[format]
    body = "".join([line.format(k % 1000, k) for k in range(n)])
    path = put(tmp_path, ("enrol,test,kind\n" if format == "csv" else "") + body)
    started = time.process_time()
    plain = [line.split(",") for line in body.splitlines()]
    split = time.process_time()
    trials = read_trials(path)
    # however fast the machine is: some ten times as long as it takes to split the lines
    assert time.process_time() - split < 40 * (split - started)
    assert len(plain) == n
    assert (len(trials), trials.test[-1], trials.target.all()) == (n, f"t{n - 1}", True)


# -- protocols -----------------------------------------------------------


@pytest.mark.parametrize("separator", [" ", ",", "\t"])
def test_rsr2015_enrolment(tmp_path: Path, separator: str) -> None:
    line = f"m051_003{separator}male/m051/m051_01_003.sph,male/m051/m051_04_003.sph\n"
    found = read_rsr2015_enrolment(put(tmp_path, line))
    assert found == {"m051_003": ("m051/m051_01_003", "m051/m051_04_003")}


# -- scores --------------------------------------------------------------

SCORES = Scores(np.array(MODELS), np.array(TESTS), np.array([1 / 3, -1e-300, np.inf]))


@pytest.mark.parametrize("format", ["kaldi", "csv"])
def test_scores_round_trip(tmp_path: Path, format: str) -> None:
    path = tmp_path / f"x.{format}"
    write_scores(path, SCORES)
    found = read_scores(path)
    assert found.enrol.tolist() == MODELS
    assert found.test.tolist() == TESTS
    assert found.score.tolist() == SCORES.score.tolist()


def test_standard_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.TextIOWrapper(io.BytesIO())
    monkeypatch.setattr(sys, "stdout", out)
    write_scores("-", SCORES)
    written = out.buffer.getvalue()
    assert written.startswith(b"m1 t/1 0.333")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(written)))
    assert read_scores("-").score.tolist() == SCORES.score.tolist()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a b target\n")))
    assert read_trials("-").target.all()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"1 a b\n0 a c\n")))
    assert read_trials("-").target.tolist() == [True, False]


def test_match() -> None:
    trials = Trials(np.array(["b", "a"]), np.array(["t", "t"]))
    scores = Scores(
        np.array(["a", "b", "c", "a"]), np.array(["t"] * 4), np.array([1.0, 2.0, 3.0, 1.0])
    )
    found = match(trials, scores)
    assert found.score.tolist() == [2.0, 1.0]
    assert (found.duplicates, found.unused) == (1, 1)
    with pytest.raises(LabelError, match="1 of 2 trials have no score; the first is 'b t'"):
        match(trials, Scores(np.array(["a"]), np.array(["t"]), np.array([1.0])))
    with pytest.raises(
        LabelError,
        match=r"1 score\(s\) differ from an earlier score of the same trial; the first such trial is 'a t'",
    ):
        match(trials, Scores(np.array(["a", "a"]), np.array(["t", "t"]), np.array([1.0, 2.0])))


def test_columns_that_are_not_there_and_files_of_another_kind(tmp_path: Path) -> None:
    with pytest.raises(
        FileFormatError, match=r"expected a column called test or .*; the header has enrol, score"
    ):
        read_scores(put(tmp_path, "enrol,score\n1,2\n"))
    with pytest.raises(FileFormatError, match="expected a text file; this is a Parquet file"):
        read_scores(put(tmp_path, b"PAR1\x15\x04\xff\x00"))


# -- fuzz ----------------------------------------------------------------

READERS: dict[str, Callable[[Path], Any]] = {
    "map": read_map,
    "groups": read_groups,
    "trials": read_trials,
    "scores": read_scores,
    "trn": read_rsr2015_enrolment,
    "s": read_scores,
}
SEEDS = [
    b"a b target\nc d nontarget\ne f target\n",
    b"1 a b\n0 c d\n1 e f\n",
    b"model-id segment-id trial-type\nm s TC\nm t IW\n",
    b"m_1,a/b.sph,Y,N,N,N\nm_1,a/c.sph,N,N,N,Y\n",
    b"modelid\tsegmentid\tside\tLLR\nm\ts\ta\t1.5\nm\tt\ta\t-1\n",
    b'enrol,test,score\n"a",b,1\nc,d,2\n',
    b"a b 1.5\nc d 2.5\n",
    b"model-id phrase-id f1\nm 05 u v\nn 06 w\n",
    b"train-file-id speaker-id phrase-id\nu s p\nv s q\n",
    b"m_1 a.sph,b.sph\nm_2 c.sph\n",
    b"s 1\nt 2\n",
]


@pytest.mark.parametrize("name", READERS)
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_damaged_lists_end_in_our_errors(tmp_path: Path, name: str, data: st.DataObject) -> None:
    lines = data.draw(st.sampled_from(SEEDS)).split(b"\n")
    for _ in range(data.draw(st.integers(0, 3))):
        place = data.draw(st.integers(0, len(lines) - 1))
        damage = data.draw(st.sampled_from(["drop", "noise", "text", "cut"]))
        if damage == "drop" and len(lines) > 1:
            del lines[place]
        elif damage == "noise":
            lines[place] = data.draw(st.binary(max_size=20))
        elif damage == "text":
            lines[place] = data.draw(st.text(max_size=20)).encode("utf-8", "surrogatepass")
        else:
            lines[place] = lines[place][: data.draw(st.integers(0, 10))]
    path = put(tmp_path, data.draw(st.sampled_from([b"\n", b"\r\n"])).join(lines))
    try:
        READERS[name](path)
    except MvpldaError as error:
        assert str(path) in str(error)  # noqa: PT017
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("name", READERS)
def test_lists_that_are_not_there(tmp_path: Path, name: str) -> None:
    with pytest.raises(FileNotFoundError, match=r"there is no file .*nothing"):
        READERS[name](tmp_path / "nothing")
    with pytest.raises(FileFormatError, match="expected a file; this is a folder"):
        READERS[name](tmp_path)
    with pytest.raises(FileFormatError, match=r"list\.txt"):
        READERS[name](put(tmp_path, " \n\r\n"))


def test_long_lists_hold_each_id_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists that are read, matched and written in many blocks are what they are in one."""
    rng = np.random.default_rng(0)
    enrol, test = ([f"{side}{k}" for k in rng.integers(40, size=3000)] for side in "mt")
    pairs = dict.fromkeys(zip(enrol, test, strict=True))
    kinds = np.where(rng.random(len(pairs)) < 0.1, "target", "nontarget")
    enrol, test = ([pair[side] for pair in pairs] for side in range(2))
    trials = Trials(enrol, test, kinds)
    scores = Scores(trials.enrol, trials.test, rng.standard_normal(len(trials)).astype(np.float32))
    mixed = rng.permutation(len(trials))
    for module, name in ((tables, "TABLE_ROWS"), (tables, "WRITTEN_ROWS")):
        monkeypatch.setattr(module, name, 100)
    for suffix in ("", ".csv"):
        write_trials(tmp_path / f"trials{suffix}", trials)
        found = read_trials(tmp_path / f"trials{suffix}")
        same_trials(found, trials)
        assert len(found.enrol.names) == len(found.test.names) == 40
        write_scores(
            tmp_path / f"scores{suffix}",
            Scores(trials.enrol[mixed], trials.test[mixed], scores.score[mixed]),
        )
        read = read_scores(tmp_path / f"scores{suffix}")
        np.testing.assert_array_equal(match(found, read).score.astype(np.float32), scores.score)
    with (tmp_path / "trials").open("a") as file:
        file.write("\nm1 t1 perhaps\n")
    with pytest.raises(
        FileFormatError, match=rf"line {len(trials) + 2}: 'perhaps' is not a kind of trial"
    ):
        read_trials(tmp_path / "trials")
    with (tmp_path / "trials").open("a") as file:
        file.write("m1\n")
    with pytest.raises(
        FileFormatError, match=rf"line {len(trials) + 3}: expected 'enrol test'.*; got 1 field\(s\)"
    ):
        read_trials(tmp_path / "trials")
