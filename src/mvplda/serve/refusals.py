"""Refused calls, counted per caller, profile and reason, so that a flood of them makes one audit entry."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy import bindparam

from .keys import Caller
from .store import Transaction
from .tables import REFUSALS
from .times import iso

REFUSED_CALLS = "refuse"
# Seconds between two times at which counted refusals are written to the audit.
WRITE_S = 60.0
# text for its ON CONFLICT, which both databases understand
COUNT = sa.text(
    "INSERT INTO refusals (caller, profile, reason, count, first, last) "
    "VALUES (:caller, :profile, :reason, 1, :now, :now) ON CONFLICT (caller, profile, reason) "
    "DO UPDATE SET count = refusals.count + 1, last = excluded.last"
)
ANY = sa.select(REFUSALS.c.count).limit(1)
# counts that another transaction has locked are written the next time
FREE = sa.select(REFUSALS).order_by(REFUSALS.c.first).with_for_update(skip_locked=True)
DELETE = (
    REFUSALS.delete()
    .where(REFUSALS.c.caller == bindparam("refused_caller"))
    .where(REFUSALS.c.profile == bindparam("refused_profile"))
    .where(REFUSALS.c.reason == bindparam("refused_reason"))
)


def count_refusal(work: Transaction, reason: str, profile: str = "") -> None:
    """Count a refused call of the transaction's caller.

    reason : code of the problem (`Problem.kind`), such as "locked"
    profile : id of the profile; empty: the call is not about a profile
    """
    work.run(COUNT, caller=work.caller.name, profile=profile, reason=reason, now=work.now)


def has_refusals(work: Transaction) -> bool:
    """Return whether there are counted refusals that have not been written to the audit yet."""
    return work.run(ANY).first() is not None


def write_refusals(work: Transaction) -> None:
    """Move the counted refusals to the audit: one entry per caller, profile and reason."""
    caller = work.caller
    for row in work.run(FREE).all():
        work.run(
            DELETE,
            refused_caller=row.caller,
            refused_profile=row.profile,
            refused_reason=row.reason,
        )
        work.caller = Caller(row.caller, "verify")
        detail = {
            "reason": row.reason,
            "count": row.count,
            "first": iso(row.first),
            "last": iso(row.last),
        }
        work.note(REFUSED_CALLS, row.profile or None, None, **detail)
    work.caller = caller
