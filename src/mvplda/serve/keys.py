"""Secrets: keys of callers, encryption at rest, the rotation of templates, and how often one may ask."""

from __future__ import annotations

import base64
import hashlib
import hmac
import math
import os
import secrets
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .._optional import need
from .._typing import Array
from ..exceptions import ParameterError

ROLES = ("verify", "enrol", "admin")
"""Each may do what those before it may."""
KEY_BYTES = 32
MASTER = "MVPLDA_MASTER_KEY"
"""Name in the environment: 32 bytes in base64, or @FILE with them."""
BUCKETS = 10_000
"""Keys and profiles whose rates are remembered at once, the latest ones."""


# -- the master key, and what is made of it ------------------------------------------------


@dataclass(frozen=True)
class Master:
    """The key from outside. From it come a key that wraps data keys, one that turns templates, one that marks audio."""

    key: bytes
    where: str

    @classmethod
    def find(cls, folder: Path | None, make: bool = True) -> Master:
        """From the environment, else from a file in the data folder, which is made if it may be."""
        text = os.environ.get(MASTER, "")
        if text.startswith("@"):
            return cls(decode_key(Path(text[1:]).read_text(encoding="utf-8"), text[1:]), text[1:])
        if text:
            return cls(decode_key(text, MASTER), "environment")
        if folder is None:
            raise ParameterError(
                f"set {MASTER} to 32 bytes in base64: several hosts share a database, and so the key"
            )
        place = folder / "master.key"
        if not place.exists() and not make:
            raise ParameterError(
                f"there is no master key: neither is {MASTER} set, nor is there a file {place}"
            )
        if not place.exists():
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            made = base64.b64encode(secrets.token_bytes(KEY_BYTES))
            scratch = folder / f".master-{secrets.token_hex(4)}"
            handle = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "wb") as file:
                file.write(made + b"\n")
                file.flush()
                os.fsync(file.fileno())
            try:
                os.link(scratch, place)  # the first of several processes wins, and its key is whole
            except FileExistsError:
                pass
            finally:
                scratch.unlink()
        return cls(decode_key(place.read_text(encoding="utf-8"), str(place)), str(place))

    def derived(self, purpose: str) -> bytes:
        return hmac.new(self.key, f"mvplda {purpose}".encode(), hashlib.sha256).digest()


def decode_key(text: str, where: str) -> bytes:
    try:
        key = base64.b64decode(text.strip(), validate=True)
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise ParameterError(
            f"{where} holds no key: 32 bytes in base64 were expected, as `openssl rand -base64 32` gives them"
        )
    return key


class Vault:
    """AES-256-GCM: a data key a profile, wrapped by a key that lies elsewhere."""

    def __init__(self, master: Master) -> None:
        self._cipher = need("cryptography.hazmat.primitives.ciphers.aead").AESGCM
        self._wrapping = self._cipher(master.derived("wrapping"))
        self._marks = master.derived("marks")

    def new_key(self, profile: str) -> tuple[bytes, bytes]:
        """A data key, and the same wrapped."""
        key = secrets.token_bytes(KEY_BYTES)
        return key, self._seal(self._wrapping, key, profile)

    def unwrap(self, wrapped: bytes, profile: str) -> bytes:
        try:
            return self._open(self._wrapping, wrapped, profile)
        except ValueError as error:
            raise ParameterError(
                "the master key is another one than that which the data were encrypted with"
            ) from error

    def seal(self, key: bytes, data: bytes, where: str) -> bytes:
        """Encrypt what belongs to a place, so that it opens nowhere else."""
        return self._seal(self._cipher(key), data, where)

    def open(self, key: bytes, data: bytes, where: str) -> bytes:
        return self._open(self._cipher(key), data, where)

    def mark(self, profile: str, digest: str) -> str:
        """A keyed hash: equal for equal sound of one profile, and nothing to whoever lacks the key."""
        return hmac.new(self._marks, f"{profile} {digest}".encode(), hashlib.sha256).hexdigest()[
            :32
        ]

    @staticmethod
    def _seal(cipher: object, data: bytes, where: str) -> bytes:
        nonce = secrets.token_bytes(12)
        return nonce + cipher.encrypt(nonce, data, where.encode())  # type: ignore[attr-defined, no-any-return]

    @staticmethod
    def _open(cipher: object, data: bytes, where: str) -> bytes:
        from cryptography.exceptions import InvalidTag

        try:
            return cipher.decrypt(data[:12], data[12:], where.encode())  # type: ignore[attr-defined, no-any-return]
        except InvalidTag as error:
            raise ValueError(
                f"what is stored of {where} does not open: it was changed, or the key is another"
            ) from error


def rotation(secret: bytes, dimension: int) -> Array:
    """The orthogonal matrix of a secret: a product of reflections, the same on every machine; none without a secret.

    The normals of the reflections are uniform on the sphere, from the bytes of SHAKE-256 by the method of Box and
    Muller.
    """
    turn = np.eye(dimension)
    if not secret:
        return turn
    pairs = (dimension * dimension + 1) // 2
    drawn = np.frombuffer(hashlib.shake_256(secret + b" rotation").digest(16 * pairs), dtype="<u8")
    uniform = (drawn.reshape(2, pairs) + 0.5) / 2.0**64
    angle, radius = 2 * np.pi * uniform[0], np.sqrt(-2 * np.log(uniform[1]))
    normals = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[
        : dimension * dimension
    ]
    for normal in normals.reshape(dimension, dimension):
        turn -= np.outer(normal * (2 / (normal @ normal)), normal @ turn)
    return turn


# -- keys of callers -----------------------------------------------------------------------


@dataclass(frozen=True)
class Caller:
    """Who asks: the name of a key, and its role."""

    name: str
    role: str

    def may(self, role: str) -> bool:
        return ROLES.index(self.role) >= ROLES.index(role)


def new_api_key() -> str:
    """Random, so that a plain hash of it is as good as a slow one."""
    return "mvp_" + secrets.token_urlsafe(KEY_BYTES)


def key_hash(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


# -- how often -----------------------------------------------------------------------------


class Rates:
    """Token buckets by name: so many a minute, and as many at once."""

    def __init__(self, a_minute: float) -> None:
        self.a_minute = a_minute
        self._lock = threading.Lock()
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait(self, name: str, now: float | None = None) -> float:
        """0 where the call may go on, else the seconds after which it may."""
        if not self.a_minute or math.isinf(self.a_minute):
            return 0.0
        now = time.monotonic() if now is None else now
        with self._lock:
            left, at = self._left.pop(name, (self.a_minute, now))
            left = min(self.a_minute, left + (now - at) * self.a_minute / 60)
            if left < 1:
                self._left[name] = (left, now)
                return (1 - left) * 60 / self.a_minute
            self._left[name] = (left - 1, now)
            while len(self._left) > BUCKETS:
                self._left.popitem(last=False)
            return 0.0
