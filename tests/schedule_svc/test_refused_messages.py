"""A message that the log does not take stops no other one: it is skipped, counted, and named by an event."""

from collections.abc import Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from reput.commitlog.v1.commitlog_service_pb2 import InternalRecord
from reput.message.v1.message_pb2 import FLUSH_MODE_ASYNC
from reput.schedule.v1 import schedule_service_pb2 as pb
from schedule_svc.servicer import ScheduleServicer
from schedule_svc.transactions.checker import CheckGateways
from services.calling.commitlog import CommitLogClient
from services.serving.server_options import RECEIVE_BYTES_MAX
from store.errors import InvalidArgumentError, ServiceUnavailableError
from store.format.properties import REAL_QUEUE_ID, TIMER_OUT_MS
from store.format.topic import SCHEDULE_TOPIC, TIMER_TOPIC
from tests.schedule_svc.memory_life import ROLL_AFTER_MILLIS, TARGET, MemoryLife, MemoryLog, delayed, timed
from tests.support.memory_log import START_MILLIS, ManualClock

LARGE = b"large" * 1_000
HOUR_MILLIS = 3_600_000


def large(record: InternalRecord) -> InternalRecord:
    """The record with a body that the log takes from a broker, and not from the service."""
    record.body = LARGE
    return record


def names(log: MemoryLog) -> list[str]:
    """The unique keys of what was delivered."""
    return [message.unique_key for message in log.delivered()]


def skipped_count(life: MemoryLife) -> int:
    """What the service tells."""
    servicer = ScheduleServicer(life.progress, CheckGateways(), lambda: False)
    servicer.open(life.kinds)
    context: Any = None
    return servicer.GetStatus(pb.GetStatusRequest(), context).skipped_count


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda name: delayed(name, 1), "level"),
        (lambda name: timed(name, START_MILLIS + 500), "timer"),
    ],
)
def test_a_due_message_that_the_log_refuses_is_skipped_and_the_others_come(
    log: MemoryLog, life: MemoryLife, clock: ManualClock, make: Callable[[str], InternalRecord], kind: str
) -> None:
    _, refused, _ = log.write([make("a"), large(make("b")), make("c")])
    log.body_bytes_max = 1_000
    clock.now += 1_000
    with capture_logs() as events:
        life.work()
    assert names(log) == ["a", "c"]
    assert skipped_count(life) == 1
    assert [event for event in events if event["event"] == f"{kind}.skipped"] == [
        {
            "event": f"{kind}.skipped",
            "log_level": "warning",
            "queue_offset": 1,
            "commit_log_offset": refused.commit_log_offset,
            "topic": TARGET,
            "reason": "the bodies of a request are too many bytes",
        }
    ]
    assert life.kinds.levels.delivered_count + life.kinds.timers.book.delivered_count == 2


def test_the_next_life_does_not_try_a_refused_message_again(
    log: MemoryLog, begin: Callable[..., MemoryLife], clock: ManualClock
) -> None:
    life = begin()
    log.write([large(delayed("a", 1)), large(timed("b", START_MILLIS + 500))])
    log.body_bytes_max = 1_000
    clock.now += 1_000
    life.work()
    assert skipped_count(life) == 2
    log.body_bytes_max = 1 << 40
    life = begin()
    life.work()
    assert names(log) == []
    assert life.kinds.levels.pending_count() + life.kinds.timers.book.pending_count() == 0


def test_a_message_that_cannot_be_stored_again_before_its_file_goes_is_skipped(
    log: MemoryLog, life: MemoryLife, clock: ManualClock
) -> None:
    log.write([timed("a", START_MILLIS + 5 * HOUR_MILLIS), large(timed("b", START_MILLIS + 5 * HOUR_MILLIS))])
    log.body_bytes_max = 1_000
    life.work()
    clock.now += ROLL_AFTER_MILLIS + 1_000
    life.work()
    assert (skipped_count(life), life.kinds.timers.book.pending_count()) == (1, 1)
    clock.now += 5 * HOUR_MILLIS
    life.work()
    assert names(log) == ["a"]


def test_a_recall_whose_record_the_log_refuses_counts(log: MemoryLog, life: MemoryLife, clock: ManualClock) -> None:
    log.write([timed("a", START_MILLIS + 5_000)])
    life.work()
    log.body_bytes_max = 0
    life.kinds.recalls.recall(TARGET, "a", START_MILLIS + 5_000)
    life.follow()  # the life goes on
    log.body_bytes_max = 1 << 40
    clock.now += 10_000
    life.work()
    assert names(log) == []


def test_a_record_of_a_foreign_store_that_no_request_can_hold_is_skipped_unread(
    log: MemoryLog, life: MemoryLife, clock: ManualClock
) -> None:
    results = log.write([large(delayed("a", 1)), delayed("b", 1)])
    stored = log.records[results[0].commit_log_offset]
    stored.body = b"x" * (5 << 20)
    stored.store_size_bytes = RECEIVE_BYTES_MAX + 1
    clock.now += 1_000
    life.work()
    assert names(log) == ["b"]
    assert skipped_count(life) == 1


def test_a_request_that_the_service_cannot_receive_is_refused_before_it_is_sent() -> None:
    client = CommitLogClient("127.0.0.1:1")
    with pytest.raises(InvalidArgumentError) as refused:
        client.append_internal(
            [InternalRecord(topic=TARGET, body=bytes(RECEIVE_BYTES_MAX))], flush=FLUSH_MODE_ASYNC, timeout_seconds=1
        )
    assert refused.value.metadata["field"] == "records"
    client.close()


def unusable(record: InternalRecord) -> InternalRecord:
    """The record without the queue that its message belongs to."""
    record.properties.pop(REAL_QUEUE_ID)
    return record


def remove_first(log: MemoryLog, topic: str) -> None:
    """The first record of a system topic is gone; its unit stays."""
    del log.records[log.queues[topic, 0].units[0].commit_log_offset]


@pytest.mark.parametrize("kind", ["level", "timer", "timer stored again", "refused"])
def test_a_skip_whose_change_a_kill_lost_was_counted_again_by_the_next_life(
    log: MemoryLog, begin: Callable[..., MemoryLife], clock: ManualClock, kind: str
) -> None:
    life = begin()
    due_millis = START_MILLIS + (5 * HOUR_MILLIS if kind == "timer stored again" else 500)
    if kind == "level":
        log.write([unusable(delayed("a", 1))])
    else:
        log.write(
            [timed("a", due_millis)] if kind != "refused" else [large(timed("a", due_millis)), timed("b", due_millis)]
        )
    life.work()
    if kind == "refused":
        log.body_bytes_max = 1_000
    elif kind != "level":
        remove_first(log, TIMER_TOPIC)
    clock.now += ROLL_AFTER_MILLIS + 1_000
    log.appends_left = 0
    with capture_logs() as events:
        with pytest.raises(ServiceUnavailableError):
            life.work()
        assert skipped_count(life) == 0
        log.appends_left = None
        life = begin()
        life.work()
        assert skipped_count(life) == 1
        life = begin()
        life.work()
        assert skipped_count(life) == 0
    assert len([event for event in events if event["event"].endswith(".skipped")]) == 1


def test_a_timer_that_does_not_say_when_it_is_due_was_counted_again_by_each_life_that_read_it(
    log: MemoryLog, begin: Callable[..., MemoryLife]
) -> None:
    life = begin()
    log.write([timed("a", START_MILLIS + HOUR_MILLIS, **{TIMER_OUT_MS: "x"})])
    counts = []
    for _ in range(3):
        life.work()
        counts.append(skipped_count(life))
        life = begin()  # killed before its timers are in files
    assert counts == [1, 0, 0]


def test_a_store_that_is_only_read_counts_no_skip_of_the_service_that_delivers(
    log: MemoryLog, begin: Callable[..., MemoryLife]
) -> None:
    log.write([timed("a", START_MILLIS + HOUR_MILLIS, **{TIMER_OUT_MS: "x"})])
    life = begin(read_only=True)
    life.work()
    assert skipped_count(life) == 0


def test_an_event_of_a_skip_names_the_topic_only_where_the_record_says_it(
    log: MemoryLog, life: MemoryLife, clock: ManualClock
) -> None:
    log.write([delayed("a", 1), unusable(delayed("b", 1)), timed("c", START_MILLIS + 500, **{TIMER_OUT_MS: "x"})])
    remove_first(log, SCHEDULE_TOPIC)
    clock.now += 1_000
    with capture_logs() as events:
        life.work()
    skipped = [event for event in events if event["event"].endswith(".skipped")]
    assert [(event["event"], event["queue_offset"], event.get("topic")) for event in skipped] == [
        ("level.skipped", 0, None),
        ("level.skipped", 1, TARGET),
        ("timer.skipped", 0, TARGET),
    ]
    assert "topic" not in skipped[0]
