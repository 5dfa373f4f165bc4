"""`mvplda people` with the names of its page: who is enrolled, and what the page saves."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from click.testing import CliRunner

from mvplda.cli import main
from mvplda.voice.people import FoundPeople, Suggestion
from mvplda.voice.people_page import people_page
from mvplda.voice.turns import Turn, read_named_turns

TURN = {"recording": "a", "start": 1.0, "end": 2.0, "name": "S0", "text": ""}


def test_names_are_written_as_rttm_and_nobody_is_enrolled_without_consent(tmp_path, monkeypatch):
    pytest.importorskip("soundfile", reason="soundfile is not installed, which reads sound")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.wav").write_bytes(b"")
    saved = {"Bob": {"consent": False, "turns": [TURN]}}
    (tmp_path / "names.json").write_text(json.dumps(saved))
    command = ["people", "a.wav", "--names", "names.json", "-o"]
    done = CliRunner().invoke(main, [*command, "named.rttm"])
    assert done.exit_code == 0, done.output
    line = "SPEAKER a 1 1.000 1.000 <NA> <NA> Bob <NA> <NA>\n"
    assert (tmp_path / "named.rttm").read_text() == line
    refused = CliRunner().invoke(main, [*command, "voices.npz"])
    assert refused.exit_code != 0
    assert "Bob: not enrolled, because 'agreed to be recognised' was not ticked" in refused.output
    assert not (tmp_path / "voices.npz").exists()


@pytest.mark.slow
def test_the_page_saves_confirmed_names_and_consent(tmp_path):
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright drives the browser")
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("there is no Chromium (Debian: apt-get install chromium)")
    turns = [Turn("a", float(k), k + 0.5, f"S{k}") for k in range(3)]
    people = FoundPeople(np.arange(3), np.ones(3), [])
    page_file = tmp_path / "people.html"
    page_file.write_text(
        people_page(people, turns, {"a": "a.wav"}, [Suggestion(1, "ann", 9.0, True)])
    )
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page()
        page.goto(page_file.as_uri())
        page.get_by_role("button", name="It is ann").click()
        page.get_by_label("agreed").nth(1).check()
        page.get_by_label("name of person 3").fill("Bob")
        with page.expect_download() as saved:
            page.get_by_role("button", name="Save names").click()
        saved.value.save_as(tmp_path / "names.json")
        browser.close()
    named, agreed = read_named_turns(tmp_path / "names.json")
    assert [(turn.start, turn.name) for turn in named] == [(1.0, "ann"), (2.0, "Bob")]
    assert agreed == {"ann"}
