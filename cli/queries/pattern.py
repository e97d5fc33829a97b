"""Messages printed by a pattern, as kcat's `-f` has it: `%t %k %b\\n`.

    %t topic        %p queue         %k keys            %b body (as --body shows it)     %i offsetMsgId    %n shard
    %g tags         %o queue offset  %u unique key      %S size of the body in bytes     %h properties     %% a percent sign
    %T store time, milliseconds since 1970              %D store time, ISO-8601

The letters are kcat's where it has the field; `%s` is the body too, as there. `\\n`, `\\t`, `\\r`, `\\\\` and `\\xHH` stand for
their characters. What a message brings is shown with its control characters escaped, but for newline and tab.
"""

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from cli.exits import usage_error
from cli.printing.terminal import neutralise
from cli.printing.times import millis_of

if TYPE_CHECKING:
    from reput_client import Message

Row = Mapping[str, object]
Part = Callable[[Row, "Message"], object]
_TOKEN = re.compile(r"%(.?)|\\(x[0-9a-fA-F]{2}|.?)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\"}
_FIELDS: dict[str, Part] = {
    "t": lambda row, _: row["topic"],
    "p": lambda row, _: row["queue_id"],
    "o": lambda row, _: row["queue_offset"],
    "g": lambda row, _: row["tags"],
    "k": lambda _, message: " ".join(message.keys),
    "b": lambda row, _: row["body"],
    "s": lambda row, _: row["body"],
    "S": lambda row, _: row["body_size_bytes"],
    "T": lambda _, message: millis_of(message.store_time),
    "D": lambda row, _: row["store_time"],
    "i": lambda row, _: row["offset_msg_id"],
    "u": lambda row, _: row["unique_key"],
    "n": lambda row, _: row["broker_name"],
    "h": lambda _, message: ",".join(f"{name}={value}" for name, value in sorted(message.properties.items())),
}


def print_pattern(pattern: str, rows: Sequence[Row], messages: "Sequence[Message]") -> None:
    """Print each message; CliError for a pattern with an unknown letter.

    Args:
        pattern: as above; no newline is added.
        rows: the messages as `message_row` has them.
        messages: the same.
    """
    parts = parse_pattern(pattern)
    for row, message in zip(rows, messages, strict=True):
        sys.stdout.write("".join(part if isinstance(part, str) else _text(part, row, message) for part in parts))


def parse_pattern(pattern: str) -> list[str | Part]:
    """Texts as they stand, and fields as functions of a message."""
    parts: list[str | Part] = []
    end = 0
    for token in _TOKEN.finditer(pattern):
        parts.append(pattern[end : token.start()])
        parts.append(_part(token))
        end = token.end()
    return [part for part in (*parts, pattern[end:]) if part != ""]


def _part(token: re.Match[str]) -> str | Part:
    field, escape = token.groups()
    if field == "%":
        return "%"
    if field is not None:
        if field not in _FIELDS:
            usage_error(f"--format: %{field} is no field", f"Fields: %{', %'.join(_FIELDS)}; %% is a percent sign.")
        return _FIELDS[field]
    if escape.startswith("x") and len(escape) == 3:
        return chr(int(escape[1:], 16))
    if escape not in _ESCAPES:
        usage_error(f"--format: \\{escape} is no character", "Write \\n, \\t, \\r, \\\\ or \\xHH.")
    return _ESCAPES[escape]


def _text(part: Part, row: Row, message: "Message") -> str:
    return neutralise(str(part(row, message)))
