"""Settings that no model has, and labels that are not there: one line and no traceback, or an answer."""

from __future__ import annotations

import numpy as np
import pytest
from click.testing import CliRunner

from mvplda.cli import main
from mvplda.voice.profile_file import ProfileBook


def called(*words: object) -> tuple[int, str]:
    done = CliRunner().invoke(main, [str(word) for word in words])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.output


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """12 people say 3 phrases 3 times each; ids are long, and maps leave some of them out."""
    folder = tmp_path_factory.mktemp("labels")
    rng = np.random.default_rng(0)
    who, what = np.repeat(np.arange(12), 9), np.tile(np.repeat(np.arange(3), 3), 12)
    X = rng.normal(size=(12, 8))[who] + rng.normal(size=(3, 8))[what]
    X += 0.7 * rng.normal(size=X.shape)
    ids = [f"recording-of-the-day#{i}" for i in range(len(X))]
    np.savez(folder / "x.npz", X=X, ids=ids)
    for name, column, first in (
        ("speakers", who, 0),
        ("phrases", what, 0),
        ("some-speakers", who, 4),
        ("some-phrases", what, 4),
    ):
        lines = [f"{one} {name[-3]}{label}\n" for one, label in zip(ids, column, strict=True)]
        (folder / name).write_text("".join(lines[first:]))
    return folder


def labelled(folder, speakers="speakers", phrases="phrases"):
    places = {"speaker": speakers, "phrase": phrases}
    pairs = [("-l", f"{view}={folder / name}") for view, name in places.items() if name]
    return [folder / "x.npz", *(word for pair in pairs for word in pair), "-q"]


@pytest.mark.parametrize(
    ("model", "setting", "words"),
    [
        ("committee", "noise=full", "no setting 'noise'"),
        ("committee", "views=3", "no setting 'views'"),
        ("committee", "labels=3", "no setting 'labels'"),
        ("committee", "dim=x", "has no setting 'dim'"),
        ("committee", "known=3", "known must be a list"),
        ("committee", "weights=3", "weights must be"),
        ("multiview", "nosuch=1", "no setting 'nosuch'; it has noise, "),
        ("multiview", "views=3", "no setting 'views'"),
        ("multiview", "tol=x", "tol must be a number"),
        ("multiview", "noise_floor=null", "noise_floor must be a number"),
        ("multiview", "noise_shrinkage=x", "noise_shrinkage must be a number"),
        ("multiview", "callback=3", "callback must be a function"),
        ("multiview", "random_state=x", "random_state cannot be used"),
        ("cosine", "foo=1", "no setting 'foo'; it has centre"),
    ],
)
def test_a_setting_that_cannot_be_used(folder, tmp_path, model, setting, words):
    command = ("train", *labelled(folder), "--model", model, "--set", setting)
    code, said = called(*command, "-o", tmp_path / "m.safetensors")
    assert code == 1
    assert words in said


def test_a_block_has_a_width(folder, tmp_path):
    code, said = called(
        "train", *labelled(folder), "--block", "a=full", "-o", tmp_path / "m.safetensors"
    )
    assert code == 2
    assert "expected a positive integer after" in said


@pytest.mark.parametrize("model", ["committee", "multiview"])
def test_labels_may_be_missing_where_people_are_held_out(folder, tmp_path, model):
    vectors = labelled(folder, "some-speakers", "some-phrases")
    command = ("train", *vectors, "--model", model, "--folds", 3)
    code, said = called(*command, "-o", tmp_path / "m.safetensors")
    assert code == 0, said


def test_setup_wants_every_speaker(folder, tmp_path):
    for speakers in ("some-speakers", None):
        code, said = called("setup", *labelled(folder, speakers), "-o", tmp_path / "voices")
        assert code == 1
        assert "expected a speaker for every vector" in said


def test_setup_keeps_everybody_whatever_the_ids_are(folder, tmp_path):
    for phrases in ("phrases", "some-phrases"):
        code, said = called("setup", *labelled(folder, phrases=phrases), "-o", tmp_path / phrases)
        assert code == 0, said
        assert "copies" not in said
        assert ProfileBook(tmp_path / phrases).counts() == {f"e{i}": 9 for i in range(12)}
