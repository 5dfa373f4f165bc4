"""A fitted scorer as an ONNX graph: preprocessing, likelihood ratio and calibration, where there is no Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .._optional import need
from .._typing import Array, PathLike
from ..bundle import Bundle
from ..exceptions import ParameterError
from ..models.baselines import CosineScorer, unit_length
from ..models.committee import scorer_of
from ..persistence import write_atomically
from ..preprocessing import Centring, LengthNormalisation, RectifiedRoot
from ..scoring.forms import JointForms, LatentForms, ScoreForms
from ..scoring.question import Question, make_question
from ..scoring.worlds import Matches, Naming, Reading, Table, worlds

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
    scorer : a `Bundle`, or a fitted `MultiviewPLDA`, `PLDA`, `CosineScorer`, `CascadeScorer` or `Committee`
    enrolled : vectors a profile
    dtype : "float64", which agrees with NumPy, or "float32" for runtimes that know no other
    asked : parts of a `Question`, in place of those of the bundle
    """
    if dtype not in ("float32", "float64"):
        raise ParameterError(f"dtype is float32 or float64; got {dtype!r}")
    if enrolled < 1:
        raise ParameterError(f"a profile has at least 1 vector; got {enrolled}")
    bundle = scorer if isinstance(scorer, Bundle) else Bundle(None, scorer)
    fitted = bundle.fitted_scorer
    width = bundle.width_in
    graph = _Graph(dtype)
    sides = []
    for name, shape in (("enrol", ["profiles", enrolled, width]), ("test", ["tests", width])):
        graph.inputs.append((name, shape))
        x = graph.add("Cast", [name], to=graph.kind)
        for _, step in [] if bundle.preprocessing is None else bundle.preprocessing.steps:
            x = _step(graph, x, step)
        sides.append(x)
    scores = [_score(graph, sides, fitted, make_question(None, asked), enrolled)]
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

    def columns(self, x: str, start: int, stop: int) -> str:
        """Some columns of the last axis."""
        limits = [self.constant([limit], "int64") for limit in (start, stop, -1)]
        return self.add("Slice", [x, *limits])

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
    """(profiles, tests) log-likelihood ratios: evidence, the forms of all worlds, two sums over them."""
    if question.known_views or question.recognised or question.shared:
        raise ParameterError(
            "known classes are not part of a graph: leave known=, recognised= and shared= out of the question"
        )
    forms = scorer.forms()
    y = [_evidence(graph, side, scorer) for side in sides]
    y[0] = graph.sum(y[0], 1, 0)
    base = forms.base
    one_class = ((0,),) * len(base)
    unnamed = ((-1,),) * len(base)
    enrol = Table(base, (float(enrolled),), one_class, unnamed)
    test = Table(base, (1.0,), one_class, unnamed)
    namings = dict.fromkeys(base, Naming())
    ratio = question.ratio(base)
    sums = []
    for weighted in (ratio.numerator, ratio.denominator):
        terms = []
        for h, log_weight in weighted.items():
            for world in worlds(h, enrol, test, namings):
                term = _form(graph, forms, y, (enrol, test), enrol.unread(), world.matches)
                weight = graph.constant(log_weight + world.log_weight)
                if term is None:
                    term = _zeros(graph, y)
                term = graph.add("Add", [term, weight])
                terms.append(graph.add("Unsqueeze", [term, graph.constant([0], "int64")]))
        together = graph.add("Concat", terms, axis=0)
        axis = graph.constant([0], "int64")
        sums.append(graph.add("ReduceLogSumExp", [together, axis], keepdims=0))
    return graph.add("Sub", sums)


def _evidence(graph: _Graph, x: str, scorer: Any) -> str:
    """What every vector adds to the sum that a profile is; experts' side by side."""
    forms = scorer.forms()
    if isinstance(forms, LatentForms):
        space = forms.space
        product = graph.add("MatMul", [x, graph.constant(space.projection)])
        return graph.add("Sub", [product, graph.constant(space.offset)])
    if isinstance(forms, ScoreForms):
        if not isinstance(scorer, CosineScorer):
            raise ParameterError(f"there is no graph for the scores of a {type(scorer).__name__}")
        return graph.add("Sub", [x, graph.constant(scorer.mean_)])
    made = []
    for expert, columns in scorer.parts():
        seen = graph.columns(x, *columns)
        for step in _steps_of(expert):
            seen = _step(graph, seen, step)
        made.append(_evidence(graph, seen, scorer_of(expert)))
    return graph.add("Concat", made, axis=-1)


def _steps_of(expert: Any) -> list[Any]:
    chain = getattr(expert, "preprocessing", None)
    return [] if chain is None else [step for _, step in chain.steps]


def _form(
    graph: _Graph,
    forms: Any,
    y: Sequence[str],
    tables: tuple[Table, Table],
    reading: Reading,
    matches: Matches,
) -> str | None:
    """(profiles, tests) the pair form of one world; None where it is 0."""
    if isinstance(forms, JointForms):
        total: str | None = None
        for k, factor, read, world in forms.said(reading, matches):
            part = forms.parts[k]
            own = [graph.columns(side, part.columns.start, part.columns.stop) for side in y]
            parts = forms.own_table(part, tables[0]), forms.own_table(part, tables[1])
            form = _form(graph, part.forms, own, parts, read, world)
            if form is not None:
                form = graph.add("Mul", [form, graph.constant(factor)])
                total = form if total is None else graph.add("Add", [total, form])
        return total
    if isinstance(forms, ScoreForms):
        if not all(match[0] >= 0 for classes in matches for match in classes):
            return None
        if forms.encode is not unit_length:
            raise ParameterError(f"a graph cannot be made of {forms.name}")
        unit = [_scaled(graph, side, 1.0) for side in y]
        cosine = graph.add("MatMul", [unit[0], graph.add("Transpose", [unit[1]], perm=[1, 0])])
        slope, intercept = forms.line
        scaled = graph.add("Mul", [cosine, graph.constant(slope)])
        return graph.add("Add", [scaled, graph.constant(intercept)])
    # of a model of latents the matrices are made from tables alone
    width = forms.space.projection.shape[1]
    sides = [forms.side(table, np.zeros((1, 1, width))) for table in tables]
    made = forms.term(*sides, reading, matches)
    if made is None:
        return None
    _, term, in_vectors = made
    if in_vectors:
        unfold = forms.space.unfold
        y = [
            graph.add("MatMul", [side, graph.constant(unfold / table.weights[0])])
            for side, table in zip(y, tables, strict=True)
        ]
    column = graph.add("Transpose", [graph.form(y[1], term.column)], perm=[1, 0])
    value = graph.add("Add", [graph.form(y[0], term.row), column])
    left = graph.add("MatMul", [y[0], graph.constant(term.left)])
    right = y[1]
    if term.right is not None:
        right = graph.add("MatMul", [right, graph.constant(term.right)])
    cross = graph.add("MatMul", [left, graph.add("Transpose", [right], perm=[1, 0])])
    value = graph.add("Add", [value, cross])
    return graph.add("Add", [value, graph.constant(term.constant)])


def _zeros(graph: _Graph, y: Sequence[str]) -> str:
    """(profiles, tests) of 0: what shares nothing."""
    nothing = graph.constant(0.0)
    sides = [graph.add("Mul", [graph.sum(side, -1, 1), nothing]) for side in y]
    return graph.add("Add", [sides[0], graph.add("Transpose", [sides[1]], perm=[1, 0])])
