"""QueueReader: what it gives of a queue agrees with what its life has seen of the log."""

from typing import cast

import pytest

from reput.consumequeue.v1 import consumequeue_service_pb2 as pb
from reput.message.v1.message_pb2 import StoredMessage
from services.calling.commitlog import CommitLogClient
from services.reading.queue_reader import QueueRange, QueueReader, UnitRun, checked
from services.reading.recent_units import RecentUnits
from store.derive.dispatch import DispatchRequest
from store.derive.dispatch_columns import DispatchColumns
from store.errors import ServiceUnavailableError, StoreCorruptedError, TopicNotFoundError, UnsupportedStoreError
from store.format.derived.queue_unit import QueueUnit
from store.format.properties import LightPlace
from tests.support.calls import Answers


class Queues(Answers):
    """A consumequeue service that has built this many units of every queue."""

    def __init__(self, built_count: int) -> None:
        self.built_count = built_count

    def GetQueueUnits(self, request: pb.GetQueueUnitsRequest) -> pb.GetQueueUnitsResponse:
        queue_offset, count = request.queue_offset, request.max_units
        units = [
            pb.QueueUnit(queue_offset=at, commit_log_offset=at * 100, record_size_bytes=100)
            for at in range(queue_offset, min(queue_offset + count, self.built_count))
        ]
        return pb.GetQueueUnitsResponse(units=units, min_offset=0, max_offset=self.built_count)

    def SearchOffset(self, _request: pb.SearchOffsetRequest) -> pb.SearchOffsetResponse:
        return pb.SearchOffsetResponse(queue_offset=7, max_offset=self.built_count, unproven=True)


def make_reader(queues: Queues, seen_count: int) -> QueueReader:
    recent = RecentUnits()
    recent.set_ends([("orders", 0, seen_count)])
    return QueueReader(recent, queues, cast(CommitLogClient, None))


def test_a_position_never_gets_ahead_of_the_end_that_deliveries_know() -> None:
    """Two services follow the log, each at its pace. A group that read beyond the end it knew was then set back to that end,
    and lost what it had in flight."""
    reader = make_reader(Queues(built_count=23), seen_count=20)
    run = reader.units("orders", 0, 2, 32)
    assert run.queue_offset + len(run.units) == 20
    assert reader.units("orders", 0, 20, 32) == UnitRun(20, ())


def test_units_that_are_not_built_yet_are_left_out() -> None:
    reader = make_reader(Queues(built_count=5), seen_count=20)
    assert len(reader.units("orders", 0, 2, 32).units) == 3
    assert not reader.units("orders", 0, 5, 32).units


def test_a_reset_to_a_time_never_moves_a_group_to_a_position_that_is_not_proven() -> None:
    reader = make_reader(Queues(built_count=20), seen_count=20)
    with pytest.raises(UnsupportedStoreError, match="store times of queue 3 of topic orders may fall"):
        reader.offset_at("orders", 3, 1_000, is_exact=True)
    assert reader.offset_at("orders", 3, 1_000) == 7


def test_a_queue_without_messages_is_not_asked_for_its_first() -> None:
    queue_reader = QueueReader(RecentUnits(), cast(Queues, None), cast(CommitLogClient, None))
    assert queue_reader.range("orders", 0) == QueueRange(0, 0)


class LightQueues(Answers):
    """A consumequeue service with the light queue `%LMQ%a`, whose position 2 has no message, and none else."""

    POSITIONS = (1, 3, 4, 5)

    def GetQueueUnits(self, request: pb.GetQueueUnitsRequest) -> pb.GetQueueUnitsResponse:
        if request.topic != "%LMQ%a":
            raise TopicNotFoundError("no such queue")
        wanted = [at for at in self.POSITIONS if at >= request.queue_offset][: request.max_units]
        units = [pb.QueueUnit(queue_offset=at, commit_log_offset=at * 100, record_size_bytes=100) for at in wanted]
        return pb.GetQueueUnitsResponse(units=units, min_offset=1, max_offset=6)


def test_units_of_a_light_queue_are_asked_for_each_time_and_end_at_a_gap() -> None:
    """Deliveries know nothing of it: its records are of other topics."""
    reader = QueueReader(RecentUnits(), LightQueues(), cast(CommitLogClient, None))

    def positions(queue_offset: int, count: int) -> tuple[int, list[int]]:
        run = reader.units("%LMQ%a", 0, queue_offset, count)
        return run.queue_offset, [unit.commit_log_offset // 100 for unit in run.units]

    assert reader.range("%LMQ%a", 0) == QueueRange(1, 6)
    assert (positions(0, 9), positions(2, 9), positions(4, 1)) == ((1, [1]), (3, [3, 4, 5]), (4, [4]))
    assert positions(6, 9) == (6, [])
    assert reader.range("%LMQ%b", 0) == QueueRange(0, 0)
    assert reader.units("%LMQ%b", 0, 0, 9) == UnitRun(0, [])


@pytest.mark.parametrize(("queue_offset", "is_there"), [(7, True), (0, False)])
def test_a_record_is_given_from_the_light_queue_and_position_that_it_names(queue_offset: int, is_there: bool) -> None:
    record = StoredMessage(
        topic="orders", properties={"INNER_MULTI_DISPATCH": "%LMQ%a", "INNER_MULTI_QUEUE_OFFSET": "7"}
    )

    assert (checked(record, "%LMQ%a", 0, queue_offset) is record) is is_there
    assert isinstance(checked(record, "%LMQ%b", 0, 7), StoreCorruptedError)


class BuiltLater(Answers):
    """A consumequeue service that has built its queues up to a byte of the log, and has the light queue `%LMQ%$p$a`."""

    def __init__(self, next_offset: int) -> None:
        self.next_offset = next_offset

    def GetQueueUnits(self, request: pb.GetQueueUnitsRequest) -> pb.GetQueueUnitsResponse:
        if request.topic != "%LMQ%$p$a":
            raise TopicNotFoundError("no such queue")
        units = [pb.QueueUnit(queue_offset=0, commit_log_offset=0, record_size_bytes=100)]
        return pb.GetQueueUnitsResponse(
            units=units if request.queue_offset == 0 else (), max_offset=1, next_offset=self.next_offset
        )

    def GetStatus(self, request: pb.GetStatusRequest) -> pb.GetStatusResponse:
        return pb.GetStatusResponse(next_offset=self.next_offset)

    def ListLightQueues(self, request: pb.ListLightQueuesRequest) -> pb.ListLightQueuesResponse:
        is_first = not request.page_token
        return pb.ListLightQueuesResponse(
            names=["a"] if is_first else [],
            max_offsets=[1] if is_first else [],
            next_page_token=5 if is_first else 0,
            next_offset=self.next_offset,
        )


def test_a_light_queue_is_empty_only_when_all_is_built_that_memory_does_not_have() -> None:
    queues, recent = BuiltLater(500), RecentUnits()
    recent.light_before = 1_000
    reader = QueueReader(recent, queues, cast(CommitLogClient, None))
    assert len(reader.units("%LMQ%$p$a", 0, 0, 9).units) == 1
    for name, queue_offset in (("%LMQ%$p$a", 1), ("%LMQ%$p$none", 0)):
        with pytest.raises(ServiceUnavailableError):
            reader.units(name, 0, queue_offset, 9)
    with pytest.raises(ServiceUnavailableError):
        reader.range("%LMQ%$p$a", 0)
    with pytest.raises(ServiceUnavailableError):
        list(reader.light_ends("%LMQ%$p$", 10))
    queues.next_offset = 1_000
    assert reader.units("%LMQ%$p$none", 0, 0, 9) == UnitRun(0, [])
    assert reader.units("%LMQ%$p$a", 0, 1, 9) == UnitRun(1, [])
    assert reader.range("%LMQ%$p$a", 0) == QueueRange(0, 1)
    assert list(reader.light_ends("%LMQ%$p$", 10)) == [[("%LMQ%$p$a", 1)], []]


def test_a_light_queue_that_is_built_again_is_not_taken_for_an_empty_one() -> None:
    queues, recent = BuiltLater(1_000), RecentUnits()
    recent.light_before = 1_000
    reader = QueueReader(recent, queues, cast(CommitLogClient, None))
    assert reader.units("%LMQ%$p$a", 0, 1, 9) == UnitRun(1, [])
    queues.next_offset = 300
    for name in ("%LMQ%$p$a", "%LMQ%$p$none"):
        with pytest.raises(ServiceUnavailableError):
            reader.units(name, 0, 1, 9)


def test_the_newest_units_of_a_light_queue_are_read_from_memory() -> None:
    recent = RecentUnits()
    places = [LightPlace("%LMQ%$p$b", at) for at in range(3)]
    recent.add(
        DispatchColumns.of(
            [
                DispatchRequest("p", 0, at, at * 100, 100, 7, 0, (), "", 0, 0, light_places=(place,))
                for at, place in enumerate(places)
            ]
        )
    )
    reader = QueueReader(recent, BuiltLater(0), cast(CommitLogClient, None))
    assert reader.units("%LMQ%$p$b", 0, 1, 1) == UnitRun(1, [QueueUnit(100, 100, 7)])
    assert reader.units("%LMQ%$p$b", 0, 3, 9) == UnitRun(3, [])
    assert reader.range("%LMQ%$p$b", 0) == QueueRange(0, 3)
