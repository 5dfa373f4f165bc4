"""Check a built site: ``python tests/site_pages.py FOLDER``.

Names each page that loads something from another machine, and each page of a class that lists internal members.
"""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path

ASSETS = {
    "script": "src",
    "img": "src",
    "link": "href",
    "iframe": "src",
    "source": "src",
    "video": "src",
}
FREE = ("canonical", "license", "author")
"""Kinds of links that nothing is loaded from."""


class _Assets(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = {name: value or "" for name, value in attrs}
        address = named.get(ASSETS.get(tag, ""), "")
        if address.startswith(("http:", "https:", "//")) and named.get("rel") not in FREE:
            self.found.append(address)


def foreign_assets(folder: Path) -> list[tuple[str, str]]:
    """(page, address) of everything that a page, or its style, would load from elsewhere."""
    found = []
    for page in sorted(folder.rglob("*.html")):
        parser = _Assets()
        parser.feed(page.read_text(encoding="utf-8"))
        found += [(page.relative_to(folder).as_posix(), address) for address in parser.found]
    for style in sorted(folder.rglob("*.css")):
        text = style.read_text(encoding="utf-8").replace("'", "").replace('"', "")
        if any(mark in text for mark in ("url(http", "url(//", "@import http")):
            found.append((style.relative_to(folder).as_posix(), "a style or a font"))
    return found


INTERNAL = ("NAME", "FITTED", "get_state", "from_state", "check_state", "pair_terms")
"""Members of scorers that only authors of scorers need."""
BASE_CLASSES = ("mvplda.calibration.Calibrator.html",)


def internal_members(folder: Path) -> list[tuple[str, str]]:
    """Return (page, member) of internal members on the pages of classes to use."""
    found = []
    for page in sorted((folder / "reference").glob("mvplda*.html")):
        ids = re.findall(r'<dt class="sig[^>]*id="([\w.]+)"', page.read_text(encoding="utf-8"))
        names = [name.rpartition(".")[2] for name in ids]
        if page.name not in BASE_CLASSES:
            found += [(page.name, name) for name in names if name in INTERNAL]
    return found


if __name__ == "__main__":
    site = Path(sys.argv[1])
    faults = [f"{page} loads {asset}" for page, asset in foreign_assets(site)]
    faults += [f"{page} lists {member}" for page, member in internal_members(site)]
    print("\n".join(faults), end="\n" if faults else "")
    sys.exit(bool(faults))
