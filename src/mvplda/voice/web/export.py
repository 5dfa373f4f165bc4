"""Export of a model and its recipes as JSON values and arrays, which the scripts of the page evaluate.

The page compares two sides as `VoiceModel.verify` does, with one enrolled profile, to whose recordings the model is
adapted. Everything that depends on the model is exported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cache
from typing import Any

import numpy as np

from ..._optional import need
from ..._typing import FloatArray, Json
from ...bundle import Bundle
from ...calibration.amount import CONSTANT, LLR, NEAR_MATCH, AmountCalibrator
from ...calibration.calibrator import Calibrator
from ...calibration.hypotheses import NEAR_MATCH_EVIDENCE, HypothesisCalibrator
from ...decisions import OperatingPoint
from ...exceptions import ParameterError
from ...models import Committee
from ...scoring.answer import hypothesis_name, question_key
from ...scoring.question import Question
from ..domain.bandwidth import DIFFERENT_BANDS
from ..domain.estimator import RECORDINGS, TEST_SECONDS, DomainPLDA
from ..domain.posterior import MAX_UNNAMED_VARIANCE, MIN_MEAN_SQUARE, SESSION_VARIANCE_RATIO
from ..extractors.onnx_network import OnnxNetwork
from ..extractors.recipe import Recipe
from ..verification import VoiceModel

SUPPORTED_FEATURES = ("kaldi", "graph", "samples")
COMMON_RATES = (8000, 11025, 12000, 22050, 24000, 32000, 44100, 48000, 96000, 192000)
"""Sample rates of files and microphones for which the response of the resampler is exported."""
FIRST_FREQUENCY, FREQUENCY_STEP, FREQUENCIES = 0.85, 0.0005, 400
"""Grid of frequencies for the response of the resampler, relative to half of the lower rate; below, the gain is 1."""
IMPULSE_S = 0.5


class Arrays:
    """Arrays of a model, collected for one binary file; the JSON file of the model refers to their positions."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    def add(self, values: FloatArray) -> Json:
        """Append an array and return {"$array": [position in bytes, *shape]} for the JSON file.

        values : array with one or two axes
        """
        data = np.ascontiguousarray(values, dtype="<f8")
        position = [self._size, *data.shape]
        self._parts.append(data.tobytes())
        self._size += data.nbytes
        return {"$array": position}

    def to_bytes(self) -> bytes:
        """Return the contents of the binary file: all arrays as 64-bit floats, little-endian."""
        return b"".join(self._parts)


def export_model(voices: VoiceModel, arrays: Arrays) -> dict[str, Any]:
    """Return the values for the JSON file of a model: recipes, back-end, calibration and thresholds.

    Parameters
    ----------
    voices : model
    arrays : collection to which arrays are added

    Raises
    ------
    ParameterError
        The scripts cannot evaluate this model.
    """
    bundle = voices.bundle
    scorer = bundle.fitted_scorer
    if bundle.preprocessing is not None or not isinstance(scorer, DomainPLDA):
        kind = type(scorer).__name__
        if isinstance(scorer, Committee):
            kind = "committee that was trained on your people"
        raise ParameterError(
            f"only the default model, or a setup that chose it, can run in a page; this model is a {kind}. Leave out "
            "MODEL to export the default model, or run `mvplda serve --model` for this one"
        )
    networks = voices.extractor.networks
    # the model is adapted as in every comparison with a single enrolled profile
    probe = bundle.enrol(np.ones((1, bundle.width_in)))
    paired = bundle.paired(probe)
    return {
        "key": f"{voices.extractor.fingerprint[:16]}-{bundle._key()[:16]}",
        "name": str((bundle.card or {}).get("name", "your model")),
        "rate": voices.extractor.rate,
        "segment_s": voices.extractor.segment_s,
        "responses": {
            "first": FIRST_FREQUENCY,
            "step": FREQUENCY_STEP,
            "tables": {
                str(rate): resampler_response(rate, voices.extractor.rate)
                for rate in COMMON_RATES
                if rate != voices.extractor.rate
            },
        },
        "recipes": [export_network(network, arrays) for network in networks],
        "backend": export_backend(bundle, scorer, paired is not bundle, arrays),
        "questions": export_questions(paired),
        "credits": [
            {"title": recipe.title, "licence": recipe.licence, "source": recipe.source}
            for recipe in (network.recipe for network in networks)
        ],
    }


def export_network(network: OnnxNetwork, arrays: Arrays) -> Json:
    """Return the part of the JSON file about a network: recipe, input and paths of files.

    network : network whose recipe the page can evaluate; raise `ParameterError` for another one
    arrays : collection to which the recipe's basis is added, if it has one
    """
    recipe = network.recipe
    _check_recipe(recipe)
    graph = [recipe.features.file] if recipe.features.kind == "graph" else []
    basis = None
    if recipe.has_points:
        basis = arrays.add(np.load(network.path.parent / recipe.windows.basis))
    return {
        **{
            key: asdict(getattr(recipe, key))
            for key in ("samples", "features", "network", "windows")
        },
        "name": recipe.name,
        "rate": recipe.rate,
        "input": network.input,
        "mask_is_float": network.mask_is_float,
        "all_starts": network.has_all_starts,
        "basis": basis,
        "files": [f"{recipe.name}/{name}" for name in graph_files(network)],
        "graph_files": [f"{recipe.name}/{name}" for name in graph],
    }


def graph_files(network: OnnxNetwork) -> list[str]:
    """Return the names of a network's ONNX file and of separate files with its weights."""
    recipe = network.recipe
    other = {network.path.name, recipe.features.file, recipe.windows.basis}
    weights = [name for name in recipe.weights.files if name not in other]
    beside = f"{network.path.name}.data"
    if beside not in weights and (network.path.parent / beside).is_file():
        weights.append(beside)
    return [network.path.name, *weights]


def _check_recipe(recipe: Recipe) -> None:
    """Raise `ParameterError` if a recipe needs features that the scripts of the page cannot compute."""
    if recipe.features.kind not in SUPPORTED_FEATURES:
        raise ParameterError(
            f"the extractor {recipe.name} needs features of the kind {recipe.features.kind!r}; a page can compute "
            f"{', '.join(SUPPORTED_FEATURES)}. Run `mvplda serve` for this model instead"
        )


def export_backend(bundle: Bundle, scorer: DomainPLDA, adapts: bool, arrays: Arrays) -> Json:
    """Return the part of the JSON file about the back-end, the model that compares vectors.

    Parameters
    ----------
    bundle : model with its views
    scorer : fitted back-end
    adapts : whether the model adapts to the domain of the enrolled recordings
    arrays : collection to which arrays are added
    """
    has_band = len(scorer.band_weights_) > 0
    return {
        "views": list(bundle.views),
        "adapts": adapts,
        "blocks": export_blocks(scorer, arrays),
        "measures": {
            "seconds": TEST_SECONDS,
            "recordings": RECORDINGS,
            "bands": DIFFERENT_BANDS,
        },
        "band": {"constant": float(scorer.band_weights_[-1])} if has_band else None,
    }


def export_blocks(scorer: DomainPLDA, arrays: Arrays) -> list[Json]:
    """Return the parameters of each block of columns (one per extractor): view, mean, channel directions, variances.

    arrays : collection to which arrays are added
    """
    blocks = []
    first_view = next(iter(scorer.views_))
    band_weights = scorer.band_weights_
    if not len(band_weights):
        band_weights = np.zeros(scorer.width_in)
    start = 0
    for name, (width, view) in scorer.blocks.items():
        columns = slice(start, start + width)
        block: Json = {"view": view, "start": start, "end": start + width, "points": None}
        start += width
        if name in (scorer.points or {}):
            block["points"] = (scorer.points or {})[name]
        else:
            variances = scorer.variances_[name]
            limit = np.inf if view == first_view else MAX_UNNAMED_VARIANCE
            block |= {
                "channel": arrays.add(scorer.channels_.get(name, np.zeros((0, width)))),
                "band_weights": arrays.add(band_weights[columns]),
                "mean": arrays.add(scorer.mean_[columns]),
                "shift": arrays.add(scorer.shift_[columns]),
                "variances": dict(variances),
                "prior_domain_variance": min(variances["domain"], float(limit)),
                "domain_variance": float(scorer.domain_variances_[name]),
                "session_ratio": SESSION_VARIANCE_RATIO,
                "min_mean_square": MIN_MEAN_SQUARE,
                "weight": float((scorer.weights or {}).get(name, 1.0)),
            }
        blocks.append(block)
    return blocks


def export_questions(bundle: Bundle) -> Json:
    """Return the weights, calibration and thresholds of each question that the page answers.

    The questions are whether all views are the same (speaker and phrase), and whether each view alone is the same.

    Returns
    -------
    {key of the question: values}
    """
    questions: Json = {}
    for same in dict.fromkeys([bundle.views, *((view,) for view in bundle.views)]):
        question = Question(list(same))
        ratio = question.ratio(bundle.views)
        points = bundle.operating_points(question) or [bundle.point(question)]
        questions[question_key(question, bundle.views)] = {
            "same": list(same),
            "numerator": {hypothesis_name(h): weight for h, weight in ratio.numerator.items()},
            "denominator": {hypothesis_name(h): weight for h, weight in ratio.denominator.items()},
            "calibration": _calibration(bundle.calibration(question)),
            "points": [_point(point, same) for point in points],
        }
    return questions


def _calibration(calibrator: Calibrator | None) -> Json | None:
    """Return the coefficients of a calibration for the page; None if there is none.

    Raises
    ------
    ParameterError
        The scripts of the page cannot evaluate calibrations of this class.
    """
    if calibrator is None:
        return None
    if isinstance(calibrator, AmountCalibrator):
        return {
            "measures": [
                {"name": name, "least": least, "largest": largest, "typical": typical}
                for name, (least, largest, typical) in calibrator.measures_.items()
            ],
            "slopes": {view: list(row.values()) for view, row in calibrator.slopes_.items()},
            "constants": {view: list(row.values()) for view, row in calibrator.constants_.items()},
            "offsets": {},
            "near_match_weight": calibrator.near_match_weight_,
            "near_match": _near_match(calibrator.near_match_slopes_, list(calibrator.measures_)),
            "outlier_probability": calibrator.outlier_probability_,
        }
    if isinstance(calibrator, HypothesisCalibrator):
        return {
            "measures": [],
            "slopes": {view: [weight] for view, weight in calibrator.weights_.items()},
            "constants": {},
            "offsets": dict(calibrator.constants_),
            "near_match_weight": calibrator.weights_.get(NEAR_MATCH_EVIDENCE, 1.0),
            "near_match": _near_match({NEAR_MATCH: 1.0}, []),
            "outlier_probability": calibrator.outlier_probability_,
        }
    raise ParameterError(
        f"a page cannot evaluate calibrations of the class {type(calibrator).__name__}: serve this model (mvplda serve)"
    )


def _near_match(slopes: Mapping[str, float], measures: Sequence[str]) -> Json:
    """Return the coefficients of the LLR of the same phrase against near matches.

    slopes : {name: coefficient}, with the names `NEAR_MATCH`, `LLR`, `CONSTANT` and `measures`
    measures : names of quality measures, in the order in which their coefficients are returned
    """
    return {
        "evidence": slopes[NEAR_MATCH],
        "llr": slopes.get(LLR, 0.0),
        "constant": slopes.get(CONSTANT, 0.0),
        "amounts": [slopes.get(name, 0.0) for name in measures],
    }


def _point(point: OperatingPoint, views: Sequence[str]) -> Json:
    """Return the thresholds of an operating point for the JSON file.

    They are those of the whole trial and, if the point has halves, of each view in `views`.
    """
    halves: dict[str, Any] | None = None
    if point.halves:
        halves = {
            view: {"accept": point.halves[view].accept, "reject": point.halves[view].reject}
            for view in views
        }
    return {
        "threshold": point.threshold,
        "reject": point.reject,
        "far": point.far,
        "halves": halves,
    }


@cache
def resampler_response(source_rate: int, rate: int) -> list[float]:
    """Measure the gain of the resampler with an impulse, at the frequencies of the grid (see `FIRST_FREQUENCY`).

    source_rate, rate : samples per second before and after resampling
    """
    impulse = np.zeros(round(IMPULSE_S * source_rate))
    impulse[len(impulse) // 2] = 1.0
    output = need("soxr").resample(impulse, source_rate, rate, quality="HQ")
    gains = np.abs(np.fft.rfft(output)) * source_rate / rate
    nyquist = min(source_rate, rate) / 2
    frequencies = np.fft.rfftfreq(len(output), 1 / rate) / nyquist
    grid = FIRST_FREQUENCY + FREQUENCY_STEP * np.arange(FREQUENCIES)
    # beyond half of the rate there is no output
    measured = np.interp(grid, frequencies, gains, right=0.0)
    return [round(float(gain), 7) for gain in measured]
