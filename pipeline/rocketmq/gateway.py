"""The gateways that a query reads through: their queues, and what these hold.

Every call is sent again while a gateway is not reached, not ready or too busy, for `retry_seconds`; then its error is raised.
An answer that lacks a shard, or queues that are still being built, counts as not ready: otherwise a queue would seem empty.

A Gateway holds a connection: it belongs to one process and is never pickled.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import tenacity
from google.protobuf.timestamp_pb2 import Timestamp

from pipeline.rocketmq.errors import ShardConflictError
from pipeline.rocketmq.options import NO_SECURITY, SecurityOptions, opened
from pipeline.rocketmq.positions import QueueKey
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2
from reput_client import BusyError, PartialAnswerError, ReadFrom, RetryPolicy, UnavailableError
from reput_client.calls import GatewayCalls
from reput_client.querying.answers import partial_answer, shards_of

POSITION_COUNT_MAX = 1024  # of a CommitOffsets, by the gateway
PAGE_COUNT_MAX = 1000  # the gateway's own limit, for messages and for topics
PULL_BYTES = 2 << 20  # of bodies in a batch
# In effect no limit: `retry_seconds` ends the attempts.
ATTEMPT_COUNT_MAX = 1_000_000
PARTIAL_PAUSE_SECONDS = 0.1

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class HeldRange:
    """The queue offsets `[min_offset, max_offset)` that a queue holds, and the gateway that serves it."""

    endpoint: str
    min_offset: int
    max_offset: int


class Gateway:
    """One gateway.

    Args:
        endpoint: `HOST:PORT` or `unix:/path`.
        retry_seconds: how long a call is tried, in seconds.
        security: TLS and credentials.
        read_from: which replicas of a shard messages are read from: a ReadFrom by its name.

    Raises:
        OptionError: they cannot be used on this machine.
    """

    def __init__(
        self, endpoint: str, retry_seconds: float, security: SecurityOptions = NO_SECURITY, read_from: str = "default"
    ) -> None:
        self.endpoint = endpoint
        self._retry_seconds = retry_seconds
        self._read = pb.ReadChoice(read_from=ReadFrom[read_from.upper()].value)
        policy = RetryPolicy(attempt_count_max=ATTEMPT_COUNT_MAX)
        self._calls = opened(
            endpoint,
            lambda given: GatewayCalls(endpoint, security=given, timeout_seconds=retry_seconds, retry=policy),
            security,
        )

    def topics(self) -> Iterator[pb.ListTopicsResponse.Topic]:
        """Every topic with the queues of all shards."""
        request = pb.ListTopicsRequest(page_size=PAGE_COUNT_MAX)
        while True:
            response = self._whole("ListTopics", request)
            yield from response.topics
            if not response.next_page_token:
                return
            request.page_token = response.next_page_token

    def search_offset(self, key: QueueKey, time_millis: int) -> int:
        """The first queue offset stored at or after the time (milliseconds since 1970 UTC); without one, the queue's end."""
        request = pb.SearchOffsetRequest(
            topic=key.topic,
            queue_id=key.queue_id,
            broker_name=key.broker_name,
            time=Timestamp(seconds=time_millis // 1000, nanos=time_millis % 1000 * 1_000_000),
        )
        return int(self._whole("SearchOffset", request).queue_offset)

    def messages(self, key: QueueKey, queue_offset: int, count: int) -> pb.QueryMessageByOffsetResponse:
        """Messages of a queue from a queue offset on, as many as one page holds.

        The page is whole up to its own end, also when its completeness is PARTIAL: then the queue may have more messages.
        """
        request = pb.QueryMessageByOffsetRequest(
            topic=key.topic,
            queue_id=key.queue_id,
            queue_offset=queue_offset,
            broker_name=key.broker_name,
            max_messages=min(count, PAGE_COUNT_MAX),
            read=self._read,
        )
        response: pb.QueryMessageByOffsetResponse = self._call("QueryMessageByOffset", request)
        return response

    def messages_or_end(self, key: QueueKey, queue_offset: int, count: int) -> pb.QueryMessageByOffsetResponse:
        """As `messages`, but an empty page is returned only once the queue is built: it then means the end.

        Raises:
            PartialAnswerError: the queue was not built within `retry_seconds`.
        """

        def ask() -> pb.QueryMessageByOffsetResponse:
            response = self.messages(key, queue_offset, count)
            if not response.messages and response.next_queue_offset <= queue_offset:
                _require_whole(response)
            return response

        return self._until_whole(ask)

    def pulled(
        self, key: QueueKey, queue_offset: int, wanted: pb.MessageFilter | None = None, *, as_records: bool = False
    ) -> Iterator[pb.PullMessagesResponse]:
        """Batches of a queue from a queue offset on, to its end, by one call that is not sent again; only `wanted` messages.

        With `as_records` a batch may have records instead.

        It ends with DEADLINE_EXCEEDED after `retry_seconds`, which are for all batches.
        """
        request = pb.PullMessagesRequest(
            topic=key.topic,
            queue_id=key.queue_id,
            queue_offset=queue_offset,
            broker_name=key.broker_name,
            max_messages=PAGE_COUNT_MAX,
            max_bytes=PULL_BYTES,
            filter=wanted,
            read=self._read,
            as_records=as_records,
        )
        return self._calls.stream("PullMessages", request, self._retry_seconds)

    def check_filter(self, key: QueueKey, queue_offset: int, wanted: pb.MessageFilter) -> None:
        """Asks once whether the shard takes a filter; `queue_offset` is best the queue's end.

        Raises:
            IllegalFilterError: it does not.
        """
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type((UnavailableError, BusyError)),
            stop=tenacity.stop_after_delay(self._retry_seconds),
            wait=tenacity.wait_fixed(PARTIAL_PAUSE_SECONDS),
            reraise=True,
        )
        self._tried(lambda: retrying(lambda: next(self.pulled(key, queue_offset, wanted), None)))

    def body(self, message: message_pb2.StoredMessage) -> bytes:
        """The stored body of a message, downloaded because its page had no room for it."""
        request = pb.DownloadBodyRequest(
            offset_msg_id=message.offset_msg_id, broker_name=message.broker_name, read=self._read
        )
        return self._tried(lambda: self._calls.download(request))

    def commit_offsets(self, consumer_group: str, positions: Mapping[QueueKey, int], *, begins: bool = False) -> None:
        """Sets positions of a consumer group; makes the group if it is absent. They are in the log when this returns.

        With `begins` the group begins there: positions that it has are kept.
        """
        rows = [
            pb.QueuePosition(
                topic=key.topic, queue_id=key.queue_id, broker_name=key.broker_name, consumer_offset=position
            )
            for key, position in sorted(positions.items())
        ]
        for begin in range(0, len(rows), POSITION_COUNT_MAX):
            part = rows[begin : begin + POSITION_COUNT_MAX]
            request = pb.CommitOffsetsRequest(consumer_group=consumer_group, positions=part, begins=begins)
            self._call("CommitOffsets", request)

    def broker_names(self) -> tuple[str, ...]:
        """The shards behind it."""
        response = self._call("GetStatus", pb.GetStatusRequest())
        return tuple(sorted({row.broker_name for row in response.services}))

    def close(self) -> None:
        """Closes the connection."""
        self._calls.close()

    def __enter__(self) -> "Gateway":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _whole(self, method: str, request: Any) -> Any:
        def ask() -> Any:
            response = self._call(method, request)
            _require_whole(response)
            return response

        return self._until_whole(ask)

    def _until_whole(self, ask: Callable[[], Answer]) -> Answer:
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(PartialAnswerError),
            stop=tenacity.stop_after_delay(self._retry_seconds),
            wait=tenacity.wait_fixed(PARTIAL_PAUSE_SECONDS),
            reraise=True,
        )
        return retrying(ask)

    def _call(self, method: str, request: Any) -> Any:
        return self._tried(lambda: self._calls.call(method, request))

    def _tried(self, call: Callable[[], Answer]) -> Answer:
        try:
            return call()
        except (UnavailableError, BusyError) as error:
            raise type(error)(
                f"The gateway {self.endpoint} was tried for {self._retry_seconds:g} s (option retrySeconds) without success: "
                f"{error.message}",
                code=error.code,
                reason=error.reason,
                metadata={**error.metadata, "endpoint": self.endpoint},
            ) from error


class Gateways:
    """The gateways of a query; each has shards of its own.

    Args:
        endpoints: their addresses.
        retry_seconds: how long a call is tried, in seconds.
        security: TLS and credentials, the same for all.
    """

    def __init__(self, endpoints: Sequence[str], retry_seconds: float, security: SecurityOptions = NO_SECURITY) -> None:
        self._gateways = {endpoint: Gateway(endpoint, retry_seconds, security) for endpoint in endpoints}

    def __getitem__(self, endpoint: str) -> Gateway:
        return self._gateways[endpoint]

    def queue_ranges(self) -> dict[QueueKey, HeldRange]:
        """All queues of all shards, with the queue offsets that they hold now.

        Raises:
            ShardConflictError: two gateways have a shard of the same name.
        """
        ranges: dict[QueueKey, HeldRange] = {}
        endpoint_by_broker: dict[str, str] = {}
        for endpoint, gateway in self._gateways.items():
            for row in gateway.topics():
                for queue in row.queues:
                    other = endpoint_by_broker.setdefault(queue.broker_name, endpoint)
                    if other != endpoint:
                        raise ShardConflictError(
                            f"The gateways {other} and {endpoint} both have a shard {queue.broker_name!r}. Give one "
                            "gateway for each shard, and different shards different names (REPUT_BROKER_NAME).",
                            [queue.broker_name],
                        )
                    key = QueueKey(row.topic, queue.broker_name, queue.queue_id)
                    ranges[key] = HeldRange(endpoint, queue.min_offset, queue.max_offset)
        return ranges

    def close(self) -> None:
        """Closes the connections."""
        for gateway in self._gateways.values():
            gateway.close()

    def __enter__(self) -> "Gateways":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _require_whole(response: Any) -> None:
    if response.completeness == message_pb2.COMPLETENESS_PARTIAL:
        raise partial_answer(shards_of(getattr(response, "shards", ())))
