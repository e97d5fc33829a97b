"""`reput export`: messages of a store, or of a running gateway, as JSON lines or as a new RocketMQ store.

Exit codes: 0 exported, 1 no message selected, 2 usage or a damaged store, 3 exported, but a shard did not answer or
retention removed messages meanwhile, 4 the disk or the gateway failed. A failed run leaves no output.
"""

import enum
import pathlib
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli import options
from cli.exits import CliError, Exit, store_failure, usage_error, warn

if TYPE_CHECKING:
    from cli.transfer.export_outputs import Output
    from store.walk.frame_walk import FrameFilter

TIMEOUT_SECONDS = 30.0


class ExportFormat(enum.StrEnum):
    """The form of the output."""

    JSONL = "jsonl"
    STORE = "store"


def export(
    *,
    store: Annotated[
        pathlib.Path | None,
        typer.Option("--store", help="A stopped store, read without any service. Without it the gateway is asked."),
    ] = None,
    form: Annotated[
        ExportFormat, typer.Option("--format", help="JSON lines, or a store that `reput serve` and RocketMQ open.")
    ] = ExportFormat.JSONL,
    out: Annotated[
        pathlib.Path | None, typer.Option("--out", help="The file, or the store root, to make.", show_default="stdout")
    ] = None,
    topic: Annotated[str | None, typer.Option("--topic", "-t", help="Only this topic.")] = None,
    queue_id: Annotated[int | None, typer.Option("--queueId", "-i", min=0, help="Only this queue.")] = None,
    begin_offset: Annotated[int | None, typer.Option("--fromOffset", min=0, help="From this queue offset on.")] = None,
    end_offset: Annotated[int | None, typer.Option("--toOffset", min=0, help="Before this queue offset.")] = None,
    key: Annotated[str | None, typer.Option("--msgKey", "-k", help="Only with this business key, whole.")] = None,
    begin: Annotated[str | None, typer.Option("--begin", "-b", help="Stored at or after this.")] = None,
    end: Annotated[str | None, typer.Option("--end", "-e", help="Stored at or before this.")] = None,
    max_messages: Annotated[int | None, typer.Option("--maxNum", "-m", min=1, help="The oldest so many.")] = None,
    address: Annotated[
        str, typer.Option("--gateway", "--address", envvar="REPUT_ADDRESS", help="The gateway, HOST:PORT.")
    ] = options.DEFAULT_ADDRESS,
    timeout: options.Timeout = TIMEOUT_SECONDS,
) -> int:
    """Copy messages, oldest first, to JSON lines or to a new store. Without a selection all messages are copied.

    A line holds the whole message, and `reput import` makes it again. In a store each record has the same bytes, except for
    its offsets. Times are epoch milliseconds, ISO-8601, `now`, or relative (-2h).
    """
    from cli.printing import progress_bar
    from cli.transfer.export_outputs import open_output
    from store.errors import StoreError

    if queue_id is None and (begin_offset is not None or end_offset is not None):
        usage_error("--fromOffset and --toOffset need one queue", "Add -t TOPIC -i QUEUE.")
    if topic is None and (queue_id is not None or key is not None):
        usage_error("-i and -k need a topic", "Add -t TOPIC.")
    if form is ExportFormat.STORE and out is None:
        usage_error("--format store needs --out", "Name a directory that does not exist.")
    wanted = _filter(topic, queue_id, begin_offset, end_offset, key, begin, end)
    try:
        with open_output(out, is_store=form is ExportFormat.STORE) as output:
            if store is not None:
                partial = False
                with progress_bar("log") as (on_progress, _):
                    _from_store(store, wanted, output, max_messages, on_progress)
            else:
                partial = _from_gateway(address, timeout, wanted, output, max_messages)
            if output.message_count:
                output.finish()
    except StoreError as error:
        raise store_failure(error) from error
    except BrokenPipeError:
        raise
    except OSError as error:
        raise CliError(Exit.UNAVAILABLE, "DISK_FAILED", str(error)) from error
    if out is not None:
        from cli.printing import print_json

        print_json({"message_count": output.message_count, "out": str(out) if output.message_count else None})
    if partial:
        return Exit.PARTIAL
    return Exit.FOUND if output.message_count else Exit.NOTHING_FOUND


def _filter(
    topic: str | None,
    queue_id: int | None,
    begin_offset: int | None,
    end_offset: int | None,
    key: str | None,
    begin: str | None,
    end: str | None,
) -> "FrameFilter":
    from cli.times import parse_limit
    from store.walk.frame_walk import OFFSET_MAX, FrameFilter

    now_millis = time.time_ns() // 1_000_000
    begin_millis = parse_limit(begin, now_millis, is_end=False)
    end_millis = parse_limit(end, now_millis, is_end=True)
    return FrameFilter(
        topic=topic,
        queue_id=queue_id,
        begin_queue_offset=begin_offset or 0,
        end_queue_offset=OFFSET_MAX if end_offset is None else end_offset,
        key=key,
        begin_millis=-OFFSET_MAX if begin_millis is None else begin_millis,
        end_millis=OFFSET_MAX if end_millis is None else end_millis,
    )


class _EnoughError(Exception):
    """The wanted number of messages was found: ends a walk."""


def _from_store(
    store: pathlib.Path, wanted: "FrameFilter", output: "Output", messages_max: int | None, on_progress: Any
) -> None:
    from store.audit.store_audit import refuse_held_root
    from store.features.table import refuse_unsupported
    from store.files.file_system import RealFileSystem
    from store.walk.frame_walk import walk_frames

    if not store.is_dir():
        usage_error(f"{store} is no directory", "Name the root of a store: the directory with commitlog/ in it.")
    fs = RealFileSystem()
    refuse_unsupported(fs, store, may_be_empty=False)
    refuse_held_root(fs, store)

    def see(topic: str, frame: bytes) -> None:
        output.add_frame(topic, frame)
        if output.message_count == messages_max:
            raise _EnoughError

    try:
        walked = walk_frames(fs, store, wanted, see, on_progress)
    except _EnoughError:
        return
    if walked.torn_tail is not None:
        warn(f"the log ends torn at {walked.end_offset}, as a crash leaves it: {walked.torn_tail}")


def _from_gateway(
    address: str, timeout: float, wanted: "FrameFilter", output: "Output", messages_max: int | None
) -> bool:
    """Export the messages of a gateway; True if some may be missing."""
    from cli.client import query_client
    from cli.printing import progress_bar
    from cli.transfer.export_online import OnlineMessages

    with query_client(address, timeout) as client, progress_bar("messages", in_bytes=False) as (on_progress, _):
        messages = OnlineMessages(client, wanted)
        for count, message in enumerate(_first(messages, messages_max), 1):
            output.add_stored(message)
            on_progress(count, max(messages.expected_count, count))
        lost_count = messages.lost_count()
        if lost_count:
            at_most = "up to " if messages.has_window else ""
            warn(f"partial: {at_most}{lost_count} messages went by retention, or cannot be read, while this ran")
        if messages.partial:
            warn("partial: part of the shards could not be asked or is not built yet; `reput status` shows which")
        return messages.partial or lost_count > 0


def _first(messages: Any, count: int | None) -> Iterator[Any]:
    import itertools

    return iter(messages) if count is None else itertools.islice(messages, count)
