"""Messages as the command shows them: as plain values, as rows of an answer, one by one as they come, or by a pattern.

An answer is read page by page and printed with an exit code for how complete it is; `Outcomes` says how the shards took part.

A pattern is written as for kcat's `-f`: `%t %k %b\\n`.

    %t topic        %p queue         %k keys            %b body (as --body shows it)     %i offsetMsgId    %n shard
    %g tags         %o queue offset  %u unique key      %S size of the body in bytes     %h properties     %% a percent sign
    %T store time, milliseconds since 1970              %D store time, ISO-8601

The letters are kcat's where it has the field; `%s` is the body too, as there. `\\n`, `\\t`, `\\r`, `\\\\` and `\\xHH` stand for
their characters. What a message brings is shown with its control characters escaped, but for newline and tab.
"""

import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from cli.bodies import inflate, show_body
from cli.exits import Exit, note, say_empty, usage_error, warn
from cli.options import BodyFormat, OutputFormat
from cli.terminal import neutralise
from cli.times import iso_text, millis_of

if TYPE_CHECKING:
    from datetime import datetime

    from reput_client import Completeness, Message, Pages, QueryClient, SendReceipt, ShardOutcome


def message_row(message: "Message", body_format: str, binary_form: str, charset: str = "utf-8") -> dict[str, object]:
    """The message's fields by their names in the contract; the body inflated, and in which form it is shown."""
    body = inflate(message.stored_body, message.sys_flag)
    shown = show_body(body.content, body_format, binary_form, charset)
    row: dict[str, object] = {
        "topic": message.topic,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "tags": message.tags,
        "keys": list(message.keys),
        "unique_key": message.unique_key,
        "offset_msg_id": message.offset_msg_id,
        "broker_name": message.broker_name,
        "commit_log_offset": message.commit_log_offset,
        "store_size_bytes": message.store_size_bytes,
        "born_time": iso_text(message.born_time),
        "born_host": message.born_host,
        "store_time": iso_text(message.store_time),
        "store_host": message.store_host,
        "flag": message.flag,
        "sys_flag": message.sys_flag,
        "reconsume_times": message.reconsume_times,
        "prepared_transaction_offset": message.prepared_transaction_offset,
        "body_crc": message.body_crc,
        "properties": dict(sorted(message.properties.items())),
        "body": shown.characters,
        "body_format": shown.form,
        "body_size_bytes": len(body.content),
        "body_compression": body.compression,
    }
    if body.note:
        row["body_note"] = body.note
    if message.source is not None:
        row["source"] = message.source.name.lower()
    if message.deleted_with_topic:
        row["deleted_with_topic"] = True
    return row


def receipt_row(receipt: "SendReceipt") -> dict[str, object]:
    """The receipt's fields by their names in the contract; the handles of a message that waits when it has them."""
    row: dict[str, object] = {
        "queue_id": receipt.queue_id,
        "queue_offset": receipt.queue_offset,
        "unique_key": receipt.unique_key,
        "offset_msg_id": receipt.offset_msg_id,
        "broker_name": receipt.broker_name,
        "commit_log_offset": receipt.commit_log_offset,
        "store_time": iso_text(receipt.store_time),
        "freshness_token": receipt.freshness_token,
    }
    if receipt.recall_handle:
        row["recall_handle"] = receipt.recall_handle
    if receipt.transaction_id:
        row["transaction_id"] = receipt.transaction_id
    return row


class Outcomes:
    """The shards of all pages of an answer, each once: its first failure, otherwise its last outcome."""

    def __init__(self) -> None:
        self._by_name: dict[str, ShardOutcome] = {}

    def see(self, shards: "Iterable[ShardOutcome]") -> None:
        """Add the outcomes of a page."""
        for shard in shards:
            known = self._by_name.get(shard.broker_name)
            if known is None or known.error is None:
                self._by_name[shard.broker_name] = shard

    def rows(self) -> list[dict[str, object]]:
        """A row for each shard, by the names of the contract's fields; absent fields are left out."""
        return [_row(shard) for _, shard in sorted(self._by_name.items())]

    def warn_partial(self) -> None:
        """Warn of what is missing, shard by shard."""
        missing = [text for _, shard in sorted(self._by_name.items()) if (text := _missing(shard))]
        if not missing:
            warn("partial: part of the store could not be asked or is not built yet; `reput status` shows which")
        for text in missing:
            warn(f"partial: {text}")


def _missing(shard: "ShardOutcome") -> str:
    if shard.error is not None:
        return f"shard {shard.broker_name}: {shard.error.message}{_staleness(shard)}"
    if shard.catching_up or shard.indexed_up_to_offset < shard.log_end_offset:
        time = shard.indexed_up_to_time
        up_to = f" (stored up to {iso_text(time)})" if time is not None else ""
        return (
            f"shard {shard.broker_name} is built up to byte {shard.indexed_up_to_offset} of {shard.log_end_offset} "
            f"of its log{up_to}"
        )
    return ""


def _staleness(shard: "ShardOutcome") -> str:
    if not shard.replicas:
        return ""
    if shard.staleness is None:
        how = "how much is missing is not known"
    else:
        how = f"what was confirmed more than {shard.staleness.total_seconds():.1f} s before the query is there"
    lag = f", {shard.known_lag_bytes} bytes are known to be missing" if shard.known_lag_bytes else ""
    return f" Answered by {', '.join(shard.replicas)}: {how}{lag}."


def _row(shard: "ShardOutcome") -> dict[str, object]:
    row: dict[str, object] = {
        "broker_name": shard.broker_name,
        "indexed_up_to_offset": shard.indexed_up_to_offset,
        "log_end_offset": shard.log_end_offset,
        "catching_up": shard.catching_up,
    }
    if shard.indexed_up_to_time is not None:
        row["indexed_up_to_time"] = iso_text(shard.indexed_up_to_time)
    if shard.error is not None:
        row["error"] = shard.error.message
    if shard.replicas:
        row["replicas"] = list(shard.replicas)
        row["known_lag_bytes"] = shard.known_lag_bytes
    if shard.staleness is not None:
        row["staleness_seconds"] = shard.staleness.total_seconds()
    return row


PAGE_SIZE_MAX = 1000  # a gateway's largest page
MESSAGES_DEFAULT = 64
TIMEOUT_SECONDS = 30.0

Item = TypeVar("Item")


def window(begin: str | None, end: str | None) -> "tuple[datetime | None, datetime | None]":
    """The limits of a time window as typed; None where there is no limit. CliError for a text that is no time."""
    from cli.times import moment_of, parse_limit

    now_millis = time.time_ns() // 1_000_000
    limits = (parse_limit(begin, now_millis, is_end=False), parse_limit(end, now_millis, is_end=True))
    first, last = (None if millis is None else moment_of(millis) for millis in limits)
    return first, last


def read_all(pages: "Pages[Item]") -> tuple[list[Item], Outcomes]:
    """The items of all pages, and how the shards took part."""
    items: list[Item] = []
    outcomes = Outcomes()
    for page in pages.pages():
        if items:
            note(f"{len(items)} messages so far")
        items += page.items
        outcomes.see(page.shards)
    return items, outcomes


def print_found(
    messages: "Sequence[Message]",
    completeness: "Completeness",
    output: OutputFormat,
    body: BodyFormat,
    save: Path | None,
    *,
    details: bool,
    pattern: str | None = None,
    charset: str = "utf-8",
    matched_by: Sequence[str] | None = None,
    in_any_topic: bool = False,
    outcomes: Outcomes | None = None,
    order: str = "",
    empty: str = "no message found",
) -> Exit:
    """Print the messages; the exit code says whether there are any and whether some may be missing.

    Args:
        messages: with their bodies.
        completeness: of the whole answer.
        output: table, JSON or JSON lines.
        body: how to show bodies.
        save: a directory to write bodies to.
        details: in a table, show every field of a message.
        pattern: print each message by it (`cli.messages`), whatever `output` is.
        charset: of text bodies.
        matched_by: for each message, what the text asked for is; shown first.
        in_any_topic: the messages may be of several topics: a table names the topic.
        outcomes: how the shards took part; None when the answer does not say.
        order: of the messages, in words; part of JSON, and said beside a table with several queues.
        empty: what an answer without messages says.
    """
    from cli import printing
    from reput_client import Completeness

    binary_form = "hex" if output.is_table else "base64"
    rows = [message_row(message, body.value, binary_form, charset) for message in messages]
    if matched_by is not None:
        rows = [{"matched_by": match} | row for match, row in zip(matched_by, rows, strict=True)]
    if save is not None:
        from cli.bodies import save_bodies

        for row, path in zip(rows, save_bodies(messages, save), strict=True):
            row["body_file"] = str(path)
    if pattern is not None:
        print_pattern(pattern, rows, messages)
        printing.say_deleted(rows)
    else:
        shards = {"shards": outcomes.rows()} if outcomes is not None else {}
        answer = {"completeness": completeness.name} | shards | ({"order": order} if order else {})
        printing.print_messages(rows, output, answer, details=details, with_topic=in_any_topic)
    if order and len({(each.broker_name, each.topic, each.queue_id) for each in messages}) > 1:
        note(order)
    if completeness is Completeness.PARTIAL:
        (outcomes or Outcomes()).warn_partial()
        return Exit.PARTIAL
    if completeness is Completeness.TRUNCATED:
        note("there are, or may be, more messages")
    if not rows:
        say_empty(empty)
        return Exit.NOTHING_FOUND
    return Exit.FOUND


class MessageLines:
    """Prints each message at once: by a pattern, as JSON, or as a line with time, place, tags, keys and body.

    Args:
        output: `json` prints JSON lines, too: a document never ends while messages come.
        body: how to show bodies.
        pattern: see `cli.messages`; None: as `output` says.

    Raises:
        CliError: the pattern has an unknown letter, or the output is a table of all messages.
    """

    def __init__(self, output: OutputFormat, body: BodyFormat, pattern: str | None) -> None:

        if output is OutputFormat.CSV:
            usage_error("-o csv has a header for all messages", "Print them by --format, or as -o jsonl.")
        if pattern is not None:
            parse_pattern(pattern)
        self._output = output
        self._body = body
        self._pattern = pattern

    def print(self, client: "QueryClient", message: "Message") -> None:
        """Print a message; its body is downloaded when its page had no room for it."""
        from cli.printing import print_jsonl
        from cli.terminal import one_line

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
