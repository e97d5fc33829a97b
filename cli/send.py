"""`reput send` and `reput load`: append one message, or many from a file of JSON lines."""

import json
import pathlib
import sys
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from cli import options
from cli.exits import CliError, Exit, note, usage_error
from cli.options import OutputFormat

if TYPE_CHECKING:
    from reput.message.v1 import message_pb2
    from reput_client import AppendClient, FlushMode, SendReceipt

BATCH_COUNT_MAX = 256
BATCH_BODIES_BYTES_MAX = 1024 * 1024
TIMEOUT_SECONDS = 30.0
# RocketMQ's property of a delay that is counted from when the store takes the message.
TIMER_DELAY_MS = "TIMER_DELAY_MS"
# Columns of receipts that a narrow terminal leaves out, the first one first.
RECEIPT_DROPPED_FIRST = (
    *("freshness_token", "commit_log_offset", "recall_handle", "transaction_id", "broker_name", "unique_key"),
    *("queue_id", "queue_offset"),
)
LINE_FIELDS = {
    *("topic", "body", "body_format", "tags", "keys", "properties"),
    *("flag", "queue_id", "unique_key", "born_time", "delivery_time", "delay_level", "priority", "lite_topic"),
}


def send(
    *,
    topic: options.Topic,
    body: Annotated[str | None, typer.Option("--body", "-b", help="The payload as text.")] = None,
    body_file: Annotated[pathlib.Path | None, typer.Option("--body-file", help="A file; - is stdin.")] = None,
    key: Annotated[list[str] | None, typer.Option("--key", "-k", help="Business key; may be repeated.")] = None,
    tag: Annotated[str, typer.Option("--tag", "-c", help="The tag.")] = "",
    properties: Annotated[
        list[str] | None, typer.Option("--property", "-p", metavar="NAME=VALUE", help="May be repeated.")
    ] = None,
    queue_id: Annotated[int | None, typer.Option("--queue-id", help="Queue inside the topic.")] = None,
    delay: Annotated[str, typer.Option("--delay", metavar="SPAN", help="Deliver it after this: 10s, 1h30m.")] = "",
    at: Annotated[str, typer.Option("--at", metavar="TIME", help="Deliver it at this time, such as ISO-8601.")] = "",
    delay_level: Annotated[
        int, typer.Option("--delay-level", min=0, help="Deliver it after RocketMQ's delay level: 1 is 1 s, 18 is 2 h.")
    ] = 0,
    priority: Annotated[
        int | None, typer.Option("--priority", min=0, help="For a topic of the type PRIORITY: higher ones come first.")
    ] = None,
    lite_topic: Annotated[
        str,
        typer.Option(
            "--lite-topic", help="For a topic of the type LITE: clients that subscribe to it get the message."
        ),
    ] = "",
    sync: Annotated[bool, typer.Option("--sync", help="Answer when the message is on the disk.")] = False,
    output: options.Output = OutputFormat.TABLE,
    address: options.Address = options.DEFAULT_ADDRESS,
    timeout: options.Timeout = TIMEOUT_SECONDS,
) -> int:
    """Append one message. Its body is -b, --body-file, or stdin. `reput recall` takes back one that waits for a time."""
    from cli.client import append_client
    from cli.times import moment_of, parse_limit, parse_span
    from reput_client import NewMessage

    if sum(map(bool, (delay, at, delay_level, priority is not None, lite_topic))) > 1:
        usage_error("give one of --delay, --at, --delay-level, --priority and --lite-topic")
    pairs = [text.partition("=") for text in properties or ()]
    for name, equals, _ in pairs:
        if not name or not equals:
            usage_error(f"-p {name!r} has no value", "Write -p NAME=VALUE.")
    content = _read_content(body, body_file)
    by_name = {name: value for name, _, value in pairs}
    due = None
    if at:
        millis = parse_limit(at, time.time_ns() // 1_000_000, is_end=False)
        due = None if millis is None else moment_of(millis)
    if delay:
        by_name[TIMER_DELAY_MS] = str(parse_span(delay))
    message = NewMessage(
        topic,
        content,
        keys=key or (),
        tags=tag,
        properties=by_name,
        queue_id=queue_id,
        delivery_time=due,
        delay_level=delay_level,
        priority=priority,
        lite_topic=lite_topic or None,
    )
    with append_client(address, timeout) as client:
        try:
            receipts = client.append([message], flush_mode=flush_mode_of(sync=sync))
        except ValueError as error:
            usage_error(f"the message cannot be sent: {error}")
    print_receipts(receipts, output)
    return Exit.FOUND


def load(
    *,
    file: Annotated[pathlib.Path, typer.Argument(help="JSON lines; - is stdin.")],
    sync: Annotated[bool, typer.Option("--sync", help="Answer when the messages are on the disk.")] = False,
    output: options.Output = OutputFormat.TABLE,
    address: options.Address = options.DEFAULT_ADDRESS,
    timeout: options.Timeout = TIMEOUT_SECONDS,
) -> int:
    """Append the messages of a file, one JSON object a line.

    Fields: topic, body, body_format (text, json, hex, base64; default text), tags, keys, properties, flag, queue_id,
    unique_key, born_time and delivery_time (as a query's -b), delay_level, priority, lite_topic.
    """
    from cli.client import append_client

    receipts: list[SendReceipt] = []
    try:
        lines: Iterable[str] = sys.stdin if str(file) == "-" else file.read_text(encoding="utf-8").splitlines()
        messages = list(read_messages(lines, str(file)))
    except (OSError, UnicodeDecodeError) as error:
        usage_error(f"{file} cannot be read: {error}")
    with append_client(address, timeout) as client:
        for batch_receipts in append_all(client, messages, flush_mode_of(sync=sync)):
            receipts += batch_receipts
            note(f"{len(receipts)} of {len(messages)} messages appended")
    if output.is_table:
        print(f"{len(receipts)} messages appended")
    else:
        print_receipts(receipts, output)
    return Exit.FOUND if receipts else Exit.NOTHING_FOUND


def flush_mode_of(*, sync: bool) -> "FlushMode":
    """The flush mode of `--sync`, or the server's default."""
    from reput_client import FlushMode

    return FlushMode.SYNC if sync else FlushMode.SERVER_DEFAULT


def append_all(
    client: "AppendClient", messages: "Iterable[message_pb2.NewMessage]", flush_mode: "FlushMode"
) -> "Iterator[tuple[SendReceipt, ...]]":
    """Append in batches; the receipts of each batch."""
    batch: list[message_pb2.NewMessage] = []
    bodies_bytes = 0
    for message in messages:
        if batch and (len(batch) == BATCH_COUNT_MAX or bodies_bytes + len(message.body) > BATCH_BODIES_BYTES_MAX):
            yield client.append(batch, flush_mode=flush_mode)
            batch, bodies_bytes = [], 0
        batch.append(message)
        bodies_bytes += len(message.body)
    if batch:
        yield client.append(batch, flush_mode=flush_mode)


def read_messages(lines: Iterable[str], source: str) -> "Iterator[message_pb2.NewMessage]":
    """The messages of JSON lines, without blank lines.

    Raises:
        CliError: a line is not a message; the error names the line of `source`.
    """
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            yield _message_of_line(line)
        except (ValueError, TypeError, KeyError, RecursionError, CliError) as error:
            reason = f"no field {error}" if isinstance(error, KeyError) else str(error)
            usage_error(f"{source}, line {number}: {reason}", "`reput load --help` lists the fields.")


def _message_of_line(line: str) -> "message_pb2.NewMessage":
    from cli.bodies import read_body
    from cli.times import parse_time
    from reput.message.v1 import message_pb2
    from reput_client.encoding import with_place

    fields = json.loads(line)
    if not isinstance(fields, dict):
        raise ValueError("not a JSON object")
    unknown = sorted(fields.keys() - LINE_FIELDS)
    if unknown:
        raise ValueError(f"unknown field {unknown[0]!r}")
    message = message_pb2.NewMessage(
        topic=fields["topic"],
        body=read_body(fields["body"], fields.get("body_format", "text")),
        tags=fields.get("tags", ""),
        keys=fields.get("keys", []),
        properties=with_place(fields.get("properties", {}), fields.get("priority"), fields.get("lite_topic")),
        flag=fields.get("flag", 0),
    )
    if "queue_id" in fields:
        message.queue_id = fields["queue_id"]
    if "unique_key" in fields:
        message.unique_key = fields["unique_key"]
    now_millis = time.time_ns() // 1_000_000
    if "born_time" in fields:
        message.born_time.FromMilliseconds(parse_time(str(fields["born_time"]), now_millis))
    if "delivery_time" in fields:
        message.delivery_time.FromMilliseconds(parse_time(str(fields["delivery_time"]), now_millis))
    if "delay_level" in fields:
        message.delay_level = fields["delay_level"]
    return message


def _read_content(body: str | None, body_file: pathlib.Path | None) -> bytes:
    if body is not None and body_file is not None:
        usage_error("both -b and --body-file", "Give one of them.")
    if body is not None:
        return body.encode("utf-8", errors="surrogateescape")
    if body_file is None and sys.stdin.isatty():
        usage_error("no body", "Give -b TEXT or --body-file FILE, or pipe the body in.")
    if body_file is None or str(body_file) == "-":
        return sys.stdin.buffer.read()
    try:
        return body_file.read_bytes()
    except OSError as error:
        usage_error(f"{body_file} cannot be read: {error.strerror}")


def print_receipts(receipts: "Iterable[SendReceipt]", output: OutputFormat) -> None:
    """Print the receipt of each message."""
    from cli.messages import receipt_row
    from cli.printing import print_rows

    rows = [receipt_row(receipt) for receipt in receipts]
    print_rows("results", rows, list(rows[0]) if rows else ["queue_id"], output, dropped_first=RECEIPT_DROPPED_FIRST)
