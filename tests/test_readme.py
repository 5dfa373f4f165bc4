"""The documents say what is there: the README's session runs as printed, formulas and code share their tags."""

from __future__ import annotations

import doctest
import importlib
import re
import tomllib
from collections import defaultdict
from dataclasses import fields
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
DOCS = ROOT / "docs"
SOURCE = ROOT / "src" / "mvplda"


@pytest.mark.parametrize("page", [README, DOCS / "tutorial.md"], ids=lambda page: page.name)
def test_sessions_print_what_the_page_says(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    session = "\n".join(
        re.findall(r"```pycon\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    )
    test = doctest.DocTestParser().get_doctest(session, {}, page.name, str(page), 0)
    assert len(test.examples) > 5
    said: list[str] = []
    doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(test, out=said.append)
    assert not said, "".join(said)


def test_the_page_for_scikit_learn_runs_as_it_stands(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed").use("Agg")
    monkeypatch.chdir(tmp_path)
    text = (DOCS / "scikit-learn.md").read_text(encoding="utf-8")
    names: dict = {}
    for block in re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL):
        exec(compile(block, "scikit-learn.md", "exec"), names)
    assert names["model"].views_ == {"speaker": 40, "phrase": 7}
    assert names["latents"].shape == (2400, 47)
    assert names["search"].best_params_["views"] == {"speaker": 6, "phrase": 5}
    assert (names["by_hand"] == names["same"]).all()
    assert set(names["decisions"].tolist()) == {True, False}
    assert names["accuracy"] > 0.6
    importlib.import_module("matplotlib.pyplot").close("all")


def test_the_readme_is_short():
    assert len(README.read_text(encoding="utf-8").splitlines()) < 150


def tags_in_code() -> dict[str, set[str]]:
    """Tag -> files with a line that ends with it, or a docstring that names it."""
    found = defaultdict(set)
    for path in SOURCE.rglob("*.py"):
        for tag in re.findall(
            r"\(([CDEIMPSUV]\d+)(?:, [^()]*)?\)", path.read_text(encoding="utf-8")
        ):
            found[tag].add(path.relative_to(SOURCE).as_posix())
    return found


def tags_in_list() -> dict[str, set[str]]:
    """Tag -> files that section 11 of docs/math.md gives for it."""
    section = (DOCS / "math.md").read_text(encoding="utf-8").partition("## 11. Tags")[2]
    found: dict[str, set[str]] = {}
    for tags, files in re.findall(r"^- ([A-Z]\d[^:]*): (.*)$", section, flags=re.MULTILINE):
        for tag in re.findall(r"[A-Z]\d+", tags):
            found[tag] = set(re.findall(r"`([^`]+)`", files))
    return found


def test_every_tag_has_its_formula_its_line_and_its_row():
    text = "".join((DOCS / name).read_text(encoding="utf-8") for name in ("math.md", "errata.md"))
    derived = re.findall(r"\\tag\{([A-Z]\d+)\}", text)
    code, listed = tags_in_code(), tags_in_list()
    assert len(derived) == len(set(derived)), "a tag is given to two formulas"
    assert set(derived) == set(code), "formulas without a line of code, or lines without a formula"
    assert listed == code, (
        "section 11 of docs/math.md names other files than those that have the tags"
    )


def test_audio_page_names_every_setting():
    from mvplda.paper.experiment_settings import (
        BackendSettings,
        PaperNetwork,
        Pretraining,
        Training,
    )

    text = (DOCS / "audio.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(\w+)`", text))
    missing = {
        f"{record.__name__}.{f.name}"
        for record in (PaperNetwork, Pretraining, Training, BackendSettings)
        for f in fields(record)
        if f.name not in named
    }
    assert not missing


@pytest.mark.parametrize("page", ["files.md", "audio.md"])
def test_configurations_on_the_pages_are_understood(page):
    from mvplda.paper.experiment_settings import Configuration

    blocks = re.findall(
        r"```toml\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), flags=re.DOTALL
    )
    assert blocks
    for block in blocks:
        written = tomllib.loads(block)
        read = Configuration.from_dict(written).to_dict()
        for section, values in written.items():
            assert {name: read[section][name] for name in values if name != "recipe"} == {
                name: value for name, value in values.items() if name != "recipe"
            }


@pytest.mark.parametrize("page", [README, *sorted(DOCS.glob("*.md"))], ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        there = page if not name else page.parent / name
        assert there.exists(), f"{page.name} links to {target}"
        if anchor:
            headings = re.findall(
                r"^#+ (.+)$", there.read_text(encoding="utf-8"), flags=re.MULTILINE
            )
            slugs = {
                re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings
            }
            assert anchor in slugs, f"{page.name} links to {target}"
