"""Messages that queries have found: read page by page, and printed with an exit code for how complete they are."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from cli.exits import Exit, note, say_empty
from cli.options import BodyFormat, OutputFormat
from cli.queries.outcomes import Outcomes

if TYPE_CHECKING:
    from datetime import datetime

    from reput_client import Completeness, Message, Pages

PAGE_SIZE_MAX = 1000  # a gateway's largest page
MESSAGES_DEFAULT = 64
TIMEOUT_SECONDS = 30.0

Item = TypeVar("Item")


def window(begin: str | None, end: str | None) -> "tuple[datetime | None, datetime | None]":
    """The limits of a time window as typed; None where there is no limit. CliError for a text that is no time."""
    from cli.printing.times import moment_of, parse_limit

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
        pattern: print each message by it (`cli.queries.pattern`), whatever `output` is.
        charset: of text bodies.
        matched_by: for each message, what the text asked for is; shown first.
        in_any_topic: the messages may be of several topics: a table names the topic.
        outcomes: how the shards took part; None when the answer does not say.
        order: of the messages, in words; part of JSON, and said beside a table with several queues.
        empty: what an answer without messages says.
    """
    from cli.printing import output as printing
    from cli.queries.rows import message_row
    from reput_client import Completeness

    binary_form = "hex" if output.is_table else "base64"
    rows = [message_row(message, body.value, binary_form, charset) for message in messages]
    if matched_by is not None:
        rows = [{"matched_by": match} | row for match, row in zip(matched_by, rows, strict=True)]
    if save is not None:
        from cli.printing.bodies import save_bodies

        for row, path in zip(rows, save_bodies(messages, save), strict=True):
            row["body_file"] = str(path)
    if pattern is not None:
        from cli.queries.pattern import print_pattern

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
