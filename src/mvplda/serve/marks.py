"""Marks of recordings that were enrolled or scored, by which later copies are recognised."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy import bindparam

from ..exceptions import DataError
from ..voice.fingerprint import Fingerprint
from .keys import keyed_mark
from .recordings import ProcessedRecording
from .store import DAY, Transaction
from .tables import MARKS
from .templates import Templates

# Largest number of earlier recordings, the newest of the profile, with which a recording is compared: about 0.3 s.
MOST_COMPARED = 500

MARK_TIME = (
    sa.select(MARKS.c.at)
    .where(MARKS.c.profile == bindparam("name"))
    .where(MARKS.c.mark == bindparam("mark"))
)
FINGERPRINTS = (
    sa.select(MARKS.c.mark, MARKS.c.fingerprint)
    .where(MARKS.c.profile == bindparam("name"))
    .where(MARKS.c.fingerprint.is_not(None))
    .order_by(MARKS.c.at.desc())
    .limit(MOST_COMPARED)
)
DELETE_OLD_MARKS = MARKS.delete().where(MARKS.c.at < bindparam("oldest"))
DELETE_OLD_MARKS_OF = DELETE_OLD_MARKS.where(MARKS.c.profile == bindparam("name"))
# text for its ON CONFLICT, which both databases understand
PUT_MARK = sa.text(
    "INSERT INTO marks (profile, mark, at, fingerprint) VALUES (:name, :mark, :at, :fingerprint) "
    "ON CONFLICT DO NOTHING"
)


class Marks:
    """Stored marks of recordings that were enrolled or scored.

    A mark has a keyed hash of the samples, which recognises equal recordings, and an encrypted fingerprint, which
    recognises changed copies.

    Parameters
    ----------
    templates : data keys and encryption
    """

    def __init__(self, templates: Templates) -> None:
        self.templates = templates
        self.settings = templates.settings

    def is_copy(self, work: Transaction, name: str, recording: ProcessedRecording) -> bool:
        """Return whether a recording is equal to an earlier one of the profile `name`, or a changed copy of it.

        Vectors are never copies. `CopyTest` describes which changes are recognised.
        """
        if not recording.digest:
            return False
        key = self.templates.data_key(work, name)
        mark = keyed_mark(key, recording.digest)
        if work.value(MARK_TIME, name=name, mark=mark) is not None:
            return True
        if recording.copy_test is None:
            return False
        return recording.copy_test.is_copy(self._fingerprints(work, name, key))

    def put(self, work: Transaction, name: str, recording: ProcessedRecording) -> None:
        """Store the mark of a recording of the profile `name`, and delete the profile's expired marks.

        Nothing is stored for a vector.
        """
        if not recording.digest:
            return
        work.run(DELETE_OLD_MARKS_OF, name=name, oldest=self._oldest(work))
        key = self.templates.data_key(work, name)
        mark = keyed_mark(key, recording.digest)
        sealed = None
        if recording.copy_test is not None:
            data = recording.copy_test.fingerprint.to_bytes()
            sealed = self.templates.vault.seal(key, data, address(name, mark))
        work.run(PUT_MARK, name=name, mark=mark, at=work.now, fingerprint=sealed)

    def sweep(self, work: Transaction) -> None:
        """Delete all marks that are older than ``marks_days`` days."""
        work.run(DELETE_OLD_MARKS, oldest=self._oldest(work))

    def _oldest(self, work: Transaction) -> float:
        """Return the time before which marks have expired, in seconds since 1970."""
        return work.now - self.settings.marks_days * DAY

    def _fingerprints(self, work: Transaction, name: str, key: bytes) -> list[Fingerprint]:
        """Return the newest fingerprints of the profile `name`, decrypted with its data `key`.

        Raises `DamagedProfile` if one is damaged.
        """
        fingerprints = []
        for row in work.run(FINGERPRINTS, name=name).all():
            try:
                data = self.templates.vault.open(key, row.fingerprint, address(name, row.mark))
                fingerprints.append(Fingerprint.from_bytes(data))
            except (ValueError, DataError) as error:
                raise self.templates.damage(name, "mark of a recording") from error
        return fingerprints


def address(name: str, mark: str) -> str:
    """Return the address of a fingerprint for `Vault.seal`, from the profile id `name` and the keyed hash `mark`."""
    return f"{name} mark {mark}"
