"""How long every measure takes, and in how much memory: ``python -m benchmarks.metrics_scale 1e6 1e7 1e8``.

Every size runs in a process of its own. Scores are float32, drawn before the clock
starts; the peak is of the whole process, scores, interpreter and libraries included.
One trial in ``--one-in`` is a target (100 unless given; 2 is the worst case).
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time

import numpy as np

from mvplda.metrics import PRESETS, ScoreCurve
from mvplda.metrics.catalogue import ActDCF, MinDCF

COSTS = ("default", ".001", "sdsv")


def draw(n: int, one_in: int) -> tuple[np.ndarray, np.ndarray]:
    """Log-likelihood ratios of two equal Gaussians four deviations apart."""
    rng = np.random.default_rng(0)
    n_targets = n // one_in
    targets = rng.standard_normal(n_targets, dtype=np.float32)
    nontargets = rng.standard_normal(n - n_targets, dtype=np.float32)
    for scores, mean in ((targets, 8), (nontargets, -8)):
        scores *= 4
        scores += mean
    return targets, nontargets


def measure(n: int, one_in: int) -> None:
    targets, nontargets = draw(n, one_in)
    started = time.perf_counter()
    curve = ScoreCurve(targets, nontargets)
    ordered = time.perf_counter() - started
    rates = curve.eer(), curve.cllr(), curve.min_cllr()
    costs = [
        (MinDCF(PRESETS[name]).value(curve), ActDCF(PRESETS[name]).value(curve)) for name in COSTS
    ]
    seconds = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"{n:.0e} scores, {len(targets)} targets: {seconds:.2f} s ({ordered:.2f} s to sort), peak {peak:.2f} GiB; "
        f"EER {100 * rates[0]:.4f} %, Cllr {rates[1]:.5f}, minCllr {rates[2]:.5f}, "
        + ", ".join(
            f"{name} {low:.4f}/{act:.4f}" for name, (low, act) in zip(COSTS, costs, strict=True)
        ),
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sizes", nargs="*", type=float, default=[1e6, 1e7])
    parser.add_argument("--one-in", type=int, default=100)
    parser.add_argument("--here", action="store_true", help="measure in this process")
    options = parser.parse_args()
    for size in options.sizes:
        if options.here:
            measure(int(size), options.one_in)
        else:
            command = [
                sys.executable,
                "-m",
                "benchmarks.metrics_scale",
                "--here",
                "--one-in",
                str(options.one_in),
            ]
            subprocess.run([*command, str(size)], check=True)


if __name__ == "__main__":
    main()
