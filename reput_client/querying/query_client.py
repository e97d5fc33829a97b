"""`QueryClient` and `AsyncQueryClient`: find messages. The queries stand in one table, `_QueryCore`, for both."""

import dataclasses
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, overload

import grpc

from reput_client.arguments import naming_wrong_arguments
from reput_client.calls import ADDRESS_DEFAULT, TIMEOUT_SECONDS_DEFAULT, AsyncGatewayCalls, CallCore, GatewayCalls
from reput_client.errors import NotFoundError, OffsetOutOfRangeError
from reput_client.querying import groups, queries, tenants, waiting
from reput_client.querying.answers import Completeness, Match, Page
from reput_client.querying.message import Message
from reput_client.querying.question import Cursor, Progress, Question, ReadChoice, as_method, choose
from reput_client.retry import RetryPolicy
from reput_client.security import ClientSecurity
from reput_client.threads_and_loops import run_blocking

Item = TypeVar("Item")
Answer = TypeVar("Answer")
Given = ParamSpec("Given")


class _Query:
    """A query of the table: `_QueryCore` makes the methods of both clients of it.

    Args:
        question: makes the query of its arguments; its signature and its docstring are those of the methods.
    """

    def __init__(self, question: Callable[..., Any]) -> None:
        self.question = question
        self.make = naming_wrong_arguments(question)

    def blocking(self) -> Callable[..., Any]:
        """The method of `QueryClient`."""
        raise NotImplementedError

    def awaited(self) -> Callable[..., Any]:
        """The method of `AsyncQueryClient`."""
        raise NotImplementedError


class _Paged(_Query, Generic[Given, Item]):
    """A query whose answer has pages."""

    if TYPE_CHECKING:

        def __init__(self, question: Callable[Given, Cursor[Item]]) -> None: ...

        @overload
        def __get__(self, client: "QueryClient", owner: Any) -> "Callable[Given, Pages[Item]]": ...
        @overload
        def __get__(self, client: "AsyncQueryClient", owner: Any) -> "Callable[Given, AsyncPages[Item]]": ...
        @overload
        def __get__(self, client: None, owner: Any) -> Callable[..., Any]: ...
        def __get__(self, client: Any, owner: Any) -> Any: ...

    def blocking(self) -> Callable[..., Any]:
        """See _Query."""

        def ask(client: QueryClient, /, *args: Any, **named: Any) -> Pages[Any]:
            return Pages(client, self.make(*args, **named), require_complete=client._require_complete)

        return ask

    def awaited(self) -> Callable[..., Any]:
        """See _Query."""

        def ask(client: AsyncQueryClient, /, *args: Any, **named: Any) -> AsyncPages[Any]:
            return AsyncPages(client, self.make(*args, **named), require_complete=client._require_complete)

        return ask


class _Answered(_Query, Generic[Given, Answer]):
    """A query with one answer."""

    if TYPE_CHECKING:

        def __init__(self, question: Callable[Given, Question[Answer]]) -> None: ...

        @overload
        def __get__(self, client: "QueryClient", owner: Any) -> Callable[Given, Answer]: ...
        @overload
        def __get__(self, client: "AsyncQueryClient", owner: Any) -> Callable[Given, Coroutine[Any, Any, Answer]]: ...
        @overload
        def __get__(self, client: None, owner: Any) -> Callable[..., Any]: ...
        def __get__(self, client: Any, owner: Any) -> Any: ...

    def blocking(self) -> Callable[..., Any]:
        """See _Query."""

        def ask(client: QueryClient, /, *args: Any, **named: Any) -> Any:
            return run_blocking(client._answer, self.make(*args, **named))

        return ask

    def awaited(self) -> Callable[..., Any]:
        """See _Query."""

        async def ask(client: AsyncQueryClient, /, *args: Any, **named: Any) -> Any:
            return await client._answer(self.make(*args, **named))

        return ask


class _Streamed(_Query, Generic[Given, Answer]):
    """A query whose answers come as a stream."""

    if TYPE_CHECKING:

        def __init__(self, question: Callable[Given, Question[Answer]]) -> None: ...

        @overload
        def __get__(self, client: "QueryClient", owner: Any) -> Callable[Given, Iterator[Answer]]: ...
        @overload
        def __get__(self, client: "AsyncQueryClient", owner: Any) -> Callable[Given, AsyncIterator[Answer]]: ...
        @overload
        def __get__(self, client: None, owner: Any) -> Callable[..., Any]: ...
        def __get__(self, client: Any, owner: Any) -> Any: ...

    def blocking(self) -> Callable[..., Any]:
        """See _Query."""

        def ask(client: QueryClient, /, *args: Any, **named: Any) -> Iterator[Any]:
            asked = self.make(*args, **named)
            for response in client.stream(asked.method, asked.request):
                yield asked.to_answer(response)

        return ask

    def awaited(self) -> Callable[..., Any]:
        """See _Query."""

        async def ask(client: AsyncQueryClient, /, *args: Any, **named: Any) -> AsyncIterator[Any]:
            asked = self.make(*args, **named)
            async for response in client.stream(asked.method, asked.request):
                yield asked.to_answer(response)

        return ask


class _QueryCore(CallCore):
    """The queries of a gateway, and what both clients do with them, as coroutines (see `threads_and_loops.py`)."""

    _require_complete: bool

    # queries.py documents the arguments and answers of each.
    by_key = _Paged(queries.by_key)
    by_tag = _Paged(queries.by_tag)
    by_unique_key = _Paged(queries.by_unique_key)
    by_id = _Answered(queries.by_id)
    by_offset = _Paged(queries.by_offset)
    find = _Paged(queries.find)
    search = _Paged(queries.search)
    explain = _Answered(queries.explain)
    search_offset = _Answered(queries.search_offset)
    topics = _Paged(queries.topics)
    status = _Answered(queries.status)
    installation = _Answered(queries.installation)
    # groups.py documents those of consumer groups and of messages that they pulled.
    consumer_groups = _Answered(groups.consumer_groups)
    consumer_group = _Answered(groups.consumer_group)
    lite_topics = _Answered(groups.lite_topics)
    consumer_running_info = _Answered(groups.consumer_running_info)
    update_consumer_group = _Answered(groups.update_consumer_group)
    delete_consumer_group = _Answered(groups.delete_consumer_group)
    offsets = _Answered(groups.offsets)
    commit_offsets = _Answered(groups.commit_offsets)
    reset_offsets = _Answered(groups.reset_offsets)
    track = _Answered(groups.track)
    resend_dead_letters = _Answered(groups.resend_dead_letters)
    pull = _Streamed(groups.pull)
    send_back = _Answered(groups.send_back)
    lock_queues = _Answered(groups.lock_queues)
    # tenants.py documents that of namespaces.
    tenants = _Answered(tenants.tenants)
    # waiting.py documents those of messages that wait.
    pending_transactions = _Paged(waiting.pending_transactions)
    scheduled_messages = _Paged(waiting.scheduled_messages)
    recall = _Answered(waiting.recall)
    end_transaction = _Answered(waiting.end_transaction)

    async def _answer(self, asked: Question[Answer]) -> Answer:
        response, has_more = None, True
        while has_more:
            page = await self._ask(asked.method, asked.request, is_repeatable=asked.is_repeatable)
            response, has_more = asked.join(response, page)
        return asked.take(response, require_complete=self._require_complete)

    async def _body_of(self, message: Message | str, broker_name: str) -> bytes:
        return await self._fetch_body(queries.download(message, broker_name))

    async def _with_body(self, message: Message) -> Message:
        if not message.body_omitted:
            return message
        try:
            body = await self._body_of(message, "")
        except (NotFoundError, OffsetOutOfRangeError):
            return message
        return dataclasses.replace(message, stored_body=body, body_omitted=False)


class _PageRun(Generic[Item]):
    """A run over the pages of a query: what `Pages` and `AsyncPages` have in common.

    Args:
        client: sends the requests.
        cursor: the query.
        require_complete: a PARTIAL page is an error.
    """

    def __init__(self, client: _QueryCore, cursor: Cursor[Item], *, require_complete: bool) -> None:
        self._client = client
        self._cursor = cursor
        self._progress = Progress(require_complete=require_complete)

    @property
    def completeness(self) -> Completeness:
        """Of the pages so far: TRUNCATED before the last page, then COMPLETE; PARTIAL after any PARTIAL page."""
        return self._progress.completeness

    async def _next_page(self) -> Page[Item] | None:
        """The next page; None behind the last one."""
        asked = self._cursor.next_request()
        if asked is None:
            return None
        method, request = asked
        page = self._cursor.take(await self._client._ask(method, request))
        self._progress.see(page, has_more=self._cursor.next_request() is not None)
        return page

    async def _whole(self, item: Any) -> Any:
        """An item that lacks a body, with the body."""
        if isinstance(item, Match):
            return dataclasses.replace(item, message=await self._client._with_body(item.message))
        return await self._client._with_body(item)


def _lacks_body(item: Any) -> bool:
    """Whether an item is or has a message for whose body its page had no room."""
    message = item.message if isinstance(item, Match) else item
    return isinstance(message, Message) and message.body_omitted


class Pages(_PageRun[Item]):
    """Items over all pages; each page is requested when it is needed. Iterate once, in one thread.

    Iterating gives items, messages with their bodies; `pages()` gives `Page`s as they came, perhaps without the largest bodies.
    Each continues at the next page after the other.
    """

    def pages(self) -> Iterator[Page[Item]]:
        """Page after page.

        Raises:
            PartialAnswerError: a page is PARTIAL, and `require_complete` is set.
        """
        while (page := run_blocking(self._next_page)) is not None:
            yield page

    def __iter__(self) -> Iterator[Item]:
        for page in self.pages():
            for item in page.items:
                yield run_blocking(self._whole, item) if _lacks_body(item) else item


class AsyncPages(_PageRun[Item]):
    """See `Pages`; iterate once, in one task."""

    async def pages(self) -> AsyncIterator[Page[Item]]:
        """See `Pages.pages`."""
        while (page := await self._next_page()) is not None:
            yield page

    async def __aiter__(self) -> AsyncIterator[Item]:
        async for page in self.pages():
            for item in page.items:
                yield await self._whole(item) if _lacks_body(item) else item


def _methods_of_the_table(client_class: type[Any], kind: Callable[[_Query], Callable[..., Any]]) -> None:
    """Give a client its methods: plain ones, so that `help`, `inspect` and mocks see what a programmer would have written."""
    for name, query in vars(_QueryCore).items():
        if isinstance(query, _Query):
            method = as_method(kind(query), query.question)
            method.__qualname__ = f"{client_class.__name__}.{name}"
            setattr(client_class, name, method)


class QueryClient(GatewayCalls, _QueryCore):
    """Queries of a gateway; for any number of threads.

        with QueryClient("127.0.0.1:8081") as client:
            orders = client.by_key("Orders", "order-1001")
            for message in orders:
                print(message.store_time, message.body)
            print(orders.completeness)

    A call is tried again while the gateway is not reached, not ready or busy, for at most `timeout_seconds`.

    Args:
        target: the gateway, `HOST:PORT`.
        channel: used instead of one of its own; `close` leaves it open.
        security: TLS and credentials of its own channel.
        timeout_seconds: limit of a call with all its attempts; a run over pages has it for each page.
        require_complete: raise PartialAnswerError for an answer that is PARTIAL.
        retry: how often and how fast a failed call is tried again.
        read: which replicas answer queries and pulls; None: as the gateway is set.
    """

    def __init__(
        self,
        target: str = ADDRESS_DEFAULT,
        *,
        channel: grpc.Channel | None = None,
        security: ClientSecurity | None = None,
        timeout_seconds: float = TIMEOUT_SECONDS_DEFAULT,
        require_complete: bool = False,
        retry: RetryPolicy | None = None,
        read: ReadChoice | None = None,
    ) -> None:
        super().__init__(target, channel=channel, security=security, timeout_seconds=timeout_seconds, retry=retry)
        self._require_complete = require_complete
        self._read = read or ReadChoice()

    def call(self, method: str, request: Any, *, is_repeatable: bool = True) -> Any:
        """See `GatewayCalls.call`."""
        choose(request, self._read)
        return super().call(method, request, is_repeatable=is_repeatable)

    def stream(self, method: str, request: Any, timeout_seconds: float | None = None) -> Iterator[Any]:
        """See `GatewayCalls.stream`."""
        choose(request, self._read)
        return super().stream(method, request, timeout_seconds)

    def download(self, request: Any) -> bytes:
        """See `GatewayCalls.download`."""
        choose(request, self._read)
        return super().download(request)

    def download_body(self, message: Message | str, *, broker_name: str = "") -> bytes:
        """The stored body of a message, or of the message with that offsetMsgId; compressed if it is stored compressed."""
        return run_blocking(self._body_of, message, broker_name)

    def with_body(self, message: Message) -> Message:
        """The message with its body, which is downloaded when the page had no room for it.

        A message that retention has removed since then stays as it came.
        """
        return run_blocking(self._with_body, message)


class AsyncQueryClient(AsyncGatewayCalls, _QueryCore):
    """Queries of a gateway; for the tasks of one event loop.

        async with AsyncQueryClient("127.0.0.1:8081") as client:
            orders = client.by_key("Orders", "order-1001")
            async for message in orders:
                print(message.store_time, message.body)
            print(orders.completeness)

    Arguments, retries and errors are those of `QueryClient`.
    """

    def __init__(
        self,
        target: str = ADDRESS_DEFAULT,
        *,
        channel: grpc.aio.Channel | None = None,
        security: ClientSecurity | None = None,
        timeout_seconds: float = TIMEOUT_SECONDS_DEFAULT,
        require_complete: bool = False,
        retry: RetryPolicy | None = None,
        read: ReadChoice | None = None,
    ) -> None:
        super().__init__(target, channel=channel, security=security, timeout_seconds=timeout_seconds, retry=retry)
        self._require_complete = require_complete
        self._read = read or ReadChoice()

    async def call(self, method: str, request: Any, *, is_repeatable: bool = True) -> Any:
        """See `GatewayCalls.call`."""
        choose(request, self._read)
        return await super().call(method, request, is_repeatable=is_repeatable)

    def stream(self, method: str, request: Any) -> AsyncIterator[Any]:
        """See `GatewayCalls.stream`."""
        choose(request, self._read)
        return super().stream(method, request)

    async def download(self, request: Any) -> bytes:
        """See `GatewayCalls.download`."""
        choose(request, self._read)
        return await super().download(request)

    async def download_body(self, message: Message | str, *, broker_name: str = "") -> bytes:
        """See `QueryClient.download_body`."""
        return await self._body_of(message, broker_name)

    async def with_body(self, message: Message) -> Message:
        """See `QueryClient.with_body`."""
        return await self._with_body(message)


_methods_of_the_table(QueryClient, lambda query: query.blocking())
_methods_of_the_table(AsyncQueryClient, lambda query: query.awaited())
