"""Operations of the service, independent of HTTP; each runs in one transaction of the database."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

import sqlalchemy as sa
from numpy.typing import ArrayLike
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from ..voice.spoof_detector import load_spoof_detector
from .audit import AuditReport, audit_entry, open_audit, snapshot
from .damage import mark_profiles
from .database import RowHeld, UnreadableRows
from .idempotency import Answer, IdempotentCall, IdempotentCalls
from .index import SpeakerSearch
from .keys import Caller, KeyRing, MasterKey, Vault
from .model import Model
from .profiles import ProfileStore
from .recordings import ProcessedRecording, process_recording
from .refusals import WRITE_S, count_refusal, has_refusals, write_refusals
from .schemas import AuditPage, IdentifyReply, ModelInfo, Problem, ProfileReply, VerifyReply
from .settings import Settings
from .store import DAY, SERVICE, MasterKeyChanged, Store, Transaction
from .tables import ANSWERS, AUDIT, CHALLENGES, RATES, AuditRow
from .templates import Templates
from .verifier import Attempt, Verifier

log = logging.getLogger("mvplda.serve")
Result = TypeVar("Result")
Arguments = ParamSpec("Arguments")
# Errors of a database that does not answer in time.
NO_ANSWER = (OperationalError, InterfaceError, PoolTimeout)
# Seconds before another try to store marks of damaged profiles.
MARK_S = 1.0
# Number of tries of an operation that fails because of damaged rows of other profiles.
REPEATS = 3
# Seconds between two deletions of expired rows, such as old audit entries.
CLEAN_UP_S = 3600.0


class Service:
    """Operations of the service on one database: profiles, verification, identification and audit.

    Parameters
    ----------
    store : database
    master : master keys, or a single master key
    model : model and extractor
    settings : settings of the service; None: defaults and environment

    Raises
    ------
    ParameterError : if a master key of the database is missing
    """

    def __init__(
        self,
        store: Store,
        master: KeyRing | MasterKey,
        model: Model,
        settings: Settings | None = None,
    ) -> None:
        settings = settings or Settings()
        vault = Vault(master)
        store.bind(vault.masters)
        self.store = store
        self.model = model
        self.settings = settings
        self.templates = Templates(store, vault, settings)
        store.audit = open_audit(store, self.templates.vault)
        self.idempotency = IdempotentCalls(settings.answers_s, store.is_postgres)
        self.profiles = ProfileStore(self.templates, model)
        self.verifier = Verifier(self.profiles, self.idempotency)
        self.index = SpeakerSearch(self.profiles)
        # a missing file is reported at the start
        self._detector = load_spoof_detector() if settings.detector else None
        self._clean_up_at = 0.0
        self._write_at = 0.0
        self._mark_at = 0.0

    # -- input ---------------------------------------------------------------

    def process(
        self, data: bytes, prompt: tuple[str, ...] = (), *, detects_spoofs: bool = True
    ) -> ProcessedRecording:
        """Return the vector and quality of a recording, or the reason for which it cannot be used.

        Parameters
        ----------
        data : bytes of an audio file
        prompt : prompted words, whose probability is computed; empty: none
        detects_spoofs : whether to use the spoof detector, if the service has one

        Raises
        ------
        Problem : 422 if the service has no extractor
        """
        extractor = self.model.extractor
        if extractor is None:
            detail = "this service has no extractor and cannot read sound: send a vector in JSON"
            raise Problem(422, "no-extractor", detail)
        text_model = self.model.text_model
        detector = self._detector if detects_spoofs else None
        return process_recording(extractor, data, self.settings, text_model, prompt, detector)

    def accept_vector(self, vector: ArrayLike) -> ProcessedRecording:
        """Return a (width,) vector as a processed recording; raise a `Problem` (422), see `Model.check_vector`."""
        return ProcessedRecording(self.model.check_vector(vector))

    # -- transactions --------------------------------------------------------

    def change(
        self,
        caller: Caller,
        operation: Callable[Concatenate[Transaction, Arguments], Result],
        *arguments: Arguments.args,
        **options: Arguments.kwargs,
    ) -> Result:
        """Run operation(transaction, *arguments, **options) in one transaction, and return its result.

        An exception undoes all changes.

        caller : caller in the audit entries of the transaction
        """
        self._clean_up()

        def run() -> Result:
            with self.store.write(caller) as work:
                return operation(work, *arguments, **options)

        return self._run(run)

    def change_once(
        self,
        call: IdempotentCall | None,
        caller: Caller,
        operation: Callable[Concatenate[Transaction, Arguments], Result],
        *arguments: Arguments.args,
        **options: Arguments.kwargs,
    ) -> Result:
        """Run an operation like `change`, but only once per Idempotency-Key; otherwise return the stored answer.

        call : call with its Idempotency-Key, under which the answer is stored; None: the operation always runs
        caller : caller in the audit entries of the transaction
        """

        def run_once(work: Transaction) -> Result:
            stored = self.idempotency.claim(work, call)
            if stored is not None:
                return cast("Result", stored)
            answer = operation(work, *arguments, **options)
            self.idempotency.put(work, call, answer)
            return answer

        return self.change(caller, run_once)

    def stored_answer(self, call: IdempotentCall) -> Answer | None:
        """Return the stored answer to a call with an Idempotency-Key; None if the call is new."""
        with self.store.read() as work:
            return self.idempotency.find(work, call)

    def _run(self, operation: Callable[[], Result]) -> Result:
        """Run operation(), return its result, and mark the damaged profiles that it found.

        The operation is repeated if unreadable rows of other profiles (`UnreadableRows`) or a change of the master key
        stopped it. After `REPEATS` attempts, a `Problem` (503) is raised.
        """
        try:
            for _ in range(REPEATS):
                with suppress(UnreadableRows, MasterKeyChanged):
                    return operation()
                self.mark_damaged()
        finally:
            self.mark_damaged()
        detail = (
            "the database cannot read some of its rows: nothing was changed. Its operator should run "
            "`mvplda serve check`"
        )
        raise Problem(503, "database", detail, wait=2)

    def verify(self, attempts: Sequence[Attempt]) -> list[VerifyReply | Exception]:
        """Decide attempts on different profiles in one transaction.

        If the transaction fails, each attempt is decided separately, so that one failure does not affect the others.

        Returns
        -------
        the reply to each attempt, or the exception with which it is refused, in the order of the attempts
        """
        try:
            return [*self.change(SERVICE, self.verifier.verify, attempts)]
        except Exception as error:
            is_everybodys = isinstance(error, NO_ANSWER) or (
                isinstance(error, Problem) and error.status_code == 503
            )
            if len(attempts) == 1 or is_everybodys:
                return [error for _ in attempts]
        return [outcome for attempt in attempts for outcome in self.verify([attempt])]

    def identify(self, *arguments: Any) -> IdentifyReply:
        """Return SpeakerSearch.identify(*arguments), and mark damaged profiles that it finds."""
        return self._run(partial(self.index.identify, *arguments))

    def warm(self) -> None:
        """Adapt the model to its domain and load all voices, so that the first request is not slow."""
        self._run(self.index.warm)

    def mark_damaged(self) -> None:
        """Mark in the database the profiles that `Templates.damage` lists, so that all processes leave them out.

        Marks that cannot be stored now, because a row is locked or the database fails, are stored by a later call.
        """
        found = self.templates.take_damage()
        if not found:
            return
        if time.monotonic() < self._mark_at:
            self.templates.put_damage_back(found)
            return
        done: set[str] = set()
        try:
            with self.store.write() as work:
                done = mark_profiles(work, found)
        except (DBAPIError, PoolTimeout, Problem):
            log.exception(
                "damaged profiles cannot be marked in the database now: next try in %g s", MARK_S
            )
        later = {name: what for name, what in found.items() if name not in done}
        if later:
            self._mark_at = time.monotonic() + MARK_S
            self.templates.put_damage_back(later)

    def erase(
        self, name: str, state: str, caller: Caller, call: IdempotentCall | None = None
    ) -> ProfileReply:
        """Erase a profile from the database and from SQLite's write-ahead log.

        Parameters
        ----------
        name : id of the profile
        state : "opted_out" keeps name and consent; "deleted" erases them too
        caller : caller in the audit
        call : call with an Idempotency-Key; None: the request has none

        Raises
        ------
        Problem : 404 or 410 if there is no such profile, 503 if the erasure is not complete
        """
        try:
            reply = self.change_once(call, caller, self.profiles.erase, name, state)
        except (DBAPIError, PoolTimeout, Problem) as error:
            if isinstance(error, RowHeld) or getattr(error, "status_code", 500) < 500:
                raise
            problem = self._unfinished_erasure(name)
            if problem is None:
                raise
            raise problem from error
        self.store.truncate_logs()
        return reply

    def _unfinished_erasure(self, name: str) -> Problem | None:
        """Return the problem (503) of an erasure that failed after a part was done; None if nothing was changed.

        That can happen if the data keys have a separate database: the data key is destroyed first, and stays destroyed
        if the erasure of the other data fails.
        """
        if self.store.key_database is self.store.database:
            return None
        try:
            is_destroyed = self.store.get_key(name) is None
        except (DBAPIError, PoolTimeout):
            detail = "the databases do not answer: it is unknown whether the voice is erased; send the call again"
            return Problem(503, "erasure", detail, wait=2)
        if not is_destroyed:
            return None
        detail = (
            "the voice is erased, because its data key is destroyed; the name and other data are not erased yet: "
            "send the call again"
        )
        return Problem(503, "erasure", detail, wait=2)

    def refuse(self, caller: Caller, problem: Problem) -> None:
        """Count a call that exceeded the limits of its API key; the counts are written to the audit later.

        problem : the refusal of the call; refusals with the same `kind` are counted together
        """
        with self.store.write(caller) as work:
            count_refusal(work, problem.kind)

    def describe(self) -> ModelInfo:
        """Return the answer to GET /v1/model: the model, and the thresholds that decide by default."""
        point = self.verifier.point()
        return ModelInfo(
            **dict(self.model.describe()),
            threshold=point.threshold,
            rejectThreshold=point.reject,
            far=point.far,
        )

    def usual_far(self) -> float | None:
        """Return the share of impostors that may be accepted if a call does not choose it; None: there is none."""
        return self.settings.far or self.verifier.point().far

    def find_audit(self, top: int, after: int, **columns: str | None) -> AuditPage:
        """Return one page of the audit, newest first, including the counted refusals, which are written to it first.

        Parameters
        ----------
        top : largest number of entries
        after : id of the last entry of the page before; entries with smaller ids are returned
        columns : {column: value} that the returned entries have; a value of None allows all
        """
        query = sa.select(AUDIT).where(AUDIT.c.id < after)
        for column, value in columns.items():
            if value is not None:
                query = query.where(AUDIT.c[column] == value)
        # one row more than `top` shows whether there is a next page
        query = query.order_by(AUDIT.c.id.desc()).limit(top + 1)
        self.write_refusals()
        with self.store.read() as work:
            rows = work.rows(AuditRow, query)
        items = [audit_entry(row) for row in rows[:top]]
        return AuditPage(items=items, next=items[-1].id if len(rows) > top else None)

    def write_refusals(self) -> None:
        """Write the refusals that were counted so far to the audit."""
        with self.store.read() as work:
            if not has_refusals(work):
                return
        with self.store.write() as work:
            write_refusals(work)

    def verify_audit(self) -> AuditReport:
        """Verify the hashes and numbers of all entries of the audit."""
        assert self.store.audit is not None
        with snapshot(self.store) as work:
            return self.store.audit.verify(work)

    def _clean_up(self) -> None:
        """Write counted refusals to the audit once per minute, and delete expired rows once per hour."""
        now = time.monotonic()
        if now >= self._write_at:
            self._write_at = now + WRITE_S
            self.write_refusals()
        if now < self._clean_up_at:
            return
        self._clean_up_at = now + CLEAN_UP_S
        with self.store.write() as work:
            oldest = work.now - self.settings.audit_days * DAY
            yesterday = work.now - DAY
            assert self.store.audit is not None
            self.store.audit.delete_old(work, oldest)
            work.run(ANSWERS.delete().where(ANSWERS.c.at < work.now - self.settings.answers_s))
            work.run(RATES.delete().where(RATES.c.until < yesterday))
            work.run(CHALLENGES.delete().where(CHALLENGES.c.expires < yesterday))
            self.profiles.marks.sweep(work)
