"""Where a message waits, beside what RocketMQ 5.3.3 wrote and beside its rules spelled out again."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commitlog_svc.append.records import WaitingMessage
from commitlog_svc.append.waiting import (
    TIMERS,
    WaitingLimits,
    WaitingPlace,
    asked_properties,
    find_place,
    waiting_of,
)
from store.errors import InvalidMessageError
from store.format.record import Record, decode_record
from store.format.topic import HALF_TOPIC, SCHEDULE_TOPIC
from tests.support.fixture_stores import walk_frames

NOW = 1_700_000_000_123
LIMITS = WaitingLimits(18, 259_200)


def place_of(properties: dict[str, str], now_millis: int = NOW, limits: WaitingLimits = LIMITS) -> WaitingPlace | None:
    return find_place("orders", 5, "key-1", properties, now_millis, limits)


def placed(properties: dict[str, str], now_millis: int = NOW, limits: WaitingLimits = LIMITS) -> WaitingPlace:
    place = place_of(properties, now_millis, limits)
    assert place is not None
    return place


def rocketmq_out_millis(deliver_millis: int) -> int:
    """`HookUtils.transformTimerMessage`, with its precision of a second."""
    return deliver_millis - 1000 if deliver_millis % 1000 == 0 else deliver_millis // 1000 * 1000


@pytest.mark.parametrize(
    ("asked", "queue_id", "stored"),
    [("1", 0, "1"), ("18", 17, "18"), ("19", 17, "18"), ("99999", 17, "18"), ("+3", 2, "3")],
)
def test_a_level_is_a_queue_of_the_schedule_topic(asked: str, queue_id: int, stored: str) -> None:
    place = placed({"DELAY": asked, "a": "b"})

    assert (SCHEDULE_TOPIC, queue_id) == (place.topic, place.queue_id)
    assert {"DELAY": stored, "a": "b", "REAL_TOPIC": "orders", "REAL_QID": "5"} == place.properties
    assert WaitingMessage("orders", 5) == place.waiting


def test_the_largest_level_is_that_of_the_list() -> None:
    place = placed({"DELAY": "9"}, limits=WaitingLimits(4, 1))

    assert (3, "4") == (place.queue_id, place.properties["DELAY"])


@pytest.mark.parametrize("level", ["0", "-1", "-5"])
def test_a_level_of_zero_or_less_does_not_wait(level: str) -> None:
    assert place_of({"DELAY": level}) is None


def test_a_level_wins_over_times_and_removes_them() -> None:
    place = placed({"DELAY": "2", "TIMER_DELIVER_MS": "1", "TIMER_DELAY_SEC": "soon", "TIMER_DELAY_MS": "7"})

    assert SCHEDULE_TOPIC == place.topic
    assert place.properties.keys().isdisjoint(TIMERS)


def test_a_time_is_a_record_of_the_wheel() -> None:
    place = placed({"TIMER_DELIVER_MS": str(NOW + 5_000), "a": "b"})

    assert ("rmq_sys_wheel_timer", 0) == (place.topic, place.queue_id)
    assert place.properties == {
        "TIMER_DELIVER_MS": str(NOW + 5_000),
        "a": "b",
        "TIMER_OUT_MS": "1700000005000",
        "REAL_TOPIC": "orders",
        "REAL_QID": "5",
    }
    assert WaitingMessage("orders", 5, recall_millis=1_700_000_005_001) == place.waiting


@given(st.integers(min_value=1, max_value=259_200_000))
def test_times_are_rounded_as_rocketmq_rounds_them(ahead_millis: int) -> None:
    for name, value, deliver_millis in (
        ("TIMER_DELIVER_MS", NOW + ahead_millis, NOW + ahead_millis),
        ("TIMER_DELAY_MS", ahead_millis, NOW + ahead_millis),
        ("TIMER_DELAY_SEC", -(-ahead_millis // 1000), NOW - -(-ahead_millis // 1000) * -1000),
    ):
        out_millis = int(placed({name: str(value)}, limits=WaitingLimits(18, 259_201)).properties["TIMER_OUT_MS"])
        assert rocketmq_out_millis(deliver_millis) == out_millis


def test_of_several_times_seconds_count_before_millis_before_the_time_itself() -> None:
    """The order of `HookUtils.transformTimerMessage`."""
    times = {"TIMER_DELIVER_MS": str(NOW + 30_000), "TIMER_DELAY_MS": "20000", "TIMER_DELAY_SEC": "10"}
    assert "1700000010000" == placed(times).properties["TIMER_OUT_MS"]
    del times["TIMER_DELAY_SEC"]
    assert "1700000020000" == placed(times).properties["TIMER_OUT_MS"]


@pytest.mark.parametrize(
    "properties",
    [
        {"TIMER_DELIVER_MS": str(NOW)},
        {"TIMER_DELIVER_MS": "0"},
        {"TIMER_DELIVER_MS": "-1"},
        {"TIMER_DELAY_SEC": "0"},
        {"TIMER_DELAY_SEC": "-1"},
        {"TIMER_DELAY_MS": "0"},
        {"TIMER_DELAY_MS": "-1"},
    ],
)
def test_a_time_that_has_passed_is_an_ordinary_message(properties: dict[str, str]) -> None:
    """Also by a delay below zero, as `HookUtils.transformTimerMessage` has it."""
    assert place_of(properties) is None


def test_the_longest_delay_is_taken_and_one_more_millisecond_is_not() -> None:
    limits = WaitingLimits(18, 60)
    assert placed({"TIMER_DELAY_MS": "60000"}, limits=limits)
    with pytest.raises(InvalidMessageError, match="at most 60 s are allowed") as refused:
        place_of({"TIMER_DELAY_MS": "60001"}, limits=limits)
    assert ("properties", "TIMER_DELAY_MS", "60") == tuple(
        refused.value.metadata[name] for name in ("field", "property", "delaySecondsMax")
    )


def test_years_ahead_can_be_allowed() -> None:
    assert placed({"TIMER_DELAY_SEC": str(5 * 366 * 86_400)}, limits=WaitingLimits(18, 10 * 366 * 86_400))


def test_a_message_of_a_retry_topic_may_wait_and_has_no_handle() -> None:
    """`SendMessageProcessor.attachRecallHandle`."""
    place = find_place("%RETRY%g", 0, "k", {"TIMER_DELAY_SEC": "9"}, NOW, LIMITS)
    assert place is not None
    assert WaitingMessage("%RETRY%g", 0, recall_millis=0) == place.waiting


@pytest.mark.parametrize("value", ["true", "TRUE", "True"])
def test_a_half_message_goes_to_the_half_topic(value: str) -> None:
    asked = {"TRAN_MSG": value, "PGROUP": "g", "CHECK_IMMUNITY_TIME_IN_SECONDS": "7"}
    place = placed(asked)

    assert (HALF_TOPIC, 0) == (place.topic, place.queue_id)
    assert {**asked, "__transactionId__": "key-1", "REAL_TOPIC": "orders", "REAL_QID": "5"} == place.properties
    assert WaitingMessage("orders", 5, is_half=True) == place.waiting


def test_without_a_wish_a_message_does_not_wait() -> None:
    assert place_of({"TRAN_MSG": "false", "PGROUP": "g", "a": "b"}) is None


@pytest.mark.parametrize(
    ("name", "properties"),
    [
        ("DELAY", {"DELAY": "soon"}),
        ("DELAY", {"DELAY": "1.5"}),
        ("DELAY", {"DELAY": ""}),
        ("DELAY", {"DELAY": "9" * 19}),
        ("TIMER_DELIVER_MS", {"TIMER_DELIVER_MS": "tomorrow"}),
        ("TIMER_DELAY_SEC", {"TIMER_DELAY_SEC": "1e3"}),
        ("TIMER_DELAY_SEC", {"TIMER_DELAY_SEC": "9" * 18}),
        ("TIMER_DELAY_MS", {"TIMER_DELAY_MS": " 1"}),
        ("TRAN_MSG", {"TRAN_MSG": "1"}),
        ("TRAN_MSG", {"TRAN_MSG": "yes"}),
        ("DELAY", {"TRAN_MSG": "true", "DELAY": "1"}),
        ("TIMER_DELAY_SEC", {"TRAN_MSG": "true", "TIMER_DELAY_SEC": "1"}),
        ("TIMER_DELIVER_MS", {"TRAN_MSG": "true", "TIMER_DELIVER_MS": "1"}),
        ("CHECK_IMMUNITY_TIME_IN_SECONDS", {"TRAN_MSG": "true", "CHECK_IMMUNITY_TIME_IN_SECONDS": "-1"}),
        ("CHECK_IMMUNITY_TIME_IN_SECONDS", {"TRAN_MSG": "true", "CHECK_IMMUNITY_TIME_IN_SECONDS": "x"}),
    ],
)
def test_a_wish_that_makes_no_sense_is_refused_by_name(name: str, properties: dict[str, str]) -> None:
    with pytest.raises(InvalidMessageError) as refused:
        place_of(properties)
    assert ("properties", name) == (refused.value.metadata["field"], refused.value.metadata["property"])


def test_fields_become_rocketmqs_properties() -> None:
    assert {"a": "b", "DELAY": "3"} == asked_properties({"a": "b"}, 3, None)
    assert {"a": "b", "TIMER_DELIVER_MS": "77"} == asked_properties({"a": "b"}, 0, 77)
    assert {"DELAY": "4"} == asked_properties({"DELAY": "4"}, 0, None)


@pytest.mark.parametrize(
    ("field", "properties", "level", "millis"),
    [
        ("delay_level", {}, -1, None),
        ("delay_level", {}, 1, 77),
        ("delay_level", {"DELAY": "1"}, 1, None),
        ("delay_level", {"TIMER_DELAY_SEC": "1"}, 1, None),
        ("delivery_time", {"TIMER_DELIVER_MS": "1"}, 0, 77),
        ("delivery_time", {"DELAY": "1"}, 0, 77),
    ],
)
def test_a_field_beside_another_wish_is_refused(
    field: str, properties: dict[str, str], level: int, millis: int | None
) -> None:
    with pytest.raises(InvalidMessageError) as refused:
        asked_properties(properties, level, millis)
    assert field == refused.value.metadata["field"]


@pytest.mark.parametrize("properties", [{"DELAY": "3"}, {"TIMER_DELAY_SEC": "3"}, {"TRAN_MSG": "true"}])
def test_a_record_says_how_its_message_waits(properties: dict[str, str]) -> None:
    place = placed(properties)
    assert place.waiting == waiting_of(place.topic, place.properties)


@pytest.mark.parametrize(
    ("topic", "properties"),
    [
        ("orders", {"REAL_TOPIC": "orders", "REAL_QID": "1"}),
        (SCHEDULE_TOPIC, {}),
        (SCHEDULE_TOPIC, {"REAL_TOPIC": "orders", "REAL_QID": "first"}),
        ("rmq_sys_wheel_timer", {"REAL_TOPIC": "orders", "REAL_QID": "1"}),
        (
            "rmq_sys_wheel_timer",
            {"REAL_TOPIC": "orders", "REAL_QID": "1", "TIMER_OUT_MS": "1000", "TIMER_DEL_UNIQKEY": "orders_k"},
        ),
    ],
)
def test_a_record_that_is_no_waiting_message_says_nothing(topic: str, properties: dict[str, str]) -> None:
    assert waiting_of(topic, properties) is None


def waiting_records(root: Path, topic: str) -> list[Record]:
    records = [decode_record(frame, commit_log_offset=offset) for offset, frame in walk_frames(root)]
    return [record for record in records if record.topic == topic]


def test_rocketmqs_delayed_records_are_ours(broker_store: Path) -> None:
    records = waiting_records(broker_store, SCHEDULE_TOPIC)
    assert len(records) > 20
    for record in records:
        sent = {name: value for name, value in record.properties.items() if name not in ("REAL_TOPIC", "REAL_QID")}
        topic, queue_id = record.properties["REAL_TOPIC"], int(record.properties["REAL_QID"])
        place = find_place(topic, queue_id, record.unique_key, sent, record.store_time_millis, LIMITS)
        assert place is not None
        assert (record.topic, record.queue_id, dict(record.properties)) == place[:3]


def test_rocketmqs_half_messages_are_ours(broker_store: Path) -> None:
    added = ("REAL_TOPIC", "REAL_QID", "__transactionId__")
    records = [r for r in waiting_records(broker_store, HALF_TOPIC) if "TRANSACTION_CHECK_TIMES" not in r.properties]
    assert len(records) > 5
    for record in records:
        sent = {name: value for name, value in record.properties.items() if name not in added}
        topic, queue_id = record.properties["REAL_TOPIC"], int(record.properties["REAL_QID"])
        place = find_place(topic, queue_id, record.unique_key, sent, record.store_time_millis, LIMITS)
        assert place is not None
        assert (record.topic, record.queue_id, dict(record.properties)) == place[:3]
        assert not record.sys_flag & 0xC
