"""Vectors in CSV; ids that are no names."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mvplda.exceptions import FileFormatError
from mvplda.io.vectors import VectorSet, read_columns, read_vectors, write_vectors


def test_vectors_in_csv(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("utt_id,speaker,d0,d1\na,s1,1.5,-2\nb,s2,0.25,3e-2\n")
    vectors = read_vectors(path)
    assert vectors.ids.tolist() == ["a", "b"]
    assert vectors.X.tolist() == [[1.5, -2.0], [0.25, 0.03]]
    assert read_columns(path, ["speaker"])["speaker"].tolist() == ["s1", "s2"]
    write_vectors(tmp_path / "y.csv", vectors)
    again = read_vectors(tmp_path / "y.csv")
    assert (again.X == vectors.X).all()
    assert (again.ids == vectors.ids).all()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("id,a,b\nu,1,2\nv,1,x\n", "line 3"),
        ("id,a\nu,1\nu,2\n", "repeat"),
        ("id,a\nu,nan\n", "NaN"),
        ("id,name\nu,x\n", "no column of numbers"),
        ("id,a\n", "no lines"),
    ],
)
def test_wrong_tables(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "x.csv").write_text(text)
    with pytest.raises(FileFormatError, match=words):
        read_vectors(tmp_path / "x.csv")


def test_an_id_is_not_nan(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", X=np.ones((2, 3)), ids=np.array([1.0, np.nan]))
    with pytest.raises(FileFormatError, match="an id is NaN"):
        read_vectors(tmp_path / "x.npz")


def test_a_set_in_memory_is_as_it_was(tmp_path: Path) -> None:
    kept = VectorSet(np.array(["a"]), np.ones((1, 2)))
    write_vectors(tmp_path / "x.csv", kept)
    assert (tmp_path / "x.csv").read_text().splitlines()[0] == "id,x0,x1"
