"""Random scoring calls, and what their answers are by dense Gaussian densities of the raw vectors.

`draw(seed)` makes a case: a model, two sides, a question. `check(case)` puts it to the package in many forms and
compares with `Trial`, which lays out every possibility of a trial: which classes of the two sides are one and the
same. Under each of them all raw vectors are jointly Gaussian.
``python tests/fuzz_scoring.py 12 345`` runs single cases.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy.linalg import solve_triangular
from scipy.special import logsumexp

from mvplda import MultiviewPLDA
from mvplda.exceptions import DataError, LabelError, ParameterError, UnknownClassWarning
from mvplda.scoring.profiles import Enrolment

Hypothesis = tuple[str, ...]
Key = tuple[Any, ...]
"""A class of a base view: ("name", name), or something that has no name."""

MOST_POSSIBILITIES = 400
FITTED_MODELS = 24
DOUBLE = 1e5
"""Where terms are larger than this, float32 scores come out of float64 arithmetic."""
HUGE = 1e18
"""Factor of vectors whose squares float32 does not hold: these may be refused, but not be scored wrongly."""


# -- the dense reference -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Dense:
    """A model as plain arrays. trained: {view: {name: (mean, covariance)}} of the latents of training classes."""

    mean: np.ndarray
    loadings: dict[str, np.ndarray]
    noise: np.ndarray
    trained: dict[str, dict[Any, tuple[np.ndarray, np.ndarray]]]

    @classmethod
    def of(cls, model: MultiviewPLDA) -> Dense:
        noise = np.diag(model.noise_) if model.noise_.ndim == 1 else model.noise_
        trained = {
            view: {
                name: (model.class_means_[view][k], model.class_covariances_[view][k])
                for k, name in enumerate(np.asarray(names).tolist())
            }
            for view, names in model.classes_.items()
        }
        return cls(model.mean_, dict(model.loadings_), noise, trained)

    @property
    def bases(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(part for view in self.loadings for part in view.split(":")))


@dataclass(frozen=True)
class Sample:
    """One profile: its vectors, their labels (None: missing) in the views that have some, and what is claimed of it."""

    X: np.ndarray
    labels: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    claims: dict[str, Any] = field(default_factory=dict)

    def keys(self, view: str, side: str) -> list[Key]:
        if view in self.claims:
            return [("name", self.claims[view])] * len(self.X)
        if view not in self.labels:
            return [("unnamed", side)] * len(self.X)
        return [
            ("missing", side, n) if x is None else ("name", x)
            for n, x in enumerate(self.labels[view])
        ]

    def names(self, view: str) -> list[Any]:
        found = [self.claims[view]] if view in self.claims else list(self.labels.get(view, ()))
        return list(dict.fromkeys(name for name in found if name is not None))

    @property
    def named(self) -> set[str]:
        return {*self.labels, *self.claims}

    def cells(self, side: str) -> list[int]:
        """One vector of every cell."""
        seen: dict[tuple[Key, ...], int] = {}
        columns = [self.keys(view, side) for view in self.labels]
        for n in range(len(self.X)):
            seen.setdefault(tuple(column[n] for column in columns), n)
        return list(seen.values())


class Trial:
    """One profile against another: the likelihood of every hypothesis.

    known : views whose training classes stand for themselves
    asked : views that the question asks about by name
    """

    def __init__(
        self, dense: Dense, enrol: Sample, test: Sample, known: Iterable[str], asked: Iterable[str]
    ) -> None:
        self.dense, self.enrol, self.test, self.known = dense, enrol, test, set(known)
        both = enrol.named & test.named
        self.disputed = [v for v in dense.bases if v in both and v in set(asked)]
        self.facts = [v for v in dense.bases if v in both and v not in self.disputed]
        self.free = [v for v in dense.bases if v not in both]
        self.of_enrol = {v: enrol.keys(v, "enrol") for v in dense.bases}
        self.of_test = {v: test.keys(v, "test") for v in dense.bases}
        self._found: dict[Key, float] = {}

    def log_likelihood(self, hypothesis: Hypothesis) -> float:
        layouts = self.possibilities(hypothesis)
        new = [layout for layout in dict.fromkeys(layouts) if layout not in self._found]
        if new:
            self._found.update(zip(new, self.log_densities(new), strict=True))
        return float(logsumexp([self._found[layout] for layout in layouts]) - np.log(len(layouts)))

    def possibilities(self, hypothesis: Hypothesis) -> list[Key]:
        """For every possibility: in every base view the class of every vector, the test's after the enrolment's."""
        meeting = [v for v in self.free if v in hypothesis]
        pairs: list[tuple[int, int]] = [(0, 0)]
        if meeting:
            pairs = list(product(self.enrol.cells("enrol"), self.test.cells("test")))
        varying: dict[str, list[dict[Key, Key]]] = {}
        for view in self.dense.bases:
            if view in hypothesis:
                continue
            if view in self.disputed:
                varying[view] = self.mistaken(view)
            elif view in self.free and view in self.known:
                varying[view] = self.others(view)
        layouts: list[Key] = []
        for i, j in pairs:
            for choice in product(*varying.values()):
                becomes: dict[str, dict[Key, Key]] = dict(zip(varying, choice, strict=True))
                for view in meeting:
                    mine, theirs = self.of_enrol[view][i], self.of_test[view][j]
                    becomes[view] = {theirs: mine} if theirs[0] == "unnamed" else {mine: theirs}
                layouts.append(
                    tuple(
                        (
                            *(
                                becomes.get(v, {}).get(k, k) if v in meeting else k
                                for k in self.of_enrol[v]
                            ),
                            *(becomes.get(v, {}).get(k, k) for k in self.of_test[v]),
                        )
                        for v in self.dense.bases
                    )
                )
        return layouts

    def mistaken(self, view: str) -> list[dict[Key, Key]]:
        """Every way in which not all names of the test are right.

        One of them is in truth another name, which the test does not carry, or a new class; or all are new classes.
        """
        own = self.test.names(view)
        candidates = dict.fromkeys(self.enrol.names(view))
        if view in self.known:
            candidates |= dict.fromkeys(self.dense.trained[view])
        ways: list[dict[Key, Key]] = []
        for wrong in own:
            ways.append({("name", wrong): ("new", wrong)})
            ways += [{("name", wrong): ("name", other)} for other in candidates if other not in own]
        if len(own) > 1:
            ways.append({("name", name): ("new", name) for name in own})
        return ways or [{}]

    def others(self, view: str) -> list[dict[Key, Key]]:
        """Training classes that the test may be of, where it is not of the enrolment's; or of none of them."""
        mine, trained = self.enrol.names(view), self.dense.trained[view]
        if not any(name in trained for name in mine):
            return [{}]
        return [
            {},
            *({("unnamed", "test"): ("name", name)} for name in trained if name not in mine),
        ]

    def log_densities(self, layouts: Sequence[Key]) -> np.ndarray:
        """Joint log densities of all vectors of both sides."""
        dense, bases = self.dense, self.dense.bases
        X = np.concatenate([self.enrol.X, self.test.X])
        n, D, S = *X.shape, len(layouts)
        means = np.tile(dense.mean, (S, n, 1))
        covariances = np.zeros((S, n, D, n, D))
        covariances += np.einsum("ab,ij->aibj", np.eye(n), dense.noise)
        for view, loading in dense.loadings.items():
            parts = [bases.index(part) for part in view.split(":")]
            numbers: dict[Key, int] = {}
            classes = np.array(
                [
                    [
                        numbers.setdefault(tuple(layout[p][a] for p in parts), len(numbers))
                        for a in range(n)
                    ]
                    for layout in layouts
                ]
            )
            same = (classes[:, :, None] == classes[:, None, :]).astype(float)
            covariances += np.einsum("sab,ij->saibj", same, loading @ loading.T)
            if view not in self.known:
                continue
            for (key,), number in numbers.items():
                if key[0] != "name" or key[1] not in dense.trained[view]:
                    continue
                latent_mean, latent_covariance = dense.trained[view][key[1]]
                of = (classes == number).astype(float)
                means += of[:, :, None] * (loading @ latent_mean)
                change = loading @ (latent_covariance - np.eye(len(latent_mean))) @ loading.T
                covariances += np.einsum("sa,sb,ij->saibj", of, of, change)
        roots = np.linalg.cholesky(covariances.reshape(S, n * D, n * D))
        out = np.empty(S)
        for s in range(S):
            white = solve_triangular(roots[s], (X - means[s]).ravel(), lower=True)
            out[s] = (
                -0.5 * white @ white
                - np.log(np.diag(roots[s])).sum()
                - 0.5 * n * D * np.log(2 * np.pi)
            )
        return out

    @cached_property
    def size(self) -> float:
        """How large the terms are that cancel in a score, as far as the noise says."""
        X = np.concatenate([self.enrol.X, self.test.X]) - self.dense.mean
        return float(0.5 * np.einsum("ni,ij,nj->", X, np.linalg.inv(self.dense.noise), X))


def as_hypothesis(key: Any, bases: Sequence[str]) -> Hypothesis:
    names = {key} if isinstance(key, str) else set(key)
    return tuple(view for view in bases if view in names)


@dataclass(frozen=True)
class Question:
    """What a call asks: the keyword arguments of `llr`, but for `known`."""

    same: Any = None
    given: dict[str, str] | None = None
    priors: dict[Any, float] | None = None

    @property
    def asked_by_name(self) -> list[str]:
        return (
            []
            if self.same is None
            else [self.same]
            if isinstance(self.same, str)
            else list(self.same)
        )

    def possible(self, views: Sequence[str]) -> list[Hypothesis]:
        """Hypotheses over views that are no facts, which what is given leaves."""
        every = [tuple(c) for k in range(len(views) + 1) for c in combinations(views, k)]
        given = (self.given or {}).items()
        return [h for h in every if all((view in h) == (what == "same") for view, what in given)]

    def sides(self, views: Sequence[str]) -> tuple[list[Hypothesis], list[Hypothesis]]:
        asked = set(self.asked_by_name or [v for v in views if v not in (self.given or {})])
        possible = self.possible(views)
        return [h for h in possible if asked <= set(h)], [
            h for h in possible if not asked <= set(h)
        ]

    def _logs(self, hypotheses: list[Hypothesis], views: Sequence[str]) -> dict[Hypothesis, float]:
        named = {as_hypothesis(key, views): weight for key, weight in (self.priors or {}).items()}
        here = {h: named[h] for h in hypotheses if h in named} or dict.fromkeys(hypotheses, 1.0)
        total = sum(here.values())
        return {h: float(np.log(w / total)) for h, w in here.items() if w > 0}

    def llr(self, trial: Trial) -> float:
        views = [v for v in trial.dense.bases if v not in trial.facts]
        same, different = (self._sum(trial, h, views) for h in self.sides(views))
        return float(same - different)

    def _sum(self, trial: Trial, hypotheses: list[Hypothesis], views: Sequence[str]) -> float:
        return float(
            logsumexp(
                [w + trial.log_likelihood(h) for h, w in self._logs(hypotheses, views).items()]
            )
        )

    def posterior(self, trial: Trial) -> dict[Hypothesis, float]:
        views = [v for v in trial.dense.bases if v not in trial.facts]
        possible = self.possible(views)
        logs = {h: w + trial.log_likelihood(h) for h, w in self._logs(possible, views).items()}
        total = logsumexp(list(logs.values()))
        return {h: float(np.exp(logs[h] - total)) if h in logs else 0.0 for h in possible}


# -- cases -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Side:
    """What is enrolled. ids None: one profile a vector; plain: the vectors themselves stand for the side."""

    X: np.ndarray
    ids: tuple[Any, ...] | None
    labels: dict[str, tuple[Any, ...]]
    method: Enrolment = "exact"
    plain: bool = False

    @property
    def names(self) -> list[Any]:
        return list(range(len(self.X))) if self.ids is None else list(dict.fromkeys(self.ids))

    def sample(self, name: Any, claims: Mapping[str, Any] | None = None) -> Sample:
        rows = [name] if self.ids is None else [n for n, i in enumerate(self.ids) if i == name]
        if self.method == "average":
            return Sample(self.X[rows].mean(axis=0, keepdims=True), {}, dict(claims or {}))
        return Sample(
            self.X[rows],
            {v: tuple(c[n] for n in rows) for v, c in self.labels.items()},
            dict(claims or {}),
        )


@dataclass(frozen=True)
class Case:
    """known: {view: {id: claimed name}}, or views whose labels are meant, or None."""

    seed: int
    model: MultiviewPLDA
    enrol: Side
    test: Side
    question: Question
    known: dict[str, dict[Any, Any]] | list[str] | None
    vocabulary: dict[str, list[Any]]

    @cached_property
    def dense(self) -> Dense:
        return Dense.of(self.model)

    @property
    def claims(self) -> dict[str, dict[Any, Any]]:
        return self.known if isinstance(self.known, dict) else {}

    @property
    def facts(self) -> set[str]:
        """Views that are facts where nothing is asked about by name."""
        return {*self.enrol.labels, *self.claims} & {*self.test.labels}

    def enrolled(self, name: Any) -> Sample:
        return self.enrol.sample(name, {view: claims[name] for view, claims in self.claims.items()})

    def trial(self, e: Any, t: Any, question: Question) -> Trial:
        return Trial(
            self.dense,
            self.enrolled(e),
            self.test.sample(t),
            self.known or (),
            question.asked_by_name,
        )

    def seen(self, view: str, name: Any) -> bool:
        return name in self.dense.trained.get(view, {})

    def seen_names(self, ids: Iterable[Any]) -> dict[str, list[Any]]:
        samples = [self.enrolled(i) for i in ids]
        return {
            v: [n for s in samples for n in s.names(v) if self.seen(v, n)] for v in self.known or ()
        }

    @property
    def huge(self) -> bool:
        return max(np.abs(self.enrol.X).max(), np.abs(self.test.X).max()) > 1e-3 * HUGE

    def __str__(self) -> str:
        return (
            f"case {self.seed}: views {self.model.views_}, D {len(self.model.mean_)}, noise {self.model.noise}\n"
            f"  enrol ids {self.enrol.ids} labels {self.enrol.labels} {self.enrol.method}\n"
            f"  test ids {self.test.ids} labels {self.test.labels} {self.test.method} plain {self.test.plain}\n"
            f"  {self.question}, known {self.known}, trained { {v: list(c) for v, c in self.dense.trained.items()} }"
        )


def subset(
    rng: np.random.Generator, things: Sequence[Any], least: int = 0, most: int | None = None
) -> list[Any]:
    top = len(things) if most is None else min(most, len(things))
    size = int(rng.integers(min(least, top), top + 1))
    return [things[k] for k in sorted(rng.choice(len(things), size, replace=False))]


def pick(rng: np.random.Generator, things: Sequence[Any]) -> Any:
    return things[int(rng.integers(len(things)))]


def single(array: np.ndarray) -> np.ndarray:
    """Numbers that float32 holds, so that every form of a side has the same."""
    return array.astype(np.float32).astype(np.float64)


def draw_views(rng: np.random.Generator) -> list[str]:
    bases = ["speaker", "phrase", "channel"][: rng.choice([1, 2, 3], p=[0.2, 0.5, 0.3])]
    joint = [":".join(c) for k in range(2, len(bases) + 1) for c in combinations(bases, k)]
    joint = subset(rng, joint) if rng.random() < 0.6 else []
    covered = {part for view in joint for part in view.split(":")}
    alone = [b for b in bases if b not in covered or rng.random() < 0.75]
    views = [*alone, *joint]
    return [views[k] for k in rng.permutation(len(views))]


def draw_vocabulary(rng: np.random.Generator, views: Sequence[str]) -> dict[str, list[Any]]:
    bases = dict.fromkeys(part for view in views for part in view.split(":"))
    return {
        b: [10, 2, 33, 4, 5, 61] if rng.random() < 0.5 else ["no", "yes", "b", "aa", "ten", "z"]
        for b in bases
    }


def draw_noise(rng: np.random.Generator, kind: str, D: int) -> np.ndarray:
    if kind == "diagonal":
        return rng.uniform(0.2, 2.0, D)
    root = rng.normal(size=(D, D))
    return root @ root.T / D + 0.2 * np.eye(D)


def draw_parameters(rng: np.random.Generator) -> tuple[MultiviewPLDA, dict[str, list[Any]]]:
    views, D = draw_views(rng), int(rng.integers(2, 8))
    loadings = {
        v: rng.normal(size=(D, rng.integers(1, min(4, D) + 1))) * rng.uniform(0.4, 1.5)
        for v in views
    }
    noise = draw_noise(rng, pick(rng, ["diagonal", "full"]), D)
    model = MultiviewPLDA.from_parameters(rng.normal(size=D) * 2, loadings, noise)
    vocabulary = draw_vocabulary(rng, views)
    return model, vocabulary


@lru_cache(maxsize=FITTED_MODELS)
def fitted(number: int) -> tuple[MultiviewPLDA, dict[str, list[Any]]]:
    """A model that saw the first names of its vocabulary: three to four a view, and a few vectors without a name."""
    rng = np.random.default_rng([number, 99])
    views, D, n = draw_views(rng), int(rng.integers(2, 8)), 60
    vocabulary = draw_vocabulary(rng, views)
    labels: dict[str, Any] = {}
    X = rng.normal(size=(n, D)) * 0.7 + rng.normal(size=D)
    for b, names in vocabulary.items():
        of = rng.integers(0, rng.integers(3, 5), n)
        X += rng.normal(size=(4, D))[of]
        labels[b] = [names[k] for k in of]
    if rng.random() < 0.5:
        for b in labels:
            labels[b] = [None if rng.random() < 0.05 else x for x in labels[b]]
    ranks = {v: int(rng.integers(1, min(4, D) + 1)) for v in views}
    noise = pick(rng, ["diagonal", "full"])
    model = MultiviewPLDA(
        ranks, noise=noise, noise_shrinkage=0.1, max_iter=4, tol=0.0, random_state=0
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # ranks above what three classes hold, and the like
        model.fit(single(X), labels)
    return model, vocabulary


def draw_side(
    rng: np.random.Generator,
    model: MultiviewPLDA,
    vocabulary: dict[str, list[Any]],
    labelled: Sequence[str],
    which: str,
    pool: dict[Key, np.ndarray],
) -> Side:
    """Vectors of a few classes, so that the two sides often share some."""
    text = rng.random() < 0.5
    if which == "enrol":
        names = ["zoe", "ann", "bob", "max"] if text else [7, 3, 12, 5]
    else:
        names = ["t2", "t10", "t1"] if text else [20, 4, 100]
    names = names[: rng.integers(1, len(names) + 1)]
    single_vectors = rng.random() < (0.15 if which == "enrol" else 0.25)
    most = 4 if which == "enrol" else 3
    ids = [i for i in names for _ in range(1 if single_vectors else rng.integers(1, most + 1))]
    ids = [ids[k] for k in rng.permutation(len(ids))]
    gaps = rng.random() < 0.3
    labels: dict[str, tuple[Any, ...]] = {}
    for view in labelled:
        few = subset(rng, vocabulary[view], 1, 3)
        labels[view] = tuple(None if gaps and rng.random() < 0.25 else pick(rng, few) for _ in ids)
    noise = np.diag(model.noise_) if model.noise_.ndim == 1 else model.noise_
    X = np.empty((len(ids), len(model.mean_)))
    unnamed = {i: {view: int(rng.integers(3)) for view in vocabulary} for i in names}
    for n, i in enumerate(ids):
        X[n] = rng.multivariate_normal(model.mean_, noise)
        classes = {b: labels[b][n] if b in labels else unnamed[i][b] for b in vocabulary}
        for view, loading in model.loadings_.items():
            key = (view, *(classes[part] for part in view.split(":")))
            X[n] += loading @ pool.setdefault(key, np.asarray(rng.normal(size=loading.shape[1])))
    if rng.random() < 0.05:
        X = model.mean_ + pick(rng, [30.0, 1e3, 1e5, HUGE]) * (X - model.mean_)
    method: Enrolment = "average" if not labelled and rng.random() < 0.15 else "exact"
    plain = single_vectors and not labelled and method == "exact" and rng.random() < 0.7
    return Side(
        single(X),
        None if single_vectors and rng.random() < 0.7 else tuple(ids),
        labels,
        method,
        plain,
    )


def draw_priors(
    rng: np.random.Generator, groups: Sequence[Sequence[Hypothesis]]
) -> dict[Any, float] | None:
    """Weights of some hypotheses, keys in any form; every group that names some keeps a positive one."""
    form = rng.random()
    if form < 0.4:
        return None
    if form < 0.5:
        return {}
    priors: dict[Any, float] = {}
    for group in groups:
        named = subset(rng, list(group))
        weights = [0.0 if rng.random() < 0.2 else float(rng.uniform(0.1, 5)) for _ in named]
        if named and not sum(weights) > 0:
            weights[0] = 1.0
        for h, w in zip(named, weights, strict=True):
            key: Any = h
            if len(h) == 1 and rng.random() < 0.5:
                key = h[0]
            elif rng.random() < 0.3:
                key = frozenset(h)
            elif rng.random() < 0.3:
                key = tuple(reversed(h))
            priors[key] = int(w) + 1 if rng.random() < 0.2 and w > 0 else w
    return priors


def draw_question(rng: np.random.Generator, bases: Sequence[str], facts: set[str]) -> Question:
    same: Any = None
    asked = [v for v in bases if v not in facts]
    if not asked or rng.random() < 0.6:
        asked = subset(rng, list(bases), 1)
        same = (
            asked[0]
            if len(asked) == 1 and rng.random() < 0.7
            else pick(rng, [list, tuple, set])(asked)
        )
    given: dict[str, str] | None = None
    open_views = [v for v in bases if v not in facts and (same is None or v not in asked)]
    if rng.random() < 0.4:
        most = len(open_views) - 1 if same is None else len(open_views)
        given = {v: pick(rng, ["same", "different"]) for v in subset(rng, open_views, 0, most)}
    question = Question(same, given)
    views = [v for v in bases if v not in facts or v in question.asked_by_name]
    return replace(question, priors=draw_priors(rng, question.sides(views)))


def draw_known(
    rng: np.random.Generator, model: MultiviewPLDA, vocabulary: dict[str, list[Any]], enrol: Side
) -> dict[str, dict[Any, Any]] | list[str] | None:
    labelled = [v for v in model.classes_ if v in enrol.labels]
    others = [v for v in model.classes_ if v not in enrol.labels]
    if labelled and (not others or rng.random() < 0.6):
        return subset(rng, labelled, 1, 2)
    if others:
        return {
            v: {i: pick(rng, vocabulary[v]) for i in enrol.names} for v in subset(rng, others, 1, 2)
        }
    return None


def draw(seed: int) -> Case:
    rng = np.random.default_rng([seed, 20260])
    while True:
        has_training = rng.random() < 0.5
        model, vocabulary = (
            fitted(int(rng.integers(FITTED_MODELS))) if has_training else draw_parameters(rng)
        )
        bases = list(dict.fromkeys(part for view in model.loadings_ for part in view.split(":")))
        pool = {
            (view, name): model.class_means_[view][k]
            for view, names in model.classes_.items()
            for k, name in enumerate(names.tolist())
        }
        labelled = [subset(rng, bases, 1) if rng.random() < share else [] for share in (0.7, 0.55)]
        enrol = draw_side(rng, model, vocabulary, labelled[0], "enrol", pool)
        test = draw_side(rng, model, vocabulary, labelled[1], "test", pool)
        known = (
            draw_known(rng, model, vocabulary, enrol)
            if has_training and rng.random() < 0.7
            else None
        )
        case = Case(seed, model, enrol, test, Question(), known, vocabulary)
        case = replace(case, question=draw_question(rng, bases, case.facts))
        if not all(case.seen_names(enrol.names).values()):
            continue  # no name was seen in training: an error, which is drawn on its own
        counts = [
            sum(
                len(trial.possibilities(h))
                for h in case.question.possible([*trial.disputed, *trial.free])
            )
            for e in enrol.names
            for t in test.names
            for trial in [case.trial(e, t, case.question)]
        ]
        if max(counts) <= MOST_POSSIBILITIES and sum(counts) <= 4 * MOST_POSSIBILITIES:
            return case


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
            chosen, chosen_names = choose(rng, sides[k], names[k])
            if k == 1 or all(case.seen_names(chosen_names).values()):
                sides[k], names[k] = chosen, chosen_names
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
        if not all(run.case.seen_names(names).values()):
            continue
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
            "every view is given",
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
        unseen, foreign = (999, "word") if numbers else ("never", 3)
        yield (
            "no claim was seen",
            LabelError,
            partial(
                model.llr,
                run.enrol,
                run.test,
                same=bases,
                known={view: [unseen] * len(run.enrol_names)},
            ),
        )
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
