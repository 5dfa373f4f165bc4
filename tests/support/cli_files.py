"""Small files for tests of the command line, and commands run in this process."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
from click.testing import CliRunner

from mvplda.cli import main


def said_by(*arguments, code):
    """What a command says on standard output and on standard error; it ends with this exit code, and no traceback."""
    done = CliRunner().invoke(main, [str(a) for a in arguments])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert done.exit_code == code, done.output
    return SimpleNamespace(out=done.stdout, err=done.stderr)


def fails(*arguments, code=1):
    """The one line of an error in the data, or the last line of a wrong call."""
    err = said_by(*arguments, code=code).err
    assert code == 2 or err.count("\n") == 1, err
    return err.strip().split("\n")[-1]


def write_map(path, names, values):
    path.write_text("".join(f"{name} {value}\n" for name, value in zip(names, values, strict=True)))


def vector_files(root):
    """x.npz of 12 speakers and 5 phrases, utt2spk, utt2phrase, trials with their key, model.safetensors and scores."""
    rng = np.random.default_rng(0)
    s, p = rng.integers(12, size=200), rng.integers(5, size=200)
    X = (
        rng.normal(size=(12, 6))[s]
        + 0.7 * rng.normal(size=(5, 6))[p]
        + 0.5 * rng.normal(size=(200, 6))
    )
    ids = np.array([f"u{i}" for i in range(200)])
    np.savez(root / "x.npz", X=X, ids=ids)
    write_map(root / "utt2spk", ids, [f"s{k}" for k in s])
    write_map(root / "utt2phrase", ids, [f"p{k}" for k in p])
    kinds = [
        ("T" if s[i] == s[j] else "I") + ("C" if p[i] == p[j] else "W")
        for i in range(40)
        for j in range(100, 140)
    ]
    pairs = [f"u{i} u{j}" for i in range(40) for j in range(100, 140)]
    write_map(root / "trials", pairs, kinds)
    said_by(*training(root), "-q", "-o", root / "model.safetensors", code=0)
    said_by(*scoring(root), "-o", root / "scores", code=0)
    return root


def training(root, vectors="x.npz"):
    labels = ["-l", f"speaker={root / 'utt2spk'}", "-l", f"phrase={root / 'utt2phrase'}"]
    return ["train", root / vectors, *labels, "-v", "speaker=3", "-v", "phrase=2"]


def scoring(root, model="model.safetensors"):
    return ["score", root / model, "--test", root / "x.npz", "--trials", root / "trials"]
