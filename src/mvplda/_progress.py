"""Progress messages of long computations, on standard error."""

from __future__ import annotations

import sys
import time


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
