"""A small service for tests: drawn vectors, a model of them, a database, and a client that needs no network."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import anyio
import httpx
import numpy as np
from free_ports import free_port
from sklearn.pipeline import Pipeline

from mvplda import Bundle, Committee, CosineScorer, MultiviewPLDA
from mvplda.calibration.hypotheses import HypothesisCalibrator
from mvplda.decisions import OperatingPoint
from mvplda.models import SCORERS
from mvplda.preprocessing import LengthNormalisation
from mvplda.serve import challenges
from mvplda.serve.app import create_app
from mvplda.serve.keys import Caller, MasterKey
from mvplda.serve.model import Model
from mvplda.serve.recordings import ProcessedRecording
from mvplda.serve.schemas import VerifyRequest
from mvplda.serve.service import Service
from mvplda.serve.settings import Settings
from mvplda.serve.store import Store
from mvplda.serve.verifier import Attempt

D = 12
ME = Caller("me", "admin")
WORDS = ("open-the-door", "close-the-door", "my-voice-is-my-key", "seven-green-apples")
KEY = "speaker+phrase"
KNOWN = "speaker+phrase|phrase known"
POINTS = [
    OperatingPoint(
        threshold,
        far=wanted,
        measured={
            "far": {"TW": [far / 2, 0.0, far], "IC": [far, 0.0, 2 * far]},
            "frr": [frr, 0.0, 2 * frr],
        },
        people=30,
        basis="drawn",
    )
    for wanted, threshold, far, frr in (
        (0.01, 4.0, 0.003, 0.04),
        (0.05, 2.0, 0.021, 0.02),
        (0.004, 5.0, 0.001, 0.1),
    )
]


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


def make_model(seed: int = 1, scorer: str = "multiview") -> Model:
    """Trained on 30 speakers and the first phrases; the other speakers and phrases are new to it."""
    return Model(make_bundle(seed, scorer))


def even_calibrator(views: tuple[str, ...] = ("speaker", "phrase")) -> HypothesisCalibrator:
    """Leaves log-likelihoods as they are, but for a small doubt."""
    calibrator = HypothesisCalibrator()
    calibrator.weights_ = dict.fromkeys([*views, "together"], 1.0)
    names: tuple[str, ...] = ("speaker+phrase", "speaker", "phrase", "nothing")
    if len(views) == 1:
        names = (views[0], "nothing")
    calibrator.constants_ = dict.fromkeys(names, 0.0)
    calibrator.outlier_probability_ = 0.001
    calibrator.n_speakers_ = 30
    return calibrator


@lru_cache
def make_bundle(seed: int = 1, scorer: str = "multiview") -> Bundle:
    world = make_world()
    rows = [(s, p) for s in range(30) for p in range(len(WORDS)) for _ in range(3)]
    X = np.concatenate([world.say(s, p) for s, p in rows])
    labels = {"speaker": [str(s) for s, _ in rows], "phrase": [WORDS[p] for _, p in rows]}
    bundle = Bundle(
        Pipeline([("length", LengthNormalisation())]),
        make_scorer(scorer, seed),
        extractor="drawn",
        calibrations={key: even_calibrator() for key in (KEY, KNOWN, "speaker")},
        points={KEY: POINTS, KNOWN: POINTS},
        card={"name": "drawn", "speakers": 30, "phrases": 4},
    )
    with np.errstate(all="ignore"):
        bundle.fit(X, {"speaker": labels["speaker"]} if scorer == "plda" else labels)
    return bundle


RANKS = {"speaker": 6, "phrase": 3}
OURS = [name for name, scorer in SCORERS.items() if scorer.__module__.startswith("mvplda.")]
SERVED = sorted({*OURS, "committee"})
"""Scorers of the registry, but those that other tests enter, and a committee of two."""


def make_scorer(name: str, seed: int) -> Any:
    if name == "multiview":
        return MultiviewPLDA(RANKS, noise="full", max_iter=20 + seed, tol=0)
    if name == "committee":
        experts = {"joint": MultiviewPLDA(RANKS, max_iter=20), "cosine": CosineScorer()}
        return Committee(experts, columns={"cosine": (0, 6)})
    return SCORERS[name]()


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
    model: Model

    def person(self, speaker: int, phrase: int = 0, text: str = "open the door") -> str:
        """A profile that is enrolled."""
        name = self.calls.create(text, f"speaker {speaker}")
        for vector in self.world.say(speaker, phrase, 3):
            answer = self.calls.enrol(name, vector)
            assert answer.status_code == 201, answer.text
        return name


def decide(
    service: Service, name: str, heard: ProcessedRecording, ask: VerifyRequest | None = None
) -> dict[str, Any]:
    """A verification of what was heard, without HTTP."""
    outcome = service.verify([Attempt(ME, name, heard, ask or VerifyRequest())])[0]
    if isinstance(outcome, Exception):
        raise outcome
    return outcome.model_dump()


def sqlite_store(folder: Path) -> Store:
    return Store(f"sqlite:///{folder / 'data.sqlite'}", f"sqlite:///{folder / 'keys.sqlite'}")


MASTER_KEY = MasterKey(b"m" * 32, "test")


@contextmanager
def make_bench(
    store: Store, settings: Settings | None = None, model: Model | None = None, is_open: bool = True
) -> Iterator[Bench]:
    world = make_world()
    clock = Clock()
    store.clock = clock
    model = model or make_model()
    service = Service(store, MASTER_KEY, model, settings or Settings())
    # of random phrases the last: speaker 40 and the third phrase happen to lie where little can be told
    last = SimpleNamespace(choice=lambda some: some[-1], token_hex=secrets.token_hex)
    app = create_app(service, is_open=is_open)
    try:
        with patch.object(challenges, "secrets", last):
            yield Bench(world, service, Calls(app), clock, model)
    finally:
        store.close()


def write_model(folder: Path) -> Path:
    """The drawn model as a file; it names no extractor, and so takes vectors."""
    place = folder / "drawn.safetensors"
    bundle = make_bundle(1)
    bundle.extractor = None
    bundle.save(place)
    return place


@contextmanager
def running_server(
    folder: Path, *options: str, wait_s: float = 240.0, environment: dict[str, str] | None = None
) -> Iterator[Server]:
    """``mvplda serve`` in a process of its own, on vectors of the drawn model."""
    server = Server(
        folder, free_port(), [*options, "--model", str(write_model(folder))], environment or {}
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
        return self.process.wait(120)
