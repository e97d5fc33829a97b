"""Topics and their queues: `reput topics` lists them, `reput topic create|update|delete|list` changes their settings, and
`reput searchOffset` finds the position of a queue for a store time.
"""

import datetime
import enum
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli import options
from cli.exits import PARTIAL, Exit, note, usage_error, warn
from cli.options import OutputFormat
from store.format.topic import DLQ_PREFIX, RETRY_PREFIX, is_system_topic

if TYPE_CHECKING:
    from cli.messages import Outcomes
    from reput_client import MessageType, QueryClient, Queue, Topic, TopicSettings

TIMEOUT_SECONDS = 10.0
PAGE_SIZE = 1000
# Each queue with messages costs a call for the times of its first and last message.
TIMED_QUEUES_MAX = 2000
TIME_CALLS_AT_ONCE = 8
QUEUE_COLUMNS = ["topic", "broker_name", "queue_id", "min_offset", "max_offset"]
TOPIC_COLUMNS = ["topic", "queues", "messages", "first_time", "last_time"]

Times = dict[tuple[str, str, int], "tuple[datetime.datetime | None, datetime.datetime | None]"]


def topics(
    *,
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="Only topics whose names hold this.")] = "",
    queues: Annotated[bool, typer.Option("--queues", "-q", help="A row for each queue, with its range.")] = False,
    show_all: Annotated[
        bool, typer.Option("--all", "-a", help="Also RocketMQ's own topics, retry and dead-letter topics.")
    ] = False,
    output: options.Output = OutputFormat.TABLE,
    read_from: options.ReadFromOption = options.ReadFromName.DEFAULT,
    address: options.Address = options.DEFAULT_ADDRESS,
    timeout: options.Timeout = TIMEOUT_SECONDS,
) -> int:
    """List the topics: how many queues and messages each has, and when its first and last message was stored.

    A topic that a name asks for is shown whatever it is; `reput topics %DLQ%` lists the dead-letter topics.
    """
    from cli.client import query_client
    from cli.messages import Outcomes
    from cli.printing import print_rows

    outcomes = Outcomes()
    with query_client(address, timeout, read_from.value) as client:
        listed, is_partial = list_topics(client, name, outcomes)
        shown = [each for each in listed if show_all or name or not is_rocketmqs_own(each)]
        times = {} if queues else times_of(client, shown)
    if queues:
        rows = [{"topic": each.topic, **queue_row(queue)} for each in shown for queue in each.queues]
        columns = QUEUE_COLUMNS
    else:
        rows, columns = [_topic_row(each, times) for each in shown], TOPIC_COLUMNS
    more = {
        "completeness": "PARTIAL" if is_partial else "COMPLETE",
        "topics_without_queues": [each.topic for each in shown if not each.queues],
        "hidden_topic_count": len(listed) - len(shown),
    }
    empty = f"no topic has {name!r} in its name" if name else "no topic"
    hidden = f"{len(listed) - len(shown)} topics of RocketMQ itself are not shown; -a shows them"
    print_rows(
        "queues" if queues else "topics", rows, columns, output, more,
        dropped_first=["broker_name"] if queues else ["first_time", "queues"],
        empty=f"{empty}; {hidden}" if len(listed) > len(shown) else empty,
    )  # fmt: skip
    if rows and len(listed) > len(shown):
        note(hidden)
    if is_partial:
        outcomes.warn_partial()
        return Exit.PARTIAL
    return Exit.FOUND if shown else Exit.NOTHING_FOUND


def list_topics(
    client: "QueryClient", name_contains: str = "", outcomes: "Outcomes | None" = None
) -> "tuple[list[Topic], bool]":
    """All topics over all pages, and whether some may be missing; `outcomes` sees how the shards took part.

    A topic with more queues than a page has room for comes in parts, which are joined here.
    """
    from reput_client import Completeness, Topic

    pages = client.topics(page_size=PAGE_SIZE, name_contains=name_contains)
    by_name: dict[str, Topic] = {}
    for page in pages.pages():
        if outcomes is not None:
            outcomes.see(page.shards)
        for each in page.items:
            known = by_name.get(each.topic)
            joined = (
                each
                if known is None
                else Topic(each.topic, known.queues + each.queues, each.queue_count, each.settings)
            )
            by_name[each.topic] = joined
    return list(by_name.values()), pages.completeness is Completeness.PARTIAL


def is_rocketmqs_own(topic: "Topic") -> bool:
    """Whether the broker made the topic for itself or for a consumer group, and no person sends to it."""
    brokers = {queue.broker_name for queue in topic.queues} | {each.broker_name for each in topic.settings}
    return (
        is_system_topic(topic.topic)
        or topic.topic.startswith((RETRY_PREFIX, DLQ_PREFIX))
        or topic.topic.endswith("_REPLY_TOPIC")
        or topic.topic in brokers  # a broker makes one with its own name
        or topic.topic == "DefaultCluster"
    )


def queue_row(queue: "Queue") -> dict[str, Any]:
    """A queue of a topic with its range."""
    return {
        "broker_name": queue.broker_name,
        "queue_id": queue.queue_id,
        "min_offset": queue.min_offset,
        "max_offset": queue.max_offset,
    }


def _topic_row(topic: "Topic", times: Times) -> dict[str, Any]:
    from cli.times import iso_text

    spans = [times.get((topic.topic, queue.broker_name, queue.queue_id), (None, None)) for queue in topic.queues]
    firsts, lasts = [first for first, _ in spans if first], [last for _, last in spans if last]
    return {
        "topic": topic.topic,
        "queues": topic.queue_count,
        "messages": sum(queue.max_offset - queue.min_offset for queue in topic.queues),
        "first_time": iso_text(min(firsts)) if firsts else None,
        "last_time": iso_text(max(lasts)) if lasts else None,
    }


def times_of(client: "QueryClient", topics: "Iterable[Topic]") -> Times:
    """Store times of the first and the last message of queues with messages; those that cannot be read are left out."""
    from concurrent.futures import ThreadPoolExecutor
    from itertools import islice

    from cli.times import moment_of
    from reput_client import ReputClientError

    filled = _filled_queues(topics)
    wanted = list(islice(filled, TIMED_QUEUES_MAX))
    if next(filled, None) is not None:
        warn(f"times are those of the first {TIMED_QUEUES_MAX} queues with messages: give a part of the name")

    def ask(place: "tuple[str, Queue]") -> "tuple[datetime.datetime | None, datetime.datetime | None]":
        topic, queue = place
        try:
            found = client.search_offset(topic, queue.queue_id, moment_of(0), broker_name=queue.broker_name)
        except ReputClientError:
            return None, None
        return found.first_store_time, found.last_store_time

    with ThreadPoolExecutor(TIME_CALLS_AT_ONCE) as threads:
        spans = list(threads.map(ask, wanted))
    return {
        (topic, queue.broker_name, queue.queue_id): span for (topic, queue), span in zip(wanted, spans, strict=True)
    }


def _filled_queues(topics: "Iterable[Topic]") -> "Iterator[tuple[str, Queue]]":
    for topic in topics:
        yield from ((topic.topic, queue) for queue in topic.queues if queue.max_offset > queue.min_offset)


COLUMNS = ["topic", "broker_name", "write_queue_count", "read_queue_count", "perm", "message_type"]


class Type(enum.StrEnum):
    """Which messages a topic is for."""

    UNSPECIFIED = "UNSPECIFIED"
    NORMAL = "NORMAL"
    FIFO = "FIFO"
    DELAY = "DELAY"
    TRANSACTION = "TRANSACTION"
    MIXED = "MIXED"
    PRIORITY = "PRIORITY"
    LITE = "LITE"


Name = Annotated[str, typer.Argument(metavar="TOPIC", help="Topic name.")]
BrokerName = Annotated[str, typer.Option("--brokerName", "-b", help="The only shard; otherwise all.")]
Perm = Annotated[int | None, typer.Option("--perm", "-p", min=2, max=6, help="2 write, 4 read, 6 both.")]
ReadCount = Annotated[int | None, typer.Option("--readQueueNums", "-r", min=1, help="Queues that a consumer reads.")]
WriteCount = Annotated[
    int | None, typer.Option("--writeQueueNums", "-w", min=1, help="Queues that a producer may write to.")
]
LiteExpiration = Annotated[
    int | None,
    typer.Option(
        "--lite-expiration-minutes",
        min=0,
        max=43_200,
        help="A lite topic of this topic is forgotten after so many minutes without a message; 0: never.",
    ),
]


def create(
    *,
    topic: Name,
    queue_count: Annotated[
        int, typer.Option("--queues", "-q", min=0, help="Queues on each shard; 0: the store's default.")
    ] = 0,
    message_type: Annotated[Type, typer.Option("--type", help="Which messages it is for.")] = Type.UNSPECIFIED,
    perm: Perm = None,
    lite_expiration_minutes: LiteExpiration = None,
    broker_name: BrokerName = "",
    output: options.Output = OutputFormat.TABLE,
    address: options.Address = options.DEFAULT_ADDRESS,
    timeout: options.Timeout = TIMEOUT_SECONDS,
) -> int:
    """Create a topic on every shard. One that exists with these values stays as it is."""
    from cli.client import admin_client

    with admin_client(address, timeout) as client:
        rows = client.create_topic(
            topic,
            queue_count=queue_count,
            message_type=type_of(message_type),
            perm=perm or 0,
            broker_name=broker_name,
            lite_expiration_minutes=lite_expiration_minutes or 0,
        )
    print_settings(rows, output)
    return Exit.FOUND


def update(
    *,
    topic: Name,
    queue_count: Annotated[
        int | None, typer.Option("--queues", "-q", min=1, help="Queues to write and to read on each shard.")
    ] = None,
    write_queue_count: WriteCount = None,
    read_queue_count: ReadCount = None,
    message_type: Annotated[
        Type | None, typer.Option("--type", help="Which messages it is for; UNSPECIFIED takes the attribute away.")
    ] = None,
    perm: Perm = None,
    lite_expiration_minutes: LiteExpiration = None,
    broker_name: BrokerName = "",
    output: options.Output = OutputFormat.TABLE,
    address: options.Address = options.DEFAULT_ADDRESS,
    timeout: options.Timeout = TIMEOUT_SECONDS,
) -> int:
    """Change a topic on every shard that has it. What is not given stays as it is.

    To shrink a topic, lower -w first, and -r when consumers have read the other queues.
    """
    from cli.client import admin_client

    with admin_client(address, timeout) as client:
        rows = client.update_topic(
            topic,
            queue_count=queue_count,
            write_queue_count=write_queue_count,
            read_queue_count=read_queue_count,
            message_type=None if message_type is None else type_of(message_type),
            perm=perm,
            broker_name=broker_name,
            lite_expiration_minutes=lite_expiration_minutes,
        )
    print_settings(rows, output)
    return Exit.FOUND


def delete(
    *,
    topic: Name,
    broker_name: BrokerName = "",
    output: options.Output = OutputFormat.TABLE,
    address: options.Address = options.DEFAULT_ADDRESS,
    timeout: options.Timeout = TIMEOUT_SECONDS,
) -> int:
    """Take a topic out of the configuration of every shard. Its messages can be found until retention removes them."""
    return delete_everywhere(topic, broker_name, output, address, timeout)


def list_settings(
    *,
    output: options.Output = OutputFormat.TABLE,
    address: options.Address = options.DEFAULT_ADDRESS,
    timeout: options.Timeout = TIMEOUT_SECONDS,
) -> int:
    """List how the topics are configured on each shard; `reput topics` lists their queues."""
    from cli.client import query_client
    from cli.exits import warn

    with query_client(address, timeout) as client:
        topics, partial = list_topics(client)
    rows = [row for topic in topics for row in topic.settings]
    print_settings(rows, output)
    if partial:
        warn(PARTIAL)
        return Exit.PARTIAL
    return Exit.FOUND if rows else Exit.NOTHING_FOUND


def delete_everywhere(topic: str, broker_name: str, output: OutputFormat, address: str, timeout: float) -> int:
    """Delete a topic, and print the shards that had it; exit 1 when there is none."""
    from cli.client import admin_client
    from cli.printing import print_rows

    with admin_client(address, timeout) as client:
        names = client.delete_topic(topic, broker_name=broker_name)
    rows = [{"topic": topic, "broker_name": name} for name in names]
    print_rows("topics", rows, COLUMNS[:2], output, empty=f"no shard had {topic}")
    return Exit.FOUND if names else Exit.NOTHING_FOUND


def type_of(given: Type) -> "MessageType":
    """The client's name of a type."""
    from reput_client import MessageType

    return MessageType[given.name]


def print_settings(rows: "list[TopicSettings]", output: OutputFormat) -> None:
    """A row for each shard."""
    from cli.printing import print_rows

    shown = [
        {column: getattr(row, column) for column in COLUMNS}
        | {"message_type": row.message_type.name}
        | ({"lite_expiration_minutes": row.lite_expiration_minutes} if row.lite_expiration_minutes else {})
        for row in rows
    ]
    print_rows("topics", shown, COLUMNS, output, dropped_first=["read_queue_count", "perm"])


def search_offset(
    *,
    topic: options.Topic,
    queue_id: Annotated[int, typer.Option("--queueId", "-i", min=0, max=(1 << 31) - 1, help="Queue of the topic.")],
    moment: Annotated[str, typer.Option("--time", metavar="TIME", help="The store time to look for.")] = "now",
    upper: Annotated[
        bool, typer.Option("--upper", help="The last message stored at or before it, not the first at or after it.")
    ] = False,
    broker_name: Annotated[str, typer.Option("--brokerName", "-b", help="The shard; not needed with only one.")] = "",
    after: options.After = None,
    output: options.Output = OutputFormat.TABLE,
    address: options.Address = options.DEFAULT_ADDRESS,
    timeout: options.Timeout = TIMEOUT_SECONDS,
) -> int:
    """Find a queue's position for a store time, exact to the millisecond; with the queue's range and time span.

    A time is epoch milliseconds, ISO-8601, `now`, or relative (-2h).
    """
    from cli import printing
    from cli.client import query_client
    from cli.messages import Outcomes
    from cli.times import iso_text, moment_of, parse_limit
    from reput_client import Boundary, Completeness

    millis = parse_limit(moment, time.time_ns() // 1_000_000, is_end=upper)
    if millis is None:
        usage_error("--time is empty", "For example: --time -2h")
    boundary = Boundary.UPPER if upper else Boundary.LOWER
    with query_client(address, timeout) as client:
        answer = client.search_offset(topic, queue_id, moment_of(millis), boundary, broker_name, after or ())
    outcomes = Outcomes()
    outcomes.see(answer.shards)
    row = {
        "queue_offset": answer.queue_offset,
        "min_offset": answer.min_offset,
        "max_offset": answer.max_offset,
        "first_store_time": iso_text(answer.first_store_time) if answer.first_store_time else "",
        "last_store_time": iso_text(answer.last_store_time) if answer.last_store_time else "",
    }
    document = row | {"completeness": answer.completeness.name, "shards": outcomes.rows()}
    if output is OutputFormat.JSON:
        printing.print_json(document)
    elif output is OutputFormat.JSONL:
        printing.print_jsonl([document])
    else:
        printing.print_rows("positions", [row], list(row), output, dropped_first=["max_offset", "min_offset"])
    if answer.completeness is Completeness.PARTIAL:
        outcomes.warn_partial()
        return Exit.PARTIAL
    return Exit.FOUND
