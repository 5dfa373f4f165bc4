"""Faces, and a view that must not matter: each one command with a table and a picture."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from experiment_problems import SMALL, drawn_task

from mvplda import MultiviewPLDA
from mvplda.cli import main
from mvplda.exceptions import DataError, FileFormatError, LabelError, ParameterError
from mvplda.io.files import write_map
from mvplda.io.vectors import VectorSet, write_vectors
from mvplda.metrics import eer_by_kind
from mvplda.speech.experiment import ablations
from mvplda.speech.experiment.ablations import study_ablations
from mvplda.speech.experiment.languages import ALL, assigned, study_languages
from mvplda.speech.experiment.studies import VIEWS, read_faces, study_faces, study_nuisance, thinned
from mvplda.speech.experiment.systems import PAPERS, run_system


def mvplda(*arguments):
    return CliRunner().invoke(main, [str(a) for a in arguments])


def confounded(seed, speakers=40, phrases=8, sessions=4, dimension=20):
    """Phrases weigh more than speakers."""
    rng = np.random.default_rng(seed)
    speaker, phrase, _ = (a.reshape(-1) for a in np.indices((speakers, phrases, sessions)))
    loadings = {
        "speaker": 1.0 * rng.standard_normal((dimension, 5)),
        "phrase": 2 * rng.standard_normal((dimension, 5)),
    }
    truth = MultiviewPLDA.from_parameters(np.zeros(dimension), loadings, np.full(dimension, 1.5))
    labels = {
        "speaker": np.array([f"s{i}" for i in speaker]),
        "phrase": np.array([f"p{i}" for i in phrase]),
    }
    return truth.sample(labels, random_state=seed), labels


@pytest.mark.parametrize("seed", [0, 1])
def test_both_views_beat_one_where_they_are_mixed_up(seed):
    """With one phrase a speaker, PLDA of speakers takes phrases for speakers; with all, both know."""
    X, labels = confounded(seed)
    result = study_nuisance(
        X, labels, verify="speaker", ignore="phrase", keep=(8, 1), folds=3, components=20
    )
    plda, views = result.errors["PLDA of speaker"], result.errors["multi-view"]
    assert views[1] < 0.8 * plda[1]
    assert views[8] < 1.2 * plda[8]
    assert plda[8] < 0.6 * plda[1]
    lines = result.table().splitlines()
    assert lines[0].split() == ["EER,", "%", "8", "1"]
    assert [line.split("  ")[0] for line in lines[1:5]] == list(result.errors)
    assert set(result.shares) >= {"speaker", "phrase"}
    both = {name: errors["Total"] for name, errors in result.both.items()}
    assert both["  the same, phrase known"] < both["multi-view"] < 0.7 * both["cosine"]
    assert re.split(r"  +", result.table_of_both().splitlines()[0])[1:] == [
        "both other",
        "other speaker",
        "other phrase",
        "Total",
    ]


def test_thinning_keeps_so_many_of_each():
    _, labels = confounded(0, speakers=6)
    for keep in (1, 3):
        stays = thinned(labels, "speaker", "phrase", keep, random_state=1)
        for name in np.unique(labels["speaker"]):
            assert len(np.unique(labels["phrase"][stays & (labels["speaker"] == name)])) == keep
            assert (stays & (labels["speaker"] == name)).sum() == keep * 4
    assert thinned(labels, "speaker", "phrase", 8, random_state=1).all()
    assert not (
        thinned(labels, "speaker", "phrase", 1, 1) & ~thinned(labels, "speaker", "phrase", 3, 1)
    ).any()


def test_studies_that_cannot_be(monkeypatch):
    X, labels = confounded(0, speakers=6, phrases=3)
    for wrong, error, message in (
        ({"verify": "voice"}, LabelError, "no view 'voice'"),
        ({"ignore": "speaker"}, LabelError, "'speaker' for both"),
        ({"folds": 4}, DataError, "6 classes of 'speaker' and 4 folds"),
        ({"folds": 1}, DataError, "1 folds"),
        ({"keep": (0,)}, ParameterError, "at least one class of 'phrase'; got 0"),
    ):
        asked: dict[str, Any] = {"verify": "speaker", "ignore": "phrase", "folds": 2, **wrong}
        with pytest.raises(error, match=message):
            study_nuisance(X, labels, **asked)
    missing = {**labels, "phrase": np.array([None, *labels["phrase"][1:]], dtype=object)}
    with pytest.raises(LabelError, match=r"1 vector\(s\) have no label in view 'phrase'"):
        study_nuisance(X, missing, verify="speaker", ignore="phrase", folds=2)


def test_nuisance_through_the_command_line(tmp_path):
    X, labels = confounded(0, speakers=10, phrases=3)
    ids = np.array([f"u{i}" for i in range(len(X))])
    write_vectors(tmp_path / "x.npz", VectorSet(ids, X))
    for view, values in labels.items():
        write_map(tmp_path / view, dict(zip(ids.tolist(), values.tolist(), strict=True)))
    common = ["study", "nuisance", tmp_path / "x.npz", "-l", f"speaker={tmp_path}/speaker", "-l",
              f"phrase={tmp_path}/phrase", "--folds", 2, "-o", tmp_path / "out"]  # fmt: skip
    done = mvplda(*common, "--verify", "speaker", "--ignore", "phrase", "--keep", 3, "--keep", 1)
    assert done.exit_code == 0, done.output
    table = (tmp_path / "out" / "nuisance.txt").read_text()
    assert table.strip() in done.output
    assert (tmp_path / "out" / "nuisance.png").stat().st_size > 5000
    wrong = mvplda(*common, "--verify", "speaker", "--ignore", "day")
    assert wrong.exit_code == 1
    assert "mvplda: there is no view 'day'" in wrong.output


# -- one setting at a time -------------------------------------------------------


def test_every_ablation_changes_one_setting(tmp_path):
    """Where the value is the usual one, so is the row; tables hold the same figures, every setting has a picture."""
    task = drawn_task({"speaker": 18, "phrase": 4}, noise=2.0)
    settings = replace(SMALL, paper_rank=2, paper_iterations=5, reduce=None)
    rows = study_ablations(task, tmp_path, settings)
    usual = {s.title: eer_by_kind(run_system(s, task, settings).scores, task.kinds) for s in PAPERS}
    asked = {"rank of each view": "2", "iterations of EM": "5", "priors p1 : p2 : p3": "1 : 1 : 1",
             "vectors of a profile": "3", "principal components": "raw"}  # fmt: skip
    for setting, value in asked.items():
        found = [row for row in rows if (row["setting"], row["value"]) == (setting, value)]
        assert {row["system"] for row in found} == set(usual) - (
            {"PLDA by cell"} if "priors" in setting else set()
        )
        for row in found:
            assert {kind: row[kind] for kind in usual[row["system"]]} == usual[row["system"]]
        others = {
            row["Total"]
            for row in rows
            if row["setting"] == setting and row["system"] == "jPLDA exact"
        }
        assert len(others) > (1 if setting != "principal components" else 0)
    views = {row["value"]: row["Total"] for row in rows if row["setting"] == "views"}
    assert list(views) == ["two views", "cells", "both"]
    assert json.loads((tmp_path / "ablations.json").read_text()) == rows
    lines = list(csv.DictReader((tmp_path / "ablations.csv").open()))
    assert [float(line["IC"]) for line in lines] == [row["IC"] for row in rows]
    assert len((tmp_path / "ablations.md").read_text().splitlines()) == len(rows) + 2
    assert len(list(tmp_path.glob("ablation-*.png"))) == len({row["setting"] for row in rows}) == 6


# -- speakers who are heard in one condition each --------------------------------


@pytest.mark.parametrize("share", [0.0, 0.05, 0.25, 1.0, ALL])
def test_a_share_of_the_speakers_is_heard_in_two_conditions(share):
    """All keep as many vectors, and none twice the same sentence, so that columns differ in nothing else."""
    speaker, language, sentence = (a.reshape(-1) for a in np.indices((40, 5, 10)))
    for seed in range(3):
        kept = assigned({"speaker": speaker, "language": language}, share, seed)
        heard = {s: set(language[kept & (speaker == s)].tolist()) for s in range(40)}
        several = sum(len(found) > 1 for found in heard.values())
        assert several == (40 if share == ALL else round(40 * share))
        assert {len(found) for found in heard.values()} <= ({5} if share == ALL else {1, 2})
        assert (np.bincount(speaker[kept]) == 10).all()
        assert all(
            sorted(sentence[kept & (speaker == s)].tolist()) == list(range(10)) for s in range(40)
        )
        if share == 0:
            assert (np.bincount(language[kept]) == 80).all()
    with pytest.raises(DataError, match="40 training speakers and 1 conditions"):
        assigned({"speaker": speaker, "language": np.zeros_like(language)}, share, 0)


def test_a_model_of_both_views_tells_languages_from_speakers(tmp_path):
    """Where nobody speaks two, PLDA of speakers takes languages for speakers; where all speak all, nothing is won."""
    task, truth = ablations.drawn_task(8, 5, 0, (40, 20, 4))
    result = study_languages(task, tmp_path, drawn=truth, draws=1, shares=(0.0,), resamples=20)
    other = {
        name: {share: kinds["other"][0] for share, kinds in found.items()}
        for name, found in result.errors.items()
    }
    assert other["joint"]["0%"] < 0.5 * other["PLDA of speaker"]["0%"]
    assert other["joint"][ALL] > 0.8 * other["PLDA of speaker"][ALL]
    assert other["true parameters"]["0%"] == other["true parameters"][ALL] < other["joint"][ALL]
    assert {tuple(result.intervals["joint"][share]) for share in ("0%", ALL)} == {
        ("same", "other", "any")
    }
    kept = json.loads((tmp_path / "languages.json").read_text())
    assert kept["errors"] == result.errors
    ratio, low, high = kept["tests"]["0%"]["cosine"]
    both = [result.errors[name]["0%"]["any"][0] for name in ("joint, prior", "cosine")]
    assert ratio == pytest.approx(both[0] / both[1])
    assert low <= ratio <= high
    lines = (tmp_path / "languages.md").read_text().splitlines()
    assert sum(line.startswith("| joint, prior |") for line in lines) == 3
    assert (tmp_path / "languages.png").stat().st_size > 10_000


def test_ablations_of_vectors_through_the_command_line(tmp_path):
    X, labels = confounded(0, speakers=9, phrases=3)
    ids = np.array([f"u{i}" for i in range(len(X))])
    write_vectors(tmp_path / "x.npz", VectorSet(ids, X))
    for view, values in labels.items():
        write_map(tmp_path / view, dict(zip(ids.tolist(), values.tolist(), strict=True)))
    words = [
        "-l",
        f"speaker={tmp_path}/speaker",
        "-l",
        f"phrase={tmp_path}/phrase",
        "-s",
        "per_model=2",
    ]
    done = mvplda("study", "ablations", tmp_path / "x.npz", *words, "-o", tmp_path / "out")
    assert done.exit_code == 0, done.output
    rows = json.loads((tmp_path / "out" / "ablations.json").read_text())
    assert [row["value"] for row in rows if row["setting"] == "vectors of a profile"] == [
        "1"
    ] * 3 + ["2"] * 3
    assert mvplda("study", "ablations", *words).exit_code == 2
    assert mvplda("study", "languages", *words).exit_code == 2
    heard = mvplda(
        "study", "languages", tmp_path / "x.npz", *words, "--draws", 1, "-o", tmp_path / "out"
    )
    assert heard.exit_code == 0, heard.output
    assert "| PLDA of speaker, centred by phrase* |" in heard.output


# -- faces ---------------------------------------------------------------------


def faces(people=16, seed=0, size=(12, 10)):
    """Images that are a person's pattern, a pose's, an expression's and the eyes', and noise; patterns mix a few."""
    rng = np.random.default_rng(seed)
    names = {
        "person": [f"p{i}" for i in range(people)],
        "pose": ["left", "straight", "up"],
        "expression": ["happy", "sad"],
        "eyes": ["open", "sunglasses"],
    }
    pattern = {}
    for (view, values), weight in zip(names.items(), (10, 20, 4, 8), strict=True):
        mixed = np.tensordot(
            rng.normal(size=(len(values), 4)), rng.normal(0, weight, (4, *size)), 1
        )
        pattern[view] = dict(zip(values, mixed, strict=True))
    rows = [(a, b, c, d) for a in names["person"] for b in names["pose"] for c in names["expression"]
            for d in names["eyes"]]  # fmt: skip
    images = [
        128 + sum(pattern[view][name] for view, name in zip(names, row, strict=True))
        for row in rows
    ]
    images = np.clip(images + rng.normal(0, 6, (len(rows), *size)), 0, 255).astype(np.uint8)
    return images, dict(zip(VIEWS, np.array(rows).T, strict=True))


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """The same images as an .npz and as a folder of PGM files."""
    from PIL import Image

    root = tmp_path_factory.mktemp("faces")
    images, labels = faces()
    np.savez(root / "faces.npz", images=images, **labels)
    for image, row in zip(images, zip(*labels.values(), strict=True), strict=True):
        (root / "folder" / row[0]).mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(root / "folder" / row[0] / ("_".join(row) + ".pgm"))
        Image.fromarray(image[::2, ::2]).save(root / "folder" / row[0] / ("_".join(row) + "_2.pgm"))
    return root


def test_both_forms_hold_the_same_faces(stored):
    images, labels = read_faces(stored / "faces.npz")
    again, names = read_faces(stored / "folder")
    order = np.lexsort([labels[view] for view in reversed(VIEWS)])
    other = np.lexsort([names[view] for view in reversed(VIEWS)])
    np.testing.assert_array_equal(images[order], again[other])
    for view in VIEWS:
        np.testing.assert_array_equal(labels[view][order], names[view][other])


def test_faces_through_the_command_line(stored, tmp_path):
    done = mvplda("study", "faces", stored / "folder", "-o", tmp_path / "out")
    assert done.exit_code == 0, done.output
    text = (tmp_path / "out" / "faces.txt").read_text()
    assert "variance explained: person" in text
    assert "the same, pose known" in text
    assert "phrase" not in text
    assert "speaker" not in text
    share = {part.split()[0]: float(part.split()[1].rstrip("%")) for part in
             next(line for line in text.splitlines() if line.startswith("variance"))[20:].split(", ")}  # fmt: skip
    assert share["pose"] > share["expression"]
    assert share["person"] > share["expression"]
    assert (tmp_path / "out" / "faces.png").stat().st_size > 10000


def test_the_person_is_told_whatever_the_pose(stored, tmp_path):
    result = study_faces(stored / "faces.npz", tmp_path, components=40)
    assert result.errors["multi-view"][3] < 0.5 * result.errors["cosine"][3]
    assert result.errors["multi-view"][1] < 0.9 * result.errors["PLDA of person"][1]


def test_files_that_are_no_faces(tmp_path):
    images, labels = faces(people=2)
    np.save(tmp_path / "a.npy", images)
    np.savez(tmp_path / "b.npz", images=images, person=labels["person"])
    np.savez(tmp_path / "c.npz", images=images[1:], **labels)
    (tmp_path / "d.npz").write_bytes(b"PK\x03\x04 not a zip file")
    (tmp_path / "e.npz").write_bytes(b"")
    (tmp_path / "f").mkdir()
    for name, error in (("a.npy", FileFormatError), ("b.npz", FileFormatError), ("c.npz", DataError),
                        ("d.npz", FileFormatError), ("e.npz", FileFormatError), ("f", DataError)):  # fmt: skip
        with pytest.raises(error, match=name):
            read_faces(tmp_path / name)
    done = mvplda("study", "faces", tmp_path / "d.npz", "-o", tmp_path / "out")
    assert done.exit_code == 1
    assert "Traceback" not in done.output
