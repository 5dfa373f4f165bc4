"""One loop for every network: batches, steps, held-out error, the best kept."""

from __future__ import annotations

import copy
import hashlib
import io
import json
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..._progress import Progress
from ..._typing import FloatArray, IntArray
from ...exceptions import FileFormatError, LabelError, NumericalError, ParameterError
from ...metrics import eer
from ...persistence import write_atomically
from ..frames import FeatureSet
from .batches import (
    Body,
    Inputs,
    Labels,
    Tensor,
    check_features,
    choose_device,
    frame_statistics,
    nn,
    number_classes,
    torch,
)
from .modern import Heads
from .settings import ModernNetwork, NetworkSettings, Training

BATCH_FRAMES = 16384
MOST = 2000
"""Held-out utterances whose pairs choose the epoch."""
FREE = ("checkpoint", "device", "patience")
"""Settings that may differ when a training goes on."""
CHECKPOINT = "mvplda-network-checkpoint"


@dataclass(frozen=True)
class TrainedNetwork:
    """A network without its heads: frames in, one vector per utterance out.

    Attributes
    ----------
    network : its settings
    body : the network itself, on the CPU
    classes : view -> names of the classes that it was trained on
    history : one record per epoch: loss, accuracies, held-out error
    health : what every layer kept of its frames after pre-training, where there was one
    """

    network: NetworkSettings
    body: Body
    classes: Mapping[str, list[str]] = field(default_factory=dict)
    history: tuple[Mapping[str, Any], ...] = ()
    health: tuple[Mapping[str, Any], ...] = ()

    @property
    def n_parameters(self) -> int:
        return sum(p.numel() for p in self.body.parameters())

    def extract(self, features: FeatureSet, device: str = "auto") -> NDArray[np.float32]:
        """(n, dimension) vectors in the set's order; they do not depend on batches or on order."""
        check_features(features)
        where = choose_device(device)
        try:
            return extract_vectors(self.body.to(where), features, where)
        finally:
            self.body.to("cpu")


@torch.no_grad()
def extract_vectors(
    body: Body, features: FeatureSet, device: torch.device, batch_frames: int = BATCH_FRAMES
) -> NDArray[np.float32]:
    """(n, dimension) vectors, utterances of similar length together; products in full float32."""
    body.eval()
    vectors = np.empty((len(features), body.dimension), dtype=np.float32)
    order = np.argsort(features.lengths, kind="stable")[::-1]
    start = 0
    with torch.backends.cudnn.flags(
        enabled=True, benchmark=False, deterministic=True, allow_tf32=False
    ):
        while start < len(order):
            longest = int(features.lengths[order[start]])
            rows = order[start : start + max(1, batch_frames // longest)]
            frames = np.zeros((len(rows), longest, features.dimension), dtype=np.float32)
            for i, row in enumerate(rows):
                frames[i, : features.lengths[row]] = features[int(row)]
            lengths = torch.from_numpy(features.lengths[rows].astype(np.int64))
            made = body(torch.from_numpy(frames).to(device), lengths.to(device))
            vectors[rows] = made.float().cpu().numpy()
            start += len(rows)
    return vectors


def train(
    features: FeatureSet,
    labels: Labels,
    network: NetworkSettings | None = None,
    training: Training | None = None,
    *,
    held_out: tuple[FeatureSet, Labels] | None = None,
    verbose: bool = False,
) -> TrainedNetwork:
    """Train a network on the labels of all views at once.

    Parameters
    ----------
    features : frames of n utterances
    labels : view -> (n,) classes; None where a label is missing
    network : PaperNetwork or ModernNetwork (the default)
    training : None for what suits the network
    held_out : frames and labels of classes that the training does not see; their error rate in the first view
        chooses the epoch. Without it the last epoch is kept.
    verbose : a line per epoch on standard error

    Raises
    ------
    NumericalError
        The loss is not finite.

    Examples
    --------
    >>> import numpy as np
    >>> from mvplda.speech.frames import FeatureSet
    >>> from mvplda.speech.networks import ModernNetwork, Training, train
    >>> rng = np.random.default_rng(0)
    >>> speaker, phrase = np.arange(40) % 4, np.arange(40) // 4 % 2
    >>> frames = rng.normal(size=(40 * 20, 6)).astype(np.float32)
    >>> frames[:, 0] += np.repeat(speaker, 20)
    >>> features = FeatureSet(np.arange(40).astype(str), frames, 20 * np.arange(41))
    >>> small = ModernNetwork(channels=8, dilations=(1,), pooled=8, attention=4, embedding=4)
    >>> trained = train(features, {"speaker": speaker, "phrase": phrase}, small, Training(epochs=2))
    >>> trained.extract(features).shape
    (40, 20)
    """
    network = ModernNetwork() if network is None else network
    training = network.usual_training() if training is None else training
    check_features(features)
    codes, classes = number_classes(labels, len(features))
    monitor = None
    if held_out is not None:
        monitor = Monitor.of(*held_out, list(classes), training.random_state)
    device = choose_device(training.device)
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(training.random_state)
        sizes = {view: len(names) for view, names in classes.items()}
        run = _Run(features, codes, sizes, network, training, device)
        history = run.fit(monitor, verbose)
    body = run.body.to("cpu").eval()
    return TrainedNetwork(network, body, classes, history, tuple(run.health))


@dataclass(frozen=True)
class Monitor:
    """Held-out utterances and their class numbers (n, K); the first view's error chooses the epoch."""

    features: FeatureSet
    codes: IntArray
    view: str

    @classmethod
    def of(
        cls, features: FeatureSet, labels: Labels, views: list[str], random_state: int
    ) -> Monitor:
        check_features(features)
        chosen = np.random.default_rng([random_state, 3]).permutation(len(features))[:MOST]
        rows = np.sort(chosen)
        columns = [
            np.unique([str(v) for v in labels[view]], return_inverse=True)[1] for view in views
        ]
        codes = np.stack(columns, axis=1)[rows].astype(np.int64)
        if math.isnan(held_out_eer(np.zeros((len(rows), len(rows))), codes)):
            raise LabelError(
                f"the held-out utterances have no two of one class, or one class only, in view {views[0]!r}"
            )
        return cls(features.take(rows), codes, views[0])

    def error(self, body: Body, device: torch.device) -> float:
        """EER of the first view by the cosine of centred vectors."""
        X = extract_vectors(body, self.features, device).astype(np.float64)
        X -= X.mean(axis=0)
        X /= np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1e-12)
        return held_out_eer(X @ X.T, self.codes)


def held_out_eer(scores: FloatArray, codes: IntArray) -> float:
    """EER of the first view, the others shared: same cell against another class of that view only.

    Where no two vectors share all other views, every pair counts. NaN where there are no
    pairs of one kind.
    """
    first, second = np.triu_indices(len(codes), k=1)
    same = codes[first] == codes[second]
    others = same[:, 1:].all(axis=1)
    if not (others & same[:, 0]).any() or not (others & ~same[:, 0]).any():
        others = np.ones_like(others)
    values = scores[first, second]
    targets = values[others & same[:, 0]]
    nontargets = values[others & ~same[:, 0]]
    if not len(targets) or not len(nontargets):
        return math.nan
    return eer(targets, nontargets)


class _Run:
    """The moving parts of one training."""

    def __init__(
        self,
        features: FeatureSet,
        codes: IntArray,
        classes: dict[str, int],
        network: NetworkSettings,
        training: Training,
        device: torch.device,
    ) -> None:
        self.network = network
        self.training = training
        self.device = device
        self.views = list(classes)
        self.key = _training_key(features, codes, network, training) if training.checkpoint else ""
        self.body = network.build(features.dimension)
        shift, deviation = (torch.from_numpy(part) for part in frame_statistics(features))
        self.body.shift.copy_(shift)
        self.body.deviation.copy_(deviation)
        self.heads = network.heads(self.body.embedding, classes)
        self.body.to(device)
        self.heads.to(device)
        frames = torch.from_numpy(np.ascontiguousarray(features.frames, dtype=np.float32))
        frames = ((frames - shift) / deviation).to(device)
        self.source = network.batches(features, frames, codes, training, device)
        self.step = Step(self.body, self.heads, training, device)
        self.history: list[dict[str, Any]] = []
        self.best: dict[str, Any] | None = None
        self.health: list[dict[str, Any]] = []

    def fit(self, monitor: Monitor | None, verbose: bool) -> tuple[Mapping[str, Any], ...]:
        """Epochs from the checkpoint, if there is one, to the last or to the end of patience."""
        self._resume()
        if not self.history:
            self.health = self.network.prepare(self.body, self.source, self.training, verbose)
        line = Progress("epoch", self.training.epochs) if verbose else None
        while len(self.history) < self.training.epochs and not self._patience_ended():
            record = self._epoch(len(self.history))
            lowest = min(self._errors(), default=math.inf)
            if monitor is not None:
                record["held_out_eer"] = monitor.error(self.body, self.device)
                if record["held_out_eer"] < lowest:
                    self.best = copy.deepcopy(self.body.state_dict())
            self.history.append(record)
            self._checkpoint()
            if line is not None:
                line.step(len(self.history), _line(record))
        if line is not None and len(self.history) < self.training.epochs:
            line.close()
        if self.best is not None:
            self.body.load_state_dict(self.best)
        return tuple(self.history)

    def _epoch(self, number: int) -> dict[str, Any]:
        """One pass over the data; nothing waits for the device until its end."""
        started = time.monotonic()
        # every epoch has a seed of its own: one that was resumed is the same as one that was not
        torch.manual_seed(1_000_003 * self.training.random_state + number + 1)
        rng = np.random.default_rng([self.training.random_state, 4, number])
        steps = len(self.source)
        self.step.start()
        for number_of_step, (inputs, codes) in enumerate(self.source.epoch(rng)):
            done = (number + number_of_step / steps) / self.training.epochs
            self.step.set_rate(rate_at(self.training, done))
            self.step(inputs, codes, self._margin_share(done))
        loss = float(self.step.loss) / steps
        if not math.isfinite(loss):
            raise NumericalError(
                f"the loss is {loss} in epoch {number + 1}: lower learning_rate (now "
                f"{self.training.learning_rate:g}), or set clip"
            )
        shares = (self.step.right / self.step.counted.clamp(min=1)).tolist()
        return {
            "epoch": number + 1,
            "loss": loss,
            "accuracy": dict(zip(self.views, shares, strict=True)),
            "seconds": time.monotonic() - started,
        }

    def _margin_share(self, done: float) -> float:
        warmup = self.network.margin_warmup
        return min(1.0, done / warmup) if warmup else 1.0

    def _errors(self) -> list[float]:
        return [record["held_out_eer"] for record in self.history if "held_out_eer" in record]

    def _patience_ended(self) -> bool:
        errors = self._errors()
        if self.training.patience is None or not errors:
            return False
        return len(errors) - 1 - int(np.argmin(errors)) >= self.training.patience

    def _checkpoint(self) -> None:
        if self.training.checkpoint is None:
            return
        state = {
            "format": CHECKPOINT,
            "key": self.key,
            "body": self.body.state_dict(),
            "heads": self.heads.state_dict(),
            "optimiser": self.step.optimiser.state_dict(),
            "best": self.best,
            "history": self.history,
            "health": self.health,
        }
        stream = io.BytesIO()
        torch.save(state, stream)
        write_atomically(self.training.checkpoint, stream.getvalue())

    def _resume(self) -> None:
        path = self.training.checkpoint
        if path is None or not Path(path).is_file():
            return
        try:
            state = torch.load(path, map_location="cpu", weights_only=True)
            known = isinstance(state, dict) and state.get("format") == CHECKPOINT
        except Exception as error:  # torch raises what its parts raise: pickle, zip, runtime errors
            raise FileFormatError(f"{path} is truncated or no checkpoint: remove it") from error
        if not known:
            raise FileFormatError(f"{path} is no checkpoint of a training: remove it")
        if state["key"] != self.key:
            raise ParameterError(
                f"the checkpoint {path} is of a training with other data or settings: give another path, or "
                "remove it"
            )
        self.body.load_state_dict(state["body"])
        self.heads.load_state_dict(state["heads"])
        self.step.optimiser.load_state_dict(state["optimiser"])
        self.best = state["best"]
        self.history = list(state["history"])
        self.health = list(state["health"])


class Step:
    """Forward, backward, optimise; sums of losses and hits stay on the device until the epoch ends."""

    def __init__(self, body: Body, heads: Heads, training: Training, device: torch.device) -> None:
        self.body = body
        self.heads = heads
        self.training = training
        self.device = device
        self.optimiser = new_optimiser(nn.ModuleList([body, heads]), training, device)
        self.loss = torch.zeros((), device=device)
        self.right = torch.zeros(len(heads.views), dtype=torch.int64, device=device)
        self.counted = torch.zeros_like(self.right)

    def set_rate(self, rate: float) -> None:
        for group in self.optimiser.param_groups:
            group["lr"] = rate

    def start(self) -> None:
        """Begin an epoch."""
        self.body.train()
        self.heads.train()
        for total in (self.loss, self.right, self.counted):
            total.zero_()

    def __call__(self, inputs: Inputs, codes: Tensor, margin_share: float) -> None:
        mixed = self.device.type == "cuda"
        with torch.autocast(
            self.device.type, dtype=torch.bfloat16, enabled=mixed, cache_enabled=False
        ):
            embedding = self.body.embed(*inputs)
        loss, hits, known = self.heads(embedding, codes, margin_share)
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        if self.training.clip is not None:
            parameters = [*self.body.parameters(), *self.heads.parameters()]
            nn.utils.clip_grad_norm_(parameters, self.training.clip)
        self.optimiser.step()
        self.loss += loss.detach()
        self.right += hits
        self.counted += known


def new_optimiser(
    model: nn.Module, training: Training, device: torch.device
) -> torch.optim.Optimizer:
    """Weights decay; biases and normalisations do not."""
    decayed = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim <= 1]
    groups = [
        {"params": decayed, "weight_decay": training.weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    rate = training.learning_rate
    fused = device.type == "cuda"
    if training.optimiser == "sgd":
        return torch.optim.SGD(groups, lr=rate, momentum=training.momentum, fused=fused)
    return torch.optim.AdamW(groups, lr=rate, betas=(training.momentum, 0.999), fused=fused)


def rate_at(training: Training, done: float) -> float:
    """The learning rate when this share of all steps is done."""
    if done < training.warmup:
        return training.learning_rate * max(done / training.warmup, 1e-3)
    left = (done - training.warmup) / (1 - training.warmup)
    if training.schedule == "constant":
        return training.learning_rate
    if training.schedule == "linear":
        return training.learning_rate * (1 - left)
    return training.learning_rate * 0.5 * (1 + math.cos(math.pi * left))


def _line(record: Mapping[str, Any]) -> str:
    parts = [f"loss {record['loss']:.4f}"]
    parts += [f"{view} {share:.3f}" for view, share in record["accuracy"].items()]
    if "held_out_eer" in record:
        parts.append(f"held-out EER {100 * record['held_out_eer']:.2f} %")
    return "  ".join(parts)


def _training_key(
    features: FeatureSet, codes: IntArray, network: NetworkSettings, training: Training
) -> str:
    """What must be the same for a checkpoint to be of this training."""
    settings = {name: value for name, value in training.to_dict().items() if name not in FREE}
    digest = hashlib.sha256(json.dumps([network.to_dict(), settings]).encode())
    for array in (codes, features.offsets, features.frames):
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
