"""Where the pages of a range come from: by a pull where it has every message, else by queries."""

from collections.abc import Iterator, Sequence
from typing import cast

import pytest

from pipeline.rocketmq import reading
from pipeline.rocketmq.gateway import Gateway
from pipeline.rocketmq.positions import QueueKey
from pipeline.rocketmq.ranges import MessageRange
from pipeline.rocketmq.reading import QUERIED_COUNT, Page, Pages
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1.message_pb2 import StoredMessage
from reput_client import UnavailableError

KEY = QueueKey("orders", "broker-a", 3)


class Queue:
    """A Gateway with one queue; a pull gives what `batches` says, each from where it is asked."""

    def __init__(self, batches: Sequence[Sequence[int] | Exception], end: int = 100_000, page: int = 1_000) -> None:
        self.batches = list(batches)
        self.end = end
        self.page = page
        self.pulls: list[int] = []
        self.queries: list[tuple[int, int]] = []

    def pulled(self, key: QueueKey, queue_offset: int) -> Iterator[pb.PullMessagesResponse]:
        assert key == KEY
        self.pulls.append(queue_offset)
        while self.batches:
            batch = self.batches.pop(0)
            if isinstance(batch, Exception):
                raise batch
            positions = [queue_offset + place for place in batch]
            queue_offset = positions[-1] + 1 if positions else queue_offset
            yield pb.PullMessagesResponse(
                messages=[StoredMessage(queue_offset=at) for at in positions],
                next_offset=queue_offset,
                max_offset=self.end,
            )

    def messages_or_end(self, key: QueueKey, queue_offset: int, count: int) -> pb.QueryMessageByOffsetResponse:
        assert key == KEY
        self.queries.append((queue_offset, count))
        end = min(self.end, queue_offset + min(count, self.page))
        return pb.QueryMessageByOffsetResponse(
            messages=[StoredMessage(queue_offset=at) for at in range(queue_offset, end)],
            next_queue_offset=end,
            max_offset=self.end,
        )


def read(queue: Queue, begin: int, end: int, count_max: int = 1_000) -> list[Page]:
    """The pages of a range; each message of it comes once."""
    pages = Pages(cast(Gateway, queue), MessageRange("here", KEY, begin, end))
    found: list[Page] = []
    while begin < end and len(found) < count_max:
        found.append(pages.page(begin))
        assert [message.queue_offset for message in found[-1].messages] == list(range(begin, found[-1].next_offset))
        begin = found[-1].next_offset
    return found


def test_whole_batches_of_one_pull_are_the_pages_and_end_with_the_range() -> None:
    queue = Queue([range(400), range(300), range(500)])
    pages = read(queue, 50, 1_000)
    assert [len(page.messages) for page in pages] == [400, 300, 250]
    assert (queue.pulls, queue.queries) == ([50], [])
    assert {page.max_offset for page in pages} == {100_000}


@pytest.mark.parametrize(
    "odd",
    [[], [1, 2, 3], [0, 2, 3], UnavailableError("away")],
    ids=["nothing", "begins later", "has a gap", "fails"],
)
def test_what_is_not_whole_comes_by_queries_and_another_pull_begins_some_pages_later(
    odd: list[int] | Exception,
) -> None:
    queue = Queue([range(400), odd, range(500)])
    end = 400 + QUERIED_COUNT + 500
    pages = read(queue, 0, end)
    assert queue.queries == [(at, 1_000) for at in range(400, 400 + QUERIED_COUNT, 1_000)]
    assert queue.pulls == [0, 400 + QUERIED_COUNT]
    assert pages[-1].next_offset == end


def test_a_pull_that_ends_early_is_no_end_of_the_queue() -> None:
    queue = Queue([range(400)], end=500)
    read(queue, 0, 500)
    assert (queue.pulls, queue.queries) == ([0], [(400, 100)])


def test_no_pull_is_begun_for_few_messages() -> None:
    queue = Queue([])
    read(queue, 7, 7 + reading.PULL_COUNT_MIN - 1)
    assert (queue.pulls, queue.queries) == ([], [(7, reading.PULL_COUNT_MIN - 1)])
