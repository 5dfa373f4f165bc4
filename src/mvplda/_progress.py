"""Progress messages of long computations, on standard error."""

from __future__ import annotations

import sys
import time

INTERVAL_S = 10.0
"""Seconds between two lines of a `Ticker`."""


def show_line(line: str) -> None:
    """Write a line to standard error without delay."""
    print(line, file=sys.stderr, flush=True)


class Progress:
    """Progress of a known number of steps: one line per step, or on a terminal a single line that is overwritten.

    title : first words of each line
    total : number of steps
    """

    def __init__(self, title: str, total: int) -> None:
        self.title = title
        self.total = total
        self.started = time.monotonic()

    def step(self, number: int, text: str = "") -> None:
        """Show that `number` of the `total` steps are finished, with the elapsed time and a text."""
        elapsed = time.monotonic() - self.started
        line = f"{self.title} {number}/{self.total} {elapsed:6.1f}s  {text}"
        if not sys.stderr.isatty():
            print(line, file=sys.stderr, flush=True)
            return
        end = "\n" if number >= self.total else ""
        print(f"\r\033[K{line}", end=end, file=sys.stderr, flush=True)


class Ticker:
    """Progress of an unknown number of steps, on standard error.

    Every `INTERVAL_S` seconds a line shows the title, the number of steps and the elapsed time.

    title : first words of each line
    """

    def __init__(self, title: str) -> None:
        self.title = title
        self.count = 0
        self.started = self.shown = time.monotonic()

    def step(self, _: object = None) -> None:
        """Count a step; the argument is ignored, so that the method can be a callback."""
        self.count += 1
        now = time.monotonic()
        if now - self.shown >= INTERVAL_S:
            self.shown = now
            line = f"{self.title} {self.count} {now - self.started:6.1f}s"
            print(line, file=sys.stderr, flush=True)
