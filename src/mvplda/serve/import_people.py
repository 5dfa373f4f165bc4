"""Import of people into the service, from a folder of `mvplda setup` or a file of `mvplda profiles`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from ..exceptions import DataError
from ..voice.profile_file import ProfileBook
from .cells import Cell
from .keys import Caller
from .schemas import Consent, Problem
from .service import Service
from .store import Transaction
from .tables import IDS_OF_USER

# Caller of these changes in the audit.
IMPORT = Caller("import", "admin")

# Largest difference, per component, of two contributions computed from one vector: stored ones are rounded.
ROUNDING = 4


@dataclass
class ImportReport:
    """Result of an import.

    Parameters
    ----------
    created : number of new profiles
    added : number of recordings that were added
    present : number of recordings that were skipped, because the service has them already
    refused : {name of the person: reasons why recordings, or the whole person, were refused}
    doubtful : {name of the person: phrases whose voice differs from that of the person's other phrases}; they were
        enrolled, because no other person of the file has a nearer voice
    """

    created: int = 0
    added: int = 0
    present: int = 0
    refused: dict[str, list[str]] = field(default_factory=dict)
    doubtful: dict[str, list[str]] = field(default_factory=dict)

    def refuse(self, name: str, reason: str) -> None:
        """Add a reason for which recordings of the person `name` were refused."""
        self.refused.setdefault(name, []).append(reason)


@dataclass(frozen=True)
class Person:
    """Recordings of one person.

    Parameters
    ----------
    name : the person's userId
    X : (n, width) vectors of the extractor, one per recording
    phrases, sessions : per recording the name of its phrase and of its session; empty: without a name
    """

    name: str
    X: NDArray[np.float32]
    phrases: Sequence[str]
    sessions: Sequence[str]


class VoiceComparison:
    """Compares the voice of a recording with all people of a file of profiles.

    Parameters
    ----------
    service : service whose model compares voices
    people : people of the file
    """

    def __init__(self, service: Service, people: Sequence[Person]) -> None:
        self._model = service.model
        self._people = people

    def is_nearest(self, person: Person, x: NDArray[np.float32], phrase: str) -> bool:
        """Return whether a recording's voice is nearer to `person` than to all other people of the file.

        Recordings of the same phrase are left out for `person`, because they may be mislabelled too.

        Parameters
        ----------
        person : person whose recording this is according to the file
        x : (width,) vector of the recording
        phrase : phrase of the recording

        Returns
        -------
        whether the person is nearest; False if the person has no recordings of other phrases
        """
        others = [row for row, other in enumerate(person.phrases) if other != phrase]
        if not others:
            return False
        profiles = [self._cells(person.X[others])]
        profiles += [self._cells(other.X) for other in self._people if other.name != person.name]
        test = self._model.contributions(x[None])[0]
        llrs = self._model.speaker_llrs(self._model.side(profiles, False), test)
        return bool(llrs[0] >= llrs.max())

    def _cells(self, X: NDArray[np.float32]) -> list[Cell]:
        """Return the sums of a profile whose recordings have the vectors `X`: one cell without a phrase."""
        return [Cell("", self._model.contributions(X).sum(axis=0), len(X))]


def import_people(
    service: Service, book: ProfileBook, consent: Consent, phrase: str | None = None
) -> ImportReport:
    """Enrol the people of a file of profiles; recordings that the service has already are skipped.

    A person's name in the file is the userId of the profile. An error undoes all changes of one person, and does not
    affect the others.

    Parameters
    ----------
    service : service, or tenant, that gets the profiles
    book : file of profiles
    consent : text that these people agreed to
    phrase : phrase of recordings for which the file names no phrase; None: such recordings are refused

    Returns
    -------
    numbers of profiles and recordings, and the refused and doubtful recordings

    Raises
    ------
    DataError : if the vectors come from another extractor than that of the service
    """
    vectors = book.all_vectors()
    expected = service.model.extractor_name
    if (book.extractor or None) != (expected or None):
        raise DataError(
            f"the profiles in {book.path} are vectors of the extractor {book.extractor or '(unknown)'}; the service "
            f"uses {expected or '(unknown)'}: serve the model with which these profiles were made, or enrol the people "
            "again"
        )
    report = ImportReport()
    people = people_of(book, vectors, phrase)
    voices = VoiceComparison(service, people)
    for person in people:
        before = ImportReport(report.created, report.added, report.present)
        try:
            service.change(IMPORT, _import_person, service, person, consent, report, voices)
        except Problem as problem:
            # its transaction was undone
            report.created, report.added, report.present = (
                before.created,
                before.added,
                before.present,
            )
            report.doubtful.pop(person.name, None)
            report.refuse(person.name, str(problem.detail))
    return report


def people_of(book: ProfileBook, vectors: NDArray[np.float32], phrase: str | None) -> list[Person]:
    """Return the people of a file of profiles, in the order of their names.

    vectors : (n, width) vectors of the file
    phrase : phrase of recordings for which the file names no phrase; None: it stays empty
    """
    rows = sorted(range(len(book.owners)), key=lambda row: book.owners[row])
    people = []
    sessions = book.columns["session"]
    for name, members in groupby(rows, key=lambda row: book.owners[row]):
        chosen = list(members)
        phrases = [book.columns["phrase"][row] or phrase or "" for row in chosen]
        people.append(Person(name, vectors[chosen], phrases, [sessions[row] for row in chosen]))
    return people


def _import_person(
    work: Transaction,
    service: Service,
    person: Person,
    consent: Consent,
    report: ImportReport,
    voices: VoiceComparison,
) -> None:
    """Create the profile of a person unless it exists, and enrol the recordings that it does not have yet.

    report : report whose numbers and lists are updated
    voices : decides whether a phrase is enrolled whose voice differs from that of the person's other phrases
    """
    ids = list(work.run(IDS_OF_USER, user=person.name).scalars())
    if len(ids) > 1:
        detail = f"{len(ids)} profiles have this userId: delete all but one before the import"
        raise Problem(409, "ambiguous", detail)
    if not ids:
        phrase = next(filter(None, person.phrases), None)
        reply = service.profiles.create(work, person.name, phrase, consent)
        ids = [reply.profileId]
        report.created += 1
    stored = stored_vectors(work, service, ids[0])
    for x, phrase, session in zip(person.X, person.phrases, person.sessions, strict=True):
        if is_stored(service, stored, x):
            report.present += 1
            continue
        recording = service.accept_vector(x)

        def confirm(x: NDArray[np.float32] = x, phrase: str = phrase) -> bool:
            is_nearest = voices.is_nearest(person, x, phrase)
            if is_nearest:
                report.doubtful.setdefault(person.name, []).append(phrase)
            return is_nearest

        try:
            arguments = (ids[0], recording, phrase or None, session or None, confirm)
            outcome: object = service.profiles.enrol(work, *arguments)
        except Problem as problem:
            if problem.kind != "full":
                raise
            outcome = problem
        if isinstance(outcome, Problem):
            report.refuse(person.name, f"{phrase}: {outcome.detail}")
        else:
            report.added += 1


def stored_vectors(
    work: Transaction, service: Service, profile: str
) -> Mapping[str, Sequence[NDArray[np.generic]]]:
    """Return {"vectors": [...], "contributions": [...]} of the recordings of a profile.

    ``vectors`` has the stored (width,) vectors. ``contributions`` has the decrypted (rank,) contributions, see
    `Templates`, of recordings whose vector is not stored.
    """
    templates = service.templates
    rows = templates.enrolments(work, profile)
    if not rows:
        return {"vectors": [], "contributions": []}
    key = templates.data_key(work, profile)
    vectors = [(row, templates.vector(row, key)) for row in rows]
    return {
        "vectors": [vector for _, vector in vectors if vector is not None],
        "contributions": [
            templates.contribution(row, key) for row, vector in vectors if vector is None
        ],
    }


def is_stored(
    service: Service, stored: Mapping[str, Sequence[NDArray[np.generic]]], x: NDArray[np.float32]
) -> bool:
    """Return whether a recording with the vector `x` is among those in `stored`, see `stored_vectors`."""
    vector = np.asarray(x, dtype="<f4")
    if any(np.array_equal(vector, other) for other in stored["vectors"]):
        return True
    if not stored["contributions"]:
        return False
    contribution = service.model.contributions(vector[None])[0]
    return any(is_same_contribution(contribution, other) for other in stored["contributions"])


def is_same_contribution(contribution: NDArray[np.generic], stored: NDArray[np.generic]) -> bool:
    """Return whether a new contribution equals a stored one, up to the rounding error of the stored one."""
    return contribution.shape == stored.shape and bool(
        np.allclose(
            contribution.astype(np.float64), stored.astype(np.float64), rtol=1e-9, atol=ROUNDING
        )
    )
