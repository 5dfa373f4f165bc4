"""What is declared of dependencies is what is tested."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
UNTESTED = {"torch"}
"""The oldest torch is too large to install for a test: see constraints-oldest.txt."""


def _declared() -> list[Requirement]:
    project = PROJECT["project"]
    texts = [
        *project["dependencies"],
        *(text for extra in project["optional-dependencies"].values() for text in extra),
        *PROJECT["dependency-groups"]["test"],
    ]
    return [found for found in map(Requirement, texts) if found.name != project["name"]]


def _pinned(name: str) -> dict[str, str]:
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    pairs = (line.split("==") for line in lines if line and not line.startswith("#"))
    return {package.lower(): version for package, version in pairs}


@pytest.mark.parametrize("requirement", _declared(), ids=lambda requirement: requirement.name)
def test_every_minimum_is_the_version_that_test_oldest_installs(requirement: Requirement) -> None:
    least = [Version(part.version) for part in requirement.specifier if part.operator == ">="]
    assert len(least) == 1, f"{requirement.name} has no minimum"
    tested = Version(_pinned("constraints-oldest.txt")[requirement.name.lower()])
    if requirement.name not in UNTESTED:
        assert tested.release[: len(least[0].release)] == least[0].release


def test_the_extra_all_holds_every_extra() -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    (everything,) = map(Requirement, extras["all"])
    assert everything.extras == set(extras) - {"all"}
