"""Typed client of the index service: errors arrive as the classes that the service raised."""

import grpc

from reput.index.v1 import index_service_pb2 as pb
from reput.index.v1 import index_service_pb2_grpc as pb_grpc
from services import convert, retry
from services.channel import open_channel
from services.clients.lookups import LookupClient
from services.deadline import SECONDS_DEFAULT
from services.lookup_calls import Lookup

SERVICE = "index"


class IndexClient:
    """Calls one index service.

    Args:
        target: `HOST:PORT` or `unix:/path`.
        channel: a channel to use instead of an own one; everything goes over it then.
    """

    def __init__(self, target: str, channel: grpc.Channel | None = None) -> None:
        self.target = target
        self.channel = channel or open_channel(target)
        self._stub = pb_grpc.IndexServiceStub(self.channel)
        self._lookups = LookupClient(target if channel is None else "", SERVICE)

    def search_key(
        self,
        topic: str,
        key: str,
        *,
        begin_time_millis: int | None = None,
        end_time_millis: int | None = None,
        page_size: int = 0,
        page_token: str = "",
        timeout_seconds: float = SECONDS_DEFAULT,
    ) -> pb.SearchKeyResponse:
        """One page of candidate offsets, newest first; the caller compares topic and key in the log.

        Args:
            topic: the topic.
            key: a business key or a unique key, whole.
            begin_time_millis: lower end of the store time, inclusive; None = no limit. Candidates may lie a second
                outside.
            end_time_millis: upper end, likewise.
            page_size: 0 = 64, at most 1,000.
            page_token: from the page before; a commit-log offset in decimal, only smaller ones follow.
            timeout_seconds: for all attempts together.
        """
        request = pb.SearchKeyRequest(topic=topic, key=key, page_size=page_size, page_token=page_token)
        if begin_time_millis is not None:
            request.begin_time.CopyFrom(convert.millis_to_timestamp(begin_time_millis))
        if end_time_millis is not None:
            request.end_time.CopyFrom(convert.millis_to_timestamp(end_time_millis))
        return self._lookups.call(
            Lookup.SEARCH_KEY, request, pb.SearchKeyResponse, self._stub.SearchKey, timeout_seconds
        )

    def get_status(self, *, timeout_seconds: float = SECONDS_DEFAULT) -> pb.GetStatusResponse:
        """Progress and counts."""
        return retry.call_idempotent(
            lambda seconds: self._stub.GetStatus(pb.GetStatusRequest(), timeout=seconds), timeout_seconds, SERVICE
        )

    def close(self) -> None:
        """Close the channel; running calls end with ServiceUnavailableError."""
        self._lookups.close()
        self.channel.close()
