"""Pictures of scores: what is drawn is what was counted."""

from __future__ import annotations

import re

import numpy as np
import pytest
from scipy.special import ndtr

from mvplda.metrics import evaluate
from mvplda.metrics.catalogue import Interval
from mvplda.metrics.intervals import Intervals

pytest.importorskip("matplotlib", reason="matplotlib is not installed")

from matplotlib.figure import Figure

from mvplda.plotting import DetDisplay, ScoreHistogramDisplay, SystemsDisplay, TippettDisplay
from mvplda.report import advice, write_report


def test_a_det_curve_is_of_errors_that_happened():
    """Every point is a share of the trials; the curve ends where one error is left, on its own count of either axis."""
    rng = np.random.default_rng(0)
    scores = {"TC": rng.normal(3, 1, 40), "IW": rng.normal(-1, 1, 5000), "IC": rng.normal(1, 1, 60)}
    axes = DetDisplay(scores).plot(Figure().subplots()).ax_
    drawn = {
        line.get_label().split()[0]: line
        for line in axes.get_lines()
        if not line.get_label().startswith("_")
    }
    for kind, line in drawn.items():
        others = [
            values for name, values in scores.items() if name != "TC" and kind in (name, "Total")
        ]
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
    axes = Figure().subplots()
    DetDisplay(scores).plot(axes)
    lines = [line for line in axes.get_lines() if line.get_linestyle() != ":"]
    assert all(len(line.get_xdata()) == 0 for line in lines)
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [
        "IW (3): EER 0.00 %",
        "Total (3): EER 0.00 %",
    ]


def measured(errors):
    """Systems of which only the EER of every kind is known."""
    return {
        system: ({kind: {"eer": eer} for kind, eer in row.items()}, None)
        for system, row in errors.items()
    }


def test_systems_stand_below_each_other():
    """No error is at 0; a kind without trials has no point; intervals are lines."""
    errors = {
        "a": {"IW": 0.0, "IC": 0.02, "TW": np.nan},
        "b": {"IW": 0.01, "IC": 0.0, "TW": np.nan},
    }
    systems = measured(errors)
    around = Intervals({"IC": {"eer": Interval(0.02, 0.01, 0.04)}}, 9)
    systems["a"] = (systems["a"][0], around)
    axes = SystemsDisplay(systems, ("IW", "IC", "TW")).plot(Figure().subplots()).ax_
    points = {line.get_label(): line.get_xdata().tolist() for line in axes.get_lines()}
    assert points["IW"] == [0.0, 1.0]
    assert points["IC"] == [2.0, 0.0]
    assert np.isnan(points["TW"]).all()
    (line,) = axes.collections
    assert line.get_segments()[0][:, 0].tolist() == [1.0, 4.0]
    assert [text.get_text() for text in axes.get_yticklabels()] == ["a", "b"]
    assert axes.get_xlim()[0] < 0 < axes.get_xlim()[1]


def test_a_page_of_a_kind_without_trials_has_a_dash(tmp_path):
    kinds = {
        "TC": np.array([True, False]),
        "IC": np.array([False, True]),
        "TW": np.array([False, False]),
    }
    result = evaluate([2.0, 1.0], kinds)
    by_kind = {"TC": np.array([2.0]), "IC": np.array([1.0])}
    write_report(tmp_path / "page.html", "few", result, by_kind)
    page = (tmp_path / "page.html").read_text()
    text = re.sub(r"<svg.*?</svg>", "", page, flags=re.DOTALL)
    assert "<tr><td>TW</td><td>-</td>" in text
    assert "nan" not in text


def test_a_page_says_its_finding_first_and_what_the_kinds_mean(tmp_path):
    rng = np.random.default_rng(0)
    kinds = np.repeat(["TC", "IW", "IC", "TW"], [40, 200, 100, 60])
    scores = rng.normal(np.select([kinds == "TC", kinds == "IC"], [3.0, 1.0], -2.0))
    result = evaluate(scores, kinds)
    by_kind = {kind: scores[kinds == kind] for kind in ("TC", "IW", "IC", "TW")}
    write_report(tmp_path / "report.html", "a page", result, by_kind)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    eer = {kind: f"{100 * result[kind]['eer']:.2f} %" for kind in ("IC", "Total")}
    assert (
        page.index(f"{eer['Total']} errors") < page.index("What to do next") < page.index("<table>")
    )
    assert "40 targets, 360 impostors. Hardest" in page
    assert f"IC (impostor, right phrase), {eer['IC']}." in page
    assert "There are no intervals: pass the speakers" in page
    threshold = f"<td>{result['Total']['threshold_at_far/0.01']:.3f}</td>"
    assert page.index("Thresholds and their errors") < page.index(threshold)
    assert "<td>too few</td>" in page
    assert "<dt>TW</dt><dd>right speaker, wrong phrase</dd>" in page
    assert '<div class="scroll" tabindex="0"' in page
    assert "<pre>" not in page


@pytest.mark.parametrize(("shift", "calibrated"), [(0.0, True), (5.0, False)])
def test_a_page_says_whether_scores_are_calibrated(shift, calibrated):
    rng = np.random.default_rng(0)
    same = np.repeat([True, False], [3000, 9000])
    llr = rng.normal(np.where(same, 8.0, -8.0), 4.0) + shift
    result = evaluate(llr, same, "sre21")
    sentences = " ".join(advice(result, None))
    assert ("calibrated well enough" in sentences) == calibrated
    assert ("with mvplda calibrate" in sentences) == (not calibrated)
    row = result["Total"]
    assert (
        f"t a target prior of 0.05 (cost sre21) actDCF is {row['act_dcf/sre21']:.3f}" in sentences
    )
    assert f"minDCF {row['min_dcf/sre21']:.3f}" in sentences


def test_calibrated_scores_are_not_called_uncalibrated_at_a_rare_prior():
    """Calibrated LLRs of a limited size, as those of a calibrator with a doubt, are far from minDCF at a low prior."""
    rng = np.random.default_rng(0)
    same = np.repeat([True, False], [3000, 90000])
    llr = rng.normal(np.where(same, 8.0, -8.0), 4.0)
    doubt = 0.02
    share = 1 / (1 + np.exp(-llr)) * (1 - doubt) + doubt / 2
    limited = np.log(share / (1 - share))
    result = evaluate(limited, same, ["default", "1,1,0.2"])
    assert result["Total"]["cllr"] < 1.2 * result["Total"]["min_cllr"] + 0.05
    text = " ".join(advice(result, None))
    assert "not calibrated" not in text
    assert "At a target prior of 0.01 (cost default) actDCF is 1.000 and minDCF" in text
    assert f"Bayes' threshold of {np.log(99):.2f} is not the best for these trials." in text


@pytest.mark.parametrize("display", [DetDisplay, ScoreHistogramDisplay, TippettDisplay])
def test_legends_cover_no_data(display):
    rng = np.random.default_rng(0)
    scores = {"TC": rng.normal(2, 1, 300), "IC": rng.normal(-1, 1, 900)}
    fig = Figure(figsize=(6, 5), layout="constrained")
    axes = fig.subplots()
    display(scores).plot(axes)
    fig.canvas.draw()
    assert axes.get_legend().get_window_extent().y1 < axes.get_window_extent().y0
