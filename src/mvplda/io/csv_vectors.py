"""Vectors in CSV files: a header, then an id and one number per dimension in every line; other columns are labels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from .files import (
    Batch,
    Names,
    OnDisk,
    Reader,
    Rows,
    Vectors,
    as_numbers,
    as_text,
    column_of,
    fail,
    is_number,
    needed,
    plain,
    table_blocks,
    write_table,
)
from .numpy_files import ID_KEYS


class CsvReader(Reader):
    """Columns that hold numbers only, in the first line, are the vector; the rest are ids and labels."""

    def __init__(self, source: OnDisk, vectors: str | None = None, ids: str | None = None) -> None:
        self.source = source
        self.header, blocks = table_blocks(source)
        first = next(blocks).fields
        texts = [k for k, column in enumerate(first) if not is_number(column[0])]
        place = column_of(self.header, [plain(name) for name in ID_KEYS])
        if ids is not None:
            place = needed(source.name, self.header, [plain(ids)])
        if place is None and texts:
            place = texts[0]
        self.wide = [k for k in range(len(first)) if k not in texts and k != place]
        if not self.wide:
            fail(source.name, "expected columns of numbers (NaN is none), one per dimension")
        self.has_ids = place is not None
        self.id_column = None if place is None else self.header[place]
        self.columns = tuple(name for k, name in enumerate(self.header) if k not in self.wide)

    def batches(
        self, batch_bytes: int, columns: Sequence[str], ids: bool, rows: Rows | None = None
    ) -> Iterator[Batch]:
        path = self.source.name
        start = 0
        for block in table_blocks(self.source)[1]:
            fields = dict(zip(self.header, block.fields, strict=True))
            numbers = [
                as_numbers(path, block.fields[k], block.lines, f"in column {self.header[k]!r}")
                for k in self.wide
            ]
            names: Sequence[object] = range(start, start + len(block.lines))
            if self.id_column is not None:
                names = fields[self.id_column]
            labels = {name: np.array(fields[name], dtype=object) for name in columns}
            yield Batch(np.array(numbers).T, list(map(as_text, names)) if ids else None, labels)
            start += len(names)


def write_csv(parts: Sequence[Path], ids: Names, X: Vectors) -> None:
    columns = {"id": ids, **{f"x{k}": column for k, column in enumerate(X.T)}}
    write_table(parts[0], columns)
