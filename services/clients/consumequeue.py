"""Typed client of the consumequeue service: errors arrive as the classes that the service raised."""

import grpc

from reput.consumequeue.v1 import consumequeue_service_pb2 as pb
from reput.consumequeue.v1 import consumequeue_service_pb2_grpc as pb_grpc
from services import convert, retry
from services.channel import open_channel
from services.clients.lookups import LookupClient
from services.deadline import SECONDS_DEFAULT
from services.lookup_calls import Lookup
from services.tls import TlsIdentity

SERVICE = "consumequeue"
PAGE_SIZE = 1_000


class ConsumeQueueClient:
    """Calls one consumequeue service.

    Args:
        target: `HOST:PORT` or `unix:/path`.
        channel: a channel to use instead of an own one; everything goes over it then.
        tls: our certificate for the own channel; None: no TLS.
    """

    def __init__(self, target: str, channel: grpc.Channel | None = None, tls: TlsIdentity | None = None) -> None:
        self.target = target
        self.channel = channel or open_channel(target, tls)
        self._stub = pb_grpc.ConsumeQueueServiceStub(self.channel)
        self._lookups = LookupClient(target if channel is None else "", SERVICE)

    def list_queues(self, topic: str = "", *, timeout_seconds: float = SECONDS_DEFAULT) -> list[pb.Queue]:
        """All queues with their ranges, by topic and number; all pages.

        Args:
            topic: only this topic's; empty = all topics.
            timeout_seconds: for each page.
        """
        queues: list[pb.Queue] = []
        page_token = ""
        while True:
            request = pb.ListQueuesRequest(topic=topic, page_size=PAGE_SIZE, page_token=page_token)
            response = self._list_queues(request, timeout_seconds)
            queues.extend(response.queues)
            page_token = response.next_page_token
            if not page_token:
                return queues

    def get_units(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        max_units: int,
        *,
        timeout_seconds: float = SECONDS_DEFAULT,
    ) -> pb.GetQueueUnitsResponse:
        """At most `max_units` units from a position on, with the queue's range; out of range is empty.

        Raises:
            TopicNotFoundError, QueueNotFoundError: there is no such queue.
        """
        request = pb.GetQueueUnitsRequest(
            topic=topic, queue_id=queue_id, queue_offset=queue_offset, max_units=max_units
        )
        return self._lookups.call(
            Lookup.GET_QUEUE_UNITS, request, pb.GetQueueUnitsResponse, self._stub.GetQueueUnits, timeout_seconds
        )

    def search_offset(
        self,
        topic: str,
        queue_id: int,
        time_millis: int,
        boundary: pb.Boundary = pb.BOUNDARY_LOWER,
        *,
        timeout_seconds: float = SECONDS_DEFAULT,
    ) -> pb.SearchOffsetResponse:
        """The position for a store time in milliseconds, exact.

        Raises:
            TopicNotFoundError, QueueNotFoundError: there is no such queue.
        """
        request = pb.SearchOffsetRequest(
            topic=topic, queue_id=queue_id, time=convert.millis_to_timestamp(time_millis), boundary=boundary
        )
        return retry.call_idempotent(
            lambda seconds: self._stub.SearchOffset(request, timeout=seconds), timeout_seconds, SERVICE
        )

    def get_status(
        self, *, past_offset: int | None = None, wait_millis: int = 0, timeout_seconds: float = SECONDS_DEFAULT
    ) -> pb.GetStatusResponse:
        """Progress and counts; arguments as those of the index client."""
        request = pb.GetStatusRequest(past_offset=past_offset, wait_millis=wait_millis)
        return retry.call_idempotent(
            lambda seconds: self._stub.GetStatus(request, timeout=seconds), timeout_seconds, SERVICE
        )

    def close(self) -> None:
        """Close the channel; running calls end with ServiceUnavailableError."""
        self._lookups.close()
        self.channel.close()

    def _list_queues(self, request: pb.ListQueuesRequest, timeout_seconds: float) -> pb.ListQueuesResponse:
        return retry.call_idempotent(
            lambda seconds: self._stub.ListQueues(request, timeout=seconds), timeout_seconds, SERVICE
        )
