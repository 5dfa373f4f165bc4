"""Public names exist, are listed on the site with a description, and are all that the documents import."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import api_page
import numpy as np
import pytest

import mvplda

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_the_list_has_every_public_object_once():
    pytest.importorskip("torch", reason="torch is not installed, in which some public names are")
    listing = api_page.listing()
    sections = re.findall(r"^## (mvplda[\w.]*)$", listing, flags=re.MULTILINE)
    assert sections == list(api_page.MODULES)
    rows = re.findall(r"^\| `(\w+)` \| (.+) \|$", listing, flags=re.MULTILINE)
    modules = [import_module(name) for name in api_page.MODULES]
    names = {name for module in modules for name in api_page.public_names(module)}
    assert {name for name, _ in rows} == names
    objects = {id(getattr(module, n)) for module in modules for n in api_page.public_names(module)}
    assert len(rows) == len(objects)
    assert all(description.strip() for _, description in rows)


@pytest.mark.parametrize("place", api_page.MODULES)
def test_every_public_name_is_there_and_says_what_it_is(place):
    if place == "mvplda.paper.network_training":
        pytest.importorskip("torch", reason="torch is not installed, in which networks are")
    module = import_module(place)
    names = api_page.public_names(module)
    assert len(names) == len(set(names))
    assert [name for name in names if not api_page.first_sentence(module, name)] == []


def test_names_that_are_not_there_are_no_attributes():
    with pytest.raises(AttributeError, match="'mvplda' has no attribute 'nothing'"):
        mvplda.nothing  # noqa: B018
    assert dir(mvplda) == sorted(mvplda.__all__)


def test_importing_the_package_loads_nothing_heavy():
    code = "import sys, mvplda, mvplda.cli; print([m for m in ('numpy', 'scipy', 'sklearn', 'torch') if m in sys.modules])"  # noqa: E501
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def public_imports(code: str) -> list[tuple[str, str]]:
    nodes = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.ImportFrom)]
    return [
        (str(n.module), a.name)
        for n in nodes
        if str(n.module).split(".")[0] == "mvplda"
        for a in n.names
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_documents_import_public_names_only(page):
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for module, name in (found for block in blocks for found in public_imports(block)):
        assert module in api_page.MODULES, f"{module} is not public"
        assert name in api_page.public_names(import_module(module)), (
            f"{module}.{name} is not public"
        )


def resolves(dotted: str) -> bool:
    """Whether a dotted name is a module, or an attribute of one."""
    parts = dotted.split(".")
    for k in range(len(parts), 0, -1):
        try:
            value: object = import_module(".".join(parts[:k]))
        except ModuleNotFoundError:
            continue
        for name in parts[k:]:
            if not hasattr(value, name):
                return False
            value = getattr(value, name)
        return True
    return False


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_documents_name_modules_and_files_that_are_there(page):
    text = page.read_text(encoding="utf-8")
    dotted = set(re.findall(r"`(mvplda(?:\.\w+)+)", text))
    names = {name for name in dotted if not name.endswith((".js", ".ts"))}
    assert {name for name in names if not resolves(name)} == set()
    files = set(re.findall(r"`([\w/]+\.py)`", text))
    roots = (ROOT, ROOT / "src" / "mvplda", ROOT / "benchmarks")
    assert {name for name in files if not any((root / name).exists() for root in roots)} == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_lines_of_documents_fit_a_screen(page):
    """Rows of tables, formulas and links cannot be broken."""
    lines = page.read_text(encoding="utf-8").splitlines()
    prose = [
        (n, line)
        for n, line in enumerate(lines, 1)
        if not line.lstrip().startswith(("|", "!", "$"))
    ]
    assert [(n, line[:60]) for n, line in prose if len(line) > 120] == []


def test_toy_vectors_are_of_the_sizes_asked_for_and_drawn_alike():
    sizes: dict[str, Any] = {
        "n_speakers": 6,
        "n_phrases": 3,
        "n_each": 5,
        "dimension": 7,
        "ranks": (2, 1),
    }
    X, labels = mvplda.make_two_views(**sizes, random_state=3)
    assert X.shape == (90, 7)
    assert {view: len(np.unique(codes)) for view, codes in labels.items()} == {
        "speaker": 6,
        "phrase": 3,
    }
    Y, same, unseen = mvplda.make_two_views(**sizes, held_out=2, random_state=3)
    assert Y.shape == X.shape
    np.testing.assert_array_equal(same["phrase"], labels["phrase"])
    assert (unseen.enrol.shape, unseen.test.shape, len(np.unique(unseen.ids))) == (
        (18, 7),
        (12, 7),
        6,
    )
    assert not set(unseen.enrol_labels["speaker"]) & set(same["speaker"])
    assert unseen.truth.loadings_["speaker"].shape == (7, 2)
    np.testing.assert_array_equal(mvplda.make_two_views(**sizes, random_state=3)[0], X)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"n_speakers": 0}, "n_speakers must be at least 1; got 0"),
        ({"n_each": 4, "held_out": 2}, "n_each must be at least 5 with held_out; got 4"),
    ],
)
def test_toy_vectors_say_what_does_not_fit(wrong, message):
    with pytest.raises(mvplda.exceptions.ParameterError, match=message):
        mvplda.make_two_views(**wrong)
