"""Checker: has producers asked for verdicts, and gives up half messages for which none knows one.

    the check is due, and a gateway has a producer of the topic    renewed with one check more, then asked
    no producer got the check                                      renewed with one check less, asked later (ADR 0142)
    it had all its checks                                          to TRANS_CHECK_MAX_TIME_TOPIC
    it is too old, and no producer can be asked                    the same
    its record is old                                              renewed as it is

A half message that the log does not take again stays where it is, and its checks are counted in memory. After the last one, or
when it is too old, it is ended without a copy, counted as skipped, and named by an event.

The second and third case are those of RocketMQ's `needDiscard` and `needSkip`. The last one keeps what a start reads short, and
half messages ahead of retention; RocketMQ has it for free, because it counts checks that nobody heard, too (ADR 0057).

A half message looks old at once when the wall jumps forward, or after the shard was down. So age counts only when this life has
looked at what waits for an hour without a gap of an hour: until then each one was stored again, and producers can be asked.

CheckGateways: which gateways can ask a producer of a topic for verdicts, and the checks on their way to them.
"""

import contextlib
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import replace

import structlog

from reput.commitlog.v1.commitlog_service_pb2 import InternalRecord
from reput.message.v1.message_pb2 import AppendResult, StoredMessage
from reput.schedule.v1 import schedule_service_pb2 as pb
from schedule_svc.batches import log_skipped
from schedule_svc.transactions.half_messages import (
    HalfMessage,
    asked_group,
    for_check,
    given_up,
    half_of,
    renewed,
    transaction_id_of,
)
from schedule_svc.transactions.pending_table import DueHalf
from schedule_svc.transactions.transactions import READ_COUNT_MAX, Outcome, Transactions, is_gone
from services.following.state_topic.state_writer import REFUSALS
from services.reading.queue_reader import Outcome as ReadOutcome
from store.errors import (
    DeadlineExceededError,
    InvalidArgumentError,
    ResourceBusyError,
    StoreError,
    UnsupportedStoreError,
)
from store.format.delivery.waiting_handles import TRANSACTION, decode_handle

# A gateway says again and again which producers it has.
KEPT_SECONDS = 60.0
GATEWAY_COUNT_MAX = 1_024
TOPIC_COUNT_MAX = 65_536
GROUP_COUNT_MAX = 65_536
NAME_LENGTH_MAX = 255
# Checks that wait for one stream; the half message of one that finds no room is not counted as checked.
CHECK_COUNT_MAX = 1_024
CHECK_BYTES_MAX = 16 << 20
# Checks that no producer got and that are not taken back yet; further ones count.
UNHEARD_COUNT_MAX = 16_384
# What is offered between two looks at `asked`, and goes into one answer.
ROUND_COUNT_MAX = 256
ANSWER_BYTES_MAX = 4 << 20

Check = pb.WatchChecksResponse.Check


class CheckStream:
    """The checks of one stream; made by `CheckGateways.watch`."""

    def __init__(self, gateway_id: str) -> None:
        self.gateway_id = gateway_id
        self._changed = threading.Condition()
        self._checks: deque[tuple[Check, int]] = deque()
        self._size_bytes = 0
        self._is_over = False

    @property
    def has_room(self) -> bool:
        """Whether it takes another round of checks."""
        return len(self._checks) <= CHECK_COUNT_MAX - ROUND_COUNT_MAX and self._size_bytes < CHECK_BYTES_MAX

    def put(self, check: Check) -> bool:
        """Add a check; False: the stream has ended."""
        size_bytes = check.ByteSize()
        with self._changed:
            if self._is_over:
                return False
            self._checks.append((check, size_bytes))
            self._size_bytes += size_bytes
            self._changed.notify()
            return True

    def take(self, timeout_seconds: float) -> Sequence[Check]:
        """Wait for checks and take what one answer holds; none when the time ran out first, or at the end."""
        taken: list[Check] = []
        left = ANSWER_BYTES_MAX
        with self._changed:
            self._changed.wait_for(lambda: bool(self._checks) or self._is_over, timeout_seconds)
            while self._checks and len(taken) < ROUND_COUNT_MAX and (not taken or self._checks[0][1] <= left):
                check, size_bytes = self._checks.popleft()
                self._size_bytes -= size_bytes
                left -= size_bytes
                taken.append(check)
        return taken

    def end(self) -> None:
        """Wait no longer from now on."""
        with self._changed:
            self._is_over = True
            self._changed.notify()

    def rest(self) -> Sequence[Check]:
        """End it, and return the checks that no producer got."""
        with self._changed:
            self._is_over = True
            rest = [check for check, _ in self._checks]
            self._checks.clear()
            self._size_bytes = 0
        return rest


class CheckGateways:
    """See the top of this file; thread-safe.

    Args:
        clock: seconds, rising.
        choose: picks one of several streams.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        choose: Callable[[Sequence[CheckStream]], CheckStream] = random.choice,
    ) -> None:
        self._clock = clock
        self._choose = choose
        self._lock = threading.Lock()
        self._kept: dict[str, tuple[float, frozenset[str]]] = {}  # kept until, and who can be asked
        self._streams: tuple[CheckStream, ...] = ()
        self._unheard: deque[str] = deque()

    def keep(self, gateway_id: str, topics: Sequence[str], producer_groups: Sequence[str] = ()) -> None:
        """A gateway has producers of these topics and of these groups, and no others.

        Raises:
            InvalidArgumentError: a name is empty or too long, or there are too many.
            ResourceBusyError: too many gateways are known.
        """
        check_gateway_id(gateway_id)
        if len(topics) > TOPIC_COUNT_MAX or any(len(topic) > NAME_LENGTH_MAX for topic in topics):
            raise InvalidArgumentError(
                f"{len(topics)} topics: at most {TOPIC_COUNT_MAX} of at most {NAME_LENGTH_MAX} characters are possible",
                field="topics",
            )
        if len(producer_groups) > GROUP_COUNT_MAX or any(len(group) > NAME_LENGTH_MAX for group in producer_groups):
            raise InvalidArgumentError(
                f"{len(producer_groups)} producer groups: at most {GROUP_COUNT_MAX} of {NAME_LENGTH_MAX} characters are "
                "possible",
                field="producer_groups",
            )
        asked = frozenset([*topics, *map(asked_group, producer_groups)])
        now = self._clock()
        with self._lock:
            self._kept = {name: kept for name, kept in self._kept.items() if kept[0] > now}
            if gateway_id not in self._kept and len(self._kept) >= GATEWAY_COUNT_MAX:
                raise ResourceBusyError(f"{GATEWAY_COUNT_MAX} gateways are known: try again in a minute")
            self._kept[gateway_id] = (now + KEPT_SECONDS, asked)

    def watch(self, gateway_id: str) -> CheckStream:
        """A new stream of a gateway."""
        check_gateway_id(gateway_id)
        stream = CheckStream(gateway_id)
        with self._lock:
            self._streams += (stream,)
        return stream

    def forget(self, stream: CheckStream) -> None:
        """A stream has ended; the checks that it still has were not heard."""
        with self._lock:
            self._streams = tuple(one for one in self._streams if one is not stream)
        self.put_back([check.transaction_id for check in stream.rest()])

    def put_back(self, transaction_ids: Sequence[str]) -> None:
        """No producer got these checks."""
        with self._lock:
            self._unheard.extend(transaction_ids[: UNHEARD_COUNT_MAX - len(self._unheard)])

    def take_unheard(self) -> Sequence[str]:
        """Some of the checks that no producer got, each once."""
        with self._lock:
            return [self._unheard.popleft() for _ in range(min(ROUND_COUNT_MAX, len(self._unheard)))]

    def end(self) -> None:
        """The service stops: no stream waits any more."""
        for stream in self._streams:
            stream.end()

    def asked(self) -> frozenset[str]:
        """The topics and groups whose producers can be asked now; see HalfMessage."""
        return frozenset[str]().union(*(self._asked_by(stream) for stream in self._streams if stream.has_room))

    def offer(self, asked: Sequence[str], check: Check) -> bool:
        """Give a check to a gateway that has a producer of one of these topics or groups; False when there is none."""
        streams = [stream for stream in self._streams if not self._asked_by(stream).isdisjoint(asked)]
        streams = [stream for stream in streams if stream.has_room] or streams
        return bool(streams) and self._choose(streams).put(check)

    def has_producer(self, asked: Sequence[str]) -> bool:
        """Whether a gateway has a producer of one of these topics or groups."""
        return any(not self._asked_by(stream).isdisjoint(asked) for stream in self._streams)

    def _asked_by(self, stream: CheckStream) -> frozenset[str]:
        kept_until, asked = self._kept.get(stream.gateway_id, (0.0, frozenset[str]()))
        return asked if self._clock() < kept_until else frozenset[str]()


def check_gateway_id(gateway_id: str) -> None:
    """Raise InvalidArgumentError when a text cannot name a gateway."""
    if not 0 < len(gateway_id) <= NAME_LENGTH_MAX:
        raise InvalidArgumentError(
            f"gateway_id has {len(gateway_id)} characters: use 1 to {NAME_LENGTH_MAX}", field="gateway_id"
        )


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
        put_back = self._put_back(now)
        with transactions.lock:
            due = transactions.table.due(now, self._gateways.asked(), now - RENEW_MILLIS, ROUND_COUNT_MAX)
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
        written = list(put_back)
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
            half = replace(
                half,
                check_count=max(half.check_count, transactions.table.check_count(queue_offset)),
                unheard_count=transactions.table.unheard_count(queue_offset),
            )
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

    def _put_back(self, now: int) -> "Sequence[Future[None]]":
        """Take back checks that no producer got: these half messages are renewed with one check less, and wait longer.

        One that is too old for that keeps its checks, so that it ends although its producers are named and never got.
        """
        transactions = self._transactions
        unheard = self._gateways.take_unheard()
        places = list(self._places_of(unheard))
        written: list[Future[None]] = []
        try:
            records = transactions.read(places) if places else ()
        except StoreError:
            self._gateways.put_back(unheard)
            raise
        for record in records:
            whole = record
            if isinstance(record, StoredMessage) and record.body_omitted:
                whole = transactions.reader.whole(record)
            if not isinstance(whole, StoredMessage) or half_of(whole) is None:
                continue  # it is gone, or cannot be read: the check counts
            half, queue_offset = transactions.details_of(whole), whole.queue_offset
            with transactions.lock:
                count = max(half.check_count, transactions.table.check_count(queue_offset))
                unheard_count = transactions.table.unheard_count(queue_offset) + 1
                if not count or now - half.made_millis > PENDING_MILLIS_MAX or not transactions.waits(queue_offset):
                    continue
                if transactions.claim(queue_offset) is not None:
                    continue  # a verdict came
            is_in_log = half.check_count == count  # else the log did not take it again
            after = replace(half, check_count=count - 1, unheard_millis=half.store_millis, unheard_count=unheard_count)
            if is_in_log:
                written.append(self._take_back(whole, after))
            else:
                self._stay(queue_offset, after)
        return written

    def _take_back(self, record: StoredMessage, after: HalfMessage) -> "Future[None]":
        queue_offset = record.queue_offset

        def settle(result: AppendResult | None) -> None:
            assert result is not None
            self._transactions.renew(queue_offset, result.queue_offset, after)

        return self._append(
            queue_offset,
            renewed(record, after.check_count),
            settle,
            lambda _error: self._stay(queue_offset, after),
        )

    def _places_of(self, transaction_ids: Sequence[str]) -> Iterator[int]:
        """Where the half messages of checks are in the log (bytes); of this shard only."""
        for transaction_id in transaction_ids:
            with contextlib.suppress(InvalidArgumentError):
                handle = decode_handle(TRANSACTION, transaction_id, "transaction_id")
                if handle.broker_name == self._broker_name:
                    yield handle.number

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
        message.queue_offset = result.queue_offset  # of the half message, as a broker tells it
        message.offset_msg_id = result.offset_msg_id
        message.store_time.CopyFrom(result.store_time)
        check = Check(
            message=message, transaction_id=transaction_id_of(half, self._broker_name, result.commit_log_offset)
        )
        with self._transactions.lock:
            self._transactions.counts.checks += 1
        if not self._gateways.offer(half.asked, check):
            _log.info("checks.unheard", topic=half.topic, unique_key=half.unique_key)
            self._gateways.put_back([check.transaction_id])
