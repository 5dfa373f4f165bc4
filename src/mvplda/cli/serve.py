"""The service: serve, with its keys, back-ups and the rotation of its master key."""

from __future__ import annotations

import types
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin

import click

from .._typing import Json
from ..exceptions import MissingExtraError

if TYPE_CHECKING:
    from ..serve.settings import Settings


def option_of(name: str, field: Any) -> Callable[[Any], Any]:
    """The option of a setting: its name with hyphens, its description, its name in the environment."""
    kind = field.annotation
    if get_origin(kind) in (types.UnionType, Union):
        kind = next(one for one in get_args(kind) if one is not type(None))
    option = "--" + name.replace("_", "-")
    text = f"{field.description}  [env: MVPLDA_{name.upper()}]"
    if kind is bool:
        return click.option(f"{option}/--no-{option[2:]}", name, default=None, help=text)
    if name == "extractors":
        return click.option("-x", "--extractor", name, multiple=True, help=text)
    default = field.get_default(call_default_factory=True)
    if isinstance(default, (int, float, str, Path)):
        text += f"  [default: {default}]"
    names = {int: "INTEGER", float: "NUMBER", Path: "PATH"}
    metavar = "|".join(get_args(kind)) or names.get(kind, "TEXT")
    return click.option(option, name, metavar=metavar, help=text)


def settings_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """One option for each setting."""
    try:
        from ..serve.settings import Settings
    except MissingExtraError:  # the extra is not installed: the command says so when it runs
        return command
    for name, field in reversed(Settings.model_fields.items()):
        command = option_of(name, field)(command)
    return command


def make_settings(given: Json) -> Settings:
    """Settings of the options that were given; the others come from the environment."""
    from pydantic import ValidationError

    from ..serve.settings import Settings

    chosen = {name: value for name, value in given.items() if value not in (None, ())}
    try:
        return Settings(**chosen)
    except ValidationError as error:
        fault = error.errors()[0]
        name = str(fault["loc"][0]) if fault["loc"] else "settings"
        option = "--" + name.replace("_", "-")
        raise click.UsageError(f"{option} (MVPLDA_{name.upper()}): {fault['msg']}") from None


class ServeGroup(click.Group):
    """Whose options are settings: without the extra there are none, and whoever gives one reads what to install."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        from ..serve import settings as _  # noqa: F401

        return super().parse_args(ctx, args)


@click.group(cls=ServeGroup, invoke_without_command=True)
@settings_options
@click.pass_context
def serve(ctx: click.Context, /, **given: Any) -> None:
    """Verify speakers and phrases over HTTP, with a page to try it.

    Profiles lie in SQLite in the data folder, and on the machine's own address no key is needed. The master key comes
    from MVPLDA_MASTER_KEY, else it lies in the data folder. Options come before the environment.

    \b
    Examples:
      mvplda extractor get && mvplda serve
      mvplda serve --demo
      mvplda serve --host 0.0.0.0 --database postgresql://mvplda@db/mvplda --workers 4
      mvplda serve key shop --role verify
    """
    from ..serve import app

    settings = make_settings(given)
    ctx.obj = settings
    if ctx.invoked_subcommand is not None:
        return
    with closing(app.open_store(settings)) as store:
        if not store.key_names() and not settings.local:
            raise click.UsageError(
                f"at {settings.host} others can reach it: make a key first, mvplda serve key NAME --role admin"
            )
    app.check_port(settings)
    service = app.open_service(settings)
    click.echo(f"mvplda serves at http://{settings.host}:{settings.port}/", err=True)
    if service.model.notice:
        click.secho(service.model.notice, err=True, bold=True)
    app.run(service, settings)


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
def key(settings: Settings, name: str, role: str, revoke: bool) -> None:
    """Make an API key called NAME and print it, once; an earlier key of that name is no longer valid.

    Example: mvplda serve key shop --role verify
    """
    from ..serve.app import open_store

    with closing(open_store(settings)) as store:
        if not revoke:
            click.echo(store.put_api_key(name, role))
        elif store.drop_api_key(name):
            click.echo(f"{name} is revoked")
        else:
            click.echo(f"there is no key {name}")


@serve.command()
@click.pass_obj
def sweep(settings: Settings) -> None:
    """Mark people as deleted whose data keys are not here, after a copy of the database was restored.

    Who was deleted after the copy was made is gone again; data keys of nobody are destroyed. Stop the service, and
    bring the data keys along first: keys.sqlite in the data folder, or --key-database.

    Example: mvplda serve sweep
    """
    from ..serve.app import open_store
    from ..serve.master_rotation import delete_keyless_profiles

    with closing(open_store(settings)) as store:
        count = len(store.all_keys())
        if not count:
            raise click.UsageError(
                "there is not one data key: bring keys.sqlite, or --key-database"
            )
        gone, orphans = delete_keyless_profiles(store)
        click.echo(f"{gone} people have no data key, and are deleted; {count - orphans} have one")
        click.echo(f"{orphans} data keys were nobody's, and are destroyed")


@serve.command()
@click.pass_obj
def rotate(settings: Settings) -> None:
    """Change the master key: wrap data keys anew, and give all templates the rotation of the new key.

    What the database holds then cannot be read by the old key, nor be linked to a copy from before. Where the old key
    comes from the environment, put the new one into MVPLDA_NEW_MASTER_KEY. Services that run must be started again:
    until then they refuse. A rotation that was interrupted is finished by calling it again.

    Example: mvplda serve rotate
    """
    from ..serve.app import open_master, open_store
    from ..serve.master_rotation import rotate_master_key

    with closing(open_store(settings)) as store:
        count = rotate_master_key(settings, store, open_master(settings, create=False))
    click.echo(f"{count} profiles have a new key and a new rotation")
