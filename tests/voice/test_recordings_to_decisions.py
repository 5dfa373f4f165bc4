"""A model file is the product: whatever `mvplda train` writes gives the same LLR on every surface."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from domain_problems import domain_bundle, make_place

import mvplda
from mvplda import Bundle, Question, load
from mvplda.cli import main
from mvplda.decisions import decide
from mvplda.io.trials import read_scores
from mvplda.model_files import load_model
from mvplda.models import find_scorers
from mvplda.training import COMMITTEE
from mvplda.voice.extractors.extractor import ExtractedVectors
from mvplda.voice.profile_file import ProfileBook
from mvplda.voice.verification import VoiceModel

DOMAIN = "domain"
OURS = [name for name, kind in find_scorers().items() if kind.__module__.startswith("mvplda.")]
"""Other tests may have entered scorers of theirs."""
NAMES = [*dict.fromkeys([COMMITTEE, DOMAIN, *OURS])]
PEOPLE, TAKES, TESTS = 4, 3, 6


def run(*words: Any) -> Any:
    done = CliRunner().invoke(main, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    return done


def drawn() -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Vectors of 12 people who say 3 phrases 3 times each."""
    rng = np.random.default_rng(0)
    who = np.repeat(np.arange(12), 9)
    what = np.tile(np.repeat(np.arange(3), 3), 12)
    X = 2 * rng.normal(size=(12, 6))[who] + 2 * rng.normal(size=(3, 6))[what]
    X += 0.7 * rng.normal(size=X.shape)
    names = {"speaker": [f"s{i}" for i in who], "phrase": [f"p{i}" for i in what]}
    return X, {view: np.array(column) for view, column in names.items()}


class Named:
    """An extractor by its name and width alone: its vectors are given."""

    def __init__(self, bundle: Bundle) -> None:
        self.name = bundle.extractor or "drawn"
        self.dimension = bundle.width_in


@dataclass
class Product:
    """A model file, some enrolled people and some tests."""

    path: Path
    bundle: Bundle
    enrol: np.ndarray
    test: np.ndarray

    @property
    def owners(self) -> list[str]:
        return [f"s{k}" for k in range(PEOPLE) for _ in range(TAKES)]

    def expected(self, *same: str, deployed: bool = False, identifies: bool = False) -> np.ndarray:
        """(people, tests) calibrated LLRs; no outlier probability limits those that identify."""
        bundle = self.bundle
        profiles = bundle.enrol(self.enrol, self.owners)
        if deployed:
            bundle = bundle.deployed(profiles)
        answer = bundle.answer(profiles, self.test, Question(same or None))
        assert answer.calibrated
        return answer.inlier_llr if identifies else answer.llr

    def side(self, X: np.ndarray) -> ExtractedVectors:
        return ExtractedVectors(X, list(range(len(X))), [], [])


@pytest.fixture(scope="module", params=NAMES)
def product(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Product:
    folder = tmp_path_factory.mktemp(request.param)
    path = folder / "model.safetensors"
    if request.param == DOMAIN:  # made of several corpora, not by train
        domain_bundle().save(path)
        place = make_place(7)
        enrol = np.concatenate([place.say(k, 0, TAKES) for k in range(PEOPLE)])
        test = np.concatenate([place.say(k % PEOPLE, k % 2) for k in range(TESTS)])
    else:
        X, labels = drawn()
        np.savez(folder / "x.npz", X=X, speaker=labels["speaker"], phrase=labels["phrase"])
        views = ["-v", "speaker"] if request.param == "plda" else []
        options = ["--model", request.param, "--folds", "3", *views]
        run("train", folder / "x.npz", *options, "-o", path, "-q")
        first = np.flatnonzero(labels["phrase"] == "p0")[: PEOPLE * TAKES]
        enrol, test = X[first], X[10 : 10 + TESTS]
    enrol, test = enrol.astype(np.float32), test.astype(np.float32)
    product = Product(path, load_model(path), enrol, test)
    ids = [f"u{i}" for i in range(len(enrol))]
    noted = {"extractor": product.bundle.extractor} if product.bundle.extractor else {}
    for name, side, names in (("e", enrol, ids), ("t", test, [f"t{i}" for i in range(TESTS)])):
        vectors = mvplda.io.VectorSet(np.array(names), side, noted.get("extractor"))
        mvplda.io.write_vectors(folder / f"{name}.npz", vectors)
    lines = [f"s{k} {' '.join(ids[TAKES * k : TAKES * (k + 1)])}\n" for k in range(PEOPLE)]
    (folder / "spk2utt").write_text("".join(lines))
    return product


def questions(bundle: Bundle) -> list[tuple[str, ...]]:
    """All views together, and the speaker alone."""
    return [(), ("speaker",)] if len(bundle.views) > 1 else [()]


def test_a_file_gives_what_was_saved(product: Product, tmp_path: Path) -> None:
    product.bundle.save(tmp_path / "again")
    again = load(tmp_path / "again")
    for same in questions(product.bundle):
        llrs = again.answer(
            again.enrol(product.enrol, product.owners), product.test, {"same": same or None}
        ).llr
        np.testing.assert_array_equal(llrs, product.expected(*same))
    assert (tmp_path / "again").read_bytes() == product.path.read_bytes()


def test_score(product: Product, tmp_path: Path) -> None:
    folder = product.path.parent
    models = ["--enrol", folder / "e.npz", "--models", folder / "spk2utt"]
    for same in questions(product.bundle):
        asked = [word for view in same for word in ("--same", view)]
        scoring = ["score", product.path, *models, "--test", folder / "t.npz", *asked]
        run(*scoring, "-o", tmp_path / "scores")
        scores = read_scores(tmp_path / "scores").score.reshape(PEOPLE, TESTS)
        np.testing.assert_allclose(scores, product.expected(*same), rtol=1e-5, atol=1e-5)


def test_profiles_and_identify(product: Product, tmp_path: Path) -> None:
    book = ProfileBook(tmp_path / "voices.npz")
    for k in range(PEOPLE):
        own = product.enrol[TAKES * k : TAKES * (k + 1)]
        book.add(f"s{k}", product.bundle.extractor, own, [str(i) for i in range(TAKES)])
    scoring = ["score", product.path, "--profiles", book.path]
    run(*scoring, "--test", product.path.parent / "t.npz", "-o", tmp_path / "scores")
    scores = read_scores(tmp_path / "scores").score.reshape(PEOPLE, TESTS)
    np.testing.assert_allclose(scores, product.expected(), rtol=1e-5, atol=1e-5)
    expected = product.expected("speaker", deployed=True, identifies=True)
    voices = VoiceModel(product.bundle, Named(product.bundle))
    for column in range(TESTS):
        ranking = voices.identify(product.side(product.test[column : column + 1]), book)
        llrs = {name: llr for name, llr, _ in ranking.candidates}
        found = [llrs[f"s{k}"] for k in range(PEOPLE)]
        np.testing.assert_allclose(found, expected[:, column], rtol=1e-6, atol=1e-6)
    best = product.bundle.identify(
        product.bundle.enrol(product.enrol, product.owners), product.test, top=2
    )
    assert best.ids.shape == (TESTS, 2)


def test_verify_and_decide(product: Product) -> None:
    voices = VoiceModel(product.bundle, Named(product.bundle))
    own = product.side(product.enrol[:TAKES])
    for same in questions(product.bundle):
        for column in range(TESTS):
            test = product.side(product.test[column : column + 1])
            decision = voices.verify(own, test, Question(same or None), threshold=1.0)
            assert decision.llr == pytest.approx(product.expected(*same)[0, column], abs=1e-6)
            assert decision.calibrated
    answer = product.bundle.answer(product.enrol[:1], product.test)
    decision = decide(answer.take(0, 1), product.bundle.point(far=0.05))
    p = decision.probabilities["+".join(product.bundle.views)]
    assert np.log(p / (1 - p)) == pytest.approx(decision.llr, abs=1e-6)


def test_info(product: Product) -> None:
    about = json.loads(run("info", product.path, "--json").stdout)
    assert set(about["bundle"]["calibrations"]) == set(product.bundle.calibrations or {})
    assert set(about["bundle"]["points"]) == set(product.bundle.points or {})
    assert about["bundle"]["width"] == product.enrol.shape[1]


def test_graph(product: Product, tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    onnxruntime = pytest.importorskip("onnxruntime")
    run("convert", product.path, tmp_path / "m.onnx", "--enrolled", TAKES)
    session = onnxruntime.InferenceSession(
        str(tmp_path / "m.onnx"), providers=["CPUExecutionProvider"]
    )
    sides = {"enrol": product.enrol.reshape(PEOPLE, TAKES, -1), "test": product.test}
    llrs = session.run(["llr"], sides)[0]
    np.testing.assert_allclose(llrs, product.expected(), rtol=1e-4, atol=1e-4)


def test_service(product: Product) -> None:
    pytest.importorskip("fastapi")
    from mvplda.serve.cells import Cell
    from mvplda.serve.model import Model, VerificationTrial

    model = Model(product.bundle)
    stored = model.contributions(product.enrol[:TAKES])
    profile = [Cell("open-sesame", stored.sum(axis=0), TAKES)]
    expected = product.expected()[0]
    for column, total in enumerate(model.contributions(product.test)):
        test = Cell("open-sesame", total, 1)
        decision = model.decisions([VerificationTrial(profile, test)])[0]
        assert decision.calibrated
        assert decision.llr == pytest.approx(expected[column], abs=1e-4)
    voices = model.speaker_llrs(model.side([profile], False), model.contributions(product.test)[0])
    assert voices[0] == pytest.approx(product.expected("speaker", identifies=True)[0, 0], abs=1e-4)
