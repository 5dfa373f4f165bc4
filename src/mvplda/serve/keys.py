"""Secrets: the master key, encryption at rest, the rotation of templates, and keys of callers."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import secrets
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.special import ndtri

from .._optional import need
from .._typing import Array
from ..exceptions import ParameterError

# Each may do what those before it may.
ROLES = ("verify", "enrol", "admin")
KEY_BYTES = 32
# Name in the environment: 32 bytes in base64, or @FILE with them.
MASTER = "MVPLDA_MASTER_KEY"
# Name in the environment of the key that a rotation changes to.
NEW_MASTER = "MVPLDA_NEW_MASTER_KEY"


# -- the master key, and what is made of it ------------------------------------------------


@dataclass(frozen=True)
class MasterKey:
    """The key from outside, from which others are derived: for wrapping data keys, for rotating templates."""

    key: bytes
    where: str

    @classmethod
    def find(cls, folder: Path | None, make: bool = True) -> MasterKey:
        """From the environment, else from a file in the data folder, which is created if it may be."""
        found = cls.from_environment(MASTER)
        if found is not None:
            return found
        if folder is None:
            raise ParameterError(
                f"set {MASTER} to 32 bytes in base64: hosts that share a database share the key"
            )
        path = folder / "master.key"
        if make and not path.exists():
            make_key_file(path)
        if not path.exists():
            raise ParameterError(
                f"there is no master key: neither is {MASTER} set, nor is there a file {path}"
            )
        return cls.from_file(path)

    @classmethod
    def from_environment(cls, name: str) -> MasterKey | None:
        text = os.environ.get(name, "")
        if text.startswith("@"):
            return cls.from_file(Path(text[1:]))
        return cls(decode_key(text, name), "environment") if text else None

    @classmethod
    def from_file(cls, path: Path) -> MasterKey:
        return cls(decode_key(path.read_text(encoding="utf-8"), str(path)), str(path))

    def derived(self, purpose: str) -> bytes:
        return hmac.digest(self.key, f"mvplda {purpose}".encode(), "sha256")

    @property
    def mark(self) -> str:
        """By which a database recognises its master key."""
        return self.derived("check").hex()


def make_key_file(path: Path) -> None:
    """Write a random key; where several processes do so at once, the first one's key stays, and is whole."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    scratch = path.with_name(f".master-{secrets.token_hex(4)}")
    handle = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(base64.b64encode(secrets.token_bytes(KEY_BYTES)) + b"\n")
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(scratch, path)
    except FileExistsError:
        pass
    finally:
        scratch.unlink()


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
    """AES-256-GCM: one data key per profile, wrapped by a key that lies elsewhere."""

    def __init__(self, master: MasterKey) -> None:
        self._cipher = need("cryptography.hazmat.primitives.ciphers.aead").AESGCM
        self._wrapping = master.derived("wrapping")

    def wrap(self, key: bytes, name: str) -> bytes:
        return self.seal(self._wrapping, key, name)

    def unwrap(self, wrapped: bytes, name: str) -> bytes:
        try:
            return self.open(self._wrapping, wrapped, name)
        except ValueError as error:
            raise ParameterError(
                "the master key is another one than that which the data were encrypted with"
            ) from error

    def seal(self, key: bytes, data: bytes, where: str) -> bytes:
        """Encrypt what belongs to a row, so that it opens in no other."""
        nonce = secrets.token_bytes(12)
        return bytes(nonce + self._cipher(key).encrypt(nonce, data, where.encode()))

    def open(self, key: bytes, data: bytes, where: str) -> bytes:
        from cryptography.exceptions import InvalidTag

        try:
            return bytes(self._cipher(key).decrypt(data[:12], data[12:], where.encode()))
        except InvalidTag as error:
            raise ValueError(
                f"what is stored of {where} does not open: it was changed, or the key is another"
            ) from error


def keyed_mark(key: bytes, digest: str) -> str:
    """A keyed hash: equal for equal sound of one profile, and nothing to whoever lacks its data key."""
    return hmac.digest(key, f"mark {digest}".encode(), "sha256").hex()[:32]


ROTATION_BLOCK = 320
"""Numbers of a vector that are rotated together."""


def rotation_matrix(secret: bytes, dimension: int) -> Array:
    """The orthogonal matrix of a secret, uniform among all, the same on every machine; none without a secret."""
    if not secret:
        return np.eye(dimension)
    drawn = hashlib.shake_256(secret + b" rotation").digest(8 * dimension**2)
    uniform = ((np.frombuffer(drawn, dtype="<u8") >> 11) + 0.5) / 2.0**53
    Q, R = np.linalg.qr(ndtri(uniform).reshape(dimension, dimension))
    # which is unique with a positive diagonal of R
    return np.asarray(Q * np.sign(np.diagonal(R)))


class TemplateRotation:
    """The rotation of stored sums: stretch by stretch, so that its matrices stay in a processor's cache."""

    def __init__(self, secret: bytes, dimension: int) -> None:
        self._parts = []
        for start in range(0, dimension, ROTATION_BLOCK):
            width = min(ROTATION_BLOCK, dimension - start)
            # every stretch has a matrix of its own
            own = secret + f" {start}".encode() if secret and start else secret
            self._parts.append((slice(start, start + width), rotation_matrix(own, width)))

    def there(self, y: Array) -> Array:
        """(n, dimension) rotated."""
        return np.hstack([y[:, place] @ Q.T for place, Q in self._parts])

    def back(self, y: Array) -> Array:
        return np.hstack([y[:, place] @ Q for place, Q in self._parts])


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
