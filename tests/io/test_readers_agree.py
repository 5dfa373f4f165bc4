"""`mvplda train` and `mvplda stats` read the same files in the same way."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from shard_files import VECTOR_COLUMNS

from mvplda import SufficientStatistics
from mvplda.cli import main
from mvplda.distributed.shards import gather
from mvplda.exceptions import FileFormatError, LabelError
from mvplda.io.lists import write_map
from mvplda.io.vectors import VectorSet, read_vectors, write_vectors

N = 60
X = np.random.default_rng(0).normal(size=(N, 4))
IDS = [f"{100 + i}" for i in range(N)]


def archive(path: Path, separator: bytes) -> None:
    lines = [name.encode() + separator + b"[ " + " ".join(map(repr, row.tolist())).encode() + b" ]" for name, row in zip(IDS, X, strict=True)]  # fmt: skip  # noqa: E501
    path.write_bytes(b"\n".join(lines) + b"\n")


def table(path: Path, ids: Any, column: str = "fixed list") -> None:
    vectors, field = VECTOR_COLUMNS[column](X)
    made = pa.table([vectors, ids], schema=pa.schema([field, pa.field("id", ids.type)]))
    pq.write_table(made, path)


NUMBERS = np.array(IDS).astype(int)
FORMS: dict[str, tuple[str, Callable[[Path], None]]] = {
    "tabs": ("x.ark", lambda path: archive(path, b"\t")),
    "blanks": ("x.ark", lambda path: archive(path, b"  ")),
    "whole numbers as ids": ("x.parquet", lambda path: table(path, pa.array(NUMBERS))),
    "large text": ("x.parquet", lambda path: table(path, pa.array(IDS, type=pa.large_string()))),
    "lists": ("x.parquet", lambda path: table(path, pa.array(IDS), "list")),
    "other end first": ("x.npz", lambda path: np.savez(path, X=X.astype(">f8"), ids=IDS)),
    "Fortran order": (
        "x.npz",
        lambda path: np.savez(path, X=np.asfortranarray(X), ids=IDS),
    ),
    "bytes as ids": ("x.npz", lambda path: np.savez(path, X=X, ids=np.array(IDS, dtype="S3"))),
}


@pytest.mark.parametrize("form", FORMS)
def test_both_read_the_same(tmp_path: Path, form: str) -> None:
    name, write = FORMS[form]
    write(tmp_path / name)
    speakers = {i: f"s{k % 7}" for k, i in enumerate(IDS)}
    write_map(tmp_path / "utt2spk", speakers)
    whole = read_vectors(tmp_path / name)
    assert whole.ids.tolist() == IDS
    np.testing.assert_allclose(whole.X, X, atol=0)
    expected = SufficientStatistics.from_arrays(whole.X, {"speaker": list(speakers.values())})
    for size in (100, 2**24):
        found = gather(tmp_path / name, {"speaker": tmp_path / "utt2spk"}, batch_bytes=size)
        assert (found.n, found.counts["speaker"].tolist()) == (
            N,
            expected.counts["speaker"].tolist(),
        )
        np.testing.assert_allclose(
            found.about(expected.origin).sums["speaker"], expected.sums["speaker"], atol=1e-5
        )


NAMES = ["x.scp", "x.ark", "x.npz", "x.parquet"]


def with_a_repeated_id(path: Path) -> None:
    """The ids of rows 5 and 41 are the same."""
    write_vectors(path, VectorSet(np.array(IDS), X))
    ids = [*IDS[:40], IDS[4], *IDS[41:]]
    if path.suffix == ".npz":
        np.savez(path, X=X, ids=ids)
    elif path.suffix == ".parquet":
        table(path, pa.array(ids))
    else:
        path.write_bytes(path.read_bytes().replace(b"140 ", b"104 "))


@pytest.mark.parametrize("name", NAMES)
def test_an_id_that_stands_twice_is_refused_by_both(tmp_path: Path, name: str) -> None:
    with_a_repeated_id(tmp_path / name)
    write_map(tmp_path / "utt2spk", {i: f"s{k % 7}" for k, i in enumerate(IDS)})
    said = r"1 id\(s\) repeat an earlier id; the first is '104' \(entries 5 and 41\)"
    with pytest.raises(FileFormatError, match=said):
        read_vectors(tmp_path / name)
    for size in (100, 2**24):
        with pytest.raises(LabelError, match="entries 5 and 41"):
            gather(tmp_path / name, {"speaker": tmp_path / "utt2spk"}, batch_bytes=size)
    common = [
        str(tmp_path / name),
        "-l",
        f"speaker={tmp_path / 'utt2spk'}",
        "-o",
        str(tmp_path / "out"),
    ]
    errors = [CliRunner().invoke(main, words).stderr for words in (["train", *common, "-v", "speaker=2"], ["stats", *common, "-q"])]  # fmt: skip  # noqa: E501
    assert "entries 5 and 41" in errors[0]
    assert "entries 5 and 41" in errors[1]


def test_an_id_that_stands_twice_is_refused_beside_a_column_of_labels(tmp_path: Path) -> None:
    """Labels need no ids there; the file has them, and a vector would be counted twice. Files may share ids."""
    speakers = np.array([f"s{k % 7}" for k in range(N)])
    np.savez(tmp_path / "good.npz", X=X, ids=IDS, speaker=speakers)
    np.savez(tmp_path / "again.npz", X=X, ids=IDS, speaker=speakers)
    both = [tmp_path / "good.npz", tmp_path / "again.npz"]
    assert gather(both, views=["speaker"]).n == 2 * N
    pq.write_table(pa.table({"vector": list(X), "speaker": speakers}), tmp_path / "x.parquet")
    assert gather(tmp_path / "x.parquet", views=["speaker"]).n == N, (
        "the only column of text is no id"
    )
    ids = [*IDS[:40], IDS[4], *IDS[41:]]
    pq.write_table(
        pa.table({"id": ids, "vector": list(X), "speaker": speakers}), tmp_path / "x.parquet"
    )
    with pytest.raises((FileFormatError, LabelError), match="entries 5 and 41"):
        gather(tmp_path / "x.parquet", views=["speaker"])


@pytest.mark.parametrize("name", NAMES)
def test_a_folder_in_place_of_a_file(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    for read in (read_vectors, lambda path: gather(path, {"speaker": tmp_path / "utt2spk"})):
        with pytest.raises(FileFormatError, match="this is a folder"):
            read(tmp_path / name)
