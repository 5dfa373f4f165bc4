"""HTML page on which the user listens to the people that were found in recordings, and names them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from string import Template

from .._typing import PathLike
from .people import FoundPeople, Suggestion
from .turns import Turn

TEMPLATE = Path(__file__).with_name("people_page.html")
"""File of the page's template, with the fields count, turns, undecided and people."""


def people_page(
    people: FoundPeople,
    turns: Sequence[Turn],
    sounds: Mapping[str, PathLike],
    suggestions: Sequence[Suggestion] = (),
) -> str:
    """Return an HTML page on which the user listens to the turns of each person and enters the person's name.

    Parameters
    ----------
    people : person of each turn, from `find_people`
    turns : stretches of recordings in which one person speaks
    sounds : {recording: path of the sound file}
    suggestions : names of known people, which the page offers for confirmation
    """
    suggested = {suggestion.person: suggestion for suggestion in suggestions}
    turns_of: dict[int, list[tuple[Turn, float]]] = {}
    for turn, person, fit in zip(turns, people.person.tolist(), people.fits.tolist(), strict=True):
        turns_of.setdefault(person, []).append((turn, fit))
    sections = [
        _person_section(person, turns_of[person], sounds, suggested.get(person))
        for person in sorted(turns_of)
    ]
    undecided = "".join(
        f"<li>Are person {i + 1} and person {j + 1} the same? (LLR {llr:+.1f})"
        for llr, i, j in people.undecided_pairs
    )
    return Template(TEMPLATE.read_text(encoding="utf-8")).substitute(
        count=len(turns_of),
        turns=len(turns),
        undecided=f"<h2>Undecided</h2><ul>{undecided}</ul>" if undecided else "",
        people="\n".join(sections),
    )


def _person_section(
    person: int,
    turns: Sequence[tuple[Turn, float]],
    sounds: Mapping[str, PathLike],
    suggestion: Suggestion | None,
) -> str:
    """Return the HTML of one person: heading, field for the name, and table of the turns.

    person : number of the person, from 0
    turns : turns of the person, and how well each fits the others (LLR)
    """
    rows = []
    for turn, fit in turns:
        source = f"{escape(str(sounds[turn.recording]))}#t={turn.start:.2f},{turn.end:.2f}"
        odd = ' class="odd"' if fit < 0 else ""
        rows.append(
            f"<tr{odd}><td>{escape(turn.recording)}<td>{turn.start:.2f} to {turn.end:.2f} s<td>{fit:+.1f}"
            f'<td><audio controls preload="none" src="{source}"></audio><td>{escape(turn.text)}</tr>'
        )
    data = escape(json.dumps([turn._asdict() for turn, _ in turns]))
    heading = (
        f'<h2>Person {person + 1} <input placeholder="name" aria-label="name of person {person + 1}" '
        f'data-turns="{data}"> <label><input type="checkbox">agreed to be recognised in other recordings</label></h2>'
    )
    return f"{heading}{_suggestion_line(suggestion)}\n<table>{''.join(rows)}</table>"


def _suggestion_line(suggestion: Suggestion | None) -> str:
    """Return the HTML of a suggested name with a button that enters the name; "" if there is no suggestion."""
    if suggestion is None:
        return ""
    name = escape(suggestion.name)
    likelihood = "Probably" if suggestion.is_probable else "Perhaps"
    return (
        f'<p>{likelihood} {name} (LLR {suggestion.llr:+.1f}) <button type="button" data-name="{name}">It is {name}'
        "</button></p>"
    )
