"""Messages of a running gateway, oldest first, in bounded memory.

Each queue is scanned by itself (`SearchMessages`, pages limited by count and bytes), and the queues are merged by store time.
Messages of one key come newest first from the index: they are written to a temporary file and read from its end.

Retention runs meanwhile. The positions of a queue have no gaps, so missing messages can be counted:

    positions    |  ----------  #########  ---  ########  ------ |     # exported, - skipped: lost
                 begin                                         end     as the queue was when the export began

With a time window, positions outside it are skipped too. Then only those are counted that the queue no longer has at the end;
whether they were in the window is unknown.
"""

import dataclasses
import heapq
import pickle
import tempfile
from array import array
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING

from cli.exits import CliError, Exit
from cli.times import TIMESTAMP_MILLIS_MAX, TIMESTAMP_MILLIS_MIN, moment_of
from cli.topics import list_topics
from reput_client import Completeness, Message, NotFoundError, Pages, QueryClient, Queue
from reput_client.errors import OffsetOutOfRangeError
from store.walk.frame_walk import OFFSET_MAX

if TYPE_CHECKING:
    from store.walk.frame_walk import FrameFilter

PAGE_SIZE_MAX = 1000  # a gateway's largest page
MERGED_BYTES_MAX = 64 << 20  # pages of all queues together; one of each is held at a time
PAGE_BYTES_MIN = 64 << 10  # smaller pages cost more calls than they save memory


@dataclasses.dataclass(slots=True)
class _Places:
    """How far one queue was read; queue offsets.

    Attributes:
        begin: where it began.
        end: where it shall end.
        first: the first that was given.
        next: behind the last one that was given.
        gap_count: skipped between those given.
        is_done: all of it was read.
    """

    begin: int
    end: int
    first: int | None = None
    next: int = 0
    gap_count: int = 0
    is_done: bool = False

    def give(self, place: int) -> None:
        """This one was given."""
        if self.first is None:
            self.first = place
        else:
            self.gap_count += max(place - self.next, 0)
        self.next = max(self.next, place + 1)

    def lost_count(self, gone_below: int, *, is_open_ended: bool) -> int:
        """Places that were not given and that the queue has no longer: those below `gone_below`.

        Args:
            gone_below: the queue's first place now, in messages.
            is_open_ended: whether nothing was too new to be given.
        """
        gone_end = min(gone_below, self.end)
        if self.first is None:
            # One that is still there was too old; then those before it were.
            is_too_old = is_open_ended and gone_below < self.end
            return max(gone_end - self.begin, 0) if self.is_done and not is_too_old else 0
        # A place that is still there was not lost, and neither was one before it.
        before = max(self.first - self.begin, 0) if self.first <= gone_below else 0
        between = self.gap_count if self.begin < gone_below else 0
        return before + between + (max(gone_end - self.next, 0) if self.is_done else 0)


class OnlineMessages:
    """The chosen messages, with their bodies; iterated once.

    Args:
        client: of the gateway.
        wanted: selects the messages.

    Attributes:
        partial: whether some may be missing, of those iterated so far.
        expected_count: about how many there are; 0 when that is unknown.
        has_window: whether messages are selected by store time.
    """

    def __init__(self, client: QueryClient, wanted: "FrameFilter") -> None:
        self.partial = False
        self.expected_count = 0
        self.has_window = (wanted.begin_millis, wanted.end_millis) != (-OFFSET_MAX, OFFSET_MAX)
        self._client = client
        self._wanted = wanted
        self._places: dict[tuple[str, str, int], _Places] = {}
        self._bodies_lost_count = 0

    def lost_count(self) -> int:
        """How many messages, of those iterated, were there at the start and could not be had any more; asks again.

        With a time window that many at most: what is gone does not say when it was stored. Those with a key are counted
        only where the body alone was gone.
        """
        lost_count = self._bodies_lost_count
        first_places = self._first_places() if self.has_window and self._places else {}
        for name, places in self._places.items():
            gone_below = first_places.get(name, places.end) if self.has_window else places.end
            lost_count += places.lost_count(gone_below, is_open_ended=self._wanted.end_millis == OFFSET_MAX)
        return lost_count

    def _first_places(self) -> dict[tuple[str, str, int], int]:
        """Each queue's first place now; all of a queue is gone that has none, unless its shard did not answer."""
        topics, partial = list_topics(self._client)
        self.partial |= partial
        first_places = dict.fromkeys(self._places, 0) if partial else {}
        for topic in topics:
            for queue in topic.queues:
                first_places[topic.topic, queue.broker_name, queue.queue_id] = queue.min_offset
        return first_places

    def __iter__(self) -> Iterator[Message]:
        found = self._merged() if self._wanted.key is None else _backwards(self._by_key())
        for message in found:
            if message.body_omitted:
                try:
                    body = self._client.download_body(message)
                except (NotFoundError, OffsetOutOfRangeError):  # removed since its page
                    self._bodies_lost_count += 1
                    continue
                yield dataclasses.replace(message, stored_body=body, body_omitted=False)
            else:
                yield message

    def _merged(self) -> Iterator[Message]:
        queues = self._queues()
        page_bytes = max(MERGED_BYTES_MAX // max(len(queues), 1), PAGE_BYTES_MIN)
        return heapq.merge(*(self._scan(topic, queue, page_bytes) for topic, queue in queues), key=_age)

    def _queues(self) -> list[tuple[str, Queue]]:
        topics, partial = list_topics(self._client)
        self.partial |= partial
        wanted = self._wanted
        if wanted.topic is not None and all(topic.topic != wanted.topic for topic in topics):
            raise CliError(
                Exit.NOTHING_FOUND, "TOPIC_NOT_FOUND", f"there is no topic {wanted.topic}",
                "`reput topics` lists the topics that are there.",
            )  # fmt: skip
        queues = [
            (topic.topic, queue)
            for topic in topics
            if wanted.topic in (None, topic.topic)
            for queue in topic.queues
            if wanted.queue_id in (None, queue.queue_id)
        ]
        self.expected_count = sum(
            max(min(queue.max_offset, wanted.end_queue_offset) - max(queue.min_offset, wanted.begin_queue_offset), 0)
            for _, queue in queues
        )
        return queues

    def _scan(self, topic: str, queue: Queue, page_bytes: int) -> Iterator[Message]:
        wanted = self._wanted
        # The end as the queue is now: a busy producer must not prolong the export.
        end = min(queue.max_offset, wanted.end_queue_offset)
        places = _Places(max(queue.min_offset, wanted.begin_queue_offset), end)
        if places.end <= places.begin:
            return
        self._places[topic, queue.broker_name, queue.queue_id] = places
        pages = self._client.search(
            topic,
            begin=_moment(wanted.begin_millis),
            end=_moment(wanted.end_millis),
            broker_name=queue.broker_name,
            queue_id=queue.queue_id,
            begin_queue_offset=wanted.begin_queue_offset or None,
            end_queue_offset=end,
            page_size=PAGE_SIZE_MAX,
            max_bytes=page_bytes,
        )
        for message in self._noted(pages):
            places.give(message.queue_offset)
            yield message
        places.is_done = True

    def _by_key(self) -> Iterator[Message]:
        wanted = self._wanted
        assert wanted.topic is not None
        assert wanted.key is not None
        begin, end = _moment(wanted.begin_millis), _moment(wanted.end_millis)
        for message in self._noted(self._client.by_key(wanted.topic, wanted.key, begin, end, PAGE_SIZE_MAX)):
            if (
                wanted.queue_id in (None, message.queue_id)
                and wanted.begin_queue_offset <= message.queue_offset < wanted.end_queue_offset
            ):
                yield message

    def _noted(self, pages: Pages[Message]) -> Iterator[Message]:
        """The messages; a PARTIAL page is noted."""
        for page in pages.pages():
            self.partial |= page.completeness is Completeness.PARTIAL
            yield from page.items


def _moment(millis: int) -> datetime | None:
    """A limit of the window; None when it is no limit."""
    return moment_of(millis) if TIMESTAMP_MILLIS_MIN <= millis <= TIMESTAMP_MILLIS_MAX else None


def _age(message: Message) -> tuple[datetime, str, int]:
    return message.store_time, message.broker_name, message.commit_log_offset


def _backwards(messages: Iterator[Message]) -> Iterator[Message]:
    """The messages, the last one first; memory holds where each lies in a temporary file."""
    with tempfile.TemporaryFile(prefix="reput-export-") as file:
        begins = array("q")
        for message in messages:
            begins.append(file.tell())
            pickle.dump(message, file)
        for begin in reversed(begins):
            file.seek(begin)
            message = pickle.load(file)  # noqa: S301  # this process has written it
            yield message
