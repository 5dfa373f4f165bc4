"""The pages of the one path: every command and every line of Python on them runs, and prints what they show.

The sessions of README and the tutorial, and the tour, are run by test_readme.py.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import mvplda

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT.parent / "shared" / "data"
PAGES = {"README.md": ROOT / "README.md", "five-minutes.md": ROOT / "docs" / "five-minutes.md"}
NAMES = ("ann", "bob", "cat", "dan", "eve", "fay", "gil", "hal", "ida", "jon", "kim", "lea")
NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?")
ENDLESS = ("pip ", "make ", "mvplda serve")
"""The tests of packaging and of the service run these."""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with what the pages name: 12 people of Speech Commands, and pass-phrases of C-VAU."""
    people = sorted(DATA.glob("speech_commands/*/"))[: len(NAMES)]
    files = {"a": "c23/p01/2014-11_1", "b": "c23/p02/2014-11_1", "now": "c23/p01/2014-11_2"}
    files |= {"ann1": "c23/p01/2014-11_1", "ann2": "c23/p01/2014-11_3"}
    files |= {"bob": "c27/p01/2014-11_1", "unknown": "c27/p01/2014-11_2"}
    recordings = {name: DATA / "cvau" / f"{path}.flac" for name, path in files.items()}
    if len(people) < len(NAMES) or not all(path.is_file() for path in recordings.values()):
        pytest.skip(f"there are no recordings under {DATA}")
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed, which extractors need")
    try:
        mvplda.load_extractor(["campplus", "words"])
    except (OSError, mvplda.MvpldaError) as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("pages")
    (folder / "recordings").mkdir()
    for name, person in zip(NAMES, people, strict=True):
        (folder / "recordings" / name).symlink_to(person)
    for name, path in recordings.items():
        (folder / f"{name}.wav").symlink_to(path)
    return folder


def blocks(page: Path) -> list[tuple[str, str]]:
    """(language, text) of the fenced blocks of a page."""
    text = page.read_text(encoding="utf-8")
    return re.findall(r"^```(\w+)\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)


def run(command: str, folder: Path) -> str:
    """What a line prints; it has no error. Answers have exit codes of their own."""
    words = shlex.split(command, comments=True)
    done = subprocess.run(
        [sys.executable, "-m", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(mvplda.__file__).parents[1])},
    )
    answering = words[1] in ("verify", "identify")
    assert done.returncode in ((0, 1, 2) if answering else (0,)), (command, done.stderr)
    return done.stdout


def same(shown: str, printed: str) -> bool:
    """Whether texts are the same; numbers may differ by 2 %, or as much as rounding does."""
    one, other = (NUMBER.sub("#", " ".join(text.split())) for text in (shown, printed))
    numbers = zip(NUMBER.findall(shown), NUMBER.findall(printed), strict=False)
    near = [
        abs(float(a) - float(b)) <= max(0.02 * abs(float(b)), 0.05 if "." in a else 1)
        for a, b in numbers
    ]
    return one == other and all(near)


@pytest.mark.parametrize("page", PAGES)
def test_commands_print_what_a_page_shows(page, place):
    printed = ""
    commands = 0
    for language, text in blocks(PAGES[page]):
        if language == "sh":
            lines = [line for line in text.splitlines() if line and not line.startswith(ENDLESS)]
            printed = "".join(run(line, place) for line in lines)
            commands += len(lines)
        elif language == "text":
            assert same(text, printed), printed
    assert commands >= 4


@pytest.mark.parametrize("page", PAGES)
def test_python_prints_what_a_page_shows(page, place, monkeypatch, capsys):
    monkeypatch.chdir(place)
    code = "".join(text for language, text in blocks(PAGES[page]) if language == "python")
    exec(compile(code, page, "exec"), {})
    assert "speaker" in capsys.readouterr().out
