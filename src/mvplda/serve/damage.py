"""Profiles with unreadable stored data: marks by which all processes leave them out, and a check of all profiles."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import sqlalchemy as sa
from sqlalchemy import bindparam

from .database import UnreadableRows
from .domain import CHANGE_NUMBER
from .schemas import DamagedProfile
from .store import Store, Transaction
from .tables import PROFILES, EnrolmentRow, ProfileRow
from .templates import Templates

# Number of profiles that the check reads at a time.
PAGE = 200
# Largest number of damaged items of a profile in one audit entry.
NAMED = 5

PROFILE_PAGE = (
    sa.select(PROFILES)
    .where(PROFILES.c.id > bindparam("after"))
    .where(PROFILES.c.state != "deleted")
    .order_by(PROFILES.c.id)
    .limit(PAGE)
)
# Rows that another connection has locked are left out, so that the caller that found the damage does not wait.
FREE = (
    sa.select(PROFILES)
    .where(PROFILES.c.id.in_(bindparam("names", expanding=True)))
    .order_by(PROFILES.c.id)
    .with_for_update(skip_locked=True)
)
SET_DAMAGED = (
    PROFILES.update()
    .where(PROFILES.c.id == bindparam("name"))
    .values(
        damaged=bindparam("at"),
        # a damaged version may be the largest possible number
        version=sa.case((PROFILES.c.version < 2**30, PROFILES.c.version + 1), else_=1),
    )
)


def mark_profiles(work: Transaction, found: Mapping[str, str]) -> set[str]:
    """Mark profiles as damaged in the database, and write audit entries about them.

    Parameters
    ----------
    work : transaction that writes
    found : {profile id: name of the damaged data, such as "recording 2"}

    Returns
    -------
    ids whose marks need not be set again: those in `found`, except profiles that another connection has locked
    """
    names = sorted(found)
    rows = work.rows(ProfileRow, FREE, names=names)
    for row in rows:
        if row.damaged is None and row.state not in ("opted_out", "deleted"):
            set_mark(work, row.id, work.now)
            work.note("damaged", row.id, None, what=found[row.id])
    # without a row the profile is locked by another connection, or it never existed
    existing = set(work.run(EXISTING, names=names).scalars())
    return {row.id for row in rows} | (set(names) - existing)


EXISTING = sa.select(PROFILES.c.id).where(PROFILES.c.id.in_(bindparam("names", expanding=True)))


def set_mark(work: Transaction, name: str, at: float | None) -> None:
    """Mark the profile `name` as damaged, or remove its mark.

    at : time at which the damage was found, in seconds since 1970; None: remove the mark

    The version of the profile increases, so that cached sums of its recordings are read again.
    """
    work.run(SET_DAMAGED, name=name, at=at)
    work.changed.add(name)


@dataclass
class CheckReport:
    """Result of a check of the whole database.

    Parameters
    ----------
    profiles, recordings : numbers of profiles and recordings that were checked
    damaged : {profile id: names of its data that cannot be read}
    keyless : ids of profiles without a data key
    repaired : ids of profiles that were marked as damaged and can be read again
    held : ids of profiles whose marks could not be changed, because another connection has locked their rows
    """

    profiles: int = 0
    recordings: int = 0
    damaged: dict[str, list[str]] = field(default_factory=dict)
    keyless: list[str] = field(default_factory=list)
    repaired: list[str] = field(default_factory=list)
    held: list[str] = field(default_factory=list)


def check_database(store: Store, templates: Templates) -> CheckReport:
    """Read and decrypt every row of every profile, and correct the marks of damaged profiles.

    A service may run at the same time: each fault is confirmed on the locked row before the profile is marked.
    """
    report = CheckReport()
    after = ""
    while True:
        with store.read() as work:
            rows = work.rows(ProfileRow, PROFILE_PAGE, after=after)
        if not rows:
            return report
        faults, unreadable = _find_page_faults(store, templates, rows, report)
        after = rows[-1].id
        suspects = [row.id for row in rows if row.id in faults or row.damaged is not None]
        if suspects:
            _confirm(store, templates, suspects, unreadable, report)


def _find_page_faults(
    store: Store, templates: Templates, rows: Sequence[ProfileRow], report: CheckReport
) -> tuple[dict[str, list[str]], set[str]]:
    """Check one page of profiles, and count them in the report.

    Returns
    -------
    faults : {profile id: names of its data that cannot be read}
    unreadable : ids of profiles with rows that the database itself cannot read
    """
    try:
        with store.read() as work:
            return find_faults(work, templates, rows, report), set()
    except UnreadableRows:
        unreadable = templates.take_damage()
    report.profiles += len(unreadable)
    with store.read() as work:
        readable = [row for row in rows if row.id not in unreadable]
        faults = find_faults(work, templates, readable, report)
    return faults | {name: [what] for name, what in unreadable.items()}, set(unreadable)


def _confirm(
    store: Store,
    templates: Templates,
    names: Sequence[str],
    unreadable: set[str],
    report: CheckReport,
) -> None:
    """Lock suspected profiles, check them again, correct their damage marks, and add the result to the report.

    names : ids of the suspected profiles
    unreadable : ids of those whose rows the database itself cannot read; they are not read again
    """
    with store.write() as work:
        rows = work.rows(ProfileRow, FREE, names=names)
        faults = find_faults(work, templates, [row for row in rows if row.id not in unreadable])
        faults |= {name: [UNREADABLE] for name in unreadable}
        for row in rows:
            found = faults.get(row.id, [])
            if NO_KEY in found:
                report.keyless.append(row.id)
            elif found:
                report.damaged[row.id] = found
            if found == [CHANGE]:
                # the row is numbered again at the end of the transaction
                work.changed.add(row.id)
            elif found and NO_KEY not in found and row.damaged is None:
                set_mark(work, row.id, work.now)
                work.note("damaged", row.id, None, what=", ".join(found[:NAMED]))
            elif not found and row.damaged is not None:
                set_mark(work, row.id, None)
                work.note("repaired", row.id)
                report.repaired.append(row.id)
    report.held += sorted(set(names) - {row.id for row in rows})
    # every finding has been marked or reported
    templates.take_damage()


NO_KEY = "no data key"
CHANGE = "change"
UNREADABLE = "recordings"


def find_faults(
    work: Transaction,
    templates: Templates,
    rows: Sequence[ProfileRow],
    report: CheckReport | None = None,
) -> dict[str, list[str]]:
    """Return {profile id: names of its data that cannot be read}; profiles without faults are left out.

    rows : rows of the profiles to check
    report : report in which profiles and recordings are counted; None: they are not counted
    """
    living = [row for row in rows if row.state != "deleted"]
    last_change = int(work.value(CHANGE_NUMBER))
    names = [row.id for row in living]
    keys = templates.store.all_keys(names, work)
    recordings: dict[str, list[EnrolmentRow]] = {}
    for recording in templates.all_enrolments(work, names):
        recordings.setdefault(recording.profile, []).append(recording)
    faults = {}
    for row in living:
        members = sorted(recordings.get(row.id, []), key=lambda recording: recording.number)
        found = list(_faults(work, templates, row, keys.get(row.id), members))
        if not is_change(row.change, last_change):
            found.append(CHANGE)
        if found:
            faults[row.id] = found
        if report is not None:
            report.profiles += 1
            report.recordings += len(members)
    return faults


def is_change(number: object, last: int) -> bool:
    """Return whether a stored value can be a change number: a whole number from 0 to the latest one, `last`."""
    return isinstance(number, int) and 0 <= number <= last


def _faults(
    work: Transaction,
    templates: Templates,
    row: ProfileRow,
    wrapped: bytes | None,
    recordings: Sequence[EnrolmentRow],
) -> Iterable[str]:
    """Yield the names of a profile's data that cannot be read, such as "consent" or "recording 2".

    wrapped : encrypted data key of the profile; None: it has no data key
    recordings : rows of the profile's recordings
    """
    yield from row.damaged_columns()
    for name, read in (("phrases", row.texts), ("consent", row.consent_record)):
        try:
            read()
        except ValueError:
            yield name
    if row.state == "opted_out":
        return
    if wrapped is None:
        yield NO_KEY
        return
    try:
        key = templates.unwrap(work, row.id, wrapped)
    except DamagedProfile as problem:
        yield problem.what
        return
    for recording in recordings:
        if not recording.is_readable():
            yield f"recording {recording.number}"
            continue
        try:
            templates.contribution(recording, key)
            templates.vector(recording, key)
        except DamagedProfile as problem:
            yield problem.what
