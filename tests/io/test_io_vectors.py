"""Vector files: every format gives back what was written, and damage is named."""

from __future__ import annotations

import gzip
import io
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import kaldiio
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from text_archives import write_text_archive

from mvplda.exceptions import (
    DataError,
    FileFormatError,
    LabelError,
    MvpldaError,
    ParameterError,
    UnknownExtractorWarning,
)
from mvplda.io.batches import Batch
from mvplda.io.kaldi import read_entry
from mvplda.io.vectors import (
    VectorSet,
    check_vectors_writable,
    open_vectors,
    read_vectors,
    write_vectors,
)
from mvplda.persistence import check_same_extractor

NAMES = ["x.scp", "x.ark", "x.npz", "x.parquet"]
IDS = ["spk1-utt1", "Ünï-语音", "a\u00a0b", "d/e.f:3"]
PLAIN = [IDS[0], IDS[1], IDS[3]]  # kaldiio takes a no-break space for a blank


@pytest.fixture(params=[np.float32, np.float64])
def vectors(request: pytest.FixtureRequest) -> VectorSet:
    X = np.random.default_rng(0).normal(size=(4, 5)).astype(request.param)
    X[0] = [0, -0.0, 1e-30, 1e30, 1 / 3]
    return VectorSet(np.array(IDS), X)


def same(a: VectorSet, b: VectorSet) -> None:
    assert a.ids.tolist() == b.ids.tolist()
    assert a.X.dtype == b.X.dtype
    np.testing.assert_array_equal(a.X, b.X)


@pytest.mark.parametrize("name", NAMES)
def test_round_trip(vectors: VectorSet, tmp_path: Path, name: str) -> None:
    write_vectors(tmp_path / name, vectors)
    same(read_vectors(tmp_path / name), vectors)
    assert not list(tmp_path.glob("*.part"))


@pytest.mark.parametrize("written", ["ark:{}/x", "scp:{}/y.scp"])
def test_kaldi_prefixes(vectors: VectorSet, tmp_path: Path, written: str) -> None:
    write_vectors(written.replace("{}", str(tmp_path)), vectors)
    for file in tmp_path.iterdir():
        same(read_vectors(f"{'scp' if file.suffix == '.scp' else 'ark'}:{file}"), vectors)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_text_archive(vectors: VectorSet, tmp_path: Path, end: str) -> None:
    path = tmp_path / "x.ark"
    write_text_archive(path, vectors)
    path.write_bytes(path.read_bytes().replace(b"\n", end.encode()))
    found = read_vectors(path)
    assert found.ids.tolist() == IDS
    np.testing.assert_array_equal(found.X.astype(vectors.X.dtype), vectors.X)


def test_kaldiio_reads_what_is_written(vectors: VectorSet, tmp_path: Path) -> None:
    vectors = vectors.select(PLAIN)
    write_vectors(tmp_path / "x.scp", vectors)
    for found in (
        dict(kaldiio.load_scp(str(tmp_path / "x.scp"))),
        dict(kaldiio.load_ark(str(tmp_path / "x.ark"))),
    ):
        assert list(found) == PLAIN
        np.testing.assert_array_equal(np.stack(list(found.values())), vectors.X)


@pytest.mark.parametrize("text", [False, True])
def test_what_kaldiio_writes_is_read(vectors: VectorSet, tmp_path: Path, text: bool) -> None:
    vectors = vectors.select(PLAIN)
    rows = dict(zip(PLAIN, vectors.X, strict=True))
    kaldiio.save_ark(str(tmp_path / "x.ark"), rows, scp=str(tmp_path / "x.scp"), text=text)
    for name in ("x.ark", "x.scp"):
        found = read_vectors(tmp_path / name)
        assert found.ids.tolist() == PLAIN
        np.testing.assert_allclose(found.X, vectors.X, rtol=1e-10 if text else 0)


def test_one_row_matrices_are_vectors_and_compressed_ones_are_refused(tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(2, 8)).astype(np.float32)
    rows = {"a": X[:1], "b": X[1:]}
    kaldiio.save_ark(str(tmp_path / "x.ark"), rows)
    np.testing.assert_array_equal(read_vectors(tmp_path / "x.ark").X, X)
    kaldiio.save_ark(str(tmp_path / "x.ark"), rows, compression_method=2)
    with pytest.raises(FileFormatError, match=r"entry 1 \('a'\): .* not compressed.* b'CM"):
        read_vectors(tmp_path / "x.ark")


def test_an_archive_beside_its_script(vectors: VectorSet, tmp_path: Path) -> None:
    write_vectors(tmp_path / "x.scp", vectors)
    path = tmp_path / "x.scp"
    path.write_text(path.read_text().replace(f"{tmp_path}/", "").replace("\n", "\r\n"), newline="")
    same(read_vectors(path), vectors)


def test_archive_on_standard_input(
    vectors: VectorSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_vectors(tmp_path / "x.ark", vectors)
    stream = io.TextIOWrapper(io.BytesIO((tmp_path / "x.ark").read_bytes()))
    monkeypatch.setattr(sys, "stdin", stream)
    same(read_vectors("ark:-"), vectors)


def test_commands_and_pickles_are_not_run(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    (tmp_path / "x.scp").write_text(f"a touch {mark} |\n")
    with pytest.raises(
        FileFormatError, match=r"x\.scp, line 1: 'a .*commands and ranges of rows are not supported"
    ):
        read_vectors(tmp_path / "x.scp")
    with pytest.raises(ParameterError, match="commands are not run"):
        read_vectors(f"ark:touch {mark} |")
    assert not mark.exists()
    kaldiio.save_ark(str(tmp_path / "x.ark"), {"a": np.ones(3)}, write_function="pickle")
    with pytest.raises(
        FileFormatError, match=r"x\.ark, entry 1 \('a'\): expected numbers in brackets"
    ):
        read_vectors(tmp_path / "x.ark")
    np.savez(tmp_path / "x.npz", X=np.ones((1, 2)), ids=np.array([{}], dtype=object))
    with pytest.raises(FileFormatError, match="arrays of Python objects are not supported"):
        read_vectors(tmp_path / "x.npz")


# -- other layouts -------------------------------------------------------


def test_rows_are_numbered_without_ids(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", X=np.ones((3, 2)))
    assert read_vectors(tmp_path / "x.npz").ids.tolist() == ["0", "1", "2"]


def test_an_array_without_ids_is_read_and_not_written(tmp_path: Path) -> None:
    X = np.arange(6.0).reshape(3, 2)
    for order in ("C", "F"):
        np.save(tmp_path / "x.npy", np.asarray(X, order=order))
        found = read_vectors(tmp_path / "x.npy")
        assert found.ids.tolist() == ["0", "1", "2"]
        np.testing.assert_array_equal(found.X, X)
    (tmp_path / "x.npy.gz").write_bytes(gzip.compress((tmp_path / "x.npy").read_bytes()))
    np.testing.assert_array_equal(read_vectors(tmp_path / "x.npy.gz").X, X)
    with pytest.raises(
        ParameterError, match=r"which cannot store ids: write an \.npz file"
    ) as refused:
        write_vectors(tmp_path / "y.npy", found)
    assert ".npy," not in str(refused.value)
    np.save(tmp_path / "flat.npy", np.arange(6.0))
    with pytest.raises(FileFormatError, match=r"numbers \(n, D\); got shape \(6,\)"):
        read_vectors(tmp_path / "flat.npy")
    (tmp_path / "x.npy").write_bytes((tmp_path / "x.npy").read_bytes()[:-1])
    with pytest.raises(FileFormatError, match=r"x\.npy is damaged"):
        read_vectors(tmp_path / "x.npy")


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_batches_of_an_archive_are_its_rows(tmp_path: Path, order: str, save: Any) -> None:
    rng = np.random.default_rng(0)
    X = np.asarray(rng.normal(size=(53, 7)), order=order).astype(">f4")
    ids, speaker = (np.array([f"{start}{i}" for i in range(53)]) for start in "us")
    save(tmp_path / "x.npz", X=X, ids=ids, speaker=speaker)
    reader = open_vectors(tmp_path / "x.npz")
    batches = list(reader.batches(5 * 7 * 4, ("speaker",), True))
    assert [len(batch.X) for batch in batches] == [5] * 10 + [3]
    np.testing.assert_array_equal(np.concatenate([batch.X for batch in batches]), X)
    assert [name for batch in batches for name in batch.ids or ()] == ids.tolist()
    found = np.concatenate([batch.columns["speaker"] for batch in batches])
    assert found.tolist() == speaker.tolist()


def test_a_damaged_archive_is_refused_before_its_last_batch(tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(100, 8))
    np.savez(tmp_path / "x.npz", X=X)
    damaged = bytearray((tmp_path / "x.npz").read_bytes())
    damaged[len(damaged) // 2] ^= 1
    (tmp_path / "x.npz").write_bytes(damaged)
    batches = open_vectors(tmp_path / "x.npz").batches(800, (), True)
    used: list[Batch] = []
    with pytest.raises(FileFormatError, match="damaged"):
        used.extend(batches)
    assert sum(len(batch.X) for batch in used) < 100


def test_a_large_archive_is_never_held_as_a_whole(tmp_path: Path) -> None:
    n, width = 40_000, 256
    for name in ("x.npz", "x.npy"):
        X = np.ones((n, width), dtype=np.float32)
        np.savez(tmp_path / name, X=X) if name == "x.npz" else np.save(tmp_path / name, X)
        size = X.nbytes
        del X
        tracemalloc.start()
        for batch in open_vectors(tmp_path / name).batches(2**20, (), False):
            assert batch.X.shape[1] == width
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < size / 5


@pytest.mark.parametrize("keys", [("X", "ids"), ("vectors", "utt")])
def test_named_arrays(tmp_path: Path, keys: Any) -> None:
    X = np.arange(6.0).reshape(3, 2)
    arrays = {keys[0]: X, keys[1]: np.array([b"a", b"b", b"c"])}
    np.savez(tmp_path / "x.npz", **arrays)
    same(read_vectors(tmp_path / "x.npz"), VectorSet(np.array(["a", "b", "c"]), X))


@pytest.mark.parametrize("kind", ["fixed", "list", "large"])
def test_columns_of_vectors(tmp_path: Path, kind: str) -> None:
    X = np.arange(6, dtype=np.float32).reshape(3, 2)
    types: dict[str, pa.DataType] = {
        "fixed": pa.list_(pa.float32(), 2),
        "list": pa.list_(pa.float32()),
        "large": pa.large_list(pa.float32()),
    }
    table = pa.table(
        {
            "note": ["x", "y", "z"],
            "utt": ["a", "b", "c"],
            "emb": pa.array(X.tolist(), type=types[kind]),
        }
    )
    pq.write_table(table, tmp_path / "x.parquet")
    same(read_vectors(tmp_path / "x.parquet"), VectorSet(np.array(["a", "b", "c"]), X))


# -- select ---------------------------------------------------------------


def test_select(vectors: VectorSet) -> None:
    chosen = vectors.select([IDS[2], IDS[0], IDS[2]])
    assert chosen.ids.tolist() == [IDS[2], IDS[0], IDS[2]]
    np.testing.assert_array_equal(chosen.X, vectors.X[[2, 0, 2]])
    with pytest.raises(LabelError, match="2 id\\(s\\) have no vector; the first is 'nobody'"):
        vectors.select([IDS[0], "nobody", "none", "nobody"])


# -- damage ---------------------------------------------------------------


def small(tmp_path: Path, name: str) -> Path:
    X = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    write = write_text_archive if name == "t.ark" else write_vectors
    write(tmp_path / name, VectorSet(np.array(IDS[:3]), X))
    return tmp_path / name


@pytest.mark.parametrize("name", ["x.ark", "t.ark"])
def test_an_archive_truncated_at_every_byte(tmp_path: Path, name: str) -> None:
    path = small(tmp_path, name)
    data, whole = path.read_bytes(), read_vectors(path)
    ends = [data.index(name_.encode()) for name_ in IDS[1:3]] + [len(data)]
    read = 0
    for kept in range(len(data)):
        path.write_bytes(data[:kept])
        try:
            found = read_vectors(path)
        except FileFormatError as error:
            assert str(path) in str(error)  # noqa: PT017
            continue
        read += 1
        assert min(abs(kept - end) for end in ends) <= (2 if name == "t.ark" else 0)
        np.testing.assert_array_equal(found.X, whole.X[: len(found)])
    assert read == (5 if name == "t.ark" else 2)  # text is whole with or without its line end


def test_a_script_of_an_archive_truncated_at_every_byte(tmp_path: Path) -> None:
    path = small(tmp_path, "x.scp")
    ark = tmp_path / "x.ark"
    data = ark.read_bytes()
    for kept in range(len(data)):
        ark.write_bytes(data[:kept])
        with pytest.raises(FileFormatError, match=r"x\.scp, line"):
            read_vectors(path)


@pytest.mark.parametrize("name", ["x.npz", "x.parquet"])
def test_other_files_truncated(tmp_path: Path, name: str) -> None:
    path = small(tmp_path, name)
    data = path.read_bytes()
    for kept in [*range(0, len(data), max(1, len(data) // 60)), len(data) - 1]:
        path.write_bytes(data[:kept])
        try:
            read_vectors(path)
        except FileFormatError as error:
            assert str(path) in str(error)  # noqa: PT017
        else:
            assert kept > len(data) * 0.9  # padding at the end may be missed
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(FileFormatError, match="damaged or not"):
        read_vectors(path)


@pytest.mark.parametrize("name", NAMES)
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(noise=st.binary(min_size=1, max_size=12), at=st.floats(0, 1), cut=st.integers(0, 12))
def test_noise_ends_in_our_errors(
    tmp_path: Path, name: str, noise: bytes, at: float, cut: int
) -> None:
    path = small(tmp_path, name)
    data = path.read_bytes()
    place = int(at * len(data))
    path.write_bytes(data[:place] + noise + data[place + cut :])
    try:
        read_vectors(path)
    except (MvpldaError, FileNotFoundError) as error:
        assert path.name in str(error) or path.with_suffix(".ids").name in str(error)  # noqa: PT017


@pytest.mark.parametrize("name", NAMES)
def test_files_that_are_not_there(tmp_path: Path, name: str) -> None:
    with pytest.raises(FileNotFoundError, match=name):
        read_vectors(tmp_path / name)
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(FileFormatError, match=name):
        read_vectors(tmp_path / name)
    with pytest.raises(FileNotFoundError, match="does not exist: create it"):
        write_vectors(tmp_path / "none" / name, VectorSet(np.array(["a"]), np.ones((1, 2))))


def test_a_script_with_an_absurd_offset(tmp_path: Path) -> None:
    path = small(tmp_path, "x.scp")
    for offset in ("9" * 18, "9" * 5000):
        path.write_text(f"a {tmp_path}/x.ark:{offset}\n")
        with pytest.raises((FileFormatError, FileNotFoundError), match=r"x\.scp, line 1"):
            read_vectors(path)


def test_an_empty_script(tmp_path: Path) -> None:
    (tmp_path / "x.scp").write_text("\n \r\n")
    with pytest.raises(FileFormatError, match="the script or archive is empty"):
        read_vectors(tmp_path / "x.scp")


def test_widths_numbers_and_names_are_checked(tmp_path: Path) -> None:
    def error(rows: dict[str, Any]) -> str:
        kaldiio.save_ark(str(tmp_path / "x.ark"), rows)
        with pytest.raises(FileFormatError) as caught:
            read_vectors(tmp_path / "x.ark")
        return str(caught.value)

    assert "the vector 'b' has 2 dimensions; the vectors before it have 3" in error(
        {"a": np.ones(3), "b": np.ones(2)}
    )
    rows = {"a": np.ones(2), "b": np.array([1, np.nan]), "c": np.array([np.inf, 0])}
    assert "2 vector(s) contain NaN or infinity; the first is 'b'" in error(rows)
    assert "expected a vector; got a matrix of shape (2, 2)" in error({"a": np.ones((2, 2))})
    (tmp_path / "x.ark").write_text("a [ 1 2 ]\nb [ 1 2 ]\na [ 3 4 ]\nb [ 0 0 ]\n")
    with pytest.raises(FileFormatError, match="2 id\\(s\\) repeat an earlier id; the first is 'a'"):
        read_vectors(tmp_path / "x.ark")
    (tmp_path / "x.ark").write_text("a [ 1 x ]\n")
    with pytest.raises(FileFormatError, match=r"x\.ark, entry 1 \('a'\): expected numbers"):
        read_vectors(tmp_path / "x.ark")


@pytest.mark.parametrize("name", NAMES)
def test_nothing_half_written(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = small(tmp_path, name)
    before = {file: file.read_bytes() for file in tmp_path.iterdir()}
    other = VectorSet(np.array(["p", "q"]), np.ones((2, 2)))

    def full(*_: Any) -> None:
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        with pytest.raises(OSError, match="no space left"):
            write_vectors(path, other)
    bad = [
        VectorSet(np.array(["p", "p"]), np.ones((2, 2))),
        VectorSet(np.array(["p", "q r"]), np.ones((2, 2))),
    ]
    for wrong in bad:
        with pytest.raises(LabelError):
            write_vectors(path, wrong)
    with pytest.raises(DataError, match="contain NaN or infinity"):
        write_vectors(path, VectorSet(np.array(["p"]), np.full((1, 2), np.nan)))
    assert {file: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_an_unknown_suffix(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match=r"a file of vectors with the suffix \.scp"):
        read_vectors(tmp_path / "x.mat")
    with pytest.raises(ParameterError, match=r"a file of vectors with the suffix \.scp"):
        write_vectors(tmp_path / "x.mat", VectorSet(np.array(["a"]), np.ones((1, 2))))


# -- the note of the extractor ------------------------------------------------


@pytest.mark.parametrize("name", [*NAMES, "ark:{}/x.ark", "scp:{}/x.scp"])
def test_a_note_belongs_to_its_vectors(tmp_path: Path, name: str) -> None:
    path = name.replace("{}", str(tmp_path)) if "{}" in name else str(tmp_path / name)
    noted = VectorSet(np.array(["a", "b"]), np.ones((2, 3)), "net-1")
    write_vectors(path, noted)
    assert read_vectors(path).extractor == "net-1"
    write_vectors(path, VectorSet(noted.ids, noted.X, "net-2"))
    assert read_vectors(path).extractor == "net-2"
    write_vectors(path, VectorSet(noted.ids, noted.X))
    assert read_vectors(path).extractor is None
    assert not list(tmp_path.glob("*.extractor"))


def test_an_archive_written_anew_with_its_script_loses_its_note(tmp_path: Path) -> None:
    write_vectors(tmp_path / "x.ark", VectorSet(np.array(["a"]), np.ones((1, 3)), "net-1"))
    write_vectors(tmp_path / "x.scp", VectorSet(np.array(["a"]), np.ones((1, 3))))
    assert read_vectors(tmp_path / "x.ark").extractor is None


def test_a_note_that_cannot_be_written_leaves_the_old_vectors(tmp_path: Path) -> None:
    write_vectors(tmp_path / "x.npz", VectorSet(np.array(["a"]), np.ones((1, 3))))
    before = (tmp_path / "x.npz").read_bytes()
    (tmp_path / "x.npz.extractor").mkdir()
    with pytest.raises(IsADirectoryError, match="is a folder"):
        write_vectors(tmp_path / "x.npz", VectorSet(np.array(["b"]), np.ones((1, 3)), "net-1"))
    assert (tmp_path / "x.npz").read_bytes() == before


def test_a_note_that_is_no_text(tmp_path: Path) -> None:
    write_vectors(tmp_path / "x.npz", VectorSet(np.array(["a"]), np.ones((1, 3)), "net-1"))
    (tmp_path / "x.npz.extractor").write_bytes(b"net-\xff")
    with pytest.raises(
        FileFormatError, match=r"x\.npz\.extractor: expected the name of an extractor as UTF-8"
    ):
        read_vectors(tmp_path / "x.npz")
    (tmp_path / "x.npz.extractor").write_bytes(b" \n")
    assert read_vectors(tmp_path / "x.npz").extractor is None


def test_extractors_are_compared(tmp_path: Path) -> None:
    check_same_extractor("a", "net-1", "b", "net-1")
    check_same_extractor("a", None, "b", None)
    with pytest.raises(DataError, match="the extractor of b is 'net-2', and that of a is 'net-1'"):
        check_same_extractor("a", "net-1", "b", "net-2")
    for sides in (("a", "net-1", "b", None), ("b", None, "a", "net-1")):
        with pytest.warns(
            UnknownExtractorWarning, match="the extractor of a is 'net-1', and that of b is unknown"
        ):
            check_same_extractor(*sides)


def test_whether_vectors_can_be_written_is_known_before(tmp_path: Path) -> None:
    check_vectors_writable(f"scp:{tmp_path}/x.scp")
    with pytest.raises(
        FileNotFoundError,
        match=r"x\.ark cannot be written, because the folder .*none does not exist",
    ):
        check_vectors_writable(f"ark:{tmp_path}/none/x.ark")
    (tmp_path / "x.npz").mkdir()
    with pytest.raises(IsADirectoryError, match=r"x\.npz is a folder"):
        check_vectors_writable(tmp_path / "x.npz")
    with pytest.raises(ParameterError, match=r"a file of vectors with the suffix \.scp"):
        check_vectors_writable(tmp_path / "x.mat")


def test_an_entry_is_read_without_the_rest_of_the_archive(tmp_path: Path) -> None:
    """The time for an archive grows with its length, not with its square."""
    kaldiio.save_ark(
        str(tmp_path / "x.ark"),
        {f"u{i}": np.ones((1, 64)) for i in range(200)},
    )

    class Counted(bytes):
        copied = 0

        def __getitem__(self, key: Any) -> Any:
            found = super().__getitem__(key)
            Counted.copied += len(found) if isinstance(found, bytes) else 1
            return found

    data = Counted((tmp_path / "x.ark").read_bytes())
    place = data.index(b"\0B")
    read_entry(data, place, "x")
    assert Counted.copied < 600
