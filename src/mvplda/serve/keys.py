"""Secrets: the master key, encryption of stored data, rotation of stored vectors, and API keys of callers."""

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

# Roles of API keys in ascending order: each role may do what the roles before it may do.
ROLES = ("verify", "enrol", "admin")
KEY_BYTES = 32
# Environment variable with the master key: 32 bytes in base64, or @FILE for a file that contains them.
MASTER = "MVPLDA_MASTER_KEY"
# Environment variable with the new master key, to which a rotation changes.
NEW_MASTER = "MVPLDA_NEW_MASTER_KEY"
# A wrapped (encrypted) data key begins with so many bytes of the mark of its master key.
MARK_BYTES = 8
# Hexadecimal digits of these bytes, by which stored rows refer to their master key.
MARK_DIGITS = 2 * MARK_BYTES
# Names of the files of the master key and of the new master key in the data folder.
MASTER_FILE = "master.key"
NEW_MASTER_FILE = "master.key.new"
# Length of a wrapped data key: mark, nonce, key and tag.
WRAPPED_BYTES = MARK_BYTES + 12 + KEY_BYTES + 16
# Shortest time between two searches for an unknown master key, in seconds.
SEARCH_S = 1.0


# -- the master key and keys derived from it ------------------------------------------------


@dataclass(frozen=True)
class MasterKey:
    """The operator's secret, from which all other keys are derived, such as those that encrypt data keys.

    Parameters
    ----------
    key : 32 random bytes
    source : "environment", or the path of the key's file
    """

    key: bytes
    source: str

    @classmethod
    def find(cls, folder: Path | None, create: bool = True) -> MasterKey:
        """Return the master key from the environment, or else from its file in the data folder.

        Parameters
        ----------
        folder : data folder; None: the key must come from the environment
        create : whether to write a file with a random key if there is no key

        Raises
        ------
        ParameterError : if there is no key, or if it is not 32 bytes in base64
        """
        key = cls.from_environment(MASTER)
        if key is not None:
            return key
        if folder is None:
            raise ParameterError(
                f"the environment variable {MASTER} is not set: set it to 32 random bytes in base64, the same on all "
                "hosts that share the database"
            )
        path = folder / MASTER_FILE
        if create and not path.exists():
            make_key_file(path)
        if not path.exists():
            raise ParameterError(
                f"the master key of this database is missing: set {MASTER}, or restore the file {path}"
            )
        return cls.from_file(path)

    @classmethod
    def from_environment(cls, name: str) -> MasterKey | None:
        """Return the master key in the environment variable `name`; None if it is not set.

        The value is the key in base64, or ``@`` and the path of a file with the key.
        """
        text = os.environ.get(name, "")
        if text.startswith("@"):
            return cls.from_file(Path(text[1:]))
        return cls(decode_key(text, name), "environment") if text else None

    @classmethod
    def from_file(cls, path: Path) -> MasterKey:
        """Return the master key in a file; raise `ParameterError` if it is not 32 bytes in base64."""
        return cls(decode_key(path.read_text(encoding="utf-8"), str(path)), str(path))

    def derived(self, purpose: str) -> bytes:
        """Return the key for one purpose, such as "wrapping": 32 bytes derived from the master key."""
        return hmac.digest(self.key, f"mvplda {purpose}".encode(), "sha256")

    @cached_property
    def mark(self) -> str:
        """Hash of the key in hexadecimal; the database stores it, so that the service can refuse another key."""
        return self.derived("check").hex()


class UnknownMasterKey(ParameterError):
    """Error: stored data were encrypted with a master key that this process does not have.

    Parameters
    ----------
    mark : first digits of the missing key's mark, see `MasterKey.mark`
    """

    def __init__(self, mark: str) -> None:
        super().__init__(
            "the data were encrypted with another master key than the given one: use the master key of this database"
        )
        self.mark = mark


class KeyRing:
    """Master keys of a process: one, or two while a rotation replaces the master key.

    Parameters
    ----------
    masters : known keys; a new database uses the first one
    search : function that reads all existing keys, so that a new key is found without a restart; None: only `masters`
        are used
    """

    def __init__(
        self,
        masters: Sequence[MasterKey],
        search: Callable[[], Sequence[MasterKey]] | None = None,
    ) -> None:
        self.first = masters[0]
        self._search = search
        self._searched_at = -SEARCH_S
        # if keys are equal, the first of them is used
        self._masters = {master.mark: master for master in reversed(masters)}

    def find(self, mark: str) -> MasterKey | None:
        """Return the master key whose mark is `mark` or begins with it; None if there is no such key.

        Unknown keys are searched for, at most once per `SEARCH_S` seconds.
        """
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
        """Return the master key whose mark is `mark` or begins with it, without a search for new keys."""
        if mark in self._masters:
            return self._masters[mark]
        for known, master in self._masters.items():
            if mark and known.startswith(mark):
                return master
        return None

    def with_first(self, first: MasterKey) -> KeyRing:
        """Return a ring of the same keys with `first` as the first key."""
        others = [master for master in self.all() if master.key != first.key]
        return KeyRing([first, *others], self._search)

    def all(self) -> list[MasterKey]:
        """Return all known keys."""
        return list(self._masters.values())


def find_masters(folder: Path | None) -> list[MasterKey]:
    """Return the existing master keys: the present key and, during a change of the master key, the new one.

    If the environment has a master key, files are not read.

    folder : data folder with files of keys; None: keys come from the environment alone
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
    """Call each function in `sources`, and return the keys that they read; missing and malformed keys are left out."""
    masters = []
    for read in sources:
        with suppress(OSError, ParameterError):
            master = read()
            if master is not None:
                masters.append(master)
    return masters


def make_key_file(path: Path) -> None:
    """Write a random master key to a file, unless the file exists.

    If several processes do so at the same time, all of them use the file that was complete first.
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
    """Return the 32 bytes of a key from base64; raise `ParameterError` if `text` is not such a key.

    source : environment variable or file of the key, named in the error
    """
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
    """Encryption by AES-256-GCM, with one data key per profile.

    Data keys are themselves encrypted ("wrapped") with a key derived from the master key. A wrapped data key begins
    with the first bytes of the mark of its master key.

    Parameters
    ----------
    masters : master keys, or a single master key
    """

    def __init__(self, masters: KeyRing | MasterKey) -> None:
        self._cipher = need("cryptography.hazmat.primitives.ciphers.aead").AESGCM
        self.masters = masters if isinstance(masters, KeyRing) else KeyRing([masters])

    def wrap(self, key: bytes, name: str, mark: str | None = None) -> bytes:
        """Return a data key, encrypted ("wrapped") with a master key.

        Parameters
        ----------
        key : data key
        name : id of the profile; the key can be decrypted with the same id only
        mark : mark of the master key, see `MasterKey.mark`; None: the first master key

        Raises
        ------
        UnknownMasterKey : if no master key has this mark
        """
        master = self.masters.first if mark is None else self.masters.find(mark)
        if master is None:
            raise UnknownMasterKey(str(mark))
        wrapped = self.seal(master.derived("wrapping"), key, name)
        return bytes.fromhex(master.mark)[:MARK_BYTES] + wrapped

    def unwrap(self, wrapped: bytes, name: str) -> bytes:
        """Return the data key of the profile `name`, decrypted from `wrapped`.

        Raises
        ------
        ValueError : if `wrapped` is damaged, or belongs to another profile
        UnknownMasterKey : if this process does not have the master key that `wrapped` names
        """
        if not isinstance(wrapped, bytes) or len(wrapped) != WRAPPED_BYTES:
            raise ValueError(f"expected an encrypted data key of {WRAPPED_BYTES} bytes for {name}")
        mark = wrapped[:MARK_BYTES].hex()
        master = self.masters.find(mark)
        if master is None:
            raise UnknownMasterKey(mark)
        return self.open(master.derived("wrapping"), wrapped[MARK_BYTES:], name)

    def seal(self, key: bytes, data: bytes, address: str) -> bytes:
        """Encrypt `data` of one row of the database.

        key : data key of the profile
        address : text that identifies the row; the data can be decrypted with the same address only
        """
        nonce = secrets.token_bytes(12)
        return bytes(nonce + self._cipher(key).encrypt(nonce, data, address.encode()))

    def open(self, key: bytes, data: bytes, address: str) -> bytes:
        """Decrypt data that `seal` encrypted; raise `ValueError` if `key`, `data` or `address` is another one."""
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
    """Return the keyed hash of a recording's `digest`, by which the same recording of a profile is recognised.

    key : data key of the profile; without it the hash cannot be linked to a recording
    """
    return hmac.digest(key, f"mark {digest}".encode(), "sha256").hex()[:32]


ROTATION_BLOCK = 320
"""Number of components of a vector that are rotated together."""


def rotation_matrix(secret: bytes, dimension: int) -> Array:
    """Return the random (dimension, dimension) orthogonal matrix that `secret` determines, equal on every machine.

    All orthogonal matrices are equally likely. An empty secret gives the identity.
    """
    if not secret:
        return np.eye(dimension)
    random_bytes = hashlib.shake_256(secret + b" rotation").digest(8 * dimension**2)
    uniform = ((np.frombuffer(random_bytes, dtype="<u8") >> 11) + 0.5) / 2.0**53
    Q, R = np.linalg.qr(ndtri(uniform).reshape(dimension, dimension))
    # the decomposition is unique if the diagonal of R is positive
    return np.asarray(Q * np.sign(np.diagonal(R)))


class TemplateRotation:
    """Secret rotation of stored vectors, in blocks of columns, so that its matrices fit into a processor's cache.

    Parameters
    ----------
    secret : secret that determines the rotation; empty: no rotation
    dimension : length of the vectors
    """

    def __init__(self, secret: bytes, dimension: int) -> None:
        self._blocks = []
        for start in range(0, dimension, ROTATION_BLOCK):
            width = min(ROTATION_BLOCK, dimension - start)
            # every block has its own matrix
            block_secret = secret + f" {start}".encode() if secret and start else secret
            columns = slice(start, start + width)
            self._blocks.append((columns, rotation_matrix(block_secret, width)))

    def apply(self, y: Array) -> Array:
        """Rotate the (n, dimension) vectors `y`."""
        return np.hstack([y[:, columns] @ Q.T for columns, Q in self._blocks])

    def undo(self, y: Array) -> Array:
        """Undo `apply`: return the (n, dimension) vectors before their rotation to `y`."""
        return np.hstack([y[:, columns] @ Q for columns, Q in self._blocks])


# -- keys of callers -----------------------------------------------------------------------


@dataclass(frozen=True)
class KeyPolicy:
    """Policy of an API key: restrictions of its caller; None: the default of the key's role.

    Parameters
    ----------
    detail : fields of a decision that the caller sees: "verdict", "halves" (the verdicts about voice and phrase,
        too), or "evidence" (all)
    far : largest share of accepted impostors that a call with this key may choose
    require : protection against replayed and synthetic voices that each verification must have
    """

    # policies in the environment are checked by pydantic, which then refuses unknown options
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    detail: Detail | None = None
    far: Annotated[float, Field(gt=0, lt=1)] | None = None
    require: Require | None = None


DEFAULT_POLICY = KeyPolicy()


@dataclass(frozen=True)
class Caller:
    """The caller of an endpoint, as its API key describes it.

    Parameters
    ----------
    name : name of the key, which the audit shows
    role : "verify", "enrol" or "admin"
    policy : limits of the key
    tenant : name of the tenant whose people the key gives access to; None: the people of the service itself
    """

    name: str
    role: str
    policy: KeyPolicy = DEFAULT_POLICY
    tenant: str | None = None

    @property
    def detail(self) -> Detail:
        """Fields of a decision that the caller sees; default: "verdict" for the role verify, else "evidence"."""
        return self.policy.detail or ("verdict" if self.role == "verify" else "evidence")

    def may(self, role: str) -> bool:
        """Return whether the role of the caller is `role` or a higher one (verify < enrol < admin)."""
        return ROLES.index(self.role) >= ROLES.index(role)


def new_api_key() -> str:
    """Return a new random API key of 32 bytes, too many to be guessed from its stored hash."""
    return "mvp_" + secrets.token_urlsafe(KEY_BYTES)


def key_hash(key: str) -> str:
    """Return the SHA-256 hash of an API key in hexadecimal; only the hash is stored, not the key."""
    return hashlib.sha256(key.encode()).hexdigest()
