"""The service on every scorer of the registry: enrol, verify, identify, take out, rotate."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("fastapi")

from service_problems import MASTER_KEY, SERVED, Calls, make_bench, make_bundle, sqlite_store

from mvplda.serve.app import create_app
from mvplda.serve.keys import Master
from mvplda.serve.model import Model
from mvplda.serve.service import Service
from mvplda.serve.templates import rotate_database


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
        new = Master(b"n" * 32, "test")
        rotate_database(store, MASTER_KEY, new)
        store.clock = bench.clock
        turned = Calls(create_app(Service(store, new, Model(bundle)), is_open=True))
        again = turned.verify(ann, test).json()["llr"]
        assert again == pytest.approx(found["llr"], abs=1e-5)
        store.close()
