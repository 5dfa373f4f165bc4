"""The service and calls to it: serve, remote."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from . import KeyValue, Number
from .verify import Answering

if TYPE_CHECKING:
    from ..serve.client import Client
    from ..serve.starting import Setup

LOCAL = ("127.0.0.1", "::1", "localhost")


@click.group(invoke_without_command=True)
@click.option(
    "--host",
    default="127.0.0.1",
    help="Listen at this address; others than the machine's own want keys.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8765,
    help="Listen at this port of the machine.",
)
@click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("mvplda-data"),
    envvar="MVPLDA_DATA",
    help="Keep the database and the master key in this folder, which is made if need be.",
)
@click.option(
    "--database",
    envvar="MVPLDA_DATABASE",
    help="Keep profiles in this database, such as postgresql://user@host/name.  [default: SQLite in the data folder]",
)
@click.option(
    "--key-database",
    envvar="MVPLDA_KEY_DATABASE",
    help="Keep the data keys in this database, apart from what is backed up.  [default: keys.sqlite in the data "
    "folder, or the database itself where it is PostgreSQL]",
)
@click.option(
    "--model",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    envvar="MVPLDA_MODEL",
    help="Decide by this model of speakers and phrases; MODEL.json beside it says how it is calibrated.  [default: one "
    "that comes with mvplda]",
)
@click.option(
    "-x",
    "--extractor",
    multiple=True,
    help="Make vectors with this extractor; several stand side by side.",
)
@click.option(
    "--workers", type=click.IntRange(1, 64), default=1, help="Run so many processes on one port."
)
@click.option(
    "--far",
    type=Number(0, 1, min_open=True, max_open=True),
    help="Let in such a share of impostors at most, where a call says nothing about it.  [default: as the model "
    "says, else 0.01]",
)
@click.option(
    "--enrolments",
    type=click.IntRange(1, 20),
    default=3,
    help="Want so many recordings of a phrase.",
)
@click.option(
    "--expire-days",
    type=Number(0, min_open=True),
    default=365,
    help="Let a profile that is unused for so long expire.",
)
@click.option(
    "--keep-vectors/--forget-vectors",
    default=True,
    help="Keep the vector of every recording, encrypted, so that a new model can be enrolled with it, or forget them.",
)
@click.option(
    "--countermeasure",
    envvar="MVPLDA_COUNTERMEASURE",
    help="Let this function listen for replays and imitations, package.module:function: samples and rate in, the log "
    "likelihood ratio of a person against a machine out. It is called before each decision.",
)
@click.option(
    "--weight",
    "weights",
    multiple=True,
    type=KeyValue(),
    help="Expect this account so often among what is to be turned away, such as IC=2, relative to the others: TW (the "
    "owner, other words), IC (another voice, the words), IW (neither), spoof.  [default: 1 each]",
)
@click.option(
    "--hostname", multiple=True, help="Be called by this name too, where no keys are wanted."
)
@click.option(
    "--tls", is_flag=True, help="Tell browsers to use HTTPS, which a proxy in front must speak."
)
@click.option(
    "--people",
    type=click.IntRange(0, 20),
    default=0,
    help="Enrol so many synthetic people first, to play with; needs mvplda[serve].",
)
@click.option("--browse", is_flag=True, help="Open the page in a browser when it is ready.")
@click.option("--check", is_flag=True, help="Look whether everything is in order, say so, and end.")
@click.pass_context
def serve(
    ctx: click.Context,
    host: str,
    port: int,
    data: Path,
    database: str | None,
    key_database: str | None,
    model: Path | None,
    extractor: tuple[str, ...],
    workers: int,
    far: float | None,
    enrolments: int,
    expire_days: float,
    keep_vectors: bool,
    countermeasure: str | None,
    weights: tuple[tuple[str, str], ...],
    hostname: tuple[str, ...],
    tls: bool,
    people: int,
    browse: bool,
    check: bool,
) -> None:
    """Verify speakers and phrases over HTTP, with a page to try it.

    Nothing has to be set up: profiles lie in SQLite in the data folder, and on the machine's own address no key is
    wanted. The master key comes from MVPLDA_MASTER_KEY, else it lies in the data folder.

    \b
    Examples:
      mvplda serve
      mvplda serve --people 4 --browse
      mvplda serve --host 0.0.0.0 --database postgresql://mvplda@db/mvplda --workers 4
      mvplda serve key shop --role verify
      mvplda serve --check
    """
    from ..serve.app import Door
    from ..serve.service import Rules
    from ..serve.starting import Setup, open_service, open_store, run, say_what_is_in_order

    every = {
        **Rules().weights,
        **{name: Number().convert(text, None, ctx) for name, text in weights},
    }
    rules = Rules(
        far=far,
        required=enrolments,
        expire_days=expire_days,
        keep_vectors=keep_vectors,
        weights=every,
    )
    setup = Setup(data, database, key_database, model, extractor, countermeasure, rules)
    ctx.obj = setup
    if ctx.invoked_subcommand is not None:
        return
    if check:
        sys.exit(say_what_is_in_order(setup, click.echo))
    keys = open_store(setup).key_names()
    if not keys and host not in LOCAL:
        raise click.UsageError(
            f"at {host} others can reach it: make a key first, mvplda serve key NAME --role admin"
        )
    service = open_service(setup)
    if people:
        from ..serve.people import enrol_people

        enrol_people(service, people, data / "people", click.echo)
    notice = None if service.model is None else service.model.about.get("notice")
    if port == 0:
        with socket.create_server(
            (host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET
        ) as free:
            port = free.getsockname()[1]
    address = f"http://{host}:{port}/"
    click.echo(f"mvplda serves at {address}" + (f"\n{notice}" if notice else ""), err=True)
    run(
        service,
        setup,
        Door(open=not keys, hosts=hostname, tls=tls),
        host,
        port,
        workers,
        address if browse else None,
    )


@serve.command()
@click.argument("name")
@click.option(
    "--role",
    type=click.Choice(["verify", "enrol", "admin"]),
    default="verify",
    help="Let it verify, enrol people as well, or do everything.",
)
@click.option("--revoke", is_flag=True, help="Take the key of this name back.")
@click.pass_obj
def key(setup: Setup, name: str, role: str, revoke: bool) -> None:
    """Make an API key called NAME and print it, once; a key of that name before is no longer good.

    Example: mvplda serve key shop --role verify
    """
    from ..serve.starting import open_store

    with closing(open_store(setup)) as store:
        if revoke:
            click.echo(
                f"{name} is revoked" if store.drop_api_key(name) else f"there is no key {name}"
            )
        else:
            click.echo(store.put_api_key(name, role))


@serve.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.pass_obj
def backup(setup: Setup, file: Path) -> None:
    """Write everything but the data keys to FILE: who is deleted later cannot be read from it.

    Back the data keys up by themselves, and not for long.

    Example: mvplda serve backup 2026-11-15.jsonl
    """
    from ..serve.starting import open_store

    with closing(open_store(setup)) as store:
        click.echo(f"wrote {store.backup(file)} rows to {file}", err=True)


@serve.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.pass_obj
def restore(setup: Setup, file: Path) -> None:
    """Fill an empty database from a back-up; people whose data keys are gone come back as deleted.

    The master key and the data keys are brought along first: master.key and keys.sqlite in the data folder, or
    MVPLDA_MASTER_KEY and --key-database.

    Example: mvplda serve --database postgresql://mvplda@db/new restore 2026-11-15.jsonl
    """
    from ..serve.starting import open_master, open_store

    with closing(open_store(setup)) as store:
        rows, gone = store.restore(file, open_master(setup, make=False).derived("check").hex())
    click.echo(f"restored {rows} rows", err=True)
    if gone:
        click.echo(
            f"{gone} people have no data key here and come back as deleted. If they did not leave, bring the data keys "
            "(keys.sqlite, or --key-database) and restore into an empty database once more.",
            err=True,
        )


# -- calls to a service -------------------------------------------------------------------


class Remote(Answering, click.Group):
    """Commands one of which has 1 and 2 as its answers: what goes wrong ends with 3."""


@click.group(cls=Remote)
@click.option(
    "--url",
    default="http://127.0.0.1:8765",
    envvar="MVPLDA_URL",
    help="Call the service at this address.",
)
@click.option(
    "--key",
    envvar="MVPLDA_API_KEY",
    help="Use this API key; better from the environment, MVPLDA_API_KEY.",
)
@click.pass_context
def remote(ctx: click.Context, url: str, key: str | None) -> None:
    """Call a service of `mvplda serve`; answers are printed as JSON.

    \b
    Examples:
      mvplda remote create ann --phrase "my voice is my key" --consent "agreed on paper"
      mvplda remote enrol PROFILE 1.wav 2.wav 3.wav
      mvplda remote verify PROFILE now.wav --far 0.01
    """
    from ..serve.client import Client

    ctx.obj = Client(url, key)


def _say(found: Any) -> None:
    click.echo(json.dumps(found, indent=1))


@remote.command()
@click.argument("user")
@click.option("--phrase", help="The phrase that the person is going to say.")
@click.option("--consent", required=True, help="The text that the person has agreed to.")
@click.pass_obj
def create(client: Client, user: str, phrase: str | None, consent: str) -> None:
    """Make a profile of USER, who has agreed to it.

    Example: mvplda remote create ann --phrase "my voice is my key" --consent "agreed on paper"
    """
    _say(client.create(user, phrase, consent=consent))


@remote.command("enrol")
@click.argument("profile")
@click.argument("sounds", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False))
@click.option("--phrase", help="The phrase that they say.  [default: that of the profile]")
@click.pass_obj
def enrol_sounds(client: Client, profile: str, sounds: tuple[str, ...], phrase: str | None) -> None:
    """Add recordings to PROFILE.

    Example: mvplda remote enrol PROFILE 1.wav 2.wav 3.wav
    """
    for sound in sounds:
        _say(client.enrol(profile, sound, phrase=phrase))


@remote.command("verify")
@click.argument("profile")
@click.argument("sounds", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False))
@click.option(
    "--phrase", help="The phrase that should be said.  [default: any of the enrolled ones]"
)
@click.option("--challenge", help="The challenge that the recordings answer, by its id.")
@click.option(
    "--far",
    type=Number(0, 1, min_open=True, max_open=True),
    help="Let in such a share of impostors at most.",
)
@click.pass_obj
def verify_sounds(
    client: Client,
    profile: str,
    sounds: tuple[str, ...],
    phrase: str | None,
    challenge: str | None,
    far: float | None,
) -> None:
    """Decide whether it is the owner of PROFILE who speaks; exit code 0 accepts, 1 rejects, 2 could not decide.

    Exit code 3 says that the service was not reached, or refused the call.

    Example: mvplda remote verify PROFILE now.wav --far 0.01
    """
    found = client.verify(profile, sounds, phrase=phrase, challengeId=challenge, far=far)
    _say(found)
    sys.exit(("accept", "reject", "inconclusive").index(found["decision"]))


@remote.command("identify")
@click.argument("sound", type=click.Path(exists=True, dir_okay=False))
@click.option("--top", type=click.IntRange(1, 100), default=5, help="Name so many of the profiles.")
@click.pass_obj
def identify_sound(client: Client, sound: str, top: int) -> None:
    """Name the profiles whose voice SOUND is likeliest of.

    Example: mvplda remote identify now.wav
    """
    _say(client.identify(sound, top=top))


@remote.command("list")
@click.pass_obj
def list_profiles(client: Client) -> None:
    """List all profiles, a line of JSON each.

    Example: mvplda remote list
    """
    for profile in client.profiles():
        click.echo(json.dumps(profile))


def _of_profile(name: str, text: str, call: Callable[[Any, str], Any]) -> None:
    @remote.command(name, help=f"{text}\n\nExample: mvplda remote {name} PROFILE")
    @click.argument("profile")
    @click.pass_obj
    def command(client: Client, profile: str) -> None:
        _say(call(client, profile))


_of_profile("show", "Show the state of PROFILE.", lambda client, profile: client.profile(profile))
_of_profile(
    "challenge",
    "Ask for a phrase to be said now.",
    lambda client, profile: client.challenge(profile),
)
_of_profile(
    "reset", "Take all recordings out of PROFILE.", lambda client, profile: client.reset(profile)
)
_of_profile(
    "opt-out",
    "Erase the voice, and keep the name as one who left.",
    lambda client, p: client.opt_out(p),
)
_of_profile(
    "delete", "Erase PROFILE, at once and for good.", lambda client, profile: client.delete(profile)
)
_of_profile(
    "export", "Show what is kept of a person.", lambda client, profile: client.export(profile)
)
