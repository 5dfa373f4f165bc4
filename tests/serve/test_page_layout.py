"""Layout of the page in a browser: the steps of an enrolment lie in the middle of a wide window."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("playwright.sync_api", reason="playwright drives the browser")
pytest.importorskip("fastapi")

from playwright import sync_api
from service_problems import Bench, make_bench, sqlite_store
from test_serve_streams import serving

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium"),
]
# left and right ends of what is drawn in the current step, in shares of the width of the page
EXTENT = """() => {
  const boxes = [...document.querySelectorAll(".steps h1, .steps form *")]
    .map((element) => element.getBoundingClientRect()).filter((box) => box.width > 0);
  const left = Math.min(...boxes.map((box) => box.left)), right = Math.max(...boxes.map((box) => box.right));
  return [left / innerWidth, right / innerWidth];
}"""


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with make_bench(sqlite_store(tmp_path)) as found:
        yield found


@pytest.mark.parametrize("width", [1280, 1920, 400])
def test_the_steps_of_an_enrolment_fill_or_share_the_width(
    bench: Bench, tmp_path: Path, width: int
) -> None:
    with (
        serving(bench.calls.app, bench.service.settings) as (_, port),
        sync_api.sync_playwright() as driver,
    ):
        browser: Any = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": width, "height": 800})
        page.goto(f"http://127.0.0.1:{port}/#/enrol")
        page.wait_for_selector("text=What is stored about you")
        for step in ("consent", "phrase"):
            page.screenshot(path=tmp_path / f"{step}-{width}.png")
            left, right = page.evaluate(EXTENT)
            # as much room on the left as on the right
            assert left == pytest.approx(1 - right, abs=0.02), step
            if step == "consent":
                page.check("#agree")
                page.click("text=Continue")
                page.wait_for_selector("text=Your name and your phrase")
        browser.close()
