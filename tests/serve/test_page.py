"""The page's files: nothing from elsewhere, nothing inline, nothing missing."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

import mvplda

PAGE = Path(mvplda.__file__).parent / "serve" / "page"
FILES = {file.name: file.read_text(encoding="utf-8") for file in sorted(PAGE.glob("*.*"))}


@pytest.mark.parametrize("name", FILES)
def test_nothing_comes_from_elsewhere(name: str) -> None:
    addresses = set(re.findall(r"(?:https?:)?//[\w.-]+\.\w+[^\s\"'>]*", FILES[name]))
    assert addresses <= {"http://www.w3.org/2000/svg"}


@pytest.mark.parametrize("name", FILES)
def test_what_a_file_names_is_there(name: str) -> None:
    named = re.findall(
        r"""(?:from|new URL\(|href=|src=)\s*["'](?:\./)?([\w-]+\.(?:js|css|svg))["']""", FILES[name]
    )
    assert set(named) <= set(FILES)


def test_nothing_is_inline() -> None:
    for name in ("index.html", "login.html"):
        page = FILES[name]
        assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:", page)
        assert all("src=" in tag for tag in re.findall(r"<script[^>]*>", page))
    for name, text in FILES.items():
        assert "innerHTML" not in text, name
        assert not re.search(r"\beval\(|new Function\(", text), name


def test_the_page_is_asked_for_anew_and_takes_nothing_from_elsewhere(tmp_path: Path) -> None:
    problems = pytest.importorskip(
        "service_problems", reason="the service's extra is not installed"
    )
    with problems.make_bench(problems.sqlite_store(tmp_path)) as bench:
        answers = [
            bench.calls("GET", path)
            for path in ("/", "/login", "/lab", "/app.js", "/worklet.js", "/style.css")
        ]
        assert answers[2].text == answers[0].text != answers[1].text
        del answers[1:3]
        kinds = [answer.headers["content-type"].partition(";")[0] for answer in answers]
        assert kinds == ["text/html", "text/javascript", "text/javascript", "text/css"]
        for answer in answers:
            assert answer.headers["cache-control"] == "no-cache"
            policy = answer.headers["content-security-policy"]
            assert set(re.findall(r"-src ([^;]+)", policy)) == {"'none'", "'self'"}
        assert bench.calls("GET", "/v1/health").headers["cache-control"] == "no-store"


@pytest.mark.parametrize("name", [name for name in FILES if name.endswith(".js")])
def test_scripts_are_valid(name: str, tmp_path: Path) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("there is no node here")
    copy = tmp_path / f"{Path(name).stem}.mjs"
    copy.write_text(FILES[name], encoding="utf-8")
    done = subprocess.run([node, "--check", str(copy)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
