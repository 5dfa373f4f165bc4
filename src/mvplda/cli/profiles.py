"""Command that adds, lists and removes the profiles of enrolled people: profiles."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from .extractors import list_sound_files, warn_of_faults
from .groups import CommandGroup
from .options import extractor_option

if TYPE_CHECKING:
    from .options import Texts

MIN_SPEECH_S = 1.0
"""Least number of seconds of speech that can be added to a profile at once."""


@click.group("profiles", cls=CommandGroup)
def profiles_command() -> None:
    """Enrol people: add, list and remove their profiles.

    A file of profiles is an .npz file with the vectors of people's recordings, and the name of their extractor.
    """


@profiles_command.command()
@click.argument("file")
@click.argument("name")
@click.argument("recordings", nargs=-1, required=True, metavar="RECORDING...")
@extractor_option(required=False)
@click.option(
    "--model",
    help="Use the extractors of this model, and compare the recordings by it.  [default: the default model]",
)
@click.option(
    "--session",
    help="Name of the session: recordings made in one room, with one microphone, on one day.  [default: a new "
    "session]",
)
@click.option(
    "--phrase",
    default="",
    show_default=False,
    help="Name of the phrase in the recordings; use the same name for all people who say it.",
)
def add(
    file: str,
    name: str,
    recordings: Texts,
    extractors: Texts,
    model: str | None,
    session: str | None,
    phrase: str,
) -> None:
    """Add recordings to a profile.

    Adds each RECORDING, a sound file or a folder of sound files, to the profile NAME in FILE (.npz). File and profile
    are created if they do not exist. Warns of recordings that do not match the others of the profile.

    Example: mvplda profiles add voices.npz ann ann1.wav ann2.wav
    """
    from ..atomic_files import check_writable
    from ..exceptions import AudioError
    from ..model_files import load_model
    from ..voice.default_model import default_bundle, extractor_names
    from ..voice.domain.posterior import SESSION_VIEW
    from ..voice.evidence import recording_weights, session_labels
    from ..voice.extractors import load_extractor
    from ..voice.profile_file import ProfileBook

    book = ProfileBook(file)
    check_writable(book.path)
    bundle = None if model is None else load_model(model)
    default_extractor = book.extractor if bundle is None else bundle.extractor
    network = load_extractor(list(extractors) or extractor_names(default_extractor))
    book.check(network.name)
    sound_files = list_sound_files(recordings)
    extracted = network.extract(list(sound_files.values()))
    qualities = dict(zip(sound_files, extracted.qualities, strict=True))
    unusable = [path for path, quality in qualities.items() if not quality.usable]
    if unusable:
        raise AudioError(
            f"{unusable[0]} has no usable speech and cannot be enrolled; mvplda quality {unusable[0]} shows the reason"
        )
    speech = sum(quality.speech_s for quality in extracted.qualities)
    if speech < MIN_SPEECH_S:
        raise AudioError(
            f"the recordings contain {speech:.2f} s of speech, and at least {MIN_SPEECH_S:g} s are needed: pass more "
            "recordings"
        )
    marks = [quality.digest for quality in extracted.qualities]
    book.add(name, network.name, extracted.X, marks, session, phrase)
    warn_of_faults(qualities)
    bundle = bundle or default_bundle(book.extractor)
    if bundle is not None and session is not None and not session_labels(bundle, [session]):
        click.echo(
            f"mvplda: warning: --session has no effect on decisions, because the model has no view {SESSION_VIEW!r}; "
            f"the name is stored in {book.path}",
            err=True,
        )
    fits = () if bundle is None else book.fits(bundle)[-len(sound_files) :]
    for path, llr in zip(sound_files, fits, strict=False):
        if recording_weights(llr) < 1:
            click.echo(
                f"mvplda: warning: {path} does not match the other recordings of {name} (LLR {llr:.1f}) and gets less "
                "weight: check that it is of this person",
                err=True,
            )
    click.echo(f"{name}: {book.counts()[name]} recording(s) in {book.path}", err=True)


@profiles_command.command("remove")
@click.argument("file")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
def remove_profiles(file: str, names: Texts) -> None:
    """Remove profiles.

    Removes the profile of each NAME from FILE. If any NAME has no profile, nothing is removed.

    Example: mvplda profiles remove voices.npz ann bob
    """
    from ..voice.profile_file import ProfileBook

    book = ProfileBook(file)
    counts = book.counts()
    book.remove(*names)
    for name in dict.fromkeys(names):
        click.echo(f"{name}: {counts[name]} recording(s) removed from {file}", err=True)


@profiles_command.command("list")
@click.argument("file")
def list_profiles(file: str) -> None:
    """Print the name and the number of recordings of each profile in a file.

    Example: mvplda profiles list voices.npz
    """
    from ..voice.profile_file import ProfileBook

    book = ProfileBook(file)
    book.all_vectors()
    click.echo(f"extractor: {book.extractor or 'unknown'}", err=True)
    for name, count in book.counts().items():
        click.echo(f"{name}\t{count}")
