"""Streams through real gateways: offsets, limits, restarts, lost data; the reader is driven as Spark drives it."""

import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

from pipeline.rocketmq.errors import DataLostError
from pipeline.rocketmq.gateway import Gateway
from pipeline.rocketmq.positions import QueueKey
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2
from reput_client import AdminClient, QueryClient, TrackState
from reput_client.errors import PartialAnswerError, TopicNotFoundError, UnavailableError
from tests.pipeline.rocketmq.gateways import append, micro_batches, read_partitions, stream_reader
from tests.support.service import Service
from tests.support.stack import HostedStack, hosted_stack
from tests.support.waiting import WAIT_SECONDS_MAX, wait_for

QUEUE_COUNT = 8
# Log files of some 40 records, which expire at any hour once they are a second old.
SMALL_FILES = {"REPUT_COMMITLOG_FILE_SIZE_BYTES": "16384", "REPUT_CONSUMEQUEUE_FILE_SIZE_BYTES": "400"}
EXPIRING = SMALL_FILES | {
    "REPUT_COMMITLOG_FILE_RESERVED_SECONDS": "1",
    "REPUT_COMMITLOG_DELETE_WHEN_HOURS": ";".join(str(hour) for hour in range(24)),
}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostedStack]:
    with hosted_stack(tmp_path_factory.mktemp("stream") / "store") as stack:
        yield stack


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic of the test's own."""
    name: str = request.node.originalname.removeprefix("test_")[:100]
    return name


def fill(stack: HostedStack, topic: str, begin: int, end: int, size_bytes: int = 0, **fields: Any) -> None:
    append(stack.addresses["gateway"], topic, [b"%d" % i + bytes(size_bytes) for i in range(begin, end)], **fields)
    stack.wait_until_built()


def numbers(rows: list[dict[str, Any]]) -> list[int]:
    return sorted(int(row["body"].rstrip(b"\0")) for row in rows)


def test_a_stream_begins_at_the_end_and_reads_what_comes(stack: HostedStack, topic: str) -> None:
    fill(stack, topic, 0, 10)
    reader = stream_reader(stack.addresses["gateway"], subscribe=topic)
    start = reader.initialOffset()
    assert list(micro_batches(reader, start)) == []

    fill(stack, topic, 10, 30)
    assert [numbers(rows) for rows in micro_batches(reader, start)] == [list(range(10, 30))]
    reader.stop()


def test_offsets_are_plain_json_and_nothing_new_is_the_same_offset(stack: HostedStack, topic: str) -> None:
    fill(stack, topic, 0, 10)
    reader = stream_reader(stack.addresses["gateway"], subscribe=topic, startingOffsets="earliest")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())

    assert json.loads(json.dumps(end)) == end
    assert reader.reportLatestOffset() == end
    assert reader.latestOffset(end, ReadAllAvailable()) == end
    assert json.dumps(reader.latestOffset(json.loads(json.dumps(end)), ReadAllAvailable())) == json.dumps(end)


def test_a_reader_that_read_pickles_without_its_connections(stack: HostedStack, topic: str) -> None:
    fill(stack, topic, 0, 10)
    reader = stream_reader(stack.addresses["gateway"], subscribe=topic, startingOffsets="earliest")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    partitions = reader.partitions(start, end)

    elsewhere = pickle.loads(pickle.dumps(reader))
    reader.stop()
    assert numbers(read_partitions(elsewhere, partitions)) == list(range(10))


def test_the_same_offsets_are_the_same_rows_again(stack: HostedStack, topic: str) -> None:
    """What a restart after a kill does: a new reader, the checkpoint's offsets, though more has come since."""
    fill(stack, topic, 0, 50)
    options = {"subscribe": topic, "startingOffsets": "earliest", "minPartitions": "12"}
    first = stream_reader(stack.addresses["gateway"], **options)
    start = first.initialOffset()
    end = first.latestOffset(start, ReadAllAvailable())
    rows = read_partitions(first, first.partitions(start, end))
    first.stop()
    fill(stack, topic, 50, 80)

    again = stream_reader(stack.addresses["gateway"], **options)
    assert read_partitions(again, again.partitions(start, end)) == rows
    assert numbers(rows) == list(range(50))
    again.stop()


def test_a_limit_in_messages_cuts_micro_batches(stack: HostedStack, topic: str) -> None:
    fill(stack, topic, 0, 100)
    reader = stream_reader(
        stack.addresses["gateway"], subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="30"
    )
    assert reader.getDefaultReadLimit() == ReadMaxRows(30)

    batches = list(micro_batches(reader, reader.initialOffset()))

    assert [len(rows) for rows in batches] == [30, 30, 30, 10]
    assert numbers([row for rows in batches for row in rows]) == list(range(100))
    # The engine's limit rules: it asks for all when a trigger says so.
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    assert len(read_partitions(reader, reader.partitions(start, end))) == 100
    reader.stop()


def test_a_limit_in_bytes_cuts_micro_batches(stack: HostedStack, topic: str) -> None:
    fill(stack, topic, 0, 200, size_bytes=1000)
    reader = stream_reader(
        stack.addresses["gateway"], subscribe=topic, startingOffsets="earliest", maxBytesPerTrigger="64k"
    )
    assert reader.getDefaultReadLimit() == ReadMaxBytes(64 << 10)

    batches = list(micro_batches(reader, reader.initialOffset()))

    sizes = [sum(row["storeSize"] for row in rows) for rows in batches]
    assert all((48 << 10) < size <= (64 << 10) for size in sizes[:-1]), sizes
    assert sizes[-1] <= 64 << 10
    assert numbers([row for rows in batches for row in rows]) == list(range(200))
    reader.stop()


def test_a_record_larger_than_the_limit_passes_alone(stack: HostedStack, topic: str) -> None:
    fill(stack, topic, 0, 3, size_bytes=5000, queue_id=0)
    reader = stream_reader(
        stack.addresses["gateway"], subscribe=topic, startingOffsets="earliest", maxBytesPerTrigger="100"
    )
    assert [numbers(rows) for rows in micro_batches(reader, reader.initialOffset())] == [[0], [1], [2]]
    reader.stop()


def test_available_now_ends_with_what_was_there(stack: HostedStack, topic: str) -> None:
    fill(stack, topic, 0, 40)
    reader = stream_reader(
        stack.addresses["gateway"], subscribePattern=f"{topic}.*", startingOffsets="earliest", maxOffsetsPerTrigger="25"
    )
    start = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    fill(stack, topic, 40, 60)
    fill(stack, topic + "_later", 60, 70)  # a topic that the pattern matches

    batches = list(micro_batches(reader, start))

    assert numbers([row for rows in batches for row in rows]) == list(range(40))
    reader.stop()


def test_a_new_topic_of_a_pattern_is_read_from_its_beginning(stack: HostedStack, topic: str) -> None:
    fill(stack, topic, 0, 5)
    reader = stream_reader(stack.addresses["gateway"], subscribePattern=f"{topic}.*")
    start = reader.initialOffset()
    fill(stack, topic + "_second", 5, 25)

    assert [numbers(rows) for rows in micro_batches(reader, start)] == [list(range(5, 25))]
    reader.stop()


def test_a_queue_that_a_topic_gets_while_its_stream_is_away_is_read_from_its_first_message(
    stack: HostedStack, topic: str
) -> None:
    endpoint = stack.addresses["gateway"]
    fill(stack, topic, 0, 5)
    before = stream_reader(endpoint, subscribe=topic, startingOffsets="latest", consumerGroup="away")
    start = before.initialOffset()
    before.stop()
    with AdminClient(endpoint) as admin:
        admin.update_topic(topic, write_queue_count=QUEUE_COUNT + 2, read_queue_count=QUEUE_COUNT + 2)
    fill(stack, topic, 5, 15, queue_id=QUEUE_COUNT + 1)

    resumed = stream_reader(endpoint, subscribe=topic, startingOffsets="latest", consumerGroup="away")
    assert [numbers(rows) for rows in micro_batches(resumed, start)] == [list(range(5, 15))]
    resumed.stop()
    with QueryClient(endpoint) as client:
        (old,) = client.by_offset(topic, 0, 0, max_messages=1)
        assert [(each.consumer_group, each.state) for each in client.track(old.offset_msg_id).tracks] == [
            ("away", TrackState.SKIPPED)
        ]


def test_what_was_deleted_with_a_topic_is_not_read(stack: HostedStack, topic: str) -> None:
    endpoint = stack.addresses["gateway"]
    fill(stack, topic, 0, 10)
    with AdminClient(endpoint) as admin:
        admin.delete_topic(topic)
    fill(stack, topic, 10, 14)
    reader = stream_reader(endpoint, subscribe=topic, startingOffsets="earliest")
    assert [numbers(rows) for rows in micro_batches(reader, reader.initialOffset())] == [list(range(10, 14))]
    reader.stop()


def test_a_time_to_begin_at(stack: HostedStack, topic: str) -> None:
    fill(stack, topic, 0, 10, queue_id=0)
    reader = stream_reader(stack.addresses["gateway"], subscribe=topic, startingOffsets="earliest")
    rows = next(micro_batches(reader, reader.initialOffset()))
    middle = rows[5]["storeTimestamp"]
    reader.stop()

    later = stream_reader(
        stack.addresses["gateway"], subscribe=topic, startingTimestamp=str(round(middle.timestamp() * 1000))
    )
    found = next(micro_batches(later, later.initialOffset()))
    assert numbers(found) == numbers([row for row in rows if row["storeTimestamp"] >= middle])
    later.stop()


class BuildingGateway(Gateway):
    """A gateway whose queue is being built again, as after a crash: shorter than it was, and it says so."""

    def __init__(self, partial_count: int) -> None:
        super().__init__("127.0.0.1:1", retry_seconds=0.3)
        self.partial_count = partial_count

    def messages(self, key: QueueKey, queue_offset: int, count: int) -> pb.QueryMessageByOffsetResponse:
        self.partial_count -= 1
        if self.partial_count < 0:
            return pb.QueryMessageByOffsetResponse(
                max_offset=9, next_queue_offset=9, completeness=message_pb2.COMPLETENESS_COMPLETE
            )
        return pb.QueryMessageByOffsetResponse(
            max_offset=2, next_queue_offset=2, completeness=message_pb2.COMPLETENESS_PARTIAL
        )


def test_a_queue_that_is_being_built_again_is_waited_for() -> None:
    key = QueueKey("T", "broker-a", 0)
    with BuildingGateway(2) as gateway:
        assert gateway.messages_or_end(key, 5, 4).max_offset == 9
    with BuildingGateway(1000) as gateway, pytest.raises(PartialAnswerError):
        gateway.messages_or_end(key, 5, 4)


def test_an_unknown_topic_is_an_error_at_the_start(stack: HostedStack) -> None:
    with pytest.raises(TopicNotFoundError, match="'Nobody'"):
        stream_reader(stack.addresses["gateway"], subscribe="Nobody").initialOffset()


@pytest.mark.spark
def test_a_gateway_restarts_in_the_middle_of_a_stream(tmp_path: Path) -> None:
    """Calls of the driver and pages of a task wait for it, and rows come once."""
    with hosted_stack(tmp_path / "store") as stack:
        targets = {
            f"REPUT_{name.upper()}_TARGET": stack.addresses[name] for name in ("commitlog", "consumequeue", "index")
        }
        fill(stack, "Orders", 0, 3000, queue_id=0)
        gateway = Service("gateway", tmp_path, targets)
        endpoint = gateway.address
        fixed = targets | {"REPUT_GATEWAY_ADDRESS": endpoint}
        try:
            reader = stream_reader(endpoint, subscribe="Orders", startingOffsets="earliest", columns="body")
            start = reader.initialOffset()
            end = reader.latestOffset(start, ReadAllAvailable())
            partitions = reader.partitions(start, end)
            batches = pickle.loads(pickle.dumps(reader)).read(partitions[0])
            rows = next(batches).to_pylist()  # the second page is under way, the third is not
            gateway.kill()
            gateway = Service("gateway", tmp_path, fixed, wait="")
            for batch in batches:
                rows += batch.to_pylist()
            assert [int(row["body"]) for row in rows] == list(range(3000))

            gateway.kill()
            gateway = Service("gateway", tmp_path, fixed, wait="")
            assert reader.latestOffset(end, ReadAllAvailable()) == end
            gateway.kill()
            impatient = stream_reader(endpoint, subscribe="Orders", retrySeconds="0.5")
            with pytest.raises(UnavailableError, match=r"tried for 0\.5 s"):
                impatient.initialOffset()
            impatient.stop()
            reader.stop()
        finally:
            gateway.kill()


@pytest.mark.spark
def test_retention_takes_messages_that_a_stream_has_not_read(tmp_path: Path) -> None:
    options = {"subscribe": "Orders", "startingOffsets": "earliest", "columns": "queueOffset"}
    with hosted_stack(tmp_path / "store", settings=SMALL_FILES) as stack:
        fill(stack, "Orders", 0, 100, size_bytes=200, queue_id=0)
        reader = stream_reader(stack.addresses["gateway"], **options)
        start = reader.initialOffset()
        end = reader.latestOffset(start, ReadAllAvailable())
        planned = [partition.value for partition in reader.partitions(start, end)]
        reader.stop()
    with hosted_stack(tmp_path / "store", settings=EXPIRING) as stack:
        endpoint = stack.addresses["gateway"]
        first = wait_until_first(stack)
        strict = stream_reader(endpoint, **options)
        with pytest.raises(DataLostError, match=r"Messages 0 to .* the queue begins at") as failure:
            strict.partitions(start, end)
        assert failure.value.begin == 0
        assert failure.value.end >= first  # by now it may have taken more

        lenient = stream_reader(endpoint, failOnDataLoss="false", **options)
        rows = read_partitions(lenient, lenient.partitions(start, end))
        assert [row["queueOffset"] for row in rows] == list(range(100))[-len(rows) :]
        assert len(rows) <= 100 - first

        # Planned before the files went, read after.
        moved = [type(each)(endpoint, each.key, each.begin, each.end) for each in planned]
        with pytest.raises(DataLostError, match="Messages 0 to"):
            list(strict._task.read(moved[0]))
        read = [row["queueOffset"] for batch in lenient._task.read(moved[0]) for row in batch.to_pylist()]
        assert read == list(range(100))[-len(read) :]
        strict.stop()
        lenient.stop()


def wait_until_first(stack: HostedStack) -> int:
    """The first position of the queue, once retention has taken some of it."""
    request = pb.QueryMessageByOffsetRequest(topic="Orders", queue_id=0, max_messages=1)
    return wait_for(
        lambda: stack.gateway.QueryMessageByOffset(request, timeout=WAIT_SECONDS_MAX).min_offset or None,
        "the queue begins later",
    )


def test_a_log_that_was_made_anew_is_lost_data(tmp_path: Path) -> None:
    options = {"subscribe": "Orders", "startingOffsets": "earliest"}
    with hosted_stack(tmp_path / "old") as stack:
        fill(stack, "Orders", 0, 50, queue_id=0)
        reader = stream_reader(stack.addresses["gateway"], **options)
        end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
        reader.stop()
    with hosted_stack(tmp_path / "new") as stack:
        fill(stack, "Orders", 0, 20, queue_id=0)
        strict = stream_reader(stack.addresses["gateway"], **options)
        with pytest.raises(DataLostError, match="the queue ends at 20, so its log was cut or replaced"):
            strict.latestOffset(end, ReadAllAvailable())
        strict.stop()

        lenient = stream_reader(stack.addresses["gateway"], failOnDataLoss="false", **options)
        again = lenient.latestOffset(end, ReadAllAvailable())
        assert read_partitions(lenient, lenient.partitions(end, again)) == []
        fill(stack, "Orders", 20, 30, queue_id=0)
        assert [numbers(rows) for rows in micro_batches(lenient, again)] == [list(range(20, 30))]
        lenient.stop()
