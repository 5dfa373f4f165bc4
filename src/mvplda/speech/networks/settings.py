"""What a network is and how it is trained: plain records, to and from a dict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, TypeAlias

from ..._validation import at_least, known_names, positive, share
from ...exceptions import ParameterError


@dataclass(frozen=True)
class Pretraining:
    """Restricted Boltzmann machines, layer by layer, by contrastive divergence.

    The frames are standardised, so the Gaussian units of the first machine have
    variance 1; its rate is small because they are not bounded. What makes deeper
    layers constant is a layer below that hardly varies: the next machine then
    learns its mean only, and its reconstruction looks perfect. Hence a start whose
    units vary as the data do (``start_deviation``), and gradients about the means
    (``centred``).

    Attributes
    ----------
    gaussian_epochs, gaussian_rate : of the first machine
    epochs, rate : of the others
    batch : frames a step
    steps : k of CD-k
    momentum, weight_decay : of every machine
    start : standard deviation of the first weights (0.01 is the usual one); None for what gives a
        unit's input the ``start_deviation`` over the frames
    start_deviation : see there
    centred : take gradients about the running means of both layers
    """

    gaussian_epochs: int = 10
    gaussian_rate: float = 0.001
    epochs: int = 5
    rate: float = 0.02
    batch: int = 256
    steps: int = 1
    momentum: float = 0.9
    weight_decay: float = 2e-4
    start: float | None = None
    start_deviation: float = 1.0
    centred: bool = True

    def __post_init__(self) -> None:
        at_least(self, 1, "gaussian_epochs", "epochs", "batch", "steps")
        positive(self, "gaussian_rate", "rate", "start_deviation", *(["start"] if self.start is not None else []))
        share(self, "momentum", "weight_decay")


@dataclass(frozen=True)
class PaperNetwork:
    """The paper's: sigmoid layers on stacked frames; the vector is the last layer's mean over an utterance.

    Attributes
    ----------
    hidden, layers : 6 layers of 2048 units
    context : frames before and after that are stacked; edges are repeated
    start_scale : times Glorot's uniform start; 4 is what sigmoids ask for
    pretraining : None, or how the layers' machines are trained first
    """

    hidden: int = 2048
    layers: int = 6
    context: tuple[int, int] = (5, 5)
    start_scale: float = 4.0
    pretraining: Pretraining | None = None

    def __post_init__(self) -> None:
        at_least(self, 1, "hidden", "layers")
        positive(self, "start_scale")
        if len(self.context) != 2 or min(self.context) < 0:
            raise ParameterError(f"context is two counts of frames, before and after; got {self.context!r}")


@dataclass(frozen=True)
class ModernNetwork:
    """Convolutions over time, attentive statistics, one embedding, a head for every view.

    Attributes
    ----------
    block : "residual" (two convolutions and a short cut) or "tdnn" (one convolution)
    channels : of every block
    kernel, dilations : of the convolutions; one dilation a block
    pooled : channels that are pooled; their mean and deviation are 2 x as many numbers
    attention : hidden units of the attention over frames
    embedding : width of the embedding
    split : every view's head sees its own part of the embedding, instead of all of it
    output : the vector: "embedding", or "embedding+pooled", with the pooled statistics beside it: the
        embedding keeps what tells the training classes apart, the statistics what may tell others
    dropout : of the pooled statistics
    margin_views : views that get an angular margin, the others get a plain softmax; None for the view
        called speaker or, where there is none, the first
    margin, scale : of the angular margin
    margin_warmup : share of the training over which the margin grows from 0
    label_smoothing : of every head
    loss_weights : of views, 1 where none is given
    """

    block: Literal["residual", "tdnn"] = "residual"
    channels: int = 128
    kernel: int = 3
    dilations: tuple[int, ...] = (1, 2, 3)
    pooled: int = 256
    attention: int = 64
    embedding: int = 256
    split: bool = False
    output: Literal["embedding", "embedding+pooled"] = "embedding+pooled"
    dropout: float = 0.2
    margin_views: tuple[str, ...] | None = None
    margin: float = 0.2
    scale: float = 20.0
    margin_warmup: float = 0.5
    label_smoothing: float = 0.0
    loss_weights: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        at_least(self, 1, "channels", "kernel", "pooled", "attention", "embedding")
        positive(self, "scale")
        share(self, "dropout", "margin_warmup", "label_smoothing")
        if self.block not in ("residual", "tdnn"):
            raise ParameterError(f"block is residual or tdnn; got {self.block!r}")
        if self.output not in ("embedding", "embedding+pooled"):
            raise ParameterError(f"output is embedding or embedding+pooled; got {self.output!r}")
        if self.kernel % 2 == 0:
            raise ParameterError(f"kernel is odd, so that a frame stays in the middle; got {self.kernel}")
        if not self.dilations or min(self.dilations) < 1:
            raise ParameterError(f"dilations are positive counts, one a block; got {self.dilations!r}")
        if self.margin < 0:
            raise ParameterError(f"margin is an angle from 0; got {self.margin}")


@dataclass(frozen=True)
class FrameAugmentation:
    """Changes of the standardised frames, drawn anew for every batch.

    Attributes
    ----------
    noise : standard deviation of what is added to every number
    crop : an utterance loses at most this share of its frames, at random ends
    stretch : time runs faster or slower by up to this share (frames are interpolated)
    time_masks, time_mask : how many stretches are blanked, each up to this share of the utterance
    frequency_masks, frequency_mask : how many bands are blanked, each up to so many features
    """

    noise: float = 0.0
    crop: float = 0.0
    stretch: float = 0.0
    time_masks: int = 0
    time_mask: float = 0.1
    frequency_masks: int = 0
    frequency_mask: int = 5

    def __post_init__(self) -> None:
        at_least(self, 0, "noise", "time_masks", "frequency_masks", "frequency_mask")
        share(self, "crop", "stretch", "time_mask")


@dataclass(frozen=True)
class Training:
    """How a network is trained; `default_training` has what suits each kind of network.

    Attributes
    ----------
    epochs : at most so many
    batch : utterances a step; frames, for the paper's network
    optimiser, learning_rate, momentum, weight_decay : of each step; momentum is Adam's first beta
    schedule : "constant", "linear" (to 0) or "cosine" (to 0)
    warmup : share of the steps over which the rate grows from 0
    clip : longest gradient, None for any
    random_state : the same one, the same data, same device kind and number of threads give the same network
    device, precision : "auto" takes the GPU and bfloat16 products where there is one
    hold_out : share of the monitored view's classes that are kept out, to stop early by
    monitor : the view whose error is watched, None for the first
    criterion : "cosine" of centred vectors, or "plda" trained on the training vectors' cells
    patience : epochs without a better held-out error before the end, None for all epochs
    augmentation : of the frames
    checkpoint, checkpoint_every : file to continue from, and how many epochs lie between two writes
    """

    epochs: int = 30
    batch: int = 64
    optimiser: Literal["sgd", "adamw"] = "adamw"
    learning_rate: float = 2e-3
    momentum: float = 0.9
    weight_decay: float = 0.05
    schedule: Literal["constant", "linear", "cosine"] = "cosine"
    warmup: float = 0.1
    clip: float | None = 5.0
    random_state: int = 0
    device: str = "auto"
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    hold_out: float = 0.0
    monitor: str | None = None
    criterion: Literal["cosine", "plda"] = "cosine"
    patience: int | None = None
    augmentation: FrameAugmentation = field(default_factory=FrameAugmentation)
    checkpoint: str | None = None
    checkpoint_every: int = 1

    def __post_init__(self) -> None:
        at_least(self, 1, "epochs", "batch", "checkpoint_every")
        positive(self, "learning_rate", *(["clip"] if self.clip is not None else []))
        share(self, "momentum", "warmup", "hold_out")
        at_least(self, 0, "weight_decay", "random_state")
        for name, allowed in (
            ("optimiser", ("sgd", "adamw")),
            ("schedule", ("constant", "linear", "cosine")),
            ("precision", ("auto", "float32", "bfloat16")),
            ("criterion", ("cosine", "plda")),
        ):
            if getattr(self, name) not in allowed:
                raise ParameterError(f"{name} is {', '.join(allowed)}; got {getattr(self, name)!r}")


NetworkSettings: TypeAlias = PaperNetwork | ModernNetwork
KINDS: dict[str, type[Any]] = {"paper": PaperNetwork, "modern": ModernNetwork}

PAPER_TRAINING = Training(
    epochs=30,
    batch=256,
    optimiser="sgd",
    learning_rate=0.01,
    weight_decay=0.0,
    schedule="linear",
    warmup=0.0,
    clip=None,
)
MODERN_TRAINING = Training(augmentation=FrameAugmentation(noise=0.2, crop=0.1, time_masks=1))
"""Bands of cepstra are no bands of frequency: masks of them, and a stretched time, cost more than they gave."""


def default_training(network: NetworkSettings, **changes: Any) -> Training:
    """What suits this kind of network, with changes.

    Examples
    --------
    >>> from mvplda.speech.networks import PaperNetwork, default_training
    >>> default_training(PaperNetwork(), epochs=10).optimiser
    'sgd'
    """
    start = PAPER_TRAINING if isinstance(network, PaperNetwork) else MODERN_TRAINING
    return replace(start, **changes)


def kind_of(network: NetworkSettings) -> str:
    """The name of a kind of network: paper or modern."""
    for kind, settings in KINDS.items():
        if isinstance(network, settings):
            return kind
    raise ParameterError(f"a network is PaperNetwork or ModernNetwork; got {type(network).__name__}")


def network_to_dict(network: NetworkSettings) -> dict[str, Any]:
    """Settings as plain values, with their kind."""
    return {"kind": kind_of(network), **asdict(network)}


def network_from_dict(plain: Mapping[str, Any]) -> NetworkSettings:
    """The settings that `network_to_dict` made plain."""
    values = dict(plain)
    kind = values.pop("kind", None)
    if kind not in KINDS:
        raise ParameterError(f"the kind of a network is {' or '.join(KINDS)}; got {kind!r}")
    network: NetworkSettings = _record(KINDS[kind], values)
    return network


def training_to_dict(training: Training) -> dict[str, Any]:
    """Settings as plain values."""
    return asdict(training)


def training_from_dict(plain: Mapping[str, Any]) -> Training:
    """The settings that `training_to_dict` made plain; what is left out has its default."""
    training: Training = _record(Training, plain)
    return training


_NESTED: dict[str, type[Any]] = {"pretraining": Pretraining, "augmentation": FrameAugmentation}


def _record(kind: type[Any], plain: Mapping[str, Any]) -> Any:
    known_names(kind, plain)
    values: dict[str, Any] = {}
    for name, value in plain.items():
        if name in _NESTED and isinstance(value, Mapping):
            value = _record(_NESTED[name], value)
        values[name] = tuple(value) if isinstance(value, list) else value
    return kind(**values)
