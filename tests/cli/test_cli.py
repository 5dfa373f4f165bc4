"""The command line, from the outside."""

from __future__ import annotations

import json
import subprocess
import sys

import click
import numpy as np
import pytest
from click.testing import CliRunner
from safetensors.numpy import save_file

from mvplda import MultiviewPLDA, load, make_two_views
from mvplda.cli import main


def mvplda(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "mvplda", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )


def test_help_imports_nothing_heavy():
    code = "import sys, mvplda.cli; print([m for m in ('sklearn', 'torch', 'matplotlib', 'scipy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    assert "setup" in mvplda("--help").stdout


def test_errors_are_one_line(tmp_path):
    done = mvplda("info", tmp_path / "nothing.safetensors")
    assert done.returncode == 1
    assert done.stderr.startswith("mvplda: there is no file")
    assert done.stderr.count("\n") == 1
    (tmp_path / "bad.safetensors").write_bytes(b"not a model")
    done = mvplda("info", tmp_path / "bad.safetensors")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "Traceback" in mvplda("--debug", "info", tmp_path / "bad.safetensors").stderr


def run_here(*arguments):
    """Run a command in this process: exit code, and what it said."""
    done = CliRunner().invoke(main, [str(a) for a in arguments])
    assert "Traceback" not in done.output
    return done.exit_code, done.output


def info(path):
    code, text = run_here("info", "--json", path)
    assert code == 0, text
    code, shown = run_here("info", path)
    assert code == 0
    assert shown.startswith(f"kind: {json.loads(text)['kind']}\n")
    return json.loads(text)


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    """Vectors of 30 x 25 classes, each cell at most once, in an .npz with utt2spk and utt2chn."""
    root = tmp_path_factory.mktemp("drawn")
    rng = np.random.default_rng(0)
    speaker, channel = rng.integers(30, size=300), rng.integers(25, size=300)
    X = (
        rng.normal(size=(30, 6))[speaker]
        + 0.7 * rng.normal(size=(25, 6))[channel]
        + 0.5 * rng.normal(size=(300, 6))
    )
    ids = np.array([f"u{i}" for i in range(300)])
    np.savez(root / "x.npz", X=X, ids=ids)
    for name, column in (("utt2spk", speaker), ("utt2chn", channel)):
        (root / name).write_text("".join(f"{i} c{c}\n" for i, c in zip(ids, column, strict=True)))
    labels = {"speaker": speaker, "channel": channel}
    return root, X, labels


def labelled(root):
    return ["-l", f"speaker={root / 'utt2spk'}", "-l", f"channel={root / 'utt2chn'}"]


@pytest.mark.parametrize("asked", [None, "exact"])
def test_train_says_how_it_was_solved(drawn, tmp_path, asked):
    root, X, labels = drawn
    views = ["-v", "speaker=2", "-v", "channel=2"]
    choice = [] if asked is None else ["--set", f"algorithm={asked}"]
    path = tmp_path / "model.safetensors"
    code, said = run_here("train", root / "x.npz", *labelled(root), *views, *choice, "-o", path)
    assert code == 0, said
    assert "solved exactly" in said
    about = info(path)
    assert about["algorithm"] == "exact"
    expected = MultiviewPLDA({"speaker": 2, "channel": 2}, random_state=0).fit(X, labels)
    shares = expected.explained_variance_ratio_
    assert about["explained_variance_ratio"]["speaker"] == pytest.approx(
        shares["speaker"], rel=1e-6
    )


def test_info_of_statistics(drawn, tmp_path):
    root, _, labels = drawn
    path = tmp_path / "stats.safetensors"
    code, said = run_here(
        "stats", root / "x.npz", *labelled(root), "--second-moment", "diagonal", "-o", path
    )
    assert code == 0, said
    about = info(path)
    assert (about["kind"], about["vectors"], about["dimension"]) == ("statistics", 300, 6)
    assert about["second moment"] == "diagonal"
    assert about["classes"] == {view: len(np.unique(column)) for view, column in labels.items()}
    assert about["sources"]["shards"] == 1
    path.write_bytes(path.read_bytes()[:-1])
    assert run_here("info", path)[0] == 1


def test_info_of_a_calibrator_and_of_what_is_nothing_of_ours(tmp_path):
    from mvplda.calibration.scores import LinearCalibrator

    rng = np.random.default_rng(0)
    target = np.arange(200) < 100
    LinearCalibrator().fit(rng.normal(size=200) + target, target).save(tmp_path / "c.safetensors")
    assert info(tmp_path / "c.safetensors")["class"] == "LinearCalibrator"

    save_file({"x": np.zeros(3)}, tmp_path / "foreign.safetensors")
    code, said = run_here("info", tmp_path / "foreign.safetensors")
    assert (code, said.count("\n")) == (1, 1)
    assert "is a safetensors file of another program" in said
    save_file({"x": np.zeros(3)}, tmp_path / "other.safetensors", metadata={"format": "pt"})
    assert "its format is 'pt'" in run_here("info", tmp_path / "other.safetensors")[1]
    (tmp_path / "notes.txt").write_text("nothing")
    code, said = run_here("info", tmp_path / "notes.txt")
    assert code == 1
    assert "its suffix is not that of a file of vectors" in said


@pytest.mark.parametrize("name", ["x.parquet", "x.csv", "x.ark", "x.scp"])
def test_convert_goes_there_and_back(drawn, tmp_path, name):
    from mvplda.io import read_vectors

    root, X, _ = drawn
    assert run_here("convert", root / "x.npz", tmp_path / name) == (0, "")
    assert run_here("convert", tmp_path / name, tmp_path / "back.npz") == (0, "")
    back = read_vectors(tmp_path / "back.npz")
    assert back.ids.tolist() == [f"u{i}" for i in range(300)]
    np.testing.assert_allclose(back.X, X, rtol=1e-6 if name in ("x.ark", "x.scp") else 0)
    about = info(tmp_path / name)
    assert (about["kind"], about["vectors"], about["dimension"]) == ("vectors", 300, 6)


def test_convert_exchanges_models_with_kaldi(drawn, tmp_path):
    root, _, _ = drawn
    own, kaldi, back = (tmp_path / name for name in ("own.safetensors", "plda", "back.safetensors"))
    options = ["-l", f"speaker={root / 'utt2spk'}", "-v", "speaker=3", "--set", "noise=full", "-q"]
    assert run_here("train", root / "x.npz", *options, "-o", own)[0] == 0
    assert run_here("convert", own, kaldi, "--as", "plda") == (0, "")
    assert kaldi.read_bytes().startswith(b"\0B<Plda>")
    assert run_here("convert", kaldi, back) == (0, "")  # recognised by its first bytes
    shares = [info(path)["explained_variance_ratio"]["noise"] for path in (own, back)]
    assert shares[1] == pytest.approx(shares[0], rel=1e-6)


def test_every_page_of_help_says_what_its_options_are():
    def commands(command, path):
        yield path, command
        for name in getattr(command, "list_commands", lambda _: [])(None):
            yield from commands(command.get_command(None, name), (*path, name))

    own = {"train", "score", "evaluate", "info", "convert", "network"}
    for path, command in commands(main, ()):
        assert command.help, path
        if path and path[0] in own:
            silent = [p.name for p in command.params if isinstance(p, click.Option) and not p.help]
            assert not silent, (path, silent)


def test_labels_that_lie_beside_the_vectors_need_no_list(tmp_path):
    """An .npz with the arrays X, speaker and phrase; the columns may have other names."""
    X, labels = make_two_views(8, 3, 3, 6, (2, 1), random_state=0)
    names = np.array([f"s{i}" for i in labels["speaker"]])
    np.savez(tmp_path / "a.npz", X=X, speaker=names, phrase=labels["phrase"])
    np.savez(tmp_path / "b.npz", X=X, who=names, phrase=labels["phrase"])
    ranks = ["-v", "speaker=2", "-v", "phrase=1", "-q", "-o", str(tmp_path / "m.safetensors")]
    for call in (["a.npz"], ["b.npz", "-l", "speaker=who"]):
        found = CliRunner().invoke(main, ["train", str(tmp_path / call[0]), *call[1:], *ranks])
        assert found.exit_code == 0, found.output
        model = load(tmp_path / "m.safetensors").scorer
        assert set(model.classes_["speaker"]) == set(names)
        assert len(model.classes_["phrase"]) == 3
    found = CliRunner().invoke(main, ["train", str(tmp_path / "b.npz"), *ranks])
    assert found.exit_code == 2
    assert (
        "the labels of speaker are missing: pass --labels speaker=FILE, or --labels" in found.output
    )
    assert "with a column of" in found.output
    assert ": who, phrase" in found.output
