"""Test whether the service answers, loses no data and recovers if its disk, database or clock fails.

``python benchmarks/service_breaks.py [-o results/service]``, as root for the first two: a disk that is full (a file
system of 3 MiB in memory), one that is read-only, a database that goes away and comes back, a row that another
connection has locked, clocks that are stepped by an hour both ways (``--faketime LIBRARY``, libfaketime of Debian).
Every call must be answered within the time limits of the settings; acknowledged changes must be stored.
"""

# ruff: noqa: E402

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]

import psycopg
import service_postgres
from service_client import Client, Refused
from service_problems import make_world, running_server

from benchmarks.service import MASTER_KEY, add

KEY = {"MVPLDA_MASTER_KEY": MASTER_KEY}
FREE = ("--key-rate", "0", "--profile-rate", "0", "--lock-after", "1000000")


class Person:
    """Somebody who enrols and verifies, and counts what was acknowledged."""

    def __init__(self, url: str) -> None:
        self.client = Client(url, timeout=60)
        self.vectors = iter(make_world().say(40, 0, 5000))
        self.statuses: dict[int, int] = {}
        self.details: set[str] = set()
        self.slowest = 0.0
        self.enrolled = 0
        self.profile = self.client.create("ann", "open the door")
        for _ in range(3):
            assert self.enrol()
        assert self.verify()

    def _call(self, call: Callable[..., dict[str, Any]]) -> bool:
        began = time.monotonic()
        status = 200
        try:
            call(self.profile, next(self.vectors))
        except Refused as error:
            status = error.status
            self.details.add(f"{status}: {error}")
        self.slowest = max(self.slowest, time.monotonic() - began)
        self.statuses[status] = self.statuses.get(status, 0) + 1
        return status == 200

    def enrol(self) -> bool:
        done = self._call(self.client.enrol)
        self.enrolled += done
        return done

    def verify(self) -> bool:
        return self._call(self.client.verify)

    def row(self, what: str, recovered: bool) -> dict[str, Any]:
        """What came of it; all that was acknowledged is counted by the service, and nothing else."""
        there = self.client("GET", f"profiles/{self.profile}")["enrollmentsCount"]
        row = {
            "what": what,
            "answers": ", ".join(f"{n} x {status}" for status, n in sorted(self.statuses.items())),
            "said": "; ".join(sorted(self.details)),
            "slowest_s": self.slowest,
            "acknowledged": self.enrolled,
            "there": there,
            "recovered": "yes" if recovered else "NO",
        }
        print(row, flush=True)
        assert there == self.enrolled, row
        assert recovered, row
        return row


def run(*command: str) -> None:
    subprocess.run(command, check=True)


@contextmanager
def mounted(folder: Path):
    """A file system of 3 MiB in memory."""
    run("mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(folder))
    try:
        yield
    finally:
        run("umount", "-l", str(folder))


def full_disk(folder: Path) -> dict[str, Any]:
    with mounted(folder), running_server(folder, *FREE, "--most-enrolments", "10000") as server:
        person = Person(server.url)
        filler = folder / "filler"
        filler.write_bytes(b"0" * 10)
        try:
            with filler.open("ab") as file:
                while True:
                    file.write(b"0" * 4096)
                    file.flush()
        except OSError:
            pass
        for _ in range(30):
            person.enrol()
            person.verify()
        assert not person.enrol()
        filler.unlink()
        recovered = person.enrol() and person.verify()
        return person.row("disk full", recovered)


def read_only(folder: Path) -> dict[str, Any]:
    inner = folder / "inner"
    inner.mkdir()
    with mounted(inner), running_server(folder, "--data", str(inner), *FREE) as server:
        person = Person(server.url)
        server.stop()
        run("mount", "-o", "remount,ro", str(inner))
        try:
            server.start(60)
            person.details.add("it starts")
        except RuntimeError as error:
            person.details.add(str(error).strip().splitlines()[-1].replace(str(folder), "FOLDER"))
        run("mount", "-o", "remount,rw", str(inner))
        server.start()
        recovered = person.enrol() and person.verify()
        return person.row("read-only at the start", recovered)


def database_gone(folder: Path, postgres: service_postgres.Postgres) -> dict[str, Any]:
    options = ("--database", postgres.new_database(), *FREE)
    with running_server(folder, *options, environment=KEY) as server:
        person = Person(server.url)
        postgres.stop("immediate")
        try:
            for _ in range(5):
                assert not person.enrol()
                assert not person.verify()
        finally:
            postgres.start()
        recovered = person.enrol() and person.verify()
        return person.row("database gone and back", recovered)


def stuck_lock(folder: Path, postgres: service_postgres.Postgres) -> dict[str, Any]:
    database = postgres.new_database()
    with running_server(folder, "--database", database, *FREE, environment=KEY) as server:
        person = Person(server.url)
        with psycopg.connect(database) as other:
            other.execute("SELECT * FROM profiles FOR UPDATE")
            for _ in range(2):
                assert not person.enrol()
                assert not person.verify()
        recovered = person.enrol() and person.verify()
        return person.row("a row held by another", recovered)


def stuck_file(folder: Path) -> dict[str, Any]:
    import sqlite3

    with running_server(folder, *FREE) as server:
        person = Person(server.url)
        other = sqlite3.connect(folder / "mvplda.sqlite")
        other.execute("BEGIN EXCLUSIVE")
        for _ in range(2):
            assert not person.enrol()
            assert not person.verify()
        other.rollback()
        recovered = person.enrol() and person.verify()
        return person.row("SQLite's file held by another", recovered)


def stepped_clock(folder: Path, library: Path, database: str | None) -> dict[str, Any]:
    """The clock of the service goes an hour ahead, then an hour back."""
    offset = folder / "offset"
    offset.write_text("+0\n")
    clock = {"LD_PRELOAD": str(library), "FAKETIME_TIMESTAMP_FILE": str(offset)}
    clock |= {"FAKETIME_NO_CACHE": "1", "DONT_FAKE_MONOTONIC": "1"}
    options = FREE if database is None else ("--database", database, *FREE)
    with running_server(folder, *options, environment={**KEY, **clock}) as server:
        person = Person(server.url)
        days = set()
        for step in ("+3600", "-3600", "+0"):
            offset.write_text(f"{step}\n")
            for _ in range(3):
                person.enrol()
                person.verify()
            days.add(person.client("GET", f"profiles/{person.profile}")["updated"][:13])
        # times are the database's; those of SQLite are the service's own
        assert len(days) == (3 if database is None else 1), days
        recovered = set(person.statuses) == {200}
        kind = "SQLite" if database is None else "PostgreSQL"
        return person.row(f"clock an hour ahead, then back ({kind})", recovered)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--faketime", type=Path, help="libfaketime.so.1")
    parser.add_argument("-o", "--output", type=Path, help="folder of results to add to")
    chosen = parser.parse_args()
    rows = []

    def tried(what: Callable[..., dict[str, Any]], *arguments: Any) -> None:
        with tempfile.TemporaryDirectory() as folder:
            rows.append(what(Path(folder), *arguments))

    tried(full_disk)
    tried(read_only)
    tried(stuck_file)
    with service_postgres.running() as postgres:
        if postgres is not None:
            tried(database_gone, postgres)
            tried(stuck_lock, postgres)
        if chosen.faketime is not None:
            tried(stepped_clock, chosen.faketime, None)
            if postgres is not None:
                tried(stepped_clock, chosen.faketime, postgres.new_database())
    if chosen.output is not None:
        add(chosen.output, {"what breaks": rows})


if __name__ == "__main__":
    main()
