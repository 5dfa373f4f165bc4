"""Labels in any form become class numbers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from mvplda import (
    PLDA,
    Bundle,
    Committee,
    CosineScorer,
    MultiviewPLDA,
    SufficientStatistics,
    kinds,
    load,
    train,
)
from mvplda.calibration.hypotheses import JOINT_EVIDENCE, NEAR_MATCH_EVIDENCE
from mvplda.exceptions import LabelError
from mvplda.labels import (
    RESERVED_VIEWS,
    base_columns,
    check_view_names,
    distinct,
    encode_labels,
    label_rows,
    row_keys,
)
from mvplda.scoring.answer import hypothesis_name
from mvplda.voice.domain.estimator import DomainPLDA

SPEAKERS = ["bob", "ann", "bob", "cid", "ann"]
PHRASES = [30, 10, 10, 20, 30]


def partition(codes: np.ndarray) -> list[set[int]]:
    """Which vectors are together, whatever their class is called."""
    return sorted((set(np.flatnonzero(codes == c).tolist()) for c in np.unique(codes)), key=min)


def naive_partition(*columns: Any) -> list[set[int]]:
    together: dict[Any, set[int]] = {}
    for i, key in enumerate(zip(*columns, strict=True)):
        together.setdefault(key, set()).add(i)
    return sorted(together.values(), key=min)


FORMS = {
    "arrow table": pa.table({"phrase": PHRASES, "other": [0] * 5, "speaker": SPEAKERS}),
    "arrow batch": pa.record_batch(
        {"phrase": PHRASES, "speaker": pa.array(SPEAKERS).dictionary_encode()}
    ),
    "structured array": np.array(
        list(zip(PHRASES, SPEAKERS, strict=True)), dtype=[("phrase", np.int64), ("speaker", "U3")]
    ),
    "rows of a dict": label_rows({"speaker": SPEAKERS, "phrase": PHRASES}),
    "dict of lists": {"speaker": SPEAKERS, "phrase": PHRASES},
    "dict of arrays": {
        "phrase": np.array(PHRASES),
        "speaker": np.array(SPEAKERS),
        "unused": np.zeros(5),
    },
    "dict of series": {
        "speaker": pd.Series(SPEAKERS, index=list("vwxyz")),
        "phrase": pd.Series(PHRASES),
    },
    "categorical": {
        "speaker": pd.Categorical(SPEAKERS),
        "phrase": pd.Series(PHRASES, dtype="Int64"),
    },
    "dataframe": pd.DataFrame({"phrase": PHRASES, "other": 0, "speaker": SPEAKERS}),
    "object array": np.array([SPEAKERS, PHRASES], dtype=object).T,
    "text array": np.array([SPEAKERS, [str(p) for p in PHRASES]]).T,
    "list of rows": [list(row) for row in zip(SPEAKERS, PHRASES, strict=True)],
    "list of tuples": list(zip(SPEAKERS, PHRASES, strict=True)),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_labels_is_the_same(form: str) -> None:
    table = encode_labels(FORMS[form], ("speaker", "phrase"))
    assert table.views == ("speaker", "phrase")
    assert len(table) == 5
    assert table.classes["speaker"].names.tolist() == ["ann", "bob", "cid"]
    assert [table.classes["speaker"].names[c] for c in table.codes["speaker"]] == SPEAKERS
    assert [str(table.classes["phrase"].names[c]) for c in table.codes["phrase"]] == [
        str(p) for p in PHRASES
    ]


def test_without_views_every_column_is_one() -> None:
    numbered: Any = {"x": SPEAKERS, 3: PHRASES}
    assert encode_labels(numbered).views == ("x", "3")
    assert encode_labels(SPEAKERS).views == ("view0",)
    assert encode_labels(np.array([PHRASES, PHRASES]).T).views == ("view0", "view1")


@pytest.mark.parametrize(
    "column",
    [
        ["b", None, "a", None],
        ["b", float("nan"), "a", None],
        [2, None, 1, None],
        [2, None, 1.0, float("nan")],
        np.array([2.0, np.nan, 1.0, np.nan]),
        pd.Series(["b", pd.NA, "a", None], dtype="string"),
        pd.Series([2, pd.NA, 1, pd.NA], dtype="Int64"),
        np.array(["2020-01-02", "NaT", "2020-01-01", "NaT"], dtype="datetime64[D]"),
        np.ma.masked_array([2, 7, 1, 7], mask=[False, True, False, True]),
        np.array(["b", "", "a", ""]),
    ],
)
def test_a_missing_label_is_a_class_of_its_own(column: Any) -> None:
    table = encode_labels({"v": column})
    assert table.classes["v"].anonymous == 2
    assert len(table.classes["v"]) == 4
    assert table.codes["v"].tolist() == [1, 2, 0, 3]


def test_missing_labels_in_rows_beside_text() -> None:
    """NumPy alone would make the text 'nan' of it, and one class of all such vectors."""
    table = encode_labels([("x", float("nan")), ("y", "p"), (None, float("nan"))], ("a", "b"))
    assert table.classes["b"].names.tolist() == ["p"]
    assert (table.classes["a"].anonymous, table.classes["b"].anonymous) == (1, 2)


@pytest.mark.parametrize("view", ["a:b", "b:a", "a:c", "a:b:c"])
def test_interaction_classes_are_the_combinations_that_occur(view: str) -> None:
    rng = np.random.default_rng(0)
    labels = {name: rng.integers(0, 4, size=30) for name in "abc"}
    table = encode_labels(labels, ("a", view))
    parts = view.split(":")
    assert partition(table.codes[view]) == naive_partition(*(labels[p].tolist() for p in parts))
    cells = table.classes[view].cells
    assert cells is not None
    for i, code in enumerate(table.codes[view]):
        assert [table.classes[p].names[c] for p, c in zip(parts, cells[code], strict=True)] == [
            labels[p][i] for p in parts
        ]


def test_a_vector_without_a_label_is_alone_in_every_interaction() -> None:
    table = encode_labels({"a": ["x", "x", None, None], "b": [1, 1, 1, 1]}, ("a", "b", "a:b"))
    assert partition(table.codes["a:b"]) == [{0, 1}, {2}, {3}]


@pytest.mark.parametrize("step", [1, 2**40])
def test_row_keys_tell_rows_apart(step: int) -> None:
    rng = np.random.default_rng(0)
    columns = [step * rng.integers(0, 3, size=40) for _ in range(3)]
    assert partition(row_keys(columns)) == naive_partition(*(c.tolist() for c in columns))


def test_base_columns_in_order_of_mention() -> None:
    assert base_columns(["b:a", "c", "a"]) == ("b", "a", "c")


@pytest.mark.parametrize(
    ("labels", "views", "words"),
    [
        (None, ("a",), "requires y to be passed"),
        ({"a": [1, 2]}, ("a", "b"), r"no column for the view 'b'; their columns are \['a'\]"),
        ({"a": [1, 2], "b": [1]}, None, "different lengths"),
        ({"a": ["x", 1]}, None, r"all text or all numbers.*int.*str"),
        ({"a": [2**70, 1]}, None, "64-bit"),
        ({"a": [(1, 2), (3, 4)]}, None, r"one-dimensional; got shape \(2, 2\)"),
        ({"a": "text"}, None, "got 'text'"),
        ({"a": 5}, None, "got 5"),
        ({}, None, "there is no view"),
        ({"a:b": [1, 2]}, None, "rename the column"),
        ([[1, 2], [3]], None, "list"),
        (np.zeros((2, 2, 2)), None, r"got \(2, 2, 2\)"),
        (np.zeros((4, 3)), ("a", "b"), r"3 column\(s\).*need 2: \['a', 'b'\]"),
    ],
)
def test_wrong_labels_are_named(labels: Any, views: Any, words: str) -> None:
    with pytest.raises(LabelError, match=words):
        encode_labels(labels, views)


@pytest.mark.parametrize("views", [("",), ("a:",), ("a:a",), ("a", "b", "a"), ("a:b", "b:a"), (3,)])
def test_wrong_view_names_are_refused(views: Any) -> None:
    with pytest.raises(LabelError):
        check_view_names(views)


@pytest.mark.parametrize(
    "empty", [["a", "", "b", ""], [b"a", b"", b"b", b""], ["a", "", "b", None]]
)
def test_empty_text_names_no_class(empty: Any) -> None:
    classes = encode_labels({"speaker": empty}).classes["speaker"]
    assert (len(classes.names), classes.anonymous) == (2, 2)
    assert encode_labels({"speaker": np.array(empty)}).classes["speaker"].anonymous == 2


def test_rows_of_labels_keep_what_is_missing() -> None:
    rows = label_rows({"speaker": ["ann", None, "bob"], "phrase": [1.0, 2.0, np.nan]})
    assert len(rows) == 3
    table = encode_labels(rows[[2, 1, 0]])
    assert table.classes["speaker"].anonymous == table.classes["phrase"].anonymous == 1
    assert table.codes["speaker"].tolist() == [1, 2, 0]
    for wrong in ({"a": [1, 2], "b": [1]}, {"a": [[1, 2], [3, 4]]}, {}):
        with pytest.raises(LabelError):
            label_rows(wrong)


@pytest.mark.parametrize(
    "values",
    [
        np.array([-128, 127, 0, 127, -128] * 60, dtype=np.int8),
        np.array([255, 0, 3], dtype=np.uint8),
        np.array([2**64 - 1, 2**64 - 3, 2**64 - 1], dtype=np.uint64),
        np.array([-(2**63), -(2**63) + 2]),
        np.array([-(2**63), 2**63 - 1]),
        np.array([], dtype=np.int64),
        np.array([True, False, True]),
        np.array(["b", "a", "b"]),
    ],
    ids=str,
)
def test_distinct_values_are_those_of_numpy(values: Any) -> None:
    names, places, counts = distinct(values)
    expected = np.unique(values, return_inverse=True, return_counts=True)
    assert names.dtype == values.dtype
    assert names.tolist() == expected[0].tolist()
    assert places.tolist() == expected[1].tolist()
    assert counts.tolist() == expected[2].tolist()


WRONG_VIEWS = [
    *RESERVED_VIEWS,
    "Nothing",
    "TC",
    "s+p",
    "a|b",
    " speaker",
    "room ",
    "a\tb",
    "a\nb",
    "",
]
X = np.random.default_rng(0).normal(size=(40, 4))


def two_views(name: str) -> dict[str, np.ndarray]:
    return {"speaker": np.arange(40) % 8, name: np.arange(40) // 10}


FITS: dict[str, Callable[[str], Any]] = {
    "labels": lambda name: MultiviewPLDA().fit(X, two_views(name)),
    "views": lambda name: MultiviewPLDA(["speaker", name]).fit(X, two_views(name)),
    "interaction": lambda name: MultiviewPLDA(["speaker", name, f"speaker:{name}"]).fit(
        X, two_views(name)
    ),
    "prior": lambda name: MultiviewPLDA(prior="isotropic").fit(X, two_views(name)),
    "PLDA": lambda name: PLDA().fit(X, {name: np.arange(40) % 8}),
    "cosine": lambda name: CosineScorer().fit(X, two_views(name)),
    "cosine views": lambda name: CosineScorer(views=[name]).fit(X),
    "committee": lambda name: Committee({"one": MultiviewPLDA(prior="isotropic")}).fit(
        X, two_views(name)
    ),
    "bundle": lambda name: Bundle(None, MultiviewPLDA(prior="isotropic")).fit(X, two_views(name)),
    "train": lambda name: train(X, two_views(name)),
    "statistics": lambda name: SufficientStatistics.from_arrays(X, two_views(name)),
    "parameters": lambda name: MultiviewPLDA.from_parameters(
        np.zeros(4), {"speaker": np.eye(4), name: np.eye(4)}, np.ones(4)
    ),
    "domain": lambda name: DomainPLDA({"a": (2, "speaker"), "b": (2, name)}).fit(
        X, two_views(name)
    ),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("fit", FITS)
@pytest.mark.parametrize("name", WRONG_VIEWS)
def test_names_that_results_use_are_refused_for_views(name: str, fit: str) -> None:
    with pytest.raises(LabelError, match=r"a view cannot be called|the name of a view must be"):
        FITS[fit](name)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["recording", "a/b", "pass phrase", "téléphone", "1", "a=b"])
def test_other_names_of_views_are_kept(name: str, tmp_path: Path) -> None:
    bundle = Bundle(None, MultiviewPLDA(prior="isotropic")).fit(X, two_views(name))
    expected = bundle.hypotheses(X[:2], X[2:4])
    assert list(expected) == [("speaker", name), ("speaker",), (name,), ()]
    bundle.save(tmp_path / "x.safetensors")
    again = load(tmp_path / "x.safetensors")
    for hypothesis, shares in again.hypotheses(X[:2], X[2:4]).items():
        np.testing.assert_array_equal(shares, expected[hypothesis])


def test_every_name_that_results_use_is_reserved() -> None:
    names = {
        JOINT_EVIDENCE,
        NEAR_MATCH_EVIDENCE,
        kinds.SPOOF,
        kinds.NOTHING_SAME,
        hypothesis_name(()),
        "noise",
    }
    names |= {kind.lower() for kind in (*kinds.TARGETS, *kinds.NONTARGETS)}
    assert names == set(RESERVED_VIEWS)
