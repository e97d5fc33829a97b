"""Timers: RocketMQ's times and properties, recalls, records of a real broker, rolled messages, clocks, read-only stores."""

from collections.abc import Callable

import pytest

from reput.commitlog.v1.commitlog_service_pb2 import InternalRecord
from schedule_svc.timers.timer_record import due_of
from services.following.state_topic import state_follower
from store.errors import ScheduledMessageNotFoundError, StoreReadOnlyError
from store.format.properties import (
    MOVED_FROM,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    TIMER_DEL_UNIQKEY,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    TIMER_DEQUEUE_MS,
    TIMER_ENQUEUE_MS,
    TIMER_OUT_MS,
    TIMER_ROLL_TIMES,
    UNIQ_KEY,
)
from store.format.topic import TIMER_TOPIC
from tests.schedule_svc.memory_life import ROLL_AFTER_MILLIS, TARGET, MemoryLife, MemoryLog, timed
from tests.support.memory_log import START_MILLIS, ManualClock

NOON = START_MILLIS + 60_000


def bodies(log: MemoryLog, topic: str = TARGET) -> list[str]:
    """What was delivered, in order."""
    return [message.body.decode() for message in log.delivered(topic)]


def stored(log: MemoryLog, **properties: str) -> int | None:
    """When the message of a record with these properties is due."""
    record = InternalRecord(topic=TIMER_TOPIC, properties=properties)
    return due_of(log.records[log.write([record])[0].commit_log_offset])


@pytest.mark.parametrize(
    ("properties", "due_millis"),
    [
        ({TIMER_DELIVER_MS: str(NOON + 1)}, NOON + 1),
        ({TIMER_DELIVER_MS: str(NOON + 1_000)}, NOON + 1_000),
        ({TIMER_DELIVER_MS: str(NOON)}, NOON + 1_000),  # it does not fit TIMER_OUT_MS
        ({TIMER_DELIVER_MS: str(NOON + 1_001)}, NOON + 1_000),
        ({TIMER_DELIVER_MS: "soon"}, NOON + 1_000),
        ({}, NOON + 1_000),
        ({TIMER_DELAY_SEC: "61"}, NOON + 1_000),
        ({TIMER_DELAY_MS: "60300"}, NOON + 300),
        ({TIMER_DELAY_MS: "59000"}, NOON + 1),
        ({TIMER_DELAY_SEC: "60", TIMER_DELAY_MS: "60900", TIMER_DELIVER_MS: str(NOON + 500)}, NOON + 1),
    ],
)
def test_a_message_is_due_at_its_time_within_the_second_of_rocketmq(
    log: MemoryLog, properties: dict[str, str], due_millis: int
) -> None:
    assert stored(log, **{TIMER_OUT_MS: str(NOON)}, **properties) == due_millis


@pytest.mark.parametrize("out", ["", "x", "-1000", "１０００", "9" * 20])
def test_a_record_that_does_not_say_when_is_none(log: MemoryLog, out: str) -> None:
    assert stored(log, **{TIMER_OUT_MS: out}) is None


def test_messages_come_in_the_order_of_their_times_with_rocketmqs_properties(
    log: MemoryLog, life: MemoryLife, clock: ManualClock
) -> None:
    log.write([timed("b", NOON + 2), timed("c", NOON + 2), timed("a", NOON + 1), timed("d", NOON + 3)])
    clock.now = NOON
    life.work()
    assert bodies(log) == []
    clock.now = NOON + 2
    life.work()
    assert bodies(log) == ["a", "b", "c"]
    message = next(log.delivered())
    assert dict(message.properties) == {
        UNIQ_KEY: "a",
        TIMER_DELIVER_MS: str(NOON + 1),
        TIMER_OUT_MS: str(NOON),
        TIMER_ENQUEUE_MS: str(START_MILLIS),
        TIMER_DEQUEUE_MS: str(NOON + 2),
        MOVED_FROM: f"0 2 {TIMER_TOPIC}",
    }
    assert life.kinds.timers.book.pending_count() == 1


def test_a_recalled_message_never_comes_and_a_broker_can_see_why(
    log: MemoryLog, begin: Callable[..., MemoryLife], clock: ManualClock
) -> None:
    life = begin()
    log.write([timed("a", NOON + 1), timed("b", NOON + 1)])
    life.work()
    message = life.kinds.recalls.recall(TARGET, "a", NOON + 1)
    assert (message.topic, message.queue_offset) == (TIMER_TOPIC, 0)
    life.work()
    with pytest.raises(ScheduledMessageNotFoundError):
        life.kinds.recalls.recall(TARGET, "a", NOON + 1)
    marker = log.records[log.queues[TIMER_TOPIC, 0].units[-1].commit_log_offset]
    assert marker.properties[TIMER_DEL_UNIQKEY] == f"{TARGET}+a"
    assert marker.properties[TIMER_OUT_MS] == str(NOON)
    assert life.kinds.timers.book.pending_count() == 1
    life = begin()  # a kill
    clock.now = NOON + 1_000
    life.work()
    assert bodies(log) == ["b"]
    with pytest.raises(ScheduledMessageNotFoundError):
        life.kinds.recalls.recall(TARGET, "b", NOON + 1)


def test_a_recall_takes_the_message_of_its_second_and_not_one_of_the_same_key_beside_it(
    log: MemoryLog, life: MemoryLife, clock: ManualClock
) -> None:
    """It took the first one that was due within a second before or after; a second recall took the other one."""
    dues = [NOON + 500, NOON + 1_500, NOON + 2_500]
    log.write([timed("a", due_millis) for due_millis in dues])
    life.work()
    handle_millis = NOON + 1_001  # TIMER_OUT_MS + 1, as the receipt of the second one has it
    assert life.kinds.recalls.recall(TARGET, "a", handle_millis).queue_offset == 1
    life.work()
    with pytest.raises(ScheduledMessageNotFoundError):
        life.kinds.recalls.recall(TARGET, "a", handle_millis)
    clock.now = NOON + 5_000
    life.work()
    assert [message.properties[TIMER_DELIVER_MS] for message in log.delivered()] == [str(dues[0]), str(dues[2])]


def test_a_broker_that_recalled_a_message_is_heard(log: MemoryLog, life: MemoryLife, clock: ManualClock) -> None:
    marker = timed("a", NOON + 1)
    marker.properties[TIMER_DEL_UNIQKEY] = f"{TARGET}+a"
    other = timed("b", NOON + 1)
    other.properties[TIMER_DEL_UNIQKEY] = "b"  # brokers before 5.3.1 name the unique key alone
    log.write([timed("a", NOON + 1), timed("b", NOON + 1), timed("c", NOON + 1), marker, other])
    clock.now = NOON + 1_000
    life.work()
    assert bodies(log) == ["c"]


def test_a_message_that_a_broker_rolled_comes_once(log: MemoryLog, life: MemoryLife, clock: ManualClock) -> None:
    log.write([timed("a", NOON + 1), timed("a", NOON + 1, **{TIMER_ROLL_TIMES: "1"})])
    clock.now = NOON + 1_000
    life.work()
    assert bodies(log) == ["a"]


def test_a_message_that_waits_longer_than_files_are_kept_is_stored_again(
    log: MemoryLog, begin: Callable[..., MemoryLife], clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_follower, "FULL_LOG_BYTES", 500)
    life = begin()
    due_millis = START_MILLIS + 10 * ROLL_AFTER_MILLIS
    log.write([timed("a", due_millis), timed("b", START_MILLIS + 1_000)])
    for _ in range(9):
        clock.now += ROLL_AFTER_MILLIS + 1
        log.send("noise")
        life.work()
        life.follow()
        log.remove_before(life.reported[-1])
    assert log.queues[TIMER_TOPIC, 0].first >= 5
    life = begin()
    clock.now = due_millis - 1
    life.work()
    assert bodies(log) == ["b"]
    clock.now = due_millis
    life.work()
    assert bodies(log) == ["b", "a"]


@pytest.mark.parametrize(
    "broken",
    [
        {REAL_TOPIC: "no topic!"},
        {REAL_TOPIC: TIMER_TOPIC},
        {REAL_QUEUE_ID: "x"},
        {REAL_QUEUE_ID: "65536"},
        {TIMER_OUT_MS: "x"},
    ],
)
def test_a_record_that_cannot_be_delivered_is_counted_and_holds_nothing_up(
    log: MemoryLog, life: MemoryLife, clock: ManualClock, broken: dict[str, str]
) -> None:
    log.write([timed("a", NOON + 1, **broken), timed("b", NOON + 2)])
    clock.now = NOON + 1_000
    life.work()
    assert bodies(log) == ["b"]
    assert life.kinds.timers.book.skipped_count == 1
    assert life.kinds.timers.book.pending_count() == 0


def test_a_store_that_is_only_read_is_listed_and_nothing_is_appended(
    log: MemoryLog, begin: Callable[..., MemoryLife], clock: ManualClock
) -> None:
    life = begin(read_only=True)
    log.write([timed("a", NOON + 1), timed("b", NOON + 2)])
    end = log.end
    clock.now = NOON + 1
    life.work()
    assert log.end == end
    page, token = life.kinds.listing.page("", 10, "")
    assert ([one.message.unique_key for one in page], token) == (["a", "b"], "")
    with pytest.raises(StoreReadOnlyError):
        life.kinds.recalls.recall(TARGET, "a", NOON + 1)


def test_a_wall_that_is_set_back_makes_nothing_early_and_loses_nothing(
    log: MemoryLog, begin: Callable[..., MemoryLife], clock: ManualClock
) -> None:
    life = begin()
    log.write([timed("a", NOON + 1), timed("b", NOON + 10_000)])
    clock.now = NOON + 5
    life.work()
    clock.now -= 3_600_000
    life.work()
    assert bodies(log) == ["a"]
    life = begin()
    assert life.life.clock.millis() == clock.now  # a record that is an hour ahead does not hold time up
    clock.now = NOON + 7_200_000  # and forward
    life.work()
    assert bodies(log) == ["a", "b"]


@pytest.mark.parametrize("restart", ["none", "kill", "stop"])
def test_a_message_that_is_sent_again_after_its_recall_is_dropped_in_the_same_second_only(
    log: MemoryLog, begin: Callable[..., MemoryLife], clock: ManualClock, restart: str
) -> None:
    """As a broker has it: a recall drops every message of its second with that topic and unique key (ADR 0056)."""
    life = begin()
    due_millis = START_MILLIS + 5_000
    log.write([timed("a", due_millis)])
    life.work()
    life.kinds.recalls.recall(TARGET, "a", due_millis)
    life.work()
    if restart == "stop":
        life.end(is_clean=True)  # its files have everything: the recall is not read again
    if restart != "none":
        life = begin()
    log.write([timed("a", due_millis - 1), timed("a", due_millis + 1), timed("a", due_millis, topic="other")])
    life.work()
    clock.now += 10_000
    life.work()
    came = [int(message.properties[TIMER_DELIVER_MS]) for message in log.delivered()]
    assert came == ([due_millis - 1] if restart == "stop" else []) + [due_millis + 1]
    assert bodies(log, "other") == ["a"]
