"""Command that writes recordings of synthetic voices: demo."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("demo")
@click.argument("folder", default="demo", metavar="[FOLDER]")
def demo_command(folder: str) -> None:
    """Write synthetic voices, to try the commands on.

    Writes 12 recordings of two voices, VOICE/PHRASE/1.ogg, to FOLDER (default: demo). The speech synthesiser espeak-ng
    made them: nobody was recorded. Prints commands to try on the recordings, with the result to expect, and a way to
    try the web page without a microphone.

    \b
    Example:
      mvplda demo
    """
    from ..exceptions import FetchError
    from ..voice.demo import write_demo
    from ..voice.extractors.download import cached_file
    from ..voice.extractors.recipe import default_recipes

    recordings = write_demo(folder)
    root = Path(folder)
    key, door = root / "hugo" / "my-voice-is-my-key", root / "hugo" / "open-the-garden-door"
    other = root / "alba" / key.name
    click.echo(
        f"{len(recordings)} recordings of two synthetic voices, alba and hugo, are in {root}. Nobody was recorded.",
        err=True,
    )
    try:
        for name in default_recipes():
            cached_file(name)
    except FetchError:
        click.echo("mvplda extractor get    # run this once, first: fetches the networks")
    tries = {
        f"mvplda verify {key / '1.ogg'} {key / '2.ogg'}": "the same voice and words: accepted",
        f"mvplda verify {key / '1.ogg'} {door / '2.ogg'}": "other words: rejected",
        f"mvplda verify {key / '1.ogg'} {other / '2.ogg'}": "another voice: rejected",
        f"mvplda profiles add {root / 'voices.npz'} hugo {key}": "enrols the voice of hugo",
        f"mvplda identify {key / '3.ogg'} --profiles {root / 'voices.npz'}": "finds hugo",
        "mvplda serve": "starts the web page: choose these files instead of the microphone",
    }
    for command, result in tries.items():
        click.echo(f"{command}    # {result}")
