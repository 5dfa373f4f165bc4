"""mvplda score: claims, digits and warnings."""

from __future__ import annotations

import json
import warnings
from datetime import date

import numpy as np
import pytest
from cli_files import fails, said_by, scoring, training, vector_files, write_map
from click.testing import CliRunner

from mvplda import MultiviewPLDA, load
from mvplda.cli import main
from mvplda.exceptions import LabelError, ParameterError
from mvplda.io.lists import read_map
from mvplda.io.trials import Scores, read_scores, write_scores

FILES = {"speaker": "utt2spk", "phrase": "utt2phrase"}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return vector_files(tmp_path_factory.mktemp("claims"))


def claims(root, path, change):
    found = read_map(root / "utt2phrase")
    write_map(path, found, [change(name, phrase) for name, phrase in found.items()])
    return ["--known", f"phrase={path}"]


def test_claims_of_which_none_is_a_class_are_an_error(root, tmp_path):
    line = fails(
        *scoring(root), *claims(root, tmp_path / "claims", lambda name, phrase: phrase.upper())
    )
    assert "lists none of the classes that the model was trained on" in line
    assert "'p0', 'p1'" in line
    assert "no class posteriors of view 'pose'" in fails(
        *scoring(root), "--known", f"pose={root / 'utt2phrase'}"
    )


def test_claims_of_which_some_are_no_class_are_counted_in_one_line(root, tmp_path):
    known = claims(
        root, tmp_path / "claims", lambda name, phrase: "zoom" if name in ("u3", "u7") else phrase
    )
    done = said_by(*scoring(root), *known, code=0)
    assert "1 of 6 classes named in view 'phrase' were not seen in training" in done.err
    assert "such as 'zoom'" in done.err
    assert done.err.count("\n") == 1
    # those two are scored as without a claim, the others are not
    plain = read_scores(root / "scores")
    scores = np.array([float(line.split()[2]) for line in done.out.splitlines()])
    odd = np.isin(plain.enrol, ["u3", "u7"])
    np.testing.assert_allclose(scores[odd], plain.score[odd], rtol=1e-5)
    assert np.abs(scores[~odd] - plain.score[~odd]).max() > 0.1
    assert (
        said_by(
            *scoring(root), *claims(root, tmp_path / "all", lambda name, phrase: phrase), code=0
        ).err
        == ""
    )


def test_claims_are_needed_of_the_models_in_the_trials_only(root, tmp_path):
    found = read_map(root / "utt2phrase")
    few = {f"u{i}": found[f"u{i}"] for i in range(40)}
    write_map(tmp_path / "few", few, few.values())
    write_map(tmp_path / "all", found, found.values())
    results = [
        said_by(*scoring(root), "--known", f"phrase={tmp_path / name}", code=0).out
        for name in ("few", "all")
    ]
    assert results[0] == results[1]
    del few["u5"], few["u6"]
    write_map(tmp_path / "fewer", few, few.values())
    line = fails(*scoring(root), "--known", f"phrase={tmp_path / 'fewer'}")
    assert "does not list 2 of 40 ids, the first is 'u5'" in line


def test_claims_of_classes_that_are_numbers(root, tmp_path):
    data = np.load(root / "x.npz")
    found = read_map(root / "utt2phrase")
    phrase = np.array([int(found[name][1:]) for name in data["ids"].tolist()])
    MultiviewPLDA({"phrase": 2}).fit(data["X"], {"phrase": phrase}).save(tmp_path / "m.safetensors")
    assert load(tmp_path / "m.safetensors").classes_["phrase"].dtype.kind == "i"
    command = [*scoring(tmp_path, "m.safetensors")[:2], *scoring(root)[2:]]
    known = claims(
        root, tmp_path / "claims", lambda name, phrase: "zoom" if name == "u3" else phrase[1:]
    )
    done = said_by(*command, *known, code=0)
    assert "1 of 6 classes named" in done.err
    plain = said_by(*command, code=0).out.splitlines()
    same = [a == b for a, b in zip(done.out.splitlines(), plain, strict=True)]
    assert 40 <= sum(same) < 200  # the 40 trials of the model whose claim is not known


def test_scores_have_the_digits_that_they_have(root, tmp_path):
    model = load(root / "model.safetensors")
    X = np.load(root / "x.npz")["X"]
    expected = model.llr_trials(
        model.enrol(X[:40]), X[100:140], np.indices((40, 40)).reshape(2, -1).T
    )
    assert expected.dtype == np.float32
    texts = [line.split()[2] for line in (root / "scores").read_text().splitlines()]
    assert max(len(text.strip("-0.").replace(".", "")) for text in texts) <= 9
    assert np.array_equal(np.array(texts, dtype=np.float32), expected)
    # float64, as it is; text, tables and both ways
    precise = np.array([1 / 3, -2e-9, 12345.678901234567, np.inf])
    for name in ("s", "s.csv"):
        enrol, test = np.array(list("abcd")), np.array(list("efgh"))
        write_scores(tmp_path / name, Scores(enrol, test, precise))
        assert np.array_equal(read_scores(tmp_path / name).score, precise)
        write_scores(tmp_path / name, Scores(enrol, test, precise.astype(np.float32)))
        assert np.array_equal(
            read_scores(tmp_path / name).score.astype(np.float32), precise.astype(np.float32)
        )
    assert (tmp_path / "s").read_text().splitlines()[0] == "a e 0.33333334"


def test_scores_go_by_the_name_of_their_file(root, tmp_path):
    said_by(*scoring(root), "-o", tmp_path / "s.csv", code=0)
    assert (tmp_path / "s.csv").read_text().startswith("enrol,test,score\n")


def test_a_warning_is_one_line_and_shown_once(root, tmp_path, monkeypatch):
    def fit(self, *_, **__):
        for _time in range(3):
            warnings.warn("the noise\nwas raised", UserWarning, stacklevel=1)
            warnings.warn("old", DeprecationWarning, stacklevel=1)
        raise KeyboardInterrupt

    monkeypatch.setattr(MultiviewPLDA, "fit", fit)
    done = said_by(*training(root), "-q", "-o", tmp_path / "m.safetensors", code=1)
    assert done.err.strip() == "mvplda: warning: the noise was raised\n\nAborted!"


def test_trials_of_three_views_are_scored_and_judged(root, tmp_path):
    """Kinds are called by the views that agree, and no option names the views."""
    found = [line.split() for line in (root / "trials").read_text().splitlines()]
    named = {"TC": "speaker+phrase+pose", "TW": "speaker+pose", "IC": "phrase", "IW": "none"}
    (tmp_path / "trials").write_text(
        "".join(f"{m} {t} {named[kind]}\n" for m, t, kind in reversed(found))
    )
    scored = [
        "score",
        root / "model.safetensors",
        "--test",
        root / "x.npz",
        "--trials",
        tmp_path / "trials",
    ]
    said_by(*scored, "-o", tmp_path / "scores", code=0)
    table = said_by(
        "evaluate", tmp_path / "scores", "--trials", tmp_path / "trials", "--json", code=0
    ).out
    assert set(json.loads(table)["kinds"]) == {"speaker+pose", "phrase", "none", "Total"}
    assert json.loads(table)["target"] == "speaker+phrase+pose"


def test_standard_input_stands_for_one_file(root):
    words = [
        "score",
        root / "model.safetensors",
        "--enrol",
        "-",
        "--test",
        "-",
        "--trials",
        root / "trials",
    ]
    done = CliRunner().invoke(
        main, [str(word) for word in words], input=(root / "x.npz").read_bytes()
    )
    assert done.exit_code == 1
    assert "standard input (-) was read already: pass - for one input only" in done.stderr


def test_ids_and_numbers_of_profiles_are_refused_in_words(root):
    model, X = load(root / "model.safetensors"), np.load(root / "x.npz")["X"][:3]
    for ids in ([date(2020, 1, 1)] * 3, np.array(["2020-01-01"] * 3, dtype="M8[D]")):
        with pytest.raises(LabelError, match="ids"):
            model.enrol(X, ids)
    profiles = model.enrol(X)
    for top in (1.5, None, True, 0):
        with pytest.raises(ParameterError, match="top must be a whole number of at least 1; got"):
            model.scorer.identify(profiles, X, top=top)
    assert model.scorer.identify(profiles, X, top=np.int64(2)).scores.shape == (3, 2)
