"""From frames to one vector an utterance: networks trained on several labels at once.

settings : what a network is and how it is trained
paper, pretraining : the paper's network, and its machines layer by layer
modern : the modern network, and what training adds to it
data, batches, training, cuda_step : the loop
extractor : what is kept, its file, and ONNX

torch is imported when something that needs it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..._optional import import_late
from ...exceptions import ConstantLayerWarning
from .data import concatenate
from .settings import (
    FrameAugmentation,
    ModernNetwork,
    PaperNetwork,
    Pretraining,
    Training,
    default_training,
    network_from_dict,
    network_to_dict,
    training_from_dict,
    training_to_dict,
)

if TYPE_CHECKING:
    from .extractor import Extractor, export_onnx
    from .pretraining import LayerHealth
    from .training import train

__all__ = [
    "ConstantLayerWarning",
    "Extractor",
    "FrameAugmentation",
    "LayerHealth",
    "ModernNetwork",
    "PaperNetwork",
    "Pretraining",
    "Training",
    "concatenate",
    "default_training",
    "export_onnx",
    "network_from_dict",
    "network_to_dict",
    "train",
    "training_from_dict",
    "training_to_dict",
]

__getattr__, __dir__ = import_late(
    __name__,
    {"extractor": ("Extractor", "export_onnx"), "pretraining": ("LayerHealth",), "training": ("train",)},
)
