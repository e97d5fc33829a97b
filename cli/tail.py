"""`reput tail`: the last messages of a topic, and with `-f` those that come, filtered."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from cli import options
from cli.consume import TIMEOUT_SECONDS, Wanted, pull_batches, queue_positions
from cli.exits import Exit, say_empty, usage_error, warn
from cli.options import BodyFormat, OutputFormat

if TYPE_CHECKING:
    from reput_client import Message, QueryClient, Queue

# How far back a queue is searched for messages that pass the filters.
SCANNED_RECORDS_MAX = 100_000
# A gateway gives a client few places for searches, many for reads.
READS_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class Filters:
    """Which messages are shown; all conditions must hold, empty ones hold always.

    Attributes:
        tags: the tag is one of these.
        keys: each is a key of the message.
        properties: names with values; None: any value.
        text: the inflated body holds this text.
        ignore_case: of the text.
    """

    tags: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    properties: tuple[tuple[str, str | None], ...] = ()
    text: str = ""
    ignore_case: bool = False

    def passes(self, message: "Message") -> bool:
        """Whether a message that came is shown. The gateway decides the same of those that are there (`_last_of`)."""
        from cli.bodies import inflate

        if self.tags and message.tags not in self.tags:
            return False
        if not set(self.keys) <= set(message.keys):
            return False
        for name, value in self.properties:
            if name not in message.properties or value not in (None, message.properties[name]):
                return False
        if not self.text:
            return True
        content = inflate(message.stored_body, message.sys_flag).content
        if not self.ignore_case:
            return self.text.encode() in content
        return re.search(re.escape(self.text), content.decode("utf-8", "replace"), re.IGNORECASE) is not None


def tail(
    *,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Topic name.")],
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with messages as they come, until Ctrl-C.")
    ] = False,
    count: Annotated[int, typer.Option("--lines", "-n", min=0, help="Begin with this many of the last messages.")] = 10,
    tags: options.Tags = None,
    keys: Annotated[list[str] | None, typer.Option("--key", "-k", help="One of its keys; when repeated, all.")] = None,
    properties: options.Properties = None,
    text: options.Text = "",
    ignore_case: options.IgnoreCase = False,
    output: options.Output = OutputFormat.TABLE,
    body: options.Body = BodyFormat.AUTO,
    pattern: options.Pattern = None,
    address: options.Address = options.DEFAULT_ADDRESS,
    timeout: options.Timeout = TIMEOUT_SECONDS,
) -> int:
    """Print the last messages of a topic, oldest first; with -f go on with those that come.

    Filters hold for both; at most 100,000 messages of each queue are searched for the last ones.
    """
    from cli.client import query_client
    from cli.find import property_pairs
    from cli.messages import MessageLines

    if ignore_case and not text:
        usage_error("--ignore-case is for --text")
    filters = Filters(tuple(tags or ()), tuple(keys or ()), tuple(property_pairs(properties)), text, ignore_case)
    lines = MessageLines(output, body, pattern)
    wanted = Wanted(topic, "", " || ".join(filters.tags), "", waits=True)
    shown_count = 0
    partial: list[bool] = []
    with query_client(address, timeout) as client:
        # What comes after this look is followed, what was there is searched.
        ends = queue_positions(client, wanted, "latest", lambda: partial.append(True))
        try:
            for message in _last(client, topic, [queue for queue, _ in ends], filters, count):
                lines.print(client, message)
                shown_count += 1
            if follow:
                for _, batch in pull_batches(client, wanted, ends):
                    for message in batch.messages:
                        whole = client.with_body(message) if filters.text else message
                        if filters.passes(whole):
                            lines.print(client, whole)
                            shown_count += 1
        except KeyboardInterrupt:
            pass
    if partial:
        return Exit.PARTIAL
    if not shown_count:
        say_empty("no message")
    return Exit.FOUND if shown_count else Exit.NOTHING_FOUND


def _last(
    client: "QueryClient", topic: str, queues: "Sequence[Queue]", filters: Filters, count: int
) -> "list[Message]":
    """The last messages of these ranges that pass, by store time."""
    from concurrent.futures import ThreadPoolExecutor

    if not count:
        return []
    filled = [queue for queue in queues if queue.max_offset > queue.min_offset]
    with ThreadPoolExecutor(READS_AT_ONCE if filters == Filters() else 1) as threads:
        found = threads.map(lambda queue: list(_last_of(client, topic, queue, filters, count)), filled)
        messages = [message for of_queue in found for message in of_queue]
    messages.sort(key=lambda message: (message.store_time, message.broker_name, message.commit_log_offset))
    return messages[-count:]


def _last_of(client: "QueryClient", topic: str, queue: "Queue", filters: Filters, count: int) -> "Iterator[Message]":
    """The last messages of a queue that pass, in any order."""
    from cli.find import body_ignoring_case, both, has_key
    from cli.messages import PAGE_SIZE_MAX

    if filters == Filters():
        begin = max(queue.min_offset, queue.max_offset - count)
        yield from client.by_offset(topic, queue.queue_id, begin, queue.broker_name, queue.max_offset - begin)
        return
    ignoring = body_ignoring_case(filters.text) if filters.text and filters.ignore_case else ""
    token, left, scanned = "", count, 0
    while left and scanned < SCANNED_RECORDS_MAX:
        pages = client.search(
            topic,
            tags=filters.tags,
            properties=filters.properties,
            body="" if ignoring else filters.text,
            cel=both(ignoring, *map(has_key, filters.keys)),
            broker_name=queue.broker_name,
            queue_id=queue.queue_id,
            end_queue_offset=queue.max_offset,
            newest_first=True,
            page_size=min(left, PAGE_SIZE_MAX),
            max_records=SCANNED_RECORDS_MAX - scanned,
            page_token=token,
        )
        page = next(pages.pages())
        yield from page.items
        left -= len(page.items)
        scanned += page.scan.record_count if page.scan is not None else 0
        token = page.next_page_token
        if not token:
            return
    if left:
        warn(f"queue {queue.queue_id} of {queue.broker_name}: only its last {scanned} messages were searched")
