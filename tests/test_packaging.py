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


def test_the_version_is_one() -> None:
    import mvplda

    cited = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    recipe = (ROOT / "packaging" / "conda" / "recipe.yaml").read_text(encoding="utf-8")
    log = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"\nversion: {mvplda.__version__}\n" in cited
    assert f'version: "{mvplda.__version__}"' in recipe
    assert f"\n## {mvplda.__version__}" in log


def test_the_conda_recipe_asks_for_the_same_versions() -> None:
    recipe = (ROOT / "packaging" / "conda" / "recipe.yaml").read_text(encoding="utf-8")
    for text in PROJECT["project"]["dependencies"]:
        found = Requirement(text)
        assert f"- {found.name} {found.specifier}" in recipe


def test_actions_are_pinned_by_hash() -> None:
    used = [
        line.partition("uses:")[2].split("#")[0].strip()
        for path in (ROOT / ".github" / "workflows").glob("*.yml")
        for line in path.read_text(encoding="utf-8").splitlines()
        if "uses:" in line
    ]
    assert used
    assert [name for name in used if len(name.partition("@")[2]) != 40] == []


def test_every_data_file_is_packaged() -> None:
    package = ROOT / "src" / "mvplda"
    patterns = PROJECT["tool"]["setuptools"]["package-data"]["mvplda"]
    packaged = {path for pattern in patterns for path in package.glob(pattern)}
    inside = {
        path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts
    }
    assert {path for path in inside if path.suffix != ".py"} - packaged == set()
