"""A whole experiment from files on disk through the command line, as a Kaldi user would do it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from mvplda.datasets import known_model
from mvplda.io.lists import write_map
from mvplda.io.trials import Trials, write_trials
from mvplda.io.vectors import VectorSet, write_vectors
from mvplda.voice.profile_file import ProfileBook


def mvplda(*arguments, folder, stdin=None):
    return subprocess.run(
        [sys.executable, "-m", "mvplda", *map(str, arguments)],
        capture_output=True, text=True, check=False, cwd=folder, input=stdin,
    )  # fmt: skip


def ok(*arguments, folder):
    done = mvplda(*arguments, folder=folder)
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """scp files, utt2spk, utt2phrase, spk2utt and trials of a small corpus."""
    folder = tmp_path_factory.mktemp("corpus")
    truth = known_model(5, dimension=30, ranks=(4, 4))
    truth.noise_ = truth.noise_ / 10
    who, what, session = (a.reshape(-1) for a in np.indices((36, 6, 6)))
    X = truth.sample({"speaker": who, "phrase": what}, random_state=0)
    ids = np.array([f"s{w:02d}-p{p}-{s}" for w, p, s in zip(who, what, session, strict=True)])
    speaker = dict(zip(ids.tolist(), (f"s{w:02d}" for w in who), strict=True))
    phrase = dict(zip(ids.tolist(), (f"phrase {p}" for p in what), strict=True))
    train, enrol, test = who < 24, (who >= 24) & (session < 3), (who >= 24) & (session >= 3)
    for name, rows in (("train", train), ("enrol", enrol), ("test", test)):
        write_vectors(folder / f"{name}.scp", VectorSet(ids[rows], X[rows].astype(np.float32)))
    write_map(folder / "utt2spk", speaker)
    write_map(folder / "utt2phrase", phrase)
    models: dict[str, Any] = {}
    for name in ids[enrol].tolist():
        models.setdefault(name.rpartition("-")[0], []).append(name)
    write_map(folder / "spk2utt", {name: " ".join(ids) for name, ids in models.items()})
    write_map(folder / "model2spk", {m: m.partition("-")[0] for m in models})
    write_map(folder / "model2phrase", {m: f"phrase {m[-1]}" for m in models})
    left, right = (
        a.reshape(-1) for a in np.meshgrid(np.array(list(models)), ids[test], indexing="ij")
    )
    same = [
        [m.split("-")[i] == t.split("-")[i] for m, t in zip(left, right, strict=True)]
        for i in (0, 1)
    ]
    kind = np.array(["IW", "IC", "TW", "TC"])[2 * np.asarray(same[0]) + np.asarray(same[1])]
    write_trials(folder / "trials", Trials(left, right, kind))
    return folder


@pytest.fixture(scope="module")
def scored(folder):
    ok("train", "train.scp", "-l", "speaker=utt2spk", "-l", "phrase=utt2phrase", "-v", "speaker=4", "-v", "phrase=4",
       "-o", "model.safetensors", "-q", folder=folder)  # fmt: skip
    ok("score", "model.safetensors", "--enrol", "enrol.scp", "--models", "spk2utt", "--test", "test.scp",
       "--trials", "trials", "-o", "scores", folder=folder)  # fmt: skip
    return folder


def test_three_lines_from_kaldi_files_to_a_report(scored):
    done = ok("evaluate", "scores", "--trials", "trials", "--test-speakers", "utt2spk", "--enrol-speakers", "model2spk",
              "--report", "report.html", folder=scored)  # fmt: skip
    assert "EER" in done.stdout
    assert "Total" in done.stdout
    page = (scored / "report.html").read_text()
    assert page.count("<svg") == 3
    assert not re.search(r'(src|href)="https?:', page)


def test_json_for_machines_and_equal_numbers_from_the_library(scored):
    from mvplda import load
    from mvplda.io.lists import read_groups
    from mvplda.io.trials import read_scores
    from mvplda.io.vectors import read_vectors

    about = json.loads(
        ok("evaluate", "scores", "--trials", "trials", "--json", folder=scored).stdout
    )
    assert set(about["kinds"]) == {"IW", "IC", "TW", "Total"}
    assert about["kinds"]["Total"]["eer"] < 0.05
    scores = read_scores(scored / "scores")
    groups = read_groups(scored / "spk2utt")
    vectors = read_vectors(scored / "enrol.scp")
    model = load(scored / "model.safetensors")
    profiles = model.enrol(vectors.select(groups["s30-p2"]).X, ["s30-p2"] * 3)
    tests = read_vectors(scored / "test.scp")
    here = scores.enrol == "s30-p2"
    expected = model.llr(profiles, tests.select(scores.test[here]).X)[0]
    np.testing.assert_allclose(scores.score[here], expected, atol=1e-3)


@pytest.mark.slow
def test_questions_enrolment_file_calibration_and_comparison(scored):
    from mvplda.io import read_groups, read_vectors

    pairs = [(m, u) for m, us in read_groups(scored / "spk2utt").items() for u in us]
    vectors = read_vectors(scored / "enrol.scp").select([u for _, u in pairs])
    ProfileBook(scored / "profiles.npz").write(vectors, {"profile": [m for m, _ in pairs]})
    common = [
        "score",
        "model.safetensors",
        "--profiles",
        "profiles.npz",
        "--test",
        "test.scp",
        "--trials",
        "trials",
    ]
    ok(*common, "--known", "phrase=model2phrase", "-o", "known", folder=scored)
    ok(*common, "--same", "speaker", "--given", "phrase=different", "-o", "other", folder=scored)
    streamed = ok(*common, "-o", "-", folder=scored).stdout
    assert (
        streamed.splitlines()[0].split() == (scored / "scores").read_text().splitlines()[0].split()
    )
    ok(
        "calibrate",
        "scores",
        "--trials",
        "trials",
        "--save",
        "cal.safetensors",
        folder=scored,
    )
    ok("calibrate", "scores", "--load", "cal.safetensors", "-o", "calibrated", folder=scored)
    text = ok("evaluate", "known=known", "open=scores", "--trials", "trials", "--test-speakers", "utt2spk",
              "--enrol-speakers", "model2spk", folder=scored).stdout  # fmt: skip
    assert "known against open" in text
    head, *rows = text.splitlines()[:3]
    assert re.split("  +", head) == [
        "EER, %",
        "IW",
        "IC",
        "TW",
        "Total",
        "minDCF default",
        "Cllr",
        "minCllr",
    ]
    for row in rows:
        assert re.fullmatch(r"(known|open )(  +[0-9.]+ \[[0-9.]+, [0-9.]+\]){7}", row)


def test_conversion_round_trip_and_info(scored):
    ok("convert", "test.scp", "test.npz", folder=scored)
    about = json.loads(ok("info", "test.npz", "--json", folder=scored).stdout)
    assert about["vectors"] == 216
    ok("convert", "trials", "trials.csv", "--as", "trials", folder=scored)
    again = ok("evaluate", "scores", "--trials", "trials.csv", folder=scored).stdout
    assert again == ok("evaluate", "scores", "--trials", "trials", folder=scored).stdout


@pytest.mark.slow
def test_a_calibration_of_scores(scored):
    ok("train", "train.scp", "-l", "speaker=utt2spk", "-l", "phrase=utt2phrase", "-v", "speaker=10", "-v", "phrase=4",
       "--reduce", "10", "-o", "auto.safetensors", "-q", folder=scored)  # fmt: skip
    common = [
        "--enrol",
        "enrol.scp",
        "--models",
        "spk2utt",
        "--test",
        "test.scp",
        "--trials",
        "trials",
    ]
    ok("score", "auto.safetensors", *common, "-o", "auto-raw", folder=scored)
    ok("calibrate", "auto-raw", "--trials", "trials", "--save", "cal.safetensors", folder=scored)
    ok("calibrate", "auto-raw", "--load", "cal.safetensors", "-o", "auto-calibrated", folder=scored)
    raw, calibrated = (
        json.loads(ok("evaluate", name, "--trials", "trials", "--json", folder=scored).stdout)[
            "kinds"
        ]["Total"]
        for name in ("auto-raw", "auto-calibrated")
    )
    assert calibrated["cllr"] < raw["cllr"]
    assert calibrated["eer"] == pytest.approx(raw["eer"], abs=1e-3)
    about = json.loads(ok("info", "auto.safetensors", "--json", folder=scored).stdout)
    assert about["bundle"]["preprocessing"] == ["Centring", "Whitening", "LengthNormalisation"]


@pytest.mark.slow
def test_vectors_of_another_extractor_are_refused(folder):
    from mvplda.io.vectors import read_vectors

    for name, extractor in (("one", "net-1"), ("two", "net-2")):
        vectors = read_vectors(folder / "train.scp")
        write_vectors(folder / f"{name}.npz", VectorSet(vectors.ids, vectors.X, extractor))
    ok(
        "train",
        "one.npz",
        "-l",
        "speaker=utt2spk",
        "-v",
        "speaker=4",
        "-o",
        "one.safetensors",
        "-q",
        folder=folder,
    )
    (folder / "one-trials").write_text("s00-p0-0 s00-p0-1 target\ns00-p0-0 s01-p0-1 nontarget\n")
    ok(
        "score",
        "one.safetensors",
        "--test",
        "one.npz",
        "--trials",
        "one-trials",
        "-o",
        "one-scores",
        folder=folder,
    )
    done = mvplda(
        "score", "one.safetensors", "--test", "two.npz", "--trials", "one-trials", folder=folder
    )
    assert done.returncode == 1
    assert "is 'net-2', and that of the model is 'net-1'" in done.stderr
    done = ok(
        "score", "one.safetensors", "--test", "train.scp", "--trials", "one-trials", folder=folder
    )
    assert (
        "warning: the extractor of the model is 'net-1', and that of train.scp is unknown"
        in done.stderr
    )


@pytest.mark.slow
def test_enrolment_and_test_vectors_of_different_extractors_are_refused(folder):
    from mvplda.io.vectors import read_vectors

    vectors = read_vectors(folder / "train.scp")
    for name, extractor in (("left", "net-1"), ("right", "net-2"), ("bare", None)):
        write_vectors(folder / f"{name}.npz", VectorSet(vectors.ids, vectors.X, extractor))
    ok(
        "train",
        "bare.npz",
        "-l",
        "speaker=utt2spk",
        "-v",
        "speaker=4",
        "-o",
        "bare.safetensors",
        "-q",
        folder=folder,
    )
    (folder / "pairs").write_text("s00-p0-0 s00-p0-1 target\ns00-p0-0 s01-p0-1 nontarget\n")
    common = ("score", "bare.safetensors", "--test", "left.npz", "--trials", "pairs", "--enrol")
    done = mvplda(*common, "right.npz", folder=folder)
    assert done.returncode == 1
    assert "right.npz is 'net-2', and that of the test vectors is 'net-1'" in done.stderr
    assert "that of bare.npz is unknown" in ok(*common, "bare.npz", folder=folder).stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["score", "model.safetensors", "--test", "train.scp", "--trials", "trials"],
            "there is no profile 's24-p0'",
        ),
        (["evaluate", "spk2utt", "--trials", "trials"], "spk2utt"),
        (["evaluate", "scores", "--trials", "nothing"], "nothing"),
        (
            [
                "train",
                "train.scp",
                "-l",
                "speaker=model2spk",
                "-v",
                "speaker=4",
                "-o",
                "no.safetensors",
            ],
            "model2spk",
        ),
        (["score", "utt2spk", "--test", "test.scp", "--trials", "trials"], "utt2spk"),
    ],
)
def test_faults_are_one_line_and_leave_nothing(scored, arguments, message):
    before = set(scored.iterdir())
    done = mvplda(*arguments, folder=scored)
    assert done.returncode == 1, done.stderr
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("mvplda: ")
    assert message in last
    assert "Traceback" not in done.stderr
    assert set(scored.iterdir()) == before
