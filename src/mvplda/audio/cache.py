"""Frames kept on disk, by what the sound is and how the frames were made.

A folder holds, for every settings' key, a folder of shards: files with the frames of some
hundred utterances each. An utterance is found by a key made of the contents of its file and
the stretch of it, so files may move, be renamed or be asked for in another order. Shards are
written whole and never changed; one that is damaged is removed, and its utterances are made
anew. The folder may be deleted at any time.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..exceptions import FileFormatError
from ..files import read_metadata, seal, unseal, write_atomically

FORMAT = "mvplda-feature-cache"
KEY_LENGTH = 32
SETTLED_S = 2.0
"""A file changed so shortly ago may change again within the resolution of its time stamp."""

log = logging.getLogger(__name__)


class FeatureCache:
    """A folder of frames; it is made if it is not there.

    Parameters
    ----------
    folder : where frames are kept
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._hashes: dict[str, list[Any]] | None = None

    def content_hashes(self, paths: Iterable[str | os.PathLike[str]]) -> dict[str, str | None]:
        """SHA-256 of files by path; None for one that cannot be read.

        A file is read again only if its size or its time of change is another than before.
        """
        known = self._known_hashes()
        fresh: dict[str, list[Any]] = {}

        def look(path: str) -> str | None:
            try:
                name, about = os.path.abspath(path), os.stat(path)
                stamp = [about.st_size, about.st_mtime_ns]
                if known.get(name, [])[:2] == stamp:
                    return str(known[name][2])
                with open(path, "rb") as file:
                    digest = hashlib.file_digest(file, "sha256").hexdigest()
            except OSError:
                return None
            if time.time() - about.st_mtime > SETTLED_S:
                fresh[name] = [*stamp, digest]
            return digest

        unique = list(dict.fromkeys(os.fspath(path) for path in paths))
        with ThreadPoolExecutor(4) as pool:
            found = dict(zip(unique, pool.map(look, unique), strict=True))
        if fresh:
            self._hashes = {**self._read_hashes(), **known, **fresh}
            write_atomically(self.folder / "hashes.json", json.dumps(self._hashes).encode())
        return found

    def find(self, settings_key: str, keys: Iterable[str]) -> dict[str, NDArray[np.float32]]:
        """Frames of those utterances that are there."""
        wanted, found = set(keys), dict[str, NDArray[np.float32]]()
        for path in sorted(self._shards(settings_key)):
            try:
                here = wanted.intersection(_keys_of(read_metadata(path)))
                if here:
                    found.update({key: frames for key, frames in _read_shard(path).items() if key in here})
            except FileNotFoundError:  # another process removed it
                continue
            except FileFormatError as error:
                log.warning("the features in %s are made anew: %s", path, error)
                path.unlink(missing_ok=True)
        return found

    def keep(self, settings_key: str, frames: Mapping[str, NDArray[np.float32]]) -> None:
        """Write the frames of some utterances, all or nothing."""
        if not frames:
            return
        keys = sorted(frames)
        parts = [frames[key] for key in keys]
        tensors: dict[str, NDArray[Any]] = {
            "frames": np.ascontiguousarray(np.concatenate(parts), dtype=np.float32),
            "offsets": np.concatenate([[0], np.cumsum([len(part) for part in parts])]).astype(np.int64),
        }
        folder = self.folder / settings_key
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / f"{_digest(keys)}.safetensors", seal(FORMAT, "shard", tensors, {"keys": keys}))

    def _shards(self, settings_key: str) -> list[Path]:
        return list((self.folder / settings_key).glob("*.safetensors"))

    def _known_hashes(self) -> dict[str, list[Any]]:
        if self._hashes is None:
            self._hashes = self._read_hashes()
        return self._hashes

    def _read_hashes(self) -> dict[str, list[Any]]:
        try:
            values = json.loads((self.folder / "hashes.json").read_text(encoding="utf-8"))
            return {
                str(name): [int(size), int(changed), str(digest)] for name, (size, changed, digest) in values.items()
            }
        except (OSError, ValueError, TypeError, AttributeError):
            return {}  # it only saves time


def entry_key(content: str, *parts: object) -> str:
    """The key of an utterance: its file's contents, the stretch, and what else changes its frames."""
    return _digest([content, *parts])


def _digest(parts: Sequence[object]) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:KEY_LENGTH]


def _keys_of(metadata: Mapping[str, str]) -> list[str]:
    try:
        return [str(key) for key in json.loads(metadata["shard"])["keys"]]
    except (KeyError, TypeError, ValueError) as error:
        raise FileFormatError(f"it is no shard of features: {error}") from error


def _read_shard(path: Path) -> dict[str, NDArray[np.float32]]:
    tensors, about = unseal(path, FORMAT, "shard")
    frames, offsets = tensors["frames"], tensors["offsets"]
    return {key: frames[offsets[i] : offsets[i + 1]] for i, key in enumerate(about["keys"])}
