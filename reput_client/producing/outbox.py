"""The messages of a producer between `send` and their answers. No I/O, no clock, no lock.

    add ──▶ open batch ──full, lingered, sealed──▶ ready ──take──▶ in flight ──answered──▶ settled
                                                     ▲                 │
                                                     └────give_back────┘   the stream broke, or a request was refused

Batches keep their order: a batch that is given back goes to the front, by number. A batch is settled when each of its
messages has an answer or an error; until then its bytes count as buffered. `Outcomes` has what an answer, or the end of the
attempts, means for each message.
"""

from collections import deque
from collections.abc import Container, Iterable, Sequence

from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2
from reput_client.encoding import topic_of, unique_key_of
from reput_client.errors import (
    AccessError,
    BufferFullError,
    DeliveryTimeoutError,
    DeliveryUnknownError,
    FailedPreconditionError,
    FlushFailedError,
    InternalError,
    InvalidRequestError,
    ProducerClosedError,
    QuotaExceededError,
    ReputClientError,
    TopicNotFoundError,
    error_of_status,
    is_worth_retrying,
)
from reput_client.producing.futures import Settlement, Span
from reput_client.producing.settings import MESSAGE_OVERHEAD_BYTES, ProducerSettings

# A batch that cannot be sent is closed after this time, so that its messages have about one age and expire together.
BATCH_SPREAD_SECONDS_MAX = 1.0
# Callers that wait for room are woken when this part of the buffer is free, not for each answer.
AMPLE_ROOM_DIVISOR = 8


def taken_bytes(wires: Sequence[bytes]) -> int:
    """Bytes that messages take in the buffer."""
    return sum(map(len, wires)) + MESSAGE_OVERHEAD_BYTES * len(wires)


class Batch:
    """Messages that share a request.

    Attributes:
        number: rising in the order of sending.
        wires: its messages as fields of a request, in the order of sending.
        settlement: gets the outcomes.
        slots: of each message its slot in the settlement; None while that is its place in `wires`.
        wire_bytes: of all messages.
        opened_at: time of its first message, seconds.
        last_added_at: time of its last message, seconds.
        attempt_count: how often it was taken.
        may_be_written: it was taken, and how that ended is unknown.
        error: why it was given back last.
    """

    __slots__ = (
        "attempt_count",
        "error",
        "last_added_at",
        "may_be_written",
        "number",
        "opened_at",
        "settlement",
        "slots",
        "wire_bytes",
        "wires",
    )

    def __init__(self, number: int, now: float) -> None:
        self.number = number
        self.wires: list[bytes] = []
        self.settlement = Settlement()
        self.slots: list[int] | None = None
        self.wire_bytes = 0
        self.opened_at = self.last_added_at = now
        self.attempt_count = 0
        self.may_be_written = False
        self.error: ReputClientError | None = None

    @property
    def buffered_bytes(self) -> int:
        """Bytes that its messages take in the buffer."""
        return self.wire_bytes + MESSAGE_OVERHEAD_BYTES * len(self.wires)

    def slot_of(self, index: int) -> int:
        """The slot of the message at this place."""
        return index if self.slots is None else self.slots[index]


class Outbox:
    """See the top of the file; times are seconds of a monotonic clock.

    Args:
        settings: the limits.

    Attributes:
        buffered_bytes: of all messages that are not settled.
        is_saturated: the limit of requests in flight was reached, and more than half of them still are. The taker need not
            check after each answer.
    """

    def __init__(self, settings: ProducerSettings) -> None:
        self._linger_seconds = settings.linger_millis / 1000
        self._batch_count_max = settings.batch_count_max
        self._batch_bytes_max = settings.batch_bytes_max
        self._buffer_bytes_max = settings.buffer_bytes_max
        self._in_flight_count_max = settings.in_flight_count_max
        self._delivery_seconds_max = settings.delivery_seconds_max
        self._open: Batch | None = None
        self._is_urgent = False
        self._ready: deque[Batch] = deque()
        self._in_flight: deque[Batch] = deque()
        self._refused: list[Batch] = []
        self._unfinished: set[int] = set()
        self._number = 0
        self.buffered_bytes = 0
        self.is_saturated = False

    @property
    def has_work(self) -> bool:
        """Whether any message has no answer yet."""
        return bool(self._open or self._ready or self._in_flight or self._refused)

    @property
    def has_waiting(self) -> bool:
        """Whether any message is not in flight."""
        return bool(self._open or self._ready)

    @property
    def in_flight_count(self) -> int:
        """Batches taken and not answered."""
        return len(self._in_flight)

    @property
    def has_ample_room(self) -> bool:
        """Whether callers that wait for room should be woken; always true when no answer is expected."""
        room_bytes = self._buffer_bytes_max - self.buffered_bytes
        return room_bytes >= self._buffer_bytes_max // AMPLE_ROOM_DIVISOR or not self._in_flight

    def has_room(self, size_bytes: int) -> bool:
        """Whether `size_bytes` more (`taken_bytes`) fit in the buffer now."""
        return self.buffered_bytes + size_bytes <= self._buffer_bytes_max

    def check_fits(self, size_bytes: int) -> None:
        """Raise BufferFullError if `size_bytes` exceed the whole buffer."""
        if size_bytes > self._buffer_bytes_max:
            raise BufferFullError(
                f"the messages take {size_bytes} bytes, more than buffer_bytes_max: send fewer at once, or raise it"
            )

    def full_error(self, seconds: float) -> BufferFullError:
        """The error when there was no room for `seconds`."""
        return BufferFullError(
            f"{self.buffered_bytes} bytes wait for answers, and no room became free within {seconds} s: "
            "send more slowly, or raise buffer_bytes_max"
        )

    def add(self, wire: bytes, now: float, *, urgent: bool = False) -> tuple[Settlement, int, bool]:
        """Add a message behind all others.

        Args:
            wire: its bytes, as a field of a request; they fit in the buffer.
            now: the time.
            urgent: the caller waits for the answer: do not linger while nothing is in flight.

        Returns:
            Its settlement, its slot there, and whether the taker of batches must be woken.
        """
        size_bytes = len(wire)
        batch, wake = self._open, False
        if batch is None or not self._takes(batch, size_bytes, now):
            batch, wake = self._next_batch(now), True
        wires = batch.wires
        slot = len(wires)
        wires.append(wire)
        batch.wire_bytes += size_bytes
        batch.last_added_at = now
        self.buffered_bytes += size_bytes + MESSAGE_OVERHEAD_BYTES
        if slot + 1 >= self._batch_count_max or batch.wire_bytes >= self._batch_bytes_max:
            self.seal()
            wake = True
        elif urgent and not self._is_urgent:
            self._is_urgent = True
            wake = True
        return batch.settlement, slot, wake

    def add_all(self, wires: Sequence[bytes], now: float) -> list[Span]:
        """Put messages behind all others, in one request if they fit in one.

        Args:
            wires: their bytes as they stand in a request, one at least; all of them fit the buffer.
            now: the time.

        Returns:
            Where they will be settled.
        """
        batch, size_bytes = self._open, sum(map(len, wires))
        if batch is not None and not (
            self._takes(batch, size_bytes, now) and len(batch.wires) + len(wires) <= self._batch_count_max
        ):
            self.seal()
        self.buffered_bytes += size_bytes + MESSAGE_OVERHEAD_BYTES * len(wires)
        spans: list[Span] = []
        begin = 0
        while begin < len(wires):
            batch = self._open or self._next_batch(now)
            end, added_bytes = self._end_of_joining(batch, wires, begin, size_bytes)
            if end > begin:
                spans.append(Span(batch.settlement, len(batch.wires), end - begin))
                batch.wires.extend(wires[begin:end])
                batch.wire_bytes += added_bytes
                batch.last_added_at = now
                size_bytes -= added_bytes
            is_full = len(batch.wires) >= self._batch_count_max or batch.wire_bytes >= self._batch_bytes_max
            if end < len(wires) or is_full:
                self.seal()
            begin = end
        return spans

    def _end_of_joining(self, batch: Batch, wires: Sequence[bytes], begin: int, size_bytes: int) -> tuple[int, int]:
        """The end of those that join a batch, from `begin` on, and their bytes; `size_bytes` is of all that are left."""
        count_room = self._batch_count_max - len(batch.wires)
        room = self._batch_bytes_max - batch.wire_bytes
        if len(wires) - begin <= count_room and size_bytes <= room:
            return len(wires), size_bytes
        end, added_bytes = begin, 0
        for wire in wires[begin : begin + count_room]:
            if added_bytes + len(wire) > room and (batch.wires or end > begin):
                break
            added_bytes += len(wire)
            end += 1
        return end, added_bytes

    def _takes(self, batch: Batch, size_bytes: int, now: float) -> bool:
        """Whether so many bytes may join a batch with messages."""
        return (
            batch.wire_bytes + size_bytes <= self._batch_bytes_max and now - batch.opened_at <= BATCH_SPREAD_SECONDS_MAX
        )

    def _next_batch(self, now: float) -> Batch:
        """A new open batch; the one before is complete."""
        self.seal()
        self._number += 1
        batch = self._open = Batch(self._number, now)
        self._unfinished.add(self._number)
        return batch

    def seal(self) -> int:
        """Let the open batch go without further linger; the number of the last batch so far."""
        if self._open is not None:
            self._ready.append(self._open)
            self._open = None
        self._is_urgent = False
        return self._number

    def take(self, now: float) -> Batch | None:
        """The next batch to be sent, in flight from now on; None when there is none or no more may be in flight."""
        if len(self._in_flight) >= self._in_flight_count_max:
            self.is_saturated = True
            return None
        if not self._ready:
            batch = self._open
            if batch is None or (now < self._leaves_at(batch)):
                return None
            self.seal()
        batch = self._ready.popleft()
        batch.attempt_count += 1
        self._in_flight.append(batch)
        return batch

    def next_take_seconds(self, now: float) -> float | None:
        """Seconds until `take` has a batch by time alone; None when only an event gives one."""
        if self._open is None or self._ready or len(self._in_flight) >= self._in_flight_count_max:
            return None
        return max(0.0, self._leaves_at(self._open) - now)

    def answered(self) -> Batch:
        """The oldest batch in flight, which the next answer belongs to; IndexError when there is none."""
        batch = self._in_flight.popleft()
        if len(self._in_flight) <= self._in_flight_count_max // 2:
            self.is_saturated = False
        return batch

    def settle(self, batch: Batch) -> None:
        """All of the batch's messages have their answer: give their room back."""
        self.buffered_bytes -= batch.buffered_bytes

    def finish(self, batch: Batch) -> None:
        """The futures of a settled batch are done."""
        self._unfinished.discard(batch.number)

    def is_finished(self, number: int) -> bool:
        """Whether all batches up to this number are finished."""
        return not any(each <= number for each in self._unfinished)

    def refuse(self, batch: Batch, error: ReputClientError) -> None:
        """An answered batch is to be tried again once the stream has ended."""
        batch.error = error
        self._refused.append(batch)

    def drop_messages(self, batch: Batch, indices: Container[int]) -> list[int]:
        """Take bad messages out of a batch that was refused for them; the rest goes to the front, to be sent again.

        Returns:
            Their slots.
        """
        dropped = [index for index in range(len(batch.wires)) if index in indices]
        slots = [batch.slot_of(index) for index in dropped]
        left = [index for index in range(len(batch.wires)) if index not in indices]
        size_bytes = taken_bytes([batch.wires[index] for index in dropped])
        batch.slots = [batch.slot_of(index) for index in left]
        batch.wires = [batch.wires[index] for index in left]
        batch.wire_bytes -= size_bytes - MESSAGE_OVERHEAD_BYTES * len(dropped)
        self.buffered_bytes -= size_bytes
        if batch.wires:
            batch.attempt_count = 0  # each such round has fewer messages, which bounds them
            self._insert([batch])
        return slots

    def give_back(self, error: ReputClientError | None) -> None:
        """The stream has ended: what was refused or has no answer goes back to the front, in order."""
        for batch in self._in_flight:
            batch.may_be_written = True
            batch.error = error or batch.error
        self._insert([*self._in_flight, *self._refused])
        self._in_flight.clear()
        self.is_saturated = False
        self._refused.clear()

    def remove_overdue(self, now: float, attempt_count_max: int) -> list[Batch]:
        """Take out what waits and had its time or its attempts; its room is given back."""
        overdue = [
            batch
            for batch in self._ready
            if now >= batch.last_added_at + self._delivery_seconds_max or batch.attempt_count >= attempt_count_max
        ]
        if overdue:
            self._ready = deque(batch for batch in self._ready if batch not in overdue)
        if self._open is not None and now >= self._open.last_added_at + self._delivery_seconds_max:
            overdue.append(self._open)
            self._open = None
        for batch in overdue:
            self.settle(batch)
        return overdue

    def overdue_at(self) -> float:
        """The time at which the first message expires; infinite without messages."""
        return min((b.last_added_at for b in self._all()), default=float("inf")) + self._delivery_seconds_max

    def remove_all(self) -> list[Batch]:
        """Take out everything; the room of all is given back."""
        self.give_back(None)
        self.seal()
        batches = list(self._ready)
        self._ready.clear()
        for batch in batches:
            self.settle(batch)
        return batches

    def _leaves_at(self, batch: Batch) -> float:
        if self._is_urgent and not self._in_flight:
            return batch.opened_at
        return batch.opened_at + self._linger_seconds

    def _insert(self, batches: Iterable[Batch]) -> None:
        self._ready = deque(sorted([*batches, *self._ready], key=lambda batch: batch.number))

    def _all(self) -> list[Batch]:
        # Batches of one kind are in order, and so are their times; refused ones may be of any age.
        firsts = [queue[0] for queue in (self._ready, self._in_flight) if queue]
        return firsts + self._refused + ([self._open] if self._open is not None else [])


CLOSED = "were still waiting when the producer was closed"
OVERDUE = "could not be delivered in time"


class Outcomes:
    """Outcomes of messages, collected while the outbox changes and told afterwards, outside any lock.

    Attributes:
        refusal: why a request was refused for now; no more requests may be sent on this stream.
    """

    __slots__ = ("_done", "_failed", "_finished", "refusal")

    def __init__(self) -> None:
        self.refusal: ReputClientError | None = None
        self._done: tuple[Settlement, Sequence[message_pb2.AppendResult]] | None = None
        self._failed: list[tuple[Settlement, dict[int, ReputClientError]]] = []
        self._finished: list[Batch] = []

    def take_answer(self, outbox: Outbox, response: pb.AppendMessageStreamResponse) -> None:
        """The answer to the oldest request in flight."""
        if not outbox.in_flight_count:
            raise InternalError("the gateway sent an answer without a request")
        batch = outbox.answered()
        if response.HasField("error"):
            self._take_refusal(outbox, batch, error_of_status(response.error))
            return
        results = response.results
        if len(results) != len(batch.wires):
            batch.may_be_written = True
            batch.error = InternalError(f"{len(results)} receipts came for {len(batch.wires)} messages")
            outbox.settle(batch)
            self.give_up([batch], "were answered, but not one by one")
            return
        outbox.settle(batch)
        self._done = batch.settlement, results
        self._finished.append(batch)

    def _take_refusal(self, outbox: Outbox, batch: Batch, error: ReputClientError) -> None:
        if isinstance(error, FlushFailedError):
            batch.may_be_written = True
        index = error.metadata.get("index", "")
        names_one = index.isdigit() and int(index) < len(batch.wires)
        # A quota that leaves no room for a new topic stays; messages of other topics must not wait for it.
        if is_worth_retrying(error) and not (names_one and isinstance(error, QuotaExceededError)):
            outbox.refuse(batch, error)
            self.refusal = error
            return
        if names_one:
            slots = outbox.drop_messages(batch, _refused_with(batch, int(index), error))
            self._failed.append((batch.settlement, dict.fromkeys(slots, error)))
            if not batch.wires:
                self._finished.append(batch)
            return
        outbox.settle(batch)
        self._fail(batch, [error] * len(batch.wires))

    def take_stream_error(self, outbox: Outbox, error: ReputClientError) -> None:
        """The stream ended with an error that a retry does not cure: the oldest request in flight fails with it."""
        if not outbox.in_flight_count:
            return
        batch = outbox.answered()
        outbox.settle(batch)
        # The caller is checked when a stream begins: nothing that was sent on this one is stored.
        is_locked_out = isinstance(error, AccessError) and not batch.may_be_written
        if is_locked_out or isinstance(error, InvalidRequestError | FailedPreconditionError):
            self._fail(batch, [error] * len(batch.wires))
        else:
            batch.may_be_written = True
            batch.error = error
            self.give_up([batch], "ended their stream")

    def give_up(self, batches: Sequence[Batch], why: str) -> None:
        """Fail batches that are not tried again.

        Args:
            batches: already settled.
            why: the rest of a sentence that begins with "The messages".
        """
        for batch in batches:
            self._fail(batch, (_error_of_giving_up(batch, wire, why) for wire in batch.wires))

    def _fail(self, batch: Batch, errors: Iterable[ReputClientError]) -> None:
        slots = {batch.slot_of(index): error for index, error in enumerate(errors)}
        self._failed.append((batch.settlement, slots))
        self._finished.append(batch)

    def tell(self) -> None:
        """Settle the futures and call callbacks; what a callback raises is logged."""
        if self._done is not None:
            settlement, results = self._done
            settlement.settle(results)
        for settlement, errors in self._failed:
            settlement.fail(errors)

    def finish(self, outbox: Outbox) -> None:
        """Tell the outbox that the outcomes were told."""
        for batch in self._finished:
            outbox.finish(batch)


def _refused_with(batch: Batch, index: int, error: ReputClientError) -> Container[int]:
    """The messages of a batch that its error is about: the one at this index; of a refused topic all, at once.

    One by one, 1,024 messages to a topic that is not there would take as many requests, of 1 MiB each.
    """
    topic = error.metadata.get("topic", "")
    if not topic or not isinstance(error, AccessError | TopicNotFoundError | QuotaExceededError):
        return (index,)
    return {index, *(place for place, wire in enumerate(batch.wires) if topic_of(wire) == topic)}


def _error_of_giving_up(batch: Batch, wire: bytes, why: str) -> ReputClientError:
    last = f" The last failure: {batch.error}" if batch.error is not None else ""
    error: ReputClientError
    if batch.may_be_written:
        error = DeliveryUnknownError(
            f"The messages {why}; they were sent, so whether they are stored is unknown.{last}",
            metadata={"uniqueKey": unique_key_of(wire)},
        )
    elif why == CLOSED:
        error = ProducerClosedError(f"The messages {why}; they are not stored.{last}")
    else:
        error = DeliveryTimeoutError(f"The messages {why}; they are not stored.{last}")
    error.__cause__ = batch.error
    return error
