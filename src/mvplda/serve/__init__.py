"""A service that verifies speaker and phrase: HTTP, profiles, decisions, and the page to try it."""

from __future__ import annotations

from .._optional import need

for module in ("cryptography", "fastapi", "pydantic_settings", "sqlalchemy", "uvicorn"):
    need(module)
