"""Discriminative fine-tuning: a fitted model moved so that trials of people whom it has not met cost less.

EM asks how well vectors are described, a trial how well it is decided. The movement is relative to a fitted model
(docs/math.md, section 9.11), so that one movement can be tried on several fits: every fold of people is scored by a fit
without them. Which parameters move, how far, and whether at all is said by people who were held out of the movement.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from .._optional import LateModule, need
from .._progress import Progress
from .._typing import Array, Device, IntArray, RandomState
from ..backend import checked_vectors, namespace, on_device, to_host
from ..calibration import LinearCalibrator, QualityCalibrator
from ..costs import log_odds
from ..exceptions import DataError, LabelError, MvpldaWarning, ParameterError
from ..inference.parameters import Parameters
from ..labels import as_array, base_columns, encode_labels, label_columns
from ..scoring.cells import Naming
from ..scoring.evidence import LatentSpace
from ..scoring.matrix import fill
from ..scoring.profiles import Profiles
from ..scoring.question import Hypothesis, Question, Ratio, possible_hypotheses
from ..scoring.terms import Comparison, ScoringState, Side
from ..statistics import SufficientStatistics
from .experts import LEAST_HELD_OUT, Trials, trials_among
from .multiview import MultiviewPLDA, generator

if TYPE_CHECKING:
    import torch
    from torch import Tensor
else:
    torch = LateModule("torch")

LEVELS = {"scales": ("gain", "shape"), "columns": ("gain", "shape", "mean", "columns"),
          "full": ("gain", "shape", "mean", "columns", "full")}  # fmt: skip
"""What moves: each level has the one before."""

BATCH_ROWS = 800
"""Vectors of one fold that the trials of a step are made of."""

MOST = (1000, 5000)
"""Tests of one fold, and trials of every kind among them."""

CHECK = 10
"""Steps between calibrations, after which held-out people are asked."""

RATE = 0.1
"""Largest step of a number of `Movement`, about."""

COLUMN, FULL = 0.3, 0.1
"""What 1 stands for in the numbers of columns, and in those of a map (times the root of the width)."""

LOWEST_SIZE = -7.0
"""Directions smaller than this, relative to the largest and in logarithms, have no shape of their own."""


@dataclass(frozen=True)
class FineTuned:
    """What `fine_tune` found.

    model : the model, moved; the one that was given where moving does not pay
    calibrator : for the answers to the question, from trials of held-out people
    level, penalty, steps : what was chosen; None, None and 0 where nothing moves
    start_calibrator : the same for the model as it was given
    cost, start_cost : of held-out people's trials in bits, calibrated: as chosen, and with no steps
    costs : {(level, penalty): (folds, checks) costs}, a check every 10 steps, the first before any
    """

    model: MultiviewPLDA
    calibrator: LinearCalibrator
    start_calibrator: LinearCalibrator
    level: str | None
    penalty: float | None
    steps: int
    cost: float
    start_cost: float
    costs: dict[tuple[str, float], Array]

    def __str__(self) -> str:
        moved = (
            f"moved by {self.level} in {self.steps} steps"
            if self.steps
            else "calibrated only: moving does not pay"
        )
        return (
            f"{moved}; held-out trials cost {self.start_cost:.4f} bits before, {self.cost:.4f} now"
        )


def fine_tune(
    model: MultiviewPLDA,
    X: ArrayLike,
    y: Any,
    *,
    preprocessing: Any = None,
    question: Question | Mapping[str, Any] | None = None,
    enrolment: int | Sequence[int] = 1,
    calibrator: LinearCalibrator | None = None,
    side: Mapping[str, Any] | None = None,
    groups: Any = None,
    refit: bool = True,
    levels: Sequence[str] = ("scales",),
    penalties: Sequence[float] = (0.001, 0.01),
    steps: int = 60,
    folds: int = 4,
    device: Device = None,
    random_state: RandomState = 0,
    verbose: int = 0,
) -> FineTuned:
    """Move a fitted model towards the least cost of trials, as far as it serves people who were held out.

    The cost is the cross-entropy of the calibrated answers to a question, where every kind of trial weighs what the
    question's priors give its hypothesis: for views speaker and phrase, TC one half, and TW, IC and IW a sixth each.
    Trials have profiles of as many vectors as `enrolment` says, and counts are scored exactly. Needs torch
    (``pip install 'mvplda[torch]'``).

    Parameters
    ----------
    model : a fitted `MultiviewPLDA` or `PLDA`
    X, y : vectors, and labels of all views of the model. Vectors without a label train, and are in no trial
    preprocessing : Pipeline or None
        What stands before the model, fitted; X are then vectors that it takes. People who are held out are held out of
        it, too. None: X are as the model takes them
    question : what will be asked: `same`, `given` and `priors`; nothing may be known. None: "the same in all views?"
    enrolment : vectors a profile; several numbers are tried alike
    calibrator : a `LinearCalibrator` or `QualityCalibrator` with the prior to be best at. None: at a prior of 0.5
    side : {name: (n,) a number a vector}, such as seconds: the calibration's slope and offset then depend on what a
        trial's two sides have, ``"name, enrolled"`` (the mean of the profile) and ``"name, test"``; see
        `QualityCalibrator`
    groups : (n,) people who are held out together; None: the classes of the first view
    refit : whether X trained the model, so that people are scored by a fit without them. False: the model was trained
        on others, and is moved to the people of X as it is
    levels : which parameters may move: "scales" the size of every view's covariance and of the noise and how even
        its directions are, "columns" also the mean and every column, "full" everything. The last two have found
        nothing that the first does not on any vectors tried, and want columns that mean the same in every fold
    penalties : of the square of a movement, tried in turn
    steps : at most; held-out people say how many, which may be none
    folds : of people
    device : where torch calculates, ``"cuda"`` say; None: on the host

    Examples
    --------
    >>> from mvplda import MultiviewPLDA, fine_tune, make_two_views
    >>> X, labels = make_two_views(32, 4, 6, 10, (4, 3), random_state=0)
    >>> model = MultiviewPLDA({"speaker": 4, "phrase": 3}).fit(X, labels)
    >>> tuned = fine_tune(model, X, labels, enrolment=3, levels=["scales"], steps=10)
    >>> tuned.cost <= tuned.start_cost
    True
    """
    need("torch")
    _check_search(levels, penalties, steps)
    tuning = _Tuning(
        model,
        X,
        y,
        preprocessing,
        question,
        enrolment,
        calibrator,
        side,
        groups,
        refit,
        folds,
        device,
        random_state,
    )
    checks = int(np.ceil(steps / CHECK))
    progress = (
        Progress("fine-tuning", len(levels) * len(penalties) * tuning.folds) if verbose else None
    )
    costs: dict[tuple[str, float], Array] = {}
    held: dict[tuple[str, float, int], list[Array]] = {}
    for level in levels:
        for penalty in penalties:
            found = np.empty((tuning.folds, checks + 1))
            for f in range(tuning.folds):
                others = [g for g in range(tuning.folds) if g != f]
                for check, (movement, calibration) in enumerate(
                    tuning.path(level, penalty, others, checks)
                ):
                    scores = tuning.scores(movement, f)
                    found[f, check] = tuning.cost(calibration, scores, f)
                    held.setdefault((level, penalty, check), []).append(scores)
                if progress is not None:
                    progress.step(
                        len(costs) * tuning.folds + f + 1,
                        f"{level}, {penalty}: {found[f].min():.4f} bits",
                    )
            costs[level, float(penalty)] = found
    start = next(iter(costs.values()))[:, 0]
    best, least = None, float(start.mean())
    for place, found in costs.items():
        check = int(found.mean(axis=0).argmin())
        gain = start - found[:, check]
        # what moves must pay by more than the luck of the folds
        if found[:, check].mean() < least and gain.mean() > gain.std(ddof=1) / np.sqrt(len(gain)):
            best, least = (*place, check), float(found[:, check].mean())
    first = (levels[0], penalties[0], 0)
    every = list(range(tuning.folds))
    plain = tuning.calibrate(held[first], every, quiet=False)
    if best is None:
        return FineTuned(model, plain, plain, None, None, 0, least, float(start.mean()), costs)
    chosen = tuning.calibrate(held[best], every)
    level, penalty, check = best
    movement = list(tuning.path(level, penalty, every, check))[-1][0]
    p = movement.apply(tuning.whole).on_host()
    moved = type(model).from_parameters(
        p.mean, dict(zip(model.views_, p.loadings, strict=True)), p.noise
    )
    moved.missing = model.missing
    moved._with_classes(tuning.statistics())
    taken = min(check * CHECK, steps)
    return FineTuned(moved, chosen, plain, level, penalty, taken, least, float(start.mean()), costs)


def _check_search(levels: Sequence[str], penalties: Sequence[float], steps: int) -> None:
    unknown = [level for level in levels if level not in LEVELS]
    if unknown or isinstance(levels, str) or not len(levels):
        raise ParameterError(f"levels are some of {list(LEVELS)}; got {levels!r}")
    if not len(penalties) or not all(np.isfinite(p) and p >= 0 for p in penalties):
        raise ParameterError(f"penalties are numbers of at least 0; got {penalties!r}")
    if isinstance(steps, bool) or not isinstance(steps, Integral) or steps < 0:
        raise ParameterError(f"steps is a whole number, at least 0; got {steps!r}")


@dataclass(frozen=True)
class Start:
    """A fit, on the device, and what the directions of its covariances are: what a movement is relative to.

    sizes : per view (r_k,), and of the noise (D,), log sizes of directions about their mean
    values, vectors : of the noise covariance; no vectors where it is diagonal
    """

    parameters: Parameters[Tensor]
    sizes: tuple[Tensor, ...]
    values: Tensor
    vectors: Tensor | None

    @classmethod
    def of(cls, p: Parameters, device: Device) -> Start:
        values, vectors = (p.noise, None) if p.noise.ndim == 1 else np.linalg.eigh(p.noise)
        squares = [*(np.square(loading).sum(axis=0) for loading in p.loadings), values]
        logs = [np.log(np.maximum(s / s.max(), np.exp(LOWEST_SIZE))) for s in squares]
        there: Any = p.on(namespace(on_device(values, device)))
        return cls(
            there,
            tuple(on_device(log - log.mean(), device) for log in logs),
            on_device(values, device),
            None if vectors is None else on_device(vectors, device),
        )


class Movement:
    """How far a model is moved from where EM left it; all numbers 0: not at all.

    gain, shape : (K + 1,) of every view and of the noise: log of its scale, and by how much the logs of the sizes of
        its directions are spread (negative: drawn towards equal ones, as a prior does)
    mean : (D,) in 0.3 deviations of the noise
    columns : (K + 1, D) log of the scale of every column, in 0.3
    full : (K + 1, D, D) a linear map besides, in 0.1 / sqrt D; of the noise, its lower triangle
    """

    def __init__(self, level: str, views: int, width: int, device: Device) -> None:
        shapes = {"gain": (views + 1,), "shape": (views + 1,), "mean": (width,), "columns": (views + 1, width),
                  "full": (views + 1, width, width)}  # fmt: skip
        self.numbers: dict[str, Tensor] = {
            name: on_device(np.zeros(shapes[name]), device) for name in LEVELS[level]
        }

    def apply(self, start: Start) -> Parameters[Tensor]:
        """The fit, moved (docs/math.md, D1 and D2)."""
        p, own = start.parameters, self.numbers
        *sizes, noise_sizes = start.sizes
        width = len(p.mean)
        mean, loadings = p.mean, []
        for k, (loading, size) in enumerate(zip(p.loadings, sizes, strict=True)):
            moved = loading * torch.exp(own["gain"][k] + 0.5 * own["shape"][k] * size)
            if "columns" in own:
                moved = torch.exp(COLUMN * own["columns"][k])[:, None] * moved
            if "full" in own:
                moved = moved + FULL / width**0.5 * own["full"][k] @ moved
            loadings.append(moved)  # (D1)
        values = start.values * torch.exp(2 * own["gain"][-1] + own["shape"][-1] * noise_sizes)
        root = torch.exp(COLUMN * own["columns"][-1]) if "columns" in own else None
        if start.vectors is None:
            noise = values if root is None else values * root**2
        else:
            noise = (start.vectors * values) @ start.vectors.T
            if root is not None:
                lower = torch.diag(root)
                if "full" in own:
                    lower = lower + torch.tril(FULL / width**0.5 * own["full"][-1], -1)
                noise = lower @ noise @ lower.T  # (D2)
            noise = (noise + noise.T) / 2
        if "mean" in own:
            mean = mean + COLUMN * own["mean"] * torch.sqrt(p.sigma.variances)
        return Parameters(mean, tuple(loadings), noise)

    def square(self) -> Tensor:
        return torch.stack([(number**2).sum() for number in self.numbers.values()]).sum()


def score_trials(p: Parameters[Tensor], ratio: Ratio, sums: Any, counts: Array, tests: Any) -> Any:
    """LLRs (profiles, tests) that can be differentiated by the parameters, which are tensors.

    sums, counts : (P, D) and (P,) of the vectors of every profile; tests : (T, D)
    """
    space = LatentSpace.of(p)
    own = replace(
        ratio, views=dict(zip(ratio.views, p.ranks, strict=True))
    )  # fewer people may have lower ranks

    def side(total: Any, n: Array) -> Side:
        y = total @ space.projection - on_device(n[:, None], total.device) * space.offset
        names = np.arange(len(n))
        return Side(Profiles(names, n.astype(np.int64), y, n, names, ""), {})

    namings = dict.fromkeys(base_columns(tuple(own.views)), Naming())
    state = ScoringState("", (), space)
    sides = side(sums, counts), side(tests, np.ones(len(tests)))
    comparison = Comparison(own, *sides, state, namings, {}, "exact", np.float64)
    return fill(comparison, sums.new_empty(comparison.shape))


class _Tuning:
    """People in folds, a fit without each fold, trials of its people, and what a movement costs them."""

    def __init__(
        self,
        model: MultiviewPLDA,
        X: ArrayLike,
        y: Any,
        preprocessing: Any,
        question: Question | Mapping[str, Any] | None,
        enrolment: int | Sequence[int],
        calibrator: LinearCalibrator | None,
        side: Mapping[str, Any] | None,
        groups: Any,
        refit: bool,
        folds: int,
        device: Device,
        random_state: RandomState,
    ) -> None:
        if not isinstance(model, MultiviewPLDA):
            raise ParameterError(
                f"fine_tune moves a MultiviewPLDA or PLDA; got {type(model).__name__}"
            )
        check_is_fitted(model, "mean_")
        if refit and not len(model.log_likelihoods_):
            raise ParameterError(
                "the parameters of this model were given, so that it cannot be fitted without the people of a fold: "
                "say refit=False where X did not train it, or give one that was fitted"
            )
        self.model, self.refit, self.device, self.preprocessing = (
            model,
            refit,
            device,
            preprocessing,
        )
        self.given = (
            np.asarray(to_host(X)) if preprocessing is not None else self._checked(to_host(X))
        )
        self.X = (
            self.given
            if preprocessing is None
            else self._checked(preprocessing.transform(self.given)).copy()
        )
        self.views, self.base = dict(model.views_), base_columns(tuple(model.views_))
        self.columns = {
            name: as_array(column) for name, column in label_columns(y, tuple(self.views)).items()
        }
        table = encode_labels(self.columns, self.base, missing=model.missing)
        if len(table) != len(self.X):
            raise LabelError(
                f"there are {len(self.X)} vectors and {len(table)} labels: give one label a vector"
            )
        asked = Question(**question) if isinstance(question, Mapping) else question or Question()
        others = [name for name in asked.parts() if name not in ("same", "given", "priors")]
        if others:
            raise ParameterError(
                f"fine_tune asks with nothing known or heard: leave {others[0]} out of the question"
            )
        self.ratio = asked.ratio(self.views)
        self.enrolment = tuple(np.atleast_1d(enrolment).tolist())
        if not self.enrolment or not all(isinstance(n, int) and n >= 1 for n in self.enrolment):
            raise ParameterError(
                f"enrolment is a whole number of at least 1, or several; got {enrolment!r}"
            )
        self.codes = np.stack([table.codes[view] for view in self.base], axis=1)
        named = np.logical_and.reduce(
            [table.codes[view] < len(table.classes[view].names) for view in self.base]
        )
        if groups is not None and np.shape(groups) != (len(self.X),):
            raise DataError(
                f"there are {len(self.X)} vectors and groups of shape {np.shape(groups)}"
            )
        self.people = (
            self.codes[:, 0]
            if groups is None
            else np.unique(groups, return_inverse=True)[1].reshape(-1)
        )
        self.prototype, self.side = _calibration(calibrator, side, len(self.X))
        self.rng = generator(random_state)
        self.rows = self._deal(folds, named)
        self.whole = Start.of(model.parameters_, device)
        self.starts = [self._fit_without(rows) for rows in self.rows]
        self.trials = [self._trials(rows, self.rng) for rows in self.rows]
        self.seed = int(self.rng.integers(2**31))
        self._missing_kinds()

    @property
    def folds(self) -> int:
        return len(self.rows)

    def _checked(self, X: ArrayLike) -> Array:
        return checked_vectors(self.model, X, reset=False).astype(np.float64, copy=False)

    def _deal(self, folds: int, named: NDArray[np.bool_]) -> list[IntArray]:
        """Rows of every fold of people."""
        met = np.unique(self.people[named])
        if isinstance(folds, bool) or not isinstance(folds, Integral) or folds < 2:
            raise ParameterError(f"folds is a whole number, at least 2; got {folds!r}")
        if len(met) < 2 * LEAST_HELD_OUT:
            raise DataError(
                f"there are {len(met)} people with labels in all views: fine-tuning holds people out, at least "
                f"{LEAST_HELD_OUT} in each of two folds"
            )
        fold_of = np.full(self.people.max() + 1, -1)
        fold_of[met] = self.rng.permutation(len(met)) % min(folds, len(met) // LEAST_HELD_OUT)
        dealt = fold_of[self.people]
        return [np.flatnonzero((dealt == f) & named) for f in range(dealt.max() + 1)]

    def _fit_without(self, rows: IntArray) -> Start:
        if not self.refit:
            return self.whole
        inside = ~np.isin(self.people, np.unique(self.people[rows]))
        labels = {name: column[inside] for name, column in self.columns.items()}
        settings: dict[str, Any] = {"verbose": 0, "callback": None}
        if self.model.prior is not None:
            settings["prior_strength"] = self.model.prior_strength_
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", MvpldaWarning)
            warnings.simplefilter("ignore", ConvergenceWarning)
            own = self.given[inside]
            if self.preprocessing is not None:
                chain = clone(self.preprocessing)
                own = chain.fit_transform(own, labels)
                self.X[rows] = self._checked(chain.transform(self.given[rows]))
            fitted = clone(self.model).set_params(**settings).fit(own, labels)
        return Start.of(fitted.parameters_, self.device)

    def _trials(self, rows: IntArray, rng: np.random.Generator) -> _Held:
        shuffled, counts = rng.permutation(rows), rng.permutation(self.enrolment).tolist()
        drawn = trials_among(shuffled, self.codes, self.base, counts, rng, MOST)
        if drawn is None:
            raise DataError(
                "no cell of classes has two vectors, so that there is no trial of the same classes"
            )
        return _Held.of(self, drawn)

    def _missing_kinds(self) -> None:
        for f, trials in enumerate(self.trials):
            if not any(h in trials.kinds for h in self.ratio.numerator):
                raise DataError(
                    f"fold {f} of the people has no trial of {next(iter(self.ratio.numerator))}"
                )
            if not any(h in trials.kinds for h in self.ratio.denominator):
                raise DataError(
                    f"fold {f} of the people has no trial but of {next(iter(self.ratio.numerator))}"
                )

    def statistics(self) -> SufficientStatistics:
        moment = self.model.parameters_.sigma.second_moment
        X = self.given if self.preprocessing is None else self.preprocessing.transform(self.given)
        return SufficientStatistics.from_arrays(
            X,
            self.columns,
            views=tuple(self.views),
            second_moment=moment,
            missing=self.model.missing,
        )

    def path(
        self, level: str, penalty: float, folds: Sequence[int], checks: int
    ) -> Iterator[tuple[Movement, LinearCalibrator]]:
        """Movements that serve these folds, each with its calibration: at the start, and after every few steps."""
        movement = Movement(level, len(self.views), self.X.shape[1], self.device)
        rng = np.random.default_rng(self.seed)
        numbers = list(movement.numbers.values())
        optimiser = torch.optim.Adam(numbers, lr=RATE)
        for check in range(checks + 1):
            calibration = self.calibrate([self.scores(movement, f) for f in folds], folds)
            yield movement, calibration
            for step in range(CHECK if check < checks else 0):
                f = folds[(check * CHECK + step) % len(folds)]
                batch = self._trials(self._some(self.rows[f], rng), rng)
                for number in numbers:
                    number.requires_grad_(True)
                optimiser.zero_grad()
                loss = (
                    self.loss(movement, self.starts[f], batch, calibration)
                    + penalty * movement.square()
                )
                loss.backward()  # type: ignore[no-untyped-call]
                optimiser.step()
                for number in numbers:
                    number.requires_grad_(False)

    def _some(self, rows: IntArray, rng: np.random.Generator) -> IntArray:
        """Vectors of some people, all or part of each one's."""
        kept: list[IntArray] = []
        for person in rng.permutation(np.unique(self.people[rows])):
            kept.append(rows[self.people[rows] == person])
            if len(kept) >= 2 * LEAST_HELD_OUT and sum(map(len, kept)) >= BATCH_ROWS:
                break
        return rng.permutation(np.concatenate(kept))[:BATCH_ROWS]

    def loss(
        self, movement: Movement, start: Start, trials: _Held, calibration: LinearCalibrator
    ) -> Tensor:
        """Cross-entropy of the calibrated answers (D3), in nats."""
        scores = self._answers(movement, start, trials)
        slope, offset = (on_device(a, self.device) for a in trials.line(calibration))
        signs, mass = (
            on_device(a, self.device)
            for a in (np.where(trials.same, 1.0, -1.0), trials.mass(calibration))
        )
        margin = signs * (slope * scores + offset + log_odds(calibration.prior))
        return (mass * torch.nn.functional.softplus(-margin)).sum()  # (D3)

    def _answers(self, movement: Movement, start: Start, trials: _Held) -> Tensor:
        sums, tests = (
            on_device(trials.sums, self.device),
            on_device(self.X[trials.test], self.device),
        )
        matrix = score_trials(movement.apply(start), self.ratio, sums, trials.counts, tests)
        chosen: Tensor = matrix.reshape(-1)[on_device(trials.places, self.device)]
        return chosen

    def scores(self, movement: Movement, fold: int) -> Array:
        """Of the trials of a fold, by the fit without its people, moved."""
        with torch.no_grad():
            return to_host(self._answers(movement, self.starts[fold], self.trials[fold]))

    def calibrate(
        self, scores: Sequence[Array], folds: Sequence[int], *, quiet: bool = True
    ) -> LinearCalibrator:
        """The calibration of least cost on the trials of some folds."""
        trials = [self.trials[f] for f in folds]
        found: LinearCalibrator = clone(self.prototype)
        columns, same, people = (
            None
            if self.side is None
            else {n: np.concatenate([t.side[n] for t in trials]) for n in trials[0].side},
            np.concatenate([t.same for t in trials]),
            np.concatenate([t.people for t in trials]),
        )
        mass = np.concatenate([t.mass(found) for t in trials]) / len(trials)
        with warnings.catch_warnings():
            if quiet:
                warnings.simplefilter("ignore", MvpldaWarning)
            found._fit(np.concatenate(scores)[:, None], same, mass, people, columns)
        return found

    def cost(self, calibration: LinearCalibrator, scores: Array, fold: int) -> float:
        """Cross-entropy of a fold's trials, in bits at this prior, relative to knowing the prior alone."""
        trials = self.trials[fold]
        slope, offset = trials.line(calibration)
        margin = np.where(trials.same, 1.0, -1.0) * (
            slope * scores + offset + log_odds(calibration.prior)
        )
        share = calibration.prior
        prior_alone = -(share * np.log(share) + (1 - share) * np.log1p(-share))
        return float(trials.mass(calibration) @ np.logaddexp(0.0, -margin) / prior_alone)


@dataclass(frozen=True)
class _Held:
    """Trials of some people, kind after kind.

    sums, counts : (P, D), (P,) of the vectors of every profile; test : (T,) rows of X; places : (n,) in the matrix
    kinds : {hypothesis: slice of the trials}, of those the question is about; same : (n,) whether it says so
    weights : (n,) share of a trial in its side of the ratio, each side adding up to 1
    """

    sums: Array
    counts: Array
    test: IntArray
    places: IntArray
    kinds: dict[Hypothesis, slice]
    same: NDArray[np.bool_]
    weights: Array
    people: IntArray
    side: dict[str, Array]

    @classmethod
    def of(cls, tuning: _Tuning, drawn: Trials) -> _Held:
        ratio = tuning.ratio
        starts = np.append(drawn.first, len(drawn.ids))
        counts = np.diff(starts).astype(np.float64)
        places, weights, same, kinds, end = [], [], [], {}, 0
        for h, some in zip(possible_hypotheses(tuning.base, {}), drawn.chosen, strict=True):
            log_weight = ratio.numerator.get(h, ratio.denominator.get(h))
            if log_weight is None or not len(some):
                continue
            kinds[h] = slice(end, end := end + len(some))
            places.append(some)
            weights.append(np.full(len(some), np.exp(log_weight) / len(some)))
            same.append(np.full(len(some), h in ratio.numerator))
        every, weight, is_same = (
            np.concatenate(part) if part else np.empty(0) for part in (places, weights, same)
        )
        rows, columns = np.divmod(every.astype(np.int64), len(drawn.test))
        for which in (True, False):
            own = is_same == which
            weight[own] /= max(weight[own].sum(), 1e-300)
        side: dict[str, Array] = {}
        for name, values in (tuning.side or {}).items():
            enrolled = np.add.reduceat(values[drawn.enrol], drawn.first) / counts
            side |= {
                f"{name}, enrolled": enrolled[rows],
                f"{name}, test": values[drawn.test][columns],
            }
        return cls(
            np.add.reduceat(tuning.X[drawn.enrol], drawn.first, axis=0),
            counts,
            drawn.test,
            every.astype(np.int64),
            kinds,
            is_same.astype(bool),
            weight,
            tuning.people[drawn.enrol[drawn.first]][rows],
            side,
        )

    def mass(self, calibration: LinearCalibrator) -> Array:
        return np.asarray(
            np.where(self.same, calibration.prior, 1 - calibration.prior) * self.weights
        )

    def line(self, calibration: LinearCalibrator) -> tuple[Array, Array]:
        """Slope and offset of every trial's calibration, which is linear in the score."""
        extra = {"side": self.side} if isinstance(calibration, QualityCalibrator) else {}
        at = [
            calibration.transform(np.full(len(self.same), value), **extra) for value in (0.0, 1.0)
        ]
        return at[1] - at[0], at[0]


def _calibration(
    calibrator: LinearCalibrator | None, side: Mapping[str, Any] | None, n: int
) -> tuple[LinearCalibrator, dict[str, Array] | None]:
    """A calibrator to be fitted, and the side information of every vector."""
    prototype = (
        calibrator
        if calibrator is not None
        else LinearCalibrator()
        if side is None
        else QualityCalibrator()
    )
    if type(prototype) not in (LinearCalibrator, QualityCalibrator):
        raise ParameterError(
            f"calibrator is a LinearCalibrator or a QualityCalibrator; got {prototype!r}"
        )
    if isinstance(prototype, QualityCalibrator) != (side is not None):
        raise ParameterError(
            "a QualityCalibrator needs side=, and side= is for a QualityCalibrator"
        )
    if not 0 < prototype.prior < 1:
        raise ParameterError(
            f"the prior of a calibrator lies between 0 and 1; got {prototype.prior}"
        )
    if side is None:
        return prototype, None
    columns = {name: np.asarray(values, dtype=np.float64) for name, values in side.items()}
    bad = [
        name
        for name, values in columns.items()
        if values.shape != (n,) or not np.isfinite(values).all()
    ]
    if bad or not columns:
        raise DataError(
            f"side is {{name: {n} finite numbers, one a vector}}; {bad[0] if bad else 'nothing'!r} is not"
        )
    return prototype, columns
