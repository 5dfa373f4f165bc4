"""Files with a right fingerprint and wrong contents, of every class that can be kept in a file."""

from __future__ import annotations

import copy
import json
import warnings
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from package_calibrators import package_calibrators

import mvplda
from mvplda import atomic_files, preprocessing
from mvplda.calibration import Calibrator, scores
from mvplda.exceptions import FileFormatError, LabelError, MvpldaError
from mvplda.models import find_scorers
from mvplda.persistence import REGISTRY, Persistent, load, state_of
from mvplda.tensor_files import packed_chunks

SPEAKERS = np.repeat(np.arange(8), 6)
PHRASES = np.tile(np.arange(3), 16)
LABELS = {"speaker": SPEAKERS, "phrase": PHRASES}
D = 4


def vectors(seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    speakers = rng.normal(size=(8, D))
    phrases = rng.normal(size=(3, D))
    return speakers[SPEAKERS] + phrases[PHRASES] + rng.normal(size=(48, D)) / 2


X = vectors()
SCORES = np.random.default_rng(1).normal(size=60)
TARGETS = SCORES + np.random.default_rng(2).normal(size=60) > 0
KINDS = np.where(TARGETS, "TC", np.where(np.arange(60) % 2, "IC", "IW"))


def plda() -> Any:
    return mvplda.PLDA(2, max_iter=3).fit(X, SPEAKERS)


def multiview() -> Any:
    return mvplda.MultiviewPLDA({"speaker": 2, "phrase": 1}, noise="full", max_iter=3).fit(
        X, LABELS
    )


def committee() -> Any:
    return mvplda.Committee({"joint": multiview(), "cosine": mvplda.CosineScorer()}).fit(X, LABELS)


def of_domains() -> Any:
    from mvplda.voice.domain.estimator import DomainPLDA

    return DomainPLDA({"voice": (2, "speaker"), "words": (2, "phrase")}).fit(X, LABELS)


def in_a_domain() -> Any:
    """A model of domains with phrases that are known by name."""
    model = of_domains()
    names = np.array(["one", "two", "three"])[PHRASES]
    return model.deployed(model.enrol(X, SPEAKERS, {"phrase": names}))


def trained() -> Any:
    """A bundle with calibrations and operating points."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return mvplda.train(X, LABELS)


def bundle() -> Any:
    chain = preprocessing.standard_chain(3)
    model = mvplda.MultiviewPLDA({"speaker": 2, "phrase": 1}, max_iter=3)
    made = mvplda.Bundle(chain, model)
    return made.fit(X, LABELS)


def step(name: str) -> Callable[[], Any]:
    def make() -> Any:
        return getattr(preprocessing, name)().fit(X, SPEAKERS)

    return make


def hypothesis_logs(scale: float = 1.0) -> Any:
    return {("speaker", "phrase"): scale * SCORES, ("speaker",): SCORES, ("phrase",): -SCORES}


def calibrator(cls: type[Calibrator]) -> Callable[[], Any]:
    def make() -> Any:
        seconds = np.random.default_rng(4).uniform(0, 2, size=60)
        return cls().fit(
            hypothesis_logs(),
            np.arange(60) % 3,
            speakers=np.arange(60) % 7,
            measures={"log seconds": seconds},
        )

    return make


MAKERS: dict[str, Callable[[], Any]] = {
    "PLDA": plda,
    "MultiviewPLDA": multiview,
    "CosineScorer": lambda: mvplda.CosineScorer().fit(X),
    "Committee": committee,
    "DomainPLDA": of_domains,
    "DomainPLDA in a domain": in_a_domain,
    "Bundle": bundle,
    "trained Bundle": trained,
    "LinearCalibrator": lambda: scores.LinearCalibrator().fit(SCORES, KINDS),
    **{name: calibrator(cls) for name, cls in package_calibrators().items()},
    "SufficientStatistics": lambda: mvplda.SufficientStatistics.from_arrays(X, LABELS),
    **{
        name: step(name)
        for name in ("Centring", "LengthNormalisation", "RectifiedRoot", "Reduction")
    },
    "Whitening": step("Whitening"),
}
WITHOUT_FILES = ("BaseScorer", "Calibrator", "LatentScorer", "MatrixScorer", "Step")
"""Bases of other classes."""


def use(held: Any) -> Any:
    """What an object from a file gives for ordinary input."""
    if isinstance(held, mvplda.SufficientStatistics):
        return (held + held).variance
    if isinstance(held, Calibrator):
        return list(held.transform(hypothesis_logs()).values())
    if isinstance(held, scores.LinearCalibrator):
        return held.transform(SCORES)
    if isinstance(held, preprocessing.Step):
        return held.transform(np.abs(X))
    held.describe()
    answers = [held.llr(X[:5], X[5:9])]
    if isinstance(held, mvplda.Bundle):
        answers.append(held.answer(X[:5], X[5:9]).llr)
    for view in held.views_:
        if not knows(held, view):
            continue
        claims = held.known_names(view)[np.zeros(5, dtype=int)]
        answers.append(held.llr(X[:5], X[5:9], known={view: claims}))
    return np.concatenate([answer.ravel() for answer in answers])


def knows(scorer: Any, view: str) -> bool:
    """Whether a scorer has classes of a view for questions with known=."""
    try:
        return len(scorer.known_names(view)) > 0
    except LabelError:
        return False


def changed_arrays(array: Any) -> Iterator[Any]:
    """The same array with something wrong."""
    flat = array.reshape(-1)
    if not array.size:
        return
    for number in (np.nan, np.inf, -1e300, -1.0, 0.0, 2**40) if array.dtype.kind == "f" else ():
        one = flat.copy()
        one[-1] = number
        yield one.reshape(array.shape)
    for number in (-7, 2**40) if array.dtype.kind == "i" else ():
        one = flat.copy()
        one[-1] = number
        yield one.reshape(array.shape)
    yield -array
    yield np.zeros_like(array)
    yield array[:-1]
    yield array[None]
    yield np.concatenate([array, array])
    yield flat[:0]
    yield array.astype(np.int8)


def places(value: Any) -> Iterator[tuple[Any, ...]]:
    """Where every value stands among nested ones."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in items:
        yield (key,)
        if isinstance(inner, (dict, list)):
            yield from ((key, *rest) for rest in list(places(inner))[:12])


def changed_values(about: dict[str, Any]) -> Iterator[Any]:
    others: tuple[Any, ...] = (None, -1, 10**30, 1.5, "x", [], {}, [[1]], True, "gone")
    for path in places(about):
        for other in others:
            new = copy.deepcopy(about)
            inner = new
            for key in path[:-1]:
                inner = inner[key]
            if other == "gone" and isinstance(inner, dict):
                del inner[path[-1]]
            else:
                inner[path[-1]] = other
            yield new


def write(path: Path, arrays: Any, about: Any) -> None:
    path.write_bytes(b"".join(packed_chunks(arrays, about)))


def try_it(path: Path, what: Any) -> bool:
    """Whether the file was refused; what is not refused gives finite numbers."""
    try:
        answer = use(load(path))
    except MvpldaError:
        return True
    except Exception as error:
        pytest.fail(f"{what}: {type(error).__name__}: {error}")
    assert np.isfinite(np.asarray(answer)).all(), what
    return False


def test_every_class_is_tried() -> None:
    _ = mvplda.Bundle, find_scorers()  # which import all of them
    own = {n for n, c in REGISTRY.items() if c.__module__.startswith("mvplda.") and n[0] != "_"}
    assert own - set(WITHOUT_FILES) - set(MAKERS) == set()


def changed_states(arrays: Any, about: Any) -> Iterator[tuple[Any, Any, str]]:
    """Everything that is tried of one file: arrays and values, each changed in many ways."""
    for key, array in arrays.items():
        for number, other in enumerate(changed_arrays(array)):
            yield {**arrays, key: np.ascontiguousarray(other)}, about, f"{key}, change {number}"
        yield {k: a for k, a in arrays.items() if k != key}, about, f"{key} is gone"
    for other in changed_values(about):
        yield arrays, other, json.dumps(other)[:2000]


@pytest.mark.parametrize("every", [pytest.param(1, marks=pytest.mark.slow), 13])
@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.filterwarnings("ignore")
def test_wrong_contents_are_refused_or_harmless(name: str, every: int, tmp_path: Path) -> None:
    held = MAKERS[name]()
    arrays, about = state_of(held, Persistent)
    path = tmp_path / "x.safetensors"
    write(path, arrays, about)
    assert not try_it(path, "as it is")
    refused = 0
    for others, values, what in islice(changed_states(arrays, about), 0, None, every):
        write(path, others, values)
        refused += try_it(path, what)
    assert refused


def test_values_that_are_no_numbers(tmp_path: Path) -> None:
    arrays, about = state_of(MAKERS["LinearCalibrator"](), Persistent)
    about["values"]["intercept_"] = float("nan")
    write(tmp_path / "x.safetensors", arrays, about)
    with pytest.raises(FileFormatError):
        load(tmp_path / "x.safetensors")


def test_gz_is_compressed(tmp_path: Path) -> None:
    import gzip

    path = tmp_path / "a.txt.gz"
    atomic_files.write_atomically(path, b"words\n" * 1000)
    assert gzip.decompress(path.read_bytes()) == b"words\n" * 1000
    packed = path.read_bytes()
    atomic_files.write_atomically(path, packed)  # compressed already, as a download may be
    assert path.read_bytes() == packed


SCORERS: dict[str, Callable[[], Any]] = {
    "PLDA": lambda: mvplda.PLDA(2, max_iter=3),
    "MultiviewPLDA": lambda: mvplda.MultiviewPLDA({"speaker": 2, "phrase": 1}, max_iter=3),
    "full noise": lambda: mvplda.MultiviewPLDA({"speaker": 2}, noise="full", max_iter=3),
    "interaction": lambda: mvplda.MultiviewPLDA(
        {"speaker": 2, "phrase": 1, "speaker:phrase": 1}, max_iter=3
    ),
    "CosineScorer": mvplda.CosineScorer,
    "Committee": lambda: mvplda.Committee(
        {"isotropic": mvplda.MultiviewPLDA(["speaker", "phrase"], prior="isotropic")},
        weights=None,
    ),
    "Committee of a bundle": lambda: mvplda.Committee(
        {
            "bundle": mvplda.Bundle(preprocessing.standard_chain(), mvplda.PLDA(2, max_iter=3)),
            "bare": mvplda.MultiviewPLDA({"speaker": 2}, max_iter=3),
        },
        columns={"bare": (0, D)},
        weights=None,
    ),
    "Bundle": lambda: mvplda.Bundle(None, mvplda.PLDA(2, max_iter=3)),
    "Bundle with preprocessing": lambda: mvplda.Bundle(
        preprocessing.standard_chain(), mvplda.PLDA(2, max_iter=3)
    ),
}


@pytest.mark.parametrize(
    ("scale", "offset"),
    [(1e-20, 0), (1e-10, 0), (1e-6, 0), (1e12, 0), (1, 1e6), (1, 1e12), (1e-6, 100), (1e-9, 1)],
)
@pytest.mark.parametrize("name", SCORERS)
@pytest.mark.filterwarnings("ignore")
def test_a_model_of_vectors_in_any_units_loads(
    name: str, scale: float, offset: float, tmp_path: Path
) -> None:
    moved = offset + scale * X
    labels = {"speaker": SPEAKERS}
    if name in ("MultiviewPLDA", "interaction", "Committee"):
        labels = LABELS
    scorer = SCORERS[name]().fit(moved, labels)
    expected = scorer.llr(moved[:5], moved[5:9])
    assert np.isfinite(expected).all()
    scorer.save(tmp_path / "x.safetensors")
    np.testing.assert_array_equal(
        load(tmp_path / "x.safetensors").llr(moved[:5], moved[5:9]), expected
    )


def broken_mean(model: Any) -> None:
    model.mean_ = np.full(D, np.nan)


def broken_width(model: Any) -> None:
    model.loadings_ = {view: loading[:-1] for view, loading in model.loadings_.items()}


@pytest.mark.parametrize("damage", [broken_mean, broken_width])
@pytest.mark.parametrize("inside", ["bare", "bundle", "committee"])
@pytest.mark.filterwarnings("ignore")
def test_what_could_not_be_loaded_is_not_written(
    damage: Callable[[Any], None], inside: str, tmp_path: Path
) -> None:
    model = multiview()
    scorer = model
    if inside == "bundle":
        scorer = mvplda.Bundle(None, model)
    elif inside == "committee":
        scorer = mvplda.Committee({"model": model}, weights=None).fit(X, LABELS)
        model = scorer.experts_["model"]
    path = tmp_path / "x.safetensors"
    scorer.save(path)
    before = path.read_bytes()
    damage(model)
    with pytest.raises(MvpldaError, match="could not be loaded again"):
        scorer.save(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def zero_covariance(arrays: Any, about: Any) -> None:
    key = next(key for key in arrays if key.endswith("class_covariances/speaker"))
    arrays[key] = np.zeros_like(arrays[key])


def distant_class(arrays: Any, about: Any) -> None:
    key = next(key for key in arrays if key.endswith("class_means/speaker"))
    arrays[key] = np.full_like(arrays[key], -1e300)


def name_of_class(value: Any) -> Callable[[Any, Any], None]:
    def change(arrays: Any, about: Any) -> None:
        model = about["experts_"]["joint"] if "experts_" in about else about
        model["classes"]["speaker"][3] = value

    return change


CHANGES = {
    "zero covariance": zero_covariance,
    "distant class": distant_class,
    "list": name_of_class([1, 2]),
    "dict": name_of_class({}),
    "None": name_of_class(None),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", ["MultiviewPLDA", "Committee"])
@pytest.mark.filterwarnings("ignore")
def test_training_classes_that_cannot_be_used_are_refused(
    name: str, change: str, tmp_path: Path
) -> None:
    arrays, about = copy.deepcopy(state_of(MAKERS[name](), Persistent))
    CHANGES[change](arrays, about)
    write(tmp_path / "x.safetensors", arrays, about)
    with pytest.raises(FileFormatError, match="class"):
        load(tmp_path / "x.safetensors")


@pytest.mark.parametrize("key", ["card", "extractor"])
@pytest.mark.parametrize("value", [7, True, 1.5, [["a"]], ["x"]])
@pytest.mark.filterwarnings("ignore")
def test_what_stands_in_a_bundle_has_its_type(key: str, value: Any, tmp_path: Path) -> None:
    arrays, about = state_of(bundle(), Persistent)
    write(tmp_path / "x.safetensors", arrays, {**about, key: value})
    with pytest.raises(FileFormatError, match=f"the {key} of a bundle"):
        load(tmp_path / "x.safetensors")


@pytest.mark.filterwarnings("ignore")
def test_a_file_without_objectives_is_read(tmp_path: Path) -> None:
    """Earlier versions did not write them."""
    arrays, about = state_of(multiview(), Persistent)
    assert len(arrays.pop("objectives_")) == 4
    write(tmp_path / "x.safetensors", arrays, about)
    assert load(tmp_path / "x.safetensors").objectives_.shape == (0,)
