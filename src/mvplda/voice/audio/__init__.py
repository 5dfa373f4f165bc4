"""Audio: decoding, speech detection, quality measures, folders of recordings."""

from .decode import read_sound
from .quality import measure

__all__ = ["measure", "read_sound"]
