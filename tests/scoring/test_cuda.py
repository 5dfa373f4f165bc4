"""Fused kernels, run by Triton's interpreter on the CPU; scores, statistics and fits on CUDA where there is one."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
if importlib.util.find_spec("triton") is None:
    pytest.skip("triton is not installed", allow_module_level=True)

SCRIPT = """
import torch
from mvplda.scoring.log_sums import AssignmentSum, LogRatios, TermProduct
from mvplda.scoring.cuda import JointScorer, best_rows, fits

generator = torch.Generator().manual_seed(0)
P, M = 300, 70

def factors(width, dtype):
    e, t = (1.5 * torch.randn(n, width, generator=generator, dtype=torch.float64) for n in (P, M))
    row, column = -0.4 * (e**2).sum(1, keepdim=True), -0.4 * (t**2).sum(1, keepdim=True)
    return torch.cat([e, row, row * 0 + 1], 1), torch.cat([t, column * 0 + 1, column], 1)

sides = [factors(w, torch.float64) for w in (12, 7, 5)]
exact, single = (
    LogRatios(AssignmentSum((f[0],)), AssignmentSum((f[1], f[2]), 0.0))
    for f in ([TermProduct(e.to(d), t.to(d)) for e, t in sides] for d in (torch.float64, torch.float32))
)
assert fits(single) and not fits(exact)
whole = slice(None)
(expected,) = exact.block(whole, whole)
eager_error = (single.block(whole, whole)[0] - expected).abs().max()
got = torch.full((P, M), float("nan"))
JointScorer(single, 2).fill(got)
error = (got - expected).abs().max()
assert error < 4 * eager_error, (error, eager_error)
numbers, scores = best_rows(single, 5)
best = expected.T.topk(5, dim=1)
assert (scores - best.values).abs().max() < 1e-4
assert (expected.T.gather(1, numbers) - best.values).abs().max() < 1e-4
"""


@pytest.mark.slow
def test_fused_kernel_in_the_interpreter():
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


STATISTICS_SCRIPT = """
import sys, torch
from mvplda.statistics.device_kernels import add_segments

device = sys.argv[1]
generator = torch.Generator().manual_seed(0)
for n, D in ((300, 70), (9, 1030)):
    x = (5 + 3 * torch.randn(n, D + 3, generator=generator)).to(device)[:, :D]  # rows that are not side by side
    codes = torch.randint(0, 40, (n,), generator=generator).to(device)
    ordered, order = torch.sort(codes, stable=True)
    classes, lengths = torch.unique_consecutive(ordered, return_counts=True)
    sums = torch.ones(40, D, dtype=torch.float64, device=device)
    expected = sums.index_add(0, codes, x.double())
    add_segments(sums, x, order, torch.cat([lengths.new_zeros(1), lengths.cumsum(0)]), classes)
    assert (sums - expected).abs().max() < 1e-12
"""


@pytest.mark.slow
def test_kernels_of_statistics():
    """On the GPU where there is one: old interpreters cannot loop over bounds that were loaded."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    environment = {**os.environ, "TRITON_INTERPRET": "1" if device == "cpu" else "0"}
    command = [sys.executable, "-c", STATISTICS_SCRIPT, device]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.cuda
@pytest.mark.parametrize(("dtype", "most"), [(np.float32, 2e-6), (np.float64, 1e-11)])
def test_statistics_on_cuda_agree_with_numpy(dtype, most):
    from mvplda import SufficientStatistics
    from mvplda.backend import to_host
    from mvplda.labels import encode_labels

    rng = np.random.default_rng(0)
    n, D = 30_000, 96
    X = (100 + rng.normal(size=(n, D)) * np.logspace(-1, 1, D)).astype(dtype)
    table = encode_labels({"a": np.arange(n) % 5000, "b": rng.permutation(np.arange(n) % 30)})
    got = [SufficientStatistics.from_arrays(torch.from_numpy(X).cuda(), table) for _ in range(2)]
    sums = [{view: to_host(statistics.sums[view]) for view in "ab"} for statistics in got]
    for view in "ab":  # whichever thread came first
        np.testing.assert_array_equal(sums[0][view], sums[1][view])
    exact = SufficientStatistics.from_arrays(X.astype(np.float64), table).about(got[0].origin)
    deviation = np.sqrt(exact.variance)
    error = np.abs(got[0].scatter - exact.scatter) / np.outer(deviation, deviation) / n
    assert error.max() < most
    for view in "ab":
        unit = exact.counts[view][:, None] * deviation
        np.testing.assert_allclose(sums[0][view] / unit, exact.sums[view] / unit, atol=1e-5)
    np.testing.assert_array_equal(
        got[0].together("a", "b").toarray(), exact.together("a", "b").toarray()
    )


@pytest.mark.cuda
@pytest.mark.parametrize("noise", ["diagonal", "full"])
@pytest.mark.parametrize("views", [{"a": 3}, {"a": 3, "b": 2}, {"a": 2, "b": 2, "a:b": 1}])
def test_a_fit_on_cuda_is_that_of_numpy(views, noise):
    from mvplda import MultiviewPLDA

    rng = np.random.default_rng(0)
    labels = {"a": rng.permutation(np.arange(600) % 40), "b": rng.permutation(np.arange(600) % 7)}
    X = 5 + rng.normal(size=(600, 10))
    for codes in labels.values():
        X += (rng.normal(size=(40, 3)) @ rng.normal(size=(3, 10)))[codes]
    expected = MultiviewPLDA(views, noise=noise, max_iter=20, tol=0).fit(X, labels)
    model = MultiviewPLDA(views, noise=noise, max_iter=20, tol=0).fit(
        torch.from_numpy(X).cuda(), labels
    )
    np.testing.assert_allclose(model.log_likelihoods_, expected.log_likelihoods_, rtol=1e-9)
    np.testing.assert_allclose(model.noise_, expected.noise_, rtol=1e-6, atol=1e-6)
    for view in views:
        np.testing.assert_allclose(model.loadings_[view], expected.loadings_[view], atol=1e-6)


@pytest.mark.cuda
@pytest.mark.parametrize("views", [{"a": 2}, {"a": 3, "b": 2}, {"a": 2, "b": 1, "a:b": 1}])
def test_cuda_agrees_with_numpy(views):
    from test_scoring import D, any_model

    rng = np.random.default_rng(0)
    model = any_model(views)
    X, T = rng.normal(size=(400, D)) + 3, rng.normal(size=(300, D)) + 3
    ids = rng.integers(0, 150, 400)
    profiles, tensors = model.enrol(X, ids), model.enrol(torch.from_numpy(X).cuda(), ids)
    T_cuda = torch.from_numpy(T).cuda()
    got = model.llr(tensors, T_cuda)
    assert got.is_cuda
    exact = model.llr(profiles, T, dtype=np.float64)
    np.testing.assert_allclose(got.cpu().numpy(), exact, atol=1e-3)
    np.testing.assert_allclose(
        model.llr(tensors, T_cuda, dtype=np.float64).cpu().numpy(), exact, atol=1e-9
    )
    best = model.identify(tensors, T_cuda, top=7)
    np.testing.assert_allclose(best.scores, -np.sort(-exact.T, axis=1)[:, :7], atol=1e-3)
