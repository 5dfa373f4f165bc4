"""Progress messages of long computations, on standard error."""

from __future__ import annotations

import sys
import time

INTERVAL_S = 10.0
"""Seconds between two lines of a `Ticker`."""


def show_line(line: str) -> None:
    """Write a line to standard error at once."""
    print(line, file=sys.stderr, flush=True)


class Progress:
    """Progress display: one line per step, or on a terminal one line that is rewritten in place."""

    def __init__(self, title: str, total: int) -> None:
        self.title = title
        self.total = total
        self.started = time.monotonic()

    def step(self, number: int, text: str = "") -> None:
        """Report that `number` of the `total` steps are finished."""
        elapsed = time.monotonic() - self.started
        line = f"{self.title} {number}/{self.total} {elapsed:6.1f}s  {text}"
        if not sys.stderr.isatty():
            print(line, file=sys.stderr, flush=True)
            return
        end = "\n" if number >= self.total else ""
        print(f"\r\033[K{line}", end=end, file=sys.stderr, flush=True)


class Ticker:
    """Progress of a computation with an unknown number of steps: at most one line per `INTERVAL_S` seconds."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.count = 0
        self.started = self.shown = time.monotonic()

    def step(self, _: object = None) -> None:
        """Count a step; the argument of a callback is ignored."""
        self.count += 1
        now = time.monotonic()
        if now - self.shown >= INTERVAL_S:
            self.shown = now
            line = f"{self.title} {self.count} {now - self.started:6.1f}s"
            print(line, file=sys.stderr, flush=True)
