"""Messages that wait, through the servicer: their records, their receipts, and what is sent again."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from commitlog_svc.servicer import UNKNOWN_HOST, CommitLogServicer
from reput.commitlog.v1 import commitlog_service_pb2 as pb
from reput.message.v1.message_pb2 import AppendResult, NewMessage
from services.local.wire import LocalMethod
from store.errors import InvalidMessageError
from store.format.delivery.waiting_handles import RECALL, TRANSACTION, WaitingHandle, decode_handle
from store.format.record import Record, decode_record
from store.format.topic import HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from tests.commitlog_svc.support import append, new_message, open_log
from tests.commitlog_svc.twins import TIME_MILLIS, Twins, open_twins, request_of
from tests.support.fixture_stores import read_rows, walk_frames

BROKER_NAME = "broker-ä"  # of Twins
LATER_MILLIS = 4_000_000_000_000  # the year 2096, for logs with a real clock
YEARS_SECONDS = 100 * 366 * 86_400
HALF = {"TRAN_MSG": "true", "PGROUP": "g"}


@pytest.fixture
def twins(tmp_path: Path) -> Iterator[Twins]:
    with open_twins(tmp_path) as twins:
        twins.append(request_of(new_message()))
        yield twins


def timed(millis: int, **fields: Any) -> NewMessage:
    message = new_message(**fields)
    message.delivery_time.FromMilliseconds(millis)
    return message


def send(twins: Twins, *messages: NewMessage, deduplicate: bool = False) -> list[AppendResult]:
    return list(twins.append(request_of(*messages, deduplicate=deduplicate)).results)


def record_of(twins: Twins, result: AppendResult) -> Record:
    return twins.fast.opened.reads.get(result.commit_log_offset)


def handle_of(kind: str, text: str) -> WaitingHandle:
    return decode_handle(kind, text, "text")


@pytest.mark.parametrize(
    "message", [new_message(delay_level=3, queue_id=6), new_message(properties={"DELAY": "3"}, queue_id=6)]
)
def test_a_delayed_message_is_a_record_of_the_schedule_topic(twins: Twins, message: NewMessage) -> None:
    first, second = (send(twins, message)[0] for _ in range(2))
    record = record_of(twins, second)

    assert (SCHEDULE_TOPIC, 2, 1) == (record.topic, record.queue_id, record.queue_offset)
    assert {"DELAY": "3", "REAL_TOPIC": "orders", "REAL_QID": "6"}.items() <= dict(record.properties).items()
    # The queue of its own topic, and the place in the other one: broker.sends.jsonl has the same of the real broker.
    assert [(6, 0), (6, 1)] == [(result.queue_id, result.queue_offset) for result in (first, second)]
    assert ("", "") == (second.recall_handle, second.transaction_id)


def test_rocketmqs_receipts_name_the_same_queues(twins: Twins, broker_store: Path) -> None:
    """What the real broker answered for twelve delayed messages, in queues 0 to 3 of their topic."""
    levels: dict[str, int] = {}
    for offset, frame in walk_frames(broker_store):
        record = decode_record(frame, commit_log_offset=offset)
        if record.topic == SCHEDULE_TOPIC:
            levels.setdefault(record.unique_key, int(record.properties["DELAY"]))
    rows = [row for row in read_rows("broker.sends.jsonl") if row["kind"] == "delay"]
    assert len(rows) > 9
    receipts = [
        send(twins, new_message(queue_id=row["queue_id"], delay_level=levels[row["msg_id"]]))[0] for row in rows
    ]
    assert [(row["queue_id"], row["queue_offset"]) for row in rows] == [(r.queue_id, r.queue_offset) for r in receipts]


def test_a_timed_message_gets_a_recall_handle_of_rocketmq(twins: Twins) -> None:
    result = send(twins, timed(TIME_MILLIS + 60_000, unique_key="key 1", queue_id=5))[0]
    record = record_of(twins, result)
    out_millis = (TIME_MILLIS + 60_000) // 1000 * 1000

    assert (TIMER_TOPIC, 0) == (record.topic, record.queue_id)
    assert record.properties["TIMER_OUT_MS"] == str(out_millis)
    assert WaitingHandle("orders", BROKER_NAME, out_millis + 1, "key 1") == handle_of(RECALL, result.recall_handle)
    assert (5, "") == (result.queue_id, result.transaction_id)


def test_a_half_message_gets_the_id_of_its_transaction(twins: Twins) -> None:
    results = [send(twins, new_message(unique_key=key, properties=HALF))[0] for key in ("a", "b")]
    records = [record_of(twins, result) for result in results]

    assert [(HALF_TOPIC, 0, 0), (HALF_TOPIC, 0, 1)] == [(r.topic, r.queue_id, r.queue_offset) for r in records]
    assert [0, 0] == [record.sys_flag & 0xC for record in records]
    assert ["a", "b"] == [record.properties["__transactionId__"] for record in records]
    for result, key in zip(results, "ab", strict=True):
        expected = WaitingHandle("orders", BROKER_NAME, result.commit_log_offset, key)
        assert expected == handle_of(TRANSACTION, result.transaction_id)
        assert "" == result.recall_handle


def test_an_ordinary_message_has_no_handle(twins: Twins) -> None:
    past = timed(TIME_MILLIS - 1)
    for result in send(twins, new_message(), past, new_message(properties={"DELAY": "0"})):
        assert ("", "") == (result.recall_handle, result.transaction_id)
        assert "orders" == record_of(twins, result).topic
    assert {"TIMER_DELIVER_MS": str(TIME_MILLIS - 1)}.items() <= dict(
        record_of(twins, send(twins, past)[0]).properties
    ).items()


def test_a_stream_answers_the_same(twins: Twins) -> None:
    servicer = CommitLogServicer(twins.fast, "broker-a", "127.0.0.1:10911")
    messages = [new_message(), new_message(delay_level=1), timed(TIME_MILLIS + 9_000), new_message(properties=HALF)]
    answer = servicer.local_appends()[LocalMethod.APPEND_ON_STREAM](request_of(*messages))
    twins.plain.opened.appends.append_messages(messages, sync=False, born_host=UNKNOWN_HOST)
    results = pb.AppendMessageStreamResponse.FromString(answer).results

    assert [False, False, True, False] == [bool(result.recall_handle) for result in results]
    assert [False, False, False, True] == [bool(result.transaction_id) for result in results]


def topic_table(log_root: Path) -> dict[str, tuple[int, int]]:
    table = json.loads((log_root / "config" / "topics.json").read_text())["topicConfigTable"]
    return {topic: (row["readQueueNums"], row["writeQueueNums"]) for topic, row in table.items()}


def test_system_topics_have_rocketmqs_queues_and_the_own_topic_is_made(tmp_path: Path) -> None:
    """`TopicConfigManager.init` of 5.3.3."""
    with open_log(tmp_path, timer_max_delay_seconds=YEARS_SECONDS) as log:
        append(
            log,
            new_message(topic="a", delay_level=2),
            timed(LATER_MILLIS, topic="b"),
            new_message(topic="c", properties=HALF),
        )

    ours = dict.fromkeys("abc", (8, 8))
    assert {SCHEDULE_TOPIC: (18, 18), TIMER_TOPIC: (1, 1), HALF_TOPIC: (1, 1), **ours} == topic_table(tmp_path)


def test_a_list_of_more_levels_gets_more_queues(tmp_path: Path) -> None:
    levels = " ".join(["1s"] * 20)
    with open_log(tmp_path, delay_levels=levels) as log:
        receipt = append(log, new_message(delay_level=99))[0]
        record = log.opened.reads.get(receipt.commit_log_offset)

    assert (19, "20") == (record.queue_id, record.properties["DELAY"])
    assert (20, 20) == topic_table(tmp_path)[SCHEDULE_TOPIC]


def test_without_automatic_topics_a_message_of_a_known_topic_may_wait(copy_of_broker_store: Path) -> None:
    with open_log(copy_of_broker_store, auto_create_topic=False, timer_max_delay_seconds=YEARS_SECONDS) as log:
        receipt = append(log, timed(LATER_MILLIS, topic="b_order"))[0]
        assert TIMER_TOPIC == log.opened.reads.get(receipt.commit_log_offset).topic


def test_delays_begin_at_the_store_time_when_the_clock_runs_backwards(twins: Twins) -> None:
    for back_millis, began_millis in ((30_000, TIME_MILLIS), (3_600_000, TIME_MILLIS - 3_600_000)):
        twins.now_millis = TIME_MILLIS - back_millis
        result = send(twins, new_message(properties={"TIMER_DELAY_SEC": "10"}))[0]
        assert (began_millis + 10_000) // 1000 * 1000 == int(record_of(twins, result).properties["TIMER_OUT_MS"])


def test_the_longest_delay_is_a_setting(tmp_path: Path) -> None:
    with open_twins(tmp_path, timer_max_delay_seconds=60) as twins:
        send(twins, timed(TIME_MILLIS + 60_000))
        error, message, metadata = twins.append(request_of(timed(TIME_MILLIS + 61_001)))
        assert (InvalidMessageError, "delivery_time", "60") == (error, metadata["field"], metadata["delaySecondsMax"])
        assert "delivery_time asks for a delay of 62 s, and at most 60 s are allowed" in message


WAITING = [
    new_message(delay_level=3),
    new_message(properties={"DELAY": "3"}),
    new_message(properties={"DELAY": "0"}),
    timed(TIME_MILLIS + 60_000),
    timed(TIME_MILLIS - 60_000),
    new_message(properties={"TIMER_DELAY_SEC": "3"}),
    new_message(properties={"TIMER_DELAY_MS": "3"}),
    new_message(properties={"TIMER_DELIVER_MS": "3"}),
    new_message(properties={"TRAN_MSG": "false"}),
    new_message(properties=HALF),
]


@pytest.mark.parametrize("message", WAITING)
def test_the_fast_way_leaves_waiting_messages_to_the_plain_one(twins: Twins, message: NewMessage) -> None:
    assert not twins.is_taken(request_of(new_message(), message))
    assert twins.is_taken(request_of(new_message()))


def test_the_fast_way_never_learns_a_system_topic(twins: Twins) -> None:
    send(twins, *WAITING, new_message(topic="fresh"))  # topics are learned when there is a new one
    for topic in (SCHEDULE_TOPIC, TIMER_TOPIC, HALF_TOPIC, "rmq_sys_REPUT_SCHEDULE_STATE"):
        error, _, metadata = twins.append(request_of(new_message(topic=topic)))
        assert (InvalidMessageError, "topic") == (error, metadata["field"])


@pytest.mark.parametrize(
    ("message", "field"),
    [
        (new_message(delay_level=-1), "delay_level"),
        (new_message(delay_level=1, properties={"TRAN_MSG": "true"}), "delay_level"),
        (timed(TIME_MILLIS + 9_000, properties={"TRAN_MSG": "true"}), "delivery_time"),
        (timed(TIME_MILLIS + 9_000, delay_level=1), "delay_level"),
        (timed(-1), "delivery_time"),
        (timed(TIME_MILLIS + 4 * 86_400_000), "delivery_time"),
        (new_message(topic=SCHEDULE_TOPIC, delay_level=1), "topic"),
        (new_message(topic="a/b", delay_level=1), "topic"),
        (new_message(queue_id=8, delay_level=1), "queue_id"),
        (new_message(properties={"TIMER_OUT_MS": "1"}), "properties"),
        (new_message(properties={"__STARTDELIVERTIME": "1"}), "properties"),
    ],
)
def test_a_refused_wish_writes_nothing(twins: Twins, message: NewMessage, field: str) -> None:
    end_offset = twins.fast.status.end_offset
    error, _, metadata = twins.append(request_of(new_message(delay_level=1), message))

    assert (InvalidMessageError, field, "1") == (error, metadata["field"], metadata["index"])
    assert end_offset == twins.fast.status.end_offset


@pytest.mark.parametrize(
    "fields",
    [{"delay_level": 2}, {"properties": {"TIMER_DELAY_SEC": "60"}}, {"properties": HALF}],
    ids=["level", "time", "half"],
)
def test_a_waiting_message_sent_again_is_stored_once(twins: Twins, fields: dict[str, Any]) -> None:
    message = new_message(unique_key="once", queue_id=4, **fields)
    first = send(twins, message, deduplicate=True)[0]
    end_offset = twins.fast.status.end_offset
    twins.now_millis += 5_000
    again = send(twins, message, message, deduplicate=True)

    assert end_offset == twins.fast.status.end_offset
    first.deduplicated = True
    assert [first, first] == again


def test_a_time_that_has_passed_when_it_is_sent_again_is_known(twins: Twins) -> None:
    message = timed(TIME_MILLIS + 5_000, unique_key="once")
    first = send(twins, message, deduplicate=True)[0]
    twins.now_millis += 60_000
    again = send(twins, message, deduplicate=True)[0]

    assert (True, first.commit_log_offset) == (again.deduplicated, again.commit_log_offset)
    assert first.recall_handle == again.recall_handle


def test_a_key_that_waits_counts_inside_its_own_topic(twins: Twins) -> None:
    send(twins, new_message(unique_key="k", delay_level=2), deduplicate=True)
    other = send(twins, new_message(unique_key="k", delay_level=2, topic="other"), deduplicate=True)[0]

    assert not other.deduplicated


def test_a_restart_forgets_no_waiting_message(tmp_path: Path) -> None:
    messages = [
        new_message(unique_key="level", delay_level=2),
        timed(LATER_MILLIS, unique_key="time"),
        new_message(unique_key="half", properties=HALF),
    ]

    def send_to_log() -> list[AppendResult]:
        with open_log(tmp_path, timer_max_delay_seconds=YEARS_SECONDS) as log:
            servicer = CommitLogServicer(log, "broker-a", "127.0.0.1:10911")
            data = request_of(*messages, deduplicate=True)
            return list(pb.AppendMessagesResponse.FromString(servicer.append_bytes(data, UNKNOWN_HOST)).results)

    first, again = send_to_log(), send_to_log()

    assert not any(result.deduplicated for result in first)
    for result in first:
        result.deduplicated = True
    assert first == again


@pytest.mark.parametrize("fields", [{"delay_level": 1}, {"properties": HALF}])
def test_a_message_that_waits_leaves_room_for_the_properties_of_the_record_that_delivers_it(
    twins: Twins, fields: dict[str, Any]
) -> None:
    keys = ["k" * 32_500]
    send(twins, new_message(keys=keys))
    error, message, metadata = twins.append(request_of(new_message(keys=keys, **fields)))
    assert (error, metadata["field"]) == (InvalidMessageError, "properties"), message
