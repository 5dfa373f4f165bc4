"""The service: serve, remote."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.option("--host", default="127.0.0.1", help="Listen at this address; others than the machine's own want keys.")
@click.option("--port", type=click.IntRange(0, 65535), default=8765, help="Listen at this port; 0 takes a free one.")
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
    "--model",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Decide by this model of speakers and phrases.  [default: one that comes with mvplda]",
)
@click.option("-x", "--extractor", multiple=True, help="Make vectors with this extractor; several stand side by side.")
def serve(
    host: str, port: int, data: Path, database: str | None, model: Path | None, extractor: tuple[str, ...]
) -> None:
    """Verify speakers and phrases over HTTP, with a page to try it.

    Example: mvplda serve
    """
    from ..serve.app import Door
    from ..serve.starting import Setup, api_key_names, log_to_standard_error, open_service, run

    service = open_service(Setup(data, database, None, model, extractor))
    click.echo(f"mvplda serves at http://{host}:{port}/", err=True)
    log_to_standard_error()
    run(service, Door(open=not api_key_names(service.store)), host, port)
