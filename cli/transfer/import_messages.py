"""`reput import`: messages of JSON lines, as `reput export` writes them, into a running gateway or a new store.

Through a gateway a message is appended: it keeps topic, queue, body, keys, tags, properties, unique key, flag and born time;
its position, store time and host are new. In a new store it keeps these too.

Exit codes: 0 imported, 1 no message in the file, 2 usage or a line that is not a message, 4 the disk or the gateway failed.
"""

import pathlib
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from cli import options
from cli.exits import CliError, Exit, note, store_failure, usage_error, warn

if TYPE_CHECKING:
    from reput.message.v1 import message_pb2
    from reput_client import AppendClient, FlushMode, SendReceipt

TIMEOUT_SECONDS = 30.0
BATCH_COUNT_MAX = 256
BATCH_BYTES_MAX = 1 << 20  # a quarter of a request's limit, so that each answer comes soon


def import_messages(
    *,
    file: Annotated[pathlib.Path, typer.Argument(help="JSON lines; - is stdin.")],
    store: Annotated[
        pathlib.Path | None, typer.Option("--store", help="Make a store there; else append through the gateway.")
    ] = None,
    deduplicate: Annotated[
        bool,
        typer.Option(
            "--deduplicate",
            help="Leave out what is among the store's newest messages by topic and unique key: its newest 524,288, less "
            "after a restart (65,536 in 64 MiB). After a failure, with --fromLine.",
        ),
    ] = False,
    from_line: Annotated[
        int, typer.Option("--fromLine", min=1, help="Begin with this line: a run that failed says where to go on.")
    ] = 1,
    sync: Annotated[bool, typer.Option("--sync", help="Each answer when it is on the disk.")] = False,
    address: Annotated[
        str, typer.Option("--gateway", "--address", envvar="REPUT_ADDRESS", help="The gateway, HOST:PORT.")
    ] = options.DEFAULT_ADDRESS,
    timeout: options.Timeout = TIMEOUT_SECONDS,
) -> int:
    """Append the messages of a file through a gateway, or make a RocketMQ store of them.

    Every line is checked before the first message is appended, except on stdin. With --deduplicate a line whose topic and
    unique key are among the gateway's recent messages is not written again; a larger file is not safe to import twice by
    that alone: go on with the line that the failed run names.
    """
    from cli.printing import print_json
    from store.errors import StoreError

    if store is not None and (deduplicate or sync):
        usage_error("--deduplicate and --sync are for a gateway", "A new store is on the disk when it appears.")
    try:
        if store is not None:
            report = _into_store(file, store, from_line)
        else:
            report = _through_gateway(file, address, timeout, from_line, deduplicate=deduplicate, sync=sync)
    except StoreError as error:
        raise store_failure(error) from error
    except OSError as error:
        raise CliError(Exit.UNAVAILABLE, "DISK_FAILED", str(error)) from error
    print_json(report)
    return Exit.FOUND if report["message_count"] else Exit.NOTHING_FOUND


def _into_store(file: pathlib.Path, out: pathlib.Path, from_line: int) -> dict[str, Any]:
    from cli.printing import progress_bar
    from cli.transfer.new_store import NewStore

    with NewStore(out) as store:
        with _opened(file) as lines, progress_bar("lines") as (on_progress, _):
            for (topic, frame), _ in _parsed(lines, file, from_line, _topic_and_frame, on_progress):
                store.add(topic, frame)
        if store.record_count:
            with progress_bar("queues and index", in_bytes=False) as (on_progress, _):
                store.finish(on_progress)
    return {"message_count": store.record_count, "out": str(out) if store.record_count else None}


def _topic_and_frame(row: dict[str, Any]) -> tuple[str, bytearray]:
    from cli.transfer.message_lines import frame_of, record_of_line

    record = record_of_line(row)
    return record.topic, frame_of(record)


def _through_gateway(
    file: pathlib.Path, address: str, timeout: float, from_line: int, *, deduplicate: bool, sync: bool
) -> dict[str, Any]:
    from cli.client import append_client, query_client
    from cli.printing import progress_bar
    from cli.send import flush_mode_of
    from cli.transfer.import_check import ImportCheck, listed_queue_counts

    dropped: Counter[str] = Counter()
    appended = deduplicated = 0
    flush_mode = flush_mode_of(sync=sync)
    with _opened(file) as lines, append_client(address, timeout) as client:
        with query_client(address, timeout) as queries:
            check = ImportCheck(listed_queue_counts(queries), deduplicate=deduplicate)

        def checked(row: dict[str, Any], dropped: Counter[str]) -> "message_pb2.NewMessage":
            message = _new_message(row, dropped)
            check(message)
            return message

        parse = checked
        if str(file) != "-":
            with progress_bar("checking") as (on_progress, _):
                for _checked in _parsed(lines, file, from_line, lambda row: checked(row, Counter()), on_progress):
                    pass
            lines.seek(0)
            parse = _new_message
        with progress_bar("lines") as (on_progress, _):
            messages = _parsed(lines, file, from_line, lambda row: parse(row, dropped), on_progress)
            next_line = from_line
            try:
                for batch in _batches(messages):
                    receipts = _append(client, batch, str(file), flush_mode, appended, deduplicate=deduplicate)
                    appended += len(receipts)
                    deduplicated += sum(receipt.deduplicated for receipt in receipts)
                    next_line = batch[-1][1] + 1
                    note(f"{appended} messages so far, up to line {batch[-1][1]}")
            except CliError:  # a line of stdin, which could not be checked before
                warn(f"{file}: {appended} messages were appended, all before line {next_line}: --fromLine {next_line}")
                raise
    return {
        "message_count": appended,
        "deduplicated_count": deduplicated,
        "dropped_properties": dict(sorted(dropped.items())),
    }


def _append(
    client: "AppendClient",
    batch: "list[tuple[message_pb2.NewMessage, int]]",
    source: str,
    flush_mode: "FlushMode",
    before: int,
    *,
    deduplicate: bool,
) -> "Sequence[SendReceipt]":
    """Append a batch; after a failure, warn how far the import got and raise it."""
    from reput_client import ReputClientError

    try:
        return client.append([message for message, _ in batch], flush_mode=flush_mode, deduplicate=deduplicate)
    except (ReputClientError, KeyboardInterrupt):
        warn(
            f"{source}: {before} messages were appended; these were not, or it is not known: lines {batch[0][1]} to "
            f"{batch[-1][1]}. Go on soon with --fromLine {batch[0][1]} --deduplicate"
        )
        raise


def _batches(
    messages: "Iterator[tuple[message_pb2.NewMessage, int]]",
) -> "Iterator[list[tuple[message_pb2.NewMessage, int]]]":
    batch: list[tuple[message_pb2.NewMessage, int]] = []
    batch_bytes = 0
    for message, number in messages:
        size_bytes = message.ByteSize()
        if batch and (len(batch) == BATCH_COUNT_MAX or batch_bytes + size_bytes > BATCH_BYTES_MAX):
            yield batch
            batch, batch_bytes = [], 0
        batch.append((message, number))
        batch_bytes += size_bytes
    if batch:
        yield batch


def _new_message(row: dict[str, Any], dropped: Counter[str]) -> "message_pb2.NewMessage":
    """The message to append; counts in `dropped` the properties that are left out because a store or a broker sets them."""
    from cli.bodies import inflate
    from cli.transfer.message_lines import body_of_line, properties_of_line, time_of_line
    from commitlog_svc.append.message_check import REFUSED_PROPERTIES
    from reput.message.v1 import message_pb2
    from store.format.properties import CRC32, KEYS, TAGS, UNIQ_KEY, WAITING_PROPERTIES, split_keys
    from store.format.sys_flag import TransactionType, transaction_type

    sys_flag = row.get("sys_flag", 0)
    if transaction_type(sys_flag) in (TransactionType.PREPARED, TransactionType.ROLLBACK):
        raise ValueError(
            "half of a transaction, which a gateway does not append: leave it out, or import into a --store"
        )
    body = inflate(body_of_line(row), sys_flag)
    if body.note:
        raise ValueError(f"its body is {body.note}: import it into a --store, which keeps it unchanged")
    properties = properties_of_line(row)
    message = message_pb2.NewMessage(
        topic=row["topic"],
        body=body.content,
        tags=properties.get(TAGS, row.get("tags", "")),
        keys=split_keys(properties[KEYS]) if KEYS in properties else row.get("keys", []),
        flag=row.get("flag", 0),
    )
    for name, value in properties.items():
        if name not in REFUSED_PROPERTIES and name not in WAITING_PROPERTIES:
            message.properties[name] = value
        elif name not in (KEYS, TAGS, UNIQ_KEY, CRC32):
            dropped[name] += 1
    if "queue_id" in row:
        message.queue_id = row["queue_id"]
    unique_key = properties.get(UNIQ_KEY, row.get("unique_key", ""))
    if unique_key:
        message.unique_key = unique_key
    if "born_time" in row:
        message.born_time.FromMilliseconds(time_of_line(row["born_time"]))
    return message


def _parsed(
    lines: IO[bytes],
    file: pathlib.Path,
    from_line: int,
    parse: Callable[[dict[str, Any]], Any],
    on_progress: Callable[[int, int], None],
) -> Iterator[tuple[Any, int]]:
    """The result of `parse` for each line from `from_line` on, with the line's number; blank lines are skipped.

    Raises:
        CliError: a line is not a message; the error names the line.
    """
    from cli.transfer.message_lines import read_line
    from store.errors import StoreError

    total = 0 if str(file) == "-" else file.stat().st_size
    done = 0
    for number, line in enumerate(lines, 1):
        done += len(line)
        if number < from_line or not line.strip():
            continue
        try:
            yield parse(read_line(line.decode("utf-8"))), number
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError, StoreError, CliError) as error:
            reason = f"no field {error}" if isinstance(error, KeyError) else str(error)
            usage_error(
                f"{file}, line {number}: {reason}", "A line is what `reput export` writes; nothing else is read."
            )
        on_progress(done, max(total, done))


def _opened(file: pathlib.Path) -> Any:
    """The file to read lines from; CliError when it cannot be opened."""
    import contextlib

    if str(file) == "-":
        return contextlib.nullcontext(sys.stdin.buffer)
    try:
        return open(file, "rb")
    except OSError as error:
        usage_error(f"{file} cannot be read: {error.strerror}")
