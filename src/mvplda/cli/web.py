"""Command that writes a web site for verification in the browser: web."""

from __future__ import annotations

from pathlib import Path

import click

from .options import check_folder

SHARED_SCRIPTS = ("dom.js", "recorder.js", "worklet.js")
"""Scripts of the service's web page that are copied into the site."""


@click.command("web")
@click.argument("model", required=False)
@click.option("-o", "--output", required=True, help="Write the files of the site to this folder.")
@click.option(
    "--runtime",
    help="Copy the program that runs networks in browsers from this folder, an unpacked npm package onnxruntime-web.  "
    "[default: download the package with npm]",
)
def web_command(model: str | None, output: str, runtime: str | None) -> None:
    """Write a page that verifies in the browser.

    MODEL is a folder of `mvplda setup` or a model file; without it, the default model is used. The output is a static
    site. Its page enrols and verifies on the visitor's device: no sound leaves the device, and the page works offline
    after the first visit. The script mvplda.js of the site is a module that your own pages can import.

    The page compares a recording with one enrolled person, as `mvplda verify` compares two recordings. Browsers allow
    microphones and offline use only on https and on localhost.

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
