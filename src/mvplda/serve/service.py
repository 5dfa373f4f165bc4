"""The service without HTTP: objects that have each other, and the transactions around them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from .index import SpeakerSearch
from .keys import Caller, MasterKey, Vault
from .model import Model, ProcessedRecording, process_recording
from .profiles import ProfileStore, audit_entry
from .schemas import Json, Problem
from .settings import Settings
from .store import DAY, SERVICE, Store, page
from .templates import Templates
from .verifier import Attempt, Verifier

Result = TypeVar("Result")
# Seconds between two deletions of what is too old to be kept.
SWEEP_S = 3600.0


class Service:
    """Everything between the endpoints and the database."""

    def __init__(
        self,
        store: Store,
        master: MasterKey,
        model: Model,
        settings: Settings | None = None,
    ) -> None:
        settings = settings or Settings()
        store.bind(master.mark)
        model.set_secret(master.derived("rotation"))
        self.store = store
        self.model = model
        self.settings = settings
        self.templates = Templates(store, Vault(master), settings)
        self.profiles = ProfileStore(self.templates, model)
        self.verifier = Verifier(self.profiles)
        self.index = SpeakerSearch(self.profiles)
        self._sweep_at = 0.0

    # -- what comes in -------------------------------------------------------

    def hear(self, data: bytes) -> ProcessedRecording:
        """The vector of a recording, or why there is none."""
        extractor = self.model.extractor
        if extractor is None:
            raise Problem(422, "no-extractor", "this service has no extractor: send vectors")
        return process_recording(extractor, data, self.settings)

    def accept_vector(self, vector: Any) -> ProcessedRecording:
        return ProcessedRecording(self.model.take(vector))

    # -- transactions --------------------------------------------------------

    def change(self, caller: Caller, operation: Callable[..., Result], *arguments: Any) -> Result:
        """Do something in one transaction: all of it survives a crash, or nothing does."""
        self._sweep()
        with self.store.write(caller) as work:
            return operation(work, *arguments)

    def verify(self, attempts: Sequence[Attempt]) -> list[Json | Exception]:
        """Decide attempts on different profiles in one transaction.

        Where that fails as a whole, each is tried by itself: one person's fault is not another's.
        """
        try:
            return [*self.change(SERVICE, self.verifier.verify, attempts)]
        except Exception as error:
            if len(attempts) == 1:
                return [error]
        return [outcome for attempt in attempts for outcome in self.verify([attempt])]

    def leave(self, name: str, state: str, caller: Caller) -> Json:
        answer = self.change(caller, self.profiles.leave, name, state)
        self.store.settle_files()
        return answer

    def refuse(self, caller: Caller, problem: Problem) -> None:
        """Write into the audit that a key calls too often."""
        with self.store.write(caller) as work:
            work.note("refuse", reason=problem.kind)

    def describe(self) -> Json:
        """What GET /v1/model returns: the model, and where a call gives no operating point."""
        point = self.verifier.point()
        return {
            **self.model.describe(),
            "threshold": point.threshold,
            "rejectThreshold": point.reject,
            "far": point.far,
        }

    def find_audit(self, top: int, after: int, **wanted: str | None) -> Json:
        """Newest first; `wanted` are values of columns."""
        keys = {column: value for column, value in wanted.items() if value is not None}
        chosen = "".join(f" AND {column} = :{column}" for column in keys)
        query = f"SELECT * FROM audit WHERE id < :after{chosen} ORDER BY id DESC LIMIT :most"
        with self.store.read() as work:
            rows = work.all(query, after=after, most=top + 1, **keys)
        return page([audit_entry(row) for row in rows], top, "id")

    def _sweep(self) -> None:
        """Now and then, delete what is too old to be kept."""
        if time.monotonic() < self._sweep_at:
            return
        self._sweep_at = time.monotonic() + SWEEP_S
        with self.store.write() as work:
            oldest = work.now - self.settings.audit_days * DAY
            work.run("DELETE FROM audit WHERE at < :oldest", oldest=oldest)
            work.run("DELETE FROM rates WHERE until < :oldest", oldest=work.now - DAY)
            work.run("DELETE FROM challenges WHERE expires < :oldest", oldest=work.now - DAY)
