"""Bundle: preprocessing, model and calibration that belong together, in one file."""

# mypy: disallow-subclassing-any=False

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from ._files import BUNDLE_FORMAT, file_format, read_metadata, seal, unseal, write_atomically
from ._typing import Array
from ._validation import compare_extractors
from .calibration import QualityCalibrator, name_kinds
from .exceptions import DataError, FileFormatError, ParameterError
from .labels import as_array
from .models.multiview import MultiviewPLDA
from .models.storage import load_model, model_parts, restore_model
from .persistence import CALIBRATORS, TRANSFORMERS, Tensors, put_together, take_apart
from .scoring.profiles import Enrolment, Profiles


class Bundle(BaseEstimator):
    """Preprocessing, model and calibrator as one system: raw vectors in, calibrated LLRs out.

    Parameters
    ----------
    preprocessing : Pipeline or None
        Of the transformers in `mvplda.preprocessing`; see `standard_chain`.
    model : MultiviewPLDA
    calibrator : a calibrator of `mvplda.calibration`, or None
    extractor : str or None
        Name of what made the vectors; others are refused by `check_extractor`.
    questions : sequence of dict, or None
        What `llr` is asked for each score that the calibrator fuses, for example
        ``[{}, {"same": "speaker"}, {"same": "phrase"}]``. None: ``[{}]``, the joint LLR alone.

    Examples
    --------
    >>> import numpy as np
    >>> from mvplda import Bundle, MultiviewPLDA
    >>> from mvplda.preprocessing import standard_chain
    >>> rng = np.random.default_rng(0)
    >>> labels = {"speaker": np.arange(400) % 20, "phrase": np.arange(400) // 40}
    >>> X = rng.normal(size=(20, 8))[labels["speaker"]] + rng.normal(size=(10, 8))[labels["phrase"]]
    >>> X += 0.5 * rng.normal(size=X.shape)
    >>> bundle = Bundle(standard_chain(), MultiviewPLDA({"speaker": 4, "phrase": 4})).fit(X, labels)
    >>> bundle.llr(X[:3], X[3:5]).shape
    (3, 2)
    """

    def __init__(
        self,
        preprocessing: Pipeline | None = None,
        model: MultiviewPLDA | None = None,
        calibrator: Any = None,
        questions: Sequence[Mapping[str, Any]] | None = None,
        extractor: str | None = None,
    ) -> None:
        self.preprocessing = preprocessing
        self.model = model
        self.calibrator = calibrator
        self.questions = questions
        self.extractor = extractor

    # -- training ------------------------------------------------------------

    def fit(self, X: Any, y: Any) -> Self:
        """Fit the preprocessing, then the model to what comes out of it."""
        vectors = X if self.preprocessing is None else self.preprocessing.fit_transform(X, y)
        self._model().fit(vectors, y)
        return self

    def fit_calibrator(
        self, enrol: Any, test: Any, kinds: Any, *, speakers: Any = None, side: Any = None, **options: Any
    ) -> Self:
        """Fit the calibrator to all pairs of two sides, of classes that the model was not trained on.

        Parameters
        ----------
        enrol, test : Profiles of `enrol`, or arrays of single vectors
        kinds : (profiles, tests) kinds by name or targets as bool, or the masks of `trial_kinds`
        speakers : (profiles,) the speaker of every profile, so that the calibrator knows how many there are
        side : side information, for a `QualityCalibrator`; see `calibrated`
        options : for `llr`, in every question
        """
        if self.calibrator is None:
            raise ParameterError("this bundle has no calibrator: set one, KindCalibrator() for example")
        scores = self._scores(enrol, test, None, options)
        names = name_kinds(kinds) if isinstance(kinds, Mapping) else np.asarray(kinds)
        if names.shape != scores.shape[:-1]:
            raise DataError(f"kinds have shape {names.shape}; the trials ask for {scores.shape[:-1]}")
        extra = self._side(side, scores.shape[:-1])
        if speakers is not None:
            named = as_array(speakers)
            if named.shape != names.shape[:1]:
                raise DataError(f"there are {names.shape[0]} profiles and speakers of shape {named.shape}")
            extra["speakers"] = np.repeat(named, names.shape[1])
        self.calibrator.fit(scores.reshape(-1, scores.shape[-1]), names.reshape(-1), **extra)
        return self

    # -- scoring ---------------------------------------------------------------

    def prepare(self, X: Any) -> Any:
        """Vectors as the model sees them."""
        if self.preprocessing is None:
            return X
        check_is_fitted(self.preprocessing)
        return self.preprocessing.transform(X)

    def enrol(self, X: Any, ids: Any = None, labels: Any = None, *, method: Enrolment = "book") -> Profiles:
        """Profiles of raw vectors, as `MultiviewPLDA.enrol`."""
        return self._model().enrol(self.prepare(X), ids, labels, method=method)

    def llr(self, enrol: Any, test: Any, **options: Any) -> Any:
        """The model's LLRs (profiles, tests), not calibrated; `options` as in `MultiviewPLDA.llr`."""
        return self._model().llr(self._side_of(enrol), self._side_of(test), **options)

    def llr_trials(self, enrol: Any, test: Any, pairs: Any, **options: Any) -> Any:
        """The model's LLRs of a list of trials, not calibrated."""
        return self._model().llr_trials(self._side_of(enrol), self._side_of(test), pairs, **options)

    def calibrated(self, enrol: Any, test: Any, *, pairs: Any = None, side: Any = None, **options: Any) -> Array:
        """Calibrated natural-log LLRs of all pairs (profiles, tests), or of a list of trials (n,).

        Parameters
        ----------
        enrol, test : Profiles, or arrays of single raw vectors
        pairs : (n, 2) row of a profile and row of a test; None: all
        side : {name: numbers that broadcast to the trials}, for a `QualityCalibrator`: for
            example ``{"count": profiles.counts[:, None], "seconds": durations}``
        options : for `llr`, in every question
        """
        if self.calibrator is None:
            raise ParameterError("this bundle has no calibrator: use llr, or fit one with fit_calibrator")
        scores = self._scores(enrol, test, pairs, options)
        extra = self._side(side, scores.shape[:-1])
        result = self.calibrator.transform(scores.reshape(-1, scores.shape[-1]), **extra)
        return np.asarray(result).reshape(scores.shape[:-1])

    # -- files -------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to one ``.safetensors`` file, all or nothing."""
        model = self.fitted_model
        parts, about_model = model_parts(model)
        tensors: Tensors = {f"model/{name}": value for name, value in parts.items()}
        about: dict[str, Any] = {"model": about_model, "preprocessing": None, "calibrator": None}
        about["extractor"] = self.extractor
        if self.preprocessing is not None:
            about["preprocessing"] = []
            for i, (name, step) in enumerate(self.preprocessing.steps):
                arrays, description = take_apart(step, TRANSFORMERS)
                tensors |= {f"preprocessing/{i}/{key}": value for key, value in arrays.items()}
                about["preprocessing"].append([name, description])
        if self.calibrator is not None:
            arrays, about["calibrator"] = take_apart(self.calibrator, CALIBRATORS)
            tensors |= {f"calibrator/{key}": value for key, value in arrays.items()}
        self.check()
        try:
            about["questions"] = json.loads(json.dumps([dict(question) for question in self._questions()]))
        except TypeError as error:
            raise ParameterError(f"the questions cannot be written as text: {error}") from error
        write_atomically(path, seal(BUNDLE_FORMAT, "bundle", tensors, about))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a bundle that `save` wrote; parts that do not fit each other are an error."""
        tensors, about = unseal(path, BUNDLE_FORMAT, "bundle")

        def under(prefix: str) -> Tensors:
            return {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}

        try:
            model = restore_model(under("model/"), about["model"], path)
            steps = None
            if about["preprocessing"] is not None:
                steps = [
                    (name, put_together(under(f"preprocessing/{i}/"), description, TRANSFORMERS))
                    for i, (name, description) in enumerate(about["preprocessing"])
                ]
            calibrator = about["calibrator"]
            if calibrator is not None:
                calibrator = put_together(under("calibrator/"), calibrator, CALIBRATORS)
            questions = about["questions"]
            pipeline = None if steps is None else Pipeline(steps)
            bundle = cls(pipeline, model, calibrator, questions, about.get("extractor"))
            bundle.check()
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            if isinstance(error, FileFormatError) and str(path) in str(error):
                raise
            raise FileFormatError(f"{path} holds parts that do not make a bundle: {error}") from error
        return bundle

    def check_extractor(self, extractor: str | None, where: str) -> None:
        """Refuse vectors that another extractor than the model's made; warn where it is not known what made them."""
        if self.extractor is not None:
            compare_extractors("the model", self.extractor, where, extractor)

    def check(self) -> None:
        """Whether the parts fit each other: widths from step to step, and scores for the calibrator."""
        model = self.fitted_model
        width, before = None, ""
        for name, step in [] if self.preprocessing is None else self.preprocessing.steps:
            given = int(step.n_features_in_)
            if width is not None and width != given:
                raise DataError(f"{before} gives vectors of width {width}, but step {name!r} takes {given}")
            for attribute in ("mean_", "matrix_"):
                found = len(getattr(step, attribute, range(given)))
                if found != given:
                    raise DataError(f"step {name!r} takes vectors of width {given}, its {attribute} {found}")
            width, before = int(step.width_out), f"step {name!r}"
        dimension = len(model.mean_)
        if width is not None and width != dimension:
            raise DataError(f"{before} gives vectors of width {width}, but the model takes {dimension}")
        bad = [v for v, loading in model.loadings_.items() if loading.shape != (dimension, model.views_[v])]
        if bad or model.noise_.shape not in ((dimension,), (dimension, dimension)):
            raise DataError(f"the model's loadings or noise do not have its dimension {dimension}: {bad or 'noise'}")
        scores = getattr(self.calibrator, "n_scores_", None)
        if scores is not None and scores != len(self._questions()):
            raise DataError(
                f"the calibrator takes {scores} score(s) a trial, the questions give {len(self._questions())}"
            )

    def describe(self) -> dict[str, Any]:
        """What is in the bundle besides the model, in plain values."""
        steps = [] if self.preprocessing is None else self.preprocessing.steps
        return {
            "preprocessing": [type(step).__name__ for _, step in steps],
            "width": int(steps[0][1].n_features_in_) if steps else len(self.fitted_model.mean_),
            "calibrator": None if self.calibrator is None else type(self.calibrator).__name__,
            "questions": [dict(question) for question in self._questions()],
            "extractor": self.extractor,
        }

    @property
    def fitted_model(self) -> MultiviewPLDA:
        """The model, which must be there and fitted."""
        model = self._model()
        check_is_fitted(model, "mean_")
        return model

    # -- helpers -----------------------------------------------------------------

    def _model(self) -> MultiviewPLDA:
        if not isinstance(self.model, MultiviewPLDA):
            raise ParameterError(f"a bundle needs a MultiviewPLDA as its model; got {type(self.model).__name__}")
        return self.model

    def _questions(self) -> list[Mapping[str, Any]]:
        return [{}] if self.questions is None else list(self.questions)

    def _side_of(self, side: Any) -> Any:
        return side if isinstance(side, Profiles) else self.prepare(side)

    def _scores(self, enrol: Any, test: Any, pairs: Any, options: dict[str, Any]) -> Array:
        """Answers to all questions, last axis."""
        profiles, tests = (s if isinstance(s, Profiles) else self.enrol(s) for s in (enrol, test))
        answers = []
        for question in self._questions():
            asked = {"dtype": np.float64, **options, **question}
            if pairs is None:
                answers.append(self._model().llr(profiles, tests, **asked))
            else:
                answers.append(self._model().llr_trials(profiles, tests, pairs, **asked))
        return np.stack([np.asarray(answer, dtype=np.float64) for answer in answers], axis=-1)

    def _side(self, side: Any, shape: tuple[int, ...]) -> dict[str, Any]:
        if not isinstance(self.calibrator, QualityCalibrator):
            if side is not None:
                raise ParameterError(f"side= is for a QualityCalibrator; this is {type(self.calibrator).__name__}")
            return {}
        if not isinstance(side, Mapping):
            raise DataError("a QualityCalibrator needs side={name: numbers that broadcast to the trials}")
        flat: dict[str, NDArray[Any]] = {}
        for name, values in side.items():
            try:
                flat[name] = np.broadcast_to(np.asarray(values, dtype=np.float64), shape).reshape(-1)
            except ValueError as error:
                raise DataError(f"side[{name!r}] does not broadcast to the trials {shape}: {error}") from error
        return {"side": flat}


def load_bundle(path: str | os.PathLike[str]) -> Bundle:
    """Read a bundle."""
    return Bundle.load(path)


def load(path: str | os.PathLike[str]) -> Any:
    """Read what a file of mvplda holds: a `Bundle`, or a model."""
    return load_bundle(path) if file_format(path) == BUNDLE_FORMAT else load_model(path)


def describe_model(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What is in a model file, or in a bundle, in plain values."""
    extra: dict[str, Any] = {}
    if file_format(path) == BUNDLE_FORMAT:
        bundle = load_bundle(path)
        model, extra = bundle.fitted_model, {"bundle": bundle.describe()}
    else:
        model = load_model(path)
    return {
        **extra,
        "class": type(model).__name__,
        "dimension": model.n_features_in_,
        "noise": model.noise,
        "views": model.views_,
        "explained_variance_ratio": model.explained_variance_ratio_,
        "classes": {view: len(names) for view, names in model.classes_.items()},
        "converged": model.converged_,
        "n_iter": model.n_iter_,
        "algorithm_used": getattr(model, "algorithm_used_", None),
        "fingerprint": read_metadata(path)["fingerprint"],
    }
