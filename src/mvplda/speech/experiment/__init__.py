"""From a corpus to the paper's table: extractor, vectors, every system, error rates, a page."""

from typing import TYPE_CHECKING

from ..._optional import import_late

__all__ = ["Configuration", "read_configuration", "run_experiment", "write_configuration"]

if TYPE_CHECKING:
    from .configuration import Configuration, read_configuration, write_configuration
    from .run import run_experiment

__getattr__, __dir__ = import_late(
    __name__,
    {
        "configuration": ("Configuration", "read_configuration", "write_configuration"),
        "run": ("run_experiment",),
    },
)
