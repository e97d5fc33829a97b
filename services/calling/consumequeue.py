"""Typed client of the consumequeue service; errors are raised as the classes that the service raised."""

from typing import Any

import grpc

from reput.consumequeue.v1 import consumequeue_service_pb2 as pb
from reput.consumequeue.v1 import consumequeue_service_pb2_grpc as pb_grpc
from services import convert, retry
from services.calling.channel import open_channel
from services.local.client import LocalClient
from services.local.lookups import call_lookup
from services.local.wire import LOOKUPS, LocalMethod
from services.serving.deadline import SECONDS_DEFAULT
from services.serving.tls import TlsIdentity

SERVICE = "consumequeue"
PAGE_SIZE = 1_000


class ConsumeQueueClient:
    """Calls one consumequeue service.

    Args:
        target: `HOST:PORT` or `unix:/path`.
        channel: used for all calls instead of a channel and sockets of its own.
        tls: our certificate for its own channel; None: no TLS.
    """

    def __init__(self, target: str, channel: grpc.Channel | None = None, tls: TlsIdentity | None = None) -> None:
        self.target = target
        self.channel = channel or open_channel(target, tls)
        self._stub: Any = pb_grpc.ConsumeQueueServiceStub(self.channel)
        self._local = LocalClient(LOOKUPS, target if channel is None else "", SERVICE)

    def list_queues(self, topic: str = "", *, timeout_seconds: float = SECONDS_DEFAULT) -> list[pb.Queue]:
        """All queues with their ranges, by topic and number, from all pages.

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
        packed: bool = False,
        log_first_offset: int = 0,
        timeout_seconds: float = SECONDS_DEFAULT,
    ) -> pb.GetQueueUnitsResponse:
        """At most `max_units` units from a position on, with the queue's range; none when it is out of range.

        With `packed` they may come as `packed_units`. Units of records before `log_first_offset` are as removed ones.

        Raises:
            TopicNotFoundError, QueueNotFoundError: there is no such queue.
        """
        request = pb.GetQueueUnitsRequest(
            topic=topic,
            queue_id=queue_id,
            queue_offset=queue_offset,
            max_units=max_units,
            packed=packed,
            log_first_offset=log_first_offset,
        )
        return call_lookup(
            self._local,
            LocalMethod.GET_QUEUE_UNITS,
            request,
            pb.GetQueueUnitsResponse,
            self._stub.GetQueueUnits,
            timeout_seconds,
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
        response: pb.SearchOffsetResponse = retry.call_idempotent(
            lambda seconds: self._stub.SearchOffset(request, timeout=seconds), timeout_seconds, SERVICE
        )
        return response

    def get_status(
        self, *, past_offset: int | None = None, wait_millis: int = 0, timeout_seconds: float = SECONDS_DEFAULT
    ) -> pb.GetStatusResponse:
        """Progress and counts; arguments as IndexClient.get_status."""
        request = pb.GetStatusRequest(past_offset=past_offset, wait_millis=wait_millis)
        response: pb.GetStatusResponse = retry.call_idempotent(
            lambda seconds: self._stub.GetStatus(request, timeout=seconds), timeout_seconds, SERVICE
        )
        return response

    def close(self) -> None:
        """Close the channel; running calls end with ServiceUnavailableError."""
        self._local.close()
        self.channel.close()

    def _list_queues(self, request: pb.ListQueuesRequest, timeout_seconds: float) -> pb.ListQueuesResponse:
        response: pb.ListQueuesResponse = retry.call_idempotent(
            lambda seconds: self._stub.ListQueues(request, timeout=seconds), timeout_seconds, SERVICE
        )
        return response
