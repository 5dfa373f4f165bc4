"""Workers that cannot start: pauses, lines in the log, and the exit status of the service."""

from __future__ import annotations

import json
import logging
import os
import signal
import time
from pathlib import Path

import pytest

pytest.importorskip("fastapi")

from service_client import Client
from service_problems import running_server

from mvplda.exceptions import ParameterError
from mvplda.serve import workers
from mvplda.serve.workers import START_FAILURE, WorkerStarts


@pytest.fixture
def pauses(monkeypatch):
    """Pauses, which pass at once."""
    slept: list[float] = []
    clock = [1e9]

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        clock[0] += seconds

    monkeypatch.setattr(workers.time, "sleep", sleep)
    monkeypatch.setattr(workers.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(workers.time, "time", lambda: clock[0])
    return slept


def test_a_worker_starts_once_it_can(tmp_path, pauses, caplog):
    problems = iter([ParameterError("the database is away"), OSError("no room")])

    def start() -> str:
        for problem in problems:
            raise problem
        return "a service"

    starts = WorkerStarts(tmp_path, 2)
    with caplog.at_level(logging.ERROR, "mvplda.serve"):
        assert starts.run(start) == "a service"
    assert pauses == [1, 2]
    lines = [record.getMessage() for record in caplog.records]
    assert [line.rpartition(": ")[2] for line in lines] == ["the database is away", "no room"]
    assert not starts.has_failed


def test_a_service_without_any_worker_ends(tmp_path, pauses, monkeypatch):
    killed: list[tuple[int, int]] = []
    monkeypatch.setattr(workers.os, "kill", lambda *arguments: killed.append(arguments))

    def start() -> None:
        raise ParameterError("there is no model")

    with pytest.raises(SystemExit) as end:
        WorkerStarts(tmp_path, 2).run(start)
    assert end.value.code == START_FAILURE
    assert killed == [(os.getppid(), signal.SIGTERM)]
    assert workers.START_LIMIT_S < sum(pauses) < 3 * workers.START_LIMIT_S
    # the parent reads the same folder
    assert WorkerStarts(tmp_path, 2).has_failed


def test_one_of_several_workers_does_not_end_the_others(tmp_path, pauses):
    WorkerStarts(tmp_path, 2).run(lambda: "the first")
    attempts = iter(range(20))

    def start() -> str:
        if next(attempts) < 15:
            raise ParameterError("the database is away")
        return "the second"

    assert WorkerStarts(tmp_path, 2).run(start) == "the second"
    assert max(pauses) == workers.PAUSES_S[1]


def test_workers_that_crash_start_more_and_more_slowly(tmp_path, pauses):
    for _ in range(10):
        WorkerStarts(tmp_path, 2).run(lambda: None)
    assert pauses == [1, 2, 4, 8, 16, 30]
    pauses.clear()
    workers.time.sleep(workers.RECENT_S)
    WorkerStarts(tmp_path, 2).run(lambda: None)
    assert pauses == [workers.RECENT_S]


def children(pid: int) -> set[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return {int(child) for child in text.split()}


@pytest.mark.slow
def test_a_worker_that_was_killed_comes_back_when_the_model_does(tmp_path):
    with running_server(tmp_path, "--workers", "2") as server:
        client = Client(server.url)
        model = tmp_path / "drawn.safetensors"
        model.rename(tmp_path / "elsewhere")
        # one of them is multiprocessing's own tracker
        serving = [pid for pid in children(server.process.pid) if is_worker(pid)]
        os.kill(serving[0], signal.SIGKILL)
        wait_for_line(tmp_path, "a worker process cannot start")
        assert "died" in " ".join(messages(tmp_path))
        # the other one answers
        assert client("GET", "health")["status"] == "ok"
        (tmp_path / "elsewhere").rename(model)
        count = len(messages(tmp_path))
        wait_for_line(tmp_path, "Application startup complete.", count)
        assert server.stop() in (0, -signal.SIGTERM)


def is_worker(pid: int) -> bool:
    return "spawn_main" in Path(f"/proc/{pid}/cmdline").read_text()


def messages(folder: Path) -> list[str]:
    lines = (folder / "log").read_text().splitlines()
    return [json.loads(line)["message"] for line in lines if line.startswith("{")]


def wait_for_line(folder: Path, text: str, start: int = 0) -> None:
    until = time.monotonic() + 120
    while not any(text in message for message in messages(folder)[start:]):
        assert time.monotonic() < until, (folder / "log").read_text()[-2000:]
        time.sleep(0.2)
