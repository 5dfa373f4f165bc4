"""Kaldi archives as text, which mvplda reads and does not write."""

from __future__ import annotations


def write_text_archive(path, vectors):
    """Lines of an id and its numbers in brackets."""
    rows = zip(vectors.ids.tolist(), vectors.X, strict=True)
    lines = [f"{name}  [ {' '.join(map(str, row))} ]\n" for name, row in rows]
    path.write_bytes("".join(lines).encode())
