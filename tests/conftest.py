"""Settings of the test run."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# Small matrices on a few workers: threads of their own only get in each other's way.
for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

# what tests share: problems with known answers, dense densities, files, services
sys.path[:0] = [str(Path(__file__).parent / folder) for folder in ("support", "scoring")]

import pytest  # noqa: E402
from hypothesis import HealthCheck, settings  # noqa: E402

# programs that make golden numbers: they run by hand, and never while tests are collected
collect_ignore = ["golden"]

settings.register_profile(
    "mvplda",
    deadline=None,
    max_examples=15,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("mvplda")


@pytest.fixture(scope="module")
def postgres() -> Iterator[Any]:
    """A PostgreSQL of the tests' own; where there is none, what wants it is skipped."""
    import service_postgres

    with service_postgres.running() as server:
        if server is None:
            pytest.skip("there is no PostgreSQL here")
        yield server
