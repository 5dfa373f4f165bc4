"""A page on which people found in recordings are confirmed or named."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape

from .._typing import Json, PathLike
from .people import FoundPeople, Turn

PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>People</title>
<style>body{{font-family:sans-serif;margin:2em}}td{{padding:.2em 1em .2em 0}}.odd{{color:#a00}}</style>
<h1>{count} people in {turns} turns</h1>
<p>Nothing is kept until you confirm it: listen, name those whom you know, and save the names. Turns in red do not fit
the others of their person.</p>{ask}<form onsubmit="return keep(this)">{people}<button>Save names</button></form>
<script>function keep(form){{const link=document.createElement("a");
const names={{}};for(const input of form.querySelectorAll("input")){{const name=input.value.trim();
if(name)names[name]=(names[name]||[]).concat(JSON.parse(input.dataset.turns))}}
link.href="data:application/json,"+encodeURIComponent(JSON.stringify(names));
link.download="names.json";link.click();return false}}</script></html>
"""


def people_page(people: FoundPeople, turns: Sequence[Turn], sounds: Mapping[str, PathLike]) -> str:
    """A page on which somebody listens to the people, and confirms or names them.

    sounds : file of every recording
    """
    rows: dict[int, str] = {}
    spoken: dict[int, list[Json]] = {}
    for turn, person, fit in zip(turns, people.person.tolist(), people.fits.tolist(), strict=True):
        source = f"{escape(str(sounds[turn.recording]))}#t={turn.start:.2f},{turn.end:.2f}"
        odd = ' class="odd"' if fit < 0 else ""
        spoken.setdefault(person, []).append(turn._asdict())
        rows[person] = rows.get(person, "") + (
            f"<tr{odd}><td>{escape(turn.recording)}<td>{turn.start:.2f} to {turn.end:.2f} s<td>{fit:+.1f}"
            f'<td><audio controls preload="none" src="{source}"></audio></tr>'
        )
    listed = "".join(
        f'<h2>Person {person + 1} <input placeholder="name" data-turns="{escape(json.dumps(spoken[person]))}"></h2>'
        f"<table>{rows[person]}</table>"
        for person in sorted(rows)
    )
    asked = "".join(
        f"<li>Are person {i + 1} and person {j + 1} the same? (LLR {llr:+.1f})"
        for llr, i, j in people.undecided_pairs
    )
    ask = f"<h2>Not decided</h2><ul>{asked}</ul>" if asked else ""
    return PAGE.format(count=len(rows), turns=len(turns), ask=ask, people=listed)
