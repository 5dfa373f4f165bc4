"""From frames to one vector per utterance: networks trained on several labels at once.

settings : what a network is and how it is trained; the registry of kinds
paper : the paper's network, and its machines layer by layer
modern : the modern network, and what training adds to it
batches, training : the loop
export : the trained network as an extractor, an ONNX graph with its recipe

torch is imported when something that needs it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..._optional import import_late
from ...exceptions import ConstantLayerWarning
from .settings import (
    NETWORKS,
    ModernNetwork,
    NetworkSettings,
    PaperNetwork,
    Pretraining,
    Training,
    register_network,
)

if TYPE_CHECKING:
    from .export import write_extractor
    from .paper import LayerHealth
    from .training import TrainedNetwork, train

__all__ = [
    "NETWORKS",
    "ConstantLayerWarning",
    "LayerHealth",
    "ModernNetwork",
    "NetworkSettings",
    "PaperNetwork",
    "Pretraining",
    "TrainedNetwork",
    "Training",
    "register_network",
    "train",
    "write_extractor",
]

__getattr__, __dir__ = import_late(
    __name__,
    {
        "export": ("write_extractor",),
        "paper": ("LayerHealth",),
        "training": ("TrainedNetwork", "train"),
    },
)
