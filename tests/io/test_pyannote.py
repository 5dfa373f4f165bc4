"""PLDA models of pyannote.audio's VBx, written, read back, and computed as its own code does."""

from __future__ import annotations

import numpy as np
import pytest
from click.testing import CliRunner
from scipy.linalg import eigh

from mvplda import PLDA, Bundle, load
from mvplda.cli import main
from mvplda.exceptions import FileFormatError, ParameterError
from mvplda.io.plda_files import PYANNOTE, pyannote_chain, read_pyannote, write_pyannote
from mvplda.preprocessing import standard_chain
from mvplda.training import train

RNG = np.random.default_rng(0)
SPEAKERS = np.repeat(np.arange(80), 6)
X = 2 * RNG.normal(size=(80, 16))[SPEAKERS] + RNG.normal(size=(480, 16)) + 1.0


def vbx_setup(transform, plda):
    """As in pyannote.audio 4.0, pyannote/audio/utils/vbx.py."""
    mean1, mean2, lda = (transform[key] for key in ("mean1", "mean2", "lda"))
    mu, tr, psi = (plda[key] for key in ("mu", "tr", "psi"))

    def unit(x):
        return x / np.linalg.norm(x, axis=1, keepdims=True)

    within = np.linalg.inv(tr.T.dot(tr))
    between = np.linalg.inv((tr.T / psi).dot(tr))
    values, vectors = eigh(between, within)

    def prepare(x):
        inner = lda.T.dot(np.sqrt(lda.shape[0]) * unit(x - mean1).T).T - mean2
        return np.sqrt(lda.shape[1]) * unit(inner)

    return (lambda x: (prepare(x) - mu).dot(vectors.T[::-1].T)), values[::-1]


def test_its_own_formula_gives_our_scores_and_the_files_come_back(tmp_path):
    bundle = Bundle(pyannote_chain(10), PLDA(6)).fit(X, SPEAKERS)
    write_pyannote(tmp_path, bundle)
    files = [np.load(tmp_path / name) for name in ("xvec_transform.npz", "plda.npz")]
    features, phi = vbx_setup(*files)
    u = features(X[:40])
    # within variance 1, between phi: the ratio of two vectors, coordinate by coordinate
    e, t = u[:20, None], u[None, 20:]
    total, spread = phi + 1, phi + 1 - phi**2 / (phi + 1)
    gain = phi / (phi + 1)
    logs = np.log(total / spread) - (t - gain * e) ** 2 / spread + t**2 / total
    expected = 0.5 * logs.sum(axis=2)
    llrs = bundle.llr(X[:20], X[20:40], dtype=np.float64)
    np.testing.assert_allclose(llrs, expected, atol=1e-3)
    again = read_pyannote(tmp_path)
    np.testing.assert_allclose(again.llr(X[:20], X[20:40], dtype=np.float64), expected, atol=1e-6)


def test_a_plda_trained_on_the_command_line_is_one_of_pyannote(tmp_path):
    np.savez(tmp_path / "x.npz", X=X, speaker=SPEAKERS)
    model, folder = str(tmp_path / "vbx.safetensors"), str(tmp_path / "plda")
    options = ("--model", "plda", "-v", "speaker=6", "--chain", "pyannote", "--reduce", "10")
    for command in (
        ("train", str(tmp_path / "x.npz"), *options, "--quiet", "-o", model),
        ("convert", model, folder, "--as", "pyannote"),
    ):
        result = CliRunner().invoke(main, command)
        assert result.exit_code == 0, result.output
    plda = PLDA(6, random_state=0)
    expected = Bundle(pyannote_chain(10), plda).fit(X, {"speaker": SPEAKERS})
    found = read_pyannote(folder)
    np.testing.assert_allclose(found.llr(X[:9], X[9:19]), expected.llr(X[:9], X[9:19]), atol=1e-4)


@pytest.mark.parametrize(
    ("model", "chain", "message"),
    [
        ("committee", "pyannote", "chain does not apply to model 'committee'"),
        ("cosine", "standard", "chain does not apply to model 'cosine'"),
        ("plda", "kaldi", "chain must be one of .*; got 'kaldi'"),
    ],
)
def test_a_chain_that_does_not_exist_or_apply_is_refused(model, chain, message):
    with pytest.raises(ParameterError, match=message):
        train(X, {"speaker": SPEAKERS}, model=model, chain=chain, folds=0)


def test_the_command_writes_and_reads_them(tmp_path):
    bundle = Bundle(pyannote_chain(10), PLDA(6)).fit(X, SPEAKERS)
    model, folder, back = (
        str(tmp_path / name) for name in ("m.safetensors", "vbx", "b.safetensors")
    )
    bundle.save(model)
    for words in ((model, folder), (folder, back)):
        done = CliRunner().invoke(main, ["convert", *words, "--as", "pyannote"])
        assert done.exit_code == 0, done.output
    llrs = load(back).llr(X[:5], X[5:9])
    np.testing.assert_allclose(llrs, bundle.llr(X[:5], X[5:9]), atol=1e-3)


def test_another_chain_and_other_files_are_refused(tmp_path):
    with pytest.raises(ParameterError, match="pyannote_chain"):
        write_pyannote(tmp_path, Bundle(standard_chain(10), PLDA(6)).fit(X, SPEAKERS))
    with pytest.raises((FileFormatError, FileNotFoundError)):
        read_pyannote(tmp_path)


def test_both_files_are_written_or_none(tmp_path):
    """Where the second file cannot be written, the first is as it was, and nothing is left beside them."""
    write_pyannote(tmp_path, Bundle(pyannote_chain(10), PLDA(6)).fit(X, SPEAKERS))
    first, second = (tmp_path / name for name in PYANNOTE)
    before = first.read_bytes()
    second.unlink()
    second.mkdir()
    with pytest.raises(IsADirectoryError):
        write_pyannote(tmp_path, Bundle(pyannote_chain(8), PLDA(4)).fit(X, SPEAKERS))
    assert first.read_bytes() == before
    assert sorted(tmp_path.iterdir()) == sorted([first, second])
