"""Training of the paper's network with a checkpoint after every epoch, and its export as an ONNX extractor.

If a GPU is available, all frames are copied to it once, and products are computed in bfloat16. On the CPU, batches are
read from the file of frames, which need not fit into memory. Random orders are drawn on the CPU, so that they do not
depend on the device.
"""

from __future__ import annotations

import hashlib
import io
import logging
import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypedDict

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from .._progress import Progress
from .._typing import Columns, IntArray
from ..atomic_files import write_atomically
from ..exceptions import FileFormatError, LabelError, NumericalError, ParameterError
from ..labels import encode_labels
from ..voice.extractors.onnx_network import OnnxNetwork
from ..voice.extractors.recipe import Features, Network, Recipe, Samples, recipe_to_toml
from .experiment_settings import PaperNetwork, Training
from .frame_store import FeatureSet
from .frames import frames_of
from .multitask_network import (
    Heads,
    PaperBody,
    Tensor,
    pretrain,
    pretraining_seconds,
    seconds_per_step,
    stacked_positions,
    torch,
)

__all__ = ["TrainedNetwork", "train_network", "write_extractor"]

TOLERANCE = 1e-3
"""Maximum difference between the vectors of torch and of the exported graph, relative to the largest value."""
OPSET = 18
RELEASE_EVERY = 1000
"""Number of utterances after whose extraction the memory of their frames is freed."""
MAPPED_FRAMES = 4096
"""Number of stacked frames after which the memory of the mapped file is freed."""
PAPER_NETWORK = PaperNetwork()
DEFAULT_TRAINING = Training()


class EpochRecord(TypedDict):
    """Record of one epoch of training.

    epoch : number of the epoch, from 1
    loss : mean loss over the steps
    accuracy : {view: proportion of correctly classified frames, averaged over the steps}
    """

    epoch: int
    loss: float
    accuracy: dict[str, float]


@dataclass(frozen=True)
class TrainedNetwork:
    """Trained network without its softmax layers, which maps the frames of an utterance to one vector.

    Attributes
    ----------
    body : network as a torch module
    classes : {view: number of training classes}
    history : loss and accuracies of each epoch
    """

    body: PaperBody
    classes: Mapping[str, int]
    history: tuple[EpochRecord, ...] = ()

    @torch.no_grad()
    def extract(self, features: FeatureSet) -> NDArray[np.float32]:
        """Return the (n, dimension) vectors of n utterances, given their frames."""
        device = default_device()
        body = self.body.to(device).eval()
        vectors = np.empty((len(features), body.settings.hidden), dtype=np.float32)
        for i in range(len(features)):
            # one utterance at a time: rounding of a product depends on its number of rows
            frames = torch.from_numpy(features[i]).float().to(device)
            lengths = torch.tensor([len(frames)], device=device)
            vectors[i] = body(frames[None], lengths)[0].cpu().numpy()
            if i % RELEASE_EVERY == 0:
                features.release()
        return vectors


def train_network(
    features: FeatureSet,
    labels: Columns,
    network: PaperNetwork = PAPER_NETWORK,
    training: Training = DEFAULT_TRAINING,
    *,
    checkpoint: Path | None = None,
    echo: Callable[[str], object] | None = None,
    verbose: bool = False,
) -> TrainedNetwork:
    """Train a network on the labels of all views at once.

    Parameters
    ----------
    features : frames of n utterances
    labels : {view: (n,) classes}, at least two classes per view
    network : architecture and pre-training
    training : settings of the optimiser
    checkpoint : file that is written after every epoch; if it exists, training resumes from it
    echo : called with an estimate of the duration before the training starts
    verbose : show one line per epoch on standard error

    Raises
    ------
    NumericalError
        The loss is not finite.
    ParameterError
        The checkpoint belongs to other data or settings.

    Examples
    --------
    >>> import numpy as np
    >>> from mvplda.paper.frame_store import FeatureSet
    >>> from mvplda.paper.experiment_settings import PaperNetwork, Training
    >>> from mvplda.paper.network_training import train_network
    >>> rng = np.random.default_rng(0)
    >>> speaker, phrase = np.arange(40) % 4, np.arange(40) // 4 % 2
    >>> frames = rng.normal(size=(40 * 20, 6)).astype(np.float32)
    >>> frames[:, 0] += np.repeat(speaker, 20)
    >>> features = FeatureSet.of(frames.reshape(40, 20, 6))
    >>> labels = {"speaker": speaker, "phrase": phrase}
    >>> trained = train_network(features, labels, PaperNetwork(hidden=16, layers=2), Training(epochs=2))
    >>> trained.extract(features).shape
    (40, 16)
    """
    codes, classes = number_classes(labels)
    device = default_device()
    seed = training.random_state
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        body = PaperBody(network, features.frames.shape[1])
        heads = Heads(network.hidden, classes)
        _set_standardisation(body, features)
        body.to(device)
        heads.to(device)
        source = FrameBatches(features, codes, body)
        key = _training_key(features, codes, network, training)
        run = TrainingState(body, heads, source, training, list(classes), checkpoint, key)
        needs_pretraining = not run.resume() and network.pretrained
        if echo is not None:
            echo(f"training takes about {_as_duration(run.remaining_seconds(needs_pretraining))}")
        if needs_pretraining:
            pretrain(body, source, network.pretraining, seed, verbose)
            run.save()
        run.epochs(verbose)
    return TrainedNetwork(body, classes, tuple(run.history))


def _set_standardisation(body: PaperBody, features: FeatureSet) -> None:
    """Store the mean and the standard deviation of the training frames in the network."""
    count = features.n_frames
    mean = sum(block.sum(axis=0, dtype=np.float64) for block in features.blocks()) / count
    variance = sum(((block - mean) ** 2).sum(axis=0) for block in features.blocks()) / count
    deviation = np.sqrt(variance)
    # a constant feature has no deviation to divide by
    deviation[deviation < 1e-6] = 1.0
    body.shift.copy_(torch.from_numpy(mean))
    body.deviation.copy_(torch.from_numpy(deviation))


@dataclass
class TrainingState:
    """State of a training run, which a checkpoint stores after every epoch.

    body, heads : network, and its softmax layers
    source : batches of frames
    training : settings of the optimiser
    views : names of the views
    checkpoint : file of the checkpoint; None: no checkpoint
    key : digest of the data and settings; a checkpoint with another key is refused
    history : loss and accuracies of each finished epoch
    optimiser : stochastic gradient descent for the parameters of body and heads
    """

    body: PaperBody
    heads: Heads
    source: FrameBatches
    training: Training
    views: list[str]
    checkpoint: Path | None
    key: str
    history: list[EpochRecord] = field(default_factory=list)
    optimiser: torch.optim.Optimizer = field(init=False)

    def __post_init__(self) -> None:
        self.optimiser = torch.optim.SGD(
            [*self.body.parameters(), *self.heads.parameters()],
            lr=self.training.learning_rate,
            momentum=self.training.momentum,
            fused=self.source.device.type == "cuda",
        )

    def remaining_seconds(self, needs_pretraining: bool) -> float:
        """Estimate the duration of the remaining training in seconds from a few steps of a copy of the network.

        needs_pretraining : whether pre-training is still to be done
        """
        trial = replace(self, body=deepcopy(self.body), heads=deepcopy(self.heads))
        # a fork, so that the estimate does not change the random numbers of the training
        device = self.source.device
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            batches = self.source.batches(self.training.batch, np.random.default_rng(0))
            seconds = seconds_per_step(lambda batch: trial.step(*batch)[0], batches)
            epochs = self.training.epochs - len(self.history)
            seconds *= epochs * self.source.steps(self.training.batch)
            if needs_pretraining:
                settings = self.body.settings.pretraining
                seconds += pretraining_seconds(trial.body, self.source, settings)
        return seconds

    def epochs(self, verbose: bool) -> None:
        """Train for the remaining epochs, with a checkpoint after each.

        verbose : show one line per epoch on standard error
        """
        progress = Progress("epoch", self.training.epochs) if verbose else None
        while len(self.history) < self.training.epochs:
            self.epoch()
            self.save()
            if progress is not None:
                progress.step(len(self.history), self.line())

    def epoch(self) -> None:
        """Train for one pass over all frames, and append its record to `history`."""
        training = self.training
        number = len(self.history)
        # a seed per epoch, so that a resumed run draws the same orders as an uninterrupted one
        rng = np.random.default_rng([training.random_state, 4, number])
        steps = self.source.steps(training.batch)
        # collected on the device, because the CPU would wait for each value; in one array, because small arrays that
        # survive a step fragment the memory of the batches, which then grows by megabytes per step
        losses = torch.zeros(steps, device=self.source.device)
        accuracies = torch.zeros(steps, len(self.views), device=self.source.device)
        for step, (stacked, codes) in enumerate(self.source.batches(training.batch, rng)):
            progress = (number + step / steps) / training.epochs
            self.optimiser.param_groups[0]["lr"] = training.learning_rate * (1 - progress)
            loss, accuracy = self.step(stacked, codes)
            losses[step] = loss
            accuracies[step] = accuracy

        mean = float(losses.mean())
        if not math.isfinite(mean):
            raise NumericalError(
                f"training diverged: the loss is {mean} in epoch {number + 1}. Lower learning_rate (now "
                f"{training.learning_rate:g})"
            )
        means = accuracies.mean(dim=0).tolist()
        by_view = dict(zip(self.views, means, strict=True))
        self.history.append({"epoch": number + 1, "loss": mean, "accuracy": by_view})

    def step(self, stacked: Tensor, codes: Tensor) -> tuple[Tensor, Tensor]:
        """Update the network by one batch.

        Parameters
        ----------
        stacked : (B, (2 context + 1) D) stacked frames
        codes : (B, views) number of each frame's class

        Returns
        -------
        loss, and accuracy per view (views,), as tensors on the device
        """
        kind = self.source.device.type
        with torch.autocast(kind, torch.bfloat16, enabled=kind == "cuda", cache_enabled=False):
            hidden = self.body.hidden(stacked)
        loss, accuracy = self.heads(hidden, codes)
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        self.optimiser.step()
        return loss.detach(), accuracy

    def line(self) -> str:
        """Return a line of text with the loss and the accuracies of the last epoch."""
        record = self.history[-1]
        accuracies = [f"{view} {value:.3f}" for view, value in record["accuracy"].items()]
        return "  ".join([f"loss {record['loss']:.4f}", *accuracies])

    def save(self) -> None:
        """Write the checkpoint: network, softmax layers, optimiser and history; nothing without a checkpoint file."""
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
        """Load the checkpoint if its file exists, and return whether it exists.

        Raises
        ------
        FileFormatError
            The file is damaged.
        ParameterError
            The checkpoint belongs to other data or settings.
        """
        path = self.checkpoint
        if path is None or not path.is_file():
            return False
        try:
            state = torch.load(path, map_location="cpu", weights_only=True)
            is_same_training = state["key"] == self.key
        except Exception as error:  # torch raises errors of many kinds: pickle, zip, runtime errors
            raise FileFormatError(
                f"{path} is truncated or not a checkpoint: remove it to train from the start"
            ) from error
        if not is_same_training:
            raise ParameterError(
                f"the checkpoint {path} belongs to a training with other data or settings: remove it, or choose "
                "another output folder"
            )
        self.body.load_state_dict(state["body"])
        self.heads.load_state_dict(state["heads"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.history = state["history"]
        return True


class FrameBatches:
    """Batches of frames in random order, from all utterances; each frame is standardised and stacked with its context.

    Parameters
    ----------
    features : frames of n utterances
    codes : (n, views) number of each utterance's class
    body : network on the device of the batches, with the mean and standard deviation of the frames
    """

    def __init__(self, features: FeatureSet, codes: IntArray, body: PaperBody) -> None:
        self.features = features
        self.body = body
        self.context = body.settings.context
        self.device = body.shift.device
        self.frames = torch.from_numpy(features.frames)
        first = features.first
        ends = np.cumsum(features.lengths)
        if self.device.type == "cuda":
            first = ends - features.lengths
            blocks = [torch.from_numpy(block).to(self.device) for block in features.blocks()]
            self.frames = torch.cat(blocks)
        self.ends = torch.from_numpy(ends).to(self.device)
        self.first = torch.from_numpy(first).to(self.device)
        self.lengths = torch.from_numpy(features.lengths).to(self.device)
        self.codes = torch.from_numpy(codes).to(self.device)

    def __len__(self) -> int:
        """Return the number of frames of all utterances."""
        return self.features.n_frames

    def utterance(self, numbers: Tensor) -> Tensor:
        """Return the (N,) index of the utterance of each frame.

        numbers : (N,) numbers of frames, counted through all utterances in their order
        """
        return torch.searchsorted(self.ends, numbers, right=True)

    def stacked(self, numbers: Tensor) -> Tensor:
        """Return the (N, (2 context + 1) D) standardised frames, each stacked with the frames around it.

        numbers : (N,) numbers of frames, counted through all utterances in their order
        """
        utterance = self.utterance(numbers)
        first = self.first[utterance]
        length = self.lengths[utterance]
        centre = first + numbers - (self.ends[utterance] - length)
        positions = stacked_positions(first, first + length - 1, centre, self.context)
        frames = (self.frames[positions].float() - self.body.shift) / self.body.deviation
        return frames.reshape(len(numbers), -1)

    def batches(self, size: int, rng: Generator) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the batches of one epoch in random order: stacked frames, and their class numbers (B, views).

        Frames that do not fill a last batch are left out, unless there are fewer frames than `size`.

        size : number B of frames per batch
        rng : generator of the order
        """
        order = torch.from_numpy(rng.permutation(len(self))).to(self.device)
        release_every = max(1, MAPPED_FRAMES // size)
        for step, numbers in enumerate(torch.split(order, size)):
            # an incomplete last batch is left out; the random order leaves out other frames in every epoch
            if len(numbers) == size or len(order) < size:
                yield self.stacked(numbers), self.codes[self.utterance(numbers)]
            if step % release_every == 0:
                self.features.release()

    def steps(self, size: int) -> int:
        """Return the number of batches per epoch for batches of `size` frames, at least 1."""
        return max(1, len(self) // size)

    def sample(self, count: int, rng: Generator) -> Tensor:
        """Return (n, (2 context + 1) D) random stacked frames, with n = `count`, or all frames if there are fewer."""
        chosen = rng.permutation(len(self))[:count]
        return self.stacked(torch.from_numpy(chosen).to(self.device))


def _as_duration(seconds: float) -> str:
    """Return a duration as text, such as "3.2 hours"; at least "a minute"."""
    if seconds < 60:
        return "a minute"
    if seconds < 3600:
        return f"{seconds / 60:.0f} minutes"
    return f"{seconds / 3600:.1f} hours"


def default_device() -> torch.device:
    """Return the GPU if one is available, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def number_classes(labels: Columns) -> tuple[IntArray, dict[str, int]]:
    """Number the classes of each view.

    labels : {view: (n,) classes}

    Returns
    -------
    (n, views) class numbers, and {view: number of classes}

    Raises
    ------
    LabelError
        A view has fewer than two classes.
    """
    table = encode_labels(labels)
    classes = {view: len(view_classes.names) for view, view_classes in table.classes.items()}
    for view, count in classes.items():
        if count < 2:
            raise LabelError(
                f"training a network needs at least 2 classes per view; the view {view!r} has {count}"
            )
    return np.stack(list(table.codes.values()), axis=1), classes


def _training_key(
    features: FeatureSet, codes: IntArray, network: PaperNetwork, training: Training
) -> str:
    """Return a digest of frames, class numbers and settings, by which a checkpoint of other data is recognised."""
    digest = hashlib.sha256(f"{network} {training}".encode())
    for array in (codes, features.lengths):
        digest.update(np.ascontiguousarray(array).tobytes())
    for block in features.blocks():
        digest.update(np.ascontiguousarray(block).data)
    return digest.hexdigest()


def training_recipe(features: Features) -> Recipe:
    """Return the recipe by which the frames of the paper's network are computed from samples.

    Samples are scaled so that the loudest one is full scale, 32768.
    """
    samples = Samples(scale=32768.0, level="peak", level_value=1.0)
    network = Network(lengths="lengths", output="vectors")
    return Recipe("network", samples=samples, features=features, network=network)


def write_extractor(trained: TrainedNetwork, recipe: Recipe, path: Path) -> OnnxNetwork:
    """Export a trained network as an ONNX graph, and write its recipe beside it.

    The graph has the inputs ``frames`` (batch, time, D) and ``lengths`` (batch,) and the output ``vectors``. The
    vector of a test signal by the written extractor is compared with that of torch.

    Parameters
    ----------
    trained : network
    recipe : recipe of the network's frames
    path : file of the graph; the recipe gets the same name with the suffix ``.toml``

    Returns
    -------
    the written extractor

    Raises
    ------
    NumericalError
        The vector of the exported graph differs from torch's.
    """
    sizes = ", ".join(f"{count} of {view}" for view, count in trained.classes.items())
    recipe = replace(
        recipe,
        name=path.stem,
        views=tuple(trained.classes),
        description=f"paper network, trained by mvplda on {sizes}",
    )
    write_atomically(path, _graph(trained.body.cpu().eval()))
    write_atomically(path.with_suffix(".toml"), recipe_to_toml(recipe).encode())
    extractor = OnnxNetwork(path)
    rng = np.random.default_rng(0)
    signal = 0.1 * rng.standard_normal(extractor.rate).astype(np.float32)
    frames = FeatureSet.of([frames_of(signal, extractor.recipe)])
    expected = trained.extract(frames)[0]
    difference = np.abs(expected - extractor.embed(signal)).max()
    relative = float(difference / max(np.abs(expected).max(), 1e-6))
    if not relative < TOLERANCE:
        raise NumericalError(
            f"the vector of the exported graph {path} differs from torch's by {relative:.2g} of the largest value, "
            f"expected less than {TOLERANCE:g}: the graph is not usable; try other versions of torch and onnxruntime"
        )
    return extractor


def _graph(body: PaperBody) -> bytes:
    """Return the network as the bytes of an ONNX file, without paths or other metadata of this machine."""
    inputs = {"frames": torch.zeros(2, 13, body.width), "lengths": torch.tensor([13, 7])}
    batch = torch.export.Dim("batch")
    shapes = {"frames": {0: batch, 1: torch.export.Dim("time")}, "lengths": {0: batch}}
    disabled = logging.root.manager.disable
    try:
        logging.disable(logging.WARNING)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # deprecation warnings inside the exporter
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
    function_nodes = [node for function in model.functions for node in function.node]
    for node in [*model.graph.node, *function_nodes]:
        del node.metadata_props[:]  # lines of Python with the paths of their files
    return bytes(model.SerializeToString())
