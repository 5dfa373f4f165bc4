"""One loop for every network: batches, steps, held-out error, the best kept."""

from __future__ import annotations

import copy
import hashlib
import io
import math
import os
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..._progress import Progress
from ..._typing import FloatArray, IntArray
from ...exceptions import FileFormatError, LabelError, NumericalError, ParameterError
from ...metrics import eer
from ...persistence import write_atomically
from ..features.store import FeatureSet
from .batches import (
    Body,
    Inputs,
    Labels,
    Tensor,
    check_features,
    choose_device,
    frame_statistics,
    hold_out_rows,
    nn,
    number_classes,
    standardised,
    take_labels,
    torch,
)
from .extractor import Extractor, extract_vectors
from .modern import Heads
from .settings import ModernNetwork, NetworkSettings, Training, default_training

HeldOut = tuple[FeatureSet, Labels]


def train(
    features: FeatureSet,
    labels: Labels,
    network: NetworkSettings | None = None,
    training: Training | None = None,
    *,
    held_out: HeldOut | None = None,
    feature_settings: Mapping[str, Any] | None = None,
    verbose: bool = False,
) -> Extractor:
    """Train a network on the labels of all views at once, and give the extractor.

    Parameters
    ----------
    features : frames of n utterances
    labels : view -> (n,) classes; None where a label is missing
    network : PaperNetwork or ModernNetwork (the default)
    training : None for what suits the network
    held_out : frames and labels of classes that the training does not see. Their error rate
        chooses the epoch. Without it, ``training.hold_out`` says which share of the monitored
        view's classes is taken out of ``features``; 0 for none, and then the last epoch is kept.
    feature_settings : how the frames were made, kept with the extractor; None for what the set says
    verbose : a line an epoch on standard error

    Returns
    -------
    Extractor
        Of the epoch with the lowest held-out error; its ``history`` has every epoch.

    Raises
    ------
    NumericalError
        The loss is not finite.

    Examples
    --------
    >>> import numpy as np
    >>> from mvplda.speech.features.store import FeatureSet
    >>> from mvplda.speech.networks import ModernNetwork, Training, train
    >>> rng = np.random.default_rng(0)
    >>> speaker, phrase = np.arange(40) % 4, np.arange(40) // 4 % 2
    >>> frames = rng.normal(size=(40 * 20, 6)).astype(np.float32)
    >>> frames[:, 0] += np.repeat(speaker, 20)
    >>> frames[:, 1] += np.repeat(phrase, 20)
    >>> features = FeatureSet(np.arange(40).astype(str), frames, 20 * np.arange(41))
    >>> small = ModernNetwork(channels=8, dilations=(1,), pooled=8, attention=4, embedding=4)
    >>> extractor = train(features, {"speaker": speaker, "phrase": phrase}, small, Training(epochs=2))
    >>> extractor.extract(features).shape
    (40, 20)
    """
    network = ModernNetwork() if network is None else network
    training = default_training(network) if training is None else training
    check_features(features)
    monitor = next(iter(labels), "") if training.monitor is None else training.monitor
    if monitor not in labels:
        raise LabelError(f"there is no view {monitor!r} to monitor; the labels have {list(labels)}")
    number_classes(labels, len(features))
    if held_out is None and training.hold_out:
        stay, out = hold_out_rows(labels, monitor, training.hold_out, training.random_state)
        held_out = features.take(out), take_labels(labels, out)
        features, labels = features.take(stay), take_labels(labels, stay)
    codes, classes = number_classes(labels, len(features))
    watched = (
        None
        if held_out is None
        else _watched(held_out, list(classes), monitor, features, codes, training)
    )

    device = choose_device(training.device)
    here = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=here):
        torch.manual_seed(training.random_state)
        run = _Run(
            features,
            codes,
            {view: len(names) for view, names in classes.items()},
            network,
            training,
            device,
        )
        history = run.fit(watched, verbose)
    run.body.to("cpu").eval()
    if feature_settings is None:
        feature_settings = {} if features.settings is None else features.settings.to_dict()
    settings = dict(feature_settings), classes, training.to_dict()
    return Extractor(network, run.body, *settings, history, tuple(run.health))


@dataclass(frozen=True)
class _Watched:
    """Held-out utterances, and some of the training's for a back-end; which view's error counts."""

    features: FeatureSet
    codes: IntArray
    view: int
    name: str
    criterion: str
    own: FeatureSet
    own_codes: IntArray

    def error(self, body: Body, device: torch.device) -> float:
        vectors = extract_vectors(body, self.features, device)
        if self.criterion == "plda":
            scores = plda_scores(vectors, extract_vectors(body, self.own, device), self.own_codes)
        else:
            scores = cosine_scores(vectors)
        return held_out_eer(scores, self.codes, self.view)


def _watched(
    held_out: HeldOut,
    views: list[str],
    monitor: str,
    features: FeatureSet,
    codes: IntArray,
    training: Training,
) -> _Watched:
    found, labels = held_out
    check_features(found, features.dimension)
    missing = [view for view in views if view not in labels]
    if missing:
        raise LabelError(
            f"the held-out labels have no view {missing[0]!r}; they have {list(labels)}"
        )
    rows = some_rows(len(found), training.random_state)
    columns = [np.unique([str(v) for v in labels[view]], return_inverse=True)[1] for view in views]
    numbers = np.stack(columns, axis=1)[rows].astype(np.int64)
    own = some_rows(len(features), training.random_state, most=4000)
    watched = _Watched(
        found.take(rows),
        numbers,
        views.index(monitor),
        monitor,
        training.criterion,
        features.take(own),
        codes[own],
    )
    if math.isnan(held_out_eer(np.zeros((len(rows), len(rows))), numbers, watched.view)):
        raise LabelError(
            f"the held-out utterances have no two of one class, or one class only, in view {monitor!r}"
        )
    return watched


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
        self.network, self.training, self.device, self.views = (
            network,
            training,
            device,
            list(classes),
        )
        self.setting = setting_of(features, codes, network, training) if training.checkpoint else {}
        self.body = network.build(features.dimension)
        shift, deviation = (torch.from_numpy(part) for part in frame_statistics(features))
        self.body.shift.copy_(shift)
        self.body.deviation.copy_(deviation)
        self.heads = network.heads(self.body.embedding, classes)
        self.body.to(device)
        self.heads.to(device)
        frames = standardised(features, shift, deviation, device)
        self.source = network.batches(features, frames, codes, training, device)
        self.step = Step(self.body, self.heads, training, device)
        self.history: list[dict[str, Any]] = []
        self.best: dict[str, Any] | None = None
        self.health: list[dict[str, Any]] = []

    def fit(self, watched: _Watched | None, verbose: bool) -> tuple[Mapping[str, Any], ...]:
        """Epochs from the checkpoint, if there is one, to the last or to the end of patience."""
        self._resume()
        if not self.history:
            self.health = self.network.prepare(self.body, self.source, self.training, verbose)
        line = Progress("epoch", self.training.epochs) if verbose else None
        while len(self.history) < self.training.epochs and not self._patience_ended():
            record = self._epoch(len(self.history))
            if watched is not None:
                record["held_out_eer"] = watched.error(self.body, self.device)
            self.history.append(record)
            if watched is None or record["held_out_eer"] < self._best_error(self.history[:-1]):
                self.best = None if watched is None else copy.deepcopy(self.body.state_dict())
            self._checkpoint()
            if line is not None:
                line.step(len(self.history), _shown(record, watched))
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
        loss_value = float(self.step.loss) / steps
        if not math.isfinite(loss_value):
            raise NumericalError(
                f"the loss is {loss_value} in epoch {number + 1}: lower learning_rate (now "
                f"{self.training.learning_rate:g}), set clip, or use precision='float32'"
            )
        shares = (self.step.right / self.step.counted.clamp(min=1)).tolist()
        return {
            "epoch": number + 1,
            "loss": loss_value,
            "accuracy": dict(zip(self.views, shares, strict=True)),
            "seconds": time.monotonic() - started,
        }

    def _margin_share(self, done: float) -> float:
        warmup = self.network.margin_warmup
        return min(1.0, done / warmup) if warmup else 1.0

    @staticmethod
    def _best_error(history: list[dict[str, Any]]) -> float:
        return min(
            (record["held_out_eer"] for record in history if "held_out_eer" in record),
            default=math.inf,
        )

    def _patience_ended(self) -> bool:
        errors = [record.get("held_out_eer", math.inf) for record in self.history]
        if self.training.patience is None or not errors or math.isinf(min(errors)):
            return False
        return len(errors) - 1 - int(np.argmin(errors)) >= self.training.patience

    def _checkpoint(self) -> None:
        epoch = len(self.history)
        if self.training.checkpoint is None:
            return
        if (
            epoch % self.training.checkpoint_every
            and epoch < self.training.epochs
            and not self._patience_ended()
        ):
            return
        state = {
            "body": self.body.state_dict(),
            "heads": self.heads.state_dict(),
            "optimiser": self.step.optimiser.state_dict(),
            "best": self.best,
            "history": self.history,
            "health": self.health,
        }
        write_checkpoint(self.training.checkpoint, self.setting, state)

    def _resume(self) -> None:
        if self.training.checkpoint is None:
            return
        state = read_checkpoint(self.training.checkpoint, self.setting)
        if state is not None:
            self.body.load_state_dict(state["body"])
            self.heads.load_state_dict(state["heads"])
            self.step.optimiser.load_state_dict(state["optimiser"])
            self.best, self.history, self.health = (
                state["best"],
                list(state["history"]),
                list(state["health"]),
            )


class Step:
    """Forward, backward, optimise; sums of losses and hits stay on the device until `sums` is asked."""

    def __init__(self, body: Body, heads: Heads, training: Training, device: torch.device) -> None:
        self.body, self.heads, self.training, self.device = body, heads, training, device
        self.mixed = training.precision == "bfloat16" or (
            training.precision == "auto" and device.type == "cuda"
        )
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
        with torch.autocast(
            self.device.type, dtype=torch.bfloat16, enabled=self.mixed, cache_enabled=False
        ):
            embedding = self.body.embed(*inputs)
        loss, hits, known = self.heads(embedding, codes, margin_share)
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        if self.training.clip is not None:
            nn.utils.clip_grad_norm_(
                [*self.body.parameters(), *self.heads.parameters()], self.training.clip
            )
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
    fused = device.type == "cuda"
    if training.optimiser == "sgd":
        return torch.optim.SGD(
            groups, lr=training.learning_rate, momentum=training.momentum, fused=fused
        )
    return torch.optim.AdamW(
        groups, lr=training.learning_rate, betas=(training.momentum, 0.999), fused=fused
    )


def rate_at(training: Training, done: float) -> float:
    """The learning rate when this share of all steps is done."""
    if done < training.warmup:
        return training.learning_rate * max(done / training.warmup, 1e-3)
    left = (done - training.warmup) / (1 - training.warmup)
    if training.schedule == "constant":
        return training.learning_rate
    share = 1 - left if training.schedule == "linear" else 0.5 * (1 + math.cos(math.pi * left))
    return training.learning_rate * share


def _shown(record: Mapping[str, Any], watched: _Watched | None) -> str:
    parts = [f"loss {record['loss']:.4f}"]
    parts += [f"{view} {share:.3f}" for view, share in record["accuracy"].items()]
    if watched is not None:
        parts.append(f"held-out {watched.name} EER {100 * record['held_out_eer']:.2f} %")
    return "  ".join(parts)


MOST = 2000
REDUCED = 100


def cosine_scores(X: FloatArray) -> NDArray[np.float64]:
    """(n, n) cosines of the centred vectors."""
    centred = np.asarray(X, dtype=np.float64)
    centred = centred - centred.mean(axis=0)
    centred /= np.maximum(np.linalg.norm(centred, axis=1, keepdims=True), 1e-12)
    return np.asarray(centred @ centred.T)


def plda_scores(X: FloatArray, X_train: FloatArray, codes: IntArray) -> NDArray[np.float64]:
    """(n, n) likelihood ratios of PLDA with the cell as its class, trained on the network's own vectors."""
    from ...models.multiview import PLDA
    from ...preprocessing import standard_chain

    _, cells = np.unique(codes, axis=0, return_inverse=True)
    rank = min(REDUCED, X.shape[1], len(X_train) - 1)
    chain = standard_chain(rank)
    model = PLDA(n_components=max(1, min(40, rank - 1, int(cells.max()))), max_iter=10, tol=0)
    with warnings.catch_warnings():
        # Ten iterations are enough to compare epochs by, and a young network's vectors may have few axes.
        warnings.simplefilter("ignore")
        reduced = chain.fit_transform(np.asarray(X_train, dtype=np.float64), cells.ravel())
        model.fit(reduced, cells.ravel())
    side = chain.transform(np.asarray(X, dtype=np.float64))
    return np.asarray(model.llr(model.enrol(side, np.arange(len(side))), side), dtype=np.float64)


def held_out_eer(scores: FloatArray, codes: IntArray, view: int) -> float:
    """EER of one view, the others shared: same cell against another class of the view only.

    Where no two vectors share all other views, every pair counts. NaN where there are no
    pairs of one kind.
    """
    first, second = np.triu_indices(len(codes), k=1)
    same = codes[first] == codes[second]
    others = np.delete(same, view, axis=1).all(axis=1)
    if not (others & same[:, view]).any() or not (others & ~same[:, view]).any():
        others = np.ones_like(others)
    targets = scores[first, second][others & same[:, view]]
    nontargets = scores[first, second][others & ~same[:, view]]
    return eer(targets, nontargets) if len(targets) and len(nontargets) else math.nan


def some_rows(count: int, random_state: int, most: int = MOST) -> IntArray:
    """At most so many rows, the same ones in every epoch."""
    rows = np.random.default_rng([random_state, 3]).permutation(count)[:most]
    return np.sort(rows).astype(np.int64)


FORMAT = "mvplda-jvector-checkpoint"
FREE = ("checkpoint", "checkpoint_every", "device", "patience")
"""Settings that may differ when a training goes on."""


def setting_of(
    features: FeatureSet, codes: IntArray, network: NetworkSettings, training: Training
) -> dict[str, Any]:
    """What must be the same for a checkpoint to be of this training."""
    digest = hashlib.sha256(np.ascontiguousarray(codes).tobytes())
    digest.update(np.ascontiguousarray(features.offsets).tobytes())
    digest.update(np.ascontiguousarray(features.frames).tobytes())
    plain = {f"training.{k}": v for k, v in training.to_dict().items() if k not in FREE}
    return (
        plain
        | {f"network.{k}": v for k, v in network.to_dict().items()}
        | {"data": digest.hexdigest()}
    )


def write_checkpoint(
    path: str | os.PathLike[str], setting: Mapping[str, Any], state: Mapping[str, Any]
) -> None:
    """All of the state, or nothing."""
    stream = io.BytesIO()
    torch.save({"format": FORMAT, "setting": dict(setting), **state}, stream)
    write_atomically(path, stream.getvalue())


def read_checkpoint(
    path: str | os.PathLike[str], setting: Mapping[str, Any]
) -> dict[str, Any] | None:
    """The state in a file, None where there is no file; of another training it is refused."""
    if not Path(path).is_file():
        return None
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
        if not isinstance(state, dict) or state.get("format") != FORMAT:
            raise FileFormatError(f"{path} is not a checkpoint of a j-vector training")
    except FileFormatError:
        raise
    except (
        Exception
    ) as error:  # torch raises what its parts raise: pickle, zip, runtime and end-of-file errors
        raise FileFormatError(
            f"{path} is truncated or not a checkpoint of a j-vector training: remove it to start anew"
        ) from error
    for name, value in setting.items():
        if state["setting"].get(name) != value:
            what = (
                "other data"
                if name == "data"
                else f"{name} = {state['setting'].get(name)!r}, not {value!r}"
            )
            raise ParameterError(
                f"the checkpoint {path} is of a training with {what}: give another path, or remove it"
            )
    return state
