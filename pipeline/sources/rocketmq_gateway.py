"""The gateways that a query reads through: which queues there are, and what they hold.

Every call is tried again while a gateway is not reached, not ready or too busy, for `retry_seconds`; then its error goes
up. An answer that lacks a shard, or queues that are still being built, counts as not ready: half an answer would pass
for an empty queue.

An object of these holds a connection: it belongs to one process and is never pickled.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import tenacity
from google.protobuf.timestamp_pb2 import Timestamp

from pipeline.sources.rocketmq_errors import ShardConflictError
from pipeline.sources.rocketmq_positions import QueueKey
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2
from reput_client import BusyError, PartialAnswerError, RetryPolicy, UnavailableError
from reput_client.answers import partial_answer, shards_of
from reput_client.channel import SERVICE, open_channel
from reput_client.queries import RESPONSES
from reput_client.retry import call_with_retries

PAGE_COUNT_MAX = 1000  # the gateway's own limit, for messages and for topics
# Time ends the attempts, not their number.
ATTEMPT_COUNT_MAX = 1_000_000
PARTIAL_PAUSE_SECONDS = 0.1

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class QueueRange:
    """What a queue holds: `[min_offset, max_offset)`, in messages, and the gateway that says so."""

    endpoint: str
    min_offset: int
    max_offset: int


class Gateway:
    """One gateway.

    Args:
        endpoint: `HOST:PORT` or `unix:/path`.
        retry_seconds: how long a call is tried.
    """

    def __init__(self, endpoint: str, retry_seconds: float) -> None:
        self.endpoint = endpoint
        self._retry_seconds = retry_seconds
        self._policy = RetryPolicy(attempt_count_max=ATTEMPT_COUNT_MAX)
        self._channel = open_channel(endpoint)
        self._stubs: dict[str, Any] = {
            name: self._channel.unary_unary(
                SERVICE + name,
                request_serializer=lambda request: request.SerializeToString(),
                response_deserializer=response.FromString,
            )
            for name, response in RESPONSES.items()
        }
        self._download = self._channel.unary_stream(
            SERVICE + "DownloadBody",
            request_serializer=pb.DownloadBodyRequest.SerializeToString,
            response_deserializer=pb.DownloadBodyResponse.FromString,
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
        """The first position stored at or after the time; the end of the queue when there is none."""
        request = pb.SearchOffsetRequest(
            topic=key.topic,
            queue_id=key.queue_id,
            broker_name=key.broker_name,
            time=Timestamp(seconds=time_millis // 1000, nanos=time_millis % 1000 * 1_000_000),
        )
        return int(self._whole("SearchOffset", request).queue_offset)

    def messages(self, key: QueueKey, queue_offset: int, count: int) -> pb.QueryMessageByOffsetResponse:
        """Messages of a queue from a position on, as many as one page holds.

        It is whole up to its end, whatever its completeness: PARTIAL says that the queue may have more by now.
        """
        request = pb.QueryMessageByOffsetRequest(
            topic=key.topic,
            queue_id=key.queue_id,
            queue_offset=queue_offset,
            broker_name=key.broker_name,
            max_messages=min(count, PAGE_COUNT_MAX),
        )
        response: pb.QueryMessageByOffsetResponse = self._call("QueryMessageByOffset", request)
        return response

    def messages_or_end(self, key: QueueKey, queue_offset: int, count: int) -> pb.QueryMessageByOffsetResponse:
        """The same, but an empty page is given only once the queue is built: it is then surely the end.

        Raises:
            PartialAnswerError: the queue was not built within `retry_seconds`.
        """

        def ask() -> pb.QueryMessageByOffsetResponse:
            response = self.messages(key, queue_offset, count)
            if not response.messages and response.next_queue_offset <= queue_offset:
                _require_whole(response)
            return response

        return self._until_whole(ask)

    def body(self, message: message_pb2.StoredMessage) -> bytes:
        """The stored body of a message whose page had no room for it."""
        request = pb.DownloadBodyRequest(offset_msg_id=message.offset_msg_id, broker_name=message.broker_name)
        return self._tried(lambda left: b"".join(part.chunk for part in self._download(request, timeout=left)))

    def broker_names(self) -> tuple[str, ...]:
        """The shards behind it."""
        response = self._call("GetStatus", pb.GetStatusRequest())
        return tuple(sorted({row.broker_name for row in response.services}))

    def close(self) -> None:
        """Let go of the connection."""
        self._channel.close()

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
        stub = self._stubs[method]
        return self._tried(lambda left: stub(request, timeout=left))

    def _tried(self, call: Callable[[float], Answer]) -> Answer:
        try:
            return call_with_retries(call, self._retry_seconds, self._policy)
        except (UnavailableError, BusyError) as error:
            raise type(error)(
                f"The gateway {self.endpoint} was tried for {self._retry_seconds:g} s (option retrySeconds): "
                f"{error.message}",
                code=error.code,
                metadata={**error.metadata, "endpoint": self.endpoint},
            ) from error


class Gateways:
    """The gateways of a query, each of shards of its own.

    Args:
        endpoints: where they are.
        retry_seconds: how long a call is tried.
    """

    def __init__(self, endpoints: Sequence[str], retry_seconds: float) -> None:
        self._gateways = {endpoint: Gateway(endpoint, retry_seconds) for endpoint in endpoints}

    def __getitem__(self, endpoint: str) -> Gateway:
        return self._gateways[endpoint]

    def queue_ranges(self) -> dict[QueueKey, QueueRange]:
        """All queues of all shards, with what they hold now.

        Raises:
            ShardConflictError: two gateways have a shard of one name.
        """
        ranges: dict[QueueKey, QueueRange] = {}
        endpoint_by_broker: dict[str, str] = {}
        for endpoint, gateway in self._gateways.items():
            for row in gateway.topics():
                for queue in row.queues:
                    other = endpoint_by_broker.setdefault(queue.broker_name, endpoint)
                    if other != endpoint:
                        raise ShardConflictError(
                            f"The gateways {other} and {endpoint} both have a shard {queue.broker_name!r}. Give one "
                            "gateway for each shard; different shards need names of their own (REPUT_BROKER_NAME).",
                            [queue.broker_name],
                        )
                    key = QueueKey(row.topic, queue.broker_name, queue.queue_id)
                    ranges[key] = QueueRange(endpoint, queue.min_offset, queue.max_offset)
        return ranges

    def close(self) -> None:
        """Let go of the connections."""
        for gateway in self._gateways.values():
            gateway.close()

    def __enter__(self) -> "Gateways":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _require_whole(response: Any) -> None:
    if response.completeness == message_pb2.COMPLETENESS_PARTIAL:
        raise partial_answer(shards_of(getattr(response, "shards", ())))
