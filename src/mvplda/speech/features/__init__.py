"""From sound files to frames of features.

`read_audio` gives samples, `features` frames of them, `extract_features` those of a whole
corpus. The packages that this needs (``mvplda[audio]``) are imported where they are used.
"""

from .augmentation import Channel, Gain, Noise, Recipe, Room, Speed, augment
from .extract import Augmentation, Extracted, extract_features
from .frames import (
    ActivitySettings,
    FeatureSettings,
    features,
    frame_bounds,
    speech_frames,
    stack,
    stacked_index,
)
from .reading import Clip, SoundReader, read_audio
from .store import FeatureCache, FeatureSet

__all__ = [
    "ActivitySettings",
    "Augmentation",
    "Channel",
    "Clip",
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
