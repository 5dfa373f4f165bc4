"""Tables of the documents are those of results/."""

from __future__ import annotations

import importlib
import json
import re

import pytest

from benchmarks import tables
from mvplda.speech.results import SCHEMA


@pytest.mark.parametrize("page", tables.documents(), ids=lambda page: page.name)
def test_tables_of_documents_are_those_of_results(page):
    text = page.read_text(encoding="utf-8")
    assert tables.remade(text) == text, "run python -m benchmarks tables"


def test_a_table_that_differs_is_found():
    text = "<!-- table paper, raw -->\n\n| 1 |\n\n<!-- end of table -->"
    assert "RSR2015" in tables.remade(text)


@pytest.mark.parametrize("name", ["experiments.md", "choose.md", "paper.md"])
def test_no_figures_stand_in_tables_that_are_written_by_hand(name):
    (page,) = [page for page in tables.documents() if page.name == name]
    rest = tables.MARKED.sub("", page.read_text(encoding="utf-8"))
    figures = re.compile(r"^\|.*\| *\d+\.\d+ *(\[.*?\])? *\|", re.MULTILINE)
    assert figures.findall(rest) == []


def test_every_table_is_on_a_page():
    pages = "".join(page.read_text(encoding="utf-8") for page in tables.documents())
    named = {match[1] for match in tables.MARKED.finditer(pages)}
    assert set(tables.TABLES) <= named


STUDIES = sorted((tables.ROOT / "benchmarks/studies").glob("[a-z]*.py"))


@pytest.mark.parametrize("file", STUDIES, ids=lambda file: file.stem)
def test_studies_are_of_this_version(file):
    importlib.import_module(f"benchmarks.studies.{file.stem}")


FILES = sorted(tables.RESULTS.rglob("results.json"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.parent.name)
def test_every_result_says_where_it_comes_from(file):
    results = json.loads(file.read_text(encoding="utf-8"))
    assert results["title"]
    assert {"schema", "commit", "date", "command", "inputs"} <= set(results["provenance"])
    assert results["provenance"]["schema"] == SCHEMA
    assert ("systems" in results) != ("rows" in results)
