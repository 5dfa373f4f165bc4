"""Formats of the service's log: lines of JSON for programs, lines of text for people."""

from __future__ import annotations

import json
import logging
import time
from typing import Literal, TextIO

LogFormat = Literal["auto", "json", "text"]

ENCODER = json.JSONEncoder(default=str)


class JsonLines(logging.Formatter):
    """Log formatter that writes a record as one line of JSON; ``extra={"fields": {...}}`` adds further fields."""

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
    """Log formatter that writes a record as one line of text.

    The line has the time, the level unless it is INFO, and the message with its fields. A finished request is shown as
    method, path, status, caller, decision and duration.
    """

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
    """Return the formatter of a log that is written to `stream`.

    log_format : "json", "text", or "auto" for text on a terminal and JSON elsewhere
    """
    is_text = log_format == "text" or (log_format == "auto" and stream.isatty())
    return TextLines() if is_text else JsonLines()


def is_no_handshake(record: logging.LogRecord) -> bool:
    """Return whether to log a record: False for the server's messages about WebSockets, which contain addresses."""
    return record.levelno > logging.INFO or "websockets" not in record.pathname
