"""Speed of joint scoring on a CUDA GPU: the fused kernel, compared with lower bounds of its run time ("floors").

Run where there is a GPU:  python benchmarks/gpu_scoring.py [results.json]
Needs torch, triton, and what the package itself needs; nothing has to be installed.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from mvplda import MultiviewPLDA
from mvplda.paper.provenance import provenance, write_results
from mvplda.scoring.cuda import JointScorer, best_rows
from mvplda.scoring.log_sums import AssignmentSum, LogRatios, TermProduct

WIDTHS = (40, 20, 20)
STRIPS = (4, 8, 16)


def random_terms(rows: int, columns: int, dtype: torch.dtype, seed: int = 0) -> LogRatios:
    """Factors of the size that real models have: terms between about -100 and 50."""
    generator = torch.Generator(device="cuda").manual_seed(seed)

    def factors(width: int) -> TermProduct:
        def draw(n: int) -> torch.Tensor:
            return torch.randn((n, width), generator=generator, device="cuda", dtype=torch.float64)

        e, t = 1.5 * draw(rows), 1.5 * draw(columns)
        row, column = -0.4 * (e**2).sum(1, keepdim=True), -0.4 * (t**2).sum(1, keepdim=True)
        left = torch.cat([e, row, torch.ones_like(row)], dim=1)
        right = torch.cat([t, torch.ones_like(column), column], dim=1)
        return TermProduct(left.to(dtype), right.to(dtype))

    n, a, b = (factors(w) for w in WIDTHS)
    return LogRatios(AssignmentSum((n,)), AssignmentSum((a, b), 0.0))


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


def end_to_end(report, out: torch.Tensor) -> dict[str, float]:
    """The public calls on tensors, against NumPy in float64."""
    rng = np.random.default_rng(0)
    labels = {view: rng.integers(0, 100, 3000) for view in ("speaker", "phrase")}
    X = rng.normal(size=(3000, 128)) * 2
    for codes in labels.values():
        X += (rng.normal(size=(100, 20)) @ rng.normal(size=(20, 128)))[codes] * 0.5
    model = MultiviewPLDA({"speaker": 20, "phrase": 20}, max_iter=5, tol=0).fit(X, labels)
    ids = np.repeat(np.arange(1000), 3)
    profiles, tensor = model.enrol(X, ids), torch.from_numpy(X).cuda()
    exact = model.llr(profiles, X, dtype=np.float64)
    on_gpu = model.enrol(tensor, ids)
    best = model.identify(on_gpu, tensor, top=10)
    errors = {
        "llr, float32, fused": float(np.abs(model.llr(on_gpu, tensor).cpu().numpy() - exact).max()),
        "llr, float64": float(
            np.abs(model.llr(on_gpu, tensor, dtype=np.float64).cpu().numpy() - exact).max()
        ),
        "llr, numpy float32": float(np.abs(model.llr(profiles, X) - exact).max()),
        "identify": float(np.abs(best.scores - -np.sort(-exact.T, axis=1)[:, :10]).max()),
    }
    print(json.dumps(errors, indent=1), flush=True)
    size = len(out)
    many = torch.from_numpy(X[rng.integers(0, 3000, size)]).cuda()
    many = many + 0.1 * torch.randn_like(many)
    enrolled = model.enrol(many)
    report("model.llr, one vector a side, out=", lambda: model.llr(enrolled, enrolled, out=out))
    report("model.llr, tests as vectors, out=", lambda: model.llr(enrolled, many, out=out))
    report("model.identify, top 10", lambda: model.identify(enrolled, enrolled, top=10))
    return errors


def main(path: str | None) -> None:
    results: dict[str, object] = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
    }
    small64, small32 = (random_terms(3000, 2500, d) for d in (torch.float64, torch.float32))
    (exact,) = small64.block(slice(None), slice(None))
    (eager,) = small32.block(slice(None), slice(None))
    got = torch.full((3000, 2500), float("nan"), device="cuda")
    JointScorer(small32).fill(got)
    results["max_error_fused"] = float((got.double() - exact).abs().max())
    results["max_error_eager_float32"] = float((eager.double() - exact).abs().max())
    results["score_range"] = [float(exact.min()), float(exact.max())]
    maxima = JointScorer(small32).lane_maxima()
    results["max_error_best"] = float(
        (maxima.max(1).values.double() - exact.max(1).values).abs().max()
    )
    print(json.dumps(results, indent=1), flush=True)
    size = 32768
    out = torch.empty((size, size), device="cuda")
    pairs = size * size
    terms = random_terms(size, size, torch.float32)
    rows = []

    def report(name: str, work) -> None:
        ms = milliseconds(work)
        rows.append(
            {"name": name, "pairs": pairs, "milliseconds": ms, "llr_per_second": pairs / ms * 1e3}
        )
        print(f"{name:45} {ms:9.3f} ms {pairs / ms * 1e3:10.3e} LLR/s", flush=True)

    report("write the result alone (fill_)", lambda: out.fill_(1.0))
    torch.backends.cuda.matmul.allow_tf32 = False
    product = [(f.left, f.right.T) for f in terms.products]

    def three() -> None:
        for left, right in product:
            torch.matmul(left, right, out=out)

    report("three bare float32 products", three)
    torch.backends.cuda.matmul.allow_tf32 = True
    report("three bare tf32 products", three)
    torch.backends.cuda.matmul.allow_tf32 = False

    def eager_all() -> None:
        for start in range(0, size, 2048):
            rows = slice(start, start + 2048)
            (out[rows],) = terms.block(rows, slice(None))

    report("eager torch, float32", eager_all)
    for strip in STRIPS:
        scorer = JointScorer(terms, strip)
        report(f"fused, strip {strip}", lambda s=scorer: s.fill(out))
        report("  best only", scorer.lane_maxima)
    report("preparing the factors and fused", lambda: JointScorer(terms).fill(out))
    report("the ten best rows of every column", lambda: best_rows(terms, 10))
    pairs = 2**20 * 4096
    wide = random_terms(2**20, 4096, torch.float32)
    report("the same, 1,048,576 rows and 4096 columns", lambda: best_rows(wide, 10))
    pairs = size * size
    results["end to end"] = end_to_end(report, out)
    results["rows"] = rows
    if path:
        record = {**provenance(), "unchecked": "times of a GPU"}
        write_results(Path(path), "scoring on a GPU", **results, provenance=record)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)
