"""The consumequeue RPCs, called as gRPC calls them: paging, ranges, refusals."""

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from consumequeue_svc.consume_queue_table import ConsumeQueueTable
from consumequeue_svc.servicer import ConsumeQueueServicer
from reput.consumequeue.v1 import consumequeue_service_pb2 as pb
from services.following.follower_process import FollowerState
from services.following.follower_progress import FollowerProgress
from store.derive.dispatch_columns import DispatchColumns
from store.derive.queue_placement import LightUnit
from store.errors import (
    InvalidArgumentError,
    InvalidPageTokenError,
    QueueNotFoundError,
    StoreRecoveringError,
    TopicNotFoundError,
)
from store.files.file_system import RealFileSystem
from store.format.derived.queue_ext import QueueExtUnit, ext_address, lay_out
from store.format.derived.queue_unit import QueueUnit, decode_queue_units
from tests.support.dispatches import make_request


class Context:
    """A call without a deadline."""

    def time_remaining(self):
        return None


@pytest.fixture
def servicer(tmp_path):
    progress = FollowerProgress()
    table = ConsumeQueueTable(tmp_path, RealFileSystem(), 100)
    table.apply(
        DispatchColumns.of([make_request(n, topic=f"t{n % 3}", queue_id=n % 2, queue_offset=n // 6) for n in range(60)])
    )
    progress.see_log(0, 6000)
    progress.advance(6000)
    servicer = ConsumeQueueServicer(progress, lambda units, _: [u.commit_log_offset for u in units])
    servicer.open(table)
    return servicer


def test_queues_come_in_pages_by_topic_and_number(servicer):
    seen, token = [], ""
    while True:
        response = servicer.ListQueues(pb.ListQueuesRequest(page_size=4, page_token=token), Context())
        seen += [(q.topic, q.queue_id, q.min_offset, q.max_offset) for q in response.queues]
        token = response.next_page_token
        if not token:
            break

    assert seen == [(topic, queue_id, 0, 10) for topic in ("t0", "t1", "t2") for queue_id in (0, 1)]


def test_queues_of_one_topic_are_listed_alone(servicer):
    response = servicer.ListQueues(pb.ListQueuesRequest(topic="t1"), Context())

    assert [queue.topic for queue in response.queues] == ["t1", "t1"]


@pytest.mark.parametrize(
    ("queue_offset", "count"), [(-1, 0), (0, 10), (7, 3), (9, 1), (10, 0), (2**62, 0), (-(2**63), 0)]
)
def test_units_out_of_range_are_none_with_the_range(servicer, queue_offset, count):
    request = pb.GetQueueUnitsRequest(topic="t0", queue_id=0, queue_offset=queue_offset)

    response = servicer.GetQueueUnits(request, Context())

    assert (len(response.units), response.min_offset, response.max_offset) == (count, 0, 10)
    assert (response.next_offset, response.log_end_offset, response.catching_up) == (6000, 6000, False)


@pytest.mark.parametrize(("queue_offset", "max_units"), [(0, 0), (3, 4), (9, 1), (9, 100), (10, 1), (-1, 1)])
def test_packed_units_are_the_units_from_the_position_on(servicer, queue_offset, max_units):
    request = pb.GetQueueUnitsRequest(topic="t0", queue_id=0, queue_offset=queue_offset, max_units=max_units)
    expected = servicer.GetQueueUnits(request, Context())
    request.packed = True

    packed = servicer.GetQueueUnits(request, Context())

    assert list(decode_queue_units(packed.packed_units)) == [
        QueueUnit(unit.commit_log_offset, unit.record_size_bytes, unit.tags_code) for unit in expected.units
    ]
    assert not packed.units
    assert (packed.min_offset, packed.max_offset) == (expected.min_offset, expected.max_offset)


def test_units_with_a_gap_between_them_are_not_packed(servicer, tmp_path):
    gap = [make_request(100, topic="gap", queue_offset=0), make_request(101, topic="gap", queue_offset=3)]
    servicer._queues().apply(DispatchColumns.of(gap))
    request = pb.GetQueueUnitsRequest(topic="gap", queue_id=0, packed=True)

    answer = servicer.GetQueueUnits(request, Context())

    assert not answer.packed_units
    assert [unit.queue_offset for unit in answer.units] == [0, 3]


def test_a_time_is_found(servicer):
    """The double says that a record's store time is its offset."""
    for name, expected in (("LOWER", 3), ("UPPER", 2), ("UNSPECIFIED", 3)):
        time = Timestamp(seconds=1, nanos=201_000_000)
        request = pb.SearchOffsetRequest(topic="t0", queue_id=0, time=time, boundary=f"BOUNDARY_{name}")
        assert servicer.SearchOffset(request, Context()).queue_offset == expected


def test_a_status_for_which_one_may_wait_says_how_far_the_queues_are_without_counting(servicer):
    assert servicer.GetStatus(pb.GetStatusRequest(), Context()).queue_count == 6
    for past_offset in (5999, 6000):  # built, and not built
        status = servicer.GetStatus(pb.GetStatusRequest(past_offset=past_offset, wait_millis=5), Context())
        assert (status.next_offset, status.queue_count) == (6000, 0)


@pytest.mark.parametrize("token", ["x", "@t", "-1@t", "99999999999@t"])
def test_a_foreign_token_is_refused(servicer, token):
    with pytest.raises(InvalidPageTokenError):
        servicer.ListQueues(pb.ListQueuesRequest(page_token=token), Context())


def test_bad_arguments_are_refused(servicer):
    with pytest.raises(InvalidArgumentError):
        servicer.ListQueues(pb.ListQueuesRequest(page_size=-1), Context())
    with pytest.raises(InvalidArgumentError):
        servicer.SearchOffset(pb.SearchOffsetRequest(topic="t0", boundary=9), Context())
    with pytest.raises(TopicNotFoundError):
        servicer.GetQueueUnits(pb.GetQueueUnitsRequest(topic="nope"), Context())
    with pytest.raises(QueueNotFoundError):
        servicer.GetQueueUnits(pb.GetQueueUnitsRequest(topic="t0", queue_id=-1), Context())


def test_before_the_queues_are_open_everything_but_status_asks_to_come_again():
    servicer = ConsumeQueueServicer(FollowerProgress(), lambda units, _: [])

    with pytest.raises(StoreRecoveringError):
        servicer.ListQueues(pb.ListQueuesRequest(), Context())
    servicer.state = lambda: FollowerState("retrying", 3, "no space left")
    status = servicer.GetStatus(pb.GetStatusRequest(), Context())
    assert status.catching_up
    assert (status.state, status.failure_count, status.last_error) == ("retrying", 3, "no space left")


def test_units_that_rocketmq_extended_come_with_their_tags_codes(tmp_path):
    table = ConsumeQueueTable(tmp_path, RealFileSystem(), 100)
    data, addresses = lay_out([QueueExtUnit(2112 + n, 1_000 * n, b"map") for n in range(3)], 0)
    requests = [make_request(n, topic="t", queue_offset=n) for n in range(4)]
    # The address of the last one leads nowhere.
    codes = [*addresses, ext_address(10**9)]
    table.apply(DispatchColumns.of([r._replace(tags_code=c) for r, c in zip(requests, codes, strict=True)]))
    progress = FollowerProgress()
    progress.see_log(0, 6000)
    progress.advance(6000)
    servicer = ConsumeQueueServicer(progress, lambda units, _: [u.commit_log_offset for u in units])
    servicer.open(table)
    folder = tmp_path / "consumequeue_ext" / "t" / str(requests[0].queue_id)
    folder.mkdir(parents=True)
    (folder / "00000000000000000000").write_bytes(data)

    request = pb.GetQueueUnitsRequest(topic="t", queue_id=requests[0].queue_id)
    units = servicer.GetQueueUnits(request, Context()).units

    assert [unit.tags_code for unit in units] == [2112, 2113, 2114, codes[3]]


def test_units_of_a_topic_before_its_deletion_are_as_removed_ones(servicer):
    deleted = {"t1": 2500}
    servicer._deleted_before = lambda topic: deleted.get(topic, 0)

    ranges = {
        q.topic: (q.min_offset, q.max_offset) for q in servicer.ListQueues(pb.ListQueuesRequest(), Context()).queues
    }
    removed = servicer.GetQueueUnits(pb.GetQueueUnitsRequest(topic="t1", queue_id=0, queue_offset=0), Context())
    kept = servicer.GetQueueUnits(pb.GetQueueUnitsRequest(topic="t1", queue_id=0, queue_offset=4), Context())
    found = servicer.SearchOffset(pb.SearchOffsetRequest(topic="t1", queue_id=0), Context())
    asked = servicer.GetQueueUnits(
        pb.GetQueueUnitsRequest(topic="t0", queue_id=0, queue_offset=0, log_first_offset=2500), Context()
    )

    assert ranges == {"t0": (0, 10), "t1": (4, 10), "t2": (0, 10)}
    assert (len(removed.units), removed.min_offset, len(kept.units)) == (0, 4, 6)
    assert (found.min_offset, found.queue_offset) == (4, 4)
    assert (asked.min_offset, len(asked.units)) == (5, 0)


def test_messages_of_a_lite_topic_are_gone_with_its_parent(servicer):
    name = "%LMQ%$t1$chat"
    servicer._table.light.apply([LightUnit(name, n, 1000 * n, 100, 0) for n in range(5)])
    deleted = {"t1": 2500}
    servicer._deleted_before = lambda topic: deleted.get(topic, 0)

    found = servicer.GetQueueUnits(pb.GetQueueUnitsRequest(topic=name, queue_id=0, queue_offset=0), Context())
    kept = servicer.GetQueueUnits(pb.GetQueueUnitsRequest(topic=name, queue_id=0, queue_offset=3), Context())

    assert (len(found.units), found.min_offset, found.max_offset, len(kept.units)) == (0, 3, 5, 2)


def test_light_queues_are_listed_by_the_begin_of_their_names_in_pages(tmp_path):
    progress = FollowerProgress()
    table = ConsumeQueueTable(tmp_path, RealFileSystem(), 100)
    names = [f"%LMQ%${parent}${number}" for number in range(5) for parent in ("p", "q")]
    table.light.apply([LightUnit(name, 0, record * 100, 100, 0) for record, name in enumerate(names)])
    progress.advance(700)
    servicer = ConsumeQueueServicer(progress, lambda units, _: [])
    servicer.open(table)
    seen, token = [], 0
    while True:
        request = pb.ListLightQueuesRequest(prefix="$p$", page_token=token, page_size=3)
        page = servicer.ListLightQueues(request, Context())
        assert page.next_offset == 700
        seen += zip(page.names, page.max_offsets, strict=True)
        token = page.next_page_token
        if not token:
            break
    assert seen == [(str(number), 1) for number in range(5)]
    with pytest.raises(InvalidArgumentError):
        servicer.ListLightQueues(pb.ListLightQueuesRequest(page_size=-1), Context())
