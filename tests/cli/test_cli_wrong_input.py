"""What a stranger may give to a command: one line, exit code 1 for data and 2 for a wrong call, no traceback."""

from __future__ import annotations

import numpy as np
import pytest
from cli_files import fails, said_by, scoring, training, vector_files, write_map


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """What a command writes beside itself, it writes beside the test's own files."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = vector_files(tmp_path_factory.mktemp("wrong"))
    data = dict(np.load(root / "x.npz"))
    for name, X in {
        "one.npz": data["X"][:1],
        "narrow.npz": data["X"][:, :5],
        "nan.npz": np.where(np.arange(6) == 2, np.nan, data["X"]),
        "same.npz": np.ones_like(data["X"]),
        "none.npz": data["X"][:0],
    }.items():
        np.savez(root / name, X=X, ids=data["ids"][: len(X)])
    np.savez(root / "strangers.npz", X=data["X"], ids=np.char.add("v", data["ids"]))
    (root / "noise").write_bytes(bytes(range(256)))
    (root / "noise.npz").write_bytes(bytes(range(256)))
    (root / "noise.safetensors").write_bytes(bytes(range(256)))
    (root / "empty").touch()
    (root / "folder").mkdir()
    (root / "stranger").write_text("u0 nobody TC\n")
    (root / "targets").write_text("u0 u100 TC\n")
    (root / "one-class").write_text("".join(f"u{i} s\n" for i in range(200)))
    return root


def put(command, where, what):
    return [*command[:where], what, *command[where + 1 :]]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("gone.npz", "there is no file"),
        ("noise", "noise"),
        ("noise.npz", "noise.npz"),
        ("utt2spk", "utt2spk"),
        ("folder", "folder"),
        ("nan.npz", "NaN or infinity; the first is 'u0'"),
        ("none.npz", "contains no vectors"),
        ("one.npz", "at least two vectors"),
        ("same.npz", "no variance"),
        ("strangers.npz", "has none of the 200 ids"),
        ("noise.safetensors", "not a safetensors file"),
    ],
)
def test_vectors_to_train_on(root, tmp_path, name, words):
    assert words in fails(*training(root, name), "-q", "-o", tmp_path / "m.safetensors")
    assert not (tmp_path / "m.safetensors").exists()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("gone", "there is no file"),
        ("noise", "expected UTF-8"),
        ("folder", "folder"),
        ("empty", "is empty"),
        ("one-class", "only one class, 's'"),
    ],
)
def test_labels_to_train_on(root, tmp_path, name, words):
    assert words in fails(
        *put(training(root), 3, f"speaker={root / name}"), "-q", "-o", tmp_path / "m"
    )


@pytest.mark.parametrize(
    "options",
    [
        ["-v", "speaker=4"],
        ["-l", "speaker=elsewhere"],
        ["-v", "pose=0"],
        ["-v", "pose"],
        ["--seed", "-1"],
        ["--seed", 2**32],
        ["--reduce", "0"],
        ["--folds", "-1"],
    ],
)
def test_options_of_train(root, tmp_path, options):
    fails(*training(root), "-o", tmp_path / "m", *options, code=2)


@pytest.mark.parametrize(
    ("where", "name", "words"),
    [
        (1, "gone", "there is no file"),
        (1, "x.npz", "not a safetensors file"),
        (3, "gone.npz", "there is no file"),
        (3, "narrow.npz", "5"),
        (3, "nan.npz", "NaN"),
        (
            3,
            "strangers.npz",
            "there is no profile 'u0'; the 200 profiles",
        ),
        (5, "gone", "there is no file"),
        (5, "folder", "folder"),
        (5, "empty", "empty"),
        (5, "noise", "expected UTF-8"),
        (5, "stranger", "the first is 'nobody'"),
    ],
)
def test_files_of_score(root, where, name, words):
    assert words in fails(*put(scoring(root), where, root / name))


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--profiles", "{root}/noise"], 1),
        (["--profiles", "{root}/p", "--enrol", "{root}/x.npz"], 2),
        (["--models", "{root}/empty"], 1),
        (["--models", "{root}/utt2spk"], 1),
        (["--known", "phrase={root}/empty"], 1),
        (["--known", "phrase"], 2),
        (["--same", "pose"], 1),
        (["--given", "phrase=maybe"], 1),
        (["--given", "phrase=same", "--given", "phrase=different"], 2),
    ],
)
def test_options_of_score(root, options, code):
    fails(*scoring(root), *(part.format(root=root) for part in options), code=code)


@pytest.mark.parametrize("name", ["gone", "noise", "folder", "empty", "x.npz", "utt2spk"])
def test_scores_and_keys(root, tmp_path, name):
    for scores, key in ((root / name, root / "trials"), (root / "scores", root / name)):
        fails("evaluate", scores, "--trials", key)
        fails("calibrate", scores, "--trials", key, "-o", tmp_path / "o")
        fails(
            "evaluate",
            f"a={root / 'scores'}",
            f"b={scores}",
            "--trials",
            key,
            "--test-speakers",
            root / "utt2spk",
        )
    fails("calibrate", root / "scores", "--load", root / name, "-o", tmp_path / "o")
    fails(
        "evaluate",
        root / "scores",
        "--trials",
        root / "trials",
        "--test-speakers",
        root / "one-class-of-none",
    )


@pytest.mark.parametrize(
    "command",
    [
        ["evaluate", "{root}/scores", "{root}/trials", "--trials", "{root}/trials"],
        [
            "evaluate",
            "a={root}/scores",
            "a={root}/trials",
            "--trials",
            "{root}/trials",
            "--test-speakers",
            "x",
        ],
        ["calibrate", "{root}/scores", "--trials", "{root}/trials"],
        ["calibrate", "{root}/scores", "--load", "x", "--save", "y"],
        ["experiment", "folder", "{root}", "--vectors", "x", "--extractor", "y"],
        ["experiment", "nowhere", "{root}"],
        ["nonsense"],
    ],
)
def test_wrong_calls(root, command):
    fails(*(part.format(root=root) for part in command), code=2)


def test_one_kind_of_trial(root):
    err = said_by("evaluate", root / "scores", "--trials", root / "targets", code=1).err
    assert err.splitlines()[0].endswith(
        "1599 score(s) are ignored, because their trials are not in the list of --trials"
    )
    assert "there are no non-target scores" in err.splitlines()[1]


def test_a_kind_of_one_speaker_leaves_the_table(tmp_path):
    """Wrong phrases of one speaker only: that kind has no interval and no test, and the others have theirs."""
    lines, scores = [], []
    for number, (model, test) in enumerate((m, t) for m in range(8) for t in range(8)):
        lines.append(f"s{model} u{test} {'TC' if model == test else 'IC'}")
        scores.append(f"s{model} u{test} {number % 7 + 9 * (model == test)}")
    (tmp_path / "trials").write_text("\n".join([*lines, "s0 u8 TW", "s0 u9 TW"]) + "\n")
    (tmp_path / "scores").write_text("\n".join([*scores, "s0 u8 1", "s0 u9 2"]) + "\n")
    write_map(
        tmp_path / "utt2spk",
        [f"u{i}" for i in range(10)],
        [f"s{i}" for i in range(8)] + ["s0", "s0"],
    )
    common = ["--trials", tmp_path / "trials", "--test-speakers", tmp_path / "utt2spk"]
    table = said_by("evaluate", tmp_path / "scores", *common, code=0).out
    assert "None for TW: " in table
    assert "0.00 [0.00, 31.23]" in table  # of IC, without an error: three in eight
    said = said_by(
        "evaluate",
        f"a={tmp_path / 'scores'}",
        f"b={tmp_path / 'scores'}",
        *common,
        code=0,
    ).out
    assert "TW too few speakers for a test" in said
    assert "IC +0.00 [+0.00, +0.00]" in said


@pytest.mark.parametrize("command", ["train", "stats"])
def test_labels_that_no_view_uses(root, command):
    extra = ["-l", f"channel={root / 'utt2spk'}", "-o", "new.safetensors"]
    calls = {
        "train": training(root),
        "stats": ["stats", root / "x.npz", "-v", "speaker", "-l", f"speaker={root / 'utt2spk'}"],
    }
    assert "--labels channel=... is not used: the views of the model are speaker" in fails(
        *calls[command], *extra, code=2
    )


def test_labels_of_a_view_that_stand_twice(root):
    twice = ["-l", f"speaker={root / 'utt2spk'}", "-l", f"speaker={root / 'utt2phrase'}"]
    assert "two values for speaker" in fails(
        "stats", root / "x.npz", *twice, "-o", "new.safetensors", code=2
    )
