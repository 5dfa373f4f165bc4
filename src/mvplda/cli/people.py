"""mvplda people"""

from __future__ import annotations

import click

from . import output_option
from .evaluate import RATE
from .extractors import extractor_option


@click.command()
@click.argument("recordings", nargs=-1, required=True, metavar="RECORDING...")
@click.option(
    "--turns",
    "turns_file",
    help="Who speaks when: an RTTM file of a diariser, or segments of Kaldi, with recordings called as their files "
    "without suffix.  [default: every recording is one turn]",
)
@extractor_option(required=False)
@click.option("--model", help="A model of mvplda train or setup.  [default: that of the package]")
@click.option(
    "--far", type=RATE, help="Merge so that at most this share of strangers would be merged."
)
@output_option("Write a page to listen, confirm and name people to this .html file.")
def people(
    recordings: tuple[str, ...],
    turns_file: str | None,
    extractors: tuple[str, ...],
    model: str | None,
    far: float | None,
    output: str,
) -> None:
    """Find the people of many recordings: which turns are of the same voice.

    Prints the person of every turn, its recording, start and end, and its LLR against the others of that person.
    Pairs of people are the same, different, or not decided; the page asks about the last. Turns that overlap in time
    are never one person. Nothing is enrolled: names come from you.

    \b
    Example:
      mvplda people meetings/ --turns diarised.rttm -o people.html
    """
    from .._optional import need
    from ..exceptions import DataError
    from ..extractors.recordings import list_recordings
    from ..extractors.sound import Clip
    from ..people import Turn, find_people, people_page, read_turns
    from ..persistence import write_atomically
    from ..voices import VoiceModel

    listed = list_recordings(list(recordings))
    clips = dict(zip(listed.ids, listed.clips, strict=True))
    sounds = {name: need("soundfile").info(str(clip.path)) for name, clip in clips.items()}
    turns = [Turn(name, 0.0, sound.duration) for name, sound in sounds.items()]
    if turns_file is not None:
        turns = read_turns(turns_file)
    stretches = []
    for turn in turns:
        if turn.recording not in sounds:
            raise DataError(
                f"there is no recording {turn.recording!r}; those given are called like {listed.ids[0]!r}"
            )
        rate = sounds[turn.recording].samplerate
        first = round(turn.start * rate)
        length = round(turn.end * rate) - first
        stretches.append(Clip(clips[turn.recording].path, first, length))
    voices = VoiceModel.load(model, extractors)
    extracted = voices.extractor.extract(stretches, on_error="skip")
    for _, reason in extracted.skipped[:5]:
        click.echo(f"mvplda: warning: a turn is left out: {reason}", err=True)
    used = [turns[row] for row in extracted.rows]
    found = find_people(voices.bundle, extracted.X, used, far=far)
    page = people_page(found, used, {name: clip.path for name, clip in clips.items()})
    write_atomically(output, page.encode())
    for who, fit, turn in zip(found.person, found.fits, used, strict=True):
        click.echo(f"{who + 1}\t{turn.recording}\t{turn.start:.2f}\t{turn.end:.2f}\t{fit:.1f}")
    count = int(found.person.max()) + 1
    click.echo(
        f"{count} people in {len(used)} turns, {len(found.ask)} pairs to decide: {output}", err=True
    )
