"""Messages of a running gateway, oldest first, in bounded memory.

Each queue is a scan of its own (`SearchMessages`, pages by count and bytes), and the queues are merged by store time. Those
with a key come newest first from the index: they go through a temporary file and are read from its end.

Retention goes on meanwhile. Positions of a queue follow one another without a gap, so what is missing can be counted:

    places       |  ----------  #########  ---  ########  ------ |     # given, - skipped: lost
                 begin                                         end     as the queue was when the export began

In a window of times the places before and behind it are skipped as well: only those that the queue no longer has in the end
count, and of them it is not known whether they were in the window.
"""

import dataclasses
import heapq
import tempfile
from array import array
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from cli.exits import CliError, Exit
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2
from store.readers.frame_walk import OFFSET_MAX

if TYPE_CHECKING:
    from store.readers.frame_walk import FrameFilter

PAGE_SIZE_MAX = 1000  # the gateway clamps to this
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
        stub: of the gateway.
        wanted: which ones.
        timeout: seconds that one call may take.

    Attributes:
        partial: whether some may be missing, as far as it was iterated.
        expected_count: about how many there are; 0 when nobody knows.
        has_window: whether the store time matters.
    """

    def __init__(self, stub: Any, wanted: "FrameFilter", timeout: float) -> None:
        self.partial = False
        self.expected_count = 0
        self.has_window = (wanted.begin_millis, wanted.end_millis) != (-OFFSET_MAX, OFFSET_MAX)
        self._stub = stub
        self._wanted = wanted
        self._timeout = timeout
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
        from cli.inspect import list_topics

        topics, partial = list_topics(self._stub, self._timeout)
        self.partial |= partial
        first_places = dict.fromkeys(self._places, 0) if partial else {}
        for topic in topics:
            for queue in topic.queues:
                first_places[topic.topic, queue.broker_name, queue.queue_id] = queue.min_offset
        return first_places

    def __iter__(self) -> Iterator[Any]:
        found = self._merged() if self._wanted.key is None else _backwards(self._by_key())
        for message in found:
            if message.body_omitted:
                body = self._body(message)
                if body is None:
                    self._bodies_lost_count += 1
                    continue
                message.body = body
                message.body_omitted = False
            yield message

    def _body(self, message: Any) -> bytes | None:
        """The body of a message that came without; None when it has gone since."""
        import grpc

        request = pb.DownloadBodyRequest(offset_msg_id=message.offset_msg_id, broker_name=message.broker_name)
        try:
            return b"".join(piece.chunk for piece in self._stub.DownloadBody(request, timeout=self._timeout))
        except grpc.RpcError as error:
            if error.code() in (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.OUT_OF_RANGE):
                return None
            raise

    def _merged(self) -> Iterator[Any]:
        queues = self._queues()
        page_bytes = max(MERGED_BYTES_MAX // max(len(queues), 1), PAGE_BYTES_MIN)
        return heapq.merge(*(self._scan(topic, queue, page_bytes) for topic, queue in queues), key=_age)

    def _queues(self) -> list[tuple[str, Any]]:
        from cli.inspect import list_topics

        topics, partial = list_topics(self._stub, self._timeout)
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

    def _scan(self, topic: str, queue: Any, page_bytes: int) -> Iterator[Any]:
        wanted = self._wanted
        request = pb.SearchMessagesRequest(
            topic=topic,
            broker_name=queue.broker_name,
            queue_id=queue.queue_id,
            page_size=PAGE_SIZE_MAX,
            max_bytes=page_bytes,
        )
        if wanted.begin_queue_offset:
            request.begin_queue_offset = wanted.begin_queue_offset
        # Where the queue ends now, so that a busy writer does not keep the export going for ever.
        request.end_queue_offset = min(queue.max_offset, wanted.end_queue_offset)
        places = _Places(max(queue.min_offset, wanted.begin_queue_offset), request.end_queue_offset)
        if places.end <= places.begin:
            return
        self._places[topic, queue.broker_name, queue.queue_id] = places
        for message in self._pages(request, self._stub.SearchMessages):
            places.give(message.queue_offset)
            yield message
        places.is_done = True

    def _by_key(self) -> Iterator[Any]:
        wanted = self._wanted
        request = pb.QueryMessageByKeyRequest(topic=wanted.topic, key=wanted.key, page_size=PAGE_SIZE_MAX)
        for message in self._pages(request, self._stub.QueryMessageByKey):
            if (
                wanted.queue_id in (None, message.queue_id)
                and wanted.begin_queue_offset <= message.queue_offset < wanted.end_queue_offset
            ):
                yield message

    def _pages(self, request: Any, call: Any) -> Iterator[Any]:
        from cli.times import TIMESTAMP_MILLIS_MAX, TIMESTAMP_MILLIS_MIN

        for moment, millis in (
            (request.begin_time, self._wanted.begin_millis),
            (request.end_time, self._wanted.end_millis),
        ):
            if TIMESTAMP_MILLIS_MIN <= millis <= TIMESTAMP_MILLIS_MAX:
                moment.FromMilliseconds(millis)
        while True:
            answer = call(request, timeout=self._timeout)
            self.partial |= answer.completeness == message_pb2.COMPLETENESS_PARTIAL
            yield from answer.messages
            if not answer.next_page_token:
                return
            request.page_token = answer.next_page_token


def _age(message: Any) -> tuple[int, int, str, int]:
    moment = message.store_time
    return moment.seconds, moment.nanos, message.broker_name, message.commit_log_offset


def _backwards(messages: Iterator[Any]) -> Iterator[Any]:
    """The messages, the last one first; memory holds where each lies in a temporary file."""
    with tempfile.TemporaryFile(prefix="reput-export-") as file:
        ends = array("q", [0])
        for message in messages:
            file.write(message.SerializeToString())
            ends.append(file.tell())
        for number in range(len(ends) - 1, 0, -1):
            file.seek(ends[number - 1])
            yield message_pb2.StoredMessage.FromString(file.read(ends[number] - ends[number - 1]))
