"""The service on every scorer of the registry: enrol, verify, identify, take out, rotate."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("fastapi")

from service_problems import (
    MASTER_KEY,
    SERVED,
    WORDS,
    Calls,
    make_bench,
    make_bundle,
    make_world,
    sqlite_store,
)

from mvplda.decisions import HalfThreshold, OperatingPoint
from mvplda.model_files import load_model
from mvplda.serve.app import create_app
from mvplda.serve.keys import MasterKey
from mvplda.serve.master_rotation import rotate_database
from mvplda.serve.model import Model
from mvplda.serve.service import Service
from mvplda.serve.settings import Settings
from mvplda.training import train
from mvplda.voice.default_model import DEFAULT_MODEL


@pytest.mark.parametrize("name", SERVED)
def test_every_scorer_is_served(tmp_path, name):
    bundle = make_bundle(1, name)
    with make_bench(sqlite_store(tmp_path), model=Model(bundle)) as bench:
        world = bench.world
        ann, bob = bench.person(40), bench.person(41)
        test = world.say(40, 0)[0]
        found = bench.calls.verify(ann, test).json()
        assert np.isfinite(found["llr"])
        assert sum(found["posteriors"].values()) == pytest.approx(1)
        other = bench.calls.verify(bob, test).json()
        assert other["llr"] < found["llr"]
        assert other["decision"] != "accept"
        assert not (found["decision"] == "accept" and found["llr"] < 0)
        ranked = bench.calls("POST", "/v1/identify", json={"vector": test.tolist()}).json()
        assert ranked["candidates"][0]["profileId"] == ann
        # exact: taken out and put in again, the answer is the same to the bit
        extra = world.say(40, 0)[0]
        number = bench.calls.enrol(ann, extra).json()["enrollmentId"]
        bench.calls("DELETE", f"/v1/profiles/{ann}/enrollments/{number}")
        assert bench.calls.verify(ann, test).json()["llr"] == found["llr"]
        # a new rotation changes nothing
        store = sqlite_store(tmp_path)
        new = MasterKey(b"n" * 32, "test")
        rotate_database(store, MASTER_KEY, new)
        store.clock = bench.clock
        turned = Calls(create_app(Service(store, new, Model(bundle)), is_open=True))
        again = turned.verify(ann, test).json()["llr"]
        assert again == pytest.approx(found["llr"], abs=1e-5)
        store.close()


def field_names(value: Any) -> Iterator[str]:
    """Names of all fields of a JSON value."""
    if isinstance(value, list):
        for item in value:
            yield from field_names(item)
    if isinstance(value, dict):
        for name, item in value.items():
            yield name
            yield from field_names(item)


@pytest.mark.parametrize(
    ("views", "kinds"),
    [(["speaker", "phrase"], {"TW", "IC", "IW"}), (["speaker"], {"IC"})],
    ids=["voices and words", "voices"],
)
def test_kinds_of_trials_have_the_names_of_the_posteriors(tmp_path, views, kinds):
    world = make_world()
    rows = [(speaker, phrase) for speaker in range(16) for phrase in range(len(WORDS))]
    X = np.concatenate([world.say(*row, 3) for row in rows])
    speakers, phrases = np.repeat(rows, 3, axis=0).T.astype(str)
    labels = {"speaker": speakers, "phrase": phrases}
    model = "cosine" if len(views) == 1 else "committee"
    bundle = train(X, {view: labels[view] for view in views}, model=model, folds=2)
    with make_bench(sqlite_store(tmp_path), model=Model(bundle)) as bench:
        about = bench.calls("GET", "/v1/model").json()
        assert about["operatingPoints"]
        for point in about["operatingPoints"]:
            assert set(point["farByKind"]) == kinds
            assert point["far"] == max(point["farByKind"].values())
        found = bench.calls.verify(bench.person(40), world.say(40, 0)[0]).json()
        assert set(found["operatingPoint"]["farByKind"]) <= set(found["posteriors"])
        assert about["data"]["heldOut"]["errors"]["speaker"]["minCllr"] >= 0
        assert [name for name in field_names(about) if "_" in name] == []
        schemas = bench.calls("GET", "/openapi.json").json()["components"]["schemas"]
        fields = [field for schema in schemas.values() for field in schema.get("properties", {})]
        assert [field for field in fields if "_" in field] == []


def test_the_default_model_is_described_in_one_case_style():
    about = Model(load_model(DEFAULT_MODEL)).describe().model_dump()
    assert about["data"]["leftOut"]
    assert [name for name in field_names(about) if "_" in name] == []


def point_of_voice(threshold: float, far: float) -> OperatingPoint:
    return OperatingPoint.from_halves({"speaker": HalfThreshold(threshold)}, far=far)


def test_identification_is_as_strict_as_the_service_is_set(tmp_path):
    bundle = copy(make_bundle(1))

    def identified(settings: Settings | None = None) -> tuple[bool, float]:
        folder = Path(tempfile.mkdtemp(dir=tmp_path))
        with make_bench(sqlite_store(folder), settings, Model(bundle)) as bench:
            ann = bench.person(40)
            body = {"vector": bench.world.say(40, 0)[0].tolist()}
            found = bench.calls("POST", "/v1/identify", json=body).json()
            return found["identified"] == ann, found["candidates"][0]["llr"]

    llr = identified()[1]
    assert llr > 1
    limits = {0.01: llr + 0.5, 0.05: llr - 0.5, 0.001: llr + 0.7}
    points = [point_of_voice(threshold, far) for far, threshold in limits.items()]
    bundle.points = {**(bundle.points or {}), "speaker": points}
    assert identified(Settings(far=0.05))[0]
    assert not identified(Settings(far=0.001))[0]
    # 2 %, where nothing is set: the point for 1 % promises as much
    assert not identified()[0]
    bundle.points = {"speaker": [*points, point_of_voice(llr - 0.2, 0.02)]}
    assert identified()[0]
