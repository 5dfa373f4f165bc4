"""The documents in pieces: blocks of code, commands, and spans of inline code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PAGES = {
    path.relative_to(ROOT).as_posix(): path
    for path in [
        *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")),
        *sorted((ROOT / "docs").glob("*.md")),
    ]
}
SHELL = ("sh", "console")
PYTHON = ("python", "pycon")


class Block(NamedTuple):
    """One fenced block; `language` is empty if none is given."""

    page: str
    language: str
    text: str

    @property
    def first(self) -> str:
        return self.text.strip().partition("\n")[0]

    @property
    def commands(self) -> list[str]:
        """Commands of a shell block or of a block without a language, comments taken off.

        The lines of a block that a prompt begins are commands where they have it, the others output.
        """
        lines = self.text.replace("\\\n", " ").splitlines()
        if any(line.startswith("$ ") for line in lines):
            lines = [line[2:] for line in lines if line.startswith("$ ")]
        elif self.language not in SHELL:
            lines = [line for line in lines if line.startswith("mvplda ")]
        stripped = (" ".join(line.partition(" #")[0].split()) for line in lines)
        found = [line for line in stripped if line]
        # later lines of a script need the variables of earlier ones
        is_script = any(re.match(r"[a-z]\w*=", line) for line in found)
        return ["\n".join(found)] if is_script else found


@cache
def text_of(page: str) -> str:
    return PAGES[page].read_text(encoding="utf-8")


@cache
def blocks(page: str) -> list[Block]:
    """The fenced blocks of a page; directives such as ``{toctree}`` are no code."""
    found = re.findall(r"^```([^\n`]*)\n(.*?)^```", text_of(page), flags=re.DOTALL | re.MULTILINE)
    return [Block(page, language, text) for language, text in found if not language.startswith("{")]


def spans(page: str) -> Iterator[str]:
    """Inline code, on one line each."""
    text = re.sub(r"^ *```.*?^ *```", "", text_of(page), flags=re.DOTALL | re.MULTILINE)
    for ticks, code in re.findall(r"(?<!`)(`{1,2})(?!`)(.+?)(?<!`)\1(?!`)", text, flags=re.DOTALL):
        if "\n\n" not in code and (ticks == "``" or "`" not in code):
            yield " ".join(code.replace("\\|", "|").split())
