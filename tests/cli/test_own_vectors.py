"""Vectors of one's own on the command line: an archive with any names, no list of trials, no ranks."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from mvplda import load, make_two_views
from mvplda.cli import main
from mvplda.exceptions import FileFormatError
from mvplda.io import VectorSet, read_scores, read_vectors, write_map, write_vectors
from mvplda.io.vectors import read_columns


def call(*words: object) -> str:
    done = CliRunner().invoke(main, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    return done.output


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    X, labels = make_two_views(30, 5, 6, 20, (5, 4), random_state=0)[:2]
    np.savez(tmp_path / "own.npz", emb=X, spk=labels["speaker"], text=labels["phrase"])
    return tmp_path / "own.npz"


def test_the_only_table_of_an_archive_is_its_vectors(archive, tmp_path):
    arrays = dict(np.load(archive))
    np.testing.assert_array_equal(read_vectors(archive).X, arrays["emb"])
    assert read_columns(archive, ["spk"])["spk"].tolist() == arrays["spk"].tolist()
    for more in ({"other": arrays["emb"]}, {"emb": arrays["emb"].astype(str)}):
        np.savez(tmp_path / "odd.npz", **{**arrays, **more})
        with pytest.raises(FileFormatError, match=r"expected (an array 'X'|vectors \(n, D\))"):
            read_vectors(tmp_path / "odd.npz")


def test_a_view_without_a_rank_has_all_its_classes_allow(archive, tmp_path):
    views = ("-v", "spk", "-v", "text")
    call("train", archive, "--model", "multiview", *views, "-q", "-o", tmp_path / "m.safetensors")
    ranks = {
        view: loading.shape[1]
        for view, loading in load(tmp_path / "m.safetensors").scorer.loadings_.items()
    }
    assert ranks == {"spk": 20, "text": 4}


def test_a_folder_of_kaldi_is_its_vectors_with_their_labels(archive, tmp_path):
    own, folder = dict(np.load(archive)), tmp_path / "data"
    folder.mkdir()
    ids = np.array([f"u{i}" for i in range(len(own["emb"]))])
    write_vectors(folder / "xvector.scp", VectorSet(ids, own["emb"]))
    for name, column in {"utt2spk": "spk", "utt2phrase": "text"}.items():
        write_map(folder / name, dict(zip(ids, own[column].astype(str), strict=True)))
    ranks = ("-v", "speaker=5", "-v", "phrase=4", "-q", "-o")
    call("train", folder, *ranks, tmp_path / "a.safetensors")
    named = ("-l", f"speaker={folder / 'utt2spk'}", "-l", f"phrase={folder / 'utt2phrase'}")
    call("train", folder / "xvector.scp", *named, *ranks, tmp_path / "b.safetensors")
    one, other = (load(tmp_path / f"{name}.safetensors").scorer for name in "ab")
    np.testing.assert_array_equal(one.loadings_["speaker"], other.loadings_["speaker"])
    options = (
        "-q",
        "--systems",
        "cosine",
        "-s",
        "evaluation.resamples=0",
        "-o",
        tmp_path / "out",
    )
    assert "30 of speaker, 5 of phrase" in call("experiment", "vectors", folder, *options)
    (folder / "xvector.scp").rename(folder / "voices.scp")
    assert read_vectors(folder).ids.tolist() == ids.tolist()
    (folder / "wav.scp").touch()
    with pytest.raises(
        FileFormatError,
        match=r"this is a folder with voices.scp, wav.scp: pass the path of one file",
    ):
        read_vectors(folder)
    with pytest.raises(FileFormatError, match=r"this is a folder with no .scp file"):
        read_vectors(tmp_path)


def test_without_a_list_every_model_meets_every_test(archive, tmp_path):
    call("train", archive, "-v", "spk=5", "-v", "text=4", "-q", "-o", tmp_path / "m.safetensors")
    X = np.load(archive)["emb"]
    np.savez(tmp_path / "enrol.npz", X=X[:6], ids=["b", "a", "c", "f", "e", "d"])
    np.savez(tmp_path / "test.npz", X=X[6:10])
    (tmp_path / "groups").write_text("two b a\none c\n")
    sides = ("--enrol", tmp_path / "enrol.npz", "--test", tmp_path / "test.npz")
    call("score", tmp_path / "m.safetensors", *sides, "-o", tmp_path / "all")
    call(
        "score",
        tmp_path / "m.safetensors",
        *sides,
        "--models",
        tmp_path / "groups",
        "-o",
        tmp_path / "some",
    )
    bundle = load(tmp_path / "m.safetensors")
    found = read_scores(tmp_path / "all")
    assert found.enrol.tolist()[:5] == ["b"] * 4 + ["a"]
    assert found.test.tolist()[:5] == ["0", "1", "2", "3", "0"]
    np.testing.assert_allclose(
        found.score.reshape(6, 4), bundle.llr(X[:6], X[6:10]), rtol=1e-4, atol=1e-4
    )
    expected = bundle.llr(bundle.enrol(X[:3], ["two", "two", "one"]), X[6:10])
    np.testing.assert_allclose(
        read_scores(tmp_path / "some").score.reshape(2, 4), expected, rtol=1e-4, atol=1e-4
    )


def test_an_experiment_takes_labels_from_columns(archive, tmp_path):
    options = ("-q", "--systems", "cosine", "-s", "evaluation.resamples=0")
    named = dict(np.load(archive))
    np.savez(
        tmp_path / "named.npz",
        X=named["emb"],
        speaker=named["spk"],
        phrase=named["text"],
        seconds=named["spk"],
    )
    call("experiment", "vectors", tmp_path / "named.npz", "-o", tmp_path / "a", *options)
    chosen = ("-l", "speaker=spk", "-l", "phrase=text")
    call("experiment", "vectors", archive, *chosen, "-o", tmp_path / "b", *options)
    tables = [
        json.loads((tmp_path / place / "results.json").read_text())["systems"] for place in "ab"
    ]
    first, second = (
        [{**row, "seconds": 0, "provenance": None} for row in table.values()] for table in tables
    )
    assert first == second
    done = CliRunner().invoke(
        main, ["experiment", "vectors", str(archive), "-o", str(tmp_path / "c")]
    )
    assert done.exit_code == 1
    assert "own.npz: spk, text" in done.output


def test_setup_uses_a_column_of_sexes_beside_the_speakers(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    speaker = np.repeat(np.arange(8), 3)
    X = rng.normal(size=(8, 6))[speaker] + 0.3 * rng.normal(size=(24, 6))
    sex = np.array(["f", "m"])[speaker % 2]
    np.savez("vectors.npz", X=X, speaker=speaker.astype(str), gender=sex)
    for options in ((), ("--labels", "speaker=speaker")):
        done = CliRunner().invoke(main, ["setup", "vectors.npz", "-o", "voices", "-q", *options])
        assert done.exit_code == 0, done.output
        assert "Sex comes from the column gender: 4 f, 4 m." in done.output
        assert "Same sex: " in done.output
