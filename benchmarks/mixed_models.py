"""Crossed random effects in one dimension: a mixed-model package and ours, on the same values in one run.

``python -m benchmarks mixed``. The model is y = mean + subject + item + noise; both fit it by maximum
likelihood. It needs statsmodels.
"""

from __future__ import annotations

import time
import warnings
from importlib.metadata import version
from importlib.util import find_spec
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


def run(*, quick: bool, rounds: int, peer_python: str) -> dict[str, Any]:
    if find_spec("statsmodels") is None:
        return {"case": "statsmodels is not installed: nothing to compare with"}
    case = QUICK if quick else FULL
    labels, values = draw(**case)
    ours = fit_ours(labels, values)
    seconds = best_of({"mvplda": lambda: fit_ours(labels, values)}, rounds, time.perf_counter)
    begin = time.perf_counter()
    theirs = fit_statsmodels(labels, values)
    seconds["statsmodels MixedLM"] = time.perf_counter() - begin
    return {
        "machine": {
            "statsmodels": version("statsmodels"),
            "clock": "wall seconds, one BLAS thread",
        },
        "case": f"{case['subjects']} subjects x {case['items']} items, {len(values)} values, maximum likelihood",
        "seconds": seconds,
        "ratio": seconds["statsmodels MixedLM"] / seconds["mvplda"],
        "estimates (variances)": {"mvplda": ours, "statsmodels MixedLM": theirs},
        "largest relative difference of an estimate": max(
            abs(ours[name] - theirs[name]) / abs(theirs[name]) for name in theirs
        ),
    }
