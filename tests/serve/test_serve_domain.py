"""The service's model follows the domain of what is enrolled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("fastapi")

from domain_problems import Place, domain_bundle, make_place
from service_problems import MASTER_KEY, Bench, make_bench, sqlite_store

from mvplda import Bundle
from mvplda.decisions import OperatingPoint
from mvplda.models.deployment import domain_as_prior
from mvplda.scoring.question import Question
from mvplda.serve import domain
from mvplda.serve.cells import Cell
from mvplda.serve.model import Model, VerificationTrial
from mvplda.serve.service import Service
from mvplda.serve.settings import Settings

TEXTS = ("open the door", "close the door", "seven green apples")


def enrol(bench: Bench, place: Place, person: int, phrases: int = 1) -> str:
    name = bench.calls.create(TEXTS[0], f"person {person}")
    for phrase in range(phrases):
        for vector in place.say(person, phrase, 3):
            answer = bench.calls.enrol(name, vector, fields={"phrase": TEXTS[phrase]})
            assert answer.status_code == 201, answer.text
    return name


def decisions(bench: Bench, place: Place, name: str, person: int, takes: int = 10) -> list[str]:
    vectors = place.say(person, 0, takes)
    found = [bench.calls.verify(name, vector, phrase=TEXTS[0]).json() for vector in vectors]
    # rejections lock
    return [one.get("decision", "locked") for one in found]


def shift(service: Service) -> Any:
    with service.store.read() as work:
        scorer: Any = service.profiles.domain.deployed(work).scorer
    return scorer.shift_


@pytest.fixture
def bench(tmp_path: Path):
    settings = Settings(lock_after=1000)
    with make_bench(sqlite_store(tmp_path), settings, Model(domain_bundle())) as one:
        yield one


def test_few_shifted_people_are_accepted_and_strangers_are_not(bench: Bench) -> None:
    place = make_place(7, size=0.2)
    names = [enrol(bench, place, person, 2) for person in range(6)]
    own, others, undeployed = [], [], []
    model = bench.model
    for person, name in enumerate(names):
        own += decisions(bench, place, name, person)
        others += decisions(bench, place, name, 30 + person)
        with bench.service.store.read() as work:
            cells = bench.service.templates.cells(work, bench.service.profiles.row(work, name))
        for vector in place.say(30 + person, 0, 10):
            test = Cell("open-the-door", model.contributions(vector[None])[0], 1)
            decision = model.decisions([VerificationTrial(cells, test)])[0]
            undeployed.append(decision.llrs["speaker"])
    assert own.count("accept") >= 0.9 * len(own)
    assert others.count("accept") == 0
    # without its domain the model takes strangers of this place for the owner more often than not
    deployed_model = np.mean(np.array(undeployed) > 4.6)
    assert deployed_model > 0.1


def test_a_person_who_leaves_takes_the_domain_back(bench: Bench) -> None:
    place = make_place(8, size=0.2)
    np.testing.assert_array_equal(shift(bench.service), 0.0)
    enrol(bench, place, 0)
    one = shift(bench.service)
    assert np.abs(one).max() > 0
    second = enrol(bench, place, 1)
    assert not np.allclose(shift(bench.service), one)
    bench.calls("DELETE", f"/v1/profiles/{second}")
    np.testing.assert_allclose(shift(bench.service), one, rtol=0, atol=1e-15)


def test_two_processes_have_the_same_domain(bench: Bench) -> None:
    place = make_place(9, size=0.2)
    enrol(bench, place, 0, 2)
    other = Service(bench.service.store, MASTER_KEY, Model(domain_bundle()), bench.service.settings)
    np.testing.assert_array_equal(shift(other), shift(bench.service))
    enrol(bench, place, 1)
    enrol(bench, place, 2)
    np.testing.assert_array_equal(shift(other), shift(bench.service))


def test_the_domain_is_that_of_the_sums_and_is_not_computed_twice(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = make_place(10, size=0.2)
    for person in range(4):
        enrol(bench, place, person, 2)
    takes = Model.deployed
    made = []

    def counted(*args: Any) -> Any:
        made.append(1)
        return takes(*args)

    monkeypatch.setattr(Model, "deployed", counted)
    first = shift(bench.service)
    decisions(bench, place, enrol(bench, place, 5), 5)
    assert len(made) <= 4  # one for each recording that was enrolled
    assert not np.array_equal(shift(bench.service), first)
    # beyond the limit, profiles of the first names are the sample
    monkeypatch.setattr(domain, "DOMAIN_PROFILES", 3)
    small = Service(bench.service.store, MASTER_KEY, Model(domain_bundle()), bench.service.settings)
    with small.store.read() as work:
        sample = small.profiles.domain.sample(work)
    assert len(sample) == 3
    assert [row[0] for row in sample] == sorted(row[0] for row in sample)
    assert np.abs(shift(small)).max() > 0


def test_who_is_not_enrolled_is_not_named(bench: Bench) -> None:
    place = make_place(11, size=0.2)
    names = [enrol(bench, place, person, 2) for person in range(8)]
    named, own = 0, 0
    for person in range(8):
        for vector in place.say(30 + person, 3, 3):
            found = bench.calls("POST", "/v1/identify", json={"vector": vector.tolist()}).json()
            named += found["identified"] is not None
        for vector in place.say(person, 3, 3):
            found = bench.calls("POST", "/v1/identify", json={"vector": vector.tolist()}).json()
            own += found["identified"] == names[person]
            assert found["identified"] in (None, names[person])
    assert named == 0
    assert own >= 18


def test_a_search_by_inner_products_finds_whom_all_llrs_find(bench: Bench) -> None:
    place = make_place(12, size=0.2)
    names = [enrol(bench, place, person, 1 + person % 2) for person in range(26)]
    for person in range(0, 26, 3):  # profiles of other numbers of takes
        bench.calls.enrol(names[person], place.say(person, 0)[0], fields={"phrase": TEXTS[0]})
    service = bench.service
    with service.store.read() as work:
        model = service.profiles.domain.deployed(work)
        cells = service.templates.cells_by_profile(work, names)
    every = model.side([cells[name] for name in names], True)
    for person in (0, 7, 13, 30):
        vector = place.say(person, 1)[0]
        found = bench.calls(
            "POST", "/v1/identify", json={"vector": vector.tolist(), "top": 4}
        ).json()
        llrs = model.speaker_llrs(every, model.contributions(vector[None])[0])
        best = np.argsort(-llrs)[:4]
        assert [one["profileId"] for one in found["candidates"]] == [names[i] for i in best]
        shown = [one["llr"] for one in found["candidates"]]
        np.testing.assert_allclose(shown, llrs[best], atol=1e-6)
        assert found["profilesCount"] == 26
        probabilities = [one["probability"] for one in found["candidates"]]
        assert sum(probabilities) + found["noneOfThem"] == pytest.approx(1, abs=0.01)


KNOWN = "speaker+phrase|phrase known"


def bundle_that_knows() -> Bundle:
    """One that was calibrated and measured with phrases that are known, too."""
    plain = domain_bundle()
    calibrator = plain.calibration()
    assert calibrator is not None
    other = OperatingPoint(3.0, far=0.01, basis="drawn, phrases known")
    calibrations = {**(plain.calibrations or {}), KNOWN: calibrator}
    points = {**(plain.points or {}), KNOWN: [other]}
    return Bundle(None, plain.scorer, plain.extractor, calibrations, points, plain.card)


def test_who_is_not_in_the_sample_is_decided_by_errors_without_known_phrases(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(domain, "DOMAIN_PROFILES", 2)
    place = make_place(13, size=0.2)
    with make_bench(sqlite_store(tmp_path), model=Model(bundle_that_knows())) as bench:
        names = {}
        for person, text in enumerate(TEXTS):
            name = bench.calls.create(text, f"person {person}")
            for vector in place.say(person, person, 3):
                assert bench.calls.enrol(name, vector).status_code == 201
            names[name] = place.say(person, person)[0]
        # the sample is that of the first names, which are random
        wanted = dict(zip(sorted(names), (3.0, 3.0, 4.6), strict=True))
        alone = {}
        trials = []
        service = bench.service
        with service.store.read() as work:
            model = service.profiles.domain.deployed(work)
            cells = service.templates.cells_by_profile(work, list(names))
        for name, vector in names.items():
            answer = bench.calls.verify(name, vector).json()
            assert answer["threshold"] == wanted[name]
            alone[name] = answer["llr"]
            test = Cell("", model.contributions(vector[None])[0], 1)
            trials.append(VerificationTrial(cells[name], test))
        # nobody's answer depends on whose trials are decided with it
        together = [decision.llr for decision in model.decisions(trials)]
        np.testing.assert_allclose(together, list(alone.values()), atol=1e-5)


def test_phrases_of_another_deployment_are_not_asked_for(tmp_path: Path) -> None:
    place = make_place(14, size=0.2)
    bundle = bundle_that_knows()
    X = np.concatenate([place.say(person, phrase, 2) for person in range(6) for phrase in (4, 5)])
    people, phrases = np.repeat(np.arange(6), 4), np.tile(["here", "here", "there", "there"], 6)
    there = bundle.deployed(bundle.enrol(X, people, {"phrase": phrases}))
    there.scorer = domain_as_prior(there.fitted_scorer)
    assert set(there.known_names("phrase")) == {"here", "there"}
    settings = Settings(least_llr=-10.0)
    with make_bench(sqlite_store(tmp_path), settings, Model(there)) as bench:
        name = enrol(bench, place, 0)
        answer = bench.calls("POST", "/v1/challenges", json={"profileId": name})
        assert answer.status_code == 409, answer.text
        assert bench.calls("GET", "/v1/model").json()["knownPhrases"] == []


def test_a_threshold_is_that_of_what_is_known_of_the_profiles() -> None:
    place = make_place(15, size=0.2)
    bundle = bundle_that_knows()
    X = np.concatenate([place.say(person, person % 2, 2) for person in range(6)])
    people = np.repeat(np.arange(6), 2)
    profiles = bundle.enrol(X, people, {"phrase": people % 2})
    deployed = bundle.deployed(profiles)
    assert deployed.point(None, profiles).threshold == deployed.point().threshold == 3.0
    for other in (bundle.enrol(X, people), bundle.enrol(X, people, {"phrase": people + 9})):
        assert deployed.point(None, other).threshold == 4.6
        assert deployed.answer(other, X[:1]).key == "speaker+phrase"
    assert bundle.point(Question(known=["phrase"])).threshold == 3.0
