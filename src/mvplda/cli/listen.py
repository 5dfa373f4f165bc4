"""Commands that read sound from a microphone or a pipe as it arrives: listen, record."""

from __future__ import annotations

import math
import sys
import wave
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .options import OutputFile, extractor_option
from .verify import (
    EnrolledSide,
    closing_lines,
    decision_options,
    decision_report,
    fault_warnings,
    print_and_exit,
    profile_options,
)

if TYPE_CHECKING:
    from ..voice.audio.decode import Sound
    from ..voice.stream import SpeechStream, StreamUpdate
    from .options import Command, Texts

METER_WIDTH = 40
"""Width of the level meter in characters."""
METER_RANGE_DB = 60.0
"""Range of the level meter in dB: an empty meter is this far below full scale."""
LOUD_DB, QUIET_DB = -1.0, -40.0
"""Peak levels in dB of full scale: above the first, sound is marked as too loud; below the second, as quiet."""


def source_options(command: Command) -> Command:
    """Add the options --device, --pipe and --rate, which choose the source of sound, to a command."""
    for option in (
        click.option(
            "--rate",
            type=click.IntRange(4000, 768_000),
            default=16000,
            help="Samples per second of the microphone or of standard input.",
        ),
        click.option(
            "--pipe",
            is_flag=True,
            help="Read PCM from standard input (16 bits, little-endian, one channel), instead of a microphone.",
        ),
        click.option(
            "--device",
            help="Name or number of the microphone, as `python -m sounddevice` lists them.  [default: the system's]",
        ),
    ):
        command = option(command)
    return command


def _blocks(pipe: bool, rate: int, device: str | None, notice: str) -> Iterator[bytes]:
    """Return an iterator over blocks of PCM samples (16 bits) from standard input or a microphone.

    pipe : read standard input
    rate : samples per second
    device : name or number of the microphone; None: that of the system
    notice : text that is shown on standard error as soon as the microphone is open
    """
    from ..voice.audio.microphone import microphone_blocks, pcm_blocks

    if pipe:
        return pcm_blocks(sys.stdin.buffer, rate)
    return microphone_blocks(rate, device, on_open=lambda: click.echo(notice, err=True))


@contextmanager
def _ended_by_interrupt() -> Iterator[None]:
    """Return a context in which Ctrl-C ends the block without an error, as the end of the sound does."""
    try:
        yield
    except KeyboardInterrupt:
        click.echo(err=True)


@click.command("listen")
@click.argument("enrolled_source", metavar="[ENROLLED]", required=False)
@extractor_option(required=False)
@profile_options("the sound", "ENROLLED")
@click.option(
    "--whole",
    is_flag=True,
    help="Do not decide before the end of the sound; show only LLRs until then. The measured error rates apply to "
    "decisions at the end.",
)
@source_options
@decision_options
def listen_command(
    enrolled_source: str | None,
    extractors: Texts,
    profiles_file: str | None,
    profile: str | None,
    phrase: str | None,
    whole: bool,
    rate: int,
    pipe: bool,
    device: str | None,
    model: str | None,
    same: Texts,
    as_json: bool,
    **point_options: float | None,
) -> None:
    """Verify a speaker while they speak.

    ENROLLED is a sound file, or a folder with several recordings of one person. The LLR is printed on standard error
    after every half second of speech. Listening ends as soon as two results in a row reject the voice, or accept at
    the strictest operating point of the model (the one with the lowest false-acceptance rate). It also ends after a
    second of silence, after 30 seconds, and with Ctrl-C. The last result is that of `mvplda verify` for the same sound.

    The exit code is the verdict, as in `mvplda verify`: 0 accept, 1 reject, 2 inconclusive; 3 reports unusable input or
    wrong usage.

    \b
    Examples:
      mvplda listen enrolled/ --same speaker
      mvplda listen --profiles voices/ --profile ann --model voices/
      arecord -t raw -f S16_LE -r 16000 | mvplda listen enrolled/ --pipe
    """
    from ..scoring.question import Question
    from ..voice.stream import SpeechStream
    from ..voice.verification import VoiceModel

    enrolled_side = EnrolledSide(enrolled_source, profiles_file, profile, phrase)
    enrolled_side.check("pass ENROLLED, or --profiles FILE with --profile NAME")
    question = Question(same or None)
    voices, enrolled = enrolled_side.load(VoiceModel.load(model, extractors))
    point = voices.point(enrolled, question, **point_options)
    far, threshold = point_options["far"], point_options["threshold"]
    stream = SpeechStream(voices, enrolled, rate, question, far=far, threshold=threshold)
    blocks = _blocks(pipe, rate, device, "Listening. Speak now; Ctrl-C ends.")
    result = _listen(stream, blocks, whole)
    decision = result.decision
    report, lines = decision_report(voices, decision, point)
    report |= {"seconds": result.seconds, "speech_s": result.speech_s}
    print_and_exit(decision.answer, report, [*lines, *closing_lines(decision)], as_json)


def _listen(stream: SpeechStream, blocks: Iterable[bytes], whole: bool) -> StreamUpdate:
    """Feed blocks of sound into a stream, print each result on standard error, and return the last result.

    whole : feed all blocks before the decision; False: stop as soon as the stream is decided
    """
    from ..voice.audio.microphone import samples_of_pcm
    from ..voice.stream import LONGEST_S

    with _ended_by_interrupt():
        for block in blocks:
            samples = samples_of_pcm(block)
            if stream.seconds + len(samples) / stream.rate > LONGEST_S:
                break
            update = stream.add(samples)
            if update is not None:
                click.echo(_update_line(update), err=True)
                if update.is_decided and not whole:
                    return update
            if stream.has_ended:
                break
    return stream.finish()


def _update_line(update: StreamUpdate) -> str:
    """Return a line of text: seconds of speech so far, LLR of each view, and the verdict, or "continue" before it."""
    llrs = ", ".join(f"{view} LLR {llr:+.2f}" for view, llr in update.decision.llrs.items())
    verdict = update.decision.answer if update.is_decided else "continue"
    return f"{update.speech_s:5.1f} s of speech: {llrs}; {verdict}"


@click.command("record")
@click.argument("output", metavar="NAME.wav", type=OutputFile())
@click.option(
    "--seconds",
    type=click.FloatRange(0.1, 600),
    help="Stop after this number of seconds.  [default: until Ctrl-C, at most 600]",
)
@source_options
def record_command(
    output: str, seconds: float | None, rate: int, pipe: bool, device: str | None
) -> None:
    """Record a sound file, with a level meter.

    The meter on standard error shows the peak level of the last tenth of a second, and marks sound that is too loud
    (clipped) or too quiet. Afterwards, the length, the speech and the faults of the recording are printed.

    \b
    Examples:
      mvplda record ann.wav --seconds 4
      arecord -t raw -f S16_LE -r 16000 | mvplda record ann.wav --pipe
    """
    from ..atomic_files import write_atomically
    from ..exceptions import AudioError
    from ..voice.audio.microphone import SAMPLE_BYTES, samples_of_pcm
    from ..voice.audio.quality import measure

    limit = round((seconds or 600) * rate) * SAMPLE_BYTES
    end = f"{seconds:g} s" if seconds else "until Ctrl-C"
    data = bytearray()
    with _ended_by_interrupt():
        for block in _blocks(pipe, rate, device, f"Recording {end}. Speak now."):
            data += block
            click.echo(f"\r{_meter(samples_of_pcm(block))}", nl=False, err=True)
            if len(data) >= limit:
                break
    click.echo(err=True)
    recorded = bytes(data[:limit])
    if not any(recorded):
        raise AudioError(
            "nothing was recorded: there were no samples, or only zeros. Check that the microphone is not muted, or "
            "choose another with --device"
        )
    quality = measure(samples_of_pcm(recorded), rate)
    write_atomically(output, _wave_file(recorded, rate))
    click.echo(
        f"{Path(output)}: {quality.duration_s:.1f} s, {quality.speech_s:.1f} s of speech, peak "
        f"{quality.peak_db:.0f} dB"
    )
    for line in fault_warnings(quality.warnings):
        click.echo(line)


def _wave_file(data: bytes, rate: int) -> bytes:
    """Return the bytes of a WAV file with one channel of 16-bit samples.

    data : little-endian samples
    rate : samples per second
    """
    import io

    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(rate)
        sound.writeframes(data)
    return file.getvalue()


def _meter(samples: Sound) -> str:
    """Return the level meter of a block of samples as text of constant width: bar, peak in dB, remark."""
    peak = max(float(abs(samples).max(initial=0.0)), 1e-6)
    decibels = 20 * math.log10(peak)
    filled = round(METER_WIDTH * max(0.0, 1 + decibels / METER_RANGE_DB))
    note = ""
    if decibels > LOUD_DB:
        note = "too loud"
    elif decibels < QUIET_DB:
        note = "quiet"
    return f"[{'#' * filled}{'-' * (METER_WIDTH - filled)}] {decibels:4.0f} dB  {note:8}"
