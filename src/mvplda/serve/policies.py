"""Policies of API keys: options that a verification may or must have, and fields of answers that a caller sees."""

from __future__ import annotations

from .keys import Caller
from .schemas import IdentifyReply, Problem, ProfileReply, Require, VerifyReply, VerifyRequest

# Fields of a decision that keys of the details "verdict" and "halves" see; all other fields are null for them.
VERDICT_FIELDS = (
    *("resultId", "decision", "reason", "advice"),
    *("quality", "modelVersion", "notice"),
)
HALVES_FIELDS = (*VERDICT_FIELDS, "voice", "phrase")
# Reasons that reveal whether voice or phrase did not match, or that a copy was recognised.
REVEALING_REASONS = ("wrong_phrase", "wrong_speaker", "both", "either", "suspected_replay")


def visible_decision(caller: Caller, reply: VerifyReply) -> VerifyReply:
    """Return a decision without the fields that a caller must not see; see `KeyPolicy.detail`."""
    if caller.detail == "evidence":
        return reply
    is_verdict = caller.detail == "verdict"
    fields = VERDICT_FIELDS if is_verdict else HALVES_FIELDS
    hidden = {name: None for name in dict(reply) if name not in fields}
    if is_verdict and reply.reason in REVEALING_REASONS:
        hidden["reason"] = None
    return reply.model_copy(update=hidden)


def visible_profile(caller: Caller, reply: ProfileReply) -> ProfileReply:
    """Return a profile without the fields that a caller must not see.

    Keys of the role verify do not see phrases, because these are part of the secret of a log-in.
    """
    if caller.may("enrol"):
        return reply
    return reply.model_copy(update={"phrases": None, "remainingByPhrase": None})


def visible_identification(caller: Caller, reply: IdentifyReply) -> IdentifyReply:
    """Return an identification without the fields that a caller must not see.

    A caller that does not see evidence gets the identified person as the only candidate, without LLR and probability.
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
    """Check a verification against the policies of its key and of the service.

    If the request has no ``far``, and the key allows less than `usual_far`, the largest ``far`` that the key allows is
    set in the request.

    Parameters
    ----------
    caller : owner of the API key
    request : fields of the verification
    usual_far : share of accepted impostors of calls that choose none; None: the model has none
    require : protection against replayed and synthetic voices that the service requires of all verifications

    Raises
    ------
    Problem : 403 if a policy does not allow the request
    """
    for policy in {caller.policy.require or "none", require}:
        check_protection(policy, request)
    largest = largest_far(caller, usual_far)
    if largest is None:
        return
    if request.far is not None and request.far > largest:
        detail = f"this API key allows a far of {largest:g} at most; got {request.far:g}"
        raise Problem(403, "policy", detail)
    if request.far is None and usual_far is not None and largest < usual_far:
        request.far = largest


def largest_far(caller: Caller, usual_far: float | None) -> float | None:
    """Return the largest share of accepted impostors that a caller may choose; None: any.

    usual_far : share of calls that choose none, also the limit for keys of the role verify without a limit of their own
    """
    if caller.policy.far is None and not caller.may("enrol"):
        return usual_far
    return caller.policy.far


def check_protection(policy: Require, request: VerifyRequest) -> None:
    """Raise a `Problem` (403) if a verification lacks the protection that a policy requires.

    policy : "none", "challenge", "countermeasure", or "either" of the two
    """
    has_challenge = request.challengeId is not None
    has_countermeasure = request.countermeasureLlr is not None
    if policy == "challenge" and not has_challenge:
        detail = (
            "a challenge is required: call POST /v1/challenges, then verify with its challengeId"
        )
        raise Problem(403, "policy", detail, required=policy)
    if policy == "countermeasure" and not has_countermeasure:
        detail = "the result of a countermeasure is required: send it as countermeasureLlr"
        raise Problem(403, "policy", detail, required=policy)
    if policy == "either" and not (has_challenge or has_countermeasure):
        detail = "a challenge or the result of a countermeasure is required: send challengeId or countermeasureLlr"
        raise Problem(403, "policy", detail, required=policy)
