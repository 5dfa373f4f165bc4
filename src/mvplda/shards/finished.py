"""Finished shards in a work folder.

The name of a file holds everything that its numbers depend on: the shard's path, size, time
of change and rows, its lists of labels, the settings and the origin. A run that was killed, at any point,
finds the shards that were done; a shard that changed since has another name and is read again.
"""

from __future__ import annotations

import hashlib
import json
import os
from base64 import b64decode, b64encode
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..exceptions import FileFormatError
from ..io.ark import is_kaldi, parse_name
from ..labels import base_columns
from ..statistics.storage import load_with_sources, save_statistics
from .identities import Identities
from .labels import Unlisted, label_file
from .pieces import Piece
from .shard import Partial, Plan, ShardReport, taken_up


class Finished:
    """The place of one shard's statistics in the work folder, if there is one."""

    def __init__(self, plan: Plan, piece: Piece) -> None:
        self.name, self.piece, self.plan = str(piece), piece, plan
        self.file = None if plan.work_dir is None else Path(plan.work_dir) / f"{_key(plan, piece)}.safetensors"

    def load(self) -> Partial | None:
        """What an earlier run left; None where there is nothing, or nothing that can be used."""
        if self.file is None or not self.file.is_file():
            return None
        try:
            statistics, sources = load_with_sources(self.file)
            if any(identity(file) != found for file, found in sources["files"].items()):
                return None
            report = sources["report"]
            ids = tuple(Identities(self.piece, np.frombuffer(b64decode(text), "<u8")) for text in sources["ids"])
            unlisted = {view: Unlisted(*found) for view, found in report["unlisted"].items()}
            rows = tuple(report["named_rows"])
            shard = ShardReport(self.name, report["vectors"], report["bad_rows"], rows, unlisted)
        except (FileFormatError, KeyError, TypeError, ValueError, AttributeError):
            return None
        if shard.bad_rows and self.plan.on_bad_rows == "raise":
            return None
        return taken_up(Partial(statistics, (shard,), (), ids))

    def save(self, result: Partial, files: tuple[str, ...]) -> None:
        if self.file is None or result.statistics is None:
            return
        sources = {
            "report": asdict(result.shards[0]),
            "files": {file: identity(file) for file in files},
            "ids": [b64encode(ids.numbers.astype("<u8").tobytes()).decode() for ids in result.ids],
        }
        save_statistics(result.statistics, self.file, sources)


def identity(path: str) -> list[Any]:
    """What tells a version of a file from others: its place, size and time of change."""
    try:
        state = os.stat(path)
    except OSError:
        return [os.path.abspath(path), None, None]
    return [os.path.abspath(path), state.st_size, state.st_mtime_ns]


def _key(plan: Plan, piece: Piece) -> str:
    path = piece.path
    target = parse_name(path) if is_kaldi(path) else None
    shard = path if target is None else str(target.scp or target.ark)
    sources = dict(plan.labels)
    lists = [label_file(path, name, sources.get(name)) for name in base_columns(plan.views)]
    settings = asdict(replace(plan, origin=None, work_dir=None, first="", on_bad_shard="raise", on_bad_rows="raise"))
    digest = hashlib.sha256()
    parts = [identity(shard), piece.rows, [None if f is None else identity(str(f)) for f in lists], settings]
    digest.update(json.dumps(parts, default=repr, sort_keys=True).encode())
    digest.update(b"" if plan.origin is None else plan.origin.tobytes())
    return digest.hexdigest()[:32]
