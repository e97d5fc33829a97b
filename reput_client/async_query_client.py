"""`AsyncQueryClient`: finds messages again, under asyncio."""

from collections.abc import AsyncIterator, Callable, Coroutine
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

import grpc

from reput.gateway.v1 import gateway_service_pb2 as pb
from reput_client import queries
from reput_client.answers import Completeness, Page
from reput_client.channel import SERVICE, open_async_channel
from reput_client.message import Message
from reput_client.question import Cursor, Progress, Question, as_method
from reput_client.retry import RetryPolicy, acall_with_retries
from reput_client.security import ClientSecurity

Item = TypeVar("Item")
Answer = TypeVar("Answer")
Given = ParamSpec("Given")


def _paged(
    question: Callable[Given, Cursor[Item]],
) -> "Callable[Concatenate[AsyncQueryClient, Given], AsyncPages[Item]]":
    def ask(self: "AsyncQueryClient", /, *args: Given.args, **named: Given.kwargs) -> "AsyncPages[Item]":
        return AsyncPages(self, question(*args, **named), require_complete=self._require_complete)

    return as_method(ask, question)


def _answered(
    question: Callable[Given, Question[Answer]],
) -> "Callable[Concatenate[AsyncQueryClient, Given], Coroutine[Any, Any, Answer]]":
    async def ask(self: "AsyncQueryClient", /, *args: Given.args, **named: Given.kwargs) -> Answer:
        asked = question(*args, **named)
        response = await self._call(asked.method, asked.request)
        return asked.take(response, require_complete=self._require_complete)

    return as_method(ask, question)


class AsyncQueryClient:
    """Asks a gateway; for the tasks of one event loop.

        async with AsyncQueryClient("127.0.0.1:8081") as client:
            orders = client.by_key("Orders", "order-1001")
            async for message in orders:
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
        channel: grpc.aio.Channel | None = None,
        security: ClientSecurity | None = None,
        timeout_seconds: float = 30.0,
        require_complete: bool = False,
        retry: RetryPolicy | None = None,
    ) -> None:
        self.target = target
        self._owns_channel = channel is None
        self._channel = channel or open_async_channel(target, security)
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

    # The questions, their arguments and what they answer stand in queries.py.
    by_key = _paged(queries.by_key)
    by_unique_key = _paged(queries.by_unique_key)
    by_id = _answered(queries.by_id)
    by_offset = _paged(queries.by_offset)
    find = _paged(queries.find)
    search = _paged(queries.search)
    explain = _answered(queries.explain)
    search_offset = _answered(queries.search_offset)
    topics = _paged(queries.topics)
    status = _answered(queries.status)

    async def download_body(self, message: Message | str, *, broker_name: str = "") -> bytes:
        """The stored body of a message, or of the one with that offsetMsgId; compressed if it was stored so."""
        request = queries.download(message, broker_name)

        async def download(seconds: float) -> bytes:
            return b"".join([response.chunk async for response in self._download(request, timeout=seconds)])

        return await acall_with_retries(download, self._timeout_seconds, self._retry)

    async def close(self) -> None:
        """Let go of the channel."""
        if self._owns_channel:
            await self._channel.close()

    async def __aenter__(self) -> "AsyncQueryClient":
        return self

    async def __aexit__(
        self, error_class: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"AsyncQueryClient({self.target!r})"

    async def _call(self, method: str, request: Any) -> Any:
        stub = self._methods[method]
        return await acall_with_retries(
            lambda seconds: stub(request, timeout=seconds), self._timeout_seconds, self._retry
        )


class AsyncPages(Generic[Item]):
    """Items over all pages, each page asked for when it is needed; to be run over once, by one task.

    Iterating gives items, `pages()` gives `Page`s; both go on where the other stopped, at the next page.

    Args:
        client: who asks.
        cursor: what is asked.
        require_complete: a PARTIAL page is an error.
    """

    def __init__(self, client: AsyncQueryClient, cursor: Cursor[Item], *, require_complete: bool) -> None:
        self._client = client
        self._cursor = cursor
        self._progress = Progress(require_complete=require_complete)

    @property
    def completeness(self) -> Completeness:
        """Of what was seen: TRUNCATED until the last page, then COMPLETE; PARTIAL once any page was."""
        return self._progress.completeness

    async def pages(self) -> AsyncIterator[Page[Item]]:
        """Page after page.

        Raises:
            PartialAnswerError: a page is PARTIAL, and `require_complete` was asked for.
        """
        while (asked := self._cursor.next_request()) is not None:
            page = self._cursor.take(await self._client._call(*asked))
            self._progress.see(page, has_more=self._cursor.next_request() is not None)
            yield page

    async def __aiter__(self) -> AsyncIterator[Item]:
        async for page in self.pages():
            for item in page.items:
                yield item
