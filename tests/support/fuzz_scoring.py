"""Random scoring calls put to the package in many forms, and compared with dense densities (`fuzz_cases`).

``python tests/support/fuzz_scoring.py 12 345`` runs single cases.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from fuzz_cases import (
    DOUBLE,
    Case,
    Question,
    Side,
    Trial,
    draw,
    draw_priors,
    pick,
    single,
    subset,
)

from mvplda import MultiviewPLDA
from mvplda.exceptions import DataError, LabelError, ParameterError, UnknownClassWarning

# -- putting a case to the package -------------------------------------------------------------------------------


class Discrepancy(AssertionError):
    """The package and the reference disagree."""


def as_labels(rng: np.random.Generator, column: Sequence[Any]) -> Any:
    """One column of labels in a form that users have."""
    numbers = all(isinstance(x, int) for x in column if x is not None)
    gaps = any(x is None for x in column)
    forms = ["list", "object", "series"]
    if numbers:
        forms.append("float" if gaps else "array")
    elif not gaps:
        forms.append("array")
    form = pick(rng, forms)
    if form == "series":
        return pd.Series(list(column))
    if form == "object":
        return np.array(column, dtype=object)
    if form == "float":
        return np.array([np.nan if x is None else x for x in column], dtype=float)
    return np.array(column) if form == "array" else list(column)


@dataclass
class Forms:
    """How a case is put to the package."""

    rng: np.random.Generator
    torch: bool
    vectors: str

    @classmethod
    def draw(cls, rng: np.random.Generator) -> Forms:
        return cls(rng, rng.random() < 0.25, pick(rng, ["float64", "float32", "frame", "fortran"]))

    def matrix(self, X: np.ndarray) -> Any:
        if self.torch:
            return torch.tensor(X, dtype=pick(self.rng, [torch.float32, torch.float64]))
        if self.vectors == "frame":
            return pd.DataFrame(X, columns=[f"x{k}" for k in range(X.shape[1])])
        return np.asfortranarray(X) if self.vectors == "fortran" else X.astype(self.vectors)

    def side(self, model: MultiviewPLDA, side: Side) -> Any:
        X = self.matrix(side.X)
        if side.plain:
            return X
        ids = side.ids
        if ids is not None:
            ids = pick(self.rng, [list, np.array, pd.Series])(list(ids))
        labels = {v: as_labels(self.rng, c) for v, c in side.labels.items()}
        return model.enrol(X, ids, labels or None, method=side.method)


def choose(rng: np.random.Generator, profiles: Any, names: Sequence[Any]) -> tuple[Any, list[Any]]:
    """Some of the profiles, by one of the ways to choose, with their names."""
    names = list(names)
    way = pick(rng, ["all", "all", "take", "select", "slice", "int", "twice"])
    if way in ("take", "twice"):
        numbers = rng.integers(0, len(names), rng.integers(1, len(names) + 2))
        profiles, names = profiles.take(numbers), [names[k] for k in numbers]
        if way == "twice":
            profiles, names = profiles[::-1], names[::-1]
    elif way == "select":
        chosen = [pick(rng, names) for _ in range(rng.integers(1, len(names) + 2))]
        profiles, names = profiles.select(chosen), chosen
    elif way == "slice":
        start = int(rng.integers(len(names)))
        cut = pick(
            rng,
            [
                slice(start, None),
                slice(None, start + 1),
                slice(None, None, -1),
                slice(None, None, 2),
            ],
        )
        profiles, names = profiles[cut], names[cut]
    elif way == "int":
        k = int(rng.integers(-len(names), len(names)))
        profiles, names = profiles[k], [names[k]]
    return profiles, list(names)


def reloaded(model: MultiviewPLDA) -> MultiviewPLDA:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        model.save(path)
        return MultiviewPLDA.load(path)


def known_argument(rng: np.random.Generator, case: Case, names: Sequence[Any]) -> Any:
    """`known` for these profiles, in one of its forms."""
    if case.known is None:
        return None
    if isinstance(case.known, list):
        return case.known[0] if len(case.known) == 1 and rng.random() < 0.5 else list(case.known)
    form = pick(rng, [list, np.array, pd.Series])
    return {view: form([claims[i] for i in names]) for view, claims in case.known.items()}


def equal(what: str, found: Any, expected: np.ndarray, tolerance: np.ndarray | float) -> None:
    found = found.numpy() if isinstance(found, torch.Tensor) else np.asarray(found)
    if found.shape != expected.shape:
        raise Discrepancy(f"{what}: shape {found.shape}, not {expected.shape}")
    error = np.abs(found.astype(np.float64) - expected)
    if not (error <= tolerance).all():
        raise Discrepancy(
            f"{what}:\nfound\n{found}\nexpected\n{expected}\nerror\n{error}\ntolerance\n{tolerance}"
        )


@dataclass
class Run:
    """One case with its two sides enrolled, and the reference for the profiles that were chosen."""

    case: Case
    forms: Forms
    model: MultiviewPLDA
    enrol: Any
    test: Any
    enrol_names: list[Any]
    test_names: list[Any]

    def __post_init__(self) -> None:
        self._trials: dict[Any, Trial] = {}

    @property
    def rng(self) -> np.random.Generator:
        return self.forms.rng

    def trials(self, question: Question) -> list[list[Trial]]:
        by_name = tuple(sorted(question.asked_by_name))
        for e, t in product(self.enrol_names, self.test_names):
            if (e, t, by_name) not in self._trials:
                self._trials[e, t, by_name] = self.case.trial(e, t, question)
        return [[self._trials[e, t, by_name] for t in self.test_names] for e in self.enrol_names]

    @cached_property
    def size(self) -> np.ndarray:
        return np.array([[trial.size for trial in row] for row in self.trials(self.case.question)])

    def tolerance(self, dtype: Any, expected: np.ndarray) -> np.ndarray:
        """Rounding of the terms that a score is made of. They cancel, so it follows their size, not the score's."""
        if np.dtype(dtype) == np.float64:
            return 1e-9 * (1 + np.abs(expected)) + 1e-12 * self.size
        return 3e-7 * (1 + np.abs(expected) + np.minimum(self.size, DOUBLE)) + 1e-12 * self.size

    @cached_property
    def llr(self) -> np.ndarray:
        return np.array(
            [[self.case.question.llr(t) for t in row] for row in self.trials(self.case.question)]
        )

    @property
    def asked(self) -> dict[str, Any]:
        q = self.case.question
        asked = {"same": q.same, "given": q.given, "priors": q.priors, "known": self.known}
        return {name: value for name, value in asked.items() if value is not None}

    @property
    def known(self) -> Any:
        return known_argument(self.rng, self.case, self.enrol_names)

    @property
    def unseen(self) -> dict[str, set[Any]]:
        """Names of either side that training never saw, for every known view that has some."""
        samples = [self.case.enrolled(i) for i in self.enrol_names] + [
            self.case.test.sample(i) for i in self.test_names
        ]
        found = {
            v: {n for s in samples for n in s.names(v) if not self.case.seen(v, n)}
            for v in self.case.known or ()
        }
        return {view: names for view, names in found.items() if names}

    def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """The result; a warning of unseen names where there are some, and no other."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            result = function(*args, **kwargs)
        said = [str(w.message) for w in caught if issubclass(w.category, UnknownClassWarning)]
        others = [str(w.message) for w in caught if not issubclass(w.category, UnknownClassWarning)]
        others = [message for message in others if "feature names" not in message]
        if others:
            raise Discrepancy(f"warnings: {others}")
        unseen = self.unseen if "known" in kwargs else {}
        if len(said) != len(unseen) or not all(
            any(f"{len(names)} of " in message and repr(view) in message for message in said)
            for view, names in unseen.items()
        ):
            raise Discrepancy(f"warnings {said} of unseen names {unseen}")
        return result


def silently(function: Callable[..., Any], *args: Any) -> Any:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*feature names")
        return function(*args)


def start(case: Case, forms: Forms | None = None, *, choosing: bool = True) -> Run:
    rng = np.random.default_rng([case.seed, 1])
    forms = forms or Forms.draw(rng)
    model = reloaded(case.model) if rng.random() < 0.1 else case.model
    enrol, test = (silently(forms.side, model, side) for side in (case.enrol, case.test))
    names = [case.enrol.names, case.test.names]
    sides = [enrol, test]
    for k, side in enumerate((case.enrol, case.test)):
        if side.plain:
            continue
        if [x.item() if hasattr(x, "item") else x for x in sides[k].ids] != names[k]:
            raise Discrepancy(f"ids {sides[k].ids}, not {names[k]}")
        if choosing:
            sides[k], names[k] = choose(rng, sides[k], names[k])
    return Run(case, forms, model, sides[0], sides[1], names[0], names[1])


def check(case: Case) -> None:
    """Everything that can be asked of a case. Raises `Discrepancy` with all that is needed to see it again."""
    try:
        run = start(case)
        check_llr(run)
        for also in (
            check_trials,
            check_identify,
            check_hypotheses,
            check_rows,
            check_exchange,
            check_newcomer,
        ):
            if run.rng.random() < 0.6:
                also(run)
        check_errors(case, run)
    except DataError as error:
        if not case.huge or "rows" not in str(error):
            raise Discrepancy(f"{case}\n{type(error).__name__}: {error}") from error
    except Exception as error:
        raise Discrepancy(f"{case}\n{type(error).__name__}: {error}") from error


def check_llr(run: Run) -> None:
    llr = run.model.llr
    arguments: dict[str, Any] = run.asked
    dtype = np.float64
    out = None
    if run.rng.random() < 0.1 and not run.forms.torch:
        out = arguments["out"] = np.empty(run.llr.shape)
    found = silently(lambda: run.call(llr, run.enrol, run.test, dtype=dtype, **arguments))
    equal("llr, float64", found, run.llr, run.tolerance(dtype, run.llr))
    if out is not None:
        equal("out of llr", out, run.llr, run.tolerance(dtype, run.llr))
    found = silently(lambda: run.call(llr, run.enrol, run.test, **run.asked))
    if "float32" not in str(found.dtype):
        raise Discrepancy(f"llr gives {found.dtype}, not float32")
    if isinstance(found, torch.Tensor) != run.forms.torch:
        raise Discrepancy(f"llr gives {type(found)}")
    equal("llr, float32", found, run.llr, run.tolerance(np.float32, run.llr))


def check_trials(run: Run) -> None:
    P, T = run.llr.shape
    n = int(run.rng.choice([0, 1, 5, 12]))
    rows, columns = run.rng.integers(0, P, n), run.rng.integers(0, T, n)
    pairs: Any = list(zip(rows.tolist(), columns.tolist(), strict=True))
    if n and run.rng.random() < 0.5:
        pairs = np.array(pairs)
    dtype = pick(run.rng, [np.float32, np.float64])
    found = silently(
        lambda: run.call(run.model.llr_trials, run.enrol, run.test, pairs, dtype=dtype, **run.asked)
    )
    equal("llr_trials", found, run.llr[rows, columns], run.tolerance(dtype, run.llr)[rows, columns])


def check_identify(run: Run) -> None:
    if run.case.enrol.plain:
        return
    top = int(run.rng.integers(1, len(run.enrol_names) + 1))
    dtype = pick(run.rng, [np.float32, np.float64])
    found = silently(
        lambda: run.call(run.model.identify, run.enrol, run.test, top=top, dtype=dtype, **run.asked)
    )
    scores = np.asarray(found.scores)
    tolerance = run.tolerance(dtype, run.llr).max(axis=0)[:, None]
    equal("identify, scores", scores, -np.sort(-run.llr, axis=0)[:top].T, tolerance)
    if (np.diff(scores, axis=1) > 0).any():
        raise Discrepancy(f"identify is not best first: {scores}")
    for k, ids in enumerate(np.asarray(found.ids)):
        for i, score in zip(ids.tolist(), scores[k], strict=True):
            own = run.llr[[n for n, name in enumerate(run.enrol_names) if name == i], k]
            if not (np.abs(own - score) <= tolerance[k]).all():
                raise Discrepancy(f"identify gives {i!r} the score {score}; it has {own}")
        for i in set(ids.tolist()):
            if ids.tolist().count(i) > run.enrol_names.count(i):
                raise Discrepancy(f"identify names {i!r} too often: {ids}")


def check_hypotheses(run: Run) -> None:
    views = [v for v in run.case.dense.bases if v not in run.case.facts]
    if not views:
        return
    given = None
    if run.rng.random() < 0.3:
        given = {
            v: pick(run.rng, ["same", "different"])
            for v in subset(run.rng, views, 0, len(views) - 1)
        }
    question = Question(None, given)
    question = replace(question, priors=draw_priors(run.rng, [question.possible(views)]))
    trials = run.trials(question)
    if (
        sum(
            len(trial.possibilities(h))
            for row in trials
            for trial in row
            for h in question.possible(views)
        )
        > 2000
    ):
        return
    arguments = {"given": given, "priors": question.priors, "known": run.known}
    arguments = {name: value for name, value in arguments.items() if value is not None}
    dtype = pick(run.rng, [np.float32, np.float64])
    found = silently(
        lambda: run.call(run.model.hypotheses, run.enrol, run.test, dtype=dtype, **arguments)
    )
    expected = [[question.posterior(trial) for trial in row] for row in trials]
    if {*found} != {*question.possible(views)}:
        raise Discrepancy(f"hypotheses {list(found)}, not {question.possible(views)}")
    tolerance = run.tolerance(dtype, np.zeros(run.llr.shape))
    for h, values in found.items():
        equal(
            f"P({h}) with {question}",
            values,
            np.array([[p[h] for p in row] for row in expected]),
            tolerance,
        )
    total = sum(np.asarray(values, dtype=np.float64) for values in found.values())
    equal(f"sum of probabilities with {question}", total, np.ones(run.llr.shape), 1e-6)


def check_rows(run: Run) -> None:
    """Permuting profiles permutes rows; a profile alone scores as it does among others."""
    if run.case.enrol.plain:
        return
    order = run.rng.permutation(len(run.enrol_names))
    tolerance = run.tolerance(np.float64, run.llr)
    for numbers in (order, order[:1]):
        names = [run.enrol_names[k] for k in numbers]
        part = replace(run, enrol=run.enrol.take(numbers), enrol_names=names)
        found = silently(
            lambda part=part: part.call(
                run.model.llr, part.enrol, run.test, dtype=np.float64, **part.asked
            )
        )
        equal(f"llr of profiles {numbers}", found, run.llr[numbers], tolerance[numbers])


def check_exchange(run: Run) -> None:
    """The sides may change places where the question treats them alike."""
    if run.case.known or run.case.facts & set(run.case.question.asked_by_name):
        return
    found = silently(lambda: run.model.llr(run.test, run.enrol, dtype=np.float64, **run.asked))
    equal("llr with sides exchanged", found.T, run.llr, run.tolerance(np.float64, run.llr))


def check_newcomer(run: Run) -> None:
    """One more profile, with labels of its own, changes no score of the others; on either side."""
    case = run.case
    for which in ("enrol", "test"):
        side: Side = getattr(case, which)
        if side.plain or side.ids is None:
            continue
        new: Any = "newcomer" if isinstance(side.ids[0], str) else 999
        rows = 2
        labels = {
            v: (*c, *(pick(run.rng, case.vocabulary[v]) for _ in range(rows)))
            for v, c in side.labels.items()
        }
        X = np.concatenate([side.X, single(run.rng.normal(size=(rows, side.X.shape[1])) * 3)])
        changed: dict[str, Any] = {
            which: replace(side, X=X, ids=(*side.ids, *[new] * rows), labels=labels)
        }
        grown = replace(case, **changed)
        if which == "enrol" and isinstance(case.known, dict):
            grown = replace(
                grown,
                known={
                    v: {**c, new: pick(run.rng, case.vocabulary[v])} for v, c in case.known.items()
                },
            )
        other = start(grown, run.forms, choosing=False)
        asked = other.asked
        found = silently(
            lambda o=other, a=asked: o.call(o.model.llr, o.enrol, o.test, dtype=np.float64, **a)
        )
        found = np.asarray(found)
        rows_found = [other.enrol_names.index(i) for i in run.enrol_names]
        columns_found = [other.test_names.index(i) for i in run.test_names]
        found = found[np.ix_(rows_found, columns_found)]
        equal(
            f"llr beside a newcomer in {which}", found, run.llr, run.tolerance(np.float64, run.llr)
        )


# -- calls that are errors ---------------------------------------------------------------------------------------


def check_errors(case: Case, run: Run) -> None:
    """Some calls that must be refused, by the error that is meant for them."""
    wrong = list(mistakes(case, run))
    for k in run.rng.permutation(len(wrong))[:2]:
        what, error, call = wrong[k]
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                call()
        except error:
            continue
        except Exception as other:
            raise Discrepancy(
                f"{what}: {type(other).__name__} ({other}), not {error.__name__}"
            ) from other
        raise Discrepancy(f"{what}: no {error.__name__}")


def mistakes(case: Case, run: Run) -> Iterable[tuple[str, type[Exception], Callable[[], Any]]]:
    bases, question, model = list(case.dense.bases), case.question, run.model
    known = {} if case.known is None else {"known": run.known}
    by_name = set(question.asked_by_name)
    facts = [v for v in bases if v in case.facts and v not in by_name]
    open_views = [v for v in bases if v not in case.facts]

    def llr(**asked: Any) -> Callable[[], Any]:
        return lambda: model.llr(run.enrol, run.test, **{**known, **asked})

    def hypotheses(**asked: Any) -> Callable[[], Any]:
        return lambda: model.hypotheses(run.enrol, run.test, **{**known, **asked})

    yield "same names no view", LabelError, llr(same="nobody")
    yield "given names no view", LabelError, llr(given={"nobody": "same"})
    if open_views:
        first = open_views[0]
        yield "given says perhaps", ParameterError, llr(given={first: "perhaps"}, same=bases[-1])
        yield "asked and given at once", ParameterError, llr(same=first, given={first: "same"})
        yield (
            "every view is in given",
            ParameterError,
            llr(given=dict.fromkeys(open_views, "different")),
        )
        yield "a negative prior", ParameterError, llr(priors={(): -1.0, tuple(open_views): 1.0})
        yield "no weight in priors", ParameterError, llr(priors={(): 0.0})
        yield (
            "a negative prior of hypotheses",
            ParameterError,
            hypotheses(priors={(): -1.0, (first,): 2.0}),
        )
        yield (
            "no weight in priors of hypotheses",
            ParameterError,
            hypotheses(priors={(): 0.0, (first,): 0}),
        )
        yield "priors name no view", LabelError, llr(priors={("nobody",): 1.0})
    if not case.enrol.plain:
        stranger: Any = "zzz" if isinstance(run.enrol_names[0], str) else 10**6
        yield (
            "an unknown id is selected",
            LabelError,
            lambda: run.enrol.select([run.enrol_names[0], stranger]),
        )
        yield "the number of an unknown id", LabelError, lambda: run.enrol.number([stranger])
    if len(open_views) > 1:
        a, b = open_views[:2]
        yield (
            "a prior that given rules out",
            ParameterError,
            llr(given={a: "same"}, priors={(b,): 1.0}),
        )
        yield (
            "hypotheses: a prior ruled out",
            ParameterError,
            hypotheses(given={a: "same"}, priors={(b,): 1.0}),
        )
    if facts:
        yield "a fact is given", ParameterError, llr(same=question.same, given={facts[0]: "same"})
        yield (
            "hypotheses: a fact is given",
            ParameterError,
            hypotheses(given={facts[0]: "different"}),
        )
        if open_views:
            yield "priors name a fact", ParameterError, llr(priors={(facts[0],): 1.0})
            yield (
                "hypotheses: priors name a fact",
                ParameterError,
                hypotheses(priors={(facts[0],): 1.0}),
            )
        else:
            yield "nothing but facts", ParameterError, llr()
    for view in case.dense.trained:
        if view in case.enrol.labels or view in case.test.labels:
            continue
        numbers = isinstance(case.vocabulary[view][0], int)
        foreign = "word" if numbers else 3
        yield (
            "claims of another type",
            LabelError,
            partial(
                model.llr,
                run.enrol,
                run.test,
                same=bases,
                known={view: [foreign] * len(run.enrol_names)},
            ),
        )
    for view in case.facts & set(case.enrol.labels):
        names = [x for x in case.enrol.labels[view] if x is not None]
        if not names or not any(x is not None for x in case.test.labels[view]):
            continue
        other: Any = "word" if isinstance(names[0], int) else 3
        labels = {**case.test.labels, view: (other,) * len(case.test.X)}
        strange = replace(case.test, labels=labels)
        for same in (None, bases):

            def call(same: Any = same, strange: Side = strange) -> Any:
                enrol, test = (
                    Forms(run.rng, False, "float64").side(model, s) for s in (case.enrol, strange)
                )
                return model.llr(enrol, test, same=same)

            if same is not None or open_views:
                yield f"labels of two types, same={same}", LabelError, call


if __name__ == "__main__":
    for seed in map(int, sys.argv[1:]):
        case = draw(seed)
        print(case)
        check(case)
        print("agrees")
