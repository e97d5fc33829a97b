"""Typed client of the index service; errors are raised as the classes that the service raised."""

from typing import Any

import grpc

from reput.index.v1 import index_service_pb2 as pb
from reput.index.v1 import index_service_pb2_grpc as pb_grpc
from services import convert, retry
from services.calling.channel import open_channel
from services.local.client import LocalClient
from services.local.lookups import call_lookup
from services.local.wire import LOOKUPS, LocalMethod
from services.serving.deadline import SECONDS_DEFAULT
from services.serving.tls import TlsIdentity

SERVICE = "index"


class IndexClient:
    """Calls one index service.

    Args:
        target: `HOST:PORT` or `unix:/path`.
        channel: used for all calls instead of a channel and sockets of its own.
        tls: our certificate for its own channel; None: no TLS.
    """

    def __init__(self, target: str, channel: grpc.Channel | None = None, tls: TlsIdentity | None = None) -> None:
        self.target = target
        self.channel = channel or open_channel(target, tls)
        self._stub: Any = pb_grpc.IndexServiceStub(self.channel)
        self._local = LocalClient(LOOKUPS, target if channel is None else "", SERVICE)

    def search_key(
        self,
        topic: str,
        key: str,
        *,
        begin_time_millis: int | None = None,
        end_time_millis: int | None = None,
        page_size: int = 0,
        page_token: str = "",
        explain: bool = False,
        summarize: bool = False,
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
            explain: also answer how the candidates were found.
            summarize: also answer what times and keys the index holds.
            timeout_seconds: for all attempts together.
        """
        request = pb.SearchKeyRequest(
            topic=topic, key=key, page_size=page_size, page_token=page_token, explain=explain, summarize=summarize
        )
        if begin_time_millis is not None:
            request.begin_time.CopyFrom(convert.millis_to_timestamp(begin_time_millis))
        if end_time_millis is not None:
            request.end_time.CopyFrom(convert.millis_to_timestamp(end_time_millis))
        return call_lookup(
            self._local, LocalMethod.SEARCH_KEY, request, pb.SearchKeyResponse, self._stub.SearchKey, timeout_seconds
        )

    def get_filter_pages(
        self, name: str, header_crc: int, first_page: int, *, timeout_seconds: float = SECONDS_DEFAULT
    ) -> bytes:
        """Pages of a key filter from a page on (the first is 1), checked by the service; none after the last.

        Raises:
            RecordNotFoundError: the index file of that name is gone, is another file, or has no summary now.
        """
        request = pb.GetFilterPagesRequest(name=name, header_crc=header_crc, first_page=first_page)
        response: pb.GetFilterPagesResponse = retry.call_idempotent(
            lambda seconds: self._stub.GetFilterPages(request, timeout=seconds), timeout_seconds, SERVICE
        )
        return bytes(response.pages)

    def get_status(
        self, *, past_offset: int | None = None, wait_millis: int = 0, timeout_seconds: float = SECONDS_DEFAULT
    ) -> pb.GetStatusResponse:
        """Progress and counts.

        Args:
            past_offset: answer, without counts, once the record that starts there (bytes of the log) is indexed.
            wait_millis: answer after so long at the latest.
            timeout_seconds: for all attempts together.
        """
        request = pb.GetStatusRequest(past_offset=past_offset, wait_millis=wait_millis)
        response: pb.GetStatusResponse = retry.call_idempotent(
            lambda seconds: self._stub.GetStatus(request, timeout=seconds), timeout_seconds, SERVICE
        )
        return response

    def close(self) -> None:
        """Close the channel; running calls end with ServiceUnavailableError."""
        self._local.close()
        self.channel.close()
