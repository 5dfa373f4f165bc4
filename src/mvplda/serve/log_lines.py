"""Lines of the service's log: JSON for programs, text for a terminal."""

from __future__ import annotations

import json
import logging
import time
from typing import Literal, TextIO

LogFormat = Literal["auto", "json", "text"]

ENCODER = json.JSONEncoder(default=str)


class JsonLines(logging.Formatter):
    """Formats a record as one line of JSON, with the `fields` of its extra beside the message."""

    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "at": round(record.created, 3),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            fields["error"] = self.formatException(record.exc_info)
        return ENCODER.encode(fields)


class TextLines(logging.Formatter):
    """Formats a record as one line of text: time, level if not info, and message; for a request its result."""

    def format(self, record: logging.LogRecord) -> str:
        fields = dict(getattr(record, "fields", {}))
        words = [time.strftime("%H:%M:%S", time.localtime(record.created))]
        if record.levelno != logging.INFO:
            words.append(record.levelname.lower())
        if {"method", "path", "status", "ms"} <= fields.keys():
            request = (fields["method"], fields["path"], fields["status"])
            words.append("{} {} {}".format(*request))
            words += [str(fields[name]) for name in ("caller", "decision") if fields.get(name)]
            words.append(f"{fields['ms']:.0f} ms")
        else:
            words.append(record.getMessage())
            words += [f"{name}={value}" for name, value in fields.items() if value is not None]
        line = " ".join(words)
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def log_formatter(log_format: LogFormat, stream: TextIO) -> logging.Formatter:
    """Return the formatter of a log; the format "auto" is text on a terminal, else JSON."""
    is_text = log_format == "text" or (log_format == "auto" and stream.isatty())
    return TextLines() if is_text else JsonLines()
