"""What a network is and how it is trained; every kind of network, by its name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeVar

from ..features.frames import FeatureSettings
from ..settings import Count, NotNegative, Positive, Rule, Settings, Share, Tagged, Whole

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from ..._typing import IntArray
    from ..features.store import FeatureSet
    from .batches import Batches, Body
    from .modern import Heads


@dataclass(frozen=True)
class FrameAugmentation(Settings):
    """Changes of the standardised frames, drawn anew for every batch.

    Attributes
    ----------
    noise : standard deviation of what is added to every number
    crop : an utterance loses at most this share of its frames, at random ends
    stretch : time runs faster or slower by up to this share (frames are interpolated)
    time_masks, time_mask : how many stretches are blanked, each up to this share of the utterance
    frequency_masks, frequency_mask : how many bands are blanked, each up to so many features
    """

    noise: NotNegative = 0.0
    crop: Share = 0.0
    stretch: Share = 0.0
    time_masks: Whole = 0
    time_mask: Share = 0.1
    frequency_masks: Whole = 0
    frequency_mask: Whole = 5


@dataclass(frozen=True)
class Training(Settings):
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

    epochs: Count = 30
    batch: Count = 64
    optimiser: Literal["sgd", "adamw"] = "adamw"
    learning_rate: Positive = 2e-3
    momentum: Share = 0.9
    weight_decay: NotNegative = 0.05
    schedule: Literal["constant", "linear", "cosine"] = "cosine"
    warmup: Share = 0.1
    clip: Positive | None = 5.0
    random_state: Whole = 0
    device: str = "auto"
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    hold_out: Share = 0.0
    monitor: str | None = None
    criterion: Literal["cosine", "plda"] = "cosine"
    patience: int | None = None
    augmentation: FrameAugmentation = field(default_factory=FrameAugmentation)
    checkpoint: str | None = None
    checkpoint_every: Count = 1


class NetworkSettings(Tagged):
    """A kind of network: its settings, and how it is built, fed and prepared.

    A new kind is a frozen dataclass that descends from this one and is registered with
    `register_network`; what it does not define is as here."""

    margin_warmup: float = 0.0

    def usual_features(self) -> FeatureSettings:
        """The frames that suit it."""
        return FeatureSettings.fbank(64, normalisation="mean")

    def usual_training(self) -> Training:
        """The training that suits it."""
        return Training()

    def build(self, width: int) -> Body:
        """An untrained network for frames of this width."""
        raise NotImplementedError

    def heads(self, width: int, classes: Mapping[str, int]) -> Heads:
        """What training adds to an embedding of this width: a plain softmax for every view."""
        from .modern import Heads

        return Heads(width, classes)

    def batches(
        self,
        features: FeatureSet,
        frames: Tensor,
        codes: IntArray,
        training: Training,
        device: torch.device,
    ) -> Batches:
        """What an epoch sees: whole utterances."""
        from .batches import UtteranceBatches

        return UtteranceBatches(
            features, frames, codes, training.batch, device, training.augmentation
        )

    def prepare(
        self, body: Body, source: Batches, training: Training, verbose: bool
    ) -> list[dict[str, Any]]:
        """What is done before the first epoch, and the health of what came of it."""
        return []

    @classmethod
    def registered(cls) -> Mapping[str, type[NetworkSettings]]:
        return NETWORKS


NETWORKS: dict[str, type[NetworkSettings]] = {}
"""Kinds of networks by name."""

Kind = TypeVar("Kind", bound=type[NetworkSettings])


def register_network(kind: Kind) -> Kind:
    """Register a kind of network by its ``kind``."""
    NETWORKS[kind.kind] = kind
    return kind


@dataclass(frozen=True)
class Pretraining(Settings):
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

    gaussian_epochs: Count = 10
    gaussian_rate: Positive = 0.001
    epochs: Count = 5
    rate: Positive = 0.02
    batch: Count = 256
    steps: Count = 1
    momentum: Share = 0.9
    weight_decay: Share = 2e-4
    start: Positive | None = None
    start_deviation: Positive = 1.0
    centred: bool = True


@register_network
@dataclass(frozen=True)
class PaperNetwork(NetworkSettings):
    """The paper's: sigmoid layers on stacked frames; the vector is the last layer's mean over an utterance.

    Attributes
    ----------
    hidden, layers : 6 layers of 2048 units
    context : frames before and after that are stacked; edges are repeated
    start_scale : times Glorot's uniform start; 4 is what sigmoids ask for
    pretraining : None, or how the layers' machines are trained first
    """

    kind: ClassVar[str] = "paper"

    hidden: Count = 2048
    layers: Count = 6
    context: tuple[Whole, Whole] = (5, 5)
    start_scale: Positive = 4.0
    pretraining: Pretraining | None = None

    def usual_features(self) -> FeatureSettings:
        return FeatureSettings()

    def usual_training(self) -> Training:
        return Training(
            batch=256,
            optimiser="sgd",
            learning_rate=0.01,
            weight_decay=0,
            schedule="linear",
            warmup=0,
            clip=None,
        )

    def build(self, width: int) -> Body:
        from .paper import PaperBody

        return PaperBody(self, width)

    def batches(
        self,
        features: FeatureSet,
        frames: Tensor,
        codes: IntArray,
        training: Training,
        device: torch.device,
    ) -> Batches:
        from .batches import FrameBatches

        return FrameBatches(
            features, frames, codes, self.context, training.batch, device, training.augmentation
        )

    def prepare(
        self, body: Any, source: Any, training: Training, verbose: bool
    ) -> list[dict[str, Any]]:
        from .paper import pretrain

        if self.pretraining is None:
            return []
        found = pretrain(body, source, self.pretraining, training.random_state, verbose=verbose)
        return [asdict(layer) for layer in found]


@register_network
@dataclass(frozen=True)
class ModernNetwork(NetworkSettings):
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

    kind: ClassVar[str] = "modern"

    block: Literal["residual", "tdnn"] = "residual"
    channels: Count = 128
    kernel: Annotated[
        Count, Rule(lambda n: n % 2 == 1, "is odd, so that a frame stays in the middle")
    ] = 3
    dilations: Annotated[tuple[Count, ...], Rule(bool, "has one count a block")] = (1, 2, 3)
    pooled: Count = 256
    attention: Count = 64
    embedding: Count = 256
    split: bool = False
    output: Literal["embedding", "embedding+pooled"] = "embedding+pooled"
    dropout: Share = 0.2
    margin_views: tuple[str, ...] | None = None
    margin: NotNegative = 0.2
    scale: Positive = 20.0
    margin_warmup: Share = 0.5
    label_smoothing: Share = 0.0
    loss_weights: Mapping[str, float] = field(default_factory=dict)

    def usual_training(self) -> Training:
        # bands of cepstra are no bands of frequency: masks of them, and a stretched time, cost more than they gave
        return Training(augmentation=FrameAugmentation(noise=0.2, crop=0.1, time_masks=1))

    def build(self, width: int) -> Body:
        from .modern import ModernBody

        return ModernBody(self, width)

    def heads(self, width: int, classes: Mapping[str, int]) -> Heads:
        from .modern import Heads

        views = self.margin_views
        if views is None:
            views = ("speaker",) if "speaker" in classes else tuple(classes)[:1]
        margins = dict.fromkeys(views, self.margin)
        return Heads(
            width, classes, margins, self.scale, self.loss_weights, self.label_smoothing, self.split
        )


def default_training(network: NetworkSettings, **changes: Any) -> Training:
    """What suits this kind of network, with changes.

    Examples
    --------
    >>> from mvplda.speech.networks import PaperNetwork, default_training
    >>> default_training(PaperNetwork(), epochs=10).optimiser
    'sgd'
    """
    return replace(network.usual_training(), **changes)
