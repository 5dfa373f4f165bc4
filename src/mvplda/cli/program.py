"""The program ``mvplda``: its list of commands, and the display of warnings and errors.

``mvplda --help`` needs only the list here and imports no command. The module of a command is imported when the command
is called; NumPy and the models are imported inside its function.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import click

from .. import __version__
from ..exceptions import MvpldaError
from .groups import ColourContext, CommandGroup
from .options import Texts


class CommandEntry(NamedTuple):
    """Name of the module of a command in this package, and the first sentence of the command's help."""

    module: str
    summary: str


SECTIONS = {
    "Verify recordings": {
        "demo": CommandEntry("demo", "Write synthetic voices, to try the commands on."),
        "setup": CommandEntry("setup", "Make a model for your own people, with a threshold."),
        "verify": CommandEntry("verify", "Decide whether two recordings match."),
        "identify": CommandEntry("verify", "Decide which enrolled person speaks in a recording."),
        "listen": CommandEntry("listen", "Verify a speaker while they speak."),
        "record": CommandEntry("listen", "Record a sound file, with a level meter."),
        "prompt": CommandEntry("verify", "Print random words, to be said for a verification."),
        "profiles": CommandEntry("profiles", "Enrol people: add, list and remove their profiles."),
        "people": CommandEntry("people", "Group the turns of many recordings by person."),
        "extractor": CommandEntry("extractors", "Fetch, list and check pre-trained extractors."),
        "extract": CommandEntry("extractors", "Make a vector of each recording."),
        "quality": CommandEntry("extractors", "Measure the sound quality of recordings."),
    },
    "Service and page": {
        "serve": CommandEntry("serve", "Verify speakers and phrases over HTTP."),
        "web": CommandEntry("web", "Write a page that verifies in the browser."),
    },
    "Any vectors with labels": {
        "train": CommandEntry("train", "Train a model on labelled vectors."),
        "score": CommandEntry("score", "Compute log-likelihood ratios of trials or of all pairs."),
        "evaluate": CommandEntry("evaluate", "Measure error rates and costs of scores."),
        "calibrate": CommandEntry("score", "Calibrate scores to log-likelihood ratios."),
        "stats": CommandEntry("train", "Sum up large sets of vectors in shards, for train."),
        "info": CommandEntry("files", "Show the contents of a file or folder."),
        "convert": CommandEntry("files", "Convert vectors, trials, scores and models."),
    },
    "Experiments": {
        "experiment": CommandEntry("experiment", "Run an experiment from a corpus to error rates."),
        "reproduce": CommandEntry("experiment", "Reproduce the paper's experiment on a corpus."),
    },
}
"""Commands by section of the help; the command NAME is the object NAME_command of its module."""
COMMANDS = {name: entry for section in SECTIONS.values() for name, entry in section.items()}

ERROR_CODES = {"verify": 3, "identify": 3, "listen": 3}
"""Exit code of errors in the commands whose exit codes 0, 1 and 2 are verdicts; other commands use 1 and 2."""

OUTPUT_OPTIONS = ("-o", "--output", "--report", "--save")
"""Options whose value is the name of an output file."""

DEVELOPER_WARNINGS = (
    DeprecationWarning,
    PendingDeprecationWarning,
    ImportWarning,
    ResourceWarning,
)
"""Types of warnings that concern developers only and are not shown."""


class Program(CommandGroup):
    """Group of all commands: imports a command when it is called, and shows warnings and errors as single lines."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def sections(self, ctx: click.Context) -> Mapping[str, Mapping[str, str]]:
        return {
            section: {name: entry.summary for name, entry in entries.items()}
            for section, entries in SECTIONS.items()
        }

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f".{COMMANDS[cmd_name].module}", __package__)
        command: click.Command = getattr(module, f"{cmd_name}_command")
        command.context_class = ColourContext
        return command

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        try:
            return super().make_context(*args, **extra)
        except OSError as error:  # the help is printed here, and standard output may be closed
            _exit_with_error(error)

    def invoke(self, ctx: click.Context) -> object:
        end_on_sigterm()
        try:
            refuse_overwriting(ctx.args)
            load_plugins(ctx.params.get("plugin") or ())
            with warnings_as_lines():
                return super().invoke(ctx)
        except click.UsageError as error:
            code = ERROR_CODES.get(str(ctx.invoked_subcommand), error.exit_code)
            error.exit_code = code  # type: ignore[misc]
            raise
        except (MvpldaError, OSError, MemoryError) as error:
            if ctx.params.get("debug") and not isinstance(error, BrokenPipeError):
                raise
            _exit_with_error(error, ERROR_CODES.get(str(ctx.invoked_subcommand), 1))


def load_plugins(modules: Sequence[str]) -> None:
    """Import the modules that the option --plugin names."""
    if modules:
        # imported late: reading the entry points of packages takes time
        from .._optional import load_plugin

        for module in modules:
            load_plugin(module)


def end_on_sigterm() -> None:
    """Make the signal SIGTERM raise SystemExit, so that temporary files are removed before the program ends.

    Has no effect outside of the main thread, or if the signal has a handler already.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))


def refuse_overwriting(args: Sequence[str]) -> None:
    """Raise a usage error if an existing file is both an output and another argument.

    args : words of the command line
    """
    words = [word for text in args for word in text.split("=")]
    times = Counter(os.path.realpath(word) for word in words)
    for option, name in pairwise(words):
        is_output = option in OUTPUT_OPTIONS
        if is_output and times[os.path.realpath(name)] > 1 and Path(name).is_file():
            raise click.UsageError(
                f"{option} {name} would overwrite a file that the command also reads: choose another output file"
            )


@contextmanager
def warnings_as_lines() -> Iterator[None]:
    """Return a context that shows each distinct warning once, as a line on standard error.

    Warnings for developers (`DEVELOPER_WARNINGS`) are not shown.
    """
    shown: set[str] = set()

    def show(message: object, *_: object, **__: object) -> None:
        text = " ".join(str(message).split())
        if text not in shown:
            shown.add(text)
            click.echo(f"mvplda: warning: {text}", err=True)

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        for category in DEVELOPER_WARNINGS:
            warnings.simplefilter("ignore", category)
        warnings.showwarning = show  # restored by catch_warnings
        yield


def single_line(text: str) -> str:
    """Return a message as one line; text after its first blank line, such as a template to fill in, is unchanged."""
    message, blank_line, appendix = text.partition("\n\n")
    return " ".join(message.split()) + blank_line + appendix


def _exit_with_error(error: Exception, code: int = 1) -> NoReturn:
    """Print an error as one line on standard error, and exit with a code.

    Prints nothing, and exits with 1, if the program that reads standard output has closed it (`BrokenPipeError`).
    """
    try:
        click.echo(nl=False)
    except (OSError, ValueError):
        # Python would write the remaining output again at exit, and print an error about it.
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if isinstance(error, BrokenPipeError):
        sys.exit(1)

    text = str(error)
    if isinstance(error, OSError) and error.strerror:
        text = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    elif isinstance(error, MemoryError):
        text = f"not enough memory: {error}"
    click.echo(f"mvplda: {single_line(text)}", err=True)
    sys.exit(code)


@click.group(
    cls=Program,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "show_default": True,
        "max_content_width": 100,
    },
)
@click.version_option(__version__)
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.option(
    "--plugin",
    multiple=True,
    metavar="MODULE",
    help="Import this Python module first; it may add scorers, calibrators, corpora or recipes. May be repeated.",
)
def main(debug: bool, plugin: Texts) -> None:
    """Text-dependent speaker verification, and multi-view PLDA for any vectors with labels.

    \b
    Start with folders of recordings (recordings/ann/hello/1.wav: person, phrase, recording):
      mvplda extractor get
      mvplda setup recordings/ --far 0.01 -o voices/
      mvplda verify a.wav b.wav --model voices/
      mvplda serve --model voices/

    \b
    Start with Kaldi files:
      mvplda train data/train -o model.safetensors
      mvplda score model.safetensors --enrol enrol.scp --models spk2utt \\
          --test test.scp --trials trials -o scores
      mvplda evaluate scores --trials trials --report report.html

    \b
    Exit codes:
      0   success
      1   unusable input; a line on standard error gives the reason
      2   wrong usage
    Exit codes of verify, identify and listen:
      0   accepted
      1   rejected
      2   inconclusive
      3   unusable input or wrong usage
    """
