"""Two more ways to call the service: multipart forms, and keys as bearer tokens."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("fastapi")

import httpx
from hypothesis import given
from hypothesis import strategies as st
from service_problems import Bench, Calls, make_bench, sqlite_store

from mvplda.serve.forms import parse_form
from mvplda.serve.recordings import ProcessedRecording
from mvplda.serve.schemas import Problem

BOUNDARY = "multipart/form-data; boundary=x"


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """A service whose recordings are the bytes of vectors."""
    with make_bench(sqlite_store(tmp_path), is_open=False) as found:
        key = found.service.store.api_keys.put("desk", "admin")
        found.calls.headers = {"X-API-Key": key}

        def process(data: bytes, *options: object) -> ProcessedRecording:
            return found.service.accept_vector(np.frombuffer(data, dtype="<f4"))

        monkeypatch.setattr(found.service, "process", process)
        yield found


def sound(vector: np.ndarray) -> bytes:
    return vector.astype("<f4").tobytes()


def test_a_form_enrols_and_verifies_as_the_body_does(bench: Bench) -> None:
    name = bench.calls.create(None, "ann")
    for number, vector in enumerate(bench.world.say(40, 0, 3)):
        files = {"sound": (f"{number}.wav", sound(vector), "audio/wav")}
        fields = {"phrase": "open the door", "session": "monday"}
        path = f"/v1/profiles/{name}/enrollments"
        answer = bench.calls("POST", path, files=files, data=fields)
        assert answer.status_code == 201, answer.text
    profile = bench.calls("GET", f"/v1/profiles/{name}").json()
    assert (profile["phrases"], profile["state"]) == (["open the door"], "enrolled")
    for speaker, expected in ((40, "accept"), (41, "reject")):
        files = {"file": ("now.wav", sound(bench.world.say(speaker, 0)[0]), "audio/wav")}
        path = f"/v1/profiles/{name}/verify?far=0.01"
        assert bench.calls("POST", path, files=files).json()["decision"] == expected


@pytest.mark.parametrize(
    ("status", "body", "content_type"),
    [
        (400, b"", "multipart/form-data"),
        (400, b"", BOUNDARY),
        (400, b"--x\r\n\r\n\r\n--x--", BOUNDARY),
        (400, b"--x\r\nContent-Disposition: form-data; name=a\r\n\r\n--x--", BOUNDARY),
        (400, b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\n\xff\r\n--x--', BOUNDARY),
        (422, b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\n1\r\n--x--', BOUNDARY),
        (400, b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\n1', BOUNDARY),
        (400, b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\n' * 40, BOUNDARY),
    ],
)
def test_wrong_forms_are_refused(bench: Bench, status: int, body: bytes, content_type: str) -> None:
    name = bench.calls.create()
    headers = {"Content-Type": content_type}
    answer = bench.calls("POST", f"/v1/profiles/{name}/verify", content=body, headers=headers)
    assert (answer.status_code, answer.json()["type"]) == (status, "urn:mvplda:form"), answer.text


@given(st.binary(max_size=300), st.dictionaries(st.sampled_from("abc"), st.text(max_size=20)))
def test_files_and_fields_of_a_form_are_read_exactly(data: bytes, fields: dict[str, str]) -> None:
    files = {"sound": ("a.wav", io.BytesIO(data), "audio/wav")}
    request = httpx.Request("POST", "http://x", files=files, data=fields)
    form = parse_form(request.read(), request.headers["Content-Type"])
    assert (form.sound, form.fields) == (data, fields)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_form_or_refused(data: bytes) -> None:
    # any other error fails the test
    with suppress(Problem):
        parse_form(b"--x\r\n" + data, BOUNDARY)


def test_a_key_is_also_a_bearer_token(bench: Bench) -> None:
    key = bench.calls.headers["X-API-Key"]
    calls = Calls(bench.calls.app)
    tokens = {
        f"Bearer {key}": 200,
        f"bearer  {key}": 200,
        f"Basic {key}": 401,
        "Bearer wrong": 401,
        "Bearer": 401,
    }
    for token, status in tokens.items():
        answer = calls("GET", "/v1/key", headers={"Authorization": token})
        assert answer.status_code == status, token
    # X-API-Key comes first
    wrong = {"Authorization": f"Bearer {key}", "X-API-Key": "wrong"}
    assert calls("GET", "/v1/key", headers=wrong).status_code == 401
    described = calls("GET", "/openapi.json").json()
    assert described == calls("GET", "/openapi.json").json()
    verify = described["paths"]["/v1/profiles/{profile_id}/verify"]["post"]
    assert verify["security"] == [{"APIKeyHeader": []}, {"Bearer": []}]
    assert "security" not in described["paths"]["/v1/health"]["get"]
