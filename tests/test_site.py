"""The site: its pages are in a table of contents, and nothing in them comes from another machine."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform
from site_pages import foreign_assets, internal_members

import mvplda
from mvplda import make_two_views
from mvplda.voice.turns import Turn, read_turns

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
BUILT = DOCS / "_build" / "html"


def test_every_page_is_in_the_contents():
    tables = "".join((DOCS / name).read_text(encoding="utf-8") for name in ("index.md", "guide.md"))
    named = set(re.findall(r"^(?:.*<)?([\w/-]+)>?$", tables, flags=re.MULTILINE))
    assert {page.stem for page in DOCS.glob("*.md")} - named == {"index"}


def test_assets_from_elsewhere_are_found(tmp_path):
    (tmp_path / "good.html").write_text(
        '<a href="https://x.example/">x</a><script src="own.js"></script>'
    )
    assert foreign_assets(tmp_path) == []
    (tmp_path / "bad.html").write_text(
        '<link rel="stylesheet" href="//x.example/a.css"><img src="http://x.example/b">'
    )
    (tmp_path / "bad.css").write_text("@font-face { src: url('https://x.example/f.woff') }")
    assert [page for page, _ in foreign_assets(tmp_path)] == ["bad.html", "bad.html", "bad.css"]


@pytest.mark.skipif(not BUILT.is_dir(), reason="the site is not built here: make docs")
def test_the_built_site_loads_nothing_from_elsewhere():
    assert list(BUILT.rglob("*.html"))
    assert foreign_assets(BUILT) == []
    assert internal_members(BUILT) == []


def test_internal_members_of_a_class_page_are_found(tmp_path):
    reference = tmp_path / "reference"
    reference.mkdir()
    entry = '<dt class="sig sig-object py" id="mvplda.PLDA.{}">'
    for name in ("mvplda.PLDA", "mvplda.calibration.Calibrator"):
        text = entry.format("fit") + entry.format("FITTED")
        (reference / f"{name}.html").write_text(text, encoding="utf-8")
    assert internal_members(tmp_path) == [("mvplda.PLDA.html", "FITTED")]


def other_toolkits(monkeypatch: pytest.MonkeyPatch, vectors: dict[str, Any]) -> dict[str, Any]:
    """Stand-ins with the calls and shapes of SpeechBrain 1.1, WeSpeaker and pyannote.audio 4; and what a script has."""
    torch = pytest.importorskip("torch", reason="torch is not installed")

    class EncoderClassifier:
        @classmethod
        def from_hparams(cls, source: str, **_: Any) -> EncoderClassifier:
            return cls()

        def load_audio(self, path: str) -> Any:  # (time,)
            return torch.full((16000,), float(path.removesuffix(".wav")))

        def encode_batch(
            self, wavs: Any, wav_lens: Any = None, normalize: bool = False
        ) -> Any:  # (batch, 1, D)
            return torch.tensor(vectors[f"{int(wavs[0])}.wav"], dtype=torch.float32)[None, None]

    class Speaker:
        def extract_embedding(self, audio_path: str) -> Any:  # (D,), None of silence
            return torch.tensor(vectors[audio_path], dtype=torch.float32)

    class Model:
        specifications = ()

        @classmethod
        def from_pretrained(cls, checkpoint: str) -> Model:
            return cls()

    class Inference:
        def __init__(self, model: Model, window: str = "sliding") -> None:
            assert isinstance(model, Model)
            assert window == "whole"

        def crop(self, file: str, chunk: str) -> Any:  # (D,)
            return np.float32(vectors[chunk])

    class Annotation:
        def __init__(self, uri: str) -> None:
            self.uri = uri

        def write_rttm(self, file: Any) -> None:
            file.write(f"SPEAKER {self.uri} 1 0.500 1.250 <NA> <NA> SPEAKER_00 <NA> <NA>\n")

    class Pipeline:
        @classmethod
        def from_pretrained(cls, checkpoint: str) -> Pipeline:
            return cls()

        def __call__(self, file: str) -> Any:
            return types.SimpleNamespace(speaker_diarization=Annotation(Path(file).stem))

    for module, parts in {
        "speechbrain": {},
        "speechbrain.inference": {},
        "speechbrain.inference.speaker": {"EncoderClassifier": EncoderClassifier},
        "wespeaker": {"load_model": lambda language: Speaker()},
        "pyannote": {},
        "pyannote.audio": {"Inference": Inference, "Model": Model, "Pipeline": Pipeline},
    }.items():
        monkeypatch.setitem(sys.modules, module, types.SimpleNamespace(**parts, __path__=[]))
    return {"torch": torch, "np": np, "mvplda": mvplda, "fcluster": fcluster, "linkage": linkage,
            "squareform": squareform, "paths": list(vectors), "file": "meeting.wav",
            "recordings": ["meetings/monday.wav", "meetings/friday.wav"]}  # fmt: skip


def python_blocks(page: str) -> list[str]:
    text = (DOCS / page).read_text(encoding="utf-8")
    return re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)


def test_our_back_end_in_scripts_of_other_toolkits(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng, (who, what) = np.random.default_rng(0), (a.ravel() for a in np.indices((12, 3, 4))[:2])
    X = (
        2 * rng.normal(size=(12, 32))[who]
        + rng.normal(size=(3, 32))[what]
        + rng.normal(size=(144, 32))
    )
    names = other_toolkits(monkeypatch, {f"{i}.wav": x for i, x in enumerate(X)}) | {
        "who": who,
        "what": what,
    }
    chosen = np.flatnonzero(who < 3)
    names["segments"] = [f"{i}.wav" for i in chosen]
    turns, clusters, _ = python_blocks("coming-from-pyannote.md")
    blocks = [*python_blocks("interoperability.md")[:2], clusters]
    for block, toolkit in zip(blocks, ("speechbrain", "wespeaker", "pyannote"), strict=True):
        assert toolkit in block
        names.pop("X", None)
        exec(compile(block, toolkit, "exec"), names)
        expected = X if toolkit != "pyannote" else X[chosen]
        np.testing.assert_allclose(names["X"], expected, rtol=1e-6)
    assert names["llr"].shape == (len(chosen), len(chosen))
    found = names["clusters"]
    np.testing.assert_array_equal(found[:, None] == found, who[chosen][:, None] == who[chosen])
    exec(compile(turns, "turns", "exec"), names)
    assert read_turns("diarised.rttm") == [
        Turn(recording, 0.5, 1.75, "SPEAKER_00") for recording in ("monday", "friday")
    ]


@pytest.mark.parametrize("page", ["decisions.md", "interoperability.md"])
def test_blocks_of_a_page_run_one_after_the_other(page, tmp_path, monkeypatch):
    names: dict[str, object] = {}
    if page == "interoperability.md":
        pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
        pytest.importorskip("onnx", reason="onnx is not installed")
        X, labels = make_two_views(6, 3, 4, 16, (4, 2), random_state=0)[:2]
        names = other_toolkits(monkeypatch, {f"{i}.wav": x for i, x in enumerate(X)})
        names |= {
            "who": labels["speaker"],
            "what": labels["phrase"],
            "segments": ["0.wav", "1.wav", "20.wav"],
        }
    monkeypatch.chdir(tmp_path)
    for block in python_blocks(page):
        exec(compile(block, page, "exec"), names)
