"""Memory, processor time and latencies of one process with 100,000 people and the default model.

``python -m benchmarks.service_scale [-n 100000] [--filled FOLDER] [-o results/service]``. People of three recordings
are drawn and written as the service writes them, to SQLite. Memory is that of the process (VmRSS, and VmHWM at most),
processor time that until it is ready, and per call.
"""

# ruff: noqa: E402

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]

import numpy as np
from service_client import Client, Refused

from benchmarks.service import MASTER_KEY, PORT, _cpu_s, add, fill, start

SEARCHES = ("drawn", "drawn 00123", "drawn 0099999", "nobody", "d")


def status_mib(pid: int, name: str) -> float:
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    return round(next(int(line.split()[1]) for line in lines if line.startswith(name)) / 1024, 1)


def wait_until_ready(client: Client) -> None:
    while True:
        try:
            client("GET", "ready")
            return
        except Refused:
            time.sleep(0.05)


def timed(pid: int, calls: int, call: Any) -> dict[str, float]:
    """Latencies of calls one after the other, and their processor time in the service."""
    times = []
    before = _cpu_s(pid)
    for turn in range(calls):
        began = time.perf_counter()
        call(turn)
        times.append(1e3 * (time.perf_counter() - began))
    cpu_ms = 1e3 * (_cpu_s(pid) - before) / calls
    return {
        "p50_ms": float(np.median(times)),
        "p99_ms": float(np.quantile(times, 0.99)),
        "cpu_ms": cpu_ms,
    }


def run(folder: Path, count: int, role: str) -> list[dict[str, Any]]:
    rng = np.random.default_rng(1)
    began = time.perf_counter()
    process = start(folder, demo=False, options=["--role", role])
    try:
        client = Client(f"http://127.0.0.1:{PORT}", timeout=600)
        started_s, started_cpu = time.perf_counter() - began, _cpu_s(process.pid)
        wait_until_ready(client)
        common = {"people": count, "role": role}
        rows: list[dict[str, Any]] = [
            {
                **common,
                "what": "start",
                "model loaded_s": started_s,
                "ready after it_s": time.perf_counter() - began - started_s,
                "cpu after it_s": _cpu_s(process.pid) - started_cpu,
                "MiB": status_mib(process.pid, "VmRSS"),
                "MiB most": status_mib(process.pid, "VmHWM"),
            }
        ]
        width = int(client("GET", "model")["extractor"]["dimension"])
        vectors = rng.normal(size=(400, width))
        names = [
            item["profileId"] for item in client("GET", "profiles", params={"top": 100})["items"]
        ]
        kinds: dict[str, tuple[int, Any]] = {}
        if role != "identify":
            kinds["verify"] = (400, lambda k: client.verify(names[k % 100], vectors[k]))
        if role != "verify":
            kinds["identify"] = (60, lambda k: client.identify(vectors[k]))
        kinds["search by name"] = (
            200,
            lambda k: client("GET", "profiles", params={"search": SEARCHES[k % 5], "top": 20}),
        )
        for what, (calls, call) in kinds.items():
            for turn in range(2):
                call(turn)
            found = timed(process.pid, calls, call)
            rows.append({**common, "what": what, **found, "MiB": status_mib(process.pid, "VmRSS")})
        for row in rows:
            print(row, flush=True)
        return rows
    finally:
        process.terminate()
        process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-n", type=int, default=100_000, help="people")
    parser.add_argument(
        "--filled", type=Path, help="folder in which the database stays for other runs"
    )
    parser.add_argument("--only", choices=["verify", "all"])
    parser.add_argument("-o", "--output", type=Path, help="folder of results to add to")
    chosen = parser.parse_args()
    os.environ["MVPLDA_MASTER_KEY"] = MASTER_KEY
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = (chosen.filled or Path(scratch)) / str(chosen.n)
        if not (folder / "filled").exists():
            folder.mkdir(parents=True, exist_ok=True)
            fill(folder, chosen.n)
            (folder / "filled").touch()
        for role in ("verify", "all"):
            if chosen.only in (None, role):
                rows += run(folder, chosen.n, role)
    if chosen.output is not None:
        starts = [row for row in rows if row["what"] == "start"]
        calls = [row for row in rows if row["what"] != "start"]
        add(chosen.output, {"100,000 people: start": starts, "100,000 people: calls": calls})


if __name__ == "__main__":
    main()
