"""Pictures of scores: what is drawn is what was counted."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ndtr

from mvplda.metrics import evaluate

pytest.importorskip("matplotlib", reason="matplotlib is not installed")

from mvplda.report import figures


def test_a_det_curve_is_of_errors_that_happened():
    """Every point is a share of the trials; the curve ends where one error is left, on its own count of either axis."""
    rng = np.random.default_rng(0)
    scores = {"TC": rng.normal(3, 1, 40), "IW": rng.normal(-1, 1, 5000), "IC": rng.normal(1, 1, 60)}
    kinds = np.repeat(list(scores), [len(values) for values in scores.values()])
    result = evaluate(np.concatenate(list(scores.values())), kinds)
    _, axes = figures.figure(4, 4)
    figures.det_curves(axes, scores, result)
    drawn = {line.get_label().split()[0]: line for line in axes.get_lines() if not line.get_label().startswith("_")}
    for kind, line in drawn.items():
        others = [values for name, values in scores.items() if name != "TC" and kind in (name, "Total")]
        false_alarm, miss = (ndtr(np.asarray(x)) for x in (line.get_xdata(), line.get_ydata()))
        for rate, size in ((miss, 40), (false_alarm, sum(map(len, others)))):
            assert np.allclose(rate * size, np.round(rate * size), atol=1e-6)
            assert round(rate.min() * size) >= 1
            assert rate.max() < 1
        accepted = np.sort(np.concatenate(others))[-1]
        assert miss[-1] == pytest.approx(np.mean(scores["TC"] < accepted), abs=1 / 40 + 1e-9)
    assert ndtr(drawn["IC"].get_xdata()).min() == pytest.approx(1 / 60)
    assert ndtr(drawn["IW"].get_xdata()).min() == pytest.approx(1 / 5000)
    assert "(60)" in drawn["IC"].get_label()


def test_a_det_of_no_error_is_empty():
    scores = {"TC": np.array([3.0, 4.0]), "IW": np.array([-1.0, 0.0, 1.0])}
    _, axes = figures.figure(4, 4)
    figures.det_curves(axes, scores, evaluate(np.concatenate(list(scores.values())), ["TC"] * 2 + ["IW"] * 3))
    lines = [line for line in axes.get_lines() if line.get_linestyle() != ":"]
    assert all(len(line.get_xdata()) == 0 for line in lines)
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [
        "IW (3): EER 0.00 %",
        "Total (3): EER 0.00 %",
    ]
