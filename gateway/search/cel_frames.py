"""The protocol between a gateway and a process that evaluates CEL, over a socket pair: plain data in both directions.

    request     | header size, u32 | bodies size, u32 | header, JSON | bodies, one after the other |

        header  {"expression": "...", "messages": [{"topic": ..., "body_size_bytes": n, ...}, ...]}
                without messages: only check the expression

    answer      JSON lines: `true` for a valid expression, then one line for each message, in order, as soon as it is decided

        true | false              the value
        {"error": "..."}          the expression has no value for this message
        {"fault": "...", ...}     the expression is not valid: the answer ends here; `line` and `column` where known
        {"ready": true}           once, at the start

Neither side executes what it receives, and the length of a line is limited. So an expression that took control of its
evaluator could only give wrong values for messages.
"""

import json
import struct
from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any

from gateway.search.message_view import MessageView

PREFIX = struct.Struct(">II")
# A fault quotes the expression; an error is clipped.
LINE_BYTES_MAX = 64 * 1024
ERROR_CHARACTERS_MAX = 200
_FIELD_NAMES = tuple(field.name for field in fields(MessageView) if field.name != "body")


def encode_request(expression: str, messages: Sequence[tuple[MessageView, bytes]]) -> bytes:
    """The request for these messages, each with its inflated body."""
    rows = []
    for view, body in messages:
        row = {name: getattr(view, name) for name in _FIELD_NAMES}
        row["properties"] = dict(view.properties)
        row["body_size_bytes"] = len(body)
        rows.append(row)
    header = json.dumps({"expression": expression, "messages": rows}).encode("ascii")
    bodies = b"".join(body for _, body in messages)
    return PREFIX.pack(len(header), len(bodies)) + header + bodies


def decode_request(header: bytes, bodies: bytes) -> tuple[str, Iterator[tuple[dict[str, Any], bytes]]]:
    """The expression, and each message's fields with its body."""
    request = json.loads(header)

    def messages() -> Iterator[tuple[dict[str, Any], bytes]]:
        begin = 0
        for row in request["messages"]:
            end = begin + row.pop("body_size_bytes")
            yield row, bodies[begin:end]
            begin = end

    return request["expression"], messages()


def encode_line(answer: bool | dict[str, Any]) -> bytes:
    """One line of an answer."""
    return json.dumps(answer).encode("ascii") + b"\n"
