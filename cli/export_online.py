"""Messages of a running gateway, oldest first, in bounded memory.

Each queue is a scan of its own (`SearchMessages`, pages by count and bytes), and the queues are merged by store time. Those
with a key come newest first from the index: they go through a temporary file and are read from its end.
"""

import heapq
import tempfile
from array import array
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from cli.exits import CliError, Exit
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2

if TYPE_CHECKING:
    from store.readers.frame_walk import FrameFilter

PAGE_SIZE_MAX = 1000  # the gateway clamps to this
MERGED_BYTES_MAX = 64 << 20  # pages of all queues together; one of each is held at a time
PAGE_BYTES_MIN = 64 << 10  # smaller pages cost more calls than they save memory


class OnlineMessages:
    """The chosen messages, with their bodies; iterated once.

    Args:
        stub: of the gateway.
        wanted: which ones.
        timeout: seconds that one call may take.

    Attributes:
        partial: whether some may be missing, as far as it was iterated.
        expected_count: about how many there are; 0 when nobody knows.
    """

    def __init__(self, stub: Any, wanted: "FrameFilter", timeout: float) -> None:
        self.partial = False
        self.expected_count = 0
        self._stub = stub
        self._wanted = wanted
        self._timeout = timeout

    def __iter__(self) -> Iterator[Any]:
        found = self._merged() if self._wanted.key is None else _backwards(self._by_key())
        for message in found:
            if message.body_omitted:
                request = pb.DownloadBodyRequest(offset_msg_id=message.offset_msg_id, broker_name=message.broker_name)
                message.body = b"".join(
                    piece.chunk for piece in self._stub.DownloadBody(request, timeout=self._timeout)
                )
                message.body_omitted = False
            yield message

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
        if request.end_queue_offset <= max(queue.min_offset, wanted.begin_queue_offset):
            return
        yield from self._pages(request, self._stub.SearchMessages)

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
