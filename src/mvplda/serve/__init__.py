"""Service that verifies speaker and phrase over HTTP: stored profiles, decisions, and a web page to try it."""

from __future__ import annotations

from .._optional import need

# the modules of this package import these without a check of their own
for _module in (
    "cryptography",
    "fastapi",
    "pydantic_settings",
    "sqlalchemy",
    "uvicorn",
):
    need(_module)
