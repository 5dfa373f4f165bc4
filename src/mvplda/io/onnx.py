"""A fitted scorer as an ONNX graph: preprocessing, likelihood ratio and calibration, where there is no Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .._optional import need
from .._typing import Array, PathLike
from ..bundle import Bundle
from ..calibration import LinearCalibrator, QualityCalibrator
from ..exceptions import ParameterError
from ..labels import parts_of
from ..models.baselines import CosineScorer
from ..models.multiview import MultiviewPLDA
from ..persistence import write_atomically
from ..preprocessing import Centring, LengthNormalisation, RectifiedRoot
from ..scoring.evidence import LatentSpace, pair_term
from ..scoring.question import Hypothesis, Question, make_question

__all__ = ["write_onnx"]

OPSET = 18


def write_onnx(
    path: PathLike, scorer: Any, *, enrolled: int = 1, dtype: str = "float64", **asked: Any
) -> None:
    """Write what a fitted scorer does to raw vectors, for profiles of a fixed number of vectors.

    The graph has the inputs ``enrol`` (profiles, `enrolled`, D) and ``test`` (tests, D), float32, and the output
    ``llr`` (profiles, tests): that of `Bundle.calibrated` where there is a calibrator, else that of `llr`.

    Parameters
    ----------
    path : the file to be written, all or nothing
    scorer : a `Bundle`, or a fitted `MultiviewPLDA`, `PLDA` or `CosineScorer`
    enrolled : vectors a profile
    dtype : "float64", which agrees with NumPy, or "float32" for runtimes that know no other
    asked : parts of a `Question`, in place of those of the bundle
    """
    if dtype not in ("float32", "float64"):
        raise ParameterError(f"dtype is float32 or float64; got {dtype!r}")
    if enrolled < 1:
        raise ParameterError(f"a profile has at least 1 vector; got {enrolled}")
    bundle = scorer if isinstance(scorer, Bundle) else Bundle(None, scorer)
    if bundle.normaliser is not None:
        raise ParameterError("a graph has no cohort: leave the normaliser out of the bundle")
    if isinstance(bundle.calibrator, QualityCalibrator) or not isinstance(
        bundle.calibrator, LinearCalibrator | type(None)
    ):
        raise ParameterError(
            f"a graph knows linear calibrators; got a {type(bundle.calibrator).__name__}"
        )
    fitted = bundle.fitted_scorer
    width = (
        fitted.width_in
        if bundle.preprocessing is None
        else int(bundle.preprocessing[0].n_features_in_)
    )
    graph = _Graph(dtype)
    sides = []
    for name, shape in (("enrol", ["profiles", enrolled, width]), ("test", ["tests", width])):
        graph.inputs.append((name, shape))
        x = graph.add("Cast", [name], to=graph.kind)
        for _, step in [] if bundle.preprocessing is None else bundle.preprocessing.steps:
            x = _step(graph, x, step)
        sides.append(x)
    questions = (
        [make_question(None, asked)]
        if asked
        else [make_question(q, {}) for q in bundle.questions or [{}]]
    )
    scores = [_score(graph, sides, fitted, question, enrolled) for question in questions]
    if bundle.calibrator is not None:
        slopes = np.asarray(bundle.calibrator.slopes_, dtype=np.float64)
        if len(slopes) != len(scores):
            raise ParameterError(
                f"the calibrator takes {len(slopes)} score(s) a trial, the questions are {len(scores)}"
            )
        total = graph.constant(bundle.calibrator.intercept_)
        for slope, score in zip(slopes, scores, strict=True):
            total = graph.add("Add", [total, graph.add("Mul", [score, graph.constant(slope)])])
        scores = [total]
    if len(scores) != 1:
        raise ParameterError(
            f"{len(scores)} questions want a calibrator that fuses their scores; this bundle has none"
        )
    graph.add("Cast", scores, output="llr", to=1)
    write_atomically(
        path,
        graph.model(
            {"enrolled": str(enrolled), "scorer": type(fitted).__name__}
        ).SerializeToString(),
    )


class _Graph:
    """Nodes one after the other, each with one output."""

    def __init__(self, dtype: str) -> None:
        self.onnx, self.dtype = need("onnx"), dtype
        self.kind = int(
            self.onnx.TensorProto.DOUBLE if dtype == "float64" else self.onnx.TensorProto.FLOAT
        )
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.inputs: list[tuple[str, list[Any]]] = []

    def constant(self, values: Any, dtype: str | None = None) -> str:
        name = f"c{len(self.constants)}"
        array = np.ascontiguousarray(np.asarray(values, dtype=dtype or self.dtype))
        self.constants.append(
            self.onnx.numpy_helper.from_array(array.reshape(np.shape(values)), name)
        )
        return name

    def add(self, kind: str, inputs: Sequence[str], output: str = "", **attributes: Any) -> str:
        output = output or f"n{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(kind, list(inputs), [output], **attributes))
        return output

    def sum(self, x: str, axis: int, keep: int) -> str:
        return self.add("ReduceSum", [x, self.constant([axis], "int64")], keepdims=keep)

    def form(self, y: str, matrix: Array) -> str:
        """(n, 1) of y matrix y'."""
        return self.sum(self.add("Mul", [self.add("MatMul", [y, self.constant(matrix)]), y]), -1, 1)

    def model(self, notes: dict[str, str]) -> Any:
        from .. import __version__

        helper, real = self.onnx.helper, self.onnx.TensorProto.FLOAT
        inputs = [helper.make_tensor_value_info(name, real, shape) for name, shape in self.inputs]
        output = helper.make_tensor_value_info("llr", real, ["profiles", "tests"])
        graph = helper.make_graph(self.nodes, "mvplda", inputs, [output], self.constants)
        opsets = [helper.make_opsetid("", OPSET)]
        model = helper.make_model(
            graph, opset_imports=opsets, producer_name="mvplda", producer_version=__version__
        )
        model.ir_version = min(model.ir_version, 9)  # of the runtimes that know this opset
        helper.set_model_props(model, notes)
        self.onnx.checker.check_model(model)
        return model


def _step(graph: _Graph, x: str, step: Any) -> str:
    if isinstance(step, LengthNormalisation):
        length = np.sqrt(step.n_features_in_) if step.length == "sqrt" else 1.0
        return _scaled(graph, x, float(length))
    if isinstance(step, RectifiedRoot):
        if not step.rectified_:
            return x
        return graph.add(
            "Mul", [graph.add("Sign", [x]), graph.add("Sqrt", [graph.add("Abs", [x])])]
        )
    x = graph.add("Sub", [x, graph.constant(step.mean_)])
    return (
        x if isinstance(step, Centring) else graph.add("MatMul", [x, graph.constant(step.matrix_)])
    )


def _scaled(graph: _Graph, x: str, length: float) -> str:
    """Vectors of one length; zero ones stay zero."""
    norm = graph.add("Sqrt", [graph.sum(graph.add("Mul", [x, x]), -1, 1)])
    norm = graph.add("Max", [norm, graph.constant(np.finfo(graph.dtype).tiny)])
    return graph.add("Mul", [graph.add("Div", [x, norm]), graph.constant(length)])


def _score(
    graph: _Graph, sides: Sequence[str], scorer: Any, question: Question, enrolled: int
) -> str:
    if isinstance(scorer, CosineScorer):
        mean = graph.constant(scorer.mean_)
        centred = [graph.add("Sub", [side, mean]) for side in sides]
        unit = [_scaled(graph, x, 1.0) for x in (graph.sum(centred[0], 1, 0), centred[1])]
        return graph.add("MatMul", [unit[0], graph.add("Transpose", [unit[1]], perm=[1, 0])])
    if not isinstance(scorer, MultiviewPLDA):
        raise ParameterError(
            f"a graph knows MultiviewPLDA, PLDA and CosineScorer; got a {type(scorer).__name__}: export its parts"
        )
    if question.known_views:
        raise ParameterError(
            "known classes are not part of a graph: leave known= out of the question"
        )
    space, ratio = LatentSpace.of(scorer.parameters_), question.ratio(scorer.views_)
    projection, offset = graph.constant(space.projection), graph.constant(space.offset)
    y = [graph.add("Sub", [graph.add("MatMul", [side, projection]), offset]) for side in sides]
    y[0] = graph.sum(y[0], 1, 0)

    def term(hypothesis: Hypothesis, log_weight: float) -> str:
        """(profiles, tests) log p(both | hypothesis) - log p(enrol) p(test), weighted."""
        keep = _shared(scorer.views_, hypothesis)
        found = pair_term(enrolled * space.gram, space.gram, keep, keep)
        column = graph.add("Transpose", [graph.form(y[1], found.column)], perm=[1, 0])
        value = graph.add("Add", [graph.form(y[0], found.row), column])
        if len(keep):
            left = graph.add("MatMul", [y[0], graph.constant(found.left)])
            right = graph.add("MatMul", [y[1], graph.constant(found.right)])
            both = graph.add("MatMul", [left, graph.add("Transpose", [right], perm=[1, 0])])
            value = graph.add("Add", [value, both])
        return graph.add("Add", [value, graph.constant(found.constant + log_weight)])

    def log_sum(weights: dict[Hypothesis, float]) -> str:
        terms = [
            graph.add("Unsqueeze", [term(*item), graph.constant([0], "int64")])
            for item in weights.items()
        ]
        together = graph.add("Concat", terms, axis=0)
        return graph.add("ReduceLogSumExp", [together, graph.constant([0], "int64")], keepdims=0)

    return graph.add("Sub", [log_sum(ratio.numerator), log_sum(ratio.denominator)])


def _shared(views: dict[str, int], hypothesis: Hypothesis) -> Any:
    """Latents that two sides share: those of views all of whose parts are the same."""
    numbers: list[int] = []
    start = 0
    for view, rank in views.items():
        if set(parts_of(view)) <= set(hypothesis):
            numbers += range(start, start + rank)
        start += rank
    return np.asarray(numbers, dtype=np.int64)
