"""Policies of API keys: permitted options of a verification, and the fields of the answer that a caller sees."""

from __future__ import annotations

from .keys import Caller
from .schemas import IdentifyReply, Problem, ProfileReply, Require, VerifyReply, VerifyRequest

# Fields of a decision by the detail of a key; the others are null.
VERDICT_FIELDS = (
    *("resultId", "decision", "reason", "advice"),
    *("quality", "modelVersion", "notice"),
)
HALVES_FIELDS = (*VERDICT_FIELDS, "voice", "phrase")
# Reasons that reveal which half of a recording did not fit, or that a copy was recognised.
REVEALING_REASONS = ("wrong_phrase", "wrong_speaker", "both", "either", "suspected_replay")


def visible_decision(caller: Caller, reply: VerifyReply) -> VerifyReply:
    """Return the part of a decision that a caller may see."""
    if caller.detail == "evidence":
        return reply
    is_verdict = caller.detail == "verdict"
    fields = VERDICT_FIELDS if is_verdict else HALVES_FIELDS
    hidden = {name: None for name in dict(reply) if name not in fields}
    if is_verdict and reply.reason in REVEALING_REASONS:
        hidden["reason"] = None
    return reply.model_copy(update=hidden)


def visible_profile(caller: Caller, reply: ProfileReply) -> ProfileReply:
    """Return the part of a profile that a caller may see: phrases are part of the secret of a log-in."""
    if caller.may("enrol"):
        return reply
    return reply.model_copy(update={"phrases": None, "remainingByPhrase": None})


def visible_identification(caller: Caller, reply: IdentifyReply) -> IdentifyReply:
    """Return the part of an identification that a caller may see.

    Without evidence, only the identified person is a candidate, without LLR and probability.
    """
    if caller.detail == "evidence":
        return reply
    candidates = [
        candidate.model_copy(update={"llr": None, "probability": None})
        for candidate in reply.candidates
        if candidate.profileId == reply.identified
    ]
    return reply.model_copy(update={"candidates": candidates, "noneOfThem": None})


def check_request(
    caller: Caller, request: VerifyRequest, usual_far: float | None, require: Require
) -> None:
    """Apply the policies of key and service to a verification; raise if it is not allowed.

    usual_far : share of impostors that is accepted if the request has none
    require : policy of the service
    """
    for policy in {caller.policy.require or "none", require}:
        check_protection(policy, request)
    largest = largest_far(caller, usual_far)
    if largest is None:
        return
    if request.far is not None and request.far > largest:
        raise Problem(403, "policy", f"this key may choose far up to {largest:g}")
    if request.far is None and usual_far is not None and largest < usual_far:
        request.far = largest


def largest_far(caller: Caller, usual_far: float | None) -> float | None:
    """Return the largest share of impostors that a caller may choose; None: any.

    Without a policy, the role verify may choose no larger share than the usual one.
    """
    if caller.policy.far is None and not caller.may("enrol"):
        return usual_far
    return caller.policy.far


def check_protection(policy: Require, request: VerifyRequest) -> None:
    """Raise if a verification lacks the protection against replayed and synthetic voices that a policy requires."""
    has_challenge = request.challengeId is not None
    has_countermeasure = request.countermeasureLlr is not None
    if policy == "challenge" and not has_challenge:
        detail = "a verification needs a challenge: POST /v1/challenges, then send its challengeId"
        raise Problem(403, "policy", detail, required=policy)
    if policy == "countermeasure" and not has_countermeasure:
        detail = "a verification needs the result of a countermeasure: send countermeasureLlr"
        raise Problem(403, "policy", detail, required=policy)
    if policy == "either" and not (has_challenge or has_countermeasure):
        detail = "a verification needs a challengeId or a countermeasureLlr"
        raise Problem(403, "policy", detail, required=policy)
