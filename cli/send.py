"""`reput send` and `reput load`: append one message, or many from a file of JSON lines."""

import json
import pathlib
import sys
from collections.abc import Iterable, Iterator
from typing import Annotated, Any

import typer

from cli import options
from cli.exits import CliError, Exit, note, usage_error
from cli.options import OutputFormat

BATCH_COUNT_MAX = 256
BATCH_BODIES_BYTES_MAX = 1024 * 1024
TIMEOUT_SECONDS = 30.0
LINE_FIELDS = {
    *("topic", "body", "body_format", "tags", "keys", "properties"),
    *("flag", "queue_id", "unique_key", "born_time"),
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
    sync: Annotated[bool, typer.Option("--sync", help="Answer when it is on the disk.")] = False,
    output: options.Output = OutputFormat.TABLE,
    address: options.Address = options.DEFAULT_ADDRESS,
    timeout: options.Timeout = TIMEOUT_SECONDS,
) -> int:
    """Append one message; its body is -b, --body-file, or stdin."""
    from cli.client import gateway
    from reput.gateway.v1 import gateway_service_pb2 as pb
    from reput.message.v1 import message_pb2

    pairs = [text.partition("=") for text in properties or ()]
    for name, equals, _ in pairs:
        if not name or not equals:
            usage_error(f"-p {name!r} has no value", "Write -p NAME=VALUE.")
    content = _read_content(body, body_file)
    try:
        message = message_pb2.NewMessage(
            topic=topic, body=content, tags=tag, keys=key or [], properties={name: value for name, _, value in pairs}
        )
        if queue_id is not None:
            message.queue_id = queue_id
    except ValueError as error:
        usage_error(f"the message cannot be sent so: {error}")
    flush = message_pb2.FLUSH_MODE_SYNC if sync else message_pb2.FLUSH_MODE_UNSPECIFIED
    with gateway(address) as stub:
        answer = stub.AppendMessages(pb.AppendMessagesRequest(messages=[message], flush=flush), timeout=timeout)
    print_receipts(answer.results, output)
    return Exit.FOUND


def load(
    *,
    file: Annotated[pathlib.Path, typer.Argument(help="JSON lines; - is stdin.")],
    sync: Annotated[bool, typer.Option("--sync", help="Answer when they are on the disk.")] = False,
    output: options.Output = OutputFormat.TABLE,
    address: options.Address = options.DEFAULT_ADDRESS,
    timeout: options.Timeout = TIMEOUT_SECONDS,
) -> int:
    """Append the messages of a file, one JSON object a line.

    Fields: topic, body, body_format (text, json, hex, base64; default text), tags, keys, properties, flag, queue_id,
    unique_key, born_time (as a query's -b).
    """
    from cli.client import gateway
    from reput.message.v1 import message_pb2

    flush = message_pb2.FLUSH_MODE_SYNC if sync else message_pb2.FLUSH_MODE_UNSPECIFIED
    results: list[Any] = []
    try:
        lines: Iterable[str] = sys.stdin if str(file) == "-" else file.read_text(encoding="utf-8").splitlines()
        messages = list(read_messages(lines, str(file)))
    except (OSError, UnicodeDecodeError) as error:
        usage_error(f"{file} cannot be read: {error}")
    with gateway(address) as stub:
        for batch_results in append_all(stub, messages, flush, timeout):
            results += batch_results
            note(f"{len(results)} of {len(messages)} messages appended")
    if output is OutputFormat.TABLE:
        print(f"{len(results)} messages appended")
    else:
        print_receipts(results, output)
    return Exit.FOUND if results else Exit.NOTHING_FOUND


def append_all(stub: Any, messages: list[Any], flush: int, timeout: float) -> Iterator[list[Any]]:
    """Append in batches; the receipts batch by batch."""
    from reput.gateway.v1 import gateway_service_pb2 as pb

    batch: list[Any] = []
    bodies_bytes = 0
    for message in messages:
        if batch and (len(batch) == BATCH_COUNT_MAX or bodies_bytes + len(message.body) > BATCH_BODIES_BYTES_MAX):
            yield list(
                stub.AppendMessages(pb.AppendMessagesRequest(messages=batch, flush=flush), timeout=timeout).results
            )
            batch, bodies_bytes = [], 0
        batch.append(message)
        bodies_bytes += len(message.body)
    if batch:
        yield list(stub.AppendMessages(pb.AppendMessagesRequest(messages=batch, flush=flush), timeout=timeout).results)


def read_messages(lines: Iterable[str], source: str) -> Iterator[Any]:
    """The messages of JSON lines; blank lines are passed over.

    Raises:
        CliError: a line is no message; it says which line of `source`.
    """
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            yield _message_of_line(line)
        except (ValueError, TypeError, KeyError, CliError) as error:
            reason = f"no field {error}" if isinstance(error, KeyError) else str(error)
            usage_error(f"{source}, line {number}: {reason}", "`reput load --help` lists the fields.")


def _message_of_line(line: str) -> Any:
    import time

    from cli.bodies import read_body
    from cli.times import parse_time
    from reput.message.v1 import message_pb2

    fields = json.loads(line)
    if not isinstance(fields, dict):
        raise ValueError("is no JSON object")
    unknown = sorted(fields.keys() - LINE_FIELDS)
    if unknown:
        raise ValueError(f"unknown field {unknown[0]!r}")
    message = message_pb2.NewMessage(
        topic=fields["topic"],
        body=read_body(fields["body"], fields.get("body_format", "text")),
        tags=fields.get("tags", ""),
        keys=fields.get("keys", []),
        properties=fields.get("properties", {}),
        flag=fields.get("flag", 0),
    )
    if "queue_id" in fields:
        message.queue_id = fields["queue_id"]
    if "unique_key" in fields:
        message.unique_key = fields["unique_key"]
    if "born_time" in fields:
        message.born_time.FromMilliseconds(parse_time(str(fields["born_time"]), time.time_ns() // 1_000_000))
    return message


def _read_content(body: str | None, body_file: pathlib.Path | None) -> bytes:
    if body is not None and body_file is not None:
        usage_error("both -b and --body-file", "Give one of them.")
    if body is not None:
        return body.encode("utf-8", errors="surrogateescape")
    if body_file is None and sys.stdin.isatty():
        usage_error("no body", "Give -b TEXT, --body-file FILE, or pipe it in.")
    if body_file is None or str(body_file) == "-":
        return sys.stdin.buffer.read()
    try:
        return body_file.read_bytes()
    except OSError as error:
        usage_error(f"{body_file} cannot be read: {error.strerror}")


def print_receipts(results: Iterable[Any], output: OutputFormat) -> None:
    """Print what the store answered for each message."""
    from cli import output as printing
    from cli.rows import append_row

    rows = [append_row(result) for result in results]
    if output is OutputFormat.JSON:
        printing.print_json({"results": rows})
    elif output is OutputFormat.JSONL:
        printing.print_jsonl(rows)
    else:
        printing.print_table(list(rows[0]) if rows else ["queue_id"], [list(row.values()) for row in rows])
