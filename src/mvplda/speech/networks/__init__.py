"""From frames to one vector an utterance: networks trained on several labels at once.

settings : what a network is and how it is trained; the registry of kinds
paper : the paper's network, and its machines layer by layer
modern : the modern network, and what training adds to it
batches, training : the loop
extractor : what is kept, its file, and ONNX

torch is imported when something that needs it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..._optional import import_late
from ...exceptions import ConstantLayerWarning
from .settings import (
    NETWORKS,
    FrameAugmentation,
    ModernNetwork,
    NetworkSettings,
    PaperNetwork,
    Pretraining,
    Training,
    default_training,
    register_network,
)

if TYPE_CHECKING:
    from .extractor import Extractor, export_onnx
    from .paper import LayerHealth
    from .training import train

__all__ = [
    "NETWORKS",
    "ConstantLayerWarning",
    "Extractor",
    "FrameAugmentation",
    "LayerHealth",
    "ModernNetwork",
    "NetworkSettings",
    "PaperNetwork",
    "Pretraining",
    "Training",
    "default_training",
    "export_onnx",
    "register_network",
    "train",
]

__getattr__, __dir__ = import_late(
    __name__,
    {"extractor": ("Extractor", "export_onnx"), "paper": ("LayerHealth",), "training": ("train",)},
)
