"""Links of the package: with ``SOURCE_URL``, those of the README are absolute and the metadata name the repository.

An index shows the README without the repository around it. ``SOURCE_URL=https://forge/owner/name make dist`` therefore
builds archives whose README links to the files of that version. Everything else is in pyproject.toml.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).resolve().parent
PAPER = "https://arxiv.org/abs/1704.06061"
IMAGES = (".svg", ".png")


def version() -> str:
    """Return the version, without importing the package."""
    text = (ROOT / "src" / "mvplda" / "__init__.py").read_text(encoding="utf-8")
    found = re.search(r'^__version__ = "(.+)"$', text, flags=re.MULTILINE)
    if found is None:
        raise ValueError("src/mvplda/__init__.py: expected a line __version__ = ...")
    return found[1]


def absolute_links(text: str, source: str, version: str) -> str:
    """Return Markdown whose relative links name files of a version in a repository."""

    def replaced(match: re.Match[str]) -> str:
        target = match[1]
        if re.match(r"[a-z]+:|#", target):
            return match[0]
        kind = "raw" if target.endswith(IMAGES) else "blob"
        return f"]({source}/{kind}/v{version}/{target})"

    return re.sub(r"\]\(([^)\s]+)\)", replaced, text)


def project_urls(source: str, version: str) -> dict[str, str]:
    """Return the links of the metadata; without a repository, the paper alone."""
    if not source:
        return {"Paper": PAPER}
    files = f"{source}/blob/v{version}"
    return {
        "Source": source,
        "Issues": f"{source}/issues",
        "Documentation": f"{files}/docs/guide.md",
        "Changelog": f"{files}/CHANGELOG.md",
        "Paper": PAPER,
    }


def readme(source: str, version: str) -> str:
    """Return the README, with absolute links if there is a repository."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return absolute_links(text, source, version) if source else text


if __name__ == "__main__":
    SOURCE = os.environ.get("SOURCE_URL", "").rstrip("/")
    setup(
        long_description=readme(SOURCE, version()),
        long_description_content_type="text/markdown",
        project_urls=project_urls(SOURCE, version()),
    )
