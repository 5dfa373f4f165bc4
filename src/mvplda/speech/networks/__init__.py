"""From frames to one vector per utterance: the paper's network, trained on several labels at once.

settings : what the network is and how it is trained
paper : its layers, and a softmax for every view
pretraining : restricted Boltzmann machines, layer by layer
training : the loop
export : the trained network as an extractor, an ONNX graph with its recipe

torch is imported when something that needs it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..._optional import import_late
from .settings import PaperNetwork, Pretraining, Training

if TYPE_CHECKING:
    from .export import write_extractor
    from .training import TrainedNetwork, train

__all__ = [
    "PaperNetwork",
    "Pretraining",
    "TrainedNetwork",
    "Training",
    "train",
    "write_extractor",
]

__getattr__, __dir__ = import_late(
    __name__, {"export": ("write_extractor",), "training": ("TrainedNetwork", "train")}
)
