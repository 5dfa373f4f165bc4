"""Displays in scikit-learn's way: what is drawn is what the model says, whatever way it came."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ndtr

from mvplda import MultiviewPLDA, make_two_views
from mvplda.exceptions import DataError, LabelError
from mvplda.metrics import evaluate, trial_kinds

pytest.importorskip("matplotlib", reason="matplotlib is not installed")

import matplotlib.pyplot as plt

from mvplda import plotting
from mvplda.plotting import (
    DetDisplay,
    ExplainedVarianceDisplay,
    LatentSpaceDisplay,
    ScoreHistogramDisplay,
    TippettDisplay,
)

plt.switch_backend("Agg")
OF_SCORES = [DetDisplay, ScoreHistogramDisplay, TippettDisplay]


@pytest.fixture(scope="module")
def problem():
    X, labels, unseen = make_two_views(20, 6, 5, 20, (5, 4), held_out=8, random_state=0)
    model = MultiviewPLDA(["speaker", "phrase"]).fit(X, labels)
    claimed = {view: own[::3] for view, own in unseen.enrol_labels.items()}
    profiles = model.enrol(unseen.enrol, unseen.ids)
    return model, profiles, unseen.test, trial_kinds(claimed, unseen.test_labels), X, labels


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


def drawn(display):
    """The data of everything on the axes."""
    lines = [np.asarray(line.get_xydata()) for line in display.ax_.get_lines()]
    return [*lines, *(patch.get_path().vertices for patch in display.ax_.patches)]


@pytest.mark.parametrize("display", OF_SCORES)
def test_estimator_and_predictions_draw_the_same(display, problem):
    model, profiles, tests, kinds, *_ = problem
    one = display.from_estimator(model, tests, kinds, profiles=profiles)
    two = display.from_predictions(kinds, model.llr(profiles, tests))
    assert one.figure_ is one.ax_.figure
    assert len(drawn(one)) == len(drawn(two)) > 0
    for a, b in zip(drawn(one), drawn(two), strict=True):
        np.testing.assert_array_equal(a, b)


def test_axes_that_are_given_are_used(problem):
    model, profiles, tests, kinds, *_ = problem
    _, axes = plt.subplots()
    assert DetDisplay.from_estimator(model, tests, kinds, profiles=profiles, ax=axes).ax_ is axes


def test_the_cross_of_a_det_is_its_least_cost():
    kinds = np.arange(5000) % 5 == 0
    scores = np.random.default_rng(0).normal(np.where(kinds, 3.0, 0.0))
    display = DetDisplay.from_predictions(kinds, scores)
    cross = [line for line in display.ax_.get_lines() if line.get_marker() == "x"][-1]
    false_alarm, miss = ndtr(cross.get_xydata())[0]
    least = evaluate(scores, kinds)["Total"]["min_dcf/default"]
    assert display.cost.at(miss, false_alarm) == pytest.approx(least)


def test_a_tippett_curve_is_the_share_above():
    display = TippettDisplay.from_predictions([1, 1, 1, 1, 0], [3.0, 1.0, 2.0, 4.0, 0.0])
    line = display.ax_.get_lines()[0]
    assert line.get_xdata().tolist() == [1, 2, 3, 4]
    assert line.get_ydata().tolist() == [100, 75, 50, 25]


def test_shares_of_the_variance(problem):
    model = problem[0]
    display = ExplainedVarianceDisplay.from_estimator(model)
    widths = [bar.get_width() for bar in display.ax_.patches]
    assert widths == pytest.approx([100 * x for x in model.explained_variance_ratio_.values()])


def test_latent_space(problem):
    model, *_, X, labels = problem
    display = LatentSpaceDisplay.from_estimator(model, X, labels, view="phrase")
    first = model.views_["speaker"]
    np.testing.assert_array_equal(display.latents, model.transform(X)[:, [first, first + 1]])
    assert len(display.ax_.collections) == 6
    assert len(display.ax_.get_legend().get_texts()) == 6


def test_kind_errors(problem):
    model, *_, X, labels = problem
    with pytest.raises(LabelError, match="dimensions of each view: speaker 19, phrase 5"):
        LatentSpaceDisplay.from_estimator(model, X, labels, view="channel")
    with pytest.raises(DataError, match="no non-target scores"):
        DetDisplay.from_predictions([1, 1], [0.0, 1.0])


def test_every_display_is_public():
    assert set(plotting.__all__) == {
        *(own.__name__ for own in OF_SCORES),
        "ExplainedVarianceDisplay",
        "LatentSpaceDisplay",
    }


@pytest.mark.parametrize("scores", [[], [np.nan]])
def test_scores_that_are_none_are_refused(scores):
    with pytest.raises(DataError, match="target"):
        ScoreHistogramDisplay({"target": scores, "nontarget": [1.0]})
