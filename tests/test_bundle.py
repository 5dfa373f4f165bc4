"""Bundles: preprocessing, model and calibrator in one file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from problems import crossed, random_parameters, there
from problems import draw as draw_vectors
from safetensors.numpy import save
from sklearn.decomposition import PCA
from sklearn.pipeline import Pipeline

from mvplda import PLDA, Bundle, CosineScorer, MultiviewPLDA, load, tensor_files
from mvplda.calibration.hypotheses import HypothesisCalibrator
from mvplda.exceptions import DataError, FileFormatError, LabelError, ParameterError
from mvplda.preprocessing import Centring, standard_chain


@pytest.fixture(scope="module")
def data() -> dict[str, Any]:
    """25 speakers to train on and 15 others, 6 phrases, 6 vectors of each: three to enrol, three to test."""
    rng = np.random.default_rng(0)
    codes = list(crossed(40, 6, 6))
    X = draw_vectors(rng, codes, random_parameters(rng, 8, (3, 2), "full"))
    training, session = codes[0] < 25, np.arange(len(X)) % 6
    enrol, test = ~training & (session < 3), ~training & (session >= 3)
    labels = {"speaker": codes[0], "phrase": codes[1]}

    def some(where: np.ndarray) -> dict[str, np.ndarray]:
        return {view: codes[where] for view, codes in labels.items()}

    return {
        "train": (X[training], some(training)),
        "enrol": X[enrol],
        "ids": (codes[0] * 10 + codes[1])[enrol],
        "test": X[test],
    }


def make(data: dict[str, Any]) -> Bundle:
    model = MultiviewPLDA({"speaker": 3, "phrase": 2}, noise="full", max_iter=10, tol=0)
    return Bundle(standard_chain(6), model).fit(*data["train"])


def test_the_bundle_is_its_parts_in_order(data: dict[str, Any]) -> None:
    bundle = make(data)
    chain = there(bundle.preprocessing)
    prepared = chain.transform(data["enrol"]), chain.transform(data["test"])
    expected = bundle.scorer.llr(
        bundle.scorer.enrol(prepared[0], data["ids"]), prepared[1], same="speaker"
    )
    profiles = bundle.enrol(data["enrol"], data["ids"])
    assert bundle.llr(profiles, data["test"], same="speaker") == pytest.approx(expected)
    pairs = np.array([[0, 3], [5, 7]])
    some = bundle.llr_trials(profiles, data["test"], pairs, same="speaker")
    assert some == pytest.approx(expected[pairs[:, 0], pairs[:, 1]], abs=1e-3)


def test_without_preprocessing(data: dict[str, Any], tmp_path: Path) -> None:
    X, labels = data["train"]
    plain = Bundle(None, MultiviewPLDA({"speaker": 2}, max_iter=3, tol=0)).fit(X, labels)
    plain.save(tmp_path / "plain")
    assert (load(tmp_path / "plain").llr(X[:4], X[4:7]) == plain.llr(X[:4], X[4:7])).all()


def test_load_tells_models_from_bundles(data: dict[str, Any], tmp_path: Path) -> None:
    bundle = make(data)
    bundle.scorer.save(tmp_path / "model")
    assert isinstance(load(tmp_path / "model"), MultiviewPLDA)
    bundle.save(tmp_path / "bundle")
    with pytest.raises(
        FileFormatError,
        match=r"contains a Bundle, not a MultiviewPLDA: use mvplda.load or Bundle.load",
    ):
        MultiviewPLDA.load(tmp_path / "bundle")
    with pytest.raises(
        FileFormatError, match=r"contains a MultiviewPLDA, not a Bundle: use mvplda.load"
    ):
        Bundle.load(tmp_path / "model")
    about = load(tmp_path / "bundle").describe()
    assert about["bundle"]["preprocessing"] == ["Centring", "Whitening", "LengthNormalisation"]
    assert (about["bundle"]["width"], about["dimension"]) == (8, 6)
    assert "bundle" not in load(tmp_path / "model").describe()
    json.dumps(about)


def test_every_damaged_byte_is_noticed(data: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "bundle"
    make(data).save(path)
    whole = path.read_bytes()
    for place in np.random.default_rng(0).integers(0, len(whole), size=40).tolist():
        damaged = bytearray(whole)
        damaged[place] ^= 0x15
        path.write_bytes(damaged)
        with pytest.raises(FileFormatError, match=path.name):
            load(path)
    path.write_bytes(whole[:-5])
    with pytest.raises(FileFormatError, match="truncated"):
        load(path)


def repack(path: Path, change: Any) -> None:
    """Change tensors and description, and pack the file again as if all were well."""
    tensors, about = tensor_files.unpack(path)
    change(tensors, about)
    path.write_bytes(b"".join(tensor_files.packed_chunks(tensors, about)))


def _narrow(tensors: Any, about: Any) -> None:
    tensors["preprocessing/1/matrix_"] = np.ascontiguousarray(
        tensors["preprocessing/1/matrix_"][:, :4]
    )
    tensors["preprocessing/1/variances_"] = tensors["preprocessing/1/variances_"][:4].copy()


def _wrong_input(tensors: Any, about: Any) -> None:
    tensors["preprocessing/1/matrix_"] = np.ascontiguousarray(
        tensors["preprocessing/1/matrix_"][:5]
    )


def _short_mean(tensors: Any, about: Any) -> None:
    tensors["scorer/mean_"] = tensors["scorer/mean_"][:4].copy()


def _unknown(tensors: Any, about: Any) -> None:
    about["preprocessing"][0][1]["class"] = "Rocket"


def _no_points(tensors: Any, about: Any) -> None:
    del about["points"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_narrow, "X has 4 features, but LengthNormalisation is expecting 6 features"),
        (_wrong_input, "cannot be loaded: .*mismatch"),
        (_short_mean, "the loading of 'speaker' must have shape"),
        (_unknown, "the class 'Rocket'"),
        (_no_points, "points"),
    ],
)
def test_parts_that_do_not_fit(
    change: Any, words: str, data: dict[str, Any], tmp_path: Path
) -> None:
    make(data).save(tmp_path / "b")
    repack(tmp_path / "b", change)
    with pytest.raises(FileFormatError, match=words):
        load(tmp_path / "b")


def test_a_newer_bundle(data: dict[str, Any], tmp_path: Path) -> None:
    make(data).save(tmp_path / "b")
    tensors, metadata = tensor_files.read_tensors(tmp_path / "b")
    (tmp_path / "b").write_bytes(save(tensors, metadata={**metadata, "version": "9"}))
    with pytest.raises(FileFormatError, match="version '9'"):
        load(tmp_path / "b")


def test_what_cannot_be_saved_leaves_no_file(data: dict[str, Any], tmp_path: Path) -> None:
    bundle = make(data)
    for wrong, words in [
        (
            {"preprocessing": Pipeline([("pca", PCA(6).fit(data["train"][0]))])},
            "a PCA cannot be saved",
        ),
        ({"calibrations": {"speaker": HypothesisCalibrator()}}, "not fitted"),
    ]:
        broken = Bundle(**{**bundle.get_params(deep=False), **wrong})
        with pytest.raises(ParameterError, match=words):
            broken.save(tmp_path / "b")
    wide = Bundle(Pipeline([("centre", Centring().fit(data["train"][0]))]), bundle.scorer)
    with pytest.raises(DataError, match=r"8.* 6"):
        wide.save(tmp_path / "b")
    assert list(tmp_path.iterdir()) == []


def test_errors(data: dict[str, Any]) -> None:
    with pytest.raises(ParameterError, match="needs a scorer"):
        Bundle().fit(*data["train"])


def test_a_bundle_is_not_taken_for_its_scorer(data: Any, tmp_path: Path) -> None:
    X = data["enrol"]
    model = PLDA(2, max_iter=3, tol=0).fit(X, np.arange(len(X)) % 9)
    Bundle(None, model).save(tmp_path / "bundle")
    assert type(load(tmp_path / "bundle")) is Bundle
    with pytest.raises(
        FileFormatError,
        match=r"contains a Bundle, not a CosineScorer: use mvplda.load or Bundle.load",
    ):
        CosineScorer.load(tmp_path / "bundle")


@pytest.mark.parametrize("views", [["a:b", "phrase"], ["speaker", "speaker:phrase"]])
def test_models_without_interactions_refuse_their_names(views):
    X = np.random.default_rng(0).normal(size=(20, 4))
    with pytest.raises(LabelError, match="does not support interactions"):
        CosineScorer(views=views).fit(X)
