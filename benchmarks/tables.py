"""The tables of the documents, made of results/: ``python -m benchmarks tables``.

A document holds ``<!-- table NAME -->``, a table, and ``<!-- end of table -->``; what stands between is replaced. NAME
is one of `TABLES`, or a file of results/ that is a table itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

from mvplda.speech import defaults

from . import paper_tables, study_tables

ROOT = Path(__file__).resolve().parents[1]
MARKED = re.compile(r"<!-- table (.+?) -->\n(.*?)<!-- end of table -->", re.DOTALL)
TABLES: dict[str, Callable[[], list[str]]] = {
    "paper, raw": lambda: paper_tables.by_kind(paper_tables.RAW, True),
    "paper, reduced": lambda: paper_tables.by_kind(paper_tables.REDUCED, False),
    "paper, shares in IC": lambda: paper_tables.ratios("IC"),
    "paper, shares in Total": lambda: paper_tables.ratios("Total"),
    "default model": lambda: default_model(),
    **study_tables.TABLES,
}


def default_model() -> list[str]:
    """What the default model does on corpora that were left out."""
    results = json.loads((ROOT / "results" / "default-model" / "results.json").read_text("utf-8"))
    return defaults.table(results["rows"])


def documents() -> list[Path]:
    """Pages that may hold tables."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def table(name: str) -> str:
    """The lines of a table, as they should stand in a document."""
    if name in TABLES:
        return "\n".join(TABLES[name]()) + "\n"
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    return "\n".join(line for line in lines if line.startswith("|")) + "\n"


def remade(text: str) -> str:
    """A document with its tables made anew."""
    return MARKED.sub(
        lambda match: f"<!-- table {match[1]} -->\n\n{table(match[1])}\n<!-- end of table -->", text
    )


def main() -> list[Path]:
    """Rewrite the documents whose tables differ; which these are."""
    changed = []
    for page in documents():
        text = page.read_text(encoding="utf-8")
        new = remade(text)
        if new != text:
            page.write_text(new, encoding="utf-8")
            changed.append(page)
    return changed


if __name__ == "__main__":
    for page in main():
        print(f"wrote {page}")
