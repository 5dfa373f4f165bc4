"""``python -m benchmarks check`` finds rows that the code does not give."""

from __future__ import annotations

import json
import math

import pytest
from click.testing import CliRunner

from benchmarks import check, tables
from benchmarks.check import Checker, Row, compared, stored_rows
from mvplda.paper.provenance import digest_of, with_provenance, write_results

STUDY = """\
import sys
from pathlib import Path
from mvplda.paper.provenance import provenance, with_provenance, write_results

output = Path(sys.argv[1])
rows = {{"one": {{"eer": 0.0063, "trials": 500}}, "two": {{"eer": {second}, "trials": 500}}}}
record = provenance(command="python study.py {{output}}")
write_results(output / "results.json", "study", rows=with_provenance(rows, record))
"""


@pytest.fixture
def study(tmp_path):
    """A stored file of two rows, and the study that makes them."""
    script = tmp_path / "study.py"
    script.write_text(STUDY.format(second="0.02"))
    rows = {"one": {"eer": 0.0063, "trials": 500}, "two": {"eer": 0.02, "trials": 500}}
    record = {"command": f"python {script} {{output}}", "commit": "0" * 40, "inputs": {}}
    file = tmp_path / "stored" / "results.json"
    write_results(file, "study", rows=with_provenance(rows, record))
    return file


def run(file, *words):
    ended = CliRunner().invoke(check.main, [str(file), "--work", str(file.parent), *words])
    assert ended.exception is None or isinstance(ended.exception, SystemExit), ended.exception
    return ended


def change(file, row, **values):
    results = json.loads(file.read_text())
    results["rows"][row].update(values)
    file.write_text(json.dumps(results))


def change_provenance(file, row, **values):
    record = json.loads(file.read_text())["rows"][row]["provenance"]
    change(file, row, provenance={**record, **values})


def test_true_rows_pass(study):
    ended = run(study, "--seed", "1")
    assert ended.exit_code == 0
    assert "seed 1, 2 rows are stored" in ended.output
    assert "2 row(s) made again, 0 different" in ended.output


def test_a_falsified_row_is_found(study):
    change(study, "one", eer=0.0073)
    ended = run(study)
    assert ended.exit_code == 1
    assert "eer: 0.0073 is stored, 0.0063 made again" in ended.output
    assert "same  stored: two" in ended.output


def test_a_row_whose_study_changed_is_found(study):
    (study.parent.parent / "study.py").write_text(STUDY.format(second="0.03"))
    ended = run(study)
    assert ended.exit_code == 1
    assert "DIFFERS  stored: two" in ended.output


def test_a_row_has_its_own_tolerance(study):
    change(study, "one", eer=0.0064)
    assert run(study).exit_code == 1
    change_provenance(study, "one", tolerance=0.05)
    assert run(study).exit_code == 0


def test_a_row_that_its_command_does_not_make_is_found(study):
    results = json.loads(study.read_text())
    results["rows"]["three"] = results["rows"]["one"]
    study.write_text(json.dumps(results))
    assert "its command does not make it" in run(study).output


def test_a_command_that_fails_is_found(study):
    change_provenance(study, "one", command="python -m benchmarks.studies.nothing {output}")
    ended = run(study)
    assert ended.exit_code == 1
    assert "its command fails" in ended.output


def test_a_row_of_a_dirty_tree_is_found(study):
    change_provenance(study, "one", dirty=True)
    ended = run(study)
    assert ended.exit_code == 1
    assert "uncommitted changes" in ended.output


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({"unchecked": "times of a machine"}, "times of a machine"),
        ({"command": None, "note": "from elsewhere"}, "its maker is not known: from elsewhere"),
        ({"seconds": 4000}, "takes 4000 s"),
        ({"inputs": {"voices.npz": "0"}}, "voices.npz is neither in"),
        ({"inputs": {"there.npz": "0"}}, "is not the file that the row was made from"),
    ],
)
def test_rows_that_cannot_be_made_here_are_skipped_with_a_reason(study, record, reason):
    (study.parent / "there.npz").write_text("other vectors")
    change_provenance(study, "one", **record)
    ended = run(study)
    assert ended.exit_code == 0
    assert reason in ended.output
    assert "1 row(s) made again" in ended.output


def test_inputs_are_compared_by_their_content(tmp_path):
    (tmp_path / "v.npz").write_text("vectors")
    record = {"command": "python x", "inputs": {"v.npz": digest_of(tmp_path / "v.npz")}}
    row = Row(tmp_path / "results.json", ("rows", "x"), {"provenance": record})
    assert Checker(tmp_path, tmp_path).reason_to_skip(row) == ""


@pytest.mark.parametrize(
    ("stored", "remade", "differences"),
    [
        ({"x": 1.0}, {"x": 1.0 + 1e-4}, 0),
        ({"x": 1.0}, {"x": 1.1}, 1),
        ({"x": 0.0}, {"x": 1e-9}, 0),
        ({"x": math.nan}, {"x": math.nan}, 0),
        ({"x": math.nan}, {"x": 1.0}, 1),
        ({"x": [1.0, 2.0]}, {"x": [1.0]}, 1),
        ({"x": "a"}, {"x": "b"}, 1),
        ({"x": 1.0, "y": 1.0}, {"x": 1.0}, 1),
        ({"seconds": 1.0}, {"seconds": 9.0}, 0),
    ],
)
def test_values_are_compared(stored, remade, differences):
    assert len(list(compared(stored, remade, 0.01))) == differences


def simulated_files():
    names = ("drawn-one", "drawn-two", "drawn-components", "drawn-ranks")
    return [tables.PAPER_RESULTS / name / "results.json" for name in names]


@pytest.mark.slow
def test_simulated_rows_are_those_of_the_code(tmp_path):
    checker = Checker(tmp_path, tmp_path)
    for row in stored_rows(simulated_files()):
        assert checker.reason_to_skip(row) == ""
        assert checker.differences(row) == [], row.title


@pytest.mark.slow
def test_the_demonstration_gives_its_table(tmp_path):
    for module in ("espeakng_loader", "soundfile", "soxr", "torch"):
        pytest.importorskip(module)
    checker = Checker(tmp_path, tmp_path, most_seconds=3600)
    for row in stored_rows([tables.RESULTS / "synthetic-demo" / "results.json"]):
        assert checker.reason_to_skip(row) == ""
        assert checker.differences(row) == [], row.title
