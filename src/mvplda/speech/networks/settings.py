"""What the paper's network is and how it is trained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..settings import Settings, number


@dataclass(frozen=True)
class Training(Settings):
    """Stochastic gradient descent with momentum, at a rate that falls linearly to 0.

    Attributes
    ----------
    epochs : passes over all frames
    batch : frames of a step
    learning_rate, momentum : of each step
    random_state : the same one, the same data, same device kind and number of threads give the same network
    device : "auto" takes the GPU, and bfloat16 products there, where there is one
    checkpoint : file to continue from, written after every epoch
    """

    epochs: int = number(20, 1)
    batch: int = number(256, 1)
    learning_rate: float = number(0.01, 1e-12)
    momentum: float = number(0.9, 0, 1)
    random_state: int = number(0, 0)
    device: str = "auto"
    checkpoint: str | None = None


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


@dataclass(frozen=True)
class PaperNetwork(Settings):
    """Sigmoid layers on stacked frames; the vector is the last layer's mean over an utterance.

    Attributes
    ----------
    hidden, layers : 6 layers of 2048 units
    context : frames before and after that are stacked; edges are repeated
    start_scale : times Glorot's uniform start; 4 is what sigmoids ask for
    pretraining : None, or how the layers' machines are trained first
    """

    hidden: int = number(2048, 1)
    layers: int = number(6, 1)
    context: int = number(5, 0)
    start_scale: float = number(4.0, 1e-12)
    pretraining: Pretraining | None = None

    @property
    def weights(self) -> int:
        """Between hidden layers."""
        return (self.layers - 1) * self.hidden**2

    def __post_init__(self) -> None:
        if isinstance(self.pretraining, Mapping):
            object.__setattr__(self, "pretraining", Pretraining.from_dict(self.pretraining))
        super().__post_init__()
