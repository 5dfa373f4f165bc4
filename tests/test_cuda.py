"""The fused kernel, run by Triton's interpreter on the CPU, and on CUDA where there is one."""

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
from mvplda.kernel.blocks import Factors, Terms, evaluate_block
from mvplda.verification.cuda import JointScorer, best_rows, fits

generator = torch.Generator().manual_seed(0)
P, M = 300, 70

def factors(width, dtype):
    e, t = (1.5 * torch.randn(n, width, generator=generator, dtype=torch.float64) for n in (P, M))
    row, column = -0.4 * (e**2).sum(1, keepdim=True), -0.4 * (t**2).sum(1, keepdim=True)
    return torch.cat([e, row, row * 0 + 1], 1), torch.cat([t, column * 0 + 1, column], 1)

sides = [factors(w, torch.float64) for w in (12, 7, 5)]
nothing = Factors(None, None, 0.0)
exact, single = (
    Terms((f[0],), (f[1], f[2], nothing))
    for f in ([Factors(e.to(d), t.to(d), 0.0) for e, t in sides] for d in (torch.float64, torch.float32))
)
assert fits(single) and not fits(exact)
whole = slice(None)
expected = evaluate_block(exact, whole, whole)
eager_error = (evaluate_block(single, whole, whole) - expected).abs().max()
got = torch.full((P, M), float("nan"))
JointScorer(single, (32, 32), 2, 4, 1).fill(got)
error = (got - expected).abs().max()
assert error < 4 * eager_error, (error, eager_error)
numbers, scores = best_rows(single, 5)
best = expected.T.topk(5, dim=1)
assert (scores - best.values).abs().max() < 1e-4
assert (expected.T.gather(1, numbers) - best.values).abs().max() < 1e-4
"""


def test_fused_kernel_in_the_interpreter():
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
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
    np.testing.assert_allclose(model.llr(tensors, T_cuda, dtype=np.float64).cpu().numpy(), exact, atol=1e-9)
    best = model.identify(tensors, T_cuda, top=7)
    np.testing.assert_allclose(best.scores, -np.sort(-exact.T, axis=1)[:, :7], atol=1e-3)
