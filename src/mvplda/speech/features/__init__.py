"""From sound files to frames of features.

`read_audio` gives samples, `features` frames of them, `extract_features` those of a whole
corpus. The packages that this needs (``mvplda[audio]``) are imported where they are used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

_HOMES = {
    "ActivitySettings": "settings",
    "Augmentation": "extract",
    "Channel": "augmentation",
    "Extracted": "extract",
    "FeatureCache": "store",
    "FeatureSet": "store",
    "FeatureSettings": "settings",
    "Gain": "augmentation",
    "Noise": "augmentation",
    "Recipe": "augmentation",
    "Room": "augmentation",
    "SoundReader": "reading",
    "Speed": "augmentation",
    "augment": "augmentation",
    "extract_features": "extract",
    "features": "frames",
    "frame_bounds": "frames",
    "read_audio": "reading",
    "speech_frames": "frames",
    "stack": "frames",
    "stacked_index": "frames",
}

__all__ = [
    "ActivitySettings",
    "Augmentation",
    "Channel",
    "Extracted",
    "FeatureCache",
    "FeatureSet",
    "FeatureSettings",
    "Gain",
    "Noise",
    "Recipe",
    "Room",
    "SoundReader",
    "Speed",
    "augment",
    "extract_features",
    "features",
    "frame_bounds",
    "read_audio",
    "speech_frames",
    "stack",
    "stacked_index",
]

if TYPE_CHECKING:
    from .augmentation import Channel, Gain, Noise, Recipe, Room, Speed, augment
    from .extract import Augmentation, Extracted, extract_features
    from .frames import features, frame_bounds, speech_frames, stack, stacked_index
    from .reading import SoundReader, read_audio
    from .settings import ActivitySettings, FeatureSettings
    from .store import FeatureCache, FeatureSet


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'mvplda.speech.features' has no attribute {name!r}")
    value = getattr(import_module(f".{_HOMES[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
