"""The training of a network: frames on the device in random order, epochs, a checkpoint after each; its export.

The device is the GPU where there is one, with bfloat16 products. All frames lie there once, standardised; a batch is
gathered by index. Orders are drawn on the CPU, so that they do not depend on the device.
"""

from __future__ import annotations

import hashlib
import io
import logging
import math
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from .._progress import Progress
from .._typing import Card, Columns, IntArray, Json
from ..exceptions import FileFormatError, LabelError, NumericalError, ParameterError
from ..extractors.network import OnnxNetwork
from ..extractors.recipe import Features, Network, Recipe, Samples, to_toml
from ..labels import encode_labels
from ..persistence import write_atomically
from .frames import FeatureSet, frames_of
from .network import Heads, PaperBody, Tensor, pretrain, stacked_positions, torch
from .settings import PaperNetwork, Training

__all__ = ["TrainedNetwork", "train", "write_extractor"]

TOLERANCE = 1e-3
OPSET = 18
PAPER = PaperNetwork()
USUAL = Training()


@dataclass(frozen=True)
class TrainedNetwork:
    """A network without its heads: frames in, one vector per utterance out.

    Attributes
    ----------
    body : the network itself
    classes : view -> how many it was trained on
    history : one record per epoch: loss, accuracies
    """

    body: PaperBody
    classes: Mapping[str, int]
    history: tuple[Card, ...] = ()

    @torch.no_grad()
    def extract(self, features: FeatureSet) -> NDArray[np.float32]:
        """(n, dimension) vectors in the set's order, one utterance at a time."""
        device = usual_device()
        body = self.body.to(device).eval()
        vectors = []
        for i in range(len(features)):
            # one by one, for what a product rounds to depends on how many rows it has
            frames = torch.from_numpy(features[i]).float().to(device)
            lengths = torch.tensor([len(frames)], device=device)
            vectors.append(body(frames[None], lengths)[0].cpu().numpy())
        return np.array(vectors)


def train(
    features: FeatureSet,
    labels: Columns,
    network: PaperNetwork = PAPER,
    training: Training = USUAL,
    *,
    checkpoint: Path | None = None,
    verbose: bool = False,
) -> TrainedNetwork:
    """Train a network on the labels of all views at once.

    Parameters
    ----------
    features : frames of n utterances
    labels : view -> (n,) classes
    checkpoint : file to continue from, written after every epoch
    verbose : a line per epoch on standard error

    Raises
    ------
    NumericalError
        The loss is not finite.

    Examples
    --------
    >>> import numpy as np
    >>> from mvplda.speech.frames import FeatureSet
    >>> from mvplda.speech.settings import PaperNetwork, Training
    >>> from mvplda.speech.training import train
    >>> rng = np.random.default_rng(0)
    >>> speaker, phrase = np.arange(40) % 4, np.arange(40) // 4 % 2
    >>> frames = rng.normal(size=(40 * 20, 6)).astype(np.float32)
    >>> frames[:, 0] += np.repeat(speaker, 20)
    >>> features = FeatureSet(frames, 20 * np.arange(41))
    >>> labels = {"speaker": speaker, "phrase": phrase}
    >>> trained = train(features, labels, PaperNetwork(hidden=16, layers=2), Training(epochs=2))
    >>> trained.extract(features).shape
    (40, 16)
    """
    codes, classes = number_classes(labels)
    device = usual_device()
    seeds = training.random_state
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seeds)
        body = PaperBody(network, features.frames.shape[1])
        heads = Heads(network.hidden, classes)
        deviation = features.frames.std(axis=0, dtype=np.float64)
        deviation[deviation < 1e-6] = 1.0  # of a feature that is constant
        body.shift.copy_(torch.from_numpy(features.frames.mean(axis=0, dtype=np.float64)))
        body.deviation.copy_(torch.from_numpy(deviation))
        frames = (torch.from_numpy(features.frames).float() - body.shift) / body.deviation
        frames = frames.to(device)
        body.to(device)
        heads.to(device)
        source = FrameBatches(features, frames, codes, network.context)
        optimiser = torch.optim.SGD(
            [*body.parameters(), *heads.parameters()],
            lr=training.learning_rate,
            momentum=training.momentum,
            fused=device.type == "cuda",
        )
        key = _training_key(features, codes, network, training)
        run = Run(body, heads, source, training, optimiser, list(classes), checkpoint, key)
        if not run.resume() and network.pretrained:
            pretrain(body, source, network.pretraining, seeds, verbose)
            run.save()
        line = Progress("epoch", training.epochs) if verbose else None
        while len(run.history) < training.epochs:
            run.epoch()
            run.save()
            if line is not None:
                line.step(len(run.history), run.line())
    return TrainedNetwork(body, classes, tuple(run.history))


@dataclass
class Run:
    """The moving parts of a training; key : what must be the same for a checkpoint to be of it."""

    body: PaperBody
    heads: Heads
    source: FrameBatches
    training: Training
    optimiser: torch.optim.Optimizer
    views: list[str]
    checkpoint: Path | None
    key: str
    history: list[Json] = field(default_factory=list)

    def epoch(self) -> None:
        """One pass over the data; nothing waits for the device until its end."""
        training = self.training
        number = len(self.history)
        kind = self.source.device.type
        # every epoch has a seed of its own: one that was resumed is the same as one that was not
        rng = np.random.default_rng([training.random_state, 4, number])
        steps = max(1, len(self.source.frames) // training.batch)
        # kept on the device: a number that is read in every step would stop it
        losses = []
        hits = []
        for step, (stacked, codes) in enumerate(self.source.batches(training.batch, rng)):
            done = (number + step / steps) / training.epochs
            self.optimiser.param_groups[0]["lr"] = training.learning_rate * (1 - done)
            with torch.autocast(kind, torch.bfloat16, enabled=kind == "cuda", cache_enabled=False):
                hidden = self.body.hidden(stacked)
            loss, right = self.heads(hidden, codes)
            self.optimiser.zero_grad(set_to_none=True)
            loss.backward()
            self.optimiser.step()
            losses.append(loss.detach())
            hits.append(right)
        mean = float(torch.stack(losses).mean())
        if not math.isfinite(mean):
            raise NumericalError(
                f"the loss is {mean} in epoch {number + 1}: lower learning_rate (now {training.learning_rate:g})"
            )
        shares = torch.stack(hits).mean(dim=0).tolist()
        accuracy = dict(zip(self.views, shares, strict=True))
        self.history.append({"epoch": number + 1, "loss": mean, "accuracy": accuracy})

    def line(self) -> str:
        """The last epoch in words."""
        record = self.history[-1]
        shares = [f"{view} {share:.3f}" for view, share in record["accuracy"].items()]
        return "  ".join([f"loss {record['loss']:.4f}", *shares])

    def save(self) -> None:
        """Write everything that the next epoch starts from."""
        if self.checkpoint is None:
            return
        state = {
            "key": self.key,
            "body": self.body.state_dict(),
            "heads": self.heads.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "history": self.history,
        }
        stream = io.BytesIO()
        torch.save(state, stream)
        write_atomically(self.checkpoint, stream.getvalue())

    def resume(self) -> bool:
        """Go on from the checkpoint, where there is one; whether there is."""
        path = self.checkpoint
        if path is None or not path.is_file():
            return False
        try:
            state = torch.load(path, map_location="cpu", weights_only=True)
            same = state["key"] == self.key
        except Exception as error:  # torch raises what its parts raise: pickle, zip, runtime errors
            raise FileFormatError(f"{path} is truncated or no checkpoint: remove it") from error
        if not same:
            raise ParameterError(
                f"the checkpoint {path} is of a training with other data or settings: remove it, or give another folder"
            )
        self.body.load_state_dict(state["body"])
        self.heads.load_state_dict(state["heads"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.history = state["history"]
        return True


class FrameBatches:
    """Frames of all utterances in random order, each with those around it."""

    def __init__(self, features: FeatureSet, frames: Tensor, codes: IntArray, context: int) -> None:
        self.frames = frames
        self.context = context
        self.device = frames.device
        owner = np.repeat(np.arange(len(features)), features.lengths)
        self.owner = torch.from_numpy(owner).to(self.device)
        self.first = torch.from_numpy(features.offsets[:-1].copy()).to(self.device)
        self.last = torch.from_numpy(features.offsets[1:] - 1).to(self.device)
        self.codes = torch.from_numpy(codes).to(self.device)

    def stacked(self, centre: Tensor) -> Tensor:
        """(N, (2 context + 1) D) of the frames at these positions."""
        owner = self.owner[centre]
        positions = stacked_positions(self.first[owner], self.last[owner], centre, self.context)
        return self.frames[positions].reshape(len(centre), -1)

    def batches(self, size: int, rng: Generator) -> Iterator[tuple[Tensor, Tensor]]:
        """Stacked frames and class numbers (B, K) of every step of an epoch, in random order."""
        order = torch.from_numpy(rng.permutation(len(self.frames))).to(self.device)
        for centre in torch.split(order, size):
            # the last frames of an order that is drawn anew each time: all batches have one size
            if len(centre) == size or len(order) < size:
                yield self.stacked(centre), self.codes[self.owner[centre]]

    def sample(self, count: int, rng: Generator) -> Tensor:
        """Stacked frames at random."""
        chosen = rng.permutation(len(self.frames))[:count]
        return self.stacked(torch.from_numpy(chosen).to(self.device))


def usual_device() -> torch.device:
    """The GPU where there is one."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def number_classes(labels: Columns) -> tuple[IntArray, dict[str, int]]:
    """(n, K) class numbers, and how many classes every view has."""
    table = encode_labels(labels)
    classes = {view: len(own.names) for view, own in table.classes.items()}
    for view, count in classes.items():
        if count < 2:
            raise LabelError(
                f"view {view!r} has {count} class(es): a network learns from at least 2"
            )
    return np.stack(list(table.codes.values()), axis=1), classes


def _training_key(
    features: FeatureSet, codes: IntArray, network: PaperNetwork, training: Training
) -> str:
    """What must be the same for a checkpoint to be of this training."""
    digest = hashlib.sha256(f"{network} {training}".encode())
    for array in (codes, features.offsets, features.frames):
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def training_recipe(features: Features) -> Recipe:
    """How frames for a network are made: of samples whose loudest one is full scale, at Kaldi's scale."""
    samples = Samples(scale=32768.0, level="peak", level_value=1.0)
    network = Network(lengths="lengths", output="vectors")
    return Recipe("network", samples=samples, features=features, network=network)


def write_extractor(trained: TrainedNetwork, recipe: Recipe, path: Path) -> OnnxNetwork:
    """Write the graph (``frames`` (batch, time, D) and ``lengths`` in, ``vectors`` out) and ``path.toml``.

    The written extractor is loaded again, and refused where its vector of a test signal differs from torch's.
    """
    sizes = ", ".join(f"{count} of {view}" for view, count in trained.classes.items())
    recipe = replace(
        recipe,
        name=path.stem,
        views=tuple(trained.classes),
        description=f"paper network, trained by mvplda on {sizes}",
    )
    write_atomically(path, _graph(trained.body.cpu().eval()))
    write_atomically(path.with_suffix(".toml"), to_toml(recipe).encode())
    extractor = OnnxNetwork(path)
    rng = np.random.default_rng(0)
    signal = 0.1 * rng.standard_normal(extractor.rate).astype(np.float32)
    frames = FeatureSet.of([frames_of(signal, extractor.recipe)])
    own = trained.extract(frames)[0]
    worst = float(np.abs(own - extractor.embed(signal)).max() / max(np.abs(own).max(), 1e-6))
    if not worst < TOLERANCE:
        raise NumericalError(
            f"the exported graph differs from torch by {worst:.2g} of the largest value"
        )
    return extractor


def _graph(body: PaperBody) -> bytes:
    """The network as an ONNX graph; nothing in it tells of the machine that made it."""
    inputs = {"frames": torch.zeros(2, 13, body.width), "lengths": torch.tensor([13, 7])}
    batch = torch.export.Dim("batch")
    shapes = {"frames": {0: batch, 1: torch.export.Dim("time")}, "lengths": {0: batch}}
    disabled = logging.root.manager.disable
    try:
        logging.disable(logging.WARNING)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the exporter warns of its own deprecations
            program = torch.onnx.export(
                body,
                tuple(inputs.values()),
                dynamo=True,
                opset_version=OPSET,
                input_names=list(inputs),
                output_names=["vectors"],
                dynamic_shapes=shapes,
                verbose=False,
            )
    finally:
        logging.disable(disabled)
    assert program is not None
    model = program.model_proto
    for node in [*model.graph.node, *(node for part in model.functions for node in part.node)]:
        del node.metadata_props[:]  # lines of Python, with the paths of their files
    return bytes(model.SerializeToString())
