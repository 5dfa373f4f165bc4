"""Displays in the style of scikit-learn: plotted values agree with the scores."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ndtr

from mvplda.exceptions import DataError
from mvplda.metrics import evaluate

pytest.importorskip("matplotlib", reason="matplotlib is not installed")

import matplotlib.pyplot as plt

from mvplda import plotting
from mvplda.plotting import DetDisplay, ScoreHistogramDisplay, TippettDisplay

plt.switch_backend("Agg")
SCORE_DISPLAYS = [DetDisplay, ScoreHistogramDisplay, TippettDisplay]


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


@pytest.mark.parametrize("display", SCORE_DISPLAYS)
def test_from_predictions_draws_on_the_passed_axes(display):
    _, axes = plt.subplots()
    drawn = display.from_predictions(["TC", "TC", "IC", "IC"], [2.0, -0.5, 0.1, -3.0], ax=axes)
    assert drawn.ax_ is axes
    assert drawn.figure_ is axes.figure
    assert axes.get_lines() or axes.patches


def test_the_cross_of_a_det_plot_marks_the_least_cost():
    kinds = np.arange(5000) % 5 == 0
    scores = np.random.default_rng(0).normal(np.where(kinds, 3.0, 0.0))
    display = DetDisplay.from_predictions(kinds, scores)
    cross = [line for line in display.ax_.get_lines() if line.get_marker() == "x"][-1]
    false_alarm, miss = ndtr(cross.get_xydata())[0]
    least = evaluate(scores, kinds)["Total"]["min_dcf/default"]
    assert display.cost.at(miss, false_alarm) == pytest.approx(least)


def test_a_tippett_curve_is_the_share_of_higher_scores():
    display = TippettDisplay.from_predictions([1, 1, 1, 1, 0], [3.0, 1.0, 2.0, 4.0, 0.0])
    line = display.ax_.get_lines()[0]
    assert line.get_xdata().tolist() == [1, 2, 3, 4]
    assert line.get_ydata().tolist() == [100, 75, 50, 25]


def test_scores_without_non_targets_are_refused():
    with pytest.raises(DataError, match="no non-target scores"):
        DetDisplay.from_predictions([1, 1], [0.0, 1.0])


def test_every_display_is_public():
    assert set(plotting.__all__) == {display.__name__ for display in SCORE_DISPLAYS}


@pytest.mark.parametrize("scores", [[], [np.nan]])
def test_empty_and_nan_scores_are_refused(scores):
    with pytest.raises(DataError, match="target"):
        ScoreHistogramDisplay({"target": scores, "nontarget": [1.0]})
