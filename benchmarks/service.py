"""How fast the service is: verifications from vectors and from sound, by 1, 16 and 64 clients; 1:N; memory over time.

``python benchmarks/service.py [-o results/service] [--only verify|identify|soak] [--minutes 3]``. The server runs in a
process of its own on SQLite with the default model; clients are threads of another process over loopback, each on a
connection that stays open. 1:N is measured in this process on one core, with profiles that were drawn.
"""

from __future__ import annotations

import argparse
import http.client
import io
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np  # noqa: E402

from mvplda import Client  # noqa: E402
from mvplda.serve.model import PHRASE, SPEAKER, Cell, load_model  # noqa: E402

PORT = 8791


def start(folder: Path) -> subprocess.Popen[bytes]:
    code = (
        "import sys; from pathlib import Path; from mvplda.serve.starting import *; from mvplda.serve.app import Door;"
        "from mvplda.serve.service import Rules; inf = float('inf');"
        f"setup = Setup(Path({str(folder)!r}), rules=Rules(key_rate=inf, profile_rate=inf, lock_after=10**9));"
        f"run(open_service(setup), setup, Door(open=True, at_once=2, waiting=256), '127.0.0.1', {PORT})"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    client = Client(f"http://127.0.0.1:{PORT}")
    for _ in range(600):
        try:
            client.health()
            return process
        except Exception:
            time.sleep(0.2)
    raise RuntimeError("the service did not start")


def speech(seed: int) -> np.ndarray:
    """Two seconds of syllables: what they say does not matter, how long they take does."""
    rng = np.random.default_rng(seed)
    t = np.arange(32000) / 16000
    tone = sum(np.sin(2 * np.pi * (120 + seed % 80) * k * t) / k for k in range(1, 30))
    return 0.1 * np.maximum(0, np.sin(5 * np.pi * t)) ** 2 * (tone + rng.normal(size=len(t))) + 1e-4 * rng.normal(
        size=len(t)
    )


def wav(samples: np.ndarray) -> bytes:
    import soundfile

    file = io.BytesIO()
    soundfile.write(file, samples, 16000, format="WAV")
    return file.getvalue()


def load(bodies: list[tuple[str, str, bytes]], clients: int, seconds: float) -> dict[str, float]:
    """Requests a second and latencies, of so many clients for so long."""
    times: list[float] = []
    wrong: list[int] = []
    until = time.perf_counter() + seconds
    lock = threading.Lock()

    def work(number: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=60)
        own, turn = [], number
        while time.perf_counter() < until:
            path, kind, body = bodies[turn % len(bodies)]
            turn += clients
            began = time.perf_counter()
            connection.request("POST", path, body, {"Content-Type": kind})
            answer = connection.getresponse()
            answer.read()
            own.append(time.perf_counter() - began)
            if answer.status != 200:
                wrong.append(answer.status)
        with lock:
            times.extend(own)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(clients)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = time.perf_counter() - began
    found = {"clients": clients, "a_second": len(times) / took, "failed": len(wrong), "seconds": took}
    return {**found, "p50_ms": 1e3 * float(np.quantile(times, 0.5)), "p99_ms": 1e3 * float(np.quantile(times, 0.99))}


def enrolled(client: Client, count: int, rng: np.random.Generator) -> tuple[list[str], int]:
    width = int(client.model()["extractor"]["dimension"])
    names = []
    for k in range(count):
        name = client.create(f"bench {k}", "my voice is my key", consent="drawn")["profileId"]
        centre = rng.normal(size=width)
        for _ in range(3):
            client.enrol(name, vector=(centre + 0.05 * rng.normal(size=width)).tolist())
        names.append(name)
    return names, width


def verifications(seconds: float) -> list[dict[str, Any]]:
    rng, rows = np.random.default_rng(0), []
    with tempfile.TemporaryDirectory() as folder:
        process = start(Path(folder))
        try:
            names, width = enrolled(Client(f"http://127.0.0.1:{PORT}"), 20, rng)
            vectors = [json.dumps({"vector": rng.normal(size=width).tolist()}).encode() for _ in range(100)]
            sounds = [wav(speech(k)) for k in range(40)]
            paths = [f"/v1/profiles/{name}/verify" for name in names]
            kinds = {
                "vectors": [(paths[k % 20], "application/json", body) for k, body in enumerate(vectors)],
                "sound, 2 s": [(paths[k % 20], "audio/wav", body) for k, body in enumerate(sounds)],
            }
            for kind, bodies in kinds.items():
                for clients in (1, 16, 64):
                    before = _cpu_s(process.pid)
                    found = {"from": kind, **load(bodies, clients, seconds)}
                    done = max(1, round(found["a_second"] * found.pop("seconds")))
                    found["cpu_ms"] = 1e3 * (_cpu_s(process.pid) - before) / done
                    print(found, flush=True)
                    rows.append(found)
        finally:
            process.terminate()
            process.wait()
    return rows


def identification() -> list[dict[str, Any]]:
    model, rng, rows = load_model(None, None, b"b" * 32), np.random.default_rng(0), []
    width = model.scorer.width_in
    from dataclasses import replace

    for count in (100_000, 1_000_000):
        parts = [model.scorer.enrol(rng.normal(size=(50_000, width))) for _ in range(count // 50_000)]
        y = 3 * np.concatenate([part.y for part in parts])
        three = np.full(count, 3)
        ids = np.arange(count)
        side = replace(parts[0], ids=ids, y=y, weights=three.astype(float), counts=three, owner=ids, kept={})
        times = []
        for _ in range(12):
            test = model.profiles([[Cell("", rng.integers(-(2**32), 2**32, width), 1)]], False)
            began = time.perf_counter()
            llrs = model.scorer.llr(side, test, same=SPEAKER, given={PHRASE: "different"}, threads=1)[:, 0]
            best = np.argpartition(-llrs, 5)[:5]
            times.append(time.perf_counter() - began)
            assert len(best) == 5
        found = {"profiles": count, "p50_ms": 1e3 * float(np.median(times[2:])), "best_ms": 1e3 * min(times[2:])}
        print(found, flush=True)
        rows.append(found)
        del parts, y, side
    return rows


def soak(minutes: float) -> dict[str, Any]:
    """Memory of the server over minutes of decisions from sound."""
    rng = np.random.default_rng(1)
    with tempfile.TemporaryDirectory() as folder:
        process = start(Path(folder))
        try:
            names, _ = enrolled(Client(f"http://127.0.0.1:{PORT}"), 5, rng)
            bodies = [(f"/v1/profiles/{names[k % 5]}/verify", "audio/wav", wav(speech(k))) for k in range(20)]
            load(bodies, 4, 10)
            sizes, decided = [_resident(process.pid)], 0.0
            began = time.time()
            while time.time() < began + 60 * minutes:
                decided += load(bodies, 4, 15)["a_second"] * 15
                sizes.append(_resident(process.pid))
        finally:
            process.terminate()
            process.wait()
    return {
        "minutes": minutes,
        "decisions": round(decided),
        "MiB first": sizes[0],
        "MiB last": sizes[-1],
        "MiB most": max(sizes),
    }


def _cpu_s(pid: int) -> float:
    """Processor time of the server: what a busy machine does not change."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _resident(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    return round(next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024, 1)


def table(found: dict[str, Any]) -> str:
    """Everything that was measured, in Markdown; faults are written by benchmarks/service_faults.py."""
    load = " to ".join(f"{value:.1f}" for value in found["load before and after"])
    lines = [f"Measured on {os.cpu_count()} cores that others used at the same time (load average {load}).", ""]
    for name, rows in found.items():
        several = rows if isinstance(rows, list) else [rows] if isinstance(rows, dict) else []
        if several and isinstance(several[0], dict):
            lines += [f"## {name}", "", "| " + " | ".join(several[0]) + " |", "|" + ":---|" * len(several[0])]
            for row in several:
                cells = [
                    f"{v:.1f}" if isinstance(v, float) else f"{v:,}" if isinstance(v, int) else str(v)
                    for v in row.values()
                ]
                lines.append("| " + " | ".join(cells) + " |")
            lines.append("")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, default=Path("results/service"))
    parser.add_argument("--only", choices=["verify", "identify", "soak"])
    parser.add_argument("--seconds", type=float, default=10.0, help="of every load")
    parser.add_argument("--minutes", type=float, default=3.0, help="of the soak")
    chosen = parser.parse_args()
    chosen.output.mkdir(parents=True, exist_ok=True)
    place = chosen.output / "results.json"
    found = json.loads(place.read_text(encoding="utf-8")) if place.is_file() else {}
    parts = {
        "verify": lambda: verifications(chosen.seconds),
        "identify": identification,
        "soak": lambda: soak(chosen.minutes),
    }
    before = os.getloadavg()[0]
    for name, part in parts.items():
        if chosen.only in (None, name):
            found[name] = part()
    found["load before and after"] = [before, os.getloadavg()[0]]
    place.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    (chosen.output / "table.md").write_text(table(found), encoding="utf-8")


if __name__ == "__main__":
    main()
