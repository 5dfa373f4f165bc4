"""Scorers as ONNX graphs: what the runtime says is what the bundle says."""

from __future__ import annotations

import numpy as np
import pytest
from click.testing import CliRunner

from mvplda import PLDA, Bundle, Committee, CosineScorer, MultiviewPLDA, Question, make_two_views
from mvplda.calibration.hypotheses import HypothesisCalibrator
from mvplda.cli import main
from mvplda.exceptions import ParameterError
from mvplda.io.onnx import write_onnx
from mvplda.preprocessing import standard_chain, unit_chain
from mvplda.scoring.answer import question_key
from mvplda.voice.domain.estimator import DomainPLDA

onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
pytest.importorskip("onnx", reason="onnx is not installed")

X, LABELS, UNSEEN = make_two_views(20, 4, 5, 12, (3, 2), held_out=6, random_state=0)
ENROL, TEST = UNSEEN.enrol.astype(np.float32), UNSEEN.test.astype(np.float32)
IDS = np.repeat(np.arange(len(ENROL) // 3), 3)
SCORERS = {
    "one view": PLDA(3),
    "two views": MultiviewPLDA({"speaker": 3, "phrase": 2}),
    "interaction": MultiviewPLDA({"speaker": 3, "phrase": 2, "speaker:phrase": 2}, noise="full"),
    "prior": MultiviewPLDA({"speaker": None, "phrase": None}, prior="isotropic"),
    "cosine": CosineScorer(),
    "cascade": Committee(
        {"who": MultiviewPLDA({"speaker": 3}), "what": MultiviewPLDA({"phrase": 2})}, weights=None
    ),
    "committee": Committee(
        {
            "one": MultiviewPLDA({"speaker": 3, "phrase": 2}),
            "prepared": Bundle(standard_chain(), MultiviewPLDA({"phrase": 2})),
            "angle": CosineScorer(),
        },
        columns={"prepared": (2, 9)},
        weights={"one": {"speaker": 0.5, "together": 0.7}, "angle": 2.0},
    ),
    "domain": DomainPLDA({"voice": (7, "speaker"), "words": (5, "phrase")}),
}


def run(path, enrol=None, test=TEST):
    enrol = ENROL.reshape(-1, 3, 12) if enrol is None else enrol
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run(["llr"], {"enrol": enrol, "test": test})[0]


@pytest.mark.parametrize("name", SCORERS)
def test_graphs_agree_with_bundles(tmp_path, name):
    labels = {"speaker": LABELS["speaker"]} if name == "one view" else LABELS
    bundle = Bundle(standard_chain(), SCORERS[name]).fit(X, labels)
    write_onnx(tmp_path / "s.onnx", bundle, enrolled=3)
    expected = bundle.llr(bundle.enrol(ENROL, IDS), TEST, dtype=np.float64)
    np.testing.assert_allclose(run(tmp_path / "s.onnx"), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("rectified", [False, True])
def test_graphs_take_roots_of_rectified_vectors(tmp_path, rectified):
    train, enrol, test = (np.maximum(side, 0) if rectified else side for side in (X, ENROL, TEST))
    test = test.copy()
    test[0, 0] = -1.0  # which no training vector has
    bundle = Bundle(unit_chain(), SCORERS["prior"]).fit(train, LABELS)
    write_onnx(tmp_path / "s.onnx", bundle, enrolled=3)
    expected = bundle.llr(bundle.enrol(enrol, IDS), test, dtype=np.float64)
    found = run(tmp_path / "s.onnx", enrol.reshape(-1, 3, 12), test)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "asked", [{"same": "speaker"}, {"same": "phrase", "given": {"speaker": "different"}}]
)
def test_graphs_answer_other_questions(tmp_path, asked):
    model = MultiviewPLDA({"speaker": 3, "phrase": 2}).fit(X, LABELS)
    write_onnx(tmp_path / "s.onnx", model, **asked)
    expected = model.llr(ENROL, TEST, dtype=np.float64, **asked)
    np.testing.assert_allclose(
        run(tmp_path / "s.onnx", ENROL[:, None]), expected, rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize("asked", [{}, {"same": "speaker"}, {"given": {"phrase": "same"}}])
def test_graphs_hold_the_calibration_of_their_question(tmp_path, asked):
    bundle = Bundle(None, MultiviewPLDA({"speaker": 3, "phrase": 2})).fit(X, LABELS)
    calibrator = HypothesisCalibrator()
    calibrator.weights_ = {"speaker": 0.7, "phrase": 1.2, "together": 0.9}
    calibrator.constants_ = {"speaker+phrase": 0.3, "speaker": -0.2, "phrase": 0.1, "nothing": 0.0}
    calibrator.outlier_probability_ = 0.01
    key = question_key(Question(**asked), bundle.views)
    bundle.calibrations = {key: calibrator}
    write_onnx(tmp_path / "s.onnx", bundle, enrolled=3, **asked)
    answer = bundle.answer(bundle.enrol(ENROL, IDS), TEST, Question(**asked))
    assert answer.calibrated
    np.testing.assert_allclose(run(tmp_path / "s.onnx"), answer.llr, rtol=1e-5, atol=1e-5)
    other = {"same": "phrase"}
    write_onnx(tmp_path / "s.onnx", bundle, enrolled=3, **other)
    answer = bundle.answer(bundle.enrol(ENROL, IDS), TEST, Question(**other))
    assert not answer.calibrated
    np.testing.assert_allclose(run(tmp_path / "s.onnx"), answer.llr, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("bundle", "settings", "message"),
    [
        (Bundle(None, MultiviewPLDA({"speaker": 3})), {"enrolled": 0}, "at least 1"),
        (Bundle(None, MultiviewPLDA({"speaker": 3})), {"known": "speaker"}, "known classes"),
    ],
)
def test_what_a_graph_cannot_hold_is_said(tmp_path, bundle, settings, message):
    with pytest.raises(ParameterError, match=message):
        write_onnx(tmp_path / "s.onnx", bundle.fit(X, LABELS), **settings)
    assert not list(tmp_path.iterdir())


def test_the_command_line_writes_a_graph(tmp_path):
    model = MultiviewPLDA({"speaker": 3, "phrase": 2}).fit(X, LABELS)
    model.save(tmp_path / "model.safetensors")
    words = [
        "convert",
        str(tmp_path / "model.safetensors"),
        str(tmp_path / "s.onnx"),
        "--enrolled",
        "3",
    ]
    found = CliRunner().invoke(main, words)
    assert found.exit_code == 0, found.output
    np.testing.assert_allclose(
        run(tmp_path / "s.onnx"), model.llr(model.enrol(ENROL, IDS), TEST), rtol=1e-4, atol=1e-4
    )
