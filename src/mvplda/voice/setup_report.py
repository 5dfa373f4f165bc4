"""The report of a setup: error rates of held-out people in plain English."""

from __future__ import annotations

from collections.abc import Sequence

from .. import training
from ..bundle import Bundle
from ..decisions import LOWEST_THRESHOLD, OperatingPoint
from ..kinds import KIND_WORDS, NONTARGET
from ..scoring.answer import question_key
from ..scoring.question import Question
from .extractors.extractor import ExtractedVectors

MIN_TRAINING_PEOPLE = 10
"""With fewer people than this no model of them is better than the extractor's cosine."""

ENROLMENT_ADVICE = "Enrol people on two days if you can: this halves the errors or better; more recordings on one day do not."
"""Measured on C-VAU: results/days."""

WIDE_INTERVAL = 30
"""An interval of more people of 100 than this is said to be one."""


MAX_LISTED = 10
"""Lines about recordings that cannot be used."""


def skipped_lines(names: Sequence[str], extracted: ExtractedVectors) -> list[str]:
    """The name of every recording that has no vector, and why."""
    without = sorted(set(range(len(names))) - set(extracted.rows))
    reasons = [" ".join(reason.split()) for _, reason in extracted.skipped]
    return [f"{names[row]}: {reason}" for row, reason in zip(without, reasons, strict=True)]


def report_lines(bundle: Bundle, far: float) -> list[str]:
    """What held-out people showed, in plain English."""
    lines = []
    warnings = []
    # of a model that knows phrases by their names, what holds where they are enrolled so
    used = [
        question_key(bundle.informed(Question(same)), bundle.views)
        for same in training.questions_about(bundle.views)
    ]
    for key, points in (bundle.points or {}).items():
        if bundle.fitted_scorer.has_domain and key not in used:
            continue
        point = next((one for one in points if one.measured), None)
        if point is None or point.measured is None or point.far is None:
            continue
        lines.append(point_sentence(key, point, far))
        warnings.append(point.measured.get("warning"))
    if lines:
        return [*lines, *(f"Mind: {one}." for one in dict.fromkeys(warnings) if one)]
    if "held_out" in (bundle.card or {}):
        return [
            f"No threshold keeps false acceptances under {100 * far:g} %: among these people some recordings that "
            "should be rejected score as high as any. Use longer phrases or other extractors, or record more."
        ]
    return [
        "Errors could not be measured: that takes 8 people or more, with two recordings of the same each."
    ]


def point_sentence(key: str, point: OperatingPoint, far: float) -> str:
    """What was measured at a threshold, in plain English.

    key : of the question, see `mvplda.scoring.answer.question_key`
    far : share of false acceptances that was asked for
    """
    measured = dict(point.measured or {})
    rates = measured["far"]
    worst = max(rates, key=lambda kind: rates[kind][0])
    impostors = "impostors"
    if worst != NONTARGET:
        impostors += f" of the worst kind ({KIND_WORDS.get(worst, worst)})"
    promise = point.far or 0.0
    purpose = f"for {100 * promise:g} % false acceptances"
    if promise <= far and point.threshold <= LOWEST_THRESHOLD:
        # no lower threshold is in use, so that fewer may be accepted than were asked for
        purpose = (
            f"the lowest threshold in use, where false acceptances are already {100 * rates[worst][0]:.2g} % "
            f"({100 * far:g} % was asked for)"
        )
    source = f"{point.people} other people, NOT on yours: {point.basis}"
    if point.basis == training.HELD_OUT:
        source = f"{point.people} of your people: {point.basis}"
    return (
        f"Same {key.replace('+', ' and ').replace('|', ', ')}? Accept from the LLR {point.threshold:.2f} on, "
        f"{purpose}: of 100 owners {_of_100(measured['frr'])} not accepted; "
        f"of 100 {impostors} {_of_100(rates[worst])} accepted "
        f"(measured on {source})."
    )


def _of_100(interval: Sequence[float]) -> str:
    """A rate and its 95 % interval, [estimate, lower end, upper end], in whole people of 100."""
    rate, low, high = (round(100 * end) for end in interval)
    if high - low > WIDE_INTERVAL:
        return f"{rate} were (with so few people it may be any number from {low} to {high})"
    if low == high:
        return f"about {rate} are"
    return f"about {rate} ({low} to {high}) are"
