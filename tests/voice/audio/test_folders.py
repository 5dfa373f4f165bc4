"""Which recordings are meant, and the labels that their folders give."""

from __future__ import annotations

import pytest

from mvplda.exceptions import DataError, FileFormatError
from mvplda.voice.audio.folders import label_recordings, list_recordings


def _touch(folder, *names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"RIFF")


def test_two_folders_do_not_collide_and_name_their_speakers(tmp_path):
    _touch(tmp_path, "anna/1.wav", "bob/1.wav", "bob/2.flac", "bob/notes.txt")
    listed = list_recordings([tmp_path / "anna", tmp_path / "bob"])
    assert listed.ids == ["anna/1", "bob/1", "bob/2"]
    assert listed.labels == {"speaker": ["anna", "bob", "bob"]}
    assert [clip.path.name for clip in listed.files] == ["1.wav", "1.wav", "2.flac"]


def test_folders_name_speakers_and_phrases(tmp_path):
    _touch(tmp_path, "r/anna/hello/1.wav", "r/anna/bye/1.wav", "r/bob/hello/1.m4a")
    listed = list_recordings([tmp_path / "r"])
    assert listed.labels["speaker"] == ["anna", "anna", "bob"]
    assert listed.labels["phrase"] == ["bye", "hello", "hello"]
    assert listed.ids[0] == "anna/bye/1"
    several = list_recordings([tmp_path / "r" / "anna", tmp_path / "r" / "bob"])
    assert several.labels == listed.labels


def test_links_to_folders_are_followed_and_hidden_files_are_not_recordings(tmp_path):
    _touch(tmp_path, "elsewhere/hello/1.wav", "elsewhere/hello/._1.wav")
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "anna").symlink_to(tmp_path / "elsewhere")
    listed = list_recordings([tmp_path / "r"])
    assert listed.ids == ["anna/hello/1"]
    assert listed.labels == {"speaker": ["anna"], "phrase": ["hello"]}


def test_folders_below_the_phrase_have_no_meaning_however_deep(tmp_path):
    _touch(tmp_path, "r/anna/hello/1.wav", "r/bob/hello/monday/1.wav", "r/bob/bye/monday/am/1.wav")
    listed = list_recordings([tmp_path / "r"])
    assert listed.labels == {
        "speaker": ["anna", "bob", "bob"],
        "phrase": ["hello", "bye", "hello"],
    }
    assert label_recordings(listed)[0] == listed


def test_links_to_a_folder_that_holds_them_do_not_nest(tmp_path):
    _touch(tmp_path, "r/anna/hello/1.wav", "r/bob/hello/1.wav", "other/1.wav")
    plain = list_recordings([tmp_path / "r"])
    (tmp_path / "r" / "anna" / "all").symlink_to(tmp_path / "r")
    (tmp_path / "r" / "anna" / "hello" / "own").symlink_to(tmp_path / "r" / "anna" / "hello")
    # a link to what holds the source itself would list it again, too
    (tmp_path / "r" / "bob" / "outside").symlink_to(tmp_path)
    assert list_recordings([tmp_path / "r"]) == plain
    assert label_recordings(list_recordings([tmp_path / "r"]))[0] == label_recordings(plain)[0]


def test_links_between_two_folders_end(tmp_path):
    _touch(tmp_path, "r/anna/1.wav", "r/bob/2.wav")
    (tmp_path / "r" / "anna" / "b").symlink_to(tmp_path / "r" / "bob")
    (tmp_path / "r" / "bob" / "a").symlink_to(tmp_path / "r" / "anna")
    assert list_recordings([tmp_path / "r"]).ids == ["anna/1", "anna/b/2", "bob/2", "bob/a/1"]


def test_where_folders_are_uneven_there_are_no_labels(tmp_path):
    _touch(tmp_path, "flat.wav", "anna/1.wav")
    assert list_recordings([tmp_path]).labels == {}
    assert list_recordings([tmp_path / "flat.wav"]).labels == {}


def test_two_recordings_with_one_id_are_an_error_that_names_both(tmp_path):
    _touch(tmp_path, "a/1.wav", "a/1.flac")
    with pytest.raises(DataError, match=r"id '1', .*1\.flac and .*1\.wav"):
        list_recordings([tmp_path / "a"])


def test_lists_and_what_is_not_there(tmp_path):
    _touch(tmp_path, "x/1.wav")
    (tmp_path / "wav.scp").write_text(f"one {tmp_path}/x/1.wav\n")
    assert list_recordings([tmp_path / "wav.scp"]).ids == ["one"]
    with pytest.raises(DataError, match="there is no file or folder"):
        list_recordings([tmp_path / "nothing"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="no sound files"):
        list_recordings([tmp_path / "empty"])


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("file,phrase\na.wav,hello\n", "but no column speaker"),
        ("file,start\na.wav,soon\n", r"line 2: expected whole numbers of samples.*'soon'"),
    ],
)
def test_a_table_that_cannot_be_understood_is_refused(tmp_path, table, said):
    (tmp_path / "list.csv").write_text(table)
    with pytest.raises(FileFormatError, match=said):
        list_recordings([tmp_path / "list.csv"])
