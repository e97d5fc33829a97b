"""Messages printed one by one, as they come."""

import sys
from typing import TYPE_CHECKING

from cli.exits import usage_error
from cli.options import BodyFormat, OutputFormat

if TYPE_CHECKING:
    from reput_client import Message, QueryClient


class MessageLines:
    """Prints each message at once: by a pattern, as JSON, or as a line with time, place, tags, keys and body.

    Args:
        output: `json` prints JSON lines, too: a document never ends while messages come.
        body: how to show bodies.
        pattern: see `cli.queries.pattern`; None: as `output` says.

    Raises:
        CliError: the pattern has an unknown letter, or the output is a table of all messages.
    """

    def __init__(self, output: OutputFormat, body: BodyFormat, pattern: str | None) -> None:
        from cli.queries.pattern import parse_pattern

        if output is OutputFormat.CSV:
            usage_error("-o csv has a header for all messages", "Print them by --format, or as -o jsonl.")
        if pattern is not None:
            parse_pattern(pattern)
        self._output = output
        self._body = body
        self._pattern = pattern

    def print(self, client: "QueryClient", message: "Message") -> None:
        """Print a message; its body is downloaded when its page had no room for it."""
        from cli.printing.output import print_jsonl
        from cli.printing.terminal import one_line
        from cli.queries.pattern import print_pattern
        from cli.queries.rows import message_row

        message = client.with_body(message)
        row = message_row(message, self._body.value, "hex" if self._output.is_table else "base64")
        if self._pattern is not None:
            print_pattern(self._pattern, [row], [message])
        elif not self._output.is_table:
            print_jsonl([row])
        else:
            place = f"{message.broker_name}/{message.queue_id}/{message.queue_offset}"
            keys = " ".join(message.keys)
            print(one_line(f"{row['store_time']}  {place}  {message.tags or '-'}  {keys or '-'}  {row['body']}"))
        sys.stdout.flush()
