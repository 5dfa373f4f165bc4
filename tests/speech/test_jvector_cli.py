"""From sound files to vectors through the command line."""

from __future__ import annotations

import numpy as np
import pytest
from click.testing import CliRunner

torch = pytest.importorskip("torch", reason="torch is not installed")
soundfile = pytest.importorskip("soundfile", reason="soundfile is not installed")
pytest.importorskip("kaldi_native_fbank", reason="kaldi_native_fbank is not installed")

from mvplda.cli import main  # noqa: E402
from mvplda.io import read_vectors  # noqa: E402
from mvplda.speech.networks import Extractor, ModernNetwork  # noqa: E402

SMALL = """
[network]
channels = 16
dilations = [1, 2]
pooled = 16
attention = 8
embedding = 12

[training]
batch = 8
"""


def mvplda(*arguments):
    """Run a command; what it said on standard error."""
    done = CliRunner().invoke(main, [str(a) for a in arguments])
    assert done.exit_code == 0, done.output
    return done.output


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Voices of 6 pitches humming 3 tunes, 4 times each: a folder, wav.scp, utt2spk and utt2phrase."""
    root = tmp_path_factory.mktemp("hum")
    rng = np.random.default_rng(0)
    time = np.arange(int(0.4 * 16000)) / 16000
    lists: dict[str, list[str]] = {"wav.scp": [], "utt2spk": [], "utt2phrase": []}
    for s in range(6):
        for p, tune in enumerate(([1, 1.3], [1.5, 1], [1, 1.8])):
            for session in range(4):
                name = f"spk{s}/tune{p}_{session}"
                path = root / "sound" / f"{name}.wav"
                path.parent.mkdir(parents=True, exist_ok=True)
                pitch = np.interp(time, [0, 0.4], tune) * (110 + 25 * s) * (1 + 0.01 * rng.normal())
                phase = 2 * np.pi * np.cumsum(pitch) / 16000
                wave = sum(np.sin(k * phase) / k ** (0.5 + 0.2 * s) for k in range(1, 20))
                wave = 0.05 * wave + 0.003 * rng.normal(size=len(time))
                soundfile.write(path, wave.astype(np.float32), 16000)
                for key, value in (
                    ("wav.scp", path),
                    ("utt2spk", f"spk{s}"),
                    ("utt2phrase", f"tune{p}"),
                ):
                    lists[key].append(f"{name} {value}")
    for key, lines in lists.items():
        (root / key).write_text("\n".join(lines) + "\n")
    (root / "small.toml").write_text(SMALL)
    return root


@pytest.fixture(scope="module")
def extractor(corpus):
    path = corpus / "extractor.safetensors"
    said = mvplda(
        "jvector", "train", corpus / "wav.scp", "-l", f"speaker={corpus / 'utt2spk'}", "-l",
        f"phrase={corpus / 'utt2phrase'}", "--config", corpus / "small.toml", "--epochs", 8, "--hold-out", 0.34,
        "--learning-rate", 0.005, "--seed", 2, "--checkpoint", corpus / "run.checkpoint", "-o", path,
    )  # fmt: skip
    assert "epoch 8/8" in said
    assert "held-out speaker EER" in said
    return path


def test_train_keeps_settings_and_classes(extractor):
    loaded = Extractor.load(extractor)
    assert {view: len(names) for view, names in loaded.classes.items()} == {
        "speaker": 4,
        "phrase": 3,
    }
    assert isinstance(loaded.network, ModernNetwork)
    assert loaded.network.channels == 16
    assert loaded.feature_settings["cepstra"] == 13
    assert len(loaded.history) == 8
    assert loaded.history[-1]["loss"] < 0.7 * loaded.history[0]["loss"]


@pytest.mark.parametrize("name", ["vectors.scp", "vectors.npz", "vectors.parquet"])
def test_extract_writes_vectors_with_the_extractors_name(corpus, extractor, tmp_path, name):
    mvplda("jvector", "extract", extractor, corpus / "wav.scp", "-o", tmp_path / name)
    vectors = read_vectors(tmp_path / name)
    assert len(vectors) == 72
    assert vectors.ids[0] == "spk0/tune0_0"
    assert vectors.extractor == Extractor.load(extractor).name
    # tunes are told apart by the vectors of speakers, seen and not
    codes = np.array([name.split("/")[1][:5] for name in vectors.ids])
    X = vectors.X - vectors.X.mean(0)
    X = X / np.linalg.norm(X, axis=1, keepdims=True)
    cosines = X @ X.T - 2 * np.eye(72)
    assert (codes[cosines.argmax(1)] == codes).mean() > 0.7


def test_folder_gives_the_same_vectors_and_damaged_files_are_named(corpus, extractor, tmp_path):
    mvplda("jvector", "extract", extractor, corpus / "wav.scp", "-o", tmp_path / "a.npz", "-q")
    broken = corpus / "sound" / "spk0" / "broken.wav"
    broken.write_bytes(b"RIFF no sound")
    try:
        said = mvplda(
            "jvector",
            "extract",
            extractor,
            corpus / "sound",
            "-o",
            tmp_path / "b.npz",
            "--on-error",
            "skip",
            "-q",
        )
        done = CliRunner().invoke(
            main,
            [
                "jvector",
                "extract",
                str(extractor),
                str(corpus / "sound"),
                "-o",
                str(tmp_path / "c.npz"),
            ],
        )
    finally:
        broken.unlink()
    assert "skipped spk0/broken" in said
    assert done.exit_code == 1
    assert "broken" in done.output
    assert not (tmp_path / "c.npz").exists()
    a, b = read_vectors(tmp_path / "a.npz"), read_vectors(tmp_path / "b.npz")
    np.testing.assert_allclose(b.select(a.ids).X, a.X, atol=1e-5)


def test_train_the_papers_network_from_names_and_from_frames(corpus, tmp_path):
    from mvplda.io.files import read_map
    from mvplda.speech.features import extract_features

    config = tmp_path / "paper.json"
    config.write_text(
        '{"network": {"hidden": 16, "layers": 2, "pretraining": {"gaussian_epochs": 1, "epochs": 1}},'
        ' "training": {"batch": 64}}'
    )
    common = ["--network", "paper", "--rbm", "--config", config, "--epochs", 1, "-q"]
    pattern = ["--pattern", "{speaker}/{phrase}_{session}.wav"]
    mvplda(
        "jvector", "train", corpus / "sound", *pattern, *common, "-o", tmp_path / "a.safetensors"
    )
    clips = read_map(corpus / "wav.scp")
    extract_features(list(clips), list(clips.values())).features.save(
        tmp_path / "frames.safetensors"
    )
    labels = ["-l", f"speaker={corpus / 'utt2spk'}", "-l", f"phrase={corpus / 'utt2phrase'}"]
    mvplda(
        "jvector",
        "train",
        tmp_path / "frames.safetensors",
        *labels,
        *common,
        "-o",
        tmp_path / "b.safetensors",
    )
    a, b = (Extractor.load(tmp_path / f"{name}.safetensors") for name in "ab")
    assert a.fingerprint != ""
    assert a.classes == b.classes
    for name, value in a.body.state_dict().items():
        torch.testing.assert_close(b.body.state_dict()[name], value)


def test_wrong_calls_end_in_one_line(corpus, extractor, tmp_path):
    def fails(*arguments):
        done = CliRunner().invoke(main, [str(a) for a in arguments])
        assert done.exit_code in (1, 2)
        assert "Traceback" not in done.output
        return done.output

    out = tmp_path / "x.safetensors"
    assert "-l VIEW=FILE" in fails("jvector", "train", corpus / "wav.scp", "-o", out, "-q")
    assert "--network paper" in fails("jvector", "train", corpus / "wav.scp", "--rbm", "-o", out)
    (tmp_path / "odd.toml").write_text("[network]\nwidth = 3\n")
    assert "no setting 'width'" in fails(
        "jvector", "train", corpus / "wav.scp", "--config", tmp_path / "odd.toml", "-o", out
    )
    (tmp_path / "odd.toml").write_text("network = 3")
    assert "network is a section" in fails(
        "jvector", "train", corpus / "wav.scp", "--config", tmp_path / "odd.toml", "-o", out
    )
    assert "truncated" in fails(
        "jvector", "extract", corpus / "wav.scp", corpus / "wav.scp", "-o", tmp_path / "x.npz"
    )
    assert "add --hold-out" in fails(
        "jvector", "train", corpus / "wav.scp", "--patience", 3, "-o", out
    )
    (tmp_path / "kind.toml").write_text('[network]\nkind = "paper"\n')
    assert "--network paper" in fails(  # the option wins over the file
        "jvector", "train", corpus / "wav.scp", "--rbm", "--network", "modern", "--config", tmp_path / "kind.toml",
        "-o", out,
    )  # fmt: skip
    assert "no sound files" in fails(
        "jvector", "extract", extractor, tmp_path, "-o", tmp_path / "x.npz"
    )
    assert not out.exists()


def test_a_sound_file_or_several_are_a_source(corpus, extractor, tmp_path):
    files = [corpus / "sound" / "spk0" / "tune0_0.wav", corpus / "sound" / "spk1" / "tune1_1.wav"]
    mvplda("jvector", "extract", extractor, corpus / "sound", "-q", "-o", tmp_path / "all.npz")
    everything = read_vectors(tmp_path / "all.npz")
    mvplda("jvector", "extract", extractor, *files, "-q", "-o", tmp_path / "two.npz")
    two = read_vectors(tmp_path / "two.npz")
    assert two.ids.tolist() == ["tune0_0", "tune1_1"]
    np.testing.assert_allclose(
        two.X, everything.select(["spk0/tune0_0", "spk1/tune1_1"]).X, atol=1e-5
    )
    mvplda("jvector", "extract", extractor, files[0], "-q", "-o", tmp_path / "one.npz")
    np.testing.assert_allclose(read_vectors(tmp_path / "one.npz").X, two.X[:1], atol=1e-5)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("noise.bin", "Expected a list of ids and sound files (wav.scp), a folder, a sound file"),
        ("gone.wav", "there is no sound file"),
        ("gone", "there is no file"),
        ("spk0/tune0_0.wav spk1/tune0_0.wav", "the first is 'tune0_0'"),
    ],
)
def test_a_source_that_is_none_says_what_was_expected(corpus, extractor, tmp_path, name, words):
    (corpus / "sound" / "noise.bin").write_bytes(bytes(range(256)))
    sources = [str(corpus / "sound" / part) for part in name.split()]
    done = CliRunner().invoke(
        main, ["jvector", "extract", str(extractor), *sources, "-o", str(tmp_path / "x.npz")]
    )
    assert (done.exit_code, done.stderr.count("\n")) == (1, 1), done.output
    assert words in done.stderr


def test_labels_are_looked_at_before_sound_is_read(corpus, tmp_path, monkeypatch):
    def forbidden(*_, **__):
        raise AssertionError("frames were made of utterances without labels")

    monkeypatch.setattr("mvplda.speech.features.extract_features", forbidden)
    out = ["-o", str(tmp_path / "net.safetensors")]
    for labels in (
        [],
        ["-l", f"speaker={tmp_path / 'nofile'}"],
        ["-l", f"speaker={corpus / 'other'}"],
    ):
        (corpus / "other").write_text("nobody spk0\n")
        done = CliRunner().invoke(
            main, ["jvector", "train", str(corpus / "wav.scp"), *labels, *out]
        )
        assert isinstance(done.exception, SystemExit), done.exception


@pytest.mark.slow
def test_export_writes_a_checked_graph(extractor, tmp_path):
    pytest.importorskip("onnxscript", reason="onnxscript is not installed")
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    assert "differ by" in mvplda("jvector", "export", extractor, "-o", tmp_path / "x.onnx")
    assert (tmp_path / "x.onnx").stat().st_size > 1000
