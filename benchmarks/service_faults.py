"""Kill the service at random moments during enrolments, start it again, and test whether it lost acknowledged data.

``python benchmarks/service_faults.py [-n 10000] [--kind postgresql] [--each 60]``. Four clients at once enrol vectors
of a simulated model. After about `each` enrolments, the process gets SIGKILL and is started again. In the end every
enrolment that was answered with 201 must be stored, every profile's sum must be the sum of its enrolments, and no
enrolment may be stored in part. An enrolment without an answer may be stored or not.
"""

# ruff: noqa: E402

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]

import service_postgres
from service_client import Client, Refused
from service_problems import Server, make_world, running_server

from benchmarks.service import add
from mvplda.serve.app import open_service
from mvplda.serve.settings import Settings

CLIENTS = 4


def hammer(server: Server, count: int, each: int, seed: int = 0) -> dict[str, Any]:
    """Enrol until so many are acknowledged, with kills in between; what the clients know in the end."""
    rng = random.Random(seed)
    world, lock = make_world(), threading.Lock()
    vectors = world.say(40, 0, 1000)
    acknowledged: dict[str, list[int]] = {}
    tried: dict[str, int] = {}
    total, kills, stop = 0, 0, threading.Event()

    def work(number: int) -> None:
        nonlocal total
        client, turn, profile = Client(server.url, timeout=10), number, None
        while not stop.is_set():
            try:
                if profile is None or tried[profile] >= 45:
                    profile = client.create(f"client {number}", "open the door")
                    with lock:
                        tried[profile], acknowledged[profile] = 0, []
                with lock:
                    tried[profile] += 1
                turn += CLIENTS
                found = client.enrol(profile, vectors[turn % len(vectors)])
                with lock:
                    acknowledged[profile].append(found["enrollmentId"])
                    total += 1
                    if total >= count:
                        stop.set()
            except Refused as error:
                if error.status not in (0, 422, 429, 503):
                    raise
                time.sleep(0.02)
            except (ConnectionError, OSError, json.JSONDecodeError):
                time.sleep(0.02)

    threads = [threading.Thread(target=work, args=(k,), daemon=True) for k in range(CLIENTS)]
    for thread in threads:
        thread.start()
    while not stop.is_set():
        goal = total + rng.randint(each // 2, each * 3 // 2)
        while total < goal and not stop.is_set():
            time.sleep(0.005)
        time.sleep(rng.random() * 0.02)
        if not stop.is_set():
            server.kill()
            kills += 1
            print(f"{total} acknowledged, {kills} kills", flush=True)
            server.start(1800)
    for thread in threads:
        thread.join()
    return {"acknowledged": acknowledged, "tried": tried, "kills": kills, "total": total}


def examine(setup: Settings, found: dict[str, Any]) -> dict[str, int]:
    """Compare what is stored with what clients know; raises where anything is amiss."""
    service = open_service(setup)
    with service.store.read() as work:
        names = [row["id"] for row in work.run("SELECT id FROM profiles").mappings()]
        noted = "SELECT profile FROM audit WHERE action = 'enrol'"
        record = Counter(row["profile"] for row in work.run(noted).mappings())
    assert set(found["acknowledged"]) <= set(names), "lost: a profile"
    extra = 0
    for profile in names:
        numbers = found["acknowledged"].get(profile, [])
        with service.store.read() as work:
            row = service.profiles.row(work, profile)
            cells = service.templates.cells(work, row)
            enrolments = service.templates.enrolments(work, profile)
        there = {enrolment.number for enrolment in enrolments}
        assert set(numbers) <= there, f"lost: {set(numbers) - there}"
        assert len(there) == row.enrollments == sum(cell.count for cell in cells), "half there"
        assert record[profile] == len(there), "half there: the record is another"
        extra += len(there) - len(set(numbers))
        assert extra <= sum(found["tried"].values())
    service.store.close()
    return {
        "acknowledged": found["total"],
        "there but not acknowledged": extra,
        "kills": found["kills"],
    }


def run(count: int, each: int, database: str | None, folder: Path) -> dict[str, int]:
    # what is counted is what is lost, and not who calls too often
    options = ["--key-rate", "0", "--profile-rate", "0"]
    if database is not None:
        options += ["--database", database]
    environment = (
        {}
        if database is None
        else {"MVPLDA_MASTER_KEY": "bWFzdGVyIGtleSBvZiBhIGJlbmNobWFyaywgMzIgYnk="}
    )
    with running_server(folder, *options, wait_s=1800, environment=environment) as server:
        found = hammer(server, count, each)
    if database is not None:
        import os

        os.environ.update(environment)
    return examine(
        Settings(data=folder, database=database, model=folder / "drawn.safetensors"), found
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-n", type=int, default=10_000, help="enrolments that are acknowledged")
    parser.add_argument("--each", type=int, default=60, help="about so many between two kills")
    parser.add_argument("--kind", choices=["sqlite", "postgresql"], default="sqlite")
    parser.add_argument("-o", "--output", type=Path, help="folder of results to add to")
    chosen = parser.parse_args()
    began = time.time()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        database = None
        if chosen.kind == "postgresql":
            postgres = stack.enter_context(service_postgres.running())
            if postgres is None:
                sys.exit("there is no PostgreSQL here")
            database = postgres.new_database()
        found = {
            "database": chosen.kind,
            **run(chosen.n, chosen.each, database, Path(folder)),
            "lost": 0,
            "half there": 0,
        }
        print(found, f"{time.time() - began:.0f} s")
    if chosen.output is not None:
        place = chosen.output / "results.json"
        before = json.loads(place.read_text(encoding="utf-8"))["rows"] if place.is_file() else {}
        others = [row for row in before.get("kill -9", []) if row["database"] != chosen.kind]
        add(chosen.output, {"kill -9": [*others, found]})


if __name__ == "__main__":
    main()
