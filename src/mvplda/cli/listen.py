"""Commands for sound as it arrives: listen, record."""

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
    basis_sentence,
    decision_options,
    extract_side,
    fault_warnings,
    print_and_exit,
    probability_lines,
)

if TYPE_CHECKING:
    from ..voice.audio.decode import Sound
    from ..voice.stream import SpeechStream, StreamUpdate
    from .options import Command, Texts

METER_WIDTH = 40
METER_RANGE_DB = 60.0
"""Range of the level meter below full scale."""
LOUD_DB, QUIET_DB = -1.0, -40.0
"""Peaks beyond these are marked as too loud or too quiet."""


def source_options(command: Command) -> Command:
    """Add the options that choose the source of sound."""
    for option in (
        click.option(
            "--rate",
            type=click.IntRange(4000, 768_000),
            default=16000,
            help="Samples per second of the source.",
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
    """Return the blocks of the chosen source.

    notice : text that is shown when the microphone is open
    """
    from ..voice.audio.microphone import microphone_blocks, pcm_blocks

    if pipe:
        return pcm_blocks(sys.stdin.buffer, rate)
    return microphone_blocks(rate, device, on_open=lambda: click.echo(notice, err=True))


@contextmanager
def _ended_by_interrupt() -> Iterator[None]:
    """Treat Ctrl-C as the end of the sound."""
    try:
        yield
    except KeyboardInterrupt:
        click.echo(err=True)


@click.command("listen")
@click.argument("enrolled_source", metavar="[ENROLLED]", required=False)
@extractor_option(required=False)
@click.option(
    "--profiles",
    "profiles_file",
    help="Compare with the profile --profile of this file, instead of with ENROLLED.",
)
@click.option("--profile", help="Name of the profile that the voice is compared with.")
@click.option("--phrase", help="Name of the phrase; the profile's other phrases do not match.")
@click.option(
    "--whole",
    is_flag=True,
    help="Decide at the end only, as error rates are measured; show LLRs until then.",
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

    ENROLLED is a sound file, or a folder with several recordings of one person. The LLR is printed after every half
    second of speech, on standard error. Listening ends when two results in a row are accepted, or reject the voice;
    after a second of silence, 30 seconds or Ctrl-C. The last result is that of `mvplda verify` for the same sound.

    Each result before the end is another chance to be accepted: --whole decides once.

    The exit code is the verdict, as in `mvplda verify`: 0 accept, 1 reject, 2 inconclusive; 3 reports unusable input or
    wrong usage.

    \b
    Examples:
      mvplda listen enrolled/ --same speaker
      mvplda listen --profiles voices/ --profile ann --model voices/
      arecord -t raw -f S16_LE -r 16000 | mvplda listen enrolled/ --pipe
    """
    from ..scoring.question import Question
    from ..voice.profile_file import ProfileBook
    from ..voice.stream import SpeechStream
    from ..voice.verification import VoiceModel

    has_profile = profiles_file is not None
    if (enrolled_source is None) != has_profile or (profile is not None) != has_profile:
        raise click.UsageError("pass ENROLLED, or --profiles FILE with --profile NAME")
    if phrase is not None and not has_profile:
        raise click.UsageError("--phrase is the phrase of a profile: pass --profiles and --profile")
    question = Question(same or None)
    voices = VoiceModel.load(model, extractors)
    if profiles_file is None:
        enrolled = extract_side(voices, str(enrolled_source))
    else:
        profiles = ProfileBook(profiles_file)
        profiles.check(voices.extractor.name)
        enrolled = profiles.of(str(profile), phrase)
        voices = voices.deployed(profiles)
    point = voices.point(enrolled, question, **point_options)
    far, threshold = point_options["far"], point_options["threshold"]
    stream = SpeechStream(voices, enrolled, rate, question, far=far, threshold=threshold)
    blocks = _blocks(pipe, rate, device, "Listening. Speak now; Ctrl-C ends.")
    result = _listen(stream, blocks, whole)
    decision = result.decision
    report = {
        **decision.to_dict(),
        "verdict": decision.answer,
        "point": point.to_dict(),
        "extractor": voices.extractor.name,
        "seconds": result.seconds,
        "speech_s": result.speech_s,
    }
    lines = [
        decision.sentence(),
        f"{point.sentence()} {basis_sentence(voices.bundle, decision.calibrated, point)}",
    ]
    if decision.advice:
        lines.append(decision.advice)
    lines += [*probability_lines(decision), *fault_warnings(decision.faults)]
    print_and_exit(decision.answer, report, lines, as_json)


def _listen(stream: SpeechStream, blocks: Iterable[bytes], whole: bool) -> StreamUpdate:
    """Feed blocks into a stream until it is decided or ends; print each result on standard error."""
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
    """Return one line about a result: the speech so far, the LLR of each view, the verdict."""
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

    The meter on standard error shows the peak of the last tenth of a second and marks sound that is too loud (clipped)
    or too quiet. Afterwards, the quality of the recording is measured.

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
        raise AudioError("nothing was recorded: the source gave no sound. Is the microphone muted?")
    quality = measure(samples_of_pcm(recorded), rate)
    write_atomically(output, _wave_file(recorded, rate))
    click.echo(
        f"{Path(output)}: {quality.duration_s:.1f} s, {quality.speech_s:.1f} s of speech, peak "
        f"{quality.peak_db:.0f} dB"
    )
    for line in fault_warnings(quality.warnings):
        click.echo(line)


def _wave_file(data: bytes, rate: int) -> bytes:
    """Return the bytes of a WAV file with PCM of one channel."""
    import io

    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(rate)
        sound.writeframes(data)
    return file.getvalue()


def _meter(samples: Sound) -> str:
    """Return a level meter of a block, as wide as every other."""
    peak = max(float(abs(samples).max(initial=0.0)), 1e-6)
    decibels = 20 * math.log10(peak)
    filled = round(METER_WIDTH * max(0.0, 1 + decibels / METER_RANGE_DB))
    note = ""
    if decibels > LOUD_DB:
        note = "too loud"
    elif decibels < QUIET_DB:
        note = "quiet"
    return f"[{'#' * filled}{'-' * (METER_WIDTH - filled)}] {decibels:4.0f} dB  {note:8}"
