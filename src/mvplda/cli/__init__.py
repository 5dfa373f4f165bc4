"""The command line: `main` is the program ``mvplda``; each other module holds one group of commands."""

from .program import main

__all__ = ["main"]
