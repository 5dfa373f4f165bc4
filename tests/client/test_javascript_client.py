"""The JavaScript client: made from OpenAPI, and run by Node on a service."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

pytest.importorskip("fastapi")

from service_problems import Bench, make_bench, sqlite_store

import mvplda
from mvplda.serve.recordings import ProcessedRecording
from mvplda.serve.settings import Settings
from tools.javascript_client import files

PAGE = Path(mvplda.__file__).parent / "serve" / "page"
DOCUMENT = Path(__file__).parents[2] / "docs" / "client.md"
NODE = shutil.which("node")

Run = Callable[[str], list[str]]


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """A service whose recordings are the bytes of vectors; those of no vector are too noisy."""
    with make_bench(sqlite_store(tmp_path), Settings(profile_rate=0)) as found:

        def process(data: bytes, *options: object) -> ProcessedRecording:
            if len(data) != 48:
                return ProcessedRecording(None, reason="too_noisy")
            return found.service.accept_vector(np.frombuffer(data, dtype="<f4"))

        monkeypatch.setattr(found.service, "process", process)
        yield found


@contextmanager
def listening(app: Any) -> Iterator[str]:
    uvicorn = pytest.importorskip("uvicorn")
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", lifespan="off"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
        assert thread.is_alive(), "the server did not start"
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join()


@pytest.fixture
def run(bench: Bench, tmp_path: Path) -> Iterator[Run]:
    """Run a script with the client that the service delivers; return the lines of its output."""
    if NODE is None:
        pytest.skip("there is no node here")
    version = subprocess.run([NODE, "--version"], capture_output=True, text=True).stdout
    if int(version.strip("v").partition(".")[0]) < 18:
        pytest.skip(f"node {version.strip()} is older than 18, which has fetch")
    recordings = bench.world.say(40, 0, 8).astype("<f4").tolist()
    stranger = bench.world.say(41, 0)[0].tolist()
    with listening(bench.calls.app) as url:
        (tmp_path / "client.mjs").write_text(httpx.get(f"{url}/client.js").text, encoding="utf-8")
        values = {"url": url, "vectors": recordings, "stranger": stranger, "key": None}
        head = "".join(f"const {name} = {json.dumps(value)};\n" for name, value in values.items())
        head += "const sound = (vector) => Float32Array.from(vector).buffer;\n"

        def call(script: str) -> list[str]:
            path = tmp_path / "script.mjs"
            script = script.replace("./client.js", "./client.mjs")
            script = script.replace("http://127.0.0.1:8765", url)
            path.write_text(head + script, encoding="utf-8")
            done = subprocess.run([NODE, str(path)], capture_output=True, text=True, timeout=120)
            assert done.returncode == 0, done.stderr
            return done.stdout.splitlines()

        yield call


def test_the_files_are_those_that_the_tool_makes(bench: Bench) -> None:
    for name, text in files(bench.calls.app.openapi()).items():
        assert (PAGE / name).read_text(encoding="utf-8") == text, (
            "python -m tools.javascript_client"
        )


def test_every_operation_is_a_method_with_types(bench: Bench) -> None:
    code, types = (
        (PAGE / name).read_text(encoding="utf-8") for name in ("client.js", "client.d.ts")
    )
    paths = bench.calls.app.openapi()["paths"]
    operations = sum(len(found) for found in paths.values())
    assert len(re.findall(r"this\.#send\(", code)) == operations
    assert len(re.findall(r"\): Promise<\w+>;", types)) == operations
    # types that are named are defined
    named = set(re.findall(r"(?::|\||<) ?([A-Z]\w+)", types))
    defined = set(re.findall(r"export (?:interface|class|type) (\w+)", types))
    built_in = {
        "ArrayBuffer",
        "Blob",
        "Float32Array",
        "Float64Array",
        "Promise",
        "Record",
        "Uint8Array",
    }
    assert named - built_in <= defined


def test_a_person_is_enrolled_verified_found_and_deleted(run: Run) -> None:
    lines = run("""
        import { Client, ServiceError } from "./client.js";
        const voice = new Client(url + "/");
        const ann = await voice.createProfile({ userId: "ann", phrase: "open the door", consent: { given: true } });
        const id = ann.profileId;
        await voice.enrol(id, sound(vectors[0]));
        await voice.enrol(id, new Blob([sound(vectors[1])], { type: "audio/wav" }), { session: "monday & tuesday" });
        console.log((await voice.enrol(id, Float64Array.from(vectors[2]), { phrase: "open the door" })).state);
        console.log((await voice.verify(id, sound(vectors[3]), { far: 0.01 })).decision);
        console.log((await voice.verify(id, stranger)).voice);
        for (const recording of [vectors[4], sound(vectors[5])]) {
          const { identified } = await voice.identify(recording, { candidates: [id, "0".repeat(32)], top: 1 });
          console.log(identified === id);
        }
        console.log((await voice.challenge({ profileId: id, kind: "phrase" })).profileId === id);
        console.log((await voice.getProfiles({ search: "AN", after: undefined })).items.length);
        console.log((await voice.export(id)).enrollments.map((one) => one.session)[1]);
        console.log((await voice.metrics()).includes("mvplda_requests_total"));
        try { await voice.enrol(id, new Uint8Array(5)); } catch (error) {
          console.log(error instanceof ServiceError, error.status, error.kind, error.reason);
        }
        console.log((await voice.removeEnrolment(id, 1)).enrollmentsCount, (await voice.optOut(id)).state);
        console.log((await voice.deleteProfile(id)).state);
    """)
    assert lines == [
        "enrolled",
        "accept",
        "reject",
        "true",
        "true",
        "true",
        "1",
        "monday & tuesday",
        "true",
        "true 422 refused too_noisy",
        "2 opted_out",
        "deleted",
    ]


def test_a_call_whose_answer_is_lost_is_done_once(run: Run, bench: Bench) -> None:
    lines = run("""
        import { Client } from "./client.js";
        const keys = [];
        const lose = async (address, options) => {
          const answer = await fetch(address, options);
          keys.push(options.headers["Idempotency-Key"]);
          if (keys.length % 2) throw new TypeError("the answer is lost");
          return answer;
        };
        const voice = new Client(url, { fetch: lose, firstWaitS: 0.001 });
        const { profileId } = await voice.createProfile({ phrase: "open the door", consent: { given: true } });
        await voice.enrol(profileId, vectors[0]);
        console.log(keys.length, new Set(keys).size, keys[0].length);
    """)
    assert lines == ["4 2 24"]
    actions = [row.action for row in bench.service.find_audit(100, 2**31 - 1).items]
    assert sorted(actions) == ["create", "enrol"]


def test_refusals_that_pass_are_waited_for_and_others_raised(run: Run) -> None:
    lines = run("""
        import { Client } from "./client.js";
        const answers = [
          new Response("<html>bad gateway</html>", { status: 502 }),
          new Response('{"type": "urn:mvplda:busy"}', { status: 503, headers: { "Retry-After": "1" } }),
          new Response('{"items": [], "next": null}'),
          new Response('{"type": "urn:mvplda:locked", "detail": "locked"}',
            { status: 429, headers: { "Retry-After": "60" } }),
        ];
        let calls = 0;
        const voice = new Client(url, { fetch: async () => answers[calls++], firstWaitS: 0.001 });
        const begun = Date.now();
        console.log((await voice.getProfiles()).items.length, calls, Date.now() - begun >= 990);
        await voice.getProfiles().catch((error) => console.log(error.message, error.retryAfter, calls));
        const closed = new Client("http://127.0.0.1:1", { attempts: 2, firstWaitS: 0.001 });
        await closed.health().catch((error) => console.log(error instanceof TypeError));
    """)
    assert lines == ["0 3 true", "429 urn:mvplda:locked: locked 60 4", "true"]


def test_the_page_runs_as_it_stands(run: Run) -> None:
    (block,) = re.findall(r"```js\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
    head = "const recordings = vectors.slice(0, 3).map(sound), now = sound(vectors[3]);\n"
    assert run(head + block) == ["accept null", "404 not-found"]
