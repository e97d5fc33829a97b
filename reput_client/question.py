"""What is asked of a gateway, before anybody asks it: one call, or a run over pages; both query clients ask them."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from reput.gateway.v1 import gateway_service_pb2 as pb
from reput_client.answers import Completeness, Page, messages_of, partial_answer, shards_of
from reput_client.message import Message
from reput_client.scan import scan_of

Item = TypeVar("Item")
Answer = TypeVar("Answer")
Method = TypeVar("Method", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Question(Generic[Answer]):
    """One call.

    Attributes:
        method: the RPC.
        request: of it.
        to_answer: what its response says.
        may_be_partial: the response has a completeness, which `require_complete` is about.
    """

    method: str
    request: Any
    to_answer: Callable[[Any], Answer]
    may_be_partial: bool = False

    def next_request(self) -> tuple[str, Any] | None:
        """Method and request."""
        return self.method, self.request

    def take(self, response: Any, *, require_complete: bool) -> Answer:
        """What the response says; PartialAnswerError when it is PARTIAL and must not be."""
        if self.may_be_partial and require_complete and Completeness(response.completeness) is Completeness.PARTIAL:
            raise partial_answer(shards_of(response.shards))
        return self.to_answer(response)


class Cursor(Protocol[Item]):
    """A run over pages: what to ask next, and what came."""

    def next_request(self) -> tuple[str, Any] | None:
        """Method and request of the next page; None when there is none."""

    def take(self, response: Any) -> Page[Item]:
        """The page of an answer, and go on behind it."""


class TokenCursor(Generic[Item]):
    """Pages by token.

    Args:
        method: the RPC.
        request: of the first page; it gets the token of each next one.
        to_items: the items of a response.
    """

    def __init__(self, method: str, request: Any, to_items: Callable[[Any], tuple[Item, ...]]) -> None:
        self._method = method
        self._request = request
        self._to_items = to_items
        self._has_more = True

    def next_request(self) -> tuple[str, Any] | None:
        """See Cursor."""
        return (self._method, self._request) if self._has_more else None

    def take(self, response: Any) -> Page[Item]:
        """See Cursor."""
        self._request.page_token = response.next_page_token
        self._has_more = bool(response.next_page_token)
        return Page(self._to_items(response), Completeness(response.completeness), shards_of(response.shards))


class SearchCursor(TokenCursor[Message]):
    """Pages of a search: each says what was looked at for it."""

    def __init__(self, request: pb.SearchMessagesRequest) -> None:
        super().__init__("SearchMessages", request, messages_of)

    def take(self, response: pb.SearchMessagesResponse) -> Page[Message]:
        """See Cursor."""
        page = super().take(response)
        return Page(page.items, page.completeness, page.shards, scan_of(response))


class QueueCursor:
    """Pages by queue offset, up to the end of the queue as it is when it is reached.

    Args:
        request: of the first page.
        message_count_max: end after so many; None = no limit.
    """

    def __init__(self, request: pb.QueryMessageByOffsetRequest, message_count_max: int | None) -> None:
        self._request = request
        self._left = message_count_max
        self._has_more = message_count_max is None or message_count_max > 0
        self._page_size = request.max_messages

    def next_request(self) -> tuple[str, Any] | None:
        """See Cursor."""
        if not self._has_more:
            return None
        if self._left is not None:
            self._request.max_messages = min(self._page_size, self._left)
        return "QueryMessageByOffset", self._request

    def take(self, response: pb.QueryMessageByOffsetResponse) -> Page[Message]:
        """See Cursor."""
        asked, nexts = self._request.queue_offset, response.next_queue_offset
        items = messages_of(response)
        if self._left is not None:
            self._left -= len(items)
        at_end = nexts <= asked or nexts >= response.max_offset
        self._has_more = not at_end and self._left != 0
        self._request.queue_offset = nexts
        completeness = Completeness(response.completeness)
        if completeness is Completeness.COMPLETE and not at_end:
            completeness = Completeness.TRUNCATED
        return Page(items, completeness, shards_of(response.shards))


class Progress:
    """What a run over pages has seen.

    Args:
        require_complete: a PARTIAL page is an error.
    """

    def __init__(self, *, require_complete: bool) -> None:
        self._require_complete = require_complete
        self._is_partial = False
        self._last = Completeness.TRUNCATED

    @property
    def completeness(self) -> Completeness:
        """PARTIAL once a page was; COMPLETE once the last page was seen; TRUNCATED before."""
        if self._is_partial:
            return Completeness.PARTIAL
        return self._last

    def see(self, page: Page[Any], *, has_more: bool) -> None:
        """Note a page; PartialAnswerError when it is PARTIAL and must not be."""
        if page.completeness is Completeness.PARTIAL:
            self._is_partial = True
            if self._require_complete:
                raise partial_answer(page.shards)
        self._last = Completeness.TRUNCATED if has_more else page.completeness


def as_method(ask: Method, question: Callable[..., Any]) -> Method:
    """`ask`, a client's method that asks what `question` makes, with the name, parameters and words of that."""
    signature = inspect.signature(question)
    myself = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    shown = signature.replace(
        parameters=[myself, *signature.parameters.values()], return_annotation=inspect.Signature.empty
    )
    vars(ask).update(__signature__=shown)  # for `help` and whatever else asks `inspect`
    ask.__name__, ask.__doc__ = question.__name__, question.__doc__
    return ask
