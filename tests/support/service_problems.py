"""A small service for tests: drawn vectors, a model of them, a database, and a client that needs no network."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import anyio
import httpx
import numpy as np
from sklearn.pipeline import Pipeline

from mvplda import Bundle, MultiviewPLDA
from mvplda.preprocessing import LengthNormalisation
from mvplda.serve.app import Door, create_app
from mvplda.serve.keys import Master
from mvplda.serve.model import ServiceModel
from mvplda.serve.service import Rules, Service
from mvplda.serve.store import Store

D = 12
WORDS = ("open-the-door", "close-the-door", "my-voice-is-my-key", "seven-green-apples")
ERRORS = {
    "thresholds": [-5.0, 0.0, 2.0, 4.0, 5.0],
    "far": [
        [0.5, 0.4, 0.6],
        [0.1, 0.05, 0.2],
        [0.02, 0.01, 0.04],
        [0.004, 0.002, 0.01],
        [0.001, 0.0, 0.003],
    ],
    "frr": [
        [0.0, 0.0, 0.01],
        [0.01, 0.0, 0.02],
        [0.02, 0.01, 0.03],
        [0.04, 0.02, 0.06],
        [0.06, 0.03, 0.1],
    ],
    "people": 30,
    "trials": {"TC": 100, "TW": 100, "IC": 100, "IW": 100},
    "points": [
        {
            "wantedFar": wanted,
            "threshold": threshold,
            "far": far,
            "farInterval": [0.0, 2 * far],
            "frr": frr,
        }
        | {"frrInterval": [0.0, 2 * frr], "farByKind": {}}
        for wanted, threshold, far, frr in (
            (0.05, 2.0, 0.021, 0.02),
            (0.01, 4.0, 0.003, 0.04),
            (0.004, 5.0, 0.001, 0.1),
        )
    ],
}
ABOUT = {
    "name": "drawn",
    "doubt": 0.001,
    "calibration": {"enrolled": {"speaker": 1.0, "phrase": 1.0, "together": 1.0}},
    "errors": {"enrolled": ERRORS},
    "data": {"name": "drawn", "speakers": 30, "phrases": 4},
}


@dataclass
class World:
    """Speakers and phrases of a drawn model: whoever is asked says a phrase once more, each time a little otherwise."""

    speakers: np.ndarray
    phrases: np.ndarray
    rng: np.random.Generator

    def say(self, speaker: int, phrase: int, n: int = 1) -> np.ndarray:
        noise = 0.15 * self.rng.normal(size=(n, D))
        return self.speakers[speaker] + self.phrases[phrase] + noise


def make_world(seed: int = 0) -> World:
    rng = np.random.default_rng(seed)
    both = np.linalg.qr(rng.normal(size=(D, D)))[0]
    return World(rng.normal(size=(60, 6)) @ both[:6], rng.normal(size=(9, 5)) @ both[6:11], rng)


def make_model(secret: bytes = b"s" * 32, seed: int = 1, **about: Any) -> ServiceModel:
    """Trained on 30 speakers and the first phrases; the other speakers and phrases are new to it."""
    return ServiceModel(_bundle(seed), None, {**ABOUT, **about}, secret)


@lru_cache
def _bundle(seed: int) -> Bundle:
    world = make_world()
    rows = [(s, p) for s in range(30) for p in range(len(WORDS)) for _ in range(3)]
    X = np.concatenate([world.say(s, p) for s, p in rows])
    labels = {"speaker": [str(s) for s, _ in rows], "phrase": [WORDS[p] for _, p in rows]}
    scorer = MultiviewPLDA({"speaker": 6, "phrase": 3}, noise="full", max_iter=20 + seed, tol=0)
    bundle = Bundle(Pipeline([("length", LengthNormalisation())]), scorer, extractor="drawn")
    with np.errstate(all="ignore"):
        bundle.fit(X, labels)
    return bundle


class Clock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now = 1.8e9

    def __call__(self) -> float:
        return self.now


class Calls:
    """Calls to an application in this process."""

    def __init__(self, app: Any, headers: dict[str, str] | None = None) -> None:
        self.app, self.headers = app, headers or {}

    def __call__(self, method: str, path: str, **options: Any) -> httpx.Response:
        async def call() -> httpx.Response:
            transport = httpx.ASGITransport(app=self.app, raise_app_exceptions=False)
            async with httpx.AsyncClient(
                transport=transport, base_url="http://localhost"
            ) as client:
                return await client.request(
                    method, path, headers={**self.headers, **options.pop("headers", {})}, **options
                )

        return anyio.run(call)

    def create(self, phrase: str | None = "open the door", user: str | None = "ann") -> str:
        body = {"userId": user, "phrase": phrase, "consent": {"given": True, "text": "yes"}}
        answer = self("POST", "/v1/profiles", json=body)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["profileId"])

    def enrol(self, name: str, vector: np.ndarray, **more: Any) -> httpx.Response:
        body = {"vector": vector.tolist(), **more.pop("fields", {})}
        return self("POST", f"/v1/profiles/{name}/enrollments", json=body, **more)

    def verify(self, name: str, vector: np.ndarray, **fields: Any) -> httpx.Response:
        return self(
            "POST", f"/v1/profiles/{name}/verify", json={"vector": vector.tolist(), **fields}
        )


@dataclass
class Bench:
    """Everything that a test touches."""

    world: World
    service: Service
    calls: Calls
    clock: Clock
    model: ServiceModel

    def person(self, speaker: int, phrase: int = 0, text: str = "open the door") -> str:
        """A profile that is enrolled."""
        name = self.calls.create(text, f"speaker {speaker}")
        for vector in self.world.say(speaker, phrase, 3):
            answer = self.calls.enrol(name, vector)
            assert answer.status_code == 201, answer.text
        return name


def sqlite_store(folder: Path) -> Store:
    return Store(f"sqlite:///{folder / 'data.sqlite'}", f"sqlite:///{folder / 'keys.sqlite'}")


@contextmanager
def make_bench(
    store: Store, rules: Rules | None = None, door: Door | None = None, **options: Any
) -> Iterator[Bench]:
    world, clock = make_world(), Clock()
    model = options.pop("model", None) or make_model()
    service = Service(store, Master(b"m" * 32, "test"), model, rules, clock)
    try:
        yield Bench(
            world, service, Calls(create_app(service, door or Door(open=True))), clock, model
        )
    finally:
        store.close()


def write_model(folder: Path) -> Path:
    """The drawn model as a file, with what stands beside it."""
    place = folder / "drawn.safetensors"
    _bundle(1).save(place)
    place.with_suffix(".json").write_text(json.dumps(ABOUT), encoding="utf-8")
    return place


@contextmanager
def running_server(
    folder: Path, *options: str, wait_s: float = 240.0, environment: dict[str, str] | None = None
) -> Iterator[Server]:
    """``mvplda serve`` in a process of its own, on vectors of the drawn model."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = Server(
        folder, port, [*options, "--model", str(write_model(folder))], environment or {}
    )
    try:
        server.start(wait_s)
        yield server
    finally:
        server.stop()


@dataclass
class Server:
    folder: Path
    port: int
    options: list[str]
    environment: dict[str, str]
    process: Any = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self, wait_s: float = 240.0) -> None:
        command = [
            sys.executable,
            "-m",
            "mvplda",
            "serve",
            "--port",
            str(self.port),
            "--data",
            str(self.folder),
        ]
        environment = {**os.environ, **self.environment}
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [*command, *self.options], env=environment, stdout=log, stderr=log
            )
        until = time.monotonic() + wait_s
        while True:
            try:
                if httpx.get(f"{self.url}/v1/ready", timeout=5).status_code == 200:
                    return
            except httpx.HTTPError:
                pass
            if time.monotonic() > until or self.process.poll() is not None:
                raise RuntimeError((self.folder / "log").read_text()[-2000:])
            time.sleep(0.1)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(30)
