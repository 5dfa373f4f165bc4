"""What a built site asks of other machines: ``python tests/site_pages.py FOLDER`` names every page that does."""

from __future__ import annotations

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


if __name__ == "__main__":
    outside = foreign_assets(Path(sys.argv[1]))
    for name, what in outside:
        print(f"{name} loads {what}")
    sys.exit(bool(outside))
