"""Audio files and signals: decoding, speech detection, measures of quality, lists of the recordings in folders."""

from .decode import read_sound
from .quality import measure

__all__ = ["measure", "read_sound"]
