"""``python -m benchmarks attacks``: the service enrols people, is attacked over HTTP, and the rows are written."""

from __future__ import annotations

import json
from functools import partial

import pytest
from click.testing import CliRunner
from spoken import say

from mvplda.serve.settings import Settings
from mvplda.voice.attacks.attack import RATE
from mvplda.voice.attacks.copies import COPIES

soundfile = pytest.importorskip("soundfile")
attacks = pytest.importorskip("benchmarks.attacks")


@pytest.fixture
def folder(tmp_path):
    for number, person in enumerate(("ann", "bob")):
        for take in range(5):
            path = tmp_path / "people" / person / "hello" / f"{take}.wav"
            path.parent.mkdir(parents=True, exist_ok=True)
            soundfile.write(path, say(10 * number + take, 1.5), RATE)
    return tmp_path / "people"


def test_attacks_go_through_the_service(folder, tmp_path, monkeypatch):
    # the toy network: verdicts mean nothing, the recognition of copies does
    monkeypatch.setattr(attacks, "Settings", partial(Settings, demo=True, least_llr=-1e9))
    chosen = {name: COPIES[name] for name in ("half the gain", "one sample dropped")}
    monkeypatch.setattr(attacks, "ALL_ATTACKS", chosen)
    output = tmp_path / "out"
    words = [str(folder), "-o", str(output)]
    done = CliRunner().invoke(attacks.main, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    rows = json.loads((output / "results.json").read_text())["rows"]["people"]
    found = {(row["attack"], row["origin"]): row for row in rows}
    assert found["owner", ""]["attempts"] == 4
    for name in ("unchanged", *chosen):
        assert found[name, "enrolment"]["attempts"] == 2
        assert found[name, "enrolment"]["suspected"][0] == 1.0
        assert found[name, "enrolment"]["accepted"][0] == 0.0
    # the service forgets an attack before the next one
    assert all(found[name, "other recording"]["suspected"][0] == 0.0 for name in chosen)
    command = found["owner", ""]["provenance"]["command"]
    assert command == "python -m benchmarks attacks {data}/people --output {output}"
    table = (output / "table.md").read_text()
    assert "## people" in table
    assert table.count("half the gain") == 2
    assert attacks.row_of(found["owner", ""]).people == 2
