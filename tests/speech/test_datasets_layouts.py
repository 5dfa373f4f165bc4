"""Every data set's layout, on miniature trees, with faults."""

from __future__ import annotations

import csv
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from problems import there, trials_of

from mvplda.exceptions import DataError, FileFormatError, LabelError, MvpldaError, ParameterError
from mvplda.io import write_trials
from mvplda.io.files import check_ids
from mvplda.speech.corpora import corpus_of_vectors, load_corpus, table
from mvplda.speech.corpora.public import TRAINING_SPEAKERS

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data" / "audiomnist"


def sound(path: Path, seconds: float = 0.01) -> None:
    soundfile = pytest.importorskip("soundfile")
    path.parent.mkdir(parents=True, exist_ok=True)
    kind = "NIST" if path.suffix == ".sph" else None
    soundfile.write(
        str(path), np.full(int(16000 * seconds), 0.1), 16000, subtype="PCM_16", format=kind
    )


def touch(*paths: Path) -> None:
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def apart(corpus) -> bool:
    """No speaker is both trained on and evaluated with."""
    speakers = corpus.labels["speaker"]
    evaluation = np.union1d(corpus.enrolled, corpus.protocol.test)
    return not set(speakers[corpus.protocol.train]) & set(speakers[evaluation])


# AudioMNIST


def audiomnist_tree(root: Path, speakers=("03", "05", "01", "02"), sessions=12) -> Path:
    touch(
        *(
            root / "data" / s / f"{d}_{s}_{k}.wav"
            for s in speakers
            for d in range(3)
            for k in range(sessions)
        )
    )
    touch(root / "data" / "audioMNIST_meta.txt")
    return root


@pytest.mark.skipif(
    not SHARED.is_dir(), reason="the packed AudioMNIST is not beside the repository"
)
def test_audiomnist_packed_is_the_protocol_of_its_vectors():
    corpus = load_corpus("audiomnist", SHARED)
    assert len(corpus) == 12000
    assert len(corpus.protocol.train) == 8000
    assert len(np.unique(corpus.labels["speaker"][corpus.protocol.train])) == 40
    assert (len(corpus.protocol.enrol), len(corpus.protocol.test)) == (200, 3400)
    assert corpus.trial_counts() == {"TC": 3400, "TW": 30600, "IC": 64600, "IW": 581400}
    assert set(there(corpus.sessions)[corpus.enrolled]) == {"0", "1", "2"}
    assert apart(corpus)
    with np.load(SHARED.parent / "audiomnist_jvectors.npz") as arrays:
        assert sorted(TRAINING_SPEAKERS) == sorted(f"{k:02d}" for k in arrays["training_speakers"])
    import soundfile

    clip = there(corpus.clips)[-1]
    assert clip.start + there(clip.length) == soundfile.info(str(clip.path)).frames
    assert len(load_corpus("audiomnist", SHARED, sessions=5)) == 3000


def test_audiomnist_as_downloaded(tmp_path):
    corpus = load_corpus("audiomnist", audiomnist_tree(tmp_path))
    assert len(corpus) == 4 * 3 * 12
    assert set(corpus.labels["speaker"][corpus.protocol.train]) == {"03", "05"}
    assert apart(corpus)
    assert corpus.protocol.enrol.keys() == {f"{s}_{d}" for s in ("01", "02") for d in range(3)}
    assert set(there(corpus.sessions)[corpus.enrolled]) == {"0", "1", "2"}
    row = corpus.ids.tolist().index("2_01_11")
    assert there(corpus.clips)[row].path == tmp_path / "data" / "01" / "2_01_11.wav"
    assert len(load_corpus("audiomnist", tmp_path / "data", sessions=4)) == 4 * 3 * 4


def test_audiomnist_takes_the_speakers_that_vectors_beside_it_were_trained_on(tmp_path):
    audiomnist_tree(tmp_path / "audiomnist")
    np.savez(tmp_path / "audiomnist_jvectors.npz", training_speakers=np.array([1, 3, 60]))
    trained = load_corpus("audiomnist", tmp_path / "audiomnist")
    assert set(trained.labels["speaker"][trained.protocol.train]) == {"01", "03"}


def test_audiomnist_faults(tmp_path):
    with pytest.raises(
        DataError, match=r"AudioMNIST is not there: looked for .*index\.csv.*Download"
    ):
        load_corpus("audiomnist", tmp_path)
    audiomnist_tree(tmp_path)
    touch(tmp_path / "data" / "01" / "2_07_3.wav")
    with pytest.raises(DataError, match=r"1 of 145 names .*01/2_07_3\.wav"):
        load_corpus("audiomnist", tmp_path)
    with pytest.raises(DataError, match="one side"):
        load_corpus("audiomnist", audiomnist_tree(tmp_path / "one", speakers=("01", "02")))
    with pytest.raises(DataError, match="none of the 6 cells"):
        load_corpus("audiomnist", audiomnist_tree(tmp_path / "few"), sessions=3)


# Free Spoken Digit


def test_free_spoken_digits(tmp_path):
    names = ("george", "jackson", "lucas", "nicolas", "theo", "yweweler")
    touch(
        *(
            tmp_path / "recordings" / f"{d}_{n}_{k}.wav"
            for n in names
            for d in range(10)
            for k in range(6)
        )
    )
    corpus = load_corpus("free-spoken-digits", tmp_path)
    assert len(corpus) == 360
    assert apart(corpus)
    assert set(corpus.labels["speaker"][corpus.protocol.test]) == {"theo", "yweweler"}
    assert (len(corpus.protocol.enrol), len(corpus.protocol.test)) == (20, 60)
    drawn = load_corpus("free_spoken_digits", tmp_path / "recordings", training=3, random_state=1)
    assert len(np.unique(drawn.labels["speaker"][drawn.protocol.train])) == 3
    with pytest.raises(DataError, match="no sound files"):
        load_corpus("free-spoken-digits", _empty(tmp_path))
    with pytest.raises(DataError, match="Free Spoken Digit is not there"):
        load_corpus("free-spoken-digits", tmp_path / "nowhere")


def _empty(path: Path) -> Path:
    (path / "empty").mkdir()
    return path / "empty"


# Arabic Speech Commands


def arabic_tree(root: Path, speakers=range(1, 7)) -> Path:
    touch(
        *(
            root / "dataset" / word / f"{s:08d}_NO_{k:02d}.wav"
            for s in speakers
            for word in ("left", "zoom in")
            for k in range(1, 6)
        )
    )
    touch(root / "dataset" / "background_noise" / "street.wav")
    return root


def test_arabic_commands_with_the_lists_of_the_repository(tmp_path):
    arabic_tree(tmp_path)
    for part, speakers in (("train", (1, 2, 3)), ("val", (4,)), ("test", (5, 6))):
        lines = [f"dataset/left/{s:08d}_NO_{k:02d}.wav,left" for s in speakers for k in range(1, 6)]
        (tmp_path / f"{part}.csv").write_text("file,class\n" + "\n".join(lines) + "\n")
    corpus = load_corpus("arabic-commands", tmp_path)
    assert len(corpus) == 6 * 2 * 5
    assert set(corpus.labels["speaker"][corpus.protocol.test]) == {"00000005", "00000006"}
    assert set(corpus.labels["phrase"]) == {"left", "zoom in"}
    assert apart(corpus)
    assert set(there(corpus.sessions)[corpus.enrolled]) == {"01", "02", "03"}
    (tmp_path / "val.csv").unlink()
    (tmp_path / "val.txt").write_text("00000004\n00000005\n")
    with pytest.raises(LabelError, match="lists val and test: 00000005"):
        load_corpus("arabic-commands", tmp_path)
    (tmp_path / "val.txt").write_text("nobody\n")
    with pytest.raises(FileFormatError, match="no line names a speaker"):
        load_corpus("arabic-commands", tmp_path)
    (tmp_path / "val.txt").unlink()
    with pytest.raises(LabelError, match="no list names the speaker"):
        load_corpus("arabic-commands", tmp_path)


def test_arabic_commands_without_lists_are_split_by_seed(tmp_path):
    arabic_tree(tmp_path)
    first, again = (load_corpus("arabic-commands", tmp_path, random_state=2) for _ in range(2))
    assert len(np.unique(first.labels["speaker"][first.protocol.train])) == 4
    assert apart(first)
    assert first.protocol.test.tolist() == again.protocol.test.tolist()
    with pytest.raises(DataError, match="classes to train on"):
        load_corpus("arabic-commands", arabic_tree(tmp_path / "one", speakers=[1]))


def listed(names) -> bool:
    """Whether a list can hold these names."""
    return check_ids(names) == [str(name) for name in names]


def test_ids_of_arabic_commands_can_be_listed_and_labels_keep_their_names(tmp_path):
    corpus = load_corpus("arabic-commands", arabic_tree(tmp_path))
    assert "zoom_in/00000001_NO_01" in corpus.ids
    assert listed(corpus.ids.tolist())
    assert listed(corpus.models.tolist())
    assert set(corpus.labels["phrase"]) == {"left", "zoom in"}
    row = corpus.ids.tolist().index("zoom_in/00000001_NO_01")
    assert there(corpus.clips)[row].path == tmp_path / "dataset" / "zoom in" / "00000001_NO_01.wav"


# RSR2015


RSR_SPEAKERS = ("m001", "m051", "m101", "m102", "f001", "f048", "f095", "f096")


def rsr_tree(root: Path, make=touch, speakers=RSR_SPEAKERS, phrases=(1, 2, 31)) -> Path:
    for name in speakers:
        gender = "male" if name[0] == "m" else "female"
        for k in range(1, 10):
            for p in phrases:
                make(root / "sph" / gender / name / f"{name}_{k:02d}_{p:03d}.sph")
    return root


RSR_JUDGED = (("m", ("m101", "m102")), ("f", ("f095", "f096")))


def rsr_keys(root: Path, subset: str = "eval", judged=RSR_JUDGED) -> None:
    for letter, speakers in judged:
        models = {
            f"{s}_{p:03d}": tuple(f"{s}/{s}_{k:02d}_{p:03d}" for k in (1, 4, 7))
            for s in speakers
            for p in (1, 2)
        }
        for folder in ("trn", "ndx"):
            (root / "key" / "part1" / folder).mkdir(parents=True, exist_ok=True)
        lines = [
            f"{model} {','.join(name + '.sph' for name in names)}\n"
            for model, names in models.items()
        ]
        (root / "key" / "part1" / "trn" / f"3sess-pwd_{subset}_{letter}.trn").write_text(
            "".join(lines)
        )
        one, other = speakers
        rows = [
            (f"{one}_001", f"{one}/{one}_02_001", "TC"),
            (f"{one}_001", f"{one}/{one}_02_002", "TW"),
            (f"{one}_001", f"{other}/{other}_02_001", "IC"),
            (f"{one}_002", f"{other}/{other}_02_001", "IW"),
            (f"{one}_002", f"{other}/{other}_03_001", "IW"),
        ]
        write_trials(
            root / "key" / "part1" / "ndx" / f"3sess-pwd_{subset}_{letter}.ndx",
            trials_of(*zip(*rows, strict=True)),
            "rsr2015",
        )


def test_rsr2015_by_session_and_gender(tmp_path):
    corpus = load_corpus("rsr2015", rsr_tree(tmp_path))
    assert len(corpus) == 8 * 9 * 2  # phrase 031 is of another part
    assert set(corpus.labels["speaker"][corpus.protocol.train]) == {"m001", "m051", "f001", "f048"}
    assert apart(corpus)
    assert set(there(corpus.sessions)[corpus.enrolled]) == {"01", "04", "07"}
    assert set(there(corpus.sessions)[corpus.protocol.test]) == {"02", "03", "05", "06", "08", "09"}
    # 2 speakers x 2 phrases of each gender, 6 tests a cell, no trial across genders
    assert corpus.trial_counts() == {"TC": 48, "TW": 48, "IC": 48, "IW": 48}
    mask = corpus.trial_mask()
    assert there(mask).sum() == 192
    men = load_corpus("rsr2015", tmp_path, gender="male")
    assert men.trial_counts() == {"TC": 24, "TW": 24, "IC": 24, "IW": 24}
    assert len(men.protocol.train) == len(corpus.protocol.train)
    assert "in 2 groups" in corpus.summary()
    assert load_corpus("rsr2015", tmp_path, phrases=1).trial_counts()["TW"] == 0


def test_rsr2015_with_its_keys(tmp_path, caplog):
    rsr_keys(rsr_tree(tmp_path))
    corpus = load_corpus("rsr2015", tmp_path)
    assert corpus.protocol.trials is not None
    assert (
        corpus.trial_counts()
        == {"TC": 2, "TW": 2, "IC": 2, "IW": 4}
        == corpus.protocol.trials.counts
    )
    assert len(corpus.protocol.enrol) == 8
    assert corpus.ids[corpus.protocol.enrol["m101_001"]].tolist() == [
        f"m101/m101_{k:02d}_001" for k in (1, 4, 7)
    ]
    assert load_corpus("rsr2015", tmp_path, gender="female").trial_counts()["IW"] == 2
    assert load_corpus("rsr2015", tmp_path, keys=False).trial_counts()["TC"] == 48
    assert load_corpus("rsr2015", tmp_path, phrases=1).trial_counts() == {
        "TC": 2,
        "TW": 0,
        "IC": 2,
        "IW": 0,
    }
    assert (
        load_corpus("rsr2015", tmp_path, keys=tmp_path / "key" / "part1").trial_counts()["TC"] == 2
    )
    (tmp_path / "sph" / "male" / "m101" / "m101_04_001.sph").unlink()
    with pytest.raises(DataError, match=r"1 utterance\(s\) that are not there: m101/m101_04_001"):
        load_corpus("rsr2015", tmp_path)
    left = load_corpus("rsr2015", tmp_path, on_error="skip")
    assert (
        "1 listed utterance(s) that are not there (m101/m101_04_001), 0 enrolment(s) and 0 trial(s)"
        in caplog.text
    )
    assert left.ids[left.protocol.enrol["m101_001"]].tolist() == [
        "m101/m101_01_001",
        "m101/m101_07_001",
    ]
    (tmp_path / "sph" / "male" / "m101" / "m101_02_002.sph").unlink()
    assert load_corpus("rsr2015", tmp_path, on_error="skip").trial_counts()["TW"] == 1
    assert "2 listed utterance(s) that are not there" in caplog.text
    (tmp_path / "key" / "part1" / "ndx" / "3sess-pwd_eval_f.ndx").unlink()
    with pytest.raises(
        DataError, match=r"1 of 4 lists are not there: .*3sess-pwd_eval_f\.ndx.*gender="
    ):
        load_corpus("rsr2015", tmp_path, on_error="skip")
    assert (
        load_corpus("rsr2015", tmp_path, gender="male", on_error="skip").trial_counts()["TC"] == 1
    )


def test_rsr2015_development_set(tmp_path):
    corpus = load_corpus(
        "rsr2015",
        rsr_tree(tmp_path, speakers=(*RSR_SPEAKERS, "m052", "f049")),
        subset="development",
    )
    assert set(corpus.labels["speaker"][corpus.protocol.train]) == {"m001", "f001"}
    assert set(corpus.labels["speaker"][corpus.protocol.test]) == {"m051", "m052", "f048", "f049"}
    rsr_keys(tmp_path, "dev", (("m", ("m051", "m052")), ("f", ("f048", "f049"))))
    listed = load_corpus("rsr2015", tmp_path, subset="development")
    assert listed.trial_counts() == {"TC": 2, "TW": 2, "IC": 2, "IW": 4}
    assert (
        load_corpus("rsr2015", tmp_path).protocol.trials is None
    )  # those lists are of the other set
    with pytest.raises(ParameterError, match="'evaluation' or 'development'"):
        load_corpus("rsr2015", tmp_path, subset="eval")


@pytest.mark.parametrize("inner", ["sph", "wav", "RSR2015/sph", "RSR2015"])
def test_rsr2015_is_found_where_it_lies(tmp_path, inner):
    rsr_tree(tmp_path / "made")
    place = tmp_path / "given" / inner
    place.parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / "made" / "sph").rename(place)
    assert load_corpus("rsr2015", tmp_path / "given").trial_counts()["TC"] == 48


def test_rsr2015_converted_files_stand_for_the_originals(tmp_path, caplog):
    rsr_tree(tmp_path)
    for file in list((tmp_path / "sph" / "male").rglob("*.sph")):
        touch(file.with_suffix(".wav"))
    corpus = load_corpus("rsr2015", tmp_path)
    assert len(corpus) == 8 * 9 * 2
    assert {clip.path.suffix for clip in there(corpus.clips) if "male/m" in str(clip.path)} == {
        ".wav"
    }
    assert "108 utterance(s) lie there in several formats" in caplog.text


def test_rsr2015_files_are_read_as_sphere(tmp_path):
    soundfile = pytest.importorskip("soundfile")
    corpus = load_corpus("rsr2015", rsr_tree(tmp_path, sound, phrases=(1,)))
    samples, rate = soundfile.read(str(there(corpus.clips)[0].path))
    assert (len(samples), rate) == (160, 16000)


def test_rsr2015_faults(tmp_path, caplog):
    with pytest.raises(DataError, match=r"RSR2015 is not there.*I2R"):
        load_corpus("rsr2015", tmp_path / "nowhere")
    rsr_tree(tmp_path)
    touch(tmp_path / "sph" / "male" / "m101" / "m102_01_001.sph")
    (tmp_path / "sph" / "male" / "m102" / "m102_07_001.sph").unlink()
    load_corpus("rsr2015", tmp_path)
    assert "male/m101/m102_01_001.sph" in caplog.text
    assert "1 enrolment(s) lack a session of 1, 4 and 7: m102_001" in caplog.text
    with pytest.raises(DataError, match=r"4 of 4 lists are not there: .*3sess-pwd_eval_m\.trn"):
        load_corpus("rsr2015", tmp_path, keys=True)
    with pytest.raises(ParameterError, match="gender"):
        load_corpus("rsr2015", tmp_path, gender="m")
    with pytest.raises(LabelError, match="m999"):
        load_corpus("rsr2015", tmp_path, training=["m999"])
    with pytest.raises(DataError, match="name the speakers to train on"):
        load_corpus("rsr2015", rsr_tree(tmp_path / "part", speakers=("m101", "m102")))
    with pytest.raises(LabelError, match="called by a number"):
        load_corpus("rsr2015", rsr_tree(tmp_path / "odd", speakers=("m101", "mann")))


# A folder, or a table, of one's own


def own_tree(root: Path, name="{s}/{p}/take{k}.wav", speakers=3, phrases=2, sessions=5) -> Path:
    touch(
        *(
            root / name.format(s=f"spk{s}", p=f"p{p}", k=k)
            for s in range(speakers)
            for p in range(phrases)
            for k in range(sessions)
        )
    )
    return root


@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        ("{s}/{p}/take{k}.wav", None),
        ("{s}_{p}_{k}.wav", "{speaker}_{phrase}_{session}.wav"),
        ("{s}/{p}_{k}.flac", "{speaker}/{phrase}_{session}.flac"),
        ("{p}/{s}/x{k}.ogg", "{phrase}/{speaker}/x{session}"),
    ],
)
def test_folder_patterns(tmp_path, name, pattern):
    corpus = load_corpus(
        "folder", own_tree(tmp_path, name), pattern=pattern, views=("speaker", "phrase")
    )
    assert len(corpus) == 30
    assert corpus.views == ("speaker", "phrase")
    assert set(corpus.labels["speaker"]) == {"spk0", "spk1", "spk2"}
    assert apart(corpus)
    assert (len(corpus.protocol.enrol), len(corpus.protocol.test)) == (2, 4)
    assert (corpus.sessions is None) == (pattern is None)
    assert all(clip.path.is_file() for clip in there(corpus.clips))


@pytest.mark.parametrize("phrase", ["two words", "a\ttab", "two\nlines", os.fsdecode(b"caf\xe9")])
def test_names_that_no_list_can_hold_make_ids_that_it_can(tmp_path, phrase):
    touch(*(tmp_path / s / phrase / f"{k} .wav" for s in ("ann", "bob b", "cat") for k in range(5)))
    corpus = load_corpus("folder", tmp_path)
    assert listed(corpus.ids.tolist())
    assert listed(corpus.models.tolist())
    assert set(corpus.labels["phrase"]) == {phrase}
    assert set(corpus.labels["speaker"]) == {"ann", "bob b", "cat"}
    assert all(clip.path.is_file() for clip in there(corpus.clips))


def test_two_names_of_one_id_are_both_named(tmp_path):
    touch(*(tmp_path / s / "hi" / f"{k}.wav" for s in ("ann b", "ann_b", "cat") for k in range(5)))
    with pytest.raises(
        LabelError, match=r"'ann b/hi/0' and 'ann_b/hi/0' would both be called 'ann_b/hi/0'"
    ):
        load_corpus("folder", tmp_path)
    lines = [f"{s}/hi/{k}.wav,u{s[3]}{k},{s},hi" for s in ("ann b", "ann_b") for k in range(5)]
    rest = [f"cat/hi/{k}.wav,c{k},cat,hi" for k in range(5)]
    (tmp_path / "index.csv").write_text("\n".join(["path,id,speaker,phrase", *lines, *rest]) + "\n")
    with pytest.raises(
        LabelError, match=r"'u 0' and 'u_0' would both be called"
    ):  # ids of their own
        load_corpus("folder", tmp_path)
    (tmp_path / "index.csv").write_text((tmp_path / "index.csv").read_text().replace(",u ", ",v"))
    with pytest.raises(
        LabelError, match="'ann b-hi' and 'ann_b-hi' would both be called 'ann_b-hi'"
    ):  # enrolments
        load_corpus("folder", tmp_path, training=["cat"])


def test_ids_of_vectors_are_what_they_are():
    ids = [f"{s} {k}" for s in "abc" for k in range(5)]
    corpus = corpus_of_vectors(ids, {"speaker": [name[0] for name in ids], "phrase": ["hi"] * 15})
    assert corpus.ids.tolist() == ids


def test_folder_of_three_views(tmp_path):
    files = (
        tmp_path / f"{s}-{p}-{r}-{k}.wav"
        for s in "abc"
        for p in "xy"
        for r in ("hall", "car")
        for k in range(3)
    )
    touch(*files)
    corpus = load_corpus(
        "folder",
        tmp_path,
        pattern="{speaker}-{phrase}-{room}-{session}",
        per_model=2,
        training=["a"],
    )
    assert corpus.views == ("speaker", "phrase", "room")
    assert corpus.trial_counts()["speaker+phrase+room"] == 8
    assert sum(corpus.trial_counts().values()) == 8 * 8


def test_folder_faults(tmp_path, caplog):
    own_tree(tmp_path)
    touch(
        tmp_path / "spk0" / "loose.wav",
        tmp_path / "spk0" / "p0" / "notes.txt",
        tmp_path / ".cache" / "a" / "x.wav",
    )
    with pytest.raises(DataError, match=r"1 of 31 names .*spk0/loose\.wav.*on_error=skip"):
        load_corpus("folder", tmp_path)
    assert len(load_corpus("folder", tmp_path, on_error="skip")) == 30
    assert "spk0/loose.wav" in caplog.text
    with pytest.raises(ParameterError, match="'raise' or 'skip'"):
        load_corpus("folder", tmp_path, on_error="ignore")
    with pytest.raises(ParameterError, match="no field word"):
        load_corpus("folder", tmp_path, views=("speaker", "word"), on_error="skip")
    with pytest.raises(ParameterError, match="names fields"):
        load_corpus("folder", tmp_path, pattern="*/*.wav")
    with pytest.raises(LabelError, match="nobody"):
        load_corpus("folder", tmp_path, training=["nobody"], on_error="skip")
    with pytest.raises(DataError, match="no folder or table"):
        load_corpus("folder", tmp_path / "nowhere")
    touch(tmp_path / "spk1" / "p1" / "take0.flac")
    with pytest.raises(DataError, match="have the id of another, the first is 'spk1/p1/take0'"):
        load_corpus("folder", tmp_path, on_error="skip")


def test_folder_of_one_speaker_or_too_few_sessions(tmp_path):
    with pytest.raises(DataError, match="leaves none on one side"):
        load_corpus("folder", own_tree(tmp_path / "one", speakers=1))
    with pytest.raises(DataError, match="Lower per_model"):
        load_corpus("folder", own_tree(tmp_path / "few", sessions=3))
    assert len(load_corpus("folder", tmp_path / "few", per_model=2).protocol.test) == 2


def write_csv(path: Path, rows: Sequence[Mapping[str, object]], delimiter=",") -> Path:
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0], delimiter=delimiter)
        writer.writeheader()
        writer.writerows(rows)
    return path


def table_rows(root: Path) -> list[dict[str, object]]:
    own_tree(root, "{s}_{p}_{k}.wav")
    return [
        {"path": f"spk{s}_p{p}_{k}.wav", "speaker": f"spk{s}", "phrase": f"p{p}", "session": k}
        for s in range(3)
        for p in range(2)
        for k in range(5)
    ]


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet"])
def test_tables(tmp_path, suffix):
    rows = table_rows(tmp_path)
    path = tmp_path / f"list{suffix}"
    if suffix == ".parquet":
        arrow = pytest.importorskip("pyarrow")
        import pyarrow.parquet

        pyarrow.parquet.write_table(arrow.Table.from_pylist(rows), path)
    else:
        write_csv(path, rows, "," if suffix == ".csv" else "\t")
    corpus = load_corpus("folder", path)
    plain = load_corpus("folder", tmp_path, pattern="{speaker}_{phrase}_{session}")
    assert corpus.ids.tolist() == plain.ids.tolist()
    assert corpus.protocol.test.tolist() == plain.protocol.test.tolist()
    assert corpus.name == "list"


def test_table_with_splits_stretches_and_another_base(tmp_path):
    sounds = tmp_path / "sounds"
    touch(sounds / "a.wav", sounds / "b.wav")
    rows = [
        {
            "file": f"{s}.wav",
            "speaker": s,
            "phrase": p,
            "split": "train" if s == "a" else ("enrol" if k < 2 else "test"),
            "start": 100 * (3 * "xy".index(p) + k),
            "length": "" if k == 2 else 100,
            "channel": 1,
        }
        for s in "ab"
        for p in "xy"
        for k in range(3)
    ]
    corpus = table(write_csv(tmp_path / "list.csv", rows), base=sounds)
    assert corpus.views == ("speaker", "phrase")
    assert corpus.ids[1] == "a@100"
    assert there(corpus.clips)[1].start == 100
    assert there(corpus.clips)[2].length is None
    assert there(corpus.clips)[1].length == 100
    assert there(corpus.clips)[1].channel == 1
    assert {name: len(members) for name, members in corpus.protocol.enrol.items()} == {
        "b_x": 2,
        "b_y": 2,
    }
    assert len(corpus.protocol.test) == 2
    (sounds / "index.csv").write_text((tmp_path / "list.csv").read_text())
    assert load_corpus("folder", sounds).ids.tolist() == corpus.ids.tolist()


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (lambda row: row.pop("path"), FileFormatError, "expected a column called path"),
        (
            lambda row: row.update(path="gone.wav"),
            DataError,
            r"1 of 1 files are not there: .*gone\.wav",
        ),
        (lambda row: row.update(speaker=""), FileFormatError, "'speaker' are blank"),
        (lambda row: row.update(start="x"), LabelError, "row 1: 'x' is the start"),
        (
            lambda row: row.update(id="same"),
            DataError,
            "have the id of another, the first is 'same'",
        ),
        (lambda row: row.update(split="dev"), LabelError, "got dev"),
        (lambda row: (row.pop("speaker"), row.pop("phrase")), FileFormatError, "a column a view"),
    ],
)
def test_table_faults(tmp_path, change, error, words):
    rows = table_rows(tmp_path)
    for row in rows:
        change(row)
    with pytest.raises(error, match=words):
        load_corpus("folder", write_csv(tmp_path / "list.csv", rows))


def test_table_without_a_view_that_is_asked_for(tmp_path):
    path = write_csv(tmp_path / "list.csv", table_rows(tmp_path))
    with pytest.raises(FileFormatError, match="a column a view: word"):
        load_corpus("folder", path, views=("speaker", "word"))
    path.rename(tmp_path / "list.xml")
    with pytest.raises(DataError, match=r"\.csv, \.tsv"):
        load_corpus("folder", tmp_path / "list.xml")


@pytest.mark.slow
def test_a_corpus_of_the_shape_of_huiting202_is_listed_in_seconds(tmp_path):
    names = [(s, p, k) for s in range(202) for p in range(20) for k in range(20)]
    for s in range(202):
        (tmp_path / f"{s:03d}").mkdir()
    for s, p, k in names:
        (tmp_path / f"{s:03d}" / f"{p:02d}_{k}.wav").touch()
    started = time.process_time()
    corpus = load_corpus(
        "folder", tmp_path, pattern="{speaker}/{phrase}_{session}.wav", training=132
    )
    corpus.summary()
    assert time.process_time() - started < 4
    assert len(corpus) == 80800
    assert (len(corpus.protocol.enrol), len(corpus.protocol.test)) == (1400, 23800)
    assert corpus.trial_counts()["TC"] == 23800


def test_registry_says_what_there_is(tmp_path):
    with pytest.raises(ParameterError, match="no data set 'timit'; there are folder, "):
        load_corpus("timit", tmp_path)
    with pytest.raises(ParameterError, match="no option colour; it has sessions"):
        load_corpus("audiomnist", tmp_path, colour="red")
    for name in ("audiomnist", "free-spoken-digits", "arabic-commands", "rsr2015", "folder"):
        with pytest.raises(MvpldaError, match="nowhere"):
            load_corpus(name, tmp_path / "nowhere")
