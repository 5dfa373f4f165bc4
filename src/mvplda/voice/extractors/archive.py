"""Writing an archive (.zip) of extractors with their files, licences, credits and hashes, for a release or a mirror."""

from __future__ import annotations

import zipfile
from importlib import resources

from ..._typing import PathLike
from ...atomic_files import atomic_write
from ...exceptions import FetchError, ParameterError
from .download import cached_decoder, cached_file, missing_extractor_message
from .recipe import Recipe, downloadable, recipe_to_toml
from .wheels import sha256

FIXED_TIME = (1980, 1, 1, 0, 0, 0)
"""Modification time of every file in an archive, always the same so that equal contents make equal archives."""
CHANGES = (
    "The files with the hashes of the table [weights.files] of each NAME.toml. Networks in onnxruntime's own format "
    "were converted to ONNX; no weight was changed."
)


def pack_weights(path: PathLike, *names: str, decoders: bool = False) -> dict[str, bytes]:
    """Write downloaded extractors into an archive (.zip) that `mvplda extractor get --from` reads.

    Parameters
    ----------
    path : path of the archive to write
    names : names of extractors in the user's cache
    decoders : whether to add the decoders of speech recognisers, for extractors that have one

    Returns
    -------
    {path of a file in the archive: contents}

    Raises
    ------
    FetchError
        An extractor is not in the cache, or has other hashes than the installed recipe.
    ParameterError
        There is no extractor with one of the names.
    """
    contents = archive_contents(*names, decoders=decoders)
    with atomic_write(path) as (temporary,), zipfile.ZipFile(temporary, "w") as archive:
        for name, data in contents.items():
            entry = zipfile.ZipInfo(name, FIXED_TIME)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, data)
    return contents


def archive_contents(*names: str, decoders: bool = False) -> dict[str, bytes]:
    """Return the files that `pack_weights` writes into an archive, without writing it.

    Parameters, result and errors are those of `pack_weights`.
    """
    for name in names:
        if name not in downloadable():
            raise ParameterError(missing_extractor_message(name))
    recipes = [downloadable()[name] for name in names]
    contents = {"NOTICE.txt": notice(recipes).encode()}
    licences = resources.files(__package__) / "licences"
    for text in sorted({recipe.licence_text for recipe in recipes}):
        contents[f"licences/{text}"] = (licences / text).read_bytes()
    for recipe in recipes:
        contents |= _network_files(recipe)
        if decoders and recipe.decoder.members:
            decoder = {
                file: path.read_bytes() for file, path in cached_decoder(recipe.name).items()
            }
            contents |= {f"{recipe.name}/{file}": data for file, data in decoder.items()}
    sums = [f"{sha256(data)}  {name}\n" for name, data in contents.items()]
    return {**contents, "SHA256SUMS": "".join(sums).encode()}


def _network_files(recipe: Recipe) -> dict[str, bytes]:
    """Return the recipe and the downloaded files of an extractor, {path in the archive: contents}.

    Raises
    ------
    FetchError
        A file is missing, or its hash is not that in the recipe.
    """
    folder = cached_file(recipe.name).parent
    contents = {f"{recipe.name}/{recipe.name}.toml": recipe_to_toml(recipe).encode()}
    for file, digest in recipe.weights.files.items():
        data = (folder / file).read_bytes()
        if sha256(data) != digest:
            raise FetchError(
                f"{folder / file} is not the file of the installed recipe (SHA-256 {sha256(data)[:16]}..., expected "
                f"{digest[:16]}...). Run `mvplda extractor remove {recipe.name}` and then `mvplda extractor get "
                f"{recipe.name}`"
            )
        contents[f"{recipe.name}/{file}"] = data
    return contents


def notice(recipes: list[Recipe]) -> str:
    """Return the text of NOTICE.txt in the archive: source, licence and authors of each network."""
    lines = ["Speaker and phrase extractors for mvplda", "", CHANGES]
    for recipe in recipes:
        lines += [
            "",
            f"{recipe.name}: {recipe.description}",
            f"  credit: {recipe.credit}",
            f"  licence: {recipe.licence} (licences/{recipe.licence_text})",
            f"  source: {recipe.source}, from the package {recipe.wheel.requirement}",
        ]
    return "\n".join(lines) + "\n"
