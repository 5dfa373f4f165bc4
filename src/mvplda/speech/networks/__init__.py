"""From frames to one vector an utterance: networks trained on several labels at once.

settings : what a network is and how it is trained; the registry of kinds
paper, pretraining : the paper's network, and its machines layer by layer
modern : the modern network, and what training adds to it
batches, training : the loop
extractor : what is kept, its file, and ONNX

torch is imported when something that needs it is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

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
    from .pretraining import LayerHealth
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

_LATE = {
    "Extractor": "extractor",
    "LayerHealth": "pretraining",
    "export_onnx": "extractor",
    "train": "training",
}


def __getattr__(name: str) -> Any:
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_LATE[name]}", __name__), name)
