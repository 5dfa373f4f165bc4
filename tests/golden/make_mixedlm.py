"""Make ``mixedlm.json``: variance components of one-dimensional data, by statsmodels MixedLM.

    pip install statsmodels
    python tests/golden/make_mixedlm.py

Random effects that cross are one group with a variance component each; the fit
is by maximum likelihood (not REML). The data are kept with the results, so
that the tests need neither statsmodels nor the same random generator.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

FORMULAS = {"a": "0 + C(a)", "b": "0 + C(b)", "c": "0 + C(c)", "a:b": "0 + C(a):C(b)"}
CASES: dict[
    str, tuple[int, int, dict[str, float]]
] = {  # seed, vectors, standard deviation of every view
    "one view": (1, 60, {"a": 1.5}),
    "two crossed views": (2, 80, {"a": 1.2, "b": 2.0}),
    "three crossed views": (3, 120, {"a": 1.0, "b": 1.5, "c": 0.8}),
    "interaction": (4, 160, {"a": 1.0, "b": 1.5, "a:b": 1.2}),
}
SIZES = {"a": 9, "b": 6, "c": 5}


def draw(
    seed: int, n: int, deviations: dict[str, float]
) -> tuple[dict[str, list[int]], list[float]]:
    """Unbalanced labels and values, rounded so that the file holds them exactly."""
    rng = np.random.default_rng(seed)
    columns = sorted({part for view in deviations for part in view.split(":")})
    labels = {
        name: rng.choice(SIZES[name], size=n, p=rng.dirichlet(np.full(SIZES[name], 3.0)))
        for name in columns
    }
    values = 3.0 + 0.7 * rng.normal(size=n)
    for view, deviation in deviations.items():
        code = np.ravel_multi_index(
            [labels[p] for p in view.split(":")], [SIZES[p] for p in view.split(":")]
        )
        values += deviation * rng.normal(size=code.max() + 1)[code]
    return {name: column.tolist() for name, column in labels.items()}, np.round(values, 6).tolist()


def fit(labels: dict[str, list[int]], values: list[float], views: list[str]) -> dict[str, Any]:
    import pandas as pd
    import statsmodels
    from statsmodels.regression.mixed_linear_model import MixedLM

    frame = pd.DataFrame({**labels, "y": values})
    # an interaction's columns of zeros (cells without a vector) change no likelihood
    model = MixedLM.from_formula(
        "y ~ 1",
        groups=np.ones(len(frame)),
        vc_formula={view: FORMULAS[view] for view in views},
        re_formula="0",
        data=frame,
    )
    result = model.fit(reml=False, method=["bfgs"], gtol=1e-9, maxiter=2000)
    names = model.exog_vc.names
    return {
        "mean": float(result.fe_params.iloc[0]),
        "variances": {name: float(v) for name, v in zip(names, result.vcomp, strict=True)},
        "noise": float(result.scale),
        "log_likelihood": float(result.llf),
        "statsmodels": statsmodels.__version__,
    }


def main() -> None:
    golden = {}
    for name, (seed, n, deviations) in CASES.items():
        labels, values = draw(seed, n, deviations)
        golden[name] = {
            "labels": labels,
            "values": values,
            "expected": fit(labels, values, list(deviations)),
        }
    path = Path(__file__).with_name("mixedlm.json")
    path.write_text(json.dumps(golden, separators=(",", ":")).replace('},"', '},\n"') + "\n")


if __name__ == "__main__":
    main()
