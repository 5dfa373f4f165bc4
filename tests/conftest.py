"""Settings of the test run."""

from __future__ import annotations

import hashlib
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

BEFORE = pytest.StashKey[dict[str, str]]()

settings.register_profile(
    "mvplda",
    deadline=None,
    max_examples=15,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("mvplda")


PACKAGE = Path(__file__).parents[1] / "src" / "mvplda"


def fingerprints() -> dict[str, str]:
    """What every file of the package holds, caches of Python aside."""
    return {
        str(path.relative_to(PACKAGE)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(PACKAGE.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    wanted = [item for item in items if item.get_closest_marker("cuda")]
    if not wanted:
        return
    import torch

    if not torch.cuda.is_available():
        config.hook.pytest_deselected(items=wanted)
        items[:] = [item for item in items if item not in wanted]


def pytest_sessionstart(session: pytest.Session) -> None:
    session.config.stash[BEFORE] = fingerprints()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A run of the tests leaves the package as it was: golden numbers are never made by what they check."""
    if hasattr(session.config, "workerinput"):
        return
    before = session.config.stash[BEFORE]
    after = fingerprints()
    changed = sorted(
        name for name in before.keys() | after.keys() if before.get(name) != after.get(name)
    )
    if changed:
        print(f"\nthe tests changed files of the package: {', '.join(changed)}", file=sys.stderr)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture(scope="module")
def postgres() -> Iterator[Any]:
    """A PostgreSQL of the tests' own; where there is none, what wants it is skipped."""
    import service_postgres

    with service_postgres.running() as server:
        if server is None:
            pytest.skip("there is no PostgreSQL here")
        yield server
