"""Commands of the HTTP service: serve, with its sub-commands for API keys and data keys."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin

import click

from ..exceptions import MissingExtraError
from .groups import CommandGroup
from .options import Command

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    from ..serve.keys import KeyRing
    from ..serve.service import Service
    from ..serve.settings import Settings
    from ..serve.store import Store


def settings_option(name: str, field: FieldInfo) -> Callable[[Command], Command]:
    """Return the option of a setting, with its description and its environment variable as help."""
    kind: object = field.annotation
    if get_origin(kind) in (types.UnionType, Union):
        kind = next(member for member in get_args(kind) if member is not type(None))
    option = "--" + name.replace("_", "-")
    text = f"{field.description}  [env: MVPLDA_{name.upper()}]"
    if kind is bool:
        return click.option(f"{option}/--no-{option[2:]}", name, default=None, help=text)
    if name == "extractors":
        return click.option("-x", "--extractor", name, multiple=True, help=text)
    default = field.get_default(call_default_factory=True)
    if isinstance(default, (int, float, str, Path)):
        text += f"  [default: {default}]"
    names: dict[object, str] = {int: "INTEGER", float: "NUMBER", Path: "PATH"}
    metavar = "|".join(get_args(kind)) or names.get(kind, "TEXT")
    return click.option(option, name, metavar=metavar, help=text)


def settings_options(command: Command) -> Command:
    """Add an option for each setting of the service."""
    try:
        from ..serve.settings import Settings
    except MissingExtraError:  # the command raises this error again when it runs
        return command
    for name, field in reversed(Settings.model_fields.items()):
        command = settings_option(name, field)(command)
    return command


def make_settings(options: Mapping[str, object]) -> Settings:
    """Return the settings: options of the command line, then the environment, then defaults."""
    from pydantic import ValidationError

    from ..serve.settings import Settings

    chosen: dict[str, Any] = {
        name: value for name, value in options.items() if value not in (None, ())
    }
    try:
        return Settings(**chosen)
    except ValidationError as error:
        fault = error.errors()[0]
        name = str(fault["loc"][0]) if fault["loc"] else "settings"
        option = "--" + name.replace("_", "-")
        raise click.UsageError(f"{option} (MVPLDA_{name.upper()}): {fault['msg']}") from None


class ServeGroup(CommandGroup):
    """Group whose options are settings; without the extra `serve`, every call names the extra to install."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        from ..serve import settings as _  # noqa: F401

        return super().parse_args(ctx, args)


@click.group("serve", cls=ServeGroup, invoke_without_command=True)
@settings_options
@click.pass_context
def serve_command(ctx: click.Context, /, **options: object) -> None:
    """Verify speakers and phrases over HTTP.

    Runs the service and a web page to try it. Profiles are stored in an SQLite database in the data folder. Requests
    from the same machine need no API key. The master key is read from MVPLDA_MASTER_KEY, or else from the data folder.
    Options take precedence over environment variables.

    \b
    Examples:
      mvplda extractor get && mvplda serve
      mvplda serve --demo
      mvplda serve --host 0.0.0.0 --database postgresql://mvplda@db/mvplda --workers 4
      mvplda serve key shop --role verify
    """
    from ..serve import app, connections

    settings = make_settings(options)
    ctx.obj = settings
    if ctx.invoked_subcommand is not None:
        return
    with closing(app.open_store(settings)) as store:
        if not store.api_keys.names() and not settings.local:
            raise click.UsageError(
                f"other machines can reach {settings.host}: make an API key first, mvplda serve key NAME --role admin"
            )
    connections.check_port(settings)
    connections.reserve_file_handles(settings)
    service = app.open_service(settings)
    click.echo(
        f"mvplda serves at http://{settings.host}:{settings.port}/ (press Ctrl-C to stop)", err=True
    )
    if service.model.notice:
        click.secho(service.model.notice, err=True, bold=True)
    offer_import(settings, service)
    app.run(service, settings)


def offer_import(settings: Settings, service: Service) -> None:
    """Print the command that imports the people of the model's folder, if the service has no profile yet."""
    from ..model_files import PROFILES_FILE

    folder = settings.model
    if folder is None or not (folder / PROFILES_FILE).is_file():
        return
    if not service.profiles.find(1, None, None, None).items:
        click.echo(
            f"{folder} also holds the people of its setup: enrol them with mvplda serve --model {quote(str(folder))} "
            f"import {quote(str(folder))} --consent TEXT",
            err=True,
        )


@serve_command.command()
@click.argument("name")
@click.option(
    "--role",
    type=click.Choice(["verify", "enrol", "admin"]),
    default="verify",
    help="Rights of the key: verify, also enrol people, or everything.",
)
@click.option(
    "--detail",
    type=click.Choice(["verdict", "halves", "evidence"]),
    help="What the key sees of a decision.  [default: verdict for the role verify, else evidence]",
)
@click.option(
    "--far",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    help="Largest --far that the key may choose.  [default: that of the service for the role verify, else any]",
)
@click.option(
    "--require",
    type=click.Choice(["none", "challenge", "countermeasure", "either"]),
    help="Protection that each verification with the key must have.  [default: that of the service]",
)
@click.option("--tenant", help="Tenant whose people the key is for.  [default: the service itself]")
@click.option("--revoke", is_flag=True, help="Revoke the key with this NAME.")
@click.pass_obj
def key(
    settings: Settings, /, name: str, role: str, tenant: str | None, revoke: bool, **policy: Any
) -> None:
    """Make or revoke an API key.

    Prints the new key NAME, which cannot be shown again. An earlier key NAME becomes invalid.

    \b
    Examples:
      mvplda serve key shop --role verify
      mvplda serve key bank --role verify --detail halves --far 0.001 --require challenge
    """
    from ..serve.app import open_store
    from ..serve.keys import KeyPolicy
    from ..serve.tenants import find_tenant

    with closing(open_store(settings, is_urgent=True)) as store:
        if tenant is not None and find_tenant(store, tenant) is None:
            raise click.UsageError(
                f"there is no tenant {tenant}: create it by  mvplda serve tenant {tenant}"
            )
        if not revoke:
            click.echo(store.api_keys.put(name, role, None, KeyPolicy(**policy), tenant))
        elif store.api_keys.drop(name):
            click.echo(f"{name} is revoked")
        else:
            click.echo(f"no key has the name {name}")


@serve_command.command("tenant")
@click.argument("name", required=False)
@click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="SETTING=VALUE",
    help="NAME=VALUE: setting of the tenant, such as far=0.001; without a value it is that of the service again.",
)
@click.option(
    "--export", is_flag=True, help="Print everything stored of its people, and its audit."
)
@click.option("--erase", is_flag=True, help="Erase its keys, people and audit. Cannot be undone.")
@click.pass_obj
def tenant_command(
    settings: Settings, /, name: str | None, changes: tuple[str, ...], export: bool, erase: bool
) -> None:
    """Make, list, export or erase tenants.

    A tenant is an organisation with people, domain, thresholds, audit and limits of its own, in SQLite files or a
    schema of PostgreSQL of its own. Calls with its API keys (mvplda serve key NAME --tenant TENANT) reach nothing
    else. Without NAME, lists the tenants.

    \b
    Examples:
      mvplda serve tenant acme --set far=0.001 --set key-rate=600
      mvplda serve key acme-shop --role verify --tenant acme
      mvplda serve tenant acme --export > acme.jsonl
      mvplda serve tenant acme --erase
    """
    from ..serve import tenants
    from ..serve.app import open_service, open_store

    if name is not None and export:
        service = open_service(settings)
        with closing(service.store):
            for line in tenants.export_lines(tenants.open_tenant(service, name)):
                click.echo(line)
        return
    with closing(open_store(settings, is_urgent=True)) as store:
        if name is None:
            for tenant in tenants.list_tenants(store):
                click.echo(f"{tenant.name} {tenant.settings}")
        elif erase:
            tenants.erase_tenant(store, settings, name)
            click.echo(f"{name} is erased")
        else:
            texts = dict(change.partition("=")[::2] for change in changes)
            is_new = tenants.put_tenant(store, settings, name, tenants.parse_changes(texts))
            click.echo(f"{name} is {'created' if is_new else 'changed'}")


@serve_command.command("import")
@click.argument("source", type=click.Path(exists=True, path_type=Path))
@click.option(
    "--consent",
    required=True,
    help="What these people agreed to: nothing is stored of a person without consent.",
)
@click.option("--phrase", help="Phrase of recordings without a name of their phrase.")
@click.option("--tenant", help="Tenant whose people these are.  [default: the service itself]")
@click.pass_obj
def import_command(
    settings: Settings, /, source: Path, consent: str, phrase: str | None, tenant: str | None
) -> None:
    """Enrol the people of a folder of `mvplda setup`, or of a file of `mvplda profiles`.

    Their recordings pass the checks of an enrolment, without those of sound. If the voice of a further phrase differs
    from the person's other phrases, it is enrolled with a warning unless somebody else of the file is nearer.
    Recordings that the service has already are skipped, so the command can be repeated after another setup. A person is
    found by the userId.

    Example: mvplda serve --model voices/ import voices/ --consent "agreed on paper, 2026"
    """
    from ..model_files import MODEL_FILE
    from ..serve.app import open_service
    from ..serve.import_people import import_people
    from ..serve.schemas import Consent
    from ..serve.tenants import open_tenant
    from ..voice.profile_file import ProfileBook

    if settings.model is None and (source / MODEL_FILE).is_file():
        settings = settings.model_copy(update={"model": source})
    service = open_service(settings)
    with closing(service.store):
        agreed = Consent(given=True, text=consent)
        people = open_tenant(service, tenant)
        report = import_people(people, ProfileBook(source), agreed, phrase)
    click.echo(
        f"{report.created} new people, {report.added} recordings added, {report.present} were there already"
    )
    for name, phrases in report.doubtful.items():
        click.echo(
            f"Warning: {name}: the voice of {', '.join(map(repr, phrases))} differs from the voice of this person's "
            "other phrases. Nobody else in the file is nearer, so it is enrolled: check that the person said it.",
            err=True,
        )
    for name, reasons in report.refused.items():
        for reason in dict.fromkeys(reasons):
            click.echo(f"refused: {name}: {reason} ({reasons.count(reason)} times)")
    if report.refused:
        click.echo(
            "Refused recordings are not enrolled. Check their person and phrase, or record new ones on the service's "
            "page.",
            err=True,
        )
        raise SystemExit(1)


def of_tenant(name: str) -> str:
    """Return the beginning of a line about a tenant; empty for the service itself."""
    return f"tenant {name}: " if name else ""


@serve_command.command()
@click.pass_obj
def sweep(settings: Settings) -> None:
    """Delete people without a data key after restoring a backup.

    People who were deleted after the backup was made have no data key and are deleted again; data keys without a person
    are destroyed. Stop the service first, and provide the current data keys: keys.sqlite in the data folder, or
    --key-database. Tenants without a data key at all stay as they are.

    Example: mvplda serve sweep
    """
    from ..serve.app import open_store
    from ..serve.master_rotation import delete_keyless_profiles
    from ..serve.tenants import all_stores

    with closing(open_store(settings, is_urgent=True)) as store:
        if not store.all_keys():
            raise click.UsageError(
                "no data key exists: provide keys.sqlite in the data folder, or --key-database"
            )
        for name, found in all_stores(settings, store, is_urgent=True):
            count = len(found.all_keys())
            if not count:
                continue
            deleted, orphans = delete_keyless_profiles(found)
            click.echo(
                f"{of_tenant(name)}deleted {deleted} people without a data key; {count - orphans} people have one"
            )
            click.echo(f"{of_tenant(name)}destroyed {orphans} data keys without a person")


@serve_command.command("move-keys")
@click.pass_obj
def move_keys_command(settings: Settings) -> None:
    """Move the data keys out of PostgreSQL into a key database.

    PostgreSQL overwrites nothing: a data key that is destroyed stays in its files, its log and its back-ups, and with
    the master key opens the deleted voice. An SQLite file (--key-database sqlite:////FOLDER/keys.sqlite) overwrites
    it. Stop the service first, and start it with the same --key-database. Then change the master key (mvplda serve
    rotate), because the earlier copies of the data keys stay in the log.

    Example: mvplda serve --key-database sqlite:////var/lib/mvplda/data/keys.sqlite move-keys
    """
    from ..serve.app import new_store
    from ..serve.database import Database
    from ..serve.erasure import move_keys

    if settings.key_url is None:
        raise click.UsageError("name the new database of the keys: --key-database")
    with closing(new_store(settings, None)) as store:
        count = move_keys(store, Database(settings.key_url, settings))
    click.echo(f"moved {count} data keys")


@serve_command.command()
@click.pass_obj
def scrub(settings: Settings) -> None:
    """Remove the remains of deleted people from PostgreSQL.

    Rewrites the tables with data of people, and removes old segments of the write-ahead log. Calls wait while a table
    is rewritten: run it at night. Names what may still hold data of deleted people, such as archives of the log, and
    then ends with status 1.

    Example: mvplda serve scrub
    """
    from ..serve.app import open_store
    from ..serve.erasure import scrub_store
    from ..serve.tenants import all_stores

    has_remains = False
    with closing(open_store(settings)) as store:
        for name, found in all_stores(settings, store):
            report = scrub_store(found)
            if not found.is_postgres:
                click.echo(
                    f"{of_tenant(name)}SQLite overwrites deleted rows at once; its log was emptied"
                )
                continue
            click.echo(f"{of_tenant(name)}rewrote {', '.join(report.tables)}")
            for sentence in report.remains:
                click.echo(f"{of_tenant(name)}remains: {sentence}")
            has_remains |= bool(report.remains)
    if has_remains:
        raise SystemExit(1)


@serve_command.command("check")
@click.pass_obj
def check_profiles(settings: Settings) -> None:
    """Open every stored row, and name damaged profiles.

    Reads all profiles and recordings as the service does, also beside a running service and after a restore. Damaged
    profiles are marked, so that the service leaves them out, and named with the data that cannot be read; marks of
    profiles that can be read again are removed. Verifies the audit as `mvplda serve audit --verify` does. Ends with
    status 1 if profiles are damaged or have no data key, or if entries of the audit were changed.

    Example: mvplda serve check
    """
    from ..serve.app import open_masters, open_store
    from ..serve.tenants import all_stores

    is_sound = True
    with closing(open_store(settings, is_urgent=True)) as store:
        masters = open_masters(settings, create=False)
        for name, found in all_stores(settings, store, is_urgent=True):
            is_sound &= check_store(settings, found, masters, of_tenant(name))
    if not is_sound:
        raise SystemExit(1)


def check_store(settings: Settings, store: Store, masters: KeyRing, label: str) -> bool:
    """Check one database and print what was found; return whether all of it is sound."""
    from ..serve.audit import open_audit, verify_audit
    from ..serve.damage import check_database
    from ..serve.keys import Vault
    from ..serve.templates import Templates

    with store.read() as work:
        store.check_masters(masters, work)
    vault = Vault(masters)
    store.audit = open_audit(store, vault)
    report = check_database(store, Templates(store, vault, settings))
    audit = verify_audit(store, vault)
    lines = [f"opened {report.profiles} profiles with {report.recordings} recordings"]
    lines += [f"damaged: {name}: {', '.join(faults)}" for name, faults in report.damaged.items()]
    lines += [f"no data key: {name}" for name in report.keyless]
    lines += [f"readable again: {name}" for name in report.repaired]
    lines += [f"locked by another connection, check again: {name}" for name in report.held]
    if report.keyless:
        lines.append("restore the data keys, or delete these people: mvplda serve sweep")
    if report.damaged:
        lines.append(
            "restore these people from a back-up, reset or delete them; nobody else is affected"
        )
    lines += [f"audit: {finding}" for finding in audit.findings]
    for line in lines:
        click.echo(label + line)
    return not (report.damaged or report.keyless or audit.findings)


@serve_command.command("audit")
@click.option("--verify", is_flag=True, help="Search for changed entries, instead of printing all.")
@click.option(
    "--receipt",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File with numbers and hashes of the latest entries: compared if it exists, then written. Keep it elsewhere.",
)
@click.option("--tenant", help="Tenant whose audit it is.  [default: the service itself]")
@click.pass_obj
def audit_command(
    settings: Settings, /, verify: bool, receipt: Path | None, tenant: str | None
) -> None:
    """Print the audit as lines of JSON, or verify it.

    Verification names changed, removed, added and re-ordered entries, and then ends with status 1. Whoever restores
    the whole database to an earlier state, or has the master key, leaves no trace in it: a receipt that is stored
    elsewhere shows that too.

    \b
    Examples:
      mvplda serve audit > audit.jsonl
      mvplda serve audit --verify --receipt /mnt/elsewhere/audit.txt
    """
    from ..serve.app import open_masters, open_store
    from ..serve.audit import all_entries, parse_receipt, receipt_text, verify_audit
    from ..serve.keys import Vault
    from ..serve.tenants import tenant_store

    with (
        closing(open_store(settings)) as service_store,
        tenant_store(settings, service_store, tenant) as store,
    ):
        if not verify:
            for entry in all_entries(store):
                click.echo(entry.model_dump_json())
            return
        masters = open_masters(settings, create=False)
        with store.read() as work:
            store.check_masters(masters, work)
        expected = None
        if receipt is not None and receipt.exists():
            try:
                expected = parse_receipt(receipt.read_text(encoding="utf-8"))
            except ValueError as error:
                raise click.UsageError(f"{receipt} is no receipt of an audit") from error
        report = verify_audit(store, Vault(masters), expected)
    click.echo(f"verified {report.entries} entries")
    for finding in report.findings:
        click.echo(finding)
    if report.findings:
        raise SystemExit(1)
    if receipt is not None:
        receipt.write_text(receipt_text(report.receipt), encoding="utf-8")


@serve_command.command()
@click.pass_obj
def rotate(settings: Settings) -> None:
    """Change the master key, beside running services.

    Encrypts the data keys with the new master key and transforms all templates with its rotation. The old key can then
    neither read the database nor link it to an earlier copy. Services on the same data folder find the new key
    themselves. If the old key comes from the environment, put the new key into MVPLDA_NEW_MASTER_KEY, and restart the
    services with both first: a service without the new key refuses requests. Run the same command again to resume
    after an interruption.

    Example: mvplda serve rotate
    """
    from sqlalchemy.exc import DBAPIError

    from ..serve.app import open_master, open_store
    from ..serve.master_rotation import rotate_master_key
    from ..serve.schemas import Problem

    with closing(open_store(settings, is_urgent=True)) as store:
        try:
            report = rotate_master_key(settings, store, open_master(settings, create=False))
        except (KeyboardInterrupt, DBAPIError, OSError, Problem) as error:
            reason = str(getattr(error, "orig", "") or getattr(error, "detail", "") or error)
            raise click.ClickException(
                f"the change of the master key is not finished, run it again: {reason or 'interrupted'}"
            ) from error
    click.echo(
        f"{report.profiles - len(report.damaged)} profiles have a new key and a new rotation"
    )
    for name in sorted(report.damaged):
        click.echo(
            f"profile {name} is damaged and keeps the old key:  mvplda serve check  lists the faults"
        )
    if report.damaged:
        raise SystemExit(1)
