"""Options, types of option values and checks of input that several commands share."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., object])

Texts = tuple[str, ...]
"""Values of an option that may be repeated."""
Pairs = tuple[tuple[str, str], ...]
"""Values of a NAME=VALUE option that may be repeated."""

SEED = click.IntRange(0, 2**32 - 1)
COUNT = click.IntRange(min=1)
RATE = click.FloatRange(0, 1, min_open=True, max_open=True)
QUIET = click.option(
    "-q",
    "--quiet",
    is_flag=True,
    help="Show no progress and no summary; tables and warnings are still shown.",
)
JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON with all digits.")


class KeyValue(click.ParamType):  # type: ignore[type-arg]
    """Type of an option value NAME=VALUE, which becomes the pair (NAME, VALUE).

    bare : VALUE if only NAME is passed; empty: NAME alone is an error
    """

    name = "name=value"

    def __init__(self, bare: str = "") -> None:
        self.bare = bare

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        key, sign, text = str(value).partition("=")
        if not sign:
            text = self.bare
        if not key or not text:
            self.fail(f"expected NAME=VALUE, got {value!r}", param, ctx)
        return key, text


class OutputFile(click.ParamType):  # type: ignore[type-arg]
    """Type of the path of an output file, which is checked to be writable before the work starts.

    sharded : whether the name may contain {shard}; such a name stands for several files and is not checked
    """

    name = "text"

    def __init__(self, sharded: bool = False) -> None:
        self.sharded = sharded

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        from ..atomic_files import check_writable
        from ..io.kaldi_names import is_kaldi, kaldi_files

        path = str(value)
        if self.sharded and "{shard}" in path:
            return path
        check_writable(*(kaldi_files(path) if is_kaldi(path) else [path]))
        return path


def output_option(help: str) -> Callable[[Command], Command]:
    """Return a decorator that adds the required option -o for an output file, with this help text."""
    return click.option("-o", "--output", required=True, type=OutputFile(), help=help)


def labels_option(help: str) -> Callable[[Command], Command]:
    """Return a decorator that adds the option -l VIEW=FILE, which may be repeated, with this help text."""
    return click.option("-l", "--labels", multiple=True, type=KeyValue(), help=help)


def extractor_option(required: bool = True) -> Callable[[Command], Command]:
    """Return a decorator that adds the option -x for one or more extractors.

    required : whether the option must be passed
    """
    return click.option(
        "-x",
        "--extractor",
        "extractors",
        multiple=True,
        required=required,
        metavar="NAME|FILE",
        help="Make vectors with this extractor: a name from `mvplda extractor list`, an ONNX file, or a network that "
        "`mvplda experiment` trained. May be repeated; the vectors of several extractors are concatenated.",
    )


def labels_from_map(path: str, ids: Iterable[object], label_name: str) -> list[str]:
    """Return the label of each id, read from a map such as utt2spk.

    Raises `LabelError` if the map lacks an id.

    label_name : description of a label for the error, such as "its speaker"
    """
    from ..exceptions import LabelError
    from ..io.lists import read_map

    label_by_id = read_map(path)
    keys = [str(key) for key in ids]
    missing = [key for key in keys if key not in label_by_id]
    if missing:
        raise LabelError(
            f"{path} does not list {len(missing)} of {len(keys)} ids, the first is {missing[0]!r}; expected lines "
            f"with an id and {label_name}"
        )
    return [label_by_id[key] for key in keys]


def first_passed(is_passed: Mapping[str, bool]) -> str | None:
    """Return the first option that was passed, to name it in a message; None if none was.

    is_passed : {option as the user types it: whether it was passed}
    """
    return next((option for option, passed in is_passed.items() if passed), None)


def unique_pairs(option: str, pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return NAME=VALUE pairs as a dictionary; raise a usage error if a name has two different values.

    option : name of the option, for the error
    """
    value_by_name: dict[str, str] = {}
    for name, value in pairs:
        if value_by_name.setdefault(name, value) != value:
            raise click.UsageError(
                f"{option} was passed with two values for {name}, {value_by_name[name]} and {value}: pass one of them"
            )
    return value_by_name


def parse_value(text: str) -> object:
    """Return the value of a setting: parsed JSON, or the text itself if it is not JSON."""
    try:
        value: object = json.loads(text)
    except ValueError:
        return text
    return value


def check_folder(path: Path) -> None:
    """Raise an error if files cannot be written to a folder, or if the folder is missing and cannot be created.

    The error is `NotADirectoryError` or one of `mvplda.atomic_files.check_writable`.
    """
    from ..atomic_files import check_writable

    parent = path
    while not parent.exists():
        parent = parent.parent
    if not parent.is_dir():
        raise NotADirectoryError(f"cannot write to {path}: {parent} is a file, not a folder")
    check_writable(parent / "any")
