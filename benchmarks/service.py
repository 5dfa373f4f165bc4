"""How fast the service is: verifications from vectors and from sound, by 1, 16 and 64 clients; 1:N; memory over time.

``python benchmarks/service.py [-o results/service] [--only verify|identify|soak] [--minutes 3]``. The server runs in a
process of its own with the default model, on SQLite and PostgreSQL; clients are tasks of another process over loopback,
each on a connection that stays open. 1:N is over people who were drawn, in a database on the disk; the service has one
core.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import io
import json
import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np  # noqa: E402

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests" / "support")]

import service_postgres  # noqa: E402
from free_ports import free_port  # noqa: E402
from service_client import Client, Refused  # noqa: E402

from mvplda.paper.provenance import provenance, update_rows, with_provenance  # noqa: E402

MASTER_KEY = "bWFzdGVyIGtleSBvZiBhIGJlbmNobWFyaywgMzIgYnk="

PORT = free_port()


def start(
    folder: Path,
    cores: set[int] | None = None,
    model: Path | None = None,
    extractor: Path | None = None,
    database: str | None = None,
    demo: bool = True,
    options: Sequence[str] = (),
) -> subprocess.Popen[bytes]:
    """A service without limits of rate, with the default model or this one."""
    chosen = ["--demo"] if demo else []
    if model is not None:
        chosen = ["--model", str(model), "--extractor", str(extractor)]
    free = ["--key-rate", "0", "--profile-rate", "0", "--lock-after", str(10**9)]
    load = ["--at-once", "2", "--waiting", "256", "--port", str(PORT), "--data", str(folder)]
    if database is not None:
        load += ["--database", database]
    load += options
    words = ["mvplda", "serve", *chosen, *free, *load]
    code = (
        f"import os, sys; os.sched_setaffinity(0, {cores or os.sched_getaffinity(0)});"
        f"sys.argv = {words}; from mvplda.cli import main; main()"
    )
    environment = {**os.environ, "MVPLDA_MASTER_KEY": MASTER_KEY}
    log = folder / "log"
    with log.open("ab") as file:
        process = subprocess.Popen(
            [sys.executable, "-c", code], env=environment, stdout=file, stderr=file
        )
    client = Client(f"http://127.0.0.1:{PORT}")
    for _ in range(600):
        try:
            client("GET", "health")
            return process
        except Refused:
            time.sleep(0.2)
        if process.poll() is not None:
            break
    raise RuntimeError(f"the service did not start: {log.read_text()[-2000:]}")


def speech(seed: int) -> np.ndarray:
    """Two seconds of syllables: what they say does not matter, how long they take does."""
    rng = np.random.default_rng(seed)
    t = np.arange(32000) / 16000
    tone = sum(np.sin(2 * np.pi * (120 + seed % 80) * k * t) / k for k in range(1, 30))
    return 0.1 * np.maximum(0, np.sin(5 * np.pi * t)) ** 2 * (
        tone + rng.normal(size=len(t))
    ) + 1e-4 * rng.normal(size=len(t))


def wav(samples: np.ndarray) -> bytes:
    import soundfile

    file = io.BytesIO()
    soundfile.write(file, samples, 16000, format="WAV")
    return file.getvalue()


Body = tuple[str, str, bytes]
"""Path, content type and bytes of a call; no bytes: GET."""


def load(bodies: list[Body], clients: int, seconds: float, pause: float = 0.0) -> dict[str, float]:
    """Requests a second and latencies, of so many clients for so long, each on a connection of its own."""
    times: list[float] = []
    wrong: list[bytes] = []
    until = time.perf_counter() + seconds

    async def work(number: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", PORT)
        turn = number
        while time.perf_counter() < until:
            path, kind, body = bodies[turn % len(bodies)]
            turn += clients
            began = time.perf_counter()
            head = f"{'POST' if body else 'GET'} {path} HTTP/1.1\r\nHost: 127.0.0.1:{PORT}\r\n"
            head += f"Content-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
            writer.write(head.encode() + body)
            answer = (await reader.readuntil(b"\r\n\r\n")).lower()
            await reader.readexactly(int(answer.partition(b"content-length:")[2].split()[0]))
            times.append(time.perf_counter() - began)
            if not answer.startswith(b"http/1.1 200"):
                wrong.append(answer)
            if pause:
                await asyncio.sleep(pause)
        writer.close()

    async def together() -> None:
        await asyncio.gather(*(work(k) for k in range(clients)))

    began = time.perf_counter()
    asyncio.run(together())
    took = time.perf_counter() - began
    return {
        "clients": clients,
        "a_second": len(times) / took,
        "failed": len(wrong),
        "seconds": took,
        "p50_ms": 1e3 * float(np.quantile(times, 0.5)),
        "p99_ms": 1e3 * float(np.quantile(times, 0.99)),
    }


def enrolled(
    client: Client, count: int, rng: np.random.Generator, phrases: int = 1
) -> tuple[list[str], int]:
    width = int(client("GET", "model")["extractor"]["dimension"])
    sounds = rng.normal(size=(phrases, width))
    names = []
    for k in range(count):
        name = client.create(f"bench {k}", f"key {k % phrases} of {phrases}")
        centre = rng.normal(size=width) + sounds[k % phrases]
        for _ in range(3):
            client.enrol(name, centre + 0.05 * rng.normal(size=width))
        names.append(name)
    return names, width


def verifications(seconds: float) -> list[dict[str, Any]]:
    """The service has the first core, clients and the database have the others; an empty endpoint is the floor."""
    rows = []
    first, *others = sorted(os.sched_getaffinity(0))
    # what is started later has these cores, too, but for the service
    os.sched_setaffinity(0, others or {first})
    with service_postgres.running() as postgres:
        databases = {"sqlite": None}
        if postgres is not None:
            databases["postgresql"] = postgres.new_database()
        for kind, database in databases.items():
            with tempfile.TemporaryDirectory() as folder:
                process = start(Path(folder), cores={first}, database=database, demo=False)
                try:
                    rows += _verifications(process.pid, kind, seconds)
                finally:
                    process.terminate()
                    process.wait()
    os.sched_setaffinity(0, {first, *others})
    return rows


def _verifications(pid: int, database: str, seconds: float) -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    client = Client(f"http://127.0.0.1:{PORT}")
    names, width = enrolled(client, 64, rng)
    paths = [f"/v1/profiles/{name}/verify" for name in names]
    vectors = [json.dumps({"vector": rng.normal(size=width).tolist()}).encode() for _ in range(128)]
    kinds: dict[str, list[Body]] = {
        "nothing": [("/v1/health", "application/json", b"")],
        "vectors": [(paths[k % 64], "application/json", body) for k, body in enumerate(vectors)],
    }
    if database == "sqlite":
        sounds = [wav(speech(k)) for k in range(40)]
        kinds["sound, 2 s"] = [(paths[k], "audio/wav", body) for k, body in enumerate(sounds)]
    rows = _loads(pid, database, kinds, seconds)
    # people of twelve phrases, whose classes the model then knows: they come last, and slow nobody else
    names, _ = enrolled(client, 64, rng, phrases=12)
    paths = [f"/v1/profiles/{name}/verify" for name in names]
    bodies = [(paths[k % 64], "application/json", body) for k, body in enumerate(vectors)]
    return rows + _loads(pid, database, {"vectors, 12 phrases": bodies}, seconds)


def _loads(
    pid: int, database: str, kinds: dict[str, list[Body]], seconds: float
) -> list[dict[str, Any]]:
    rows = []
    for kind, bodies in kinds.items():
        for clients in (1, 16, 64):
            load(bodies, clients, seconds / 4)
            before = _cpu_s(pid)
            found: dict[str, Any] = {"database": database, "from": kind}
            found |= load(bodies, clients, seconds)
            done = max(1, round(found["a_second"] * found.pop("seconds")))
            # what a core does that has nothing else to do
            found["cpu_ms"] = 1e3 * (_cpu_s(pid) - before) / done
            found["a_core_second"] = 1e3 / found["cpu_ms"]
            print(found, flush=True)
            rows.append(found)
    return rows


def fill(folder: Path, count: int) -> None:
    """A database of so many enrolled people of three recordings each: drawn, and written as the service writes them."""
    from mvplda.serve.app import open_service
    from mvplda.serve.keys import MARK_DIGITS, TemplateRotation
    from mvplda.serve.settings import Settings
    from mvplda.serve.tables import DATA_KEYS, ENROLMENTS, PROFILES
    from mvplda.serve.templates import to_bytes

    service = open_service(Settings(data=folder))
    rng = np.random.default_rng(0)
    at = time.time() - count / 50
    model, vault = service.model, service.templates.vault
    master = vault.masters.first
    rotation = TemplateRotation(master.derived("rotation"), model.rank)
    phrase = "my-voice-is-my-key"
    common = {
        "state": "enrolled",
        "phrases": json.dumps({phrase: "my voice is my key"}),
        "consent": "{}",
        "version": 4,
        "model": model.fingerprint,
        "model_version": model.version,
        "speech_s": 4.0,
        "failures": 0,
        "enrollments": 3,
        "next_number": 4,
    }
    for start in range(0, count, 2000):
        size = min(2000, count - start)
        shares = model.contributions(rng.normal(size=(size, model.width)))
        stored = [to_bytes(row) for row in np.rint(rotation.apply(shares.astype(float)))]
        vectors = rng.normal(size=(size, model.width)).astype("<f4")
        keys = {secrets.token_hex(16): secrets.token_bytes(32) for _ in range(size)}
        people: list[dict[str, object]] = []
        recordings: list[dict[str, object]] = []
        for k, (name, key) in enumerate(keys.items()):
            made = at + (start + k) / 50
            user = f"drawn {start + k:07d}"
            people.append({**common, "id": name, "user_id": user, "created": made, "updated": made})
            for number in range(1, 4):
                address = f"{name} {number}"
                recordings.append(
                    {
                        "profile": name,
                        "number": number,
                        "phrase": phrase,
                        "session": "-",
                        "share": vault.seal(key, stored[k], address),
                        "vector": vault.seal(key, vectors[k].tobytes(), address),
                        "extractor": model.extractor_name,
                        "speech_s": 1.3,
                        "created": made,
                        "master": master.mark[:MARK_DIGITS],
                    }
                )
        with service.store.write() as work:
            work.run_each(PROFILES.insert(), people)
            work.run_each(ENROLMENTS.insert(), recordings)
            work.changed |= set(keys)
        with service.store.keys() as work:
            wrapped = [
                {"profile": name, "wrapped": vault.wrap(key, name)} for name, key in keys.items()
            ]
            work.run_each(DATA_KEYS.insert(), wrapped)
    service.store.close()


def identification(filled: Path | None) -> list[dict[str, Any]]:
    """Whose voice of so many is it: the whole answer, those whom it names scored once more, by HTTP too; one core."""
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        for count in (100_000, 1_000_000):
            folder = (filled or Path(scratch)) / str(count)
            if not (folder / "filled").exists():
                fill(folder, count)
                (folder / "filled").touch()
            rows += [_identified(folder, count, http) for http in (False, True)]
    return rows


def _identified(folder: Path, count: int, http: bool) -> dict[str, Any]:
    from mvplda.serve.app import open_service
    from mvplda.serve.settings import Settings
    from mvplda.serve.store import SERVICE

    rng, times, before = np.random.default_rng(1), [], os.sched_getaffinity(0)
    process = start(folder, cores={0}) if http else None
    service = None if http else open_service(Settings(data=folder))
    if service is not None:
        os.sched_setaffinity(0, {0})
    try:
        client = Client(f"http://127.0.0.1:{PORT}", timeout=600)
        model = client("GET", "model") if service is None else service.describe().model_dump()
        width = int(model["extractor"]["dimension"])
        for _ in range(42):
            vector = rng.normal(size=width).tolist()
            began = time.perf_counter()
            if service is None:
                found = client.identify(vector)
            else:
                recording = service.accept_vector(vector)
                reply = service.index.identify(recording, None, 5, 0.5, SERVICE)
                found = reply.model_dump()
            times.append(time.perf_counter() - began)
            assert found["profilesCount"] == count
            assert len(found["candidates"]) == 5
    finally:
        os.sched_setaffinity(0, before)
        if process is not None:
            process.terminate()
            process.wait()
    if service is not None:
        service.store.close()
    later = 1e3 * np.array(
        times[2:]
    )  # the first reads all profiles, the second makes what is kept of them
    made = {"profiles": count, "by": "HTTP" if http else "a call", "first_s": times[0]}
    row = {
        **made,
        "p50_ms": float(np.median(later)),
        "p99_ms": float(np.quantile(later, 0.99)),
        "best_ms": float(later.min()),
    }
    print(row, flush=True)
    return row


def soak(minutes: float, pause: float) -> dict[str, Any]:
    """Memory of the server over minutes of everything that comes: sound, vectors, challenges, keys, and mistakes."""
    rng = np.random.default_rng(1)
    sizes: list[float] = []
    counts: list[int] = []
    files: list[int] = []
    with tempfile.TemporaryDirectory() as folder:
        process = start(Path(folder), demo=False)
        try:
            client = Client(f"http://127.0.0.1:{PORT}", timeout=3600)
            names, width = enrolled(client, 5, rng)
            said = [wav(speech(k)) for k in range(20)]
            statuses: dict[int, int] = {}

            def kinds(k: int) -> list[tuple[str, str, bytes, dict[str, str]]]:
                """A round of calls; no two rounds are alike."""
                one, sound = f"/v1/profiles/{names[k % 5]}", {"Content-Type": "audio/wav"}
                plain = {"Content-Type": "application/json"}
                vector = json.dumps({"vector": rng.normal(size=width).tolist()}).encode()
                person = json.dumps({"userId": f"u{k}", "consent": {"given": True}}).encode()
                noise = said[k % 20][: 44 + int(rng.integers(20_000))] + rng.bytes(2000)
                return [
                    ("POST", f"{one}/verify", said[k % 20], sound),
                    ("POST", f"{one}/verify", noise, sound),
                    ("POST", f"{one}/verify", rng.bytes(3000), {"Content-Type": "audio/webm"}),
                    *[("POST", f"{one}/verify", vector, plain)] * 2,
                    ("POST", "/v1/identify", vector, plain),
                    (
                        "POST",
                        "/v1/challenges",
                        json.dumps({"profileId": names[k % 5]}).encode(),
                        plain,
                    ),
                    ("POST", "/v1/profiles", person, plain),
                    ("GET", f"/v1/profiles/{rng.integers(1 << 60):x}", b"", {}),
                    ("GET", f"/odd/{k}", b"", {}),
                    ("POST", f"{one}/verify", b"{" * 50, plain),
                    ("GET", "/v1/audit?top=50", b"", {}),
                ]

            connection = http.client.HTTPConnection("127.0.0.1", PORT)
            asked, turn, began = 0, 0, time.time()
            while not sizes or time.time() < began + 60 * minutes:
                until = asked + 500
                while asked < until:
                    for method, path, body, headers in kinds(turn):
                        try:
                            connection.request(method, path, body, headers)
                            answer = connection.getresponse()
                        except ConnectionError:  # it was left open for too long
                            connection.close()
                            connection.request(method, path, body, headers)
                            answer = connection.getresponse()
                        text = answer.read()
                        statuses[answer.status] = statuses.get(answer.status, 0) + 1
                        if (method, path, answer.status) == ("POST", "/v1/profiles", 201):
                            try:
                                client("DELETE", f"profiles/{json.loads(text)['profileId']}")
                            except Refused as refusal:
                                # counted, so that it does not end the run
                                statuses[refusal.status] = statuses.get(refusal.status, 0) + 1
                        asked += 1
                    turn += 1
                    time.sleep(pause)
                sizes.append(_resident(process.pid))
                counts.append(asked)
                files.append(len(list(Path(f"/proc/{process.pid}/fd").iterdir())))
                so_far = f"{(time.time() - began) / 60:.1f} min, {asked} calls"
                print(f"{so_far}, {sizes[-1]} MiB, {files[-1]} files", flush=True)
        finally:
            process.terminate()
            process.wait()
    half = len(sizes) // 2
    slope = (
        float(np.polyfit(counts[half:], sizes[half:], 1)[0] * 1000)
        if len(sizes) - half > 1
        else 0.0
    )
    found = {
        "minutes": (time.time() - began) / 60,
        "calls": asked,
        "failed": sum(count for status, count in statuses.items() if status >= 500 or not status),
        "files first": files[0],
        "files last": files[-1],
    }
    found |= {
        "MiB first": sizes[0],
        "MiB at half": sizes[half],
        "MiB last": sizes[-1],
        "MiB most": max(sizes),
    }
    return {**found, "MiB a 1000 calls, second half": slope}


def _cpu_s(pid: int) -> float:
    """Processor time of the server: what a busy machine does not change."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _resident(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    return round(next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024, 1)


def add(folder: Path, found: dict[str, Any]) -> None:
    """Put results beside those that are there, and write all of them as tables in Markdown."""
    record = {**provenance(), "unchecked": "seconds and memory of a machine"}
    every = update_rows(
        folder / "results.json",
        "The service under load",
        "rows",
        with_provenance(found, record),
    )
    lines = []
    for name, rows in every.items():
        several = [
            {key: value for key, value in row.items() if key != "provenance"}
            for row in (rows if isinstance(rows, list) else [rows])
        ]
        lines += [
            f"## {name}",
            "",
            "| " + " | ".join(several[0]) + " |",
            "|" + ":---|" * len(several[0]),
        ]
        for row in several:
            cells = [
                f"{v:,.1f}" if isinstance(v, float) else f"{v:,}" if isinstance(v, int) else v
                for v in row.values()
            ]
            lines.append("| " + " | ".join(cells) + " |")
        lines.append("")
    (folder / "table.md").write_text("\n".join(lines), encoding="utf-8")


def put_row(folder: Path, name: str, key: str, row: dict[str, Any]) -> None:
    """Put one row into a table of results, in place of the row with the same value of a column."""
    path = folder / "results.json"
    stored = json.loads(path.read_text(encoding="utf-8"))["rows"] if path.is_file() else {}
    others = [other for other in stored.get(name, []) if other[key] != row[key]]
    add(folder, {name: [*others, row]})


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-o", "--output", type=Path, default=Path("results/service"))
    parser.add_argument("--only", choices=["verify", "identify", "soak"])
    parser.add_argument("--seconds", type=float, default=10.0, help="of every load")
    parser.add_argument("--minutes", type=float, default=3.0, help="of the soak")
    parser.add_argument(
        "--pause", type=float, default=0.0, help="seconds between two rounds of the soak's calls"
    )
    parser.add_argument(
        "--filled",
        type=Path,
        help="folder in which the databases of drawn people stay for other runs",
    )
    chosen = parser.parse_args()
    parts = {
        "verify": lambda: verifications(chosen.seconds),
        "identify": lambda: identification(chosen.filled),
        "soak": lambda: soak(chosen.minutes, chosen.pause),
    }
    found = {name: part() for name, part in parts.items() if chosen.only in (None, name)}
    add(chosen.output, found)


if __name__ == "__main__":
    main()
