"""Queries as values, without a network: one call, or a run over pages, and the replicas that may answer."""

import datetime
import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Generic, Protocol, TypeVar

from reput.gateway.v1 import gateway_service_pb2 as pb
from reput_client.querying.answers import (
    Completeness,
    Page,
    QueueRange,
    messages_of,
    partial_answer,
    scan_of,
    shards_of,
)
from reput_client.querying.message import Message


class ReadFrom(Enum):
    """The replica of a shard that answers; it has no effect on shards without replicas."""

    DEFAULT = pb.READ_FROM_UNSPECIFIED  # as the gateway is set; the leader, if it is not
    LEADER = pb.READ_FROM_LEADER
    ANY = pb.READ_FROM_ANY  # the leader; others for what its memory does not hold, and while the shard has no leader
    REPLICA = pb.READ_FROM_REPLICA  # another one, where one is near enough to the leader


@dataclass(frozen=True, slots=True)
class ReadChoice:
    """The replicas that a client allows to answer.

    Attributes:
        read_from: which replica.
        max_staleness: only replicas that lack at most what was confirmed so long ago; None: 10 s beside a leader, and no
            limit while the shard has no leader.
    """

    read_from: ReadFrom = ReadFrom.DEFAULT
    max_staleness: datetime.timedelta | None = None


def choose(request: Any, choice: ReadChoice) -> None:
    """Put the choice into a request that can have one, or into the query that it asks to explain."""
    if isinstance(request, pb.ExplainQueryRequest):
        request = getattr(request, request.WhichOneof("query") or "by_key")
    if choice == ReadChoice() or "read" not in request.DESCRIPTOR.fields_by_name:
        return
    read: pb.ReadChoice = request.read
    read.read_from = choice.read_from.value
    if choice.max_staleness is not None:
        read.max_staleness.FromTimedelta(choice.max_staleness)


# The field of a response that says how the shards took part in a page.
OUTCOMES = "outcomes"

Item = TypeVar("Item")
Answer = TypeVar("Answer")
Method = TypeVar("Method", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Question(Generic[Answer]):
    """One call.

    Attributes:
        method: the RPC.
        request: its request message.
        to_answer: makes the answer of its response.
        may_be_partial: the response has a completeness, so `require_complete` applies.
        is_repeatable: the call may be sent again after a failure.
        paged_field: the field of a response that has the items of a page, when one answer is made of several; empty: it is not.
        item_count_max: items of all pages; None: all that there are.
    """

    method: str
    request: Any
    to_answer: Callable[[Any], Answer]
    may_be_partial: bool = False
    is_repeatable: bool = True
    paged_field: str = ""
    item_count_max: int | None = None

    def next_request(self) -> tuple[str, Any] | None:
        """Method and request."""
        return self.method, self.request

    def join(self, before: Any | None, response: Any) -> tuple[Any, bool]:
        """The response together with those of the pages before, and whether to ask on with `request`."""
        if not self.paged_field:
            return response, False
        token = response.next_page_token
        if before is not None:
            for name in (self.paged_field, OUTCOMES):  # what else there is, each page says again
                if name in before.DESCRIPTOR.fields_by_name:
                    getattr(before, name).extend(getattr(response, name))
            before.next_page_token = token
            response = before
        left = None
        if self.item_count_max is not None:
            left = self.item_count_max - len(getattr(response, self.paged_field))
            self.request.page_size = max(min(left, self.request.page_size), 1)
        self.request.page_token = token
        return response, bool(token) and (left is None or left > 0)

    def take(self, response: Any, *, require_complete: bool) -> Answer:
        """The answer; PartialAnswerError when it is PARTIAL and must not be."""
        if self.may_be_partial and require_complete and Completeness(response.completeness) is Completeness.PARTIAL:
            raise partial_answer(shards_of(response.shards))
        return self.to_answer(response)


class Cursor(Protocol[Item]):
    """A run over pages: the next request, and the page of each response."""

    def next_request(self) -> tuple[str, Any] | None:
        """Method and request of the next page; None when there is none."""

    def take(self, response: Any) -> Page[Item]:
        """The page of a response; the next request continues behind it."""


class TokenCursor(Generic[Item]):
    """Pages by token.

    Args:
        method: the RPC.
        request: of the first page; each next page sets its token.
        to_items: makes the items of a response.
        item_count_max: end after this many items; None: no limit.
    """

    def __init__(
        self,
        method: str,
        request: Any,
        to_items: Callable[[Any], tuple[Item, ...]],
        item_count_max: int | None = None,
    ) -> None:
        self._method = method
        self._request = request
        self._to_items = to_items
        self._page_size = request.page_size
        self._left = _checked_limit(item_count_max)
        self._has_more = self._left != 0

    def next_request(self) -> tuple[str, Any] | None:
        """See Cursor."""
        if not self._has_more:
            return None
        if self._left is not None:
            self._request.page_size = min(self._page_size, self._left)
        return self._method, self._request

    def take(self, response: Any) -> Page[Item]:
        """See Cursor."""
        items, token = self._to_items(response), response.next_page_token
        if self._left is not None:
            self._left -= len(items)
        self._request.page_token = token
        self._has_more = bool(token) and self._left != 0
        return Page(items, Completeness(response.completeness), shards_of(response.shards), next_page_token=token)


class SearchCursor(TokenCursor[Message]):
    """Pages of a search: each says what was scanned for it."""

    def __init__(self, request: pb.SearchMessagesRequest, message_count_max: int | None = None) -> None:
        super().__init__("SearchMessages", request, messages_of, message_count_max)

    def take(self, response: pb.SearchMessagesResponse) -> Page[Message]:
        """See Cursor."""
        return replace(super().take(response), scan=scan_of(response))


class QueueCursor(TokenCursor[Message]):
    """Pages of a queue, up to its end as it is when it is reached. Each request has its position,
    too, for gateways without tokens.

    Args:
        request: of the first page.
        message_count_max: end after this many; None: no limit.
    """

    def __init__(self, request: pb.QueryMessageByOffsetRequest, message_count_max: int | None) -> None:
        super().__init__("QueryMessageByOffset", request, messages_of, message_count_max)
        self._position = request.queue_offset

    def next_request(self) -> tuple[str, Any] | None:
        """See Cursor."""
        asked = super().next_request()
        self._request.max_messages = self._request.page_size  # its older name
        return asked

    def take(self, response: pb.QueryMessageByOffsetResponse) -> Page[Message]:
        """See Cursor."""
        page = super().take(response)
        asked, self._position = self._position, response.next_queue_offset
        at_end = self._position <= asked or self._position >= response.max_offset
        self._has_more = not at_end and self._left != 0
        # Beside the token: the next page may come from another gateway, of an earlier release, which knows none.
        self._request.queue_offset = self._position
        completeness = page.completeness
        if completeness is Completeness.COMPLETE and not at_end:
            completeness = Completeness.TRUNCATED
        queue_range = QueueRange(response.min_offset, response.max_offset)
        return replace(page, completeness=completeness, queue_range=queue_range)


class Progress:
    """The completeness of a run over pages so far.

    Args:
        require_complete: a PARTIAL page is an error.
    """

    def __init__(self, *, require_complete: bool) -> None:
        self._require_complete = require_complete
        self._is_partial = False
        self._last = Completeness.TRUNCATED

    @property
    def completeness(self) -> Completeness:
        """PARTIAL after any PARTIAL page; otherwise TRUNCATED until the last page was seen, then what that page says."""
        if self._is_partial:
            return Completeness.PARTIAL
        return self._last

    def see(self, page: Page[Any], *, has_more: bool) -> None:
        """Add a page; PartialAnswerError when it is PARTIAL and must not be."""
        if page.completeness is Completeness.PARTIAL:
            self._is_partial = True
            if self._require_complete:
                raise partial_answer(page.shards)
        self._last = Completeness.TRUNCATED if has_more else page.completeness


def as_method(ask: Method, question: Callable[..., Any]) -> Method:
    """The client method `ask`, which sends what `question` makes, with the name, signature and docstring of `question`."""
    signature = inspect.signature(question)
    myself = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    shown = signature.replace(
        parameters=[myself, *signature.parameters.values()], return_annotation=inspect.Signature.empty
    )
    vars(ask).update(__signature__=shown)  # read by `help` and `inspect`
    ask.__name__, ask.__doc__ = question.__name__, question.__doc__
    return ask


def _checked_limit(count_max: int | None) -> int | None:
    if count_max is not None and count_max < 0:
        raise ValueError(f"max_messages is {count_max}: give 0 or more, or None for no limit")
    return count_max
