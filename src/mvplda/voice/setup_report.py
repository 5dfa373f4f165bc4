"""Sentences of the report of `mvplda setup`: error rates of held-out people in plain English."""

from __future__ import annotations

from collections.abc import Sequence

from .. import training
from ..bundle import Bundle
from ..decisions import LOWEST_THRESHOLD, OperatingPoint
from ..exceptions import DataError
from ..kinds import KIND_WORDS, NONTARGET
from ..models.deployment import Deployable
from ..scoring.answer import question_key
from ..scoring.question import Question
from .extractors.extractor import ExtractedVectors

MIN_TRAINING_PEOPLE = 10
"""Minimum number of people to train a model on. With fewer, cosine scores of the extractor have fewer errors."""

ENROLMENT_ADVICE = (
    "Enrol people on two days if you can: it at least halves the errors. "
    "More recordings on one day do not."
)
"""Advice at the end of a report; the numbers are measured on the corpus C-VAU, see results/days."""

SAME_SEX_KINDS = tuple(f"{kind}{training.SAME_SEX}" for kind in ("IC", NONTARGET))
"""Names of the kinds of trial whose impostors have the owner's sex and say the right phrase."""

MAX_LISTED = 10
"""Maximum number of lines in a report about recordings that were left out."""


def skipped_lines(names: Sequence[str], extracted: ExtractedVectors) -> list[str]:
    """Return a line "name: reason" for each recording without a vector.

    names : name of each recording that was passed to the extractor
    extracted : result of the extractor
    """
    without = sorted(set(range(len(names))) - set(extracted.rows))
    reasons = [" ".join(reason.split()) for _, reason in extracted.skipped]
    return [f"{names[row]}: {reason}" for row, reason in zip(without, reasons, strict=True)]


def report_lines(bundle: Bundle, far: float) -> list[str]:
    """Return the lines of a report about the error rates of a model.

    There is one line per question (same speaker and phrase, same speaker, same phrase), and one per warning. If error
    rates could not be measured, the line explains why.

    Parameters
    ----------
    bundle : model with operating points
    far : requested share of false acceptances
    """
    lines = []
    warnings = []
    # a model that adapts to its domain is used with phrases enrolled by name: other points do not apply
    question_keys = [
        question_key(bundle.informed(Question(same)), bundle.views)
        for same in training.questions_about(bundle.views)
    ]
    for key, points in (bundle.points or {}).items():
        if isinstance(bundle.fitted_scorer, Deployable) and key not in question_keys:
            continue
        point = next((point for point in points if point.measured), None)
        if point is None or point.measured is None or point.far is None:
            continue
        lines.append(point_sentence(key, point, far))
        if len(lines) == 1:
            lines += _same_sex_sentences(point)
        # for people of the setup, `evidence_sentence` warns
        if point.basis != training.HELD_OUT:
            warnings.append(point.measured.get("warning"))
    if lines:
        return [*lines, *(f"Warning: {text}." for text in dict.fromkeys(warnings) if text)]
    if "held_out" in (bundle.card or {}):
        return [
            f"No threshold keeps false acceptances below {100 * far:g} %, because some impostors score as high as any "
            "owner. Use longer phrases or other extractors, or record more people."
        ]
    return [
        "Error rates could not be measured: this takes at least 8 people, each with two recordings of the same phrase."
    ]


def evidence_sentence(people: int) -> str:
    """Return a sentence on how small a rate of accepted impostors can be measured.

    people : number of people in the measurement
    """
    limit = 300 / people
    if limit >= 100:
        return f"{people} people are too few to show a share of impostors (rule of three). Measure it on more people."
    return (
        f"{people} people can show shares of impostors down to {limit:.2g} %: with none accepted, up to "
        f"3 / {people} may still be (rule of three). Measure smaller shares on more people."
    )


def _same_sex_sentences(point: OperatingPoint) -> list[str]:
    """Return a sentence on how many impostors of the owner's sex, saying the right phrase, pass.

    point : operating point with measured error rates

    Returns
    -------
    a list with the sentence; empty if the rate was not measured, because no sex is known
    """
    rates = {} if point.measured is None else point.measured["far"]
    kind = next((kind for kind in rates if kind in SAME_SEX_KINDS), None)
    if kind is None:
        return []
    impostors = f"impostors of the owner's sex ({kind_words(kind)})"
    return [f"Same sex: {_of_100(rates[kind], impostors, 'accepted')}."]


def point_sentence(key: str, point: OperatingPoint, far: float) -> str:
    """Return a sentence with the threshold of a question and the error rates measured at it.

    Parameters
    ----------
    key : key of the question, such as "speaker+phrase", see `mvplda.scoring.answer.question_key`
    point : operating point with measured error rates; without them `DataError` is raised
    far : requested share of false acceptances
    """
    measured = point.measured
    if measured is None:
        raise DataError(
            f"no error rates were measured at the operating point of the question {key!r}, from LLR "
            f"{point.threshold:.2f}: pass a point with `measured`"
        )
    rates = measured["far"]
    worst = max(rates, key=lambda kind: rates[kind][0])
    impostors = "impostors"
    if worst != NONTARGET:
        impostors += f" of the worst kind ({kind_words(worst)})"
    promise = point.far or 0.0
    purpose = f"for {100 * promise:g} % false acceptances"
    accepts = {view: half.accept for view, half in point.halves.items()}
    accepts = accepts or {"": point.threshold}
    if promise <= far and max(accepts.values()) <= LOWEST_THRESHOLD:
        # a lower threshold is never used, so fewer impostors are accepted than requested
        purpose = (
            f"the lowest threshold in use, where false acceptances are already {100 * rates[worst][0]:.2g} % "
            f"({100 * far:g} % requested)"
        )
    source = f"{point.people} other people, NOT on yours: {point.basis}"
    if point.basis == training.HELD_OUT:
        source = f"{point.people} of your people: {point.basis}"
    limits = " and ".join(f"{view} LLR {limit:.2f}".lstrip() for view, limit in accepts.items())
    return (
        f"Same {key.replace('+', ' and ').replace('|', ', ')}? Accepts from {limits}, {purpose}: "
        f"{_of_100(measured['frr'], 'owners', 'rejected')}; {_of_100(rates[worst], impostors, 'accepted')}. "
        f"Measured on {source}."
    )


def kind_words(kind: str) -> str:
    """Return the plain name of a kind of trial.

    kind : kind such as "IC", optionally followed by a group of impostors, as in "IC, same sex"; the
        group is part of the result
    """
    name, comma, group = kind.partition(", ")
    return f"{KIND_WORDS.get(name, name)}{comma}{group}"


def _of_100(interval: Sequence[float], people: str, outcome: str) -> str:
    """Return a rate as a number of 100 people, such as "3 of 100 owners are rejected".

    The 95 % interval follows in brackets, unless both ends are the same number.

    Parameters
    ----------
    interval : three numbers from 0 to 1: the rate, and the lower and upper end of its interval
    people, outcome : words for the people and for the outcome, such as "owners" and "rejected"
    """
    rate, low, high = (round(100 * end) for end in interval)
    sentence = f"{rate} of 100 {people} {'is' if rate == 1 else 'are'} {outcome}"
    return sentence if low == high else f"{sentence} (95 % interval: {low} to {high})"
