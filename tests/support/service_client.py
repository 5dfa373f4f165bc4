"""Calls to a running service, for tests and benchmarks; a client of one's own is generated from /openapi.json."""

from __future__ import annotations

from typing import Any

import httpx
import numpy as np


class Refused(Exception):
    """An answer that is no success; status 0: no answer."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status


class Client:
    """Answers are as the service gives them, in plain dicts."""

    def __init__(self, url: str, key: str = "", timeout: float = 30.0) -> None:
        headers = {"X-API-Key": key} if key else {}
        self._http = httpx.Client(base_url=url, headers=headers, timeout=timeout)

    def __call__(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        try:
            answer = self._http.request(method, f"/v1/{path}", **options)
        except httpx.HTTPError as error:
            raise Refused(0, str(error)) from error
        found: dict[str, Any] = answer.json()
        if not answer.is_success:
            raise Refused(answer.status_code, found["detail"])
        return found

    def create(self, user: str, phrase: str) -> str:
        body = {"userId": user, "phrase": phrase, "consent": {"given": True, "text": "yes"}}
        return str(self("POST", "profiles", json=body)["profileId"])

    def enrol(self, name: str, vector: Any, **fields: Any) -> dict[str, Any]:
        body = {"vector": np.asarray(vector).tolist(), **fields}
        return self("POST", f"profiles/{name}/enrollments", json=body)

    def verify(self, name: str, vector: Any, **fields: Any) -> dict[str, Any]:
        body = {"vector": np.asarray(vector).tolist(), **fields}
        return self("POST", f"profiles/{name}/verify", json=body)

    def identify(self, vector: Any) -> dict[str, Any]:
        return self("POST", "identify", json={"vector": np.asarray(vector).tolist()})
