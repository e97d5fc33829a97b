"""Sealed log files kept elsewhere: `reput pipeline archive`, `restore`, `query` and `ship-cold`.

`archive` makes Parquet of them, each exactly once. Exit codes: 0 done, 1 a log file could not be archived, a record was damaged
before or `--verify` found something, 2 usage, not a store or another log's archive, 4 the disk failed.

`restore` makes a RocketMQ store of an archive or part of it. Exit codes: 0 done, 2 usage, nothing in the range or a damaged
archive, 4 the disk failed.

`query` runs the four queries over an archive and the live store together; no service, no Spark. Exit codes: 0 found, 1 nothing
found, 2 usage, a damaged archive, or an id whose record is damaged wherever it is, 3 messages may be missing, 4 the disk
failed.

`ship-cold` copies them to an object store, where gateways read single messages. Exit codes: 0 done, 1 a log file could not be
shipped or a record was damaged before, 2 usage, not a store or another log's place, 4 the disk or the object store failed.
"""

import enum
import pathlib
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli import options
from cli.exits import CliError, Exit, note, say_empty, store_failure, usage_error, warn
from cli.options import BodyFormat, OutputFormat
from cli.pipeline.on_spark import Archive, BrokerName, DryRun, Master, run_on_session

if TYPE_CHECKING:
    from pipeline.archive.query import FoundMessage, QueryAnswer, UnionReader

EXIT_FOUND = 1

Store = Annotated[
    str | None, typer.Option("--store", help="The store root, or its URI; may be served.", show_default=False)
]
IncludeActive = Annotated[bool, typer.Option("--include-active", help="Also the last file of the log, up to its end.")]

Verify = Annotated[bool, typer.Option("--verify", help="Archive nothing: read all of the archive and check it.")]


def archive(
    *,
    archive: Archive,
    store: Store = None,
    broker_name: BrokerName = "broker-a",
    include_active: IncludeActive = False,
    dry_run: DryRun = False,
    verify: Verify = False,
    master: Master = "local[*]",
) -> int:
    """Copy the full files of the log into an archive, each exactly once. A further run continues behind the last one."""
    if verify:
        return _verify(archive, broker_name, master)
    if store is None:
        usage_error("--store is missing", "Name the root of the store to archive.")

    from pipeline.archive import archive as job

    report = run_on_session(
        master,
        lambda: job.refuse_unfit(store, archive, broker_name),
        lambda spark, progress: job.run(
            spark,
            store,
            archive,
            broker_name=broker_name,
            include_active=include_active,
            dry_run=dry_run,
            progress=progress,
        ),
    )
    print(report.to_json())
    return EXIT_FOUND if report.findings else Exit.FOUND


def _verify(archive: str, broker_name: str, master: str) -> int:
    from pipeline.archive import verify as job
    from pipeline.object_files import open_root
    from store.archive.manifest import check_archive

    report = run_on_session(
        master,
        lambda: check_archive(*open_root(archive, "archive")),
        lambda spark, progress: job.run(spark, archive, broker_name=broker_name, progress=progress),
    )
    print(report.to_json())
    return EXIT_FOUND if report.findings else Exit.FOUND


NewRoot = Annotated[
    str,
    typer.Option(
        "--out",
        help="The root to make: a directory that is empty or does not exist, or s3://BUCKET/PREFIX without any object.",
        show_default=False,
    ),
]
From = Annotated[
    str | None, typer.Option("--from", help="Begin: a commit-log offset, or a time as ISO-8601, now or -2h.")
]
To = Annotated[str | None, typer.Option("--to", help="End: an offset (exclusive) or a time.")]


def restore(
    *,
    archive: Archive,
    out: NewRoot,
    begin: From = None,
    end: To = None,
    broker_name: BrokerName = "broker-a",
    dry_run: DryRun = False,
    master: Master = "local[*]",
) -> int:
    """Make a store from an archive: the log byte for byte, queues and indexes rebuilt. Only whole log files are restored."""
    from cli.pipeline.rebuild import layout_of_settings
    from cli.times import parse_place
    from pipeline.archive import restore as job
    from pipeline.object_files import open_root
    from pipeline.object_root import ObjectRoot
    from store.archive.manifest import check_archive

    from_offset, from_millis = parse_place(begin, is_end=False)
    to_offset, to_millis = parse_place(end, is_end=True)

    def check() -> None:
        check_archive(*open_root(archive, "archive"))
        job.refuse_out(ObjectRoot.place(out))

    report = run_on_session(
        master,
        check,
        lambda spark, progress: job.run(
            spark,
            archive,
            out,
            broker_name=broker_name,
            from_offset=from_offset,
            to_offset=to_offset,
            from_millis=from_millis,
            to_millis=to_millis,
            layout=layout_of_settings(),
            dry_run=dry_run,
            progress=progress,
        ),
    )
    print(report.to_json())
    return Exit.FOUND


class Mode(enum.StrEnum):
    """The kind of query."""

    BY_KEY = "byKey"
    BY_ID = "byId"
    BY_UNIQUE_KEY = "byUniqueKey"
    BY_OFFSET = "byOffset"


ModeArgument = Annotated[Mode, typer.Argument(help="What to ask by.", show_default=False)]
StoreOfArchive = Annotated[
    str | None, typer.Option("--store", help="The store of the archive, or its URI.", show_default=False)
]
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
    store: StoreOfArchive = None,
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
    from cli.times import parse_limit

    now_millis = time.time_ns() // 1_000_000
    return parse_limit(begin, now_millis, is_end=False), parse_limit(end, now_millis, is_end=True)


def _show_plan(reader: "UnionReader", output: OutputFormat) -> Exit:
    from cli import printing

    plan = reader.plan()
    if output.is_table:
        for name, value in plan.items():
            print(f"{name}: {value}")
    else:
        printing.print_json(plan)
    return Exit.FOUND


def _print_answer(answer: "QueryAnswer", broker_name: str, output: OutputFormat, body: BodyFormat) -> Exit:
    from cli import printing

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
    from cli.messages import message_row
    from reput_client.querying.message import message_of
    from services.convert import stored_message

    row: dict[str, Any] = message_row(message_of(stored_message(found.record, broker_name)), body.value, binary_form)
    return row | {"source": str(found.source)} | ({"deleted_with_topic": True} if found.is_deleted else {})


ServedStore = Annotated[
    pathlib.Path, typer.Option("--store", help="The store root; may be served.", show_default=False)
]
Tier = Annotated[
    str, typer.Option("--out", help="The cold tier: s3://BUCKET/PREFIX; shards may share it.", show_default=False)
]


def ship_cold(*, store: ServedStore, out: Tier, broker_name: BrokerName = "broker-a", dry_run: DryRun = False) -> int:
    """Ship the full files of the log to an object store, each once. Nothing is removed; a further run goes on."""
    from pipeline.archive import ship_cold as job
    from pipeline.job import progress_bar
    from store.errors import StoreError

    try:
        with progress_bar() as progress:
            report = job.run(store, out, broker_name=broker_name, dry_run=dry_run, progress=progress)
    except StoreError as error:
        raise store_failure(error) from error
    except OSError as error:
        raise CliError(Exit.UNAVAILABLE, "DISK_FAILED", str(error)) from error
    print(report.to_json())
    return EXIT_FOUND if report.findings else Exit.FOUND
