"""Counters for Prometheus, and log lines of JSON."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import Counter

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    """Counters, in the text format of Prometheus; a histogram is several of them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._started = time.time()

    def count(self, name: str, labels: str) -> None:
        """labels : as they stand between braces"""
        with self._lock:
            self._counts[f"{name}{{{labels}}}"] += 1

    def observe(self, name: str, seconds: float, labels: str) -> None:
        with self._lock:
            for bound in SECONDS:
                self._counts[f'{name}_bucket{{{labels},le="{bound:g}"}}'] += seconds <= bound
            self._counts[f'{name}_bucket{{{labels},le="+Inf"}}'] += 1
            self._counts[f"{name}_count{{{labels}}}"] += 1
            self._counts[f"{name}_sum{{{labels}}}"] += seconds  # type: ignore[assignment]

    def text(self, gauges: dict[str, float]) -> str:
        values = {**gauges, "mvplda_start_time_seconds": self._started}
        with self._lock:
            values |= self._counts
        return "".join(f"{name} {value:.12g}\n" for name, value in sorted(values.items()))


class JsonLines(logging.Formatter):
    """One line of JSON per record; fields that a call gives as extra stand beside the message."""

    PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"taskName", "color_message"}

    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "at": round(record.created, 3),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        fields |= {name: value for name, value in vars(record).items() if name not in self.PLAIN}
        if record.exc_info:
            fields["error"] = self.formatException(record.exc_info)
        return json.dumps(fields, default=str)
