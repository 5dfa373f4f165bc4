"""Statistics in files, from batches, merged many at a time."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shard_files import VIEWS, close, corpus, cut, identical

from mvplda import MultiviewPLDA, SufficientStatistics
from mvplda.exceptions import DataError, FileFormatError, LabelError, ParameterError
from mvplda.labels import encode_labels
from mvplda.persistence import state_of
from mvplda.statistics import Accumulator, accumulator, merge
from mvplda.statistics.classes import GrowingClasses, LabelCodes, label_codes
from mvplda.statistics.record import holds_statistics
from mvplda.tensor_files import packed_chunks


def statistics(**options: Any) -> SufficientStatistics:
    X, labels = corpus()
    return SufficientStatistics.from_arrays(X, labels, views=VIEWS, **options)


@pytest.mark.parametrize("second_moment", ["full", "diagonal"])
def test_a_file_gives_everything_back(tmp_path: Path, second_moment: Any) -> None:
    before = statistics(second_moment=second_moment)
    before.save(tmp_path / "s.safetensors")
    identical(before, SufficientStatistics.load(tmp_path / "s.safetensors"))
    assert holds_statistics(tmp_path / "s.safetensors")
    before.save(tmp_path / "named.otherwise")
    assert holds_statistics(tmp_path / "named.otherwise")
    identical(before, SufficientStatistics.load(tmp_path / "named.otherwise"))
    (tmp_path / "named.otherwise").write_bytes(b"neither")
    assert not holds_statistics(tmp_path / "named.otherwise")
    (tmp_path / "named.otherwise").unlink()
    assert not holds_statistics(tmp_path / "named.otherwise")
    assert [p.name for p in tmp_path.iterdir()] == ["s.safetensors"]


@pytest.mark.parametrize(
    "names",
    [
        ["ä", "漢字", "plain", "\U0001f600", "x" * 300],
        [b"a", b"bb", b"\xff\x00\x01", b"d", b"e"],
        [1, -5, 2**60, 4, 7],
        [0.1, 1 / 3, 1e300, -2.5, 7.0],
        [True, False, True, False, True],
        np.array(
            ["2020-01-01", "2021-05-05", "2019-02-03", "2000-01-01", "1970-01-01"], dtype="M8[D]"
        ),
        np.arange(5).astype("m8[ns]"),
        [None] * 5,
    ],
    ids=lambda names: type(names[0]).__name__,
)
def test_classes_of_every_type_are_kept(tmp_path: Path, names: Any) -> None:
    X = np.random.default_rng(0).normal(size=(5, 2))
    before = SufficientStatistics.from_arrays(X, {"a": names, "b": [1, 1, 2, 2, 2]})
    before.save(tmp_path / "s.safetensors")
    after = SufficientStatistics.load(tmp_path / "s.safetensors")
    identical(before, after)
    identical(before + before, after + after)


def test_damage_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "s.safetensors"
    statistics().save(path)
    data = path.read_bytes()
    for size in (0, 5, 8, 200, len(data) // 2, len(data) - 1):
        path.write_bytes(data[:size])
        with pytest.raises(FileFormatError, match=r"s\.safetensors"):
            SufficientStatistics.load(path)
    rng = np.random.default_rng(0)
    for place in rng.integers(8, len(data), size=40):
        damaged = bytearray(data)
        damaged[place] ^= 0x41
        path.write_bytes(damaged)
        with pytest.raises(FileFormatError, match=r"s\.safetensors"):
            SufficientStatistics.load(path)


def test_files_of_something_else_are_named(tmp_path: Path) -> None:
    model = MultiviewPLDA.from_parameters(np.zeros(3), {"a": np.ones((3, 1))}, np.ones(3))
    model.save(tmp_path / "m.safetensors")
    with pytest.raises(
        FileFormatError, match="contains a MultiviewPLDA, not a SufficientStatistics"
    ):
        SufficientStatistics.load(tmp_path / "m.safetensors")
    assert not holds_statistics(tmp_path / "m.safetensors")
    statistics().save(tmp_path / "s.safetensors")
    with pytest.raises(
        FileFormatError, match="contains a SufficientStatistics, not a MultiviewPLDA"
    ):
        MultiviewPLDA.load(tmp_path / "s.safetensors")
    with pytest.raises(FileNotFoundError, match="no file"):
        SufficientStatistics.load(tmp_path / "none.safetensors")


def test_sources_are_kept_and_sealed(tmp_path: Path) -> None:
    sources = {"shards": ["a", "b"]}
    replace(statistics(), sources=sources).save(tmp_path / "s.safetensors")
    assert SufficientStatistics.load(tmp_path / "s.safetensors").sources == sources
    data = (
        (tmp_path / "s.safetensors")
        .read_bytes()
        .replace(b'shards\\": [\\"a\\"', b'shards\\": [\\"c\\"')
    )
    (tmp_path / "s.safetensors").write_bytes(data)
    with pytest.raises(FileFormatError, match="fingerprint"):
        SufficientStatistics.load(tmp_path / "s.safetensors")


@pytest.mark.parametrize("stage", ["create", "open", "write", "fsync", "chmod", "replace"])
def test_a_write_that_fails_at_any_stage_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    path = tmp_path / "s.safetensors"
    old, new = statistics(), statistics(second_moment="diagonal")
    old.save(path)

    def full(*_: Any, **__: Any) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    if stage == "create":
        monkeypatch.setattr(os, "open", full)
    elif stage == "open":
        monkeypatch.setattr(Path, stage, full)
    elif stage == "write":
        real = Path.open

        def opened(self: Path, *arguments: Any, **options: Any) -> Any:
            file = real(self, *arguments, **options)
            if not arguments or arguments[0] != "wb":
                return file
            written = file.write

            class Full:
                count = 0

                def __enter__(self) -> Any:
                    return self

                def __exit__(self, *_: Any) -> None:
                    file.close()

                def write(self, data: Any) -> int:
                    Full.count += 1
                    return full() if Full.count == 4 else written(data)

                def writelines(self, pieces: Any) -> None:
                    for piece in pieces:
                        self.write(piece)

            return Full()

        monkeypatch.setattr(Path, "open", opened)
    else:
        monkeypatch.setattr(os, stage, full)
    with pytest.raises(OSError, match=r"No space left on device: .*s\.safetensors was not written"):
        new.save(path)
    monkeypatch.undo()
    identical(old, SufficientStatistics.load(path))
    assert [p.name for p in tmp_path.iterdir()] == ["s.safetensors"]


def test_a_real_limit_on_file_size(tmp_path: Path) -> None:
    """The kernel refuses to write, as it does on a full disk."""
    code = (
        "import sys, numpy as np\nfrom mvplda import SufficientStatistics\n"
        "X = np.zeros((100, 64)); X[:, 0] = np.arange(100)\n"
        "SufficientStatistics.from_arrays(X, {'a': np.arange(100)}).save(sys.argv[1])\n"
    )
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))  # noqa: E731
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "s.safetensors")],
        preexec_fn=limit,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "s.safetensors was not written" in done.stderr
    assert list(tmp_path.iterdir()) == []


# -- batches ------------------------------------------------------------------


def accumulated(X: Any, labels: Any, sizes: list[int], **options: Any) -> SufficientStatistics:
    sums, classes = (
        Accumulator(X.shape[1], VIEWS, **options),
        GrowingClasses(VIEWS),
    )
    start = 0
    for size in sizes:
        rows = slice(start, start + size)
        codes = {name: label_codes(column[rows]) for name, column in labels.items()}
        sums.add(X[rows], classes.number(codes))
        start += size
    assert start == len(X)
    return SufficientStatistics.of(sums, *classes.sorted())


@given(st.lists(st.integers(1, 80), min_size=1, max_size=12), st.integers(0, 5))
def test_batches_give_the_statistics_of_one_pass(sizes: list[int], seed: int) -> None:
    X, labels = corpus(n=sum(sizes), seed=seed)
    found = accumulated(X, labels, sizes)
    close(SufficientStatistics.from_arrays(X, labels, views=VIEWS), found)


@pytest.mark.parametrize("second_moment", ["full", "diagonal"])
def test_blocks_and_compaction_change_nothing(
    monkeypatch: pytest.MonkeyPatch, second_moment: Any
) -> None:
    X, labels = corpus(n=3000)
    monkeypatch.setattr(accumulator.Accumulator, "block_bytes", 1)
    monkeypatch.setattr(accumulator, "PENDING", 10)
    found = accumulated(X, labels, [1000] * 3, second_moment=second_moment)
    close(
        SufficientStatistics.from_arrays(X, labels, views=VIEWS, second_moment=second_moment), found
    )


def test_names_that_do_not_occur_make_no_class() -> None:
    sums, classes = Accumulator(1, ["a"]), GrowingClasses(["a"])
    sums.add(
        np.ones((2, 1)),
        classes.number({"a": LabelCodes(np.array(["x", "y", "z"]), np.array([2, 0]))}),
    )
    assert SufficientStatistics.of(sums, *classes.sorted()).classes["a"].names.tolist() == [
        "x",
        "z",
    ]


def test_what_an_accumulator_refuses() -> None:
    sums = Accumulator(2, ["a"])
    with pytest.raises(DataError, match="accumulator is empty"):
        SufficientStatistics.of(sums)
    with pytest.raises(DataError, match=r"must have 2 dimensions, .*; got 3"):
        sums.add(np.zeros((1, 3)), {"a": np.zeros(1, dtype=int)})
    with pytest.raises(LabelError, match="1 vectors and 2 labels"):
        sums.add(np.zeros((1, 2)), {"a": np.zeros(2, dtype=int)})
    with pytest.raises(
        DataError, match="vectors 0 to 1 are too large: their squares overflow float32"
    ):
        sums.add(np.array([[0, 0], [1e30, 0]], dtype=np.float32), {"a": np.zeros(2, dtype=int)})
    with pytest.raises(DataError, match="first in row 1"):
        sums.add(np.array([[0, 0], [np.nan, 0]]), {"a": np.zeros(2, dtype=int)})
    classes = GrowingClasses(["a"])
    classes.number({"a": label_codes(["x"])})
    classes.number({"a": label_codes([1])})
    with pytest.raises(LabelError, match="all text or all numbers; those of 'a'"):
        classes.sorted()
    with pytest.raises(ParameterError, match="'half'"):
        Accumulator(2, ["a"], second_moment="half")


def test_an_accumulator_begins_anew_after_its_result() -> None:
    X, labels = corpus(n=200)
    table = encode_labels(labels, VIEWS)
    sums = Accumulator(X.shape[1], {view: len(table.classes[view]) for view in VIEWS})
    sums.add(X, table.codes)
    first = SufficientStatistics.of(sums, table.classes)
    assert sums.n == 0
    sums.add(X, table.codes)
    identical(first, SufficientStatistics.of(sums, table.classes))


def test_numbers_of_two_precisions_are_summed_about_one_origin() -> None:
    X, labels = corpus(n=200)
    origin = X[:10].mean(axis=0)  # which float32 does not hold
    table = encode_labels(labels, VIEWS)
    sums = Accumulator(X.shape[1], {view: len(table.classes[view]) for view in VIEWS})
    sums.origin = origin
    half = (
        {view: table.codes[view][:100] for view in VIEWS},
        {view: table.codes[view][100:] for view in VIEWS},
    )
    sums.add(X[:100], half[0])
    sums.add(X[100:].astype(np.float32), half[1])
    both = np.concatenate([X[:100], X[100:].astype(np.float32).astype(np.float64)])
    expected = SufficientStatistics.from_arrays(both, table).about(sums.origin)
    close(expected, SufficientStatistics.of(sums, table.classes), tolerance=1e-13)


# -- many parts -----------------------------------------------------------------


@pytest.mark.parametrize("second_moment", ["full", "diagonal"])
def test_many_parts_merge_to_the_whole(second_moment: Any) -> None:
    X, labels = corpus()
    parts = [
        SufficientStatistics.from_arrays(x, y, views=VIEWS, second_moment=second_moment)
        for x, y in cut(X, labels, 9)
    ]
    assert len({p.origin.tobytes() for p in parts}) == 9
    whole = SufficientStatistics.from_arrays(X, labels, views=VIEWS, second_moment=second_moment)
    close(whole, merge(parts))
    assert merge(parts[:1]) is parts[0]


def test_merging_is_adding_one_after_the_other() -> None:
    X, labels = corpus()
    parts = [SufficientStatistics.from_arrays(x, y, views=VIEWS) for x, y in cut(X, labels, 4)]
    close(parts[0] + parts[1] + parts[2] + parts[3], merge(parts), tolerance=1e-14)


def test_parts_that_do_not_fit_are_named() -> None:
    X, labels = corpus()
    (x, y), (v, w) = cut(X, labels, 2)
    one = SufficientStatistics.from_arrays(x, y, views=VIEWS)
    numbers = SufficientStatistics.from_arrays(v, {**w, "speaker": np.arange(len(v))}, views=VIEWS)
    with pytest.raises(LabelError, match=r"'speaker' are text and numbers \(a, c\)"):
        merge([one, one, numbers], ["a", "b", "c"])
    with pytest.raises(DataError, match=r"got 6 and 2 .*\(a and b\)"):
        merge([one, SufficientStatistics.from_arrays(v[:, :2], w, views=VIEWS)], ["a", "b"])
    with pytest.raises(ParameterError, match="at least one"):
        merge([])


def _index_out_of_range(tensors: dict[str, Any], about: dict[str, Any]) -> None:
    tensors["pair/0/indices"] = tensors["pair/0/indices"] + 10**6


BROKEN: dict[str, Any] = {
    "index": _index_out_of_range,
    "character of a name": lambda t, a: t["names/phrase"].__setitem__(3, 255),
    "length of names": lambda t, a: t.__setitem__("names/phrase", t["names/phrase"][:-1]),
    "negative index": lambda t, a: t["pair/0/indices"].__setitem__(0, -5),
    "ends": lambda t, a: t["pair/0/indptr"].__setitem__(1, 10**9),
    "cell": lambda t, a: t["cells/speaker:phrase"].__setitem__((0, 0), 99),
    "nan": lambda t, a: t["sums/speaker"].__setitem__((0, 0), np.nan),
    "width": lambda t, a: t.__setitem__("total", t["total"][:-1]),
    "count": lambda t, a: t["counts/phrase"].__setitem__(0, 0.0),
    "pairs": lambda t, a: a.__setitem__("pairs", a["pairs"][:-1]),
    "classes": lambda t, a: a["classes"]["speaker"].__setitem__("anonymous", 7),
    "n": lambda t, a: a.__setitem__("n", 0),
}


@pytest.mark.parametrize("what", BROKEN)
def test_what_does_not_fit_together_is_refused(tmp_path: Path, what: str) -> None:
    """With a right fingerprint: a sparse product of an index out of range ends the process."""
    rng = np.random.default_rng(0)
    labels = {"speaker": np.arange(40) % 5, "phrase": np.array(list("abcd"))[np.arange(40) // 10]}
    statistics = SufficientStatistics.from_arrays(
        rng.normal(size=(40, 3)), labels, views=("speaker", "phrase", "speaker:phrase")
    )
    tensors, about = state_of(statistics, SufficientStatistics)
    tensors = {name: array.copy() for name, array in tensors.items()}
    BROKEN[what](tensors, about)
    path = tmp_path / "broken.safetensors"
    path.write_bytes(b"".join(packed_chunks(tensors, about)))
    with pytest.raises(FileFormatError, match="cannot be loaded"):
        SufficientStatistics.load(path)
