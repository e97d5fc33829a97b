"""Changes of consumer groups: `reput group update|delete` and `reput reset-offset`."""

import time
from typing import Annotated

import typer

from cli import options
from cli.exits import Exit, usage_error, warn
from cli.options import OutputFormat

TIMEOUT_SECONDS = 10.0
RESET_COLUMNS = ["broker_name", "queue_id", "before", "after"]

Name = Annotated[str, typer.Argument(metavar="GROUP", help="Name of the group.")]
Group = Annotated[str, typer.Option("--group", "-g", help="Name of the group.")]


def update(
    *,
    name: Name,
    ordered: Annotated[
        bool | None, typer.Option("--ordered/--not-ordered", help="One message of a message group after the other.")
    ] = None,
    attempts_max: Annotated[
        int | None,
        typer.Option("--attempts", min=0, help="Deliveries before a message becomes a dead letter; 0: 17."),
    ] = None,
    consume: Annotated[
        bool | None, typer.Option("--consume/--no-consume", help="Whether the group gets messages.")
    ] = None,
    broadcast: Annotated[
        bool | None, typer.Option("--broadcast/--no-broadcast", help="Each member consumes every message.")
    ] = None,
    output: options.Output = OutputFormat.TABLE,
    address: options.Address = options.DEFAULT_ADDRESS,
    timeout: options.Timeout = TIMEOUT_SECONDS,
) -> int:
    """Set settings of a consumer group in every shard, or make it; what is not given stays as it is."""
    from cli.client import query_client
    from cli.groups.lag import GROUP_COLUMNS
    from cli.groups.rows import group_row
    from cli.printing.output import print_rows

    with query_client(address, timeout) as client:
        group = client.update_consumer_group(
            name,
            ordered=ordered,
            delivery_attempts_max=attempts_max,
            consume_disabled=None if consume is None else not consume,
            broadcast=broadcast,
        )
    print_rows("groups", [group_row(group)], GROUP_COLUMNS, output)
    return Exit.FOUND


def delete(
    *,
    name: Name,
    address: options.Address = options.DEFAULT_ADDRESS,
    timeout: options.Timeout = TIMEOUT_SECONDS,
) -> int:
    """Forget a consumer group with its positions, in every shard; its retries and dead letters stay."""
    from cli.client import query_client

    with query_client(address, timeout) as client:
        client.delete_consumer_group(name)
    return Exit.FOUND


def reset_offset(
    *,
    group: Group,
    topic: options.Topic,
    earliest: Annotated[bool, typer.Option("--earliest", help="To the first message of each queue.")] = False,
    latest: Annotated[bool, typer.Option("--latest", help="To the end of each queue.")] = False,
    moment: Annotated[
        str, typer.Option("--time", metavar="TIME", help="To the first message stored at or after it.")
    ] = "",
    queue_offset: Annotated[
        int | None, typer.Option("--offset", min=0, help="To this position, within each queue's range.")
    ] = None,
    queue_id: Annotated[int | None, typer.Option("--queueId", "-i", min=0, help="Only this queue.")] = None,
    broker_name: Annotated[str, typer.Option("--brokerName", "-b", help="Only this shard.")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
    output: options.Output = OutputFormat.TABLE,
    address: options.Address = options.DEFAULT_ADDRESS,
    timeout: options.Timeout = TIMEOUT_SECONDS,
) -> int:
    """Move a consumer group to other positions of a topic; what it has in flight there is forgotten.

    A group that never consumed is made: it begins there. Times are epoch milliseconds, ISO-8601, `now`, or relative (-2h).
    Exit 1 when no queue was moved.
    """
    from cli.client import query_client
    from cli.printing.output import print_rows
    from cli.printing.times import moment_of, parse_limit

    if sum((earliest, latest, bool(moment), queue_offset is not None)) != 1:
        usage_error("give one of --earliest, --latest, --time and --offset")
    millis = parse_limit(moment, time.time_ns() // 1_000_000, is_end=False) if moment else None
    if moment and millis is None:
        earliest = True  # before every message
    with query_client(address, timeout) as client:
        resets = client.reset_offsets(
            group,
            topic,
            earliest=earliest,
            latest=latest,
            time=None if millis is None else moment_of(millis),
            queue_offset=queue_offset,
            queue_id=queue_id,
            broker_name=broker_name,
            dry_run=dry_run,
        )
    rows = [
        {"broker_name": each.broker_name, "queue_id": each.queue_id, "before": each.before, "after": each.after}
        for each in resets
    ]
    print_rows("resets", rows, RESET_COLUMNS, output, {"dry_run": dry_run})
    if rows and all(row["before"] is None for row in rows):
        warn(f"the group {group} had no position in {topic}: it {'would begin' if dry_run else 'begins'} here")
    return Exit.FOUND if rows else Exit.NOTHING_FOUND
