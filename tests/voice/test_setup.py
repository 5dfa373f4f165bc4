"""Setup: copies, one recording under several people, and the choice between models."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from shutil import copytree

import numpy as np
import pytest
from extractor_problems import network, voice, write

from mvplda import Bundle
from mvplda.exceptions import DataError
from mvplda.model_files import MODEL_FILE, REPORT_FILE
from mvplda.training import FLOOR
from mvplda.voice.profile_file import ProfileBook
from mvplda.voice.setup import Setup, _best, setup, setup_vectors
from mvplda.voice.setup_report import MIN_TRAINING_PEOPLE

PEOPLE, TAKES, WIDTH = 12, 3, 8


def drawn() -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Vectors of some people, their speakers, and a mark per vector."""
    rng = np.random.default_rng(0)
    speakers = np.repeat([f"s{i:02d}" for i in range(PEOPLE)], TAKES)
    centres = np.repeat(rng.normal(size=(PEOPLE, WIDTH)), TAKES, axis=0)
    X = 0.7 * centres + rng.normal(size=centres.shape)
    return X, speakers, [f"m{i}" for i in range(len(X))]


def figures(made: Setup, without: Sequence[str] = ()) -> list[str]:
    """Lines of the report, but those with these words."""
    lines = made.report.splitlines()
    return [line for line in lines if not any(words in line for words in without)]


def test_copies_change_neither_report_nor_thresholds():
    X, speakers, marks = drawn()
    once = setup_vectors(X, {"speaker": speakers}, marks=marks)
    twice = setup_vectors(np.vstack([X, X]), {"speaker": np.tile(speakers, 2)}, marks=marks * 2)
    assert "36 recordings are copies of others and were left out." in twice.report
    assert figures(twice, ["copies of others"]) == figures(once)
    assert twice.bundle.points == once.bundle.points
    assert twice.vectors.ids.tolist() == once.vectors.ids.tolist()
    np.testing.assert_array_equal(twice.vectors.X, once.vectors.X)
    assert twice.people == once.people


def test_a_recording_of_two_people_is_reported_and_used_for_neither():
    X, speakers, marks = drawn()
    once = setup_vectors(X[1:], {"speaker": speakers[1:]}, marks=marks[1:])
    X_more, marks_more = np.vstack([X, X[:1]]), [*marks, marks[0]]
    files = [f"{who}/{mark}" for who, mark in zip([*speakers, "s05"], marks_more, strict=True)]
    made = setup_vectors(X_more, {"speaker": [*speakers, "s05"]}, marks=marks_more, files=files)
    line = "Left out: one recording with labels of several people: s00/m0 (s00) and s05/m0 (s05)."
    assert line in made.report
    assert figures(made, ["Left out"]) == figures(once)
    assert made.bundle.points == once.bundle.points
    assert made.vectors.ids.tolist() == once.vectors.ids.tolist()
    with pytest.raises(DataError, match=r"m0 \(a\) and m0 \(b\)"):
        setup_vectors(X[:2], {"speaker": ["a", "b"]}, marks=["m0", "m0"])


def test_a_recording_of_two_phrases_is_reported_and_used_for_neither():
    X, speakers, marks = drawn()
    phrases = np.tile(["yes", "no", "maybe"], PEOPLE)
    labels = {"speaker": speakers[1:], "phrase": phrases[1:]}
    without = setup_vectors(X[1:], labels, marks=marks[1:])
    doubled = [*range(len(X)), 0]
    labels = {"speaker": speakers[doubled], "phrase": np.append(phrases, "no")}
    doubled_marks = [marks[row] for row in doubled]
    for order in (np.arange(len(doubled)), np.arange(len(doubled))[::-1]):
        result = setup_vectors(
            X[doubled][order],
            {view: column[order] for view, column in labels.items()},
            marks=[doubled_marks[row] for row in order],
        )
        recordings = "m0 (yes) and m0 (no)" if order[0] == 0 else "m0 (no) and m0 (yes)"
        line = f"Left out: one recording with labels of several phrases: {recordings}."
        assert line in result.report
        assert sorted(result.vectors.ids) == sorted(without.vectors.ids)
    with pytest.raises(DataError, match=r"several phrases: m0 \(a\) and m0 \(b\)"):
        setup_vectors(X[:2], {"speaker": ["s", "s"], "phrase": ["a", "b"]}, marks=["m0", "m0"])


def test_a_folder_with_every_file_twice_is_that_folder(tmp_path: Path):
    net = str(network(tmp_path / "net.onnx", dimension=24))
    for where in ("once", "twice"):
        for person, pitch in enumerate((1.0, 1.35, 1.7)):
            for take in range(2):
                sound = voice(2.0, pitch, 10 * person + take)
                folder = tmp_path / where / f"p{person}"
                folder.mkdir(parents=True, exist_ok=True)
                write(folder / f"{take}.wav", sound)
                if where == "twice":
                    write(folder / f"{take} copy.wav", sound)
    once, twice = (setup(tmp_path / where, extractors=[net]) for where in ("once", "twice"))
    counted = ["Labels come from", "copies of others", "to acquire"]
    assert "6 recordings are copies" in twice.report
    assert figures(twice, counted) == figures(once, counted)
    assert twice.bundle.points == once.bundle.points
    assert twice.vectors.ids.tolist() == once.vectors.ids.tolist()


def measured(eer: float, cllr: float) -> Bundle:
    """A model with errors on its card: of two kinds of impostors, of which the worse counts."""
    errors = {"eer": {"IC": eer / 2, "TW": eer}, "cllr": cllr}
    return Bundle(card={"held_out": {"errors": {"speaker": errors}}})


def chosen(default: Bundle, committee: Bundle, cosine: Bundle) -> Bundle:
    return _best({"default": default, "committee": committee, "cosine": cosine})[0]


def test_a_model_is_chosen_only_if_it_is_better_in_both_measures():
    default = measured(0.02, 0.2)
    cosine = measured(0.5, 0.9)
    for eer, cllr in ((0.01, 0.3), (0.03, 0.1), (0.02, 0.1), (0.01, 0.2)):
        assert chosen(default, measured(eer, cllr), cosine) is default, (eer, cllr)
    committee = measured(0.01, 0.1)
    assert chosen(default, committee, cosine) is committee
    # against the best so far, not against the first
    better = measured(0.005, 0.05)
    assert chosen(default, committee, better) is better
    assert chosen(default, committee, measured(0.015, 0.15)) is committee
    bundle, lines = _best({"default": default, "committee": Bundle(card={}), "cosine": better})
    assert bundle is default
    assert lines == ["Chosen: default; the errors of committee cannot be measured."]


def test_report_names_the_choice_of_a_trained_committee():
    X, speakers, marks = drawn()
    result = setup_vectors(X, {"speaker": speakers}, marks=marks)
    choice = (result.bundle.card or {})["choice"]["vectors"]
    (line,) = [line for line in result.report.splitlines() if line.startswith("Chosen for")]
    assert line.startswith(
        f"Chosen for vectors on 12 people held out in turn: {choice['chosen']} ("
    )
    lowest, error = next(iter(choice["table"].values()))
    assert choice["table"][choice["chosen"]][0] - lowest < 2 * error


def test_a_saved_setup_has_the_model_the_profiles_and_the_report(tmp_path: Path):
    X, speakers, marks = drawn()
    made = setup_vectors(X, {"speaker": speakers}, marks=marks)
    made.save(tmp_path / "new" / "folder")
    folder = tmp_path / "new" / "folder"
    assert (folder / REPORT_FILE).read_text(encoding="utf-8") == made.report + "\n"
    assert Bundle.load(folder / MODEL_FILE).points == made.bundle.points
    assert ProfileBook(folder).owners == made.people


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two recordings of each of three people, and a network beside it."""
    folder = tmp_path_factory.mktemp("recordings")
    network(folder / "net.onnx", dimension=24)
    for person, pitch in enumerate((1.0, 1.35, 1.7)):
        (folder / "sound" / f"p{person}").mkdir(parents=True)
        for take in range(2):
            sound = voice(2.0, pitch, 10 * person + take)
            write(folder / "sound" / f"p{person}" / f"{take}.wav", sound)
    return folder


@pytest.mark.parametrize(
    ("pattern", "used", "people"),
    [
        (None, "{speaker}/*", ["p0", "p0", "p1", "p1", "p2", "p2"]),
        ("p{speaker}/*", "p{speaker}/*", ["0", "0", "1", "1", "2", "2"]),
    ],
)
def test_labels_come_from_the_given_pattern_or_else_from_folders(
    recordings: Path, pattern: str | None, used: str, people: list[str]
):
    network_file = str(recordings / "net.onnx")
    made = setup(recordings / "sound", pattern=pattern, extractors=[network_file])
    assert f"Labels come from file names, read as {used}: 6 recordings." in made.report
    assert made.people == people


def test_progress_starts_with_none_of_the_recordings(
    recordings: Path, capsys: pytest.CaptureFixture[str]
):
    setup(recordings / "sound", extractors=[str(recordings / "net.onnx")], progress=True)
    assert capsys.readouterr().err.startswith("extracting vectors of recordings 0/6 ")


@pytest.mark.parametrize("n_people", [MIN_TRAINING_PEOPLE - 1, MIN_TRAINING_PEOPLE])
def test_a_model_is_trained_from_the_fewest_people_on(n_people: int):
    X, speakers, _ = drawn()
    rows = slice(n_people * TAKES)
    made = setup_vectors(X[rows], {"speaker": speakers[rows]})
    is_too_few = "too few to train a model" in made.report
    assert is_too_few == (n_people < MIN_TRAINING_PEOPLE)


def test_a_missing_folder_is_reported_before_missing_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("MVPLDA_CACHE", str(tmp_path / "empty"))
    with pytest.raises(DataError, match=r"there is no file or folder .*recordings"):
        setup(tmp_path / "recordings")


def test_the_report_names_a_faulty_recording_and_its_fault(recordings: Path, tmp_path: Path):
    copytree(recordings / "sound", tmp_path / "sound")
    write(tmp_path / "sound" / "p1" / "loud.wav", np.clip(20 * voice(3.0, 1.0, 5), -0.5, 0.5))
    made = setup(tmp_path / "sound", extractors=[str(recordings / "net.onnx")])
    assert "Quality: 1 clipped, such as p1/loud (a recording is clipped)." in made.report


def people_of_two_sexes(people: int = 24) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Vectors of people who say two phrases; people of one sex are near each other."""
    rng = np.random.default_rng(3)
    speaker, phrase, _ = (grid.ravel() for grid in np.indices((people, 2, 3)))
    sexes = np.where(np.arange(people) % 2, "m", "f")
    X = np.where(sexes == "m", 2.0, -2.0)[speaker][:, None] * np.eye(12)[0]
    X = X + rng.normal(size=(people, 12))[speaker] + 0.6 * rng.normal(size=(2, 12))[phrase]
    X += 1.1 * rng.normal(size=X.shape)
    labels = {"speaker": speaker.astype(str), "phrase": phrase.astype(str), "sex": sexes[speaker]}
    return X, labels


def test_thresholds_hold_for_impostors_of_the_same_sex():
    X, labels = people_of_two_sexes()
    made = setup_vectors(X, labels, far=0.05)
    assert "Sex comes from the column sex: 12 f, 12 m." in made.report
    assert made.bundle.views == ("speaker", "phrase")
    point = made.bundle.points["speaker+phrase"][0]
    half = point.halves["speaker"].measured
    assert set(half["far"]) == {"IC, same sex", "IC, other sex"}
    assert half["far"]["IC, other sex"][0] < half["far"]["IC, same sex"][0] <= 0.05
    whole = point.measured["far"]["IC, same sex"]
    (line,) = [line for line in made.report.splitlines() if line.startswith("Same sex: ")]
    assert line.startswith(f"Same sex: {round(100 * whole[0])} of 100 impostors of the owner's sex")
    # without the sexes the mixed impostors hide them: the threshold is lower
    unlabelled = {view: column for view, column in labels.items() if view != "sex"}
    mixed = setup_vectors(X, unlabelled, far=0.05)
    assert "Same sex" not in mixed.report
    limits = [made.bundle, mixed.bundle]
    strict, loose = (found.points["speaker+phrase"][0].halves["speaker"] for found in limits)
    assert loose.accept < strict.accept


def test_the_sex_of_recordings_comes_from_a_table_or_from_the_pitch(
    recordings: Path, tmp_path: Path
):
    net = [str(recordings / "net.onnx")]
    made = setup(recordings / "sound", extractors=net)
    assert "Sex is not labelled" in made.report
    lines = ["file,speaker,gender"]
    for person, sex in enumerate(("male", "female", "female")):
        for take in range(2):
            lines.append(f"{recordings}/sound/p{person}/{take}.wav,p{person},{sex}")
    (tmp_path / "index.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    labelled = setup(tmp_path / "index.csv", extractors=net)
    assert "Sex comes from the column gender: 2 female, 1 male." in labelled.report


def test_the_plain_mean_of_cosines_is_measured_beside_every_model():
    """Of people whose voices differ in many directions and a little noise nothing is learnt: the floor is chosen."""
    rng = np.random.default_rng(1)
    speakers = np.repeat(np.arange(12), 4)
    X = rng.normal(size=(12, 60))[speakers] + 1.2 * rng.normal(size=(48, 60))
    made = setup_vectors(X, {"speaker": speakers.astype(str)})
    rows = [line for line in made.report.splitlines() if "EER of the worst kind" in line]
    assert [row.split(":")[0].strip() for row in rows] == [
        "a committee trained on your people",
        f"the {FLOOR}",
    ]
    errors = [float(row.split("worst kind ")[1].split("%")[0]) for row in rows]
    cllrs = [float(row.split("Cllr ")[1]) for row in rows]
    is_floor = errors[1] < errors[0] and cllrs[1] < cllrs[0]
    chosen_title = f"the {FLOOR}" if is_floor else "a committee trained on your people"
    assert f"Chosen: {chosen_title}." in made.report
    assert (made.bundle.card or {})["model"] == (FLOOR if is_floor else "committee")


@pytest.mark.parametrize("n_people", [9, 10, 12])
def test_one_line_states_what_so_few_people_can_show(n_people: int):
    X, speakers, _ = drawn()
    rows = slice(n_people * TAKES)
    made = setup_vectors(X[rows], {"speaker": speakers[rows]})
    line = f"{n_people} people can show shares of impostors down to {300 / n_people:.2g} %"
    assert made.report.count(line) == 1
    assert f"3 / {n_people} may still be (rule of three)" in made.report
    assert "too few speakers" not in made.report
