"""The servicer: pages of what waits, counts, refusals."""

import threading
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from reput.commitlog.v1.commitlog_service_pb2 import InternalRecord
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
from reput.message.v1.message_pb2 import AppendResult
from reput.schedule.v1 import schedule_service_pb2 as pb
from schedule_svc.servicer import VERDICT_COUNT_MAX, ScheduleServicer
from schedule_svc.transactions.checker import CheckGateways
from services.convert import millis_to_timestamp, timestamp_to_millis
from services.replica_role import not_leading
from store.errors import InvalidArgumentError, InvalidPageTokenError, NotLeaderError, StoreRecoveringError
from store.format.delivery.waiting_handles import RECALL, TRANSACTION, WaitingHandle, decode_handle, encode_handle
from store.format.properties import REAL_QUEUE_ID, REAL_TOPIC, UNIQ_KEY
from store.format.topic import HALF_TOPIC
from tests.schedule_svc.memory_life import DELAYS_MILLIS, TARGET, MemoryLife, MemoryLog, delayed, timed
from tests.support.memory_log import START_MILLIS, ManualClock
from tests.support.waiting import WAIT_SECONDS_MAX

CONTEXT: Any = SimpleNamespace(time_remaining=lambda: 60.0)


@pytest.fixture
def servicer(life: MemoryLife) -> ScheduleServicer:
    """A servicer of a life on the empty log."""
    servicer = ScheduleServicer(life.progress, CheckGateways(), lambda: False)
    servicer.open(life.kinds)
    return servicer


def listed(servicer: ScheduleServicer, page_size: int, topic: str = "") -> list[str]:
    """The unique keys of all pages."""
    names: list[str] = []
    token = ""
    while True:
        request = pb.ListScheduledMessagesRequest(topic=topic, page_size=page_size, page_token=token)
        answer = servicer.ListScheduledMessages(request, CONTEXT)
        assert len(answer.messages) <= page_size
        names += [one.unique_key for one in answer.messages]
        token = answer.next_page_token
        if not token:
            return names


@pytest.mark.parametrize("page_size", [1, 2, 3, 5, 100])
def test_pages_have_every_message_once_the_next_due_first(
    servicer: ScheduleServicer, log: MemoryLog, life: MemoryLife, page_size: int
) -> None:
    log.write([delayed("l5", 2), delayed("l6", 2, "other"), delayed("l1", 1)])
    log.write([timed(f"t{number}", START_MILLIS + number * 1_000 + 500, TARGET) for number in (7, 3, 5, 0)])
    life.work()
    # By their times: 0.5 s, 1 s (l1), 3.5 s, 5 s (l5, l6), 5.5 s, 7.5 s.
    assert listed(servicer, page_size) == ["t0", "l1", "t3", "l5", "l6", "t5", "t7"]
    assert listed(servicer, page_size, "other") == ["l6"]
    answer = servicer.ListScheduledMessages(pb.ListScheduledMessagesRequest(topic="none"), CONTEXT)
    assert (list(answer.messages), answer.pending_count) == ([], 7)


def test_a_list_is_answered_before_the_time_of_its_caller_is_over(
    servicer: ScheduleServicer, log: MemoryLog, life: MemoryLife
) -> None:
    """A request for a topic with few messages ran until its deadline and returned nothing."""
    log.write([timed(f"t{number}", START_MILLIS + 60_000 + number, "other") for number in range(1_000)])
    log.write([timed("mine", START_MILLIS + 70_000, "mine")])
    life.work()
    remaining = iter([10.0, 5.0, 1.9])
    request = pb.ListScheduledMessagesRequest(topic="mine", page_size=1)
    slow: Any = SimpleNamespace(time_remaining=lambda: next(remaining))
    answer = servicer.ListScheduledMessages(request, slow)
    assert (list(answer.messages), bool(answer.next_page_token), list(remaining)) == ([], True, [])
    request.page_token = answer.next_page_token
    answer = servicer.ListScheduledMessages(request, CONTEXT)
    assert [one.unique_key for one in answer.messages] == ["mine"]


def test_a_listed_message_says_what_recalls_it(servicer: ScheduleServicer, log: MemoryLog, life: MemoryLife) -> None:
    log.write([delayed("l", 1), timed("t", START_MILLIS + 60_300)])
    life.work()
    level, timer = servicer.ListScheduledMessages(pb.ListScheduledMessagesRequest(), CONTEXT).messages
    assert (level.delay_level, level.recall_handle, timer.delay_level) == (1, "", 0)
    assert timestamp_to_millis(timer.delivery_time, "delivery_time") == START_MILLIS + 60_300
    handle = decode_handle(RECALL, timer.recall_handle, "recall_handle")
    request = pb.RecallMessageRequest(
        topic=handle.topic, unique_key=handle.unique_key, delivery_time=millis_to_timestamp(handle.number)
    )
    assert servicer.RecallMessage(request, CONTEXT).offset_msg_id == timer.offset_msg_id
    assert servicer.GetStatus(pb.GetStatusRequest(), CONTEXT).recalled_count == 1


def test_the_status_counts_what_waits_and_what_is_late(
    servicer: ScheduleServicer, log: MemoryLog, life: MemoryLife, clock: ManualClock
) -> None:
    log.write([delayed("l", 2), timed("t", START_MILLIS + 1_000)])
    life.work()
    status = servicer.GetStatus(pb.GetStatusRequest(), CONTEXT)
    assert (status.delayed_count, status.timer_count, status.delivered_count) == (1, 1, 0)
    assert not status.HasField("oldest_due_time")
    assert tuple(status.delay_levels_millis) == DELAYS_MILLIS
    assert [(each.level, each.next_offset, each.max_offset) for each in status.delay_levels] == [(2, 0, 1)]
    clock.now += 2_000
    status = servicer.GetStatus(pb.GetStatusRequest(), CONTEXT)
    assert timestamp_to_millis(status.oldest_due_time, "oldest_due_time") == START_MILLIS + 1_000
    life.work()
    status = servicer.GetStatus(pb.GetStatusRequest(), CONTEXT)
    assert (status.delayed_count, status.timer_count, status.delivered_count) == (1, 0, 1)
    clock.now += DELAYS_MILLIS[1]
    life.work()
    status = servicer.GetStatus(pb.GetStatusRequest(), CONTEXT)
    assert [(each.level, each.next_offset, each.max_offset) for each in status.delay_levels] == [(2, 1, 1)]


def test_a_replica_that_does_not_lead_counts_nothing_that_waits(
    servicer: ScheduleServicer, log: MemoryLog, life: MemoryLife, clock: ManualClock
) -> None:
    """A defect: messages that the leader had long delivered were overdue at its followers, and an alert fired."""
    log.write([delayed("l", 2), timed("t", START_MILLIS + 1_000)])
    life.work()
    clock.now += 60_000
    life.life.refusal = not_leading
    status = servicer.GetStatus(pb.GetStatusRequest(), CONTEXT)
    assert not status.HasField("oldest_due_time")
    assert (status.delayed_count, status.timer_count, status.catching_up) == (0, 0, False)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (
            lambda one: one.ListScheduledMessages(pb.ListScheduledMessagesRequest(page_size=-1), CONTEXT),
            InvalidArgumentError,
        ),
        (
            lambda one: one.ListScheduledMessages(pb.ListScheduledMessagesRequest(page_token="x"), CONTEXT),
            InvalidPageTokenError,
        ),
        (lambda one: one.RecallMessage(pb.RecallMessageRequest(topic="T"), None), InvalidArgumentError),
        (lambda one: one.RecallMessage(pb.RecallMessageRequest(unique_key="T"), None), InvalidArgumentError),
    ],
)
def test_a_wrong_request_is_refused_by_its_reason(
    servicer: ScheduleServicer, call: Callable[[ScheduleServicer], object], error: type[Exception]
) -> None:
    with pytest.raises(error):
        call(servicer)


def test_calls_between_two_lives_are_told_to_come_again(servicer: ScheduleServicer) -> None:
    servicer.shut()
    with pytest.raises(StoreRecoveringError):
        servicer.ListScheduledMessages(pb.ListScheduledMessagesRequest(), CONTEXT)
    servicer.GetStatus(pb.GetStatusRequest(), CONTEXT)


def test_a_message_whose_request_is_under_way_waits_still(
    servicer: ScheduleServicer, log: MemoryLog, life: MemoryLife, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.write([delayed("l", 1), timed("t", START_MILLIS + 500)])
    life.work()
    clock.now += 2_000
    answered = threading.Event()
    write = log.write

    def write_later(records: Sequence[InternalRecord]) -> list[AppendResult]:
        assert answered.wait(WAIT_SECONDS_MAX)
        return write(records)

    monkeypatch.setattr(log, "write", write_later)
    life.kinds.levels.work()
    life.kinds.timers.work()
    status = servicer.GetStatus(pb.GetStatusRequest(), CONTEXT)
    pending = servicer.ListScheduledMessages(pb.ListScheduledMessagesRequest(), CONTEXT).pending_count
    answered.set()
    assert life.writer is not None
    life.writer.newest().result(WAIT_SECONDS_MAX)
    assert (status.delayed_count, status.timer_count, pending) == (1, 1, 2)
    assert timestamp_to_millis(status.oldest_due_time, "oldest_due_time") == START_MILLIS + 500
    status = servicer.GetStatus(pb.GetStatusRequest(), CONTEXT)
    assert (status.delayed_count, status.timer_count, status.HasField("oldest_due_time")) == (0, 0, False)


def test_a_verdict_that_cannot_be_read_fails_alone_among_others(servicer: ScheduleServicer, log: MemoryLog) -> None:
    properties = {REAL_TOPIC: TARGET, REAL_QUEUE_ID: "0", UNIQ_KEY: "h"}
    (receipt,) = log.write([InternalRecord(topic=HALF_TOPIC, body=b"h", properties=properties)])
    handle = WaitingHandle(TARGET, "broker-a", receipt.commit_log_offset, "h")
    commit = gateway_pb.TRANSACTION_RESOLUTION_COMMIT
    verdicts = [
        pb.EndTransactionRequest(transaction_id="no id", resolution=commit),
        pb.EndTransactionRequest(transaction_id=encode_handle(TRANSACTION, handle), resolution=commit),
        pb.EndTransactionRequest(transaction_id=encode_handle(TRANSACTION, handle)),
        pb.EndTransactionRequest(topic=TARGET, unique_key="h", resolution=commit),
    ]
    outcomes = servicer.EndTransactions(pb.EndTransactionsRequest(verdicts=verdicts), CONTEXT).outcomes
    assert [outcome.WhichOneof("outcome") for outcome in outcomes] == ["error", "ended", "error", None]
    assert outcomes[1].ended.result.commit_log_offset in log.records
    for count in (0, VERDICT_COUNT_MAX + 1):
        with pytest.raises(InvalidArgumentError):
            servicer.EndTransactions(pb.EndTransactionsRequest(verdicts=verdicts[:1] * count), CONTEXT)


def test_a_replica_that_does_not_lead_listed_what_waited_at_its_start(
    servicer: ScheduleServicer, life: MemoryLife
) -> None:
    life.kinds.life.refusal = not_leading
    with pytest.raises(NotLeaderError):
        servicer.ListScheduledMessages(pb.ListScheduledMessagesRequest(), CONTEXT)
    with pytest.raises(NotLeaderError):
        servicer.ListPendingTransactions(pb.ListPendingTransactionsRequest(), CONTEXT)
