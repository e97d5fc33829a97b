"""Checker: has producers asked for verdicts, and gives up half messages for which none knows one.

    the check is due, and a gateway has a producer of the topic    renewed with one check more, then asked
    it had all its checks                                          to TRANS_CHECK_MAX_TIME_TOPIC
    it is too old, and no producer can be asked                    the same
    its record is old                                              renewed as it is

A half message that the log does not take again stays where it is, and its checks are counted in memory. After the last one, or
when it is too old, it is ended without a copy, counted as skipped, and named by an event.

The second and third case are those of RocketMQ's `needDiscard` and `needSkip`. The last one keeps what a start reads short, and
half messages ahead of retention; RocketMQ has it for free, because it counts checks that nobody heard, too (ADR 0057).

A half message looks old at once when the wall jumps forward, or after the shard was down. So age counts only when this life has
looked at what waits for an hour without a gap of an hour: until then each one was stored again, and producers can be asked.
"""

import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import replace

import structlog

from reput.commitlog.v1.commitlog_service_pb2 import InternalRecord
from reput.message.v1.message_pb2 import AppendResult, StoredMessage
from schedule_svc.batches import log_skipped
from schedule_svc.transactions.check_gateways import ROUND_COUNT_MAX, Check, CheckGateways
from schedule_svc.transactions.half_messages import HalfMessage, for_check, given_up, renewed, transaction_id_of
from schedule_svc.transactions.pending_table import DueHalf
from schedule_svc.transactions.transactions import READ_COUNT_MAX, Outcome, Transactions, is_gone
from services.following.state_topic.state_writer import REFUSALS
from services.reading.queue_reader import Outcome as ReadOutcome
from store.errors import DeadlineExceededError, StoreError, UnsupportedStoreError

# Records younger than this are not read: most transactions end before.
UNREAD_MILLIS = 1_000
# RocketMQ's fileReservedTime: older half messages are given up.
PENDING_MILLIS_MAX = 72 * 3_600_000
RENEW_MILLIS = 3_600_000
# After a longer gap than the first between two looks nothing is given up for its age, for as long as the second. All checks of
# a producer take less: 7.5 minutes with the defaults.
GAP_MILLIS_MAX = RENEW_MILLIS
AGE_PAUSE_MILLIS = RENEW_MILLIS
# Longest wait for the log.
WRITE_SECONDS_MAX = 30.0

_log = structlog.get_logger("reput.schedule")


class Checker:
    """See the top of this file.

    Args:
        transactions: of this life.
        gateways: can ask producers.
        broker_name: of this shard.
    """

    def __init__(self, transactions: Transactions, gateways: CheckGateways, broker_name: str) -> None:
        self._transactions = transactions
        self._gateways = gateways
        self._broker_name = broker_name
        self._looked_millis = 0
        self._age_counts_millis = 0  # from this time on

    def check_due(self) -> bool:
        """Do what is due now, for at most ROUND_COUNT_MAX half messages; whether there may be more.

        Raises:
            StoreError: something failed; what can be done later is put off.
        """
        transactions = self._transactions
        now = transactions.clock.millis()
        if now - self._looked_millis > GAP_MILLIS_MAX:
            self._age_counts_millis = now + AGE_PAUSE_MILLIS
        self._looked_millis = now
        is_more = transactions.read_details(now - UNREAD_MILLIS) == READ_COUNT_MAX
        with transactions.lock:
            due = transactions.table.due(now, self._gateways.topics(), now - RENEW_MILLIS, ROUND_COUNT_MAX)
            due = [one for one in due if not transactions.is_claimed(one.queue_offset)]
            for one in due:
                transactions.claim(one.queue_offset)
            places = [transactions.table.commit_log_offset(one.queue_offset) for one in due]
        try:
            outcomes = transactions.read(places) if places else ()
        except BaseException:
            for one in due:
                transactions.release(one.queue_offset)
            raise
        written: list[Future[None]] = []
        failure: StoreError | None = None
        for one, place, outcome in zip(due, places, outcomes, strict=True):
            try:
                done = self._begin(one, place, outcome, now, is_first=one is due[0])
            except StoreError as error:
                failure = failure or error
                self._postpone(one.queue_offset, now)
            else:
                written += [done] if done is not None else []
        deadline = time.monotonic() + WRITE_SECONDS_MAX
        for done in written:
            try:
                done.result(max(deadline - time.monotonic(), 0.0))
            except FutureTimeoutError as error:
                raise DeadlineExceededError(f"the log did not take checks within {WRITE_SECONDS_MAX:.0f} s") from error
            except StoreError as error:
                failure = failure or error
        if failure is not None:
            raise failure
        return is_more or bool(written)

    def _begin(
        self, due: DueHalf, place: int, outcome: ReadOutcome, now: int, *, is_first: bool
    ) -> "Future[None] | None":
        """Do what is due for a claimed half message; None when it is put off or gone."""
        transactions, queue_offset = self._transactions, due.queue_offset
        refusal: StoreError | None = None
        if isinstance(outcome, StoredMessage) and outcome.body_omitted:
            if not is_first:
                transactions.release(queue_offset)  # for the next round
                return None
            whole = transactions.reader.whole(outcome)
            if isinstance(whole, UnsupportedStoreError):
                refusal = whole
            else:
                outcome = whole
        if isinstance(outcome, StoreError):
            if not is_gone(outcome, place):
                raise outcome
            transactions.end(queue_offset, Outcome.REMOVED)
            return None
        half = transactions.details_of(outcome)
        with transactions.lock:  # the record does not say the checks of one that the log did not take again
            half = replace(half, check_count=max(half.check_count, transactions.table.check_count(queue_offset)))
        is_too_old = now - half.made_millis > PENDING_MILLIS_MAX and now >= self._age_counts_millis
        if half.check_count >= transactions.rules.count_max or (is_too_old and not due.is_check):
            return self._give_up(outcome, half, refusal)
        count = half.check_count + due.is_check
        after = replace(half, check_count=count, store_millis=now)
        if refusal is not None:
            self._stay(queue_offset, after)
            settled: Future[None] = Future()
            settled.set_result(None)
            return settled  # those behind it come in the next round, at once

        def settle(result: AppendResult | None) -> None:
            assert result is not None
            transactions.renew(queue_offset, result.queue_offset, after)
            if due.is_check:
                self._ask(outcome, half, result)

        def when_refused(_error: StoreError) -> None:
            self._stay(queue_offset, after)
            if due.is_check:
                self._ask(outcome, half, outcome)

        return self._append(queue_offset, renewed(outcome, count), settle, when_refused)

    def _append(
        self,
        queue_offset: int,
        copy: InternalRecord | None,
        settle: Callable[[AppendResult | None], None],
        when_refused: "Callable[[StoreError], Future[None] | None] | None" = None,
    ) -> "Future[None]":
        """Have a half message ended, with a copy of it.

        Args:
            queue_offset: of the half message.
            copy: what is appended with its end.
            settle: called with the copy's receipt when both are in the log.
            when_refused: called when the log does not take the copy for what it is; its outcome is the outcome.

        Returns:
            Done when that is settled.
        """
        settled: Future[None] = Future()

        def pass_on(done: "Future[None]") -> None:
            error = done.exception()
            if error is None:
                settled.set_result(None)
            else:
                settled.set_exception(error)

        def when_done(done: "Future[AppendResult | None]") -> None:
            error, following = done.exception(), None
            try:
                if error is None:
                    settle(done.result())
                elif isinstance(error, REFUSALS) and when_refused is not None:
                    following = when_refused(error)
                else:
                    self._postpone(queue_offset, self._transactions.clock.millis())
                    settled.set_exception(error)
                    return
            except Exception as failure:
                settled.set_exception(failure)
                return
            if following is None:
                settled.set_result(None)
            else:
                following.add_done_callback(pass_on)

        self._transactions.append(queue_offset, copy).add_done_callback(when_done)
        return settled

    def _stay(self, queue_offset: int, half: HalfMessage) -> None:
        """A half message that the log does not take again waits on where it is."""
        transactions = self._transactions
        with transactions.lock:
            transactions.table.fill(queue_offset, half)
        transactions.release(queue_offset)

    def _postpone(self, queue_offset: int, now: int) -> None:
        transactions = self._transactions
        with transactions.lock:
            again = now + transactions.rules.interval_millis
            transactions.table.postpone(queue_offset, again, again - RENEW_MILLIS)
        transactions.release(queue_offset)

    def _give_up(self, record: StoredMessage, half: HalfMessage, refusal: StoreError | None) -> "Future[None]":
        """End a half message after its checks; without a copy when the log does not take one."""
        queue_offset = record.queue_offset

        def settle(_result: AppendResult | None) -> None:
            if refusal is None:
                _log.warning(
                    "transactions.given_up", topic=half.topic, unique_key=half.unique_key, check_count=half.check_count
                )
                self._transactions.end(queue_offset, Outcome.GIVEN_UP)
            else:
                log_skipped("transaction", queue_offset, record.commit_log_offset, half.topic, refusal)
                self._transactions.end(queue_offset, Outcome.DROPPED)

        if refusal is not None:
            return self._append(queue_offset, None, settle)
        return self._append(
            queue_offset, given_up(record), settle, lambda error: self._give_up(record, half, refusal=error)
        )

    def _ask(self, record: StoredMessage, half: HalfMessage, result: AppendResult | StoredMessage) -> None:
        """Have a producer asked; `result`: where the record is that waits."""
        message = for_check(record)
        message.commit_log_offset = result.commit_log_offset
        message.offset_msg_id = result.offset_msg_id
        message.store_time.CopyFrom(result.store_time)
        check = Check(
            message=message, transaction_id=transaction_id_of(half, self._broker_name, result.commit_log_offset)
        )
        with self._transactions.lock:
            self._transactions.counts.checks += 1
        if not self._gateways.offer(half.topic, check):
            _log.info("checks.unheard", topic=half.topic, unique_key=half.unique_key)  # asked again after the interval
