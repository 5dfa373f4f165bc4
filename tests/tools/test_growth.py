"""The benchmark of growth: exponents, and a reason for each above the limit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import growth

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks/results/growth.json"


def test_exponents_of_the_largest_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work that takes the square of one size and does not depend on the other."""

    def point(operation: str, sizes: dict[str, int], rounds: int) -> tuple[float, float]:
        return 1e-6 * sizes["n"] ** 2, 3.0 * sizes["n"]

    monkeypatch.setattr(growth, "point", point)
    usual = {"n": 100, "m": 5}
    by_n = growth.growth("work", usual, "n", 1)
    assert by_n["sizes"] == [100, 200, 400]
    assert (by_n["exponent of time"], by_n["exponent of memory"]) == (2.0, 1.0)
    assert by_n["reason"] == "unknown"
    by_m = growth.growth("work", usual, "m", 1)
    assert (by_m["exponent of time"], by_m["exponent of memory"]) == (0.0, 0.0)
    assert "reason" not in by_m


@pytest.mark.parametrize("operation", [name for name in growth.OPERATIONS if name != "setup"])
def test_every_operation_runs(operation: str) -> None:
    sizes = {"vectors": 200, "classes": 20, "views": 2, "dimension": 12, "rank": 4}
    small = {name: sizes.get(name, 30) for name in growth.OPERATIONS[operation]}
    seconds, memory = growth.point(operation, small, 1)
    assert seconds >= 0
    assert memory > 0


@pytest.mark.skipif(not RESULTS.exists(), reason="growth was not measured")
def test_whatever_grows_faster_than_the_limit_has_a_reason() -> None:
    rows = json.loads(RESULTS.read_text())["growth"]
    assert {(row["operation"], row["axis"]) for row in rows} == {
        (name, axis) for name, sizes in growth.OPERATIONS.items() for axis in sizes
    }
    for row in rows:
        if max(row["exponent of time"], row["exponent of memory"]) > growth.LIMIT:
            assert (row["operation"], row["axis"]) in growth.REASONS, row
