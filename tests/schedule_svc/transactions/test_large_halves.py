"""Half messages that no answer of several holds, and those that the log does not take again: they end as others do."""

from collections.abc import Callable

import pytest
from structlog.testing import capture_logs

from reput.message.v1.message_pb2 import StoredMessage
from schedule_svc.transactions.checker import PENDING_MILLIS_MAX, RENEW_MILLIS
from services.serving.server_options import RECEIVE_BYTES_MAX
from store.errors import InvalidArgumentError, UnsupportedStoreError
from store.format.topic import CHECK_MAX_TIME_TOPIC
from tests.schedule_svc.transactions.lives import (
    MAX_CHECKS,
    TOPIC_NAME,
    LogLife,
    MemoryLog,
    Producers,
    committed_bodies,
    error_of,
)

Begin = Callable[..., LogLife]
LARGE = "large" * (1 << 20)  # more than an answer of several takes: 4 MiB


@pytest.fixture
def half(log: MemoryLog) -> StoredMessage:
    """A large one waits between two others."""
    log.send_half("before")
    found = log.send_half(LARGE, key="large")
    log.send_half("behind")
    return found


def test_a_large_half_message_is_committed(log: MemoryLog, begin: Begin, half: StoredMessage) -> None:
    begin().end(half)
    assert committed_bodies(log) == [LARGE]
    assert sorted(log.waiting()) == [0, 2]


def test_a_large_half_message_is_rolled_back(log: MemoryLog, begin: Begin, half: StoredMessage) -> None:
    begin().end(half, commit=False)
    assert committed_bodies(log) == []
    assert sorted(log.waiting()) == [0, 2]


def test_producers_are_asked_for_a_large_half_message_until_it_is_given_up(
    log: MemoryLog, begin: Begin, half: StoredMessage
) -> None:
    life = begin()
    producers = Producers(life.gateways, TOPIC_NAME)
    asked: list[str] = []
    for _ in range(2 * MAX_CHECKS):
        log.manual.now += 30_001
        life.work()
        asked += [check.message.unique_key for check in producers.asked()]
    assert asked.count("large") == MAX_CHECKS
    assert {message.body.decode() for message in log.messages(CHECK_MAX_TIME_TOPIC)} == {"before", LARGE, "behind"}
    assert log.waiting() == {}


def test_a_half_message_whose_copy_the_log_refuses_is_ended_after_the_last_check(
    log: MemoryLog, begin: Begin, half: StoredMessage
) -> None:
    life = begin()
    producers = Producers(life.gateways, TOPIC_NAME)
    log.body_bytes_max = 1_000
    asked: list[str] = []
    with capture_logs() as events:
        for _ in range(2 * MAX_CHECKS):
            log.manual.now += 30_001
            life.work()
            asked += [check.message.unique_key for check in producers.asked()]
    assert asked.count("large") == asked.count("key of before") == MAX_CHECKS
    assert log.waiting() == {}
    assert {message.body.decode() for message in log.messages(CHECK_MAX_TIME_TOPIC)} == {"before", "behind"}
    (event,) = [event for event in events if event["event"] == "transaction.skipped"]
    assert (event["topic"], event["queue_offset"], event["commit_log_offset"]) == (
        TOPIC_NAME,
        half.queue_offset,
        half.commit_log_offset,
    )
    assert (life.counts.skipped, life.counts.given_up) == (1, 2)
    assert error_of(lambda: life.end(half)).metadata["outcome"] == "DROPPED"


def test_a_refused_half_message_without_a_producer_is_ended_after_three_days(
    log: MemoryLog, begin: Begin, half: StoredMessage
) -> None:
    log.body_bytes_max = 1_000
    life = begin()
    log.manual.now += PENDING_MILLIS_MAX - 1_000
    life.work()
    assert half.queue_offset in log.waiting()
    for _ in range(3):
        log.manual.now += RENEW_MILLIS // 2
        life.work()
    assert log.waiting() == {}


def test_a_half_message_that_no_request_holds_is_rolled_back_and_not_committed(
    log: MemoryLog, begin: Begin, half: StoredMessage
) -> None:
    log.records[half.commit_log_offset].store_size_bytes = RECEIVE_BYTES_MAX + 1
    life = begin()
    assert isinstance(error_of(lambda: life.end(half)), UnsupportedStoreError)
    life.end(half, commit=False)
    assert sorted(log.waiting()) == [0, 2]


def test_a_half_message_that_no_request_holds_is_ended_without_a_copy(
    log: MemoryLog, begin: Begin, half: StoredMessage
) -> None:
    log.records[half.commit_log_offset].store_size_bytes = RECEIVE_BYTES_MAX + 1
    life = begin()
    producers = Producers(life.gateways, TOPIC_NAME)
    for _ in range(2 * MAX_CHECKS):
        log.manual.now += 30_001
        life.work()
    assert "large" not in {check.message.unique_key for check in producers.asked()}
    assert log.waiting() == {}
    assert life.counts.skipped == 1


def test_a_refused_commit_is_told_to_its_producer(log: MemoryLog, begin: Begin, half: StoredMessage) -> None:
    log.body_bytes_max = 1_000
    life = begin()
    assert isinstance(error_of(lambda: life.end(half)), InvalidArgumentError)
    life.end(half, commit=False)
    assert sorted(log.waiting()) == [0, 2]
