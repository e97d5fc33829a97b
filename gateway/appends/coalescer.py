"""Small appends of many callers, sent as one request.

Theory of operation: a call to a commitlog costs the same for one message and for many, and much more than a message. So
each flush mode has a few senders. A request that finds an idle sender is sent at once. While all senders are busy,
requests collect; the first sender that becomes idle sends all of them in one batch. Appends that wait for the disk also
share its flush in this way.

Each caller sees the same result as if its request had been sent alone. When a batch is refused and nothing of it was
written, the request with the refused message is sent again alone, and the others again together. When those are refused, too,
those of each client are sent by themselves, and in parts where they are refused again; batches of others are sent in between.
So bad requests of one client delay no other for long. Any other failure goes to all callers of the batch, and nothing is sent
again.

Where a request can be sent without waiting (`begin`), no thread of a sender is woken for it: the caller's thread sends it, and
the next batch is sent by the thread that gets the response to the one before, before it answers callers. What has to wait, a
call over gRPC or a request that is sent again, is left to the threads of the senders.

Requests and responses are recognized, joined and split as bytes, without decoding a message. Protobuf reads the bytes of two
requests, one after the other, as one request with the messages of both. So small requests of many callers are sent as one,
which costs the commitlog little more than each of them alone. The answer has a receipt for each message, in order, and is cut
where the requests were joined. Only requests with known fields, each complete, and without options of one caller
(`deduplicate`) are joined.

What a caller raises while it is answered is logged. It costs no other caller its answer, and no sender its next batch.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, Protocol, TypeAlias

import structlog

# Senders for one flush mode. With a single one, the commitlog would be idle while responses are handed out.
SENDER_COUNT = 2
# The limits of a commitlog for one request.
MESSAGE_COUNT_MAX = 1_024
REQUEST_BYTES_MAX = 4 * 1024 * 1024

_log = structlog.get_logger("reput.gateway")


class Caller(Protocol):
    """A call that waits for its response or failure (services/serving/calls/unary_call.py)."""

    def answer(self, response: bytes) -> None:
        """End the call with a response."""

    def fail(self, status: Any) -> None:
        """End the call with a failure."""

    def is_active(self) -> bool:
        """Whether the call is not cancelled."""


class AppendFailedError(Exception):
    """An append has failed.

    Args:
        status: the google.rpc.Status for the caller, unchanged.
        is_refused: nothing was written, and the request itself is the reason.
        index: the index of the message that is the reason; None when it is not known.
    """

    def __init__(self, status: Any, *, is_refused: bool = False, index: int | None = None) -> None:
        super().__init__(str(status))
        self.status = status
        self.is_refused = is_refused
        self.index = index


# The response to a request, why it has failed, or None: nothing was sent, and `send` shall be used.
Outcome: TypeAlias = bytes | AppendFailedError | None
# Sends a request with a timeout in seconds and never waits; gives the outcome to the last argument, once, if it returns True.
Begin: TypeAlias = Callable[[bytes, float, Callable[[Outcome], object]], bool]


def _never(_request: bytes, _seconds: float, _ended: Callable[[Outcome], object]) -> bool:
    return False


@dataclass(slots=True)
class PendingAppend:
    """A request that waits for a sender.

    Attributes:
        request: the bytes as received.
        message_count: the number of its messages.
        flush: its FlushMode.
        deadline_seconds: the caller's deadline on the coalescer's clock.
        caller: gets the response; its `client`, where it has one, is the client that it calls for.
        is_suspect: it was in a batch that was refused.
    """

    request: bytes
    message_count: int
    flush: int
    deadline_seconds: float
    caller: Caller
    is_suspect: bool = False


class AppendCoalescer:
    """Collects requests and sends them in batches; thread-safe. `offer` never blocks.

    services/serving/lanes.py limits the number of callers, and so what collects here: 64 KiB for each.

    Args:
        send: sends a request with a timeout in seconds; raises AppendFailedError.
        split: splits a response by the message counts of the requests; None when the counts do not match.
        executor: runs the senders; it needs `SENDER_COUNT` threads for each flush mode.
        clock: seconds, rising.
        expired: makes the status for a caller whose deadline passed before its request was sent.
        broken: makes the status for callers whose response cannot be split.
        closed: makes the status for callers whose request was not sent before `close`.
        begin: sends a request without waiting, where that is possible.
        sender_count: senders for each flush mode.
    """

    def __init__(
        self,
        send: Callable[[bytes, float], bytes],
        split: Callable[[bytes, Sequence[int]], list[bytes] | None],
        executor: Executor,
        *,
        clock: Callable[[], float],
        expired: Callable[[], Any],
        broken: Callable[[], Any],
        closed: Callable[[], Any],
        begin: Begin = _never,
        sender_count: int = SENDER_COUNT,
    ) -> None:
        self._send = send
        self._begin = begin
        self._split = split
        self._executor = executor
        self._clock = clock
        self._expired = expired
        self._broken = broken
        self._closed = closed
        self._is_closed = False
        self._sender_count = sender_count
        self._waiting: dict[int, deque[PendingAppend]] = {}
        self._suspects: dict[int, deque[list[PendingAppend]]] = {}  # each is sent as it is
        self._was_suspect: dict[int, bool] = {}
        self._busy_counts: dict[int, int] = {}
        self._lock = threading.Lock()

    def offer(self, append: PendingAppend) -> None:
        """Add a request; another thread answers its caller later."""
        self.offer_all([append])

    def offer_all(self, appends: Sequence[PendingAppend]) -> None:
        """Add requests that came together, in their order; see `offer`. An idle sender sends all of them in one batch."""
        needed: list[int] = []
        with self._lock:
            is_closed = self._is_closed
            if not is_closed:
                for append in appends:
                    self._waiting.setdefault(append.flush, deque()).append(append)
                for flush in {append.flush for append in appends}:
                    busy_count = self._busy_counts.get(flush, 0)
                    if busy_count < self._sender_count:
                        self._busy_counts[flush] = busy_count + 1
                        needed.append(flush)
        if is_closed:
            fail_each([append.caller for append in appends], self._closed())
        for flush in needed:
            self._send_next(flush)

    def close(self) -> None:
        """Send nothing more; callers whose request has not been sent get a failure. Before the executor is shut down."""
        with self._lock:
            self._is_closed = True
            left = [append for waiting in self._waiting.values() for append in waiting]
            left += [append for pieces in self._suspects.values() for piece in pieces for append in piece]
            for waiting in self._waiting.values():
                waiting.clear()
            self._suspects.clear()
        fail_each([append.caller for append in left], self._closed())

    def _send_next(self, flush: int) -> None:
        """Send the next batch without waiting, or leave it to a thread; the sender is idle when nothing waits."""
        batch = self._take_alive(flush)
        if batch is None:
            return
        if not self._begin(_joined(batch), self._seconds_of(batch), partial(self._ended, flush, batch)):
            self._leave_to_thread(flush, batch)

    def _ended(self, flush: int, batch: list[PendingAppend], outcome: Outcome) -> None:
        if outcome is None or _is_sent_again(batch, outcome):
            self._leave_to_thread(flush, batch, outcome)
            return
        try:
            self._send_next(flush)  # first: the commitlog works while callers are answered
        finally:
            self._send_batch(batch, outcome)

    def _leave_to_thread(self, flush: int, batch: list[PendingAppend], outcome: Outcome = None) -> None:
        """Have a thread of a sender send a batch; its callers get a failure where no thread will: nothing of it was written."""

        def fail() -> None:
            fail_each([append.caller for append in batch], self._closed())

        try:
            sending = self._executor.submit(self._send_waiting, flush, batch, outcome)
        except RuntimeError:  # it is shut down
            fail()
        else:
            sending.add_done_callback(lambda done: fail() if done.cancelled() else None)

    def _send_waiting(self, flush: int, batch: list[PendingAppend], outcome: Outcome = None) -> None:
        """Send a batch, or again what was refused with others; then the next one."""
        try:
            self._send_batch(batch, outcome)
        finally:
            self._send_next(flush)

    def _take_alive(self, flush: int) -> list[PendingAppend] | None:
        """As `_take`, without requests whose callers have gone or got no response in time."""
        while (batch := self._take(flush)) is not None:
            alive = []
            for append in batch:
                if append.deadline_seconds <= self._clock() or not _is_active(append.caller):
                    fail_each([append.caller], self._expired())
                else:
                    alive.append(append)
            if alive:
                return alive
        return None

    def _take(self, flush: int) -> list[PendingAppend] | None:
        """The next batch, as many requests as fit into one; None when none waits, and the sender is idle then."""
        batch: list[PendingAppend] = []
        message_count = size_bytes = 0
        with self._lock:
            waiting, suspects = self._waiting[flush], self._suspects.get(flush)
            if suspects and not (waiting and self._was_suspect.get(flush)):
                self._was_suspect[flush] = True
                return suspects.popleft()
            self._was_suspect[flush] = False
            if not waiting:
                self._busy_counts[flush] -= 1
                return None
            while waiting:
                message_count += waiting[0].message_count
                size_bytes += len(waiting[0].request)
                if batch and (message_count > MESSAGE_COUNT_MAX or size_bytes > REQUEST_BYTES_MAX):
                    break
                batch.append(waiting.popleft())
        return batch

    def _send_batch(self, batch: list[PendingAppend], outcome: Outcome) -> None:
        try:
            while batch:
                batch = self._tell(batch, outcome if outcome is not None else self._sent(batch))
                outcome = None
        except Exception:  # a sender that ended here would leave later callers without an answer
            _log.exception("append.failed", count=len(batch))
            fail_each([append.caller for append in batch], self._broken())

    def _sent(self, batch: list[PendingAppend]) -> bytes | AppendFailedError:
        try:
            return self._send(_joined(batch), self._seconds_of(batch))
        except AppendFailedError as error:
            return error

    def _tell(self, batch: list[PendingAppend], outcome: bytes | AppendFailedError) -> list[PendingAppend]:
        """Answer the callers of a batch; the requests that must be sent again."""
        if isinstance(outcome, AppendFailedError):
            if not _is_sent_again(batch, outcome):
                fail_each([append.caller for append in batch], outcome.status)
                return []
            if batch[0].is_suspect:
                self._suspect(_pieces(batch, outcome.index))
                return []
            refused = _at_message(batch, outcome.index)
            alone = [batch[refused]]
            self._tell(alone, self._sent(alone))
            left = batch[:refused] + batch[refused + 1 :]
            for append in left:
                append.is_suspect = True
            return left
        if len(batch) == 1:
            answer_or_fail(batch[0].caller, outcome, self._broken)
            return []
        responses = self._split(outcome, [append.message_count for append in batch])
        if responses is None:
            fail_each([append.caller for append in batch], self._broken())
        else:
            answers = [(append.caller, response) for append, response in zip(batch, responses, strict=True)]
            _answer_all(answers, self._broken)
        return []

    def _suspect(self, pieces: Sequence[list[PendingAppend]]) -> None:
        """Have parts of a batch that was refused twice sent one by one, by this sender or another one."""
        with self._lock:
            is_closed = self._is_closed
            if not is_closed:
                self._suspects.setdefault(pieces[0][0].flush, deque()).extend(pieces)
        if is_closed:
            fail_each([append.caller for append in chain.from_iterable(pieces)], self._closed())

    def _seconds_of(self, batch: Sequence[PendingAppend]) -> float:
        """What is left to the most patient caller."""
        return max(append.deadline_seconds for append in batch) - self._clock()


def fail_each(callers: Iterable[Caller], status: Any) -> None:
    """Fail callers. What one of them raises is logged: the others get their failure all the same."""
    for caller in callers:
        try:
            caller.fail(status)
        except Exception:
            _log.exception("append.caller_failed")


def answer_or_fail(caller: Caller, response: bytes, broken: Callable[[], Any]) -> None:
    """Answer a caller; one that raises is failed with `broken`, and what it raises is logged."""
    try:
        caller.answer(response)
    except Exception:
        _log.exception("append.caller_failed")
        fail_each([caller], broken())


def _answer_all(answers: Sequence[tuple[Caller, bytes]], broken: Callable[[], Any]) -> None:
    """Answer callers; those of a kind that has `answer_together`, a function of such pairs, in one call of it.

    Such a function answers each of its callers, or none and raises.
    """
    by_kind: dict[Callable[[Sequence[tuple[Any, bytes]]], object], list[tuple[Caller, bytes]]] = {}
    for caller, response in answers:
        together = getattr(caller, "answer_together", None)
        if together is None:
            answer_or_fail(caller, response, broken)
        else:
            by_kind.setdefault(together, []).append((caller, response))
    for together, some in by_kind.items():
        try:
            together(some)
        except Exception:
            _log.exception("append.caller_failed")
            fail_each([caller for caller, _ in some], broken())


def _is_active(caller: Caller) -> bool:
    try:
        return caller.is_active()
    except Exception:
        _log.exception("append.caller_failed")
        return False


def _client_of(caller: Caller) -> object:
    """The client that a caller calls for, if it has one that it can say."""
    try:
        return getattr(caller, "client", None)
    except Exception:
        _log.exception("append.caller_failed")
        return None


def _joined(batch: Sequence[PendingAppend]) -> bytes:
    return batch[0].request if len(batch) == 1 else b"".join([append.request for append in batch])


def _is_sent_again(batch: Sequence[PendingAppend], outcome: bytes | AppendFailedError) -> bool:
    """Whether one message of several requests was refused, and nothing was written."""
    return isinstance(outcome, AppendFailedError) and outcome.is_refused and len(batch) > 1


def _pieces(batch: list[PendingAppend], index: int | None) -> list[list[PendingAppend]]:
    """The requests of each client; those of one: what is before the refused message, its request, the rest in halves."""
    by_client: dict[object, list[PendingAppend]] = {}
    for append in batch:
        by_client.setdefault(_client_of(append.caller), []).append(append)
    if len(by_client) > 1:
        return list(by_client.values())
    refused = _at_message(batch, index)
    middle = (refused + 1 + len(batch)) // 2
    pieces = [batch[:refused], [batch[refused]], batch[refused + 1 : middle], batch[middle:]]
    return [piece for piece in pieces if piece]


def _at_message(batch: Sequence[PendingAppend], index: int | None) -> int:
    """The position of the request that holds the message with this index; 0 when none does."""
    if index is not None and index >= 0:
        for i, append in enumerate(batch):
            if index < append.message_count:
                return i
            index -= append.message_count
    return 0


MESSAGES_TAG = 0x0A  # field 1, length-delimited: `messages` of a request, `results` of a response
FLUSH_TAG = 0x10  # field 2, varint
FLUSH_MODE_COUNT = 4
# Joining a larger request gains nothing, and its length would delay the other callers.
SMALL_REQUEST_BYTES_MAX = 64 * 1024
SMALL_MESSAGE_COUNT_MAX = 32
VARINT_BYTES_MAX = 5


@dataclass(frozen=True, slots=True)
class SmallAppend:
    """Facts about a request that is joined with others.

    Attributes:
        message_count: its messages, 1 or more.
        flush: its FlushMode; only requests with the same one may be joined.
    """

    message_count: int
    flush: int


def read_small_append(request: bytes) -> SmallAppend | None:
    """A request that may be joined; None for one that has to be sent alone, also when it is damaged."""
    end = len(request)
    if end > SMALL_REQUEST_BYTES_MAX:
        return None
    position = message_count = flush = 0
    while position < end:
        tag = request[position]
        if tag == MESSAGES_TAG:
            position = _after_field(request, position + 1, end)
            if position < 0:
                return None
            message_count += 1
        elif tag == FLUSH_TAG and position + 1 < end and request[position + 1] < FLUSH_MODE_COUNT:
            flush = request[position + 1]
            position += 2
        else:
            return None
    if not 0 < message_count <= SMALL_MESSAGE_COUNT_MAX:
        return None
    return SmallAppend(message_count, flush)


def split_results(response: bytes, message_counts: Sequence[int]) -> list[bytes] | None:
    """The response for each request, given how many messages each had; None when the total is another."""
    end = len(response)
    position = 0
    responses = []
    for message_count in message_counts:
        begin = position
        for _ in range(message_count):
            if position >= end or response[position] != MESSAGES_TAG:
                return None
            position = _after_field(response, position + 1, end)
            if position < 0:
                return None
        responses.append(response[begin:position])
    return responses if position == end else None


def _after_field(data: bytes, position: int, end: int) -> int:
    """The end of a length-delimited field whose length is at the position; -1 when it ends outside the data."""
    size_bytes = 0
    for shift in range(0, VARINT_BYTES_MAX * 7, 7):
        if position >= end:
            return -1
        byte = data[position]
        position += 1
        size_bytes |= (byte & 0x7F) << shift
        if byte < 0x80:
            position += size_bytes
            return position if position <= end else -1
    return -1
