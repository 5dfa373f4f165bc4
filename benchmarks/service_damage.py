"""Send damaged recordings to the service, and test whether it processes or refuses every one of them.

``python benchmarks/service_damage.py [-n 10000] [--seed 0] [-o results/service]``. Recordings in every format that
the service reads are truncated or changed, or get headers with wrong lengths. Every answer must be a success (2xx,
including inconclusive verdicts) or a refusal (4xx). The server must still run at the end, and its memory must not
grow. If a body is shorter than its Content-Length, the client closes the connection and gets no answer.
"""

# ruff: noqa: E402

from __future__ import annotations

import argparse
import io
import json
import socket
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support"), str(ROOT / "tests" / "extractors")]

from service_client import Client

from benchmarks.service import PORT, _resident, add, enrolled, speech, start
from mvplda.serve.model_loading import MODEL_FOLDER

SHAPES = (
    "cut",
    "head",
    "anywhere",
    "stretch doubled",
    "stretch lost",
    "zeros",
    "length lies",
    "two in one",
    "noise",
)
WAYS = ("body", "length too short", "length too long")


def sounds() -> dict[str, bytes]:
    """The same speech in every kind that the service reads."""
    import soundfile
    from test_extractors_sound import KINDS, encoded

    said, found = speech(0), {}
    for kind, subtype in (
        ("WAV", "PCM_16"),
        ("WAV", "FLOAT"),
        ("WAV", "ULAW"),
        ("FLAC", "PCM_16"),
        ("OGG", "VORBIS"),
    ):
        file = io.BytesIO()
        soundfile.write(file, said, 16000, format=kind, subtype=subtype)
        found[f"{kind} {subtype}"] = file.getvalue()
    for name, (form, codec, options) in KINDS.items():
        found[name] = encoded(said, form, codec, **options)
    return found


def damaged(data: bytes, how: str, rng: np.random.Generator) -> bytes:
    """What is left of a recording after one kind of damage."""
    size = len(data)
    here, there = sorted(rng.integers(0, size, 2).tolist())
    if how == "cut":
        return data[:here]
    if how in ("head", "anywhere"):
        changed = bytearray(data)
        for place in rng.integers(
            0, min(size, 128) if how == "head" else size, 1 + int(rng.integers(12))
        ).tolist():
            changed[place] = int(rng.integers(256))
        return bytes(changed)
    if how == "stretch doubled":
        return data[:there] + data[here:]
    if how == "stretch lost":
        return data[:here] + data[there:]
    if how == "zeros":
        return data[:here] + bytes(there - here) + data[there:]
    if how == "length lies":  # four bytes of the head are a number of any size, in either order
        place = int(rng.integers(4, min(size, 256) - 4))
        number = int(rng.choice([0, 1, 2**31 - 1, 2**31, 2**32 - 1, size * 2, 10**9])) % 2**32
        return (
            data[:place]
            + number.to_bytes(4, "little" if rng.integers(2) else "big")
            + data[place + 4 :]
        )
    if how == "two in one":
        return data[:here] + data
    return data[: int(rng.integers(4, 64))] + rng.bytes(int(rng.integers(0, 4000)))


def media_type(rng: np.random.Generator) -> str:
    return str(rng.choice(["audio/wav", "audio/webm", "audio/ogg", "application/octet-stream"]))


def call(path: str, kind: str, body: bytes, declared: int) -> int:
    """The status of an answer; 0 where the body is shorter than declared, and the client goes."""
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{PORT}\r\nContent-Type: {kind}\r\nContent-Length: {declared}\r\n"
    with socket.create_connection(("127.0.0.1", PORT), timeout=3600) as line:
        line.sendall(f"{head}Connection: close\r\n\r\n".encode() + body)
        if declared > len(body):
            return 0
        try:
            answer = line.makefile("rb").readline()
        except (
            ConnectionResetError
        ):  # more came than was told: the server closes, and may be faster than we read
            return 0
    return int(answer.split()[1]) if answer else 0


def run(count: int, seed: int) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    rng, whole = np.random.default_rng(seed), sounds()
    found: dict[str, Counter[str]] = {name: Counter() for name in whole}
    with tempfile.TemporaryDirectory() as folder:
        process = start(
            Path(folder),
            model=MODEL_FOLDER / "small.safetensors",
            extractor=MODEL_FOLDER / "small.onnx",
        )
        sizes: list[float] = []
        try:
            client = Client(f"http://127.0.0.1:{PORT}")
            name = enrolled(client, 1, rng)[0][0]
            other = client.create("damaged", "my voice is my key")
            for k in range(count):
                kind, how = list(whole)[k % len(whole)], str(rng.choice(SHAPES))
                way = str(rng.choice(WAYS, p=[0.9, 0.05, 0.05]))
                data = damaged(whole[kind], how, rng)
                media = media_type(rng)
                lie = {"length too short": -1, "length too long": 1}.get(way, 0) * int(
                    rng.integers(1, 5000)
                )
                path = (
                    f"/v1/profiles/{name}/verify" if k % 2 else f"/v1/profiles/{other}/enrollments"
                )
                status = call(path, media, data, max(0, len(data) + lie))
                found[kind]["tried"] += 1
                found[kind]["left without an answer" if not status else f"{status // 100}xx"] += 1
                assert status // 100 in (0, 2, 4), (k, kind, how, way, status)
                assert process.poll() is None, (k, kind, how, way)
                if k % 1000 == 999:
                    sizes.append(_resident(process.pid))
                    print(f"{k + 1} sent, {sizes[-1]} MiB", flush=True)
            client("GET", "health")
        finally:
            process.terminate()
            process.wait()
    columns = ("tried", "2xx", "4xx", "5xx", "left without an answer")
    rows = [
        {"kind": name, **{column: counts[column] for column in columns}}
        for name, counts in found.items()
    ]
    return rows, {
        "sent": count,
        **{f"MiB after {1000 * (k + 1)}": size for k, size in enumerate(sizes)},
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-n", type=int, default=10_000, help="recordings")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("-o", "--output", type=Path, help="folder of results to add to")
    chosen = parser.parse_args()
    began = time.time()
    rows, memory = run(chosen.n, chosen.seed)
    print(json.dumps(rows, indent=1), memory, f"{time.time() - began:.0f} s")
    if chosen.output is not None:
        add(chosen.output, {"damaged recordings": rows, "memory over damaged recordings": memory})


if __name__ == "__main__":
    main()
