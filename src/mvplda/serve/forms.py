"""Reading of multipart forms (RFC 7578) with one file and text fields."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from .schemas import Problem

BOUNDARY = re.compile(r'boundary=(?:"([^"]{1,70})"|([^\s;"]{1,70}))', re.ASCII)
NAME = re.compile(r'[;\s]name="([^"]*)"')
FILE_NAME = re.compile(r"[;\s]filename\*?=")
# Largest number of fields of a form besides its file.
MOST_FIELDS = 20


@dataclass
class Form:
    """Content of a form.

    Parameters
    ----------
    sound : bytes of its file, the recording
    fields : {name: value} of its text fields
    """

    sound: bytes
    fields: dict[str, str] = field(default_factory=dict)


def parse_form(body: bytes, content_type: str) -> Form:
    """Return the file and the text fields of a multipart form.

    Parameters
    ----------
    body : complete body of the request, whose size has been checked
    content_type : value of the header Content-Type, with the boundary of the form

    Raises
    ------
    Problem : 400 if the form cannot be read, 422 if it does not have exactly one file
    """
    match = BOUNDARY.search(content_type)
    if match is None:
        detail = "expected the boundary of the multipart form in the header Content-Type; got none"
        raise Problem(400, "form", detail)
    delimiter = b"--" + (match.group(1) or match.group(2)).encode()
    # a delimiter begins a line
    pieces = (b"\r\n" + body).split(b"\r\n" + delimiter, MOST_FIELDS + 2)
    if len(pieces) < 2 or not pieces[-1].startswith(b"--"):
        detail = f"the multipart form is incomplete, or has more than {MOST_FIELDS} fields besides its file"
        raise Problem(400, "form", detail)
    files: list[bytes] = []
    fields: dict[str, str] = {}
    for piece in pieces[1:-1]:
        head, separator, content = piece.partition(b"\r\n\r\n")
        disposition = _disposition(head)
        name = NAME.search(disposition)
        if not separator or name is None:
            raise Problem(
                400, "form", "expected a name for every field of the multipart form; one has none"
            )
        if FILE_NAME.search(disposition):
            files.append(content)
            continue
        if name.group(1) in fields:
            detail = (
                f"the field {name.group(1)[:50]!r} occurs twice in the multipart form: send it once"
            )
            raise Problem(400, "form", detail)
        try:
            fields[name.group(1)] = content.decode()
        except UnicodeDecodeError as error:
            detail = f"the field {name.group(1)[:50]!r} of the multipart form is not text in UTF-8"
            raise Problem(400, "form", detail) from error
    if len(files) != 1:
        detail = f"expected a multipart form with one file, the recording; got {len(files)} files"
        raise Problem(422, "form", detail)
    return Form(files[0], fields)


def _disposition(head: bytes) -> str:
    """Return the value of Content-Disposition in `head`, the headers of a form's field; empty if it is missing."""
    for line in head.decode("latin-1").split("\r\n"):
        name, _, value = line.partition(":")
        if name.strip().lower() == "content-disposition":
            return value
    return ""
