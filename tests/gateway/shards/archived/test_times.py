"""SearchOffset over a shard whose log has lost its front, with an archive: the position is that of the whole queue."""

from pathlib import Path

import pytest

from gateway.ports.deadline import Deadline
from gateway.ports.shard import Built
from gateway.ports.shards import FanOut, Shards
from gateway.ports.time_window import millis_in
from gateway.queries.by_queue_offset import outcome_of, search_offset
from gateway.queries.completeness import judge
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
from reput.message.v1 import message_pb2
from store.errors import QueueNotFoundError, StoreCorruptedError, StoreError, TopicNotFoundError
from store.format.record import Record
from tests.gateway.shards.archived.archived_shard import (
    DAMAGES,
    OLD_TOPIC,
    TOPIC,
    archive_of_first_file,
    archived_orders,
    break_archive,
    front_of,
    shard_of,
)
from tests.support.archives import BEGIN_MILLIS, BROKER, Archived
from tests.support.falling_times import falling_times, moments_of


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Archived:
    return archived_orders(tmp_path_factory.mktemp("archived"))


@pytest.fixture
def shards(made: Archived, fan_out: FanOut) -> Shards:
    return Shards([shard_of(made)], fan_out)


def ask(shards: Shards, queue: tuple[str, int], time_millis: int, boundary: int, deadline: Deadline) -> Built:
    return search_offset(shards, *queue, time_millis, boundary=boundary, broker_name="", deadline=deadline)


def brute_force(rows: list[Record], time_millis: int, boundary: int) -> int:
    """As the query says: the first at or after, else max; the last at or before, else min."""
    if boundary == gateway_pb.BOUNDARY_LOWER:
        at = (r.queue_offset for r in rows if r.store_time_millis >= time_millis)
        return min(at, default=rows[-1].queue_offset + 1)
    return max((r.queue_offset for r in rows if r.store_time_millis <= time_millis), default=rows[0].queue_offset)


def rows_of(made: Archived, queue: tuple[str, int]) -> list[Record]:
    return [made.queues()[queue][offset] for offset in sorted(made.queues()[queue])]


def completeness(found: Built, boundary: int) -> message_pb2.Completeness:
    return judge([outcome_of(BROKER, found, boundary)], more=False)


@pytest.mark.parametrize("boundary", [gateway_pb.BOUNDARY_LOWER, gateway_pb.BOUNDARY_UPPER])
@pytest.mark.parametrize("queue", [(TOPIC, 0), (TOPIC, 1), (OLD_TOPIC, 1)])
def test_each_time_has_its_position_in_the_whole_queue(
    made: Archived, shards: Shards, deadline: Deadline, queue: tuple[str, int], boundary: int
) -> None:
    rows = rows_of(made, queue)

    for time_millis in range(made.records[0].store_time_millis - 2, made.records[-1].store_time_millis + 3):
        found = ask(shards, queue, time_millis, boundary, deadline)
        assert found.answer.queue_offset == brute_force(rows, time_millis, boundary), time_millis
        assert (found.answer.min_offset, found.answer.max_offset) == (rows[0].queue_offset, rows[-1].queue_offset + 1)
        assert millis_in(found.answer, "first_store_time") == rows[0].store_time_millis
        assert millis_in(found.answer, "last_store_time") == rows[-1].store_time_millis
        assert completeness(found, boundary) == message_pb2.COMPLETENESS_COMPLETE


@pytest.mark.parametrize("boundary", [gateway_pb.BOUNDARY_LOWER, gateway_pb.BOUNDARY_UPPER])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_broken_archive_is_told_where_the_position_may_lie_in_it(
    made: Archived, fan_out: FanOut, deadline: Deadline, tmp_path: Path, damage: str, boundary: int
) -> None:
    root = tmp_path / "archive"
    break_archive(made.archive, root, damage)
    shards = Shards([shard_of(made, archive=root)], fan_out)
    rows = rows_of(made, (TOPIC, 0))
    first_live = next(r for r in rows if r.commit_log_offset >= front_of(made))

    for row in rows:
        found = ask(shards, (TOPIC, 0), row.store_time_millis, boundary, deadline)
        is_in_log = row.store_time_millis > first_live.store_time_millis
        if is_in_log:
            assert found.answer.queue_offset == row.queue_offset
            assert completeness(found, boundary) == message_pb2.COMPLETENESS_COMPLETE
        elif row.store_time_millis < first_live.store_time_millis:
            assert isinstance(found.problem, StoreError)
            assert completeness(found, boundary) == message_pb2.COMPLETENESS_PARTIAL


def test_what_neither_archive_nor_log_has_is_told(
    made: Archived, fan_out: FanOut, deadline: Deadline, tmp_path: Path
) -> None:
    shards = Shards([shard_of(made, archive=archive_of_first_file(made, tmp_path))], fan_out)
    first = rows_of(made, (TOPIC, 0))[0]

    found = ask(shards, (TOPIC, 0), first.store_time_millis, gateway_pb.BOUNDARY_LOWER, deadline)

    assert isinstance(found.problem, StoreCorruptedError)
    assert "not in the archive" in found.problem.message


def test_a_queue_that_neither_has_is_not_found(shards: Shards, deadline: Deadline) -> None:
    for queue, error in ((("absent", 0), TopicNotFoundError), ((TOPIC, 9), QueueNotFoundError)):
        with pytest.raises(error):
            ask(shards, queue, 0, gateway_pb.BOUNDARY_LOWER, deadline)


@pytest.mark.parametrize("boundary", [gateway_pb.BOUNDARY_LOWER, gateway_pb.BOUNDARY_UPPER])
@pytest.mark.parametrize("seed", range(4))
def test_positions_over_archive_and_queue_are_those_of_brute_force_where_times_fall(
    fan_out: FanOut, deadline: Deadline, tmp_path: Path, seed: int, boundary: int
) -> None:
    times = falling_times(BEGIN_MILLIS, 60, seed, fall_share=0.2)
    made = archived_orders(tmp_path, time_of=times.__getitem__)
    shards = Shards([shard_of(made)], fan_out)

    for queue in ((TOPIC, 0), (TOPIC, 1)):
        rows = rows_of(made, queue)
        for time_millis in moments_of(times, 30, seed):
            found = ask(shards, queue, time_millis, boundary, deadline)
            assert (found.answer.queue_offset, found.problem) == (brute_force(rows, time_millis, boundary), None), (
                time_millis
            )
