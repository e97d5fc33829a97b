"""`reput topics`: the topics, one in a row."""

import datetime
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli import options
from cli.exits import Exit, note, warn
from cli.options import OutputFormat
from store.format.topic import DLQ_PREFIX, RETRY_PREFIX, is_system_topic

if TYPE_CHECKING:
    from cli.queries.outcomes import Outcomes
    from reput_client import QueryClient, Queue, Topic

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
    from cli.printing.output import print_rows
    from cli.queries.outcomes import Outcomes

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
    from cli.printing.times import iso_text

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

    from cli.printing.times import moment_of
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
