"""Turns of diarisers and transcribers, and names of known people, which somebody has to confirm."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import pytest
from domain_problems import VOICE, WORDS, domain_bundle, make_place

from mvplda.exceptions import DataError, FileFormatError, MvpldaWarning
from mvplda.voice.audio.quality import Quality
from mvplda.voice.extractors.extractor import ExtractedVectors
from mvplda.voice.people import find_people, suggest_names
from mvplda.voice.people_page import people_page
from mvplda.voice.profile_file import ProfileBook
from mvplda.voice.turns import Turn, read_named_turns, read_turns, rttm
from mvplda.voice.verification import VoiceModel

PYANNOTE = {
    "diarization": [
        {"start": 0.5, "end": 2.0, "speaker": "SPEAKER_00"},
        {"start": 1.5, "end": 4.0, "speaker": "SPEAKER_01"},
    ],
    "exclusive_diarization": [{"start": 0.5, "end": 1.5, "speaker": "SPEAKER_00"}],
}


class Named:
    """An extractor by its name alone."""

    name = "drawn"
    dimension = VOICE + WORDS


def write(path: Path, values: object) -> Path:
    path.write_text(json.dumps(values))
    return path


def test_json_of_pyannote_and_of_its_service(tmp_path):
    turns = [Turn("monday", 0.5, 2.0, "SPEAKER_00"), Turn("monday", 1.5, 4.0, "SPEAKER_01")]
    assert read_turns(write(tmp_path / "monday.json", PYANNOTE)) == turns
    job = {"jobId": "1", "status": "succeeded", "output": PYANNOTE}
    assert read_turns(write(tmp_path / "monday.json", job)) == turns
    assert read_turns(write(tmp_path / "monday.json", PYANNOTE["diarization"])) == turns


def test_json_of_whisperx_is_divided_where_the_speaker_changes(tmp_path):
    words = [
        {"word": "Yes.", "start": 2.0, "end": 2.2, "score": 0.9, "speaker": "SPEAKER_00"},
        {"word": "In", "start": 2.5, "end": 2.6, "score": 0.9, "speaker": "SPEAKER_01"},
        {"word": "2025."},
        {"word": "Fine.", "start": 3.5, "end": 3.9, "score": 0.9, "speaker": "SPEAKER_01"},
    ]
    alone = {"word": "Hello.", "start": 0.1, "end": 0.9, "speaker": "SPEAKER_00"}
    segments = [
        {"start": 0.0, "end": 1.0, "text": " Hello.", "speaker": "SPEAKER_00", "words": [alone]},
        {"start": 2.0, "end": 4.0, "text": " Yes. In 2025. Fine.", "words": words},
        {"start": 5.0, "end": 6.0, "text": " (music)"},
    ]
    file = write(tmp_path / "a.json", {"segments": segments, "word_segments": [], "language": "en"})
    assert read_turns(file) == [
        Turn("a", 0.0, 1.0, "SPEAKER_00", "Hello."),
        Turn("a", 2.0, 2.2, "SPEAKER_00", "Yes."),
        Turn("a", 2.5, 3.9, "SPEAKER_01", "In 2025. Fine."),
        Turn("a", 5.0, 6.0, None, "(music)"),
    ]


def test_times_of_whisperx_that_are_null_count_as_missing(tmp_path):
    words = [
        {"word": "yes", "speaker": "A", "start": 1, "end": 2},
        {"word": "5", "speaker": "A", "start": None, "end": None},
        {"word": "no", "speaker": "B", "start": 3, "end": 4},
    ]
    segment = {"start": 1, "end": 4, "text": "yes 5 no", "words": words}
    turns = read_turns(write(tmp_path / "call.json", {"segments": [segment]}))
    assert turns == [Turn("call", 1, 2, "A", "yes 5"), Turn("call", 3, 4, "B", "no")]


@pytest.mark.parametrize("text", ["[" * 100_000, '[{"start": 1' + "0" * 400 + ', "end": 1}]'])
def test_json_that_is_too_deep_or_too_large_is_refused(tmp_path, text):
    path = tmp_path / "call.json"
    path.write_text('{"segments": ' + text + "}")
    with pytest.raises(FileFormatError, match="expected the JSON of"):
        read_turns(path)
    path.write_text('{"ann": ' + text.replace("{", '{"recording": "a", ') + "}")
    with pytest.raises(FileFormatError, match="expected a JSON object"):
        read_named_turns(path)


def test_turns_of_whisperx_without_times_are_warned_of(tmp_path):
    words = [{"word": "Yes.", "speaker": "A"}, {"word": "No.", "speaker": "B"}]
    timed = [{**words[0], "start": 2.0, "end": 2.2}, words[1]]
    segments = [
        {"start": 0.0, "end": 1.0, "text": "Yes. No.", "words": words},
        {"start": 2.0, "end": 3.0, "text": "Yes. No.", "words": timed},
    ]
    file = write(tmp_path / "a.json", {"segments": segments})
    message = r"a\.json: left out 3 turn\(s\) .* the first is 'Yes\.'"
    with pytest.warns(MvpldaWarning, match=message) as shown:
        turns = read_turns(file)
    assert turns == [Turn("a", 2.0, 2.2, "A", "Yes.")]
    assert shown[0].filename == __file__


def named(tmp_path, spans):
    """Return a file with turns (recording, start, end) of one person."""
    turns = [dict(zip(("recording", "start", "end"), span, strict=True)) for span in spans]
    return write(tmp_path / "named.json", {"Ann": turns})


def test_one_person_has_no_two_turns_at_a_time(tmp_path):
    apart = [("b", 0, 9), ("a", 5, 7), ("a", 0, 5), ("a", 8, 9)]
    assert len(read_named_turns(named(tmp_path, apart))[0]) == 4
    with pytest.raises(DataError, match=r"'Ann' has two turns at 6 s of a, .* different names"):
        read_named_turns(named(tmp_path, [*apart, ("a", 6, 8)]))


def test_the_time_to_read_named_turns_grows_linearly(tmp_path):
    file = named(tmp_path, [("a", i, i + 1) for i in range(20_000)])
    started = time.process_time()
    assert len(read_named_turns(file)[0]) == 20_000
    assert time.process_time() - started < 5  # comparing all pairs takes several times as long


def test_numbers_of_speakers_are_names(tmp_path):
    segments: list[dict[str, object]] = [
        {"start": i, "end": i + 1, "speaker": i % 2} for i in range(3)
    ]
    words = [
        {"word": "one", "start": 3.0, "end": 3.4, "speaker": 1},
        {"word": "nought", "start": 3.5, "end": 4.0, "speaker": 0},
    ]
    segments.append({"start": 3, "end": 4, "words": words})
    turns = read_turns(write(tmp_path / "a.json", {"segments": segments}))
    assert [turn.name for turn in turns] == ["0", "1", "0", "1", "0"]
    for speaker in (["A"], {"name": "A"}, 1.5):
        segments[0]["speaker"] = speaker
        with pytest.raises(FileFormatError, match="speaker of each turn"):
            read_turns(write(tmp_path / "a.json", {"segments": segments}))


def test_json_may_start_with_a_byte_order_mark(tmp_path):
    text = json.dumps([{"start": 0, "end": 1, "speaker": "A"}])
    (tmp_path / "a.json").write_text(text, encoding="utf-8-sig")
    assert read_turns(tmp_path / "a.json") == [Turn("a", 0.0, 1.0, "A")]


@pytest.mark.parametrize("start", ["x", None, 3, -1, float("nan")])
def test_wrong_times_of_named_turns_are_refused(tmp_path, start):
    turns = [{"recording": "a", "start": start, "end": 2}, {"recording": "a", "start": 1, "end": 2}]
    with pytest.raises(FileFormatError, match=r"as the page of mvplda people|ends after its start"):
        read_named_turns(write(tmp_path / "named.json", {"Ann": turns}))


def test_a_folder_of_turns_has_each_recording_once(tmp_path):
    write(tmp_path / "a.json", PYANNOTE)
    write(tmp_path / "b.json", PYANNOTE)
    (tmp_path / "a.rttm").write_text("SPEAKER a 1 0.5 2.0 <NA> <NA> s1 <NA> <NA>\n")
    (tmp_path / "notes.txt").write_text("nothing")
    turns = read_turns(tmp_path)
    assert [(turn.recording, turn.name) for turn in turns] == [
        ("a", "s1"),
        ("b", "SPEAKER_00"),
        ("b", "SPEAKER_01"),
    ]
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"expected files \.rttm or \.json"):
        read_turns(tmp_path / "empty")


@pytest.mark.parametrize(
    "values",
    [{"words": []}, {"segments": [{"text": "no times"}]}, [1], 3, {"diarization": None}],
)
def test_other_json_is_refused(tmp_path, values):
    with pytest.raises(FileFormatError, match=r"JSON of pyannote\.audio"):
        read_turns(write(tmp_path / "a.json", values))


def test_a_turn_without_length_is_named(tmp_path):
    backwards = [{"start": 2, "end": 1, "speaker": "A"}]
    with pytest.raises(FileFormatError, match="turn 1: expected a turn that ends after its start"):
        read_turns(write(tmp_path / "a.json", backwards))


def test_consent_is_read_with_the_names(tmp_path):
    turn = {"recording": "a", "start": 1.0, "end": 2.0, "name": "S0", "text": "Hi"}
    saved = {
        "Ann": {"consent": True, "turns": [turn]},
        "Bob": {"consent": False, "turns": [{**turn, "start": 3.0, "end": 4.0}]},
    }
    turns, agreed = read_named_turns(write(tmp_path / "names.json", saved))
    assert [turn.name for turn in turns] == ["Ann", "Bob"]
    assert agreed == {"Ann"}
    # files without consent are of people who were named in order to be enrolled
    _, agreed = read_named_turns(write(tmp_path / "names.json", {"Ann": [turn]}))
    assert agreed == {"Ann"}
    with pytest.raises(FileFormatError, match=r"as the page of mvplda people saves it"):
        read_named_turns(write(tmp_path / "names.json", {"Ann": {"turns": [turn]}}))


def test_named_turns_are_written_as_rttm_and_read_again(tmp_path):
    turns = [Turn("b", 1.0, 2.5, "Ann Lee"), Turn("a", 0.25, 1.0, "Bob")]
    (tmp_path / "named.rttm").write_text(rttm(turns))
    again = read_turns(tmp_path / "named.rttm")
    assert again == [Turn("a", 0.25, 1.0, "Bob"), Turn("b", 1.0, 2.5, "Ann_Lee")]


def found_and_known(tmp_path: Path):
    """Turns of people 0, 1 and 2, of whom 0 is known, and somebody else who is known."""
    place = make_place(7)
    book = ProfileBook(tmp_path / "voices.npz")
    for name, person in {"ann": 0, "<zoe>": 9}.items():
        X = np.concatenate([place.say(person, phrase) for phrase in range(3)])
        book.add(name, "drawn", X.astype(np.float32), [f"{name}{k}" for k in range(3)], "monday")
    truth = [person for _ in range(4) for person in range(3)]
    X = np.concatenate([place.say(person, k % 5) for k, person in enumerate(truth)])
    turns = [Turn("r", 5.0 * k, 5.0 * k + 4, f"S{person}") for k, person in enumerate(truth)]
    quality = Quality(1.0, 0.8, -3.0, -20.0, 0.0, 30.0, 8000.0)
    extracted = ExtractedVectors(X.astype(np.float32), [*range(12)], [quality] * 12, [])
    return extracted, turns, truth, book


def test_a_known_person_is_suggested_and_nothing_is_merged(tmp_path):
    extracted, turns, truth, book = found_and_known(tmp_path)
    before = book.path.read_bytes()
    voices = VoiceModel(domain_bundle(), Named())
    people = find_people(voices.bundle, extracted.X, turns)
    suggestions = suggest_names(voices, extracted, turns, people, book)
    of_ann = people.person[truth.index(0)]
    assert [(entry.person, entry.name) for entry in suggestions if entry.is_probable] == [
        (of_ann, "ann")
    ]
    assert book.path.read_bytes() == before
    sounds = {"r": "r.wav"}
    page = people_page(people, turns, sounds, suggestions)
    assert page.count('data-name="ann"') == 1
    assert "Probably ann" in page
    assert "value=" not in page  # no name is entered before somebody confirms it
    # a name from a file of profiles is text
    nobody = people_page(people, turns, sounds, [suggestions[0].__class__(0, "<zoe>", 1.0, False)])
    assert "<zoe>" not in nobody
    assert "Perhaps &lt;zoe&gt;" in nobody
