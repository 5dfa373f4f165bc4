"""Where commands write: places are looked at before the work, tables come without pictures, full devices are a line."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest
from cli_files import fails, said_by, scoring, training, vector_files, write_map

from mvplda import MultiviewPLDA, metrics
from mvplda._optional import need
from mvplda.cli import main
from mvplda.models import SCORERS
from mvplda.voice.extractors.recipe import families


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """What a command writes beside itself, it writes beside the test's own files."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return vector_files(tmp_path_factory.mktemp("outputs"))


def forbidden(*_, **__):
    raise AssertionError("the work was begun before the place of its results was looked at")


def judging(root):
    speakers = ["--test-speakers", root / "utt2spk", "--enrol-speakers", root / "utt2spk"]
    return ["evaluate", root / "scores", "--trials", root / "trials", *speakers]


COMMANDS = {
    "train": lambda root, to: [*training(root), "-o", to],
    "score": lambda root, to: [*scoring(root), "-o", to],
    "calibrate": lambda root, to: [
        "calibrate",
        root / "scores",
        "--trials",
        root / "trials",
        "-o",
        to,
    ],
    "calibrate --save": lambda root, to: [
        "calibrate",
        root / "scores",
        "--trials",
        root / "trials",
        "--save",
        to,
    ],
    "evaluate --report": lambda root, to: [*judging(root), "--report", to],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_place_that_is_not_there_is_said_before_the_work(root, tmp_path, monkeypatch, command):
    for owner, work in (
        (MultiviewPLDA, "fit"),
        (MultiviewPLDA, "enrol"),
        (MultiviewPLDA, "llr_trials"),
        (metrics, "evaluate"),
    ):
        monkeypatch.setattr(owner, work, forbidden)
    monkeypatch.setattr("mvplda.calibration.scores.LinearCalibrator.fit", forbidden)
    line = fails(*COMMANDS[command](root, tmp_path / "nowhere" / "x"))
    assert "does not exist: create it" in line
    assert not (tmp_path / "nowhere").exists()


def test_every_file_of_score_is_looked_at(root, tmp_path, monkeypatch):
    monkeypatch.setattr(MultiviewPLDA, "llr_trials", forbidden)
    (tmp_path / "scores").mkdir()
    assert "scores is a folder" in fails(*scoring(root), "-o", tmp_path / "scores")


@pytest.mark.parametrize(
    "command",
    [
        ["experiment", "folder", "{root}"],
        ["reproduce", "folder", "{root}"],
    ],
)
def test_a_folder_that_is_a_file_is_said_before_the_work(root, tmp_path, command):
    (tmp_path / "taken").write_text("a file")
    given = [part.format(root=root) for part in command]
    assert "taken is a file, not a folder" in fails(*given, "-o", tmp_path / "taken" / "results")


@pytest.fixture
def no_pictures(monkeypatch):
    """As if matplotlib were not installed."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError):
        need("matplotlib.figure")


def test_a_report_without_matplotlib_has_its_tables(root, tmp_path, no_pictures):
    done = said_by(*judging(root), "--report", tmp_path / "page.html", code=0)
    assert done.out.startswith("kind ")
    assert "Total" in done.out
    notes = [line for line in done.err.splitlines() if "plots of the report are left out" in line]
    assert len(notes) == 1
    assert "mvplda[plot]" in notes[0]
    page = (tmp_path / "page.html").read_text()
    assert "Total" in page
    assert "The plots are missing" in page


@pytest.mark.parametrize("kinds", [["target", "nontarget"], ["TC", "IC"]])
def test_a_report_of_infinite_scores_and_few_kinds(tmp_path, kinds):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    names = [f"m t{i}" for i in range(6)]
    write_map(tmp_path / "trials", names, kinds * 3)
    write_map(tmp_path / "scores", names, ["inf", "-inf", 2, 1, 3, -1])
    page = ["--report", tmp_path / "page.html"]
    done = said_by("evaluate", tmp_path / "scores", "--trials", tmp_path / "trials", *page, code=0)
    assert "warning" not in done.err
    assert (tmp_path / "page.html").read_text().count("<svg") == 3


def test_an_experiment_without_matplotlib_has_its_tables(root, tmp_path, no_pictures):
    labels = ["-l", f"speaker={root / 'utt2spk'}", "-l", f"phrase={root / 'utt2phrase'}"]
    small = ["-s", 'evaluation.systems=["cosine", "plda-speaker"]', "-s", "evaluation.resamples=10"]
    folder = tmp_path / "e"
    command = [
        "experiment",
        "vectors",
        root / "x.npz",
        *labels,
        "-o",
        folder,
        "-q",
        "-s",
        "corpus.per_model=1",
    ]
    done = said_by(*command, *small, code=0)
    assert done.err.count("plots of the report are left out") == 1
    assert {"table.txt", "results.json", "report.html"} <= set(os.listdir(folder))


@pytest.fixture(params=["buffered", "unbuffered"])
def environment(request):
    """With and without Python's own buffer, which keeps what could not be written."""
    variables = {k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"}
    if request.param == "unbuffered":
        variables["PYTHONUNBUFFERED"] = "1"
    return variables


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no device that is full")
@pytest.mark.parametrize("command", [["--help"], ["score", "--help"], ["--version"], ["score"]])
def test_a_full_device_is_one_line(root, command, environment):
    if command == ["score"]:
        command = list(map(str, scoring(root)))
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "mvplda", *command],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env=environment,
        )
    assert done.returncode == 1
    assert done.stderr.startswith("mvplda: No space left on device")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("command", [["--help"], ["score"]])
def test_a_reader_that_has_gone_hears_nothing(root, command, environment):
    if command == ["score"]:
        command = list(map(str, scoring(root)))
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "mvplda", *command],
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        env=environment,
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, "")


def options_of(command, path=()):
    for name in getattr(command, "list_commands", lambda _: [])(None):
        yield from options_of(command.get_command(None, name), (*path, name))
    for option in command.params:
        if isinstance(option, click.Option):
            yield " ".join(path), option


def test_every_option_says_in_a_sentence_what_it_does():
    for command, option in options_of(main):
        text = option.help or ""
        sentence = text.split("  [")[0]
        assert sentence.endswith("."), (command, option.opts, text)
        assert len(sentence.split()) >= 5, (command, option.opts, text)
        first = sentence.split(": ", 1)[1] if "=" in sentence.split(": ", 1)[0] else sentence
        assert first.split()[0] not in ("Of", "No", "At", "Default:"), (command, option.opts, text)


@pytest.mark.parametrize(
    "command",
    [
        ["score", "model.safetensors", "--test", "x.npz", "-o", "x.npz"],
        ["score", "model.safetensors", "--test", "x.npz", "--trials", "trials", "-o", "trials"],
        ["calibrate", "scores", "--trials", "trials", "-o", "scores"],
        ["calibrate", "scores", "--trials", "trials", "--save", "trials"],
        ["train", "x.npz", "-l", "speaker=utt2spk", "-v", "speaker=2", "-o", "utt2spk"],
        ["convert", "x.npz", "x.npz"],
        ["evaluate", "scores", "--trials", "trials", "--report", "scores"],
    ],
)
def test_no_command_writes_over_what_it_reads(root, tmp_path, monkeypatch, command):
    for name in ("x.npz", "model.safetensors", "trials", "scores", "utt2spk"):
        (tmp_path / name).write_bytes((root / name).read_bytes())
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    monkeypatch.chdir(tmp_path)
    assert "would overwrite" in fails(*command, code=2)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


HERE = {**os.environ, "PYTHONPATH": str(Path(metrics.__file__).parents[2])}
"""Processes import the package that is tested, wherever they run."""


def run_process(*arguments, **options):
    command = [sys.executable, "-m", "mvplda", *map(str, arguments)]
    return subprocess.Popen(command, stdout=-1, stderr=-1, text=True, env=HERE, **options)


def test_a_closed_pipe_ends_without_a_word(root):
    process = run_process(*scoring(root))
    process.stdout.close()
    assert process.stderr.read() == ""
    process.wait(60)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGTERM")
def test_an_ended_process_leaves_no_half_files(tmp_path):
    code = (
        "import time\nfrom mvplda.cli.program import end_on_sigterm\nfrom mvplda.atomic_files import atomic_write\n"
        f"end_on_sigterm()\nwith atomic_write({str(tmp_path / 'x')!r}) as _:\n"
        "    print('begun', flush=True)\n    time.sleep(60)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=-1, text=True, env=HERE)
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 128 + signal.SIGTERM
    assert os.listdir(tmp_path) == []


def test_kinds_from_phrases(root, tmp_path):
    lines = [line.split() for line in (root / "trials").read_text().splitlines()]
    words = {"T": "target", "I": "nontarget"}
    listed = "".join(f"{model} {test} {words[kind[0]]}\n" for model, test, kind in lines)
    (tmp_path / "by-speaker").write_text(listed)
    phrases = ["--enrol-phrases", root / "utt2phrase", "--test-phrases", root / "utt2phrase"]
    common = ["evaluate", root / "scores", "--json", "--trials"]
    named = json.loads(said_by(*common, tmp_path / "by-speaker", *phrases, code=0).out)
    assert named == json.loads(said_by(*common, root / "trials", code=0).out)
    assert "needs --test-phrases" in said_by(*common, root / "trials", *phrases[:2], code=2).err


# A text-dependent list: ann-1 is ann with phrase 1. Scores of TC, TW, IC, IW: 9, 5, 3, 1.
TEXT_DEPENDENT = {
    ("ann-1", "t1"): "target",
    ("ann-1", "t2"): "nontarget",
    ("ann-1", "t3"): "nontarget",
    ("ann-1", "t4"): "nontarget",
    ("bob-1", "t3"): "target",
    ("bob-1", "t4"): "nontarget",
    ("bob-1", "t1"): "nontarget",
    ("bob-1", "t2"): "nontarget",
}
KIND_OF = dict(zip(TEXT_DEPENDENT, ["TC", "TW", "IC", "IW"] * 2, strict=True))
SCORE_OF = {"TC": 9, "TW": 5, "IC": 3, "IW": 1}


@pytest.fixture
def text_dependent(tmp_path):
    """Call of evaluate on a list, with phrases and any other options."""
    lines = [f"{model} {test}" for model, test in TEXT_DEPENDENT]
    write_map(tmp_path / "scores", lines, [SCORE_OF[kind] for kind in KIND_OF.values()])
    (tmp_path / "utt2spk").write_text("t1 ann\nt2 ann\nt3 bob\nt4 bob\n")
    (tmp_path / "utt2phrase").write_text("t1 1\nt2 2\nt3 1\nt4 2\n")
    (tmp_path / "model2spk").write_text("ann-1 ann\nbob-1 bob\n")
    (tmp_path / "model2phrase").write_text("ann-1 1\nbob-1 1\n")

    def call(kinds, *options):
        rows = ((*pair, kind) for pair, kind in kinds.items())
        (tmp_path / "trials").write_text("".join(f"{' '.join(row).strip()}\n" for row in rows))
        common = ["evaluate", tmp_path / "scores", "--trials", tmp_path / "trials", "--json"]
        common += ["--enrol-phrases", tmp_path / "model2phrase"]
        common += ["--test-phrases", tmp_path / "utt2phrase"]
        return [*common, *options]

    call.speakers = ["--enrol-speakers", tmp_path / "model2spk"]
    call.speakers += ["--test-speakers", tmp_path / "utt2spk"]
    return call


def trials_by_kind(said):
    return {kind: row["n_nontargets"] for kind, row in json.loads(said.out)["kinds"].items()}


SPEAKERS_ONLY = {
    pair: "target" if kind[0] == "T" else "nontarget" for pair, kind in KIND_OF.items()
}
NO_KINDS = dict.fromkeys(KIND_OF, "")


@pytest.mark.parametrize(
    "kinds", [TEXT_DEPENDENT, SPEAKERS_ONLY, KIND_OF, NO_KINDS], ids=["both", "speaker", "4", "no"]
)
def test_kinds_follow_from_speakers_and_phrases(text_dependent, kinds):
    said = said_by(*text_dependent(kinds, *text_dependent.speakers), code=0)
    assert trials_by_kind(said) == {"IW": 2, "IC": 2, "TW": 2, "Total": 6}
    found = json.loads(said.out)["kinds"]
    assert {row["n_targets"] for row in found.values()} == {2}


def test_a_list_of_both_views_needs_speakers(text_dependent):
    message = fails(*text_dependent(TEXT_DEPENDENT))
    assert "4 of 8 trials are nontargets with different phrases" in message
    assert "'ann-1 t2 nontarget'" in message
    assert "--test-speakers" in message


def test_a_list_of_speakers_needs_phrases_alone(text_dependent):
    said = said_by(*text_dependent(SPEAKERS_ONLY), code=0)
    assert trials_by_kind(said) == {"IW": 2, "IC": 2, "TW": 2, "Total": 6}
    assert "2 target trial(s) have different phrases (first: 'ann-1 t2 target')" in said.err


def test_spoofs_keep_their_kind(text_dependent):
    kinds = {**TEXT_DEPENDENT, ("ann-1", "t3"): "spoof"}
    said = said_by(*text_dependent(kinds, *text_dependent.speakers), code=0)
    assert trials_by_kind(said) == {"IW": 2, "IC": 1, "TW": 2, "spoof": 1, "Total": 6}


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        (
            {("bob-1", "t1"): "target"},
            "1 of 8 trials (1 target); the first is 'bob-1 t1 target' with different speakers and the same phrase",
        ),
        (
            {("bob-1", "t3"): "nontarget"},
            "1 of 8 trials (1 nontarget); the first is 'bob-1 t3 nontarget' with the same speaker and the same phrase",
        ),
        (
            {("ann-1", "t2"): "target"},
            "1 of 8 trials (1 target); the first is 'ann-1 t2 target' with the same speaker and different phrases",
        ),
        (
            {("ann-1", "t4"): "TW", ("bob-1", "t3"): "IC"},
            "2 of 8 trials (1 IC, 1 TW); the first is 'ann-1 t4 TW' with different speakers and different phrases",
        ),
    ],
)
def test_a_list_that_contradicts_speakers_and_phrases_is_refused(text_dependent, changed, expected):
    call = text_dependent({**TEXT_DEPENDENT, **changed}, *text_dependent.speakers)
    assert expected in fails(*call)


def test_a_list_that_contradicts_phrases_is_refused(text_dependent):
    message = fails(*text_dependent({**KIND_OF, ("bob-1", "t4"): "TC"}))
    assert "1 of 8 trials; the first is 'bob-1 t4 TC' with different phrases" in message


def test_models_that_are_not_speakers_need_enrol_speakers(text_dependent):
    call = text_dependent(TEXT_DEPENDENT, *text_dependent.speakers[2:])
    err = said_by(*call, code=1).err
    assert "2 target" in err
    assert "--enrol-speakers" in err
    call = text_dependent(TEXT_DEPENDENT, *text_dependent.speakers[:2])
    assert "--enrol-speakers needs --test-speakers" in said_by(*call, code=2).err


def test_sessions_keep_the_speakers_of_their_trials(text_dependent, tmp_path):
    (tmp_path / "utt2session").write_text("t1 s1\nt2 s2\nt3 s3\nt4 s4\n")
    sessions = ["--sessions", tmp_path / "utt2session"]
    call = text_dependent(TEXT_DEPENDENT, *text_dependent.speakers, *sessions)
    assert trials_by_kind(said_by(*call, code=0)) == {"IW": 2, "IC": 2, "TW": 2, "Total": 6}


def test_scores_are_compressed_where_the_name_says_so(root, tmp_path):
    said_by(*scoring(root), "-o", tmp_path / "s.gz", code=0)
    assert gzip.decompress((tmp_path / "s.gz").read_bytes()) == (root / "scores").read_bytes()


def test_groups_and_a_word_about_calibration(root, tmp_path):
    groups = tmp_path / "utt2group"
    speakers = [line.split() for line in (root / "utt2spk").read_text().splitlines()]
    of = {name: ("even", "odd")[k % 2] for k, name in enumerate(sorted({s for _, s in speakers}))}
    groups.write_text("".join(f"{utt} {of[speaker]}\n" for utt, speaker in speakers))
    by = ["--trials", root / "trials", "--by", groups]
    assert "--test-speakers" in fails("evaluate", root / "scores", *by, code=2)
    by += ["--test-speakers", root / "utt2spk", "--enrol-speakers", root / "utt2spk"]
    said = said_by("evaluate", root / "scores", *by, code=0).out
    assert {"even", "odd"} <= {line.split()[0] for line in said.splitlines() if line}
    assert "FRR of" in said
    found = json.loads(said_by("evaluate", root / "scores", *by, "--json", code=0).out)["groups"]
    assert set(found["frr"]) == {"even", "odd"}
    (tmp_path / "wrong").write_text(
        "".join(
            f"{a} {b} {float(c) + 20}\n"
            for a, b, c in (line.split() for line in (root / "scores").read_text().splitlines())
        )
    )
    err = said_by("evaluate", tmp_path / "wrong", "--trials", root / "trials", code=0).err
    costs = json.loads(
        said_by("evaluate", tmp_path / "wrong", "--trials", root / "trials", "--json", code=0).out
    )["kinds"]["Total"]
    actual, least = costs["act_dcf"]["default"], costs["min_dcf"]["default"]
    assert f"at a target prior of 0.01 (cost default) actDCF is {actual:.3f} and minDCF" in err
    assert f"({actual / least:.1f} times as much)" in err
    assert "calibrate scores of other speakers in such trials with mvplda calibrate" in err


def test_attempts_and_searches(tmp_path):
    """Two enrolled people and a stranger; the first attempt of every session fails."""
    scores = {
        "ann": {"a1": -1, "a2": 3, "b1": -2, "b2": 1, "e1": 0, "e2": 2},
        "bob": {"a1": -3, "a2": -2, "b1": 0, "b2": 4, "e1": -1, "e2": -2},
    }
    owner = {"a": "ann", "b": "bob", "e": "eve"}
    trials, lines = "", ""
    for model, row in scores.items():
        for test, score in row.items():
            kind = "target" if owner[test[0]] == model else "nontarget"
            trials += f"{model} {test} {kind}\n"
            lines += f"{model} {test} {score}\n"
    (tmp_path / "trials").write_text(trials)
    (tmp_path / "scores").write_text(lines)
    for name, of in (("utt2spk", lambda t: owner[t[0]]), ("utt2session", lambda t: t[0])):
        (tmp_path / name).write_text("".join(f"{t} {of(t)}\n" for t in scores["ann"]))
    call = ["evaluate", tmp_path / "scores", "--trials", tmp_path / "trials", "--far", "0.5"]
    plain = json.loads(said_by(*call, "--json", code=0).out)["kinds"]["Total"]
    assert (plain["n_targets"], plain["n_nontargets"]) == (4, 8)
    call += ["--sessions", tmp_path / "utt2session"]
    once = json.loads(said_by(*call, "--attempts", 1, "--json", code=0).out)["kinds"]["Total"]
    more = json.loads(said_by(*call, "--json", code=0).out)["kinds"]["Total"]
    assert (once["n_targets"], once["n_nontargets"]) == (2, 4)
    # first attempts: -1, 0 against -2, 0, -3, -1; the best of two: 3, 4 against 1, 2, -2, -1
    assert (round(once["eer"], 3), more["eer"]) == (0.333, 0.0)
    del call[-2:]
    call.append("--identification")
    found = json.loads(said_by(*call, "--json", code=0).out)["identification"]
    # the best of strangers are 0 and 2; from 2 on one of two is named, and a2 and b2 of four
    assert found == {"FPIR 0.5": {"threshold": 2.0, "FNIR": 0.5}}
    assert "FPIR 0.5: " in said_by(*call, code=0).out
    (tmp_path / "trials").write_text(trials.replace("bob e1 nontarget\n", ""))
    (tmp_path / "scores").write_text(lines.replace("bob e1 -1\n", ""))
    assert "against all 2 models" in fails(*call)


def test_an_installed_package_adds_scorers_and_recipes(root, tmp_path, monkeypatch):
    place = tmp_path / "site"
    for folder in ("added-1.dist-info", "added"):
        (place / folder).mkdir(parents=True)
    (place / "added-1.dist-info" / "METADATA").write_text("Name: added\nVersion: 1\n")
    (place / "added-1.dist-info" / "entry_points.txt").write_text(
        "[mvplda.scorers]\nbend = added\n[mvplda.recipes]\nours = added\n"
    )
    (place / "added" / "__init__.py").write_text(
        "from mvplda import CosineScorer\n\nclass Bend(CosineScorer):\n    NAME = 'bend'\n"
    )
    (place / "added" / "ours.toml").write_text("[samples]\nmargin_s = 0.2\n")
    monkeypatch.syspath_prepend(place)
    monkeypatch.setattr("mvplda._optional._LOADED", set())
    families.cache_clear()
    try:
        assert families()["ours"].samples.margin_s == 0.2
        said_by("train", root / "x.npz", "--model", "bend", "-o", tmp_path / "a", code=0)
        assert "Bend" in said_by("info", tmp_path / "a", code=0).out
    finally:
        families.cache_clear()
        SCORERS.pop("bend", None)


def test_a_plugin_adds_a_scorer(root, tmp_path, monkeypatch):
    (tmp_path / "angle_plugin.py").write_text(
        "from mvplda import CosineScorer\n\nclass Angle(CosineScorer):\n    NAME = 'angle'\n"
    )
    monkeypatch.chdir(tmp_path)
    said_by(
        "--plugin", "angle_plugin", "train", root / "x.npz", "--model", "angle", "-o", "a", code=0
    )
    assert "Angle" in said_by("info", "a", code=0).out
    assert "no_such_plugin" in fails("--plugin", "no_such_plugin", "info", "a")
