"""Demonstration recordings of synthetic voices, which are part of the package."""

from __future__ import annotations

from pathlib import Path

from .._typing import PathLike
from ..atomic_files import write_atomically
from ..exceptions import DataError

FOLDER = Path(__file__).with_name("demo_voices")
"""Folder of the recordings VOICE/PHRASE/REPETITION.ogg, made by ``tools.demo_voices``."""
VOICES = ("alba", "hugo")
PHRASES = ("my voice is my key", "open the garden door")
LABEL = "synthetic speech of espeak-ng; nobody was recorded"
README = f"""\
{LABEL[0].upper()}{LABEL[1:]}.
Two made-up voices ({" and ".join(VOICES)}) say two phrases ({", ".join(PHRASES)}), three times each. They show how
the commands work. Their error rates mean nothing for people.
"""


def write_demo(folder: PathLike) -> list[Path]:
    """Write the demonstration recordings and a README into a new folder, or into the folder of an earlier call.

    Returns
    -------
    paths of the recordings, VOICE/PHRASE/REPETITION.ogg in the folder

    Raises
    ------
    DataError
        The path is a file, or a folder with other files.
    """
    folder = Path(folder)
    readme = folder / "README.txt"
    if folder.exists() and not folder.is_dir():
        raise DataError(f"{folder} is a file: expected a folder for the recordings of the demo")
    if folder.is_dir() and any(folder.iterdir()) and not readme.is_file():
        raise DataError(
            f"{folder} is not empty: choose a new folder for the recordings of the demo"
        )
    recordings = []
    for source in sorted(FOLDER.rglob("*.ogg")):
        target = folder / source.relative_to(FOLDER)
        target.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(target, source.read_bytes())
        recordings.append(target)
    write_atomically(readme, README.encode())
    return recordings
