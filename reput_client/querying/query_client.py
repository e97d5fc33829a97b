"""`QueryClient`: finds messages."""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

import grpc

from reput_client.arguments import naming_wrong_arguments
from reput_client.calls import ADDRESS_DEFAULT, TIMEOUT_SECONDS_DEFAULT, GatewayCalls
from reput_client.errors import NotFoundError, OffsetOutOfRangeError
from reput_client.querying import groups, pulled, queries, waiting
from reput_client.querying.answers import Completeness, Match, Page
from reput_client.querying.message import Message
from reput_client.querying.question import Cursor, Progress, Question, as_method
from reput_client.querying.read_choice import ReadChoice, choose
from reput_client.retry import RetryPolicy
from reput_client.security import ClientSecurity

Item = TypeVar("Item")
Answer = TypeVar("Answer")
Given = ParamSpec("Given")


def _paged(question: Callable[Given, Cursor[Item]]) -> "Callable[Concatenate[QueryClient, Given], Pages[Item]]":
    make = naming_wrong_arguments(question)

    def ask(self: "QueryClient", /, *args: Given.args, **named: Given.kwargs) -> "Pages[Item]":
        return Pages(self, make(*args, **named), require_complete=self._require_complete)

    return as_method(ask, question)


def _answered(
    question: Callable[Given, Question[Answer]],
) -> "Callable[Concatenate[QueryClient, Given], Answer]":
    make = naming_wrong_arguments(question)

    def ask(self: "QueryClient", /, *args: Given.args, **named: Given.kwargs) -> Answer:
        asked = make(*args, **named)
        response, has_more = None, True
        while has_more:
            page = self.call(asked.method, asked.request, is_repeatable=asked.is_repeatable)
            response, has_more = asked.join(response, page)
        return asked.take(response, require_complete=self._require_complete)

    return as_method(ask, question)


def _streamed(
    question: Callable[Given, Question[Answer]],
) -> "Callable[Concatenate[QueryClient, Given], Iterator[Answer]]":
    make = naming_wrong_arguments(question)

    def ask(self: "QueryClient", /, *args: Given.args, **named: Given.kwargs) -> Iterator[Answer]:
        asked = make(*args, **named)
        for response in self.stream(asked.method, asked.request):
            yield asked.to_answer(response)

    return as_method(ask, question)


class QueryClient(GatewayCalls):
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

    # queries.py documents the arguments and answers of each.
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
    installation = _answered(queries.installation)
    # groups.py documents those of consumer groups.
    consumer_groups = _answered(groups.consumer_groups)
    consumer_group = _answered(groups.consumer_group)
    update_consumer_group = _answered(groups.update_consumer_group)
    delete_consumer_group = _answered(groups.delete_consumer_group)
    offsets = _answered(groups.offsets)
    commit_offsets = _answered(groups.commit_offsets)
    reset_offsets = _answered(groups.reset_offsets)
    track = _answered(groups.track)
    resend_dead_letters = _answered(groups.resend_dead_letters)
    pull = _streamed(groups.pull)
    # pulled.py documents these.
    send_back = _answered(pulled.send_back)
    lock_queues = _answered(pulled.lock_queues)
    # waiting.py documents those of messages that wait.
    pending_transactions = _paged(waiting.pending_transactions)
    scheduled_messages = _paged(waiting.scheduled_messages)
    recall = _answered(waiting.recall)
    end_transaction = _answered(waiting.end_transaction)

    def download_body(self, message: Message | str, *, broker_name: str = "") -> bytes:
        """The stored body of a message, or of the message with that offsetMsgId; compressed if it is stored compressed."""
        return self.download(queries.download(message, broker_name))

    def with_body(self, message: Message) -> Message:
        """The message with its body, which is downloaded when the page had no room for it.

        A message that retention has removed since then stays as it came.
        """
        if not message.body_omitted:
            return message
        try:
            body = self.download_body(message)
        except (NotFoundError, OffsetOutOfRangeError):
            return message
        return dataclasses.replace(message, stored_body=body, body_omitted=False)


class Pages(Generic[Item]):
    """Items over all pages; each page is requested when it is needed. Iterate once, in one thread.

    Iterating gives items, messages with their bodies; `pages()` gives `Page`s as they came, perhaps without the largest bodies.
    Each continues at the next page after the other.

    Args:
        client: sends the requests.
        cursor: the query.
        require_complete: a PARTIAL page is an error.
    """

    def __init__(self, client: QueryClient, cursor: Cursor[Item], *, require_complete: bool) -> None:
        self._client = client
        self._cursor = cursor
        self._progress = Progress(require_complete=require_complete)

    @property
    def completeness(self) -> Completeness:
        """Of the pages so far: TRUNCATED before the last page, then COMPLETE; PARTIAL after any PARTIAL page."""
        return self._progress.completeness

    def pages(self) -> Iterator[Page[Item]]:
        """Page after page.

        Raises:
            PartialAnswerError: a page is PARTIAL, and `require_complete` is set.
        """
        while (asked := self._cursor.next_request()) is not None:
            page = self._cursor.take(self._client.call(*asked))
            self._progress.see(page, has_more=self._cursor.next_request() is not None)
            yield page

    def __iter__(self) -> Iterator[Item]:
        for page in self.pages():
            for item in page.items:
                yield self._whole(item)

    def _whole(self, item: Any) -> Any:
        if isinstance(item, Match):
            return dataclasses.replace(item, message=self._client.with_body(item.message))
        return self._client.with_body(item) if isinstance(item, Message) else item
