"""consumerProgress, consumerStatus, updateSubGroup, deleteSubGroup and resetOffsetByTime, with mqadmin's flags.

Those without effect stand in `cli.mqadmin.flags`.
"""

import re
from typing import Annotated

import typer

from cli import options
from cli.exits import usage_error, warn
from cli.groups.changes import TIMEOUT_SECONDS, delete, reset_offset, update
from cli.groups.lag import show_group, show_lag
from cli.mqadmin.values import shard_of, truth_of
from cli.options import OutputFormat

NOW = ("now", "currentTimeMillis")

GroupName = Annotated[str, typer.Option("--groupName", "-g", help="Name of the group.")]


def consumer_progress(
    *,
    name: Annotated[str, typer.Option("--groupName", "-g", help="The only group; all when left out.")] = "",
    topic: Annotated[str, typer.Option("--topicName", "-t", help="Only this topic.")] = "",
    show_clients: Annotated[
        str,
        typer.Option(
            "--showClientIP", "-s", metavar="BOOL", help="true: with the members that may get messages of each queue."
        ),
    ] = "",
    output: options.Output = OutputFormat.TABLE,
    address: options.Address = options.DEFAULT_ADDRESS,
    timeout: options.Timeout = TIMEOUT_SECONDS,
) -> int:
    """As `reput lag`, with mqadmin's flags."""
    with_clients = bool(truth_of(show_clients, "-s"))
    return show_lag(name, topic, output, address, timeout, with_clients=with_clients)


def consumer_status(
    *,
    name: Annotated[str, typer.Option("--consumerGroup", "-g", help="Name of the group.")],
    client_id: Annotated[str, typer.Option("--clientId", "-i", help="The only member to show.")] = "",
    output: options.Output = OutputFormat.TABLE,
    address: options.Address = options.DEFAULT_ADDRESS,
    timeout: options.Timeout = TIMEOUT_SECONDS,
) -> int:
    """As `reput groups GROUP`, with mqadmin's flags."""
    return show_group(name, output, address, timeout, client_id)


def update_sub_group(
    *,
    name: GroupName,
    consume: Annotated[
        str, typer.Option("--consumeEnable", "-s", metavar="BOOL", help="Whether the group gets messages.")
    ] = "",
    broadcast: Annotated[
        str,
        typer.Option("--consumeBroadcastEnable", "-d", metavar="BOOL", help="Each member consumes every message."),
    ] = "",
    ordered: Annotated[
        str,
        typer.Option(
            "--consumeMessageOrderly", "-o", metavar="BOOL", help="One message of a message group after the other."
        ),
    ] = "",
    retry_max_times: Annotated[
        int | None, typer.Option("--retryMaxTimes", "-r", min=0, help="Deliveries after the first.")
    ] = None,
    output: options.OutputOnly = OutputFormat.TABLE,
    address: options.Address = options.DEFAULT_ADDRESS,
    timeout: options.Timeout = TIMEOUT_SECONDS,
) -> int:
    """As `reput group update`, with mqadmin's flags; what is not given stays as it is."""
    return update(
        name=name,
        ordered=truth_of(ordered, "-o"),
        attempts_max=None if retry_max_times is None else retry_max_times + 1,
        consume=truth_of(consume, "-s"),
        broadcast=truth_of(broadcast, "-d"),
        output=output,
        address=address,
        timeout=timeout,
    )


def delete_sub_group(
    *,
    name: GroupName,
    address: options.Address = options.DEFAULT_ADDRESS,
    timeout: options.Timeout = TIMEOUT_SECONDS,
) -> int:
    """As `reput group delete`, with mqadmin's flags."""
    return delete(name=name, address=address, timeout=timeout)


def reset_offset_by_time(
    *,
    group: Annotated[str, typer.Option("--group", "-g", help="Name of the group.")],
    topic: options.Topic,
    moment: Annotated[
        str,
        typer.Option(
            "--timestamp", "-s", metavar="TIME", help="now, epoch milliseconds, yyyy-MM-dd#HH:mm:ss:SSS; -1 is the end."
        ),
    ] = "",
    queue_offset: Annotated[
        int | None, typer.Option("--offset", "-o", min=-1, help="Instead of -s: this position of the queue -q.")
    ] = None,
    queue_id: Annotated[int | None, typer.Option("--queue", "-q", min=-1, help="Only this queue; -1: all.")] = None,
    broker: Annotated[str, typer.Option("--broker", "--brokerName", "-b", help="Only this shard.")] = "",
    output: options.OutputOnly = OutputFormat.TABLE,
    address: options.Address = options.DEFAULT_ADDRESS,
    timeout: options.Timeout = TIMEOUT_SECONDS,
) -> int:
    """As `reput reset-offset --time`, with mqadmin's flags: `now` is the end of each queue, and -o needs -q."""
    queue_id = None if queue_id == -1 else queue_id
    queue_offset = None if queue_offset == -1 else queue_offset
    if queue_offset is not None and queue_id is None:
        if not moment:
            usage_error("-o is a position of one queue: name it with -q", "Or give a time with -s.")
        warn("-o is ignored: it is a position of one queue, and -q names none; -s is used, as in mqadmin")
        queue_offset = None
    if queue_offset is None and not moment:
        usage_error("no time: give -s", "For example: -s now, -s 1795256951776, -s 2026-01-31#12:00:00:000.")
    # As RocketMQ's broker: a time before 1970 is the end.
    is_end = queue_offset is None and (moment in NOW or re.fullmatch(r"-\d+", moment) is not None)
    return reset_offset(
        group=group,
        topic=topic,
        earliest=False,
        latest=is_end,
        moment="" if is_end or queue_offset is not None else _iso_of(moment),
        queue_offset=queue_offset,
        queue_id=queue_id,
        broker_name=shard_of(broker, address, timeout),
        dry_run=False,
        output=output,
        address=address,
        timeout=timeout,
    )


def _iso_of(moment: str) -> str:
    """mqadmin's form of a time, `yyyy-MM-dd#HH:mm:ss:SSS`, as ISO-8601; other forms as they are."""
    day, hash_, clock = moment.partition("#")
    return f"{day}T{'.'.join(clock.rsplit(':', 1)) if clock.count(':') == 3 else clock}" if hash_ else moment
