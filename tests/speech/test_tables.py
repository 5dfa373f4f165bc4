"""Tables of the documents are those of results/."""

from __future__ import annotations

import pytest

from benchmarks import tables


@pytest.mark.parametrize("page", tables.documents(), ids=lambda page: page.name)
def test_tables_of_documents_are_those_of_results(page):
    text = page.read_text(encoding="utf-8")
    assert tables.remade(text) == text, "run python -m benchmarks tables"


def test_a_table_that_differs_is_found():
    text = "<!-- table paper, raw -->\n\n| 1 |\n\n<!-- end of table -->"
    assert "RSR2015" in tables.remade(text)
