"""Provenance belongs to the row: its command, its commit, its inputs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from benchmarks import service
from benchmarks.studies import deals
from mvplda.paper import provenance as module
from mvplda.paper.provenance import (
    digest_of,
    provenance,
    result_rows,
    source_state,
    update_rows,
    with_provenance,
    write_results,
)


def test_provenance_hashes_files_and_folders(tmp_path):
    (tmp_path / "a").write_text("x")
    before = digest_of(tmp_path)
    (tmp_path / "b").write_text("y")
    assert digest_of(tmp_path) != before
    assert provenance([tmp_path / "a"])["inputs"] == {"a": digest_of(tmp_path / "a")}


def test_a_recorded_command_has_placeholders_for_inputs_and_output(tmp_path, monkeypatch):
    data = tmp_path / "my data.npz"
    words = ["python", "-m", "mvplda", "experiment", "vectors", str(data), "-o", "out folder"]
    monkeypatch.setattr(sys, "orig_argv", [*words, "-s", "grid.priors=[[1, 1]]"])
    expected = (
        "mvplda experiment vectors '{data}/my data.npz' -o {output} -s 'grid.priors=[[1, 1]]'"
    )
    assert module.command_line([data]) == expected


def repository(folder: Path) -> Path:
    """A repository with a committed copy of the module, at the same depth as in the project."""
    copied = folder / "src/mvplda/paper/provenance.py"
    copied.parent.mkdir(parents=True)
    copied.write_text("x = 1\n")
    (folder / "results").mkdir()
    git = ["git", "-c", "user.name=n", "-c", "user.email=e@example.org"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "start"]):
        subprocess.run([*git, *words], cwd=folder, check=True)
    return copied


def test_only_changes_of_code_make_a_tree_dirty(tmp_path, monkeypatch):
    copied = repository(tmp_path)
    monkeypatch.setattr(module, "__file__", str(copied))
    (commit,) = source_state().values()
    assert len(commit) == 40
    (tmp_path / "results" / "results.json").write_text("{}")
    assert source_state() == {"commit": commit}
    copied.write_text("x = 2\n")
    assert source_state() == {"commit": commit, "dirty": True}


def test_new_code_that_is_not_committed_makes_a_tree_dirty(tmp_path, monkeypatch):
    copied = repository(tmp_path)
    monkeypatch.setattr(module, "__file__", str(copied))
    (tmp_path / "src" / "new.py").write_text("y = 1\n")
    assert source_state()["dirty"]


def test_an_installed_package_has_no_commit_of_the_repository_around_it(tmp_path, monkeypatch):
    repository(tmp_path)
    installed = tmp_path / ".venv/lib/mvplda/paper/provenance.py"
    installed.parent.mkdir(parents=True)
    installed.write_text("x = 1\n")
    monkeypatch.setattr(module, "__file__", str(installed))
    assert source_state()["commit"] is None


@pytest.mark.parametrize(
    ("found", "places"),
    [
        ({"a": 1.0, "b": [2.0]}, [()]),
        ({"a": {"x": 1}, "b": {"x": 2}}, [("a",), ("b",)]),
        ({"runs": [{"x": 1}, {"x": 2}]}, [("runs", 0), ("runs", 1)]),
        ({"words": ["one"], "sizes": {"2": {"x": 1}}}, [()]),
    ],
    ids=["values", "rows by name", "list of rows", "values beside rows"],
)
def test_every_row_of_a_study_has_its_provenance(found, places):
    record = {"command": "python -m study"}
    rows = dict(result_rows(with_provenance(found, record)))
    assert list(rows) == places
    assert all(row["provenance"] == record for row in rows.values())


def test_a_row_that_has_a_provenance_keeps_it():
    old = {"x": 1, "provenance": {"command": "old"}}
    rows = with_provenance({"kills": [old, {"x": 2}]}, {"command": "new"})["kills"]
    assert [row["provenance"]["command"] for row in rows] == ["old", "new"]


def test_updated_rows_stand_in_order_beside_the_others(tmp_path):
    file = tmp_path / "results.json"
    old = {name: {"x": 1, "provenance": {"command": name}} for name in ("c", "other", "a")}
    write_results(file, "title", systems=old)
    update_rows(file, "title", "systems", {"b": {"x": 2, "provenance": {}}}, order="abc")
    systems = json.loads(file.read_text())["systems"]
    assert list(systems) == ["a", "b", "c", "other"]
    assert {name: systems[name] for name in old} == old


def miniature(folder: Path) -> None:
    """A file like speech_commands.npz of the shared data, of random vectors."""
    rng = np.random.default_rng(0)
    speakers = np.repeat([f"s{number:03d}" for number in range(360)], 8)
    phrases = np.tile(np.repeat(["no", "yes"], 4), 360)
    takes = np.tile(np.arange(4).astype(str), 720)
    person = rng.normal(size=(360, 196)).repeat(8, axis=0)
    X = (person + rng.normal(size=person.shape)).astype(np.float16)
    np.savez(
        folder / "speech_commands.npz",
        camp=X[:, :192],
        words=X[:, 192:],
        speaker=speakers,
        phrase=phrases,
        take=takes,
        snr_db=np.full(len(X), 20, np.float32),
    )


@pytest.mark.filterwarnings("ignore")
def test_a_new_row_leaves_the_provenance_of_the_others(tmp_path, monkeypatch):
    miniature(tmp_path)
    monkeypatch.setattr(deals, "DEALS", 2)
    words = [str(tmp_path), "--only", "speech-commands", "-o", str(tmp_path)]
    file = tmp_path / "results.json"
    for system in ("cosine", "cosine-voice"):
        ended = CliRunner().invoke(deals.main, [*words, "--system", system])
        assert ended.exit_code == 0, ended.output
        if system == "cosine":
            results = json.loads(file.read_text())
            results["systems"]["cosine"]["provenance"]["commit"] = "of another day"
            file.write_text(json.dumps(results))
    systems = json.loads(file.read_text())["systems"]
    assert list(systems) == ["cosine-voice", "cosine"]
    for name, row in systems.items():
        assert f"--system {name} --output {{output}}" in row["provenance"]["command"]
        assert row["provenance"]["seeds"] == [0, 1]
    assert systems["cosine"]["provenance"]["commit"] == "of another day"
    assert systems["cosine-voice"]["provenance"]["commit"] != "of another day"


def test_measurements_of_the_service_keep_the_provenance_of_the_others(tmp_path):
    service.add(tmp_path, {"verify": {"seconds": 1.0}})
    file = tmp_path / "results.json"
    results = json.loads(file.read_text())
    results["rows"]["verify"]["provenance"]["commit"] = "of another day"
    file.write_text(json.dumps(results))
    service.add(tmp_path, {"soak": {"calls": 3}})
    rows = json.loads(file.read_text())["rows"]
    assert rows["verify"]["provenance"]["commit"] == "of another day"
    assert rows["soak"]["provenance"]["commit"] != "of another day"
    assert "provenance" not in (tmp_path / "table.md").read_text()
