"""Light queues (LMQ) of a store that RocketMQ 5.5.0 wrote: each answer that its broker gave, before and after starts.

Where RocketMQ's own answer is wrong, the record is the judge (ADR 0154).
"""

import contextlib
import hashlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2
from services.rocketmq.codes import RequestCode
from tests.cli.test_fsck import CLEAN, REPAIRED, fsck
from tests.gateway.remoting.requests import DoorClient, pull_fields, records
from tests.support.fixture_stores import read_rows, unpack_store
from tests.support.stack import HostedStack, hosted_stack
from tests.support.waiting import WAIT_SECONDS_MAX

ROWS = read_rows("light.queries.jsonl")
# The broker puts its second unit one position too early; the record says 2.
DOUBLED = "%LMQ%twice"
# The broker shows half messages, one of them rolled back; their positions are gaps here.
TRANSACTIONAL = "%LMQ%tx"
# Some of their records are of the topic `payments`, and lite topics are of records of their parent (ADR 0156).
LITE = ("%LMQ%$orders$lite-1", "%LMQ%$orders$lite-2")
COMPLETE = message_pb2.COMPLETENESS_COMPLETE


def rows_of(mode: str) -> list[dict[str, Any]]:
    left_out = (DOUBLED, TRANSACTIONAL, *LITE, "%LMQ%x/y")  # a broker refuses to store the last
    rows = [row for row in ROWS if row["mode"] == mode and row["topic"] not in left_out]
    assert rows, mode
    return rows


def light_files(root: Path) -> dict[str, str]:
    """What a broker made for light queues, with a digest of each file."""
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted((root / "consumequeue").glob("%LMQ%*/0/*"))
    }


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack_store("light", tmp_path_factory.mktemp("light") / "store")


STARTS = ["read only", "taken over", "started again", "checkpoint lost", "a broker's files lost"]


@pytest.fixture(scope="module", params=STARTS)
def stack(request: pytest.FixtureRequest, root: Path) -> Iterator[HostedStack]:
    """One store after the other ways to start, in this order."""
    before = light_files(root)
    if request.param == "checkpoint lost":
        (root / "reput/consumequeue/checkpoint.json").unlink(missing_ok=True)
    if request.param == "a broker's files lost":
        shutil.rmtree(root / "consumequeue/%LMQ%a")
        before = light_files(root)
    address_file = root.with_name("remoting-address")
    settings = {
        "REPUT_GATEWAY_REMOTING_ADDRESS": "127.0.0.1:0",
        "REPUT_GATEWAY_REMOTING_ADDRESS_FILE": str(address_file),
    }
    with hosted_stack(root, read_only=request.param == "read only", settings=settings) as stack:
        stack.wait_until_built()
        yield stack
    assert before == light_files(root)


@pytest.fixture
def client(root: Path, stack: HostedStack) -> Iterator[DoorClient]:
    """A connection to the remoting door of the stack."""
    with contextlib.closing(DoorClient(root.with_name("remoting-address").read_text().strip())) as client:
        yield client


def by_offset(stack: HostedStack, topic: str, queue_offset: int, count: int = 1) -> pb.QueryMessageByOffsetResponse:
    request = pb.QueryMessageByOffsetRequest(topic=topic, queue_id=0, queue_offset=queue_offset, page_size=count)
    answer: pb.QueryMessageByOffsetResponse = stack.gateway.QueryMessageByOffset(request, timeout=WAIT_SECONDS_MAX)
    return answer


def as_row(message: message_pb2.StoredMessage) -> dict[str, object]:
    """As the rows show one; their queue number is the one that the pull asked for, which the client sets."""
    return {
        "topic": message.topic,
        "queue_offset": message.queue_offset,
        "physical_offset": message.commit_log_offset,
        "store_size": message.store_size_bytes,
        "store_timestamp": message.store_time.seconds * 1000 + message.store_time.nanos // 1_000_000,
        "body_sha256": hashlib.sha256(message.body).hexdigest(),
        "dispatch": message.properties["INNER_MULTI_DISPATCH"],
        "places": message.properties["INNER_MULTI_QUEUE_OFFSET"],
    }


def broker_row(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row["messages"][0].items() if name != "queue_id"}


def test_each_position_of_a_light_queue_has_the_message_that_the_broker_gives(stack: HostedStack) -> None:
    by_queue: dict[str, list[dict[str, Any]]] = {}
    for row in rows_of("offset"):
        by_queue.setdefault(row["topic"], []).append(row)
    for topic, rows in by_queue.items():
        answer = by_offset(stack, topic, rows[0]["offset"], len(rows))

        assert [as_row(message) for message in answer.messages] == [broker_row(row) for row in rows], topic
        assert answer.completeness == COMPLETE
    for row in rows_of("offset")[::17]:
        answer = by_offset(stack, row["topic"], row["offset"])

        assert [as_row(message) for message in answer.messages] == [broker_row(row)], row


def test_light_queues_have_the_ranges_that_the_broker_says(stack: HostedStack) -> None:
    for row in rows_of("range"):
        answer = stack.gateway.ListTopics(pb.ListTopicsRequest(topic=row["topic"]), timeout=WAIT_SECONDS_MAX)
        ranges = [
            (queue.queue_id, queue.min_offset, queue.max_offset) for topic in answer.topics for queue in topic.queues
        ]

        assert ranges == ([(0, row["min"], row["max"])] if row["max"] else []), row


def test_times_lead_to_the_positions_that_the_broker_says(stack: HostedStack) -> None:
    for row in rows_of("offset_for_time")[::3]:
        time = Timestamp(seconds=row["timestamp"] // 1000, nanos=row["timestamp"] % 1000 * 1_000_000)
        request = pb.SearchOffsetRequest(topic=row["topic"], queue_id=0, time=time, boundary=pb.BOUNDARY_LOWER)
        answer = stack.gateway.SearchOffset(request, timeout=WAIT_SECONDS_MAX)

        assert answer.queue_offset == row["offset"], row


def test_a_message_stands_where_its_record_says_although_the_broker_puts_it_elsewhere(stack: HostedStack) -> None:
    answer = by_offset(stack, DOUBLED, 0, 9)

    assert [message.properties["INNER_MULTI_QUEUE_OFFSET"] for message in answer.messages] == ["0,0", "2"]
    assert (answer.min_offset, answer.max_offset, answer.next_queue_offset) == (0, 3, 3)
    assert [message.properties["INNER_MULTI_QUEUE_OFFSET"] for message in by_offset(stack, DOUBLED, 1).messages] == [
        "2"
    ]


def test_a_lite_topic_has_the_messages_of_its_parent_and_no_others(stack: HostedStack) -> None:
    for name in LITE:
        brokers = [row for row in ROWS if row["mode"] == "offset" and row["topic"] == name]
        rows = [row for row in brokers if row["messages"][0]["topic"] == "orders"]
        assert 0 < len(rows) < len(brokers)

        answer = by_offset(stack, name, rows[0]["offset"], 99)

        assert [as_row(message) for message in answer.messages] == [broker_row(row) for row in rows]


def test_half_messages_are_in_no_light_queue(stack: HostedStack) -> None:
    answer = by_offset(stack, TRANSACTIONAL, 1, 9)

    assert (answer.min_offset, answer.max_offset) == (1, 5)
    assert {message.topic for message in answer.messages} == {"orders"}
    assert {message.properties["KEYS"] for message in answer.messages} == {"tk0", "tk2"}  # tk1 was rolled back
    broker = [row["messages"][0]["topic"] for row in ROWS if row["topic"] == TRANSACTIONAL and row["mode"] == "offset"]
    assert "RMQ_SYS_TRANS_HALF_TOPIC" in broker


def test_pulls_over_remoting_bring_what_the_broker_brings(client: DoorClient) -> None:
    for row in rows_of("offset")[::13]:
        answer = client.call(RequestCode.PULL_MESSAGE, **pull_fields(row["topic"], row["offset"], maxMsgNums=1))

        assert (answer.code, int(answer.fields["nextBeginOffset"])) == (0, row["offset"] + 1), row
        (record,) = records(answer.body)
        expected = row["messages"][0]
        assert (record.topic, record.queue_offset, record.commit_log_offset) == (
            expected["topic"], expected["queue_offset"], expected["physical_offset"],
        )  # fmt: skip
    for row in rows_of("tag_pull"):
        fields = pull_fields(row["topic"], row["offset"], subscription=row["expression"])
        answer = client.call(RequestCode.PULL_MESSAGE, **fields)

        found = [record.commit_log_offset for record in records(answer.body)]
        status = {0: "FOUND", 19: "NO_NEW_MSG", 20: "NO_MATCHED_MSG"}[answer.code]
        # A broker ends a pull earlier than we where its filter leaves out much.
        assert (status, found[: len(row["physical_offsets"])]) == (row["status"], row["physical_offsets"]), row
        assert int(answer.fields["nextBeginOffset"]) >= row["next_begin_offset"]


def test_ends_and_times_over_remoting_are_those_of_the_broker(client: DoorClient) -> None:
    for row in rows_of("range"):
        ends = [
            int(client.call(code, topic=row["topic"], queueId=0).fields["offset"])
            for code in (RequestCode.GET_MIN_OFFSET, RequestCode.GET_MAX_OFFSET)
        ]
        assert ends == [row["min"], row["max"]], row
    for row in rows_of("offset_for_time")[1::5]:
        fields = {"topic": row["topic"], "queueId": 0, "timestamp": row["timestamp"]}
        answer = client.call(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, **fields)

        assert int(answer.fields["offset"]) == row["offset"], row


def test_a_pull_over_grpc_brings_every_message_of_a_light_queue(stack: HostedStack) -> None:
    rows = [row for row in rows_of("offset") if row["topic"] == "%LMQ%a"]
    request = pb.PullMessagesRequest(consumer_group="readers", topic="%LMQ%a", queue_id=0)
    stream = stack.gateway.PullMessages(request, timeout=WAIT_SECONDS_MAX)
    found: list[int] = []
    while len(found) < len(rows):
        found += [message.commit_log_offset for message in next(stream).messages]
    stream.cancel()

    assert found == [row["messages"][0]["physical_offset"] for row in rows]


def test_another_queue_of_the_name_is_not_there(stack: HostedStack) -> None:
    request = pb.QueryMessageByOffsetRequest(topic="%LMQ%b", queue_id=1)
    with pytest.raises(grpc.RpcError) as error:
        stack.gateway.QueryMessageByOffset(request, timeout=WAIT_SECONDS_MAX)

    assert error.value.code() is grpc.StatusCode.NOT_FOUND


def test_fsck_finds_nothing_wrong_and_its_repair_leaves_a_brokers_files(tmp_path: Path) -> None:
    root = unpack_store("light", tmp_path / "store")
    before = light_files(root)

    assert fsck(root) == CLEAN
    with hosted_stack(root) as stack:
        stack.wait_until_built()
    assert fsck(root) == CLEAN
    shutil.rmtree(root / "consumequeue/orders")
    assert fsck(root, "--repair") == REPAIRED
    assert fsck(root) == CLEAN
    assert light_files(root) == before
