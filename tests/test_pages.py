"""Every block of commands and of Python in the documents runs; some pages show what it prints.

A block runs in a folder with miniatures of the files that the pages name, blocks of a page one after the other. What
cannot run here is in `NOT_RUN` with the reason, and what another test runs in `RUN_ELSEWHERE`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import page_files
import pytest
from pages import PAGES, PYTHON, ROOT, Block, blocks

import mvplda
from mvplda.paper.corpora import CORPORA

DATA = ROOT.parent / "shared" / "data"
PRINTED = ("README.md", "docs/five-minutes.md")
"""Pages whose commands and whose Python print what the page shows."""
NAMES = ("ann", "bob", "cat", "dan", "eve", "fay", "gil", "hal", "ida", "jon", "kim", "lea")
NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?")
MVPLDA = f"{sys.executable} -m mvplda"

CORPUS = "needs a corpus that is downloaded or licensed; tests/speech runs miniatures of all"
GPU = "needs a GPU; tests/statistics runs it where there is one"
SERVES = "serves until it is stopped; tests/serve runs the service"
MICROPHONE = "needs a microphone; tests/cli/test_listen.py makes one up"
OTHER_TOOLKIT = "needs another toolkit and its weights"
NOT_RUN = {
    (
        "*",
        "make ",
    ): "runs tests, benchmarks or servers; a goal that is not there fails in test_page_names.py",
    ("*", "mvplda serve"): SERVES,
    ("*", "pip "): "installs from an index; tests/test_packaging.py installs the wheel",
    ("CONTRIBUTING.md", "pre-commit install"): "changes the checkout",
    (
        "docs/attacks.md",
        "python -m benchmarks attacks",
    ): "takes minutes; tests/test_attacks_command.py runs it",
    (
        "docs/attacks.md",
        "mvplda setup recordings/ --attacks",
    ): "takes minutes; tests/cli/test_verify.py runs it",
    (
        "docs/attacks.md",
        "mvplda verify --detector",
    ): "needs two recordings; tests/cli/test_verify.py runs it",
    (
        "docs/cluster.md",
        "recordings=/mnt/bucket",
    ): "tests/distributed/test_cluster_page.py runs it on small files",
    (
        "docs/cluster.md",
        "mvplda stats /shared/part-",
    ): "needs Dask's scheduler; tests/distributed runs one",
    ("docs/extractors.md", "mvplda extractor pack"): "tests/voice/extractors/test_sources.py packs",
    ("docs/extractors.md", "mvplda extractor get --from"): "needs the archive, which it tests",
    ("docs/extractors.md", "mvplda extractor get resnet --from"): "needs the archive",
    ("docs/extractors.md", "mvplda extractor remove"): "would empty the cache of other tests",
    ("docs/household.md", "mvplda profiles add"): "needs recordings of a household",
    (
        "docs/household.md",
        "python examples/household.py",
    ): "serves; tests/test_household_example.py",
    ("docs/installation.md", "python3 -m venv"): "makes an environment for an installation",
    ("docs/coming-from-pyannote.md", "from pyannote.audio import Inference"): OTHER_TOOLKIT,
    ("docs/coming-from-pyannote.md", "from pyannote.audio import Pipeline"): OTHER_TOOLKIT,
    ("docs/interoperability.md", "from speechbrain.inference.speaker import"): OTHER_TOOLKIT,
    ("docs/interoperability.md", "import wespeaker"): OTHER_TOOLKIT,
    ("docs/operation.md", "MVPLDA_NEW_MASTER_KEY=... mvplda serve"): "tests/serve rotates keys",
    ("docs/operation.md", "cp mvplda-data/"): "needs the data of a service that ran",
    ("docs/operation.md", "mkdir new &&"): "needs the data of a service that ran",
    ("docs/operation.md", "sqlite3 mvplda-data/"): "needs the data of a service that ran",
    ("docs/paper.md", "mvplda reproduce"): CORPUS,
    ("docs/scale.md", "from mvplda.statistics import DeviceAccumulator"): GPU,
    ("docs/scale.md", "model.fit(torch_tensor, labels)"): GPU,
    ("docs/service.md", "at=http"): "calls a service that runs; tests/serve does",
    (
        "docs/browser.md",
        "mvplda web",
    ): "loads a package with npm; tests/voice/web/test_web_site.py runs it",
    ("docs/browser.md", "mvplda extractor get"): "fetches networks; tests/voice/extractors runs it",
    ("docs/browser.md", "python -m http.server"): SERVES,
    ("docs/stream.md", "mvplda record"): MICROPHONE,
    ("docs/stream.md", "mvplda listen"): MICROPHONE,
    ("docs/stream.md", "arecord"): MICROPHONE,
    ("docs/stream.md", "ffmpeg"): "needs a call; tests/cli/test_listen.py reads pipes",
}
"""Blocks and commands that are not run: page, or * for all; how the command or the block begins; why."""
RUN_ELSEWHERE = {
    ("README.md", "pycon"): "test_readme.py::test_sessions_print_what_the_page_says",
    ("README.md", "python"): "test_pages.py::test_python_prints_what_a_page_shows",
    ("README.md", "sh"): "test_pages.py::test_commands_print_what_a_page_shows",
    ("docs/client.md", "python"): "client/test_client.py::test_the_page_runs_as_it_stands",
    ("docs/five-minutes.md", "python"): "test_pages.py::test_python_prints_what_a_page_shows",
    ("docs/five-minutes.md", "sh"): "test_pages.py::test_commands_print_what_a_page_shows",
    (
        "docs/scikit-learn.md",
        "python",
    ): "test_readme.py::test_the_page_for_scikit_learn_runs_as_it_stands",
    ("docs/search.md", "python"): "test_search_page.py::test_recipes_give_the_exact_answer",
    ("docs/stream.md", "python"): "serve/test_serve_streams.py::test_the_python_of_the_page_runs",
    ("docs/tutorial.md", "pycon"): "test_readme.py::test_sessions_print_what_the_page_says",
}
"""The test of all blocks of a page in one language."""
SOUND = {
    "docs/audio.md",
    "docs/extractors.md",
    "docs/index.md",
    "docs/installation.md",
    "docs/interoperability.md",
    "docs/people.md",
    "docs/service.md",
}
"""Pages with recordings, which need the shared data and the public networks."""
SEVERAL_TAKES = {"docs/audio.md"}
"""Pages whose recordings/ needs several takes per phrase: those of C-VAU."""
TWO_VIEWS = """
import numpy as np
import mvplda
from mvplda import MultiviewPLDA, SufficientStatistics, make_two_views
X, labels, unseen = make_two_views(24, 4, 5, 24, (4, 3), held_out=4, random_state=0)
X = X.astype(np.float32)
"""
SHARDS = """
from pathlib import Path
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
table = pq.read_table("part-0000.parquet")
X = np.stack(table["vector"].to_numpy())
speakers = table["speaker"].to_pylist()
phrases = table["phrase"].to_pylist()
paths = sorted(str(path.resolve()) for path in Path().glob("part-*.parquet"))
new = "new.parquet"
views = ["speaker", "phrase"]
"""
BEFORE = {
    "docs/choose.md": TWO_VIEWS,
    "docs/cluster.md": f"from mvplda import SufficientStatistics\n{SHARDS}",
    "docs/extractors.md": "import mvplda\nbody = 'a.wav'\n",
    "docs/people.md": TWO_VIEWS
    + """
speakers = labels["speaker"]
training_sessions = np.arange(len(X)) % 2
enrolled, ids = unseen.enrol, unseen.ids
enrolled_sessions = ["monday"] * len(enrolled)
tested = unseen.test
""",
    "docs/scale.md": SHARDS,
}
"""What a page takes for the reader's own."""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def vectors_of_pages(tmp_path_factory):
    """A folder with the vectors, labels, lists and shards that the pages name."""
    pytest.importorskip("pyarrow", reason="pyarrow is not installed, which shards need")
    folder = tmp_path_factory.mktemp("vectors")
    page_files.write_shards(folder)
    page_files.write_kaldi_folder(folder)
    page_files.write_embeddings(folder / "embeddings.npz")
    page_files.write_statistics(folder / "stats.safetensors")
    kaldi = "-l speaker=utt2spk -l phrase=utt2phrase -v speaker -v phrase"
    run(f"mvplda train xvector.scp {kaldi} --model multiview -o model.safetensors", folder)
    lists = "--enrol enrol.scp --models spk2utt --test test.scp --trials trials"
    run(f"mvplda score model.safetensors {lists} -o scores", folder)
    return folder


@pytest.fixture(scope="module")
def recordings_of_pages(tmp_path_factory):
    """A folder with the recordings that the pages name: 12 people of Speech Commands, and pass-phrases of C-VAU."""
    people = sorted(DATA.glob("speech_commands/*/"))[: len(NAMES)]
    files = {"a": "c23/p01/2014-11_1", "b": "c23/p02/2014-11_1", "now": "c23/p01/2014-11_2"}
    files |= {"ann1": "c23/p01/2014-11_1", "ann2": "c23/p01/2014-11_3"}
    files |= {"bob": "c27/p01/2014-11_1", "unknown": "c27/p01/2014-11_2"}
    recordings = {name: DATA / "cvau" / f"{path}.flac" for name, path in files.items()}
    if len(people) < len(NAMES) or not all(path.is_file() for path in recordings.values()):
        pytest.skip(f"there are no recordings under {DATA}")
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed, which extractors need")
    try:
        mvplda.load_extractor(["campplus", "words"])
    except (OSError, mvplda.MvpldaError) as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("pages")
    (folder / "recordings").mkdir()
    for name, person in zip(NAMES, people, strict=True):
        (folder / "recordings" / name).symlink_to(person)
    for name, path in recordings.items():
        (folder / f"{name}.wav").symlink_to(path)
    page_files.write_meetings(folder, [recordings["ann1"], recordings["bob"]])
    page_files.write_network(folder / "voxceleb_resnet34_LM.onnx")
    return folder


@pytest.fixture
def place(recordings_of_pages, tmp_path):
    """A reader's own folder with recordings."""
    return shutil.copytree(recordings_of_pages, tmp_path / "place", symlinks=True)


def reason_not_to_run(page: str, code: str) -> str | None:
    for (where, beginning), reason in NOT_RUN.items():
        if where in ("*", page) and code.startswith(beginning):
            return reason
    return None


def run(command: str, folder: Path) -> str:
    """Standard output of a command in a shell, which succeeds. Answers have exit codes of their own."""
    done = subprocess.run(
        ["sh", "-c", f'mvplda() {{ {MVPLDA} "$@"; }}\n{command}'],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(mvplda.__file__).parents[1])},
    )
    answers = command.startswith(("mvplda verify", "mvplda identify"))
    assert done.returncode in ((0, 1, 2) if answers else (0,)), (command, done.stderr)
    return done.stdout


def same(shown: str, printed: str) -> bool:
    """Whether texts are the same; numbers may differ by 2 %, or as much as rounding does."""
    one, other = (NUMBER.sub("#", " ".join(text.split())) for text in (shown, printed))
    numbers = zip(NUMBER.findall(shown), NUMBER.findall(printed), strict=False)
    near = [
        abs(float(a) - float(b)) <= max(0.02 * abs(float(b)), 0.05 if "." in a else 1)
        for a, b in numbers
    ]
    return one == other and all(near)


@pytest.mark.parametrize("page", PRINTED)
def test_commands_print_what_a_page_shows(page, place):
    printed = ""
    commands = 0
    for block in blocks(page):
        if block.language == "sh":
            lines = [line for line in block.commands if reason_not_to_run(page, line) is None]
            printed = "".join(run(line, place) for line in lines)
            commands += len(lines)
        elif block.language == "text":
            assert same(block.text, printed), printed
    assert commands >= 4


@pytest.mark.parametrize("page", PRINTED)
def test_python_prints_what_a_page_shows(page, place, monkeypatch, capsys):
    monkeypatch.chdir(place)
    code = "".join(block.text for block in blocks(page) if block.language == "python")
    exec(compile(code, page, "exec"), {})
    assert "speaker" in capsys.readouterr().out


def is_run_here(block: Block) -> bool:
    return (block.page, block.language) not in RUN_ELSEWHERE and bool(
        block.language in PYTHON or block.commands
    )


RUN_HERE = [page for page in PAGES if any(map(is_run_here, blocks(page)))]


# miniatures have few classes and few iterations
@pytest.mark.filterwarnings("ignore::mvplda.MvpldaWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("page", RUN_HERE)
def test_blocks_run(page, vectors_of_pages, request, tmp_path, monkeypatch):
    folder = tmp_path / "reader"
    shutil.copytree(vectors_of_pages, folder)
    if page in SOUND:
        recordings = request.getfixturevalue("recordings_of_pages")
        shutil.copytree(recordings, folder, symlinks=True, dirs_exist_ok=True)
    if page in SEVERAL_TAKES:
        shutil.rmtree(folder / "recordings")
        page_files.link_phrases(DATA / "cvau", folder / "recordings")
    monkeypatch.chdir(folder)
    # a corpus that a page registers is gone afterwards
    monkeypatch.setattr("mvplda.paper.corpora.corpus.CORPORA", dict(CORPORA))
    names: dict[str, Any] = {}
    exec(compile(BEFORE.get(page, ""), page, "exec"), names)
    for block in filter(is_run_here, blocks(page)):
        if block.language not in PYTHON:
            run_commands(block, folder)
        elif reason_not_to_run(page, block.first) is None:
            exec(compile(textwrap.dedent(block.text), f"{page}: {block.first}", "exec"), names)


def run_commands(block: Block, folder: Path) -> None:
    """Run the commands of a block; after one that follows a prompt, compare the output that the page shows."""
    printed = ""
    for command in block.commands:
        if reason_not_to_run(block.page, command) is None:
            printed = run(command, folder)
    shown = [line for line in block.text.splitlines() if not line.startswith("$ ")]
    if len(shown) < len(block.text.splitlines()) and shown:
        end = shown.index("...") if "..." in shown else len(shown)
        assert printed.splitlines()[:end] == shown[:end]


def test_no_exception_is_stale():
    """Every block or command that is not run is on its page, with a reason."""
    begins = {
        (page, beginning)
        for page in PAGES
        for block in blocks(page)
        for beginning in [*block.commands, *[block.first] * (block.language in PYTHON)]
    }
    stale = [
        (where, beginning)
        for where, beginning in NOT_RUN
        if not any(where in ("*", p) and code.startswith(beginning) for p, code in begins)
    ]
    assert stale == []
    assert all(NOT_RUN.values())
    assert set(BEFORE) | SOUND <= set(RUN_HERE)
    assert SEVERAL_TAKES <= SOUND


def test_what_runs_elsewhere_is_tested_there():
    for (page, language), test in RUN_ELSEWHERE.items():
        assert any(block.language == language for block in blocks(page)), (page, language)
        file, _, name = test.partition("::")
        text = (ROOT / "tests" / file).read_text(encoding="utf-8")
        assert f"def {name}(" in text
        assert Path(page).name in text
