"""Measurement of run time (seconds on one thread, best of several rounds) and of peak memory beyond the input."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
ONE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")


def best_of(
    rows: Mapping[str, Callable[[], object]],
    rounds: int,
    clock: Callable[[], float] = time.process_time,
) -> dict[str, float]:
    """Least seconds of every row. The rows take turns, so that a noisy moment spares none of them.

    With one thread CPU seconds are the seconds on the wall of a quiet machine; with several, give
    ``clock=time.perf_counter``.
    """
    best = dict.fromkeys(rows, float("inf"))
    for _ in range(rounds):
        for name, call in rows.items():
            start = clock()
            call()
            best[name] = min(best[name], clock() - start)
    return best


def extra_memory(call: Callable[[], object]) -> float:
    """MiB at the peak of a call above what was in use before it, as Linux counts pages.

    (``getrusage`` will not do: a new process begins with the peak of its parent.)
    """

    def pages(name: str) -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return int(next(line.split()[1] for line in lines if line.startswith(name)))

    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = pages("VmRSS:")
    call()
    return (pages("VmHWM:") - before) / 1024


def in_another_process(module: str, *arguments: Any, python: str = sys.executable) -> Any:
    """What ``python -m module arguments`` prints as JSON, with one BLAS thread."""
    command = [python, "-m", module, *(json.dumps(a) for a in arguments)]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **ONE_THREAD}, capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or ["no message"])[-1])
    return json.loads(done.stdout.strip().splitlines()[-1])
