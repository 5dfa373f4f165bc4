"""Command that writes a site for browsers: web."""

from __future__ import annotations

from pathlib import Path

import click

from .options import check_folder

SHARED_SCRIPTS = ("dom.js", "recorder.js", "worklet.js")
"""Scripts of the service's page that the site uses too."""


@click.command("web")
@click.argument("model", required=False)
@click.option("-o", "--output", required=True, help="Write the site to this folder.")
@click.option(
    "--runtime",
    help="Take the runtime from this folder, the unpacked npm package onnxruntime-web.  [default: load it with npm]",
)
def web_command(model: str | None, output: str, runtime: str | None) -> None:
    """Write a page that verifies in the browser.

    MODEL is a folder of `mvplda setup` or a model file; without it, the default model is used. The output is a static
    site: the page enrols and verifies on the visitor's device, which nothing leaves, and works offline after the first
    visit. Its script mvplda.js is a module for pages of your own.

    Each comparison is with one person alone, as `mvplda verify` compares two recordings. Browsers allow microphones and
    offline use on https and on localhost.

    \b
    Examples:
      mvplda web -o site/
      python -m http.server --directory site/
    """
    import mvplda

    from ..voice.verification import VoiceModel
    from ..voice.web.site import write_site

    check_folder(Path(output))
    # importing the service would need its extra
    page = Path(mvplda.__file__).parent / "serve" / "page"
    voices = VoiceModel.load(model)
    site = write_site(
        output, voices, scripts=[page / name for name in SHARED_SCRIPTS], runtime=runtime
    )
    click.echo(
        f"wrote {output}: {len(site.files)} files, {site.size_mb:.1f} MB. Try it: python -m http.server --directory "
        f"{output}"
    )
