"""Tables of the documents are those of results/."""

from __future__ import annotations

import importlib
import json
import re

import pytest

from benchmarks import tables
from benchmarks.report import results_files
from benchmarks.studies import deals
from mvplda.paper.provenance import SCHEMA, result_rows


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


FILES = results_files()


def numbers_outside_rows(values, name=""):
    """Places of numbers that no provenance belongs to."""
    if isinstance(values, dict):
        if "provenance" in values:
            return []
        return [
            each for key, v in values.items() for each in numbers_outside_rows(v, f"{name}/{key}")
        ]
    if isinstance(values, list):
        return [each for v in values for each in numbers_outside_rows(v, name)]
    return [name] if isinstance(values, int | float) else []


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}/{file.name}")
def test_every_number_belongs_to_a_row_with_its_maker(file):
    results = json.loads(file.read_text(encoding="utf-8"))
    assert results.pop("schema") == SCHEMA
    assert results["title"]
    results.pop("configuration", None)
    assert numbers_outside_rows(results) == []
    for place, row in result_rows(results):
        record = row["provenance"]
        assert {"command", "commit", "inputs"} <= set(record), place
        assert "dirty" not in record, place
        commit = record["commit"]
        assert (commit is None and record["note"]) or len(commit) >= 7, place


@pytest.mark.parametrize("name", ["cvau", "speech-commands"])
def test_rows_of_the_paper_page_name_the_command_of_their_own(name):
    systems = json.loads((tables.RESULTS / name / "results.json").read_text())["systems"]
    for system in tables.MAIN:
        assert systems[system]["provenance"]["command"] == deals.command_of(name, system)


def test_rows_of_the_front_page_name_the_command_of_their_own():
    rows = json.loads((tables.RESULTS / "evidence/results.json").read_text())["rows"]
    assert len(rows) >= 4
    for name, row in rows.items():
        command = row["provenance"]["command"]
        assert (
            command
            == f"python -m benchmarks evidence {{data}} {{work}} '{name}' --output {{output}}"
        )
