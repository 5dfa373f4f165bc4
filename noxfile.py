#!/usr/bin/env -S uv run --script

# /// script
# dependencies = ["nox>=2025.2.9"]
# ///
"""The same tasks as the Makefile's, on every Python that is there: ``nox``, or ``nox -s tests-3.13``."""

import nox

nox.needs_version = ">=2025.2.9"
nox.options.default_venv_backend = "uv|virtualenv"
PROJECT = nox.project.load_toml("pyproject.toml")
# classifiers name only the versions that were tried
PYTHONS = nox.project.python_versions(PROJECT, max_version="3.14")


def install(session: nox.Session, extras: str, *groups: str) -> None:
    named = [word for group in groups for word in nox.project.dependency_groups(PROJECT, group)]
    session.install("-c", "constraints.txt", f"-e.[{extras}]", *named)


@nox.session
def lint(session: nox.Session) -> None:
    """Style and types."""
    install(session, "all", "test", "lint")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("mypy")


@nox.session(python=PYTHONS)
def tests(session: nox.Session) -> None:
    """The tests without the slow ones; arguments go to pytest."""
    install(session, "all", "test")
    session.run("pytest", "-m", "not slow", *session.posargs)


@nox.session(default=False)
def docs(session: nox.Session) -> None:
    """The site; a warning is an error."""
    install(session, "all", "docs")
    session.run("sphinx-build", "-W", "-d", "docs/_build/trees", "docs", "docs/_build/html")
    session.run("python", "tests/site_pages.py", "docs/_build/html")


@nox.session(default=False)
def build(session: nox.Session) -> None:
    """Wheel and source archive, and the wheel tried in a clean environment."""
    session.install("build")
    session.run("python", "-m", "build")
    session.run("python", "tests/wheel.py", "dist")


if __name__ == "__main__":
    nox.main()
