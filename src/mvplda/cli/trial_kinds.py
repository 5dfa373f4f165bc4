"""Kinds of trials (TC, TW, IC, IW) from the speakers and phrases of both sides, for the command evaluate."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from .._typing import BoolArray
    from ..coded import Coded
    from ..io.trials import Trials

    Speakers = tuple[Coded, Coded]
    """Speaker of the model, and speaker of the test, of each trial."""

TWO_VIEWS = {
    "TC": (True, True),
    "TW": (True, False),
    "IC": (False, True),
    "IW": (False, False),
}
"""For each kind of trial: whether both sides have the same speaker, and whether they have the same phrase."""


def with_kinds(trials: Trials, same_phrase: BoolArray, speakers: Speakers | None) -> Trials:
    """Return the trials with the kinds TC, TW, IC and IW in place of target and nontarget; spoofs stay spoofs.

    Parameters
    ----------
    trials : n trials, whose kinds may be target, nontarget, TC, TW, IC, IW, spoof or unknown
    same_phrase : whether both sides of each trial have the same phrase, (n,)
    speakers : speaker of the model, and speaker of the test, of each trial; None: the kinds in the list must determine
        which trials have the same speaker

    Raises
    ------
    LabelError
        The kinds in the list contradict the speakers or phrases, or do not determine the speakers.
    """
    import numpy as np

    from ..coded import Coded
    from ..exceptions import LabelError
    from ..io.trials import Trials
    from ..kinds import SPOOF

    listed = Coded.of([""] * len(trials)) if trials.kind is None else trials.kind
    unsupported = set(listed.used) - {"", SPOOF, "target", "nontarget", *TWO_VIEWS}
    if unsupported:
        raise LabelError(
            f"--enrol-phrases and --test-phrases support targets and nontargets, TC, TW, IC and IW; the list has the "
            f"kind {min(unsupported)!r}: leave out both options"
        )
    if speakers is None:
        same_speaker = _same_speaker_by_kind(trials, same_phrase)
    else:
        same_speaker = same_labels(*speakers)
        _refuse_contradictions(trials, listed, same_speaker, same_phrase)
    names = np.array([*TWO_VIEWS, SPOOF])
    codes = 2 * ~same_speaker + ~same_phrase
    codes[listed == SPOOF] = len(TWO_VIEWS)
    return Trials(trials.enrol, trials.test, Coded(names, codes))


def _same_speaker_by_kind(trials: Trials, same_phrase: BoolArray) -> BoolArray:
    """Return the mask (n,) of the trials with the same speaker on both sides, from the kinds in the list.

    A list may define targets by the speaker alone, or by speaker and phrase. If any target has different phrases, the
    list defines targets by the speaker alone, so that all its nontargets have different speakers. If not, the speakers
    of a nontarget with different phrases may be the same or not, and `LabelError` is raised if there is such a trial.
    `LabelError` is also raised if a kind contradicts `same_phrase`.

    same_phrase : whether both sides of each trial have the same phrase, (n,)
    """
    import numpy as np

    from ..exceptions import LabelError

    kinds = trials.kinds
    wrong = np.flatnonzero(
        (same_phrase & kinds.isin(["TW", "IW"])) | (~same_phrase & kinds.isin(["TC", "IC"]))
    )
    if len(wrong):
        phrases = "the same phrase" if same_phrase[wrong[0]] else "different phrases"
        raise LabelError(
            f"the kinds in --trials contradict the phrases in {len(wrong)} of {len(trials)} trials; the first is "
            f"{_example_line(trials, wrong[0])} with {phrases}: correct the list, --enrol-phrases or --test-phrases"
        )
    other_phrase = np.flatnonzero(~same_phrase & (kinds == "target"))
    unknown = np.flatnonzero(~same_phrase & (kinds == "nontarget"))
    if len(unknown) and not len(other_phrase):
        raise LabelError(
            f"{len(unknown)} of {len(trials)} trials are nontargets with different phrases, the first is "
            f"{_example_line(trials, unknown[0])}; it is unknown whether their speakers differ. Pass --test-speakers, "
            "and --enrol-speakers unless model ids are names of speakers"
        )
    if len(unknown):
        click.echo(
            f"mvplda: warning: {len(other_phrase)} target trial(s) have different phrases (first: "
            f"{_example_line(trials, other_phrase[0])}). The list is therefore read as one in which targets have the "
            "right speaker, and nontargets are impostors. To check this, pass --test-speakers and --enrol-speakers",
            err=True,
        )
    return kinds.isin(["TC", "TW", "target"])


def _refuse_contradictions(
    trials: Trials, listed: Coded, same_speaker: BoolArray, same_phrase: BoolArray
) -> None:
    """Raise `LabelError` if the kinds in the list contradict the speakers and phrases.

    A list may define targets by speaker and phrase, or by the speaker alone. The definition with fewer contradictions
    is assumed.

    listed : kind of each trial in the list, (n,); empty text for an unknown kind
    same_speaker : whether both sides of each trial have the same speaker, (n,)
    same_phrase : whether both sides of each trial have the same phrase, (n,)
    """
    import numpy as np

    from ..exceptions import LabelError

    target = listed == "target"
    nontarget = listed == "nontarget"
    definitions = {
        "the same speaker and phrase": same_speaker & same_phrase,
        "the same speaker": same_speaker,
    }
    contradictions = {
        definition: (target & ~expected) | (nontarget & expected)
        for definition, expected in definitions.items()
    }
    definition = min(contradictions, key=lambda name: int(contradictions[name].sum()))
    wrong = contradictions[definition]
    for kind, (speaker, phrase) in TWO_VIEWS.items():
        wrong |= (listed == kind) & ((same_speaker != speaker) | (same_phrase != phrase))
    if not wrong.any():
        return
    first = int(np.argmax(wrong))
    by_kind = {kind: int((wrong & (listed == kind)).sum()) for kind in listed.used}
    counts = ", ".join(f"{count} {kind}" for kind, count in by_kind.items() if count)
    speakers = "the same speaker" if same_speaker[first] else "different speakers"
    phrases = "the same phrase" if same_phrase[first] else "different phrases"
    notes = ""
    if (wrong & (target | nontarget)).any():
        notes += f"; target is read as {definition}"
    if (wrong & target & ~same_speaker).any():
        notes += "; without --enrol-speakers, model ids are read as names of speakers"
    raise LabelError(
        f"the kinds in --trials contradict the speakers and phrases in {int(wrong.sum())} of {len(trials)} trials "
        f"({counts}); the first is {_example_line(trials, first)} with {speakers} and {phrases}{notes}"
    )


def _example_line(trials: Trials, row: int) -> str:
    """Return a trial as a quoted line of the list, for a message."""
    kind = "" if trials.kind is None else f" {trials.kind[row]}"
    return repr(f"{trials.enrol[row]} {trials.test[row]}{kind}")


def same_labels(models: Coded, tests: Coded) -> BoolArray:
    """Return the mask (n,) of the trials with the same label on both sides.

    models, tests : label, such as the phrase, of the model and of the test of each trial, (n,)
    """
    import numpy as np

    from ..io.trials import rows_in

    # compare codes: lists are long, names are few
    rows = rows_in(models.names, tests.names.tolist())[models.codes]
    return np.asarray(rows == tests.codes)
