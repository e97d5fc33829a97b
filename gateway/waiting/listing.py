"""What waits, over all shards: shard by shard, in the order of each.

The shards come by their names: a token means the same at each gateway, whatever order the shards joined it in.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from gateway.ports.chain import ShardMethod
from gateway.ports.deadline import Deadline
from gateway.ports.shard import Shard
from gateway.ports.shards import Shards, require_topic
from gateway.queries.by_key import unknown_shard
from gateway.queries.completeness import ShardOutcome, judge
from gateway.queries.page import PAGE_BYTES_MAX, PageTokens, check_topic, page_size
from reput.message.v1 import message_pb2
from reput.schedule.v1 import schedule_service_pb2 as pb
from store.errors import ServiceUnavailableError, StoreError

# Pages of a shard in one page of the answer: a million messages that are not wanted.
SHARD_PAGE_COUNT_MAX = 100

Question = TypeVar("Question", bound=pb.ListPendingTransactionsRequest | pb.ListScheduledMessagesRequest)
Page = TypeVar("Page", bound=pb.ListPendingTransactionsResponse | pb.ListScheduledMessagesResponse)
Item = TypeVar("Item", bound=pb.PendingTransaction | pb.ScheduledMessage)


@dataclass(frozen=True, slots=True)
class WaitingList(Generic[Item]):
    """A page: items with their shards' names, the token of the next one, how the shards took part, and how much waits there."""

    items: Sequence[tuple[str, Item]]
    next_page_token: str
    outcomes: Sequence[ShardOutcome]
    completeness: message_pb2.Completeness
    pending_count: int


@dataclass(slots=True)
class _Part(Generic[Item]):
    """What a shard gives to a page."""

    items: list[Item]
    size_bytes: int
    next_page_token: str
    pending_count: int


class Listing(Generic[Question, Page, Item]):
    """Lists one kind of what waits.

    Args:
        name: for tokens.
        method: asks a shard.
        question: makes a request of the method.
        items_of: the items of its answer.
        size_bytes_of: the size of an item in an answer.
    """

    def __init__(
        self,
        name: str,
        method: ShardMethod[Question, Page],
        question: type[Question],
        items_of: Callable[[Page], Sequence[Item]],
        size_bytes_of: Callable[[Item], int],
    ) -> None:
        self._name = name
        self._method = method
        self._question = question
        self._items_of = items_of
        self._size_bytes_of = size_bytes_of

    def page(
        self, shards: Shards, tokens: PageTokens, topic: str, count: int, token: str, deadline: Deadline
    ) -> WaitingList[Item]:
        """A page.

        Args:
            shards: all shards.
            tokens: seals and opens page tokens.
            topic: the only topic; empty: all.
            count: as a request has it.
            token: of the page before.
            deadline: the caller's.

        Raises:
            InvalidArgumentError, InvalidPageTokenError: the request is wrong.
            TopicNotFoundError: no shard has the topic.
            StoreError: no shard answers.
        """
        left_count = page_size(count, "page_size")
        left_bytes = PAGE_BYTES_MAX
        cursors = tokens.open(token, self._name, {"topic": topic})
        if topic:
            check_topic(topic)
            require_topic(shards, topic, deadline)
        begin, shard_token = str(cursors.get("shard", "")), str(cursors.get("token", ""))
        items: list[tuple[str, Item]] = []
        outcomes: list[ShardOutcome] = []
        pending_count = 0
        next_cursors: dict[str, str | int] = {}
        by_name = sorted(shards, key=lambda shard: shard.broker_name)
        for shard in by_name:
            name = shard.broker_name
            if name < begin:
                continue
            if left_count <= 0 or left_bytes <= 0:
                next_cursors = {"shard": name, "token": ""}
                break
            try:
                part = self._part(
                    shard,
                    self._question(topic=topic, page_size=left_count, page_token=shard_token if name == begin else ""),
                    left_bytes,
                    deadline,
                )
            except StoreError as error:
                outcomes.append(ShardOutcome(name, error, complete=False))
                continue
            outcomes.append(ShardOutcome(name))
            if items and part.size_bytes > left_bytes:  # the next page begins with it
                next_cursors = {"shard": name, "token": shard_token if name == begin else ""}
                break
            items += [(name, item) for item in part.items]
            pending_count += part.pending_count
            left_count -= len(part.items)
            left_bytes -= part.size_bytes
            if part.next_page_token:
                next_cursors = {"shard": name, "token": part.next_page_token}
                break
        if outcomes and all(outcome.error is not None for outcome in outcomes) and outcomes[0].error is not None:
            raise outcomes[0].error
        if begin and begin not in {shard.broker_name for shard in by_name}:
            outcomes.append(unknown_shard(begin))
        next_token = tokens.seal(self._name, {"topic": topic}, next_cursors) if next_cursors else ""
        return WaitingList(items, next_token, outcomes, judge(outcomes, more=bool(next_token)), pending_count)

    def _part(self, shard: Shard, question: Question, left_bytes: int, deadline: Deadline) -> "_Part[Item]":
        """What a shard gives to a page: until the page is full, or the shard has no more.

        A shard ends a page of its own early when it has looked at many messages that are not wanted. Such a page, short or
        empty, would tell a caller of messages that it may not see.
        """
        count = question.page_size
        page, size_bytes = self._fitting(shard, question, left_bytes, deadline)
        part = _Part(list(self._items_of(page)), size_bytes, page.next_page_token, page.pending_count)
        for _ in range(SHARD_PAGE_COUNT_MAX - 1):
            left_count = count - len(part.items)
            if not part.next_page_token or left_count <= 0 or part.size_bytes >= left_bytes or deadline.is_near():
                break
            question.page_size, question.page_token = left_count, part.next_page_token
            try:
                page, size_bytes = self._fitting(shard, question, left_bytes - part.size_bytes, deadline)
            except StoreError:
                break  # the next page meets it again
            if part.items and part.size_bytes + size_bytes > left_bytes:
                break
            part.items += self._items_of(page)
            part.size_bytes += size_bytes
            part.next_page_token = page.next_page_token
        return part

    def _fitting(self, shard: Shard, question: Question, left_bytes: int, deadline: Deadline) -> tuple[Page, int]:
        """A page that fits into the rest of an answer, or one item; and its size in bytes. It changes the question."""
        if not shard.has(self._method):
            raise ServiceUnavailableError(
                f"shard {shard.broker_name} has no schedule service: name its address in the gateway's settings.",
                service="schedule",
                brokerName=shard.broker_name,
            )
        while True:
            page = shard.call(self._method, question, deadline)
            size_bytes = sum(map(self._size_bytes_of, self._items_of(page)))
            if size_bytes <= left_bytes or question.page_size == 1:
                return page, size_bytes
            question.page_size //= 2
