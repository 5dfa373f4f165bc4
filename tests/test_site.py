"""The site: its pages are in a table of contents, and nothing in them comes from another machine."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from site_pages import foreign_assets

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
BUILT = DOCS / "_build" / "html"


def test_every_page_is_in_the_contents():
    tables = "".join((DOCS / name).read_text(encoding="utf-8") for name in ("index.md", "guide.md"))
    named = set(re.findall(r"^(?:.*<)?([\w/-]+)>?$", tables, flags=re.MULTILINE))
    assert {page.stem for page in DOCS.glob("*.md")} - named == {"index"}


def test_assets_from_elsewhere_are_found(tmp_path):
    (tmp_path / "good.html").write_text('<a href="https://x.example/">x</a><script src="own.js"></script>')
    assert foreign_assets(tmp_path) == []
    (tmp_path / "bad.html").write_text('<link rel="stylesheet" href="//x.example/a.css"><img src="http://x.example/b">')
    (tmp_path / "bad.css").write_text("@font-face { src: url('https://x.example/f.woff') }")
    assert [page for page, _ in foreign_assets(tmp_path)] == ["bad.html", "bad.html", "bad.css"]


@pytest.mark.skipif(not BUILT.is_dir(), reason="the site is not built here: make docs")
def test_the_built_site_loads_nothing_from_elsewhere():
    assert list(BUILT.rglob("*.html"))
    assert foreign_assets(BUILT) == []


@pytest.mark.parametrize("page", ["decisions.md", "interoperability.md"])
def test_blocks_of_a_page_run_one_after_the_other(page, tmp_path, monkeypatch):
    if page == "interoperability.md":
        pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
        pytest.importorskip("onnx", reason="onnx is not installed")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), flags=re.DOTALL):
        exec(compile(block, page, "exec"), names)
