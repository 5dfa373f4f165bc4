"""What protects the service: encryption at rest, keyed rotation, back-ups, the gate for sound, limits."""

from __future__ import annotations

import base64
import io
import json
import logging
import os
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

pytest.importorskip("fastapi")

from service_problems import (
    MASTER_KEY,
    Calls,
    make_bench,
    make_bundle,
    make_model,
    make_world,
    sqlite_store,
)

from mvplda import load, load_extractor
from mvplda.exceptions import ParameterError
from mvplda.serve.app import create_app
from mvplda.serve.cells import Cell
from mvplda.serve.keys import (
    MASTER,
    ROTATION_BLOCK,
    MasterKey,
    TemplateRotation,
    Vault,
    rotation_matrix,
)
from mvplda.serve.log_lines import JsonLines, TextLines, log_formatter
from mvplda.serve.master_rotation import delete_keyless_profiles
from mvplda.serve.model import Model, VerificationTrial
from mvplda.serve.model_loading import MODEL_FOLDER, open_model
from mvplda.serve.recordings import process_recording
from mvplda.serve.service import Service
from mvplda.serve.settings import Settings
from mvplda.serve.tables import DATA_KEYS
from mvplda.serve.templates import rotated_back
from mvplda.voice.default_model import DEFAULT_MODEL


def test_a_rotation_leaves_llrs_as_they_are():
    world = make_world(3)
    model = Model(make_bundle())
    turns = [TemplateRotation(secret, model.rank) for secret in (b"", b"one" * 10, b"two" * 10)]
    share = model.contributions(world.say(40, 0))
    turned = [turn.apply(share.astype(float)) for turn in turns]
    assert not np.allclose(turned[1], turned[2], rtol=0.01)
    for who, claimed in (((40, 0), True), ((40, 1), True), ((41, 0), False)):
        enrolled, test = world.say(40, 0, 3), world.say(*who)
        llrs = []
        for turn in turns:
            stored = np.rint(turn.apply(model.contributions(enrolled).astype(float))).sum(axis=0)
            (total,) = rotated_back(turn, [stored.astype(np.int64)])
            phrase = "open-the-door" if claimed else ""
            cells = [Cell("open-the-door", total, 3)]
            trial = VerificationTrial(cells, Cell(phrase, model.contributions(test)[0], 1))
            llrs.append(model.decisions([trial])[0].llr)
        np.testing.assert_allclose(llrs[1:], llrs[0], atol=1e-6)


def test_templates_of_two_databases_cannot_be_told_to_be_of_one_person():
    """The cosine of one person's templates under two keys is that of strangers: spread as 1/sqrt(D)."""
    secrets = [bytes([i]) * 32 for i in range(60)]
    vector = np.random.default_rng(0).normal(size=64)
    turned = np.array([rotation_matrix(secret, 64) @ vector for secret in secrets])
    cosines = (turned @ turned.T / (vector @ vector))[np.triu_indices(60, 1)]
    assert abs(cosines.mean()) < 0.02
    assert cosines.std() == pytest.approx(1 / 8, rel=0.1)


def test_a_rotation_is_the_same_on_every_machine():
    golden = [
        [-0.022837690245304, -0.074565949659542, -0.996954542120969],
        [-0.583681598923982, -0.808617303988442, 0.073850164305899],
        [0.811661401682871, -0.583590588376676, 0.025055821207086],
    ]
    np.testing.assert_allclose(rotation_matrix(b"golden", 3), golden, atol=1e-12)


def test_long_sums_are_rotated_stretch_by_stretch():
    y = np.random.default_rng(0).normal(size=(3, 2 * ROTATION_BLOCK + 7))
    turn = TemplateRotation(b"secret", y.shape[1])
    turned = turn.apply(y)
    np.testing.assert_allclose(turn.undo(turned), y, atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(turned, axis=1), np.linalg.norm(y, axis=1))
    np.testing.assert_allclose(
        turned[:, :ROTATION_BLOCK],
        y[:, :ROTATION_BLOCK] @ rotation_matrix(b"secret", ROTATION_BLOCK).T,
    )
    # no stretch has the matrix of another
    same = np.tile(y[:, :ROTATION_BLOCK], 2)
    first, second = np.hsplit(TemplateRotation(b"secret", 2 * ROTATION_BLOCK).apply(same), 2)
    assert np.abs(first - second).max() > 0.1
    np.testing.assert_array_equal(TemplateRotation(b"", y.shape[1]).apply(y), y)


def test_what_is_stored_opens_with_its_key_in_its_place_only():
    vault = Vault(MasterKey(b"k" * 32, "test"))
    key = b"d" * 32
    wrapped = vault.wrap(key, "ann")
    assert vault.unwrap(wrapped, "ann") == key
    sealed = vault.seal(key, b"secret", "ann 1")
    assert b"secret" not in sealed
    assert vault.open(key, sealed, "ann 1") == b"secret"
    for wrong in (("ann 2", sealed), ("ann 1", sealed[:-1] + bytes([sealed[-1] ^ 1]))):
        with pytest.raises(ValueError, match="cannot be decrypted"):
            vault.open(key, wrong[1], wrong[0])
    with pytest.raises(ParameterError, match="another master key"):
        Vault(MasterKey(b"l" * 32, "test")).unwrap(wrapped, "ann")


def test_no_voice_lies_in_the_open(tmp_path):
    """Neither the vector, nor what is summed of it, stands in any file in any of the usual number formats."""
    with make_bench(sqlite_store(tmp_path)) as bench:
        name = bench.calls.create()
        vector = bench.world.say(40, 0)[0]
        bench.calls.enrol(name, vector)
        share = bench.model.contributions(vector[None].astype(np.float32))[0]
    files = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert name.encode() in files
    for numbers in (vector.astype("<f4"), vector.astype("<f8"), share.astype("<i8")):
        assert numbers.tobytes()[: 2 * numbers.itemsize] not in files


def test_another_master_key_is_refused(tmp_path):
    with make_bench(sqlite_store(tmp_path)), pytest.raises(ParameterError, match="master key"):
        Service(sqlite_store(tmp_path), MasterKey(b"o" * 32, "test"), make_model())


def test_the_master_key_comes_from_outside_or_is_made_once(tmp_path, monkeypatch):
    monkeypatch.delenv(MASTER, raising=False)
    with ThreadPoolExecutor(8) as pool:
        made = {master.key for master in pool.map(lambda _: MasterKey.find(tmp_path), range(8))}
    assert len(made) == 1
    assert (tmp_path / "master.key").stat().st_mode & 0o077 == 0
    monkeypatch.setenv(MASTER, base64.b64encode(b"e" * 32).decode())
    assert MasterKey.find(None).key == b"e" * 32
    monkeypatch.setenv(MASTER, "short")
    with pytest.raises(ParameterError, match="32 bytes"):
        MasterKey.find(None)
    monkeypatch.delenv(MASTER)
    with pytest.raises(ParameterError, match="hosts that share"):
        MasterKey.find(None)


def test_who_is_deleted_cannot_be_read_from_a_copy(tmp_path):
    """Copies of the database lie elsewhere; the data keys do not lie with them."""
    copy = tmp_path / "copy.sqlite"
    with make_bench(sqlite_store(tmp_path)) as bench:
        stays, goes = bench.person(40), bench.person(41)
        with sqlite3.connect(tmp_path / "data.sqlite") as file:
            file.execute("VACUUM INTO ?", [str(copy)])
        file.close()
        bench.calls("DELETE", f"/v1/profiles/{goes}")
        bench.service.store.close()
        for path in tmp_path.glob("data.sqlite*"):
            path.unlink()
        copy.rename(tmp_path / "data.sqlite")
        store = sqlite_store(tmp_path)
        with store.keys() as keys:  # of a process that was killed between two databases
            keys.run(DATA_KEYS.insert(), profile="nobody", wrapped=b"x")
        assert delete_keyless_profiles(store) == (1, 1)
        assert store.get_key("nobody") is None
        service = Service(store, MASTER_KEY, bench.service.model)
        calls = Calls(create_app(service, is_open=True))
        assert calls.verify(stays, bench.world.say(40, 0)[0]).json()["decision"] == "accept"
        assert calls("GET", f"/v1/profiles/{goes}").status_code == 410
        with store.read() as work:
            assert work.value("SELECT user_id FROM profiles WHERE id = :id", id=goes) is None
        store.close()


def test_the_first_key_closes_a_service_that_runs(tmp_path, monkeypatch):
    monkeypatch.setattr("mvplda.serve.callers.KEYS_S", 0.0)
    with make_bench(sqlite_store(tmp_path)) as bench:
        calls = Calls(create_app(bench.service, is_open=True))
        assert calls("GET", "/v1/profiles").status_code == 200
        bench.service.store.api_keys.put("shop", "verify")
        assert calls("GET", "/v1/profiles").status_code == 401
        assert calls("GET", "/v1/health").json()["keysWanted"]


def test_a_share_of_calls_fills_again(tmp_path):
    store = sqlite_store(tmp_path)
    now = [1e9]
    store.clock = lambda: now[0]
    assert [store.api_keys.spend("a", 1, 2) > 0 for _ in range(3)] == [False, False, True]
    assert store.api_keys.spend("a", 1, 2) == pytest.approx(30)
    assert store.api_keys.spend("b", 1, 2) == 0
    now[0] += 31
    assert store.api_keys.spend("a", 1, 2) == 0
    store.close()


def test_without_extractors_nothing_is_served_but_the_demonstration_which_warns(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("MVPLDA_CACHE", str(tmp_path))
    with pytest.raises(ParameterError, match=r"extractor get.*MUST NOT.*--demo"):
        open_model(Settings())
    model = open_model(Settings(demo=True))
    assert "DEMONSTRATION ONLY" in str(model.describe().notice)
    assert model.describe().operatingPoints


@pytest.mark.parametrize("place", [MODEL_FOLDER / "small.safetensors", DEFAULT_MODEL])
def test_default_models_are_small_and_say_what_they_rest_on(place):
    assert place.stat().st_size < 4 * 2**20
    bundle = load(place)
    assert bundle.card["licence"]
    assert bundle.card["basis"]
    assert "speaker+phrase" in bundle.calibrations
    assert min(point.far for point in bundle.operating_points()) <= 0.05
    # nothing of any person: the voices of the toy are synthetic, and it keeps the posteriors of phrases only
    if place == DEFAULT_MODEL:
        assert not bundle.fitted_scorer.classes_
    else:
        for expert in bundle.fitted_scorer.experts_.values():
            assert set(expert.fitted_scorer.class_covariances_) == {"phrase"}


# -- sound ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def extractor():
    return load_extractor(MODEL_FOLDER / "small.onnx")


def wav(samples: np.ndarray, rate: int = 16000, **options: str) -> bytes:
    file = io.BytesIO()
    pytest.importorskip("soundfile").write(file, samples, rate, **{"format": "WAV", **options})
    return file.getvalue()


def speechlike(seconds: float = 2.0, seed: int = 0) -> np.ndarray:
    """Syllables of noisy harmonics with pauses: what the gate takes for speech."""
    rng = np.random.default_rng(seed)
    t = np.arange(int(16000 * seconds)) / 16000
    tone = sum(np.sin(2 * np.pi * 140 * k * t) / k for k in range(1, 30))
    envelope = np.maximum(0, np.sin(2 * np.pi * 2.5 * t)) ** 2
    return np.asarray(
        0.1 * envelope * (tone + rng.normal(size=len(t))) + 1e-4 * rng.normal(size=len(t))
    )


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "unreadable"),
        (b"RIFF....WAVEfmt ", "unreadable"),
        (b"\x1a\x45\xdf\xa3" + b"\x00" * 100, "unreadable"),
        (wav(np.zeros(16000)), "no_speech"),
        (wav(speechlike(20.0)), "too_long"),
        (wav(speechlike()[:4000]), "not_enough_speech"),
        (wav(np.clip(40 * speechlike(), -0.5, 0.5)), "clipped"),
        (wav(speechlike() + 0.03 * np.random.default_rng(0).normal(size=32000)), "too_noisy"),
        (wav(0.1 * np.random.default_rng(0).normal(size=32000)), "no_speech"),
        (wav(1e-3 * speechlike(), subtype="FLOAT"), "too_quiet"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_gate_says_why(extractor, data, reason):
    found = process_recording(extractor, data, Settings())
    assert (found.vector, found.reason) == (None, reason)


def test_sound_that_passes_is_a_vector_with_its_quality(extractor):
    found = process_recording(extractor, wav(speechlike()), Settings())
    assert found.reason is None
    assert found.vector is not None
    assert found.quality is not None
    assert found.vector.shape == (extractor.dimension,)
    assert found.quality.speechS > 0.6
    assert "digest" not in found.quality


# -- what is seen of it --------------------------------------------------------------------


def test_log_lines_are_json():
    record = logging.makeLogRecord(
        {
            "msg": "verify",
            "levelname": "INFO",
            "fields": {"resultId": "abc"},
            "name": "mvplda.serve",
        }
    )
    assert json.loads(JsonLines().format(record)) == {
        "at": pytest.approx(record.created, abs=1), "level": "info", "logger": "mvplda.serve", "message": "verify",
        "resultId": "abc",
    }  # fmt: skip


def test_log_lines_on_a_terminal_are_text():
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    assert isinstance(log_formatter("auto", Terminal()), TextLines)
    assert isinstance(log_formatter("auto", io.StringIO()), JsonLines)
    assert isinstance(log_formatter("json", Terminal()), JsonLines)
    fields = {
        "method": "POST",
        "path": "/v1/identify",
        "status": 200,
        "ms": 41.7,
        "caller": None,
        "decision": "accept",
    }
    request = logging.makeLogRecord({"msg": "request", "levelno": logging.INFO, "fields": fields})
    assert TextLines().format(request)[9:] == "POST /v1/identify 200 accept 42 ms"
    damage = {
        "msg": "damaged",
        "levelno": logging.ERROR,
        "levelname": "ERROR",
        "fields": {"profile": "ann"},
    }
    assert TextLines().format(logging.makeLogRecord(damage))[9:] == "error damaged profile=ann"


COUNT = """
import sys
from mvplda.serve.access import Metrics
metrics = Metrics()
metrics.requests.labels("/a", 200).inc()
metrics.seconds.labels("/a").observe(0.02)
metrics.recordings.inc()
if "show" in sys.argv:
    print(metrics.text().decode())
"""


def test_counts_of_all_processes_add_up_and_a_killed_one_has_nothing_in_work(tmp_path):
    environment = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
    for words in ([], [], ["show"]):
        command = [sys.executable, "-c", COUNT, *words]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert 'mvplda_requests_total{route="/a",status="200"} 3.0' in lines
    assert 'mvplda_request_seconds_bucket{le="0.01",route="/a"} 0.0' in lines
    assert 'mvplda_request_seconds_bucket{le="0.025",route="/a"} 3.0' in lines
    assert 'mvplda_request_seconds_bucket{le="+Inf",route="/a"} 3.0' in lines
    assert "mvplda_recordings 1.0" in lines
