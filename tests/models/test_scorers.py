"""What every scorer promises, whichever it is, alone and in a bundle."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
import pytest
from answer_checks import check_trials
from problems import speakers_and_phrases
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from mvplda import PLDA, Bundle, Committee, CosineScorer, MultiviewPLDA, Question, load
from mvplda.calibration.scores import LinearCalibrator
from mvplda.exceptions import DataError, FileFormatError, LabelError, MvpldaError, ParameterError
from mvplda.models import SCORERS as NAMED
from mvplda.models import BaseScorer
from mvplda.persistence import Persistent
from mvplda.preprocessing import standard_chain
from mvplda.scoring import log_sums as blocks
from mvplda.scoring.pair_terms import ScoreTerms
from mvplda.statistics import SufficientStatistics
from mvplda.tensor_files import fingerprint
from mvplda.voice.domain.estimator import DomainPLDA


class DistanceScorer(BaseScorer, BaseEstimator):
    """A scorer of somebody else's, in one file: minus the squared distance of means, times a scale."""

    NAME: ClassVar[str] = "distance"
    NEEDS_LABELS: ClassVar[bool] = False
    FITTED: ClassVar[tuple[str, ...]] = ("spread_",)

    def __init__(self, scale: float = 1.0) -> None:
        self.scale = scale

    @classmethod
    def with_ranks(cls, ranks: Mapping[str, int | None], settings: Mapping[str, Any]) -> Self:
        return cls(**settings)

    def fit(self, X: Any, y: Any = None) -> Self:
        self.spread_ = np.std(X, axis=0)
        return self

    views_: ClassVar[dict[str, int]] = {"class": 0}  # type: ignore[misc]

    @property
    def width_in(self) -> int:
        return len(self.spread_)

    def project(self, vectors: Any) -> Any:
        return vectors * 1.0

    def pair_terms(self, scoring: str = "exact") -> ScoreTerms:
        """-scale |e - t|^2 = 2 scale e.t - scale |e|^2 - scale |t|^2."""
        size = (2 * self.scale) ** 0.5
        return ScoreTerms(("class",), lambda total, count: size * total / count, -0.5)

    def _key(self) -> str:
        check_is_fitted(self)
        return fingerprint({"spread": self.spread_}, {})


SCORERS: dict[str, Any] = {
    "multiview": lambda: MultiviewPLDA({"speaker": 3, "phrase": 2}, max_iter=4, tol=0),
    "interaction": lambda: MultiviewPLDA(
        {"speaker": 3, "phrase": 2, "speaker:phrase": 2}, noise="full", max_iter=4, tol=0
    ),
    "plda": lambda: PLDA(3, max_iter=4, tol=0),
    "cosine": lambda: CosineScorer(),
    "plain cosine": lambda: CosineScorer(centre=False),
    "cascade": lambda: Committee(
        {
            "who": MultiviewPLDA({"speaker": 3}, max_iter=4, tol=0),
            "what": MultiviewPLDA({"phrase": 2}, max_iter=4, tol=0),
        },
        weights=None,
    ),
    "committee": lambda: Committee(
        {
            "all": MultiviewPLDA({"speaker": 3, "phrase": 2}, max_iter=4, tol=0),
            "angle": CosineScorer(),
        },
        weights=None,
    ),
    "somebody else's": lambda: DistanceScorer(),
}
AROUND = ["alone", "bundle", "prepared"]
X, LABELS = speakers_and_phrases()
TRAIN, ENROL, TEST = slice(0, 150), slice(190, 220), slice(220, 260)
IDS = np.repeat([f"m{i}" for i in range(10)], 3)


def fitted(name: str, around: str = "alone") -> Any:
    scorer = SCORERS[name]()
    labels = {view: codes[TRAIN] for view, codes in LABELS.items()}
    y: Any = labels["speaker"] if name == "plda" else labels
    if around == "alone":
        return scorer.fit(X[TRAIN], y)
    chain = standard_chain(6) if around == "prepared" else None
    return Bundle(chain, scorer).fit(X[TRAIN], y)


@pytest.fixture(
    params=[(name, around) for name in SCORERS for around in AROUND],
    ids=lambda p: f"{p[0]}, {p[1]}",
)
def scorer(request: pytest.FixtureRequest) -> Any:
    return fitted(*request.param)


def tolerance(scores: Any) -> float:
    return 1e-4 * float(np.abs(scores).max())


def test_matrix_list_and_best_agree(scorer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(scorer, BaseScorer)
    profiles = scorer.enrol(X[ENROL], IDS)
    assert len(profiles) == 10
    whole = np.asarray(scorer.llr(profiles, X[TEST]))
    assert whole.shape == (10, 40)
    assert np.isfinite(whole).all()
    pairs = np.array([[9, 0], [0, 39], [9, 0], [3, 17]])
    listed = scorer.llr_trials(profiles, X[TEST], pairs)
    np.testing.assert_allclose(listed, whole[pairs[:, 0], pairs[:, 1]], atol=tolerance(whole))
    for elements in (2**22, 100):  # at once, and a few profiles at a time
        monkeypatch.setattr(blocks, "BAND_NUMBERS", elements)
        best = scorer.identify(profiles, X[TEST], top=3)
        np.testing.assert_allclose(
            best.scores, -np.sort(-whole.T, axis=1)[:, :3], atol=tolerance(whole)
        )
        found = np.take_along_axis(
            whole.T, np.array([profiles.number(row) for row in best.ids]), axis=1
        )
        np.testing.assert_allclose(found, best.scores, atol=tolerance(whole))
    assert scorer.identify(profiles, X[TEST], top=50).ids.shape == (40, 10)


def test_precision_and_questions_as_objects(scorer: Any) -> None:
    exact = scorer.llr(X[ENROL], X[TEST], dtype=np.float64)
    assert exact.dtype == np.float64
    np.testing.assert_allclose(scorer.llr(X[ENROL], X[TEST]), exact, atol=tolerance(exact))
    assert (scorer.llr(X[ENROL], X[TEST], Question(), dtype=np.float64) == exact).all()
    inner = getattr(scorer, "scorer", scorer)
    view = next(iter(inner.views_))
    pairs = np.array([[0, 1], [2, 3]])
    asked = scorer.llr(X[ENROL], X[TEST], Question(view))
    assert (asked == scorer.llr(X[ENROL], X[TEST], same=view)).all()
    listed = scorer.llr_trials(X[ENROL], X[TEST], pairs, Question(view))
    np.testing.assert_allclose(listed, asked[pairs[:, 0], pairs[:, 1]], atol=tolerance(asked))
    best = scorer.identify(scorer.enrol(X[ENROL]), X[TEST], Question(view), top=1)
    np.testing.assert_allclose(best.scores[:, 0], asked.max(axis=0), atol=tolerance(asked))
    with pytest.raises(LabelError, match="same has an unknown view"):
        scorer.llr(X[ENROL], X[TEST], same="room")
    with pytest.raises(ParameterError, match="got both a question and same="):
        scorer.llr(X[ENROL], X[TEST], Question(), same="speaker")


def test_saved_and_loaded(scorer: Any, tmp_path: Path) -> None:
    profiles = scorer.enrol(X[ENROL], IDS)
    scorer.save(tmp_path / "s.safetensors")
    again = load(tmp_path / "s.safetensors")
    assert type(again) is type(type(scorer).load(tmp_path / "s.safetensors")) is type(scorer)
    expected = scorer.llr(profiles, X[TEST])
    assert (again.llr(profiles, X[TEST]) == expected).all()
    assert (
        again.identify(profiles, X[TEST], top=4).ids
        == scorer.identify(profiles, X[TEST], top=4).ids
    ).all()
    again.save(tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == (
        tmp_path / "s.safetensors"
    ).read_bytes()
    name = type(scorer).__name__
    with pytest.raises(FileFormatError, match=f"contains a {name}.*, not a LinearCalibrator"):
        LinearCalibrator.load(tmp_path / "s.safetensors")


def test_profiles_are_taken_and_selected(scorer: Any) -> None:
    profiles = scorer.enrol(X[ENROL], IDS)
    whole = scorer.llr(profiles, X[TEST])
    rows = [4, 1, 4]
    for some in (
        profiles.take(rows),
        profiles[np.array(rows)],
        profiles.select(["m4", "m1", "m4"]),
    ):
        np.testing.assert_allclose(scorer.llr(some, X[TEST]), whole[rows], atol=tolerance(whole))
    tests = scorer.enrol(X[TEST])
    np.testing.assert_allclose(scorer.llr(profiles, tests), whole, atol=tolerance(whole))


def test_what_is_refused(scorer: Any) -> None:
    profiles = scorer.enrol(X[ENROL], IDS)
    with pytest.raises(ValueError, match="has 5 features"):
        scorer.llr(profiles, X[TEST, :5])
    bad = X[TEST].copy()
    bad[3, 2] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        scorer.enrol(bad)
    with pytest.raises(LabelError, match="ids must have one id for each of"):
        scorer.enrol(X[ENROL], IDS[:5])
    assert scorer.llr_trials(profiles, X[TEST], []).shape == (0,)
    with pytest.raises(DataError, match="profiles are numbered from 0 to 9"):
        scorer.llr_trials(profiles, X[TEST], [(10, 0)])
    with pytest.raises(DataError, match="pairs must be integers"):
        scorer.llr_trials(profiles, X[TEST], [(0.5, 0)])
    with pytest.raises(ParameterError, match="top must be a whole number of at least 1"):
        scorer.identify(profiles, X[TEST], top=0)
    with pytest.raises(DataError, match="enrolled side has no profiles"):
        scorer.llr(profiles.take([]), X[TEST])
    other = PLDA(2, max_iter=1, tol=0).fit(X[TRAIN] * 2, LABELS["phrase"][TRAIN]).enrol(X[TEST])
    with pytest.raises(DataError, match="made by another model"):
        scorer.llr(profiles, other)
    with pytest.raises(DataError, match="made by another model"):
        scorer.llr_trials(other, X[TEST], [(0, 0)])


@pytest.mark.parametrize("name", SCORERS)
def test_parameters_and_clones(name: str, tmp_path: Path) -> None:
    scorer = fitted(name)
    again = clone(scorer)
    assert repr(again) == repr(scorer)
    for call in (lambda: again.enrol(X[TEST]), lambda: again.llr(X[ENROL], X[TEST])):
        with pytest.raises(NotFittedError):
            call()
    with pytest.raises((NotFittedError, ParameterError)):
        again.save(tmp_path / "s")
    assert list(tmp_path.iterdir()) == []
    bundle = clone(fitted(name, "prepared"))
    with pytest.raises(NotFittedError):
        bundle.enrol(X[TEST])


def test_a_bundle_gives_back_the_kind_of_array_that_it_takes() -> None:
    torch = pytest.importorskip("torch")
    bundle = fitted("multiview", "prepared")
    tensor = torch.as_tensor(X)
    assert torch.is_tensor(bundle.prepare(tensor))
    scores = bundle.llr(bundle.enrol(tensor[ENROL], IDS), tensor[TEST], dtype=np.float64)
    assert torch.is_tensor(scores)
    expected = bundle.llr(bundle.enrol(X[ENROL], IDS), X[TEST], dtype=np.float64)
    np.testing.assert_allclose(scores.numpy(), expected, atol=1e-9)
    labels = {view: codes[TRAIN] for view, codes in LABELS.items()}
    again = clone(bundle).fit(tensor[TRAIN], labels)
    np.testing.assert_allclose(
        again.llr(X[ENROL], X[TEST], dtype=np.float64), bundle.llr(X[ENROL], X[TEST]), atol=1e-3
    )


def test_a_model_is_not_taken_out_of_what_stands_around_it(tmp_path: Path) -> None:
    fitted("multiview", "prepared").save(tmp_path / "b")
    with pytest.raises(
        FileFormatError, match=r"contains a Bundle, not a .*: use mvplda.load or Bundle.load"
    ):
        MultiviewPLDA.load(tmp_path / "b")
    fitted("multiview").save(tmp_path / "b")
    assert type(MultiviewPLDA.load(tmp_path / "b")) is MultiviewPLDA


def test_hypotheses_of_those_that_have_them() -> None:
    bundle = fitted("multiview", "prepared")
    found = bundle.hypotheses(X[ENROL], X[TEST])
    expected = bundle.scorer.hypotheses(bundle.prepare(X[ENROL]), bundle.prepare(X[TEST]))
    assert list(found) == [("speaker", "phrase"), ("speaker",), ("phrase",), ()]
    for name, values in found.items():
        assert (values == expected[name]).all()


def test_priors_in_a_question_or_in_the_call() -> None:
    priors = {("speaker",): 2, "phrase": 1, (): 5}
    asked = Question(["speaker", "phrase"], priors=priors)
    scorer = fitted("multiview")
    assert (
        scorer.llr(X[ENROL], X[TEST], asked) == scorer.llr(X[ENROL], X[TEST], priors=priors)
    ).all()
    assert Question("speaker") == Question(same=["speaker"]) != Question()
    with pytest.raises(ParameterError, match="leave out same="):
        scorer.hypotheses(X[ENROL], X[TEST], Question("speaker"))


def test_the_registry() -> None:
    assert set(NAMED) >= {"multiview", "plda", "cosine", "distance"}
    with pytest.raises(
        TypeError,
        match=r"a class with the name PLDA is already defined in mvplda\.models\.plda: choose another name",
    ):
        type("PLDA", (Persistent,), {})


@pytest.mark.parametrize("name", ["cosine", "multiview", "cascade"])
def test_loading_imports_what_it_needs(name: str, tmp_path: Path) -> None:
    """A file is read in a fresh process, which has imported nothing of its class."""
    fitted(name, "prepared").save(tmp_path / "b")
    LinearCalibrator().fit(np.arange(8.0), np.isin(np.arange(8), [3, 5, 7])).save(tmp_path / "c")
    code = f"""
import sys, mvplda
assert type(mvplda.load({str(tmp_path / "c")!r})).__name__ == "LinearCalibrator"
assert type(mvplda.load({str(tmp_path / "b")!r})).__name__ == "Bundle"
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_statistics_are_loaded_too(tmp_path: Path) -> None:
    SufficientStatistics.from_arrays(X, LABELS).save(tmp_path / "s.safetensors")
    assert load(tmp_path / "s.safetensors").n == len(X)


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("name", [*SCORERS, "domain"])
def test_a_table_with_other_columns_is_refused(name: str, around: str, tmp_path: Path) -> None:
    """Names of columns and their order are those of the fit, also after loading; arrays have none."""
    if name == "somebody else's" and around != "prepared":
        pytest.skip("its fit does not keep the names")
    names = [f"x{number}" for number in range(X.shape[1])]
    table = pd.DataFrame(X, columns=names)
    scorer = DomainPLDA({"all": (X.shape[1], "speaker")}) if name == "domain" else SCORERS[name]()
    if around != "alone":
        chain = standard_chain() if around == "prepared" else None
        scorer = Bundle(chain, scorer)
    labels: Any = {view: codes[TRAIN] for view, codes in LABELS.items()}
    if name in ("plda", "domain"):
        labels = {"speaker": labels["speaker"]}
    scorer.fit(table[TRAIN], labels)
    expected = np.asarray(scorer.llr(table[ENROL], table[TEST]))
    np.testing.assert_array_equal(scorer.llr(X[ENROL], X[TEST]), expected)
    scorer.save(tmp_path / "x.safetensors")
    for one in (scorer, load(tmp_path / "x.safetensors")):
        np.testing.assert_array_equal(one.llr(table[ENROL], table[TEST]), expected)
        for wrong in (table[names[::-1]], table.rename(columns={"x0": "y"}), table[names[1:]]):
            with pytest.raises(DataError, match="feature names should match"):
                one.enrol(wrong[ENROL])
    # a fit to an array forgets the names
    scorer.fit(X[TRAIN], labels)
    assert not hasattr(getattr(scorer, "scorer", scorer), "feature_names_in_")


def test_an_answer_is_a_function_of_the_trial(scorer: Any) -> None:
    bundle = scorer if isinstance(scorer, Bundle) else Bundle(None, scorer)
    profiles = bundle.enrol(X[ENROL], IDS)
    tests = bundle.enrol(X[TEST])
    traces = np.linspace(-4.0, 4.0, len(tests))
    whole = check_trials(bundle, profiles, tests)
    assert whole.llr.shape == (10, 40)
    spoofed = check_trials(bundle, profiles, tests, Question(countermeasure=traces))
    assert np.abs(spoofed.llr - whole.llr).max() > 0.1
    for view in bundle.views:
        check_trials(bundle, profiles, tests, Question(view, countermeasure=traces))
        if len(bundle.views) > 1:
            check_trials(bundle, profiles, tests, Question(given={view: "different"}))
    with pytest.raises(MvpldaError, match="countermeasure= must have one number per test"):
        bundle.answer(profiles, tests, Question(countermeasure=traces[:3]), [[0, 0]])
    with pytest.raises(MvpldaError, match="profiles are numbered from 0 to 9"):
        bundle.answer(profiles, tests, pairs=[[10, 0]])
    with pytest.raises(MvpldaError, match="pairs must be integers"):
        bundle.answer(profiles, tests, pairs=[[0.5, 0]])
    assert bundle.answer(profiles, tests, pairs=[]).llr.shape == (0,)


@pytest.mark.parametrize("name", ["multiview", "interaction", "cascade", "committee"])
def test_labels_and_known_classes_are_those_of_the_trial(name: str) -> None:
    """One profile has phrases that training has not seen, one has none, and one has two."""
    bundle = Bundle(None, fitted(name))
    phrases: list[Any] = [LABELS["phrase"][row] for row in range(190, 220)]
    phrases[0:3] = [98] * 3
    phrases[3:6] = [None] * 3
    phrases[6] = 99
    profiles = bundle.enrol(X[ENROL], IDS, {"phrase": phrases})
    tests = bundle.enrol(X[TEST])
    labelled = bundle.enrol(X[TEST], np.arange(40), {"phrase": LABELS["phrase"][TEST]})
    check_trials(bundle, profiles, tests)
    check_trials(bundle, profiles, labelled)
    check_trials(bundle, profiles, labelled, Question(["speaker", "phrase"]))
    check_trials(bundle, profiles, tests, Question(known=["phrase"]))
    claims = {"phrase": LABELS["phrase"][190:220:3]}
    answer = check_trials(bundle, bundle.enrol(X[ENROL], IDS), tests, Question(known=claims))
    assert answer.take(4, 7).question.known == {"phrase": [claims["phrase"][4]]}
    with pytest.raises(LabelError, match="one for each of 10"):
        bundle.answer(bundle.enrol(X[ENROL], IDS), tests, Question(known={"phrase": [1, 2]}))
