"""Progress of long work, on standard error."""

from __future__ import annotations

import sys
import time
from typing import TextIO


class Progress:
    """One line a step, or one line rewritten in place on a terminal."""

    def __init__(self, title: str, total: int, *, stream: TextIO | None = None) -> None:
        self.title, self.total = title, total
        self.stream = stream or sys.stderr
        self.started = time.monotonic()
        self.in_place = self.stream.isatty()

    def step(self, number: int, text: str = "") -> None:
        elapsed = time.monotonic() - self.started
        line = f"{self.title} {number}/{self.total} {elapsed:6.1f}s  {text}"
        if self.in_place:
            self.stream.write("\r\033[K" + line + ("\n" if number >= self.total else ""))
        else:
            self.stream.write(line + "\n")
        self.stream.flush()

    def close(self) -> None:
        if self.in_place:
            self.stream.write("\n")
