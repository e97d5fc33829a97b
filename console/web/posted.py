"""A posted form: its fields and files, from either encoding of HTML forms.

    --BOUNDARY CRLF
    Content-Disposition: form-data; name="topic" CRLF CRLF
    orders CRLF
    --BOUNDARY CRLF
    Content-Disposition: form-data; name="file"; filename="x.bin" CRLF CRLF
    the bytes CRLF
    --BOUNDARY-- CRLF

Parts are cut by their boundary only, so that a body of any bytes costs one search. The other encoding takes 70 times its size
in memory and is read in the thread of all connections: it is for the short forms, and has a limit of its own.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl

from store.errors import InvalidArgumentError

FIELD_COUNT_MAX = 128
URL_ENCODED_BYTES_MAX = 64 << 10
PART_HEAD_BYTES_MAX = 1_024
_BOUNDARY = re.compile(r"multipart/form-data\s*;.*?boundary=\"?([0-9A-Za-z'()+_,./:=?-]{1,70})\"?", re.IGNORECASE)
_NAME = re.compile(rb'content-disposition:\s*form-data;\s*name="([A-Za-z0-9_-]{1,64})"(;\s*filename=)?', re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Posted:
    """The values by name, in order; and the bytes of the files that were chosen."""

    fields: Mapping[str, list[str]]
    files: Mapping[str, bytes]


def read_posted(content_type: str, content: bytes) -> Posted:
    """The form; InvalidArgumentError when it cannot be read."""
    boundary = _BOUNDARY.match(content_type)
    fields: dict[str, list[str]] = {}
    files: dict[str, bytes] = {}
    if boundary is None:
        if len(content) > URL_ENCODED_BYTES_MAX:
            raise _unreadable(f"more than {URL_ENCODED_BYTES_MAX} bytes need multipart/form-data")
        try:
            pairs = parse_qsl(
                content.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=FIELD_COUNT_MAX
            )
        except ValueError as error:
            raise _unreadable(f"it has more than {FIELD_COUNT_MAX} fields") from error
        for field, text in pairs:
            fields.setdefault(field, []).append(text)
        return Posted(fields, files)
    parts = (b"\r\n" + content).split(b"\r\n--" + boundary[1].encode(), FIELD_COUNT_MAX + 2)
    if len(parts) > FIELD_COUNT_MAX + 2:
        raise _unreadable(f"it has more than {FIELD_COUNT_MAX} fields")
    if len(parts) < 2 or not parts[-1].startswith(b"--"):
        raise _unreadable("its end is missing")
    for part in parts[1:-1]:
        end = part.find(b"\r\n\r\n", 0, PART_HEAD_BYTES_MAX)
        named = _NAME.search(part, 0, end) if end >= 0 else None
        if named is None:
            raise _unreadable("a part has no name")
        name, value = named[1].decode(), part[end + 4 :]
        if named[2] is None:
            fields.setdefault(name, []).append(value.decode("utf-8", "replace"))
        elif value or b'filename=""' not in part[:end]:  # without a chosen file a browser sends an empty name
            files[name] = value
    return Posted(fields, files)


def _unreadable(why: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"The form cannot be read: {why}. Send the form of the page.", field="form")
