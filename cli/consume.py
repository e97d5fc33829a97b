"""`reput consume`: prints the messages of a topic as they come."""

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from cli import options
from cli.exits import PARTIAL_OR_BUILDING, CliError, Exit, say_empty, usage_error, warn
from cli.options import BodyFormat, OutputFormat

if TYPE_CHECKING:
    from reput_client import PulledMessages, QueryClient, Queue

TIMEOUT_SECONDS = 10.0
WAIT_SECONDS = 30.0
COMMIT_SECONDS = 1.0
QUEUES_SECONDS = 20.0  # RocketMQ's consumers look for new queues so often (`rebalance`)
# A gateway that cannot be reached for a moment ends nothing.
RETRY_SECONDS_FIRST, RETRY_SECONDS_MAX = 0.2, 5.0
# Batches that wait to be printed, of all queues together.
BATCH_COUNT_MAX = 4
POSITION_COUNT_MAX = 1_024  # of a CommitOffsets


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which messages of a queue are pulled, and whether to go on at its end."""

    topic: str
    group: str
    tags: str
    sql: str
    waits: bool


def consume(
    *,
    topic: options.Topic,
    group: Annotated[
        str,
        typer.Option("--group", "-g", help="Go on where this group is, and commit what was printed; else only read."),
    ] = "",
    begin: Annotated[
        str,
        typer.Option(
            "--from", metavar="WHERE", help="Without a position of the group in the topic: earliest, latest or a time."
        ),
    ] = "earliest",
    tags: Annotated[str, typer.Option("--filter", "-f", help="Only with one of these tags: `a || b`.")] = "",
    sql: Annotated[str, typer.Option("--sql", help="Only those for which this SQL92 expression holds.")] = "",
    max_messages: Annotated[int | None, typer.Option("--maxNum", "-m", min=1, help="End after this many.")] = None,
    until_end: Annotated[bool, typer.Option("--until-end", help="End at the ends of the queues.")] = False,
    output: options.Output = OutputFormat.TABLE,
    body: options.Body = BodyFormat.AUTO,
    pattern: options.Pattern = None,
    address: options.Address = options.DEFAULT_ADDRESS,
    timeout: options.Timeout = TIMEOUT_SECONDS,
) -> int:
    """Print the messages of all queues of a topic as they come, in order in each queue, until Ctrl-C.

    With a group its positions are committed every second and at the end; a message that was printed after the last commit is
    printed again by the next run. It shares no messages with other members of the group. Exit 1 when there was none.
    """
    from cli.client import query_client
    from cli.messages import MessageLines

    if tags and sql:
        usage_error("give --filter or --sql, not both")
    lines = MessageLines(output, body, pattern)
    wanted = Wanted(topic, group, tags, sql, not until_end)
    count = 0
    partial: list[bool] = []
    with query_client(address, timeout) as client:
        positions = queue_positions(client, wanted, begin, lambda: partial.append(True))
        committed = _Commits(client, topic, group)
        try:
            for source, batch in pull_batches(client, wanted, positions, committed.look):
                messages = batch.messages if max_messages is None else batch.messages[: max_messages - count]
                for message in messages:
                    count += 1  # first: an interrupt may come with the first message that is printed
                    lines.print(client, message)
                is_cut = len(messages) < len(batch.messages)
                committed.note(source, messages[-1].queue_offset + 1 if is_cut else batch.next_offset)
                if max_messages is not None and count >= max_messages:
                    break
        except KeyboardInterrupt:
            pass
        committed.commit()
    if partial:
        return Exit.PARTIAL
    if not count:
        say_empty("no message")
    return Exit.FOUND if count else Exit.NOTHING_FOUND


class _Commits:
    """Commits positions of a group, at most once a second; without a group it does nothing."""

    def __init__(self, client: "QueryClient", topic: str, group: str) -> None:
        self._client = client
        self._topic = topic
        self._group = group
        self._pending: dict[tuple[str, int], int] = {}
        self._due_seconds = time.monotonic() + COMMIT_SECONDS

    def note(self, source: "Queue", next_offset: int) -> None:
        """Everything before this position of a queue was printed."""
        self._pending[source.broker_name, source.queue_id] = next_offset
        if time.monotonic() >= self._due_seconds:
            self.commit()

    def look(self) -> None:
        """Commit what is due although nothing new was printed. A gateway that cannot be reached is asked again later."""
        from reput_client.errors import BusyError, UnavailableError

        if time.monotonic() >= self._due_seconds:
            with contextlib.suppress(UnavailableError, BusyError):
                self.commit()

    def commit(self) -> None:
        """Commit now."""
        from reput_client import QueuePosition

        if self._group and self._pending:
            rows = [
                QueuePosition(self._topic, queue_id, next_offset, broker_name)
                for (broker_name, queue_id), next_offset in self._pending.items()
            ]
            self._client.commit_offsets(self._group, rows)
        self._pending.clear()
        self._due_seconds = time.monotonic() + COMMIT_SECONDS


def queue_positions(
    client: "QueryClient", wanted: Wanted, begin: str, note_partial: "Callable[[], object]" = lambda: None
) -> "list[tuple[Queue, int]]":
    """The queues of the topic, each with where to begin. `note_partial` is called when a shard has not told its queues."""
    from cli.times import moment_of, parse_limit
    from reput_client import Completeness, Queue, ReputClientError

    pages = client.topics(topic=wanted.topic)
    topics = list(pages)
    if pages.completeness is Completeness.PARTIAL:
        warn(PARTIAL_OR_BUILDING)
        note_partial()
    queues = [each for topic in topics for each in topic.queues]
    if not topics:
        raise CliError(
            Exit.NOTHING_FOUND,
            "TOPIC_NOT_FOUND",
            f"The store has no topic {wanted.topic!r}.",
            "`reput topics` lists the topics.",
        )
    held = _committed(client, wanted) if wanted.group else {}
    if held:  # the group has begun: the queues that it has no position in came later
        begin = "earliest"
    millis = None
    if begin not in ("earliest", "latest"):
        millis = parse_limit(begin, time.time_ns() // 1_000_000, is_end=False)

    def position(each: Queue) -> int:
        known = held.get((each.broker_name, each.queue_id))
        if known is not None:
            return known
        if begin == "latest":
            return each.max_offset
        if millis is None or each.max_offset == each.min_offset:
            return each.min_offset
        try:
            return client.search_offset(
                wanted.topic, each.queue_id, moment_of(millis), broker_name=each.broker_name
            ).queue_offset
        except ReputClientError:
            return each.min_offset

    positions = [(each, position(each)) for each in queues]
    if wanted.group:
        _begin(client, wanted, [(each, at) for each, at in positions if (each.broker_name, each.queue_id) not in held])
    return positions


def _committed(client: "QueryClient", wanted: Wanted) -> dict[tuple[str, int], int]:
    from reput_client.errors import NotFoundError

    try:
        rows = client.offsets(wanted.group, wanted.topic)
    except NotFoundError:  # the first commit makes it
        return {}
    return {(each.broker_name, each.queue_id): each.consumer_offset for each in rows}


def _begin(client: "QueryClient", wanted: Wanted, positions: "list[tuple[Queue, int]]") -> None:
    """Keep where the group begins: a queue without a position came later, for the next run."""
    from reput_client import QueuePosition

    rows = [QueuePosition(wanted.topic, each.queue_id, at, each.broker_name) for each, at in positions]
    for first in range(0, len(rows), POSITION_COUNT_MAX):
        client.commit_offsets(wanted.group, rows[first : first + POSITION_COUNT_MAX], begins=True)


def pull_batches(
    client: "QueryClient",
    wanted: Wanted,
    positions: "list[tuple[Queue, int]]",
    idle: "Callable[[], object]" = lambda: None,
) -> "Iterator[tuple[Queue, PulledMessages]]":
    """Batches of all queues as they come, until all queues have ended. `idle` is called each second without one."""
    from reput_client import ReputClientError

    ready: queue.Queue[tuple[Queue, PulledMessages | ReputClientError | None]] = queue.Queue(BATCH_COUNT_MAX)

    def pull(source: "Queue", begin: int) -> None:
        threading.Thread(target=_pull, args=(client, wanted, source, begin, ready), daemon=True).start()

    for source, begin in positions:
        pull(source, begin)
    if wanted.waits:
        known = {(source.broker_name, source.queue_id) for source, _ in positions}
        threading.Thread(target=_pull_new, args=(client, wanted, known, pull), daemon=True).start()
    left = len(positions)
    while left:
        try:
            source, batch = ready.get(timeout=COMMIT_SECONDS)
        except queue.Empty:
            idle()
            continue
        if batch is None:
            left -= 1
        elif isinstance(batch, ReputClientError):
            raise batch
        else:
            yield source, batch


def _pull_new(
    client: "QueryClient", wanted: Wanted, known: set[tuple[str, int]], pull: "Callable[[Queue, int], None]"
) -> None:
    """Look for queues that the topic gets, without end; each is pulled from its first message on."""
    from reput_client import ReputClientError

    while True:
        time.sleep(QUEUES_SECONDS)  # between two looks
        try:
            topics = list(client.topics(topic=wanted.topic))
        except ReputClientError:
            continue  # the pulls say what is wrong
        except ValueError:
            return  # the client is closed: the command has ended
        for source in (each for topic in topics for each in topic.queues):
            if (source.broker_name, source.queue_id) not in known:
                known.add((source.broker_name, source.queue_id))
                pull(source, source.min_offset)


def _pull(
    client: "QueryClient",
    wanted: Wanted,
    source: "Queue",
    at: int,
    ready: "queue.Queue[tuple[Queue, PulledMessages | Exception | None]]",
) -> None:
    """Pull a queue until its end, or without end; goes on where it was after a failure that may pass."""
    from reput_client import PullStatus, ReputClientError
    from reput_client.errors import BusyError, UnavailableError

    pause_seconds = RETRY_SECONDS_FIRST
    while True:
        try:
            for batch in client.pull(
                wanted.topic,
                source.queue_id,
                at,
                broker_name=source.broker_name,
                max_messages=256,
                wait_seconds=WAIT_SECONDS if wanted.waits else 0.0,
                tags=wanted.tags,
                sql=wanted.sql,
                consumer_group=wanted.group,
            ):
                if batch.status is PullStatus.OFFSET_ILLEGAL:
                    warn(
                        f"queue {source.queue_id} of {source.broker_name} has no offset {at}: goes on at {batch.next_offset}"
                    )
                at = batch.next_offset
                pause_seconds = RETRY_SECONDS_FIRST
                ready.put((source, batch))
            if not wanted.waits and batch.status is not PullStatus.OFFSET_ILLEGAL:
                ready.put((source, None))
                return
        except (UnavailableError, BusyError) as error:
            if not wanted.waits:
                ready.put((source, error))
                return
            warn(f"queue {source.queue_id} of {source.broker_name}: {error}; tries again")
            time.sleep(pause_seconds)  # between two attempts
            pause_seconds = min(pause_seconds * 2, RETRY_SECONDS_MAX)
        except ReputClientError as error:
            ready.put((source, error))
            return
        except ValueError:
            return  # the client is closed: another queue has ended the command
