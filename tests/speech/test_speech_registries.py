"""A corpus or a network of one's own is one piece of code and one registered line: commands and files know it then."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from click.testing import CliRunner
from experiment_problems import drawn, hum
from jvector_problems import toy

from mvplda.cli import main
from mvplda.exceptions import ParameterError
from mvplda.io.vectors import write_vectors
from mvplda.speech.corpora import CORPORA, Corpus, load_corpus, register_corpus
from mvplda.speech.experiment.configuration import Configuration
from mvplda.speech.networks import (
    NETWORKS,
    Extractor,
    NetworkSettings,
    Training,
    register_network,
    train,
)
from mvplda.speech.settings import Count


@pytest.fixture
def toy_corpus() -> Iterator[None]:
    @register_corpus("toy", root="any folder")
    def toy_corpus(root: Path, *, speakers: int = 18) -> Corpus:
        return drawn({"speaker": speakers, "phrase": 3})[0]

    yield
    del CORPORA["toy"]


def test_a_corpus_of_ones_own(toy_corpus: None, tmp_path: Path) -> None:
    assert len(load_corpus("toy", tmp_path, speakers=6)) == 6 * 3 * 5
    with pytest.raises(ParameterError, match="toy has no option sessions; it has speakers"):
        load_corpus("toy", tmp_path, sessions=3)
    shown = CliRunner().invoke(main, ["experiment", "--help"]).output
    assert "toy" in shown
    assert "any folder [speakers]" in shown
    write_vectors(tmp_path / "x.npz", drawn({"speaker": 12, "phrase": 3})[1])
    command = [
        "experiment",
        "toy",
        tmp_path,
        "-o",
        tmp_path / "out",
        "--vectors",
        tmp_path / "x.npz",
        "--no-report",
    ]
    settings = [
        "-s",
        "corpus.speakers=12",
        "-s",
        'evaluation.systems=["cosine"]',
        "-s",
        "evaluation.resamples=0",
    ]
    done = CliRunner().invoke(main, [*map(str, command), *settings])
    assert done.exit_code == 0, done.output
    assert "cosine" in (tmp_path / "out" / "table.txt").read_text()
    assert "speakers = 12" in (tmp_path / "out" / "configuration.toml").read_text()
    done = CliRunner().invoke(main, ["experiment", "tyo"])
    assert done.exit_code == 2
    assert "'tyo' is not one of 'folder'" in done.output


@pytest.fixture
def toy_network() -> Iterator[type[Any]]:
    torch = pytest.importorskip("torch", reason="torch is not installed")

    from mvplda.speech.networks.batches import Body

    class MeanBody(Body):
        """A linear map of the mean frame."""

        def __init__(self, width: int, numbers: int) -> None:
            super().__init__(width, numbers)
            self.map = torch.nn.Linear(width, numbers)

        def embed(self, frames: Any, lengths: Any = None) -> Any:
            count = frames.shape[1] if lengths is None else lengths[:, None]
            return self.map(frames.sum(dim=1) / count)

        def forward(self, frames: Any, lengths: Any) -> Any:
            valid = torch.arange(frames.shape[1])[None, :] < lengths[:, None]
            return self.embed((frames - self.shift) / self.deviation * valid[:, :, None], lengths)

    @register_network
    @dataclass(frozen=True)
    class MeanNetwork(NetworkSettings):
        kind: ClassVar[str] = "mean"

        numbers: Count = 4

        def build(self, width: int) -> Any:
            return MeanBody(width, self.numbers)

    yield MeanNetwork
    del NETWORKS["mean"]


def test_a_network_of_ones_own(toy_network: type[Any], tmp_path: Path) -> None:
    features, labels = toy(n=60)
    trained = train(
        features, labels, toy_network(numbers=5), Training(epochs=15, batch=16, learning_rate=0.05)
    )
    assert trained.history[-1]["accuracy"]["speaker"] > 0.9
    trained.save(tmp_path / "mean.safetensors")
    again = Extractor.load(tmp_path / "mean.safetensors")
    assert again.network == toy_network(numbers=5)
    np.testing.assert_array_equal(again.extract(features), trained.extract(features))
    changed = Configuration().with_changes({"network.kind": "mean", "network.numbers": 3})
    assert Configuration.from_dict(changed.to_dict()) == changed
    with pytest.raises(ParameterError, match=r"\[network\] numbers is at least 1; got 0"):
        Configuration.from_dict({"network": {"kind": "mean", "numbers": 0}})


def test_the_command_trains_a_network_of_ones_own(toy_network: type[Any], tmp_path: Path) -> None:
    pytest.importorskip("kaldi_native_fbank", reason="kaldi_native_fbank is not installed")
    root = hum(tmp_path / "hum", ["ann", "bob", "cat"], sessions=3)
    command = [
        "jvector",
        "train",
        root,
        "--pattern",
        "{speaker}/{phrase}_{session}.wav",
        "--network",
        "mean",
    ]
    done = CliRunner().invoke(
        main, [*map(str, command), "--epochs", "1", "-o", str(tmp_path / "net.safetensors")]
    )
    assert done.exit_code == 0, done.output
    assert Extractor.load(tmp_path / "net.safetensors").name.startswith("mean-")
