"""The command line. Commands load when they are called, and heavy imports happen inside them."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn

import click

from .. import __version__
from .._optional import load_plugin
from ..exceptions import MvpldaError

Command = Callable[..., Any]
Texts = tuple[str, ...]
Pairs = tuple[tuple[str, str], ...]
"""The values of an option that may be repeated: texts, or NAME=VALUE."""

COMMANDS = {
    "setup": "train",
    "stats": "train",
    "train": "train",
    "score": "score",
    "calibrate": "score",
    "evaluate": "evaluate",
    "info": "files",
    "convert": "files",
    "extractor": "extractors",
    "extract": "extractors",
    "quality": "extractors",
    "verify": "verify",
    "identify": "verify",
    "profiles": "verify",
    "people": "verify",
    "experiment": "experiment",
    "reproduce": "experiment",
    "serve": "serve",
}

ANSWERING = {"verify": 3, "identify": 3}
"""Commands whose exit codes 0, 1 and 2 are answers, and the code where there was none."""

OUTPUTS = ("-o", "--output", "--report", "--save")
"""Options that name a file to write."""


class Tool(click.Group):
    """Loads commands lazily, shows warnings as lines, and ends in one line when the input is at fault."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = getattr(
            import_module(f".{COMMANDS[cmd_name]}", __name__), cmd_name
        )
        return command

    def make_context(self, *args: Any, **options: Any) -> click.Context:
        try:
            return super().make_context(*args, **options)
        except OSError as error:  # this prints the help, which could not be written
            _end(error)

    def invoke(self, ctx: click.Context) -> Any:
        end_on_sigterm()
        try:
            refuse_overwriting(ctx.args)
            for module in ctx.params.get("plugin") or ():
                load_plugin(module)
            with warnings_as_lines():
                return super().invoke(ctx)
        except click.UsageError as error:
            code = ANSWERING.get(str(ctx.invoked_subcommand), error.exit_code)
            error.exit_code = code  # type: ignore[misc]
            raise
        except (MvpldaError, OSError, MemoryError) as error:
            if ctx.params.get("debug") and not isinstance(error, BrokenPipeError):
                raise
            _end(error, ANSWERING.get(str(ctx.invoked_subcommand), 1))


def end_on_sigterm() -> None:
    """Let SIGTERM end this process as an error would, so that half-written files are removed."""
    if threading.current_thread() is not threading.main_thread():
        return
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))


def refuse_overwriting(args: Sequence[str]) -> None:
    """Raise an error where an option names as output a file that another argument names, too."""
    words = [word for text in args for word in text.split("=")]
    times = Counter(os.path.realpath(word) for word in words)
    for option, name in pairwise(words):
        if option in OUTPUTS and times[os.path.realpath(name)] > 1 and Path(name).is_file():
            raise click.UsageError(
                f"{option} names {name}, which is read: it would be overwritten. Name another file"
            )


def in_a_line(text: str) -> str:
    """An error in one line; what follows a blank line, such as a file to fill in, is left as it is."""
    words, blank, draft = text.partition("\n\n")
    return " ".join(words.split()) + blank + draft


def _end(error: Exception, code: int = 1) -> NoReturn:
    """One line on standard error, and an exit code; nothing where whoever read has gone."""
    try:
        click.echo(nl=False)
    except (OSError, ValueError):
        # What could not be written is still there: Python would try again at the end, and write a line about it.
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if isinstance(error, BrokenPipeError):
        sys.exit(1)
    text = str(error)
    if isinstance(error, OSError) and error.strerror:
        text = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    elif isinstance(error, MemoryError):
        text = f"there is not enough memory: {error}"
    click.echo(f"mvplda: {in_a_line(text)}", err=True)
    sys.exit(code)


@click.group(
    cls=Tool, context_settings={"help_option_names": ["-h", "--help"], "show_default": True}
)
@click.version_option(__version__)
@click.option(
    "--debug",
    is_flag=True,
    help="Show where in the program an error came from, and not only what it says.",
)
@click.option(
    "--plugin",
    multiple=True,
    metavar="MODULE",
    help="Import this module first; it may register scorers, corpora and recipes. May be repeated.",
)
def main(debug: bool, plugin: Texts) -> None:
    """Multi-view (joint) PLDA: verification of vectors that carry several labels at once.

    \b
    From Kaldi files to a report in three lines:
      mvplda train data/train -o model.safetensors
      mvplda score model.safetensors --enrol enrol.scp --models spk2utt \\
          --test test.scp --trials trials -o scores
      mvplda evaluate scores --trials trials --report report.html

    \b
    Exit codes:
      0   done
      1   the input cannot be used; one line on standard error says why
      2   a wrong call
    Those of verify and identify are the answer: 0 accepted, 1 rejected, 2 could not be decided,
    3 there was no answer, for the input or the call was wrong.
    """


# Options that several commands share.


SEED = click.IntRange(0, 2**32 - 1)
COUNT = click.IntRange(min=1)
QUIET = click.option(
    "-q",
    "--quiet",
    is_flag=True,
    help="Show no progress and no summary; tables and warnings are still shown.",
)
JSON = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON, which holds every number in full."
)
MODELS = (
    "Make models of several vectors each, as this list says (model id, then ids of its vectors, as in spk2utt).  "
    "[default: every vector is a model of its own]"
)


class KeyValue(click.ParamType):  # type: ignore[type-arg]
    """NAME=VALUE; where `bare` says what a name alone stands for, NAME too."""

    name = "name=value"

    def __init__(self, bare: str = "") -> None:
        self.bare = bare

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        key, sign, rest = str(value).partition("=")
        if not sign:
            rest = self.bare
        if not key or not rest:
            self.fail(f"expected NAME=VALUE, got {value!r}", param, ctx)
        return key, rest


class Written(click.ParamType):  # type: ignore[type-arg]
    """A file that a command will write: whether it can be written is known before the work, not after it."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from ..io.kaldi_names import is_kaldi, kaldi_files
        from ..persistence import check_writable

        check_writable(*(kaldi_files(value) if is_kaldi(value) else [value]))
        return str(value)


def output_option(help: str) -> Command:
    """-o, a file that must be named."""
    return click.option("-o", "--output", required=True, type=Written(), help=help)


def labels_option(help: str) -> Command:
    """-l VIEW=FILE, as often as there are views."""
    return click.option("-l", "--labels", multiple=True, type=KeyValue(), help=help)


def looked_up(path: str, names: Iterable[Any], what: str) -> list[str]:
    """What a map such as utt2spk lists for these ids; an id that it does not list is an error."""
    from ..exceptions import LabelError
    from ..io.lists import read_map

    listed = read_map(path)
    wanted = [str(name) for name in names]
    missing = [name for name in wanted if name not in listed]
    if missing:
        raise LabelError(
            f"{path} says nothing of {len(missing)} of {len(wanted)} ids, the first is {missing[0]!r}; expected lines "
            f"of an id and {what}"
        )
    return [listed[name] for name in wanted]


def once(option: str, pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """NAME=VALUE pairs by name; a name that stands twice is a wrong call."""
    found: dict[str, str] = {}
    for name, value in pairs:
        if found.setdefault(name, value) != value:
            raise click.UsageError(f"{option} {name} is given twice: {found[name]} and {value}")
    return found


def plain_value(text: str) -> Any:
    """The value of a setting as JSON, else as text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


PROGRAMMERS = (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning)
"""Warnings that say nothing to users."""


@contextmanager
def warnings_as_lines() -> Iterator[None]:
    """Show warnings as single lines on standard error, each text once; those for programmers are not shown."""
    shown: set[str] = set()

    def show(message: Any, *_: Any, **__: Any) -> None:
        text = " ".join(str(message).split())
        if text not in shown:
            shown.add(text)
            click.echo(f"mvplda: warning: {text}", err=True)

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        for category in PROGRAMMERS:
            warnings.simplefilter("ignore", category)
        warnings.showwarning = show  # restored by catch_warnings
        yield


def check_folder(path: Path) -> None:
    """Whether results can be written to a folder, which need not be there yet; nothing is made."""
    from ..persistence import check_writable

    place = path
    while not place.exists():
        place = place.parent
    if not place.is_dir():
        raise NotADirectoryError(
            f"{place} is a file, not a folder: nothing can be written to {path}"
        )
    check_writable(place / "any")
