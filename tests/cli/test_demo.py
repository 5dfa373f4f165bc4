"""`mvplda demo`: recordings of nobody, and commands that do what the demo says."""

from __future__ import annotations

import shlex

import pytest
from click.testing import CliRunner

from mvplda.cli import main
from mvplda.exceptions import FetchError
from mvplda.voice.default_model import default_extractor
from mvplda.voice.demo import LABEL, PHRASES, VOICES

soundfile = pytest.importorskip("soundfile", reason="soundfile is not installed")


def run(*arguments: str):
    return CliRunner().invoke(main, list(arguments))


def test_recordings_are_labelled_and_named_by_voice_and_phrase(tmp_path):
    folder = tmp_path / "demo"
    done = run("demo", str(folder))
    assert done.exit_code == 0, done.output
    recordings = sorted(folder.rglob("*.ogg"))
    names = {(path.parts[-3], path.parts[-2].replace("-", " ")) for path in recordings}
    assert names == {(voice, phrase) for voice in VOICES for phrase in PHRASES}
    for path in recordings:
        with soundfile.SoundFile(path) as file:
            assert file.comment == LABEL
            assert 0.8 < file.frames / file.samplerate < 3
    assert "nobody was recorded" in (folder / "README.txt").read_text()
    # again over its own folder, but never into one of somebody else
    assert run("demo", str(folder)).exit_code == 0
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "a.txt").write_text("mine")
    refused = run("demo", str(tmp_path / "mine"))
    assert refused.exit_code != 0
    assert "is not empty: choose a new folder" in refused.output
    assert len(list((tmp_path / "mine").iterdir())) == 1


def test_the_first_command_fetches_the_networks_where_they_are_missing(tmp_path, monkeypatch):
    monkeypatch.setenv("MVPLDA_CACHE", str(tmp_path / "empty"))
    assert "mvplda extractor get" in run("demo", str(tmp_path / "demo")).output


@pytest.mark.slow
def test_the_printed_commands_give_the_printed_verdicts(tmp_path, monkeypatch):
    try:
        default_extractor()
    except FetchError as error:
        pytest.skip(str(error))
    monkeypatch.chdir(tmp_path)
    codes = {"accepted": 0, "rejected": 1, "enrols": 0, "finds": 0}
    tried = []
    for line in CliRunner().invoke(main, ["demo"]).stdout.splitlines():
        command, comment = line.split("#")
        expected = [code for word, code in codes.items() if word in comment]
        if expected:
            result = run(*shlex.split(command)[1:])
            assert [result.exit_code] == expected, (line, result.output)
            tried.append(expected[0])
    assert sorted(tried) == [0, 0, 0, 1, 1]
