"""`reput pipeline query`: the four queries over an archive and the live store together; no service, no Spark.

Exit codes: 0 found, 1 nothing found, 2 usage, a damaged archive, or an id whose record is damaged wherever it is, 3 messages
may be missing, 4 the disk failed.
"""

import enum
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli import options
from cli.exits import CliError, Exit, note, say_empty, store_failure, usage_error, warn
from cli.options import BodyFormat, OutputFormat
from cli.pipeline.spark_job import Archive, BrokerName, DryRun

if TYPE_CHECKING:
    from pipeline.archive.query import FoundMessage, QueryAnswer, UnionReader


class Mode(enum.StrEnum):
    """What is asked by."""

    BY_KEY = "byKey"
    BY_ID = "byId"
    BY_UNIQUE_KEY = "byUniqueKey"
    BY_OFFSET = "byOffset"


ModeArgument = Annotated[Mode, typer.Argument(help="What to ask by.", show_default=False)]
Store = Annotated[str | None, typer.Option("--store", help="The store of the archive, or its URI.", show_default=False)]
Topic = Annotated[str, typer.Option("--topic", "-t", help="Topic name; not needed by id.")]
Key = Annotated[str, typer.Option("--msgKey", "-k", help="byKey: the key, whole.")]
MessageId = Annotated[str, typer.Option("--msgId", "-i", help="byId: the offsetMsgId. byUniqueKey: the unique key.")]
QueueId = Annotated[int, typer.Option("--queueId", "-q", help="byOffset: queue inside the topic.")]
QueueOffset = Annotated[int, typer.Option("--offset", help="byOffset: the first position.")]
Begin = Annotated[str | None, typer.Option("--beginTimestamp", "-b", help="byKey: stored at or after this.")]
End = Annotated[str | None, typer.Option("--endTimestamp", "-e", help="byKey: stored at or before this.")]
MaxMessages = Annotated[int, typer.Option("--maxNum", "-m", min=1, help="At most so many.")]


def query(
    *,
    mode: ModeArgument,
    archive: Archive,
    store: Store = None,
    topic: Topic = "",
    key: Key = "",
    message_id: MessageId = "",
    queue_id: QueueId = -1,
    queue_offset: QueueOffset = -1,
    begin: Begin = None,
    end: End = None,
    max_messages: MaxMessages = 64,
    broker_name: BrokerName = "broker-a",
    output: options.Output = OutputFormat.TABLE,
    body: options.Body = BodyFormat.AUTO,
    dry_run: DryRun = False,
) -> int:
    """Find messages in an archive and in its store; each shows where it was found."""
    from pipeline.archive.query import QueryAnswer, UnionReader
    from store.errors import RecordNotFoundError, StoreError

    flags: dict[Mode, dict[str, object]] = {
        Mode.BY_KEY: {"--topic": topic, "--msgKey": key},
        Mode.BY_ID: {"--msgId": message_id},
        Mode.BY_UNIQUE_KEY: {"--topic": topic, "--msgId": message_id},
        Mode.BY_OFFSET: {"--topic": topic, "--queueId": queue_id >= 0, "--offset": queue_offset >= 0},
    }
    missing = [flag for flag, value in flags[mode].items() if not value]
    if missing:
        usage_error(f"{mode} needs {' and '.join(missing)}")
    try:
        reader = UnionReader(archive, store, broker_name=broker_name)
        if dry_run:
            return _show_plan(reader, output)
        if mode is Mode.BY_ID:
            try:
                answer = QueryAnswer([reader.by_id(message_id)])
            except RecordNotFoundError as error:
                note(error.message)
                answer = QueryAnswer()
        elif mode is Mode.BY_KEY:
            begin_millis, end_millis = _window(begin, end)
            answer = reader.by_key(topic, key, begin_millis=begin_millis, end_millis=end_millis, count=max_messages)
        elif mode is Mode.BY_UNIQUE_KEY:
            answer = reader.by_unique_key(topic, message_id, count=max_messages)
        else:
            answer = reader.by_offset(topic, queue_id, queue_offset, count=max_messages)
    except StoreError as error:
        raise store_failure(error) from error
    except OSError as error:
        raise CliError(Exit.UNAVAILABLE, "DISK_FAILED", str(error)) from error
    return _print_answer(answer, broker_name, output, body)


def _window(begin: str | None, end: str | None) -> tuple[int | None, int | None]:
    from cli.printing.times import parse_limit

    now_millis = time.time_ns() // 1_000_000
    return parse_limit(begin, now_millis, is_end=False), parse_limit(end, now_millis, is_end=True)


def _show_plan(reader: "UnionReader", output: OutputFormat) -> Exit:
    from cli.printing import output as printing

    plan = reader.plan()
    if output.is_table:
        for name, value in plan.items():
            print(f"{name}: {value}")
    else:
        printing.print_json(plan)
    return Exit.FOUND


def _print_answer(answer: "QueryAnswer", broker_name: str, output: OutputFormat, body: BodyFormat) -> Exit:
    from cli.printing import output as printing

    binary_form = "hex" if output.is_table else "base64"
    rows = [_row(found, broker_name, body, binary_form) for found in answer.messages]
    completeness = "PARTIAL" if answer.problem else "TRUNCATED" if answer.has_more else "COMPLETE"
    printing.print_messages(rows, output, {"completeness": completeness}, details=len(rows) == 1)
    if answer.problem is not None:
        warn(f"partial: {answer.problem.message}")
        return Exit.PARTIAL
    if answer.has_more:
        note("there are more messages: --maxNum shows more")
    if not rows:
        say_empty("no message found")
        return Exit.NOTHING_FOUND
    return Exit.FOUND


def _row(found: "FoundMessage", broker_name: str, body: BodyFormat, binary_form: str) -> dict[str, Any]:
    from cli.queries.rows import message_row
    from reput_client.querying.message import message_of
    from services.convert import stored_message

    row: dict[str, Any] = message_row(message_of(stored_message(found.record, broker_name)), body.value, binary_form)
    return row | {"source": str(found.source)} | ({"deleted_with_topic": True} if found.is_deleted else {})
