"""Consumer groups: `reput groups` and `reput lag` show them and how far each is behind; `reput group update|delete` and
`reput reset-offset` change them.
"""

import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli import options
from cli.exits import Exit, usage_error, warn
from cli.options import OutputFormat
from cli.terminal import one_line
from cli.times import iso_text
from store.format.topic import RETRY_PREFIX

if TYPE_CHECKING:
    from reput_client import (
        ConsumerGroup,
        ConsumerGroupDetails,
        GroupMember,
        GroupQueue,
        LiteGroup,
        QueryClient,
        ShardOutcome,
        Track,
    )

TIMEOUT_SECONDS = 10.0
# Every poll is by priority; so it is for a group that has no other factor.
PRIORITY_FACTOR_MAX = 100
GROUP_COLUMNS = ["consumer_group", "ordered", "delivery_attempts_max", "consume_disabled", "broadcast"]
# Groups that one command shows unless it is told another number; each group of `lag` costs a call to every shard.
LISTED_COUNT_MAX = 1_000
LAG_COUNT_MAX = 200
LAG_COLUMNS = [
    *("consumer_group", "topic", "broker_name", "queue_id", "consumer_offset", "max_offset", "lag", "lag_seconds"),
    *("in_flight", "removed"),
]
# Columns that a narrow terminal leaves out, the first one first.
LAG_DROPPED_FIRST = ("removed", "in_flight", "consumer_offset", "max_offset", "broker_name", "lag_seconds")
RUNNING_COLUMNS = [
    *("topic", "broker_name", "queue_id", "consumer_offset", "cached_message_count", "cached_mebibytes"),
    *("last_pull_time", "last_consume_time", "locked", "dropped"),
]
TOPIC_COLUMNS = [
    *("topic", "pulled_per_second", "pull_millis", "consumed_per_second", "consume_millis", "failed_per_second"),
    "failed_count_in_hour",
]
MEMBER_COLUMNS = ["client_id", "kind", "language", "version", "address", "subscriptions"]

GroupPart = Annotated[str, typer.Option("--group", help="Only groups whose names hold this, ignoring case.")]
GroupArgument = Annotated[str, typer.Argument(metavar="[GROUP]", help="The only group; all when left out.")]


def groups(
    *,
    name: GroupArgument = "",
    topic: Annotated[str, typer.Option("--topic", "-t", help="Only groups with a position in this topic.")] = "",
    part: GroupPart = "",
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most so many groups.")] = LISTED_COUNT_MAX,
    member: Annotated[
        str, typer.Option("--member", metavar="CLIENT_ID", help="Only what this member of GROUP does now.")
    ] = "",
    with_stack_trace: Annotated[
        bool, typer.Option("--stack-trace", help="With --member: also the stacks of its threads.")
    ] = False,
    output: options.Output = OutputFormat.TABLE,
    address: options.Address = options.DEFAULT_ADDRESS,
    timeout: options.Timeout = TIMEOUT_SECONDS,
) -> int:
    """List the consumer groups, or show one with its members, lag, retries and dead letters.

    With --member, a member over remoting is asked, and tells its queues, rates and settings. RocketMQ's gRPC
    protocol has no such question: of such a member the gateway tells what it knows.
    """
    from cli.client import query_client
    from cli.printing import print_rows

    if (member or with_stack_trace) and not (name and member):
        usage_error(
            "--member names a member of GROUP, and --stack-trace asks it: give both", "reput groups GROUP shows them."
        )
    if member:
        return show_running_info(name, member, output, address, timeout, with_stack_trace=with_stack_trace)
    if name:
        return show_group(name, output, address, timeout)
    with query_client(address, timeout) as client:
        answer = client.consumer_groups(topic, name_contains=part, limit=limit)
    print_rows("groups", [group_row(each) for each in answer.groups], GROUP_COLUMNS, output)
    _note_more(limit, has_more=answer.has_more)
    if warn_missing(answer.shards):
        return Exit.PARTIAL
    return Exit.FOUND if answer.groups else Exit.NOTHING_FOUND


def lag(
    *,
    name: GroupArgument = "",
    topic: Annotated[str, typer.Option("--topic", "-t", help="Only this topic.")] = "",
    part: GroupPart = "",
    limit: Annotated[
        int, typer.Option("--limit", min=1, help="At most so many groups, the first by name.")
    ] = LAG_COUNT_MAX,
    max_lag: Annotated[
        int | None, typer.Option("--max-lag", min=0, help="Exit 1 when a group has more messages to consume.")
    ] = None,
    output: options.Output = OutputFormat.TABLE,
    address: options.Address = options.DEFAULT_ADDRESS,
    timeout: options.Timeout = TIMEOUT_SECONDS,
) -> int:
    """Show how far groups are behind, queue by queue, in messages and seconds, with totals.

    Exit 0, or 1 when there is no group or --max-lag is exceeded, and 3 when a shard did not answer. Exit 3 also with --max-lag
    when there are more groups than --limit, because the others may be behind.
    """
    return show_lag(name, topic, output, address, timeout, part=part, limit=limit, max_lag=max_lag)


def show_lag(
    name: str,
    topic: str,
    output: OutputFormat,
    address: str,
    timeout: float,
    *,
    part: str = "",
    limit: int = LAG_COUNT_MAX,
    max_lag: int | None = None,
    with_clients: bool = False,
) -> int:
    """As `lag`; with `with_clients` each queue also names the members that may get its messages, with their addresses."""
    from cli.client import query_client
    from cli.printing import print_rows
    from reput_client import GroupNotFoundError

    columns = [*LAG_COLUMNS, "clients"] if with_clients else LAG_COLUMNS
    rows: list[dict[str, Any]] = []
    totals: list[dict[str, Any]] = []
    problems: list[str] = []
    partial = False
    with query_client(address, timeout) as client:
        names, partial, has_more = ([name], False, False) if name else _names(client, topic, part, limit)
        for each in names:
            try:
                details = client.consumer_group(each)
            except GroupNotFoundError:
                if name:
                    raise
                continue  # it was deleted meanwhile, or its only member left
            partial = warn_missing(details.shards) or partial
            of_group = [lag_row(each, queue) for queue in details.queues if topic in ("", queue.topic)]
            if with_clients:
                of_group = [row | {"clients": clients_of(details.members, row["topic"])} for row in of_group]
            rows += of_group
            totals.append(total_row(each, details, of_group, topic))
            if any(row["lag"] < 0 for row in of_group):
                problems += [f"{each}: {problem}" for problem in details.problems]
    if output is OutputFormat.JSON:
        print_rows("queues", rows, columns, output, {"totals": totals}, dropped_first=LAG_DROPPED_FIRST)
    else:
        print_rows("queues", rows, columns, output, dropped_first=LAG_DROPPED_FIRST)
    if output.is_table:
        for total in totals:
            age = "" if total["lag_seconds"] is None else f", the oldest for {total['lag_seconds']} s"
            print(
                f"{total['consumer_group']}: {total['lag']} messages to consume{age}; {total['in_flight']} in flight, "
                f"{total['retries']} retries, {total['dead_letters']} dead letters"
                + "".join(f"; {lite_text(lite)}" for lite in total.get("lite_topics", ()))
            )
    _note_more(limit, has_more=has_more)
    for problem in problems:
        warn(problem)
    if partial:
        return Exit.PARTIAL
    if not totals or (max_lag is not None and any(total["lag"] > max_lag for total in totals)):
        return Exit.NOTHING_FOUND
    if has_more and max_lag is not None:
        return Exit.PARTIAL
    return Exit.FOUND


def show_group(name: str, output: OutputFormat, address: str, timeout: float, client_id: str = "") -> int:
    """Print a group with its members, or one of them, and its queues; exit 1 when it has no such member."""
    from cli.client import query_client
    from cli.printing import print_rows

    with query_client(address, timeout) as client:
        details = client.consumer_group(name)
    members = [
        {
            "client_id": member.client_id,
            "kind": member.kind,
            "language": member.language,
            "version": member.version,
            "address": member.address,
            "subscriptions": [f"{topic}:{filter_}" for topic, filter_ in member.subscriptions],
        }
        for member in details.members
        if client_id in ("", member.client_id)
    ]
    queues = [lag_row(name, queue) for queue in details.queues]
    more = {
        "members": members,
        "queues": queues,
        "retries": details.retry_count,
        "dead_letters": details.dead_letter_count,
        "problems": list(details.problems),
    }
    lite = [asdict(each) for each in details.lite_topics]
    if lite:
        more["lite_topics"] = lite
    if output.is_table:
        print_rows("groups", [group_row(details.settings)], GROUP_COLUMNS, output)
        print_rows("members", members, MEMBER_COLUMNS, output, dropped_first=["kind", "version", "address"])
        print_rows("queues", queues, LAG_COLUMNS[1:], output, dropped_first=LAG_DROPPED_FIRST)
        print(f"{details.retry_count} retries, {details.dead_letter_count} dead letters")
        if details.settings.lite is not None:
            print(bound_text(details.settings.lite))
        for each in lite:
            print(lite_text(each))
    else:
        print_rows("groups", [group_row(details.settings) | more], GROUP_COLUMNS, output)
    for problem in details.problems:
        warn(problem)
    if client_id and not members:
        warn(f"the group {name} has no member {client_id!r}")
    if warn_missing(details.shards):
        return Exit.PARTIAL
    return Exit.NOTHING_FOUND if client_id and not members else Exit.FOUND


def show_running_info(
    name: str, client_id: str, output: OutputFormat, address: str, timeout: float, *, with_stack_trace: bool
) -> int:
    """Print what a member of a group does now."""
    from cli.client import query_client
    from cli.printing import print_rows

    with query_client(address, timeout) as client:
        info = client.consumer_running_info(name, client_id, with_stack_trace=with_stack_trace)
    times = ("last_pull_time", "last_consume_time")
    queues = [
        {key: iso_text(value) if key in times and value is not None else value for key, value in asdict(each).items()}
        for each in info.queues
    ]
    topics = [asdict(each) for each in info.topics]
    told_by = "gateway" if info.told_by_gateway else "member"
    subscriptions = [f"{topic}:{filter_}" for topic, filter_ in info.subscriptions]
    if not output.is_table:
        row = {"client_id": client_id, "told_by": told_by, "subscriptions": subscriptions}
        more = {
            "properties": dict(info.properties),
            "queues": queues,
            "topics": topics,
            "stack_trace": info.stack_trace,
        }
        print_rows("members", [row | more], ["client_id", "told_by", "subscriptions"], output)
        return Exit.FOUND
    properties = [{"name": key, "value": value} for key, value in sorted(info.properties.items())]
    print_rows("properties", properties, ["name", "value"], output)
    print_rows("queues", queues, RUNNING_COLUMNS, output, dropped_first=list(reversed(RUNNING_COLUMNS[4:])))
    print_rows("topics", topics, TOPIC_COLUMNS, output)
    print(f"subscriptions: {one_line(', '.join(subscriptions))}")
    if info.stack_trace:
        print("\n".join(map(one_line, info.stack_trace.splitlines())))
    if info.told_by_gateway:
        warn("the gateway tells this: the member came over gRPC, which has no question for its queues and rates")
    return Exit.FOUND


def _names(client: "QueryClient", topic: str, part: str, limit: int) -> tuple[list[str], bool, bool]:
    """The groups, whether a shard did not answer, and whether there are more groups."""

    answer = client.consumer_groups(topic, name_contains=part, limit=limit)
    return [group.consumer_group for group in answer.groups], warn_missing(answer.shards), answer.has_more


def _note_more(limit: int, *, has_more: bool) -> None:
    if has_more:
        warn(f"there are more than {limit} groups: choose with --group TEXT or --topic, or raise --limit")


def bound_text(lite: "LiteGroup") -> str:
    """What a group of lite topics is bound to, in one line."""
    if lite.wildcard:
        whose = "each client gets all of them"
    else:
        whose = "one belongs to its newest subscriber" if lite.exclusive else "subscribers share one"
    quota = f", at most {lite.client_quota} for a client" if lite.client_quota > 0 and not lite.wildcard else ""
    return f"bound to the lite topics of {lite.bind_topic}: {whose}{quota}"


def lite_text(lite: dict[str, Any]) -> str:
    """The lite topics of a topic in one line; `reput lite` lists them."""
    return f"of {lite['lite_topic_count']} lite topics of {lite['topic']}: {lite['lag_count']} to consume"


def total_row(
    name: str, details: "ConsumerGroupDetails", rows: "Sequence[dict[str, Any]]", topic: str = ""
) -> dict[str, Any]:
    """The sums over the queues of a group, which are rows of `lag_row`, and over its lite topics."""
    lite = [asdict(each) for each in details.lite_topics if topic in ("", each.topic)]
    of_lite: dict[str, Any] = {"lite_topics": lite} if lite else {}
    return {
        "consumer_group": name,
        "lag": sum(max(row["lag"], 0) for row in rows) + sum(each["lag_count"] for each in lite),
        "lag_seconds": max((row["lag_seconds"] for row in rows if row["lag_seconds"] is not None), default=None),
        "in_flight": sum(row["in_flight"] for row in rows) + sum(each["in_flight_count"] for each in lite),
        "retries": details.retry_count,
        "dead_letters": details.dead_letter_count,
    } | of_lite


# RocketMQ's delay level of a message that is given again: 1 second.
SOON_LEVEL = 1
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
    priority_factor: Annotated[
        int | None,
        typer.Option(
            "--priority-factor",
            min=0,
            max=PRIORITY_FACTOR_MAX,
            help="Of 100 polls of a PRIORITY topic, so many are by priority.",
        ),
    ] = None,
    lite_bind_topic: Annotated[
        str | None,
        typer.Option("--lite-bind-topic", help="The group consumes lite topics of this topic, for good."),
    ] = None,
    lite_exclusive: Annotated[
        bool | None,
        typer.Option("--lite-exclusive/--lite-shared", help="Whether a lite topic belongs to its newest subscriber."),
    ] = None,
    lite_wildcard: Annotated[
        bool | None,
        typer.Option("--lite-wildcard/--no-lite-wildcard", help="Whether its clients get all lite topics."),
    ] = None,
    lite_client_quota: Annotated[
        int | None,
        typer.Option("--lite-client-quota", min=-1, help="Lite topics that a client may subscribe to; -1: any number."),
    ] = None,
    output: options.Output = OutputFormat.TABLE,
    address: options.Address = options.DEFAULT_ADDRESS,
    timeout: options.Timeout = TIMEOUT_SECONDS,
) -> int:
    """Set settings of a consumer group in every shard, or make it; what is not given stays as it is."""
    lite = {
        "lite.bind.topic": lite_bind_topic,
        "lite.sub.model": None if lite_exclusive is None else "Exclusive" if lite_exclusive else "Shared",
        "lite.sub.wildcard": None if lite_wildcard is None else "true" if lite_wildcard else "",
        "lite.sub.client.quota": None if lite_client_quota is None else str(lite_client_quota),
    }
    return set_group(
        name,
        output,
        address,
        timeout,
        ordered=ordered,
        delivery_attempts_max=attempts_max,
        consume_disabled=None if consume is None else not consume,
        broadcast=broadcast,
        priority_factor=priority_factor,
        lite_attributes={attribute: value for attribute, value in lite.items() if value is not None},
    )


def set_group(name: str, output: OutputFormat, address: str, timeout: float, **changes: Any) -> int:
    """Set settings of a group, as `QueryClient.update_consumer_group` has them, and print all of them."""
    from cli.client import query_client
    from cli.printing import print_rows

    with query_client(address, timeout) as client:
        group = client.update_consumer_group(name, **changes)
    print_rows("groups", [group_row(group)], GROUP_COLUMNS, output)
    if output.is_table and group.lite is not None:
        print(bound_text(group.lite))
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
    from cli.printing import print_rows
    from cli.times import moment_of, parse_limit

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


def redeliver(
    *,
    name: Name,
    offset_msg_id: Annotated[str, typer.Argument(metavar="ID", help="offsetMsgId of the message.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
    output: options.Output = OutputFormat.TABLE,
    address: options.Address = options.DEFAULT_ADDRESS,
    timeout: options.Timeout = TIMEOUT_SECONDS,
) -> int:
    """Deliver one message again to one group, within a second or two; no other gets it. Exit 1 when it cannot come."""
    from cli.client import query_client
    from cli.printing import print_rows
    from reput_client import MessageQueue, SendBackOutcome

    with query_client(address, timeout) as client:
        message = client.by_id(offset_msg_id)
        group = client.consumer_group(name)  # sending back makes a group that there is not
        outcome = None
        if not dry_run:
            queue = MessageQueue(message.topic, message.broker_name, message.queue_id)
            (outcome,) = client.send_back(name, queue, [message.queue_offset], SOON_LEVEL)
    row = {
        "consumer_group": name,
        "topic": message.topic,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "outcome": "" if outcome is None else outcome.name,
    }
    print_rows("redelivered", [row], list(row), output, {"dry_run": dry_run})
    if not group.members:
        warn("no member of the group lives: only members that pull, over remoting, get it when they come")
    elif group.settings.broadcast:
        warn("each member of the group keeps its own positions: only one of them gets the message")
    return Exit.FOUND if outcome in (None, SendBackOutcome.OK) else Exit.NOTHING_FOUND


def group_row(group: "ConsumerGroup") -> dict[str, Any]:
    """The settings of a group by the names of the contract's fields."""
    row: dict[str, Any] = {
        "consumer_group": group.consumer_group,
        "ordered": group.ordered,
        "delivery_attempts_max": group.delivery_attempts_max,
        "consume_disabled": group.consume_disabled,
        "broadcast": group.broadcast,
    }
    if group.priority_factor != PRIORITY_FACTOR_MAX:
        row["priority_factor"] = group.priority_factor
    if group.lite is not None:
        row["lite"] = asdict(group.lite)
    return row


def lag_row(consumer_group: str, queue: "GroupQueue") -> dict[str, Any]:
    """A queue as a group has it."""
    return {
        "consumer_group": consumer_group,
        "topic": queue.topic,
        "broker_name": queue.broker_name,
        "queue_id": queue.queue_id,
        "consumer_offset": queue.consumer_offset,
        "max_offset": queue.max_offset,
        "lag": queue.lag_count,
        "lag_seconds": seconds_of(queue.lag_age),
        "in_flight": queue.in_flight_count,
        "removed": queue.removed_count,
    }


def clients_of(members: "Iterable[GroupMember]", topic: str) -> list[str]:
    """The members that may get messages of a topic, with their addresses: queues are not divided among members."""
    return [
        f"{member.client_id}@{member.address}"
        for member in members
        if topic.startswith(RETRY_PREFIX) or any(topic == subscribed for subscribed, _ in member.subscriptions)
    ]


def track_row(track: "Track") -> dict[str, Any]:
    """How a message stands with a group."""
    return {
        "consumer_group": track.consumer_group,
        "state": track.state.name,
        "delivery_attempts": track.delivery_attempts,
        "next_time": iso_text(track.next_time) if track.next_time else None,
        "client_id": track.client_id,
        "is_online": track.is_online,
        "copies": list(track.copy_offset_msg_ids),
        "reason": track.reason,
    }


def seconds_of(age: timedelta | None) -> float | None:
    """An age in seconds, to the millisecond."""
    return None if age is None else round(age.total_seconds(), 3)


def warn_missing(shards: "Iterable[ShardOutcome]") -> bool:
    """Warn of shards that did not answer; whether there are any."""
    missing = [shard for shard in shards if shard.error is not None]
    for shard in missing:
        warn(f"partial: shard {shard.broker_name}: {shard.error}")
    return bool(missing)
