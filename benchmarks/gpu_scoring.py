"""Joint scoring on a CUDA GPU: the fused kernel against its floors.

Run where there is a GPU:  python benchmarks/gpu_scoring.py [results.json]
Needs only torch, triton and the package's source.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from mvplda.kernel.blocks import Factors, Terms, evaluate_block
from mvplda.verification.cuda import JointScorer

WIDTHS = (40, 20, 20)
CONFIGURATIONS = [
    (block, strip, warps, stages)
    for block, warps in (((128, 64), 4), ((128, 64), 8), ((64, 64), 4), ((128, 32), 4), ((64, 128), 4), ((128, 128), 8))
    for strip, stages in ((4, 2), (16, 2), (16, 3), (64, 2))
]


def random_terms(rows: int, columns: int, dtype: torch.dtype, seed: int = 0) -> Terms:
    """Factors of the size that real models have: terms between about -100 and 50."""
    generator = torch.Generator(device="cuda").manual_seed(seed)

    def factors(width: int) -> Factors:
        def draw(n: int) -> torch.Tensor:
            return torch.randn((n, width), generator=generator, device="cuda", dtype=torch.float64)

        e, t = 1.5 * draw(rows), 1.5 * draw(columns)
        row, column = -0.4 * (e**2).sum(1, keepdim=True), -0.4 * (t**2).sum(1, keepdim=True)
        left = torch.cat([e, row, torch.ones_like(row)], dim=1)
        right = torch.cat([t, torch.ones_like(column), column], dim=1)
        return Factors(left.to(dtype), right.to(dtype), 0.0)

    n, a, b = (factors(w) for w in WIDTHS)
    return Terms((n,), (a, b, Factors(None, None, 0.0)))


def milliseconds(work, repeats: int = 7) -> float:
    work()
    torch.cuda.synchronize()
    times = []
    for _ in range(repeats):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        work()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end))
    return float(np.median(times))


def main(path: str | None) -> None:
    results: dict[str, object] = {"device": torch.cuda.get_device_name(), "torch": torch.__version__}
    small64, small32 = (random_terms(3000, 2500, d) for d in (torch.float64, torch.float32))
    exact = evaluate_block(small64, slice(None), slice(None))
    eager = evaluate_block(small32, slice(None), slice(None))
    got = torch.full((3000, 2500), float("nan"), device="cuda")
    JointScorer(small32).fill(got)
    results["max_error_fused"] = float((got.double() - exact).abs().max())
    results["max_error_eager_float32"] = float((eager.double() - exact).abs().max())
    results["score_range"] = [float(exact.min()), float(exact.max())]
    maxima = JointScorer(small32).strip_maxima()
    results["max_error_best"] = float((maxima.max(1).values.double() - exact.max(1).values).abs().max())
    print(json.dumps(results, indent=1), flush=True)
    size = 32768
    out = torch.empty((size, size), device="cuda")
    pairs = size * size
    terms = random_terms(size, size, torch.float32)
    rows = []

    def report(name: str, work, note: str = "") -> None:
        ms = milliseconds(work)
        rows.append({"name": name, "milliseconds": ms, "llr_per_second": pairs / ms * 1e3, "note": note})
        print(f"{name:45} {ms:9.3f} ms {pairs / ms * 1e3:10.3e} LLR/s", flush=True)

    report("write the result alone (fill_)", lambda: out.fill_(1.0))
    torch.backends.cuda.matmul.allow_tf32 = False
    product = [(f.left, f.right.T) for f in (*terms.numerator, *terms.denominator[:2])]

    def three() -> None:
        for left, right in product:
            torch.matmul(left, right, out=out)

    report("three bare float32 products", three)
    torch.backends.cuda.matmul.allow_tf32 = True
    report("three bare tf32 products", three)
    torch.backends.cuda.matmul.allow_tf32 = False

    def eager_all() -> None:
        for start in range(0, size, 2048):
            out[start : start + 2048] = evaluate_block(terms, slice(start, start + 2048), slice(None))

    report("eager torch, float32", eager_all)
    for block, strip, warps, stages in CONFIGURATIONS:
        try:
            scorer = JointScorer(terms, block, strip, warps, stages)
            report(f"fused {block} strip {strip} warps {warps} stages {stages}", lambda s=scorer: s.fill(out))
            report("  best only", scorer.strip_maxima)
        except Exception as error:
            print(block, strip, warps, stages, "failed:", str(error)[:200], flush=True)
    report("preparing the factors and fused", lambda: JointScorer(terms).fill(out))
    results["rows"] = rows
    if path:
        Path(path).write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)
