"""Attacks on the people of a folder: ``python -m benchmarks attacks FOLDER``.

The default service, with the default model, enrols three recordings per person over HTTP. It then gets another
recording of the owner, and attacks that are made of an enrolment and of the other recording: copies, simulated
loudspeakers, resynthesis, and text-to-speech where the language of the phrases is given. The mark of each recording is
deleted before the next attack, so that each is the first one. Rates and locks are off.
"""

from __future__ import annotations

import io
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import anyio
import click
import httpx
import numpy as np

from benchmarks.report import markdown_rows
from mvplda.decisions import Verdict
from mvplda.paper.provenance import provenance, update_rows, with_provenance
from mvplda.serve.app import create_app
from mvplda.serve.keys import MasterKey
from mvplda.serve.model_loading import open_model
from mvplda.serve.service import Service
from mvplda.serve.settings import Settings
from mvplda.serve.store import Store
from mvplda.voice.attacks.attack import RATE, Sound
from mvplda.voice.attacks.measure import (
    ALL_ATTACKS,
    TABLE_HEAD,
    AttackRow,
    Decide,
    Owner,
    Share,
    attack_everybody,
    list_owners,
    missing_programs,
    table_rows,
    text_table,
)
from mvplda.voice.audio.decode import read_audio

WAV = {"content-type": "audio/wav"}


class Calls:
    """Calls to the service over HTTP, in this process."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._app = create_app(service, is_open=True)

    def __call__(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        async def call() -> httpx.Response:
            transport = httpx.ASGITransport(app=self._app)
            client = httpx.AsyncClient(transport=transport, base_url="http://localhost")
            async with client:
                return await client.request(method, f"/v1/{path}", **options)

        answer = anyio.run(call)
        found: dict[str, Any] = answer.json()
        if not answer.is_success:
            raise RuntimeError(f"{path}: {found.get('detail')}")
        return found

    def enrol(self, owner: Owner) -> str:
        """Enrol a person, and return the id of the profile."""
        consent = {"given": True, "text": "yes"}
        body = {"userId": owner.name, "phrase": owner.phrase or "phrase", "consent": consent}
        profile = str(self("POST", "profiles", json=body)["profileId"])
        for file in owner.enrolments:
            sound = wav(np.asarray(read_audio(file, RATE)))
            self("POST", f"profiles/{profile}/enrollments", content=sound, headers=WAV)
        return profile

    def verify(self, profile: str, sound: Sound) -> tuple[Verdict, str | None]:
        """Return verdict and reason for a sound; afterwards the service has forgotten it."""
        with self.service.store.read() as work:
            begin = work.now
        path = f"profiles/{profile}/verify"
        reply = self("POST", path, content=wav(sound), headers=WAV)
        with self.service.store.write() as work:
            work.run(
                "DELETE FROM marks WHERE profile = :name AND at >= :begin",
                name=profile,
                begin=begin,
            )
        return reply["decision"], reply["reason"]


def wav(sound: Sound) -> bytes:
    """Return samples as a WAV file of 16 bits."""
    import soundfile

    file = io.BytesIO()
    soundfile.write(file, np.clip(sound, -1, 1), RATE, format="WAV", subtype="PCM_16")
    return file.getvalue()


@contextmanager
def default_service() -> Iterator[Calls]:
    """Yield the default service without limits of rates and without locks, in a temporary folder."""
    settings = Settings(profile_rate=0, key_rate=0, address_rate=0, lock_after=10**9)
    with tempfile.TemporaryDirectory() as folder:
        files = [f"sqlite:///{Path(folder) / name}.sqlite" for name in ("data", "keys")]
        store = Store(*files)
        service = Service(
            store, MasterKey(secrets.token_bytes(32), "temporary"), open_model(settings), settings
        )
        try:
            yield Calls(service)
        finally:
            store.close()


def decide_over_http(calls: Calls, owners: list[Owner]) -> tuple[list[Owner], Decide]:
    """Enrol all people; return those that the service enrolled, and a function that decides."""
    profiles = {}
    for owner in owners:
        try:
            profiles[owner.name] = calls.enrol(owner)
        except RuntimeError as error:
            click.echo(f"Left out: {owner.name}: {error}", err=True)
    enrolled = [owner for owner in owners if owner.name in profiles]
    return enrolled, lambda name, sound: calls.verify(profiles[name], sound)


@click.command()
@click.argument("source", type=click.Path(exists=True, path_type=Path))
@click.option("--people", type=click.IntRange(min=1), help="Attack so many people.  [default: all]")
@click.option("--pattern", help="Labels in file names, as for mvplda setup.")
@click.option(
    "--language",
    help="Language of the phrases for eSpeak NG, such as en-us: also attack by text-to-speech.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write results.json and table.md to this folder.",
)
def main(
    source: Path, people: int | None, pattern: str | None, language: str | None, output: Path | None
) -> None:
    """Attack the people of SOURCE, a folder PERSON/PHRASE/RECORDING, through the default service.

    Prints which attacks are accepted (ISO/IEC 30107-3). Rows of results.json about other folders stay.
    """
    options = f" --people {people}" * bool(people) + f" --language {language}" * bool(language)
    command = f"python -m benchmarks attacks {{data}}/{source.name}{options} --output {{output}}"
    record = provenance([source], command=command)
    with default_service() as calls:
        owners, decide = decide_over_http(calls, list_owners(source, pattern, people))
        rows = attack_everybody(owners, decide, language, ALL_ATTACKS, progress=True)
    click.echo(text_table(rows))
    for line in missing_programs(ALL_ATTACKS.values()):
        click.echo(line)
    if output is not None:
        write(output, source.name, rows, record)


def write(output: Path, name: str, rows: list[AttackRow], record: dict[str, Any]) -> None:
    """Write the rows of one folder into results.json, and the table of all folders into table.md."""
    found = {name: [asdict(row) for row in rows]}
    file = output / "results.json"
    stored = update_rows(file, "attacks", "rows", with_provenance(found, record))
    lines = []
    for folder, entries in stored.items():
        lines += [
            f"## {folder}",
            "",
            *markdown_rows([TABLE_HEAD, *table_rows([row_of(entry) for entry in entries])]),
            "",
        ]
    (output / "table.md").write_text("\n".join(lines), encoding="utf-8")


def row_of(entry: dict[str, Any]) -> AttackRow:
    """Return a stored row."""
    values = {key: entry[key] for key in AttackRow.__dataclass_fields__}
    for key in ("accepted", "suspected"):
        values[key] = Share(*values[key])
    return AttackRow(**values)
