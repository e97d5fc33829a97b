"""`QueryClient`: finds messages again."""

from collections.abc import Iterator
from datetime import datetime
from types import TracebackType
from typing import Any, Generic, TypeVar

import grpc

from reput.gateway.v1 import gateway_service_pb2 as pb
from reput_client import queries
from reput_client.answers import (
    Boundary,
    Completeness,
    Cursor,
    FoundOffset,
    Page,
    Progress,
    ServiceStatus,
    Topic,
    found_offset_of,
    partial_answer,
    shards_of,
    statuses_of,
)
from reput_client.channel import SERVICE, open_channel
from reput_client.message import Message, message_of
from reput_client.retry import RetryPolicy, call_with_retries
from reput_client.security import ClientSecurity

Item = TypeVar("Item")


class QueryClient:
    """Asks a gateway; for any number of threads.

        with QueryClient("127.0.0.1:8081") as client:
            orders = client.by_key("Orders", "order-1001")
            for message in orders:
                print(message.store_time, message.body)
            print(orders.completeness)

    Calls are tried again when the gateway is not reached, not ready or busy, within `timeout_seconds`.

    Args:
        target: the gateway, `HOST:PORT`.
        channel: used instead of one of its own; `close` leaves it open.
        security: for its own channel: TLS, and who calls.
        timeout_seconds: of a call with all its attempts; a run over pages has it for each page.
        require_complete: an answer that is PARTIAL is raised as PartialAnswerError.
        retry: how often and how fast.
    """

    def __init__(
        self,
        target: str = "127.0.0.1:8081",
        *,
        channel: grpc.Channel | None = None,
        security: ClientSecurity | None = None,
        timeout_seconds: float = 30.0,
        require_complete: bool = False,
        retry: RetryPolicy | None = None,
    ) -> None:
        self.target = target
        self._owns_channel = channel is None
        self._channel = channel or open_channel(target, security)
        self._timeout_seconds = timeout_seconds
        self._require_complete = require_complete
        self._retry = retry or RetryPolicy()
        self._methods: dict[str, Any] = {
            name: self._channel.unary_unary(
                SERVICE + name,
                request_serializer=lambda request: request.SerializeToString(),
                response_deserializer=response.FromString,
            )
            for name, response in queries.RESPONSES.items()
        }
        self._download = self._channel.unary_stream(
            SERVICE + "DownloadBody",
            request_serializer=pb.DownloadBodyRequest.SerializeToString,
            response_deserializer=pb.DownloadBodyResponse.FromString,
        )

    def by_key(
        self,
        topic: str,
        key: str,
        begin: datetime | None = None,
        end: datetime | None = None,
        page_size: int = queries.PAGE_SIZE_DEFAULT,
        after: queries.After = (),
    ) -> "Pages[Message]":
        """Messages by business key, newest first.

        Args:
            topic: the topic.
            key: one business key, whole.
            begin: stored at or after, with a time zone.
            end: stored at or before, with a time zone.
            page_size: messages asked for at once, 1 to 1,000.
            after: receipts of messages that the answer must know of, or their freshness tokens; here and in the other
                queries. They are waited for, as long as the call may take; what is not there by then makes the answer
                PARTIAL.
        """
        return self._pages(queries.by_key(topic, key, begin, end, page_size, after))

    def by_unique_key(
        self, topic: str, unique_key: str, page_size: int = queries.PAGE_SIZE_DEFAULT, after: queries.After = ()
    ) -> "Pages[Message]":
        """Every copy of a message by its producer's id, newest first."""
        return self._pages(queries.by_unique_key(topic, unique_key, page_size, after))

    def by_id(self, offset_msg_id: str, *, topic: str = "", broker_name: str = "") -> Message:
        """The message that an offsetMsgId names; with a topic, it must be of that one.

        Raises:
            RecordNotFoundError: there is none.
        """
        response = self._call("QueryMessageById", queries.by_id(offset_msg_id, topic, broker_name))
        return message_of(response.message)

    def by_offset(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int = 0,
        broker_name: str = "",
        max_messages: int | None = None,
        page_size: int = queries.PAGE_SIZE_DEFAULT,
        after: queries.After = (),
    ) -> "Pages[Message]":
        """Messages in queue order from a position on, to the end of the queue or for `max_messages`.

        Positions before the queue's begin are skipped: retention took them.
        """
        return self._pages(
            queries.by_offset(topic, queue_id, queue_offset, broker_name, max_messages, page_size, after)
        )

    def search_offset(
        self,
        topic: str,
        queue_id: int,
        time: datetime,
        boundary: Boundary = Boundary.LOWER,
        broker_name: str = "",
        after: queries.After = (),
    ) -> FoundOffset:
        """The position of a queue for a store time, and the queue's range and time span."""
        request = queries.search_offset(topic, queue_id, time, boundary, broker_name, after)
        response = self._call("SearchOffset", request)
        found = found_offset_of(response)
        if self._require_complete and found.completeness is Completeness.PARTIAL:
            raise partial_answer(shards_of(response.shards))
        return found

    def topics(self, page_size: int = queries.PAGE_SIZE_DEFAULT) -> "Pages[Topic]":
        """All topics with their queues and ranges."""
        return self._pages(queries.topics(page_size))

    def status(self) -> tuple[ServiceStatus, ...]:
        """The state of every service of every shard."""
        return statuses_of(self._call("GetStatus", pb.GetStatusRequest()))

    def download_body(self, message: Message | str, *, broker_name: str = "") -> bytes:
        """The stored body of a message, or of the one with that offsetMsgId; compressed if it was stored so."""
        request = queries.download(message, broker_name)

        def download(seconds: float) -> bytes:
            return b"".join(response.chunk for response in self._download(request, timeout=seconds))

        return call_with_retries(download, self._timeout_seconds, self._retry)

    def close(self) -> None:
        """Let go of the channel."""
        if self._owns_channel:
            self._channel.close()

    def __enter__(self) -> "QueryClient":
        return self

    def __exit__(
        self, error_class: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"QueryClient({self.target!r})"

    def _pages(self, cursor: Cursor[Item]) -> "Pages[Item]":
        return Pages(self, cursor, require_complete=self._require_complete)

    def _call(self, method: str, request: Any) -> Any:
        stub = self._methods[method]
        return call_with_retries(lambda seconds: stub(request, timeout=seconds), self._timeout_seconds, self._retry)


class Pages(Generic[Item]):
    """Items over all pages, each page asked for when it is needed; to be run over once, by one thread.

    Iterating gives items, `pages()` gives `Page`s; both go on where the other stopped, at the next page.

    Args:
        client: who asks.
        cursor: what is asked.
        require_complete: a PARTIAL page is an error.
    """

    def __init__(self, client: QueryClient, cursor: Cursor[Item], *, require_complete: bool) -> None:
        self._client = client
        self._cursor = cursor
        self._progress = Progress(require_complete=require_complete)

    @property
    def completeness(self) -> Completeness:
        """Of what was seen: TRUNCATED until the last page, then COMPLETE; PARTIAL once any page was."""
        return self._progress.completeness

    def pages(self) -> Iterator[Page[Item]]:
        """Page after page.

        Raises:
            PartialAnswerError: a page is PARTIAL, and `require_complete` was asked for.
        """
        while (asked := self._cursor.next_request()) is not None:
            page = self._cursor.take(self._client._call(*asked))
            self._progress.see(page, has_more=self._cursor.next_request() is not None)
            yield page

    def __iter__(self) -> Iterator[Item]:
        for page in self.pages():
            yield from page.items
