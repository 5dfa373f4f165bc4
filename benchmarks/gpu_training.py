"""Speed of statistics and EM on a CUDA GPU, compared with its memory bandwidth and with bare matrix products.

Run where there is a GPU:  python benchmarks/gpu_training.py --output gpu_training.json
Needs torch, triton, and what the package itself needs; nothing has to be installed. Without a
GPU it runs on the CPU: give small sizes then. A part that fails is reported, and the others go on.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from mvplda import MultiviewPLDA, SufficientStatistics
from mvplda.backend import to_host
from mvplda.inference.design import Design
from mvplda.inference.em import fit_em, moment_start
from mvplda.inference.parameters import NoiseModel
from mvplda.inference.priors import MaximumLikelihood
from mvplda.paper.provenance import provenance, write_results
from mvplda.statistics import device as on_device
from mvplda.statistics.device import DeviceAccumulator

VIEWS = ("speaker", "phrase")


@dataclass
class Report:
    """Rows of a table, printed as they come and kept as data."""

    path: Path | None
    data: dict[str, Any] = field(default_factory=dict)
    record: dict[str, Any] = field(
        default_factory=lambda: {**provenance(), "unchecked": "times of a GPU"}
    )

    def row(
        self, part: str, name: str, seconds: float, floor: float | None = None, **more: Any
    ) -> None:
        ratio = None if not floor else seconds / floor
        self.data.setdefault(part, []).append(
            {"name": name, "seconds": seconds, "ratio to floor": ratio, **more}
        )
        beside = "" if ratio is None else f"  {ratio:6.2f} x floor"
        print(f"{name:72} {seconds * 1e3:12.2f} ms{beside}  {more or ''}", flush=True)
        self.write()

    def note(self, name: str, value: Any) -> None:
        self.data[name] = value
        print(f"{name}: {json.dumps(value)}", flush=True)
        self.write()

    def write(self) -> None:
        if self.path is not None:
            write_results(self.path, "training on a GPU", **self.data, provenance=self.record)


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def seconds(work: Callable[[], object], device: torch.device, repeats: int = 5) -> float:
    """Median after a first run that is not counted."""
    times = []
    for _ in range(repeats + 1):
        wait(device)
        start = time.perf_counter()
        work()
        wait(device)
        times.append(time.perf_counter() - start)
    return float(np.median(times[1:]))


@contextmanager
def timed(spent: dict[str, float], key: str, device: torch.device) -> Iterator[None]:
    wait(device)
    start = time.perf_counter()
    yield
    wait(device)
    spent[key] += time.perf_counter() - start


# -- vectors ---------------------------------------------------------------


@dataclass
class Source:
    """Vectors of speakers and phrases, drawn on the device in chunks, the speakers in random order."""

    device: torch.device
    dimension: int
    speakers: int
    phrases: int

    def __post_init__(self) -> None:
        self.generator = torch.Generator(device=self.device).manual_seed(0)
        self.speaker = self._normal(self.speakers)
        self.phrase = self._normal(self.phrases)

    def _normal(self, rows: int) -> torch.Tensor:
        return torch.randn((rows, self.dimension), generator=self.generator, device=self.device)

    def draw(self, rows: int) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        codes = {
            view: torch.randint(0, size, (rows,), generator=self.generator, device=self.device)
            for view, size in zip(VIEWS, (self.speakers, self.phrases), strict=True)
        }
        X = self._normal(rows)
        for start in range(0, rows, 2**19):
            some = slice(start, start + 2**19)
            X[some] += self.speaker[codes["speaker"][some]]
            X[some] += self.phrase[codes["phrase"][some]]
        return X, codes

    def accumulator(self) -> DeviceAccumulator:
        sizes = dict(zip(VIEWS, (self.speakers, self.phrases), strict=True))
        return DeviceAccumulator(self.dimension, sizes)


def statistics(report: Report, settings: argparse.Namespace, device: torch.device) -> None:
    part, rows = "statistics", min(settings.chunk, settings.vectors)
    chunks = max(1, settings.vectors // rows)
    source = Source(device, settings.dimension, settings.speakers, settings.phrases)
    X, codes = source.draw(rows)
    report.note(
        "statistics of", {"vectors": chunks * rows, "dimension": settings.dimension, "chunk": rows}
    )
    floors = bare_passes(X, device)
    for name, value in floors.items():
        report.row(part, f"bare: {name}, all chunks", value * chunks)
    errors_and_rows(report, source, X, codes, device)
    spent = {"generation": 0.0, "statistics": 0.0}
    sums = source.accumulator()
    sums.add(X, codes)  # compiles kernels, fills the allocator
    sums = source.accumulator()
    for _ in range(chunks):
        X = None  # the old chunk goes before the new one comes
        with timed(spent, "generation", device):
            X, codes = source.draw(rows)
        with timed(spent, "statistics", device):
            sums.add(X, codes)
    assert sums.n == chunks * rows
    report.row(part, "generation of the vectors", spent["generation"])
    floor = floors["read once"] + floors["float32 product"]
    report.row(part, "statistics", spent["statistics"], floor * chunks)
    start = time.perf_counter()
    result = SufficientStatistics.of(sums)
    report.row(part, "result: tables to the host", time.perf_counter() - start)
    assert result.n == chunks * rows
    for view, size in zip(VIEWS, (settings.speakers, settings.phrases), strict=True):
        assert len(result.counts[view]) <= size


def bare_passes(X: torch.Tensor, device: torch.device) -> dict[str, float]:
    """Seconds of one chunk for what any implementation must do at least."""
    some = X[: min(len(X), 2**20)]
    scale = len(X) / len(some)
    found = {"read once": seconds(lambda: X.sum(), device)}
    found["float32 product"] = scale * bare_square(some, device)
    found["float64 product"] = scale * bare_square(some.double(), device)
    return found


def bare_square(rows: torch.Tensor, device: torch.device) -> float:
    return seconds(lambda: rows.T @ rows, device, 3)


def errors_and_rows(
    report: Report, source: Source, X: torch.Tensor, codes: dict[str, Any], device: Any
) -> None:
    """Largest errors, and the time of the moment, by rows that are summed in float32.

    Of the second moment the error is relative to the variances, of a class sum it is that of the class mean,
    in standard deviations of the column.
    """
    some, some_codes = X[: 2**20], {view: numbers[: 2**20] for view, numbers in codes.items()}

    def gather(vectors: torch.Tensor) -> SufficientStatistics:
        sums = source.accumulator()
        sums.add(vectors, some_codes)
        return SufficientStatistics.of(sums)

    exact = gather(some.double())
    scale = np.sqrt(np.outer(exact.scatter.diagonal(), exact.scatter.diagonal()))
    units = {view: exact.counts[view][:, None] * np.sqrt(exact.variance) for view in VIEWS}
    usual, found = on_device.ROWS, {}
    for rows in (512, 1024, 4096, 16384):
        on_device.ROWS = rows
        got = gather(some)
        exact = exact.about(got.origin)
        centred = some - torch.as_tensor(got.origin, device=device, dtype=torch.float32)
        found[f"{rows} rows"] = {
            "second moment": float(np.abs((got.scatter - exact.scatter) / scale).max()),
            "its diagonal": float(
                np.abs(got.scatter.diagonal() / exact.scatter.diagonal() - 1).max()
            ),
            **{
                f"means of {view}s, in deviations": float(
                    np.abs(
                        (to_host(got.sums[view]) - to_host(exact.sums[view])) / units[view]
                    ).max()
                )
                for view in VIEWS
            },
            "milliseconds of the moment": 1e3
            * seconds(lambda c=centred: on_device.sum_of_products(c, c), device, 3),
        }
    on_device.ROWS = usual
    again = gather(some), gather(some)
    left, right = (part.sums for part in again)
    same = all(torch.equal(left[view], right[view]) for view in VIEWS)
    found["the same bits twice"] = bool(same and np.array_equal(again[0].scatter, again[1].scatter))
    del again, left, right
    report.note(f"errors of {len(some)} vectors", found)
    many = seconds(
        lambda: on_device.add_class_sums(
            torch.zeros((source.speakers, source.dimension), dtype=torch.float64, device=device),
            codes["speaker"],
            X - X[0],
        ),
        device,
        3,
    )
    report.row(
        "statistics",
        "class sums of the speakers, one chunk",
        many,
        seconds(lambda: X.sum(), device),
    )


# -- EM --------------------------------------------------------------------


def training_set(
    settings: argparse.Namespace, device: torch.device, filled: float
) -> SufficientStatistics:
    """Every speaker says every phrase once (or a part of them), drawn from a model with the ranks of the fit."""
    speakers, phrases, D = settings.em_speakers, settings.phrases, settings.dimension
    generator = torch.Generator(device=device).manual_seed(1)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, device=device)

    loadings = [normal(r, D) / r**0.5 for r in settings.ranks]
    phrase_offsets = normal(phrases, settings.ranks[1]) @ loadings[1]
    sums = DeviceAccumulator(D, {"speaker": speakers, "phrase": phrases})
    step = max(1, settings.chunk // phrases)
    for start in range(0, speakers, step):
        some = torch.arange(start, min(start + step, speakers), device=device)
        speaker, phrase = (
            some.repeat_interleave(phrases),
            torch.arange(phrases, device=device).repeat(len(some)),
        )
        if filled < 1:
            kept = torch.rand(len(speaker), generator=generator, device=device) < filled
            kept |= phrase == speaker % phrases
            speaker, phrase = speaker[kept], phrase[kept]
        X = normal(len(speaker), D)
        X += (normal(len(some), settings.ranks[0]) @ loadings[0])[speaker - start]
        X += phrase_offsets[phrase]
        sums.add(X, {"speaker": speaker, "phrase": phrase})
    return SufficientStatistics.of(sums)


def em(report: Report, settings: argparse.Namespace, device: torch.device) -> None:
    part, ranks = "EM", tuple(settings.ranks)
    floor = iteration_floor(settings, device)
    report.note(
        "EM of", {"speakers": settings.em_speakers, "phrases": settings.phrases, "ranks": ranks}
    )
    report.row(part, "bare: an iteration's float64 products", floor)
    for called, filled in (("all cells", 1.0), ("70 % of cells", 0.7)):
        start = time.perf_counter()
        stats = training_set(settings, device, filled)
        wait(device)
        report.row(
            part,
            f"{called}: vectors drawn and summed",
            time.perf_counter() - start,
            vectors=stats.n,
        )
        for noise in ("diagonal", "full") if filled == 1 else ("diagonal",):
            for by_count in (True, False) if noise == "diagonal" else (True,):
                fit_rows(
                    report, f"{called}, {noise} noise", stats, ranks, noise, by_count, floor, device
                )
        if filled == 1:
            start = time.perf_counter()
            model = MultiviewPLDA(dict(zip(VIEWS, ranks, strict=True)), max_iter=10, tol=0.0)
            model.fit_statistics(stats)
            rises = bool(
                np.diff(model.log_likelihoods_).min()
                >= -1e-9 * np.abs(model.log_likelihoods_).max()
            )
            whole = time.perf_counter() - start
            report.row(part, "model.fit_statistics, 10 iterations, everything", whole, rises=rises)
        del stats
        if device.type == "cuda":
            torch.cuda.empty_cache()


def prior(report: Report, settings: argparse.Namespace, device: torch.device) -> None:
    """The same vectors under the isotropic prior, where every loading is of full rank."""
    stats = training_set(settings, device, 1.0)
    wait(device)
    ends = [time.perf_counter()]
    model = MultiviewPLDA(
        dict.fromkeys(VIEWS),
        prior="isotropic",
        prior_strength=0.5,
        max_iter=6,
        tol=0.0,
        callback=lambda _: ends.append(time.perf_counter()),
    )
    model.fit_statistics(stats)
    times = np.diff(ends)
    peak = torch.cuda.max_memory_allocated(device) / 2**30 if device.type == "cuda" else None
    report.row(
        "Prior",
        "moments, tables, start, first iteration",
        times[0],
        algorithm=model.algorithm,
    )
    report.row("Prior", "an iteration", float(np.median(times[1:])), peak_GiB=peak)
    report.row(
        "Prior", "model.fit_statistics, 6 iterations, everything", time.perf_counter() - ends[0]
    )


def iteration_floor(settings: argparse.Namespace, device: torch.device) -> float:
    """Right-hand sides F B, F'M of the M step and M'M, of all speakers in float64."""
    C, D, r = settings.em_speakers, settings.dimension, settings.ranks[0]
    F = torch.ones((C, D), dtype=torch.float64, device=device)
    B, M = (
        F[:D, :r].clone() if C >= D else torch.ones((D, r), dtype=torch.float64, device=device),
        F[:, :r].clone(),
    )

    def work() -> None:
        F @ B
        F.T @ M
        M.T @ M

    return seconds(work, device, 3)


def fit_rows(
    report: Report,
    called: str,
    stats: SufficientStatistics,
    ranks: tuple[int, ...],
    noise: Any,
    by_count: bool,
    floor: float,
    device: torch.device,
) -> None:
    start = time.perf_counter()
    sums = stats.for_views(VIEWS, "full" if noise == "full" else "diagonal")
    design = replace(Design.of(sums, ranks, iterations=10), by_count=by_count)
    model = NoiseModel(noise, 1e-6 * stats.variance, stats.variance).on(sums.xp)
    begin = moment_start(sums, ranks, model, np.random.default_rng(0))
    wait(device)
    ready = time.perf_counter() - start
    ends: list[float] = [time.perf_counter()]
    fit = fit_em(
        design,
        begin,
        MaximumLikelihood(model),
        max_iter=8,
        tol=0.0,
        callback=lambda _: ends.append(time.perf_counter()),
    )
    times = np.diff(ends)
    how = "by count" if by_count else "row by row"
    report.row("EM", f"{called}, {how}: tables, start, first iteration", ready + times[0])
    report.row(
        "EM",
        f"{called}, {how}: an iteration",
        float(np.median(times[1:])),
        floor,
        gain=float(fit.log_likelihoods[-1] - fit.log_likelihoods[-2]) / stats.n,
        peak_GiB=torch.cuda.max_memory_allocated(device) / 2**30 if device.type == "cuda" else None,
    )


# -- agreement -------------------------------------------------------------


def agreement(report: Report, settings: argparse.Namespace, device: torch.device) -> None:
    """Largest difference of parameters between NumPy and the device, relative to the largest entry."""
    rng = np.random.default_rng(0)
    labels = {
        "speaker": rng.permutation(np.arange(6000) % 300),
        "phrase": rng.permutation(np.arange(6000) % 20),
    }
    X = 3 + rng.normal(size=(6000, 64))
    for codes, r in zip(labels.values(), (20, 10), strict=True):
        X += (rng.normal(size=(300, r)) @ rng.normal(size=(r, 64)))[codes] * 0.3
    found = {}
    for views in (
        {"speaker": 20},
        {"speaker": 20, "phrase": 10},
        {"speaker": 10, "phrase": 10, "speaker:phrase": 5},
    ):
        for noise in ("diagonal", "full"):
            host = MultiviewPLDA(views, noise=noise, max_iter=10, tol=0.0).fit(X, labels)  # type: ignore[arg-type]
            there = MultiviewPLDA(views, noise=noise, max_iter=10, tol=0.0)  # type: ignore[arg-type]
            there.fit(torch.from_numpy(X).to(device), labels)
            pairs = [(there.mean_, host.mean_), (there.noise_, host.noise_)]
            pairs += [(there.loadings_[view], host.loadings_[view]) for view in views]
            found[f"{'+'.join(views)}, {noise}"] = max(
                float(np.abs(a - b).max() / np.abs(b).max()) for a, b in pairs
            )
    settings_of_prior: Any = {
        "prior": "isotropic",
        "prior_strength": 0.5,
        "max_iter": 5,
        "tol": 0.0,
    }
    host, there = (MultiviewPLDA(dict.fromkeys(VIEWS), **settings_of_prior) for _ in range(2))
    host.fit(X, labels)
    there.fit(torch.from_numpy(X).to(device), labels)
    pairs = [(there.mean_, host.mean_), (there.noise_, host.noise_)]
    pairs += [
        (b @ b.T, host.loadings_[view] @ host.loadings_[view].T)
        for view, b in there.loadings_.items()
    ]
    found["speaker+phrase, prior"] = max(
        float(np.abs(a - b).max() / np.abs(b).max()) for a, b in pairs
    )
    report.note("largest difference of parameters from NumPy", found)
    assert max(found.values()) < 1e-6, found


def parts(settings: argparse.Namespace) -> Iterator[tuple[str, Callable[..., None]]]:
    known = {"agreement": agreement, "em": em, "prior": prior, "statistics": statistics}
    return ((name, known[name]) for name in known if name in settings.parts)


def main() -> int:
    words = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    words.add_argument("--output", type=Path, help="figures as JSON")
    words.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    words.add_argument("--vectors", type=int, default=10**9, help="vectors of the statistics")
    words.add_argument("--dimension", type=int, default=512)
    words.add_argument("--chunk", type=int, default=2**22, help="vectors that are drawn at a time")
    words.add_argument("--speakers", type=int, default=10**6, help="of the statistics")
    words.add_argument("--em-speakers", type=int, default=10**6)
    words.add_argument("--phrases", type=int, default=30)
    words.add_argument("--ranks", type=int, nargs=2, default=(150, 30))
    words.add_argument("--parts", nargs="+", default=("agreement", "em", "prior", "statistics"))
    settings = words.parse_args()
    device = torch.device(settings.device)
    report = Report(settings.output)
    report.note("torch", torch.__version__)
    report.note("device", torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU")
    failed = []
    for name, part in parts(settings):
        start = time.perf_counter()
        try:
            part(report, settings, device)
        except Exception as error:
            traceback.print_exc()
            failed.append(name)
            report.note(f"{name} failed", f"{type(error).__name__}: {error}"[:500])
        report.note(f"seconds of {name}", time.perf_counter() - start)
        if device.type == "cuda":
            torch.cuda.empty_cache()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
