"""Secrets: the master key, encryption at rest, the rotation of templates, and API keys of callers."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, ClassVar

import numpy as np
from pydantic import ConfigDict, Field
from scipy.special import ndtri

from .._optional import need
from .._typing import Array
from ..exceptions import ParameterError
from .schemas import Detail, Require

# In ascending order: each role includes the ones before it.
ROLES = ("verify", "enrol", "admin")
KEY_BYTES = 32
# Environment variable of the master key: 32 bytes in base64, or @FILE.
MASTER = "MVPLDA_MASTER_KEY"
# Environment variable of the key that a rotation changes to.
NEW_MASTER = "MVPLDA_NEW_MASTER_KEY"
# Bytes of the mark of a master key that precede a wrapped data key.
MARK_BYTES = 8
# Hexadecimal digits of the same bytes, by which stored data name their master key.
MARK_DIGITS = 2 * MARK_BYTES
# File of the master key in the data folder, and of the key that a rotation changes to.
MASTER_FILE = "master.key"
NEW_MASTER_FILE = "master.key.new"
# Length of a wrapped data key: mark, nonce, key and tag.
WRAPPED_BYTES = MARK_BYTES + 12 + KEY_BYTES + 16
# Seconds between two searches for a master key that is not known yet.
SEARCH_S = 1.0


# -- the master key and keys derived from it ------------------------------------------------


@dataclass(frozen=True)
class MasterKey:
    """The operator's key, from which the keys for wrapping data keys and rotating templates are derived.

    source : "environment", or the path of its file
    """

    key: bytes
    source: str

    @classmethod
    def find(cls, folder: Path | None, create: bool = True) -> MasterKey:
        """Return the master key from the environment, or else from the key file in the data folder.

        create : write a file with a random key if there is none
        """
        key = cls.from_environment(MASTER)
        if key is not None:
            return key
        if folder is None:
            raise ParameterError(
                f"set {MASTER} to 32 random bytes in base64, the same on all hosts that share the database"
            )
        path = folder / MASTER_FILE
        if create and not path.exists():
            make_key_file(path)
        if not path.exists():
            raise ParameterError(
                f"there is no master key: set {MASTER}, or restore the file {path}"
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

    @cached_property
    def mark(self) -> str:
        """Mark: a hash that identifies the key. The database stores it, to refuse other keys."""
        return self.derived("check").hex()


class UnknownMasterKey(ParameterError):
    """Data were encrypted with a master key that this process does not have.

    mark : first digits of the key's mark, see `MasterKey.mark`
    """

    def __init__(self, mark: str) -> None:
        super().__init__("the master key differs from the one that the data were encrypted with")
        self.mark = mark


class KeyRing:
    """Master keys of a process: one, or two while the master key is changed.

    Parameters
    ----------
    masters : the first one is used for a new database
    search : returns the keys that can be found now, to learn of a new key without a restart
    """

    def __init__(
        self,
        masters: Sequence[MasterKey],
        search: Callable[[], Sequence[MasterKey]] | None = None,
    ) -> None:
        self.first = masters[0]
        self._search = search
        self._searched_at = -SEARCH_S
        # of equal keys the first one
        self._masters = {master.mark: master for master in reversed(masters)}

    def find(self, mark: str) -> MasterKey | None:
        """Return the key with this mark, or with a mark that starts with these digits; None if there is none."""
        master = self._known(mark)
        if master is None and self._search is not None:
            if time.monotonic() < self._searched_at + SEARCH_S:
                return None
            self._searched_at = time.monotonic()
            found = {master.mark: master for master in self._search()}
            self._masters = self._masters | found
            master = self._known(mark)
        return master

    def _known(self, mark: str) -> MasterKey | None:
        if mark in self._masters:
            return self._masters[mark]
        for known, master in self._masters.items():
            if mark and known.startswith(mark):
                return master
        return None

    def with_first(self, first: MasterKey) -> KeyRing:
        """Return the same keys with another first one."""
        others = [master for master in self.all() if master.key != first.key]
        return KeyRing([first, *others], self._search)

    def all(self) -> list[MasterKey]:
        return list(self._masters.values())


def find_masters(folder: Path | None) -> list[MasterKey]:
    """Return the master keys that exist now: the present one, and the one that a rotation changes to.

    They come from the environment, else from files in the data folder.
    """
    if os.environ.get(MASTER):
        return read_masters(
            partial(MasterKey.from_environment, name) for name in (MASTER, NEW_MASTER)
        )
    if folder is None:
        return []
    paths = [folder / name for name in (MASTER_FILE, NEW_MASTER_FILE)]
    return read_masters(partial(MasterKey.from_file, path) for path in paths)


def read_masters(sources: Iterable[Callable[[], MasterKey | None]]) -> list[MasterKey]:
    """Return the master keys of sources; keys that are not there, or not complete yet, are left out."""
    masters = []
    for read in sources:
        with suppress(OSError, ParameterError):
            master = read()
            if master is not None:
                masters.append(master)
    return masters


def make_key_file(path: Path) -> None:
    """Write a random key, unless the file exists.

    If several processes do so at the same time, the first complete file stays.
    """
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


def decode_key(text: str, source: str) -> bytes:
    try:
        key = base64.b64decode(text.strip(), validate=True)
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise ParameterError(
            f"expected a key of 32 bytes in base64 in {source}, as printed by `openssl rand -base64 32`"
        )
    return key


class Vault:
    """Encryption by AES-256-GCM: one data key per profile, wrapped by a key derived from the master key.

    A wrapped data key starts with the first bytes of the mark of its master key.
    """

    def __init__(self, masters: KeyRing | MasterKey) -> None:
        self._cipher = need("cryptography.hazmat.primitives.ciphers.aead").AESGCM
        self.masters = masters if isinstance(masters, KeyRing) else KeyRing([masters])

    def wrap(self, key: bytes, name: str, mark: str | None = None) -> bytes:
        """Encrypt a data key with the master key that has this mark (`MasterKey.mark`); default: the first key."""
        master = self.masters.first if mark is None else self.masters.find(mark)
        if master is None:
            raise UnknownMasterKey(str(mark))
        wrapped = self.seal(master.derived("wrapping"), key, name)
        return bytes.fromhex(master.mark)[:MARK_BYTES] + wrapped

    def unwrap(self, wrapped: bytes, name: str) -> bytes:
        """Return a data key; raise `ValueError` if it is damaged."""
        if not isinstance(wrapped, bytes) or len(wrapped) != WRAPPED_BYTES:
            raise ValueError(f"the data key of {name} has another length than data keys have")
        mark = wrapped[:MARK_BYTES].hex()
        master = self.masters.find(mark)
        if master is None:
            raise UnknownMasterKey(mark)
        return self.open(master.derived("wrapping"), wrapped[MARK_BYTES:], name)

    def seal(self, key: bytes, data: bytes, address: str) -> bytes:
        """Encrypt data of one row; it can be decrypted with the address of this row only."""
        nonce = secrets.token_bytes(12)
        return bytes(nonce + self._cipher(key).encrypt(nonce, data, address.encode()))

    def open(self, key: bytes, data: bytes, address: str) -> bytes:
        from cryptography.exceptions import InvalidTag

        try:
            if not isinstance(data, bytes):
                raise ValueError("SQLite stores any type in any column")
            return bytes(self._cipher(key).decrypt(data[:12], data[12:], address.encode()))
        except (InvalidTag, ValueError) as error:
            raise ValueError(
                f"the data of {address} cannot be decrypted: they were changed, or the key is wrong"
            ) from error


def keyed_mark(key: bytes, digest: str) -> str:
    """Return a keyed hash: equal for equal recordings of one profile, and useless without its data key."""
    return hmac.digest(key, f"mark {digest}".encode(), "sha256").hex()[:32]


ROTATION_BLOCK = 320
"""Components of a vector that are rotated together."""


def rotation_matrix(secret: bytes, dimension: int) -> Array:
    """Return the orthogonal matrix of a secret, drawn uniformly; the identity for an empty secret.

    It is the same on every machine.
    """
    if not secret:
        return np.eye(dimension)
    random_bytes = hashlib.shake_256(secret + b" rotation").digest(8 * dimension**2)
    uniform = ((np.frombuffer(random_bytes, dtype="<u8") >> 11) + 0.5) / 2.0**53
    Q, R = np.linalg.qr(ndtri(uniform).reshape(dimension, dimension))
    # the decomposition is unique if the diagonal of R is positive
    return np.asarray(Q * np.sign(np.diagonal(R)))


class TemplateRotation:
    """Rotation of stored sums, block by block, so that its matrices stay in a processor's cache."""

    def __init__(self, secret: bytes, dimension: int) -> None:
        self._blocks = []
        for start in range(0, dimension, ROTATION_BLOCK):
            width = min(ROTATION_BLOCK, dimension - start)
            # every block has its own matrix
            block_secret = secret + f" {start}".encode() if secret and start else secret
            columns = slice(start, start + width)
            self._blocks.append((columns, rotation_matrix(block_secret, width)))

    def apply(self, y: Array) -> Array:
        """Return (n, dimension) rotated vectors."""
        return np.hstack([y[:, columns] @ Q.T for columns, Q in self._blocks])

    def undo(self, y: Array) -> Array:
        return np.hstack([y[:, columns] @ Q for columns, Q in self._blocks])


# -- keys of callers -----------------------------------------------------------------------


@dataclass(frozen=True)
class KeyPolicy:
    """Policy of an API key; None: the default of its role.

    detail : fields of a decision that its caller sees: the verdict; the verdict of each half too; or all evidence
    far : largest share of impostors that its caller may choose
    require : protection against replayed and synthetic voices that each verification must have
    """

    # for policies in the environment
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    detail: Detail | None = None
    far: Annotated[float, Field(gt=0, lt=1)] | None = None
    require: Require | None = None


DEFAULT_POLICY = KeyPolicy()


@dataclass(frozen=True)
class Caller:
    """The caller of an endpoint: name, role, policy and tenant of its API key.

    tenant : None for the people of the service itself
    """

    name: str
    role: str
    policy: KeyPolicy = DEFAULT_POLICY
    tenant: str | None = None

    @property
    def detail(self) -> Detail:
        """Detail of the decisions that the caller sees; default: the verdict for the role verify, else all evidence."""
        return self.policy.detail or ("verdict" if self.role == "verify" else "evidence")

    def may(self, role: str) -> bool:
        """Return whether the caller's role includes another one."""
        return ROLES.index(self.role) >= ROLES.index(role)


def new_api_key() -> str:
    """Return a random key; because it is random, storing a plain hash of it is safe."""
    return "mvp_" + secrets.token_urlsafe(KEY_BYTES)


def key_hash(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()
