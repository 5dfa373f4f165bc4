"""Counters and histograms for Prometheus, and log lines of JSON."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import defaultdict
from typing import Any

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

BOUNDS = [*(f"{bound:g}" for bound in SECONDS), "+Inf"]


class Metrics:
    """Counters and histograms, in the text format of Prometheus."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[tuple[str, str], float] = defaultdict(float)
        self._times: dict[tuple[str, str], list[float]] = {}
        self.started = time.time()

    def count(self, name: str, by: float = 1.0, **labels: str) -> None:
        with self._lock:
            self._counts[name, _labels(labels)] += by

    def observe(self, name: str, seconds: float, **labels: str) -> None:
        with self._lock:
            cells = self._times.setdefault((name, _labels(labels)), [0.0] * (len(SECONDS) + 2))
            for place, bound in enumerate(SECONDS):
                cells[place] += seconds <= bound
            cells[-2] += 1
            cells[-1] += seconds

    def text(self, gauges: dict[str, float]) -> str:
        lines: list[str] = []
        with self._lock:
            for name in sorted({name for name, _ in self._counts}):
                lines.append(f"# TYPE {name} counter")
                lines += self._counter_lines(name)
            for name in sorted({name for name, _ in self._times}):
                lines.append(f"# TYPE {name} histogram")
                lines += self._histogram_lines(name)
        gauges = {**gauges, "mvplda_start_time_seconds": self.started}
        for name, value in gauges.items():
            lines += [f"# TYPE {name} gauge", f"{name} {value:.3f}"]
        return "\n".join(lines) + "\n"

    def _counter_lines(self, name: str) -> list[str]:
        lines = []
        for (own, labels), value in self._counts.items():
            if own == name:
                lines.append(f"{name}{_braces(labels)} {value:g}")
        return lines

    def _histogram_lines(self, name: str) -> list[str]:
        lines = []
        for (own, labels), cells in self._times.items():
            if own != name:
                continue
            for bound, value in zip(BOUNDS, cells, strict=False):
                where = _braces(labels, f'le="{bound}"')
                lines.append(f"{name}_bucket{where} {value:g}")
            lines.append(f"{name}_count{_braces(labels)} {cells[-2]:g}")
            lines.append(f"{name}_sum{_braces(labels)} {cells[-1]:.6f}")
        return lines


def _labels(labels: dict[str, str]) -> str:
    return ",".join(f"{name}={json.dumps(str(value))}" for name, value in sorted(labels.items()))


def _braces(*parts: str) -> str:
    inside = ",".join(part for part in parts if part)
    return f"{{{inside}}}" if inside else ""


class JsonLines(logging.Formatter):
    """One line of JSON per record; fields that a call gives as extra stand beside the message."""

    PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {
        "message",
        "asctime",
        "taskName",
        "color_message",
    }

    def format(self, record: logging.LogRecord) -> str:
        said: dict[str, Any] = {
            "at": round(record.created, 3),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        said |= {name: value for name, value in vars(record).items() if name not in self.PLAIN}
        if record.exc_info:
            said["error"] = self.formatException(record.exc_info)
        return json.dumps(said, default=str)
