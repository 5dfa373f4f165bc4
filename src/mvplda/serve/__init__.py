"""A service that verifies speaker and phrase: HTTP, profiles, decisions, and the page to try it."""

from __future__ import annotations

from .._optional import need

# every module below imports these as if they were there
for _module in (
    "cryptography",
    "fastapi",
    "pydantic_settings",
    "sqlalchemy",
    "uvicorn",
):
    need(_module)
