"""Commands of the HTTP service: serve, and its sub-commands for API keys, tenants, data keys, checks and audit."""

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
    """Return a decorator that adds the option of a setting of the service.

    The help of the option is the description of the setting, its environment variable and its default.

    name : name of the setting in `Settings`
    field : description, type and default of the setting
    """
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
    """Add an option for each setting of the service; none if the extra `serve` is not installed."""
    try:
        from ..serve.settings import Settings
    except MissingExtraError:  # the command raises this error again when it runs
        return command
    for name, field in reversed(Settings.model_fields.items()):
        command = settings_option(name, field)(command)
    return command


def make_settings(options: Mapping[str, object]) -> Settings:
    """Return the settings of the service from options; missing ones come from the environment, else from defaults.

    Raises a usage error that names the option and the variable of the first invalid setting.
    """
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
    """Group whose options are settings; without the extra `serve`, every call raises `MissingExtraError`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        from ..serve import settings as _  # noqa: F401

        return super().parse_args(ctx, args)


@click.group("serve", cls=ServeGroup, invoke_without_command=True)
@settings_options
@click.pass_context
def serve_command(ctx: click.Context, /, **options: object) -> None:
    """Verify speakers and phrases over HTTP.

    Runs the service, and a web page to try it. Profiles are stored in an SQLite database in the data folder, or in the
    database of --database. Requests from the same machine need no API key. The master key, which encrypts the stored
    data, is read from MVPLDA_MASTER_KEY, else from the data folder. Options take precedence over environment variables.

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
                f"other machines can reach {settings.host}, and there is no API key: first make one with "
                "`mvplda serve key NAME --role admin`"
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
    """Print the command that enrols the people in the folder of --model.

    Prints nothing if the folder has no profiles, or if the service already has some.
    """
    from ..model_files import PROFILES_FILE

    folder = settings.model
    if folder is None or not (folder / PROFILES_FILE).is_file():
        return
    if not service.profiles.find(1, None, None, None).items:
        click.echo(
            f"{folder} also contains the profiles of the people it was set up with. To enrol them in the service, run "
            f"`mvplda serve --model {quote(str(folder))} import {quote(str(folder))} --consent TEXT`",
            err=True,
        )


@serve_command.command()
@click.argument("name")
@click.option(
    "--role",
    type=click.Choice(["verify", "enrol", "admin"]),
    default="verify",
    help="Rights of the key. verify: only verify. enrol: also enrol people. admin: everything.",
)
@click.option(
    "--detail",
    type=click.Choice(["verdict", "halves", "evidence"]),
    help="Values of a decision that the key gets: the verdict alone; also one result for the voice and one for the "
    "phrase; or all LLRs and probabilities.  [default: verdict for the role verify, else evidence]",
)
@click.option(
    "--far",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    help="Largest false-acceptance rate that requests with the key may ask for.  [default: that of the service for the "
    "role verify, else any]",
)
@click.option(
    "--require",
    type=click.Choice(["none", "challenge", "countermeasure", "either"]),
    help="Protection against replays that each verification with the key must have.  [default: that of the service]",
)
@click.option(
    "--tenant", help="Tenant whose people the key can reach.  [default: the service itself]"
)
@click.option("--revoke", is_flag=True, help="Revoke the key NAME instead of making it.")
@click.pass_obj
def key(
    settings: Settings, /, name: str, role: str, tenant: str | None, revoke: bool, **policy: Any
) -> None:
    """Make or revoke an API key.

    Makes a key with the name NAME and prints it; it cannot be shown again. An earlier key of that name becomes invalid.

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
                f"there is no tenant {tenant}: create it with `mvplda serve tenant {tenant}`"
            )
        if not revoke:
            click.echo(store.api_keys.put(name, role, None, KeyPolicy(**policy), tenant))
        elif store.api_keys.drop(name):
            click.echo(f"the key {name} is revoked")
        else:
            click.echo(f"there is no key with the name {name}: nothing to revoke")


@serve_command.command("tenant")
@click.argument("name", required=False)
@click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="SETTING=VALUE",
    help="SETTING=VALUE: change a setting of the tenant, such as far=0.001. SETTING= resets it to that of the service.",
)
@click.option(
    "--export", is_flag=True, help="Print all data of its people, and its audit, as lines of JSON."
)
@click.option(
    "--erase",
    is_flag=True,
    help="Erase the tenant with its keys, people and audit. Cannot be undone.",
)
@click.pass_obj
def tenant_command(
    settings: Settings, /, name: str | None, changes: tuple[str, ...], export: bool, erase: bool
) -> None:
    """Make, list, export or erase tenants.

    A tenant is an organisation with its own people, thresholds, audit and limits. Its data are in separate SQLite
    files, or in a separate schema of PostgreSQL. Requests with its API keys (mvplda serve key NAME --tenant TENANT)
    reach only its data. Without NAME, lists the tenants.

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
            click.echo(f"the tenant {name} is erased")
        else:
            texts = dict(change.partition("=")[::2] for change in changes)
            is_new = tenants.put_tenant(store, settings, name, tenants.parse_changes(texts))
            click.echo(f"the tenant {name} is {'created' if is_new else 'changed'}")


@serve_command.command("import")
@click.argument("source", type=click.Path(exists=True, path_type=Path))
@click.option(
    "--consent",
    required=True,
    help="Text that these people agreed to; it is stored with each of them. Nobody is stored without consent.",
)
@click.option("--phrase", help="Phrase of the recordings that have no name of a phrase.")
@click.option("--tenant", help="Tenant that gets these people.  [default: the service itself]")
@click.pass_obj
def import_command(
    settings: Settings, /, source: Path, consent: str, phrase: str | None, tenant: str | None
) -> None:
    """Enrol the people of a folder of `mvplda setup`, or of a file of `mvplda profiles`.

    SOURCE contains vectors, not sound: all checks of an enrolment are made, except for those of sound quality. A
    phrase whose voice differs from that of the person's other phrases is refused if it is nearer to another person in
    SOURCE; otherwise it is enrolled, with a warning. Recordings that the service has already are skipped, so the
    command can be run again after another setup. The name of a profile becomes the userId of the person.

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
        f"{report.created} new people, {report.added} recordings added, {report.present} recordings were there already"
    )
    for name, phrases in report.doubtful.items():
        click.echo(
            f"mvplda: warning: {name}: the voice of {', '.join(map(repr, phrases))} differs from the voice of this "
            "person's other phrases. It is enrolled, because it is not nearer to another person in the file: check "
            "that this person said it",
            err=True,
        )
    for name, reasons in report.refused.items():
        for reason in dict.fromkeys(reasons):
            click.echo(f"refused: {name}: {reason} ({reasons.count(reason)} recording(s))")
    if report.refused:
        click.echo(
            "Refused recordings are not enrolled. Check their person and phrase, or record new ones on the service's "
            "page.",
            err=True,
        )
        raise SystemExit(1)


def of_tenant(name: str) -> str:
    """Return "tenant NAME: ", the start of a printed line; "" for the service itself, whose name is empty."""
    return f"tenant {name}: " if name else ""


@serve_command.command()
@click.pass_obj
def sweep(settings: Settings) -> None:
    """Delete people without a data key after restoring a backup.

    A person's data are encrypted with a data key, which is destroyed when the person is deleted. People who were
    deleted after the backup was made are in the backup without a data key: they are deleted again. Data keys without
    a person are destroyed. Stop the service first, and provide the current data keys: keys.sqlite in the data folder,
    or --key-database. Tenants without any data key are left unchanged.

    Example: mvplda serve sweep
    """
    from ..serve.app import open_store
    from ..serve.master_rotation import delete_keyless_profiles
    from ..serve.tenants import all_stores

    with closing(open_store(settings, is_urgent=True)) as store:
        if not store.all_keys():
            raise click.UsageError(
                "there are no data keys, so all people would be deleted: restore the current keys (the file "
                "keys.sqlite in the data folder, or the database of --key-database)"
            )
        for tenant_name, tenant_store in all_stores(settings, store, is_urgent=True):
            count = len(tenant_store.all_keys())
            if not count:
                continue
            deleted, orphans = delete_keyless_profiles(tenant_store)
            click.echo(
                f"{of_tenant(tenant_name)}deleted {deleted} people without a data key; {count - orphans} people have "
                "one"
            )
            click.echo(f"{of_tenant(tenant_name)}destroyed {orphans} data keys without a person")


@serve_command.command("move-keys")
@click.pass_obj
def move_keys_command(settings: Settings) -> None:
    """Move the data keys out of PostgreSQL into a key database.

    PostgreSQL does not overwrite deleted rows: a destroyed data key stays in its files, its log and its back-ups, and
    whoever has the master key could decrypt the deleted person with it. An SQLite file (--key-database
    sqlite:////FOLDER/keys.sqlite) overwrites deleted keys. Stop the service first, and start it with the same
    --key-database. Then change the master key (mvplda serve rotate), because earlier copies of the data keys stay in
    the log of PostgreSQL.

    Example: mvplda serve --key-database sqlite:////var/lib/mvplda/data/keys.sqlite move-keys
    """
    from ..serve.app import new_store
    from ..serve.database import Database
    from ..serve.erasure import move_keys

    if settings.key_url is None:
        raise click.UsageError(
            "the database to which the data keys are moved is missing: pass it with --key-database"
        )
    with closing(new_store(settings, None)) as store:
        count = move_keys(store, Database(settings.key_url, settings))
    click.echo(f"moved {count} data keys")


@serve_command.command()
@click.pass_obj
def scrub(settings: Settings) -> None:
    """Remove the remains of deleted people from PostgreSQL.

    Rewrites the tables with data of people, and removes old segments of the write-ahead log. Requests wait while a
    table is rewritten: run it at night. Prints what may still contain data of deleted people, such as archives of the
    log; the exit code is then 1.

    Example: mvplda serve scrub
    """
    from ..serve.app import open_store
    from ..serve.erasure import scrub_store
    from ..serve.tenants import all_stores

    has_remains = False
    with closing(open_store(settings)) as store:
        for tenant_name, tenant_store in all_stores(settings, store):
            report = scrub_store(tenant_store)
            if not tenant_store.is_postgres:
                click.echo(
                    f"{of_tenant(tenant_name)}nothing to rewrite, because SQLite overwrites deleted rows at once; its "
                    "log was emptied"
                )
                continue
            click.echo(f"{of_tenant(tenant_name)}rewrote {', '.join(report.tables)}")
            for sentence in report.remains:
                click.echo(f"{of_tenant(tenant_name)}may still contain deleted data: {sentence}")
            has_remains |= bool(report.remains)
    if has_remains:
        raise SystemExit(1)


@serve_command.command("check")
@click.pass_obj
def check_profiles(settings: Settings) -> None:
    """Read all stored data, and list damaged profiles.

    Reads all profiles and recordings as the service does; the service may run meanwhile. Damaged profiles are marked,
    so that the service leaves them out, and listed with the data that cannot be read. Marks of profiles that can be
    read again are removed. Verifies the audit as `mvplda serve audit --verify` does. The exit code is 1 if profiles
    are damaged or have no data key, or if entries of the audit were changed.

    Example: mvplda serve check
    """
    from ..serve.app import open_masters, open_store
    from ..serve.tenants import all_stores

    is_sound = True
    with closing(open_store(settings, is_urgent=True)) as store:
        masters = open_masters(settings, create=False)
        for tenant_name, tenant_store in all_stores(settings, store, is_urgent=True):
            is_sound &= check_store(settings, tenant_store, masters, of_tenant(tenant_name))
    if not is_sound:
        raise SystemExit(1)


def check_store(settings: Settings, store: Store, masters: KeyRing, label: str) -> bool:
    """Check the profiles and the audit of one database, and print the findings.

    masters : master keys
    label : start of each printed line, see `of_tenant`

    Returns
    -------
    True if all profiles are readable and have a data key, and no entry of the audit was changed
    """
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
    lines += [f"not checked, because in use; run the check again: {name}" for name in report.held]
    if report.keyless:
        lines.append(
            "restore the data keys, or delete the people without data key with `mvplda serve sweep`"
        )
    if report.damaged:
        lines.append(
            "restore the damaged profiles from a backup, reset or delete them; no other profile is affected"
        )
    lines += [f"audit: {finding}" for finding in audit.findings]
    for line in lines:
        click.echo(label + line)
    return not (report.damaged or report.keyless or audit.findings)


@serve_command.command("audit")
@click.option(
    "--verify", is_flag=True, help="Search for changed entries, instead of printing all entries."
)
@click.option(
    "--receipt",
    type=click.Path(dir_okay=False, path_type=Path),
    help="With --verify: file with the numbers and hashes of the latest entries. If it exists, the audit is compared "
    "with it; then it is written again. Keep it on another machine.",
)
@click.option("--tenant", help="Read the audit of this tenant.  [default: the service itself]")
@click.pass_obj
def audit_command(
    settings: Settings, /, verify: bool, receipt: Path | None, tenant: str | None
) -> None:
    """Print the audit as lines of JSON, or verify it.

    With --verify, lists changed, removed, added and re-ordered entries; the exit code is then 1. A change by somebody
    who has the master key, or who restores the whole database to an earlier state, is found only by a receipt
    (--receipt) that is stored elsewhere.

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
                raise click.UsageError(
                    f"--receipt {receipt} is not a receipt of `mvplda serve audit --verify --receipt`: choose another "
                    "file"
                ) from error
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
    """Change the master key; services may keep running.

    Encrypts the data keys with the new master key, and rotates all stored vectors by a matrix that depends on the new
    key. With the old key, the database can then neither be read nor linked to an earlier copy of it. Services on the
    same data folder find the new key themselves. If MVPLDA_MASTER_KEY holds the old key, put the new key into
    MVPLDA_NEW_MASTER_KEY, and restart the services with both variables first: a service without the new key refuses
    requests. Run the same command again to resume after an interruption.

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
                f"the change of the master key is not finished ({reason or 'interrupted'}): run `mvplda serve rotate` "
                "again to resume it"
            ) from error
    count = report.profiles - len(report.damaged)
    click.echo(
        f"{count} profiles are encrypted with the new master key, and their vectors are rotated anew"
    )
    for name in sorted(report.damaged):
        click.echo(
            f"profile {name} is damaged and keeps the old key; run `mvplda serve check` to list its faults"
        )
    if report.damaged:
        raise SystemExit(1)
