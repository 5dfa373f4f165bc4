"""Random scoring calls, and what their answers are by dense Gaussian densities of the raw vectors.

`draw(seed)` makes a case: a model, two sides, a question. `Trial` lays out every possibility of a trial: which classes
of the two sides are one and the same. Under each of them all raw vectors are jointly Gaussian. `fuzz_scoring` puts
cases to the package.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import combinations, product
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import logsumexp

from mvplda import MultiviewPLDA
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
