"""Report of a setup: the questions it describes, and the rates that it shows."""

from __future__ import annotations

import numpy as np
from domain_problems import domain_bundle

from mvplda import Bundle, MultiviewPLDA
from mvplda.decisions import OperatingPoint
from mvplda.decisions.operating_points import HalfThreshold, MeasuredRates, RateInterval
from mvplda.models.base import BaseScorer
from mvplda.voice.setup_report import point_sentence, report_lines

RATE = RateInterval(0.01, 0.0, 0.03)
MEASURED: MeasuredRates = {"far": {"IC": RATE}, "frr": RATE}


def point(threshold: float = 2.0, measured: MeasuredRates | None = MEASURED) -> OperatingPoint:
    return OperatingPoint(threshold, far=0.01, measured=measured, people=20)


def plain_model() -> MultiviewPLDA:
    """A scorer without a domain."""
    return MultiviewPLDA.from_parameters(np.zeros(2), {"speaker": np.eye(2)}, np.eye(2))


def thresholds_in_report(scorer: BaseScorer) -> list[str]:
    """Thresholds that are reported for a model with points for unknown and for known phrases."""
    points = {"speaker": [point(1.0)], "speaker|phrase known": [point(3.0)]}
    lines = report_lines(Bundle(None, scorer, points=points), 0.01)
    return [line.split("Accepts from LLR ")[1][:4] for line in lines]


def test_the_worst_kind_has_the_highest_rate_and_not_the_highest_end_of_an_interval() -> None:
    rates = {"IC": RateInterval(0.04, 0.01, 0.06), "TW": RateInterval(0.03, 0.02, 0.09)}
    sentence = point_sentence("speaker", point(measured={"far": rates, "frr": RATE}), 0.01)
    assert "the worst kind (impostor, right phrase)" in sentence
    assert "4 of 100 impostors" in sentence
    assert "(95 % interval: 1 to 6)" in sentence


def test_a_threshold_at_the_lowest_is_described_as_the_lowest_in_use() -> None:
    assert "the lowest threshold in use" in point_sentence("speaker", point(0.0), 0.01)
    assert "for 1 % false acceptances" in point_sentence("speaker", point(0.5), 0.01)


def test_a_model_with_a_domain_is_described_only_for_the_phrases_that_it_has() -> None:
    # no phrase of this model is enrolled by name
    assert thresholds_in_report(domain_bundle().fitted_scorer) == ["1.00"]


def test_a_model_without_a_domain_is_described_for_every_question_with_points() -> None:
    assert thresholds_in_report(plain_model()) == ["1.00", "3.00"]


def test_a_question_without_measured_points_is_not_described() -> None:
    unmeasured = Bundle(None, plain_model(), points={"speaker": [point(measured=None)]})
    (line,) = report_lines(unmeasured, 0.01)
    assert line.startswith("Error rates could not be measured")


def test_thresholds_of_each_view_are_described() -> None:
    halves = {"speaker": HalfThreshold(5.2), "phrase": HalfThreshold(1.0)}
    rates = {"IC, same sex": RateInterval(0.02, 0.0, 0.1), "TW": RateInterval(0.01, 0.0, 0.1)}
    measured: MeasuredRates = {"far": rates, "frr": RATE}
    chosen = OperatingPoint.from_halves(halves, far=0.02, measured=measured, people=20)
    sentence = point_sentence("speaker+phrase", chosen, 0.02)
    assert "Accepts from speaker LLR 5.20 and phrase LLR 1.00, for 2 % false" in sentence
    assert "impostors of the worst kind (impostor, right phrase, same sex)" in sentence
