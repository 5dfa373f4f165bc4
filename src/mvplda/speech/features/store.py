"""Frames of many utterances in one array."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ..._typing import FloatArray
from ...exceptions import DataError, FileFormatError, ParameterError
from ...persistence import pack, read_metadata, unpack, write_atomically
from .frames import FeatureSettings

FORMAT = "mvplda-features"


@dataclass(frozen=True)
class FeatureSet:
    """Frames of many utterances, one after the other.

    Attributes
    ----------
    ids : (n,) names of the utterances
    frames : (total, D) float32 or float16, all utterances' frames
    offsets : (n + 1,) utterance i has the frames offsets[i] to offsets[i + 1]
    settings : how the frames were made, where it is known
    """

    ids: NDArray[Any]
    frames: FloatArray
    offsets: NDArray[np.int64]
    settings: FeatureSettings | None = None

    def __post_init__(self) -> None:
        ends = (0, len(self.frames))
        if len(self.offsets) != len(self.ids) + 1 or (self.offsets[0], self.offsets[-1]) != ends:
            raise DataError(
                f"{len(self.ids)} utterances need {len(self.ids) + 1} offsets from 0 to {len(self.frames)}; "
                f"got {len(self.offsets)} from {self.offsets[:1]} to {self.offsets[-1:]}"
            )
        if np.any(np.diff(self.offsets) < 0):
            raise DataError("offsets of utterances never fall")

    @classmethod
    def from_utterances(
        cls,
        ids: Sequence[Any] | NDArray[Any],
        utterances: Iterable[FloatArray],
        settings: FeatureSettings | None = None,
    ) -> Self:
        """Join the frames (T, D) of utterances, one array each."""
        parts = list(utterances)
        if not parts:
            raise DataError("frames of at least one utterance are needed")
        widths = sorted({part.shape[1] for part in parts})
        if len(widths) > 1:
            raise DataError(f"frames of utterances differ in width: {widths[0]} and {widths[-1]}")
        offsets = np.concatenate([[0], np.cumsum([len(part) for part in parts])]).astype(np.int64)
        return cls(np.asarray(ids), np.concatenate(parts), offsets, settings)

    @classmethod
    def concatenate(cls, sets: Sequence[FeatureSet]) -> Self:
        """Several sets of one width in one, in the order given; the settings stay if all have the same.

        Examples
        --------
        >>> one = FeatureSet(np.array(["a"]), np.zeros((3, 2), np.float32), np.array([0, 3]))
        >>> FeatureSet.concatenate([one, one]).offsets
        array([0, 3, 6])
        """
        if not sets:
            raise DataError("there is nothing to concatenate: give at least one feature set")
        widths = sorted({features.dimension for features in sets})
        if len(widths) > 1:
            raise DataError(f"feature sets of one width can be joined; these have {widths}")
        ids, first = np.concatenate([features.ids for features in sets]), sets[0].settings
        settings = first if all(features.settings == first for features in sets) else None
        return cls.from_utterances(ids, chain.from_iterable(sets), settings)

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, i: int) -> FloatArray:
        i = range(len(self))[i]
        return self.frames[self.offsets[i] : self.offsets[i + 1]]

    def __iter__(self) -> Iterator[FloatArray]:
        return (self[i] for i in range(len(self)))

    @property
    def lengths(self) -> NDArray[np.int64]:
        """(n,) frames of every utterance."""
        return np.diff(self.offsets)

    @property
    def dimension(self) -> int:
        return int(self.frames.shape[1])

    def take(self, rows: NDArray[np.int64]) -> FeatureSet:
        """Some utterances, in the order given."""
        lengths = self.lengths[rows]
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        frames = np.concatenate([self[i] for i in rows]) if len(rows) else self.frames[:0]
        return FeatureSet(self.ids[rows], frames, offsets, self.settings)

    def save(self, path: str | os.PathLike[str], dtype: DTypeLike | None = None) -> None:
        """Write to a ``.safetensors`` file, whole or not at all; float16 halves it."""
        kind = np.dtype(self.frames.dtype if dtype is None else dtype)
        if kind not in (np.float16, np.float32, np.float64):
            raise ParameterError(f"frames are kept as float16, float32 or float64; got {kind}")
        with np.errstate(over="ignore"):  # refused below
            frames = np.ascontiguousarray(self.frames, dtype=kind)
        if not np.isfinite(frames).all():
            raise DataError(f"some frames are not finite as {kind}: nothing was written to {path}")
        about = {
            "ids": [str(name) for name in self.ids],
            "settings": None if self.settings is None else self.settings.to_dict(),
        }
        tensors = {"frames": frames, "offsets": np.ascontiguousarray(self.offsets, dtype=np.int64)}
        write_atomically(path, pack(FORMAT, "features", tensors, about))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what `save` wrote; damaged and foreign files give a `FileFormatError`."""
        tensors, about = unpack(path, FORMAT, "features")
        try:
            settings = (
                None if about["settings"] is None else FeatureSettings.from_dict(about["settings"])
            )
            return cls(
                np.asarray(about["ids"], dtype=np.str_),
                tensors["frames"],
                tensors["offsets"],
                settings,
            )
        except (KeyError, TypeError, ValueError) as error:
            raise FileFormatError(f"{path} lacks parts of features: {error}") from error


# Frames kept on disk, by what the sound is and how the frames were made.
#
# A folder holds, for every settings' key, a folder of shards: files with the frames of some
# hundred utterances each. An utterance is found by a key made of the contents of its file and
# the stretch of it, so files may move, be renamed or be asked for in another order. Shards are
# written whole and never changed; one that is damaged is removed, and its utterances are made
# anew. The folder may be deleted at any time.


CACHE_FORMAT = "mvplda-feature-cache"
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
        known = self._hashes = self._read_hashes() if self._hashes is None else self._hashes
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
        for path in sorted((self.folder / settings_key).glob("*.safetensors")):
            try:
                here = wanted.intersection(_keys_of(read_metadata(path)))
                if here:
                    tensors, about = unpack(path, CACHE_FORMAT, "shard")
                    shard = FeatureSet(
                        np.array(about["keys"]), tensors["frames"], tensors["offsets"]
                    )
                    found.update(
                        {
                            key: part
                            for key, part in zip(about["keys"], shard, strict=True)
                            if key in here
                        }
                    )
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
        folder = self.folder / settings_key
        folder.mkdir(parents=True, exist_ok=True)
        shard = FeatureSet.from_utterances(keys, (frames[key].astype(np.float32) for key in keys))
        tensors = {"frames": np.ascontiguousarray(shard.frames), "offsets": shard.offsets}
        write_atomically(
            folder / f"{_digest(keys)}.safetensors",
            pack(CACHE_FORMAT, "shard", tensors, {"keys": keys}),
        )

    def _read_hashes(self) -> dict[str, list[Any]]:
        try:
            values = json.loads((self.folder / "hashes.json").read_text(encoding="utf-8"))
            return {
                str(name): [int(size), int(changed), str(digest)]
                for name, (size, changed, digest) in values.items()
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
