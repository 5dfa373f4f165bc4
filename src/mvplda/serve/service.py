"""The service without HTTP: objects that have each other, and the transactions around them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from ..exceptions import DataError
from .challenges import Challenges
from .gate import Countermeasure, Heard, hear
from .index import Index
from .keys import Caller, Master, Vault
from .model import Model
from .problems import Problem, no_model
from .profiles import Profiles
from .records import REPEAT_S, Audit, Once, Phrases
from .settings import Settings
from .store import Store
from .tables import answers, audit, challenges, meta
from .templates import DAY, Templates
from .verifier import Ask, Verifier

SWEEP_S = 3600.0
"""Seconds between two deletions of what is too old to be kept."""


class Service:
    """Everything between the endpoints and the database.

    Parameters
    ----------
    model : None: nothing can be decided, but people can still leave
    countermeasure : samples and rate in, LLR of a person against a machine out
    """

    def __init__(
        self,
        store: Store,
        master: Master,
        model: Model | None,
        settings: Settings | None = None,
        countermeasure: Countermeasure | None = None,
    ) -> None:
        settings = settings or Settings()
        store.bind(master.mark)
        if model is not None:
            model.set_secret(master.derived("rotation"))
        vault = Vault(master, marks_secret(store, master))
        self.store = store
        self.model = model
        self.settings = settings
        self.countermeasure = countermeasure
        self.audit = Audit()
        self.templates = Templates(store, vault, settings)
        self.profiles = Profiles(store, vault, self.templates, self.audit, model, settings)
        self.challenges = Challenges(self.profiles, self.audit, settings)
        self.verifier = Verifier(
            self.profiles, self.templates, self.challenges, self.audit, settings
        )
        self.phrases = Phrases(store, self.audit, model)
        self._index: Index | None = None
        if model is not None:
            self._index = Index(store, self.templates, self.profiles, self.audit, model, settings)
        self._sweep_lock = threading.Lock()
        self._swept = 0.0

    @property
    def index(self) -> Index:
        if self._index is None:
            raise no_model()
        return self._index

    # -- what comes in -------------------------------------------------------

    def hear(self, data: bytes) -> Heard:
        """The vector of a recording, or why there is none."""
        model = self.profiles.needed_model()
        if model.extractor is None:
            raise Problem(422, "no-extractor", "this service has no extractor: send vectors")
        return hear(model.extractor, data, self.settings, self.countermeasure)

    def take_vector(self, vector: Any) -> Heard:
        model = self.profiles.needed_model()
        try:
            array = model.checked(np.asarray(vector, dtype=np.float64)[None])[0]
            array = array.astype(np.float32)
            model.share(array[None])  # as it is stored: numbers that are too small are 0 there
        except (DataError, ValueError, TypeError, OverflowError) as error:
            detail = f"a vector is a list of {model.width} finite numbers: {error}"
            raise Problem(422, "vector", detail) from error
        # where a countermeasure is wanted, what it did not hear decides nothing
        reason = None if self.countermeasure is None else "countermeasure_failed"
        return Heard(array, reason=reason)

    # -- transactions --------------------------------------------------------

    def answered(self, once: Once | None) -> dict[str, Any] | None:
        """What a repeated request was answered, before any work is done for it again."""
        if once is None:
            return None
        with self.store.read() as work:
            return once.before(work)

    def change(
        self, once: Once | None, operation: Callable[..., dict[str, Any]], *arguments: Any
    ) -> dict[str, Any]:
        """Do something in one transaction, with the answer to its repetition inside."""
        self._sweep()
        with self.store.write() as work:
            if once is not None:
                before = once.claim(work)
                if before is not None:
                    return before
            answer = operation(work, *arguments)
            if once is not None:
                once.keep(work, answer)
        return answer

    def verify(
        self, name: str, heard: Heard, ask: Ask, caller: Caller, once: Once | None = None
    ) -> dict[str, Any]:
        return self.change(once, self.verifier.verify, name, heard, ask, caller)

    def enrol(
        self,
        name: str,
        heard: Heard,
        phrase: str | None,
        caller: Caller,
        etag: str | None = None,
        once: Once | None = None,
    ) -> dict[str, Any]:
        return self.change(once, self.profiles.enrol, name, heard, phrase, caller, etag)

    def leave(
        self,
        name: str,
        state: str,
        caller: Caller,
        etag: str | None = None,
        once: Once | None = None,
    ) -> dict[str, Any]:
        answer = self.change(once, self.profiles.leave, name, state, caller, etag)
        self.store.settle_files()
        return answer

    def describe(self) -> dict[str, Any]:
        """What GET /v1/model returns."""
        model = self.profiles.needed_model()
        spoofs = self.countermeasure is not None
        return {**model.describe(), **self.verifier.default_point(spoofs)}

    def _sweep(self) -> None:
        """Now and then, delete what is too old to be kept."""
        now = time.monotonic()
        with self._sweep_lock:
            if self._swept and now < self._swept + SWEEP_S:
                return
            self._swept = now
        with self.store.write() as work:
            oldest = work.now - self.settings.audit_days * DAY
            work.execute(audit.delete().where(audit.c.at < oldest))
            work.execute(answers.delete().where(answers.c.at < work.now - REPEAT_S))
            unused = challenges.c.used.is_(None) & (challenges.c.expires < work.now - DAY)
            work.execute(challenges.delete().where(unused))


def marks_secret(store: Store, master: Master) -> bytes:
    """The secret of the marks of recordings, which a rotation of the master key leaves as it is."""
    vault = Vault(master)
    sealed = store.value("marks")
    if sealed is not None:
        return vault.unwrap(bytes.fromhex(sealed), "marks")
    with store.write() as work:
        known = work.execute(meta.select().where(meta.c.name == "marks")).first()
        if known is None:
            sealed = vault.wrap(vault.marks, "marks").hex()
            work.execute(meta.insert().values(name="marks", value=sealed))
    return vault.marks
