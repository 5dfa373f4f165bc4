"""Multipart forms (RFC 7578) with one file and text fields; the body is already limited in size."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from .schemas import Problem

BOUNDARY = re.compile(r'boundary=(?:"([^"]{1,70})"|([^\s;"]{1,70}))', re.ASCII)
NAME = re.compile(r'[;\s]name="([^"]*)"')
FILE_NAME = re.compile(r"[;\s]filename\*?=")
# Fields of a form beside its file.
MOST_FIELDS = 20


@dataclass
class Form:
    """File and text fields of a form."""

    sound: bytes
    fields: dict[str, str] = field(default_factory=dict)


def parse_form(body: bytes, content_type: str) -> Form:
    """Return the file and the fields of a form; raise if it has another number of files than one."""
    match = BOUNDARY.search(content_type)
    if match is None:
        raise Problem(400, "form", "the multipart form has no boundary")
    delimiter = b"--" + (match.group(1) or match.group(2)).encode()
    # a delimiter begins a line
    pieces = (b"\r\n" + body).split(b"\r\n" + delimiter, MOST_FIELDS + 2)
    if len(pieces) < 2 or not pieces[-1].startswith(b"--"):
        raise Problem(400, "form", "the multipart form is incomplete, or has too many fields")
    files: list[bytes] = []
    fields: dict[str, str] = {}
    for piece in pieces[1:-1]:
        head, separator, content = piece.partition(b"\r\n\r\n")
        disposition = _disposition(head)
        name = NAME.search(disposition)
        if not separator or name is None:
            raise Problem(400, "form", "a field of the multipart form has no name")
        if FILE_NAME.search(disposition):
            files.append(content)
            continue
        if name.group(1) in fields:
            raise Problem(400, "form", "a field of the multipart form is there twice")
        try:
            fields[name.group(1)] = content.decode()
        except UnicodeDecodeError as error:
            raise Problem(400, "form", "a field of the multipart form is not UTF-8") from error
    if len(files) != 1:
        detail = f"expected a form with one file, the recording; got {len(files)}"
        raise Problem(422, "form", detail)
    return Form(files[0], fields)


def _disposition(head: bytes) -> str:
    """Return the header Content-Disposition of a field; empty without one."""
    for line in head.decode("latin-1").split("\r\n"):
        name, _, value = line.partition(":")
        if name.strip().lower() == "content-disposition":
            return value
    return ""
