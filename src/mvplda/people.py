"""People across recordings: which turns are of the same person, by the exact LLRs of groups of turns.

Groups are merged, the likeliest pairs first, by the LLR of all turns of one against all of the other, with their
numbers and, where the model has the view ``recording``, with their recordings. What overlaps in time is never one
person.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import NamedTuple

import numpy as np

from ._typing import Array, FloatArray, IntArray, PathLike
from .bundle import Bundle
from .decisions import without_doubt
from .exceptions import DataError
from .extractors.extractor import Extracted
from .io.files import fail, read_bytes
from .voices import leave_one_out, sitting_labels, speaker_question


class Turn(NamedTuple):
    """A stretch of a recording in which one person speaks, in seconds.

    name : whose it is within the recording, as a diariser has it; turns of one name are one person's
    """

    recording: str
    start: float
    end: float
    name: str = ""

    def overlaps(self, other: Turn) -> bool:
        if self.recording != other.recording or self.name == other.name != "":
            return False
        return self.start < other.end and other.start < self.end


@dataclass(frozen=True)
class People:
    """Whose every turn is.

    person : (n,) number of every turn's person; the one with the most turns has 0
    fits : (n,) LLR of a turn against the others of its person; NaN where there are none
    merges : (LLR, turns of one group, turns of the other) in their order
    ask : (LLR, person, person) of those who may be one person and may be two, the likeliest first
    """

    person: IntArray
    fits: Array
    merges: list[tuple[float, list[int], list[int]]]
    ask: list[tuple[float, int, int]]


def read_turns(path: PathLike) -> list[Turn]:
    """Turns of an RTTM file (of a diariser), or of a ``segments`` file of Kaldi."""
    turns = []
    for number, line in enumerate(read_bytes(path).decode().splitlines(), 1):
        fields = line.split()
        try:
            if fields[:1] == ["SPEAKER"]:
                start = float(fields[3])
                turns.append(Turn(fields[1], start, start + float(fields[4]), fields[7]))
            elif fields:
                turns.append(Turn(fields[1], float(fields[2]), float(fields[3])))
        except (IndexError, ValueError):
            fail(path, "expected SPEAKER lines of RTTM, or: utterance recording start end", number)
    return turns


def find_people(
    bundle: Bundle, X: FloatArray, turns: Sequence[Turn], **wanted: float | None
) -> People:
    """The people of some turns, of which X are the vectors.

    wanted : of the operating point, as in `Bundle.point`: how sure a merge has to be
    """
    if len(X) != len(turns) or not turns:
        raise DataError(f"there are {len(turns)} turns and {len(X)} vectors: give one of each")
    question = speaker_question(bundle)
    side = Extracted(X, [], [], [], [turn.recording for turn in turns])
    sittings = sitting_labels(bundle, side, "")
    overlap = np.array([[one.overlaps(other) for other in turns] for one in turns])
    names = [(turn.recording, turn.name or i) for i, turn in enumerate(turns)]
    number = {name: i for i, name in enumerate(dict.fromkeys(names))}
    members = np.equal.outer(np.arange(len(number)), [number[name] for name in names])
    bundle = bundle.deployed(bundle.enrol(X, members.argmax(axis=0), sittings))
    doubt = bundle.doubt(question)

    def compare(some: IntArray, others: IntArray) -> Array:
        """LLRs of groups; minus infinity where turns of theirs overlap, and of a group with itself."""
        profiles = bundle.enrol(X, members.argmax(axis=0), sittings)
        rows = profiles.take(profiles.number(some))
        columns = profiles.take(profiles.number(others))
        llrs = without_doubt(np.asarray(bundle.answer(rows, columns, question).llr), doubt)
        llrs[members[some] @ overlap @ members[others].T] = -np.inf
        llrs[np.equal.outer(some, others)] = -np.inf
        return llrs

    point = bundle.point(question, **wanted)
    # with more groups there are more chances to be wrong
    limits = without_doubt(np.array([point.threshold, point.reject]), doubt)
    accept, reject = limits + np.log(max(len(members) - 1, 1))
    alive = np.arange(len(members))
    llrs = compare(alive, alive)
    merges = []
    while True:
        best = llrs.argmax(axis=1)
        changed = [
            i for i in alive if i < best[i] and best[best[i]] == i and llrs[i, best[i]] >= accept
        ]
        if not changed:
            break
        for i in changed:
            j = best[i]
            one, other = (np.flatnonzero(members[group]).tolist() for group in (i, j))
            merges.append((float(llrs[i, j]), one, other))
            members[i] |= members[j]
            members[j] = False
            llrs[j] = llrs[:, j] = -np.inf
        alive = np.flatnonzero(members.any(axis=1))
        again = compare(np.array(changed), alive)
        llrs[np.ix_(changed, alive)] = again
        llrs[np.ix_(alive, changed)] = again.T
    order = alive[np.argsort(-members[alive].sum(axis=1), kind="stable")]
    person = members[order].argmax(axis=0)
    left = np.triu(llrs[np.ix_(order, order)], 1)
    ask = [(float(left[i, j]), int(i), int(j)) for i, j in np.argwhere(left > reject)]
    fits = leave_one_out(bundle, X, person.tolist(), sittings)
    return People(person, fits, merges, sorted(ask, reverse=True))


PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>People</title>
<style>body{{font-family:sans-serif;margin:2em}}td{{padding:.2em 1em .2em 0}}.odd{{color:#a00}}</style>
<h1>{count} people in {turns} turns</h1>
<p>Nothing is kept until you confirm it: listen, name those whom you know, and save the names. Turns in red do not fit
the others of their person.</p>{ask}<form onsubmit="return keep(this)">{people}<button>Save names</button></form>
<script>function keep(form){{const link=document.createElement("a");
const names=Object.fromEntries([...new FormData(form)].filter(pair=>pair[1]));
link.href="data:application/json,"+encodeURIComponent(JSON.stringify(names));
link.download="names.json";link.click();return false}}</script></html>
"""


def people_page(people: People, turns: Sequence[Turn], sounds: Mapping[str, PathLike]) -> str:
    """A page on which somebody listens to the people, and confirms or names them.

    sounds : file of every recording
    """
    rows: dict[int, str] = {}
    for turn, person, fit in zip(turns, people.person.tolist(), people.fits.tolist(), strict=True):
        source = f"{escape(str(sounds[turn.recording]))}#t={turn.start:.2f},{turn.end:.2f}"
        odd = ' class="odd"' if fit < 0 else ""
        rows[person] = rows.get(person, "") + (
            f"<tr{odd}><td>{escape(turn.recording)}<td>{turn.start:.2f} to {turn.end:.2f} s<td>{fit:+.1f}"
            f'<td><audio controls preload="none" src="{source}"></audio></tr>'
        )
    listed = "".join(
        f'<h2>Person {person + 1} <input name="{person + 1}" placeholder="name"></h2><table>{rows[person]}</table>'
        for person in sorted(rows)
    )
    asked = "".join(
        f"<li>Are person {i + 1} and person {j + 1} the same? (LLR {llr:+.1f})"
        for llr, i, j in people.ask
    )
    ask = f"<h2>Not decided</h2><ul>{asked}</ul>" if asked else ""
    return PAGE.format(count=len(rows), turns=len(turns), ask=ask, people=listed)
