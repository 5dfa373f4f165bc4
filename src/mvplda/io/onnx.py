"""Export of a fitted scorer as an ONNX graph of preprocessing, likelihood ratio and calibration.

The graph is recorded: the code that scores arrays (the scorer's `project` and its pair terms) runs once with `Traced`
arrays. These have no values, and record each operation as a node of the graph. Every scorer that uses only the
operations of `Traced` can be exported.
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .._optional import need
from .._typing import PathLike
from ..atomic_files import write_atomically
from ..bundle import Bundle
from ..exceptions import ParameterError
from ..models.base import BaseScorer
from ..models.committee import scorer_of
from ..preprocessing import Centring, LengthNormalisation, RectifiedRoot, Step
from ..scoring.assignments import CellTable, ViewLabels, possible_assignments
from ..scoring.pair_terms import multiply
from ..scoring.question import Hypothesis, Question, possible_hypotheses

__all__ = ["write_onnx"]

OPSET = 18
"""Version of ONNX's set of operators."""
Proto = Any
"""Object of the package onnx, such as a node; the package is optional, so that its types cannot be imported here."""


def write_onnx(
    path: PathLike,
    scorer: Bundle | BaseScorer,
    *,
    enrolled: int = 1,
    **options: Any,
) -> None:
    """Write an ONNX graph that scores raw vectors, for profiles with a fixed number of vectors.

    The graph has two inputs of raw vectors with D dimensions, float32: ``enrol`` (profiles, `enrolled`, D) and ``test``
    (tests, D). Its output ``llr`` (profiles, tests) is the LLR of `Bundle.answer`, calibrated if the bundle has a
    calibration for the question.

    Parameters
    ----------
    path : file, written atomically
    scorer : a `Bundle`, or any fitted scorer
    enrolled : number of vectors per profile
    options : keyword arguments of `Question`; without them, the question is "same in every view?"
    """
    if enrolled < 1:
        raise ParameterError(
            f"the number of enrolled vectors per profile must be at least 1; got {enrolled}"
        )
    question = Question(**options)
    if question.known_views or question.countermeasure is not None:
        raise ParameterError(
            "an ONNX graph supports neither known classes nor countermeasures: leave known= and countermeasure= out of "
            "the question"
        )
    bundle = scorer
    if not isinstance(bundle, Bundle):
        bundle = Bundle(None, bundle)
    probe = bundle.enrol(np.ones((1, bundle.width_in)))
    if bundle.near_matches(probe, probe, None, bundle.views) is not None:
        raise ParameterError(
            "this model also compares phrases in time (near matches), which an ONNX graph cannot do: score with mvplda "
            "or its service instead"
        )
    graph = _Graph()
    width = bundle.width_in
    profiles = graph.input("enrol", ["profiles", enrolled, width]).op(
        "Reshape", np.array([-1, width])
    )
    evidence = _evidence(profiles, bundle)
    summed = evidence.op("Reshape", np.array([-1, enrolled, evidence.width])).sum(1)
    tests = _evidence(graph.input("test", ["tests", width]), bundle)
    llr = _ratio(summed, tests, enrolled, bundle, question)
    llr.op("Cast", to=1, output="llr")
    notes = {"enrolled": str(enrolled), "scorer": type(bundle.fitted_scorer).__name__}
    write_atomically(path, graph.model(notes).SerializeToString())


class _Graph:
    """ONNX graph under construction: nodes with one output each, which compute in float64."""

    def __init__(self) -> None:
        self.onnx = need("onnx")
        self.nodes: list[Proto] = []
        self.constants: list[Proto] = []
        self.inputs: list[Proto] = []

    def input(self, name: str, shape: list[str | int]) -> Traced:
        """Add a float32 input to the graph, and return it converted to float64.

        shape : length of each axis; a name stands for an axis of any length
        """
        real = self.onnx.TensorProto.FLOAT
        self.inputs.append(self.onnx.helper.make_tensor_value_info(name, real, shape))
        return Traced(self, name, int(shape[-1])).op("Cast", to=self.onnx.TensorProto.DOUBLE)

    def constant(self, values: ArrayLike) -> str:
        """Add a constant, and return its name in the graph."""
        array = np.asarray(values)
        if array.dtype.kind == "f" or array.ndim == 0:
            array = array.astype(np.float64)
        name = f"c{len(self.constants)}"
        self.constants.append(self.onnx.numpy_helper.from_array(np.array(array, order="C"), name))
        return name

    def model(self, notes: dict[str, str]) -> Proto:
        """Return the ONNX model of the graph, checked by onnx, with `notes` as its metadata."""
        from .. import __version__

        helper = self.onnx.helper
        real = self.onnx.TensorProto.FLOAT
        output = helper.make_tensor_value_info("llr", real, ["profiles", "tests"])
        graph = helper.make_graph(self.nodes, "mvplda", self.inputs, [output], self.constants)
        opsets = [helper.make_opsetid("", OPSET)]
        model = helper.make_model(
            graph, opset_imports=opsets, producer_name="mvplda", producer_version=__version__
        )
        model.ir_version = min(model.ir_version, 9)  # supported by all runtimes with this opset
        helper.set_model_props(model, notes)
        self.onnx.checker.check_model(model)
        return model


class Traced:
    """Array without values: every operation on it adds a node to a graph, and returns the result as another such array.

    Supports the operations of NumPy that scorers use.

    graph : graph that gets the nodes
    name : name of the array in the graph
    width : length of the last axis; 0 if it is unknown
    """

    __array_ufunc__ = None  # NumPy arrays on the left leave operators to this class

    def __init__(self, graph: _Graph, name: str, width: int) -> None:
        self.graph = graph
        self.name = name
        self.width = width

    def op(
        self, kind: str, *operands: Traced | ArrayLike, width: int = 0, **options: Any
    ) -> Traced:
        """Add a node for an operation on this array to the graph, and return the output of the node.

        kind : name of the ONNX operator
        operands : inputs after this array; arrays with values become constants
        width : length of the last axis of the output; 0: the same as that of this array
        options : attributes of the operator, and `output`, the name of the output
        """
        names = []
        for operand in operands:
            if not isinstance(operand, Traced):
                names.append(self.graph.constant(operand))
            else:
                names.append(operand.name)
        output = options.pop("output", f"n{len(self.graph.nodes)}")
        node = self.graph.onnx.helper.make_node(kind, [self.name, *names], [output], **options)
        self.graph.nodes.append(node)
        return Traced(self.graph, output, width or self.width)

    @property
    def shape(self) -> tuple[int, int]:
        return -1, self.width

    @property
    def T(self) -> Traced:
        return self.op("Transpose", perm=[1, 0])

    def __add__(self, other: Traced | ArrayLike) -> Traced:
        return self.op("Add", other)

    __radd__ = __add__

    def __mul__(self, other: Traced | ArrayLike) -> Traced:
        return self.op("Mul", other)

    __rmul__ = __mul__

    def __sub__(self, other: Traced | ArrayLike) -> Traced:
        return self.op("Sub", other)

    def __rsub__(self, other: ArrayLike) -> Traced:
        return self * -1.0 + other

    def __truediv__(self, other: Traced | ArrayLike) -> Traced:
        return self.op("Div", other)

    def __pow__(self, other: float) -> Traced:
        return self.op("Pow", other)

    def __matmul__(self, other: Traced | ArrayLike) -> Traced:
        width = other.width if isinstance(other, Traced) else np.shape(other)[-1]
        return self.op("MatMul", other, width=width)

    def sum(self, axis: int) -> Traced:
        return self.op("ReduceSum", np.array([axis]), keepdims=0)

    def clip(self, min: float) -> Traced:
        return self.op("Max", np.maximum(min, np.finfo(np.float64).tiny))

    def __getitem__(self, key: tuple[Any, ...]) -> Traced:
        result = self
        for axis, index in enumerate(key):
            if index is None:
                result = result.op("Unsqueeze", np.array([axis]))
            elif isinstance(index, slice) and index != slice(None):
                limits = (np.array([index.start]), np.array([index.stop]), np.array([axis]))
                result = result.op("Slice", *limits, width=index.stop - index.start)
            elif not isinstance(index, slice):
                rows = np.atleast_1d(np.asarray(index, dtype=np.int64))
                result = result.op("Gather", rows, axis=axis)
                if np.ndim(index) == 0:
                    result = result.op("Squeeze", np.array([axis]))
        return result

    def __array_function__(
        self, function: Callable[..., Any], types: Any, args: Any, options: Any
    ) -> Traced:
        if function is np.concatenate:
            first, *rest = args[0]
            width = sum(block.width for block in args[0])
            result: Traced = first.op("Concat", *rest, axis=1, width=width)
            return result
        if function is np.einsum and args[0] == "ij,ij->i":
            return (args[1] * args[2]).sum(1)
        raise ParameterError(
            f"the scorer cannot be exported to ONNX: it uses the function {function.__name__}, which is not "
            "supported; score with mvplda instead"
        )


def _evidence(x: Any, scorer: Bundle | BaseScorer) -> Any:
    """Return the evidence of raw vectors x (n, D), (n, r): the projections that scorers compare.

    A profile is the sum of the evidence of its vectors. For a committee, the evidence of its experts is concatenated.
    """
    if isinstance(scorer, Bundle):
        for _, step in scorer._steps():
            x = _preprocess(x, step)
    fitted = scorer_of(scorer)
    experts = fitted.components()
    if not experts:
        return fitted.project(x)
    return np.concatenate(
        [_evidence(x[:, slice(*columns)], expert) for expert, columns in experts], 1
    )


def _preprocess(x: Traced, step: Step) -> Traced:
    """Return the vectors x (n, D) after a preprocessing step."""
    if isinstance(step, LengthNormalisation):
        length = 1.0
        if step.length == "sqrt":
            length = np.sqrt(step.n_features_in_)
        norm = ((x * x).sum(1) ** 0.5)[:, None]
        return x / norm.clip(0.0) * float(length)
    if isinstance(step, RectifiedRoot):
        if not step.rectified_:
            return x
        return x.op("Sign") * x.op("Abs") ** 0.5
    centred = x - step.mean_
    if isinstance(step, Centring):
        return centred
    return centred @ step.matrix_


def _ratio(enrol: Any, test: Any, enrolled: int, bundle: Bundle, question: Question) -> Traced:
    """Return the LLRs (profiles, tests), calibrated if the bundle has a calibration for the question.

    enrol : evidence of the profiles, summed over `enrolled` vectors each, (profiles, r) with r numbers per vector
    test : evidence of the tests, (tests, r)
    """
    pair_terms = bundle.fitted_scorer.pair_terms()
    base = pair_terms.base
    enrol_table = CellTable.single_cell(base, float(enrolled))
    test_table = CellTable.single_cell(base, 1.0)
    of_enrol = pair_terms.prepare(enrol_table, enrol[:, None])
    of_test = pair_terms.prepare(test_table, test[:, None])
    ratio = question.ratio(bundle.views)
    calibrator = bundle.calibration(question)
    nothing = (enrol.sum(1) * 0.0)[:, None] + (test.sum(1) * 0.0)[None, :]
    logs: dict[Hypothesis, Traced] = {}
    hypotheses = ratio.hypotheses
    if calibrator is not None:
        hypotheses = tuple(possible_hypotheses(bundle.views, {}))
    for h in hypotheses:
        # with one cell per side a hypothesis leaves one assignment
        (assignment,) = possible_assignments(
            h, enrol_table, test_table, dict.fromkeys(base, ViewLabels())
        )
        logs[h] = nothing
        for term in pair_terms.assignment_terms(
            of_enrol, of_test, test_table.without_training_classes(), assignment.matches
        ):
            left = multiply(term.row.values, term.left)
            cross = left @ multiply(term.column.values, term.right).T
            row = term.row.evaluate({})[:, None]
            logs[h] = logs[h] + cross * term.weight + row + term.column.evaluate({})[None, :]
    if calibrator is not None:
        logs = calibrator.graph(logs, _log_sum)
    above = _log_sum([logs[h] + weight for h, weight in ratio.numerator.items()])
    return above - _log_sum([logs[h] + weight for h, weight in ratio.denominator.items()])


def _log_sum(values: Sequence[Traced]) -> Traced:
    """Return log(sum_k exp(values[k])) of several arrays of one shape, element by element."""
    first, *rest = [value[None,] for value in values]
    stacked = first.op("Concat", *rest, axis=0)
    return stacked.op("ReduceLogSumExp", np.array([0]), keepdims=0)
