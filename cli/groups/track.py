"""`reput track`: what has become of a message for each consumer group."""

from typing import Annotated

import typer

from cli import options
from cli.exits import Exit, usage_error, warn
from cli.options import BodyFormat, OutputFormat

TIMEOUT_SECONDS = 10.0
LISTED_COUNT_MAX = 1_000
COLUMNS = ["consumer_group", "state", "delivery_attempts", "next_time", "client_id", "is_online", "copies"]


def track(
    *,
    offset_msg_id: Annotated[str, typer.Argument(metavar="[ID]", help="An offsetMsgId: 32 or 56 hex digits.")] = "",
    topic: Annotated[str, typer.Option("--topic", "-t", help="Instead of the id: topic and unique key.")] = "",
    unique_key: Annotated[str, typer.Option("--unique-key", "-i", help="The producer's id, whole.")] = "",
    group: Annotated[str, typer.Option("--group", help="Only groups whose names hold this, ignoring case.")] = "",
    output: options.Output = OutputFormat.TABLE,
    address: options.Address = options.DEFAULT_ADDRESS,
    timeout: options.Timeout = TIMEOUT_SECONDS,
) -> int:
    """Show for each consumer group whether a message is consumed, in flight, retrying (how often, when next), dead or skipped.

    A retry or a dead letter is followed to the message that was sent. Exit 1 when there is no such message.
    """
    from cli.client import query_client
    from cli.groups.rows import track_row
    from cli.printing.output import print_rows
    from cli.printing.times import iso_text
    from cli.queries.rows import message_row

    if bool(offset_msg_id) == bool(unique_key) or bool(topic) != bool(unique_key):
        usage_error("give an offsetMsgId, or --topic and --unique-key", "`reput find TEXT` finds the id of a message.")
    with query_client(address, timeout) as client:
        answer = client.track(
            offset_msg_id, topic=topic, unique_key=unique_key, group_contains=group, limit=LISTED_COUNT_MAX
        )
    message = answer.message
    due = iso_text(answer.due_time) if answer.due_time else None
    rows = [track_row(each) for each in answer.tracks]
    if output.is_table:
        until = f" until {due}" if due else ""
        print(
            f"{message.topic} queue {message.queue_id} offset {message.queue_offset} in {message.broker_name}, stored "
            f"{iso_text(message.store_time)}, {message.offset_msg_id}: {answer.state.name}{until}"
        )
        for each in answer.tracks:
            if each.reason:
                print(f"{each.consumer_group or 'consumer groups'}: {each.state.name}, {each.reason}")
    shown = message_row(message, BodyFormat.AUTO, "base64") if output is OutputFormat.JSON else {}
    shown = {name: value for name, value in shown.items() if not name.startswith("body")}
    more = {"message": shown, "state": answer.state.name, "due_time": due}
    print_rows(
        "tracks", rows, COLUMNS, output, more, dropped_first=["is_online", "client_id"], empty="no consumer group"
    )
    if answer.has_more:
        warn(f"there are more than {LISTED_COUNT_MAX} groups: choose with --group TEXT")
    return Exit.FOUND
