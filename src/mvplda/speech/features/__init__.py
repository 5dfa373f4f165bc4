"""From sound files to frames of features.

`read_audio` gives samples, `features` frames of them, `extract_features` those of a whole
corpus. The packages that this needs (``mvplda[audio]``) are imported where they are used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..._optional import import_late

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

__getattr__, __dir__ = import_late(
    __name__,
    {
        "augmentation": ("Channel", "Gain", "Noise", "Recipe", "Room", "Speed", "augment"),
        "extract": ("Augmentation", "Extracted", "extract_features"),
        "frames": ("features", "frame_bounds", "speech_frames", "stack", "stacked_index"),
        "reading": ("SoundReader", "read_audio"),
        "settings": ("ActivitySettings", "FeatureSettings"),
        "store": ("FeatureCache", "FeatureSet"),
    },
)
