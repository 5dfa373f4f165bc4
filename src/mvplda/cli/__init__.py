"""The command line. Commands load when they are called, and heavy imports happen inside them."""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

import click

from .. import __version__
from .._plugins import load_entry_points, load_plugin
from ..exceptions import MvpldaError

COMMANDS = {
    "setup": "setup",
    "stats": "train",
    "train": "train",
    "adapt": "train",
    "score": "score",
    "calibrate": "score",
    "evaluate": "evaluate",
    "threshold": "verify",
    "info": "files",
    "convert": "files",
    "extractor": "extractors",
    "extract": "extractors",
    "quality": "extractors",
    "verify": "verify",
    "identify": "verify",
    "profiles": "verify",
    "people": "people",
    "experiment": "experiment",
    "reproduce": "experiment",
    "demo": "experiment",
    "network": "experiment",
    "serve": "serve",
}

ANSWERING = {"verify": 3, "identify": 3}
"""Commands whose exit codes 0, 1 and 2 are answers, and the code where there was none."""


class Tool(click.Group):
    """Loads commands lazily, shows warnings as lines, and ends in one line when the input is at fault."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f".{COMMANDS[cmd_name]}", __name__)
        return keeping_inputs(getattr(module, cmd_name))

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from difflib import get_close_matches

            if not (near := get_close_matches(args[0], COMMANDS, 1)):
                raise
            raise click.UsageError(f"{error.message} Did you mean {near[0]!r}?", ctx) from None

    def make_context(self, *args: Any, **options: Any) -> click.Context:
        try:
            return super().make_context(*args, **options)
        except OSError as error:  # this prints the help, which could not be written
            _end(error)

    def invoke(self, ctx: click.Context) -> Any:
        end_on_sigterm()
        try:
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
            name = str(ctx.invoked_subcommand)
            _end(error, options_of(self.get_command(ctx, name)), ANSWERING.get(name, 1))


def end_on_sigterm() -> None:
    """Let SIGTERM end this process as an error would, so that half-written files are removed."""
    if threading.current_thread() is not threading.main_thread():
        return
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))


def keeping_inputs(command: click.Command) -> click.Command:
    """The command, which refuses to write over a file that it reads."""
    if isinstance(command, click.Group):
        for inner in command.commands.values():
            keeping_inputs(inner)
        return command
    run = command.callback
    if run is None or hasattr(run, "keeps_inputs"):
        return command

    @wraps(run)
    def checked(*args: Any, **options: Any) -> Any:
        refuse_overwriting(click.get_current_context())
        return run(*args, **options)

    checked.keeps_inputs = True  # type: ignore[attr-defined]
    command.callback = checked
    return command


def refuse_overwriting(ctx: click.Context) -> None:
    """Raise an error where an option names as output (`Written`) a file that another one names as input."""
    outputs: dict[Path, str] = {}
    inputs: list[str] = []
    for param in ctx.command.params:
        texts = _texts(ctx.params.get(str(param.name)))
        if isinstance(param.type, Written):
            outputs.update({Path(os.path.realpath(text)): param.opts[0] for text in texts})
        elif not isinstance(param.type, click.Choice):
            inputs += texts
    for text in inputs:
        option = outputs.get(Path(os.path.realpath(text)))
        if option is not None and Path(text).is_file():
            raise click.UsageError(
                f"{option} names {text}, which is read: it would be overwritten. Name another file",
                ctx,
            )


def _texts(value: Any) -> list[str]:
    """The texts in the value of an option, which may be several, or pairs."""
    if isinstance(value, (tuple, list)):
        return [text for inner in value for text in _texts(inner)]
    return [str(value)] if isinstance(value, (str, Path)) and str(value) else []


def options_of(command: click.Command | None) -> dict[str, str]:
    """What the options of a command, and of those in a group, are called in the library, and how they are written."""
    # mvplda stats has it, and a later command may want it
    options = {"second_moment": "--second-moment"}
    inner = command.commands.values() if isinstance(command, click.Group) else ()
    for one in (command, *inner):
        for param in [] if one is None else one.params:
            if isinstance(param, click.Option):
                options[str(param.name)] = param.opts[-1]
    return options


def in_a_line(text: str) -> str:
    """An error in one line; what follows a blank line, such as a file to fill in, is left as it is."""
    words, blank, draft = text.partition("\n\n")
    return " ".join(words.split()) + blank + draft


def _end(error: Exception, options: dict[str, str] | None = None, code: int = 1) -> NoReturn:
    """One line on standard error, and an exit code; arguments of the library are called by the options."""
    if isinstance(error, BrokenPipeError):
        # Whoever read has gone. Python would write a line about it when it closes standard output.
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    text = str(error)
    for name, option in (options or {}).items():
        text = re.sub(rf"\b{name}='([\w-]+)'", rf"{option} \1", text)
        text = re.sub(rf"\b{name}=(?=[\s.,;:]|$)", option, text)
    text = re.sub(r"\b([a-z_]+)=(?=[\s.,;:]|$)", r"\1", text)  # what is no option here
    text = re.sub(r"\bnp\.\w+\(('[^']*'|[-+.\w]+)\)", r"\1", text)
    text = re.sub(
        r": use mvplda\.load( or \w+\.load)?", "; `mvplda info` says what a file holds", text
    )
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
def main(debug: bool, plugin: tuple[str, ...]) -> None:
    """Multi-view (joint) PLDA: verification of vectors that carry several labels at once.

    \b
    From Kaldi files to a report in three lines:
      mvplda train xvector.scp -l speaker=utt2spk -l phrase=utt2phrase \\
          -v speaker=100 -v phrase=20 -o model.safetensors
      mvplda score model.safetensors --enrol enrol.scp --models spk2utt \\
          --test test.scp --trials trials -o scores
      mvplda evaluate scores --trials trials --report report.html

    Input that cannot be used ends with exit code 1 and one line on standard error; a wrong
    call with 2.
    """


# Options that several commands share.


SEED = click.IntRange(0, 2**32 - 1)
MODELS = (
    "Make models of several vectors each, as this list says (model id, then ids of its vectors, as in spk2utt).  "
    "[default: every vector is a model of its own]"
)


class Number(click.FloatRange):
    """A number in a range, which NaN is not."""

    def _describe_range(self) -> str:
        return "" if self.min is None and self.max is None else super()._describe_range()

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        number = super().convert(value, param, ctx)
        if number != number:
            self.fail(f"{value} is not a number.", param, ctx)
        return float(number)


class KeyValue(click.ParamType):  # type: ignore[type-arg]
    """NAME=VALUE; where `bare` says what a name alone stands for, NAME too."""

    name = "name=value"

    def __init__(self, bare: str | None = None) -> None:
        self.bare = bare

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        key, sign, rest = str(value).partition("=")
        if key and not sign and self.bare is not None:
            return key, self.bare
        if not key or not sign or not rest:
            self.fail(f"expected NAME=VALUE, got {value!r}", param, ctx)
        return key, rest


class Written(click.ParamType):  # type: ignore[type-arg]
    """A file that a command will write: whether it can be written is known before the work, not after it."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from ..io.kaldi import is_kaldi, kaldi_files
        from ..persistence import check_writable

        check_writable(*(kaldi_files(value) if is_kaldi(value) else [value]))
        return str(value)


def output_option(help: str) -> Callable[..., Any]:
    """-o, a file that must be named."""
    return click.option("-o", "--output", required=True, type=Written(), help=help)


def labels_option(help: str) -> Callable[..., Any]:
    """-l VIEW=FILE, as often as there are views."""
    return click.option("-l", "--labels", multiple=True, type=KeyValue(), help=help)


def seed_option(help: str) -> Callable[..., Any]:
    return click.option("--seed", type=SEED, default=0, help=help)


class Registered(click.ParamType):  # type: ignore[type-arg]
    """A name in a registry of the package, which is imported when a name is needed; plugins may add names."""

    def __init__(self, name: str, registry: str) -> None:
        self.name = name
        self.registry = registry

    def _names(self) -> list[str]:
        module, _, attribute = self.registry.rpartition(".")
        load_entry_points(attribute.lower())
        return list(getattr(import_module(f"..{module}", __name__), attribute))

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value not in self._names():
            self.fail(f"{value!r} is not one of {', '.join(map(repr, self._names()))}.", param, ctx)
        return str(value)


def looked_up(path: str, names: Iterable[Any], what: str) -> list[str]:
    """What a map such as utt2spk lists for these ids; an id that it does not list is an error."""
    from ..exceptions import LabelError
    from ..io.files import read_map

    listed = read_map(path)
    wanted = [str(name) for name in names]
    missing = [name for name in wanted if name not in listed]
    if missing:
        raise LabelError(
            f"{path} says nothing of {len(missing)} of {len(wanted)} ids, the first is {missing[0]!r}; expected lines "
            f"of an id and {what}"
        )
    return [listed[name] for name in wanted]


SPOOF_PRIOR = click.option(
    "--spoof-prior",
    type=Number(0, 1),
    help="Share of spoofs among all that should be rejected, for --countermeasure.  [default: 0.5]",
)


def once(option: str, pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """NAME=VALUE pairs by name; a name that stands twice is a wrong call."""
    found: dict[str, str] = {}
    for name, value in pairs:
        if found.setdefault(name, value) != value:
            raise click.BadParameter(
                f"{name} is given twice: {found[name]} and {value}", param_hint=option
            )
    return found


PROGRAMMERS = (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning)
"""Warnings that say nothing to users."""


@contextmanager
def warnings_as_lines() -> Iterator[None]:
    """Show warnings as single lines on standard error, each text once; those for programmers are not shown."""
    shown: set[str] = set()

    def say(message: Any) -> None:
        text = " ".join(str(message).split())
        if text not in shown:
            shown.add(text)
            click.echo(f"mvplda: warning: {text}", err=True)

    logged = logging.Handler(logging.WARNING)
    logged.emit = lambda record: say(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("mvplda").addHandler(logged)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            for category in PROGRAMMERS:
                warnings.simplefilter("ignore", category)
            # restored by catch_warnings
            warnings.showwarning = lambda message, *_, **__: say(message)
            yield
    finally:
        logging.getLogger("mvplda").removeHandler(logged)


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
