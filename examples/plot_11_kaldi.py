"""
From Kaldi files to a report
============================

Three commands make a page with tables and plots from ``xvector.scp``, ``utt2spk`` and a
list of trials. This script writes such files for simulated vectors and runs the
commands; for your own files, only the commands are needed.
"""

import contextlib
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from click.testing import CliRunner
from mvplda import make_two_views
from mvplda.cli import main
from mvplda.io import (
    Trials,
    VectorSet,
    read_scores,
    write_map,
    write_trials,
    write_vectors,
)
from mvplda.metrics import trial_kinds
from mvplda.plotting import DetDisplay

folder = Path(tempfile.mkdtemp())
X, labels, unseen = make_two_views(80, 6, 5, 100, (10, 5), held_out=30, random_state=1)
ids = np.array([f"utt{i:05}" for i in range(len(X))])
write_vectors(folder / "xvector.scp", VectorSet(ids, X))
write_map(
    folder / "utt2spk",
    dict(zip(ids, [f"s{i}" for i in labels["speaker"]], strict=True)),
)
write_map(
    folder / "utt2phrase",
    dict(zip(ids, [f"p{i}" for i in labels["phrase"]], strict=True)),
)

# evaluation data: models of three utterances each, tests, trials, and speakers
enrol = np.array([f"enrol{i:05}" for i in range(len(unseen.enrol))])
tests = np.array([f"test{i:05}" for i in range(len(unseen.test))])
write_vectors(folder / "enrol.scp", VectorSet(enrol, unseen.enrol))
write_vectors(folder / "test.scp", VectorSet(tests, unseen.test))
models = [f"m{i}" for i in unseen.ids[::3]]
members = map(" ".join, enrol.reshape(-1, 3).tolist())
write_map(folder / "spk2utt", dict(zip(models, members, strict=True)))
claimed = {view: column[::3] for view, column in unseen.enrol_labels.items()}
masks = trial_kinds(claimed, unseen.test_labels)
rows, columns = (a.ravel() for a in np.indices(masks["TC"].shape))
kinds = np.select([mask.ravel() for mask in masks.values()], list(masks), "")
write_trials(folder / "trials", Trials(np.array(models)[rows], tests[columns], kinds))
write_map(
    folder / "model2spk",
    dict(zip(models, [f"s{i}" for i in claimed["speaker"]], strict=True)),
)
write_map(
    folder / "test2spk",
    dict(zip(tests, [f"s{i}" for i in unseen.test_labels["speaker"]], strict=True)),
)
print("\n".join(sorted(path.name for path in folder.iterdir())))


# %%
# The three commands, as one would type them in this folder.


def run(line):
    """Run a command in the folder, and print the command and the start of its output."""
    with contextlib.chdir(folder):
        result = CliRunner().invoke(main, line.split())
    assert result.exit_code == 0, result.output
    print("$ mvplda", line)
    print("\n".join(line[:86] for line in result.output.splitlines()[:5]))


run("train xvector.scp --model multiview -o model.safetensors")
run(
    "score model.safetensors --enrol enrol.scp --models spk2utt --test test.scp "
    "--trials trials -o scores"
)
run(
    "evaluate scores --trials trials --enrol-speakers model2spk "
    "--test-speakers test2spk --report report.html"
)

# %%
# The page is ``report.html``. This draws one of its plots in Python:

scores = read_scores(folder / "scores")
DetDisplay.from_predictions(kinds, scores.score)
plt.show()
