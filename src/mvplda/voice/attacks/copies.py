"""Attacks with a changed copy of a recording: changed by storage, by transmission, or to hide that it is a copy.

Each function takes the (n,) samples of a recording at 16 kHz with full scale 1, and a generator for its random choices,
and returns the samples of the copy.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np
from scipy.signal import butter, sosfilt

from .attack import RATE, Attack, Sound, from_pcm, resample, run_program, to_pcm

Generator = np.random.Generator
TELEPHONE_RATE = 8000
MU = 255
"""Constant mu of the mu-law, by which telephony compresses samples."""


def half_gain(sound: Sound, rng: Generator) -> Sound:
    """Return a recording (n,) at half its volume."""
    return np.asarray(0.5 * sound)


def drop_sample(sound: Sound, rng: Generator) -> Sound:
    """Remove one sample of a recording (n,) at a random position."""
    return np.delete(sound, rng.integers(len(sound)))


def add_noise(sound: Sound, rng: Generator) -> Sound:
    """Add white noise to a recording (n,), at -60 dB relative to its loudest sample."""
    return np.asarray(sound + 1e-3 * np.abs(sound).max() * rng.standard_normal(len(sound)))


def change_speed(sound: Sound, rng: Generator, change: float) -> Sound:
    """Play a recording (n,) at 1 - change or at 1 + change times its speed; its pitch changes too.

    rng : draws whether the recording becomes slower or faster
    change : relative change of the speed, such as 0.05
    """
    return resample(sound, RATE * rng.choice([1 - change, 1 + change]), RATE)


def up_to_two_percent(sound: Sound, rng: Generator) -> Sound:
    """Play a recording (n,) at a random speed between 0.98 and 1.02 times its own."""
    return resample(sound, RATE * rng.uniform(0.98, 1.02), RATE)


def band_pass(sound: Sound, rng: Generator) -> Sound:
    """Remove the low and the high frequencies of a recording (n,).

    The lower limit is drawn between 100 and 500 Hz, the upper limit between 3 and 7 kHz.
    """
    limits = [rng.uniform(100, 500), rng.uniform(3000, 7000)]
    return np.asarray(sosfilt(butter(4, limits, "bandpass", fs=RATE, output="sos"), sound))


def telephone(sound: Sound, rng: Generator) -> Sound:
    """Transmit a recording (n,) by a simulated telephone: 300 to 3400 Hz at 8 kHz, with the mu-law of G.711."""
    band = butter(4, [300, 3400], "bandpass", fs=RATE, output="sos")
    narrow = resample(np.asarray(sosfilt(band, sound)), RATE, TELEPHONE_RATE)
    narrow = narrow * 0.7 / max(np.abs(narrow).max(), 1e-9)
    compressed = np.sign(narrow) * np.log1p(MU * np.abs(narrow)) / np.log1p(MU)
    levels = np.round(127 * compressed) / 127
    expanded = np.sign(levels) * np.expm1(np.abs(levels) * np.log1p(MU)) / MU
    return resample(expanded, TELEPHONE_RATE, RATE)


def opus(sound: Sound, rng: Generator) -> Sound:
    """Encode a recording (n,) with Opus at a random rate of 16 to 32 kbit/s, and decode it."""
    return through_ffmpeg(sound, "libopus", "ogg", rng.choice(["16k", "24k", "32k"]))


def mp3(sound: Sound, rng: Generator) -> Sound:
    """Encode a recording (n,) as MP3 at a random rate of 24 to 64 kbit/s, and decode it."""
    return through_ffmpeg(sound, "libmp3lame", "mp3", rng.choice(["24k", "32k", "64k"]))


def through_ffmpeg(sound: Sound, codec: str, container: str, bit_rate: str) -> Sound:
    """Encode and decode a sound with ffmpeg.

    codec, container, bit_rate : names of the encoder and of the file format, and bits per second, as ffmpeg takes them
    """
    raw = ["-f", "s16le", "-ar", str(RATE), "-ac", "1"]
    program = ["ffmpeg", "-v", "error"]
    encode = [*program, *raw, "-i", "-", "-c:a", codec, "-b:a", bit_rate, "-f", container, "-"]
    decode = [*program, "-f", container, "-i", "-", *raw, "-"]
    return from_pcm(run_program(decode, run_program(encode, to_pcm(sound))))


def amr(sound: Sound, rng: Generator) -> Sound:
    """Encode a recording (n,) with AMR, the codec of mobile telephones, at 4.75 to 12.2 kbit/s, and decode it."""
    mode = str(rng.choice([0, 4, 7]))
    raw = ["-t", "raw", "-e", "signed", "-b", "16", "-c", "1", "-r"]
    encode = ["sox", "-V1", "-D", *raw, str(RATE), "-"]
    encode += ["-t", "amr-nb", "-C", mode, "-r", str(TELEPHONE_RATE), "-"]
    decode = ["sox", "-V1", "-D", "-t", "amr-nb", "-", *raw, str(RATE), "-"]
    return from_pcm(run_program(decode, run_program(encode, to_pcm(sound))))


SINGLE_COPIES: Mapping[str, Attack] = {
    attack.name: attack
    for attack in (
        Attack("half the gain", "copy", half_gain),
        Attack("one sample dropped", "copy", drop_sample),
        Attack("noise at -60 dB", "copy", add_noise),
        Attack("0.3 % speed", "copy", partial(change_speed, change=0.003), (), ("soxr",)),
        Attack("1 % speed", "copy", partial(change_speed, change=0.01), (), ("soxr",)),
        Attack("band-pass", "copy", band_pass),
        Attack("telephone", "copy", telephone, (), ("soxr",)),
        Attack("Opus", "copy", opus, ("ffmpeg",)),
        Attack("MP3", "copy", mp3, ("ffmpeg",)),
        Attack("AMR", "copy", amr, ("sox",), (), ("amr-nb",)),
    )
}
"""Attacks that change a copy in one way, by name."""


def two_changes(sound: Sound, rng: Generator) -> Sound:
    """Change a recording (n,) by two random attacks of `SINGLE_COPIES`, out of those whose programs are installed."""
    usable = [attack for attack in SINGLE_COPIES.values() if not attack.missing()]
    for number in rng.choice(len(usable), 2, replace=False):
        sound = usable[int(number)](sound, rng)
    return sound


COPIES: Mapping[str, Attack] = {
    **SINGLE_COPIES,
    "two of these changes": Attack("two of these changes", "copy", two_changes),
    "up to 2 % speed": Attack("up to 2 % speed", "copy", up_to_two_percent, (), ("soxr",)),
}
"""All attacks with changed copies, by name."""
