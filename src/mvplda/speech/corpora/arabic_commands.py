"""Arabic Speech Commands: thirty speakers, forty words, ten rounds (Ghandoura et al., 2021; CC BY 4.0)."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ...exceptions import LabelError
from ...io.sources import fail
from ...io.text import read_lines
from .corpus import Corpus, named, register_corpus
from .folder import folder_with, match_files, without_suffix
from .protocol import build_corpus

SOURCE = "Arabic Speech Commands, Ghandoura, Hjabo and Al Dakkak, 2021"
HOW = "Download the repository arabic-speech-commands-dataset and give its folder"
PATTERN = "{phrase}/{speaker}_NO_{session}.wav"
SPEAKER = re.compile(rb"(?<!\d)(\d{8})(?!\d)")
PARTS = ("train", "val", "test")
SUFFIXES = (".csv", ".txt")


@register_corpus("arabic-commands", root="the downloaded repository")
def arabic_commands(
    root: str | os.PathLike[str],
    *,
    sessions: int | None = None,
    training: float | int | Sequence[str] | None = None,
    random_state: int = 0,
    per_model: int = 3,
) -> Corpus:
    """Arabic Speech Commands, with the repository's split of the speakers.

    Speakers of its training and validation lists are trained on, those of the test list are
    enrolled and tested. Without lists, two thirds of the speakers, drawn with `random_state`, are trained on.

    Parameters
    ----------
    root : the repository, with ``dataset/<keyword>/<8-digit speaker>_NO_<round>.wav`` and
        ``train``, ``val`` and ``test`` as ``.csv`` or ``.txt``: a file a line, or a speaker
    sessions : use only so many rounds of a word, the first ones
    training : speakers to train on, a number or a share of them; the lists are then not read
    per_model : utterances an enrolment, the first rounds
    """
    folder = folder_with(root, ("dataset", "."), "Arabic Speech Commands", HOW)
    found = match_files(folder, PATTERN, what="arabic-commands", on_error="skip")
    labels = {view: found.fields[view] for view in ("speaker", "phrase")}
    if training is None:
        lists = speaker_lists(Path(root))
        if lists:
            speakers = np.unique(labels["speaker"])
            known = np.unique(np.concatenate([list(names) for names in lists.values()]))
            unlisted = np.setdiff1d(speakers, known)
            if len(unlisted):
                raise LabelError(f"arabic-commands: no list names the speaker(s) {named(unlisted.tolist())}")
            training = [name for name in speakers.tolist() if name not in lists["test"]]
    return build_corpus(
        "arabic-commands",
        without_suffix(found.paths),
        labels,
        found.clips,
        found.fields["session"],
        training=training,
        random_state=random_state,
        per_model=per_model,
        limit=sessions,
        source=SOURCE,
    )


def speaker_lists(root: Path) -> dict[str, set[str]]:
    """The speakers that the lists of the repository name; empty where there is no list of tests."""
    lists: dict[str, set[str]] = {}
    for part in PARTS:
        file = next((root / (part + suffix) for suffix in SUFFIXES if (root / (part + suffix)).is_file()), None)
        if file is None:
            continue
        lists[part] = {match.decode() for line in read_lines(file) for match in SPEAKER.findall(line)}
        if not lists[part]:
            fail(file, "no line names a speaker, such as 00000001 or dataset/left/00000001_NO_01.wav")
    if "test" not in lists:
        return {}
    for part in ("train", "val"):
        both = sorted(lists["test"] & lists.get(part, set()))
        if both:
            raise LabelError(
                f"arabic-commands: {len(both)} speaker(s) are in the lists {part} and test: {named(both)}. "
                "Name the speakers to train on instead"
            )
    return lists
