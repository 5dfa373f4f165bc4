"""What is declared of dependencies is what is tested."""

from __future__ import annotations

import email
import os
import re
import shutil
import subprocess
import sys
import tomllib
from email.message import Message
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


LINK = re.compile(r"\]\(([^)\s]+)\)")
METADATA = """
import sys
from setuptools import build_meta
folder = build_meta.prepare_metadata_for_build_wheel(sys.argv[1])
print(folder)
"""


def _metadata(folder: Path, **environment: str) -> Message:
    """Return the metadata of a wheel that is built with an environment."""
    project = folder / "project"
    package = project / "src" / "mvplda"
    package.mkdir(parents=True)
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, project)
    shutil.copy(ROOT / "src" / "mvplda" / "__init__.py", package)
    variables = {name: value for name, value in os.environ.items() if name != "SOURCE_URL"}
    subprocess.run(
        [sys.executable, "-c", METADATA, str(folder)],
        cwd=project,
        env=variables | environment,
        check=True,
        capture_output=True,
    )
    (file,) = folder.glob("*.dist-info/METADATA")
    return email.message_from_string(file.read_text(encoding="utf-8"))


def test_links_of_the_readme_are_absolute_on_an_index(tmp_path: Path) -> None:
    import mvplda

    source = "https://forge.example/team/mvplda"
    metadata = _metadata(tmp_path, SOURCE_URL=f"{source}/")
    text = str(metadata.get_payload())
    targets = LINK.findall(text)
    assert len(targets) == len(LINK.findall((ROOT / "README.md").read_text(encoding="utf-8")))
    assert [target for target in targets if not target.startswith(("https://", "#"))] == []
    start = f"{source}/blob/v{mvplda.__version__}/"
    files = [target.removeprefix(start) for target in targets if target.startswith(start)]
    assert len(files) > 20
    assert [name for name in files if not (ROOT / name.partition("#")[0]).exists()] == []
    assert f"]({source}/raw/v{mvplda.__version__}/docs/model.svg)" in text
    links = dict(link.split(", ", 1) for link in metadata.get_all("Project-URL") or ())
    assert set(links) == {"Source", "Issues", "Documentation", "Changelog", "Paper"}
    assert links["Source"] == source


def test_a_checkout_without_a_repository_names_none(tmp_path: Path) -> None:
    metadata = _metadata(tmp_path)
    text = str(metadata.get_payload())
    assert "](docs/model.svg)" in text
    assert metadata.get_all("Project-URL") == ["Paper, https://arxiv.org/abs/1704.06061"]
