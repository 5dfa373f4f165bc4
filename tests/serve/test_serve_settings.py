"""Settings: each has an option, a name in the environment, a description and a line of the reference."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("fastapi")

from click.testing import CliRunner
from commands_page import page
from service_problems import make_bench, sqlite_store

from mvplda.cli import main
from mvplda.cli.serve import serve_command
from mvplda.serve.settings import Settings

OPTIONS = {parameter.name: parameter for parameter in serve_command.params}
# long lines of the reference are wrapped
REFERENCE = " ".join(page().split())


@pytest.mark.parametrize("name", Settings.model_fields)
def test_every_setting_has_an_option_and_a_name_in_the_environment(name):
    assert name in OPTIONS
    assert f"MVPLDA_{name.upper()}" in (OPTIONS[name].help or "")
    assert Settings.model_fields[name].description
    assert f"MVPLDA_{name.upper()}]" in REFERENCE
    assert max(OPTIONS[name].opts, key=len) in REFERENCE


def test_without_the_extra_an_option_names_what_to_install():
    code = "import sys; sys.modules['fastapi'] = None; from mvplda.cli import main; main()"
    words = [sys.executable, "-c", code, "serve", "--port", "8000"]
    ended = subprocess.run(words, capture_output=True, text=True)
    assert ended.returncode == 1
    assert "pip install 'mvplda[serve]'" in ended.stderr


def test_options_come_before_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("MVPLDA_LOCK_AFTER", "7")
    monkeypatch.setenv("MVPLDA_EXTRACTORS", "campplus words")
    assert Settings().lock_after == 7
    assert Settings(lock_after=9).lock_after == 9
    assert Settings().extractors == ("campplus", "words")
    found = CliRunner().invoke(main, ["serve", "--data", str(tmp_path), "--far", "2"])
    assert found.exit_code == 2
    assert "--far (MVPLDA_FAR)" in found.output


@pytest.mark.parametrize(
    ("role", "verifies", "identifies"),
    [("all", 200, 200), ("verify", 200, 404), ("identify", 404, 200)],
)
def test_an_instance_may_have_one_kind_of_decision(tmp_path, role, verifies, identifies):
    with make_bench(sqlite_store(tmp_path), Settings(role=role)) as bench:
        vectors = bench.world.say(40, 0, 4)
        profile = bench.calls.create()
        for vector in vectors[:3]:
            bench.calls.enrol(profile, vector)
        assert bench.calls.verify(profile, vectors[3]).status_code == verifies
        body = {"vector": vectors[3].tolist()}
        assert bench.calls("POST", "/v1/identify", json=body).status_code == identifies


def test_vectors_can_be_refused(tmp_path):
    with make_bench(sqlite_store(tmp_path), Settings(vectors=False)) as bench:
        answer = bench.calls.enrol(bench.calls.create(), bench.world.say(40, 0)[0])
        assert (answer.status_code, answer.json()["type"]) == (422, "urn:mvplda:vectors")


def test_old_entries_of_the_audit_are_deleted(tmp_path):
    with make_bench(sqlite_store(tmp_path), Settings(audit_days=10)) as bench:
        bench.calls.create()
        bench.clock.now += 11 * 86400
        bench.service._clean_up_at = 0.0
        bench.calls.create()
        entries = bench.calls("GET", "/v1/audit").json()["items"]
        assert [entry["action"] for entry in entries] == ["create"]


def test_the_reference_of_endpoints_comes_from_the_package(tmp_path):
    with make_bench(sqlite_store(tmp_path)) as bench:
        page = bench.calls("GET", "/docs/")
        assert page.status_code == 200
        assert "script-src 'self'" in page.headers["content-security-policy"]
        assert "https://" not in page.text
        assert bench.calls("GET", "/docs.js").status_code == 200
