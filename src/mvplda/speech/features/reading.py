"""The reader of sound, as `mvplda.extractors` has it."""

from ...extractors.reading import Clip, SoundReader, read_audio, sound_name, unusable

__all__ = ["Clip", "SoundReader", "read_audio", "sound_name", "unusable"]
