"""People of a setup as profiles of the service."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

pytest.importorskip("fastapi")

from service_problems import Bench, make_bench, sqlite_store, write_model

from mvplda.cli.program import main
from mvplda.exceptions import DataError
from mvplda.io.vectors import VectorSet
from mvplda.serve.import_people import import_people
from mvplda.serve.schemas import Consent
from mvplda.serve.settings import Settings
from mvplda.voice.profile_file import ProfileBook

PHRASES = ("open the door", "close the door")
CONSENT = Consent(given=True, text="on paper")


@pytest.fixture(params=[True, False], ids=["vectors", "no-vectors"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    settings = Settings(keep_vectors=request.param)
    with make_bench(sqlite_store(tmp_path), settings) as found:
        yield found


def write_book(
    bench: Bench, folder: Path, n_recordings: int = 3, extractor: str = "drawn"
) -> ProfileBook:
    """Two people with two phrases each; the same first recordings whatever their number."""
    vectors, people, phrases = [], [], []
    for speaker in (40, 41):
        for number, phrase in enumerate(PHRASES):
            vectors.append(bench.world.say(speaker, number, n_recordings))
            people += [f"speaker {speaker}"] * n_recordings
            phrases += [phrase] * n_recordings
    X = np.concatenate(vectors).astype(np.float32)
    book = ProfileBook(folder / "profiles.npz")
    ids = np.array([f"{person}#{row}" for row, person in enumerate(people)])
    book.write(VectorSet(ids, X, extractor), {"profile": people, "phrase": phrases})
    return book


def test_people_are_enrolled_once(bench: Bench, tmp_path: Path) -> None:
    book = write_book(bench, tmp_path)
    report = import_people(bench.service, book, CONSENT)
    assert (report.created, report.added, report.present, report.refused) == (2, 12, 0, {})
    again = import_people(bench.service, book, CONSENT)
    assert (again.created, again.added, again.present) == (0, 0, 12)
    people = bench.calls("GET", "/v1/profiles").json()["items"]
    # the order of profiles is random, and tests are drawn in their order
    people.sort(key=lambda person: person["userId"])
    assert [person["userId"] for person in people] == ["speaker 40", "speaker 41"]
    for person in people:
        assert (person["state"], person["enrollmentsCount"]) == ("enrolled", 6)
        assert sorted(person["phrases"]) == sorted(PHRASES)
        speaker = int(person["userId"].split()[1])
        test = bench.world.say(speaker, 0)[0]
        answer = bench.calls.verify(person["profileId"], test, phrase=PHRASES[0]).json()
        assert answer["decision"] == "accept"
        impostor = bench.world.say(81 - speaker, 0)[0]
        answer = bench.calls.verify(person["profileId"], impostor, phrase=PHRASES[0]).json()
        assert answer["decision"] == "reject"
    entries = bench.service.find_audit(100, 2**31 - 1, action="create").items
    assert {entry.caller for entry in entries} == {"import"}


def test_new_recordings_of_a_later_setup_are_added(bench: Bench, tmp_path: Path) -> None:
    book = write_book(bench, tmp_path)
    import_people(bench.service, book, CONSENT)
    more = bench.world.say(40, 0).astype(np.float32)
    vectors = VectorSet(
        np.append(book.vectors.ids, "more#1"), np.concatenate([book.vectors.X, more]), "drawn"
    )
    columns = {
        "profile": [*book.columns["profile"], "speaker 40"],
        "phrase": [*book.columns["phrase"], PHRASES[0]],
    }
    book.write(vectors, columns)
    report = import_people(bench.service, book, CONSENT)
    assert (report.created, report.added, report.present) == (0, 1, 12)


def test_who_cannot_be_imported_is_named_and_does_not_stop_others(
    bench: Bench, tmp_path: Path
) -> None:
    book = write_book(bench, tmp_path)
    gone = bench.calls.create(user="speaker 40")
    bench.calls("POST", f"/v1/profiles/{gone}/opt-out")
    report = import_people(bench.service, book, CONSENT)
    assert (report.created, report.added) == (1, 6)
    assert "opted out" in report.refused["speaker 40"][0]
    # a voice that does not fit the others of its profile
    mixed = np.concatenate([bench.world.say(42, 0, 3), bench.world.say(43, 0, 1)])
    names = {"profile": ["speaker 42"] * 4, "phrase": [PHRASES[0]] * 4}
    book.write(VectorSet(np.arange(4).astype(np.str_), mixed.astype(np.float32), "drawn"), names)
    report = import_people(bench.service, book, CONSENT)
    assert (report.created, report.added) == (1, 3)
    assert "voice differs" in report.refused["speaker 42"][0]


def with_second_phrase(bench: Bench, folder: Path, other: int, shift: float) -> ProfileBook:
    """Speakers 40 and 41; the second phrase of 40 lies a share `shift` of the way towards the voice of `other`."""
    book = write_book(bench, folder)
    X = book.vectors.X.copy()
    towards = bench.world.speakers[other] - bench.world.speakers[40]
    rows = [
        row
        for row, (owner, phrase) in enumerate(zip(book.owners, book.columns["phrase"], strict=True))
        if owner == "speaker 40" and phrase == PHRASES[1]
    ]
    X[rows] += (shift * towards).astype(np.float32)
    book.write(VectorSet(book.vectors.ids, X, "drawn"), dict(book.columns))
    return book


def test_a_further_phrase_in_another_voice_is_enrolled_with_a_warning(tmp_path: Path) -> None:
    with make_bench(sqlite_store(tmp_path)) as bench:
        report = import_people(bench.service, with_second_phrase(bench, tmp_path, 50, 0.5), CONSENT)
    assert report.doubtful == {"speaker 40": [PHRASES[1]]}
    assert (report.added, report.refused) == (12, {})


def test_a_further_phrase_in_the_voice_of_somebody_else_is_refused(tmp_path: Path) -> None:
    with make_bench(sqlite_store(tmp_path)) as bench:
        report = import_people(bench.service, with_second_phrase(bench, tmp_path, 41, 1.0), CONSENT)
    assert report.doubtful == {}
    assert len(report.refused["speaker 40"]) == 3
    assert all("voice differs" in reason for reason in report.refused["speaker 40"])
    assert (report.created, report.added) == (2, 9)


def test_a_profile_takes_as_many_recordings_as_it_may(tmp_path: Path) -> None:
    with make_bench(sqlite_store(tmp_path), Settings(most_enrolments=4)) as bench:
        report = import_people(bench.service, write_book(bench, tmp_path), CONSENT)
        assert (report.created, report.added) == (2, 8)
        assert "4 enrolments already" in report.refused["speaker 40"][0]


def test_vectors_of_another_extractor_are_refused(bench: Bench, tmp_path: Path) -> None:
    book = write_book(bench, tmp_path, extractor="another")
    with pytest.raises(DataError, match="vectors of the extractor another"):
        import_people(bench.service, book, CONSENT)


def test_recordings_without_a_phrase_need_one(bench: Bench, tmp_path: Path) -> None:
    book = write_book(bench, tmp_path)
    book.write(book.vectors, {"profile": book.columns["profile"]})
    report = import_people(bench.service, book, CONSENT)
    assert report.created == report.added == 0
    assert len(report.refused) == 2
    with bench.service.store.read() as work:
        assert work.value("SELECT count(*) FROM profiles") == 0


def test_the_command_imports_a_folder_of_setup(tmp_path: Path) -> None:
    voices = tmp_path / "voices"
    voices.mkdir()
    write_model(voices).rename(voices / "model.safetensors")
    with make_bench(sqlite_store(tmp_path)) as bench:
        write_book(bench, voices, extractor="")

    def run(*arguments: str, code: int = 0) -> str:
        command = ["serve", "--data", str(tmp_path / "data"), "import", str(voices), *arguments]
        result = CliRunner().invoke(main, command)
        assert result.exit_code == code, result.output
        return result.output

    assert "--consent" in run(code=2)
    assert "2 new people, 12 recordings added" in run("--consent", "on paper")
    assert "0 new people, 0 recordings added, 12 recordings were there" in run(
        "--consent", "on paper"
    )
    with sqlite3.connect(tmp_path / "data" / "mvplda.sqlite") as file:
        rows = file.execute("SELECT user_id, consent FROM profiles").fetchall()
    assert len(rows) == 2
    assert all("on paper" in consent for _, consent in rows)
