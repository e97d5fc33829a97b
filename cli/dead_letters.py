"""`reput dlq list|resend|export|drop`: the dead letters of a consumer group."""

import contextlib
import enum
import itertools
import pathlib
import sys
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli import options
from cli.exits import PARTIAL_OR_BUILDING, Exit, warn
from cli.options import OutputFormat

if TYPE_CHECKING:
    from reput_client import Message, QueryClient, ResentDeadLetter

TIMEOUT_SECONDS = 30.0
LIST_MAX_DEFAULT = 64
PAGE_COUNT = 1_024
COLUMNS = ["store_time", "topic", "unique_key", "keys", "reconsume_times", "offset_msg_id"]
# Columns that a narrow terminal leaves out, the first one first.
DROPPED_FIRST = ("broker_name", "reconsume_times", "unique_key", "topic")
RESENT_COLUMNS = ["offset_msg_id", "topic", "new_offset_msg_id"]

Name = Annotated[str, typer.Argument(metavar="GROUP", help="Name of the group.")]
Ids = Annotated[
    list[str] | None, typer.Option("--id", metavar="ID", help="Only this one, by its offsetMsgId; may be repeated.")
]


class Form(enum.StrEnum):
    """The form of an exported file."""

    CSV = "csv"
    JSONL = "jsonl"


def list_letters(
    *,
    name: Name,
    max_messages: Annotated[int, typer.Option("--maxNum", "-m", min=1, help="At most this many.")] = LIST_MAX_DEFAULT,
    output: options.Output = OutputFormat.TABLE,
    address: options.Address = options.DEFAULT_ADDRESS,
    timeout: options.Timeout = TIMEOUT_SECONDS,
) -> int:
    """List the dead letters of a group, in each queue oldest first, with the topics that they come from."""
    from cli.client import query_client
    from cli.printing import print_rows
    from reput_client import Completeness

    topic = f"%DLQ%{name}"
    rows: list[dict[str, Any]] = []
    partial = False
    with query_client(address, timeout) as client:
        topics = client.topics(topic=topic)
        queues = [queue for each in topics for queue in each.queues]
        partial = topics.completeness is Completeness.PARTIAL
        for queue in queues:
            left = max_messages - len(rows)
            if left <= 0:
                break
            letters = client.by_offset(topic, queue.queue_id, queue.min_offset, queue.broker_name, left)
            rows += [_row(letter) for page in letters.pages() for letter in page.items]  # no row has a body
            partial = partial or letters.completeness is Completeness.PARTIAL
        if not queues and not partial:
            client.consumer_group(name)  # a group that there is not has no dead letters either, and is an error
    print_rows("dead_letters", rows, COLUMNS, output, dropped_first=DROPPED_FIRST)
    if partial:
        warn(PARTIAL_OR_BUILDING)
        return Exit.PARTIAL
    return Exit.FOUND if rows else Exit.NOTHING_FOUND


def resend(
    *,
    name: Name,
    tags: Annotated[str, typer.Option("--tags", help="Only with one of these tags: `a || b`.")] = "",
    sql: Annotated[str, typer.Option("--sql", help="Only those for which this SQL92 expression holds.")] = "",
    begin: Annotated[str | None, typer.Option("--beginTimestamp", "-b", help="Stored at or after this.")] = None,
    end: Annotated[str | None, typer.Option("--endTimestamp", "-e", help="Stored at or before this.")] = None,
    max_messages: Annotated[int | None, typer.Option("--maxNum", "-m", min=1, help="At most this many.")] = None,
    ids: Ids = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
    output: options.Output = OutputFormat.TABLE,
    address: options.Address = options.DEFAULT_ADDRESS,
    timeout: options.Timeout = TIMEOUT_SECONDS,
) -> int:
    """Send dead letters of a group to their own topics again, each as a new message; the dead letters stay.

    Every group of the topic gets the new messages. Exit 1 when there was none.
    """
    from cli.client import query_client
    from cli.exits import usage_error
    from cli.printing import print_rows
    from cli.times import moment_of, parse_limit

    if tags and sql:
        usage_error("give --tags or --sql, not both")
    if ids:
        if tags or sql or begin or end:
            usage_error("give --id, or what the dead letters match, not both")
        return _resend_chosen(name, ids, output, address, timeout, dry_run=dry_run)
    now = time.time_ns() // 1_000_000
    first, last = parse_limit(begin, now, is_end=False), parse_limit(end, now, is_end=True)
    rows: list[dict[str, Any]] = []
    token = ""
    try:
        with query_client(address, timeout) as client:
            while True:
                left = PAGE_COUNT if max_messages is None else min(max_messages - len(rows), PAGE_COUNT)
                page = client.resend_dead_letters(
                    name,
                    tags=tags,
                    sql=sql,
                    begin=None if first is None else moment_of(first),
                    end=None if last is None else moment_of(last),
                    max_messages=left,
                    dry_run=dry_run,
                    page_token=token,
                )
                rows += map(_resent_row, page.resent)
                token = page.next_page_token
                if not token or (max_messages is not None and len(rows) >= max_messages):
                    break
    finally:  # also after a failure: these were sent
        print_rows("resent", rows, RESENT_COLUMNS, output, {"dry_run": dry_run}, empty="no dead letter is sent")
    unsent = [row["offset_msg_id"] for row in rows if not row["topic"]]
    if unsent:
        warn(f"not sent, because they do not say where they come from: {', '.join(unsent)}")
    return Exit.FOUND if rows else Exit.NOTHING_FOUND


def export(
    *,
    name: Name,
    out: Annotated[pathlib.Path, typer.Option("--out", help="The file to write; - is stdout.")],
    form: Annotated[Form, typer.Option("--as", help="The form of the file.")] = Form.JSONL,
    ids: Ids = None,
    address: options.Address = options.DEFAULT_ADDRESS,
    timeout: options.Timeout = TIMEOUT_SECONDS,
) -> int:
    """Write the dead letters of a group with their bodies to a file, in each queue oldest first.

    Exit 1 when there is none; then the file stays as it was.
    """
    from cli.client import query_client
    from cli.exits import usage_error
    from console.parts.letters_file import head_of, line_of

    partial: list[str] = []
    count = 0
    with query_client(address, timeout) as client:
        letters = _chosen(client, name, ids) if ids else _letters(client, name, partial)
        # Before the file is opened: with a wrong id, or without dead letters, an earlier export stays.
        begin = list(itertools.islice(letters, 1))
        try:
            if begin:
                with contextlib.nullcontext(sys.stdout) if str(out) == "-" else out.open("w", encoding="utf-8") as file:
                    file.write(head_of(form).decode())
                    for letter in itertools.chain(begin, letters):
                        file.write(line_of(_file_row(letter), form).decode())
                        count += 1
        except OSError as error:
            usage_error(f"{out} cannot be written: {error.strerror}")
    if partial:
        warn(PARTIAL_OR_BUILDING)
        return Exit.PARTIAL
    return Exit.FOUND if count else Exit.NOTHING_FOUND


def drop(
    *,
    name: Name,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
    output: options.Output = OutputFormat.TABLE,
    address: options.Address = options.DEFAULT_ADDRESS,
    timeout: options.Timeout = TIMEOUT_SECONDS,
) -> int:
    """Drop all dead letters of a group, for good; by id they are found until retention removes them. Exit 1: there is none."""
    from cli.client import admin_client, query_client
    from cli.printing import print_rows

    with query_client(address, timeout) as client:
        count = client.consumer_group(name).dead_letter_count
    if count and not dry_run:
        with admin_client(address, timeout) as admin:
            admin.delete_topic(f"%DLQ%{name}")
    rows = [{"consumer_group": name, "dead_letter_count": count}] if count else []
    columns = ["consumer_group", "dead_letter_count"]
    print_rows("dropped", rows, columns, output, {"dry_run": dry_run}, empty="the group has no dead letter")
    return Exit.FOUND if rows else Exit.NOTHING_FOUND


def _letters(client: "QueryClient", name: str, partial: list[str]) -> "Iterator[Message]":
    """The dead letters of a group with their bodies; adds to `partial` when some may be missing."""
    from reput_client import Completeness

    topic = f"%DLQ%{name}"
    topics = client.topics(topic=topic)
    queues = [queue for each in topics for queue in each.queues]
    if topics.completeness is Completeness.PARTIAL:
        partial.append(topic)
    for queue in queues:
        letters = client.by_offset(topic, queue.queue_id, queue.min_offset, queue.broker_name)
        yield from letters
        if letters.completeness is Completeness.PARTIAL:
            partial.append(topic)
    if not queues and not partial:
        client.consumer_group(name)  # a group that there is not has no dead letters either, and is an error


def _chosen(client: "QueryClient", name: str, ids: Sequence[str]) -> "Iterator[Message]":
    """The dead letters with these ids, with their bodies; CliError for one that is not of the group."""
    from cli.exits import usage_error

    for offset_msg_id in ids:
        letter = client.with_body(client.by_id(offset_msg_id))
        if letter.topic != f"%DLQ%{name}":
            usage_error(f"{offset_msg_id} is a message of {letter.topic!r}, no dead letter of {name!r}")
        yield letter


def _resend_chosen(
    name: str, ids: Sequence[str], output: OutputFormat, address: str, timeout: float, *, dry_run: bool
) -> int:
    from cli.client import append_client, query_client
    from cli.exits import usage_error
    from cli.printing import print_rows
    from reput_client import NewMessage
    from services.message_copy import copied_properties, origin_topic_of

    with query_client(address, timeout) as client:
        letters = list(_chosen(client, name, list(dict.fromkeys(ids))))  # all are checked before the first is sent
    rows: list[dict[str, Any]] = []
    try:
        with append_client(address, timeout) as appends:
            for letter in letters:
                row = {"offset_msg_id": letter.offset_msg_id, "topic": origin_topic_of(letter), "new_offset_msg_id": ""}
                if row["topic"] and not dry_run:
                    message = NewMessage(
                        row["topic"],
                        letter.body,
                        keys=letter.keys,
                        tags=letter.tags,
                        properties=copied_properties(letter.properties),
                        flag=letter.flag,
                    )
                    row["new_offset_msg_id"] = appends.append([message])[0].offset_msg_id
                rows.append(row)
    except ValueError as error:
        usage_error(f"a dead letter cannot be sent: {error}")
    finally:  # also after a failure: these were sent
        print_rows("resent", rows, RESENT_COLUMNS, output, {"dry_run": dry_run}, empty="no dead letter is sent")
    unsent = [row["offset_msg_id"] for row in rows if not row["topic"]]
    if unsent:
        warn(f"not sent, because they do not say where they come from: {', '.join(unsent)}")
    return Exit.FOUND


def _file_row(letter: "Message") -> dict[str, Any]:
    from cli.times import iso_text
    from console.parts.letters_file import row_of
    from services.message_copy import origin_topic_of

    return row_of(letter, letter.body, iso_text(letter.store_time), origin_topic_of(letter))


def _resent_row(resent: "ResentDeadLetter") -> dict[str, Any]:
    return {
        "offset_msg_id": resent.offset_msg_id,
        "topic": resent.topic,
        "new_offset_msg_id": resent.new_offset_msg_id,
    }


def _row(letter: "Message") -> dict[str, Any]:
    from cli.times import iso_text
    from services.message_copy import origin_topic_of

    return {
        "store_time": iso_text(letter.store_time),
        "topic": origin_topic_of(letter),
        "unique_key": letter.unique_key,
        "keys": list(letter.keys),
        "reconsume_times": letter.reconsume_times,
        "offset_msg_id": letter.offset_msg_id,
        "broker_name": letter.broker_name,
    }
