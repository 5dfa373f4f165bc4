"""What protects the service: encryption at rest, keyed rotation, back-ups, the gate for sound, limits."""

from __future__ import annotations

import base64
import io
import json
import logging
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

pytest.importorskip("fastapi")

from service_problems import ERRORS, Calls, make_bench, make_model, make_world, sqlite_store

from mvplda import load, load_extractor
from mvplda.exceptions import FileFormatError, ParameterError
from mvplda.serve.app import Door, create_app
from mvplda.serve.audio import Limits, hear
from mvplda.serve.decisions import KINDS, Errors, choose_point, odds
from mvplda.serve.keys import MASTER, Master, Rates, Vault, rotation
from mvplda.serve.model import DEFAULTS, Calibration, Cell, load_model
from mvplda.serve.service import Rules, Service
from mvplda.serve.starting import open_countermeasure
from mvplda.serve.watch import JsonLines, Metrics
from mvplda.spoofing import with_countermeasure


def test_a_rotation_leaves_llrs_as_they_are():
    world = make_world(3)
    plain, turned, other = (make_model(secret) for secret in (b"", b"one" * 10, b"two" * 10))
    assert not np.allclose(turned.turn, other.turn)
    np.testing.assert_allclose(turned.turn @ turned.turn.T, np.eye(12), atol=1e-12)
    for who, claimed in (((40, 0), True), ((40, 1), True), ((41, 0), False)):
        enrolled, test = world.say(40, 0, 3), world.say(*who)
        found = []
        for model in (plain, turned, other):
            cells = [Cell("open-the-door", model.prepare(enrolled).sum(axis=0), 3)]
            found.append(
                model.evidence(cells, [Cell("open-the-door", model.prepare(test)[0], 1)], claimed)
            )
        np.testing.assert_allclose(found[1], found[0], atol=1e-6)
        np.testing.assert_allclose(found[2], found[0], atol=1e-6)


def test_templates_of_two_databases_cannot_be_told_to_be_of_one_person():
    """The cosine of one person's templates under two keys is that of strangers: spread as 1/sqrt(D)."""
    secrets = [bytes([i]) * 32 for i in range(60)]
    vector = np.random.default_rng(0).normal(size=64)
    turned = np.array([rotation(secret, 64) @ vector for secret in secrets])
    cosines = (turned @ turned.T / (vector @ vector))[np.triu_indices(60, 1)]
    assert abs(cosines.mean()) < 0.02
    assert cosines.std() == pytest.approx(1 / 8, rel=0.1)


def test_a_rotation_is_the_same_on_every_machine():
    golden = [
        [0.928517790317001, -0.21727640801495, 0.301074202788871],
        [-0.286857307221037, 0.095024177871659, 0.953248808503693],
        [0.235727805654591, 0.9714738123799, -0.025904314338255],
    ]
    np.testing.assert_allclose(rotation(b"golden", 3), golden, atol=1e-12)


def test_what_is_stored_opens_with_its_key_in_its_place_only():
    vault = Vault(Master(b"k" * 32, "test"))
    key, wrapped = vault.new_key("ann")
    assert vault.unwrap(wrapped, "ann") == key
    sealed = vault.seal(key, b"secret", "ann 1")
    assert b"secret" not in sealed
    assert vault.open(key, sealed, "ann 1") == b"secret"
    for wrong in (("ann 2", sealed), ("ann 1", sealed[:-1] + bytes([sealed[-1] ^ 1]))):
        with pytest.raises(ValueError, match="does not open"):
            vault.open(key, wrong[1], wrong[0])
    with pytest.raises(ParameterError, match="another one"):
        Vault(Master(b"l" * 32, "test")).unwrap(wrapped, "ann")


def test_no_voice_lies_in_the_open(tmp_path):
    """Neither the vector, nor what is summed of it, stands in any file in any of the usual number formats."""
    with make_bench(sqlite_store(tmp_path)) as bench:
        name = bench.calls.create()
        vector = bench.world.say(40, 0)[0]
        bench.calls.enrol(name, vector)
        share = bench.model.prepare(vector[None].astype(np.float32))[0]
    files = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert name.encode() in files
    for numbers in (vector.astype("<f4"), vector.astype("<f8"), share.astype("<i8")):
        assert numbers.tobytes()[: 2 * numbers.itemsize] not in files


def test_another_master_key_is_refused(tmp_path):
    with make_bench(sqlite_store(tmp_path)), pytest.raises(ParameterError, match="master key"):
        Service(sqlite_store(tmp_path), Master(b"o" * 32, "test"), make_model())


def test_the_master_key_comes_from_outside_or_is_made_once(tmp_path, monkeypatch):
    monkeypatch.delenv(MASTER, raising=False)
    with ThreadPoolExecutor(8) as pool:
        made = {master.key for master in pool.map(lambda _: Master.find(tmp_path), range(8))}
    assert len(made) == 1
    assert (tmp_path / "master.key").stat().st_mode & 0o077 == 0
    monkeypatch.setenv(MASTER, base64.b64encode(b"e" * 32).decode())
    assert Master.find(None).key == b"e" * 32
    monkeypatch.setenv(MASTER, "short")
    with pytest.raises(ParameterError, match="32 bytes"):
        Master.find(None)
    monkeypatch.delenv(MASTER)
    with pytest.raises(ParameterError, match="several hosts"):
        Master.find(None)


def test_who_is_deleted_cannot_be_read_from_a_back_up(tmp_path):
    copy = tmp_path / "copy.jsonl"
    with make_bench(sqlite_store(tmp_path)) as bench:
        stays, goes = bench.person(40), bench.person(41)
        assert bench.service.store.backup(copy) > 10
        bench.calls("DELETE", f"/v1/profiles/{goes}")
        (tmp_path / "data.sqlite").unlink()
        for name in ("data.sqlite-wal", "data.sqlite-shm"):
            (tmp_path / name).unlink(missing_ok=True)
        store = sqlite_store(tmp_path)
        store.restore(copy)
        service = Service(store, Master(b"m" * 32, "test"), bench.service.model, clock=bench.clock)
        calls = Calls(create_app(service, Door(open=True)))
        assert calls.verify(stays, bench.world.say(40, 0)[0]).json()["decision"] == "accept"
        assert calls("GET", f"/v1/profiles/{goes}").status_code == 410
        with pytest.raises(ParameterError, match="already"):
            store.restore(copy)
        store.close()
    (tmp_path / "nothing.jsonl").write_text("{}\n")
    with pytest.raises(FileFormatError, match="no back-up"):
        sqlite_store(tmp_path).restore(tmp_path / "nothing.jsonl")


def test_tables_of_a_newer_version_are_refused(tmp_path):
    store = sqlite_store(tmp_path)
    with store.write() as connection:
        connection.exec_driver_sql("UPDATE meta SET value = '99' WHERE name = 'schema'")
    store.close()
    with pytest.raises(FileFormatError, match="version 99"):
        sqlite_store(tmp_path)


def test_a_bucket_fills_again():
    rates = Rates(2)
    assert [rates.wait("a", now=0.0) > 0 for _ in range(3)] == [False, False, True]
    assert rates.wait("a", now=0.0) == pytest.approx(30)
    assert rates.wait("b", now=0.0) == 0
    assert rates.wait("a", now=31.0) == 0


def test_odds_are_no_surer_than_the_doubt_allows():
    sure = odds([100.0, 0.0, 0.0, 0.0], 0.001)
    assert sure.llr == pytest.approx(np.log(3 * (4 - 3 * 0.001) / (3 * 0.001)))
    assert sure.llr == pytest.approx(make_model().most)
    assert odds([0.0, 0.0, 100.0, 0.0], 0.001).llr_speaker == pytest.approx(
        -odds([0.0, 100.0, 0, 0], 0.001).llr_speaker
    )
    even = odds([0.0] * 4, 0.001, prior=0.25)
    assert (even.llr, even.llr_speaker, even.llr_phrase) == pytest.approx((0, 0, 0))
    assert even.posteriors == pytest.approx(dict.fromkeys(KINDS, 0.25))


def test_a_share_of_false_acceptances_is_what_was_measured_or_what_a_calibrated_llr_promises():
    errors = make_model().errors["enrolled"]
    found = choose_point(errors, 9.0, far=0.03)  # the next strictest that was measured
    assert (found.threshold, found.reject) == (4.0, 0.0)
    assert found.measured is not None
    assert (
        found.measured["far"] == 0.003
    )  # of thresholds that other people chose, not of the curve at this one
    with pytest.raises(ParameterError, match=r"Ask for 0\.004 or more"):
        choose_point(errors, 9.0, far=0.002)
    curve = Errors.from_dict(
        {**ERRORS, "byKind": {"TW": [0.9, 0.3, 0.08, 0.01, 0.001]}, "points": []}
    )
    promised = choose_point(curve, 9.0, far=0.1)
    assert promised.threshold == pytest.approx(-np.log(0.1))
    assert promised.measured is not None
    assert (promised.measured["far"], promised.measured["farByKind"]) == (0.02, {"TW": 0.08})
    assert choose_point(None, 9.0, far=0.1).measured is None
    with pytest.raises(ParameterError, match=r"no LLR above 4\.0"):
        choose_point(curve, 4.0, far=0.01)


def test_a_countermeasure_and_weights_are_as_the_formulas_say():
    rng = np.random.default_rng(0)
    weights = {"TW": 1.0, "IC": 3.0, "IW": 0.5, "spoof": 2.0}
    for _ in range(20):
        logs, spoof, prior = (
            rng.normal(scale=4, size=4),
            float(rng.normal(scale=4)),
            float(rng.uniform(0.01, 0.99)),
        )
        likelihoods = 0.99 * np.exp(logs) / np.exp(logs).sum() + 0.01 / 4
        found = odds(logs, 0.01, prior, spoof, weights)
        shares = np.array([1.0, 3.0, 0.5, 2.0]) / 6.5
        every = np.append(likelihoods, likelihoods[0] * np.exp(-spoof))
        joint = every * np.append(prior, (1 - prior) * shares)
        assert list(found.posteriors.values()) == pytest.approx((joint / joint.sum()).tolist())
        ordinary = odds(logs, 0.01, prior, None, weights)
        assert found.llr == pytest.approx(float(with_countermeasure(ordinary.llr, spoof, 2 / 6.5)))
        assert found.llr_speaker == ordinary.llr_speaker
    assert odds(logs, 0.01, countermeasure=-3.0).llr < odds(logs, 0.01).llr
    for wrong in ({}, {"TW": 1.0, "IC": 1.0, "IW": 0.0, "spoof": 1.0}, {**weights, "TC": 1.0}):
        with pytest.raises(ParameterError, match="weights are positive"):
            Rules(weights=wrong)


def test_calibration_by_part_leaves_the_reference_and_weighs_the_rest():
    found = Calibration(0.5, 2.0, 3.0)(np.array([[10.0, 4.0, 5.0, 0.0]]))
    assert found.tolist() == [[2.0 + 10.0 + 3.0, 2.0, 10.0, 0.0]]
    assert Calibration()(np.array([1.0, 2.0, 3.0, 0.0])).tolist() == [1.0, 2.0, 3.0, 0.0]


@pytest.mark.parametrize(
    "about",
    [
        {"calibration": {"enrolled": {"factor": 1.0}}},
        {"errors": {"far": []}},
        {"errors": {"enrolled": {}}},
    ],
)
def test_what_stands_beside_a_model_is_looked_at(about):
    with pytest.raises(FileFormatError, match="beside the model"):
        make_model(**about)


def test_without_extractors_in_the_cache_the_small_network_listens_and_says_so(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("MVPLDA_CACHE", str(tmp_path))
    model = load_model(None, None, b"")
    assert model.extractor.name.startswith("small-")
    assert model.about["demoNetwork"]
    assert "protects nothing" in model.describe()["notice"]
    assert model.describe()["operatingPoints"]


@pytest.mark.parametrize("name", ["small", "campplus-words"])
def test_default_models_are_small_and_say_what_they_rest_on(name):
    place = DEFAULTS / f"{name}.safetensors"
    assert place.stat().st_size < 2**20
    about = json.loads(place.with_suffix(".json").read_text(encoding="utf-8"))
    assert set(about) >= {"calibration", "doubt", "errors", "data", "basis", "notice"}
    assert about["data"]["licence"]
    assert set(about["calibration"]) == {"enrolled", "prompted", "sequence"}
    points = about["errors"]["enrolled"]["points"]
    assert min(point["wantedFar"] for point in points) <= about.get("far", {}).get("enrolled", 0.01)
    scorer = load(place).fitted_scorer
    assert (
        set(scorer.class_means_) == set(scorer.class_covariances_) == {"phrase"}
    )  # nothing of any person
    assert not len(scorer.classes_.get("speaker", ()))


# -- sound ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def extractor():
    return load_extractor(DEFAULTS / "small.onnx")


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
        (wav(np.zeros(16000)), "unreadable"),
        (wav(speechlike(20.0)), "too_long"),
        (wav(speechlike()[:4000]), "not_enough_speech"),
        (wav(np.clip(40 * speechlike(), -0.5, 0.5)), "clipped"),
        (wav(speechlike() + 0.1 * np.random.default_rng(0).normal(size=32000)), "too_noisy"),
        (wav(0.1 * np.random.default_rng(0).normal(size=32000)), "no_speech"),
        (wav(1e-3 * speechlike(), subtype="FLOAT"), "too_quiet"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_gate_says_why(extractor, data, reason):
    found = hear(extractor, data, Limits())
    assert (found.vector, found.reason) == (None, reason)


def test_sound_that_passes_is_a_vector_with_its_quality(extractor):
    found = hear(extractor, wav(speechlike()), Limits())
    assert found.reason is None
    assert found.vector is not None
    assert found.quality is not None
    assert found.vector.shape == (extractor.dimension,)
    assert found.quality["speechS"] > 0.6
    assert "digest" not in found.quality


# -- what is seen of it --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hook", "said", "reason"),
    [
        (lambda samples, rate: 2.5 if len(samples) == 2 * rate else 0.0, 2.5, None),
        (lambda samples, rate: 1 / 0, None, "countermeasure_failed"),
        (lambda samples, rate: float("nan"), None, "countermeasure_failed"),
        (lambda samples, rate: -np.inf, None, "countermeasure_failed"),
        (lambda samples, rate: None, None, "countermeasure_failed"),
    ],
    ids=["says", "raises", "nan", "infinite", "nothing"],
)
def test_a_countermeasure_that_fails_decides_nothing(extractor, hook, said, reason):
    heard = hear(extractor, wav(speechlike()), Limits(), hook)
    assert (heard.countermeasure, heard.reason) == (said, reason)
    assert (heard.vector is None) == (reason is not None)


@pytest.mark.parametrize(
    "place", ["nothing", "nothing:at_all", "json:nothing", "json:decoder", ":", "json"]
)
def test_a_countermeasure_that_cannot_be_called_is_refused_at_the_start(place):
    with pytest.raises(ParameterError, match="a countermeasure is"):
        open_countermeasure(place)


def test_log_lines_are_json():
    record = logging.makeLogRecord(
        {"msg": "verify", "levelname": "INFO", "resultId": "abc", "name": "mvplda.serve"}
    )
    assert json.loads(JsonLines().format(record)) == {
        "at": pytest.approx(record.created, abs=1), "level": "info", "logger": "mvplda.serve", "message": "verify",
        "resultId": "abc",
    }  # fmt: skip


def test_histograms_are_cumulative():
    metrics = Metrics()
    for seconds in (0.001, 0.02, 99):
        metrics.observe("seconds", seconds, route="a")
    text = metrics.text({})
    assert 'seconds_bucket{route="a",le="0.005"} 1' in text
    assert 'seconds_bucket{route="a",le="10"} 2' in text
    assert 'seconds_bucket{route="a",le="+Inf"} 3' in text
