"""Verdicts: ends transactions for their producers.

The half message is found by its place in the log, which the transaction id names. It may have been renewed since then: what is
remembered leads to its successor, or it is found by its topic and unique key.

Verdicts that come together are read and appended together (`end_all`). A verdict that needs more than that, because its half
message is not where it was or because another verdict ends it now, has to be given alone (`end`): it may take seconds.
"""

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import NamedTuple, TypeVar

from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
from reput.message.v1.message_pb2 import AppendResult, StoredMessage
from reput.schedule.v1 import schedule_service_pb2 as pb
from schedule_svc.transactions.half_messages import HalfMessage, committed, half_of
from schedule_svc.transactions.transactions import Outcome, Transactions
from services.reading.queue_reader import is_removed
from store.errors import (
    DeadlineExceededError,
    InvalidArgumentError,
    RecordCorruptedError,
    StoreError,
    TransactionNotFoundError,
    VerdictTooLateError,
)
from store.format.delivery.waiting_handles import TRANSACTION, decode_handle

# Longest wait for the log and for others that end the same transaction.
WAIT_SECONDS_MAX = 10.0
# Half messages with one topic and unique key that are looked at.
SAME_KEY_COUNT_MAX = 64

Result = TypeVar("Result")


class Verdict(NamedTuple):
    """A verdict. `commit_log_offset`: of the half message that was sent or asked for (bytes); -1 when it is not known."""

    topic: str
    unique_key: str
    commit_log_offset: int
    is_commit: bool
    is_from_check: bool


def verdict_of(request: pb.EndTransactionRequest, broker_name: str) -> Verdict:
    """The verdict that a request says to the shard of this name.

    Raises:
        InvalidArgumentError: there is no verdict, or names are missing or contradict each other.
        TransactionNotFoundError: the half message is of another shard.
    """
    if request.resolution not in (
        gateway_pb.TRANSACTION_RESOLUTION_COMMIT,
        gateway_pb.TRANSACTION_RESOLUTION_ROLLBACK,
    ):
        raise InvalidArgumentError("resolution is missing: commit or roll back", field="resolution")
    topic, unique_key, commit_log_offset = request.topic, request.unique_key, -1
    if request.transaction_id:
        handle = decode_handle(TRANSACTION, request.transaction_id, "transaction_id")
        for field, said, named in (("topic", topic, handle.topic), ("unique_key", unique_key, handle.unique_key)):
            if said not in ("", named):
                raise InvalidArgumentError(
                    f"{field} is {said[:64]!r}, but transaction_id names {named[:64]!r}: use what the receipt says",
                    field=field,
                )
        if handle.broker_name != broker_name:
            raise TransactionNotFoundError(
                f"transaction_id names shard {handle.broker_name}, and this is {broker_name}: ask that one",
                brokerName=handle.broker_name,
            )
        topic, unique_key, commit_log_offset = handle.topic, handle.unique_key, handle.number
    elif not topic or not unique_key:
        raise InvalidArgumentError("name the transaction by transaction_id", field="transaction_id")
    is_commit = request.resolution == gateway_pb.TRANSACTION_RESOLUTION_COMMIT
    return Verdict(topic, unique_key, commit_log_offset, is_commit, request.is_from_check)


class Verdicts:
    """See the top of this file; thread-safe.

    Args:
        transactions: of this life.
        clock: seconds, rising.
    """

    def __init__(self, transactions: Transactions, clock: Callable[[], float] = time.monotonic) -> None:
        self._transactions = transactions
        self._clock = clock

    def end(self, verdict: Verdict) -> AppendResult | None:
        """End a transaction; returns when it is in the log, with the receipt of a committed message.

        Raises:
            TransactionNotFoundError: no half message waits under these names.
            VerdictTooLateError: the message's own immunity time is over, and this answers no check.
            StoreReadOnlyError, NotLeaderError: nothing can be appended.
            StoreError: it cannot be read or written now.
        """
        transactions = self._transactions
        if transactions.is_read_only:
            raise transactions.refusal()
        deadline = self._clock() + WAIT_SECONDS_MAX
        is_caught_up = False
        while True:
            try:
                found = self._find(verdict)
            except TransactionNotFoundError as error:
                if is_caught_up or error.metadata["outcome"] not in (Outcome.ENDED.name, Outcome.UNKNOWN.name):
                    raise
                transactions.catch_up()  # it may have been sent or renewed a moment ago
                is_caught_up = True
                continue
            if isinstance(found, Future):
                self._wait(found, deadline)
                continue
            record, half = found
            with transactions.lock:
                if not transactions.waits(record.queue_offset):
                    continue  # it has ended or was renewed meanwhile
                other = transactions.claim(record.queue_offset)
            if other is None:
                return self._wait(self._end_claimed(verdict, record, half), deadline)
            self._wait(other, deadline)

    def end_all(self, verdicts: Sequence[Verdict]) -> "list[pb.EndTransactionResponse | StoreError | None]":
        """End transactions by one read and one append; returns when they are in the log.

        Returns:
            For each verdict what became of it; None: nothing was done, `end` has to take it.

        Raises:
            StoreReadOnlyError, NotLeaderError: nothing can be appended.
            StoreError: the half messages cannot be read now; nothing was done.
        """
        transactions = self._transactions
        if transactions.is_read_only:
            raise transactions.refusal()
        outcomes: list[pb.EndTransactionResponse | StoreError | None] = [None] * len(verdicts)
        named = [number for number, verdict in enumerate(verdicts) if verdict.commit_log_offset >= 0]
        found = transactions.read([verdicts[number].commit_log_offset for number in named])
        claimed: list[tuple[int, StoredMessage]] = []
        try:
            with transactions.lock:
                now = transactions.clock.millis()
                for number, record in zip(named, found, strict=True):
                    verdict, half = verdicts[number], _half_in(record, verdicts[number])
                    if half is None or not isinstance(record, StoredMessage):
                        continue
                    is_too_late = not verdict.is_from_check and transactions.rules.is_too_late(half, now)
                    if is_too_late or (record.body_omitted and verdict.is_commit):
                        continue
                    if transactions.waits(record.queue_offset) and transactions.claim(record.queue_offset) is None:
                        claimed.append((number, record))
            copies = [committed(record) if verdicts[number].is_commit else None for number, record in claimed]
        except BaseException:
            for _, record in claimed:
                transactions.release(record.queue_offset)
            raise
        if not claimed:
            return outcomes
        settling = _Settling(len(claimed))
        written = transactions.append_all(
            [(record.queue_offset, copy) for (_, record), copy in zip(claimed, copies, strict=True)]
        )
        for (number, record), done in zip(claimed, written, strict=True):
            settling.add(done, self._settled(record.queue_offset, is_commit=verdicts[number].is_commit))
        settling.wait(WAIT_SECONDS_MAX)
        for (number, _), done in zip(claimed, written, strict=True):
            outcomes[number] = _outcome_of(done)
        return outcomes

    def _settled(self, queue_offset: int, *, is_commit: bool) -> "Callable[[Future[AppendResult | None]], None]":
        """Called after the append that ends a claimed half message, also when the caller has gone."""
        transactions = self._transactions

        def settle(done: "Future[AppendResult | None]") -> None:
            if done.exception() is None:
                transactions.end(queue_offset, Outcome.COMMITTED if is_commit else Outcome.ROLLED_BACK)
            else:
                transactions.release(queue_offset)

        return settle

    def _end_claimed(self, verdict: Verdict, record: StoredMessage, half: HalfMessage) -> "Future[AppendResult | None]":
        transactions, queue_offset = self._transactions, record.queue_offset
        try:
            if not verdict.is_from_check and transactions.rules.is_too_late(half, transactions.clock.millis()):
                raise VerdictTooLateError(
                    f"the immunity time of the transaction of message {verdict.unique_key[:128]} of topic {verdict.topic} "
                    f"is over ({half.own_immunity} s): its producer is asked, and the answer to that counts",
                    topic=verdict.topic,
                    uniqueKey=verdict.unique_key,
                )
            written = transactions.append(queue_offset, committed(record) if verdict.is_commit else None)
        except BaseException:
            transactions.release(queue_offset)
            raise
        settle = self._settled(queue_offset, is_commit=verdict.is_commit)
        settled: Future[AppendResult | None] = Future()

        def pass_on(done: "Future[AppendResult | None]") -> None:
            settle(done)
            error = done.exception()
            if error is None:
                settled.set_result(done.result())
            else:
                settled.set_exception(error)

        written.add_done_callback(pass_on)
        return settled

    def _find(self, verdict: Verdict) -> "tuple[StoredMessage, HalfMessage] | Future[None]":
        """The record of the half message that waits, or what to wait for before looking again."""
        known = Outcome.UNKNOWN
        if verdict.commit_log_offset >= 0:
            found = self._read(verdict.commit_log_offset, verdict)
            if found is not None:
                queue_offset = found[0].queue_offset
                with self._transactions.lock:
                    if self._transactions.waits(queue_offset):
                        return found
                    outcome = self._transactions.outcomes.of(queue_offset)
                    place = self._transactions.table.commit_log_offset(outcome) if isinstance(outcome, int) else -1
                if isinstance(outcome, Outcome):
                    raise _not_found(verdict, outcome)
                found = self._read(place, verdict) if place >= 0 else None
                if found is not None:
                    return found
                known = Outcome.ENDED
        found = self._find_by_key(verdict)
        if found is not None:
            return found
        with self._transactions.lock:
            arriving = self._transactions.arriving(verdict.topic, verdict.unique_key)
        if arriving is None:
            raise _not_found(verdict, known)
        return arriving

    def _find_by_key(self, verdict: Verdict) -> tuple[StoredMessage, HalfMessage] | None:
        transactions = self._transactions
        transactions.read_all_details()
        with transactions.lock:
            queue_offsets = transactions.table.find(verdict.topic, verdict.unique_key)[:SAME_KEY_COUNT_MAX]
            places = [transactions.table.commit_log_offset(queue_offset) for queue_offset in queue_offsets]
        for place in places:
            found = self._read(place, verdict)
            if found is not None:
                return found
        return None

    def _read(self, commit_log_offset: int, verdict: Verdict) -> tuple[StoredMessage, HalfMessage] | None:
        """The half message at an offset of the log (bytes); None when there is none of these names."""
        (outcome,) = self._transactions.read([commit_log_offset])
        if isinstance(outcome, StoredMessage) and outcome.body_omitted and verdict.is_commit:
            outcome = self._transactions.reader.whole(outcome)  # a rollback needs no body
        if isinstance(outcome, StoreError):
            # A client can make an id that leads anywhere.
            if is_removed(outcome) or isinstance(outcome, RecordCorruptedError):
                return None
            raise outcome
        half = _half_in(outcome, verdict)
        return None if half is None else (outcome, half)

    def _wait(self, future: "Future[Result]", deadline: float) -> Result:
        try:
            return future.result(max(deadline - self._clock(), 0.0))
        except FutureTimeoutError as error:
            raise _unanswered() from error


class _Settling:
    """Waits until so many appends are answered, and what follows them is done; with one wake-up."""

    def __init__(self, count: int) -> None:
        self._left = count
        self._lock = threading.Lock()
        self._is_over = threading.Event()

    def add(self, done: "Future[AppendResult | None]", settle: "Callable[[Future[AppendResult | None]], None]") -> None:
        """Have `settle` called at the end of one append."""

        def count_down(ended: "Future[AppendResult | None]") -> None:
            try:
                settle(ended)
            finally:
                with self._lock:
                    self._left -= 1
                    is_last = not self._left
                if is_last:
                    self._is_over.set()

        done.add_done_callback(count_down)

    def wait(self, seconds: float) -> None:
        """Return then, or after so many seconds."""
        self._is_over.wait(seconds)


def _outcome_of(done: "Future[AppendResult | None]") -> pb.EndTransactionResponse | StoreError:
    if not done.done():
        return _unanswered()
    error = done.exception()
    if error is None:
        return pb.EndTransactionResponse(result=done.result())
    if isinstance(error, StoreError):
        return error
    raise error


def _half_in(record: StoredMessage | StoreError, verdict: Verdict) -> HalfMessage | None:
    """The half message of a verdict in a record; None when it is another one."""
    half = None if isinstance(record, StoreError) else half_of(record)
    return half if half is not None and (half.topic, half.unique_key) == (verdict.topic, verdict.unique_key) else None


def _unanswered() -> DeadlineExceededError:
    return DeadlineExceededError(
        f"the log did not take a verdict within {WAIT_SECONDS_MAX:.0f} s: whether it counts is not known"
    )


def _not_found(verdict: Verdict, outcome: Outcome) -> TransactionNotFoundError:
    return TransactionNotFoundError(
        f"no transaction of message {verdict.unique_key[:128]} of topic {verdict.topic} waits for a verdict: {outcome.value}",
        topic=verdict.topic,
        uniqueKey=verdict.unique_key,
        outcome=outcome.name,
    )
