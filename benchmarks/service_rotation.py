"""Change the master key repeatedly while a service creates, enrols and verifies people.

``python -m benchmarks.service_rotation [-n 5000] [--kind postgresql] [-o results/service]``. The service is never
restarted. The run ends after `n` profiles were created while ``mvplda serve rotate`` ran. In the end a service with
only the last key must decrypt all data keys, and people who were enrolled before must have the same LLRs as before.
"""

# ruff: noqa: E402

from __future__ import annotations

import argparse
import base64
import os
import secrets
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]

import numpy as np
import service_postgres
from service_client import Client, Refused
from service_problems import Server, World, make_world, running_server

from benchmarks.service import put_row
from mvplda.serve.app import open_service
from mvplda.serve.damage import check_database
from mvplda.serve.keys import MASTER, NEW_MASTER
from mvplda.serve.settings import Settings

FREE = ("--key-rate", "0", "--profile-rate", "0", "--lock-after", "1000000", "--least-llr", "-100")
PEOPLE = 40
CREATORS = 3


class Keys:
    """Files of the master key and of the next one, by which service and command find them."""

    def __init__(self, folder: Path) -> None:
        self.present = folder / "key"
        self.next = folder / "next-key"
        write_key(self.present)
        self.environment = {MASTER: f"@{self.present}", NEW_MASTER: f"@{self.next}"}

    def prepare(self) -> None:
        write_key(self.next)

    def advance(self) -> None:
        self.next.replace(self.present)


def write_key(path: Path) -> None:
    scratch = path.with_suffix(".scratch")
    scratch.write_bytes(base64.b64encode(secrets.token_bytes(32)))
    scratch.replace(path)


class Load:
    """Clients that create, enrol and verify until they are stopped, and count what was acknowledged."""

    def __init__(self, url: str, world: World, people: list[str]) -> None:
        self.url = url
        self.people = people
        self.created: list[str] = []
        self.is_rotating = False
        self.during = 0
        self.answers: Counter[str] = Counter()
        self._vectors = [world.say(speaker % 60, 0, 20) for speaker in range(PEOPLE)]
        self._lock = threading.Lock()
        self._stop = threading.Event()
        works = [self._create] * CREATORS + [self._verify]
        self._threads = [threading.Thread(target=work, daemon=True) for work in works]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _call(self, kind: str, call: Any, *arguments: Any) -> Any:
        answer, status = None, 200
        try:
            answer = call(*arguments)
        except Refused as error:
            status = error.status
        with self._lock:
            self.answers[f"{kind} {status}"] += 1
        return answer

    def _create(self) -> None:
        client = Client(self.url, timeout=60)
        turn = 0
        while not self._stop.is_set():
            name = self._call("create", client.create, "somebody", "open the door")
            if name is None:
                continue
            with self._lock:
                self.created.append(name)
                self.during += self.is_rotating
            turn += 1
            if turn % 20 == 0:
                for vector in self._vectors[0][:3]:
                    self._call("enrol", client.enrol, name, vector)

    def _verify(self) -> None:
        client = Client(self.url, timeout=60)
        turn = 0
        while not self._stop.is_set():
            vectors = self._vectors[turn % PEOPLE]
            self._call("verify", client.verify, self.people[turn % PEOPLE], vectors[turn % 20])
            turn += 1
            time.sleep(0.02)


def rotate(server: Server) -> None:
    """Run the command once; raise if it fails."""
    command = [sys.executable, "-m", "mvplda", "serve", "--data", str(server.folder)]
    for name in ("--database",):
        if name in server.options:
            command += [name, server.options[server.options.index(name) + 1]]
    environment = {**os.environ, **server.environment}
    subprocess.run([*command, "rotate"], env=environment, check=True, capture_output=True)


def enrolled_people(client: Client, world: World) -> list[str]:
    people = []
    for speaker in range(PEOPLE):
        name = client.create(f"person {speaker}", "open the door")
        for vector in world.say(speaker % 60, 0, 3):
            client.enrol(name, vector)
        people.append(name)
    return people


def llrs(client: Client, people: list[str], tests: Any) -> Any:
    return np.array(
        [client.verify(name, test)["llr"] for name, test in zip(people, tests, strict=True)]
    )


def run(kind: str, count: int, folder: Path, database: str | None) -> dict[str, Any]:
    keys = None if database is None else Keys(folder)
    environment = {} if keys is None else keys.environment
    options = [*FREE] if database is None else [*FREE, "--database", database]
    with running_server(folder, *options, environment=environment) as server:
        client, world = Client(server.url, timeout=60), make_world()
        people = enrolled_people(client, world)
        tests = [world.say(speaker % 60, 0)[0] for speaker in range(PEOPLE)]
        rotations, slowest = 0, 0.0
        with Load(server.url, world, people) as load:
            while load.during < count:
                if keys is not None:
                    keys.prepare()
                began = time.monotonic()
                load.is_rotating = True
                rotate(server)
                load.is_rotating = False
                slowest = max(slowest, time.monotonic() - began)
                if keys is not None:
                    keys.advance()
                rotations += 1
                print(f"{rotations} rotations, {load.during} creations during them", flush=True)
        # with sums that the service read before the rotations
        before = llrs(client, people, tests)
    settings = Settings(data=folder, database=database, model=folder / "drawn.safetensors")
    return {
        "database": kind,
        "rotations": rotations,
        "creations during them": load.during,
        "answers": ", ".join(f"{n:,} x {what}" for what, n in sorted(load.answers.items())),
        "slowest rotation_s": slowest,
        **examine(settings, keys, load, before, tests),
    }


def examine(
    settings: Settings, keys: Keys | None, load: Load, before: Any, tests: Any
) -> dict[str, Any]:
    """Open everything with the last key alone; return the number of profiles that were lost."""
    if keys is not None:
        os.environ[MASTER] = keys.present.read_text()
    try:
        service = open_service(settings)
    finally:
        os.environ.pop(MASTER, None)
    lost = 0
    with service.store.read() as work:
        names = set(work.run("SELECT id FROM profiles").scalars())
        for name in load.created:
            lost += name not in names or not has_key(service, work, name)
    report = check_database(service.store, service.templates)
    from service_problems import decide

    from mvplda.serve.recordings import ProcessedRecording

    after = []
    for name, test in zip(load.people, tests, strict=True):
        after.append(decide(service, name, ProcessedRecording(test.astype(np.float32)))["llr"])
    service.store.close()
    return {
        "profiles": len(names),
        "lost": lost,
        "damaged": len(report.damaged),
        "without a data key": len(report.keyless),
        "largest change of an LLR": float(np.abs(np.array(after) - before).max()),
    }


def has_key(service: Any, work: Any, name: str) -> bool:
    from mvplda.serve.schemas import Problem

    try:
        return len(service.templates.data_key(work, name)) == 32
    except Problem:
        return False


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "-n", type=int, default=5000, help="creations that are acknowledged during rotations"
    )
    parser.add_argument("--kind", choices=["sqlite", "postgresql"], default="sqlite")
    parser.add_argument("-o", "--output", type=Path, help="folder of results to add to")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        database = None
        if chosen.kind == "postgresql":
            postgres = stack.enter_context(service_postgres.running())
            if postgres is None:
                sys.exit("there is no PostgreSQL here")
            database = postgres.new_database()
        row = run(chosen.kind, chosen.n, Path(folder), database)
    print(row)
    if chosen.output is not None:
        put_row(chosen.output, "new master keys", "database", row)


if __name__ == "__main__":
    main()
