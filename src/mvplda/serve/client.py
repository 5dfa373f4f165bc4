"""A thin client of the service, on the standard library alone."""

from __future__ import annotations

import http.client
import json
import mimetypes
import os
import secrets
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..exceptions import ParameterError, ServiceError

Sound = str | os.PathLike[str] | bytes
"""A file, or the bytes of one."""


class Client:
    """Calls to a service of ``mvplda serve``; answers are as it says them, in plain dicts.

    Parameters
    ----------
    url : where it is
    key : an API key; by default that of the environment, MVPLDA_API_KEY
    timeout : seconds

    Examples
    --------
    A voice is enrolled, and verified::

        client = mvplda.Client("http://127.0.0.1:8765")
        ann = client.create("ann", "my voice is my key", consent="I agree")["profileId"]
        for take in ("1.wav", "2.wav", "3.wav"):
            client.enrol(ann, take)
        client.verify(ann, "now.wav", far=0.01)["decision"]
    """

    def __init__(
        self, url: str = "http://127.0.0.1:8765", key: str | None = None, *, timeout: float = 30.0
    ) -> None:
        self.url, self.timeout = url.rstrip("/"), timeout
        self._key = key if key is not None else os.environ.get("MVPLDA_API_KEY", "")
        if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
            raise ParameterError(f"a service is at http://... or https://...; got {url!r}")
        if not self._key.isascii() or not self._key.isprintable():
            raise ParameterError(
                "the API key has characters that no key has: look how it was copied"
            )

    def create(
        self, user: str | None = None, phrase: str | None = None, *, consent: str
    ) -> dict[str, Any]:
        """Make a profile of a person who has agreed to the text of `consent`."""
        body = {"userId": user, "phrase": phrase, "consent": {"given": True, "text": consent}}
        return self._call("POST", "/v1/profiles", body)

    def profile(self, profile: str) -> dict[str, Any]:
        return self._call("GET", _place(profile))

    def profiles(self, user: str | None = None) -> Iterator[dict[str, Any]]:
        """All profiles, or those of a user, page by page."""
        return self._pages("/v1/profiles", {"userId": user})

    def enrol(
        self,
        profile: str,
        sound: Sound | None = None,
        *,
        vector: Any = None,
        phrase: str | None = None,
    ) -> dict[str, Any]:
        """Add a recording, or a vector of one; a refusal is a `ServiceError` with a reason."""
        return self._sound(_place(profile, "enrollments"), sound, vector, {"phrase": phrase})

    def verify(
        self,
        profile: str,
        sound: Sound | None = None,
        *,
        vector: Any = None,
        **fields: Any,
    ) -> dict[str, Any]:
        """Decide; `fields` are phrase, challengeId, far, prior, missCost, falseAlarmCost, countermeasureLlr."""
        return self._sound(_place(profile, "verify"), sound, vector, fields)

    def identify(
        self, sound: Sound | None = None, *, vector: Any = None, **fields: Any
    ) -> dict[str, Any]:
        """Rank all profiles, or `candidates`; `top` of them, and the probability of none."""
        return self._sound("/v1/identify", sound, vector, fields)

    def challenge(self, profile: str) -> dict[str, Any]:
        return self._call("POST", "/v1/challenges", {"profileId": profile})

    def remove_enrolment(self, profile: str, number: int) -> dict[str, Any]:
        return self._call("DELETE", _place(profile, "enrollments", str(number)))

    def reset(self, profile: str) -> dict[str, Any]:
        return self._call("POST", _place(profile, "reset"))

    def opt_out(self, profile: str) -> dict[str, Any]:
        return self._call("POST", _place(profile, "opt-out"))

    def delete(self, profile: str) -> dict[str, Any]:
        return self._call("DELETE", _place(profile))

    def export(self, profile: str) -> dict[str, Any]:
        return self._call("GET", _place(profile, "export"))

    def audit(self, **fields: Any) -> Iterator[dict[str, Any]]:
        """The record, newest first; `fields` are profileId, resultId, action."""
        return self._pages("/v1/audit", fields)

    def phrases(self) -> Iterator[dict[str, Any]]:
        return self._pages("/v1/phrases", {})

    def model(self) -> dict[str, Any]:
        return self._call("GET", "/v1/model")

    def health(self) -> dict[str, Any]:
        return self._call("GET", "/v1/health")

    # -- inside --------------------------------------------------------------

    def _pages(self, path: str, fields: dict[str, Any]) -> Iterator[dict[str, Any]]:
        after: str | None = None
        while True:
            query = {
                k: v for k, v in {**fields, "after": after, "top": 200}.items() if v is not None
            }
            page = self._call("GET", f"{path}?{urllib.parse.urlencode(query)}")
            yield from page["items"]
            after = page["next"]
            if after is None:
                return

    def _sound(self, path: str, sound: Any, vector: Any, fields: dict[str, Any]) -> dict[str, Any]:
        fields = {name: value for name, value in fields.items() if value is not None}
        if vector is not None:
            numbers = [float(number) for number in vector]
            return self._call("POST", path, {**fields, "vector": numbers})
        if sound is None:
            raise ServiceError(0, {"detail": "give sound or a vector"})
        mark = secrets.token_hex(16)
        texts = {
            name: ",".join(v) if isinstance(v, (list, tuple)) else str(v)
            for name, v in fields.items()
        }
        parts = [_part(mark, f'name="{name}"', text.encode()) for name, text in texts.items()]
        name = "take.wav"
        data = sound
        if not isinstance(sound, bytes):
            name = Path(sound).name.replace('"', "")
            data = Path(sound).read_bytes()
        kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
        parts.append(_part(mark, f'name="audio"; filename="{name}"', data, kind))
        body = b"".join(parts) + f"--{mark}--\r\n".encode()
        return self._send("POST", path, body, f"multipart/form-data; boundary={mark}")

    def _call(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        data = None if body is None else json.dumps(body).encode()
        return self._send(method, path, data, "application/json" if body is not None else None)

    def _send(self, method: str, path: str, data: bytes | None, kind: str | None) -> dict[str, Any]:
        headers = {"Accept": "application/json"}
        if kind:
            headers["Content-Type"] = kind
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        if self._key:
            request.add_unredirected_header(
                "X-API-Key", self._key
            )  # not sent on to where a redirection points
        try:
            with urllib.request.urlopen(request, timeout=self.timeout) as answer:
                said = answer.read()
        except urllib.error.HTTPError as error:
            with error:
                said = error.read()
            raise ServiceError(error.code, _json(said)) from None
        except (OSError, http.client.HTTPException) as error:
            raise ServiceError(0, {"detail": f"{self.url} does not answer: {error}"}) from error
        return _json(said)


def _place(*parts: str) -> str:
    return "/v1/profiles/" + "/".join(urllib.parse.quote(part, safe="") for part in parts)


def _part(mark: str, about: str, data: bytes, kind: str | None = None) -> bytes:
    head = f"--{mark}\r\nContent-Disposition: form-data; {about}\r\n" + (
        f"Content-Type: {kind}\r\n" if kind else ""
    )
    return head.encode() + b"\r\n" + data + b"\r\n"


def _json(said: bytes) -> dict[str, Any]:
    try:
        found = json.loads(said or b"{}")
    except ValueError:
        found = {"detail": said[:300].decode(errors="replace")}
    return found if isinstance(found, dict) else {"detail": str(found)}
