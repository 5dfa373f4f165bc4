"""From sound files to frames of features.

`read_audio` gives samples, `features` frames of them, `extract_features` those of a whole
corpus. The packages that this needs (``mvplda[audio]``) are imported where they are used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

_HOMES = {
    "ActivitySettings": "settings",
    "Augmentation": "batch",
    "Channel": "augmentation",
    "Extracted": "batch",
    "FeatureCache": "cache",
    "FeatureSet": "featureset",
    "FeatureSettings": "settings",
    "Gain": "augmentation",
    "Noise": "augmentation",
    "Recipe": "augmentation",
    "Room": "augmentation",
    "SoundReader": "reading",
    "Speed": "augmentation",
    "augment": "augmentation",
    "extract_features": "batch",
    "features": "frames",
    "frame_bounds": "frames",
    "read_audio": "reading",
    "speech_frames": "activity",
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
    from .activity import speech_frames
    from .augmentation import Channel, Gain, Noise, Recipe, Room, Speed, augment
    from .batch import Augmentation, Extracted, extract_features
    from .cache import FeatureCache
    from .featureset import FeatureSet
    from .frames import features, frame_bounds, stack, stacked_index
    from .reading import SoundReader, read_audio
    from .settings import ActivitySettings, FeatureSettings


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'mvplda.audio' has no attribute {name!r}")
    value = getattr(import_module(f".{_HOMES[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
