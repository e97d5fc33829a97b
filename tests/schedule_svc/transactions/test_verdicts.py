"""Verdicts end transactions once, whatever comes between."""

import threading
from collections.abc import Callable, Sequence
from functools import partial

import pytest

from reput.commitlog.v1.commitlog_service_pb2 import InternalRecord
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
from reput.message.v1.message_pb2 import AppendResult, StoredMessage
from reput.schedule.v1 import schedule_service_pb2 as pb
from schedule_svc.transactions.verdicts import Verdict, verdict_of
from store.errors import (
    InvalidArgumentError,
    InvalidMessageError,
    StoreError,
    TransactionNotFoundError,
    VerdictTooLateError,
)
from store.format.properties import REAL_TOPIC, UNIQ_KEY
from store.format.topic import OP_HALF_TOPIC
from tests.schedule_svc.transactions.lives import (
    BROKER,
    TOPIC_NAME,
    LogLife,
    MemoryLog,
    Producers,
    committed_bodies,
    error_of,
)
from tests.support.waiting import WAIT_SECONDS_MAX

Begin = Callable[..., LogLife]


@pytest.fixture(params=["alone", "together"])
def begin(request: pytest.FixtureRequest, begin: Begin) -> Begin:
    """Lives whose verdicts come by either call."""
    return partial(begin, ends_together=request.param == "together")


def test_a_commit_appends_the_message_and_the_end_in_one_request(log: MemoryLog, begin: Begin) -> None:
    half = log.send_half("a")
    life = begin()
    result = life.end(half)
    message, op = log.requests[-1]
    assert (message.topic, message.queue_id, message.body, message.flag) == (TOPIC_NAME, 3, b"a", 7)
    assert message.prepared_transaction_offset == half.commit_log_offset
    assert (op.topic, op.queue_id, op.body) == (OP_HALF_TOPIC, 0, b"0,")
    assert result is not None
    assert log.records[result.commit_log_offset].topic == TOPIC_NAME
    assert life.pending() == []


def test_a_rollback_appends_only_the_end(log: MemoryLog, begin: Begin) -> None:
    half = log.send_half("a")
    life = begin()
    assert life.end(half, commit=False) is None
    assert [record.topic for record in log.requests[-1]] == [OP_HALF_TOPIC]
    assert committed_bodies(log) == []
    assert life.pending() == []


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("second", [True, False])
def test_a_second_verdict_hears_what_the_first_one_was(log: MemoryLog, begin: Begin, first: bool, second: bool) -> None:
    half = log.send_half("a")
    life = begin()
    life.end(half, commit=first)
    error = error_of(lambda: life.end(half, commit=second))
    assert isinstance(error, TransactionNotFoundError)
    assert error.metadata["outcome"] == ("COMMITTED" if first else "ROLLED_BACK")
    assert committed_bodies(log) == (["a"] if first else [])


def test_a_second_verdict_after_a_restart_is_refused(log: MemoryLog, begin: Begin) -> None:
    half = log.send_half("a")
    begin().end(half)
    error = error_of(lambda: begin().end(half, commit=False))
    assert isinstance(error, TransactionNotFoundError)
    assert error.metadata["outcome"] == "ENDED"


def test_a_verdict_for_nothing_says_so(log: MemoryLog, begin: Begin) -> None:
    half = log.send_half("a")
    life = begin()
    half.properties[REAL_TOPIC] = "Other"
    error = error_of(lambda: life.end(half))
    assert isinstance(error, TransactionNotFoundError)
    assert error.metadata["outcome"] == "UNKNOWN"
    assert [row.unique_key for row in life.pending()] == ["key of a"]


def test_a_verdict_comes_before_its_half_message_is_known_here(log: MemoryLog, begin: Begin) -> None:
    life = begin()
    log.send_half("a")
    second = log.send_half("b")
    life.end(second)
    assert isinstance(error_of(lambda: life.end(second)), TransactionNotFoundError)
    life.work()
    assert [row.unique_key for row in life.pending()] == ["key of a"]
    assert isinstance(error_of(lambda: life.end(second)), TransactionNotFoundError)
    assert committed_bodies(log) == ["b"]


def test_the_receipt_still_names_a_half_message_that_was_renewed(log: MemoryLog, begin: Begin) -> None:
    half = log.send_half("a")
    life = begin()
    producers = Producers(life.gateways, TOPIC_NAME)
    for _ in range(3):
        log.manual.now += 31_000
        life.work()
    assert len(producers.asked()) == 3
    life.end(half)
    assert committed_bodies(log) == ["a"]
    assert log.waiting() == {}


def test_the_receipt_names_a_renewed_half_message_after_a_restart(log: MemoryLog, begin: Begin) -> None:
    half = log.send_half("a")
    life = begin()
    Producers(life.gateways, TOPIC_NAME)
    log.manual.now += 31_000
    life.work()
    begin().end(half)
    assert committed_bodies(log) == ["a"]


@pytest.mark.parametrize("count", [0, 1, 3])
def test_half_messages_with_one_key_have_verdicts_of_their_own(log: MemoryLog, begin: Begin, count: int) -> None:
    halves = [log.send_half(body, key="same") for body in "abc"]
    life = begin()
    Producers(life.gateways, TOPIC_NAME)
    for _ in range(count):
        log.manual.now += 31_000
        life.work()
    life.end(halves[1])
    life.end(halves[2], commit=False)
    assert committed_bodies(log) == ["b"]
    assert [half.body for half in log.waiting().values()] == [b"a"]


def test_a_verdict_waits_for_a_renewal_that_has_not_arrived(log: MemoryLog, begin: Begin) -> None:
    half = log.send_half("a")
    life = begin()
    Producers(life.gateways, TOPIC_NAME)
    recent = life.life.reader.recent
    hidden, log.recent = log.recent, None  # the renewed record is not followed yet
    log.manual.now += 31_000
    life.work()
    errors: list[StoreError] = []

    def end() -> None:
        try:
            life.end(half)
        except StoreError as error:
            errors.append(error)

    thread = threading.Thread(target=end)
    thread.start()
    thread.join(0.2)  # nothing tells that it waits
    assert thread.is_alive()
    log.recent = hidden
    recent.set_ends((topic, queue_id, queue.end) for (topic, queue_id), queue in log.queues.items())
    life.work()
    thread.join(WAIT_SECONDS_MAX)
    assert not errors
    assert committed_bodies(log) == ["a"]
    assert log.waiting() == {}


def test_of_many_verdicts_at_once_one_counts(log: MemoryLog, begin: Begin) -> None:
    halves = [log.send_half(f"m{number}") for number in range(20)]
    life = begin()
    outcomes: dict[str, list[bool]] = {half.body.decode(): [] for half in halves}
    start = threading.Barrier(8)

    def end(commit: bool) -> None:
        start.wait()
        for half in halves:
            try:
                life.end(half, commit=commit)
                outcomes[half.body.decode()].append(commit)
            except TransactionNotFoundError:
                pass

    threads = [threading.Thread(target=end, args=(number % 2 == 0,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_SECONDS_MAX)
    assert all(len(counted) == 1 for counted in outcomes.values()), "each has one verdict"
    assert sorted(committed_bodies(log)) == sorted(body for body, counted in outcomes.items() if counted[0])
    assert log.waiting() == {}


def test_verdicts_that_come_together_share_a_request(log: MemoryLog, begin: Begin) -> None:
    halves = [log.send_half(f"m{number}") for number in range(30)]
    life = begin()
    begun, go_on = threading.Event(), threading.Event()
    write = log.write

    def slowly(records: Sequence[InternalRecord]) -> list[AppendResult]:
        begun.set()
        go_on.wait(WAIT_SECONDS_MAX)
        return write(records)

    log.write = slowly  # type: ignore[method-assign]
    threads = [threading.Thread(target=life.end, args=(half,)) for half in halves]
    threads[0].start()
    begun.wait(WAIT_SECONDS_MAX)
    for thread in threads[1:]:
        thread.start()
    writer = life.kind._transactions._writer
    assert writer is not None
    while len(writer._submitted) < 29:
        threading.Event().wait(0.01)  # nothing tells that a verdict was submitted
    go_on.set()
    for thread in threads:
        thread.join(WAIT_SECONDS_MAX)
    assert [len(request) for request in log.requests if request[-1].topic == OP_HALF_TOPIC] == [2, 30]
    assert sorted(map(int, log.requests[-1][-1].body.split(b",")[:-1])) == list(range(1, 30))


def verdict(half: StoredMessage, *, commit: bool = True, from_check: bool = False) -> Verdict:
    """A verdict by what the receipt of a half message says."""
    properties = half.properties
    return Verdict(properties[REAL_TOPIC], properties[UNIQ_KEY], half.commit_log_offset, commit, from_check)


def test_verdicts_of_one_call_share_a_read_and_a_request(log: MemoryLog, begin: Begin) -> None:
    halves = [log.send_half(f"m{number}") for number in range(5)]
    life = begin()
    reads: list[int] = []
    get_many = log.get_many
    log.get_many = lambda offsets, **options: reads.append(len(offsets)) or get_many(offsets, **options)  # type: ignore[method-assign]
    outcomes = life.kind.end_all([verdict(half, commit=number != 2) for number, half in enumerate(halves)])
    receipts = [outcome for outcome in outcomes if isinstance(outcome, pb.EndTransactionResponse)]
    places = [message.commit_log_offset for message in log.messages(TOPIC_NAME)]
    places.insert(2, -1)
    assert [receipt.result.commit_log_offset if receipt.HasField("result") else -1 for receipt in receipts] == places
    assert committed_bodies(log) == ["m0", "m1", "m3", "m4"]
    assert reads == [5]
    assert [len(request) for request in log.requests if request[-1].topic == OP_HALF_TOPIC] == [5]
    assert log.waiting() == {}


def test_a_verdict_that_needs_more_than_the_log_has_to_be_given_alone(log: MemoryLog, begin: Begin) -> None:
    ended, renewed, late, twice, large = (
        log.send_half("ended"),
        log.send_half("renewed"),
        log.send_half("late", immunity="60"),
        log.send_half("twice"),
        log.send_half("x" * (5 << 20), key="large"),  # more than what is read together
    )
    life = begin()
    life.end(ended)
    Producers(life.gateways, TOPIC_NAME)
    log.manual.now += 31_000
    life.work()  # all but `late` are renewed
    for half in (twice, large):
        half.CopyFrom(
            next(one for one in log.waiting().values() if one.properties[UNIQ_KEY] == half.properties[UNIQ_KEY])
        )
    log.manual.now += 31_000
    other = log.send_half("other")
    other.properties[UNIQ_KEY] = "of another one"
    unknown = verdict(other)
    nowhere = unknown._replace(commit_log_offset=-1)
    asked = [verdict(half) for half in (ended, renewed, late, twice, twice, large)]
    outcomes = life.kind.end_all([*asked, unknown, nowhere])
    assert [None if outcome is None else type(outcome) for outcome in outcomes] == [
        *(None, None, None, pb.EndTransactionResponse, None, None),
        *(None, None),
    ]
    assert committed_bodies(log) == ["ended", "twice"]
    assert life.kind.end(verdict(renewed)) is not None
    assert isinstance(error_of(lambda: life.kind.end(verdict(twice))), TransactionNotFoundError)


def test_one_refused_message_of_a_call_fails_alone(log: MemoryLog, begin: Begin) -> None:
    halves = [log.send_half(body) for body in ("a", "bad", "c")]
    life = begin()
    write = log.write

    def refusing(records: Sequence[InternalRecord]) -> list[AppendResult]:
        if any(record.body == b"bad" for record in records):
            raise InvalidMessageError("it is bad", field="body")
        return write(records)

    log.write = refusing  # type: ignore[method-assign]
    first, second, third = life.kind.end_all([verdict(half) for half in halves])
    assert isinstance(first, pb.EndTransactionResponse)
    assert isinstance(second, InvalidMessageError)
    assert isinstance(third, pb.EndTransactionResponse)
    assert committed_bodies(log) == ["a", "c"]
    assert life.kind.end(verdict(halves[1], commit=False)) is None


def test_a_message_that_the_log_refuses_fails_alone(log: MemoryLog, begin: Begin) -> None:
    bad, good = log.send_half("bad"), log.send_half("good")
    life = begin()
    write = log.write

    def refusing(records: Sequence[InternalRecord]) -> list[AppendResult]:
        if any(record.body == b"bad" for record in records):
            raise InvalidMessageError("it is bad", field="body")
        return write(records)

    log.write = refusing  # type: ignore[method-assign]
    assert isinstance(error_of(lambda: life.end(bad)), InvalidMessageError)
    life.end(good)
    assert committed_bodies(log) == ["good"]
    assert life.life.error is None
    assert [row.unique_key for row in life.pending()] == ["key of bad"]


def test_an_append_without_answer_ends_the_life(log: MemoryLog, begin: Begin) -> None:
    half = log.send_half("a")
    life = begin()
    log.appends_left, log.writes_failing = 0, True
    assert error_of(lambda: life.end(half)).reason() == "SERVICE_UNAVAILABLE"
    log.appends_left = None
    assert life.life.error is not None
    assert error_of(lambda: life.end(half)).reason() == "SERVICE_UNAVAILABLE"
    assert isinstance(error_of(lambda: begin().end(half)), TransactionNotFoundError)
    assert committed_bodies(log) == ["a"]


def test_after_its_own_immunity_time_only_the_answer_to_a_check_counts(log: MemoryLog, begin: Begin) -> None:
    """`EndTransactionProcessor.rejectCommitOrRollback`."""
    half = log.send_half("a", immunity="10")
    life = begin()
    log.manual.now += 10_001
    assert isinstance(error_of(lambda: life.end(half)), VerdictTooLateError)
    life.end(half, from_check=True)
    assert committed_bodies(log) == ["a"]


def test_within_its_own_immunity_time_a_verdict_counts(log: MemoryLog, begin: Begin) -> None:
    halves = [log.send_half("short", immunity="1"), log.send_half("none")]
    life = begin()
    log.manual.now += 5_999  # RocketMQ's transactionTimeOut is the least
    life.end(halves[0])
    log.manual.now += 3_600_000
    life.end(halves[1])
    assert committed_bodies(log) == ["short", "none"]


def test_a_half_message_that_retention_removed_has_no_verdict(log: MemoryLog, begin: Begin) -> None:
    half = log.send_half("a")
    log.send_half("b")
    life = begin()
    life.work()
    log.remove("RMQ_SYS_TRANS_HALF_TOPIC", 0, 1)
    log.manual.now += 1_000
    life.work()
    assert isinstance(error_of(lambda: life.end(half)), TransactionNotFoundError)
    assert life.counts.removed == 1
    status = pb.GetStatusResponse()
    life.kind.describe(status)
    assert (status.removed_transaction_count, status.transaction_count) == (1, 1)
    assert [row.unique_key for row in life.pending()] == ["key of b"]


def test_names_that_contradict_each_other_are_refused() -> None:
    commit = gateway_pb.TRANSACTION_RESOLUTION_COMMIT
    own = verdict_of(pb.EndTransactionRequest(topic="T", unique_key="k", resolution=commit), BROKER)
    assert (own.topic, own.unique_key, own.commit_log_offset) == ("T", "k", -1)
    bad_requests = [
        pb.EndTransactionRequest(topic="T", unique_key="k"),
        pb.EndTransactionRequest(topic="T", resolution=commit),
        pb.EndTransactionRequest(unique_key="k", resolution=commit),
        pb.EndTransactionRequest(transaction_id="no id", resolution=commit),
    ]
    for request in bad_requests:
        with pytest.raises(InvalidArgumentError):
            verdict_of(request, BROKER)
