"""Speed of 1:N search by PLDA: the certified best ten of up to ten million profiles, on a GPU or on CPU cores.

    python benchmarks/search.py [--profiles 10000000] [--rank 150] [--device cuda] [results.json]

Needs numpy and torch only: profiles and tests are simulated in the canonical coordinates of a PLDA (noise 1, variances
psi between speakers), where a row is what `mvplda.scoring.search` makes of a profile. With mvplda installed, --check
compares the two on 2,000 profiles first.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from pathlib import Path

import numpy as np
import torch

from mvplda.paper.provenance import provenance, write_results

TAKES = 3
CHUNK = 250_000


def variances(rank: int) -> np.ndarray:
    """Between speakers, relative to the noise: about those of speaker embeddings, falling."""
    return 4.0 * np.exp(-np.arange(rank) / (rank / 4)) + 0.05


def rows_of(means: np.ndarray, counts: np.ndarray, psi: np.ndarray) -> np.ndarray:
    """[l(e), a(e) + c, kind] of profiles with these means of so many vectors."""
    n = counts[:, None]
    gain = n * psi / (n * psi + 1)
    spread = 1 + psi / (n * psi + 1)  # variance of a test, given the profile
    rows = np.zeros((len(means), len(psi) + 1 + TAKES), dtype=np.float32)
    rows[:, : len(psi)] = gain * means / spread
    own = -0.5 * (gain * means) ** 2 / spread + 0.5 * np.log((psi + 1) / spread)
    rows[:, len(psi)] = own.sum(axis=1)
    rows[np.arange(len(rows)), len(psi) + counts] = 1.0
    return rows


def queries_of(tests: np.ndarray, psi: np.ndarray) -> np.ndarray:
    """[x, 1, b_1 .. b_G] of single vectors."""
    columns = [tests, np.ones((len(tests), 1))]
    for n in range(1, TAKES + 1):
        spread = 1 + psi / (n * psi + 1)
        columns.append((0.5 * tests**2 * (1 / (psi + 1) - 1 / spread)).sum(axis=1, keepdims=True))
    return np.hstack(columns)


def simulate(
    n: int, psi: np.ndarray, tests: int, device: str
) -> tuple[torch.Tensor, np.ndarray, np.ndarray]:
    """Rows of n profiles on the device, queries, and the profile that every query is of."""
    rng = np.random.default_rng(0)
    whole = torch.empty((n, len(psi) + 1 + TAKES), dtype=torch.float32, device=device)
    owners = np.sort(rng.choice(n, tests, replace=False))
    vectors = np.empty((tests, len(psi)))
    for start in range(0, n, CHUNK):
        size = min(CHUNK, n - start)
        draw = np.random.default_rng(1 + start // CHUNK)
        speakers = draw.standard_normal((size, len(psi)), dtype=np.float32) * np.sqrt(psi)
        counts = draw.integers(1, TAKES + 1, size)
        noise = draw.standard_normal((size, len(psi)), dtype=np.float32)
        means = speakers + noise / np.sqrt(counts[:, None])
        whole[start : start + size] = torch.from_numpy(rows_of(means, counts, psi)).to(device)
        here = (owners >= start) & (owners < start + size)
        own = speakers[owners[here] - start]
        vectors[here] = own + draw.standard_normal(own.shape)
    return whole, queries_of(vectors, psi), owners


class Flat:
    """All columns of all rows."""

    def __init__(self, rows: torch.Tensor, candidates: int) -> None:
        self.rows = rows
        self.candidates = candidates
        self.most = torch.stack([part.abs().amax(0) for part in rows.split(CHUNK)]).amax(0)

    def rounding(self, q: torch.Tensor) -> torch.Tensor:
        return self.rows.shape[1] * np.finfo(np.float32).eps * (q.abs() @ self.most)

    def __call__(self, q: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Rows of the best ten, their products in float64, and whether they are certain, (tests, ...)."""
        products = q @ self.rows.T
        top = products.topk(self.candidates + 1, dim=1)
        places = top.indices[:, :-1]
        exact = torch.einsum("ij,ikj->ik", q.double(), self.rows[places].double())
        best = exact.topk(10, dim=1)
        # no other row has a larger product than the first that was left out
        certain = best.values[:, -1] >= top.values[:, -1] + self.rounding(q)
        return places.gather(1, best.indices), best.values, certain


def measure(search: Flat, queries: torch.Tensor, owners: np.ndarray, batch: int) -> dict:
    times, certain, found = [], [], []
    for start in range(0, len(queries), batch):
        begin = time.perf_counter()
        rows, _, sure = search(queries[start : start + batch])
        certain += sure.tolist()
        found += rows[:, 0].tolist()
        times.append(1e3 * (time.perf_counter() - begin))
    return {
        "batch": batch,
        "milliseconds a search, median": float(np.median(times[1:])),
        "milliseconds a search, 95 %": float(np.quantile(times[1:], 0.95)),
        "certified": float(np.mean(certain)),
        "owner is the first": float(np.mean(np.array(found) == owners[: len(found)])),
    }


def check(psi: np.ndarray) -> float:
    """The largest difference of a product here and an LLR of mvplda."""
    from mvplda import PLDA

    model = PLDA.from_parameters(np.zeros(len(psi)), {"class": np.diag(np.sqrt(psi))}, np.ones(len(psi)))  # fmt: skip
    rng = np.random.default_rng(0)
    counts = rng.integers(1, TAKES + 1, 2000)
    owners = np.repeat(np.arange(2000), counts)
    vectors = rng.normal(size=(len(owners), len(psi))) * 2
    means = np.add.reduceat(vectors, np.cumsum(counts) - counts) / counts[:, None]
    tests = rng.normal(size=(50, len(psi)))
    llrs = model.llr(model.enrol(vectors, owners), tests, dtype=np.float64)
    return float(np.abs(rows_of(means, counts, psi) @ queries_of(tests, psi).T - llrs).max())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--profiles", type=int, default=10_000_000)
    parser.add_argument("--rank", type=int, default=150)
    parser.add_argument("--tests", type=int, default=64)
    parser.add_argument("--candidates", type=int, default=200)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("results", nargs="?")
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    psi = variances(options.rank)
    about: dict = {key: value for key, value in vars(options).items() if key != "results"}
    about["threads"] = torch.get_num_threads()
    if options.device != "cpu":
        about["device"] = torch.cuda.get_device_name()
    if options.check:
        about["largest difference from mvplda"] = check(psi)
    begin = time.perf_counter()
    rows, queries, owners = simulate(options.profiles, psi, options.tests, options.device)
    about["seconds to make the rows"] = time.perf_counter() - begin
    about["gigabytes of rows"] = rows.numel() * 4 / 1e9
    asked = torch.from_numpy(queries.astype(np.float32)).to(options.device)
    flat = Flat(rows, options.candidates)
    about["all columns"] = [measure(flat, asked, owners, batch) for batch in (1, 16)]
    about["gigabytes at the peak"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(json.dumps(about, indent=1))
    if options.results:
        record = {**provenance(), "unchecked": "times of a machine"}
        write_results(Path(options.results), "search", **about, provenance=record)


if __name__ == "__main__":
    main()
