"""Where the pages of a range come from: by a pull where it has every message, else by queries."""

from collections.abc import Iterator, Sequence
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.rocketmq import reading
from pipeline.rocketmq.errors import DataLostError, FilterNotAppliedError
from pipeline.rocketmq.gateway import Gateway
from pipeline.rocketmq.positions import QueueKey
from pipeline.rocketmq.ranges import MessageRange
from pipeline.rocketmq.reading import QUERIED_COUNT, Page, Pages, filter_of
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1.message_pb2 import MESSAGE_SOURCE_ARCHIVE, MESSAGE_SOURCE_LIVE, StoredMessage
from reput_client import UnavailableError
from reput_client.errors import UnsupportedStoreError
from store.format.record import patch_record, prepare_record
from tests.store.walk.logs import message as ordinary_message

KEY = QueueKey("orders", "broker-a", 3)


class Queue:
    """A Gateway with one queue; a pull gives what `batches` says, each from where it is asked."""

    def __init__(self, batches: Sequence[Sequence[int] | Exception], end: int = 100_000, page: int = 1_000) -> None:
        self.batches = list(batches)
        self.end = end
        self.page = page
        self.pulls: list[int] = []
        self.queries: list[tuple[int, int]] = []

    def pulled(
        self, key: QueueKey, queue_offset: int, wanted: pb.MessageFilter | None = None, *, as_records: bool = False
    ) -> Iterator[pb.PullMessagesResponse]:
        assert key == KEY
        assert wanted is None
        self.pulls.append(queue_offset)
        while self.batches:
            batch = self.batches.pop(0)
            if isinstance(batch, Exception):
                raise batch
            positions = [queue_offset + place for place in batch]
            queue_offset = positions[-1] + 1 if positions else queue_offset
            yield pb.PullMessagesResponse(
                messages=[] if as_records else [StoredMessage(queue_offset=at) for at in positions],
                records=map(record_at, positions) if as_records else [],
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


def record_at(queue_offset: int) -> bytes:
    frame = prepare_record(ordinary_message())
    patch_record(frame, queue_offset, 1_000 * queue_offset, 1_700_000_000_000)
    return bytes(frame)


def read(queue: Queue, begin: int, end: int, count_max: int = 1_000, *, as_records: bool = False) -> list[Page]:
    """The pages of a range; each message of it comes once."""
    pages = Pages(cast(Gateway, queue), MessageRange("here", KEY, begin, end), as_records=as_records)
    found: list[Page] = []
    while begin < end and len(found) < count_max:
        found.append(pages.page(begin))
        assert found[-1].queue_offsets() == list(range(begin, found[-1].next_offset))
        begin = found[-1].next_offset
    return found


@pytest.mark.parametrize("as_records", [False, True])
def test_whole_batches_of_one_pull_are_the_pages_and_end_with_the_range(as_records: bool) -> None:
    queue = Queue([range(400), range(300), range(500)])
    pages = read(queue, 50, 1_000, as_records=as_records)
    assert [len(page.queue_offsets()) for page in pages] == [400, 300, 250]
    assert [bool(page.messages) for page in pages] == [not as_records] * 3
    assert (queue.pulls, queue.queries) == ([50], [])
    assert {page.max_offset for page in pages} == {100_000}


@pytest.mark.parametrize(
    "odd",
    [[], [1, 2, 3], [0, 2, 3], UnavailableError("away")],
    ids=["nothing", "begins later", "has a gap", "fails"],
)
@pytest.mark.parametrize("as_records", [False, True])
def test_what_is_not_whole_comes_by_queries_and_another_pull_begins_some_pages_later(
    odd: list[int] | Exception, as_records: bool
) -> None:
    queue = Queue([range(400), odd, range(500)])
    end = 400 + QUERIED_COUNT + 500
    pages = read(queue, 0, end, as_records=as_records)
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


class ThinnedQueue:
    """A Gateway with one queue of live, archived and lost messages, each wanted or not, pulled by a filter as services do it.

    Args:
        kinds: L, A or X for each position; retention takes the first ones of a queue, so the live ones come last.
        wanted: whether a message is wanted.
        first: where the queue begins, as pulls know it; they pass over what the log has lost since.
        batch: positions that a pull looks at.
    """

    def __init__(self, kinds: str, wanted: Sequence[bool], first: int, batch: int) -> None:
        self.kinds, self.wanted, self.first, self.batch = kinds, wanted, first, batch
        self.failures: list[Exception] = []
        self.pulled_from: list[tuple[int, bool]] = []

    def pulled(
        self, key: QueueKey, queue_offset: int, wanted: pb.MessageFilter | None, *, as_records: bool
    ) -> Iterator[pb.PullMessagesResponse]:
        assert not as_records
        self.pulled_from.append((queue_offset, wanted is not None))
        while self.first <= queue_offset < len(self.kinds):
            if self.failures:
                raise self.failures.pop(0)
            end = min(queue_offset + self.batch, len(self.kinds))
            looked_at = range(queue_offset, end)
            found = [at for at in looked_at if self.kinds[at] == "L" and (self.wanted[at] or wanted is None)]
            yield pb.PullMessagesResponse(
                messages=[self.message(at) for at in found],
                next_offset=end,
                is_whole=all(self.kinds[at] == "L" for at in looked_at),
            )
            queue_offset = end
        yield pb.PullMessagesResponse(next_offset=max(self.first, queue_offset), status=pb.PULL_STATUS_OFFSET_ILLEGAL)

    def messages_or_end(self, key: QueueKey, queue_offset: int, count: int) -> pb.QueryMessageByOffsetResponse:
        end = min(queue_offset + min(count, 7), len(self.kinds))
        return pb.QueryMessageByOffsetResponse(
            messages=[self.message(at) for at in range(queue_offset, end) if self.kinds[at] != "X"],
            next_queue_offset=end,
            min_offset=self.first,
            max_offset=len(self.kinds),
        )

    def message(self, at: int) -> StoredMessage:
        source = MESSAGE_SOURCE_LIVE if self.kinds[at] == "L" else MESSAGE_SOURCE_ARCHIVE
        return StoredMessage(queue_offset=at, tags="a" if self.wanted[at] else "b", source=source)


def thinned(queue: ThinnedQueue, *, sql: bool, fail_on_data_loss: bool) -> list[int]:
    """The positions of the rows of all of the queue."""
    asked = MessageRange("here", KEY, 0, len(queue.kinds))
    wanted = filter_of(frozenset("a"), "TAGS = 'a'" if sql else "")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "PULL_COUNT_MIN", 2)
        patch.setattr(reading, "QUERIED_COUNT", 5)
        pages = Pages(cast(Gateway, queue), asked, wanted, retry_seconds=0.01)
        return [
            message.queue_offset
            for page in reading._pages(pages, asked, fail_on_data_loss=fail_on_data_loss)
            for message in page.messages
            if sql or message.tags == "a"
        ]


@given(
    archived=st.text("AX", max_size=9),
    lost_since=st.integers(0, 9),
    live=st.integers(0, 21),
    wanted=st.lists(st.booleans(), min_size=39, max_size=39),
    batch=st.integers(1, 12),
    sql=st.booleans(),
)
def test_a_filter_hides_no_lost_and_no_archived_message(
    archived: str, lost_since: int, live: int, wanted: list[bool], batch: int, sql: bool
) -> None:
    kinds = archived + "X" * lost_since + "L" * live
    queue = ThinnedQueue(kinds, wanted, len(archived), batch)

    if "X" in kinds or (sql and "A" in kinds):
        with pytest.raises((DataLostError, FilterNotAppliedError)) as failure:
            thinned(queue, sql=sql, fail_on_data_loss=True)
        if isinstance(failure.value, DataLostError):
            assert set(kinds[failure.value.begin : failure.value.end]) == {"X"}
        else:
            assert sql
    if not (sql and "A" in kinds):
        rows = thinned(queue, sql=sql, fail_on_data_loss=False)
        assert rows == [at for at, kind in enumerate(kinds) if kind != "X" and wanted[at]]


def test_tags_travel_with_the_pull_and_skipped_positions_are_not_asked_for_again() -> None:
    queue = ThinnedQueue("L" * 500, [at % 50 == 0 for at in range(500)], 0, 80)
    assert thinned(queue, sql=False, fail_on_data_loss=True) == list(range(0, 500, 50))
    assert queue.pulled_from == [(0, True)]


def test_tags_of_many_messages_are_compared_here_since_a_filter_costs_the_services_more() -> None:
    wanted = [at >= 240 and at % 10 == 0 for at in range(500)]
    queue = ThinnedQueue("L" * 500, wanted, 0, 80)
    assert thinned(queue, sql=False, fail_on_data_loss=True) == list(range(240, 500, 10))
    assert queue.pulled_from == [(0, True), (320, False)]
    queue.pulled_from = []
    assert thinned(queue, sql=True, fail_on_data_loss=True) == list(range(240, 500, 10))
    assert queue.pulled_from == [(0, True)]


def test_sql_is_pulled_again_after_a_failure_that_passes_and_another_one_is_an_error() -> None:
    queue = ThinnedQueue("L" * 500, [True] * 500, 0, 80)
    queue.failures = [UnavailableError("away"), UnavailableError("still")]
    assert thinned(queue, sql=True, fail_on_data_loss=True) == list(range(500))
    queue.failures = [UnavailableError("away")] * 100_000
    with pytest.raises(UnavailableError):
        thinned(queue, sql=True, fail_on_data_loss=True)
    queue.failures = [UnsupportedStoreError("too large")]
    with pytest.raises(UnsupportedStoreError):
        thinned(queue, sql=True, fail_on_data_loss=True)
