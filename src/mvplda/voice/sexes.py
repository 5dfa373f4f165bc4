"""Sex of each person, from labels or from the pitch of the voice, for error rates of impostors of the same sex."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike

from .._typing import PathLike
from ..exceptions import MvpldaError
from ..io.streams import OnDisk
from ..io.tables import read_table
from ..labels import as_array, is_missing
from .audio.decode import Source, read_segments
from .audio.speech_detection import SoundSegment

SEX_COLUMNS = ("sex", "gender")
"""Names of the columns of a table, or of the labels of vectors, that have the sex of the speaker."""

HIGH_VOICE_HZ = 160.0
"""Median pitch in Hz from which a voice counts as high. This agrees with the labelled sex of 59 of 60 people of the
corpus AudioMNIST, and of 60 of 64 people on the telephone (corpus WUW)."""

PITCH_RECORDINGS = 4
"""Maximum number of recordings per person whose pitch is measured."""

RATE = 16_000


class Sexes(NamedTuple):
    """Sex of each person.

    of : {speaker: sex, or "high" or "low" for the pitch of the voice}
    note : sentence for a report on where the sexes come from
    """

    of: dict[str, str]
    note: str

    @classmethod
    def from_labels(cls, speakers: ArrayLike, sexes: ArrayLike, column: str) -> Self:
        """Return the most frequent sex among the labels of each speaker.

        Speakers without a label are left out.

        Parameters
        ----------
        speakers, sexes : (n,) labels of speaker and sex; a sex may be missing
        column : name of the column with the sexes, for the note
        """
        counts: dict[str, Counter[str]] = {}
        values = as_array(sexes)
        is_labelled = ~is_missing(values)
        for speaker, sex in zip(as_array(speakers)[is_labelled], values[is_labelled], strict=True):
            counts.setdefault(str(speaker), Counter())[str(sex)] += 1
        of = {speaker: count.most_common(1)[0][0] for speaker, count in counts.items()}
        return cls(of, f"Sex comes from the column {column}: {_tally(of)}.")

    @classmethod
    def from_voices(cls, speakers: Sequence[str], sources: Sequence[Source]) -> Self:
        """Measure the median pitch of some recordings of each speaker: "high" or "low".

        It is "high" from `HIGH_VOICE_HZ` on. Speakers whose recordings have no voiced sound are
        left out.

        Parameters
        ----------
        speakers : (n,) speaker of each recording
        sources : (n,) recordings: paths, `FileSegment`s or arrays of samples
        """
        rows: dict[str, list[int]] = {}
        for row, speaker in enumerate(speakers):
            rows.setdefault(str(speaker), []).append(row)
        of = {}
        for speaker, speaker_rows in rows.items():
            # spread over the recordings, which are often sorted by session
            chosen = np.unique(np.linspace(0, len(speaker_rows) - 1, PITCH_RECORDINGS).round())
            pitches = [_pitch_hz(sources[speaker_rows[int(i)]]) for i in chosen]
            measured = [pitch for pitch in pitches if pitch is not None]
            if measured:
                of[speaker] = "high" if np.median(measured) >= HIGH_VOICE_HZ else "low"
        note = (
            f"Sex is not labelled: people count as of the same sex if their voices lie on the same side of "
            f"{HIGH_VOICE_HZ:g} Hz in median pitch: {_tally(of)}."
        )
        return cls(of, note)


def sexes_in_table(file: PathLike) -> Sexes | None:
    """Read the sex of each speaker from a table (.csv, .tsv).

    Returns
    -------
    sexes; None if the table lacks a column ``speaker``, or a column ``sex`` or ``gender``
    """
    header, columns = read_table(OnDisk(file))
    table = dict(zip(header, columns, strict=True))
    return sexes_in_labels(table) if "speaker" in table else None


def sexes_in_labels(labels: Mapping[str, ArrayLike]) -> Sexes | None:
    """Return the sex of each speaker from labels, {column: (n,) labels}; None without a column "sex" or "gender"."""
    for name in SEX_COLUMNS:
        if name in labels:
            return Sexes.from_labels(labels["speaker"], labels[name], name)
    return None


def _pitch_hz(source: Source) -> float | None:
    """Return the median pitch of a recording in Hz; None if it has no voiced sound or cannot be read."""
    try:
        segments = read_segments(source, RATE, 30.0)
    except (MvpldaError, OSError):
        return None
    if not segments:
        return None
    return SoundSegment(segments[0], RATE).pitch_hz()


def _tally(of: Mapping[str, str]) -> str:
    """Return the number of people per sex as text, such as "3 female, 4 male"."""
    counts = sorted(Counter(of.values()).items())
    return ", ".join(f"{count} {name}" for name, count in counts) or "nobody"
