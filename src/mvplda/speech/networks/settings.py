"""What a network is and how it is trained; every kind of network, by its name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeVar

from ...exceptions import ParameterError
from ...extractors.recipe import Features
from ..settings import Settings, number

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from ..._typing import IntArray
    from ..frames import FeatureSet
    from .batches import Batches, Body
    from .modern import Heads


@dataclass(frozen=True)
class Training(Settings):
    """How a network is trained; `NetworkSettings.usual_training` has what suits each kind of network.

    Attributes
    ----------
    epochs : at most so many
    batch : utterances of a step; frames, for the paper's network
    optimiser, learning_rate, momentum, weight_decay : of each step; momentum is Adam's first beta
    schedule : "constant", "linear" (to 0) or "cosine" (to 0)
    warmup : share of the steps over which the rate grows from 0
    clip : longest gradient, None for any
    random_state : the same one, the same data, same device kind and number of threads give the same network
    device : "auto" takes the GPU, and bfloat16 products there, where there is one
    hold_out : share of the first view's classes that are kept out; their error chooses the epoch
    patience : epochs without a better held-out error before the end, None for all epochs
    voices : speeds; every training speaker at each of them is one more speaker
    noise : standard deviation of what is added to every standardised number
    crop : an utterance loses at most this share of its frames, at random ends
    time_masks : stretches of up to a tenth of an utterance that are blanked
    checkpoint : file to continue from, written after every epoch
    """

    epochs: int = number(30, 1)
    batch: int = number(64, 1)
    optimiser: Literal["sgd", "adamw"] = "adamw"
    learning_rate: float = number(2e-3, 1e-12)
    momentum: float = number(0.9, 0, 1)
    weight_decay: float = number(0.05, 0)
    schedule: Literal["constant", "linear", "cosine"] = "cosine"
    warmup: float = number(0.1, 0, 1)
    clip: float | None = number(5.0, 1e-12)
    random_state: int = number(0, 0)
    device: str = "auto"
    hold_out: float = number(0.0, 0, 1)
    patience: int | None = number(None, 1)
    voices: tuple[float, ...] = ()
    noise: float = number(0.0, 0)
    crop: float = number(0.0, 0, 1)
    time_masks: int = number(0, 0)
    checkpoint: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not all(0.5 <= speed <= 2 and speed != 1 for speed in self.voices):
            raise ParameterError(f"voices are speeds from 0.5 to 2 other than 1; got {self.voices}")


class NetworkSettings(Settings):
    """A kind of network: its settings, and how it is built, fed and prepared.

    A new kind is a frozen dataclass that descends from this one and is registered with
    `register_network`; what it does not define is as here."""

    kind: ClassVar[str] = ""
    margin_warmup: float = 0.0

    def usual_features(self) -> Features:
        """The frames that suit it."""
        return Features(bins=64)

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

        return UtteranceBatches(features, frames, codes, training, device)

    def prepare(
        self, body: Any, source: Any, training: Training, verbose: bool
    ) -> list[dict[str, Any]]:
        """What is done before the first epoch, and the health of what came of it."""
        return []

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, **super().to_dict()}

    @classmethod
    def from_dict(cls, values: Any) -> Self:
        """The settings of `to_dict`, of the kind that they name."""
        if isinstance(values, NetworkSettings):
            return values  # type: ignore[return-value]
        plain = dict(values)
        kind = plain.pop("kind", "modern")
        if kind not in NETWORKS:
            raise ParameterError(f"kind is one of {', '.join(NETWORKS)}; got {kind!r}")
        return super(NetworkSettings, NETWORKS[kind]).from_dict(plain)  # type: ignore[return-value]


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

    The frames are standardised, so the Gaussian units of the first machine have variance 1; its rate is small
    because they are not bounded. What makes deeper layers constant is a layer below that hardly varies: the next
    machine then learns its mean only. Hence a start whose units vary as the data do, and gradients about the means.

    Attributes
    ----------
    gaussian_epochs, gaussian_rate : of the first machine
    epochs, rate : of the others
    batch : frames of a step
    momentum, weight_decay : of every machine
    """

    gaussian_epochs: int = number(10, 1)
    gaussian_rate: float = number(0.001, 1e-12)
    epochs: int = number(5, 1)
    rate: float = number(0.02, 1e-12)
    batch: int = number(256, 1)
    momentum: float = number(0.9, 0, 1)
    weight_decay: float = number(2e-4, 0, 1)


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

    hidden: int = number(2048, 1)
    layers: int = number(6, 1)
    context: int = number(5, 0)
    start_scale: float = number(4.0, 1e-12)
    pretraining: Pretraining | None = None

    def usual_features(self) -> Features:
        """39 cepstral features: 13, with deltas and delta-deltas, mean and variance normalised."""
        return Features(kind="mfcc", bins=23, normalisation="mean+variance")

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

        return FrameBatches(features, frames, codes, self.context, training, device)

    def prepare(
        self, body: Any, source: Any, training: Training, verbose: bool
    ) -> list[dict[str, Any]]:
        from .paper import pretrain

        if self.pretraining is None:
            return []
        health = pretrain(body, source, self.pretraining, training.random_state, verbose=verbose)
        return [asdict(layer) for layer in health]


@register_network
@dataclass(frozen=True)
class ModernNetwork(NetworkSettings):
    """Residual convolutions over time, attentive statistics, one embedding, a head for every view.

    The vector is the embedding with the pooled statistics beside it: the embedding keeps what tells the training
    classes apart, the statistics what may tell others.

    Attributes
    ----------
    channels : of every block
    dilations : of the convolutions, one per block of two
    pooled : channels that are pooled; their mean and deviation are 2 x as many dimensions
    attention : hidden units of the attention over frames
    embedding : width of the embedding
    dropout : of the pooled statistics
    margin, scale : of the angular margin that the view speaker, or else the first view, has
    margin_warmup : share of the training over which the margin grows from 0
    """

    kind: ClassVar[str] = "modern"

    channels: int = number(128, 1)
    dilations: tuple[int, ...] = (1, 2, 3)
    pooled: int = number(256, 1)
    attention: int = number(64, 1)
    embedding: int = number(256, 1)
    dropout: float = number(0.2, 0, 1)
    margin: float = number(0.2, 0)
    scale: float = number(20.0, 1e-12)
    margin_warmup: float = number(0.5, 0, 1)

    def usual_training(self) -> Training:
        return Training(noise=0.2, crop=0.1, time_masks=1)

    def build(self, width: int) -> Body:
        from .modern import ModernBody

        return ModernBody(self, width)

    def heads(self, width: int, classes: Mapping[str, int]) -> Heads:
        from .modern import Heads

        view = "speaker" if "speaker" in classes else next(iter(classes))
        return Heads(width, classes, {view: self.margin}, self.scale)
