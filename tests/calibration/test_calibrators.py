"""What every calibrator of hypotheses promises: `mvplda.train` fits it, bundles apply it, and files restore it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from isotonic_calibrator import IsotonicCalibrator
from package_calibrators import package_calibrators

import mvplda
from mvplda import Bundle, Question
from mvplda.calibration import Calibrator, HypothesisCalibrator
from mvplda.exceptions import ParameterError
from mvplda.metrics import cllr
from mvplda.training import train

SUPPORT = Path(__file__).parents[1] / "support"
PEOPLE, PHRASES, RECORDINGS, WIDTH = 24, 3, 3, 6
CALIBRATORS: dict[str, Calibrator] = {
    **{name: cls() for name, cls in package_calibrators().items()},
    "HypothesisCalibrator": HypothesisCalibrator(errors=0.1),
    "isotonic": IsotonicCalibrator(),
}


def draw(seed: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Vectors of people who speak phrases."""
    rng = np.random.default_rng(seed)
    speaker, phrase, _ = (grid.ravel() for grid in np.indices((PEOPLE, PHRASES, RECORDINGS)))
    X = 2.0 * rng.normal(size=(PEOPLE, WIDTH))[speaker]
    X += 1.5 * np.random.default_rng(99).normal(size=(PHRASES, WIDTH))[phrase]
    X += 0.8 * rng.normal(size=X.shape)
    return X, {"speaker": speaker.astype(str), "phrase": phrase.astype(str)}


X, LABELS = draw(1)
TESTS, TEST_LABELS = draw(2)


@pytest.fixture(scope="module", params=CALIBRATORS)
def calibrator(request: pytest.FixtureRequest) -> Calibrator:
    return CALIBRATORS[request.param]


@pytest.fixture(scope="module")
def bundle(calibrator: Calibrator) -> Bundle:
    return train(X, LABELS, model="multiview", folds=3, calibrator=calibrator)


def test_training_fits_a_copy_for_each_question(bundle: Bundle, calibrator: Calibrator) -> None:
    calibrations: Any = bundle.calibrations
    assert {"speaker+phrase", "speaker", "phrase"} <= set(calibrations)
    for fitted in calibrations.values():
        assert type(fitted) is type(calibrator)
        assert fitted is not calibrator
        assert fitted.get_params() == calibrator.get_params()
        assert fitted.n_speakers_ == PEOPLE
    assert not hasattr(calibrator, "n_speakers_")


@pytest.mark.parametrize("same", [None, "speaker", "phrase"])
def test_answers_are_calibrated(bundle: Bundle, same: str | None) -> None:
    profiles, tests = bundle.enrol(TESTS[::3]), bundle.enrol(TESTS[1::3])
    question = Question(same)
    answer = bundle.answer(profiles, tests, question)
    assert answer.calibrated
    assert bundle.point(question).threshold < np.inf
    views = list(LABELS) if same is None else [same]
    is_target = np.logical_and.reduce(
        [np.equal.outer(TEST_LABELS[view][::3], TEST_LABELS[view][1::3]) for view in views]
    )
    raw = bundle.llr(profiles, tests, question)
    assert np.abs(answer.llr - raw).max() > 0.1
    assert cllr(answer.llr[is_target], answer.llr[~is_target]) < 1.0


def test_files_restore_the_calibrator(bundle: Bundle, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    bundle.save(path)
    loaded = mvplda.load(path)
    expected = bundle.answer(TESTS[:9], TESTS[9:30]).llr
    np.testing.assert_array_equal(loaded.answer(TESTS[:9], TESTS[9:30]).llr, expected)
    assert loaded.describe() == bundle.describe()
    for key, fitted in (bundle.calibrations or {}).items():
        assert loaded.calibrations[key].largest_llr == fitted.largest_llr


def test_bounds_hold_for_answers(bundle: Bundle) -> None:
    calibrator = bundle.calibration()
    assert calibrator is not None
    assert bundle.answer(TESTS, TESTS).llr.max() <= calibrator.largest_llr + 1e-9


def test_an_installed_package_adds_a_calibrator(tmp_path: Path) -> None:
    """The class of a calibration is found by the entry points of another process."""
    bundle = train(X, LABELS, model="multiview", folds=3, calibrator=IsotonicCalibrator())
    bundle.save(tmp_path / "model.safetensors")
    np.save(tmp_path / "tests.npy", TESTS[:20])
    site = tmp_path / "site" / "added-1.dist-info"
    site.mkdir(parents=True)
    (site / "METADATA").write_text("Name: added\nVersion: 1\n")
    (site / "entry_points.txt").write_text("[mvplda.calibrators]\nisotonic = isotonic_calibrator\n")
    code = (
        f"import sys; sys.path[:0] = [{str(site.parent)!r}, {str(SUPPORT)!r}]\n"
        "import mvplda, numpy as np\n"
        "X = np.load('tests.npy')\n"
        "np.save('llrs.npy', mvplda.load('model.safetensors').answer(X[:5], X[5:]).llr)\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    expected = bundle.answer(TESTS[:5], TESTS[5:20]).llr
    np.testing.assert_array_equal(np.load(tmp_path / "llrs.npy"), expected)


def test_a_graph_of_a_calibrator_without_one_is_refused(bundle: Bundle, tmp_path: Path) -> None:
    pytest.importorskip("onnx", reason="onnx is not installed")
    from mvplda.io.onnx import write_onnx

    path = tmp_path / "score.onnx"
    calibrator = bundle.calibration()
    if not isinstance(calibrator, HypothesisCalibrator):
        name = type(calibrator).__name__
        with pytest.raises(ParameterError, match=f"model with {name} cannot be exported to ONNX"):
            write_onnx(path, bundle)
        assert not path.exists()
    else:
        write_onnx(path, bundle)
        assert path.exists()
